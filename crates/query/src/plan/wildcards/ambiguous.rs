//! Ambiguous names in subqueries: names that several of its relations have. The planner would look
//! for them in the queries around, and might find one there.

use std::ops::ControlFlow;

use aerostat_sql::{names::folded, walk};
use datafusion::sql::sqlparser::ast::{Expr, Select, SetExpr};

use super::{Output, only};

/// Whether an expression is a subquery that joins relations.
pub(super) fn joins_inside(expression: &Expr) -> bool {
    let query = match expression {
        Expr::Subquery(query) => query,
        Expr::Exists { subquery, .. } | Expr::InSubquery { subquery, .. } => subquery,
        _ => return false,
    };
    matches!(&*query.body, SetExpr::Select(select) if joins(select))
}

/// Whether a SELECT joins relations.
pub(super) fn joins(select: &Select) -> bool {
    select.from.len() > 1 || select.from.iter().any(|table| !table.joins.is_empty())
}

/// The first name in a SELECT, outside of its FROM and its subqueries, that several of these
/// columns have.
pub(super) fn name_in(select: &Select, columns: &[Output]) -> Option<String> {
    let is_ambiguous = |expression: &Expr| {
        let Expr::Identifier(name) = expression else {
            return ControlFlow::Continue(());
        };
        let name = folded(name);
        let is_known = columns.iter().any(|column| column.name == name);
        match is_known && only(columns, &name).is_none() {
            true => ControlFlow::Break(name),
            false => ControlFlow::Continue(()),
        }
    };
    let look = || {
        walk::own_expressions(&select.projection, is_ambiguous)?;
        walk::own_expressions(&select.selection, is_ambiguous)?;
        walk::own_expressions(&select.group_by, is_ambiguous)?;
        walk::own_expressions(&select.having, is_ambiguous)
    };
    look().break_value()
}
