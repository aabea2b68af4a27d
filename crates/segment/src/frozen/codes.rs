//! The codes of an attribute in any of their forms: packed, per run, or in tuples.

use std::ops::Range;

use crate::{
    frozen::{
        pack::{AHEAD_BYTES, Decode, Packed, Visitor, in_parts},
        plan::RANK_ROWS,
        search::{gallop, interpolate},
    },
    input::condition::{Masks, Test},
    kernel::{
        lane::{BLOCK_CODES, Lane},
        simd::{self, Kernel, Simd},
    },
};

const _: () = assert!(RANK_ROWS == BLOCK_CODES);

/// Words of start bits for which one count of the runs before is kept.
const RANK_WORDS: usize = RANK_ROWS / 64;

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
    /// How many runs start before a word's rows.
    #[inline(always)]
    fn runs_before(&self, word: usize) -> usize {
        let block = word / RANK_WORDS;
        let whole = &self.starts[block * RANK_WORDS..word];
        let whole: u32 = whole.iter().map(|word| word.count_ones()).sum();
        (self.ranks[block] + whole) as usize
    }

    /// The position of the count before a row.
    pub(crate) fn rank_at(row: usize) -> usize {
        row / RANK_ROWS
    }

    /// The number of the run that has the row. Counting bits is one instruction on machines
    /// that have it.
    pub(crate) fn run(&self, row: usize) -> usize {
        simd::dispatch(RunOf { runs: self, row })
    }

    #[inline(always)]
    fn run_of(&self, row: usize) -> usize {
        let within = self.starts[row / 64] & (u64::MAX >> (63 - row % 64));
        // Row 0 starts a run, so there is at least one.
        self.runs_before(row / 64) + within.count_ones() as usize - 1
    }

    /// Bits of a block: runs are tested as packed codes, and their bits spread over rows.
    fn masks(&self, block: usize, test: &Test, known: &mut RunsPassing, masks: &mut Masks) {
        simd::dispatch(RunMasks {
            runs: self,
            block,
            test,
            known,
            masks,
        });
    }

    /// Shows the codes of rows in any order, 64 at a time.
    fn pick(&self, rows: &[u32], out: &mut impl Decode) {
        let mut runs = [0; 1024];
        for rows in rows.chunks(runs.len()) {
            let runs = &mut runs[..rows.len()];
            simd::dispatch(RunsOf {
                all: self,
                rows,
                runs: &mut *runs,
            });
            self.codes.pick(runs, out);
        }
    }

    /// Shows the codes of a range of rows that is not empty, a block at a time.
    fn decode(&self, rows: Range<usize>, out: &mut impl Decode) {
        let blocks = rows.start / RANK_ROWS..rows.end.div_ceil(RANK_ROWS);
        let (mut known, mut codes) = (Collected::new(), [0u64; RANK_ROWS]);
        for block in blocks {
            let words = &self.starts[block * RANK_WORDS..(block + 1) * RANK_WORDS];
            let count: u32 = words.iter().map(|word| word.count_ones()).sum();
            // The run that the block begins with, or its own first, and those that start in it.
            let before = self.ranks[block] as usize;
            let first = before.saturating_sub(1);
            known.len = 0;
            packed_range(&self.codes, first..before + count as usize, &mut known);
            let mut nth = before - first;
            for (codes, &word) in codes.as_chunks_mut::<64>().0.iter_mut().zip(words) {
                if word == 0 {
                    codes.fill(known.codes[nth.max(1) - 1]);
                    continue;
                }
                let mut starts = word;
                for code in codes {
                    nth += (starts & 1) as usize;
                    starts >>= 1;
                    *code = known.codes[nth - 1];
                }
            }
            let base = block * RANK_ROWS;
            out.codes(&codes[rows.start.max(base) - base..(rows.end - base).min(RANK_ROWS)]);
        }
    }

    /// The row at which a run starts; all rows of all blocks for the run after the last.
    fn start(&self, run: usize) -> usize {
        // The last block before which there are no more runs than this one.
        let rank = |block: usize| u64::from(self.ranks[block]);
        let block = interpolate(0..self.ranks.len(), run as u64 + 1, rank) - 1;
        let mut nth = run - self.ranks[block] as usize;
        let first = block * RANK_WORDS;
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

    /// Of rows that are not none and whose codes ascend, those with codes from `least` to
    /// `greatest`: searched run by run.
    pub(crate) fn rows_between(
        &self,
        rows: Range<usize>,
        least: u64,
        greatest: u64,
    ) -> Range<usize> {
        let runs = self.run(rows.start)..self.run(rows.end - 1) + 1;
        let first = interpolate(runs.clone(), least, |run| self.codes.get(run));
        let after = gallop(first..runs.end, |run| self.codes.get(run) <= greatest);
        if first == after {
            return rows.start..rows.start;
        }
        self.start(first).max(rows.start)..self.start(after).min(rows.end)
    }
}

/// Codes of a block's runs, and of the run that it begins with.
struct Collected {
    codes: [u64; RANK_ROWS + 1],
    len: usize,
}

impl Collected {
    fn new() -> Collected {
        Collected {
            codes: [0; RANK_ROWS + 1],
            len: 0,
        }
    }
}

impl Decode for Collected {
    fn codes<L: Lane>(&mut self, codes: &[L]) {
        let to = &mut self.codes[self.len..self.len + codes.len()];
        for (to, &code) in to.iter_mut().zip(codes) {
            *to = code.into();
        }
        self.len += codes.len();
    }
}

/// Looks the run of a row up.
struct RunOf<'a> {
    runs: &'a Runs<'a>,
    row: usize,
}

impl Kernel for RunOf<'_> {
    type Output = usize;

    #[inline(always)]
    fn run<S: Simd>(self, _: S) -> usize {
        self.runs.run_of(self.row)
    }
}

/// Looks the runs of rows up.
struct RunsOf<'a> {
    all: &'a Runs<'a>,
    rows: &'a [u32],
    runs: &'a mut [u32],
}

impl Kernel for RunsOf<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        // How many runs start before each word of a block. Rows mostly ascend.
        let (mut known, mut before) = (usize::MAX, [0; RANK_WORDS]);
        for (run, &row) in self.runs.iter_mut().zip(self.rows) {
            let (block, word) = (row as usize / RANK_ROWS, row as usize / 64);
            if block != known {
                let words = &self.all.starts[block * RANK_WORDS..(block + 1) * RANK_WORDS];
                let mut sum = self.all.ranks[block];
                for (before, word) in before.iter_mut().zip(words) {
                    *before = sum;
                    sum += word.count_ones();
                }
                known = block;
            }
            let within = self.all.starts[word] & (u64::MAX >> (63 - row % 64));
            // Row 0 starts a run, so there is at least one.
            *run = before[word % RANK_WORDS] + within.count_ones() - 1;
        }
    }
}

/// Tests the runs of a block of rows.
struct RunMasks<'a> {
    runs: &'a Runs<'a>,
    block: usize,
    test: &'a Test,
    known: &'a mut RunsPassing,
    masks: &'a mut Masks,
}

impl Kernel for RunMasks<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let runs = self.runs;
        let mut run = runs.ranks[self.block] as usize;
        // The block may begin inside a run.
        let mut holds = run > 0 && self.test.passes(runs.codes.get(run - 1));
        let starts = &runs.starts[self.block * RANK_WORDS..];
        simd::prefetch_ahead(starts, 0, AHEAD_BYTES);
        for (mask, &starts) in self.masks.iter_mut().zip(starts) {
            if starts == 0 {
                *mask = u64::from(holds).wrapping_neg();
                continue;
            }
            let count = starts.count_ones();
            let bits = self.known.bits(&runs.codes, self.test, run, count);
            // A toggle where a run differs from the one before.
            let changes = bits ^ (bits << 1 | u64::from(holds));
            *mask = fill(simd.deposit(changes, starts) ^ u64::from(holds));
            holds = bits >> (count - 1) & 1 == 1;
            run += count as usize;
        }
    }
}

/// Which runs pass a test, as far as known: those of one block of packed codes. Blocks of rows
/// that follow one another mostly have runs of the same.
pub(crate) struct RunsPassing {
    block: usize,
    masks: Masks,
}

impl Default for RunsPassing {
    fn default() -> Self {
        Self {
            block: usize::MAX,
            masks: Masks::default(),
        }
    }
}

impl RunsPassing {
    /// The bits of `count` runs, at most 64, from one on.
    #[inline(always)]
    fn bits(&mut self, codes: &Packed<'_>, test: &Test, run: usize, count: u32) -> u64 {
        let shift = run % 64;
        let low = self.word(codes, test, run) >> shift;
        if shift + count as usize <= 64 {
            return low;
        }
        low | self.word(codes, test, run + 64 - shift) << (64 - shift)
    }

    #[inline(always)]
    fn word(&mut self, codes: &Packed<'_>, test: &Test, run: usize) -> u64 {
        let block = run / BLOCK_CODES;
        if block != self.block {
            codes.masks(block, test, &mut self.masks);
            self.block = block;
        }
        self.masks[run % BLOCK_CODES / 64]
    }
}

/// Shows the packed codes of a range.
fn packed_range(packed: &Packed<'_>, range: Range<usize>, out: &mut impl Decode) {
    let mut at = range.start;
    while at < range.end {
        let block = at / BLOCK_CODES;
        let end = range.end.min((block + 1) * BLOCK_CODES);
        let part = at - block * BLOCK_CODES..end - block * BLOCK_CODES;
        packed.visit(block, &mut Part { part, out });
        at = end;
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
            Codes::Packed(packed) => packed_range(packed, rows, out),
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

    /// Shows the codes of rows in any order, 64 at a time, at the end the rest. Rows of one block
    /// are best side by side.
    pub(crate) fn pick(&self, rows: &[u32], out: &mut impl Decode) {
        match self {
            Codes::Packed(packed) => packed.pick(rows, out),
            Codes::Runs(runs) => runs.pick(rows, out),
            Codes::Tuples(tuples) => in_parts(rows, out, |row| tuples.get(row)),
        }
    }

    /// Which rows of a block of 512 pass; bits of rows that there are not mean nothing. `known`
    /// is of the same test.
    pub(crate) fn masks(
        &self,
        block: usize,
        rows: u32,
        test: &Test,
        known: &mut RunsPassing,
        masks: &mut Masks,
    ) {
        match self {
            Codes::Packed(packed) => packed.masks(block, test, masks),
            Codes::Runs(runs) => runs.masks(block, test, known, masks),
            Codes::Tuples(tuples) => {
                let first = block * BLOCK_CODES;
                let mut codes = [0u64; BLOCK_CODES];
                let len = (rows as usize - first).min(BLOCK_CODES);
                for (nth, code) in codes[..len].iter_mut().enumerate() {
                    *code = tuples.get(first + nth);
                }
                test.masks_of(&codes, masks);
            }
        }
    }
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
