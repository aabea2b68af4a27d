//! Which function an operator means for the types of its operands.

use aerostat_types::{ErrorKind, SqlError, SqlType};
use datafusion::common::{DFSchema, DataFusionError, Result, ScalarValue};
use datafusion::functions_nested::concat::{array_append_udf, array_concat_udf, array_prepend_udf};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, ExprSchemable, Operator, lit};

use super::type_names::blank_padded;
use super::{Operand, compare, lists, literal_as, no_operator, operand};
use crate::functions::bounded::bounded;
use crate::functions::cast::{self, Zone};
use crate::functions::temporal::Temporal;
use crate::functions::{arithmetic, arrays, math, regexp, strings, temporal};

/// The expression for `left op right`, with PostgreSQL's meaning.
///
/// # Errors
/// `UndefinedFunction` where PostgreSQL has no such operator; errors of string
/// literals that are not values of the type the operator wants.
pub(super) fn resolve(
    op: Operator,
    left: Expr,
    right: Expr,
    schema: &DFSchema,
    zone: &Zone,
) -> Result<Expr> {
    if compare::is_comparison(op) {
        let (left, right) = compare::pair(op, left, right, schema, zone)?;
        if matches!(
            op,
            Operator::Lt | Operator::LtEq | Operator::Gt | Operator::GtEq
        ) && compare::list_type(&left, schema)?.is_some()
            && compare::list_type(&right, schema)?.is_some()
        {
            // For Arrow an item that is NULL is less than others.
            let order = arrays::call(arrays::Kind::Order, vec![left, right]);
            return Ok(binary(order, op, lit(0)));
        }
        return Ok(binary(left, op, right));
    }
    match op {
        Operator::Plus
        | Operator::Minus
        | Operator::Multiply
        | Operator::Divide
        | Operator::Modulo => {
            let is_null = is_known_null(&left, &right);
            let computed = arithmetic(op, left, right, schema, zone)?;
            null_if(is_null, computed, schema)
        }
        Operator::And | Operator::Or => {
            let left = condition(left, op, schema, zone)?;
            let right = condition(right, op, schema, zone)?;
            let right = lists::apart(op, &left, right, schema)?;
            Ok(binary(left, op, right))
        }
        Operator::BitwiseShiftLeft | Operator::BitwiseShiftRight => {
            shift(op, left, right, schema, zone)
        }
        Operator::BitwiseXor => exclusive_or(left, right, schema, zone),
        Operator::StringConcat => {
            let is_null = is_known_null(&left, &right);
            let joined = concatenate(left, right, schema, zone)?;
            let is_text =
                SqlType::of_arrow(&joined.get_type(schema)?).is_some_and(SqlType::is_text);
            null_if(is_null && is_text, joined, schema)
        }
        Operator::LikeMatch
        | Operator::ILikeMatch
        | Operator::NotLikeMatch
        | Operator::NotILikeMatch
        | Operator::RegexMatch
        | Operator::RegexIMatch
        | Operator::RegexNotMatch
        | Operator::RegexNotIMatch => {
            let name = op.to_string();
            let left = matched(left, &name, schema, zone)?;
            let right = text(right, &name, schema, zone)?;
            regexp::matching(left, op, right)
        }
        _ => Ok(binary(left, op, right)),
    }
}

fn exclusive_or(left: Expr, right: Expr, schema: &DFSchema, zone: &Zone) -> Result<Expr> {
    use SqlType::{BigInt, Integer, SmallInt};
    let (l, r) = (operand(&left, schema)?, operand(&right, schema)?);
    let (left, right) = match (&l, &r) {
        (
            Operand::Typed(SmallInt | Integer | BigInt),
            Operand::Typed(SmallInt | Integer | BigInt),
        ) => (left, right),
        (Operand::Unknown, Operand::Typed(ty @ (SmallInt | Integer | BigInt))) => {
            (literal_as(left, *ty, zone)?, right)
        }
        (Operand::Typed(ty @ (SmallInt | Integer | BigInt)), Operand::Unknown) => {
            let right = literal_as(right, *ty, zone)?;
            (left, right)
        }
        _ => return Err(no_operator(l.name(), "#", r.name())),
    };
    let call = ScalarFunction::new_udf(math::exclusive_or(), vec![left, right]);
    Ok(Expr::ScalarFunction(call))
}

fn shift(op: Operator, left: Expr, right: Expr, schema: &DFSchema, zone: &Zone) -> Result<Expr> {
    use SqlType::{BigInt, Integer, SmallInt};
    // No type of SQL has no sign: it is the planner's own, of GROUPING.
    if left.get_type(schema)?.is_unsigned_integer() {
        return Ok(binary(left, op, right));
    }
    let (l, r) = (operand(&left, schema)?, operand(&right, schema)?);
    let left = match l {
        Operand::Unknown => literal_as(left, Integer, zone)?,
        _ => left,
    };
    let right = match r {
        Operand::Unknown => literal_as(right, Integer, zone)?,
        _ => right,
    };
    match (&l, &r) {
        (
            Operand::Unknown | Operand::Typed(SmallInt | Integer | BigInt),
            Operand::Unknown | Operand::Typed(SmallInt | Integer),
        ) => {
            let function = math::shift(op == Operator::BitwiseShiftLeft);
            let call = ScalarFunction::new_udf(function, vec![left, right]);
            Ok(Expr::ScalarFunction(call))
        }
        _ => Err(no_operator(l.name(), &op.to_string(), r.name())),
    }
}

/// Whether an operator that is NULL for a NULL operand has one, and the other operand reads a
/// column. PostgreSQL does not compute such an operand, whose error nobody sees therefore; one
/// of constants it has computed before.
fn is_known_null(left: &Expr, right: &Expr) -> bool {
    let is_null = |expr: &Expr| match expr {
        Expr::Cast(Cast { expr, .. }) => is_null_literal(expr),
        other => is_null_literal(other),
    };
    is_null(left) && right.any_column_refs() || is_null(right) && left.any_column_refs()
}

fn is_null_literal(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(value, _) if value.is_null())
}

fn null_if(is_null: bool, expr: Expr, schema: &DFSchema) -> Result<Expr> {
    if !is_null {
        return Ok(expr);
    }
    let null = ScalarValue::try_from(&expr.get_type(schema)?)?;
    Ok(Expr::Literal(null, None))
}

fn binary(left: Expr, op: Operator, right: Expr) -> Expr {
    Expr::BinaryExpr(BinaryExpr::new(Box::new(left), op, Box::new(right)))
}

/// An operand of AND and OR.
fn condition(expr: Expr, op: Operator, schema: &DFSchema, zone: &Zone) -> Result<Expr> {
    match operand(&expr, schema)? {
        Operand::Unknown => literal_as(expr, SqlType::Boolean, zone),
        Operand::Typed(SqlType::Boolean) | Operand::Foreign => Ok(expr),
        Operand::Typed(ty) => Err(super::raise(
            ErrorKind::DatatypeMismatch,
            format!(
                "argument of {op} must be type boolean, not type {}",
                ty.plain_name()
            ),
        )),
    }
}

/// An operand of LIKE and the regular expression operators.
pub(super) fn text(expr: Expr, operator: &str, schema: &DFSchema, zone: &Zone) -> Result<Expr> {
    match operand(&expr, schema)? {
        Operand::Unknown => literal_as(expr, SqlType::Text, zone),
        Operand::Typed(ty) if !ty.is_text() => {
            Err(no_operator(ty.plain_name(), operator, "unknown"))
        }
        _ => Ok(expr),
    }
}

/// What LIKE and the regular expression operators match: a `char(n)` with its blanks.
pub(super) fn matched(expr: Expr, operator: &str, schema: &DFSchema, zone: &Zone) -> Result<Expr> {
    filled(text(expr, operator, schema, zone)?, schema)
}

/// A `char(n)` with its blanks; others as they are.
pub(super) fn filled(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    let Operand::Typed(ty) = operand(&expr, schema)? else {
        return Ok(expr);
    };
    let Some(length) = blank_padded(ty) else {
        return Ok(expr);
    };
    let length = ScalarValue::Int32(i32::try_from(length).ok());
    let args = vec![expr, Expr::Literal(length, None)];
    let call = ScalarFunction::new_udf(strings::with_blanks(), args);
    Ok(Expr::ScalarFunction(call))
}

fn concatenate(left: Expr, right: Expr, schema: &DFSchema, zone: &Zone) -> Result<Expr> {
    let (l, r) = (operand(&left, schema)?, operand(&right, schema)?);
    let is_text = |side: &Operand| {
        matches!(side, Operand::Unknown) || matches!(side, Operand::Typed(ty) if ty.is_text())
    };
    match (&l, &r) {
        (Operand::Foreign, _) | (_, Operand::Foreign) => {
            return concatenate_lists(left, right, schema, zone);
        }
        (Operand::Typed(SqlType::Bytea), Operand::Typed(SqlType::Bytea)) => {
            return Ok(concatenated(left, right));
        }
        _ if !is_text(&l) && !is_text(&r) => return Err(no_operator(l.name(), "||", r.name())),
        _ => {}
    }
    let as_text = |expr: Expr, side: &Operand| match side {
        Operand::Unknown => literal_as(expr, SqlType::Text, zone),
        Operand::Typed(ty) if !ty.is_text() => {
            let field = std::sync::Arc::new(SqlType::Text.field("", true));
            Ok(Expr::Cast(Cast::new_from_field(Box::new(expr), field)))
        }
        _ => Ok(expr),
    };
    Ok(concatenated(as_text(left, &l)?, as_text(right, &r)?))
}

fn concatenated(left: Expr, right: Expr) -> Expr {
    let call = ScalarFunction::new_udf(strings::concatenation(), vec![left, right]);
    Expr::ScalarFunction(call)
}

fn array_concat(lists: Vec<Expr>) -> Expr {
    bounded(array_concat_udf()).call(lists)
}

fn array_append(list: Expr, item: Expr) -> Expr {
    bounded(array_append_udf()).call(vec![list, item])
}

fn array_prepend(item: Expr, list: Expr) -> Expr {
    bounded(array_prepend_udf()).call(vec![item, list])
}

/// Arrays one behind the other, or an array and an item. What has no type yet is an array, too.
fn concatenate_lists(left: Expr, right: Expr, schema: &DFSchema, zone: &Zone) -> Result<Expr> {
    let (l, r) = (
        compare::list_type(&left, schema)?,
        compare::list_type(&right, schema)?,
    );
    Ok(match (l, r) {
        (Some(_), None) if is_null(&right) => left,
        (None, Some(_)) if is_null(&left) => right,
        (Some(ty), None) => match compare::as_list(&right, &ty, zone)? {
            Some(right) => array_concat(vec![left, right]),
            None => array_append(left, right),
        },
        (None, Some(ty)) => match compare::as_list(&left, &ty, zone)? {
            Some(left) => array_concat(vec![left, right]),
            None => array_prepend(left, right),
        },
        (Some(_), Some(_)) => array_concat(vec![left, right]),
        (None, None) => binary(left, Operator::StringConcat, right),
    })
}

fn arithmetic(
    op: Operator,
    left: Expr,
    right: Expr,
    schema: &DFSchema,
    zone: &Zone,
) -> Result<Expr> {
    let (l, r) = (operand(&left, schema)?, operand(&right, schema)?);
    let (left, l, right, r) = match (&l, &r) {
        (Operand::Unknown, Operand::Unknown) if is_null(&left) || is_null(&right) => {
            let typed = |expr| literal_as(expr, SqlType::Integer, zone);
            (
                typed(left)?,
                Operand::Typed(SqlType::Integer),
                typed(right)?,
                Operand::Typed(SqlType::Integer),
            )
        }
        (Operand::Unknown, Operand::Unknown) => {
            return Err(ambiguous(&format!("unknown {op} unknown")));
        }
        (Operand::Unknown, Operand::Typed(ty)) => {
            let wanted = counterpart(op, *ty, &left, true);
            (
                literal_as(left, wanted, zone)?,
                Operand::Typed(wanted),
                right,
                r,
            )
        }
        (Operand::Typed(ty), Operand::Unknown) => {
            let wanted = counterpart(op, *ty, &right, false);
            (
                left,
                l,
                literal_as(right, wanted, zone)?,
                Operand::Typed(wanted),
            )
        }
        _ => (left, l, right, r),
    };
    let (Operand::Typed(l), Operand::Typed(r)) = (&l, &r) else {
        return Ok(binary(left, op, right));
    };
    if cast::is_number(*l) && cast::is_number(*r) {
        return Ok(arithmetic::call(op, left, right));
    }
    match temporal_operator(op, *l, *r) {
        Some((operator, swapped)) => {
            let operands = if swapped {
                vec![(right, *r), (left, *l)]
            } else {
                vec![(left, *l), (right, *r)]
            };
            temporal_call(operator, operands, zone)
        }
        None => Err(no_operator(l.plain_name(), &op.to_string(), r.plain_name())),
    }
}

/// PostgreSQL's error for operands that several operators would take.
fn ambiguous(operation: &str) -> DataFusionError {
    let message = format!("operator is not unique: {operation}");
    super::external(SqlError::new(ErrorKind::AmbiguousFunction, message).with_hint(
        "Could not choose a best candidate operator. You might need to add explicit type casts.",
    ))
}

fn is_null(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(value, _) if value.is_null())
}

/// What an unknown operand beside one of type `ty` is taken for.
fn counterpart(op: Operator, ty: SqlType, unknown: &Expr, unknown_is_left: bool) -> SqlType {
    match (ty, op) {
        (SqlType::Timestamp | SqlType::TimestampTz | SqlType::Time, Operator::Plus) => {
            SqlType::Interval
        }
        (SqlType::Date, Operator::Plus) => match unknown {
            Expr::Literal(ScalarValue::Utf8(Some(text)), _)
                if text.trim().parse::<i32>().is_err() =>
            {
                SqlType::Interval
            }
            _ => SqlType::Integer,
        },
        (SqlType::Interval, Operator::Multiply | Operator::Divide) if !unknown_is_left => {
            SqlType::Double
        }
        (SqlType::Interval, Operator::Multiply) => SqlType::Double,
        (SqlType::Numeric { .. }, _) => aerostat_types::NUMERIC_DEFAULT,
        (other, _) => other,
    }
}

/// The function for an operator on dates, times and intervals, and whether its operands change places.
fn temporal_operator(op: Operator, left: SqlType, right: SqlType) -> Option<(Temporal, bool)> {
    use SqlType::{BigInt, Date, Integer, Interval, SmallInt, Time, Timestamp, TimestampTz};
    let found = |operator| Some((operator, false));
    let swapped = |operator| Some((operator, true));
    match (op, left, right) {
        (Operator::Plus, Date, SmallInt | Integer | BigInt) => found(Temporal::DatePlusDays),
        (Operator::Plus, SmallInt | Integer | BigInt, Date) => swapped(Temporal::DatePlusDays),
        (Operator::Minus, Date, SmallInt | Integer | BigInt) => found(Temporal::DateMinusDays),
        (Operator::Minus, Date, Date) => found(Temporal::DateMinusDate),
        (Operator::Plus, Date, Time) => found(Temporal::DatePlusTime),
        (Operator::Plus, Time, Date) => swapped(Temporal::DatePlusTime),
        (Operator::Plus, Date | Timestamp, Interval) => found(Temporal::TimestampPlusInterval),
        (Operator::Plus, Interval, Date | Timestamp) => swapped(Temporal::TimestampPlusInterval),
        (Operator::Minus, Date | Timestamp, Interval) => found(Temporal::TimestampMinusInterval),
        (Operator::Plus, TimestampTz, Interval) => found(Temporal::TimestampTzPlusInterval),
        (Operator::Plus, Interval, TimestampTz) => swapped(Temporal::TimestampTzPlusInterval),
        (Operator::Minus, TimestampTz, Interval) => found(Temporal::TimestampTzMinusInterval),
        (Operator::Minus, TimestampTz, Timestamp | TimestampTz | Date)
        | (Operator::Minus, Timestamp | Date, TimestampTz) => {
            found(Temporal::TimestampTzMinusTimestampTz)
        }
        (Operator::Minus, Timestamp | Date, Timestamp | Date) => {
            found(Temporal::TimestampMinusTimestamp)
        }
        (Operator::Plus, Time, Interval) => found(Temporal::TimePlusInterval),
        (Operator::Plus, Interval, Time) => swapped(Temporal::TimePlusInterval),
        (Operator::Minus, Time, Interval) => found(Temporal::TimeMinusInterval),
        (Operator::Minus, Time, Time) => found(Temporal::TimeMinusTime),
        (Operator::Plus, Interval, Interval) => found(Temporal::IntervalPlusInterval),
        (Operator::Minus, Interval, Interval) => found(Temporal::IntervalMinusInterval),
        (Operator::Multiply, Interval, number) if cast::is_number(number) => {
            found(Temporal::IntervalTimesNumber)
        }
        (Operator::Multiply, number, Interval) if cast::is_number(number) => {
            swapped(Temporal::IntervalTimesNumber)
        }
        (Operator::Divide, Interval, number) if cast::is_number(number) => {
            found(Temporal::IntervalOverNumber)
        }
        _ => None,
    }
}

/// The call, evaluated at once over literals, so that `date '…' - interval '…'` is a constant for the scan.
fn temporal_call(operator: Temporal, operands: Vec<(Expr, SqlType)>, zone: &Zone) -> Result<Expr> {
    let wanted = operator.operands();
    let mut args = Vec::with_capacity(operands.len());
    for ((expr, ty), wanted) in operands.into_iter().zip(wanted) {
        let from = ty.field("", true);
        let target = std::sync::Arc::new(wanted.field("", true));
        args.push(if ty.arrow() == wanted.arrow() {
            expr
        } else {
            cast::resolve(expr, &from, &target, zone)?
        });
    }
    Ok(fold(operator, &args, zone).unwrap_or_else(|| operator.call(args)))
}

/// The value of an operator over literals that do not depend on the zone.
pub(super) fn fold(operator: Temporal, args: &[Expr], zone: &Zone) -> Option<Expr> {
    if operator.operands().contains(&SqlType::TimestampTz) {
        return None;
    }
    let arrays = args
        .iter()
        .map(|arg| match arg {
            Expr::Literal(value, _) if !value.is_null() => value.to_array().ok(),
            _ => None,
        })
        .collect::<Option<Vec<_>>>()?;
    let types_fit = arrays
        .iter()
        .zip(operator.operands())
        .all(|(array, ty)| *array.data_type() == ty.arrow());
    if !types_fit {
        return None;
    }
    let result = temporal::evaluate(operator, &arrays, zone).ok()?;
    Some(Expr::Literal(
        ScalarValue::try_from_array(&result, 0).ok()?,
        None,
    ))
}

/// `- operand`, folded where the operand is a number.
pub(super) fn negate(expr: Expr, schema: &DFSchema, zone: &Zone) -> Result<Expr> {
    if let Expr::Literal(value, metadata) = &expr
        && let Some(negated) = negate_literal(value)
    {
        return Ok(Expr::Literal(negated, metadata.clone()));
    }
    match operand(&expr, schema)? {
        Operand::Unknown if matches!(expr, Expr::Literal(..)) => Err(ambiguous("- unknown")),
        Operand::Unknown => Ok(arithmetic::negate(literal_as(expr, SqlType::Double, zone)?)),
        Operand::Typed(ty) if !cast::is_number(ty) && ty != SqlType::Interval => {
            Err(arithmetic::no_negation(ty.plain_name()))
        }
        _ => Ok(arithmetic::negate(expr)),
    }
}

fn negate_literal(value: &ScalarValue) -> Option<ScalarValue> {
    match value {
        ScalarValue::Int16(Some(v)) => v.checked_neg().map(ScalarValue::from),
        ScalarValue::Int32(Some(v)) => v.checked_neg().map(ScalarValue::from),
        ScalarValue::Int64(Some(v)) => v.checked_neg().map(ScalarValue::from),
        ScalarValue::Decimal128(Some(v), p, s) => Some(ScalarValue::Decimal128(Some(-v), *p, *s)),
        ScalarValue::Float64(Some(v)) if !v.is_nan() => Some(ScalarValue::from(-v)),
        _ => None,
    }
}
