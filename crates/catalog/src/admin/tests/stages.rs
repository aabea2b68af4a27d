//! Databases that are opened when somebody wants them, and closed while the node goes on.

use std::{
    collections::BTreeSet,
    fs,
    path::PathBuf,
    sync::{
        Barrier,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};

use aerostat_storage::{
    StorageError, ValueRef,
    backup::{BackupError, BackupSink, BackupSource, Places},
};
use parking_lot::{Condvar, Mutex};
use sqlparser::{
    ast::{Expr, Statement},
    dialect::PostgreSqlDialect,
    parser::Parser,
};

use super::*;
use crate::{
    ddl::{DefaultLayout, ExpressionChecker, create_table},
    state::{Database, TableEntry},
};

/// Longer than anything here takes, on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(120);

/// Places that count who opens a database with an archive, and can hold it up or fail.
#[derive(Default)]
struct Gate {
    opened: AtomicUsize,
    is_shut: Mutex<bool>,
    turned: Condvar,
    fails: AtomicBool,
}

impl Gate {
    fn shut(&self) {
        *self.is_shut.lock() = true;
    }

    fn open(&self) {
        *self.is_shut.lock() = false;
        self.turned.notify_all();
    }

    fn opened(&self) -> usize {
        self.opened.load(Ordering::SeqCst)
    }
}

impl Places for Gate {
    fn check(&self, place: &str) -> Result<(), BackupError> {
        Folders.check(place)
    }

    fn for_backup(
        &self,
        place: &str,
        base: Option<&str>,
    ) -> Result<Box<dyn BackupSink>, BackupError> {
        Folders.for_backup(place, base)
    }

    fn for_archive(&self, place: &str) -> Result<Arc<dyn BackupSink>, BackupError> {
        self.opened.fetch_add(1, Ordering::SeqCst);
        let mut is_shut = self.is_shut.lock();
        self.turned.wait_while(&mut is_shut, |is_shut| *is_shut);
        if self.fails.load(Ordering::SeqCst) {
            let (place, why) = (place.to_owned(), "does not answer".to_owned());
            return Err(BackupError::NotAPlace { place, why });
        }
        Folders.for_archive(place)
    }

    fn source(&self, place: &str) -> Result<Box<dyn BackupSource>, BackupError> {
        Folders.source(place)
    }
}

/// A node with a database `shop`, whose opening is counted, and the folder it is in.
struct Scene {
    data: tempfile::TempDir,
    gate: Arc<Gate>,
    governor: Arc<Governor>,
    node: Node,
}

impl Scene {
    /// `shop` is closed.
    fn lazy() -> Self {
        let data = tempfile::tempdir().unwrap();
        let node = open(data.path());
        let archive = data.path().join("archive");
        let archive = archive.to_str().unwrap();
        ok(
            &node,
            &format!("create database shop with (log_archive = '{archive}')"),
        );
        make_table(&node.database("shop").unwrap());
        drop(node);
        Self::on(data)
    }

    fn on(data: tempfile::TempDir) -> Self {
        let (gate, governor) = (Arc::new(Gate::default()), Governor::new(ByteSize(1 << 30)));
        let places: Arc<dyn Places> = Arc::clone(&gate) as _;
        let shared = Arc::clone(&governor);
        let node = Node::open(data.path(), Host::new(shared, places), Opening::Lazy).unwrap();
        // Where statements are run.
        drop(node.connect(BOOTSTRAP, BOOTSTRAP).unwrap());
        Self {
            data,
            gate,
            governor,
            node,
        }
    }

    fn state(&self) -> DatabaseState {
        self.node.state_of("shop")
    }

    fn folder(&self) -> PathBuf {
        let oid = self.node.record().databases["shop"].oid;
        self.data.path().join("tenants").join(oid.to_string())
    }

    fn connect(&self) -> Result<Connection, SqlError> {
        self.node.connect(BOOTSTRAP, "shop")
    }

    /// Waits until somebody is opening it.
    fn await_opening(&self) {
        until(|| self.state() == DatabaseState::Opening && self.gate.opened() > 0);
    }
}

fn until(has_come: impl Fn() -> bool) {
    let started = Instant::now();
    while !has_come() {
        assert!(started.elapsed() < PATIENCE, "it does not come");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Takes every definition for right.
struct Unchecked;

impl ExpressionChecker for Unchecked {
    fn check_default(&self, _column: &aerostat_types::Column, _sql: &str) -> Result<(), SqlError> {
        Ok(())
    }

    fn check_condition(
        &self,
        _schema: &aerostat_types::TableSchema,
        _sql: &str,
    ) -> Result<(), SqlError> {
        Ok(())
    }

    fn check_conversion(
        &self,
        _before: &aerostat_types::TableSchema,
        _at: usize,
        _to: &aerostat_types::Column,
        _using: Option<&Expr>,
    ) -> Result<(), SqlError> {
        Ok(())
    }
}

fn inside(database: &Database, role: &str) -> Actor {
    Actor {
        role: role.to_owned(),
        superuser: true,
        database: database.name.read().clone(),
        database_owner: true,
        create_in_database: true,
        search_path: vec!["public".to_owned()],
        temporary: None,
        zone: aerostat_types::Zone::UTC,
    }
}

/// A table of numbers, whose owner is the role.
fn make_table_of(database: &Arc<Database>, role: &str) {
    let sql = "create table t (id integer primary key)";
    let mut parsed = Parser::parse_sql(&PostgreSqlDialect {}, sql).unwrap();
    let Statement::CreateTable(create) = parsed.remove(0) else {
        panic!("{sql}");
    };
    let actor = inside(database, role);
    let made = database
        .define(|draft| create_table(draft, &actor, &create, DefaultLayout::Column, &Unchecked));
    made.unwrap();
}

fn make_table(database: &Arc<Database>) {
    make_table_of(database, BOOTSTRAP);
}

fn table(database: &Database) -> Arc<TableEntry> {
    database.catalog.load().table_entries().remove(0)
}

fn insert(database: &Database, id: i32) -> Result<(), StorageError> {
    let (table, txn) = (table(database), database.store.txns().begin());
    table.table.insert_row(&txn, &[ValueRef::I32(id)])?;
    txn.commit()?;
    Ok(())
}

/// Whether a row is there: another cannot be inserted.
fn has(database: &Database, id: i32) -> bool {
    let (table, txn) = (table(database), database.store.txns().begin());
    match table.table.insert_row(&txn, &[ValueRef::I32(id)]) {
        Ok(_) => false,
        Err(StorageError::UniqueViolation { .. }) => true,
        Err(error) => panic!("{error:?}"),
    }
}

/// What the process has open below a folder.
fn open_files(below: &Path) -> usize {
    let below = below.canonicalize().unwrap();
    let open = fs::read_dir("/proc/self/fd").unwrap();
    let paths = open.filter_map(|entry| fs::read_link(entry.unwrap().path()).ok());
    paths.filter(|path| path.starts_with(&below)).count()
}

#[test]
fn a_thousand_closed_databases_are_not_read_when_the_node_starts() {
    const COUNT: u32 = 1_000;
    let data = tempfile::tempdir().unwrap();
    let node = open(data.path());
    let mut record = NodeRecord::clone(&node.record());
    drop(node);
    // What no one could read without an error: the log begins in its middle.
    let entry = record.databases[BOOTSTRAP].clone();
    for number in 0..COUNT {
        let oid = TenantId(20_000 + number);
        let entry = crate::state::DatabaseRecord {
            oid,
            ..entry.clone()
        };
        record.databases.insert(format!("d{number}"), entry);
        let log = data.path().join(format!("tenants/{oid}/log"));
        fs::create_dir_all(&log).unwrap();
        fs::write(log.join("0000000000000005.log"), [0xab; 500]).unwrap();
    }
    record.next_oid = 30_000;
    let document = serde_json::to_vec(&record).unwrap();
    fs::write(data.path().join("catalog.json"), document).unwrap();

    let governor = Governor::new(ByteSize(1 << 30));
    let places: Arc<dyn Places> = Arc::new(Folders);
    let begin = |opening| {
        let (governor, places) = (Arc::clone(&governor), Arc::clone(&places));
        Node::open(data.path(), Host::new(governor, places), opening).unwrap()
    };
    let node = begin(Opening::Lazy);
    let states = |node: &Node| -> BTreeSet<&'static str> {
        let names = (0..COUNT).map(|number| format!("d{number}"));
        names.map(|name| node.state_of(&name).name()).collect()
    };
    assert_eq!(states(&node), ["closed"].into());
    assert_eq!(governor.used(), 0);
    assert!(node.open_databases().is_empty());
    // The lock of the data folder.
    assert!(open_files(data.path()) <= 1);
    let refused = node.connect(BOOTSTRAP, "d7").unwrap_err();
    assert_eq!(refused.kind, ErrorKind::DataCorrupted);
    assert_eq!(node.state_of("d7").name(), "unopened");
    assert_eq!(node.state_of("d8").name(), "closed");
    drop(node.connect(BOOTSTRAP, BOOTSTRAP).unwrap());
    drop(node);
    // It would have been told of them.
    assert_eq!(states(&begin(Opening::Eager)), ["unopened"].into());
}

#[test]
fn two_hundred_first_connections_open_a_database_once() {
    const COUNT: usize = 200;
    let scene = Scene::lazy();
    assert_eq!(scene.state(), DatabaseState::Closed);
    scene.gate.shut();
    let barrier = Barrier::new(COUNT + 1);
    let connections = thread::scope(|scope| {
        let connect = || {
            barrier.wait();
            scene.connect()
        };
        let all: Vec<_> = (0..COUNT).map(|_| scope.spawn(connect)).collect();
        barrier.wait();
        scene.await_opening();
        // Nobody else waits for it.
        drop(scene.node.connect(BOOTSTRAP, BOOTSTRAP).unwrap());
        ok(&scene.node, "create role meanwhile");
        scene.gate.open();
        let joined = all.into_iter().map(|one| one.join().unwrap().unwrap());
        joined.collect::<Vec<_>>()
    });
    assert_eq!(scene.gate.opened(), 1);
    let database = scene.node.database("shop").unwrap();
    assert_eq!(database.connection_count(), COUNT as i64);
    assert!(
        connections
            .iter()
            .all(|one| Arc::ptr_eq(one.database(), &database))
    );
}

#[test]
fn all_who_wait_have_the_error_of_one_attempt_and_a_later_one_opens() {
    const COUNT: usize = 50;
    let scene = Scene::lazy();
    scene.gate.shut();
    scene.gate.fails.store(true, Ordering::SeqCst);
    let errors = thread::scope(|scope| {
        let all: Vec<_> = (0..COUNT)
            .map(|_| scope.spawn(|| scene.connect().unwrap_err()))
            .collect();
        scene.await_opening();
        thread::sleep(Duration::from_millis(50));
        scene.gate.open();
        let joined = all.into_iter().map(|one| one.join().unwrap());
        joined.collect::<Vec<_>>()
    });
    // Those that came after it, too: it is not tried again at once.
    assert_eq!(scene.gate.opened(), 1);
    let first = &errors[0];
    assert_eq!(first.kind, ErrorKind::IoError);
    assert!(first.detail.as_ref().unwrap().contains("does not answer"));
    assert!(errors.iter().all(|error| error == first), "{errors:?}");
    assert!(matches!(scene.state(), DatabaseState::Unopened(_)));
    scene.gate.fails.store(false, Ordering::SeqCst);
    until(|| scene.connect().is_ok());
    assert_eq!(
        (scene.gate.opened(), scene.state()),
        (2, DatabaseState::Open)
    );
}

#[test]
fn a_damaged_database_is_refused_until_its_files_are_mended() {
    let scene = Scene::lazy();
    let log = fs::read_dir(scene.folder().join("log")).unwrap().next();
    let log = log.unwrap().unwrap().path();
    let whole = fs::read(&log).unwrap();
    let mut damaged = whole.clone();
    damaged[40] ^= 1;
    fs::write(&log, damaged).unwrap();
    let refused = scene.connect().unwrap_err();
    assert_eq!(
        (refused.kind, &*refused.message),
        (
            ErrorKind::DataCorrupted,
            "database \"shop\" could not be opened"
        )
    );
    assert!(refused.detail.unwrap().contains("is damaged at byte"));
    assert!(refused.hint.unwrap().contains("aerostat repair"));
    fs::write(&log, whole).unwrap();
    until(|| scene.connect().is_ok());
    assert!(!has(&scene.node.database("shop").unwrap(), 1));
}

#[test]
fn an_opening_that_is_given_up_is_left_to_the_next() {
    let scene = Scene::lazy();
    let Claim::Due(ticket) = scene.node.claim("shop").unwrap() else {
        panic!("it is closed");
    };
    let Claim::Underway(attempt) = scene.node.claim("shop").unwrap() else {
        panic!("somebody opens it");
    };
    let mut waits = std::pin::pin!(attempt.over());
    let mut context = Context::from_waker(Waker::noop());
    assert!(waits.as_mut().poll(&mut context).is_pending());
    assert_eq!(scene.state(), DatabaseState::Opening);
    drop(ticket);
    assert_eq!(waits.as_mut().poll(&mut context), Poll::Ready(Ok(())));
    assert_eq!(scene.state(), DatabaseState::Closed);
    drop(scene.connect().unwrap());
    assert_eq!(scene.gate.opened(), 1);
}

#[test]
fn statements_about_a_database_that_is_being_opened_wait_or_are_followed() {
    let scene = Scene::lazy();
    scene.gate.shut();
    thread::scope(|scope| {
        let connected = scope.spawn(|| scene.connect().unwrap());
        scene.await_opening();
        // Options need nobody to look inside.
        ok(
            &scene.node,
            "alter database shop set (memory_max = '3MB', durability = none)",
        );
        let dropped = scope.spawn(|| run(&scene.node, BOOTSTRAP, "drop database shop"));
        let cancelled = {
            let (cancel, current) = (CancelToken::new(), scene.node.database(BOOTSTRAP).unwrap());
            cancel.cancel();
            let Some(Utility::Database(command)) = utility::parse("drop database shop").unwrap()
            else {
                panic!("a statement about a database");
            };
            let actor = actor(&scene.node, BOOTSTRAP);
            let run = scene
                .node
                .execute_database(&actor, &current, &command, &NoHolders, &cancel);
            run.unwrap_err()
        };
        assert_eq!(cancelled.kind, ErrorKind::QueryCanceled);
        thread::sleep(Duration::from_millis(50));
        assert!(!dropped.is_finished());
        scene.gate.open();
        let connection = connected.join().unwrap();
        let store = &connection.database().store;
        assert_eq!(store.budget().max(), Some(ByteSize(3 << 20)));
        assert_eq!(store.durability().unwrap().to_string(), "none");
        drop(connection);
        dropped.join().unwrap().unwrap();
    });
    assert_eq!(
        scene.connect().unwrap_err().kind,
        ErrorKind::InvalidCatalogName
    );
    assert_eq!(scene.governor.used(), 0);
}

#[test]
fn a_closed_database_is_renamed_changed_and_dropped_where_it_lies() {
    let scene = Scene::lazy();
    let folder = scene.folder();
    ok(&scene.node, "alter database shop set (memory_max = '5MB')");
    ok(&scene.node, "alter database shop rename to store");
    ok(&scene.node, "comment on database store is 'wares'");
    assert_eq!(scene.node.state_of("store"), DatabaseState::Closed);
    assert_eq!(
        scene.connect().unwrap_err().kind,
        ErrorKind::InvalidCatalogName
    );
    // Inside is what belongs to the owner, and what is backed up.
    ok(&scene.node, "create role keeper");
    ok(&scene.node, "alter database store owner to keeper");
    let database = scene.node.database("store").unwrap();
    assert_eq!(*database.name.read(), "store");
    assert_eq!(database.store.budget().max(), Some(ByteSize(5 << 20)));
    assert_eq!(database.catalog.load().schemas["public"].owner, "keeper");
    drop(database);
    assert_eq!(
        ok(&scene.node, "alter database store close").tag,
        "ALTER DATABASE"
    );
    assert_eq!(scene.node.state_of("store"), DatabaseState::Closed);
    let backup = scene.data.path().join("backup");
    let actor = actor(&scene.node, BOOTSTRAP);
    let backed_up = scene.node.back_up(
        &actor,
        "store",
        backup.to_str().unwrap(),
        None,
        &CancelToken::new(),
    );
    backed_up.unwrap();
    assert!(backup.join("backup.json").exists());
    ok(&scene.node, "alter database store close");
    ok(&scene.node, "drop database store");
    assert!(!folder.exists());
}

#[test]
fn roles_are_known_in_databases_that_are_closed() {
    let scene = Scene::lazy();
    let node = &scene.node;
    for sql in [
        "create role alice",
        "create role bob",
        "create database other",
        "create database apart",
    ] {
        ok(node, sql);
    }
    make_table_of(&node.database("other").unwrap(), "alice");
    for name in ["other", "apart"] {
        ok(node, &format!("alter database {name} close"));
    }
    drop(scene.node);
    let scene = Scene::on(scene.data);
    let node = &scene.node;
    let states = || ["shop", "other", "apart"].map(|name| node.state_of(name).name());
    // Whoever has nothing anywhere goes, and nothing is opened for that.
    ok(node, "drop role bob");
    let refused = run(node, BOOTSTRAP, "drop role alice").unwrap_err();
    assert_eq!(refused.kind, ErrorKind::DependentObjectsStillExist);
    assert_eq!(
        refused.detail.as_deref(),
        Some("1 object in database other")
    );
    assert_eq!(states(), ["closed"; 3]);
    // Her name changes where it is written, and nobody else is opened.
    ok(node, "alter role alice rename to anna");
    assert_eq!(states(), ["closed", "open", "closed"]);
    let database = node.database("other").unwrap();
    assert_eq!(table(&database).owner, "anna");
    drop(database);
    let refused = run(node, BOOTSTRAP, "drop role anna").unwrap_err();
    assert_eq!(
        refused.detail.as_deref(),
        Some("owner of table t in database other")
    );
    ok(node, "alter database other close");
    let refused = run(node, BOOTSTRAP, "drop role anna").unwrap_err();
    assert_eq!(
        refused.detail.as_deref(),
        Some("1 object in database other")
    );
    // After a change of what is inside it is read anew.
    ok(node, "drop database other");
    ok(node, "drop role anna");
    // One that cannot be read is not passed over.
    ok(node, "create role carol");
    let log = scene.folder().join("log");
    let aside = scene.folder().join("aside");
    fs::rename(&log, &aside).unwrap();
    drop(scene.node);
    let scene = Scene::on(scene.data);
    for sql in ["drop role carol", "alter role carol rename to c"] {
        let refused = run(&scene.node, BOOTSTRAP, sql).unwrap_err();
        assert_eq!(
            refused.kind,
            ErrorKind::ObjectNotInPrerequisiteState,
            "{sql}"
        );
        assert!(
            refused.message.contains("\"shop\" could not be opened"),
            "{refused:?}"
        );
    }
    fs::rename(&aside, &log).unwrap();
    ok(&scene.node, "drop role carol");
}

/// Sessions that end when they are told to.
#[derive(Default)]
struct Sessions(Mutex<Vec<Connection>>, AtomicUsize);

impl Holders for Sessions {
    fn end_sessions(&self, _database: &Database) {
        self.0.lock().clear();
    }

    fn have_leave(&self, _database: &Database) {}

    fn let_go(&self, _database: &Database) {
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

fn close(scene: &Scene, force: bool, holders: &dyn Holders) -> Result<Closing, SqlError> {
    let actor = actor(&scene.node, BOOTSTRAP);
    let current = scene.node.database(BOOTSTRAP).unwrap();
    let cancel = CancelToken::new();
    scene
        .node
        .close_database(&actor, &current, "shop", force, holders, &cancel)
}

#[test]
fn closing_gives_everything_back_and_the_next_who_connects_opens() {
    let scene = Scene::lazy();
    let (before, files) = (scene.governor.used(), open_files(&scene.folder()));
    assert_eq!((before, files), (0, 0));
    for round in 0..3 {
        let connection = scene.connect().unwrap();
        let database = connection.database();
        for id in 0..100 {
            insert(database, round * 100 + id).unwrap();
        }
        assert!(scene.governor.used() > 0 && open_files(&scene.folder()) > 0);
        let weak = Arc::downgrade(database);
        // What is not committed is rolled back with its session.
        let txn = database.store.txns().begin();
        let entry = table(database);
        entry.table.insert_row(&txn, &[ValueRef::I32(-1)]).unwrap();
        drop((txn, entry));
        let sessions = Sessions(Mutex::new(vec![connection]), AtomicUsize::new(0));
        assert_eq!(close(&scene, true, &sessions), Ok(Closing::Done));
        assert_eq!(sessions.1.into_inner(), 1);
        assert_eq!(scene.state(), DatabaseState::Closed);
        assert!(weak.upgrade().is_none());
        assert_eq!(
            (scene.governor.used(), open_files(&scene.folder())),
            (before, files)
        );
        assert_eq!(close(&scene, true, &NoHolders), Ok(Closing::WasClosed));
    }
    let connection = scene.connect().unwrap();
    assert!((0..300).all(|id| has(connection.database(), id)));
    assert!(!has(connection.database(), -1));
    assert_eq!(scene.gate.opened(), 4);
}

#[test]
fn who_may_not_or_cannot_close_changes_nothing() {
    let scene = Scene::lazy();
    let node = &scene.node;
    ok(node, "create role alice");
    ok(node, "alter database shop owner to alice");
    assert_eq!(
        error(node, "alice", "alter database shop close with (force)").0,
        ErrorKind::InsufficientPrivilege
    );
    assert_eq!(
        error(node, BOOTSTRAP, "alter database aerostat close").0,
        ErrorKind::ObjectInUse
    );
    assert_eq!(
        error(node, BOOTSTRAP, "alter database nowhere close").0,
        ErrorKind::InvalidCatalogName
    );
    // A session stays: it is served as before, and others come in.
    let connection = scene.connect().unwrap();
    let refused = close(&scene, false, &NoHolders).unwrap_err();
    assert_eq!(
        (refused.kind, refused.detail.as_deref()),
        (
            ErrorKind::ObjectInUse,
            Some("There is 1 other session using the database.")
        )
    );
    assert!(!connection.database().store.is_leaving());
    insert(connection.database(), 1).unwrap();
    let other = scene.connect().unwrap();
    assert!(Arc::ptr_eq(connection.database(), other.database()));
    // While it leaves nobody is let in, and the statement can be cancelled.
    let cancel = CancelToken::new();
    thread::scope(|scope| {
        let closing = scope.spawn(|| {
            let (actor, current) = (actor(node, BOOTSTRAP), node.database(BOOTSTRAP).unwrap());
            node.close_database(&actor, &current, "shop", true, &NoHolders, &cancel)
        });
        until(|| scene.state() == DatabaseState::Closing);
        let refused = scene.connect().unwrap_err();
        assert_eq!(refused.kind, ErrorKind::CannotConnectNow);
        assert!(refused.hint.is_some());
        // Those who are in go on.
        insert(connection.database(), 2).unwrap();
        ok(node, "alter database shop set (memory_max = '9MB')");
        assert_eq!(
            connection.database().store.budget().max(),
            Some(ByteSize(9 << 20))
        );
        assert_eq!(
            error(node, BOOTSTRAP, "alter database shop close").0,
            ErrorKind::ObjectInUse
        );
        cancel.cancel();
        let refused = closing.join().unwrap().unwrap_err();
        assert_eq!(refused.kind, ErrorKind::QueryCanceled);
    });
    assert_eq!(scene.state(), DatabaseState::Open);
    drop(scene.connect().unwrap());
    drop((connection, other));
    assert_eq!(close(&scene, false, &NoHolders), Ok(Closing::Done));
    let connection = scene.connect().unwrap();
    assert!([1, 2].iter().all(|id| has(connection.database(), *id)));
}

#[test]
fn a_database_is_closed_while_it_is_frozen_and_checkpoints_are_made() {
    let scene = Scene::lazy();
    let stop = AtomicBool::new(false);
    let rounds = thread::scope(|scope| {
        // As upkeep does: it keeps nothing while it rests.
        let keeps_up = |work: fn(&Database)| {
            while !stop.load(Ordering::SeqCst) {
                if let Some(database) = scene.node.database("shop") {
                    work(&database);
                }
                thread::yield_now();
            }
        };
        scope.spawn(move || keeps_up(|database| drop(database.store.checkpoint())));
        scope.spawn(move || keeps_up(|database| drop(table(database).table.freeze())));
        scope.spawn(move || keeps_up(|database| drop(table(database).table.vacuum())));
        let mut id = 0;
        for _ in 0..10 {
            let connection = scene.connect().unwrap();
            for _ in 0..50 {
                insert(connection.database(), id).unwrap();
                id += 1;
            }
            drop(connection);
            assert_eq!(close(&scene, false, &NoHolders), Ok(Closing::Done));
            assert_eq!((scene.governor.used(), open_files(&scene.folder())), (0, 0));
        }
        stop.store(true, Ordering::SeqCst);
        id
    });
    let connection = scene.connect().unwrap();
    assert!((0..rounds).all(|id| has(connection.database(), id)));
}

#[test]
fn writers_lose_nothing_while_a_database_is_closed_and_opened_again_and_again() {
    const WRITERS: i32 = 4;
    const CLOSED: usize = 25;
    let scene = Scene::lazy();
    let stop = AtomicBool::new(false);
    let acknowledged = thread::scope(|scope| {
        let (scene, stop) = (&scene, &stop);
        let write = |own: i32| {
            move || {
                let mut written = Vec::new();
                while !stop.load(Ordering::SeqCst) {
                    let connection = match scene.connect() {
                        Ok(connection) => connection,
                        Err(error) => {
                            assert_eq!(error.kind, ErrorKind::CannotConnectNow, "{error:?}");
                            thread::yield_now();
                            continue;
                        }
                    };
                    for _ in 0..3 {
                        let id = own + WRITERS * written.len() as i32;
                        insert(connection.database(), id).unwrap();
                        written.push(id);
                    }
                }
                written
            }
        };
        let writers: Vec<_> = (0..WRITERS).map(|own| scope.spawn(write(own))).collect();
        for _ in 0..CLOSED {
            let (opened, started) = (scene.gate.opened(), Instant::now());
            while scene.gate.opened() == opened && started.elapsed() < PATIENCE {
                match close(scene, false, &NoHolders) {
                    Ok(_) => {}
                    Err(error) => assert_eq!(error.kind, ErrorKind::ObjectInUse, "{error:?}"),
                }
            }
        }
        stop.store(true, Ordering::SeqCst);
        let joined = writers.into_iter().map(|one| one.join().unwrap());
        joined.collect::<Vec<_>>()
    });
    while scene.state() != DatabaseState::Closed {
        close(&scene, false, &NoHolders).unwrap();
    }
    assert_eq!((scene.governor.used(), open_files(&scene.folder())), (0, 0));
    assert!(scene.gate.opened() >= CLOSED);
    let connection = scene.connect().unwrap();
    for id in acknowledged.iter().flatten() {
        assert!(has(connection.database(), *id), "{id} is lost");
    }
}

/// Whatever still has a table of a database keeps it from being opened, and from nothing else.
#[test]
fn what_still_has_rows_keeps_the_folder_and_the_node_goes_on() {
    let scene = Scene::lazy();
    let connection = scene.connect().unwrap();
    insert(connection.database(), 1).unwrap();
    let straggler = Arc::clone(&table(connection.database()).table);
    drop(connection);
    thread::scope(|scope| {
        let closing = scope.spawn(|| close(&scene, false, &NoHolders));
        until(|| scene.node.database("shop").is_none() && scene.node.open_databases().len() == 1);
        assert_eq!(scene.state(), DatabaseState::Closing);
        assert_eq!(
            scene.connect().unwrap_err().kind,
            ErrorKind::CannotConnectNow
        );
        ok(&scene.node, "create role elsewhere");
        assert!(!closing.is_finished());
        drop(straggler);
        assert_eq!(closing.join().unwrap(), Ok(Closing::Done));
    });
    assert!(has(scene.connect().unwrap().database(), 1));
}
