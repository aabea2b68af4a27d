//! Backups, archives and restoring, against the states that a history went through.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use aerostat_types::{CommitTs, Epoch};
use rand::{Rng, SeedableRng, rngs::StdRng};

use super::{
    recovery::{World, create, open, options, read_names, rows_in},
    *,
};
use crate::durable::backup::{
    BackupError, BackupFile, BackupInfo, BackupSink, BackupSource, FolderSink, FolderSource,
    Restore, Restored, Until, restore, verify,
};

/// The tenant that is restored; [`World`]'s is another.
const RESTORED: TenantId = TenantId(9);

/// What the tables had after each commit.
type History = BTreeMap<CommitTs, (Vec<Row>, Vec<Row>)>;

fn back_up(store: &TenantStore, to: &Path) -> BackupInfo {
    let sink = FolderSink::for_backup(to, None).unwrap();
    store.backup("shop", &sink).unwrap()
}

fn restore_to(
    folder: &Path,
    backup: &Path,
    logs: &[&Path],
    until: Option<Until>,
) -> Result<Restored, BackupError> {
    let logs: Vec<FolderSource> = logs.iter().map(|path| FolderSource::new(path)).collect();
    let logs: Vec<&dyn BackupSource> = logs.iter().map(|log| log as _).collect();
    let what = Restore {
        backup: &FolderSource::new(backup),
        logs: &logs,
        until,
    };
    restore(&what, RESTORED, folder)
}

fn open_restored(folder: &Path) -> (Arc<TenantStore>, Recovered) {
    let budget = Governor::new("1GB".parse().unwrap()).budget("restored", None);
    TenantStore::open(RESTORED, budget, folder, &options()).unwrap()
}

/// What a restored folder holds in the tables of [`World`].
fn contents_of(folder: &Path) -> (CommitTs, Vec<Row>, Vec<Row>) {
    let (store, recovered) = open_restored(folder);
    let rows = |id| {
        recovered
            .tables
            .get(&TableId(id))
            .map_or(Vec::new(), rows_in)
    };
    (store.txns().last_commit(), rows(10), rows(11))
}

fn note(world: &World, history: &mut History) {
    let rows = (world.keyed_rows.clone(), world.bag_rows.clone());
    history.insert(world.store.txns().last_commit(), rows);
}

fn at(history: &History, lsn: CommitTs) -> (Vec<Row>, Vec<Row>) {
    let known = history.range(..=lsn).next_back();
    known.map(|(_, rows)| rows.clone()).unwrap_or_default()
}

/// Who led the tenant that was backed up has not led the one that is restored: its first leader begins with the
/// first epoch, whether the log comes along or not.
#[test]
fn a_restored_tenant_has_had_no_leader() {
    let mut world = World::new();
    let mut random = StdRng::seed_from_u64(11);
    world.transact(&mut random);
    world.store.begin_epoch(Epoch(2)).unwrap();
    let places = tempfile::tempdir().unwrap();
    let backup = places.path().join("backup");
    back_up(&world.store, &backup);
    let early = world.keyed_rows.clone();
    while world.keyed_rows == early {
        world.transact(&mut random);
    }
    world.store.begin_epoch(Epoch(5)).unwrap();
    world.transact(&mut random);
    world.store.archive_log().unwrap();
    let log = world.folder.path().join("log");
    let cases = [
        ("bare", &[][..], &early),
        ("with its log", &[&*log][..], &world.keyed_rows),
    ];
    for (name, logs, rows) in cases {
        let folder = places.path().join(name);
        restore_to(&folder, &backup, logs, None).unwrap();
        let (store, recovered) = open_restored(&folder);
        assert_eq!(store.epochs(), [], "{name}");
        drop(recovered);
        let began = store.begin_epoch(Epoch(1)).unwrap();
        drop(store);
        // Also behind a checkpoint of its own.
        for _ in 0..2 {
            let (store, recovered) = open_restored(&folder);
            assert_eq!(store.epochs(), [(Epoch(1), began)], "{name}");
            assert_eq!(rows_in(&recovered.tables[&TableId(10)]), *rows, "{name}");
            store.checkpoint().unwrap();
        }
    }
}

#[test]
fn a_backup_is_one_point_of_what_others_write_meanwhile() {
    for seed in 0..3 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut world = World::new();
        let mut history = History::new();
        let folder = memory_folder();
        let path = |n: usize| folder.path().join(format!("backup {n}"));
        let store = Arc::clone(&world.store);
        let taken: Vec<BackupInfo> = std::thread::scope(|scope| {
            let backups = scope.spawn(|| {
                (0..6)
                    .map(|n| back_up(&store, &path(n)))
                    .collect::<Vec<_>>()
            });
            while !backups.is_finished() {
                match random.random_range(0..12) {
                    0 => drop(world.keyed.freeze().unwrap()),
                    1 => drop(world.bag.freeze().unwrap()),
                    _ => world.transact(&mut random),
                }
                note(&world, &mut history);
            }
            backups.join().unwrap()
        });
        for (n, info) in taken.iter().enumerate() {
            assert_eq!(verify(&FolderSource::new(&path(n))).unwrap(), *info);
            let target = folder.path().join(format!("restored {n}"));
            let restored = restore_to(&target, &path(n), &[], None).unwrap();
            assert_eq!((restored.at, &restored.backup), (info.at, info));
            let (last, keyed, bag) = contents_of(&target);
            assert_eq!(last, info.at, "seed {seed}");
            assert_eq!(
                (keyed, bag),
                at(&history, info.at),
                "seed {seed}, {}",
                info.at
            );
        }
    }
}

#[test]
fn every_commit_of_a_history_can_be_gone_back_to() {
    for seed in 0..2 {
        let mut random = StdRng::seed_from_u64(seed);
        let mut world = World::new();
        let mut history = History::new();
        let folder = memory_folder();
        let archive = folder.path().join("archive");
        let sink = FolderSink::for_archive(&archive).unwrap();
        world.store.archive_log_to(Some(Arc::new(sink)));
        let mut info = None;
        let mut moments: Vec<(SystemTime, CommitTs)> = Vec::new();
        for step in 0..30 {
            if step == 6 {
                info = Some(back_up(&world.store, &folder.path().join("backup")));
            }
            match random.random_range(0..12) {
                0 | 1 => drop(world.store.checkpoint().unwrap()),
                2 => world.store.archive_log().unwrap(),
                3 => drop(world.store.commit_catalog(vec![step; 9]).unwrap()),
                4 => drop(world.keyed.freeze().unwrap()),
                _ => world.transact(&mut random),
            }
            note(&world, &mut history);
            if step > 6 && step % 5 == 0 {
                moments.push((SystemTime::now(), world.store.txns().last_commit()));
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        world.transact(&mut random);
        note(&world, &mut history);
        world.store.commit_catalog(vec![]).unwrap();
        note(&world, &mut history);
        let info = info.unwrap();
        let last = world.store.txns().last_commit();
        let (backup, live) = (
            folder.path().join("backup"),
            world.folder.path().join("log"),
        );
        let wholly = [None, Some(Until::Commit(last))].map(|until| (until, last));
        let commits =
            (info.at.0..=last.0).map(|lsn| (Some(Until::Commit(CommitTs(lsn))), CommitTs(lsn)));
        let times = moments
            .into_iter()
            .map(|(time, lsn)| (Some(Until::Time(time)), lsn));
        for (n, (until, lsn)) in wholly.into_iter().chain(commits).chain(times).enumerate() {
            let target = folder.path().join(format!("restored {n}"));
            let restored = restore_to(&target, &backup, &[&archive, &live], until).unwrap();
            assert_eq!(restored.at, lsn, "seed {seed}, {until:?}");
            let (found, keyed, bag) = contents_of(&target);
            assert_eq!(found, lsn, "seed {seed}, {until:?}");
            assert_eq!((keyed, bag), at(&history, lsn), "seed {seed}, {until:?}");
        }
        // Without a running tenant the archive alone leads as far as it was filled.
        world.store.archive_log().unwrap();
        let target = folder.path().join("of the archive");
        assert_eq!(
            restore_to(&target, &backup, &[&archive], None).unwrap().at,
            last
        );
    }
}

/// A tenant with five commits of a row each after its backup, its log cut in files of one.
fn five(folder: &Path) -> (Arc<TenantStore>, Arc<Table>, BackupInfo) {
    let (store, _) = open(&folder.join("tenant"));
    let table = create(&store, 10, true);
    load(&table, &[(0, 0, None)]);
    let info = back_up(&store, &folder.join("backup"));
    for key in 1..=5 {
        load(&table, &[(key, 0, None)]);
        store.archive_log().unwrap();
    }
    (store, table, info)
}

#[test]
fn points_that_cannot_be_reached_are_told_and_leave_nothing() {
    let folder = memory_folder();
    let path = |name: &str| folder.path().join(name);
    let (store, table, info) = five(folder.path());
    let (backup, log, target) = (path("backup"), path("tenant/log"), path("restored"));
    let fails = |logs: &[&Path], until| {
        let error = restore_to(&target, &backup, logs, until).unwrap_err();
        assert!(!target.exists() && !path("restored.partial").exists());
        error
    };
    let commit = |lsn| Some(Until::Commit(CommitTs(lsn)));
    assert_eq!(info.at, CommitTs(2));
    assert!(matches!(
        fails(&[&log], commit(1)),
        BackupError::BeforeBackup {
            at: CommitTs(2),
            ..
        }
    ));
    let time = info.taken() - Duration::from_micros(1);
    assert!(matches!(
        fails(&[&log], Some(Until::Time(time))),
        BackupError::BeforeBackup { .. }
    ));
    for until in [commit(8), Some(Until::Time(SystemTime::now()))] {
        assert!(matches!(
            fails(&[&log], until),
            BackupError::BeyondLog { last: CommitTs(7) }
        ));
    }
    assert!(matches!(
        fails(&[], commit(3)),
        BackupError::BeyondLog { last: CommitTs(2) }
    ));
    let files = read_names(&log);
    let kept = fs::read(&files[2]).unwrap();
    fs::remove_file(&files[2]).unwrap();
    let number = info.log_from + 2;
    assert!(matches!(
        fails(&[&log], None),
        BackupError::LogMissing { number: missing } if missing == number
    ));
    let empty = path("empty");
    fs::create_dir(&empty).unwrap();
    assert!(matches!(
        fails(&[&empty], None),
        BackupError::LogMissing { number } if number == info.log_from
    ));
    // A damaged file, a foreign one, and one that misses what a cut left out.
    let mut flipped = kept.clone();
    flipped[60] ^= 1;
    fs::write(&files[2], flipped).unwrap();
    assert!(matches!(fails(&[&log], None), BackupError::Log(_)));
    fs::write(&files[2], &kept[..48]).unwrap();
    assert!(matches!(fails(&[&log], None), BackupError::Log(_)));
    fs::write(&files[2], kept).unwrap();
    drop((store, table));

    assert_eq!(
        restore_to(&target, &backup, &[&log], commit(4)).unwrap().at,
        CommitTs(4)
    );
    assert!(matches!(
        restore_to(&target, &backup, &[&log], None),
        Err(BackupError::NotEmpty { .. })
    ));
    // The restored tenant's own commits are no continuation of the backup it came from.
    let (store, recovered) = open_restored(&target);
    let table = &recovered.tables[&TableId(10)];
    load(table, &[(77, 0, None)]);
    assert_eq!(store.txns().last_commit(), CommitTs(5));
    let own = path("backup of the restored");
    let own_info = back_up(&store, &own);
    assert!(own_info.timeline != info.timeline && own_info.tenant == RESTORED);
    drop((store, recovered));
    let again = path("again");
    for (backup, log) in [(&backup, target.join("log")), (&own, log)] {
        assert!(matches!(
            restore_to(&again, backup, &[&log], None),
            Err(BackupError::Log(_) | BackupError::LogMissing { .. })
        ));
    }
    let (_store, recovered) = open_restored(&target);
    let keys: Vec<i32> = rows_in(&recovered.tables[&TableId(10)])
        .iter()
        .map(|row| row.0)
        .collect();
    assert_eq!(keys, [0, 1, 2, 77]);
}

/// Places of temporary relations can be gone back to, wherever the log speaks of them.
#[test]
fn places_at_which_there_is_nothing_can_be_gone_back_to() {
    let folder = memory_folder();
    let path = |name: &str| folder.path().join(name);
    let (store, _) = open(&path("tenant"));
    let table = create(&store, 10, true);
    let scratch = store
        .create_temporary_table(TableId(12), schema(true), &Layout::Row, Vec::new())
        .unwrap();
    load(&table, &[(0, 0, None)]);
    // The backup is of such a place itself.
    load(&scratch, &[(0, 0, None)]);
    let info = back_up(&store, &path("backup"));
    let sink = FolderSink::for_archive(&path("archive")).unwrap();
    store.archive_log_to(Some(Arc::new(sink)));
    let mut expected: Vec<(CommitTs, usize)> = Vec::new();
    for key in 1..20 {
        let passing = key % 4 > 0;
        let to = if passing { &scratch } else { &table };
        load(to, &[(key, 0, None)]);
        let rows = 1 + key as usize / 4;
        expected.push((store.txns().last_commit(), rows));
        if key % 5 == 0 {
            store.checkpoint().unwrap();
        }
    }
    load(&table, &[(20, 0, None)]);
    assert!(info.at < expected[0].0);
    let logs = [path("archive"), path("tenant/log")];
    let logs = [logs[0].as_path(), &logs[1]];
    for (lsn, rows) in expected {
        let target = path(&format!("restored-{lsn}"));
        restore_to(&target, &path("backup"), &logs, Some(Until::Commit(lsn))).unwrap();
        let (_store, recovered) = open_restored(&target);
        let found = rows_in(&recovered.tables[&TableId(10)]);
        assert_eq!(found.len(), rows, "{lsn}");
    }
}

#[test]
fn damaged_backups_are_reported_and_never_restored() {
    let folder = memory_folder();
    let mut random = StdRng::seed_from_u64(3);
    let mut world = World::new();
    for _ in 0..12 {
        world.transact(&mut random);
    }
    world.keyed.freeze().unwrap();
    world.transact(&mut random);
    world.store.commit_catalog(b"a catalogue".to_vec()).unwrap();
    let (backup, target) = (folder.path().join("backup"), folder.path().join("restored"));
    assert!(matches!(
        verify(&FolderSource::new(&backup)),
        Err(BackupError::NotABackup | BackupError::Io { .. })
    ));
    let info = back_up(&world.store, &backup);
    let mut files: Vec<PathBuf> = info
        .files
        .iter()
        .map(|file| backup.join(&file.name))
        .collect();
    files.push(backup.join("backup.json"));
    let refused = |what: &str, path: &Path| {
        let verified = verify(&FolderSource::new(&backup));
        assert!(verified.is_err(), "{what} {path:?} verified");
        let restored = restore_to(&target, &backup, &[], None);
        assert!(restored.is_err(), "{what} {path:?} restored");
        assert!(!target.exists() && !folder.path().join("restored.partial").exists());
    };
    for path in &files {
        let kept = fs::read(path).unwrap();
        fs::remove_file(path).unwrap();
        refused("missing", path);
        for _ in 0..12 {
            let at = random.random_range(0..kept.len());
            let mut flipped = kept.clone();
            flipped[at] ^= 1 << random.random_range(0..8);
            fs::write(path, &flipped).unwrap();
            // A bit of the space between the lines of the description may mean nothing.
            if path.ends_with("backup.json") && verify(&FolderSource::new(&backup)).is_ok() {
                continue;
            }
            refused("flipped", path);
            fs::write(path, &kept[..at]).unwrap();
            refused("cut", path);
        }
        fs::write(path, [&kept[..], b"more"].concat()).unwrap();
        refused("longer", path);
        fs::write(path, kept).unwrap();
    }
    assert_eq!(verify(&FolderSource::new(&backup)).unwrap(), info);
    let description = fs::read_to_string(backup.join("backup.json")).unwrap();
    let line = description.lines().next().unwrap();
    let of_format = |format: &str| {
        let line = line.replace("\"format\":2", format);
        let crc32 = crc32fast::hash(line.as_bytes());
        let text = format!("{line}\n{{\"crc32\":{crc32}}}\n");
        fs::write(backup.join("backup.json"), text).unwrap();
        verify(&FolderSource::new(&backup))
    };
    // The one before, which differs in what it may have, is read.
    assert_eq!(of_format("\"format\":1").unwrap().files, info.files);
    assert!(matches!(
        of_format("\"format\":3"),
        Err(BackupError::Format { found: 3, .. })
    ));
}

#[test]
fn a_second_backup_links_what_the_first_has() {
    let folder = memory_folder();
    let path = |name: &str| folder.path().join(name);
    let (store, _) = open(&path("tenant"));
    let (still, busy) = (create(&store, 10, true), create(&store, 11, false));
    let rows: Vec<Row> = (0..500)
        .map(|key| (key, 0, Some(format!("{key:0200}"))))
        .collect();
    load(&still, &rows);
    load(&busy, &rows);
    back_up(&store, &path("first"));
    load(&busy, &[(1, 1, None)]);
    let sink = FolderSink::for_backup(&path("second"), Some(&path("first"))).unwrap();
    let info = store.backup("shop", &sink).unwrap();
    drop(sink);
    let links = |file: &BackupFile| {
        fs::metadata(path("second").join(&file.name))
            .unwrap()
            .nlink()
    };
    let shared = info.files.iter().filter(|file| links(file) == 2).count();
    assert!(
        shared > 1 && shared < info.files.len(),
        "{shared} of {}",
        info.files.len()
    );
    // The second is whole without the first.
    fs::remove_dir_all(path("first")).unwrap();
    assert_eq!(verify(&FolderSource::new(&path("second"))).unwrap(), info);
    restore_to(&path("restored"), &path("second"), &[], None).unwrap();
    let (_, keyed, bag) = contents_of(&path("restored"));
    assert_eq!((keyed.len(), bag.len()), (500, 501));
    assert!(matches!(
        FolderSink::for_backup(&path("second"), None),
        Err(BackupError::NotEmpty { .. })
    ));
    let memory = tenant("1GB", ArenaSizes::of(&TINY));
    let sink = FolderSink::for_backup(&path("of nothing"), None).unwrap();
    assert!(matches!(
        memory.backup("m", &sink),
        Err(BackupError::NotDurable)
    ));
    drop(sink);
    assert!(!path("of nothing").exists() && !path("of nothing.partial").exists());
}

/// A place that is full.
struct Full;

impl BackupSink for Full {
    fn put(&self, _: &str, _: &mut dyn Read, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::StorageFull.into())
    }
}

#[test]
fn what_cannot_be_archived_stays() {
    let folder = memory_folder();
    let path = |name: &str| folder.path().join(name);
    let (store, _) = open(&path("tenant"));
    let table = create(&store, 10, true);
    let info = back_up(&store, &path("backup"));
    store.archive_log_to(Some(Arc::new(Full)));
    load(&table, &[(1, 0, None)]);
    store.commit_catalog(b"a catalogue".to_vec()).unwrap();
    assert!(matches!(
        store.checkpoint(),
        Err(StorageError::Checkpoint(_))
    ));
    assert!(store.archive_log().is_err() && store.backup("d", &Full).is_err());
    load(&table, &[(2, 0, None)]);
    assert!(read_names(&path("tenant/log")).len() > 2);
    let sink = FolderSink::for_archive(&path("archive")).unwrap();
    store.archive_log_to(Some(Arc::new(sink)));
    store.checkpoint().unwrap();
    assert_eq!(read_names(&path("tenant/log")).len(), 1);
    let last = store.txns().last_commit();
    drop((store, table));
    // The tenant itself is lost.
    fs::remove_dir_all(path("tenant")).unwrap();
    let restored = restore_to(
        &path("restored"),
        &path("backup"),
        &[&path("archive")],
        None,
    );
    assert_eq!((restored.unwrap().at, info.at), (last, CommitTs(1)));
    let (_store, recovered) = open_restored(&path("restored"));
    assert_eq!(recovered.catalog.as_deref(), Some(&b"a catalogue"[..]));
    assert_eq!(rows_in(&recovered.tables[&TableId(10)]).len(), 2);
}

#[test]
fn names_lead_nowhere_else() {
    let folder = memory_folder();
    let source = FolderSource::new(&folder.path().join("in"));
    fs::create_dir(folder.path().join("in")).unwrap();
    fs::write(folder.path().join("secret"), "x").unwrap();
    for name in ["../secret", "/etc/hostname", "", "a/../../secret"] {
        assert!(source.open(name).is_err(), "{name}");
    }
}
