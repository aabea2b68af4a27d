//! Tables at the end of their memory.

use aerostat_txn::CancelToken;

use aerostat_memory::MemoryClass;

use super::*;
use crate::OpenOptions;

fn wide(keys: std::ops::Range<i32>) -> Vec<Row> {
    // Different texts, so that interning saves nothing.
    keys.map(|key| (key, 0, Some(format!("{key:01000}"))))
        .collect()
}

#[test]
fn out_of_memory_undoes_the_statement_and_nothing_else() {
    for sizes in [ArenaSizes::of(&TINY), ArenaSizes::default()] {
        let store = tenant("1MB", sizes);
        let table = table(&store, "column");
        load(&table, &wide(0..100));
        let before = (store.budget().used(), now(&table));
        let txn = store.txns().begin();
        let mut inserted = Ok(0);
        // Every other key lies between old ones, so that segments are rewritten too.
        for keys in 0..100 {
            let rows: Vec<Row> = wide(keys * 100 + 100..keys * 100 + 200);
            inserted = table.insert(&txn, &batch(&table, &rows));
            if inserted.is_err() {
                break;
            }
        }
        assert!(
            matches!(inserted, Err(StorageError::OutOfMemory(_))),
            "{inserted:?}"
        );
        assert_eq!(
            now(&table),
            before.1,
            "nothing of it is seen before the rollback"
        );
        txn.rollback();
        assert_eq!(now(&table), before.1);
        let slack = 128 << 10;
        let used = store.budget().used();
        assert!(
            used <= before.0 + slack,
            "{used} bytes are in use after, {} before",
            before.0
        );
        load(&table, &wide(1_000..1_100));
        assert_eq!(now(&table).len(), 200);
    }
}

#[test]
fn memory_goes_back_when_segments_do() {
    let store = tenant("64MB", ArenaSizes::default());
    let table = table(&store, "row");
    load(&table, &wide(0..2_000));
    let full = store.budget().used();
    assert!(full > 2_000_000);
    let old = table.view(store.txns().snapshot());
    let txn = store.txns().begin();
    let view = table.view(txn.snapshot().clone());
    let ids: Vec<RowId> = scan(&view, vec![compare(0, CompareOp::Ge, 10)])
        .into_values()
        .map(|(_, id)| id)
        .collect();
    assert_eq!(view.delete(&txn, &ids).unwrap(), 1_990);
    drop(view);
    txn.commit().unwrap();
    assert_eq!(table.vacuum().unwrap(), 0, "a snapshot still sees the rows");
    assert_eq!(scan(&old, Vec::new()).len(), 2_000);
    drop(old);
    assert!(table.vacuum().unwrap() > 1_900_000);
    assert!(
        store.budget().used() < full / 10,
        "{} of {full}",
        store.budget().used()
    );
    assert_eq!(now(&table), wide(0..10));
    let old = table.view(store.txns().snapshot());
    table.truncate();
    assert_eq!(now(&table), []);
    assert_eq!(scan(&old, Vec::new()).len(), 10);
    drop(old);
    assert_eq!(store.budget().used(), 0);
}

#[test]
fn a_rollback_gives_back_the_memory_of_its_rows() {
    let store = tenant("64MB", ArenaSizes::default());
    let table = table(&store, "column");
    let txn = store.txns().begin();
    for keys in 0..20 {
        table
            .insert(&txn, &batch(&table, &wide(keys * 100..keys * 100 + 100)))
            .unwrap();
    }
    assert!(store.budget().used() > 2_000_000);
    assert_eq!(now(&table), []);
    drop(txn);
    assert_eq!(
        (store.budget().used(), table.statistics()),
        (0, TableStatistics::default())
    );
}

#[test]
fn freezing_waits_for_the_memory_it_needs_and_gives_it_back() {
    for is_tiny in [true, false] {
        let sizes = if is_tiny {
            ArenaSizes::of(&TINY)
        } else {
            ArenaSizes::default()
        };
        let store = tenant("64MB", sizes);
        let table = table(&store, "(k,s),(n)");
        load(&table, &wide(0..2_000));
        let (rows, used) = (now(&table), store.budget().used());
        // In one segment the copy would have room, and the work has not.
        let room = |used| if is_tiny { used + 1_000 } else { 2 * used };
        store.budget().set_max(Some(ByteSize(room(used))));
        // One may go beyond it, and somebody else does.
        let beyond = room(used) - used + 1;
        let other = store.budget().overdraft(MemoryClass::Rewrites, beyond);
        for _ in 0..2 {
            let refused = table.freeze();
            assert!(
                matches!(refused, Err(StorageError::OutOfMemory(_))),
                "{refused:?}"
            );
            assert_eq!(
                store.budget().used(),
                used + beyond,
                "nothing is kept of the attempt"
            );
            assert_eq!(now(&table), rows);
        }
        drop(other.unwrap());
        store.budget().set_max(None);
        let report = table.freeze().unwrap();
        assert_eq!((report.rows, report.postponed), (2_000, 0));
        assert!(store.budget().used() < used, "{}", store.budget().used());
        assert_eq!(now(&table), rows);
        // Building frozen segments anew is paid for as freezing them was.
        let frozen = store.budget().used();
        table.set_layout(&Layout::Column).unwrap();
        store.budget().set_max(Some(ByteSize(room(frozen))));
        let refused = table.reshape(&CancelToken::new());
        assert!(
            matches!(refused, Err(StorageError::OutOfMemory(_))),
            "{refused:?}"
        );
        assert_eq!((store.budget().used(), now(&table)), (frozen, rows.clone()));
        store.budget().set_max(None);
        let reshaped = table.reshape(&CancelToken::new()).unwrap();
        assert_eq!((reshaped.rows, reshaped.segments_left), (2_000, 0));
        assert_eq!(now(&table), rows);
    }
}

#[test]
fn redo_that_waits_is_paid_for_and_a_refusal_undoes_the_statement() {
    let folder = memory_folder();
    let budget = Governor::new("1GB".parse().unwrap()).budget("redo", None);
    let options = OpenOptions::default();
    let (store, _) = TenantStore::open(TenantId(1), budget, folder.path(), &options).unwrap();
    let table = table(&store, "column");
    load(&table, &wide(0..100));
    // A first change of each block of rows takes a page for their stamps.
    let view = table.view(store.txns().snapshot());
    let ids: Vec<RowId> = scan(&view, Vec::new())
        .into_values()
        .map(|(_, id)| id)
        .collect();
    let txn = store.txns().begin();
    view.delete(&txn, &ids).unwrap();
    let waiting = store.budget().used();
    txn.rollback();
    let used = store.budget().used();
    assert!(
        waiting > used,
        "the keys of 100 rows wait: {waiting}, {used}"
    );
    // Room for anything but redo.
    store.budget().set_max(Some(ByteSize(used)));
    let before = now(&table);
    let txn = store.txns().begin();
    let refused = table.view(txn.snapshot().clone()).delete(&txn, &ids);
    assert!(
        matches!(refused, Err(StorageError::OutOfMemory(_))),
        "{refused:?}"
    );
    txn.rollback();
    assert_eq!((store.budget().used(), now(&table)), (used, before));
    store.budget().set_max(None);
    let txn = store.txns().begin();
    let deleted = table.view(txn.snapshot().clone()).delete(&txn, &ids);
    assert_eq!(deleted.unwrap(), 100);
    txn.commit().unwrap();
    assert_eq!(now(&table), []);
    assert!(store.budget().used() <= used, "nothing waits any more");
}
