//! The process's heap, which is mimalloc's.

use std::{
    cell::Cell,
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use crate::{class::MemoryClass, count::heap_bytes, governor::Governor, machine::resident_bytes};

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
const LOOK_MS_MIN: u64 = 5;
const LOOK_MS_MAX: u64 = 250;

/// Below this part of its limit, in quarters, a process keeps what is free for whoever allocates next.
const CALM_QUARTERS: u64 = 3;

/// What may be free of a process beyond that, as a part of its limit.
const FREE_PARTS: u64 = 16;

/// What may be free at least: less is not worth a look at all of the heap.
const FREE_BYTES_MIN: u64 = 16 << 20;

/// What may be neither reserved nor free, as a part of the limit: sessions, catalogs, plans that are kept,
/// batches between operators.
const UNRESERVED_PARTS: u64 = 32;

/// The same of a node with little memory, whose statements hold as much between operators as others'. By
/// a sixteenth of the limit it is less, so that it is nothing to a node of a gigabyte.
const UNRESERVED_BYTES_SMALL: u64 = 96 << 20;

/// How long other threads take to give back what they have freed, once they are asked.
const SETTLES: Duration = Duration::from_millis(500);

/// What may be neither reserved nor free.
fn unreserved_max(limit: u64) -> u64 {
    let small = UNRESERVED_BYTES_SMALL.saturating_sub(limit / 16);
    small.max(limit / UNRESERVED_PARTS)
}

/// A thread that gives freed memory back before its time while the process is large, and tells a
/// node's budget what the process holds that nobody has reserved.
///
/// The allocator keeps what was freed for whoever allocates next. Where one statement after the other
/// takes much and gives it back, on other threads, that adds up.
///
/// ```text
///  size of the process ─┬─ what it had at its start, and a little
///                       ├─ reserved: Governor::used
///                       ├─ free: by how much it has grown beyond the heap since free memory went back
///                       └─ the rest, which nobody has reserved: Governor::set_unreserved
/// ```
#[derive(Debug)]
pub struct HeapKeeper {
    /// Dropped, it ends the thread.
    _ends: mpsc::Sender<()>,
}

impl HeapKeeper {
    /// Keeps the process about as small as the node may be.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start(governor: Arc<Governor>) -> io::Result<Self> {
        let (ends, ended) = mpsc::channel();
        let purger = Purger::start()?;
        let keep = move || {
            let mut state = State::of_start(Sizes::now(), governor.used());
            loop {
                let pause = Duration::from_millis(state.look(&governor, &purger));
                if ended.recv_timeout(pause) != Err(mpsc::RecvTimeoutError::Timeout) {
                    governor.set_unreserved(0);
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("aerostat-heap".to_owned());
        thread.spawn(keep)?;
        Ok(Self { _ends: ends })
    }
}

/// A thread that gives back what is free. That takes a few hundred milliseconds of a large process,
/// in which statements could take as many megabytes: who looks at the size must not wait for it.
#[derive(Debug)]
struct Purger {
    /// Dropped, it ends the thread.
    asks: mpsc::Sender<()>,
    is_busy: Arc<AtomicBool>,
}

impl Purger {
    fn start() -> io::Result<Self> {
        let (asks, asked) = mpsc::channel();
        let is_busy = Arc::new(AtomicBool::new(false));
        let busy = Arc::clone(&is_busy);
        let purge = move || {
            while asked.recv().is_ok() {
                purge_heap();
                busy.store(false, Ordering::Release);
            }
        };
        let thread = thread::Builder::new().name("aerostat-purge".to_owned());
        thread.spawn(purge)?;
        Ok(Self { asks, is_busy })
    }

    fn begin(&self) {
        self.is_busy.store(true, Ordering::Release);
        // It lives as long as this does.
        let _ = self.asks.send(());
    }

    fn is_busy(&self) -> bool {
        self.is_busy.load(Ordering::Acquire)
    }
}

/// What a process has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    /// In memory.
    resident: u64,
    /// Of its heap, as far as it counts that.
    heap: u64,
}

impl Sizes {
    fn now() -> Self {
        Self {
            resident: resident_bytes(),
            heap: heap_bytes(),
        }
    }

    /// What of it is free, if all that was kept was in use: it has grown by that beyond its heap.
    fn free_since(self, kept: Self) -> u64 {
        let used = (kept.resident + self.heap).saturating_sub(kept.heap);
        self.resident.saturating_sub(used)
    }
}

/// What a keeper knows.
struct State {
    /// What the process had at its start that was not reserved: its code, and what a program has that
    /// embeds the engine.
    base: u64,
    /// What it had when what is free was given back last.
    kept: Sizes,
    /// Whether it is being given back.
    purges: bool,
    /// Until when what came of that is not known: other threads give back what is theirs on their own.
    settles_until: Option<Instant>,
    /// What was known last, before that began.
    known: Known,
}

/// What is known of memory that nobody has reserved, and what it was computed from.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    unreserved: u64,
    heap: u64,
    /// Of the heap.
    reserved: u64,
}

impl State {
    fn of_start(sizes: Sizes, reserved: u64) -> Self {
        Self {
            base: sizes.resident.saturating_sub(reserved),
            kept: sizes,
            purges: false,
            settles_until: None,
            known: Known {
                unreserved: 0,
                heap: sizes.heap,
                reserved,
            },
        }
    }

    /// Looks once, and says in how many milliseconds to look again.
    fn look(&mut self, governor: &Governor, purger: &Purger) -> u64 {
        governor.approach();
        // What is free goes back as if the target was reached.
        let (sizes, limit) = (Sizes::now(), governor.target());
        if self.purges && !purger.is_busy() {
            self.purges = false;
            self.kept = sizes;
            self.settles_until = Some(Instant::now() + SETTLES);
        }
        let settles = self
            .settles_until
            .is_some_and(|until| Instant::now() < until);
        if !self.purges && self.must_purge(sizes, limit) {
            self.purges = true;
            ASKED.fetch_add(1, Ordering::Relaxed);
            purger.begin();
        }
        let (reserved, of_heap) = (governor.used(), reserved_of_heap(governor));
        let unreserved = match self.purges || settles {
            true => self.unreserved_meanwhile(sizes, (reserved, of_heap), limit),
            false => {
                let unreserved = self.unreserved(sizes, reserved, limit);
                self.known = Known {
                    unreserved,
                    heap: sizes.heap,
                    reserved: of_heap,
                };
                unreserved
            }
        };
        governor.set_unreserved(unreserved);
        pause_ms(sizes.resident, limit)
    }

    /// Whether to give back what is free.
    fn must_purge(&mut self, sizes: Sizes, limit: u64) -> bool {
        if sizes.resident < self.base + limit / 4 * CALM_QUARTERS {
            // Upkeep may have given back meanwhile.
            if sizes.resident < self.kept.resident {
                self.kept = sizes;
            }
            return false;
        }
        sizes.free_since(self.kept) > (limit / FREE_PARTS).max(FREE_BYTES_MIN)
    }

    /// The same while what is free goes back to the system. How much that is will be known in the end; before,
    /// what counts is what was known, and what the heap has grown by beyond what was reserved since.
    fn unreserved_meanwhile(
        &self,
        sizes: Sizes,
        (reserved, of_heap): (u64, u64),
        limit: u64,
    ) -> u64 {
        let known = self.known;
        let grown = sizes.heap.saturating_sub(known.heap);
        let grown = grown.saturating_sub(of_heap.saturating_sub(known.reserved));
        let most = known.unreserved.saturating_add(grown);
        self.unreserved(sizes, reserved, limit).min(most)
    }

    /// What nobody has reserved of a process of which so much is.
    fn unreserved(&self, sizes: Sizes, reserved: u64, limit: u64) -> u64 {
        // Without a count nobody can tell a statement's memory from an embedding program's.
        if sizes.heap == 0 {
            return 0;
        }
        let held = sizes.resident - sizes.free_since(self.kept);
        held.saturating_sub(self.base + reserved + unreserved_max(limit))
    }
}

/// What is reserved of the heap: arenas are mappings of their own.
fn reserved_of_heap(governor: &Governor) -> u64 {
    let root = governor.root();
    let arenas = [MemoryClass::Hot, MemoryClass::Frozen].map(|class| root.used_for(class));
    root.used().saturating_sub(arenas.iter().sum())
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
            thread::sleep(Duration::from_millis(100));
            trim_heap();
        }
    }

    const MIB: u64 = 1 << 20;
    const LIMIT: u64 = 1_024 * MIB;

    fn sizes(resident: u64, heap: u64) -> Sizes {
        Sizes {
            resident: resident * MIB,
            heap: heap * MIB,
        }
    }

    #[test]
    fn the_process_is_looked_at_before_it_can_be_too_large() {
        assert_eq!(pause_ms(0, 4 * LIMIT), LOOK_MS_MAX);
        assert_eq!(pause_ms(LIMIT - 50 * MIB, LIMIT), 25);
        assert_eq!(pause_ms(2 * LIMIT, LIMIT), LOOK_MS_MIN);
    }

    #[test]
    fn what_is_free_goes_back_from_a_large_process_alone() {
        let mut state = State::of_start(sizes(50, 10), 0);
        // A small one keeps it.
        assert!(!state.must_purge(sizes(700, 10), LIMIT));
        // A large one has nothing free as long as its heap has grown as much.
        assert!(!state.must_purge(sizes(900, 860), LIMIT));
        assert!(!state.must_purge(sizes(900, 800), LIMIT));
        assert!(state.must_purge(sizes(900, 790), LIMIT));
        // What was not free then is not given back by asking again.
        state.kept = sizes(900, 790);
        assert!(!state.must_purge(sizes(900, 790), LIMIT));
        assert!(state.must_purge(sizes(900, 700), LIMIT));
        // One that has become smaller by itself begins anew.
        assert!(!state.must_purge(sizes(300, 200), LIMIT));
        assert_eq!(state.kept, sizes(300, 200));
    }

    #[test]
    fn what_is_neither_reserved_nor_free_is_told() {
        let state = State::of_start(sizes(50, 10), 0);
        let unreserved =
            |sizes, reserved: u64| state.unreserved(sizes, reserved * MIB, LIMIT) / MIB;
        assert_eq!(unreserved(sizes(50, 10), 0), 0);
        assert_eq!(unreserved(sizes(850, 810), 800), 0);
        assert_eq!(unreserved(sizes(850, 810), 500), 300 - 32);
        // Of what was reserved and is free nobody has anything.
        assert_eq!(unreserved(sizes(850, 310), 0), 300 - 32);
        assert_eq!(unreserved(sizes(850, 0), 0), 0);
        // What is reserved and not taken yet is not in memory.
        assert_eq!(unreserved(sizes(850, 810), 1_000), 0);
        // What was there at the start, and reserved, may be given back.
        let state = State::of_start(sizes(850, 10), 800 * MIB);
        assert_eq!(state.base, 50 * MIB);
    }

    #[test]
    fn what_goes_back_just_now_is_not_told_of() {
        let mut state = State::of_start(sizes(50, 10), 0);
        let meanwhile = |state: &State, sizes, reserved: u64| {
            state.unreserved_meanwhile(sizes, (reserved * MIB, reserved * MIB), LIMIT) / MIB
        };
        // 300 are free of 800, which the last time nobody could know.
        state.kept = sizes(850, 310);
        assert_eq!(
            state.unreserved(sizes(850, 310), 300 * MIB, LIMIT) / MIB,
            500 - 32
        );
        state.known = Known {
            unreserved: 0,
            heap: 310 * MIB,
            reserved: 300 * MIB,
        };
        assert_eq!(meanwhile(&state, sizes(850, 310), 300), 0);
        // What is taken meanwhile counts, once.
        assert_eq!(meanwhile(&state, sizes(900, 360), 300), 50);
        assert_eq!(meanwhile(&state, sizes(900, 360), 320), 30);
        state.known.unreserved = 20 * MIB;
        assert_eq!(meanwhile(&state, sizes(850, 300), 300), 20);
        assert_eq!(meanwhile(&state, sizes(390, 310), 300), 8);
    }

    #[test]
    fn a_keeper_ends_with_its_owner() {
        let governor = Governor::new(aerostat_types::ByteSize(u64::MAX));
        let keeper = HeapKeeper::start(Arc::clone(&governor)).unwrap();
        drop(keeper);
        let started = Instant::now();
        while Arc::strong_count(&governor) > 1 {
            assert!(started.elapsed() < Duration::from_secs(60), "it goes on");
            thread::sleep(Duration::from_millis(1));
        }
    }
}
