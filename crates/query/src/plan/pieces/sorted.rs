//! Sorts whose batches are bounded by bytes.
//!
//! A sort that runs out of memory writes its rows to files, batch by batch. It copies each batch
//! first, because its rows' views point to many buffers. A batch of 8,192 rows may stand for
//! gigabytes, even if the batches of the input stand for little. So the first batches are looked
//! at before the sort begins, and the sort is told to make only as many rows at once as have few
//! bytes. If larger rows come later, the bytes that it makes of them at once are reserved.

use std::{fmt, sync::Arc};

use aerostat_semantics::growth::Growth;
use datafusion::{
    arrow::{array::RecordBatch, datatypes::SchemaRef},
    common::{DataFusionError, Result},
    execution::{SendableRecordBatchStream, TaskContext},
    physical_plan::{
        ExecutionPlan, replace_children_if_necessary,
        sorts::sort::SortExec,
        stream::RecordBatchStreamAdapter,
        streaming::{PartitionStream, StreamingTableExec},
    },
};
use futures::{StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;

use super::long::{BYTES_MAX, bytes_in, columns_of, is_long, making};

/// How many batches are looked at before a sort begins.
const LOOKED_AT: usize = 8;

/// Whether a node is a sort that may write rows of any length to files.
pub(super) fn spills_long_rows(node: &dyn ExecutionPlan) -> bool {
    let sort = node.downcast_ref::<SortExec>();
    sort.is_some_and(|sort| {
        sort.fetch().is_none() && !columns_of(&sort.schema(), is_long).is_empty()
    })
}

/// The rows of a partition of a sort.
pub(super) fn execute(
    sort: &Arc<dyn ExecutionPlan>,
    partition: usize,
    context: Arc<TaskContext>,
) -> Result<SendableRecordBatchStream> {
    let Some(input) = sort.children().first().map(|input| Arc::clone(input)) else {
        return sort.execute(partition, context);
    };
    let (sort, schema) = (Arc::clone(sort), sort.schema());
    let columns = columns_of(&schema, is_long);
    let mut rows = input.execute(partition, Arc::clone(&context))?;
    let sorted = async move {
        let mut first = Vec::new();
        while first.len() < LOOKED_AT
            && let Some(batch) = rows.next().await.transpose()?
        {
            first.push(batch);
        }
        let most = context.session_config().batch_size();
        let at_once = first
            .iter()
            .map(|batch| rows_at_once(batch, &columns, most));
        let at_once = at_once.min().unwrap_or(most);
        let mut largest = Largest {
            columns,
            rows: at_once,
            bytes: BYTES_MAX,
            given: 0,
            made: Growth::new(),
        };
        let input_schema = rows.schema();
        let rows = stream::iter(first.into_iter().map(Ok)).chain(rows);
        let rows = rows.map(move |batch| batch.and_then(|batch| largest.note(batch)));
        let rows = RecordBatchStreamAdapter::new(Arc::clone(&input_schema), rows);
        let begun = Begun {
            schema: Arc::clone(&input_schema),
            rows: Mutex::new(Some(Box::pin(rows))),
        };
        let input = StreamingTableExec::try_new(
            input_schema,
            vec![Arc::new(begun)],
            None,
            [],
            false,
            None,
        )?;
        replace_children_if_necessary(sort, vec![Arc::new(input)])?
            .execute(0, making(&context, at_once))
    };
    let sorted = stream::once(sorted).try_flatten();
    Ok(Box::pin(RecordBatchStreamAdapter::new(schema, sorted)))
}

/// How many rows like these have few bytes together.
fn rows_at_once(batch: &RecordBatch, columns: &[usize], most: usize) -> usize {
    let per_row = bytes_in(batch, columns) / batch.num_rows().max(1);
    (BYTES_MAX / per_row.max(1)).clamp(1, most)
}

/// The largest number of bytes that the sort makes at once.
struct Largest {
    columns: Vec<usize>,
    /// How many rows it makes at once.
    rows: usize,
    /// The bytes that are reserved, or need no reservation.
    bytes: usize,
    /// The bytes of all rows so far, which a batch cannot exceed.
    given: usize,
    made: Growth,
}

impl Largest {
    fn note(&mut self, batch: RecordBatch) -> Result<RecordBatch> {
        let bytes = bytes_in(&batch, &self.columns);
        self.given = self.given.saturating_add(bytes);
        let per_row = bytes / batch.num_rows().max(1);
        let bytes = per_row.saturating_mul(self.rows).min(self.given);
        if bytes > self.bytes.saturating_mul(2) {
            self.made.make(bytes - self.bytes)?;
            self.bytes = bytes;
        }
        Ok(batch)
    }
}

/// The input of a sort after its first batches have been looked at.
struct Begun {
    schema: SchemaRef,
    rows: Mutex<Option<SendableRecordBatchStream>>,
}

impl fmt::Debug for Begun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Begun")
    }
}

impl PartitionStream for Begun {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        self.rows.lock().take().unwrap_or_else(|| {
            let again = DataFusionError::Internal("rows of a sort are read twice".to_owned());
            let failed = stream::iter([Err(again)]);
            Box::pin(RecordBatchStreamAdapter::new(
                Arc::clone(&self.schema),
                failed,
            ))
        })
    }
}
