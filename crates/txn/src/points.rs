//! Points of the commit order in use: of snapshots, and of the begins of blocks. They determine
//! which versions are garbage.

use std::collections::VecDeque;

use aerostat_types::CommitTs;

use crate::{ABORTED, Stamp};

/// Points with how many hold each, ascending. Who registers does so at the newest point
/// there is, and most give theirs back soon, so both ends are where things happen. A queue
/// keeps its memory: with one statement at a time nothing is allocated.
#[derive(Default)]
pub(crate) struct Points(VecDeque<(CommitTs, usize)>);

impl Points {
    /// Registers at a point, which is no older than any before.
    pub(crate) fn register(&mut self, at: CommitTs) {
        match self.0.back_mut() {
            Some((last, count)) if *last == at => *count += 1,
            last => {
                assert!(
                    last.is_none_or(|(last, _)| *last < at),
                    "the newest point is not behind another"
                );
                self.0.push_back((at, 1));
            }
        }
    }

    /// Gives one of the registrations at a point back.
    pub(crate) fn release(&mut self, at: CommitTs) {
        let found = self.0.binary_search_by_key(&at, |(point, _)| *point);
        let position = found.expect("what is released was registered");
        let (_, count) = &mut self.0[position];
        *count -= 1;
        if *count == 0 {
            self.0.remove(position);
        }
    }

    /// The oldest that is held.
    pub(crate) fn oldest(&self) -> Option<CommitTs> {
        self.0.front().map(|(at, _)| *at)
    }

    /// All that are held, ascending.
    pub(crate) fn iter(&self) -> impl Iterator<Item = CommitTs> + '_ {
        self.0.iter().map(|(at, _)| *at)
    }
}

/// The snapshots registered at one moment: decides which versions are garbage.
///
/// A version that no registered snapshot sees is garbage even when older
/// snapshots are registered, so a key that changes often keeps one version per
/// snapshot rather than all since the oldest.
#[derive(Clone, Debug)]
pub struct LiveSnapshots {
    /// Ascending.
    at: Vec<CommitTs>,
    last_commit: CommitTs,
}

impl LiveSnapshots {
    pub(crate) fn new(at: Vec<CommitTs>, last_commit: CommitTs) -> Self {
        debug_assert!(at.is_sorted(), "points ascend");
        assert!(
            at.last().is_none_or(|newest| *newest <= last_commit),
            "no snapshot is of a commit to come"
        );
        Self { at, last_commit }
    }

    /// Whether no snapshot, registered or to come, sees the version. Versions
    /// stamped by transactions are kept: somebody will still stamp them.
    pub fn is_garbage(&self, begin: u64, end: u64) -> bool {
        if begin == ABORTED {
            return true;
        }
        let (Stamp::At(begin), Stamp::At(end)) = (Stamp::of(begin), Stamp::of(end)) else {
            return false;
        };
        let first_after = self.at.partition_point(|at| *at < begin);
        end <= self.last_commit && self.at.get(first_after).is_none_or(|at| *at >= end)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeMap;

    use rand::{Rng, SeedableRng, rngs::StdRng};

    use super::*;

    #[test]
    fn points_are_a_multiset() {
        for seed in 0..100 {
            let mut random = StdRng::seed_from_u64(seed);
            let (mut points, mut held) = (Points::default(), Vec::new());
            let mut newest = 0;
            for _ in 0..200 {
                newest += random.random_range(0..2);
                if held.is_empty() || random.random_bool(0.55) {
                    points.register(CommitTs(newest));
                    held.push(CommitTs(newest));
                } else {
                    points.release(held.swap_remove(random.random_range(0..held.len())));
                }
                let expected: BTreeMap<CommitTs, ()> = held.iter().map(|at| (*at, ())).collect();
                assert!(points.iter().eq(expected.keys().copied()), "seed {seed}");
                assert_eq!(points.oldest(), held.iter().min().copied(), "seed {seed}");
            }
        }
    }
}
