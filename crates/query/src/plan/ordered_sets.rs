//! Ordered-set aggregates, rewritten as functions of an ordered array.
//!
//! | written | becomes |
//! |---|---|
//! | `percentile_cont(f) WITHIN GROUP (ORDER BY x DESC) FILTER (WHERE c)` | `"\1percentile_cont"(array_agg(x ORDER BY x DESC) FILTER (WHERE c), f)` |
//! | `mode() WITHIN GROUP (ORDER BY x)` | `"\1mode"(array_agg(x ORDER BY x))` |
//!
//! The functions are [`aerostat_semantics::functions::ordered_sets`]. This pass runs before the one
//! that gives aggregates with one name different names, because the arrays are such aggregates.

use std::ops::ControlFlow;

use aerostat_semantics::functions::ordered_sets::over_array;
use aerostat_sql::{names::folded, walk};
use aerostat_types::{ErrorKind, SqlError};
use datafusion::sql::sqlparser::ast::{
    Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentClause, FunctionArgumentList,
    FunctionArguments, Ident, ObjectName, Visit, VisitMut, VisitorMut,
};

use super::calls::call_of;

/// PostgreSQL's hypothetical-set aggregates, which tell where a row would be.
const HYPOTHETICAL: [&str; 4] = ["cume_dist", "dense_rank", "percent_rank", "rank"];

/// Rewrites a statement, query or expression as the module says.
///
/// # Errors
/// `UndefinedFunction` without WITHIN GROUP, with several keys in it, or with it at another function;
/// `FeatureNotSupported` over a window and for hypothetical-set aggregates; `SyntaxError` for DISTINCT
/// beside it.
pub(super) fn rewrite<N: Visit + VisitMut>(node: &mut N) -> Result<(), SqlError> {
    match walk::change(node, &mut OrderedSets) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(error),
    }
}

struct OrderedSets;

impl VisitorMut for OrderedSets {
    type Break = SqlError;

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<SqlError> {
        let Expr::Function(function) = expression else {
            return ControlFlow::Continue(());
        };
        match of_array(function) {
            Ok(Some(call)) => {
                *expression = call;
                ControlFlow::Continue(())
            }
            Ok(None) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(error),
        }
    }
}

fn of_array(function: &mut Function) -> Result<Option<Expr>, SqlError> {
    let name = match &function.name.0[..] {
        [name] | [_, name] => name.as_ident().map(folded).unwrap_or_default(),
        _ => return Ok(None),
    };
    let Some(over_array) = over_array(&name) else {
        return match function.within_group.is_empty() {
            true => Ok(None),
            false if HYPOTHETICAL.contains(&name.as_str()) => Err(SqlError::new(
                ErrorKind::FeatureNotSupported,
                format!("hypothetical-set aggregate {name} is not supported"),
            )),
            false => Err(SqlError::new(
                ErrorKind::UndefinedFunction,
                format!("{name} is not an ordered-set aggregate, so it cannot have WITHIN GROUP"),
            )),
        };
    };
    if function.over.is_some() {
        let message = format!("OVER is not supported for ordered-set aggregate {name}");
        return Err(SqlError::new(ErrorKind::FeatureNotSupported, message));
    }
    let mut keys = std::mem::take(&mut function.within_group).into_iter();
    let key = match (keys.next(), keys.next()) {
        (None, _) => {
            let message = format!("WITHIN GROUP is required for ordered-set aggregate {name}");
            return Err(SqlError::new(ErrorKind::UndefinedFunction, message));
        }
        (Some(_), Some(_)) => {
            let message =
                format!("function {name} with several keys in WITHIN GROUP does not exist");
            return Err(SqlError::new(ErrorKind::UndefinedFunction, message));
        }
        (Some(key), None) => key,
    };
    let direct = match &mut function.args {
        FunctionArguments::List(list) => list,
        _ => return Ok(None),
    };
    if direct.duplicate_treatment.is_some() || !direct.clauses.is_empty() {
        let message = "cannot use DISTINCT or ORDER BY with WITHIN GROUP";
        return Err(SqlError::new(ErrorKind::SyntaxError, message));
    }
    let mut gathered = function.clone();
    gathered.name = ObjectName::from(vec![Ident::new("array_agg")]);
    gathered.args = FunctionArguments::List(FunctionArgumentList {
        duplicate_treatment: None,
        args: vec![argument(key.expr.clone())],
        clauses: vec![FunctionArgumentClause::OrderBy(vec![key])],
    });
    let FunctionArguments::List(direct) = &function.args else {
        return Ok(None);
    };
    let direct = direct.args.iter().filter_map(|argument| match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(value)) => Some(value.clone()),
        _ => None,
    });
    let arguments = std::iter::once(Expr::Function(gathered)).chain(direct);
    Ok(Some(call_of(over_array, arguments.collect())))
}

fn argument(value: Expr) -> FunctionArg {
    FunctionArg::Unnamed(FunctionArgExpr::Expr(value))
}
