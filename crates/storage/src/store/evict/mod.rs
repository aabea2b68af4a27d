//! Values of frozen segments that are not in memory: which go, and how they come back.
//!
//! ```text
//!  budget full ──► Evictor ──policy──► extents that go ──► Entry: pages given up
//!                     ▲                                        │ wanted again
//!                     └──────── admitted ◄── Image::read ◄─────┘
//! ```
//!
//! * A frozen segment's values never change, and its image in the checkpoint folder has the same
//!   bytes (`durable::image`). From the checkpoint on that wrote it, or the start that read it, the
//!   values can be evicted: nothing is written for that.
//! * They go by *extent*, a group of attributes or a secondary index, and come back when a pin asks
//!   for them (`Entry::pin`), each with its checksum.
//! * A budget that would refuse asks the tenant's [`Evictor`] first. It takes no lock under which
//!   somebody reserves, and leaves alone what is being read back.
//! * What somebody reads goes when that is done. Whoever finds all memory read waits a moment for it.
//! * Which go is decided by `policy`. How soon what went was wanted again is counted, by the bytes
//!   that had gone since: what more memory would have been worth.

mod policy;
#[cfg(test)]
mod tests;
mod worth;

use std::{
    io,
    ops::Range,
    path::PathBuf,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use aerostat_memory::{Budget, MemoryClass, Reclaim};
use aerostat_segment::{ExtentSet, Pieces};
use aerostat_types::Clock;
use parking_lot::Mutex;

use self::{
    policy::{S3Fifo, USES_MAX, Uses},
    worth::Worth,
};
use crate::{
    files::disk::{Disk, Opened},
    store::living::Living,
};

pub use self::worth::WorthOfMemory;

/// How often others are tried in place of extents that somebody is reading. Each time takes one out of the
/// queues at least, so this ends only a race with readers that bring others back.
const ROUNDS_MAX: usize = 4_096;

/// How long somebody waits at a time who finds that readers have all memory, and how often: a scan
/// is done with a part of a segment in milliseconds, a checkpoint, after which more can be evicted, in
/// seconds.
const WAIT: Duration = Duration::from_millis(1);
const WAITS_MAX: u32 = 5_000;

/// Decides for a tenant which values leave memory.
pub(crate) struct Evictor {
    queues: Mutex<S3Fifo<Key>>,
    /// All images that values may be read back from.
    images: Living<Image>,
    worth: Worth,
    budget: Arc<Budget>,
    clock: Arc<dyn Clock>,
    /// How many wait for memory that others have.
    waiting: AtomicUsize,
}

/// An entry, as far as eviction has to do with it.
pub(crate) trait Evictable: Send + Sync {
    /// Where its values can be read back from, once they can.
    fn image(&self) -> Option<&Arc<Image>>;

    /// Of each extent, the bytes that go with it.
    fn extent_bytes(&self) -> Vec<u64>;

    /// Whether an extent is in memory for whoever pins the segment next.
    fn has_extent(&self, extent: usize) -> bool;

    /// Takes extents out of memory as soon as nobody reads them; whether one was there, and nobody was
    /// reading anything back.
    fn evict(&self, extents: &ExtentSet) -> bool;

    /// Bytes that are out of memory.
    fn evicted_bytes(&self) -> u64;
}

/// An extent of an entry.
struct Key {
    entry: Weak<dyn Evictable>,
    extent: usize,
}

/// Where a frozen segment's bytes stand on disk, and what is known of its extents.
pub(crate) struct Image {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    /// Of the segment's first byte in the file.
    offset: u64,
    extents: Box<[Known]>,
    evictor: Arc<Evictor>,
}

#[derive(Default)]
struct Known {
    uses: AtomicU8,
    /// It is in one of the policy's queues, or is being taken out.
    is_queued: AtomicBool,
    /// How much had been evicted when it was, itself included; 0 before it ever was.
    evicted_at: AtomicU64,
}

/// How much a tenant has evicted and read back since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Evictions {
    /// Bytes that were given up.
    pub bytes_evicted: u64,
    /// Bytes that were read back, and how often something was.
    pub bytes_read_back: u64,
    /// Extents that were read back.
    pub extents_read_back: u64,
    /// What more memory would have been worth.
    pub worth: WorthOfMemory,
}

impl Evictor {
    pub(crate) fn new(budget: Arc<Budget>, clock: Arc<dyn Clock>) -> Arc<Evictor> {
        Arc::new(Evictor {
            queues: Mutex::default(),
            images: Living::default(),
            worth: Worth::default(),
            budget,
            clock,
            waiting: AtomicUsize::new(0),
        })
    }

    pub(crate) fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    /// An image of a segment of so many extents.
    pub(crate) fn image(
        self: &Arc<Self>,
        disk: Arc<dyn Disk>,
        path: PathBuf,
        offset: u64,
        extents: usize,
    ) -> Arc<Image> {
        let image = Arc::new(Image {
            disk,
            path,
            offset,
            extents: (0..extents).map(|_| Known::default()).collect(),
            evictor: Arc::clone(self),
        });
        self.images.add(&image);
        image
    }

    /// The files that values may still be read back from.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let images = self.images.all().into_iter();
        images.map(|image| image.path.clone()).collect()
    }

    /// Bytes in memory that can be evicted.
    pub(crate) fn resident_bytes(&self) -> u64 {
        // What has been rewritten is in the queues until its turn comes.
        let frozen = self.budget.used_for(MemoryClass::Frozen);
        self.queues.lock().bytes().min(frozen)
    }

    /// What was done so far.
    pub(crate) fn evictions(&self) -> Evictions {
        self.worth.evictions()
    }

    /// Takes extents that are in memory into account.
    pub(crate) fn admit(&self, entry: &Arc<dyn Evictable>, image: &Image, extents: &ExtentSet) {
        let bytes = entry.extent_bytes();
        let mut queues = self.queues.lock();
        queues.prune(&Counted);
        let resident = queues.bytes();
        for extent in extents.iter().filter(|&extent| bytes[extent] > 0) {
            let known = &image.extents[extent];
            if known.is_queued.swap(true, Ordering::Relaxed) {
                continue;
            }
            let distance = self
                .worth
                .distance(known.evicted_at.load(Ordering::Relaxed));
            let was_ghost = distance.is_some_and(|distance| distance <= resident);
            let entry = Arc::downgrade(entry);
            queues.admit(Key { entry, extent }, bytes[extent], was_ghost);
        }
    }

    /// Counts extents that were read back, and takes all that a reader wanted into account: more of it
    /// may have been evicted since the reader looked, and was read back with it.
    fn came_back(
        &self,
        entry: &Arc<dyn Evictable>,
        image: &Image,
        extents: &ExtentSet,
        wanted: &ExtentSet,
    ) {
        let bytes = entry.extent_bytes();
        for extent in extents.iter() {
            let known = &image.extents[extent];
            known.uses.store(0, Ordering::Relaxed);
            let evicted_at = known.evicted_at.load(Ordering::Relaxed);
            self.worth.read_back(evicted_at, bytes[extent]);
        }
        self.admit(entry, image, wanted);
    }

    /// The next extents to go, of so many bytes; those of one entry that come together as one.
    fn victims(&self, bytes: u64) -> Vec<(Arc<dyn Evictable>, ExtentSet)> {
        let mut victims: Vec<(Arc<dyn Evictable>, ExtentSet)> = Vec::new();
        let mut found = 0;
        let mut queues = self.queues.lock();
        while found < bytes {
            let Some((key, of_extent)) = queues.next(&Counted) else {
                break;
            };
            // It was there a moment ago.
            let Some(entry) = key.entry.upgrade() else {
                continue;
            };
            let Some(image) = entry.image() else {
                continue;
            };
            // First, so that whoever reads it back at once finds it in no queue.
            image.extents[key.extent]
                .is_queued
                .store(false, Ordering::Relaxed);
            // A reader may have put it into the queue while it was being evicted.
            if !entry.has_extent(key.extent) {
                continue;
            }
            found += of_extent;
            match victims.last_mut() {
                Some((last, extents)) if Arc::ptr_eq(last, &entry) => extents.add(key.extent),
                _ => victims.push((entry, [key.extent].into_iter().collect())),
            }
        }
        victims
    }

    /// Evicts so many bytes, or what there is, and says how many are free now: readers keep theirs
    /// until they are done.
    pub(crate) fn evict(&self, bytes: u64) -> u64 {
        let mut given = 0;
        // Not in the queues meanwhile: the policy would name the same ones again, and never those behind
        // them. The caller itself is reading something back, whose other extents are among them.
        let mut busy = Vec::new();
        for _ in 0..ROUNDS_MAX {
            let victims = self.victims(bytes.saturating_sub(given));
            if victims.is_empty() {
                break;
            }
            for (entry, extents) in victims {
                match self.evict_from(&*entry, &extents) {
                    Some(bytes) => given += bytes,
                    None => busy.push((entry, extents)),
                }
            }
        }
        for (entry, extents) in busy {
            let there: ExtentSet = extents.iter().filter(|at| entry.has_extent(*at)).collect();
            if let Some(image) = entry.image() {
                self.admit(&entry, image, &there);
            }
        }
        given
    }

    /// Bytes that are free now; `None` where all is gone already, or others are reading the segment back.
    fn evict_from(&self, entry: &dyn Evictable, extents: &ExtentSet) -> Option<u64> {
        let image = entry.image()?;
        let before = entry.evicted_bytes();
        if !entry.evict(extents) {
            return None;
        }
        let bytes = entry.extent_bytes();
        for extent in extents.iter() {
            let evicted_at = self.worth.evicted(bytes[extent]);
            image.extents[extent]
                .evicted_at
                .store(evicted_at, Ordering::Relaxed);
        }
        Some(entry.evicted_bytes().saturating_sub(before))
    }

    /// Whether somebody waits for memory right now: then whatever makes more of it evictable is of use.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// A wait that has not begun.
    pub(crate) fn wait(&self) -> Wait<'_> {
        Wait {
            evictor: self,
            times: 0,
        }
    }
}

/// A wait for memory that readers have.
///
/// Whoever waits may hold values that another waits for, so it ends.
pub(crate) struct Wait<'a> {
    evictor: &'a Evictor,
    times: u32,
}

impl Wait<'_> {
    /// Waits a little, if that is of use; whether to try again.
    pub(crate) fn for_readers(&mut self) -> bool {
        let has_values = self.evictor.budget.used_for(MemoryClass::Frozen) > 0;
        if self.times == WAITS_MAX || !has_values {
            return false;
        }
        if self.times == 0 {
            self.evictor.waiting.fetch_add(1, Ordering::Relaxed);
        }
        self.times += 1;
        self.evictor.clock.sleep(WAIT);
        true
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        if self.times > 0 {
            self.evictor.waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Reclaim for Evictor {
    fn reclaim(&self, bytes: u64) -> u64 {
        self.evict(bytes)
    }
}

/// How often extents were used, as images know.
struct Counted;

impl Uses<Key> for Counted {
    fn get(&self, key: &Key) -> Option<u8> {
        let entry = key.entry.upgrade()?;
        let image = entry.image()?;
        Some(image.extents[key.extent].uses.load(Ordering::Relaxed))
    }

    fn set(&self, key: &Key, uses: u8) {
        if let Some(entry) = key.entry.upgrade()
            && let Some(image) = entry.image()
        {
            image.extents[key.extent]
                .uses
                .store(uses, Ordering::Relaxed);
        }
    }
}

impl Image {
    /// Counts a use of each.
    #[inline]
    pub(crate) fn used(&self, extents: &ExtentSet) {
        for extent in extents.iter() {
            let uses = &self.extents[extent].uses;
            // Read first: what is used often is not written by each.
            let count = uses.load(Ordering::Relaxed);
            if count < USES_MAX {
                uses.store(count + 1, Ordering::Relaxed);
            }
        }
    }

    /// Says that extents have come back, for somebody who wanted these.
    pub(crate) fn came_back(
        &self,
        entry: &Arc<dyn Evictable>,
        extents: &ExtentSet,
        wanted: &ExtentSet,
    ) {
        self.evictor.came_back(entry, self, extents, wanted);
    }

    pub(crate) fn evictor(&self) -> &Arc<Evictor> {
        &self.evictor
    }

    /// Says that bytes of the segment will be read soon.
    pub(crate) fn will_read(&self, spans: &[Range<usize>]) {
        // A hint: who reads finds out what is wrong.
        if let Ok(file) = self.disk.open(&self.path, Opened::Read) {
            for span in spans {
                file.will_read(self.offset + span.start as u64, span.len() as u64);
            }
        }
    }

    /// Fills pieces with the segment's bytes at their offsets.
    pub(crate) fn read(&self, pieces: Pieces<'_>) -> io::Result<()> {
        let file = self.disk.open(&self.path, Opened::Read)?;
        for (offset, mut bytes) in pieces {
            let mut at = self.offset + offset as u64;
            while !bytes.is_empty() {
                let count = file.read_at(bytes, at)?;
                if count == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                bytes = &mut bytes[count..];
                at += count as u64;
            }
        }
        Ok(())
    }
}
