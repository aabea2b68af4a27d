//! The size of the next arena.

use aerostat_segment::{ARENA_BYTES_MAX, SegmentSchema};

/// Arena sizes in ascending order. Each is about four times the last, so a table
/// reaches full-size arenas after a handful of small ones, and a table of a few
/// rows maps 64 KiB: an idle tenant's catalogue must fit into 2 MiB.
const ARENA_BYTES: [usize; 5] = [64 << 10, 256 << 10, 1 << 20, 4 << 20, ARENA_BYTES_MAX];

/// The share of an arena that must be free after a rewrite, as a divisor: with
/// less than a third free the next rewrite would follow too soon; with more,
/// random inserts would leave segments emptier than a B-tree's two thirds.
const FREE_SHARE: usize = 3;

/// The sizes a table's arenas may have.
#[derive(Clone, Debug)]
pub(crate) struct ArenaSizes(Vec<usize>);

impl Default for ArenaSizes {
    fn default() -> Self {
        Self(ARENA_BYTES.to_vec())
    }
}

impl ArenaSizes {
    /// These and no others, in ascending order.
    pub(crate) fn of(bytes: &[usize]) -> Self {
        assert!(bytes.is_sorted() && !bytes.is_empty());
        Self(bytes.to_vec())
    }

    pub(crate) fn largest(&self) -> usize {
        *self.0.last().expect("there is at least one size")
    }

    /// The largest size of at most `bytes`, else the smallest.
    pub(crate) fn at_most(&self, bytes: usize) -> usize {
        let mut sizes = self.0.iter().rev().copied();
        sizes.find(|size| *size <= bytes).unwrap_or(self.0[0])
    }

    /// The next larger size.
    pub(crate) fn above(&self, bytes: usize) -> Option<usize> {
        self.0.iter().copied().find(|size| *size > bytes)
    }

    /// The smallest size of at least `bytes`, else the largest.
    pub(crate) fn at_least(&self, bytes: usize) -> usize {
        self.0
            .iter()
            .copied()
            .find(|size| *size >= bytes)
            .unwrap_or(self.largest())
    }

    /// The smallest size that holds these rows with a third of it free. `None` if none does.
    pub(crate) fn roomy(
        &self,
        schema: &SegmentSchema,
        rows: usize,
        heap_bytes: usize,
    ) -> Option<usize> {
        let widen = |n: usize| n + n / (FREE_SHARE - 1);
        self.fitting(schema, widen(rows) + 1, widen(heap_bytes))
    }

    /// The smallest size that holds these rows. `None` if none does.
    pub(crate) fn fitting(
        &self,
        schema: &SegmentSchema,
        rows: usize,
        heap_bytes: usize,
    ) -> Option<usize> {
        let needed = schema.arena_bytes_for(u32::try_from(rows).ok()?, heap_bytes)?;
        self.0.iter().copied().find(|size| *size >= needed)
    }
}
