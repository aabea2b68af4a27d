//! Readers and writers at once.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use rand::{Rng, SeedableRng, rngs::StdRng};

use super::*;
use crate::write::incoming::{Given, Incoming};

pub(super) const ACCOUNTS: i32 = 100;
pub(super) const BALANCE: i64 = 1_000;

pub(super) fn account(key: i32, balance: i64, random: &mut StdRng) -> Row {
    (key, balance, Some("x".repeat(random.random_range(0..200))))
}

/// Moves money between two accounts, trying again on a newer snapshot when
/// somebody else was first. Returns how often it had to.
pub(super) fn transfer(table: &Arc<Table>, random: &mut StdRng) -> u64 {
    let from = random.random_range(0..ACCOUNTS);
    let to = (from + random.random_range(1..ACCOUNTS)) % ACCOUNTS;
    let amount = random.random_range(1..10);
    let mut retries = 0;
    loop {
        let txn = table.store().txns().begin();
        let view = table.view(txn.snapshot().clone());
        let ids =
            [from, to].map(|account| view.lookup(KeyRef(&key(table, account))).unwrap().unwrap());
        let rows = rows_of(&view.fetch(&ids, &[0, 1, 2]).unwrap());
        assert_eq!((rows[0].0, rows[1].0), (from, to));
        let new = [
            account(from, rows[0].1 - amount, random),
            account(to, rows[1].1 + amount, random),
        ];
        match view.update(&txn, &ids, &batch(table, &new)) {
            Ok(2) if random.random_bool(0.9) => {
                txn.commit().unwrap();
                return retries;
            }
            Ok(2) => return retries,
            Err(StorageError::Conflict | StorageError::Deadlock) => {
                retries += 1;
                assert!(
                    retries < 10_000,
                    "a conflict that a newer snapshot does not end"
                );
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Eight readers see the same total at every moment while writers move money,
/// segments are rewritten and versions vacuumed.
#[test]
fn readers_see_whole_commits_while_writers_transfer() {
    let table = tiny_table();
    let mut random = StdRng::seed_from_u64(1);
    let accounts: Vec<Row> = (0..ACCOUNTS)
        .map(|key| account(key, BALANCE, &mut random))
        .collect();
    load(&table, &accounts);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    let rows = now(&table);
                    assert_eq!(rows.len(), ACCOUNTS as usize);
                    assert_eq!(
                        rows.iter().map(|row| row.1).sum::<i64>(),
                        BALANCE * i64::from(ACCOUNTS)
                    );
                    thread::yield_now();
                }
            });
        }
        let writers: Vec<_> = (0..3)
            .map(|seed| {
                let table = &table;
                scope.spawn(move || {
                    let mut random = StdRng::seed_from_u64(seed);
                    (0..300).map(|_| transfer(table, &mut random)).sum::<u64>()
                })
            })
            .collect();
        let finished: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        stop.store(true, Ordering::Release);
        for writer in finished {
            writer.unwrap();
        }
    });
    let versions = table.statistics().rows + table.statistics().rows_dead;
    assert!(
        versions < 1_900,
        "900 transfers of two rows were vacuumed: {versions} versions are left"
    );
}

/// Several transactions insert the same keys: each key has one winner, the others
/// wait for it and then get a violation.
#[test]
fn of_concurrent_inserts_of_a_key_one_wins() {
    let table = tiny_table();
    let wins = AtomicU64::new(0);
    let keys = 150;
    thread::scope(|scope| {
        for seed in 0..4 {
            let (table, wins) = (&table, &wins);
            scope.spawn(move || {
                let mut random = StdRng::seed_from_u64(seed);
                for key in 0..keys {
                    let txn = table.store().txns().begin();
                    match table.insert(
                        &txn,
                        &batch(table, &[account(key, seed as i64, &mut random)]),
                    ) {
                        Ok(1) => {
                            thread::yield_now();
                            txn.commit().unwrap();
                            wins.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(StorageError::UniqueViolation { detail, .. }) => {
                            assert_eq!(detail, format!("Key (k)=({key}) already exists."));
                        }
                        other => panic!("{other:?}"),
                    }
                }
            });
        }
    });
    assert_eq!(wins.load(Ordering::Relaxed), keys as u64);
    assert_eq!(now(&table).len(), keys as usize);
}

/// Segments fill up and are rewritten while others wait for their latch: no row
/// goes to a segment that is retired by then.
#[test]
fn concurrent_inserts_lose_no_row() {
    let table = tiny_table();
    thread::scope(|scope| {
        for thread in 0..4 {
            let table = &table;
            scope.spawn(move || {
                for round in 0..100 {
                    let rows = |part: i32| -> Vec<Row> {
                        let keys = (0..20).map(|at| at * 1_000 + round * 8 + part);
                        keys.map(|key| (key, 0, Some(format!("{key:0100}"))))
                            .collect()
                    };
                    load(table, &rows(thread));
                    // Rolled back, so that segments which are not full are rewritten too.
                    let txn = table.store().txns().begin();
                    table
                        .insert(&txn, &batch(table, &rows(thread + 4)))
                        .unwrap();
                }
            });
        }
    });
    let found: Vec<i32> = now(&table).into_iter().map(|row| row.0).collect();
    let expected: Vec<i32> = (0..20_000)
        .filter(|key| key % 1_000 < 800 && key % 8 < 4)
        .collect();
    assert_eq!(found, expected);
}

/// A key whose row another transaction has ended is that one's to decide.
#[test]
fn an_insert_waits_for_an_unfinished_delete() {
    for commits in [true, false] {
        let table = tiny_table();
        load(&table, &[(1, 0, None)]);
        let deleter = table.store().txns().begin();
        let view = table.view(deleter.snapshot().clone());
        let id = view.lookup(KeyRef(&key(&table, 1))).unwrap().unwrap();
        assert_eq!(view.delete(&deleter, &[id]).unwrap(), 1);
        let inserted = thread::scope(|scope| {
            let insert = scope.spawn(|| {
                let txn = table.store().txns().begin();
                let result = table.insert(&txn, &batch(&table, &[(1, 1, None)]));
                txn.commit().unwrap();
                result
            });
            // Long enough for an insert that does not wait to go wrong.
            thread::sleep(std::time::Duration::from_millis(20));
            if commits {
                deleter.commit().map(drop).unwrap()
            } else {
                deleter.rollback()
            }
            insert.join().unwrap()
        });
        assert_eq!(inserted.is_ok(), commits, "{inserted:?}");
        assert_eq!(now(&table), [(1, i64::from(commits), None)]);
    }
}

/// Two transactions that insert each other's key: one gives way.
#[test]
fn keys_held_in_a_circle_are_a_deadlock() {
    let table = tiny_table();
    let txns = table.store().txns();
    let (one, two) = (txns.begin(), txns.begin());
    let rows = |keys: &[i32]| {
        batch(
            &table,
            &keys.iter().map(|&key| (key, 0, None)).collect::<Vec<_>>(),
        )
    };
    table.insert(&one, &rows(&[1])).unwrap();
    table.insert(&two, &rows(&[2])).unwrap();
    let insert = |txn: aerostat_txn::Transaction, key| {
        let result = table.insert(&txn, &rows(&[key]));
        if result.is_ok() {
            txn.commit().map(drop).unwrap()
        } else {
            txn.rollback()
        }
        result
    };
    let results = thread::scope(|scope| {
        let first = scope.spawn(|| insert(one, 2));
        let second = scope.spawn(|| insert(two, 1));
        [first.join().unwrap(), second.join().unwrap()]
    });
    let given_way = results
        .iter()
        .filter(|result| matches!(result, Err(StorageError::Deadlock)))
        .count();
    assert_eq!(given_way, 1, "{results:?}");
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
    assert_eq!(now(&table).len(), 2);
}

/// Readers go through their old segments while those are split.
#[test]
fn scans_and_rewrites_do_not_disturb_each_other() {
    let table = tiny_table();
    load(
        &table,
        &(0..500).map(|key| (key * 100, 1, None)).collect::<Vec<_>>(),
    );
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    let view = table.view(table.store().txns().snapshot());
                    let scan = view
                        .scan(ScanSpec {
                            batch_rows: 100,
                            ..all(vec![compare(1, CompareOp::Eq, 1)])
                        })
                        .unwrap();
                    let count = || {
                        let mut rows = 0;
                        let mut reader = scan.reader();
                        while let Some(batch) = reader.next_batch().unwrap() {
                            rows += batch.num_rows();
                            thread::yield_now();
                        }
                        rows
                    };
                    let (one, two) = thread::scope(|scope| {
                        let other = scope.spawn(count);
                        (count(), other.join().unwrap())
                    });
                    assert_eq!(one + two, 500);
                }
            });
        }
        let writer = scope.spawn(|| {
            let mut random = StdRng::seed_from_u64(3);
            for round in 0..40 {
                let keys: std::collections::BTreeSet<i32> = (0..50)
                    .map(|_| random.random_range(0..500) * 100 + 1 + round)
                    .collect();
                load(
                    &table,
                    &keys
                        .into_iter()
                        .map(|key| (key, 2, Some(format!("{key:050}"))))
                        .collect::<Vec<_>>(),
                );
            }
        });
        let finished = writer.join();
        stop.store(true, Ordering::Release);
        finished.unwrap();
    });
    assert!(table.statistics().segments > 4);
}

/// Two writers find the last segment full, and the key of the second is above the range that the first
/// has opened by then.
#[test]
fn room_is_made_where_a_key_belongs_by_then() {
    let sizes = (1..200).chain([600]);
    for (is_frozen, keys) in sizes.flat_map(|keys| [(false, keys), (true, keys)]) {
        let table = tiny_table();
        let rows: Vec<Row> = (0..keys).map(|key| (key, 0, None)).collect();
        load(&table, &rows);
        if is_frozen {
            table.freeze().unwrap();
        }
        let last = Arc::clone(&table.directory().ranges().last().unwrap().entry);
        assert_eq!(last.segment().is_frozen(), is_frozen);
        let make_room = |key: i32| {
            let batch = batch(&table, &[(key, 0, None)]);
            let incoming = Incoming::prepare(&table, Given::Batch(&batch)).unwrap();
            table.make_room(&last, &incoming, 0, 0).unwrap();
        };
        make_room(10_000);
        let ranges = table.directory().ranges().len();
        make_room(20_000);
        let directory = table.directory();
        assert_eq!(directory.ranges().len(), ranges, "the writer looks again");
        assert!((1..ranges).all(|at| directory.lower(at - 1) < directory.lower(at)));
        load(&table, &[(20_000, 1, None), (10_000, 2, None)]);
        assert_eq!(now(&table).len(), rows.len() + 2);
    }
}
