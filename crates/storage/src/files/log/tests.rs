//! Bytes that come back unchanged, bytes that do not, and full disks.

use std::panic::{AssertUnwindSafe, catch_unwind};

use aerostat_memory::Governor;
use aerostat_segment::{NewRows, ValueRef};
use aerostat_txn::CommitError;
use aerostat_types::{Layout, Physical, SqlType, TableId, TenantId};
use arrow_array::{
    Array, ArrayRef, BinaryViewArray, BooleanArray, Date32Array, Decimal128Array,
    FixedSizeBinaryArray, Float32Array, Float64Array, Int16Array, Int32Array, Int64Array,
    IntervalMonthDayNanoArray, RecordBatch, StringArray, StringViewArray, Time64MicrosecondArray,
    TimestampMicrosecondArray, cast::AsArray,
};
use arrow_buffer::IntervalMonthDayNano;
use proptest::prelude::*;
use rand::{Rng, SeedableRng, rngs::StdRng};

use super::{
    record::{self, Head, Kind},
    redo, *,
};
use crate::{
    OpenOptions, StorageError, TenantStore,
    files::codec::{self, RowBuffer},
};

const TYPES: [SqlType; 18] = [
    SqlType::Boolean,
    SqlType::SmallInt,
    SqlType::Integer,
    SqlType::BigInt,
    SqlType::Real,
    SqlType::Double,
    SqlType::Numeric {
        precision: 12,
        scale: 2,
    },
    SqlType::Numeric {
        precision: 30,
        scale: 5,
    },
    SqlType::Char(9),
    SqlType::Varchar(None),
    SqlType::Text,
    SqlType::Bytea,
    SqlType::Uuid,
    SqlType::Date,
    SqlType::Time,
    SqlType::Timestamp,
    SqlType::TimestampTz,
    SqlType::Interval,
];

/// A column of random values, some NULL.
fn column(ty: SqlType, seeds: &[Option<i64>]) -> ArrayRef {
    let text = |n: i64| "é".repeat(n.rem_euclid(20) as usize);
    let each = || seeds.iter().copied();
    match ty {
        SqlType::Boolean => Arc::new(BooleanArray::from_iter(
            each().map(|n| n.map(|n| n % 2 == 0)),
        )),
        SqlType::SmallInt => Arc::new(Int16Array::from_iter(each().map(|n| n.map(|n| n as i16)))),
        SqlType::Integer => Arc::new(Int32Array::from_iter(each().map(|n| n.map(|n| n as i32)))),
        SqlType::BigInt => Arc::new(Int64Array::from_iter(each())),
        SqlType::Real => Arc::new(Float32Array::from_iter(each().map(|n| n.map(|n| n as f32)))),
        SqlType::Double => Arc::new(Float64Array::from_iter(each().map(|n| n.map(|n| n as f64)))),
        SqlType::Numeric { .. } => Arc::new(
            Decimal128Array::from_iter(each().map(|n| n.map(i128::from)))
                .with_data_type(ty.arrow()),
        ),
        SqlType::Char(_) | SqlType::Text => {
            Arc::new(StringViewArray::from_iter(each().map(|n| n.map(text))))
        }
        SqlType::Varchar(_) => Arc::new(StringArray::from_iter(each().map(|n| n.map(text)))),
        SqlType::Bytea => {
            Arc::new(BinaryViewArray::from_iter(each().map(|n| {
                n.map(|n| n.to_le_bytes().repeat(n.rem_euclid(4) as usize))
            })))
        }
        SqlType::Uuid => Arc::new(
            FixedSizeBinaryArray::try_from_sparse_iter_with_size(
                each().map(|n| n.map(|n| [n.to_le_bytes(), n.to_be_bytes()].concat())),
                16,
            )
            .unwrap(),
        ),
        SqlType::Date => Arc::new(Date32Array::from_iter(each().map(|n| n.map(|n| n as i32)))),
        SqlType::Time => Arc::new(Time64MicrosecondArray::from_iter(each())),
        SqlType::Timestamp | SqlType::TimestampTz => {
            Arc::new(TimestampMicrosecondArray::from_iter(each()).with_data_type(ty.arrow()))
        }
        SqlType::Interval => Arc::new(IntervalMonthDayNanoArray::from_iter(
            each().map(|n| n.map(|n| IntervalMonthDayNano::new(n as i32, -7, n))),
        )),
    }
}

/// The only value of a column.
fn value(ty: SqlType, column: &ArrayRef) -> ValueRef<'_> {
    if column.is_null(0) {
        return ValueRef::Null;
    }
    macro_rules! primitive {
        ($array:ty => $variant:ident) => {{
            let array = column.as_any().downcast_ref::<$array>().unwrap();
            ValueRef::$variant(array.value(0))
        }};
    }
    match ty {
        SqlType::Boolean => ValueRef::Bool(column.as_boolean().value(0)),
        SqlType::SmallInt => primitive!(Int16Array => I16),
        SqlType::Integer => primitive!(Int32Array => I32),
        SqlType::BigInt => primitive!(Int64Array => I64),
        SqlType::Real => primitive!(Float32Array => F32),
        SqlType::Double => primitive!(Float64Array => F64),
        SqlType::Numeric { .. } => match (ty.physical(), primitive!(Decimal128Array => I128)) {
            (Physical::I64, ValueRef::I128(value)) => ValueRef::I64(value as i64),
            (_, value) => value,
        },
        SqlType::Char(_) | SqlType::Text => {
            ValueRef::Bytes(column.as_string_view().value(0).as_bytes())
        }
        SqlType::Varchar(_) => ValueRef::Bytes(column.as_string::<i32>().value(0).as_bytes()),
        SqlType::Bytea => ValueRef::Bytes(column.as_binary_view().value(0)),
        SqlType::Uuid => {
            let bytes = column.as_fixed_size_binary().value(0);
            ValueRef::Bytes16(bytes.try_into().unwrap())
        }
        SqlType::Date => primitive!(Date32Array => I32),
        SqlType::Time => primitive!(Time64MicrosecondArray => I64),
        SqlType::Timestamp | SqlType::TimestampTz => {
            primitive!(TimestampMicrosecondArray => I64)
        }
        SqlType::Interval => primitive!(IntervalMonthDayNanoArray => Interval),
    }
}

fn rows() -> impl Strategy<Value = Vec<Vec<Option<i64>>>> {
    (0..60_usize).prop_flat_map(|rows| {
        let column = prop_oneof![
            prop::collection::vec(any::<i64>().prop_map(Some), rows),
            prop::collection::vec(any::<Option<i64>>(), rows),
        ];
        prop::collection::vec(column, TYPES.len())
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rows_come_back(seeds in rows(), cut in 0.0..=1.0) {
        let columns: Vec<ArrayRef> =
            TYPES.iter().zip(&seeds).map(|(ty, seeds)| column(*ty, seeds)).collect();
        let count = seeds[0].len();
        // In two parts, as of two commits, into one buffer.
        let middle = (count as f64 * cut) as usize;
        let mut buffer = RowBuffer::new(&TYPES);
        for part in [0..middle, middle..count] {
            let mut bytes = Vec::new();
            codec::encode(&TYPES, &columns, part.clone(), &mut bytes);
            buffer.decode(part.len(), &bytes).unwrap();
        }
        prop_assert_eq!(buffer.rows(), count);
        let decoded = buffer.finish().unwrap();
        let (mut before, mut after) = (Vec::new(), Vec::new());
        codec::encode(&TYPES, &columns, 0..count, &mut before);
        codec::encode(&TYPES, &decoded, 0..count, &mut after);
        for (column, decoded) in columns.iter().zip(&decoded) {
            prop_assert_eq!(column.nulls().map_or(0, |n| n.null_count()), decoded.null_count());
            if column.data_type() == decoded.data_type() && column.null_count() == 0 {
                prop_assert_eq!(column, decoded);
            }
        }
        prop_assert_eq!(before.len(), after.len());
    }

    #[test]
    fn a_row_is_columns_of_one_value(seeds in prop::collection::vec(any::<Option<i64>>(), TYPES.len())) {
        let columns: Vec<ArrayRef> =
            TYPES.iter().zip(&seeds).map(|(ty, seed)| column(*ty, &[*seed])).collect();
        let values: Vec<ValueRef<'_>> = TYPES
            .iter()
            .zip(&columns)
            .map(|(ty, column)| value(*ty, column))
            .collect();
        prop_assert_eq!(
            redo::insert(TableId(1), &TYPES, NewRows::Row(&values), 0..1),
            redo::insert(TableId(1), &TYPES, NewRows::from(&columns), 0..1)
        );
    }

    #[test]
    fn hostile_bytes_are_an_error_or_rows(
        seeds in rows(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
        claimed in prop_oneof![0..100_usize, any::<usize>()],
    ) {
        let columns: Vec<ArrayRef> =
            TYPES.iter().zip(&seeds).map(|(ty, seeds)| column(*ty, seeds)).collect();
        let mut bytes = redo::insert(TableId(1), &TYPES, NewRows::from(&columns), 0..seeds[0].len());
        bytes.extend(redo::end_keys(TableId(1), [b"key".as_slice(), b"other"].into_iter()));
        let mut frame = Vec::new();
        let head = Head { kind: Kind::Commit, lsn: CommitTs(9), txn: TxnId(8), wall_micros: 7 };
        record::put(&head, 40, &bytes, &mut frame);
        prop_assert_eq!(record::parse(&frame).unwrap().0.head, head);
        for (at, value) in &flips {
            let (at, in_frame) = (at.index(bytes.len()), at.index(frame.len()));
            bytes[at] ^= value;
            frame[in_frame] ^= value;
        }
        for operation in redo::operations(&bytes).map_while(Result::ok) {
            let _ = redo::keys(&operation);
            let mut buffer = RowBuffer::new(&TYPES);
            if buffer.decode(operation.rows, operation.body).is_ok() {
                let _ = buffer.finish();
            }
            let mut buffer = RowBuffer::new(&TYPES);
            prop_assert!(claimed < 100 || buffer.decode(claimed, operation.body).is_err());
        }
        let changed = flips.iter().any(|(_, value)| *value != 0);
        if let Some((record, _)) = record::parse(&frame) {
            prop_assert!(!changed || record.head == head, "a checksum misses a few flips never");
        }
        frame.truncate(cut.index(frame.len()));
        prop_assert!(record::parse(&frame).is_none());
    }

    #[test]
    fn a_block_names_its_statements_behind_its_redo(
        redo in prop::collection::vec(any::<u8>(), 0..40),
        ids in prop::collection::vec(any::<u64>().prop_map(TxnId), 0..20),
        hostile in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let mut payload = redo.clone();
        record::put_parts(&ids, &mut payload);
        let (found, parts) = record::parts(&payload).unwrap();
        prop_assert_eq!(found, &redo[..]);
        prop_assert_eq!(parts.collect::<Vec<_>>(), ids);
        if let Ok((redo, parts)) = record::parts(&hostile) {
            prop_assert_eq!(redo.len() + parts.count() * 8 + 4, hostile.len());
        }
        let block = payload.clone();
        record::put_catalog(&hostile, &mut payload);
        let head = Head { kind: Kind::Defining, lsn: CommitTs(9), txn: TxnId(8), wall_micros: 7 };
        let record = record::Record { head, synced: 0, payload: &payload };
        prop_assert_eq!(record::redo(&record).unwrap(), &redo[..]);
        prop_assert_eq!(record::catalog(&payload).unwrap(), (&block[..], &hostile[..]));
        if let Ok((block, catalog)) = record::catalog(&hostile) {
            prop_assert_eq!(block.len() + catalog.len() + 4, hostile.len());
        }
    }
}

/// A torn tail of values that were chosen to look like records, each to the end of the file:
/// whether one is valid is not asked of all.
#[test]
fn values_that_look_like_records_are_no_torn_tail() {
    let offset = 100;
    let mut bytes = vec![0; offset + (1 << 20)];
    let end = bytes.len();
    for at in (offset + record::HEAD_BYTES..end - record::HEAD_BYTES).step_by(record::HEAD_BYTES) {
        let mut head = Vec::new();
        let commit = Head {
            kind: Kind::Commit,
            lsn: CommitTs(9),
            txn: TxnId(8),
            wall_micros: 7,
        };
        record::put(&commit, offset as u32 + 1, &[], &mut head);
        let length = (end - at - record::HEAD_BYTES) as u32;
        head[..4].copy_from_slice(&length.to_le_bytes());
        bytes[at..at + head.len()].copy_from_slice(&head);
    }
    assert!(record::proves_damage(&bytes, offset));
    // A few of them are looked at, and are no records.
    let few = &bytes[..offset + 4 * record::HEAD_BYTES];
    assert!(!record::proves_damage(few, offset));
    bytes[offset..].fill(0);
    assert!(!record::proves_damage(&bytes, offset));
}

fn table(folder: &Path) -> (Arc<TenantStore>, Arc<crate::Table>) {
    let budget = Governor::new("1GB".parse().unwrap()).budget("test", None);
    let options = OpenOptions::default();
    let (store, _) = TenantStore::open(TenantId(1), budget, folder, &options).unwrap();
    let schema = crate::tests::schema(true);
    let table = store
        .create_table(TableId(7), schema, &Layout::Row)
        .unwrap();
    (store, table)
}

#[test]
fn a_full_disk_refuses_changes_and_leaves_reading() {
    let folder = tempfile::tempdir().unwrap();
    let (store, table) = table(folder.path());
    crate::tests::load(&table, &[(1, 1, None)]);
    store.durable_side().log.fill_disk();
    let row = |key| -> RecordBatch { crate::tests::batch(&table, &[(key, 0, None)]) };
    let txn = store.txns().begin();
    table.insert(&txn, &row(2)).unwrap();
    let error = txn.commit().unwrap_err();
    let CommitError::InDoubt(failure) = &error else {
        panic!("{error:?}");
    };
    assert_eq!(failure.source.kind(), io::ErrorKind::StorageFull);
    assert_eq!(store.log_failure().as_ref(), Some(failure));
    let txn = store.txns().begin();
    table.insert(&txn, &row(2)).unwrap();
    assert!(matches!(txn.commit(), Err(CommitError::Refused(_))));
    assert!(matches!(
        store.commit_catalog(vec![1]),
        Err(StorageError::Commit(CommitError::Refused(_)))
    ));
    assert!(matches!(store.checkpoint(), Err(StorageError::Log(_))));
    assert_eq!(crate::tests::now(&table), [(1, 1, None)]);
    drop((store, table));
    let budget = Governor::new("1GB".parse().unwrap()).budget("test", None);
    let (store, recovered) =
        TenantStore::open(TenantId(1), budget, folder.path(), &OpenOptions::default()).unwrap();
    let table = &recovered.tables[&TableId(7)];
    assert_eq!(crate::tests::now(table), [(1, 1, None)]);
    crate::tests::load(table, &[(2, 2, None)]);
    assert!(store.log_failure().is_none());
}

#[test]
fn many_committers_share_groups_and_files_rotate() {
    let folder = tempfile::tempdir().unwrap();
    let (store, table) = table(folder.path());
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (store, table) = (&store, &table);
            scope.spawn(move || {
                let mut random = StdRng::seed_from_u64(thread);
                for at in 0..25 {
                    let txn = store.txns().begin();
                    let key = thread as i32 * 1000 + at;
                    let text = "x".repeat(random.random_range(0..100));
                    let rows = crate::tests::batch(table, &[(key, 0, Some(text))]);
                    table.insert(&txn, &rows).unwrap();
                    let ts = txn.commit().unwrap();
                    assert!(store.txns().snapshot().at() >= ts);
                    if at % 10 == 0 {
                        store.durable_side().log.rotate().unwrap();
                    }
                }
            });
        }
    });
    let expected = crate::tests::now(&table);
    assert_eq!(
        (expected.len(), store.txns().last_commit()),
        (100, CommitTs(101))
    );
    drop((store, table));
    assert!(
        read::files(&crate::SystemDisk, &folder.path().join("log"))
            .unwrap()
            .len()
            >= 12
    );
    let budget = Governor::new("1GB".parse().unwrap()).budget("test", None);
    let (_store, recovered) =
        TenantStore::open(TenantId(1), budget, folder.path(), &OpenOptions::default()).unwrap();
    assert_eq!(crate::tests::now(&recovered.tables[&TableId(7)]), expected);
}

#[test]
fn commits_of_temporary_rows_alone_do_not_wait_for_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let (store, table) = table(folder.path());
    let schema = crate::tests::schema(true);
    let scratch = store
        .create_temporary_table(TableId(8), schema, &Layout::Row, Vec::new())
        .unwrap();
    let ends = || {
        let ends = store.durable_side().log.ends();
        (ends.bytes, ends.synced)
    };
    crate::tests::load(&table, &[(1, 1, None)]);
    let (bytes, synced) = ends();
    assert_eq!(bytes, synced);
    crate::tests::load(&scratch, &[(1, 1, None)]);
    assert_eq!(crate::tests::now(&scratch), [(1, 1, None)]);
    // Nothing is written for it either.
    assert_eq!(ends(), (bytes, synced));
    // All redo of it has gone out before its commit.
    let rows: Vec<_> = (2..42)
        .map(|key| (key, 0, Some("x".repeat(20_000))))
        .collect();
    let txn = store.txns().begin();
    table
        .insert(&txn, &crate::tests::batch(&table, &rows))
        .unwrap();
    scratch
        .insert(&txn, &crate::tests::batch(&scratch, &rows))
        .unwrap();
    txn.commit().unwrap();
    let (bytes, synced) = ends();
    assert_eq!(bytes, synced);
    drop((scratch, table, store));

    let budget = Governor::new("1GB".parse().unwrap()).budget("test", None);
    let (_store, recovered) =
        TenantStore::open(TenantId(1), budget, folder.path(), &OpenOptions::default()).unwrap();
    assert_eq!(crate::tests::now(&recovered.tables[&TableId(7)]).len(), 41);
}

#[test]
fn commits_that_need_no_disk_are_finished_where_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let (store, table) = table(folder.path());
    let commit = |key| {
        let txn = store.txns().begin();
        let rows = crate::tests::batch(&table, &[(key, 0, None)]);
        table.insert(&txn, &rows).unwrap();
        txn.enqueue().unwrap().try_finish()
    };
    let waiting = commit(0).unwrap_err();
    assert!(crate::tests::now(&table).is_empty());
    waiting.finish().unwrap();
    store.set_durability(Durability::None);
    for key in 1..100 {
        commit(key).unwrap().unwrap();
    }
    assert_eq!(crate::tests::now(&table).len(), 100);
    // Those that meet somebody who writes finish soon after, or wait as others do.
    std::thread::scope(|scope| {
        for thread in 1..5 {
            let (commit, store) = (&commit, &store);
            scope.spawn(move || {
                for at in 0..200 {
                    let done = commit(thread * 1000 + at);
                    let ts = done.unwrap_or_else(|waiting| waiting.finish()).unwrap();
                    assert!(store.txns().snapshot().at() >= ts);
                }
            });
        }
    });
    let expected = crate::tests::now(&table);
    assert_eq!(expected.len(), 900);
    drop((store, table));
    let budget = Governor::new("1GB".parse().unwrap()).budget("test", None);
    let (_store, recovered) =
        TenantStore::open(TenantId(1), budget, folder.path(), &OpenOptions::default()).unwrap();
    assert_eq!(crate::tests::now(&recovered.tables[&TableId(7)]), expected);
}

#[test]
fn a_bug_in_who_writes_leaves_nobody_waiting() {
    let folder = tempfile::tempdir().unwrap();
    let (store, table) = table(folder.path());
    let commit = |key| {
        let txn = store.txns().begin();
        let rows = crate::tests::batch(&table, &[(key, 0, None)]);
        table.insert(&txn, &rows).unwrap();
        txn.commit()
    };
    commit(1).unwrap();
    for (key, place) in [(2, "log.before_write"), (3, "log.before_sync")] {
        fault::visit::set(Some(Box::new(move |at| assert_ne!(at, place, "a bug"))));
        catch_unwind(AssertUnwindSafe(|| commit(key))).unwrap_err();
        fault::visit::set(None);
        assert!(matches!(commit(key + 10), Err(CommitError::Refused(_))));
        store.mend_log().unwrap();
        commit(key + 20).unwrap();
    }
    let expected = [(1, 0, None), (22, 0, None), (23, 0, None)];
    assert_eq!(crate::tests::now(&table), expected);
    drop((store, table));
    let budget = Governor::new("1GB".parse().unwrap()).budget("test", None);
    let (_store, recovered) =
        TenantStore::open(TenantId(1), budget, folder.path(), &OpenOptions::default()).unwrap();
    assert_eq!(crate::tests::now(&recovered.tables[&TableId(7)]), expected);
}

#[test]
fn a_failure_reaches_all_who_wait() {
    let folder = tempfile::tempdir().unwrap();
    let (store, table) = table(folder.path());
    std::thread::scope(|scope| {
        for thread in 0..6 {
            let (store, table) = (&store, &table);
            scope.spawn(move || {
                for at in 0.. {
                    let txn = store.txns().begin();
                    let rows = crate::tests::batch(table, &[(thread * 100_000 + at, 0, None)]);
                    table.insert(&txn, &rows).unwrap();
                    match txn.commit() {
                        Ok(ts) => assert!(store.txns().snapshot().at() >= ts),
                        Err(CommitError::InDoubt(_) | CommitError::Refused(_)) => return,
                        Err(other) => panic!("{other:?}"),
                    }
                }
            });
        }
        while store.txns().last_commit() < CommitTs(60) {
            std::thread::yield_now();
        }
        store.durable_side().log.fill_disk();
    });
    assert!(store.log_failure().is_some());
    let last = store.txns().last_commit();
    let seen = crate::tests::now(&table).len();
    // One of the commits was the table's.
    assert_eq!(seen as u64, last.0 - 1);
    drop((store, table));
    let budget = Governor::new("1GB".parse().unwrap()).budget("test", None);
    let (_store, recovered) =
        TenantStore::open(TenantId(1), budget, folder.path(), &OpenOptions::default()).unwrap();
    assert_eq!(
        crate::tests::now(&recovered.tables[&TableId(7)]).len(),
        seen
    );
}
