//! Source 001's workload: response times of tenants of several sizes that share a node.

use aerostat_calibrate::{Axis, Chart, Line, Scale};
use aerostat_capacity::Model;
use anyhow::Result;

use super::bed::{Bed, Effort, GOAL_MS, NO_MODEL, OTHERS, disturbance, known, model, undisturbed};
use crate::experiment::Cell;
use crate::results::Results;
use crate::stats::Estimate;
use crate::traffic::Stream;
use crate::{About, Conclusion, Environment, Experiment, Outcome, Run, Table};

/// Whether the workload alone tells response times.
pub(crate) struct MixedTenants;

/// The tenants, by scale.
const SCALES: [f64; 5] = [0.02, 0.05, 0.1, 0.2, 0.5];

/// What share of the workload each tenant has. No mix was measured for the model, whose
/// tenants at work are of one size.
const MIXES: [(&str, [f64; 5]); 4] = [
    ("even", [0.2, 0.2, 0.2, 0.2, 0.2]),
    ("small tenants busy", [0.45, 0.35, 0.1, 0.05, 0.05]),
    ("large tenants busy", [0.05, 0.05, 0.1, 0.35, 0.45]),
    ("one busy", [0.05, 0.05, 0.8, 0.05, 0.05]),
];

/// A mix breaks the goal at a workload this near to 1, if the model is right.
const NEAR: f64 = 0.2;

fn p99_of(mix: &str) -> String {
    format!("99th percentile, ms, {mix}")
}

fn mean_of(mix: &str) -> String {
    format!("mean, ms, {mix}")
}

fn worst_of(mix: &str) -> String {
    format!("99th percentile of the worst tenant, ms, {mix}")
}

/// The requests of a mix at a workload.
pub(super) fn streams(model: &Model, rows: &[f64], shares: &[f64], workload: f64) -> Vec<Stream> {
    let tenants = rows.iter().zip(shares).enumerate();
    tenants
        .filter(|(_, (_, share))| **share > 0.0)
        .map(|(tenant, (rows, share))| Stream {
            tenant,
            rate: workload * share * model.rate_max(*rows),
        })
        .collect()
}

impl Experiment for MixedTenants {
    fn about(&self) -> About {
        About {
            name: "mixed-tenants",
            question: "Do response times of tenants that share a node depend on its workload alone, however that is mixed?",
            source: "001, \"Workload\" and \"Response time\"",
            parameters: "tenants of 120 thousand to 3 million rows at once; four mixes of their rates that the model has not seen, at workloads of 0.2 to 1.4 (0.4 to 1.3 with --quick); the model of the same run, or one of tenants of three sizes",
            expected: "the 99th percentile rises with the workload, the same for each mix, and breaks the goal near a workload of 1",
            environments: &[Environment::Native],
        }
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<()> {
        let (workloads, mixes, rounds): (&[f64], _, usize) = if run.is_quick() {
            (&[0.4, 0.7, 1.0, 1.3], &MIXES[..3], 2)
        } else {
            (
                &[0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.1, 1.25, 1.4],
                &MIXES[..],
                3,
            )
        };
        let effort = Effort::of(run);
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
            for (mix, shares) in mixes {
                for &workload in workloads {
                    let name = format!("{mix} at {workload}, round {} of {rounds}", round + 1);
                    let streams = streams(&model, &bed.rows, shares, workload);
                    run.cell(&name, |cell| {
                        take(&mut bed, mix, workload, &streams, effort, cell)
                    })?;
                }
            }
        }
        Ok(())
    }

    fn conclude(&self, results: &Results) -> Conclusion {
        conclude(results)
    }
}

/// Takes a mix's response times at a workload.
fn take(
    bed: &mut Bed,
    mix: &str,
    workload: f64,
    streams: &[Stream],
    effort: Effort,
    cell: &mut Cell,
) -> Result<()> {
    let seen = bed
        .traffic
        .send_quietly(streams, effort.seconds, GOAL_MS, effort.tries)?;
    // Who is not answered at all counts as that long.
    let most = GOAL_MS * 10.0;
    for (series, value) in [
        (p99_of(mix), seen.p99_ms()),
        (mean_of(mix), seen.mean_ms()),
        (worst_of(mix), seen.worst_p99_ms()),
    ] {
        cell.put(Environment::Native, &series, workload, value.min(most));
    }
    cell.put(Environment::Native, OTHERS, 0.0, seen.others);
    Ok(())
}

/// Where a mix's 99th percentile goes through the goal, between workloads by logarithms;
/// `None` if it does not.
fn crossing(points: &[(f64, f64)]) -> Option<f64> {
    let pair = points
        .windows(2)
        .find(|pair| pair[0].1 <= GOAL_MS && pair[1].1 > GOAL_MS)?;
    let [(low, before), (high, behind)] = [pair[0], pair[1]];
    let part = (GOAL_MS / before).ln() / (behind / before).ln();
    Some(low + (high - low) * part)
}

/// The share of the variance of ln p99 that the workload explains: of all points' scatter,
/// what is between workloads and not between mixes at one.
fn explained(points: &[(f64, f64)]) -> f64 {
    let mean = |of: &dyn Fn(f64) -> bool| {
        let of: Vec<f64> = points
            .iter()
            .filter(|(x, _)| of(*x))
            .map(|(_, y)| y.ln())
            .collect();
        of.iter().sum::<f64>() / of.len() as f64
    };
    let overall = mean(&|_| true);
    let total: f64 = points.iter().map(|(_, y)| (y.ln() - overall).powi(2)).sum();
    let within: f64 = points
        .iter()
        .map(|(x, y)| (y.ln() - mean(&|other| other == *x)).powi(2))
        .sum();
    1.0 - within / total
}

fn conclude(all: &Results) -> Conclusion {
    let results = &undisturbed(all);
    let native = Environment::Native;
    let medians = |mix: &str| -> Vec<(f64, f64)> {
        let xs = results.xs(native, &p99_of(mix)).into_iter();
        let at = |x| Some((x, results.at(native, &p99_of(mix), x)?.median));
        xs.filter_map(at).collect()
    };
    let mixes: Vec<&str> = MIXES.iter().map(|(mix, _)| *mix).collect();
    let measured: Vec<(&str, Vec<(f64, f64)>)> = mixes
        .into_iter()
        .map(|mix| (mix, medians(mix)))
        .filter(|(_, points)| points.len() > 1)
        .collect();
    if measured.len() < 2 {
        return Conclusion {
            outcome: Outcome::Unclear,
            verdict: "Not enough was measured.".to_owned(),
            tables: Vec::new(),
            charts: Vec::new(),
        };
    }
    let crossings: Vec<(&str, Option<f64>)> = measured
        .iter()
        .map(|(mix, points)| (*mix, crossing(points)))
        .collect();
    let points: Vec<(f64, f64)> = measured
        .iter()
        .flat_map(|(_, points)| points.clone())
        .collect();
    let is_near = |at: Option<f64>| at.is_some_and(|at| (at - 1.0).abs() <= NEAR);
    let outcome = if crossings.iter().all(|(_, at)| is_near(*at)) {
        Outcome::AsExpected
    } else {
        Outcome::Differs
    };
    Conclusion {
        outcome,
        verdict: verdict(results, &crossings, explained(&points)) + &disturbance(all),
        tables: measured
            .iter()
            .map(|(mix, _)| table(results, mix))
            .collect(),
        charts: charts(results, &measured),
    }
}

fn verdict(results: &Results, crossings: &[(&str, Option<f64>)], explained: f64) -> String {
    let text = |(mix, at): &(&str, Option<f64>)| match at {
        Some(at) => format!("{mix} {at:.2}"),
        None => format!("{mix} at none measured"),
    };
    let texts: Vec<String> = crossings.iter().map(text).collect();
    let law = model(results, true).map_or(String::new(), |model| {
        let power = &model.fits.power;
        let law = if model.fits.is_power() {
            format!("the power law, m = {:.3}", power.exponent.value)
        } else {
            "fixed time and time by row".to_owned()
        };
        format!(" Workload is by {law}.")
    });
    format!(
        "The 99th percentile goes through 50 ms at workloads of: {}. The workload explains {:.0}% of the variance of its logarithm over all mixes.{law}",
        texts.join(", "),
        explained * 100.0,
    )
}

fn table(results: &Results, mix: &str) -> Table {
    let native = Environment::Native;
    let text = |at: Option<Estimate>| {
        at.map_or("–".to_owned(), |at| {
            format!("{:.1} [{:.1}, {:.1}]", at.median, at.low, at.high)
        })
    };
    let row = |x: f64| {
        vec![
            format!("{x:.2}"),
            text(results.at(native, &mean_of(mix), x)),
            text(results.at(native, &p99_of(mix), x)),
            text(results.at(native, &worst_of(mix), x)),
        ]
    };
    let headings = [
        "workload",
        "mean, ms",
        "99th percentile, ms",
        "of the worst tenant, ms",
    ];
    Table {
        title: format!("Response times by workload: {mix}"),
        headings: headings.map(str::to_owned).to_vec(),
        rows: results
            .xs(native, &p99_of(mix))
            .into_iter()
            .map(row)
            .collect(),
    }
}

fn charts(results: &Results, measured: &[(&str, Vec<(f64, f64)>)]) -> Vec<(&'static str, Chart)> {
    let chart = |title: &str, y: &str, series: fn(&str) -> String| Chart {
        title: title.to_owned(),
        x: Axis::new("workload, 1: the goal is only just kept", Scale::Linear),
        y: Axis::new(y, Scale::Log),
        lines: measured
            .iter()
            .map(|(mix, _)| Line {
                name: (*mix).to_owned(),
                ..results.line(Environment::Native, &series(mix), 1.0)
            })
            .collect(),
        marks: vec![(1.0, "workload 1".to_owned())],
        levels: vec![(GOAL_MS, "goal: 50 ms".to_owned())],
    };
    let p99 = chart(
        "99th percentile by workload, for several mixes",
        "99th percentile of response times, ms",
        p99_of,
    );
    let mean = chart(
        "Mean response time by workload, for several mixes",
        "mean of response times, ms",
        mean_of,
    );
    vec![("p99", p99), ("mean", mean)]
}

#[cfg(test)]
mod tests {
    use super::super::bed::tests::{by_law, sample};
    use super::*;

    /// Response times that go to infinity at these workloads, by mix.
    fn results(ends: [f64; 3]) -> Results {
        let mut samples = by_law(|rows| 100.0 * (rows / 1e6).powf(-0.9));
        for ((mix, _), end) in MIXES.iter().zip(ends) {
            for workload in [0.4, 0.7, 1.0, 1.3] {
                let p99 = f64::min(5.0 / f64::max(1.0 - workload / end, 0.01), 500.0);
                samples.push(sample(&p99_of(mix), workload, p99));
                samples.push(sample(&mean_of(mix), workload, p99 / 4.0));
            }
        }
        Results {
            samples,
            ..Results::default()
        }
    }

    #[test]
    fn mixes_that_break_the_goal_near_one_are_as_expected() {
        let conclusion = conclude(&results([1.1, 1.12, 1.15]));
        assert_eq!(
            conclusion.outcome,
            Outcome::AsExpected,
            "{}",
            conclusion.verdict
        );
        assert!(
            conclusion.verdict.contains("even 0.9"),
            "{}",
            conclusion.verdict
        );
        assert!(
            conclusion.verdict.contains("the power law, m = 0.900"),
            "{}",
            conclusion.verdict
        );
        assert_eq!(conclusion.charts.len(), 2);
        assert!(
            conclusion
                .charts
                .iter()
                .all(|(_, chart)| chart.svg().is_ok())
        );
    }

    #[test]
    fn a_mix_that_breaks_the_goal_elsewhere_differs() {
        let differs = conclude(&results([1.1, 0.6, 1.1]));
        assert_eq!(differs.outcome, Outcome::Differs, "{}", differs.verdict);
        let never = conclude(&results([1.1, 9.0, 1.1]));
        assert_eq!(never.outcome, Outcome::Differs);
        assert!(
            never.verdict.contains("at none measured"),
            "{}",
            never.verdict
        );
    }

    #[test]
    fn the_workload_explains_what_is_not_between_mixes() {
        assert!((explained(&[(1.0, 5.0), (1.0, 5.0), (2.0, 9.0)]) - 1.0).abs() < 1e-9);
        assert!(explained(&[(1.0, 5.0), (1.0, 9.0), (2.0, 5.0), (2.0, 9.0)]).abs() < 1e-9);
    }

    #[test]
    fn rates_are_shares_of_the_highest() {
        let results = results([1.1; 3]);
        let model = model(&results, true).unwrap();
        let streams = streams(&model, &[1e6, 1e5], &[0.25, 0.75], 0.8);
        let load: Vec<(f64, f64)> = vec![(1e6, streams[0].rate), (1e5, streams[1].rate)];
        assert!((model.workload(&load).value - 0.8).abs() < 1e-9);
        assert!((streams[0].rate - 0.2 * model.rate_max(1e6)).abs() < 1e-9);
    }
}
