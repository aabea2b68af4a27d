//! Tables whose shape changes while a copy has rows of transactions that have not ended; and what a copy
//! enforces once it leads.

use std::collections::BTreeSet;

use aerostat_types::IndexKind;

use super::*;

fn unique_index(name: &str) -> TableIndex {
    TableIndex {
        name: name.to_owned(),
        kind: IndexKind::Hash,
        columns: vec![1],
        unique: true,
        nulls_not_distinct: false,
    }
}

fn caught_up(copy: &mut CopyAt, leader: &TenantStore) {
    let mut random = StdRng::seed_from_u64(1);
    while copy.receive(&mut random) {}
    copy.apply(leader.txns().last_commit());
    assert_eq!(copy.applier.applied(), leader.txns().last_commit());
}

#[test]
fn a_copy_that_leads_enforces_the_indexes_that_it_was_told_of() {
    let world = World::new();
    for key in 0..500 {
        load(
            &world.keyed,
            &[(key, i64::from(key) * 3, Some("x".repeat(50)))],
        );
    }
    world.keyed.freeze().unwrap();
    let mut copy = CopyAt::of(&world.store);
    caught_up(&mut copy, &world.store);
    copy.table(KEYED).freeze().unwrap();
    load(&world.keyed, &[(1_000, 7_000, None)]);
    let txn = world.store.txns().begin();
    world
        .keyed
        .create_index(&txn, unique_index("numbers"))
        .unwrap();
    drop(txn);
    caught_up(&mut copy, &world.store);
    let table = copy.table(KEYED);
    assert_eq!(table.indexes(), [unique_index("numbers")]);
    let statistics = table.statistics();
    assert_eq!(statistics.segments_in_shape, statistics.segments);
    // It is renamed, and another has the old name.
    world.keyed.rename_index("numbers", "old").unwrap();
    caught_up(&mut copy, &world.store);
    assert_eq!(table.indexes(), [unique_index("old")]);
    let CopyAt { store, applier, .. } = copy;
    applier.lead(Epoch(1)).unwrap();
    let insert = |key: i32, number: i64| {
        let txn = store.txns().begin();
        let done = table.insert(&txn, &batch(&table, &[(key, number, None)]));
        done.map(|_| txn.commit().unwrap())
    };
    for taken in [0, 3, 1_497, 7_000] {
        let refused = insert(2_000, taken);
        assert!(
            matches!(refused, Err(StorageError::UniqueViolation { .. })),
            "{taken}: {refused:?}"
        );
    }
    insert(2_000, 1).unwrap();
    let refused = insert(3, 99_999);
    assert!(matches!(refused, Err(StorageError::UniqueViolation { .. })));
}

#[test]
fn rows_of_open_transactions_outlive_changes_of_their_tables() {
    let world = World::new();
    load(&world.keyed, &[(1, 1, None)]);
    let mut copy = CopyAt::of(&world.store);
    let block = world.store.txns().begin_block(Isolation::ReadCommitted);
    let wide = |from: i32| -> Vec<Row> {
        let row = |key| (key, 5, Some("w".repeat(WIDE_BYTES)));
        (from..from + WIDE_ROWS).map(row).collect()
    };
    let insert = |rows: &[Row]| {
        for table in [&world.keyed, &world.bag] {
            let statement = block.statement();
            table.insert(&statement, &batch(table, rows)).unwrap();
            statement.commit().unwrap();
        }
    };
    insert(&wide(100));
    caught_up(&mut copy, &world.store);
    // Room for NULL, another layout, the freezer's and a rewrite of the copy's own.
    world.keyed.accept_nulls(&[1], &CancelToken::new()).unwrap();
    let layout = Layout::parse("(k),(n),(s)").unwrap();
    world.bag.set_layout(&layout).unwrap();
    caught_up(&mut copy, &world.store);
    for id in [KEYED, BAG] {
        copy.table(id).freeze().unwrap();
        copy.table(id).reshape(&CancelToken::new()).unwrap();
    }
    insert(&wide(1_000));
    caught_up(&mut copy, &world.store);
    assert_eq!(rows_of_table(&copy.table(KEYED)), [(1, 1, None)]);
    let copy = copy.reopened(&world.store, &mut StdRng::seed_from_u64(8));
    let mut copy = copy;
    caught_up(&mut copy, &world.store);
    block.commit().unwrap();
    caught_up(&mut copy, &world.store);
    assert_eq!(
        rows_of_table(&copy.table(KEYED)),
        rows_of_table(&world.keyed)
    );
    assert_eq!(rows_of_table(&copy.table(BAG)), rows_of_table(&world.bag));
    assert_eq!(rows_of_table(&world.bag).len(), 2 * WIDE_ROWS as usize);
}

#[test]
fn of_equal_rows_without_a_key_those_end_that_are_committed_or_ones_own() {
    let world = World::new();
    let same: Row = (7, 7, Some("w".repeat(WIDE_BYTES)));
    let many = vec![same.clone(); WIDE_ROWS as usize];
    load(&world.bag, std::slice::from_ref(&same));
    let mut copy = CopyAt::of(&world.store);
    // Somebody has inserted as many equal rows, and takes them back later.
    let open = world.store.txns().begin();
    world.bag.insert(&open, &batch(&world.bag, &many)).unwrap();
    caught_up(&mut copy, &world.store);
    let txn = world.store.txns().begin();
    let view = world.bag.view(txn.snapshot().clone());
    let ids: Vec<RowId> = listed(&view).into_iter().map(|(_, id)| id).collect();
    assert_eq!(view.delete(&txn, &ids).unwrap(), 1);
    txn.commit().unwrap();
    caught_up(&mut copy, &world.store);
    assert_eq!(rows_of_table(&copy.table(BAG)), []);
    open.rollback();
    load(&world.bag, &[(1, 1, None)]);
    caught_up(&mut copy, &world.store);
    assert_eq!(rows_of_table(&copy.table(BAG)), [(1, 1, None)]);
}

#[test]
fn a_copy_without_memory_says_so_and_goes_on_when_it_has_some() {
    let world = World::new();
    for key in 0..200 {
        load(&world.keyed, &[(key, 1, Some("x".repeat(2_000)))]);
    }
    let folder = memory_folder();
    let of = CopyOf {
        timeline: world.store.timeline().unwrap(),
        through: None,
    };
    let options = OpenOptions {
        durability: Durability::None,
        ..options()
    };
    let opened = |memory: &str| {
        let budget = Governor::new(memory.parse().unwrap()).budget("test", None);
        TenantStore::open_copy(TenantId(1), budget, folder.path(), &options, of).unwrap()
    };
    let (store, _, mut applier) = opened("200kB");
    let mut reader = world.store.log_reader(CommitTs(0), nobody()).unwrap();
    while let Some(bytes) = reader.next(10_000).unwrap() {
        store.receive(&bytes).unwrap();
    }
    let last = world.store.txns().last_commit();
    let failed = loop {
        match applier.apply(last) {
            Ok(Progress::More) => {}
            other => break other,
        }
    };
    assert!(
        matches!(
            failed,
            Err(ApplyError::Storage(StorageError::OutOfMemory(_)))
        ),
        "{failed:?}"
    );
    // What was applied is whole, and nothing of the next commit is there.
    let applied = applier.applied();
    let table = Arc::clone(&applier.tables()[&KEYED]);
    assert_eq!(rows_of_table(&table).len() as u64, applied.0 - 2);
    drop((store, applier, table));
    let (_store, recovered, applier) = opened("100MB");
    assert_eq!(applier.applied(), last);
    assert_eq!(rows_of_table(&recovered.tables[&KEYED]).len(), 200);
}

#[test]
fn many_rows_change_in_one_statement_under_keys_of_several_columns_of_text_and_numeric() {
    const ROWS: i64 = 4_000;
    let world = World::new();
    let numeric = SqlType::Numeric {
        precision: 20,
        scale: 4,
    };
    let schema = Arc::new(TableSchema {
        name: "wide".to_owned(),
        columns: vec![
            column("t", SqlType::Text, false),
            column("v", SqlType::BigInt, true),
            column("n", numeric, false),
        ],
        primary_key: vec![2, 0],
        primary_key_name: "wide_pkey".to_owned(),
        checks: Vec::new(),
    });
    let layout = Layout::parse("(t),(v),(n)").unwrap();
    let table = world
        .store
        .create_table(TableId(60), schema, &layout)
        .unwrap();
    let texts: Vec<String> = (0..ROWS)
        .map(|at| format!("{}\0\u{ff}{}", at % 7, "k".repeat((at % 90) as usize)))
        .collect();
    let row = |at: i64, value: i64| {
        [
            ValueRef::Bytes(texts[at as usize].as_bytes()),
            if value % 3 == 0 {
                ValueRef::Null
            } else {
                ValueRef::I64(value)
            },
            ValueRef::I128(i128::from(at / 5 - 300) * 1_001),
        ]
    };
    let mut copy = CopyAt::of(&world.store);
    let mut random = StdRng::seed_from_u64(2);
    let txn = world.store.txns().begin();
    let mut known = BTreeSet::new();
    for at in 0..ROWS {
        let key = (texts[at as usize].clone(), at / 5);
        if known.insert(key) {
            table.insert_row(&txn, &row(at, at)).unwrap();
        }
    }
    txn.commit().unwrap();
    let shown = |table: &Arc<Table>| -> Vec<String> {
        let scan = table.view(table.store().txns().snapshot()).scan(ScanSpec {
            projection: vec![0, 1, 2],
            ..ScanSpec::default()
        });
        let mut reader = scan.unwrap().reader();
        let mut rows = Vec::new();
        while let Some(batch) = reader.next_batch().unwrap() {
            rows.extend(
                (0..batch.num_rows()).map(|at| format!("{:?}", batch.slice(at, 1).columns())),
            );
        }
        rows.sort();
        rows
    };
    // All of them, three times, under open readers, after freezing, with the copy cut off in between.
    for turn in 0..3 {
        let block = world.store.txns().begin_block(Isolation::ReadCommitted);
        let statement = block.statement();
        let view = table.view(statement.snapshot().clone());
        let scan = view.scan(ScanSpec {
            projection: vec![0, 1, 2],
            row_ids: true,
            ..ScanSpec::default()
        });
        let mut reader = scan.unwrap().reader();
        while let Some(found) = reader.next_batch().unwrap() {
            let ids: &UInt64Array = found.column(3).as_primitive();
            let ids: Vec<RowId> = ids.values().iter().map(|id| RowId(*id)).collect();
            let values: Vec<i64> = (0..found.num_rows() as i64).map(|at| at + turn).collect();
            let new = RecordBatch::try_new(
                Arc::clone(table.arrow_schema()),
                vec![
                    Arc::clone(found.column(0)),
                    Arc::new(Int64Array::from(values)),
                    Arc::clone(found.column(2)),
                ],
            );
            assert_eq!(
                view.update(&statement, &ids, &new.unwrap()).unwrap(),
                ids.len() as u64
            );
        }
        statement.commit().unwrap();
        while copy.receive(&mut random) {}
        copy.apply(world.store.txns().last_commit());
        copy = copy.reopened(&world.store, &mut random);
        block.commit().unwrap();
        table.freeze().unwrap();
        caught_up(&mut copy, &world.store);
        let copied = copy.table(TableId(60));
        copied.freeze().unwrap();
        assert_eq!(shown(&copied), shown(&table), "turn {turn}");
        assert_eq!(shown(&table).len(), known.len());
    }
}
