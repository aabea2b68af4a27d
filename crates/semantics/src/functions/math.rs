//! Functions on numbers.
//!
//! `power`, `sqrt`, `ln`, `log` and `exp` compute in double precision also for
//! numerics, where PostgreSQL computes in numeric.

use std::sync::{Arc, LazyLock};

use aerostat_types::{ErrorKind, SqlType};
use arrow::array::{ArrayRef, ArrowPrimitiveType, AsArray, PrimitiveArray};
use arrow::datatypes::{
    DataType, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::{ColumnarValue, Operator, ScalarUDF, Volatility};

use super::arithmetic;
use super::cast::{POWERS_OF_TEN, rescale};
use super::overload::{Call, NUMERIC, Overload, Returns, function};
use crate::raise;

const INTEGERS: [SqlType; 3] = [SqlType::SmallInt, SqlType::Integer, SqlType::BigInt];

static POWER: LazyLock<Arc<ScalarUDF>> = LazyLock::new(|| {
    function(
        "power",
        &["pow"],
        Volatility::Immutable,
        &[Overload {
            parameters: &[SqlType::Double, SqlType::Double],
            returns: Returns::Type(SqlType::Double),
            body: |call| doubles2(call, power_of),
        }],
    )
});

/// `power`, also the operator `^`.
pub(crate) fn power() -> Arc<ScalarUDF> {
    Arc::clone(&POWER)
}

/// The functions of this module.
pub(super) fn all() -> Vec<Arc<ScalarUDF>> {
    let immutable = |name, aliases: &[&str], overloads| {
        function(name, aliases, Volatility::Immutable, overloads)
    };
    vec![
        power(),
        immutable("sqrt", &[], SQRT),
        immutable("cbrt", &[], CBRT),
        immutable("exp", &[], EXP),
        immutable("ln", &[], LN),
        immutable("log", &["log10"], LOG),
        immutable("abs", &[], ABS),
        immutable("sign", &[], SIGN),
        immutable("round", &[], ROUND),
        immutable("trunc", &[], TRUNC),
        immutable("ceil", &["ceiling"], CEIL),
        immutable("floor", &[], FLOOR),
        immutable("mod", &[], MOD),
        immutable("div", &[], DIV),
        immutable("bitwise_not", &[], BITWISE_NOT),
        shift(true),
        shift(false),
    ]
}

fn overflow() -> DataFusionError {
    raise(
        ErrorKind::NumericValueOutOfRange,
        "value out of range: overflow",
    )
}

fn doubles(call: &Call, f: impl Fn(f64) -> Result<f64>) -> Result<ArrayRef> {
    let values = call.args[0].as_primitive::<Float64Type>();
    Ok(Arc::new(
        values.try_unary::<_, Float64Type, DataFusionError>(f)?,
    ))
}

fn doubles2(call: &Call, f: impl Fn(f64, f64) -> Result<f64>) -> Result<ArrayRef> {
    let (a, b) = (
        call.args[0].as_primitive::<Float64Type>(),
        call.args[1].as_primitive::<Float64Type>(),
    );
    let pairs = a
        .iter()
        .zip(b.iter())
        .map(|(a, b)| a.zip(b).map(|(a, b)| f(a, b)).transpose());
    Ok(Arc::new(
        pairs.collect::<Result<PrimitiveArray<Float64Type>>>()?,
    ))
}

fn power_of(base: f64, exponent: f64) -> Result<f64> {
    if base == 0.0 && exponent < 0.0 {
        return Err(raise(
            ErrorKind::InvalidArgumentForPower,
            "zero raised to a negative power is undefined",
        ));
    }
    // Infinity is a whole number here, and NaN makes NaN.
    if base < 0.0 && exponent.is_finite() && exponent.fract() != 0.0 {
        let message = "a negative number raised to a non-integer power yields a complex result";
        return Err(raise(ErrorKind::InvalidArgumentForPower, message));
    }
    let result = base.powf(exponent);
    if result.is_infinite() && base.is_finite() && exponent.is_finite() {
        return Err(overflow());
    }
    if result == 0.0 && base != 0.0 && base.is_finite() && exponent.is_finite() {
        return Err(underflow());
    }
    Ok(result)
}

fn underflow() -> DataFusionError {
    let message = "value out of range: underflow";
    raise(ErrorKind::NumericValueOutOfRange, message)
}

fn logarithm(value: f64, f: impl Fn(f64) -> f64) -> Result<f64> {
    if value == 0.0 {
        return Err(raise(
            ErrorKind::InvalidArgumentForLogarithm,
            "cannot take logarithm of zero",
        ));
    }
    if value < 0.0 {
        return Err(raise(
            ErrorKind::InvalidArgumentForLogarithm,
            "cannot take logarithm of a negative number",
        ));
    }
    Ok(f(value))
}

const DOUBLE: Returns = Returns::Type(SqlType::Double);

const SQRT: &[Overload] = &[Overload {
    parameters: &[SqlType::Double],
    returns: DOUBLE,
    body: |call| {
        doubles(call, |value| match value {
            v if v < 0.0 => Err(raise(
                ErrorKind::InvalidArgumentForPower,
                "cannot take square root of a negative number",
            )),
            v => Ok(v.sqrt()),
        })
    },
}];

const CBRT: &[Overload] = &[Overload {
    parameters: &[SqlType::Double],
    returns: DOUBLE,
    body: |call| doubles(call, |v| Ok(v.cbrt())),
}];

const EXP: &[Overload] = &[Overload {
    parameters: &[SqlType::Double],
    returns: DOUBLE,
    body: |call| {
        doubles(call, |v| match v.exp() {
            result if result.is_infinite() && v.is_finite() => Err(overflow()),
            0.0 if v.is_finite() => Err(underflow()),
            result => Ok(result),
        })
    },
}];

const LN: &[Overload] = &[Overload {
    parameters: &[SqlType::Double],
    returns: DOUBLE,
    body: |call| doubles(call, |v| logarithm(v, f64::ln)),
}];

const LOG: &[Overload] = &[
    Overload {
        parameters: &[SqlType::Double],
        returns: DOUBLE,
        body: |call| doubles(call, |v| logarithm(v, f64::log10)),
    },
    Overload {
        parameters: &[SqlType::Double, SqlType::Double],
        returns: DOUBLE,
        body: |call| {
            doubles2(call, |base, v| {
                let (value, base) = (logarithm(v, f64::ln)?, logarithm(base, f64::ln)?);
                match base {
                    0.0 => Err(raise(ErrorKind::DivisionByZero, "division by zero")),
                    base => Ok(value / base),
                }
            })
        },
    },
];

fn same(args: &[DataType], _: &[Option<&ScalarValue>]) -> DataType {
    args[0].clone()
}

fn integer_abs(call: &Call) -> Result<ArrayRef> {
    arithmetic::absolute(&ColumnarValue::Array(Arc::clone(&call.args[0])))?.to_array(call.rows)
}

/// A numeric column with each value changed and another scale.
fn numerics(call: &Call, f: impl Fn(i128, i8) -> Option<i128>) -> Result<ArrayRef> {
    let DataType::Decimal128(_, from) = *call.args[0].data_type() else {
        return Err(overflow());
    };
    let DataType::Decimal128(precision, scale) = *call.returns else {
        return Err(overflow());
    };
    let values = call.args[0].as_primitive::<Decimal128Type>();
    let changed: PrimitiveArray<Decimal128Type> = values.try_unary(|value| {
        f(value, from)
            .filter(|result| result.unsigned_abs() < POWERS_OF_TEN[38].unsigned_abs())
            .ok_or_else(|| {
                raise(
                    ErrorKind::NumericValueOutOfRange,
                    "value overflows numeric format",
                )
            })
    })?;
    Ok(Arc::new(
        changed.with_precision_and_scale(precision, scale)?,
    ))
}

// Double precision comes first: it is what a string literal is taken for.
const ABS: &[Overload] = &[
    Overload {
        parameters: &[SqlType::Double],
        returns: DOUBLE,
        body: |call| doubles(call, |v| Ok(v.abs())),
    },
    Overload {
        parameters: &[SqlType::Real],
        returns: Returns::Type(SqlType::Real),
        body: |call| {
            let values = call.args[0].as_primitive::<Float32Type>();
            Ok(Arc::new(values.unary::<_, Float32Type>(f32::abs)))
        },
    },
    Overload {
        parameters: &[INTEGERS[0]],
        returns: Returns::Computed(same),
        body: integer_abs,
    },
    Overload {
        parameters: &[INTEGERS[1]],
        returns: Returns::Computed(same),
        body: integer_abs,
    },
    Overload {
        parameters: &[INTEGERS[2]],
        returns: Returns::Computed(same),
        body: integer_abs,
    },
    Overload {
        parameters: &[NUMERIC],
        returns: Returns::Computed(same),
        body: |call| numerics(call, |v, _| Some(v.abs())),
    },
];

const SIGN: &[Overload] = &[
    Overload {
        parameters: &[NUMERIC],
        returns: Returns::Computed(|_, _| DataType::Decimal128(1, 0)),
        body: |call| numerics(call, |v, _| Some(v.signum())),
    },
    Overload {
        parameters: &[SqlType::Double],
        returns: DOUBLE,
        // NaN is neither above nor below zero, and zero has no sign.
        body: |call| {
            doubles(call, |v| {
                Ok(f64::from(i8::from(v > 0.0) - i8::from(v < 0.0)))
            })
        },
    },
];

/// A numeric rounded to whole numbers: one digit more before the point.
fn whole(args: &[DataType], _: &[Option<&ScalarValue>]) -> DataType {
    match args[0] {
        DataType::Decimal128(p, s) => DataType::Decimal128((p - s as u8 + 1).min(38), 0),
        _ => DataType::Decimal128(38, 0),
    }
}

/// The scale that a constant asks for, else the argument's own.
fn to_digits(args: &[DataType], constants: &[Option<&ScalarValue>]) -> DataType {
    let DataType::Decimal128(p, s) = args[0] else {
        return DataType::Decimal128(38, 0);
    };
    let asked = match constants.get(1) {
        Some(Some(ScalarValue::Int32(Some(digits)))) => (*digits).clamp(0, i32::from(s)) as i8,
        Some(Some(ScalarValue::Int64(Some(digits)))) => (*digits).clamp(0, i64::from(s)) as i8,
        _ => s,
    };
    DataType::Decimal128((p - (s - asked) as u8 + 1).min(38), asked)
}

/// Moves numerics to the digits that the second argument names, by `f(value, scale, digits)`.
fn by_digits(call: &Call, f: impl Fn(i128, i8, i8) -> Option<i128>) -> Result<ArrayRef> {
    let DataType::Decimal128(_, from) = *call.args[0].data_type() else {
        return Err(overflow());
    };
    let DataType::Decimal128(precision, scale) = *call.returns else {
        return Err(overflow());
    };
    let values = call.args[0].as_primitive::<Decimal128Type>();
    let digits = call.args[1].as_primitive::<Int32Type>();
    let moved = values
        .iter()
        .zip(digits.iter())
        .map(|(value, digits)| match value.zip(digits) {
            None => Ok(None),
            Some((value, digits)) => {
                let digits = digits.clamp(-38, i32::from(from)) as i8;
                f(value, from, digits)
                    .and_then(|rounded| rescale(rounded, digits, 38, scale))
                    .map(Some)
                    .ok_or_else(|| {
                        raise(
                            ErrorKind::NumericValueOutOfRange,
                            "value overflows numeric format",
                        )
                    })
            }
        });
    let moved = moved.collect::<Result<PrimitiveArray<Decimal128Type>>>()?;
    Ok(Arc::new(moved.with_precision_and_scale(precision, scale)?))
}

/// Cuts the digits after `digits`.
fn cut(value: i128, from: i8, digits: i8) -> Option<i128> {
    let shift = i16::from(from) - i16::from(digits);
    let power = POWERS_OF_TEN.get(usize::try_from(shift).ok()?);
    Some(power.map_or(0, |power| value / power))
}

const ROUND: &[Overload] = &[
    Overload {
        parameters: &[SqlType::Double],
        returns: DOUBLE,
        body: |call| doubles(call, |v| Ok(v.round_ties_even())),
    },
    Overload {
        parameters: &[NUMERIC],
        returns: Returns::Computed(whole),
        body: |call| numerics(call, |v, scale| rescale(v, scale, 38, 0)),
    },
    Overload {
        parameters: &[NUMERIC, SqlType::Integer],
        returns: Returns::Computed(to_digits),
        body: |call| by_digits(call, |v, from, digits| rescale(v, from, 38, digits)),
    },
];

const TRUNC: &[Overload] = &[
    Overload {
        parameters: &[SqlType::Double],
        returns: DOUBLE,
        body: |call| doubles(call, |v| Ok(v.trunc())),
    },
    Overload {
        parameters: &[NUMERIC],
        returns: Returns::Computed(whole),
        body: |call| numerics(call, |v, scale| cut(v, scale, 0)),
    },
    Overload {
        parameters: &[NUMERIC, SqlType::Integer],
        returns: Returns::Computed(to_digits),
        body: |call| by_digits(call, cut),
    },
];

const CEIL: &[Overload] = &[
    Overload {
        parameters: &[SqlType::Double],
        returns: DOUBLE,
        body: |call| doubles(call, |v| Ok(v.ceil())),
    },
    Overload {
        parameters: &[NUMERIC],
        returns: Returns::Computed(whole),
        body: |call| {
            numerics(call, |v, scale| {
                Some(-(-v).div_euclid(*POWERS_OF_TEN.get(scale as usize)?))
            })
        },
    },
];

const FLOOR: &[Overload] = &[
    Overload {
        parameters: &[SqlType::Double],
        returns: DOUBLE,
        body: |call| doubles(call, |v| Ok(v.floor())),
    },
    Overload {
        parameters: &[NUMERIC],
        returns: Returns::Computed(whole),
        body: |call| {
            numerics(call, |v, scale| {
                Some(v.div_euclid(*POWERS_OF_TEN.get(scale as usize)?))
            })
        },
    },
];

/// Evaluates an operator of [`arithmetic`] over the two arguments.
fn operator(call: &Call, op: Operator) -> Result<ArrayRef> {
    let (left, right) = (
        ColumnarValue::Array(Arc::clone(&call.args[0])),
        ColumnarValue::Array(Arc::clone(&call.args[1])),
    );
    arithmetic::evaluate(op, left, right, call.rows)?.to_array(call.rows)
}

fn remainder_type(args: &[DataType], _: &[Option<&ScalarValue>]) -> DataType {
    arithmetic::result_type(Operator::Modulo, &args[0], &args[1])
}

fn bits<T>(call: &Call) -> Result<ArrayRef>
where
    T: ArrowPrimitiveType,
    T::Native: std::ops::Not<Output = T::Native>,
{
    Ok(Arc::new(
        call.args[0].as_primitive::<T>().unary::<_, T>(|v| !v),
    ))
}

const BITWISE_NOT: &[Overload] = &[
    Overload {
        parameters: &[INTEGERS[0]],
        returns: Returns::Computed(same),
        body: bits::<Int16Type>,
    },
    Overload {
        parameters: &[INTEGERS[1]],
        returns: Returns::Computed(same),
        body: bits::<Int32Type>,
    },
    Overload {
        parameters: &[INTEGERS[2]],
        returns: Returns::Computed(same),
        body: bits::<Int64Type>,
    },
];

/// `<<` and `>>`: a number of bits by an integer, of which as many bits count as there are in
/// what a processor shifts: a smallint is shifted as an integer and cut.
pub(crate) fn shift(is_left: bool) -> Arc<ScalarUDF> {
    let (name, overloads) = match is_left {
        true => ("shift_left", SHIFT_LEFT),
        false => ("shift_right", SHIFT_RIGHT),
    };
    function(name, &[], Volatility::Immutable, overloads)
}

/// `#`. DataFusion's operator says 0 of `x # x`, where x may be NULL.
pub(crate) fn exclusive_or() -> Arc<ScalarUDF> {
    function("exclusive_or", &[], Volatility::Immutable, EXCLUSIVE_OR)
}

fn exclusive<T: ArrowPrimitiveType>(
    call: &Call,
    f: fn(T::Native, T::Native) -> T::Native,
) -> Result<ArrayRef> {
    let (left, right) = (
        call.args[0].as_primitive::<T>(),
        call.args[1].as_primitive::<T>(),
    );
    let bits = arrow::compute::binary::<_, _, _, T>(left, right, f)?;
    Ok(Arc::new(bits))
}

const EXCLUSIVE_OR: &[Overload] = &[
    Overload {
        parameters: &[INTEGERS[0], INTEGERS[0]],
        returns: Returns::Computed(same),
        body: |call| exclusive::<Int16Type>(call, |one, other| one ^ other),
    },
    Overload {
        parameters: &[INTEGERS[1], INTEGERS[1]],
        returns: Returns::Computed(same),
        body: |call| exclusive::<Int32Type>(call, |one, other| one ^ other),
    },
    Overload {
        parameters: &[INTEGERS[2], INTEGERS[2]],
        returns: Returns::Computed(same),
        body: |call| exclusive::<Int64Type>(call, |one, other| one ^ other),
    },
];

fn shifted<T: ArrowPrimitiveType>(
    call: &Call,
    f: fn(T::Native, u32) -> T::Native,
) -> Result<ArrayRef> {
    let bits = call.args[1].as_primitive::<Int32Type>();
    let shifted = arrow::compute::binary::<_, _, _, T>(
        call.args[0].as_primitive::<T>(),
        bits,
        |value, bits| f(value, bits as u32),
    )?;
    Ok(Arc::new(shifted))
}

const SHIFT_LEFT: &[Overload] = &[
    Overload {
        parameters: &[INTEGERS[0], SqlType::Integer],
        returns: Returns::Computed(same),
        body: |call| shifted::<Int16Type>(call, |v, bits| i32::from(v).wrapping_shl(bits) as i16),
    },
    Overload {
        parameters: &[INTEGERS[1], SqlType::Integer],
        returns: Returns::Computed(same),
        body: |call| shifted::<Int32Type>(call, i32::wrapping_shl),
    },
    Overload {
        parameters: &[INTEGERS[2], SqlType::Integer],
        returns: Returns::Computed(same),
        body: |call| shifted::<Int64Type>(call, i64::wrapping_shl),
    },
];

const SHIFT_RIGHT: &[Overload] = &[
    Overload {
        parameters: &[INTEGERS[0], SqlType::Integer],
        returns: Returns::Computed(same),
        body: |call| shifted::<Int16Type>(call, |v, bits| i32::from(v).wrapping_shr(bits) as i16),
    },
    Overload {
        parameters: &[INTEGERS[1], SqlType::Integer],
        returns: Returns::Computed(same),
        body: |call| shifted::<Int32Type>(call, i32::wrapping_shr),
    },
    Overload {
        parameters: &[INTEGERS[2], SqlType::Integer],
        returns: Returns::Computed(same),
        body: |call| shifted::<Int64Type>(call, i64::wrapping_shr),
    },
];

const MOD: &[Overload] = &[
    Overload {
        parameters: &[INTEGERS[0], INTEGERS[0]],
        returns: Returns::Computed(same),
        body: |call| operator(call, Operator::Modulo),
    },
    Overload {
        parameters: &[INTEGERS[1], INTEGERS[1]],
        returns: Returns::Computed(same),
        body: |call| operator(call, Operator::Modulo),
    },
    Overload {
        parameters: &[INTEGERS[2], INTEGERS[2]],
        returns: Returns::Computed(same),
        body: |call| operator(call, Operator::Modulo),
    },
    Overload {
        parameters: &[NUMERIC, NUMERIC],
        returns: Returns::Computed(remainder_type),
        body: |call| operator(call, Operator::Modulo),
    },
];

const DIV: &[Overload] = &[Overload {
    parameters: &[NUMERIC, NUMERIC],
    returns: Returns::Computed(|_, _| DataType::Decimal128(38, 0)),
    body: |call| {
        // (a - a % b) / b has no digits after the point.
        let remainder = operator(call, Operator::Modulo)?;
        let dividend = ColumnarValue::Array(Arc::clone(&call.args[0]));
        let whole = arithmetic::evaluate(
            Operator::Minus,
            dividend,
            ColumnarValue::Array(remainder),
            call.rows,
        )?;
        let divisor = ColumnarValue::Array(Arc::clone(&call.args[1]));
        let quotient = arithmetic::evaluate(Operator::Divide, whole, divisor, call.rows)?
            .to_array(call.rows)?;
        let cut_quotient = Call {
            args: &[quotient],
            returns: call.returns,
            zone: call.zone,
            rows: call.rows,
        };
        numerics(&cut_quotient, |v, scale| cut(v, scale, 0))
    },
}];
