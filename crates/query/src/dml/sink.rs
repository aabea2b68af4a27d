//! Where DML writes.
//!
//! Rows found by a statement are written under one transaction. Inserts go to
//! storage batch by batch. Row ids of updates and deletes are gathered first:
//! a row that several rows of another relation match counts once, and an
//! UPDATE ends all old versions before it inserts the new ones, so keys may
//! change places within one statement.

use std::{collections::HashSet, sync::Arc};

use aerostat_storage::{RowId, StorageError, TableView};
use aerostat_txn::Transaction;
use aerostat_types::{ErrorKind, SqlError};
use datafusion::{
    arrow::{
        array::{Array, AsArray, BooleanArray, RecordBatch},
        compute::filter_record_batch,
        datatypes::{Schema, UInt64Type},
        util::display::{ArrayFormatter, FormatOptions},
    },
    common::{DataFusionError, Result},
    execution::memory_pool::{MemoryConsumer, MemoryReservation},
    execution::{SessionState, TaskContext},
    physical_plan::{ExecutionPlan, execute_stream},
};
use futures::StreamExt;

use super::{BoundDml, DmlKind};
use crate::error::{external, from_storage};

/// What a DML statement did.
pub(crate) struct Written {
    /// Rows inserted, updated or deleted.
    pub(crate) rows: u64,
    /// The RETURNING rows; empty without RETURNING.
    pub(crate) returned: Vec<RecordBatch>,
}

/// Plans the query of a bound statement.
pub(crate) async fn plan(state: &SessionState, bound: &BoundDml) -> Result<Arc<dyn ExecutionPlan>> {
    let optimized = state.optimize(&bound.source)?;
    state
        .query_planner()
        .create_physical_plan(&optimized, state)
        .await
}

/// Runs a bound statement under a transaction, which the caller commits or rolls back.
pub(crate) async fn run(
    bound: &BoundDml,
    view: TableView,
    plan: Arc<dyn ExecutionPlan>,
    context: Arc<TaskContext>,
    transaction: &Arc<Transaction>,
) -> Result<Written> {
    let reservation = MemoryConsumer::new("dml").register(context.memory_pool());
    let mut sink = Sink {
        bound,
        view,
        transaction: Arc::clone(transaction),
        seen: HashSet::new(),
        row_ids: Vec::new(),
        new_rows: Vec::new(),
        returned: Vec::new(),
        inserted: 0,
        reservation,
    };
    let mut stream = execute_stream(plan, context)?;
    while let Some(batch) = stream.next().await {
        let batch = batch?;
        if batch.num_rows() > 0 {
            sink.take(batch).await?;
        }
    }
    sink.finish().await
}

struct Sink<'a> {
    bound: &'a BoundDml,
    view: TableView,
    transaction: Arc<Transaction>,
    seen: HashSet<u64>,
    row_ids: Vec<RowId>,
    new_rows: Vec<RecordBatch>,
    returned: Vec<RecordBatch>,
    inserted: u64,
    reservation: MemoryReservation,
}

impl Sink<'_> {
    async fn take(&mut self, batch: RecordBatch) -> Result<()> {
        let batch = if self.bound.kind == DmlKind::Insert {
            batch
        } else {
            self.claim(batch)?
        };
        self.check(&batch)?;
        if let Some(returning) = self.bound.returning.clone() {
            let columns: Vec<usize> = returning.collect();
            self.keep(batch.project(&columns)?, |sink, rows| {
                sink.returned.push(rows)
            })?;
        }
        match self.bound.kind {
            DmlKind::Insert => {
                let rows = self.table_rows(&batch)?;
                let table = Arc::clone(self.view.table());
                let transaction = Arc::clone(&self.transaction);
                self.inserted += blocking(move || table.insert(&transaction, &rows)).await?;
            }
            DmlKind::Update => {
                let rows = self.table_rows(&batch)?;
                self.keep(rows, |sink, rows| sink.new_rows.push(rows))?;
            }
            DmlKind::Delete => {}
        }
        Ok(())
    }

    async fn finish(mut self) -> Result<Written> {
        let rows = match self.bound.kind {
            DmlKind::Insert => self.inserted,
            DmlKind::Update | DmlKind::Delete => {
                let (view, transaction) = (self.view.clone(), Arc::clone(&self.transaction));
                let row_ids = std::mem::take(&mut self.row_ids);
                let rows = row_ids.len() as u64;
                blocking(move || view.delete(&transaction, &row_ids)).await?;
                for new_rows in std::mem::take(&mut self.new_rows) {
                    let table = Arc::clone(self.view.table());
                    let transaction = Arc::clone(&self.transaction);
                    blocking(move || table.insert(&transaction, &new_rows)).await?;
                }
                rows
            }
        };
        Ok(Written {
            rows,
            returned: self.returned,
        })
    }

    /// Notes the row ids and drops rows that were met before.
    fn claim(&mut self, batch: RecordBatch) -> Result<RecordBatch> {
        let ids = batch.column(0).as_primitive::<UInt64Type>();
        let fresh: Vec<bool> = ids
            .values()
            .iter()
            .map(|&id| self.seen.insert(id))
            .collect();
        self.reservation
            .try_grow(ids.len() * (size_of::<RowId>() + 2 * size_of::<u64>()))?;
        self.row_ids.extend(
            ids.values()
                .iter()
                .zip(&fresh)
                .filter(|&(_, &fresh)| fresh)
                .map(|(&id, _)| RowId(id)),
        );
        if fresh.iter().all(|&fresh| fresh) {
            return Ok(batch);
        }
        Ok(filter_record_batch(&batch, &BooleanArray::from(fresh))?)
    }

    fn keep(&mut self, rows: RecordBatch, push: impl FnOnce(&mut Self, RecordBatch)) -> Result<()> {
        self.reservation.try_grow(rows.get_array_memory_size())?;
        push(self, rows);
        Ok(())
    }

    /// The table's columns of a batch, under the table's own schema.
    fn table_rows(&self, batch: &RecordBatch) -> Result<RecordBatch> {
        let table = self.view.table();
        let columns = self
            .bound
            .columns
            .clone()
            .zip(table.arrow_schema().fields())
            .map(|(at, field)| {
                let column = batch.column(at);
                if column.data_type() == field.data_type() {
                    Ok(Arc::clone(column))
                } else {
                    Ok(arrow::compute::cast(column, field.data_type())?)
                }
            })
            .collect::<Result<Vec<_>>>()?;
        // NOT NULL is storage's to enforce, with PostgreSQL's error.
        let fields: Vec<_> = table
            .arrow_schema()
            .fields()
            .iter()
            .map(|f| f.as_ref().clone().with_nullable(true))
            .collect();
        Ok(RecordBatch::try_new(
            Arc::new(Schema::new(fields)),
            columns,
        )?)
    }

    fn check(&self, batch: &RecordBatch) -> Result<()> {
        let table = self.view.table().schema();
        for (at, check) in self.bound.checks.clone().zip(&table.checks) {
            let truths = batch.column(at).as_boolean();
            let failed = (0..truths.len()).find(|&row| truths.is_valid(row) && !truths.value(row));
            if let Some(row) = failed {
                let mut error = SqlError::new(
                    ErrorKind::CheckViolation,
                    format!(
                        "new row for relation \"{}\" violates check constraint \"{}\"",
                        table.name, check.name
                    ),
                )
                .with_detail(format!(
                    "Failing row contains ({}).",
                    self.shown(batch, row)
                ))
                .with_constraint(check.name.clone());
                error.object = Some(Box::new((
                    self.bound.target.schema.clone(),
                    table.name.clone(),
                    None,
                )));
                return Err(external(error));
            }
        }
        Ok(())
    }

    fn shown(&self, batch: &RecordBatch, row: usize) -> String {
        let options = FormatOptions::new().with_null("null");
        let value = |at: usize| {
            ArrayFormatter::try_new(batch.column(at), &options)
                .map_or_else(|_| "?".into(), |f| f.value(row).to_string())
        };
        self.bound
            .columns
            .clone()
            .map(value)
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// Runs a storage write, which may wait for another transaction, off the query threads.
async fn blocking<T: Send + 'static>(
    write: impl FnOnce() -> Result<T, StorageError> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(write).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(StorageError::Conflict)) => {
            Err(DataFusionError::External(Box::new(StorageError::Conflict)))
        }
        Ok(Err(error)) => Err(external(from_storage(error))),
        Err(error) => Err(DataFusionError::Internal(format!(
            "a write ended early: {error}"
        ))),
    }
}

/// Whether a statement failed only because rows changed under it, so that running it again helps.
pub(crate) fn is_conflict(error: &DataFusionError) -> bool {
    match error {
        DataFusionError::External(inner) => {
            matches!(inner.downcast_ref(), Some(StorageError::Conflict))
        }
        DataFusionError::Context(_, inner) => is_conflict(inner),
        DataFusionError::Shared(inner) => is_conflict(inner),
        _ => false,
    }
}
