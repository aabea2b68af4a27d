//! Casts between dates, times and intervals.

use std::sync::Arc;

use aerostat_types::SqlType;
use arrow::array::{ArrayRef, AsArray, PrimitiveArray};
use arrow::datatypes::{
    Date32Type, IntervalMonthDayNano, IntervalMonthDayNanoType, Time64MicrosecondType,
    TimestampMicrosecondType,
};
use datafusion::common::{DataFusionError, Result};

use super::{Zone, out_of_range};

/// Microseconds in a day.
pub(crate) const DAY_MICROS: i64 = 86_400_000_000;

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
                match to {
                    TimestampTz => zone.instant(start),
                    _ => Ok::<_, DataFusionError>(start),
                }
            })?;
            Arc::new(with_zone(micros, to))
        }
        (Timestamp, TimestampTz) => Arc::new(with_zone(
            array
                .as_primitive::<Ts>()
                .try_unary(|micros| zone.instant(micros))?,
            to,
        )),
        (TimestampTz, Timestamp) => Arc::new(with_zone(
            array
                .as_primitive::<Ts>()
                .try_unary(|micros| zone.local(micros))?,
            to,
        )),
        (Timestamp, Date) => Arc::new(array.as_primitive::<Ts>().unary::<_, Date32Type>(to_date)),
        (TimestampTz, Date) => Arc::new(
            array
                .as_primitive::<Ts>()
                .try_unary::<_, Date32Type, DataFusionError>(|micros| {
                    Ok(to_date(zone.local(micros)?))
                })?,
        ),
        (Timestamp, Time) => Arc::new(
            array
                .as_primitive::<Ts>()
                .unary::<_, Time64MicrosecondType>(to_time),
        ),
        (TimestampTz, Time) => Arc::new(
            array
                .as_primitive::<Ts>()
                .try_unary::<_, Time64MicrosecondType, DataFusionError>(|micros| {
                    Ok(to_time(zone.local(micros)?))
                })?,
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
