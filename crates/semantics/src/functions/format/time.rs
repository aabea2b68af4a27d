//! Times by pattern. The patterns are PostgreSQL's, without `SP` and localised names.

use aerostat_types::ErrorKind;
use aerostat_types::text::{civil_from_days, days_from_civil};
use arrow::datatypes::IntervalMonthDayNano;
use datafusion::common::Result;

use super::checked_days;
use crate::functions::temporal::DAY_MICROS;
use crate::raise;

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

const ROMAN: [&str; 12] = [
    "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII",
];

/// Template patterns, longer ones before their prefixes.
const PATTERNS: [&str; 66] = [
    "Y,YYY", "YYYY", "IYYY", "YYY", "IYY", "YY", "IY", "Y", "HH24", "HH12", "HH", "MI", "MONTH",
    "Month", "month", "MON", "Mon", "mon", "MM", "SSSSS", "SSSS", "SS", "MS", "US", "FF1", "FF2",
    "FF3", "FF4", "FF5", "FF6", "AM", "PM", "am", "pm", "A.M.", "P.M.", "a.m.", "p.m.", "BC", "AD",
    "bc", "ad", "B.C.", "A.D.", "b.c.", "a.d.", "DAY", "Day", "day", "DY", "Dy", "dy", "IDDD",
    "DDD", "DD", "ID", "D", "IW", "I", "WW", "W", "CC", "Q", "J", "RM", "rm",
];

/// Patterns of the zone.
const ZONE_PATTERNS: [&str; 5] = ["TZH", "TZM", "TZ", "tz", "OF"];

enum Part<'a> {
    Literal(char),
    /// `suffix` is `TH` or `th` behind it.
    Field {
        name: &'a str,
        fill: bool,
        suffix: Option<&'a str>,
    },
}

fn parts(pattern: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let mut rest = pattern;
    'next: while let Some(first) = rest.chars().next() {
        if first == '"' {
            let body = &rest[1..];
            let end = body.find('"').unwrap_or(body.len());
            parts.extend(body[..end].chars().map(Part::Literal));
            rest = body.get(end + 1..).unwrap_or("");
            continue;
        }
        let (fill, body) = match rest.strip_prefix("FM").or_else(|| rest.strip_prefix("fm")) {
            Some(body) => (false, body),
            None => (true, rest),
        };
        for known in PATTERNS.iter().chain(&ZONE_PATTERNS) {
            let names_case = known.as_bytes()[0].is_ascii_lowercase()
                || known.starts_with(|c: char| c.is_uppercase());
            let matches = body.get(..known.len()).is_some_and(|head| {
                head == *known
                    || (names_case && !has_case(known) && head.eq_ignore_ascii_case(known))
            });
            if matches {
                rest = &body[known.len()..];
                let suffix = rest.get(..2).filter(|head| matches!(*head, "TH" | "th"));
                rest = &rest[suffix.map_or(0, str::len)..];
                parts.push(Part::Field {
                    name: known,
                    fill,
                    suffix,
                });
                continue 'next;
            }
        }
        parts.push(Part::Literal(first));
        rest = &rest[first.len_utf8()..];
    }
    parts
}

/// Whether the case of a pattern says how its value is written.
fn has_case(name: &str) -> bool {
    matches!(
        name.to_ascii_uppercase().as_str(),
        "MONTH"
            | "MON"
            | "DAY"
            | "DY"
            | "AM"
            | "PM"
            | "A.M."
            | "P.M."
            | "BC"
            | "AD"
            | "B.C."
            | "A.D."
            | "RM"
            | "TZ"
    )
}

fn number(value: i64, width: usize, fill: bool) -> String {
    if fill {
        format!("{value:0width$}")
    } else {
        value.to_string()
    }
}

/// Hours, minutes or seconds of an interval, which may be negative: their sign takes no digit's
/// place.
fn clock(value: i64, fill: bool) -> String {
    number(value, 2 + usize::from(value < 0), fill)
}

fn word(name: &str, like: &str, width: usize) -> String {
    let cased = match like.chars().nth(1) {
        _ if like.starts_with(|c: char| c.is_lowercase()) => name.to_lowercase(),
        Some(second) if second.is_uppercase() => name.to_uppercase(),
        _ => name.to_owned(),
    };
    format!("{cased:<width$}")
}

/// Writes a local time.
pub(super) fn write(micros: i64, offset_seconds: Option<i32>, pattern: &str) -> String {
    let (day, time) = (micros.div_euclid(DAY_MICROS), micros.rem_euclid(DAY_MICROS));
    let (year, month, day_of_month) = civil_from_days(day);
    let shown_year = if year > 0 { year } else { 1 - year };
    let (hour, minute) = (time / 3_600_000_000, time / 60_000_000 % 60);
    let (second, micro) = (time / 1_000_000 % 60, time % 1_000_000);
    let day_of_year = day - days_from_civil(year, 1, 1) + 1;
    let thursday = day - (day + 3).rem_euclid(7) + 3;
    let iso_year = civil_from_days(thursday).0;
    let iso_week = (thursday - days_from_civil(iso_year, 1, 1)) / 7 + 1;
    let weekday = (day + 4).rem_euclid(7);
    let month_name = MONTHS[month as usize - 1];
    let day_name = DAYS[weekday as usize];
    let mut out = String::with_capacity(pattern.len() * 2);
    for part in parts(pattern) {
        let (name, fill, suffix) = match part {
            Part::Literal(character) => {
                out.push(character);
                continue;
            }
            Part::Field { name, fill, suffix } => (name, fill, suffix),
        };
        let padded = if fill { 9 } else { 0 };
        let value = match name {
            "YYYY" => number(shown_year, 4, fill),
            "Y,YYY" => format!("{},{:03}", shown_year / 1000, shown_year % 1000),
            "YYY" => number(shown_year % 1000, 3, fill),
            "YY" => number(shown_year % 100, 2, fill),
            "Y" => number(shown_year % 10, 1, fill),
            "IYYY" => number(iso_year, 4, fill),
            "IYY" => number(iso_year % 1000, 3, fill),
            "IY" => number(iso_year % 100, 2, fill),
            "HH24" => number(hour, 2, fill),
            "HH12" | "HH" => number((hour + 11) % 12 + 1, 2, fill),
            "MI" => number(minute, 2, fill),
            "SS" => number(second, 2, fill),
            "SSSSS" | "SSSS" => (time / 1_000_000).to_string(),
            "MS" => number(micro / 1000, 3, fill),
            "US" => number(micro, 6, fill),
            "AM" | "PM" | "am" | "pm" | "A.M." | "P.M." | "a.m." | "p.m." => {
                half_of_day(name, hour)
            }
            "MONTH" | "Month" | "month" => word(month_name, name, padded),
            "MON" | "Mon" | "mon" => word(&month_name[..3], name, 0),
            "DAY" | "Day" | "day" => word(day_name, name, padded),
            "DY" | "Dy" | "dy" => word(&day_name[..3], name, 0),
            "MM" => number(i64::from(month), 2, fill),
            "DDD" => number(day_of_year, 3, fill),
            "DD" => number(i64::from(day_of_month), 2, fill),
            "D" => (weekday + 1).to_string(),
            "ID" => ((weekday + 6) % 7 + 1).to_string(),
            "IW" => number(iso_week, 2, fill),
            "WW" => number((day_of_year - 1) / 7 + 1, 2, fill),
            "W" => ((i64::from(day_of_month) - 1) / 7 + 1).to_string(),
            "CC" => number((shown_year + 99) / 100, 2, fill),
            "Q" => ((month - 1) / 3 + 1).to_string(),
            "J" => (day + 2_440_588).to_string(),
            "I" => (iso_year % 10).to_string(),
            "IDDD" => number((iso_week - 1) * 7 + (weekday + 6) % 7 + 1, 3, fill),
            "FF1" | "FF2" | "FF3" | "FF4" | "FF5" | "FF6" => {
                let places = usize::from(name.as_bytes()[2] - b'0');
                format!("{micro:06}")[..places].to_owned()
            }
            "RM" | "rm" => {
                let numeral = word(ROMAN[month as usize - 1], name, 0);
                let width = if fill { 4 } else { 0 };
                format!("{numeral:<width$}")
            }
            "BC" | "AD" | "bc" | "ad" | "B.C." | "A.D." | "b.c." | "a.d." => era(name, year > 0),
            "tz" => zone_text("TZ", offset_seconds).to_lowercase(),
            zone => zone_text(zone, offset_seconds),
        };
        out.push_str(&value);
        if let Some(suffix) = suffix {
            out.push_str(&ordinal(&value, suffix));
        }
    }
    out
}

fn era(like: &str, is_common: bool) -> String {
    let letters = if is_common { ["A", "D"] } else { ["B", "C"] };
    let written = match like.contains('.') {
        true => format!("{}.{}.", letters[0], letters[1]),
        false => letters.concat(),
    };
    match like.starts_with(|c: char| c.is_lowercase()) {
        true => written.to_lowercase(),
        false => written,
    }
}

/// What makes a number an ordinal, in capitals if `like` is.
fn ordinal(value: &str, like: &str) -> String {
    let digits = value.as_bytes();
    let is_teen = digits.len() > 1 && digits[digits.len() - 2] == b'1';
    let suffix = match digits.last() {
        Some(b'1') if !is_teen => "st",
        Some(b'2') if !is_teen => "nd",
        Some(b'3') if !is_teen => "rd",
        Some(b'0'..=b'9') => "th",
        _ => "",
    };
    match like {
        "TH" => suffix.to_uppercase(),
        _ => suffix.to_owned(),
    }
}

fn half_of_day(like: &str, hour: i64) -> String {
    let half = match (hour < 12, like.contains('.')) {
        (true, false) => "AM",
        (false, false) => "PM",
        (true, true) => "A.M.",
        (false, true) => "P.M.",
    };
    if like.starts_with(|c: char| c.is_lowercase()) {
        half.to_lowercase()
    } else {
        half.to_owned()
    }
}

fn zone_text(name: &str, offset_seconds: Option<i32>) -> String {
    let Some(offset) = offset_seconds else {
        return if name == "OF" {
            "+00".to_owned()
        } else {
            String::new()
        };
    };
    let (sign, minutes) = (if offset < 0 { '-' } else { '+' }, offset.abs() / 60);
    match name {
        "TZH" => format!("{sign}{:02}", minutes / 60),
        "TZM" => format!("{:02}", minutes % 60),
        "TZ" if offset == 0 => "UTC".to_owned(),
        _ if minutes % 60 == 0 => format!("{sign}{:02}", minutes / 60),
        _ => format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60),
    }
}

/// Writes an interval: its fields, with hours beyond a day.
pub(super) fn write_interval(value: IntervalMonthDayNano, pattern: &str) -> String {
    let micros = value.nanoseconds / 1000;
    let mut out = String::new();
    for part in parts(pattern) {
        match part {
            Part::Literal(character) => out.push(character),
            Part::Field { name, fill, .. } => out.push_str(&match name {
                "YYYY" => number(i64::from(value.months / 12), 4, fill),
                "MM" => number(i64::from(value.months % 12), 2, fill),
                "DD" => number(i64::from(value.days), 2, fill),
                "HH24" => clock(micros / 3_600_000_000, fill),
                "HH12" | "HH" => number((micros / 3_600_000_000 + 11).rem_euclid(12) + 1, 2, fill),
                "MI" => clock(micros / 60_000_000 % 60, fill),
                "SS" => clock(micros / 1_000_000 % 60, fill),
                "MS" => number(micros / 1000 % 1000, 3, fill),
                "US" => number(micros % 1_000_000, 6, fill),
                other => other.to_owned(),
            }),
        }
    }
    out
}

/// What a text said.
pub(super) struct Read {
    pub(super) days: i64,
    pub(super) micros: i64,
    pub(super) offset_seconds: Option<i32>,
}

#[derive(Default)]
struct Fields {
    year: Option<i64>,
    month: Option<u32>,
    day: Option<u32>,
    day_of_year: Option<i64>,
    /// Years before the common era.
    is_before: bool,
    iso_week: Option<i64>,
    iso_day: Option<i64>,
    julian: Option<i64>,
    hour: i64,
    /// Hours are those of a clock's face.
    is_clock: bool,
    afternoon: Option<bool>,
    minute: i64,
    second: i64,
    micros: i64,
    offset_seconds: Option<i32>,
}

/// Reads a text by a pattern, as `to_timestamp` does: separators match any separator.
pub(super) fn read(text: &str, pattern: &str) -> Result<Read> {
    let mut fields = Fields::default();
    let mut rest = text.trim_start();
    let all = parts(pattern);
    for (at, part) in all.iter().enumerate() {
        // What a text does not say any more has its least value.
        if rest.is_empty() && at > 0 {
            break;
        }
        match part {
            Part::Literal(character) if character.is_alphanumeric() => {
                rest = rest.strip_prefix(|_: char| true).unwrap_or("");
            }
            Part::Literal(_) => {
                rest = rest.trim_start_matches(|c: char| !c.is_alphanumeric() && c != '+')
            }
            Part::Field { name, fill, suffix } => {
                let adjacent = matches!(all.get(at + 1), Some(Part::Field { .. })) && *fill;
                rest = rest.trim_start_matches(|c: char| c.is_whitespace());
                rest = read_field(name, rest, adjacent, &mut fields)?;
                if suffix.is_some() {
                    rest = rest.get(2..).unwrap_or("");
                }
            }
        }
    }
    assemble(&fields, text)
}

fn invalid(value: &str, field: &str) -> datafusion::common::DataFusionError {
    let value: String = value.chars().take(field.len().max(2)).collect();
    raise(
        ErrorKind::InvalidDatetimeFormat,
        format!("invalid value \"{value}\" for \"{field}\""),
    )
}

/// The digits at the start, at most `width` of them.
fn digits<'a>(rest: &'a str, width: usize, field: &str) -> Result<(i64, &'a str)> {
    let signed = usize::from(rest.starts_with(['+', '-']) && field.starts_with("TZ"));
    let end = rest[signed..]
        .bytes()
        .take(width)
        .take_while(u8::is_ascii_digit)
        .count()
        + signed;
    let value = rest[..end].parse().map_err(|_| invalid(rest, field))?;
    Ok((value, &rest[end..]))
}

fn name_at<'a>(
    rest: &'a str,
    names: &[&str],
    short: bool,
    field: &str,
) -> Result<(usize, &'a str)> {
    for (at, name) in names.iter().enumerate() {
        let name = if short { &name[..3] } else { *name };
        if rest
            .get(..name.len())
            .is_some_and(|head| head.eq_ignore_ascii_case(name))
        {
            return Ok((at, &rest[name.len()..]));
        }
    }
    Err(invalid(rest, field))
}

fn read_field<'a>(
    name: &str,
    rest: &'a str,
    adjacent: bool,
    fields: &mut Fields,
) -> Result<&'a str> {
    let width = |usual: usize| if adjacent { usual } else { usual.max(9) };
    let upper = name.to_ascii_uppercase();
    let two = |fields: &mut Fields, set: fn(&mut Fields, i64)| -> Result<&'a str> {
        let (value, rest) = digits(rest, 2, name)?;
        set(fields, value);
        Ok(rest)
    };
    match upper.as_str() {
        "YYYY" | "IYYY" => {
            let (value, rest) = digits(rest, width(4), name)?;
            fields.year = Some(value);
            Ok(rest)
        }
        "YY" | "IY" => {
            let (value, rest) = digits(rest, 2, name)?;
            fields.year = Some(if value < 70 {
                2000 + value
            } else {
                1900 + value
            });
            Ok(rest)
        }
        "MM" => two(fields, |fields, v| fields.month = Some(v as u32)),
        "DD" => two(fields, |fields, v| fields.day = Some(v as u32)),
        "DDD" => {
            let (value, rest) = digits(rest, 3, name)?;
            fields.day_of_year = Some(value);
            Ok(rest)
        }
        "HH24" => two(fields, |fields, v| fields.hour = v),
        "HH12" | "HH" => two(fields, |fields, v| {
            fields.hour = v;
            fields.is_clock = true;
        }),
        "IW" => two(fields, |fields, v| fields.iso_week = Some(v)),
        "ID" => {
            let (value, rest) = digits(rest, 1, name)?;
            fields.iso_day = Some(value);
            Ok(rest)
        }
        "J" => {
            let (value, rest) = digits(rest, 9, name)?;
            fields.julian = Some(value);
            Ok(rest)
        }
        "BC" | "AD" | "B.C." | "A.D." => {
            let head: String = rest.chars().take(upper.len()).collect();
            fields.is_before = match head.to_ascii_uppercase().replace('.', "").as_str() {
                "BC" => true,
                "AD" => false,
                _ => return Err(invalid(rest, name)),
            };
            Ok(&rest[head.len()..])
        }
        "MI" => two(fields, |fields, v| fields.minute = v),
        "SS" => two(fields, |fields, v| fields.second = v),
        "MS" | "US" => {
            let places = if upper == "MS" { 3 } else { 6 };
            let before = rest.len();
            let (value, rest) = digits(rest, places, name)?;
            fields.micros = value * 10_i64.pow(6 - (before - rest.len()) as u32);
            Ok(rest)
        }
        "MONTH" | "MON" => {
            let (at, rest) = name_at(rest, &MONTHS, upper == "MON", name)?;
            fields.month = Some(at as u32 + 1);
            Ok(rest)
        }
        "DAY" | "DY" => Ok(name_at(rest, &DAYS, upper == "DY", name)?.1),
        "AM" | "PM" | "A.M." | "P.M." => {
            let head: String = rest.chars().take(upper.len()).collect();
            fields.afternoon = match head.to_ascii_uppercase().as_str() {
                "AM" | "A.M." => Some(false),
                "PM" | "P.M." => Some(true),
                _ => return Err(invalid(rest, name)),
            };
            Ok(&rest[head.len()..])
        }
        "TZH" => {
            let (value, rest) = digits(rest, 2, name)?;
            fields.offset_seconds = Some(value as i32 * 3600);
            Ok(rest)
        }
        "TZM" => {
            let (value, rest) = digits(rest, 2, name)?;
            let hours = fields.offset_seconds.unwrap_or(0);
            fields.offset_seconds =
                Some(hours + value as i32 * 60 * if hours < 0 { -1 } else { 1 });
            Ok(rest)
        }
        _ => Err(raise(
            ErrorKind::FeatureNotSupported,
            format!("formatting field \"{name}\" is only supported in to_char"),
        )),
    }
}

fn assemble(fields: &Fields, text: &str) -> Result<Read> {
    let out_of_range = || {
        raise(
            ErrorKind::DatetimeFieldOverflow,
            format!("date/time field value out of range: \"{text}\""),
        )
    };
    if fields.is_clock && !(1..=12).contains(&fields.hour) {
        let message = format!("hour \"{}\" is invalid for the 12-hour clock", fields.hour);
        return Err(raise(ErrorKind::InvalidDatetimeFormat, message));
    }
    let year = match fields.year {
        Some(year) if fields.is_before => 1 - year,
        year => year.unwrap_or(0),
    };
    let days = match fields.day_of_year {
        _ if fields.julian.is_some() => fields.julian.unwrap_or(0) - 2_440_588,
        _ if fields.iso_week.is_some() => {
            let week = fields.iso_week.unwrap_or(1);
            if !(1..=53).contains(&week) || !(1..=7).contains(&fields.iso_day.unwrap_or(1)) {
                return Err(out_of_range());
            }
            // The week of the fourth of January is the first.
            let fourth = days_from_civil(year, 1, 4);
            let monday = fourth - (fourth + 3).rem_euclid(7);
            monday + (week - 1) * 7 + fields.iso_day.unwrap_or(1) - 1
        }
        Some(day) => days_from_civil(year, 1, 1) + day - 1,
        None => checked_days(year, fields.month.unwrap_or(1), fields.day.unwrap_or(1))
            .ok_or_else(out_of_range)?,
    };
    let hour = match fields.afternoon {
        Some(afternoon) => fields.hour % 12 + if afternoon { 12 } else { 0 },
        None => fields.hour,
    };
    if hour > 24 || fields.minute > 59 || fields.second > 60 {
        return Err(out_of_range());
    }
    let micros = ((hour * 60 + fields.minute) * 60 + fields.second) * 1_000_000 + fields.micros;
    Ok(Read {
        days,
        micros,
        offset_seconds: fields.offset_seconds,
    })
}
