//! Conditions on codes, several at once: a block of 512 rows passes all of them, a bit for each
//! row, before the next block begins.
//!
//! ```text
//!  block     all rows ─► quantity < 25 ─► discount 1 to 3 ─► date is a key ─► rows
//!  bits      ████████    █ ██ █  ██ █     █  █    █          █
//!            whole blocks are tested, as long as many rows are left; then one by one
//! ```
//!
//! So what is between two conditions stays in the L1 cache and is never a list.

use std::{borrow::Cow, ops::Range};

use crate::{
    Condition, Predicate, Selection,
    frozen::{
        Column, Frozen, Values,
        codes::{Codes, RunsPassing},
        condition::{Masks, SMALL_SET_WORDS, Test},
        filter::{Passing, passing},
        pack::{BLOCK_CODES, Decode, Lane},
    },
    nulls::Nulls,
    selection::Collector,
    simd::{self, Kernel, Simd},
};

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
        if !rows.is_empty() {
            simd::dispatch(KeepBlocks {
                tests: &mut tests,
                rows,
                counts: &mut counts,
                found: &mut found,
            });
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
        (Codes::Tuples(_), _) | (_, Test::List { .. } | Test::Table { .. }) => BLOCK_CODES as u32,
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
    /// Keeps those of `left` rows of a block that pass.
    #[inline(always)]
    fn keep(&mut self, block: u32, left: u32, masks: &mut Masks) {
        let base = block * BLOCK_CODES as u32;
        if let Some(test) = self.test {
            if left >= self.whole_from {
                let mut own = Masks::default();
                self.codes.masks(
                    block as usize,
                    self.rows_all,
                    test,
                    &mut self.runs,
                    &mut own,
                );
                for (mask, own) in masks.iter_mut().zip(own) {
                    *mask &= own;
                }
            } else {
                self.keep_each(test, base, masks);
            }
        }
        if let Some(nulls) = self.nulls {
            for (nth, mask) in masks.iter_mut().enumerate().filter(|(_, mask)| **mask != 0) {
                *mask &= !nulls.word(base + nth as u32 * 64);
            }
        }
    }

    /// Looks at the rows that are left one by one.
    fn keep_each(&self, test: &Test, base: u32, masks: &mut Masks) {
        let mut rows = [0u32; BLOCK_CODES];
        let mut len = 0;
        for (nth, &mask) in masks.iter().enumerate() {
            let mut rest = mask;
            while rest != 0 {
                rows[len] = base + nth as u32 * 64 + rest.trailing_zeros();
                (rest, len) = (rest & (rest - 1), len + 1);
            }
        }
        let mut cleared = Cleared {
            test,
            rows: &rows[..len],
            masks,
        };
        self.codes.pick(&rows[..len], &mut cleared);
    }
}

/// Clears the bits of rows whose codes do not pass, as they come.
struct Cleared<'a> {
    test: &'a Test,
    /// Whose codes are still to come.
    rows: &'a [u32],
    masks: &'a mut Masks,
}

impl Decode for Cleared<'_> {
    #[inline]
    fn codes<L: Lane>(&mut self, codes: &[L]) {
        let (rows, rest) = self.rows.split_at(codes.len());
        self.rows = rest;
        for (&row, &code) in rows.iter().zip(codes) {
            let within = row as usize % BLOCK_CODES;
            let fails = u64::from(!self.test.passes(code.into()));
            self.masks[within / 64] &= !(fails << (within % 64));
        }
    }
}

/// Tests block after block.
struct KeepBlocks<'a, 't> {
    tests: &'a mut [BlockTest<'t>],
    /// Not empty.
    rows: Range<u32>,
    counts: &'a mut [usize],
    found: &'a mut Collector,
}

impl Kernel for KeepBlocks<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let blocks =
            self.rows.start / BLOCK_CODES as u32..self.rows.end.div_ceil(BLOCK_CODES as u32);
        for block in blocks {
            let base = block * BLOCK_CODES as u32;
            let mut masks = Masks::default();
            for (nth, mask) in masks.iter_mut().enumerate() {
                *mask = within(base + nth as u32 * 64, &self.rows);
            }
            let mut left = count(&masks);
            for (test, counted) in self.tests.iter_mut().zip(self.counts.iter_mut()) {
                test.keep(block, left, &mut masks);
                left = count(&masks);
                *counted += left as usize;
                if left == 0 {
                    break;
                }
            }
            if left > 0 {
                for (nth, &mask) in masks.iter().enumerate() {
                    self.found
                        .push_mask_with(simd, base + nth as u32 * 64, mask);
                }
            }
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
