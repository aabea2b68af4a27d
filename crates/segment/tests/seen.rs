//! Which rows a point in time sees, of hot and frozen segments whose stamps are set, replaced
//! and taken away: the same as stamp by stamp.
#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod model;

use std::{ops::Range, sync::Arc};

use aerostat_segment::{BLOCK_ROWS, HeapRegion, Keys, Pinned, Seen, Segment, Selection, stamp};
use aerostat_types::SegmentNo;
use model::{Model, Random, freeze};
use proptest::prelude::*;

const ARENA_BYTES: usize = 16 << 20;

/// The transaction whose work is seen before it commits, and one that has just ended, so that
/// its stamps are to be read again.
const OWN: u64 = stamp::TXN_BIT | 1;
const SETTLED: u64 = stamp::TXN_BIT | 2;

/// A set of row locks: above every commit.
const LOCKED: u64 = 1 << 62 | 5;

/// What the last commit seen makes of stamps.
fn sees(at: u64, begin: u64, end: u64) -> bool {
    let has = |stamp: u64| stamp <= at || stamp == OWN;
    has(begin) && !has(end)
}

/// The rows of a range, of which `is_left` tells those that other conditions leave, that a
/// scan finds.
fn seen_in(
    segment: &Segment,
    at: u64,
    rows: Range<u32>,
    is_left: Option<&dyn Fn(u32) -> bool>,
) -> Vec<u32> {
    let mut refusals = 3;
    let mut asked = |begin: u64, end: u64| {
        assert!(
            stamp::txn(begin).or(stamp::txn(end)).is_some(),
            "only transactions are asked for"
        );
        refusals -= i32::from(refusals > 0);
        (refusals == 0).then(|| sees(at, begin, end))
    };
    let mut seen = Seen {
        at,
        sees: &mut asked,
    };
    let mut found = Selection::default();
    let some_ended = segment.select_seen(rows, &mut seen, &mut found);
    if let Some(is_left) = is_left {
        found = Selection::Rows(found.iter().filter(|&row| is_left(row)).collect());
    }
    if some_ended {
        segment.keep_seen(&mut seen, &mut found);
    }
    let rows: Vec<u32> = found.iter().collect();
    assert!(rows.is_sorted_by(|a, b| a < b), "ascending, none twice");
    rows
}

fn check(segment: &Segment, stamps: &[(u64, u64)], random: &mut Random) {
    for _ in 0..3 {
        let at = random.below(12);
        let from = random.below(stamps.len() as u64) as u32;
        let to = from + random.below(u64::from(stamps.len() as u32 - from) + 1) as u32;
        let visible = |row: &u32| {
            let (begin, end) = stamps[*row as usize];
            sees(at, begin, end)
        };
        let expected: Vec<u32> = (from..to).filter(visible).collect();
        assert_eq!(seen_in(segment, at, from..to, None), expected);
        let every = random.below(50) as u32 + 1;
        let is_left = |row: u32| row.is_multiple_of(every);
        let few: Vec<u32> = expected.into_iter().filter(|&row| is_left(row)).collect();
        assert_eq!(seen_in(segment, at, from..to, Some(&is_left)), few);
    }
}

/// Ends some rows, or makes them live again.
fn stamp_some(segment: &Segment, stamps: &mut [(u64, u64)], random: &mut Random) {
    let rows = stamps.len() as u64;
    let end = match random.below(6) {
        0 => stamp::END_NONE,
        1 => OWN,
        2 => SETTLED,
        3 => LOCKED,
        _ => random.below(12),
    };
    let first = random.below(rows);
    let count = match random.below(4) {
        // A block as a whole shares its stamp.
        0 => u64::from(BLOCK_ROWS) * (1 + random.below(2)),
        1 => random.below(200),
        _ => 1,
    };
    let first = match random.below(3) {
        0 => first - first % u64::from(BLOCK_ROWS),
        _ => first,
    };
    let range = first as u32..(first + count).min(rows) as u32;
    segment.writer().set_ends(range.clone(), end);
    for stamps in &mut stamps[range.start as usize..range.end as usize] {
        stamps.1 = end;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rows_are_seen_as_their_stamps_say(seed: u64, rows in 1usize..6000) {
        let model = Model::random(seed, rows);
        let hot = Pinned::new(model.segment(ARENA_BYTES), ());
        let columns = model.arrays(seed);
        let keys = Keys::encode(&model.schema, &columns).unwrap();
        let mut random = Random(seed ^ 7);
        hot.writer().append(&columns, 0..rows, &keys, 3).unwrap();
        let mut of_hot = vec![(3, stamp::END_NONE); rows];
        let (frozen, _) = freeze(&hot);
        let mut of_frozen = vec![(5, stamp::END_NONE); rows];
        for _ in 0..12 {
            for _ in 0..random.below(6) {
                let row = random.below(rows as u64) as u32;
                let begin = random.pick(&[2, 7, 9, stamp::ABORTED, OWN, SETTLED]);
                hot.writer().set_begin(row..row + 1, begin);
                of_hot[row as usize].0 = begin;
                stamp_some(&hot, &mut of_hot, &mut random);
                stamp_some(&frozen, &mut of_frozen, &mut random);
            }
            check(&hot, &of_hot, &mut random);
            check(&frozen, &of_frozen, &mut random);
        }
        // As made, no row has ended.
        let (schema, bytes) = (Arc::clone(frozen.schema()), frozen.frozen_bytes().unwrap());
        let region = Box::new(HeapRegion::new(frozen.arena_bytes()));
        let made = Segment::attach_frozen(region, bytes, schema, SegmentNo(9)).unwrap();
        check(&made, &vec![(5, stamp::END_NONE); rows], &mut random);
    }
}
