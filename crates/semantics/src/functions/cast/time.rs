//! Dates, times and intervals to one another.

use std::sync::Arc;

use aerostat_types::{ErrorKind, SqlType};
use arrow::array::{ArrayRef, AsArray, PrimitiveArray};
use arrow::datatypes::{
    Date32Type, IntervalMonthDayNano, IntervalMonthDayNanoType, Time64MicrosecondType,
    TimestampMicrosecondType,
};
use datafusion::common::{DataFusionError, Result};

use super::Zone;
use crate::raise;

/// Microseconds in a day.
pub(crate) const DAY_MICROS: i64 = 86_400_000_000;

fn out_of_range() -> DataFusionError {
    raise(ErrorKind::DatetimeFieldOverflow, "timestamp out of range")
}

fn local(micros: i64, zone: &Zone) -> i64 {
    micros + i64::from(zone.offset_at(micros)) * 1_000_000
}

fn utc(micros: i64, zone: &Zone) -> i64 {
    micros - i64::from(zone.offset_at_local(micros)) * 1_000_000
}

/// Converts between the types of this module; nothing where there is no such cast.
pub(super) fn convert(
    array: &ArrayRef,
    from: SqlType,
    to: SqlType,
    zone: &Zone,
) -> Result<Option<ArrayRef>> {
    use SqlType::{Date, Interval, Time, Timestamp, TimestampTz};
    type Ts = TimestampMicrosecondType;
    let to_date = |micros: i64| micros.div_euclid(DAY_MICROS) as i32;
    let to_time = |micros: i64| micros.rem_euclid(DAY_MICROS);
    Ok(Some(match (from, to) {
        (Date, Timestamp | TimestampTz) => {
            let days = array.as_primitive::<Date32Type>();
            let micros: PrimitiveArray<Ts> = days.try_unary(|day| {
                let start = i64::from(day)
                    .checked_mul(DAY_MICROS)
                    .ok_or_else(out_of_range)?;
                Ok::<_, DataFusionError>(if to == TimestampTz {
                    utc(start, zone)
                } else {
                    start
                })
            })?;
            Arc::new(with_zone(micros, to))
        }
        (Timestamp, TimestampTz) => Arc::new(with_zone(
            array.as_primitive::<Ts>().unary(|micros| utc(micros, zone)),
            to,
        )),
        (TimestampTz, Timestamp) => Arc::new(with_zone(
            array
                .as_primitive::<Ts>()
                .unary(|micros| local(micros, zone)),
            to,
        )),
        (Timestamp, Date) => Arc::new(array.as_primitive::<Ts>().unary::<_, Date32Type>(to_date)),
        (TimestampTz, Date) => Arc::new(
            array
                .as_primitive::<Ts>()
                .unary::<_, Date32Type>(|micros| to_date(local(micros, zone))),
        ),
        (Timestamp, Time) => Arc::new(
            array
                .as_primitive::<Ts>()
                .unary::<_, Time64MicrosecondType>(to_time),
        ),
        (TimestampTz, Time) => Arc::new(
            array
                .as_primitive::<Ts>()
                .unary::<_, Time64MicrosecondType>(|micros| to_time(local(micros, zone))),
        ),
        (Time, Interval) => {
            let times = array.as_primitive::<Time64MicrosecondType>();
            Arc::new(times.unary::<_, IntervalMonthDayNanoType>(|micros| {
                IntervalMonthDayNano::new(0, 0, micros * 1000)
            }))
        }
        (Interval, Time) => {
            let intervals = array.as_primitive::<IntervalMonthDayNanoType>();
            Arc::new(
                intervals
                    .unary::<_, Time64MicrosecondType>(|value| to_time(value.nanoseconds / 1000)),
            )
        }
        _ => return Ok(None),
    }))
}

fn with_zone(
    micros: PrimitiveArray<TimestampMicrosecondType>,
    to: SqlType,
) -> PrimitiveArray<TimestampMicrosecondType> {
    if to == SqlType::TimestampTz {
        micros.with_timezone("UTC")
    } else {
        micros
    }
}
