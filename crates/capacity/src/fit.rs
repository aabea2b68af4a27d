//! Laws for the highest request rate by tenant size, fitted to what was measured.
//!
//! ```text
//! power law   rate · size^m = C       ln rate = ln C − m ln size     source 001, section 4.1
//! linear law  1 / rate = a + b·size   a request's fixed cost, and its scan of all rows
//! ```
//!
//! Both are fitted by least squares to each size's median: the power law in logarithms, the
//! linear one in relative errors. Sizes are in millions of rows, so that `C` is the rate of
//! a tenant of a million rows.
//!
//! Intervals are of 95%: from Student's t over the sizes (what the law does not explain is
//! in it), and from a bootstrap that draws each size's rounds anew (noise alone).

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

/// How often rounds are drawn anew.
const RESAMPLES: usize = 1000;

/// Intervals do not depend on when they are computed.
const SEED: u64 = 0x91a7;

/// The highest rates of one tenant size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// Rows of the tenant's fact table.
    pub rows: f64,
    /// Requests per second in each round.
    pub rates: Vec<f64>,
}

/// A value, and where it is with 95% confidence.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The value.
    pub value: f64,
    /// The upper end.
    pub high: f64,
}

impl Interval {
    /// Whether the interval has `value` in it.
    pub fn has(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }
}

/// Parameters of a law.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Law {
    /// `rate = scale · size^-exponent`.
    Power {
        /// m.
        exponent: f64,
        /// C, in requests per second at a million rows.
        scale: f64,
    },
    /// `rate = 1 / (fixed + per_million · size)`.
    Linear {
        /// Seconds of a request over no rows.
        fixed_s: f64,
        /// Seconds more for each million rows.
        per_million_s: f64,
    },
}

impl Law {
    /// The highest rate of a tenant of so many rows, in requests per second.
    pub fn rate(&self, rows: f64) -> f64 {
        let size = rows / 1e6;
        match *self {
            Law::Power { exponent, scale } => scale * size.powf(-exponent),
            Law::Linear {
                fixed_s,
                per_million_s,
            } => 1.0 / (fixed_s + per_million_s * size),
        }
    }
}

/// The power law as fitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PowerFit {
    /// m, with the bootstrap's interval.
    pub exponent: Interval,
    /// m, with the interval by Student's t.
    pub exponent_t: Interval,
    /// C, with the bootstrap's interval; requests per second at a million rows.
    pub scale: Interval,
    /// C, with the interval by Student's t.
    pub scale_t: Interval,
    /// The share of the variance of ln rate that the law explains.
    pub r_squared: f64,
    /// ln of measured by fitted rate, by size.
    pub residuals: Vec<f64>,
}

/// The linear law as fitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinearFit {
    /// Seconds of a request over no rows, with the bootstrap's interval.
    pub fixed_s: Interval,
    /// Seconds more for each million rows, with the bootstrap's interval.
    pub per_million_s: Interval,
    /// The share of the variance of ln rate that the law explains.
    pub r_squared: f64,
    /// ln of measured by fitted rate, by size.
    pub residuals: Vec<f64>,
}

/// Both laws, fitted to the same observations.
#[derive(Clone, Debug, PartialEq)]
pub struct Fits {
    /// The source's law.
    pub power: PowerFit,
    /// The law of fixed cost and scan.
    pub linear: LinearFit,
    /// The law that is nearer to what was measured.
    pub law: Law,
    /// The same law fitted to rounds drawn anew.
    pub resampled: Vec<Law>,
}

impl Fits {
    /// Whether the power law is the nearer one.
    pub fn is_power(&self) -> bool {
        matches!(self.law, Law::Power { .. })
    }

    /// The nearer law's residuals.
    pub fn residuals(&self) -> &[f64] {
        if self.is_power() {
            &self.power.residuals
        } else {
            &self.linear.residuals
        }
    }

    /// The power law with its best parameters.
    pub fn power_law(&self) -> Law {
        Law::Power {
            exponent: self.power.exponent.value,
            scale: self.power.scale.value,
        }
    }

    /// The linear law with its best parameters.
    pub fn linear_law(&self) -> Law {
        Law::Linear {
            fixed_s: self.linear.fixed_s.value,
            per_million_s: self.linear.per_million_s.value,
        }
    }
}

/// Fits both laws; `None` for fewer than three sizes with rates above zero.
pub fn fit(observations: &[Observation]) -> Option<Fits> {
    let usable = usable(observations);
    if usable.len() < 3 {
        return None;
    }
    let medians = points(&usable, |rates| median(rates.to_vec()));
    let power = power_of(&medians)?;
    let linear = linear_of(&medians)?;
    let mut random = Pcg64Mcg::seed_from_u64(SEED);
    let (mut powers, mut linears) = (Vec::new(), Vec::new());
    for _ in 0..RESAMPLES {
        let mut draw = |rates: &[f64]| {
            let drawn = rates
                .iter()
                .map(|_| rates[random.random_range(0..rates.len())]);
            median(drawn.collect())
        };
        let drawn = points(&usable, &mut draw);
        powers.extend(power_of(&drawn));
        linears.extend(linear_of(&drawn));
    }
    let power_fit = power_fit(&medians, power, &powers);
    let linear_fit = linear_fit(&medians, linear, &linears);
    let is_power = power_fit.r_squared >= linear_fit.r_squared;
    Some(Fits {
        power: power_fit,
        linear: linear_fit,
        law: if is_power { power } else { linear },
        resampled: if is_power { powers } else { linears },
    })
}

/// By size, with one entry for each, and positive numbers only.
fn usable(observations: &[Observation]) -> Vec<Observation> {
    let mut all: Vec<Observation> = Vec::new();
    for one in observations.iter().filter(|one| one.rows > 0.0) {
        let rates = one.rates.iter().copied();
        let rates: Vec<f64> = rates
            .filter(|rate| rate.is_finite() && *rate > 0.0)
            .collect();
        match all.iter_mut().find(|known| known.rows == one.rows) {
            Some(known) => known.rates.extend(rates),
            None => all.push(Observation {
                rows: one.rows,
                rates,
            }),
        }
    }
    all.retain(|one| !one.rates.is_empty());
    all.sort_by(|a, b| a.rows.total_cmp(&b.rows));
    all
}

fn points(all: &[Observation], mut value: impl FnMut(&[f64]) -> f64) -> Vec<(f64, f64)> {
    all.iter()
        .map(|one| (one.rows, value(&one.rates)))
        .collect()
}

/// Slope and intercept of weighted least squares.
fn line(points: impl Iterator<Item = (f64, f64, f64)> + Clone) -> Option<(f64, f64)> {
    let sum = |of: fn((f64, f64, f64)) -> f64| points.clone().map(of).sum::<f64>();
    let weight = sum(|(_, _, w)| w);
    let (mean_x, mean_y) = (
        sum(|(x, _, w)| w * x) / weight,
        sum(|(_, y, w)| w * y) / weight,
    );
    let spread = points
        .clone()
        .map(|(x, _, w)| w * (x - mean_x).powi(2))
        .sum::<f64>();
    let both = points
        .map(|(x, y, w)| w * (x - mean_x) * (y - mean_y))
        .sum::<f64>();
    let slope = both / spread;
    (spread > 0.0 && slope.is_finite()).then_some((slope, mean_y - slope * mean_x))
}

fn power_of(points: &[(f64, f64)]) -> Option<Law> {
    let logs = points
        .iter()
        .map(|(rows, rate)| ((rows / 1e6).ln(), rate.ln(), 1.0));
    let (slope, intercept) = line(logs)?;
    Some(Law::Power {
        exponent: -slope,
        scale: intercept.exp(),
    })
}

/// An error of a request's time counts as a share of it: by the rate squared.
fn linear_of(points: &[(f64, f64)]) -> Option<Law> {
    let times = points
        .iter()
        .map(|(rows, rate)| (rows / 1e6, 1.0 / rate, rate * rate));
    let (slope, intercept) = line(times.clone())?;
    if slope > 0.0 && intercept >= 0.0 {
        return Some(Law::Linear {
            fixed_s: intercept,
            per_million_s: slope,
        });
    }
    // No time is negative: the other part alone.
    let weighted = |of: fn((f64, f64, f64)) -> f64| times.clone().map(of).sum::<f64>();
    Some(if slope <= 0.0 {
        Law::Linear {
            fixed_s: weighted(|(_, y, w)| w * y) / weighted(|(_, _, w)| w),
            per_million_s: 0.0,
        }
    } else {
        Law::Linear {
            fixed_s: 0.0,
            per_million_s: weighted(|(x, y, w)| w * x * y) / weighted(|(x, _, w)| w * x * x),
        }
    })
}

fn residuals(points: &[(f64, f64)], law: Law) -> Vec<f64> {
    points
        .iter()
        .map(|(rows, rate)| (rate / law.rate(*rows)).ln())
        .collect()
}

fn r_squared(points: &[(f64, f64)], residuals: &[f64]) -> f64 {
    let mean = points.iter().map(|(_, rate)| rate.ln()).sum::<f64>() / points.len() as f64;
    let total = points
        .iter()
        .map(|(_, rate)| (rate.ln() - mean).powi(2))
        .sum::<f64>();
    1.0 - residuals
        .iter()
        .map(|residual| residual * residual)
        .sum::<f64>()
        / total
}

fn power_fit(points: &[(f64, f64)], law: Law, resampled: &[Law]) -> PowerFit {
    let parameters = |law: &Law| match *law {
        Law::Power { exponent, scale } => (exponent, scale),
        Law::Linear { .. } => (f64::NAN, f64::NAN),
    };
    let (exponent, scale) = parameters(&law);
    let residuals = residuals(points, law);
    let count = points.len() as f64;
    let xs: Vec<f64> = points.iter().map(|(rows, _)| (rows / 1e6).ln()).collect();
    let mean = xs.iter().sum::<f64>() / count;
    let spread = xs.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
    let variance = residuals.iter().map(|one| one * one).sum::<f64>() / (count - 2.0);
    let t = student_975(points.len() - 2);
    let of_exponent = t * (variance / spread).sqrt();
    let of_log_scale = t * (variance * (1.0 / count + mean * mean / spread)).sqrt();
    PowerFit {
        exponent: percentiles(exponent, resampled.iter().map(|law| parameters(law).0)),
        exponent_t: Interval {
            low: exponent - of_exponent,
            value: exponent,
            high: exponent + of_exponent,
        },
        scale: percentiles(scale, resampled.iter().map(|law| parameters(law).1)),
        scale_t: Interval {
            low: scale * (-of_log_scale).exp(),
            value: scale,
            high: scale * of_log_scale.exp(),
        },
        r_squared: r_squared(points, &residuals),
        residuals,
    }
}

fn linear_fit(points: &[(f64, f64)], law: Law, resampled: &[Law]) -> LinearFit {
    let parameters = |law: &Law| match *law {
        Law::Linear {
            fixed_s,
            per_million_s,
        } => (fixed_s, per_million_s),
        Law::Power { .. } => (f64::NAN, f64::NAN),
    };
    let (fixed, per_million) = parameters(&law);
    let residuals = residuals(points, law);
    LinearFit {
        fixed_s: percentiles(fixed, resampled.iter().map(|law| parameters(law).0)),
        per_million_s: percentiles(per_million, resampled.iter().map(|law| parameters(law).1)),
        r_squared: r_squared(points, &residuals),
        residuals,
    }
}

/// A value with the middle 95% of others around it.
pub(crate) fn percentiles(value: f64, others: impl Iterator<Item = f64>) -> Interval {
    let mut others: Vec<f64> = others.filter(|other| other.is_finite()).collect();
    others.sort_by(f64::total_cmp);
    let last = others.len().saturating_sub(1) as f64;
    let at = |share: f64| others.get((last * share).round() as usize).copied();
    Interval {
        low: at(0.025).unwrap_or(value).min(value),
        value,
        high: at(0.975).unwrap_or(value).max(value),
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    f64::midpoint(values[middle], values[(values.len() - 1) / 2])
}

/// The 97.5% quantile of Student's t, from tables; beyond 10 degrees of freedom by the first
/// terms of its expansion (Abramowitz and Stegun, 26.7.5).
fn student_975(freedom: usize) -> f64 {
    const TABLE: [f64; 10] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    ];
    let z: f64 = 1.959_964;
    match freedom {
        0 => f64::INFINITY,
        1..=10 => TABLE[freedom - 1],
        _ => {
            let v = freedom as f64;
            let first = (z.powi(3) + z) / (4.0 * v);
            first + z + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * v * v)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [f64; 5] = [60e3, 200e3, 600e3, 2e6, 6e6];

    fn noisy(rate: impl Fn(f64) -> f64) -> Vec<Observation> {
        let noise = [0.97, 1.0, 1.04];
        SIZES
            .map(|rows| Observation {
                rows,
                rates: noise.map(|noise| rate(rows) * noise).to_vec(),
            })
            .to_vec()
    }

    #[test]
    fn the_sources_law_is_found_again() {
        let fits = fit(&noisy(|rows| 80.0 * (rows / 1e6).powf(-0.945))).unwrap();
        assert!(fits.is_power());
        assert!((fits.power.exponent.value - 0.945).abs() < 1e-9, "{fits:?}");
        assert!((fits.power.scale.value - 80.0).abs() < 1e-6);
        assert!(fits.power.r_squared > 0.9999);
        let exponent = fits.power.exponent;
        assert!(
            exponent.low < 0.945 && exponent.high > 0.945 && exponent.low > 0.9,
            "{exponent:?}"
        );
        assert!(fits.power.scale.has(80.0));
        assert!((fits.law.rate(1e6) - 80.0).abs() < 1e-6);
    }

    #[test]
    fn a_fixed_cost_is_told_from_a_power() {
        let fits = fit(&noisy(|rows| 1.0 / (0.0005 + 0.004 * rows / 1e6))).unwrap();
        assert!(!fits.is_power());
        assert!(
            (fits.linear.fixed_s.value - 0.0005).abs() < 1e-9,
            "{fits:?}"
        );
        assert!((fits.linear.per_million_s.value - 0.004).abs() < 1e-9);
        assert!(fits.linear.fixed_s.has(0.0005) && fits.linear.r_squared > 0.9999);
        // The power law bends over, and its interval by the sizes knows.
        assert!(fits.power.r_squared < 0.99);
        let width = |at: Interval| at.high - at.low;
        assert!(width(fits.power.exponent_t) > 2.0 * width(fits.power.exponent));
    }

    #[test]
    fn intervals_by_students_t_are_those_of_a_textbook() {
        // y = 2 − x with errors of ±0.1 in turn at x = 0..5: slope and its standard error
        // by hand from sums of squares.
        let points: Vec<(f64, f64)> = (0..6)
            .map(|x| {
                (
                    f64::from(x),
                    2.0 - f64::from(x) + if x % 2 == 0 { 0.1 } else { -0.1 },
                )
            })
            .collect();
        let observations: Vec<Observation> = points
            .iter()
            .map(|(x, y)| Observation {
                rows: 1e6 * x.exp(),
                rates: vec![y.exp()],
            })
            .collect();
        let fit = fit(&observations).unwrap().power;
        let slope = -1.0 - 0.3 / 17.5;
        assert!((fit.exponent.value + slope).abs() < 1e-9, "{fit:?}");
        let error = 0.06 - 0.3_f64.powi(2) / 17.5;
        let half = 2.776 * (error / 4.0 / 17.5).sqrt();
        assert!(
            (fit.exponent_t.high - fit.exponent_t.value - half).abs() < 1e-9,
            "{fit:?}"
        );
    }

    #[test]
    fn quantiles_of_t_are_the_tables() {
        for (freedom, expected) in [(1, 12.706), (10, 2.228), (11, 2.201), (30, 2.042)] {
            assert!((student_975(freedom) - expected).abs() < 0.005, "{freedom}");
        }
    }

    #[test]
    fn nothing_follows_from_two_sizes() {
        let mut observations = noisy(|_| 5.0);
        observations.truncate(2);
        assert_eq!(fit(&observations), None);
        observations.push(Observation {
            rows: 9e9,
            rates: vec![f64::NAN, 0.0],
        });
        assert_eq!(fit(&observations), None);
        assert_eq!(fit(&[]), None);
    }

    #[test]
    fn no_time_is_negative() {
        // Faster than proportional, and rates that do not fall.
        for rate in [|rows: f64| 1e12 / (rows * rows), |_: f64| 7.0] {
            let fits = fit(&noisy(rate)).unwrap();
            assert!(fits.linear.fixed_s.low >= 0.0 && fits.linear.per_million_s.low >= 0.0);
            assert!(SIZES.iter().all(|rows| fits.linear_law().rate(*rows) > 0.0));
        }
    }
}
