//! Lookup tables on segments, hot and frozen, against plain maps.
#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod model;

use std::{collections::BTreeMap, sync::Arc};

use aerostat_segment::{
    AttributeSpec, Condition, Encoding, Keys, LookupTable, Pinned, SegmentSchema, Selection,
};
use aerostat_types::SqlType;
use model::{Model, Random, Value, freeze};

const ARENA_BYTES: usize = 16 << 20;

/// One column for each way in which integers are encoded.
fn columns(types: &[SqlType], rows: usize, random: &mut Random) -> Vec<Vec<Value>> {
    let column = |ty: &SqlType| -> Vec<Value> {
        let span: u64 = match ty {
            SqlType::SmallInt => 1 << 15,
            SqlType::BigInt => 1 << 50,
            _ => 1 << 30,
        };
        let base = -(random.below(span) as i64);
        let kind = random.below(7);
        let few: Vec<i64> = (0..3 + random.below(30))
            .map(|_| base + random.below(span) as i64)
            .collect();
        let null_share = random.pick(&[0, 0, 8, 100]);
        let mut last = base;
        let value = |at: usize| {
            let value = match kind {
                // Frames, of few bits, of more and of many.
                0 => base + random.below(200) as i64,
                6 => base + random.below(span.min(200_000)) as i64,
                1 => base + random.below(span) as i64,
                // Dictionaries.
                2 => random.pick(&few),
                // Runs.
                3 => {
                    if random.below(12) == 0 {
                        last = base + random.below(40) as i64;
                    }
                    last
                }
                4 => base,
                _ => base + (at as i64).min(span as i64 - 1),
            };
            match random.below(100) < null_share {
                true => Value::Null,
                false => Value::Int(value.into()),
            }
        };
        (0..rows).map(value).collect()
    };
    types.iter().map(column).collect()
}

fn load(random: &mut Random, rows: usize) -> (Model, Pinned<'static>) {
    let types = [
        SqlType::SmallInt,
        SqlType::Integer,
        SqlType::BigInt,
        SqlType::Date,
    ];
    let attributes = types.map(|ty| AttributeSpec { ty, nullable: true });
    let layouts: [&[&[usize]]; 3] = [
        &[&[0, 1, 2, 3]],
        &[&[0], &[1], &[2], &[3]],
        &[&[1, 3], &[0, 2]],
    ];
    let layout = random.pick(&layouts);
    let groups = layout.iter().map(|group| group.to_vec()).collect();
    let schema = SegmentSchema::new(attributes.to_vec(), groups, Vec::new()).unwrap();
    let model = Model {
        schema: Arc::new(schema),
        columns: columns(&types, rows, random),
    };
    let segment = Pinned::new(model.segment(ARENA_BYTES), ());
    let arrays = model.arrays(1);
    let keys = Keys::encode(&model.schema, &arrays).unwrap();
    segment.writer().append(&arrays, 0..rows, &keys, 3).unwrap();
    (model, segment)
}

fn selection(rows: u32, random: &mut Random) -> Selection {
    let from = random.below(u64::from(rows)) as u32;
    match random.below(4) {
        0 => Selection::Range(0..rows),
        1 => Selection::Range(from..rows.min(from + random.below(1700) as u32)),
        2 => Selection::Rows((0..rows).filter(|_| random.below(3) == 0).collect()),
        _ => Selection::Rows((0..rows).filter(|_| random.below(100) == 0).collect()),
    }
}

/// Keys that a column has, and others; far apart, they are hashed.
fn keys_for(column: &[Value], random: &mut Random) -> BTreeMap<i64, u32> {
    let own = |random: &mut Random| match random.pick(column) {
        Value::Int(value) => value as i64,
        _ => random.below(100) as i64,
    };
    let mut keys: Vec<i64> = (0..random.pick(&[0, 1, 20, 400]))
        .map(|_| own(random))
        .collect();
    match random.below(5) {
        0 => keys.extend([i64::MIN, i64::MAX]),
        2 => {
            let first = own(random);
            keys = (first..first.saturating_add(300)).collect();
        }
        1 => {
            let first = own(random);
            keys.extend(first..first.saturating_add(50));
        }
        _ => keys.push(own(random) + 1),
    }
    keys.into_iter()
        .map(|key| (key, random.below(1000) as u32))
        .collect()
}

#[test]
fn segments_find_what_maps_find() {
    let mut encodings = std::collections::BTreeSet::new();
    for seed in 0..if cfg!(miri) { 2 } else { 250 } {
        let mut random = Random(seed);
        let rows = 1 + random.below(if cfg!(miri) { 700 } else { 6000 }) as usize;
        let (model, hot) = load(&mut random, rows);
        // Without a key, rows stay in their order.
        let (frozen, _) = freeze(&hot);
        for attribute in 0..4 {
            assert!(model.schema.is_lookup_key(attribute));
            let column = &model.columns[attribute];
            let map = keys_for(column, &mut random);
            let keys: Vec<i64> = map.keys().copied().collect();
            let codes: Vec<u32> = map.values().copied().collect();
            let table = Arc::new(LookupTable::new(&keys, Some(&codes)).unwrap());
            let asked = selection(rows as u32, &mut random);
            let found = |row: u32| match &column[row as usize] {
                Value::Int(value) => map.get(&(*value as i64)).copied(),
                _ => None,
            };
            let expected: Vec<(u32, u64)> = asked
                .iter()
                .filter_map(|row| Some((row, 7 * u64::from(found(row)?) + 1)))
                .collect();
            encodings.insert(format!("{:?}", frozen.encoding(attribute).encoding));
            if frozen.encoding(attribute).runs.is_some() {
                encodings.insert("runs".to_owned());
            }
            for segment in [&hot, &frozen] {
                let at = format!("seed {seed}, {:?}, {table:?}", segment.encoding(attribute));
                let probe = segment.probe(attribute, &table);
                let mut kept = asked.clone();
                segment.keep(&[Condition::Member(&probe)], &mut kept, &mut |_, _| ());
                let rows = expected.iter().map(|(row, _)| *row);
                assert!(kept.iter().eq(rows), "{at}");
                let mut sums = vec![1; kept.len()];
                segment.add_codes(&probe, &kept, 7, &mut sums);
                assert!(sums.iter().eq(expected.iter().map(|(_, sum)| sum)), "{at}");
                for vector in 0..segment.vectors() {
                    let mut inside = asked.iter().filter(|row| row / 8192 == vector);
                    let any = inside.any(|row| found(row).is_some());
                    assert!(!any || segment.may_have_member(vector, &probe), "{at}");
                }
            }
        }
    }
    if !cfg!(miri) {
        for encoding in [Encoding::Frame, Encoding::Dictionary, Encoding::Constant] {
            let name = format!("{encoding:?}");
            assert!(encodings.contains(&name), "{name} of {encodings:?}");
        }
        assert!(encodings.contains("runs"), "{encodings:?}");
    }
}

/// Of few rows that are left codes are picked one by one, over the blocks of a vector.
#[test]
fn several_tables_leave_what_all_have() {
    for seed in 0..if cfg!(miri) { 1 } else { 24 } {
        let mut random = Random(seed);
        let rows = 1 + random.below(if cfg!(miri) { 900 } else { 20_000 }) as usize;
        let (model, hot) = load(&mut random, rows);
        let (frozen, _) = freeze(&hot);
        for _ in 0..12 {
            let maps: Vec<_> = (0..4)
                .map(|attribute| {
                    let column = &model.columns[attribute];
                    // Many values, then the odd one is left.
                    let mut map = keys_for(column, &mut random);
                    for _ in 0..random.pick(&[0, 100, 4000]) {
                        if let Value::Int(value) = random.pick(column) {
                            map.insert(value as i64, 0);
                        }
                    }
                    map
                })
                .collect();
            let asked = match random.below(3) {
                0 => selection(rows as u32, &mut random),
                _ => Selection::Range(0..rows as u32),
            };
            let has_all = |row: &u32| {
                let mut all = maps.iter().zip(&model.columns);
                all.all(|(map, column)| match &column[*row as usize] {
                    Value::Int(value) => map.contains_key(&(*value as i64)),
                    _ => false,
                })
            };
            let expected: Vec<u32> = asked.iter().filter(has_all).collect();
            for segment in [&hot, &frozen] {
                let probes: Vec<_> = maps
                    .iter()
                    .enumerate()
                    .map(|(attribute, map)| {
                        let keys: Vec<i64> = map.keys().copied().collect();
                        let table = Arc::new(LookupTable::new(&keys, None).unwrap());
                        segment.probe(attribute, &table)
                    })
                    .collect();
                let conditions: Vec<_> = probes.iter().map(Condition::Member).collect();
                let (mut kept, mut left) = (asked.clone(), Vec::new());
                segment.keep(&conditions, &mut kept, &mut |_, rows| left.push(rows));
                assert!(kept.iter().eq(expected.iter().copied()), "seed {seed}");
                assert!(left.is_sorted_by(|one, next| one >= next), "seed {seed}");
                assert!(asked.is_empty() || left.last() == Some(&expected.len()));
            }
        }
    }
}

#[test]
fn only_whole_numbers_and_dates_are_keys() {
    let types = [
        SqlType::Text,
        SqlType::Double,
        SqlType::Timestamp,
        SqlType::Numeric {
            precision: 10,
            scale: 2,
        },
    ];
    let attributes = types.map(|ty| AttributeSpec { ty, nullable: true });
    let groups = (0..4).map(|at| vec![at]).collect();
    let schema = SegmentSchema::new(attributes.to_vec(), groups, Vec::new()).unwrap();
    assert!((0..5).all(|attribute| !schema.is_lookup_key(attribute)));
}
