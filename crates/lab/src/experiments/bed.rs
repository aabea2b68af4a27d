//! The common part of the experiments on the workload model: a node with tenants of several
//! sizes, the highest rates at which these meet their goal, and the resulting model.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use aerostat_calibrate::{Identity, cores};
use aerostat_capacity::{FORMAT, Measured, Model, Observation};
use aerostat_workload::Scale;
use aerostat_workload::ssb::{SEED_DEFAULT, Ssb, Table};
use anyhow::{Context, Result, bail};

use super::search::Search;
use crate::experiment::Cell;
use crate::node::Node;
use crate::others::DISTURBS;
use crate::results::{Results, Sample};
use crate::stats::estimate;
use crate::traffic::{Seen, Stream, Traffic};
use crate::{Environment, Run};

/// The goal for the 99th percentile, ms, that the model is made for. The source's second is
/// some seven times what its queries take on an idle node (below 150 ms); ours take 1 to 10 ms.
/// It also shows an overload at once: with a goal of a second, a node that is overloaded by a
/// tenth keeps it for ten seconds.
pub(super) const GOAL_MS: f64 = 50.0;

/// The source's goal, ms (source 001).
pub(super) const SOURCE_GOAL_MS: f64 = 1000.0;

/// Tenants of a size that are at work together when its highest rate is measured, as in the
/// source: one alone has the caches for itself, which tenants that share a node have not.
pub(super) const ALIKE: usize = 4;

/// How long freezing a tenant's rows may take.
const FREEZE: Duration = Duration::from_secs(60);

/// The workload model's experiment, whose samples the others use when they run with it.
pub(super) const MODEL: &str = "workload-model";

/// Why what needs a model is skipped without one.
pub(super) const NO_MODEL: &str = "no model: rates that keep the goal were not found";

/// Bytes that the node holds for a tenant.
pub(super) const BYTES: &str = "bytes in memory";

/// Processors that other work took while rates were tried.
pub(super) const OTHERS: &str = "processors of other work";

/// The series of highest rates that keep a goal.
pub(super) fn rates(goal_ms: f64) -> String {
    format!("highest rate, goal {goal_ms:.0} ms")
}

/// How highest rates are measured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// Seconds of each rate that is tried.
    pub(super) seconds: f64,
    /// How often it is tried, if other work disturbs.
    pub(super) tries: usize,
    /// Which rates.
    pub(super) search: Search,
}

impl Effort {
    /// Few and short tries, or more and longer ones.
    pub(super) fn of(run: &Run<'_>) -> Effort {
        let (seconds, tries, probes, near) = if run.is_quick() {
            (1.0, 2, 6, 1.08)
        } else {
            (2.0, 3, 8, 1.04)
        };
        Effort {
            seconds,
            tries,
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
            freeze(&mut bed.traffic, &bed.node, name)?;
            let size = "SELECT pg_database_size(current_database())";
            bed.bytes
                .push(number(&bed.traffic.text(&bed.node, name, size)?)?);
        }
        Ok(Some(bed))
    }

    /// The same with [`ALIKE`] tenants of each scale.
    ///
    /// # Errors
    /// As of [`Bed::new`].
    pub(super) fn alike(run: &mut Run<'_>, scales: &[f64]) -> Result<Option<Bed>> {
        let all: Vec<f64> = scales.iter().flat_map(|scale| [*scale; ALIKE]).collect();
        Bed::new(run, &all)
    }

    /// Finds the highest rate of the tenants of a size, all together, that are at work alone, and
    /// keeps it with what one of them takes. Returns it, if it was found.
    ///
    /// # Errors
    /// When requests fail.
    pub(super) fn highest(
        &mut self,
        size: usize,
        effort: Effort,
        cell: &mut Cell,
    ) -> Result<Option<f64>> {
        let native = Environment::Native;
        let tenant = size * ALIKE;
        // Statements are prepared, too.
        let mut capacity = 0.0;
        for alike in tenant..tenant + ALIKE {
            capacity = self.traffic.saturate(alike, effort.seconds / 3.0)?;
        }
        let (mut others, mut tried) = (Vec::new(), Vec::new());
        let found = effort.search.highest(capacity * 0.85, GOAL_MS, |rate| {
            let seen = self.at_work(size, rate, GOAL_MS, effort)?;
            others.push(seen.others);
            // Who is not answered at all counts as that long.
            tried.push((rate, seen.p99_ms().min(GOAL_MS * 10.0)));
            Ok(seen.p99_ms())
        })?;
        let series = format!("tried: 99th percentile, ms, {:.0} rows", self.rows[tenant]);
        for (rate, p99_ms) in tried {
            cell.put(native, &series, rate, p99_ms);
        }
        cell.put(native, BYTES, self.rows[tenant], self.bytes[tenant]);
        others
            .into_iter()
            .for_each(|one| cell.put(native, OTHERS, 0.0, one));
        if let Some(rate) = found {
            cell.put(native, &rates(GOAL_MS), self.rows[tenant], rate);
        }
        Ok(found)
    }

    /// What users see when all tenants of a size, and no others, have this rate together.
    ///
    /// # Errors
    /// When requests fail.
    pub(super) fn at_work(
        &mut self,
        size: usize,
        rate: f64,
        goal_ms: f64,
        effort: Effort,
    ) -> Result<Seen> {
        let tenants = size * ALIKE..(size + 1) * ALIKE;
        let streams: Vec<Stream> = tenants
            .map(|tenant| Stream {
                tenant,
                rate: rate / ALIKE as f64,
            })
            .collect();
        self.traffic
            .send_quietly(&streams, effort.seconds, goal_ms, effort.tries)
    }
}

/// The scales of the tenants that [`known`] is made of, where the workload model is not in the
/// run.
pub(super) const FITTED: [f64; 3] = [0.02, 0.1, 0.5];

/// The model as cells of this experiment: of the workload model's samples, if that is in this
/// run, else of tenants of three sizes. `None` if too few rates keep the goal.
///
/// # Errors
/// When a node does not start, or requests fail.
pub(super) fn known(run: &mut Run<'_>, rounds: usize) -> Result<Option<Model>> {
    let others = run.others(MODEL)?;
    let effort = Effort::of(run);
    if measured(&others, run.is_quick()).is_some() {
        run.cell("the model, measured before", |cell| {
            let native = Environment::Native;
            for known in observations(&others, GOAL_MS) {
                for rate in known.rates {
                    cell.put(native, &rates(GOAL_MS), known.rows, rate);
                }
                for bytes in others.values(native, BYTES, known.rows) {
                    cell.put(native, BYTES, known.rows, bytes);
                }
            }
            Ok(())
        })?;
    } else {
        let Some(mut bed) = Bed::alike(run, &FITTED)? else {
            return Ok(None);
        };
        for round in 0..rounds {
            for size in 0..FITTED.len() {
                let rows = bed.rows[size * ALIKE];
                let name = format!("the model, {rows:.0} rows, round {}", round + 1);
                run.cell(&name, |cell| {
                    bed.highest(size, effort, cell)?;
                    Ok(())
                })?;
            }
        }
    }
    Ok(model(&run.results()?, run.is_quick()))
}

/// Freezes a tenant's rows, all of them: those that the node's freezer has in hand are frozen
/// by that.
pub(super) fn freeze(traffic: &mut Traffic, node: &Node, tenant: &str) -> Result<()> {
    let started = Instant::now();
    while started.elapsed() < FREEZE {
        traffic.text(node, tenant, "VACUUM FREEZE")?;
        let hot = "SELECT coalesce(sum(rows - rows_frozen), 0) FROM aerostat.tables";
        if number(&traffic.text(node, tenant, hot)?)? == 0.0 {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    bail!("the rows of {tenant} do not freeze");
}

fn number(text: &str) -> Result<f64> {
    let parsed = text.trim().parse();
    parsed.with_context(|| format!("{text:?} is no number"))
}

/// A sentence on other work meanwhile; none if there was little.
pub(super) fn disturbance(results: &Results) -> String {
    let disturbed = disturbed_cells(results).len();
    if disturbed == 0 {
        return String::new();
    }
    format!(
        " Other work disturbed {disturbed} parts of the measurement, which are left out where there is an undisturbed one."
    )
}

/// Rows of the fact table at a scale.
fn rows(scale: f64) -> Result<f64> {
    let scale = Scale::new(scale).with_context(|| format!("{scale} is no scale"))?;
    Ok(Ssb::new(scale, SEED_DEFAULT).rows(Table::Lineorder) as f64)
}

/// The samples without those of cells that other work disturbed, wherever the same point was
/// measured undisturbed.
pub(super) fn undisturbed(results: &Results) -> Results {
    let disturbed = disturbed_cells(results);
    let is_quiet = |one: &Sample| !disturbed.contains(&one.cell);
    let points: HashSet<(&str, u64)> = results
        .samples
        .iter()
        .filter(|one| is_quiet(one))
        .map(|one| (one.series.as_str(), one.x.to_bits()))
        .collect();
    let has_no_other = |one: &Sample| !points.contains(&(one.series.as_str(), one.x.to_bits()));
    let kept = results
        .samples
        .iter()
        .filter(|one| is_quiet(one) || has_no_other(one));
    Results {
        samples: kept.cloned().collect(),
        environments: results.environments.clone(),
        limits: results.limits,
    }
}

/// The highest rates among an experiment's undisturbed samples, by size.
pub(super) fn observations(results: &Results, goal_ms: f64) -> Vec<Observation> {
    let series = rates(goal_ms);
    let results = undisturbed(results);
    let xs = results.xs(Environment::Native, &series).into_iter();
    xs.map(|rows| Observation {
        rows,
        rates: results.values(Environment::Native, &series, rows),
    })
    .collect()
}

/// Cells in which other work took more than a little of the processors, by the median.
fn disturbed_cells(results: &Results) -> Vec<String> {
    let mut others: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for sample in results.samples.iter().filter(|one| one.series == OTHERS) {
        others.entry(&sample.cell).or_default().push(sample.value);
    }
    let is_disturbed = |(_, values): &(&str, Vec<f64>)| {
        estimate(values).is_some_and(|others| others.median >= DISTURBS)
    };
    let disturbed = others.into_iter().filter(is_disturbed);
    disturbed.map(|(cell, _)| cell.to_owned()).collect()
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
    fn disturbed_rates_are_left_out_where_others_are_not() {
        let mut results = Results::default();
        for (cell, others, rows, rate) in [
            ("quiet", 0.01, 1e5, 900.0),
            ("busy", 1.3, 1e5, 300.0),
            ("busy too", 0.9, 1e6, 50.0),
        ] {
            for (series, x, value) in [(OTHERS, 0.0, others), (&rates(GOAL_MS), rows, rate)] {
                results.samples.push(Sample {
                    cell: cell.to_owned(),
                    ..sample(series, x, value)
                });
            }
        }
        let observed = observations(&results, GOAL_MS);
        assert_eq!(observed[0].rates, [900.0]);
        assert_eq!(observed[1].rates, [50.0], "there is no other");
        assert!(disturbance(&results).contains("disturbed 2 parts"));
    }

    #[test]
    fn scales_have_the_benchmarks_rows() {
        assert_eq!(rows(0.1).unwrap(), 600_000.0);
        assert!(rows(-1.0).is_err());
    }
}
