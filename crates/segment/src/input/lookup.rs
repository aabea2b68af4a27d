//! Lookup tables: what a join knows of the keys on its other side, in the form in which a scan
//! tests them.
//!
//! ```text
//!  keys 12 14 70, codes 3 0 1
//!  dense   base 12 │ bits …1…101 │ keys before each word 0 2 │ codes in key order 3 0 1
//!  hashed  cells (14,0) · (70,1) (12,3) ·
//! ```
//!
//! Each key has a code, for instance its group's. Where the keys are dense, membership is a bit,
//! and the number of bits set before it is the index of the code.
//!
//! `probe` translates a table to the codes of one segment.

use crate::kernel::simd::{self, Kernel, Simd};

/// Keys are dense when they take at most so many bits each: then the bits, with their counts,
/// are no larger than the cells would be.
const BITS_PER_KEY_MAX: u64 = 128;

/// A table of so many bits is dense however few keys it has: 128 KiB stay in a second-level
/// cache.
const BITS_FREE: u64 = 1 << 20;

/// A cell without a key.
const VACANT: u32 = u32::MAX;

/// Keys of a join's other side, none twice, and a code for each.
#[derive(Debug)]
pub struct LookupTable {
    len: usize,
    /// The least and the greatest key; 0 and −1 without keys.
    bounds: (i64, i64),
    form: Form,
}

#[derive(Debug)]
enum Form {
    Dense(Dense),
    Hashed(Hashed),
}

#[derive(Debug)]
struct Dense {
    /// A bit for each number from the least key on, whole words.
    bits: Vec<u64>,
    /// For each word, how many keys are before.
    ranks: Vec<u32>,
    /// In the order of keys; empty if all are 0.
    codes: Vec<u32>,
}

#[derive(Debug)]
struct Hashed {
    /// As many as a power of two, at most half of them taken.
    cells: Vec<(i64, u32)>,
    shift: u32,
}

/// Two rows of a join's other side have this key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DuplicateKey(pub i64);

impl LookupTable {
    /// A table of keys in any order, each with its code; without codes all are 0.
    ///
    /// # Errors
    /// A key that is there twice.
    ///
    /// # Panics
    /// When there are codes, but not one for each key, or a code is `u32::MAX`.
    pub fn new(keys: &[i64], codes: Option<&[u32]>) -> Result<LookupTable, DuplicateKey> {
        assert!(
            codes.is_none_or(|codes| codes.len() == keys.len() && !codes.contains(&VACANT)),
            "a code for each key"
        );
        let bounds = bounds_of(keys);
        let form = match dense_words(keys.len(), bounds) {
            Some(words) => Form::Dense(Dense::new(keys, codes, bounds.0, words)?),
            None => Form::Hashed(Hashed::new(keys, codes)?),
        };
        Ok(LookupTable {
            len: keys.len(),
            bounds,
            form,
        })
    }

    /// What a table of these keys will take in memory, in bytes.
    pub fn bytes_for(keys: &[i64], with_codes: bool) -> usize {
        match dense_words(keys.len(), bounds_of(keys)) {
            Some(words) => words * 12 + keys.len() * 4 * usize::from(with_codes),
            None => cells_for(keys.len()) * size_of::<(i64, u32)>(),
        }
    }

    /// Whether the keys may have other codes than 0.
    pub(crate) fn has_codes(&self) -> bool {
        match &self.form {
            Form::Dense(dense) => !dense.codes.is_empty(),
            Form::Hashed(_) => true,
        }
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the keys are bits, not cells.
    pub fn is_dense(&self) -> bool {
        matches!(self.form, Form::Dense(_))
    }

    /// The least and the greatest key.
    pub fn bounds(&self) -> Option<(i64, i64)> {
        (self.len > 0).then_some(self.bounds)
    }

    /// Whether a key is there.
    #[inline]
    pub fn contains(&self, key: i64) -> bool {
        match &self.form {
            Form::Dense(dense) => dense.contains(key.wrapping_sub(self.bounds.0) as u64),
            Form::Hashed(hashed) => hashed.find(key).is_some(),
        }
    }

    /// The code of a key, if that is there.
    #[inline]
    pub fn code(&self, key: i64) -> Option<u32> {
        match &self.form {
            Form::Dense(dense) => {
                let at = key.wrapping_sub(self.bounds.0) as u64;
                dense.contains(at).then(|| dense.code(at as usize))
            }
            Form::Hashed(hashed) => hashed.find(key),
        }
    }

    /// Adds the code of each key, times `scale`, to its number. Keys that are not there add
    /// anything up to the greatest code.
    pub(crate) fn add_codes(&self, keys: &[i64], scale: u64, to: &mut [u64]) {
        simd::dispatch(AddCodes {
            table: self,
            keys,
            scale,
            to,
        });
    }

    /// Whether the keys are all numbers between the least and the greatest.
    pub(crate) fn is_contiguous(&self) -> bool {
        let (least, greatest) = self.bounds;
        self.len > 0 && greatest.abs_diff(least) == self.len as u64 - 1
    }

    /// What is added to numbers' distances from `first`, of `0..end`, to make them positions among
    /// the table's bits; sums wrap at 2^32, and no number that is before the bits gets among
    /// them. `None` if there are no bits, or numbers are too far away.
    pub(crate) fn shift_from(&self, first: i128, end: u128) -> Option<u32> {
        const FAR: u64 = 1 << 30;
        let Form::Dense(dense) = &self.form else {
            return None;
        };
        let shift = i64::try_from(first - i128::from(self.bounds.0)).ok()?;
        let is_near = shift.unsigned_abs() <= FAR
            && end <= u128::from(FAR)
            && dense.bits.len() as u64 * 64 <= FAR;
        // Two's complement: a difference below 0 is far behind the bits.
        is_near.then_some(shift as u32)
    }

    /// The bits from the least key on; without any if the keys are hashed.
    #[inline(always)]
    pub(crate) fn bits(&self) -> &[u64] {
        match &self.form {
            Form::Dense(dense) => &dense.bits,
            Form::Hashed(_) => &[],
        }
    }

    /// A bit for each number from `first` on, `words` of them, if that is quick.
    pub(crate) fn bits_from(&self, first: i64, words: usize) -> Option<Vec<u64>> {
        let Form::Dense(dense) = &self.form else {
            return None;
        };
        // How far the first number is behind the table's first, in words and bits.
        let ahead = i128::from(first) - i128::from(self.bounds.0);
        let (from, shift) = (ahead.div_euclid(64), ahead.rem_euclid(64) as u32);
        let mut bits = vec![0; words + 1];
        let part = |at: i128| usize::try_from(at.max(0)).unwrap_or(usize::MAX);
        let own = dense.bits.get(part(from)..).unwrap_or_default();
        let to = bits.get_mut(part(-from)..).unwrap_or_default();
        for (to, &own) in to.iter_mut().zip(own) {
            *to = own;
        }
        if shift > 0 {
            for at in 0..words {
                bits[at] = bits[at] >> shift | bits[at + 1] << (64 - shift);
            }
        }
        bits.truncate(words);
        Some(bits)
    }
}

/// Words of bits for so many keys between these, if they are to be dense.
fn dense_words(len: usize, (least, greatest): (i64, i64)) -> Option<usize> {
    let bits = u128::from(greatest.wrapping_sub(least) as u64) + 1;
    let bits_max = BITS_FREE.max(BITS_PER_KEY_MAX.saturating_mul(len as u64));
    match len {
        0 => Some(0),
        _ => (bits <= bits_max.into()).then(|| bits.div_ceil(64) as usize),
    }
}

fn cells_for(len: usize) -> usize {
    (2 * len).next_power_of_two()
}

fn bounds_of(keys: &[i64]) -> (i64, i64) {
    let least = keys.iter().copied().min().unwrap_or(0);
    (least, keys.iter().copied().max().unwrap_or(-1))
}

impl Dense {
    fn new(
        keys: &[i64],
        codes: Option<&[u32]>,
        least: i64,
        words: usize,
    ) -> Result<Dense, DuplicateKey> {
        let at = |key: i64| key.wrapping_sub(least) as u64 as usize;
        let mut bits = vec![0u64; words];
        for &key in keys {
            let (word, bit) = (at(key) / 64, 1 << (at(key) % 64));
            if bits[word] & bit != 0 {
                return Err(DuplicateKey(key));
            }
            bits[word] |= bit;
        }
        let mut before = 0;
        let rank = |word: &u64| {
            before += word.count_ones();
            before - word.count_ones()
        };
        let ranks = bits.iter().map(rank).collect();
        let mut dense = Dense {
            bits,
            ranks,
            codes: Vec::new(),
        };
        if let Some(codes) = codes {
            let mut placed = vec![0; keys.len()];
            for (&key, &code) in keys.iter().zip(codes) {
                placed[dense.rank(at(key))] = code;
            }
            dense.codes = placed;
        }
        Ok(dense)
    }

    #[inline(always)]
    fn contains(&self, at: u64) -> bool {
        let word = self.bits.get((at / 64) as usize);
        word.is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    /// How many keys are before a number, whose word there is.
    #[inline(always)]
    fn rank(&self, at: usize) -> usize {
        let before = self.bits[at / 64] & !(u64::MAX << (at % 64));
        (self.ranks[at / 64] + before.count_ones()) as usize
    }

    #[inline(always)]
    fn code(&self, at: usize) -> u32 {
        if self.codes.is_empty() {
            return 0;
        }
        self.codes[self.rank(at)]
    }
}

impl Hashed {
    fn new(keys: &[i64], codes: Option<&[u32]>) -> Result<Hashed, DuplicateKey> {
        let cells = cells_for(keys.len());
        let mut hashed = Hashed {
            cells: vec![(0, VACANT); cells],
            shift: 64 - cells.trailing_zeros(),
        };
        for (nth, &key) in keys.iter().enumerate() {
            let (cell, found) = hashed.cell(key);
            if found.is_some() {
                return Err(DuplicateKey(key));
            }
            hashed.cells[cell] = (key, codes.map_or(0, |codes| codes[nth]));
        }
        Ok(hashed)
    }

    #[inline(always)]
    fn find(&self, key: i64) -> Option<u32> {
        self.cell(key).1
    }

    /// Where a key is, with its code, or else where it would be.
    #[inline(always)]
    fn cell(&self, key: i64) -> (usize, Option<u32>) {
        // Fibonacci hashing: the high bits of a product with 2^64 divided by the golden ratio.
        let mut at = ((key as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize;
        loop {
            match self.cells[at] {
                (_, VACANT) => return (at, None),
                (own, code) if own == key => return (at, Some(code)),
                _ => at = (at + 1) & (self.cells.len() - 1),
            }
        }
    }
}

struct AddCodes<'a> {
    table: &'a LookupTable,
    keys: &'a [i64],
    scale: u64,
    to: &'a mut [u64],
}

impl Kernel for AddCodes<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _: S) {
        let (first, last) = self.table.bounds;
        for (to, &key) in self.to.iter_mut().zip(self.keys) {
            let code = match &self.table.form {
                Form::Dense(dense) if (first..=last).contains(&key) => {
                    dense.code(key.wrapping_sub(first) as usize)
                }
                Form::Dense(_) => 0,
                Form::Hashed(hashed) => hashed.find(key).unwrap_or(0),
            };
            *to += self.scale * u64::from(code);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::model::Random;

    /// Keys with codes, of some shape.
    fn random_keys(random: &mut Random) -> BTreeMap<i64, u32> {
        let len = random.pick(&[0, 1, 2, 60, 1000]);
        let spread = random.pick(&[1, 3, 1000, 1 << 40]);
        let base = random.pick(&[0, -500, i64::MIN, i64::MAX - (spread * 1100)]);
        (0..len)
            .map(|nth| {
                let key = base + nth * spread + random.below(spread as u64) as i64;
                (key, random.below(1 << 31) as u32)
            })
            .collect()
    }

    #[test]
    fn a_table_says_what_a_map_says() {
        for seed in 0..if cfg!(miri) { 4 } else { 300 } {
            let mut random = Random(seed);
            let map = random_keys(&mut random);
            let mut keys: Vec<i64> = map.keys().copied().collect();
            keys.sort_by_key(|key| (*key as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let codes: Vec<u32> = keys.iter().map(|key| map[key]).collect();
            let table = LookupTable::new(&keys, Some(&codes)).unwrap();
            let plain = LookupTable::new(&keys, None).unwrap();
            assert_eq!(table.len(), map.len(), "seed {seed}");
            let ends = map.keys().next().copied().zip(map.keys().last().copied());
            assert_eq!(table.bounds(), ends, "seed {seed}");
            let near = |key: i64| [key, key.wrapping_sub(1), key.wrapping_add(1)];
            let asked = keys.iter().copied().flat_map(near);
            for key in asked.chain([0, 1, -1, i64::MIN, i64::MAX]) {
                let code = map.get(&key).copied();
                assert_eq!(table.code(key), code, "seed {seed}, key {key}");
                assert_eq!(plain.code(key), code.map(|_| 0), "seed {seed}, key {key}");
                assert_eq!(table.contains(key), code.is_some(), "seed {seed}");
            }
            let mut sums = vec![5; keys.len()];
            table.add_codes(&keys, 3, &mut sums);
            let expected = codes.iter().map(|&code| 5 + 3 * u64::from(code));
            assert!(sums.into_iter().eq(expected), "seed {seed}");
        }
    }

    #[test]
    fn bits_start_anywhere() {
        let table = LookupTable::new(&[-3, 64, 130, 700], None).unwrap();
        for first in [
            -1000,
            -67,
            -3,
            0,
            1,
            63,
            64,
            699,
            701,
            i64::MIN,
            i64::MAX - 200,
        ] {
            let bits = table.bits_from(first, 3).unwrap();
            for nth in 0..192 {
                let is_set = bits[nth / 64] >> (nth % 64) & 1 == 1;
                assert_eq!(
                    is_set,
                    table.contains(first + nth as i64),
                    "{first} + {nth}"
                );
            }
        }
    }

    #[test]
    fn far_keys_are_hashed_and_duplicates_refused() {
        let far = [i64::MIN, 0, i64::MAX];
        assert!(!LookupTable::new(&far, None).unwrap().is_dense());
        assert!(LookupTable::new(&[7, -7], None).unwrap().is_dense());
        assert_eq!(
            LookupTable::new(&[7, 1, 7], None).unwrap_err(),
            DuplicateKey(7)
        );
        let twice = [i64::MAX, 1, i64::MIN, 1];
        assert_eq!(LookupTable::new(&twice, None).unwrap_err(), DuplicateKey(1));
    }
}
