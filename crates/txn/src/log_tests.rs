//! Commits over a log whose disk is simulated by the test.

use std::{collections::HashSet, io, sync::Arc, thread, time::Duration};

use aerostat_sync::{AtomicBool, AtomicU64, Condvar, Mutex, Ordering};
use aerostat_types::{CommitTs, OutOfMemory, TxnId};
use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::*;

#[derive(Default)]
pub(crate) struct State {
    pub(crate) enqueued: Vec<(TxnId, CommitTs, Vec<u8>)>,
    pub(crate) chunks: Vec<(TxnId, Vec<u8>)>,
    pub(crate) forgotten: HashSet<TxnId>,
    /// Transactions and statements that have committed.
    pub(crate) committed: HashSet<TxnId>,
    /// What was committed beside rows.
    pub(crate) catalogs: Vec<(CommitTs, Vec<u8>)>,
    /// Taken for redo and not given back.
    pub(crate) redo_bytes: usize,
    durable: u64,
    failure: Option<LogFailure>,
}

/// So much may be taken for redo.
pub(crate) const REDO_BUDGET: usize = 8 << 20;

/// A log in memory; the test says when what is durable.
#[derive(Default)]
pub(crate) struct FakeLog {
    pub(crate) state: Mutex<State>,
    changed: Condvar,
}

impl FakeLog {
    pub(crate) fn make_durable(&self, through: u64) {
        self.state.lock().durable = through;
        self.changed.notify_all();
    }

    pub(crate) fn fail(&self) {
        self.state.lock().failure.get_or_insert(LogFailure {
            doing: "write".to_owned(),
            source: Arc::new(io::Error::from(io::ErrorKind::StorageFull)),
        });
        self.changed.notify_all();
    }

    pub(crate) fn enqueued(&self) -> usize {
        self.state.lock().enqueued.len()
    }

    pub(crate) fn wait_enqueued(&self, count: usize) {
        while self.enqueued() < count {
            thread::yield_now();
        }
    }
}

impl CommitLog for FakeLog {
    fn append_chunk(&self, txn: TxnId, redo: Vec<u8>) -> Result<(), LogFailure> {
        self.state.lock().chunks.push((txn, redo));
        Ok(())
    }

    fn enqueue_commit(
        &self,
        txn: TxnId,
        parts: &[TxnId],
        ts: CommitTs,
        redo: Vec<u8>,
    ) -> Result<(), LogFailure> {
        let mut state = self.state.lock();
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        let before = state.enqueued.last().map_or(0, |(_, ts, _)| ts.0);
        assert_eq!(ts.0, before + 1, "places without gaps");
        let chunked = |part: &TxnId| state.chunks.iter().any(|(by, _)| by == part);
        assert!(parts.is_sorted() && parts.iter().all(chunked));
        state.committed.extend(parts.iter().chain([&txn]));
        state.enqueued.push((txn, ts, redo));
        Ok(())
    }

    fn enqueue_commit_with_catalog(
        &self,
        txn: TxnId,
        parts: &[TxnId],
        ts: CommitTs,
        redo: Vec<u8>,
        catalog: Vec<u8>,
    ) -> Result<(), LogFailure> {
        self.enqueue_commit(txn, parts, ts, redo)?;
        self.state.lock().catalogs.push((ts, catalog));
        Ok(())
    }

    fn wait_durable(&self, ts: CommitTs) -> Result<CommitTs, LogFailure> {
        let mut state = self.state.lock();
        loop {
            if state.durable >= ts.0 {
                let newest = state.enqueued.last().map_or(0, |(_, ts, _)| ts.0);
                return Ok(CommitTs(state.durable.min(newest)));
            }
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            self.changed.wait(&mut state);
        }
    }

    fn forget(&self, txn: TxnId) {
        self.state.lock().forgotten.insert(txn);
    }

    fn reserve_redo(&self, bytes: usize) -> Result<(), OutOfMemory> {
        let mut state = self.state.lock();
        let redo_bytes = state.redo_bytes + bytes;
        if redo_bytes > REDO_BUDGET {
            return Err(OutOfMemory {
                budget: "fake".to_owned(),
                requested: bytes as u64,
                used: state.redo_bytes as u64,
                limit: REDO_BUDGET as u64,
            });
        }
        state.redo_bytes = redo_bytes;
        Ok(())
    }

    fn release_redo(&self, bytes: usize) {
        self.state.lock().redo_bytes -= bytes;
    }
}

pub(crate) fn over(log: &Arc<FakeLog>) -> Arc<TxnManager> {
    TxnManager::with_log(TxnId(1), CommitTs(0), Arc::clone(log) as Arc<dyn CommitLog>)
}

/// Remembers how its transaction ended.
struct Record(Arc<Mutex<Option<Outcome>>>);

impl Participant for Record {
    fn finish(self: Box<Self>, outcome: Outcome) {
        *self.0.lock() = Some(outcome);
    }
}

fn writing(txns: &Arc<TxnManager>) -> (Transaction, Arc<Mutex<Option<Outcome>>>) {
    let (txn, outcome) = (txns.begin(), Arc::default());
    txn.enlist(Box::new(Record(Arc::clone(&outcome))));
    (txn, outcome)
}

#[test]
fn nothing_is_visible_or_stamped_before_it_is_durable() {
    let log = Arc::new(FakeLog::default());
    let txns = over(&log);
    let (first, first_outcome) = writing(&txns);
    let (second, second_outcome) = writing(&txns);
    let (first_stamp, second_stamp) = (Stamp::By(first.id()).raw(), Stamp::By(second.id()).raw());
    let (second_id, waiter) = (second.id(), txns.begin());
    thread::scope(|scope| {
        let one = scope.spawn(|| first.commit());
        log.wait_enqueued(1);
        let two = scope.spawn(|| second.commit());
        log.wait_enqueued(2);
        let waiting = scope.spawn(|| txns.wait_for(waiter.id(), second_id, &CancelToken::new()));
        while txns.waiting() < 1 {
            thread::yield_now();
        }
        let early = txns.snapshot();
        assert_eq!((early.at(), txns.horizon()), (CommitTs(0), CommitTs(0)));
        assert_eq!(early.sees(first_stamp, END_NONE), Visibility::Hidden);
        assert!(!txns.live_snapshots().is_garbage(0, first_stamp));
        assert_eq!(
            (*first_outcome.lock(), *second_outcome.lock()),
            (None, None)
        );
        assert!(!waiting.is_finished(), "row locks stay until it is durable");

        log.make_durable(1);
        assert_eq!(one.join().unwrap(), Ok(CommitTs(1)));
        assert_eq!(*first_outcome.lock(), Some(Outcome::Committed(CommitTs(1))));
        let middle = txns.snapshot();
        assert_eq!(middle.at(), CommitTs(1));
        assert_eq!(middle.sees(second_stamp, END_NONE), Visibility::Hidden);
        assert_eq!(middle.sees(1, second_stamp), Visibility::Visible);
        assert_eq!(early.sees(1, END_NONE), Visibility::Hidden);
        assert!(!waiting.is_finished());

        log.make_durable(2);
        assert_eq!(two.join().unwrap(), Ok(CommitTs(2)));
        assert_eq!(waiting.join().unwrap(), Ok(()));
        assert_eq!(middle.sees(2, END_NONE), Visibility::Hidden);
        assert_eq!(txns.snapshot().sees(2, END_NONE), Visibility::Visible);
    });
}

#[test]
fn one_wait_makes_the_whole_group_visible() {
    let log = Arc::new(FakeLog::default());
    let txns = over(&log);
    thread::scope(|scope| {
        let commits: Vec<_> = (0..3)
            .map(|at| {
                let (txn, _) = writing(&txns);
                let commit = scope.spawn(move || txn.commit());
                log.wait_enqueued(at + 1);
                commit
            })
            .collect();
        log.make_durable(3);
        for (at, commit) in (1..).zip(commits) {
            assert_eq!(commit.join().unwrap(), Ok(CommitTs(at)));
            assert_eq!(
                txns.last_commit(),
                CommitTs(3),
                "whoever came first published all"
            );
        }
    });
}

#[test]
fn commits_that_are_queued_are_finished_by_any_thread() {
    let log = Arc::new(FakeLog::default());
    let txns = over(&log);
    let (first, first_outcome) = writing(&txns);
    let (second, second_outcome) = writing(&txns);
    let (first, second) = (first.enqueue().unwrap(), second.enqueue().unwrap());
    assert_eq!((log.enqueued(), txns.last_commit()), (2, CommitTs(0)));
    // This log is one that always has to be waited for.
    let first = first.try_finish().unwrap_err();
    assert!(first.is_small());
    assert_eq!((txns.unsettled(), *first_outcome.lock()), (2, None));
    log.make_durable(2);
    thread::scope(|scope| {
        let finished = scope.spawn(move || first.finish());
        assert_eq!(finished.join().unwrap(), Ok(CommitTs(1)));
    });
    // Nobody is left to finish the other.
    drop(second);
    let committed = |ts| Some(Outcome::Committed(CommitTs(ts)));
    assert_eq!(*first_outcome.lock(), committed(1));
    assert_eq!(*second_outcome.lock(), committed(2));
    assert_eq!(txns.unsettled(), 0);
}

#[test]
fn a_queued_commit_of_nothing_or_of_a_statement_has_nothing_left_to_do() {
    let log = Arc::new(FakeLog::default());
    let txns = over(&log);
    let done = |committing: Committing| committing.try_finish().unwrap();
    assert_eq!(done(txns.begin().enqueue().unwrap()), Ok(CommitTs(0)));
    let block = txns.begin_block(Isolation::ReadCommitted);
    let statement = block.statement();
    let outcome = Arc::default();
    statement.enlist(Box::new(Record(Arc::clone(&outcome))));
    assert_eq!(done(statement.enqueue().unwrap()), Ok(CommitTs(0)));
    assert_eq!((log.enqueued(), *outcome.lock()), (0, None));
    let committing = block.enqueue().unwrap();
    log.make_durable(1);
    assert_eq!(committing.finish(), Ok(CommitTs(1)));
    assert_eq!(*outcome.lock(), Some(Outcome::Committed(CommitTs(1))));
    assert_eq!(txns.unsettled(), 0);
}

#[test]
fn a_failed_log_leaves_doubt_then_refuses_and_reads_go_on() {
    let log = Arc::new(FakeLog::default());
    let txns = over(&log);
    let (safe, _) = writing(&txns);
    let (lost, lost_outcome) = writing(&txns);
    let lost_stamp = Stamp::By(lost.id()).raw();
    let (lost_id, waiter) = (lost.id(), txns.begin());
    thread::scope(|scope| {
        let safe = scope.spawn(|| safe.commit());
        log.wait_enqueued(1);
        let lost = scope.spawn(|| lost.commit());
        log.wait_enqueued(2);
        let waiting = scope.spawn(|| txns.wait_for(waiter.id(), lost_id, &CancelToken::new()));
        log.make_durable(1);
        assert_eq!(safe.join().unwrap(), Ok(CommitTs(1)));
        log.fail();
        assert!(matches!(lost.join().unwrap(), Err(CommitError::InDoubt(_))));
        assert_eq!(waiting.join().unwrap(), Ok(()), "nobody waits for ever");
    });
    assert_eq!(*lost_outcome.lock(), Some(Outcome::Aborted));
    assert_eq!(txns.snapshot().at(), CommitTs(1));
    assert_eq!(txns.snapshot().sees(1, END_NONE), Visibility::Visible);
    assert_eq!(
        txns.snapshot().sees(lost_stamp, END_NONE),
        Visibility::Reread
    );
    let (late, late_outcome) = writing(&txns);
    assert!(matches!(late.commit(), Err(CommitError::Refused(_))));
    assert_eq!(*late_outcome.lock(), Some(Outcome::Aborted));
    assert_eq!(
        txns.begin().commit(),
        Ok(CommitTs(1)),
        "reading is no change"
    );
}

#[test]
fn redo_goes_in_order_and_much_of_it_before_the_commit() {
    let log = Arc::new(FakeLog::default());
    let txns = over(&log);
    log.make_durable(1);
    let (txn, _) = writing(&txns);
    let id = txn.id();
    for at in 0..40_u8 {
        txn.add_redo(vec![at; 100_000]).unwrap();
        txn.spill_redo().unwrap();
    }
    txn.commit().unwrap();
    let state = log.state.lock();
    assert!(state.chunks.len() >= 3, "{}", state.chunks.len());
    let (_, _, rest) = &state.enqueued[0];
    let mut all: Vec<u8> = Vec::new();
    for (by, chunk) in &state.chunks {
        assert_eq!(*by, id);
        all.extend(chunk);
    }
    assert!(rest.len() < 1 << 20);
    all.extend(rest);
    let expected: Vec<u8> = (0..40_u8).flat_map(|at| vec![at; 100_000]).collect();
    assert!(all == expected);
    drop(state);
    for bytes in [10, 2 << 20] {
        let rolled_back = txns.begin();
        let id = rolled_back.id();
        rolled_back.add_redo(vec![0; bytes]).unwrap();
        rolled_back.spill_redo().unwrap();
        rolled_back.rollback();
        let forgotten = log.state.lock().forgotten.contains(&id);
        assert_eq!(
            forgotten,
            bytes > 1 << 20,
            "only a log that has some must forget it"
        );
    }
}

/// Committers over a disk of random speed that fails in the end: readers see each pair
/// of rows whole, only what is durable, and the acknowledged commits are durable.
#[test]
fn readers_see_whole_durable_prefixes_under_stress() {
    for seed in 0..20 {
        let log = Arc::new(FakeLog::default());
        let txns = over(&log);
        let stop = AtomicBool::new(false);
        let acknowledged = AtomicU64::new(0);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = StdRng::seed_from_u64(seed);
                let target = random.random_range(20..60);
                while log.state.lock().durable < target {
                    let durable = log.state.lock().durable;
                    let enqueued = log.enqueued() as u64;
                    if enqueued > durable {
                        log.make_durable(random.random_range(durable + 1..=enqueued));
                    }
                    thread::sleep(Duration::from_micros(random.random_range(0..200)));
                }
                log.fail();
            });
            let writers: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        loop {
                            let (txn, outcome) = writing(&txns);
                            match txn.commit() {
                                Ok(ts) => {
                                    assert!(log.state.lock().durable >= ts.0);
                                    assert!(txns.last_commit() >= ts, "seed {seed}");
                                    acknowledged.fetch_max(ts.0, Ordering::AcqRel);
                                    let ended = outcome.lock().take();
                                    assert_eq!(ended, Some(Outcome::Committed(ts)));
                                }
                                Err(_) => {
                                    let ended = outcome.lock().take();
                                    assert_eq!(ended, Some(Outcome::Aborted));
                                    return;
                                }
                            }
                        }
                    })
                })
                .collect();
            scope.spawn(|| {
                let mut last = CommitTs(0);
                while !stop.load(Ordering::Acquire) {
                    let least = acknowledged.load(Ordering::Acquire);
                    let snapshot = txns.snapshot();
                    assert!(
                        snapshot.at() >= last && snapshot.at().0 >= least,
                        "seed {seed}"
                    );
                    assert!(snapshot.at().0 <= log.state.lock().durable, "seed {seed}");
                    last = snapshot.at();
                }
            });
            for writer in writers {
                writer.join().unwrap();
            }
            stop.store(true, Ordering::Release);
        });
        txns.wait_settled();
        assert_eq!(txns.last_commit().0, acknowledged.load(Ordering::Acquire));
    }
}

#[test]
fn entries_share_the_order_with_commits() {
    let log = Arc::new(FakeLog::default());
    let txns = over(&log);
    log.make_durable(2);
    let (txn, _) = writing(&txns);
    assert_eq!(txn.commit(), Ok(CommitTs(1)));
    let mut got = None;
    let ts = txns.append_entry(|ts| {
        got = Some(ts);
        log.enqueue_commit(TxnId(0), &[], ts, Vec::new())
    });
    assert_eq!((ts, got), (Ok(CommitTs(2)), Some(CommitTs(2))));
    assert_eq!(txns.snapshot().at(), CommitTs(2));
    log.fail();
    assert!(matches!(
        txns.append_entry(|ts| log.enqueue_commit(TxnId(0), &[], ts, Vec::new())),
        Err(CommitError::Refused(_))
    ));
    assert_eq!(txns.snapshot().at(), CommitTs(2));
}
