//! POSIX rules, as in the variable `TZ`: `EST5EDT,M3.2.0,M11.1.0`, `<+0530>-5:30`, `FOO+3`.
//!
//! Offsets count west of Greenwich there, east of it here. As in PostgreSQL, a name may be empty
//! (`+02:00` is a zone two hours west) and is upper case, and summer time without rules follows
//! the United States.

use super::civil_day;
use crate::text::{civil_from_days, days_from_civil};

const DAY_SECONDS: i64 = 86_400;

/// Bytes of the longest rule that is taken; the IANA database's longest has 46.
const TEXT_BYTES_MAX: usize = 63;

/// When summer time begins and ends where a text does not say so.
const RULES_DEFAULT: &str = ",M3.2.0,M11.1.0";

/// A text that is copied, as zones are.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Text {
    bytes: [u8; TEXT_BYTES_MAX],
    length: u8,
}

impl Text {
    fn new(text: &str) -> Option<Self> {
        let mut bytes = [0; TEXT_BYTES_MAX];
        bytes
            .get_mut(..text.len())?
            .copy_from_slice(text.as_bytes());
        Some(Self {
            bytes,
            length: text.len() as u8,
        })
    }

    fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.length)]).unwrap_or_default()
    }
}

/// Where an abbreviation stands in the text.
type NameRange = (u8, u8);

/// A day of a year on which the clocks change.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Day {
    /// `Jn`: from 1, without 29 February.
    Julian(u16),
    /// `n`: from 0, with it.
    OfYear(u16),
    /// `Mm.w.d`: the w-th weekday d of a month, 5 for the last one.
    Weekday { month: u8, week: u8, weekday: u8 },
}

/// When the clocks change, by the clock that was valid before.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Change {
    day: Day,
    seconds: i32,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Summer {
    name: NameRange,
    offset_seconds: i32,
    begin: Change,
    end: Change,
}

/// A zone by rule.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Posix {
    text: Text,
    name: NameRange,
    offset_seconds: i32,
    summer: Option<Summer>,
}

impl std::fmt::Debug for Posix {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Posix {
    /// Reads a rule.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = Text::new(&text.to_ascii_uppercase())?;
        let mut rest = Reader {
            text: text.as_str(),
            at: 0,
        };
        let name = rest.name()?;
        if rest.is_done() {
            return None;
        }
        let offset_seconds = -rest.seconds()?;
        let summer = match rest.is_done() {
            true => None,
            false => Some(rest.summer(offset_seconds)?),
        };
        Some(Self {
            text,
            name,
            offset_seconds,
            summer,
        })
    }

    /// The zone that is always so many seconds east, with the name that PostgreSQL gives it.
    pub(super) fn fixed(east_seconds: i32) -> Option<Self> {
        let seconds = east_seconds.unsigned_abs();
        let mut digits = format!("{:02}", seconds / 3600);
        if !seconds.is_multiple_of(3600) {
            digits += &format!(":{:02}", seconds / 60 % 60);
        }
        if !seconds.is_multiple_of(60) {
            digits += &format!(":{:02}", seconds % 60);
        }
        let (sign, opposite) = if east_seconds < 0 {
            ('-', '+')
        } else {
            ('+', '-')
        };
        Self::parse(&format!("<{sign}{digits}>{opposite}{digits}"))
    }

    pub(super) fn as_str(&self) -> &str {
        self.text.as_str()
    }

    pub(super) fn is_fixed(&self) -> bool {
        self.summer.is_none()
    }

    /// Whether summer time holds at an instant.
    pub(super) fn is_summer_at(&self, utc_seconds: i64) -> bool {
        let summer = self.summer.as_ref();
        summer.is_some_and(|summer| self.is_summer(summer, utc_seconds))
    }

    fn is_summer(&self, summer: &Summer, utc_seconds: i64) -> bool {
        let local = utc_seconds + i64::from(self.offset_seconds);
        let year = civil_from_days(local.div_euclid(DAY_SECONDS)).0;
        let begin = summer.begin.local_seconds(year) - i64::from(self.offset_seconds);
        let end = summer.end.local_seconds(year) - i64::from(summer.offset_seconds);
        match begin < end {
            true => (begin..end).contains(&utc_seconds),
            false => !(end..begin).contains(&utc_seconds),
        }
    }

    /// Seconds east of UTC at an instant, and the abbreviation.
    pub(super) fn at(&self, utc_seconds: i64) -> (i32, &str) {
        let (offset_seconds, (from, to)) = match &self.summer {
            Some(summer) if self.is_summer(summer, utc_seconds) => {
                (summer.offset_seconds, summer.name)
            }
            _ => (self.offset_seconds, self.name),
        };
        let name = &self.as_str()[usize::from(from)..usize::from(to)];
        (offset_seconds, name)
    }
}

impl Change {
    /// When the clocks change in a year, as seconds since 1970 on the clock that was valid before.
    fn local_seconds(&self, year: i64) -> i64 {
        let first = days_from_civil(year, 1, 1);
        let is_leap = days_from_civil(year + 1, 1, 1) - first == 366;
        let day = match self.day {
            Day::Julian(day) => first + i64::from(day) - 1 + i64::from(is_leap && day >= 60),
            Day::OfYear(day) => first + i64::from(day),
            Day::Weekday {
                month,
                week,
                weekday,
            } => weekday_of(year, month, week, weekday),
        };
        day * DAY_SECONDS + i64::from(self.seconds)
    }
}

/// The w-th weekday of a month, counted from Sunday, as days since 1970.
fn weekday_of(year: i64, month: u8, week: u8, weekday: u8) -> i64 {
    let (first, next) = (
        days_from_civil(year, u32::from(month), 1),
        civil_day(year, i64::from(month), 1),
    );
    // 1970-01-01 was a Thursday.
    let day = first + (i64::from(weekday) - (first + 4)).rem_euclid(7) + 7 * (i64::from(week) - 1);
    if day < next { day } else { day - 7 }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn is_done(&self) -> bool {
        self.at == self.text.len()
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn accept(&mut self, byte: u8) -> bool {
        let is_there = self.peek() == Some(byte);
        self.at += usize::from(is_there);
        is_there
    }

    /// An abbreviation, bare or in angle brackets.
    fn name(&mut self) -> Option<NameRange> {
        let is_quoted = self.accept(b'<');
        let from = self.at;
        let ends = |byte: u8| match is_quoted {
            true => byte == b'>',
            false => byte.is_ascii_digit() || matches!(byte, b',' | b'-' | b'+'),
        };
        while self.peek().is_some_and(|byte| !ends(byte)) {
            self.at += 1;
        }
        let place = (from as u8, self.at as u8);
        (!is_quoted || self.accept(b'>')).then_some(place)
    }

    fn number(&mut self, least: u16, most: u16) -> Option<u16> {
        let from = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        let number = self.text[from..self.at].parse().ok()?;
        (least..=most).contains(&number).then_some(number)
    }

    /// `[+-]hh[:mm[:ss]]`, in seconds.
    fn seconds(&mut self) -> Option<i32> {
        let is_negative = self.accept(b'-');
        if !is_negative {
            self.accept(b'+');
        }
        // As far as a week.
        let mut seconds = i32::from(self.number(0, 167)?) * 3600;
        if self.accept(b':') {
            seconds += i32::from(self.number(0, 59)?) * 60;
            if self.accept(b':') {
                seconds += i32::from(self.number(0, 60)?);
            }
        }
        Some(if is_negative { -seconds } else { seconds })
    }

    fn summer(&mut self, standard_seconds: i32) -> Option<Summer> {
        let name = self.name()?;
        if name.0 == name.1 {
            return None;
        }
        let offset_seconds = match self.peek() {
            None | Some(b',' | b';') => standard_seconds + 3600,
            Some(_) => -self.seconds()?,
        };
        let mut default = Reader {
            text: RULES_DEFAULT,
            at: 0,
        };
        let (begin, end) = match self.is_done() {
            true => default.changes()?,
            false => self.changes()?,
        };
        self.is_done().then_some(Summer {
            name,
            offset_seconds,
            begin,
            end,
        })
    }

    fn changes(&mut self) -> Option<(Change, Change)> {
        let is_begun = self.accept(b',') || self.accept(b';');
        let begin = is_begun.then(|| self.change())??;
        let end = self.accept(b',').then(|| self.change())??;
        Some((begin, end))
    }

    fn change(&mut self) -> Option<Change> {
        let day = if self.accept(b'J') {
            Day::Julian(self.number(1, 365)?)
        } else if self.accept(b'M') {
            let month = self.number(1, 12)? as u8;
            let week = self.accept(b'.').then(|| self.number(1, 5))?? as u8;
            let weekday = self.accept(b'.').then(|| self.number(0, 6))?? as u8;
            Day::Weekday {
                month,
                week,
                weekday,
            }
        } else {
            Day::OfYear(self.number(0, 365)?)
        };
        let seconds = match self.accept(b'/') {
            true => self.seconds()?,
            false => 2 * 3600,
        };
        Some(Change { day, seconds })
    }
}
