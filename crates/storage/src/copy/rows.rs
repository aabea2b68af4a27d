//! Rows that a copy's applier inserts, and ends by key. Nothing is asked that the leader has asked: keys are
//! unique, values fit.

use std::{ops::ControlFlow, sync::Arc};

use aerostat_segment::{BLOCK_ROWS, KeyRef, Pinned};
use aerostat_txn::{ABORTED, END_NONE, Stamp, Transaction};
use arrow_array::ArrayRef;

use crate::{
    StorageError, Table,
    store::directory::{Access, Entry},
    write::{incoming::Incoming, writes::Writes},
};

/// How often room is made for one row before its segment counts as crowded.
const ROOM_ATTEMPTS_MAX: u32 = 64;

impl Table {
    /// Appends rows as the transaction's own.
    ///
    /// # Errors
    /// Lack of memory; [`StorageError::KeyCrowded`].
    pub(super) fn insert_applied(
        &self,
        txn: &Transaction,
        columns: Vec<ArrayRef>,
        rows: usize,
    ) -> Result<(), StorageError> {
        let mut writes = Writes::of(txn, self);
        let incoming = Incoming::of_columns(self, columns, rows)?;
        let (mut at, mut attempts) = (0, 0);
        while at < incoming.rows {
            let directory = Arc::clone(&self.directory());
            let Some(position) = directory.route(incoming.key(at)) else {
                self.open_first(&incoming)?;
                continue;
            };
            let entry = &directory.ranges()[position].entry;
            let mut latch = entry.latch();
            if !self.is_current(&directory) {
                continue;
            }
            let free = (entry.segment().capacity() - entry.segment().rows()) as usize;
            let upper = directory.upper(position);
            let end = incoming.run_end(at, upper).min(at + free);
            let begun = |rows| writes.begun(&entry.place, rows);
            let stamp = aerostat_segment::stamp::of_txn(txn.id().0);
            let count = self.append_latched(stamp, &incoming, at..end, entry, &mut latch, begun)?;
            drop(latch);
            at += count;
            attempts = if count > 0 { 0 } else { attempts + 1 };
            if attempts > ROOM_ATTEMPTS_MAX {
                return Err(StorageError::KeyCrowded {
                    table: self.schema().name.clone(),
                });
            }
            if count == 0 {
                self.make_room(entry, &incoming, at, attempts)?;
            }
        }
        self.vacuum_written(&writes);
        Ok(())
    }

    /// Ends the rows with these keys, each of which one row has; whether all were there.
    ///
    /// # Errors
    /// Lack of memory, and values that cannot be read back.
    pub(super) fn end_keys_applied(
        &self,
        txn: &Transaction,
        keys: &[Vec<u8>],
    ) -> Result<bool, StorageError> {
        let mut writes = Writes::of(txn, self);
        let mut left: Vec<KeyRef<'_>> = keys.iter().map(|key| KeyRef(key)).collect();
        left.sort_unstable();
        while let Some(&first) = left.first() {
            let directory = Arc::clone(&self.directory());
            let Some(position) = directory.route(first) else {
                return Ok(false);
            };
            let upper = directory.upper(position);
            let is_here = |key: &KeyRef<'_>| upper.is_none_or(|upper| *key.0 < *upper);
            let mut here: Vec<KeyRef<'_>> = left.iter().copied().filter(is_here).collect();
            let others = left.split_off(here.len());
            let mut is_current = true;
            // What is not in front is in the base.
            for entry in directory.ranges()[position].entries() {
                is_current = end_where_found(&mut writes, entry, &mut here)?;
                if !is_current || here.is_empty() {
                    break;
                }
            }
            if is_current && !here.is_empty() && self.is_current(&directory) {
                return Ok(false);
            }
            here.extend(others);
            left = here;
        }
        self.vacuum_written(&writes);
        Ok(true)
    }
}

/// Ends the rows of a segment that have some of the keys, and takes those out; whether the segment is still
/// one of the table's.
fn end_where_found(
    writes: &mut Writes<'_>,
    entry: &Arc<Entry>,
    keys: &mut Vec<KeyRef<'_>>,
) -> Result<bool, StorageError> {
    let mut latch = entry.latch();
    if entry.place.forward().is_some() {
        return Ok(false);
    }
    let segment = entry.pin_key(Access::Rows)?;
    let mut rows = Vec::with_capacity(keys.len());
    keys.retain(|key| {
        let live = find_live(&segment, *key);
        rows.extend(live);
        live.is_none()
    });
    drop(segment);
    end_rows(writes, entry, &mut latch, &mut rows)?;
    Ok(true)
}

/// Marks rows of a segment, none of which anybody has ended.
pub(super) fn end_rows(
    writes: &mut Writes<'_>,
    entry: &Arc<Entry>,
    latch: &mut crate::store::directory::Latch<'_>,
    rows: &mut [u32],
) -> Result<(), StorageError> {
    if rows.is_empty() {
        return Ok(());
    }
    rows.sort_unstable();
    let blocks = rows.chunk_by(|a, b| a / BLOCK_ROWS == b / BLOCK_ROWS);
    latch.reserve_stamps(blocks.count())?;
    let stamp = writes.stamp();
    for &row in rows.iter() {
        latch.writer.set_end(row, stamp);
        writes.ended(&entry.place, row, END_NONE);
    }
    latch.settle_reservation()?;
    Ok(())
}

/// Whether a version may be ended: it has begun, or may yet, and nobody has ended it.
pub(super) fn is_live((begin, end): (u64, u64)) -> bool {
    // Locks of this node's are nobody's business: it is a copy.
    begin != ABORTED && (end == END_NONE || matches!(Stamp::of(end), Stamp::Locked(_)))
}

/// The one row with the key that nobody has ended.
fn find_live(segment: &Pinned<'_>, key: KeyRef<'_>) -> Option<u32> {
    let mut live = None;
    segment.find(key, &mut |row| {
        if is_live(segment.stamps(row)) {
            live = Some(row);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    live
}
