//! The process's heap, which is mimalloc's.

use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, Ordering},
    time::Instant,
};

use crate::machine::resident_bytes;

/// Gives freed memory back to the system that has not been used again for a moment.
///
/// The allocator does so only while somebody allocates: what a load has freed at its end it
/// keeps, however long the process then rests. Called from time to time this also empties
/// what the calling thread has in store. Costs a microsecond when there is nothing to do.
pub fn trim_heap() {
    // SAFETY: the function has no preconditions; it may be called by any thread at any time,
    // also where mimalloc is not the global allocator.
    unsafe { libmimalloc_sys::mi_collect(false) };
}

/// How often the process's size is asked for at most: reading it takes some microseconds.
const LOOK_INTERVAL_MS: u64 = 10;

/// Gives freed memory back before its time when the process has become too large.
///
/// The allocator keeps what was freed for about a second, for whoever allocates next. Where one
/// statement after the other takes much and gives it back, on other threads, that adds up.
#[derive(Debug)]
pub struct Relief {
    start: Instant,
    /// When the size was asked for last, in milliseconds since the start.
    looked_ms: AtomicU64,
}

impl Default for Relief {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            looked_ms: AtomicU64::new(0),
        }
    }
}

impl Relief {
    /// Gives everything that is free back to the system if the process has more than so many
    /// bytes in memory. To be called often by those who allocate much.
    pub fn keep_below(&self, bytes: u64) {
        let now = self.start.elapsed().as_millis() as u64;
        let looked = self.looked_ms.load(Ordering::Relaxed);
        let is_due = now >= looked + LOOK_INTERVAL_MS;
        // Of several threads one looks.
        let looks = is_due
            && self
                .looked_ms
                .compare_exchange(looked, now, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if looks && resident_bytes() > bytes {
            ASKED.fetch_add(1, Ordering::Relaxed);
            trim_heap_if_asked();
        }
    }
}

/// How often all threads were asked to give back what they keep. There is one heap in a process.
static ASKED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// How often this thread has done so.
    static DONE: Cell<u64> = const { Cell::new(0) };
}

/// Gives back what the calling thread keeps, if somebody has asked since it did so last: what other
/// threads have freed of a thread's memory it alone can give back. Else costs a load.
pub fn trim_heap_if_asked() {
    let asked = ASKED.load(Ordering::Relaxed);
    if DONE.replace(asked) != asked {
        // SAFETY: as in `trim_heap`.
        unsafe { libmimalloc_sys::mi_collect(true) };
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const BLOCK_BYTES: usize = 64 << 10;

    #[test]
    fn freed_memory_goes_back_while_nobody_allocates() {
        let count = (128 << 20) / BLOCK_BYTES;
        let before = resident_bytes();
        // SAFETY: each block is written within its size and freed once.
        unsafe {
            let blocks: Vec<_> = (0..count)
                .map(|_| {
                    let block = libmimalloc_sys::mi_malloc(BLOCK_BYTES);
                    block.cast::<u8>().write_bytes(1, BLOCK_BYTES);
                    block
                })
                .collect();
            assert!(resident_bytes() > before + (100 << 20));
            for block in blocks {
                libmimalloc_sys::mi_free(block);
            }
        }
        let started = Instant::now();
        while resident_bytes() > before + (32 << 20) {
            assert!(
                started.elapsed() < Duration::from_secs(60),
                "{} bytes are kept",
                resident_bytes() - before
            );
            std::thread::sleep(Duration::from_millis(100));
            trim_heap();
        }
    }
}
