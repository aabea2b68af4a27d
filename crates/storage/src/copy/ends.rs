//! Rows of tables without a key that a copy's applier ends: the log has them whole.
//!
//! Rows without a key have no identity, so any that is equal will do, as long as it is committed or the
//! transaction's own: one that another has inserted may yet be undone. Equal rows are looked for by a secondary
//! index where the segment has one, else by one column of all rows, and compared as a whole where that is equal.
//! The leader has searched for them as well.

use std::{
    collections::{HashMap, HashSet},
    ops::ControlFlow,
    sync::Arc,
};

use aerostat_segment::{Keys, NewRows, Pinned, Selection, VECTOR_ROWS};
use aerostat_txn::{Stamp, Transaction};
use aerostat_types::TxnId;
use arrow_array::{Array, ArrayRef};

use super::rows::{end_rows, is_live};
use crate::{
    StorageError, Table,
    files::{
        codec::{self, BadBytes, RowBuffer},
        log::redo::Operation,
    },
    store::{
        directory::{Access, Entry},
        index::Index,
        shape::Shape,
    },
    write::writes::Writes,
};

/// Rows that are to end in a table, each by its image and how often.
pub(super) struct Wanted {
    table: Arc<Table>,
    images: HashMap<Vec<u8>, u64>,
    /// The images of the first column's values.
    firsts: HashSet<Vec<u8>>,
    /// The rows, as they came.
    columns: Vec<Vec<ArrayRef>>,
    bytes: usize,
}

/// The keys that wanted rows have in a secondary index of a shape.
struct Probe {
    index: Arc<Index>,
    shape: Arc<Shape>,
    keys: Vec<Keys>,
}

impl Wanted {
    pub(super) fn of(table: &Arc<Table>) -> Wanted {
        Wanted {
            table: Arc::clone(table),
            images: HashMap::new(),
            firsts: HashSet::new(),
            columns: Vec::new(),
            bytes: 0,
        }
    }

    /// About how much it takes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Adds the rows of an operation.
    pub(super) fn add(&mut self, operation: &Operation<'_>) -> Result<(), BadBytes> {
        let mut buffer = RowBuffer::new(self.table.types());
        buffer.decode(operation.rows, operation.body)?;
        let columns = buffer.finish()?;
        for row in 0..operation.rows {
            let image = image_of(&self.table, &columns, row);
            self.bytes += image.len();
            *self.images.entry(image).or_default() += 1;
            self.firsts.extend(first_of(&self.table, &columns, row));
        }
        self.columns.push(columns);
        Ok(())
    }

    /// An index that has all of them: none has a NULL there.
    fn probe(&self) -> Result<Option<Probe>, StorageError> {
        let shape = Arc::clone(&self.table.shape());
        let has_all = |index: &&Arc<Index>| {
            let mut of_index = index.spec.attributes.iter();
            of_index.all(|at| self.columns.iter().all(|rows| rows[*at].null_count() == 0))
        };
        let Some(index) = shape.indexes.iter().find(has_all) else {
            return Ok(None);
        };
        let keys = self.columns.iter().map(|rows| {
            let keys = index.spec.keys(&shape.segment_schema, NewRows::from(rows));
            keys.map_err(|error| self.table.segment_error(error))
        });
        let keys = keys.collect::<Result<_, _>>()?;
        Ok(Some(Probe {
            index: Arc::clone(index),
            shape,
            keys,
        }))
    }

    /// Ends them; whether all were there. `own` are the ids of whatever commits with the transaction.
    pub(super) fn end(
        mut self,
        txn: &Transaction,
        own: &HashSet<TxnId>,
    ) -> Result<bool, StorageError> {
        let table = Arc::clone(&self.table);
        let mut writes = Writes::of(txn, &table);
        let probe = self.probe()?;
        while !self.images.is_empty() {
            let directory = Arc::clone(&table.directory());
            let mut is_whole = true;
            for entry in directory.entries() {
                is_whole &= self.end_in(&mut writes, entry, own, probe.as_ref())?;
                if self.images.is_empty() {
                    break;
                }
            }
            // What is ended is not found again.
            if is_whole && table.is_current(&directory) && !self.images.is_empty() {
                return Ok(false);
            }
        }
        table.vacuum_written(&writes);
        Ok(true)
    }

    /// Ends those of a segment; whether it is still one of the table's.
    fn end_in(
        &mut self,
        writes: &mut Writes<'_>,
        entry: &Arc<Entry>,
        own: &HashSet<TxnId>,
        probe: Option<&Probe>,
    ) -> Result<bool, StorageError> {
        // Values stay as they are: only what is found is looked at again under the latch.
        let mut found = match self.rows_of_index(entry, probe)? {
            Some(rows) => self.equal(entry, rows, own)?,
            None => self.candidates(entry, own)?,
        };
        if found.is_empty() {
            return Ok(entry.place.forward().is_none());
        }
        let mut latch = entry.latch();
        if entry.place.forward().is_some() {
            return Ok(false);
        }
        let mut rows = Vec::new();
        found.retain(|(row, _)| is_endable(entry.segment().stamps(*row), own));
        for (row, image) in found {
            if let Some(count) = self.images.get_mut(&image) {
                *count -= 1;
                if *count == 0 {
                    self.images.remove(&image);
                }
                rows.push(row);
            }
        }
        end_rows(writes, entry, &mut latch, &mut rows)?;
        Ok(true)
    }

    /// The rows of a segment that an index has of the keys; `None` if it has no such index.
    fn rows_of_index(
        &self,
        entry: &Arc<Entry>,
        probe: Option<&Probe>,
    ) -> Result<Option<Vec<u32>>, StorageError> {
        let Some(probe) = probe else {
            return Ok(None);
        };
        let schema = &probe.shape.segment_schema;
        let piece = probe.index.piece(entry, schema, Access::Again);
        if piece.position().is_none() {
            return Ok(None);
        }
        let mut rows = Vec::new();
        for key in probe.keys.iter().flat_map(Keys::iter) {
            piece.find(key, &mut |row| {
                rows.push(row);
                ControlFlow::Continue(())
            })?;
        }
        rows.sort_unstable();
        rows.dedup();
        Ok(Some(rows))
    }

    /// Those of some rows of a segment that are wanted, by their images.
    fn equal(
        &self,
        entry: &Arc<Entry>,
        mut rows: Vec<u32>,
        own: &HashSet<TxnId>,
    ) -> Result<Vec<(u32, Vec<u8>)>, StorageError> {
        rows.retain(|row| is_endable(entry.segment().stamps(*row), own));
        let mut found = Vec::new();
        if rows.is_empty() {
            return Ok(found);
        }
        let segment = entry.pin_all(Access::Again)?;
        for some in rows.chunks(VECTOR_ROWS as usize) {
            self.compare(&segment, some, &mut found);
        }
        Ok(found)
    }

    /// Adds those rows of a segment that are wanted.
    fn compare(&self, segment: &Pinned<'_>, rows: &[u32], found: &mut Vec<(u32, Vec<u8>)>) {
        let chosen = Selection::Rows(rows.to_vec());
        let columns: Vec<ArrayRef> = (0..self.table.types().len())
            .map(|at| segment.gather(at, &chosen))
            .collect();
        for (at, row) in rows.iter().enumerate() {
            let image = image_of(&self.table, &columns, at);
            if self.images.contains_key(&image) {
                found.push((*row, image));
            }
        }
    }

    /// The rows of a segment that are wanted, by their images.
    fn candidates(
        &self,
        entry: &Arc<Entry>,
        own: &HashSet<TxnId>,
    ) -> Result<Vec<(u32, Vec<u8>)>, StorageError> {
        let types = self.table.types();
        let mut found = Vec::new();
        let segment = entry.pin_all(Access::Again)?;
        let rows = segment.rows();
        let mut first = Vec::new();
        for from in (0..rows).step_by(VECTOR_ROWS as usize) {
            let to = rows.min(from + VECTOR_ROWS);
            let live: Vec<u32> = (from..to)
                .filter(|row| is_endable(segment.stamps(*row), own))
                .collect();
            let firsts = match types.is_empty() || live.is_empty() {
                true => None,
                false => Some(segment.gather(0, &Selection::Rows(live.clone()))),
            };
            let is_wanted = |at: usize, first: &mut Vec<u8>| {
                let Some(firsts) = &firsts else { return true };
                first.clear();
                codec::encode(&types[..1], std::slice::from_ref(firsts), at..at + 1, first);
                self.firsts.contains(first.as_slice())
            };
            let wanted: Vec<u32> = (0..live.len())
                .filter(|at| is_wanted(*at, &mut first))
                .map(|at| live[at])
                .collect();
            if wanted.is_empty() {
                continue;
            }
            self.compare(&segment, &wanted, &mut found);
        }
        Ok(found)
    }
}

/// Whether a version is one that the transaction sees, and that nobody has ended.
fn is_endable(stamps: (u64, u64), own: &HashSet<TxnId>) -> bool {
    is_live(stamps)
        && match Stamp::of(stamps.0) {
            Stamp::By(by) => own.contains(&by),
            _ => true,
        }
}

fn image_of(table: &Table, columns: &[ArrayRef], row: usize) -> Vec<u8> {
    let mut image = Vec::new();
    codec::encode(table.types(), columns, row..row + 1, &mut image);
    image
}

fn first_of(table: &Table, columns: &[ArrayRef], row: usize) -> Option<Vec<u8>> {
    let (ty, column) = (table.types().get(..1)?, columns.get(..1)?);
    let mut first = Vec::new();
    codec::encode(ty, column, row..row + 1, &mut first);
    Some(first)
}
