//! Numbers to numbers and booleans.

use std::sync::Arc;

use aerostat_types::text::{format_numeric, parse_numeric};
use aerostat_types::{ErrorKind, SqlError, SqlType};
use arrow::array::{ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, PrimitiveArray};
use arrow::datatypes::{Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type};
use datafusion::common::{DataFusionError, Result, ScalarValue};

use crate::{external, raise};

/// Digits of the widest numeric.
const DIGITS_MAX: u8 = 38;

/// 10⁰ to 10³⁸.
pub(crate) const POWERS_OF_TEN: [i128; 39] = {
    let mut powers = [1_i128; 39];
    let mut exponent = 1;
    while exponent < powers.len() {
        powers[exponent] = powers[exponent - 1] * 10;
        exponent += 1;
    }
    powers
};

/// Integers below this are exact as `f64`.
const F64_EXACT: u128 = 1 << 53;

/// Powers of ten up to this exponent are exact as `f64`.
const F64_EXACT_POWER: i8 = 22;

fn out_of_range(what: &str) -> DataFusionError {
    raise(
        ErrorKind::NumericValueOutOfRange,
        format!("{what} out of range"),
    )
}

/// PostgreSQL's error for a number with too many digits before the point.
fn field_overflow(precision: u8, scale: i8) -> DataFusionError {
    let exponent = i16::from(precision) - i16::from(scale);
    let bound = if exponent == 0 {
        "1".to_owned()
    } else {
        format!("10^{exponent}")
    };
    external(SqlError::new(ErrorKind::NumericValueOutOfRange, "numeric field overflow").with_detail(format!(
        "A field with precision {precision}, scale {scale} must round to an absolute value less than {bound}."
    )))
}

/// Brings a number from one scale to another, rounding half away from zero.
/// `None` when it has more than `precision` digits there.
pub(crate) fn rescale(value: i128, from_scale: i8, precision: u8, scale: i8) -> Option<i128> {
    let shift = i16::from(scale) - i16::from(from_scale);
    let power = POWERS_OF_TEN
        .get(usize::from(shift.unsigned_abs()))
        .copied();
    let moved = match power {
        Some(power) if shift >= 0 => value.checked_mul(power)?,
        Some(power) => {
            let (quotient, remainder) = (value / power, value % power);
            let up = i128::from(remainder.unsigned_abs() >= power.unsigned_abs().div_ceil(2));
            quotient + up * value.signum()
        }
        None if value == 0 || shift < 0 => 0,
        None => return None,
    };
    (moved.unsigned_abs() < POWERS_OF_TEN[usize::from(precision)].unsigned_abs()).then_some(moved)
}

/// Decimal digits of a number, at least 1.
fn decimal_digits(value: i128) -> u8 {
    POWERS_OF_TEN
        .partition_point(|power| power.unsigned_abs() <= value.unsigned_abs())
        .max(1) as u8
}

/// A numeric as the nearest float.
pub(crate) fn decimal_to_f64(value: i128, scale: i8) -> f64 {
    if value.unsigned_abs() < F64_EXACT && (0..=F64_EXACT_POWER).contains(&scale) {
        return value as f64 / POWERS_OF_TEN[scale as usize] as f64;
    }
    let mut text = String::new();
    format_numeric(value, scale, &mut text);
    text.parse().unwrap_or(f64::NAN)
}

/// A float as numeric with `digits` significant digits, as PostgreSQL converts: 15 for double, 6 for real.
fn float_to_numeric(value: f64, digits: usize, precision: u8, scale: i8) -> Result<i128> {
    if value.is_infinite() {
        return Err(raise(
            ErrorKind::FeatureNotSupported,
            "cannot convert infinity to numeric",
        ));
    }
    if value.is_nan() {
        return Err(raise(
            ErrorKind::FeatureNotSupported,
            "cannot convert NaN to numeric",
        ));
    }
    parse_numeric(&format!("{value:.*e}", digits - 1), precision, scale).map_err(external)
}

/// A string literal as numeric with the digits it has.
pub(crate) fn literal(text: &str) -> Result<ScalarValue> {
    let scale = natural_scale(text);
    let value = parse_numeric(text, DIGITS_MAX, scale).map_err(external)?;
    let precision = decimal_digits(value).max(scale as u8).max(1);
    Ok(ScalarValue::Decimal128(Some(value), precision, scale))
}

/// Digits after the point once the exponent is applied.
fn natural_scale(text: &str) -> i8 {
    let (mantissa, exponent) = match text.trim().split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().unwrap_or(0)),
        None => (text.trim(), 0),
    };
    let fraction = mantissa
        .split_once('.')
        .map_or(0, |(_, fraction)| fraction.len() as i32);
    (fraction - exponent).clamp(0, i32::from(DIGITS_MAX) - 1) as i8
}

fn map<A: ArrowPrimitiveType, B: ArrowPrimitiveType>(
    array: &ArrayRef,
    convert: impl Fn(A::Native) -> Result<B::Native>,
) -> Result<ArrayRef> {
    Ok(Arc::new(
        array
            .as_primitive::<A>()
            .try_unary::<_, B, DataFusionError>(convert)?,
    ))
}

fn to_decimal<A: ArrowPrimitiveType>(
    array: &ArrayRef,
    precision: u8,
    scale: i8,
    convert: impl Fn(A::Native) -> Result<i128>,
) -> Result<ArrayRef> {
    let converted: PrimitiveArray<Decimal128Type> = array.as_primitive::<A>().try_unary(convert)?;
    Ok(Arc::new(
        converted.with_precision_and_scale(precision, scale)?,
    ))
}

/// Converts between numbers and booleans; nothing if either side is neither.
pub(super) fn convert(array: &ArrayRef, from: SqlType, to: SqlType) -> Result<Option<ArrayRef>> {
    Ok(Some(match from {
        SqlType::SmallInt => from_integer::<Int16Type>(array, from, to)?,
        SqlType::Integer => from_integer::<Int32Type>(array, from, to)?,
        SqlType::BigInt => from_integer::<Int64Type>(array, from, to)?,
        SqlType::Real => from_float::<Float32Type>(array, 6, from, to)?,
        SqlType::Double => from_float::<Float64Type>(array, 15, from, to)?,
        SqlType::Numeric { scale, .. } => from_numeric(array, scale, from, to)?,
        SqlType::Boolean if to == SqlType::Integer => {
            let bits = array.as_boolean();
            Arc::new(
                bits.iter()
                    .map(|bit| bit.map(i32::from))
                    .collect::<PrimitiveArray<Int32Type>>(),
            )
        }
        _ => return Ok(None),
    }))
}

fn from_integer<A: ArrowPrimitiveType>(
    array: &ArrayRef,
    from: SqlType,
    to: SqlType,
) -> Result<ArrayRef>
where
    A::Native: Into<i64>,
{
    match to {
        SqlType::SmallInt => map::<A, Int16Type>(array, |v| {
            i16::try_from(v.into()).map_err(|_| out_of_range("smallint"))
        }),
        SqlType::Integer => map::<A, Int32Type>(array, |v| {
            i32::try_from(v.into()).map_err(|_| out_of_range("integer"))
        }),
        SqlType::BigInt => map::<A, Int64Type>(array, |v| Ok(v.into())),
        SqlType::Real => map::<A, Float32Type>(array, |v| Ok(v.into() as f32)),
        SqlType::Double => map::<A, Float64Type>(array, |v| Ok(v.into() as f64)),
        SqlType::Numeric { precision, scale } => to_decimal::<A>(array, precision, scale, |v| {
            rescale(i128::from(v.into()), 0, precision, scale)
                .ok_or_else(|| field_overflow(precision, scale))
        }),
        SqlType::Boolean if from == SqlType::Integer => {
            let values = array.as_primitive::<A>();
            Ok(Arc::new(
                values
                    .iter()
                    .map(|v| v.map(|v| v.into() != 0))
                    .collect::<BooleanArray>(),
            ))
        }
        _ => Err(super::cannot_cast(from, to)),
    }
}

fn from_float<A: ArrowPrimitiveType>(
    array: &ArrayRef,
    digits: usize,
    from: SqlType,
    to: SqlType,
) -> Result<ArrayRef>
where
    A::Native: Into<f64>,
{
    // PostgreSQL rounds to the nearest integer, halves to even, then looks at the range.
    let whole = |value: f64, below: f64, name: &str| {
        let rounded = value.round_ties_even();
        if rounded >= -below && rounded < below {
            Ok(rounded)
        } else {
            Err(out_of_range(name))
        }
    };
    match to {
        SqlType::SmallInt => {
            map::<A, Int16Type>(array, |v| Ok(whole(v.into(), 32_768.0, "smallint")? as i16))
        }
        SqlType::Integer => map::<A, Int32Type>(array, |v| {
            Ok(whole(v.into(), 2_147_483_648.0, "integer")? as i32)
        }),
        SqlType::BigInt => map::<A, Int64Type>(array, |v| {
            Ok(whole(v.into(), 9_223_372_036_854_775_808.0, "bigint")? as i64)
        }),
        SqlType::Real => map::<A, Float32Type>(array, |v| narrow(v.into())),
        SqlType::Double => map::<A, Float64Type>(array, |v| Ok(v.into())),
        SqlType::Numeric { precision, scale } => to_decimal::<A>(array, precision, scale, |v| {
            float_to_numeric(v.into(), digits, precision, scale)
        }),
        _ => Err(super::cannot_cast(from, to)),
    }
}

/// A double as real.
fn narrow(value: f64) -> Result<f32> {
    let narrowed = value as f32;
    if narrowed.is_infinite() && value.is_finite() {
        return Err(raise(
            ErrorKind::NumericValueOutOfRange,
            "value out of range: overflow",
        ));
    }
    if narrowed == 0.0 && value != 0.0 {
        return Err(raise(
            ErrorKind::NumericValueOutOfRange,
            "value out of range: underflow",
        ));
    }
    Ok(narrowed)
}

fn from_numeric(array: &ArrayRef, from_scale: i8, from: SqlType, to: SqlType) -> Result<ArrayRef> {
    let whole = |value: i128| rescale(value, from_scale, DIGITS_MAX, 0).unwrap_or(i128::MAX);
    type D = Decimal128Type;
    match to {
        SqlType::SmallInt => map::<D, Int16Type>(array, |v| {
            i16::try_from(whole(v)).map_err(|_| out_of_range("smallint"))
        }),
        SqlType::Integer => map::<D, Int32Type>(array, |v| {
            i32::try_from(whole(v)).map_err(|_| out_of_range("integer"))
        }),
        SqlType::BigInt => map::<D, Int64Type>(array, |v| {
            i64::try_from(whole(v)).map_err(|_| out_of_range("bigint"))
        }),
        SqlType::Real => map::<D, Float32Type>(array, |v| narrow(decimal_to_f64(v, from_scale))),
        SqlType::Double => map::<D, Float64Type>(array, |v| Ok(decimal_to_f64(v, from_scale))),
        SqlType::Numeric { precision, scale } => to_decimal::<D>(array, precision, scale, |v| {
            rescale(v, from_scale, precision, scale).ok_or_else(|| field_overflow(precision, scale))
        }),
        _ => Err(super::cannot_cast(from, to)),
    }
}
