//! Texts that may be far longer than their arguments: `repeat`, `lpad`, `rpad`, `replace`,
//! `translate`, `reverse`. Their lengths are computed before they are made.

use std::collections::HashMap;
use std::sync::Arc;

use aerostat_types::SqlType;
use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::Int32Type;
use datafusion::common::Result;
use datafusion::logical_expr::{ScalarUDF, Volatility};

use super::overload::{Call, Overload, Returns, function};
use super::texts::{Texts, extend};
use crate::growth::Growth;

const T: SqlType = SqlType::Text;
const I: SqlType = SqlType::Integer;
const TEXT: Returns = Returns::Type(T);

/// The functions of this module.
pub(super) fn all() -> Vec<Arc<ScalarUDF>> {
    let immutable = |name, overloads| function(name, &[], Volatility::Immutable, overloads);
    vec![
        immutable("repeat", REPEAT),
        immutable("lpad", LPAD),
        immutable("rpad", RPAD),
        immutable("replace", REPLACE),
        immutable("translate", TRANSLATE),
        immutable("reverse", REVERSE),
    ]
}

/// Writes each row's text whose arguments are all there.
fn made(
    call: &Call,
    mut write: impl FnMut(usize, &mut String, &mut Growth) -> Result<()>,
) -> Result<ArrayRef> {
    let (mut texts, mut out) = (Texts::of(call.rows), String::new());
    for row in 0..call.rows {
        if call.args.iter().any(|argument| argument.is_null(row)) {
            texts.push(None::<&str>)?;
            continue;
        }
        out.clear();
        write(row, &mut out, &mut texts.growth)?;
        texts.push(Some(&out))?;
    }
    texts.finish()
}

fn text<'a>(call: &'a Call, at: usize, row: usize) -> &'a str {
    call.args[at].as_string_view().value(row)
}

/// A number of repetitions or letters: none for what is negative.
fn count(call: &Call, at: usize, row: usize) -> usize {
    let count = call.args[at].as_primitive::<Int32Type>().value(row);
    usize::try_from(count).unwrap_or(0)
}

const REPEAT: &[Overload] = &[Overload {
    parameters: &[T, I],
    returns: TEXT,
    body: |call| {
        made(call, |row, out, growth| {
            let (part, times) = (text(call, 0, row), count(call, 1, row));
            growth.check_value(part.len().saturating_mul(times))?;
            growth.work(part.len().saturating_mul(times))?;
            out.push_str(&part.repeat(times));
            Ok(())
        })
    },
}];

/// A text of so many letters: the first of a longer one; of a shorter one what is missing, which
/// is the fill again and again.
fn padded<'a>(text: &'a str, letters: usize, fill: &str) -> (&'a str, usize) {
    // A letter has a byte at least.
    match text.char_indices().nth(letters) {
        Some((end, _)) => (&text[..end], 0),
        None if fill.is_empty() => (text, 0),
        None => (text, letters - text.chars().count()),
    }
}

/// Writes so many letters of a fill that starts again at its end.
fn put_fill(fill: &str, letters: usize, out: &mut String, growth: &mut Growth) -> Result<()> {
    let in_fill = fill.chars().count().max(1);
    let (whole, rest) = (letters / in_fill, letters % in_fill);
    let end = fill
        .char_indices()
        .nth(rest)
        .map_or(fill.len(), |(at, _)| at);
    let bytes = fill.len().saturating_mul(whole).saturating_add(end);
    growth.check_value(out.len().saturating_add(bytes))?;
    growth.work(bytes)?;
    out.push_str(&fill.repeat(whole));
    out.push_str(if rest > 0 { &fill[..end] } else { "" });
    Ok(())
}

fn pad(call: &Call, is_left: bool) -> Result<ArrayRef> {
    made(call, |row, out, growth| {
        let fill = match call.args.len() {
            2 => " ",
            _ => text(call, 2, row),
        };
        let (text, missing) = padded(text(call, 0, row), count(call, 1, row), fill);
        growth.work(text.len())?;
        if is_left {
            put_fill(fill, missing, out, growth)?;
        }
        extend(out, text, growth)?;
        if !is_left {
            put_fill(fill, missing, out, growth)?;
        }
        Ok(())
    })
}

macro_rules! padding {
    ($is_left:literal) => {
        &[
            Overload {
                parameters: &[T, I],
                returns: TEXT,
                body: |call| pad(call, $is_left),
            },
            Overload {
                parameters: &[T, I, T],
                returns: TEXT,
                body: |call| pad(call, $is_left),
            },
        ]
    };
}

const LPAD: &[Overload] = padding!(true);
const RPAD: &[Overload] = padding!(false);

const REPLACE: &[Overload] = &[Overload {
    parameters: &[T, T, T],
    returns: TEXT,
    body: |call| {
        made(call, |row, out, growth| {
            let (whole, from, to) = (text(call, 0, row), text(call, 1, row), text(call, 2, row));
            let mut last = 0;
            // Nothing is not found.
            let found = (!from.is_empty()).then(|| whole.match_indices(from));
            for (at, _) in found.into_iter().flatten() {
                extend(out, &whole[last..at], growth)?;
                extend(out, to, growth)?;
                last = at + from.len();
            }
            extend(out, &whole[last..], growth)
        })
    },
}];

const TRANSLATE: &[Overload] = &[Overload {
    parameters: &[T, T, T],
    returns: TEXT,
    body: |call| {
        made(call, |row, out, growth| {
            let (from, to) = (text(call, 1, row), text(call, 2, row));
            growth.work(from.len())?;
            let mut letters: HashMap<char, Option<char>> = HashMap::new();
            let mut to = to.chars();
            for letter in from.chars() {
                let other = to.next();
                // The first of several counts.
                letters.entry(letter).or_insert(other);
            }
            for letter in text(call, 0, row).chars() {
                let other = letters.get(&letter).copied().unwrap_or(Some(letter));
                if let Some(other) = other {
                    extend(out, other.encode_utf8(&mut [0; 4]), growth)?;
                }
            }
            Ok(())
        })
    },
}];

const REVERSE: &[Overload] = &[Overload {
    parameters: &[T],
    returns: TEXT,
    body: |call| {
        made(call, |row, out, growth| {
            let text = text(call, 0, row);
            growth.work(text.len())?;
            out.extend(text.chars().rev());
            Ok(())
        })
    },
}];
