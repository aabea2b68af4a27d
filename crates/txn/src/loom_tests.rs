//! Threads that begin, lock, wait, commit and cancel, in every order (`scripts/loom`).
//!
//! Each model says what must hold, and by which mistakes it was seen to fail. Values that
//! stand for what a lock or a commit protects are atomics that are read and written with
//! `Relaxed`: a thread that has not been told of a write may still read what was before.

use std::sync::Arc;

use aerostat_sync::{AtomicU64, AtomicUsize, Mutex, Ordering, model, thread};
use aerostat_types::{CommitTs, OutOfMemory, TableId, TxnId};

use crate::*;

const RELATION: LockTag = LockTag(16_384);

/// Two values that are only changed together.
#[derive(Default)]
struct Pair([AtomicU64; 2]);

impl Pair {
    fn set(&self, value: u64) {
        let [first, second] = &self.0;
        first.store(value, Ordering::Relaxed);
        second.store(value, Ordering::Relaxed);
    }

    fn get(&self) -> [u64; 2] {
        let [first, second] = &self.0;
        // The other way round: who has not been told may see the later of two writes alone.
        let second = second.load(Ordering::Relaxed);
        [first.load(Ordering::Relaxed), second]
    }
}

/// Begin stamps of rows that a transaction has inserted.
impl Participant for Arc<Pair> {
    fn finish(self: Box<Self>, outcome: Outcome) {
        let stamp = match outcome {
            Outcome::Committed(ts) => ts.0,
            Outcome::Aborted => ABORTED,
        };
        for row in &self.0 {
            row.store(stamp, Ordering::Release);
        }
    }
}

/// A transaction that has inserted both rows.
fn insert(txns: &Arc<TxnManager>) -> (Transaction, Arc<Pair>) {
    let (txn, rows) = (txns.begin(), Arc::new(Pair::default()));
    rows.set(Stamp::By(txn.id()).raw());
    txn.enlist(Box::new(Arc::clone(&rows)));
    (txn, rows)
}

/// Whether a snapshot has a row. One that says `Reread` has the answer the next time.
fn sees(snapshot: &Snapshot, row: &AtomicU64) -> bool {
    let ask = || snapshot.sees(row.load(Ordering::Acquire), END_NONE);
    let answer = match ask() {
        Visibility::Reread => ask(),
        answer => answer,
    };
    assert_ne!(
        answer,
        Visibility::Reread,
        "who has settled left final stamps"
    );
    answer == Visibility::Visible
}

fn acquire(locks: &RelationLocks, mode: LockMode) {
    let got = locks.acquire(RELATION, mode, &CancelToken::new(), None);
    got.expect("nobody waits for the other");
}

/// A relation is never held by a weak and a strong mode at once, who has it sees all that was done
/// under locks before, and who waits for it gets it. Seen to fail: a strong lock that says so
/// only after it has looked at the stripes; a weak one that looks for strong ones before it
/// has locked its stripe; `renounce` without Release, or `note` without Acquire.
#[test]
fn a_relation_is_had_weakly_or_strongly() {
    model(|| {
        let (txns, data) = (TxnManager::new(), Arc::new(Pair::default()));
        let strong = {
            let (locks, data) = (txns.relation_locks(), Arc::clone(&data));
            thread::spawn(move || {
                acquire(&locks, LockMode::AccessExclusive);
                data.set(1);
                locks.release_all();
            })
        };
        let locks = txns.relation_locks();
        acquire(&locks, LockMode::AccessShare);
        let [first, second] = data.get();
        assert_eq!(first, second, "read beside a strong lock");
        locks.release_all();
        strong.join().expect("no panic");
        assert!(locks.try_acquire(RELATION, LockMode::AccessExclusive));
    });
}

/// Who has had a relation weakly, and changed what it may, is seen by who has it strongly after.
/// Seen to fail: a strong lock that does not take over what the stripes note.
#[test]
fn what_was_done_weakly_is_seen_strongly() {
    model(|| {
        let (txns, data) = (TxnManager::new(), Arc::new(Pair::default()));
        let weak = {
            let (locks, data) = (txns.relation_locks(), Arc::clone(&data));
            thread::spawn(move || {
                acquire(&locks, LockMode::RowExclusive);
                data.set(1);
                locks.release_all();
            })
        };
        let locks = txns.relation_locks();
        acquire(&locks, LockMode::Share);
        let [first, second] = data.get();
        assert_eq!(first, second, "read beside a weak lock");
        locks.release_all();
        weak.join().expect("no panic");
    });
}

/// A snapshot has a commit whole or not at all, and whose transaction has settled has final
/// stamps. Seen to fail: a transaction that leaves the state table before its participants
/// have stamped; one whose state says that it has committed only after snapshots see its place.
#[test]
fn a_commit_is_seen_whole_or_not_at_all() {
    model(|| {
        let txns = TxnManager::new();
        let (txn, rows) = insert(&txns);
        let writer = thread::spawn(move || txn.commit().expect("no log"));
        let snapshot = txns.snapshot();
        let [first, second] = &rows.0;
        let seen = [sees(&snapshot, second), sees(&snapshot, first)];
        let place = writer.join().expect("no panic");
        assert_eq!(seen, [snapshot.at() >= place; 2]);
        assert_eq!(rows.get(), [place.0; 2]);
        assert_eq!(txns.unsettled(), 0);
    });
}

/// As many commits as are enqueued are durable at once.
#[derive(Default)]
struct Group(Mutex<CommitTs>);

impl CommitLog for Group {
    fn append_chunk(&self, _: TxnId, _: Vec<u8>) -> Result<(), LogFailure> {
        Ok(())
    }

    fn enqueue_commit(
        &self,
        _: TxnId,
        _: &[TxnId],
        ts: CommitTs,
        _: Vec<u8>,
    ) -> Result<(), LogFailure> {
        *self.0.lock() = ts;
        Ok(())
    }

    fn enqueue_commit_with_catalog(
        &self,
        _: TxnId,
        _: &[TxnId],
        ts: CommitTs,
        _: Vec<u8>,
        _: Vec<u8>,
    ) -> Result<(), LogFailure> {
        *self.0.lock() = ts;
        Ok(())
    }

    fn wait_durable(&self, _: CommitTs) -> Result<CommitTs, LogFailure> {
        Ok(*self.0.lock())
    }

    fn forget(&self, _: TxnId) {}

    fn reserve_redo(&self, _: usize) -> Result<(), OutOfMemory> {
        Ok(())
    }

    fn release_redo(&self, _: usize) {}
}

/// Whoever publishes a group shows all of it: a snapshot that has a commit has those of lower
/// places, and a commit that has returned is in every snapshot from then on. Seen to fail: a
/// place in the order that is there before the state says that it has committed, with the order
/// lock given back in between.
#[test]
fn a_group_of_commits_is_seen_in_its_order() {
    model(|| {
        let log = Arc::new(Group::default());
        let txns = TxnManager::with_log(TxnId(1), CommitTs(0), log);
        let (other, others) = insert(&txns);
        let (own, rows) = insert(&txns);
        let theirs = thread::spawn(move || other.commit().expect("the log takes it"));
        let place = own.commit().expect("the log takes it");
        let snapshot = txns.snapshot();
        assert!(snapshot.at() >= place);
        assert!(sees(&snapshot, &rows.0[1]) && sees(&snapshot, &rows.0[0]));
        let seen = [sees(&snapshot, &others.0[1]), sees(&snapshot, &others.0[0])];
        let their_place = theirs.join().expect("no panic");
        assert_eq!(seen, [their_place <= snapshot.at(); 2]);
    });
}

/// No stamp is left of what the newest snapshots saw, once `wait_settled` has returned. Seen to
/// fail: one that does not wait for the last of these commits.
#[test]
fn who_waits_for_all_to_settle_finds_no_stamp() {
    model(|| {
        let txns = TxnManager::new();
        let (txn, rows) = insert(&txns);
        let writer = thread::spawn(move || txn.commit().expect("no log"));
        let seen = txns.last_commit();
        txns.wait_settled();
        if seen > CommitTs(0) {
            assert_eq!(rows.get(), [seen.0; 2]);
        }
        writer.join().expect("no panic");
    });
}

/// Who waits for a transaction wakes when it has settled, and finds final stamps. Seen to fail (all
/// threads wait): a wait that asks whether the holder has settled before it locks the graph;
/// a transaction that leaves the table before it locks the graph, and wakes whom it found
/// before.
#[test]
fn no_waiter_for_a_transaction_is_lost() {
    model(|| {
        let txns = TxnManager::new();
        let (holder, rows) = insert(&txns);
        let waiter = txns.begin();
        let id = holder.id();
        let end = thread::spawn(move || holder.rollback());
        let settled = waiter.wait(Awaited::transaction(id));
        settled.expect("nobody waits for the waiter");
        assert_eq!(rows.get(), [ABORTED; 2]);
        end.join().expect("no panic");
        assert_eq!(txns.waiting(), 0);
    });
}

/// A wait that begins beside a cancellation ends by it. Seen to fail (all threads wait): the token
/// says that it is cancelled only after its waits were interrupted and the lock given back;
/// `attach` that does not ask.
#[test]
fn no_wait_misses_a_cancellation() {
    model(|| {
        let token = CancelToken::new();
        let other = token.clone();
        let cancels = thread::spawn(move || other.cancel());
        assert_eq!(token.sleep_until(None), Err(WaitError::Cancelled));
        cancels.join().expect("no panic");
    });
}

/// Who finds a token cancelled sees why: all that was done before. Seen to fail: a store or a load
/// of the flag that is `Relaxed`.
#[test]
fn who_is_cancelled_sees_why() {
    model(|| {
        let (token, why) = (CancelToken::new(), Arc::new(Pair::default()));
        let (other, reason) = (token.clone(), Arc::clone(&why));
        let cancels = thread::spawn(move || {
            reason.set(1);
            other.cancel();
        });
        if token.is_cancelled() {
            assert_eq!(why.get(), [1; 2]);
        }
        cancels.join().expect("no panic");
    });
}

/// A transaction that ends gives its row locks back, though who holds none does not lock the
/// table of sets. Seen to fail: a count that is stored after the table was unlocked.
#[test]
fn row_locks_end_with_their_transactions() {
    model(|| {
        let txns = TxnManager::new();
        let lock_and_end = |txns: &Arc<TxnManager>| {
            let txn = txns.begin();
            let joined = txns.row_locks().join(&txn, None, RowLock::Update);
            assert!(matches!(joined, Ok(Joined::Set(_))));
            txn.rollback();
        };
        let other = {
            let txns = Arc::clone(&txns);
            thread::spawn(move || lock_and_end(&txns))
        };
        lock_and_end(&txns);
        other.join().expect("no panic");
        assert_eq!(txns.row_locks().sizes(), [0; 5]);
    });
}

/// A row that one transaction at a time has, as storage does it: looked at under a latch, and
/// waited for without.
#[derive(Default)]
struct Row {
    holder: Mutex<Option<TxnId>>,
    /// How many have had it, counted by them.
    takers: AtomicUsize,
}

struct Leave(Arc<Row>);

impl Participant for Leave {
    fn finish(self: Box<Self>, _: Outcome) {
        *self.0.holder.lock() = None;
    }
}

impl Row {
    fn take(self: &Arc<Self>, txn: &Transaction) {
        let row = (RowTag::new(TableId(1), 1), RowLock::Update);
        loop {
            let awaited = {
                let mut holder = self.holder.lock();
                let is_kept = || txn.may_be_kept() && txn.is_kept(row.0, row.1);
                if holder.is_none() && !is_kept() {
                    *holder = Some(txn.id());
                    break;
                }
                Awaited {
                    holder: *holder,
                    row: Some(row),
                }
            };
            txn.wait(awaited).expect("they wait for one row only");
        }
        txn.leave_row(row.0);
        txn.enlist(Box::new(Leave(Arc::clone(self))));
        let takers = self.takers.load(Ordering::Relaxed);
        self.takers.store(takers + 1, Ordering::Relaxed);
    }
}

/// Whoever waits for a row in its queue has it in the end, alone, and leaves nothing in the queue or
/// its count. Seen to fail: a ticket that leaves without giving the turn (all threads wait), or
/// without being taken off the count.
#[test]
fn everyone_in_the_queue_of_a_row_has_it() {
    model(|| {
        let (txns, row) = (TxnManager::new(), Arc::new(Row::default()));
        let first = txns.begin();
        row.take(&first);
        let waiters: Vec<_> = (0..2)
            .map(|_| {
                let (txn, row) = (txns.begin(), Arc::clone(&row));
                thread::spawn(move || {
                    row.take(&txn);
                    txn.rollback();
                })
            })
            .collect();
        first.rollback();
        for waiter in waiters {
            waiter.join().expect("no panic");
        }
        assert_eq!(row.takers.load(Ordering::Relaxed), 3);
        assert!(!txns.has_row_queues());
        assert_eq!((txns.waiting(), txns.unsettled()), (0, 0));
    });
}

/// Who gives up waiting for a row is in nobody's way. Seen to fail: a place whose number of tickets is
/// stored before they change.
#[test]
fn who_gives_up_leaves_the_queue_of_a_row() {
    model(|| {
        let (txns, row) = (TxnManager::new(), Arc::new(Row::default()));
        let (first, gives_up, last) = (txns.begin(), txns.begin(), txns.begin());
        row.take(&first);
        let awaited = Awaited {
            holder: Some(first.id()),
            row: Some((RowTag::new(TableId(1), 1), RowLock::Update)),
        };
        let other = thread::spawn(move || {
            drop(gives_up.waiting_for(awaited));
            gives_up.rollback();
        });
        first.rollback();
        row.take(&last);
        other.join().expect("no panic");
        last.rollback();
        assert!(!txns.has_row_queues());
        assert_eq!((txns.waiting(), txns.unsettled()), (0, 0));
    });
}

/// A circle of waits that leads through a session and the transaction that it has at hand is found
/// by whoever closes it. Seen to fail (all threads wait): a session that does not say which
/// transaction it has.
#[test]
fn a_circle_through_a_session_is_found() {
    const LOCK: AdvisoryLock = AdvisoryLock {
        key: AdvisoryKey::One(7),
        mode: AdvisoryMode::Exclusive,
    };
    model(|| {
        let txns = TxnManager::new();
        let token = CancelToken::new();
        let holder = txns.advisory_locks();
        let held = holder.try_acquire(LOCK, Term::Session, &token);
        assert_eq!(held, Ok(true));
        let (waits, waited_for) = (txns.begin(), txns.begin());
        let id = waited_for.id();
        let first = thread::spawn(move || {
            holder.enter(waits.id());
            let waited = waits.wait(Awaited::transaction(id));
            waits.rollback();
            holder.release(LOCK);
            waited
        });
        let session = txns.advisory_locks();
        session.enter(id);
        let got = session.acquire(LOCK, Term::Session, &token, None);
        waited_for.rollback();
        let waited = first.join().expect("no panic");
        let deadlocks = [
            waited == Err(WaitError::Deadlock),
            got == Err(WaitError::Deadlock.into()),
        ];
        assert!(deadlocks != [true; 2], "one of them gives up");
        assert!(waited.is_ok() || deadlocks[0]);
        assert!(got.is_ok() || deadlocks[1]);
    });
}
