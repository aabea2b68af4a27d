//! PostgreSQL's limits on the width of a statement.
//!
//! | | at most | SQLSTATE |
//! |---|---|---|
//! | items of a SELECT list, RETURNING, a row of VALUES; keys of GROUP BY, ORDER BY, DISTINCT ON | 1,664 | 54011 |
//! | items of ROW | 1,664 | 54011 |
//! | arguments of a function | 100 | 54023 |
//! | elements of a CUBE | 12 | 54011 |
//! | grouping sets of a GROUP BY | 4,096 | 54001 |
//!
//! Without these limits a line of text would keep the planner busy for hours, because it compares
//! each name with all names before it; and the planner cannot be stopped.

use std::ops::ControlFlow;

use aerostat_sql::{names::folded, walk};
use aerostat_types::{ErrorKind, SqlError};
use datafusion::sql::sqlparser::ast::{
    Distinct, Expr, FunctionArguments, GroupByExpr, OrderByKind, Query, Select, SelectItem,
    SetExpr, Statement, Visit, Visitor,
};

const ENTRIES_MAX: usize = 1_664;
const ARGUMENTS_MAX: usize = 100;
const CUBE_MAX: usize = 12;
const SETS_MAX: usize = 4_096;

/// Constructs with any number of arguments that are spelled as functions.
const CONSTRUCTS: [&str; 3] = ["coalesce", "greatest", "least"];

/// Checks a statement, query or expression.
///
/// # Errors
/// `TooManyColumns`, `TooManyArguments`, `StatementTooComplex`, as the module says.
pub(super) fn check<N: Visit>(node: &N) -> Result<(), SqlError> {
    match walk::look(node, &mut Limits) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct Limits;

impl Visitor for Limits {
    type Break = SqlError;

    fn pre_visit_statement(&mut self, statement: &Statement) -> ControlFlow<SqlError> {
        let returning: Option<&[SelectItem]> = match statement {
            Statement::Insert(insert) => insert.returning.as_deref(),
            Statement::Update(update) => update.returning.as_deref(),
            Statement::Delete(delete) => delete.returning.as_deref(),
            _ => None,
        };
        entries(returning.map_or(0, <[_]>::len))
    }

    fn pre_visit_select(&mut self, select: &Select) -> ControlFlow<SqlError> {
        entries(select.projection.len())?;
        if let Some(Distinct::On(keys)) = &select.distinct {
            entries(keys.len())?;
        }
        match &select.group_by {
            GroupByExpr::Expressions(keys, _) => {
                entries(keys.len())?;
                grouping_sets(keys)
            }
            GroupByExpr::All(_) => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_query(&mut self, query: &Query) -> ControlFlow<SqlError> {
        if let SetExpr::Values(values) = &*query.body {
            entries(values.rows.first().map_or(0, |row| row.len()))?;
        }
        match query.order_by.as_ref().map(|order_by| &order_by.kind) {
            Some(OrderByKind::Expressions(keys)) => entries(keys.len()),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<SqlError> {
        match expr {
            Expr::Tuple(items) if items.len() > ENTRIES_MAX => {
                let message = format!("ROW expressions can have at most {ENTRIES_MAX} entries");
                refuse(ErrorKind::TooManyColumns, message)
            }
            Expr::Function(call) => {
                let FunctionArguments::List(list) = &call.args else {
                    return ControlFlow::Continue(());
                };
                let name = call.name.0.last().and_then(|part| part.as_ident());
                let is_construct =
                    name.is_some_and(|name| CONSTRUCTS.contains(&folded(name).as_str()));
                if is_construct || list.args.len() <= ARGUMENTS_MAX {
                    return ControlFlow::Continue(());
                }
                let message =
                    format!("cannot pass more than {ARGUMENTS_MAX} arguments to a function");
                refuse(ErrorKind::TooManyArguments, message)
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

fn entries(count: usize) -> ControlFlow<SqlError> {
    match count > ENTRIES_MAX {
        true => {
            let message = format!("target lists can have at most {ENTRIES_MAX} entries");
            refuse(ErrorKind::TooManyColumns, message)
        }
        false => ControlFlow::Continue(()),
    }
}

/// How many sets the keys of a GROUP BY make: each set of one key is combined with each set of the
/// others.
fn grouping_sets(keys: &[Expr]) -> ControlFlow<SqlError> {
    let mut all = 1_usize;
    for key in keys {
        let sets = match key {
            Expr::Cube(elements) if elements.len() > CUBE_MAX => {
                let message = format!("CUBE is limited to {CUBE_MAX} elements");
                return refuse(ErrorKind::TooManyColumns, message);
            }
            Expr::Cube(elements) => 1 << elements.len(),
            Expr::Rollup(elements) => elements.len() + 1,
            Expr::GroupingSets(sets) => sets.len(),
            _ => 1,
        };
        all = all.saturating_mul(sets);
    }
    match all > SETS_MAX {
        true => {
            let message = format!("too many grouping sets present (maximum {SETS_MAX})");
            refuse(ErrorKind::StatementTooComplex, message)
        }
        false => ControlFlow::Continue(()),
    }
}

fn refuse(kind: ErrorKind, message: String) -> ControlFlow<SqlError> {
    ControlFlow::Break(SqlError::new(kind, message))
}
