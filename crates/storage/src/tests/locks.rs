//! Row locks: which waits for which, on which versions, wherever rows are moved.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread::{self, ScopedJoinHandle},
    time::Duration,
};

use aerostat_memory::MemoryClass;
use aerostat_txn::{Block, Isolation, RowLock, Transaction};
use aerostat_types::{IndexKind, TableIndex};
use rand::{Rng, SeedableRng, rngs::StdRng};

use super::*;

const ROWS: i32 = 6;

fn filled() -> Arc<Table> {
    let table = tiny_table();
    let rows: Vec<Row> = (0..ROWS).map(|key| (key, i64::from(key), None)).collect();
    load(&table, &rows);
    table
}

fn id_of(view: &TableView, wanted: i32) -> RowId {
    let key = key(view.table(), wanted);
    view.lookup(KeyRef(&key)).unwrap().unwrap()
}

/// Locks the row of a key as the transaction sees it; whether it did.
fn lock(
    table: &Arc<Table>,
    txn: &Transaction,
    wanted: i32,
    mode: RowLock,
    policy: WaitPolicy,
) -> Result<bool, StorageError> {
    let view = table.view(txn.snapshot().clone());
    let locked = view.lock(txn, &[id_of(&view, wanted)], mode, policy)?;
    Ok(locked[0])
}

fn is_free(table: &Arc<Table>, wanted: i32, mode: RowLock) -> bool {
    let txn = table.store().txns().begin();
    lock(table, &txn, wanted, mode, WaitPolicy::SkipLocked).unwrap()
}

fn delete(table: &Arc<Table>, txn: &Transaction, wanted: i32) -> Result<u64, StorageError> {
    let view = table.view(txn.snapshot().clone());
    view.delete(txn, &[id_of(&view, wanted)])
}

/// Gives the row another number, or another key.
fn change(
    table: &Arc<Table>,
    txn: &Transaction,
    wanted: i32,
    new_key: i32,
) -> Result<u64, StorageError> {
    let view = table.view(txn.snapshot().clone());
    let id = id_of(&view, wanted);
    let number = rows_of(&view.fetch(&[id], &[0, 1, 2])?)[0].1;
    let row = (new_key, number + 100, None);
    view.update(txn, &[id], &batch(table, &[row]))
}

/// Something that others do to a row.
#[derive(Clone, Copy, Debug)]
enum Deed {
    Lock(RowLock),
    Update,
    UpdateKey,
    Delete,
}

const DEEDS: [(Deed, RowLock); 7] = [
    (Deed::Lock(RowLock::KeyShare), RowLock::KeyShare),
    (Deed::Lock(RowLock::Share), RowLock::Share),
    (Deed::Lock(RowLock::NoKeyUpdate), RowLock::NoKeyUpdate),
    (Deed::Lock(RowLock::Update), RowLock::Update),
    (Deed::Update, RowLock::NoKeyUpdate),
    (Deed::UpdateKey, RowLock::Update),
    (Deed::Delete, RowLock::Update),
];

fn act(table: &Arc<Table>, txn: &Transaction, key: i32, deed: Deed) -> Result<(), StorageError> {
    match deed {
        Deed::Lock(mode) => {
            assert!(lock(table, txn, key, mode, WaitPolicy::Wait)?);
            Ok(())
        }
        Deed::Update => change(table, txn, key, key).map(|_| ()),
        Deed::UpdateKey => change(table, txn, key, key + 1_000).map(|_| ()),
        Deed::Delete => delete(table, txn, key).map(|_| ()),
    }
}

/// Runs `deed` on a thread of its own, to be joined.
fn beside<'scope, T: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    deed: impl FnOnce() -> T + Send + 'scope,
) -> ScopedJoinHandle<'scope, T> {
    scope.spawn(deed)
}

/// It has to wait: however long it is given, it does not end.
fn assert_waits<T>(running: &ScopedJoinHandle<'_, T>, what: &str) {
    thread::sleep(Duration::from_millis(5));
    assert!(!running.is_finished(), "{what} did not wait");
}

/// Every deed beside every other, before and after the row was frozen: whether the second
/// waits is told by the table of locks.
#[test]
fn deeds_wait_as_their_locks_conflict() {
    for frozen in [false, true] {
        for (first, held) in DEEDS {
            for (second, wanted) in DEEDS {
                let what = format!("{second:?} after {first:?}, frozen: {frozen}");
                let table = filled();
                if frozen {
                    table.freeze().unwrap();
                }
                let txns = table.store().txns();
                let (one, two) = (txns.begin(), txns.begin());
                act(&table, &one, 2, first).unwrap();
                thread::scope(|scope| {
                    let running = beside(scope, || act(&table, &two, 2, second));
                    if !held.conflicts_with(wanted) {
                        assert!(running.join().unwrap().is_ok(), "{what}");
                        return;
                    }
                    assert_waits(&running, &what);
                    // The first goes back, so that the second finds the row as it was.
                    one.rollback();
                    assert!(running.join().unwrap().is_ok(), "{what}");
                });
            }
        }
    }
}

#[test]
fn who_does_not_wait_is_told_or_goes_without() {
    let table = filled();
    let txns = table.store().txns();
    let one = txns.begin();
    lock(&table, &one, 2, RowLock::Update, WaitPolicy::Wait).unwrap();
    let two = txns.begin();
    let view = table.view(two.snapshot().clone());
    let ids: Vec<RowId> = (0..4).map(|key| id_of(&view, key)).collect();
    let locked = view.lock(&two, &ids, RowLock::Share, WaitPolicy::SkipLocked);
    assert_eq!(locked.unwrap(), [true, true, false, true]);
    let refused = view.lock(&two, &ids, RowLock::Share, WaitPolicy::Nowait);
    match refused {
        Err(StorageError::LockNotAvailable { table }) => assert_eq!(table, "t"),
        other => panic!("{other:?}"),
    }
    two.set_lock_timeout(Some(Duration::from_millis(1)));
    let late = view.lock(&two, &ids, RowLock::Share, WaitPolicy::Wait);
    assert!(matches!(late, Err(StorageError::LockTimeout)), "{late:?}");
    let late = view.delete(&two, &ids);
    assert!(matches!(late, Err(StorageError::LockTimeout)), "{late:?}");
    drop(two);
    assert!(is_free(&table, 0, RowLock::Update));
    drop(one);
    assert!(is_free(&table, 2, RowLock::Update));
}

#[test]
fn a_row_that_has_changed_is_a_conflict_or_skipped() {
    let table = filled();
    let txns = table.store().txns();
    let blocks = [Isolation::ReadCommitted, Isolation::RepeatableRead]
        .map(|isolation| (isolation, txns.begin_block(isolation)));
    let statements = blocks.each_ref().map(|(_, block)| block.statement());
    let changer = txns.begin();
    change(&table, &changer, 2, 2).unwrap();
    changer.commit().unwrap();
    for ((isolation, _), statement) in blocks.iter().zip(&statements) {
        let waiting = lock(&table, statement, 2, RowLock::KeyShare, WaitPolicy::Wait);
        assert!(matches!(waiting, Err(StorageError::Conflict)));
        let skipping = lock(&table, statement, 2, RowLock::Share, WaitPolicy::SkipLocked);
        match isolation {
            Isolation::ReadCommitted => assert!(!skipping.unwrap()),
            Isolation::RepeatableRead => assert!(matches!(skipping, Err(StorageError::Conflict))),
        }
    }
}

#[test]
fn a_block_keeps_its_locks_and_a_savepoint_gives_them_back() {
    let table = filled();
    let block = table.store().txns().begin_block(Isolation::ReadCommitted);
    let keep = |key, mode| {
        let statement = block.statement();
        lock(&table, &statement, key, mode, WaitPolicy::Wait).unwrap();
        statement.commit().unwrap();
    };
    keep(1, RowLock::Share);
    let savepoint = block.savepoint();
    keep(1, RowLock::Update);
    keep(2, RowLock::Update);
    let statement = block.statement();
    delete(&table, &statement, 1).unwrap();
    statement.commit().unwrap();
    assert!(!is_free(&table, 1, RowLock::KeyShare) && !is_free(&table, 2, RowLock::KeyShare));
    block.rollback_to(savepoint);
    assert!(is_free(&table, 2, RowLock::Update));
    assert!(is_free(&table, 1, RowLock::Share));
    assert!(
        !is_free(&table, 1, RowLock::NoKeyUpdate),
        "the lock before it stands"
    );
    drop(block);
    assert!(is_free(&table, 1, RowLock::Update));
}

/// Locks go with their rows through rewrites, freezing, new shapes and vacuums.
#[test]
fn locks_go_with_rows_that_are_moved() {
    let table = filled();
    let txns = table.store().txns();
    let one = txns.begin();
    for key in [1, 3] {
        lock(&table, &one, key, RowLock::Share, WaitPolicy::Wait).unwrap();
    }
    let check = |what: &str| {
        for key in 0..ROWS {
            let locked = [1, 3].contains(&key);
            assert_eq!(
                is_free(&table, key, RowLock::NoKeyUpdate),
                !locked,
                "{what} {key}"
            );
        }
    };
    check("in place");
    let rows: Vec<Row> = (100..900)
        .map(|key| (key, 0, Some("x".repeat(80))))
        .collect();
    load(&table, &rows);
    check("beside others");
    table.freeze().unwrap();
    check("frozen");
    table.set_layout(&Layout::parse("row").unwrap()).unwrap();
    table.reshape(&one.cancel_token()).unwrap();
    check("in another shape");
    let statistics = table.statistics();
    assert_eq!(
        (statistics.rows, statistics.rows_dead),
        (ROWS as u64 + 800, 0)
    );
    drop(one);
    table.freeze().unwrap();
    assert!((0..ROWS).all(|key| is_free(&table, key, RowLock::Update)));
    assert_eq!(now(&table).len(), ROWS as usize + 800);
}

/// FOR KEY SHARE and an update that keeps the key, in either order: whoever is about to take
/// the key away afterwards waits, whatever version of the row it finds.
#[test]
fn a_shared_key_stays_while_its_row_is_replaced() {
    for share_first in [true, false] {
        for frozen in [false, true] {
            let table = filled();
            if frozen {
                table.freeze().unwrap();
            }
            let txns = table.store().txns();
            let (sharer, updater) = (txns.begin(), txns.begin());
            let share = || lock(&table, &sharer, 2, RowLock::KeyShare, WaitPolicy::Nowait);
            if share_first {
                assert!(share().unwrap());
            }
            change(&table, &updater, 2, 2).unwrap();
            if !share_first {
                assert!(share().unwrap());
            }
            updater.commit().unwrap();
            assert!(is_free(&table, 2, RowLock::NoKeyUpdate), "{share_first}");
            assert!(!is_free(&table, 2, RowLock::Update), "{share_first}");
            let deleter = txns.begin();
            thread::scope(|scope| {
                let running = beside(scope, || delete(&table, &deleter, 2));
                assert_waits(&running, "the delete");
                drop(sharer);
                assert_eq!(running.join().unwrap().unwrap(), 1);
            });
        }
    }
}

/// The block that replaces a row deletes what it has put there: who locks the key meanwhile
/// waits for it, or it for them.
#[test]
fn a_key_that_a_block_gives_up_is_not_shared() {
    let table = filled();
    let txns = table.store().txns();
    let block = txns.begin_block(Isolation::ReadCommitted);
    let statement = block.statement();
    change(&table, &statement, 2, 2).unwrap();
    statement.commit().unwrap();
    let early = txns.begin();
    assert!(lock(&table, &early, 2, RowLock::KeyShare, WaitPolicy::Nowait).unwrap());
    let statement = block.statement();
    thread::scope(|scope| {
        let running = beside(scope, || delete(&table, &statement, 2));
        assert_waits(&running, "the delete");
        drop(early);
        assert_eq!(running.join().unwrap().unwrap(), 1);
    });
    statement.commit().unwrap();
    let late = txns.begin();
    let refused = lock(&table, &late, 2, RowLock::KeyShare, WaitPolicy::Nowait);
    assert!(matches!(
        refused,
        Err(StorageError::LockNotAvailable { .. })
    ));
    block.commit().unwrap();
    assert!(matches!(
        lock(&table, &late, 2, RowLock::KeyShare, WaitPolicy::Nowait),
        Err(StorageError::Conflict)
    ));
}

#[test]
fn the_newest_rows_are_locked_by_key_and_by_index() {
    let table = filled();
    let txns = table.store().txns();
    let builder = txns.begin();
    let index = TableIndex {
        name: "t_n".to_owned(),
        columns: vec![1],
        unique: true,
        kind: IndexKind::Hash,
        nulls_not_distinct: false,
    };
    table.create_index(&builder, index).unwrap();
    drop(builder);
    assert_eq!(table.key_columns(), [0, 1]);
    let block = txns.begin_block(Isolation::RepeatableRead);
    drop(block.snapshot());
    let by = |column, value| [compare(column, CompareOp::Eq, value)];
    let lock = |txn: &Transaction, column, value| {
        let mode = RowLock::KeyShare;
        table.lock_matching(txn, &by(column, value), mode, WaitPolicy::Wait)
    };
    load(&table, &[(50, 5_000, None)]);
    let statement = block.statement();
    assert_eq!(
        lock(&statement, 0, 50).unwrap(),
        1,
        "the snapshot does not count"
    );
    assert_eq!(lock(&statement, 1, 5_000).unwrap(), 1);
    assert_eq!(lock(&statement, 1, 5_001).unwrap(), 0);
    table
        .insert(&statement, &batch(&table, &[(60, 6_000, None)]))
        .unwrap();
    assert_eq!(lock(&statement, 0, 60).unwrap(), 1, "its own");
    let deleter = txns.begin();
    delete(&table, &deleter, 3).unwrap();
    thread::scope(|scope| {
        let running = beside(scope, || lock(&statement, 0, 3));
        assert_waits(&running, "the lock");
        deleter.commit().unwrap();
        assert_eq!(running.join().unwrap().unwrap(), 0, "it is gone");
    });
    assert!(!is_free(&table, 50, RowLock::Update));
    statement.commit().unwrap();
    drop(block);
    assert!(is_free(&table, 50, RowLock::Update));
}

/// In a table without a key FOR KEY SHARE is FOR SHARE.
#[test]
fn without_a_key_rows_are_locked_as_a_whole() {
    let store = tenant("1GB", ArenaSizes::of(&TINY));
    let layout = Layout::parse("row").unwrap();
    let table = store
        .create_table(TableId(7), schema(false), &layout)
        .unwrap();
    load(&table, &[(1, 1, None), (2, 2, None)]);
    let txns = store.txns();
    let (one, two) = (txns.begin(), txns.begin());
    let view = table.view(one.snapshot().clone());
    let ids: Vec<RowId> = scan(&view, Vec::new())
        .into_values()
        .map(|row| row.1)
        .collect();
    let locked = view.lock(&one, &ids, RowLock::KeyShare, WaitPolicy::Wait);
    assert_eq!(locked.unwrap(), [true, true]);
    let shared = view.lock(&two, &ids, RowLock::Share, WaitPolicy::Nowait);
    assert_eq!(shared.unwrap(), [true, true]);
    two.set_lock_timeout(Some(Duration::from_millis(1)));
    let late = view.update(&two, &ids[..1], &batch(&table, &[(1, 9, None)]));
    assert!(matches!(late, Err(StorageError::LockTimeout)), "{late:?}");
}

/// However many rows a transaction locks, they are one set, and blocks of them one stamp.
#[test]
fn locking_a_whole_table_takes_little_memory() {
    let store = tenant("1GB", ArenaSizes::default());
    let table = table(&store, "row");
    let rows: Vec<Row> = (0..200_000).map(|key| (key, 0, None)).collect();
    load(&table, &rows);
    let used = store.budget().used();
    let txn = store.txns().begin();
    let view = table.view(txn.snapshot().clone());
    let ids: Vec<RowId> = scan(&view, Vec::new())
        .into_values()
        .map(|row| row.1)
        .collect();
    let locked = view
        .lock(&txn, &ids, RowLock::Update, WaitPolicy::Wait)
        .unwrap();
    assert!(locked.iter().all(|locked| *locked));
    let more = store.budget().used() - used;
    assert!(more < 200_000, "locks of 200,000 rows took {more} bytes");
    assert!(!is_free(&table, 77_777, RowLock::KeyShare));
    drop(txn);
    assert!(is_free(&table, 77_777, RowLock::Update));
}

/// Stamps of single rows are charged: a tenant without memory for them gets an error.
#[test]
fn stamps_of_locks_are_charged() {
    let store = tenant("4MB", ArenaSizes::of(&[4 << 20]));
    let table = table(&store, "row");
    let rows: Vec<Row> = (0..50_000).map(|key| (key, 0, None)).collect();
    load(&table, &rows);
    let all = store.budget().used();
    let _rest = store
        .budget()
        .reserve(MemoryClass::Hot, (4 << 20) - all - (64 << 10))
        .unwrap();
    let txn = store.txns().begin();
    let view = table.view(txn.snapshot().clone());
    let ids: Vec<RowId> = scan(&view, Vec::new())
        .into_values()
        .map(|row| row.1)
        .collect();
    let some: Vec<RowId> = ids.iter().copied().step_by(2).collect();
    let refused = view.lock(&txn, &some, RowLock::Update, WaitPolicy::Wait);
    assert!(
        matches!(refused, Err(StorageError::OutOfMemory(_))),
        "{refused:?}"
    );
}

/// Takes the next free job, as a queue's worker does, and deletes it.
fn work(table: &Arc<Table>, random: &mut StdRng, done: &AtomicU64) -> bool {
    let block: Block = table.store().txns().begin_block(Isolation::ReadCommitted);
    let statement = block.statement();
    let view = table.view(statement.snapshot().clone());
    let jobs = scan(&view, Vec::new());
    let mut taken = None;
    for (key, (_, id)) in &jobs {
        let locked = view.lock(&statement, &[*id], RowLock::Update, WaitPolicy::SkipLocked);
        if locked.unwrap()[0] {
            taken = Some(*key);
            break;
        }
    }
    statement.commit().unwrap();
    if let Some(key) = taken
        && random.random_bool(0.8)
    {
        let statement = block.statement();
        assert_eq!(
            delete(table, &statement, key).unwrap(),
            1,
            "nobody else has it"
        );
        statement.commit().unwrap();
        block.commit().unwrap();
        done.fetch_add(1, Ordering::Relaxed);
    }
    !jobs.is_empty()
}

/// Workers share a queue while the freezer moves its rows: each job is done once.
#[test]
fn workers_of_a_queue_take_each_job_once() {
    let table = tiny_table();
    let jobs: Vec<Row> = (0..120).map(|key| (key, 0, Some("x".repeat(50)))).collect();
    load(&table, &jobs);
    let done = AtomicU64::new(0);
    thread::scope(|scope| {
        for seed in 0..4 {
            let (table, done) = (&table, &done);
            scope.spawn(move || {
                let mut random = StdRng::seed_from_u64(seed);
                while work(table, &mut random, done) {
                    if random.random_bool(0.1) {
                        table.freeze().unwrap();
                    }
                }
            });
        }
    });
    assert_eq!((done.load(Ordering::Relaxed), now(&table).len()), (120, 0));
}

/// Parents lose their rows only while no child refers to them: children lock their parent's
/// key, others update parents and delete those without children.
#[test]
fn keys_that_are_shared_are_never_deleted() {
    let table = tiny_table();
    let parents: Vec<Row> = (0..8).map(|key| (key, 0, None)).collect();
    load(&table, &parents);
    let children: Vec<AtomicU64> = parents.iter().map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        for seed in 0..4 {
            let (table, children) = (&table, &children);
            scope.spawn(move || {
                let mut random = StdRng::seed_from_u64(seed);
                for _ in 0..300 {
                    let parent = random.random_range(0..8);
                    let txn = table.store().txns().begin();
                    let by_key = [compare(0, CompareOp::Eq, parent.into())];
                    let shared = |mode| table.lock_matching(&txn, &by_key, mode, WaitPolicy::Wait);
                    let deed = random.random_range(0..10);
                    let result = match deed {
                        0..5 => shared(RowLock::KeyShare).map(|found| {
                            if found == 1 {
                                children[parent as usize].fetch_add(1, Ordering::SeqCst);
                                thread::yield_now();
                                // Still there, whoever has replaced it meanwhile.
                                let view = table.view(table.store().txns().snapshot());
                                assert!(
                                    view.lookup(KeyRef(&key(table, parent))).unwrap().is_some(),
                                    "seed {seed}: a shared key is gone"
                                );
                                children[parent as usize].fetch_sub(1, Ordering::SeqCst);
                            }
                        }),
                        _ => {
                            let view = table.view(txn.snapshot().clone());
                            let found = view.lookup(KeyRef(&key(table, parent))).unwrap();
                            match (found, deed) {
                                (None, _) => {
                                    let row = batch(table, &[(parent, 0, None)]);
                                    table.insert(&txn, &row).map(|_| ())
                                }
                                (Some(_), 5..9) => change(table, &txn, parent, parent).map(|_| ()),
                                (Some(id), _) => view.delete(&txn, &[id]).map(|_| {
                                    let now = children[parent as usize].load(Ordering::SeqCst);
                                    assert_eq!(now, 0, "seed {seed}: deleted below a child");
                                }),
                            }
                        }
                    };
                    match result {
                        Ok(()) => drop(txn.commit()),
                        Err(
                            StorageError::Conflict
                            | StorageError::Deadlock
                            | StorageError::UniqueViolation { .. },
                        ) => {}
                        Err(other) => panic!("seed {seed}: {other:?}"),
                    }
                    if random.random_bool(0.02) {
                        table.freeze().unwrap();
                    }
                }
            });
        }
    });
}
