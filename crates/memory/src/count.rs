//! What a thread, and the process, has taken from the heap, counted by the allocator itself.
//!
//! A program installs [`Counted`] around its allocator. The count is per thread, so it costs an
//! addition without contention. The code that runs work on threads knows on whose behalf they
//! allocate. Memory that another thread frees is subtracted from that thread's count, which may
//! become negative. Each thread adds its count to the process's count when it has changed by a
//! step.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};

/// By how much a thread's count may differ from what the process's count has of it.
const STEP_BYTES: u64 = 64 << 10;

/// Bytes of all threads, as they have been told.
static TOLD_BY_ALL: AtomicI64 = AtomicI64::new(0);

/// What a thread has counted.
struct Counts {
    net: Cell<i64>,
    /// What the process's count has of it.
    told: Cell<i64>,
}

thread_local! {
    /// Without a destructor, so that it may be used as long as the thread allocates.
    static COUNTS: Counts = const {
        Counts {
            net: Cell::new(0),
            told: Cell::new(0),
        }
    };
    static LAST: Last = const { Last };
}

/// Tells the rest when its thread ends.
struct Last;

impl Drop for Last {
    fn drop(&mut self) {
        COUNTS.with(tell);
    }
}

/// Bytes that the process has of its heap, to some 64 KiB for each thread; 0 for ever where [`Counted`]
/// is not the program's allocator.
pub fn heap_bytes() -> u64 {
    u64::try_from(TOLD_BY_ALL.load(Ordering::Relaxed)).unwrap_or(0)
}

fn tell(counts: &Counts) {
    let net = counts.net.get();
    let more = net.wrapping_sub(counts.told.replace(net));
    TOLD_BY_ALL.fetch_add(more, Ordering::Relaxed);
}

#[cold]
fn tell_step(counts: &Counts) {
    tell(counts);
    // The system's allocator keeps the list of destructors. A thread that has run them tells steps alone.
    let _ = LAST.try_with(|_| ());
}

/// Counts. Of this crate, whose code is optimised in every profile, and not of the program's, where the
/// allocator is instantiated.
fn change(bytes: i64) {
    COUNTS.with(|counts| {
        let net = counts.net.get().wrapping_add(bytes);
        counts.net.set(net);
        if net.wrapping_sub(counts.told.get()).unsigned_abs() >= STEP_BYTES {
            tell_step(counts);
        }
    });
}

/// Bytes that this thread has allocated, less those it has freed, as layouts have them; 0 for ever
/// where [`Counted`] is not the program's allocator.
pub fn thread_heap_bytes() -> i64 {
    COUNTS.with(|counts| counts.net.get())
}

/// An allocator that counts what each thread takes from it.
#[derive(Debug, Default)]
pub struct Counted<A>(pub A);

/// As a number that may be taken off. Layouts have at most `isize::MAX` bytes.
#[inline(always)]
fn signed(bytes: usize) -> i64 {
    bytes as i64
}

// SAFETY: every call is passed on to an allocator with the same arguments, and its answer is given
// back as it is, so what it promises holds. Counting touches a thread-local number alone: it
// neither allocates nor unwinds.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counted<A> {
    #[inline(always)]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's obligations are those of the inner allocator.
        let block = unsafe { self.0.alloc(layout) };
        if !block.is_null() {
            change(signed(layout.size()));
        }
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's obligations are those of the inner allocator.
        let block = unsafe { self.0.alloc_zeroed(layout) };
        if !block.is_null() {
            change(signed(layout.size()));
        }
        block
    }

    #[inline(always)]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        change(-signed(layout.size()));
        // SAFETY: the caller's obligations are those of the inner allocator, which has made the block.
        unsafe { self.0.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller's obligations are those of the inner allocator, which has made the block.
        let moved = unsafe { self.0.realloc(block, layout, bytes) };
        if !moved.is_null() {
            change(signed(bytes) - signed(layout.size()));
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::System;

    use super::*;

    #[test]
    fn the_process_knows_what_all_threads_have() {
        let heap = Counted(System);
        let layout = Layout::from_size_align(10 << 20, 8).unwrap();
        // Other tests of this process allocate little through a counting allocator.
        let about = |bytes: u64, expected: u64| bytes.abs_diff(expected) < 4 * STEP_BYTES;
        // SAFETY: the block is of this allocator, has this layout, and is freed once.
        unsafe {
            let block = std::thread::scope(|scope| {
                let made = scope.spawn(|| heap.alloc(layout) as usize);
                made.join().unwrap()
            });
            assert!(about(heap_bytes(), 10 << 20), "{}", heap_bytes());
            heap.dealloc(block as *mut u8, layout);
        }
        assert!(about(heap_bytes(), 0), "{}", heap_bytes());
        // What a thread has not told yet it tells when it ends.
        let small = Layout::from_size_align(STEP_BYTES as usize * 3 / 2, 8).unwrap();
        let rest = Layout::from_size_align(STEP_BYTES as usize / 2, 8).unwrap();
        // SAFETY: as above.
        unsafe {
            for _ in 0..100 {
                let blocks = std::thread::scope(|scope| {
                    let made =
                        scope.spawn(|| (heap.alloc(small) as usize, heap.alloc(rest) as usize));
                    made.join().unwrap()
                });
                heap.dealloc(blocks.0 as *mut u8, small);
                heap.dealloc(blocks.1 as *mut u8, rest);
            }
        }
        assert!(about(heap_bytes(), 0), "{}", heap_bytes());
    }

    #[test]
    fn each_thread_counts_its_own() {
        let heap = Counted(System);
        let layout = Layout::from_size_align(1_000, 8).unwrap();
        let before = thread_heap_bytes();
        // SAFETY: the block is of this allocator, has these layouts, and is freed once, on another thread.
        unsafe {
            let block = heap.alloc(layout);
            assert_eq!(thread_heap_bytes() - before, 1_000);
            let block = heap.realloc(block, layout, 5_000);
            assert_eq!(thread_heap_bytes() - before, 5_000);
            let address = block as usize;
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let own = thread_heap_bytes();
                    let larger = Layout::from_size_align(5_000, 8).unwrap();
                    heap.dealloc(address as *mut u8, larger);
                    assert_eq!(thread_heap_bytes() - own, -5_000);
                });
            });
            let zeroed = heap.alloc_zeroed(layout);
            assert_eq!(thread_heap_bytes() - before, 6_000);
            heap.dealloc(zeroed, layout);
        }
        assert_eq!(thread_heap_bytes() - before, 5_000);
    }
}
