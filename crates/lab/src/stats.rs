//! Medians and their confidence intervals.
//!
//! Intervals are percentile bootstraps (Efron and Tibshirani, "An Introduction to the
//! Bootstrap", 1993, ch. 13): the median of samples drawn again from the samples, with
//! replacement, a thousand times; the middle 95% of these medians.

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::Serialize;

/// How often samples are drawn again.
const RESAMPLES: usize = 1000;

/// The share of resampled medians that lie in an interval.
const CONFIDENCE: f64 = 0.95;

/// Intervals do not depend on when they are computed.
const SEED: u64 = 0xb007;

/// An interval may be as wide as this share of its value for a ratio to be told.
pub const RATIO_WIDTH_MAX: f64 = 0.1;

/// A median, and where it is with 95% confidence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The median.
    pub median: f64,
    /// The interval's lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
    /// Samples.
    pub count: usize,
}

impl Estimate {
    /// The interval's width as a share of the median.
    pub fn width(&self) -> f64 {
        (self.high - self.low) / self.median.abs()
    }

    /// Whether it is sure enough for a ratio: three samples at least, in a narrow interval.
    pub fn is_sure(&self) -> bool {
        self.count >= 3 && self.width() < RATIO_WIDTH_MAX
    }
}

/// The median of samples; `None` without usable ones.
pub fn estimate(samples: &[f64]) -> Option<Estimate> {
    let mut usable: Vec<f64> = samples.iter().copied().filter(|x| x.is_finite()).collect();
    let median = median(&mut usable)?;
    let mut random = Pcg64Mcg::seed_from_u64(SEED);
    let mut drawn = vec![0.0; usable.len()];
    let mut medians = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        for value in &mut drawn {
            *value = usable[random.random_range(0..usable.len())];
        }
        medians.extend(self::median(&mut drawn));
    }
    medians.sort_by(f64::total_cmp);
    let at = |share: f64| medians[((RESAMPLES - 1) as f64 * share).round() as usize];
    Some(Estimate {
        median,
        low: at((1.0 - CONFIDENCE) / 2.0),
        high: at((1.0 + CONFIDENCE) / 2.0),
        count: usable.len(),
    })
}

/// The ratio of samples that were taken in pairs: noise that both of a pair have is gone.
pub fn ratio(numerators: &[f64], denominators: &[f64]) -> Option<Estimate> {
    let pairs = numerators.iter().zip(denominators);
    let ratios: Vec<f64> = pairs.map(|(a, b)| a / b).collect();
    estimate(&ratios)
}

fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let upper = *values.get(values.len() / 2)?;
    let lower = values[(values.len() - 1) / 2];
    Some((lower + upper) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_its_interval() {
        let samples: Vec<f64> = (0..41).map(f64::from).collect();
        let all = estimate(&samples).unwrap();
        assert_eq!((all.median, all.count), (20.0, 41));
        // Order statistics of a median: ranks 14 and 27 of 41 are the 95% interval.
        assert!((10.0..=16.0).contains(&all.low), "{all:?}");
        assert!((24.0..=30.0).contains(&all.high), "{all:?}");
        assert_eq!(estimate(&samples), Some(all), "the same each time");
    }

    #[test]
    fn an_outlier_moves_no_median() {
        let all = estimate(&[1.0, 1.01, 0.99, 90.0, 1.0, f64::NAN]).unwrap();
        assert_eq!((all.median, all.count), (1.0, 5));
        assert_eq!(estimate(&[2.0, 4.0]).unwrap().median, 3.0);
        assert_eq!(estimate(&[f64::INFINITY]), None);
        assert_eq!(estimate(&[]), None);
    }

    #[test]
    fn noise_of_both_of_a_pair_is_gone() {
        let native = [1.0, 5.0, 2.0, 9.0, 1.5];
        let guest = native.map(|ns| ns * 1.07);
        let ratio = ratio(&guest, &native).unwrap();
        assert!(
            (ratio.median - 1.07).abs() < 1e-9 && ratio.is_sure(),
            "{ratio:?}"
        );
        assert!(!estimate(&native).unwrap().is_sure());
        assert!(!estimate(&[1.0, 1.0]).unwrap().is_sure(), "two are too few");
    }
}
