//! Reshaping: bringing a table's segments to its shape, one after the other.
//!
//! ```text
//!   set_layout   new segments have the new groups, others stay as they are
//!   reshape      hot      copied under its latch, into an arena of the same size
//!                frozen   built anew with no latch held, then put in its place, under
//!                         whatever is in front of it by then (`freeze`)
//! ```
//!
//! * **Nobody waits for it.** Every segment is read by its own schema, so a table with segments
//!   of several shapes is as good as any other. Statements go on; a writer to the segment that is
//!   being copied waits for its latch, as in any rewrite (`room`).
//! * **It may stop anywhere**: at a cancellation, for lack of memory, in a crash. Finished work
//!   stays, and the next call continues with the rest.
//! * **Rows stay.** A copy has the same rows with the same stamps, except for garbage, under the
//!   same bounds, and the old segment records where they went. Old views go on with old segments.
//!
//! This module does not look at how shapes differ: it compares the schemas' fingerprints.

use std::sync::Arc;

use aerostat_segment::SegmentError;
use aerostat_txn::CancelToken;
use aerostat_types::Layout;

use crate::{
    FreezeReport, StorageError, Table,
    rewrite::{carry::Ends, chosen::Chosen, freeze, made::Made},
    store::{
        directory::{Entry, Forward, KeyRange, Latch},
        unit::Unit,
    },
    write::room::{count_dead, seen_by_some},
};

/// How often in a row a pass over what is left may find writers in its way everywhere.
/// They are in the way only where a frozen segment becomes several while what is in front
/// of it is rewritten; three times in a row means that this happens all the time.
const FRUITLESS_PASSES_MAX: u32 = 3;

/// What a call of [`Table::reshape`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReshapeReport {
    /// Segments of another shape that were replaced.
    pub segments_replaced: u64,
    /// Row versions that were copied.
    pub rows: u64,
    /// Bytes in use of what was replaced.
    pub bytes_before: u64,
    /// Bytes in use of what was made.
    pub bytes_after: u64,
    /// Segments of another shape that are left, because writers were in the way.
    pub segments_left: u64,
}

impl ReshapeReport {
    /// What this call and a later one did.
    pub(crate) fn and(self, later: ReshapeReport) -> ReshapeReport {
        ReshapeReport {
            segments_replaced: self.segments_replaced + later.segments_replaced,
            rows: self.rows + later.rows,
            bytes_before: self.bytes_before + later.bytes_before,
            bytes_after: self.bytes_after + later.bytes_after,
            segments_left: later.segments_left,
        }
    }
}

impl Table {
    /// Changes how new segments are laid out, for good once this returns. Those there are
    /// stay as they are until [`Self::reshape`].
    ///
    /// # Errors
    /// [`StorageError::Layout`] when the layout names what the table lacks,
    /// [`StorageError::RowTooWide`] when no row would fit; of a durable tenant also
    /// [`StorageError::Commit`]. Nothing has changed then.
    pub fn set_layout(&self, layout: &Layout) -> Result<(), StorageError> {
        let shaping = self.shaping();
        let shape = self.shape_of(layout, self.shape().indexes.clone())?;
        self.change_shape(&shaping, shape)
    }

    /// As [`Self::set_layout`], but not for good: the log does not speak of it, and the next checkpoint keeps
    /// it. For a layout that this node has chosen, which other copies of the table need not follow, and which
    /// it would choose again.
    ///
    /// # Errors
    /// As there, but for those of the log.
    pub fn adopt_layout(&self, layout: &Layout) -> Result<(), StorageError> {
        let shaping = self.shaping();
        let shape = self.shape_of(layout, self.shape().indexes.clone())?;
        self.set_shape(&shaping, shape);
        Ok(())
    }

    /// Brings all segments to the shape of new ones, while statements go on. Rows and what
    /// anybody sees of them stay the same. How far it is, [`Self::statistics`] tells.
    ///
    /// # Errors
    /// [`StorageError::Cancelled`], asked before each segment; lack of memory for a copy,
    /// once everything else was done. Some segments are of the new shape then; a later call
    /// goes on with the others.
    pub fn reshape(&self, cancel: &CancelToken) -> Result<ReshapeReport, StorageError> {
        let mut report = ReshapeReport::default();
        let mut fruitless_passes = 0;
        while fruitless_passes < FRUITLESS_PASSES_MAX {
            let replaced = report.segments_replaced;
            let failure = self.reshape_pass(cancel, &mut report)?;
            let directory = self.directory();
            report.segments_left = self.out_of_shape(directory.entries()).count() as u64;
            if report.segments_left == 0 {
                break;
            }
            if report.segments_replaced > replaced {
                fruitless_passes = 0;
            } else if let Some(error) = failure {
                return Err(error);
            } else {
                fruitless_passes += 1;
            }
        }
        Ok(report)
    }

    /// Tries every unit once. Gives the last lack of memory, which may have been made up for.
    fn reshape_pass(
        &self,
        cancel: &CancelToken,
        report: &mut ReshapeReport,
    ) -> Result<Option<StorageError>, StorageError> {
        let units: Vec<Unit> = Unit::all(&self.directory())
            .filter(|unit| self.out_of_shape(&unit.entries).next().is_some())
            .collect();
        let mut failure = None;
        // Each is dropped when it is done, for what it holds is not given back before.
        for unit in units {
            if cancel.is_cancelled() || self.store().is_leaving() {
                return Err(StorageError::Cancelled);
            }
            // What is in front of a frozen segment comes after it: both may become one.
            let is_hot = |entry: &&Arc<Entry>| !entry.segment().is_frozen();
            let (hot, frozen): (Vec<_>, Vec<_>) =
                self.out_of_shape(&unit.entries).partition(is_hot);
            for entry in frozen {
                let done = self.reshape_frozen(&unit, entry, report);
                failure = done.err().or(failure);
            }
            for entry in hot {
                failure = self.reshape_hot(entry, report).err().or(failure);
            }
        }
        Ok(failure)
    }

    fn out_of_shape<'a>(
        &'a self,
        entries: &'a [Arc<Entry>],
    ) -> impl Iterator<Item = &'a Arc<Entry>> {
        entries
            .iter()
            .filter(|entry| !self.shape().has(entry.segment()))
    }

    /// Builds the frozen segment of a unit anew.
    fn reshape_frozen(
        &self,
        unit: &Unit,
        old: &Arc<Entry>,
        report: &mut ReshapeReport,
    ) -> Result<(), StorageError> {
        let _freezing = self.freezing();
        if self.directory().by_no(old.place.no).is_none() {
            return Ok(());
        }
        let alone = Unit {
            ranges: Vec::new(),
            entries: vec![Arc::clone(old)],
        };
        let mut working = self.reserve_working(&alone)?;
        let (chosen, mut made) = (self.choose(&alone)?, Vec::new());
        if !self.build(&alone, &chosen, 0..chosen.len(), &mut working, &mut made)? {
            return Ok(());
        }
        let bytes_before = old.segment().whole_bytes();
        if made.len() <= 1 && chosen.tail.iter().all(Vec::is_empty) {
            let Some(bytes_after) = self.substitute(&alone, &chosen, &made)? else {
                return Ok(());
            };
            report.segments_replaced += 1;
            report.rows += chosen.len() as u64;
            report.bytes_before += bytes_before;
            report.bytes_after += bytes_after;
            return Ok(());
        }
        drop((chosen, made, working));
        self.rebuild(unit, report)
    }

    /// Builds a unit anew as a whole, since its frozen segment becomes more than one: then
    /// what is in front of it is cut as well.
    fn rebuild(&self, unit: &Unit, report: &mut ReshapeReport) -> Result<(), StorageError> {
        let replaced = self.out_of_shape(&unit.entries).count() as u64;
        let mut done = FreezeReport::default();
        let mut working = self.reserve_working(unit)?;
        if self.replace_unit(unit, &self.choose(unit)?, &mut working, &mut done)? {
            report.segments_replaced += replaced;
            report.rows += done.rows;
            report.bytes_before += done.bytes_before;
            report.bytes_after += done.bytes_after;
        }
        Ok(())
    }

    /// Puts what was made of a frozen segment where that is, be it alone or under others:
    /// one segment, or none if all was garbage. `None` when it has gone. Since a frozen
    /// segment takes no rows, nobody can be in the way.
    fn substitute(
        &self,
        unit: &Unit,
        chosen: &Chosen,
        made: &[Made],
    ) -> Result<Option<u64>, StorageError> {
        assert!(
            made.len() <= 1 && freeze::covers(made, chosen.len()) && chosen.tail_len() == 0,
            "one segment stands for another if it has all of its rows"
        );
        let positions = chosen.positions();
        let mut ends = Ends::default();
        ends.carry(self, unit, &positions, made)?;
        let structure = self.structure();
        let directory = self.directory();
        let is_old = |entry: &Arc<Entry>| Arc::ptr_eq(entry, &unit.entries[0]);
        let has_old = |range: &KeyRange| range.entries().any(is_old);
        let Some(first) = directory.ranges().iter().position(has_old) else {
            return Ok(None);
        };
        let ranges = directory.ranges()[first..].iter();
        let ranges: Vec<&KeyRange> = ranges.take_while(|range| has_old(range)).collect();
        let over = ranges.iter().map(|range| &range.entry);
        let latches: Vec<Latch<'_>> = over
            .filter(|entry| !is_old(entry))
            .chain(&unit.entries)
            .map(|entry| entry.latch())
            .collect();
        ends.carry(self, unit, &positions, made)?;
        let made_entry = made.first().map(|made| &made.entry);
        let new = ranges.iter().filter_map(|range| {
            Some(match is_old(&range.entry) {
                true => KeyRange::new(&range.lower, Arc::clone(made_entry?), None),
                false => KeyRange::new(&range.lower, Arc::clone(&range.entry), made_entry.cloned()),
            })
        });
        let directory = directory.replaced(first..first + ranges.len(), new.collect());
        self.publish(&structure, directory);
        freeze::retire(unit, positions, made, &[]);
        drop(latches);
        Ok(Some(
            made_entry.map_or(0, |entry| entry.segment().whole_bytes()),
        ))
    }

    /// Copies a hot segment to one of the shape, with the same bounds and the same room.
    fn reshape_hot(
        &self,
        entry: &Arc<Entry>,
        report: &mut ReshapeReport,
    ) -> Result<(), StorageError> {
        let structure = self.structure();
        let directory = self.directory();
        let Some(position) = directory.position(entry) else {
            return Ok(());
        };
        let latch = entry.latch();
        let live = self.store().txns().live_snapshots();
        let segment = entry.segment();
        let rows: Vec<u32> = seen_by_some(segment, &live).iter().collect();
        let bytes_before = segment.whole_bytes();
        let bytes_after = if let Some(copy) = self.copy_like(entry, &latch, &rows)? {
            let range = KeyRange {
                entry: Arc::clone(&copy),
                ..directory.ranges()[position].clone()
            };
            let new = directory.replaced(position..position + 1, vec![range]);
            self.publish(&structure, new);
            let (all, target) = (segment.rows(), (0, Arc::clone(&copy.place)));
            let forward = Forward::new(all, rows.iter().copied(), vec![target]);
            entry.place.retire(forward);
            copy.segment().whole_bytes()
        } else {
            let kept = self.kept_rows(entry, &live)?;
            self.rewrite(&structure, &directory, position, latch, kept, None)?
        };
        report.segments_replaced += 1;
        report.rows += rows.len() as u64;
        report.bytes_before += bytes_before;
        report.bytes_after += bytes_after;
        Ok(())
    }

    /// A copy with as much room. `None` when the shape needs more than that, or there is no
    /// row to copy: then a rewrite finds the sizes.
    fn copy_like(
        &self,
        entry: &Arc<Entry>,
        latch: &Latch<'_>,
        rows: &[u32],
    ) -> Result<Option<Arc<Entry>>, StorageError> {
        if rows.is_empty() {
            return Ok(None);
        }
        let copy = match self.open_segment_like(entry.segment()) {
            Err(StorageError::Segment(SegmentError::ArenaTooSmall { .. })) => return Ok(None),
            opened => opened?,
        };
        let key_max = latch.state.key_max.as_ref();
        let heap_bytes = entry.segment().heap_used_bytes();
        let from = [(entry, rows)];
        let copied = self.copy_rows(&copy, &from, heap_bytes, key_max.map(|key| key.borrow()))?;
        Ok(copied.then(|| {
            count_dead(&copy);
            copy
        }))
    }
}
