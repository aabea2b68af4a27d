//! A table's ordered directory of segments.
//!
//! ```text
//!  Directory (immutable; replaced as a whole)          SegmentIdentity (outlives its segment)
//!  ┌─────────┬─────────┬─────────┐                    ┌───────────────┐  forward   ┌────────┐
//!  │ lower ε │ lower k │ lower q │                    │ no 3, retired ├───────────►│ no 7   │
//!  └────┬────┴────┬────┴────┬────┘                    └───────────────┘        └──►│ no 8   │
//!     Entry     Entry     Entry ──► body (segment, its charge), counts              └────────┘
//! ```
//!
//! * An entry's key range is from its lower bound to the next entry's. All versions of a key are
//!   in the one segment whose range has the key, or in that and the range's *base*: a frozen
//!   segment, which takes no rows, so new rows of its keys go to a hot segment in front of it.
//!   Neighbouring ranges may share a base, if that hot segment was split.
//! * The directory is replaced under the table's structure mutex, and a range is split only under
//!   the latch of its entry. A writer that holds an entry's latch and finds its directory still
//!   current therefore owns the range.
//! * A rewrite first publishes the new directory and then, still under the old segment's latch,
//!   records where the rows went. A reader that follows a forward finds rows that every later
//!   view finds too.
//! * The values of an entry's segment are reached through its pin alone. The segment's reservation
//!   is given back with the last pin or array that has its bytes, which may be long after the
//!   entry has gone.
//! * Views hold a directory; a retired segment lives as long as a view holds it. Identities hold
//!   segments weakly, so a chain of rewrites pins only the row maps.

use std::{
    path::PathBuf,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use aerostat_memory::{MemoryClass, OutOfMemory, Reservation};
use aerostat_segment::{
    BLOCK_ROWS, Charge, ExtentSet, Key, KeyRef, Pieces, Pinned, Segment, SegmentBody,
    SegmentWriter, Wanted,
};
use aerostat_types::{CommitTs, Physical, SegmentNo};
use parking_lot::{Mutex, MutexGuard};

use crate::{
    StorageError,
    files::disk::Disk,
    store::{
        evict::{Evictable, Evictor, Image},
        penalty::Penalty,
    },
};

/// The segments of a table at one moment.
#[derive(Default)]
pub(crate) struct Directory {
    ranges: Vec<KeyRange>,
    /// Of every range its entry, and each base once.
    entries: Vec<Arc<Entry>>,
    by_no: Numbers,
    positions: Numbers,
}

/// One entry with its lower bound; the first bound is empty, below every key.
#[derive(Clone)]
pub(crate) struct KeyRange {
    pub(crate) lower: Arc<[u8]>,
    /// Whoever writes rows of the range holds its latch, even if it takes none.
    pub(crate) entry: Arc<Entry>,
    /// Frozen rows of the range, and of neighbouring ones with the same base.
    pub(crate) base: Option<Arc<Entry>>,
}

impl KeyRange {
    pub(crate) fn new(lower: &[u8], entry: Arc<Entry>, base: Option<Arc<Entry>>) -> Self {
        Self {
            lower: lower.into(),
            entry,
            base,
        }
    }

    /// Whether this is a range over the very same base.
    pub(crate) fn shares_base(&self, other: &KeyRange) -> bool {
        let no = |range: &KeyRange| range.base.as_ref().map(|base| base.place.no);
        self.base.is_some() && no(self) == no(other)
    }

    /// The entries that may have versions of the range's keys.
    pub(crate) fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
        std::iter::once(&self.entry).chain(&self.base)
    }
}

/// Segments' numbers, ascending, each with its position in a list. Every row that a statement
/// writes is looked up by its segment's: that takes less than a good hash does.
#[derive(Default)]
struct Numbers(Vec<(SegmentNo, usize)>);

impl Numbers {
    fn of<'a>(entries: impl Iterator<Item = &'a Arc<Entry>>) -> Self {
        let mut numbers: Vec<_> = entries
            .enumerate()
            .map(|(at, entry)| (entry.place.no, at))
            .collect();
        numbers.sort_unstable();
        debug_assert!(
            numbers.is_sorted_by(|a, b| a.0 < b.0),
            "each segment has one place in a directory"
        );
        Self(numbers)
    }

    fn get(&self, no: SegmentNo) -> Option<usize> {
        let found = self.0.binary_search_by_key(&no, |(own, _)| *own).ok()?;
        Some(self.0[found].1)
    }
}

impl Directory {
    fn of(mut ranges: Vec<KeyRange>) -> Self {
        if let Some(first) = ranges.first_mut() {
            first.lower = Arc::from([]);
        }
        debug_assert!(
            ranges.is_sorted_by(|a, b| a.lower <= b.lower),
            "ranges are in the order of their keys"
        );
        let mut entries: Vec<Arc<Entry>> = Vec::with_capacity(ranges.len());
        for (at, range) in ranges.iter().enumerate() {
            let known = at > 0 && range.shares_base(&ranges[at - 1]);
            entries.extend(range.base.iter().filter(|_| !known).cloned());
            entries.push(Arc::clone(&range.entry));
        }
        Self {
            by_no: Numbers::of(entries.iter()),
            positions: Numbers::of(ranges.iter().map(|range| &range.entry)),
            ranges,
            entries,
        }
    }

    /// All entries, of ranges and of their bases.
    pub(crate) fn entries(&self) -> &[Arc<Entry>] {
        &self.entries
    }

    /// All entries in the same order, and which stand in front of a base that came before.
    pub(crate) fn placed(&self) -> impl Iterator<Item = (&Arc<Entry>, bool)> {
        self.ranges.iter().enumerate().flat_map(|(at, range)| {
            let known = at > 0 && range.shares_base(&self.ranges[at - 1]);
            let base = range.base.as_ref().filter(|_| !known);
            base.map(|base| (base, false))
                .into_iter()
                .chain([(&range.entry, range.base.is_some())])
        })
    }

    pub(crate) fn ranges(&self) -> &[KeyRange] {
        &self.ranges
    }

    /// The position of the range that has the key. Tables without a key
    /// have only empty bounds and keys, so that this is the last entry.
    pub(crate) fn route(&self, key: KeyRef<'_>) -> Option<usize> {
        self.ranges
            .partition_point(|range| *range.lower <= *key.0)
            .checked_sub(1)
    }

    /// Where the range of the entry at this position begins.
    pub(crate) fn lower(&self, at: usize) -> &[u8] {
        &self.ranges[at].lower
    }

    /// Where the range of the entry at this position ends; `None` for the last.
    pub(crate) fn upper(&self, at: usize) -> Option<&[u8]> {
        self.ranges.get(at + 1).map(|range| &*range.lower)
    }

    pub(crate) fn by_no(&self, no: SegmentNo) -> Option<&Arc<Entry>> {
        self.by_no.get(no).map(|at| &self.entries[at])
    }

    /// The position among the entries of the segment with this number.
    pub(crate) fn place_of(&self, no: SegmentNo) -> Option<usize> {
        self.by_no.get(no)
    }

    /// The position of the range whose entry this very one is.
    pub(crate) fn position(&self, entry: &Arc<Entry>) -> Option<usize> {
        self.positions.get(entry.place.no)
    }

    /// The directory with `ranges` instead of those at `at`.
    pub(crate) fn replaced(&self, at: std::ops::Range<usize>, ranges: Vec<KeyRange>) -> Self {
        let mut all = self.ranges.clone();
        all.splice(at, ranges);
        Self::of(all)
    }
}

/// A segment and what the table keeps beside it.
pub(crate) struct Entry {
    pub(crate) place: Arc<SegmentIdentity>,
    /// Never given away but by [`Entry::pin`]; who needs no values has [`Entry::segment`].
    body: SegmentBody,
    /// Of a frozen segment, where its values can be read back from, once they can.
    image: OnceLock<Arc<Image>>,
    /// The body's charge, too: what is reserved is given back with the memory.
    latched: Arc<Mutex<Latched>>,
    /// Versions that nobody will see once all snapshots are newer.
    dead: AtomicU32,
    /// Bytes of the values of each variable-length attribute as the user counts them, of
    /// all versions.
    variable_bytes: Box<[AtomicU64]>,
    /// A vacuum pays only once the horizon has reached this point.
    vacuum_from: AtomicU64,
    /// How often the latch was taken: as long as this stands, no row and no stamp changes.
    latched_times: AtomicU64,
    /// The activity when the freezer looked last.
    looked_at: AtomicU64,
    /// What scans have paid for its rows' being here.
    pub(crate) penalty: Penalty,
}

/// Why values are pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// To read some rows: that is a use of the values, and what is evicted is read back.
    Rows,
    /// As [`Access::Rows`], of who must not wait for the disk.
    RowsNow,
    /// Again, or for the node's own work: that is no use of its own.
    Again,
}

impl Access {
    /// Of rows, by who may wait or not.
    pub(crate) fn rows(may_wait: bool) -> Self {
        match may_wait {
            true => Access::Rows,
            false => Access::RowsNow,
        }
    }
}

/// What changes only under the segment's latch. It lives as long as the segment's memory.
pub(crate) struct Latched {
    /// No key in the segment is greater. `None` while it is empty or has no keys.
    pub(crate) key_max: Option<Key>,
    reservation: Reservation,
}

/// Both locks of an entry: the segment's latch and the mutex of what goes with it.
pub(crate) struct Latch<'a> {
    pub(crate) writer: SegmentWriter<'a>,
    pub(crate) state: MutexGuard<'a, Latched>,
}

impl Evictable for Entry {
    fn image(&self) -> Option<&Arc<Image>> {
        self.image.get()
    }

    fn extent_bytes(&self) -> Vec<u64> {
        self.segment().extent_bytes()
    }

    fn has_extent(&self, extent: usize) -> bool {
        self.body.pin().has_extent(extent)
    }

    fn evict(&self, extents: &ExtentSet) -> bool {
        self.body.evict(extents)
    }

    fn evicted_bytes(&self) -> u64 {
        self.segment().evicted_bytes()
    }
}

impl Entry {
    pub(crate) fn new(segment: Segment, reservation: Reservation) -> Arc<Self> {
        let no = segment.no();
        let attributes = segment.schema().attributes().iter();
        let variable = attributes.filter(|attribute| attribute.ty.physical() == Physical::Variable);
        let variable_bytes = variable.map(|_| AtomicU64::new(0)).collect();
        let mut front = reservation;
        let extents = segment.extent_bytes().into_iter();
        let extents: Vec<Charge> = extents
            .map(|bytes| Box::new(front.split(bytes)) as Charge)
            .collect();
        let latched = Arc::new(Mutex::new(Latched {
            key_max: None,
            reservation: front,
        }));
        let body = SegmentBody::new(segment, Arc::clone(&latched));
        body.set_charges(extents.into_iter());
        Arc::new_cyclic(|entry| Self {
            place: Arc::new(SegmentIdentity {
                no,
                entry: Weak::clone(entry),
                forward: OnceLock::new(),
            }),
            body,
            image: OnceLock::new(),
            latched,
            dead: AtomicU32::new(0),
            variable_bytes,
            vacuum_from: AtomicU64::new(0),
            latched_times: AtomicU64::new(0),
            looked_at: AtomicU64::new(u64::MAX),
            penalty: Penalty::default(),
        })
    }

    /// The segment, for all that needs no values: its schema, stamps, zones, counts.
    #[inline]
    pub(crate) fn segment(&self) -> &Segment {
        &self.body
    }

    /// The segment with the values that are wanted, which stay in memory as long as the pin does; all
    /// of a segment that is not evicted. Asked once for a segment's part of a statement or a
    /// scan, not for each row.
    ///
    /// # Errors
    /// [`StorageError::ReadBack`] when values cannot be read back, [`StorageError::OutOfMemory`]
    /// when there is no memory for them, [`StorageError::WouldWait`] as `access` has it.
    #[inline]
    pub(crate) fn pin(
        &self,
        access: Access,
        want: impl FnOnce(&mut Wanted<'_>),
    ) -> Result<Pinned<'_>, StorageError> {
        let pinned = self.body.pin();
        match self.image.get() {
            // Nothing has been evicted before there was an image.
            None => Ok(pinned),
            Some(image) => self.pin_wanted(image, pinned, access, want),
        }
    }

    /// [`Entry::pin`] of the rows' keys.
    pub(crate) fn pin_key(&self, access: Access) -> Result<Pinned<'_>, StorageError> {
        self.pin(access, |want| want.key())
    }

    /// [`Entry::pin`] of all values and indexes.
    pub(crate) fn pin_all(&self, access: Access) -> Result<Pinned<'_>, StorageError> {
        self.pin(access, |want| want.all())
    }

    /// Counts a use of values that are pinned [again](Access::Again) and again from now on.
    pub(crate) fn note_use(&self, want: impl FnOnce(&mut Wanted<'_>)) {
        if let Some(image) = self.image.get() {
            image.used(&self.body.wanted(want));
        }
    }

    fn pin_wanted<'a>(
        &'a self,
        image: &Image,
        pinned: Pinned<'a>,
        access: Access,
        want: impl FnOnce(&mut Wanted<'_>),
    ) -> Result<Pinned<'a>, StorageError> {
        if access == Access::Again && !pinned.is_after_eviction() {
            return Ok(pinned);
        }
        let wanted = self.body.wanted(want);
        if access != Access::Again {
            image.used(&wanted);
        }
        if pinned.has_all(&wanted) {
            return Ok(match access {
                // It reads a row, and is done before anybody misses the memory.
                Access::RowsNow => pinned,
                _ => pinned.only(&wanted),
            });
        }
        if access == Access::RowsNow {
            return Err(StorageError::WouldWait { awaited: None });
        }
        // What it holds may be what there is no memory for.
        drop(pinned);
        self.read_back(image, &wanted)
    }

    /// Reads back what is evicted. Where other readers have the memory for it, it waits for them.
    #[cold]
    fn read_back(&self, image: &Image, wanted: &ExtentSet) -> Result<Pinned<'_>, StorageError> {
        let mut wait = image.evictor().wait();
        loop {
            match self.try_read_back(image, wanted) {
                Err(StorageError::OutOfMemory(_)) if wait.for_readers() => {}
                read => return read.map(|pinned| pinned.only(wanted)),
            }
        }
    }

    fn try_read_back(&self, image: &Image, wanted: &ExtentSet) -> Result<Pinned<'_>, StorageError> {
        let budget = image.evictor().budget();
        let before = self.body.pin();
        let missing: ExtentSet = wanted.iter().filter(|at| !before.has_extent(*at)).collect();
        drop(before);
        let charge = &mut |bytes| {
            let reservation = budget.reserve(MemoryClass::Frozen, bytes)?;
            Ok(Box::new(reservation) as Charge)
        };
        let read = &mut |pieces: Pieces<'_>| image.read(pieces).map_err(StorageError::ReadBack);
        let pinned = self.body.read_back(wanted, charge, read)?;
        if let Some(own) = self.place.entry() {
            let own: Arc<dyn Evictable> = own;
            image.came_back(&own, &missing, wanted);
        }
        Ok(pinned)
    }

    /// Whether it is frozen, and its values cannot be read back yet.
    pub(crate) fn is_without_image(&self) -> bool {
        self.segment().is_frozen() && self.image.get().is_none()
    }

    /// Has the disk begin to read what of these values is evicted.
    pub(crate) fn read_ahead(&self, want: impl FnOnce(&mut Wanted<'_>)) {
        if let Some(image) = self.image.get() {
            let spans = self.body.evicted_spans(&self.body.wanted(want));
            if !spans.is_empty() {
                image.will_read(&spans);
            }
        }
    }

    /// Says where the values of a frozen segment can be read back from, so that they can be evicted
    /// from now on; and the checksums of its extents.
    ///
    /// `place` is a file, and where the segment's bytes begin in it.
    pub(crate) fn set_image(
        self: &Arc<Self>,
        evictor: &Arc<Evictor>,
        disk: &Arc<dyn Disk>,
        (path, offset): (PathBuf, u64),
        checksums: Box<[u32]>,
    ) {
        let extents = self.segment().schema().extents();
        let image = self.image.get_or_init(|| {
            let disk = Arc::clone(disk);
            evictor.image(disk, path, offset, extents)
        });
        // From here on some of it may go, so whoever pins it asks the image.
        self.body.allow_eviction(checksums);
        let own: Arc<dyn Evictable> = Arc::clone(self) as Arc<dyn Evictable>;
        evictor.admit(&own, image, &ExtentSet::all(extents));
    }

    /// Takes the segment's latch.
    pub(crate) fn latch(&self) -> Latch<'_> {
        let latch = Latch {
            writer: self.segment().writer(),
            state: self.latched.lock(),
        };
        self.latched_times.fetch_add(1, Ordering::Release);
        latch
    }

    /// How often the latch was taken.
    pub(crate) fn latched_times(&self) -> u64 {
        self.latched_times.load(Ordering::Acquire)
    }

    pub(crate) fn dead(&self) -> u32 {
        self.dead.load(Ordering::Relaxed)
    }

    /// Versions that are not known to be dead.
    pub(crate) fn live(&self) -> u32 {
        self.segment().rows().saturating_sub(self.dead())
    }

    pub(crate) fn add_dead(&self, rows: u32) {
        self.dead.fetch_add(rows, Ordering::Relaxed);
    }

    /// Rows of a rollback are garbage at any horizon.
    pub(crate) fn add_aborted(&self, rows: u32) {
        self.add_dead(rows);
        self.vacuum_from.store(0, Ordering::Relaxed);
    }

    /// Counts values of each variable-length attribute.
    pub(crate) fn add_variable_bytes(&self, bytes: impl IntoIterator<Item = u64>) {
        let mut bytes = bytes.into_iter();
        for (all, more) in self.variable_bytes.iter().zip(&mut bytes) {
            all.fetch_add(more, Ordering::Relaxed);
        }
        debug_assert!(bytes.next().is_none(), "a number for each such attribute");
    }

    /// Bytes of the values of each variable-length attribute in `rows` of the versions, on
    /// average.
    pub(crate) fn variable_bytes_of(&self, rows: u32) -> Vec<u64> {
        let all = u128::from(self.segment().rows().max(1));
        let share = |bytes: &AtomicU64| {
            let bytes = u128::from(bytes.load(Ordering::Relaxed));
            u64::try_from(bytes * u128::from(rows) / all).unwrap_or(u64::MAX)
        };
        self.variable_bytes.iter().map(share).collect()
    }

    /// Whether most versions are dead and something changed since the last look.
    pub(crate) fn wants_vacuum(&self, horizon: CommitTs) -> bool {
        let dead = self.dead();
        dead > 0
            && dead > self.segment().rows() / 2
            && horizon.0 >= self.vacuum_from.load(Ordering::Relaxed)
    }

    /// A vacuum at this horizon found too little.
    pub(crate) fn postpone_vacuum(&self, horizon: CommitTs) {
        self.vacuum_from.store(horizon.0 + 1, Ordering::Relaxed);
    }

    /// A number that changes whenever rows are appended, ended or rolled back.
    pub(crate) fn activity(&self) -> u64 {
        u64::from(self.segment().rows()) << 32 | u64::from(self.dead())
    }

    /// Whether nothing was written since the last look.
    pub(crate) fn is_cold(&self) -> bool {
        self.looked_at.load(Ordering::Relaxed) == self.activity()
    }

    /// Remembers what is looked at.
    pub(crate) fn look(&self) {
        self.looked_at.store(self.activity(), Ordering::Relaxed);
    }

    /// What is reserved for the segment: for its front, and for extents that are in memory.
    pub(crate) fn bytes_reserved(&self) -> u64 {
        let extents = self.segment().bytes_of_extents();
        let resident = extents.saturating_sub(self.evicted_bytes());
        self.latched.lock().reservation.bytes() + resident
    }

    /// Tells what the segment's memory is charged with, for as long as it is there, be the
    /// entry or not. Nothing is evicted meanwhile.
    #[cfg(test)]
    pub(crate) fn charged(&self) -> impl Fn() -> Option<u64> + use<> {
        let latched = Arc::downgrade(&self.latched);
        let extents = self.segment().bytes_of_extents() - self.evicted_bytes();
        move || Some(latched.upgrade()?.lock().reservation.bytes() + extents)
    }
}

/// Bytes reserved beyond what is in use, so that not every small append asks the budget.
const RESERVATION_STEP_BYTES: u64 = 64 << 10;

/// What reserving rounds up for: pages that rows begin in each region.
const PAGE_BYTES: u64 = 4096;

impl Latch<'_> {
    /// Reserves what appending this much can touch at most.
    pub(crate) fn reserve(&mut self, rows: usize, heap_bytes: usize) -> Result<(), OutOfMemory> {
        let schema = self.writer.segment().schema();
        // Indexes and stamps; every attribute may begin a page of slots and of zones, every
        // level of an ordered index one of links.
        let row_bytes = (schema.row_bytes_fixed() + schema.index_bytes_per_row()) as u64 + 16;
        let bytes = rows as u64 * row_bytes + heap_bytes as u64 + self.begun_pages_bytes();
        self.reserve_bytes(bytes)
    }

    /// Bytes of the pages that any append may begin.
    fn begun_pages_bytes(&self) -> u64 {
        let schema = self.writer.segment().schema();
        let pages = 2 * schema.attributes().len() + 8 + 12 * schema.indexes().len();
        pages as u64 * PAGE_BYTES
    }

    /// Reserves what stamping single rows of so many version blocks can touch at most.
    pub(crate) fn reserve_stamps(&mut self, blocks: usize) -> Result<(), OutOfMemory> {
        // The stamps of a block that begins to vary are all written.
        let stamps = blocks as u64 * (u64::from(BLOCK_ROWS) * 8 + PAGE_BYTES);
        self.reserve_bytes(stamps + self.writer.segment().ended_bytes())
    }

    fn reserve_bytes(&mut self, growth: u64) -> Result<(), OutOfMemory> {
        let segment = self.writer.segment();
        let extents = segment.bytes_of_extents();
        let most = segment.arena_bytes() as u64 + segment.ended_bytes() - extents;
        let needed = (segment.footprint_bytes_of_front() + growth).min(most);
        if needed <= self.state.reservation.bytes() {
            return Ok(());
        }
        self.state.reservation.try_resize(needed)
    }

    /// Makes the reservation what is in use, give or take a step and what one more row may
    /// begin, if that is not much: else rows that come one by one would each take it from
    /// the budget and give it back.
    pub(crate) fn settle_reservation(&mut self) -> Result<(), OutOfMemory> {
        let used = self.writer.segment().footprint_bytes_of_front();
        let reserved = self.state.reservation.bytes();
        let spare = self.begun_pages_bytes().min(2 * RESERVATION_STEP_BYTES);
        if used > reserved || reserved > used + RESERVATION_STEP_BYTES + spare {
            self.state.reservation.try_resize(used)?;
        }
        Ok(())
    }

    pub(crate) fn raise_key_max(&mut self, key: KeyRef<'_>) {
        if self.state.key_max.as_ref().is_none_or(|max| **max < *key.0) {
            self.state.key_max = Some(key.to_key());
        }
    }

    pub(crate) fn above_key_max(&self, key: KeyRef<'_>) -> bool {
        self.state.key_max.as_ref().is_none_or(|max| **max < *key.0)
    }
}

/// The identity of a segment, which outlives it: says where its rows went.
pub(crate) struct SegmentIdentity {
    pub(crate) no: SegmentNo,
    entry: Weak<Entry>,
    forward: OnceLock<Forward>,
}

impl SegmentIdentity {
    /// The segment, unless it was rewritten or truncated and no view pins it.
    pub(crate) fn entry(&self) -> Option<Arc<Entry>> {
        self.entry.upgrade()
    }

    /// Where the rows went, if the segment was rewritten.
    pub(crate) fn forward(&self) -> Option<&Forward> {
        self.forward.get()
    }

    /// Retires the place; the caller holds the segment's latch and has published
    /// the directory with the targets.
    pub(crate) fn retire(&self, forward: Forward) {
        let first = self.forward.set(forward).is_ok();
        assert!(first, "segment {} retired twice", self.no);
    }
}

/// Where the rows of a rewritten segment went: its kept rows, in some order, are
/// laid end to end over the targets.
pub(crate) struct Forward {
    /// For each old row its position in that order, or [`Self::DROPPED`].
    positions: Vec<u32>,
    /// Each target with the position of its first row.
    targets: Vec<(u32, Arc<SegmentIdentity>)>,
}

impl Forward {
    /// Of a row that was garbage.
    pub(crate) const DROPPED: u32 = u32::MAX;

    /// `kept` lists the old rows in the order in which the targets hold them.
    pub(crate) fn new(
        old_rows: u32,
        kept: impl Iterator<Item = u32>,
        targets: Vec<(u32, Arc<SegmentIdentity>)>,
    ) -> Self {
        let mut positions = vec![Self::DROPPED; old_rows as usize];
        for (position, old_row) in (0..).zip(kept) {
            debug_assert_eq!(
                positions[old_row as usize],
                Self::DROPPED,
                "a row goes to one place"
            );
            positions[old_row as usize] = position;
        }
        Self::of_positions(positions, targets)
    }

    /// Of positions that are known, one for each old row: rows that came from several
    /// segments lie side by side in the targets.
    pub(crate) fn of_positions(
        positions: Vec<u32>,
        targets: Vec<(u32, Arc<SegmentIdentity>)>,
    ) -> Self {
        assert!(
            targets.first().is_none_or(|(first, _)| *first == 0)
                && targets.is_sorted_by(|a, b| a.0 < b.0),
            "the targets' rows are laid end to end"
        );
        debug_assert!(
            !targets.is_empty() || positions.iter().all(|at| *at == Self::DROPPED),
            "rows that are kept have gone somewhere"
        );
        Self { positions, targets }
    }

    /// The new place of an old row; `None` if it was garbage.
    pub(crate) fn get(&self, old_row: u32) -> Option<(&Arc<SegmentIdentity>, u32)> {
        let position = self.positions[old_row as usize];
        if position == Self::DROPPED {
            return None;
        }
        let target = self
            .targets
            .partition_point(|(first, _)| *first <= position)
            - 1;
        let (first, place) = &self.targets[target];
        Some((place, position - first))
    }
}
