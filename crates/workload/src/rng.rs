//! Counter-based random numbers: every row has its own generator.
//!
//! The generator of row `r` in stream `s` is PCG64-MCG whose 128-bit state is a
//! hash of (seed, s, r), so a chunk can be made without the rows before it and
//! the rows do not depend on how they are cut into chunks. The mapping from
//! random bits to a range is our own, because a data set that changes with the
//! version of a library is no reference.

use rand::RngCore;
use rand_pcg::Pcg64Mcg;

/// The generator of one row.
#[derive(Debug)]
pub(crate) struct RowRng(Pcg64Mcg);

impl RowRng {
    /// The generator of row `row` in stream `stream` under `seed`.
    pub(crate) fn new(seed: u64, stream: u64, row: u64) -> Self {
        let base = mix(seed ^ mix(stream));
        let low = mix(base.wrapping_add(row));
        let high = mix(low ^ base.rotate_left(32));
        Self(Pcg64Mcg::new((u128::from(high) << 64) | u128::from(low)))
    }

    /// Sixty-four random bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number in `0..n`, by multiply and shift. The bias is below `n / 2^64`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        debug_assert!(n > 0);
        ((u128::from(self.bits()) * u128::from(n)) >> 64) as u64
    }

    /// A number in `low..=high`.
    pub(crate) fn between(&mut self, low: i32, high: i32) -> i32 {
        debug_assert!(low <= high);
        low + self.below((high - low) as u64 + 1) as i32
    }

    /// A code in `0..n`.
    pub(crate) fn code(&mut self, n: usize) -> u8 {
        debug_assert!(n <= 256);
        self.below(n as u64) as u8
    }

    /// A number in (0, 1], never zero, so its logarithm is finite.
    pub(crate) fn unit(&mut self) -> f64 {
        // 53 bits fill a double's mantissa.
        ((self.bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// Shuffles in place (Fisher–Yates).
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood: "Fast Splittable
/// Pseudorandom Number Generators", 2014), a bijection that mixes every bit.
fn mix(value: u64) -> u64 {
    let mut z = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_row_same_numbers_other_row_other_numbers() {
        let draw = |seed, stream, row| RowRng::new(seed, stream, row).bits();
        assert_eq!(draw(1, 2, 3), draw(1, 2, 3));
        assert_ne!(draw(1, 2, 3), draw(1, 2, 4));
        assert_ne!(draw(1, 2, 3), draw(1, 3, 3));
        assert_ne!(draw(1, 2, 3), draw(2, 2, 3));
    }

    #[test]
    fn first_draws_of_neighbouring_rows_are_uniform() {
        const CELLS: usize = 16;
        const DRAWS: u64 = 160_000;
        let mut counts = [0_u32; CELLS];
        for row in 0..DRAWS {
            counts[RowRng::new(7, 1, row).code(CELLS) as usize] += 1;
        }
        // Chi square with 15 degrees of freedom: 37.7 is the 99.9 % point.
        let expected = DRAWS as f64 / CELLS as f64;
        let chi_square: f64 = counts
            .iter()
            .map(|&count| (f64::from(count) - expected).powi(2) / expected)
            .sum();
        assert!(chi_square < 37.7, "chi square {chi_square}");
    }

    #[test]
    fn ranges_hold_their_ends() {
        let mut rng = RowRng::new(1, 1, 1);
        let drawn: Vec<i32> = (0..1_000).map(|_| rng.between(-1, 2)).collect();
        assert_eq!(drawn.iter().min(), Some(&-1));
        assert_eq!(drawn.iter().max(), Some(&2));
        assert!((0..1_000).all(|_| { (f64::MIN_POSITIVE..=1.0).contains(&rng.unit()) }));
    }

    #[test]
    fn a_shuffle_is_a_permutation() {
        let mut items: Vec<u32> = (0..50).collect();
        RowRng::new(1, 1, 1).shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }
}
