//! Conditions: from a caller's request to the test that is applied.
//!
//! ```text
//!  Condition   a predicate ─────────────┐ literals are looked up in the attribute's dictionary
//!              or a Probe ───────────┐  │
//!              (table, attribute)    ▼  ▼
//!  Passing     all rows pass, or none, or those whose codes pass a Test:
//!  Test        a range, a set, a list, or a table of codes ─► a bit per code
//! ```
//!
//! Values in slots have no codes: they are compared one by one (`filter`).

use std::{ops::Range, sync::Arc};

use crate::{
    LookupTable, Predicate,
    kernel::{
        lane::{BLOCK_CODES, Lane, Narrow},
        simd::{self, Kernel, Simd},
    },
};

/// What a row must satisfy.
#[derive(Clone, Copy, Debug)]
pub enum Condition<'a> {
    /// This is true of it.
    Predicate(&'a Predicate),
    /// Its value is a key of the table.
    Member(&'a Probe),
}

impl Condition<'_> {
    /// The attribute it looks at.
    pub fn attribute(&self) -> usize {
        match self {
            Condition::Predicate(predicate) => predicate.attribute(),
            Condition::Member(probe) => probe.attribute(),
        }
    }
}

/// A lookup table and the attribute of one segment whose values are its keys.
#[derive(Debug)]
pub struct Probe {
    pub(crate) attribute: usize,
    pub(crate) table: Arc<LookupTable>,
    /// What it is on codes; `None` of an attribute that has none.
    pub(crate) on_codes: Option<OnCodes>,
}

impl Probe {
    /// The attribute it looks at.
    pub fn attribute(&self) -> usize {
        self.attribute
    }

    /// The condition on codes that it is, if there are codes.
    pub(crate) fn passing(&self) -> Option<&Passing> {
        Some(&self.on_codes.as_ref()?.passing)
    }
}

/// What a lookup table is on the codes of an attribute.
#[derive(Debug)]
pub(crate) struct OnCodes {
    pub(crate) passing: Passing,
    /// The table's code for each of the attribute's.
    pub(crate) translated: Option<Vec<u32>>,
}

/// Which rows pass, as far as the dictionary tells.
#[derive(Clone, Debug)]
pub(crate) enum Passing {
    None,
    All,
    Some(Test),
}

/// A bit per code of a block.
pub(crate) type Masks = [u64; BLOCK_CODES / 64];

/// Words of a set that is looked up in registers: 512 bytes, eight of the largest.
pub(crate) const SMALL_SET_WORDS: usize = 64;

/// A condition on codes.
#[derive(Clone, Debug)]
pub(crate) enum Test {
    /// Codes from `low` to `low + span`, or all others.
    Range { low: u64, span: u64, negated: bool },
    /// Codes whose bit is set, or all others. Codes beyond the bits are not in the set.
    Bits { bits: Vec<u64>, negated: bool },
    /// Codes of this sorted list, or all others.
    List { codes: Vec<u64>, negated: bool },
    /// Codes that are the difference of a table's key and `base`. With a shift they are members
    /// of the table's bits, [shifted](LookupTable::shift_from), and have at most 32 bits.
    Table {
        table: Arc<LookupTable>,
        base: i64,
        shift: Option<u32>,
    },
}

impl Test {
    /// The codes that pass this test and another, if both are ranges.
    pub(crate) fn within(&self, other: &Test) -> Option<Range<u128>> {
        let codes = |test: &Test| match test {
            Test::Range {
                low,
                span,
                negated: false,
            } => Some(u128::from(*low)..u128::from(*low) + u128::from(*span) + 1),
            _ => None,
        };
        let (own, other) = (codes(self)?, codes(other)?);
        let start = own.start.max(other.start);
        Some(start..own.end.min(other.end).max(start))
    }

    /// Whether a code passes.
    #[inline]
    pub(crate) fn passes(&self, code: u64) -> bool {
        match self {
            Test::Range { low, span, negated } => (code.wrapping_sub(*low) <= *span) != *negated,
            Test::Bits { bits, negated } => has(bits, code) != *negated,
            Test::List { codes, negated } => codes.binary_search(&code).is_ok() != *negated,
            Test::Table { table, base, .. } => table.contains(base.wrapping_add(code as i64)),
        }
    }

    /// Which codes of a block pass. `low` and `low + span` of a range are codes of the
    /// attribute, so they fit the lane.
    #[inline(always)]
    pub(crate) fn masks<S: Simd, L: Lane>(
        &self,
        simd: S,
        codes: &[L; BLOCK_CODES],
        masks: &mut Masks,
    ) {
        let negated = match self {
            Test::Range { low, span, negated } => {
                let (low, span) = (L::low(*low), L::low(*span));
                each(simd, codes, masks, |code| code.wrapping_sub(low) <= span);
                *negated
            }
            Test::Bits { bits, negated } => {
                match L::narrow(codes) {
                    Narrow::Bytes(codes) => in_set(simd, codes, bits, masks),
                    Narrow::Words(codes) if bits.len() <= SMALL_SET_WORDS => {
                        in_small_set(simd, codes, bits, masks);
                    }
                    _ if L::BITS <= 32 => members(simd, codes, 0, bits, masks),
                    _ => each(simd, codes, masks, |code| has(bits, code.into())),
                }
                *negated
            }
            Test::List {
                codes: list,
                negated,
            } => {
                each(simd, codes, masks, |code| {
                    list.binary_search(&code.into()).is_ok()
                });
                *negated
            }
            Test::Table {
                table,
                shift: Some(shift),
                ..
            } if L::BITS <= 32 => {
                members(simd, codes, *shift, table.bits(), masks);
                false
            }
            Test::Table { table, base, .. } => {
                each(simd, codes, masks, |code| {
                    table.contains(base.wrapping_add(code.into() as i64))
                });
                false
            }
        };
        if negated {
            masks.iter_mut().for_each(|mask| *mask = !*mask);
        }
    }

    /// Which of at most 64 codes pass.
    #[inline(always)]
    fn hits<S: Simd, L: Lane>(&self, simd: S, codes: &[L]) -> u64 {
        let wanted = u64::MAX >> (64 - codes.len());
        let members = match self {
            Test::Bits { bits, negated } => Some((bits.as_slice(), 0, *negated)),
            Test::Table { table, shift, .. } => shift.map(|shift| (table.bits(), shift, false)),
            _ => None,
        };
        if let (Some((bits, shift, negated)), true) = (members, L::BITS <= 32) {
            let mut wide = [0; 64];
            for (wide, &code) in wide.iter_mut().zip(codes) {
                *wide = (code.into() as u32).wrapping_add(shift);
            }
            let members = simd.are_members(&wide[..codes.len().next_multiple_of(16)], bits);
            return (members ^ u64::from(negated).wrapping_neg()) & wanted;
        }
        let mut hits = [0u8; 64];
        if let Test::Range { low, span, negated } = self {
            // Written out, for this loop vectorises.
            for (hit, &code) in hits.iter_mut().zip(codes) {
                let passes = (code.into().wrapping_sub(*low) <= *span) != *negated;
                *hit = u8::from(passes);
            }
        } else {
            for (hit, &code) in hits.iter_mut().zip(codes) {
                *hit = u8::from(self.passes(code.into()));
            }
        }
        simd.bits_of(&hits)
    }

    /// Which of at most 64 codes pass, of codes that are unpacked already.
    pub(crate) fn hits_of<L: Lane>(&self, codes: &[L]) -> u64 {
        struct Tested<'a, L>(&'a Test, &'a [L]);
        impl<L: Lane> Kernel for Tested<'_, L> {
            type Output = u64;
            #[inline(always)]
            fn run<S: Simd>(self, simd: S) -> u64 {
                self.0.hits(simd, self.1)
            }
        }
        simd::dispatch(Tested(self, codes))
    }

    /// Which codes of a block pass, of codes that are unpacked already.
    pub(crate) fn masks_of<L: Lane>(&self, codes: &[L; BLOCK_CODES], masks: &mut Masks) {
        struct Tested<'a, L>(&'a Test, &'a [L; BLOCK_CODES], &'a mut Masks);
        impl<L: Lane> Kernel for Tested<'_, L> {
            type Output = ();
            #[inline(always)]
            fn run<S: Simd>(self, simd: S) {
                self.0.masks(simd, self.1, self.2);
            }
        }
        simd::dispatch(Tested(self, codes, masks));
    }
}

#[inline]
fn has(bits: &[u64], code: u64) -> bool {
    let word = bits.get((code / 64) as usize);
    word.is_some_and(|word| word >> (code % 64) & 1 == 1)
}

#[inline(always)]
fn each<S: Simd, L: Lane>(
    simd: S,
    codes: &[L; BLOCK_CODES],
    masks: &mut Masks,
    passes: impl Fn(L) -> bool,
) {
    for (mask, codes) in masks.iter_mut().zip(codes.as_chunks::<64>().0) {
        let mut hits = [0u8; 64];
        for (hit, &code) in hits.iter_mut().zip(codes) {
            *hit = u8::from(passes(code));
        }
        *mask = simd.bits_of(&hits);
    }
}

/// Codes of at most 32 bits, shifted: their words are gathered.
#[inline(always)]
fn members<S: Simd, L: Lane>(
    simd: S,
    codes: &[L; BLOCK_CODES],
    shift: u32,
    bits: &[u64],
    masks: &mut Masks,
) {
    for (mask, codes) in masks.iter_mut().zip(codes.as_chunks::<64>().0) {
        let mut wide = [0; 64];
        for (wide, &code) in wide.iter_mut().zip(codes) {
            *wide = (code.into() as u32).wrapping_add(shift);
        }
        *mask = simd.are_members(&wide, bits);
    }
}

/// Codes of two bytes, and a set of the first 4,096 of them or of fewer.
#[inline(always)]
fn in_small_set<S: Simd>(simd: S, codes: &[u16; BLOCK_CODES], bits: &[u64], masks: &mut Masks) {
    // Each with a loop of its own, which keeps the set in registers.
    match bits.len() {
        ..=16 => in_words::<S, 64>(simd, codes, bits, masks),
        17..=32 => in_words::<S, 128>(simd, codes, bits, masks),
        _ => in_words::<S, 256>(simd, codes, bits, masks),
    }
}

#[inline(always)]
fn in_words<S: Simd, const WORDS: usize>(
    simd: S,
    codes: &[u16; BLOCK_CODES],
    bits: &[u64],
    masks: &mut Masks,
) {
    let mut set = [0u16; WORDS];
    for (to, word) in set.as_chunks_mut::<4>().0.iter_mut().zip(bits) {
        *to = [
            *word as u16,
            (word >> 16) as u16,
            (word >> 32) as u16,
            (word >> 48) as u16,
        ];
    }
    for (mask, codes) in masks.iter_mut().zip(codes.as_chunks::<64>().0) {
        *mask = simd.in_small_set(codes, &set);
    }
}

/// Codes of a byte: there are 256, so the set is 32 bytes.
#[inline(always)]
fn in_set<S: Simd>(simd: S, codes: &[u8; BLOCK_CODES], bits: &[u64], masks: &mut Masks) {
    let mut set = [0u8; 32];
    for (to, word) in set.as_chunks_mut::<8>().0.iter_mut().zip(bits) {
        *to = word.to_le_bytes();
    }
    for (mask, codes) in masks.iter_mut().zip(codes.as_chunks::<64>().0) {
        *mask = simd.in_set(codes, &set);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{kernel::simd::Baseline, model::Random};

    /// The compiled versions, and codes tested one by one, agree.
    fn check<L: Lane>(test: &Test, codes: &[L; BLOCK_CODES]) {
        let (mut best, mut plain) = (Masks::default(), Masks::default());
        test.masks_of(codes, &mut best);
        test.masks(Baseline, codes, &mut plain);
        assert_eq!(best, plain, "{test:?}");
        for len in [1, 15, 16, 40, 64] {
            let hits = test.hits_of(&codes[..len]);
            assert_eq!(hits, best[0] & u64::MAX >> (64 - len), "{test:?}");
        }
        for (at, &code) in codes.iter().enumerate() {
            let passes = best[at / 64] >> (at % 64) & 1 == 1;
            assert_eq!(
                passes,
                test.passes(code.into()),
                "{test:?} of {:?}",
                code.into()
            );
        }
    }

    #[test]
    fn blocks_are_tested_as_their_codes_are() {
        let mut random = Random(8);
        for _ in 0..40 {
            let bits = random.below(8) as u32 + 1;
            let max = (1 << bits) - 1;
            let low = random.below(max + 1);
            let span = random.below(max - low + 1);
            let mut codes: Vec<u64> = (0..random.below(9) + 1)
                .map(|_| random.next() & max)
                .collect();
            codes.sort_unstable();
            codes.dedup();
            let mut set = vec![0; random.pick(&[1, max as usize / 64 + 1])];
            for &code in &codes {
                if let Some(word) = set.get_mut(code as usize / 64) {
                    *word |= 1 << (code % 64);
                }
            }
            for negated in [false, true] {
                for test in [
                    Test::Range { low, span, negated },
                    Test::Bits {
                        bits: set.clone(),
                        negated,
                    },
                    Test::List {
                        codes: codes.clone(),
                        negated,
                    },
                ] {
                    let own: [u64; BLOCK_CODES] = std::array::from_fn(|_| random.next() & max);
                    check(&test, &own);
                    check(&test, &own.map(|code| code as u32));
                    check(&test, &own.map(|code| code as u16));
                    check(&test, &own.map(|code| code as u8));
                }
            }
        }
    }

    #[test]
    fn tables_are_their_bits_shifted() {
        let mut random = Random(5);
        for _ in 0..if cfg!(miri) { 2 } else { 60 } {
            let first = random.pick(&[0, -70_000, 1 << 40, i64::MIN]);
            let spread = random.pick(&[300, 70_000, 1 << 33]);
            let keys: BTreeSet<i64> = (0..300)
                .map(|_| first + random.below(spread) as i64)
                .collect();
            let keys: Vec<i64> = keys.into_iter().collect();
            let table = Arc::new(LookupTable::new(&keys, None).unwrap());
            // Before the table, within, behind, and far off.
            for ahead in [-90_000, -70, 0, 5, 400, 90_000, 1 << 31] {
                let base = keys[0].saturating_add(ahead);
                let shift = table.shift_from(base.into(), 1 << 17);
                let is_near = ahead < 1 << 31 && table.is_dense();
                assert_eq!(shift.is_some(), is_near, "{first} {spread} {ahead}");
                let test = Test::Table {
                    table: Arc::clone(&table),
                    base,
                    shift,
                };
                let own: [u64; BLOCK_CODES] = std::array::from_fn(|_| {
                    let key = random.pick(&keys).wrapping_sub(base) as u64;
                    key.wrapping_add(random.below(2)) % (1 << 17)
                });
                check(&test, &own);
                check(&test, &own.map(|code| code as u32));
                check(&test, &own.map(|code| code as u16));
                check(&test, &own.map(|code| code as u8));
            }
        }
    }
}
