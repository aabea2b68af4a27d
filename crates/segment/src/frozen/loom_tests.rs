//! Writers of a frozen segment beside each other and beside a seal, in every order (`scripts/loom`).

use aerostat_sync::{Ordering, model, thread};

use super::*;
use crate::{Pinned, body::segment::Form, loom_tests::keyed};

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
