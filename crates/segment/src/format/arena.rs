//! The arena: safe, bounds-checked access to a region of bytes that one writer and many readers
//! share. Together with `region`, `plain` and `buffer` this is the unsafe code of hot segments.
//!
//! Two rules make sharing sound, and this module enforces both:
//!
//! 1. Bytes that may change under a reader's eyes are accessed only as atomics. The plan assigns
//!    every area to *words* (`AtomicU64`), *cells* (`AtomicU32`) or *plain*, and no function
//!    reads an area in another way.
//! 2. Plain bytes (tuples and heap) have a watermark, `rows` or `heap_used` in the header.
//!    Readers are given bytes below it, the writer bytes above it. The writer raises it with a
//!    Release store after writing; readers load it with Acquire before reading. It never goes
//!    down. So no byte is written while it can be read.
//!
//! ```text
//!  tuples  ┌───────── published ─────────┬──── the writer's ────┐
//!          0                            rows                 capacity
//! ```
//!
//! There is one writer because [`Writer`] holds the latch.

use std::{marker::PhantomData, ptr::NonNull, slice, sync::Arc};

use aerostat_sync::{AtomicU32, AtomicU64, Mutex, MutexGuard, Ordering};

use crate::{
    Region, SegmentError, SegmentSchema,
    format::{
        footprint::{Footprint, Touched},
        header::{self, HEADER_WORDS},
        intern::Interned,
        plan::{Area, Plan},
        region::REGION_ALIGN,
    },
    kernel::plain::{Plain, Slots},
};

#[cfg(not(all(target_endian = "little", target_pointer_width = "64")))]
compile_error!("a segment's bytes are little-endian, its offsets are computed in 64 bits");

/// The first words of a region's header, before there is an arena.
pub(crate) fn facts(region: &dyn Region, plan: &Plan) -> [u64; HEADER_WORDS] {
    assert!(
        plan.arena_bytes() <= region.bytes(),
        "the plan was made for this region"
    );
    // SAFETY: a plan's header has at least HEADER_WORDS words and is within the region
    // (asserted), whose bytes are initialised; the caller has the region to itself, since
    // no arena owns it yet.
    unsafe { region.base().cast::<[u64; HEADER_WORDS]>().read_unaligned() }
}

/// What the holder of the latch keeps outside the arena.
struct Latched {
    interned: Interned,
    touched: Touched,
}

/// A region divided by a plan.
pub(crate) struct Arena {
    base: NonNull<u8>,
    plan: Plan,
    schema: Arc<SegmentSchema>,
    latch: Mutex<Latched>,
    footprint: Footprint,
    #[cfg(loom)]
    modelled: crate::format::modelled::Modelled,
    /// Keeps the bytes alive.
    _region: Box<dyn Region>,
}

// SAFETY: the region is Send, and nothing else refers to its bytes.
unsafe impl Send for Arena {}
// SAFETY: shared access goes through the atomics and watermarks described above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Divides a region.
    ///
    /// # Errors
    /// [`SegmentError::Corrupt`] when the header claims more rows or heap than the
    /// plan has room for (a zeroed region claims none).
    ///
    /// # Panics
    /// When the region is smaller than the plan, or not aligned.
    pub(crate) fn new(
        region: Box<dyn Region>,
        plan: Plan,
        schema: Arc<SegmentSchema>,
    ) -> Result<Arena, SegmentError> {
        let base = region.base();
        assert!(
            plan.arena_bytes() <= region.bytes(),
            "the plan was made for this region"
        );
        assert!(
            base.addr().get().is_multiple_of(REGION_ALIGN),
            "a region is aligned"
        );
        let latch = Mutex::new(Latched {
            interned: Interned::new(plan.heap().bytes()),
            touched: Touched::new(&plan),
        });
        #[cfg(loom)]
        // SAFETY: the plan was made for the region (asserted), which nobody else has yet.
        let modelled = unsafe { crate::format::modelled::Modelled::of(base, &plan) };
        let arena = Arena {
            base,
            #[cfg(loom)]
            modelled,
            plan,
            schema,
            latch,
            footprint: Footprint::default(),
            _region: region,
        };
        let rows = arena.header()[header::ROWS].load(Ordering::Acquire);
        let heap_used = arena.header()[header::HEAP_USED].load(Ordering::Acquire);
        if rows > u64::from(arena.plan.capacity()) || heap_used > arena.plan.heap().bytes() as u64 {
            return Err(SegmentError::Corrupt(
                "more rows or heap than there is room for",
            ));
        }
        Ok(arena)
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(crate) fn schema(&self) -> &Arc<SegmentSchema> {
        &self.schema
    }

    /// Rows that readers may see.
    pub(crate) fn rows(&self) -> u32 {
        self.header()[header::ROWS].load(Ordering::Acquire) as u32
    }

    /// Bytes of heap that readers may see. Load `rows` first: it covers what they refer to.
    pub(crate) fn heap_used(&self) -> usize {
        self.header()[header::HEAP_USED].load(Ordering::Acquire) as usize
    }

    pub(crate) fn header(&self) -> &[AtomicU64] {
        self.words(self.plan.header())
    }

    pub(crate) fn nulls(&self) -> &[AtomicU64] {
        self.words(self.plan.nulls())
    }

    pub(crate) fn zones(&self) -> &[AtomicU64] {
        self.words(self.plan.zones())
    }

    pub(crate) fn versions(&self) -> &[AtomicU64] {
        self.words(self.plan.versions())
    }

    pub(crate) fn begins(&self) -> &[AtomicU64] {
        self.words(self.plan.begins())
    }

    pub(crate) fn ends(&self) -> &[AtomicU64] {
        self.words(self.plan.ends())
    }

    /// The cells of the key index.
    pub(crate) fn index(&self) -> &[AtomicU32] {
        &self.cells()[self.plan.index_cells()[0].clone()]
    }

    /// The cells of a secondary index.
    pub(crate) fn secondary(&self, index: usize) -> &[AtomicU32] {
        &self.cells()[self.plan.index_cells()[1 + index].clone()]
    }

    /// The cells of all indexes.
    #[cfg(loom)]
    pub(crate) fn cells(&self) -> &[AtomicU32] {
        &self.modelled.cells
    }

    /// The cells of all indexes.
    #[cfg(not(loom))]
    pub(crate) fn cells(&self) -> &[AtomicU32] {
        let area = self.plan.indexes();
        // SAFETY: the area is in bounds and 64-aligned (Plan); the bytes are initialised
        // and live as long as self (Region); they are accessed as cells only.
        unsafe { slice::from_raw_parts(self.at(area.offset()).cast().as_ptr(), area.bytes() / 4) }
    }

    #[cfg(loom)]
    fn words(&self, area: Area) -> &[AtomicU64] {
        self.modelled.words.of(area.offset())
    }

    /// Private: callers above pass areas of words only.
    #[cfg(not(loom))]
    fn words(&self, area: Area) -> &[AtomicU64] {
        // SAFETY: the area is in bounds and 64-aligned (Plan); the bytes are initialised
        // and live as long as self (Region); they are accessed as words only.
        unsafe { slice::from_raw_parts(self.at(area.offset()).cast().as_ptr(), area.bytes() / 8) }
    }

    /// The published heap.
    pub(crate) fn heap(&self) -> &[u8] {
        let used = self.heap_used();
        assert!(
            used <= self.plan.heap().bytes(),
            "the watermark stays within the heap"
        );
        #[cfg(loom)]
        self.modelled.read_heap(used);
        // SAFETY: used is within the heap area (asserted), which is in bounds (Plan); bytes
        // below the watermark were written before its Release store that heap_used() acquired,
        // and are never written again.
        unsafe { slice::from_raw_parts(self.at(self.plan.heap().offset()).as_ptr(), used) }
    }

    /// The published tuples of a group, as bytes.
    pub(crate) fn tuples(&self, group: usize) -> &[u8] {
        let rows = self.rows();
        let bytes = rows as usize * self.schema.strides()[group];
        let area = self.plan.group(group);
        assert!(bytes <= area.bytes(), "published rows are within the group");
        #[cfg(loom)]
        self.modelled.read_rows(rows);
        // SAFETY: in bounds (asserted, Plan); the tuples of published rows were written before
        // the Release store that rows() acquired, and are never written again.
        unsafe { slice::from_raw_parts(self.at(area.offset()).as_ptr(), bytes) }
    }

    /// An attribute's slots for all published rows.
    ///
    /// # Panics
    /// When `T` is not of the slot's width.
    pub(crate) fn slots<T: Plain>(&self, attribute: usize) -> Slots<'_, T> {
        let place = self.schema.place(attribute);
        let stride = self.schema.strides()[place.group];
        assert_eq!(
            size_of::<T>(),
            self.schema.physical(attribute).width(),
            "the slot's own type"
        );
        let tuples = self.tuples(place.group);
        let len = tuples.len() / stride;
        // An offset within the tuple; wrapping because there may be no tuple at all.
        let first = tuples.as_ptr().wrapping_add(place.offset);
        // SAFETY: `len` tuples of `stride` bytes begin at `first` less the slot's offset, and have
        // at that offset a slot of the width of T (asserted). The bytes of `tuples` are
        // initialised, do not change, and live as long as self.
        unsafe { Slots::over(first, stride, len, PhantomData) }
    }

    /// How many pages are in use.
    pub(crate) fn footprint(&self) -> &Footprint {
        &self.footprint
    }

    /// Takes the latch.
    pub(crate) fn writer(&self) -> Writer<'_> {
        Writer {
            arena: self,
            latched: self.latch.lock(),
        }
    }

    /// The address at an offset of an area of the plan.
    fn at(&self, offset: usize) -> NonNull<u8> {
        debug_assert!(offset <= self.plan.arena_bytes());
        // SAFETY: offsets come from the plan, whose areas are within arena_bytes, and
        // Arena::new asserted that the region has as many.
        unsafe { self.base.add(offset) }
    }
}

/// Exclusive access to what is not published yet. Holds the latch.
pub(crate) struct Writer<'a> {
    arena: &'a Arena,
    latched: MutexGuard<'a, Latched>,
}

impl<'a> Writer<'a> {
    pub(crate) fn arena(&self) -> &'a Arena {
        self.arena
    }

    /// Stores values to an attribute's slots of rows from `first` on, none of them published.
    ///
    /// # Panics
    /// When a row is published or beyond the capacity, or `T` is not of the slot's width.
    pub(crate) fn store<T: Plain>(&mut self, attribute: usize, first: u32, values: &[T]) {
        let schema = &self.arena.schema;
        let place = schema.place(attribute);
        let stride = schema.strides()[place.group];
        assert_eq!(
            size_of::<T>(),
            schema.physical(attribute).width(),
            "the slot's own type"
        );
        assert!(first >= self.arena.rows(), "published rows do not change");
        assert!(
            first as usize + values.len() <= self.arena.plan.capacity() as usize,
            "rows within the capacity"
        );
        #[cfg(loom)]
        self.arena
            .modelled
            .write_rows(first as usize..first as usize + values.len());
        let area = self.arena.plan.group(place.group);
        debug_assert!((first as usize + values.len()) * stride <= area.bytes());
        let start = self
            .arena
            .at(area.offset() + first as usize * stride + place.offset)
            .as_ptr();
        if stride == size_of::<T>() {
            // SAFETY: the slots first..first+len lie side by side within the group's area (rows
            // within the capacity, asserted; the area has capacity × stride bytes, Plan); rows
            // above the watermark are the writer's alone (rule 2, &mut self holds the latch);
            // `values` is not in them, because no slice to unpublished bytes is ever made.
            unsafe {
                std::ptr::copy_nonoverlapping(
                    values.as_ptr().cast::<u8>(),
                    start,
                    size_of_val(values),
                )
            };
            return;
        }
        for (nth, &value) in values.iter().enumerate() {
            // SAFETY: as above; slot `nth` is at nth × stride, and write_unaligned takes any address.
            unsafe { start.add(nth * stride).cast::<T>().write_unaligned(value) };
        }
    }

    /// The heap slot of a long value: that of an equal one stored lately, or a new
    /// one. `None` when the heap is full.
    pub(crate) fn intern(&mut self, value: &[u8]) -> Option<u64> {
        if let Some(slot) = self.latched.interned.get(value, self.arena.heap()) {
            return Some(slot);
        }
        let used = self.arena.heap_used();
        let heap = self.arena.plan.heap();
        if value.len() > heap.bytes() - used {
            return None;
        }
        #[cfg(loom)]
        self.arena.modelled.write_heap(used..used + value.len());
        let start = self.arena.at(heap.offset() + used).as_ptr();
        // SAFETY: used..used+len is within the heap's area (checked above) and above the
        // watermark, so the writer's alone; `value` is not there, as no slice to it is ever made.
        unsafe { std::ptr::copy_nonoverlapping(value.as_ptr(), start, value.len()) };
        self.arena.header()[header::HEAP_USED]
            .store((used + value.len()) as u64, Ordering::Release);
        Some(self.latched.interned.put(value, used))
    }

    /// Forgets the values stored lately, when no more will come.
    pub(crate) fn forget_interned(&mut self) {
        self.latched.interned.clear();
    }

    /// The pages in use.
    pub(crate) fn touched(&mut self) -> &mut Touched {
        &mut self.latched.touched
    }

    /// Raises the watermark: readers may see the first `rows` rows from now on.
    pub(crate) fn publish(&mut self, rows: u32) {
        assert!(
            rows >= self.arena.rows() && rows <= self.arena.plan.capacity(),
            "the watermark only rises"
        );
        self.arena.header()[header::ROWS].store(rows.into(), Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use aerostat_types::SqlType;

    use super::*;
    use crate::{AttributeSpec, HeapRegion};

    fn arena(types: &[SqlType], groups: Vec<Vec<usize>>) -> Arena {
        let attributes = types
            .iter()
            .map(|&ty| AttributeSpec {
                ty,
                nullable: false,
            })
            .collect();
        let schema = Arc::new(SegmentSchema::new(attributes, groups, vec![]).unwrap());
        let plan = Plan::fit(&schema, 16 << 10, 16).unwrap();
        Arena::new(Box::new(HeapRegion::new(16 << 10)), plan, schema).unwrap()
    }

    #[test]
    fn unaligned_slots_keep_their_values() {
        let arena = arena(&[SqlType::Boolean, SqlType::BigInt], vec![vec![0, 1]]);
        let mut writer = arena.writer();
        writer.store::<u8>(0, 0, &[1, 0, 1]);
        writer.store::<i64>(1, 0, &[7, -8, i64::MAX]);
        assert_eq!(arena.slots::<i64>(1).len(), 0);
        writer.publish(3);
        let slots = arena.slots::<i64>(1);
        assert_eq!(slots.iter().collect::<Vec<_>>(), [7, -8, i64::MAX]);
        assert!(slots.as_slice().is_none());
        assert_eq!(slots.part(1, 3).get(0), -8);
        assert_eq!(slots.block(1, 2, &mut [0; 64]), [-8, i64::MAX]);
        assert_eq!(arena.slots::<u8>(0).get(2), 1);
    }

    #[test]
    fn slots_side_by_side_are_a_slice() {
        let arena = arena(&[SqlType::Integer], vec![vec![0]]);
        let mut writer = arena.writer();
        writer.store::<i32>(0, 0, &[1, 2]);
        writer.publish(1);
        assert_eq!(arena.slots::<i32>(0).as_slice().unwrap(), [1]);
        writer.publish(2);
        assert_eq!(arena.slots::<i32>(0).as_slice().unwrap(), [1, 2]);
    }

    #[test]
    #[should_panic(expected = "published rows do not change")]
    fn published_rows_are_not_the_writers() {
        let arena = arena(&[SqlType::Integer], vec![vec![0]]);
        let mut writer = arena.writer();
        writer.store::<i32>(0, 0, &[1]);
        writer.publish(1);
        writer.store::<i32>(0, 0, &[2]);
    }

    #[test]
    #[should_panic(expected = "of 1 published")]
    fn unpublished_rows_are_not_the_readers() {
        let arena = arena(&[SqlType::Integer], vec![vec![0]]);
        let mut writer = arena.writer();
        writer.store::<i32>(0, 0, &[1, 2]);
        writer.publish(1);
        arena.slots::<i32>(0).get(1);
    }

    #[test]
    fn equal_long_values_share_the_heap_until_it_is_full() {
        let arena = arena(&[SqlType::Text], vec![vec![0]]);
        let mut writer = arena.writer();
        let slot = writer.intern(b"long enough").unwrap();
        assert_eq!(writer.intern(b"long enough"), Some(slot));
        assert_eq!(arena.heap(), b"long enough");
        assert_eq!(writer.intern(&[0; 16 << 10]), None);
        assert_ne!(writer.intern(b"another value"), Some(slot));
    }
}
