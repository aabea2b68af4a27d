//! Values that are not in memory: every statement goes on as if they were, what readers hold stays,
//! and what the disk has lost is told of.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use aerostat_segment::KeyRef;
use aerostat_txn::CancelToken;
use aerostat_types::{IndexKind, TableIndex};

use super::{
    recovery::{open, options, read_names},
    *,
};
use crate::store::directory::Access;

const ROWS: i32 = 20_000;
const ALL: u64 = u64::MAX;

fn rows(keys: std::ops::Range<i32>) -> Vec<Row> {
    let row = |key: i32| {
        let text = (key % 11 > 0).then(|| format!("text {} of {key:>40}", key % 5));
        (key, i64::from(key) * 31 % 1_009, text)
    };
    keys.map(row).collect()
}

fn index(name: &str, kind: IndexKind, column: usize) -> TableIndex {
    TableIndex {
        name: name.to_owned(),
        kind,
        columns: vec![column],
        unique: false,
        nulls_not_distinct: false,
    }
}

/// A frozen table with images of all its segments, in arenas of the usual sizes.
fn frozen() -> (tempfile::TempDir, Arc<TenantStore>, Arc<Table>) {
    let folder = memory_folder();
    let (store, table) = frozen_in(folder.path());
    (folder, store, table)
}

fn frozen_in(folder: &Path) -> (Arc<TenantStore>, Arc<Table>) {
    let (store, _) = opened(folder, 1 << 30);
    let indexes = vec![
        index("t_n", IndexKind::Ordered, 1),
        index("t_s", IndexKind::Hash, 2),
    ];
    let layout = Layout::parse("column").unwrap();
    let table = store
        .create_table_with_indexes(TableId(7), schema(true), &layout, indexes)
        .unwrap();
    load(&table, &rows(0..ROWS));
    table.freeze().unwrap();
    assert_eq!(store.evict(ALL), 0, "nothing goes that has no image");
    store.checkpoint().unwrap().unwrap();
    (store, table)
}

/// With some segments for the rows.
fn opened(folder: &Path, memory: u64) -> (Arc<TenantStore>, Recovered) {
    let budget = Governor::new(ByteSize(memory)).budget("test", None);
    let options = OpenOptions {
        sizes: Some(ArenaSizes::of(&[128 << 10, 256 << 10])),
        ..OpenOptions::default()
    };
    TenantStore::open(TenantId(1), budget, folder, &options).unwrap()
}

fn evicted_bytes(table: &Table) -> u64 {
    let directory = table.directory();
    let entries = directory.entries().iter();
    entries.map(|entry| entry.segment().evicted_bytes()).sum()
}

/// All goes that nobody reads; the books say so.
fn evict_all(store: &TenantStore, table: &Table) -> u64 {
    let (used, before) = (store.budget().used(), evicted_bytes(table));
    let given = store.evict(ALL);
    assert_eq!(evicted_bytes(table) - before, given);
    assert_eq!(used - store.budget().used(), given);
    given
}

fn one(table: &Arc<Table>, at: i32) -> Option<RowId> {
    let view = table.view(table.store().txns().snapshot());
    view.lookup(KeyRef(&key(table, at))).unwrap()
}

#[test]
fn a_scan_finds_what_it_found_before() {
    let (_folder, store, table) = frozen();
    let view = table.view(store.txns().snapshot());
    let conditions = [
        Vec::new(),
        vec![compare(1, CompareOp::Eq, 17)],
        vec![compare(0, CompareOp::Lt, 300)],
        vec![Predicate::IsNull { attribute: 2 }],
        vec![
            compare(1, CompareOp::Lt, 100),
            compare(0, CompareOp::Gt, 9_000),
        ],
    ];
    for conditions in conditions {
        let expected = scan(&view, conditions.clone());
        assert!(!expected.is_empty());
        assert!(evict_all(&store, &table) > 0);
        assert_eq!(scan(&view, conditions), expected);
        // What is in memory now is not read again.
        let read = store.evictions().extents_read_back;
        assert_eq!(scan(&view, Vec::new()).len(), ROWS as usize);
        let more = store.evictions().extents_read_back - read;
        scan(&view, Vec::new());
        assert_eq!(store.evictions().extents_read_back - read, more);
    }
    let all = store.evictions();
    assert!(all.bytes_evicted >= all.bytes_read_back && all.bytes_read_back > 0);
    assert_eq!(all.worth.with_more(ALL), all.bytes_read_back);
}

/// What is not asked for stays where it is.
#[test]
fn only_what_is_wanted_comes_back() {
    let (_folder, store, table) = frozen();
    let view = table.view(store.txns().snapshot());
    let all = evict_all(&store, &table);
    let read = |projection: &[usize], predicates: Vec<Predicate>| {
        let spec = ScanSpec {
            projection: projection.to_vec(),
            predicates,
            ..ScanSpec::default()
        };
        let mut reader = view.scan(spec).unwrap().reader();
        let mut found = 0;
        while let Some(batch) = reader.next_batch().unwrap() {
            found += batch.num_rows();
        }
        (found, evicted_bytes(&table))
    };
    // Counting reads no value, nor does a condition that zones rule out.
    assert_eq!(read(&[], Vec::new()), (ROWS as usize, all));
    assert_eq!(
        read(&[0, 1, 2], vec![compare(0, CompareOp::Gt, 1 << 30)]),
        (0, all)
    );
    // No text is read where no row is left for it.
    let none = vec![compare(1, CompareOp::Gt, 5), compare(1, CompareOp::Lt, 5)];
    let (found, numbers) = read(&[2], none);
    assert!(
        found == 0 && numbers < all && numbers > all / 2,
        "{numbers} of {all}"
    );
    let (found, texts) = read(&[2], vec![compare(1, CompareOp::Eq, 5)]);
    assert!(found > 0 && texts < numbers, "{texts} of {numbers}");
}

#[test]
fn what_a_reader_holds_stays_and_is_paid_for() {
    let (_folder, store, table) = frozen();
    let view = table.view(store.txns().snapshot());
    let mut reader = view.scan(all(Vec::new())).unwrap().reader();
    let batch = reader.next_batch().unwrap().unwrap();
    let before = rows_of(&batch);
    let used = store.budget().used();
    let given = store.evict(ALL);
    assert_eq!(
        rows_of(&batch),
        before,
        "texts are views of the segment's bytes"
    );
    assert_eq!(used - store.budget().used(), given);
    // Wanted again while the batch has it: nothing is read, and nothing is charged twice.
    let again = scan(&view, Vec::new());
    assert_eq!(again.len(), ROWS as usize);
    assert!(store.budget().used() <= used);
    store.evict(ALL);
    assert_eq!(rows_of(&batch), before);
    let held = store.budget().used();
    drop((batch, reader));
    assert!(
        store.budget().used() < held,
        "the last reader gives it back"
    );
    assert_eq!(evict_all(&store, &table), 0);
    assert_eq!(scan(&view, Vec::new()), again);
}

/// Once memory has been short a pin has what was asked for alone.
#[test]
fn what_nobody_asked_for_goes_from_under_a_reader() {
    let (_folder, store, table) = frozen();
    evict_all(&store, &table);
    let directory = table.directory();
    let entry = &directory.entries()[0];
    drop(entry.pin_all(Access::Rows).unwrap());
    let bytes = entry.segment().extent_bytes();
    let pin = entry
        .pin(Access::Rows, |want| want.attributes([1]))
        .unwrap();
    store.evict(ALL);
    let wanted = (0..bytes.len()).filter(|&at| pin.has_extent(at));
    let wanted: u64 = wanted.map(|at| bytes[at]).sum();
    let all: u64 = bytes.iter().sum();
    assert!(wanted > 0 && wanted < all, "{wanted} of {all}");
    assert_eq!(entry.segment().evicted_bytes(), all - wanted);
    drop(pin);
    assert_eq!(entry.segment().evicted_bytes(), all);
}

#[test]
fn who_finds_all_memory_read_waits_for_it() {
    let (_folder, store, table) = frozen();
    load(&table, &rows(ROWS..5 * ROWS));
    table.freeze().unwrap();
    store.checkpoint().unwrap().unwrap();
    evict_all(&store, &table);
    let directory = table.directory();
    let [first, second] = [0, 1].map(|at| &directory.entries()[at]);
    let need = first
        .segment()
        .bytes_of_extents()
        .max(second.segment().bytes_of_extents());
    let budget = store.budget();
    budget.set_max(Some(ByteSize(budget.used() + need)));
    let reader = first.pin_all(Access::Rows).unwrap();
    // As long as somebody reads there is nothing to be had.
    let refused = second.pin_all(Access::Rows).unwrap_err();
    assert!(
        matches!(refused, StorageError::OutOfMemory(_)),
        "{refused:?}"
    );
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| second.pin_all(Access::Rows).map(drop));
        std::thread::sleep(std::time::Duration::from_millis(50));
        drop(reader);
        waiting.join().unwrap().unwrap();
    });
}

/// What was frozen lately has no image, and cannot go: who waits is a reason to write it.
#[test]
fn who_waits_has_a_checkpoint_made() {
    let (_folder, store, table) = frozen();
    evict_all(&store, &table);
    load(&table, &rows(ROWS..5 * ROWS));
    table.freeze().unwrap();
    let directory = table.directory();
    let first = &directory.entries()[0];
    let need = first.segment().bytes_of_extents();
    let budget = store.budget();
    budget.set_max(Some(ByteSize(budget.used() + need / 2)));
    assert!(first.segment().evicted_bytes() > 0, "it is to be read back");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| first.pin_all(Access::Rows).map(drop));
        while !store.is_waited_for() && !waiting.is_finished() {
            std::thread::yield_now();
        }
        assert!(store.wants_checkpoint(), "without an image nothing goes");
        store.checkpoint().unwrap().unwrap();
        waiting.join().unwrap().unwrap();
    });
    assert!(!store.is_waited_for());
}

/// Whatever is evicted while others read it back can be evicted again.
#[test]
fn nothing_stays_in_memory_for_good() {
    let (_folder, store, table) = frozen();
    let all = evict_all(&store, &table);
    let directory = table.directory();
    let entry = &directory.entries()[0];
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: [&[usize]; 4] = [&[0], &[1, 2], &[0, 1], &[0, 1, 2]];
        let readers = readers.map(|columns| {
            scope.spawn(move || {
                for _ in 0..8_000 {
                    let wanted = columns.iter().copied();
                    let pin = entry.pin(Access::Rows, |want| want.attributes(wanted));
                    drop(pin.unwrap());
                }
            })
        });
        let evictor = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                store.evict(ALL);
            }
        });
        readers
            .into_iter()
            .for_each(|reader| reader.join().unwrap());
        done.store(true, Ordering::Relaxed);
        evictor.join().unwrap();
    });
    store.evict(ALL);
    assert_eq!(evicted_bytes(&table), all);
}

/// Who collects all rows, as a sort does or a client that does not read, holds copies: the segments'
/// values come and go meanwhile.
#[test]
fn rows_that_are_collected_keep_nothing_in_memory() {
    let (_folder, store, table) = frozen();
    let all_bytes = evict_all(&store, &table);
    let used = store.budget().used();
    let view = table.view(store.txns().snapshot());
    let mut reader = view.scan(all(Vec::new())).unwrap().reader();
    let mut batches = Vec::new();
    while let Some(batch) = reader.next_batch().unwrap() {
        batches.push(batch);
        store.evict(ALL);
    }
    assert_eq!(evicted_bytes(&table), all_bytes);
    assert_eq!(store.budget().used(), used);
    let mut found: Vec<Row> = batches.iter().flat_map(rows_of).collect();
    found.sort();
    assert_eq!(found, rows(0..ROWS));
}

#[test]
fn points_and_changes_go_on() {
    let (_folder, store, table) = frozen();
    evict_all(&store, &table);
    assert!(one(&table, 77).is_some() && one(&table, ROWS).is_none());
    evict_all(&store, &table);
    // By each index.
    let view = table.view(store.txns().snapshot());
    let columns = [0, 1, 2];
    let rows_17 = rows(0..ROWS).into_iter().filter(|row| row.1 == 17).count();
    let reader = view.rows(&columns, true);
    let found = reader.rows_by_index(&[compare(1, CompareOp::Eq, 17)], 1_000);
    assert_eq!(found.unwrap().unwrap().len(), rows_17);
    drop(reader);
    // Who may not wait is told so, and nothing is read for it.
    evict_all(&store, &table);
    let read = store.evictions();
    let now = view.rows(&columns, false);
    let refused = now.row(KeyRef(&key(&table, 5)));
    assert!(matches!(
        refused,
        Err(StorageError::WouldWait { awaited: None })
    ));
    assert_eq!(store.evictions(), read);
    drop(now);

    let txn = store.txns().begin();
    let view = table.view(txn.snapshot().clone());
    let id = |at| view.lookup(KeyRef(&key(&table, at))).unwrap().unwrap();
    view.delete(&txn, &[id(3), id(19_000)]).unwrap();
    evict_all(&store, &table);
    let new = batch(&table, &[(40, -1, None), (41, -2, Some("new".to_owned()))]);
    assert_eq!(view.update(&txn, &[id(40), id(41)], &new).unwrap(), 2);
    evict_all(&store, &table);
    let twice = table.insert(&txn, &batch(&table, &[(1_000, 0, None)]));
    assert!(
        matches!(twice, Err(StorageError::UniqueViolation { .. })),
        "{twice:?}"
    );
    drop((view, txn));

    let txn = store.txns().begin();
    let view = table.view(txn.snapshot().clone());
    let id = |at| view.lookup(KeyRef(&key(&table, at))).unwrap().unwrap();
    view.delete(&txn, &[id(3)]).unwrap();
    view.update(&txn, &[id(40)], &batch(&table, &[(40, -1, None)]))
        .unwrap();
    load_with(&table, &txn, &[(-7, 7, None)]);
    drop(view);
    evict_all(&store, &table);
    txn.commit().unwrap();
    let mut expected = rows(0..ROWS);
    expected[40] = (40, -1, None);
    expected.remove(3);
    expected.insert(0, (-7, 7, None));
    assert_eq!(now_rows(&table), expected);
    // A merge of what is in front reads all of the base back, and has no image of its own yet.
    evict_all(&store, &table);
    table.freeze().unwrap();
    assert_eq!(now_rows(&table), expected);
    store.checkpoint().unwrap();
    evict_all(&store, &table);
    assert_eq!(now_rows(&table), expected);
}

fn load_with(table: &Table, txn: &aerostat_txn::Transaction, rows: &[Row]) {
    table.insert(txn, &batch(table, rows)).unwrap();
}

fn now_rows(table: &Arc<Table>) -> Vec<Row> {
    now(table)
}

fn images(folder: &Path) -> Vec<PathBuf> {
    let mut names = read_names(&folder.join("checkpoint"));
    names.retain(|path| path.extension().is_some_and(|own| own == "img"));
    names
}

#[test]
fn a_disk_that_fails_is_told_of_and_asked_again() {
    let (folder, store, table) = frozen();
    let expected = now_rows(&table);
    let view = table.view(store.txns().snapshot());
    let try_scan = || -> Result<usize, StorageError> {
        let mut reader = view.scan(all(Vec::new()))?.reader();
        let mut found = 0;
        while let Some(batch) = reader.next_batch()? {
            found += batch.num_rows();
        }
        Ok(found)
    };
    for image in images(folder.path()) {
        let bytes = fs::read(&image).unwrap();
        evict_all(&store, &table);
        let used = store.budget().used();
        // Gone, cut, and with a bit changed in every page.
        fs::remove_file(&image).unwrap();
        assert!(matches!(try_scan(), Err(StorageError::ReadBack(_))));
        fs::write(&image, &bytes[..bytes.len() / 2]).unwrap();
        assert!(matches!(try_scan(), Err(StorageError::ReadBack(_))));
        let mut other = bytes.clone();
        other
            .iter_mut()
            .skip(1_000)
            .step_by(4_096)
            .for_each(|byte| *byte ^= 4);
        fs::write(&image, &other).unwrap();
        let damaged = try_scan();
        let is_told = matches!(
            damaged,
            Err(StorageError::Segment(SegmentError::Corrupt(_)))
        );
        assert!(is_told, "{damaged:?}");
        // Nothing is charged for what did not come back.
        evict_all(&store, &table);
        assert_eq!(store.budget().used(), used);
        fs::write(&image, &bytes).unwrap();
        assert_eq!(try_scan().unwrap(), ROWS as usize);
    }
    assert_eq!(now_rows(&table), expected);
}

/// An old view reads values back that no manifest names any more.
#[test]
fn images_stay_as_long_as_somebody_may_read_from_them() {
    let (folder, store, table) = frozen();
    let old = table.view(store.txns().snapshot());
    let before = images(folder.path());
    assert!(!before.is_empty());
    evict_all(&store, &table);
    // The same rows in other segments, which are made of values that are read back.
    table.set_layout(&Layout::parse("row").unwrap()).unwrap();
    assert!(
        table
            .reshape(&CancelToken::new())
            .unwrap()
            .segments_replaced
            > 0
    );
    store.checkpoint().unwrap();
    assert!(before.iter().all(|path| path.exists()));
    assert_eq!(scan(&old, Vec::new()).len(), ROWS as usize);
    drop(old);
    load(&table, &rows(ROWS..ROWS + 10));
    store.checkpoint().unwrap();
    assert!(!before.iter().any(|path| path.exists()));
}

#[test]
fn a_tenant_opens_and_works_with_a_quarter_of_its_memory() {
    const TABLES: u32 = 12;
    let folder = memory_folder();
    let (store, _) = opened(folder.path(), 1 << 30);
    let layout = Layout::parse("column").unwrap();
    let mut tables = Vec::new();
    for id in 0..TABLES {
        let table = store.create_table(TableId(id), schema(true), &layout);
        let table = table.unwrap();
        load(&table, &rows(0..4_000));
        table.freeze().unwrap();
        tables.push(table);
    }
    store.checkpoint().unwrap();
    let used = store.budget().used();
    drop((store, tables));
    let (store, recovered) = opened(folder.path(), used / 4);
    for _ in 0..3 {
        for table in recovered.tables.values() {
            assert_eq!(now_rows(table), rows(0..4_000));
            assert!(store.budget().used() <= used / 4);
        }
        for table in recovered.tables.values() {
            assert!((0..4_000).step_by(997).all(|at| one(table, at).is_some()));
        }
        // What is written is hot, so it stays, and is little.
        let txn = store.txns().begin();
        for table in recovered.tables.values().take(2) {
            let view = table.view(txn.snapshot().clone());
            let id = view.lookup(KeyRef(&key(table, 5))).unwrap().unwrap();
            let row = &rows(5..6);
            assert_eq!(view.update(&txn, &[id], &batch(table, row)).unwrap(), 1);
        }
        txn.commit().unwrap();
    }
    let all = store.evictions();
    assert!(
        all.bytes_evicted > 2 * used && all.bytes_read_back > 2 * used,
        "{all:?}"
    );
    // A quarter more than there was of all would have been no worse than all.
    assert!(
        all.worth.with_more(2 * used) > all.bytes_read_back / 2,
        "{all:?}"
    );
}

#[test]
fn readers_and_writers_go_on_while_all_is_evicted_again_and_again() {
    let folder = memory_folder();
    let options = options();
    let budget = Governor::new("1GB".parse().unwrap()).budget("test", None);
    let (store, _) = TenantStore::open(TenantId(1), budget, folder.path(), &options).unwrap();
    let layout = Layout::parse("(k,n),(s)").unwrap();
    let table = store
        .create_table(TableId(7), schema(true), &layout)
        .unwrap();
    load(&table, &rows(0..6_000));
    table.freeze().unwrap();
    store.checkpoint().unwrap();
    let expected: i64 = rows(0..6_000).iter().map(|row| row.1).sum();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let evictor = scope.spawn(|| {
            let mut given = 0;
            while !done.load(Ordering::Relaxed) {
                given += store.evict(ALL);
                std::thread::yield_now();
            }
            given
        });
        let freezer = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                table.freeze().unwrap();
                store.checkpoint().unwrap();
            }
        });
        let readers: Vec<_> = (0..3)
            .map(|nth| {
                let (store, table) = (&store, &table);
                scope.spawn(move || {
                    for round in 0..30 {
                        let view = table.view(store.txns().snapshot());
                        let found = scan(&view, Vec::new());
                        let sum: i64 = found.values().map(|(row, _)| row.1).sum();
                        assert_eq!((found.len(), sum), (6_000, expected), "{nth}, {round}");
                        let texts = rows(0..6_000);
                        assert!(
                            found
                                .values()
                                .zip(&texts)
                                .all(|((row, _), own)| row.2 == own.2)
                        );
                        for at in (nth..6_000).step_by(701) {
                            let found = view.lookup(KeyRef(&key(table, at))).unwrap();
                            assert!(found.is_some(), "{at}");
                        }
                    }
                })
            })
            .collect();
        // Rows change places, and stay the same.
        for round in 0..60 {
            let txn = store.txns().begin();
            let view = table.view(txn.snapshot().clone());
            let keys: Vec<i32> = (round..6_000).step_by(607).collect();
            let ids: Vec<RowId> = keys
                .iter()
                .map(|at| view.lookup(KeyRef(&key(&table, *at))).unwrap().unwrap())
                .collect();
            let new: Vec<Row> = keys.iter().flat_map(|at| rows(*at..at + 1)).collect();
            view.update(&txn, &ids, &batch(&table, &new)).unwrap();
            drop(view);
            txn.commit().unwrap();
        }
        for reader in readers {
            reader.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        freezer.join().unwrap();
        assert!(evictor.join().unwrap() > 0);
    });
    assert_eq!(now_rows(&table), rows(0..6_000));
    let expected = now_rows(&table);
    drop((store, table));
    let (store, recovered) = open(folder.path());
    assert_eq!(now(&recovered.tables[&TableId(7)]), expected);
    drop(store);
}
