//! Frozen rows that are updated and deleted: scans see the same as before, whatever is merged
//! meanwhile, and merges happen where scans pay for them.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use aerostat_txn::Transaction;
use rand::{Rng, RngCore, SeedableRng, rngs::StdRng};

use super::*;

/// Of a table: key and number.
type State = BTreeMap<i32, i64>;

const ROWS: i32 = 20_000;

fn rows(state: &State) -> Vec<Row> {
    state.iter().map(|(&key, &n)| (key, n, None)).collect()
}

fn ids(view: &TableView, keys: &[i32]) -> Vec<RowId> {
    let id = |&wanted: &i32| {
        view.lookup(KeyRef(&key(view.table(), wanted)))
            .unwrap()
            .unwrap()
    };
    keys.iter().map(id).collect()
}

/// Updates the rows of these keys to a number, or deletes them.
fn change(table: &Arc<Table>, txn: &Transaction, keys: &[i32], to: Option<i64>) {
    let view = table.view(txn.snapshot().clone());
    let ids = ids(&view, keys);
    let changed = match to {
        Some(n) => {
            let rows: Vec<Row> = keys.iter().map(|&key| (key, n, None)).collect();
            view.update(txn, &ids, &batch(table, &rows))
        }
        None => view.delete(txn, &ids),
    };
    assert_eq!(changed.unwrap(), keys.len() as u64);
}

/// Keys here and there, or side by side so that whole blocks end.
fn some_keys(state: &State, random: &mut StdRng) -> Vec<i32> {
    let all: Vec<i32> = state.keys().copied().collect();
    if random.random_bool(0.2) {
        let first = random.random_range(0..all.len());
        let count = random.random_range(1..2_500).min(all.len() - first);
        return all[first..first + count].to_vec();
    }
    let count = random.random_range(1..200);
    let pick = |_| all[random.random_range(0..all.len())];
    let keys: BTreeSet<i32> = (0..count).map(pick).collect();
    keys.into_iter().collect()
}

/// Keys and numbers that a scan gives, read as batches or as rows.
fn found(view: &TableView, spec: ScanSpec, as_rows: bool) -> State {
    let scan = view.scan(spec).unwrap();
    let mut reader = scan.reader();
    let mut found = State::new();
    let mut add = |keys: &ArrayRef, numbers: &ArrayRef| {
        let keys = keys.as_primitive::<Int32Type>();
        let numbers = numbers.as_primitive::<Int64Type>();
        for (&key, &n) in keys.values().iter().zip(numbers.values()) {
            assert_eq!(found.insert(key, n), None, "key {key} twice");
        }
    };
    if as_rows {
        while let Some(parts) = reader.next_rows().unwrap() {
            parts
                .iter()
                .for_each(|rows| add(&rows.gather(0), &rows.gather(1)));
        }
    } else {
        while let Some(batch) = reader.next_batch().unwrap() {
            add(batch.column(0), batch.column(1));
        }
    }
    found
}

fn check(view: &TableView, state: &State, random: &mut StdRng) {
    let spec = |predicates: Vec<Predicate>| ScanSpec {
        projection: vec![0, 1],
        predicates,
        ..ScanSpec::default()
    };
    let as_rows = random.random_bool(0.5);
    assert!(found(view, spec(vec![]), as_rows) == *state, "all rows");
    // Ranges that leave most rows, few, and those of some vectors alone.
    let n = i64::from(random.random_range(0..110));
    let least = random.random_range(-10..ROWS);
    let predicates = vec![
        compare(1, CompareOp::Lt, n.into()),
        compare(0, CompareOp::Ge, least.into()),
    ];
    let is_in = |(key, own): &(&i32, &i64)| **own < n && **key >= least;
    let own = |row: (&i32, &i64)| (*row.0, *row.1);
    let expected: State = state.iter().filter(is_in).map(own).collect();
    let scanned = found(view, spec(predicates), as_rows);
    assert!(scanned == expected, "n < {n}, k >= {least}");
    // A join by key.
    let every = random.random_range(1..40);
    let keys: Vec<i64> = (0..i64::from(ROWS)).step_by(every).collect();
    let lookup = Lookup {
        attribute: 0,
        table: Arc::new(LookupTable::new(&keys, None).unwrap()),
    };
    let joined = ScanSpec {
        lookups: vec![lookup],
        ..spec(vec![compare(1, CompareOp::Ge, n.into())])
    };
    let is_in = |(key, own): &(&i32, &i64)| **own >= n && (**key as usize).is_multiple_of(every);
    let expected: State = state.iter().filter(is_in).map(own).collect();
    assert!(found(view, joined, as_rows) == expected, "every {every}");
    // A limit counts rows that are there.
    let limit = random.random_range(1..3_000);
    let limited = ScanSpec {
        limit: Some(limit),
        ..spec(vec![])
    };
    let count = found(view, limited, as_rows).len() as u64;
    assert_eq!(count, limit.min(state.len() as u64));
}

#[test]
fn every_snapshot_scans_what_it_saw_while_rows_end_and_are_merged() {
    for seed in 0..3 {
        let mut random = StdRng::seed_from_u64(seed);
        let table = table(&tenant("1GB", ArenaSizes::default()), "column");
        let mut state: State = (0..ROWS).map(|at| (at, i64::from(at) % 101)).collect();
        load(&table, &rows(&state));
        table.freeze().unwrap();
        let mut pinned: Vec<(TableView, State)> = Vec::new();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    table.freeze_due().unwrap();
                    table.freeze().unwrap();
                    thread::yield_now();
                }
            });
            for round in 0..30 {
                let txn = table.store().txns().begin();
                let keys = some_keys(&state, &mut random);
                let to = random.random_bool(0.8).then(|| random.random_range(0..101));
                change(&table, &txn, &keys, to);
                // Nobody else sees it yet.
                if round % 5 == 0 {
                    let view = table.view(table.store().txns().snapshot());
                    check(&view, &state, &mut random);
                }
                if random.random_bool(0.2) {
                    txn.rollback();
                } else {
                    txn.commit().unwrap();
                    for key in keys {
                        match to {
                            Some(n) => state.insert(key, n),
                            None => state.remove(&key),
                        };
                    }
                }
                let view = table.view(table.store().txns().snapshot());
                check(&view, &state, &mut random);
                if random.random_bool(0.3) {
                    pinned.push((view, state.clone()));
                }
                if pinned.len() > 3 {
                    pinned.remove(random.random_range(0..3));
                }
                for (view, state) in &pinned {
                    check(view, state, &mut random);
                    let anew = table.view(view.snapshot().clone());
                    check(&anew, state, &mut random);
                }
            }
            done.store(true, Ordering::Relaxed);
        });
    }
}

/// A table of two frozen segments: texts that no dictionary makes shorter.
fn two_units() -> Arc<Table> {
    let table = table(&tenant("1GB", ArenaSizes::default()), "column");
    let mut random = StdRng::seed_from_u64(1);
    let mut letters = |length: usize| -> String {
        let mut bytes = vec![0; length];
        random.fill_bytes(&mut bytes);
        for byte in &mut bytes {
            *byte = b'a' + *byte % 16;
        }
        String::from_utf8(bytes).unwrap()
    };
    for part in 0..5 {
        let rows = part * 1_000..(part + 1) * 1_000;
        let rows: Vec<Row> = rows.map(|key| (key, 1, Some(letters(8_000)))).collect();
        load(&table, &rows);
    }
    table.freeze().unwrap();
    let stats = table.statistics();
    assert_eq!((stats.segments, stats.segments_frozen), (2, 2));
    table
}

fn update(table: &Arc<Table>, keys: &[i32]) {
    let txn = table.store().txns().begin();
    change(table, &txn, keys, Some(2));
    txn.commit().unwrap();
}

/// Scans the rows whose keys pass.
fn scan_often(table: &Arc<Table>, passes: Predicate) {
    let view = table.view(table.store().txns().snapshot());
    for _ in 0..1_000 {
        let spec = ScanSpec {
            projection: vec![0, 1],
            predicates: vec![passes.clone(), compare(1, CompareOp::Eq, 2)],
            ..ScanSpec::default()
        };
        found(&view, spec, true);
    }
}

#[test]
fn what_scans_pay_for_is_merged_and_nothing_else() {
    let table = two_units();
    update(&table, &[10, 20, 30]);
    update(&table, &[4_710, 4_720, 4_730, 4_740]);
    // Of each update a row in front and one that has ended.
    let backlog = table.freeze_backlog();
    assert_eq!((backlog.rows_to_merge, backlog.rows_due), (14, 0));
    let made = || table.freeze_due().unwrap().segments_made;
    // Nobody writes to them, but so few rows do not pay for a merge by themselves.
    assert_eq!([made(), made()], [0, 0]);
    scan_often(&table, compare(0, CompareOp::Lt, 1_000));
    let backlog = table.freeze_backlog();
    assert_eq!((backlog.rows_to_merge, backlog.rows_due), (14, 6));
    assert_eq!([made(), made()], [1, 0]);
    let backlog = table.freeze_backlog();
    assert_eq!((backlog.rows_to_merge, backlog.rows_due), (8, 0));
    scan_often(&table, compare(0, CompareOp::Gt, 4_000));
    assert_eq!(table.freeze_backlog().rows_due, 8);
    assert_eq!([made(), made()], [1, 0]);
    assert_eq!(table.freeze_backlog(), FreezeBacklog::default());
    let stats = table.statistics();
    assert_eq!((stats.rows_frozen, stats.rows_dead), (5_000, 0));
}

#[test]
fn what_is_written_all_the_time_is_merged_when_scans_have_paid_for_it() {
    let table = two_units();
    let mut merged = 0;
    for round in 0..6 {
        // Never cold.
        update(&table, &[10, 20, 30 + round]);
        merged += table.freeze_due().unwrap().segments_made;
        scan_often(&table, compare(0, CompareOp::Lt, 1_000));
    }
    assert!(merged > 0, "the freezer keeps up with writers");
}

#[test]
fn a_merge_that_cannot_be_is_not_tried_again_and_again() {
    let table = two_units();
    // Sees no row that comes.
    let held = table.store().txns().snapshot();
    update(&table, &[10, 20, 30]);
    scan_often(&table, compare(0, CompareOp::Lt, 1_000));
    let report = || table.freeze_due().unwrap();
    assert_eq!(report().segments_made, 0);
    let tried: u64 = [report(), report()].iter().map(|one| one.postponed).sum();
    assert!(tried <= 1, "tried {tried} times more");
    drop(held);
}
