//! Source 000, figures 1 and 2: tables by row and by column, native and virtual.
//!
//! ```text
//! projectivity   100 attributes, all rows, the first 1 to 100 attributes of each
//! selectivity     16 attributes, all of them, a share of the rows at random positions
//! ```
//!
//! An attribute is a 32-bit number. A table by column is read column after column, one by row
//! row after row.

use aerostat_calibrate::{Axis, Buffer, Chart, Line, Pages, Scale, cores};
use aerostat_micro_vm::{Kernel, Layout, Paging};
use anyhow::Result;

use super::calibrator::overhead;
use crate::environment::in_turn;
use crate::results::Results;
use crate::stats::Estimate;
use crate::{About, Bench, Conclusion, Content, Environment, Experiment, Outcome, Run, Table};

/// Figure 1 of source 000, on this machine.
pub(crate) struct Projectivity;

/// Figure 2 of source 000, on this machine.
pub(crate) struct Selectivity;

/// Windows of a round.
const WINDOWS: usize = 5;

const LAYOUTS: [(Layout, &str); 2] = [(Layout::Row, "row"), (Layout::Column, "column")];
const PAGES: [(Pages, Paging, &str); 2] = [
    (Pages::Small, Paging::Small, "4 KiB pages"),
    (Pages::Huge, Paging::Huge, "2 MiB pages"),
];

const PROJECTED_WIDTH: usize = 100;
const PROJECTED: [usize; 9] = [1, 2, 4, 8, 16, 32, 50, 75, 100];
const SELECTED_WIDTH: usize = 16;
const SELECTED: [f64; 7] = [0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 1.0];

/// The source's figure for a database in a guest, in percent.
const SOURCE_OVERHEAD: f64 = 7.0;

impl Experiment for Projectivity {
    fn about(&self) -> About {
        About {
            name: "projectivity",
            question: "How does the time of a scan grow with the attributes it reads, by row and by column, and what does a guest add?",
            source: "000 §3.3, figure 1",
            parameters: "100 attributes of 4 bytes, 1 to 100 of them read; 200,000 rows (20,000 with --quick); row and column layout; 4 KiB and 2 MiB pages; queries repeated, so that what caches hold is found there",
            expected: "columns take time by the attributes read, rows by the lines touched, so columns win while few attributes are read; the guest behaves as the process does",
            environments: &Environment::TIMED,
        }
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<()> {
        let rows = if run.is_quick() { 20_000 } else { 200_000 };
        let points = PROJECTED.map(|attributes| Query {
            x: attributes as f64,
            positions: None,
            kernel: Box::new(move |layout| Kernel::Project {
                layout,
                rows,
                width: PROJECTED_WIDTH,
                attributes,
            }),
        });
        measure(run, rows * PROJECTED_WIDTH, points.into_iter().collect())
    }

    fn conclude(&self, results: &Results) -> Conclusion {
        let about = Shown {
            title: "attributes read",
            axis: Axis::new("attributes read, of 100", Scale::Linear),
            x: |x| format!("{x:.0}"),
            few: PROJECTED[0] as f64,
            all: PROJECTED_WIDTH as f64,
            words: ["one attribute", "all 100"],
        };
        conclude(results, &about, |few, _| few > 1.0)
    }
}

impl Experiment for Selectivity {
    fn about(&self) -> About {
        About {
            name: "selectivity",
            question: "How does the time of reading whole rows grow with their share, by row and by column, and what does a guest add?",
            source: "000 §3.3, figure 2",
            parameters: "16 attributes of 4 bytes, all read at random positions; 0.1% to 100% of 1,000,000 rows (250,000 with --quick); row and column layout; 4 KiB and 2 MiB pages; queries repeated",
            expected: "rows win at every share, for a row is one cache line and columns touch sixteen; address translation in the guest shows where pages are many and small",
            environments: &Environment::TIMED,
        }
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<()> {
        let rows: usize = if run.is_quick() { 250_000 } else { 1_000_000 };
        let seed = run.seed();
        let points = SELECTED.map(|share| {
            let positions = (rows as f64 * share) as usize;
            Query {
                x: share,
                positions: Some(Content::Values {
                    at: rows * SELECTED_WIDTH,
                    count: positions,
                    below: rows as u32,
                    seed: seed ^ positions as u64,
                }),
                kernel: Box::new(move |layout| Kernel::Select {
                    layout,
                    rows,
                    width: SELECTED_WIDTH,
                    positions,
                }),
            }
        });
        measure(run, rows * SELECTED_WIDTH, points.into_iter().collect())
    }

    fn conclude(&self, results: &Results) -> Conclusion {
        let about = Shown {
            title: "share of rows read",
            axis: Axis::new("share of rows read", Scale::Log),
            x: |x| format!("{:.1}%", x * 100.0),
            few: SELECTED[1],
            all: SELECTED[SELECTED.len() - 1],
            words: ["1% of the rows", "all"],
        };
        conclude(results, &about, |few, all| few < 1.0 && all < 1.0)
    }
}

/// A query over a table, in either layout.
struct Query {
    x: f64,
    /// Row numbers that it finds behind the table.
    positions: Option<Content>,
    kernel: Box<dyn Fn(Layout) -> Kernel>,
}

fn measure(run: &mut Run<'_>, table: usize, queries: Vec<Query>) -> Result<()> {
    cores::settled(None, |_| measure_pinned(run, table, &queries))?
}

/// Values in ms per query.
fn measure_pinned(run: &mut Run<'_>, table: usize, queries: &[Query]) -> Result<()> {
    let rounds = if run.is_quick() { 7 } else { 15 };
    let (environments, places) = (run.environments(), run.places());
    let positions = queries.iter().map(|query| match query.positions {
        Some(Content::Values { count, .. }) => count,
        _ => 0,
    });
    let bytes = (table + positions.max().unwrap_or(0)) * 4;
    for (pages, paging, page_name) in PAGES {
        let mut buffer = Buffer::new(bytes, pages)?;
        let mut bench = Bench::new(&mut buffer, paging, &places)?;
        bench.fill(Content::Values {
            at: 0,
            count: table,
            below: 1000,
            seed: run.seed(),
        })?;
        for round in 0..rounds {
            let name = format!("{page_name}, round {} of {rounds}", round + 1);
            run.cell(&name, |cell| {
                for query in queries {
                    if let Some(positions) = query.positions {
                        bench.fill(positions)?;
                    }
                    for (layout, layout_name) in LAYOUTS {
                        let series = format!("{layout_name}, {page_name}");
                        for environment in in_turn(&environments, round) {
                            let ns = bench.ns(environment, (query.kernel)(layout), WINDOWS)?;
                            cell.put(environment, &series, query.x, ns / 1e6);
                        }
                    }
                }
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// How an experiment is shown.
struct Shown {
    title: &'static str,
    axis: Axis,
    x: fn(f64) -> String,
    /// Few attributes or rows, and all.
    few: f64,
    all: f64,
    words: [&'static str; 2],
}

/// `is_expected` of how many times as long rows take as columns, of few and of all.
fn conclude(
    results: &Results,
    shown: &Shown,
    is_expected: impl Fn(f64, f64) -> bool,
) -> Conclusion {
    let (_, _, pages) = PAGES[0];
    let series = |layout: &str| format!("{layout}, {pages}");
    let rows_to_columns = |x: f64| {
        crate::stats::ratio(
            &results.values(Environment::Native, &series("row"), x),
            &results.values(Environment::Native, &series("column"), x),
        )
    };
    let both = rows_to_columns(shown.few).zip(rows_to_columns(shown.all));
    let (outcome, mut verdict) = match both {
        None => (Outcome::Unclear, "Not enough was measured.".to_owned()),
        Some((few, all)) => {
            let [of_few, of_all] = shown.words;
            let text = format!(
                "For {of_few} a table by row takes {:.2} times as long as one by column, for {of_all} {:.2} times (native, {pages}).",
                few.median, all.median
            );
            match is_expected(few.median, all.median) {
                true => (Outcome::AsExpected, text),
                false => (Outcome::Differs, text),
            }
        }
    };
    verdict += &overheads(results);
    Conclusion {
        outcome,
        verdict,
        tables: vec![table(results, shown)],
        charts: charts(results, shown),
    }
}

fn all_series() -> Vec<String> {
    let of = |(_, layout): &(Layout, &str)| {
        let layout = (*layout).to_owned();
        PAGES.map(move |(_, _, pages)| format!("{layout}, {pages}"))
    };
    LAYOUTS.iter().flat_map(of).collect()
}

/// The overhead of each environment, over all its points that are sure.
fn overheads(results: &Results) -> String {
    let of = |environment| overhead_of(results, environment);
    let told: Vec<String> = results.compared().into_iter().filter_map(of).collect();
    if told.is_empty() {
        return String::new();
    }
    format!(" Beside native: {}.", told.join("; "))
}

fn overhead_of(results: &Results, environment: Environment) -> Option<String> {
    let series = all_series();
    let points = series.iter().flat_map(|series| {
        let xs = results.xs(environment, series).into_iter();
        xs.filter_map(move |x| results.overhead(environment, series, x))
    });
    let (sure, unsure): (Vec<Estimate>, Vec<Estimate>) = points.partition(Estimate::is_sure);
    let percents = sure.iter().map(|ratio| (ratio.median - 1.0) * 100.0);
    let (least, most) = (
        percents.clone().reduce(f64::min)?,
        percents.reduce(f64::max)?,
    );
    let label = results.label(environment);
    let mut text = format!("{label} {least:+.1}% to {most:+.1}%");
    if !unsure.is_empty() {
        let (unsure, all) = (unsure.len(), unsure.len() + sure.len());
        text += &format!(" ({unsure} of {all} points too noisy to tell)");
    }
    Some(text)
}

fn table(results: &Results, shown: &Shown) -> Table {
    let others = results.compared();
    let mut rows = Vec::new();
    for series in all_series() {
        for x in results.xs(Environment::Native, &series) {
            let text = |environment| {
                let at = results.at(environment, &series, x);
                at.map_or("–".to_owned(), |at| {
                    format!("{:.3} [{:.3}, {:.3}]", at.median, at.low, at.high)
                })
            };
            let mut row = vec![series.clone(), (shown.x)(x), text(Environment::Native)];
            for &environment in &others {
                let ratio = results.overhead(environment, &series, x);
                row.extend([text(environment), overhead(ratio)]);
            }
            rows.push(row);
        }
    }
    let mut headings = ["table", shown.title, "native, ms"]
        .map(str::to_owned)
        .to_vec();
    for environment in others {
        let label = results.label(environment);
        headings.extend([format!("{label}, ms"), "to native".to_owned()]);
    }
    Table {
        title: "ms per query".to_owned(),
        headings,
        rows,
    }
}

fn charts(results: &Results, shown: &Shown) -> Vec<(&'static str, Chart)> {
    let files = ["time-4k", "time-2m"];
    let mut charts = Vec::new();
    for ((_, _, pages), file) in PAGES.into_iter().zip(files) {
        let series = all_series()
            .into_iter()
            .filter(|name| name.ends_with(pages));
        let lines = series.flat_map(|series| {
            Environment::TIMED.map(|environment| results.line(environment, &series, 1.0))
        });
        charts.push((
            file,
            Chart {
                title: format!("Time of a query by {}, {pages}", shown.title),
                x: shown.axis.clone(),
                y: Axis::new("ms per query", Scale::Log),
                lines: with_points(lines),
                marks: Vec::new(),
                levels: Vec::new(),
            },
        ));
    }
    let others = results.compared();
    let files = ["overhead-4k", "overhead-2m"];
    for ((_, _, pages), file) in PAGES.into_iter().zip(files) {
        let series = all_series()
            .into_iter()
            .filter(|name| name.ends_with(pages));
        let lines = series.flat_map(|series| {
            let line = |environment: &Environment| results.overhead_line(*environment, &series);
            others.iter().map(line).collect::<Vec<_>>()
        });
        charts.push((
            file,
            Chart {
                title: format!("Overhead by {}, {pages}", shown.title),
                x: shown.axis.clone(),
                y: Axis::new("% more time than native", Scale::Linear),
                lines: with_points(lines),
                marks: Vec::new(),
                levels: vec![(
                    SOURCE_OVERHEAD,
                    "000, figure 4: a whole database under Xen, 7%".to_owned(),
                )],
            },
        ));
    }
    charts.retain(|(_, chart)| !chart.lines.is_empty());
    charts
}

fn with_points(lines: impl Iterator<Item = Line>) -> Vec<Line> {
    lines.filter(|line| !line.points.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sample;

    /// Samples of a machine whose rows take so many times as long as columns.
    fn results(rows_to_columns: impl Fn(f64) -> f64, xs: &[f64], guest: f64) -> Results {
        let mut results = Results::default();
        for &x in xs {
            for round in [1.0, 1.01, 0.99, 1.02, 1.0] {
                for environment in [Environment::Native, Environment::KvmMicro] {
                    for (_, layout) in LAYOUTS {
                        let factor = match (layout, environment) {
                            ("row", Environment::Native) => rows_to_columns(x),
                            ("row", _) => rows_to_columns(x) * guest,
                            (_, Environment::Native) => 1.0,
                            _ => guest,
                        };
                        results.samples.push(Sample {
                            cell: "c".to_owned(),
                            environment,
                            series: format!("{layout}, 4 KiB pages"),
                            x,
                            value: x * round * factor,
                        });
                    }
                }
            }
        }
        results
    }

    #[test]
    fn columns_win_where_few_attributes_are_read() {
        let falls = |x: f64| 5.0 - x / 25.0;
        let conclusion = Projectivity.conclude(&results(falls, &[1.0, 50.0, 100.0], 1.12));
        assert_eq!(conclusion.outcome, Outcome::AsExpected);
        for text in ["4.96 times", "1.00 times", "kvm-micro +12.0% to +12.0%"] {
            assert!(conclusion.verdict.contains(text), "{}", conclusion.verdict);
        }
        assert_eq!(conclusion.tables[0].rows.len(), 6);
        assert_eq!(conclusion.charts.len(), 2, "times and overhead");
        let other = Projectivity.conclude(&results(|_| 0.8, &[1.0, 100.0], 1.0));
        assert_eq!(other.outcome, Outcome::Differs);
    }

    #[test]
    fn rows_win_where_whole_rows_are_read() {
        let conclusion = Selectivity.conclude(&results(|_| 0.3, &[0.01, 1.0], 1.02));
        assert_eq!(conclusion.outcome, Outcome::AsExpected);
        let other = Selectivity.conclude(&results(|x| x + 0.9, &[0.01, 1.0], 1.02));
        assert_eq!(other.outcome, Outcome::Differs);
    }
}
