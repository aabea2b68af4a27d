//! Chunks that are queued while a checkpoint begins a file, and older manifests that recorded
//! them wrongly.

use std::{cell::RefCell, fs, path::Path, rc::Rc};

use aerostat_txn::{Block, Isolation, Transaction};

use super::{
    recovery::{create, read_names, rows_in, try_open},
    *,
};
use crate::{
    durable::backup::{FolderSink, FolderSource, Restore, restore},
    files::{fault::visit, log::read, manifest::Manifest},
};

/// More than a transaction keeps to itself.
fn wide(key: i32) -> Row {
    (key, 0, Some("x".repeat(520 << 10)))
}

fn open(folder: &Path) -> (Arc<TenantStore>, Recovered) {
    try_open(folder, &OpenOptions::default()).unwrap()
}

fn numbers(folder: &Path) -> Vec<u64> {
    let files = read::files(&SystemDisk, &folder.join("log")).unwrap();
    files.into_iter().map(|(number, _)| number).collect()
}

/// Does something once while the log's writer begins a file.
fn while_a_file_begins<T: 'static>(act: impl FnOnce() -> T + 'static, run: impl FnOnce()) -> T {
    let done = Rc::new(RefCell::new(None));
    let (mut act, kept) = (Some(act), Rc::clone(&done));
    visit::set(Some(Box::new(move |place| {
        if place == "log.new_file"
            && let Some(act) = act.take()
        {
            *kept.borrow_mut() = Some(act());
        }
    })));
    run();
    visit::set(None);
    done.take().expect("a file was begun")
}

/// A tenant with a block whose first chunk came while a checkpoint began a file, and which
/// is open at a second checkpoint.
fn with_open_block(folder: &Path) -> (Arc<TenantStore>, Arc<Table>, Block) {
    let (store, _) = open(folder);
    let table = create(&store, 7, true);
    load(&table, &[(1, 1, None)]);
    let (writes, into) = (Arc::clone(&store), Arc::clone(&table));
    let begin = move || {
        let block = writes.txns().begin_block(Isolation::ReadCommitted);
        let statement = block.statement();
        into.insert(&statement, &batch(&into, &[wide(2)])).unwrap();
        statement.commit().unwrap();
        block
    };
    let block = while_a_file_begins(begin, || {
        store.checkpoint().unwrap();
    });
    load(&table, &[(3, 3, None)]);
    store.checkpoint().unwrap();
    (store, table, block)
}

#[test]
fn a_first_chunk_that_comes_while_a_file_begins_is_noted_with_that_file() {
    let folder = memory_folder();
    let (store, table, block) = with_open_block(folder.path());
    assert_eq!(numbers(folder.path()), [2, 3]);
    store.checkpoint().unwrap();
    block.commit().unwrap();
    let expected = rows_in(&table);
    assert_eq!(expected.len(), 3);
    drop((store, table));
    let (_store, recovered) = open(folder.path());
    assert_eq!(rows_in(&recovered.tables[&TableId(7)]), expected);
}

/// Has the manifest ask for another file, as one of an older version.
fn ask_from(folder: &Path, number: u64) {
    let images = folder.join("checkpoint");
    let mut manifest = Manifest::read(&SystemDisk, &images, TenantId(1))
        .unwrap()
        .unwrap();
    (manifest.log_from, manifest.last_txn) = (number, None);
    manifest.write(&SystemDisk, &images).unwrap();
}

fn is_damaged(folder: &Path) -> bool {
    match try_open(folder, &OpenOptions::default()) {
        Err(RecoverError::Damaged { what, .. }) => what.contains("missing"),
        _ => false,
    }
}

#[test]
fn a_file_that_nothing_needs_may_be_missing_in_an_old_manifest_alone() {
    let folder = memory_folder();
    let (store, table, block) = with_open_block(folder.path());
    block.commit().unwrap();
    let expected = rows_in(&table);
    drop((store, table));
    // Of a newer manifest no file may be missing.
    let second = read_names(&folder.path().join("log"))[0].clone();
    let kept = fs::read(&second).unwrap();
    fs::remove_file(&second).unwrap();
    assert!(is_damaged(folder.path()), "rows of the block are missing");
    ask_from(folder.path(), 2);
    assert!(
        is_damaged(folder.path()),
        "nothing in the third asks for it"
    );
    fs::write(&second, kept).unwrap();
    ask_from(folder.path(), 0);
    assert!(is_damaged(folder.path()), "two files are missing");
    ask_from(folder.path(), 1);
    let (store, recovered) = open(folder.path());
    let table = &recovered.tables[&TableId(7)];
    assert_eq!(rows_in(table), expected);
    // The next checkpoint asks for what there is.
    load(table, &[(4, 4, None)]);
    store.checkpoint().unwrap();
    drop((store, recovered));
    let (_store, recovered) = open(folder.path());
    assert_eq!(rows_in(&recovered.tables[&TableId(7)]).len(), 4);
}

#[test]
fn a_missing_file_with_commits_after_the_checkpoint_is_damage() {
    let folder = memory_folder();
    let (store, table, block) = with_open_block(folder.path());
    load(&table, &[(5, 5, None)]);
    store.archive_log().unwrap();
    let statement = block.statement();
    table
        .insert(&statement, &batch(&table, &[wide(6)]))
        .unwrap();
    statement.commit().unwrap();
    block.commit().unwrap();
    drop((store, table));
    let files = read_names(&folder.path().join("log"));
    assert_eq!(numbers(folder.path()), [2, 3, 4]);
    files[..2]
        .iter()
        .for_each(|path| fs::remove_file(path).unwrap());
    ask_from(folder.path(), 3);
    assert!(is_damaged(folder.path()));
}

/// Of an archived log a transaction that was undone has chunks in an old file. Another one,
/// after a restart before which that file had gone, must not have its id.
#[test]
fn ids_of_transactions_in_archived_files_are_not_given_again() {
    let folder = memory_folder();
    let path = |name: &str| folder.path().join(name);
    let archive = || Some(Arc::new(FolderSink::for_archive(&path("archive")).unwrap()) as _);
    let (store, _) = open(&path("tenant"));
    store.archive_log_to(archive());
    let table = create(&store, 7, true);
    let sink = FolderSink::for_backup(&path("backup"), None).unwrap();
    store.backup("shop", &sink).unwrap();
    let begin = |store: &TenantStore, table: &Table, key| -> Transaction {
        let txn = store.txns().begin();
        table.insert(&txn, &batch(table, &[wide(key)])).unwrap();
        txn
    };
    let undone: Vec<_> = (0..5).map(|key| begin(&store, &table, key)).collect();
    let ids: Vec<_> = undone.iter().map(Transaction::id).collect();
    drop(undone);
    store.checkpoint().unwrap();
    store.checkpoint().unwrap();
    drop((store, table));
    let (store, recovered) = open(&path("tenant"));
    store.archive_log_to(archive());
    let table = &recovered.tables[&TableId(7)];
    for key in 10..15 {
        let txn = begin(&store, table, key);
        assert!(!ids.contains(&txn.id()), "{} was there", txn.id());
        txn.commit().unwrap();
    }
    store.archive_log().unwrap();
    let what = Restore {
        backup: &FolderSource::new(&path("backup")),
        logs: &[&FolderSource::new(&path("archive"))],
        until: None,
    };
    restore(&what, TenantId(1), &path("restored")).unwrap();
    let (_restored, found) = open(&path("restored"));
    assert_eq!(rows_in(&found.tables[&TableId(7)]), rows_in(table));
}

/// The average of wide rows says nothing of the few narrow ones behind them.
#[test]
fn narrow_rows_behind_wide_ones_are_loaded() {
    let folder = memory_folder();
    let options = OpenOptions {
        sizes: Some(ArenaSizes::of(&[64 << 10, 4 << 20])),
        ..OpenOptions::default()
    };
    for keyed in [true, false] {
        let path = folder.path().join(keyed.to_string());
        let (store, _) = try_open(&path, &options).unwrap();
        let table = create(&store, 7, keyed);
        (0..12).for_each(|key| load(&table, &[wide(key)]));
        (12..20).for_each(|key| load(&table, &[(key, 0, None)]));
        store.checkpoint().unwrap();
        let expected = rows_in(&table);
        drop((store, table));
        let (_store, recovered) = try_open(&path, &options).unwrap();
        assert_eq!(rows_in(&recovered.tables[&TableId(7)]), expected);
    }
}
