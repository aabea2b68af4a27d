//! Bloom filters of one cache line per probe (Putze, Sanders, Singler: "Cache-,
//! Hash- and Space-Efficient Bloom Filters"): a hash chooses a line and eight bits
//! in it, one for each of its words.
//!
//! With 12 bits per value some 0.5% of absent values pass, at one cache miss.

use crate::{
    Literal,
    kernel::{
        hash::hash_bytes,
        simd::{self, Kernel, Simd},
    },
};

/// Bits per distinct value.
const VALUE_BITS: usize = 12;

/// Bits of a line.
const LINE_BITS: usize = 512;

/// Words of a line.
const LINE_WORDS: usize = LINE_BITS / 64;

/// The hash of a value, as bytes: of strings and uuids their own, of integers 16 bytes.
pub(crate) fn hash_int(value: i128) -> u64 {
    hash_bytes(&value.to_le_bytes())
}

/// The hash of a literal; `None` for kinds that have no filter.
fn hash_literal(literal: &Literal) -> Option<u64> {
    match literal {
        Literal::Int(value) => Some(hash_int(*value)),
        Literal::Bytes(value) => Some(hash_bytes(value)),
        Literal::Bool(_) | Literal::Float(_) => None,
    }
}

/// Lines of a filter of so many values.
pub(crate) fn lines_for(values: usize) -> usize {
    (values * VALUE_BITS).div_ceil(LINE_BITS).max(1)
}

/// A filter of these hashes, as bytes.
pub(crate) fn build(hashes: &[u64]) -> Vec<u8> {
    let mut lines = vec![[0u64; LINE_WORDS]; lines_for(hashes.len())];
    simd::dispatch(Enter {
        hashes,
        lines: &mut lines,
    });
    let words = lines.as_flattened();
    let mut bytes = vec![0; size_of_val(words)];
    for (to, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
        *to = word.to_le_bytes();
    }
    bytes
}

/// Sets the bits of hashes.
struct Enter<'a> {
    hashes: &'a [u64],
    lines: &'a mut [[u64; LINE_WORDS]],
}

impl Kernel for Enter<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let len = self.lines.len();
        for &hash in self.hashes {
            for (nth, word) in self.lines[line_of(hash, len)].iter_mut().enumerate() {
                *word |= bit_of(hash, nth);
            }
        }
    }
}

/// Whether the value may be among those of the filter; an empty filter knows nothing.
pub(crate) fn may_have(words: &[u64], literal: &Literal) -> bool {
    hash_literal(literal).is_none_or(|hash| may_have_hash(words, || hash))
}

/// Whether a value with this hash may be among those of the filter.
pub(crate) fn may_have_hash(words: &[u64], hash: impl FnOnce() -> u64) -> bool {
    let lines = words.len() / LINE_WORDS;
    if lines == 0 {
        return true;
    }
    let hash = hash();
    let first = line_of(hash, lines) * LINE_WORDS;
    let line = &words[first..first + LINE_WORDS];
    line.iter()
        .enumerate()
        .all(|(nth, word)| word & bit_of(hash, nth) != 0)
}

/// The line, from the hash's upper half.
#[inline(always)]
fn line_of(hash: u64, lines: usize) -> usize {
    (((hash >> 32) * lines as u64) >> 32) as usize
}

/// The bit in a line's word, from the hash's lower half times an odd number of its own.
#[inline(always)]
fn bit_of(hash: u64, nth: usize) -> u64 {
    // The odd multipliers of Impala's and Parquet's split-block filters.
    const SALTS: [u32; 8] = [
        0x47b6_137b,
        0x4497_4d91,
        0x8824_ad5b,
        0xa2b7_289d,
        0x7054_95c7,
        0x2df1_424b,
        0x9efc_4947,
        0x5c6b_fb31,
    ];
    1 << ((hash as u32).wrapping_mul(SALTS[nth]) >> 26)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_passes_and_little_else() {
        let hashes: Vec<u64> = (0..10_000).map(|value| hash_int(value * 7)).collect();
        let bytes = build(&hashes);
        let words: Vec<u64> = bytes
            .as_chunks()
            .0
            .iter()
            .map(|word| u64::from_le_bytes(*word))
            .collect();
        let passes = |value: i128| may_have(&words, &Literal::Int(value));
        assert!((0..10_000).all(|value| passes(value * 7)));
        let wrong = (0..10_000).filter(|value| passes(value * 7 + 1)).count();
        assert!(wrong < 200, "{wrong} of 10,000");
        assert!(may_have(&[], &Literal::Int(1)));
    }
}
