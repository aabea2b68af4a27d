//! `width_bucket`: in which of `count` equal parts of a range a value lies.

use std::sync::Arc;

use aerostat_types::{ErrorKind, SqlType};
use arrow::array::{Array, ArrayRef, AsArray, PrimitiveArray};
use arrow::datatypes::{DataType, Decimal128Type, Float64Type, Int32Type, i256};
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::{ScalarUDF, Volatility};

use super::cast::POWERS_OF_TEN;
use super::overload::{Call, NUMERIC, Overload, Returns, function};
use crate::raise;

/// The function.
pub(super) fn width_bucket() -> Arc<ScalarUDF> {
    function("width_bucket", &[], Volatility::Immutable, WIDTH_BUCKET)
}

const WIDTH_BUCKET: &[Overload] = &[
    Overload {
        parameters: &[
            SqlType::Double,
            SqlType::Double,
            SqlType::Double,
            SqlType::Integer,
        ],
        returns: Returns::Type(SqlType::Integer),
        body: |call| {
            let at =
                |argument: usize, row| call.args[argument].as_primitive::<Float64Type>().value(row);
            buckets(call, |row, count| {
                of_doubles(at(0, row), at(1, row), at(2, row), count)
            })
        },
    },
    Overload {
        parameters: &[NUMERIC, NUMERIC, NUMERIC, SqlType::Integer],
        returns: Returns::Type(SqlType::Integer),
        body: |call| {
            let scales: Vec<usize> = call.args.iter().take(3).map(scale).collect();
            let common = scales.iter().copied().max().unwrap_or(0);
            let at = |argument: usize, row| {
                let digits = call.args[argument]
                    .as_primitive::<Decimal128Type>()
                    .value(row);
                let shift = POWERS_OF_TEN[common - scales[argument]];
                // 38 digits times 38 digits fit 256 bits.
                i256::from_i128(digits).wrapping_mul(i256::from_i128(shift))
            };
            buckets(call, |row, count| {
                of_numerics(at(0, row), at(1, row), at(2, row), count)
            })
        },
    },
];

fn scale(values: &ArrayRef) -> usize {
    match values.data_type() {
        DataType::Decimal128(_, scale) => usize::try_from(*scale).unwrap_or(0),
        _ => 0,
    }
}

fn refuse(message: &str) -> DataFusionError {
    raise(ErrorKind::InvalidArgumentForWidthBucket, message)
}

fn buckets(call: &Call, bucket: impl Fn(usize, i32) -> Result<i32>) -> Result<ArrayRef> {
    let counts = call.args[3].as_primitive::<Int32Type>();
    let found = (0..call.rows).map(|row| {
        if call.args.iter().any(|argument| argument.is_null(row)) {
            return Ok(None);
        }
        match counts.value(row) {
            ..=0 => Err(refuse("count must be greater than zero")),
            count => bucket(row, count).map(Some),
        }
    });
    Ok(Arc::new(
        found.collect::<Result<PrimitiveArray<Int32Type>>>()?,
    ))
}

/// One past the last bucket.
fn beyond(count: i32) -> Result<i32> {
    count
        .checked_add(1)
        .ok_or_else(|| raise(ErrorKind::NumericValueOutOfRange, "integer out of range"))
}

fn of_doubles(operand: f64, low: f64, high: f64, count: i32) -> Result<i32> {
    if operand.is_nan() || low.is_nan() || high.is_nan() {
        return Err(refuse(
            "operand, lower bound, and upper bound cannot be NaN",
        ));
    }
    if low.is_infinite() || high.is_infinite() {
        return Err(refuse("lower and upper bounds must be finite"));
    }
    if low == high {
        return Err(refuse("lower bound cannot equal upper bound"));
    }
    let (from, to) = if low < high {
        (operand - low, high - low)
    } else {
        (low - operand, low - high)
    };
    if from < 0.0 {
        return Ok(0);
    }
    if from >= to {
        return beyond(count);
    }
    // Rounding may reach the end of the last bucket.
    let at = (f64::from(count) * (from / to)).floor() as i32;
    Ok(at.min(count - 1) + 1)
}

fn of_numerics(operand: i256, low: i256, high: i256, count: i32) -> Result<i32> {
    if low == high {
        return Err(refuse("lower bound cannot equal upper bound"));
    }
    let (from, to) = if low < high {
        (operand.wrapping_sub(low), high.wrapping_sub(low))
    } else {
        (low.wrapping_sub(operand), low.wrapping_sub(high))
    };
    if from < i256::ZERO {
        return Ok(0);
    }
    if from >= to {
        return beyond(count);
    }
    let overflow = || {
        raise(
            ErrorKind::NumericValueOutOfRange,
            "value overflows numeric format",
        )
    };
    let at = from
        .checked_mul(i256::from_i128(i128::from(count)))
        .and_then(|scaled| scaled.checked_div(to))
        .and_then(i256::to_i128)
        .ok_or_else(overflow)?;
    i32::try_from(at + 1).map_err(|_| overflow())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_counted_from_one() {
        for (operand, low, high, count, bucket) in [
            (5.35, 0.024, 10.06, 5, 3),
            (-1.0, 0.0, 10.0, 5, 0),
            (10.0, 0.0, 10.0, 5, 6),
            (0.0, 0.0, 10.0, 5, 1),
            (3.0, 10.0, 0.0, 5, 4),
        ] {
            assert_eq!(of_doubles(operand, low, high, count).unwrap(), bucket);
            let whole = |value: f64| i256::from_i128((value * 1000.0) as i128);
            assert_eq!(
                of_numerics(whole(operand), whole(low), whole(high), count).unwrap(),
                bucket
            );
        }
        assert!(of_doubles(1.0, 2.0, 2.0, 3).is_err());
        assert!(of_doubles(f64::NAN, 1.0, 2.0, 3).is_err());
        assert!(of_numerics(i256::ONE, i256::ONE, i256::ONE, 3).is_err());
    }
}
