//! What the experiments on the workload model share: a node with tenants of several sizes,
//! the highest rates that these keep their goal at, and the model that follows.

use std::time::Duration;

use aerostat_calibrate::{Identity, cores};
use aerostat_plan::{FORMAT, Measured, Model, Observation};
use aerostat_workload::Scale;
use aerostat_workload::ssb::{SEED_DEFAULT, Ssb, Table};
use anyhow::{Context, Result};

use super::search::{Probe, Search};
use crate::experiment::Cell;
use crate::node::Node;
use crate::results::Results;
use crate::traffic::{Stream, Traffic};
use crate::{Environment, Run};

/// The goal for the 99th percentile, ms, that the model is made for. The source's second is
/// some seven times what its queries take on an idle node (below 150 ms); ours take 1 to 10 ms.
/// It also shows an overload at once: with a goal of a second, a node that is overloaded by a
/// tenth keeps it for ten seconds.
pub(super) const GOAL_MS: f64 = 50.0;

/// The source's goal, ms (source 001).
pub(super) const SOURCE_GOAL_MS: f64 = 1000.0;

/// The workload model's experiment, whose samples the others use when they run with it.
pub(super) const MODEL: &str = "workload-model";

/// Bytes that the node holds for a tenant.
pub(super) const BYTES: &str = "bytes in memory";

/// The series of highest rates that keep a goal.
pub(super) fn rates(goal_ms: f64) -> String {
    format!("highest rate, goal {goal_ms:.0} ms")
}

/// How highest rates are measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// Seconds of each rate that is tried.
    pub(super) seconds: f64,
    /// Which rates.
    pub(super) search: Search,
}

impl Effort {
    /// Few and short tries, or more and longer ones.
    pub(super) fn of(run: &Run<'_>) -> Effort {
        let (seconds, probes, near) = if run.is_quick() {
            (1.2, 6, 1.08)
        } else {
            (3.0, 8, 1.04)
        };
        Effort {
            seconds,
            search: Search { probes, near },
        }
    }
}

/// A node with tenants, which ends with this value.
pub(super) struct Bed {
    pub(super) traffic: Traffic,
    /// Rows of each tenant's fact table.
    pub(super) rows: Vec<f64>,
    /// Bytes of each tenant in the node's memory.
    bytes: Vec<f64>,
    /// Its tenants' names.
    pub(super) names: Vec<String>,
    pub(super) node: Node,
}

impl Bed {
    /// Starts a node with a tenant of each scale of the star schema benchmark, frozen. `None`
    /// if there is no node here.
    ///
    /// # Errors
    /// When it does not start, or cannot be loaded.
    pub(super) fn new(run: &mut Run<'_>, scales: &[f64]) -> Result<Option<Bed>> {
        let Some(program) = run.node_program() else {
            return Ok(None);
        };
        let node = Node::start(&program, &run.scratch()?)?;
        let name = |number: usize| format!("tenant{number}");
        let names: Vec<String> = (0..scales.len()).map(name).collect();
        for (name, scale) in names.iter().zip(scales) {
            node.load_ssb(name, *scale)?;
        }
        let mut bed = Bed {
            traffic: Traffic::new(&node, &names, run.seed())?,
            rows: scales
                .iter()
                .map(|scale| rows(*scale))
                .collect::<Result<_>>()?,
            bytes: Vec::new(),
            names,
            node,
        };
        for name in &bed.names {
            bed.traffic.text(&bed.node, name, "VACUUM FREEZE")?;
            let size = "SELECT pg_database_size(current_database())";
            let text = bed.traffic.text(&bed.node, name, size)?;
            let bytes = text
                .trim()
                .parse()
                .with_context(|| format!("{text:?} is no size"))?;
            bed.bytes.push(bytes);
        }
        Ok(Some(bed))
    }

    /// Finds the highest rate of a tenant that is alone at work, and keeps it with what it
    /// takes. Returns it, if it was found.
    ///
    /// # Errors
    /// When requests fail.
    pub(super) fn highest(
        &mut self,
        tenant: usize,
        effort: Effort,
        cell: &mut Cell,
    ) -> Result<Option<f64>> {
        let native = Environment::Native;
        let capacity = self.traffic.saturate(tenant, effort.seconds / 3.0)?;
        let found = effort.search.highest(capacity * 0.85, GOAL_MS, |rate| {
            Ok(self.alone(tenant, rate, effort.seconds, GOAL_MS)?.p99_ms)
        })?;
        cell.put(native, BYTES, self.rows[tenant], self.bytes[tenant]);
        if let Some(rate) = found {
            cell.put(native, &rates(GOAL_MS), self.rows[tenant], rate);
        }
        Ok(found)
    }

    /// The 99th percentile of a tenant that is alone at work.
    ///
    /// # Errors
    /// When requests fail.
    pub(super) fn alone(
        &mut self,
        tenant: usize,
        rate: f64,
        seconds: f64,
        goal_ms: f64,
    ) -> Result<Probe> {
        let streams = [Stream { tenant, rate }];
        let seen = self.traffic.send(&streams, seconds, patience(goal_ms))?;
        Ok(Probe {
            rate,
            p99_ms: seen.p99_ms(),
        })
    }

    /// The model's samples as a cell of this experiment: those of the workload model's, if
    /// that is in this run, else measured with these tenants.
    ///
    /// # Errors
    /// When requests fail.
    pub(super) fn model(
        &mut self,
        run: &mut Run<'_>,
        tenants: &[usize],
        rounds: usize,
    ) -> Result<Option<Model>> {
        let others = run.others(MODEL)?;
        let effort = Effort::of(run);
        if measured(&others, run.is_quick()).is_some() {
            run.cell("the model, measured before", |cell| {
                let needed = [BYTES.to_owned(), rates(GOAL_MS)];
                for sample in others
                    .samples
                    .iter()
                    .filter(|one| needed.contains(&one.series))
                {
                    cell.put(Environment::Native, &sample.series, sample.x, sample.value);
                }
                Ok(())
            })?;
        } else {
            for round in 0..rounds {
                for &tenant in tenants {
                    let name = format!(
                        "the model, {:.0} rows, round {}",
                        self.rows[tenant],
                        round + 1
                    );
                    run.cell(&name, |cell| {
                        self.highest(tenant, effort, cell)?;
                        Ok(())
                    })?;
                }
            }
        }
        Ok(model(&run.results()?, run.is_quick()))
    }
}

/// How long requests may stay unanswered behind the end: those that wait longer have broken
/// the goal in any case.
pub(super) fn patience(goal_ms: f64) -> Duration {
    Duration::from_secs_f64(goal_ms * 3.0 / 1e3)
}

/// Rows of the fact table at a scale.
fn rows(scale: f64) -> Result<f64> {
    let scale = Scale::new(scale).with_context(|| format!("{scale} is no scale"))?;
    Ok(Ssb::new(scale, SEED_DEFAULT).rows(Table::Lineorder) as f64)
}

/// The highest rates among an experiment's samples, by size.
pub(super) fn observations(results: &Results, goal_ms: f64) -> Vec<Observation> {
    let series = rates(goal_ms);
    let xs = results.xs(Environment::Native, &series).into_iter();
    xs.map(|rows| Observation {
        rows,
        rates: results.values(Environment::Native, &series, rows),
    })
    .collect()
}

/// What a model is made of; `None` if that is not enough.
fn measured(results: &Results, quick: bool) -> Option<Measured> {
    let observations = observations(results, GOAL_MS);
    let (mut bytes, mut rows) = (0.0, 0.0);
    for x in results.xs(Environment::Native, BYTES) {
        bytes += results.at(Environment::Native, BYTES, x)?.median;
        rows += x;
    }
    (observations.len() >= 3 && bytes > 0.0).then(|| Measured {
        format: FORMAT,
        processor: Identity::here().processor,
        workers: cores::allowed().len(),
        requests: "star schema benchmark, its 13 queries in turn".to_owned(),
        quick,
        goal_ms: GOAL_MS,
        observations,
        bytes_per_row: bytes / rows,
    })
}

/// The model that an experiment's samples make.
pub(super) fn model(results: &Results, quick: bool) -> Option<Model> {
    Model::new(measured(results, quick)?).ok()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::Sample;

    /// A sample of these experiments.
    pub(in crate::experiments) fn sample(series: &str, x: f64, value: f64) -> Sample {
        Sample {
            cell: "c".to_owned(),
            environment: Environment::Native,
            series: series.to_owned(),
            x,
            value,
        }
    }

    /// Samples of highest rates by a law, in two rounds.
    pub(in crate::experiments) fn by_law(rate: impl Fn(f64) -> f64) -> Vec<Sample> {
        let sizes = [1e5, 3e5, 1e6, 3e6];
        let of_size = |rows: f64| {
            [
                sample(&rates(GOAL_MS), rows, rate(rows) * 0.99),
                sample(&rates(GOAL_MS), rows, rate(rows) * 1.01),
                sample(BYTES, rows, rows * 25.0),
            ]
        };
        sizes.into_iter().flat_map(of_size).collect()
    }

    #[test]
    fn samples_become_a_model() {
        let results = Results {
            samples: by_law(|rows| 100.0 * (rows / 1e6).powf(-0.9)),
            ..Results::default()
        };
        let model = model(&results, false).unwrap();
        assert!((model.measured.bytes_per_row - 25.0).abs() < 1e-9);
        assert!((model.rate_max(1e6) - 100.0).abs() < 1e-6);
        assert_eq!(model.measured.observations.len(), 4);
        assert!(super::model(&Results::default(), false).is_none());
    }

    #[test]
    fn scales_have_the_benchmarks_rows() {
        assert_eq!(rows(0.1).unwrap(), 600_000.0);
        assert!(rows(-1.0).is_err());
    }
}
