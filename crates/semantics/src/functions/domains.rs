//! Functions on numbers whose arguments and results PostgreSQL restricts.

use std::sync::Arc;

use aerostat_types::{ErrorKind, SqlType};
use arrow::array::{Array, ArrayRef, AsArray, Int32Array, PrimitiveArray};
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Decimal128Type, Float64Type, Int32Type, Int64Type,
};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::{ScalarUDF, Volatility};

use super::overload::{Call, NUMERIC, Overload, Returns, function};
use crate::raise;

const DOUBLE: Returns = Returns::Type(SqlType::Double);
const INTEGER: Returns = Returns::Type(SqlType::Integer);

/// The functions of this module.
pub(super) fn all() -> Vec<Arc<ScalarUDF>> {
    let immutable = |name, overloads| function(name, &[], Volatility::Immutable, overloads);
    vec![
        immutable("sin", SIN),
        immutable("cos", COS),
        immutable("tan", TAN),
        immutable("cot", COT),
        immutable("degrees", DEGREES),
        immutable("radians", RADIANS),
        immutable("asin", ASIN),
        immutable("acos", ACOS),
        immutable("acosh", ACOSH),
        immutable("atanh", ATANH),
        immutable("gcd", GCD),
        immutable("lcm", LCM),
        immutable("scale", SCALE),
        immutable("min_scale", MIN_SCALE),
        immutable("trim_scale", TRIM_SCALE),
    ]
}

fn out_of_range(message: &str) -> DataFusionError {
    raise(ErrorKind::NumericValueOutOfRange, message)
}

/// Applies a function that has no value where this gives NaN for a number.
fn within(call: &Call, f: fn(f64) -> f64) -> Result<ArrayRef> {
    let values = call.args[0].as_primitive::<Float64Type>();
    let results = values.try_unary::<_, Float64Type, DataFusionError>(|value| {
        let result = f(value);
        match result.is_nan() && !value.is_nan() {
            true => Err(out_of_range("input is out of range")),
            false => Ok(result),
        }
    })?;
    Ok(Arc::new(results))
}

macro_rules! of_domain {
    ($f:expr) => {
        &[Overload {
            parameters: &[SqlType::Double],
            returns: DOUBLE,
            body: |call| within(call, $f),
        }]
    };
}

const SIN: &[Overload] = of_domain!(f64::sin);
const COS: &[Overload] = of_domain!(f64::cos);
const TAN: &[Overload] = of_domain!(f64::tan);
const COT: &[Overload] = of_domain!(|value| 1.0 / value.tan());
const ASIN: &[Overload] = of_domain!(f64::asin);
const ACOS: &[Overload] = of_domain!(f64::acos);
const ACOSH: &[Overload] = of_domain!(f64::acosh);
const ATANH: &[Overload] = of_domain!(f64::atanh);

/// PostgreSQL's `RADIANS_PER_DEGREE`.
const RADIANS_PER_DEGREE: f64 = std::f64::consts::PI / 180.0;

/// Applies a function whose results a float may not reach.
fn reached(call: &Call, f: fn(f64) -> f64) -> Result<ArrayRef> {
    let values = call.args[0].as_primitive::<Float64Type>();
    let results = values.try_unary::<_, Float64Type, DataFusionError>(|value| match f(value) {
        result if result.is_infinite() && value.is_finite() => {
            Err(out_of_range("value out of range: overflow"))
        }
        0.0 if value != 0.0 => Err(out_of_range("value out of range: underflow")),
        result => Ok(result),
    })?;
    Ok(Arc::new(results))
}

const DEGREES: &[Overload] = &[Overload {
    parameters: &[SqlType::Double],
    returns: DOUBLE,
    body: |call| reached(call, |value| value / RADIANS_PER_DEGREE),
}];

const RADIANS: &[Overload] = &[Overload {
    parameters: &[SqlType::Double],
    returns: DOUBLE,
    body: |call| reached(call, |value| value * RADIANS_PER_DEGREE),
}];

fn divisor(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

fn multiple(a: u128, b: u128) -> Option<u128> {
    match (a, b) {
        (0, _) | (_, 0) => Some(0),
        _ => (a / divisor(a, b)).checked_mul(b),
    }
}

/// What `f` makes of the magnitudes of two integers.
fn integers<T>(call: &Call, f: fn(u128, u128) -> Option<u128>) -> Result<ArrayRef>
where
    T: ArrowPrimitiveType,
    T::Native: Into<i64> + TryFrom<u128>,
{
    let message = match T::DATA_TYPE {
        DataType::Int32 => "integer out of range",
        _ => "bigint out of range",
    };
    let (a, b) = (
        call.args[0].as_primitive::<T>(),
        call.args[1].as_primitive::<T>(),
    );
    let magnitude = |value: T::Native| u128::from(Into::<i64>::into(value).unsigned_abs());
    let results = a.iter().zip(b.iter()).map(|pair| match pair {
        (Some(a), Some(b)) => f(magnitude(a), magnitude(b))
            .and_then(|result| T::Native::try_from(result).ok())
            .map(Some)
            .ok_or_else(|| out_of_range(message)),
        _ => Ok(None),
    });
    Ok(Arc::new(results.collect::<Result<PrimitiveArray<T>>>()?))
}

macro_rules! of_integers {
    ($f:expr) => {
        &[
            Overload {
                parameters: &[SqlType::Integer, SqlType::Integer],
                returns: INTEGER,
                body: |call| integers::<Int32Type>(call, $f),
            },
            Overload {
                parameters: &[SqlType::BigInt, SqlType::BigInt],
                returns: Returns::Type(SqlType::BigInt),
                body: |call| integers::<Int64Type>(call, $f),
            },
        ]
    };
}

const GCD: &[Overload] = of_integers!(|a, b| Some(divisor(a, b)));
const LCM: &[Overload] = of_integers!(multiple);

/// The digits after the point that a numeric needs, or that its type has.
fn scales(call: &Call, of: fn(i128, i8) -> i32) -> Result<ArrayRef> {
    let DataType::Decimal128(_, scale) = *call.args[0].data_type() else {
        return Err(raise(ErrorKind::Internal, "a numeric that is none"));
    };
    let values = call.args[0].as_primitive::<Decimal128Type>();
    let scales = values.iter().map(|value| Some(of(value?, scale)));
    Ok(Arc::new(scales.collect::<Int32Array>()))
}

fn needed(mut value: i128, scale: i8) -> i32 {
    let mut scale = i32::from(scale);
    while scale > 0 && value % 10 == 0 {
        value /= 10;
        scale -= 1;
    }
    scale
}

const SCALE: &[Overload] = &[Overload {
    parameters: &[NUMERIC],
    returns: INTEGER,
    body: |call| scales(call, |_, scale| i32::from(scale)),
}];

const MIN_SCALE: &[Overload] = &[Overload {
    parameters: &[NUMERIC],
    returns: INTEGER,
    body: |call| scales(call, needed),
}];

/// The digits after the point follow the type: only a constant can lose those that it does not need.
const TRIM_SCALE: &[Overload] = &[Overload {
    parameters: &[NUMERIC],
    returns: Returns::Computed(trimmed),
    body: |call| Ok(arrow::compute::cast(&call.args[0], call.returns)?),
}];

fn trimmed(types: &[DataType], constants: &[Option<&ScalarValue>]) -> DataType {
    match (&types[0], constants.first()) {
        (
            DataType::Decimal128(precision, _),
            Some(Some(ScalarValue::Decimal128(Some(value), _, scale))),
        ) => {
            let scale_needed = needed(*value, *scale).clamp(0, 38) as i8;
            DataType::Decimal128((*precision).max(scale_needed as u8), scale_needed)
        }
        (ty, _) => ty.clone(),
    }
}
