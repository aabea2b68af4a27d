//! Advisory locks: counts, terms, waits, and circles through rows and relations.

use std::{collections::HashMap, sync::Arc, thread, time::Duration};

use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::{
    AdvisoryError, AdvisoryKey, AdvisoryLock, AdvisoryLocks, AdvisoryMode, CancelToken, Isolation,
    LockMode, LockTag, LockedObject, Term, TxnManager, WaitError,
};

const KEY: AdvisoryKey = AdvisoryKey::One(7);
const X: AdvisoryLock = AdvisoryLock {
    key: KEY,
    mode: AdvisoryMode::Exclusive,
};
const S: AdvisoryLock = AdvisoryLock {
    key: KEY,
    mode: AdvisoryMode::Shared,
};
const OTHER: AdvisoryLock = AdvisoryLock {
    key: AdvisoryKey::Two(0, 7),
    mode: AdvisoryMode::Exclusive,
};

fn attempt(locks: &Arc<AdvisoryLocks>, lock: AdvisoryLock, term: Term<'_>) -> bool {
    locks.try_acquire(lock, term, &CancelToken::new()).unwrap()
}

fn acquire(locks: &Arc<AdvisoryLocks>, lock: AdvisoryLock) -> Result<(), AdvisoryError> {
    locks.acquire(lock, Term::Session, &CancelToken::new(), None)
}

/// Waits for a lock in a thread of its own, and returns once it waits.
fn waiting(
    txns: &Arc<TxnManager>,
    locks: &Arc<AdvisoryLocks>,
    lock: AdvisoryLock,
    cancel: &CancelToken,
) -> thread::JoinHandle<Result<(), AdvisoryError>> {
    let before = txns.waiting();
    let (locks, cancel) = (Arc::clone(locks), cancel.clone());
    let thread = thread::spawn(move || locks.acquire(lock, Term::Session, &cancel, None));
    while txns.waiting() == before {
        thread::yield_now();
    }
    thread
}

fn is_forgotten(txns: &TxnManager) -> bool {
    txns.with_locks(|graph| graph.advisory.is_empty())
}

#[test]
fn a_lock_is_given_back_as_often_as_it_was_taken() {
    let txns = TxnManager::new();
    let (a, b) = (txns.advisory_locks(), txns.advisory_locks());
    assert!(attempt(&a, X, Term::Session) && attempt(&a, X, Term::Session));
    // A session is not in its own way.
    assert!(attempt(&a, S, Term::Session));
    assert!(!attempt(&b, S, Term::Session) && !attempt(&b, X, Term::Session));
    assert!(attempt(&b, OTHER, Term::Session));
    assert!(a.release(X) && !attempt(&b, S, Term::Session));
    assert!(a.release(X) && !a.release(X));
    assert!(attempt(&b, S, Term::Session) && !attempt(&b, X, Term::Session));
    assert!(a.release(S) && !a.release(S) && !a.release(OTHER));
    assert!(attempt(&b, X, Term::Session));
    b.release_all();
    assert!(!b.release(X) && is_forgotten(&txns));
}

#[test]
fn locks_end_with_their_transaction_or_session() {
    let txns = TxnManager::new();
    let (a, b) = (txns.advisory_locks(), txns.advisory_locks());
    let block = txns.begin_block(Isolation::ReadCommitted);
    let term = Term::Transaction(block.relation_locks());
    let savepoint = block.savepoint();
    assert!(attempt(&a, X, term) && attempt(&a, X, term));
    assert!(attempt(&a, OTHER, Term::Session));
    // Only what was taken for the session is given back by name.
    assert!(!a.release(X));
    a.release_all();
    assert!(!attempt(&b, X, Term::Session) && attempt(&b, OTHER, Term::Session));
    block.rollback_to(savepoint);
    assert!(attempt(&b, X, Term::Session));
    b.release_all();
    // What the session has taken outlives the block.
    assert!(attempt(&a, S, term) && attempt(&a, S, Term::Session));
    block.commit().unwrap();
    assert!(!attempt(&b, X, Term::Session) && attempt(&b, S, Term::Session));
    a.end();
    assert!(attempt(&b, X, Term::Session));
    let late = a.try_acquire(OTHER, Term::Session, &CancelToken::new());
    assert_eq!(late, Err(WaitError::Cancelled.into()));
    drop(b);
    assert!(is_forgotten(&txns));
}

#[test]
fn waits_end_with_the_lock_a_timeout_or_a_cancellation() {
    let txns = TxnManager::new();
    let [a, b, c] = [(); 3].map(|()| txns.advisory_locks());
    acquire(&a, X).unwrap();
    let soon = Some(Duration::from_millis(1));
    let result = b.acquire(X, Term::Session, &CancelToken::new(), soon);
    assert_eq!(result, Err(WaitError::TimedOut.into()));
    let cancel = CancelToken::new();
    let stopped = waiting(&txns, &b, X, &cancel);
    // Who comes later does not pass who waits.
    let behind = waiting(&txns, &c, S, &CancelToken::new());
    let shown: Vec<bool> = txns
        .shown_locks()
        .iter()
        .map(|lock| {
            assert_eq!(lock.on, LockedObject::Advisory(KEY));
            lock.waits_since.is_none()
        })
        .collect();
    assert_eq!(shown, [true, false, false]);
    cancel.cancel();
    assert_eq!(stopped.join().unwrap(), Err(WaitError::Cancelled.into()));
    let late = b.try_acquire(OTHER, Term::Session, &cancel);
    assert_eq!(late, Err(WaitError::Cancelled.into()));
    a.release_all();
    behind.join().unwrap().unwrap();
    assert!(!b.release(X) && c.release(S) && is_forgotten(&txns));
}

#[test]
fn circles_through_sessions_and_their_transactions_are_found() {
    let txns = TxnManager::new();
    let (a, b) = (txns.advisory_locks(), txns.advisory_locks());
    acquire(&a, X).unwrap();
    acquire(&b, OTHER).unwrap();
    let waits = waiting(&txns, &a, OTHER, &CancelToken::new());
    assert_eq!(acquire(&b, X), Err(WaitError::Deadlock.into()));
    b.release_all();
    waits.join().unwrap().unwrap();
    b.release_all();
    a.release_all();
    // A has a number and waits for B's relation. B may not wait for the number.
    let tag = LockTag(16_384);
    let (of_a, of_b) = (txns.begin(), txns.begin());
    a.enter(of_a.id());
    b.enter(of_b.id());
    acquire(&a, X).unwrap();
    assert!(
        of_b.relation_locks()
            .try_acquire(tag, LockMode::AccessExclusive)
    );
    let before = txns.waiting();
    let locks = Arc::clone(of_a.relation_locks());
    let relation =
        thread::spawn(move || locks.acquire(tag, LockMode::Share, &CancelToken::new(), None));
    while txns.waiting() == before {
        thread::yield_now();
    }
    assert_eq!(acquire(&b, X), Err(WaitError::Deadlock.into()));
    of_b.rollback();
    relation.join().unwrap().unwrap();
    // A waits for B's number. B may not wait for a row of A's transaction.
    let of_b = txns.begin();
    b.enter(of_b.id());
    acquire(&b, OTHER).unwrap();
    let waits = waiting(&txns, &a, OTHER, &CancelToken::new());
    let row = txns.wait_for(of_b.id(), of_a.id(), &CancelToken::new());
    assert_eq!(row, Err(WaitError::Deadlock));
    b.end();
    waits.join().unwrap().unwrap();
}

#[test]
fn a_sleep_ends_in_time_or_when_cancelled() {
    let cancel = CancelToken::new();
    assert_eq!(cancel.sleep_until(Some(std::time::Instant::now())), Ok(()));
    let sleeper = {
        let cancel = cancel.clone();
        thread::spawn(move || cancel.sleep_until(None))
    };
    cancel.cancel();
    assert_eq!(sleeper.join().unwrap(), Err(WaitError::Cancelled));
    assert_eq!(cancel.sleep_until(None), Err(WaitError::Cancelled));
}

/// Against counts written out: who may have what follows from who has what.
#[test]
fn sessions_have_what_the_model_says() {
    for seed in 0..200 {
        let mut random = StdRng::seed_from_u64(seed);
        let txns = TxnManager::new();
        let sessions = [(); 4].map(|()| txns.advisory_locks());
        let mut model: HashMap<(usize, AdvisoryLock), u64> = HashMap::new();
        for _ in 0..200 {
            let at = random.random_range(0..sessions.len());
            let lock = AdvisoryLock {
                key: AdvisoryKey::One(random.random_range(0..3)),
                mode: match random.random_bool(0.5) {
                    true => AdvisoryMode::Shared,
                    false => AdvisoryMode::Exclusive,
                },
            };
            match random.random_range(0..8) {
                0..=3 => {
                    let in_the_way = model.keys().any(|(other, held)| {
                        let shared = [held.mode, lock.mode] == [AdvisoryMode::Shared; 2];
                        *other != at && held.key == lock.key && !shared
                    });
                    let granted = attempt(&sessions[at], lock, Term::Session);
                    assert_eq!(granted, !in_the_way, "seed {seed}");
                    if granted {
                        *model.entry((at, lock)).or_default() += 1;
                    }
                }
                4..=6 => {
                    let count = model.get(&(at, lock)).copied().unwrap_or(0);
                    assert_eq!(sessions[at].release(lock), count > 0, "seed {seed}");
                    if count > 1 {
                        model.insert((at, lock), count - 1);
                    } else {
                        model.remove(&(at, lock));
                    }
                }
                _ => {
                    sessions[at].release_all();
                    model.retain(|(other, _), _| *other != at);
                }
            }
            assert_eq!(txns.shown_locks().len(), model.len(), "seed {seed}");
            assert_eq!(is_forgotten(&txns), model.is_empty(), "seed {seed}");
        }
    }
}
