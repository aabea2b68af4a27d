//! Appending rows: routing by key, uniqueness, full segments.
//!
//! A batch is cut into runs, each for one segment's key range. Under that segment's latch the
//! run's keys are probed and its rows appended, so between the probe and the append nobody else
//! can insert them. If an unfinished transaction holds a key, the rows before it are appended,
//! the latch is dropped, and the rest begins anew once that transaction has settled. Keys of
//! unique indexes may be in any segment: locks of their own keep others out (`unique`).

use std::sync::Arc;

use aerostat_segment::{KeyRef, Pinned, ValueRef};
use aerostat_txn::Transaction;
use aerostat_types::TxnId;
use arrow_array::RecordBatch;

use crate::{
    StorageError, Table,
    store::directory::{Access, Entry, KeyRange, Latch},
    write::{
        incoming::{Given, Incoming, unique_violation},
        unique::{Holder, Uniqueness, holder_of_row},
        writes::Writes,
    },
};

/// How often in a row room may be made for one row. Each time either the row gets
/// room or others take it; losing this often means that there is none to be had.
const ROOM_ATTEMPTS_MAX: u32 = 64;

/// What happened to a run.
enum Step {
    /// So many rows were appended; the run is done.
    Appended(usize),
    /// So many rows were appended; the segment takes no more.
    Full(usize, Arc<Entry>),
    /// So many rows were appended; the next one's key is this transaction's to decide,
    /// or that of a statement of a block.
    Held(usize, TxnId),
    /// There is no segment yet.
    Empty,
    /// The directory, or what unique indexes demand, changed before the latch was taken.
    Stale,
}

impl Table {
    /// Appends the rows as the transaction's own and returns how many. Columns are
    /// in table order, of the types `SqlType::arrow()` names; strings may be of any
    /// Arrow string type.
    ///
    /// # Errors
    /// NULLs, duplicate keys, values and rows that do not fit, lack of memory, a
    /// deadlock or a cancellation while waiting for another transaction's key,
    /// [`StorageError::WouldWait`] of one that must not. The transaction is then rolled back by the caller, which removes what was appended.
    pub fn insert(&self, txn: &Transaction, batch: &RecordBatch) -> Result<u64, StorageError> {
        self.insert_but(txn, batch, &[])
    }

    /// As [`Self::insert`], of a single row: the values of all columns, each NULL or of its
    /// type's physical form.
    ///
    /// # Errors
    /// Those of [`Self::insert`].
    pub fn insert_row(
        &self,
        txn: &Transaction,
        values: &[ValueRef<'_>],
    ) -> Result<u64, StorageError> {
        self.insert_given(txn, Given::Row(values), &[])
    }

    /// As [`Self::insert`], but keys that rows have twice in these unique indexes are let be
    /// for now: the transaction asks [`Self::check_keys`] before it commits.
    ///
    /// # Errors
    /// Those of [`Self::insert`].
    pub fn insert_but(
        &self,
        txn: &Transaction,
        batch: &RecordBatch,
        put_off: &[String],
    ) -> Result<u64, StorageError> {
        self.insert_given(txn, Given::Batch(batch), put_off)
    }

    fn insert_given(
        &self,
        txn: &Transaction,
        given: Given<'_>,
        put_off: &[String],
    ) -> Result<u64, StorageError> {
        let mut writes = Writes::of(txn, self);
        let rows = self.insert_rows(&mut writes, given, put_off)?;
        self.vacuum_written(&writes);
        Ok(rows)
    }

    pub(crate) fn insert_rows(
        &self,
        writes: &mut Writes<'_>,
        given: Given<'_>,
        put_off: &[String],
    ) -> Result<u64, StorageError> {
        let incoming = Incoming::prepare(self, given)?;
        let mut unique = Uniqueness::of(self, &incoming, put_off)?;
        let (mut at, mut attempts) = (0, 0);
        while at < incoming.rows {
            writes.check_cancelled()?;
            let step = self.append_run(writes, &incoming, &unique, at)?;
            writes.spill_redo()?;
            if let Step::Appended(rows) | Step::Full(rows, _) | Step::Held(rows, _) = step {
                at += rows;
                attempts = if rows > 0 { 0 } else { attempts + 1 };
            }
            match step {
                _ if at == incoming.rows => {}
                Step::Appended(_) => {}
                Step::Stale if unique.is_current(self) => {}
                Step::Stale => unique = Uniqueness::of(self, &incoming, put_off)?,
                Step::Full(..) if attempts > ROOM_ATTEMPTS_MAX => {
                    return Err(StorageError::KeyCrowded {
                        table: self.schema().name.clone(),
                    });
                }
                Step::Full(_, entry) => {
                    writes.check_may_work()?;
                    self.make_room(&entry, &incoming, at, attempts)?;
                }
                Step::Empty => {
                    writes.check_may_work()?;
                    self.open_first(&incoming)?;
                }
                Step::Held(_, holder) => {
                    // The wait is no failure to find room.
                    attempts = 0;
                    writes.wait_for(holder)?;
                }
            }
        }
        Ok(incoming.rows as u64)
    }

    /// Appends rows from `from` on, as far as one segment's range and space go.
    fn append_run(
        &self,
        writes: &mut Writes<'_>,
        incoming: &Incoming<'_>,
        unique: &Uniqueness,
        from: usize,
    ) -> Result<Step, StorageError> {
        let directory = self.directory();
        let Some(position) = directory.route(incoming.key(from)) else {
            return Ok(Step::Empty);
        };
        let range = &directory.ranges()[position];
        let entry = &range.entry;
        let range_end = incoming.run_end(from, directory.upper(position));
        assert!(
            (from + 1..=incoming.rows).contains(&range_end),
            "the range that a key is routed to has it"
        );
        let _stripes = unique.lock(from..range_end);
        let mut latch = entry.latch();
        if !self.is_current(&directory) || !unique.is_current(self) {
            return Ok(Step::Stale);
        }
        let free = (entry.segment().capacity() - entry.segment().rows()) as usize;
        let mut end = range_end.min(from + free);
        let mut held = None;
        if self.is_keyed() {
            match probe_run(range, &latch, incoming, from..end, writes)? {
                Probe::Free => {}
                Probe::Taken(row) => return Err(unique_violation(self, incoming.new_rows(), row)),
                Probe::Held(row, holder) => (end, held) = (row, Some(holder)),
            }
        }
        if let Some((row, holder)) =
            unique.probe(self, &directory, incoming, from..end, writes.txn())?
        {
            (end, held) = (row, Some(holder));
        }
        let count = self.append_latched(
            writes.stamp(),
            incoming,
            from..end,
            entry,
            &mut latch,
            |rows| {
                writes.begun(&entry.place, rows);
            },
        )?;
        writes.log_insert(self, incoming, from..from + count)?;
        let all = from + count == end;
        Ok(match held {
            Some(holder) if all => Step::Held(count, holder),
            _ if all && end == range_end => Step::Appended(count),
            _ => Step::Full(count, Arc::clone(entry)),
        })
    }

    /// Appends rows to a segment whose range has them, as far as they fit, and says how
    /// many did. `begun` hears of them before anything can fail.
    pub(crate) fn append_latched(
        &self,
        stamp: u64,
        incoming: &Incoming<'_>,
        rows: std::ops::Range<usize>,
        entry: &Arc<Entry>,
        latch: &mut Latch<'_>,
        begun: impl FnOnce(std::ops::Range<u32>),
    ) -> Result<usize, StorageError> {
        if rows.is_empty() {
            return Ok(0);
        }
        latch.reserve(rows.len(), incoming.heap_bytes(self, rows.clone())?)?;
        let appended = latch
            .writer
            .append(incoming.new_rows(), rows.clone(), &incoming.keys, stamp)
            .map_err(|error| self.segment_error(error))?;
        let count = appended.count as usize;
        if count > 0 {
            begun(appended.first..appended.first + appended.count);
            assert!(
                count <= rows.len(),
                "{count} rows were appended, of {}",
                rows.len()
            );
            let done = rows.start..rows.start + count;
            entry.add_variable_bytes(incoming.variable_bytes(self, &done));
            if self.is_keyed() {
                latch.raise_key_max(incoming.key(done.end - 1));
            }
        }
        latch.settle_reservation()?;
        Ok(count)
    }
}

enum Probe {
    Free,
    Taken(usize),
    Held(usize, TxnId),
}

/// The first row of the run whose key somebody has. Keys ascend, so from the first
/// key above the greatest of the segment and its base on there is nothing to look for.
/// The base is not latched: its rows have one begin stamp, and whatever end stamp is
/// found of a row was true a moment ago.
fn probe_run(
    range: &KeyRange,
    latch: &Latch<'_>,
    incoming: &Incoming<'_>,
    rows: std::ops::Range<usize>,
    writes: &Writes<'_>,
) -> Result<Probe, StorageError> {
    let access = Access::rows(writes.txn().waits());
    let entry = range.entry.pin_key(access)?;
    let base = match &range.base {
        Some(base) => Some(base.pin_key(access)?),
        None => None,
    };
    let base_max = base.as_ref().map(|base| base.key_of(base.rows() - 1));
    for row in rows {
        let key = incoming.key(row);
        let own = (!latch.above_key_max(key)).then_some(&entry);
        let base = base
            .as_ref()
            .filter(|_| base_max.as_ref().is_some_and(|max| *key.0 <= **max));
        if own.is_none() && base.is_none() {
            break;
        }
        for segment in own.into_iter().chain(base) {
            match holder_of(segment, key, writes.txn()) {
                Holder::Nobody => {}
                Holder::Row => return Ok(Probe::Taken(row)),
                Holder::Transaction(holder) => return Ok(Probe::Held(row, holder)),
            }
        }
    }
    Ok(Probe::Free)
}

/// Who has the key, of all versions there are, whatever any snapshot sees. The
/// caller holds the latch, so no stamp changes meanwhile.
fn holder_of(segment: &Pinned<'_>, key: KeyRef<'_>, txn: &Transaction) -> Holder {
    let mut holder = Holder::Nobody;
    segment.find(key, &mut |row| {
        holder = holder_of_row(segment, row, txn);
        holder.keep_looking()
    });
    holder
}
