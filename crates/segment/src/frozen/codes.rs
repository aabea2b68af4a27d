//! The codes of an attribute, wherever they are: packed, per run, or in tuples.

use std::ops::Range;

use crate::frozen::{
    pack::{self, BLOCK_CODES, Lane, Masks, Packed, Visitor},
    plan::RANK_ROWS,
};

const _: () = assert!(RANK_ROWS == BLOCK_CODES);

/// The codes of an attribute's rows.
pub(crate) enum Codes<'a> {
    Packed(Packed<'a>),
    Runs(Runs<'a>),
    Tuples(Tuples<'a>),
}

/// A code per run of equal codes.
pub(crate) struct Runs<'a> {
    /// A bit per row: a run starts here.
    pub(crate) starts: &'a [u64],
    /// For every 512 rows, how many runs start before.
    pub(crate) ranks: &'a [u32],
    pub(crate) codes: Packed<'a>,
}

impl Runs<'_> {
    /// The number of the run that has the row.
    fn run(&self, row: usize) -> usize {
        let block = row / RANK_ROWS;
        let (first, at) = (block * RANK_ROWS / 64, row / 64);
        let whole: u32 = self.starts[first..at]
            .iter()
            .map(|word| word.count_ones())
            .sum();
        let within = self.starts[at] & (u64::MAX >> (63 - row % 64));
        // Row 0 starts a run, so there is at least one.
        (self.ranks[block] + whole + within.count_ones()) as usize - 1
    }

    /// Bits of a block, by testing each run once and filling from start to start.
    fn masks(&self, block: usize, test: &Test, masks: &mut Masks) {
        let first = block * RANK_ROWS / 64;
        let mut run = self.ranks[block] as usize;
        // The block may begin inside a run.
        let mut holds = run > 0 && test.passes(self.codes.get(run - 1));
        for (mask, &starts) in masks.iter_mut().zip(&self.starts[first..]) {
            let (mut rest, mut toggles) = (starts, u64::from(holds));
            while rest != 0 {
                let next = test.passes(self.codes.get(run));
                toggles ^= u64::from(next != holds) << rest.trailing_zeros();
                (holds, run, rest) = (next, run + 1, rest & (rest - 1));
            }
            *mask = fill(toggles);
        }
    }

    /// Shows the codes of a range of rows that is not empty, a block at a time.
    fn decode(&self, rows: Range<usize>, out: &mut impl Decode) {
        let mut at = rows.start;
        let mut run = self.run(at);
        let mut codes = [0u64; BLOCK_CODES];
        while at < rows.end {
            let block_end = rows.end.min(at + BLOCK_CODES);
            let first = at;
            while at < block_end {
                let run_end = self.run_end(at);
                let end = run_end.min(block_end);
                codes[at - first..end - first].fill(self.codes.get(run));
                run += usize::from(end == run_end);
                at = end;
            }
            out.codes(&codes[..block_end - first]);
        }
    }

    /// The number of runs.
    fn len(&self) -> usize {
        let last = self.starts.len() * 64 - 1;
        self.run(last) + 1
    }

    /// The row at which a run starts; all rows of all blocks for the run after the last.
    fn start(&self, run: usize) -> usize {
        let block = self.ranks.partition_point(|rank| *rank as usize <= run) - 1;
        let mut nth = run - self.ranks[block] as usize;
        let first = block * RANK_ROWS / 64;
        for (at, &word) in (first..).zip(&self.starts[first..]) {
            let count = word.count_ones() as usize;
            if nth < count {
                let rest = (0..nth).fold(word, |rest, _| rest & (rest - 1));
                return at * 64 + rest.trailing_zeros() as usize;
            }
            nth -= count;
        }
        self.starts.len() * 64
    }

    /// Of codes that ascend, the rows with codes from `least` to `greatest`.
    pub(crate) fn rows_between(&self, least: u64, greatest: u64) -> Range<usize> {
        let first = |is_before: &dyn Fn(u64) -> bool| {
            let (mut low, mut high) = (0, self.len());
            while low < high {
                let middle = low.midpoint(high);
                if is_before(self.codes.get(middle)) {
                    low = middle + 1;
                } else {
                    high = middle;
                }
            }
            self.start(low)
        };
        first(&|code| code < least)..first(&|code| code <= greatest)
    }

    /// Where the next run after this row starts; beyond all rows if there is none.
    fn run_end(&self, row: usize) -> usize {
        let mut at = row / 64;
        let mut later = self.starts[at] & (u64::MAX << (row % 64)) & !(1 << (row % 64));
        while later == 0 {
            at += 1;
            match self.starts.get(at) {
                Some(&word) => later = word,
                None => return self.starts.len() * 64,
            }
        }
        at * 64 + later.trailing_zeros() as usize
    }
}

/// Each bit becomes the parity of itself and all bits below: what was set at one
/// toggle stays set until the next.
fn fill(mut toggles: u64) -> u64 {
    for shift in [1, 2, 4, 8, 16, 32] {
        toggles ^= toggles << shift;
    }
    toggles
}

/// Codes in tuples: at a bit offset, with a stride in bytes.
pub(crate) struct Tuples<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) stride: usize,
    pub(crate) bit: usize,
    pub(crate) width: u32,
}

impl Tuples<'_> {
    #[inline]
    fn get(&self, row: usize) -> u64 {
        let bit = row * self.stride * 8 + self.bit;
        let (at, shift) = (bit / 8, bit % 8);
        // Up to 57 bits are in the eight bytes from the first on, up to 64 in nine.
        let low = load(self.bytes, at) >> shift;
        let code = if shift as u32 + self.width > 64 {
            low | u64::from(self.bytes[at + 8]) << (64 - shift)
        } else {
            low
        };
        code & ones(self.width)
    }
}

fn load(bytes: &[u8], at: usize) -> u64 {
    let word = bytes[at..]
        .first_chunk()
        .expect("tuples are followed by slack");
    u64::from_le_bytes(*word)
}

fn ones(width: u32) -> u64 {
    u64::MAX.checked_shr(64 - width).unwrap_or(0)
}

impl Codes<'_> {
    /// The code of a row.
    #[inline]
    pub(crate) fn get(&self, row: u32) -> u64 {
        match self {
            Codes::Packed(packed) => packed.get(row as usize),
            Codes::Runs(runs) => runs.codes.get(runs.run(row as usize)),
            Codes::Tuples(tuples) => tuples.get(row as usize),
        }
    }

    /// Shows the codes of a range of rows, in order.
    pub(crate) fn decode(&self, rows: Range<u32>, out: &mut impl Decode) {
        let rows = rows.start as usize..rows.end as usize;
        match self {
            Codes::Packed(packed) => {
                let mut at = rows.start;
                while at < rows.end {
                    let block = at / BLOCK_CODES;
                    let end = rows.end.min((block + 1) * BLOCK_CODES);
                    let part = at - block * BLOCK_CODES..end - block * BLOCK_CODES;
                    packed.visit(block, &mut Part { part, out });
                    at = end;
                }
            }
            Codes::Runs(_) if rows.is_empty() => {}
            Codes::Runs(runs) => runs.decode(rows, out),
            Codes::Tuples(tuples) => {
                let mut codes = [0u64; BLOCK_CODES];
                for first in rows.clone().step_by(BLOCK_CODES) {
                    let len = (rows.end - first).min(BLOCK_CODES);
                    for (nth, code) in codes[..len].iter_mut().enumerate() {
                        *code = tuples.get(first + nth);
                    }
                    out.codes(&codes[..len]);
                }
            }
        }
    }

    /// Which rows of a block of 512 pass; bits of rows that there are not mean nothing.
    pub(crate) fn masks(&self, block: usize, rows: u32, test: &Test, masks: &mut Masks) {
        match self {
            Codes::Packed(packed) => packed.visit(block, &mut Tested { test, masks }),
            Codes::Runs(runs) => runs.masks(block, test, masks),
            Codes::Tuples(tuples) => {
                let first = block * BLOCK_CODES;
                let mut codes = [0u64; BLOCK_CODES];
                let len = (rows as usize - first).min(BLOCK_CODES);
                for (nth, code) in codes[..len].iter_mut().enumerate() {
                    *code = tuples.get(first + nth);
                }
                test.masks(&codes, masks);
            }
        }
    }
}

/// What takes codes in order.
pub(crate) trait Decode {
    fn codes<L: Lane>(&mut self, codes: &[L]);
}

/// Hands a part of a block on.
struct Part<'a, D> {
    part: Range<usize>,
    out: &'a mut D,
}

impl<D: Decode> Visitor for Part<'_, D> {
    fn codes<L: Lane>(&mut self, codes: &[L; BLOCK_CODES]) {
        self.out.codes(&codes[self.part.clone()]);
    }
}

struct Tested<'a> {
    test: &'a Test,
    masks: &'a mut Masks,
}

impl Visitor for Tested<'_> {
    fn codes<L: Lane>(&mut self, codes: &[L; BLOCK_CODES]) {
        self.test.masks(codes, self.masks);
    }
}

/// A condition on codes.
#[derive(Debug)]
pub(crate) enum Test {
    /// Codes from `low` to `low + span`, or all others.
    Range { low: u64, span: u64, negated: bool },
    /// Codes whose bit is set, or all others. Codes beyond the bits are not in the set.
    Bits { bits: Vec<u64>, negated: bool },
    /// Codes of this sorted list, or all others.
    List { codes: Vec<u64>, negated: bool },
}

impl Test {
    #[inline]
    pub(crate) fn passes(&self, code: u64) -> bool {
        match self {
            Test::Range { low, span, negated } => (code.wrapping_sub(*low) <= *span) != *negated,
            Test::Bits { bits, negated } => has(bits, code) != *negated,
            Test::List { codes, negated } => codes.binary_search(&code).is_ok() != *negated,
        }
    }

    fn masks<L: Lane>(&self, codes: &[L; BLOCK_CODES], masks: &mut Masks) {
        match self {
            Test::Range { low, span, negated } => {
                pack::in_range(codes, L::low(*low), L::low(*span), masks);
                if *negated {
                    masks.iter_mut().for_each(|mask| *mask = !*mask);
                }
            }
            Test::Bits { bits, negated } => {
                each(codes, masks, |code| has(bits, code) != *negated);
            }
            Test::List { .. } => each(codes, masks, |code| self.passes(code)),
        }
    }
}

#[inline]
fn has(bits: &[u64], code: u64) -> bool {
    let word = bits.get((code / 64) as usize);
    word.is_some_and(|word| word >> (code % 64) & 1 == 1)
}

fn each<L: Lane>(codes: &[L; BLOCK_CODES], masks: &mut Masks, passes: impl Fn(u64) -> bool) {
    for (mask, codes) in masks.iter_mut().zip(codes.as_chunks::<64>().0) {
        let mut hits = [0u8; 64];
        for (hit, &code) in hits.iter_mut().zip(codes) {
            *hit = u8::from(passes(code.into()));
        }
        *mask = pack::bits_of(&hits);
    }
}
