//! Which extents of a frozen segment are in memory.
//!
//! ```text
//!  Frozen ── now ──► Held ─┬─► Extent 0 ─┐          a set; replaced as a whole, read without a lock
//!                    Held ─┼─► Extent 2 ─┼─► Pages ─► arena
//!  a reader's pin ──►──────┘             │     └ states: generation, present, charge
//!  an Arrow array ──►────────────────────┘
//! ```
//!
//! * **Who reads holds.** A reader has the set that was current when it pinned, and the set has its
//!   extents. Nothing reads an extent that it does not hold so.
//! * **Evicting** puts a smaller set in the current one's place. The pages are given up by whoever
//!   drops an extent last: at once, or when the last reader is done.
//! * **Reading back** fills the pages in place, so that nothing moves, and puts a larger set in
//!   place. Where a reader still has the extent, the new set shares it. Where its last reader has
//!   dropped it, and has not come to giving the pages up, nothing is read either: there is an extent of
//!   another *generation* then, and the drop of the older one does nothing.
//! * The mutex orders giving up, filling and replacing the set. Readers do not take it.
//!
//! This module and `arena` are the folder's unsafe code.

use std::{
    ops::Range,
    sync::{Arc, Weak, atomic::fence},
};

use aerostat_sync::{AtomicU64, Mutex, Ordering};

use crate::{
    SegmentError,
    frozen::{arena::FrozenArena, extents::ExtentSet, plan::Bytes},
};

/// What an extent's memory is charged to; dropped when it is given up.
pub type Charge = Box<dyn Send + Sync>;

/// Bytes that are read back: where they go in the arena, and in memory.
pub type Pieces<'a> = Vec<(usize, &'a mut [u8])>;

/// The extents that are in memory.
pub(crate) struct Held {
    extents: Box<[Option<Arc<Extent>>]>,
    missing: u32,
    /// Whether something of the segment was evicted before.
    after_eviction: bool,
}

impl Held {
    pub(crate) fn is_whole(&self) -> bool {
        self.missing == 0
    }

    #[inline]
    pub(crate) fn has(&self, extent: usize) -> bool {
        self.missing == 0 || self.extents[extent].is_some()
    }

    pub(crate) fn has_all(&self, wanted: &ExtentSet) -> bool {
        self.missing == 0 || wanted.iter().all(|extent| self.extents[extent].is_some())
    }

    pub(crate) fn extent(&self, extent: usize) -> Option<&Arc<Extent>> {
        self.extents[extent].as_ref()
    }

    /// Whether something was evicted before: then memory is short, or was.
    pub(crate) fn is_after_eviction(&self) -> bool {
        self.after_eviction
    }

    /// The same without those that are not wanted; `None` where there are no others.
    pub(crate) fn only(&self, wanted: &ExtentSet) -> Option<Held> {
        let extents = self.extents.iter().enumerate();
        let mut others = extents
            .clone()
            .filter(|(no, extent)| extent.is_some() && !wanted.has(*no));
        others.next()?;
        let kept = extents.map(|(no, extent)| extent.clone().filter(|_| wanted.has(no)));
        Some(Held::of(kept.collect(), self.after_eviction))
    }

    fn of(extents: Vec<Option<Arc<Extent>>>, after_eviction: bool) -> Held {
        Held {
            after_eviction,
            missing: extents.iter().filter(|extent| extent.is_none()).count() as u32,
            extents: extents.into(),
        }
    }
}

/// The set that is current.
pub(crate) struct Current(Swap);

#[cfg(not(loom))]
type Swap = arc_swap::ArcSwap<Held>;
#[cfg(loom)]
type Swap = Mutex<Arc<Held>>;

/// A set, as long as it is held: taken without writing to what threads share.
#[cfg(not(loom))]
pub(crate) type HeldGuard = arc_swap::Guard<Arc<Held>>;
#[cfg(loom)]
pub(crate) type HeldGuard = Arc<Held>;

#[cfg(not(loom))]
impl Current {
    fn new(held: Held) -> Current {
        Current(Swap::from_pointee(held))
    }

    #[inline]
    pub(crate) fn load(&self) -> HeldGuard {
        self.0.load()
    }

    fn get(&self) -> Arc<Held> {
        self.0.load_full()
    }

    fn swap(&self, held: Arc<Held>) -> Arc<Held> {
        self.0.swap(held)
    }
}

#[cfg(loom)]
impl Current {
    fn new(held: Held) -> Current {
        Current(Mutex::new(Arc::new(held)))
    }

    pub(crate) fn load(&self) -> HeldGuard {
        self.get()
    }

    fn get(&self) -> Arc<Held> {
        Arc::clone(&self.0.lock())
    }

    fn swap(&self, held: Arc<Held>) -> Arc<Held> {
        std::mem::replace(&mut *self.0.lock(), held)
    }
}

/// Stands for an extent's being in memory.
pub(crate) struct Extent {
    /// Of nobody where the segment goes as a whole, or somebody else gives these up.
    pages: Weak<Pages>,
    no: usize,
    generation: u64,
}

impl Drop for Extent {
    fn drop(&mut self) {
        if let Some(pages) = self.pages.upgrade() {
            let charges = pages.give_up(&[(self.no, self.generation)]);
            // After the mutex, for whatever it does.
            drop(charges);
        }
    }
}

/// The pages of all extents.
pub(crate) struct Pages {
    arena: Arc<FrozenArena>,
    extents: Box<[Spans]>,
    bytes: u64,
    /// Of each extent, its CRC-32: known when it can be read back.
    checksums: std::sync::OnceLock<Box<[u32]>>,
    states: Mutex<Box<[State]>>,
    /// Bytes of extents that were given up.
    absent: AtomicU64,
    absent_indexes: AtomicU64,
}

/// The whole pages of an extent, ascending.
struct Spans {
    spans: Vec<Range<usize>>,
    bytes: u64,
    is_index: bool,
}

#[derive(Default)]
struct State {
    /// The newest, if somebody has it: there is one at most that somebody has.
    extent: Weak<Extent>,
    /// Its number.
    generation: u64,
    is_absent: bool,
    charge: Option<Charge>,
}

impl Pages {
    /// Of an arena whose extents are all there, and the set of them.
    pub(crate) fn new(arena: Arc<FrozenArena>) -> (Arc<Pages>, Current) {
        let plan = arena.plan();
        let groups = plan.extents.len() - plan.indexes.len();
        let spans = |(at, extent): (usize, &Vec<Range<usize>>)| {
            let spans = extent.iter().filter_map(|bytes| arena.pages_within(bytes));
            let spans: Vec<Range<usize>> = spans.collect();
            Spans {
                bytes: spans.iter().map(|span| span.len() as u64).sum(),
                spans,
                is_index: at >= groups,
            }
        };
        let extents: Box<[Spans]> = plan.extents.iter().enumerate().map(spans).collect();
        let pages = Arc::new(Pages {
            bytes: extents.iter().map(|extent| extent.bytes).sum(),
            states: Mutex::new(extents.iter().map(|_| State::default()).collect()),
            checksums: std::sync::OnceLock::new(),
            extents,
            absent: AtomicU64::new(0),
            absent_indexes: AtomicU64::new(0),
            arena,
        });
        let all = (0..pages.extents.len()).map(|no| {
            Arc::new(Extent {
                pages: Arc::downgrade(&pages),
                no,
                generation: 0,
            })
        });
        let all: Vec<Arc<Extent>> = all.collect();
        for (state, extent) in pages.states.lock().iter_mut().zip(&all) {
            state.extent = Arc::downgrade(extent);
        }
        let all = Held::of(all.into_iter().map(Some).collect(), false);
        (pages, Current::new(all))
    }

    /// Bytes of an extent that can be given up.
    pub(crate) fn bytes(&self, extent: usize) -> u64 {
        self.extents[extent].bytes
    }

    pub(crate) fn bytes_of_all(&self) -> u64 {
        self.bytes
    }

    /// The pages of these extents, as far as they are absent now.
    pub(crate) fn absent_spans(&self, extents: &ExtentSet, held: &Held) -> Vec<Range<usize>> {
        self.spans_of(extents.iter().filter(|&no| !held.has(no)))
    }

    /// Bytes that are not in memory, and how many of them are indexes'.
    pub(crate) fn absent(&self) -> (u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (load(&self.absent), load(&self.absent_indexes))
    }

    /// Says what each extent's memory is charged to.
    pub(crate) fn set_charges(&self, charges: impl Iterator<Item = Charge>) {
        let mut states = self.states.lock();
        for (state, charge) in states.iter_mut().zip(charges) {
            state.charge = Some(charge);
        }
    }

    /// The checksum of each extent. All of them are in memory.
    pub(crate) fn checksums(&self) -> Box<[u32]> {
        let extents = 0..self.extents.len();
        extents.map(|no| self.checksum(no)).collect()
    }

    fn checksum(&self, no: usize) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        for span in &self.extents[no].spans {
            let (offset, bytes) = (span.start, span.len());
            hasher.update(self.arena.bytes(Bytes { offset, bytes }));
        }
        hasher.finalize()
    }

    /// Says that extents can be read back from now on, and what they must be then.
    pub(crate) fn set_checksums(&self, checksums: Box<[u32]>) {
        assert_eq!(
            checksums.len(),
            self.extents.len(),
            "a checksum of each extent"
        );
        let known = self.checksums.get_or_init(|| checksums.clone());
        assert_eq!(*known, checksums, "values never change");
    }

    pub(crate) fn can_be_read_back(&self) -> bool {
        self.checksums.get().is_some()
    }

    /// Takes extents out of the current set, so that they go with their last reader; whether one was
    /// in it. Nothing is done while some are read back.
    pub(crate) fn evict(&self, going: &ExtentSet, current: &Current) -> bool {
        let before = {
            let Some(_states) = self.try_lock() else {
                return false;
            };
            if !self.can_be_read_back() {
                return false;
            }
            let held = current.get();
            let goes = |no: usize| going.has(no) && self.extents[no].bytes > 0;
            let extents = held.extents.iter().enumerate();
            let kept = extents.map(|(no, extent)| extent.clone().filter(|_| !goes(no)));
            let kept = Held::of(kept.collect(), true);
            if kept.missing == held.missing {
                return false;
            }
            drop(current.swap(Arc::new(kept)));
            held
        };
        // Those that nobody else has go together, so that whole ranges of pages do.
        let Some(before) = Arc::into_inner(before) else {
            return true;
        };
        let gone = before.extents.into_iter().flatten();
        let gone = gone.filter_map(|extent| {
            let mut extent = Arc::into_inner(extent)?;
            extent.pages = Weak::new();
            Some((extent.no, extent.generation))
        });
        let gone: Vec<(usize, u64)> = gone.collect();
        drop(self.give_up(&gone));
        true
    }

    /// Whether something goes with its last reader that is not current any more; true, too, while
    /// somebody reads back or gives up, so that it is not known.
    pub(crate) fn is_leaving(&self, current: &Current) -> bool {
        let Some(states) = self.try_lock() else {
            return true;
        };
        let held = current.get();
        let mut extents = states.iter().zip(&self.extents).enumerate();
        extents.any(|(no, (state, spans))| spans.bytes > 0 && !held.has(no) && !state.is_absent)
    }

    /// A set with all that is wanted, read back where that is needed: current from now on.
    ///
    /// # Errors
    /// Those of `charge` and `read`; [`SegmentError::Corrupt`] where other bytes were read than had
    /// been given up. Nothing has changed then.
    pub(crate) fn read_back<E: From<SegmentError>>(
        self: &Arc<Self>,
        wanted: &ExtentSet,
        current: &Current,
        charge: &mut dyn FnMut(u64) -> Result<Charge, E>,
        read: &mut dyn FnMut(Pieces<'_>) -> Result<(), E>,
    ) -> Result<Arc<Held>, E> {
        // Before the guard, so that an error drops them after the mutex has been given back. The other
        // readers of an extent may be done meanwhile: its drop takes the mutex then. A charge may, too.
        let mut there: Vec<Option<Arc<Extent>>> = Vec::new();
        let mut charges: Vec<Charge> = Vec::new();
        let mut states = self.states.lock();
        let held = current.get();
        if held.has_all(wanted) {
            return Ok(held);
        }
        let missing = wanted.iter().filter(|&no| held.extents[no].is_none());
        let missing: Vec<usize> = missing.collect();
        // Held until the new set has them.
        there.extend(missing.iter().map(|&no| states[no].extent.upgrade()));
        // An upgrade that fails orders nothing by itself. With the fence, what the last readers of that
        // generation read comes before what is done with the next one, whose end gives the pages up.
        fence(Ordering::Acquire);
        let is_absent = |no: &usize| states[*no].is_absent;
        let absent: Vec<usize> = missing.iter().copied().filter(is_absent).collect();
        for &no in &absent {
            charges.push(charge(self.extents[no].bytes)?);
        }
        self.fill(&absent, &states, read)?;
        for (&no, charge) in absent.iter().zip(charges) {
            states[no].is_absent = false;
            states[no].charge = Some(charge);
        }
        let mut extents = held.extents.to_vec();
        for (no, extent) in missing.into_iter().zip(there) {
            let state = &mut states[no];
            extents[no] = Some(extent.unwrap_or_else(|| {
                state.generation += 1;
                let extent = Arc::new(Extent {
                    pages: Arc::downgrade(self),
                    no,
                    generation: state.generation,
                });
                state.extent = Arc::downgrade(&extent);
                extent
            }));
        }
        let held = Arc::new(Held::of(extents, true));
        current.swap(Arc::clone(&held));
        Ok(held)
    }

    /// Has the bytes of absent extents in their pages. The caller holds the lock.
    fn fill<E: From<SegmentError>>(
        &self,
        absent: &[usize],
        states: &[State],
        read: &mut dyn FnMut(Pieces<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        if absent.is_empty() {
            return Ok(());
        }
        let stay_absent = states.iter().filter(|state| state.is_absent).count() > absent.len();
        self.arena.set_whole(!stay_absent);
        let spans = self.spans_of(absent.iter().copied());
        spans.iter().for_each(|span| self.arena.begin_fill(span));
        let pieces = spans.iter().map(|span| {
            // SAFETY: the extents are absent: nobody holds one, so nobody refers to their bytes, and
            // nobody will before their states say otherwise, which are locked. Spans are apart.
            let bytes = unsafe { self.arena.bytes_mut(span) };
            (span.start, bytes)
        });
        let result = read(pieces.collect()).and_then(|()| {
            match absent.iter().all(|&no| self.is_as_it_was(no)) {
                true => Ok(()),
                false => {
                    let what = SegmentError::Corrupt("values that were read back are other ones");
                    Err(E::from(what))
                }
            }
        });
        spans.iter().for_each(|span| self.arena.end_fill(span));
        match result {
            Ok(()) => self.count(absent, |counter, bytes| {
                counter.fetch_sub(bytes, Ordering::Relaxed);
            }),
            Err(_) => {
                self.arena.set_whole(false);
                for span in spans {
                    // SAFETY: pages of the arena (`pages_within`), of extents that are absent still.
                    unsafe { self.arena.give_up(span) };
                }
            }
        }
        result
    }

    /// The pages of extents, those that lie side by side as one.
    fn spans_of(&self, extents: impl Iterator<Item = usize>) -> Vec<Range<usize>> {
        let spans = extents.flat_map(|no| self.extents[no].spans.iter().cloned());
        let mut spans: Vec<Range<usize>> = spans.collect();
        spans.sort_unstable_by_key(|span| span.start);
        let mut joined: Vec<Range<usize>> = Vec::with_capacity(spans.len());
        for span in spans {
            match joined.last_mut() {
                Some(last) if last.end == span.start => last.end = span.end,
                _ => joined.push(span),
            }
        }
        joined
    }

    fn is_as_it_was(&self, no: usize) -> bool {
        let checksums = self.checksums.get();
        checksums.is_some_and(|checksums| checksums[no] == self.checksum(no))
    }

    /// Gives up extents, by number and generation, that nobody holds any more, unless they have been
    /// taken up again.
    fn give_up(&self, gone: &[(usize, u64)]) -> Vec<Charge> {
        let mut states = self.states.lock();
        let is_newest = |&(no, generation): &(usize, u64)| {
            states[no].generation == generation && self.extents[no].bytes > 0
        };
        let gone = gone.iter().copied().filter(is_newest);
        let gone: Vec<usize> = gone.map(|(no, _)| no).collect();
        if gone.is_empty() {
            return Vec::new();
        }
        self.arena.set_whole(false);
        for span in self.spans_of(gone.iter().copied()) {
            // SAFETY: whole pages of the arena (`pages_within`). The newest generation has been
            // dropped, and with it all references to the bytes, since whoever has some holds it;
            // the states are locked.
            unsafe { self.arena.give_up(span) };
        }
        self.count(&gone, |counter, bytes| {
            counter.fetch_add(bytes, Ordering::Relaxed);
        });
        let charges = gone.into_iter().filter_map(|no| {
            assert!(!states[no].is_absent, "an extent is given up once");
            states[no].is_absent = true;
            states[no].charge.take()
        });
        charges.collect()
    }

    fn count(&self, extents: &[usize], change: impl Fn(&AtomicU64, u64)) {
        for extent in extents.iter().map(|&no| &self.extents[no]) {
            change(&self.absent, extent.bytes);
            if extent.is_index {
                change(&self.absent_indexes, extent.bytes);
            }
        }
    }

    #[cfg(not(loom))]
    fn try_lock(&self) -> Option<aerostat_sync::MutexGuard<'_, Box<[State]>>> {
        self.states.try_lock()
    }

    #[cfg(loom)]
    fn try_lock(&self) -> Option<aerostat_sync::MutexGuard<'_, Box<[State]>>> {
        Some(self.states.lock())
    }
}
