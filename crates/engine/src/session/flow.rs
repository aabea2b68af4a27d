//! How far a result may run ahead of its client.
//!
//! ```text
//!  operators ─► FlowExec ─► one stream of all partitions ─► channel ─► the client's task
//!                  │ + bytes                                             │ − bytes
//!                  └────────────── Flow: 256 KiB, or a batch ────────────┘
//! ```
//!
//! A client that does not read would otherwise have every place of a batch between the
//! operators and its socket filled: a dozen, more with more threads, of 8 MB each where a
//! row has a kilobyte. The operators below [`FlowExec`] are asked for rows only while fewer
//! than [`FLOW_BYTES_MAX`] wait, so that beyond it there is at most what each partition had
//! begun; and all of it is charged to the tenant until the client's task has dealt with it.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, Waker, ready},
};

use aerostat_query::reads_table;
use aerostat_semantics::external;
use aerostat_types::SqlError;
use datafusion::{
    arrow::{
        array::{Array, AsArray, ByteView, RecordBatch},
        datatypes::{BinaryViewType, ByteViewType, DataType, SchemaRef, StringViewType},
    },
    common::{Result, tree_node::TreeNodeRecursion},
    execution::{RecordBatchStream, SendableRecordBatchStream, TaskContext},
    physical_expr::{PhysicalExpr, expressions::Column},
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
        coalesce_partitions::CoalescePartitionsExec, coop::CooperativeExec,
        projection::ProjectionExec, replace_children_if_necessary,
    },
};
use futures::{Stream, StreamExt};
use parking_lot::Mutex;

use crate::memory::Held;

/// Bytes of rows that wait for the client beyond which no more are asked for: several times
/// what goes to a socket at once, so that a client that reads never waits for its query.
const FLOW_BYTES_MAX: usize = 256 << 10;

/// Batches below this are not charged. No more of them wait than the channel has room for.
const CHARGED_BYTES_MIN: usize = 64 << 10;

/// The rows of one result that are on their way.
pub(super) struct Flow {
    /// Texts are parts of the table's own memory.
    texts_are_stored: bool,
    state: Mutex<State>,
}

struct State {
    /// Bytes of rows that the client's task has not taken yet.
    waiting: usize,
    held: Held,
    /// Of the partitions that wait for room.
    wakers: Vec<Waker>,
}

impl Flow {
    /// Of the result of a plan, charged to `memory`, and the plan that keeps to it.
    ///
    /// # Errors
    /// The plan cannot have other children.
    pub(super) fn of(
        plan: Arc<dyn ExecutionPlan>,
        memory: Held,
    ) -> Result<(Arc<Self>, Arc<dyn ExecutionPlan>)> {
        let flow = Arc::new(Self {
            texts_are_stored: hands_texts_on(plan.as_ref()),
            state: Mutex::new(State {
                waiting: 0,
                held: memory,
                wakers: Vec::new(),
            }),
        });
        let gated = |input: &Arc<dyn ExecutionPlan>| -> Arc<dyn ExecutionPlan> {
            Arc::new(FlowExec {
                input: Arc::clone(input),
                flow: Arc::clone(&flow),
            })
        };
        // What puts partitions together has a buffer of its own, so the gate comes before.
        let together = plan.downcast_ref::<CoalescePartitionsExec>();
        let input = together.map(|together| gated(together.input()));
        let plan = match input {
            Some(input) => replace_children_if_necessary(plan, vec![input])?,
            None => gated(&plan),
        };
        Ok((flow, plan))
    }

    /// What a batch counts for.
    pub(super) fn bytes_of(&self, batch: &RecordBatch) -> usize {
        if batch.num_rows() == 0 {
            return 0;
        }
        let columns = batch.columns().iter();
        columns.map(|column| self.bytes_of_column(column)).sum()
    }

    fn bytes_of_column(&self, column: &dyn Array) -> usize {
        match column.data_type() {
            DataType::Utf8View => self.bytes_of_views::<StringViewType>(column),
            DataType::BinaryView => self.bytes_of_views::<BinaryViewType>(column),
            // The part that the batch shows, not all of what it is a part of.
            _ => column.to_data().get_slice_memory_size().unwrap_or(0),
        }
    }

    fn bytes_of_views<T: ByteViewType>(&self, column: &dyn Array) -> usize {
        let column = column.as_byte_view::<T>();
        let views = column.views();
        if self.texts_are_stored || column.data_buffers().is_empty() {
            return size_of_val(&views[..]);
        }
        let long = |view: &u128| match ByteView::from(*view).length as usize {
            ..=12 => 0,
            length => length,
        };
        // Many may be one text that is there once.
        let texts: usize = views.iter().map(long).sum();
        let buffers = column.data_buffers().iter();
        let buffers: usize = buffers.map(|buffer| buffer.capacity()).sum();
        size_of_val(&views[..]) + texts.min(buffers)
    }

    /// Waits until fewer bytes wait than may.
    fn poll_room(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if state.waiting < FLOW_BYTES_MAX {
            return Poll::Ready(());
        }
        if !state.wakers.iter().any(|w| w.will_wake(context.waker())) {
            state.wakers.push(context.waker().clone());
        }
        Poll::Pending
    }

    /// A batch of so many bytes is on its way.
    fn enter(&self, bytes: usize) -> Result<(), SqlError> {
        let mut state = self.state.lock();
        if bytes >= CHARGED_BYTES_MIN {
            state.held.grow(bytes as u64)?;
        }
        state.waiting += bytes;
        Ok(())
    }

    /// The client's task has taken one.
    pub(super) fn taken(&self, bytes: usize) {
        let mut state = self.state.lock();
        state.waiting = state.waiting.saturating_sub(bytes);
        let wakers = match state.waiting < FLOW_BYTES_MAX {
            true => std::mem::take(&mut state.wakers),
            false => Vec::new(),
        };
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// It is done with one that it had taken.
    pub(super) fn sent(&self, bytes: usize) {
        if bytes >= CHARGED_BYTES_MIN {
            self.state.lock().held.shrink(bytes as u64);
        }
    }
}

/// Whether a plan's texts are those of a table, where they lie: they cost nothing more then.
fn hands_texts_on(plan: &dyn ExecutionPlan) -> bool {
    if plan.is::<CoalescePartitionsExec>() || plan.is::<CooperativeExec>() {
        let mut inputs = plan.children().into_iter();
        return inputs.all(|input| hands_texts_on(input.as_ref()));
    }
    match plan.downcast_ref::<ProjectionExec>() {
        Some(projection) => {
            let mut made = projection.expr().iter();
            made.all(|made| made.expr.is::<Column>()) && hands_texts_on(projection.input().as_ref())
        }
        None => reads_table(plan),
    }
}

/// Hands on what it reads while there is room for it.
struct FlowExec {
    input: Arc<dyn ExecutionPlan>,
    flow: Arc<Flow>,
}

impl fmt::Debug for FlowExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FlowExec")
    }
}

impl DisplayAs for FlowExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FlowExec")
    }
}

impl ExecutionPlan for FlowExec {
    fn name(&self) -> &str {
        "FlowExec"
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
        let flow = Arc::clone(&self.flow);
        Ok(match children.into_iter().next() {
            Some(input) => Arc::new(Self { input, flow }),
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
        Ok(Box::pin(Flowing {
            input: self.input.execute(partition, context)?,
            flow: Arc::clone(&self.flow),
        }))
    }
}

/// A running [`FlowExec`].
struct Flowing {
    input: SendableRecordBatchStream,
    flow: Arc<Flow>,
}

impl Stream for Flowing {
    type Item = Result<RecordBatch>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        ready!(self.flow.poll_room(context));
        let next = ready!(self.input.poll_next_unpin(context));
        if let Some(Ok(batch)) = &next {
            let bytes = self.flow.bytes_of(batch);
            if let Err(error) = self.flow.enter(bytes) {
                return Poll::Ready(Some(Err(external(error))));
            }
        }
        Poll::Ready(next)
    }
}

impl RecordBatchStream for Flowing {
    fn schema(&self) -> SchemaRef {
        self.input.schema()
    }
}
