//! PostgreSQL's text forms of values: what `COPY`, text parameters, literals
//! and casts read, and what a client sees.
//!
//! The forms are PostgreSQL 15's with `DateStyle = ISO, MDY`, `IntervalStyle =
//! postgres`, `bytea_output = hex` and `extra_float_digits = 1`. Every value
//! that is formatted here parses back to itself.
//!
//! | type | parse | format |
//! |---|---|---|
//! | boolean | [`parse_bool`] | [`format_bool`] |
//! | smallint, integer, bigint | [`parse_i16`], [`parse_i32`], [`parse_i64`] | [`format_int`] |
//! | real, double precision | [`parse_f32`], [`parse_f64`] | [`format_f32`], [`format_f64`] |
//! | numeric(p,s) | [`parse_numeric`] | [`format_numeric`] |
//! | char(n), varchar(n) | [`fit_char`], [`fit_varchar`] | [`format_char`] |
//! | bytea | [`parse_bytea`], [`parse_bytea_into`] | [`format_bytea`] |
//! | uuid | [`parse_uuid`] | [`format_uuid`] |
//! | date | [`parse_date`] | [`format_date`] |
//! | time | [`parse_time`] | [`format_time`] |
//! | timestamp | [`parse_timestamp`] | [`format_timestamp`] |
//! | timestamptz | [`parse_timestamptz`] | [`format_timestamptz`] |
//! | interval | [`parse_interval`] | [`format_interval`] |
//!
//! [`parse_timestamptz`] is told the session's [`Zone`](crate::Zone), [`format_timestamptz`]
//! the offset. `infinity`, `NaN::numeric` and words that need a clock
//! (`now`, `today`) are refused with `FeatureNotSupported`.

mod bytes;
mod civil;
mod datetime;
mod decimal;
mod interval;
mod number;
#[cfg(test)]
mod tests;

use thiserror::Error;

use crate::{ErrorKind, SqlError, SqlType};

pub use bytes::{format_bytea, format_uuid, parse_bytea, parse_bytea_into, parse_uuid};
pub use civil::{civil_from_days, days_from_civil};
pub use datetime::{
    format_date, format_time, format_timestamp, format_timestamptz, is_date, is_timestamp,
    parse_date, parse_time, parse_timestamp, parse_timestamptz,
};
pub use decimal::{format_numeric, parse_numeric};
pub use interval::{
    Interval, IntervalField, IntervalType, format_interval, parse_interval, parse_interval_as,
};
pub use number::{
    digits_of_word, format_f32, format_f64, format_int, parse_f32, parse_f64, parse_i16, parse_i32,
    parse_i64,
};

/// Why a text is not a value of a type, in PostgreSQL's words.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct TextError {
    /// `InvalidTextRepresentation`, `NumericValueOutOfRange`, `InvalidDatetimeFormat`,
    /// `DatetimeFieldOverflow`, `StringDataRightTruncation`, `InvalidParameterValue`
    /// or `FeatureNotSupported`.
    pub kind: ErrorKind,
    /// One sentence without a full stop.
    pub message: String,
    /// The rule that was broken, where PostgreSQL states it.
    pub detail: Option<String>,
}

/// Bytes of a bad value that an error repeats, so that errors stay small.
const QUOTED_BYTES_MAX: usize = 256;

impl TextError {
    fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            detail: None,
        }
    }

    fn invalid(type_name: &str, text: &str) -> Self {
        let message = format!(
            "invalid input syntax for type {type_name}: \"{}\"",
            quoted(text)
        );
        Self::new(ErrorKind::InvalidTextRepresentation, message)
    }

    fn out_of_range(type_name: &str, text: &str) -> Self {
        let message = format!(
            "value \"{}\" is out of range for type {type_name}",
            quoted(text)
        );
        Self::new(ErrorKind::NumericValueOutOfRange, message)
    }

    fn unsupported(type_name: &str, text: &str) -> Self {
        let message = format!("{type_name} \"{}\" is not supported", quoted(text));
        Self::new(ErrorKind::FeatureNotSupported, message)
    }
}

/// At most [`QUOTED_BYTES_MAX`] bytes of `text`, cut at a character.
fn quoted(text: &str) -> &str {
    if text.len() <= QUOTED_BYTES_MAX {
        return text;
    }
    let end = (0..=QUOTED_BYTES_MAX)
        .rev()
        .find(|&at| text.is_char_boundary(at))
        .unwrap_or(0);
    &text[..end]
}

impl From<TextError> for SqlError {
    fn from(error: TextError) -> SqlError {
        let mut sql = SqlError::new(error.kind, error.message);
        sql.detail = error.detail;
        sql
    }
}

/// Where formatted values go: a `String`, or a wire buffer. What is put is ASCII,
/// except the text given to [`format_char`].
pub trait TextSink {
    /// Appends `text`.
    fn put(&mut self, text: &str);

    /// Appends one ASCII byte, `count` times.
    fn fill(&mut self, byte: u8, count: usize);
}

impl TextSink for String {
    fn put(&mut self, text: &str) {
        self.push_str(text);
    }

    fn fill(&mut self, byte: u8, count: usize) {
        self.extend(std::iter::repeat_n(byte as char, count));
    }
}

impl TextSink for Vec<u8> {
    fn put(&mut self, text: &str) {
        self.extend_from_slice(text.as_bytes());
    }

    fn fill(&mut self, byte: u8, count: usize) {
        self.resize(self.len() + count, byte);
    }
}

/// Appends ASCII bytes that were built in a stack buffer.
fn put_ascii(out: &mut impl TextSink, bytes: &[u8]) {
    out.put(std::str::from_utf8(bytes).expect("digits and punctuation are UTF-8"));
}

/// Blanks as C's `isspace` in the C locale, which PostgreSQL trims around values.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

fn trim(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_ascii() && is_blank(c as u8))
}

/// Reads a boolean: any unique prefix of true, false, yes, no, on, off; 1 and 0.
///
/// # Errors
/// `InvalidTextRepresentation`.
pub fn parse_bool(text: &str) -> Result<bool, TextError> {
    let word = trim(text);
    let is_prefix = |whole: &str| {
        whole
            .get(..word.len())
            .is_some_and(|prefix| prefix.eq_ignore_ascii_case(word))
    };
    match word.len() {
        0 => Err(TextError::invalid("boolean", text)),
        _ if word == "1" || is_prefix("true") || is_prefix("yes") => Ok(true),
        _ if word == "0" || is_prefix("false") || is_prefix("no") => Ok(false),
        2.. if is_prefix("on") => Ok(true),
        2.. if is_prefix("off") => Ok(false),
        _ => Err(TextError::invalid("boolean", text)),
    }
}

/// Writes `t` or `f`.
pub fn format_bool(value: bool, out: &mut impl TextSink) {
    out.put(if value { "t" } else { "f" });
}

/// A value for `varchar(n)`: unchanged, or cut to n characters if only blanks are lost.
///
/// # Errors
/// `StringDataRightTruncation`.
pub fn fit_varchar(text: &str, n: u32) -> Result<&str, TextError> {
    let limit = n as usize;
    if text.len() <= limit {
        return Ok(text);
    }
    match text.char_indices().nth(limit) {
        None => Ok(text),
        Some((end, _)) if text[end..].bytes().all(|b| b == b' ') => Ok(&text[..end]),
        Some(_) => Err(too_long("character varying", n)),
    }
}

/// A value for `char(n)` as it travels inside: without trailing blanks.
///
/// # Errors
/// `StringDataRightTruncation` when more than n characters remain.
pub fn fit_char(text: &str, n: u32) -> Result<&str, TextError> {
    let padded = text.as_bytes().last() == Some(&b' ');
    let kept = if padded {
        text.trim_end_matches(' ')
    } else {
        text
    };
    if kept.len() <= n as usize || kept.chars().count() <= n as usize {
        return Ok(kept);
    }
    Err(too_long("character", n))
}

fn too_long(type_name: &str, n: u32) -> TextError {
    let message = format!("value too long for type {type_name}({n})");
    TextError::new(ErrorKind::StringDataRightTruncation, message)
}

/// Writes a `char(n)` value as clients see it: blank-padded to n characters, where there is an n.
pub fn format_char(text: &str, n: u32, out: &mut impl TextSink) {
    out.put(text);
    if SqlType::Char(n) == SqlType::BPCHAR {
        return;
    }
    out.fill(b' ', (n as usize).saturating_sub(text.chars().count()));
}
