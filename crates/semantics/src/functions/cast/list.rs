//! Arrays as PostgreSQL writes them: `{1,NULL,"a b"}`.

use std::sync::Arc;

use aerostat_types::{ErrorKind, SqlType, VALUE_BYTES_MAX};
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{DataType, Field};
use datafusion::common::Result;

use super::super::texts::{Texts, extend};
use super::{Coercion, Zone, convert};
use crate::growth::{Growth, too_long};
use crate::{name_of_arrow, raise};

/// The text of each list; an item is of `item`.
pub(crate) fn to_text(lists: &ArrayRef, item: &Field, zone: &Zone) -> Result<ArrayRef> {
    let lists = lists.as_list::<i32>();
    let nested = matches!(item.data_type(), DataType::List(_));
    let items = item_texts(lists.values(), item, zone)?;
    let items = items.as_string_view();
    let mut texts = Texts::of(lists.len());
    let mut text = String::new();
    for (row, ends) in lists.value_offsets().windows(2).enumerate() {
        if lists.is_null(row) {
            texts.push(None::<&str>)?;
            continue;
        }
        text.clear();
        text.push('{');
        for at in ends[0] as usize..ends[1] as usize {
            if at > ends[0] as usize {
                text.push(',');
            }
            let growth = &mut texts.growth;
            match items.is_valid(at).then(|| items.value(at)) {
                None => extend(&mut text, "NULL", growth)?,
                Some(item) if nested => extend(&mut text, item, growth)?,
                Some(item) => put_item(item, &mut text, growth)?,
            }
        }
        text.push('}');
        texts.push(Some(&text))?;
    }
    texts.finish()
}

fn item_texts(items: &ArrayRef, item: &Field, zone: &Zone) -> Result<ArrayRef> {
    if let DataType::List(inner) = item.data_type() {
        return to_text(items, inner, zone);
    }
    if item.data_type().is_null() {
        return Ok(arrow::array::new_null_array(
            &DataType::Utf8View,
            items.len(),
        ));
    }
    match SqlType::of_field(item) {
        // Its output function is not its cast to text.
        Some(SqlType::Boolean) => {
            let bits = items.as_boolean().iter();
            let texts = bits.map(|bit| bit.map(|bit| if bit { "t" } else { "f" }));
            Ok(Arc::new(texts.collect::<arrow::array::StringViewArray>()))
        }
        Some(from) => convert(items, from, SqlType::Text, Coercion::Explicit, zone),
        None => {
            let name = name_of_arrow(item.data_type());
            Err(raise(
                ErrorKind::CannotCoerce,
                format!("cannot cast type {name}[] to text"),
            ))
        }
    }
}

/// An item, quoted where it could be taken for something else.
fn put_item(item: &str, out: &mut String, growth: &mut Growth) -> Result<()> {
    let special = |c: char| {
        matches!(c, '{' | '}' | ',' | '"' | '\\') || c.is_ascii_whitespace() || c == '\u{b}'
    };
    if !item.is_empty() && !item.eq_ignore_ascii_case("null") && !item.contains(special) {
        return extend(out, item, growth);
    }
    // Each letter may have a backslash.
    extend(out, "\"", growth)?;
    growth.work(item.len())?;
    if out.len() + 2 * item.len() > VALUE_BYTES_MAX {
        return Err(too_long());
    }
    for c in item.chars() {
        if matches!(c, '"' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
    Ok(())
}
