//! Source 000, figures 1 and 2, on the engine's own segments: tables by row, by column and as
//! the layout adviser has them.
//!
//! ```text
//! projectivity-engine   100 attributes, all rows, the first 1 to 100 attributes of each
//! selectivity-engine     16 attributes, 15 of the rows that a predicate on the last one leaves
//! ```
//!
//! A query filters and gathers vector by vector, as a scan does, and adds up what it gets: an
//! attribute that lies alone is handed out without a copy, so it is read then.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use aerostat_advice::{
    Access, Filter, Footprint, Machine, Policy, Scan, TableShape, Workload, decide,
};
use aerostat_calibrate::{Axis, Chart, Line, Scale, cores, low_quantile};
use aerostat_segment::{
    ARENA_BYTES_MAX, AttributeSpec, CompareOp, HeapRegion, Keys, Literal, Pinned, Predicate,
    Segment, SegmentSchema, Selection, VECTOR_ROWS,
};
use aerostat_types::{Layout, SegmentNo, SqlType, TableId};
use anyhow::{Context, Result, ensure};
use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_array::{ArrayRef, Int32Array};
use rand::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::results::Results;
use crate::stats::{Estimate, ratio};
use crate::{About, Conclusion, Environment, Experiment, Outcome, Run, Table};

/// Figure 1 of source 000 on the engine's layouts.
pub(crate) struct Projectivity;

/// Figure 2 of source 000 on the engine's layouts.
pub(crate) struct Selectivity;

const ROW: &str = "row";
const COLUMN: &str = "column";
const ADVISED: &str = "as advised";

/// Queries of a sample, of which the low quantile counts.
const QUERIES: usize = 5;

/// An adviser's choice is good if no other layout takes less than this share of its time: what
/// the policy of the engine does not move a table for.
const GOOD: f64 = 0.9;

/// Values of an attribute are below this, so that a predicate leaves any share of them.
const BELOW: i32 = 1_000_000;

/// A table and its queries.
struct Setting {
    attributes: usize,
    rows: [usize; 2],
    xs: &'static [f64],
    /// The attributes that a query of this x hands out, and the share of the rows.
    query: fn(f64) -> Query,
    axis: &'static str,
    scale: Scale,
    x: fn(f64) -> String,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Query {
    /// So many from the first on.
    projected: usize,
    /// Of the rows, by a predicate on the last attribute; `None`: all of them.
    selected: Option<f64>,
}

const PROJECTIVITY: Setting = Setting {
    attributes: 100,
    rows: [60_000, 200_000],
    xs: &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 50.0, 75.0, 100.0],
    query: |x| Query {
        projected: x as usize,
        selected: None,
    },
    axis: "attributes read, of 100",
    scale: Scale::Linear,
    x: |x| format!("{x:.0}"),
};

const SELECTIVITY: Setting = Setting {
    attributes: 16,
    rows: [250_000, 1_000_000],
    xs: &[0.0001, 0.001, 0.01, 0.03, 0.1, 0.2, 0.4, 0.7, 1.0],
    query: |x| Query {
        projected: 15,
        selected: Some(x),
    },
    axis: "share of rows selected",
    scale: Scale::Log,
    x: |x| format!("{}%", x * 100.0),
};

impl Experiment for Projectivity {
    fn about(&self) -> About {
        About {
            name: "projectivity-engine",
            question: "Which of the engine's layouts is the fastest for a scan of some attributes, and does the layout adviser choose it?",
            source: "000 §3.3.1, figure 1",
            parameters: "hot segments of 100 integer attributes, 1 to 100 of them gathered and added up; 200,000 rows (60,000 with --quick); by row, by column, and as the adviser has it for that query on its default machine",
            expected: "columns at every width: they are handed out without a copy; the adviser has them",
            environments: &[Environment::Native],
        }
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<()> {
        measure(run, &PROJECTIVITY)
    }

    fn conclude(&self, results: &Results) -> Conclusion {
        conclude(results, &PROJECTIVITY)
    }
}

impl Experiment for Selectivity {
    fn about(&self) -> About {
        About {
            name: "selectivity-engine",
            question: "Which of the engine's layouts is the fastest for whole rows that a predicate selects, where do they cross, and does the layout adviser choose the right one?",
            source: "000 §3.3.1, figure 2",
            parameters: "hot segments of 16 integer attributes; a predicate on the last leaves 0.01% to all of 1,000,000 rows (250,000 with --quick), of which the other 15 are gathered and added up; by row, by column, and as the adviser has it for that query on its default machine",
            expected: "columns win where most rows are selected, wide groups where few are; the adviser is on the right side of both",
            environments: &[Environment::Native],
        }
    }

    fn measure(&self, run: &mut Run<'_>) -> Result<()> {
        measure(run, &SELECTIVITY)
    }

    fn conclude(&self, results: &Results) -> Conclusion {
        conclude(results, &SELECTIVITY)
    }
}

/// The groups of a layout, as positions of attributes.
type Groups = Vec<Vec<usize>>;

impl Setting {
    fn names(&self) -> Vec<String> {
        (0..self.attributes).map(|at| format!("a{at}")).collect()
    }

    fn groups(&self, layout: &Layout) -> Groups {
        // The adviser's layouts are of these names.
        layout.resolve(&self.names()).unwrap_or_default()
    }

    /// What the adviser has for a table that only has this query.
    fn advised(&self, x: f64, rows: usize) -> Result<Groups> {
        let Query {
            projected,
            selected,
        } = (self.query)(x);
        let predicate = |selectivity| Filter {
            attribute: self.attributes - 1,
            selectivity,
        };
        let scan = Scan {
            share: 1.0,
            predicates: selected.map(predicate).into_iter().collect(),
            projection: (0..projected).collect(),
        };
        let workload = Workload {
            footprints: vec![Footprint {
                access: Access::Scan(scan),
                weight: 1000.0,
            }],
            window_s: 1.0,
        };
        let shape = TableShape::hot(self.names(), vec![4; self.attributes], rows as u64);
        // Whatever is gained, the table is laid out for it.
        let policy = Policy {
            gain_share_min: 0.0,
            horizon_s: f64::INFINITY,
            executions_min: 0.0,
        };
        let machine = Machine::default();
        let advice = decide(&Layout::Column, &workload, &shape, &machine, &policy)?;
        Ok(self.groups(&advice.layout))
    }

    /// The series in which the adviser's choice at a point is.
    fn series(&self, advised: &Groups) -> &'static str {
        match advised {
            groups if *groups == self.groups(&Layout::Row) => ROW,
            groups if *groups == self.groups(&Layout::Column) => COLUMN,
            _ => ADVISED,
        }
    }
}

/// A table in hot segments.
struct Segments(Vec<Pinned<'static>>);

impl Segments {
    /// Rows of random numbers, the same for every layout.
    fn new(setting: &Setting, groups: Groups, rows: usize, seed: u64) -> Result<Segments> {
        let attribute = AttributeSpec {
            ty: SqlType::Integer,
            nullable: false,
        };
        let attributes = vec![attribute; setting.attributes];
        let schema = Arc::new(SegmentSchema::new(attributes, groups, Vec::new())?);
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut segments: Vec<Pinned> = Vec::new();
        let mut left = rows;
        while left > 0 {
            let count = left.min(VECTOR_ROWS as usize);
            let mut column = || -> ArrayRef {
                let values = (0..count).map(|_| random.random_range(0..BELOW));
                Arc::new(Int32Array::from_iter_values(values))
            };
            let columns: Vec<ArrayRef> = (0..setting.attributes).map(|_| column()).collect();
            let keys = Keys::encode(&schema, &columns)?;
            let mut from = 0;
            while from < count {
                let taken = match segments.last() {
                    None => 0,
                    Some(last) => last.writer().append(&columns, from..count, &keys, 1)?.count,
                };
                from += taken as usize;
                if taken == 0 {
                    ensure!(
                        segments.last().is_none_or(|last| last.rows() > 0),
                        "no row fits into a segment"
                    );
                    let region = Box::new(HeapRegion::new(ARENA_BYTES_MAX));
                    let no = SegmentNo(segments.len() as u32 + 1);
                    let new = Segment::create(region, schema.clone(), TableId(1), no, 0)?;
                    segments.push(Pinned::new(new, ()));
                }
            }
            left -= count;
        }
        Ok(Segments(segments))
    }

    /// The sum of what a query finds.
    fn sum(&self, query: Query, predicate: Option<&Predicate>) -> i64 {
        let projection: Vec<usize> = (0..query.projected).collect();
        let mut sum = 0;
        for segment in &self.0 {
            let rows = segment.rows();
            for from in (0..rows).step_by(VECTOR_ROWS as usize) {
                let mut selection = Selection::Range(from..(from + VECTOR_ROWS).min(rows));
                if let Some(predicate) = predicate {
                    segment.filter(predicate, &mut selection);
                }
                if selection.is_empty() {
                    continue;
                }
                segment.prefetch(&projection, &selection);
                for &attribute in &projection {
                    let values = segment.gather(attribute, &selection);
                    let values = values.as_primitive::<Int32Type>().values();
                    let of_vector = values.iter().fold(0_i32, |all, one| all.wrapping_add(*one));
                    sum += i64::from(of_vector);
                }
            }
        }
        sum
    }
}

/// The predicate that leaves a query's rows.
fn predicate(setting: &Setting, query: Query) -> Option<Predicate> {
    query.selected.map(|share| Predicate::Compare {
        attribute: setting.attributes - 1,
        op: CompareOp::Lt,
        value: Literal::Int((share * f64::from(BELOW)) as i128),
    })
}

fn measure(run: &mut Run<'_>, setting: &Setting) -> Result<()> {
    cores::settled(None, |_| measure_pinned(run, setting))?
}

/// ms per query of each layout in turn.
fn measure_pinned(run: &mut Run<'_>, setting: &Setting) -> Result<()> {
    let [few, all] = setting.rows;
    let (rounds, rows) = if run.is_quick() { (5, few) } else { (11, all) };
    let mut tables: BTreeMap<Groups, Segments> = BTreeMap::new();
    let mut layouts = Vec::new();
    for &x in setting.xs {
        let advised = setting.advised(x, rows)?;
        let mut at = vec![
            (ROW, setting.groups(&Layout::Row)),
            (COLUMN, setting.groups(&Layout::Column)),
        ];
        if setting.series(&advised) == ADVISED {
            at.push((ADVISED, advised));
        }
        for (_, groups) in &at {
            if !tables.contains_key(groups) {
                let table = Segments::new(setting, groups.clone(), rows, run.seed())?;
                tables.insert(groups.clone(), table);
            }
        }
        layouts.push((x, at));
    }
    for round in 0..rounds {
        run.cell(&format!("round {} of {rounds}", round + 1), |cell| {
            for (x, at) in &layouts {
                let query = (setting.query)(*x);
                let predicate = predicate(setting, query);
                let mut sums = Vec::new();
                for nth in 0..at.len() {
                    let (series, groups) = &at[(nth + round) % at.len()];
                    let table = tables.get(groups).context("a layout has a table")?;
                    sums.push(table.sum(query, predicate.as_ref()));
                    let mut ns: Vec<f64> = Vec::new();
                    for _ in 0..QUERIES {
                        let started = Instant::now();
                        black_box(table.sum(query, predicate.as_ref()));
                        ns.push(started.elapsed().as_nanos() as f64);
                    }
                    let ns = low_quantile(&mut ns).context("the clock stands still")?;
                    cell.put(Environment::Native, series, *x, ns / 1e6);
                }
                sums.dedup();
                ensure!(sums.len() == 1, "layouts disagree about the sum: {sums:?}");
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// The adviser's choice at a point, beside the best of the others.
struct Judged {
    x: f64,
    advised: &'static str,
    /// The least time of another layout as a multiple of its own.
    others: Option<Estimate>,
}

/// The adviser's series at each point that has samples. The choice depends on the number of
/// rows only where tables are far smaller.
fn judge(results: &Results, setting: &Setting) -> Vec<Judged> {
    let native = Environment::Native;
    let judge = |x: f64| {
        let advised = match results.values(native, ADVISED, x).is_empty() {
            false => ADVISED,
            true => setting.series(&setting.advised(x, setting.rows[1]).ok()?),
        };
        let own = results.values(native, advised, x);
        let beside = |series: &&str| ratio(&results.values(native, series, x), &own);
        let others = [ROW, COLUMN]
            .into_iter()
            .filter(|series| *series != advised);
        let others = others.filter_map(|series| beside(&series));
        Some(Judged {
            x,
            advised,
            others: others.min_by(|a, b| a.median.total_cmp(&b.median)),
        })
    };
    let xs = results.xs(native, ROW).into_iter();
    xs.filter_map(judge).collect()
}

fn conclude(results: &Results, setting: &Setting) -> Conclusion {
    let judged = judge(results, setting);
    let is_wrong = |one: &&Judged| one.others.is_some_and(|others| others.high < GOOD);
    let wrong: Vec<&Judged> = judged.iter().filter(is_wrong).collect();
    let outcome = match (judged.is_empty(), wrong.is_empty()) {
        (true, _) => Outcome::Unclear,
        (_, true) => Outcome::AsExpected,
        _ => Outcome::Differs,
    };
    let mut verdict = match judged.is_empty() {
        true => "Nothing was measured.".to_owned(),
        false => crossing(results, setting),
    };
    let chosen: Vec<String> = chosen(&judged, setting);
    if !chosen.is_empty() {
        verdict += &format!(" The adviser chooses {}.", chosen.join(", "));
        verdict += &match &wrong[..] {
            [] => " No other layout is faster by 10% anywhere.".to_owned(),
            wrong => {
                let told = wrong.iter().map(|one| {
                    let share = one.others.map_or(1.0, |others| others.median);
                    format!("{} ({:.0}% of its time)", (setting.x)(one.x), share * 100.0)
                });
                let told: Vec<String> = told.collect();
                format!(" Another layout is faster at {}.", told.join(", "))
            }
        };
    }
    Conclusion {
        outcome,
        verdict,
        tables: vec![table(results, setting, &judged)],
        charts: chart(results, setting),
    }
}

/// The adviser's choices, each with the points it is for.
fn chosen(judged: &[Judged], setting: &Setting) -> Vec<String> {
    let runs = judged.chunk_by(|a, b| a.advised == b.advised);
    let told = |run: &[Judged]| {
        let (first, last) = ((setting.x)(run[0].x), (setting.x)(run[run.len() - 1].x));
        let what = match run[0].advised {
            ADVISED => "groups of its own",
            series => series,
        };
        if run.len() == 1 {
            format!("{what} at {first}")
        } else {
            format!("{what} from {first} to {last}")
        }
    };
    runs.map(told).collect()
}

/// Where columns begin or cease to be faster than other layouts.
fn crossing(results: &Results, setting: &Setting) -> String {
    let native = Environment::Native;
    let mut told = Vec::new();
    for other in [ROW, ADVISED] {
        let xs = results.xs(native, other);
        let ratios = xs.iter().filter_map(|x| {
            let (column, other) = (
                results.values(native, COLUMN, *x),
                results.values(native, other, *x),
            );
            Some((*x, ratio(&column, &other)?.median))
        });
        let ratios: Vec<(f64, f64)> = ratios.collect();
        let (Some(first), Some(last)) = (ratios.first(), ratios.last()) else {
            continue;
        };
        let name = match other {
            ROW => "rows",
            _ => "the adviser's groups",
        };
        let mut text = format!(
            "Columns take {:.2} times as long as {name} at {}, {:.2} times at {}",
            first.1,
            (setting.x)(first.0),
            last.1,
            (setting.x)(last.0)
        );
        let crosses = |pair: &&[(f64, f64)]| (pair[0].1 < 1.0) != (pair[1].1 < 1.0);
        let between = |pair: &[(f64, f64)]| {
            let (before, behind) = ((setting.x)(pair[0].0), (setting.x)(pair[1].0));
            format!("between {before} and {behind}")
        };
        let crossings: Vec<String> = ratios.windows(2).filter(crosses).map(between).collect();
        if !crossings.is_empty() {
            text += &format!("; they cross {}", crossings.join(" and "));
        }
        told.push(text + ".");
    }
    told.join(" ")
}

fn table(results: &Results, setting: &Setting, judged: &[Judged]) -> Table {
    let row = |one: &Judged| {
        let text = |series| {
            let at = results.at(Environment::Native, series, one.x);
            at.map_or("–".to_owned(), |at| {
                format!("{:.3} [{:.3}, {:.3}]", at.median, at.low, at.high)
            })
        };
        let others = one.others.map_or("–".to_owned(), |others| {
            format!(
                "{:.2} [{:.2}, {:.2}]",
                others.median, others.low, others.high
            )
        });
        let chosen = match one.advised {
            ADVISED => "groups of its own".to_owned(),
            series => series.to_owned(),
        };
        let x = (setting.x)(one.x);
        vec![x, text(ROW), text(COLUMN), text(ADVISED), chosen, others]
    };
    let headings = [
        setting.axis,
        "row, ms",
        "column, ms",
        "the adviser's groups, ms",
        "the adviser's choice",
        "the best other to it",
    ];
    Table {
        title: "ms per query on the engine's segments".to_owned(),
        headings: headings.map(str::to_owned).to_vec(),
        rows: judged.iter().map(row).collect(),
    }
}

fn chart(results: &Results, setting: &Setting) -> Vec<(&'static str, Chart)> {
    let lines = [ROW, COLUMN, ADVISED]
        .map(|series| results.line(Environment::Native, series, 1.0))
        .into_iter()
        .filter(|line| !line.points.is_empty());
    let lines: Vec<Line> = lines.collect();
    if lines.is_empty() {
        return Vec::new();
    }
    let chart = Chart {
        title: format!(
            "Time of a query on the engine's segments by {}",
            setting.axis
        ),
        x: Axis::new(setting.axis, setting.scale),
        y: Axis::new("ms per query", Scale::Log),
        lines,
        marks: Vec::new(),
        levels: Vec::new(),
    };
    vec![("time", chart)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sample;

    #[test]
    fn every_layout_finds_the_same() {
        let rows = 20_000;
        let tables = [
            SELECTIVITY.groups(&Layout::Row),
            SELECTIVITY.groups(&Layout::Column),
            SELECTIVITY.advised(0.001, rows).unwrap(),
        ]
        .map(|groups| Segments::new(&SELECTIVITY, groups, rows, 7).unwrap());
        for x in [0.001, 0.5, 1.0] {
            let query = (SELECTIVITY.query)(x);
            let predicate = predicate(&SELECTIVITY, query);
            let [row, column, advised] =
                [0, 1, 2].map(|nth| tables[nth].sum(query, predicate.as_ref()));
            assert!(row != 0 && row == column && row == advised, "{x}");
        }
        let all = tables[1]
            .0
            .iter()
            .map(|segment| segment.rows())
            .sum::<u32>();
        assert_eq!(all as usize, rows);
    }

    #[test]
    fn the_adviser_has_columns_for_scans_and_groups_for_few_rows() {
        let choice = |setting: &Setting, x| {
            let advised = setting.advised(x, setting.rows[1]).unwrap();
            setting.series(&advised)
        };
        assert_eq!(choice(&PROJECTIVITY, 1.0), COLUMN);
        assert_eq!(choice(&PROJECTIVITY, 100.0), COLUMN);
        assert_eq!(choice(&SELECTIVITY, 0.001), ADVISED);
        assert_eq!(choice(&SELECTIVITY, 1.0), COLUMN);
    }

    fn results(advised: f64) -> Results {
        let mut results = Results::default();
        for round in [1.0, 1.01, 0.99, 1.0] {
            for (series, x, ms) in [
                (ROW, 0.001, 2.0),
                (COLUMN, 0.001, 3.0),
                (ADVISED, 0.001, advised),
                (ROW, 1.0, 9.0),
                (COLUMN, 1.0, 4.0),
            ] {
                results.samples.push(Sample {
                    cell: "c".to_owned(),
                    environment: Environment::Native,
                    series: series.to_owned(),
                    x,
                    value: ms * round,
                });
            }
        }
        results
    }

    #[test]
    fn choices_are_judged_beside_the_best() {
        let conclusion = conclude(&results(1.0), &SELECTIVITY);
        assert_eq!(conclusion.outcome, Outcome::AsExpected);
        for text in [
            "1.50 times as long as rows at 0.1%, 0.44 times at 100%; they cross between 0.1% and 100%",
            "groups of its own at 0.1%, column at 100%",
            "No other layout is faster",
        ] {
            let verdict = &conclusion.verdict;
            assert!(verdict.contains(text), "{text}: {verdict}");
        }
        let worse = conclude(&results(4.0), &SELECTIVITY);
        assert_eq!(worse.outcome, Outcome::Differs);
        assert!(
            worse.verdict.contains("faster at 0.1% (50% of its time)"),
            "{}",
            worse.verdict
        );
    }
}
