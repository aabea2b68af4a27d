//! Logs that the disk refuses and then accepts again, while the tenant is open.

use std::{fs, os::unix::fs::FileExt, path::Path, thread, time::Duration};

use aerostat_txn::{CommitError, Isolation};
use aerostat_types::{CommitTs, TxnId};
use rand::{Rng, SeedableRng, rngs::StdRng};

use super::{
    recovery::{copy, create, open, rows_in},
    *,
};
use crate::files::log::{
    file_name,
    record::{self, Head, Kind},
};

fn insert(table: &Arc<Table>, rows: &[Row]) -> Result<CommitTs, CommitError> {
    let txn = table.store().txns().begin();
    table.insert(&txn, &batch(table, rows)).unwrap();
    txn.commit()
}

fn row(key: i32) -> Row {
    (key, i64::from(key), Some(format!("row {key}")))
}

/// Rows whose redo goes to the log before their commit.
fn wide(keys: std::ops::Range<i32>) -> Vec<Row> {
    keys.map(|key| (key, 0, Some(format!("{key:06000}"))))
        .collect()
}

/// What is there after the tenant was closed and opened again, and after a crash now.
fn reopened(folder: &Path, store: Arc<TenantStore>, table: Arc<Table>) -> Vec<Row> {
    let crashed = tempfile::tempdir().unwrap();
    copy(folder, crashed.path());
    let after_crash = {
        let (_store, recovered) = open(crashed.path());
        rows_in(&recovered.tables[&TableId(7)])
    };
    drop((store, table));
    let (_store, recovered) = open(folder);
    let after_close = rows_in(&recovered.tables[&TableId(7)]);
    assert_eq!(after_crash, after_close);
    after_close
}

#[test]
fn a_mended_log_takes_changes_and_what_was_in_doubt_did_not_happen() {
    let folder = memory_folder();
    let (store, table) = open_with_table(folder.path());
    insert(&table, &[row(1)]).unwrap();
    let log = &store.durable_side().log;
    let published = log.ends().bytes;
    log.fill_disk();
    let doubted = store.txns().last_commit().0 + 1;
    assert!(matches!(
        insert(&table, &[row(2)]),
        Err(CommitError::InDoubt(_))
    ));
    assert!(matches!(
        insert(&table, &[row(3)]),
        Err(CommitError::Refused(_))
    ));
    // What a failed sync may have left all the same.
    let left = Head {
        kind: Kind::Commit,
        lsn: CommitTs(doubted),
        txn: TxnId(99),
        wall_micros: 1,
    };
    let mut bytes = Vec::new();
    record::put(&left, 0, &[], &mut bytes);
    let path = folder.path().join("log").join(file_name(1));
    let file = fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&bytes, published as u64).unwrap();

    store.mend_log().unwrap();
    assert!(store.log_failure().is_none());
    assert_eq!(rows_in(&table), [row(1)]);
    // The place in doubt is nobody's, and the next one is free.
    assert_eq!(insert(&table, &[row(2)]).unwrap(), CommitTs(doubted + 1));
    store.checkpoint().unwrap();
    insert(&table, &[row(4)]).unwrap();
    let expected = [row(1), row(2), row(4)];
    assert_eq!(rows_in(&table), expected);
    assert_eq!(reopened(folder.path(), store, table), expected);
}

fn open_with_table(folder: &Path) -> (Arc<TenantStore>, Arc<Table>) {
    let (store, _) = open(folder);
    let table = create(&store, 7, true);
    (store, table)
}

/// A failure may have taken chunks of a transaction that goes on.
#[test]
fn who_had_chunks_when_the_log_failed_cannot_commit() {
    let folder = memory_folder();
    let (store, table) = open_with_table(folder.path());
    insert(&table, &[row(1)]).unwrap();
    let bulk = store.txns().begin();
    table
        .insert(&bulk, &batch(&table, &wide(100..300)))
        .unwrap();
    let block = store.txns().begin_block(Isolation::default());
    let statement = block.statement();
    table
        .insert(&statement, &batch(&table, &wide(300..500)))
        .unwrap();
    statement.commit().unwrap();
    let small = store.txns().begin();
    table.insert(&small, &batch(&table, &[row(2)])).unwrap();
    store.durable_side().log.fill_disk();
    assert!(matches!(
        insert(&table, &[row(3)]),
        Err(CommitError::InDoubt(_))
    ));
    store.mend_log().unwrap();
    assert!(matches!(bulk.commit(), Err(CommitError::Refused(_))));
    assert!(matches!(block.commit(), Err(CommitError::Refused(_))));
    // All of it is in memory still.
    small.commit().unwrap();
    insert(&table, &wide(100..110)).unwrap();
    assert_eq!(store.durable_side().log.doomed(), 0);
    let expected = rows_in(&table);
    assert_eq!(expected.len(), 12);
    assert_eq!(reopened(folder.path(), store, table), expected);
}

/// Rows of a block go to the log when there are many of them, and the log may refuse them meanwhile.
#[test]
fn a_block_does_not_commit_without_rows_that_a_failed_log_refused() {
    let folder = memory_folder();
    let (store, table) = open_with_table(folder.path());
    insert(&table, &[row(1)]).unwrap();
    let block = store.txns().begin_block(Isolation::default());
    let add = |rows: &[Row]| {
        let statement = block.statement();
        let added = table.insert(&statement, &batch(&table, rows));
        added.is_ok() && statement.commit().is_ok()
    };
    // Little enough to be kept in memory.
    assert!(add(&[row(2)]));
    let log = &store.durable_side().log;
    log.fill_disk();
    insert(&table, &[row(3)]).unwrap_err();
    // Until the block has to have the log take something.
    let mut from = 100;
    while from < 10_000 && add(&wide(from..from + 20)) {
        from += 20;
        if log.doomed() > 0 {
            break;
        }
    }
    assert!(log.doomed() > 0, "nothing was refused");
    store.mend_log().unwrap();
    assert!(matches!(block.commit(), Err(CommitError::Refused(_))));
    insert(&table, &[row(4)]).unwrap();
    let expected = [row(1), row(4)];
    assert_eq!(rows_in(&table), expected);
    assert_eq!(reopened(folder.path(), store, table), expected);
}

/// A log whose acknowledged records cannot be read back takes nothing.
#[test]
fn what_was_acknowledged_must_be_there() {
    let folder = memory_folder();
    let (store, table) = open_with_table(folder.path());
    insert(&table, &[row(1)]).unwrap();
    insert(&table, &[row(2)]).unwrap();
    store.durable_side().log.fill_disk();
    insert(&table, &[row(3)]).unwrap_err();
    let path = folder.path().join("log").join(file_name(1));
    let whole = fs::read(&path).unwrap();
    let published = store.durable_side().log.ends().bytes;
    for at in [20, 60, published - 1] {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        fs::write(&path, &damaged).unwrap();
        store.mend_log().unwrap_err();
        assert!(store.log_failure().is_some());
        fs::write(&path, &whole[..at]).unwrap();
        store.mend_log().unwrap_err();
    }
    assert_eq!(rows_in(&table), [row(1), row(2)]);
    fs::write(&path, &whole).unwrap();
    store.mend_log().unwrap();
    insert(&table, &[row(4)]).unwrap();
    let expected = [row(1), row(2), row(4)];
    assert_eq!(reopened(folder.path(), store, table), expected);
}

/// The commit that a checkpoint's new file was begun behind was written, and is in doubt.
#[test]
fn a_new_file_that_could_not_be_begun_is_begun_later() {
    let folder = memory_folder();
    let (store, table) = open_with_table(folder.path());
    insert(&table, &[row(1)]).unwrap();
    let next = folder.path().join("log").join(file_name(2));
    fs::create_dir(&next).unwrap();
    store.checkpoint().unwrap_err();
    insert(&table, &[row(2)]).unwrap_err();
    store.mend_log().unwrap_err();
    fs::remove_dir(&next).unwrap();
    // As much of it as a crash in the middle leaves.
    fs::write(&next, b"AEROLOG1").unwrap();
    store.mend_log().unwrap();
    insert(&table, &[row(2)]).unwrap();
    store.checkpoint().unwrap();
    insert(&table, &[row(3)]).unwrap();
    let expected = [row(1), row(2), row(3)];
    assert_eq!(reopened(folder.path(), store, table), expected);
}

/// Threads commit while the disk refuses and takes again at random moments. Whoever is told of
/// a commit finds it; whoever is told of doubt or a refusal does not; and the log says the same.
#[test]
fn under_load_every_commit_has_the_fate_it_was_told() {
    for seed in 0..6 {
        let folder = memory_folder();
        let (store, table) = open_with_table(folder.path());
        let told: Vec<Row> = thread::scope(|scope| {
            let workers: Vec<_> = (0..4)
                .map(|worker| {
                    let table = &table;
                    scope.spawn(move || committed_by(table, worker, seed))
                })
                .collect();
            let mut random = StdRng::seed_from_u64(seed);
            while !workers.iter().all(thread::ScopedJoinHandle::is_finished) {
                thread::sleep(Duration::from_micros(random.random_range(0..3_000)));
                match random.random_range(0..5) {
                    0 => store.durable_side().log.fill_disk(),
                    1 => drop(store.checkpoint()),
                    _ => drop(store.mend_log()),
                }
            }
            let told = workers
                .into_iter()
                .flat_map(|worker| worker.join().unwrap());
            told.collect()
        });
        store.mend_log().unwrap();
        let mut expected = told;
        expected.sort();
        assert!(expected.len() > 100, "seed {seed}: {}", expected.len());
        assert_eq!(rows_in(&table), expected, "seed {seed}");
        assert_eq!(
            reopened(folder.path(), store, table),
            expected,
            "seed {seed}"
        );
    }
}

/// What a worker was told to be committed.
fn committed_by(table: &Arc<Table>, worker: i32, seed: u64) -> Vec<Row> {
    let mut random = StdRng::seed_from_u64(seed * 100 + worker as u64);
    let mut told = Vec::new();
    for at in 0..400 {
        let row = row(worker * 100_000 + at);
        let rows = match random.random_range(0..40) {
            0 => wide(row.0 + 10_000..row.0 + 10_150),
            _ => vec![row],
        };
        let txn = table.store().txns().begin();
        // A chunk may be refused before the commit is.
        if table.insert(&txn, &batch(table, &rows)).is_err() {
            continue;
        }
        match txn.commit() {
            Ok(_) => told.extend(rows),
            Err(CommitError::InDoubt(_) | CommitError::Refused(_)) => {
                thread::sleep(Duration::from_micros(200));
            }
            Err(other) => panic!("{other:?}"),
        }
    }
    told
}
