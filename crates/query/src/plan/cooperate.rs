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
    common::{
        Result,
        config::ConfigOptions,
        tree_node::{Transformed, TreeNode},
    },
    physical_optimizer::PhysicalOptimizerRule,
    physical_plan::{
        ExecutionPlan,
        coop::CooperativeExec,
        joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec},
        replace_children_if_necessary,
        unnest::UnnestExec,
    },
};

use super::once::OnceExec;
use paced::PacedExec;

/// Puts a yield point above every operator that multiplies rows, and paces the input of joins
/// that reject pairs of rows.
#[derive(Debug)]
pub(crate) struct CooperateAboveJoins;

impl PhysicalOptimizerRule for CooperateAboveJoins {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
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
        })
        .map(|transformed| transformed.data)
    }

    fn name(&self) -> &str {
        "cooperate_above_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
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
