//! Freezing: hot segments become frozen ones, which take a third of the space.
//!
//! ```text
//!   before        ┌ hot 3 ┐                       ┌ hot 9 ┐ in front of
//!                 └───────┘                       └───────┘ base 5
//!   build         rows that began by the horizon are read and encoded, with no
//!                 latch held: readers and writers go on
//!   switch        latches; end stamps set meanwhile are carried over, newer rows
//!                 are copied to hot segments; publish; say where rows went
//!   after         ┌ hot 8 ┐ in front of           ┌ frozen 10 ┐
//!                 └───────┘ base 7                └───────────┘
//! ```
//!
//! * What is frozen together is a *unit*: the ranges over one base with it, or one
//!   or more neighbouring hot ranges that are small.
//! * **Which rows.** A row whose begin every snapshot sees, registered or to come,
//!   needs no begin of its own. Garbage is left behind. Others are the *tail*: begun
//!   lately, by an unfinished transaction, or appended during the build.
//! * **Soundness.** A begin stamp at or before the horizon is final, and so is its
//!   row, but for the end stamp, which is read under the latch. Everything else is
//!   as in a rewrite (`room`): the directory is replaced under the structure mutex
//!   and all latches of the unit, then the old segments say where their rows went.
//! * **Budget.** An arena is reserved before it is mapped. The encoded form is made
//!   outside, so that its size is known, and copied. What that takes meanwhile is reserved
//!   before the first row is read (`working`).

use std::{ops::Range, sync::Arc};

use aerostat_memory::ArenaSource;
use aerostat_segment::{
    ARENA_BYTES_MAX, BLOCK_ROWS, FrozenFacts, FrozenImage, Key, Segment, SegmentError,
    SegmentSchema,
};

use crate::{
    StorageError, Table,
    chosen::{Chosen, ended_now},
    directory::{Entry, Forward, KeyRange, Latch},
    room::count_dead,
    unit::Unit,
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
}

/// A frozen segment that no directory has yet, and which of the chosen rows it has.
pub(crate) struct Made {
    pub(crate) entry: Arc<Entry>,
    rows: Range<usize>,
}

impl Made {
    /// Whether the row at a position of the chosen ones is here, if not before.
    fn has(&self, position: u32) -> bool {
        (position as usize) < self.rows.end
    }
}

/// Rows of each entry of a unit that go to the hot segment of one new range.
pub(crate) type Tail = Vec<Vec<u32>>;

impl Table {
    /// Freezes everything that can be, however small or lately written, and merges what
    /// was written in front of frozen segments.
    ///
    /// # Errors
    /// Lack of memory for the copies, if nothing at all could be frozen. The table is then
    /// what it was.
    pub fn freeze(&self) -> Result<FreezeReport, StorageError> {
        self.freeze_units(&|unit| unit.is_worth())
    }

    /// Freezes what is full, or was not written since the last such call: a step of a
    /// background freezer, to be repeated every few seconds.
    ///
    /// # Errors
    /// As [`Self::freeze`].
    pub fn freeze_cold(&self) -> Result<FreezeReport, StorageError> {
        self.freeze_units(&|unit| unit.is_cold() & unit.is_worth())
    }

    fn freeze_units(&self, wanted: &dyn Fn(&Unit) -> bool) -> Result<FreezeReport, StorageError> {
        let _freezing = self.freezing();
        let directory = self.directory();
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
                        && last.footprint_bytes() + unit.footprint_bytes()
                            <= ARENA_BYTES_MAX as u64 =>
                {
                    let ranges = last.ranges.drain(..).chain(unit.ranges);
                    *last = Unit::of(ranges.collect());
                }
                _ => units.push(unit),
            }
            last_end = end;
        }
        drop(directory);
        let mut report = FreezeReport::default();
        let mut failure = None;
        for unit in units {
            match self.freeze_unit(&unit, &mut report) {
                Ok(true) => {}
                Ok(false) => report.postponed += 1,
                Err(error) => failure = Some(error),
            }
        }
        failure
            .filter(|_| report.segments_made == 0)
            .map_or(Ok(report), Err)
    }

    /// `false`, and nothing changed, when writers or snapshots are in the way.
    fn freeze_unit(&self, unit: &Unit, report: &mut FreezeReport) -> Result<bool, StorageError> {
        let _working = self.reserve_working(unit)?;
        let chosen = self.choose(unit)?;
        let tail: usize = chosen.tail.iter().map(Vec::len).sum();
        if chosen.len() == 0 || tail > chosen.len() {
            return Ok(false);
        }
        self.replace_unit(unit, &chosen, report)
    }

    /// Builds frozen segments of the chosen rows and puts them where the unit is, with what
    /// is newer in front. `false`, and nothing changed, when writers are in the way.
    pub(crate) fn replace_unit(
        &self,
        unit: &Unit,
        chosen: &Chosen,
        report: &mut FreezeReport,
    ) -> Result<bool, StorageError> {
        let mut made = Vec::new();
        if !self.build(unit, chosen, 0..chosen.len(), &mut made)? {
            return Ok(false);
        }
        let bytes_before = unit.footprint_bytes();
        let Some(bytes_after) = self.switch(unit, chosen, &made)? else {
            return Ok(false);
        };
        report.segments_made += made.len() as u64;
        report.segments_replaced += unit.entries.len() as u64;
        report.rows += chosen.len() as u64;
        report.bytes_before += bytes_before;
        report.bytes_after += bytes_after;
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
        let columns = chosen.columns(unit, rows.clone());
        let schema = self.segment_schema();
        let image = match FrozenImage::encode(&schema, facts, &mut |at| columns.gather(at)) {
            Ok(image) => image,
            Err(SegmentError::ArenaTooSmall { .. }) => {
                let Some(cut) = chosen.cut(&rows) else {
                    return Ok(false);
                };
                return Ok(self.build(unit, chosen, rows.start..cut, made)?
                    && self.build(unit, chosen, cut..rows.end, made)?);
            }
            Err(error) => return Err(self.segment_error(error)),
        };
        let entry = self.open_frozen(schema, image)?;
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

    /// Reserves and maps what the image needs, and not a byte more.
    fn open_frozen(
        &self,
        schema: Arc<SegmentSchema>,
        image: FrozenImage,
    ) -> Result<Arc<Entry>, StorageError> {
        let reservation = self.store().budget().reserve(image.used_bytes())?;
        let mapping = ArenaSource::allocate(image.arena_bytes())?;
        let segment = Segment::create_frozen(Box::new(mapping), schema, image);
        Ok(Entry::new(segment, reservation))
    }

    /// Puts the made segments where the unit was, if that is still as it was. Gives the
    /// bytes they use.
    pub(crate) fn switch(
        &self,
        unit: &Unit,
        chosen: &Chosen,
        made: &[Made],
    ) -> Result<Option<u64>, StorageError> {
        let positions = chosen.positions();
        let structure = self.structure();
        let directory = self.directory();
        let Some(position) = unit.position(&directory) else {
            return Ok(None);
        };
        let latches: Vec<Latch<'_>> = unit.entries.iter().map(|entry| entry.latch()).collect();
        let tails = self.tails_now(unit, chosen, made);
        let mut deltas = Vec::with_capacity(tails.len());
        for tail in &tails {
            deltas.push(match tail.iter().any(|rows| !rows.is_empty()) {
                true => match self.copy_tail(unit, tail)? {
                    None => return Ok(None),
                    delta => delta,
                },
                false => None,
            });
        }
        carry_ends(self, unit, &positions, made)?;
        let ranges = deltas.iter().enumerate().filter_map(|(at, delta)| {
            let frozen = made.get(at).map(|one| Arc::clone(&one.entry));
            // The first takes over the whole lower end.
            let lower = match made.get(at).filter(|_| at > 0) {
                Some(one) => chosen.key(one.rows.start).0,
                None => directory.lower(position),
            };
            let (entry, base) = match delta {
                Some(delta) => (Arc::clone(delta), frozen),
                None => (frozen?, None),
            };
            Some(KeyRange::new(lower, entry, base))
        });
        let replaced = position..position + unit.ranges.len();
        let new = directory.replaced(replaced, ranges.collect());
        self.publish(&structure, new);
        retire(unit, positions, made, &tails, &deltas);
        drop(latches);
        let used = made.iter().map(|one| &one.entry);
        let used = used.chain(deltas.iter().flatten());
        Ok(Some(
            used.map(|entry| entry.segment.footprint_bytes()).sum(),
        ))
    }

    /// The rows that were not chosen and are not garbage, for each of the ranges to come:
    /// one for each made segment, and one if there is none. The caller holds all latches.
    fn tails_now(&self, unit: &Unit, chosen: &Chosen, made: &[Made]) -> Vec<Tail> {
        let live = self.store().txns().live_snapshots();
        let mut tails: Vec<Tail> = vec![vec![Vec::new(); unit.entries.len()]; made.len().max(1)];
        for (at, entry) in unit.entries.iter().enumerate() {
            let segment = &entry.segment;
            let appended = chosen.rows[at]..segment.rows();
            for row in chosen.tail[at].iter().copied().chain(appended) {
                let (begin, end) = segment.stamps(row);
                if !live.is_garbage(begin, end) {
                    tails[self.range_of(segment, row, chosen, made)][at].push(row);
                }
            }
        }
        tails
    }

    /// Which of the ranges to come has the row's key; without keys it is the last.
    fn range_of(&self, segment: &Segment, row: u32, chosen: &Chosen, made: &[Made]) -> usize {
        let last = made.len().saturating_sub(1);
        if last == 0 || !self.is_keyed() {
            return last;
        }
        let key = segment.key_of(row);
        made.partition_point(|one| chosen.key(one.rows.start) <= key.borrow())
            .saturating_sub(1)
    }

    /// Copies the tail to a hot segment. `None` when the largest has no room for it.
    fn copy_tail(
        &self,
        unit: &Unit,
        tail: &[Vec<u32>],
    ) -> Result<Option<Arc<Entry>>, StorageError> {
        let (schema, sizes) = (self.segment_schema(), self.store().sizes());
        let rows: usize = tail.iter().map(Vec::len).sum();
        let heap_bytes: usize = unit
            .entries
            .iter()
            .zip(tail)
            .map(|(entry, rows)| {
                let segment = &entry.segment;
                segment
                    .heap_used_bytes()
                    .div_ceil(segment.rows().max(1) as usize)
                    * rows.len()
            })
            .sum();
        let mut size = sizes.roomy(&schema, rows, heap_bytes);
        let from: Vec<_> = unit
            .entries
            .iter()
            .zip(tail.iter().map(Vec::as_slice))
            .filter(|(_, rows)| !rows.is_empty())
            .collect();
        let keys = from
            .iter()
            .flat_map(|(entry, rows)| rows.iter().map(|&row| entry.segment.key_of(row)));
        let key_max = keys.max();
        let key_max = key_max.as_ref().map(Key::borrow);
        while let Some(arena_bytes) = size {
            let entry = self.open_segment(arena_bytes, heap_bytes.div_ceil(rows))?;
            if self.copy_rows(&entry, &from, heap_bytes, key_max)? {
                return Ok(Some(entry));
            }
            // The average may be far from these rows' own.
            size = sizes.above(arena_bytes);
        }
        Ok(None)
    }
}

/// Stamps the rows of made segments that have ended by now, whether for good or not, or are
/// locked by somebody. The caller holds the latches of the unit.
pub(crate) fn carry_ends(
    table: &Table,
    unit: &Unit,
    positions: &[Vec<u32>],
    made: &[Made],
) -> Result<(), StorageError> {
    let ended = ended_now(table, unit, positions);
    let mut rest = &ended[..];
    for made in made {
        let (own, others) = rest.split_at(rest.partition_point(|(at, _)| made.has(*at)));
        rest = others;
        if own.is_empty() {
            continue;
        }
        let row_of = |position: u32| position - made.rows.start as u32;
        let blocks = own.chunk_by(|a, b| row_of(a.0) / BLOCK_ROWS == row_of(b.0) / BLOCK_ROWS);
        let mut latch = made.entry.latch();
        latch.reserve_stamps(blocks.count())?;
        for &(position, end) in own {
            latch.writer.set_end(row_of(position), end);
        }
        latch.settle_reservation()?;
        drop(latch);
        count_dead(&made.entry);
    }
    Ok(())
}

/// Says of each entry where its rows have gone: the chosen ones to `positions`. The
/// directory has been published.
pub(crate) fn retire(
    unit: &Unit,
    mut positions: Vec<Vec<u32>>,
    made: &[Made],
    tails: &[Tail],
    deltas: &[Option<Arc<Entry>>],
) {
    for (entry, positions) in unit.entries.iter().zip(&mut positions) {
        positions.resize(entry.segment.rows() as usize, Forward::DROPPED);
    }
    let mut targets: Vec<_> = made
        .iter()
        .map(|one| (one.rows.start as u32, Arc::clone(&one.entry.place)))
        .collect();
    let mut next = made.last().map_or(0, |one| one.rows.end as u32);
    for (tail, delta) in tails.iter().zip(deltas) {
        targets.extend(delta.iter().map(|delta| (next, Arc::clone(&delta.place))));
        for (at, rows) in tail.iter().enumerate() {
            for &row in rows {
                positions[at][row as usize] = next;
                next += 1;
            }
        }
    }
    for (entry, positions) in unit.entries.iter().zip(positions) {
        entry
            .place
            .retire(Forward::of_positions(positions, targets.clone()));
    }
}
