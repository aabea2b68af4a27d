//! The process's heap, which is mimalloc's.

use std::{
    cell::Cell,
    io,
    sync::{
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Duration,
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

/// Gives everything back to the system that is free, however short a time ago it was freed.
///
/// Takes a few hundred milliseconds for a gigabyte, while others allocate.
pub fn purge_heap() {
    // SAFETY: as in `trim_heap`.
    unsafe { libmimalloc_sys::mi_collect(true) };
}

/// From now on freed memory goes back to the system by [`purge_heap`] alone.
///
/// By itself the allocator gives back after a second whatever is free, on the thread that happens to
/// allocate next: on one that serves connections, these wait for it.
pub fn leave_purging_to_others() {
    /// `mi_option_purge_delay`, which the bindings do not name: the place in `mi_option_e` of mimalloc 2 and 3.
    const PURGE_DELAY: libmimalloc_sys::mi_option_t = 15;
    /// In milliseconds. Without a delay, or with a negative one, nothing would note what may go back.
    const NEVER_MS: std::ffi::c_long = 24 * 60 * 60 * 1_000;
    // SAFETY: the option exists, and may be set by any thread at any time.
    unsafe { libmimalloc_sys::mi_option_set(PURGE_DELAY, NEVER_MS) };
}

/// Bytes that a process may take from the system in a millisecond: two threads that write new memory
/// take 1 to 2 GB a second.
const TAKEN_BYTES_PER_MS: u64 = 2 << 20;

/// How often the size is looked at. Reading it takes some 10 microseconds.
const LOOK_MS_MIN: u64 = 10;
const LOOK_MS_MAX: u64 = 250;

/// By how much of its limit a process may grow that is beyond it already, until what is free is given
/// back again. What it has then is mostly not free.
const GROWTH_PARTS: u64 = 64;

/// A thread that gives freed memory back before its time while the process is too large.
///
/// The allocator keeps what was freed for whoever allocates next. Where one statement after the other
/// takes much and gives it back, on other threads, that adds up.
#[derive(Debug)]
pub struct HeapKeeper {
    /// Dropped, it ends the thread.
    _ends: mpsc::Sender<()>,
}

impl HeapKeeper {
    /// Keeps the process below so many bytes, as far as they are free.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(limit: impl Fn() -> u64 + Send + 'static) -> io::Result<Self> {
        let (ends, ended) = mpsc::channel();
        let keep = move || {
            let mut kept = 0;
            loop {
                let (size, limit) = (resident_bytes(), limit());
                if purges(size, limit, kept) {
                    ASKED.fetch_add(1, Ordering::Relaxed);
                    purge_heap();
                    kept = resident_bytes();
                } else if size < limit {
                    kept = 0;
                }
                let pause = Duration::from_millis(pause_ms(size, limit));
                if ended.recv_timeout(pause) != Err(mpsc::RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("aerostat-heap".to_owned());
        thread.spawn(keep)?;
        Ok(Self { _ends: ends })
    }
}

/// Whether to give back what is free, of a process of this size that had so many bytes when that was
/// done last.
fn purges(size: u64, limit: u64, kept: u64) -> bool {
    size > limit && size > kept + limit / GROWTH_PARTS
}

/// How long a process of this size stays below its limit at least.
fn pause_ms(size: u64, limit: u64) -> u64 {
    let room = limit.saturating_sub(size);
    (room / TAKEN_BYTES_PER_MS).clamp(LOOK_MS_MIN, LOOK_MS_MAX)
}

/// How often all threads were asked to give back what they keep. There is one heap in a process.
static ASKED: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// How often this thread has done so.
    static DONE: Cell<u64> = const { Cell::new(0) };
}

/// Whether somebody has asked since the calling thread gave back last. Costs a load.
fn is_asked() -> bool {
    let asked = ASKED.load(Ordering::Relaxed);
    DONE.replace(asked) != asked
}

/// Gives back what the calling thread keeps, if a [`HeapKeeper`] has asked: what other threads have
/// freed of a thread's memory it alone can give back.
pub fn trim_heap_if_asked() {
    if is_asked() {
        purge_heap();
    }
}

/// The same for a thread on which others wait: it gives up what it keeps, and leaves it to the
/// keeper to give that back to the system.
pub fn release_heap_if_asked() {
    if is_asked() {
        trim_heap();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

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

    #[test]
    fn the_process_is_looked_at_before_it_can_be_too_large() {
        const GB: u64 = 1 << 30;
        assert_eq!(pause_ms(0, 4 * GB), LOOK_MS_MAX);
        assert_eq!(pause_ms(4 * GB - (50 << 20), 4 * GB), 25);
        assert_eq!(pause_ms(5 * GB, 4 * GB), LOOK_MS_MIN);
        assert!(!purges(GB, GB, 0));
        assert!(purges(GB + 1, GB, 0));
        // What was not free then is not given back by asking again.
        assert!(!purges(2 * GB + 1, GB, 2 * GB));
        assert!(purges(2 * GB + GB / 32, GB, 2 * GB));
    }

    #[test]
    fn a_keeper_ends_with_its_owner() {
        let (asked, asks) = mpsc::channel();
        let limit = move || {
            let _ = asked.send(());
            u64::MAX
        };
        let keeper = HeapKeeper::start(limit).unwrap();
        asks.recv().unwrap();
        drop(keeper);
        // The channel closes with the thread.
        while asks.recv().is_ok() {}
    }
}
