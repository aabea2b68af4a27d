//! The segment itself: what readers do with it.

use std::{
    fmt,
    ops::{ControlFlow, Range},
    panic::RefUnwindSafe,
    sync::{Arc, OnceLock, atomic::Ordering},
};

use aerostat_types::{SegmentNo, TableId};
use arrow_array::ArrayRef;

use crate::{
    Forwarding, Key, KeyRef, Predicate, Region, SegmentError, SegmentSchema, SegmentWriter,
    Selection, VECTOR_ROWS, Zone,
    arena::{Arena, header},
    filter, gather, index, key,
    plan::Plan,
    seal,
    versions::{Side, Versions},
    zone,
};

/// Rows of one table in one arena. Any number of threads read without a lock while
/// one [`SegmentWriter`] appends and stamps. A row's values never change once it is
/// published; an update is a new row and an end stamp on the old.
pub struct Segment {
    arena: Arena,
    forwarding: OnceLock<Forwarding>,
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
        let arena = Arena::new(region, plan, schema)?;
        assert_eq!(arena.rows(), 0, "a new region is zeroed");
        seal::initialise(&arena, u64::from(table.0) << 32 | u64::from(no.0));
        Ok(Segment {
            arena,
            forwarding: OnceLock::new(),
        })
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
        Ok(Segment {
            arena: seal::open(region, schema)?,
            forwarding: OnceLock::new(),
        })
    }

    /// Computes the checksum, so that the bytes can be attached elsewhere. The next
    /// [writer](Segment::writer) breaks the seal.
    pub fn seal_checksum(&self) {
        seal::seal(&self.arena.writer());
    }

    /// Takes the latch, waiting for the writer that holds it.
    pub fn writer(&self) -> SegmentWriter<'_> {
        let writer = self.arena.writer();
        seal::break_seal(&writer);
        SegmentWriter::new(self, writer)
    }

    /// The schema.
    pub fn schema(&self) -> &Arc<SegmentSchema> {
        self.arena.schema()
    }

    /// The table whose rows these are.
    pub fn table(&self) -> TableId {
        TableId((self.identity() >> 32) as u32)
    }

    /// The number within the table.
    pub fn no(&self) -> SegmentNo {
        SegmentNo(self.identity() as u32)
    }

    /// Published rows.
    pub fn rows(&self) -> u32 {
        self.arena.rows()
    }

    /// Rows there is room for.
    pub fn capacity(&self) -> u32 {
        self.arena.plan().capacity()
    }

    /// Vectors of [`VECTOR_ROWS`] rows that have a published row.
    pub fn vectors(&self) -> u32 {
        self.rows().div_ceil(VECTOR_ROWS)
    }

    /// Bytes of address space.
    pub fn arena_bytes(&self) -> usize {
        self.arena.plan().arena_bytes()
    }

    /// Bytes of the heap, used or not.
    pub fn heap_bytes(&self) -> usize {
        self.arena.plan().heap().bytes()
    }

    /// Bytes of the heap in use. With the rows, what to expect of the next segment's.
    pub fn heap_used_bytes(&self) -> usize {
        self.arena.heap_used()
    }

    /// Bytes of memory in use, in whole pages: what has been written, not what is reserved.
    pub fn footprint_bytes(&self) -> u64 {
        seal::footprint_bytes(&self.arena)
    }

    /// Bounds on an attribute's values within a vector.
    pub fn zone(&self, vector: u32, attribute: usize) -> Zone {
        zone::read(&self.arena, vector, attribute)
    }

    /// A row's begin and end stamp.
    pub fn stamps(&self, row: u32) -> (u64, u64) {
        let versions = Versions::of(&self.arena);
        (versions.get(Side::Begin, row), versions.get(Side::End, row))
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
        Versions::of(&self.arena).select(rows, visible, out);
    }

    /// Keeps the selected rows for which the predicate is true; NULL is not.
    ///
    /// # Panics
    /// When the schema does not [accept](SegmentSchema::accepts) the predicate.
    pub fn filter(&self, predicate: &Predicate, selection: &mut Selection) {
        filter::filter(&self.arena, predicate, selection);
    }

    /// The selected values of an attribute. Nothing is copied where the selection is a
    /// range and the attribute has a group of its own in Arrow's form; long texts are
    /// never copied. The array keeps the segment alive.
    pub fn gather(self: &Arc<Self>, attribute: usize, selection: &Selection) -> ArrayRef {
        gather::gather(self, attribute, selection)
    }

    /// Calls `f` with every published row that has this key, all versions, in no certain
    /// order, until it breaks.
    pub fn find(&self, key: KeyRef<'_>, f: &mut dyn FnMut(u32) -> ControlFlow<()>) {
        let rows = self.rows();
        let _ = index::candidates(self.arena.index(), key.0, rows, &mut |row| {
            if key::row_has(&self.arena, row, key) {
                f(row)
            } else {
                ControlFlow::Continue(())
            }
        });
    }

    /// The key of a published row; empty for a schema without key.
    pub fn key_of(&self, row: u32) -> Key {
        key::of_row(&self.arena, row)
    }

    /// Whether the rows have gone elsewhere.
    pub fn is_retired(&self) -> bool {
        self.forwarding.get().is_some()
    }

    /// Where the rows have gone, once the segment is retired.
    pub fn forwarding(&self) -> Option<&Forwarding> {
        self.forwarding.get()
    }

    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }

    pub(crate) fn set_forwarding(&self, forwarding: Forwarding) {
        assert!(
            self.forwarding.set(forwarding).is_ok(),
            "a segment is retired once"
        );
    }

    fn identity(&self) -> u64 {
        self.arena.header()[header::IDENTITY].load(Ordering::Relaxed)
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

// Arrow asks this of a buffer's owner. A panic leaves nothing half-changed that is
// published, and arrays do not touch the rest.
impl RefUnwindSafe for Segment {}
