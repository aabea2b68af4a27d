//! What a crash leaves of blocks.

use std::collections::BTreeSet;

use aerostat_txn::{Block, Isolation};
use aerostat_types::CommitTs;
use rand::{Rng, SeedableRng, rngs::StdRng};

use super::{
    recovery::{copy, create, listed, open, rows_in},
    *,
};

/// Rows of which a few hundred are more redo than is kept in memory.
fn wide(keys: std::ops::Range<i32>, number: i64) -> Vec<Row> {
    keys.map(|key| (key, number, Some(format!("{key:06000}"))))
        .collect()
}

/// Keeps a statement that replaces rows, which may not be there yet.
fn put(table: &Arc<Table>, block: &Block, rows: &[Row]) {
    let statement = block.statement();
    let view = table.view(statement.snapshot().clone());
    let there: BTreeSet<i32> = rows.iter().map(|row| row.0).collect();
    let ids: Vec<RowId> = listed(&view)
        .into_iter()
        .filter(|(row, _)| there.contains(&row.0))
        .map(|(_, id)| id)
        .collect();
    view.delete(&statement, &ids).unwrap();
    table.insert(&statement, &batch(table, rows)).unwrap();
    statement.commit().unwrap();
}

/// Keys, numbers, and lengths of the texts.
fn shortened(rows: Vec<(Row, RowId)>) -> Vec<(i32, i64, usize)> {
    let short = |((key, number, text), _): (Row, _)| (key, number, text.map_or(0, |t| t.len()));
    rows.into_iter().map(short).collect()
}

fn brief(table: &Arc<Table>) -> Vec<(i32, i64, usize)> {
    shortened(listed(&table.view(table.store().txns().snapshot())))
}

/// Redo of a block's statements goes to the log before anybody knows which of them stay;
/// after a crash at any point it is all or nothing, and nothing that was undone.
#[test]
fn of_a_block_in_the_log_the_surviving_statements_come_back() {
    for keyed in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let (store, _) = open(folder.path());
        let table = create(&store, 10, keyed);
        load(&table, &wide(0..20, 1));
        let committed = brief(&table);
        let crashed = |name: &str| {
            let crashed = folder.path().join(name);
            copy(folder.path(), &crashed);
            let (_store, recovered) = open(&crashed);
            brief(&recovered.tables[&TableId(10)])
        };
        let block = store.txns().begin_block(Isolation::ReadCommitted);
        // Little redo, then much that depends on it, then little that depends on that.
        put(&table, &block, &[(3, 2, None), (4, 2, None)]);
        put(&table, &block, &wide(0..400, 3));
        put(&table, &block, &[(5, 4, None), (300, 4, None)]);
        let savepoint = block.savepoint();
        put(&table, &block, &wide(5..500, 5));
        put(&table, &block, &[(5, 6, None), (6, 6, None)]);
        assert_eq!(
            crashed("open"),
            committed,
            "nothing of a block that did not commit"
        );
        store.checkpoint().unwrap();
        block.rollback_to(savepoint);
        put(&table, &block, &[(6, 7, None), (499, 7, None)]);
        let failed = block.statement();
        table
            .insert(&failed, &batch(&table, &wide(600..1_000, 8)))
            .unwrap();
        failed.rollback();
        put(&table, &block, &wide(390..410, 9));
        let expected = shortened(listed(&table.view(block.snapshot())));
        assert_eq!(expected.len(), 411);
        block.commit().unwrap();
        assert_eq!(brief(&table), expected);
        assert_eq!(crashed("committed"), expected);
        load(&table, &[(2_000, 0, None)]);
        let expected = brief(&table);
        drop((store, table));
        let (store, recovered) = open(folder.path());
        assert_eq!(
            recovered.checkpoint_at,
            CommitTs(2),
            "the block is in the log alone"
        );
        let table = &recovered.tables[&TableId(10)];
        assert_eq!(brief(table), expected);
        // Its ids are above all in the log, so what was left there stays nobody's.
        let block = store.txns().begin_block(Isolation::ReadCommitted);
        put(table, &block, &wide(0..300, 10));
        put(table, &block, &wide(300..600, 10));
        block.commit().unwrap();
        let expected = brief(table);
        drop((store, recovered));
        let (_store, recovered) = open(folder.path());
        assert_eq!(brief(&recovered.tables[&TableId(10)]), expected);
    }
}

/// A block writes to a table, which is then dropped and nobody's; checkpoints come and go
/// before the block commits, and the log still says what its rows were of.
#[test]
fn a_block_outlives_a_table_that_it_wrote_to() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let (stays, goes) = (create(&store, 1, true), create(&store, 2, true));
    let block = store.txns().begin_block(Isolation::ReadCommitted);
    put(&goes, &block, &[(1, 1, None)]);
    put(&stays, &block, &[(1, 1, None)]);
    store.drop_table(TableId(2)).unwrap();
    drop(goes);
    for key in 10..13 {
        load(&stays, &[(key, 0, None)]);
        store.checkpoint().unwrap();
    }
    block.commit().unwrap();
    let expected = rows_in(&stays);
    assert_eq!(expected.len(), 4);
    drop((store, stays));
    let (_store, recovered) = open(folder.path());
    assert_eq!(rows_in(&recovered.tables[&TableId(1)]), expected);
    assert_eq!(recovered.tables.len(), 1);
}

/// Where a value is NULL, what lies under it differs between a batch, a hot segment and a
/// frozen one. Replay finds rows without a key by their bytes all the same.
#[test]
fn rows_without_key_are_found_whatever_lies_under_their_nulls() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let mut schema = (*schema(false)).clone();
    schema.columns[1].nullable = true;
    let table = store
        .create_table(TableId(1), Arc::new(schema), &Layout::Row)
        .unwrap();
    let numbers = Int64Array::new(
        vec![7, 77, 777].into(),
        Some(vec![true, false, false].into()),
    );
    let batch = RecordBatch::try_new(
        Arc::clone(table.arrow_schema()),
        vec![
            Arc::new(Int32Array::from(vec![1, 2, 3])),
            Arc::new(numbers),
            Arc::new(StringViewArray::from(vec![None, Some("s"), None])),
        ],
    )
    .unwrap();
    let txn = store.txns().begin();
    table.insert(&txn, &batch).unwrap();
    txn.commit().unwrap();
    table.freeze().unwrap();
    let txn = store.txns().begin();
    let view = table.view(txn.snapshot().clone());
    let ids: Vec<RowId> = scan_ids(&view);
    view.delete(&txn, &ids[1..]).unwrap();
    txn.commit().unwrap();
    drop((view, table, store));
    let (_store, recovered) = open(folder.path());
    let table = &recovered.tables[&TableId(1)];
    let view = table.view(table.store().txns().snapshot());
    assert_eq!(scan_ids(&view).len(), 1);
}

fn scan_ids(view: &TableView) -> Vec<RowId> {
    let scan = view.scan(all(Vec::new())).unwrap();
    let mut ids = Vec::new();
    let mut reader = scan.reader();
    while let Some(batch) = reader.next_batch().unwrap() {
        let found: &UInt64Array = batch.column(3).as_primitive();
        ids.extend(found.values().iter().map(|id| RowId(*id)));
    }
    ids
}

/// A block's rows and the catalogue that it commits with come back together or not at all,
/// wherever the log ends.
#[test]
fn a_catalogue_comes_back_with_the_rows_it_was_committed_with() {
    let folder = tempfile::tempdir().unwrap();
    let (store, _) = open(folder.path());
    let before = create(&store, 10, true);
    load(&before, &[(1, 1, None)]);
    store.commit_catalog(b"10".to_vec()).unwrap();
    // As TRUNCATE and COPY in a block: another table, rows of it, and the catalogue that
    // names it. Much redo, so that the log has a part of it early.
    let block = store.txns().begin_block(Isolation::ReadCommitted);
    let after = create(&store, 11, true);
    put(&after, &block, &wide(0..400, 2));
    put(&after, &block, &[(3, 3, None)]);
    store.checkpoint().unwrap();
    let expected = |rows: usize| (rows, if rows == 0 { "10" } else { "11" }.to_owned());
    let found = |folder: &std::path::Path| {
        let (_store, recovered) = open(folder);
        let catalog = String::from_utf8(recovered.catalog.unwrap()).unwrap();
        assert_eq!(recovered.last_table, Some(TableId(11)));
        assert_eq!(rows_in(&recovered.tables[&TableId(10)]), [(1, 1, None)]);
        (brief(&recovered.tables[&TableId(11)]).len(), catalog)
    };
    let crashed = folder.path().join("open");
    copy(folder.path(), &crashed);
    assert_eq!(
        found(&crashed),
        expected(0),
        "a checkpoint writes what has committed"
    );
    store.commit_block(block, b"11".to_vec()).unwrap();
    drop((store, before, after));
    let log = folder.path().join("log");
    let last = std::fs::read_dir(&log)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .max()
        .unwrap();
    let bytes = std::fs::read(&last).unwrap();
    let mut random = StdRng::seed_from_u64(3);
    let ends = (0..20).map(|_| random.random_range(48..bytes.len()));
    for end in ends.chain([bytes.len() - 1]) {
        std::fs::write(&last, &bytes[..end]).unwrap();
        assert_eq!(found(folder.path()), expected(0), "cut at {end}");
    }
    std::fs::write(&last, &bytes).unwrap();
    assert_eq!(found(folder.path()), expected(400));
}
