//! What secondary indexes of a table cost and give. Run with
//! `cargo bench -p aerostat-storage --bench indexes`; prints one line per measurement.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark"
)]

use std::{hint::black_box, sync::Arc, time::Instant};

use aerostat_memory::Governor;
use aerostat_storage::{CompareOp, Literal, Predicate, ScanSpec, Table, TenantStore};
use aerostat_types::{
    Column, IndexKind, Layout, SqlType, TableId, TableIndex, TableSchema, TenantId,
};
use arrow_array::{ArrayRef, Int64Array, RecordBatch};

const ROWS: i64 = 2_000_000;
const BATCH: i64 = 8192;

/// An odd number, so that multiples of it scatter over all of 64 bits.
const SCATTER: i64 = 0x9E37_79B9_7F4A_7C15_u64 as i64;

fn schema() -> Arc<TableSchema> {
    let column = |name: &str| Column {
        name: name.to_owned(),
        ty: SqlType::BigInt,
        nullable: false,
        default: None,
    };
    Arc::new(TableSchema {
        name: "t".to_owned(),
        columns: ["k", "n", "a", "b"].map(column).to_vec(),
        primary_key: vec![0],
        primary_key_name: "t_pkey".to_owned(),
        checks: Vec::new(),
    })
}

/// Key, a unique number that scatters, two others.
fn batch(table: &Table, first: i64, rows: i64) -> RecordBatch {
    let of = |number: &dyn Fn(i64) -> i64| {
        Arc::new(Int64Array::from_iter_values(
            (first..first + rows).map(number),
        )) as ArrayRef
    };
    let columns = vec![
        of(&|row| row),
        of(&|row| row.wrapping_mul(SCATTER)),
        of(&|row| row % 1_000),
        of(&|row| row / 7),
    ];
    RecordBatch::try_new(Arc::clone(table.arrow_schema()), columns).unwrap()
}

fn table(indexes: Vec<TableIndex>) -> Arc<Table> {
    let budget = Governor::new("4GB".parse().unwrap()).budget("bench", None);
    TenantStore::new(TenantId(1), budget)
        .create_table_with_indexes(TableId(1), schema(), &Layout::Column, indexes)
        .unwrap()
}

fn number_index(kind: IndexKind, unique: bool) -> TableIndex {
    TableIndex {
        name: "t_n".to_owned(),
        kind,
        columns: vec![1],
        unique,
        nulls_not_distinct: false,
    }
}

fn load(table: &Table) {
    let txn = table.store().txns().begin();
    for first in (0..ROWS).step_by(BATCH as usize) {
        let rows = BATCH.min(ROWS - first);
        table.insert(&txn, &batch(table, first, rows)).unwrap();
    }
    txn.commit().unwrap();
}

/// Microseconds for each of `count` rows found by their numbers.
fn find_us(table: &Arc<Table>, count: i64) -> f64 {
    let view = table.view(table.store().txns().snapshot());
    let start = Instant::now();
    for nth in 0..count {
        let number = (nth * 7_919 % ROWS).wrapping_mul(SCATTER);
        let scan = view
            .scan(ScanSpec {
                projection: vec![0, 1, 2, 3],
                predicates: vec![Predicate::Compare {
                    attribute: 1,
                    op: CompareOp::Eq,
                    value: Literal::Int(number.into()),
                }],
                ..ScanSpec::default()
            })
            .unwrap();
        let found = scan.reader().next_batch().unwrap().unwrap();
        assert_eq!(black_box(found).num_rows(), 1);
    }
    start.elapsed().as_secs_f64() * 1e6 / count as f64
}

fn main() {
    println!("{ROWS} rows of four bigints, key and an index on a scattered number\n");
    for (name, indexes) in [
        ("none", vec![]),
        ("hash", vec![number_index(IndexKind::Hash, false)]),
        ("hash, unique", vec![number_index(IndexKind::Hash, true)]),
        ("ordered", vec![number_index(IndexKind::Ordered, false)]),
        (
            "ordered, unique",
            vec![number_index(IndexKind::Ordered, true)],
        ),
    ] {
        let table = table(indexes);
        let start = Instant::now();
        load(&table);
        let rows_s = ROWS as f64 / start.elapsed().as_secs_f64();
        let lookups = if name == "none" { 50 } else { 20_000 };
        let (hot, segments) = (find_us(&table, lookups), table.statistics().segments);
        let start = Instant::now();
        table.freeze().unwrap();
        let freeze_s = start.elapsed().as_secs_f64();
        let frozen = find_us(&table, lookups);
        println!(
            "{name:<16} load {:>5.2} M rows/s; find {hot:>8.1} us in {segments} hot, \
             {frozen:>8.1} us in {} frozen; freeze {freeze_s:.1} s",
            rows_s / 1e6,
            table.statistics().segments_frozen,
        );
    }
    for kind in [IndexKind::Hash, IndexKind::Ordered] {
        for is_frozen in [false, true] {
            let table = table(vec![]);
            load(&table);
            if is_frozen {
                table.freeze().unwrap();
            }
            let start = Instant::now();
            let txn = table.store().txns().begin();
            table.create_index(&txn, number_index(kind, true)).unwrap();
            println!(
                "build unique {kind:?} of {} segments: {:.2} s",
                if is_frozen { "frozen" } else { "hot" },
                start.elapsed().as_secs_f64(),
            );
        }
    }
}
