//! Deleting and updating the rows a view found.
//!
//! A row is marked with the transaction's end stamp. Who finds another
//! transaction's mark waits until it has settled, with no latch held, and looks
//! again: the row is free (that one was rolled back), or it has changed since the
//! snapshot and the statement must be run again.

use std::sync::Arc;

use aerostat_segment::{BLOCK_ROWS, Segment};
use aerostat_txn::{END_NONE, Stamp, Transaction};
use aerostat_types::TxnId;
use arrow_array::{BooleanArray, RecordBatch};
use arrow_select::filter::filter_record_batch;

use crate::{
    RowId, StorageError, TableView,
    directory::{Latch, Place},
    writes::Writes,
};

/// A row to be ended: its position in the caller's list, and where it is now.
struct Target {
    index: usize,
    place: Arc<Place>,
    row: u32,
}

/// How marking a run of rows in one segment ended.
enum Marked {
    /// All are done.
    All,
    /// So many are done; the next is marked by this transaction.
    Held(usize, TxnId),
    /// The segment was rewritten before the latch was taken.
    Moved,
}

impl TableView {
    /// Ends the rows and returns how many; a row that the transaction has ended
    /// already, or that is listed twice, counts once.
    ///
    /// # Errors
    /// [`StorageError::Conflict`] when a transaction that committed after the
    /// snapshot changed one of the rows, [`StorageError::Deadlock`] or
    /// [`StorageError::Cancelled`] while waiting for an unfinished one. The caller
    /// rolls back.
    pub fn delete(&self, txn: &Transaction, row_ids: &[RowId]) -> Result<u64, StorageError> {
        let mut writes = Writes::of(txn, self.table());
        let ended = self.end_rows(&mut writes, row_ids)?;
        self.table().vacuum_written(&writes);
        Ok(ended.iter().filter(|ended| **ended).count() as u64)
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
        assert_eq!(
            row_ids.len(),
            new_rows.num_rows(),
            "an update has one new row for each old one"
        );
        let mut writes = Writes::of(txn, self.table());
        let ended = self.end_rows(&mut writes, row_ids)?;
        let rows = if ended.iter().all(|ended| *ended) {
            self.table().insert_rows(&mut writes, new_rows)?
        } else {
            let chosen = filter_record_batch(new_rows, &BooleanArray::from(ended))
                .expect("the filter has one value for each row");
            self.table().insert_rows(&mut writes, &chosen)?
        };
        self.table().vacuum_written(&writes);
        Ok(rows)
    }

    /// Marks the rows; says of each whether this call did.
    fn end_rows(
        &self,
        writes: &mut Writes<'_>,
        row_ids: &[RowId],
    ) -> Result<Vec<bool>, StorageError> {
        // One order for all: transactions that end the same rows meet at the first.
        let mut order: Vec<usize> = (0..row_ids.len()).collect();
        order.sort_by_key(|&index| row_ids[index]);
        let mut targets = order
            .into_iter()
            .map(|index| self.locate(index, row_ids[index]))
            .collect::<Result<Vec<_>, _>>()?;
        let mut ended = vec![false; row_ids.len()];
        let mut at = 0;
        while at < targets.len() {
            writes.check_cancelled()?;
            let place = &targets[at].place;
            let run = targets[at..]
                .iter()
                .take_while(|target| Arc::ptr_eq(&target.place, place))
                .count();
            let marked = mark(writes, &targets[at..at + run], &mut ended)?;
            writes.spill_redo()?;
            match marked {
                Marked::All => at += run,
                Marked::Held(done, holder) => {
                    at += done;
                    writes.wait_for(holder)?;
                }
                Marked::Moved => {
                    for target in &mut targets[at..at + run] {
                        follow(&mut target.place, &mut target.row)?;
                    }
                }
            }
        }
        Ok(ended)
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

/// Goes where rewrites have moved the row.
fn follow(place: &mut Arc<Place>, row: &mut u32) -> Result<(), StorageError> {
    while let Some(forward) = place.forward() {
        // Garbage cannot be visible to the snapshot, which is registered.
        let (next, next_row) = forward.get(*row).ok_or(StorageError::Conflict)?;
        (*place, *row) = (Arc::clone(next), next_row);
    }
    Ok(())
}

fn mark(
    writes: &mut Writes<'_>,
    run: &[Target],
    ended: &mut [bool],
) -> Result<Marked, StorageError> {
    let place = &run[0].place;
    let Some(entry) = place.entry() else {
        // Rewritten just now; or truncated, and then the row is gone.
        return if place.forward().is_some() {
            Ok(Marked::Moved)
        } else {
            Err(StorageError::Conflict)
        };
    };
    let mut latch = entry.latch();
    if place.forward().is_some() {
        return Ok(Marked::Moved);
    }
    let blocks = run
        .chunk_by(|a, b| a.row / BLOCK_ROWS == b.row / BLOCK_ROWS)
        .count();
    latch.reserve_stamps(blocks)?;
    let mut newly = Vec::new();
    let marked = mark_latched(writes, run, ended, &mut latch, &entry.segment, &mut newly);
    writes.log_ended(&entry.segment, newly);
    marked
}

/// Marks the rows as far as nobody else has; `newly` are those that were not marked.
fn mark_latched(
    writes: &mut Writes<'_>,
    run: &[Target],
    ended: &mut [bool],
    latch: &mut Latch<'_>,
    segment: &Segment,
    newly: &mut Vec<u32>,
) -> Result<Marked, StorageError> {
    for (done, target) in run.iter().enumerate() {
        let (_, end) = segment.stamps(target.row);
        match Stamp::of(end) {
            Stamp::At(_) if end == END_NONE => {
                latch.writer.set_end(target.row, writes.stamp());
                writes.ended(&target.place, target.row);
                newly.push(target.row);
                ended[target.index] = true;
            }
            Stamp::At(_) => return Err(StorageError::Conflict),
            Stamp::By(by) if writes.owns(by) => {}
            Stamp::By(by) => return Ok(Marked::Held(done, by)),
        }
    }
    Ok(Marked::All)
}
