//! Writers of a frozen segment beside each other and beside a seal, in every order (`scripts/loom`).

use aerostat_sync::{Ordering, model, thread};

use super::*;
use crate::{
    Charge, Pieces, Pinned, SegmentBody, SegmentError, ValueRef,
    body::segment::Form,
    loom_tests::{body_of, keyed},
};

fn frozen(segment: &Pinned) -> &Frozen {
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

/// A reader has the values that it has pinned, while others evict and read back the same extent; and when
/// nobody has it, it is charged exactly if it is there.
#[test]
fn a_reader_has_what_it_has_pinned() {
    model(|| {
        let body = body_of(2);
        let bytes = body.pin().frozen_bytes().unwrap();
        let charged = Arc::new(AtomicU64::new(body.bytes_of_extents()));
        let charges = body.extent_bytes().into_iter();
        let charges = charges.map(|bytes| Box::new(Charged(bytes, Arc::clone(&charged))) as Charge);
        body.set_charges(charges);
        let checksums = body.pin().extent_checksums();
        body.allow_eviction(checksums);
        let all = body.wanted(|want| want.all());
        let evictor = {
            let (body, all) = (body.clone(), all.clone());
            thread::spawn(move || {
                body.evict(&all);
            })
        };
        let reader = {
            let (body, bytes) = (body.clone(), bytes.clone());
            let charged = Arc::clone(&charged);
            thread::spawn(move || read_back(&body, &bytes, &charged))
        };
        let pinned = body.pin();
        if pinned.has_all(&all) {
            assert_eq!(pinned.value(1, 0), ValueRef::I64(1));
        }
        drop(pinned);
        read_back(&body, &bytes, &charged);
        evictor.join().unwrap();
        reader.join().unwrap();
        let resident = body.bytes_of_extents() - body.evicted_bytes();
        assert_eq!(charged.load(Ordering::Relaxed), resident);
        body.evict(&all);
        assert_eq!(charged.load(Ordering::Relaxed), 0);
        assert_eq!(body.evicted_bytes(), body.bytes_of_extents());
    });
}

/// What an extent is charged with, and the sum of all.
struct Charged(u64, Arc<AtomicU64>);

impl Drop for Charged {
    fn drop(&mut self) {
        self.1.fetch_sub(self.0, Ordering::Relaxed);
    }
}

fn read_back(body: &SegmentBody, bytes: &[u8], charged: &Arc<AtomicU64>) {
    let all = body.wanted(|want| want.all());
    let charge = &mut |bytes| -> Result<Charge, SegmentError> {
        charged.fetch_add(bytes, Ordering::Relaxed);
        Ok(Box::new(Charged(bytes, Arc::clone(charged))))
    };
    let read = &mut |pieces: Pieces<'_>| {
        for (offset, piece) in pieces {
            piece.copy_from_slice(&bytes[offset..offset + piece.len()]);
        }
        Ok(())
    };
    let pinned = body.read_back(&all, charge, read).unwrap();
    assert_eq!(pinned.value(0, 0), ValueRef::I64(0));
    assert_eq!(pinned.value(1, 0), ValueRef::I64(1));
}
