//! Order: how the values of each physical type rank, and the 64-bit *order key*
//! in which zone maps keep their bounds.
//!
//! An order key never inverts an order: `a ≤ b` implies `key(a) ≤ key(b)`. For
//! types of up to eight bytes it is *exact* (`a < b` implies `key(a) < key(b)`);
//! for longer ones it is a prefix or a clamped value.

use arrow_buffer::IntervalMonthDayNano;

use crate::kernel::{hash::load_short, plain::Plain};

/// A fixed-width value as it lies in a slot.
pub(crate) trait Scalar: Plain + Default {
    /// What values are compared by; equal ranks are equal values in SQL.
    type Rank: Ord + Copy;
    /// The rank of a value.
    fn rank(self) -> Self::Rank;
    /// The order key of a rank.
    fn order_key(rank: Self::Rank) -> u64;
}

macro_rules! integer {
    ($($ty:ty)*) => {$(
        impl Scalar for $ty {
            type Rank = $ty;
            fn rank(self) -> $ty { self }
            fn order_key(rank: $ty) -> u64 { key_of_i64(i64::from(rank)) }
        }
    )*};
}
integer!(u8 i16 i32 i64);

impl Scalar for i128 {
    type Rank = i128;
    fn rank(self) -> i128 {
        self
    }
    fn order_key(rank: i128) -> u64 {
        key_of_i128(rank)
    }
}

impl Scalar for f32 {
    type Rank = u64;
    fn rank(self) -> u64 {
        rank_of_f64(f64::from(self))
    }
    fn order_key(rank: u64) -> u64 {
        rank
    }
}

impl Scalar for f64 {
    type Rank = u64;
    fn rank(self) -> u64 {
        rank_of_f64(self)
    }
    fn order_key(rank: u64) -> u64 {
        rank
    }
}

impl Scalar for [u8; 16] {
    type Rank = u128;
    fn rank(self) -> u128 {
        u128::from_be_bytes(self)
    }
    fn order_key(rank: u128) -> u64 {
        (rank >> 64) as u64
    }
}

impl Scalar for IntervalMonthDayNano {
    type Rank = i128;
    fn rank(self) -> i128 {
        rank_of_interval(self)
    }
    fn order_key(rank: i128) -> u64 {
        key_of_i128(rank)
    }
}

/// Flips the sign bit, which makes two's complement ascend as unsigned.
pub(crate) const fn key_of_i64(value: i64) -> u64 {
    value as u64 ^ 1 << 63
}

/// Clamped to 64 bits.
pub(crate) fn key_of_i128(value: i128) -> u64 {
    key_of_i64(value.clamp(i64::MIN.into(), i64::MAX.into()) as i64)
}

/// PostgreSQL's order of floats: −0 equals 0, NaN equals NaN and is the greatest.
pub(crate) fn rank_of_f64(value: f64) -> u64 {
    if value.is_nan() {
        return u64::MAX;
    }
    // Adding 0 turns −0 into 0 and leaves everything else.
    let bits = (value + 0.0).to_bits();
    // Negative numbers: all bits flipped; others: the sign bit set.
    bits ^ ((bits as i64 >> 63) as u64 | 1 << 63)
}

/// The number of a rank; of those that rank alike, 0 and the positive NaN.
pub(crate) fn f64_of_rank(rank: u64) -> f64 {
    if rank == u64::MAX {
        return f64::NAN;
    }
    // The sign bit is set for numbers that are not negative.
    f64::from_bits(if rank >> 63 == 1 {
        rank ^ 1 << 63
    } else {
        !rank
    })
}

/// PostgreSQL compares intervals as if a month had 30 days and a day 24 hours.
pub(crate) fn rank_of_interval(value: IntervalMonthDayNano) -> i128 {
    const DAY_NS: i128 = 24 * 3_600 * 1_000_000_000;
    (i128::from(value.months) * 30 + i128::from(value.days)) * DAY_NS
        + i128::from(value.nanoseconds)
}

/// The first eight bytes, zero-padded, big-endian.
pub(crate) fn prefix_key(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<8>() {
        Some(prefix) => u64::from_be_bytes(*prefix),
        None => load_short(bytes).swap_bytes(),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn floats_rank_as_in_postgresql() {
        let ascending = [
            f64::NEG_INFINITY,
            -1.5,
            -f64::MIN_POSITIVE,
            0.0,
            1e-300,
            1.0,
            f64::INFINITY,
            f64::NAN,
        ];
        assert!(ascending.is_sorted_by_key(|&f| rank_of_f64(f)));
        assert!(
            ascending
                .windows(2)
                .all(|w| rank_of_f64(w[0]) != rank_of_f64(w[1]))
        );
        for value in ascending {
            assert_eq!(
                rank_of_f64(f64_of_rank(rank_of_f64(value))),
                rank_of_f64(value)
            );
        }
        assert_eq!(rank_of_f64(-0.0), rank_of_f64(0.0));
        assert_eq!(rank_of_f64(-f64::NAN), rank_of_f64(f64::NAN));
    }

    #[test]
    fn prefixes_keep_the_order_of_bytes() {
        let ascending: [&[u8]; 6] = [b"", b"\0", b"a", b"aa", b"aaaaaaaab", b"b"];
        assert!(ascending.is_sorted_by_key(|bytes| prefix_key(bytes)));
    }

    #[test]
    fn a_month_is_thirty_days() {
        let month = IntervalMonthDayNano::new(1, 0, 0);
        assert_eq!(
            rank_of_interval(month),
            rank_of_interval(IntervalMonthDayNano::new(0, 30, 0))
        );
        assert!(rank_of_interval(month) < rank_of_interval(IntervalMonthDayNano::new(0, 30, 1)));
    }
}
