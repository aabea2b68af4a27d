//! Making joins yield.
//!
//! DataFusion counts the work of a task at its leaves: a scan that has returned many batches
//! yields to the runtime, and a cancelled task ends there. A join can make any number of batches of
//! one that it read, so a cross join may run for minutes between two yields. This rule counts the
//! batches of joins in the same way.
//!
//! A join that compares rows one by one may return nothing for as long. Its input is paced
//! ([`paced`]): it gets no more rows at once than it can compare in a moment, then there is a
//! yield.

mod paced;

use std::sync::Arc;

use datafusion::{
    common::{Result, tree_node::Transformed},
    physical_plan::{
        ExecutionPlan,
        coop::CooperativeExec,
        joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec},
        replace_children_if_necessary,
        unnest::UnnestExec,
    },
};

use super::{
    once::OnceExec,
    rule::{EachOperator, Rewritten},
};
use paced::PacedExec;

/// Puts a yield point above every operator that multiplies rows, and paces the input of joins
/// that reject pairs of rows.
pub(crate) const COOPERATE_ABOVE_JOINS: EachOperator = EachOperator {
    name: "cooperate_above_joins",
    rewrite: cooperating,
};

fn cooperating(node: Arc<dyn ExecutionPlan>) -> Rewritten {
    if !multiplies_rows(node.as_ref()) {
        return Ok(Transformed::no(node));
    }
    let node = match rejects_rows(node.as_ref()) {
        true => with_paced_input(node)?,
        false => node,
    };
    Ok(Transformed::yes(
        Arc::new(CooperativeExec::new(node)) as Arc<dyn ExecutionPlan>
    ))
}

pub(super) fn multiplies_rows(node: &dyn ExecutionPlan) -> bool {
    is_join(node) || node.is::<UnnestExec>()
}

pub(super) fn is_join(node: &dyn ExecutionPlan) -> bool {
    node.is::<CrossJoinExec>()
        || node.is::<HashJoinExec>()
        || node.is::<NestedLoopJoinExec>()
        || node.is::<SortMergeJoinExec>()
}

/// Whether it makes pairs of rows that it may reject before they are counted.
fn rejects_rows(node: &dyn ExecutionPlan) -> bool {
    let hash_join = node.downcast_ref::<HashJoinExec>();
    node.is::<NestedLoopJoinExec>() || hash_join.is_some_and(|join| join.filter().is_some())
}

/// Paces the right side of a join. Nested loop joins and hash joins gather their left side and read
/// the right one as they go.
fn with_paced_input(node: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let mut children: Vec<_> = node.children().into_iter().map(Arc::clone).collect();
    if let Some(left) = children.first_mut()
        && node.is::<NestedLoopJoinExec>()
    {
        *left = Arc::new(OnceExec::new(Arc::clone(left)));
    }
    if let Some(right) = children.get_mut(1) {
        *right = Arc::new(PacedExec::new(Arc::clone(right)));
    }
    replace_children_if_necessary(node, children)
}
