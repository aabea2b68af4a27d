//! What durability costs. Run with `cargo bench -p aerostat-storage --bench log`, with
//! `TMPDIR` on the disk in question; prints one line per measurement.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark")]

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use aerostat_memory::Governor;
use aerostat_storage::{
    Durability, OpenOptions, Recovered, Table, TenantStore,
    backup::{FolderSink, FolderSource, Restore, restore},
};
use aerostat_types::{Column, Layout, SqlType, TableId, TableSchema, TenantId};
use arrow_array::{ArrayRef, Int32Array, RecordBatch, StringViewArray};

/// Like SSB's lineorder: 14 integers, 3 texts; about 75 bytes a row.
fn schema() -> Arc<TableSchema> {
    let column = |at: usize, ty| Column {
        name: format!("c{at}"),
        ty,
        nullable: false,
        default: None,
    };
    let types = [SqlType::Integer; 14].into_iter().chain([
        SqlType::Char(15),
        SqlType::Char(1),
        SqlType::Char(10),
    ]);
    Arc::new(TableSchema {
        name: "lineorder".to_owned(),
        columns: types.enumerate().map(|(at, ty)| column(at, ty)).collect(),
        primary_key: vec![0],
        primary_key_name: "lineorder_pkey".to_owned(),
        checks: Vec::new(),
    })
}

fn rows(table: &Table, first: i32, count: i32) -> RecordBatch {
    let mut columns: Vec<ArrayRef> = (0..14)
        .map(|at| {
            let values = (first..first + count).map(|n| match at {
                0 => n,
                at => n.wrapping_mul(0x9E37_79B1_u32 as i32).unsigned_abs() as i32 % (100 << at),
            });
            Arc::new(Int32Array::from_iter_values(values)) as ArrayRef
        })
        .collect();
    for values in [
        &["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"][..],
        &["0"],
        &["REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"],
    ] {
        let texts = (0..count as usize).map(|n| values[n * 7 % values.len()]);
        columns.push(Arc::new(StringViewArray::from_iter_values(texts)));
    }
    RecordBatch::try_new(Arc::clone(table.arrow_schema()), columns).unwrap()
}

fn open(folder: &Path) -> (Arc<TenantStore>, Recovered) {
    let budget = Governor::new("8GB".parse().unwrap()).budget("bench", None);
    TenantStore::open(TenantId(1), budget, folder, &OpenOptions::default()).unwrap()
}

fn megabytes(bytes: u64, took: Duration) -> f64 {
    bytes as f64 / took.as_secs_f64() / 1e6
}

fn commits(threads: i32, durability: Durability) {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let table = store
        .create_table(TableId(1), schema(), &Layout::Column)
        .unwrap();
    store.set_durability(durability);
    let (next, started) = (AtomicI32::new(0), Instant::now());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while started.elapsed() < Duration::from_secs(2) {
                    let txn = store.txns().begin();
                    let row = rows(&table, next.fetch_add(1, Ordering::Relaxed), 1);
                    table.insert(&txn, &row).unwrap();
                    txn.commit().unwrap();
                }
            });
        }
    });
    let rate = f64::from(next.into_inner()) / started.elapsed().as_secs_f64();
    println!("commits, one row each, {durability:?}, {threads:>2} threads: {rate:>8.0} /s");
}

/// One transaction of a few million rows.
fn load(table: &Arc<Table>, batches: &[RecordBatch]) -> Duration {
    let started = Instant::now();
    let txn = table.store().txns().begin();
    for batch in batches {
        table.insert(&txn, batch).unwrap();
    }
    txn.commit().unwrap();
    started.elapsed()
}

fn bulk() {
    // About 1 GB of log.
    const BATCHES: i32 = 1_700;
    const BATCH_ROWS: i32 = 8192;
    let budget = Governor::new("8GB".parse().unwrap()).budget("bench", None);
    let memory = TenantStore::new(TenantId(1), budget);
    let table = memory
        .create_table(TableId(1), schema(), &Layout::Column)
        .unwrap();
    let batches: Vec<_> = (0..BATCHES)
        .map(|at| rows(&table, at * BATCH_ROWS, BATCH_ROWS))
        .collect();
    let without = load(&table, &batches);
    drop((memory, table));

    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let table = store
        .create_table(TableId(1), schema(), &Layout::Column)
        .unwrap();
    let with = load(&table, &batches);
    let bytes = store.log_bytes_written();
    println!(
        "bulk insert, no log:       {:>6.0} MB/s",
        megabytes(bytes, without)
    );
    println!(
        "bulk insert, log, fsync:   {:>6.0} MB/s of {} MB",
        megabytes(bytes, with),
        bytes / 1_000_000
    );
    drop((store, table));

    let (store, recovered) = open(folder.path());
    shown("recovery, log", recovered.bytes, recovered.duration);
    let done = store.checkpoint().unwrap().unwrap();
    println!(
        "checkpoint, all:           {:>6.0} MB/s of {} MB",
        megabytes(done.bytes_written, done.duration),
        done.bytes_written / 1_000_000
    );
    let done = store.checkpoint().unwrap().unwrap();
    println!(
        "checkpoint, nothing new:   {:>6.1} ms, {} images kept",
        done.duration.as_secs_f64() * 1e3,
        done.images_kept
    );
    drop((store, recovered));
    let (store, recovered) = open(folder.path());
    shown("recovery, rows", recovered.bytes, recovered.duration);
    back_up(&store, folder.path(), "of rows");

    let table = &recovered.tables[&TableId(1)];
    let started = Instant::now();
    table.freeze().unwrap();
    shown("freezing", bytes, started.elapsed());
    let done = store.checkpoint().unwrap().unwrap();
    shown("checkpoint, frozen", done.bytes_written, done.duration);
    back_up(&store, folder.path(), "frozen");
    drop((store, recovered));
    let (_store, recovered) = open(folder.path());
    shown("recovery, frozen", recovered.bytes, recovered.duration);
}

fn shown(what: &str, bytes: u64, took: Duration) {
    println!(
        "{:<26} {:>6.0} MB/s, {} MB in {:.2} s",
        format!("{what}:"),
        megabytes(bytes, took),
        bytes / 1_000_000,
        took.as_secs_f64()
    );
}

/// Makes a backup, restores it, and removes both.
fn back_up(store: &TenantStore, folder: &Path, what: &str) {
    let (backup, restored) = (folder.join("backup"), folder.join("restored"));
    let started = Instant::now();
    let sink = FolderSink::for_backup(&backup, None).unwrap();
    let info = store.backup("bench", &sink).unwrap();
    shown(&format!("backup, {what}"), info.bytes, started.elapsed());
    let source = FolderSource::new(&backup);
    let what_to_restore = Restore {
        backup: &source,
        logs: &[],
        until: None,
    };
    let started = Instant::now();
    let done = restore(&what_to_restore, TenantId(2), &restored).unwrap();
    shown(&format!("restore, {what}"), done.bytes, started.elapsed());
    std::fs::remove_dir_all(backup).unwrap();
    std::fs::remove_dir_all(restored).unwrap();
}

/// Recovery of a log of small commits.
fn small_commits() {
    const COMMITS: i32 = 300_000;
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let table = store
        .create_table(TableId(1), schema(), &Layout::Row)
        .unwrap();
    store.set_durability(Durability::None);
    for key in 0..COMMITS {
        let txn = store.txns().begin();
        table.insert(&txn, &rows(&table, key, 1)).unwrap();
        txn.commit().unwrap();
    }
    drop((store, table));
    let (_store, recovered) = open(folder.path());
    let rate = f64::from(COMMITS) / recovered.duration.as_secs_f64();
    println!(
        "recovery, small commits:   {:>6.0} MB/s, {rate:.0} commits/s",
        megabytes(recovered.bytes, recovered.duration)
    );
}

fn main() {
    bulk();
    small_commits();
    for durability in [Durability::Fsync, Durability::None] {
        for threads in [1, 8, 64] {
            commits(threads, durability);
        }
    }
}
