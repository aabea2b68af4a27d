//! Blocks of several sessions against a model of snapshot isolation, and against threads.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
};

use aerostat_txn::{Block, Isolation, Savepoint, Snapshot, Transaction};
use rand::{Rng, SeedableRng, rngs::StdRng};

use super::{
    model::{KEYS, State, check, row},
    *,
};

/// What a statement changed: rows, or their end.
type Changes = BTreeMap<i32, Option<Row>>;

/// A block and what it should see.
struct Session {
    block: Block,
    /// Where its snapshots are, once there is one under REPEATABLE READ.
    point: Option<usize>,
    /// What each kept statement did.
    kept: Vec<Changes>,
    /// With how many statements were kept then.
    savepoints: Vec<(Savepoint, usize)>,
    /// Older views, what they see, and how many statements were kept then.
    cursors: Vec<(TableView, State, usize)>,
}

struct Model {
    table: Arc<Table>,
    /// After each commit.
    states: Vec<State>,
    /// When each key last changed.
    changed: BTreeMap<i32, u64>,
    sessions: Vec<Session>,
    held: Vec<Snapshot>,
    context: String,
}

fn overlaid<'a>(state: &State, changes: impl IntoIterator<Item = &'a Changes>) -> State {
    let mut state = state.clone();
    for (key, row) in changes.into_iter().flatten() {
        match row {
            Some(row) => drop(state.insert(*key, row.clone())),
            None => drop(state.remove(key)),
        }
    }
    state
}

impl Session {
    /// What its next statement sees.
    fn seen(&mut self, states: &[State]) -> State {
        let newest = states.len() - 1;
        let point = match self.block.isolation() {
            Isolation::ReadCommitted => newest,
            Isolation::RepeatableRead => *self.point.get_or_insert(newest),
        };
        overlaid(&states[point], &self.kept)
    }

    fn written(&self) -> BTreeSet<i32> {
        self.kept
            .iter()
            .flat_map(|kept| kept.keys().copied())
            .collect()
    }

    fn roll_back_to(&mut self, savepoint: Savepoint, kept: usize) {
        self.block.rollback_to(savepoint);
        self.kept.truncate(kept);
        self.savepoints.retain(|(_, at)| *at <= kept);
        self.cursors.retain(|(.., at)| *at <= kept);
    }
}

/// What a statement may count on.
struct Before<'a> {
    seen: &'a State,
    /// What is there for whoever inserts, if he waits for nobody.
    present: &'a State,
    own: &'a BTreeSet<i32>,
    /// Keys that no other block has.
    free: &'a BTreeSet<i32>,
}

impl Model {
    fn new(layout: &str) -> Self {
        Self {
            table: table(&tenant("1GB", ArenaSizes::of(&TINY)), layout),
            states: vec![State::new()],
            changed: BTreeMap::new(),
            sessions: Vec::new(),
            held: Vec::new(),
            context: String::new(),
        }
    }

    fn begin(&mut self, random: &mut StdRng) {
        let isolation = match random.random_bool(0.5) {
            true => Isolation::ReadCommitted,
            false => Isolation::RepeatableRead,
        };
        self.sessions.push(Session {
            block: self.table.store().txns().begin_block(isolation),
            point: None,
            kept: Vec::new(),
            savepoints: Vec::new(),
            cursors: Vec::new(),
        });
    }

    /// Keys that no block but this one has written: others would wait, and this is one thread.
    fn free(&self, but: Option<usize>) -> BTreeSet<i32> {
        let others = self.sessions.iter().enumerate();
        let others = others.filter(|(at, _)| Some(*at) != but);
        let taken: BTreeSet<i32> = others.flat_map(|(_, other)| other.written()).collect();
        (0..KEYS).filter(|key| !taken.contains(key)).collect()
    }

    fn statement(&mut self, at: usize, random: &mut StdRng) {
        let free = self.free(Some(at));
        let session = &mut self.sessions[at];
        let seen = session.seen(&self.states);
        let present = overlaid(self.states.last().unwrap(), &session.kept);
        let statement = session.block.statement();
        let before = Before {
            seen: &seen,
            present: &present,
            own: &session.written(),
            free: &free,
        };
        let done = self.work(&statement, &before, random);
        match done {
            Some(changes) if random.random_bool(0.85) => {
                statement.commit().unwrap();
                if !changes.is_empty() {
                    self.sessions[at].kept.push(changes);
                }
            }
            _ => statement.rollback(),
        }
    }

    /// A transaction beside the blocks.
    fn alone(&mut self, random: &mut StdRng) {
        let newest = self.states.last().unwrap().clone();
        let txn = self.table.store().txns().begin();
        let before = Before {
            seen: &newest,
            present: &newest,
            own: &BTreeSet::new(),
            free: &self.free(None),
        };
        if let Some(changes) = self.work(&txn, &before, random) {
            let ts = txn.commit().unwrap().0;
            self.committed(&[changes], ts);
        }
    }

    /// One random change. `None` if it failed, as it had to.
    fn work(&self, txn: &Transaction, before: &Before<'_>, random: &mut StdRng) -> Option<Changes> {
        let count = random.random_range(1..8);
        let keys: BTreeSet<i32> = (0..count)
            .map(|_| random.random_range(0..KEYS))
            .filter(|key| before.free.contains(key))
            .collect();
        let (length, number) = (random.random_range(0..300), random.random_range(0..100));
        let changed = |key: &i32| {
            !before.own.contains(key)
                && self
                    .changed
                    .get(key)
                    .is_some_and(|ts| *ts > txn.snapshot().at().0)
        };
        if random.random_bool(0.4) {
            // A row that is gone since the snapshot and comes anew would be seen twice,
            // as in PostgreSQL.
            let keys = keys
                .into_iter()
                .filter(|key| before.present.contains_key(key) || !before.seen.contains_key(key));
            let rows: Vec<Row> = keys.map(|key| row(key, number, length)).collect();
            let taken = rows.iter().any(|row| before.present.contains_key(&row.0));
            let result = self.table.insert(txn, &batch(&self.table, &rows));
            let all = rows.into_iter().map(|row| (row.0, Some(row))).collect();
            return self.outcome(result, false, taken).then_some(all);
        }
        let view = self.table.view(txn.snapshot().clone());
        let keys: Vec<i32> = keys
            .into_iter()
            .filter(|key| before.seen.contains_key(key))
            .collect();
        let ids: Vec<RowId> = keys
            .iter()
            .map(|&wanted| {
                view.lookup(KeyRef(&key(&self.table, wanted)))
                    .unwrap()
                    .unwrap()
            })
            .collect();
        let conflict = keys.iter().any(changed);
        if random.random_bool(0.3) {
            let result = view.delete(txn, &ids);
            let all = keys.into_iter().map(|key| (key, None)).collect();
            return self.outcome(result, conflict, false).then_some(all);
        }
        let rows: Vec<Row> = keys.iter().map(|&key| row(key, number, length)).collect();
        let result = view.update(txn, &ids, &batch(&self.table, &rows));
        let all = rows.into_iter().map(|row| (row.0, Some(row))).collect();
        self.outcome(result, conflict, false).then_some(all)
    }

    fn outcome(&self, result: Result<u64, StorageError>, conflict: bool, taken: bool) -> bool {
        match result {
            Ok(_) => assert!(!conflict && !taken, "{}", self.context),
            Err(StorageError::Conflict) => assert!(conflict, "{}", self.context),
            Err(StorageError::UniqueViolation { .. }) => assert!(taken, "{}", self.context),
            Err(error) => panic!("{}: {error:?}", self.context),
        }
        !conflict && !taken
    }

    fn committed(&mut self, all: &[Changes], ts: u64) {
        let newest = self.states.last().unwrap();
        if ts as usize == self.states.len() {
            self.states.push(overlaid(newest, all));
            let keys = all.iter().flat_map(|changes| changes.keys());
            self.changed.extend(keys.map(|key| (*key, ts)));
        } else {
            let nothing = all.iter().all(Changes::is_empty);
            assert!(nothing, "{}: a commit without a place", self.context);
        }
    }

    fn step(&mut self, random: &mut StdRng) {
        let at = random.random_range(0..4);
        let Some(session) = self.sessions.get_mut(at) else {
            return self.begin(random);
        };
        match random.random_range(0..24) {
            0 => drop(self.sessions.swap_remove(at)),
            1 | 2 => {
                let Session { block, kept, .. } = self.sessions.swap_remove(at);
                assert_eq!(block.has_written(), !kept.is_empty(), "{}", self.context);
                let ts = block.commit().unwrap().0;
                self.committed(&kept, ts);
            }
            3 | 4 => session
                .savepoints
                .push((session.block.savepoint(), session.kept.len())),
            5 if !session.savepoints.is_empty() => {
                let chosen = random.random_range(0..session.savepoints.len());
                let (savepoint, kept) = session.savepoints[chosen];
                session.roll_back_to(savepoint, kept);
            }
            6 => {
                let seen = session.seen(&self.states);
                let view = self.table.view(session.block.snapshot());
                session.cursors.push((view, seen, session.kept.len()));
            }
            7 => self.held.push(self.table.store().txns().snapshot()),
            8 => drop(self.held.pop()),
            9 => drop(self.table.vacuum().unwrap()),
            10 => drop(self.table.freeze().unwrap()),
            11 => drop(self.table.freeze_due().unwrap()),
            12 | 13 => self.alone(random),
            _ => self.statement(at, random),
        }
    }

    fn check(&mut self) {
        let newest = self.table.store().txns().snapshot();
        for snapshot in self.held.iter().chain([&newest]) {
            let expected = &self.states[snapshot.at().0 as usize];
            check(&self.table.view(snapshot.clone()), expected);
        }
        for session in &mut self.sessions {
            for (view, seen, _) in &session.cursors {
                check(view, seen);
            }
            if session.block.has_begun() {
                let seen = session.seen(&self.states);
                check(&self.table.view(session.block.snapshot()), &seen);
            }
        }
    }
}

/// Random interleavings on one thread, while segments are rewritten, vacuumed and frozen.
#[test]
fn blocks_are_snapshot_isolated() {
    for seed in 0..24 {
        let mut random = StdRng::seed_from_u64(seed);
        let layout = ["row", "column", "(n,k),(s)"][seed as usize % 3];
        let mut model = Model::new(layout);
        for step in 0..150 {
            model.context = format!("seed {seed}, step {step}");
            model.step(&mut random);
            model.check();
        }
        model.sessions.clear();
        model.check();
        let Model { table, held, .. } = model;
        drop(held);
        let store = Arc::clone(table.store());
        drop(table);
        assert_eq!(
            store.budget().used(),
            0,
            "seed {seed}: all memory goes back"
        );
    }
}

fn insert(table: &Table, block: &Block, keys: &[i32]) -> Result<(), StorageError> {
    let statement = block.statement();
    let rows: Vec<Row> = keys.iter().map(|&key| row(key, 0, 3)).collect();
    table.insert(&statement, &batch(table, &rows))?;
    statement.commit().unwrap();
    Ok(())
}

fn delete(table: &Arc<Table>, block: &Block, wanted: i32) -> Result<u64, StorageError> {
    let statement = block.statement();
    let view = table.view(statement.snapshot().clone());
    let ids = Vec::from_iter(view.lookup(KeyRef(&key(table, wanted))).unwrap());
    let ended = view.delete(&statement, &ids)?;
    statement.commit().unwrap();
    Ok(ended)
}

/// A key that the block's statements have given up and taken again is its own throughout,
/// whichever of them are undone.
#[test]
fn a_key_comes_and_goes_within_a_block() {
    let table = tiny_table();
    load(&table, &[row(1, 0, 3)]);
    let block = table.store().txns().begin_block(Isolation::RepeatableRead);
    insert(&table, &block, &[2]).unwrap();
    for _ in 0..3 {
        for wanted in [1, 2] {
            let taken = insert(&table, &block, &[wanted]);
            assert!(matches!(taken, Err(StorageError::UniqueViolation { .. })));
            let savepoint = block.savepoint();
            assert_eq!(delete(&table, &block, wanted).unwrap(), 1);
            assert_eq!(delete(&table, &block, wanted).unwrap(), 0, "it is not seen");
            insert(&table, &block, &[wanted]).unwrap();
            assert_eq!(delete(&table, &block, wanted).unwrap(), 1);
            block.rollback_to(savepoint);
            assert_eq!(
                contents(&table, block.snapshot()),
                [row(1, 0, 3), row(2, 0, 3)]
            );
            assert_eq!(now(&table), [row(1, 0, 3)]);
        }
        table.freeze().unwrap();
        table.vacuum().unwrap();
    }
    block.commit().unwrap();
    assert_eq!(now(&table), [row(1, 0, 3), row(2, 0, 3)]);
}

/// A row that one statement inserted and the next deleted keeps its key from others until
/// the block has ended, for the next may still be undone.
#[test]
fn a_key_that_a_block_may_take_back_is_waited_for() {
    for undoes in [true, false] {
        let table = tiny_table();
        let block = table.store().txns().begin_block(Isolation::ReadCommitted);
        insert(&table, &block, &[1]).unwrap();
        let savepoint = block.savepoint();
        delete(&table, &block, 1).unwrap();
        let taken = thread::scope(|scope| {
            let inserting = scope.spawn(|| {
                let txn = table.store().txns().begin();
                let inserted = table.insert(&txn, &batch(&table, &[row(1, 7, 7)]));
                txn.commit().unwrap();
                inserted
            });
            // Long enough for an insert that does not wait to go wrong.
            thread::sleep(std::time::Duration::from_millis(20));
            if undoes {
                block.rollback_to(savepoint);
            }
            assert!(!inserting.is_finished());
            block.commit().unwrap();
            inserting.join().unwrap()
        });
        assert_eq!(taken.is_err(), undoes, "{taken:?}");
        let left = if undoes { row(1, 0, 3) } else { row(1, 7, 7) };
        assert_eq!(now(&table), [left]);
    }
}

const ACCOUNTS: i32 = 12;
const BALANCE: i64 = 1_000;

/// Adds to one account in a statement of its own, which runs again where that is allowed.
fn add(table: &Arc<Table>, block: &Block, account: i32, amount: i64) -> Result<(), StorageError> {
    loop {
        let statement = block.statement();
        let view = table.view(statement.snapshot().clone());
        let id = view.lookup(KeyRef(&key(table, account))).unwrap().unwrap();
        let before = &rows_of(&view.fetch(&[id], &[0, 1, 2]).unwrap())[0];
        let after = row(account, before.1 + amount, 20);
        match view.update(&statement, &[id], &batch(table, &[after])) {
            Ok(count) => {
                assert_eq!(count, 1);
                statement.commit().unwrap();
                return Ok(());
            }
            Err(StorageError::Conflict) if block.isolation() == Isolation::ReadCommitted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Moves money in two statements and then some that are undone. Gives whether it did.
fn transfer(table: &Arc<Table>, random: &mut StdRng, deadlocks: &AtomicU64) -> bool {
    let isolation = match random.random_bool(0.5) {
        true => Isolation::ReadCommitted,
        false => Isolation::RepeatableRead,
    };
    let block = table.store().txns().begin_block(isolation);
    let from = random.random_range(0..ACCOUNTS);
    let to = (from + random.random_range(1..ACCOUNTS)) % ACCOUNTS;
    let amount = random.random_range(1..10);
    let result = add(table, &block, from, -amount).and_then(|()| {
        thread::yield_now();
        add(table, &block, to, amount)
    });
    if result.is_ok() {
        let savepoint = block.savepoint();
        // Whether it fails or not, it is undone.
        let _ = add(table, &block, random.random_range(0..ACCOUNTS), 77);
        block.rollback_to(savepoint);
        let own = contents(table, block.snapshot());
        assert_eq!(total(&own), BALANCE * i64::from(ACCOUNTS));
    }
    match result {
        Ok(()) if random.random_bool(0.9) => block.commit().map(|_| true).unwrap(),
        Ok(()) => false,
        Err(StorageError::Deadlock) => {
            deadlocks.fetch_add(1, Ordering::Relaxed);
            false
        }
        Err(StorageError::Conflict) => {
            assert_eq!(isolation, Isolation::RepeatableRead);
            false
        }
        Err(error) => panic!("{error:?}"),
    }
}

fn total(rows: &[Row]) -> i64 {
    rows.iter().map(|row| row.1).sum()
}

/// Blocks that meet at few rows in any order: circles are found, nobody waits for ever, no
/// snapshot sees half a block, and nothing that was undone stays.
#[test]
fn blocks_transfer_beside_readers_and_the_freezer() {
    let table = tiny_table();
    load(
        &table,
        &(0..ACCOUNTS)
            .map(|key| row(key, BALANCE, 20))
            .collect::<Vec<_>>(),
    );
    let (stop, deadlocks) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    let rows = now(&table);
                    assert_eq!(rows.len(), ACCOUNTS as usize);
                    assert_eq!(total(&rows), BALANCE * i64::from(ACCOUNTS));
                    thread::yield_now();
                }
            });
        }
        scope.spawn(|| {
            while !stop.load(Ordering::Acquire) {
                table.freeze().unwrap();
                table.vacuum().unwrap();
                thread::sleep(std::time::Duration::from_millis(2));
            }
        });
        let writers: Vec<_> = (0..4)
            .map(|seed| {
                let (table, deadlocks) = (&table, &deadlocks);
                scope.spawn(move || {
                    let mut random = StdRng::seed_from_u64(seed);
                    (0..150)
                        .filter(|_| transfer(table, &mut random, deadlocks))
                        .count()
                })
            })
            .collect();
        let finished: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        stop.store(true, Ordering::Release);
        let committed: usize = finished.into_iter().map(Result::unwrap).sum();
        assert!(committed > 100, "{committed} of 600");
    });
    assert_eq!(total(&now(&table)), BALANCE * i64::from(ACCOUNTS));
    table.freeze().unwrap();
    assert_eq!(table.statistics().rows, ACCOUNTS as u64);
}

/// Two blocks that each hold what the other wants; the one that closes the circle gives
/// way, and the rest of it goes on after its statement was undone.
#[test]
fn a_deadlock_over_statements_ends_with_one_giving_way() {
    let table = tiny_table();
    load(
        &table,
        &(0..ACCOUNTS)
            .map(|key| row(key, BALANCE, 20))
            .collect::<Vec<_>>(),
    );
    let txns = table.store().txns();
    let [one, two] = [(); 2].map(|()| txns.begin_block(Isolation::ReadCommitted));
    add(&table, &one, 0, 1).unwrap();
    add(&table, &one, 5, 1).unwrap();
    add(&table, &two, 1, 1).unwrap();
    let savepoint = two.savepoint();
    let both = |block: Block, key, savepoint: Option<Savepoint>| {
        let result = add(&table, &block, key, 1);
        if result.is_err() {
            if let Some(savepoint) = savepoint {
                block.rollback_to(savepoint);
            }
            block.rollback();
        } else {
            block.commit().map(drop).unwrap();
        }
        result
    };
    let results = thread::scope(|scope| {
        let first = scope.spawn(|| both(one, 1, None));
        let second = scope.spawn(|| both(two, 0, Some(savepoint)));
        [first.join().unwrap(), second.join().unwrap()]
    });
    let given_way = results
        .iter()
        .filter(|result| matches!(result, Err(StorageError::Deadlock)));
    assert_eq!(given_way.count(), 1, "{results:?}");
    let left = total(&now(&table)) - BALANCE * i64::from(ACCOUNTS);
    assert_eq!(left, if results[0].is_ok() { 3 } else { 2 });
}

/// A session cancels a statement that waits for somebody's row, and goes on at once.
#[test]
fn going_back_to_a_savepoint_ends_a_wait() {
    let table = tiny_table();
    load(&table, &[row(1, 0, 3)]);
    let txns = table.store().txns();
    let [one, two] = [(); 2].map(|()| txns.begin_block(Isolation::ReadCommitted));
    delete(&table, &one, 1).unwrap();
    insert(&table, &two, &[2]).unwrap();
    let savepoint = two.savepoint();
    let waiting = two.statement();
    thread::scope(|scope| {
        let table = &table;
        let inserted = scope.spawn(move || {
            let rows = batch(table, &[row(3, 0, 3), row(1, 0, 3), row(4, 0, 3)]);
            table.insert(&waiting, &rows)
        });
        thread::sleep(std::time::Duration::from_millis(20));
        assert!(!inserted.is_finished());
        two.rollback_to(savepoint);
        // It may not have been undone yet: then its keys are waited for.
        insert(table, &two, &[3, 4]).unwrap();
        let inserted = inserted.join().unwrap();
        assert!(
            matches!(inserted, Err(StorageError::Cancelled)),
            "{inserted:?}"
        );
    });
    one.rollback();
    two.commit().unwrap();
    assert_eq!(now(&table), [1, 2, 3, 4].map(|key| row(key, 0, 3)));
}
