//! Which statements of a block its next statement sees.

use std::ops::Range;

use aerostat_types::TxnId;

/// Ids of one block's finished statements, ascending, as ranges. A block takes ids in
/// runs, so that thousands of statements are a few ranges; one that was undone is a gap.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnIds(Vec<Range<u64>>);

impl OwnIds {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds an id above all others.
    pub(crate) fn push(&mut self, id: TxnId) {
        assert!(Some(id) > self.last(), "a block's ids ascend");
        match self.0.last_mut() {
            Some(last) if last.end == id.0 => last.end += 1,
            _ => self.0.push(id.0..id.0 + 1),
        }
    }

    pub(crate) fn last(&self) -> Option<TxnId> {
        self.0.last().map(|last| TxnId(last.end - 1))
    }

    pub(crate) fn contains(&self, id: TxnId) -> bool {
        let after = self.0.partition_point(|range| range.start <= id.0);
        after > 0 && id.0 < self.0[after - 1].end
    }

    /// Takes `from` and all above it away.
    pub(crate) fn truncate(&mut self, from: TxnId) {
        let kept = self.0.partition_point(|range| range.start < from.0);
        self.0.truncate(kept);
        if let Some(last) = self.0.last_mut() {
            last.end = last.end.min(from.0);
        }
        assert!(
            self.last() < Some(from),
            "nothing from {from} on is left of a block's statements"
        );
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeSet;

    use rand::{Rng, SeedableRng, rngs::StdRng};

    use super::*;

    #[test]
    fn ranges_are_a_set() {
        for seed in 0..200 {
            let mut random = StdRng::seed_from_u64(seed);
            let (mut own, mut set) = (OwnIds::default(), BTreeSet::new());
            let mut next = 1;
            for _ in 0..60 {
                if random.random_bool(0.9) {
                    own.push(TxnId(next));
                    set.insert(next);
                    next += random.random_range(1..4);
                } else {
                    let from = random.random_range(0..next + 2);
                    own.truncate(TxnId(from));
                    set.retain(|id| *id < from);
                }
                assert_eq!(own.last(), set.last().copied().map(TxnId), "seed {seed}");
                assert_eq!(own.is_empty(), set.is_empty(), "seed {seed}");
                for id in 0..next + 2 {
                    assert_eq!(own.contains(TxnId(id)), set.contains(&id), "seed {seed}");
                }
            }
        }
    }

    #[test]
    fn neighbours_are_one_range() {
        let mut own = OwnIds::default();
        (5..100_005).for_each(|id| own.push(TxnId(id)));
        assert_eq!((own.0.len(), own.last()), (1, Some(TxnId(100_004))));
        own.truncate(TxnId(7));
        own.push(TxnId(9));
        assert_eq!(own.0, [5..7, 9..10]);
    }
}
