//! Freezing: hot segments become frozen ones, which take a third of the space.
//!
//! ```text
//!   before        ┌ hot 3 ┐                       ┌ hot 9 ┐ in front of
//!                 └───────┘                       └───────┘ base 5
//!   build         rows that began by the horizon are read and encoded, with no
//!                 latch held: readers and writers go on
//!   copy          rows that are too new go to hot segments, with no latch held either
//!                 (`tail`)
//!   switch        latches; the last new rows are copied, stamps set meanwhile carried
//!                 over; publish; say where rows went
//!   after         ┌ hot 8 ┐ in front of           ┌ frozen 10 ┐
//!                 └───────┘ base 7                └───────────┘
//! ```
//!
//! * The segments that are frozen together are a *unit*: the ranges over one base together with
//!   it, or one or more neighbouring hot ranges that are small.
//! * **Which rows.** A row whose begin every snapshot sees, registered or to come, needs no begin
//!   of its own. Garbage is left behind. Other rows are the *tail*: begun lately, by an
//!   unfinished transaction, or appended during the build.
//! * **Soundness.** A begin stamp at or before the horizon is final, and so is its row, except
//!   for the end stamp, which is read under the latch. Everything else is as in a rewrite
//!   (`room`): the directory is replaced under the structure mutex and all latches of the unit,
//!   then the old segments record where their rows went.
//! * **Budget.** An arena is reserved before it is mapped. The encoded form is made outside, so
//!   that its size is known, and then copied. The memory for this is reserved before the first
//!   row is read (`working`).

use std::{cmp::Reverse, iter::Sum, ops::Range, sync::Arc, time::Duration};

use aerostat_memory::{ArenaSource, MemoryClass, Overdraft};
use aerostat_segment::{FrozenFacts, FrozenImage, Segment, SegmentError, SegmentSchema};

use crate::{
    StorageError, Table,
    rewrite::{
        carry::Ends,
        chosen::Chosen,
        made::Made,
        tail::{Tail, Tails},
    },
    store::{
        directory::{Entry, Forward, KeyRange, Latch},
        unit::Unit,
    },
};

/// What a call froze.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreezeReport {
    /// Frozen segments that were made.
    pub segments_made: u64,
    /// Segments, hot or frozen, whose rows they took over.
    pub segments_replaced: u64,
    /// Row versions in the new frozen segments.
    pub rows: u64,
    /// Bytes in use of what was replaced.
    pub bytes_before: u64,
    /// Bytes in use of what was made, with rows too new to be frozen.
    pub bytes_after: u64,
    /// Units that wanted to be frozen and could not be, because of writers or snapshots.
    pub postponed: u64,
    /// The longest that writers of a unit were kept waiting while it was replaced.
    pub switch_max: Duration,
}

/// How far the background freezer is behind. With writers about, an estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreezeBacklog {
    /// Row versions in front of frozen segments, and those of these that have ended.
    pub rows_to_merge: u64,
    /// Row versions, in front or not, that wait for the freezer's next look: it has none to
    /// wait for.
    pub rows_due: u64,
}

impl Sum for FreezeBacklog {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            rows_to_merge: sum.rows_to_merge + one.rows_to_merge,
            rows_due: sum.rows_due + one.rows_due,
        })
    }
}

/// What was done beside a unit's writers, to be finished under its latches.
struct Moved {
    tails: Tails,
    /// Of the rows of each entry among the chosen.
    positions: Vec<Vec<u32>>,
    ends: Ends,
}

/// A unit that was replaced.
struct Switched {
    /// What is in use of the segments in its stead.
    bytes: u64,
    /// How long its latches were held.
    latched: Duration,
}

/// See [`Table::freeze_settled`].
const SETTLED_SHARE: usize = 8;

impl Table {
    /// Freezes everything that can be, however small or lately written, and merges what
    /// was written in front of frozen segments.
    ///
    /// # Errors
    /// Lack of memory for the copies, if nothing at all could be frozen. The table is then
    /// what it was.
    pub fn freeze(&self) -> Result<FreezeReport, StorageError> {
        self.freeze_units(&|unit| unit.is_worth(), 1)
    }

    /// Freezes what is full, or was not written since the last such call, and merges what
    /// scans have paid for: a step of a background freezer, to be repeated every few seconds.
    ///
    /// # Errors
    /// As [`Self::freeze`].
    pub fn freeze_due(&self) -> Result<FreezeReport, StorageError> {
        let wanted = |unit: &Unit| {
            let is_due = unit.is_due();
            unit.entries.iter().for_each(|entry| entry.look());
            is_due
        };
        self.freeze_units(&wanted, 1)
    }

    /// As [`Self::freeze`], of what has been committed for the most part: the rest would be copied.
    pub(crate) fn freeze_settled(&self) -> Result<FreezeReport, StorageError> {
        self.freeze_units(&|unit| unit.is_worth(), SETTLED_SHARE)
    }

    /// How far the background freezer is behind.
    pub fn freeze_backlog(&self) -> FreezeBacklog {
        let mut backlog = FreezeBacklog::default();
        for unit in Unit::all(&self.directory()) {
            let rows = unit.rows_apart();
            if unit.has_frozen() {
                backlog.rows_to_merge += rows;
            }
            if unit.is_due() {
                backlog.rows_due += rows;
            }
        }
        backlog
    }

    /// What scans have suffered from most comes first. Rows that are too new are to be at most the
    /// others' number divided by `tail_share`.
    fn freeze_units(
        &self,
        wanted: &dyn Fn(&Unit) -> bool,
        tail_share: usize,
    ) -> Result<FreezeReport, StorageError> {
        let _freezing = self.freezing();
        let mut units = self.wanted_units(wanted);
        units.sort_by_cached_key(|unit| Reverse(unit.penalty_ns()));
        let mut report = FreezeReport::default();
        let mut failure = None;
        for unit in units {
            if self.store().is_leaving() {
                break;
            }
            // It was tried, and is tried again when scans have paid as much once more.
            unit.entries.iter().for_each(|entry| entry.penalty.spend());
            match self.freeze_unit(&unit, tail_share, &mut report) {
                Ok(true) => {}
                Ok(false) => report.postponed += 1,
                Err(error) => failure = Some(error),
            }
        }
        failure
            .filter(|_| report.segments_made == 0)
            .map_or(Ok(report), Err)
    }

    fn wanted_units(&self, wanted: &dyn Fn(&Unit) -> bool) -> Vec<Unit> {
        let directory = self.directory();
        let bytes_max = self.store().segment_bytes_max() as u64;
        let working_max = self.store().working_bytes_max();
        let working = |units: [&Unit; 2]| {
            units
                .map(|unit| self.working_bytes(unit))
                .iter()
                .sum::<u64>()
        };
        let mut units: Vec<Unit> = Vec::new();
        let mut last_end = None;
        for unit in Unit::all(&directory) {
            let first = directory.position(&unit.ranges[0].entry);
            let end = first.map(|first| first + unit.ranges.len());
            if !wanted(&unit) {
                continue;
            }
            // Small neighbours go together: so a table that grew from small segments becomes one.
            match units.last_mut() {
                Some(last)
                    if last_end == first
                        && !last.has_base()
                        && !unit.has_base()
                        && last.whole_bytes() + unit.whole_bytes() <= bytes_max
                        && working([last, &unit]) <= working_max =>
                {
                    let ranges = last.ranges.drain(..).chain(unit.ranges);
                    *last = Unit::of(ranges.collect());
                }
                _ => units.push(unit),
            }
            last_end = end;
        }
        units
    }

    /// `false`, and nothing changed, when writers or snapshots are in the way.
    fn freeze_unit(
        &self,
        unit: &Unit,
        tail_share: usize,
        report: &mut FreezeReport,
    ) -> Result<bool, StorageError> {
        let mut working = self.overdraw_working(unit)?;
        let chosen = self.choose(unit)?;
        if chosen.len() == 0
            || chosen.tail_len() * tail_share > chosen.len()
            || !chosen.is_worth(unit)
        {
            return Ok(false);
        }
        self.replace_unit(unit, &chosen, &mut working, report)
    }

    /// Builds frozen segments of the chosen rows and puts them where the unit is, with what
    /// is newer in front. `false`, and nothing changed, when writers are in the way.
    pub(crate) fn replace_unit(
        &self,
        unit: &Unit,
        chosen: &Chosen,
        working: &mut Overdraft,
        report: &mut FreezeReport,
    ) -> Result<bool, StorageError> {
        let mut made = Vec::new();
        if !self.build(unit, chosen, 0..chosen.len(), working, &mut made)? {
            return Ok(false);
        }
        assert!(
            covers(&made, chosen.len()),
            "what is made has the rows that were chosen, end to end"
        );
        let Some(tails) = Tails::copied(self, unit, chosen, &made)? else {
            return Ok(false);
        };
        let positions = chosen.positions();
        let mut ends = Ends::default();
        ends.carry(self, unit, &positions, &made)?;
        let bytes_before = unit.whole_bytes();
        let moved = Moved {
            tails,
            positions,
            ends,
        };
        let Some(switched) = self.switch(unit, chosen, &made, moved)? else {
            return Ok(false);
        };
        report.segments_made += made.len() as u64;
        report.segments_replaced += unit.entries.len() as u64;
        report.rows += chosen.len() as u64;
        report.bytes_before += bytes_before;
        report.bytes_after += switched.bytes;
        report.switch_max = report.switch_max.max(switched.latched);
        Ok(true)
    }

    /// Makes frozen segments of a range of the chosen rows: one, or more where one arena
    /// is not enough, or none of none. `false` when the versions of a single key are too
    /// many for one.
    pub(crate) fn build(
        &self,
        unit: &Unit,
        chosen: &Chosen,
        rows: Range<usize>,
        working: &mut Overdraft,
        made: &mut Vec<Made>,
    ) -> Result<bool, StorageError> {
        if rows.is_empty() {
            return Ok(true);
        }
        let facts = FrozenFacts {
            table: self.id(),
            no: self.next_segment_no(),
            rows: u32::try_from(rows.len()).unwrap_or(u32::MAX),
            begin: chosen.begin.0,
        };
        let columns = chosen.columns(unit, rows.clone())?;
        let schema = self.segment_schema();
        let image = match FrozenImage::encode(&schema, facts, &mut |at| columns.gather(at)) {
            Ok(image) => image,
            Err(SegmentError::ArenaTooSmall { .. }) => {
                let Some(cut) = chosen.cut(&rows) else {
                    return Ok(false);
                };
                return Ok(self.build(unit, chosen, rows.start..cut, working, made)?
                    && self.build(unit, chosen, cut..rows.end, working, made)?);
            }
            Err(error) => return Err(self.segment_error(error)),
        };
        let entry = self.open_frozen(schema, image, working)?;
        if self.is_keyed() {
            entry.latch().raise_key_max(chosen.key(rows.end - 1));
        }
        for (at, old) in unit.entries.iter().enumerate() {
            let count = columns.rows_of(at) as u32;
            entry.add_variable_bytes(old.variable_bytes_of(count));
        }
        made.push(Made { entry, rows });
        Ok(true)
    }

    /// Maps what the image needs, and not a byte more.
    fn open_frozen(
        &self,
        schema: Arc<SegmentSchema>,
        image: FrozenImage,
        working: &mut Overdraft,
    ) -> Result<Arc<Entry>, StorageError> {
        let used = image.used_bytes();
        let reservation = working.hand_over(MemoryClass::Frozen, used)?;
        let mapping = ArenaSource::allocate_filled(image.arena_bytes(), used as usize)?;
        let segment = Segment::create_frozen(Box::new(mapping), schema, image);
        Ok(Entry::new(segment, reservation))
    }

    /// Puts the made segments where the unit was, if that is still as it was.
    fn switch(
        &self,
        unit: &Unit,
        chosen: &Chosen,
        made: &[Made],
        moved: Moved,
    ) -> Result<Option<Switched>, StorageError> {
        let Moved {
            mut tails,
            positions,
            mut ends,
        } = moved;
        let structure = self.structure();
        let directory = self.directory();
        let Some(position) = unit.position(&directory) else {
            return Ok(None);
        };
        let latches: Vec<Latch<'_>> = unit.entries.iter().map(|entry| entry.latch()).collect();
        let clock = self.store().txns().clock();
        let since = clock.now();
        if !tails.finish(self, unit, chosen, made)? {
            return Ok(None);
        }
        ends.carry(self, unit, &positions, made)?;
        let ranges = tails.ranges().iter().enumerate().filter_map(|(at, tail)| {
            let frozen = made.get(at).map(|one| Arc::clone(&one.entry));
            // The first takes over the whole lower end.
            let lower = match made.get(at).filter(|_| at > 0) {
                Some(one) => chosen.key(one.rows.start).0,
                None => directory.lower(position),
            };
            let (entry, base) = match &tail.entry {
                Some(delta) => (Arc::clone(delta), frozen),
                None => (frozen?, None),
            };
            Some(KeyRange::new(lower, entry, base))
        });
        let replaced = position..position + unit.ranges.len();
        let new = directory.replaced(replaced, ranges.collect());
        self.publish(&structure, new);
        retire(unit, positions, made, tails.ranges());
        drop(latches);
        let latched = clock.now().saturating_duration_since(since);
        let deltas = tails.ranges().iter().filter_map(|tail| tail.entry.as_ref());
        let used = made.iter().map(|one| &one.entry).chain(deltas);
        let bytes = used.map(|entry| entry.segment().whole_bytes()).sum();
        Ok(Some(Switched { bytes, latched }))
    }
}

/// Whether these have so many rows between them, one behind the other.
pub(crate) fn covers(made: &[Made], rows: usize) -> bool {
    let mut next = 0;
    made.iter()
        .all(|one| one.rows.start == std::mem::replace(&mut next, one.rows.end))
        && next == rows
}

/// Says of each entry where its rows have gone: the chosen ones to `positions`. The
/// directory has been published.
pub(crate) fn retire(unit: &Unit, mut positions: Vec<Vec<u32>>, made: &[Made], tails: &[Tail]) {
    for (entry, positions) in unit.entries.iter().zip(&mut positions) {
        positions.resize(entry.segment().rows() as usize, Forward::DROPPED);
    }
    let mut targets: Vec<_> = made
        .iter()
        .map(|one| (one.rows.start as u32, Arc::clone(&one.entry.place)))
        .collect();
    let mut next = made.last().map_or(0, |one| one.rows.end as u32);
    for tail in tails {
        targets.extend(tail.entry.iter().map(|to| (next, Arc::clone(&to.place))));
        for source in &tail.rows {
            positions[source.entry as usize][source.row as usize] = next;
            next += 1;
        }
    }
    for (entry, positions) in unit.entries.iter().zip(positions) {
        entry
            .place
            .retire(Forward::of_positions(positions, targets.clone()));
    }
}
