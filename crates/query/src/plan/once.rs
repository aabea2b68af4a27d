//! Inputs that can be read once.
//!
//! A nested loop join whose left side does not fit in memory asks for that side again, to spill
//! it. A repartitioning below has given its rows away by then, and panics. Such a side says
//! that there is no memory instead, which the join has found out already.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use datafusion::{
    arrow::datatypes::SchemaRef,
    common::{
        DataFusionError, Result,
        tree_node::{TreeNode, TreeNodeRecursion},
    },
    execution::{SendableRecordBatchStream, TaskContext},
    physical_expr::PhysicalExpr,
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties, repartition::RepartitionExec,
    },
};

/// The input itself if it can be read again, else in a [`OnceExec`].
pub(super) fn read_once(input: &Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    match input.exists(|node| Ok(node.is::<RepartitionExec>()))? {
        true => Ok(Arc::new(OnceExec::new(Arc::clone(input)))),
        false => Ok(Arc::clone(input)),
    }
}

/// See the module.
#[derive(Debug)]
struct OnceExec {
    input: Arc<dyn ExecutionPlan>,
    is_read: Vec<AtomicBool>,
}

impl OnceExec {
    fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        let partitions = input.properties().partitioning.partition_count();
        Self {
            is_read: (0..partitions).map(|_| AtomicBool::new(false)).collect(),
            input,
        }
    }
}

impl DisplayAs for OnceExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OnceExec")
    }
}

impl ExecutionPlan for OnceExec {
    fn name(&self) -> &str {
        "OnceExec"
    }

    fn schema(&self) -> SchemaRef {
        self.input.schema()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(match children.into_iter().next() {
            Some(input) => Arc::new(Self::new(input)),
            None => self,
        })
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        let is_read = self.is_read.get(partition);
        if is_read.is_some_and(|is_read| is_read.swap(true, Ordering::Relaxed)) {
            return Err(DataFusionError::ResourcesExhausted(
                "a side of a join does not fit".to_owned(),
            ));
        }
        self.input.execute(partition, context)
    }
}
