//! What freezing a table costs. Run with `cargo bench -p aerostat-storage --bench freeze`.
//! Rows are distributed like the Star Schema Benchmark's lineorder. Prints rows per second
//! of processor time, which means something on a machine that others use too.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark"
)]

#[path = "../../segment/benches/lineorder/mod.rs"]
mod lineorder;

use std::sync::Arc;

use aerostat_memory::Governor;
use aerostat_storage::{Table, TenantStore};
use aerostat_types::{Column, Layout, TableId, TableSchema, TenantId};
use arrow_array::{ArrayRef, RecordBatch};
use lineorder::{NAMES, Random, lineorder, ty};

/// Five arenas.
const ROWS: usize = 1_500_000;
const BATCH_ROWS: usize = 8192;

fn schema() -> Arc<TableSchema> {
    let column = |at: usize| Column {
        name: NAMES[at].to_owned(),
        ty: ty(at),
        nullable: false,
        default: None,
    };
    Arc::new(TableSchema {
        name: "lineorder".to_owned(),
        columns: (0..NAMES.len()).map(column).collect(),
        primary_key: vec![0, 1],
        primary_key_name: "lineorder_pkey".to_owned(),
        checks: Vec::new(),
    })
}

/// The rows in batches, and the bytes they have as CSV.
fn batches(table: &Table) -> (Vec<RecordBatch>, usize) {
    let (columns, csv_bytes) = lineorder(ROWS);
    let batch = |from: usize| {
        let part = |column: &ArrayRef| column.slice(from, BATCH_ROWS.min(ROWS - from));
        let columns = columns.iter().map(part).collect();
        RecordBatch::try_new(Arc::clone(table.arrow_schema()), columns).unwrap()
    };
    let batches = (0..ROWS).step_by(BATCH_ROWS).map(batch).collect();
    (batches, csv_bytes)
}

/// Runs something and prints for how many rows it would have been enough of a processor.
fn measured<T>(what: &str, rows: usize, run: impl FnOnce() -> T) -> T {
    let cpu = cpu_seconds();
    let result = run();
    let took = cpu_seconds() - cpu;
    println!(
        "  {what:<28} {:>6.2} M rows/s, {:>6.0} ns/row",
        rows as f64 / took / 1e6,
        took * 1e9 / rows as f64,
    );
    result
}

/// Processor time of this process so far, as the system counts it in hundredths.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    let ticks = fields.split_whitespace().skip(11).take(2);
    ticks
        .map(|ticks| ticks.parse::<f64>().unwrap() / 100.0)
        .sum()
}

fn bytes_used(table: &Table) -> u64 {
    table
        .segments()
        .iter()
        .map(|segment| segment.bytes_used)
        .sum()
}

fn freeze(name: &str, layout: &Layout) {
    let budget = Governor::new("8GB".parse().unwrap()).budget("bench", None);
    let store = TenantStore::new(TenantId(1), budget);
    let table = store.create_table(TableId(1), schema(), layout).unwrap();
    let (mut batches, csv_bytes) = batches(&table);
    println!("{name} layout, {ROWS} rows");
    let insert = |batches: &[RecordBatch]| {
        let txn = store.txns().begin();
        for batch in batches {
            table.insert(&txn, batch).unwrap();
        }
        txn.commit().unwrap();
    };
    // What comes later is merged with what is frozen by then.
    let rest = batches.split_off(batches.len() / 5 * 4);
    let rows_of = |batches: &[RecordBatch]| batches.iter().map(RecordBatch::num_rows).sum();
    measured("insert, in key order", rows_of(&batches), || {
        insert(&batches)
    });
    let hot = bytes_used(&table) as f64 / rows_of(&batches) as f64;
    measured("freeze", rows_of(&batches), || table.freeze().unwrap());
    let frozen = bytes_used(&table) as f64 / rows_of(&batches) as f64;
    println!(
        "  hot {hot:.1} B/row, frozen {frozen:.1} B/row ({:.1}% of CSV)",
        frozen * 100.0 * ROWS as f64 / csv_bytes as f64
    );
    // Batches in any order: rows of a segment are not in key order.
    let mut shuffled = rest;
    let mut random = Random(5);
    for at in (1..shuffled.len()).rev() {
        shuffled.swap(at, random.below(at as u64 + 1) as usize);
    }
    measured("insert, batches shuffled", rows_of(&shuffled), || {
        insert(&shuffled)
    });
    measured("freeze", rows_of(&shuffled), || table.freeze().unwrap());
}

fn main() {
    for (name, layout) in [("column", Layout::Column), ("row", Layout::Row)] {
        freeze(name, &layout);
    }
}
