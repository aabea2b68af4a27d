//! Secondary indexes of a frozen segment: the rows in order of their keys, packed, and a Bloom
//! filter of the keys where single keys are looked up.
//!
//! A binary search decodes and compares the values of some twenty rows.

use std::{
    cmp::Ordering,
    ops::{ControlFlow, Range},
};

use crate::{
    IndexSpec, KeyRef, Keys,
    frozen::{
        Frozen, bloom,
        find::put_row,
        lanes::LaneVec,
        pack::{Packed, pack},
        plan::{index_bytes, row_width},
        search::bisect,
    },
    input::key::Comparer,
    kernel::hash::hash_bytes,
    secondary::search::KeySpan,
};

/// The content of the two areas.
pub(crate) fn encode(index: &IndexSpec, keys: &Keys) -> (Vec<u8>, Vec<u8>) {
    let rows = keys.len() as u32;
    let width = row_width(rows);
    let packed = pack(
        &LaneVec::of(&keys.order(), width, |row: u32| row.into()),
        width,
    );
    let (_, bloom_bytes) = index_bytes(index, rows);
    let bloom = if bloom_bytes == 0 {
        Vec::new()
    } else {
        let hashes: Vec<u64> = keys.iter().map(|key| hash_bytes(key.0)).collect();
        bloom::build(&hashes)
    };
    (packed, bloom)
}

impl Frozen {
    /// See [`crate::Pinned::find_indexed`].
    pub(crate) fn find_indexed(
        &self,
        index: usize,
        key: KeyRef<'_>,
        f: &mut dyn FnMut(u32) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        if !self.may_have_indexed(index, key) {
            return ControlFlow::Continue(());
        }
        let first = self.indexed_before(index, key.0);
        (first..self.rows() as usize)
            .map(|at| self.indexed_row(index, at))
            .take_while(|&row| self.compare_indexed(index, row, key.0).is_eq())
            .try_for_each(f)
    }

    /// Whether a row may have the key, as far as the index's Bloom filter tells.
    pub(crate) fn may_have_indexed(&self, index: usize, key: KeyRef<'_>) -> bool {
        let bloom = self.arena.values::<u64>(self.plan().indexes[index].bloom);
        bloom::may_have_hash(bloom, || hash_bytes(key.0))
    }

    /// The positions, in order of keys, of the rows whose keys are in the span.
    pub(crate) fn indexed_between(&self, index: usize, span: &KeySpan) -> Range<usize> {
        let first = self.indexed_before(index, &span.lower);
        let end = match &span.upper {
            Some(upper) => self.indexed_before(index, upper),
            None => self.rows() as usize,
        };
        first..end.max(first)
    }

    /// The row at a position in order of keys.
    pub(crate) fn indexed_row(&self, index: usize, at: usize) -> u32 {
        self.indexed_rows(index).get(at) as u32
    }

    fn indexed_rows(&self, index: usize) -> Packed<'_> {
        let area = self.plan().indexes[index].rows;
        self.arena.packed(area, row_width(self.rows()))
    }

    /// How many rows have a key below this.
    fn indexed_before(&self, index: usize, key: &[u8]) -> usize {
        bisect(0..self.rows() as usize, |at| {
            let row = self.indexed_row(index, at);
            self.compare_indexed(index, row, key).is_lt()
        })
    }

    fn compare_indexed(&self, index: usize, row: u32, key: &[u8]) -> Ordering {
        let mut comparer = Comparer::with(key);
        let attributes = &self.schema.indexes()[index].attributes;
        put_row(self, attributes, row, &mut comparer);
        comparer.order()
    }

    /// Whether an index has every row once.
    pub(crate) fn is_permutation(&self, index: usize) -> bool {
        let mut seen = vec![false; self.rows() as usize];
        (0..seen.len()).all(|at| {
            let row = self.indexed_row(index, at) as usize;
            seen.get_mut(row)
                .is_some_and(|seen| !std::mem::replace(seen, true))
        })
    }
}
