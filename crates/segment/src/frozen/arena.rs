//! The memory of a frozen segment: with `pages`, the unsafe code of this folder.
//!
//! The areas that [`Bytes`] name are written before a [`FrozenArena`] exists and never after, so
//! they are handed out as slices. What is in an extent may leave memory and come back the same:
//! nobody has a slice of it meanwhile, since whoever asks for one holds the extent (`pages`). The areas that [`Words`] name may change and are handed out as
//! atomics. The plan keeps the two apart.

use std::{
    marker::PhantomData, ops::Range, ptr::NonNull, slice, sync::atomic::AtomicU64 as MachineU64,
};

use aerostat_sync::{AtomicU64, Mutex, Ordering};

use crate::{
    Region,
    format::region::REGION_ALIGN,
    frozen::{
        pack::{Lanes, Packed},
        plan::{Bytes, FrozenPlan, Words},
    },
    kernel::{
        lane::Lane,
        plain::{Plain, Slots},
    },
};

/// A region divided by a plan.
pub(crate) struct FrozenArena {
    base: NonNull<u8>,
    plan: FrozenPlan,
    /// Held by the one writer, who stamps.
    pub(crate) latch: Mutex<()>,
    #[cfg(loom)]
    modelled: crate::format::modelled::Words,
    /// Keeps the bytes alive.
    region: Box<dyn Region>,
}

// SAFETY: the region is Send, and nothing else refers to its bytes.
unsafe impl Send for FrozenArena {}
// SAFETY: shared access is to bytes that do not change, and to atomics.
unsafe impl Sync for FrozenArena {}

/// The first words of a region, before there is an arena.
pub(crate) fn first_words(region: &dyn Region, words: usize) -> Option<Vec<u64>> {
    if region.bytes() / 8 < words {
        return None;
    }
    let base = region.base().cast::<u64>();
    // SAFETY: the words are within the region (checked above), whose bytes are initialised;
    // the caller has the region to itself, since no arena owns it yet.
    Some(
        (0..words)
            .map(|at| unsafe { base.add(at).read_unaligned() })
            .collect(),
    )
}

impl FrozenArena {
    /// Divides a region that holds what the plan says, or after [`write`] will.
    ///
    /// # Panics
    /// When the region is smaller than the plan, or not aligned.
    pub(crate) fn new(region: Box<dyn Region>, plan: FrozenPlan) -> FrozenArena {
        let base = region.base();
        assert!(
            plan.arena_bytes <= region.bytes(),
            "the plan was made for this region"
        );
        assert!(
            base.addr().get().is_multiple_of(REGION_ALIGN),
            "a region is aligned"
        );
        #[cfg(loom)]
        let modelled = {
            let nulls = plan.attributes.iter().map(|at| at.nulls);
            let areas = [plan.header, plan.zones, plan.versions, plan.ends].into_iter();
            let areas = areas.chain(nulls).map(|area| (area.offset, area.words));
            // SAFETY: areas of a plan that was made for the region (asserted) are in bounds and
            // aligned; regions are initialised, and nobody else has this one yet.
            unsafe { crate::format::modelled::Words::at(base, areas) }
        };
        FrozenArena {
            base,
            #[cfg(loom)]
            modelled,
            plan,
            latch: Mutex::new(()),
            region,
        }
    }

    pub(crate) fn plan(&self) -> &FrozenPlan {
        &self.plan
    }

    /// The whole pages within these bytes, if the region can give up some.
    pub(crate) fn pages_within(&self, bytes: &Range<usize>) -> Option<Range<usize>> {
        let page_bytes = self.region.page_bytes()?;
        let end = bytes.end / page_bytes * page_bytes;
        let start = bytes.start.next_multiple_of(page_bytes);
        (start < end).then_some(start..end)
    }

    /// Says whether all extents are there, or about to be.
    pub(crate) fn set_whole(&self, is_whole: bool) {
        self.region.set_whole(is_whole);
    }

    /// Says that such pages will be written as a whole.
    pub(crate) fn begin_fill(&self, pages: &Range<usize>) {
        self.region.begin_fill(pages);
    }

    /// Says that they have been.
    pub(crate) fn end_fill(&self, pages: &Range<usize>) {
        self.region.end_fill(pages);
    }

    /// Gives up pages of extents.
    ///
    /// # Safety
    /// They are such as [`FrozenArena::pages_within`] gives of the plan's extents, and nobody
    /// refers to their bytes.
    pub(crate) unsafe fn give_up(&self, pages: Range<usize>) {
        assert!(pages.end <= self.plan.arena_bytes, "pages of the arena");
        // SAFETY: whole pages within the region (asserted, and the caller), to which nobody
        // refers (caller).
        unsafe { self.region.give_up(pages) }
    }

    /// Bytes of an extent, to be filled.
    ///
    /// # Safety
    /// Nobody else refers to them as long as the slice is there.
    #[allow(
        clippy::mut_from_ref,
        reason = "the caller sees to it that it is alone"
    )]
    pub(crate) unsafe fn bytes_mut(&self, pages: &Range<usize>) -> &mut [u8] {
        assert!(
            pages.start <= pages.end && pages.end <= self.plan.arena_bytes,
            "pages of the arena"
        );
        // SAFETY: in bounds (asserted); the bytes live as long as self (Region) and are
        // initialised: pages that were given up read as something (Region::give_up). Nobody else
        // refers to them (caller).
        unsafe { slice::from_raw_parts_mut(self.base.add(pages.start).as_ptr(), pages.len()) }
    }

    pub(crate) fn bytes(&self, area: Bytes) -> &[u8] {
        self.values(area)
    }

    #[cfg(loom)]
    pub(crate) fn words(&self, area: Words) -> &[AtomicU64] {
        &self.modelled.of(area.offset)[..area.words]
    }

    #[cfg(not(loom))]
    pub(crate) fn words(&self, area: Words) -> &[AtomicU64] {
        assert!(
            area.offset + area.words * 8 <= self.plan.arena_bytes,
            "an area of the plan"
        );
        // SAFETY: the area is in bounds (asserted) and 64-aligned (FrozenPlan); the bytes are
        // initialised and live as long as self (Region); Words are accessed as atomics only.
        unsafe { slice::from_raw_parts(self.base.add(area.offset).cast().as_ptr(), area.words) }
    }

    /// A copy of the bytes in front, a multiple of eight, of which words may change meanwhile.
    pub(crate) fn copy_of_front(&self, bytes: usize) -> Vec<u8> {
        assert!(bytes <= self.plan.arena_bytes, "the front of the arena");
        let base = self.base.cast::<u64>();
        let word = |at| {
            // SAFETY: the word is in bounds (asserted) and aligned, as the base is (REGION_ALIGN);
            // its bytes are initialised and live as long as self (Region). What Words name is
            // accessed as atomics only, what Bytes name is never written, so that nobody writes
            // it otherwise than as an atomic.
            let word = unsafe { MachineU64::from_ptr(base.add(at).as_ptr()) };
            word.load(Ordering::Relaxed)
        };
        let mut copy = vec![0; bytes];
        for (at, to) in copy.chunks_exact_mut(8).enumerate() {
            to.copy_from_slice(&word(at).to_le_bytes());
        }
        copy
    }

    /// The bytes as values side by side.
    pub(crate) fn values<T: Plain>(&self, area: Bytes) -> &[T] {
        assert!(
            area.offset + area.bytes <= self.plan.arena_bytes,
            "an area of the plan"
        );
        let len = area.bytes / size_of::<T>();
        // SAFETY: the area is in bounds (asserted) and 64-aligned (FrozenPlan), more than any
        // Plain type asks for; its bytes are initialised, live as long as self (Region) and
        // never change (Bytes); any bit pattern is a value (Plain).
        unsafe { slice::from_raw_parts(self.base.add(area.offset).cast().as_ptr(), len) }
    }

    /// Codes packed in an area.
    pub(crate) fn packed(&self, area: Bytes, width: u32) -> Packed<'_> {
        fn of<L: Lane>(arena: &FrozenArena, area: Bytes) -> &[L] {
            arena.values(area)
        }
        let lanes = match width {
            0 => Lanes::None,
            1..=8 => Lanes::U8(of(self, area)),
            9..=16 => Lanes::U16(of(self, area)),
            17..=32 => Lanes::U32(of(self, area)),
            _ => Lanes::U64(of(self, area)),
        };
        Packed::new(width, lanes)
    }

    /// The slots at an offset of each tuple.
    pub(crate) fn slots<T: Plain>(
        &self,
        tuples: Bytes,
        stride: usize,
        offset: usize,
    ) -> Slots<'_, T> {
        let bytes = self.bytes(tuples);
        let rows = self.plan.rows as usize;
        assert!(
            offset + size_of::<T>() <= stride && rows * stride <= bytes.len(),
            "slots within tuples within the area"
        );
        // SAFETY: `rows` tuples of `stride` bytes are within the slice, and the slot within the
        // tuple (both asserted); the bytes never change and live as long as the slice.
        unsafe { Slots::over(bytes.as_ptr().add(offset), stride, rows, PhantomData) }
    }
}

/// Writes parts to a region that nobody reads yet.
///
/// # Panics
/// When a part is longer than its area, or the area beyond the region.
pub(crate) fn write(region: &mut Box<dyn Region>, parts: &[(usize, usize, Vec<u8>)]) {
    for (offset, bytes, content) in parts {
        assert!(
            content.len() <= *bytes && offset + bytes <= region.bytes(),
            "a part fits its area of the region"
        );
        // SAFETY: the target is within the region (asserted), writable, and the caller's alone
        // (&mut Box of what owns it); `content` is a vector elsewhere.
        unsafe {
            std::ptr::copy_nonoverlapping(
                content.as_ptr(),
                region.base().as_ptr().add(*offset),
                content.len(),
            );
        }
    }
}
