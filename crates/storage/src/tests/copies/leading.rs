//! Leaders whose commits wait for copies, and what becomes of those who wait.

use std::{sync::mpsc, thread, time::Duration};

use aerostat_txn::CommitError;

use super::*;

/// Long enough that what does not come would have.
const SOON: Duration = Duration::from_secs(20);

#[test]
fn an_epoch_begins_while_definitions_and_checkpoints_wait_for_copies() {
    let world = World::new();
    load(&world.keyed, &[(1, 1, None)]);
    world.store.await_copies(false);
    let (done, is_done) = mpsc::channel();
    thread::scope(|scope| {
        for at in 0..3 {
            let (done, store) = (done.clone(), &world.store);
            scope.spawn(move || {
                match at {
                    0 => drop(create(store, 77, true)),
                    1 => drop(store.commit_catalog(vec![1, 2]).unwrap()),
                    _ => drop(store.checkpoint().unwrap().unwrap()),
                }
                done.send(at).unwrap();
            });
        }
        // Nobody is told of anything yet.
        assert!(is_done.recv_timeout(Duration::from_millis(100)).is_err());
        let began = world.store.begin_epoch(Epoch(3)).unwrap();
        for _ in 0..3 {
            // What comes later wants its own word.
            let deadline = std::time::Instant::now() + SOON;
            while std::time::Instant::now() < deadline {
                world.store.committed(world.store.written_through());
                if is_done.recv_timeout(Duration::from_millis(5)).is_ok() {
                    break;
                }
            }
        }
        assert!(world.store.txns().last_commit() >= began);
        assert_eq!(world.store.epochs(), [(Epoch(3), began)]);
    });
    drop(done);
    assert!(is_done.recv().is_err(), "all three have been told");
}

#[test]
fn whoever_waits_for_copies_is_told_of_the_doubt_when_another_node_leads() {
    let world = World::new();
    world.store.await_copies(false);
    let before = world.store.txns().last_commit();
    thread::scope(|scope| {
        let insert = |key: i32| {
            let table = &world.keyed;
            let txn = table.store().txns().begin();
            table
                .insert(&txn, &batch(table, &[(key, 1, None)]))
                .unwrap();
            txn.commit()
        };
        let waiting: Vec<_> = (0..4).map(|key| scope.spawn(move || insert(key))).collect();
        while world.store.written_through() < CommitTs(before.0 + 4) {
            thread::yield_now();
        }
        world.store.committed(CommitTs(before.0 + 1));
        world.store.depose();
        // Too late: they were told.
        world.store.committed(CommitTs(before.0 + 4));
        world.store.await_copies(true);
        let told = waiting.into_iter().map(|one| one.join().unwrap());
        let doubted = told.filter(|told| matches!(told, Err(CommitError::InDoubt(_))));
        assert_eq!(doubted.count(), 3);
        assert!(matches!(insert(9), Err(CommitError::Refused(_))));
    });
    assert_eq!(rows_of_table(&world.keyed).len(), 1);
    assert!(world.store.checkpoint().is_err());
    assert!(world.store.mend_log().is_err());
}

#[test]
fn a_copy_hears_of_transactions_that_ended_with_their_process() {
    let World {
        folder,
        store,
        keyed,
        bag,
        ..
    } = World::new();
    load(&keyed, &[(5, 5, None), (7, 7, None)]);
    let wide = |from: i32| -> Vec<Row> {
        let row = |key| (key, 5, Some("w".repeat(WIDE_BYTES)));
        (from..from + WIDE_ROWS).map(row).collect()
    };
    let lost = store.txns().begin();
    let view = keyed.view(lost.snapshot().clone());
    let ids: Vec<RowId> = scan(&view, Vec::new())
        .into_values()
        .map(|(_, id)| id)
        .collect();
    view.delete(&lost, &ids).unwrap();
    keyed.insert(&lost, &batch(&keyed, &wide(1_000))).unwrap();
    bag.insert(&lost, &batch(&bag, &wide(1_000))).unwrap();
    load(&keyed, &[(8, 8, None)]);
    // The process is killed: what it wrote is there.
    let killed = memory_folder();
    recovery::copy(folder.path(), killed.path());
    drop((view, lost, store, keyed, bag));
    let (store, recovered) = open(killed.path());
    let keyed = Arc::clone(&recovered.tables[&KEYED]);
    // Others do what it had begun.
    let txn = store.txns().begin();
    let view = keyed.view(txn.snapshot().clone());
    let rows = scan(&view, Vec::new());
    view.delete(&txn, &[rows[&7].1]).unwrap();
    txn.commit().unwrap();
    load(&keyed, &wide(1_000));
    let txn = store.txns().begin();
    let view = keyed.view(txn.snapshot().clone());
    let ids: Vec<RowId> = scan(&view, Vec::new())
        .into_values()
        .map(|(_, id)| id)
        .collect();
    view.delete(&txn, &ids[..20]).unwrap();
    txn.commit().unwrap();
    let mut copy = CopyAt::of(&store);
    let mut random = StdRng::seed_from_u64(4);
    while copy.receive(&mut random) {
        copy.apply(store.txns().last_commit());
    }
    copy.apply(store.txns().last_commit());
    assert_eq!(rows_of_table(&copy.table(KEYED)), rows_of_table(&keyed));
    let copy = copy.reopened(&store, &mut random);
    assert_eq!(copy.applier.open_transactions(), 0);
}

#[test]
fn what_sessions_of_a_copy_try_does_no_harm_to_what_it_follows() {
    let world = World::new();
    load(&world.keyed, &[(1, 1, None), (2, 2, None)]);
    let mut copy = CopyAt::of(&world.store);
    let mut random = StdRng::seed_from_u64(4);
    let catch_up = |copy: &mut CopyAt, random: &mut StdRng| {
        while copy.receive(random) {}
        copy.apply(world.store.txns().last_commit());
    };
    let wide: Vec<Row> = (100..100 + WIDE_ROWS)
        .map(|key| (key, 5, Some("w".repeat(WIDE_BYTES))))
        .collect();
    let open = world.store.txns().begin();
    world
        .keyed
        .insert(&open, &batch(&world.keyed, &wide))
        .unwrap();
    catch_up(&mut copy, &mut random);
    let table = copy.table(KEYED);
    // Some with the leader's own numbers.
    for _ in 0..20 {
        let txn = copy.store.txns().begin();
        let more: Vec<Row> = wide
            .iter()
            .map(|row| (row.0 + 9_000, 1, row.2.clone()))
            .collect();
        let refused = table.insert(&txn, &batch(&table, &more));
        assert!(matches!(refused, Err(StorageError::Log(_))), "{refused:?}");
    }
    // A lock of the copy's is in nobody's way.
    let locking = copy.store.txns().begin();
    let locked = table.view(locking.snapshot().clone());
    let ids: Vec<RowId> = scan(&locked, Vec::new())
        .into_values()
        .map(|(_, id)| id)
        .collect();
    locked
        .lock(
            &locking,
            &ids,
            aerostat_txn::RowLock::KeyShare,
            WaitPolicy::Wait,
        )
        .unwrap();
    let txn = world.store.txns().begin();
    let view = world.keyed.view(txn.snapshot().clone());
    let ids: Vec<RowId> = scan(&view, Vec::new())
        .into_values()
        .map(|(_, id)| id)
        .collect();
    view.delete(&txn, &ids).unwrap();
    txn.commit().unwrap();
    open.commit().unwrap();
    catch_up(&mut copy, &mut random);
    drop(locking);
    assert_eq!(rows_of_table(&table), rows_of_table(&world.keyed));
    assert_eq!(rows_of_table(&table).len(), WIDE_ROWS as usize);
    drop((table, locked));
    copy.sync();
    let copy = copy.reopened(&world.store, &mut random);
    assert_eq!(
        rows_of_table(&copy.table(KEYED)),
        rows_of_table(&world.keyed)
    );
}
