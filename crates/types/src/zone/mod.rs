//! Time zones: the one place that converts between local time and instants.
//!
//! A [`Zone`] is an IANA zone, by name, or a POSIX rule. An instant always has one local time; a
//! local time need not have one instant:
//!
//! ```text
//!            gap: 02:30 does not exist          overlap: 01:30 exists twice
//! clock  01:59 │ 03:00                     01:59 │ 01:00
//! offset   -06 │ -05                         -05 │ -06
//!              └ read as at -06: 03:30           └ read as at -06: the second one
//! ```
//!
//! As in PostgreSQL, a local time in a gap uses the offset from before the gap, and one in an
//! overlap the offset from after the overlap. After the last change that the database lists, each
//! zone's rule applies for ever.
//!
//! Names in values (`'… Europe/Berlin'`, `AT TIME ZONE 'EST'`) are looked up in
//! `abbreviations.tsv` first, PostgreSQL's default set, and then among zones; settings accept
//! zones only.

mod posix;

use std::collections::HashMap;
use std::sync::LazyLock;

use chrono::{DateTime, Offset, TimeZone};
use chrono_tz::{OffsetComponents, OffsetName, Tz};

use crate::text::{days_from_civil, is_timestamp};
use posix::Posix;

const SECOND_MICROS: i64 = 1_000_000;

const DAY_SECONDS: i64 = 86_400;

/// From here on zones follow their rules: 2090-01-01. The last change that no rule tells is one of
/// Morocco's in 2087; the table ends in 2099.
const RULES_BEGIN_SECONDS: i64 = 3_786_912_000;

/// The rules of zones that have summer time: a rule, a tab, names. They are the last lines of the
/// IANA database's compiled files, of the version that chrono-tz has.
const RULES: &str = include_str!("footers.tsv");

/// Abbreviations: seconds east of UTC, or the zone whose history tells them.
const ABBREVIATIONS: &str = include_str!("abbreviations.tsv");

/// A time zone.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Zone(Rules);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Rules {
    Named(Tz),
    Rule(Posix),
}

/// What a name in a value stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneName {
    /// Always so many seconds east of UTC.
    Fixed(i32),
    /// A zone.
    Zone(Zone),
    /// An abbreviation whose offset is that which it last had in a zone.
    Abbreviation(Zone, &'static str),
}

impl Default for Zone {
    fn default() -> Self {
        Self::UTC
    }
}

impl From<Tz> for Zone {
    fn from(zone: Tz) -> Self {
        Self::iana(zone)
    }
}

impl std::fmt::Debug for Zone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Zone {
    /// Coordinated Universal Time.
    pub const UTC: Self = Self::iana(Tz::UTC);

    /// A zone of the IANA database.
    pub const fn iana(zone: Tz) -> Self {
        Self(Rules::Named(zone))
    }

    /// The zone that is always so many seconds east of UTC, up to a week.
    pub fn fixed(east_seconds: i32) -> Option<Self> {
        Posix::fixed(east_seconds).map(|rule| Self(Rules::Rule(rule)))
    }

    /// The zone with an IANA name, in any case, or a rule.
    pub fn named(name: &str) -> Option<Self> {
        static NAMES: LazyLock<HashMap<String, Tz>> = LazyLock::new(|| {
            let zones = chrono_tz::TZ_VARIANTS.iter();
            zones
                .map(|zone| (zone.name().to_ascii_lowercase(), *zone))
                .collect()
        });
        let exact = name.parse::<Tz>().ok();
        let known = exact.or_else(|| NAMES.get(&name.to_ascii_lowercase()).copied());
        known
            .map(Self::iana)
            .or_else(|| Posix::parse(name).map(|rule| Self(Rules::Rule(rule))))
    }

    /// The zone that a value of the setting `TimeZone` means: hours east of UTC, a name or a rule.
    pub fn of_setting(text: &str) -> Option<Self> {
        let is_number = |c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.' | 'e' | 'E');
        if !text.is_empty()
            && text.trim().chars().all(is_number)
            && let Ok(hours) = text.trim().parse::<f64>()
        {
            // A rule reaches as far as a week.
            return (hours.abs() < 168.0)
                .then(|| Self::fixed((hours * 3600.0) as i32))
                .flatten();
        }
        Self::named(text)
    }

    /// The zones of the IANA database.
    pub fn all() -> impl Iterator<Item = Self> {
        chrono_tz::TZ_VARIANTS.iter().copied().map(Self::iana)
    }

    /// Whether summer time holds at an instant.
    pub fn is_summer_at(&self, utc_micros: i64) -> bool {
        let seconds = utc_micros.div_euclid(SECOND_MICROS);
        match &self.0 {
            Rules::Rule(rule) => rule.is_summer_at(seconds),
            Rules::Named(zone) => match rule_of(*zone, seconds) {
                Some(rule) => rule.is_summer_at(seconds),
                None => listed(*zone, seconds).is_some_and(|at| !at.dst_offset().is_zero()),
            },
        }
    }

    /// As `SHOW TimeZone` tells it.
    pub fn name(&self) -> &str {
        match &self.0 {
            Rules::Named(zone) => zone.name(),
            Rules::Rule(rule) => rule.as_str(),
        }
    }

    /// Whether clocks there show UTC.
    #[inline]
    pub fn is_utc(&self) -> bool {
        matches!(self.0, Rules::Named(Tz::UTC))
    }

    /// Whether clocks there never change.
    pub fn is_fixed(&self) -> bool {
        match &self.0 {
            Rules::Rule(rule) => rule.is_fixed(),
            Rules::Named(zone) => {
                let name = zone.name();
                let is_plain = ["UTC", "UCT", "GMT", "Zulu", "Universal", "Greenwich"];
                name.starts_with("Etc/") || name.starts_with("GMT") || is_plain.contains(&name)
            }
        }
    }

    /// Seconds east of UTC at an instant, in microseconds since 1970-01-01 UTC.
    #[inline]
    pub fn offset_at(&self, utc_micros: i64) -> i32 {
        if self.is_utc() {
            return 0;
        }
        self.offset_at_seconds(utc_micros.div_euclid(SECOND_MICROS))
    }

    fn offset_at_seconds(&self, utc_seconds: i64) -> i32 {
        match &self.0 {
            Rules::Rule(rule) => rule.at(utc_seconds).0,
            Rules::Named(zone) => match rule_of(*zone, utc_seconds) {
                Some(rule) => rule.at(utc_seconds).0,
                None => listed(*zone, utc_seconds).map_or(0, |at| at.fix().local_minus_utc()),
            },
        }
    }

    /// The abbreviation that is valid at an instant: `CET`, `CEST`, `+0530`.
    pub fn abbreviation_at(&self, utc_micros: i64) -> String {
        let seconds = utc_micros.div_euclid(SECOND_MICROS);
        match &self.0 {
            Rules::Rule(rule) => rule.at(seconds).1.to_owned(),
            Rules::Named(zone) => match rule_of(*zone, seconds) {
                Some(rule) => rule.at(seconds).1.to_owned(),
                None => listed(*zone, seconds).map_or_else(String::new, |at| {
                    let named = at.abbreviation().map(str::to_owned);
                    named.unwrap_or_else(|| numeric_name(at.fix().local_minus_utc()))
                }),
            },
        }
    }

    /// Seconds east of UTC at a local time, in microseconds as if it were UTC.
    #[inline]
    pub fn offset_at_local(&self, local_micros: i64) -> i32 {
        if self.is_utc() {
            return 0;
        }
        self.offset_at_local_seconds(local_micros.div_euclid(SECOND_MICROS))
    }

    fn offset_at_local_seconds(&self, local: i64) -> i32 {
        // No offset is longer than a day, so no change can lie outside.
        let (before, after) = (
            self.offset_at_seconds(local - DAY_SECONDS),
            self.offset_at_seconds(local + DAY_SECONDS),
        );
        let is_valid = |offset: i32| self.offset_at_seconds(local - i64::from(offset)) == offset;
        if before == after || !is_valid(after) {
            before
        } else {
            after
        }
    }

    /// What a clock shows at an instant; nothing where that is no timestamp.
    #[inline]
    pub fn to_local(&self, utc_micros: i64) -> Option<i64> {
        let local =
            utc_micros.checked_add(i64::from(self.offset_at(utc_micros)) * SECOND_MICROS)?;
        is_timestamp(local).then_some(local)
    }

    /// The instant of a local time; nothing where that is no timestamp.
    #[inline]
    pub fn to_instant(&self, local_micros: i64) -> Option<i64> {
        instant(local_micros, self.offset_at_local(local_micros))
    }
}

/// The instant of a local time that is so many seconds east; nothing where that is no timestamp.
fn instant(local_micros: i64, offset_seconds: i32) -> Option<i64> {
    let instant = local_micros.checked_sub(i64::from(offset_seconds) * SECOND_MICROS)?;
    is_timestamp(instant).then_some(instant)
}

impl ZoneName {
    /// What a name in a value stands for; nothing if there is no such zone.
    pub fn read(name: &str) -> Option<Self> {
        static KNOWN: LazyLock<HashMap<&str, &str>> = LazyLock::new(|| {
            ABBREVIATIONS
                .lines()
                .filter_map(|l| l.split_once('\t'))
                .collect()
        });
        let upper = name.to_ascii_uppercase();
        let Some((abbreviation, meaning)) = KNOWN.get_key_value(upper.as_str()) else {
            return Zone::named(name).map(Self::Zone);
        };
        match meaning.parse() {
            Ok(seconds) => Some(Self::Fixed(seconds)),
            Err(_) => Some(Self::Abbreviation(Zone::named(meaning)?, abbreviation)),
        }
    }

    /// Seconds east of UTC at a local time, in microseconds as if it were UTC.
    pub fn offset_at_local(&self, local_micros: i64) -> i32 {
        match self {
            Self::Fixed(seconds) => *seconds,
            Self::Zone(zone) => zone.offset_at_local(local_micros),
            Self::Abbreviation(zone, name) => {
                let offset = zone.offset_at_local(local_micros);
                last_use(zone, name, local_micros - i64::from(offset) * SECOND_MICROS)
                    .unwrap_or(offset)
            }
        }
    }

    /// Seconds east of UTC at an instant.
    pub fn offset_at(&self, utc_micros: i64) -> i32 {
        match self {
            Self::Fixed(seconds) => *seconds,
            Self::Zone(zone) => zone.offset_at(utc_micros),
            Self::Abbreviation(zone, name) => {
                last_use(zone, name, utc_micros).unwrap_or_else(|| zone.offset_at(utc_micros))
            }
        }
    }

    /// What a clock shows at an instant; nothing where that is no timestamp.
    pub fn to_local(&self, utc_micros: i64) -> Option<i64> {
        let offset = i64::from(self.offset_at(utc_micros));
        let local = utc_micros.checked_add(offset * SECOND_MICROS)?;
        is_timestamp(local).then_some(local)
    }

    /// The instant of a local time; nothing where that is no timestamp.
    pub fn to_instant(&self, local_micros: i64) -> Option<i64> {
        instant(local_micros, self.offset_at_local(local_micros))
    }
}

/// The offset that an abbreviation has at an instant, or had when it was used last before. Uses
/// shorter than the step may be missed: they are of no zone that has such an abbreviation.
fn last_use(zone: &Zone, name: &str, utc_micros: i64) -> Option<i32> {
    const STEP_MICROS: i64 = 45 * DAY_SECONDS * SECOND_MICROS;
    const STEPS_MAX: i64 = 1_500;
    (0..STEPS_MAX)
        .map(|step| utc_micros.saturating_sub(step * STEP_MICROS))
        .find(|&at| zone.abbreviation_at(at).eq_ignore_ascii_case(name))
        .map(|at| zone.offset_at(at))
}

/// What the table says.
fn listed(zone: Tz, utc_seconds: i64) -> Option<<Tz as TimeZone>::Offset> {
    // Chrono's years begin and end before ours; nothing changes out there.
    let bounded = utc_seconds.clamp(-8_000_000_000_000, RULES_BEGIN_SECONDS);
    let instant = DateTime::from_timestamp(bounded, 0)?.naive_utc();
    Some(zone.offset_from_utc_datetime(&instant))
}

/// The rule that a zone follows at an instant, if it has summer time and the table has ended.
#[inline]
fn rule_of(zone: Tz, utc_seconds: i64) -> Option<&'static Posix> {
    if utc_seconds < RULES_BEGIN_SECONDS {
        return None;
    }
    static KNOWN: LazyLock<HashMap<&str, Posix>> = LazyLock::new(|| {
        let lines = RULES.lines().filter_map(|line| line.split_once('\t'));
        let rules = lines.filter_map(|(rule, names)| Some((Posix::parse(rule)?, names)));
        rules
            .flat_map(|(rule, names)| names.split(' ').map(move |name| (name, rule)))
            .collect()
    });
    KNOWN.get(zone.name())
}

/// `+0530`, as the IANA database names offsets without a name of their own.
fn numeric_name(offset_seconds: i32) -> String {
    let sign = if offset_seconds < 0 { '-' } else { '+' };
    let minutes = offset_seconds.unsigned_abs() / 60;
    match minutes % 60 {
        0 => format!("{sign}{:02}", minutes / 60),
        rest => format!("{sign}{:02}{rest:02}", minutes / 60),
    }
}

/// Days from 1970 to a day of the month that is `months` behind January of a year.
fn civil_day(year: i64, months: i64, day: u32) -> i64 {
    let (year, month) = (
        year + months.div_euclid(12),
        months.rem_euclid(12) as u32 + 1,
    );
    days_from_civil(year, month, day)
}

#[cfg(test)]
mod tests;
