//! The rows that are too new to be frozen: they go to hot segments in front of the new frozen
//! ones.
//!
//! ```text
//!   no latch   copy those there are, then those that came meanwhile, until few do
//!   latches    copy the last few; bring the stamps of all copies up to date
//! ```
//!
//! Rows do not change (ADR 2), so a copy made while writers go on can be wrong only in its
//! stamps, and these change under the latch of the segment that has the row. Writers wait for the
//! last few rows and a look at each stamp, however many rows were copied.

use std::sync::Arc;

use aerostat_segment::{BLOCK_ROWS, Key, Pinned};
use aerostat_txn::{ABORTED, Stamp};

use crate::{
    StorageError, Table,
    rewrite::{
        chosen::{Chosen, Source},
        made::Made,
    },
    store::{
        directory::{Access, Entry},
        unit::Unit,
    },
};

/// So few rows are left to be copied under the latches, if writers let it come to that.
const LAST_ROWS: usize = 256;

/// Writers that are faster than the copying wait in the end.
const PASSES: usize = 8;

/// The new rows of each range to come: one for each made segment, and one if there is none.
pub(crate) struct Tails {
    ranges: Vec<Tail>,
    /// Rows of each entry that are to be looked at beside those appended since.
    known: Vec<Vec<u32>>,
    /// Rows of each entry that there were at the last look.
    seen: Vec<u32>,
}

/// The new rows of one range.
#[derive(Default)]
pub(crate) struct Tail {
    /// In the order of the copies.
    pub(crate) rows: Vec<Source>,
    /// Their copies; `None` if there are none.
    pub(crate) entry: Option<Arc<Entry>>,
}

impl Tails {
    /// Copies the rows that were not chosen and are not garbage, beside the unit's writers.
    /// `None` when those of one range are too many for a segment.
    ///
    /// # Errors
    /// Lack of memory.
    pub(crate) fn copied(
        table: &Table,
        unit: &Unit,
        chosen: &Chosen,
        made: &[Made],
    ) -> Result<Option<Tails>, StorageError> {
        let mut tails = Tails {
            ranges: Vec::new(),
            known: chosen.tail.clone(),
            seen: chosen.rows.clone(),
        };
        tails.ranges.resize_with(made.len().max(1), Tail::default);
        for _ in 0..PASSES {
            match tails.catch_up(table, unit, chosen, made)? {
                None => return Ok(None),
                Some(rows) if rows <= LAST_ROWS => break,
                Some(_) => {}
            }
        }
        Ok(Some(tails))
    }

    /// Makes the copies what the rows are. The caller holds the latches of the unit. `false`
    /// when there is no room for all.
    ///
    /// # Errors
    /// Lack of memory.
    pub(crate) fn finish(
        &mut self,
        table: &Table,
        unit: &Unit,
        chosen: &Chosen,
        made: &[Made],
    ) -> Result<bool, StorageError> {
        if self.catch_up(table, unit, chosen, made)?.is_none() {
            return Ok(false);
        }
        for tail in &self.ranges {
            tail.update_stamps(unit)?;
        }
        Ok(true)
    }

    /// One for each range to come.
    pub(crate) fn ranges(&self) -> &[Tail] {
        &self.ranges
    }

    /// Copies what was appended since the last call, and says how many rows.
    fn catch_up(
        &mut self,
        table: &Table,
        unit: &Unit,
        chosen: &Chosen,
        made: &[Made],
    ) -> Result<Option<usize>, StorageError> {
        let live = table.store().txns().live_snapshots();
        let mut fresh = vec![Vec::new(); self.ranges.len()];
        for (at, entry) in unit.entries.iter().enumerate() {
            let segment = entry.segment();
            let keyed = match table.is_keyed() && made.len() > 1 {
                true => Some(entry.pin_key(Access::Again)?),
                false => None,
            };
            let rows = segment.rows();
            let appended = self.seen[at]..rows;
            self.seen[at] = rows;
            for row in std::mem::take(&mut self.known[at])
                .into_iter()
                .chain(appended)
            {
                let (begin, end) = segment.stamps(row);
                if !live.is_garbage(begin, end) {
                    let range = range_of(keyed.as_ref(), row, chosen, made);
                    let entry = at as u32;
                    fresh[range].push(Source { entry, row });
                }
            }
        }
        let copied = fresh.iter().map(Vec::len).sum();
        for (tail, fresh) in self.ranges.iter_mut().zip(fresh) {
            if !fresh.is_empty() && !tail.take(table, unit, fresh)? {
                return Ok(None);
            }
        }
        Ok(Some(copied))
    }
}

/// Which of the ranges to come has the row's key: of the segment that has the row, unless
/// nobody asks for keys, for there are none or there is one range. Then it is the last.
fn range_of(keyed: Option<&Pinned<'_>>, row: u32, chosen: &Chosen, made: &[Made]) -> usize {
    let Some(segment) = keyed else {
        return made.len().saturating_sub(1);
    };
    let key = segment.key_of(row);
    made.partition_point(|one| chosen.key(one.rows.start) <= key.borrow())
        .saturating_sub(1)
}

impl Tail {
    /// Copies more rows. `false` when the largest segment has no room for all there are.
    fn take(
        &mut self,
        table: &Table,
        unit: &Unit,
        fresh: Vec<Source>,
    ) -> Result<bool, StorageError> {
        let before = self.rows.len();
        self.rows.extend(fresh);
        if let Some(entry) = &self.entry
            && copy(table, unit, entry, &self.rows[before..])?
        {
            return Ok(true);
        }
        let (schema, sizes) = (table.segment_schema(), table.store().sizes());
        let heap_bytes = heap_bytes(unit, &self.rows);
        let mut size = sizes.roomy(&schema, self.rows.len(), heap_bytes);
        while let Some(arena_bytes) = size {
            let heap_bytes_per_row = heap_bytes.div_ceil(self.rows.len());
            let entry = table.open_segment(arena_bytes, heap_bytes_per_row)?;
            if copy(table, unit, &entry, &self.rows)? {
                self.entry = Some(entry);
                return Ok(true);
            }
            // The average may be far from these rows' own.
            size = sizes.above(arena_bytes);
        }
        Ok(false)
    }

    /// Gives the copies the stamps that the rows have now, and counts the dead. The caller
    /// holds the latches of the unit; nobody else knows the copies.
    fn update_stamps(&self, unit: &Unit) -> Result<(), StorageError> {
        let Some(entry) = &self.entry else {
            return Ok(());
        };
        let mut dead = 0;
        let mut changed = Vec::new();
        for (at, source) in (0..).zip(&self.rows) {
            let now = source.segment(unit).stamps(source.row);
            if entry.segment().stamps(at) != now {
                changed.push((at, now));
            }
            let (begin, end) = now;
            dead += u32::from(begin == ABORTED || Stamp::has_ended(end));
        }
        let mut latch = entry.latch();
        let blocks = changed.chunk_by(|a, b| a.0 / BLOCK_ROWS == b.0 / BLOCK_ROWS);
        // A block has begins and ends.
        latch.reserve_stamps(2 * blocks.count())?;
        for (at, (begin, end)) in changed {
            latch.writer.set_begin(at..at + 1, begin);
            latch.writer.set_end(at, end);
        }
        latch.settle_reservation()?;
        entry.add_dead(dead);
        Ok(())
    }
}

/// Copies rows of a unit to a segment that nobody else knows. `false` when they do not fit:
/// the segment is then of no use.
fn copy(
    table: &Table,
    unit: &Unit,
    to: &Arc<Entry>,
    sources: &[Source],
) -> Result<bool, StorageError> {
    let from: Vec<(&Arc<Entry>, Vec<u32>)> = sources
        .chunk_by(|a, b| a.entry == b.entry)
        .map(|run| {
            let rows = run.iter().map(|source| source.row).collect();
            (&unit.entries[run[0].entry as usize], rows)
        })
        .collect();
    let from: Vec<(&Arc<Entry>, &[u32])> = from
        .iter()
        .map(|(entry, rows)| (*entry, &rows[..]))
        .collect();
    let mut key_max = None;
    for (entry, rows) in &from {
        let segment = entry.pin_key(Access::Again)?;
        key_max = key_max.max(rows.iter().map(|&row| segment.key_of(row)).max());
    }
    let key_max = key_max.as_ref().map(Key::borrow);
    table.copy_rows(to, &from, heap_bytes(unit, sources), key_max)
}

/// Bytes of texts that so many rows have, by the averages of their segments.
fn heap_bytes(unit: &Unit, sources: &[Source]) -> usize {
    sources
        .chunk_by(|a, b| a.entry == b.entry)
        .map(|run| {
            let segment = run[0].segment(unit);
            let rows = segment.rows().max(1) as usize;
            segment.heap_used_bytes().div_ceil(rows) * run.len()
        })
        .sum()
}
