//! The free forms of dates and times: `Jan 8, 1999 4:05 PM PST`, `19990108T040506+02`.
//!
//! A text is cut into tokens by shape alone, as PostgreSQL's `ParseDateTime`
//! does; then each token fills a field, numbers by their place among the fields
//! already filled (`DecodeDateTime`, with `DateStyle` MDY).

use super::{
    super::is_blank, DAY_MICROS, HOUR_MICROS, MINUTE_MICROS, SECOND_MICROS, days_from_civil,
    days_in_month,
};
use crate::ZoneName;

/// Why a text is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DecodeError<'a> {
    Syntax,
    Field,
    ZoneDisplacement,
    NoSuchZone(&'a str),
    Unsupported,
}

use DecodeError::{Field, Syntax};

/// Which fields must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    Date,
    Time,
    Timestamp,
    TimestampTz,
}

/// A time zone as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WrittenZone {
    /// Seconds east of UTC.
    Offset(i32),
    Zone(ZoneName),
}

/// What a text says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Decoded {
    pub(super) days: i64,
    pub(super) micros: i64,
    pub(super) zone: Option<WrittenZone>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token<'a> {
    Number(&'a str),
    Date(&'a str),
    Time(&'a str),
    Signed(&'a str),
    Word(&'a str),
}

/// More tokens than any date has; PostgreSQL's MAXDATEFIELDS.
const TOKENS_MAX: usize = 25;

/// A longer text is no date; PostgreSQL's MAXDATELEN.
const TEXT_BYTES_MAX: usize = 128;

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

const WEEKDAYS: [&str; 7] = [
    "sunday",
    "monday",
    "tuesday",
    "wednesday",
    "thursday",
    "friday",
    "saturday",
];

fn named_month(word: &str) -> Option<u32> {
    let at = MONTHS.iter().position(|month| {
        word.eq_ignore_ascii_case(month) || word.eq_ignore_ascii_case(&month[..3])
    });
    let at = at.or_else(|| word.eq_ignore_ascii_case("sept").then_some(8));
    at.map(|at| at as u32 + 1)
}

fn is_weekday(word: &str) -> bool {
    WEEKDAYS.iter().any(|day| {
        word.eq_ignore_ascii_case(day)
            || word.eq_ignore_ascii_case(&day[..3])
            || ["tues", "wednes", "weds", "thur", "thurs"]
                .iter()
                .any(|short| word.eq_ignore_ascii_case(short) && day.starts_with(&short[..3]))
    })
}

fn run(bytes: &[u8], from: usize, accept: impl Fn(u8) -> bool) -> usize {
    from + bytes[from..].iter().take_while(|&&b| accept(b)).count()
}

fn tokens(text: &str) -> Result<Vec<Token<'_>>, DecodeError<'_>> {
    let bytes = text.as_bytes();
    if bytes.len() > TEXT_BYTES_MAX || !text.is_ascii() {
        return Err(Syntax);
    }
    let mut tokens = Vec::with_capacity(8);
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        match bytes[at] {
            b if is_blank(b) => {
                at += 1;
                continue;
            }
            b'0'..=b'9' => {
                let (end, kind) = number_token(bytes, at);
                at = end;
                tokens.push(kind(&text[start..end]));
            }
            b'a'..=b'z' | b'A'..=b'Z' => {
                let (end, kind) = word_token(text, at);
                at = end;
                tokens.push(kind(&text[start..end]));
            }
            b'+' | b'-' => {
                let digits = run(bytes, at + 1, is_blank);
                if bytes.get(digits).is_some_and(u8::is_ascii_digit) && digits == at + 1 {
                    at = run(bytes, digits, |b| b.is_ascii_digit() || b == b':');
                    tokens.push(Token::Signed(&text[start..at]));
                } else if bytes.get(digits).is_some_and(u8::is_ascii_alphabetic) {
                    // "-infinity"
                    at = run(bytes, digits, |b| b.is_ascii_alphabetic());
                    tokens.push(Token::Word(&text[digits..at]));
                } else {
                    return Err(Syntax);
                }
            }
            b if b.is_ascii_punctuation() => {
                at += 1;
                continue;
            }
            _ => return Err(Syntax),
        }
        if tokens.len() > TOKENS_MAX {
            return Err(Syntax);
        }
    }
    Ok(tokens)
}

type Kind<'a> = fn(&'a str) -> Token<'a>;

fn number_token(bytes: &[u8], start: usize) -> (usize, Kind<'_>) {
    let at = run(bytes, start, |b| b.is_ascii_digit());
    match bytes.get(at) {
        Some(b':') => (
            run(bytes, at, |b| {
                b.is_ascii_digit() || matches!(b, b':' | b'.')
            }),
            Token::Time,
        ),
        Some(&delimiter @ (b'-' | b'/' | b'.')) => {
            let next = at + 1;
            if !bytes.get(next).is_some_and(u8::is_ascii_digit) {
                return (
                    run(bytes, next, |b| b.is_ascii_alphanumeric() || b == delimiter),
                    Token::Date,
                );
            }
            let end = run(bytes, next, |b| b.is_ascii_digit());
            if bytes.get(end) == Some(&delimiter) {
                return (
                    run(bytes, end, |b| b.is_ascii_digit() || b == delimiter),
                    Token::Date,
                );
            }
            (
                end,
                if delimiter == b'.' {
                    Token::Number
                } else {
                    Token::Date
                },
            )
        }
        _ => (at, Token::Number),
    }
}

fn word_token(text: &str, start: usize) -> (usize, Kind<'_>) {
    let bytes = text.as_bytes();
    let at = run(bytes, start, |b| b.is_ascii_alphabetic());
    let word = &text[start..at];
    match bytes.get(at) {
        Some(&delimiter @ (b'-' | b'/' | b'.')) if named_month(word).is_some() => (
            run(bytes, at, |b| b.is_ascii_alphanumeric() || b == delimiter),
            Token::Date,
        ),
        // A zone's name: America/New_York, Etc/GMT+8, EST5EDT.
        Some(b'/' | b'_' | b'+' | b'-') | Some(b'0'..=b'9')
            if word.len() > 2 && named_month(word).is_none() =>
        {
            let accept =
                |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'_' | b'+' | b'-');
            (run(bytes, at, accept), Token::Word)
        }
        _ => (at, Token::Word),
    }
}

#[derive(Default)]
struct Fields {
    year: Option<i64>,
    /// The year was written with one or two digits.
    year_short: bool,
    month: Option<u32>,
    month_named: bool,
    day: Option<u32>,
    micros: Option<i64>,
    hour: i64,
    afternoon: Option<bool>,
    bc: bool,
    zone: Option<WrittenZone>,
    /// `T` was read: a number that follows is a time.
    time_follows: bool,
    epoch: bool,
}

/// Reads `text`; what it must hold is up to `goal`.
pub(super) fn decode(text: &str, goal: Goal) -> Result<Decoded, DecodeError<'_>> {
    let mut fields = Fields {
        time_follows: goal == Goal::Time,
        ..Fields::default()
    };
    let tokens = tokens(text)?;
    for &token in &tokens {
        match token {
            Token::Number(number) => fields.number_token(number)?,
            Token::Date(date) => fields.date(date)?,
            Token::Time(time) => fields.time(time)?,
            Token::Signed(offset) => fields.zone(WrittenZone::Offset(parse_offset(offset)?))?,
            Token::Word(word) => fields.word(word)?,
        }
    }
    fields.finish(goal)
}

impl Fields {
    fn has_date(&self) -> bool {
        self.year.is_some() && self.month.is_some() && self.day.is_some()
    }

    fn number_token(&mut self, number: &str) -> Result<(), DecodeError<'static>> {
        let whole = number.split('.').next().unwrap_or(number);
        if std::mem::take(&mut self.time_follows) && self.micros.is_none() {
            return self.run_together_time(number);
        }
        let any_date = self.year.is_some() || self.month.is_some() || self.day.is_some();
        if number.contains('.') && !any_date {
            return self.date(number);
        }
        if number.contains('.') || whole.len() >= 6 && (!self.has_date() || self.micros.is_none()) {
            return self.run_together(number);
        }
        self.number(number)
    }

    /// `YYYYMMDD`, `YYMMDD`, or once the date is there `HHMMSS` and `HHMM`.
    fn run_together(&mut self, number: &str) -> Result<(), DecodeError<'static>> {
        if self.has_date() || number.contains('.') {
            return self.run_together_time(number);
        }
        let digits = number.len();
        if digits < 6 || self.year.is_some() || self.day.is_some() || self.month.is_some() {
            return Err(Syntax);
        }
        self.day = Some(small(&number[digits - 2..])? as u32);
        self.month = Some(small(&number[digits - 4..digits - 2])? as u32);
        self.year = Some(small(&number[..digits - 4])?);
        self.year_short = digits == 6;
        Ok(())
    }

    fn run_together_time(&mut self, number: &str) -> Result<(), DecodeError<'static>> {
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let (hour, minute, second) = match whole.len() {
            6 => (
                small(&whole[..2])?,
                small(&whole[2..4])?,
                small(&whole[4..])?,
            ),
            4 if fraction.is_empty() => (small(&whole[..2])?, small(&whole[2..])?, 0),
            _ => return Err(Syntax),
        };
        self.set_time(hour, minute, second, fraction_micros(fraction)?)
    }

    /// A plain number, by the fields that are there already.
    fn number(&mut self, number: &str) -> Result<(), DecodeError<'static>> {
        let value = small(number)?;
        let long = number.len() >= 3;
        match (
            self.year.is_some(),
            self.month.is_some(),
            self.day.is_some(),
        ) {
            (false, false, false) if long => self.set_year(number),
            (false, false, false) => self.set_month(value),
            (true, false, false) => self.set_month(value),
            (true, true, false) if self.month_named && long && self.year_short => {
                // "05-Jan-1999" was read with its day as the year.
                self.day = Some(u32::try_from(self.year.take().unwrap_or(0)).map_err(|_| Field)?);
                self.year_short = false;
                self.set_year(number)
            }
            (true, true, false) => self.set_day(value),
            (false, true, false) if self.month_named && long => self.set_year(number),
            (false, true, false) => self.set_day(value),
            (false, true, true) => self.set_year(number),
            (false, false, true) => self.set_month(value),
            (true, false, true) => self.set_month(value),
            (true, true, true) if self.micros.is_none() => self.run_together_time(number),
            (true, true, true) => Err(Syntax),
        }
    }

    fn set_year(&mut self, number: &str) -> Result<(), DecodeError<'static>> {
        self.year = Some(small(number)?);
        self.year_short = number.len() <= 2;
        Ok(())
    }

    fn set_month(&mut self, value: i64) -> Result<(), DecodeError<'static>> {
        self.month = Some(u32::try_from(value).map_err(|_| Field)?);
        Ok(())
    }

    fn set_day(&mut self, value: i64) -> Result<(), DecodeError<'static>> {
        self.day = Some(u32::try_from(value).map_err(|_| Field)?);
        Ok(())
    }

    /// Fields joined by `-`, `/` or `.`; a month may be named.
    fn date(&mut self, date: &str) -> Result<(), DecodeError<'static>> {
        if self.year.is_some() || self.month.is_some() || self.day.is_some() {
            return Err(Syntax);
        }
        let parts: Vec<&str> = date
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|p| !p.is_empty())
            .collect();
        if parts.len() > 3 {
            return Err(Syntax);
        }
        for part in &parts {
            if part.as_bytes()[0].is_ascii_alphabetic() {
                if self.month_named {
                    return Err(Syntax);
                }
                self.month = Some(named_month(part).ok_or(Syntax)?);
                self.month_named = true;
            }
        }
        for part in parts
            .iter()
            .filter(|part| part.as_bytes()[0].is_ascii_digit())
        {
            if self.has_date() || !part.bytes().all(|b| b.is_ascii_digit()) {
                return Err(Syntax);
            }
            self.number(part)?;
        }
        if self.has_date() { Ok(()) } else { Err(Syntax) }
    }

    fn time(&mut self, time: &str) -> Result<(), DecodeError<'static>> {
        if self.micros.is_some() {
            return Err(Syntax);
        }
        self.time_follows = false;
        let (whole, fraction) = time.split_once('.').unwrap_or((time, ""));
        let mut parts = whole.split(':').map(small);
        let first = parts.next().ok_or(Syntax)??;
        let second = parts.next().ok_or(Syntax)??;
        let micros = fraction_micros(fraction)?;
        match (parts.next(), parts.next()) {
            (Some(third), None) => self.set_time(first, second, third?, micros),
            // Two fields with a fraction are minutes and seconds.
            (None, None) if time.contains('.') => self.set_time(0, first, second, micros),
            (None, None) => self.set_time(first, second, 0, 0),
            _ => Err(Syntax),
        }
    }

    fn set_time(
        &mut self,
        hour: i64,
        minute: i64,
        second: i64,
        micros: i64,
    ) -> Result<(), DecodeError<'static>> {
        if self.micros.is_some() {
            return Err(Syntax);
        }
        let total = hour * HOUR_MICROS + minute * MINUTE_MICROS + second * SECOND_MICROS + micros;
        if hour > 24 || minute > 59 || second > 60 || total > DAY_MICROS {
            return Err(Field);
        }
        self.hour = hour;
        self.micros = Some(total);
        Ok(())
    }

    fn zone(&mut self, zone: WrittenZone) -> Result<(), DecodeError<'static>> {
        match self.zone.replace(zone) {
            None => Ok(()),
            Some(_) => Err(Syntax),
        }
    }

    fn word<'a>(&mut self, word: &'a str) -> Result<(), DecodeError<'a>> {
        let is = |names: &[&str]| names.iter().any(|name| word.eq_ignore_ascii_case(name));
        if let Some(month) = named_month(word) {
            // "1 Jan 2000": a number before a named month was taken as the month.
            if let (Some(day), false, None) = (self.month, self.month_named, self.day) {
                self.day = Some(day);
            }
            self.month = Some(month);
            self.month_named = true;
            return Ok(());
        }
        match () {
            () if is(&["am"]) => self.afternoon = Some(false),
            () if is(&["pm"]) => self.afternoon = Some(true),
            () if is(&["ad"]) => self.bc = false,
            () if is(&["bc"]) => self.bc = true,
            () if is(&["t"]) => self.time_follows = true,
            () if is(&["at", "on"]) || is_weekday(word) => {}
            () if is(&["epoch"]) => self.epoch = true,
            () if is(&[
                "infinity",
                "now",
                "today",
                "tomorrow",
                "yesterday",
                "allballs",
            ]) =>
            {
                return Err(DecodeError::Unsupported);
            }
            () => return self.named_zone(word),
        }
        Ok(())
    }

    fn named_zone<'a>(&mut self, name: &'a str) -> Result<(), DecodeError<'a>> {
        match ZoneName::read(name) {
            Some(zone) => self.zone(WrittenZone::Zone(zone)),
            None if name.bytes().all(|b| b.is_ascii_alphabetic()) => Err(Syntax),
            None => Err(DecodeError::NoSuchZone(name)),
        }
    }

    fn finish(self, goal: Goal) -> Result<Decoded, DecodeError<'static>> {
        if self.epoch {
            let bare = !self.has_date() && self.micros.is_none();
            let decoded = Decoded {
                days: 0,
                micros: 0,
                zone: Some(WrittenZone::Offset(0)),
            };
            return if bare && goal != Goal::Time {
                Ok(decoded)
            } else {
                Err(Syntax)
            };
        }
        // Only a complete date or time shows that a stray word is a zone.
        if !self.has_date() && self.micros.is_none() {
            return Err(Syntax);
        }
        let micros = self.micros_of_day()?;
        if goal == Goal::Time {
            return Ok(Decoded {
                days: 0,
                micros: micros.ok_or(Syntax)?,
                zone: self.zone,
            });
        }
        Ok(Decoded {
            days: self.days()?,
            micros: micros.unwrap_or(0),
            zone: self.zone,
        })
    }

    fn micros_of_day(&self) -> Result<Option<i64>, DecodeError<'static>> {
        let (Some(micros), Some(afternoon)) = (self.micros, self.afternoon) else {
            return if self.afternoon.is_some() {
                Err(Syntax)
            } else {
                Ok(self.micros)
            };
        };
        match self.hour {
            13.. => Err(Field),
            12 if !afternoon => Ok(Some(micros - 12 * HOUR_MICROS)),
            0..12 if afternoon => Ok(Some(micros + 12 * HOUR_MICROS)),
            _ => Ok(Some(micros)),
        }
    }

    fn days(&self) -> Result<i64, DecodeError<'static>> {
        let (Some(year), Some(month), Some(day)) = (self.year, self.month, self.day) else {
            return Err(Syntax);
        };
        let year = match year {
            ..0 => return Err(Field),
            0 if !self.year_short || self.bc => return Err(Field),
            year if self.bc => 1 - year,
            0..70 if self.year_short => year + 2000,
            70.. if self.year_short => year + 1900,
            year => year,
        };
        if !(1..=12).contains(&month) || day == 0 || day > days_in_month(year, month) {
            return Err(Field);
        }
        Ok(days_from_civil(year, month, day))
    }
}

/// A number of at most nine digits: more is no field of a date.
fn small(digits: &str) -> Result<i64, DecodeError<'static>> {
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Syntax);
    }
    if digits.len() > 9 {
        return Err(Field);
    }
    Ok(digits
        .bytes()
        .fold(0, |value, b| value * 10 + i64::from(b - b'0')))
}

/// The digits after a point as microseconds, rounded.
pub(super) fn fraction_micros(digits: &str) -> Result<i64, DecodeError<'static>> {
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Syntax);
    }
    if digits.len() <= 6 {
        let value = digits
            .bytes()
            .fold(0, |value, b| value * 10 + i64::from(b - b'0'));
        return Ok(value * 10i64.pow(6 - digits.len() as u32));
    }
    let fraction: f64 = format!("0.{digits}").parse().map_err(|_| Syntax)?;
    Ok((fraction * SECOND_MICROS as f64).round_ties_even() as i64)
}

/// PostgreSQL's MAX_TZDISP_HOUR.
const OFFSET_HOURS_MAX: i64 = 15;

/// `+hh`, `+hhmm`, `+hh:mm` or `+hh:mm:ss`, in seconds east.
fn parse_offset(text: &str) -> Result<i32, DecodeError<'static>> {
    let (negative, digits) = (text.starts_with('-'), &text[1..]);
    let mut parts = digits.split(':');
    let first = parts.next().unwrap_or("");
    let (hours, minutes) = match (first.len(), parts.next()) {
        (_, Some(minutes)) => (small(first)?, small(minutes)?),
        (3.., None) => (
            small(&first[..first.len() - 2])?,
            small(&first[first.len() - 2..])?,
        ),
        (_, None) => (small(first)?, 0),
    };
    let seconds = parts.next().map_or(Ok(0), small)?;
    if parts.next().is_some() {
        return Err(Syntax);
    }
    if hours > OFFSET_HOURS_MAX || minutes > 59 || seconds > 59 {
        return Err(DecodeError::ZoneDisplacement);
    }
    let total = (hours * 3600 + minutes * 60 + seconds) as i32;
    Ok(if negative { -total } else { total })
}
