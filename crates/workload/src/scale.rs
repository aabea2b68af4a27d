//! The scale factor of a benchmark data set.

use std::fmt;
use std::str::FromStr;

/// A scale factor: 1.0 is about six million fact rows in both SSB and TPC-H.
///
/// Fractions are allowed (0.01 is what the tests use). The upper bound is
/// [`Scale::MAX`].
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Scale(f64);

/// Why a number is no scale factor.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ScaleError {
    /// The text is not a number.
    #[error("scale factor {0:?} is not a number")]
    NotANumber(String),
    /// The number is outside (0, [`Scale::MAX`]].
    #[error("scale factor {0} is outside 0 < scale <= {max}", max = Scale::MAX)]
    OutOfRange(f64),
}

impl Scale {
    /// The largest scale factor. Both benchmarks use the first 8 of every 32
    /// order keys, so the largest order key is 6,000,000 · scale, and order keys
    /// are 32-bit integers "up to SF 300" (SSB rev. 3, LINEORDER table layout).
    pub const MAX: f64 = 300.0;

    /// Checks and wraps a scale factor.
    ///
    /// # Errors
    /// [`ScaleError::OutOfRange`] when it is not in (0, [`Scale::MAX`]].
    pub fn new(factor: f64) -> Result<Self, ScaleError> {
        if factor > 0.0 && factor <= Self::MAX {
            Ok(Self(factor))
        } else {
            Err(ScaleError::OutOfRange(factor))
        }
    }

    /// The factor as a plain number.
    pub fn factor(self) -> f64 {
        self.0
    }

    /// `base · scale`, rounded to the nearest row, at least one row.
    pub(crate) fn rows(self, base: u32) -> u64 {
        // A product of at most 300 and 6,000,000 is exact enough in a double.
        ((f64::from(base) * self.0).round() as u64).max(1)
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Scale {
    type Err = ScaleError;

    fn from_str(text: &str) -> Result<Self, ScaleError> {
        let factor: f64 = text
            .trim()
            .parse()
            .map_err(|_| ScaleError::NotANumber(text.to_owned()))?;
        Self::new(factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_fractions_and_rejects_nonsense() {
        assert_eq!("0.01".parse::<Scale>().unwrap().rows(1_500_000), 15_000);
        assert_eq!(Scale::new(1e-9).unwrap().rows(2_000), 1);
        for bad in ["0", "-1", "301", "NaN", "inf"] {
            assert!(matches!(
                bad.parse::<Scale>(),
                Err(ScaleError::OutOfRange(_))
            ));
        }
        assert!(matches!(
            "ten".parse::<Scale>(),
            Err(ScaleError::NotANumber(_))
        ));
    }
}
