//! Source 000, table 2 and figure 5: scans of several tenants' processes at once, and idle
//! tenants that burn cycles.

use std::time::Duration;

use aerostat_calibrate::{Axis, Chart, ChartPoint, Line, Pages, Scale, cores, low_quantile};
use aerostat_micro_vm::Kernel;
use anyhow::{Context, Result, anyhow};

use crate::helper::Helper;
use crate::place::{Request, Worker, start_worker};
use crate::results::Results;
use crate::stats::{Estimate, ratio};
use crate::{About, Conclusion, Environment, Experiment, Outcome, Run, Table};

/// Table 2 of source 000, on this machine.
pub(crate) struct Bandwidth;

const RESPONSE: &str = "ms per scan";
const TOTAL: &str = "GB/s of all processes";
const RESPONSE_BURNED: &str = "ms per scan, burners on spare cores";
const TOTAL_BURNED: &str = "GB/s of all processes, burners on spare cores";
const IN_TURN: &str = "ms per scan of one process, in turns";
const IN_TURN_BURNED: &str = "ms per scan of one process, in turns with burners on all other cores";

/// Pairs of a round, with burners and without, and the scans of each. The same process scans the
/// same pages, and a pair takes less time than other work comes and goes in.
const PAIRS: usize = 8;
const SCANS: usize = 7;

/// How long a burner goes on: longer than the scans beside it.
const BURN_S: f64 = 0.12;

/// Rounds of a burner's loop: short, so that it ends in time.
const BURN_ROUNDS: usize = 100_000;

/// Processes at once.
const PROCESSES: usize = 4;

/// Bytes of a scan: beyond caches.
const SCAN_BYTES: usize = 128 << 20;

/// Burners change nothing if they change less than this share.
const NOTHING: f64 = 0.05;

/// One more process that adds less than this share to all has found the bandwidth used up.
const SATURATED: f64 = 0.1;

/// Table 2: average response times in ms of 1 to 4 virtual machines at normal load.
const SOURCE_MS: [f64; PROCESSES] = [811.0, 917.0, 1067.0, 1298.0];

impl Experiment for Bandwidth {
    fn about(&self) -> About {
        About {
            name: "bandwidth",
            question: "When several tenants scan at once, does memory's bandwidth or the processor end first, and do busy neighbours that do not scan matter?",
            source: "000 §3.4.3, table 2 and figure 5",
            parameters: "1 to 4 processes, each pinned to its share of the cores, scanning 128 MiB of its own again and again; with and without a burner on each core that has no scan; one process in turns with and without burners on all other cores",
            expected: "burners change nothing; while each process has a core, responses get slower only as far as memory's bandwidth is used up (000: +60% for 4 on a front-side bus, +6% on Nehalem)",
            environments: &[Environment::Native],
        }
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<()> {
        let cores = cores::allowed();
        let (rounds, seconds) = if run.is_quick() { (5, 0.4) } else { (9, 2.0) };
        if cores.len() < PROCESSES + 1 {
            let from = cores.len().max(1);
            run.skip(
                &format!("burners beside {from} and more processes"),
                &format!("{} cores leave none for them", cores.len()),
            );
        }
        if cores.len() > 1 {
            in_turns(run, &cores, rounds)?;
        }
        for round in 0..rounds {
            for processes in 1..=PROCESSES {
                for burners in [false, true] {
                    let spare = if burners {
                        cores.get(processes..).unwrap_or(&[])
                    } else {
                        &[]
                    };
                    if burners && spare.is_empty() {
                        continue;
                    }
                    let with = if burners { ", burners" } else { "" };
                    let name = format!(
                        "{processes} processes{with}, round {} of {rounds}",
                        round + 1
                    );
                    let helper = run.helper().clone();
                    run.cell(&name, |cell| {
                        let (ms, total) = scans(&helper, &cores, processes, spare, seconds)?;
                        let [response, all] = match burners {
                            false => [RESPONSE, TOTAL],
                            true => [RESPONSE_BURNED, TOTAL_BURNED],
                        };
                        cell.put(Environment::Native, response, processes as f64, ms);
                        cell.put(Environment::Native, all, processes as f64, total);
                        Ok(())
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

/// A process that scans, with burners on all other cores and without, in turns.
fn in_turns(run: &mut Run<'_>, cores: &[usize], rounds: usize) -> Result<()> {
    let start = |core: usize| {
        let mut worker = start_worker(run.helper())?;
        worker.ask(&Request::Pin { cores: vec![core] })?;
        Ok(worker)
    };
    let mut scanner = start(cores[0])?;
    let burners = cores[1..].iter().map(|core| start(*core));
    let mut burners: Vec<Worker> = burners.collect::<Result<_>>()?;
    let id = scanner.open(SCAN_BYTES, Pages::Huge, true)?;
    for burner in &mut burners {
        burner.open(4096, Pages::Small, true)?;
    }
    let kernel = Kernel::Scan {
        words: SCAN_BYTES / 4,
    };
    let scan = Request::Run {
        id,
        kernel,
        windows: SCANS,
    };
    for round in 0..rounds {
        run.cell(
            &format!("in turns, round {} of {rounds}", round + 1),
            |cell| {
                for pair in 0..PAIRS {
                    for nth in 0..2 {
                        let has_burners = (pair + nth) % 2 == 0;
                        let mut ns = if has_burners {
                            beside(&mut burners, || scanner.ask(&scan))?.ns
                        } else {
                            scanner.ask(&scan)?.ns
                        };
                        let ns = low_quantile(&mut ns).context("the clock stands still")?;
                        let series = if has_burners { IN_TURN_BURNED } else { IN_TURN };
                        cell.put(Environment::Native, series, 1.0, ns / 1e6);
                    }
                }
                Ok(())
            },
        )?;
    }
    Ok(())
}

/// Does something while burners are at work.
fn beside<T>(burners: &mut [Worker], work: impl FnOnce() -> Result<T>) -> Result<T> {
    let burn = |burner: &mut Worker| {
        burner.ask(&Request::Repeat {
            id: 1,
            kernel: Kernel::Spin {
                rounds: BURN_ROUNDS,
            },
            seconds: BURN_S,
        })
    };
    std::thread::scope(|scope| {
        let all: Vec<_> = burners
            .iter_mut()
            .map(|burner| scope.spawn(move || burn(burner)))
            .collect();
        // Until they have been woken.
        std::thread::sleep(Duration::from_millis(5));
        let done = work();
        for burner in all {
            let ended = burner.join();
            ended.map_err(|_| anyhow!("a burner's thread ended early"))??;
        }
        done
    })
}

/// Mean ms per scan, and GB/s of all.
fn scans(
    helper: &(std::path::PathBuf, Vec<String>),
    cores: &[usize],
    processes: usize,
    spare: &[usize],
    seconds: f64,
) -> Result<(f64, f64)> {
    let start = |arguments: String| {
        let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
        Helper::start(helper, &arguments, None)
    };
    let _burners: Vec<Helper> = spare
        .iter()
        .map(|core| start(format!("burn --core {core}")))
        .collect::<Result<_>>()?;
    let mut scans: Vec<Helper> = (0..processes)
        .map(|nth| {
            let core = cores[nth % cores.len()];
            start(format!(
                "scan --core {core} --bytes {SCAN_BYTES} --seconds {seconds}"
            ))
        })
        .collect::<Result<_>>()?;
    for scan in &mut scans {
        scan.go()?;
    }
    let (mut ns, mut rate, mut count) = (0.0, 0.0, 0);
    for scan in &mut scans {
        let answer = scan.answer()?;
        rate += (answer.ns.len() * SCAN_BYTES) as f64 / answer.seconds;
        ns += answer.ns.iter().sum::<f64>();
        count += answer.ns.len();
    }
    Ok((ns / count.max(1) as f64 / 1e6, rate / 1e9))
}

/// How many times as much there is of `series` with so many processes as of `base` with `of`.
fn relative(
    results: &Results,
    (series, x): (&str, usize),
    (base, of): (&str, usize),
) -> Option<Estimate> {
    let values = |series, x: usize| results.values(Environment::Native, series, x as f64);
    ratio(&values(series, x), &values(base, of))
}

fn conclude(results: &Results) -> Conclusion {
    let cores = cores::allowed().len().clamp(1, PROCESSES);
    let slower = |x| relative(results, (RESPONSE, x), (RESPONSE, 1)).filter(Estimate::is_sure);
    let burned = |x| {
        let in_turns = relative(results, (IN_TURN_BURNED, x), (IN_TURN, x));
        let apart = relative(results, (RESPONSE_BURNED, x), (RESPONSE, x));
        in_turns.or(apart).filter(Estimate::is_sure)
    };
    let mut verdict = String::new();
    let total = |x: usize| results.at(Environment::Native, TOTAL, x as f64);
    if let (Some(one), Some(all)) = (total(1), total(cores)) {
        verdict += &format!(
            "One process reads {:.1} GB/s, {cores} on a core each {:.1} GB/s. ",
            one.median, all.median
        );
    }
    let more = |x| relative(results, (TOTAL, x), (TOTAL, x - 1)).filter(Estimate::is_sure);
    let used_up = (2..=cores).find(|x| more(*x).is_some_and(|more| more.median < 1.0 + SATURATED));
    verdict += &match (used_up, cores) {
        (Some(x), _) => format!("Bandwidth is used up by {} processes. ", x - 1),
        (None, 1) => String::new(),
        (None, _) => format!("Bandwidth is not used up by {cores} processes. "),
    };
    for x in [cores, PROCESSES] {
        if let Some(slower) = slower(x).filter(|_| x > 1) {
            let why = if x > cores { ", which share cores" } else { "" };
            verdict += &format!(
                "A scan beside others, {x} in all{why}, takes {:.2} times as long as alone. ",
                slower.median
            );
        }
    }
    let burners: Vec<f64> = (1..=PROCESSES)
        .filter_map(burned)
        .map(|ratio| ratio.median - 1.0)
        .collect();
    let most = burners
        .iter()
        .copied()
        .max_by(|a, b| a.abs().total_cmp(&b.abs()));
    let outcome = match most {
        None => Outcome::Unclear,
        Some(most) if most.abs() < NOTHING => Outcome::AsExpected,
        Some(_) => Outcome::Differs,
    };
    verdict += &match most {
        None => "What burners change was not measured surely.".to_owned(),
        Some(most) => format!(
            "Burners on spare cores change a scan's time by {:+.1}%.",
            most * 100.0
        ),
    };
    Conclusion {
        outcome,
        verdict,
        tables: vec![table(results)],
        charts: charts(results),
    }
}

fn table(results: &Results) -> Table {
    let mut rows = Vec::new();
    for (response, total, name) in [
        (RESPONSE, TOTAL, "none"),
        (RESPONSE_BURNED, TOTAL_BURNED, "on spare cores"),
        (IN_TURN, "", "none, in turns"),
        (IN_TURN_BURNED, "", "on all other cores, in turns"),
    ] {
        for x in results.xs(Environment::Native, response) {
            let text = |series| {
                let at = results.at(Environment::Native, series, x);
                at.map_or("–".to_owned(), |at| {
                    format!("{:.2} [{:.2}, {:.2}]", at.median, at.low, at.high)
                })
            };
            let count = x as usize;
            let slower =
                relative(results, (response, count), (RESPONSE, 1)).filter(Estimate::is_sure);
            let source = SOURCE_MS.get(count - 1).map_or(0.0, |ms| ms / SOURCE_MS[0]);
            rows.push(vec![
                format!("{x:.0}"),
                name.to_owned(),
                text(response),
                text(total),
                slower.map_or("not told".to_owned(), |slower| {
                    format!("{:.2}", slower.median)
                }),
                format!("{source:.2}"),
            ]);
        }
    }
    let headings = [
        "processes",
        "burners",
        "ms per scan",
        "GB/s of all",
        "to one process",
        "000, table 2 (E5450)",
    ];
    Table {
        title: "Scans of several processes at once".to_owned(),
        headings: headings.map(str::to_owned).to_vec(),
        rows,
    }
}

fn charts(results: &Results) -> Vec<(&'static str, Chart)> {
    let lines = |series: [&str; 2]| -> Vec<Line> {
        let lines = series.map(|series| results.line(Environment::Native, series, 1.0));
        lines
            .into_iter()
            .filter(|line| !line.points.is_empty())
            .collect()
    };
    let chart = |title: &str, y: &str, lines| Chart {
        title: title.to_owned(),
        x: Axis::new("processes that scan", Scale::Linear),
        y: Axis::new(y, Scale::Linear),
        lines,
        marks: Vec::new(),
        levels: Vec::new(),
    };
    let mut slower: Vec<Line> = [RESPONSE, RESPONSE_BURNED]
        .into_iter()
        .map(|series| {
            let xs = results.xs(Environment::Native, series).into_iter();
            let point = |x: f64| {
                let ratio = relative(results, (series, x as usize), (RESPONSE, 1))?;
                ratio.is_sure().then_some(ChartPoint {
                    x,
                    y: ratio.median,
                    interval: Some((ratio.low, ratio.high)),
                })
            };
            Line {
                name: format!("native: {series}"),
                points: xs.filter_map(point).collect(),
            }
        })
        .filter(|line| !line.points.is_empty())
        .collect();
    if !slower.is_empty() {
        let source = SOURCE_MS.iter().enumerate().map(|(nth, ms)| ChartPoint {
            x: (nth + 1) as f64,
            y: ms / SOURCE_MS[0],
            interval: None,
        });
        slower.push(Line {
            name: "000, table 2: virtual machines on a Xeon E5450".to_owned(),
            points: source.collect(),
        });
    }
    let charts = [
        (
            "total",
            chart(
                "Bandwidth of all processes",
                "GB/s",
                lines([TOTAL, TOTAL_BURNED]),
            ),
        ),
        (
            "response",
            chart(
                "Time of a scan beside others",
                "times as long as one process alone",
                slower,
            ),
        ),
    ];
    charts
        .into_iter()
        .filter(|(_, chart)| !chart.lines.is_empty())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sample;

    fn results(burned: f64) -> Results {
        let mut results = Results::default();
        let mut put = |series: &str, x: usize, value| {
            results.samples.push(Sample {
                cell: "c".to_owned(),
                environment: Environment::Native,
                series: series.to_owned(),
                x: x as f64,
                value,
            });
        };
        for _ in 0..5 {
            for (x, ms) in [(1, 10.0), (2, 12.0), (3, 18.0), (4, 24.0)] {
                put(RESPONSE, x, ms);
                put(TOTAL, x, 120.0 * x as f64 / ms);
            }
            put(RESPONSE_BURNED, 1, 10.0 * burned);
            put(TOTAL_BURNED, 1, 12.0 / burned);
        }
        results
    }

    #[test]
    fn pairs_in_turns_decide_about_burners() {
        let mut results = results(1.4);
        for drift in [1.0, 3.0, 2.0, 1.5, 1.2] {
            for (series, ms) in [(IN_TURN, 6.0), (IN_TURN_BURNED, 6.06)] {
                results.samples.push(Sample {
                    cell: "c".to_owned(),
                    environment: Environment::Native,
                    series: series.to_owned(),
                    x: 1.0,
                    value: ms * drift,
                });
            }
        }
        let conclusion = conclude(&results);
        assert_eq!(conclusion.outcome, Outcome::AsExpected);
        assert!(
            conclusion.verdict.contains("by +1.0%"),
            "{}",
            conclusion.verdict
        );
    }

    #[test]
    fn burners_that_change_nothing_are_as_expected() {
        let conclusion = conclude(&results(1.02));
        assert_eq!(conclusion.outcome, Outcome::AsExpected);
        for text in [
            "One process reads 12.0 GB/s",
            "by +2.0%",
            "4 in all",
            "2.40 times",
        ] {
            assert!(
                conclusion.verdict.contains(text),
                "{text}: {}",
                conclusion.verdict
            );
        }
        assert_eq!(conclusion.charts.len(), 2);
        assert_eq!(conclusion.tables[0].rows[3][5], "1.60");
        assert_eq!(conclude(&results(1.4)).outcome, Outcome::Differs);
    }
}
