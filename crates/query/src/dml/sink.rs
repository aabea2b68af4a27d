//! The sink of DML, which writes rows.
//!
//! All rows of a statement are written under one transaction. Inserts go to storage batch by
//! batch. Row ids of updates and deletes are gathered first: a row that several rows of another
//! relation match counts once, and all old versions end before new ones are inserted, so that keys
//! may change places within one statement.

use std::{collections::HashSet, sync::Arc};

use aerostat_catalog::failure::from_storage;
use aerostat_semantics::growth::go_on;
use aerostat_storage::{RowId, TableView};
use aerostat_txn::Transaction;
use datafusion::{
    arrow::{
        array::{Array, AsArray, BooleanArray, RecordBatch},
        compute::{concat_batches, filter_record_batch},
        datatypes::UInt64Type,
    },
    common::Result,
    execution::SessionState,
    execution::memory_pool::{MemoryConsumer, MemoryReservation},
    physical_plan::{ExecutionPlan, execute_stream},
};
use futures::StreamExt;

use super::{
    BoundDml, DmlKind,
    pieces::pieces,
    referential::{Part, Referential},
    rows::{blocking, check, table_rows},
};
use crate::{again::below, error::external, physical::task_context, plan::StatementContext};

/// The result of a DML statement.
pub struct Written {
    /// How many rows were inserted, updated or deleted.
    pub rows: u64,
    /// How many row versions were inserted: rows inserted, and rows updated.
    pub versions: u64,
    /// The RETURNING rows; empty without RETURNING.
    pub returned: Vec<RecordBatch>,
    /// The memory that these are charged to.
    pub charge: MemoryReservation,
}

/// Runs a bound statement under a transaction, which the caller commits or rolls back. The caller
/// has optimised the query of DO UPDATE.
///
/// # Errors
/// A constraint that the rows break, a conflict with another transaction, and errors of its
/// queries.
pub async fn run(
    bound: &BoundDml,
    plan: Arc<dyn ExecutionPlan>,
    context: &StatementContext,
    transaction: &Arc<Transaction>,
) -> Result<Written> {
    let mut changes = Changes::new(context, transaction, false);
    let written = changes.apply(bound, plan).await?;
    changes.finish().await?;
    Ok(written)
}

/// The changes of one statement: a single one, or several with those in WITH, which all see the
/// rows from before the first.
pub struct Changes<'a> {
    context: &'a StatementContext,
    transaction: Arc<Transaction>,
    is_several: bool,
    /// What remains to be done for foreign keys after all changes.
    referential: Option<Referential<'a>>,
}

impl<'a> Changes<'a> {
    /// No changes yet.
    pub fn new(
        context: &'a StatementContext,
        transaction: &Arc<Transaction>,
        is_several: bool,
    ) -> Self {
        Self {
            context,
            transaction: Arc::clone(transaction),
            is_several,
            referential: None,
        }
    }

    /// Runs the next change. It leaves rows alone that an earlier change of the statement has
    /// changed, and does not return them; a MERGE that matches such a row fails.
    ///
    /// # Errors
    /// A constraint that the rows break, a conflict with another transaction, and errors of its
    /// queries.
    pub async fn apply(
        &mut self,
        bound: &'a BoundDml,
        plan: Arc<dyn ExecutionPlan>,
    ) -> Result<Written> {
        let (context, entry) = (self.context, &bound.target.entry);
        assert_eq!(
            plan.schema().fields().len(),
            bound.source.schema().fields().len(),
            "the plan of a change of {} has other outputs than the change was bound to",
            entry.name
        );
        let task = task_context(&context.state);
        let reservation = MemoryConsumer::new("dml").register(task.memory_pool());
        let is_concerned = Referential::concerns(context, entry);
        let referential = is_concerned.then(|| {
            let before = self.referential.take();
            before.unwrap_or_else(|| Referential::new(context, &self.transaction, self.is_several))
        });
        let mut sink = Sink {
            bound,
            state: &context.state,
            referential,
            view: context.table_view(entry),
            transaction: Arc::clone(&self.transaction),
            is_one_of_several: self.is_several,
            put_off: context.indexes_put_off(entry).into(),
            seen: HashSet::new(),
            updated: Vec::new(),
            new_rows: Vec::new(),
            deleted: Vec::new(),
            added: Vec::new(),
            returned: Vec::new(),
            inserted: 0,
            ordinal: 0,
            reservation,
        };
        let mut stream = execute_stream(plan, task)?;
        while let Some(batch) = stream.next().await {
            let batch = batch?;
            if batch.num_rows() > 0 {
                sink.take(batch).await?;
            }
        }
        let (written, referential) = sink.finish().await?;
        if is_concerned {
            self.referential = referential;
        }
        if bound.kind != DmlKind::Delete {
            entry.usage.record_insert(written.versions);
        }
        Ok(written)
    }

    /// Does what remains to be done for foreign keys, after all changes.
    ///
    /// # Errors
    /// A foreign key is broken.
    pub async fn finish(self) -> Result<()> {
        match self.referential {
            Some(referential) => referential.finish().await,
            None => Ok(()),
        }
    }
}

pub(super) struct Sink<'a> {
    pub(super) bound: &'a BoundDml,
    pub(super) state: &'a SessionState,
    /// `None` if the table has neither foreign keys nor deferred checks of unique indexes.
    pub(super) referential: Option<Referential<'a>>,
    pub(super) view: TableView,
    pub(super) transaction: Arc<Transaction>,
    /// Whether the statement has other changes, which may have changed the same rows.
    is_one_of_several: bool,
    /// The stored names of the unique indexes whose checks are deferred.
    pub(super) put_off: Arc<[String]>,
    /// The row ids that have come so far.
    pub(super) seen: HashSet<u64>,
    pub(super) updated: Vec<RowId>,
    /// The new versions of the updated rows, in the order of `updated`.
    pub(super) new_rows: Vec<RecordBatch>,
    pub(super) deleted: Vec<RowId>,
    /// Rows to be inserted after old versions have ended.
    pub(super) added: Vec<RecordBatch>,
    pub(super) returned: Vec<RecordBatch>,
    /// How many rows were inserted, or updated by DO UPDATE.
    pub(super) inserted: u64,
    /// How many rows came before this batch, for ON CONFLICT.
    pub(super) ordinal: u64,
    reservation: MemoryReservation,
}

impl<'a> Sink<'a> {
    async fn take(&mut self, batch: RecordBatch) -> Result<()> {
        let batch = match self.bound.kind {
            DmlKind::Merge => return self.merge(batch).await,
            DmlKind::Insert => batch,
            DmlKind::Update | DmlKind::Delete => self.claim(batch)?,
        };
        check(self.bound, &batch)?;
        if let Some(conflict) = &self.bound.conflict {
            return self.upsert(conflict, batch).await;
        }
        if let Some(returning) = self.bound.returning.clone() {
            let columns: Vec<usize> = returning.collect();
            self.keep(batch.project(&columns)?, |sink, rows| {
                sink.returned.push(rows)
            })?;
        }
        match self.bound.kind {
            DmlKind::Insert => {
                let rows = table_rows(self.bound, &batch)?;
                self.insert(rows).await?;
            }
            DmlKind::Update => {
                let rows = table_rows(self.bound, &batch)?;
                self.keep(rows, |sink, rows| sink.new_rows.push(rows))?;
            }
            DmlKind::Delete | DmlKind::Merge => {}
        }
        Ok(())
    }

    async fn finish(mut self) -> Result<(Written, Option<Referential<'a>>)> {
        let updated = std::mem::take(&mut self.updated);
        let deleted = std::mem::take(&mut self.deleted);
        let (updates, deletes) = (updated.len() as u64, deleted.len() as u64);
        let new_versions = self.new_rows.iter().map(RecordBatch::num_rows);
        assert_eq!(
            new_versions.sum::<usize>(),
            updated.len(),
            "each updated row has one new version"
        );
        self.tell_updated(&updated)?;
        self.tell_deleted(&deleted)?;
        let keys_stay = self.keys_stay(&updated)?;
        self.end(updated, keys_stay).await?;
        self.end(deleted, false).await?;
        for rows in std::mem::take(&mut self.new_rows) {
            self.append(rows).await?;
        }
        for rows in std::mem::take(&mut self.added) {
            self.insert(rows).await?;
        }
        let versions = self.inserted + updates;
        let returned = self.returned.iter();
        let returned: usize = returned.map(RecordBatch::get_array_memory_size).sum();
        let written = Written {
            rows: versions + deletes,
            versions,
            charge: self
                .reservation
                .split(returned.min(self.reservation.size())),
            returned: self.returned,
        };
        Ok((written, self.referential))
    }

    /// Inserts rows, and notes what they refer to.
    pub(super) async fn insert(&mut self, rows: RecordBatch) -> Result<()> {
        self.inserted += self.append(rows.clone()).await?;
        if let Some(referential) = &mut self.referential {
            let entry = &self.bound.target.entry;
            referential.inserted(entry, &rows).await?;
        }
        Ok(())
    }

    async fn append(&self, rows: RecordBatch) -> Result<u64> {
        let mut appended = 0;
        for rows in pieces(rows) {
            go_on()?;
            let given = rows.num_rows() as u64;
            let table = Arc::clone(self.view.table());
            let (transaction, put_off) = (Arc::clone(&self.transaction), Arc::clone(&self.put_off));
            let written = blocking(&self.bound.target, move || {
                table.store().make_way(&transaction.cancel_token())?;
                table.insert_but(&transaction, &rows, &put_off)
            });
            let written = written.await?;
            assert_eq!(written, given, "storage inserts all rows or fails");
            appended += written;
        }
        Ok(appended)
    }

    /// Ends row versions.
    async fn end(&self, row_ids: Vec<RowId>, keys_stay: bool) -> Result<()> {
        if row_ids.is_empty() {
            return Ok(());
        }
        let (view, transaction) = (self.view.clone(), Arc::clone(&self.transaction));
        let ended = blocking(&self.bound.target, move || match keys_stay {
            true => view.supersede(&transaction, &row_ids),
            false => view.delete(&transaction, &row_ids),
        });
        ended.await?;
        Ok(())
    }

    /// Notes for foreign keys that rows are about to be deleted.
    fn tell_deleted(&mut self, row_ids: &[RowId]) -> Result<()> {
        let Some(referential) = &mut self.referential else {
            return Ok(());
        };
        if row_ids.is_empty() {
            return Ok(());
        }
        let entry = &self.bound.target.entry;
        let positions = referential.columns(entry);
        let old = self.view.fetch(row_ids, &positions);
        let old = old.map_err(|error| external(from_storage(error)))?;
        referential.deleted(entry, Part::new(positions, old))
    }

    /// Notes for foreign keys that rows are about to be updated.
    fn tell_updated(&mut self, row_ids: &[RowId]) -> Result<()> {
        let Some(referential) = &mut self.referential else {
            return Ok(());
        };
        let entry = &self.bound.target.entry;
        let positions = referential.columns(entry);
        let project = |rows: &RecordBatch| Ok(rows.project(&positions)?);
        let new = self.new_rows.iter().map(project);
        let new = new.collect::<Result<Vec<_>>>()?;
        let Some(first) = new.first() else {
            return Ok(());
        };
        let new = concat_batches(&first.schema(), &new)?;
        let old = self.view.fetch(row_ids, &positions);
        let old = old.map_err(|error| external(from_storage(error)))?;
        let old = Part::new(positions.clone(), old);
        referential.updated(entry, old, Part::new(positions, new))
    }

    /// Whether an UPDATE leaves all keys as they are, so that transactions which have locked the
    /// rows FOR KEY SHARE are not in its way.
    fn keys_stay(&self, row_ids: &[RowId]) -> Result<bool> {
        if row_ids.is_empty() {
            return Ok(true);
        }
        let key_columns = self.view.table().key_columns();
        if !key_columns
            .iter()
            .any(|at| self.bound.assigned.contains(at))
        {
            return Ok(true);
        }
        let mut from = 0;
        for new_rows in &self.new_rows {
            let to = from + new_rows.num_rows();
            let stay = self.view.keys_stay(&row_ids[from..to], new_rows);
            if !stay.map_err(|error| external(from_storage(error)))? {
                return Ok(false);
            }
            from = to;
        }
        Ok(true)
    }

    /// Notes the row ids of a batch, and drops rows that have come before.
    fn claim(&mut self, batch: RecordBatch) -> Result<RecordBatch> {
        let ids = batch.column(0).as_primitive::<UInt64Type>();
        assert_eq!(ids.null_count(), 0, "a row to be changed has a row id");
        let mut fresh: Vec<bool> = ids
            .values()
            .iter()
            .map(|&id| self.seen.insert(id))
            .collect();
        for (fresh, changed) in fresh.iter_mut().zip(self.changed_before(ids.values())?) {
            *fresh &= !changed;
        }
        self.reserve_ids(ids.len())?;
        let ending = match self.bound.kind {
            DmlKind::Delete => &mut self.deleted,
            _ => &mut self.updated,
        };
        ending.extend(
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

    /// Whether another change of the statement has ended each of these rows; an empty list if
    /// there is no other change.
    pub(super) fn changed_before(&self, ids: &[u64]) -> Result<Vec<bool>> {
        if !self.is_one_of_several {
            return Ok(Vec::new());
        }
        let ids: Vec<RowId> = ids.iter().copied().map(RowId).collect();
        let ended = self.view.ended_by(&self.transaction, &ids);
        let ended = ended.map_err(|error| below(error, std::convert::identity))?;
        assert_eq!(
            ended.len(),
            ids.len(),
            "storage answers for each row whether it has ended"
        );
        Ok(ended)
    }

    /// Reserves the memory of a number of row ids.
    pub(super) fn reserve_ids(&self, ids: usize) -> Result<()> {
        let bytes = ids * (size_of::<RowId>() + 2 * size_of::<u64>());
        self.reservation.try_grow(bytes)
    }

    pub(super) fn keep(
        &mut self,
        rows: RecordBatch,
        push: impl FnOnce(&mut Self, RecordBatch),
    ) -> Result<()> {
        self.reservation.try_grow(rows.get_array_memory_size())?;
        push(self, rows);
        Ok(())
    }
}
