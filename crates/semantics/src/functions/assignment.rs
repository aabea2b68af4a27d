//! PostgreSQL's assignment casts: how INSERT and UPDATE convert a value of another type than the
//! column's.

use aerostat_types::{ErrorKind, SqlError, SqlType};
use arrow::datatypes::Field;
use datafusion::common::tree_node::TreeNode;
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::{Cast, Expr};

use super::cast::{CastClass, Coercion, PostgresCast, Zone, arrow_agrees, class, convert};
use super::operand::literal_as;
use crate::external;

/// The expression for PostgreSQL's assignment cast of `expr`, a value of `from`,
/// to a column of type `to`.
///
/// # Errors
/// `DatatypeMismatch` where a value of `from` may not be stored in the column.
pub(crate) fn assignment(
    expr: Expr,
    from: &Field,
    to: SqlType,
    column: &str,
    zone: &Zone,
) -> Result<Expr> {
    let unknown = matches!(
        expr,
        Expr::Literal(ScalarValue::Utf8(_) | ScalarValue::Null, _)
    );
    if from.data_type().is_null() || matches!(&expr, Expr::Literal(value, _) if value.is_null()) {
        return Ok(Expr::Literal(ScalarValue::try_new_null(&to.arrow())?, None));
    }
    if let Expr::Placeholder(placeholder) = &expr
        && placeholder.field.is_none()
    {
        return literal_as(expr, to, zone);
    }
    let mismatch = |name: &str| {
        let message = format!(
            "column \"{column}\" is of type {} but expression is of type {name}",
            to.plain_name()
        );
        external(
            SqlError::new(ErrorKind::DatatypeMismatch, message)
                .with_hint("You will need to rewrite or cast the expression."),
        )
    };
    let Some(from_type) = SqlType::of_field(from) else {
        return Err(mismatch(&from.data_type().to_string()));
    };
    if !unknown && class(from_type, to) != CastClass::Assignment {
        return Err(mismatch(from_type.plain_name()));
    }
    if let Expr::Literal(value, _) = &expr {
        let array = convert(
            &value.to_array()?,
            from_type,
            to,
            Coercion::Assignment,
            zone,
        )?;
        return Ok(Expr::Literal(ScalarValue::try_from_array(&array, 0)?, None));
    }
    let unchanged = *from.data_type() == to.arrow() && fits(from_type, to);
    let is_settled = is_settled(&expr, to);
    if unchanged && is_settled {
        return Ok(expr);
    }
    if is_settled && arrow_agrees(from.data_type(), to) {
        return Ok(Expr::Cast(Cast::new(Box::new(expr), to.arrow())));
    }
    Ok(PostgresCast::call(
        Some(from_type),
        to,
        Coercion::Assignment,
        expr,
    ))
}

/// Whether an expression keeps the type that it seems to have: what chooses among values has that of
/// the first until types are resolved, and a query's column has digits of its own.
fn is_settled(expr: &Expr, to: SqlType) -> bool {
    let chooses = |part: &Expr| match part {
        Expr::Case(_) | Expr::ScalarSubquery(_) => true,
        Expr::Column(_) => matches!(to, SqlType::Numeric { .. }),
        Expr::ScalarFunction(call) => {
            matches!(
                call.func.name(),
                "coalesce" | "greatest" | "least" | "nullif"
            )
        }
        _ => false,
    };
    !expr.exists(|part| Ok(chooses(part))).unwrap_or(true)
}

/// Whether every value of `from` is a value of `to`, both of one Arrow type.
fn fits(from: SqlType, to: SqlType) -> bool {
    match (from, to) {
        (_, SqlType::Text | SqlType::Varchar(None)) => true,
        (SqlType::Char(m), SqlType::Char(n) | SqlType::Varchar(Some(n))) => m <= n,
        (SqlType::Varchar(Some(m)), SqlType::Varchar(Some(n))) => m <= n,
        (_, SqlType::Char(_) | SqlType::Varchar(_)) => false,
        _ => true,
    }
}
