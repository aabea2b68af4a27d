//! Times by pattern. The patterns are PostgreSQL's, without `SP`; names are English, also with `TM`.

mod read;

pub(super) use read::{Read, read};

use aerostat_types::Zone;
use aerostat_types::text::{civil_from_days, days_from_civil};
use arrow::datatypes::IntervalMonthDayNano;

use crate::functions::cast::DAY_MICROS;

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

#[derive(Clone, Copy)]
enum Part<'a> {
    Literal {
        character: char,
        is_quoted: bool,
    },
    /// `suffix` is `TH` or `th` behind it. Names have no blanks behind them with `FM` and `TM`.
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
            rest = quoted(&rest[1..], &mut parts);
            continue;
        }
        let prefix = |name: [&str; 2]| {
            let mut spellings = name.into_iter();
            spellings.find_map(|name| rest.strip_prefix(name))
        };
        let (fill, body) = match (prefix(["FM", "fm"]), prefix(["TM", "tm"])) {
            (Some(body), _) | (_, Some(body)) => (false, body),
            _ => (true, rest),
        };
        let is_translated = prefix(["TM", "tm"]).is_some();
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
                    fill: fill || is_translated && !is_translatable(known),
                    suffix,
                });
                continue 'next;
            }
        }
        rest = rest
            .strip_prefix('\\')
            .filter(|rest| rest.starts_with('"'))
            .unwrap_or(rest);
        let character = rest.chars().next().unwrap_or(first);
        parts.push(Part::Literal {
            character,
            is_quoted: false,
        });
        rest = &rest[character.len_utf8()..];
    }
    parts
}

/// Takes what stands in double quotes, and gives what follows.
fn quoted<'a>(text: &'a str, parts: &mut Vec<Part<'a>>) -> &'a str {
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        let character = match character {
            '"' => return &text[at + 1..],
            '\\' => characters.next().map_or('\\', |(_, escaped)| escaped),
            other => other,
        };
        parts.push(Part::Literal {
            character,
            is_quoted: true,
        });
    }
    ""
}

/// Whether a pattern is one of a name that `TM` is about.
fn is_translatable(name: &str) -> bool {
    let names = ["MONTH", "MON", "DAY", "DY"];
    names.iter().any(|known| name.eq_ignore_ascii_case(known))
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

/// The zone whose clock shows a local time, and the instant.
pub(super) struct ZonedInstant {
    pub(super) zone: Zone,
    pub(super) utc_micros: i64,
}

/// Writes a local time.
pub(super) fn write(micros: i64, place: Option<&ZonedInstant>, pattern: &str) -> String {
    let (day, time) = (micros.div_euclid(DAY_MICROS), micros.rem_euclid(DAY_MICROS));
    let (year, month, day_of_month) = civil_from_days(day);
    let shown = |year: i64| if year > 0 { year } else { 1 - year };
    let shown_year = shown(year);
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
            Part::Literal { character, .. } => {
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
            "IYYY" => number(shown(iso_year), 4, fill),
            "IYY" => number(shown(iso_year) % 1000, 3, fill),
            "IY" => number(shown(iso_year) % 100, 2, fill),
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
            "CC" if year > 0 => number((year + 99) / 100, 2, fill),
            "CC" => number(year / 100 - 1, 3, fill),
            "Q" => ((month - 1) / 3 + 1).to_string(),
            "J" => (day + 2_440_588).to_string(),
            "I" => (shown(iso_year) % 10).to_string(),
            "IDDD" => number((iso_week - 1) * 7 + (weekday + 6) % 7 + 1, 3, fill),
            "FF1" | "FF2" | "FF3" | "FF4" | "FF5" | "FF6" => {
                let places = usize::from(name.as_bytes()[2] - b'0');
                format!("{micro:06}")[..places].to_owned()
            }
            "RM" | "rm" => roman(month as i32, name, fill),
            "BC" | "AD" | "bc" | "ad" | "B.C." | "A.D." | "b.c." | "a.d." => era(name, year > 0),
            "tz" => zone_text("TZ", fill, place).to_lowercase(),
            zone => zone_text(zone, fill, place),
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

/// What stands for the zone. A time without one counts as UTC without a name.
fn zone_text(name: &str, fill: bool, place: Option<&ZonedInstant>) -> String {
    let offset = place.map_or(0, |place| place.zone.offset_at(place.utc_micros));
    let (sign, minutes) = (if offset < 0 { '-' } else { '+' }, offset.abs() / 60);
    let width = if fill { 2 } else { 0 };
    match name {
        "TZH" => format!("{sign}{:02}", minutes / 60),
        "TZM" => format!("{:02}", minutes % 60),
        "TZ" => place.map_or_else(String::new, |place| {
            let name = place.zone.abbreviation_at(place.utc_micros);
            name.to_uppercase()
        }),
        _ if minutes % 60 == 0 => format!("{sign}{:0width$}", minutes / 60),
        _ => format!("{sign}{:0width$}:{:02}", minutes / 60, minutes % 60),
    }
}

/// The month of an interval in Roman numerals, which go backwards below zero.
fn roman_of_interval(months: i32, like: &str, fill: bool) -> String {
    let (year, month) = (months / 12, months % 12);
    let month = match month {
        0 if year == 0 => return String::new(),
        0 if year < 0 => 1,
        0 => 12,
        month if month < 0 => 13 + month,
        month => month,
    };
    roman(month, like, fill)
}

fn roman(month: i32, like: &str, fill: bool) -> String {
    let numeral = word(ROMAN[month as usize - 1], like, 0);
    let width = if fill { 4 } else { 0 };
    format!("{numeral:<width$}")
}

/// Writes an interval: its fields, with hours beyond a day.
pub(super) fn write_interval(value: IntervalMonthDayNano, pattern: &str) -> String {
    let micros = value.nanoseconds / 1000;
    let mut out = String::new();
    for part in parts(pattern) {
        match part {
            Part::Literal { character, .. } => out.push(character),
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
                "RM" | "rm" => roman_of_interval(value.months, name, fill),
                other => other.to_owned(),
            }),
        }
    }
    out
}
