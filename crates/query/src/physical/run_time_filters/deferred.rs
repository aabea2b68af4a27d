//! Inputs that are executed when they are first asked for rows.
//!
//! ```text
//!  join ── left:  gathered first; then the filter is known
//!     └── right: DeferredExec ── … ── CoalescePartitionsExec ── … ── scan
//! ```
//!
//! An operator that gathers its input in tasks starts these as soon as it is executed, before
//! anybody asks for a row. A scan below it would have finished before the join has learnt its
//! filter.
//!
//! A join whose left side is empty never asks for its right one. If only some of several
//! partitions are never asked, joins below in the other partitions would wait for the rows that
//! the unasked ones have gathered. So an input that was not executed is executed when it is
//! dropped: a join's partition says when it is dropped that no rows will come from it.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use datafusion::{
    arrow::{array::RecordBatch, datatypes::SchemaRef},
    common::{Result, tree_node::TreeNodeRecursion},
    execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext},
    physical_expr::PhysicalExpr,
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, ExecutionPlanProperties, PlanProperties,
    },
};
use futures::{Stream, StreamExt};
use tokio::runtime::Handle;

/// Executes its input at the first poll.
#[derive(Debug)]
pub(super) struct DeferredExec {
    input: Arc<dyn ExecutionPlan>,
}

impl DeferredExec {
    pub(super) fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        Self { input }
    }
}

impl DisplayAs for DeferredExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeferredExec")
    }
}

impl ExecutionPlan for DeferredExec {
    fn name(&self) -> &str {
        "DeferredExec"
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
        Ok(Box::pin(Deferred {
            schema: self.schema(),
            state: State::Waiting {
                input: Arc::clone(&self.input),
                partition,
                context,
            },
        }))
    }
}

/// A partition of a [`DeferredExec`].
struct Deferred {
    schema: SchemaRef,
    state: State,
}

impl Drop for Deferred {
    fn drop(&mut self) {
        let State::Waiting {
            input,
            partition,
            context,
        } = &self.state
        else {
            return;
        };
        // The execution may start tasks, which end when it is dropped.
        if input.output_partitioning().partition_count() > 1 && Handle::try_current().is_ok() {
            drop(input.execute(*partition, Arc::clone(context)));
        }
    }
}

enum State {
    Waiting {
        input: Arc<dyn ExecutionPlan>,
        partition: usize,
        context: Arc<TaskContext>,
    },
    Running(SendableRecordBatchStream),
    /// The execution of the input failed.
    Failed,
}

impl Stream for Deferred {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let State::Waiting {
            input,
            partition,
            context,
        } = &self.state
        {
            match input.execute(*partition, Arc::clone(context)) {
                Ok(stream) => self.state = State::Running(stream),
                Err(error) => {
                    self.state = State::Failed;
                    return Poll::Ready(Some(Err(error)));
                }
            }
        }
        match &mut self.state {
            State::Running(stream) => stream.poll_next_unpin(context),
            _ => Poll::Ready(None),
        }
    }
}

impl RecordBatchStream for Deferred {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
