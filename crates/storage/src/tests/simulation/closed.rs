//! A tenant is closed while its process goes on, and opened again: by the same process, or by
//! another after the power has failed, wherever in closing it did.

use super::*;
use crate::Durability;

const ROWS: i32 = 20;

fn machine(disk: &Arc<SimDisk>) -> Machine {
    Machine {
        disk: Arc::new(Handle(Arc::clone(disk))),
        clock: Arc::new(SimClock::new()),
    }
}

/// Rows that no power failure is to be survived by, until the tenant is closed.
fn written(disk: &Arc<SimDisk>) -> (Arc<TenantStore>, Arc<Table>) {
    let (store, _) = opened(1, Path::new("/t/tenant"), &machine(disk));
    let table = create(&store, KEYED, true);
    store.set_durability(Durability::None);
    for key in 0..ROWS {
        let txn = store.txns().begin();
        let row = (key, 0, Some("x".repeat(300)));
        table.insert(&txn, &batch(&table, &[row])).unwrap();
        txn.commit().unwrap();
    }
    (store, table)
}

fn keys(disk: &Arc<SimDisk>) -> Vec<i32> {
    let (_store, recovered) = opened(1, Path::new("/t/tenant"), &machine(disk));
    let table = recovered.tables.get(&TableId(KEYED));
    table.map_or_else(Vec::new, |table| contents(table).into_keys().collect())
}

#[test]
fn what_was_closed_survives_the_power_and_before_that_a_part_does() {
    let (mut lost, mut during) = (0, 0);
    for seed in 0..300 {
        let disk = SimDisk::new(seed);
        let (store, table) = written(&disk);
        // In some seeds while it is closed, in others after.
        disk.crash_in(Some(seed % 4));
        store.sync_log().unwrap();
        let is_synced = disk.crashed().is_none();
        let ended = store.ended().unwrap();
        drop(store);
        assert!(!ended.is_over(), "somebody has its table");
        drop(table);
        assert!(ended.is_over());
        during += usize::from(disk.crashed().is_some());
        let left = disk.crashed().unwrap_or_else(|| disk.crash_now());
        let found = keys(&left);
        let prefix: Vec<i32> = (0..ROWS).take(found.len()).collect();
        assert_eq!(found, prefix, "seed {seed}");
        assert!(
            !is_synced || found.len() == ROWS as usize,
            "seed {seed}: lost what was closed"
        );
        lost += usize::from(found.len() < ROWS as usize);
        // The process that went on has all of it.
        disk.crash_in(None);
        assert_eq!(keys(&disk).len(), ROWS as usize);
    }
    assert!(lost > 10 && during > 50, "{lost} {during}");
}

#[test]
fn a_log_that_cannot_be_synced_is_told_of_and_stays_open() {
    let disk = SimDisk::new(7);
    let (store, table) = written(&disk);
    disk.fail_at(1.0);
    store.sync_log().unwrap_err();
    assert!(store.log_failure().is_some());
    store.sync_log().unwrap_err();
    disk.fail_at(0.0);
    store.mend_log().unwrap();
    store.sync_log().unwrap();
    let left = disk.crash_now();
    drop((store, table));
    assert_eq!(keys(&left).len(), ROWS as usize);
}
