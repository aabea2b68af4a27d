//! One writer and readers without a lock, in every order (`scripts/loom`).
//!
//! Each model says what must hold, and by which mistakes it was seen to fail. The segments are real
//! ones, of a few rows; their words and cells are loom's, and plain bytes are watched
//! (`format::modelled`).

use std::{ops::ControlFlow, sync::Arc};

use aerostat_sync::{AtomicBool, AtomicU32, AtomicU64, Ordering, model, thread};
use aerostat_types::{IndexKind, SegmentNo, SqlType, TableId};
use arrow_array::{ArrayRef, Int64Array};

use crate::{
    AttributeSpec, FrozenFacts, FrozenImage, HeapRegion, IndexSearch, IndexSpec, Keys, NewRows,
    Pinned, Region, Seen, Segment, SegmentBody, SegmentSchema, Selection, ValueRef,
    format::{
        chain, index,
        skip::{self, Inserter, SkipList},
    },
    kernel::order::Scalar,
    stamp::{END_NONE, TXN_BIT},
};

/// Room for rows.
const CAPACITY: u32 = 4;

/// A row with a key, a value that may be NULL, and a text that is too long for its slot.
struct Row(i64, Option<i32>, [u8; 8]);

/// The second lies below the first and the third above, and has its key.
const ROWS: [Row; 3] = [
    Row(5, None, *b"the 1st."),
    Row(1, Some(3), *b"the 2nd."),
    Row(5, None, *b"the 3rd."),
];

fn schema(types: &[(SqlType, bool)]) -> SegmentSchema {
    let attributes = types
        .iter()
        .map(|&(ty, nullable)| AttributeSpec { ty, nullable });
    let groups = vec![(0..types.len()).collect()];
    SegmentSchema::new(attributes.collect(), groups, vec![0]).unwrap()
}

fn segment(schema: SegmentSchema, heap_bytes: usize) -> Pinned<'static> {
    let bytes = schema.arena_bytes_for(CAPACITY, heap_bytes).unwrap();
    let region = Box::new(HeapRegion::new(bytes));
    let (table, no) = (TableId(1), SegmentNo(1));
    let segment = Segment::create_for(region, Arc::new(schema), table, no, CAPACITY);
    Pinned::new(segment.unwrap(), ())
}

fn append(segment: &Segment, row: &[ValueRef<'_>], begin: u64) {
    let row = NewRows::Row(row);
    let keys = Keys::encode(segment.schema(), row).unwrap();
    let appended = segment.writer().append(row, 0..1, &keys, begin).unwrap();
    assert_eq!(appended.count, 1);
}

/// Appends a row of [`ROWS`], whose begin stamp is its own.
fn append_nth(segment: &Segment, nth: usize) {
    let Row(key, value, text) = &ROWS[nth];
    let value = value.map_or(ValueRef::Null, ValueRef::I32);
    let row = [ValueRef::I64(*key), value, ValueRef::Bytes(text)];
    append(segment, &row, 10 + nth as u64);
}

/// A segment for [`ROWS`] that has the first few.
fn begun(rows: usize, indexes: Vec<IndexSpec>) -> Pinned<'static> {
    let types = [
        (SqlType::BigInt, false),
        (SqlType::Integer, true),
        (SqlType::Text, false),
    ];
    let segment = segment(schema(&types).with_indexes(indexes).unwrap(), 32);
    (0..rows).for_each(|nth| append_nth(&segment, nth));
    segment
}

/// Looks at the published rows, which must be all there.
fn look(segment: &Pinned) {
    let rows = segment.rows();
    let (keys, values) = (segment.zone(0, 0), segment.zone(0, 1));
    assert!(keys.any && values.nulls && (values.any || rows < 2));
    for (nth, Row(key, value, text)) in (0..rows).zip(&ROWS) {
        assert_eq!(segment.stamps(nth), (10 + u64::from(nth), END_NONE));
        assert_eq!(segment.value(nth, 0), ValueRef::I64(*key));
        let value = value.map_or(ValueRef::Null, ValueRef::I32);
        assert_eq!(segment.value(nth, 1), value);
        assert_eq!(segment.value(nth, 2), ValueRef::Bytes(text));
        let own = i64::order_key(key.rank());
        assert!((keys.min..=keys.max).contains(&own), "the zone");
    }
}

/// A row is published whole: values, NULLs, texts in the heap, zones and stamps; those before it stay
/// as they were meanwhile, also in the words that they share. Seen to fail: a watermark of rows, or
/// of the heap, that is raised or read with `Relaxed`; rows that are published before they are
/// stamped.
#[test]
fn rows_are_published_whole() {
    for rows in [1, 2] {
        model(move || {
            let segment = begun(rows, Vec::new());
            let own = segment.clone();
            let writer = thread::spawn(move || append_nth(&own, rows));
            look(&segment);
            writer.join().unwrap();
            look(&segment);
            assert_eq!(segment.rows() as usize, rows + 1);
        });
    }
}

/// Whoever sees a row finds it by its key, and one that is being appended hides none. Seen to fail:
/// rows that are published before they are entered into the index.
#[test]
fn published_rows_are_found_by_key() {
    model(|| {
        let segment = begun(1, Vec::new());
        let own = segment.clone();
        let writer = thread::spawn(move || {
            append_nth(&own, 1);
            append_nth(&own, 2);
        });
        let rows = segment.rows();
        let mut found = Vec::new();
        segment.find(segment.key_of(0).borrow(), &mut |row| {
            found.push(row);
            ControlFlow::Continue(())
        });
        assert!(found.starts_with(&[0]) && found.len() <= 2);
        assert!(rows < 3 || found == [0, 2]);
        writer.join().unwrap();
    });
}

/// As by the key, by secondary indexes of both kinds. Seen to fail: rows that are published before
/// they are entered into these.
#[test]
fn published_rows_are_found_by_secondary_indexes() {
    for kind in [IndexKind::Hash, IndexKind::Ordered] {
        model(move || {
            let segment = begun(
                1,
                vec![IndexSpec {
                    kind,
                    attributes: vec![0],
                    unique: false,
                }],
            );
            let own = segment.clone();
            let writer = thread::spawn(move || append_nth(&own, 2));
            let rows = segment.rows();
            let search = match kind {
                IndexKind::Hash => IndexSearch::Keys(vec![segment.index_key_of(0, 0)]),
                IndexKind::Ordered => IndexSearch::everything(),
            };
            let found = segment.search(0, &search, 9).unwrap();
            assert!(
                found == [0, 1] || rows < 2 && found == [0],
                "{found:?} of {rows}"
            );
            writer.join().unwrap();
        });
    }
}

fn cells(count: usize) -> Arc<[AtomicU32]> {
    (0..count).map(|_| AtomicU32::new(0)).collect()
}

/// Rows that are entered one by one, each published after it: as many as there are for a reader.
fn enter_each(published: &AtomicU32, enter: impl Fn(u32)) {
    for row in published.load(Ordering::Relaxed)..3 {
        enter(row);
        published.store(row + 1, Ordering::Release);
    }
}

/// The rows of a key below the watermark are in its chain, the newest first, whoever is being entered
/// in front of them. Seen to fail: a head that is stored before the row's link, or with `Relaxed`,
/// or read with it. Links might be `Relaxed`: whoever sees a head has all links behind it.
#[test]
fn a_chain_has_every_published_row() {
    model(|| {
        let (cells, published) = (cells(chain::cells(CAPACITY)), Arc::new(AtomicU32::new(1)));
        chain::insert(&cells, b"key", 0);
        let (own, raised) = (Arc::clone(&cells), Arc::clone(&published));
        let writer = thread::spawn(move || {
            enter_each(&raised, |row| chain::insert(&own, b"key", row));
        });
        let rows = published.load(Ordering::Acquire);
        let mut found = Vec::new();
        let _ = chain::candidates(&cells, b"key", rows, &mut |row| {
            found.push(row);
            ControlFlow::Continue(())
        });
        assert!(found.into_iter().eq((0..rows).rev()));
        writer.join().unwrap();
    });
}

/// The rows below the watermark are in the cells where a search for their key looks. Seen to fail: a
/// cell that is stored after its row is published; a new row that takes the first cell, whose own
/// row moves on. Cells might be `Relaxed`: the watermark orders them.
#[test]
fn the_key_index_has_every_published_row() {
    model(|| {
        let (cells, published) = (cells(CAPACITY as usize), Arc::new(AtomicU32::new(1)));
        index::insert(&cells, b"key", 0);
        let (own, raised) = (Arc::clone(&cells), Arc::clone(&published));
        let writer = thread::spawn(move || {
            enter_each(&raised, |row| index::insert(&own, b"key", row));
        });
        let rows = published.load(Ordering::Acquire);
        let mut found = Vec::new();
        let _ = index::candidates(&cells, b"key", rows, &mut |row| {
            found.push(row);
            ControlFlow::Continue(())
        });
        assert!(found.into_iter().eq(0..rows));
        writer.join().unwrap();
    });
}

/// The rows below the watermark are in the list, in order, whoever is being entered between them.
/// Seen to fail: a row that is led to before its own link is set; a link that leads to it and is
/// stored with `Relaxed`, or read with it. The row's own link might be `Relaxed`.
#[test]
fn a_skip_list_has_every_published_row() {
    const KEYS: [u32; 3] = [7, 3, 5];
    model(|| {
        let (cells, published) = (cells(skip::cells(CAPACITY)), Arc::new(AtomicU32::new(1)));
        let enter = |cells: &[AtomicU32], row: u32| {
            let list = SkipList::new(cells, CAPACITY);
            let own = KEYS[row as usize];
            Inserter::of(list).insert(row, &|other| KEYS[other as usize] <= own);
        };
        enter(&cells, 0);
        let (own, raised) = (Arc::clone(&cells), Arc::clone(&published));
        let writer = thread::spawn(move || enter_each(&raised, |row| enter(&own, row)));
        let rows = published.load(Ordering::Acquire);
        let list = SkipList::new(&cells, CAPACITY);
        let first = list.seek(rows, &|row| KEYS[row as usize] < 4);
        let found: Vec<u32> = list.rows_from(first, rows).collect();
        let expected: &[u32] = if rows == 3 { &[2, 0] } else { &[0] };
        assert_eq!(found, expected);
        writer.join().unwrap();
    });
}

/// A segment of rows with a key alone, which have begun at 5.
pub(crate) fn keyed(rows: i64, frozen: bool) -> Pinned<'static> {
    let schema = schema(&[(SqlType::BigInt, false)]);
    if !frozen {
        let segment = segment(schema, 0);
        (0..rows).for_each(|key| append(&segment, &[ValueRef::I64(key)], 5));
        return segment;
    }
    let region = |bytes| Box::new(HeapRegion::new(bytes)) as Box<dyn Region>;
    Pinned::new(frozen_of(schema, rows, region), ())
}

/// A frozen segment whose rows have their number in each attribute. An attribute is an extent.
pub(crate) fn body_of(
    attributes: usize,
    rows: i64,
    region: impl FnOnce(usize) -> Box<dyn Region>,
) -> SegmentBody {
    let number = AttributeSpec {
        ty: SqlType::BigInt,
        nullable: false,
    };
    let groups = (0..attributes).map(|attribute| vec![attribute]).collect();
    let schema = SegmentSchema::new(vec![number; attributes], groups, vec![0]).unwrap();
    SegmentBody::new(frozen_of(schema, rows, region), ())
}

fn frozen_of(
    schema: SegmentSchema,
    rows: i64,
    region: impl FnOnce(usize) -> Box<dyn Region>,
) -> Segment {
    let facts = FrozenFacts {
        table: TableId(1),
        no: SegmentNo(1),
        rows: rows as u32,
        begin: 5,
    };
    let mut column = |_| Arc::new(Int64Array::from_iter_values(0..rows)) as ArrayRef;
    let image = FrozenImage::encode(&schema, facts, &mut column).unwrap();
    let region = region(image.arena_bytes());
    Segment::create_frozen(region, Arc::new(schema), image)
}

/// A reader finds the old stamp of a row or the new one, while its block comes to have stamps of its
/// rows' own, and while it shares one again. Seen to fail: a header that says `VARIES` before the
/// array is filled, or with `Relaxed`, or is read with it; a stamp of a row's own that is stored
/// or read with `Relaxed`.
#[test]
fn a_stamp_is_the_old_or_the_new_one() {
    for frozen in [false, true] {
        model(move || {
            let segment = keyed(2, frozen);
            let own = segment.clone();
            let writer = thread::spawn(move || {
                own.writer().set_end(0, 7);
                own.writer().set_ends(0..2, END_NONE);
                own.writer().set_end(1, 8);
            });
            let ends = [1, 0].map(|row| segment.stamps(row).1);
            assert!([END_NONE, 8].contains(&ends[0]), "{ends:?}");
            assert!([END_NONE, 7].contains(&ends[1]), "{ends:?}");
            // What the last step has said is not taken back.
            assert!(ends[0] != 8 || ends[1] == END_NONE, "{ends:?}");
            writer.join().unwrap();
            let ends = [0, 1].map(|row| segment.stamps(row).1);
            assert_eq!(ends, [END_NONE, 8]);
        });
    }
}

/// The transaction that ends rows in [`a_scan_sees_a_commit_whole_or_not_at_all`].
const TXN: u64 = TXN_BIT | 9;

/// A scan whose snapshot has a commit sees no row that it has ended, of hot and frozen segments;
/// one whose snapshot has it not sees all of them, whatever of it has been stamped. `Reread` ends.
/// Seen to fail: a header that says `VARIES` before the array is filled, or with `Relaxed`, or is
/// read with it (for a whole block, where begins vary before ends do); a transaction that is
/// forgotten and counts as seen, or as not seen, in place of `Reread`; a frozen segment that does
/// not note who has ended. A transaction that is forgotten before its stamps are final does no
/// harm here, as the scan rereads until they are: that is the matter of `txn`'s models. Nor
/// does a `varies` that is read with `Relaxed`: stamps are read behind the header again.
#[test]
fn a_scan_sees_a_commit_whole_or_not_at_all() {
    for (frozen, begins_vary) in [(false, false), (false, true), (true, false)] {
        model(move || {
            let segment = keyed(3, frozen);
            if begins_vary {
                segment.writer().set_begin(1..2, 4);
            }
            // The newest commit that snapshots see, and whether the transaction is forgotten.
            let order = Arc::new((AtomicU64::new(5), AtomicBool::new(false)));
            let (own, commits) = (segment.clone(), Arc::clone(&order));
            let writer = thread::spawn(move || {
                own.writer().set_end(0, TXN);
                own.writer().set_end(2, TXN);
                commits.0.store(7, Ordering::Release);
                own.writer().set_end(0, 7);
                own.writer().set_end(2, 7);
                commits.1.store(true, Ordering::Release);
            });
            let at = order.0.load(Ordering::Acquire);
            let mut sees = |begin, end| {
                assert_eq!((begin, end), (5, TXN));
                let is_forgotten = order.1.load(Ordering::Acquire);
                (!is_forgotten).then_some(at < 7)
            };
            let mut seen = Seen {
                at,
                sees: &mut sees,
            };
            let mut found = Selection::default();
            if segment.select_seen(0..3, &mut seen, &mut found) {
                segment.keep_seen(&mut seen, &mut found);
            }
            let expected: &[u32] = if at < 7 { &[0, 1, 2] } else { &[1] };
            assert!(
                found.iter().eq(expected.iter().copied()),
                "{found:?} at {at}"
            );
            writer.join().unwrap();
        });
    }
}
