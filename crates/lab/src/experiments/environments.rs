//! The environments themselves: that each computes the same, how soon it is ready, and how much
//! its limits leave.

use std::time::Instant;

use aerostat_calibrate::{Axis, Buffer, Chart, Pages, STEP_BYTES, Scale, cores};
use aerostat_micro_vm::{Kernel, Layout, MicroVm, Paging};
use anyhow::Result;

use crate::environment::{Limits, in_turn};
use crate::results::Results;
use crate::{
    About, Bench, Cell, Conclusion, Content, Environment, Experiment, Outcome, Run, Table,
};

/// Whether all environments do what they are there for.
pub(crate) struct Environments;

const READY: &str = "ready after, ms";
const SPINS: &str = "loops per second";
const SHARE: &str = "share of the time with a core";
const SCAN: &str = "scan";
const WRONG: &str = "kernels with another result than the process's";

/// Bytes that are scanned, up to the whole buffer.
const SCANNED: [usize; 5] = [8 << 10, 32 << 10, 128 << 10, 512 << 10, 2 << 20];
const BYTES: usize = 2 << 20;

/// A table of 16 attributes with some row numbers behind it, which together fit.
const ROWS: usize = 30_000;
const WIDTH: usize = 16;
const POSITIONS: usize = 1000;

/// Lines of a chain.
const LINES: usize = 4096;

/// Rounds of a loop: a millisecond or so.
const SPIN_ROUNDS: usize = 1_000_000;

/// A limit is kept if no more than this share beyond it was measured.
const SHARE_NEAR: f64 = 0.1;

impl Experiment for Environments {
    fn about(&self) -> About {
        About {
            name: "environments",
            question: "Does every environment compute what a process of this system computes, how soon is it ready, and what do its limits leave of a core?",
            source: "000 §3.1",
            parameters: "all kernels over 2 MiB (chase, scan, projection and selection by row and by column), their results compared; a loop that reads no memory for 0.4 s (1 s without --quick); limits of cgroup and container by --cpus and --memory",
            expected: "the same results everywhere; limits of processors are kept",
            environments: &Environment::ALL,
        }
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<()> {
        cores::settled(None, |_| measure(run))?
    }

    fn conclude(&self, results: &Results) -> Conclusion {
        conclude(results)
    }
}

fn measure(run: &mut Run<'_>) -> Result<()> {
    let (rounds, seconds) = if run.is_quick() { (5, 0.4) } else { (9, 1.0) };
    let (environments, places, seed) = (run.environments(), run.places(), run.seed());
    run.cell("ready", |cell| {
        for (environment, ready_s) in places.ready() {
            cell.put(environment, READY, 1.0, ready_s * 1e3);
        }
        if environments.contains(&Environment::KvmMicro) {
            let started = Instant::now();
            let mut buffer = Buffer::new(BYTES, Pages::Huge)?;
            MicroVm::new(buffer.words_mut(), Paging::Huge)?.guest(Kernel::Clock, 1)?;
            let ready = started.elapsed().as_secs_f64() * 1e3;
            cell.put(Environment::KvmMicro, READY, 1.0, ready);
        }
        Ok(())
    })?;
    let mut buffer = Buffer::new(BYTES, Pages::Huge)?;
    buffer.populate();
    let mut bench = Bench::new(&mut buffer, Paging::Huge, &places)?;
    run.cell("results", |cell| {
        let mut wrong = vec![0; environments.len()];
        let chain = bench.fill(Content::Lines { lines: LINES, seed })?;
        let chase = Kernel::Chase {
            at: chain.at,
            loads: LINES / 16 * 16 / 2,
        };
        compare(&mut bench, &environments, &[chase], &mut wrong)?;
        for content in table(seed) {
            bench.fill(content)?;
        }
        compare(&mut bench, &environments, &kernels(), &mut wrong)?;
        for (environment, wrong) in environments.iter().zip(wrong) {
            cell.put(*environment, WRONG, 1.0, f64::from(wrong));
        }
        Ok(())
    })?;
    for round in 0..rounds {
        run.cell(&format!("times, round {} of {rounds}", round + 1), |cell| {
            for environment in in_turn(&environments, round) {
                times(cell, &mut bench, environment, seconds)?;
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// A table with row numbers behind it.
fn table(seed: u64) -> [Content; 2] {
    let values = |at, count, below| Content::Values {
        at,
        count,
        below,
        seed,
    };
    [
        values(0, ROWS * WIDTH, 1000),
        values(ROWS * WIDTH, POSITIONS, ROWS as u32),
    ]
}

/// All kernels that read a table.
fn kernels() -> Vec<Kernel> {
    let mut kernels = vec![
        Kernel::Spin { rounds: 1000 },
        Kernel::Scan { words: BYTES / 4 },
    ];
    for layout in [Layout::Row, Layout::Column] {
        kernels.push(Kernel::Project {
            layout,
            rows: ROWS,
            width: WIDTH,
            attributes: 5,
        });
        kernels.push(Kernel::Select {
            layout,
            rows: ROWS,
            width: WIDTH,
            positions: POSITIONS,
        });
    }
    kernels
}

/// Counts for each environment the kernels whose result is not this process's.
fn compare(
    bench: &mut Bench<'_>,
    environments: &[Environment],
    kernels: &[Kernel],
    wrong: &mut [u32],
) -> Result<()> {
    for &kernel in kernels {
        let (_, expected) = bench.windows(Environment::Native, kernel, 1)?;
        for (environment, wrong) in environments.iter().zip(&mut *wrong) {
            let (_, result) = bench.windows(*environment, kernel, 1)?;
            if result != expected {
                eprintln!("{environment}: {kernel:?}: {result}, not {expected}");
                *wrong += 1;
            }
        }
    }
    Ok(())
}

/// ms of scans, and how fast a loop runs where that means something.
fn times(
    cell: &mut Cell,
    bench: &mut Bench<'_>,
    environment: Environment,
    seconds: f64,
) -> Result<()> {
    for bytes in SCANNED {
        let ns = bench.ns(environment, Kernel::Scan { words: bytes / 4 }, 5)?;
        cell.put(environment, SCAN, bytes as f64, ns / 1e6);
    }
    if environment != Environment::Tcg {
        let spin = Kernel::Spin {
            rounds: SPIN_ROUNDS,
        };
        let (per_s, core_share) = bench.per_second(environment, spin, seconds)?;
        cell.put(environment, SPINS, 1.0, per_s);
        // A guest's time is not told everywhere.
        if environment != Environment::KvmMicro {
            cell.put(environment, SHARE, 1.0, core_share);
        }
    }
    Ok(())
}

/// The share of a core that an environment's limits leave a thread.
fn limit(environment: Environment, limits: Limits) -> f64 {
    match environment {
        Environment::Cgroup | Environment::Container => {
            (f64::from(limits.cpu_hundredths) / 100.0).min(1.0)
        }
        _ => 1.0,
    }
}

fn conclude(results: &Results) -> Conclusion {
    let has_results = |environment: &Environment| results.at(*environment, WRONG, 1.0).is_some();
    let here: Vec<Environment> = Environment::ALL.into_iter().filter(has_results).collect();
    let wrong = |environment: Environment| {
        let wrong = results.at(environment, WRONG, 1.0);
        wrong.map_or(0.0, |wrong| wrong.median)
    };
    let names = |all: &[Environment]| -> String {
        let names: Vec<String> = all.iter().map(|one| results.label(*one)).collect();
        names.join(", ")
    };
    let (others, astray): (Vec<Environment>, Vec<Environment>) =
        here.iter().copied().partition(|one| wrong(*one) == 0.0);
    let mut verdict = match (&others[..], &astray[..]) {
        ([] | [Environment::Native], []) => "No two environments were compared.".to_owned(),
        (_, []) => format!("All kernels compute the same in {}.", names(&others)),
        (_, astray) => format!("Kernels compute something else in {}.", names(astray)),
    };
    let mut is_off = !astray.is_empty();
    for environment in [Environment::Cgroup, Environment::Container] {
        let Some(share) = share(results, environment) else {
            continue;
        };
        let limit = limit(environment, results.limits);
        is_off |= share > limit * (1.0 + SHARE_NEAR);
        verdict += &format!(
            " A thread in {} has {:.0}% of a core at best, where its limit is {:.0}%.",
            results.label(environment),
            share * 100.0,
            limit * 100.0
        );
    }
    for environment in [Environment::KvmLinux, Environment::Tcg] {
        if let Some(ready) = results.at(environment, READY, 1.0) {
            let seconds = ready.median / 1e3;
            verdict += &format!(" {environment} is ready after {seconds:.1} s.");
        }
    }
    let outcome = match (here.len() > 1, is_off) {
        (false, _) => Outcome::Unclear,
        (_, true) => Outcome::Differs,
        _ => Outcome::AsExpected,
    };
    Conclusion {
        outcome,
        verdict,
        tables: vec![overview(results, &here)],
        charts: chart(results),
    }
}

/// The share of the time that a thread that wants a core has one, at best.
fn share(results: &Results, environment: Environment) -> Option<f64> {
    let values = results.values(environment, SHARE, 1.0).into_iter();
    values.reduce(f64::max)
}

fn overview(results: &Results, here: &[Environment]) -> Table {
    let row = |environment: &Environment| {
        let at = |series, x: f64| results.at(*environment, series, x);
        let ready = at(READY, 1.0).map_or("–".to_owned(), |at| format!("{:.1}", at.median));
        let share = match share(results, *environment) {
            None => "–".to_owned(),
            Some(share) => format!("{:.1}%", share * 100.0),
        };
        let scan = at(SCAN, BYTES as f64).map_or("–".to_owned(), |at| {
            format!("{:.4} [{:.4}, {:.4}]", at.median, at.low, at.high)
        });
        let wrong = at(WRONG, 1.0).map_or("–".to_owned(), |at| format!("{:.0}", at.median));
        vec![results.label(*environment), ready, wrong, share, scan]
    };
    let headings = [
        "environment",
        READY,
        WRONG,
        "of a core, at best",
        "ms per scan of 2 MiB",
    ];
    Table {
        title: "Environments".to_owned(),
        headings: headings.map(str::to_owned).to_vec(),
        rows: here.iter().map(row).collect(),
    }
}

fn chart(results: &Results) -> Vec<(&'static str, Chart)> {
    let lines = Environment::ALL.map(|environment| results.line(environment, SCAN, 1.0));
    let chart = Chart {
        title: "A scan by the memory it reads, by environment".to_owned(),
        x: Axis::bytes("memory scanned"),
        y: Axis::new("ms per scan", Scale::Log),
        lines: lines
            .into_iter()
            .filter(|line| !line.points.is_empty())
            .collect(),
        marks: Vec::new(),
        levels: Vec::new(),
    };
    if chart.lines.is_empty() {
        return Vec::new();
    }
    vec![("scan", chart)]
}

const _: () = assert!(
    (ROWS * WIDTH + POSITIONS) * 4 <= BYTES && LINES * STEP_BYTES <= BYTES,
    "all contents fit"
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sample;

    fn results(wrong: f64, share: f64) -> Results {
        let mut results = Results {
            limits: Limits {
                cpu_hundredths: 50,
                memory_mib: 256,
            },
            ..Results::default()
        };
        let mut put = |environment, series: &str, x, value| {
            results.samples.push(Sample {
                cell: "c".to_owned(),
                environment,
                series: series.to_owned(),
                x,
                value,
            });
        };
        for (environment, factor) in [
            (Environment::Native, 1.0),
            (Environment::Cgroup, share),
            (Environment::Tcg, 0.03),
        ] {
            let is_tcg = environment == Environment::Tcg;
            put(environment, WRONG, 1.0, if is_tcg { wrong } else { 0.0 });
            put(environment, READY, 1.0, 4200.0);
            for round in [1.0, 1.01, 0.99, 1.0] {
                put(environment, SCAN, BYTES as f64, round / factor);
                if !is_tcg {
                    put(environment, SHARE, 1.0, factor);
                }
            }
        }
        results
    }

    #[test]
    fn limits_leave_their_share_and_an_emulator_no_overhead() {
        let conclusion = conclude(&results(0.0, 0.49));
        assert_eq!(conclusion.outcome, Outcome::AsExpected);
        for text in [
            "All kernels compute the same in native, cgroup (0.5 CPU, 256 MiB), tcg (function only).",
            "has 49% of a core at best, where its limit is 50%",
            "tcg is ready after 4.2 s",
        ] {
            let verdict = &conclusion.verdict;
            assert!(verdict.contains(text), "{text}: {verdict}");
        }
        let tcg = &conclusion.tables[0].rows[2];
        assert_eq!(
            (tcg[0].as_str(), tcg[3].as_str()),
            ("tcg (function only)", "–")
        );
    }

    #[test]
    fn other_results_and_other_shares_differ() {
        let wrong = conclude(&results(2.0, 0.5));
        assert_eq!(wrong.outcome, Outcome::Differs);
        assert!(
            wrong.verdict.contains("something else in tcg"),
            "{}",
            wrong.verdict
        );
        assert_eq!(conclude(&results(0.0, 0.9)).outcome, Outcome::Differs);
    }
}
