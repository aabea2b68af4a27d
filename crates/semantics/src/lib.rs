//! PostgreSQL's semantics on DataFusion: which types literals have, which operators exist for
//! which types, what a cast means.
//!
//! A statement passes through three places here:
//!
//! ```text
//! sqlparser AST ──type_literals──▶ SqlToRel ──────────▶ analyzer ──────────────▶ optimizer
//!                 1 → integer      expr_planners():      before_type_coercion()
//!                 row comparisons  operators by type     TypeCoercion (DataFusion)
//!                 interval '…'     type_planner()        after_type_coercion()  optimizer_rules() last
//! ```
//!
//! * A `Utf8` *literal* is PostgreSQL's `unknown`: it takes the type its context wants and is
//!   parsed as that type. Texts are `Utf8View`.
//! * Number arithmetic becomes the checked functions of `functions::arithmetic`, which raise
//!   errors instead of wrapping. Comparisons stay DataFusion's operators, so that scans see them.
//! * Casts that Arrow does as PostgreSQL does stay `Expr::Cast`; the others become
//!   `functions::cast`.
//!
//! * Equal values are sorted and gathered as equal (`equal`), and volatile keys are evaluated
//!   once (`drawn`).
//! * Rows made by `unnest` do not have the key of their source row (`expanded`).
//! * The ORDER BY of a subquery is passed to whatever depends on it (`order`).
//! * Subqueries that DataFusion cannot plan become joins (`unnest`).
//! * The bytes that functions make are reserved first (`growth`).
//! * Expressions that DataFusion would confuse are kept apart (`alike`).
//! * Constants are computed between analyzer and optimizer, for their errors (`constants`).
//!
//! Names of output columns, catalogue casts (`regclass`) and DML are left to others. The crate
//! knows neither tables nor sessions: the session's time zone and the statement's time reach it
//! through DataFusion's configuration.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod alike;
mod compare;
mod constants;
mod drawn;
mod equal;
mod expanded;
mod frames;
pub mod functions;
mod grouped;
pub mod growth;
mod guard;
mod listed;
mod lists;
mod literals;
mod null_equal;
mod operator;
mod order;
mod pattern;
mod placeholders;
mod planner;
mod precision;
mod recursive;
mod repeated;
mod rule;
mod sets;
mod shift;
mod stoppable;
#[cfg(test)]
pub(crate) mod tests;
mod totals;
mod type_names;
mod types;
mod unnest;

use std::sync::Arc;

use aerostat_types::{ErrorKind, SqlError};
use arrow::datatypes::DataType;
use datafusion::common::DataFusionError;
use datafusion::execution::session_state::SessionState;
use datafusion::logical_expr::Operator;
use datafusion::logical_expr::planner::{ExprPlanner, TypePlanner};
use datafusion::optimizer::analyzer::type_coercion::TypeCoercion;
use datafusion::optimizer::common_subexpr_eliminate::CommonSubexprEliminate;
use datafusion::optimizer::{Analyzer, AnalyzerRule, Optimizer, OptimizerRule};

pub use constants::compute_constants;
pub use functions::array_text::array_items;
pub(crate) use functions::operand::{Operand, literal_as, operand};
pub use literals::{any_of, type_literals};
pub use repeated::count_repeated;
pub use rule::resolve_constant;
pub(crate) use type_names::ANY_NUMERIC;
pub use type_names::name_of_arrow;

/// Rules that stand right before DataFusion's `TypeCoercion`.
pub(crate) fn before_type_coercion() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    vec![
        Arc::new(unnest::SubqueryForms),
        Arc::new(drawn::DrawOnce),
        Arc::new(rule::PostgresSemantics),
        Arc::new(equal::GatherEqual),
    ]
}

/// Rules that stand right after DataFusion's `TypeCoercion`.
pub(crate) fn after_type_coercion() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    vec![
        Arc::new(rule::PostgresCasts),
        Arc::new(unnest::UnnestSubqueries),
    ]
}

/// All analyzer rules in order: DataFusion's own with ours around `TypeCoercion`, and first those
/// that follow the order of subqueries and compute the keys of grouping sets.
pub fn analyzer_rules() -> Vec<Arc<dyn AnalyzerRule + Send + Sync>> {
    let coercion = TypeCoercion::new();
    let mut rules: Vec<Arc<dyn AnalyzerRule + Send + Sync>> = vec![
        Arc::new(order::FollowOrder),
        Arc::new(grouped::GroupByColumns),
    ];
    let mut are_ours_in = false;
    for rule in Analyzer::new().rules {
        if rule.name() == coercion.name() {
            rules.extend(before_type_coercion());
            rules.push(rule);
            rules.extend(after_type_coercion());
            are_ours_in = true;
        } else {
            rules.push(rule);
        }
    }
    assert!(are_ours_in, "DataFusion brings operands to one type");
    rules.push(Arc::new(expanded::EndKeys));
    rules.into_iter().map(stoppable::analyzer).collect()
}

/// All optimizer rules in order: DataFusion's own, ours before what it computes once is taken out
/// of expressions, and last.
pub fn optimizer_rules() -> Vec<Arc<dyn OptimizerRule + Send + Sync>> {
    let common = CommonSubexprEliminate::new();
    let mut rules: Vec<Arc<dyn OptimizerRule + Send + Sync>> = Vec::new();
    let mut known = Optimizer::new().rules;
    let place = |name: &str| known.iter().position(|rule| rule.name() == name);
    // It does not see which columns a LATERAL subquery refers to, and leaves out joins that have them.
    let (joins, lateral) = (place("eliminate_join"), place("decorrelate_lateral_join"));
    assert!(
        joins.is_some() && lateral.is_some() && place(common.name()).is_some(),
        "DataFusion's optimizer has the rules that ours stand before"
    );
    if let (Some(joins), Some(lateral)) = (joins, lateral)
        && joins < lateral
    {
        known[joins..=lateral].rotate_left(1);
    }
    for rule in known {
        if rule.name() == common.name() {
            rules.push(Arc::new(shift::ShiftSums));
        }
        rules.push(null_equal::apart(alike::apart(totals::kept(rule))));
    }
    rules.push(Arc::new(guard::GuardFallible));
    rules.push(Arc::new(listed::ListsByKey));
    rules.into_iter().map(stoppable::optimizer).collect()
}

/// Registers every function of ours, over DataFusion's of the same name.
pub fn register(state: &mut SessionState) {
    let registered = functions::register(state).and_then(|()| unnest::register(state));
    // With one left out a statement would mean what DataFusion makes of it.
    registered.expect("a session's own registry takes every function");
}

/// SQL type names to Arrow fields.
pub fn type_planner() -> Arc<dyn TypePlanner> {
    Arc::new(types::PostgresTypes)
}

/// Planners that must stand before DataFusion's own.
pub fn expr_planners() -> Vec<Arc<dyn ExprPlanner>> {
    vec![Arc::new(planner::PostgresOperators)]
}

/// An error of ours on its way through DataFusion.
pub fn external(error: impl Into<SqlError>) -> DataFusionError {
    DataFusionError::External(Box::new(error.into()))
}

/// An error of ours by kind and message, on its way through DataFusion.
pub(crate) fn raise(kind: ErrorKind, message: impl Into<String>) -> DataFusionError {
    external(SqlError::new(kind, message))
}

/// PostgreSQL's error for an operator that has no meaning for its operands.
pub(crate) fn no_operator(left: &str, operator: &str, right: &str) -> DataFusionError {
    external(
        SqlError::new(ErrorKind::UndefinedFunction, format!("operator does not exist: {left} {operator} {right}"))
            .with_hint(
                "No operator matches the given name and argument types. You might need to add explicit type casts.",
            ),
    )
}

/// [`no_operator`] by Arrow types.
pub(crate) fn no_operator_for(
    left: &DataType,
    operator: Operator,
    right: &DataType,
) -> DataFusionError {
    no_operator(
        &name_of_arrow(left),
        &operator.to_string(),
        &name_of_arrow(right),
    )
}
