//! Applying the log's redo to a table, in bulk.
//!
//! ```text
//!  keyed     operations ──► pending: last word per key ──(full)──► end keys, insert sorted
//!  no key    inserts    ──► pending rows               ──(full)──► insert
//!            ends       ──► wanted images              ──(full, or at the end)──► one scan
//! ```
//!
//! Nobody reads meanwhile and no snapshot is older than the end of the log, so a row that came
//! and went between two flushes is never written, and all rows of a flush carry one stamp: that
//! of the newest commit among them.
//!
//! Rows of a table without a key have no identity, so the table is a multiset: the result is what
//! was there plus what came minus what went, in whatever order it is subtracted. Ends are
//! therefore collected and removed in one scan.

use std::{collections::HashMap, ops::ControlFlow, sync::Arc};

use aerostat_segment::{KeyRef, Keys, Pinned, Segment, Selection, VECTOR_ROWS};
use aerostat_txn::{ABORTED, END_NONE};
use aerostat_types::CommitTs;
use arrow_array::{ArrayRef, UInt32Array};
use arrow_select::take::take;

use crate::{
    StorageError, Table,
    files::{
        codec::{self, BadBytes, RowBuffer},
        log::redo::{self, Change, Operation},
    },
    store::directory::{Access, Entry},
    write::incoming::Incoming,
};

/// Rows and ends that wait for a flush: enough that sorting, latches and vacuums are
/// shared by many, little enough to stay in a few caches.
const PENDING_MAX: usize = 32 << 10;
const PENDING_BYTES_MAX: usize = 8 << 20;

/// Images of ended rows that wait for a scan of their table.
const WANTED_BYTES_MAX: usize = 32 << 20;

/// Inserts of so many rows are a batch of their own.
const BULK_ROWS: usize = 1024;

/// What went wrong in a replay.
#[derive(Debug)]
pub(crate) enum ReplayError {
    Bad(BadBytes),
    Storage(StorageError),
}

impl From<BadBytes> for ReplayError {
    fn from(error: BadBytes) -> Self {
        ReplayError::Bad(error)
    }
}

impl From<StorageError> for ReplayError {
    fn from(error: StorageError) -> Self {
        ReplayError::Storage(error)
    }
}

/// What came to a table, in order.
enum Step {
    /// The next so many rows of the buffer.
    Insert(usize),
    End(Vec<u8>),
}

/// A table that is being recovered.
pub(crate) struct Replay {
    table: Arc<Table>,
    rows: RowBuffer,
    steps: Vec<Step>,
    /// How often a row with this image is to go.
    wanted: HashMap<Vec<u8>, u64>,
    wanted_bytes: usize,
    newest: CommitTs,
    /// Whether rows that ended may not be there.
    lenient: bool,
}

impl Replay {
    pub(crate) fn of(table: Arc<Table>, lenient: bool) -> Self {
        Self {
            rows: RowBuffer::new(table.types()),
            steps: Vec::new(),
            wanted: HashMap::new(),
            wanted_bytes: 0,
            newest: CommitTs(0),
            lenient,
            table,
        }
    }

    /// Does an operation of a transaction that committed at `ts`.
    pub(crate) fn apply(
        &mut self,
        operation: &Operation<'_>,
        ts: CommitTs,
    ) -> Result<(), ReplayError> {
        match operation.change {
            Change::Insert if operation.rows >= BULK_ROWS => {
                self.flush()?;
                self.newest = self.newest.max(ts);
                self.rows.decode(operation.rows, operation.body)?;
                return self.insert_all();
            }
            Change::Insert => {
                self.rows.decode(operation.rows, operation.body)?;
                self.steps.push(Step::Insert(operation.rows));
            }
            Change::EndKeys if self.table.is_keyed() => {
                let keys = redo::keys(operation)?;
                self.steps.extend(keys.into_iter().map(Step::End));
            }
            Change::EndRows if !self.table.is_keyed() => self.want(operation)?,
            _ => return Err(BadBytes("ends that are not of this kind of table").into()),
        }
        self.newest = self.newest.max(ts);
        if self.steps.len() >= PENDING_MAX || self.rows.bytes() >= PENDING_BYTES_MAX {
            self.flush()?;
        }
        if self.wanted_bytes >= WANTED_BYTES_MAX {
            self.subtract()?;
        }
        Ok(())
    }

    /// Brings everything into the table.
    pub(crate) fn finish(mut self) -> Result<(), ReplayError> {
        self.subtract()
    }

    /// Brings what is pending into the table, but for ended rows without key.
    fn flush(&mut self) -> Result<(), ReplayError> {
        if self.table.is_keyed() && !self.steps.is_empty() {
            self.settle_keys()
        } else {
            self.steps.clear();
            self.insert_all()
        }
    }

    fn insert_all(&mut self) -> Result<(), ReplayError> {
        let rows = self.rows.rows();
        if rows == 0 {
            return Ok(());
        }
        let columns = self.rows.finish()?;
        Ok(self.table.apply_insert(columns, rows, self.newest)?)
    }

    /// Of each key only the last row stays, and only the first end meets a row that is in
    /// the table already.
    fn settle_keys(&mut self) -> Result<(), ReplayError> {
        let rows = self.rows.rows();
        let columns = self.rows.finish()?;
        let keys = Keys::encode(&self.table.segment_schema(), &columns)
            .map_err(|error| self.table.segment_error(error))?;
        let steps = std::mem::take(&mut self.steps);
        assert_eq!(keys.len(), rows, "each row of a keyed table has a key");
        let mut last: HashMap<KeyRef<'_>, Option<u32>> = HashMap::new();
        let mut ended: Vec<KeyRef<'_>> = Vec::new();
        let mut row = 0;
        for step in &steps {
            match step {
                Step::Insert(count) => {
                    for _ in 0..*count {
                        last.insert(keys.get(row), Some(row as u32));
                        row += 1;
                    }
                }
                Step::End(key) => {
                    if last.insert(KeyRef(key), None).is_none() {
                        ended.push(KeyRef(key));
                    }
                }
            }
        }
        assert_eq!(row, rows, "every row came by a step");
        ended.sort_unstable();
        self.table.apply_ends(&ended, self.newest, self.lenient)?;
        let mut kept: Vec<u32> = last.into_values().flatten().collect();
        if kept.is_empty() {
            return Ok(());
        }
        kept.sort_unstable();
        let columns = if kept.len() == rows {
            columns
        } else {
            choose(&columns, kept.clone())
        };
        Ok(self.table.apply_insert(columns, kept.len(), self.newest)?)
    }

    fn want(&mut self, operation: &Operation<'_>) -> Result<(), BadBytes> {
        let mut buffer = RowBuffer::new(self.table.types());
        buffer.decode(operation.rows, operation.body)?;
        let columns = buffer.finish()?;
        for row in 0..operation.rows {
            let mut image = Vec::new();
            codec::encode(self.table.types(), &columns, row..row + 1, &mut image);
            self.wanted_bytes += image.len();
            *self.wanted.entry(image).or_default() += 1;
        }
        Ok(())
    }

    /// Takes the wanted rows off a table without key.
    fn subtract(&mut self) -> Result<(), ReplayError> {
        self.flush()?;
        if self.wanted.is_empty() {
            return Ok(());
        }
        let directory = Arc::clone(&self.table.directory());
        for entry in directory.entries() {
            let found = self.find_wanted(entry)?;
            end_rows(entry, &found, self.newest)?;
        }
        if !self.wanted.is_empty() && !self.lenient {
            return Err(BadBytes("a row ended that was not there").into());
        }
        self.wanted.clear();
        self.wanted_bytes = 0;
        self.table.vacuum()?;
        Ok(())
    }

    fn find_wanted(&mut self, entry: &Entry) -> Result<Vec<u32>, StorageError> {
        let mut found = Vec::new();
        let segment = entry.pin_all(Access::Again)?;
        let rows = segment.rows();
        let mut image = Vec::new();
        for from in (0..rows).step_by(VECTOR_ROWS as usize) {
            if self.wanted.is_empty() {
                break;
            }
            let to = rows.min(from + VECTOR_ROWS);
            let columns: Vec<ArrayRef> = (0..self.table.types().len())
                .map(|at| segment.gather(at, &Selection::Range(from..to)))
                .collect();
            for row in (from..to).filter(|&row| is_live(&segment, row)) {
                let at = (row - from) as usize;
                image.clear();
                codec::encode(self.table.types(), &columns, at..at + 1, &mut image);
                if let Some(count) = self.wanted.get_mut(&image) {
                    *count -= 1;
                    if *count == 0 {
                        self.wanted.remove(&image);
                    }
                    found.push(row);
                }
            }
        }
        Ok(found)
    }
}

fn is_live(segment: &Segment, row: u32) -> bool {
    let (begin, end) = segment.stamps(row);
    begin != ABORTED && end == END_NONE
}

/// The one row with the key that has not ended.
fn find_live(segment: &Pinned<'_>, key: KeyRef<'_>) -> Option<u32> {
    let mut live = None;
    segment.find(key, &mut |row| {
        if is_live(segment, row) {
            live = Some(row);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    });
    live
}

fn end_rows(entry: &Entry, rows: &[u32], ts: CommitTs) -> Result<(), StorageError> {
    if rows.is_empty() {
        return Ok(());
    }
    let mut latch = entry.latch();
    latch.reserve_stamps(rows.len())?;
    for &row in rows {
        latch.writer.set_end(row, ts.0);
    }
    latch.settle_reservation()?;
    entry.add_dead(rows.len() as u32);
    Ok(())
}

fn choose(columns: &[ArrayRef], rows: Vec<u32>) -> Vec<ArrayRef> {
    let rows = UInt32Array::from(rows);
    columns
        .iter()
        .map(|column| take(column, &rows, None).expect("the rows are of the columns"))
        .collect()
}

impl Table {
    /// Appends rows as those of a commit long ago. Nobody else writes.
    fn apply_insert(
        &self,
        columns: Vec<ArrayRef>,
        rows: usize,
        ts: CommitTs,
    ) -> Result<(), StorageError> {
        let incoming = Incoming::of_columns(self, columns, rows)?;
        let (mut at, mut attempts) = (0, 0);
        while at < incoming.rows {
            let directory = Arc::clone(&self.directory());
            let Some(position) = directory.route(incoming.key(at)) else {
                self.open_first(&incoming)?;
                continue;
            };
            let entry = &directory.ranges()[position].entry;
            let free = (entry.segment().capacity() - entry.segment().rows()) as usize;
            let end = incoming
                .run_end(at, directory.upper(position))
                .min(at + free);
            let mut latch = entry.latch();
            let count = self.append_latched(ts.0, &incoming, at..end, entry, &mut latch, |_| {})?;
            drop(latch);
            at += count;
            attempts = if count > 0 { 0 } else { attempts + 1 };
            if count == 0 {
                self.make_room(entry, &incoming, at, attempts)?;
            }
        }
        Ok(())
    }

    /// Ends the rows with these keys, which ascend.
    fn apply_ends(
        &self,
        keys: &[KeyRef<'_>],
        ts: CommitTs,
        lenient: bool,
    ) -> Result<(), ReplayError> {
        let directory = Arc::clone(&self.directory());
        let position = |key: KeyRef<'_>| directory.route(key);
        for run in keys.chunk_by(|a, b| position(*a) == position(*b)) {
            let range = match position(run[0]) {
                Some(position) => &directory.ranges()[position],
                None if lenient => continue,
                None => return Err(BadBytes("a key ended in an empty table").into()),
            };
            // What is not in front is in the base.
            let mut keys = run.to_vec();
            for entry in range.entries() {
                let segment = entry.pin_key(Access::Rows)?;
                let mut rows = Vec::with_capacity(keys.len());
                keys.retain(|&key| {
                    let live = find_live(&segment, key);
                    rows.extend(live);
                    live.is_none()
                });
                rows.sort_unstable();
                end_rows(entry, &rows, ts)?;
            }
            if !keys.is_empty() && !lenient {
                return Err(BadBytes("a key ended that was not there").into());
            }
        }
        self.vacuum().map_err(ReplayError::Storage)?;
        Ok(())
    }
}
