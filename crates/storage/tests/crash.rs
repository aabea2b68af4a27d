//! Ends a process that commits, again and again, and looks at what is left.
//!
//! The test starts itself as a child that runs random transactions over a data folder
//! and prints a line after each acknowledged commit: small ones, blocks, definitions, large
//! ones that stay open for a while, beside checkpoints, backups and freezing, on a disk that
//! is slow in some rounds. The parent kills it at a random moment, has it die at a fault
//! point, or asks it to stop with whatever is open; it opens the folder and holds it against
//! the lines: every acknowledged commit is there, and no transaction by half. A backup with
//! the archived log after it is the same tenant again.
//!
//! `AEROSTAT_CRASH_ROUNDS` sets how many rounds; a failure names the round's seed, which
//! `AEROSTAT_CRASH_SEED` takes.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test with a main function of its own"
)]

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader, Read, Write},
    ops::Range,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use aerostat_memory::Governor;
use aerostat_storage::{
    Durability, OpenOptions, Recovered, RowId, ScanSpec, Table, TableView, TenantStore,
    backup::{BackupSource, FolderSink, FolderSource, Restore, restore, verify},
};
use aerostat_txn::{Block, Isolation, Transaction};
use aerostat_types::{Column, Layout, SqlType, TableId, TableSchema, TenantId};
use arrow_array::{
    Array, ArrayRef, Int64Array, RecordBatch, StringViewArray,
    cast::AsArray,
    types::{Int64Type, UInt64Type},
};
use rand::{Rng, SeedableRng, rngs::StdRng};

const FOLDER: &str = "AEROSTAT_CRASH_FOLDER";
const SEED: &str = "AEROSTAT_CRASH_SEED";

const KEYED: TableId = TableId(1);
const BAG: TableId = TableId(2);
/// The rows of one large transaction.
const BULK: TableId = TableId(3);
/// Of no session after the one that made it.
const SCRATCH: TableId = TableId(1 << 30);

const TENANT: TenantId = TenantId(1);
const RESTORED: TenantId = TenantId(2);

/// Threads of the child, each with keys of its own.
const THREADS: i64 = 3;

/// The thread that also defines: each of its commits makes a new table of its rows, and a
/// catalogue that names it.
const DEFINING: i64 = 0;

/// Each transaction writes so many rows of one number to both tables.
const ROWS: i64 = 5;

/// A large transaction's rows, twice as many bytes as it keeps to itself before its commit.
const BULK_ROWS: i64 = 16;
const BULK_ROW_BYTES: usize = 64 << 10;

const PLACES: [&str; 22] = [
    "log.before_write",
    "log.partial_write",
    "log.before_sync",
    "log.after_sync",
    "log.before_publish",
    "log.rotate",
    "log.new_file",
    "log.after_remove",
    "definitions.before_commit",
    "definitions.after_commit",
    "checkpoint.image",
    "checkpoint.before_manifest",
    "checkpoint.manifest",
    "checkpoint.before_rename",
    "checkpoint.after_rename",
    "checkpoint.after_remove",
    "log.archived",
    "backup.file",
    "backup.before_rename",
    "backup.before_end",
    "backup.after_end",
    "never",
];

fn main() {
    if let Ok(folder) = std::env::var(FOLDER) {
        let seed = std::env::var(SEED).unwrap().parse().unwrap();
        return child(Path::new(&folder), seed);
    }
    let rounds: u64 =
        std::env::var("AEROSTAT_CRASH_ROUNDS").map_or(300, |rounds| rounds.parse().unwrap());
    let started = Instant::now();
    let first: u64 =
        std::env::var(SEED).map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    let mut commits = 0;
    // A folder lives through ten crashes.
    for ten in 0..rounds.div_ceil(10) {
        let folder = memory_folder();
        fs::create_dir(folder.path().join("backups")).unwrap();
        let mut known = Known::default();
        for round in ten * 10..rounds.min((ten + 1) * 10) {
            let seed = first.wrapping_add(round);
            println!("round {round}, {SEED}={seed}");
            commits += crash(folder.path(), seed, &mut known);
        }
    }
    // Else nothing was there to lose; on a slow machine most rounds end before a commit.
    assert!(
        commits > rounds / 10,
        "{commits} commits in {rounds} rounds"
    );
    println!(
        "{rounds} ends, {commits} commits acknowledged, none lost, in {} s",
        started.elapsed().as_secs()
    );
}

/// In memory where there is such a place: a killed process leaves its files either way, and
/// without a disk there are many more commits to be killed in.
fn memory_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// The newest number that each thread is known to have committed.
#[derive(Default)]
struct Known(BTreeMap<i64, i64>);

/// How a round ends, if not at its fault point before.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Kill,
    Stop,
}

fn crash(root: &Path, seed: u64, known: &mut Known) -> u64 {
    let mut random = StdRng::seed_from_u64(seed);
    let place = PLACES[random.random_range(0..PLACES.len())];
    let is_frequent =
        place.starts_with("log.") && !["log.after_remove", "log.archived"].contains(&place);
    let passage = random.random_range(1..if is_frequent { 60 } else { 4 });
    let end = [End::Kill, End::Stop][usize::from(random.random_bool(0.3))];
    let slow_micros = [0, 0, 1_000, 30_000][random.random_range(0..4)];
    let context = format!("{SEED}={seed} {place}:{passage} {end:?} slow {slow_micros}");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .env(FOLDER, root)
        .env(SEED, seed.to_string())
        .env("AEROSTAT_FAULT", format!("{place}:{passage}"))
        .env("AEROSTAT_SLOW", slow_micros.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let acknowledged = thread::scope(|scope| {
        let reader = scope.spawn(move || lines.map_while(Result::ok).collect::<Vec<_>>());
        let after = Duration::from_millis(random.random_range(10..200));
        end_it(&mut child, after, end, &context);
        reader.join().unwrap()
    });
    for line in &acknowledged {
        let (thread, number) = line.split_once(' ').unwrap();
        known
            .0
            .insert(thread.parse().unwrap(), number.parse().unwrap());
    }
    let (store, recovered) = open(TENANT, &root.join("tenant"));
    check(&store, &recovered, known, &context);
    let contents = contents(&store, &recovered);
    drop((store, recovered));
    check_backups(root, &contents, &context);
    acknowledged.len() as u64
}

/// Unless it is dead already.
fn end_it(child: &mut Child, after: Duration, end: End, context: &str) {
    let stdin = child.stdin.take().unwrap();
    if has_ended(child, after) {
        return;
    }
    if end == End::Stop {
        drop(stdin);
        let ended = has_ended(child, Duration::from_secs(60));
        assert!(ended, "{context}: it does not stop");
        return;
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Whether it ends by then.
fn has_ended(child: &mut Child, within: Duration) -> bool {
    let until = Instant::now() + within;
    loop {
        if child.try_wait().unwrap().is_some() {
            return true;
        }
        if Instant::now() > until {
            return false;
        }
        thread::sleep(Duration::from_millis(2));
    }
}

fn open(tenant: TenantId, folder: &Path) -> (Arc<TenantStore>, Recovered) {
    opened(tenant, folder, &OpenOptions::default())
}

fn opened(tenant: TenantId, folder: &Path, options: &OpenOptions) -> (Arc<TenantStore>, Recovered) {
    let budget = Governor::new("1GB".parse().unwrap()).budget("crash", None);
    TenantStore::open(tenant, budget, folder, options)
        .unwrap_or_else(|error| panic!("{error}: {error:?}"))
}

/// What the tables have that are always there.
fn contents(store: &Arc<TenantStore>, recovered: &Recovered) -> Vec<Vec<(i64, i64)>> {
    assert!(!recovered.tables.contains_key(&SCRATCH));
    [KEYED, BAG, BULK]
        .iter()
        .map(|id| {
            recovered
                .tables
                .get(id)
                .map_or(Vec::new(), |table| rows(store, table))
        })
        .collect()
}

/// Complete backups verify, and lead with the log after them to what the tenant has. One
/// stays for the rounds to come.
fn check_backups(root: &Path, contents_now: &[Vec<(i64, i64)>], context: &str) {
    let is_whole = |path: &PathBuf| path.extension().is_none();
    let listed = fs::read_dir(root.join("backups")).unwrap();
    let mut backups: Vec<PathBuf> = listed.map(|entry| entry.unwrap().path()).collect();
    backups.sort();
    backups.retain(is_whole);
    let logs = ["archive", "tenant/log"].map(|name| FolderSource::new(&root.join(name)));
    for (at, backup) in backups.iter().enumerate() {
        let source = FolderSource::new(backup);
        verify(&source).unwrap_or_else(|error| panic!("{context}: {error:?}"));
        let copy = root.join("restored");
        let what = Restore {
            backup: &source,
            logs: &logs.each_ref().map(|log| log as &dyn BackupSource),
            until: None,
        };
        restore(&what, RESTORED, &copy).unwrap_or_else(|error| panic!("{context}: {error:?}"));
        let (store, recovered) = open(RESTORED, &copy);
        assert_eq!(
            contents(&store, &recovered),
            contents_now,
            "{context}: restored"
        );
        drop((store, recovered));
        fs::remove_dir_all(copy).unwrap();
        if at > 0 {
            fs::remove_dir_all(backup).unwrap();
        }
    }
}

/// Of each thread the tables have the rows of one transaction, whole, no older than the
/// newest that was acknowledged.
fn check(store: &Arc<TenantStore>, recovered: &Recovered, known: &mut Known, context: &str) {
    let (Some(keyed), Some(bag)) = (recovered.tables.get(&KEYED), recovered.tables.get(&BAG))
    else {
        assert!(known.0.is_empty(), "{context}: the tables are gone");
        return;
    };
    let (keyed, bag) = (rows(store, keyed), rows(store, bag));
    assert_eq!(keyed, bag, "{context}: half a transaction");
    let defined = recovered
        .catalog
        .as_deref()
        .map_or_else(Vec::new, |document| {
            let named = recovered.tables.get(&named_in(document));
            rows(
                store,
                named.unwrap_or_else(|| panic!("{context}: the catalogue's table is gone")),
            )
        });
    let of_thread = |(key, _): &&(i64, i64)| key / ROWS == DEFINING;
    let also: Vec<_> = keyed.iter().filter(of_thread).copied().collect();
    assert_eq!(defined, also, "{context}: a catalogue without its rows");
    let mut found: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    let bulk = recovered.tables.get(&BULK);
    let bulk = bulk.map_or(Vec::new(), |table| rows(store, table));
    if !bulk.is_empty() {
        let number = bulk[0].1;
        let whole: Vec<_> = (0..BULK_ROWS).map(|key| (key, number)).collect();
        assert_eq!(bulk, whole, "{context}: half a large transaction");
        found.insert(THREADS, vec![-number; ROWS as usize]);
    }
    for (key, number) in keyed {
        found.entry(key / ROWS).or_default().push(number);
    }
    for (thread, numbers) in &found {
        assert_eq!(numbers.len() as i64, ROWS, "{context}: {found:?}");
        assert!(
            numbers.iter().all(|number| number == &numbers[0]),
            "{context}: {found:?}"
        );
        let acknowledged = known.0.insert(*thread, numbers[0]).unwrap_or(0);
        assert!(
            numbers[0] >= acknowledged,
            "{context}: thread {thread} lost {acknowledged}, has {numbers:?}"
        );
        assert!(
            numbers[0] <= acknowledged + 1,
            "{context}: more than was asked for"
        );
    }
    assert!(
        known.0.keys().all(|thread| found.contains_key(thread)),
        "{context}: {found:?}"
    );
}

/// Keys and numbers, sorted; the texts must be those of the numbers.
fn rows(store: &Arc<TenantStore>, table: &Arc<Table>) -> Vec<(i64, i64)> {
    let scan = table
        .view(store.txns().snapshot())
        .scan(ScanSpec {
            projection: vec![0, 1, 2],
            ..ScanSpec::default()
        })
        .unwrap();
    let mut found = Vec::new();
    let mut reader = scan.reader();
    while let Some(batch) = reader.next_batch().unwrap() {
        let keys = batch.column(0).as_primitive::<Int64Type>();
        let numbers = batch.column(1).as_primitive::<Int64Type>();
        let texts = batch.column(2).as_string_view();
        for row in 0..batch.num_rows() {
            let number = numbers.value(row);
            assert_eq!(
                texts.is_valid(row).then(|| texts.value(row)),
                text(number).as_deref()
            );
            found.push((keys.value(row), number));
        }
    }
    found.sort_unstable();
    found
}

/// The table that a catalogue names.
fn named_in(document: &[u8]) -> TableId {
    TableId(u32::from_le_bytes(document.try_into().unwrap()))
}

fn text(number: i64) -> Option<String> {
    if number < 0 {
        return Some("b".repeat(BULK_ROW_BYTES));
    }
    // Now and then so much that its redo goes out in chunks before the commit.
    let times = if number % 29 == 7 {
        90_000
    } else {
        number as usize % 40
    };
    (number % 5 != 0).then(|| format!("{number};").repeat(times))
}

fn batch(table: &Table, thread: i64, number: i64) -> RecordBatch {
    batch_of(table, thread * ROWS..(thread + 1) * ROWS, number)
}

fn batch_of(table: &Table, keys: Range<i64>, number: i64) -> RecordBatch {
    let texts = keys.clone().map(|_| text(number));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(keys.clone())),
        Arc::new(Int64Array::from_iter_values(keys.map(|_| number))),
        Arc::new(StringViewArray::from_iter(texts)),
    ];
    RecordBatch::try_new(Arc::clone(table.arrow_schema()), columns).unwrap()
}

fn table(store: &Arc<TenantStore>, recovered: &Recovered, id: TableId) -> Arc<Table> {
    if let Some(table) = recovered.tables.get(&id) {
        return Arc::clone(table);
    }
    store
        .create_table(id, schema(id != BAG), &Layout::Column)
        .unwrap()
}

fn schema(keyed: bool) -> Arc<TableSchema> {
    let column = |name: &str, ty, nullable| Column {
        name: name.to_owned(),
        ty,
        nullable,
        default: None,
    };
    Arc::new(TableSchema {
        name: "t".to_owned(),
        columns: vec![
            column("k", SqlType::BigInt, false),
            column("n", SqlType::BigInt, false),
            column("s", SqlType::Text, true),
        ],
        primary_key: if keyed { vec![0] } else { Vec::new() },
        primary_key_name: "t_pkey".to_owned(),
        checks: Vec::new(),
    })
}

/// The table that the catalogue names, and numbers for those to come.
struct Definitions {
    now: Option<Arc<Table>>,
    last: u32,
}

impl Definitions {
    fn of(store: &Arc<TenantStore>, recovered: &Recovered) -> Self {
        let named = recovered.catalog.as_deref().map(named_in);
        let now = named.map(|id| Arc::clone(&recovered.tables[&id]));
        let keep = [KEYED, BAG, BULK].into_iter().chain(named).collect();
        store.retain_tables(&keep).unwrap();
        Definitions {
            now,
            last: recovered.last_table.map_or(BULK.0, |id| id.0.max(BULK.0)),
        }
    }

    /// Puts the rows of a block into a table of their own, and commits both, or neither.
    fn commit(
        &mut self,
        store: &Arc<TenantStore>,
        block: Block,
        number: i64,
        random: &mut StdRng,
    ) -> bool {
        self.last += 1;
        let id = TableId(self.last);
        let table = table(store, &Recovered::default(), id);
        let statement = block.statement();
        table
            .insert(&statement, &batch(&table, DEFINING, number))
            .unwrap();
        statement.commit().unwrap();
        if random.random_bool(0.1) {
            block.rollback();
            store.drop_table(id).unwrap();
            return false;
        }
        store
            .commit_block(block, id.0.to_le_bytes().to_vec())
            .unwrap();
        if let Some(before) = self.now.replace(table) {
            store.drop_table(before.id()).unwrap();
        }
        true
    }
}

/// What all threads of the child work on.
struct Work {
    root: PathBuf,
    store: Arc<TenantStore>,
    tables: [Arc<Table>; 2],
    bulk: Arc<Table>,
    scratch: Arc<Table>,
    definitions: Mutex<Definitions>,
    stop: AtomicBool,
}

impl Work {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }
}

/// Replaces rows in the tables until it is killed, or its input ends.
fn child(root: &Path, seed: u64) {
    let durability = [Durability::Fsync, Durability::None][(seed % 2) as usize];
    let mut options = OpenOptions::default();
    options.durability = durability;
    let (store, recovered) = opened(TENANT, &root.join("tenant"), &options);
    let archive = FolderSink::for_archive(&root.join("archive")).unwrap();
    store.archive_log_to(Some(Arc::new(archive)));
    let scratch = store.create_temporary_table(SCRATCH, schema(false), &Layout::Column, Vec::new());
    let definitions = Mutex::new(Definitions::of(&store, &recovered));
    let [keyed, bag, bulk] = [KEYED, BAG, BULK].map(|id| table(&store, &recovered, id));
    drop(recovered);
    let work = Work {
        root: root.to_owned(),
        tables: [keyed, bag],
        bulk,
        scratch: scratch.unwrap(),
        definitions,
        stop: AtomicBool::new(false),
        store,
    };
    thread::scope(|scope| {
        let work = &work;
        for thread in 0..THREADS {
            scope.spawn(move || {
                let mut random = StdRng::seed_from_u64(seed ^ thread as u64);
                while work.goes_on() {
                    replace(work, thread, &mut random);
                }
            });
        }
        scope.spawn(move || load(work, &mut StdRng::seed_from_u64(seed ^ 77)));
        scope.spawn(move || maintain(work, &mut StdRng::seed_from_u64(seed)));
        // The parent never writes anything.
        let _ = std::io::stdin().read(&mut [0]);
        work.stop.store(true, Ordering::Relaxed);
    });
}

/// Checkpoints, backups, freezing and vacuum.
fn maintain(work: &Work, random: &mut StdRng) {
    while work.goes_on() {
        for table in work.tables.iter().chain([&work.bulk]) {
            match random.random_range(0..20) {
                0 | 1 => {
                    table.freeze().unwrap();
                }
                2 => {
                    table.vacuum().unwrap();
                }
                _ => {}
            }
        }
        match random.random_range(0..10) {
            0 => {
                let target = work
                    .root
                    .join(format!("backups/{:020}", rand::random::<u64>()));
                let sink = FolderSink::for_backup(&target, None).unwrap();
                work.store.backup("crash", &sink).unwrap();
            }
            1 => work.store.archive_log().unwrap(),
            _ => {
                work.store.checkpoint().unwrap();
            }
        }
        // Also one right after the other.
        thread::sleep(Duration::from_millis(
            random.random_range(0..40_u64).saturating_sub(10),
        ));
    }
}

/// Large transactions, one after the other: each replaces the rows of the one before, a part
/// at a time, and stays open for a while. A stop finds it open.
fn load(work: &Work, random: &mut StdRng) {
    while work.goes_on() {
        let block = work.store.txns().begin_block(Isolation::ReadCommitted);
        let mut number = 0;
        for from in (0..BULK_ROWS).step_by(4) {
            let statement = block.statement();
            if from == 0 {
                let before = found(&work.bulk, &statement, 0..BULK_ROWS);
                number = before.number - 1;
                before.view.delete(&statement, &before.ids).unwrap();
            }
            let rows = batch_of(&work.bulk, from..from + 4, number);
            work.bulk.insert(&statement, &rows).unwrap();
            statement.commit().unwrap();
            thread::sleep(Duration::from_millis(random.random_range(0..15)));
            if !work.goes_on() {
                return;
            }
        }
        if random.random_bool(0.3) {
            block.rollback();
        } else {
            block.commit().unwrap();
            acknowledge(THREADS, -number);
        }
    }
}

fn acknowledge(thread: i64, number: i64) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{thread} {number}")
        .and_then(|()| out.flush())
        .unwrap();
}

/// A transaction of the thread's next rows, in one statement or in a block of several.
fn replace(work: &Work, thread: i64, random: &mut StdRng) {
    let Work {
        store,
        tables,
        scratch,
        definitions,
        ..
    } = work;
    let number = if thread != DEFINING && random.random_bool(0.5) {
        let txn = store.txns().begin();
        let [one, two] = tables.each_ref().map(|table| found_of(table, &txn, thread));
        put(&tables[0], &txn, &one, thread, one.number + 1);
        put(&tables[1], &txn, &two, thread, one.number + 1);
        if random.random_bool(0.2) {
            let rows = batch(scratch, thread, one.number + 1);
            scratch.insert(&txn, &rows).unwrap();
        }
        if random.random_bool(0.1) {
            return txn.rollback();
        }
        txn.commit().unwrap();
        one.number
    } else {
        let block = store.txns().begin_block(Isolation::ReadCommitted);
        let mut number = 0;
        for table in tables {
            let statement = block.statement();
            let rows = found_of(table, &statement, thread);
            number = rows.number;
            put(table, &statement, &rows, thread, number + 1);
            statement.commit().unwrap();
            undone(&block, tables, thread, random);
        }
        if thread == DEFINING {
            let mut definitions = definitions.lock().unwrap();
            if !definitions.commit(store, block, number + 1, random) {
                return;
            }
        } else if random.random_bool(0.1) {
            return block.rollback();
        } else {
            block.commit().unwrap();
        }
        number
    };
    acknowledge(thread, number + 1);
}

/// Statements of a block that change what it has, and do not stay.
fn undone(block: &Block, tables: &[Arc<Table>; 2], thread: i64, random: &mut StdRng) {
    let savepoint = block.savepoint();
    for _ in 0..random.random_range(0..3) {
        let table = &tables[random.random_range(0..2)];
        let statement = block.statement();
        let rows = found_of(table, &statement, thread);
        // At times so much redo that it goes out before it is undone.
        let number = if random.random_bool(0.1) { 36 } else { 8 };
        put(table, &statement, &rows, thread, number);
        if random.random_bool(0.5) {
            statement.commit().unwrap();
        }
    }
    block.rollback_to(savepoint);
}

/// A thread's rows in a table, and their number.
struct Found {
    view: TableView,
    ids: Vec<RowId>,
    number: i64,
}

fn found_of(table: &Arc<Table>, txn: &Transaction, thread: i64) -> Found {
    found(table, txn, thread * ROWS..(thread + 1) * ROWS)
}

/// The rows with these keys.
fn found(table: &Arc<Table>, txn: &Transaction, wanted: Range<i64>) -> Found {
    let view = table.view(txn.snapshot().clone());
    let scan = view
        .scan(ScanSpec {
            projection: vec![0, 1],
            row_ids: true,
            ..ScanSpec::default()
        })
        .unwrap();
    let (mut ids, mut number) = (Vec::new(), 0);
    let mut reader = scan.reader();
    while let Some(batch) = reader.next_batch().unwrap() {
        let column = |at: usize| {
            batch
                .column(at)
                .as_primitive::<Int64Type>()
                .values()
                .to_vec()
        };
        let (keys, numbers) = (column(0), column(1));
        let row_ids = batch.column(2).as_primitive::<UInt64Type>();
        for row in (0..batch.num_rows()).filter(|&row| wanted.contains(&keys[row])) {
            number = numbers[row];
            ids.push(RowId(row_ids.value(row)));
        }
    }
    Found { view, ids, number }
}

fn put(table: &Table, txn: &Transaction, before: &Found, thread: i64, number: i64) {
    before.view.delete(txn, &before.ids).unwrap();
    table.insert(txn, &batch(table, thread, number)).unwrap();
}
