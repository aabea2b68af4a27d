//! The segment itself: its creation, its two forms, and which of its rows are visible.
//!
//! Everything else that is done with the rows is in the modules above: `append` writes them,
//! `filter`, `probe`, `by_index` and `read` find them, `gather` and `read` hand them out. A reader
//! of values has a pin (`pinned`). A segment answers without values, from its header, versions,
//! zones and summaries, everything that is asked of it here.

pub(crate) mod forward;
pub(crate) mod pinned;

use std::{
    fmt,
    ops::Range,
    sync::{Arc, OnceLock, atomic::Ordering},
};

use aerostat_types::{SegmentNo, TableId};

use crate::{
    ARENA_BYTES_MAX, AttributeEncoding, FrozenImage, KeyRef, Predicate, Region, SegmentError,
    SegmentSchema, Selection, VECTOR_ROWS, Zone,
    body::{seal, segment::forward::Forwarding, touched},
    format::{
        arena::Arena,
        header,
        nulls::Nulls,
        plan::Plan,
        versions::{Seen, Side, Versions},
        zone,
    },
    frozen::Frozen,
    kernel::plain::{Plain, Slots},
};

/// Rows of one table in one arena. Any number of threads read without a lock while one
/// [`SegmentWriter`](crate::SegmentWriter) appends and stamps. A row's values never change
/// once it is published; an update is a new row and an end stamp on the old.
pub struct Segment {
    form: Form,
    forwarding: OnceLock<Forwarding>,
}

/// How a segment's bytes are laid out.
pub(crate) enum Form {
    /// Slots that rows are appended to.
    Hot(Arena),
    /// Encoded values.
    Frozen(Frozen),
}

/// What the bytes of a segment are for, in whole pages as a sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SegmentMemory {
    /// Values, zones and descriptions of rows.
    pub values: u64,
    /// The key's index and secondary ones.
    pub indexes: u64,
    /// Stamps of rows, and their summaries by block.
    pub versions: u64,
}

impl Form {
    pub(crate) fn schema(&self) -> &Arc<SegmentSchema> {
        match self {
            Form::Hot(arena) => arena.schema(),
            Form::Frozen(frozen) => frozen.schema(),
        }
    }

    pub(crate) fn rows(&self) -> u32 {
        match self {
            Form::Hot(arena) => arena.rows(),
            Form::Frozen(frozen) => frozen.rows(),
        }
    }

    /// The slots of an attribute that has them: any of a hot segment, a plain one of a frozen.
    pub(crate) fn slots<T: Plain>(&self, attribute: usize) -> Slots<'_, T> {
        match self {
            Form::Hot(arena) => arena.slots(attribute),
            Form::Frozen(frozen) => frozen.slots(attribute),
        }
    }

    pub(crate) fn nulls_within(
        &self,
        attribute: usize,
        selection: &Selection,
    ) -> Option<Nulls<'_>> {
        match self {
            Form::Hot(arena) => Nulls::within(arena, attribute, selection),
            Form::Frozen(frozen) => frozen.nulls_within(attribute, selection),
        }
    }

    pub(crate) fn is_null(&self, attribute: usize, row: u32) -> bool {
        match self {
            Form::Hot(arena) => Nulls::of(arena, attribute).is_some_and(|nulls| nulls.is_null(row)),
            Form::Frozen(frozen) => frozen.is_null(attribute, row),
        }
    }

    /// The heap that variable slots point to; frozen segments have none.
    pub(crate) fn heap(&self) -> &[u8] {
        match self {
            Form::Hot(arena) => arena.heap(),
            Form::Frozen(_) => &[],
        }
    }

    /// The heap that an attribute's views point to.
    pub(crate) fn heap_of(&self, attribute: usize) -> &[u8] {
        match self {
            Form::Hot(arena) => arena.heap(),
            Form::Frozen(frozen) => frozen.heap(attribute),
        }
    }

    pub(crate) fn versions(&self) -> Versions<'_> {
        match self {
            Form::Hot(arena) => Versions::of(arena),
            Form::Frozen(frozen) => frozen.versions(),
        }
    }
}

impl Segment {
    /// An empty segment in a zeroed region, for as many rows as fit with
    /// `heap_bytes_per_row` bytes of long values each. More than
    /// [`crate::ARENA_BYTES_MAX`] bytes are not used.
    ///
    /// # Errors
    /// [`SegmentError::ArenaTooSmall`] when not even one row fits.
    pub fn create(
        region: Box<dyn Region>,
        schema: Arc<SegmentSchema>,
        table: TableId,
        no: SegmentNo,
        heap_bytes_per_row: usize,
    ) -> Result<Segment, SegmentError> {
        let plan = Plan::fit(&schema, region.bytes(), heap_bytes_per_row)?;
        Segment::planned(region, plan, schema, table, no)
    }

    /// An empty segment in a zeroed region, with room for exactly `capacity` rows; what is
    /// left of the region is heap. Schemas that differ in their groups alone have room for
    /// the same in regions of one size.
    ///
    /// # Errors
    /// [`SegmentError::ArenaTooSmall`] when so many rows do not fit.
    ///
    /// # Panics
    /// When the capacity is 0 or beyond [`crate::ROWS_MAX`].
    pub fn create_for(
        region: Box<dyn Region>,
        schema: Arc<SegmentSchema>,
        table: TableId,
        no: SegmentNo,
        capacity: u32,
    ) -> Result<Segment, SegmentError> {
        let plan = Plan::new(&schema, region.bytes().min(ARENA_BYTES_MAX), capacity)?;
        Segment::planned(region, plan, schema, table, no)
    }

    fn planned(
        region: Box<dyn Region>,
        plan: Plan,
        schema: Arc<SegmentSchema>,
        table: TableId,
        no: SegmentNo,
    ) -> Result<Segment, SegmentError> {
        let arena = Arena::new(region, plan, schema)?;
        assert_eq!(arena.rows(), 0, "a new region is zeroed");
        seal::initialise(&arena, u64::from(table.0) << 32 | u64::from(no.0));
        Ok(Segment::of(Form::Hot(arena)))
    }

    /// The frozen segment that an image describes, in a zeroed region of at least
    /// [`FrozenImage::arena_bytes`]. It takes no rows; its end stamps can be set.
    ///
    /// # Panics
    /// When the region is smaller.
    pub fn create_frozen(
        region: Box<dyn Region>,
        schema: Arc<SegmentSchema>,
        image: FrozenImage,
    ) -> Segment {
        Segment::of(Form::Frozen(Frozen::create(region, schema, image)))
    }

    fn of(form: Form) -> Segment {
        match &form {
            Form::Hot(arena) => touched::note_rows(&mut arena.writer()),
            Form::Frozen(frozen) => frozen.count_varying(),
        }
        Segment {
            form,
            forwarding: OnceLock::new(),
        }
    }

    /// The segment in a region that holds the bytes of a sealed one, from a file or
    /// another machine. Every byte is checked before it is relied on.
    ///
    /// # Errors
    /// [`SegmentError::Corrupt`] when the bytes are not a sealed segment of this schema.
    pub fn attach(
        region: Box<dyn Region>,
        schema: Arc<SegmentSchema>,
    ) -> Result<Segment, SegmentError> {
        Ok(Segment::of(if Frozen::is_at(region.as_ref()) {
            Form::Frozen(Frozen::open(region, schema)?)
        } else {
            Form::Hot(seal::open(region, schema)?)
        }))
    }

    /// The segment of [`Pinned::frozen_bytes`](crate::Pinned::frozen_bytes), under another number, in a zeroed region of
    /// the [`Segment::arena_bytes`] that it had. Every byte is checked before it is relied on.
    ///
    /// # Errors
    /// [`SegmentError::Corrupt`] when the bytes are not those of a frozen segment of this
    /// schema, or the region is too small.
    pub fn attach_frozen(
        region: Box<dyn Region>,
        bytes: Vec<u8>,
        schema: Arc<SegmentSchema>,
        no: SegmentNo,
    ) -> Result<Segment, SegmentError> {
        let frozen = Frozen::open_bytes(region, bytes, schema, no)?;
        Ok(Segment::of(Form::Frozen(frozen)))
    }

    /// Whether the segment is encoded and takes no rows.
    pub fn is_frozen(&self) -> bool {
        matches!(self.form, Form::Frozen(_))
    }

    /// The schema.
    pub fn schema(&self) -> &Arc<SegmentSchema> {
        self.form.schema()
    }

    /// The table whose rows these are.
    pub fn table(&self) -> TableId {
        self.identity().0
    }

    /// The number within the table.
    pub fn no(&self) -> SegmentNo {
        self.identity().1
    }

    /// Published rows.
    pub fn rows(&self) -> u32 {
        self.form.rows()
    }

    /// Rows there is room for.
    pub fn capacity(&self) -> u32 {
        match &self.form {
            Form::Hot(arena) => arena.plan().capacity(),
            Form::Frozen(frozen) => frozen.rows(),
        }
    }

    /// Vectors of [`VECTOR_ROWS`] rows that have a published row.
    pub fn vectors(&self) -> u32 {
        self.rows().div_ceil(VECTOR_ROWS)
    }

    /// Bytes of address space.
    pub fn arena_bytes(&self) -> usize {
        match &self.form {
            Form::Hot(arena) => arena.plan().arena_bytes(),
            Form::Frozen(frozen) => frozen.arena_bytes(),
        }
    }

    /// Bytes of the heap, used or not.
    pub fn heap_bytes(&self) -> usize {
        match &self.form {
            Form::Hot(arena) => arena.plan().heap().bytes(),
            Form::Frozen(frozen) => frozen.hot_heap_bytes(),
        }
    }

    /// Bytes of the heap in use; of a frozen segment, those of its distinct strings. With
    /// the rows, what to expect of the next segment's.
    pub fn heap_used_bytes(&self) -> usize {
        match &self.form {
            Form::Hot(arena) => arena.heap_used(),
            Form::Frozen(frozen) => frozen.hot_heap_bytes(),
        }
    }

    /// Bytes of memory in use, in whole pages: what has been written, not what is reserved.
    /// Kept up to date by writers, so asking costs nothing.
    pub fn footprint_bytes(&self) -> u64 {
        match &self.form {
            Form::Hot(arena) => arena.footprint().bytes(arena.plan()),
            Form::Frozen(frozen) => frozen.footprint_bytes(),
        }
    }

    /// [`Self::footprint_bytes`], and what is evicted: the memory that it takes when all of it is read.
    pub fn whole_bytes(&self) -> u64 {
        self.footprint_bytes() + self.evicted_bytes()
    }

    /// Of [`Self::footprint_bytes`], what is not extents of a frozen segment, which are charged one
    /// by one ([`SegmentBody::set_charges`](crate::SegmentBody::set_charges)).
    pub fn footprint_bytes_of_front(&self) -> u64 {
        match &self.form {
            Form::Hot(arena) => arena.footprint().bytes(arena.plan()),
            Form::Frozen(frozen) => frozen.footprint_bytes_of_front(),
        }
    }

    /// Of each extent of a frozen segment, the bytes that are evicted with it; nothing of a hot one.
    pub fn extent_bytes(&self) -> Vec<u64> {
        match &self.form {
            Form::Hot(_) => Vec::new(),
            Form::Frozen(frozen) => {
                let extents = 0..self.schema().extents();
                extents.map(|at| frozen.pages().bytes(at)).collect()
            }
        }
    }

    /// Bytes of all extents.
    pub fn bytes_of_extents(&self) -> u64 {
        match &self.form {
            Form::Hot(_) => 0,
            Form::Frozen(frozen) => frozen.pages().bytes_of_all(),
        }
    }

    /// Bytes of a frozen segment's values and indexes that are evicted.
    pub fn evicted_bytes(&self) -> u64 {
        match &self.form {
            Form::Hot(_) => 0,
            Form::Frozen(frozen) => frozen.pages().absent().0,
        }
    }

    /// [`Self::footprint_bytes`], divided among what the bytes are for. It walks the segment's
    /// version blocks: for reports, not for each statement.
    pub fn memory(&self) -> SegmentMemory {
        let (indexes, versions) = match &self.form {
            Form::Hot(arena) => touched::indexes_and_versions(arena),
            Form::Frozen(frozen) => frozen.indexes_and_versions(),
        };
        let all = self.footprint_bytes();
        // Writers go on meanwhile, so the parts are no later than the sum.
        let indexes = indexes.min(all);
        let versions = versions.min(all - indexes);
        SegmentMemory {
            values: all - indexes - versions,
            indexes,
            versions,
        }
    }

    /// What is used beside the arena as soon as a row has an end stamp of its own.
    pub fn ended_bytes(&self) -> u64 {
        match &self.form {
            Form::Hot(_) => 0,
            Form::Frozen(frozen) => frozen.ended_bytes() as u64,
        }
    }

    /// Bounds on an attribute's values within a vector.
    pub fn zone(&self, vector: u32, attribute: usize) -> Zone {
        match &self.form {
            Form::Hot(arena) => zone::read(arena, vector, attribute),
            Form::Frozen(frozen) => frozen.zone(vector, attribute),
        }
    }

    /// Whether a row of the vector can satisfy the predicate, as far as its zone and the
    /// segment's Bloom filters tell.
    pub fn may_match(&self, vector: u32, predicate: &Predicate) -> bool {
        predicate.may_match(self.zone(vector, predicate.attribute()))
            && match &self.form {
                Form::Hot(_) => true,
                Form::Frozen(frozen) => frozen.may_have(predicate),
            }
    }

    /// Whether a row may have this key in a secondary index, as far as can be told without its values.
    pub fn may_have_indexed(&self, index: usize, key: KeyRef<'_>) -> bool {
        match &self.form {
            Form::Hot(_) => true,
            Form::Frozen(frozen) => frozen.may_have_indexed(index, key),
        }
    }

    /// A row's begin and end stamp.
    pub fn stamps(&self, row: u32) -> (u64, u64) {
        let versions = self.form.versions();
        (versions.get(Side::Begin, row), versions.get(Side::End, row))
    }

    /// Calls `f` with each of these rows that has an end stamp, and that.
    ///
    /// # Panics
    /// When a row is not published.
    pub fn each_end(&self, rows: Range<u32>, f: &mut dyn FnMut(u32, u64)) {
        assert!(rows.end <= self.rows(), "published rows");
        self.form.versions().each_end(rows, f);
    }

    /// Sets `out` to the rows of a range of published ones whose stamps (begin, end) are
    /// `visible`. It is asked once for a run of rows with the same stamps. `None` says that
    /// a stamp names a transaction that is known no longer, because it has ended and the
    /// rows are being stamped: the stamps are read and asked again.
    pub fn select_visible(
        &self,
        rows: Range<u32>,
        visible: &mut dyn FnMut(u64, u64) -> Option<bool>,
        out: &mut Selection,
    ) {
        assert!(rows.end <= self.rows(), "rows {rows:?} are published");
        self.form.versions().select(rows, visible, out);
    }

    /// Sets `out` to the rows of a range of published ones that are visible. Where `true` is
    /// returned there may be rows among them that have ended: they are to be taken out by
    /// [`Segment::keep_seen`], which costs least when other conditions have left few rows.
    pub fn select_seen(&self, rows: Range<u32>, seen: &mut Seen<'_>, out: &mut Selection) -> bool {
        assert!(rows.end <= self.rows(), "rows {rows:?} are published");
        self.form.versions().select_seen(rows, seen, out)
    }

    /// Takes out what is not visible, of rows that [`Segment::select_seen`] has found or some
    /// of them.
    pub fn keep_seen(&self, seen: &mut Seen<'_>, selection: &mut Selection) {
        assert!(
            selection.last().is_none_or(|last| last < self.rows()),
            "selected rows are published"
        );
        self.form.versions().keep_seen(seen, selection);
    }

    /// How the values of an attribute lie here.
    pub fn encoding(&self, attribute: usize) -> AttributeEncoding {
        match &self.form {
            Form::Hot(arena) => {
                let width = arena.schema().physical(attribute).width();
                AttributeEncoding::slots(width, arena.rows())
            }
            Form::Frozen(frozen) => frozen.encoding(attribute),
        }
    }

    /// Whether the rows have gone elsewhere.
    pub fn is_retired(&self) -> bool {
        self.forwarding.get().is_some()
    }

    /// Where the rows have gone, once the segment is retired.
    pub fn forwarding(&self) -> Option<&Forwarding> {
        self.forwarding.get()
    }

    pub(crate) fn form(&self) -> &Form {
        &self.form
    }

    pub(crate) fn set_forwarding(&self, forwarding: Forwarding) {
        assert!(
            self.forwarding.set(forwarding).is_ok(),
            "a segment is retired once"
        );
    }

    fn identity(&self) -> (TableId, SegmentNo) {
        match &self.form {
            Form::Hot(arena) => {
                let identity = arena.header()[header::IDENTITY].load(Ordering::Relaxed);
                (TableId((identity >> 32) as u32), SegmentNo(identity as u32))
            }
            Form::Frozen(frozen) => frozen.identity(),
        }
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segment")
            .field("table", &self.table())
            .field("no", &self.no())
            .field("rows", &self.rows())
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
}
