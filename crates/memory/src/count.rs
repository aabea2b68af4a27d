//! What a thread has taken from the heap, counted by the allocator itself.
//!
//! A program installs [`Counted`] around its allocator. The count is per thread, so it costs an
//! addition without contention; who allocates on behalf of whom is for those to know who run work
//! on threads. Memory that another thread frees is taken off that thread's count, which may be below 0.
//!
//! What all threads have is told by each in steps of [`STEP_BYTES`].

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};

/// A thread's count at most differs by so much from what it has told the process.
const STEP_BYTES: u64 = 128 << 10;

/// What all threads have told.
static ALL: AtomicI64 = AtomicI64::new(0);

thread_local! {
    /// Without a destructor, so that it may be used as long as the thread allocates.
    static NET: Cell<i64> = const { Cell::new(0) };
    /// Of it, what was told.
    static TOLD: Cell<i64> = const { Cell::new(0) };
}

/// Bytes that the process has taken from the heap and not freed, as layouts have them, but for
/// [`STEP_BYTES`] a thread; 0 where [`Counted`] is not the program's allocator.
pub fn heap_bytes() -> u64 {
    ALL.load(Ordering::Relaxed).max(0) as u64
}

/// Bytes that this thread has allocated, less those it has freed, as layouts have them; 0 for ever
/// where [`Counted`] is not the program's allocator.
pub fn thread_heap_bytes() -> i64 {
    NET.get()
}

/// An allocator that counts what each thread takes from it.
#[derive(Debug, Default)]
pub struct Counted<A>(pub A);

fn add(bytes: usize) {
    // Layouts have at most isize::MAX bytes.
    count(NET.get().wrapping_add(bytes as i64));
}

fn take_off(bytes: usize) {
    count(NET.get().wrapping_sub(bytes as i64));
}

#[inline]
fn count(net: i64) {
    NET.set(net);
    if net.wrapping_sub(TOLD.get()).unsigned_abs() >= STEP_BYTES {
        tell(net);
    }
}

#[cold]
fn tell(net: i64) {
    let told = TOLD.replace(net);
    ALL.fetch_add(net.wrapping_sub(told), Ordering::Relaxed);
}

// SAFETY: every call is passed on to an allocator with the same arguments, and its answer is given
// back as it is, so what it promises holds. Counting touches a thread-local number alone: it
// neither allocates nor unwinds.
unsafe impl<A: GlobalAlloc> GlobalAlloc for Counted<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's obligations are those of the inner allocator.
        let block = unsafe { self.0.alloc(layout) };
        if !block.is_null() {
            add(layout.size());
        }
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's obligations are those of the inner allocator.
        let block = unsafe { self.0.alloc_zeroed(layout) };
        if !block.is_null() {
            add(layout.size());
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        take_off(layout.size());
        // SAFETY: the caller's obligations are those of the inner allocator, which has made the block.
        unsafe { self.0.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller's obligations are those of the inner allocator, which has made the block.
        let moved = unsafe { self.0.realloc(block, layout, bytes) };
        if !moved.is_null() {
            add(bytes);
            take_off(layout.size());
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use std::alloc::System;

    use super::*;

    #[test]
    fn the_process_is_told_of_what_threads_have() {
        let heap = Counted(System);
        let layout = Layout::from_size_align(100 << 20, 8).unwrap();
        let before = heap_bytes();
        // SAFETY: the block is of this allocator, has this layout, and is freed once.
        unsafe {
            let block = heap.alloc(layout);
            assert!(heap_bytes() > before + (99 << 20));
            heap.dealloc(block, layout);
        }
        assert!(heap_bytes() < before + (1 << 20));
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
