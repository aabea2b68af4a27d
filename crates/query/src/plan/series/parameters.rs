//! The types of parameters of `generate_series` without a cast: they have the type of its other
//! arguments, as PostgreSQL finds from the function's signatures.
//!
//! | written | `$n` |
//! |---|---|
//! | `generate_series(1, $1)` | `integer`, the widest type among the other arguments |
//! | `generate_series($1, date '2024-01-31', '1 day'::interval)` | `timestamp with time zone` |
//! | `generate_series(now(), $1, $2)` | left open: the type of a call is not known here |

use aerostat_api::ParameterType;
use aerostat_types::{NUMERIC_DEFAULT, SqlType};
use datafusion::sql::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, TypedString, UnaryOperator, Value,
};

use super::super::parameters::{bare_placeholder, declare, parameter_type};

/// Notes the types of the parameters among the arguments of a call.
pub(in crate::plan) fn declare_bounds(
    types: &mut Vec<Option<ParameterType>>,
    arguments: &[FunctionArg],
) {
    let mut open = Vec::new();
    let (mut known, mut has_step) = (None, false);
    for (at, argument) in arguments.iter().enumerate() {
        let FunctionArg::Unnamed(FunctionArgExpr::Expr(argument)) = argument else {
            return;
        };
        match argument_type(types, argument) {
            Argument::Parameter(n) => open.push((at, n)),
            Argument::Typed(SqlType::Interval) => has_step = true,
            Argument::Typed(ty) => known = Some(known.map_or(ty, |other| wider(other, ty))),
            Argument::Unknown => {}
            Argument::Other => return,
        }
    }
    // Of the two timestamp types PostgreSQL prefers the one with a zone.
    let Some(known) = known.or(has_step.then_some(SqlType::TimestampTz)) else {
        return;
    };
    let is_time = matches!(known, SqlType::Timestamp | SqlType::TimestampTz);
    for (at, n) in open {
        let ty = match is_time && at == 2 {
            true => SqlType::Interval,
            false => known,
        };
        declare(types, n, ParameterType::Value(ty));
    }
}

enum Argument {
    /// `$n`, whose type is not known.
    Parameter(usize),
    Typed(SqlType),
    /// A string literal or NULL.
    Unknown,
    /// An expression whose type only planning finds out.
    Other,
}

fn argument_type(types: &[Option<ParameterType>], argument: &Expr) -> Argument {
    if let Some(n) = bare_placeholder(argument) {
        let declared = types.get(n - 1).copied().flatten();
        return match declared.map(|ty| ty.value()) {
            Some(Some(ty)) => Argument::Typed(ty),
            Some(None) => Argument::Other,
            None => Argument::Parameter(n),
        };
    }
    let named = |data_type| match parameter_type(data_type).map(|ty| ty.value()) {
        // There are no signatures with dates or short numbers.
        Ok(Some(SqlType::Date)) => Argument::Typed(SqlType::TimestampTz),
        Ok(Some(SqlType::SmallInt)) => Argument::Typed(SqlType::Integer),
        Ok(Some(ty)) => Argument::Typed(ty),
        _ => Argument::Other,
    };
    match argument {
        Expr::Nested(inner)
        | Expr::UnaryOp {
            op: UnaryOperator::Minus | UnaryOperator::Plus,
            expr: inner,
        } => argument_type(types, inner),
        Expr::Cast { data_type, .. } | Expr::TypedString(TypedString { data_type, .. }) => {
            named(data_type)
        }
        Expr::Interval(_) => Argument::Typed(SqlType::Interval),
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) if digits.parse::<i32>().is_ok() => {
                Argument::Typed(SqlType::Integer)
            }
            Value::Number(digits, _) if digits.parse::<i64>().is_ok() => {
                Argument::Typed(SqlType::BigInt)
            }
            Value::Number(..) => Argument::Typed(NUMERIC_DEFAULT),
            Value::SingleQuotedString(_) | Value::Null => Argument::Unknown,
            _ => Argument::Other,
        },
        _ => Argument::Other,
    }
}

/// The type that two bounds share.
fn wider(one: SqlType, other: SqlType) -> SqlType {
    let rank = |ty| match ty {
        SqlType::Integer | SqlType::Timestamp => 0,
        SqlType::BigInt => 1,
        _ => 2,
    };
    match rank(other) > rank(one) {
        true => other,
        false => one,
    }
}
