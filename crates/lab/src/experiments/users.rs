//! Source 000, figure 4: a star schema's queries by more and more users of one tenant.

use aerostat_calibrate::{Axis, Chart, Scale};
use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::bed::freeze;
use crate::node::Node;
use crate::results::Results;
use crate::stats::Estimate;
use crate::traffic::Traffic;
use crate::{About, Conclusion, Environment, Experiment, Outcome, Run, Table};

/// Figure 4 of source 000, on this machine.
pub(crate) struct Users;

const RATE: &str = "queries per second";
const P99: &str = "99th percentile, ms";

/// The tenant's database.
const TENANT: &str = "lab";

/// With most users a node does at least this share of what it does at best.
const KEPT: f64 = 0.85;

impl Experiment for Users {
    fn about(&self) -> About {
        About {
            name: "users",
            question: "What becomes of throughput and response time when more users of a tenant query at once?",
            source: "000 §3.4.2, figure 4",
            parameters: "a node of its own; the star schema benchmark at scale 1 (0.01 with --quick), its 13 queries in turn without think time; 1 to 12 users",
            expected: "throughput rises until the cores are busy and stays there; response times rise with users from then on (000: 7% less throughput in a virtual machine, which is not measured here)",
            environments: &[Environment::Native],
        }
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<()> {
        let Some(program) = run.node_program() else {
            return Ok(());
        };
        let (scale, rounds, seconds) = if run.is_quick() {
            (0.01, 3, 0.5)
        } else {
            (1.0, 5, 3.0)
        };
        let counts: &[usize] = if run.is_quick() {
            &[1, 2, 4, 12]
        } else {
            &[1, 2, 4, 6, 8, 10, 12]
        };
        let scratch = run.scratch()?;
        let node = Node::start(&program, &scratch)?;
        node.load_ssb(TENANT, scale)?;
        // Else the freezer is at work beside the first users.
        let mut traffic = Traffic::new(&node, &[TENANT.to_owned()], run.seed())?;
        freeze(&mut traffic, &node, TENANT)?;
        drop(traffic);
        for round in 0..rounds {
            for &users in counts {
                run.cell(
                    &format!("{users} users, round {} of {rounds}", round + 1),
                    |cell| {
                        let (rate, p99) = queries(&node, users, seconds)?;
                        cell.put(Environment::Native, RATE, users as f64, rate);
                        cell.put(Environment::Native, P99, users as f64, p99);
                        Ok(())
                    },
                )?;
            }
        }
        Ok(())
    }

    fn conclude(&self, results: &Results) -> Conclusion {
        conclude(results)
    }
}

/// What is read of a load driver's report.
#[derive(Deserialize)]
struct Report {
    total: Total,
}

#[derive(Deserialize)]
struct Total {
    done: u64,
    failed: u64,
    throughput_per_s: f64,
    latency: Latency,
}

#[derive(Deserialize)]
struct Latency {
    p99_ms: f64,
}

/// Queries per second, and the 99th percentile of response times in ms.
fn queries(node: &Node, users: usize, seconds: f64) -> Result<(f64, f64)> {
    let file = node.scratch().join("bench.json");
    let path = file.to_string_lossy();
    let (users, seconds) = (users.to_string(), seconds.to_string());
    let load = ["bench", "ssb", "--tenant", TENANT, "--users", &users];
    let times = ["--duration", &seconds, "--warm-up", "0.3", "--json", &path];
    node.client(&[load, times].concat())?;
    let text = std::fs::read_to_string(&file).context("the load driver wrote no report")?;
    let Report { total } =
        serde_json::from_str(&text).context("cannot read the load driver's report")?;
    if total.failed > 0 || total.done == 0 {
        bail!(
            "{} queries were answered and {} failed",
            total.done,
            total.failed
        );
    }
    Ok((total.throughput_per_s, total.latency.p99_ms))
}
fn conclude(results: &Results) -> Conclusion {
    let native = Environment::Native;
    let xs = results.xs(native, RATE);
    let at = |series, x| results.at(native, series, x);
    let all: Vec<(f64, Estimate)> = xs
        .iter()
        .filter_map(|x| Some((*x, at(RATE, *x)?)))
        .collect();
    let best = all.iter().max_by(|a, b| a.1.median.total_cmp(&b.1.median));
    let (outcome, verdict) = match (all.first(), best, all.last()) {
        (Some((_, one)), Some((best_users, best)), Some((most_users, most))) if all.len() > 1 => {
            let kept = most.median / best.median;
            let p99 = |x: f64| at(P99, x).map_or(f64::NAN, |p99| p99.median);
            let text = format!(
                "One user gets {:.0} queries/s; most are done with {best_users:.0} users, {:.0}/s; {most_users:.0} users get {:.0}/s, {:.0}% of that. The 99th percentile goes from {:.1} to {:.1} ms.",
                one.median,
                best.median,
                most.median,
                kept * 100.0,
                p99(xs[0]),
                p99(*most_users),
            );
            (
                if kept >= KEPT {
                    Outcome::AsExpected
                } else {
                    Outcome::Differs
                },
                text,
            )
        }
        _ => (Outcome::Unclear, "Not enough was measured.".to_owned()),
    };
    let text = |value: Option<Estimate>| {
        value.map_or("–".to_owned(), |at| {
            format!("{:.1} [{:.1}, {:.1}]", at.median, at.low, at.high)
        })
    };
    let row = |x: &f64| vec![format!("{x:.0}"), text(at(RATE, *x)), text(at(P99, *x))];
    Conclusion {
        outcome,
        verdict,
        tables: vec![Table {
            title: "The star schema benchmark by users of one tenant".to_owned(),
            headings: ["users", RATE, P99].map(str::to_owned).to_vec(),
            rows: xs.iter().map(row).collect(),
        }],
        charts: charts(results),
    }
}

fn charts(results: &Results) -> Vec<(&'static str, Chart)> {
    let files = [
        ("rate", "Throughput by users", RATE),
        ("response", "Response time by users", P99),
    ];
    let chart = |(file, title, series): (&'static str, &str, &str)| {
        let chart = Chart {
            title: title.to_owned(),
            x: Axis::new("users of one tenant", Scale::Linear),
            y: Axis::new(series, Scale::Linear),
            lines: vec![results.line(Environment::Native, series, 1.0)],
            marks: Vec::new(),
            levels: Vec::new(),
        };
        (!chart.lines[0].points.is_empty()).then_some((file, chart))
    };
    files.into_iter().filter_map(chart).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sample;

    fn results(rates: &[(f64, f64)]) -> Results {
        let sample = |series: &str, x, value| Sample {
            cell: "c".to_owned(),
            environment: Environment::Native,
            series: series.to_owned(),
            x,
            value,
        };
        let both = |(x, rate): &(f64, f64)| [sample(RATE, *x, *rate), sample(P99, *x, x * 10.0)];
        Results {
            samples: rates.iter().flat_map(both).collect(),
            ..Results::default()
        }
    }

    #[test]
    fn throughput_that_stays_is_as_expected() {
        let conclusion = conclude(&results(&[(1.0, 100.0), (2.0, 190.0), (12.0, 180.0)]));
        assert_eq!(conclusion.outcome, Outcome::AsExpected);
        for text in [
            "One user gets 100",
            "with 2 users, 190/s",
            "95% of that",
            "10.0 to 120.0 ms",
        ] {
            assert!(
                conclusion.verdict.contains(text),
                "{text}: {}",
                conclusion.verdict
            );
        }
        assert_eq!(conclusion.charts.len(), 2);
        let falls = conclude(&results(&[(1.0, 100.0), (2.0, 190.0), (12.0, 90.0)]));
        assert_eq!(falls.outcome, Outcome::Differs);
    }
}
