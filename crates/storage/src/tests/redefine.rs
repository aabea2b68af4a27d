//! The same rows under other definitions.

use super::{recovery::open, *};

/// The test table's definition with other names, and NULL where it is said.
fn renamed(table: &Table, names: [&str; 3], nullable: [bool; 3]) -> Arc<TableSchema> {
    let mut schema = TableSchema::clone(table.schema());
    schema.name = "u".to_owned();
    for (column, (name, nullable)) in schema.columns.iter_mut().zip(names.iter().zip(nullable)) {
        (*name).clone_into(&mut column.name);
        column.nullable = nullable;
    }
    Arc::new(schema)
}

/// A row without a number.
fn without_number(table: &Table, key: i32) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from(vec![key])),
        Arc::new(Int64Array::from(vec![None])),
        Arc::new(StringViewArray::from(vec![Some("n")])),
    ];
    let nullable = table.arrow_schema().fields().iter();
    let nullable: Vec<_> = nullable
        .map(|field| field.as_ref().clone().with_nullable(true))
        .collect();
    RecordBatch::try_new(Arc::new(arrow_schema::Schema::new(nullable)), columns).unwrap()
}

/// How many rows have no number.
fn missing(table: &Arc<Table>) -> usize {
    let view = table.view(table.store().txns().snapshot());
    let scan = view
        .scan(ScanSpec {
            projection: vec![1],
            ..ScanSpec::default()
        })
        .unwrap();
    let mut count = 0;
    let mut reader = scan.reader();
    while let Some(batch) = reader.next_batch().unwrap() {
        count += batch.column(0).null_count();
    }
    count
}

fn put_without_number(table: &Arc<Table>, key: i32) {
    let txn = table.store().txns().begin();
    table.insert(&txn, &without_number(table, key)).unwrap();
    txn.commit().unwrap();
}

fn refused(table: &Arc<Table>, batch: &RecordBatch) -> String {
    let txn = table.store().txns().begin();
    let error = table.insert(&txn, batch).unwrap_err();
    txn.rollback();
    error.to_string()
}

#[test]
fn both_definitions_have_the_same_rows() {
    let table = tiny_table();
    load(&table, &[(1, 1, None)]);
    let other = table.redefined(renamed(&table, ["x", "y", "z"], [false, false, false]));
    assert!(other.is_redefined() && !table.is_redefined());
    // What is there is not asked.
    assert_eq!(now(&other), [(1, 1, None)]);
    load(&other, &[(2, 2, Some("two".to_owned()))]);
    load(&table, &[(3, 3, None)]);
    assert_eq!(now(&table), now(&other));
    assert_eq!(now(&table).len(), 3);
    assert_eq!(
        refused(&other, &batch(&table, &[(4, 4, None)])),
        "null value in column \"z\" of relation \"u\" violates not-null constraint"
    );
    assert_eq!(
        refused(&other, &without_number(&table, 4)),
        "null value in column \"y\" of relation \"u\" violates not-null constraint"
    );
    assert_eq!(table.layout().to_string(), "(k,s),(n)");
    assert_eq!(other.layout().to_string(), "(x,z),(y)");
    other.set_layout(&Layout::parse("(z,y)").unwrap()).unwrap();
    assert_eq!(table.layout().to_string(), "(s,n)");
    other.reshape(&aerostat_txn::CancelToken::new()).unwrap();
    assert_eq!(now(&table), now(&other));
}

/// A transaction that wrote under a definition that nobody has any more is stamped all the same.
#[test]
fn a_definition_may_go_before_the_transaction() {
    let table = tiny_table();
    let other = table.redefined(renamed(&table, ["x", "y", "z"], [false, false, true]));
    let txn = table.store().txns().begin();
    other.insert(&txn, &batch(&table, &[(1, 1, None)])).unwrap();
    drop(other);
    txn.commit().unwrap();
    assert_eq!(now(&table), [(1, 1, None)]);
}

#[test]
fn room_for_null_is_made_in_every_segment() {
    let table = tiny_table();
    let rows: Vec<Row> = (0..400).map(|k| (k * 2, i64::from(k), None)).collect();
    load(&table, &rows[..200]);
    table.freeze().unwrap();
    load(&table, &rows[200..]);
    load(&table, &[(1, 1, None)]);
    let cancel = aerostat_txn::CancelToken::new();
    table.accept_nulls(&[1], &cancel).unwrap();
    // Under the old definition the column refuses NULL as before.
    assert!(refused(&table, &without_number(&table, 3)).starts_with("null value"));
    let other = table.redefined(renamed(&table, ["k", "n", "s"], [false, true, true]));
    for key in [3, 401, 1_001] {
        put_without_number(&other, key);
    }
    assert_eq!(missing(&other), 3);
    // An older definition does not take the room away.
    table.set_layout(&Layout::Row).unwrap();
    table.reshape(&cancel).unwrap();
    table.freeze().unwrap();
    assert_eq!((missing(&other), now(&other).len()), (3, 404));
    other.accept_nulls(&[1], &cancel).unwrap();
    assert!(other.redefined(Arc::clone(table.schema())).is_redefined());
}

#[test]
fn room_for_null_is_there_after_a_restart() {
    let folder = memory_folder();
    let id = TableId(3);
    {
        let (store, _) = open(folder.path());
        let table = store
            .create_table(id, schema(true), &Layout::Column)
            .unwrap();
        load(
            &table,
            &(0..300).map(|k| (k, 1, None)).collect::<Vec<Row>>(),
        );
        table.freeze().unwrap();
        // Frozen before there was room: its image says how it is to be read.
        store.checkpoint().unwrap();
        let cancel = aerostat_txn::CancelToken::new();
        table.accept_nulls(&[1], &cancel).unwrap();
        let other = table.redefined(renamed(&table, ["a", "b", "c"], [false, true, true]));
        put_without_number(&other, 1_000);
        // One that refuses it again says so of rows to come alone.
        let again = other.redefined(renamed(&table, ["a", "b", "c"], [false, false, true]));
        again.set_layout(&Layout::parse("(c,b)").unwrap()).unwrap();
        assert!(refused(&again, &without_number(&again, 1_001)).starts_with("null value"));
    }
    for _ in 0..2 {
        let (store, recovered) = open(folder.path());
        let table = &recovered.tables[&id];
        assert!(!table.is_redefined());
        assert_eq!((missing(table), now(table).len()), (1, 301));
        // Names are the catalogue's to keep: those of a definition that was never committed
        // are nobody's.
        assert_eq!(table.schema().names(), ["k", "n", "s"]);
        assert_eq!(table.layout().to_string(), "(s,n)");
        store.checkpoint().unwrap();
    }
}

#[test]
#[should_panic(expected = "the same types and key")]
fn another_type_is_another_table() {
    let table = tiny_table();
    let mut schema = TableSchema::clone(table.schema());
    schema.columns[1].ty = SqlType::Integer;
    table.redefined(Arc::new(schema));
}
