//! Times read by pattern, after `DCH_from_char` and `do_to_timestamp` of PostgreSQL's
//! `formatting.c`.
//!
//! A separator of the pattern takes one separator of the text, or none; a letter takes one
//! character whatever it is; blanks before fields are skipped. [`Reader`] fills [`Fields`],
//! [`Fields::assemble`] makes a time of them and refuses what no calendar has.

use aerostat_types::text::{civil_from_days, days_from_civil};
use aerostat_types::{ErrorKind, SqlError};
use datafusion::common::{DataFusionError, Result};

use super::{DAYS, MONTHS, Part, ROMAN, parts};
use crate::external;

const JULIAN_EPOCH_DAYS: i64 = 2_440_588;

/// PostgreSQL's longest displacement of a zone.
const ZONE_HOURS_MAX: i64 = 15;

/// What a text said.
pub(in crate::functions::format) struct Read {
    pub(in crate::functions::format) days: i64,
    /// Of the day.
    pub(in crate::functions::format) micros: i64,
    /// The zone, where the text has one.
    pub(in crate::functions::format) offset_seconds: Option<i32>,
    /// How many digits behind the second's point the pattern says, if it does (`FF3`).
    pub(in crate::functions::format) digits: Option<i32>,
}

/// Reads a text by a pattern, as `to_timestamp` does.
pub(in crate::functions::format) fn read(text: &str, pattern: &str) -> Result<Read> {
    let parts = parts(pattern);
    let mut reader = Reader {
        rest: text,
        previous: None,
        skipped: 0,
        fields: Fields::default(),
    };
    for at in 0..parts.len() {
        // What a text does not say any more has its least value.
        if reader.rest.is_empty() {
            break;
        }
        reader.part(&parts, at)?;
    }
    reader.fields.assemble(text)
}

fn refuse(kind: ErrorKind, message: String) -> DataFusionError {
    external(SqlError::new(kind, message))
}

fn invalid(value: &str, field: &str, detail: &str) -> DataFusionError {
    let value: String = value.chars().take(field.len().max(2)).collect();
    let message = format!("invalid value \"{value}\" for \"{field}\"");
    external(SqlError::new(ErrorKind::InvalidDatetimeFormat, message).with_detail(detail))
}

fn out_of_range(text: &str) -> DataFusionError {
    refuse(
        ErrorKind::DatetimeFieldOverflow,
        format!("date/time field value out of range: \"{text}\""),
    )
}

#[derive(Clone, Copy, PartialEq)]
enum Convention {
    Gregorian,
    IsoWeek,
}

/// What has been read. A field that has not been is 0, as one that says 0 is.
#[derive(Default)]
struct Fields {
    convention: Option<Convention>,
    year: i64,
    year_digits: usize,
    century: i64,
    month: i64,
    day: i64,
    day_of_year: i64,
    /// From 1 for Sunday.
    weekday: i64,
    week: i64,
    week_of_month: i64,
    julian: i64,
    is_before: bool,
    hour: i64,
    /// Hours are those of a clock's face.
    is_clock: bool,
    is_afternoon: bool,
    minute: i64,
    second: i64,
    second_of_day: i64,
    millis: i64,
    micros: i64,
    /// Of `FF1` to `FF6`.
    digits: Option<i32>,
    zone_sign: i64,
    zone_hour: i64,
    zone_minute: i64,
}

struct Reader<'a> {
    rest: &'a str,
    /// The character before the rest.
    previous: Option<char>,
    /// How many characters were skipped beyond those that the pattern has.
    skipped: i64,
    fields: Fields,
}

fn is_separator(character: char) -> bool {
    character.is_ascii_punctuation()
}

fn is_blank(character: char) -> bool {
    character.is_ascii_whitespace() || character == '\u{b}'
}

/// Whether a field consists of digits.
fn is_digits(name: &str) -> bool {
    !matches!(
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
            | "OF"
    )
}

/// Whether what follows a field is no digit, so that the field is as long as its digits are.
fn ends_at_separator(parts: &[Part<'_>], at: usize) -> bool {
    if let Part::Field {
        suffix: Some(_), ..
    } = parts[at]
    {
        return true;
    }
    match parts.get(at + 1) {
        None => true,
        Some(Part::Field { name, .. }) => !is_digits(name),
        Some(Part::Literal { character, .. }) => !character.is_ascii_digit(),
    }
}

/// Sets a field, which may be said again but not otherwise.
fn set(field: &mut i64, value: i64, name: &str) -> Result<()> {
    if *field != 0 && *field != value {
        let message = format!("conflicting values for \"{name}\" field in formatting string");
        let error = SqlError::new(ErrorKind::InvalidDatetimeFormat, message);
        return Err(external(error.with_detail(
            "This value contradicts a previous setting for the same field type.",
        )));
    }
    *field = value;
    Ok(())
}

impl Reader<'_> {
    fn advance(&mut self, bytes: usize) {
        let (taken, rest) = self.rest.split_at(bytes);
        self.previous = taken.chars().next_back().or(self.previous);
        self.rest = rest;
    }

    fn skip_one(&mut self) {
        let length = self.rest.chars().next().map_or(0, char::len_utf8);
        self.advance(length);
    }

    fn skip_blanks(&mut self) {
        while self.rest.starts_with(is_blank) {
            self.skip_one();
            self.skipped += 1;
        }
    }

    fn part(&mut self, parts: &[Part<'_>], at: usize) -> Result<()> {
        if at == 0 || matches!(parts[at], Part::Field { .. }) {
            self.skip_blanks();
        }
        match parts[at] {
            Part::Literal {
                character,
                is_quoted,
            } => {
                if !is_quoted && (is_separator(character) || is_blank(character)) {
                    self.skipped -= 1;
                    if self.rest.starts_with(|c| is_blank(c) || is_separator(c)) {
                        self.skip_one();
                        self.skipped += 1;
                    }
                } else if self.skipped > 0 {
                    // It may have been skipped with blanks before.
                    self.skipped -= 1;
                } else {
                    self.skip_one();
                }
                Ok(())
            }
            Part::Field { name, suffix, .. } => {
                self.follow(name)?;
                self.field(name, parts, at)?;
                if suffix.is_some() && !self.rest.is_empty() {
                    self.skip_one();
                    self.skip_one();
                }
                self.skipped = 0;
                // Blanks behind a field are as good as those before the next.
                self.skip_blanks();
                Ok(())
            }
        }
    }

    /// Fields of weeks and fields of months do not go together.
    fn follow(&mut self, name: &str) -> Result<()> {
        let convention = match name.to_ascii_uppercase().as_str() {
            "IYYY" | "IYY" | "IY" | "I" | "IW" | "ID" | "IDDD" => Convention::IsoWeek,
            "YYYY" | "YYY" | "YY" | "Y" | "Y,YYY" | "MONTH" | "MON" | "MM" | "DD" | "DDD" | "D"
            | "WW" | "W" | "RM" => Convention::Gregorian,
            // The names of days suit both.
            _ => return Ok(()),
        };
        if *self.fields.convention.get_or_insert(convention) != convention {
            let message = "invalid combination of date conventions";
            let error = SqlError::new(ErrorKind::InvalidDatetimeFormat, message);
            return Err(external(error.with_hint(
                "Do not mix Gregorian and ISO week date conventions in a formatting template.",
            )));
        }
        Ok(())
    }

    /// A whole number of at most `width` digits, or of all if nothing can follow; its digits.
    fn number(&mut self, width: usize, parts: &[Part<'_>], at: usize) -> Result<(i64, usize)> {
        let Part::Field { name, fill, .. } = parts[at] else {
            return Ok((0, 0));
        };
        let not_a_number = "Value must be an integer.";
        let start = self.rest.len();
        let is_free = !fill || ends_at_separator(parts, at);
        self.skip_blanks();
        let body = match is_free {
            true => self.rest,
            false => {
                if self.rest.chars().take(width).count() < width {
                    let message =
                        format!("source string too short for \"{name}\" formatting field");
                    return Err(refuse(ErrorKind::InvalidDatetimeFormat, message));
                }
                let end = self.rest.char_indices().nth(width);
                &self.rest[..end.map_or(self.rest.len(), |(end, _)| end)]
            }
        };
        let sign = usize::from(body.starts_with(['+', '-']));
        let digits = body[sign..].bytes().take_while(u8::is_ascii_digit).count();
        let used = if digits == 0 { 0 } else { sign + digits };
        if used == 0 || !is_free && used < width {
            return Err(invalid(body, name, not_a_number));
        }
        let value: i64 = match body[..used].parse::<i32>() {
            Ok(value) => value.into(),
            Err(_) => {
                let message = format!("value for \"{name}\" in source string is out of range");
                return Err(refuse(ErrorKind::DatetimeFieldOverflow, message));
            }
        };
        self.advance(used);
        Ok((value, start - self.rest.len()))
    }

    /// Which of the names the rest begins with.
    fn one_of(&mut self, names: &[&str], length: Option<usize>, field: &str) -> Result<i64> {
        for (at, name) in names.iter().enumerate() {
            let name = length.map_or(*name, |length| &name[..length]);
            let head = self.rest.get(..name.len());
            if head.is_some_and(|head| head.eq_ignore_ascii_case(name)) {
                self.advance(name.len());
                return Ok(at as i64);
            }
        }
        let detail = "The given value did not match any of the allowed values for this field.";
        Err(invalid(self.rest, field, detail))
    }

    fn field(&mut self, name: &str, parts: &[Part<'_>], at: usize) -> Result<()> {
        let upper = name.to_ascii_uppercase();
        match upper.as_str() {
            "YYYY" | "IYYY" | "YYY" | "IYY" | "YY" | "IY" | "Y" | "I" => {
                let width = match upper.as_str() {
                    // `IY` is two digits of a year, `I` one.
                    "IYYY" | "YYYY" => 4,
                    "IYY" | "YYY" => 3,
                    "IY" | "YY" => 2,
                    _ => 1,
                };
                self.year(width, parts, at, name)
            }
            "Y,YYY" => self.year_of_thousands(name),
            "MONTH" => self.month(&MONTHS, None, name),
            "MON" => self.month(&MONTHS, Some(3), name),
            "RM" => self.roman(name),
            "DAY" => self.weekday(None, name),
            "DY" => self.weekday(Some(3), name),
            "AM" | "PM" => self.half(&["AM", "PM"], name),
            "A.M." | "P.M." => self.half(&["A.M.", "P.M."], name),
            "BC" | "AD" => self.era(&["AD", "BC"], name),
            "B.C." | "A.D." => self.era(&["A.D.", "B.C."], name),
            "MS" => {
                let (value, digits) = self.number(3, parts, at)?;
                set(&mut self.fields.millis, value * power(3, digits), name)
            }
            "US" | "FF1" | "FF2" | "FF3" | "FF4" | "FF5" | "FF6" => {
                let width = match upper.as_bytes() {
                    [.., digit @ b'1'..=b'6'] => {
                        self.fields.digits = Some(i32::from(digit - b'0'));
                        usize::from(digit - b'0')
                    }
                    _ => 6,
                };
                let (value, digits) = self.number(width, parts, at)?;
                set(&mut self.fields.micros, value * power(6, digits), name)
            }
            "TZH" => {
                let sign = match self.rest.chars().next() {
                    Some(sign @ ('+' | '-' | ' ')) => {
                        self.skip_one();
                        Some(sign)
                    }
                    // The pattern's separator may have taken it.
                    _ if self.skipped > 0 => self.previous,
                    _ => None,
                };
                self.fields.zone_sign = if sign == Some('-') { -1 } else { 1 };
                let (value, _) = self.number(2, parts, at)?;
                set(&mut self.fields.zone_hour, value, name)
            }
            "TZM" => {
                if self.fields.zone_sign == 0 {
                    self.fields.zone_sign = 1;
                }
                let (value, _) = self.number(2, parts, at)?;
                set(&mut self.fields.zone_minute, value, name)
            }
            "TZ" | "OF" => Err(refuse(
                ErrorKind::FeatureNotSupported,
                format!("formatting field \"{name}\" is only supported in to_char"),
            )),
            other => self.plain(other, parts, at, name),
        }
    }

    /// A field that is a number and nothing else.
    fn plain(&mut self, upper: &str, parts: &[Part<'_>], at: usize, name: &str) -> Result<()> {
        let width = match upper {
            "HH24" | "HH12" => 2,
            "ID" => 1,
            "IDDD" => 3,
            other => other.len(),
        };
        let (value, _) = self.number(width, parts, at)?;
        // Weeks of ISO begin on Monday.
        let value = match upper {
            "ID" => value % 7 + 1,
            _ => value,
        };
        let fields = &mut self.fields;
        fields.is_clock |= matches!(upper, "HH" | "HH12");
        let field = match upper {
            "HH24" | "HH" | "HH12" => &mut fields.hour,
            "MI" => &mut fields.minute,
            "SS" => &mut fields.second,
            "SSSS" | "SSSSS" => &mut fields.second_of_day,
            "MM" => &mut fields.month,
            "DD" => &mut fields.day,
            "DDD" | "IDDD" => &mut fields.day_of_year,
            "D" | "ID" => &mut fields.weekday,
            "WW" | "IW" => &mut fields.week,
            "W" => &mut fields.week_of_month,
            "CC" => &mut fields.century,
            "J" => &mut fields.julian,
            // A quarter does not say which of its days is meant.
            _ => return Ok(()),
        };
        set(field, value, name)
    }

    fn year(&mut self, width: usize, parts: &[Part<'_>], at: usize, name: &str) -> Result<()> {
        let (value, digits) = self.number(width, parts, at)?;
        let value = match width {
            4 => value,
            _ if digits < 4 => near_2020(value),
            _ => value,
        };
        self.fields.year_digits = width;
        set(&mut self.fields.year, value, name)
    }

    /// `2,024`.
    fn year_of_thousands(&mut self, name: &str) -> Result<()> {
        // The years of a thousand before Christ count towards Christ, as in PostgreSQL.
        let sign = usize::from(self.rest.starts_with(['-', '+']));
        let digits = self.rest[sign..].bytes().take_while(u8::is_ascii_digit);
        let head = sign + digits.count();
        let tail = self.rest[head..].strip_prefix(',');
        let tail = tail.map_or("", |tail| {
            &tail[..tail.bytes().take(3).take_while(u8::is_ascii_digit).count()]
        });
        let (thousands, years) = (self.rest[..head].parse::<i32>(), tail.parse::<i32>());
        let (Ok(thousands), Ok(years)) = (thousands, years) else {
            let message = "invalid input string for \"Y,YYY\"".to_owned();
            return Err(refuse(ErrorKind::InvalidDatetimeFormat, message));
        };
        self.advance(head + 1 + tail.len());
        self.fields.year_digits = 4;
        let year = i64::from(thousands) * 1000 + i64::from(years);
        set(&mut self.fields.year, year, name)
    }

    fn month(&mut self, names: &[&str], length: Option<usize>, field: &str) -> Result<()> {
        let at = self.one_of(names, length, field)?;
        set(&mut self.fields.month, at + 1, field)
    }

    fn roman(&mut self, field: &str) -> Result<()> {
        // Longer numerals before those that begin them.
        let mut numerals: Vec<(i64, &str)> = (1..).zip(ROMAN).collect();
        numerals.sort_by_key(|(_, numeral)| std::cmp::Reverse(numeral.len()));
        let names: Vec<&str> = numerals.iter().map(|(_, numeral)| *numeral).collect();
        let at = self.one_of(&names, None, field)?;
        set(&mut self.fields.month, numerals[at as usize].0, field)
    }

    fn weekday(&mut self, length: Option<usize>, field: &str) -> Result<()> {
        let at = self.one_of(&DAYS, length, field)?;
        set(&mut self.fields.weekday, at + 1, field)
    }

    fn half(&mut self, names: &[&str], field: &str) -> Result<()> {
        self.fields.is_afternoon = self.one_of(names, None, field)? == 1;
        self.fields.is_clock = true;
        Ok(())
    }

    fn era(&mut self, names: &[&str], field: &str) -> Result<()> {
        self.fields.is_before = self.one_of(names, None, field)? == 1;
        Ok(())
    }
}

/// What a fraction of so many digits is multiplied with to have all.
fn power(all: usize, digits: usize) -> i64 {
    10i64.pow(all.saturating_sub(digits) as u32)
}

/// A year of less than four digits, as the one that is nearest to 2020.
fn near_2020(year: i64) -> i64 {
    match year {
        ..70 => year + 2000,
        70..100 => year + 1900,
        100..520 => year + 2000,
        520..1000 => year + 1000,
        _ => year,
    }
}

impl Fields {
    fn assemble(&self, text: &str) -> Result<Read> {
        let micros = self.micros_of_day(text)?;
        let days = self.days(text)?;
        let offset_seconds = match self.zone_sign {
            0 => None,
            sign => {
                let (hours, minutes) = (self.zone_hour, self.zone_minute);
                if !(0..=ZONE_HOURS_MAX).contains(&hours) || !(0..60).contains(&minutes) {
                    let message = format!("time zone displacement out of range: \"{text}\"");
                    return Err(refuse(ErrorKind::InvalidTimeZoneDisplacement, message));
                }
                Some((sign * (hours * 3600 + minutes * 60)) as i32)
            }
        };
        Ok(Read {
            days,
            micros,
            offset_seconds,
            digits: self.digits,
        })
    }

    fn micros_of_day(&self, text: &str) -> Result<i64> {
        let (mut hour, mut minute, mut second) = (0, 0, 0);
        if self.second_of_day != 0 {
            let all = self.second_of_day;
            (hour, minute, second) = (all / 3600, all % 3600 / 60, all % 60);
        }
        for (part, said) in [
            (&mut hour, self.hour),
            (&mut minute, self.minute),
            (&mut second, self.second),
        ] {
            if said != 0 {
                *part = said;
            }
        }
        if self.is_clock {
            if !(1..=12).contains(&hour) {
                let message = format!("hour \"{hour}\" is invalid for the 12-hour clock");
                let error = SqlError::new(ErrorKind::InvalidDatetimeFormat, message);
                return Err(external(error.with_hint(
                    "Use the 24-hour clock, or give an hour between 1 and 12.",
                )));
            }
            hour = hour % 12 + if self.is_afternoon { 12 } else { 0 };
        }
        let fraction = self.millis * 1000 + self.micros;
        let is_time = (0..24).contains(&hour)
            && (0..60).contains(&minute)
            && (0..60).contains(&second)
            && (0..1_000_000).contains(&fraction);
        match is_time {
            true => Ok(((hour * 60 + minute) * 60 + second) * 1_000_000 + fraction),
            false => Err(out_of_range(text)),
        }
    }

    /// The year as astronomers count, where 1 BC is 0.
    fn year(&self) -> i64 {
        let century = if self.is_before {
            -self.century
        } else {
            self.century
        };
        match (self.year, century) {
            (0, 0) => 0,
            (0, 1..) => (century - 1) * 100 + 1,
            (0, _) => century * 100 + 1,
            (year, century) if century != 0 && self.year_digits <= 2 => match year % 100 {
                0 => century * 100 + i64::from(century < 0),
                year if century < 0 => century * 100 - year + 1,
                year => (century - 1) * 100 + year,
            },
            (year, _) => {
                let year = if self.is_before { -year } else { year };
                year + i64::from(year < 0)
            }
        }
    }

    fn days(&self, text: &str) -> Result<i64> {
        let (mut year, mut month, mut day) = (self.year(), 1, 1);
        let mut day_of_year = self.day_of_year;
        if self.julian != 0 {
            let (y, m, d) = civil_from_days(self.julian - JULIAN_EPOCH_DAYS);
            (year, month, day) = (y, i64::from(m), i64::from(d));
        }
        let is_iso = self.convention == Some(Convention::IsoWeek);
        if self.week != 0 && is_iso {
            let behind_monday = match self.weekday {
                0 => 0,
                1 => 6,
                weekday => weekday - 2,
            };
            let monday = first_monday(year) + (self.week - 1) * 7;
            let (y, m, d) = civil_from_days(monday + behind_monday);
            (year, month, day) = (y, i64::from(m), i64::from(d));
        } else if self.week != 0 {
            day_of_year = (self.week - 1) * 7 + 1;
        }
        if self.week_of_month != 0 {
            day = (self.week_of_month - 1) * 7 + 1;
        }
        if self.day != 0 {
            day = self.day;
        }
        if self.month != 0 {
            month = self.month;
        }
        if day_of_year != 0 && (month <= 1 || day <= 1) {
            if year == 0 && !self.is_before {
                let message = "cannot calculate day of year without year information".to_owned();
                return Err(refuse(ErrorKind::InvalidDatetimeFormat, message));
            }
            let begin = match is_iso {
                true => first_monday(year),
                false => days_from_civil(year, 1, 1),
            };
            let (y, m, d) = civil_from_days(begin + day_of_year - 1);
            if !is_iso && y != year {
                return Err(out_of_range(text));
            }
            if is_iso || month <= 1 && day <= 1 {
                (year, month, day) = (y, i64::from(m), i64::from(d));
            } else if month <= 1 {
                month = i64::from(m);
            } else {
                day = i64::from(d);
            }
        }
        let is_month = (1..=12).contains(&month);
        let month = if is_month { month as u32 } else { 1 };
        let length = crate::functions::datetime::days_in_month(year, month);
        if !is_month || !(1..=length).contains(&day) {
            return Err(out_of_range(text));
        }
        Ok(days_from_civil(year, month, day as u32))
    }
}

/// The Monday of a year's first ISO week, which has 4 January, as days since 1970.
fn first_monday(year: i64) -> i64 {
    let fourth = days_from_civil(year, 1, 4);
    fourth - (fourth + 3).rem_euclid(7)
}
