//! Particular situations: full segments, refused rows, forwarding, bytes shared
//! without a copy, what a table's rows cost, readers beside a writer.
#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod model;

use std::{
    ops::ControlFlow,
    ptr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use aerostat_segment::{
    ARENA_BYTES_MAX, AttributeSpec, CompareOp, Forwarding, FrozenFacts, FrozenImage, HeapRegion,
    Key, Keys, Literal, Pinned, Predicate, ROWS_MAX, Segment, SegmentError, SegmentSchema,
    Selection, VECTOR_ROWS, stamp,
};
use aerostat_types::{SegmentNo, SqlType, TableId, VALUE_BYTES_MAX};
use arrow_array::{
    Array, ArrayRef, Decimal128Array, Int32Array, Int64Array, StringArray, StringViewArray,
    cast::AsArray, types::Int64Type,
};

fn schema(attributes: &[(SqlType, bool)], key: &[usize]) -> Arc<SegmentSchema> {
    let groups = (0..attributes.len()).map(|at| vec![at]).collect();
    let attributes = attributes
        .iter()
        .map(|&(ty, nullable)| AttributeSpec { ty, nullable })
        .collect();
    Arc::new(SegmentSchema::new(attributes, groups, key.to_vec()).unwrap())
}

fn segment(
    schema: &Arc<SegmentSchema>,
    arena_bytes: usize,
    heap_bytes_per_row: usize,
) -> Pinned<'static> {
    let region = Box::new(HeapRegion::new(arena_bytes));
    let (table, no) = (TableId(1), SegmentNo(2));
    let segment = Segment::create(region, Arc::clone(schema), table, no, heap_bytes_per_row);
    Pinned::new(segment.unwrap(), ())
}

fn integers(values: impl IntoIterator<Item = i32>) -> ArrayRef {
    Arc::new(Int32Array::from_iter_values(values))
}

fn texts(values: impl IntoIterator<Item = String>) -> ArrayRef {
    Arc::new(StringArray::from_iter_values(values))
}

#[test]
fn rows_that_fit_are_appended_until_rows_run_out() {
    let schema = schema(&[(SqlType::Integer, false)], &[0]);
    let segment = segment(&schema, 64 << 10, 0);
    let columns = [integers(0..10_000)];
    let keys = Keys::encode(&schema, &columns).unwrap();
    let appended = segment
        .writer()
        .append(&columns, 0..10_000, &keys, 1)
        .unwrap();
    assert!(
        appended.full
            && appended.count == segment.capacity()
            && segment.rows() == segment.capacity()
    );
    let rest = segment
        .writer()
        .append(&columns, appended.count as usize..10_000, &keys, 1)
        .unwrap();
    assert_eq!((rest.count, rest.full), (0, true));
    let key = Key::encode(&schema, &[Literal::Int(i128::from(segment.capacity()) - 1)]).unwrap();
    let mut found = None;
    segment.find(key.borrow(), &mut |row| {
        found = Some(row);
        ControlFlow::Break(())
    });
    assert_eq!(found, Some(segment.capacity() - 1));
}

#[test]
fn rows_that_fit_are_appended_until_the_heap_runs_out() {
    let schema = schema(
        &[
            (SqlType::Integer, false),
            (SqlType::Text, false),
            (SqlType::Text, true),
        ],
        &[0],
    );
    let segment = segment(&schema, 64 << 10, 20);
    let columns = [
        integers(0..3000),
        texts((0..3000).map(|n| format!("a text of its own {n}"))),
        texts((0..3000).map(|n| format!("and one more {n}"))),
    ];
    let keys = Keys::encode(&schema, &columns).unwrap();
    let appended = segment
        .writer()
        .append(&columns, 0..3000, &keys, 1)
        .unwrap();
    assert!(
        appended.full && appended.count < segment.capacity(),
        "{appended:?}"
    );
    let left = segment.heap_bytes() - segment.heap_used_bytes();
    assert!(
        left < 60,
        "{left} bytes of heap left would hold another row"
    );
    let all = Selection::Range(0..appended.count);
    for (attribute, column) in columns.iter().enumerate().skip(1) {
        let gathered = segment.gather(attribute, &all);
        let expected = column
            .as_string::<i32>()
            .iter()
            .take(appended.count as usize);
        assert!(gathered.as_string_view().iter().eq(expected));
    }
}

#[test]
fn what_fits_no_segment_is_an_error() {
    let schema = schema(
        &[
            (SqlType::Text, true),
            (SqlType::Text, true),
            (SqlType::Text, true),
        ],
        &[],
    );
    let too_long = "x".repeat(VALUE_BYTES_MAX + 1);
    let long = &too_long[..VALUE_BYTES_MAX];
    let row =
        |value: &str| -> Vec<ArrayRef> { (0..3).map(|_| texts([value.to_owned()])).collect() };
    let small = segment(&schema, 64 << 10, 0);
    let append = |value: &str| {
        let columns = row(value);
        let keys = Keys::encode(&schema, &columns).unwrap();
        small.writer().append(&columns, 0..1, &keys, 1)
    };
    assert!(
        matches!(append(&too_long), Err(SegmentError::ValueTooLong { row: 0, bytes, .. }) if bytes == VALUE_BYTES_MAX + 1)
    );
    assert!(
        matches!(append(long), Err(SegmentError::RowTooWide { row: 0, bytes }) if bytes > 3 * VALUE_BYTES_MAX)
    );
    // Too much for this arena, not for a larger one: the caller is told to get one.
    let medium = "y".repeat(64 << 10);
    assert_eq!(
        append(&medium).map(|appended| (appended.count, appended.full)),
        Ok((0, true))
    );
    let heap_bytes = schema.heap_bytes(&row(&medium), 0..1).unwrap();
    assert_eq!(heap_bytes, 3 * (64 << 10));
    let arena_bytes = schema.arena_bytes_for(1, heap_bytes).unwrap();
    assert!(schema.capacity_for(arena_bytes, heap_bytes) >= 1);
    assert_eq!(small.rows(), 0);
    assert!(append("short again").is_ok());
    assert!(matches!(
        Segment::create(
            Box::new(HeapRegion::new(4096)),
            Arc::clone(&schema),
            TableId(1),
            SegmentNo(1),
            0
        ),
        Err(SegmentError::ArenaTooSmall { .. })
    ));
}

/// Whoever freezes is told to make several, whatever it is that takes too much.
#[test]
fn too_much_for_one_arena_is_told_as_such() {
    let encode = |ty: SqlType, rows: usize, column: ArrayRef| {
        let schema = schema(&[(ty, false)], &[]);
        let facts = FrozenFacts {
            table: TableId(1),
            no: SegmentNo(2),
            rows: rows as u32,
            begin: 3,
        };
        FrozenImage::encode(&schema, facts, &mut |_| Arc::clone(&column)).map(drop)
    };
    for megabytes in [31, 32, 40] {
        let long = texts((0..megabytes).map(|at| "x".repeat(1 << 20) + &at.to_string()));
        let encoded = encode(SqlType::Text, megabytes, long);
        assert_eq!(encoded.is_ok(), megabytes < 32, "{encoded:?}");
        let is_told = matches!(encoded, Ok(()) | Err(SegmentError::ArenaTooSmall { .. }));
        assert!(is_told, "{encoded:?}");
    }
    // Of a value that needs no bit.
    let rows = ROWS_MAX as usize + 1;
    let encoded = encode(
        SqlType::Integer,
        rows,
        integers(std::iter::repeat_n(7, rows)),
    );
    assert!(matches!(encoded, Err(SegmentError::ArenaTooSmall { .. })));
}

#[test]
fn columns_that_do_not_suit_are_refused_and_leave_no_trace() {
    let schema = schema(
        &[
            (SqlType::Integer, false),
            (
                SqlType::Numeric {
                    precision: 10,
                    scale: 2,
                },
                true,
            ),
        ],
        &[0],
    );
    let segment = segment(&schema, 64 << 10, 0);
    let decimals = |values: Vec<Option<i128>>, scale| -> ArrayRef {
        Arc::new(
            Decimal128Array::from(values)
                .with_precision_and_scale(30, scale)
                .unwrap(),
        )
    };
    let good = integers([1, 2]);
    let keys = Keys::encode(&schema, &[Arc::clone(&good)]).unwrap();
    let append = |columns: [ArrayRef; 2]| segment.writer().append(&columns, 0..2, &keys, 1);
    let no_integers: ArrayRef = Arc::new(Int64Array::from(vec![1, 2]));
    let nulls: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None]));
    let fine = || decimals(vec![Some(1), None], 2);
    assert!(matches!(
        append([no_integers, fine()]),
        Err(SegmentError::ColumnType { attribute: 0, .. })
    ));
    assert!(matches!(
        append([Arc::clone(&good), decimals(vec![None, None], 3)]),
        Err(SegmentError::ColumnType { .. })
    ));
    assert_eq!(
        append([Arc::clone(&nulls), fine()]),
        Err(SegmentError::NullValue { attribute: 0 })
    );
    let beyond = decimals(vec![Some(1), Some(1 << 70)], 2);
    assert_eq!(
        append([Arc::clone(&good), beyond]),
        Err(SegmentError::ValueOutOfRange { attribute: 1 })
    );
    assert!(matches!(
        Keys::encode(&schema, &[nulls]),
        Err(SegmentError::NullValue { attribute: 0 })
    ));
    assert_eq!(append([good, fine()]).unwrap().first, 0);
    let mut found = Vec::new();
    segment.find(keys.get(1), &mut |row| {
        found.push(row);
        ControlFlow::Continue(())
    });
    assert_eq!(found, [1], "refused rows are not in the index");
}

#[test]
fn arrays_share_the_segments_bytes_and_keep_them() {
    let schema = schema(&[(SqlType::BigInt, false), (SqlType::Text, false)], &[]);
    let segment = segment(&schema, 256 << 10, 20);
    let long = "a text that is longer than a view";
    let columns: [ArrayRef; 2] = [
        Arc::new(Int64Array::from_iter_values(0..100)),
        texts((0..100).map(|_| long.to_owned())),
    ];
    let keys = Keys::encode(&schema, &columns).unwrap();
    segment.writer().append(&columns, 0..100, &keys, 1).unwrap();
    let whole = segment.gather(0, &Selection::Range(0..100));
    let part = segment.gather(0, &Selection::Range(10..20));
    let address = |array: &ArrayRef| array.as_primitive::<Int64Type>().values().as_ptr();
    assert_eq!(address(&part), address(&whole).wrapping_add(10), "no copy");
    let texts = segment.gather(1, &Selection::Rows(vec![3, 99]));
    assert_eq!(
        texts.as_string_view().data_buffers()[0].len(),
        long.len(),
        "equal texts are stored once"
    );
    // Rows appended later are not in the array, and the array outlives the segment.
    segment.writer().append(&columns, 0..50, &keys, 1).unwrap();
    drop(segment);
    assert_eq!(whole.as_primitive::<Int64Type>().values()[99], 99);
    assert_eq!(texts.as_string_view().value(1), long);
}

#[test]
fn a_retired_segment_knows_where_its_rows_are() {
    let schema = schema(&[(SqlType::Integer, false)], &[0]);
    let (old, new) = (segment(&schema, 64 << 10, 0), segment(&schema, 64 << 10, 0));
    let columns = [integers(0..10)];
    let keys = Keys::encode(&schema, &columns).unwrap();
    old.writer()
        .append(&columns, 0..10, &keys, stamp::of_txn(5))
        .unwrap();
    {
        let mut latch = old.writer();
        let appended = new.writer().append_rows_from(&old, &[4, 5, 6]).unwrap();
        let mut forwarding = Forwarding::new(old.rows(), vec![new.clone()]);
        for (nth, row) in [4, 5, 6].into_iter().enumerate() {
            forwarding.set(row, 0, appended.first + nth as u32);
        }
        latch.retire(forwarding);
    }
    assert!(old.is_retired() && !new.is_retired());
    let forwarding = old.forwarding().unwrap();
    assert!(forwarding.get(3).is_none());
    let (target, row) = forwarding.get(5).unwrap();
    assert!(ptr::eq::<Segment>(&**target, &*new) && row == 1);
    assert_eq!(new.key_of(row), old.key_of(5));
}

/// SSB's lineorder: 14 integers, 3 texts of few values.
#[test]
fn a_bulk_loaded_row_costs_at_most_a_third_more_than_its_values() {
    let mut attributes = vec![(SqlType::Integer, false); 14];
    attributes.extend([
        (SqlType::Char(15), false),
        (SqlType::Char(1), false),
        (SqlType::Char(10), false),
    ]);
    let schema = schema(&attributes, &[0, 1]);
    // In the dev profile a full arena takes seconds; a share of one costs the same per row.
    let arena_bytes = 4 << 20;
    let segment = segment(&schema, arena_bytes, 1);
    let rows = segment.capacity() as usize;
    let numbers = |step: i32| integers((0..rows as i32).map(|n| n.wrapping_mul(step)));
    let mut columns: Vec<ArrayRef> = (1..=14).map(numbers).collect();
    let of = |values: &[&str]| texts((0..rows).map(|n| values[n % values.len()].to_owned()));
    columns.push(of(&[
        "1-URGENT",
        "2-HIGH",
        "3-MEDIUM",
        "4-NOT SPECIFIED",
        "5-LOW",
    ]));
    columns.push(of(&["0"]));
    columns.push(of(&[
        "REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB",
    ]));
    let keys = Keys::encode(&schema, &columns).unwrap();
    for from in (0..rows).step_by(8192) {
        segment
            .writer()
            .append(
                &columns,
                from..rows.min(from + 8192),
                &keys,
                stamp::of_txn(1),
            )
            .unwrap();
    }
    assert_eq!(segment.rows() as usize, rows);
    segment.writer().set_begin(0..rows as u32, 1);
    let raw = (rows * (14 * 4 + 15 + 1 + 10)) as f64;
    let factor = segment.footprint_bytes() as f64 / raw;
    assert!(
        factor < 1.1,
        "{factor}: slots, 4.7 bytes of index, and little more"
    );
    // With stamps of their own, rows cost 8 bytes more on one side.
    segment.writer().set_begin(0..10, 2);
    assert_eq!(
        segment.footprint_bytes() as f64 / raw,
        factor + 8192.0 / raw
    );
}

/// Readers see whole rows, in order, with zones and index that cover them, while a writer
/// appends and stamps.
#[test]
fn readers_beside_a_writer_see_whole_rows() {
    let schema = schema(
        &[
            (SqlType::BigInt, false),
            (SqlType::Text, true),
            (SqlType::BigInt, true),
        ],
        &[0],
    );
    let segment = segment(&schema, 4 << 20, 24);
    let stop = AtomicBool::new(false);
    let text = |n: i64| (n % 5 != 0).then(|| format!("row {n} has a text of its own"));
    let check = |seen: u32| {
        let rows = segment.rows();
        assert!(rows >= seen, "rows do not go away");
        let mut visible = Selection::default();
        segment.select_visible(
            0..rows,
            &mut |begin, _| Some(stamp::txn(begin).is_none()),
            &mut visible,
        );
        let numbers = segment.gather(0, &visible);
        let texts = segment.gather(1, &visible);
        let doubles = segment.gather(2, &visible);
        for (at, &n) in numbers
            .as_primitive::<Int64Type>()
            .values()
            .iter()
            .enumerate()
        {
            let expected = text(n);
            let texts = texts.as_string_view();
            assert_eq!(
                texts.is_valid(at).then(|| texts.value(at)),
                expected.as_deref()
            );
            assert_eq!(doubles.as_primitive::<Int64Type>().value(at), 2 * n);
        }
        if rows > 0 {
            let newest = i64::from(rows) - 1;
            let key = Key::encode(&schema, &[Literal::Int(newest.into())]).unwrap();
            let mut found = None;
            segment.find(key.borrow(), &mut |row| {
                found = Some(row);
                ControlFlow::Break(())
            });
            assert_eq!(found, Some(rows - 1), "a published row is found");
            let value = Predicate::Compare {
                attribute: 0,
                op: CompareOp::Eq,
                value: Literal::Int(newest.into()),
            };
            assert!(
                value.may_match(segment.zone((rows - 1) / VECTOR_ROWS, 0)),
                "a zone covers published rows"
            );
        }
        rows
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut seen = 0;
                while !stop.load(Ordering::Relaxed) {
                    seen = check(seen);
                }
            });
        }
        let mut first = 0i64;
        let mut random = model::Random(1);
        while first < 6000 {
            let numbers: Vec<i64> = (first..first + 1 + random.below(150) as i64).collect();
            let columns: Vec<ArrayRef> = vec![
                Arc::new(Int64Array::from(numbers.clone())),
                Arc::new(StringViewArray::from_iter(numbers.iter().map(|&n| text(n)))),
                Arc::new(Int64Array::from_iter_values(numbers.iter().map(|&n| 2 * n))),
            ];
            let keys = Keys::encode(&schema, &columns).unwrap();
            let txn = stamp::of_txn(first as u64);
            let appended = segment
                .writer()
                .append(&columns, 0..numbers.len(), &keys, txn)
                .unwrap();
            assert!(!appended.full);
            segment.writer().set_begin(
                appended.first..appended.first + appended.count,
                first as u64 + 1,
            );
            first += numbers.len() as i64;
        }
        stop.store(true, Ordering::Relaxed);
    });
    check(6000);
}

#[test]
fn the_largest_arena_has_room_for_a_value_of_the_largest_size() {
    let schema = schema(&[(SqlType::Text, false)], &[]);
    assert!(schema.capacity_for(ARENA_BYTES_MAX, VALUE_BYTES_MAX) >= 1);
    assert_eq!(schema.capacity_for(ARENA_BYTES_MAX, ARENA_BYTES_MAX), 0);
}
