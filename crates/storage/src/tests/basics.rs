//! The promises of tables, one by one.

use arrow_array::StringArray;

use super::*;

fn numbered(keys: impl IntoIterator<Item = i32>) -> Vec<Row> {
    keys.into_iter()
        .map(|key| (key, i64::from(key) * 2, Some(format!("row {key}"))))
        .collect()
}

#[test]
fn rows_come_back_in_any_layout_and_order_of_arrival() {
    for layout in ["row", "column", "(s,n),(k)"] {
        let table = table(&tenant("1GB", ArenaSizes::of(&TINY)), layout);
        // Ascending, descending, and between.
        load(&table, &numbered((3_000..6_000).step_by(2)));
        load(&table, &numbered((0..3_000).rev()));
        load(&table, &numbered((3_001..6_000).step_by(2)));
        assert_eq!(now(&table), numbered(0..6_000), "{layout}");
        let statistics = table.statistics();
        assert_eq!((statistics.rows, statistics.rows_dead), (6_000, 0));
        assert!(statistics.segments > 3, "{statistics:?}");
        let text: usize = numbered(0..6_000)
            .iter()
            .map(|row| row.2.as_ref().unwrap().len())
            .sum();
        let raw = 6_000 * 12 + text as u64;
        assert!(
            statistics.bytes_raw.abs_diff(raw) <= statistics.segments * 100,
            "{statistics:?}, {raw} raw"
        );
        assert!(statistics.bytes_used >= raw && statistics.bytes_used <= statistics.bytes_reserved);
    }
}

#[test]
fn ascending_loads_fill_segments_and_small_tables_stay_small() {
    let store = tenant("1GB", ArenaSizes::default());
    let table = table(&store, "column");
    load(&table, &numbered(0..1));
    assert!(
        store.budget().used() <= 64 << 10,
        "{}",
        store.budget().used()
    );
    for first in (1..60_000).step_by(6_000) {
        load(&table, &numbered(first..first + 6_000));
    }
    let statistics = table.statistics();
    assert_eq!(statistics.rows, 60_001);
    assert!(statistics.segments <= 6, "{statistics:?}");
    // Key index 4.7, slots 20, and the inserting transactions' stamps where blocks vary.
    assert!(
        statistics.bytes_used < statistics.bytes_raw * 2,
        "{statistics:?}"
    );
}

#[test]
fn tables_without_a_key_take_rows_twice() {
    let store = tenant("1GB", ArenaSizes::of(&TINY));
    let table = store
        .create_table(TableId(8), schema(false), &Layout::Row)
        .unwrap();
    assert!(table.key(&[]).is_none());
    for _ in 0..30 {
        load(&table, &numbered(0..100));
    }
    let view = table.view(store.txns().snapshot());
    let scan = view
        .scan(ScanSpec {
            projection: vec![],
            batch_rows: 64,
            ..ScanSpec::default()
        })
        .unwrap();
    let mut rows = 0;
    let mut reader = scan.reader();
    while let Some(batch) = reader.next_batch().unwrap() {
        assert!(batch.num_rows() <= 64);
        rows += batch.num_rows();
    }
    assert_eq!((rows, table.statistics().rows), (3_000, 3_000));
    let limited = view
        .scan(ScanSpec {
            limit: Some(101),
            ..all(vec![])
        })
        .unwrap();
    let mut reader = limited.reader();
    let batches = std::iter::from_fn(|| reader.next_batch().unwrap()).collect::<Vec<_>>();
    assert_eq!(
        batches.iter().map(RecordBatch::num_rows).sum::<usize>(),
        101
    );
    let read = limited.counts().rows_scanned;
    assert!(read < 3_000, "the limit stopped the scan early");
}

#[test]
fn what_does_not_fit_is_refused_in_postgresqls_words() {
    let table = tiny_table();
    let insert = |rows: &[Row]| {
        let txn = table.store().txns().begin();
        table
            .insert(&txn, &batch(&table, rows))
            .map(|_| txn.commit().unwrap())
    };
    insert(&numbered([5])).unwrap();
    let error = insert(&numbered([7, 5, 6])).unwrap_err();
    assert_eq!(
        error.to_string(),
        r#"duplicate key value violates unique constraint "t_pkey""#
    );
    assert!(
        matches!(error, StorageError::UniqueViolation { detail, .. } if detail == "Key (k)=(5) already exists.")
    );
    let error = insert(&numbered([9, 8, 9])).unwrap_err();
    assert!(
        matches!(error, StorageError::UniqueViolation { detail, .. } if detail == "Key (k)=(9) already exists.")
    );
    let error = insert(&[(1, 0, Some("x".repeat(30_000)))]).unwrap_err();
    assert!(
        matches!(error, StorageError::RowTooWide { .. }),
        "{error:?}"
    );
    let insert_row = |values: &[ValueRef<'_>]| {
        let txn = table.store().txns().begin();
        table.insert_row(&txn, values).unwrap_err()
    };
    let error = insert_row(&values(&numbered([5])[0]));
    assert!(
        matches!(error, StorageError::UniqueViolation { detail, .. } if detail == "Key (k)=(5) already exists.")
    );
    let error = insert_row(&values(&(1, 0, Some("x".repeat(30_000)))));
    assert!(
        matches!(error, StorageError::RowTooWide { .. }),
        "{error:?}"
    );
    let error = insert_row(&[ValueRef::I32(6), ValueRef::Null, ValueRef::Null]);
    assert!(
        matches!(&error, StorageError::NotNull { column, .. } if column == "n"),
        "{error:?}"
    );
    assert_eq!(now(&table), numbered([5]));

    let txn = table.store().txns().begin();
    let nulls: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from(vec![1])),
        Arc::new(Int64Array::from(vec![None])),
        Arc::new(StringArray::from(vec!["an older string type"])),
    ];
    let fields: Vec<_> = ["k", "n", "s"]
        .iter()
        .zip(&nulls)
        .map(|(name, array)| (*name, Arc::clone(array), true))
        .collect();
    let error = table
        .insert(
            &txn,
            &RecordBatch::try_from_iter_with_nullable(fields).unwrap(),
        )
        .unwrap_err();
    assert!(matches!(error, StorageError::NotNull { column, .. } if column == "n"));

    let store = table.store();
    let wide = TableSchema {
        columns: (0..=COLUMNS_MAX)
            .map(|at| column(&format!("c{at}"), SqlType::Integer, true))
            .collect(),
        primary_key: Vec::new(),
        ..(*schema(false)).clone()
    };
    let error = store
        .create_table(TableId(9), Arc::new(wide), &Layout::Row)
        .err()
        .unwrap();
    assert!(matches!(
        error,
        StorageError::TooManyColumns { columns: 1_601 }
    ));
    let error = store
        .create_table(TableId(9), schema(true), &Layout::parse("(z)").unwrap())
        .err()
        .unwrap();
    assert!(matches!(error, StorageError::Layout(_)));
}

/// Two versions of the widest row fit one arena; further rows get arenas of their own.
#[test]
fn the_widest_rows_can_be_inserted_around_each_other_and_updated() {
    let table = tiny_table();
    let wide = |key: i32, letter: &str| {
        (
            key,
            0,
            Some(letter.repeat(table.shape().row_bytes_max - 20)),
        )
    };
    for (at, key) in [50, 10, 90, 30, 70].into_iter().enumerate() {
        load(&table, &[wide(key, "a")]);
        assert_eq!(now(&table).len(), at + 1);
    }
    for key in [10, 30, 50, 70, 90] {
        let txn = table.store().txns().begin();
        let view = table.view(txn.snapshot().clone());
        let id = view
            .lookup(KeyRef(&super::key(&table, key)))
            .unwrap()
            .unwrap();
        assert_eq!(
            view.update(&txn, &[id], &batch(&table, &[wide(key, "b")]))
                .unwrap(),
            1
        );
        txn.commit().unwrap();
    }
    assert!(
        now(&table)
            .iter()
            .all(|row| row.2.as_ref().unwrap().starts_with('b'))
    );
}

#[test]
fn a_changed_row_is_a_conflict_and_keys_can_be_swapped() {
    let table = tiny_table();
    load(&table, &numbered([1, 2, 3]));
    let txns = table.store().txns();
    let (early, late) = (txns.begin(), txns.begin());
    let view = table.view(early.snapshot().clone());
    let ids = [1, 2].map(|wanted| view.lookup(KeyRef(&key(&table, wanted))).unwrap().unwrap());
    // Twice in the list is once; the new rows have each other's keys.
    let new = batch(&table, &numbered([2, 1, 9]));
    assert_eq!(
        view.update(&early, &[ids[0], ids[1], ids[0]], &new)
            .unwrap(),
        2
    );
    assert_eq!(
        view.delete(&early, &ids).unwrap(),
        0,
        "its own statement has ended them"
    );
    early.commit().unwrap();
    assert_eq!(now(&table), numbered([1, 2, 3]));
    let view = table.view(late.snapshot().clone());
    let third = view.lookup(KeyRef(&key(&table, 3))).unwrap().unwrap();
    assert_eq!(view.delete(&late, &[third]).unwrap(), 1);
    assert!(matches!(
        view.delete(&late, &[ids[1]]),
        Err(StorageError::Conflict)
    ));
    late.rollback();
    assert_eq!(now(&table), numbered([1, 2, 3]));
}

#[test]
fn a_key_that_changes_often_keeps_one_version_per_snapshot() {
    let table = tiny_table();
    load(&table, &[(1, 0, None)]);
    let oldest = table.view(table.store().txns().snapshot());
    for n in 1..3_000 {
        let txn = table.store().txns().begin();
        let view = table.view(txn.snapshot().clone());
        let id = view.lookup(KeyRef(&key(&table, 1))).unwrap().unwrap();
        view.update(&txn, &[id], &batch(&table, &[(1, n, None)]))
            .unwrap();
        txn.commit().unwrap();
    }
    assert_eq!(
        rows_of(
            &oldest
                .scan(all(vec![]))
                .unwrap()
                .reader()
                .next_batch()
                .unwrap()
                .unwrap()
        ),
        [(1, 0, None)]
    );
    assert_eq!(now(&table), [(1, 2_999, None)]);
    assert_eq!(table.statistics().segments, 1);
    assert_eq!(table.statistics().rows, 1);
}

/// All versions of a key stay in one segment; when no more fit, that is an error
/// until a snapshot is dropped.
#[test]
fn versions_of_a_key_stay_together_and_may_crowd() {
    let table = tiny_table();
    let text = |n: i64| Some(format!("{n:01000}"));
    load(
        &table,
        &(0..9).map(|key| (key, 0, text(0))).collect::<Vec<_>>(),
    );
    let mut pinned = vec![table.store().txns().snapshot()];
    let mut update = |n: i64| {
        let txn = table.store().txns().begin();
        let view = table.view(txn.snapshot().clone());
        let id = view.lookup(KeyRef(&key(&table, 5))).unwrap().unwrap();
        view.update(&txn, &[id], &batch(&table, &[(5, n, text(n))]))?;
        txn.commit().unwrap();
        pinned.push(table.store().txns().snapshot());
        for (n, snapshot) in (0..).zip(&pinned) {
            let view = table.view(snapshot.clone());
            let id = view
                .lookup(KeyRef(&key(&table, 5)))
                .unwrap()
                .expect("every snapshot finds its version");
            assert_eq!(
                rows_of(&view.fetch(&[id], &[0, 1, 2]).unwrap()),
                [(5, n, text(n))]
            );
        }
        Ok::<_, StorageError>(())
    };
    let crowded = (1..100).find_map(|n| update(n).err().map(|error| (n, error)));
    let Some((versions, StorageError::KeyCrowded { .. })) = crowded else {
        panic!("{crowded:?}")
    };
    assert!(
        versions > 30,
        "{versions} versions of 1 kB in an arena of 48 kB"
    );
    assert!(table.statistics().segments > 1);
    pinned.clear();
    load(&table, &[(9, 0, text(0))]);
    let txn = table.store().txns().begin();
    let view = table.view(txn.snapshot().clone());
    let id = view.lookup(KeyRef(&key(&table, 5))).unwrap().unwrap();
    assert_eq!(
        view.update(&txn, &[id], &batch(&table, &[(5, -1, None)]))
            .unwrap(),
        1
    );
    txn.commit().unwrap();
    assert_eq!(now(&table)[5], (5, -1, None));
}
