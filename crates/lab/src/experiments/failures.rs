//! Source 001, "Tenant placement": how many users a cluster has room for in the mirrored and in the interleaved layout,
//! without failures and with one node after another failing.

use std::sync::Arc;
use std::time::{Duration, Instant};

use aerostat_calibrate::{Axis, Chart, Scale};
use aerostat_workload::drive::{Arrivals, Mode};
use anyhow::{Result, anyhow};
use tokio::runtime::Runtime;

use super::search::Search;
use crate::experiment::Cell;
use crate::fleet::{Fleet, Readers};
use crate::results::Results;
use crate::stats::Estimate;
use crate::traffic::{Driven, Seen, drive_all, query_names};
use crate::{About, Conclusion, Environment, Experiment, Limits, Outcome, Run, Table};

/// Which layout bears failures.
pub(crate) struct Failures;

/// The goal for the 99th percentile, ms: the source's.
const GOAL_MS: f64 = 1000.0;

/// A user asks something so many times a second. Users who do not know of each other are a Poisson process together.
const ASKS_PER_S: f64 = 0.1;

/// Connections of a tenant.
const CONNECTIONS: usize = 4;

/// For so long after a node was lost, and a little before, requests do not count: what the fail-over itself costs is another
/// question, and with an eighth of a processor much of it.
const FAIL_OVER_S: f64 = 4.5;
const BEFORE_S: f64 = 0.5;

/// The series of the longest waits that do not count.
fn fail_over(layout: &str) -> String {
    format!("longest wait while nodes fail over, ms, {layout}")
}

/// What must be kept of the users without failures where the layout is interleaved, and what the source's mirrored and
/// interleaved layouts keep.
const KEPT: f64 = 0.9;
const SOURCE: [(&str, f64, f64); 2] = [
    ("mirrored", 4218.0, 2265.0),
    ("interleaved", 4506.0, 4250.0),
];

const MIRRORED: &str = "mirrored";
const INTERLEAVED: &str = "interleaved";

/// The series of users that meet the goal, by the share of the time that a node is away.
fn users(layout: &str) -> String {
    format!("users within the goal, {layout}")
}

fn tried(layout: &str, fails: bool) -> String {
    let failing = if fails { "failures" } else { "no failures" };
    format!("99th percentile by users, ms, {layout}, {failing}")
}

/// What is measured with.
struct Setting {
    nodes: usize,
    /// Tenants of a node, each of which has another copy elsewhere.
    tenants_per_node: usize,
    limits: Limits,
    scale: f64,
    /// Seconds of a rate that is tried without failures.
    quiet_s: f64,
    /// Nodes that fail while a rate is tried, and for how long each is away; so long all are there in between.
    failures: usize,
    away_s: f64,
    search: Search,
}

impl Setting {
    fn of(run: &Run<'_>) -> Setting {
        // Nodes of two cores and more are to be had nowhere else: what counts is that all are alike.
        let limits = |cpu_hundredths| Limits {
            cpu_hundredths,
            memory_mib: 512,
        };
        if run.is_quick() {
            return Setting {
                nodes: 6,
                tenants_per_node: 4,
                limits: limits(20),
                scale: 0.005,
                quiet_s: 5.0,
                failures: 1,
                away_s: 10.0,
                search: Search {
                    probes: 8,
                    near: 1.1,
                },
            };
        }
        Setting {
            nodes: 12,
            tenants_per_node: 10,
            limits: limits(12),
            scale: 0.01,
            quiet_s: 10.0,
            failures: 2,
            away_s: 12.0,
            search: Search {
                probes: 8,
                near: 1.04,
            },
        }
    }
}

/// For each tenant the two nodes of its copies. Each node has so many tenants; mirrored: two nodes have the same; interleaved:
/// no two nodes have more than one in common, if there are as many others.
fn layout(name: &str, nodes: usize, tenants_per_node: usize) -> Vec<[usize; 2]> {
    if name == MIRRORED {
        let pairs = (0..nodes / 2).map(|pair| [2 * pair, 2 * pair + 1]);
        return pairs
            .flat_map(|pair| vec![pair; tenants_per_node])
            .collect();
    }
    // Each node with those that are 1, 2, … places further on in a circle; half of a distance's tenants where it is half
    // way round.
    let mut all = Vec::new();
    for distance in 1..=tenants_per_node / 2 {
        for node in 0..nodes {
            all.push([node, (node + distance) % nodes]);
        }
    }
    if tenants_per_node % 2 == 1 {
        for node in 0..nodes / 2 {
            all.push([node, node + nodes / 2]);
        }
    }
    all
}

impl Experiment for Failures {
    fn about(&self) -> About {
        About {
            name: "failures",
            question: "How many users does a cluster have room for in the mirrored and in the interleaved layout, if one node after another fails?",
            source: "001, \"Tenant placement\": perfect placement, 100 tenants, 2 copies each, 10 tenants a server, the same load on all",
            parameters: "12 nodes of 0.12 processors each, 60 tenants of 60 thousand rows with two copies, 10 a node (6 nodes of 0.2, 12 tenants, 4 a node with --quick); users who only read, each one query of the star schema benchmark in ten seconds, by any node, tried again at another where a node is lost; failing nodes are killed and away for 12 s (10 s), half of the time; requests of the first 4.5 s after that are told apart",
            expected: "the interleaved layout keeps at least 90% of the users that it has without failures, the mirrored one about half (001: 94% and 54%)",
            environments: &[Environment::Native],
        }
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<()> {
        let Some(program) = run.node_program() else {
            return Ok(());
        };
        let setting = Setting::of(run);
        let rounds = if run.is_quick() { 1 } else { 2 };
        for round in 0..rounds {
            for name in [MIRRORED, INTERLEAVED] {
                let scratch = run.scratch()?;
                let helper = run.helper().clone();
                let (count, limits) = (setting.nodes, setting.limits);
                let fleet = match Fleet::start(&program, &scratch, &helper, count, limits) {
                    Ok(fleet) => fleet,
                    Err(error) if round == 0 && name == MIRRORED => {
                        run.skip("all", &format!("no cluster of limited nodes: {error:#}"));
                        return Ok(());
                    }
                    Err(error) => return Err(error),
                };
                let seed = run.seed() + round as u64;
                let mut crowd = Crowd::new(fleet, name, &setting, seed)?;
                run.cell(
                    &format!("{name}, round {} of {rounds}", round + 1),
                    |cell| crowd.measure(name, &setting, cell),
                )?;
            }
        }
        Ok(())
    }

    fn conclude(&self, results: &Results) -> Conclusion {
        conclude(results)
    }
}

/// Those who use tenants.
struct Requests {
    runtime: Runtime,
    readers: Vec<Arc<Readers>>,
    seed: u64,
}

impl Requests {
    /// What all tenants' users see for so many seconds.
    fn send(&mut self, mode: Mode, seconds: f64, own: &[u32]) -> Result<Seen> {
        let readers = self.readers.iter().enumerate();
        let driven = readers.map(|(tenant, pool)| Driven {
            tenant,
            pool: Arc::clone(pool),
            mode,
        });
        // Who waits longer than that has broken the goal.
        let times = (seconds, GOAL_MS * 3.0 / 1e3);
        let (driven, queries) = (driven.collect(), query_names());
        drive_all(&self.runtime, driven, &queries, times, &mut self.seed, own)
    }
}

/// A cluster with its tenants, and those who use them.
struct Crowd {
    fleet: Fleet,
    requests: Requests,
    /// Which node fails next.
    next: usize,
}

impl Crowd {
    fn new(fleet: Fleet, layout_name: &str, setting: &Setting, seed: u64) -> Result<Crowd> {
        let places = layout(layout_name, setting.nodes, setting.tenants_per_node);
        let name = |tenant: usize| format!("tenant{tenant}");
        // Each node loads by itself: it has little of a processor.
        let load = |of: usize| -> Result<()> {
            for (tenant, nodes) in places.iter().enumerate() {
                if nodes[tenant % 2] == of {
                    fleet.load_ssb(&name(tenant), of, nodes, setting.scale)?;
                }
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let all: Vec<_> = (0..fleet.len())
                .map(|node| scope.spawn(move || load(node)))
                .collect();
            let mut loaded = Ok(());
            for one in all {
                let one = one.join().map_err(|_| anyhow!("loading has failed"));
                loaded = loaded.and(one.flatten());
            }
            loaded
        })?;
        let readers = (0..places.len()).map(|tenant| Ok(Arc::new(fleet.readers(&name(tenant))?)));
        let readers = readers.collect::<Result<_>>()?;
        fleet.await_current()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        Ok(Crowd {
            fleet,
            requests: Requests {
                runtime,
                readers,
                seed,
            },
            next: 0,
        })
    }

    /// What users see while all nodes are there.
    fn quietly(&mut self, mode: Mode, seconds: f64) -> Result<Seen> {
        self.requests.send(mode, seconds, &self.fleet.pids())
    }

    /// What so many users see while nodes fail, or none does.
    fn at_work(&mut self, users: f64, setting: &Setting, fails: bool) -> Result<(Seen, f64)> {
        let mode = Mode::Open {
            rate: users * ASKS_PER_S / self.requests.readers.len() as f64,
            arrivals: Arrivals::Poisson,
            connections: CONNECTIONS,
        };
        if !fails {
            return Ok((self.quietly(mode, setting.quiet_s)?, 0.0));
        }
        let (failures, away_s) = (setting.failures, setting.away_s);
        let seconds = 2.0 * away_s * failures as f64;
        let victims: Vec<usize> = (0..failures)
            .map(|at| (self.next + at * 5) % setting.nodes)
            .collect();
        self.next += 1;
        let begun = Instant::now();
        let due = |seconds: f64| {
            let at = begun + Duration::from_secs_f64(seconds);
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
        };
        let own = self.fleet.pids();
        let (fleet, requests) = (&mut self.fleet, &mut self.requests);
        let seen = std::thread::scope(|scope| {
            let failing = scope.spawn(move || -> Result<Vec<f64>> {
                let mut killed = Vec::new();
                for (at, node) in victims.into_iter().enumerate() {
                    let from_s = 2.0 * away_s * at as f64;
                    due(from_s + away_s / 2.0);
                    killed.push(begun.elapsed().as_secs_f64());
                    fleet.kill(node)?;
                    due(from_s + away_s * 1.5);
                    fleet.restart(node)?;
                }
                Ok(killed)
            });
            let seen = requests.send(mode, seconds, &own);
            let failed = failing.join().map_err(|_| anyhow!("failing has failed"));
            anyhow::Ok((seen?, failed??))
        });
        let (mut seen, killed) = seen?;
        self.fleet.await_current()?;
        let mut longest_ms = 0.0_f64;
        seen.requests.retain(|one| {
            let counts = killed
                .iter()
                .all(|at| !(at - BEFORE_S..at + FAIL_OVER_S).contains(&one.due_s));
            if !counts {
                longest_ms = longest_ms.max(one.waited_ms);
            }
            counts
        });
        Ok((seen, longest_ms))
    }

    fn measure(&mut self, name: &str, setting: &Setting, cell: &mut Cell) -> Result<()> {
        let native = Environment::Native;
        // About how many users there may be.
        let closed = Mode::Closed {
            users: 2,
            think_time: Duration::ZERO,
        };
        self.quietly(closed, setting.quiet_s / 2.0)?;
        let seen = self.quietly(closed, setting.quiet_s / 2.0)?;
        let most = seen.requests.len() as f64 / (setting.quiet_s / 2.0) / ASKS_PER_S;
        let mut first = most * 0.7;
        for fails in [false, true] {
            let (mut points, mut waits) = (Vec::new(), Vec::new());
            let found = setting.search.highest(first, GOAL_MS, |users| {
                let (seen, longest_ms) = self.at_work(users, setting, fails)?;
                points.push((users, seen.p99_ms().min(GOAL_MS * 10.0)));
                if fails {
                    waits.push(longest_ms.min(GOAL_MS * 10.0));
                }
                Ok(seen.p99_ms())
            })?;
            for wait_ms in waits {
                cell.put(native, &fail_over(name), 1.0, wait_ms);
            }
            for (users, p99_ms) in points {
                cell.put(native, &tried(name, fails), users, p99_ms);
            }
            if let Some(found) = found {
                cell.put(native, &users(name), f64::from(u8::from(fails)), found);
                first = found * if name == MIRRORED { 0.55 } else { 0.92 };
            }
        }
        Ok(())
    }
}

/// What a layout has room for, without failures and with them.
fn of(results: &Results, layout: &str) -> Option<(Estimate, Estimate)> {
    let at = |fails| results.at(Environment::Native, &users(layout), fails);
    Some((at(0.0)?, at(1.0)?))
}

fn conclude(results: &Results) -> Conclusion {
    let all: Vec<(&str, Estimate, Estimate)> = [MIRRORED, INTERLEAVED]
        .into_iter()
        .filter_map(|name| of(results, name).map(|(quiet, failing)| (name, quiet, failing)))
        .collect();
    let kept = |(_, quiet, failing): &(&str, Estimate, Estimate)| failing.median / quiet.median;
    let (outcome, verdict) = match &all[..] {
        [mirrored, interleaved] => {
            let text = format!(
                "With one node after another away the mirrored layout keeps {:.0}% of its users, the interleaved one {:.0}% (001: 54% and 94%): {:.0} and {:.0} users, {:+.0}% (001: +88%).",
                kept(mirrored) * 100.0,
                kept(interleaved) * 100.0,
                mirrored.2.median,
                interleaved.2.median,
                (interleaved.2.median / mirrored.2.median - 1.0) * 100.0,
            );
            let is_so = kept(interleaved) >= KEPT && kept(mirrored) < kept(interleaved);
            let outcome = if is_so {
                Outcome::AsExpected
            } else {
                Outcome::Differs
            };
            (outcome, text)
        }
        _ => (Outcome::Unclear, "Not enough was measured.".to_owned()),
    };
    let row = |one: &(&str, Estimate, Estimate)| {
        let source = SOURCE.iter().find(|(name, ..)| *name == one.0);
        let theirs = source.map_or("–".to_owned(), |(_, quiet, failing)| {
            format!("{quiet:.0}, {failing:.0}: {:.0}%", failing / quiet * 100.0)
        });
        let text = |at: &Estimate| format!("{:.0} [{:.0}, {:.0}]", at.median, at.low, at.high);
        vec![
            one.0.to_owned(),
            text(&one.1),
            text(&one.2),
            format!("{:.0}%", kept(one) * 100.0),
            theirs,
            results
                .at(Environment::Native, &fail_over(one.0), 1.0)
                .map_or("–".to_owned(), |at| text(&at)),
        ]
    };
    let headings = [
        "layout",
        "users, no failures",
        "users, one node after another away",
        "kept",
        "in the source",
        "longest wait while nodes fail over, ms",
    ];
    Conclusion {
        outcome,
        verdict,
        tables: vec![Table {
            title: "Users before the 99th percentile is above a second".to_owned(),
            headings: headings.map(str::to_owned).to_vec(),
            rows: all.iter().map(row).collect(),
        }],
        charts: charts(results),
    }
}

fn charts(results: &Results) -> Vec<(&'static str, Chart)> {
    let lines = [MIRRORED, INTERLEAVED].into_iter().flat_map(|name| {
        [false, true].map(|fails| results.line(Environment::Native, &tried(name, fails), 1.0))
    });
    let lines: Vec<_> = lines.filter(|line| !line.points.is_empty()).collect();
    if lines.is_empty() {
        return Vec::new();
    }
    let chart = Chart {
        title: "Response times by users, with and without failures".to_owned(),
        x: Axis::new("users", Scale::Linear),
        y: Axis::new("99th percentile, ms", Scale::Log),
        lines,
        marks: Vec::new(),
        levels: Vec::new(),
    };
    vec![("response", chart)]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::Sample;

    #[test]
    fn both_layouts_have_the_same_tenants_on_each_node() {
        for (nodes, per_node) in [(12, 10), (6, 4), (6, 5), (4, 2)] {
            for name in [MIRRORED, INTERLEAVED] {
                let all = layout(name, nodes, per_node);
                assert_eq!(all.len(), nodes * per_node / 2, "{name} {nodes}");
                for node in 0..nodes {
                    let own = all.iter().filter(|copies| copies.contains(&node));
                    assert_eq!(own.count(), per_node, "{name} {nodes} {node}");
                }
                let pairs: BTreeSet<[usize; 2]> = all
                    .iter()
                    .map(|[a, b]| [*a.min(b), *a.max(b)])
                    .inspect(|[a, b]| assert_ne!(a, b))
                    .collect();
                let expected = if name == MIRRORED {
                    nodes / 2
                } else {
                    all.len()
                };
                assert_eq!(pairs.len(), expected, "{name} {nodes}");
            }
        }
    }

    fn results(points: &[(&str, f64, f64)]) -> Results {
        let sample = |(name, fails, value): &(&str, f64, f64)| Sample {
            cell: "c".to_owned(),
            environment: Environment::Native,
            series: users(name),
            x: *fails,
            value: *value,
        };
        Results {
            samples: points.iter().map(sample).collect(),
            ..Results::default()
        }
    }

    #[test]
    fn what_is_kept_is_judged() {
        let measured = |interleaved| {
            results(&[
                (MIRRORED, 0.0, 4218.0),
                (MIRRORED, 1.0, 2265.0),
                (INTERLEAVED, 0.0, 4506.0),
                (INTERLEAVED, 1.0, interleaved),
            ])
        };
        let conclusion = conclude(&measured(4250.0));
        assert_eq!(conclusion.outcome, Outcome::AsExpected);
        for text in [
            "keeps 54% of its users",
            "interleaved one 94%",
            "+88% (001: +88%)",
        ] {
            assert!(
                conclusion.verdict.contains(text),
                "{text}: {}",
                conclusion.verdict
            );
        }
        assert_eq!(conclusion.tables[0].rows[1][4], "4506, 4250: 94%");
        assert_eq!(conclude(&measured(3000.0)).outcome, Outcome::Differs);
    }
}
