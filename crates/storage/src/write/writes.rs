//! The rows that a transaction wrote in one table, and stamping them when it ends.

use std::{
    ops::Range,
    slice,
    sync::{Arc, Weak},
};

use aerostat_segment::{Selection, stamp};
use aerostat_txn::{
    Awaited, LockSetId, Outcome, Participant, RowLock, RowLocks, RowTag, Stamp, Transaction,
};
use aerostat_types::{TableId, TxnId};
use smallvec::{SmallVec, smallvec};

use crate::{
    StorageError, Table,
    files::log::redo,
    store::directory::{Access, Entry, Latch, SegmentIdentity},
    write::incoming::Incoming,
};

// The segment stores what txn means.
const _: () = assert!(
    stamp::TXN_BIT == aerostat_txn::TXN_BIT
        && stamp::END_NONE == aerostat_txn::END_NONE
        && stamp::ABORTED == aerostat_txn::ABORTED
);

/// Rows that mostly lie side by side, or are one.
type Ranges = SmallVec<[Range<u32>; 1]>;

/// Rows of one segment.
type Rows = (Arc<SegmentIdentity>, Ranges);

/// Sleeps until it may go on, and gives who has settled. The caller holds no latch.
///
/// # Errors
/// [`StorageError::WouldWait`] if the transaction's thread must not sleep, and those of waiting.
pub(crate) fn sleep_until(
    txn: &Transaction,
    awaited: Awaited,
) -> Result<Option<TxnId>, StorageError> {
    match txn.seat() {
        Some(_seat) => Ok(txn.wait(awaited)?),
        None => Err(StorageError::WouldWait {
            awaited: Some(awaited),
        }),
    }
}

/// Collects what one call writes, and enlists it with the transaction when the
/// call returns, also when it fails half-way.
pub(crate) struct Writes<'t> {
    txn: &'t Transaction,
    table: &'t Table,
    begun: SmallVec<[Rows; 1]>,
    ended: SmallVec<[Ended; 1]>,
    /// Who was waited for last, and so has no stamp left.
    waited: Option<TxnId>,
}

struct WriteSet {
    /// A dropped table has nothing left to stamp.
    table: Weak<Table>,
    begun: SmallVec<[Rows; 1]>,
    ended: SmallVec<[Ended; 1]>,
}

/// Rows that were ended, and what their end stamps become if that is undone.
struct Ended {
    rows: Rows,
    before: u64,
}

/// A row to be ended or locked: its position in the caller's list, and where it is now.
pub(crate) struct Target {
    pub(crate) index: usize,
    pub(crate) place: Arc<SegmentIdentity>,
    pub(crate) row: u32,
}

impl<'t> Writes<'t> {
    pub(crate) fn of(txn: &'t Transaction, table: &'t Table) -> Self {
        Self {
            txn,
            table,
            begun: SmallVec::new(),
            ended: SmallVec::new(),
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
        self.table.is_keyed().then(|| self.table.id())
    }

    /// Keeps others' locks FOR KEY SHARE of a row that the transaction is about to replace
    /// by one with the same key. The caller holds the segment's latch.
    pub(crate) fn keep_key_shares(
        &self,
        mode: RowLock,
        set: LockSetId,
        entry: &Entry,
        row: u32,
    ) -> Result<(), StorageError> {
        match self.keyed_table() {
            Some(table) if mode == RowLock::NoKeyUpdate => {
                let key = entry.pin_key(Access::Rows)?.key_of(row);
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
        if self.txn.is_cancelled() {
            Err(StorageError::Cancelled)
        } else {
            Ok(())
        }
    }

    /// Refuses what may take long to a thread that must not wait.
    pub(crate) fn check_may_work(&self) -> Result<(), StorageError> {
        match self.txn.waits() {
            true => Ok(()),
            false => Err(StorageError::WouldWait { awaited: None }),
        }
    }

    /// Waits until another transaction has settled. The caller holds no latch.
    pub(crate) fn wait_for(&mut self, holder: TxnId) -> Result<(), StorageError> {
        self.wait(Awaited::transaction(holder))
    }

    /// As [`Self::wait_for`], or until it is the transaction's turn.
    pub(crate) fn wait(&mut self, awaited: Awaited) -> Result<(), StorageError> {
        assert!(
            awaited.holder.is_none() || self.waited != awaited.holder,
            "a transaction has settled and its stamp stands"
        );
        if let Some(settled) = sleep_until(self.txn, awaited)? {
            self.waited = Some(settled);
        }
        Ok(())
    }

    /// What must happen before a row can be locked that this transaction holds, or nobody.
    pub(crate) fn awaited(
        &self,
        entry: &Entry,
        row: u32,
        mode: RowLock,
        holder: Option<TxnId>,
    ) -> Result<Awaited, StorageError> {
        Ok(Awaited {
            holder,
            row: Some((self.row_tag(entry, row)?, mode)),
        })
    }

    /// Whether a row that nobody holds is for somebody else who waits for it.
    pub(crate) fn is_kept(
        &self,
        entry: &Entry,
        row: u32,
        mode: RowLock,
    ) -> Result<bool, StorageError> {
        Ok(self.txn.is_kept(self.row_tag(entry, row)?, mode))
    }

    /// The transaction is done with these rows of a segment: it waits for none of them.
    pub(crate) fn leave_rows(&self, entry: &Entry, done: &[Target]) -> Result<(), StorageError> {
        for target in done {
            if !self.txn.has_place() {
                break;
            }
            self.txn.leave_row(self.row_tag(entry, target.row)?);
        }
        Ok(())
    }

    /// Without a key a row's next version is another row.
    fn row_tag(&self, entry: &Entry, row: u32) -> Result<RowTag, StorageError> {
        Ok(match self.keyed_table() {
            Some(table) => {
                let segment = entry.pin_key(Access::rows(self.txn.waits()))?;
                RowTag::new(table, segment.key_of(row).borrow())
            }
            None => RowTag::new(self.table.id(), (entry.place.no, row)),
        })
    }

    /// The segments written to, some perhaps more than once.
    pub(crate) fn places(&self) -> impl Iterator<Item = &Arc<SegmentIdentity>> {
        let ended = self.ended.iter().map(|ended| &ended.rows);
        self.begun.iter().chain(ended).map(|(place, _)| place)
    }

    /// Rows appended with the transaction's stamp.
    pub(crate) fn begun(&mut self, place: &Arc<SegmentIdentity>, rows: Range<u32>) {
        match self.begun.last_mut() {
            Some((last, ranges)) if Arc::ptr_eq(last, place) => push_range(ranges, rows),
            _ => self.begun.push((Arc::clone(place), smallvec![rows])),
        }
    }

    /// Says the appended rows to the log. Called under the segment's latch.
    ///
    /// # Errors
    /// [`StorageError::OutOfMemory`]: the log will not have all, so the caller rolls back.
    pub(crate) fn log_insert(
        &self,
        table: &Table,
        incoming: &Incoming<'_>,
        rows: Range<usize>,
    ) -> Result<(), StorageError> {
        if self.txn.is_logged() && !table.is_temporary() && !rows.is_empty() {
            let redo = redo::insert(table.id(), table.types(), incoming.new_rows(), rows);
            self.txn.add_redo(redo)?;
        }
        Ok(())
    }

    /// Says to the log that rows of a segment were ended. Called under its latch.
    ///
    /// # Errors
    /// As [`Self::log_insert`], and those of [`Entry::pin`].
    pub(crate) fn log_ended(&self, entry: &Entry, rows: &[u32]) -> Result<(), StorageError> {
        let table = self.table;
        if !self.txn.is_logged() || table.is_temporary() || rows.is_empty() {
            return Ok(());
        }
        let is_keyed = table.is_keyed();
        let access = Access::rows(self.txn.waits());
        let segment = entry.pin(access, |want| match is_keyed {
            true => want.key(),
            false => want.all(),
        })?;
        let redo = if is_keyed {
            redo::end_keys(table.id(), rows.iter().map(|&row| segment.key_of(row)))
        } else {
            let mut rows = rows.to_vec();
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
    pub(crate) fn ended(&mut self, place: &Arc<SegmentIdentity>, row: u32, before: u64) {
        match self.ended.last_mut() {
            Some(last) if last.before == before && Arc::ptr_eq(&last.rows.0, place) => {
                push_range(&mut last.rows.1, row..row + 1);
            }
            _ => self.ended.push(Ended {
                rows: (Arc::clone(place), smallvec![row..row + 1]),
                before,
            }),
        }
    }
}

impl Drop for Writes<'_> {
    fn drop(&mut self) {
        if !(self.begun.is_empty() && self.ended.is_empty()) {
            self.txn.enlist(Box::new(WriteSet {
                table: self.table.weak(),
                begun: std::mem::take(&mut self.begun),
                ended: std::mem::take(&mut self.ended),
            }));
        }
    }
}

fn push_range(ranges: &mut Ranges, rows: Range<u32>) {
    match ranges.last_mut() {
        Some(last) if last.end == rows.start => last.end = rows.end,
        _ => ranges.push(rows),
    }
}

impl Participant for WriteSet {
    fn finish(self: Box<Self>, outcome: Outcome) {
        let mut settling = Settling::default();
        for (place, ranges) in &self.begun {
            let begin = match outcome {
                Outcome::Committed(ts) => ts.0,
                Outcome::Aborted => stamp::ABORTED,
            };
            settling.add(place, ranges, Side::Begin, begin);
        }
        for ended in &self.ended {
            let end = match outcome {
                Outcome::Committed(ts) => ts.0,
                Outcome::Aborted => ended.before,
            };
            settling.add(&ended.rows.0, &ended.rows.1, Side::End, end);
        }
        settling.run();
        // Rows of a rollback are garbage at once: nobody saw them.
        if outcome == Outcome::Aborted
            && let Some(table) = self.table.upgrade()
        {
            table.vacuum_aborted();
        }
    }
}

/// Which of a version's two stamps is meant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Begin,
    End,
}

/// A final stamp for rows of one segment.
struct Stamping {
    ranges: Ranges,
    side: Side,
    value: u64,
}

impl Stamping {
    fn apply(&self, latch: &mut Latch<'_>) {
        for range in &self.ranges {
            match self.side {
                Side::Begin => latch.writer.set_begin(range.clone(), self.value),
                Side::End => range
                    .clone()
                    .for_each(|row| latch.writer.set_end(row, self.value)),
            }
        }
    }

    /// Counts rows that are dead now.
    fn count(&self, entry: &Entry) {
        let count = self
            .ranges
            .iter()
            .map(|range| range.end - range.start)
            .sum();
        match self.side {
            Side::Begin if self.value == stamp::ABORTED => entry.add_aborted(count),
            Side::End if Stamp::has_ended(self.value) => entry.add_dead(count),
            _ => {}
        }
    }
}

/// Final stamps for rows of some segments. An update mostly has its old and its new row in
/// one, whose latch is then taken once.
#[derive(Default)]
struct Settling(SmallVec<[OfSegment; 1]>);

/// Final stamps for rows of one segment.
struct OfSegment {
    place: Arc<SegmentIdentity>,
    stampings: SmallVec<[Stamping; 2]>,
}

impl Settling {
    fn add(&mut self, place: &Arc<SegmentIdentity>, ranges: &[Range<u32>], side: Side, value: u64) {
        let new = |ranges: &[Range<u32>]| Stamping {
            ranges: ranges.iter().cloned().collect(),
            side,
            value,
        };
        match self.0.last_mut() {
            Some(last) if Arc::ptr_eq(&last.place, place) => match last.stampings.last_mut() {
                Some(last) if (last.side, last.value) == (side, value) => ranges
                    .iter()
                    .for_each(|rows| push_range(&mut last.ranges, rows.clone())),
                _ => last.stampings.push(new(ranges)),
            },
            _ => self.0.push(OfSegment {
                place: Arc::clone(place),
                stampings: smallvec![new(ranges)],
            }),
        }
    }

    /// Overwrites the rows' stamps where they were written and everywhere they were
    /// copied to since: views may still read the retired segments.
    fn run(mut self) {
        self.0.reverse();
        while let Some(OfSegment { place, stampings }) = self.0.pop() {
            if let Some(entry) = place.entry() {
                let mut latch = entry.latch();
                stampings.iter().for_each(|one| one.apply(&mut latch));
                // Stamping touches a little memory; that it is in use is a fact by now, so a
                // budget without room for it learns of it with the next append.
                let _ = latch.settle_reservation();
                // Asked under the latch: a rewrite that comes later copies final stamps
                // and counts the dead itself, and the copies may be marked by others.
                if place.forward().is_none() {
                    stampings.iter().for_each(|one| one.count(&entry));
                    continue;
                }
            }
            let Some(forward) = place.forward() else {
                continue;
            };
            for Stamping {
                ranges,
                side,
                value,
            } in stampings
            {
                let mut moved: Vec<(&Arc<SegmentIdentity>, u32)> = ranges
                    .into_iter()
                    .flatten()
                    .filter_map(|row| forward.get(row))
                    .collect();
                moved.sort_unstable_by_key(|(place, row)| (place.no, *row));
                for (place, row) in moved {
                    self.add(place, slice::from_ref(&(row..row + 1)), side, value);
                }
            }
        }
    }
}
