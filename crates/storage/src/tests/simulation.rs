//! Log, checkpoints, archives, backups and recovery, on schedules that a seed chooses.
//!
//! ```text
//!  step   a session begins, writes, rolls back, takes its place in the order, finishes;
//!         checkpoint, backup, freezing, tables that come and go, the log archived
//!    └─ at each fault point it passes: other sessions step, as far as the locks of that
//!       place allow; or the files are copied, as a process that ends there leaves them
//!  life   steps, then an end: a copy from within a step, a stop, a disk that takes nothing
//!  next   opened from what the end left, held against the commits; a backup is restored
//! ```
//!
//! One thread plays everybody, so a seed is a schedule: of the places where the queue's lock
//! has been let go each has others come in between. `AEROSTAT_SIMULATION_ROUNDS` and
//! `AEROSTAT_SIMULATION_SEED` play more, or one again.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    rc::Rc,
};

use aerostat_txn::{Block, CommitError, Committing, Isolation, Transaction};
use aerostat_types::CommitTs;
use rand::{Rng, SeedableRng, rngs::StdRng};

use super::{
    recovery::{create, listed, read_names},
    *,
};
use crate::{
    durable::backup::{BackupSource, FolderSink, FolderSource, Restore, Until, restore, verify},
    files::fault::visit,
};

const KEYED: u32 = 10;
const BAG: u32 = 11;
const SESSIONS: usize = 5;
const LIVES: usize = 4;
const STEPS_MAX: usize = 50;

/// More than a transaction keeps to itself: its redo goes to the log before the commit.
const CHUNK_BYTES: usize = 520 << 10;

/// What the write of a chunk, to each of three tables, takes of the log's queue at most.
const CHUNKED_BYTES: usize = 3 * (CHUNK_BYTES + (64 << 10));

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
enum Place {
    /// Everything.
    Free,
    /// Nothing that waits for the log: somebody writes it.
    Led,
    /// Nothing that asks the log: its queue is locked.
    Locked,
}

impl Place {
    fn of(name: &str) -> Place {
        match name {
            "log.before_publish" => Place::Locked,
            "log.archived" | "log.after_remove" => Place::Free,
            _ if name.starts_with("log.") => Place::Led,
            _ => Place::Free,
        }
    }
}

/// What is known of a tenant beyond its files.
#[derive(Clone, Default)]
struct Known {
    /// Acknowledged.
    history: History,
    /// Asked for and not answered.
    open: History,
    /// The catalogue that was acknowledged, and the newest that was asked for.
    catalogs: (u32, u32),
}

/// One life of the tenant.
struct Life {
    random: StdRng,
    root: Rc<tempfile::TempDir>,
    store: Arc<TenantStore>,
    tables: [Arc<Table>; 2],
    /// Comes and goes, and has rows of sessions that may end after it.
    passing: Option<Arc<Table>>,
    scratch: Arc<Table>,
    sessions: Vec<Session>,
    known: Known,
    numbers: Numbers,
    is_broken: bool,
    crashed: Option<(tempfile::TempDir, Known)>,
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

fn options() -> OpenOptions {
    OpenOptions {
        sizes: Some(ArenaSizes::of(&[64 << 10, 4 << 20])),
        log_file_bytes: Some(FILE_BYTES),
        ..OpenOptions::default()
    }
}

fn opened(id: u32, folder: &Path) -> (Arc<TenantStore>, Recovered) {
    let budget = Governor::new("4GB".parse().unwrap()).budget("test", None);
    let opened = TenantStore::open(TenantId(id), budget, folder, &options());
    opened.unwrap_or_else(|error| panic!("{error}: {error:?}"))
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

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for path in read_names(from) {
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy_tree(&path, &target);
        } else {
            fs::copy(&path, &target).unwrap();
        }
    }
}

/// Backups that are complete.
fn backups(root: &Path) -> Vec<PathBuf> {
    let is_whole = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with("backup") && !name.ends_with(".partial")
    };
    read_names(root).into_iter().filter(is_whole).collect()
}

impl Life {
    /// Opens what an end left, and holds it against what is known.
    fn begin(
        root: Rc<tempfile::TempDir>,
        mut known: Known,
        numbers: Numbers,
        mut random: StdRng,
    ) -> Life {
        let (store, recovered) = opened(1, &root.path().join("tenant"));
        let last = store.txns().last_commit();
        let newest = known.history.last_key_value();
        assert!(
            newest.is_none_or(|(at, _)| *at <= last),
            "{newest:?} is lost, there is {last}",
            newest = newest.map(|(at, _)| at)
        );
        let open = std::mem::take(&mut known.open);
        known
            .history
            .extend(open.into_iter().filter(|(at, _)| *at <= last));
        let catalog = recovered.catalog.as_deref();
        let catalog = catalog.map_or(0, |bytes| u32::from_le_bytes(bytes.try_into().unwrap()));
        assert!((known.catalogs.0..=known.catalogs.1).contains(&catalog));
        known.catalogs = (catalog, catalog);
        let keep: BTreeSet<TableId> = [KEYED, BAG].map(TableId).into();
        let tables = [KEYED, BAG].map(|id| match recovered.tables.get(&TableId(id)) {
            Some(table) => Arc::clone(table),
            None => create(&store, id, id == KEYED),
        });
        store.retain_tables(&keep).unwrap();
        let expected = rows_at(&known.history, last);
        for table in &tables {
            assert_eq!(contents(table), expected, "table {}", table.id());
        }
        let archive = FolderSink::for_archive(&root.path().join("archive")).unwrap();
        store.archive_log_to(Some(Arc::new(archive)));
        let layout = Layout::parse("(k,s),(n)").unwrap();
        let scratch = store
            .create_temporary_table(TableId(9), schema(true), &layout, Vec::new())
            .unwrap();
        // A backup may have been made in the middle of this life's beginning: none yet.
        if let Some(backup) = pick(&backups(root.path()), &mut random) {
            restored(root.path(), &backup, &known.history, &mut random);
        }
        Life {
            random,
            root,
            store,
            tables,
            passing: None,
            scratch,
            sessions: (0..SESSIONS).map(|_| Session::Idle).collect(),
            known,
            numbers,
            is_broken: false,
            crashed: None,
        }
    }

    /// Somebody passes a place.
    fn passed(&mut self, name: &str) {
        if self.crashed.is_none() {
            self.come_between(Place::of(name));
        }
        if name == "checkpoint.cut" {
            // It waits for those that have committed.
            self.finish_all();
        }
    }

    fn come_between(&mut self, place: Place) {
        if self.random.random_bool(0.02) {
            return self.crash();
        }
        if place != Place::Locked {
            for _ in 0..self.random.random_range(0..3) {
                self.step(place);
            }
        }
    }

    /// What is in the files now is what the next life begins with.
    fn crash(&mut self) {
        let root = memory_folder();
        copy_tree(self.root.path(), root.path());
        self.crashed = Some((root, self.known.clone()));
    }

    fn finish_all(&mut self) {
        for at in 0..SESSIONS {
            if matches!(self.sessions[at], Session::Ending(..)) {
                self.finish(at);
            }
        }
    }

    /// A step of some session.
    fn step(&mut self, place: Place) {
        let at = self.random.random_range(0..SESSIONS);
        match std::mem::replace(&mut self.sessions[at], Session::Busy) {
            Session::Busy => {}
            Session::Idle => self.sessions[at] = self.begun(),
            Session::Ending(committing, delta) => {
                self.sessions[at] = Session::Ending(committing, delta);
                if place == Place::Free {
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
                self.known.open.insert(committing.place(), delta.clone());
                Session::Ending(committing, delta)
            }
            Err(error) => {
                assert!(self.is_broken, "{error:?}");
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
                self.known.open.remove(&place);
                self.known.history.insert(place, delta);
            }
            Err(error) => {
                let in_doubt = matches!(error, CommitError::InDoubt(_));
                assert!(self.is_broken && in_doubt, "{error:?}");
            }
        }
    }

    /// Writes some rows and ends some of the session's own.
    fn written(&mut self, work: Work, mut delta: Delta, at: usize) -> Session {
        // Who has no room in the queue waits for whoever writes the log, and that may be us.
        let may_chunk = self.store.durable_side().log.room() >= CHUNKED_BYTES;
        let is_chunk = may_chunk && self.random.random_bool(0.25);
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
        let ends = self.random.random_bool(0.3).then_some(at as i32);
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
        assert!(self.is_broken, "{error:?}");
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
                let own = listed(&view).into_iter().filter(|(row, _)| is_own(row));
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
fn restored(root: &Path, backup: &Path, history: &History, random: &mut StdRng) {
    let folder = memory_folder();
    let source = FolderSource::new(backup);
    let info = verify(&source).unwrap();
    let logs = [root.join("archive"), root.join("tenant/log")].map(|path| FolderSource::new(&path));
    let logs: Vec<&dyn BackupSource> = match random.random_bool(0.8) {
        true => logs.iter().map(|log| log as _).collect(),
        false => Vec::new(),
    };
    let later: Vec<CommitTs> = history.range(info.at..).map(|(at, _)| *at).collect();
    let until = (!logs.is_empty() && !later.is_empty() && random.random_bool(0.5))
        .then(|| Until::Commit(later[random.random_range(0..later.len())]));
    let what = Restore {
        backup: &source,
        logs: &logs,
        until,
    };
    let to = folder.path().join("restored");
    let done = restore(&what, TenantId(2), &to).unwrap();
    let (_store, recovered) = opened(2, &to);
    let expected = rows_at(history, done.at);
    for id in [KEYED, BAG] {
        let rows = recovered.tables.get(&TableId(id)).map(contents);
        assert_eq!(
            rows.unwrap_or_default(),
            expected,
            "restored {until:?} of table {id}"
        );
    }
}

/// A step of somebody, with nobody in the middle of one.
fn play(life: &Shared) {
    let (choice, store) = {
        let mut life = life.borrow_mut();
        (life.random.random_range(0..30), Arc::clone(&life.store))
    };
    match choice {
        0..4 => {
            let done = store.checkpoint();
            assert!(done.is_ok() || life.borrow().is_broken, "{done:?}");
        }
        4 => back_up(life, &store),
        5 => {
            let done = store.archive_log();
            assert!(done.is_ok() || life.borrow().is_broken, "{done:?}");
        }
        6 => catalog(life, &store),
        7 => passing(life, &store),
        8 => {
            life.borrow_mut().finish_all();
            let tables = life.borrow().tables.clone();
            for table in tables {
                table.freeze().unwrap();
                table.vacuum().unwrap();
            }
        }
        9..16 => finish(life),
        _ => life.borrow_mut().step(Place::Led),
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

fn back_up(life: &Shared, store: &TenantStore) {
    let target = {
        let mut life = life.borrow_mut();
        life.numbers.backup += 1;
        let name = format!("backup {:04}", life.numbers.backup);
        life.root.path().join(name)
    };
    let sink = FolderSink::for_backup(&target, None).unwrap();
    let done = store.backup("shop", &sink);
    drop(sink);
    assert!(done.is_ok() || life.borrow().is_broken, "{done:?}");
}

fn catalog(life: &Shared, store: &TenantStore) {
    let number = {
        let catalogs = &mut life.borrow_mut().known.catalogs;
        catalogs.1 += 1;
        catalogs.1
    };
    let done = store.commit_catalog(number.to_le_bytes().to_vec());
    let mut life = life.borrow_mut();
    match done {
        Ok(_) => life.known.catalogs.0 = number,
        Err(error) => assert!(life.is_broken, "{error:?}"),
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
        Err(error) => assert!(life.is_broken, "{error:?}"),
    }
}

/// Plays a life to its end, and gives what the next one begins with.
fn live(life: Life) -> (Rc<tempfile::TempDir>, Known, Numbers, StdRng) {
    let shared = Rc::new(RefCell::new(life));
    let visited = Rc::clone(&shared);
    visit::set(Some(Box::new(move |place| {
        // Who plays holds nothing while it calls the store, but for steps of sessions.
        if let Ok(mut life) = visited.try_borrow_mut() {
            life.passed(place);
        }
    })));
    let steps = shared.borrow_mut().random.random_range(5..STEPS_MAX);
    for _ in 0..steps {
        if shared.borrow().crashed.is_none() {
            play(&shared);
        }
    }
    let breaks = shared.borrow_mut().random.random_bool(0.15);
    if breaks && shared.borrow().crashed.is_none() {
        let store = Arc::clone(&shared.borrow().store);
        store.durable_side().log.fill_disk();
        shared.borrow_mut().is_broken = true;
        (0..10).for_each(|_| play(&shared));
    }
    visit::set(None);
    let life = Rc::into_inner(shared).unwrap().into_inner();
    end(life)
}

fn end(mut life: Life) -> (Rc<tempfile::TempDir>, Known, Numbers, StdRng) {
    life.finish_all();
    let Life {
        random,
        root,
        known,
        numbers,
        crashed,
        ..
    } = life;
    match crashed {
        Some((root, known)) => (Rc::new(root), known, numbers, random),
        None => (root, known, numbers, random),
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

#[test]
fn whatever_comes_between_every_folder_opens_with_what_was_acknowledged() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().unwrap());
    let first: u64 = number("AEROSTAT_SIMULATION_SEED").unwrap_or(104);
    let rounds = number("AEROSTAT_SIMULATION_ROUNDS").unwrap_or(16);
    let mut commits = 0;
    for seed in first..first + rounds {
        let _seed = Seed(seed);
        let random = StdRng::seed_from_u64(seed);
        let numbers = Numbers {
            key: 0,
            txn: 0,
            table: BAG,
            backup: 0,
        };
        let root = Rc::new(memory_folder());
        let mut next = (root, Known::default(), numbers, random);
        for _ in 0..LIVES {
            let (root, known, numbers, random) = next;
            next = live(Life::begin(root, known, numbers, random));
        }
        let (root, known, numbers, random) = next;
        let last = Life::begin(root, known, numbers, random);
        commits += last.known.history.len() as u64;
    }
    assert!(commits > 3 * rounds, "{commits} commits in {rounds} rounds");
}
