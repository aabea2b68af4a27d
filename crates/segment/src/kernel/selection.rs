//! Selections: which rows of a segment a scan still considers.

use std::ops::Range;

use crate::kernel::simd::{self, Simd};

/// Ascending row numbers of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All rows of a range.
    Range(Range<u32>),
    /// These rows, ascending, none twice.
    Rows(Vec<u32>),
}

impl Default for Selection {
    /// No row.
    fn default() -> Selection {
        Selection::Range(0..0)
    }
}

impl Selection {
    /// Rows in the order given; as a range if they lie side by side in it, for those of
    /// columns are not copied where they are gathered.
    pub fn of_rows(rows: Vec<u32>) -> Selection {
        match rows[..] {
            [first, .., last] if rows.is_sorted_by(|a, b| a + 1 == *b) => {
                Selection::Range(first..last + 1)
            }
            _ => Selection::Rows(rows),
        }
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        match self {
            Selection::Range(rows) => rows.len(),
            Selection::Rows(rows) => rows.len(),
        }
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The rows in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        (0..self.len()).map(|at| match self {
            Selection::Range(rows) => rows.start + at as u32,
            Selection::Rows(rows) => rows[at],
        })
    }

    /// The least row.
    pub fn first(&self) -> Option<u32> {
        match self {
            Selection::Range(rows) => (!rows.is_empty()).then_some(rows.start),
            Selection::Rows(rows) => rows.first().copied(),
        }
    }

    /// The greatest row.
    pub fn last(&self) -> Option<u32> {
        match self {
            Selection::Range(rows) => (!rows.is_empty()).then(|| rows.end - 1),
            Selection::Rows(rows) => rows.last().copied(),
        }
    }

    /// Keeps the first `len` rows.
    pub fn truncate(&mut self, len: usize) {
        match self {
            Selection::Range(rows) => {
                if len < rows.len() {
                    rows.end = rows.start + len as u32;
                }
            }
            Selection::Rows(rows) => rows.truncate(len),
        }
    }

    /// The rows in parts of at most so many.
    pub fn split(self, rows_max: usize) -> Vec<Selection> {
        match self {
            all if all.len() <= rows_max => vec![all],
            Selection::Range(all) => {
                let part = |first| first..all.end.min(first + rows_max as u32);
                let firsts = all.clone().step_by(rows_max);
                firsts.map(|first| Selection::Range(part(first))).collect()
            }
            Selection::Rows(all) => {
                let parts = all.chunks(rows_max);
                parts.map(|part| Selection::Rows(part.to_vec())).collect()
            }
        }
    }

    /// Removes all rows.
    pub(crate) fn clear(&mut self) {
        match self {
            Selection::Range(rows) => *rows = 0..0,
            Selection::Rows(rows) => rows.clear(),
        }
    }
}

/// Collects ascending rows; stays a range as long as they are one.
pub(crate) struct Collector {
    /// Used once the rows are more than one run.
    rows: Vec<u32>,
    /// All rows so far, while `rows` is empty.
    run: Range<u32>,
}

impl Collector {
    /// An empty collector that takes over the selection's memory.
    pub(crate) fn reusing(selection: &mut Selection) -> Collector {
        let mut rows = match std::mem::take(selection) {
            Selection::Rows(rows) => rows,
            Selection::Range(_) => Vec::new(),
        };
        rows.clear();
        Collector { rows, run: 0..0 }
    }

    /// Adds all rows of a range.
    pub(crate) fn push_run(&mut self, run: Range<u32>) {
        if !self.rows.is_empty() {
            self.rows.extend(run);
        } else if self.run.is_empty() {
            self.run = run;
        } else if self.run.end == run.start {
            self.run.end = run.end;
        } else {
            self.rows.extend(self.run.clone());
            self.rows.extend(run);
        }
    }

    /// Adds rows that are behind all so far, at least one.
    pub(crate) fn push_listed(&mut self, rows: &[u32]) {
        if self.rows.is_empty() {
            self.rows.extend(self.run.clone());
        }
        self.rows.extend_from_slice(rows);
    }

    /// Adds row `base + i` for each bit `i`.
    pub(crate) fn push_mask(&mut self, base: u32, mask: u64) {
        if !self.push_if_run(base, mask) {
            simd::push_rows(&mut self.rows, base, mask);
        }
    }

    /// As [`Collector::push_mask`], in a loop that is compiled for the machine.
    #[inline(always)]
    pub(crate) fn push_mask_with<S: Simd>(&mut self, simd: S, base: u32, mask: u64) {
        // Once the rows are a list, whether 64 of them are one run is of no use.
        if !self.rows.is_empty() || !self.push_if_run(base, mask) {
            simd.push_rows(&mut self.rows, base, mask);
        }
    }

    /// Adds the rows of a mask whose bits are none or one run; for others makes ready.
    #[inline(always)]
    fn push_if_run(&mut self, base: u32, mask: u64) -> bool {
        if mask == 0 {
            return true;
        }
        let (first, count) = (mask.trailing_zeros(), mask.count_ones());
        if (mask >> first).trailing_ones() == count {
            self.push_run(base + first..base + first + count);
            return true;
        }
        if self.rows.is_empty() {
            self.rows.extend(self.run.clone());
        }
        false
    }

    pub(crate) fn finish(self) -> Selection {
        if self.rows.is_empty() {
            Selection::Range(self.run)
        } else {
            Selection::Rows(self.rows)
        }
    }
}

/// Narrows a selection: a range by masks of 64 rows from a multiple of 64 on,
/// of which only the given rows count; rows one by one.
pub(crate) fn retain(
    selection: &mut Selection,
    mut mask: impl FnMut(u32, Range<u32>) -> u64,
    test: impl Fn(u32) -> bool,
) {
    match selection {
        Selection::Rows(rows) => {
            let mut kept = 0;
            for at in 0..rows.len() {
                let row = rows[at];
                rows[kept] = row;
                kept += usize::from(test(row));
            }
            rows.truncate(kept);
        }
        Selection::Range(rows) => {
            let rows = rows.clone();
            let mut found = Collector::reusing(selection);
            let mut from = rows.start;
            while from < rows.end {
                let base = from & !63;
                let to = rows.end.min(base + 64);
                let inside = (u64::MAX >> (64 - (to - from))) << (from - base);
                found.push_mask(base, mask(base, from..to) & inside);
                from = to;
            }
            *selection = found.finish();
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn runs_that_meet_stay_a_range() {
        let mut collector = Collector::reusing(&mut Selection::default());
        collector.push_mask(0, 0b1110);
        collector.push_run(4..70);
        collector.push_mask(64, 0b1100_0000);
        assert_eq!(collector.finish(), Selection::Range(1..72));
    }

    #[test]
    fn runs_that_do_not_become_rows() {
        let mut collector = Collector::reusing(&mut Selection::default());
        collector.push_run(3..5);
        collector.push_mask(64, 0b101);
        collector.push_run(70..72);
        let selection = collector.finish();
        assert_eq!(selection, Selection::Rows(vec![3, 4, 64, 66, 70, 71]));
        assert_eq!(selection.iter().collect::<Vec<_>>(), [3, 4, 64, 66, 70, 71]);
        assert_eq!((selection.first(), selection.last()), (Some(3), Some(71)));
    }

    #[test]
    fn rows_are_split_in_order() {
        let range = Selection::Range(3..13);
        let parts = [3..7, 7..11, 11..13].map(Selection::Range);
        assert_eq!(range.clone().split(4), parts);
        assert_eq!(range.clone().split(10), [range]);
        let rows = Selection::Rows(vec![1, 5, 6]);
        let parts = [vec![1, 5], vec![6]].map(Selection::Rows);
        assert_eq!(rows.clone().split(2), parts);
        assert_eq!(rows.clone().split(3), [rows]);
    }
}
