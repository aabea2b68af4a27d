//! Tenants that are closed while their process goes on.

use std::{thread, time::Duration};

use super::{
    recovery::{create, open, options, rows_in, try_open},
    *,
};
use crate::SystemDisk;

#[test]
fn a_tenant_ends_with_the_last_who_has_it_and_not_before() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let table = create(&store, 1, true);
    let txns = Arc::clone(store.txns());
    let ended = store.ended().unwrap();
    let is_locked = || {
        let opened = try_open(folder.path(), &options());
        matches!(opened, Err(RecoverError::Locked { .. }))
    };
    drop(store);
    assert!(!ended.is_over() && is_locked(), "its table is there");
    assert!(!ended.wait(Duration::from_millis(1)));
    drop(table);
    assert!(
        !ended.is_over() && is_locked(),
        "its transactions are there"
    );
    let waits = {
        let ended = ended.clone();
        thread::spawn(move || ended.wait(Duration::from_secs(60)))
    };
    drop(txns);
    assert!(ended.is_over() && waits.join().unwrap());
    assert!(!is_locked());
    let memory = TenantStore::new(TenantId(2), Governor::new(ByteSize(1 << 20)).root());
    assert!(memory.ended().is_none() && memory.sync_log().is_ok());
}

/// Work that can be done another time leaves the tenant as it was, and the last checkpoint.
#[test]
fn work_that_can_wait_ends_when_the_tenant_is_to_be_closed() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let table = create(&store, 1, true);
    let insert = |keys: std::ops::Range<i32>| {
        let rows: Vec<Row> = keys.map(|key| (key, 0, None)).collect();
        let txn = store.txns().begin();
        table.insert(&txn, &batch(&table, &rows)).unwrap();
        txn.commit().unwrap();
    };
    insert(0..1_000);
    let first = store.checkpoint().unwrap().unwrap();
    insert(1_000..2_000);
    store.set_leaving(true);
    assert!(matches!(store.checkpoint(), Err(StorageError::Cancelled)));
    assert_eq!(table.freeze().unwrap().segments_made, 0);
    let layout = Layout::parse("(k),(n),(s)").unwrap();
    table.set_layout(&layout).unwrap();
    let cancel = aerostat_txn::CancelToken::new();
    assert!(matches!(
        table.reshape(&cancel),
        Err(StorageError::Cancelled)
    ));
    let rows = rows_in(&table);
    assert_eq!(rows.len(), 2_000);
    drop((table, store));
    let (store, recovered) = open(folder.path());
    assert_eq!(recovered.checkpoint_at, first.at);
    let table = &recovered.tables[&TableId(1)];
    assert_eq!(rows_in(table), rows);
    // It does them now.
    assert!(table.freeze().unwrap().segments_made > 0);
    assert!(store.checkpoint().unwrap().unwrap().at > first.at);
}

#[test]
fn the_catalogue_of_a_closed_tenant_is_read_without_its_rows() {
    let folder = tempfile::tempdir().unwrap();
    let read = || TenantStore::read_catalog(TenantId(1), folder.path(), &SystemDisk);
    let (store, _) = open(folder.path());
    let table = create(&store, 1, true);
    assert_eq!(read().unwrap(), None);
    store.commit_catalog(b"one".to_vec()).unwrap();
    drop((store, table));
    assert_eq!(read().unwrap().as_deref(), Some(&b"one"[..]));
    let (store, recovered) = open(folder.path());
    assert_eq!(recovered.catalog.as_deref(), Some(&b"one"[..]));
    // From the checkpoint, then from the log behind it.
    store.checkpoint().unwrap();
    drop((store, recovered));
    assert_eq!(read().unwrap().as_deref(), Some(&b"one"[..]));
    let (store, recovered) = open(folder.path());
    store.commit_catalog(b"two".to_vec()).unwrap();
    drop((store, recovered));
    assert_eq!(read().unwrap().as_deref(), Some(&b"two"[..]));
    std::fs::write(folder.path().join("checkpoint/manifest"), b"damaged").unwrap();
    assert!(matches!(read(), Err(RecoverError::Damaged { .. })));
}
