//! The fuzz targets' bodies: what a fuzzer drives with bytes of its choice, and
//! `hostile` with seeded ones.
//!
//! The input is no file: it says how to damage those of a tenant that was. Lengths and
//! checksums are forged afterwards, and what can be opened is read, written to, and opened
//! again. The answers are anything, but there is no crash, no endless loop and no memory
//! beyond the budget.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    reason = "each user has a part; these are tests"
)]

mod base;
mod damage;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use aerostat_memory::Governor;
use aerostat_storage::{
    RecoverError, Recovered, RowId, ScanSpec, StorageError, Table, TenantStore,
    backup::{BackupSource, FolderSource, Restore, restore, verify},
    forge,
};
use aerostat_types::TenantId;
use arrow_array::{cast::AsArray, types::UInt64Type};

use base::Base;
use damage::Input;

/// The files of a folder, by their names with slashes.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Whose files they are, and who they are restored as.
const TENANT: TenantId = TenantId(1);
const RESTORED: TenantId = TenantId(9);

/// Damages log files. Says whether the tenant was opened all the same.
pub fn log_decode(input: &[u8]) -> bool {
    open_damaged(input, |name| name.starts_with("log/"))
}

/// Damages the manifest and the images. Says whether the tenant was opened all the same.
pub fn checkpoint_decode(input: &[u8]) -> bool {
    open_damaged(input, |name| name.starts_with("checkpoint/"))
}

/// Damages a backup and the log that was archived after it. Says whether it was restored
/// and opened all the same.
pub fn backup_decode(input: &[u8]) -> bool {
    let mut input = Input(input);
    let base = pick(&mut input);
    let mut files = base.backup.clone();
    damage::damage(&mut files, &mut input, |_| true);
    let folder = Folder::new();
    write(&folder.0, &files);
    let (backup, log) = (folder.0.join("backup"), folder.0.join("archive"));
    let (backup, log) = (FolderSource::new(&backup), FolderSource::new(&log));
    let verified = verify(&backup);
    let logs: [&dyn BackupSource; 1] = [&log];
    let what = Restore {
        backup: &backup,
        logs: &logs,
        until: None,
    };
    let target = folder.0.join("restored");
    if restore(&what, RESTORED, &target).is_err() {
        return false;
    }
    assert!(verified.is_ok(), "what restores is no worse than verified");
    use_opened(&target, RESTORED).is_some()
}

/// What the undamaged files have: rows of all tables, and of those of a restored backup.
pub fn undamaged(case: u8) -> (usize, usize) {
    let base = &bases()[usize::from(case) % bases().len()];
    let folder = Folder::new();
    write(&folder.0, &base.tenant);
    let opened = use_opened(&folder.0, TENANT).unwrap();
    assert_eq!(opened, base.rows, "case {case}");
    write(&folder.0, &base.backup);
    let target = folder.0.join("restored");
    let backup = FolderSource::new(&folder.0.join("backup"));
    let log = FolderSource::new(&folder.0.join("archive"));
    let logs: [&dyn BackupSource; 1] = [&log];
    let what = Restore {
        backup: &backup,
        logs: &logs,
        until: None,
    };
    restore(&what, RESTORED, &target).unwrap();
    (opened, use_opened(&target, RESTORED).unwrap())
}

fn bases() -> &'static [Base] {
    static BASES: OnceLock<Vec<Base>> = OnceLock::new();
    BASES.get_or_init(|| (0..base::CASES).map(Base::new).collect())
}

fn pick(input: &mut Input<'_>) -> &'static Base {
    &bases()[usize::from(input.byte()) % bases().len()]
}

fn open_damaged(input: &[u8], includes: impl Fn(&str) -> bool) -> bool {
    let mut input = Input(input);
    let mut files = pick(&mut input).tenant.clone();
    damage::damage(&mut files, &mut input, includes);
    let folder = Folder::new();
    write(&folder.0, &files);
    use_opened(&folder.0, TENANT).is_some()
}

/// Opens a tenant, reads it, writes to it, and opens it again. Says how many rows it had,
/// if it could be opened.
fn use_opened(folder: &Path, tenant: TenantId) -> Option<usize> {
    let (store, recovered) = open(folder, tenant).ok()?;
    let rows = recovered.tables.values().map(|table| read(table).len());
    let rows = rows.sum();
    // Values may be such as no row takes, and memory may be short: that is an error.
    let _ = write_to(&store, &recovered);
    drop((store, recovered));
    if let Ok((_store, recovered)) = open(folder, tenant) {
        recovered
            .tables
            .values()
            .for_each(|table| drop(read(table)));
    }
    Some(rows)
}

fn open(folder: &Path, tenant: TenantId) -> Result<(Arc<TenantStore>, Recovered), RecoverError> {
    let budget = Governor::new("64MB".parse().unwrap()).budget("hostile", None);
    TenantStore::open(tenant, budget, folder, &forge::tiny_arenas())
}

/// Reads all columns of all rows.
fn read(table: &Arc<Table>) -> Vec<RowId> {
    let view = table.view(table.store().txns().snapshot());
    let columns = table.schema().columns.len();
    let scan = view
        .scan(ScanSpec {
            projection: (0..columns).collect(),
            row_ids: true,
            ..ScanSpec::default()
        })
        .unwrap();
    let mut ids = Vec::new();
    let mut reader = scan.reader();
    while let Some(batch) = reader.next_batch().unwrap() {
        for column in batch.columns() {
            column.to_data().validate_full().unwrap();
        }
        let found = batch.column(columns).as_primitive::<UInt64Type>();
        ids.extend(found.values().iter().map(|id| RowId(*id)));
    }
    for some in ids.chunks(97).step_by(3) {
        let all: Vec<usize> = (0..columns).collect();
        assert_eq!(view.fetch(some, &all).unwrap().num_rows(), some.len());
    }
    table.statistics();
    table.segments();
    ids
}

/// Ends some rows, inserts them again, freezes, and makes a checkpoint.
fn write_to(store: &Arc<TenantStore>, recovered: &Recovered) -> Result<(), StorageError> {
    for table in recovered.tables.values() {
        let ids = read(table);
        let some: Vec<RowId> = ids.into_iter().step_by(5).collect();
        let view = table.view(store.txns().snapshot());
        let columns: Vec<usize> = (0..table.schema().columns.len()).collect();
        let rows = view.fetch(&some, &columns)?;
        let txn = store.txns().begin();
        let view = table.view(txn.snapshot().clone());
        view.delete(&txn, &some)?;
        table.insert(&txn, &rows)?;
        txn.commit()?;
        table.freeze()?;
    }
    store.checkpoint()?;
    for table in recovered.tables.values() {
        table.freeze()?;
    }
    Ok(())
}

/// A folder of its own, in memory where there is such a place; gone when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Folder {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let shared = Path::new("/dev/shm");
        let parent = if shared.is_dir() {
            shared.to_owned()
        } else {
            std::env::temp_dir()
        };
        let (process, number) = (std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let path = parent.join(format!("aerostat-hostile-{process}-{number}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn write(folder: &Path, files: &Files) {
    for (name, bytes) in files {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

/// The files of a folder, from there down.
fn collect(folder: &Path, prefix: &str, into: &mut Files) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            collect(&entry.path(), &format!("{name}/"), into);
        } else {
            into.insert(name, fs::read(entry.path()).unwrap());
        }
    }
}
