//! Deleting and updating the rows that a view found.
//!
//! A row is marked with the transaction's end stamp. A transaction that finds another's mark
//! waits until that one has settled, with no latch held, and looks again: the row is free (the
//! other was rolled back), or it has changed since the snapshot and the statement must be run
//! again. Waiters for a row get it in the order in which they came (`aerostat_txn::RowPlace`). A
//! mark overwrites row locks, of which no conflicting one is left (`lock`); undoing it brings
//! them back.

use std::{ops::Range, sync::Arc};

use aerostat_segment::{BLOCK_ROWS, NewRows, ValueRef};
use aerostat_txn::{Awaited, END_NONE, RowLock, Stamp, Transaction};
use aerostat_types::TxnId;
use arrow_array::{Array, BooleanArray, RecordBatch};
use arrow_select::filter::filter_record_batch;
use smallvec::SmallVec;

use crate::{
    RowId, StorageError, TableView,
    store::directory::{Access, Entry, Latch, SegmentIdentity},
    write::{
        incoming::Given,
        writes::{Target, Writes},
    },
};

/// How far the work on a run of rows in one segment has come.
pub(crate) enum Step {
    /// All are done.
    All,
    /// So many are done; before the next this must happen.
    Held(usize, Awaited),
}

/// Mostly a single one.
type Targets = SmallVec<[Target; 1]>;

/// A row that was marked: its position in the run, and its end stamp before.
pub(crate) struct Marked {
    pub(crate) at: usize,
    pub(crate) before: u64,
}

/// What is done to rows of one segment under its latch.
pub(crate) type RunStep<'s> = dyn FnMut(&mut Writes<'_>, &Arc<Entry>, &mut Latch<'_>, &[Target]) -> Result<Step, StorageError>
    + 's;

impl TableView {
    /// Ends the rows and returns how many; a row that the transaction has ended
    /// already, or that is listed twice, counts once.
    ///
    /// # Errors
    /// [`StorageError::Conflict`] when a transaction that committed after the
    /// snapshot changed one of the rows, [`StorageError::Deadlock`],
    /// [`StorageError::LockTimeout`] or [`StorageError::Cancelled`] while waiting for an
    /// unfinished one, [`StorageError::WouldWait`] when the transaction must not wait. The
    /// caller rolls back.
    pub fn delete(&self, txn: &Transaction, row_ids: &[RowId]) -> Result<u64, StorageError> {
        self.end(txn, row_ids, RowLock::Update)
    }

    /// As [`Self::delete`], of rows in whose stead the caller appends others with the same
    /// keys ([`Self::keys_stay`]): what others have locked FOR KEY SHARE is not in the way.
    ///
    /// # Errors
    /// Those of [`Self::delete`].
    pub fn supersede(&self, txn: &Transaction, row_ids: &[RowId]) -> Result<u64, StorageError> {
        self.end(txn, row_ids, RowLock::NoKeyUpdate)
    }

    fn end(
        &self,
        txn: &Transaction,
        row_ids: &[RowId],
        mode: RowLock,
    ) -> Result<u64, StorageError> {
        let mut writes = Writes::of(txn, self.table());
        let ended = self.end_rows(&mut writes, row_ids, mode)?;
        self.table().vacuum_written(&writes);
        Ok(ended.iter().filter(|ended| **ended).count() as u64)
    }

    /// Says of each row whether the transaction, or its block, has ended it.
    ///
    /// # Errors
    /// [`StorageError::Conflict`] when a row is gone, and with it what the snapshot saw;
    /// [`StorageError::Cancelled`], and over budget.
    pub fn ended_by(
        &self,
        txn: &Transaction,
        row_ids: &[RowId],
    ) -> Result<Vec<bool>, StorageError> {
        let mut ended = vec![false; row_ids.len()];
        let mut writes = Writes::of(txn, self.table());
        self.in_runs(&mut writes, row_ids, false, &mut |writes, entry, _, run| {
            for target in run {
                let (_, end) = entry.segment().stamps(target.row);
                ended[target.index] = matches!(Stamp::of(end), Stamp::By(by) if writes.owns(by));
            }
            Ok(Step::All)
        })?;
        Ok(ended)
    }

    /// Whether each of the new rows has the values of the old one in all columns of the
    /// primary key and of unique indexes.
    ///
    /// # Errors
    /// Those of [`Self::fetch`].
    pub fn keys_stay(
        &self,
        row_ids: &[RowId],
        new_rows: &RecordBatch,
    ) -> Result<bool, StorageError> {
        assert_eq!(
            row_ids.len(),
            new_rows.num_rows(),
            "there is a new row for each old one"
        );
        let shape = self.table().shape();
        let columns = &shape.key_columns;
        if columns.is_empty() || row_ids.is_empty() {
            return Ok(true);
        }
        if let [row_id] = row_ids {
            return self.key_stays(*row_id, NewRows::from(new_rows.columns()));
        }
        let old = self.fetch(row_ids, columns)?;
        let mut pairs = old.columns().iter().zip(columns);
        Ok(pairs.all(|(old, at)| same(old, new_rows.column(*at))))
    }

    /// As [`Self::keys_stay`], of a single row where it lies.
    fn key_stays(&self, row_id: RowId, new: NewRows<'_>) -> Result<bool, StorageError> {
        let columns = &self.table().shape().key_columns;
        let entry = self
            .directory()
            .by_no(row_id.segment())
            .expect("a row id belongs to the view that gave it");
        let wanted = columns.iter().copied();
        let segment = entry.pin(Access::Rows, |want| want.attributes(wanted))?;
        let stays = |&at: &usize| segment.has_value(row_id.row(), at, new, 0);
        Ok(columns.iter().all(stays))
    }

    /// Ends the rows and appends `new_rows` in their stead, row by row of the two
    /// lists. All old rows are ended first, so keys may be swapped within a call.
    /// Returns how many; a row that the transaction has ended already is left out.
    ///
    /// # Errors
    /// Those of [`Self::delete`] and of [`crate::Table::insert`].
    pub fn update(
        &self,
        txn: &Transaction,
        row_ids: &[RowId],
        new_rows: &RecordBatch,
    ) -> Result<u64, StorageError> {
        self.update_but(txn, row_ids, new_rows, &[])
    }

    /// As [`Self::update`], of a single row, whose new values are as in
    /// [`crate::Table::insert_row`].
    ///
    /// # Errors
    /// Those of [`Self::update`].
    pub fn update_row(
        &self,
        txn: &Transaction,
        row_id: RowId,
        values: &[ValueRef<'_>],
    ) -> Result<u64, StorageError> {
        let mode = match self.key_stays(row_id, NewRows::Row(values))? {
            true => RowLock::NoKeyUpdate,
            false => RowLock::Update,
        };
        let mut writes = Writes::of(txn, self.table());
        let ended = self.end_rows(&mut writes, &[row_id], mode)?;
        if !ended[0] {
            return Ok(0);
        }
        let given = Given::Row(values);
        let rows = self.table().insert_rows(&mut writes, given, &[])?;
        self.table().vacuum_written(&writes);
        Ok(rows)
    }

    /// As [`Self::update`], but keys that rows have twice in these unique indexes are let be
    /// for now, as in [`crate::Table::insert_but`].
    ///
    /// # Errors
    /// Those of [`Self::update`].
    pub fn update_but(
        &self,
        txn: &Transaction,
        row_ids: &[RowId],
        new_rows: &RecordBatch,
        put_off: &[String],
    ) -> Result<u64, StorageError> {
        assert_eq!(
            row_ids.len(),
            new_rows.num_rows(),
            "an update has one new row for each old one"
        );
        let mode = match self.keys_stay(row_ids, new_rows)? {
            true => RowLock::NoKeyUpdate,
            false => RowLock::Update,
        };
        let mut writes = Writes::of(txn, self.table());
        let ended = self.end_rows(&mut writes, row_ids, mode)?;
        let rows = if ended.iter().all(|ended| *ended) {
            let given = Given::Batch(new_rows);
            self.table().insert_rows(&mut writes, given, put_off)?
        } else {
            let chosen = filter_record_batch(new_rows, &BooleanArray::from(ended.into_vec()))
                .expect("the filter has one value for each row");
            let given = Given::Batch(&chosen);
            self.table().insert_rows(&mut writes, given, put_off)?
        };
        self.table().vacuum_written(&writes);
        Ok(rows)
    }

    /// Marks the rows; says of each whether this call did.
    fn end_rows(
        &self,
        writes: &mut Writes<'_>,
        row_ids: &[RowId],
        mode: RowLock,
    ) -> Result<SmallVec<[bool; 8]>, StorageError> {
        let mut ended = SmallVec::from_elem(false, row_ids.len());
        // A lock of the key would be left behind with the version.
        let mode = match writes.keyed_table() {
            Some(_) => mode,
            None => RowLock::Update,
        };
        self.in_runs(writes, row_ids, false, &mut |writes, entry, latch, run| {
            mark(writes, mode, entry, latch, run, &mut ended)
        })?;
        Ok(ended)
    }

    /// Does `step` to the rows, run by run in their segments, under the latches of these;
    /// waits for those it finds in the way. `skips_gone` leaves rows out that are garbage.
    pub(crate) fn in_runs(
        &self,
        writes: &mut Writes<'_>,
        row_ids: &[RowId],
        skips_gone: bool,
        step: &mut RunStep<'_>,
    ) -> Result<(), StorageError> {
        // One order for all: transactions that end the same rows meet at the first.
        let mut order: SmallVec<[usize; 8]> = (0..row_ids.len()).collect();
        order.sort_by_key(|&index| row_ids[index]);
        let mut targets = Targets::with_capacity(row_ids.len());
        for index in order {
            match self.locate(index, row_ids[index]) {
                Err(StorageError::Conflict) if skips_gone => {}
                target => targets.push(target?),
            }
        }
        let mut wait = self.table().store().evictor().wait();
        let mut at = 0;
        while at < targets.len() {
            writes.check_cancelled()?;
            let place = Arc::clone(&targets[at].place);
            let is_there = |target: &&Target| Arc::ptr_eq(&target.place, &place);
            let run = targets[at..].iter().take_while(is_there).count();
            let run = at..at + run;
            let Some(entry) = place.entry().filter(|_| place.forward().is_none()) else {
                move_on(&mut targets, run, skips_gone)?;
                continue;
            };
            let mut latch = entry.latch();
            if place.forward().is_some() {
                drop(latch);
                move_on(&mut targets, run, skips_gone)?;
                continue;
            }
            if let Err(refused) = latch.reserve_stamps(blocks(&targets[run.clone()])) {
                // Readers may have the memory, and need no latch to be done.
                drop(latch);
                match writes.txn().waits() && wait.for_readers() {
                    true => continue,
                    false => return Err(refused.into()),
                }
            }
            let done = step(writes, &entry, &mut latch, &targets[run.clone()]);
            drop(latch);
            writes.spill_redo()?;
            let done = done?;
            let (rows, awaited) = match done {
                Step::All => (run.len(), None),
                Step::Held(rows, awaited) => (rows, Some(awaited)),
            };
            assert!(
                rows <= run.len(),
                "a run's step does no rows of the next one"
            );
            writes.leave_rows(&entry, &targets[at..at + rows])?;
            at += rows;
            if let Some(awaited) = awaited {
                writes.wait(awaited)?;
            }
        }
        Ok(())
    }

    fn locate(&self, index: usize, row_id: RowId) -> Result<Target, StorageError> {
        let entry = self
            .directory()
            .by_no(row_id.segment())
            .expect("a row id belongs to the view that gave it");
        let (mut place, mut row) = (Arc::clone(&entry.place), row_id.row());
        follow(&mut place, &mut row)?;
        Ok(Target { index, place, row })
    }
}

/// Whether two columns have the same type and values.
fn same(old: &dyn Array, new: &dyn Array) -> bool {
    old.data_type() == new.data_type() && old == new
}

/// Version blocks that rows of one segment are in, at most.
fn blocks(run: &[Target]) -> usize {
    run.chunk_by(|a, b| a.row / BLOCK_ROWS == b.row / BLOCK_ROWS)
        .count()
}

/// Goes with a run of rows where a rewrite has moved them. Rows of a segment that was
/// truncated are gone.
fn move_on(targets: &mut Targets, run: Range<usize>, skips_gone: bool) -> Result<(), StorageError> {
    let mut gone = Vec::new();
    for at in run {
        let target = &mut targets[at];
        let has_moved = target.place.forward().is_some();
        match follow(&mut target.place, &mut target.row) {
            Ok(()) if has_moved => {}
            Ok(()) | Err(StorageError::Conflict) if skips_gone => gone.push(at),
            Ok(()) => return Err(StorageError::Conflict),
            Err(error) => return Err(error),
        }
    }
    for at in gone.into_iter().rev() {
        targets.remove(at);
    }
    Ok(())
}

/// Goes where rewrites have moved the row.
fn follow(place: &mut Arc<SegmentIdentity>, row: &mut u32) -> Result<(), StorageError> {
    while let Some(forward) = place.forward() {
        // Garbage cannot be visible to the snapshot, which is registered.
        let (next, next_row) = forward.get(*row).ok_or(StorageError::Conflict)?;
        (*place, *row) = (Arc::clone(next), next_row);
    }
    Ok(())
}

/// Marks the rows of a run as far as nobody is in the way.
fn mark(
    writes: &mut Writes<'_>,
    mode: RowLock,
    entry: &Arc<Entry>,
    latch: &mut Latch<'_>,
    run: &[Target],
    ended: &mut [bool],
) -> Result<Step, StorageError> {
    let mut newly = SmallVec::new();
    // Who locks a key does so before the rows are looked at, or after they are marked.
    let keys = (mode == RowLock::Update).then(|| writes.locks().hold_keys());
    let asks = keys
        .as_ref()
        .and_then(|keys| writes.keyed_table().filter(|table| keys.has_any(*table)));
    let asked = match (asks, &keys) {
        (Some(table), Some(keys)) => {
            let access = Access::rows(writes.txn().waits());
            Some((table, keys, entry.pin_key(access)?))
        }
        _ => None,
    };
    let mut held_key = |row: u32| {
        let (table, keys, segment) = asked.as_ref()?;
        keys.holder(writes.txn(), *table, &segment.key_of(row))
    };
    let marked = mark_latched(writes, mode, entry, latch, run, &mut held_key, &mut newly);
    drop(keys);
    for marked in &newly {
        let target = &run[marked.at];
        debug_assert!(!ended[target.index], "a call ends a row once");
        writes.ended(&target.place, target.row, marked.before);
        ended[target.index] = true;
    }
    let rows: SmallVec<[u32; 8]> = newly.iter().map(|marked| run[marked.at].row).collect();
    writes.log_ended(entry, &rows)?;
    marked
}

/// Marks the rows as far as nobody else has marked or locked them; `newly` are those that
/// were not marked.
fn mark_latched(
    writes: &Writes<'_>,
    mode: RowLock,
    entry: &Entry,
    latch: &mut Latch<'_>,
    run: &[Target],
    held_key: &mut dyn FnMut(u32) -> Option<TxnId>,
    newly: &mut SmallVec<[Marked; 1]>,
) -> Result<Step, StorageError> {
    let segment = entry.segment();
    let stamp = writes.end_stamp(mode);
    let may_be_kept = writes.txn().may_be_kept();
    for (at, target) in run.iter().enumerate() {
        let held = |by| {
            let awaited = writes.awaited(entry, target.row, mode, Some(by))?;
            Ok(Step::Held(at, awaited))
        };
        let (_, end) = segment.stamps(target.row);
        let before = match Stamp::of(end) {
            Stamp::At(_) if end == END_NONE => END_NONE,
            Stamp::At(_) => return Err(StorageError::Conflict),
            Stamp::By(by) if writes.owns(by) => continue,
            Stamp::By(by) => return held(by),
            Stamp::Locked(set) => {
                if let Some(by) = writes.locks().holder(writes.txn(), set, mode) {
                    return held(by);
                }
                match writes.locks().is_held(set) {
                    true => {
                        writes.keep_key_shares(mode, set, entry, target.row)?;
                        end
                    }
                    false => END_NONE,
                }
            }
        };
        if let Some(by) = held_key(target.row) {
            return held(by);
        }
        if may_be_kept && before == END_NONE && writes.is_kept(entry, target.row, mode)? {
            let awaited = writes.awaited(entry, target.row, mode, None)?;
            return Ok(Step::Held(at, awaited));
        }
        latch.writer.set_end(target.row, stamp);
        newly.push(Marked { at, before });
    }
    Ok(Step::All)
}
