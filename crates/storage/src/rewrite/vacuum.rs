//! Vacuum: segments that are mostly garbage are rewritten without it.
//!
//! A small one is rewritten under its latch, which takes less time than waking another thread.
//! The rows of a large one are copied while its writers go on, as the freezer copies rows that
//! are too new for it (`tail`).

use std::sync::Arc;

use aerostat_types::CommitTs;
use parking_lot::{Mutex, MutexGuard};

use crate::{
    StorageError, Table,
    rewrite::{chosen::Chosen, freeze::retire, tail::Tails},
    store::{
        directory::{Directory, Entry, KeyRange},
        unit::Unit,
    },
    write::{
        room::{emptied, seen_by_some},
        writes::Writes,
    },
};

/// Arenas below this many bytes are not vacuumed before an insert needs their
/// room: they give nothing back that matters.
const BYTES_MIN: u64 = 16 << 10;

/// Rewriting an arena with no more bytes than this takes less time than it takes to wake
/// another thread for it.
const AT_ONCE_BYTES_MAX: u64 = 64 << 10;

/// A write leaves so many dead versions where they are: a rewrite takes an arena from the
/// system and gives one back, which is not worth it for every tenth update of a small table.
/// A search for a row that is updated again and again walks past all of them.
const DEAD_MIN: u32 = 64;

/// What is done when others are at work on the same table.
#[derive(Clone, Copy)]
enum Patience {
    Waits,
    /// The garbage is left where it is for now.
    GivesUp,
}

impl Patience {
    fn lock(self, mutex: &Mutex<()>) -> Option<MutexGuard<'_, ()>> {
        match self {
            Patience::Waits => Some(mutex.lock()),
            Patience::GivesUp => mutex.try_lock(),
        }
    }
}

impl Table {
    /// Rewrites segments that are mostly garbage, and returns how many bytes in use
    /// became free. They go back when the last view of the old segments is dropped.
    ///
    /// # Errors
    /// When there is not even memory for what is kept.
    pub fn vacuum(&self) -> Result<u64, StorageError> {
        self.vacuum_all(Patience::Waits)
    }

    /// Vacuums what a rollback left dead, unless somebody changes the structure just now.
    pub(crate) fn vacuum_aborted(&self) {
        if let Err(error) = self.vacuum_all(Patience::GivesUp) {
            put_off(self, &error);
        }
    }

    /// The emptiest segments first, for what they give back may be what the others'
    /// copies need. Only when none could be rewritten is lack of memory an error.
    fn vacuum_all(&self, patience: Patience) -> Result<u64, StorageError> {
        let mut entries = self.directory().entries().to_vec();
        // Cached, because others change the counts meanwhile.
        entries.sort_by_cached_key(|entry| entry.live());
        let mut freed = 0;
        let mut failure = None;
        for entry in entries {
            if self.store().is_leaving() {
                break;
            }
            match self.vacuum_entry(patience, &entry) {
                Ok(bytes) => freed += bytes,
                Err(error) => failure = Some(error),
            }
        }
        failure.filter(|_| freed == 0).map_or(Ok(freed), Err)
    }

    /// Vacuums what a call has written to, if that pays and nobody else changes the
    /// structure just now. A large segment is left to another thread by one that must not
    /// wait: see [`Table::take_vacuum_wish`].
    pub(crate) fn vacuum_written(&self, writes: &Writes<'_>) {
        for place in writes.places() {
            let Some(entry) = place.entry() else { continue };
            if entry.dead() <= DEAD_MIN.max(entry.segment().rows() / 2) {
                continue;
            }
            if !writes.txn().waits() && is_large(&entry) {
                if entry.wants_vacuum(self.store().txns().horizon()) {
                    self.wish_vacuum();
                }
                continue;
            }
            if let Err(error) = self.vacuum_entry(Patience::GivesUp, &entry) {
                return put_off(self, &error);
            }
        }
    }

    fn vacuum_entry(&self, patience: Patience, entry: &Arc<Entry>) -> Result<u64, StorageError> {
        let horizon = self.store().txns().horizon();
        if entry.segment().whole_bytes() < BYTES_MIN || !entry.wants_vacuum(horizon) {
            return Ok(0);
        }
        match is_large(entry) {
            true => self.vacuum_beside(patience, entry, horizon),
            false => self.vacuum_at_once(patience, entry, horizon),
        }
    }

    fn vacuum_at_once(
        &self,
        patience: Patience,
        entry: &Arc<Entry>,
        horizon: CommitTs,
    ) -> Result<u64, StorageError> {
        let Some(structure) = patience.lock(self.structure_mutex()) else {
            return Ok(0);
        };
        let directory = self.directory();
        let Some(position) = directory.position(entry) else {
            return Ok(0);
        };
        let latch = entry.latch();
        let used = entry.segment().whole_bytes();
        let kept = self.kept_rows(entry, &self.store().txns().live_snapshots())?;
        if kept.len() > entry.segment().rows() as usize / 2 {
            entry.postpone_vacuum(horizon);
            return Ok(0);
        }
        let used_after = self.rewrite(&structure, &directory, position, latch, kept, None)?;
        Ok(used.saturating_sub(used_after))
    }

    /// Copies what is kept while writers go on, and makes them wait for the last few rows.
    fn vacuum_beside(
        &self,
        patience: Patience,
        entry: &Arc<Entry>,
        horizon: CommitTs,
    ) -> Result<u64, StorageError> {
        let Some(_vacuuming) = patience.lock(self.vacuuming_mutex()) else {
            return Ok(0);
        };
        if self.directory().position(entry).is_none() {
            return Ok(0);
        }
        let used = entry.segment().whole_bytes();
        let kept = seen_by_some(entry.segment(), &self.store().txns().live_snapshots());
        if kept.len() > entry.segment().rows() as usize / 2 {
            entry.postpone_vacuum(horizon);
            return Ok(0);
        }
        let unit = Unit::of_entry(Arc::clone(entry));
        let none = Chosen::none(&unit);
        let Some(mut tails) = Tails::copied(self, &unit, &none, &[])? else {
            entry.postpone_vacuum(horizon);
            return Ok(0);
        };
        let Some(structure) = patience.lock(self.structure_mutex()) else {
            return Ok(0);
        };
        let directory = self.directory();
        let Some(position) = directory.position(entry) else {
            return Ok(0);
        };
        let latch = entry.latch();
        if !tails.finish(self, &unit, &none, &[])? {
            return Ok(0);
        }
        let copy = tails.ranges()[0].entry.as_ref();
        self.publish(&structure, with_copy(&directory, position, copy));
        retire(&unit, none.positions(), &[], tails.ranges());
        drop(latch);
        let used_after = copy.map_or(0, |copy| copy.segment().whole_bytes());
        Ok(used.saturating_sub(used_after))
    }
}

fn is_large(entry: &Entry) -> bool {
    entry.segment().whole_bytes() > AT_ONCE_BYTES_MAX
}

/// The directory with the copy of a range's own segment in its stead, if any row was kept.
fn with_copy(directory: &Directory, position: usize, copy: Option<&Arc<Entry>>) -> Directory {
    let (at, ranges) = match copy {
        None => emptied(directory, position),
        Some(copy) => {
            let range = KeyRange {
                entry: Arc::clone(copy),
                ..directory.ranges()[position].clone()
            };
            (position..position + 1, vec![range])
        }
    };
    directory.replaced(at, ranges)
}

/// The rows stay where they are, which is no failure of the statement.
fn put_off(table: &Table, error: &StorageError) {
    tracing::debug!(table = %table.id(), error = error as &dyn std::error::Error, "vacuum put off");
}
