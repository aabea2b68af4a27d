//! Tests of whole tables, with arenas so small that rewrites happen all the time.

mod anomalies;
mod backup;
mod basics;
mod block_recovery;
mod blocks;
mod budget;
mod closing;
mod conflicts;
mod copies;
mod ended;
mod estimate;
mod evict;
mod freeze;
mod indexes;
mod locks;
mod log_room;
mod lookups;
mod mending;
mod model;
mod narrowing;
mod pins;
mod recovery;
mod redefine;
mod references;
mod reshape;
mod simulation;
mod surplus;
mod temporary;
mod threads;
mod updates;
mod vacuum;

use std::{collections::BTreeMap, sync::Arc};

use aerostat_memory::Governor;
use aerostat_txn::Snapshot;
use aerostat_types::{ByteSize, Column, Layout, SqlType, TableId, TableSchema, TenantId};
use arrow_array::{
    Array, ArrayRef, Int32Array, Int64Array, RecordBatch, StringViewArray, UInt64Array,
    cast::AsArray, types::*,
};

use crate::{store::arena::ArenaSizes, *};

/// Some rows of the test table fill the smallest of these.
pub(crate) const TINY: [usize; 3] = [16 << 10, 24 << 10, 48 << 10];

/// A row of the test table: key, number, text.
pub(crate) type Row = (i32, i64, Option<String>);

pub(crate) fn tenant(memory: &str, sizes: ArenaSizes) -> Arc<TenantStore> {
    let memory: ByteSize = memory.parse().unwrap();
    TenantStore::with_arena_sizes(
        TenantId(1),
        Governor::new(memory).budget("test", None),
        sizes,
    )
}

/// In memory where there is such a place: these tests wait for the disk often.
pub(crate) fn memory_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

pub(crate) fn column(name: &str, ty: SqlType, nullable: bool) -> Column {
    Column {
        name: name.to_owned(),
        ty,
        nullable,
        default: None,
    }
}

pub(crate) fn schema(keyed: bool) -> Arc<TableSchema> {
    Arc::new(TableSchema {
        name: "t".to_owned(),
        columns: vec![
            column("k", SqlType::Integer, false),
            column("n", SqlType::BigInt, false),
            column("s", SqlType::Text, true),
        ],
        primary_key: if keyed { vec![0] } else { Vec::new() },
        primary_key_name: "t_pkey".to_owned(),
        checks: Vec::new(),
    })
}

pub(crate) fn table(store: &Arc<TenantStore>, layout: &str) -> Arc<Table> {
    store
        .create_table(TableId(7), schema(true), &Layout::parse(layout).unwrap())
        .unwrap()
}

pub(crate) fn tiny_table() -> Arc<Table> {
    table(&tenant("1GB", ArenaSizes::of(&TINY)), "(k,s),(n)")
}

pub(crate) fn batch(table: &Table, rows: &[Row]) -> RecordBatch {
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int32Array::from_iter_values(rows.iter().map(|row| row.0))),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.1))),
        Arc::new(StringViewArray::from_iter(
            rows.iter().map(|row| row.2.as_deref()),
        )),
    ];
    RecordBatch::try_new(Arc::clone(table.arrow_schema()), columns).unwrap()
}

/// A row's values, as storage takes those of a single row.
pub(crate) fn values(row: &Row) -> [ValueRef<'_>; 3] {
    let text = row.2.as_ref();
    [
        ValueRef::I32(row.0),
        ValueRef::I64(row.1),
        text.map_or(ValueRef::Null, |text| ValueRef::Bytes(text.as_bytes())),
    ]
}

/// Inserts and commits.
pub(crate) fn load(table: &Table, rows: &[Row]) {
    let txn = table.store().txns().begin();
    assert_eq!(
        table.insert(&txn, &batch(table, rows)).unwrap(),
        rows.len() as u64
    );
    txn.commit().unwrap();
}

pub(crate) fn rows_of(batch: &RecordBatch) -> Vec<Row> {
    let (keys, numbers) = (
        batch.column(0).as_primitive::<Int32Type>(),
        batch.column(1).as_primitive::<Int64Type>(),
    );
    let texts = batch.column(2).as_string_view();
    (0..batch.num_rows())
        .map(|row| {
            let text = texts.is_valid(row).then(|| texts.value(row).to_owned());
            (keys.value(row), numbers.value(row), text)
        })
        .collect()
}

pub(crate) fn all(predicates: Vec<Predicate>) -> ScanSpec {
    ScanSpec {
        projection: vec![0, 1, 2],
        predicates,
        row_ids: true,
        ..ScanSpec::default()
    }
}

/// What a scan gives, with row ids, by key; no key comes twice.
pub(crate) fn scan(view: &TableView, predicates: Vec<Predicate>) -> BTreeMap<i32, (Row, RowId)> {
    let scan = view.scan(all(predicates)).unwrap();
    let mut found = BTreeMap::new();
    let mut reader = scan.reader();
    while let Some(batch) = reader.next_batch().unwrap() {
        assert!(batch.num_rows() > 0);
        let ids: &UInt64Array = batch.column(3).as_primitive();
        for (row, id) in rows_of(&batch).into_iter().zip(ids.values()) {
            let twice = found.insert(row.0, (row, RowId(*id)));
            assert!(twice.is_none(), "key seen twice: {twice:?}");
        }
    }
    found
}

pub(crate) fn contents(table: &Arc<Table>, snapshot: Snapshot) -> Vec<Row> {
    scan(&table.view(snapshot), Vec::new())
        .into_values()
        .map(|(row, _)| row)
        .collect()
}

pub(crate) fn now(table: &Arc<Table>) -> Vec<Row> {
    contents(table, table.store().txns().snapshot())
}

pub(crate) fn compare(attribute: usize, op: CompareOp, value: i128) -> Predicate {
    Predicate::Compare {
        attribute,
        op,
        value: Literal::Int(value),
    }
}

pub(crate) fn key(table: &Table, value: i32) -> Key {
    table.key(&[Literal::Int(value.into())]).unwrap()
}
