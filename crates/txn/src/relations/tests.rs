//! Locks: granted requests, waiting requests, and detection of circles.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI32, Ordering},
    },
    thread,
    time::Duration,
};

use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::{
    Block, CancelToken, Isolation, LockMode, LockTag, RelationLocks, TxnManager, WaitError,
};

const T: LockTag = LockTag(16_384);
const U: LockTag = LockTag(16_385);

fn acquire(locks: &RelationLocks, tag: LockTag, mode: LockMode) -> Result<(), WaitError> {
    locks.acquire(tag, mode, &CancelToken::new(), None)
}

/// Waits for a lock in a thread of its own, and returns once it waits.
fn waiting(
    txns: &Arc<TxnManager>,
    locks: &Arc<RelationLocks>,
    tag: LockTag,
    mode: LockMode,
) -> thread::JoinHandle<Result<(), WaitError>> {
    let before = txns.waiting();
    let locks = Arc::clone(locks);
    let thread = thread::spawn(move || acquire(&locks, tag, mode));
    while txns.waiting() == before {
        thread::yield_now();
    }
    thread
}

fn is_forgotten(txns: &TxnManager) -> bool {
    txns.with_locks(|graph| graph.locks.is_empty())
}

#[test]
fn locks_exclude_others_as_the_matrix_says() {
    let txns = TxnManager::new();
    for held in LockMode::ALL {
        for wanted in LockMode::ALL {
            let (a, b) = (txns.relation_locks(), txns.relation_locks());
            assert!(a.try_acquire(T, held) && a.holds(T, held));
            let granted = b.try_acquire(T, wanted);
            assert_eq!(
                granted,
                !held.conflicts_with(wanted),
                "{wanted} beside {held}"
            );
            assert_eq!(b.holds(T, wanted), granted);
            // Nobody is in his own way, nor in that of another relation.
            assert!(b.try_acquire(U, LockMode::AccessExclusive));
            assert!(b.try_acquire(U, wanted));
            a.release_all();
            assert!(b.try_acquire(T, wanted), "{wanted} after {held}");
            drop(b);
            assert!(is_forgotten(&txns));
        }
    }
}

#[test]
fn who_waits_is_not_passed_by_those_who_come_later() {
    let txns = TxnManager::new();
    let [reader, owner, late] = [(); 3].map(|()| txns.relation_locks());
    acquire(&reader, T, LockMode::AccessShare).unwrap();
    let ddl = waiting(&txns, &owner, T, LockMode::AccessExclusive);
    assert!(!late.try_acquire(T, LockMode::AccessShare));
    let reads = waiting(&txns, &late, T, LockMode::AccessShare);
    // Who has it already goes on.
    assert!(reader.try_acquire(T, LockMode::RowExclusive));
    reader.release_all();
    ddl.join().unwrap().unwrap();
    assert_eq!(txns.waiting(), 1);
    owner.release_all();
    reads.join().unwrap().unwrap();
    assert!(late.holds(T, LockMode::AccessShare));
}

#[test]
fn several_that_agree_are_served_together() {
    let txns = TxnManager::new();
    let [first, a, b, c] = [(); 4].map(|()| txns.relation_locks());
    acquire(&first, T, LockMode::Exclusive).unwrap();
    let a_waits = waiting(&txns, &a, T, LockMode::Share);
    let b_waits = waiting(&txns, &b, T, LockMode::Share);
    let c_waits = waiting(&txns, &c, T, LockMode::RowExclusive);
    first.release_all();
    a_waits.join().unwrap().unwrap();
    b_waits.join().unwrap().unwrap();
    assert_eq!(txns.waiting(), 1);
    a.release_all();
    b.release_all();
    c_waits.join().unwrap().unwrap();
}

#[test]
fn circles_of_locks_are_found() {
    let txns = TxnManager::new();
    let (a, b) = (txns.relation_locks(), txns.relation_locks());
    acquire(&a, T, LockMode::RowExclusive).unwrap();
    acquire(&b, U, LockMode::RowExclusive).unwrap();
    let waits = waiting(&txns, &a, U, LockMode::Share);
    assert_eq!(acquire(&b, T, LockMode::Share), Err(WaitError::Deadlock));
    b.release_all();
    waits.join().unwrap().unwrap();
    // Two that both want more of what they have.
    let (a, b) = (txns.relation_locks(), txns.relation_locks());
    acquire(&a, LockTag(1), LockMode::Share).unwrap();
    acquire(&b, LockTag(1), LockMode::Share).unwrap();
    let waits = waiting(&txns, &a, LockTag(1), LockMode::RowExclusive);
    let circle = acquire(&b, LockTag(1), LockMode::RowExclusive);
    assert_eq!(circle, Err(WaitError::Deadlock));
    drop(b);
    waits.join().unwrap().unwrap();
}

#[test]
fn circles_through_rows_and_queues_are_found() {
    let txns = TxnManager::new();
    // A has a row. B has a lock and waits for the row. A may not wait for the lock.
    let (a, b) = (txns.begin(), txns.begin());
    acquire(b.relation_locks(), T, LockMode::RowExclusive).unwrap();
    let (id, holder, manager) = (b.id(), a.id(), Arc::clone(&txns));
    let row = thread::spawn(move || manager.wait_for(id, holder, &CancelToken::new()));
    while txns.waiting() == 0 {
        thread::yield_now();
    }
    let wanted = acquire(a.relation_locks(), T, LockMode::AccessExclusive);
    assert_eq!(wanted, Err(WaitError::Deadlock));
    // Nor may C, whom A waits for behind it in the queue, wait for A.
    let c = txns.begin();
    acquire(c.relation_locks(), U, LockMode::AccessShare).unwrap();
    let d = txns.relation_locks();
    let strong = waiting(&txns, &d, U, LockMode::AccessExclusive);
    let behind = waiting(&txns, a.relation_locks(), U, LockMode::AccessShare);
    let circle = txns.wait_for(c.id(), a.id(), &CancelToken::new());
    assert_eq!(circle, Err(WaitError::Deadlock));
    c.rollback();
    strong.join().unwrap().unwrap();
    drop(d);
    behind.join().unwrap().unwrap();
    a.rollback();
    row.join().unwrap().unwrap();
}

#[test]
fn a_wait_ends_when_it_is_cancelled_or_takes_too_long() {
    let txns = TxnManager::new();
    let [holder, impatient, last] = [(); 3].map(|()| txns.relation_locks());
    acquire(&holder, T, LockMode::RowExclusive).unwrap();
    let soon = Some(Duration::from_millis(1));
    let result = impatient.acquire(T, LockMode::Share, &CancelToken::new(), soon);
    assert_eq!(result, Err(WaitError::TimedOut));
    let cancel = CancelToken::new();
    let thread = {
        let (locks, cancel) = (Arc::clone(&impatient), cancel.clone());
        thread::spawn(move || locks.acquire(T, LockMode::Share, &cancel, None))
    };
    while txns.waiting() == 0 {
        thread::yield_now();
    }
    // Who waits behind goes on, once nobody stronger is before him.
    let behind = waiting(&txns, &last, T, LockMode::RowExclusive);
    cancel.cancel();
    assert_eq!(thread.join().unwrap(), Err(WaitError::Cancelled));
    behind.join().unwrap().unwrap();
    assert!(!impatient.holds(T, LockMode::Share));
    drop((holder, last));
    assert!(is_forgotten(&txns));
    // Nothing is left that would keep weak locks from their fast way.
    assert!(impatient.try_acquire(T, LockMode::AccessShare) && is_forgotten(&txns));
}

#[test]
fn a_block_gives_its_locks_back_at_its_end_and_at_savepoints() {
    let txns = TxnManager::new();
    let other = txns.relation_locks();
    let is_free = |tag| {
        let free = other.try_acquire(tag, LockMode::AccessExclusive);
        other.release_all();
        free
    };
    let block = txns.begin_block(Isolation::ReadCommitted);
    acquire(block.relation_locks(), T, LockMode::AccessShare).unwrap();
    let savepoint = block.savepoint();
    let statement = block.statement();
    acquire(statement.relation_locks(), U, LockMode::RowExclusive).unwrap();
    acquire(statement.relation_locks(), T, LockMode::AccessExclusive).unwrap();
    statement.commit().unwrap();
    assert!(!is_free(U));
    block.rollback_to(savepoint);
    assert!(is_free(U) && !is_free(T));
    assert!(other.try_acquire(T, LockMode::AccessShare));
    other.release_all();
    block.commit().unwrap();
    assert!(is_free(T));
    for end in [Block::rollback, |block: Block| drop(block.commit())] {
        let block = txns.begin_block(Isolation::ReadCommitted);
        acquire(block.relation_locks(), T, LockMode::Share).unwrap();
        end(block);
        assert!(is_free(T));
    }
    // With a catalogue they stay until the caller has shown it.
    let block = txns.begin_block(Isolation::ReadCommitted);
    let locks = Arc::clone(block.relation_locks());
    acquire(&locks, T, LockMode::AccessExclusive).unwrap();
    block.commit_with(Vec::new()).unwrap();
    assert!(!is_free(T));
    drop(locks);
    assert!(is_free(T));
}

#[test]
fn a_statement_of_its_own_has_its_locks_to_its_end() {
    let txns = TxnManager::new();
    let other = txns.relation_locks();
    let locks = txns.relation_locks();
    acquire(&locks, T, LockMode::RowExclusive).unwrap();
    let transaction = txns.begin_with(locks);
    assert!(!other.try_acquire(T, LockMode::Share));
    transaction.commit().unwrap();
    assert!(other.try_acquire(T, LockMode::Share));
}

#[test]
fn threads_exclude_each_other() {
    let txns = TxnManager::new();
    // Above 0: readers. Below: the one that excludes all.
    let inside: Arc<[AtomicI32; 2]> = Arc::default();
    thread::scope(|scope| {
        for seed in 0..6 {
            let (txns, inside) = (&txns, Arc::clone(&inside));
            scope.spawn(move || {
                let mut random = StdRng::seed_from_u64(seed);
                for _ in 0..2_000 {
                    let at = random.random_range(0..2);
                    let locks = txns.relation_locks();
                    let tag = LockTag(at as u64);
                    if random.random_bool(0.1) {
                        acquire(&locks, tag, LockMode::AccessExclusive).unwrap();
                        assert_eq!(inside[at].fetch_sub(1, Ordering::SeqCst), 0, "seed {seed}");
                        inside[at].fetch_add(1, Ordering::SeqCst);
                    } else {
                        acquire(&locks, tag, LockMode::AccessShare).unwrap();
                        assert!(
                            inside[at].fetch_add(1, Ordering::SeqCst) >= 0,
                            "seed {seed}"
                        );
                        inside[at].fetch_sub(1, Ordering::SeqCst);
                    }
                }
            });
        }
    });
    assert!(is_forgotten(&txns));
}
