//! Values by pattern: `to_char`, `to_date`, `to_timestamp`, `to_number`.

mod number;
mod time;

use std::sync::Arc;

use aerostat_types::text::{is_date, is_timestamp};
use aerostat_types::{ErrorKind, SqlType, VALUE_BYTES_MAX, ZoneName};
use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float64Type, IntervalMonthDayNanoType,
    TimestampMicrosecondType,
};
use datafusion::common::Result;
use datafusion::logical_expr::{ScalarUDF, Volatility};

use super::cast::DAY_MICROS;
use super::cast::out_of_range;
use super::datetime::{rounded_moment, time_as_interval};
use super::overload::{Call, NUMERIC, Overload, Returns, function};
use super::texts::Texts;
use crate::growth::too_long;
use crate::raise;

/// The functions of this module.
pub(super) fn all() -> Vec<Arc<ScalarUDF>> {
    vec![
        function("to_char", &[], Volatility::Stable, TO_CHAR),
        function("to_date", &[], Volatility::Immutable, TO_DATE),
        function("to_timestamp", &[], Volatility::Stable, TO_TIMESTAMP),
        function("to_number", &[], Volatility::Immutable, TO_NUMBER),
    ]
}

fn written(call: &Call, f: impl Fn(usize, &str) -> Result<String>) -> Result<ArrayRef> {
    let patterns = call.args[1].as_string_view();
    let mut texts = Texts::of(call.rows);
    for row in 0..call.rows {
        if call.args[0].is_null(row) || patterns.is_null(row) {
            texts.push(None::<&str>)?;
            continue;
        }
        let pattern = patterns.value(row);
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(too_long());
        }
        texts.push(Some(f(row, pattern)?))?;
    }
    texts.finish()
}

/// Bytes of a pattern. A letter of it may stand for a name of fifteen, and takes thirty while
/// the pattern is read.
const PATTERN_BYTES_MAX: usize = VALUE_BYTES_MAX / 16;

const TEXT: Returns = Returns::Type(SqlType::Text);

const TO_CHAR: &[Overload] = &[
    Overload {
        parameters: &[SqlType::Timestamp, SqlType::Text],
        returns: TEXT,
        body: |call| {
            let values = call.args[0].as_primitive::<TimestampMicrosecondType>();
            written(call, |row, pattern| {
                Ok(time::write(values.value(row), None, pattern))
            })
        },
    },
    Overload {
        parameters: &[SqlType::TimestampTz, SqlType::Text],
        returns: TEXT,
        body: |call| {
            let values = call.args[0].as_primitive::<TimestampMicrosecondType>();
            written(call, |row, pattern| {
                let utc_micros = values.value(row);
                let place = time::ZonedInstant {
                    zone: call.zone.get(),
                    utc_micros,
                };
                let local = call.zone.local(utc_micros)?;
                Ok(time::write(local, Some(&place), pattern))
            })
        },
    },
    Overload {
        parameters: &[SqlType::Interval, SqlType::Text],
        returns: TEXT,
        body: |call| written_intervals(call, &call.args[0]),
    },
    // A time is an interval where one is wanted.
    Overload {
        parameters: &[SqlType::Time, SqlType::Text],
        returns: TEXT,
        body: |call| {
            let intervals = time_as_interval(&call.args[0], &call.zone)?;
            written_intervals(call, &intervals)
        },
    },
    Overload {
        parameters: &[NUMERIC, SqlType::Text],
        returns: TEXT,
        body: |call| {
            let DataType::Decimal128(_, scale) = *call.args[0].data_type() else {
                return Err(raise(ErrorKind::Internal, "a numeric without scale"));
            };
            let values = call.args[0].as_primitive::<Decimal128Type>();
            written(call, |row, pattern| {
                number::write(values.value(row), scale, pattern)
            })
        },
    },
    Overload {
        parameters: &[SqlType::Double, SqlType::Text],
        returns: TEXT,
        body: |call| {
            let values = call.args[0].as_primitive::<Float64Type>();
            written(call, |row, pattern| {
                number::write_double(values.value(row), pattern)
            })
        },
    },
];

fn written_intervals(call: &Call, values: &ArrayRef) -> Result<ArrayRef> {
    let values = values.as_primitive::<IntervalMonthDayNanoType>();
    written(call, |row, pattern| {
        Ok(time::write_interval(values.value(row), pattern))
    })
}

fn read<'a>(call: &'a Call) -> impl Iterator<Item = Result<Option<time::Read>>> + 'a {
    let (texts, patterns) = (call.args[0].as_string_view(), call.args[1].as_string_view());
    texts
        .iter()
        .zip(patterns.iter())
        .map(|(text, pattern)| match text.zip(pattern) {
            Some((text, pattern)) => time::read(text, pattern).map(Some),
            None => Ok(None),
        })
}

const TO_DATE: &[Overload] = &[Overload {
    parameters: &[SqlType::Text, SqlType::Text],
    returns: Returns::Type(SqlType::Date),
    body: |call| {
        let dates = read(call).map(|read| {
            let Some(read) = read? else {
                return Ok(None);
            };
            let days = i32::try_from(read.days).ok().filter(|&days| is_date(days));
            let out_of_range = || raise(ErrorKind::DatetimeFieldOverflow, "date out of range");
            days.map(Some).ok_or_else(out_of_range)
        });
        Ok(Arc::new(
            dates.collect::<Result<PrimitiveArray<Date32Type>>>()?,
        ))
    },
}];

const TO_TIMESTAMP: &[Overload] = &[
    Overload {
        parameters: &[SqlType::Double],
        returns: Returns::Type(SqlType::TimestampTz),
        body: |call| {
            let seconds = call.args[0].as_primitive::<Float64Type>();
            let micros: PrimitiveArray<TimestampMicrosecondType> =
                seconds.try_unary(|seconds| {
                    let micros = (seconds * 1e6).round_ties_even();
                    if micros.abs() < 9.2e18 && is_timestamp(micros as i64) {
                        return Ok(micros as i64);
                    }
                    Err(raise(
                        ErrorKind::DatetimeFieldOverflow,
                        format!("timestamp out of range: \"{seconds}\""),
                    ))
                })?;
            Ok(Arc::new(micros.with_timezone("UTC")))
        },
    },
    Overload {
        parameters: &[SqlType::Text, SqlType::Text],
        returns: Returns::Type(SqlType::TimestampTz),
        body: |call| to_timestamp(call),
    },
];

/// The body of `to_timestamp(text, text)`.
fn to_timestamp(call: &Call) -> Result<ArrayRef> {
    let zone = call.zone;
    let instants = read(call).map(|read| {
        let instant = |read: time::Read| {
            let local = read
                .days
                .checked_mul(DAY_MICROS)?
                .checked_add(read.micros)?;
            let instant = match read.offset_seconds {
                Some(seconds) => ZoneName::Fixed(seconds).to_instant(local)?,
                None => zone.get().to_instant(local)?,
            };
            Some(match read.digits {
                Some(digits) => rounded_moment(instant, digits),
                None => instant,
            })
        };
        match read? {
            Some(read) => instant(read).map(Some).ok_or_else(out_of_range),
            None => Ok(None),
        }
    });
    Ok(Arc::new(
        instants
            .collect::<Result<PrimitiveArray<TimestampMicrosecondType>>>()?
            .with_timezone("UTC"),
    ))
}

const TO_NUMBER: &[Overload] = &[Overload {
    parameters: &[SqlType::Text, SqlType::Text],
    returns: Returns::Type(NUMERIC),
    body: |call| {
        let (texts, patterns) = (call.args[0].as_string_view(), call.args[1].as_string_view());
        let numbers =
            texts
                .iter()
                .zip(patterns.iter())
                .map(|(text, pattern)| match text.zip(pattern) {
                    Some((text, pattern)) => number::read(text, pattern).map(Some),
                    None => Ok(None),
                });
        let numbers = numbers.collect::<Result<PrimitiveArray<Decimal128Type>>>()?;
        let SqlType::Numeric { precision, scale } = NUMERIC else {
            return Ok(Arc::new(numbers));
        };
        Ok(Arc::new(
            numbers.with_precision_and_scale(precision, scale)?,
        ))
    },
}];
