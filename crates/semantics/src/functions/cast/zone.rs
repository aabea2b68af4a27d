//! The session's time zone.

use aerostat_types::text::ZoneOffsets;
use chrono::offset::LocalResult;
use chrono::{DateTime, Duration, Offset, TimeZone};
use chrono_tz::Tz;
use datafusion::config::ConfigOptions;

/// A time zone with its history of offsets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Zone(Option<Tz>);

impl Zone {
    /// Coordinated Universal Time.
    pub(crate) const UTC: Zone = Zone(Some(Tz::UTC));

    /// Not known yet: what depends on it must wait.
    pub(crate) const UNSETTLED: Zone = Zone(None);

    /// Whether this is [`Zone::UNSETTLED`].
    pub(crate) fn is_unsettled(&self) -> bool {
        self.0.is_none()
    }

    /// The zone if its offset ever differs from zero.
    fn shifting(&self) -> Option<Tz> {
        self.0.filter(|zone| *zone != Tz::UTC)
    }

    /// A zone of the database of time zones.
    pub(crate) fn in_zone(zone: Tz) -> Zone {
        Zone(Some(zone))
    }

    /// The zone that `datafusion.execution.time_zone` names; UTC if it names none.
    pub(crate) fn of(config: &ConfigOptions) -> Zone {
        match config.execution.time_zone.as_deref() {
            None => Zone::UTC,
            Some(name) => Zone::named(name).unwrap_or(Zone::UTC),
        }
    }

    /// The zone with an IANA name, in any case.
    pub(crate) fn named(name: &str) -> Option<Zone> {
        let name = name.trim();
        let exact = name.parse::<Tz>().ok();
        let found = exact.or_else(|| {
            chrono_tz::TZ_VARIANTS
                .iter()
                .find(|zone| zone.name().eq_ignore_ascii_case(name))
                .copied()
        });
        found.map(|zone| Zone(Some(zone)))
    }

    /// Seconds east of UTC at an instant, in microseconds since 1970-01-01 UTC.
    pub(crate) fn offset_at(&self, utc_micros: i64) -> i32 {
        let Some(zone) = self.shifting() else {
            return 0;
        };
        match DateTime::from_timestamp_micros(known(utc_micros)) {
            Some(instant) => zone
                .offset_from_utc_datetime(&instant.naive_utc())
                .fix()
                .local_minus_utc(),
            None => 0,
        }
    }

    /// Seconds east of UTC at a local time, in microseconds as if it were UTC.
    /// A time that exists twice is the later one, a time that does not exist
    /// has the offset from before the gap, as in PostgreSQL.
    pub(crate) fn offset_at_local(&self, local_micros: i64) -> i32 {
        let Some(zone) = self.shifting() else {
            return 0;
        };
        let Some(local) =
            DateTime::from_timestamp_micros(known(local_micros)).map(|at| at.naive_utc())
        else {
            return 0;
        };
        let of = |result: LocalResult<_>| match result {
            LocalResult::Single(offset) => Some(offset),
            LocalResult::Ambiguous(_, later) => Some(later),
            LocalResult::None => None,
        };
        let offset = of(zone.offset_from_local_datetime(&local))
            .or_else(|| of(zone.offset_from_local_datetime(&(local - Duration::hours(6)))));
        offset.map_or(0, |offset| offset.fix().local_minus_utc())
    }
}

/// Chrono's years end before PostgreSQL's: beyond them the offset is that of its last moment.
fn known(micros: i64) -> i64 {
    let last = DateTime::<chrono::Utc>::MAX_UTC - Duration::days(2);
    micros.min(last.timestamp_micros())
}

impl ZoneOffsets for Zone {
    fn session(&self, local_micros: i64) -> i32 {
        self.offset_at_local(local_micros)
    }

    fn named(&self, name: &str, local_micros: i64) -> Option<i32> {
        Zone::named(name).map(|zone| zone.offset_at_local(local_micros))
    }
}
