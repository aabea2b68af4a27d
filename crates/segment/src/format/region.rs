//! The memory a segment lives in, behind a trait, so that this crate knows no
//! operating system: `aerostat-memory` implements it with mappings, and
//! [`HeapRegion`] with the allocator for tests and Miri.

use std::{
    alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error},
    ops::Range,
    ptr::NonNull,
};

/// Alignment of a region, and of every area in it: a cache line, and the
/// alignment Arrow recommends for buffers.
pub const REGION_ALIGN: usize = 64;

/// What a [`HeapRegion`] calls a page: so small that all but the smallest segments have some.
const HEAP_PAGE_BYTES: usize = REGION_ALIGN;

/// A piece of memory for one segment.
///
/// # Safety
/// From its creation to its drop, an implementation guarantees that `base()`
/// always returns the same address, aligned to [`REGION_ALIGN`]; that
/// `bytes()` always returns the same number; that these bytes are one
/// allocation, initialised, readable and writable; and that nothing but the
/// owner of the value reads or writes them.
pub unsafe trait Region: Send + Sync + 'static {
    /// The first byte.
    fn base(&self) -> NonNull<u8>;
    /// Length in bytes.
    fn bytes(&self) -> usize;

    /// The size of the pages that can be given up one by one, a power of two; `None` where memory
    /// comes back only as a whole.
    fn page_bytes(&self) -> Option<usize> {
        None
    }

    /// Says whether the pages that can be given up are all in use, or about to be: else the system is
    /// not to give large ones in the place of some small ones, which would take more memory than is
    /// accounted for. They are in a new region.
    fn set_whole(&self, _is_whole: bool) {}

    /// Has pages that were given up in memory, since all of them are about to be written; a hint, which
    /// changes no byte that anybody refers to. [`Region::end_fill`] follows.
    fn begin_fill(&self, _pages: &Range<usize>) {}

    /// Says that they have been written, or given up again.
    fn end_fill(&self, _pages: &Range<usize>) {}

    /// Gives whole pages up, so that they take no memory until they are written again. Until then
    /// their bytes are any.
    ///
    /// # Safety
    /// The range is within the region and of whole pages, and nobody reads or writes it, or
    /// refers to it, during the call.
    unsafe fn give_up(&self, _pages: Range<usize>) {}
}

/// A zeroed region from the global allocator.
#[derive(Debug)]
pub struct HeapRegion {
    base: NonNull<u8>,
    layout: Layout,
}

impl HeapRegion {
    /// What stands in pages that were given up: whoever reads them is found out.
    pub(crate) const GIVEN_UP: u8 = 0xDB;

    /// A zeroed region of `bytes` bytes, at least one.
    pub fn new(bytes: usize) -> HeapRegion {
        let layout = Layout::from_size_align(bytes.max(1), REGION_ALIGN)
            .expect("a region is far smaller than the address space");
        // SAFETY: the layout's size is not zero.
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else {
            handle_alloc_error(layout)
        };
        HeapRegion { base, layout }
    }

    /// A region that starts with these bytes, as read from a file or a wire.
    pub fn copy_of(bytes: &[u8]) -> HeapRegion {
        let mut region = HeapRegion::new(bytes.len());
        region.as_mut_slice()[..bytes.len()].copy_from_slice(bytes);
        region
    }

    /// The bytes, while no segment owns the region.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: base points to layout.size() initialised bytes that this value
        // owns, and the exclusive borrow lasts as long as the slice.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.layout.size()) }
    }
}

impl Drop for HeapRegion {
    fn drop(&mut self) {
        // SAFETY: base came from alloc_zeroed with this layout and is freed only here.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

// SAFETY: HeapRegion owns its allocation, as a Box<[u8]> does; the pointer is not shared.
unsafe impl Send for HeapRegion {}
// SAFETY: a shared HeapRegion only gives away the address; access needs unsafe code of its own.
unsafe impl Sync for HeapRegion {}

// SAFETY: base and layout never change; alloc_zeroed gave layout.size() initialised
// bytes aligned to REGION_ALIGN; only this value knows the address.
unsafe impl Region for HeapRegion {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn bytes(&self) -> usize {
        self.layout.size()
    }

    /// None are, in truth; so that tests run what a mapping does.
    fn page_bytes(&self) -> Option<usize> {
        Some(HEAP_PAGE_BYTES)
    }

    unsafe fn give_up(&self, pages: Range<usize>) {
        assert!(pages.end <= self.layout.size(), "pages of the region");
        // SAFETY: the pages are within the allocation (asserted), and nobody refers to them
        // (caller).
        unsafe {
            self.base
                .add(pages.start)
                .write_bytes(Self::GIVEN_UP, pages.len())
        }
    }
}
