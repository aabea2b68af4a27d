//! Running statements in one partition if their functions have effects, such as taking numbers of
//! sequences, or locks. Numbers then come in the order of the rows, as in PostgreSQL, where
//! `nextval` prevents a parallel query.

use std::borrow::Cow;

use aerostat_pgcatalog::acts;
use datafusion::{
    common::{
        Result,
        tree_node::{TreeNode, TreeNodeRecursion},
    },
    execution::SessionState,
    logical_expr::{Expr, LogicalPlan},
};

/// The state to plan a statement with: with a single partition, if its functions have effects.
pub(crate) fn in_order<'s>(
    state: &'s SessionState,
    plan: &LogicalPlan,
) -> Result<Cow<'s, SessionState>> {
    if !calls_what_acts(plan)? {
        return Ok(Cow::Borrowed(state));
    }
    let mut state = state.clone();
    let options = state.config_mut().options_mut();
    options.execution.target_partitions = 1;
    Ok(Cow::Owned(state))
}

fn calls_what_acts(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|part| match part {
                Expr::ScalarFunction(function) if acts(function.name()) => {
                    found = true;
                    Ok(TreeNodeRecursion::Stop)
                }
                _ => Ok(TreeNodeRecursion::Continue),
            })
        })
    })?;
    Ok(found)
}
