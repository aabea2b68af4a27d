//! What secondary indexes of a segment cost and give, hot and frozen. Run with
//! `cargo bench -p aerostat-segment --bench indexes`; prints the best of five runs.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark")]

use std::{hint::black_box, ops::ControlFlow, sync::Arc, time::Instant};

use aerostat_segment::{
    ARENA_BYTES_MAX, AttributeSpec, CompareOp, FrozenFacts, FrozenImage, HeapRegion, IndexSpec,
    Key, Keys, Literal, Pinned, Predicate, Segment, SegmentSchema, Selection, VECTOR_ROWS,
};
use aerostat_types::{IndexKind, SegmentNo, SqlType, TableId};
use arrow_array::{ArrayRef, Int64Array};

const ROWS: usize = 400_000;

/// An odd number, so that multiples of it scatter over all of 64 bits.
const SCATTER: i64 = 0x9E37_79B9_7F4A_7C15_u64 as i64;

/// Key, a number that ascends, a number that does not and is unique, one of 1,000 numbers.
fn columns() -> Vec<ArrayRef> {
    let of = |number: &dyn Fn(i64) -> i64| {
        let values = (0..ROWS as i64).map(number);
        Arc::new(Int64Array::from_iter_values(values)) as ArrayRef
    };
    vec![
        of(&|row| row),
        of(&|row| row * 3),
        of(&|row| row.wrapping_mul(SCATTER)),
        of(&|row| row.wrapping_mul(SCATTER).rem_euclid(1_000)),
    ]
}

fn spec(kind: IndexKind, attribute: usize, unique: bool) -> IndexSpec {
    IndexSpec {
        kind,
        attributes: vec![attribute],
        unique,
    }
}

fn schema(indexes: Vec<IndexSpec>) -> Arc<SegmentSchema> {
    let attribute = AttributeSpec {
        ty: SqlType::BigInt,
        nullable: false,
    };
    let groups = (0..4).map(|at| vec![at]).collect();
    let schema = SegmentSchema::new(vec![attribute; 4], groups, vec![0]).unwrap();
    Arc::new(schema.with_indexes(indexes).unwrap())
}

fn load(schema: &Arc<SegmentSchema>, columns: &[ArrayRef], batch: usize) -> Pinned<'static> {
    let region = Box::new(HeapRegion::new(ARENA_BYTES_MAX));
    let segment = Segment::create(region, Arc::clone(schema), TableId(1), SegmentNo(1), 0).unwrap();
    for from in (0..ROWS).step_by(batch) {
        let rows = batch.min(ROWS - from);
        let part: Vec<ArrayRef> = columns.iter().map(|one| one.slice(from, rows)).collect();
        let keys = Keys::encode(schema, &part).unwrap();
        let appended = segment.writer().append(&part, 0..rows, &keys, 1).unwrap();
        assert_eq!(appended.count as usize, rows);
    }
    Pinned::new(segment, ())
}

fn freeze(hot: &Pinned) -> Pinned<'static> {
    let facts = FrozenFacts {
        table: TableId(1),
        no: SegmentNo(2),
        rows: hot.rows(),
        begin: 1,
    };
    let all = Selection::Range(0..hot.rows());
    let image = FrozenImage::encode(hot.schema(), facts, &mut |at| hot.gather(at, &all)).unwrap();
    let region = Box::new(HeapRegion::new(image.arena_bytes()));
    Pinned::new(
        Segment::create_frozen(region, Arc::clone(hot.schema()), image),
        (),
    )
}

/// Nanoseconds for each of `count`.
fn best_ns(count: usize, mut run: impl FnMut()) -> f64 {
    let time = |_| {
        let start = Instant::now();
        run();
        start.elapsed()
    };
    let best = (0..5).map(time).min().unwrap();
    best.as_secs_f64() * 1e9 / count as f64
}

fn main() {
    let columns = columns();
    let (hash, ordered) = (IndexKind::Hash, IndexKind::Ordered);
    println!("{ROWS} rows of four bigints; ns per row\n");
    println!("index                        batches of 8192   single rows   bytes/row hot   frozen");
    let none = load(&schema(vec![]), &columns, VECTOR_ROWS as usize);
    let none_bytes = [none.footprint_bytes(), freeze(&none).footprint_bytes()];
    for (name, indexes) in [
        ("none", vec![]),
        ("hash, unique", vec![spec(hash, 2, true)]),
        ("hash, 1,000 values", vec![spec(hash, 3, false)]),
        ("ordered, ascending", vec![spec(ordered, 1, false)]),
        ("ordered, scattered, unique", vec![spec(ordered, 2, true)]),
        ("ordered, 1,000 values", vec![spec(ordered, 3, false)]),
    ] {
        let schema = schema(indexes);
        let bulk = best_ns(ROWS, || drop(black_box(load(&schema, &columns, 8192))));
        let single = best_ns(ROWS, || drop(black_box(load(&schema, &columns, 1))));
        let hot = load(&schema, &columns, 8192);
        let bytes = [hot.footprint_bytes(), freeze(&hot).footprint_bytes()];
        let more = |at: usize| (bytes[at] - none_bytes[at].min(bytes[at])) as f64 / ROWS as f64;
        println!(
            "{name:<28} {bulk:>15.0} {single:>13.0} {:>15.1} {:>8.1}",
            more(0),
            more(1)
        );
    }
    println!("\nsearch                              hot ns   frozen ns");
    let schema = schema(vec![
        spec(hash, 2, true),
        spec(ordered, 2, true),
        spec(ordered, 1, false),
    ]);
    let hot = load(&schema, &columns, 8192);
    let frozen = freeze(&hot);
    for (name, index) in [("hash", 0), ("ordered", 1)] {
        for (what, offset) in [("hit", 0), ("miss", 1)] {
            // Numbers that are there, or one beside them, here and there.
            let wanted: Vec<Key> = (0..100_000i64)
                .map(|n| (n * 7919 % ROWS as i64).wrapping_mul(SCATTER) ^ offset)
                .map(|number| Key::from_bytes((number as u64 ^ 1 << 63).to_be_bytes().to_vec()))
                .collect();
            let ns = [&hot, &frozen].map(|segment| {
                best_ns(wanted.len(), || {
                    for key in &wanted {
                        segment.find_indexed(index, key.borrow(), &mut |row| {
                            black_box(row);
                            ControlFlow::Break(())
                        });
                    }
                })
            });
            println!(
                "{name:<8} one key, {what:<18} {:>10.0} {:>11.0}",
                ns[0], ns[1]
            );
        }
    }
    for rows in [10, 100, 1_000, 8_000] {
        let searches: Vec<_> = (0..1_000i128)
            .map(|n| n * 389 * 3)
            .map(|from| {
                let compare = |op, value| Predicate::Compare {
                    attribute: 1,
                    op,
                    value: Literal::Int(value),
                };
                let range = [
                    compare(CompareOp::Ge, from),
                    compare(CompareOp::Lt, from + 3 * rows),
                ];
                schema.index_search(&schema.indexes()[2], &range).unwrap()
            })
            .collect();
        let ns = [&hot, &frozen].map(|segment| {
            best_ns(searches.len(), || {
                for search in &searches {
                    black_box(segment.search(2, search, 8192).unwrap());
                }
            })
        });
        println!(
            "ordered  {rows:>5} rows in a range     {:>10.0} {:>11.0}",
            ns[0], ns[1]
        );
    }
    let ns = [&hot, &frozen].map(|segment| {
        best_ns(1, || {
            let mut found = Selection::Range(0..segment.rows());
            let value = Literal::Int(i128::from(77i64.wrapping_mul(SCATTER)));
            let (attribute, op) = (2, CompareOp::Eq);
            let one = Predicate::Compare {
                attribute,
                op,
                value,
            };
            segment.filter(&one, &mut found);
            black_box(found);
        })
    });
    println!(
        "no index, one number filtered       {:>10.0} {:>11.0}",
        ns[0], ns[1]
    );
}
