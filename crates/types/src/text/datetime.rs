//! Dates and times of day: writing them, and reading them with a fast case for the ISO form;
//! `decode` reads the free forms that PostgreSQL also accepts.

mod decode;

use super::{
    TextError, TextSink,
    civil::{civil_from_days, days_from_civil, days_in_month},
    format_int, put_ascii, trim,
};
use crate::{ErrorKind, Zone};
use decode::{DecodeError, Decoded, Goal, WrittenZone, decode};

pub(super) const SECOND_MICROS: i64 = 1_000_000;
pub(super) const MINUTE_MICROS: i64 = 60 * SECOND_MICROS;
pub(super) const HOUR_MICROS: i64 = 60 * MINUTE_MICROS;
pub(super) const DAY_MICROS: i64 = 24 * HOUR_MICROS;

/// 4714-11-24 BC, Julian day 0: PostgreSQL's first date.
const DATE_MIN_DAYS: i64 = -2_440_588;

/// The day after PostgreSQL's last date, 5874897-12-31.
const DATE_END_DAYS: i64 = 2_147_483_494 - 2_440_588;

/// Whether a number of days since 1970-01-01 is a date, which lie from 4714-11-24 BC to
/// 5874897-12-31.
pub fn is_date(days: i32) -> bool {
    (DATE_MIN_DAYS..DATE_END_DAYS).contains(&i64::from(days))
}

/// Whether microseconds since 1970-01-01 are a timestamp: the first is 4714-11-24 BC, the last
/// is as far as 64 bits count.
pub fn is_timestamp(micros: i64) -> bool {
    micros.div_euclid(DAY_MICROS) >= DATE_MIN_DAYS
}

fn refused(error: DecodeError<'_>, type_name: &str, text: &str) -> TextError {
    let overflow = |message: String| TextError::new(ErrorKind::DatetimeFieldOverflow, message);
    match error {
        DecodeError::Syntax => {
            let message = format!(
                "invalid input syntax for type {type_name}: \"{}\"",
                super::quoted(text)
            );
            TextError::new(ErrorKind::InvalidDatetimeFormat, message)
        }
        DecodeError::Field => overflow(format!(
            "date/time field value out of range: \"{}\"",
            super::quoted(text)
        )),
        DecodeError::ZoneDisplacement => {
            let text = super::quoted(text);
            let message = format!("time zone displacement out of range: \"{text}\"");
            TextError::new(ErrorKind::InvalidTimeZoneDisplacement, message)
        }
        DecodeError::NoSuchZone(name) => {
            let message = format!("time zone \"{}\" not recognized", super::quoted(name));
            TextError::new(ErrorKind::InvalidParameterValue, message)
        }
        DecodeError::Unsupported => TextError::unsupported(type_name, trim(text)),
    }
}

fn out_of_range(type_name: &str, text: &str) -> TextError {
    let message = format!("{type_name} out of range: \"{}\"", super::quoted(text));
    TextError::new(ErrorKind::DatetimeFieldOverflow, message)
}

/// Reads a date as days since 1970-01-01.
///
/// # Errors
/// `InvalidDatetimeFormat`, `DatetimeFieldOverflow`; `FeatureNotSupported` for `infinity` and
/// words that need a clock.
pub fn parse_date(text: &str) -> Result<i32, TextError> {
    if let Some((days, b"")) = fast_date(text.as_bytes()) {
        return Ok(days as i32);
    }
    let decoded = decode(text, Goal::Date).map_err(|error| refused(error, "date", text))?;
    let days = i32::try_from(decoded.days).ok();
    days.filter(|&days| is_date(days))
        .ok_or_else(|| out_of_range("date", text))
}

/// Reads a time as microseconds since midnight, up to and with 24:00:00. A zone is read and ignored.
///
/// # Errors
/// `InvalidDatetimeFormat`, `DatetimeFieldOverflow`.
pub fn parse_time(text: &str) -> Result<i64, TextError> {
    if let Some((micros, b"")) = fast_time(text.as_bytes()) {
        return Ok(micros);
    }
    let decoded = decode(text, Goal::Time).map_err(|error| refused(error, "time", text))?;
    Ok(decoded.micros)
}

/// Reads a timestamp as microseconds since 1970-01-01 00:00:00. A zone is read and ignored.
///
/// # Errors
/// As [`parse_date`].
pub fn parse_timestamp(text: &str) -> Result<i64, TextError> {
    if let Some((days, rest)) = fast_date(text.as_bytes())
        && let [b' ' | b'T', rest @ ..] = rest
        && let Some((micros, b"")) = fast_time(rest)
    {
        return Ok(days * DAY_MICROS + micros);
    }
    let decoded =
        decode(text, Goal::Timestamp).map_err(|error| refused(error, "timestamp", text))?;
    local_micros(&decoded).ok_or_else(|| out_of_range("timestamp", text))
}

/// Reads a timestamptz as microseconds since 1970-01-01 00:00:00 UTC. Without a zone in the
/// text the session's, which is given, holds.
///
/// # Errors
/// As [`parse_date`]; `InvalidParameterValue` for a zone that is not there.
pub fn parse_timestamptz(text: &str, session: &Zone) -> Result<i64, TextError> {
    let type_name = "timestamp with time zone";
    let decoded =
        decode(text, Goal::TimestampTz).map_err(|error| refused(error, type_name, text))?;
    let local = local_micros(&decoded).ok_or_else(|| out_of_range("timestamp", text))?;
    let instant = match decoded.zone {
        None => session.to_instant(local),
        Some(WrittenZone::Offset(seconds)) => local
            .checked_sub(i64::from(seconds) * SECOND_MICROS)
            .filter(|&instant| is_timestamp(instant)),
        Some(WrittenZone::Zone(zone)) => zone.to_instant(local),
    };
    instant.ok_or_else(|| out_of_range("timestamp", text))
}

fn local_micros(decoded: &Decoded) -> Option<i64> {
    if decoded.days < DATE_MIN_DAYS {
        return None;
    }
    decoded
        .days
        .checked_mul(DAY_MICROS)?
        .checked_add(decoded.micros)
}

/// Two digits below 100.
fn two(bytes: &[u8]) -> Option<i64> {
    match bytes {
        [a @ b'0'..=b'9', b @ b'0'..=b'9'] => Some(i64::from(a - b'0') * 10 + i64::from(b - b'0')),
        _ => None,
    }
}

/// `YYYY-MM-DD` and what follows it. `None` sends the caller the slow way.
fn fast_date(text: &[u8]) -> Option<(i64, &[u8])> {
    let (date, rest) = text.split_at_checked(10)?;
    if date[4] != b'-' || date[7] != b'-' {
        return None;
    }
    let year = two(&date[..2])? * 100 + two(&date[2..4])?;
    let month = two(&date[5..7])? as u32;
    let day = two(&date[8..])? as u32;
    let valid =
        year > 0 && (1..=12).contains(&month) && day > 0 && day <= days_in_month(year, month);
    valid.then(|| (days_from_civil(year, month, day), rest))
}

/// `HH:MM:SS[.ffffff]` and what follows it.
fn fast_time(text: &[u8]) -> Option<(i64, &[u8])> {
    let (time, mut rest) = text.split_at_checked(8)?;
    if time[2] != b':' || time[5] != b':' {
        return None;
    }
    let (hour, minute, second) = (two(&time[..2])?, two(&time[3..5])?, two(&time[6..])?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let mut micros = hour * HOUR_MICROS + minute * MINUTE_MICROS + second * SECOND_MICROS;
    if let [b'.', digits @ ..] = rest {
        let count = digits.iter().take_while(|b| b.is_ascii_digit()).count();
        if count > 6 {
            return None;
        }
        let fraction = digits[..count]
            .iter()
            .fold(0, |sum, b| sum * 10 + i64::from(b - b'0'));
        micros += fraction * 10i64.pow(6 - count as u32);
        rest = &digits[count..];
    }
    Some((micros, rest))
}

/// Writes a date as `YYYY-MM-DD`, with ` BC` for years before 1.
pub fn format_date(days: i32, out: &mut impl TextSink) {
    let bc = put_date(i64::from(days), out);
    out.put(bc);
}

/// Writes the date without its era, which it gives back: in a timestamp the era stands at the end.
fn put_date(days: i64, out: &mut impl TextSink) -> &'static str {
    let (year, month, day) = civil_from_days(days);
    let shown = if year > 0 { year } else { 1 - year };
    if shown > 9999 {
        format_int(shown, out);
    } else {
        put_pair((shown / 100) as u32, out);
        put_pair((shown % 100) as u32, out);
    }
    out.put("-");
    put_pair(month, out);
    out.put("-");
    put_pair(day, out);
    if year > 0 { "" } else { " BC" }
}

fn put_pair(value: u32, out: &mut impl TextSink) {
    put_ascii(out, &[b'0' + (value / 10) as u8, b'0' + (value % 10) as u8]);
}

/// Writes a time as `HH:MM:SS[.ffffff]`.
pub fn format_time(micros: i64, out: &mut impl TextSink) {
    put_pair((micros / HOUR_MICROS) as u32, out);
    out.put(":");
    put_pair((micros / MINUTE_MICROS % 60) as u32, out);
    out.put(":");
    put_pair((micros / SECOND_MICROS % 60) as u32, out);
    put_fraction(micros % SECOND_MICROS, out);
}

/// Writes the point and the digits of a fraction of a second, without trailing zeros.
pub(super) fn put_fraction(micros: i64, out: &mut impl TextSink) {
    if micros == 0 {
        return;
    }
    let mut buffer = *b".000000";
    let mut rest = micros;
    for at in (1..7).rev() {
        buffer[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    let kept = buffer.iter().rposition(|&b| b != b'0').unwrap_or(0);
    put_ascii(out, &buffer[..=kept]);
}

/// Writes a timestamp as `YYYY-MM-DD HH:MM:SS[.ffffff]`.
pub fn format_timestamp(micros: i64, out: &mut impl TextSink) {
    let bc = put_date(micros.div_euclid(DAY_MICROS), out);
    out.put(" ");
    format_time(micros.rem_euclid(DAY_MICROS), out);
    out.put(bc);
}

/// Writes a timestamptz as seen `offset_seconds` east of UTC: `… +02`, `+05:30`, `-00:44:30`.
pub fn format_timestamptz(micros: i64, offset_seconds: i32, out: &mut impl TextSink) {
    let local = micros.saturating_add(i64::from(offset_seconds) * SECOND_MICROS);
    let bc = put_date(local.div_euclid(DAY_MICROS), out);
    out.put(" ");
    format_time(local.rem_euclid(DAY_MICROS), out);
    put_offset(offset_seconds, out);
    out.put(bc);
}

fn put_offset(offset_seconds: i32, out: &mut impl TextSink) {
    out.put(if offset_seconds < 0 { "-" } else { "+" });
    let seconds = offset_seconds.unsigned_abs();
    put_pair(seconds / 3600, out);
    if !seconds.is_multiple_of(3600) {
        out.put(":");
        put_pair(seconds / 60 % 60, out);
    }
    if !seconds.is_multiple_of(60) {
        out.put(":");
        put_pair(seconds % 60, out);
    }
}
