//! A frozen segment against its hot source and a model of plain values: it answers
//! exactly the same, whatever the types, encodings, layouts and orders.
#![allow(clippy::unwrap_used, clippy::panic, reason = "these are tests")]

mod model;

use std::{ops::ControlFlow, sync::Arc};

use aerostat_segment::{
    CompareOp, Condition, Keys, Literal, Pinned, Predicate, Selection, VECTOR_ROWS, stamp,
};
use aerostat_types::{SegmentNo, SqlType, TableId};
use model::{Model, Random, Value, freeze, values};
use proptest::prelude::*;

const ARENA_BYTES: usize = 16 << 20;

/// A model and a hot segment of its rows.
fn load(seed: u64, rows: usize) -> (Model, Pinned<'static>) {
    let mut model = Model::random(seed, rows);
    model.reshape(&mut Random(seed ^ 0xAA));
    let segment = Pinned::new(model.segment(ARENA_BYTES), ());
    let columns = model.arrays(seed);
    let keys = Keys::encode(&model.schema, &columns).unwrap();
    let appended = segment
        .writer()
        .append(&columns, 0..rows, &keys, 3)
        .unwrap();
    assert!(!appended.full);
    (model, segment)
}

/// The model's columns in the frozen order.
fn ordered(model: &Model, order: &[u32]) -> Vec<Vec<Value>> {
    let column = |values: &Vec<Value>| {
        order
            .iter()
            .map(|&row| values[row as usize].clone())
            .collect()
    };
    model.columns.iter().map(column).collect()
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

fn predicate(columns: &[Vec<Value>], model: &Model, random: &mut Random) -> Predicate {
    let attribute = random.below(columns.len() as u64) as usize;
    let ty = model.schema.attributes()[attribute].ty;
    // Values that are there, and values that need not be.
    let mut literal = || match random.below(3) {
        0 => model::value(ty, random).literal(),
        1 => model::wide(ty, random).literal(),
        _ => random.pick(&columns[attribute]).literal(),
    };
    let literals: Vec<Literal> = (0..12).filter_map(|_| literal()).collect();
    match (random.below(5), literals.first()) {
        (0, _) | (_, None) => match random.below(2) {
            0 => Predicate::IsNull { attribute },
            _ => Predicate::IsNotNull { attribute },
        },
        (1, _) => {
            let values = literals[..random.below(literals.len() as u64 + 1) as usize].to_vec();
            Predicate::InList {
                attribute,
                values,
                negated: random.below(2) == 0,
            }
        }
        (2, Some(Literal::Int(_))) => {
            let value = Literal::Int(random.pick(&[i128::MIN, i128::MAX, 1 << 64, -1 << 64]));
            Predicate::Compare {
                attribute,
                op: random.pick(&OPS),
                value,
            }
        }
        (_, Some(first)) => Predicate::Compare {
            attribute,
            op: random.pick(&OPS),
            value: first.clone(),
        },
    }
}

const OPS: [CompareOp; 6] = [
    CompareOp::Eq,
    CompareOp::Ne,
    CompareOp::Lt,
    CompareOp::Le,
    CompareOp::Gt,
    CompareOp::Ge,
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn gathered_is_what_was_frozen(seed: u64, rows in 1usize..2600) {
        let (model, hot) = load(seed, rows);
        let (frozen, order) = freeze(&hot);
        prop_assert_eq!((frozen.rows(), frozen.capacity(), frozen.is_frozen()), (rows as u32, rows as u32, true));
        prop_assert_eq!((frozen.table(), frozen.no()), (TableId(7), SegmentNo(4)));
        let attributes = 0..model.schema.attributes().len();
        let encoded: u64 = attributes.map(|at| frozen.encoding(at).bytes).sum();
        prop_assert!(encoded <= frozen.arena_bytes() as u64, "{} bytes", encoded);
        let columns = ordered(&model, &order);
        let mut random = Random(seed ^ 1);
        for _ in 0..4 {
            let selection = selection(rows as u32, &mut random);
            for (attribute, spec) in model.schema.attributes().iter().enumerate() {
                let expected: Vec<Value> =
                    selection.iter().map(|row| columns[attribute][row as usize].clone()).collect();
                prop_assert_eq!(values(spec.ty, &frozen.gather(attribute, &selection)), expected);
            }
        }
        for row in 0..rows as u32 {
            frozen.read_row(row, |attribute, value| {
                assert_eq!(model::of_ref(value), columns[attribute][row as usize], "row {row}");
            });
        }
    }

    #[test]
    fn several_conditions_leave_what_satisfies_all(seed: u64, rows in 1usize..2600) {
        let (model, hot) = load(seed, rows);
        let (frozen, order) = freeze(&hot);
        let columns = ordered(&model, &order);
        let mut random = Random(seed ^ 0xCC);
        for _ in 0..8 {
            let mut predicates: Vec<Predicate> =
                (0..1 + random.below(3)).map(|_| predicate(&columns, &model, &mut random)).collect();
            // Two bounds of one attribute are looked for together.
            if let Predicate::Compare { attribute, .. } = predicates[0] {
                let ty = model.schema.attributes()[attribute].ty;
                if let Some(value) = random.pick(&columns[attribute]).literal().or(model::value(ty, &mut random).literal()) {
                    predicates.insert(1, Predicate::Compare { attribute, op: random.pick(&OPS), value });
                }
            }
            let all = selection(rows as u32, &mut random);
            for (segment, columns) in [(&hot, &model.columns), (&frozen, &columns)] {
                let mut kept = all.clone();
                let mut left = Vec::new();
                segment.keep(&predicates.iter().map(Condition::Predicate).collect::<Vec<_>>(), &mut kept, &mut |at, rows| left.push((at, rows)));
                let passes = |row: &u32| {
                    predicates.iter().all(|one| columns[one.attribute()][*row as usize].satisfies(one))
                };
                let expected: Vec<u32> = all.iter().filter(passes).collect();
                prop_assert!(kept.iter().eq(expected.iter().copied()), "{:?}", predicates);
                prop_assert!(left.iter().map(|(at, _)| *at).eq(0..left.len()), "{:?}", left);
                if !all.is_empty() {
                    prop_assert_eq!(left.last().map(|(_, rows)| *rows), Some(kept.len()));
                }
            }
        }
    }

    #[test]
    fn filtered_is_what_satisfies(seed: u64, rows in 1usize..2600) {
        let (model, hot) = load(seed, rows);
        let (frozen, order) = freeze(&hot);
        let columns = ordered(&model, &order);
        let mut random = Random(seed ^ 2);
        for _ in 0..16 {
            let predicate = predicate(&columns, &model, &mut random);
            prop_assert!(model.schema.accepts(&predicate));
            let column = &columns[predicate.attribute()];
            let before = selection(rows as u32, &mut random);
            let expected: Vec<u32> =
                before.iter().filter(|&row| column[row as usize].satisfies(&predicate)).collect();
            let mut after = before.clone();
            frozen.filter(&predicate, &mut after);
            prop_assert_eq!(after.iter().collect::<Vec<_>>(), expected, "{:?}", predicate);
            for vector in 0..frozen.vectors() {
                let mut rows = vector * VECTOR_ROWS..frozen.rows().min((vector + 1) * VECTOR_ROWS);
                if !frozen.may_match(vector, &predicate) {
                    prop_assert!(!rows.any(|row| column[row as usize].satisfies(&predicate)), "{:?}", predicate);
                }
            }
        }
    }

    #[test]
    fn keys_are_found_where_they_are(seed: u64, rows in 1usize..400) {
        let (model, hot) = load(seed, rows);
        let (frozen, order) = freeze(&hot);
        let columns = model.arrays(seed);
        let keys = Keys::encode(&model.schema, &columns).unwrap();
        let find = |segment: &Pinned, key| {
            let mut found = Vec::new();
            segment.find(key, &mut |row| {
                found.push(row);
                ControlFlow::Continue(())
            });
            found.sort_unstable();
            found
        };
        for (at, &row) in order.iter().enumerate() {
            prop_assert_eq!(frozen.key_of(at as u32), hot.key_of(row));
            let key = keys.get(row as usize);
            let mut expected: Vec<u32> =
                find(&hot, key).iter().map(|row| order.iter().position(|at| at == row).unwrap() as u32).collect();
            expected.sort_unstable();
            prop_assert_eq!(find(&frozen, key), expected);
        }
        // Keys of other rows, of which some are there.
        let other = Model { schema: Arc::clone(&model.schema), columns: Model::random(seed, 50).columns };
        let keys = Keys::encode(&other.schema, &other.arrays(0)).unwrap();
        for key in keys.iter() {
            prop_assert_eq!(find(&frozen, key).len(), find(&hot, key).len());
            let cut = aerostat_segment::KeyRef(&key.0[..key.0.len() / 2]);
            prop_assert_eq!(find(&frozen, cut).len(), find(&hot, cut).len());
        }
    }

    #[test]
    fn ends_are_set_and_rows_thaw(seed: u64, rows in 1usize..3000) {
        let (model, hot) = load(seed, rows);
        let (frozen, order) = freeze(&hot);
        let mut random = Random(seed ^ 3);
        let mut ends = vec![stamp::END_NONE; rows];
        let before = frozen.footprint_bytes();
        for _ in 0..random.below(4) {
            let row = random.below(rows as u64) as u32;
            let end = random.pick(&[7, 8, stamp::of_txn(1)]);
            frozen.writer().set_end(row, end);
            ends[row as usize] = end;
        }
        let no_end = ends.iter().all(|end| *end == stamp::END_NONE);
        prop_assert_eq!(frozen.footprint_bytes() > before, !no_end);
        for (row, &end) in ends.iter().enumerate() {
            prop_assert_eq!(frozen.stamps(row as u32), (5, end));
        }
        let mut selected = Selection::default();
        frozen.select_visible(0..rows as u32, &mut |_, end| Some(end == stamp::END_NONE), &mut selected);
        let expected: Vec<u32> = (0..rows as u32).filter(|&row| ends[row as usize] == stamp::END_NONE).collect();
        prop_assert_eq!(selected.iter().collect::<Vec<_>>(), expected.clone());
        // A frozen segment takes no row, but gives its own to others.
        let columns = model.arrays(0);
        let keys = Keys::encode(&model.schema, &columns).unwrap();
        let refused = frozen.writer().append(&columns, 0..rows, &keys, 9).unwrap();
        prop_assert_eq!((refused.count, refused.full), (0, true));
        let thawed = Pinned::new(model.segment(ARENA_BYTES), ());
        let appended = thawed.writer().append_rows_from(&frozen, &expected).unwrap();
        prop_assert_eq!((appended.count as usize, appended.full), (expected.len(), false));
        let columns = ordered(&model, &order);
        for (attribute, spec) in model.schema.attributes().iter().enumerate() {
            let all = Selection::Range(0..thawed.rows());
            let expected: Vec<Value> = expected.iter().map(|&row| columns[attribute][row as usize].clone()).collect();
            prop_assert_eq!(values(spec.ty, &thawed.gather(attribute, &all)), expected);
        }
        // Frozen from frozen is the same.
        let (again, _) = freeze(&frozen);
        prop_assert_eq!(again.arena_bytes(), frozen.arena_bytes());
    }
}

/// More rows than a vector, so that zones and blocks of several are used; and identifiers,
/// which have a Bloom filter.
#[test]
fn encodings_are_told_by_name() {
    use aerostat_segment::{AttributeEncoding, AttributeSpec, Encoding, SegmentSchema};
    let types = [
        SqlType::Integer,
        SqlType::BigInt,
        SqlType::Text,
        SqlType::Text,
        SqlType::Double,
    ];
    let attributes = types.map(|ty| AttributeSpec {
        ty,
        nullable: false,
    });
    let groups = (0..types.len()).map(|at| vec![at]).collect();
    let schema = SegmentSchema::new(attributes.to_vec(), groups, vec![0]).unwrap();
    let text = |text: String| Value::Bytes(text.into_bytes());
    let mut random = Random(9);
    let mut columns: Vec<Vec<Value>> = vec![Vec::new(); types.len()];
    for row in 0..4_000 {
        columns[0].push(Value::Int(row));
        columns[1].push(Value::Int(1 << 40));
        columns[2].push(text(format!("city {:>10}", row / 400)));
        columns[3].push(text(format!("{:020}", random.next())));
        columns[4].push(Value::Float(random.next() as f64 / 3.0));
    }
    let model = Model {
        schema: Arc::new(schema),
        columns,
    };
    let hot = Pinned::new(model.segment(ARENA_BYTES), ());
    let arrays = model.arrays(0);
    let keys = Keys::encode(&model.schema, &arrays).unwrap();
    hot.writer().append(&arrays, 0..4_000, &keys, 1).unwrap();
    let (frozen, _) = freeze(&hot);
    let named: Vec<String> = (0..5).map(|at| frozen.encoding(at).to_string()).collect();
    assert_eq!(
        named,
        [
            "frame of reference",
            "constant",
            "dictionary, runs",
            "strings",
            "plain"
        ]
    );
    assert_eq!(frozen.encoding(0).code_bits, 12);
    assert_eq!(
        (frozen.encoding(1).code_bits, frozen.encoding(1).bytes),
        (0, 0)
    );
    assert_eq!(
        (frozen.encoding(2).runs, frozen.encoding(2).entries),
        (Some(10), 10)
    );
    let plain = AttributeEncoding {
        encoding: Encoding::Plain,
        code_bits: 64,
        runs: None,
        entries: 0,
        bytes: 32_000,
    };
    assert_eq!((hot.encoding(1), hot.encoding(3)), (plain, plain));
}

#[test]
fn identifiers_are_pruned_before_they_are_looked_at() {
    use aerostat_segment::{AttributeSpec, SegmentSchema};
    let spec = |ty, nullable| AttributeSpec { ty, nullable };
    let attributes = vec![
        spec(SqlType::Integer, false),
        spec(SqlType::BigInt, false),
        spec(SqlType::Uuid, false),
        spec(SqlType::Text, true),
    ];
    for groups in [
        vec![vec![0], vec![1], vec![2], vec![3]],
        vec![vec![3, 2, 1, 0]],
    ] {
        let schema = Arc::new(SegmentSchema::new(attributes.clone(), groups, vec![0]).unwrap());
        let rows = 20_000;
        let mut random = Random(1);
        let mut columns: Vec<Vec<Value>> = vec![Vec::new(); 4];
        for row in 0..rows {
            let id = random.next();
            columns[0].push(Value::Int(row));
            columns[1].push(Value::Int((id as i64).into()));
            columns[2].push(Value::Bytes(id.to_le_bytes().repeat(2)));
            columns[3].push(Value::Bytes(format!("{id:020}@example.org").into_bytes()));
        }
        let model = Model { schema, columns };
        let hot = Pinned::new(model.segment(ARENA_BYTES), ());
        let arrays = model.arrays(1);
        let keys = Keys::encode(&model.schema, &arrays).unwrap();
        assert!(
            !hot.writer()
                .append(&arrays, 0..rows as usize, &keys, 1)
                .unwrap()
                .full
        );
        let (frozen, _) = freeze(&hot);
        for attribute in 1..4 {
            let equal = |value: &Value| Predicate::Compare {
                attribute,
                op: CompareOp::Eq,
                value: value.literal().unwrap(),
            };
            for row in (0..rows as usize).step_by(997) {
                let mut found = Selection::Range(0..rows as u32);
                let predicate = equal(&model.columns[attribute][row]);
                assert!(frozen.may_match(row as u32 / VECTOR_ROWS, &predicate));
                frozen.filter(&predicate, &mut found);
                assert_eq!(found.iter().collect::<Vec<_>>(), [row as u32]);
            }
            let mut absent = 0;
            for _ in 0..1000 {
                let value = match attribute {
                    1 => Value::Int((random.next() as i64).into()),
                    2 => Value::Bytes(random.next().to_le_bytes().repeat(2)),
                    _ => Value::Bytes(format!("{:020}@example.org", random.next()).into_bytes()),
                };
                absent += usize::from(!frozen.may_match(0, &equal(&value)));
            }
            assert!(
                absent > 950,
                "attribute {attribute}: {absent} of 1,000 were ruled out"
            );
        }
    }
}

/// Rows copied in key order come from anywhere, so NULLs of all vectors are looked for.
#[test]
fn nulls_survive_a_copy_in_another_order() {
    use aerostat_segment::{AttributeSpec, SegmentSchema};
    let spec = |nullable| AttributeSpec {
        ty: SqlType::Integer,
        nullable,
    };
    let schema = SegmentSchema::new(
        vec![spec(false), spec(true)],
        vec![vec![0], vec![1]],
        vec![0],
    );
    let rows = 3 * VECTOR_ROWS as i128;
    let number = |row: i128| {
        if row % 3 == 0 {
            Value::Null
        } else {
            Value::Int(row)
        }
    };
    let model = Model {
        schema: Arc::new(schema.unwrap()),
        columns: vec![
            (0..rows).map(Value::Int).collect(),
            (0..rows).map(number).collect(),
        ],
    };
    let hot = Pinned::new(model.segment(ARENA_BYTES), ());
    let arrays = model.arrays(1);
    let keys = Keys::encode(&model.schema, &arrays).unwrap();
    hot.writer()
        .append(&arrays, 0..rows as usize, &keys, 1)
        .unwrap();
    let backwards: Vec<u32> = (0..rows as u32).rev().collect();
    let copy = Pinned::new(model.segment(ARENA_BYTES), ());
    copy.writer().append_rows_from(&hot, &backwards).unwrap();
    let found = values(
        SqlType::Integer,
        &copy.gather(1, &Selection::Range(0..rows as u32)),
    );
    assert_eq!(found, (0..rows).rev().map(number).collect::<Vec<_>>());
}

/// Small tables come out small, though every row has texts of its own: a supplier of the
/// Star Schema Benchmark, with a name, an address, a city, a nation, a region and a phone
/// number, and a calendar of texts that repeat.
#[test]
fn small_tables_take_less_than_their_values() {
    use aerostat_segment::{AttributeSpec, SegmentSchema};
    let mut random = Random(5);
    let text = |text: String| Value::Bytes(text.into_bytes());
    let supplier: Vec<Vec<Value>> = (0..2_000i128)
        .map(|key| {
            let address: String = (0..10 + random.below(16))
                .map(|_| char::from(b'0' + random.below(64) as u8))
                .collect();
            let phone = random.below(9_000_000_000);
            vec![
                Value::Int(key),
                text(format!("Supplier#{key:09}")),
                text(address),
                text(format!("UNITED KI{}", random.below(250))),
                text(format!("NATION {:08}", random.below(25))),
                text(format!("REGION {}", random.below(5))),
                text(format!("{}-{phone:010}", 10 + random.below(25))),
            ]
        })
        .collect();
    let date: Vec<Vec<Value>> = (0..2_556i128)
        .map(|day| {
            vec![
                Value::Int(19_920_101 + day),
                text(format!("January {}, {}", day % 31, 1992 + day / 365)),
                text(["Monday", "Tuesday", "Wednesday", "Thursday"][day as usize % 4].into()),
                text(format!("Jan{}", 1992 + day / 365)),
                Value::Int(day % 365),
                Value::Int(day % 7),
                text("Christmas".into()),
                text(if day % 7 == 0 { "1" } else { "0" }.into()),
            ]
        })
        .collect();
    for (rows, share) in [(supplier, 0.9), (date, 0.5)] {
        let of = |value: &Value| match value {
            Value::Int(_) => (SqlType::Integer, 4),
            Value::Bytes(bytes) => (SqlType::Text, bytes.len()),
            other => panic!("{other:?}"),
        };
        let raw_bytes: usize = rows.iter().flatten().map(|value| of(value).1).sum();
        let attributes: Vec<AttributeSpec> = rows[0]
            .iter()
            .map(|value| AttributeSpec {
                ty: of(value).0,
                nullable: false,
            })
            .collect();
        let count = attributes.len();
        for groups in [
            (0..count).map(|at| vec![at]).collect(),
            vec![(0..count).collect()],
        ] {
            let schema = SegmentSchema::new(attributes.clone(), groups, vec![0]).unwrap();
            let columns = (0..count).map(|at| rows.iter().map(|row| row[at].clone()).collect());
            let model = Model {
                schema: Arc::new(schema),
                columns: columns.collect(),
            };
            let hot = Pinned::new(model.segment(ARENA_BYTES), ());
            let arrays = model.arrays(0);
            let keys = Keys::encode(&model.schema, &arrays).unwrap();
            assert!(
                !hot.writer()
                    .append(&arrays, 0..rows.len(), &keys, 1)
                    .unwrap()
                    .full
            );
            let (frozen, _) = freeze(&hot);
            let used = frozen.footprint_bytes() as f64 / raw_bytes as f64;
            assert!(used < share, "{used:.2} of {raw_bytes} raw bytes");
        }
    }
}
