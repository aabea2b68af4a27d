//! Arenas from the operating system: anonymous private mappings.
//!
//! A mapping is zeroed, costs no memory until it is touched, and is given back as a whole when it
//! is dropped, at the speed of `munmap`. A mapping of the size of a full arena is aligned to its
//! size, so that it consists of whole huge pages.

use std::{
    fs, io,
    ops::Range,
    ptr::NonNull,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use aerostat_segment::{ARENA_BYTES_MAX, REGION_ALIGN, Region};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use thiserror::Error;

use crate::page_bytes;

/// What the operating system refused.
#[derive(Debug, Error)]
pub enum MemoryError {
    /// To map memory.
    #[error("the operating system gives no {bytes} bytes of memory")]
    Map {
        /// Bytes asked for.
        bytes: usize,
        /// Its reason.
        #[source]
        source: io::Error,
    },
    /// To map any more memory, whatever its size, without leaving the heap and the stacks of
    /// threads nothing.
    #[error("the process has {mappings} mappings of memory, and the system allows {mappings_max}")]
    TooManyMappings {
        /// As many as it has.
        mappings: usize,
        /// As many as it may have.
        mappings_max: usize,
    },
    /// To use huge pages.
    #[error("the operating system gives no huge pages")]
    Advise {
        /// Its reason.
        #[source]
        source: io::Error,
    },
}

/// A huge page, on x86-64 and on ARM with pages of 4 KiB.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Where arenas come from.
#[derive(Clone, Copy, Debug)]
pub struct ArenaSource;

impl ArenaSource {
    /// Maps `bytes` bytes, rounded up to whole pages; zeroed, and aligned to their size when
    /// that is [`ARENA_BYTES_MAX`]. The caller has reserved them from a budget.
    ///
    /// # Errors
    /// [`MemoryError::Map`] when the operating system refuses,
    /// [`MemoryError::TooManyMappings`] before it does because there are so many.
    pub fn allocate(bytes: usize) -> Result<Mapping, MemoryError> {
        Self::map(bytes, page_bytes())
    }

    /// As [`ArenaSource::allocate`], for what has its first `filled` bytes written at once and
    /// kept: these are on huge pages, as many as are whole. Scans find their next page without
    /// looking it up, and no more memory is used.
    ///
    /// # Errors
    /// As [`ArenaSource::allocate`].
    pub fn allocate_filled(bytes: usize, filled: usize) -> Result<Mapping, MemoryError> {
        let huge = filled.min(bytes) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        if huge == 0 {
            return Self::allocate(bytes);
        }
        let mut mapping = Self::map(bytes, HUGE_PAGE_BYTES)?;
        // A rest that is no whole huge page stays on small ones in any case. Advised as the
        // pages before it are, it is no mapping of its own to the kernel, which counts them.
        let is_rest_small = mapping.bytes - huge < HUGE_PAGE_BYTES;
        let advised = if is_rest_small { mapping.bytes } else { huge };
        // Where there are none small ones do.
        let _ = mapping.advise_huge(0..advised);
        mapping.huge = advised;
        mapping.is_huge.store(true, Ordering::Relaxed);
        Ok(mapping)
    }

    fn map(bytes: usize, align_min: usize) -> Result<Mapping, MemoryError> {
        let refused = |source: io::Error| MemoryError::Map { bytes, source };
        let rounded = bytes
            .max(1)
            .checked_next_multiple_of(page_bytes())
            .filter(|&rounded| rounded <= isize::MAX as usize / 2)
            .ok_or_else(|| refused(io::ErrorKind::OutOfMemory.into()))?;
        Census::of_process().admit(mappings_of_process)?;
        let align = if rounded == ARENA_BYTES_MAX {
            ARENA_BYTES_MAX
        } else {
            align_min.max(page_bytes())
        };
        let mapping = Mapping::aligned(rounded, align).map_err(refused)?;
        // Where the system gives huge pages unasked, a first touch would cost 2 MiB and an
        // untouched area would not be free. Refused where there are no huge pages: fine too.
        let _ = mapping.advise(0..rounded, Advice::LinuxNoHugepage);
        Ok(mapping)
    }
}

/// How many mappings the process has, so that arenas never take the last ones: the process
/// ends where the heap gets none, while a statement that gets no arena only fails.
struct Census {
    mappings_max: usize,
    /// As many as were counted last, and all arenas since. Neighbours may be one mapping, and
    /// some are gone: it is counted again before anybody is refused.
    mappings: AtomicUsize,
}

/// The part of all mappings that is left to others, as a divisor. With the usual 65,530 these
/// are 8,191: a mapping of the heap has 32 MiB or more, a thread takes two.
const OTHERS_SHARE: usize = 8;

impl Census {
    fn of_process() -> &'static Census {
        static PROCESS: OnceLock<Census> = OnceLock::new();
        PROCESS.get_or_init(|| {
            let text = fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
            // Unknown where the system is another: then it refuses by itself.
            Census::allowing(text.trim().parse().unwrap_or(usize::MAX))
        })
    }

    fn allowing(mappings_max: usize) -> Census {
        Census {
            mappings_max,
            mappings: AtomicUsize::new(0),
        }
    }

    /// One more, if there is one left; `count` counts those there are.
    fn admit(&self, count: impl FnOnce() -> usize) -> Result<(), MemoryError> {
        let arenas_max = self.mappings_max - self.mappings_max / OTHERS_SHARE;
        if self.mappings.fetch_add(1, Ordering::Relaxed) < arenas_max {
            return Ok(());
        }
        let mappings = count();
        self.mappings.store(mappings + 1, Ordering::Relaxed);
        if mappings < arenas_max {
            return Ok(());
        }
        Err(MemoryError::TooManyMappings {
            mappings,
            mappings_max: self.mappings_max,
        })
    }
}

/// Takes about a millisecond for each two thousand.
fn mappings_of_process() -> usize {
    let maps = fs::read("/proc/self/maps").unwrap_or_default();
    maps.iter().filter(|byte| **byte == b'\n').count()
}

/// A mapping; unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    bytes: usize,
    /// See [`give_up_lines`].
    gives_lines: bool,
    /// Bytes that are on huge pages as long as all are in use.
    huge: usize,
    /// Whether they are now.
    is_huge: AtomicBool,
}

/// Whether mappings from now on give up lines.
static GIVES_LINES: AtomicBool = AtomicBool::new(false);

/// What stands in lines that were given up: whoever reads them is found out.
const GIVEN_UP: u8 = 0xDB;

/// For tests: mappings from now on give up cache lines as if they were pages, so that small segments are
/// evicted, too. That frees nothing, and overwrites them.
pub fn give_up_lines() {
    GIVES_LINES.store(true, Ordering::Relaxed);
}

impl Mapping {
    fn aligned(bytes: usize, align: usize) -> io::Result<Mapping> {
        // Enough to find an aligned piece inside; what is before and after it is unmapped.
        let excess = align - page_bytes();
        let whole = Mapping::anywhere(bytes + excess)?;
        if excess == 0 {
            return Ok(whole);
        }
        let before = whole.base.as_ptr().align_offset(align);
        Ok(whole.trim(before, bytes))
    }

    fn anywhere(bytes: usize) -> io::Result<Mapping> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice (no FIXED)
        // touches no memory that anyone has.
        let base = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                flags,
            )
        }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Mapping {
            base,
            bytes,
            gives_lines: GIVES_LINES.load(Ordering::Relaxed),
            huge: 0,
            is_huge: AtomicBool::new(false),
        })
    }

    /// Keeps `bytes` bytes from `before` on, both multiples of the page size, and unmaps the rest.
    fn trim(self, before: usize, bytes: usize) -> Mapping {
        assert!(before + bytes <= self.bytes, "a piece of the mapping");
        let whole = std::mem::ManuallyDrop::new(self);
        // SAFETY: before ≤ whole.bytes (asserted), within one mapping.
        let base = unsafe { whole.base.add(before) };
        // SAFETY: before + bytes ≤ whole.bytes (asserted), within one mapping.
        let end = unsafe { base.add(bytes) };
        unmap(whole.base, before);
        unmap(end, whole.bytes - before - bytes);
        Mapping {
            base,
            bytes,
            gives_lines: whole.gives_lines,
            huge: 0,
            is_huge: AtomicBool::new(false),
        }
    }

    /// Asks for huge pages in a range that will be written as a whole. A hint: part of the
    /// range may stay in small pages.
    ///
    /// # Errors
    /// [`MemoryError::Advise`] when the system has no huge pages.
    ///
    /// # Panics
    /// When the range is not within the mapping.
    pub fn advise_huge(&self, range: Range<usize>) -> Result<(), MemoryError> {
        self.advise(range, Advice::LinuxHugepage)
            .map_err(|source| MemoryError::Advise { source })
    }

    /// Advice on huge pages for those that lie within a range, where not all of the mapping may have them.
    /// Given for the time of filling alone, so that the kernel keeps one record of the mapping and fills
    /// up none with pages that nobody pays for.
    fn prefer_huge(&self, range: &Range<usize>, advice: Advice) {
        if self.huge == 0 || self.is_huge.load(Ordering::Relaxed) {
            return;
        }
        let start = range.start.next_multiple_of(HUGE_PAGE_BYTES);
        let end = (range.end / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES).min(self.huge);
        if start < end {
            // Where there are none small ones do.
            let _ = self.advise(start..end, advice);
        }
    }

    fn advise(&self, range: Range<usize>, advice: Advice) -> io::Result<()> {
        assert!(
            range.start <= range.end && range.end <= self.bytes,
            "{range:?} of {} bytes",
            self.bytes
        );
        let start = range.start / page_bytes() * page_bytes();
        // SAFETY: start ≤ bytes (asserted), within the mapping.
        let first = unsafe { self.base.add(start) };
        // SAFETY: the range is within this mapping, and the advice is about page sizes: it
        // changes no contents.
        unsafe { madvise(first.as_ptr().cast(), range.end - start, advice) }?;
        Ok(())
    }
}

/// Unmaps a piece of a mapping that nobody refers to any more.
fn unmap(base: NonNull<u8>, bytes: usize) {
    if bytes > 0 {
        // SAFETY: callers own the piece, which is page-aligned and mapped as a whole, and
        // give up every reference to it.
        let result = unsafe { munmap(base.as_ptr().cast(), bytes) };
        // Where a process has as many mappings as it may have (`vm.max_map_count`), none is cut
        // out of a larger one; its memory goes back all the same.
        if result.is_err() {
            // SAFETY: as above; the pages are given up, and nobody reads what they had.
            let _ = unsafe { madvise(base.as_ptr().cast(), bytes, Advice::LinuxDontNeed) };
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        unmap(self.base, self.bytes);
    }
}

// SAFETY: the mapping belongs to this value alone; memory has no thread.
unsafe impl Send for Mapping {}
// SAFETY: a shared Mapping gives away its address, whose use needs unsafe code of its own, and
// hints on page sizes, which the kernel serialises.
unsafe impl Sync for Mapping {}

// SAFETY: base and bytes never change; the kernel maps zeroed, readable, writable, page-aligned
// bytes that stay until drop, and gives the address to nobody else.
unsafe impl Region for Mapping {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn page_bytes(&self) -> Option<usize> {
        Some(match self.gives_lines {
            true => REGION_ALIGN,
            false => page_bytes(),
        })
    }

    fn set_whole(&self, is_whole: bool) {
        if self.huge == 0 || self.is_huge.swap(is_whole, Ordering::Relaxed) == is_whole {
            return;
        }
        let advice = match is_whole {
            true => Advice::LinuxHugepage,
            false => Advice::LinuxNoHugepage,
        };
        // Where there are none small ones do.
        let _ = self.advise(0..self.huge, advice);
    }

    fn begin_fill(&self, pages: &Range<usize>) {
        if self.gives_lines {
            return;
        }
        self.prefer_huge(pages, Advice::LinuxHugepage);
        // All at once: a fault for each page costs more than to read it. Older systems fault.
        let _ = self.advise(pages.clone(), Advice::LinuxPopulateWrite);
    }

    fn end_fill(&self, pages: &Range<usize>) {
        if !self.gives_lines {
            self.prefer_huge(pages, Advice::LinuxNoHugepage);
        }
    }

    unsafe fn give_up(&self, pages: Range<usize>) {
        assert!(pages.end <= self.bytes, "pages of the mapping");
        if self.gives_lines {
            // SAFETY: the bytes are within the mapping (asserted), and nobody refers to them
            // (caller).
            unsafe {
                self.base
                    .add(pages.start)
                    .write_bytes(GIVEN_UP, pages.len())
            };
            return;
        }
        assert!(
            pages.start.is_multiple_of(page_bytes()),
            "whole pages of the mapping"
        );
        // SAFETY: the pages are within the mapping (asserted), which is private and anonymous:
        // they read as zeros from now on. Nobody refers to them (caller).
        let first = unsafe { self.base.add(pages.start) };
        // SAFETY: as above. A refusal leaves the pages as they are, which takes memory and harms
        // nobody.
        let _ = unsafe { madvise(first.as_ptr().cast(), pages.len(), Advice::LinuxDontNeed) };
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use aerostat_segment::{AttributeSpec, Keys, NewRows, Segment, SegmentSchema, ValueRef};
    use aerostat_types::{SegmentNo, SqlType, TableId};

    use super::*;

    #[test]
    fn a_full_arena_is_aligned_to_its_size() {
        let arenas: Vec<_> = (0..3)
            .map(|_| ArenaSource::allocate(ARENA_BYTES_MAX).unwrap())
            .collect();
        for arena in &arenas {
            assert_eq!(arena.bytes(), ARENA_BYTES_MAX);
            assert!(arena.base().addr().get().is_multiple_of(ARENA_BYTES_MAX));
        }
    }

    #[test]
    fn sizes_are_whole_pages() {
        assert_eq!(ArenaSource::allocate(0).unwrap().bytes(), page_bytes());
        assert_eq!(
            ArenaSource::allocate(page_bytes() + 1).unwrap().bytes(),
            2 * page_bytes()
        );
        assert!(matches!(
            ArenaSource::allocate(usize::MAX),
            Err(MemoryError::Map { .. })
        ));
        assert!(matches!(
            ArenaSource::allocate(1 << 60),
            Err(MemoryError::Map { .. })
        ));
    }

    #[test]
    fn what_is_filled_begins_on_a_huge_page() {
        for (bytes, filled) in [(5 << 20, (3 << 20) + 5), (5 << 20, 5 << 20), (100, 100)] {
            let arena = ArenaSource::allocate_filled(bytes, filled).unwrap();
            assert_eq!(arena.bytes(), bytes.next_multiple_of(page_bytes()));
            let is_aligned = arena.base().addr().get().is_multiple_of(HUGE_PAGE_BYTES);
            assert!(is_aligned || filled < HUGE_PAGE_BYTES);
            // SAFETY: the arena's bytes are this test's.
            unsafe { arena.base().write_bytes(7, bytes) };
        }
    }

    /// On its own: others map memory meanwhile.
    #[test]
    fn what_is_filled_is_one_mapping() {
        const ARENAS: usize = 2_000;
        let before = mappings_of_process();
        let bytes = (3 << 20) + 5 * page_bytes();
        let arenas: Vec<_> = (0..ARENAS)
            .map(|_| ArenaSource::allocate_filled(bytes, bytes - 100).unwrap())
            .collect();
        let after = mappings_of_process();
        assert!(after < before + ARENAS + ARENAS / 4, "{before}, {after}");
        drop(arenas);
    }

    #[test]
    fn arenas_leave_mappings_to_others() {
        let census = Census::allowing(80);
        (0..70).for_each(|_| census.admit(|| panic!("counted too early")).unwrap());
        // Some have gone since.
        census.admit(|| 60).unwrap();
        (0..9).for_each(|_| census.admit(|| panic!("counted too early")).unwrap());
        for _ in 0..3 {
            let refused = census.admit(|| 75).unwrap_err();
            assert!(matches!(
                refused,
                MemoryError::TooManyMappings {
                    mappings: 75,
                    mappings_max: 80
                }
            ));
        }
        census.admit(|| 69).unwrap();
        let without = Census::allowing(usize::MAX);
        without.admit(|| panic!("there is no limit")).unwrap();
    }

    #[test]
    fn huge_pages_are_a_hint() {
        let arena = ArenaSource::allocate(4 << 20).unwrap();
        match arena.advise_huge(4096..4 << 20) {
            Ok(()) => {}
            Err(error) => eprintln!("skipped: {error}, no transparent huge pages here"),
        }
    }

    /// How many of a mapping's bytes the kernel has in memory.
    fn resident_bytes(mapping: &Mapping) -> io::Result<usize> {
        use std::io::{Read, Seek, SeekFrom};
        const PRESENT: u64 = 1 << 63;
        let mut entries = vec![0; mapping.bytes / page_bytes() * 8];
        let mut pagemap = fs::File::open("/proc/self/pagemap")?;
        let first = mapping.base.addr().get() / page_bytes();
        pagemap.seek(SeekFrom::Start(first as u64 * 8))?;
        pagemap.read_exact(&mut entries)?;
        let (entries, _) = entries.as_chunks::<8>();
        let present = |entry: &&[u8; 8]| u64::from_ne_bytes(**entry) & PRESENT != 0;
        Ok(entries.iter().filter(present).count() * page_bytes())
    }

    #[test]
    fn what_is_filled_again_takes_no_page_beside_it() {
        const MIB: usize = 1 << 20;
        let mapping = ArenaSource::allocate_filled(16 * MIB, 16 * MIB).unwrap();
        // SAFETY: the mapping's bytes are this test's.
        unsafe { mapping.base().write_bytes(1, 16 * MIB) };
        mapping.set_whole(false);
        // SAFETY: as above.
        unsafe { mapping.give_up(0..12 * MIB) };
        let here = || resident_bytes(&mapping).unwrap();
        assert_eq!(here(), 4 * MIB);
        let pages = 3 * MIB + 4 * page_bytes()..11 * MIB;
        mapping.begin_fill(&pages);
        // SAFETY: as above.
        let filled = unsafe { mapping.base().add(pages.start) };
        // SAFETY: as above.
        unsafe { filled.write_bytes(2, pages.len()) };
        mapping.end_fill(&pages);
        assert_eq!(here(), 4 * MIB + pages.len());
        // SAFETY: as above.
        let bytes = unsafe { std::slice::from_raw_parts(mapping.base().as_ptr(), 16 * MIB) };
        assert!(bytes[pages.clone()].iter().all(|byte| *byte == 2));
        assert!(bytes[12 * MIB..].iter().all(|byte| *byte == 1));
        // SAFETY: as above.
        unsafe { mapping.give_up(pages) };
        assert_eq!(here(), 4 * MIB);
    }

    /// What a segment says that it uses is what the kernel says of its arena.
    #[test]
    fn a_footprint_is_what_the_kernel_counts() {
        const ARENA_BYTES: usize = 4 << 20;
        let attribute = |ty| AttributeSpec {
            ty,
            nullable: false,
        };
        let attributes = vec![attribute(SqlType::Integer), attribute(SqlType::Text)];
        let schema = Arc::new(SegmentSchema::new(attributes, vec![vec![0, 1]], vec![0]).unwrap());
        let mapping = ArenaSource::allocate(ARENA_BYTES).unwrap();
        // The same memory, looked at while the segment owns it.
        let looked_at = std::mem::ManuallyDrop::new(Mapping {
            base: mapping.base,
            bytes: mapping.bytes,
            gives_lines: false,
            huge: 0,
            is_huge: AtomicBool::new(false),
        });
        if let Err(error) = resident_bytes(&looked_at) {
            eprintln!("skipped: footprints beside the kernel's count (pagemap: {error})");
            return;
        }
        let region = Box::new(mapping);
        let segment = Segment::create(region, Arc::clone(&schema), TableId(1), SegmentNo(0), 40);
        let segment = segment.unwrap();
        let mut key = 0;
        for rows in [1, 10, 1_000, 10_000, 20_000] {
            while key < rows {
                let text = format!("a text that is too long for its slot: {key}");
                let row = [ValueRef::I32(key), ValueRef::Bytes(text.as_bytes())];
                let keys = Keys::encode(&schema, NewRows::Row(&row)).unwrap();
                let row = NewRows::Row(&row);
                let appended = segment.writer().append(row, 0..1, &keys, 7).unwrap();
                assert_eq!(appended.count, 1);
                key += 1;
            }
            let (said, counted) = (
                segment.footprint_bytes() as usize,
                resident_bytes(&looked_at).unwrap(),
            );
            // Index cells scatter: with few rows some pages of them are counted before they are used.
            let most = counted + counted / 20 + 16 * page_bytes();
            assert!(
                (counted..=most).contains(&said),
                "{rows} rows: {said} bytes said, {counted} counted"
            );
        }
    }

    #[test]
    fn a_segment_lives_in_a_mapping() {
        let attributes = vec![AttributeSpec {
            ty: SqlType::Integer,
            nullable: false,
        }];
        let schema = Arc::new(SegmentSchema::new(attributes, vec![vec![0]], vec![0]).unwrap());
        let region = Box::new(ArenaSource::allocate(ARENA_BYTES_MAX).unwrap());
        let segment = Segment::create(region, schema, TableId(1), SegmentNo(0), 0).unwrap();
        assert!(segment.capacity() > 1_000_000);
        assert!(
            segment.footprint_bytes() <= 8192,
            "an empty segment has touched its header only"
        );
    }
}
