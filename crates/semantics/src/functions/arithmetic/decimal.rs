//! Arithmetic on numerics of static precision and scale.

use arrow::array::AsArray;
use arrow::datatypes::{DataType, Decimal128Type, i256};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::{ColumnarValue, Operator};
use std::sync::Arc;

use super::kernel::{self, OVERFLOW, ZERO};
use crate::functions::cast::POWERS_OF_TEN;

/// Digits of the widest numeric.
const DIGITS_MAX: i16 = 38;

/// Digits after the point of a quotient, at least: PostgreSQL's NUMERIC_MIN_SIG_DIGITS.
const DIVISION_SCALE_MIN: i16 = 16;

/// A product keeps at least this many digits after the point, if it has them:
/// half of 38 and one, so that two unconstrained numerics multiply exactly.
const PRODUCT_SCALE_MIN: i16 = 20;

/// 10³⁸, the first number that is too large.
const BOUND: u128 = POWERS_OF_TEN[38].unsigned_abs();

/// Precision and scale of a result.
pub(super) fn result_type(op: Operator, left: (u8, i8), right: (u8, i8)) -> (u8, i8) {
    let (p1, s1, p2, s2) = (
        i16::from(left.0),
        i16::from(left.1),
        i16::from(right.0),
        i16::from(right.1),
    );
    let (precision, scale) = match op {
        Operator::Multiply => {
            let before = p1 - s1 + p2 - s2;
            let cut = (DIGITS_MAX - before).max(s1).max(s2).max(PRODUCT_SCALE_MIN);
            (p1 + p2, (s1 + s2).min(cut))
        }
        Operator::Divide => (DIGITS_MAX, s1.max(s2).max(DIVISION_SCALE_MIN)),
        Operator::Modulo => ((p1 - s1).max(p2 - s2) + s1.max(s2), s1.max(s2)),
        _ => ((p1 - s1).max(p2 - s2) + s1.max(s2) + 1, s1.max(s2)),
    };
    (
        precision.clamp(1, DIGITS_MAX) as u8,
        scale.min(DIGITS_MAX) as i8,
    )
}

#[inline(always)]
fn bounded(value: i128) -> u8 {
    u8::from(value.unsigned_abs() >= BOUND)
}

fn power(exponent: i16) -> i128 {
    POWERS_OF_TEN[exponent.clamp(0, DIGITS_MAX) as usize]
}

/// Half away from zero.
#[inline(always)]
fn divide_rounded(numerator: i128, divisor: i128) -> i128 {
    let (quotient, remainder) = (numerator / divisor, numerator % divisor);
    let up = remainder.unsigned_abs() >= divisor.unsigned_abs() - remainder.unsigned_abs();
    let away = if (numerator < 0) == (divisor < 0) {
        1
    } else {
        -1
    };
    if up { quotient + away } else { quotient }
}

/// The same in 256 bits, for numerators that need them; flagged if the quotient needs more than 38 digits.
fn divide_wide(numerator: i256, divisor: i256) -> (i128, u8) {
    let (Some(quotient), Some(remainder)) = (
        numerator.checked_div(divisor),
        numerator.checked_rem(divisor),
    ) else {
        return (0, OVERFLOW);
    };
    let zero = i256::ZERO;
    let magnitude = |v: i256| if v < zero { v.wrapping_neg() } else { v };
    let up = magnitude(remainder) >= magnitude(divisor).wrapping_sub(magnitude(remainder));
    let away = if (numerator < zero) == (divisor < zero) {
        i256::ONE
    } else {
        i256::MINUS_ONE
    };
    let rounded = if up {
        quotient.wrapping_add(away)
    } else {
        quotient
    };
    match rounded.to_i128() {
        Some(value) => (value, bounded(value)),
        None => (0, OVERFLOW),
    }
}

fn decimal_type(value: &ColumnarValue) -> (u8, i8) {
    match value.data_type() {
        DataType::Decimal128(precision, scale) => (precision, scale),
        _ => (DIGITS_MAX as u8, 0),
    }
}

/// Evaluates `left op right` into `numeric(result)`.
pub(super) fn evaluate(
    op: Operator,
    left: &ColumnarValue,
    right: &ColumnarValue,
    result: (u8, i8),
    fail: &dyn Fn(u8) -> DataFusionError,
) -> Result<ColumnarValue> {
    let ((p1, s1), (p2, s2)) = (decimal_type(left), decimal_type(right));
    let (s1, s2, scale) = (i16::from(s1), i16::from(s2), i16::from(result.1));
    let (up1, up2) = (power(scale - s1), power(scale - s2));
    type D = Decimal128Type;
    let computed = match op {
        Operator::Plus | Operator::Minus => {
            let sign = if op == Operator::Plus { 1 } else { -1 };
            if s1 == s2 && p1 < 38 && p2 < 38 {
                // The sum of two numbers of 37 digits has at most 38.
                kernel::apply::<D>(left, right, fail, |a, b| {
                    (a.wrapping_add(b.wrapping_mul(sign)), 0)
                })
            } else {
                kernel::apply::<D>(left, right, fail, |a, b| {
                    add_scaled(a, up1, b.wrapping_mul(sign), up2)
                })
            }
        }
        Operator::Multiply if scale == s1 + s2 && p1 <= 18 && p2 <= 18 => {
            // Both fit 64 bits and the product 128: one machine multiplication.
            kernel::apply::<D>(left, right, fail, |a, b| {
                (i128::from(a as i64) * i128::from(b as i64), 0)
            })
        }
        Operator::Multiply if scale == s1 + s2 && u16::from(p1) + u16::from(p2) <= 38 => {
            kernel::apply::<D>(left, right, fail, |a, b| (a.wrapping_mul(b), 0))
        }
        Operator::Multiply => {
            let surplus = s1 + s2 - scale;
            kernel::apply::<D>(left, right, fail, |a, b| {
                let (product, bad) = multiply(a, b, surplus);
                // Nothing would be left of a number that is not 0.
                (
                    product,
                    bad | (u8::from(product == 0 && a != 0 && b != 0) * OVERFLOW),
                )
            })
        }
        // A literal such as 1e30 is one digit before thirty that are not written.
        Operator::Divide if scale + s2 < s1 => {
            let divisor = i256::from_i128(power(s1 - s2 - scale));
            kernel::apply::<D>(left, right, fail, |a, b| match b {
                0 => (0, ZERO),
                b => divide_wide(i256::from_i128(a), i256::from_i128(b).wrapping_mul(divisor)),
            })
        }
        Operator::Divide => {
            let shift = power(scale + s2 - s1);
            let tail = power(scale + s2 - s1 - DIGITS_MAX);
            kernel::apply::<D>(left, right, fail, |a, b| divide(a, shift, tail, b))
        }
        _ => kernel::apply::<D>(left, right, fail, |a, b| remainder(a, up1, b, up2)),
    }?;
    with_type(computed, result)
}

#[inline(always)]
fn add_scaled(a: i128, up_a: i128, b: i128, up_b: i128) -> (i128, u8) {
    let (a, bad_a) = a.overflowing_mul(up_a);
    let (b, bad_b) = b.overflowing_mul(up_b);
    let (sum, bad_sum) = a.overflowing_add(b);
    (sum, u8::from(bad_a | bad_b | bad_sum) | bounded(sum))
}

#[inline(always)]
fn multiply(a: i128, b: i128, surplus: i16) -> (i128, u8) {
    match a.checked_mul(b) {
        Some(product) if surplus <= 0 => (product, bounded(product)),
        Some(product) => {
            let value = divide_rounded(product, power(surplus));
            (value, bounded(value))
        }
        None => divide_wide(
            i256::from_i128(a).wrapping_mul(i256::from_i128(b)),
            i256::from_i128(power(surplus)),
        ),
    }
}

/// `a · shift · tail / b`; the shift is in two parts since it can exceed 38 digits.
#[inline(always)]
fn divide(a: i128, shift: i128, tail: i128, b: i128) -> (i128, u8) {
    if b == 0 {
        return (0, ZERO);
    }
    match a.checked_mul(shift).and_then(|v| v.checked_mul(tail)) {
        Some(numerator) => {
            let value = divide_rounded(numerator, b);
            (value, bounded(value))
        }
        None => {
            let wide = i256::from_i128(a).checked_mul(i256::from_i128(shift));
            match wide.and_then(|v| v.checked_mul(i256::from_i128(tail))) {
                Some(numerator) => divide_wide(numerator, i256::from_i128(b)),
                None => (0, OVERFLOW),
            }
        }
    }
}

#[inline(always)]
fn remainder(a: i128, up_a: i128, b: i128, up_b: i128) -> (i128, u8) {
    if b == 0 {
        return (0, ZERO);
    }
    match (a.checked_mul(up_a), b.checked_mul(up_b)) {
        (Some(a), Some(b)) => (a.wrapping_rem(b), 0),
        _ => (0, OVERFLOW),
    }
}

fn with_type(value: ColumnarValue, (precision, scale): (u8, i8)) -> Result<ColumnarValue> {
    Ok(match value {
        ColumnarValue::Array(array) => {
            let typed = array
                .as_primitive::<Decimal128Type>()
                .clone()
                .with_precision_and_scale(precision, scale)?;
            ColumnarValue::Array(Arc::new(typed))
        }
        ColumnarValue::Scalar(ScalarValue::Decimal128(value, _, _)) => {
            ColumnarValue::Scalar(ScalarValue::Decimal128(value, precision, scale))
        }
        other => other,
    })
}
