//! A segment against a model of plain values: whatever the types, the groups and
//! the way the rows came in, what comes out is what went in.
#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod model;

use std::{cmp::Ordering, ops::ControlFlow, sync::Arc};

use aerostat_segment::{
    CompareOp, HeapRegion, Key, KeyRef, Keys, NewRows, Pinned, Predicate, Segment, SegmentSchema,
    Selection, VECTOR_ROWS, stamp,
};
use aerostat_types::{SegmentNo, TableId};
use model::{Model, Random, Value, values};
use proptest::prelude::*;

const ARENA_BYTES: usize = 4 << 20;

/// Appends all rows of the model, in pieces of random length.
fn load(model: &Model, seed: u64) -> Pinned<'static> {
    let mut random = Random(seed);
    let segment = Pinned::new(model.segment(ARENA_BYTES), ());
    let columns = model.arrays(seed);
    let keys = Keys::encode(&model.schema, &columns).unwrap();
    let mut from = 0;
    while from < model.rows() {
        let to = (from + 1 + random.below(1500) as usize).min(model.rows());
        let appended = segment
            .writer()
            .append(&columns, from..to, &keys, 1 + random.below(2))
            .unwrap();
        assert_eq!(
            (
                appended.first as usize,
                appended.count as usize,
                appended.full
            ),
            (from, to - from, false)
        );
        from = to;
    }
    segment
}

/// All rows, a range of them, or some.
fn selection(rows: u32, random: &mut Random) -> Selection {
    let from = random.below(u64::from(rows)) as u32;
    match random.below(3) {
        0 => Selection::Range(0..rows),
        1 => Selection::Range(from..rows.min(from + random.below(700) as u32)),
        _ => Selection::Rows((0..rows).filter(|_| random.below(3) == 0).collect()),
    }
}

fn predicate(model: &Model, random: &mut Random) -> Predicate {
    let attribute = random.below(model.columns.len() as u64) as usize;
    let ty = model.schema.attributes()[attribute].ty;
    let mut literal = || model::value(ty, random).literal();
    let literals: Vec<_> = (0..12).filter_map(|_| literal()).collect();
    match (random.below(4), literals.first()) {
        (0, _) | (_, None) => match random.below(2) {
            0 => Predicate::IsNull { attribute },
            _ => Predicate::IsNotNull { attribute },
        },
        (1, _) => {
            let count = random.below(12) as usize;
            Predicate::InList {
                attribute,
                values: literals[..count].to_vec(),
                negated: random.below(2) == 0,
            }
        }
        (_, Some(first)) => {
            use CompareOp::*;
            Predicate::Compare {
                attribute,
                op: random.pick(&[Eq, Ne, Lt, Le, Gt, Ge]),
                value: first.clone(),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn gathered_is_what_was_appended(seed: u64, rows in 1usize..2600) {
        let model = Model::random(seed, rows);
        let segment = load(&model, seed);
        let mut random = Random(seed ^ 1);
        for _ in 0..3 {
            let selection = selection(rows as u32, &mut random);
            for (attribute, spec) in model.schema.attributes().iter().enumerate() {
                let expected: Vec<Value> =
                    selection.iter().map(|row| model.columns[attribute][row as usize].clone()).collect();
                prop_assert_eq!(values(spec.ty, &segment.gather(attribute, &selection)), expected);
            }
        }
        for row in 0..rows as u32 {
            segment.read_row(row, |attribute, value| {
                assert_eq!(model::of_ref(value), model.columns[attribute][row as usize], "row {row}");
            });
        }
    }

    /// Of whatever form the other column is.
    #[test]
    fn a_row_has_its_value_and_no_other(seed: u64, rows in 1usize..300) {
        let model = Model::random(seed, rows);
        let segment = load(&model, seed);
        let columns = model.arrays(seed ^ 5);
        let mut random = Random(seed ^ 6);
        for (attribute, values) in model.columns.iter().enumerate() {
            for row in 0..rows {
                let other = random.below(rows as u64) as usize;
                for at in [row, other] {
                    let has = segment.has_value(row as u32, attribute, NewRows::from(&columns), at);
                    prop_assert_eq!(has, values[row] == values[at]);
                }
            }
        }
    }

    /// Whichever way it comes in: its values, zones, keys and places in indexes.
    #[test]
    fn a_row_of_values_is_a_row_of_columns(seed: u64, rows in 1usize..300) {
        let model = Model::random(seed, rows);
        let segment = load(&model, seed);
        let (schema, columns) = (&model.schema, model.arrays(seed ^ 7));
        let keys = Keys::encode(schema, &columns).unwrap();
        let other = Pinned::new(model.segment(ARENA_BYTES), ());
        for row in 0..rows {
            let mut values = Vec::new();
            segment.read_row(row as u32, |_, value| values.push(value));
            let new = NewRows::Row(&values);
            prop_assert_eq!(
                schema.heap_bytes(new, 0..1).unwrap(),
                schema.heap_bytes(&columns, row..row + 1).unwrap()
            );
            for (attribute, column) in columns.iter().enumerate() {
                prop_assert!(segment.has_value(row as u32, attribute, new, 0));
                prop_assert_eq!(new.is_null(attribute, 0), new.has_null(attribute));
                prop_assert_eq!(new.is_null(attribute, 0), column.is_null(row));
            }
            let key = Keys::encode(schema, new).unwrap();
            prop_assert_eq!(key.get(0), keys.get(row));
            let appended = other.writer().append(new, 0..1, &key, 1).unwrap();
            prop_assert_eq!((appended.first, appended.count, appended.full), (row as u32, 1, false));
        }
        for (attribute, spec) in schema.attributes().iter().enumerate() {
            let all = Selection::Range(0..rows as u32);
            prop_assert_eq!(&values(spec.ty, &other.gather(attribute, &all)), &model.columns[attribute]);
            prop_assert_eq!(other.zone(0, attribute), segment.zone(0, attribute));
        }
        for row in 0..rows as u32 {
            let finds = |rows: &[u32]| rows.contains(&row);
            let mut found = Vec::new();
            if !schema.key().is_empty() {
                other.find(keys.get(row as usize), &mut |row| {
                    found.push(row);
                    ControlFlow::Continue(())
                });
                prop_assert!(finds(&found));
            }
            for index in 0..schema.indexes().len() {
                let key = segment.index_key_of(index, row);
                prop_assert_eq!(&other.index_key_of(index, row), &key);
                found.clear();
                other.find_indexed(index, key.borrow(), &mut |row| {
                    found.push(row);
                    ControlFlow::Continue(())
                });
                prop_assert!(finds(&found));
            }
        }
    }

    #[test]
    fn filtered_is_what_satisfies(seed: u64, rows in 1usize..2600) {
        let model = Model::random(seed, rows);
        let segment = load(&model, seed);
        let mut random = Random(seed ^ 2);
        for _ in 0..12 {
            let predicate = predicate(&model, &mut random);
            prop_assert!(model.schema.accepts(&predicate));
            let before = selection(rows as u32, &mut random);
            let column = &model.columns[predicate.attribute()];
            let expected: Vec<u32> =
                before.iter().filter(|&row| column[row as usize].satisfies(&predicate)).collect();
            let mut after = before.clone();
            segment.filter(&predicate, &mut after);
            prop_assert_eq!(after.iter().collect::<Vec<_>>(), expected, "{:?}", predicate);
            for vector in 0..segment.vectors() {
                let to = segment.rows().min((vector + 1) * VECTOR_ROWS);
                let mut rows = vector * VECTOR_ROWS..to;
                if !predicate.may_match(segment.zone(vector, predicate.attribute())) {
                    prop_assert!(!rows.any(|row| column[row as usize].satisfies(&predicate)), "{:?}", predicate);
                }
            }
        }
    }

    #[test]
    fn keys_order_as_rows_do_and_are_found(seed: u64, rows in 1usize..300) {
        let model = Model::random(seed, rows);
        let segment = load(&model, seed);
        let columns = model.arrays(seed);
        let keys = Keys::encode(&model.schema, &columns).unwrap();
        let key = model.schema.key();
        let order = |a: usize, b: usize| {
            key.iter().fold(Ordering::Equal, |order, &attribute| {
                order.then_with(|| model.columns[attribute][a].compare(&model.columns[attribute][b]))
            })
        };
        for row in 0..rows {
            let own = segment.key_of(row as u32);
            prop_assert_eq!(own.borrow(), keys.get(row));
            let other = (row * 7 + 3) % rows;
            prop_assert_eq!(keys.get(row).cmp(&keys.get(other)), order(row, other));
            let literals: Option<Vec<_>> = key.iter().map(|&at| model.columns[at][row].literal()).collect();
            if let Some(literals) = literals {
                let encoded = Key::encode(&model.schema, &literals).unwrap();
                prop_assert_eq!(encoded.borrow(), keys.get(row));
                // And back: what has one key is one value.
                let values = keys.get(row).values(&model.schema).unwrap();
                let again = Key::encode(&model.schema, &values).unwrap();
                prop_assert_eq!(again.borrow(), keys.get(row));
            }
            let cut = &own[..own.len().saturating_sub(1)];
            prop_assert!(own.is_empty() || KeyRef(cut).values(&model.schema).is_none());
            let mut found = Vec::new();
            segment.find(keys.get(row), &mut |row| {
                found.push(row as usize);
                ControlFlow::Continue(())
            });
            found.sort_unstable();
            let expected: Vec<usize> =
                if key.is_empty() { vec![] } else { (0..rows).filter(|&at| order(row, at).is_eq()).collect() };
            prop_assert_eq!(found, expected);
        }
        let ascending = (1..rows).all(|row| order(row - 1, row).is_lt());
        prop_assert_eq!(keys.is_strictly_ascending(), ascending);
    }

    #[test]
    fn stamps_are_those_last_set(seed: u64, rows in 1usize..4000) {
        let model = Model::random(seed, rows);
        let mut random = Random(seed);
        let segment = model.segment(ARENA_BYTES);
        let mut expected: Vec<(u64, u64)> = Vec::new();
        let columns = model.arrays(0);
        let keys = Keys::encode(&model.schema, &columns).unwrap();
        while expected.len() < rows {
            let to = (expected.len() + 1 + random.below(1200) as usize).min(rows);
            let begin = stamp::of_txn(random.below(2));
            segment.writer().append(&columns, expected.len()..to, &keys, begin).unwrap();
            expected.resize(to, (begin, stamp::END_NONE));
            let mut writer = segment.writer();
            for _ in 0..3 {
                let from = random.below(to as u64) as usize;
                let until = from + random.below((to - from) as u64 + 1) as usize;
                let commit = random.below(3);
                writer.set_begin(from as u32..until as u32, commit);
                expected[from..until].iter_mut().for_each(|stamps| stamps.0 = commit);
                let ended = random.below(to as u64) as usize;
                writer.set_end(ended as u32, commit);
                expected[ended].1 = commit;
            }
        }
        for (row, &stamps) in expected.iter().enumerate() {
            prop_assert_eq!(segment.stamps(row as u32), stamps, "row {}", row);
        }
        let from = random.below(rows as u64) as u32;
        let mut selected = Selection::default();
        let mut refusals = 5;
        segment.select_visible(from..rows as u32, &mut |begin, end| {
            refusals -= i32::from(refusals > 0);
            (refusals == 0).then_some(begin <= 1 && end > 1)
        }, &mut selected);
        let visible: Vec<u32> = (from..rows as u32)
            .filter(|&row| expected[row as usize].0 <= 1 && expected[row as usize].1 > 1)
            .collect();
        prop_assert_eq!(selected.iter().collect::<Vec<_>>(), visible);
        let mut ended = Vec::new();
        segment.each_end(from..rows as u32, &mut |row, end| ended.push((row, end)));
        let ends = (from..rows as u32).map(|row| (row, expected[row as usize].1));
        prop_assert_eq!(ended, ends.filter(|(_, end)| *end != stamp::END_NONE).collect::<Vec<_>>());
    }

    #[test]
    fn copied_rows_keep_values_and_stamps(seed: u64, rows in 1usize..2600) {
        let model = Model::random(seed, rows);
        let from = load(&model, seed);
        for row in (0..rows as u32).step_by(97) {
            from.writer().set_end(row, 5);
        }
        let to = Pinned::new(model.segment(ARENA_BYTES), ());
        let copied: Vec<u32> = (0..rows as u32).filter(|row| row % 3 != 0).collect();
        let appended = to.writer().append_rows_from(&from, &copied).unwrap();
        prop_assert_eq!((appended.first, appended.count as usize, appended.full), (0, copied.len(), false));
        for (attribute, spec) in model.schema.attributes().iter().enumerate() {
            let old = from.gather(attribute, &Selection::Rows(copied.clone()));
            let new = to.gather(attribute, &Selection::Range(0..to.rows()));
            prop_assert_eq!(values(spec.ty, &new), values(spec.ty, &old));
        }
        for (new, &old) in copied.iter().enumerate() {
            prop_assert_eq!(to.stamps(new as u32), from.stamps(old));
        }
    }

    #[test]
    fn a_segment_fits_an_arena_of_its_size_in_any_layout(seed: u64, rows in 1usize..2600) {
        let model = Model::random(seed, rows);
        let mut random = Random(seed ^ 3);
        let columns = model.arrays(seed);
        let keys = Keys::encode(&model.schema, &columns).unwrap();
        let heap_bytes = model.schema.heap_bytes(&columns, 0..rows).unwrap();
        let create = |schema: &Arc<SegmentSchema>, capacity: Option<u32>| {
            let region = Box::new(HeapRegion::new(128 << 10));
            let (schema, id, no) = (Arc::clone(schema), TableId(1), SegmentNo(1));
            match capacity {
                Some(capacity) => Segment::create_for(region, schema, id, no, capacity),
                None => Segment::create(region, schema, id, no, heap_bytes.div_ceil(rows)),
            }
        };
        let Ok(from) = create(&model.schema, None) else { return Ok(()) };
        from.writer().append(&columns, 0..rows, &keys, 1).unwrap();
        let stored = from.rows();
        let from = Pinned::new(from, ());
        let mut order: Vec<usize> = (0..columns.len()).collect();
        order.sort_by_key(|_| random.next());
        let mut groups: Vec<Vec<usize>> = vec![Vec::new()];
        for attribute in order {
            if random.below(3) == 0 {
                groups.push(Vec::new());
            }
            groups.last_mut().unwrap().push(attribute);
        }
        groups.retain(|group| !group.is_empty());
        let schema = SegmentSchema::new(
            model.schema.attributes().to_vec(),
            groups,
            model.schema.key().to_vec(),
        );
        let schema = schema.unwrap().with_indexes(model.schema.indexes().to_vec());
        let to = create(&Arc::new(schema.unwrap()), Some(from.capacity())).unwrap();
        prop_assert_eq!((to.capacity(), to.heap_bytes()), (from.capacity(), from.heap_bytes()));
        if model.schema.heap_bytes(&columns, 0..stored as usize).unwrap() <= from.heap_bytes() {
            let all: Vec<u32> = (0..stored).collect();
            prop_assert_eq!(to.writer().append_rows_from(&from, &all).unwrap().count, stored);
        }
    }
}
