//! Several conditions on codes at once, over the blocks of a vector: one bit per row while many
//! rows remain, then a list of the remaining rows.
//!
//! ```text
//!  vector    all rows ─► quantity < 25 ─► discount 1 to 3 ─► date is a key ─► part is a key
//!  bits      ████████    █ ██ █  ██ █     █  █    █          rows 7 19 60 … ─► 19 …
//!            whole blocks are tested                         codes are picked one by one
//! ```
//!
//! Between two conditions there is a kilobyte of bits or a short list, in the L1 cache. The list
//! covers a vector, not a block: each picked code is a cache miss, and only with many rows can
//! the next ones be prefetched in time.

use std::{borrow::Cow, ops::Range};

use crate::{
    Condition, Predicate, Selection, VECTOR_ROWS,
    format::nulls::Nulls,
    frozen::{
        Column, Frozen, Values,
        codes::{Codes, RunsPassing},
        filter::{keep_listed, passing},
    },
    input::condition::{Masks, Passing, SMALL_SET_WORDS, Test},
    kernel::{
        lane::BLOCK_CODES,
        selection::Collector,
        simd::{self, Kernel, Simd},
    },
};

/// Blocks of a vector.
const VECTOR_BLOCKS: usize = VECTOR_ROWS as usize / BLOCK_CODES;

/// From so many rows of a block on all of it is tested, where that takes a vector instruction
/// or two for 64 codes: it costs as much as a dozen codes found one by one.
const WHOLE_QUICK: u32 = 12;

/// As above, where words of a large set are gathered.
const WHOLE_GATHERED: u32 = 32;

/// One condition or several of one attribute, as a condition on its codes.
pub(crate) struct Part<'a> {
    attribute: usize,
    passing: Cow<'a, Passing>,
    /// How many it stands for.
    conditions: usize,
}

impl Frozen {
    /// The conditions from the first on that are conditions on codes; neighbours that are
    /// ranges of one attribute are one. They are for so many rows.
    pub(crate) fn parts<'a>(&self, conditions: &[Condition<'a>], rows: usize) -> Vec<Part<'a>> {
        let mut parts: Vec<Part<'a>> = Vec::with_capacity(conditions.len());
        for condition in conditions {
            let attribute = condition.attribute();
            let Some((column, passing)) = self.on_codes(condition, rows) else {
                break;
            };
            if let Some(last) = parts.last_mut()
                && last.attribute == attribute
                && let Some(both) = last.passing.and(&passing, column.codes_end)
            {
                last.passing = Cow::Owned(both);
                last.conditions += 1;
                continue;
            }
            parts.push(Part {
                attribute,
                passing,
                conditions: 1,
            });
        }
        parts
    }

    fn on_codes<'a>(
        &self,
        condition: &Condition<'a>,
        rows: usize,
    ) -> Option<(Column<'_>, Cow<'a, Passing>)> {
        let attribute = condition.attribute();
        if self.is_plain(attribute) {
            return None;
        }
        let column = self.column(attribute);
        let passing = match condition {
            Condition::Member(probe) => Cow::Borrowed(probe.passing()?),
            Condition::Predicate(predicate) => {
                let is_of_values = matches!(
                    predicate,
                    Predicate::Compare { .. } | Predicate::InList { .. }
                );
                if !is_of_values || matches!(column.values, Values::RowOrder(_)) {
                    return None;
                }
                Cow::Owned(match self.may_have(predicate) {
                    true => passing(&column, predicate, rows),
                    false => Passing::None,
                })
            }
        };
        Some((column, passing))
    }

    /// Keeps the selected rows that pass all parts, and tells how many are left after each
    /// condition, as long as there are some.
    pub(crate) fn keep_parts(
        &self,
        parts: &[Part<'_>],
        selection: &mut Selection,
        left: &mut dyn FnMut(usize, usize),
    ) {
        let mut first = 0;
        let mut tell = |part: &Part<'_>, rows: usize| {
            (first..first + part.conditions).for_each(|condition| left(condition, rows));
            first += part.conditions;
        };
        // Behind a part that nothing passes there is nothing to test.
        let end = parts.iter().position(|part| part.is_none());
        let tested = &parts[..end.unwrap_or(parts.len())];
        if let Selection::Range(rows) = selection
            && tested.len() > 1
        {
            let rows = rows.clone();
            let counts = self.keep_blocks(tested, rows, selection);
            for (part, rows) in tested.iter().zip(counts) {
                tell(part, rows);
            }
        } else {
            for part in tested {
                self.keep_passing(part.attribute, &part.passing, selection);
                tell(part, selection.len());
                if selection.is_empty() {
                    return;
                }
            }
        }
        if let Some(end) = end {
            selection.clear();
            tell(&parts[end], 0);
        }
    }

    /// Replaces the selection by the rows of a range that pass all parts, and gives how many
    /// are left after each.
    fn keep_blocks(
        &self,
        parts: &[Part<'_>],
        rows: Range<u32>,
        selection: &mut Selection,
    ) -> Vec<usize> {
        let mut tests: Vec<BlockTest<'_>> = parts
            .iter()
            .map(|part| {
                let codes = self.column(part.attribute).codes;
                let codes = codes.expect("coded values have codes");
                let test = match &*part.passing {
                    Passing::Some(test) => Some(test),
                    _ => None,
                };
                BlockTest {
                    whole_from: test.map_or(0, |test| whole_from(&codes, test)),
                    nulls: self.nulls_within(part.attribute, selection),
                    rows_all: self.rows(),
                    runs: RunsPassing::default(),
                    codes,
                    test,
                }
            })
            .collect();
        let mut counts = vec![0; parts.len()];
        let mut found = Collector::reusing(selection);
        let mut listed = Vec::new();
        let mut first = rows.start;
        while first < rows.end {
            let end = rows.end.min((first / VECTOR_ROWS + 1) * VECTOR_ROWS);
            simd::dispatch(KeepVector {
                tests: &mut tests,
                rows: first..end,
                counts: &mut counts,
                found: &mut found,
                listed: &mut listed,
            });
            first = end;
        }
        *selection = found.finish();
        counts
    }
}

impl Part<'_> {
    fn is_none(&self) -> bool {
        matches!(*self.passing, Passing::None)
    }
}

impl Passing {
    /// What passes this and another of the same codes, of `0..end`, if that is as simple.
    fn and(&self, other: &Passing, end: u128) -> Option<Passing> {
        match (self, other) {
            (Passing::None, _) | (_, Passing::None) => Some(Passing::None),
            (Passing::All, other) | (other, Passing::All) => Some(other.clone()),
            (Passing::Some(own), Passing::Some(other)) => {
                let both = own.within(other)?;
                Some(super::filter::range(both, end, false))
            }
        }
    }
}

/// From how many rows of a block on all of it is tested.
fn whole_from(codes: &Codes<'_>, test: &Test) -> u32 {
    match (codes, test) {
        // These are found one by one in any case.
        (Codes::Tuples(_), _) | (_, Test::List { .. } | Test::Table { shift: None, .. }) => {
            BLOCK_CODES as u32
        }
        (_, Test::Range { .. }) => WHOLE_QUICK,
        (_, Test::Bits { bits, .. }) if bits.len() <= SMALL_SET_WORDS => WHOLE_QUICK,
        _ => WHOLE_GATHERED,
    }
}

/// One part, for the rows of a segment.
struct BlockTest<'a> {
    codes: Codes<'a>,
    /// Without one, all values pass that are not NULL.
    test: Option<&'a Test>,
    nulls: Option<Nulls<'a>>,
    whole_from: u32,
    rows_all: u32,
    runs: RunsPassing,
}

impl BlockTest<'_> {
    /// Which rows of a block pass, NULL or not; of rows that there are not it means nothing.
    #[inline(always)]
    fn masks(&mut self, block: u32, masks: &mut Masks) {
        let runs = &mut self.runs;
        match self.test {
            Some(test) => self
                .codes
                .masks(block as usize, self.rows_all, test, runs, masks),
            None => *masks = [u64::MAX; BLOCK_CODES / 64],
        }
    }

    /// Clears the bits of rows that are NULL.
    #[inline(always)]
    fn clear_nulls(&self, block: u32, masks: &mut Masks) {
        if let Some(nulls) = self.nulls {
            let base = block * BLOCK_CODES as u32;
            for (nth, mask) in masks.iter_mut().enumerate().filter(|(_, mask)| **mask != 0) {
                *mask &= !nulls.word(base + nth as u32 * 64);
            }
        }
    }
}

/// Tests the blocks of a vector.
struct KeepVector<'a, 't> {
    tests: &'a mut [BlockTest<'t>],
    /// Of one vector; not empty.
    rows: Range<u32>,
    counts: &'a mut [usize],
    found: &'a mut Collector,
    /// Memory for a list of rows.
    listed: &'a mut Vec<u32>,
}

impl Kernel for KeepVector<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let first = self.rows.start / BLOCK_CODES as u32;
        let blocks = self.rows.end.div_ceil(BLOCK_CODES as u32) - first;
        let mut all = [Masks::default(); VECTOR_BLOCKS];
        let all = &mut all[..blocks as usize];
        // The rows of a word of masks begin here.
        let base = |nth: usize| first * BLOCK_CODES as u32 + nth as u32 * 64;
        for (nth, mask) in all.as_flattened_mut().iter_mut().enumerate() {
            *mask = within(base(nth), &self.rows);
        }
        let mut own = [Masks::default(); VECTOR_BLOCKS];
        let mut rows_left = [BLOCK_CODES as u32; VECTOR_BLOCKS];
        let (mut left, mut blocks_left) = (self.rows.len() as u32, blocks);
        for (nth, test) in self.tests.iter_mut().enumerate() {
            if left < blocks_left * test.whole_from {
                self.listed.clear();
                for (nth, &mask) in all.as_flattened().iter().enumerate() {
                    simd.push_rows(self.listed, base(nth), mask);
                }
                let counts = &mut self.counts[nth..];
                for (test, counted) in self.tests[nth..].iter().zip(counts) {
                    keep_listed(&test.codes, test.test, test.nulls, self.listed);
                    *counted += self.listed.len();
                    if self.listed.is_empty() {
                        return;
                    }
                }
                return self.found.push_listed(self.listed);
            }
            // All blocks before any is read again: what was just stored is not to be had yet.
            for (nth, masks) in own.iter_mut().enumerate().take(all.len()) {
                if rows_left[nth] > 0 {
                    test.masks(first + nth as u32, masks);
                }
            }
            (left, blocks_left) = (0, 0);
            for (at, (masks, own)) in all.iter_mut().zip(&own).enumerate() {
                if rows_left[at] > 0 {
                    for (mask, own) in masks.iter_mut().zip(own) {
                        *mask &= own;
                    }
                    test.clear_nulls(first + at as u32, masks);
                    let rows = count(masks);
                    rows_left[at] = rows;
                    (left, blocks_left) = (left + rows, blocks_left + u32::from(rows > 0));
                }
            }
            self.counts[nth] += left as usize;
            if left == 0 {
                return;
            }
        }
        for (nth, &mask) in all.as_flattened().iter().enumerate() {
            self.found.push_mask_with(simd, base(nth), mask);
        }
    }
}

#[inline(always)]
fn count(masks: &Masks) -> u32 {
    masks.iter().map(|mask| mask.count_ones()).sum()
}

/// The bits of those of 64 rows that are in a range.
#[inline(always)]
fn within(base: u32, rows: &Range<u32>) -> u64 {
    let (from, to) = (rows.start.max(base), rows.end.min(base + 64));
    if from >= to {
        return 0;
    }
    (u64::MAX >> (64 - (to - from))) << (from - base)
}
