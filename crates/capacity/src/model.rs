//! The workload model of a machine: the measurements, and what follows from them.

use std::path::Path;

use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

use crate::PlanError;
use crate::fit::{Fits, Interval, LinearFit, Observation, PowerFit, fit, percentiles};

/// The format of a model as JSON. A reader refuses others.
pub const FORMAT: u32 = 1;

/// The model in a data folder, or in the folder of a lab's run.
pub const FILE: &str = "workload-model.json";

/// Draws behind a workload's interval.
const DRAWS: usize = 500;

/// Intervals do not depend on when they are computed.
const SEED: u64 = 0x70ad;

/// What was measured, as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// [`FORMAT`].
    pub format: u32,
    /// The processor, as its system names it.
    pub processor: String,
    /// Threads that the node's queries ran on.
    pub workers: usize,
    /// The requests: of which benchmark.
    pub requests: String,
    /// Whether few points and short runs had to do.
    pub quick: bool,
    /// The goal of the 99th percentile of response times, ms.
    pub goal_ms: f64,
    /// Highest rates that keep it, by size.
    pub observations: Vec<Observation>,
    /// Bytes in the node's memory for each row of the fact table, all tables together.
    pub bytes_per_row: f64,
}

/// A model: what was measured, and the laws fitted to it.
#[derive(Clone, Debug)]
pub struct Model {
    /// What was measured.
    pub measured: Measured,
    /// What follows.
    pub fits: Fits,
}

/// What a model's file says: the fits are for readers, and made anew from what was measured.
#[derive(Serialize)]
struct Written<'a> {
    #[serde(flatten)]
    measured: &'a Measured,
    power_law: &'a PowerFit,
    linear_law: &'a LinearFit,
}

impl Model {
    /// Fits the laws.
    ///
    /// # Errors
    /// [`PlanError::FewSizes`] for fewer than three sizes, [`PlanError::Format`].
    pub fn new(measured: Measured) -> Result<Model, PlanError> {
        if measured.format != FORMAT {
            return Err(PlanError::Format {
                found: measured.format,
            });
        }
        let is_sound = measured.goal_ms > 0.0
            && measured.workers > 0
            && measured.bytes_per_row.is_finite()
            && measured.bytes_per_row > 0.0;
        let fits = fit(&measured.observations).filter(|_| is_sound);
        Ok(Model {
            fits: fits.ok_or(PlanError::FewSizes)?,
            measured,
        })
    }

    /// The model as JSON.
    ///
    /// # Errors
    /// Those of the library.
    pub fn to_json(&self) -> Result<String, serde_json::Error> {
        serde_json::to_string_pretty(&Written {
            measured: &self.measured,
            power_law: &self.fits.power,
            linear_law: &self.fits.linear,
        })
    }

    /// A model from JSON.
    ///
    /// # Errors
    /// [`PlanError::NoModel`], and those of [`Model::new`].
    pub fn from_json(text: &str) -> Result<Model, PlanError> {
        Model::new(serde_json::from_str(text).map_err(PlanError::NoModel)?)
    }

    /// The model in a file, or in the folder of a lab's run.
    ///
    /// # Errors
    /// [`PlanError::Read`], and those of [`Model::from_json`].
    pub fn read(path: &Path) -> Result<Model, PlanError> {
        let file = if path.is_dir() {
            let of_run = path.join("workload-model").join(FILE);
            if of_run.exists() {
                of_run
            } else {
                path.join(FILE)
            }
        } else {
            path.to_owned()
        };
        let text = std::fs::read_to_string(&file)
            .map_err(|source| PlanError::Read { path: file, source })?;
        Model::from_json(&text)
    }

    /// The highest rate of a tenant of so many rows that has a node to itself.
    pub fn rate_max(&self, rows: f64) -> f64 {
        self.fits.law.rate(rows)
    }

    /// The workload of tenants that share a node, each of so many rows and requests per
    /// second: the sum of what share of its highest rate each has. At 1 the goal is only just
    /// kept. The interval has the rounds' noise in it and what the law does not explain.
    pub fn workload(&self, tenants: &[(f64, f64)]) -> Interval {
        let load = |rate_max: &dyn Fn(f64) -> f64| -> f64 {
            tenants
                .iter()
                .map(|(rows, rate)| rate / rate_max(*rows))
                .sum()
        };
        let mut random = Pcg64Mcg::seed_from_u64(SEED);
        let (laws, residuals) = (&self.fits.resampled, self.fits.residuals());
        let draws: Vec<f64> = (0..DRAWS.min(DRAWS * laws.len()))
            .map(|_| {
                let law = laws[random.random_range(0..laws.len())];
                let mut total = 0.0;
                for (rows, rate) in tenants {
                    let off = residuals[random.random_range(0..residuals.len())];
                    total += rate / (law.rate(*rows) * off.exp());
                }
                total
            })
            .collect();
        percentiles(load(&|rows| self.rate_max(rows)), draws.into_iter())
    }

    /// The least and the greatest size that was measured, in rows.
    pub fn rows_measured(&self) -> (f64, f64) {
        let rows = || self.measured.observations.iter().map(|one| one.rows);
        (rows().fold(f64::MAX, f64::min), rows().fold(0.0, f64::max))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A node that scans a million rows in 10 ms of its time.
    pub(crate) fn model() -> Model {
        let noise = [0.98, 1.0, 1.03];
        let observations = [1e5, 1e6, 1e7].map(|rows| Observation {
            rows,
            rates: noise.map(|noise| noise * 100.0 * 1e6 / rows).to_vec(),
        });
        let measured = Measured {
            format: FORMAT,
            processor: "any".to_owned(),
            workers: 2,
            requests: "SSB".to_owned(),
            quick: false,
            goal_ms: 50.0,
            observations: observations.to_vec(),
            bytes_per_row: 20.0,
        };
        Model::new(measured).unwrap()
    }

    #[test]
    fn a_model_is_what_was_written() {
        let model = model();
        let json = model.to_json().unwrap();
        assert!(
            json.contains("\"power_law\"") && json.contains("\"exponent\""),
            "{json}"
        );
        let again = Model::from_json(&json).unwrap();
        assert_eq!(again.measured, model.measured);
        assert_eq!(again.fits, model.fits);
    }

    #[test]
    fn files_that_are_no_model_are_refused() {
        let refused = |text: &str| Model::from_json(text).unwrap_err().to_string();
        assert!(refused("{}").contains("no workload model"));
        let json = model().to_json().unwrap();
        assert!(refused(&json.replace("\"format\": 1", "\"format\": 9")).contains("format 9"));
        let mut few = model().measured;
        few.observations.truncate(2);
        assert!(matches!(Model::new(few), Err(PlanError::FewSizes)));
        let error = Model::read(Path::new("/nowhere/model.json")).unwrap_err();
        assert!(error.to_string().contains("/nowhere/model.json"), "{error}");
    }

    #[test]
    fn shares_of_the_highest_rates_add_up() {
        let model = model();
        let load = model.workload(&[(1e6, 50.0), (1e7, 2.5), (1e5, 250.0)]);
        assert!((load.value - 1.0).abs() < 0.01, "{load:?}");
        assert!(
            load.low < 1.0 && load.high > 0.99 && load.high < 1.1,
            "{load:?}"
        );
        assert_eq!(model.workload(&[]).value, 0.0);
        assert_eq!(model.rows_measured(), (1e5, 1e7));
    }
}
