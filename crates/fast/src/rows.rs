//! The rows of a VALUES list, read from the statement's text each time they are needed.
//!
//! ```text
//!  INSERT INTO t (a, b) VALUES (1, 'x'), ($1, NULL), …   ON CONFLICT … RETURNING …
//!                              ╰── ListedRows: cells ──╯
//! ```
//!
//! A cell is a literal, a parameter, DEFAULT or the time. Recognising the rows stores nothing of
//! them, and running them holds one [chunk](CHUNK_CELLS), so a list may be as long as a message:
//! a cell costs reading its bytes twice.

use std::{borrow::Cow, sync::Arc};

use aerostat_types::{SqlType, Zone};

use crate::{Stop, Value, token::PARAMETERS_MAX};

/// Cells that are read before they are written: about a megabyte of values, enough that what
/// a batch costs storage does not count.
pub(crate) const CHUNK_CELLS: usize = 16 << 10;

/// Bytes of text after which a chunk ends, whatever its cells.
const CHUNK_BYTES: usize = 1 << 20;

/// The rows of a VALUES in the text of their statement.
#[derive(Clone, Debug)]
pub struct ListedRows {
    text: Arc<str>,
    /// Where the first row begins.
    from: usize,
    /// How many rows there are.
    rows: usize,
}

/// What the rows of a text are like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowList {
    pub(crate) rows: usize,
    /// Cells of each row.
    pub(crate) width: usize,
    /// Where the text goes on behind them.
    pub(crate) end: usize,
}

/// Where the rows of a VALUES stand in the text of their statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowsPlace {
    /// Where the first one begins.
    pub(crate) from: usize,
    pub(crate) rows: usize,
}

impl RowsPlace {
    /// The rows in the text that has been parsed, which may lack what stands behind them.
    pub fn within(self, text: &Arc<str>) -> ListedRows {
        let RowsPlace { from, rows } = self;
        assert!(
            text.is_char_boundary(from),
            "the rows begin within the text that they were found in"
        );
        let text = Arc::clone(text);
        ListedRows { text, from, rows }
    }
}

impl ListedRows {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Calls `take` with the number of each parameter and of the cell of its row that it is;
    /// `None` as soon as that says no.
    pub fn each_parameter(&self, mut take: impl FnMut(usize, usize) -> bool) -> Option<()> {
        let mut cells = self.cells();
        let mut goes_on = true;
        while goes_on {
            let mut nth = 0..;
            goes_on = cells.row(|cell| match (cell, nth.next()?) {
                (CellText::Parameter(number), nth) => take(number, nth).then_some(()),
                _ => Some(()),
            })?;
        }
        Some(())
    }

    pub(crate) fn cells(&self) -> Cells<'_> {
        Cells {
            text: &self.text,
            at: self.from,
        }
    }
}

/// Looks through the rows that begin at a place of a text; `None` if what is there are not
/// rows of as many plain cells each.
pub(crate) fn row_list(text: &str, from: usize) -> Option<RowList> {
    let mut cells = Cells { text, at: from };
    let (mut rows, mut width) = (0, 0);
    loop {
        let mut count = 0;
        let goes_on = cells.row(|_| {
            count += 1;
            Some(())
        })?;
        if rows > 0 && count != width {
            return None;
        }
        (rows, width) = (rows + 1, count);
        if !goes_on {
            let end = cells.at;
            return Some(RowList { rows, width, end });
        }
    }
}

/// A cell as it is written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum CellText<'t> {
    Null,
    Default,
    Now,
    Bool(bool),
    /// `$1` is 0.
    Parameter(usize),
    /// Digits, perhaps with a sign, a point and an exponent.
    Number(&'t str),
    /// What is between the quotes, and whether quotes in it are doubled.
    Text(&'t str, bool),
    /// An item of an array.
    Item(Cow<'t, str>),
}

/// A cell as a value of its column, as far as that is known before the row is made.
#[derive(Debug)]
pub(crate) enum Cell<'t> {
    Default,
    Now,
    Parameter(usize),
    Text(Cow<'t, str>),
    Value(Value),
}

impl<'t> Cell<'t> {
    /// [`Stop::Unfit`] where the assignment is an error, or not known to be none.
    pub(crate) fn of(written: CellText<'t>, ty: SqlType, zone: &Zone) -> Result<Self, Stop> {
        Ok(match written {
            CellText::Null => Cell::Value(Value::Null),
            CellText::Default => Cell::Default,
            CellText::Now => Cell::Now,
            CellText::Parameter(number) => Cell::Parameter(number),
            CellText::Bool(value) if ty == SqlType::Boolean => Cell::Value(Value::Bool(value)),
            CellText::Bool(_) => return Err(Stop::Unfit),
            CellText::Number(number) => Cell::Value(number_of(number, ty, zone)?),
            CellText::Text(text, true) => {
                Self::of_text(Cow::Owned(text.replace("''", "'")), ty, zone)?
            }
            CellText::Text(text, false) => Self::of_text(Cow::Borrowed(text), ty, zone)?,
            CellText::Item(text) => Self::of_text(text, ty, zone)?,
        })
    }

    fn of_text(text: Cow<'t, str>, ty: SqlType, zone: &Zone) -> Result<Self, Stop> {
        Ok(match ty.is_text() {
            true => Cell::Text(fitted(ty, text)?),
            false => Cell::Value(Value::read(ty, zone, &text).map_err(|_| Stop::Unfit)?),
        })
    }
}

fn fitted(ty: SqlType, text: Cow<'_, str>) -> Result<Cow<'_, str>, Stop> {
    // What is too much is cut from the end.
    let bytes = crate::fitted_text(ty, &text)
        .map_err(|_| Stop::Unfit)?
        .len();
    Ok(match text {
        Cow::Borrowed(text) => Cow::Borrowed(&text[..bytes]),
        Cow::Owned(mut text) => {
            text.truncate(bytes);
            Cow::Owned(text)
        }
    })
}

/// A number as a column's type. Casts between numbers that round otherwise than their texts do
/// are the planner's.
fn number_of(number: &str, ty: SqlType, zone: &Zone) -> Result<Value, Stop> {
    let is_integer = || {
        let digits = number.strip_prefix('-').unwrap_or(number);
        digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    let is_known = match ty {
        SqlType::SmallInt | SqlType::Integer | SqlType::BigInt => is_integer(),
        SqlType::Numeric { .. } | SqlType::Real | SqlType::Double => true,
        _ => false,
    };
    if !is_known {
        return Err(Stop::Unfit);
    }
    let value = Value::read(ty, zone, number).map_err(|_| Stop::Unfit)?;
    // A literal is a numeric first, which has no negative zero.
    Ok(match value {
        Value::F64(0.0) => Value::F64(0.0),
        Value::F32(0.0) => Value::F32(0.0),
        value => value,
    })
}

/// Reads cells, row by row.
pub(crate) struct Cells<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Cells<'t> {
    /// Reads a row and the comma behind it; gives whether there was one. `None` if there is
    /// something else, or `take` says so.
    pub(crate) fn row(&mut self, mut take: impl FnMut(CellText<'t>) -> Option<()>) -> Option<bool> {
        self.require(b'(')?;
        loop {
            take(self.cell()?)?;
            match self.next_byte()? {
                b',' => self.at += 1,
                b')' => break,
                _ => return None,
            }
        }
        self.at += 1;
        let goes_on = self.next_byte() == Some(b',');
        self.at += usize::from(goes_on);
        Some(goes_on)
    }

    /// Reads rows into `chunk`, cell by cell, until that is long enough; gives whether there
    /// are more. The columns' types are those of the cells of a row.
    pub(crate) fn chunk(
        &mut self,
        types: &[SqlType],
        zone: &Zone,
        chunk: &mut Vec<Cell<'t>>,
    ) -> Result<bool, Stop> {
        let from = self.at;
        loop {
            let mut types = types.iter();
            let goes_on = self.row(|written| {
                chunk.push(Cell::of(written, *types.next()?, zone).ok()?);
                Some(())
            });
            let goes_on = goes_on.ok_or(Stop::Unfit)?;
            if !goes_on || chunk.len() >= CHUNK_CELLS || self.at - from >= CHUNK_BYTES {
                return Ok(goes_on);
            }
        }
    }

    fn cell(&mut self) -> Option<CellText<'t>> {
        let first = self.next_byte()?;
        match first {
            b'\'' => self.string(),
            b'0'..=b'9' | b'-' | b'.' => self.number(),
            b'$' => {
                let digits = self.digits(self.at + 1);
                let number: usize = self.text[self.at + 1..digits].parse().ok()?;
                self.at = digits;
                self.ends_word()?;
                let is_one = (1..=PARAMETERS_MAX).contains(&number);
                is_one.then(|| CellText::Parameter(number - 1))
            }
            b'a'..=b'z' | b'A'..=b'Z' => self.word(),
            _ => None,
        }
    }

    fn word(&mut self) -> Option<CellText<'t>> {
        let bytes = self.text.as_bytes();
        let belongs = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let count = bytes[self.at..]
            .iter()
            .take_while(|byte| belongs(byte))
            .count();
        let word = &self.text[self.at..self.at + count];
        self.at += count;
        if matches!(bytes.get(self.at), Some(b'\'' | b'"')) {
            return None;
        }
        self.ends_word()?;
        let is = |keyword: &str| word.eq_ignore_ascii_case(keyword);
        Some(match word.len() {
            4 if is("null") => CellText::Null,
            4 if is("true") => CellText::Bool(true),
            5 if is("false") => CellText::Bool(false),
            7 if is("default") => CellText::Default,
            // With a precision it is another; the parenthesis is nothing that may follow.
            17 if is("current_timestamp") => CellText::Now,
            3 if is("now") => {
                self.require(b'(')?;
                self.require(b')')?;
                CellText::Now
            }
            _ => return None,
        })
    }

    fn number(&mut self) -> Option<CellText<'t>> {
        let bytes = self.text.as_bytes();
        let from = self.at;
        let whole = from + usize::from(bytes[from] == b'-');
        let mut end = self.digits(whole);
        let mut digits = end - whole;
        if bytes.get(end) == Some(&b'.') {
            let fraction = self.digits(end + 1);
            digits += fraction - end - 1;
            end = fraction;
        }
        if digits == 0 {
            return None;
        }
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            let exponent = self.digits(end + 1 + sign);
            if exponent == end + 1 + sign {
                return None;
            }
            end = exponent;
        }
        self.at = end;
        self.ends_word()?;
        Some(CellText::Number(&self.text[from..end]))
    }

    fn string(&mut self) -> Option<CellText<'t>> {
        let bytes = self.text.as_bytes();
        let from = self.at + 1;
        let (mut at, mut is_doubled) = (from, false);
        loop {
            let rest = &bytes[at..];
            let end = at + rest.iter().position(|&byte| byte == b'\'' || byte == 0)?;
            if bytes[end] == 0 {
                return None;
            }
            if bytes.get(end + 1) != Some(&b'\'') {
                self.at = end + 1;
                return Some(CellText::Text(&self.text[from..end], is_doubled));
            }
            (at, is_doubled) = (end + 2, true);
        }
    }

    /// Where the digits from a place on end.
    fn digits(&self, from: usize) -> usize {
        let bytes = &self.text.as_bytes()[from..];
        from + bytes
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count()
    }

    /// Whether nothing follows that would be read with a number or a word.
    fn ends_word(&self) -> Option<()> {
        let next = self.text.as_bytes().get(self.at);
        let goes_on = next.is_some_and(|&next| {
            next.is_ascii_alphanumeric() || !next.is_ascii() || matches!(next, b'_' | b'.' | b'$')
        });
        (!goes_on).then_some(())
    }

    /// The next byte that is no blank.
    fn next_byte(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while let b' ' | b'\t' | b'\n' | b'\r' | b'\x0c' = *bytes.get(self.at)? {
            self.at += 1;
        }
        bytes.get(self.at).copied()
    }

    fn require(&mut self, byte: u8) -> Option<()> {
        let is_next = self.next_byte()? == byte;
        self.at += usize::from(is_next);
        is_next.then_some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> Option<Vec<CellText<'_>>> {
        let mut cells = Cells { text, at: 0 };
        let mut row = Vec::new();
        let goes_on = cells.row(|cell| {
            row.push(cell);
            Some(())
        })?;
        (!goes_on).then_some(row)
    }

    #[test]
    fn cells_are_what_they_look_like() {
        use CellText::{Bool, Default, Now, Null, Number, Parameter, Text};
        let text = "( 'it''s', '',\n-1.50 ,1e-3, .5, 7 ,Null, DEFAULT,tRue, false,$12, now( ), current_timestamp)";
        let expected = [
            Text("it''s", true),
            Text("", false),
            Number("-1.50"),
            Number("1e-3"),
            Number(".5"),
            Number("7"),
            Null,
            Default,
            Bool(true),
            Bool(false),
            Parameter(11),
            Now,
            Now,
        ];
        assert_eq!(written(text).unwrap(), expected);
    }

    #[test]
    fn what_is_no_plain_cell_ends_the_reading() {
        for cell in [
            "",
            "a",
            "1 + 1",
            "'a' || 'b'",
            "'a' 'b'",
            "E'a'",
            "e'a'",
            "date '2020-01-01'",
            "'a'::int",
            "1::int",
            "(1)",
            "- 1",
            "--1",
            "+1",
            "1a",
            "1_000",
            "0x1F",
            "1.2.3",
            "1e",
            "-",
            ".",
            "$0",
            "$1a",
            "$70000",
            "now",
            "now(3)",
            "current_timestamp(3)",
            "nulls",
            "true1",
            "\"a\"",
            "lower('a')",
            "/* a */ 1",
            "1 -- a",
            "'open",
            "ä",
            "'a\0'",
            "select 1",
            "*",
            "U&'a'",
            "N'a'",
        ] {
            assert_eq!(written(&format!("({cell})")), None, "{cell}");
        }
    }

    #[test]
    fn rows_have_as_many_cells_each() {
        let list = |text| row_list(text, 0);
        let of = |rows, width, end| Some(RowList { rows, width, end });
        assert_eq!(list("(1, 2), (3, 4) ;"), of(2, 2, 15));
        assert_eq!(list("(1),(2),(3)"), of(3, 1, 11));
        assert_eq!(list("(1), (2, 3)"), None);
        assert_eq!(list("(1), "), None);
        assert_eq!(list("(1,)"), None);
        assert_eq!(list("()"), None);
    }
}
