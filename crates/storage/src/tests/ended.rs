//! Images of frozen segments outlive the ends of their rows: a later checkpoint writes which rows have
//! ended, and nothing else.

use std::fs;

use aerostat_segment::KeyRef;

use super::{
    recovery::{copy, create, listed, open, options, rows_in, try_open},
    *,
};
use crate::backup::FolderSink;

const ROWS: i32 = 3_000;

/// A frozen table with an image that has all rows.
fn frozen() -> (tempfile::TempDir, Arc<TenantStore>, Arc<Table>) {
    let folder = memory_folder();
    let (store, _) = open(folder.path());
    let table = create(&store, 1, true);
    let rows: Vec<Row> = (0..ROWS)
        .map(|key| {
            (
                key,
                i64::from(key % 7),
                Some(format!("a text like {}", key % 90)),
            )
        })
        .collect();
    load(&table, &rows);
    table.freeze().unwrap();
    let first = store.checkpoint().unwrap().unwrap();
    assert!(
        first.images_written > 0 && first.ended_written == 0,
        "{first:?}"
    );
    (folder, store, table)
}

/// Deletes the rows with these keys, which are there.
fn delete(table: &Arc<Table>, keys: impl Iterator<Item = i32>) {
    let txn = table.store().txns().begin();
    let view = table.view(txn.snapshot().clone());
    let ids: Vec<RowId> = keys
        .map(|at| view.lookup(KeyRef(&key(table, at))).unwrap().unwrap())
        .collect();
    view.delete(&txn, &ids).unwrap();
    drop(view);
    txn.commit().unwrap();
}

fn names(folder: &std::path::Path, extension: &str) -> Vec<std::path::PathBuf> {
    let mut names: Vec<_> = fs::read_dir(folder.join("checkpoint"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|own| own == extension))
        .collect();
    names.sort();
    names
}

#[test]
fn ended_rows_are_written_without_their_segments() {
    let (folder, store, table) = frozen();
    let images = names(folder.path(), "img");
    delete(&table, (0..ROWS).step_by(9));
    let second = store.checkpoint().unwrap().unwrap();
    assert_eq!(second.images_written, 0, "{second:?}");
    assert!(
        second.ended_written > 0 && second.images_kept >= second.ended_written,
        "{second:?}"
    );
    assert!(second.bytes_written < 4 * ROWS as u64, "{second:?}");
    assert_eq!(names(folder.path(), "img"), images);
    let lists = names(folder.path(), "end");
    assert_eq!(lists.len() as u64, second.ended_written);
    // Unchanged lists stay with their images.
    let third = store.checkpoint().unwrap().unwrap();
    assert_eq!(
        (third.images_written, third.ended_written),
        (0, 0),
        "{third:?}"
    );
    assert_eq!(names(folder.path(), "end"), lists);

    let expected = rows_in(&table);
    assert_eq!(expected.len(), 2_666);
    drop((store, table));
    let (store, recovered) = open(folder.path());
    let table = Arc::clone(&recovered.tables[&TableId(1)]);
    assert_eq!(rows_in(&table), expected);
    // What was loaded keeps image and list; another list takes the place of the first.
    let fourth = store.checkpoint().unwrap().unwrap();
    assert_eq!(
        (fourth.images_written, fourth.ended_written),
        (0, 0),
        "{fourth:?}"
    );
    delete(&table, (1..ROWS).step_by(9));
    let fifth = store.checkpoint().unwrap().unwrap();
    assert_eq!(fifth.images_written, 0, "{fifth:?}");
    assert!(
        names(folder.path(), "end")
            .iter()
            .all(|name| !lists.contains(name))
    );
    let expected = rows_in(&table);
    // A segment that is rewritten needs neither.
    delete(&table, (2..ROWS).step_by(3).filter(|key| key % 9 > 1));
    table.freeze().unwrap();
    store.checkpoint().unwrap();
    assert!(
        names(folder.path(), "img")
            .iter()
            .all(|name| !images.contains(name))
    );
    assert!(names(folder.path(), "end").is_empty());
    let later = rows_in(&table);
    assert!(later.len() < expected.len());
    drop((store, table, recovered));
    let (_store, recovered) = open(folder.path());
    assert_eq!(rows_in(&recovered.tables[&TableId(1)]), later);
}

#[test]
fn what_is_not_committed_has_not_ended() {
    let (folder, store, table) = frozen();
    delete(&table, 0..10);
    store.checkpoint().unwrap();
    let open_txn = store.txns().begin();
    let view = table.view(open_txn.snapshot().clone());
    let ids: Vec<RowId> = listed(&view)[..100].iter().map(|(_, id)| *id).collect();
    view.delete(&open_txn, &ids).unwrap();
    drop(view);
    let second = store.checkpoint().unwrap().unwrap();
    assert!(second.ended_written > 0, "{second:?}");
    let crashed = memory_folder();
    copy(folder.path(), crashed.path());
    drop(open_txn);
    // After a rollback the list is what it was.
    store.checkpoint().unwrap();
    drop((store, table));
    for folder in [folder.path(), crashed.path()] {
        let (_store, recovered) = open(folder);
        assert_eq!(
            rows_in(&recovered.tables[&TableId(1)]).len(),
            2_990,
            "{folder:?}"
        );
    }
}

#[test]
fn a_damaged_list_is_told_and_a_backup_has_it() {
    let (folder, store, table) = frozen();
    delete(&table, (0..ROWS).step_by(2));
    let expected = rows_in(&table);
    let backups = tempfile::tempdir().unwrap();
    let sink = FolderSink::for_backup(backups.path(), None).unwrap();
    let info = store.backup("shop", &sink).unwrap();
    assert!(
        info.files.iter().any(|file| file.name.ends_with(".end")),
        "{info:?}"
    );
    assert_eq!(info.rows, expected.len() as u64);
    drop((store, table));
    let lists = names(folder.path(), "end");
    assert!(!lists.is_empty());
    for list in &lists {
        let kept = fs::read(list).unwrap();
        let mut flipped = kept.clone();
        flipped[kept.len() / 2] ^= 1;
        // Another list's contents are as sound, but not what the manifest says.
        for bytes in [&flipped[..], &kept[..kept.len() - 4], b"AEROEND1\0\0\0\0"] {
            fs::write(list, bytes).unwrap();
            let error = try_open(folder.path(), &options()).err();
            let is_told =
                matches!(&error, Some(RecoverError::Damaged { path, .. }) if path == list);
            assert!(is_told, "{error:?}");
        }
        fs::remove_file(list).unwrap();
        assert!(try_open(folder.path(), &options()).is_err());
        fs::write(list, &kept).unwrap();
    }
    let (_store, recovered) = open(folder.path());
    assert_eq!(rows_in(&recovered.tables[&TableId(1)]), expected);
}

/// A manifest as builds before lists of ended rows wrote it.
#[test]
fn a_manifest_of_version_2_is_read_and_replaced() {
    let (folder, store, table) = frozen();
    let expected = rows_in(&table);
    drop((store, table));
    let path = folder.path().join("checkpoint/manifest");
    let mut manifest = fs::read(&path).unwrap();
    assert_eq!(&manifest[..8], b"AEROCKP3");
    for (magic, is_known) in [
        (b"AEROCKP2", true),
        (b"AEROCKP4", false),
        (b"AEROCKP2", true),
    ] {
        manifest[..8].copy_from_slice(magic);
        fs::write(&path, &manifest).unwrap();
        let opened = try_open(folder.path(), &options());
        assert_eq!(opened.is_ok(), is_known, "{magic:?}");
    }
    let (store, recovered) = open(folder.path());
    let table = Arc::clone(&recovered.tables[&TableId(1)]);
    assert_eq!(rows_in(&table), expected);
    delete(&table, (0..ROWS).step_by(3));
    let written = store.checkpoint().unwrap().unwrap();
    assert!(
        written.ended_written > 0 && written.images_written == 0,
        "{written:?}"
    );
    assert_eq!(&fs::read(&path).unwrap()[..8], b"AEROCKP3");
    let expected = rows_in(&table);
    drop((store, recovered, table));
    let (_store, recovered) = open(folder.path());
    assert_eq!(rows_in(&recovered.tables[&TableId(1)]), expected);
}
