//! A rule of DataFusion's physical optimizer that looks at each operator by itself, from the leaves
//! up.

use std::sync::Arc;

use datafusion::{
    common::{
        Result,
        config::ConfigOptions,
        tree_node::{Transformed, TreeNode},
    },
    physical_optimizer::PhysicalOptimizerRule,
    physical_plan::ExecutionPlan,
};

/// An operator that a rule was given, or what it makes of it.
pub(crate) type Rewritten = Result<Transformed<Arc<dyn ExecutionPlan>>>;

/// A rule that keeps the schema.
#[derive(Debug)]
pub(crate) struct EachOperator {
    pub(crate) name: &'static str,
    pub(crate) rewrite: fn(Arc<dyn ExecutionPlan>) -> Rewritten,
}

impl PhysicalOptimizerRule for EachOperator {
    fn name(&self) -> &str {
        self.name
    }

    fn schema_check(&self) -> bool {
        true
    }

    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(plan.transform_up(self.rewrite)?.data)
    }
}
