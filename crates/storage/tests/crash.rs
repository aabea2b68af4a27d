//! Kills a process that commits, again and again, and looks at what is left.
//!
//! The test starts itself as a child that runs random transactions over a data folder
//! and prints a line after each acknowledged commit. The parent kills it at a random
//! moment, or has it die at a fault point, opens the folder and holds it against the
//! lines: every acknowledged commit is there, and no transaction by half.
//!
//! `AEROSTAT_CRASH_ROUNDS` sets how many rounds; a failure names the round's seed, which
//! `AEROSTAT_CRASH_SEED` takes.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test with a main function of its own"
)]

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
    thread,
    time::Duration,
};

use aerostat_memory::Governor;
use aerostat_storage::{OpenOptions, Recovered, RowId, ScanSpec, Table, TableView, TenantStore};
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

/// Threads of the child, each with keys of its own.
const THREADS: i64 = 3;

/// The thread that also defines: each of its commits makes a new table of its rows, and a
/// catalogue that names it.
const DEFINING: i64 = 0;

/// Each transaction writes so many rows of one number to both tables.
const ROWS: i64 = 5;

const PLACES: [&str; 17] = [
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
    "never",
];

fn main() {
    if let Ok(folder) = std::env::var(FOLDER) {
        let seed = std::env::var(SEED).unwrap().parse().unwrap();
        return child(Path::new(&folder), seed);
    }
    let rounds: u64 =
        std::env::var("AEROSTAT_CRASH_ROUNDS").map_or(200, |rounds| rounds.parse().unwrap());
    let first: u64 =
        std::env::var(SEED).map_or_else(|_| rand::random(), |seed| seed.parse().unwrap());
    let mut commits = 0;
    // A folder lives through ten crashes.
    for ten in 0..rounds.div_ceil(10) {
        let folder = memory_folder();
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
    println!("{rounds} crashes, {commits} commits acknowledged, none lost");
}

/// In memory where there is such a place: a killed process leaves its files either way, and
/// without a disk there are many more commits to be killed in.
fn memory_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// The newest number that each thread is known to have committed.
#[derive(Default)]
struct Known(BTreeMap<i64, i64>);

fn crash(folder: &Path, seed: u64, known: &mut Known) -> u64 {
    let mut random = StdRng::seed_from_u64(seed);
    let place = PLACES[random.random_range(0..PLACES.len())];
    let passage = if place.starts_with("log.") && place != "log.after_remove" {
        random.random_range(1..60)
    } else {
        random.random_range(1..4)
    };
    let mut child = Command::new(std::env::current_exe().unwrap())
        .env(FOLDER, folder)
        .env(SEED, seed.to_string())
        .env("AEROSTAT_FAULT", format!("{place}:{passage}"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let acknowledged = thread::scope(|scope| {
        let reader = scope.spawn(move || lines.map_while(Result::ok).collect::<Vec<_>>());
        wait_or_kill(
            &mut child,
            Duration::from_millis(random.random_range(10..120)),
        );
        reader.join().unwrap()
    });
    for line in &acknowledged {
        let (thread, number) = line.split_once(' ').unwrap();
        known
            .0
            .insert(thread.parse().unwrap(), number.parse().unwrap());
    }
    let (store, recovered) = open(folder);
    check(
        &store,
        &recovered,
        known,
        &format!("{SEED}={seed} {place}:{passage}"),
    );
    acknowledged.len() as u64
}

/// SIGKILL, unless it is dead already.
fn wait_or_kill(child: &mut Child, after: Duration) {
    let step = Duration::from_millis(2);
    for _ in 0..after.as_millis() / step.as_millis() {
        if child.try_wait().unwrap().is_some() {
            return;
        }
        thread::sleep(step);
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

fn open(folder: &Path) -> (Arc<TenantStore>, Recovered) {
    let budget = Governor::new("1GB".parse().unwrap()).budget("crash", None);
    TenantStore::open(TenantId(1), budget, folder, &OpenOptions::default())
        .unwrap_or_else(|error| panic!("{error}: {error:?}"))
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
    let scan = table.view(store.txns().snapshot()).scan(ScanSpec {
        projection: vec![0, 1, 2],
        ..ScanSpec::default()
    });
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
    // Now and then so much that its redo goes out in chunks before the commit.
    let times = if number % 29 == 7 {
        90_000
    } else {
        number as usize % 40
    };
    (number % 5 != 0).then(|| format!("{number};").repeat(times))
}

fn batch(table: &Table, thread: i64, number: i64) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from_iter_values(
            (0..ROWS).map(|at| thread * ROWS + at),
        )),
        Arc::new(Int64Array::from_iter_values((0..ROWS).map(|_| number))),
        Arc::new(StringViewArray::from_iter((0..ROWS).map(|_| text(number)))),
    ];
    RecordBatch::try_new(Arc::clone(table.arrow_schema()), columns).unwrap()
}

fn table(store: &Arc<TenantStore>, recovered: &Recovered, id: TableId) -> Arc<Table> {
    if let Some(table) = recovered.tables.get(&id) {
        return Arc::clone(table);
    }
    let column = |name: &str, ty, nullable| Column {
        name: name.to_owned(),
        ty,
        nullable,
        default: None,
    };
    let schema = TableSchema {
        name: "t".to_owned(),
        columns: vec![
            column("k", SqlType::BigInt, false),
            column("n", SqlType::BigInt, false),
            column("s", SqlType::Text, true),
        ],
        primary_key: if id == KEYED { vec![0] } else { Vec::new() },
        primary_key_name: "t_pkey".to_owned(),
        checks: Vec::new(),
    };
    store
        .create_table(id, Arc::new(schema), &Layout::Column)
        .unwrap()
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
        let keep = [KEYED, BAG].into_iter().chain(named).collect();
        store.retain_tables(&keep).unwrap();
        Definitions {
            now,
            last: recovered.last_table.map_or(BAG.0, |id| id.0.max(BAG.0)),
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

/// Replaces rows in both tables until it is killed.
fn child(folder: &Path, seed: u64) {
    let (store, recovered) = open(folder);
    let definitions = Mutex::new(Definitions::of(&store, &recovered));
    let tables = [KEYED, BAG].map(|id| table(&store, &recovered, id));
    drop(recovered);
    let rounds = AtomicI64::new(0);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, tables, rounds) = (&store, &tables, &rounds);
            let definitions = &definitions;
            scope.spawn(move || {
                let mut random = StdRng::seed_from_u64(seed ^ thread as u64);
                loop {
                    replace(store, tables, definitions, thread, &mut random);
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut random = StdRng::seed_from_u64(seed);
        loop {
            for table in &tables {
                if random.random_bool(0.1) {
                    table.freeze().unwrap();
                }
            }
            store.checkpoint().unwrap();
            thread::sleep(Duration::from_millis(random.random_range(0..40)));
        }
    });
}

/// A transaction of the thread's next rows, in one statement or in a block of several.
fn replace(
    store: &Arc<TenantStore>,
    tables: &[Arc<Table>; 2],
    definitions: &Mutex<Definitions>,
    thread: i64,
    random: &mut StdRng,
) {
    let number = if thread != DEFINING && random.random_bool(0.5) {
        let txn = store.txns().begin();
        let [one, two] = tables.each_ref().map(|table| found(table, &txn, thread));
        put(&tables[0], &txn, &one, thread, one.number + 1);
        put(&tables[1], &txn, &two, thread, one.number + 1);
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
            let rows = found(table, &statement, thread);
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
    let mut out = std::io::stdout().lock();
    writeln!(out, "{thread} {}", number + 1)
        .and_then(|()| out.flush())
        .unwrap();
}

/// Statements of a block that change what it has, and do not stay.
fn undone(block: &Block, tables: &[Arc<Table>; 2], thread: i64, random: &mut StdRng) {
    let savepoint = block.savepoint();
    for _ in 0..random.random_range(0..3) {
        let table = &tables[random.random_range(0..2)];
        let statement = block.statement();
        let rows = found(table, &statement, thread);
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

fn found(table: &Arc<Table>, txn: &Transaction, thread: i64) -> Found {
    let view = table.view(txn.snapshot().clone());
    let scan = view.scan(ScanSpec {
        projection: vec![0, 1],
        row_ids: true,
        ..ScanSpec::default()
    });
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
        for row in (0..batch.num_rows()).filter(|&row| keys[row] / ROWS == thread) {
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
