//! Rows made of parallel arrays: what `unnest($1::int[], $2::text[])` returns.
//!
//! An array comes as its text, `{1,NULL,"a b"}`, which is read item by item.

use std::borrow::Cow;

use aerostat_storage::ValueRef;
use aerostat_types::{SqlType, Zone};

use crate::{
    Stop, Value,
    input::Values,
    rows::{CHUNK_CELLS, Cell, CellText},
};

/// The arrays of a run, each with its items' type.
pub(crate) struct Arrays<'t>(Vec<(SqlType, Items<'t>)>);

impl<'t> Arrays<'t> {
    /// The arrays of these parameters. A NULL has no items.
    pub(crate) fn of(arrays: &[(usize, SqlType)], values: &Values<'t>) -> Result<Self, Stop> {
        let items = arrays.iter().map(|&(number, ty)| {
            let text = match values.get(number) {
                ValueRef::Null => "{}",
                ValueRef::Bytes(bytes) => std::str::from_utf8(bytes).map_err(|_| Stop::Unfit)?,
                _ => return Err(Stop::Unfit),
            };
            Ok((ty, Items::of(text).ok_or(Stop::Unfit)?))
        });
        items.collect::<Result<_, _>>().map(Self)
    }

    /// Reads rows into `chunk`, as [`Cells::chunk`](crate::rows::Cells::chunk). A short array
    /// has NULLs at its end.
    pub(crate) fn chunk(
        &mut self,
        types: &[SqlType],
        zone: &Zone,
        chunk: &mut Vec<Cell<'t>>,
    ) -> Result<bool, Stop> {
        while self.0.iter().any(|(_, items)| items.next.is_some()) {
            if chunk.len() >= CHUNK_CELLS {
                return Ok(true);
            }
            for ((item_type, items), &ty) in self.0.iter_mut().zip(types) {
                chunk.push(match items.take()? {
                    Some(item) => cell(item, *item_type, ty, zone)?,
                    None => Cell::Value(Value::Null),
                });
            }
        }
        Ok(false)
    }
}

/// An item, which is a value of its array's type before it is one of its column's.
fn cell<'t>(item: Cow<'t, str>, from: SqlType, to: SqlType, zone: &Zone) -> Result<Cell<'t>, Stop> {
    let is_integer = |ty| matches!(ty, SqlType::SmallInt | SqlType::Integer | SqlType::BigInt);
    let is_numeric = |ty| matches!(ty, SqlType::Numeric { .. });
    if is_integer(from) && is_integer(to) && from != to {
        // Only what is of both is of the column.
        Value::read(from, zone, &item).map_err(|_| Stop::Unfit)?;
    } else if !(from == to || from.is_text() && to.is_text() || is_numeric(from) && is_numeric(to))
    {
        return Err(Stop::Unfit);
    }
    Cell::of(CellText::Item(item), to, zone)
}

/// The items of an array of one dimension.
struct Items<'t> {
    text: &'t str,
    /// Where the next item begins; `None` behind the last.
    next: Option<usize>,
}

impl<'t> Items<'t> {
    /// `None` for what is no array, or one with bounds.
    fn of(text: &'t str) -> Option<Self> {
        let text = text.trim_matches(is_blank);
        let text = text.strip_prefix('{')?.strip_suffix('}')?;
        let next = (!text.trim_matches(is_blank).is_empty()).then_some(0);
        Some(Self { text, next })
    }

    /// The next item; `None` for NULL, and behind the last.
    fn take(&mut self) -> Result<Option<Cow<'t, str>>, Stop> {
        let Some(from) = self.next else {
            return Ok(None);
        };
        let rest = &self.text[from..];
        let blanks = rest.len() - rest.trim_start_matches(is_blank).len();
        let from = from + blanks;
        let (item, end) = match self.text[from..].strip_prefix('"') {
            Some(_) => quoted(self.text, from + 1).ok_or(Stop::Unfit)?,
            None => plain(self.text, from).ok_or(Stop::Unfit)?,
        };
        let behind = self.text[end..].trim_start_matches(is_blank);
        self.next = match behind.strip_prefix(',') {
            Some(rest) => Some(self.text.len() - rest.len()),
            None if behind.is_empty() => None,
            None => return Err(Stop::Unfit),
        };
        Ok(item)
    }
}

fn is_blank(char: char) -> bool {
    matches!(char, ' ' | '\t' | '\n' | '\r' | '\x0b' | '\x0c')
}

/// An item without quotes, and where it ends.
fn plain(text: &str, from: usize) -> Option<(Option<Cow<'_, str>>, usize)> {
    let rest = &text[from..];
    let end = rest.find([',', '{', '}', '"', '\\']).unwrap_or(rest.len());
    if rest[end..].starts_with(['{', '}', '"', '\\']) {
        return None;
    }
    let item = rest[..end].trim_end_matches(is_blank);
    if item.is_empty() {
        return None;
    }
    let is_null = item.eq_ignore_ascii_case("null");
    Some(((!is_null).then_some(Cow::Borrowed(item)), from + end))
}

/// An item in quotes from behind the first on, and where it ends.
fn quoted(text: &str, from: usize) -> Option<(Option<Cow<'_, str>>, usize)> {
    let rest = &text[from..];
    let end = rest.find(['"', '\\'])?;
    if rest[end..].starts_with('"') {
        return Some((Some(Cow::Borrowed(&rest[..end])), from + end + 1));
    }
    let mut item = rest[..end].to_owned();
    let mut chars = rest[end..].char_indices();
    loop {
        match chars.next()? {
            (at, '"') => return Some((Some(Cow::Owned(item)), from + end + at + 1)),
            (_, '\\') => item.push(chars.next()?.1),
            (_, char) => item.push(char),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(text: &str) -> Option<Vec<Option<String>>> {
        let mut items = Items::of(text)?;
        let mut all = Vec::new();
        while items.next.is_some() {
            all.push(items.take().ok()?.map(Cow::into_owned));
        }
        Some(all)
    }

    #[test]
    fn arrays_are_read_item_by_item() {
        let item = |text: &str| Some(text.to_owned());
        assert_eq!(items(" { } "), Some(Vec::new()));
        assert_eq!(
            items(r#"{1, null ,"null", a b ,"a,\"b\\c", ""}"#),
            Some(vec![
                item("1"),
                None,
                item("null"),
                item("a b"),
                item("a,\"b\\c"),
                item("")
            ])
        );
        for malformed in [
            "",
            "1",
            "{1",
            "{1,}",
            "{,1}",
            "{{1}}",
            "[1:1]={1}",
            "{\"a\"b}",
            "{\"a}",
            "{a\\b}",
            "{1}2",
        ] {
            assert_eq!(items(malformed), None, "{malformed}");
        }
    }
}
