//! Tables whose layout changes while they are used: everybody sees the same rows before,
//! during and after, and a reshape that was stopped goes on.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use aerostat_txn::CancelToken;
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};

use super::*;

const LAYOUTS: [&str; 6] = [
    "row",
    "column",
    "(k,s),(n)",
    "(n,k),(s)",
    "(s,n,k)",
    "(s),(k,n)",
];

fn row(key: i32) -> Row {
    (key, i64::from(key) % 7, Some(format!("text {}", key % 10)))
}

/// Texts that are all different.
fn wide(keys: std::ops::Range<i32>) -> Vec<Row> {
    keys.map(|key| (key, 0, Some(format!("{key:01000}"))))
        .collect()
}

fn set_layout(table: &Table, layout: &str) {
    table.set_layout(&Layout::parse(layout).unwrap()).unwrap();
}

fn reshape(table: &Table) -> ReshapeReport {
    table.reshape(&CancelToken::new()).unwrap()
}

/// The layouts that segments have.
fn layouts(table: &Table) -> BTreeSet<String> {
    let segments = table.segments().into_iter();
    segments.map(|segment| segment.layout.to_string()).collect()
}

/// Deletes keys and commits.
fn delete(table: &Arc<Table>, keys: impl Iterator<Item = i32>) {
    let txn = table.store().txns().begin();
    let view = table.view(txn.snapshot().clone());
    let ids: Vec<RowId> = keys
        .map(|at| view.lookup(KeyRef(&key(table, at))).unwrap().unwrap())
        .collect();
    assert_eq!(view.delete(&txn, &ids).unwrap(), ids.len() as u64);
    drop(view);
    txn.commit().unwrap();
}

#[test]
fn every_layout_becomes_every_other() {
    for keyed in [true, false] {
        for freezes in [false, true] {
            let store = tenant("1GB", ArenaSizes::of(&TINY));
            let layout = Layout::parse(LAYOUTS[0]).unwrap();
            let table = store
                .create_table(TableId(9), schema(keyed), &layout)
                .unwrap();
            let rows: Vec<Row> = (0..900).map(row).collect();
            for part in rows.chunks(200) {
                load(&table, part);
            }
            if freezes {
                table.freeze().unwrap();
            }
            let old = table.view(store.txns().snapshot());
            for layout in LAYOUTS.iter().cycle().skip(1).take(7) {
                let before = table.statistics();
                assert_eq!(before.segments_in_shape, before.segments);
                set_layout(&table, layout);
                assert_eq!(table.layout().to_string(), *layout);
                assert_eq!(table.statistics().segments_in_shape, 0);
                let report = reshape(&table);
                let after = table.statistics();
                assert_eq!(
                    (report.segments_replaced, report.segments_left),
                    (before.segments, 0)
                );
                assert_eq!((report.rows, after.rows), (900, 900));
                assert_eq!(after.segments_in_shape, after.segments);
                assert_eq!(
                    after.segments, before.segments,
                    "{layout}: no segment is cut"
                );
                assert_eq!(after.rows_frozen, before.rows_frozen);
                assert_eq!(after.bytes_raw, before.bytes_raw);
                assert_eq!(layouts(&table), BTreeSet::from([(*layout).to_owned()]));
                assert_eq!(now(&table), rows);
                assert_eq!(reshape(&table), ReshapeReport::default(), "it is done");
            }
            let seen = scan(&old, Vec::new()).into_values().map(|found| found.0);
            assert_eq!(seen.collect::<Vec<_>>(), rows);
            drop(old);
            assert_eq!(store.budget().used(), table.statistics().bytes_reserved);
        }
    }
}

/// A segment that is full stays one: an arena has room for the same in every layout.
#[test]
fn full_segments_are_not_cut() {
    let store = tenant("1GB", ArenaSizes::of(&TINY));
    let table = table(&store, "row");
    // One after the other, so that each segment is filled to its last row.
    for from in (0..4_000).step_by(100) {
        load(
            &table,
            &(from..from + 100)
                .map(|key| (key, 1, None))
                .collect::<Vec<_>>(),
        );
    }
    let full = |table: &Table| {
        let segments = table.segments();
        segments
            .iter()
            .filter(|one| one.rows == one.capacity)
            .count()
    };
    let (segments, rows) = (table.segments().len(), now(&table));
    assert!(full(&table) >= segments - 1 && segments > 3);
    for layout in LAYOUTS {
        set_layout(&table, layout);
        reshape(&table);
        assert_eq!(table.segments().len(), segments, "{layout}");
        assert!(full(&table) >= segments - 1, "{layout}");
        assert_eq!(now(&table), rows);
    }
    // And there is as much room for what comes.
    load(&table, &[(4_000, 1, None)]);
    assert_eq!(table.segments().len(), segments);
}

#[test]
fn what_a_table_lacks_is_no_layout_of_it() {
    let table = tiny_table();
    load(&table, &[row(1)]);
    for layout in ["(k,x)", "(k),(k)"] {
        let refused = table.set_layout(&Layout::parse(layout).unwrap());
        assert!(matches!(refused, Err(StorageError::Layout(_))), "{layout}");
    }
    assert_eq!(table.layout().to_string(), "(k,s),(n)");
    assert_eq!(table.statistics().segments_in_shape, 1);
}

/// Rows of unfinished transactions, and their marks on others' rows, go where rows go.
#[test]
fn transactions_find_their_rows_in_the_new_shape() {
    for freezes in [false, true] {
        let table = tiny_table();
        load(&table, &(0..200).map(row).collect::<Vec<_>>());
        if freezes {
            table.freeze().unwrap();
        }
        let txns = table.store().txns();
        let (one, other, late) = (txns.begin(), txns.begin(), txns.begin());
        table.insert(&one, &batch(&table, &[row(1_000)])).unwrap();
        table.insert(&other, &batch(&table, &[row(1_001)])).unwrap();
        let end = |txn: &aerostat_txn::Transaction, wanted: i32| {
            let view = table.view(txn.snapshot().clone());
            let id = view.lookup(KeyRef(&key(&table, wanted))).unwrap().unwrap();
            assert_eq!(view.delete(txn, &[id]).unwrap(), 1);
        };
        end(&one, 7);
        end(&other, 8);
        // A row id from before the change.
        let view = table.view(late.snapshot().clone());
        let id = view.lookup(KeyRef(&key(&table, 9))).unwrap().unwrap();
        for layout in ["column", "row"] {
            set_layout(&table, layout);
            assert_eq!(reshape(&table).segments_left, 0);
            assert_eq!(layouts(&table), BTreeSet::from([layout.to_owned()]));
        }
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
    }
}

/// A snapshot that is older than everything in front of a base is in the way of neither.
#[test]
fn bases_are_built_anew_under_what_is_in_front_of_them() {
    let table = tiny_table();
    load(&table, &(0..300).map(row).collect::<Vec<_>>());
    let old = table.view(table.store().txns().snapshot());
    table.freeze().unwrap();
    // More than an arena has room for, so that several segments share the base.
    for part in 0..4 {
        load(&table, &wide(1_000 + part * 30..1_030 + part * 30));
        load(&table, &wide(-1_030 + part * 30..-1_000 + part * 30));
    }
    delete(&table, (0..300).step_by(3));
    let before = (now(&table), table.statistics());
    let described = table.segments();
    let bases = described.iter().filter(|segment| segment.is_base).count();
    assert!(bases == 1 && described.len() > 4, "{described:?}");
    set_layout(&table, "column");
    let report = reshape(&table);
    let after = table.statistics();
    assert_eq!(
        (report.segments_left, after.segments),
        (0, before.1.segments)
    );
    assert_eq!(after.rows_frozen, before.1.rows_frozen);
    assert_eq!(now(&table), before.0);
    let seen = scan(&old, Vec::new()).into_values().map(|found| found.0);
    assert_eq!(
        seen.collect::<Vec<_>>(),
        (0..300).map(row).collect::<Vec<_>>()
    );
}

/// A base whose rows are all garbage goes, and what is in front of it stays.
#[test]
fn garbage_is_left_behind() {
    for keeps in [false, true] {
        let table = tiny_table();
        load(&table, &(0..300).map(row).collect::<Vec<_>>());
        table.freeze().unwrap();
        if keeps {
            load(
                &table,
                &(100..103).map(|key| row(key * 10)).collect::<Vec<_>>(),
            );
        }
        delete(&table, 0..300);
        set_layout(&table, "row");
        assert_eq!(reshape(&table).segments_left, 0);
        let rows: Vec<Row> = (100..103)
            .filter(|_| keeps)
            .map(|key| row(key * 10))
            .collect();
        assert_eq!(now(&table), rows);
        let stats = table.statistics();
        assert_eq!((stats.rows_dead, stats.segments_frozen), (0, 0));
        assert_eq!(stats.segments, u64::from(keeps));
        load(&table, &[row(5)]);
        assert_eq!(now(&table).len(), rows.len() + 1);
    }
}

#[test]
fn a_cancelled_reshape_goes_on() {
    let table = tiny_table();
    for part in wide(0..200).chunks(20) {
        load(&table, part);
    }
    let rows = now(&table);
    let all = table.statistics().segments;
    set_layout(&table, "column");
    let cancelled = CancelToken::new();
    cancelled.cancel();
    assert!(matches!(
        table.reshape(&cancelled),
        Err(StorageError::Cancelled)
    ));
    assert_eq!(table.statistics().segments_in_shape, 0);
    // Cancelled by another thread, wherever it is then.
    let cancel = CancelToken::new();
    thread::scope(|scope| {
        let reshaping = scope.spawn(|| table.reshape(&cancel));
        while table.statistics().segments_in_shape == 0 {
            thread::yield_now();
        }
        cancel.cancel();
        match reshaping.join().unwrap() {
            Ok(report) => assert_eq!(report.segments_left, 0),
            Err(StorageError::Cancelled) => {}
            Err(error) => panic!("{error:?}"),
        }
    });
    let done = table.statistics().segments_in_shape;
    assert!(done > 0);
    assert_eq!(now(&table), rows);
    assert_eq!(reshape(&table).segments_replaced, all - done);
    assert_eq!(table.statistics().segments_in_shape, all);
    assert_eq!(now(&table), rows);
}

/// With memory for some copies only, as long as a view pins the old segments.
#[test]
fn without_memory_some_segments_stay_as_they_are() {
    for freezes in [false, true] {
        let store = tenant("1200KB", ArenaSizes::of(&TINY));
        let table = table(&store, "row");
        for part in wide(0..600).chunks(20) {
            load(&table, part);
            // Bit by bit, so that there are several.
            if freezes {
                table.freeze().unwrap();
            }
        }
        let rows = now(&table);
        let all = table.statistics().segments;
        let old = table.view(store.txns().snapshot());
        set_layout(&table, "column");
        let refused = table.reshape(&CancelToken::new());
        assert!(
            matches!(refused, Err(StorageError::OutOfMemory(_))),
            "{refused:?}"
        );
        let stats = table.statistics();
        assert!(
            stats.segments_in_shape > 0 && stats.segments_in_shape < all,
            "{stats:?}"
        );
        assert_eq!(now(&table), rows);
        assert_eq!(scan(&old, Vec::new()).len(), 600);
        // Both shapes take writes.
        delete(&table, (0..600).step_by(50));
        drop(old);
        assert_eq!(reshape(&table).segments_left, 0);
        assert_eq!(table.statistics().segments_in_shape, all);
        let left: Vec<Row> = rows.into_iter().filter(|row| row.0 % 50 > 0).collect();
        assert_eq!(now(&table), left);
        assert_eq!(store.budget().used(), table.statistics().bytes_reserved);
    }
}

#[test]
fn segments_are_described_one_by_one() {
    let table = tiny_table();
    load(&table, &(0..400).map(row).collect::<Vec<_>>());
    table.freeze().unwrap();
    load(&table, &[(1_150, 1, Some("text in front".to_owned()))]);
    set_layout(&table, "column");
    let stats = table.statistics();
    let all = table.segments();
    assert_eq!(all.len() as u64, stats.segments);
    assert_eq!(all.iter().map(|one| one.rows).sum::<u64>(), stats.rows);
    assert_eq!(
        all.iter().map(|one| one.bytes_used).sum::<u64>(),
        stats.bytes_used
    );
    let raw = all.iter().flat_map(|one| &one.attributes);
    assert_eq!(raw.map(|one| one.bytes_raw).sum::<u64>(), stats.bytes_raw);
    let frozen = &all[0];
    assert_eq!((frozen.lower.as_deref(), frozen.is_frozen), (None, true));
    assert_eq!(
        (frozen.layout.to_string().as_str(), frozen.is_in_shape),
        ("(k,s),(n)", false)
    );
    let text: u64 = (0..400).map(|key| row(key).2.unwrap().len() as u64).sum();
    let raw: Vec<u64> = frozen.attributes.iter().map(|one| one.bytes_raw).collect();
    assert_eq!(raw, [1_600, 3_200, text]);
    let codes = frozen
        .attributes
        .iter()
        .map(|one| (one.encoding.to_string(), one.encoding.code_bits));
    let expected = [
        ("frame of reference", 9),
        ("frame of reference", 3),
        ("dictionary", 4),
    ];
    assert_eq!(
        codes.collect::<Vec<_>>(),
        expected.map(|(name, bits)| (name.to_owned(), bits))
    );
    let front = &all[1];
    assert_eq!(
        (front.is_frozen, front.is_base, front.is_in_shape),
        (false, false, false)
    );
    assert_eq!(front.attributes[2].bytes_raw, 13);
    assert_eq!(front.lower.as_deref(), Some("(1150)"));
    // A key below all of the frozen ones goes in front of them.
    load(&table, &[(-1, 1, None)]);
    let all = table.segments();
    assert_eq!(
        (all[0].is_base, all[1].is_base, all.len()),
        (true, false, 3)
    );
    assert_eq!(all[1].layout, Layout::Column);
    assert!(all[1].is_in_shape && all[1].lower.is_none() && all[0].lower.is_none());
    assert_eq!(all[1].attributes[2].bytes_raw, 0);
}

/// Writers, readers, snapshots held for long, a freezer and layouts that change all the
/// time: every reader sees the same sum, every key has one row, and row ids lead to their
/// rows wherever those have gone.
#[test]
fn reshaping_disturbs_nobody() {
    const KEYS: i32 = 300;
    const SEED: u64 = 11;
    let table = tiny_table();
    load(
        &table,
        &(0..KEYS).map(|key| (key, 100, None)).collect::<Vec<_>>(),
    );
    let stop = AtomicBool::new(false);
    let total = |rows: Vec<Row>| {
        assert_eq!(rows.len(), KEYS as usize);
        assert_eq!(
            rows.iter().map(|row| row.1).sum::<i64>(),
            100 * i64::from(KEYS)
        );
    };
    let reshaped = thread::scope(|scope| {
        let reshaper = scope.spawn(|| {
            let mut random = StdRng::seed_from_u64(SEED);
            let mut replaced = 0;
            while !stop.load(Ordering::Acquire) {
                set_layout(&table, LAYOUTS.choose(&mut random).unwrap());
                replaced += reshape(&table).segments_replaced;
                thread::yield_now();
            }
            replaced
        });
        scope.spawn(|| {
            while !stop.load(Ordering::Acquire) {
                table.freeze().unwrap();
                thread::yield_now();
            }
        });
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    // The same snapshot through an old view and new ones.
                    let snapshot = table.store().txns().snapshot();
                    let view = table.view(snapshot.clone());
                    for _ in 0..5 {
                        total(contents(&table, snapshot.clone()));
                        let seen = scan(&view, Vec::new()).into_values();
                        total(seen.map(|found| found.0).collect());
                        thread::yield_now();
                    }
                }
            });
        }
        let writers: Vec<_> = (0..2)
            .map(|seed| {
                let table = &table;
                scope.spawn(move || {
                    let mut random = StdRng::seed_from_u64(SEED + 1 + seed);
                    let mut done = 0;
                    while done < 200 {
                        done += u32::from(transfer(table, KEYS, &mut random));
                    }
                })
            })
            .collect();
        let finished: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        stop.store(true, Ordering::Release);
        finished.into_iter().for_each(|writer| writer.unwrap());
        reshaper.join().unwrap()
    });
    assert!(reshaped > 0, "seed {SEED}");
    assert_eq!(reshape(&table).segments_left, 0);
    table.freeze().unwrap();
    let stats = table.statistics();
    assert_eq!(
        (stats.rows_frozen, stats.rows, stats.segments_in_shape),
        (KEYS as u64, KEYS as u64, stats.segments),
        "seed {SEED}: {stats:?}"
    );
}

/// Moves one from a key to another, or deletes and inserts one anew; `false` when somebody
/// was first, or it was rolled back.
fn transfer(table: &Arc<Table>, keys: i32, random: &mut StdRng) -> bool {
    let (from, by) = (random.random_range(0..keys), random.random_range(1..keys));
    let pair = [from, (from + by) % keys];
    let txn = table.store().txns().begin();
    let view = table.view(txn.snapshot().clone());
    let ids = pair.map(|at| view.lookup(KeyRef(&key(table, at))).unwrap().unwrap());
    let old = rows_of(&view.fetch(&ids, &[0, 1, 2]).unwrap());
    if random.random_bool(0.3) {
        thread::yield_now();
    }
    let text = Some("x".repeat(random.random_range(0..60)));
    let new = [
        (pair[0], old[0].1 - 1, text.clone()),
        (pair[1], old[1].1 + 1, text),
    ];
    let new = batch(table, &new);
    let written = if random.random_bool(0.5) {
        view.update(&txn, &ids, &new)
    } else {
        view.delete(&txn, &ids)
            .and_then(|_| table.insert(&txn, &new))
    };
    match written {
        Ok(2) if random.random_bool(0.9) => {
            txn.commit().unwrap();
            true
        }
        Ok(2) | Err(StorageError::Conflict | StorageError::Deadlock) => false,
        other => panic!("{other:?}"),
    }
}

/// Inserts by several threads while the layout changes: no row is lost or doubled.
#[test]
fn inserts_into_changing_layouts_lose_no_row() {
    let table = tiny_table();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut layouts = LAYOUTS.iter().cycle();
            while !stop.load(Ordering::Acquire) {
                set_layout(&table, layouts.next().unwrap());
                reshape(&table);
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

/// The log and checkpoints of a durable tenant speak of rows: they are the same in any
/// shape. The layout itself survives, before and after a checkpoint.
#[test]
fn a_layout_survives_and_so_do_the_rows() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let options = OpenOptions {
            sizes: Some(ArenaSizes::of(&TINY)),
            ..OpenOptions::default()
        };
        let budget = Governor::new("1GB".parse().unwrap()).budget("test", None);
        let (store, mut recovered) =
            TenantStore::open(TenantId(1), budget, folder.path(), &options).unwrap();
        let table = recovered.tables.remove(&TableId(7));
        (store, table)
    };
    let (mut store, _) = open();
    let mut table = table(&store, "row");
    let mut expected = Vec::new();
    for (nth, layout) in LAYOUTS.iter().cycle().skip(1).take(8).enumerate() {
        let rows: Vec<Row> = (0..100).map(|at| row(at * 10 + nth as i32)).collect();
        load(&table, &rows[..50]);
        set_layout(&table, layout);
        if nth % 2 == 0 {
            reshape(&table);
        }
        load(&table, &rows[50..]);
        if nth % 3 == 1 {
            table.freeze().unwrap();
        }
        expected.extend(rows);
        expected.sort();
        if nth % 4 > 1 {
            store.checkpoint().unwrap();
        }
        assert_eq!(now(&table), expected);
        drop((store, table));
        let (opened, found) = open();
        (store, table) = (opened, found.unwrap());
        assert_eq!(table.layout().to_string(), *layout, "change {nth}");
        assert_eq!(layouts(&table), BTreeSet::from([(*layout).to_owned()]));
        assert_eq!(now(&table), expected, "change {nth}");
    }
}

/// A layout by advice is kept by the next checkpoint, and by nothing before it; rows are there in any case.
#[test]
fn an_adopted_layout_is_the_next_checkpoints() {
    let folder = memory_folder();
    let opened = || recovery::open(folder.path());
    let adopt = |table: &Table, layout: &str| {
        table.adopt_layout(&Layout::parse(layout).unwrap()).unwrap();
    };
    let (store, _) = opened();
    let table = recovery::create(&store, 7, true);
    let first = table.layout().to_string();
    let mut expected: Vec<Row> = (0..300).map(row).collect();
    load(&table, &expected);
    table.freeze().unwrap();
    store.checkpoint().unwrap();
    let logged = store.log_bytes_written();
    adopt(&table, "row");
    reshape(&table);
    assert_eq!(
        store.log_bytes_written(),
        logged,
        "the log does not speak of it"
    );
    load(&table, &[row(1_000)]);
    expected.push(row(1_000));
    drop((store, table));
    let (store, recovered) = opened();
    let table = Arc::clone(&recovered.tables[&TableId(7)]);
    assert_eq!(
        (table.layout().to_string(), now(&table)),
        (first.clone(), expected.clone())
    );
    // With one, and with what comes after it, an index of the older layout's time among it.
    adopt(&table, "column");
    reshape(&table);
    store.checkpoint().unwrap();
    load(&table, &[row(1_001)]);
    expected.push(row(1_001));
    drop((store, table, recovered));
    let (store, recovered) = opened();
    let table = Arc::clone(&recovered.tables[&TableId(7)]);
    assert_eq!(
        (table.layout().to_string(), now(&table)),
        ("column".to_owned(), expected.clone())
    );
    // What a user chose since is the log's.
    set_layout(&table, &first);
    drop((store, table, recovered));
    let (_store, recovered) = opened();
    let table = &recovered.tables[&TableId(7)];
    assert_eq!((table.layout().to_string(), now(table)), (first, expected));
}
