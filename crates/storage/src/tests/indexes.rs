//! Secondary indexes in tables: the same rows however they are found, uniqueness under races, and
//! builds while others write.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    ops::Range,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use aerostat_memory::MemoryClass;
use aerostat_txn::CancelToken;
use aerostat_types::{IndexKind, TableIndex};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};

use super::*;

const KINDS: [IndexKind; 2] = [IndexKind::Hash, IndexKind::Ordered];

fn index(name: &str, kind: IndexKind, columns: &[usize], unique: bool) -> TableIndex {
    TableIndex {
        name: name.to_owned(),
        kind,
        columns: columns.to_vec(),
        unique,
        nulls_not_distinct: false,
    }
}

fn build(table: &Table, index: TableIndex) -> Result<ReshapeReport, StorageError> {
    table.create_index(&table.store().txns().begin(), index)
}

fn numbered(keys: Range<i32>) -> Vec<Row> {
    keys.map(|key| (key, i64::from(key) * 3, Some(format!("text {}", key % 7))))
        .collect()
}

/// The rows with a number, and how many segments an index found them in.
fn with_number(table: &Arc<Table>, number: i64) -> (Vec<Row>, usize) {
    let view = table.view(table.store().txns().snapshot());
    let scan = view
        .scan(all(vec![compare(1, CompareOp::Eq, number.into())]))
        .unwrap();
    let mut rows = Vec::new();
    let mut reader = scan.reader();
    while let Some(batch) = reader.next_batch().unwrap() {
        rows.extend(rows_of(&batch));
    }
    rows.sort();
    (rows, scan.counts().segments_by_index)
}

fn insert_one(table: &Table, row: Row) -> Result<(), StorageError> {
    let txn = table.store().txns().begin();
    table.insert(&txn, &batch(table, &[row]))?;
    txn.commit().unwrap();
    Ok(())
}

#[test]
fn a_scan_takes_the_way_that_few_rows_lie_on() {
    for kind in KINDS {
        let store = tenant("1GB", ArenaSizes::default());
        let table = table(&store, "(k,s),(n)");
        load(&table, &numbered(0..5_000));
        assert_eq!(with_number(&table, 300), (numbered(100..101), 0));
        let report = build(&table, index("t_n", kind, &[1], false)).unwrap();
        assert_eq!((report.segments_left, report.rows), (0, 5_000));
        assert_eq!(table.indexes(), [index("t_n", kind, &[1], false)]);
        let segments = table.statistics().segments as usize;
        assert_eq!(with_number(&table, 300), (numbered(100..101), segments));
        table.freeze().unwrap();
        assert_eq!(with_number(&table, 300), (numbered(100..101), 1));
        assert_eq!(with_number(&table, 301), (vec![], 1));
        // In front of the frozen segment, too.
        insert_one(&table, (9_000, 300, None)).unwrap();
        let mut both = numbered(100..101);
        both.push((9_000, 300, None));
        assert_eq!(with_number(&table, 300).0, both);
        let view = table.view(store.txns().snapshot());
        let range = |from: i128, to: i128| {
            vec![
                compare(1, CompareOp::Ge, from),
                compare(1, CompareOp::Lt, to),
            ]
        };
        assert_eq!(scan(&view, range(30, 60)).len(), 10);
        let few = view.scan(all(range(30, 60))).unwrap();
        let many = view.scan(all(range(0, 12_000))).unwrap();
        let by_index = usize::from(kind == IndexKind::Ordered);
        assert!(few.counts().segments_by_index >= by_index);
        assert_eq!(many.counts().segments_by_index, 0);
        assert!(
            build(&table, index("t_n", kind, &[1], false)).unwrap() == ReshapeReport::default()
        );
        let other = build(&table, index("t_n", kind, &[0], false));
        assert!(matches!(other, Err(StorageError::IndexExists { .. })));
        assert!(table.drop_index("t_n").unwrap() && !table.drop_index("t_n").unwrap());
        table.reshape(&CancelToken::new()).unwrap();
        assert_eq!(with_number(&table, 300), (both, 0));
        drop((view, few, many, table));
        assert_eq!(store.budget().used(), 0);
    }
}

/// Random writes, freezes, rewrites and indexes that come and go, against a map; snapshots
/// see what they saw.
#[test]
fn rows_are_the_same_with_and_without_indexes() {
    let mut by_index = 0;
    for seed in 0..8 {
        let mut random = StdRng::seed_from_u64(seed);
        let store = tenant("1GB", ArenaSizes::of(&TINY));
        let table = table(&store, ["row", "column", "(n,k),(s)"][seed as usize % 3]);
        let mut model: BTreeMap<i32, Row> = BTreeMap::new();
        let mut pinned: Vec<(TableView, BTreeMap<i32, Row>)> = Vec::new();
        for step in 0..70 {
            match random.random_range(0..12) {
                0..5 => write(&table, &mut model, &mut random),
                5 => drop(table.freeze().unwrap()),
                6 => drop(table.vacuum().unwrap()),
                7 if pinned.len() < 3 => {
                    pinned.push((table.view(store.txns().snapshot()), model.clone()));
                }
                7 => drop(pinned.remove(0)),
                8 => {
                    let columns = [vec![1], vec![2], vec![2, 1], vec![1, 0]];
                    let columns = columns.choose(&mut random).unwrap();
                    let kind = KINDS[random.random_range(0..2)];
                    let name = format!("i{}", random.random_range(0..3));
                    match build(&table, index(&name, kind, columns, false)) {
                        Ok(_) | Err(StorageError::IndexExists { .. }) => {}
                        Err(error) => panic!("seed {seed}: {error:?}"),
                    }
                }
                9 => {
                    let name = format!("i{}", random.random_range(0..3));
                    table.drop_index(&name).unwrap();
                }
                _ => {}
            }
            let view = table.view(store.txns().snapshot());
            for (view, model) in pinned.iter().map(|(view, model)| (view, model)) {
                by_index += check(
                    view,
                    model,
                    &mut random,
                    &format!("seed {seed} step {step}"),
                );
            }
            by_index += check(
                &view,
                &model,
                &mut random,
                &format!("seed {seed} step {step}"),
            );
        }
        drop((pinned, table));
        assert_eq!(store.budget().used(), 0, "seed {seed}");
    }
    assert!(by_index > 50, "indexes were used {by_index} times");
}

fn random_row(key: i32, random: &mut StdRng) -> Row {
    let text = match random.random_range(0..5) {
        0 => None,
        1 => Some(String::new()),
        2 => Some("long enough for the heap ".repeat(random.random_range(1..9))),
        _ => Some(format!("{}", random.random_range(0..9))),
    };
    (key, random.random_range(-20..20), text)
}

/// Inserts, updates or deletes some rows, and mostly commits.
fn write(table: &Arc<Table>, model: &mut BTreeMap<i32, Row>, random: &mut StdRng) {
    let txn = table.store().txns().begin();
    let view = table.view(txn.snapshot().clone());
    let mut after = model.clone();
    let keys: BTreeSet<i32> = (0..random.random_range(1..40))
        .map(|_| random.random_range(0..400))
        .collect();
    let (there, new): (Vec<i32>, Vec<i32>) =
        keys.into_iter().partition(|key| model.contains_key(key));
    let rows: Vec<Row> = new.iter().map(|&key| random_row(key, random)).collect();
    table.insert(&txn, &batch(table, &rows)).unwrap();
    after.extend(rows.into_iter().map(|row| (row.0, row)));
    let ids: Vec<RowId> = there
        .iter()
        .map(|&at| view.lookup(KeyRef(&key(table, at))).unwrap().unwrap())
        .collect();
    if random.random_bool(0.5) {
        view.delete(&txn, &ids).unwrap();
        after.retain(|key, _| !there.contains(key));
    } else {
        let rows: Vec<Row> = there.iter().map(|&key| random_row(key, random)).collect();
        view.update(&txn, &ids, &batch(table, &rows)).unwrap();
        after.extend(rows.into_iter().map(|row| (row.0, row)));
    }
    drop(view);
    if random.random_bool(0.85) {
        txn.commit().unwrap();
        *model = after;
    }
}

/// Predicates, and what they say of a row.
type Case<'a> = (Vec<Predicate>, &'a dyn Fn(&Row) -> bool);

/// Gives in how many segments an index found the rows.
fn check(
    view: &TableView,
    model: &BTreeMap<i32, Row>,
    random: &mut StdRng,
    context: &str,
) -> usize {
    let mut by_index = 0;
    let number = i128::from(random.random_range(-22..22));
    let text = format!("{}", random.random_range(0..9));
    let text_is = Predicate::Compare {
        attribute: 2,
        op: CompareOp::Eq,
        value: Literal::Bytes(text.clone().into_bytes()),
    };
    let is_number = |row: &Row| i128::from(row.1) == number;
    let is_text = |row: &Row| row.2.as_ref() == Some(&text);
    let has_null = |row: &Row| row.2.is_none() && i128::from(row.1) > number;
    let cases: [Case<'_>; 5] = [
        (vec![compare(1, CompareOp::Eq, number)], &is_number),
        (vec![text_is.clone()], &is_text),
        (vec![text_is, compare(1, CompareOp::Le, number)], &|row| {
            is_text(row) && i128::from(row.1) <= number
        }),
        (
            vec![
                Predicate::IsNull { attribute: 2 },
                compare(1, CompareOp::Gt, number),
            ],
            &has_null,
        ),
        (
            vec![
                compare(1, CompareOp::Ge, number),
                compare(1, CompareOp::Lt, number + 2),
                compare(0, CompareOp::Ge, 100),
            ],
            &|row| (number..number + 2).contains(&row.1.into()) && row.0 >= 100,
        ),
    ];
    for (predicates, holds) in cases.into_iter().skip(random.random_range(0..3)).step_by(3) {
        let scan = view.scan(all(predicates.clone())).unwrap();
        let mut found = Vec::new();
        let mut reader = scan.reader();
        while let Some(batch) = reader.next_batch().unwrap() {
            found.extend(rows_of(&batch));
        }
        found.sort();
        let expected: Vec<Row> = model.values().filter(|row| holds(row)).cloned().collect();
        assert_eq!(found, expected, "{context} {predicates:?}");
        by_index += scan.counts().segments_by_index;
    }
    by_index
}

#[test]
fn a_unique_index_refuses_equal_rows_wherever_they_are() {
    for kind in KINDS {
        let table = tiny_table();
        build(&table, index("t_n_s_key", kind, &[1, 2], true)).unwrap();
        let text = |text: &str| Some(text.to_owned());
        load(&table, &[(1, 10, text("x")), (500, 20, text("y"))]);
        let refused = |row: Row| match insert_one(&table, row) {
            Err(StorageError::UniqueViolation {
                constraint, detail, ..
            }) => (constraint, detail),
            other => panic!("{other:?}"),
        };
        let violation = |detail: &str| ("t_n_s_key".to_owned(), detail.to_owned());
        let exists = violation("Key (n, s)=(10, x) already exists.");
        for _ in 0..3 {
            assert_eq!(refused((2, 10, text("x"))), exists);
            // Into a segment of its own, far from the other.
            assert_eq!(refused((900, 10, text("x"))), exists);
            table.freeze().unwrap();
        }
        // NULL equals nothing.
        load(&table, &[(3, 10, None), (4, 10, None), (5, 10, text(""))]);
        let txn = table.store().txns().begin();
        let twice = table.insert(
            &txn,
            &batch(&table, &[(6, 1, text("z")), (7, 1, text("z"))]),
        );
        assert!(matches!(twice, Err(StorageError::UniqueViolation { .. })));
        drop(txn);
        // Old rows end before new ones come, so numbers can be swapped.
        let txn = table.store().txns().begin();
        let view = table.view(txn.snapshot().clone());
        let ids = [1, 500].map(|at| view.lookup(KeyRef(&key(&table, at))).unwrap().unwrap());
        let swapped = [(1, 20, text("y")), (500, 10, text("x"))];
        assert_eq!(
            view.update(&txn, &ids, &batch(&table, &swapped)).unwrap(),
            2
        );
        drop(view);
        txn.commit().unwrap();
        assert_eq!(refused((900, 20, text("y"))).0, "t_n_s_key");
        // What is deleted is free again.
        let txn = table.store().txns().begin();
        let view = table.view(txn.snapshot().clone());
        let id = view.lookup(KeyRef(&key(&table, 1))).unwrap().unwrap();
        view.delete(&txn, &[id]).unwrap();
        table
            .insert(&txn, &batch(&table, &[(901, 20, text("y"))]))
            .unwrap();
        drop(view);
        txn.commit().unwrap();
        assert!(table.drop_index("t_n_s_key").unwrap());
        insert_one(&table, (902, 20, text("y"))).unwrap();
    }
}

#[test]
fn who_comes_second_waits_for_the_first() {
    for commits in [true, false] {
        let table = tiny_table();
        build(&table, index("t_n_key", IndexKind::Ordered, &[1], true)).unwrap();
        load(&table, &numbered(0..400));
        table.freeze().unwrap();
        let first = table.store().txns().begin();
        table
            .insert(&first, &batch(&table, &[(1_000, 7, None)]))
            .unwrap();
        thread::scope(|scope| {
            let second = scope.spawn(|| insert_one(&table, (-1_000, 7, None)));
            if commits {
                first.commit().unwrap();
                assert!(matches!(
                    second.join().unwrap(),
                    Err(StorageError::UniqueViolation { .. })
                ));
            } else {
                first.rollback();
                second.join().unwrap().unwrap();
            }
        });
        assert_eq!(with_number(&table, 7).0.len(), 1);
    }
}

/// Threads insert the same numbers under keys of their own: each number is there once.
#[test]
fn of_threads_that_race_for_a_key_one_wins() {
    const THREADS: i32 = 6;
    const NUMBERS: i64 = 300;
    for kind in KINDS {
        let table = tiny_table();
        build(&table, index("t_n_key", kind, &[1], true)).unwrap();
        let wins = AtomicU64::new(0);
        let is_done = AtomicBool::new(false);
        thread::scope(|scope| {
            let writers: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (table, wins) = (&table, &wins);
                    scope.spawn(move || {
                        let mut random = StdRng::seed_from_u64(thread as u64);
                        for number in 0..NUMBERS {
                            let key = thread * 10_000 + random.random_range(0..5_000) * 2;
                            match insert_one(table, (key, number, None)) {
                                Ok(()) => drop(wins.fetch_add(1, Ordering::Relaxed)),
                                Err(StorageError::UniqueViolation { .. }) => {}
                                Err(error) => panic!("{error:?}"),
                            }
                        }
                    })
                })
                .collect();
            scope.spawn(|| {
                while !is_done.load(Ordering::Acquire) {
                    table.freeze().unwrap();
                    table.vacuum().unwrap();
                    thread::yield_now();
                }
            });
            // The other thread ends also where a writer has failed.
            let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            is_done.store(true, Ordering::Release);
            ended.into_iter().for_each(Result::unwrap);
        });
        let rows = now(&table);
        let numbers: HashSet<i64> = rows.iter().map(|row| row.1).collect();
        assert_eq!(rows.len() as u64, wins.load(Ordering::Relaxed));
        assert_eq!(numbers.len(), rows.len(), "a number is there twice");
        assert!(
            rows.len() as i64 > NUMBERS * 9 / 10,
            "nearly every number has a winner"
        );
    }
}

/// An index is built while threads insert, move and delete rows: if it succeeds all that is
/// there is unique and found, and if it fails the table goes on without.
#[test]
fn an_index_is_built_while_others_write() {
    for (round, unique) in [(0, false), (1, true), (2, true), (3, false), (4, true)] {
        let table = tiny_table();
        load(&table, &numbered(0..600));
        if round % 2 == 0 {
            table.freeze().unwrap();
        }
        let is_done = AtomicBool::new(false);
        let built = thread::scope(|scope| {
            for thread in 0..3 {
                let (table, is_done) = (&table, &is_done);
                scope.spawn(move || {
                    let mut random = StdRng::seed_from_u64(round * 10 + thread);
                    while !is_done.load(Ordering::Acquire) {
                        rewrite_one(table, &mut random, unique);
                    }
                });
            }
            let kind = KINDS[round as usize % 2];
            let built = build(&table, index("t_n_key", kind, &[1], unique));
            is_done.store(true, Ordering::Release);
            built
        });
        match built {
            Ok(report) => assert_eq!(report.segments_left, 0),
            Err(StorageError::IndexNotUnique { .. }) if unique => {
                assert_eq!(table.indexes(), []);
                continue;
            }
            Err(error) => panic!("{error:?}"),
        }
        let rows = now(&table);
        let mut counts: BTreeMap<i64, usize> = BTreeMap::new();
        for row in &rows {
            *counts.entry(row.1).or_default() += 1;
        }
        for (&number, &count) in &counts {
            assert!(!unique || count == 1, "{number} is there {count} times");
            assert_eq!(with_number(&table, number).0.len(), count);
        }
    }
}

/// Gives a row another number, now and then one that another row has.
fn rewrite_one(table: &Arc<Table>, random: &mut StdRng, unique: bool) {
    let txn = table.store().txns().begin();
    let view = table.view(txn.snapshot().clone());
    let wanted = random.random_range(0..700);
    let number = match random.random_range(0..200) {
        0 if unique => 9,
        _ => i64::from(random.random::<u32>()) + 10_000,
    };
    let row = (wanted, number, None);
    let result = match view.lookup(KeyRef(&key(table, wanted))).unwrap() {
        Some(id) if random.random_bool(0.2) => view.delete(&txn, &[id]),
        Some(id) => view.update(&txn, &[id], &batch(table, &[row])),
        None => table.insert(&txn, &batch(table, &[row])),
    };
    match result {
        Ok(_) => drop(txn.commit().unwrap()),
        Err(
            StorageError::Conflict | StorageError::UniqueViolation { .. } | StorageError::Deadlock,
        ) => {}
        Err(error) => panic!("{error:?}"),
    }
}

#[test]
fn equal_rows_keep_an_index_from_being_built() {
    for frozen in [false, true] {
        let table = tiny_table();
        let mut rows = numbered(0..500);
        rows[450].1 = rows[3].1;
        load(&table, &rows);
        if frozen {
            table.freeze().unwrap();
        }
        match build(&table, index("t_n_key", IndexKind::Ordered, &[1], true)) {
            Err(error @ StorageError::IndexNotUnique { .. }) => {
                assert_eq!(
                    error.to_string(),
                    "could not create unique index \"t_n_key\""
                );
                let StorageError::IndexNotUnique { detail, .. } = error else {
                    unreachable!()
                };
                assert_eq!(detail, "Key (n)=(9) is duplicated.");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(table.indexes(), []);
        assert_eq!(now(&table), rows);
        insert_one(&table, (9_999, 9, None)).unwrap();
        // Rows that only some snapshot sees are no obstacle.
        let old = table.view(table.store().txns().snapshot());
        let txn = table.store().txns().begin();
        let view = table.view(txn.snapshot().clone());
        let ids = [450, 9_999].map(|at| view.lookup(KeyRef(&key(&table, at))).unwrap().unwrap());
        view.delete(&txn, &ids).unwrap();
        drop(view);
        txn.commit().unwrap();
        build(&table, index("t_n_key", IndexKind::Ordered, &[1], true)).unwrap();
        let nine = scan(&old, vec![compare(1, CompareOp::Eq, 9)]);
        assert_eq!(nine.keys().copied().collect::<Vec<_>>(), [3, 450, 9_999]);
    }
}

#[test]
fn lack_of_memory_and_cancellation_leave_no_index() {
    let store = tenant("3MB", ArenaSizes::of(&TINY));
    let table = table(&store, "column");
    load(&table, &numbered(0..20_000));
    let rest = store.budget().used();
    let hoard = store
        .budget()
        .reserve(MemoryClass::Hot, (3 << 20) - rest - (64 << 10))
        .unwrap();
    let result = build(&table, index("t_n", IndexKind::Ordered, &[1], false));
    assert!(
        matches!(result, Err(StorageError::OutOfMemory(_))),
        "{result:?}"
    );
    assert_eq!(table.indexes(), []);
    drop(hoard);
    let txn = store.txns().begin();
    txn.cancel_token().cancel();
    let cancelled = table.create_index(&txn, index("t_n", IndexKind::Hash, &[1], true));
    assert!(matches!(cancelled, Err(StorageError::Cancelled)));
    assert_eq!(table.indexes(), []);
    assert_eq!(with_number(&table, 300).0, numbered(100..101));
}

#[test]
fn indexes_come_back_with_their_tables() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let budget = Governor::new("1GB".parse().unwrap()).budget("test", None);
        let options = OpenOptions {
            sizes: Some(ArenaSizes::of(&TINY)),
            ..OpenOptions::default()
        };
        TenantStore::open(TenantId(1), budget, folder.path(), &options).unwrap()
    };
    let by_text = index("t_s", IndexKind::Hash, &[2], false);
    let by_number = index("t_n_key", IndexKind::Ordered, &[1], true);
    {
        let (store, _) = open();
        let indexes = vec![by_text.clone()];
        let table = store
            .create_table_with_indexes(TableId(7), schema(true), &Layout::Column, indexes)
            .unwrap();
        load(&table, &numbered(0..300));
        build(&table, by_number.clone()).unwrap();
        // What could not be built is not there afterwards either.
        let refused = build(&table, index("t_s_key", IndexKind::Hash, &[2], true));
        assert!(matches!(refused, Err(StorageError::IndexNotUnique { .. })));
        insert_one(&table, (1_000, -1, None)).unwrap();
    }
    for _ in 0..2 {
        let (store, mut recovered) = open();
        let table = recovered.tables.remove(&TableId(7)).unwrap();
        assert_eq!(table.indexes(), [by_text.clone(), by_number.clone()]);
        assert_eq!(now(&table).len(), 301);
        let (rows, segments) = with_number(&table, 30);
        assert_eq!(rows, numbered(10..11));
        assert!(segments > 0);
        let refused = insert_one(&table, (2_000, -1, None));
        assert!(matches!(refused, Err(StorageError::UniqueViolation { .. })));
        table.freeze().unwrap();
        store.checkpoint().unwrap();
    }
    {
        let (_store, mut recovered) = open();
        let table = recovered.tables.remove(&TableId(7)).unwrap();
        assert!(table.drop_index("t_n_key").unwrap());
    }
    let (_store, mut recovered) = open();
    let table = recovered.tables.remove(&TableId(7)).unwrap();
    assert_eq!(table.indexes(), [by_text]);
    insert_one(&table, (2_000, -1, None)).unwrap();
}

/// Keys that are put off may be there twice until they are asked for, and whoever asks waits
/// for the others.
#[test]
fn keys_that_are_put_off_are_checked_later() {
    for kind in KINDS {
        let store = tenant("1GB", ArenaSizes::default());
        let table = table(&store, "row");
        load(&table, &numbered(0..100));
        build(&table, index("t_n", kind, &[1], true)).unwrap();
        let put_off = ["t_n".to_owned()];
        let double = batch(&table, &[(1_000, 30, None), (1_001, 30, None)]);
        let keys = vec![Arc::clone(double.column(1))];
        let txn = store.txns().begin();
        let refused = table.insert(&txn, &double);
        assert!(matches!(refused, Err(StorageError::UniqueViolation { .. })));
        drop(txn);
        let txn = store.txns().begin();
        assert_eq!(table.insert_but(&txn, &double, &put_off).unwrap(), 2);
        let found = table.check_keys(&txn, "t_n", &keys);
        assert!(
            matches!(&found, Err(StorageError::UniqueViolation { constraint, .. }) if constraint == "t_n"),
            "{found:?}"
        );
        let gone = table.check_keys(&txn, "other", &keys);
        assert!(matches!(gone, Err(StorageError::Conflict)));
        drop(txn);
        // Two keep a key off for now: the first to ask waits, and has it once the other is gone.
        let other = store.txns().begin();
        let row = batch(&table, &[(2_000, 5_000, None)]);
        let keys = vec![Arc::clone(row.column(1))];
        table.insert_but(&other, &row, &put_off).unwrap();
        let txn = store.txns().begin();
        let row = batch(&table, &[(2_001, 5_000, None)]);
        table.insert_but(&txn, &row, &put_off).unwrap();
        thread::scope(|scope| {
            let asking = scope.spawn(|| table.check_keys(&txn, "t_n", &keys));
            drop(other);
            asking.join().unwrap().unwrap();
        });
        txn.commit().unwrap();
        assert_eq!(with_number(&table, 5_000).0, [(2_001, 5_000, None)]);
    }
}

/// Frozen segments come back as they were at the checkpoint, and indexes as they were at the end: of a shape
/// that the log has changed since, every index has every row from the first statement on.
#[test]
fn what_an_index_demands_holds_from_the_first_statement_after_a_crash() {
    for (kind, built_before, by) in [
        (IndexKind::Hash, true, "DROP NOT NULL"),
        (IndexKind::Ordered, true, "DROP NOT NULL"),
        (IndexKind::Hash, false, "CREATE INDEX"),
        (IndexKind::Ordered, false, "CREATE INDEX"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let unique = index("t_n_key", kind, &[1], true);
        {
            let (store, _) = recovery::open(folder.path());
            let table = recovery::create(&store, 7, true);
            load(&table, &numbered(0..300));
            if built_before {
                build(&table, unique.clone()).unwrap();
            }
            table.freeze().unwrap();
            store.checkpoint().unwrap();
            if built_before {
                table.accept_nulls(&[1], &CancelToken::new()).unwrap();
            } else {
                build(&table, unique.clone()).unwrap();
            }
        }
        let (store, mut recovered) = recovery::open(folder.path());
        let table = recovered.tables.remove(&TableId(7)).unwrap();
        let refused = insert_one(&table, (1_000, 30, None));
        assert!(
            matches!(refused, Err(StorageError::UniqueViolation { .. })),
            "{kind:?}, {by}: {refused:?}"
        );
        let view = table.view(store.txns().snapshot());
        let key = numbered_column(30);
        let found = view.find_by_key("t_n_key", &[key]).unwrap();
        assert!(found[0].is_some(), "{kind:?}, {by}");
        assert_eq!(with_number(&table, 30).0, numbered(10..11));
    }
}

fn numbered_column(number: i64) -> ArrayRef {
    Arc::new(Int64Array::from(vec![number]))
}
