//! Readers, the freezer and checkpoints of a copy beside what it applies, each on a thread of its own.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use super::*;

const ACCOUNTS: i32 = 40;

/// Moves amounts between accounts: in every snapshot they are the same in all.
fn transfer(table: &Arc<Table>, random: &mut StdRng) {
    let txn = table.store().txns().begin();
    let view = table.view(txn.snapshot().clone());
    let rows = scan(&view, Vec::new());
    let (from, to) = (
        random.random_range(0..ACCOUNTS),
        random.random_range(0..ACCOUNTS),
    );
    if from == to {
        return;
    }
    let amount = random.random_range(1..100);
    let (mut one, mut other) = (rows[&from].clone(), rows[&to].clone());
    one.0.1 -= amount;
    other.0.1 += amount;
    let new = batch(table, &[one.0, other.0]);
    view.update(&txn, &[one.1, other.1], &new).unwrap();
    txn.commit().unwrap();
}

#[test]
fn readers_see_whole_commits_while_they_are_done() {
    let world = World::new();
    let accounts: Vec<Row> = (0..ACCOUNTS).map(|key| (key, 1_000, None)).collect();
    load(&world.keyed, &accounts);
    let mut copy = CopyAt::of(&world.store);
    let mut random = StdRng::seed_from_u64(9);
    while copy.receive(&mut random) {}
    copy.apply(world.store.txns().last_commit());
    let table = copy.table(KEYED);
    let is_over = AtomicBool::new(false);
    let reads = thread::scope(|scope| {
        let leader = scope.spawn(|| {
            let mut random = StdRng::seed_from_u64(10);
            for _ in 0..1_500 {
                transfer(&world.keyed, &mut random);
            }
            is_over.store(true, Ordering::Release);
        });
        let reader = || {
            let (mut reads, mut newest) = (0, CommitTs(0));
            while !is_over.load(Ordering::Acquire) {
                let snapshot = table.store().txns().snapshot();
                assert!(snapshot.at() >= newest, "a copy goes back");
                newest = snapshot.at();
                let rows = contents(&table, snapshot);
                let sum: i64 = rows.iter().map(|row| row.1).sum();
                assert_eq!(
                    (rows.len(), sum),
                    (ACCOUNTS as usize, 40_000),
                    "at {newest}"
                );
                reads += 1;
            }
            reads
        };
        let readers = [scope.spawn(reader), scope.spawn(reader)];
        let keeper = scope.spawn(|| {
            while !is_over.load(Ordering::Acquire) {
                table.freeze().unwrap();
                table.vacuum().unwrap();
                // One that does not catch up in time is another time's.
                let done = table.store().checkpoint();
                assert!(
                    matches!(done, Ok(_) | Err(StorageError::Cancelled)),
                    "{done:?}"
                );
                thread::sleep(Duration::from_millis(3));
            }
        });
        while !is_over.load(Ordering::Acquire) {
            if !copy.receive(&mut random) {
                thread::yield_now();
            }
            copy.apply(world.store.txns().last_commit());
        }
        leader.join().unwrap();
        keeper.join().unwrap();
        readers.map(|reader| reader.join().unwrap())
    });
    while copy.receive(&mut random) {}
    copy.apply(world.store.txns().last_commit());
    assert_eq!(
        rows_of_table(&copy.table(KEYED)),
        rows_of_table(&world.keyed)
    );
    assert!(reads.iter().all(|reads| *reads > 10), "{reads:?}");
}
