//! Making room: opening segments, and rewriting full ones.
//!
//! Keys that arrive in ascending order fill one segment after the other. If a key belongs into a
//! full segment, the segment is rewritten: garbage is left out, the rest is copied with its
//! stamps into a larger arena or, at the largest size, into two, split between keys. The new row
//! takes part in the split, so that it has room afterwards even if it alone needs half an arena.

use std::{ops::Range, sync::Arc};

use aerostat_segment::{Key, KeyRef, Keys, Segment, Selection};
use aerostat_txn::{ABORTED, LiveSnapshots, Stamp};
use parking_lot::MutexGuard;

use crate::{
    StorageError, Table,
    store::directory::{Access, Directory, Entry, Forward, KeyRange, Latch},
    write::incoming::Incoming,
};

/// A row that a rewrite places: a version that is kept, or the one that needs room.
struct Placed<'k> {
    key: KeyRef<'k>,
    /// `None` for the row to come.
    old_row: Option<u32>,
}

/// The versions of a segment that a rewrite keeps, in key order.
pub(crate) struct Kept {
    /// In the order of the rows; `None` of a table without.
    keys: Option<Keys>,
    rows: Vec<u32>,
}

impl Kept {
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    fn placed(&self) -> Vec<Placed<'_>> {
        let place = |(at, &row): (usize, &u32)| Placed {
            key: self.keys.as_ref().map_or(KeyRef(&[]), |keys| keys.get(at)),
            old_row: Some(row),
        };
        self.rows.iter().enumerate().map(place).collect()
    }
}

/// A segment filled by a rewrite, with the first key of its range.
struct Filled {
    lower: Key,
    entry: Arc<Entry>,
    old_rows: Vec<u32>,
}

/// What a rewrite knows of the segment it reads.
struct Source<'a> {
    entry: &'a Arc<Entry>,
    /// Average heap bytes of a version.
    heap_bytes: usize,
    /// Heap bytes of the row to come.
    heap_bytes_next: usize,
}

impl Source<'_> {
    fn heap_bytes_of(&self, rows: &[Placed<'_>]) -> usize {
        rows.iter()
            .map(|row| {
                if row.old_row.is_some() {
                    self.heap_bytes
                } else {
                    self.heap_bytes_next
                }
            })
            .sum()
    }
}

impl Table {
    /// Opens the first segment, sized for the whole batch.
    pub(crate) fn open_first(&self, incoming: &Incoming<'_>) -> Result<(), StorageError> {
        let structure = self.structure();
        let directory = self.directory();
        if !directory.ranges().is_empty() {
            return Ok(());
        }
        let entry = self.open_for(&directory, incoming, 0, None, true)?;
        self.publish(
            &structure,
            directory.replaced(0..0, vec![KeyRange::new(&[], entry, None)]),
        );
        Ok(())
    }

    /// Makes room for the row `at` of the batch, for which `full` had none. Others
    /// may take it first: the caller tries again.
    pub(crate) fn make_room(
        &self,
        full: &Arc<Entry>,
        incoming: &Incoming<'_>,
        at: usize,
        attempts: u32,
    ) -> Result<(), StorageError> {
        assert!(at < incoming.rows, "room is made for a row");
        let structure = self.structure();
        let directory = self.directory();
        let key = incoming.key(at);
        // Others may have opened the range meanwhile that the key belongs to now.
        let routed = directory.route(key);
        let Some(position) = directory.position(full).filter(|at| routed == Some(*at)) else {
            return Ok(());
        };
        let latch = full.latch();
        let range = &directory.ranges()[position];
        let is_last = position + 1 == directory.ranges().len();
        let above_base = match &range.base {
            Some(base) => {
                let segment = base.pin_key(Access::Again)?;
                *segment.key_of(segment.rows() - 1) < *key.0
            }
            None => true,
        };
        let ascends = !self.is_keyed() || latch.above_key_max(key) && above_base;
        let worth_keeping = full.live() > full.dead();
        if is_last && ascends && worth_keeping {
            let entry = self.open_for(&directory, incoming, at, Some(full), attempts == 0)?;
            let range = KeyRange::new(key.0, entry, None);
            self.publish(
                &structure,
                directory.replaced(position + 1..position + 1, vec![range]),
            );
            return Ok(());
        }
        if full.segment().is_frozen() {
            let upper = directory.upper(position);
            let entry = self.open_delta(incoming, at..incoming.run_end(at, upper))?;
            let range = KeyRange::new(&range.lower, entry, Some(Arc::clone(full)));
            self.publish(
                &structure,
                directory.replaced(position..position + 1, vec![range]),
            );
            return Ok(());
        }
        let heap_bytes = incoming.heap_bytes(self, at..at + 1)?;
        let kept = self.kept_rows(full, &self.store().txns().live_snapshots())?;
        self.rewrite(
            &structure,
            &directory,
            position,
            latch,
            kept,
            Some((key, heap_bytes)),
        )?;
        Ok(())
    }

    /// The versions that some snapshot may see, in key order.
    ///
    /// # Errors
    /// Those of [`Entry::pin`]; key columns that are not the schema's, which cannot be.
    pub(crate) fn kept_rows(
        &self,
        entry: &Entry,
        live: &LiveSnapshots,
    ) -> Result<Kept, StorageError> {
        let kept = seen_by_some(entry.segment(), live);
        let rows: Vec<u32> = kept.iter().collect();
        if !self.is_keyed() {
            return Ok(Kept { keys: None, rows });
        }
        let segment = entry.pin_key(Access::Again)?;
        let keys = self.own_keys(rows.len(), &|at| segment.gather(at, &kept))?;
        Ok(if keys.is_ascending() {
            let keys = Some(keys);
            Kept { keys, rows }
        } else {
            let order = keys.order();
            Kept {
                keys: Some(keys.reordered(&order)),
                rows: order.iter().map(|&at| rows[at as usize]).collect(),
            }
        })
    }

    /// Replaces the entry at `position` by new ones with the kept rows and room for
    /// the row to come. Returns the bytes the new ones use. On error nothing changed.
    pub(crate) fn rewrite(
        &self,
        structure: &MutexGuard<'_, ()>,
        directory: &Directory,
        position: usize,
        latch: Latch<'_>,
        kept: Kept,
        next: Option<(KeyRef<'_>, usize)>,
    ) -> Result<u64, StorageError> {
        let mut rows = kept.placed();
        let range = &directory.ranges()[position];
        let entry = &range.entry;
        let old_rows = entry.segment().rows();
        let source = Source {
            entry,
            heap_bytes: entry
                .segment()
                .heap_used_bytes()
                .div_ceil(old_rows.max(1) as usize),
            heap_bytes_next: next.map_or(0, |(_, heap_bytes)| heap_bytes),
        };
        if let Some((key, _)) = next {
            let at = rows.partition_point(|row| row.key <= key);
            rows.insert(at, Placed { key, old_row: None });
        }
        let mut filled = Vec::new();
        if !rows.is_empty() {
            self.place(&source, &rows, &mut filled)?;
        }
        let mut targets = Vec::with_capacity(filled.len());
        let mut first = 0;
        for target in filled.iter().filter(|target| !target.old_rows.is_empty()) {
            targets.push((first, Arc::clone(&target.entry.place)));
            first += target.old_rows.len() as u32;
        }
        assert_eq!(
            first as usize,
            kept.len(),
            "a rewrite places every version that it keeps"
        );
        let ranges: Vec<KeyRange> = filled
            .iter()
            .enumerate()
            .map(|(at, target)| {
                // The first takes over the whole lower end of the range.
                let lower = if at == 0 {
                    directory.lower(position)
                } else {
                    &target.lower
                };
                KeyRange::new(lower, Arc::clone(&target.entry), range.base.clone())
            })
            .collect();
        let (at, ranges) = if ranges.is_empty() {
            emptied(directory, position)
        } else {
            (position..position + 1, ranges)
        };
        let kept = filled
            .iter()
            .flat_map(|target| target.old_rows.iter().copied());
        let forward = Forward::new(old_rows, kept, targets);
        self.publish(structure, directory.replaced(at, ranges));
        entry.place.retire(forward);
        drop(latch);
        Ok(filled
            .iter()
            .map(|target| target.entry.segment().whole_bytes())
            .sum())
    }

    /// Copies `rows` into one new segment if they fit well, else cuts them in two.
    fn place(
        &self,
        source: &Source<'_>,
        rows: &[Placed<'_>],
        filled: &mut Vec<Filled>,
    ) -> Result<(), StorageError> {
        let (sizes, most) = (self.store().sizes(), self.store().arena_bytes_max());
        if self.fill_roomy(source, rows, most, filled)? {
            return Ok(());
        }
        if let Some(cut) = self.cut(rows) {
            self.place(source, &rows[..cut], filled)?;
            return self.place(source, &rows[cut..], filled);
        }
        if self.fill_roomy(source, rows, sizes.largest(), filled)? {
            return Ok(());
        }
        // One key, and less than a third of the largest arena would be free.
        let tight = self.heap_bytes_left(sizes.largest(), rows.len() + 1);
        if tight > 0 && self.fill(source, rows, sizes.largest(), tight, filled)? {
            return Ok(());
        }
        Err(StorageError::KeyCrowded {
            table: self.schema().name.clone(),
        })
    }

    /// Copies `rows` into one new segment of at most so many bytes, if they fit well.
    fn fill_roomy(
        &self,
        source: &Source<'_>,
        rows: &[Placed<'_>],
        most: usize,
        filled: &mut Vec<Filled>,
    ) -> Result<bool, StorageError> {
        let sizes = self.store().sizes();
        let heap_bytes = source.heap_bytes_of(rows);
        let mut size = sizes.roomy(&self.segment_schema(), rows.len(), heap_bytes);
        // The average may be far from these rows' own: then try the next size.
        while let Some(arena_bytes) = size.filter(|size| *size <= most) {
            let per_row = heap_bytes.div_ceil(rows.len());
            if self.fill(source, rows, arena_bytes, per_row, filled)? {
                return Ok(true);
            }
            size = sizes.above(arena_bytes);
        }
        Ok(false)
    }

    /// The position nearest to the middle at which the key changes. Tables without
    /// a key may be cut anywhere.
    fn cut(&self, rows: &[Placed<'_>]) -> Option<usize> {
        let middle = rows.len() / 2;
        let may_cut = |&at: &usize| {
            at > 0 && at < rows.len() && (!self.is_keyed() || rows[at - 1].key != rows[at].key)
        };
        (0..=middle + 1).find_map(|distance| {
            Some(middle + distance)
                .filter(may_cut)
                .or_else(|| middle.checked_sub(distance).filter(may_cut))
        })
    }

    /// The most heap per row with which an arena still has slots for `rows`.
    fn heap_bytes_left(&self, arena_bytes: usize, rows: usize) -> usize {
        let schema = self.segment_schema();
        let (mut low, mut high) = (0, arena_bytes);
        while low < high {
            let middle = (low + high).div_ceil(2);
            if schema.capacity_for(arena_bytes, middle) as usize >= rows {
                low = middle;
            } else {
                high = middle - 1;
            }
        }
        low
    }

    /// Copies the rows into a new segment. `false`, and nothing kept, if they do not fit.
    fn fill(
        &self,
        source: &Source<'_>,
        rows: &[Placed<'_>],
        arena_bytes: usize,
        heap_bytes_per_row: usize,
        filled: &mut Vec<Filled>,
    ) -> Result<bool, StorageError> {
        let entry = self.open_segment(arena_bytes, heap_bytes_per_row)?;
        let old_rows: Vec<u32> = rows.iter().filter_map(|row| row.old_row).collect();
        let last = rows.iter().rev().find(|row| row.old_row.is_some());
        let heap_bytes = old_rows.len() * source.heap_bytes;
        let from = [(source.entry, &old_rows[..])];
        if !self.copy_rows(&entry, &from, heap_bytes, last.map(|row| row.key))? {
            return Ok(false);
        }
        count_dead(&entry);
        filled.push(Filled {
            lower: rows[0].key.to_key(),
            entry,
            old_rows,
        });
        Ok(true)
    }

    /// Copies rows of other entries to one that nobody else knows, with their stamps as they
    /// are now: final if the caller holds the others' latches. The dead are for the caller to
    /// count. No key of the rows is above `key_max`. `false` when they do not fit: the entry
    /// is then of no use.
    pub(crate) fn copy_rows(
        &self,
        to: &Arc<Entry>,
        from: &[(&Arc<Entry>, &[u32])],
        heap_bytes: usize,
        key_max: Option<KeyRef<'_>>,
    ) -> Result<bool, StorageError> {
        let mut latch = to.latch();
        latch.reserve(from.iter().map(|(_, rows)| rows.len()).sum(), heap_bytes)?;
        for (old, rows) in from {
            let appended = latch
                .writer
                .append_rows_from(&old.pin_all(Access::Again)?, rows)
                .map_err(|error| self.segment_error(error))?;
            if appended.count as usize != rows.len() {
                return Ok(false);
            }
            to.add_variable_bytes(old.variable_bytes_of(appended.count));
        }
        if let Some(key) = key_max.filter(|_| self.is_keyed()) {
            latch.raise_key_max(key);
        }
        latch.settle_reservation()?;
        Ok(true)
    }

    /// A segment in front of a frozen one, with room for rows of its range. It grows as
    /// any other, so it begins small: a sparse index touches a page per row.
    fn open_delta(
        &self,
        incoming: &Incoming<'_>,
        rows: Range<usize>,
    ) -> Result<Arc<Entry>, StorageError> {
        let sizes = self.store().sizes();
        let heap_bytes = incoming.heap_bytes(self, rows.clone())?;
        let heap_bytes_first = incoming.heap_bytes(self, rows.start..rows.start + 1)?;
        let size = sizes
            .roomy(&self.segment_schema(), rows.len(), heap_bytes)
            .unwrap_or(sizes.largest());
        let heap_bytes_per_row = heap_bytes.div_ceil(rows.len()).max(heap_bytes_first);
        self.open_segment(size, heap_bytes_per_row)
    }

    /// A segment for the rows from `from` on, sized by what they need and by how
    /// large the table is already.
    pub(crate) fn open_for(
        &self,
        directory: &Directory,
        incoming: &Incoming<'_>,
        from: usize,
        before: Option<&Arc<Entry>>,
        trust_average: bool,
    ) -> Result<Arc<Entry>, StorageError> {
        assert!(from < incoming.rows, "a segment is opened for rows");
        let sizes = self.store().sizes();
        let rows = incoming.rows - from;
        let heap_bytes = incoming.heap_bytes(self, from..incoming.rows)?;
        let heap_bytes_first = incoming.heap_bytes(self, from..from + 1)?;
        let so_far: usize = directory
            .entries()
            .iter()
            .map(|entry| entry.segment().arena_bytes())
            .sum();
        let needed = sizes
            .fitting(&self.segment_schema(), rows, heap_bytes)
            .unwrap_or(sizes.largest());
        // Rows before these tell what interning saves; the rows themselves are an
        // upper bound. If trusting them made no room, the row that got none decides.
        // A row that takes as much as all of these fits, so one like those before does.
        let per_row = match before.filter(|entry| entry.segment().rows() > 0) {
            Some(entry) if trust_average => {
                let average = entry
                    .segment()
                    .heap_used_bytes()
                    .div_ceil(entry.segment().rows() as usize);
                average + average / 8
            }
            _ => heap_bytes.div_ceil(rows).max(heap_bytes_first),
        };
        let heap_bytes_per_row = per_row.min(heap_bytes);
        // The first row has to fit; the others may go to further segments.
        let first = sizes.fitting(&self.segment_schema(), 1, heap_bytes_first);
        let wanted = needed.max(so_far).min(self.store().arena_bytes_max());
        let size = sizes.at_least(wanted.max(first.unwrap_or(sizes.largest())));
        self.open_segment(size, heap_bytes_per_row)
    }
}

/// The versions of a segment that some snapshot may see.
pub(crate) fn seen_by_some(segment: &Segment, live: &LiveSnapshots) -> Selection {
    let mut seen = Selection::default();
    let mut is_seen = |begin: u64, end: u64| Some(!live.is_garbage(begin, end));
    segment.select_visible(0..segment.rows(), &mut is_seen, &mut seen);
    seen
}

/// Counts the versions of a segment that nobody else writes yet which have ended for good.
pub(crate) fn count_dead(entry: &Entry) {
    let is_dead = |row: &u32| {
        let (begin, end) = entry.segment().stamps(*row);
        begin == ABORTED || Stamp::has_ended(end)
    };
    entry.add_dead((0..entry.segment().rows()).filter(is_dead).count() as u32);
}

/// What becomes of a range whose own segment has no rows left: the keys of a base
/// stay in a range with that base, others go to the range before.
pub(crate) fn emptied(directory: &Directory, position: usize) -> (Range<usize>, Vec<KeyRange>) {
    let ranges = directory.ranges();
    let range = &ranges[position];
    let Some(base) = &range.base else {
        return (position..position + 1, Vec::new());
    };
    if position > 0 && ranges[position - 1].shares_base(range) {
        return (position..position + 1, Vec::new());
    }
    match ranges.get(position + 1) {
        Some(next) if next.shares_base(range) => {
            let grown = KeyRange {
                lower: Arc::clone(&range.lower),
                ..next.clone()
            };
            (position..position + 2, vec![grown])
        }
        _ => {
            let alone = KeyRange::new(&range.lower, Arc::clone(base), None);
            (position..position + 1, vec![alone])
        }
    }
}
