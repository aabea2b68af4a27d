//! Frozen segments in tables: what is frozen, what goes in front, what it costs.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use rand::{Rng, SeedableRng, rngs::StdRng};

use super::*;

fn row(key: i32) -> Row {
    (key, i64::from(key) % 7, Some(format!("text {}", key % 10)))
}

/// Commits an update of some keys to a new number, and gives what the table then has.
fn set(table: &Arc<Table>, keys: &[i32], number: i64) {
    let txn = table.store().txns().begin();
    let view = table.view(txn.snapshot().clone());
    let ids: Vec<RowId> = keys
        .iter()
        .map(|&at| view.lookup(KeyRef(&key(table, at))).unwrap().unwrap())
        .collect();
    let rows: Vec<Row> = keys.iter().map(|&key| (key, number, None)).collect();
    assert_eq!(
        view.update(&txn, &ids, &batch(table, &rows)).unwrap(),
        keys.len() as u64
    );
    drop(view);
    txn.commit().unwrap();
}

#[test]
fn a_loaded_table_becomes_one_small_segment() {
    let store = tenant("1GB", ArenaSizes::default());
    for layout in ["column", "row", "(k,s),(n)"] {
        let table = table(&store, layout);
        let rows: Vec<Row> = (0..5_000).map(row).collect();
        for part in rows.chunks(700) {
            load(&table, part);
        }
        let hot = table.statistics();
        assert_eq!(
            (hot.segments_frozen, hot.rows_frozen, hot.bytes_frozen),
            (0, 0, 0)
        );
        let report = table.freeze().unwrap();
        let frozen = table.statistics();
        assert_eq!((frozen.segments, frozen.segments_frozen), (1, 1));
        assert_eq!(
            (frozen.rows, frozen.rows_frozen, frozen.rows_dead),
            (5_000, 5_000, 0)
        );
        assert_eq!(
            (report.rows, report.segments_made, report.postponed),
            (5_000, 1, 0)
        );
        assert_eq!(
            (report.segments_replaced, report.bytes_before),
            (hot.segments, hot.bytes_used)
        );
        assert_eq!(
            (frozen.bytes_used, report.bytes_after),
            (frozen.bytes_frozen, frozen.bytes_frozen)
        );
        assert_eq!(frozen.bytes_raw, hot.bytes_raw);
        assert!(frozen.bytes_used < frozen.bytes_raw / 3, "{frozen:?}");
        assert_eq!(store.budget().used(), frozen.bytes_used);
        assert_eq!(now(&table), rows);
        // There is nothing more to do, and nothing is done.
        assert_eq!(table.freeze().unwrap(), FreezeReport::default());
        drop(table);
        assert_eq!(store.budget().used(), 0);
    }
}

#[test]
fn rows_in_front_of_a_frozen_segment_are_found_and_merged() {
    let table = tiny_table();
    let even: Vec<Row> = (0..400).map(|at| row(at * 2)).collect();
    load(&table, &even);
    let old = table.view(table.store().txns().snapshot());
    table.freeze().unwrap();
    assert_eq!(table.statistics().rows_frozen, 400);
    // Keys between old ones, above them, and old ones that changed; some twice.
    load(
        &table,
        &(0..100).map(|at| row(at * 8 + 1)).collect::<Vec<_>>(),
    );
    load(&table, &(900..950).map(row).collect::<Vec<_>>());
    set(&table, &[2, 4, 400, 930], 50);
    set(&table, &[2, 1], 60);
    let txn = table.store().txns().begin();
    for taken in [0, 2, 1, 930] {
        let again = table.insert(&txn, &batch(&table, &[row(taken)]));
        assert!(
            matches!(again, Err(StorageError::UniqueViolation { .. })),
            "{taken}: {again:?}"
        );
    }
    txn.rollback();
    let before = now(&table);
    assert_eq!(before.len(), 550);
    assert_eq!(
        scan(&old, Vec::new())
            .into_values()
            .map(|found| found.0)
            .collect::<Vec<_>>(),
        even
    );
    let stats = table.statistics();
    assert!(
        stats.segments > stats.segments_frozen && stats.segments_frozen > 0,
        "{stats:?}"
    );
    // The old view is in the way of nothing but garbage.
    drop(old);
    let report = table.freeze().unwrap();
    assert_eq!((report.postponed, report.rows), (0, 550));
    let stats = table.statistics();
    assert_eq!(
        (stats.segments, stats.rows, stats.rows_dead),
        (stats.segments_frozen, 550, 0)
    );
    assert_eq!(now(&table), before);
    assert_eq!(table.store().budget().used(), stats.bytes_used);
}

#[test]
fn rows_too_new_stay_hot_and_their_transactions_find_them() {
    let table = tiny_table();
    load(&table, &(0..200).map(row).collect::<Vec<_>>());
    let (one, other) = (table.store().txns().begin(), table.store().txns().begin());
    table.insert(&one, &batch(&table, &[row(1_000)])).unwrap();
    table.insert(&other, &batch(&table, &[row(1_001)])).unwrap();
    let delete = |txn: &aerostat_txn::Transaction, wanted: i32| {
        let view = table.view(txn.snapshot().clone());
        let id = view.lookup(KeyRef(&key(&table, wanted))).unwrap().unwrap();
        assert_eq!(view.delete(txn, &[id]).unwrap(), 1);
    };
    delete(&one, 7);
    delete(&other, 8);
    // A row id from before the freeze.
    let late = table.store().txns().begin();
    let view = table.view(late.snapshot().clone());
    let id = view.lookup(KeyRef(&key(&table, 9))).unwrap().unwrap();
    table.freeze().unwrap();
    let stats = table.statistics();
    assert_eq!(
        (stats.segments, stats.segments_frozen, stats.rows_frozen),
        (2, 1, 200)
    );
    assert_eq!(view.delete(&late, &[id]).unwrap(), 1);
    drop(view);
    one.commit().unwrap();
    other.rollback();
    late.commit().unwrap();
    let keys: Vec<i32> = now(&table).into_iter().map(|row| row.0).collect();
    let expected: Vec<i32> = (0..200)
        .filter(|at| ![7, 9].contains(at))
        .chain([1_000])
        .collect();
    assert_eq!(keys, expected);
    // A snapshot that does not see the new row keeps it hot.
    table.freeze().unwrap();
    assert_eq!(table.statistics().rows_frozen, 199);
    assert_eq!(now(&table).len(), 199);
}

#[test]
fn the_background_step_leaves_alone_what_is_written() {
    let table = table(&tenant("1GB", ArenaSizes::default()), "column");
    load(&table, &(0..1_000).map(row).collect::<Vec<_>>());
    assert_eq!(
        table.freeze_due().unwrap().segments_made,
        0,
        "seen for the first time"
    );
    load(&table, &[row(5_000)]);
    assert_eq!(
        table.freeze_due().unwrap().segments_made,
        0,
        "written since"
    );
    assert_eq!(table.freeze_due().unwrap().rows, 1_001);
    load(&table, &[row(2_000)]);
    table.freeze_due().unwrap();
    assert_eq!(
        table.freeze_due().unwrap().segments_made,
        0,
        "one row is not worth a copy"
    );
    load(&table, &(6_000..6_300).map(row).collect::<Vec<_>>());
    table.freeze_due().unwrap();
    assert!(table.freeze_due().unwrap().rows > 0);
    assert_eq!(now(&table).len(), 1_302);
}

/// Each of both fits an arena; together their texts do not, whatever their encoding.
#[test]
fn what_is_too_much_for_one_segment_becomes_several() {
    let store = tenant("1GB", ArenaSizes::default());
    let table = table(&store, "column");
    let text = |key: i32| (key, 0, Some(format!("{key:030000}")));
    let even: Vec<Row> = (0..900).map(|at| text(at * 2)).collect();
    let odd: Vec<Row> = (0..300).map(|at| text(at * 6 + 1)).collect();
    load(&table, &even);
    assert_eq!(table.freeze().unwrap().segments_made, 1);
    load(&table, &odd);
    assert!(table.freeze().unwrap().segments_made >= 2);
    assert_eq!(table.statistics().rows_frozen, 1_200);
    let mut rows = [even, odd].concat();
    rows.sort();
    assert!(now(&table) == rows);
}

#[test]
fn tables_without_a_key_freeze_as_they_are() {
    let store = tenant("1GB", ArenaSizes::of(&TINY));
    let table = store
        .create_table(TableId(8), schema(false), &Layout::parse("column").unwrap())
        .unwrap();
    let rows: Vec<Row> = (0..600).map(|at| row(at % 5)).collect();
    for part in rows.chunks(90) {
        load(&table, part);
        table.freeze().unwrap();
    }
    let view = table.view(store.txns().snapshot());
    let scan = view.scan(all(Vec::new())).unwrap();
    let mut found = Vec::new();
    let mut reader = scan.reader();
    while let Some(batch) = reader.next_batch().unwrap() {
        found.extend(rows_of(&batch));
    }
    assert_eq!(found, rows);
    let stats = table.statistics();
    assert_eq!(
        (stats.rows_frozen, stats.segments),
        (600, stats.segments_frozen)
    );
}

#[test]
fn without_memory_for_the_copy_the_table_stays_hot() {
    let store = tenant("1MB", ArenaSizes::of(&[1 << 20]));
    let table = table(&store, "column");
    // Texts that are all different, so that the copy is not much smaller.
    let rows: Vec<Row> = (0..600)
        .map(|key| (key, 0, Some(format!("{key:01000}"))))
        .collect();
    load(&table, &rows);
    let used = store.budget().used();
    assert!(matches!(table.freeze(), Err(StorageError::OutOfMemory(_))));
    assert_eq!(
        (store.budget().used(), table.statistics().segments_frozen),
        (used, 0)
    );
    assert_eq!(now(&table), rows);
}

/// Nothing else makes them smaller: refused for want of memory, they would have it for good.
#[test]
fn rows_that_take_all_memory_are_frozen() {
    let store = tenant("4MB", ArenaSizes::of(&[128 << 10]));
    let table = table(&store, "column");
    let rows: Vec<Row> = (0..)
        .map(row)
        .take_while(|row| {
            let txn = store.txns().begin();
            let added = table.insert(&txn, &batch(&table, std::slice::from_ref(row)));
            added.is_ok() && txn.commit().is_ok()
        })
        .collect();
    let full = store.budget().used();
    assert!(store.budget().available() < 64 << 10);
    let report = table.freeze().unwrap();
    assert_eq!((report.rows, report.postponed), (rows.len() as u64, 0));
    assert!(store.budget().used() < full / 2);
    assert_eq!(now(&table), rows);
}

#[test]
fn garbage_in_front_leaves_the_base_reachable() {
    let table = tiny_table();
    load(&table, &(0..300).map(row).collect::<Vec<_>>());
    table.freeze().unwrap();
    // Wide rows around, so that the segment in front is cut; then all of them go.
    let wide = |at: i32| (at, 1, Some(format!("{at:0800}")));
    for at in 0..3 {
        load(
            &table,
            &(0..40).map(|n| wide(-1 - n * 3 - at)).collect::<Vec<_>>(),
        );
        set(&table, &(0..100).map(|n| n * 3 + at).collect::<Vec<_>>(), 9);
    }
    assert!(table.statistics().segments > 2);
    let txn = table.store().txns().begin();
    let view = table.view(txn.snapshot().clone());
    let ids: Vec<RowId> = scan(&view, vec![compare(0, CompareOp::Lt, 0)])
        .into_values()
        .map(|(_, id)| id)
        .collect();
    assert_eq!(view.delete(&txn, &ids).unwrap(), 120);
    drop(view);
    txn.commit().unwrap();
    table.vacuum().unwrap();
    assert_eq!(now(&table).len(), 300);
    for at in 0..300 {
        let view = table.view(table.store().txns().snapshot());
        assert!(
            view.lookup(KeyRef(&key(&table, at))).unwrap().is_some(),
            "{at}"
        );
    }
    table.freeze().unwrap();
    assert_eq!(now(&table).len(), 300);
}

/// Writers, readers and a freezer at once: every reader sees the same sum, every key has
/// one row, and row ids lead to their rows wherever those have gone.
#[test]
fn a_freezer_disturbs_nobody() {
    const KEYS: i32 = 300;
    let table = tiny_table();
    load(
        &table,
        &(0..KEYS).map(|key| (key, 100, None)).collect::<Vec<_>>(),
    );
    let stop = AtomicBool::new(false);
    let frozen = thread::scope(|scope| {
        let freezer = scope.spawn(|| {
            let mut made = 0;
            while !stop.load(Ordering::Acquire) {
                made += table.freeze().unwrap().segments_made;
                thread::yield_now();
            }
            made
        });
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    let rows = now(&table);
                    assert_eq!(rows.len(), KEYS as usize);
                    assert_eq!(
                        rows.iter().map(|row| row.1).sum::<i64>(),
                        100 * i64::from(KEYS)
                    );
                    thread::yield_now();
                }
            });
        }
        let writers: Vec<_> = (0..3)
            .map(|seed| {
                scope.spawn({
                    let table = &table;
                    move || {
                        let mut random = StdRng::seed_from_u64(seed);
                        let mut done = 0;
                        while done < 300 {
                            let (from, by) =
                                (random.random_range(0..KEYS), random.random_range(1..KEYS));
                            let to = (from + by) % KEYS;
                            let txn = table.store().txns().begin();
                            let view = table.view(txn.snapshot().clone());
                            let ids = [from, to]
                                .map(|at| view.lookup(KeyRef(&key(table, at))).unwrap().unwrap());
                            let old = rows_of(&view.fetch(&ids, &[0, 1, 2]).unwrap());
                            if random.random_bool(0.3) {
                                thread::yield_now();
                            }
                            let text = Some("x".repeat(random.random_range(0..60)));
                            let new =
                                [(from, old[0].1 - 1, text.clone()), (to, old[1].1 + 1, text)];
                            match view.update(&txn, &ids, &batch(table, &new)) {
                                Ok(2) if random.random_bool(0.9) => drop(txn.commit().unwrap()),
                                Ok(2) | Err(StorageError::Conflict | StorageError::Deadlock) => {
                                    continue;
                                }
                                other => panic!("{other:?}"),
                            }
                            done += 1;
                        }
                    }
                })
            })
            .collect();
        let finished: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        stop.store(true, Ordering::Release);
        finished.into_iter().for_each(|writer| writer.unwrap());
        freezer.join().unwrap()
    });
    assert!(frozen > 0);
    table.freeze().unwrap();
    let stats = table.statistics();
    assert_eq!(
        (stats.rows_frozen, stats.rows),
        (KEYS as u64, KEYS as u64),
        "{stats:?}"
    );
}

/// Inserts into frozen ranges by several threads, with a freezer: no row is lost or doubled.
#[test]
fn inserts_into_frozen_ranges_lose_no_row() {
    let table = tiny_table();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Acquire) {
                table.freeze().unwrap();
                thread::yield_now();
            }
        });
        let writers: Vec<_> = (0..3)
            .map(|thread| {
                let table = &table;
                scope.spawn(move || {
                    for round in 0..60 {
                        let keys = (0..20).map(|at| at * 1_000 + round * 8 + thread);
                        load(
                            table,
                            &keys
                                .map(|key| (key, 0, Some(format!("{key:040}"))))
                                .collect::<Vec<_>>(),
                        );
                        let txn = table.store().txns().begin();
                        let again = batch(table, &[(round * 8 + thread, 1, None)]);
                        let error = table.insert(&txn, &again).unwrap_err();
                        assert!(
                            matches!(error, StorageError::UniqueViolation { .. }),
                            "{error:?}"
                        );
                    }
                })
            })
            .collect();
        let finished: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        stop.store(true, Ordering::Release);
        finished.into_iter().for_each(|writer| writer.unwrap());
    });
    let found: Vec<i32> = now(&table).into_iter().map(|row| row.0).collect();
    let expected: Vec<i32> = (0..20_000)
        .filter(|key| key % 1_000 < 480 && key % 1_000 % 8 < 3)
        .collect();
    assert_eq!(found, expected);
}

/// Under a snapshot that is held, what was written since cannot be frozen: nothing is built
/// again and again for nothing, and the old rows stay where they are seen.
#[test]
fn a_held_snapshot_makes_no_work() {
    let table = tiny_table();
    let rows: Vec<Row> = (0..200).map(row).collect();
    load(&table, &rows);
    table.freeze().unwrap();
    let held = table.view(table.store().txns().snapshot());
    let keys: Vec<i32> = (0..150).collect();
    set(&table, &keys, 50);
    let before = table.statistics();
    let report = table.freeze().unwrap();
    assert_eq!((report.segments_made, report.postponed > 0), (0, true));
    let after = table.statistics();
    assert_eq!(
        (after.segments, after.rows, after.rows_frozen),
        (before.segments, before.rows, before.rows_frozen)
    );
    let seen = scan(&held, Vec::new()).into_values();
    assert_eq!(seen.map(|found| found.0).collect::<Vec<_>>(), rows);
    // Rows from before the snapshot are worth it, whatever came later.
    drop(held);
    let report = table.freeze().unwrap();
    assert_eq!((report.postponed, report.rows), (0, 200));
}
