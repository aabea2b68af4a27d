//! Lets joins give way.
//!
//! DataFusion counts the work of a task at its leaves: a scan that has handed
//! over many batches yields to the runtime, and a cancelled task ends there. A
//! join can make any number of batches of one that it read, so between two
//! yields a cross join may run for minutes. This rule counts what joins hand
//! over in the same way.

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
        unnest::UnnestExec,
    },
};

/// Puts a yield point above every operator that multiplies rows.
#[derive(Debug)]
pub(crate) struct CooperateAboveJoins;

impl PhysicalOptimizerRule for CooperateAboveJoins {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        plan.transform_up(|node| {
            if multiplies_rows(node.as_ref()) {
                Ok(Transformed::yes(
                    Arc::new(CooperativeExec::new(node)) as Arc<dyn ExecutionPlan>
                ))
            } else {
                Ok(Transformed::no(node))
            }
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

fn multiplies_rows(node: &dyn ExecutionPlan) -> bool {
    node.is::<CrossJoinExec>()
        || node.is::<HashJoinExec>()
        || node.is::<NestedLoopJoinExec>()
        || node.is::<SortMergeJoinExec>()
        || node.is::<UnnestExec>()
}
