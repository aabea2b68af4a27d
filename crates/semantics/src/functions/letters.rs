//! Texts by their letters and digits: `upper`, `lower`, `to_hex`, `encode`.

use std::sync::Arc;

use aerostat_types::{ErrorKind, SqlType};
use arrow::array::{Array, ArrayRef, AsArray, StringViewBuilder};
use arrow::datatypes::{Int32Type, Int64Type};
use datafusion::common::Result;
use datafusion::logical_expr::{ScalarUDF, Volatility};

use super::overload::{Call, Overload, Returns, function};
use super::texts::Texts;
use crate::raise;

const TEXT: Returns = Returns::Type(SqlType::Text);

/// The functions of this module.
pub(super) fn all() -> Vec<Arc<ScalarUDF>> {
    let immutable = |name, overloads| function(name, &[], Volatility::Immutable, overloads);
    vec![
        immutable("upper", UPPER),
        immutable("lower", LOWER),
        immutable("to_hex", TO_HEX),
        immutable("encode", ENCODE),
    ]
}

fn changed(call: &Call, ascii: fn(&str) -> String, change: fn(char) -> char) -> Result<ArrayRef> {
    let texts = call.args[0].as_string_view();
    let mut changed = Texts::of(call.rows);
    for text in texts {
        changed.push(text.map(|text| match text.is_ascii() {
            true => ascii(text),
            false => text.chars().map(change).collect(),
        }))?;
    }
    changed.finish()
}

/// The only letter of an iterator, else the letter itself: a text keeps its length.
fn only(letter: char, mut letters: impl Iterator<Item = char>) -> char {
    match (letters.next(), letters.next()) {
        (Some(only), None) => only,
        _ => letter,
    }
}

const UPPER: &[Overload] = &[Overload {
    parameters: &[SqlType::Text],
    returns: TEXT,
    body: |call| changed(call, str::to_ascii_uppercase, |c| only(c, c.to_uppercase())),
}];

const LOWER: &[Overload] = &[Overload {
    parameters: &[SqlType::Text],
    returns: TEXT,
    body: |call| changed(call, str::to_ascii_lowercase, |c| only(c, c.to_lowercase())),
}];

const TO_HEX: &[Overload] = &[
    Overload {
        parameters: &[SqlType::Integer],
        returns: TEXT,
        body: |call| {
            let values = call.args[0].as_primitive::<Int32Type>();
            Ok(hexadecimal(
                values.iter().map(|v| v.map(|v| format!("{v:x}"))),
            ))
        },
    },
    Overload {
        parameters: &[SqlType::BigInt],
        returns: TEXT,
        body: |call| {
            let values = call.args[0].as_primitive::<Int64Type>();
            Ok(hexadecimal(
                values.iter().map(|v| v.map(|v| format!("{v:x}"))),
            ))
        },
    },
];

fn hexadecimal(texts: impl Iterator<Item = Option<String>>) -> ArrayRef {
    let mut builder = StringViewBuilder::new();
    texts.for_each(|text| builder.append_option(text));
    Arc::new(builder.finish())
}

const ENCODE: &[Overload] = &[Overload {
    parameters: &[SqlType::Bytea, SqlType::Text],
    returns: TEXT,
    body: |call| {
        let (values, formats) = (call.args[0].as_binary_view(), call.args[1].as_string_view());
        let mut texts = Texts::of(call.rows);
        for row in 0..call.rows {
            if values.is_null(row) || formats.is_null(row) {
                texts.push(None::<&str>)?;
                continue;
            }
            let (bytes, format) = (values.value(row), formats.value(row));
            let format = match format.len() {
                0..=8 => format.to_ascii_lowercase(),
                _ => format.to_owned(),
            };
            let text = match format.as_str() {
                "hex" => {
                    texts.growth.value(2 * bytes.len())?;
                    hexadecimal_of(bytes)
                }
                "base64" => {
                    texts.growth.value(bytes.len().div_ceil(3) * 4)?;
                    base64(bytes)
                }
                "escape" => escaped(bytes),
                _ => {
                    let message = format!("unrecognized encoding: \"{format}\"");
                    return Err(raise(ErrorKind::InvalidParameterValue, message));
                }
            };
            texts.push(Some(text))?;
        }
        texts.finish()
    },
}];

fn hexadecimal_of(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            out.extend(char::from_digit(digit.into(), 16));
        }
    }
    out
}

/// Characters of a line of base64, as in MIME.
const LINE: usize = 76;

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for (nth, three) in bytes.chunks(3).enumerate() {
        if nth > 0 && (nth * 4).is_multiple_of(LINE) {
            out.push('\n');
        }
        let byte = |at: usize| u32::from(three.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            let is_padding = digit > three.len();
            let value = bits >> (18 - 6 * digit) & 63;
            out.push(if is_padding {
                '='
            } else {
                char::from(DIGITS[value as usize])
            });
        }
    }
    out
}

fn escaped(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'\\' => out.push_str("\\\\"),
            0 | 128.. => out.push_str(&format!("\\{byte:03o}")),
            byte => out.push(char::from(byte)),
        }
    }
    out
}
