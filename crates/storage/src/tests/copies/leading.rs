//! Leaders whose commits wait for copies, and what becomes of those who wait.

use std::{sync::mpsc, thread, time::Duration};

use aerostat_txn::{CommitError, Committing};

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

#[test]
fn a_copy_goes_on_behind_a_log_that_the_disk_refused_and_that_was_mended() {
    let world = World::new();
    world.store.set_durability(Durability::Fsync);
    let mut copy = CopyAt::of(&world.store);
    let mut random = StdRng::seed_from_u64(6);
    let wide = |from: i32| -> Vec<Row> {
        let row = |key| (key, 5, Some("w".repeat(WIDE_BYTES)));
        (from..from + WIDE_ROWS).map(row).collect()
    };
    for turn in 0..4 {
        let from = turn * 10_000;
        load(&world.keyed, &[(from, 1, None)]);
        load(&world.bag, &[(from, 1, None), (from, 1, None)]);
        // Some of it is in the log, and shipped, before the disk refuses the rest.
        let open = world.store.txns().begin();
        for table in [&world.keyed, &world.bag] {
            table.insert(&open, &batch(table, &wide(from + 1))).unwrap();
        }
        copy.receive(&mut random);
        world.store.durable_side().log.fill_disk();
        let lost = world.store.txns().begin();
        world
            .keyed
            .insert(&lost, &batch(&world.keyed, &[(from + 9_000, 1, None)]))
            .unwrap();
        assert!(matches!(lost.commit(), Err(CommitError::InDoubt(_))));
        if turn % 2 == 0 {
            while copy.receive(&mut random) {}
            copy = copy.reopened(&world.store, &mut random);
        }
        assert!(open.commit().is_err());
        world.store.mend_log().unwrap();
        // The same keys, by others.
        load(&world.keyed, &wide(from + 1));
        load(&world.keyed, &[(from + 9_000, 2, None)]);
        world.store.checkpoint().unwrap();
        while copy.receive(&mut random) {}
        copy.apply(world.store.txns().last_commit());
        assert_eq!(
            rows_of_table(&copy.table(KEYED)),
            rows_of_table(&world.keyed),
            "turn {turn}"
        );
        assert_eq!(rows_of_table(&copy.table(BAG)), rows_of_table(&world.bag));
        assert_eq!(copy.applier.open_transactions(), 0);
    }
}

#[test]
fn an_idle_leader_of_temporary_relations_checkpoints_once_its_copies_know() {
    let world = World::new();
    load(&world.keyed, &[(1, 1, None)]);
    let layout = Layout::parse("(k,s),(n)").unwrap();
    let scratch = world
        .store
        .create_temporary_table(TableId(9), schema(true), &layout, Vec::new())
        .unwrap();
    let mut copy = CopyAt::of(&world.store);
    let mut random = StdRng::seed_from_u64(6);
    while copy.receive(&mut random) {}
    world.store.await_copies(false);
    world.store.committed(world.store.written_through());
    // Nobody waits for copies with these.
    for key in 0..5 {
        load(&scratch, &[(key, 1, None)]);
    }
    let last = world.store.txns().last_commit();
    assert!(last > world.store.written_through());
    thread::scope(|scope| {
        let done = scope.spawn(|| world.store.checkpoint().unwrap().unwrap());
        while world.store.written_through() < last {
            thread::yield_now();
        }
        thread::sleep(Duration::from_millis(50));
        assert!(
            !done.is_finished(),
            "the copy does not know of the places yet"
        );
        while copy.receive(&mut random) {}
        world.store.committed(copy.reader.read_through());
        assert_eq!(done.join().unwrap().at, last);
    });
    copy.apply(last);
    assert_eq!(copy.applier.applied(), last);
}

/// A commit of a row that has its place, and that somebody is told of.
fn told_of(world: &World, key: i32) -> (Committing, mpsc::Receiver<()>) {
    let txn = world.store.txns().begin();
    let rows = batch(&world.keyed, &[(key, 1, None)]);
    world.keyed.insert(&txn, &rows).unwrap();
    let committing = txn.enqueue().unwrap().try_finish().unwrap_err();
    let (said, heard) = mpsc::channel();
    let call = move || said.send(()).unwrap();
    assert!(committing.when_known(Box::new(call)).is_none());
    (committing, heard)
}

#[test]
fn whoever_waits_for_copies_alone_is_called() {
    let world = World::new();
    world.store.await_copies(false);
    let ((first, told_first), (second, told_second), (third, told_third)) =
        (told_of(&world, 1), told_of(&world, 2), told_of(&world, 3));
    assert!(told_first.try_recv().is_err());
    world.store.committed(second.place());
    told_first.try_recv().unwrap();
    told_second.try_recv().unwrap();
    assert!(told_third.try_recv().is_err());
    // In whatever order they look.
    for committing in [second, first] {
        let place = committing.place();
        assert_eq!(committing.try_finish().unwrap().unwrap(), place);
    }
    world.store.depose();
    told_third.try_recv().unwrap();
    let told = third.try_finish().unwrap();
    assert!(matches!(told, Err(CommitError::InDoubt(_))));
    assert_eq!(rows_of_table(&world.keyed).len(), 2);
}

#[test]
fn where_the_disk_is_waited_for_nobody_is_called() {
    let world = World::new();
    let txn = world.store.txns().begin();
    let rows = batch(&world.keyed, &[(1, 1, None)]);
    world.keyed.insert(&txn, &rows).unwrap();
    let committing = txn.enqueue().unwrap();
    assert!(committing.when_known(Box::new(|| {})).is_some());
    // What is known is told at once.
    committing.finish().unwrap();
    world.store.await_copies(false);
    let (committing, told) = told_of(&world, 2);
    // The copy is lost: this node's disk is all there is.
    world.store.await_copies(true);
    world.store.committed(committing.place());
    told.recv_timeout(SOON).unwrap();
    let place = committing.place();
    assert_eq!(committing.finish().unwrap(), place);
}
