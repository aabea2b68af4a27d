//! Rows that conflict with new ones, and inserts that ask for them while others write.

use std::thread;

use aerostat_txn::{Isolation, Transaction};
use aerostat_types::{IndexKind, TableIndex};
use rand::{Rng, SeedableRng, rngs::StdRng};

use super::*;

const NUMBER: &str = "t_n_key";

/// With a unique index on the number.
fn unique_table() -> Arc<Table> {
    let table = tiny_table();
    let index = TableIndex {
        name: NUMBER.to_owned(),
        kind: IndexKind::Ordered,
        columns: vec![1],
        unique: true,
        nulls_not_distinct: false,
    };
    table
        .create_index(&table.store().txns().begin(), index)
        .unwrap();
    table
}

fn asked(
    table: &Arc<Table>,
    txn: &Transaction,
    rows: &[Row],
    constraints: &[&str],
) -> Result<Vec<InTheWay>, StorageError> {
    let names: Vec<String> = constraints.iter().map(|name| (*name).to_owned()).collect();
    let view = table.view(txn.snapshot().clone());
    view.in_the_way(txn, &batch(table, rows), &names)
}

/// The key of the row that is in the way.
fn key_of(table: &Arc<Table>, txn: &Transaction, found: InTheWay) -> i32 {
    let InTheWay::Row(id) = found else {
        panic!("{found:?} is no row")
    };
    let view = table.view(txn.snapshot().clone());
    rows_of(&view.fetch(&[id], &[0, 1, 2]).unwrap())[0].0
}

#[test]
fn rows_in_the_way_are_found_wherever_they_are() {
    for freezes in [false, true] {
        let table = unique_table();
        let rows: Vec<Row> = (0..400)
            .map(|key| (key, i64::from(key) * 10, None))
            .collect();
        load(&table, &rows);
        if freezes {
            table.freeze().unwrap();
        }
        load(&table, &[(1_000, 1, None)]);
        let pkey = table.schema().primary_key_name.clone();
        let txn = table.store().txns().begin();
        let new = [
            (7, 1, None),
            (2_000, 70, None),
            (2_001, 2, None),
            (2_001, 3, None),
            (2_002, 2, None),
        ];
        let by_key = asked(&table, &txn, &new, &[&pkey]).unwrap();
        assert_eq!(key_of(&table, &txn, by_key[0]), 7);
        assert_eq!(by_key[1..3], [InTheWay::Nothing; 2]);
        assert_eq!(by_key[3..], [InTheWay::New, InTheWay::Nothing]);
        let by_number = asked(&table, &txn, &new, &[NUMBER]).unwrap();
        assert_eq!(key_of(&table, &txn, by_number[0]), 1_000);
        assert_eq!(key_of(&table, &txn, by_number[1]), 7);
        assert_eq!(
            by_number[2..],
            [InTheWay::Nothing, InTheWay::Nothing, InTheWay::New]
        );
        // Of several constraints the first that has something.
        let by_both = asked(&table, &txn, &new, &[NUMBER, &pkey]).unwrap();
        assert_eq!(key_of(&table, &txn, by_both[0]), 1_000);
        assert_eq!(
            by_both[2..],
            [InTheWay::Nothing, InTheWay::New, InTheWay::New]
        );
        assert!(matches!(
            asked(&table, &txn, &new, &["t_x_key"]),
            Err(StorageError::Conflict)
        ));
    }
}

#[test]
fn rows_of_others_are_seen_as_they_are() {
    let table = unique_table();
    let pkey = table.schema().primary_key_name.clone();
    load(&table, &[(1, 10, None), (2, 20, None)]);
    let txns = table.store().txns();
    let block = txns.begin_block(Isolation::RepeatableRead);
    let first = block.statement();
    table
        .insert(&first, &batch(&table, &[(3, 30, None)]))
        .unwrap();
    let own = asked(&table, &first, &[(3, 0, None)], &[&pkey]).unwrap();
    assert_eq!(own, [InTheWay::New], "the statement's own row");
    first.commit().unwrap();
    load(&table, &[(4, 40, None)]);
    let other = txns.begin();
    let view = table.view(other.snapshot().clone());
    let one = view.lookup(KeyRef(&key(&table, 1))).unwrap().unwrap();
    view.delete(&other, &[one]).unwrap();
    other.commit().unwrap();
    let second = block.statement();
    let new = [(1, 1, None), (2, 1, None), (3, 1, None), (4, 1, None)];
    let found = asked(&table, &second, &new, &[&pkey]).unwrap();
    assert_eq!(found[0], InTheWay::Nothing, "deleted since the snapshot");
    assert_eq!(key_of(&table, &second, found[1]), 2);
    assert_eq!(key_of(&table, &second, found[2]), 3, "the block's own row");
    assert_eq!(found[3], InTheWay::Unseen, "came after the snapshot");
}

#[test]
fn who_has_a_key_is_waited_for() {
    for commits in [true, false] {
        let table = unique_table();
        let pkey = table.schema().primary_key_name.clone();
        let first = table.store().txns().begin();
        table
            .insert(&first, &batch(&table, &[(1, 10, None)]))
            .unwrap();
        let other = table.store().txns().begin();
        thread::scope(|scope| {
            let second =
                scope.spawn(|| asked(&table, &other, &[(1, 0, None)], &[&pkey]).unwrap()[0]);
            if commits {
                first.commit().unwrap();
                assert_eq!(second.join().unwrap(), InTheWay::Unseen);
            } else {
                first.rollback();
                assert_eq!(second.join().unwrap(), InTheWay::Nothing);
            }
        });
    }
}

/// Adds one to the number of a key, or inserts the key with 1, as INSERT … ON CONFLICT does.
/// `None` if another was faster.
fn count(table: &Arc<Table>, wanted: i32) -> Option<()> {
    let txn = table.store().txns().begin();
    let view = table.view(txn.snapshot().clone());
    let names = [table.schema().primary_key_name.clone()];
    let found = view.in_the_way(&txn, &batch(table, &[(wanted, 1, None)]), &names);
    let done = match found.unwrap()[0] {
        InTheWay::Nothing => table.insert(&txn, &batch(table, &[(wanted, 1, None)])),
        InTheWay::Row(id) => {
            let number = rows_of(&view.fetch(&[id], &[0, 1, 2]).unwrap())[0].1;
            let row = batch(table, &[(wanted, number + 1, None)]);
            view.update(&txn, &[id], &row)
        }
        InTheWay::Unseen => return None,
        InTheWay::New => panic!("nothing was written yet"),
    };
    match done {
        Ok(rows) => assert_eq!(rows, 1),
        Err(StorageError::Conflict | StorageError::UniqueViolation { .. }) => return None,
        Err(error) => panic!("{error:?}"),
    }
    txn.commit().unwrap();
    Some(())
}

/// Threads count in few rows, which are not there at first: no count is lost.
#[test]
fn no_count_is_lost() {
    const THREADS: u64 = 4;
    const COUNTS: u64 = 300;
    let table = tiny_table();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let table = &table;
            scope.spawn(move || {
                let mut random = StdRng::seed_from_u64(thread);
                for _ in 0..COUNTS {
                    let key = random.random_range(0..20);
                    while count(table, key).is_none() {}
                    if random.random_bool(0.05) {
                        table.freeze().unwrap();
                    }
                }
            });
        }
    });
    let total: i64 = now(&table).iter().map(|row| row.1).sum();
    assert_eq!(total as u64, THREADS * COUNTS);
}

#[test]
fn rows_that_a_transaction_has_ended_are_told_wherever_they_went() {
    for freezes in [false, true] {
        let table = tiny_table();
        let rows: Vec<Row> = (0..400).map(|key| (key, 0, None)).collect();
        load(&table, &rows);
        if freezes {
            table.freeze().unwrap();
        }
        let txn = table.store().txns().begin();
        let view = table.view(txn.snapshot().clone());
        let found = scan(&view, Vec::new());
        let ids: Vec<RowId> = found.values().map(|(_, id)| *id).collect();
        let third: Vec<RowId> = ids.iter().copied().step_by(3).collect();
        assert!(!view.ended_by(&txn, &ids).unwrap().contains(&true));
        assert_eq!(view.delete(&txn, &third).unwrap(), third.len() as u64);
        // Rows that come between those that are there rewrite the segments.
        let more: Vec<Row> = (1_000..3_000).map(|key| (key, 0, None)).collect();
        load(&table, &more);
        table.freeze().unwrap();
        let ended = view.ended_by(&txn, &ids).unwrap();
        let expected: Vec<bool> = (0..ids.len()).map(|at| at % 3 == 0).collect();
        assert_eq!(ended, expected, "frozen before: {freezes}");
        let other = table.store().txns().begin();
        let seen = table.view(other.snapshot().clone());
        let ids: Vec<RowId> = scan(&seen, Vec::new())
            .values()
            .map(|(_, id)| *id)
            .collect();
        assert!(!seen.ended_by(&other, &ids).unwrap().contains(&true));
    }
}
