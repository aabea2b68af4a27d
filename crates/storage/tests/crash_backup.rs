//! Processes that die in the middle of a backup, an archiving or a restore.
//!
//! The test starts itself as a child that has a fault point to die at. Whatever it was
//! doing, a backup or a restored tenant is there as a whole or not at all, and doing it
//! again succeeds.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a test with a main function of its own"
)]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
};

use aerostat_memory::Governor;
use aerostat_storage::{
    OpenOptions, Recovered, ScanSpec, Table, TenantStore,
    backup::{BackupSource, FolderSink, FolderSource, Restore, restore, verify},
};
use aerostat_types::{Column, Layout, SqlType, TableId, TableSchema, TenantId};
use arrow_array::{Array, ArrayRef, Int64Array, RecordBatch};

const FOLDER: &str = "AEROSTAT_CRASH_FOLDER";

const SOURCE: TenantId = TenantId(1);
const COPY: TenantId = TenantId(2);
const TABLE: TableId = TableId(7);

/// Each is passed at least once.
const PLACES: [&str; 9] = [
    "backup.file",
    "backup.before_rename",
    "backup.before_document",
    "backup.before_end",
    "backup.after_end",
    "log.archived",
    "restore.image",
    "checkpoint.before_rename",
    "restore.log",
];

fn main() {
    if let Ok(folder) = std::env::var(FOLDER) {
        return all(Path::new(&folder));
    }
    let mut died = 0;
    for place in PLACES {
        // Until it is not passed that often.
        let crashes = (1..).take_while(|passage| crash(place, *passage)).count();
        assert!(crashes > 0, "nobody passes {place}");
        died += crashes;
    }
    println!("{died} crashes, nothing half there");
}

/// Whether the child died. What it left is looked at, and all of it done again.
fn crash(place: &str, passage: u32) -> bool {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap());
    let context = format!("{place}:{passage}");
    let child = Command::new(std::env::current_exe().unwrap())
        .env(FOLDER, folder.path())
        .env("AEROSTAT_FAULT", &context)
        .stderr(Stdio::null())
        .status()
        .unwrap();
    let paths = Paths::of(folder.path());
    if paths.backup.exists() {
        verify(&FolderSource::new(&paths.backup)).expect(&context);
    }
    if paths.copy.exists() {
        assert_eq!(rows(COPY, &paths.copy), ROWS_IN_ALL, "{context}");
        fs::remove_dir_all(&paths.copy).unwrap();
    }
    assert!(rows(SOURCE, &paths.source) >= 10, "{context}");
    fs::remove_dir_all(&paths.source).unwrap();
    if paths.backup.exists() {
        fs::remove_dir_all(&paths.backup).unwrap();
    }
    all(folder.path());
    !child.success()
}

struct Paths {
    source: PathBuf,
    backup: PathBuf,
    archive: PathBuf,
    copy: PathBuf,
}

impl Paths {
    fn of(folder: &Path) -> Paths {
        let path = |name| folder.join(name);
        Paths {
            source: path("source"),
            backup: path("backup"),
            archive: path("archive"),
            copy: path("copy"),
        }
    }
}

const ROWS_IN_ALL: i64 = 30;

/// A tenant with rows, a backup, rows after it that are archived, and a copy of it all.
fn all(folder: &Path) {
    let paths = Paths::of(folder);
    let (store, _) = open(SOURCE, &paths.source);
    let archive = FolderSink::for_archive(&paths.archive).unwrap();
    store.archive_log_to(Some(Arc::new(archive)));
    // Kept: a table that nobody has is dropped by the next checkpoint.
    let mut tables = vec![insert(&store, 0..10)];
    let sink = FolderSink::for_backup(&paths.backup, None).unwrap();
    store.backup("source", &sink).unwrap();
    drop(sink);
    tables.push(insert(&store, 10..20));
    store.checkpoint().unwrap();
    tables.push(insert(&store, 20..ROWS_IN_ALL));
    store.archive_log().unwrap();
    drop(tables);
    let archive = FolderSource::new(&paths.archive);
    let logs: [&dyn BackupSource; 1] = [&archive];
    let what = Restore {
        backup: &FolderSource::new(&paths.backup),
        logs: &logs,
        until: None,
    };
    restore(&what, COPY, &paths.copy).unwrap();
    assert_eq!(rows(COPY, &paths.copy), ROWS_IN_ALL);
}

fn open(tenant: TenantId, folder: &Path) -> (Arc<TenantStore>, Recovered) {
    let budget = Governor::new("1GB".parse().unwrap()).budget("crash", None);
    TenantStore::open(tenant, budget, folder, &OpenOptions::default())
        .unwrap_or_else(|error| panic!("{error}: {error:?}"))
}

/// A table of its own for each call, so that images and log files are several.
fn insert(store: &Arc<TenantStore>, numbers: std::ops::Range<i64>) -> Arc<Table> {
    let schema = TableSchema {
        name: "t".to_owned(),
        columns: vec![Column {
            name: "k".to_owned(),
            ty: SqlType::BigInt,
            nullable: false,
            default: None,
        }],
        primary_key: vec![0],
        primary_key_name: "t_pkey".to_owned(),
        checks: Vec::new(),
    };
    let id = TableId(TABLE.0 + numbers.start as u32);
    let table = store
        .create_table(id, Arc::new(schema), &Layout::Column)
        .unwrap();
    let column: ArrayRef = Arc::new(Int64Array::from_iter_values(numbers));
    let rows = RecordBatch::try_new(Arc::clone(table.arrow_schema()), vec![column]).unwrap();
    let txn = store.txns().begin();
    table.insert(&txn, &rows).unwrap();
    txn.commit().unwrap();
    table
}

/// How many rows the tenant in a folder has.
fn rows(tenant: TenantId, folder: &Path) -> i64 {
    let (store, recovered) = open(tenant, folder);
    let mut found = 0;
    for table in recovered.tables.values() {
        let scan = table
            .view(store.txns().snapshot())
            .scan(ScanSpec {
                projection: vec![0],
                ..ScanSpec::default()
            })
            .unwrap();
        let mut reader = scan.reader();
        while let Some(batch) = reader.next_batch().unwrap() {
            found += batch.column(0).len() as i64;
        }
    }
    found
}
