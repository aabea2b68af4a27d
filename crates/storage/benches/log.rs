//! What durability costs. Run with `cargo bench -p aerostat-storage --bench log`, with
//! `TMPDIR` on the disk in question; `-- bulk`, `small`, `commits` or `copies` runs a part. Prints
//! one line per measurement, with the processor time of all threads, which means
//! something on a machine that others use too.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark"
)]

use std::{
    os::unix::fs::FileExt,
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
    CopyOf, Durability, Literal, OpenOptions, Progress, Recovered, Table, TenantStore,
    backup::{FolderSink, FolderSource, Restore, restore},
};
use aerostat_types::{Column, CommitTs, Layout, SqlType, TableId, TableSchema, TenantId};
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

/// What the disk takes of such commits: as many bytes, written and synced one after the other
/// in a file that has room for them.
fn plain_syncs() {
    const COMMIT_BYTES: usize = 160;
    let folder = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(folder.path().join("plain")).unwrap();
    file.write_all_at(&[0; 8 << 20], 0).unwrap();
    file.sync_all().unwrap();
    let (mut syncs, started) = (0, Instant::now());
    while started.elapsed() < Duration::from_secs(2) {
        let at = syncs * COMMIT_BYTES as u64 % (8 << 20);
        file.write_all_at(&[1; COMMIT_BYTES], at).unwrap();
        file.sync_data().unwrap();
        syncs += 1;
    }
    let rate = syncs as f64 / started.elapsed().as_secs_f64();
    println!("write and sync alone:                      {rate:>8.0} /s");
}

/// One transaction of a few million rows.
fn load(table: &Arc<Table>, batches: &[RecordBatch]) {
    let txn = table.store().txns().begin();
    for batch in batches {
        table.insert(&txn, batch).unwrap();
    }
    txn.commit().unwrap();
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
    // What a load wrote, row for row, whether there is a log or not.
    let bytes = i64::from(BATCHES * BATCH_ROWS) as u64 * 75;
    measured("bulk insert, no log", || (bytes, load(&table, &batches)));
    drop((memory, table));

    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let table = store
        .create_table(TableId(1), schema(), &Layout::Column)
        .unwrap();
    measured("bulk insert, log, fsync", || {
        load(&table, &batches);
        (store.log_bytes_written(), ())
    });
    drop((store, table, batches));

    let (store, recovered) = reopened("recovery, log", folder.path());
    let checkpoint = |what| {
        measured(what, || {
            let done = store.checkpoint().unwrap().unwrap();
            (done.bytes_written, done.images_kept)
        })
    };
    checkpoint("checkpoint, all");
    let kept = checkpoint("checkpoint, nothing new");
    println!("{kept} images kept");
    drop((store, recovered));
    let (store, recovered) = reopened("recovery, rows", folder.path());
    back_up(&store, folder.path(), "of rows");
    let table = &recovered.tables[&TableId(1)];
    measured("freezing", || (bytes, table.freeze().unwrap()));
    measured("checkpoint, frozen", || {
        (store.checkpoint().unwrap().unwrap().bytes_written, ())
    });
    back_up(&store, folder.path(), "frozen");
    drop((store, recovered));
    drop(reopened("recovery, frozen", folder.path()));
}

/// Runs something and prints how long it took for the bytes it says.
fn measured<T>(what: &str, run: impl FnOnce() -> (u64, T)) -> T {
    let (started, cpu) = (Instant::now(), cpu_seconds());
    let (bytes, result) = run();
    println!(
        "{:<26} {:>6.0} MB/s, {} MB in {:.2} s, {:.2} s of processors",
        format!("{what}:"),
        megabytes(bytes, started.elapsed()),
        bytes / 1_000_000,
        started.elapsed().as_secs_f64(),
        cpu_seconds() - cpu,
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

fn reopened(what: &str, folder: &Path) -> (Arc<TenantStore>, Recovered) {
    measured(what, || {
        let (store, recovered) = open(folder);
        (recovered.bytes, (store, recovered))
    })
}

/// Makes a backup, restores it, and removes both.
fn back_up(store: &TenantStore, folder: &Path, what: &str) {
    let (backup, restored) = (folder.join("backup"), folder.join("restored"));
    measured(&format!("backup, {what}"), || {
        let sink = FolderSink::for_backup(&backup, None).unwrap();
        (store.backup("bench", &sink).unwrap().bytes, ())
    });
    let source = FolderSource::new(&backup);
    let what_to_restore = Restore {
        backup: &source,
        logs: &[],
        until: None,
    };
    measured(&format!("restore, {what}"), || {
        let done = restore(&what_to_restore, TenantId(2), &restored).unwrap();
        (done.bytes, ())
    });
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
    let (_store, recovered) = reopened("recovery, small commits", folder.path());
    let rate = f64::from(COMMITS) / recovered.duration.as_secs_f64();
    println!("{rate:.0} small commits/s");
}

/// A copy of all that a leader does, after it has done it: a load, small commits, updates by key.
fn copies() {
    const LOADED: i32 = 500 * 8192;
    const COMMITS: i32 = 100_000;
    let (folder, copied) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (store, _) = open(folder.path());
    store.set_durability(Durability::None);
    let table = store
        .create_table(TableId(1), schema(), &Layout::Column)
        .unwrap();
    let of = CopyOf {
        timeline: store.timeline().unwrap(),
        through: None,
    };
    let budget = Governor::new("8GB".parse().unwrap()).budget("bench", None);
    let mut options = OpenOptions::default();
    options.durability = Durability::None;
    let opened = TenantStore::open_copy(TenantId(1), budget, copied.path(), &options, of);
    let (copy, _, mut applier) = opened.unwrap();
    let mut reader = store.log_reader(CommitTs(0), Arc::new(|| {})).unwrap();
    let mut follow = |what: &str| {
        let mut records = Vec::new();
        let mut bytes = 0;
        while let Some(part) = reader.next(256 << 10).unwrap() {
            bytes += part.len() as u64;
            records.push(part);
        }
        measured(&format!("{what}, received"), || {
            records
                .iter()
                .for_each(|part| assert!(copy.receive(part).is_ok()));
            (bytes, ())
        });
        let (began, cpu) = (Instant::now(), cpu_seconds());
        measured(&format!("{what}, applied"), || {
            while applier.apply(store.txns().last_commit()).unwrap() != Progress::CaughtUp {}
            (bytes, ())
        });
        (began.elapsed(), cpu_seconds() - cpu)
    };
    let batches: Vec<_> = (0..LOADED / 8192)
        .map(|at| rows(&table, at * 8192, 8192))
        .collect();
    let before = store.log_bytes_written();
    let cpu = cpu_seconds();
    measured("load, leader", || {
        load(&table, &batches);
        (store.log_bytes_written() - before, ())
    });
    let led = cpu_seconds() - cpu;
    drop(batches);
    let (_, followed) = follow("load");
    println!(
        "applying takes {:.2} of the leader's processor time",
        followed / led
    );
    let batches: Vec<_> = (LOADED..LOADED + COMMITS)
        .map(|key| rows(&table, key, 1))
        .collect();
    let started = Instant::now();
    for batch in &batches {
        let txn = store.txns().begin();
        table.insert(&txn, batch).unwrap();
        txn.commit().unwrap();
    }
    let led = started.elapsed();
    let (followed, _) = follow("small commits");
    println!(
        "inserts of one row: {:.0} /s, applied {:.0} /s",
        f64::from(COMMITS) / led.as_secs_f64(),
        f64::from(COMMITS) / followed.as_secs_f64()
    );
    let started = Instant::now();
    for (at, batch) in batches.iter().enumerate() {
        let key = table
            .key(&[Literal::Int((LOADED + at as i32).into())])
            .unwrap();
        let txn = store.txns().begin();
        let view = table.view(txn.snapshot().clone());
        let columns = [0];
        let reader = view.rows(&columns, true);
        let id = reader.row(key.borrow()).unwrap().unwrap().id();
        view.update(&txn, &[id], batch).unwrap();
        txn.commit().unwrap();
    }
    let led = started.elapsed();
    let (followed, _) = follow("updates");
    println!(
        "updates of one row: {:.0} /s, applied {:.0} /s",
        f64::from(COMMITS) / led.as_secs_f64(),
        f64::from(COMMITS) / followed.as_secs_f64()
    );
}

fn main() {
    let wanted: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let wants = |part: &str| wanted.is_empty() || wanted.iter().any(|arg| arg == part);
    if wants("bulk") {
        bulk();
    }
    if wants("small") {
        small_commits();
    }
    if wants("copies") {
        copies();
    }
    if wants("commits") {
        plain_syncs();
        for durability in [Durability::Fsync, Durability::None] {
            for threads in [1, 4, 64] {
                commits(threads, durability);
            }
        }
    }
}
