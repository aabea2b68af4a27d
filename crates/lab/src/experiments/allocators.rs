//! Source 000, figure 3: rows projected into memory of several allocators.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::time::Instant;

use aerostat_calibrate::{Axis, Chart, Line, Scale, cores};
use aerostat_micro_vm::SystemWords;
use anyhow::{Context, Result, anyhow};

use crate::experiments::calibrator::overhead;
use crate::helper::{Answer, Helper};
use crate::results::Results;
use crate::stats::{Estimate, ratio};
use crate::{About, Conclusion, Environment, Experiment, Outcome, Run, Table};

/// Figure 3 of source 000, on this machine.
pub(crate) struct Allocators;

const SYSTEM: &str = "system malloc";

/// Allocators beside the system's: name, its library's file names, Debian's package.
const OTHERS: [(&str, &[&str], &str); 2] = [
    ("jemalloc", &["libjemalloc.so.2"], "libjemalloc2"),
    (
        "mimalloc",
        &["libmimalloc.so.3", "libmimalloc.so.2"],
        "libmimalloc2.0",
    ),
];

/// Where distributions have libraries.
const FOLDERS: [&str; 6] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/local/lib",
    "/usr/lib64",
    "/usr/lib",
    "/lib",
];

/// Attributes of the table, of which a part is projected; rows that are held at once; and rows
/// that are timed together: half a millisecond, less than the slices of others' work.
const WIDTH: usize = 100;
const PROJECTED: [usize; 4] = [2, 8, 24, 60];
const HELD: usize = 4096;
const PIECE: usize = 2048;

/// The source's figure: an allocator with thread-local memory saves a tenth.
const SOURCE_SAVES: f64 = 0.1;

/// Less than this share is no saving.
const SAVES_MIN: f64 = 0.05;

impl Experiment for Allocators {
    fn about(&self) -> About {
        About {
            name: "allocators",
            question: "What does another allocator than the system's save when rows are projected?",
            source: "000 §3.3.2, figure 3",
            parameters: "a table by row, 100 attributes; 2, 8, 24 and 60 of them copied into a vector per row, 4,096 vectors held at once; 1, 2 and 4 threads; each allocator loaded before a process of its own",
            expected: "allocators with thread-local memory save some 10% (000: Intel TBB's, by row)",
            environments: &[Environment::Native],
        }
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<()> {
        let (rounds, rows) = if run.is_quick() {
            (5, 100_000)
        } else {
            (11, 400_000)
        };
        let mut allocators: Vec<(&str, Option<PathBuf>)> = vec![(SYSTEM, None)];
        for (name, files, package) in OTHERS {
            match library(files, &FOLDERS) {
                Some(path) => allocators.push((name, Some(path))),
                None => run.skip(
                    name,
                    &format!(
                        "no {} here (Debian: apt-get install {package})",
                        files.join(" or ")
                    ),
                ),
            }
        }
        for round in 0..rounds {
            for threads in [1, 2, 4] {
                let name = format!("{threads} threads, round {} of {rounds}", round + 1);
                let helper = run.helper().clone();
                run.cell(&name, |cell| {
                    let first = round % allocators.len();
                    for (name, library) in
                        allocators.iter().cycle().skip(first).take(allocators.len())
                    {
                        let ns = timed(&helper, threads, rows, library.as_ref())?;
                        cell.put(Environment::Native, name, threads as f64, ns);
                    }
                    Ok(())
                })?;
            }
        }
        Ok(())
    }

    fn conclude(&self, results: &Results) -> Conclusion {
        conclude(results)
    }
}

fn library(files: &[&str], folders: &[&str]) -> Option<PathBuf> {
    let paths = folders
        .iter()
        .flat_map(|folder| files.iter().map(|file| Path::new(*folder).join(file)));
    paths.into_iter().find(|path| path.exists())
}

/// ns per row in a process of its own.
fn timed(
    helper: &(PathBuf, Vec<String>),
    threads: usize,
    rows: usize,
    library: Option<&PathBuf>,
) -> Result<f64> {
    let mut arguments = format!("project --threads {threads} --rows {rows}");
    let file = library.and_then(|path| path.file_name());
    if let Some(file) = file {
        arguments += &format!(" --preloaded {}", file.to_string_lossy());
    }
    let arguments: Vec<String> = arguments.split(' ').map(str::to_owned).collect();
    let mut helper = Helper::start(helper, &arguments, library)?;
    helper.go()?;
    let mut ns = helper.answer()?.ns;
    aerostat_calibrate::low_quantile(&mut ns).context("no row was projected")
}

/// Projects rows on some threads at once; ns per row of each thread's pieces.
///
/// # Errors
/// When a thread ends before its time.
pub(crate) fn project(threads: usize, rows: usize) -> Result<Answer> {
    let allowed = cores::allowed();
    let started = Instant::now();
    let table: Vec<u32> = (0..(HELD * WIDTH) as u32).collect();
    let begin = Barrier::new(threads);
    let work = &|nth: usize| {
        // Where it cannot be pinned it runs all the same.
        let _ = cores::pin(&[allowed[nth % allowed.len()]]);
        let mut held: Vec<SystemWords> = Vec::new();
        held.resize_with(HELD, || SystemWords::copied(&[]));
        begin.wait();
        let mut ns = Vec::new();
        for from in (0..rows).step_by(PIECE) {
            let started = Instant::now();
            piece(&table, &mut held, from..(from + PIECE).min(rows));
            ns.push(started.elapsed().as_nanos() as f64 / PIECE.min(rows - from) as f64);
        }
        ns
    };
    let ns = std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads)
            .map(|nth| scope.spawn(move || work(nth)))
            .collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Vec<f64>>| {
            thread
                .join()
                .map_err(|_| anyhow!("a thread that projects ended early"))
        };
        all.into_iter().map(join).collect::<Result<Vec<_>>>()
    })?;
    Ok(Answer {
        ns: ns.concat(),
        seconds: started.elapsed().as_secs_f64(),
    })
}

/// Projects rows; each new one takes the place of another.
fn piece(table: &[u32], held: &mut [SystemWords], rows: Range<usize>) {
    for nth in rows {
        let row = &table[nth % HELD * WIDTH..][..WIDTH];
        let attributes = PROJECTED[nth % PROJECTED.len()];
        // An odd step, so that neighbours in time are none in place.
        held[nth.wrapping_mul(2311) % HELD] = SystemWords::copied(&row[..attributes]);
    }
}

/// An allocator's time as a multiple of the system's.
fn to_system(results: &Results, name: &str, threads: f64) -> Option<Estimate> {
    let values = |name| results.values(Environment::Native, name, threads);
    ratio(&values(name), &values(SYSTEM))
}

fn conclude(results: &Results) -> Conclusion {
    let mut rows = Vec::new();
    let (mut saved, mut told) = (Vec::new(), Vec::new());
    for threads in results.xs(Environment::Native, SYSTEM) {
        for name in std::iter::once(SYSTEM).chain(OTHERS.map(|(name, ..)| name)) {
            let Some(at) = results.at(Environment::Native, name, threads) else {
                continue;
            };
            let to_system = to_system(results, name, threads).filter(|_| name != SYSTEM);
            if let Some(sure) = to_system.filter(Estimate::is_sure) {
                saved.push(1.0 - sure.median);
                told.push(format!(
                    "{name}, {threads:.0} threads: {:+.0}%",
                    (sure.median - 1.0) * 100.0
                ));
            }
            rows.push(vec![
                name.to_owned(),
                format!("{threads:.0}"),
                format!("{:.1} [{:.1}, {:.1}]", at.median, at.low, at.high),
                overhead(to_system),
            ]);
        }
    }
    let most = saved.iter().copied().reduce(f64::max);
    let (outcome, verdict) = match most {
        None => (
            Outcome::Unclear,
            "No other allocator was measured surely.".to_owned(),
        ),
        Some(most) => {
            let outcome = if most >= SAVES_MIN {
                Outcome::AsExpected
            } else {
                Outcome::Differs
            };
            let text = format!(
                "Time of a row beside the system's malloc: {}. The best saves {:.0}% (000: some {:.0}%).",
                told.join("; "),
                most * 100.0,
                SOURCE_SAVES * 100.0
            );
            (outcome, text)
        }
    };
    let headings = ["allocator", "threads", "ns per row", "beside the system's"];
    Conclusion {
        outcome,
        verdict,
        tables: vec![Table {
            title: "Rows projected into memory of their own".to_owned(),
            headings: headings.map(str::to_owned).to_vec(),
            rows,
        }],
        charts: charts(results),
    }
}

fn charts(results: &Results) -> Vec<(&'static str, Chart)> {
    let names = std::iter::once(SYSTEM).chain(OTHERS.map(|(name, ..)| name));
    let lines: Vec<Line> = names
        .map(|name| results.line(Environment::Native, name, 1.0))
        .filter(|line| !line.points.is_empty())
        .collect();
    if lines.is_empty() {
        return Vec::new();
    }
    let chart = Chart {
        title: "Projecting rows, by allocator".to_owned(),
        x: Axis::new("threads at once", Scale::Linear),
        y: Axis::new("ns per row of a thread", Scale::Linear),
        lines,
        marks: Vec::new(),
        levels: Vec::new(),
    };
    vec![("allocators", chart)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sample;

    fn results(jemalloc: f64) -> Results {
        let mut results = Results::default();
        for round in [50.0, 51.0, 49.5, 50.2, 50.1] {
            for (name, factor) in [(SYSTEM, 1.0), ("jemalloc", jemalloc)] {
                results.samples.push(Sample {
                    cell: "c".to_owned(),
                    environment: Environment::Native,
                    series: name.to_owned(),
                    x: 2.0,
                    value: round * factor,
                });
            }
        }
        results
    }

    #[test]
    fn savings_are_told_beside_the_sources() {
        let conclusion = conclude(&results(0.88));
        assert_eq!(conclusion.outcome, Outcome::AsExpected);
        for text in ["jemalloc, 2 threads: -12%", "saves 12%", "some 10%"] {
            assert!(conclusion.verdict.contains(text), "{}", conclusion.verdict);
        }
        assert_eq!(conclude(&results(1.05)).outcome, Outcome::Differs);
    }

    #[test]
    fn all_rows_are_projected() {
        let table: Vec<u32> = vec![1; HELD * WIDTH];
        let mut held: Vec<SystemWords> = Vec::new();
        held.resize_with(HELD, || SystemWords::copied(&[]));
        piece(&table, &mut held, 0..0);
        assert!(held.iter().all(|row| row.is_empty()));
        piece(&table, &mut held, 0..HELD);
        let words: usize = held.iter().map(|row| row.len()).sum();
        assert_eq!(
            words,
            PROJECTED.iter().sum::<usize>() * HELD / PROJECTED.len()
        );
        // Three pieces of each thread, the last one short.
        assert_eq!(project(2, 2 * PIECE + 1).unwrap().ns.len(), 6);
    }

    #[test]
    fn libraries_are_looked_for_where_they_are() {
        let folder = tempfile::tempdir().unwrap();
        let folders = ["/nowhere", folder.path().to_str().unwrap()];
        assert_eq!(library(&["libx.so.2"], &folders), None);
        let path = folder.path().join("libx.so.2");
        std::fs::write(&path, "").unwrap();
        assert_eq!(library(&["libx.so.3", "libx.so.2"], &folders), Some(path));
    }
}
