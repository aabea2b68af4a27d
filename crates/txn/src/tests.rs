//! A toy table of stamped versions, checked against a model of whole states.

use std::{collections::BTreeMap, sync::Arc, thread};

use aerostat_sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use aerostat_types::CommitTs;
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};

use crate::*;

pub(crate) struct Version {
    value: u64,
    begin: AtomicU64,
    end: AtomicU64,
}

/// All versions of a few keys.
#[derive(Default)]
pub(crate) struct Store(Vec<Mutex<Vec<Arc<Version>>>>);

/// Stamps what a transaction wrote; `pause` runs before and between the stamps.
struct Stamper {
    txn: u64,
    versions: Vec<Arc<Version>>,
    pause: Box<dyn FnMut() + Send>,
}

impl Participant for Stamper {
    fn finish(mut self: Box<Self>, outcome: Outcome) {
        let (begin, end) = match outcome {
            Outcome::Committed(ts) => (ts.0, ts.0),
            Outcome::Aborted => (ABORTED, END_NONE),
        };
        for version in &self.versions {
            (self.pause)();
            let _ = version.begin.compare_exchange(
                self.txn,
                begin,
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            let _ =
                version
                    .end
                    .compare_exchange(self.txn, end, Ordering::AcqRel, Ordering::Relaxed);
        }
    }
}

impl Store {
    pub(crate) fn new(keys: usize) -> Arc<Self> {
        Arc::new(Self((0..keys).map(|_| Mutex::default()).collect()))
    }

    pub(crate) fn read(&self, snapshot: &Snapshot, key: usize) -> Option<u64> {
        let versions = self.0[key].lock().clone();
        let seen: Vec<u64> = versions
            .iter()
            .filter(|version| sees(snapshot, version))
            .map(|v| v.value)
            .collect();
        assert!(seen.len() <= 1, "{snapshot:?} sees {seen:?} of key {key}");
        seen.first().copied()
    }

    /// Replaces the key's value; says who is in the way if somebody is.
    pub(crate) fn write(
        &self,
        txn: &Transaction,
        key: usize,
        value: u64,
        touched: &mut Vec<Arc<Version>>,
    ) -> Result<(), Option<u64>> {
        let mut versions = self.0[key].lock();
        let mine = Stamp::By(txn.id()).raw();
        // Stamps are read once: who has ended may stamp meanwhile, and a version that is found
        // because of its stamps might be judged by others.
        let stamps = |v: &Arc<Version>| {
            let begin = v.begin.load(Ordering::Acquire);
            (Arc::clone(v), begin, v.end.load(Ordering::Acquire))
        };
        let is_current = |(_, begin, end): &(Arc<Version>, u64, u64)| {
            let is_others = |end| matches!(Stamp::of(end), Stamp::By(by) if !txn.owns(by));
            *begin != ABORTED && (*end == END_NONE || is_others(*end))
        };
        if let Some((current, begin, end)) = versions.iter().map(stamps).find(is_current) {
            for stamp in [begin, end] {
                match Stamp::of(stamp) {
                    Stamp::By(by) if !txn.owns(by) => return Err(Some(by.0)),
                    Stamp::At(ts) if stamp < ABORTED && ts > txn.snapshot().at() => {
                        return Err(None);
                    }
                    _ => {}
                }
            }
            current.end.store(mine, Ordering::Release);
            touched.push(current);
        } else if versions.iter().any(|v| {
            let end = v.end.load(Ordering::Acquire);
            end < ABORTED && end > txn.snapshot().at().0
        }) {
            return Err(None);
        }
        let version = Arc::new(Version {
            value,
            begin: AtomicU64::new(mine),
            end: AtomicU64::new(END_NONE),
        });
        touched.push(Arc::clone(&version));
        versions.push(version);
        Ok(())
    }
}

fn sees(snapshot: &Snapshot, version: &Version) -> bool {
    loop {
        let (begin, end) = (
            version.begin.load(Ordering::Acquire),
            version.end.load(Ordering::Acquire),
        );
        match snapshot.sees(begin, end) {
            Visibility::Visible => return true,
            Visibility::Hidden => return false,
            Visibility::Reread => std::hint::spin_loop(),
        }
    }
}

pub(crate) fn enlist(
    txn: &Transaction,
    versions: Vec<Arc<Version>>,
    pause: impl FnMut() + Send + 'static,
) {
    let stamper = Stamper {
        txn: Stamp::By(txn.id()).raw(),
        versions,
        pause: Box::new(pause),
    };
    txn.enlist(Box::new(stamper));
}

const KEYS: usize = 4;

/// An unfinished transaction, the versions it stamped, and what it wrote.
type Open = (Transaction, Vec<Arc<Version>>, BTreeMap<usize, u64>);

/// Checks every registered snapshot against the state the model has for it.
fn check(store: &Store, snapshots: &[Snapshot], states: &[BTreeMap<usize, u64>], context: &str) {
    for snapshot in snapshots {
        let expected = &states[usize::try_from(snapshot.at().0).unwrap()];
        for key in 0..KEYS {
            assert_eq!(
                store.read(snapshot, key),
                expected.get(&key).copied(),
                "{context}: {snapshot:?}, key {key}"
            );
        }
    }
}

/// Random interleavings of transactions on one thread. The states after each
/// commit are the serial model: every snapshot reads exactly one of them, at every
/// moment, also in the middle of stamping.
#[test]
fn every_snapshot_reads_one_state_of_the_serial_model() {
    for seed in 0..300 {
        let mut random = StdRng::seed_from_u64(seed);
        let txns = TxnManager::new();
        let store = Store::new(KEYS);
        let mut states = vec![BTreeMap::new()];
        let mut open: Vec<Open> = Vec::new();
        let mut snapshots: Vec<Snapshot> = Vec::new();
        for step in 0..80 {
            let context = format!("seed {seed}, step {step}");
            match random.random_range(0..10) {
                0 | 1 => open.push((txns.begin(), Vec::new(), BTreeMap::new())),
                2 => snapshots.push(txns.snapshot()),
                3 if !snapshots.is_empty() => {
                    snapshots.swap_remove(random.random_range(0..snapshots.len()));
                }
                4..7 if !open.is_empty() => {
                    let at = random.random_range(0..open.len());
                    let (txn, touched, changes) = &mut open[at];
                    let key = random.random_range(0..KEYS);
                    if store.write(txn, key, seed * 1000 + step, touched).is_ok() {
                        changes.insert(key, seed * 1000 + step);
                    }
                }
                _ if !open.is_empty() => {
                    let (txn, touched, changes) =
                        open.swap_remove(random.random_range(0..open.len()));
                    let commits = random.random_bool(0.7);
                    let mut after = states.last().unwrap().clone();
                    after.extend(changes);
                    let mut expected = states.clone();
                    if commits {
                        expected.push(after.clone());
                    }
                    let (held, inner, manager) =
                        (snapshots.clone(), Arc::clone(&store), Arc::clone(&txns));
                    let wrote = !touched.is_empty();
                    if wrote {
                        enlist(&txn, touched, move || {
                            let mut held = held.clone();
                            held.push(manager.snapshot());
                            check(&inner, &held, &expected, &context);
                        });
                    }
                    if commits {
                        let ts = txn.commit().unwrap();
                        assert_eq!(ts, txns.last_commit());
                        if wrote {
                            states.push(after);
                        }
                    } else {
                        txn.rollback();
                    }
                }
                _ => {}
            }
            assert_eq!(
                txns.last_commit().0 as usize,
                states.len() - 1,
                "seed {seed}, step {step}"
            );
            check(
                &store,
                &snapshots,
                &states,
                &format!("seed {seed}, step {step}"),
            );
            let oldest = snapshots
                .iter()
                .chain(open.iter().map(|(txn, ..)| txn.snapshot()))
                .map(Snapshot::at)
                .min();
            assert_eq!(
                txns.horizon(),
                oldest.unwrap_or(txns.last_commit()),
                "seed {seed}, step {step}"
            );
            check_garbage(&txns, &store, &snapshots);
        }
    }
}

/// What is called garbage, no registered snapshot sees.
fn check_garbage(txns: &Arc<TxnManager>, store: &Store, snapshots: &[Snapshot]) {
    let live = txns.live_snapshots();
    let newest = txns.snapshot();
    for version in store.0.iter().flat_map(|versions| versions.lock().clone()) {
        let (begin, end) = (
            version.begin.load(Ordering::Acquire),
            version.end.load(Ordering::Acquire),
        );
        if live.is_garbage(begin, end) {
            assert!(
                !snapshots
                    .iter()
                    .chain([&newest])
                    .any(|snapshot| sees(snapshot, &version))
            );
        }
    }
}

/// Writers add to one key what they take from another; readers never see a sum
/// that is not whole, while stamps are written one by one.
#[test]
fn a_reader_never_sees_half_a_commit() {
    const TOTAL: u64 = 1_000;
    let txns = TxnManager::new();
    let store = Store::new(KEYS);
    let setup = txns.begin();
    let mut touched = Vec::new();
    for key in 0..KEYS {
        store.write(&setup, key, TOTAL, &mut touched).unwrap();
    }
    enlist(&setup, touched, || {});
    setup.commit().unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for seed in 0..3 {
            let (txns, store, stop) = (&txns, &store, &stop);
            scope.spawn(move || {
                let mut random = StdRng::seed_from_u64(seed);
                let keys: Vec<usize> = (0..KEYS).collect();
                for _ in 0..400 {
                    let txn = txns.begin();
                    let pair: Vec<usize> = keys.choose_multiple(&mut random, 2).copied().collect();
                    let amount = random.random_range(0..10);
                    let mut touched = Vec::new();
                    let mut wrote = true;
                    for (key, sign) in [(pair[0], 1), (pair[1], -1)] {
                        let value = store
                            .read(txn.snapshot(), key)
                            .unwrap()
                            .wrapping_add_signed(sign * amount);
                        wrote &= store.write(&txn, key, value, &mut touched).is_ok();
                    }
                    enlist(&txn, touched, thread::yield_now);
                    if wrote && random.random_bool(0.9) {
                        txn.commit().unwrap();
                    }
                }
                stop.store(true, Ordering::Release);
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    let snapshot = txns.snapshot();
                    let sum = (0..KEYS)
                        .map(|key| store.read(&snapshot, key).unwrap())
                        .fold(0, u64::wrapping_add);
                    assert_eq!(sum, TOTAL * KEYS as u64, "at {snapshot:?}");
                }
            });
        }
    });
    assert!(txns.last_commit() > CommitTs(10));
}

#[test]
fn a_circle_of_waits_ends_with_the_newcomer_giving_way() {
    let txns = TxnManager::new();
    let [one, two, three] = [txns.begin(), txns.begin(), txns.begin()];
    let ids = [one.id(), two.id(), three.id()];
    let never = CancelToken::new();
    thread::scope(|scope| {
        let first = scope.spawn(|| txns.wait_for(ids[0], ids[1], &never));
        let second = scope.spawn(|| txns.wait_for(ids[1], ids[2], &never));
        while txns.waiting() < 2 {
            thread::yield_now();
        }
        assert_eq!(
            txns.wait_for(ids[2], ids[0], &never),
            Err(WaitError::Deadlock)
        );
        assert_eq!(txns.waiting(), 2, "the others go on waiting");
        three.rollback();
        assert_eq!(second.join().unwrap(), Ok(()));
        two.commit().unwrap();
        assert_eq!(first.join().unwrap(), Ok(()));
    });
    one.rollback();
    assert_eq!(txns.wait_for(txns.begin().id(), ids[0], &never), Ok(()));
}

#[test]
fn a_cancelled_transaction_neither_waits_nor_commits() {
    let txns = TxnManager::new();
    let (holder, waiter) = (txns.begin(), txns.begin());
    let token = waiter.cancel_token();
    let result = thread::scope(|scope| {
        let wait = scope.spawn(|| txns.wait_for(waiter.id(), holder.id(), &token));
        while txns.waiting() < 1 {
            thread::yield_now();
        }
        token.clone().cancel();
        wait.join().unwrap()
    });
    assert_eq!(result, Err(WaitError::Cancelled));
    assert_eq!(
        txns.wait_for(waiter.id(), holder.id(), &token),
        Err(WaitError::Cancelled)
    );
    let outcome = Arc::new(Mutex::new(None));
    struct Record(Arc<Mutex<Option<Outcome>>>);
    impl Participant for Record {
        fn finish(self: Box<Self>, outcome: Outcome) {
            *self.0.lock() = Some(outcome);
        }
    }
    waiter.enlist(Box::new(Record(Arc::clone(&outcome))));
    assert_eq!(waiter.commit(), Err(CommitError::Cancelled));
    assert_eq!(*outcome.lock(), Some(Outcome::Aborted));
    assert_eq!(txns.last_commit(), CommitTs(0));
}

#[test]
fn a_version_between_two_snapshots_is_garbage() {
    let txns = TxnManager::new();
    let commit = || {
        let txn = txns.begin();
        enlist(&txn, Vec::new(), || {});
        txn.commit().unwrap().0
    };
    let old = txns.snapshot();
    let (first, second) = (commit(), commit());
    let middle = txns.snapshot();
    let third = commit();
    let live = txns.live_snapshots();
    assert!(live.is_garbage(first, second));
    assert!(!live.is_garbage(0, first), "{old:?} sees it");
    assert!(!live.is_garbage(second, third), "{middle:?} sees it");
    assert!(!live.is_garbage(first, END_NONE));
    assert!(!live.is_garbage(first, Stamp::By(txns.begin().id()).raw()));
    assert!(live.is_garbage(ABORTED, END_NONE));
    drop((old, middle));
    assert_eq!(txns.horizon().0, third);
    assert!(txns.live_snapshots().is_garbage(second, third));
}

/// Counts how often it is woken.
#[derive(Default)]
struct Alarm(AtomicU64);

impl std::task::Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_task_waits_as_a_thread_does() {
    let alarm = Arc::new(Alarm::default());
    let waker = std::task::Waker::from(Arc::clone(&alarm));
    let mut context = std::task::Context::from_waker(&waker);
    let mut poll = |waiting: &mut Waiting| std::pin::Pin::new(waiting).poll(&mut context);
    let txns = TxnManager::new();
    let [one, two, three] = [txns.begin(), txns.begin(), txns.begin()];
    let mut waiting = two
        .waiting_for(Awaited::transaction(one.id()))
        .unwrap()
        .unwrap();
    assert!(poll(&mut waiting).is_pending());
    assert_eq!(txns.waiting(), 1);
    // Circles are found between tasks and threads alike.
    let circle = one.waiting_for(Awaited::transaction(two.id())).err();
    assert_eq!(circle, Some(WaitError::Deadlock));
    let never = CancelToken::new();
    let circle = txns.wait_for(one.id(), two.id(), &never);
    assert_eq!(circle, Err(WaitError::Deadlock));
    // One that is given up is in nobody's way.
    let mut given_up = three
        .waiting_for(Awaited::transaction(one.id()))
        .unwrap()
        .unwrap();
    assert!(poll(&mut given_up).is_pending());
    drop(given_up);
    assert_eq!((txns.waiting(), alarm.0.load(Ordering::SeqCst)), (1, 0));
    let one = {
        let id = one.id();
        one.commit().unwrap();
        id
    };
    assert_eq!(alarm.0.load(Ordering::SeqCst), 1);
    assert_eq!(poll(&mut waiting), std::task::Poll::Ready(Ok(())));
    drop(waiting);
    assert_eq!(txns.waiting(), 0);
    assert!(
        two.waiting_for(Awaited::transaction(one))
            .unwrap()
            .is_none(),
        "it has settled"
    );
}
