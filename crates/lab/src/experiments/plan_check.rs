//! Whether the workload model predicts the highest rate of tenants it has not seen.

use aerostat_calibrate::{Axis, Chart, ChartPoint, Line, Scale};
use aerostat_capacity::{Interval, Model};
use anyhow::Result;
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::bed::{Bed, Effort, GOAL_MS, NO_MODEL, OTHERS, disturbance, known, undisturbed};
use super::mixed_tenants::streams;
use crate::experiment::Cell;
use crate::results::Results;
use crate::stats::Estimate;
use crate::{About, Conclusion, Environment, Experiment, Outcome, Run, Table};

/// Predicted against measured.
pub(crate) struct PlanCheck;

/// The tenants, by scale; the model is made of others.
const SCALES: [f64; 4] = [0.03, 0.06, 0.15, 0.35];

/// A prediction as near as this is a good one.
const NEAR: f64 = 0.2;

const PREDICTED: &str = "predicted highest rate";
const LOW: &str = "predicted highest rate, lower end";
const HIGH: &str = "predicted highest rate, upper end";
const MEASURED: &str = "measured highest rate";

impl Experiment for PlanCheck {
    fn about(&self) -> About {
        About {
            name: "plan-check",
            question: "Is the highest request rate of a mix of tenants what the workload model predicts?",
            source: "001, \"Workload\": at a workload of 1 the system is at its maximum throughput",
            parameters: "four tenants of 180 thousand to 2.1 million rows, of sizes that the model has not seen, in mixes drawn by the seed (2, with --quick; else 4); all rates are scaled up together until the goal of 50 ms is broken",
            expected: "the measured rate is within 20% of the predicted one",
            environments: &[Environment::Native],
        }
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<()> {
        let (mixes, rounds) = if run.is_quick() { (2, 2) } else { (4, 3) };
        let effort = Effort::of(run);
        let seed = run.seed();
        if run.node_program().is_none() {
            return Ok(());
        }
        let Some(model) = known(run, rounds.min(2))? else {
            run.skip("all mixes", NO_MODEL);
            return Ok(());
        };
        let Some(mut bed) = Bed::new(run, &SCALES)? else {
            return Ok(());
        };
        for round in 0..rounds {
            for mix in 0..mixes {
                let shares = shares(seed, mix);
                let name = format!(
                    "mix {} of {mixes}, round {} of {rounds}",
                    mix + 1,
                    round + 1
                );
                let x = f64::from(mix as u32 + 1);
                run.cell(&name, |cell| {
                    check(&mut bed, &model, &shares, effort, x, cell)
                })?;
            }
        }
        Ok(())
    }

    fn conclude(&self, results: &Results) -> Conclusion {
        conclude(results)
    }
}

/// Predicts the highest rate of a mix, and measures it.
fn check(
    bed: &mut Bed,
    model: &Model,
    shares: &[f64],
    effort: Effort,
    x: f64,
    cell: &mut Cell,
) -> Result<()> {
    let native = Environment::Native;
    let full = streams(model, &bed.rows, shares, 1.0);
    let total: f64 = full.iter().map(|stream| stream.rate).sum();
    let rates = full
        .iter()
        .map(|stream| (bed.rows[stream.tenant], stream.rate));
    let workload = model.workload(&rates.collect::<Vec<_>>());
    let mut others = Vec::new();
    let found = effort.search.highest(0.85, GOAL_MS, |workload| {
        let streams = streams(model, &bed.rows, shares, workload);
        let traffic = &mut bed.traffic;
        let seen = traffic.send_quietly(&streams, effort.seconds, GOAL_MS, effort.tries)?;
        others.push(seen.others);
        Ok(seen.p99_ms())
    })?;
    for one in others {
        cell.put(native, OTHERS, 0.0, one);
    }
    cell.put(native, PREDICTED, x, total / workload.value);
    cell.put(native, LOW, x, total / workload.high);
    cell.put(native, HIGH, x, total / workload.low);
    if let Some(found) = found {
        cell.put(native, MEASURED, x, total * found);
    }
    Ok(())
}

/// What share of the workload each tenant has in a mix, drawn at random.
fn shares(seed: u64, mix: usize) -> Vec<f64> {
    let mut random = Pcg64Mcg::seed_from_u64(seed.wrapping_add(mix as u64));
    let weights: Vec<f64> = SCALES
        .iter()
        .map(|_| random.random_range(0.1..1.0))
        .collect();
    let total: f64 = weights.iter().sum();
    weights.into_iter().map(|weight| weight / total).collect()
}

/// A mix's prediction and what was measured.
struct Check {
    mix: f64,
    predicted: Interval,
    measured: Estimate,
}

impl Check {
    /// Measured by predicted.
    fn ratio(&self) -> f64 {
        self.measured.median / self.predicted.value
    }
}

fn checks(results: &Results) -> Vec<Check> {
    let native = Environment::Native;
    let check = |mix| {
        let at = |series| results.at(native, series, mix);
        Some(Check {
            mix,
            predicted: Interval {
                low: at(LOW)?.median,
                value: at(PREDICTED)?.median,
                high: at(HIGH)?.median,
            },
            measured: at(MEASURED)?,
        })
    };
    results
        .xs(native, MEASURED)
        .into_iter()
        .filter_map(check)
        .collect()
}

fn conclude(all: &Results) -> Conclusion {
    let results = &undisturbed(all);
    let checks = checks(results);
    if checks.is_empty() {
        return Conclusion {
            outcome: Outcome::Unclear,
            verdict: "Not enough was measured.".to_owned(),
            tables: Vec::new(),
            charts: Vec::new(),
        };
    }
    let text = |check: &Check| {
        format!(
            "mix {:.0}: {:.0} [{:.0}, {:.0}] requests/s predicted, {:.0} [{:.0}, {:.0}] measured ({:+.0}%)",
            check.mix,
            check.predicted.value,
            check.predicted.low,
            check.predicted.high,
            check.measured.median,
            check.measured.low,
            check.measured.high,
            (check.ratio() - 1.0) * 100.0,
        )
    };
    let texts: Vec<String> = checks.iter().map(text).collect();
    let is_near = |check: &Check| (check.ratio() - 1.0).abs() <= NEAR;
    let outcome = if checks.iter().all(is_near) {
        Outcome::AsExpected
    } else {
        Outcome::Differs
    };
    let near = checks.iter().filter(|check| is_near(check)).count();
    Conclusion {
        outcome,
        verdict: format!(
            "{near} of {} mixes are within 20%: {}.{}",
            checks.len(),
            texts.join("; "),
            disturbance(all)
        ),
        tables: vec![table(&checks)],
        charts: vec![("check", chart(&checks))],
    }
}

fn table(checks: &[Check]) -> Table {
    let row = |check: &Check| {
        let (predicted, measured) = (check.predicted, check.measured);
        vec![
            format!("{:.0}", check.mix),
            format!(
                "{:.0} [{:.0}, {:.0}]",
                predicted.value, predicted.low, predicted.high
            ),
            format!(
                "{:.0} [{:.0}, {:.0}]",
                measured.median, measured.low, measured.high
            ),
            format!("{:.2}", check.ratio()),
        ]
    };
    let headings = [
        "mix",
        "predicted, requests/s",
        "measured, requests/s",
        "measured by predicted",
    ];
    Table {
        title: "Highest rates of mixes, all tenants together".to_owned(),
        headings: headings.map(str::to_owned).to_vec(),
        rows: checks.iter().map(row).collect(),
    }
}

/// Measured over predicted rates, beside what is as predicted and a fifth off.
fn chart(checks: &[Check]) -> Chart {
    let mut checks: Vec<&Check> = checks.iter().collect();
    checks.sort_by(|a, b| a.predicted.value.total_cmp(&b.predicted.value));
    let predicted = || checks.iter().map(|check| check.predicted.value);
    let ends = [
        predicted().fold(f64::MAX, f64::min) * 0.9,
        predicted().fold(0.0, f64::max) * 1.1,
    ];
    let beside = |name: &str, factor: f64| Line {
        name: name.to_owned(),
        points: ends
            .map(|x| ChartPoint {
                x,
                y: x * factor,
                interval: None,
            })
            .to_vec(),
    };
    let measured = |check: &&Check| ChartPoint {
        x: check.predicted.value,
        y: check.measured.median,
        interval: Some((check.measured.low, check.measured.high)),
    };
    Chart {
        title: "Highest request rates of mixes, measured over predicted".to_owned(),
        x: Axis::new(
            "predicted requests per second, all tenants together",
            Scale::Linear,
        ),
        y: Axis::new("measured requests per second", Scale::Linear),
        lines: vec![
            Line {
                name: "measured".to_owned(),
                points: checks.iter().map(measured).collect(),
            },
            beside("as predicted", 1.0),
            beside("a fifth less", 1.0 - NEAR),
            beside("a fifth more", 1.0 + NEAR),
        ],
        marks: Vec::new(),
        levels: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::bed::tests::sample;
    use super::*;
    use crate::experiments::bed::FITTED;

    fn results(measured: &[f64]) -> Results {
        let mut samples = Vec::new();
        for (at, measured) in measured.iter().enumerate() {
            let x = at as f64 + 1.0;
            samples.push(sample(PREDICTED, x, 400.0));
            samples.push(sample(LOW, x, 360.0));
            samples.push(sample(HIGH, x, 440.0));
            samples.push(sample(MEASURED, x, measured * 0.98));
            samples.push(sample(MEASURED, x, measured * 1.02));
        }
        Results {
            samples,
            ..Results::default()
        }
    }

    #[test]
    fn a_prediction_within_a_fifth_is_a_good_one() {
        let good = conclude(&results(&[460.0, 350.0]));
        assert_eq!(good.outcome, Outcome::AsExpected);
        assert!(good.verdict.contains("2 of 2 mixes"), "{}", good.verdict);
        assert!(
            good.verdict.contains("400 [360, 440] requests/s predicted"),
            "{}",
            good.verdict
        );
        assert!(good.verdict.contains("(+15%)"), "{}", good.verdict);
        assert!(good.charts[0].1.svg().is_ok());
        let bad = conclude(&results(&[460.0, 250.0]));
        assert_eq!(bad.outcome, Outcome::Differs);
        assert!(bad.verdict.contains("1 of 2 mixes"), "{}", bad.verdict);
    }

    #[test]
    fn mixes_are_of_tenants_that_the_model_has_not_seen() {
        assert!(SCALES.iter().all(|scale| !FITTED.contains(scale)));
        for seed in 0..50 {
            let (one, other) = (shares(seed, 0), shares(seed, 1));
            assert!((one.iter().sum::<f64>() - 1.0).abs() < 1e-9, "seed {seed}");
            assert_ne!(one, other, "seed {seed}");
            assert_eq!(one, shares(seed, 0));
        }
    }
}
