//! COPY FROM STDIN: an INSERT whose rows come from the client through a bounded channel.

use std::{fmt, sync::Arc};

use aerostat_api::CopySink;
use aerostat_catalog::failure::canceled;
use aerostat_types::SqlError;
use async_trait::async_trait;
use datafusion::{
    arrow::{array::RecordBatch, datatypes::SchemaRef},
    catalog::{TableProvider, streaming::StreamingTable},
    common::Result,
    execution::{SendableRecordBatchStream, TaskContext},
    physical_plan::{stream::RecordBatchStreamAdapter, streaming::PartitionStream},
};
use futures::stream;
use parking_lot::Mutex;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// Batches between the client's connection and the insert: enough that decoding
/// and inserting overlap, few enough that a fast client waits.
const COPY_BATCHES_MAX: usize = 4;

/// The client's rows as a table of one partition that is read once.
pub struct CopyStream {
    schema: SchemaRef,
    receiver: Mutex<Option<mpsc::Receiver<RecordBatch>>>,
}

impl CopyStream {
    /// A table of this schema, and the sender of its rows.
    ///
    /// # Errors
    /// No error for a schema of a table.
    pub fn open(schema: SchemaRef) -> Result<(Arc<dyn TableProvider>, mpsc::Sender<RecordBatch>)> {
        let (sender, receiver) = mpsc::channel(COPY_BATCHES_MAX);
        let stream = CopyStream {
            schema: Arc::clone(&schema),
            receiver: Mutex::new(Some(receiver)),
        };
        let table = StreamingTable::try_new(schema, vec![Arc::new(stream)])?;
        Ok((Arc::new(table), sender))
    }
}

impl fmt::Debug for CopyStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CopyStream")
    }
}

impl PartitionStream for CopyStream {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let receiver = self.receiver.lock().take();
        assert!(receiver.is_some(), "the rows of a COPY are read once");
        let batches = stream::unfold(receiver, |receiver| async move {
            let mut receiver = receiver?;
            let batch = receiver.recv().await?;
            Some((Ok(batch), Some(receiver)))
        });
        Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            batches,
        ))
    }
}

/// The client's end of a COPY. Dropping it without `finish` undoes the COPY.
pub struct CopyTask {
    /// Takes the rows; `None` once there are no more.
    pub sender: Option<mpsc::Sender<RecordBatch>>,
    /// Tells the insert that the rows have ended because the COPY has, not because the client left.
    pub complete: Option<oneshot::Sender<()>>,
    /// `None` once its result has been taken.
    pub task: Option<JoinHandle<Result<u64, SqlError>>>,
    /// Cancelled when the client leaves or gives up.
    pub cancel: CancellationToken,
}

impl CopyTask {
    async fn result(&mut self) -> Result<u64, SqlError> {
        let Some(task) = &mut self.task else {
            return Err(canceled());
        };
        let result = task.await.unwrap_or_else(|_| Err(canceled()));
        self.task = None;
        result
    }
}

#[async_trait]
impl CopySink for CopyTask {
    async fn write(&mut self, batch: RecordBatch) -> Result<(), SqlError> {
        let sent = match &self.sender {
            Some(sender) => sender.send(batch).await.is_ok(),
            None => false,
        };
        if sent {
            return Ok(());
        }
        // The insert takes no more rows because it has failed; its result is the error.
        self.sender = None;
        match self.result().await {
            Err(error) => Err(error),
            Ok(_) => Err(canceled()),
        }
    }

    async fn finish(mut self: Box<Self>) -> Result<String, SqlError> {
        if let Some(complete) = self.complete.take() {
            // A failed insert has dropped the other end; its result is the error.
            let _ = complete.send(());
        }
        self.sender = None;
        let rows = self.result().await?;
        Ok(format!("COPY {rows}"))
    }

    async fn abort(mut self: Box<Self>) {
        self.cancel.cancel();
        self.sender = None;
        // Wait until the insert has undone the COPY.
        let _ = self.result().await;
    }
}

impl Drop for CopyTask {
    fn drop(&mut self) {
        if self.complete.is_some() {
            self.cancel.cancel();
        }
    }
}
