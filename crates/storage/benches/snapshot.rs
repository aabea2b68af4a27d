//! Writers beside a reader that holds one snapshot all the time. Run with
//! `cargo bench -p aerostat-storage --bench snapshot`; `-- 20` for the seconds of a round.
//!
//! ```text
//!   round     fresh table; writers update single rows by key, each a transaction; a freezer
//!             freezes and vacuums without a rest for as long as they do
//!   without   nobody else
//!   holding   somebody has a snapshot from before the first update, and reads nothing
//!   reading   the same, and sums the table up on it once a second: the sum must not change
//! ```
//!
//! Rounds take turns, so that what else the machine does meets all alike.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a benchmark"
)]

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use aerostat_memory::Governor;
use aerostat_storage::{
    Durability, Literal, OpenOptions, ScanSpec, StorageError, Table, TenantStore,
};
use aerostat_txn::Snapshot;
use aerostat_types::{Column, Layout, SqlType, TableId, TableSchema, TenantId};
use arrow_array::{ArrayRef, Int64Array, RecordBatch, cast::AsArray, types::Int64Type};

const ROWS: i64 = 500_000;
const BATCH: i64 = 8_192;
const ROUNDS: usize = 3;
const WRITERS: u64 = 1;

/// Keys of the updates scatter by this odd number.
const SCATTER: u64 = 0x9E37_79B9_7F4A_7C15;

/// How long the reader rests between two sums.
const READER_REST: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    Without,
    Holding,
    Reading,
}

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

fn row_batch(table: &Table, keys: std::ops::Range<i64>, n: i64) -> RecordBatch {
    let of = |number: &dyn Fn(i64) -> i64| {
        Arc::new(Int64Array::from_iter_values(keys.clone().map(number))) as ArrayRef
    };
    let columns = vec![
        of(&|key| key),
        of(&|_| n),
        of(&|key| key % 1_000),
        of(&|key| key / 7),
    ];
    RecordBatch::try_new(Arc::clone(table.arrow_schema()), columns).unwrap()
}

/// A table whose rows are frozen.
fn loaded(store: &Arc<TenantStore>) -> Arc<Table> {
    let table = store
        .create_table(TableId(1), schema(), &Layout::Column)
        .unwrap();
    let txn = store.txns().begin();
    for first in (0..ROWS).step_by(BATCH as usize) {
        let keys = first..(first + BATCH).min(ROWS);
        table.insert(&txn, &row_batch(&table, keys, 0)).unwrap();
    }
    txn.commit().unwrap();
    table.freeze().unwrap();
    table
}

/// Adds one to a row, as a statement does: again if somebody else was first.
fn update(table: &Arc<Table>, key: i64) {
    loop {
        let txn = table.store().txns().begin();
        let view = table.view(txn.snapshot().clone());
        let wanted = table.key(&[Literal::Int(key.into())]).unwrap();
        let id = view.lookup(wanted.borrow()).unwrap().unwrap();
        let row = view.fetch(&[id], &[1]).unwrap();
        let n = row.column(0).as_primitive::<Int64Type>().value(0);
        match view.update(&txn, &[id], &row_batch(table, key..key + 1, n + 1)) {
            Ok(_) => {
                txn.commit().unwrap();
                return;
            }
            Err(StorageError::Conflict | StorageError::Deadlock) => txn.rollback(),
            Err(error) => panic!("{error}"),
        }
    }
}

/// The rows a snapshot sees, and a sum in which every key and number counts.
fn checksum(table: &Arc<Table>, snapshot: &Snapshot) -> (usize, u64) {
    let scan = table
        .view(snapshot.clone())
        .scan(ScanSpec {
            projection: vec![0, 1],
            ..ScanSpec::default()
        })
        .unwrap();
    let (mut rows, mut sum) = (0, 0_u64);
    let mut reader = scan.reader();
    while let Some(batch) = reader.next_batch().unwrap() {
        let column = |at: usize| batch.column(at).as_primitive::<Int64Type>().values();
        rows += batch.num_rows();
        for (&key, &n) in column(0).iter().zip(column(1)) {
            let mixed = (key as u64).wrapping_mul(SCATTER) ^ (n as u64).wrapping_add(1);
            sum = sum.wrapping_add(mixed.wrapping_mul(SCATTER) >> 7);
        }
    }
    (rows, sum)
}

/// What a round measured.
#[derive(Default)]
struct Round {
    /// Nanoseconds of each update.
    updates: Vec<u64>,
    sums: u64,
    frozen_rows: u64,
    /// How long the freezer held the latches of what it replaced, each time.
    switches: Vec<Duration>,
}

fn round(reader: Reader, seconds: u64) -> Round {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap());
    let budget = Governor::new("8GB".parse().unwrap()).budget("bench", None);
    let options = OpenOptions::default();
    let (store, _) = TenantStore::open(TenantId(1), budget, folder.path(), &options).unwrap();
    store.set_durability(Durability::None);
    let table = loaded(&store);
    let (stop, updates) = (AtomicBool::new(false), AtomicU64::new(0));
    let ended = || stop.load(Ordering::Relaxed);
    let held = (reader != Reader::Without).then(|| store.txns().snapshot());
    let expected = checksum(&table, &store.txns().snapshot());
    let mut result = Round::default();
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|_| {
                scope.spawn(|| {
                    let mut taken = Vec::with_capacity(4 << 20);
                    while !ended() {
                        let nth = updates.fetch_add(1, Ordering::Relaxed);
                        let key = (nth.wrapping_mul(SCATTER) >> 20) as i64 % ROWS;
                        let started = Instant::now();
                        update(&table, key);
                        taken.push(started.elapsed().as_nanos() as u64);
                    }
                    taken
                })
            })
            .collect();
        let freezer = scope.spawn(|| {
            let (mut rows, mut switches) = (0, Vec::new());
            while !ended() {
                let report = table.freeze().unwrap();
                rows += report.rows;
                switches.extend((report.segments_made > 0).then_some(report.switch_max));
                table.vacuum().unwrap();
            }
            (rows, switches)
        });
        let reading = scope.spawn(|| {
            let mut sums = 0;
            while let Some(held) = &held
                && !ended()
            {
                if reader == Reader::Reading {
                    assert_eq!(checksum(&table, held), expected, "the snapshot has changed");
                    sums += 1;
                }
                thread::sleep(READER_REST);
            }
            sums
        });
        thread::sleep(Duration::from_secs(seconds));
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            result.updates.extend(writer.join().unwrap());
        }
        (result.frozen_rows, result.switches) = freezer.join().unwrap();
        result.sums = reading.join().unwrap();
    });
    // In the end too, after everything.
    if let Some(held) = &held {
        assert_eq!(checksum(&table, held), expected, "the snapshot has changed");
    }
    let now = checksum(&table, &store.txns().snapshot());
    assert!(
        now.0 == expected.0 && now.1 != expected.1,
        "rows were updated, none lost"
    );
    result
}

fn main() {
    let seconds = std::env::args()
        .skip(1)
        .find_map(|argument| argument.parse().ok());
    let seconds = seconds.unwrap_or(10);
    println!("{ROWS} frozen rows of four bigints, {WRITERS} writer, rounds of {seconds} s\n");
    let readers = [Reader::Without, Reader::Holding, Reader::Reading];
    let mut all: [Round; 3] = Default::default();
    for _ in 0..ROUNDS {
        for (reader, sum) in readers.into_iter().zip(&mut all) {
            let one = round(reader, seconds);
            sum.updates.extend(one.updates);
            sum.sums += one.sums;
            sum.frozen_rows += one.frozen_rows;
            sum.switches.extend(one.switches);
        }
    }
    for (reader, mut one) in readers.into_iter().zip(all) {
        one.updates.sort_unstable();
        one.switches.sort_unstable();
        let switch = |share: f64| {
            let last = one.switches.len().checked_sub(1)?;
            let at = (last as f64 * share) as usize;
            Some(format!("{:.2}", one.switches[at].as_secs_f64() * 1e3))
        };
        let at = |share: f64| {
            let position = (one.updates.len() as f64 * share) as usize;
            one.updates[position.min(one.updates.len() - 1)] as f64 / 1e3
        };
        println!(
            "{:<8} {:>8.0} updates/s  p50 {:>6.1} us  p99 {:>7.1}  p99.9 {:>8.1}  max {:>9.1}; \
             {} rows frozen, switches (p50, p99, max) {:?} ms, {} sums",
            format!("{reader:?}"),
            one.updates.len() as f64 / (seconds * ROUNDS as u64) as f64,
            at(0.5),
            at(0.99),
            at(0.999),
            at(1.0),
            one.frozen_rows,
            [0.5, 0.99, 1.0].map(|share| switch(share).unwrap_or_default()),
            one.sums,
        );
    }
}
