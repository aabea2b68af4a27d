//! Rows on their way from the query runtime to the client.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Instant,
};

use aerostat_api::RowStream;
use aerostat_query::Cancellation;
use aerostat_txn::CancelToken;
use aerostat_types::{ErrorKind, SqlError};
use datafusion::{arrow::array::RecordBatch, execution::memory_pool::MemoryReservation};
use futures::{Stream, StreamExt, stream};
use tokio::{
    sync::mpsc,
    task::{AbortHandle, JoinHandle},
};

use super::flow::Flow;
use crate::engine::{Observer, StatementRecord};

/// Batches of a result that wait for a client slower than the query.
pub(super) const RESULT_BATCHES_MAX: usize = 4;

/// Runs on the query runtime until it ends or its handle is dropped.
pub(super) struct QueryTask<T> {
    task: JoinHandle<T>,
}

impl<T> QueryTask<T> {
    pub(super) fn new(task: JoinHandle<T>) -> Self {
        Self { task }
    }

    /// The result; a task that panicked is a defect of ours, not the end of the process.
    pub(super) async fn result(mut self) -> Result<T, SqlError> {
        match (&mut self.task).await {
            Ok(value) => Ok(value),
            Err(error) => Err(SqlError::new(
                ErrorKind::Internal,
                format!("the statement ended early: {error}"),
            )),
        }
    }
}

impl<T> Drop for QueryTask<T> {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Stops a query, and what its functions wait for, when the reader of its rows is dropped.
pub(super) struct AbortOnDrop {
    task: AbortHandle,
    waits: CancelToken,
    is_armed: bool,
}

impl AbortOnDrop {
    pub(super) fn new(task: AbortHandle, cancellation: &Cancellation) -> Self {
        Self {
            task,
            waits: cancellation.waits.clone(),
            is_armed: true,
        }
    }

    /// The task has ended by itself, and the statement may try again.
    pub(super) fn disarm(mut self) {
        self.is_armed = false;
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if self.is_armed {
            self.task.abort();
            self.waits.cancel();
        }
    }
}

/// The rows that a task sends, until it ends, is cancelled, or the stream is dropped. A task
/// that has not come to its end when no more can come has panicked.
pub(super) fn received(
    receiver: mpsc::Receiver<Result<Sending, SqlError>>,
    guard: AbortOnDrop,
    came_to_end: Arc<AtomicBool>,
    cancellation: Cancellation,
) -> RowStream {
    struct State {
        receiver: mpsc::Receiver<Result<Sending, SqlError>>,
        /// What the client's task has in its hands, until it asks for more.
        taken: Option<Taken>,
        guard: AbortOnDrop,
        came_to_end: Arc<AtomicBool>,
        cancellation: Cancellation,
        ended: bool,
    }
    let state = State {
        receiver,
        taken: None,
        guard,
        came_to_end,
        cancellation,
        ended: false,
    };
    RowStream::new(stream::unfold(state, |mut state| async move {
        if state.ended {
            return None;
        }
        state.taken = None;
        // While rows come as fast as they go, nobody looks at the timers.
        if let Some(error) = state.cancellation.due() {
            state.guard.task.abort();
            state.ended = true;
            return Some((Err(error), state));
        }
        let next = tokio::select! {
            biased;
            error = state.cancellation.stopped() => {
                state.guard.task.abort();
                Some(Err(error))
            }
            batch = state.receiver.recv() => match batch {
                None if !state.came_to_end.load(Ordering::Acquire) => {
                    let message = "the statement ended early";
                    Some(Err(SqlError::new(ErrorKind::Internal, message)))
                }
                batch => batch,
            },
        };
        state.ended = !matches!(next, Some(Ok(_)));
        let next = next.map(|sent| sent.map(Sending::take));
        let (item, taken) = match next? {
            Ok((batch, taken)) => (Ok(batch), Some(taken)),
            Err(error) => (Err(error), None),
        };
        state.taken = taken;
        Some((item, state))
    }))
}

/// Rows on their way through the channel.
pub(super) struct Sending {
    batch: RecordBatch,
    bytes: usize,
    flow: Arc<Flow>,
}

impl Sending {
    /// Of a flow.
    pub(super) fn of(
        batch: Result<RecordBatch, SqlError>,
        flow: &Arc<Flow>,
    ) -> Result<Self, SqlError> {
        batch.map(|batch| Self {
            bytes: flow.bytes_of(&batch),
            flow: Arc::clone(flow),
            batch,
        })
    }

    fn take(self) -> (RecordBatch, Taken) {
        let Self { batch, bytes, flow } = self;
        flow.taken(bytes);
        (batch, Taken { bytes, flow })
    }
}

/// Rows that the client's task has taken, until it is done with them.
struct Taken {
    bytes: usize,
    flow: Arc<Flow>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.flow.sent(self.bytes);
    }
}

/// Rows that are there already, in memory that is charged until the last of them has gone.
pub(super) fn ready_within(batches: Vec<RecordBatch>, charge: MemoryReservation) -> RowStream {
    let mut charge = Some(charge);
    let rows = batches.into_iter().map(Ok);
    // The end is asked for once the last rows have been dealt with.
    let end = stream::poll_fn(move |_| {
        drop(charge.take());
        Poll::Ready(None)
    });
    RowStream::new(stream::iter(rows).chain(end))
}

/// Rows that are there already, and few.
pub(super) fn ready(batches: Vec<RecordBatch>) -> RowStream {
    RowStream::new(stream::iter(batches.into_iter().map(Ok)))
}

/// Tells the observer when a stream of rows has ended.
pub(super) fn observed(
    batches: RowStream,
    observer: Arc<dyn Observer>,
    database: String,
    kind: &'static str,
    started: Instant,
) -> RowStream {
    RowStream::new(Observed {
        batches,
        observer,
        database,
        kind,
        started,
        rows: 0,
        error: None,
    })
}

struct Observed {
    batches: RowStream,
    observer: Arc<dyn Observer>,
    database: String,
    kind: &'static str,
    started: Instant,
    rows: u64,
    error: Option<ErrorKind>,
}

impl Stream for Observed {
    type Item = Result<RecordBatch, SqlError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let next = self.batches.poll_next_unpin(context);
        match &next {
            Poll::Ready(Some(Ok(batch))) => self.rows += batch.num_rows() as u64,
            Poll::Ready(Some(Err(error))) => self.error = Some(error.kind),
            _ => {}
        }
        next
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        self.observer.statement(&StatementRecord {
            database: &self.database,
            kind: self.kind,
            elapsed: self.started.elapsed(),
            rows: self.rows,
            error: self.error,
        });
    }
}
