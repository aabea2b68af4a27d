//! Blocks over the toy table: against a model of snapshot isolation, and one by one.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    thread,
};

use aerostat_sync::Mutex;
use aerostat_types::{CommitTs, TxnId};
use rand::{Rng, SeedableRng, rngs::StdRng};

use crate::{
    log_tests::{FakeLog, over},
    tests::{Store, enlist},
    *,
};

const KEYS: usize = 5;

type State = BTreeMap<usize, u64>;

/// A block and what it should see.
struct Session {
    block: Block,
    /// Where its snapshots are, once there is one under REPEATABLE READ.
    point: Option<usize>,
    /// What each kept statement wrote.
    kept: Vec<State>,
    /// With how many statements were kept then.
    savepoints: Vec<(Savepoint, usize)>,
    /// Older snapshots and what they see.
    cursors: Vec<(Snapshot, State, usize)>,
}

struct Model {
    txns: Arc<TxnManager>,
    store: Arc<Store>,
    /// After each commit; shared with what looks while rows are stamped.
    states: Arc<Mutex<Vec<State>>>,
    held: Arc<Mutex<Vec<Snapshot>>>,
    sessions: Vec<Session>,
    context: String,
}

fn contents(store: &Store, snapshot: &Snapshot) -> State {
    (0..KEYS)
        .filter_map(|key| store.read(snapshot, key).map(|value| (key, value)))
        .collect()
}

impl Session {
    /// What its next statement sees.
    fn seen(&self, states: &[State]) -> State {
        let point = match self.block.isolation() {
            Isolation::ReadCommitted => states.len() - 1,
            Isolation::RepeatableRead => self.point.unwrap_or(states.len() - 1),
        };
        let mut seen = states[point].clone();
        seen.extend(self.kept.iter().flatten());
        seen
    }

    fn begun(&mut self, states: &[State]) {
        if self.block.isolation() == Isolation::RepeatableRead {
            self.point.get_or_insert(states.len() - 1);
        }
    }

    fn cut(&mut self, kept: usize) {
        self.kept.truncate(kept);
        self.savepoints.retain(|(_, at)| *at <= kept);
        self.cursors.retain(|(_, _, at)| *at <= kept);
    }

    fn written(&self) -> BTreeSet<usize> {
        self.kept
            .iter()
            .flat_map(|kept| kept.keys().copied())
            .collect()
    }
}

impl Model {
    fn begin(&mut self, random: &mut StdRng) {
        let isolation = match random.random_bool(0.5) {
            true => Isolation::ReadCommitted,
            false => Isolation::RepeatableRead,
        };
        self.sessions.push(Session {
            block: self.txns.begin_block(isolation),
            point: None,
            kept: Vec::new(),
            savepoints: Vec::new(),
            cursors: Vec::new(),
        });
    }

    /// Whether the statement may write the key: nobody else's, not changed since.
    fn may_write(&self, at: usize, key: usize, seen: &State, point: CommitTs) -> bool {
        let others = self.sessions.iter().enumerate();
        let mut others = others.filter(|(other, _)| *other != at);
        let states = self.states.lock();
        let changed = states[point.0 as usize..]
            .windows(2)
            .any(|pair| pair[0].get(&key) != pair[1].get(&key));
        let own = self.sessions[at].written().contains(&key);
        assert!(!own || seen.contains_key(&key));
        others.all(|(_, other)| !other.written().contains(&key)) && (own || !changed)
    }

    fn statement(&mut self, at: usize, random: &mut StdRng, step: u64) {
        let seen = self.sessions[at].seen(&self.states.lock());
        self.sessions[at].begun(&self.states.lock());
        let statement = self.sessions[at].block.statement();
        let snapshot = statement.snapshot().clone();
        assert_eq!(contents(&self.store, &snapshot), seen, "{}", self.context);
        let (mut touched, mut written) = (Vec::new(), State::new());
        let keys: BTreeSet<usize> = (0..random.random_range(1..4))
            .map(|_| random.random_range(0..KEYS))
            .collect();
        let mut failed = false;
        for key in keys {
            let allowed = self.may_write(at, key, &seen, snapshot.at());
            let result = self
                .store
                .write(&statement, key, step * 100 + key as u64, &mut touched);
            assert_eq!(
                result.is_ok(),
                allowed,
                "{}: key {key}: {result:?}",
                self.context
            );
            // Nothing of it is seen before its end, not even by itself.
            assert_eq!(contents(&self.store, &snapshot), seen, "{}", self.context);
            failed |= result.is_err();
            written.insert(key, step * 100 + key as u64);
            if failed {
                break;
            }
        }
        let (store, states, held) = (
            Arc::clone(&self.store),
            Arc::clone(&self.states),
            Arc::clone(&self.held),
        );
        let (txns, context) = (Arc::clone(&self.txns), self.context.clone());
        enlist(&statement, touched, move || {
            check_all(&store, &states.lock(), &held.lock(), &context);
            check_all(&store, &states.lock(), &[txns.snapshot()], &context);
        });
        if failed || random.random_bool(0.2) {
            statement.rollback();
        } else {
            statement.commit().unwrap();
            self.sessions[at].kept.push(written);
        }
    }

    fn end(&mut self, at: usize, commits: bool) {
        let session = self.sessions.swap_remove(at);
        let mut after = self.states.lock().last().unwrap().clone();
        after.extend(session.kept.iter().flatten());
        let wrote = !session.kept.is_empty();
        assert_eq!(session.block.has_written(), wrote);
        if !commits {
            return session.block.rollback();
        }
        if wrote {
            // Whoever looks while rows are stamped may see it already.
            self.states.lock().push(after);
        }
        let ts = session.block.commit().unwrap();
        assert_eq!(
            ts.0 as usize,
            self.states.lock().len() - 1,
            "{}",
            self.context
        );
    }

    fn step(&mut self, random: &mut StdRng, step: u64) {
        if self.sessions.is_empty() || (self.sessions.len() < 4 && random.random_bool(0.2)) {
            return self.begin(random);
        }
        let at = random.random_range(0..self.sessions.len());
        let session = &mut self.sessions[at];
        match random.random_range(0..12) {
            0 => self.end(at, random.random_bool(0.7)),
            1 => {
                let kept = session.kept.len();
                session.savepoints.push((session.block.savepoint(), kept));
            }
            2 if !session.savepoints.is_empty() => {
                let chosen = random.random_range(0..session.savepoints.len());
                let (savepoint, kept) = session.savepoints[chosen];
                session.block.rollback_to(savepoint);
                session.cut(kept);
            }
            3 => {
                let (seen, kept) = (session.seen(&self.states.lock()), session.kept.len());
                session.begun(&self.states.lock());
                session.cursors.push((session.block.snapshot(), seen, kept));
            }
            4 => self.held.lock().push(self.txns.snapshot()),
            5 => drop(self.held.lock().pop()),
            _ => self.statement(at, random, step),
        }
    }

    fn check(&self) {
        check_all(
            &self.store,
            &self.states.lock(),
            &self.held.lock(),
            &self.context,
        );
        for session in &self.sessions {
            for (snapshot, seen, _) in &session.cursors {
                assert_eq!(&contents(&self.store, snapshot), seen, "{}", self.context);
            }
        }
    }
}

fn check_all(store: &Store, states: &[State], snapshots: &[Snapshot], context: &str) {
    for snapshot in snapshots {
        let expected = &states[snapshot.at().0 as usize];
        assert_eq!(
            &contents(store, snapshot),
            expected,
            "{context}: {snapshot:?}"
        );
    }
}

/// Random interleavings of blocks on one thread, with savepoints, failures and cursors.
#[test]
fn blocks_are_snapshot_isolated() {
    for seed in 0..100 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut model = Model {
            txns: TxnManager::new(),
            store: Store::new(KEYS),
            states: Arc::new(Mutex::new(vec![State::new()])),
            held: Arc::default(),
            sessions: Vec::new(),
            context: String::new(),
        };
        for step in 1..120 {
            model.context = format!("seed {seed}, step {step}");
            model.step(&mut random, step);
            model.check();
        }
        model.sessions.clear();
        model.held.lock().clear();
        model.check();
        assert_eq!(model.txns.unsettled(), 0, "seed {seed}");
        assert_eq!(
            model.txns.horizon(),
            model.txns.last_commit(),
            "seed {seed}"
        );
    }
}

fn writing(block: &Block) -> Transaction {
    let statement = block.statement();
    enlist(&statement, Vec::new(), || {});
    statement
}

/// Keeps a statement and gives its id.
fn keep(block: &Block) -> TxnId {
    let statement = writing(block);
    let id = statement.id();
    statement.commit().unwrap();
    id
}

#[test]
fn the_first_snapshot_fixes_the_isolation_and_the_point() {
    let txns = TxnManager::new();
    let block = txns.begin_block(Isolation::ReadCommitted);
    assert!(block.set_isolation(Isolation::RepeatableRead) && !block.has_begun());
    let commit = || {
        let other = txns.begin_block(Isolation::ReadCommitted);
        keep(&other);
        other.commit().unwrap()
    };
    commit();
    assert_eq!(block.snapshot().at(), CommitTs(1), "none was taken before");
    assert!(!block.set_isolation(Isolation::ReadCommitted) && block.has_begun());
    commit();
    let statement = block.statement();
    assert_eq!(statement.isolation(), Isolation::RepeatableRead);
    assert_eq!(
        (block.snapshot().at(), txns.horizon()),
        (CommitTs(1), CommitTs(1))
    );
    drop(statement);
    assert!(!block.has_written());
    assert_eq!(block.commit(), Ok(CommitTs(2)), "it took no place");
    assert_eq!((txns.horizon(), txns.unsettled()), (CommitTs(2), 0));
    assert_eq!(txns.begin().isolation(), Isolation::ReadCommitted);
}

#[test]
fn who_waits_for_a_statement_waits_for_its_block_or_its_undoing() {
    let txns = TxnManager::new();
    let never = CancelToken::new();
    let block = txns.begin_block(Isolation::ReadCommitted);
    let (first, savepoint) = (keep(&block), block.savepoint());
    let second = keep(&block);
    let waiters = [txns.begin(), txns.begin()];
    let ids = waiters.each_ref().map(Transaction::id);
    thread::scope(|scope| {
        let one = scope.spawn(|| txns.wait_for(ids[0], first, &never));
        let two = scope.spawn(|| txns.wait_for(ids[1], second, &never));
        while txns.waiting() < 2 {
            thread::yield_now();
        }
        block.rollback_to(savepoint);
        assert_eq!(two.join().unwrap(), Ok(()));
        assert!(!one.is_finished());
        keep(&block);
        assert!(!one.is_finished());
        block.commit().unwrap();
        assert_eq!(one.join().unwrap(), Ok(()));
    });
    drop(waiters);
    assert_eq!(txns.unsettled(), 0);
}

/// The circle closes over statements that are not the ones that wait.
#[test]
fn blocks_in_a_circle_are_a_deadlock() {
    let txns = TxnManager::new();
    let never = CancelToken::new();
    let blocks = [(); 3].map(|()| txns.begin_block(Isolation::ReadCommitted));
    let kept = blocks.each_ref().map(keep);
    let running = blocks.each_ref().map(writing);
    let ids = running.each_ref().map(Transaction::id);
    let [_first, second, third] = blocks;
    thread::scope(|scope| {
        let one = scope.spawn(|| txns.wait_for(ids[0], kept[1], &never));
        let two = scope.spawn(|| txns.wait_for(ids[1], kept[2], &never));
        while txns.waiting() < 2 {
            thread::yield_now();
        }
        let circle = txns.wait_for(ids[2], kept[0], &never);
        assert_eq!(circle, Err(WaitError::Deadlock));
        assert_eq!(txns.waiting(), 2, "the others go on waiting");
        third.rollback();
        assert_eq!(two.join().unwrap(), Ok(()));
        assert!(!one.is_finished());
        second.commit().unwrap();
        assert_eq!(one.join().unwrap(), Ok(()));
    });
    drop(running);
}

/// A session goes on while a statement that it has cancelled still runs somewhere.
#[test]
fn a_statement_that_was_given_up_is_undone_whenever_it_ends() {
    let txns = TxnManager::new();
    let store = Store::new(KEYS);
    let block = txns.begin_block(Isolation::ReadCommitted);
    let late = |key, value| {
        let (statement, mut touched) = (block.statement(), Vec::new());
        store.write(&statement, key, value, &mut touched).unwrap();
        enlist(&statement, touched, || {});
        statement
    };
    late(0, 1).commit().unwrap();
    let (savepoint, given_up) = (block.savepoint(), late(1, 7));
    let token = given_up.cancel_token();
    assert!(!token.is_cancelled());
    block.rollback_to(savepoint);
    assert!(token.is_cancelled());
    // Its key is in the way until it has been undone; waiting for it is no circle.
    let next = block.statement();
    let in_the_way = store.write(&next, 1, 2, &mut Vec::new());
    assert_eq!(in_the_way, Err(Some(given_up.id().0)));
    let (never, held) = (CancelToken::new(), given_up.id());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| txns.wait_for(next.id(), held, &never));
        while txns.waiting() < 1 {
            thread::yield_now();
        }
        assert_eq!(given_up.commit(), Err(CommitError::Cancelled));
        assert_eq!(waiting.join().unwrap(), Ok(()));
    });
    let mut touched = Vec::new();
    store.write(&next, 1, 2, &mut touched).unwrap();
    enlist(&next, touched, || {});
    next.commit().unwrap();
    // The next statement gives up the one before; so does the block's end.
    let (before, after) = (late(2, 3), late(3, 4));
    assert_eq!(before.commit(), Err(CommitError::Cancelled));
    block.commit().unwrap();
    assert_eq!(txns.unsettled(), 1, "the one that runs");
    assert_eq!(
        contents(&store, &txns.snapshot()),
        State::from([(0, 1), (1, 2)])
    );
    assert_eq!(after.commit(), Err(CommitError::Cancelled));
    assert_eq!(txns.unsettled(), 0);
    assert_eq!(
        contents(&store, &txns.snapshot()),
        State::from([(0, 1), (1, 2)])
    );
}

/// Writes to the log on the way, and says what should be there in the end.
fn redo(block: &Block, value: u8, bytes: usize, expected: &mut Vec<u8>) -> TxnId {
    let statement = writing(block);
    for part in vec![value; bytes].chunks(100_000) {
        statement.add_redo(part.to_vec()).unwrap();
        statement.spill_redo().unwrap();
    }
    expected.extend(vec![value; bytes]);
    let id = statement.id();
    statement.commit().unwrap();
    id
}

#[test]
fn redo_is_in_the_order_of_the_statements_without_the_undone() {
    let log = Arc::new(FakeLog::default());
    let txns = over(&log);
    log.make_durable(2);
    // Few bytes are in the commit alone.
    let (small, mut expected) = (txns.begin_block(Isolation::ReadCommitted), Vec::new());
    let one = redo(&small, 1, 10, &mut expected);
    let savepoint = small.savepoint();
    let two = redo(&small, 2, 10, &mut Vec::new());
    small.rollback_to(savepoint);
    redo(&small, 3, 10, &mut expected);
    assert_eq!(small.commit(), Ok(CommitTs(1)));
    assert!(log.state.lock().chunks.is_empty() && log.state.lock().forgotten.is_empty());
    assert_eq!(log.state.lock().enqueued[0].2, expected);
    assert!(!log.state.lock().committed.contains(&one));
    // Many go out before it: when a statement has many, or all together.
    let (large, mut expected) = (txns.begin_block(Isolation::ReadCommitted), Vec::new());
    redo(&large, 4, 10, &mut expected);
    let savepoint = large.savepoint();
    let undone = redo(&large, 5, 3 << 20, &mut Vec::new());
    assert_eq!(
        log.state.lock().chunks[0].1,
        [4; 10],
        "what came before goes first"
    );
    large.rollback_to(savepoint);
    let failed = writing(&large);
    failed.add_redo(vec![6; 2 << 20]).unwrap();
    failed.spill_redo().unwrap();
    let failed_id = failed.id();
    failed.rollback();
    for value in 7..27 {
        redo(&large, value, 100_000, &mut expected);
    }
    redo(&large, 30, 2 << 20, &mut expected);
    let last = redo(&large, 31, 10, &mut expected);
    assert_eq!(large.commit(), Ok(CommitTs(2)));
    let state = log.state.lock();
    assert_eq!(state.forgotten, [undone, failed_id].into());
    assert!(
        ![undone, failed_id, two, last]
            .iter()
            .any(|id| state.committed.contains(id))
    );
    let committed = state
        .chunks
        .iter()
        .filter(|(by, _)| state.committed.contains(by));
    let mut all: Vec<u8> = committed.flat_map(|(_, redo)| redo.clone()).collect();
    let rest = &state.enqueued[1].2;
    assert!(rest.len() < 1 << 20);
    all.extend(rest);
    assert!(all == expected, "{} of {} bytes", all.len(), expected.len());
}

/// Remembers the outcomes of a block's statements.
struct Record(Arc<Mutex<Vec<Outcome>>>);

impl Participant for Record {
    fn finish(self: Box<Self>, outcome: Outcome) {
        self.0.lock().push(outcome);
    }
}

fn recorded(txns: &Arc<TxnManager>) -> (Block, Arc<Mutex<Vec<Outcome>>>) {
    let (block, outcomes) = (txns.begin_block(Isolation::ReadCommitted), Arc::default());
    for _ in 0..3 {
        let statement = block.statement();
        statement.enlist(Box::new(Record(Arc::clone(&outcomes))));
        statement.commit().unwrap();
    }
    (block, outcomes)
}

#[test]
fn a_block_that_does_not_commit_is_undone() {
    let log = Arc::new(FakeLog::default());
    let txns = over(&log);
    let (block, outcomes) = recorded(&txns);
    block.cancel_token().cancel();
    assert_eq!(block.commit(), Err(CommitError::Cancelled));
    assert_eq!(*outcomes.lock(), [Outcome::Aborted; 3]);
    let (block, outcomes) = recorded(&txns);
    thread::scope(|scope| {
        let commit = scope.spawn(|| block.commit());
        log.wait_enqueued(1);
        assert!(
            outcomes.lock().is_empty(),
            "stamps stay until it is durable"
        );
        log.fail();
        assert!(matches!(
            commit.join().unwrap(),
            Err(CommitError::InDoubt(_))
        ));
    });
    assert_eq!(*outcomes.lock(), [Outcome::Aborted; 3]);
    let (block, outcomes) = recorded(&txns);
    assert!(matches!(block.commit(), Err(CommitError::Refused(_))));
    assert_eq!(*outcomes.lock(), [Outcome::Aborted; 3]);
    let reading = txns.begin_block(Isolation::RepeatableRead);
    reading.snapshot();
    reading.statement().commit().unwrap();
    assert_eq!(reading.commit(), Ok(CommitTs(0)), "reading is no change");
    assert_eq!((txns.unsettled(), txns.last_commit()), (0, CommitTs(0)));
}

/// Far more statements than ids are taken at once, while others take some.
#[test]
fn a_block_has_any_number_of_statements() {
    let txns = TxnManager::new();
    let store = Store::new(1);
    let block = txns.begin_block(Isolation::RepeatableRead);
    let (cursor, savepoint) = (block.snapshot(), block.savepoint());
    for value in 0..5_000 {
        let (statement, mut touched) = (block.statement(), Vec::new());
        if value > 0 && value % 100 == 0 {
            assert_eq!(store.read(statement.snapshot(), 0), Some(value - 1));
        }
        store.write(&statement, 0, value, &mut touched).unwrap();
        enlist(&statement, touched, || {});
        statement.commit().unwrap();
        drop(txns.begin());
    }
    assert_eq!(txns.unsettled(), 5_001);
    assert_eq!(store.read(&block.snapshot(), 0), Some(4_999));
    assert_eq!(
        (store.read(&cursor, 0), store.read(&txns.snapshot(), 0)),
        (None, None)
    );
    block.rollback_to(savepoint);
    assert_eq!(
        (store.read(&block.snapshot(), 0), txns.unsettled()),
        (None, 1)
    );
    let statement = block.statement();
    let mut touched = Vec::new();
    store.write(&statement, 0, 7, &mut touched).unwrap();
    enlist(&statement, touched, || {});
    statement.commit().unwrap();
    assert_eq!(block.commit(), Ok(CommitTs(1)));
    assert_eq!(store.read(&txns.snapshot(), 0), Some(7));
}
