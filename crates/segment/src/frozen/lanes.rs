//! Codes on their way into a segment: in vectors as narrow as the lanes into which they will be
//! packed, so that the loops over them are vector instructions.

use crate::{
    frozen::plan::RANK_ROWS,
    kernel::{
        lane::{Lane, packed_bytes},
        simd::{self, Kernel, Simd},
    },
};

/// Words of start bits for which one count of the runs before is kept.
const RANK_WORDS: usize = RANK_ROWS / 64;

/// Runs are kept when they take at most this much of the packed codes, in tenths:
/// they are a little slower to scan.
const RUNS_TENTHS: usize = 7;

/// A code per row, or per run. Of codes without bits none is kept.
#[derive(Debug)]
pub(crate) enum LaneVec {
    U8(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
    U64(Vec<u64>),
}

/// Evaluates an expression with the codes as a slice of their lanes.
macro_rules! with_lanes {
    ($codes:expr, $lanes:ident => $body:expr) => {
        match $codes {
            $crate::frozen::lanes::LaneVec::U8($lanes) => $body,
            $crate::frozen::lanes::LaneVec::U16($lanes) => $body,
            $crate::frozen::lanes::LaneVec::U32($lanes) => $body,
            $crate::frozen::lanes::LaneVec::U64($lanes) => $body,
        }
    };
}
pub(crate) use with_lanes;

impl LaneVec {
    /// The codes of items, of at most `width` bits.
    pub(crate) fn of<T: Copy>(items: &[T], width: u32, to: impl Fn(T) -> u64) -> LaneVec {
        fn lanes<T: Copy, L: Lane>(items: &[T], to: impl Fn(T) -> u64) -> Vec<L> {
            let mut codes = vec![L::default(); items.len()];
            simd::dispatch(Convert {
                items,
                codes: &mut codes,
                to,
            });
            codes
        }
        match width {
            0 => LaneVec::U8(Vec::new()),
            1..=8 => LaneVec::U8(lanes(items, to)),
            9..=16 => LaneVec::U16(lanes(items, to)),
            17..=32 => LaneVec::U32(lanes(items, to)),
            _ => LaneVec::U64(lanes(items, to)),
        }
    }

    /// Replaces the codes by one for each run if that is much smaller, and gives where
    /// the runs start.
    pub(crate) fn cut_into_runs(&mut self, width: u32) -> Option<Starts> {
        with_lanes!(self, codes => {
            let starts = Starts::of(codes);
            let packed = packed_bytes(codes.len(), width);
            let blocks = codes.len().div_ceil(RANK_ROWS);
            let runs = blocks * (RANK_ROWS / 8 + 4) + packed_bytes(starts.runs as usize, width);
            if runs * 10 > packed * RUNS_TENTHS {
                return None;
            }
            *codes = starts.rows().map(|row| codes[row]).collect();
            Some(starts)
        })
    }
}

/// Makes codes of items.
struct Convert<'a, T, L, F> {
    items: &'a [T],
    codes: &'a mut [L],
    to: F,
}

impl<T: Copy, L: Lane, F: Fn(T) -> u64> Kernel for Convert<'_, T, L, F> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        for (code, &item) in self.codes.iter_mut().zip(self.items) {
            *code = L::low((self.to)(item));
        }
    }
}

/// Where runs of equal codes start.
#[derive(Debug)]
pub(crate) struct Starts {
    /// A bit per row, in whole blocks of 512.
    pub(crate) bits: Vec<u64>,
    pub(crate) runs: u32,
}

impl Starts {
    /// Of the codes of all rows, at least one.
    fn of<L: Lane>(codes: &[L]) -> Starts {
        let mut bits = vec![0; codes.len().div_ceil(RANK_ROWS) * RANK_WORDS];
        let runs = simd::dispatch(StartBits {
            codes,
            bits: &mut bits,
        });
        Starts { bits, runs }
    }

    /// The rows at which runs start.
    fn rows(&self) -> impl Iterator<Item = usize> + '_ {
        let words = self.bits.iter().enumerate();
        words.flat_map(|(at, &word)| {
            let some = |rest: u64| (rest != 0).then_some(rest);
            std::iter::successors(some(word), move |rest| some(rest & (rest - 1)))
                .map(move |rest| at * 64 + rest.trailing_zeros() as usize)
        })
    }

    /// For every 512 rows, how many runs start before.
    pub(crate) fn ranks(&self) -> Vec<u32> {
        let mut before = 0;
        let blocks = self.bits.chunks_exact(RANK_WORDS);
        let rank = |block: &[u64]| {
            let starts: u32 = block.iter().map(|word| word.count_ones()).sum();
            before += starts;
            before - starts
        };
        blocks.map(rank).collect()
    }
}

/// Compares each code with the one before.
struct StartBits<'a, L> {
    codes: &'a [L],
    bits: &'a mut [u64],
}

impl<L: Lane> Kernel for StartBits<'_, L> {
    /// How many runs there are.
    type Output = u32;

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) -> u32 {
        let mut runs = 0;
        for (at, word) in self.bits.iter_mut().enumerate() {
            let mut starts = [0u8; 64];
            let first = at * 64;
            let before = first.checked_sub(1).and_then(|from| self.codes.get(from..));
            let own = self
                .codes
                .get(first..)
                .and_then(|codes| codes.first_chunk());
            if let (Some(before), Some(own)) = (before.and_then(|codes| codes.first_chunk()), own) {
                // Of a known length, it is a vector instruction or two.
                let (before, own): (&[L; 64], &[L; 64]) = (before, own);
                for nth in 0..64 {
                    starts[nth] = u8::from(own[nth] != before[nth]);
                }
            } else {
                for (row, start) in (first..self.codes.len()).zip(&mut starts) {
                    *start = u8::from(row == 0 || self.codes[row] != self.codes[row - 1]);
                }
            }
            *word = simd.bits_of(&starts);
            runs += word.count_ones();
        }
        runs
    }
}

#[cfg(all(test, not(loom)))]
#[allow(clippy::useless_conversion, reason = "of lanes of any width")]
mod tests {
    use super::*;
    use crate::model::Random;

    #[test]
    fn runs_start_where_codes_change() {
        let mut random = Random(5);
        for rows in [1, 2, 63, 64, 65, 128, 511, 512, 513, 2000] {
            let mut codes: Vec<u64> = Vec::new();
            while codes.len() < rows {
                let (code, len) = (random.below(3), random.below(150) as usize + 1);
                codes.extend(std::iter::repeat_n(code, len.min(rows - codes.len())));
            }
            let expected: Vec<usize> = (0..rows)
                .filter(|&row| row == 0 || codes[row] != codes[row - 1])
                .collect();
            for width in [2, 12, 20, 40] {
                let mut lanes = LaneVec::of(&codes, width, |code| code);
                let starts = with_lanes!(&lanes, codes => Starts::of(codes));
                assert_eq!(starts.rows().collect::<Vec<_>>(), expected);
                assert_eq!(starts.runs as usize, expected.len());
                let before = |row: usize| expected.iter().filter(|&&start| start < row).count();
                for (block, &rank) in starts.ranks().iter().enumerate() {
                    assert_eq!(rank as usize, before(block * RANK_ROWS));
                }
                if lanes.cut_into_runs(width).is_some() {
                    let cut: Vec<u64> =
                        with_lanes!(&lanes, codes => codes.iter().map(|&c| c.into()).collect());
                    let runs: Vec<u64> = expected.iter().map(|&row| codes[row]).collect();
                    assert_eq!(cut, runs);
                }
            }
        }
    }
}
