//! The types of number literals, and where they stay bare.

use aerostat_types::{ErrorKind, SqlError};
use datafusion::sql::sqlparser::ast::{
    CastKind, DataType, ExactNumberInfo, Expr, Interval, UnaryOperator, Value, ValueWithSpan,
    WindowFrameBound, WindowFrameUnits, WindowSpec,
};

use super::null;

/// Digits of the widest numeric.
const DIGITS_MAX: usize = 38;

/// The type of a number literal; nothing for one with a point or an exponent,
/// which DataFusion reads as numeric.
pub(super) fn literal_type(sign: &str, digits: &str) -> Result<Option<DataType>, SqlError> {
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(None);
    }
    let signed = format!("{sign}{digits}");
    if signed.parse::<i32>().is_ok() {
        return Ok(Some(DataType::Int4(None)));
    }
    if signed.parse::<i64>().is_ok() {
        return Ok(Some(DataType::Int8(None)));
    }
    let significant = digits.trim_start_matches('0').len();
    if significant > DIGITS_MAX {
        let message = format!("numeric literal of {significant} digits is not supported");
        return Err(SqlError::new(ErrorKind::FeatureNotSupported, message)
            .with_hint("The largest precision is 38."));
    }
    Ok(Some(DataType::Numeric(ExactNumberInfo::PrecisionAndScale(
        significant as u64,
        0,
    ))))
}

/// Whether a number with a point or an exponent has at most 38 digits.
pub(super) fn fits_numeric(digits: &str) -> bool {
    let (mantissa, exponent) = match digits.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().unwrap_or(i64::MAX)),
        None => (digits, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if !digits.contains(['.', 'e', 'E']) {
        return true;
    }
    let before = (whole.trim_start_matches('0').len() as i64)
        .saturating_add(exponent)
        .max(0);
    let after = (fraction.len() as i64).saturating_sub(exponent).max(0);
    before.saturating_add(after) <= DIGITS_MAX as i64
}

pub(super) fn is_number(expr: &Expr) -> bool {
    match expr {
        Expr::Value(ValueWithSpan {
            value: Value::Number(..),
            ..
        }) => true,
        Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr,
        } => is_number(expr),
        _ => false,
    }
}

/// Whether this is a literal with the cast that [`super::wrap`] puts around it.
pub(super) fn is_wrapped(expr: &Expr) -> bool {
    matches!(expr, Expr::Cast { kind: CastKind::DoubleColon, expr, data_type, .. }
        if matches!(data_type, DataType::Int4(None) | DataType::Int8(None) | DataType::Numeric(_)) && is_number(expr))
}

/// Takes the cast off again.
pub(super) fn bare(expr: &mut Expr) {
    if is_wrapped(expr)
        && let Expr::Cast { expr: inner, .. } = expr
    {
        *expr = std::mem::replace(inner, null());
    }
}

pub(super) fn bare_frame(spec: &mut WindowSpec) {
    let Some(frame) = &mut spec.window_frame else {
        return;
    };
    for bound in std::iter::once(&mut frame.start_bound).chain(frame.end_bound.as_mut()) {
        if let WindowFrameBound::Preceding(Some(offset))
        | WindowFrameBound::Following(Some(offset)) = bound
        {
            bare(offset);
            bare_interval(offset);
            if frame.units != WindowFrameUnits::Range
                && let Some(count) = count(offset)
            {
                **offset = Expr::value(Value::Number(count.to_string(), false));
            }
        }
    }
}

/// A constant that counts rows or groups, through casts to integers.
fn count(expr: &Expr) -> Option<u64> {
    match expr {
        Expr::Nested(inner) => count(inner),
        Expr::Cast {
            expr,
            data_type:
                DataType::SmallInt(None)
                | DataType::Int2(None)
                | DataType::Int(None)
                | DataType::Integer(None)
                | DataType::Int4(None)
                | DataType::BigInt(None)
                | DataType::Int8(None),
            ..
        } => count(expr),
        Expr::Value(ValueWithSpan {
            value: Value::Number(text, _) | Value::SingleQuotedString(text),
            ..
        }) => text.parse().ok(),
        _ => None,
    }
}

/// Window frames read an interval themselves, so it becomes a literal again.
fn bare_interval(expr: &mut Expr) {
    if let Expr::Cast {
        expr: inner,
        data_type: DataType::Interval { .. },
        ..
    } = expr
    {
        let value = Box::new(std::mem::replace(&mut **inner, null()));
        *expr = Expr::Interval(Interval {
            value,
            leading_field: None,
            leading_precision: None,
            last_field: None,
            fractional_seconds_precision: None,
        });
    }
}

/// `-(1::int4)` to `(-1)::int4`: one literal, whose type follows from its sign too.
pub(super) fn negate(expr: &mut Expr) -> Result<(), SqlError> {
    let Expr::UnaryOp { expr: wrapped, .. } = expr else {
        return Ok(());
    };
    let mut wrapped = std::mem::replace(&mut **wrapped, null());
    if let Expr::Cast {
        expr: inner,
        data_type,
        ..
    } = &mut wrapped
    {
        if let Expr::Value(ValueWithSpan {
            value: Value::Number(digits, _),
            ..
        }) = &**inner
            && let Some(signed) = literal_type("-", digits)?
        {
            *data_type = signed;
        }
        let number = Box::new(std::mem::replace(&mut **inner, null()));
        **inner = Expr::UnaryOp {
            op: UnaryOperator::Minus,
            expr: number,
        };
    }
    *expr = wrapped;
    Ok(())
}
