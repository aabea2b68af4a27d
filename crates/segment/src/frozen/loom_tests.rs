//! Writers of a frozen segment beside each other and beside a seal, in every order (`scripts/loom`).

use std::{
    ptr::NonNull,
    sync::{Weak, atomic::AtomicU64 as MachineU64},
};

use aerostat_sync::{AtomicU64, Ordering, model, thread};

use super::*;
use crate::{
    Charge, ExtentSet, HeapRegion, Pieces, Pinned, Region, SegmentBody, SegmentError, ValueRef,
    body::segment::Form,
    loom_tests::{body_of, keyed},
};

fn frozen<'a>(segment: &'a Pinned<'_>) -> &'a Frozen {
    match segment.form() {
        Form::Frozen(frozen) => frozen,
        Form::Hot(_) => unreachable!("the segment was made of an image"),
    }
}

/// How many blocks vary is counted under the latch, by whichever writer. Seen to fail: a count that
/// does not ask which of the blocks have varied before; a writer that does not wait for the latch.
#[test]
fn varying_blocks_are_counted_once() {
    model(|| {
        let segment = keyed(2, true);
        let count = |segment| frozen(segment).varying.load(Ordering::Relaxed);
        let before = segment.footprint_bytes();
        let own = segment.clone();
        let writer = thread::spawn(move || own.writer().set_end(0, 7));
        segment.writer().set_end(1, 8);
        writer.join().unwrap();
        assert_eq!(count(&segment), 1);
        segment.writer().set_ends(0..2, 9);
        assert_eq!(count(&segment), 0);
        // The notes of who has ended stay.
        assert_eq!(segment.footprint_bytes(), before + segment.ended_bytes());
    });
}

/// A seal waits for every writer: a segment that says it is sealed has the checksum of its stamps,
/// too. Seen to fail: a writer that does not break the seal, or does so before it has the latch;
/// a checksum that is computed after the latch was given back.
#[test]
fn a_seal_is_of_what_is_stamped() {
    model(|| {
        let segment = keyed(2, true);
        let own = segment.clone();
        let writer = thread::spawn(move || own.writer().set_end(0, 7));
        segment.seal_checksum();
        writer.join().unwrap();
        let frozen = frozen(&segment);
        let words = frozen.header();
        let is_sealed = words[header::SEALED].load(Ordering::Relaxed) == 1;
        let sum = words[header::CHECKSUM].load(Ordering::Relaxed);
        assert_eq!(is_sealed, sum == seal::checksum(frozen));
    });
}

/// A frozen segment that can be evicted, and what a model watches of it.
#[derive(Clone)]
struct Evictable {
    body: SegmentBody,
    image: Arc<[u8]>,
    /// Bytes that are charged now.
    charged: Arc<MachineU64>,
    access: Access,
}

/// A thread that reads or writes bytes of extents changes this before, so that loom tries every order
/// of reads and writes: it sees nothing of the bytes themselves.
type Access = Arc<AtomicU64>;

/// A region that says when its bytes are given up.
struct Watched(HeapRegion, Access);

/// What an extent is charged with.
struct Charged {
    bytes: u64,
    /// Of all extents.
    sum: Arc<MachineU64>,
    pages: Weak<Pages>,
}

/// The error of a read that fails.
#[derive(Debug)]
struct Refused;

impl Evictable {
    /// A segment of two rows, all of it in memory. It was evicted and read back before, so that the model
    /// sees what a read has to reset.
    fn of(attributes: usize) -> Evictable {
        let access = Access::default();
        let watched = Arc::clone(&access);
        let body = body_of(attributes, 2, |bytes| {
            Box::new(Watched(HeapRegion::new(bytes), watched))
        });
        let image = body.pin().frozen_bytes().unwrap().into();
        body.allow_eviction(body.pin().extent_checksums());
        let made = Evictable {
            body,
            image,
            charged: Arc::default(),
            access,
        };
        let bytes = made.body.extent_bytes();
        assert!(bytes.len() == attributes && bytes.iter().all(|&bytes| bytes > 0));
        let charges = bytes.iter().map(|&bytes| made.charge(bytes));
        made.body.set_charges(charges);
        assert!(made.body.evict(&made.all()));
        drop(made.read_back(&made.all()));
        made
    }

    fn charge(&self, bytes: u64) -> Charge {
        self.charged.fetch_add(bytes, Ordering::Relaxed);
        Box::new(Charged {
            bytes,
            sum: Arc::clone(&self.charged),
            pages: Arc::downgrade(frozen(&self.body.pin()).pages()),
        })
    }

    fn charged(&self) -> u64 {
        self.charged.load(Ordering::Relaxed)
    }

    fn all(&self) -> ExtentSet {
        self.body.wanted(|want| want.all())
    }

    /// Looks at what a pin has: the values are those that were made, and what they take is charged.
    fn look(&self, pinned: &Pinned<'_>) {
        let bytes = self.body.extent_bytes();
        for attribute in (0..bytes.len()).filter(|&at| pinned.has_extent(at)) {
            self.access.fetch_add(1, Ordering::Relaxed);
            let values = [0, 1].map(|row| pinned.value(row, attribute));
            assert_eq!(values, [0, 1].map(ValueRef::I64), "bytes were given up");
        }
        let has = (0..bytes.len()).filter(|&at| pinned.has_extent(at));
        let has: u64 = has.map(|at| bytes[at]).sum();
        assert!(self.charged() >= has, "what is read is not charged");
    }

    /// Reads extents back from the image.
    fn read_back(&self, wanted: &ExtentSet) -> Pinned<'_> {
        let pinned = self.read_back_if(wanted, true).unwrap();
        assert!(pinned.has_all(wanted));
        pinned
    }

    /// As [`Self::read_back`], unless the image cannot be read.
    fn read_back_if(&self, wanted: &ExtentSet, is_readable: bool) -> Result<Pinned<'_>, Refused> {
        let charge = &mut |bytes| Ok(self.charge(bytes));
        let read = &mut |pieces: Pieces<'_>| {
            self.access.fetch_add(1, Ordering::Relaxed);
            for (offset, piece) in pieces {
                let is_given_up = piece.iter().all(|&byte| byte == HeapRegion::GIVEN_UP);
                assert!(is_given_up, "what is read back was in memory");
                piece.copy_from_slice(&self.image[offset..offset + piece.len()]);
            }
            is_readable.then_some(()).ok_or(Refused)
        };
        self.body.read_back(wanted, charge, read)
    }

    /// When nobody reads, an extent is in memory and charged once if it is in the current set, and
    /// neither otherwise. All can be read back, and evicted again.
    fn look_at_last(&self) {
        let (body, all) = (&self.body, self.all());
        assert!(!body.is_leaving());
        for _ in 0..2 {
            let pinned = body.pin();
            self.look(&pinned);
            let bytes = body.extent_bytes().into_iter().enumerate();
            let resident: u64 = bytes
                .filter_map(|(at, bytes)| pinned.has_extent(at).then_some(bytes))
                .sum();
            assert_eq!(body.evicted_bytes(), body.bytes_of_extents() - resident);
            assert_eq!(self.charged(), resident);
            drop(pinned);
            self.look(&self.read_back(&all));
        }
        assert!(body.evict(&all));
        assert_eq!(self.charged(), 0);
        assert_eq!(body.evicted_bytes(), body.bytes_of_extents());
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        self.sum.fetch_sub(self.bytes, Ordering::Relaxed);
        // Whatever a charge does when it is dropped, it may take the lock.
        if let Some(pages) = self.pages.upgrade() {
            pages.set_charges(std::iter::empty());
        }
    }
}

impl From<SegmentError> for Refused {
    fn from(error: SegmentError) -> Refused {
        unreachable!("the image is that of the segment: {error}")
    }
}

// SAFETY: all is the inner region's, which this value owns for as long as it lives.
unsafe impl Region for Watched {
    fn base(&self) -> NonNull<u8> {
        self.0.base()
    }

    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    fn page_bytes(&self) -> Option<usize> {
        self.0.page_bytes()
    }

    unsafe fn give_up(&self, pages: Range<usize>) {
        self.1.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's obligations are those of the inner region.
        unsafe { self.0.give_up(pages) }
    }
}

/// A reader has the values that it has pinned, while other threads evict the extent and read it back;
/// and in the end an extent is charged exactly if it is there. Seen to fail: an eviction that gives up
/// what readers have; an older generation whose drop gives up what was taken up again; a set that is
/// published before its pages are filled; an extent that stays absent when it has been read back; an
/// extent that is not shared with those who read it still; a charge that is lost, or taken for what
/// is there.
#[test]
fn a_reader_has_what_it_has_pinned() {
    model(|| {
        let made = Evictable::of(1);
        let all = made.all();
        let (own, going) = (made.clone(), all.clone());
        let evictor = thread::spawn(move || own.body.evict(&going));
        let (own, wanted) = (made.clone(), all.clone());
        let other = thread::spawn(move || {
            own.look(&own.read_back(&wanted));
            own.body.evict(&wanted)
        });
        made.look(&made.body.pin());
        made.look(&made.read_back(&all));
        evictor.join().unwrap();
        other.join().unwrap();
        made.look_at_last();
    });
}

/// The same of two extents: one thread evicts both, one reads what is there, and one reads back the
/// second. Seen to fail: an eviction that gives up what readers have; an older generation whose drop
/// gives up what was taken up again; a set that is published before its pages are filled.
#[test]
fn a_reader_has_each_extent_that_it_has_pinned() {
    model(|| {
        let made = Evictable::of(2);
        let (own, all) = (made.clone(), made.all());
        let evictor = thread::spawn(move || own.body.evict(&all));
        let own = made.clone();
        let reader = thread::spawn(move || own.look(&own.body.pin()));
        let second = made.body.wanted(|want| want.attribute(1));
        made.look(&made.read_back(&second));
        evictor.join().unwrap();
        reader.join().unwrap();
        made.look_at_last();
    });
}

/// Two threads evict an extent each, while a third reads the first back: no set that is published
/// brings back what another has taken out. Seen to fail: an eviction that does not take the lock; a
/// thread that reads back and looks at the current set before it has the lock.
#[test]
fn evictions_beside_each_other_give_up_each_extent() {
    model(|| {
        let made = Evictable::of(2);
        let evictors = [0, 1].map(|attribute| {
            let own = made.clone();
            let going = own.body.wanted(|want| want.attribute(attribute));
            thread::spawn(move || own.body.evict(&going))
        });
        let first = made.body.wanted(|want| want.attribute(0));
        made.look(&made.read_back(&first));
        for evictor in evictors {
            evictor.join().unwrap();
        }
        assert!(!made.body.pin().has_extent(1));
        made.look_at_last();
    });
}

/// A pin of some extents alone has these, and the others leave memory meanwhile. Seen to fail: a pin
/// that drops an extent that is wanted, or keeps another.
#[test]
fn a_pin_of_some_has_these_alone() {
    model(|| {
        let made = Evictable::of(2);
        let (own, all) = (made.clone(), made.all());
        let evictor = thread::spawn(move || own.body.evict(&all));
        let second = made.body.wanted(|want| want.attribute(1));
        let pinned = made.body.pin();
        let had = pinned.has_all(&second);
        let pinned = pinned.only(&second);
        assert_eq!(pinned.has_all(&second), had);
        assert!(!pinned.has_extent(0));
        made.look(&pinned);
        evictor.join().unwrap();
        made.look(&pinned);
        let bytes = made.body.extent_bytes();
        let kept = if had { bytes[1] } else { 0 };
        assert_eq!(made.charged(), kept);
        assert_eq!(made.body.evicted_bytes(), bytes[0] + bytes[1] - kept);
        drop(pinned);
        made.look_at_last();
    });
}

/// A read that fails leaves all as it was, even if the last reader of another extent that was asked for
/// is done meanwhile. Seen to fail: an extent, or a charge, that is dropped under the lock; a count of
/// absent bytes that is lowered before the read.
#[test]
fn a_read_that_fails_changes_nothing() {
    model(|| {
        let made = Evictable::of(2);
        let [first, second] = [0, 1].map(|at| made.body.wanted(|want| want.attribute(at)));
        assert!(made.body.evict(&first));
        let pinned = made.body.pin();
        assert!(made.body.evict(&second));
        let own = made.clone();
        let other = thread::spawn(move || assert!(own.read_back_if(&own.all(), false).is_err()));
        made.look(&pinned);
        drop(pinned);
        other.join().unwrap();
        assert!(!made.body.pin().has_extent(0) && !made.body.pin().has_extent(1));
        made.look_at_last();
    });
}
