//! Which queries may be locked: PostgreSQL's `CheckSelectLocking`.

use std::{mem, ops::ControlFlow};

use aerostat_sql::{clauses::is_aggregate, names::folded, tree::locking::shown, walk};
use aerostat_txn::RowLock;
use aerostat_types::{ErrorKind, SqlError};
use datafusion::sql::sqlparser::ast::{Function, GroupByExpr, Query, SetExpr, Visit};

use super::{super::forms::SERIES, nothing};

/// The error for a clause of this strength.
pub(super) fn refused(mode: RowLock, why: &str) -> SqlError {
    SqlError::new(
        ErrorKind::FeatureNotSupported,
        format!("{} {why}", shown(mode)),
    )
}

/// Checks that a query gives rows of tables, which alone can be locked. If it is a query in
/// parentheses, it is replaced by the inner query.
///
/// # Errors
/// `FeatureNotSupported` for a query of other rows.
pub(super) fn check_query(query: &mut Query, mode: RowLock) -> Result<(), SqlError> {
    while let SetExpr::Query(inner) = &mut *query.body {
        let is_bare = query.with.is_none()
            && query.order_by.is_none()
            && query.limit_clause.is_none()
            && query.fetch.is_none();
        if !is_bare {
            return Err(refused(mode, "of a query in parentheses is not supported"));
        }
        let mut inner = mem::replace(&mut **inner, nothing());
        inner.locks.append(&mut query.locks);
        *query = inner;
    }
    let select = match &*query.body {
        SetExpr::Select(select) => select,
        SetExpr::SetOperation { .. } => {
            return Err(refused(mode, "is not allowed with UNION/INTERSECT/EXCEPT"));
        }
        SetExpr::Values(_) => return Err(refused(mode, "cannot be applied to VALUES")),
        _ => return Err(refused(mode, "of this query is not supported")),
    };
    let is_grouped = match &select.group_by {
        GroupByExpr::All(_) => true,
        GroupByExpr::Expressions(keys, modifiers) => !(keys.is_empty() && modifiers.is_empty()),
    };
    let mut calls = Calls::default();
    // The visitor never breaks.
    calls.look_in(&select.projection);
    calls.look_in(&query.order_by);
    let what = if select.distinct.is_some() {
        "DISTINCT clause"
    } else if is_grouped {
        "GROUP BY clause"
    } else if select.having.is_some() {
        "HAVING clause"
    } else if calls.aggregate {
        "aggregate functions"
    } else if calls.window {
        "window functions"
    } else if calls.series {
        "set-returning functions in the target list"
    } else {
        return Ok(());
    };
    Err(refused(mode, &format!("is not allowed with {what}")))
}

/// The kinds of functions that a query's own expressions call.
#[derive(Default)]
struct Calls {
    aggregate: bool,
    window: bool,
    series: bool,
}

impl Calls {
    fn look_in<N: Visit>(&mut self, node: &N) {
        let _ = walk::own_calls(node, |function| {
            self.call(function);
            ControlFlow::<()>::Continue(())
        });
    }

    fn call(&mut self, function: &Function) {
        let name = function.name.0.last().and_then(|part| part.as_ident());
        let name = name.map(folded);
        self.window |= function.over.is_some();
        self.aggregate |= function.over.is_none() && is_aggregate(function);
        self.series |= name.is_some_and(|name| SERIES.contains(&name.as_str()));
    }
}
