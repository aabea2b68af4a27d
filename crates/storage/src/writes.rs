//! The rows a transaction wrote in one table, and stamping them when it ends.

use std::{
    ops::Range,
    sync::{Arc, Weak},
};

use aerostat_segment::{Segment, Selection, stamp};
use aerostat_txn::{Outcome, Participant, Transaction};
use aerostat_types::TxnId;

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
    ended: Vec<Rows>,
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

    /// Waits until another transaction has settled. The caller holds no latch.
    pub(crate) fn wait_for(&mut self, holder: TxnId) -> Result<(), StorageError> {
        assert_ne!(
            self.waited,
            Some(holder),
            "a transaction has settled and its stamp stands"
        );
        self.waited = Some(holder);
        Ok(self
            .txn
            .txns()
            .wait_for(self.txn.id(), holder, &self.txn.cancel_token())?)
    }

    /// The segments written to, some perhaps more than once.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Arc<Place>> {
        self.set
            .begun
            .iter()
            .chain(&self.set.ended)
            .map(|(place, _)| place)
    }

    /// Rows appended with the transaction's stamp.
    pub(crate) fn begun(&mut self, place: &Arc<Place>, rows: Range<u32>) {
        push(&mut self.set.begun, place, rows);
    }

    /// Says the appended rows to the log. Called under the segment's latch.
    pub(crate) fn log_insert(&self, table: &Table, incoming: &Incoming, rows: Range<usize>) {
        if self.txn.is_logged() && !rows.is_empty() {
            let redo = redo::insert(table.id(), table.types(), &incoming.columns, rows);
            self.txn.add_redo(&redo);
        }
    }

    /// Says to the log that rows of a segment were ended. Called under its latch.
    pub(crate) fn log_ended(&self, segment: &Arc<Segment>, mut rows: Vec<u32>) {
        let Some(table) = self.set.table.upgrade() else {
            return;
        };
        if !self.txn.is_logged() || rows.is_empty() {
            return;
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
        self.txn.add_redo(&redo);
    }

    /// Gives much redo to the log. The caller holds no latch.
    pub(crate) fn spill_redo(&self) -> Result<(), StorageError> {
        Ok(self.txn.spill_redo()?)
    }

    /// A row marked as ended by the transaction.
    pub(crate) fn ended(&mut self, place: &Arc<Place>, row: u32) {
        push(&mut self.set.ended, place, row..row + 1);
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
        let (begin, end) = match outcome {
            Outcome::Committed(ts) => (ts.0, ts.0),
            Outcome::Aborted => (stamp::ABORTED, stamp::END_NONE),
        };
        for rows in self.begun {
            settle(rows, Side::Begin, begin);
        }
        for rows in self.ended {
            settle(rows, Side::End, end);
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
                    Side::End if value != stamp::END_NONE => entry.add_dead(count),
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
