//! Fields of times and intervals: what `extract` reads and `date_trunc` truncates to.

use aerostat_types::ErrorKind;
use aerostat_types::text::{civil_from_days, days_from_civil};
use arrow::datatypes::IntervalMonthDayNano;
use datafusion::common::{DataFusionError, Result};

use crate::functions::cast::DAY_MICROS;
use crate::raise;

/// Digits after the point in which fields are computed.
pub(super) const EXTRACT_SCALE: i8 = 6;

/// Digits after the point of the Julian day of a timestamp.
pub(super) const JULIAN_SCALE: i8 = 20;

/// One in the fields' scale.
const ONE: i128 = 1_000_000;

/// The Julian day number of 1970-01-01.
const JULIAN_EPOCH_DAYS: i64 = 2_440_588;

/// A field's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Microseconds,
    Milliseconds,
    Second,
    Minute,
    Hour,
    Day,
    Week,
    Month,
    Quarter,
    Year,
    Decade,
    Century,
    Millennium,
    DayOfWeek,
    IsoDayOfWeek,
    DayOfYear,
    IsoYear,
    Epoch,
    Julian,
    Timezone,
    TimezoneHour,
    TimezoneMinute,
}

impl Unit {
    pub(super) fn parse(name: &str, type_name: &str) -> Result<Self> {
        Ok(match name.trim().to_ascii_lowercase().as_str() {
            "microseconds" | "microsecond" | "us" | "usec" | "usecs" => Self::Microseconds,
            "milliseconds" | "millisecond" | "ms" | "msec" | "msecs" => Self::Milliseconds,
            "second" | "seconds" | "s" | "sec" | "secs" => Self::Second,
            "minute" | "minutes" | "m" | "min" | "mins" => Self::Minute,
            "hour" | "hours" | "h" | "hr" | "hrs" => Self::Hour,
            "day" | "days" | "d" => Self::Day,
            "week" | "weeks" | "w" => Self::Week,
            "month" | "months" | "mon" | "mons" => Self::Month,
            "quarter" | "qtr" => Self::Quarter,
            "year" | "years" | "y" | "yr" | "yrs" => Self::Year,
            "decade" | "decades" | "dec" | "decs" => Self::Decade,
            "century" | "centuries" | "c" | "cent" => Self::Century,
            "millennium" | "millennia" | "mil" | "mils" => Self::Millennium,
            "dow" | "dayofweek" => Self::DayOfWeek,
            "isodow" => Self::IsoDayOfWeek,
            "doy" | "dayofyear" => Self::DayOfYear,
            "isoyear" => Self::IsoYear,
            "epoch" => Self::Epoch,
            "julian" => Self::Julian,
            "timezone" => Self::Timezone,
            "timezone_hour" => Self::TimezoneHour,
            "timezone_minute" => Self::TimezoneMinute,
            other => {
                return Err(unknown(other, type_name));
            }
        })
    }

    /// Whether it is shorter than a day.
    pub(super) fn is_below_day(self) -> bool {
        use Unit::{Hour, Microseconds, Milliseconds, Minute, Second};
        matches!(self, Microseconds | Milliseconds | Second | Minute | Hour)
    }

    /// Digits after the point of `extract`.
    pub(super) fn scale(self) -> i8 {
        match self {
            Self::Second | Self::Epoch => 6,
            Self::Milliseconds => 3,
            _ => 0,
        }
    }
}

/// A point in time as its zone's clock shows it.
pub(super) struct Moment {
    pub(super) local_micros: i64,
    /// Seconds east of UTC; for types with a zone.
    pub(super) offset_seconds: Option<i32>,
    pub(super) is_date: bool,
    pub(super) is_time: bool,
}

pub(super) fn unsupported(name: &str, type_name: &str) -> DataFusionError {
    let name = name.to_lowercase();
    raise(
        ErrorKind::FeatureNotSupported,
        format!("unit \"{name}\" not supported for type {type_name}"),
    )
}

/// The error for a unit that nothing is cut to. `date_trunc` does not even know those that only
/// tell something.
pub(super) fn not_cut(name: &str, unit: Unit, type_name: &str) -> DataFusionError {
    match unit {
        Unit::Timezone | Unit::TimezoneHour | Unit::TimezoneMinute | Unit::Week => {
            unsupported(name, type_name)
        }
        _ => unknown(name, type_name),
    }
}

fn unknown(name: &str, type_name: &str) -> DataFusionError {
    let message = format!("unit \"{name}\" not recognized for type {type_name}");
    raise(ErrorKind::InvalidParameterValue, message)
}

/// The Julian day of a local time, scaled by 10²⁰.
pub(super) fn julian(local_micros: i64) -> i128 {
    const ONE: i128 = 10i128.pow(JULIAN_SCALE as u32);
    let (day, time) = (
        local_micros.div_euclid(DAY_MICROS),
        local_micros.rem_euclid(DAY_MICROS),
    );
    let whole = i128::from(day + JULIAN_EPOCH_DAYS) * ONE;
    let (day_micros, time) = (i128::from(DAY_MICROS), i128::from(time));
    whole + (time * ONE + day_micros / 2) / day_micros
}

/// The year, and the ISO week of it, that a day belongs to.
fn iso_week(day: i64) -> (i64, i64) {
    // The week's Thursday decides.
    let thursday = day - (day + 3).rem_euclid(7) + 3;
    let year = civil_from_days(thursday).0;
    (year, (thursday - days_from_civil(year, 1, 1)) / 7 + 1)
}

fn century(year: i64, length: i64) -> i64 {
    if year > 0 {
        (year + length - 1) / length
    } else {
        -((length - 1 - (year - 1)) / length)
    }
}

/// A field, scaled by 10⁶.
pub(super) fn field_of_moment(name: &str, unit: Unit, moment: &Moment) -> Result<Option<i128>> {
    let type_name = match moment {
        Moment { is_date: true, .. } => "date",
        Moment { is_time: true, .. } => "time without time zone",
        Moment {
            offset_seconds: Some(_),
            ..
        } => "timestamp with time zone",
        _ => "timestamp without time zone",
    };
    let (day, time) = match moment.is_time {
        // 24:00 is a time of its own.
        true => (0, moment.local_micros),
        false => (
            moment.local_micros.div_euclid(DAY_MICROS),
            moment.local_micros.rem_euclid(DAY_MICROS),
        ),
    };
    let clock = match unit {
        Unit::Microseconds => Some(i128::from(time % 60_000_000) * ONE),
        Unit::Milliseconds => Some(i128::from(time % 60_000_000) * 1000),
        Unit::Second => Some(i128::from(time % 60_000_000)),
        Unit::Minute => Some(i128::from(time / 60_000_000 % 60) * ONE),
        Unit::Hour => Some(i128::from(time / 3_600_000_000) * ONE),
        _ => None,
    };
    if let Some(clock) = clock {
        return if moment.is_date {
            Err(unsupported(name, type_name))
        } else {
            Ok(Some(clock))
        };
    }
    if unit == Unit::Epoch {
        let offset = i64::from(moment.offset_seconds.unwrap_or(0)) * 1_000_000;
        return Ok(Some(i128::from(moment.local_micros - offset)));
    }
    if moment.is_time {
        return Err(unsupported(name, type_name));
    }
    let (year, month, day_of_month) = civil_from_days(day);
    // Before the common era, PostgreSQL counts 1 BC as −1.
    let shown_year = if year > 0 { year } else { year - 1 };
    let whole = match unit {
        Unit::Day => i64::from(day_of_month),
        Unit::Week => iso_week(day).1,
        Unit::Month => i64::from(month),
        Unit::Quarter => i64::from(month - 1) / 3 + 1,
        Unit::Year => shown_year,
        Unit::Decade => year.div_euclid(10),
        Unit::Century => century(year, 100),
        Unit::Millennium => century(year, 1000),
        Unit::DayOfWeek => (day + 4).rem_euclid(7),
        Unit::IsoDayOfWeek => (day + 3).rem_euclid(7) + 1,
        Unit::DayOfYear => day - days_from_civil(year, 1, 1) + 1,
        Unit::IsoYear => {
            let iso_year = iso_week(day).0;
            if iso_year > 0 { iso_year } else { iso_year - 1 }
        }
        Unit::Julian => {
            let days = i128::from(day + JULIAN_EPOCH_DAYS) * ONE;
            return Ok(Some(days + i128::from(time) * ONE / i128::from(DAY_MICROS)));
        }
        Unit::Timezone | Unit::TimezoneHour | Unit::TimezoneMinute => {
            let offset = i64::from(
                moment
                    .offset_seconds
                    .ok_or_else(|| unsupported(name, type_name))?,
            );
            match unit {
                Unit::Timezone => offset,
                Unit::TimezoneHour => offset / 3600,
                _ => offset / 60 % 60,
            }
        }
        _ => return Err(unsupported(name, type_name)),
    };
    Ok(Some(i128::from(whole) * ONE))
}

/// A field of an interval, scaled by 10⁶.
pub(super) fn field_of_interval(
    name: &str,
    unit: Unit,
    value: IntervalMonthDayNano,
) -> Result<Option<i128>> {
    let micros = value.nanoseconds / 1000;
    let (years, months) = (i64::from(value.months / 12), i64::from(value.months % 12));
    let whole = match unit {
        Unit::Microseconds => micros % 60_000_000,
        Unit::Milliseconds => return Ok(Some(i128::from(micros % 60_000_000) * 1000)),
        Unit::Second => return Ok(Some(i128::from(micros % 60_000_000))),
        Unit::Minute => micros / 60_000_000 % 60,
        Unit::Hour => micros / 3_600_000_000,
        Unit::Day => i64::from(value.days),
        Unit::Month => months,
        Unit::Quarter => months / 3 + 1,
        Unit::Year => years,
        Unit::Decade => years / 10,
        Unit::Century => years / 100,
        Unit::Millennium => years / 1000,
        Unit::Epoch => {
            // A year counts 365.25 days, a month 30.
            let days = i128::from(years) * 1461 * 21_600
                + i128::from(months * 30 + i64::from(value.days)) * 86_400;
            return Ok(Some(days * ONE + i128::from(micros)));
        }
        _ => return Err(unsupported(name, "interval")),
    };
    Ok(Some(i128::from(whole) * ONE))
}

/// A timestamp cut to a unit.
pub(super) fn truncate(name: &str, unit: Unit, micros: i64) -> Result<i64> {
    let (day, time) = (micros.div_euclid(DAY_MICROS), micros.rem_euclid(DAY_MICROS));
    let (year, month, _) = civil_from_days(day);
    let start_of = |year: i64, month: u32| days_from_civil(year, month, 1) * DAY_MICROS;
    Ok(match unit {
        Unit::Microseconds => micros,
        Unit::Milliseconds => micros - time % 1000,
        Unit::Second => micros - time % 1_000_000,
        Unit::Minute => micros - time % 60_000_000,
        Unit::Hour => micros - time % 3_600_000_000,
        Unit::Day => micros - time,
        Unit::Week => (day - (day + 3).rem_euclid(7)) * DAY_MICROS,
        Unit::Month => start_of(year, month),
        Unit::Quarter => start_of(year, (month - 1) / 3 * 3 + 1),
        Unit::Year => start_of(year, 1),
        Unit::Decade => start_of(year.div_euclid(10) * 10, 1),
        Unit::Century => start_of((year - 1).div_euclid(100) * 100 + 1, 1),
        Unit::Millennium => start_of((year - 1).div_euclid(1000) * 1000 + 1, 1),
        _ => return Err(not_cut(name, unit, "timestamp without time zone")),
    })
}

/// An interval cut to a unit.
pub(super) fn truncate_interval(
    name: &str,
    unit: Unit,
    value: IntervalMonthDayNano,
) -> Result<IntervalMonthDayNano> {
    let to_nanos = |step: i64| {
        IntervalMonthDayNano::new(value.months, value.days, value.nanoseconds / step * step)
    };
    let to_months = |step: i32| IntervalMonthDayNano::new(value.months / step * step, 0, 0);
    Ok(match unit {
        Unit::Microseconds => to_nanos(1_000),
        Unit::Milliseconds => to_nanos(1_000_000),
        Unit::Second => to_nanos(1_000_000_000),
        Unit::Minute => to_nanos(60_000_000_000),
        Unit::Hour => to_nanos(3_600_000_000_000),
        Unit::Day => IntervalMonthDayNano::new(value.months, value.days, 0),
        Unit::Month => to_months(1),
        Unit::Quarter => to_months(3),
        Unit::Year => to_months(12),
        Unit::Decade => to_months(120),
        Unit::Century => to_months(1200),
        Unit::Millennium => to_months(12_000),
        _ => return Err(not_cut(name, unit, "interval")),
    })
}
