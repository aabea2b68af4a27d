//! Forwarding: where the rows of a rewritten segment have gone.
//!
//! A split or a compaction copies the live rows of a segment to others and retires it.
//! Transactions that remember rows by their old place find the new one here. This is process
//! memory, not part of the format.

use crate::{Pinned, ROWS_MAX};

/// Place of a row that was not copied, because nobody can see it any more.
const DROPPED: u32 = u32::MAX;

const ROW_BITS: u32 = 21;
const _: () = assert!(ROWS_MAX < 1 << ROW_BITS);

/// The most segments that one is rewritten to.
const TARGETS_MAX: usize = 1 << (32 - ROW_BITS - 1);

/// A table from old rows to new places, four bytes per row.
#[derive(Debug)]
pub struct Forwarding {
    targets: Vec<Pinned<'static>>,
    places: Vec<u32>,
}

impl Forwarding {
    /// For a segment of `rows` rows that is rewritten to these segments; until
    /// [set](Forwarding::set) otherwise, a row is dropped.
    pub fn new(rows: u32, targets: Vec<Pinned<'static>>) -> Forwarding {
        assert!(
            targets.len() <= TARGETS_MAX,
            "a segment is rewritten to a few others"
        );
        Forwarding {
            targets,
            places: vec![DROPPED; rows as usize],
        }
    }

    /// Old row `row` is now `new_row` of target number `target`.
    pub fn set(&mut self, row: u32, target: usize, new_row: u32) {
        assert!(
            target < self.targets.len() && new_row < ROWS_MAX,
            "a row of a target"
        );
        self.places[row as usize] = (target as u32) << ROW_BITS | new_row;
    }

    /// Where a row has gone; `None` when it was dropped. The target may itself have been
    /// retired since.
    pub fn get(&self, row: u32) -> Option<(&Pinned<'static>, u32)> {
        let place = self.places[row as usize];
        (place != DROPPED).then(|| {
            (
                &self.targets[(place >> ROW_BITS) as usize],
                place & ((1 << ROW_BITS) - 1),
            )
        })
    }

    /// The segments that took the rows.
    pub fn targets(&self) -> &[Pinned<'static>] {
        &self.targets
    }
}
