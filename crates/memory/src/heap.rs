//! The process's heap, which is mimalloc's.

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

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::page_bytes;

    const BLOCK_BYTES: usize = 64 << 10;

    /// Pages of this process that are in memory.
    fn resident_bytes() -> usize {
        let text = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: usize = text.split(' ').nth(1).unwrap().parse().unwrap();
        pages * page_bytes()
    }

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
