//! Secondary indexes against a scan of the same rows: hot and frozen, whatever the types,
//! layouts and predicates; and beside a writer.
#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod model;

use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use aerostat_segment::{
    AttributeSpec, CompareOp, HeapRegion, IndexSpec, Keys, Literal, Pinned, Predicate, Segment,
    SegmentError, SegmentSchema, Selection,
};
use aerostat_types::{IndexKind, Physical, SegmentNo, SqlType, TableId};
use arrow_array::{ArrayRef, Float64Array, Int32Array, StringArray};
use model::{Model, Random, Value, freeze, random_indexes, value};
use proptest::prelude::*;

const ARENA_BYTES: usize = 4 << 20;

/// A model with indexes, and a hot segment of its rows, appended in pieces.
fn load(seed: u64, rows: usize) -> (Model, Pinned<'static>) {
    let mut model = Model::random(seed, rows);
    let mut random = Random(seed ^ 0x1D);
    let indexes = random_indexes(model.columns.len(), &mut random);
    let schema = SegmentSchema::clone(&model.schema);
    model.schema = Arc::new(schema.with_indexes(indexes).unwrap());
    let segment = Pinned::new(model.segment(ARENA_BYTES), ());
    let columns = model.arrays(seed);
    let keys = Keys::encode(&model.schema, &columns).unwrap();
    let mut from = 0;
    while from < rows {
        let to = rows.min(from + 1 + random.below(400) as usize);
        let appended = segment.writer().append(&columns, from..to, &keys, 3);
        assert!(!appended.unwrap().full);
        from = to;
    }
    (model, segment)
}

/// A predicate that the schema accepts and that rather holds for a few rows.
fn predicate(model: &Model, attribute: usize, random: &mut Random) -> Predicate {
    let spec = model.schema.attributes()[attribute];
    if spec.ty.physical() == Physical::Interval || random.below(8) == 0 {
        return if random.below(3) > 0 {
            Predicate::IsNull { attribute }
        } else {
            Predicate::IsNotNull { attribute }
        };
    }
    let mut literal = || match random.below(10) {
        0 if spec.ty.physical() == Physical::I16 => Literal::Int(1 << 40),
        1 if spec.ty == SqlType::Uuid => Literal::Bytes(vec![0; 3]),
        _ => value(spec.ty, random).literal().unwrap(),
    };
    if literal() == literal() {
        let values = vec![literal(), literal(), literal()];
        return Predicate::InList {
            attribute,
            values,
            negated: false,
        };
    }
    let value = literal();
    use CompareOp::{Eq, Ge, Gt, Le, Lt, Ne};
    let op = random.pick(&[Eq, Eq, Eq, Lt, Le, Gt, Ge, Ne]);
    Predicate::Compare {
        attribute,
        op,
        value,
    }
}

/// Searches all indexes for what some predicates ask, and says how often one helped.
fn check(model: &Model, segment: &Pinned, order: &[u32], random: &mut Random) -> usize {
    let mut helped = 0;
    for (at, index) in model.schema.indexes().iter().enumerate() {
        for _ in 0..12 {
            let predicates: Vec<Predicate> = index
                .attributes
                .iter()
                .flat_map(|&attribute| {
                    let count = random.below(3);
                    (0..count)
                        .map(|_| predicate(model, attribute, random))
                        .collect::<Vec<_>>()
                })
                .collect();
            let holds = |row: &u32| {
                let source = order[*row as usize] as usize;
                predicates
                    .iter()
                    .all(|one| model.columns[one.attribute()][source].satisfies(one))
            };
            let expected: Vec<u32> = (0..segment.rows()).filter(holds).collect();
            let Some(search) = model.schema.index_search(index, &predicates) else {
                continue;
            };
            let found = segment
                .search(at, &search, usize::MAX)
                .expect("any number of rows will do");
            assert!(found.is_sorted_by(|a, b| a < b));
            let kept: Vec<u32> = found.iter().copied().filter(holds).collect();
            assert_eq!(kept, expected, "{index} {predicates:?} {search:?}");
            let mut filtered = Selection::Rows(found.clone());
            for one in &predicates {
                segment.filter(one, &mut filtered);
            }
            assert_eq!(filtered.iter().collect::<Vec<_>>(), expected);
            if let Some(less) = found.len().checked_sub(1) {
                assert_eq!(segment.search(at, &search, less), None);
            }
            helped += 1;
        }
        for row in (0..segment.rows()).step_by(53) {
            let key = segment.index_key_of(at, row);
            let mut found = Vec::new();
            segment.find_indexed(at, key.borrow(), &mut |row| {
                found.push(row);
                ControlFlow::Continue(())
            });
            found.sort_unstable();
            let equal = |other: &u32| segment.index_key_of(at, *other) == key;
            let expected: Vec<u32> = (0..segment.rows()).filter(equal).collect();
            assert_eq!(found, expected);
            let source = order[row as usize] as usize;
            let has_null = |&at: &usize| model.columns[at][source] == Value::Null;
            assert_eq!(
                segment.index_key_has_null(at, row),
                index.attributes.iter().any(has_null)
            );
        }
    }
    helped
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_index_finds_what_a_scan_does(seed: u64, rows in 1..700_usize) {
        let (model, hot) = load(seed, rows);
        let mut random = Random(seed ^ 0x5EED);
        let order: Vec<u32> = (0..rows as u32).collect();
        check(&model, &hot, &order, &mut random);
        let (frozen, order) = freeze(&hot);
        check(&model, &frozen, &order, &mut random);
    }
}

fn spec(kind: IndexKind, attributes: &[usize], unique: bool) -> IndexSpec {
    IndexSpec {
        kind,
        attributes: attributes.to_vec(),
        unique,
    }
}

fn schema(attributes: &[(SqlType, bool)], indexes: Vec<IndexSpec>) -> Arc<SegmentSchema> {
    let groups = (0..attributes.len()).map(|at| vec![at]).collect();
    let attributes = attributes
        .iter()
        .map(|&(ty, nullable)| AttributeSpec { ty, nullable })
        .collect();
    let schema = SegmentSchema::new(attributes, groups, vec![]).unwrap();
    Arc::new(schema.with_indexes(indexes).unwrap())
}

fn hot(schema: &Arc<SegmentSchema>, columns: &[ArrayRef]) -> Pinned<'static> {
    let region = Box::new(HeapRegion::new(ARENA_BYTES));
    let segment = Segment::create(region, Arc::clone(schema), TableId(1), SegmentNo(1), 64);
    let segment = Pinned::new(segment.unwrap(), ());
    let keys = Keys::encode(schema, columns).unwrap();
    let rows = columns[0].len();
    segment.writer().append(columns, 0..rows, &keys, 1).unwrap();
    segment
}

#[test]
fn schemas_tell_their_indexes_apart() {
    let types = [(SqlType::Integer, false), (SqlType::Text, true)];
    let (hash, ordered) = (IndexKind::Hash, IndexKind::Ordered);
    let all = [
        vec![],
        vec![spec(hash, &[0], false)],
        vec![spec(hash, &[0], true)],
        vec![spec(ordered, &[0], false)],
        vec![spec(ordered, &[0, 1], false)],
        vec![spec(ordered, &[1, 0], false)],
        vec![spec(ordered, &[0], false), spec(hash, &[0], false)],
    ];
    let mut prints: Vec<u64> = all
        .iter()
        .map(|indexes| schema(&types, indexes.clone()).fingerprint())
        .collect();
    prints.sort_unstable();
    prints.dedup();
    assert_eq!(prints.len(), all.len());
    for wrong in [
        vec![spec(hash, &[], false)],
        vec![spec(hash, &[2], false)],
        vec![spec(hash, &[0, 0], false)],
        vec![spec(hash, &[0], false), spec(hash, &[0], false)],
    ] {
        let schema = SegmentSchema::clone(&schema(&types, vec![]));
        let refused = schema.with_indexes(wrong);
        assert!(matches!(refused, Err(SegmentError::Schema(_))));
    }
}

#[test]
fn odd_values_have_their_places() {
    let kinds = [IndexKind::Hash, IndexKind::Ordered];
    let indexes = kinds
        .iter()
        .flat_map(|&kind| [spec(kind, &[0], false), spec(kind, &[1], true)])
        .collect();
    let types = [(SqlType::Double, true), (SqlType::Text, true)];
    let schema = schema(&types, indexes);
    let long = "x".repeat(100_000);
    let floats = [
        Some(f64::NAN),
        Some(-0.0),
        None,
        Some(0.0),
        Some(f64::INFINITY),
        Some(-1.0),
    ];
    let texts = [
        Some(""),
        None,
        Some("\0"),
        Some("a"),
        Some(&long[..]),
        Some("a\0"),
    ];
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Float64Array::from_iter(floats)),
        Arc::new(StringArray::from_iter(texts)),
    ];
    let hot = hot(&schema, &columns);
    let compare = |attribute, op, value| Predicate::Compare {
        attribute,
        op,
        value,
    };
    let text = |text: &str| Literal::Bytes(text.as_bytes().to_vec());
    for segment in [&hot, &freeze(&hot).0] {
        let rows = |index, predicate: Predicate| {
            let search = schema.index_search(&schema.indexes()[index], &[predicate]);
            segment.search(index, &search.unwrap(), 6).unwrap()
        };
        use CompareOp::{Eq, Ge, Gt, Le, Lt};
        for (hash, ordered, predicate, expected) in [
            (0, 2, compare(0, Eq, Literal::Float(f64::NAN)), &[0][..]),
            (0, 2, compare(0, Eq, Literal::Float(0.0)), &[1, 3]),
            (0, 2, Predicate::IsNull { attribute: 0 }, &[2]),
            (1, 3, compare(1, Eq, text("")), &[0]),
            (1, 3, compare(1, Eq, text("a")), &[3]),
            (1, 3, compare(1, Eq, text(&long)), &[4]),
            (1, 3, Predicate::IsNull { attribute: 1 }, &[1]),
        ] {
            assert_eq!(rows(hash, predicate.clone()), expected);
            assert_eq!(rows(ordered, predicate), expected);
        }
        assert_eq!(rows(2, compare(0, Gt, Literal::Float(0.0))), [0, 4]);
        assert_eq!(rows(2, compare(0, Ge, Literal::Float(-0.0))), [0, 1, 3, 4]);
        assert_eq!(
            rows(2, compare(0, Le, Literal::Float(f64::NAN))),
            [0, 1, 3, 4, 5]
        );
        assert_eq!(rows(3, compare(1, Lt, text("a"))), [0, 2]);
        assert_eq!(rows(3, compare(1, Gt, text("a"))), [4, 5]);
        assert_eq!(rows(3, compare(1, Le, text(""))), [0]);
    }
}

#[test]
fn an_empty_segment_has_nothing() {
    let indexes = vec![
        spec(IndexKind::Hash, &[0], false),
        spec(IndexKind::Ordered, &[0], false),
    ];
    let schema = schema(&[(SqlType::Integer, false)], indexes);
    let segment = hot(&schema, &[Arc::new(Int32Array::from_iter_values([]))]);
    let eq = Predicate::Compare {
        attribute: 0,
        op: CompareOp::Eq,
        value: Literal::Int(1),
    };
    for (at, index) in schema.indexes().iter().enumerate() {
        let search = schema
            .index_search(index, std::slice::from_ref(&eq))
            .unwrap();
        assert_eq!(segment.search(at, &search, 0), Some(vec![]));
    }
}

#[test]
fn readers_find_every_published_row() {
    const ROWS: usize = 30_000;
    let indexes = vec![
        spec(IndexKind::Hash, &[0], false),
        spec(IndexKind::Ordered, &[0], false),
    ];
    let schema = schema(&[(SqlType::Integer, false)], indexes);
    // Each number comes a hundred times, here and there.
    let number = |row: u32| (row.wrapping_mul(7919) % 300) as i32;
    let values = Int32Array::from_iter_values((0..ROWS as u32).map(number));
    let columns: Vec<ArrayRef> = vec![Arc::new(values)];
    let keys = Keys::encode(&schema, &columns).unwrap();
    let segment = hot(&schema, &[columns[0].slice(0, 0)]);
    let is_done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for index in 0..2 {
            let (segment, schema, is_done) = (&segment, &schema, &is_done);
            scope.spawn(move || {
                let mut random = Random(index as u64);
                let mut last = false;
                while !last {
                    last = is_done.load(Ordering::Acquire);
                    let wanted = random.below(300) as i32;
                    let eq = Predicate::Compare {
                        attribute: 0,
                        op: CompareOp::Eq,
                        value: Literal::Int(wanted.into()),
                    };
                    let search = schema
                        .index_search(&schema.indexes()[index], &[eq])
                        .unwrap();
                    let before = segment.rows();
                    let found = segment.search(index, &search, ROWS).unwrap();
                    let after = segment.rows();
                    let expected = |rows| (0..rows).filter(|&row| number(row) == wanted).count();
                    assert!(found.iter().all(|&row| number(row) == wanted));
                    assert!((expected(before)..=expected(after)).contains(&found.len()));
                }
            });
        }
        let mut from = 0;
        while from < ROWS {
            let to = ROWS.min(from + 1 + from % 97);
            segment
                .writer()
                .append(&columns, from..to, &keys, 1)
                .unwrap();
            from = to;
        }
        is_done.store(true, Ordering::Release);
    });
}
