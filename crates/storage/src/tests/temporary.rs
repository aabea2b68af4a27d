//! Temporary tables of a durable tenant: its files contain nothing of them.

use super::{
    recovery::{create, open, rows_in},
    *,
};

fn temporary(store: &Arc<TenantStore>, id: u32) -> Arc<Table> {
    store
        .create_temporary_table(TableId(id), schema(true), &Layout::Row, Vec::new())
        .unwrap()
}

#[test]
fn a_temporary_table_works_and_is_gone_at_the_next_opening() {
    let folder = memory_folder();
    let (store, _) = open(folder.path());
    let (kept, scratch) = (create(&store, 1, true), temporary(&store, 2));
    assert!(scratch.is_temporary() && !kept.is_temporary());
    // Both in one transaction.
    let txn = store.txns().begin();
    kept.insert(&txn, &batch(&kept, &[(1, 1, None)])).unwrap();
    let rows: Vec<Row> = (0..2_000)
        .map(|key| (key, 0, Some("x".repeat(40))))
        .collect();
    scratch.insert(&txn, &batch(&scratch, &rows)).unwrap();
    txn.commit().unwrap();
    assert_eq!(rows_in(&scratch).len(), 2_000);
    // What is undone is undone.
    let txn = store.txns().begin();
    scratch
        .insert(&txn, &batch(&scratch, &[(5_000, 0, None)]))
        .unwrap();
    txn.rollback();
    let view = scratch.view(store.txns().snapshot());
    let (_, first) = scan(&view, Vec::new())[&0];
    let txn = store.txns().begin();
    view.delete(&txn, &[first]).unwrap();
    txn.commit().unwrap();
    assert_eq!(rows_in(&scratch).len(), 1_999);
    store.checkpoint().unwrap();
    drop((view, kept, scratch, store));

    let (store, recovered) = open(folder.path());
    let ids: Vec<u32> = recovered.tables.keys().map(|id| id.0).collect();
    assert_eq!(ids, [1]);
    assert_eq!(rows_in(&recovered.tables[&TableId(1)]), [(1, 1, None)]);
    drop((store, recovered));
}

#[test]
fn rows_of_temporary_tables_are_not_logged_and_give_their_memory_back() {
    let folder = memory_folder();
    let (store, _) = open(folder.path());
    let scratch = temporary(&store, 1);
    let (used, logged) = (store.budget().used(), store.log_bytes_written());
    let rows: Vec<Row> = (0..2_000)
        .map(|key| (key, 0, Some("x".repeat(40))))
        .collect();
    load(&scratch, &rows);
    assert!(store.budget().used() > used + 80_000);
    assert_eq!(store.log_bytes_written(), logged);
    // Emptied at once; who has a view goes on.
    let view = scratch.view(store.txns().snapshot());
    scratch.truncate();
    assert_eq!(
        (rows_in(&scratch).len(), scan(&view, Vec::new()).len()),
        (0, 2_000)
    );
    drop(view);
    load(&scratch, &rows[..1]);
    drop(scratch);
    assert_eq!(store.budget().used(), used);
}

/// Commits of temporary tables take places of which the log does not speak before it must.
#[test]
fn places_of_temporary_tables_are_no_gap_for_recovery() {
    let folder = memory_folder();
    let mut expected = Vec::new();
    for round in 0..6 {
        let (store, recovered) = open(folder.path());
        let kept = match recovered.tables.get(&TableId(1)) {
            Some(kept) => Arc::clone(kept),
            None => create(&store, 1, true),
        };
        expected.sort();
        assert_eq!(rows_in(&kept), expected);
        let scratch = temporary(&store, 2);
        load(&scratch, &[(round, 1, None)]);
        // A checkpoint at a place of which the log does not speak, at its end or before more.
        if round % 2 == 0 {
            store.checkpoint().unwrap();
        }
        if round % 3 > 0 {
            load(&kept, &[(round, 7, None)]);
            expected.push((round, 7, None));
        }
        load(&scratch, &[(100 + round, 1, None)]);
        if round % 2 == 1 {
            store.checkpoint().unwrap();
            load(&scratch, &[(200 + round, 1, None)]);
        }
        // A log that fails right behind such places is mended.
        if round == 4 {
            store.durable_side().log.fill_disk();
            let txn = store.txns().begin();
            let failing = batch(&kept, &[(300, 7, None)]);
            kept.insert(&txn, &failing).unwrap();
            txn.commit().unwrap_err();
            store.mend_log().unwrap();
            load(&kept, &[(400, 8, None)]);
            expected.push((400, 8, None));
        }
        drop((kept, scratch, recovered, store));
    }
    let (_store, recovered) = open(folder.path());
    expected.sort();
    assert_eq!(rows_in(&recovered.tables[&TableId(1)]), expected);
}
