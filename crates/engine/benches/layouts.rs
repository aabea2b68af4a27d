//! Projectivity and selectivity on real tables (source 000 §3.3.1): what a tuple costs in
//! the row layout, the column layout and one between, where they cross, and what the
//! adviser says on both sides. Run with `cargo bench -p aerostat-engine --bench layouts`;
//! a number behind `--` divides the rows.
//!
//! A table for each layout, laid out by the reshape that `ALTER TABLE` uses. A scan by one
//! thread; every value that comes out is read, since a column that is handed out without a
//! copy costs nothing until somebody does. Best of seven rounds over all layouts and points,
//! so that what else the machine does meanwhile meets all of them.
//!
//! It lies here because only this crate knows both the tables and the adviser.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark")]

use std::{hint::black_box, sync::Arc, time::Instant};

use aerostat_advice::{
    Access, Filter, Footprint, Machine, Policy, Scan, TableShape, Workload, decide, estimate_ns,
};
use aerostat_memory::Governor;
use aerostat_storage::{CompareOp, Literal, Predicate, ScanSpec, Table, TenantStore};
use aerostat_txn::CancelToken;
use aerostat_types::{Column, Layout, SqlType, TableId, TableSchema, TenantId};
use arrow::array::{ArrayRef, AsArray, Int32Array, RecordBatch};
use arrow::datatypes::Int32Type;

const ROUNDS: usize = 7;

/// More than the last level of cache has room for, here 105 MiB.
const TABLE_BYTES: usize = 128 << 20;

const VECTOR_ROWS: usize = 8_192;

/// What a scan does.
#[derive(Clone, Copy)]
struct Point {
    /// Share of the rows that a predicate on the last attribute lets pass; `None` without.
    selectivity: Option<f64>,
    /// How many attributes it reads of them.
    projected: usize,
}

impl std::fmt::Display for Point {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let share = self.selectivity.unwrap_or(1.0);
        write!(f, "{share} of rows, {} attributes", self.projected)
    }
}

/// Evenly spread, and independent of each other. One row of each vector has the least, so
/// that zones rule nothing out.
fn value(row: usize, attribute: usize) -> i32 {
    if row.is_multiple_of(VECTOR_ROWS) {
        return i32::MIN;
    }

    let mut hash = (row as u64 * 1_000 + attribute as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    hash ^= hash >> 29;
    (hash.wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 32) as i32
}

fn names(attributes: usize) -> Vec<String> {
    (0..attributes).map(|at| format!("a{at}")).collect()
}

fn batches(attributes: usize, rows: usize) -> Vec<RecordBatch> {
    let batch = |from: usize| {
        let range = from..rows.min(from + VECTOR_ROWS);
        let column = |at: usize| {
            let values = range.clone().map(|row| value(row, at));
            let array: ArrayRef = Arc::new(Int32Array::from_iter_values(values));
            (format!("a{at}"), array, false)
        };
        RecordBatch::try_from_iter_with_nullable((0..attributes).map(column)).unwrap()
    };
    (0..rows).step_by(VECTOR_ROWS).map(batch).collect()
}

fn loaded(attributes: usize, batches: &[RecordBatch]) -> Arc<Table> {
    let columns = names(attributes).into_iter().map(|name| Column {
        name,
        ty: SqlType::Integer,
        nullable: false,
        default: None,
    });
    let schema = Arc::new(TableSchema {
        name: "integers".to_owned(),
        columns: columns.collect(),
        primary_key: Vec::new(),
        primary_key_name: String::new(),
        checks: Vec::new(),
    });
    let budget = Governor::new("4GB".parse().unwrap()).budget("bench", None);
    let store = TenantStore::new(TenantId(1), budget);
    let table = store
        .create_table(TableId(1), schema, &Layout::Row)
        .unwrap();
    let txn = store.txns().begin();
    for batch in batches {
        table.insert(&txn, batch).unwrap();
    }
    txn.commit().unwrap();
    table
}

/// Lays the table out anew, and returns ns per tuple; `None` if it was laid out like this.
fn lay_out(table: &Table, layout: &Layout) -> Option<f64> {
    table.set_layout(layout).unwrap();
    let started = Instant::now();
    let report = table.reshape(&CancelToken::new()).unwrap();
    assert_eq!(report.segments_left, 0);
    (report.rows > 0).then(|| started.elapsed().as_nanos() as f64 / report.rows as f64)
}

/// ns per tuple of the table.
fn measure(table: &Arc<Table>, attributes: usize, rows: usize, point: Point) -> f64 {
    let predicate = point.selectivity.map(|selectivity| {
        let others = (selectivity - 1.0 / VECTOR_ROWS as f64).max(0.0);
        let bound = f64::from(i32::MIN) + others * f64::from(u32::MAX);
        Predicate::Compare {
            attribute: attributes - 1,
            op: CompareOp::Le,
            value: Literal::Int(bound as i128),
        }
    });
    let spec = ScanSpec {
        projection: (0..point.projected).collect(),
        predicates: Vec::from_iter(predicate),
        ..ScanSpec::default()
    };
    let started = Instant::now();
    let view = table.view(table.store().txns().snapshot());
    let scan = view.scan(spec).unwrap();
    let mut reader = scan.reader();
    while let Some(batch) = reader.next_batch().unwrap() {
        for column in batch.columns() {
            let values = column.as_primitive::<Int32Type>().values().iter();
            black_box(values.fold(0_i32, |sum, value| sum.wrapping_add(*value)));
        }
    }
    started.elapsed().as_nanos() as f64 / rows as f64
}

fn workload(attributes: usize, point: Point) -> Workload {
    let filter = point.selectivity.map(|selectivity| Filter {
        attribute: attributes - 1,
        selectivity,
    });
    Workload {
        footprints: vec![Footprint {
            access: Access::Scan(Scan {
                share: 1.0,
                predicates: Vec::from_iter(filter),
                projection: (0..point.projected).collect(),
            }),
            weight: 1_000.0,
        }],
        window_s: 1.0,
    }
}

/// A layout short enough for a column of the table printed.
fn short(layout: &Layout) -> String {
    match layout {
        Layout::Groups(groups) => {
            let widths: Vec<String> = groups
                .iter()
                .filter(|group| group.len() > 1)
                .map(|group| group.len().to_string())
                .collect();
            format!("group of {}", widths.join("+"))
        }
        other => other.to_string(),
    }
}

/// A curve: each layout at each point, and the advised one at its points.
fn curve(title: &str, attributes: usize, rows: usize, points: &[Point]) {
    let shape = TableShape::hot(names(attributes), vec![4; attributes], rows as u64);
    let machine = Machine::default();
    let policy = Policy {
        gain_share_min: 0.0,
        horizon_s: f64::INFINITY,
        executions_min: 0.0,
    };
    let mixed = Layout::Groups(vec![names(attributes - 1)]);
    let mut layouts = vec![Layout::Row, Layout::Column, mixed];
    let advised: Vec<usize> = points
        .iter()
        .map(|&point| {
            let workload = workload(attributes, point);
            let advice = decide(&Layout::Row, &workload, &shape, &machine, &policy).unwrap();
            let best = advice.best.layout;
            let known = layouts.iter().position(|layout| *layout == best);
            known.unwrap_or_else(|| {
                layouts.push(best);
                layouts.len() - 1
            })
        })
        .collect();
    println!("{title}: {attributes} integers, {rows} rows; ns per tuple, measured (estimated)");
    let batches = batches(attributes, rows);
    let lay = |layout: &Layout| {
        let table = loaded(attributes, &batches);
        if let Some(ns) = lay_out(&table, layout) {
            println!("  laid out as {}: {ns:.0} ns per tuple", short(layout));
        }
        table
    };
    let tables: Vec<Arc<Table>> = layouts.iter().map(lay).collect();
    drop(batches);
    let mut measured = vec![vec![f64::INFINITY; points.len()]; layouts.len()];
    for _ in 0..ROUNDS {
        for (at, &point) in points.iter().enumerate() {
            for (nth, table) in tables.iter().enumerate() {
                if nth < 3 || advised[at] == nth {
                    let ns = measure(table, attributes, rows, point);
                    measured[nth][at] = measured[nth][at].min(ns);
                }
            }
        }
    }
    println!("  scan | row | column | mixed | advised | best is");
    for (at, &point) in points.iter().enumerate() {
        let cell = |nth: usize| {
            let workload = workload(attributes, point);
            let estimated = estimate_ns(&layouts[nth], &workload, &shape, &machine).unwrap();
            format!("{:.2} ({:.2})", measured[nth][at], estimated / rows as f64)
        };
        let best = (0..layouts.len())
            .min_by(|&a, &b| measured[a][at].total_cmp(&measured[b][at]))
            .unwrap_or_default();
        println!(
            "  {point} | {} | {} | {} | {}: {} | {}",
            cell(0),
            cell(1),
            cell(2),
            short(&layouts[advised[at]]),
            cell(advised[at]),
            short(&layouts[best]),
        );
    }
    crossovers(points, &measured, &advised);
}

/// Where the column layout and one with wide groups change places, and how far the advised
/// layout is from the better of them.
fn crossovers(points: &[Point], measured: &[Vec<f64>], advised: &[usize]) {
    let columns_win = |at: usize| measured[1][at] <= measured[0][at].min(measured[2][at]);
    for at in 1..points.len() {
        if columns_win(at) != columns_win(at - 1) {
            println!("  crossover between {} and {}", points[at - 1], points[at]);
        }
    }
    let excess = (0..points.len()).map(|at| {
        let best = measured[..3].iter().map(|layout| layout[at]);
        measured[advised[at]][at] / best.fold(f64::INFINITY, f64::min)
    });
    let worst = excess.fold(0.0, f64::max);
    println!("  the advised layout takes at most {worst:.2} of the best of the three");
}

fn main() {
    let divisor = std::env::args().find_map(|argument| argument.parse().ok());
    let rows = |attributes: usize| TABLE_BYTES / 4 / attributes / divisor.unwrap_or(1);
    let projectivities = [1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100];
    for (title, selectivity) in [
        ("projectivity, all rows", None),
        ("projectivity, 1% of rows", Some(0.01)),
    ] {
        let points = projectivities.map(|projected| Point {
            selectivity,
            projected,
        });
        curve(title, 100, rows(100), &points);
    }
    let selectivities = [
        0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0,
    ];
    let points = selectivities.map(|selectivity| Point {
        selectivity: Some(selectivity),
        projected: 15,
    });
    curve("selectivity", 16, rows(16), &points);
}
