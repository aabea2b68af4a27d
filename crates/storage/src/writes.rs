//! The rows a transaction wrote in one table, and stamping them when it ends.

use std::{
    ops::Range,
    sync::{Arc, Weak},
};

use aerostat_segment::{Segment, Selection, stamp};
use aerostat_txn::{LockSetId, Outcome, Participant, RowLock, RowLocks, Stamp, Transaction};
use aerostat_types::{TableId, TxnId};

use crate::{StorageError, Table, directory::Place, incoming::Incoming, log::redo};

// The segment stores what txn means.
const _: () = assert!(
    stamp::TXN_BIT == aerostat_txn::TXN_BIT
        && stamp::END_NONE == aerostat_txn::END_NONE
        && stamp::ABORTED == aerostat_txn::ABORTED
);

/// Rows of one segment.
type Rows = (Arc<Place>, Vec<Range<u32>>);

/// Collects what one call writes, and enlists it with the transaction when the
/// call returns, also when it fails half-way.
pub(crate) struct Writes<'t> {
    txn: &'t Transaction,
    set: WriteSet,
    /// Who was waited for last, and so has no stamp left.
    waited: Option<TxnId>,
}

struct WriteSet {
    /// A dropped table has nothing left to stamp.
    table: Weak<Table>,
    begun: Vec<Rows>,
    ended: Vec<Ended>,
}

/// Rows that were ended, and what their end stamps become if that is undone.
struct Ended {
    rows: Rows,
    before: u64,
}

impl<'t> Writes<'t> {
    pub(crate) fn of(txn: &'t Transaction, table: &Table) -> Self {
        Self {
            txn,
            set: WriteSet {
                table: table.weak(),
                begun: Vec::new(),
                ended: Vec::new(),
            },
            waited: None,
        }
    }

    /// The stamp of rows the transaction has begun or ended.
    pub(crate) fn stamp(&self) -> u64 {
        stamp::of_txn(self.txn.id().0)
    }

    /// The transaction.
    pub(crate) fn txn(&self) -> &'t Transaction {
        self.txn
    }

    /// The stamp of rows that it ends, or replaces by others with the same key.
    pub(crate) fn end_stamp(&self, mode: RowLock) -> u64 {
        match mode {
            RowLock::NoKeyUpdate => Stamp::superseded_by(self.txn.id()),
            _ => self.stamp(),
        }
    }

    /// The tenant's row locks.
    pub(crate) fn locks(&self) -> &'t RowLocks {
        self.txn.txns().row_locks()
    }

    /// The table, if it has keys of its own.
    pub(crate) fn keyed_table(&self) -> Option<TableId> {
        let table = self.set.table.upgrade()?;
        table.is_keyed().then(|| table.id())
    }

    /// Keeps others' locks FOR KEY SHARE of a row that the transaction is about to replace
    /// by one with the same key. The caller holds the segment's latch.
    pub(crate) fn keep_key_shares(
        &self,
        mode: RowLock,
        set: LockSetId,
        segment: &Segment,
        row: u32,
    ) -> Result<(), StorageError> {
        match self.keyed_table() {
            Some(table) if mode == RowLock::NoKeyUpdate => {
                let key = segment.key_of(row);
                Ok(self.locks().move_to_key(self.txn, set, table, &key)?)
            }
            _ => Ok(()),
        }
    }

    /// Whether rows with this stamp are the transaction's own, or its block's.
    pub(crate) fn owns(&self, id: TxnId) -> bool {
        self.txn.owns(id)
    }

    pub(crate) fn check_cancelled(&self) -> Result<(), StorageError> {
        if self.txn.cancel_token().is_cancelled() {
            Err(StorageError::Cancelled)
        } else {
            Ok(())
        }
    }

    /// Refuses what may take long to a thread that must not wait.
    pub(crate) fn check_may_wait(&self) -> Result<(), StorageError> {
        if self.txn.waits() {
            Ok(())
        } else {
            Err(StorageError::WouldWait)
        }
    }

    /// Waits until another transaction has settled. The caller holds no latch.
    pub(crate) fn wait_for(&mut self, holder: TxnId) -> Result<(), StorageError> {
        self.check_may_wait()?;
        assert_ne!(
            self.waited,
            Some(holder),
            "a transaction has settled and its stamp stands"
        );
        self.waited = Some(holder);
        Ok(self.txn.wait_for(holder)?)
    }

    /// The segments written to, some perhaps more than once.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Arc<Place>> {
        let ended = self.set.ended.iter().map(|ended| &ended.rows);
        self.set.begun.iter().chain(ended).map(|(place, _)| place)
    }

    /// Rows appended with the transaction's stamp.
    pub(crate) fn begun(&mut self, place: &Arc<Place>, rows: Range<u32>) {
        push(&mut self.set.begun, place, rows);
    }

    /// Says the appended rows to the log. Called under the segment's latch.
    ///
    /// # Errors
    /// [`StorageError::OutOfMemory`]: the log will not have all, so the caller rolls back.
    pub(crate) fn log_insert(
        &self,
        table: &Table,
        incoming: &Incoming,
        rows: Range<usize>,
    ) -> Result<(), StorageError> {
        if self.txn.is_logged() && !table.is_temporary() && !rows.is_empty() {
            let redo = redo::insert(table.id(), table.types(), &incoming.columns, rows);
            self.txn.add_redo(redo)?;
        }
        Ok(())
    }

    /// Says to the log that rows of a segment were ended. Called under its latch.
    ///
    /// # Errors
    /// As [`Self::log_insert`].
    pub(crate) fn log_ended(
        &self,
        segment: &Arc<Segment>,
        mut rows: Vec<u32>,
    ) -> Result<(), StorageError> {
        let Some(table) = self.set.table.upgrade() else {
            return Ok(());
        };
        if !self.txn.is_logged() || table.is_temporary() || rows.is_empty() {
            return Ok(());
        }
        let redo = if table.is_keyed() {
            let keys: Vec<_> = rows.iter().map(|&row| segment.key_of(row)).collect();
            redo::end_keys(table.id(), keys.iter().map(|key| &**key))
        } else {
            rows.sort_unstable();
            let count = rows.len();
            let selection = Selection::Rows(rows);
            let columns: Vec<_> = (0..table.types().len())
                .map(|at| segment.gather(at, &selection))
                .collect();
            redo::end_rows(table.id(), table.types(), &columns, count)
        };
        Ok(self.txn.add_redo(redo)?)
    }

    /// Gives much redo to the log. The caller holds no latch.
    pub(crate) fn spill_redo(&self) -> Result<(), StorageError> {
        Ok(self.txn.spill_redo()?)
    }

    /// A row marked as ended by the transaction, and its end stamp before.
    pub(crate) fn ended(&mut self, place: &Arc<Place>, row: u32, before: u64) {
        match self.set.ended.last_mut() {
            Some(last) if last.before == before && Arc::ptr_eq(&last.rows.0, place) => {
                push_range(&mut last.rows.1, row..row + 1);
            }
            _ => self.set.ended.push(Ended {
                rows: (Arc::clone(place), std::iter::once(row..row + 1).collect()),
                before,
            }),
        }
    }
}

impl Drop for Writes<'_> {
    fn drop(&mut self) {
        let WriteSet {
            table,
            begun,
            ended,
        } = &mut self.set;
        if !(begun.is_empty() && ended.is_empty()) {
            let (begun, ended) = (std::mem::take(begun), std::mem::take(ended));
            self.txn.enlist(Box::new(WriteSet {
                table: Weak::clone(table),
                begun,
                ended,
            }));
        }
    }
}

fn push(all: &mut Vec<Rows>, place: &Arc<Place>, rows: Range<u32>) {
    match all.last_mut() {
        Some((last, ranges)) if Arc::ptr_eq(last, place) => push_range(ranges, rows),
        _ => all.push((Arc::clone(place), vec![rows])),
    }
}

fn push_range(ranges: &mut Vec<Range<u32>>, rows: Range<u32>) {
    match ranges.last_mut() {
        Some(last) if last.end == rows.start => last.end = rows.end,
        _ => ranges.push(rows),
    }
}

/// Which of a version's two stamps is meant.
#[derive(Clone, Copy)]
enum Side {
    Begin,
    End,
}

impl Participant for WriteSet {
    fn finish(self: Box<Self>, outcome: Outcome) {
        for rows in self.begun {
            let begin = match outcome {
                Outcome::Committed(ts) => ts.0,
                Outcome::Aborted => stamp::ABORTED,
            };
            settle(rows, Side::Begin, begin);
        }
        for ended in self.ended {
            let end = match outcome {
                Outcome::Committed(ts) => ts.0,
                Outcome::Aborted => ended.before,
            };
            settle(ended.rows, Side::End, end);
        }
        // Rows of a rollback are garbage at once: nobody saw them.
        if outcome == Outcome::Aborted
            && let Some(table) = self.table.upgrade()
        {
            table.vacuum_aborted();
        }
    }
}

/// Overwrites the rows' stamps where they were written and everywhere they were
/// copied to since: views may still read the retired segments.
fn settle(rows: Rows, side: Side, value: u64) {
    let mut pending = vec![rows];
    while let Some((place, ranges)) = pending.pop() {
        if let Some(entry) = place.entry() {
            let mut latch = entry.latch();
            for range in &ranges {
                match side {
                    Side::Begin => latch.writer.set_begin(range.clone(), value),
                    Side::End => range
                        .clone()
                        .for_each(|row| latch.writer.set_end(row, value)),
                }
            }
            // Stamping touches a little memory; that it is in use is a fact by now, so a
            // budget without room for it learns of it with the next append.
            let _ = latch.settle_reservation();
            // Asked under the latch: a rewrite that comes later copies final stamps
            // and counts the dead itself, and the copies may be marked by others.
            if place.forward().is_none() {
                let count = ranges.iter().map(|range| range.end - range.start).sum();
                match side {
                    Side::Begin if value == stamp::ABORTED => entry.add_aborted(count),
                    Side::End if Stamp::has_ended(value) => entry.add_dead(count),
                    _ => {}
                }
                continue;
            }
        }
        if let Some(forward) = place.forward() {
            let mut moved: Vec<(&Arc<Place>, u32)> = ranges
                .into_iter()
                .flatten()
                .filter_map(|row| forward.get(row))
                .collect();
            moved.sort_unstable_by_key(|(place, row)| (place.no, *row));
            let mut next = Vec::new();
            for (place, row) in moved {
                push(&mut next, place, row..row + 1);
            }
            pending.append(&mut next);
        }
    }
}
