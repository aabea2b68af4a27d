//! Whole rows: `t.*` in the place of an expression.
//!
//! DataFusion plans such an expression as a NULL, or as something that never is one. So it is
//! refused except as an item of a SELECT list or RETURNING, where it stands for columns, and in
//! `count(t.*)`.
//!
//! `count(t.*)` is planned as `count(*)`, which is the same, unless an outer join has filled `t` up
//! with NULLs: PostgreSQL does not count a row of `t` that does not exist. So there it is refused.

use std::{collections::HashSet, ops::ControlFlow};

use aerostat_sql::{names::folded, walk};
use aerostat_types::{ErrorKind, SqlError};
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, JoinOperator, ObjectName,
    Select, TableFactor, TableWithJoins, Visit, Visitor,
};

/// Refuses calls that would be counted wrongly, and whole rows elsewhere.
///
/// # Errors
/// `FeatureNotSupported`.
pub(super) fn check<N: Visit>(node: &N) -> Result<(), SqlError> {
    match walk::look(node, &mut Selects) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Selects;

impl Visitor for Selects {
    type Break = SqlError;

    fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<SqlError> {
        let Expr::QualifiedWildcard(name, _) = expression else {
            return ControlFlow::Continue(());
        };
        let message = format!("{name}.* as a value is not supported");
        let error = SqlError::new(ErrorKind::FeatureNotSupported, message);
        ControlFlow::Break(error.with_hint("Name the columns."))
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<SqlError> {
        let mut filled = HashSet::new();
        for table in &select.from {
            filled_up(table, &mut filled);
        }
        if filled.is_empty() {
            return ControlFlow::Continue(());
        }
        let check = |function: &Function| check_call(function, &filled);
        walk::own_calls(&select.projection, check)?;
        walk::own_calls(&select.having, check)
    }
}

/// The names of the relations that outer joins fill up with NULLs.
fn filled_up(table: &TableWithJoins, filled: &mut HashSet<String>) {
    nested(&table.relation, filled);
    let mut before = HashSet::new();
    names(&table.relation, &mut before);
    for join in &table.joins {
        nested(&join.relation, filled);
        let mut own = HashSet::new();
        names(&join.relation, &mut own);
        let (fills_before, fills_own) = match join.join_operator {
            JoinOperator::Left(_) | JoinOperator::LeftOuter(_) => (false, true),
            JoinOperator::Right(_) | JoinOperator::RightOuter(_) => (true, false),
            JoinOperator::FullOuter(_) => (true, true),
            _ => (false, false),
        };
        if fills_before {
            filled.extend(before.iter().cloned());
        }
        if fills_own {
            filled.extend(own.iter().cloned());
        }
        before.extend(own);
    }
}

fn nested(factor: &TableFactor, filled: &mut HashSet<String>) {
    if let TableFactor::NestedJoin {
        table_with_joins, ..
    } = factor
    {
        filled_up(table_with_joins, filled);
    }
}

/// The names of a relation, or of the relations of a join in parentheses.
fn names(factor: &TableFactor, found: &mut HashSet<String>) {
    match factor {
        TableFactor::Table { name, alias, .. } => {
            let name = match alias {
                Some(alias) => Some(folded(&alias.name)),
                None => last(name),
            };
            found.extend(name);
        }
        TableFactor::Derived { alias, .. } => {
            found.extend(alias.as_ref().map(|alias| folded(&alias.name)));
        }
        TableFactor::NestedJoin {
            table_with_joins,
            alias,
        } => match alias {
            Some(alias) => {
                found.insert(folded(&alias.name));
            }
            None => {
                names(&table_with_joins.relation, found);
                for join in &table_with_joins.joins {
                    names(&join.relation, found);
                }
            }
        },
        _ => {}
    }
}

fn last(name: &ObjectName) -> Option<String> {
    Some(folded(name.0.last()?.as_ident()?))
}

/// Refuses a call that counts the rows of a relation which is filled up with NULLs.
fn check_call(function: &Function, filled: &HashSet<String>) -> ControlFlow<SqlError> {
    let FunctionArguments::List(list) = &function.args else {
        return ControlFlow::Continue(());
    };
    for argument in &list.args {
        if let FunctionArg::Unnamed(FunctionArgExpr::QualifiedWildcard(name)) = argument
            && let Some(name) = last(name)
            && filled.contains(&name)
        {
            let message = format!(
                "count({name}.*) of what an outer join fills up with NULLs is not supported"
            );
            let error = SqlError::new(ErrorKind::FeatureNotSupported, message);
            return ControlFlow::Break(error.with_hint("Count a column of it that is never NULL."));
        }
    }
    ControlFlow::Continue(())
}
