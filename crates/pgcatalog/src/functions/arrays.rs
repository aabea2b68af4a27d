//! Array functions of the catalogue, and quoting.

use std::{borrow::Cow, sync::Arc};

use aerostat_semantics::{
    array_items,
    growth::{self, Growth},
};
use aerostat_types::{ErrorKind, SqlError, VALUE_BYTES_MAX, quote_ident};
use datafusion::{
    arrow::{
        array::{Array, ListArray, Scalar, new_empty_array},
        buffer::OffsetBuffer,
        compute::{cast, is_not_null, kernels::zip::zip},
        datatypes::DataType,
    },
    common::{DataFusionError, ScalarValue},
    logical_expr::{ColumnarValue, ScalarFunctionArgs},
};

use super::{Call, Definition, ELEMENT, PAIRS, SAME, function};
use crate::cell::Cell;

pub(super) fn definitions() -> Vec<Definition> {
    let optional = |definition: Definition| Definition {
        takes_null: true,
        ..definition
    };
    vec![
        optional(function(
            "array_to_string",
            &["anyarray", "text", "text?"],
            "text",
            array_to_string,
        )),
        function("array_upper", &["anyarray", "int4"], "int4", |call| {
            Ok(dimension(call))
        }),
        function("array_length", &["anyarray", "int4"], "int4", |call| {
            Ok(dimension(call))
        }),
        function("array_lower", &["anyarray", "int4"], "int4", |call| {
            Ok(if dimension(call) == Cell::Null {
                Cell::Null
            } else {
                1.into()
            })
        }),
        function("quote_ident", &["text"], "text", |call| {
            Ok(quote_ident(call.text(0)).into())
        }),
        function("quote_literal", &["text"], "text", |call| {
            Ok(call.at(0).shown().map(|text| quote(&text)).into())
        }),
        optional(function("quote_nullable", &["text"], "text", |call| {
            Ok(call
                .at(0)
                .shown()
                .map_or_else(|| "NULL".to_owned(), |text| quote(&text))
                .into())
        })),
        optional(function("format", &["text", "any*"], "text", format)),
        optional(function(ANY, &["any", "anyarray"], "bool", any)),
        // Evaluated column by column, as it is called on arrays of any type: see `or_empty`.
        optional(function(OR_EMPTY, &["anyarray"], SAME, |call| {
            Ok(call.at(0).clone())
        })),
        optional(function(CAT, &["anyarray", "anyarray"], SAME, |call| {
            Ok(match (call.at(0), call.at(1)) {
                (Cell::List(head), Cell::List(tail)) => {
                    Cell::List(head.iter().chain(tail).cloned().collect())
                }
                (Cell::Null, other) | (other, _) => other.clone(),
            })
        })),
        function(EMPTY, &[], "_text", |_| Ok(Cell::List(Vec::new()))),
        function(ITEM, &["anyarray", "int4"], ELEMENT, |call| {
            let at = call
                .int(1)
                .and_then(|at| usize::try_from(at).ok())
                .and_then(|at| at.checked_sub(1));
            Ok(match (call.at(0), at) {
                (Cell::List(items), Some(at)) => items.get(at).cloned().unwrap_or(Cell::Null),
                _ => Cell::Null,
            })
        }),
        function(EXPAND, &["anyarray"], PAIRS, |call| Ok(call.at(0).clone())),
        optional(function(
            "json_build_object",
            &["any*"],
            "json",
            json_object,
        )),
        function(JSON, &["text"], "shown:json", |call| Ok(call.at(0).clone())),
        function(SUBSCRIPTS, &["anyarray", "int4?"], "_int4", |call| {
            Ok(match call.at(0) {
                Cell::List(items) => (1..=items.len()).collect::<Vec<_>>().into(),
                _ => Cell::Null,
            })
        }),
    ]
}

/// `x = ANY (array)`.
pub(crate) const ANY: &str = "\u{1}any";
/// An array, empty for NULL.
pub(crate) const OR_EMPTY: &str = "\u{1}or_empty";
/// Two arrays as one; NULL adds nothing.
pub(crate) const CAT: &str = "\u{1}cat";
/// The empty array of texts.
pub(crate) const EMPTY: &str = "\u{1}empty";
/// The item of an array at a place counted from 1, NULL outside it.
pub(crate) const ITEM: &str = "\u{1}item";
/// A text that a client is told is `json`.
pub(crate) const JSON: &str = "\u{1}json";
/// The places of an array's items.
pub(crate) const SUBSCRIPTS: &str = "\u{1}subscripts";

/// An array's items, each with its place: `information_schema._pg_expandarray` before it is unnested.
pub(crate) const EXPAND: &str = "\u{1}expand";

/// Arrays, with the empty one in place of NULL.
pub(super) fn or_empty(call: &ScalarFunctionArgs) -> Result<ColumnarValue, DataFusionError> {
    let [argument] = &call.args[..] else {
        return Ok(ColumnarValue::Scalar(ScalarValue::Null));
    };
    let array = cast(
        &growth::for_each_row(argument, call.number_rows, &mut Growth::new())?,
        call.return_field.data_type(),
    )?;
    if array.null_count() == 0 {
        return Ok(ColumnarValue::Array(array));
    }
    let DataType::List(item) = call.return_field.data_type() else {
        return Ok(ColumnarValue::Array(array));
    };
    let nothing = new_empty_array(item.data_type());
    let empty = ListArray::try_new(
        Arc::clone(item),
        OffsetBuffer::from_lengths([0]),
        nothing,
        None,
    )?;
    let present = is_not_null(&array)?;
    let array = zip(&present, &array, &Scalar::new(empty))?;
    Ok(ColumnarValue::Array(array))
}

fn dimension(call: &Call<'_>) -> Cell {
    match call.at(0) {
        Cell::List(items) if call.int(1) == Some(1) && !items.is_empty() => items.len().into(),
        _ => Cell::Null,
    }
}

/// Whether two values are equal, texts of numbers being numbers.
fn same(a: &Cell, b: &Cell) -> bool {
    match (a, b) {
        (Cell::Int(_), Cell::Text(_)) | (Cell::Text(_), Cell::Int(_)) => {
            a.int().is_some() && a.int() == b.int()
        }
        _ => a == b,
    }
}

/// SQL's three-valued `= ANY`.
fn any(call: &Call<'_>) -> Result<Cell, SqlError> {
    let items: Vec<Cell> = match call.at(1) {
        Cell::List(items) => items.clone(),
        Cell::Text(text) => parse_array(text),
        _ => return Ok(Cell::Null),
    };
    if items.is_empty() {
        return Ok(false.into());
    }
    if *call.at(0) == Cell::Null {
        return Ok(Cell::Null);
    }
    if items.iter().any(|item| same(item, call.at(0))) {
        return Ok(true.into());
    }
    Ok(if items.contains(&Cell::Null) {
        Cell::Null
    } else {
        false.into()
    })
}

/// Reads `{a,b}`; quoted items may hold anything. What is no array is its only item.
pub(crate) fn parse_array(text: &str) -> Vec<Cell> {
    let Some(items) = array_items(text) else {
        return vec![Cell::Text(text.to_owned().into())];
    };
    let cell = |item: Option<String>| item.map_or(Cell::Null, |item| Cell::Text(item.into()));
    items.into_iter().map(cell).collect()
}

fn array_to_string(call: &Call<'_>) -> Result<Cell, SqlError> {
    let (Cell::List(items), Some(separator)) = (call.at(0), call.at(1).str()) else {
        return Ok(Cell::Null);
    };
    let null = call.at(2).str();
    let shown: Vec<Cow<'_, str>> = items
        .iter()
        .filter_map(|item| item.shown().map(Cow::Owned).or(null.map(Cow::Borrowed)))
        .collect();
    let texts: usize = shown.iter().map(|text| text.len()).sum();
    let separators = separator
        .len()
        .saturating_mul(shown.len().saturating_sub(1));
    check_length(texts.saturating_add(separators))?;
    Ok(shown.join(separator).into())
}

/// Refuses a text that no value can hold, before it is made.
fn check_length(bytes: usize) -> Result<(), SqlError> {
    match bytes <= VALUE_BYTES_MAX {
        true => Ok(()),
        false => Err(SqlError::new(
            ErrorKind::ProgramLimitExceeded,
            "requested length too large",
        )),
    }
}

fn quote(text: &str) -> String {
    let doubled = text.replace('\'', "''");
    if text.contains('\\') {
        format!("E'{}'", doubled.replace('\\', "\\\\"))
    } else {
        format!("'{doubled}'")
    }
}

/// PostgreSQL's `format` with `%s`, `%I`, `%L` and `%%`, also by position (`%1$s`) and with a
/// width (`%-5s`).
fn format(call: &Call<'_>) -> Result<Cell, SqlError> {
    let Some(template) = call.at(0).str() else {
        return Ok(Cell::Null);
    };
    let invalid = |message: String| SqlError::new(ErrorKind::InvalidParameterValue, message);
    let mut out = String::with_capacity(template.len());
    let mut chars = template.chars().peekable();
    let mut next = 1;
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        if chars.next_if_eq(&'%').is_some() {
            out.push('%');
            continue;
        }
        let (mut at, mut digits, mut left) = (next, String::new(), false);
        let is_part = |c: &char| c.is_ascii_digit() || matches!(c, '-' | '$');
        while let Some(part) = chars.next_if(is_part) {
            match part {
                '-' => left = true,
                '$' => {
                    at = match std::mem::take(&mut digits).parse::<u32>() {
                        Ok(position @ 1..) => position as usize,
                        _ => {
                            let message =
                                "format specifies argument 0, but arguments are numbered from 1";
                            return Err(invalid(message.to_owned()));
                        }
                    };
                }
                digit => digits.push(digit),
            }
        }
        next = at + 1;
        let Some(kind) = chars.next() else {
            return Err(invalid("unterminated format() type specifier".to_owned()));
        };
        let Some(argument) = call.arguments.get(at) else {
            return Err(invalid("too few arguments for format()".to_owned()));
        };
        let value = match (kind, argument.shown()) {
            ('s', shown) => shown.unwrap_or_default(),
            ('I', Some(shown)) => quote_ident(&shown),
            ('I', None) => {
                return Err(SqlError::new(
                    ErrorKind::DataException,
                    "null values cannot be formatted as an SQL identifier",
                ));
            }
            ('L', shown) => shown.map_or_else(|| "NULL".to_owned(), |shown| quote(&shown)),
            (other, _) => {
                return Err(invalid(format!(
                    "unrecognized format() type specifier \"{other}\""
                )));
            }
        };
        let width = digits.parse().unwrap_or(0).min(VALUE_BYTES_MAX);
        let padding = " ".repeat(width.saturating_sub(value.chars().count()));
        let (before, behind) = if left {
            ("", padding.as_str())
        } else {
            (padding.as_str(), "")
        };
        check_length(out.len() + before.len() + value.len() + behind.len())?;
        out.extend([before, &value, behind]);
    }
    Ok(out.into())
}

fn json_object(call: &Call<'_>) -> Result<Cell, SqlError> {
    let quoted = |text: &str| {
        let mut out = String::from('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
                c => out.push(c),
            }
        }
        out.push('"');
        out
    };
    let invalid = |message: &str| SqlError::new(ErrorKind::InvalidParameterValue, message);
    if !call.arguments.len().is_multiple_of(2) {
        return Err(invalid("argument list must have even number of elements"));
    }
    let (mut members, mut bytes) = (Vec::new(), 0);
    for pair in call.arguments.chunks(2) {
        if matches!(pair[0], Cell::List(_)) {
            return Err(invalid(
                "key value must be scalar, not array, composite, or json",
            ));
        }
        let name = pair[0]
            .shown()
            .ok_or_else(|| invalid("null value not allowed for object key"))?;
        let value = match &pair[1] {
            Cell::Null => "null".to_owned(),
            Cell::Bool(value) => value.to_string(),
            Cell::Int(_) | Cell::Float(_) => pair[1].shown().unwrap_or_default(),
            other => quoted(&other.shown().unwrap_or_default()),
        };
        let member = format!("{} : {value}", quoted(&name));
        bytes += member.len() + 2;
        check_length(bytes)?;
        members.push(member);
    }
    Ok(format!("{{{}}}", members.join(", ")).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrays_are_read_as_postgresql_writes_them() {
        let texts = |text: &str| {
            parse_array(text)
                .iter()
                .map(|cell| cell.shown().unwrap_or("∅".into()))
                .collect::<Vec<_>>()
        };
        assert_eq!(texts("{0}"), ["0"]);
        assert_eq!(texts("{}"), Vec::<String>::new());
        assert_eq!(
            texts(r#"{a,"b,\"c",NULL,"NULL"}"#),
            ["a", "b,\"c", "∅", "NULL"]
        );
    }
}
