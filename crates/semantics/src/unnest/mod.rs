//! Subqueries as joins, after Neumann and Kemper, "Unnesting Arbitrary Queries" (BTW 2015).
//!
//! DataFusion plans IN and EXISTS as conjuncts of WHERE, and scalar subqueries that are
//! uncorrelated, or that aggregate over an equality with the outer row. It keeps those; [`scope`]
//! decides which they are. The others pass through two analyzer rules:
//!
//! ```text
//! SubqueryForms      before the semantics: every form becomes a scalar subquery   (forms)
//!   EXISTS (S)         (SELECT count(*) > 0 FROM S)
//!   x IN (S), x θ ANY  (SELECT CASE WHEN bool_or(x θ s) THEN true
//!                                   WHEN count(*) > count(x θ s) THEN NULL ELSE false END FROM S)
//! UnnestSubqueries   after the types: a correlated scalar subquery becomes a join (place)
//!
//!   π[…(S(r))…]                 π[…v…]
//!      │             ─▶            ⟕  r = k, also where both are NULL
//!      R                          ╱ ╲
//!                                R   Γ k; v            raises 21000 for two rows
//!                                    │
//!                                    S with D inside   (push)
//!                                    D = distinct r of R, named k   (domain)
//! ```
//!
//! The dependent join of D with S moves down S until nothing below refers to the outer row; there
//! it is a cross product, which DataFusion's filter pushdown turns into the join that the
//! subquery's own conditions allow.
//!
//! Invariants: names, types and order of a node's outputs stay. Subqueries in subqueries are
//! unnested from the inside out, so an outer reference that the nearest query does not bind is
//! left for the next one; a reference that is unbound at the top is refused.
//!
//! Limits. R is evaluated twice, so where D would depend on volatile functions, LIMIT, window
//! functions or sums of floats, the query is refused. A subquery's own expressions are evaluated
//! for every row of R, even below a CASE that needs only some; its number of rows is checked only
//! where the CASE asks for its value.

mod domain;
mod forms;
mod place;
mod push;
mod row;
mod scope;
mod single;
#[cfg(test)]
mod tests;

use std::fmt::Debug;

use aerostat_types::{ErrorKind, SqlError};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::AnalyzerRule;

pub(crate) use row::{register, row_in};

/// Writes the forms of subqueries that DataFusion does not plan as scalar subqueries.
#[derive(Debug)]
pub(super) struct SubqueryForms;

impl AnalyzerRule for SubqueryForms {
    fn name(&self) -> &str {
        "subquery_forms"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        if !has_subqueries(&plan)? {
            return Ok(plan);
        }
        forms::Forms::default().rewrite(plan)
    }
}

/// Writes correlated scalar subqueries, and LATERAL, as joins.
#[derive(Debug)]
pub(super) struct UnnestSubqueries;

impl AnalyzerRule for UnnestSubqueries {
    fn name(&self) -> &str {
        "unnest_subqueries"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        if !has_subqueries(&plan)? {
            return Ok(plan);
        }
        let plan = place::Unnester::default().rewrite(plan)?;
        match scope::free_references(&plan)?.first() {
            Some((_, column)) => Err(unsupported(format!(
                "a subquery that refers to column \"{}\" from there",
                column.flat_name()
            ))),
            None => Ok(plan),
        }
    }
}

/// Whether there is anything to do, which most statements answer with no.
fn has_subqueries(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply(|node| {
        found |= matches!(node, LogicalPlan::Subquery(_));
        node.apply_expressions(|expr| {
            found |= scope::contains_subquery(expr)?;
            Ok(stop_if(found))
        })?;
        Ok(stop_if(found))
    })?;
    Ok(found)
}

fn stop_if(found: bool) -> TreeNodeRecursion {
    if found {
        TreeNodeRecursion::Stop
    } else {
        TreeNodeRecursion::Continue
    }
}

fn unsupported(what: impl std::fmt::Display) -> DataFusionError {
    super::raise(
        ErrorKind::FeatureNotSupported,
        format!("{what} is not supported"),
    )
}

fn unsupported_with_hint(what: &str, hint: &str) -> DataFusionError {
    super::external(
        SqlError::new(
            ErrorKind::FeatureNotSupported,
            format!("{what} is not supported"),
        )
        .with_hint(hint),
    )
}
