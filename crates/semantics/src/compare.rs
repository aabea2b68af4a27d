//! Comparisons: which types can be compared, and what each side becomes.
//!
//! A comparison stays DataFusion's operator, with the column bare on its side wherever that is
//! exact, since only then can a scan use it: the constant is converted to the column's type, not
//! the column to the constant's.

use std::sync::Arc;

use aerostat_types::{ErrorKind, SQL_TYPE_KEY, SqlType};
use arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{DFSchema, Result, ScalarValue};
use datafusion::logical_expr::expr::{Exists, InSubquery};
use datafusion::logical_expr::{Cast, Expr, ExprSchemable, Operator};

use super::{Operand, equal, literal_as, no_operator, operand, raise};
use crate::functions::cast::DAY_MICROS;
use crate::functions::cast::{self, POWERS_OF_TEN, Zone, rescale};
use crate::functions::common_type::{common_time, common_type};
use crate::functions::temporal::Temporal;

pub(super) fn is_comparison(op: Operator) -> bool {
    matches!(
        op,
        Operator::Eq
            | Operator::NotEq
            | Operator::Lt
            | Operator::LtEq
            | Operator::Gt
            | Operator::GtEq
            | Operator::IsDistinctFrom
            | Operator::IsNotDistinctFrom
    )
}

/// The two sides as they are compared.
///
/// # Errors
/// `UndefinedFunction` for types that do not compare; errors of string literals
/// that are not values of the other side's type.
pub(super) fn pair(
    op: Operator,
    left: Expr,
    right: Expr,
    schema: &DFSchema,
    zone: &Zone,
) -> Result<(Expr, Expr)> {
    let (left, right) = sides(op, left, right, schema, zone)?;
    Ok((cast::shown(left), cast::shown(right)))
}

fn sides(
    op: Operator,
    left: Expr,
    right: Expr,
    schema: &DFSchema,
    zone: &Zone,
) -> Result<(Expr, Expr)> {
    let (l, r) = (operand(&left, schema)?, operand(&right, schema)?);
    match (l, r) {
        (Operand::Unknown, Operand::Unknown) => Ok((
            as_text_parameter(left, zone)?,
            as_text_parameter(right, zone)?,
        )),
        (Operand::Unknown, Operand::Typed(ty)) => {
            typed(op, literal_beside(left, ty, zone)?, right, schema, zone)
        }
        (Operand::Typed(ty), Operand::Unknown) => {
            typed(op, left, literal_beside(right, ty, zone)?, schema, zone)
        }
        (Operand::Typed(_), Operand::Typed(_)) => typed(op, left, right, schema, zone),
        (Operand::Unknown, Operand::Foreign) => {
            let left = beside_list(left, &right, schema, zone)?;
            Ok((left, right))
        }
        (Operand::Foreign, Operand::Unknown) => {
            let right = beside_list(right, &left, schema, zone)?;
            Ok((left, right))
        }
        (Operand::Foreign, Operand::Foreign) => {
            Ok((equal::key(left, schema)?, equal::key(right, schema)?))
        }
        _ => Ok((left, right)),
    }
}

/// A string literal beside a list, as such a list.
fn beside_list(literal: Expr, other: &Expr, schema: &DFSchema, zone: &Zone) -> Result<Expr> {
    let (_, field) = other.to_field(schema)?;
    match field.data_type() {
        list @ DataType::List(_) => Ok(as_list(&literal, list, zone)?.unwrap_or(literal)),
        _ => Ok(literal),
    }
}

/// An expression's type if it is an array.
pub(super) fn list_type(expr: &Expr, schema: &DFSchema) -> Result<Option<DataType>> {
    let (_, field) = expr.to_field(schema)?;
    let is_list = matches!(field.data_type(), DataType::List(_));
    Ok(is_list.then(|| field.data_type().clone()))
}

/// A string literal beside a list, as such a list; nothing for other expressions.
pub(super) fn as_list(expr: &Expr, list: &DataType, zone: &Zone) -> Result<Option<Expr>> {
    let value = match expr {
        Expr::Literal(ScalarValue::Utf8(Some(text)), _) => cast::list_literal(text, list, zone)?,
        Expr::Literal(ScalarValue::Utf8(None) | ScalarValue::Null, _) => {
            ScalarValue::try_new_null(list)?
        }
        _ => return Ok(None),
    };
    Ok(Some(Expr::Literal(value, None)))
}

/// A literal or parameter beside a value of `ty` as an operator takes it: there are none of varchars, so
/// that a parameter beside one is a text.
pub(super) fn literal_beside(expr: Expr, ty: SqlType, zone: &Zone) -> Result<Expr> {
    match (&expr, ty) {
        (Expr::Placeholder(_), SqlType::Varchar(_)) => literal_as(expr, SqlType::Text, zone),
        _ => literal_as(expr, ty, zone),
    }
}

fn as_text_parameter(expr: Expr, zone: &Zone) -> Result<Expr> {
    match expr {
        Expr::Placeholder(_) => literal_as(expr, SqlType::Text, zone),
        other => Ok(other),
    }
}

fn typed(
    op: Operator,
    left: Expr,
    right: Expr,
    schema: &DFSchema,
    zone: &Zone,
) -> Result<(Expr, Expr)> {
    let (l, r) = match (operand(&left, schema)?, operand(&right, schema)?) {
        (Operand::Typed(l), Operand::Typed(r)) => (l, r),
        _ => return Ok((left, right)),
    };
    if l == SqlType::Interval && r == SqlType::Interval {
        // An interval orders by its length with months of 30 days, not field by field.
        // NULL becomes a NULL of that length, so that the sides stay of one type.
        let key = |side: Expr| Temporal::IntervalOrder.call(vec![side]);
        return Ok((key(left), key(right)));
    }
    match (l, r) {
        (SqlType::Char(_), SqlType::Varchar(_)) => {
            return Ok((left, without_blanks(right, r, zone)?));
        }
        (SqlType::Varchar(_), SqlType::Char(_)) => {
            return Ok((without_blanks(left, l, zone)?, right));
        }
        _ => {}
    }
    if l.is_text() && r.is_text() || l.oid() == r.oid() && !matches!(l, SqlType::Numeric { .. }) {
        return Ok((left, right));
    }
    if cast::is_number(l) && cast::is_number(r) {
        return Ok(numbers(left, l, right, r));
    }
    match common_time(l, r) {
        Some(common) => times((left, l), (right, r), common, zone),
        None => Err(no_operator(l.plain_name(), &op.to_string(), r.plain_name())),
    }
}

/// A varchar beside a `char(n)` compares as one: its trailing blanks do not count.
fn without_blanks(expr: Expr, from: SqlType, zone: &Zone) -> Result<Expr> {
    cast::resolve(
        expr,
        &from.field("", true),
        &Arc::new(SqlType::BPCHAR.field("", true)),
        zone,
    )
}

fn is_null(expr: &Expr) -> bool {
    matches!(expr, Expr::Literal(value, _) if value.is_null())
}

fn numbers(left: Expr, l: SqlType, right: Expr, r: SqlType) -> (Expr, Expr) {
    if let Expr::Literal(value, _) = &right
        && let Some(exact) = exact_literal(value, l)
    {
        return (left, Expr::Literal(exact, None));
    }
    if let Expr::Literal(value, _) = &left
        && let Some(exact) = exact_literal(value, r)
    {
        return (Expr::Literal(exact, None), right);
    }
    let is_float = |ty| matches!(ty, SqlType::Real | SqlType::Double);
    if is_float(l) || is_float(r) {
        let double = |expr: Expr, ty| match ty {
            SqlType::Double => expr,
            _ => Expr::Cast(Cast::new(Box::new(expr), DataType::Float64)),
        };
        return (double(left, l), double(right, r));
    }
    // Integers and numerics: DataFusion widens as PostgreSQL does.
    (left, right)
}

/// A number literal as a value of `ty`, if it is one.
fn exact_literal(value: &ScalarValue, ty: SqlType) -> Option<ScalarValue> {
    let (digits, scale) = match value {
        ScalarValue::Int16(Some(v)) => (i128::from(*v), 0),
        ScalarValue::Int32(Some(v)) => (i128::from(*v), 0),
        ScalarValue::Int64(Some(v)) => (i128::from(*v), 0),
        ScalarValue::Decimal128(Some(v), _, scale) => (*v, *scale),
        _ => return None,
    };
    match ty {
        SqlType::SmallInt => whole(digits, scale)
            .and_then(|v| i16::try_from(v).ok())
            .map(ScalarValue::from),
        SqlType::Integer => whole(digits, scale)
            .and_then(|v| i32::try_from(v).ok())
            .map(ScalarValue::from),
        SqlType::BigInt => whole(digits, scale)
            .and_then(|v| i64::try_from(v).ok())
            .map(ScalarValue::from),
        SqlType::Double => Some(ScalarValue::Float64(Some(cast::decimal_to_f64(
            digits, scale,
        )))),
        SqlType::Numeric {
            precision,
            scale: to,
        } => {
            let moved = rescale(digits, scale, precision, to)?;
            let back = rescale(moved, to, 38, scale)?;
            (back == digits).then_some(ScalarValue::Decimal128(Some(moved), precision, to))
        }
        _ => None,
    }
}

fn whole(digits: i128, scale: i8) -> Option<i128> {
    let power = POWERS_OF_TEN.get(usize::try_from(scale).ok()?)?;
    (digits % power == 0).then_some(digits / power)
}

fn times(
    (left, l): (Expr, SqlType),
    (right, r): (Expr, SqlType),
    common: SqlType,
    zone: &Zone,
) -> Result<(Expr, Expr)> {
    if l == SqlType::Date
        && let Some(date) = midnight(&right)
    {
        return Ok((left, date));
    }
    if r == SqlType::Date
        && let Some(date) = midnight(&left)
    {
        return Ok((date, right));
    }
    let bring = |expr: Expr, ty: SqlType| -> Result<Expr> {
        if ty == common {
            return Ok(expr);
        }
        cast::resolve(
            expr,
            &ty.field("", true),
            &Arc::new(common.field("", true)),
            zone,
        )
    };
    Ok((bring(left, l)?, bring(right, r)?))
}

/// A timestamp constant without time of day as a date, so that a date column
/// beside it stays bare. Exact for every comparison.
fn midnight(expr: &Expr) -> Option<Expr> {
    match expr {
        Expr::Literal(ScalarValue::TimestampMicrosecond(Some(micros), None), _)
            if micros % DAY_MICROS == 0 =>
        {
            let day = i32::try_from(micros / DAY_MICROS).ok()?;
            Some(Expr::Literal(ScalarValue::Date32(Some(day)), None))
        }
        _ => None,
    }
}

/// The items of IN as they are compared: where several of them name no column, these and what is
/// looked for have a type in common, which the items become (PostgreSQL's `transformAExprIn`).
/// What the others are, and what has no such type, is compared as it is.
///
/// # Errors
/// Those of string literals that are not values of the type.
pub(super) fn listed(
    left: &Expr,
    items: Vec<Expr>,
    schema: &DFSchema,
    zone: &Zone,
) -> Result<Vec<Expr>> {
    let are_columns = items.iter().map(names_column);
    let are_columns = are_columns.collect::<Result<Vec<bool>>>()?;
    let together = items.iter().zip(&are_columns);
    let together = together.filter(|(_, is_column)| !**is_column);
    if together.clone().count() < 2 {
        return Ok(items);
    }
    let mut common: Option<SqlType> = None;
    for one in std::iter::once(left).chain(together.map(|(item, _)| item)) {
        common = match (operand(one, schema)?, common) {
            (Operand::Unknown, so_far) => so_far,
            (Operand::Typed(ty), None) => Some(ty),
            (Operand::Typed(ty), Some(so_far)) => listed_type(so_far, ty),
            (Operand::Foreign, _) => return Ok(items),
        };
        if common.is_none() && operand(one, schema)? != Operand::Unknown {
            return Ok(items);
        }
    }
    let Some(common) = common else {
        return Ok(items);
    };
    let typed = items.into_iter().zip(are_columns);
    let typed = typed.map(|(item, is_column)| {
        if is_column {
            return Ok(item);
        }
        match operand(&item, schema)? {
            Operand::Unknown if !is_null(&item) => literal_as(item, without_digits(common), zone),
            Operand::Typed(ty) if must_cast(ty, common) || pads(ty) != pads(common) => {
                let (_, from) = item.to_field(schema)?;
                cast::resolve(item, &from, &Arc::new(named_field(common)), zone)
            }
            _ => Ok(item),
        }
    });
    typed.collect()
}

/// [`common_type`] among the items of IN, where a `char(n)` that comes first stays one.
fn listed_type(so_far: SqlType, ty: SqlType) -> Option<SqlType> {
    match so_far {
        SqlType::Char(_) if ty.is_text() && ty != so_far => Some(SqlType::BPCHAR),
        _ => common_type(so_far, ty),
    }
}

/// Whether the blanks at the end of such a value count for nothing.
fn pads(ty: SqlType) -> bool {
    matches!(ty, SqlType::Char(_))
}

/// Whether an expression names a column of its own query, also in a subquery.
fn names_column(expr: &Expr) -> Result<bool> {
    expr.exists(|part| {
        Ok(match part {
            Expr::Column(_) => true,
            Expr::ScalarSubquery(subquery)
            | Expr::Exists(Exists { subquery, .. })
            | Expr::InSubquery(InSubquery { subquery, .. }) => {
                !subquery.outer_ref_columns.is_empty()
            }
            _ => false,
        })
    })
}

/// Alternatives of one type, and the kind of text that they are.
pub(super) struct Unified {
    pub(super) alternatives: Vec<Expr>,
    /// The type of what is chosen among them, if it is a text that is not `text`.
    pub(super) text: Option<SqlType>,
}

/// Brings the alternatives of CASE, COALESCE, GREATEST and their like to one type. Among
/// integers and numerics DataFusion widens as PostgreSQL does.
///
/// # Errors
/// `DatatypeMismatch` where types of different kinds meet.
pub(super) fn unify(
    construct: &str,
    alternatives: Vec<Expr>,
    schema: &DFSchema,
    zone: &Zone,
) -> Result<Unified> {
    let mut common: Option<SqlType> = None;
    let mut literals = false;
    for alternative in &alternatives {
        match (operand(alternative, schema)?, common) {
            (Operand::Foreign, _) => return beside_lists(alternatives, schema, zone),
            (Operand::Unknown, _) => literals |= !is_null(alternative),
            (Operand::Typed(ty), None) => common = Some(ty),
            (Operand::Typed(ty), Some(so_far)) => {
                common = Some(common_type(so_far, ty).ok_or_else(|| {
                    let message = format!(
                        "{construct} types {} and {} cannot be matched",
                        so_far.plain_name(),
                        ty.plain_name()
                    );
                    raise(ErrorKind::DatatypeMismatch, message)
                })?);
            }
        }
    }
    let common = common.unwrap_or(SqlType::Text);
    let text = match common {
        SqlType::Varchar(_) if literals => Some(SqlType::Varchar(None)),
        SqlType::Varchar(_) => Some(common),
        // Beside a literal, which has no length, blanks could not be told from none.
        SqlType::Char(_) if !literals && common != SqlType::BPCHAR => Some(common),
        _ => None,
    };
    let alternatives =
        alternatives
            .into_iter()
            .map(|alternative| match operand(&alternative, schema)? {
                Operand::Unknown if is_null(&alternative) => Ok(alternative),
                Operand::Unknown => literal_as(alternative, without_digits(common), zone),
                Operand::Typed(ty) if must_cast(ty, common) => {
                    let target = Arc::new(common.field("", true));
                    let (_, from) = alternative.to_field(schema)?;
                    cast::resolve(alternative, &from, &target, zone)
                }
                _ => Ok(alternative),
            });
    Ok(Unified {
        alternatives: alternatives.collect::<Result<_>>()?,
        text,
    })
}

/// Alternatives of which one is a list: string literals beside it are lists, too.
fn beside_lists(alternatives: Vec<Expr>, schema: &DFSchema, zone: &Zone) -> Result<Unified> {
    let mut list = None;
    for alternative in &alternatives {
        if operand(alternative, schema)? == Operand::Foreign {
            list = Some(alternative.clone());
            break;
        }
    }
    let typed = alternatives
        .into_iter()
        .map(|one| match (operand(&one, schema)?, &list) {
            (Operand::Unknown, Some(list)) => beside_list(one, list, schema, zone),
            _ => Ok(one),
        });
    Ok(Unified {
        alternatives: typed.collect::<Result<_>>()?,
        text: None,
    })
}

/// Whether a value of `ty` becomes one of `common` by a cast of ours.
fn must_cast(ty: SqlType, common: SqlType) -> bool {
    let is_float = matches!(common, SqlType::Real | SqlType::Double);
    ty != common && (is_float || common_time(ty, common).is_some())
}

/// A type as a literal is read that has its own digits after the point.
pub(super) fn without_digits(ty: SqlType) -> SqlType {
    match ty {
        SqlType::Numeric { .. } => aerostat_types::NUMERIC_DEFAULT,
        other => other,
    }
}

/// A field that says its type also where that is `text`, which a cast would else leave out.
pub(super) fn named_field(ty: SqlType) -> Field {
    let field = ty.field("", true);
    match ty.is_text() {
        true => field.with_metadata([(SQL_TYPE_KEY.to_owned(), ty.to_string())].into()),
        false => field,
    }
}

/// A text that says which kind of text it is; others as they are.
pub(super) fn named(expr: Expr, ty: SqlType) -> Expr {
    match ty {
        SqlType::Varchar(_) | SqlType::Char(_) => Expr::Cast(Cast::new_from_field(
            Box::new(expr),
            Arc::new(named_field(ty)),
        )),
        _ => expr,
    }
}

/// What a choice gives, with the kind of text that it is.
pub(super) fn as_text(choice: Expr, text: Option<SqlType>) -> Expr {
    match text {
        Some(ty) => named(choice, ty),
        None => choice,
    }
}

/// The type in which `=` takes its left side, where numbers of two kinds meet that it does not
/// compare as they are.
pub(super) fn compared_number(left: SqlType, right: SqlType) -> Option<SqlType> {
    let is_float = |ty| matches!(ty, SqlType::Real | SqlType::Double);
    let is_numeric = |ty| matches!(ty, SqlType::Numeric { .. });
    if !cast::is_number(left) || !cast::is_number(right) || is_float(left) && is_float(right) {
        return None;
    }
    if is_float(left) || is_float(right) {
        return (left != SqlType::Double).then_some(SqlType::Double);
    }
    let digits = match left {
        SqlType::SmallInt => 5,
        SqlType::Integer => 10,
        _ => 19,
    };
    (!is_numeric(left) && is_numeric(right)).then_some(SqlType::Numeric {
        precision: digits,
        scale: 0,
    })
}
