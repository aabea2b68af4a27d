//! The session's time zone, from chrono-tz's table.

use aerostat_types::text::ZoneOffsets;
use chrono::{DateTime, LocalResult, NaiveDateTime, Offset, TimeZone, Utc};
use chrono_tz::Tz;

/// The zone in which a session reads and sees `timestamptz`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone(pub Tz);

/// Chrono's years end before PostgreSQL's: beyond them the offset is that of its last moment.
fn naive(micros: i64) -> Option<NaiveDateTime> {
    let last = DateTime::<Utc>::MAX_UTC - chrono::Duration::days(2);
    let micros = micros.min(last.timestamp_micros());
    DateTime::from_timestamp_micros(micros).map(|utc| utc.naive_utc())
}

/// Seconds east of UTC at a local time. As in PostgreSQL the offset before the change holds
/// in a gap, and the one after it in an overlap: standard time both ways.
fn offset_of_local(zone: Tz, local_micros: i64) -> i32 {
    let Some(local) = naive(local_micros) else {
        return 0;
    };
    match zone.offset_from_local_datetime(&local) {
        LocalResult::Single(offset) | LocalResult::Ambiguous(_, offset) => {
            offset.fix().local_minus_utc()
        }
        LocalResult::None => {
            let before = local - chrono::Duration::hours(3);
            zone.offset_from_utc_datetime(&before)
                .fix()
                .local_minus_utc()
        }
    }
}

impl Zone {
    /// Seconds east of UTC at an instant.
    #[inline]
    pub fn offset_at(self, utc_micros: i64) -> i32 {
        if self.0 == Tz::UTC {
            return 0;
        }
        naive(utc_micros).map_or(0, |utc| {
            self.0
                .offset_from_utc_datetime(&utc)
                .fix()
                .local_minus_utc()
        })
    }
}

impl ZoneOffsets for Zone {
    fn session(&self, local_micros: i64) -> i32 {
        offset_of_local(self.0, local_micros)
    }

    fn named(&self, name: &str, local_micros: i64) -> Option<i32> {
        if let Some(hours) = abbreviation(name) {
            return Some(hours * 3600);
        }
        let zone = name.parse::<Tz>().ok().or_else(|| {
            chrono_tz::TZ_VARIANTS
                .iter()
                .copied()
                .find(|zone| zone.name().eq_ignore_ascii_case(name))
        });
        zone.map(|zone| offset_of_local(zone, local_micros))
    }
}

/// Abbreviations that mean a fixed offset whatever the date, in hours.
fn abbreviation(name: &str) -> Option<i32> {
    const FIXED: [(&str, i32); 18] = [
        ("EST", -5),
        ("EDT", -4),
        ("CST", -6),
        ("CDT", -5),
        ("MST", -7),
        ("MDT", -6),
        ("PST", -8),
        ("PDT", -7),
        ("AKST", -9),
        ("AKDT", -8),
        ("HST", -10),
        ("WEST", 1),
        ("CEST", 2),
        ("CET", 1),
        ("EET", 2),
        ("EEST", 3),
        ("BST", 1),
        ("JST", 9),
    ];
    FIXED
        .iter()
        .find(|(known, _)| name.eq_ignore_ascii_case(known))
        .map(|&(_, hours)| hours)
}

#[cfg(test)]
mod tests {
    use aerostat_types::text::{days_from_civil, parse_timestamptz};

    use super::*;

    #[test]
    fn offsets_follow_the_date_and_gaps_take_the_one_before() {
        let berlin = Zone(Tz::Europe__Berlin);
        let hour = 3_600_000_000;
        let midnight = |month, day| days_from_civil(2024, month, day) * 24 * hour;
        assert_eq!(berlin.offset_at(midnight(1, 1)), 3600);
        assert_eq!(berlin.offset_at(midnight(7, 1)), 7200);
        // 02:30 does not exist on 2024-03-31: PostgreSQL reads it as 03:30+02 = 01:30 UTC.
        assert_eq!(
            parse_timestamptz("2024-03-31 02:30:00", &berlin).unwrap(),
            midnight(3, 31) + hour + hour / 2
        );
        // 02:30 exists twice on 2024-10-27: PostgreSQL takes standard time.
        assert_eq!(
            parse_timestamptz("2024-10-27 02:30:00", &berlin).unwrap(),
            midnight(10, 27) + hour + hour / 2
        );
        assert_eq!(
            parse_timestamptz("2024-07-01 12:00:00 America/New_York", &berlin).unwrap(),
            midnight(7, 1) + 16 * hour
        );
    }
}
