//! Loads from measurements of a running cluster: the model's constant, refitted, and loads that are smoothed and
//! look ahead.
//!
//! ```text
//!  rates, sizes ──► Calibration::load ──► SmoothedLoad::observe ──► planned: max(now, forecast)
//!  work and measured load of nodes ──► Calibration::refit
//! ```
//!
//! Neither type has a clock: the caller says how much time has gone by.

use serde::{Deserialize, Serialize};

use crate::load::{Load, ValueError};

/// The constants of `load = rate · size^exponent / constant`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    exponent: f64,
    constant: f64,
}

/// The work and the load of a node over some time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// The sum of [`Calibration::work`] over the node's tenants.
    pub work: f64,
    /// The load that was measured: 1.0 when the node only just met its goal.
    pub load: Load,
}

/// A node below this load says little about the constant: what it does beside its tenants weighs too much.
const LOAD_MIN: f64 = 0.2;

/// One refit changes the constant by this factor at most, so that one bad interval moves few tenants.
const FACTOR_MAX: f64 = 2.0;

impl Calibration {
    /// Text 001 fitted 0.945 and computes with 0.95.
    pub const EXPONENT: f64 = 0.95;

    /// A model with `constant` in queries per second times bytes to the power of `exponent`.
    ///
    /// # Errors
    /// [`ValueError::Model`] unless both are numbers above 0.
    pub fn new(exponent: f64, constant: f64) -> Result<Self, ValueError> {
        Ok(Self {
            exponent: above_zero(exponent, "exponent")?,
            constant: above_zero(constant, "constant")?,
        })
    }

    /// The constant at which a node that serves tenants of `size_bytes` meets its goal up to `rate_max`
    /// queries per second, with the exponent [`Calibration::EXPONENT`].
    ///
    /// # Errors
    /// [`ValueError::Model`] unless both are above 0.
    pub fn from_highest_rate(rate_max: f64, size_bytes: u64) -> Result<Self, ValueError> {
        Self::new(Self::EXPONENT, rate_max * power(size_bytes, Self::EXPONENT))
    }

    /// The model's constant.
    #[must_use]
    pub fn constant(&self) -> f64 {
        self.constant
    }

    /// `rate · size^exponent`, of which [`Calibration::constant`] is a load of 1.
    ///
    /// # Errors
    /// [`ValueError::Model`] when the rate, in queries per second, is negative or no number.
    pub fn work(&self, rate: f64, size_bytes: u64) -> Result<f64, ValueError> {
        if rate.is_finite() && rate >= 0.0 {
            Ok(rate * power(size_bytes, self.exponent))
        } else {
            Err(ValueError::Model(rate, "rate"))
        }
    }

    /// The load of a tenant that is asked `rate` queries per second and has `size_bytes`.
    ///
    /// # Errors
    /// [`ValueError`] when the rate is negative or no number, or the load is above [`Load::MAX`].
    pub fn load(&self, rate: f64, size_bytes: u64) -> Result<Load, ValueError> {
        Load::new(self.work(rate, size_bytes)? / self.constant)
    }

    /// The model with the median constant of what nodes did. Nodes with little load are left out, and one
    /// refit changes the constant by a factor of two at most. Without a node to go by it stays as it is.
    #[must_use]
    pub fn refit(&self, observed: &[Observed]) -> Self {
        let mut constants: Vec<f64> = observed
            .iter()
            .filter(|one| one.load.get() >= LOAD_MIN)
            .map(|one| one.work / one.load.get())
            .filter(|constant| constant.is_finite() && *constant > 0.0)
            .collect();
        constants.sort_by(f64::total_cmp);
        let Some(&median) = constants.get(constants.len() / 2) else {
            return *self;
        };
        let lowest = self.constant / FACTOR_MAX;
        let highest = self.constant * FACTOR_MAX;
        Self {
            constant: median.max(lowest).min(highest),
            ..*self
        }
    }
}

fn power(size_bytes: u64, exponent: f64) -> f64 {
    (size_bytes as f64).powf(exponent)
}

fn above_zero(value: f64, name: &'static str) -> Result<f64, ValueError> {
    if value.is_finite() && value > 0.0 {
        Ok(value)
    } else {
        Err(ValueError::Model(value, name))
    }
}

/// A measured load without its noise, and the forecast beside it. It follows a rise soon and a fall late:
/// load that comes back must not find its copies moved.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SmoothedLoad {
    now: Load,
    forecast: Load,
}

/// Of a rise, about two thirds are seen after this many seconds.
const RISE_SECONDS: f64 = 30.0;
/// Of a fall, about two thirds are seen after this many seconds.
const FALL_SECONDS: f64 = 600.0;

impl SmoothedLoad {
    /// Begins with a first measurement.
    #[must_use]
    pub fn new(measured: Load) -> Self {
        Self {
            now: measured,
            forecast: measured,
        }
    }

    /// Takes a load that was measured over the last `elapsed_seconds`, and the forecast for the time that
    /// the next plan has to last. Zero, negative or infinite times leave the smoothed load as it is.
    pub fn observe(&mut self, elapsed_seconds: f64, measured: Load, forecast: Load) {
        self.forecast = forecast;
        if !elapsed_seconds.is_finite() || elapsed_seconds <= 0.0 {
            return;
        }
        let seconds = if measured > self.now {
            RISE_SECONDS
        } else {
            FALL_SECONDS
        };
        let weight = 1.0 - (-elapsed_seconds / seconds).exp();
        let now = self.now.get();
        let next = now + weight * (measured.get() - now);
        self.now = Load::new(next).unwrap_or(measured);
    }

    /// The load to plan with: the larger of now and the forecast.
    #[must_use]
    pub fn planned(&self) -> Load {
        self.now.larger(self.forecast)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(load: f64) -> Load {
        Load::new(load).unwrap()
    }

    #[test]
    fn the_model_is_text_001s() {
        // 4144 with sizes in the text's unit.
        let model = Calibration::new(0.95, 4144.0).unwrap();
        let tenant = model.load(10.0, 100).unwrap().get();
        assert!((tenant - 10.0 * 100_f64.powf(0.95) / 4144.0).abs() < 1e-12);
        let highest = Calibration::from_highest_rate(50.0, 1 << 30).unwrap();
        assert!((highest.load(50.0, 1 << 30).unwrap().get() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn odd_numbers_are_errors() {
        assert!(Calibration::new(f64::NAN, 1.0).is_err());
        assert!(Calibration::new(0.95, 0.0).is_err());
        assert!(Calibration::from_highest_rate(1.0, 0).is_err());
        let model = Calibration::new(0.95, 1.0).unwrap();
        assert!(model.load(-1.0, 1).is_err());
        assert!(model.load(f64::INFINITY, 1).is_err());
        assert!(model.load(1e30, u64::MAX).is_err());
        assert!(Load::new(f64::NAN).is_err());
        assert!(crate::Share::new(1.1).is_err());
        let most = crate::Share::new(0.7).unwrap();
        assert!(crate::LoadSplit::new(most, most).is_err());
    }

    #[test]
    fn a_refit_takes_the_median_and_goes_by_steps() {
        let model = Calibration::new(0.95, 100.0).unwrap();
        let seen = |work, at| Observed {
            work,
            load: load(at),
        };
        let nodes = [seen(60.0, 0.5), seen(65.0, 0.5), seen(9_000.0, 0.9)];
        assert!((model.refit(&nodes).constant() - 130.0).abs() < 1e-9);
        assert!((model.refit(&nodes[2..]).constant() - 200.0).abs() < 1e-9);
        assert_eq!(model.refit(&[seen(1.0, 0.01)]), model);
    }

    #[test]
    fn a_rise_is_seen_soon_and_a_fall_late() {
        let mut tenant = SmoothedLoad::new(load(0.1));
        tenant.observe(60.0, load(0.5), Load::ZERO);
        let risen = tenant.planned().get();
        assert!(risen > 0.4, "{risen}");
        tenant.observe(60.0, load(0.1), Load::ZERO);
        assert!(tenant.planned().get() > 0.9 * risen);
        tenant.observe(f64::NAN, load(0.1), load(0.8));
        assert_eq!(tenant.planned(), load(0.8));
    }
}
