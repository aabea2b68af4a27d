//! Zones against moments that PostgreSQL knows: changes of clocks, rules after the table's end,
//! spellings.

use super::*;
use crate::text::{days_from_civil, parse_timestamp, parse_timestamptz};

const HOUR: i64 = 3600 * SECOND_MICROS;

fn midnight(year: i64, month: u32, day: u32) -> i64 {
    days_from_civil(year, month, day) * DAY_SECONDS * SECOND_MICROS
}

fn zone(name: &str) -> Zone {
    Zone::named(name).unwrap()
}

#[test]
fn gaps_take_the_offset_before_and_overlaps_the_one_behind() {
    let berlin = zone("europe/berlin");
    assert_eq!(berlin.name(), "Europe/Berlin");
    assert_eq!(berlin.offset_at(midnight(2024, 1, 1)), 3600);
    assert_eq!(berlin.offset_at(midnight(2024, 7, 1)), 7200);
    for (local, utc) in [
        (
            "2024-03-31 02:30:00",
            midnight(2024, 3, 31) + HOUR + HOUR / 2,
        ),
        ("2024-03-31 03:00:00", midnight(2024, 3, 31) + HOUR),
        (
            "2024-10-27 02:30:00",
            midnight(2024, 10, 27) + HOUR + HOUR / 2,
        ),
        (
            "2024-10-27 01:59:59",
            midnight(2024, 10, 26) + 24 * HOUR - SECOND_MICROS,
        ),
    ] {
        assert_eq!(parse_timestamptz(local, &berlin).unwrap(), utc, "{local}");
        let micros = parse_timestamp(local).unwrap();
        assert_eq!(berlin.to_instant(micros), Some(utc), "{local}");
    }
    // A whole day that did not exist.
    let apia = zone("Pacific/Apia");
    let noon = midnight(2011, 12, 30) + 12 * HOUR;
    assert_eq!(apia.to_instant(noon), Some(noon + 10 * HOUR));
}

#[test]
fn rules_go_on_for_ever() {
    let chicago = zone("America/Chicago");
    assert_eq!(chicago.offset_at(midnight(5000, 7, 1)), -5 * 3600);
    assert_eq!(chicago.abbreviation_at(midnight(5000, 1, 1)), "CST");
    let howe = zone("Australia/Lord_Howe");
    assert_eq!(howe.offset_at(midnight(290_000, 1, 1)), 11 * 3600);
    assert_eq!(howe.offset_at(midnight(290_000, 7, 1)), 37_800);
    assert_eq!(zone("Asia/Kolkata").offset_at(midnight(9999, 7, 1)), 19_800);
    assert_eq!(zone("Asia/Kolkata").abbreviation_at(0), "IST");
}

#[test]
fn the_rules_are_those_of_the_table() {
    for zone in chrono_tz::TZ_VARIANTS {
        for year in 2090..2099 {
            for day in 0..122 {
                let at = days_from_civil(year, 1, 1) * DAY_SECONDS + day * 3 * DAY_SECONDS;
                let naive = DateTime::from_timestamp(at, 0).unwrap().naive_utc();
                let table = zone.offset_from_utc_datetime(&naive);
                let ours = Zone::iana(zone).offset_at(at * SECOND_MICROS);
                assert_eq!(ours, table.fix().local_minus_utc(), "{zone} {naive}");
            }
        }
    }
}

#[test]
fn settings_are_hours_names_or_rules() {
    for (text, name, winter, summer) in [
        ("UTC", "UTC", 0, 0),
        ("-5", "<-05>+05", -18_000, -18_000),
        ("5.5", "<+05:30>-05:30", 19_800, 19_800),
        ("0", "<+00>-00", 0, 0),
        ("+02:00", "+02:00", -7200, -7200),
        ("foo+3", "FOO+3", -10_800, -10_800),
        ("<+0530>-5:30", "<+0530>-5:30", 19_800, 19_800),
        ("xst7xdt", "XST7XDT", -25_200, -21_600),
        ("A-1B,M3.5.0,M10.5.0/3", "A-1B,M3.5.0,M10.5.0/3", 3600, 7200),
        ("A3B,J60/0,J300/0", "A3B,J60/0,J300/0", -10_800, -7200),
        ("A3B,300,59", "A3B,300,59", -7200, -10_800),
    ] {
        let zone = Zone::of_setting(text).unwrap();
        assert_eq!(zone.name(), name);
        assert_eq!(zone.offset_at(midnight(2024, 1, 15)), winter, "{text}");
        assert_eq!(zone.offset_at(midnight(2024, 7, 15)), summer, "{text}");
        assert_eq!(Zone::named(zone.name()), Some(zone));
    }
    for text in [
        "",
        "Mars/Olympus",
        "Z",
        "foo",
        "168",
        "A3B,M13.1.0,M3.1.0",
        "A3B,",
        "1e99",
    ] {
        assert_eq!(Zone::of_setting(text), None, "{text}");
    }
}

#[test]
fn abbreviations_come_before_zones() {
    let offset = |name: &str, at: i64| ZoneName::read(name).unwrap().offset_at_local(at);
    let july = midnight(2024, 7, 1);
    assert_eq!(offset("est", july), -18_000);
    assert_eq!(offset("EST5EDT", july), -14_400);
    assert_eq!(offset("IST", july), 7200);
    assert_eq!(offset("z", july), 0);
    // The same letters meant another offset then.
    assert_eq!(offset("MSK", july), 10_800);
    assert_eq!(offset("MSK", midnight(2013, 7, 1)), 14_400);
    assert_eq!(offset("MSK", midnight(2010, 7, 1)), 10_800);
    assert_eq!(ZoneName::read("nowhere"), None);
}

#[test]
fn what_is_no_timestamp_is_none() {
    let west = Zone::fixed(-3600).unwrap();
    assert_eq!(west.to_instant(i64::MAX), None);
    assert_eq!(west.to_instant(i64::MAX - 2 * HOUR), Some(i64::MAX - HOUR));
    assert_eq!(west.to_local(midnight(-4713, 11, 24)), None);
}
