//! Inputs that can be read once.
//!
//! A nested loop join whose left side does not fit in memory executes that side again, to spill it.
//! By then a scan has returned rows that it does not return twice, so the result would lack them,
//! and a repartitioning panics. So such a side fails with an out-of-memory error instead: lack of
//! memory is the only reason for which the join executes it again.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use datafusion::{
    arrow::datatypes::SchemaRef,
    common::{DataFusionError, Result, tree_node::TreeNodeRecursion},
    execution::{SendableRecordBatchStream, TaskContext},
    physical_expr::PhysicalExpr,
    physical_plan::{DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties},
};

/// An input that refuses to be read again; see the module.
#[derive(Debug)]
pub(super) struct OnceExec {
    input: Arc<dyn ExecutionPlan>,
    is_read: Vec<AtomicBool>,
}

impl OnceExec {
    pub(super) fn new(input: Arc<dyn ExecutionPlan>) -> Self {
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
        assert!(
            partition < self.is_read.len(),
            "partition {partition} of {} is read",
            self.is_read.len()
        );
        let is_read = self.is_read.get(partition);
        if is_read.is_some_and(|is_read| is_read.swap(true, Ordering::Relaxed)) {
            return Err(DataFusionError::ResourcesExhausted(
                "a side of a join does not fit".to_owned(),
            ));
        }
        self.input.execute(partition, context)
    }
}
