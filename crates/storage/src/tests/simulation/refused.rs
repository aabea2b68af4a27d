//! A disk refuses something, the process ends, another process opens the tenant, and then the
//! power fails: what the system reads is not what the disk has.

use super::*;
use crate::Opened;

fn machine(disk: &Arc<SimDisk>) -> Machine {
    Machine {
        disk: Arc::new(Handle(Arc::clone(disk))),
        clock: Arc::new(SimClock::new()),
    }
}

fn insert(table: &Arc<Table>, key: i32) -> Result<CommitTs, CommitError> {
    let txn = table.store().txns().begin();
    table
        .insert(&txn, &batch(table, &[(key, 0, None)]))
        .unwrap();
    txn.commit()
}

fn open_with_table(disk: &Arc<SimDisk>) -> (Arc<TenantStore>, Arc<Table>) {
    let (store, recovered) = opened(1, Path::new("/t/tenant"), &machine(disk));
    let table = recovered.tables.get(&TableId(KEYED)).cloned();
    let table = table.unwrap_or_else(|| create(&store, KEYED, true));
    (store, table)
}

#[test]
fn what_is_acknowledged_after_a_restart_is_on_the_disk() {
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let (store, table) = open_with_table(&disk);
        let mut acknowledged = Vec::new();
        disk.fail_at(0.06);
        for key in 0.. {
            match insert(&table, key) {
                Ok(_) => acknowledged.push(key),
                Err(_) => break,
            }
            if key % 3 == 2 && store.checkpoint().is_err() {
                break;
            }
        }
        disk.fail_at(0.0);
        drop((store, table));
        let (store, table) = open_with_table(&disk);
        insert(&table, 1_000).unwrap();
        acknowledged.push(1_000);
        let left = disk.crash_now();
        drop((store, table));
        let (_store, table) = open_with_table(&left);
        let found = contents(&table);
        for key in acknowledged {
            assert!(found.contains_key(&key), "seed {seed}: {key} is lost");
        }
    }
}

/// What a crash leaves of two files, one of which was synced and has a durable name.
#[test]
fn the_disk_loses_what_was_not_synced_and_nothing_else() {
    let (mut lost, mut kept, mut torn) = (0, 0, 0);
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        let handle: &dyn Disk = &Handle(Arc::clone(&disk));
        let path = |name: &str| Path::new("/folder").join(name);
        handle.make_folder_for_good(Path::new("/folder")).unwrap();
        let file = handle.create_file(&path("synced"), &[1; 2_000]).unwrap();
        file.sync_all().unwrap();
        handle.sync_folder(Path::new("/folder")).unwrap();
        file.write_all_at(&[2; 2_000], 2_000).unwrap();
        let nameless = handle.create_file(&path("nameless"), b"bytes").unwrap();
        nameless.sync_all().unwrap();
        let left = Handle(disk.crash_now());
        let bytes = Disk::read(&left, &path("synced")).unwrap();
        assert_eq!(bytes[..2_000], [1; 2_000]);
        let behind = bytes[2_000..].iter().filter(|byte| **byte == 2).count();
        match behind {
            0 => lost += 1,
            2_000 => kept += 1,
            _ => torn += 1,
        }
        match Disk::read(&left, &path("nameless")) {
            Ok(bytes) => assert_eq!(bytes, b"bytes"),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
        }
        // What is there now is what was written, whatever a crash would leave.
        assert_eq!(handle.read(&path("synced")).unwrap().len(), 4_000);
    }
    assert!(lost > 20 && kept > 20 && torn > 5, "{lost} {kept} {torn}");
}

/// A sync that fails may take with it what later syncs do not bring back.
#[test]
fn a_failed_sync_is_not_made_good_by_the_next() {
    let mut lost = 0;
    for seed in 0..100 {
        let disk = SimDisk::new(seed);
        let handle: &dyn Disk = &Handle(Arc::clone(&disk));
        let path = Path::new("/file");
        handle.create_file(path, b"bytes").unwrap();
        handle.sync_folder(Path::new("/")).unwrap();
        let file = handle.open(path, Opened::Write).unwrap();
        disk.fail_at(1.0);
        file.sync_data().unwrap_err();
        disk.fail_at(0.0);
        file.sync_data().unwrap();
        assert_eq!(handle.read(path).unwrap(), b"bytes");
        let left = Handle(disk.crash_now());
        lost += usize::from(Disk::read(&left, path).unwrap() != b"bytes");
    }
    assert!((20..80).contains(&lost), "{lost}");
}
