//! Room that is written ahead of the log's records: what a crash leaves of it, and that it is
//! neither a torn tail nor in a complete file.

use std::{
    fs,
    path::{Path, PathBuf},
};

use aerostat_txn::CommitLog;
use aerostat_types::CommitTs;
use rand::{Rng, SeedableRng, rngs::StdRng};

use super::{
    recovery::{create, open, options, rows_in, try_open},
    *,
};
use crate::{
    durable::backup::{FolderSink, FolderSource, Restore, restore},
    files::log,
};

fn log_file(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("log/{number:016x}.log"))
}

/// Where the records of the file at the end end, and where its room does.
fn ends(store: &TenantStore) -> (usize, usize) {
    let ends = store.durable_side().log.ends();
    (ends.bytes, ends.room)
}

/// A tenant's folder as a crash leaves it now.
fn crashed(folder: &Path) -> tempfile::TempDir {
    let copy = memory_folder();
    for part in ["log", "checkpoint"] {
        fs::create_dir(copy.path().join(part)).unwrap();
        for entry in fs::read_dir(folder.join(part)).unwrap() {
            let entry = entry.unwrap();
            fs::copy(entry.path(), copy.path().join(part).join(entry.file_name())).unwrap();
        }
    }
    copy
}

/// A tenant with a table of so many rows, each a durable commit after that of the table.
fn committed(folder: &Path, rows: i32) -> (Arc<TenantStore>, Arc<Table>) {
    let (store, _) = open(folder);
    let table = create(&store, 7, true);
    for key in 0..rows {
        load(&table, &[(key, 0, Some("some text for it".to_owned()))]);
    }
    (store, table)
}

#[test]
fn a_crash_leaves_room_and_no_torn_tail() {
    let folder = memory_folder();
    let (store, table) = committed(folder.path(), 20);
    let (bytes, room) = ends(&store);
    assert!(room > bytes);
    let copy = crashed(folder.path());
    let found = fs::read(log_file(copy.path(), 1)).unwrap();
    assert_eq!(found.len(), room);
    assert!(found[bytes..].iter().all(|byte| *byte == 0));
    for _ in 0..3 {
        let (reopened, recovered) = open(copy.path());
        assert_eq!(recovered.truncated_bytes, 0);
        let again = &recovered.tables[&TableId(7)];
        assert!(rows_in(again).starts_with(&rows_in(&table)));
        // It goes on behind the records.
        load(again, &[(100 + ends(&reopened).0 as i32, 0, None)]);
        let next = crashed(copy.path());
        let (_reopened, recovered) = open(next.path());
        assert_eq!(rows_in(&recovered.tables[&TableId(7)]), rows_in(again));
    }
    // Who closes the log takes the room away.
    drop((store, table));
    let closed = fs::metadata(log_file(folder.path(), 1)).unwrap();
    assert_eq!(closed.len(), bytes as u64);
}

#[test]
fn what_is_lost_behind_the_last_sync_is_cut_and_a_prefix_stays() {
    let folder = memory_folder();
    let (store, table) = committed(folder.path(), 20);
    let (bytes, room) = ends(&store);
    let whole = fs::read(log_file(folder.path(), 1)).unwrap();
    drop((store, table));
    let mut random = StdRng::seed_from_u64(1);
    let (mut full, mut torn) = (0, 0);
    for round in 0..120 {
        // The room is left, or cut off, or never came to be: then there is less than zeros.
        let from = random.random_range(0..bytes + bytes / 4);
        let mut left = whole.clone();
        left[from..].fill(0);
        left.truncate(random.random_range(from.min(bytes)..=room));
        fs::write(log_file(folder.path(), 1), &left).unwrap();
        let (store, recovered) = open(folder.path());
        let rows = recovered.tables.values().next().map_or(0, |table| {
            let rows = rows_in(table);
            assert!((0..).zip(&rows).all(|(key, row)| row.0 == key), "{rows:?}");
            rows.len() as u64
        });
        let last = store.txns().last_commit().0;
        assert_eq!(rows, last.saturating_sub(1), "round {round}, from {from}");
        assert!(recovered.truncated_bytes <= from as u64);
        full += u64::from(last == 21);
        torn += u64::from(recovered.truncated_bytes > 0);
        store.commit_catalog(b"more".to_vec()).unwrap();
        drop((store, recovered));
        let (_store, recovered) = open(folder.path());
        assert_eq!(recovered.truncated_bytes, 0);
        assert_eq!(recovered.catalog.as_deref(), Some(&b"more"[..]));
    }
    assert!(full > 5 && torn > 50, "{full} {torn}");
}

#[test]
fn zeros_where_records_had_been_are_damage() {
    let folder = memory_folder();
    let (store, table) = committed(folder.path(), 20);
    let (bytes, room) = ends(&store);
    let whole = fs::read(log_file(folder.path(), 1)).unwrap();
    drop((store, table));
    let mut random = StdRng::seed_from_u64(2);
    for round in 0..60 {
        let mut damaged = whole.clone();
        let at = random.random_range(48..bytes / 2);
        damaged[at..at + random.random_range(41..300)].fill(0);
        fs::write(log_file(folder.path(), 1), &damaged).unwrap();
        let opened = try_open(folder.path(), &options());
        let error = opened.map(|_| ()).unwrap_err();
        assert!(
            matches!(error, RecoverError::Damaged { offset, .. } if offset as usize <= at),
            "round {round}: {error:?}"
        );
    }
    // A bit in the room is nobody's record, and no reason not to open.
    for _ in 0..20 {
        let mut flipped = whole.clone();
        flipped[random.random_range(bytes..room)] ^= 1 << random.random_range(0..8);
        fs::write(log_file(folder.path(), 1), &flipped).unwrap();
        let (store, recovered) = open(folder.path());
        assert_eq!(store.txns().last_commit(), CommitTs(21));
        assert!(recovered.truncated_bytes > 0);
    }
}

/// Groups of all sizes, synced or not, rotations, crashes: the file has what was written, its
/// room is zeros, and complete files have none.
#[test]
fn room_follows_what_is_written() {
    for seed in 0..20 {
        let mut random = StdRng::seed_from_u64(seed);
        let folder = memory_folder();
        let (store, table) = committed(folder.path(), 0);
        let (mut key, mut rows) = (0, Vec::new());
        for _ in 0..60 {
            match random.random_range(0..12) {
                0 => store.set_durability(Durability::None),
                1 | 2 => store.set_durability(Durability::Fsync),
                3 => drop(store.durable_side().log.rotate().unwrap()),
                4 => {
                    let (_copy, recovered) = open(crashed(folder.path()).path());
                    assert_eq!(recovered.truncated_bytes, 0, "seed {seed}");
                    assert_eq!(rows_in(&recovered.tables[&TableId(7)]), rows, "seed {seed}");
                }
                5 => {
                    // Goes out before its commit, which may never be.
                    let log = &store.durable_side().log;
                    let redo = vec![7; random.random_range(0..700_000)];
                    log.append_chunk(aerostat_types::TxnId(1 << 40), redo)
                        .unwrap();
                    log.forget(aerostat_types::TxnId(1 << 40));
                }
                _ => {
                    let longest = [40, 4_000][random.random_range(0..2)];
                    let text = "x".repeat(random.random_range(0..longest));
                    rows.push((key, 0, Some(text)));
                    load(&table, &rows[rows.len() - 1..]);
                    key += 1;
                }
            }
            let (bytes, room) = ends(&store);
            assert!(bytes <= room && room - bytes <= 260 << 10, "seed {seed}");
            let files = log::read::files(&SystemDisk, &folder.path().join("log")).unwrap();
            for (number, path) in &files {
                let file = fs::read(path).unwrap();
                let records: usize = forge::split_log(&file).iter().map(Vec::len).sum();
                if *number == files[files.len() - 1].0 {
                    assert_eq!((records, file.len()), (bytes, room), "seed {seed}");
                    assert!(file[bytes..].iter().all(|byte| *byte == 0));
                } else {
                    assert_eq!(records, file.len(), "seed {seed}");
                }
            }
        }
    }
}

#[test]
fn a_log_with_room_can_be_restored_from() {
    let folder = memory_folder();
    let (store, table) = committed(folder.path(), 10);
    let backups = memory_folder();
    let backup = backups.path().join("backup");
    let sink = FolderSink::for_backup(&backup, None).unwrap();
    store.backup("shop", &sink).unwrap();
    for key in 10..30 {
        load(&table, &[(key, 0, None)]);
    }
    assert!(ends(&store).1 > ends(&store).0);
    let copy = crashed(folder.path());
    let log = FolderSource::new(&copy.path().join("log"));
    let source = FolderSource::new(&backup);
    let what = Restore {
        backup: &source,
        logs: &[&log],
        until: None,
    };
    let target = backups.path().join("restored");
    let restored = restore(&what, TenantId(9), &target).unwrap();
    assert_eq!(restored.at, store.txns().last_commit());
    let budget = Governor::new("1GB".parse().unwrap()).budget("restored", None);
    let (_restored, recovered) =
        TenantStore::open(TenantId(9), budget, &target, &options()).unwrap();
    assert_eq!(recovered.truncated_bytes, 0);
    assert_eq!(rows_in(&recovered.tables[&TableId(7)]), rows_in(&table));
}
