//! Log, checkpoints, archives, backups and recovery of many tenants, on schedules that a seed
//! chooses, on a disk that loses unsynced writes.
//!
//! ```text
//!  step   of one tenant after the other: a session begins, writes, rolls back, takes its place in
//!         the order, finishes; checkpoint, backup, freezing, tables that come and go, values
//!         evicted, the log archived or mended
//!    ├─ at each fault point: other sessions step, as far as the locks of that place allow
//!    └─ at each call of the disk: it fails; or so does the power, of all tenants at once
//!  life   steps, then an end: the power failed, a stop, a disk that takes nothing
//!  next   opened from what the end left, perhaps in several attempts, on a disk that fails; then
//!         held against the commits, and a backup is restored
//! ```
//!
//! One thread plays all roles, with a clock and a disk of the simulation ([`crate::simulated`]),
//! so a seed is a schedule. Checked is that nothing acknowledged, or seen by anybody, is lost,
//! however the power fails; that everything else is there as a whole or not at all; and that
//! nothing fails without a reason. `AEROSTAT_SIMULATION_ROUNDS` and `AEROSTAT_SIMULATION_SEED`
//! play more, or one again.

mod closed;
mod planted;
mod refused;
mod world;

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    rc::Rc,
};

use aerostat_txn::{Block, CommitError, Committing, Isolation, Transaction};
use aerostat_types::{CommitTs, IndexKind, TableIndex};
use rand::{Rng, SeedableRng, rngs::StdRng};

use self::world::World;
use super::{
    recovery::{create, listed, try_listed},
    *,
};
use crate::{
    durable::backup::{BackupSource, FolderSink, FolderSource, Restore, Until, restore_on, verify},
    files::{disk::Machine, fault::visit},
    simulated::{Handle, SimClock, SimDisk, set_witness},
};

const KEYED: u32 = 10;
const BAG: u32 = 11;
const TENANTS: usize = 3;
const SESSIONS: usize = 5;
const LIVES: usize = 4;
const STEPS_MAX: usize = 100;

/// More than a transaction keeps to itself: its redo goes to the log before the commit.
const CHUNK_BYTES: usize = 520 << 10;

/// What the write of a chunk, to each of three tables, takes of the log's queue at most.
const CHUNKED_BYTES: usize = 3 * (CHUNK_BYTES + (64 << 10));

/// What a transaction may have kept to itself before.
const KEPT_BYTES: usize = CHUNK_BYTES + (64 << 10);

/// A few chunks, so that files also end because they are full.
const FILE_BYTES: usize = 2 << 20;

/// By key: the number of the transaction, and the bytes of the text.
type Rows = BTreeMap<i32, (i64, usize)>;

#[derive(Clone, Default)]
struct Delta {
    inserted: Rows,
    ended: Vec<i32>,
}

/// What commits did, by their places in the order.
type History = BTreeMap<CommitTs, Delta>;

fn rows_at(history: &History, at: CommitTs) -> Rows {
    let mut rows = Rows::new();
    for delta in history.range(..=at).map(|(_, delta)| delta) {
        rows.retain(|key, _| !delta.ended.contains(key));
        rows.extend(delta.inserted.clone());
    }
    rows
}

enum Work {
    Single(Transaction),
    Block(Block),
}

enum Session {
    Idle,
    /// In the middle of a step.
    Busy,
    Open(Work, Delta),
    Ending(Committing, Delta),
}

/// What a place allows others to do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WaitPoint {
    /// Everything.
    Free,
    /// Nothing that waits for the log: somebody writes it.
    Led,
    /// Nothing that asks the log: its queue is locked.
    Locked,
}

impl WaitPoint {
    fn of(name: &str) -> WaitPoint {
        match name {
            "log.before_publish" => WaitPoint::Locked,
            "log.archived" | "log.after_remove" => WaitPoint::Free,
            _ if name.starts_with("log.") => WaitPoint::Led,
            _ => WaitPoint::Free,
        }
    }
}

/// What is known of a tenant beyond its files.
#[derive(Clone, Default)]
struct Known {
    /// Acknowledged.
    history: History,
    /// Asked for and not answered, or answered with doubt.
    open: History,
    /// Those of them that are in doubt.
    doubted: BTreeSet<CommitTs>,
    /// Whether the log may have been mended, without saying so: then none of them has happened.
    may_be_mended: bool,
    /// The catalogue that was acknowledged, and the newest that was asked for.
    catalogs: (u32, u32),
    /// What snapshots saw.
    seen: CommitTs,
}

impl Known {
    /// The history if all that was asked for up to here has happened.
    fn with_open(&self, last: CommitTs) -> History {
        let mut history = self.history.clone();
        history.extend(self.open.clone().into_iter().filter(|(at, _)| *at <= last));
        history
    }

    /// The history if nothing that was in doubt has happened.
    fn without_doubted(&self, last: CommitTs) -> History {
        let mut history = self.with_open(last);
        history.retain(|at, _| !self.doubted.contains(at));
        history
    }
}

/// One life of a tenant.
struct Life {
    /// The folder of all that is the tenant's.
    name: String,
    random: StdRng,
    disk: Arc<SimDisk>,
    machine: Machine,
    store: Arc<TenantStore>,
    tables: [Arc<Table>; 2],
    /// Comes and goes, and has rows of sessions that may end after it.
    passing: Option<Arc<Table>>,
    scratch: Arc<Table>,
    sessions: Vec<Session>,
    /// Borrowed for no call of the store: the power may fail in it.
    known: Rc<RefCell<Known>>,
    numbers: Numbers,
}

/// What is never used twice.
#[derive(Clone, Copy)]
struct Numbers {
    key: i32,
    txn: i64,
    table: u32,
    backup: u32,
}

type Shared = Rc<RefCell<Life>>;

fn options(machine: &Machine) -> OpenOptions {
    OpenOptions {
        sizes: Some(ArenaSizes::of(&[64 << 10, 4 << 20])),
        log_file_bytes: Some(FILE_BYTES),
        disk: Arc::clone(&machine.disk),
        clock: Arc::clone(&machine.clock),
        ..OpenOptions::default()
    }
}

type Attempt = Result<(Arc<TenantStore>, Recovered), RecoverError>;

fn try_opened(id: u32, folder: &Path, machine: &Machine) -> Attempt {
    let budget = Governor::new("4GB".parse().unwrap()).budget("test", None);
    TenantStore::open(TenantId(id), budget, folder, &options(machine))
}

fn opened(id: u32, folder: &Path, machine: &Machine) -> (Arc<TenantStore>, Recovered) {
    try_opened(id, folder, machine).unwrap_or_else(|error| panic!("{error}: {error:?}"))
}

fn contents(table: &Arc<Table>) -> Rows {
    let view = table.view(table.store().txns().snapshot());
    let row =
        |((key, number, text), _): (Row, RowId)| (key, (number, text.map_or(0, |text| text.len())));
    let listed = listed(&view);
    let count = listed.len();
    let rows: Rows = listed.into_iter().map(row).collect();
    assert_eq!(rows.len(), count, "a key is there twice");
    rows
}

/// With an index on the numbers.
fn indexed(table: Arc<Table>) -> Arc<Table> {
    let index = TableIndex {
        name: format!("numbers of {}", table.id()),
        kind: IndexKind::Hash,
        columns: vec![1],
        unique: false,
        nulls_not_distinct: false,
    };
    let txn = table.store().txns().begin();
    table.create_index(&txn, index).unwrap();
    table
}

/// Whether keys and indexes lead to the rows that there are.
fn look_up(table: &Arc<Table>, rows: &Rows, random: &mut StdRng) {
    let view = table.view(table.store().txns().snapshot());
    let found = |attribute, value: i64| -> Vec<i32> {
        let equal = compare(attribute, CompareOp::Eq, value.into());
        scan(&view, vec![equal]).into_keys().collect()
    };
    for _ in 0..rows.len().min(4) {
        let at = random.random_range(0..rows.len());
        let (key, (number, _)) = rows.iter().nth(at).unwrap();
        assert_eq!(found(0, i64::from(*key)), [*key]);
        let same = rows.iter().filter(|(_, row)| row.0 == *number);
        let same: Vec<i32> = same.map(|(key, _)| *key).collect();
        assert_eq!(found(1, *number), same, "rows with number {number}");
    }
    let newest = rows.values().map(|row| row.0).max().unwrap_or_default();
    assert!(found(1, newest + 1).is_empty());
}

/// Backups that are complete.
fn backups(machine: &Machine, root: &Path) -> Vec<PathBuf> {
    let is_whole = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with("backup") && !name.ends_with(".partial")
    };
    let listed = machine.disk.list(root).unwrap();
    let paths = listed.into_iter().map(|(path, _)| path);
    paths.filter(is_whole).collect()
}

fn root(name: &str) -> PathBuf {
    Path::new("/").join(name)
}

impl Life {
    /// Opens what an end left, and holds it against what is known.
    fn begin(
        name: String,
        disk: &Arc<SimDisk>,
        machine: &Machine,
        mut known: Known,
        numbers: Numbers,
        mut random: StdRng,
    ) -> Life {
        let root = root(&name);
        let (store, recovered) = opened(1, &root.join("tenant"), machine);
        let last = store.txns().last_commit();
        let newest = known.history.last_key_value().map(|(at, _)| *at);
        let newest = newest.max(Some(known.seen)).unwrap_or_default();
        assert!(newest <= last, "{newest} is lost, there is {last}");
        let catalog = recovered.catalog.as_deref();
        let catalog = catalog.map_or(0, |bytes| u32::from_le_bytes(bytes.try_into().unwrap()));
        assert!((known.catalogs.0..=known.catalogs.1).contains(&catalog));
        let keep: BTreeSet<TableId> = [KEYED, BAG].map(TableId).into();
        let tables = [KEYED, BAG].map(|id| match recovered.tables.get(&TableId(id)) {
            Some(table) => Arc::clone(table),
            None => indexed(create(&store, id, id == KEYED)),
        });
        store.retain_tables(&keep).unwrap();
        let (with, without) = (known.with_open(last), known.without_doubted(last));
        let is_mended = known.may_be_mended && contents(&tables[0]) == rows_at(&without, last);
        let history = if is_mended { without } else { with };
        let expected = rows_at(&history, last);
        for table in &tables {
            assert_eq!(contents(table), expected, "table {}", table.id());
            look_up(table, &expected, &mut random);
        }
        known = Known {
            history,
            catalogs: (catalog, catalog),
            seen: last,
            ..Known::default()
        };
        let archive = FolderSink::for_archive_on(Arc::clone(&machine.disk), &root.join("archive"));
        store.archive_log_to(Some(Arc::new(archive.unwrap())));
        let layout = Layout::parse("(k,s),(n)").unwrap();
        let scratch = store
            .create_temporary_table(TableId(9), schema(true), &layout, Vec::new())
            .unwrap();
        // A backup may have been made in the middle of this life's beginning: none yet.
        if let Some(backup) = pick(&backups(machine, &root), &mut random) {
            restored(machine, &root, &backup, &known.history, &mut random);
        }
        Life {
            name,
            random,
            disk: Arc::clone(disk),
            machine: machine.clone(),
            store,
            tables,
            passing: None,
            scratch,
            sessions: (0..SESSIONS).map(|_| Session::Idle).collect(),
            known: Rc::new(RefCell::new(known)),
            numbers,
        }
    }

    /// Whether the disk has refused something: then what the tenant does may fail.
    fn is_excused(&self) -> bool {
        self.disk.has_failed(&self.name)
    }

    /// Somebody passes a place.
    fn passed(&mut self, name: &str) {
        let place = WaitPoint::of(name);
        if place != WaitPoint::Locked && self.disk.crashed().is_none() {
            for _ in 0..self.random.random_range(0..3) {
                self.step(place);
            }
        }
        if name == "checkpoint.cut" {
            // It waits for those that have committed.
            self.finish_all();
        }
    }

    fn finish_all(&mut self) {
        for at in 0..SESSIONS {
            if matches!(self.sessions[at], Session::Ending(..)) {
                self.finish(at);
            }
        }
    }

    /// A step of some session.
    fn step(&mut self, place: WaitPoint) {
        let at = self.random.random_range(0..SESSIONS);
        match std::mem::replace(&mut self.sessions[at], Session::Busy) {
            Session::Busy => {}
            Session::Idle => self.sessions[at] = self.begun(),
            Session::Ending(committing, delta) => {
                self.sessions[at] = Session::Ending(committing, delta);
                if place == WaitPoint::Free {
                    self.finish(at);
                }
            }
            Session::Open(work, delta) => {
                self.sessions[at] = match self.random.random_range(0..10) {
                    0 => Session::Idle,
                    1..=3 if !delta.inserted.is_empty() => self.enqueued(work, delta),
                    _ => self.written(work, delta, at),
                };
            }
        }
    }

    fn begun(&mut self) -> Session {
        let txns = self.store.txns();
        let work = match self.random.random_bool(0.5) {
            true => Work::Single(txns.begin()),
            false => Work::Block(txns.begin_block(Isolation::ReadCommitted)),
        };
        Session::Open(work, Delta::default())
    }

    fn enqueued(&mut self, work: Work, delta: Delta) -> Session {
        let enqueued = match work {
            Work::Single(txn) => txn.enqueue(),
            Work::Block(block) => block.enqueue(),
        };
        match enqueued {
            Ok(committing) => {
                let mut known = self.known.borrow_mut();
                known.open.insert(committing.place(), delta.clone());
                Session::Ending(committing, delta)
            }
            Err(error) => {
                assert!(self.is_excused(), "{error:?}");
                Session::Idle
            }
        }
    }

    fn finish(&mut self, at: usize) {
        let Session::Ending(committing, delta) =
            std::mem::replace(&mut self.sessions[at], Session::Idle)
        else {
            panic!("the session does not end");
        };
        let place = committing.place();
        self.note(place, delta, committing.finish());
    }

    /// The answer of a commit.
    fn note(&mut self, place: CommitTs, delta: Delta, answer: Result<CommitTs, CommitError>) {
        match answer {
            Ok(ts) => {
                assert_eq!(ts, place);
                let mut known = self.known.borrow_mut();
                known.open.remove(&place);
                known.history.insert(place, delta);
            }
            Err(error) => {
                let in_doubt = matches!(error, CommitError::InDoubt(_));
                assert!(self.is_excused() && in_doubt, "{error:?}");
                // A log that was mended has given it up.
                let is_lost = self.store.log_failure().is_none();
                let mut known = self.known.borrow_mut();
                match is_lost {
                    true => drop(known.open.remove(&place)),
                    false => drop(known.doubted.insert(place)),
                }
            }
        }
    }

    /// Writes some rows and ends some of the session's own.
    fn written(&mut self, work: Work, mut delta: Delta, at: usize) -> Session {
        // Who has no room in the queue waits for whoever writes the log, and that may be us.
        let room = self.store.durable_side().log.room();
        let Some(room) = room.checked_sub(KEPT_BYTES) else {
            return Session::Open(work, delta);
        };
        let is_chunk = room >= CHUNKED_BYTES && self.random.random_bool(0.25);
        let room = room - if is_chunk { CHUNKED_BYTES } else { 0 };
        let count = if is_chunk {
            1
        } else {
            self.random.random_range(1..6)
        };
        self.numbers.txn += 1;
        let rows: Vec<Row> = (0..count)
            .map(|_| {
                self.numbers.key += SESSIONS as i32;
                let bytes = if is_chunk { CHUNK_BYTES } else { 9 };
                let key = self.numbers.key + at as i32;
                (key, self.numbers.txn, Some("x".repeat(bytes)))
            })
            .collect();
        // Three rows of a table without a key, which redo has whole.
        let may_end = room >= CHUNKED_BYTES;
        let ends = (may_end && self.random.random_bool(0.3)).then_some(at as i32);
        let is_undone = self.random.random_bool(0.2);
        let write = |txn: &Transaction| self.write(txn, &rows, ends, &delta);
        let ended = match &work {
            Work::Single(txn) => write(txn),
            Work::Block(block) => {
                let statement = block.statement();
                let written = write(&statement);
                if is_undone {
                    drop(statement);
                    return match written {
                        Ok(_) => Session::Open(work, delta),
                        Err(error) => self.failed(&error),
                    };
                }
                written.and_then(|ended| {
                    statement.commit()?;
                    Ok(ended)
                })
            }
        };
        match ended {
            Err(error) => self.failed(&error),
            Ok(ended) => {
                let row = |(key, number, text): Row| (key, (number, text.unwrap().len()));
                delta.inserted.extend(rows.into_iter().map(row));
                delta.ended.extend(ended);
                Session::Open(work, delta)
            }
        }
    }

    fn failed(&self, error: &StorageError) -> Session {
        assert!(self.is_excused(), "{error:?}");
        Session::Idle
    }

    /// Gives the keys of the rows that it ended: some of those of the session that had been
    /// committed before the transaction, the same in both tables.
    fn write(
        &self,
        txn: &Transaction,
        rows: &[Row],
        ends: Option<i32>,
        delta: &Delta,
    ) -> Result<Vec<i32>, StorageError> {
        let mut ended = Vec::new();
        for table in &self.tables {
            if let Some(session) = ends {
                let view = table.view(txn.snapshot().clone());
                let is_own = |row: &Row| {
                    row.0 % SESSIONS as i32 == session && !delta.inserted.contains_key(&row.0)
                };
                let own = try_listed(&view)?
                    .into_iter()
                    .filter(|(row, _)| is_own(row));
                let (some, ids): (Vec<_>, Vec<_>) = own.take(3).unzip();
                view.delete(txn, &ids)?;
                ended = some.iter().map(|row| row.0).collect();
            }
            table.insert(txn, &batch(table, rows))?;
        }
        for table in self.passing.iter().chain([&self.scratch]) {
            table.insert(txn, &batch(table, rows))?;
        }
        Ok(ended)
    }
}

fn pick(paths: &[PathBuf], random: &mut StdRng) -> Option<PathBuf> {
    (!paths.is_empty()).then(|| paths[random.random_range(0..paths.len())].clone())
}

/// Restores a backup, with the log up to some commit or without, and looks at it.
fn restored(machine: &Machine, root: &Path, backup: &Path, history: &History, random: &mut StdRng) {
    let source = |path: &Path| FolderSource::on(Arc::clone(&machine.disk), path);
    let backup = source(backup);
    let info = verify(&backup).unwrap();
    let logs = [root.join("archive"), root.join("tenant/log")].map(|path| source(&path));
    let logs: Vec<&dyn BackupSource> = match random.random_bool(0.8) {
        true => logs.iter().map(|log| log as _).collect(),
        false => Vec::new(),
    };
    let later: Vec<CommitTs> = history.range(info.at..).map(|(at, _)| *at).collect();
    let until = (!logs.is_empty() && !later.is_empty() && random.random_bool(0.5))
        .then(|| Until::Commit(later[random.random_range(0..later.len())]));
    let what = Restore {
        backup: &backup,
        logs: &logs,
        until,
    };
    let to = root.join("restored");
    let done = restore_on(machine, &what, TenantId(2), &to).unwrap();
    let (store, recovered) = opened(2, &to, machine);
    let expected = rows_at(history, done.at);
    for id in [KEYED, BAG] {
        let rows = recovered.tables.get(&TableId(id)).map(contents);
        assert_eq!(
            rows.unwrap_or_default(),
            expected,
            "restored {until:?} of table {id}"
        );
    }
    drop((store, recovered));
    machine.disk.remove_folder(&to).unwrap();
    machine.disk.sync_folder(root).unwrap();
}

/// A step of somebody, with nobody in the middle of one.
fn play(life: &Shared) {
    let (choice, store) = {
        let mut life = life.borrow_mut();
        (life.random.random_range(0..32), Arc::clone(&life.store))
    };
    match choice {
        0..4 => {
            let done = store.checkpoint();
            assert!(done.is_ok() || life.borrow().is_excused(), "{done:?}");
        }
        4 => back_up(life, &store),
        5 => {
            let done = store.archive_log();
            assert!(done.is_ok() || life.borrow().is_excused(), "{done:?}");
        }
        6 => catalog(life, &store),
        7 => passing(life, &store),
        8 => {
            life.borrow_mut().finish_all();
            let tables = life.borrow().tables.clone();
            for table in tables {
                // Values may have to be read back.
                let done = table.freeze().map(drop);
                let done = done.and_then(|()| table.vacuum().map(drop));
                assert!(done.is_ok() || life.borrow().is_excused(), "{done:?}");
            }
        }
        9..16 => finish(life),
        16..18 => mend(&mut life.borrow_mut()),
        18 => {
            let done = store.sync_log();
            assert!(done.is_ok() || life.borrow().is_excused(), "{done:?}");
        }
        19..21 => {
            store.evict(u64::MAX);
        }
        _ => life.borrow_mut().step(WaitPoint::Led),
    }
}

/// Finishes a commit, others coming in between.
fn finish(life: &Shared) {
    let taken = {
        let mut life = life.borrow_mut();
        let is_ending = |session: &Session| matches!(session, Session::Ending(..));
        let at = life.sessions.iter().position(is_ending);
        at.map(|at| (at, std::mem::replace(&mut life.sessions[at], Session::Busy)))
    };
    let Some((at, Session::Ending(committing, delta))) = taken else {
        return;
    };
    let place = committing.place();
    let answer = committing.finish();
    let mut life = life.borrow_mut();
    life.note(place, delta, answer);
    life.sessions[at] = Session::Idle;
}

/// Brings a log back that has failed.
fn mend(life: &mut Life) {
    if life.store.log_failure().is_none() {
        return;
    }
    // Everybody is told of the doubt before.
    life.finish_all();
    life.known.borrow_mut().may_be_mended = true;
    if life.store.mend_log().is_ok() {
        let mut known = life.known.borrow_mut();
        let known = &mut *known;
        for place in std::mem::take(&mut known.doubted) {
            known.open.remove(&place);
        }
        known.may_be_mended = false;
    }
}

fn back_up(life: &Shared, store: &TenantStore) {
    let (target, disk) = {
        let mut life = life.borrow_mut();
        life.numbers.backup += 1;
        let name = format!("backup {:04}", life.numbers.backup);
        (root(&life.name).join(name), Arc::clone(&life.machine.disk))
    };
    let done = FolderSink::for_backup_on(disk, &target, None);
    let done = done.and_then(|sink| store.backup("shop", &sink));
    assert!(done.is_ok() || life.borrow().is_excused(), "{done:?}");
}

fn catalog(life: &Shared, store: &TenantStore) {
    let known = Rc::clone(&life.borrow().known);
    known.borrow_mut().catalogs.1 += 1;
    let number = known.borrow().catalogs.1;
    match store.commit_catalog(number.to_le_bytes().to_vec()) {
        Ok(_) => known.borrow_mut().catalogs.0 = number,
        Err(error) => assert!(life.borrow().is_excused(), "{error:?}"),
    }
}

/// A table comes, or goes though there may be sessions with rows in it.
fn passing(life: &Shared, store: &Arc<TenantStore>) {
    let (before, id) = {
        let mut life = life.borrow_mut();
        life.numbers.table += 1;
        (life.passing.take(), life.numbers.table)
    };
    let done = match before {
        Some(table) => store.drop_table(table.id()).map(|()| None),
        None => {
            let layout = Layout::parse("(k,s),(n)").unwrap();
            let made = store.create_table(TableId(id), schema(true), &layout);
            made.map(Some)
        }
    };
    let mut life = life.borrow_mut();
    match done {
        Ok(table) => life.passing = table,
        Err(error) => assert!(life.is_excused(), "{error:?}"),
    }
}

/// Says which seed it was.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "AEROSTAT_SIMULATION_SEED={} AEROSTAT_SIMULATION_ROUNDS=1",
                self.0
            );
        }
    }
}

/// Plays a seed, and gives how many commits the tenants have at the end.
fn play_seed(seed: u64) -> usize {
    let _seed = Seed(seed);
    let mut world = World::new(seed);
    for _ in 0..LIVES {
        world.live();
    }
    let last = world.begin();
    let commits = |life: &Shared| life.borrow().known.borrow().history.len();
    last.iter().map(commits).sum()
}

#[test]
fn whatever_comes_between_every_folder_opens_with_what_was_acknowledged() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let first: u64 = number("AEROSTAT_SIMULATION_SEED").unwrap_or(104);
    let rounds = number("AEROSTAT_SIMULATION_ROUNDS").unwrap_or(10);
    let commits: usize = (first..first + rounds).map(play_seed).sum();
    assert!(
        commits as u64 > 3 * rounds,
        "{commits} commits in {rounds} rounds"
    );
}
