//! The types of recursive queries.
//!
//! The common type of both terms of a recursive query must be the type of the first, as in
//! PostgreSQL: `SELECT 1 UNION ALL SELECT n + 1::bigint FROM t` is refused. DataFusion casts the
//! outputs of the recursive term to the types of the first, before types are known here. So a
//! statement's own casts are wrapped in calls of [`crate::functions::named::NAMED`], and all
//! other casts are DataFusion's.
//!
//! A numeric has the digits after the point of the first term. Where PostgreSQL would continue
//! with more, the query is refused.

use std::sync::Arc;

use aerostat_types::{ErrorKind, NUMERIC_DEFAULT, SqlError, SqlType};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::{Expr, ExprSchemable, LogicalPlan, RecursiveQuery};

use super::{external, name_of_arrow, raise, sets};
use crate::functions::cast::{self, Zone};
use crate::functions::common_type::common_type;

/// Compares the types of the two terms, and gives the columns of the recursive one those of the other:
/// `n || 'x'` of a `varchar` is a `text`, of which there is one form only.
///
/// # Errors
/// `DatatypeMismatch` and `FeatureNotSupported`, as the module says.
pub(super) fn of_one_type(mut query: RecursiveQuery, zone: &Zone) -> Result<RecursiveQuery> {
    let first = Arc::clone(query.static_term.schema());
    let mut changes = Vec::new();
    for (column, own) in first.fields().iter().enumerate() {
        if let Some(again) = given(&query.recursive_term, column)? {
            check_column(&query.name, column + 1, own, &again)?;
        }
        let again = query.recursive_term.schema().field(column);
        let is_of_one_form = own.data_type() == again.data_type();
        if is_of_one_form
            && let Some(ty) = SqlType::of_field(own)
            && SqlType::of_field(again) != Some(ty)
        {
            changes.push((column, ty));
        }
    }
    if !changes.is_empty() {
        let term = Arc::unwrap_or_clone(query.recursive_term);
        query.recursive_term = Arc::new(sets::retyped(term, &changes, zone)?);
    }
    Ok(query)
}

/// What a term gives before DataFusion has cast it; nothing for a literal without a type, and a
/// parameter.
fn given(term: &LogicalPlan, column: usize) -> Result<Option<FieldRef>> {
    let LogicalPlan::Projection(projection) = term else {
        return Ok(Some(Arc::clone(&term.schema().fields()[column])));
    };
    let value = match unaliased(&projection.expr[column]) {
        Expr::Cast(cast) => &*cast.expr,
        Expr::ScalarFunction(call) if cast::target_of(&call.func).is_some() => {
            call.args.first().unwrap_or(&projection.expr[column])
        }
        other => other,
    };
    match value {
        Expr::Literal(ScalarValue::Utf8(_), _) | Expr::Placeholder(_) => return Ok(None),
        Expr::Literal(value, _) if value.is_null() => return Ok(None),
        _ => {}
    }
    let (_, field) = value.to_field(projection.input.schema())?;
    Ok((!field.data_type().is_null()).then_some(field))
}

fn unaliased(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => unaliased(&alias.expr),
        other => other,
    }
}

fn check_column(query: &str, number: usize, first: &Field, again: &Field) -> Result<()> {
    let (Some(own), Some(other)) = (SqlType::of_field(first), SqlType::of_field(again)) else {
        return check_lists(query, number, first, again);
    };
    let Some(overall) = common_type(own, other) else {
        let (own, other) = (own.plain_name(), other.plain_name());
        let message = format!("UNION types {own} and {other} cannot be matched");
        return Err(raise(ErrorKind::DatatypeMismatch, message));
    };
    if let (SqlType::Numeric { scale, .. }, SqlType::Numeric { scale: more, .. }) = (own, other)
        && more > scale
        && own != NUMERIC_DEFAULT
    {
        let message = format!(
            "recursive query \"{query}\" column {number} has {scale} digits after the point in non-recursive term but {more} in recursive term, which is not supported"
        );
        let error = SqlError::new(ErrorKind::FeatureNotSupported, message);
        return Err(external(error.with_hint(
            "Cast the output of both terms to a numeric of one precision and scale.",
        )));
    }
    match overall == own {
        true => Ok(()),
        false => Err(mismatch(
            query,
            number,
            &own.to_string(),
            &overall.to_string(),
        )),
    }
}

/// Lists, and what else is none of our types.
fn check_lists(query: &str, number: usize, first: &Field, again: &Field) -> Result<()> {
    let (own, other) = (first.data_type(), again.data_type());
    match are_alike(own, other) {
        true => Ok(()),
        false => Err(mismatch(
            query,
            number,
            &name_of_arrow(own),
            &name_of_arrow(other),
        )),
    }
}

/// Whether two types differ in the form of their values at most.
fn are_alike(own: &DataType, other: &DataType) -> bool {
    use DataType::{LargeList, List};
    match (own, other) {
        (List(own) | LargeList(own), List(other) | LargeList(other)) => {
            own.data_type().is_null()
                || other.data_type().is_null()
                || are_alike(own.data_type(), other.data_type())
        }
        _ => match (SqlType::of_arrow(own), SqlType::of_arrow(other)) {
            (Some(own), Some(other)) => own.oid() == other.oid(),
            (None, None) => true,
            _ => false,
        },
    }
}

fn mismatch(query: &str, number: usize, own: &str, overall: &str) -> DataFusionError {
    let message = format!(
        "recursive query \"{query}\" column {number} has type {own} in non-recursive term but type {overall} overall"
    );
    let error = SqlError::new(ErrorKind::DatatypeMismatch, message);
    external(error.with_hint("Cast the output of the non-recursive term to the correct type."))
}
