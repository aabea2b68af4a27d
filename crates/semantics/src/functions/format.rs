//! Values by pattern: `to_char`, `to_date`, `to_timestamp`, `to_number`.

mod number;
mod time;

use std::sync::Arc;

use aerostat_types::text::days_from_civil;
use aerostat_types::{ErrorKind, SqlType, VALUE_BYTES_MAX};
use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::datatypes::{
    DataType, Date32Type, Decimal128Type, Float64Type, IntervalMonthDayNanoType,
    TimestampMicrosecondType,
};
use datafusion::common::Result;
use datafusion::logical_expr::{ScalarUDF, Volatility};

use super::overload::{Call, NUMERIC, Overload, Returns, function};
use super::temporal::DAY_MICROS;
use super::texts::Texts;
use crate::growth::too_long;
use crate::raise;

/// The functions of this module.
pub(super) fn all() -> Vec<Arc<ScalarUDF>> {
    vec![
        function("to_char", &[], Volatility::Stable, TO_CHAR),
        function("to_date", &[], Volatility::Immutable, TO_DATE),
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
                let offset = call.zone.offset_at(values.value(row));
                Ok(time::write(
                    values.value(row) + i64::from(offset) * 1_000_000,
                    Some(offset),
                    pattern,
                ))
            })
        },
    },
    Overload {
        parameters: &[SqlType::Interval, SqlType::Text],
        returns: TEXT,
        body: |call| {
            let values = call.args[0].as_primitive::<IntervalMonthDayNanoType>();
            written(call, |row, pattern| {
                Ok(time::write_interval(values.value(row), pattern))
            })
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
        let dates = read(call).map(|read| Ok(read?.map(|read| read.days as i32)));
        Ok(Arc::new(
            dates.collect::<Result<PrimitiveArray<Date32Type>>>()?,
        ))
    },
}];

/// The body of `to_timestamp(text, text)`.
pub(super) fn to_timestamp(call: &Call) -> Result<ArrayRef> {
    let zone = call.zone;
    let instants = read(call).map(|read| {
        Ok(read?.map(|read| {
            let local = read.days * DAY_MICROS + read.micros;
            local
                - i64::from(
                    read.offset_seconds
                        .unwrap_or_else(|| zone.offset_at_local(local)),
                ) * 1_000_000
        }))
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

/// Days from 1970-01-01 to a date, if there is such a date.
fn checked_days(year: i64, month: u32, day: u32) -> Option<i64> {
    if !(1..=12).contains(&month) || day == 0 {
        return None;
    }
    let next = if month == 12 {
        days_from_civil(year + 1, 1, 1)
    } else {
        days_from_civil(year, month + 1, 1)
    };
    let days = days_from_civil(year, month, day);
    (days < next).then_some(days)
}
