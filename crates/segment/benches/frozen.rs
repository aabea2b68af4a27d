//! What freezing saves and costs, hot against frozen, on rows distributed like the
//! Star Schema Benchmark's. Run with `cargo bench -p aerostat-segment --bench frozen`;
//! prints the best of two hundred runs; `-- WORD` measures the lines that have the word.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark")]

mod lineorder;

use std::{
    hint::black_box,
    ops::ControlFlow,
    sync::Arc,
    time::{Duration, Instant},
};

use aerostat_segment::{
    ARENA_BYTES_MAX, AttributeSpec, CompareOp, FrozenFacts, FrozenImage, HeapRegion, Keys, Literal,
    Pinned, Predicate, Segment, SegmentSchema, Selection, VECTOR_ROWS,
};
use aerostat_types::{SegmentNo, TableId};
use arrow_array::ArrayRef;
use lineorder::{NAMES, Random, lineorder, ty};

fn schema(groups: Vec<Vec<usize>>) -> Arc<SegmentSchema> {
    let attributes = (0..17).map(|at| AttributeSpec {
        ty: ty(at),
        nullable: false,
    });
    Arc::new(SegmentSchema::new(attributes.collect(), groups, vec![0, 1]).unwrap())
}

fn load(schema: &Arc<SegmentSchema>, columns: &[ArrayRef]) -> Pinned<'static> {
    let region = Box::new(HeapRegion::new(ARENA_BYTES_MAX));
    let segment = Segment::create(region, Arc::clone(schema), TableId(1), SegmentNo(1), 1).unwrap();
    let keys = Keys::encode(schema, columns).unwrap();
    let appended = segment
        .writer()
        .append(columns, 0..columns[0].len(), &keys, 1)
        .unwrap();
    assert!(!appended.full);
    Pinned::new(segment, ())
}

fn image(schema: &Arc<SegmentSchema>, columns: &[ArrayRef]) -> FrozenImage {
    let rows = columns[0].len() as u32;
    let facts = FrozenFacts {
        table: TableId(1),
        no: SegmentNo(2),
        rows,
        begin: 1,
    };
    FrozenImage::encode(schema, facts, &mut |at| Arc::clone(&columns[at])).unwrap()
}

fn freeze(schema: &Arc<SegmentSchema>, columns: &[ArrayRef]) -> Pinned<'static> {
    let image = image(schema, columns);
    let region = Box::new(HeapRegion::new(image.arena_bytes()));
    Pinned::new(
        Segment::create_frozen(region, Arc::clone(schema), image),
        (),
    )
}

fn best(mut run: impl FnMut()) -> Duration {
    let time = || {
        let start = Instant::now();
        run();
        start.elapsed()
    };
    // Many short runs, for on a shared machine most are interrupted.
    std::iter::repeat_with(time).take(200).min().unwrap()
}

fn million_rows_s(rows: u32, took: Duration) -> f64 {
    f64::from(rows) / took.as_secs_f64() / 1e6
}

fn vectors(rows: u32) -> impl Iterator<Item = Selection> {
    (0..rows)
        .step_by(VECTOR_ROWS as usize)
        .map(move |from| Selection::Range(from..(from + VECTOR_ROWS).min(rows)))
}

fn filter(segment: &Pinned, predicate: &Predicate) -> f64 {
    let took = best(|| {
        for mut selection in vectors(segment.rows()) {
            segment.filter(predicate, &mut selection);
            black_box(selection);
        }
    });
    million_rows_s(segment.rows(), took)
}

/// A filter on rows that another has left.
fn filter_rows(segment: &Pinned, predicate: &Predicate, every: usize) -> f64 {
    let left: Vec<Selection> = vectors(segment.rows())
        .map(|vector| Selection::Rows(vector.iter().step_by(every).collect()))
        .collect();
    let took = best(|| {
        for selection in &left {
            let mut selection = selection.clone();
            segment.filter(predicate, &mut selection);
            black_box(selection);
        }
    });
    million_rows_s(segment.rows() / every as u32, took)
}

fn gather(segment: &Pinned, attribute: usize, every: Option<usize>) -> f64 {
    let wanted: Vec<Selection> = vectors(segment.rows())
        .map(|vector| match every {
            Some(step) => Selection::Rows(vector.iter().step_by(step).collect()),
            None => vector,
        })
        .collect();
    let took = best(|| {
        for selection in &wanted {
            black_box(segment.gather(attribute, selection));
        }
    });
    million_rows_s(segment.rows() / every.unwrap_or(1) as u32, took)
}

/// What is done with a row once its key is found.
#[derive(Clone, Copy)]
enum Then {
    Nothing,
    /// Its values one by one.
    Read,
    /// An array for each attribute.
    Gather,
}

/// Nanoseconds to find a key, and to do something with its row.
fn point_reads(segment: &Pinned, columns: &[ArrayRef], then: Then) -> f64 {
    let keys = Keys::encode(segment.schema(), columns).unwrap();
    let reads = 500;
    // Other keys in each run, so that the caches do not know them.
    let mut random = Random(3);
    let took = best(|| {
        for _ in 0..reads {
            let key = keys.get(random.below(u64::from(segment.rows())) as usize);
            let mut found = None;
            segment.find(key, &mut |row| {
                found = Some(row);
                ControlFlow::Break(())
            });
            let row = found.unwrap();
            match then {
                Then::Nothing => {}
                Then::Read => segment.read_row(row, |at, value| {
                    black_box((at, value));
                }),
                Then::Gather => {
                    let row = Selection::Rows(vec![row]);
                    (0..columns.len()).for_each(|at| drop(black_box(segment.gather(at, &row))));
                }
            }
            black_box(row);
        }
    });
    took.as_nanos() as f64 / f64::from(reads)
}

/// How long encoding takes a processor: too long for none of many runs to be interrupted.
fn encoding(schema: &Arc<SegmentSchema>, columns: &[ArrayRef]) -> Duration {
    let time = || {
        let before = processor_time();
        drop(black_box(image(schema, columns)));
        processor_time() - before
    };
    std::iter::repeat_with(time).take(20).min().unwrap()
}

/// What this thread has run so far.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let ran = stat.split_whitespace().next().unwrap();
    Duration::from_nanos(ran.parse().unwrap())
}

/// Bytes of each attribute in a group of its own, and how long they take to encode.
fn print_attributes(columns: &[ArrayRef]) {
    for (at, name) in NAMES.iter().enumerate() {
        let spec = schema((0..17).map(|at| vec![at]).collect());
        let one = AttributeSpec {
            ty: spec.attributes()[at].ty,
            nullable: false,
        };
        let alone = Arc::new(SegmentSchema::new(vec![one], vec![vec![0]], vec![]).unwrap());
        let bytes = image(&alone, &columns[at..=at]).used_bytes();
        let took = encoding(&alone, &columns[at..=at]);
        let rows = columns[at].len() as f64;
        println!(
            "  {name:<14} {:>6.2} B/row {:>6.1} ns/row",
            bytes as f64 / rows,
            took.as_nanos() as f64 / rows,
        );
    }
}

/// Whether a line is asked for.
fn is_wanted(name: &str) -> bool {
    let word = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    word.is_none_or(|word| name.contains(&word))
}

fn main() {
    let by_column: Vec<Vec<usize>> = (0..17).map(|at| vec![at]).collect();
    let by_row = vec![(0..17).collect::<Vec<_>>()];
    // A little fewer than fit a hot arena in either layout.
    let rows = 300_000;
    let (columns, csv_bytes) = lineorder(rows);
    println!(
        "{rows} rows of lineorder, {:.1} B/row as CSV",
        csv_bytes as f64 / rows as f64
    );
    print_attributes(&columns);
    let compare = |attribute, op, value| Predicate::Compare {
        attribute,
        op,
        value,
    };
    let text = |value: &str| Literal::Bytes(value.as_bytes().to_vec());
    let list = |attribute, values| Predicate::InList {
        attribute,
        values,
        negated: false,
    };
    for (name, groups) in [("column", by_column), ("row", by_row)] {
        let schema = schema(groups);
        let hot = load(&schema, &columns);
        let took = encoding(&schema, &columns);
        let frozen = freeze(&schema, &columns);
        let bytes = |segment: &Pinned| segment.footprint_bytes() as f64 / rows as f64;
        println!(
            "{name} layout: hot {:.1} B/row, frozen {:.1} B/row ({:.1}% of CSV), encoded at {:.2} M rows/s",
            bytes(&hot),
            bytes(&frozen),
            frozen.footprint_bytes() as f64 * 100.0 / csv_bytes as f64,
            million_rows_s(rows as u32, took),
        );
        println!("  {:<38} {:>10} {:>10} M rows/s", "", "hot", "frozen");
        for (name, predicate) in [
            (
                "filter discount <= 3 (4 bits)",
                compare(11, CompareOp::Le, Literal::Int(3)),
            ),
            (
                "filter quantity < 25 (6 bits)",
                compare(8, CompareOp::Lt, Literal::Int(25)),
            ),
            (
                "filter suppkey < 500 (11 bits)",
                compare(4, CompareOp::Lt, Literal::Int(500)),
            ),
            (
                "filter partkey < 1000 (18 bits)",
                compare(3, CompareOp::Lt, Literal::Int(1000)),
            ),
            (
                "filter commitdate (dictionary)",
                compare(15, CompareOp::Lt, Literal::Int(19_950_101)),
            ),
            (
                "filter orderdate (runs)",
                compare(5, CompareOp::Lt, Literal::Int(19_950_101)),
            ),
            (
                "filter shipmode = (text)",
                compare(16, CompareOp::Eq, text("RAIL")),
            ),
            (
                "filter shipmode in (text)",
                list(16, vec![text("AIR"), text("MAIL")]),
            ),
            (
                "filter orderpriority < (text, runs)",
                compare(6, CompareOp::Lt, text("3-MEDIUM")),
            ),
            (
                "filter quantity in 10",
                list(8, (0..10).map(|n| Literal::Int(n * 5)).collect()),
            ),
            (
                "filter suppkey in 40",
                list(4, (0..40).map(|n| Literal::Int(n * 50)).collect()),
            ),
        ] {
            if is_wanted(name) {
                let (hot, frozen) = (filter(&hot, &predicate), filter(&frozen, &predicate));
                println!("  {name:<38} {hot:>10.0} {frozen:>10.0}");
            }
        }
        for (name, every, predicate) in [
            (
                "quantity < 25 of every 3rd row",
                3,
                compare(8, CompareOp::Lt, Literal::Int(25)),
            ),
            (
                "quantity < 25 of every 40th row",
                40,
                compare(8, CompareOp::Lt, Literal::Int(25)),
            ),
            (
                "orderdate < of every 3rd row",
                3,
                compare(5, CompareOp::Lt, Literal::Int(19_950_101)),
            ),
        ] {
            if !is_wanted(name) {
                continue;
            }
            let (hot, frozen) = (
                filter_rows(&hot, &predicate, every),
                filter_rows(&frozen, &predicate, every),
            );
            println!("  {name:<38} {hot:>10.0} {frozen:>10.0}");
        }
        for (name, attribute, every) in [
            ("gather quantity", 8, None),
            ("gather revenue (24 bits)", 12, None),
            ("gather orderdate (runs)", 5, None),
            ("gather commitdate (dictionary)", 15, None),
            ("gather shipmode (text)", 16, None),
            ("gather orderpriority (text, runs)", 6, None),
            ("gather revenue, every 10th row", 12, Some(10)),
            ("gather revenue, every 100th row", 12, Some(100)),
            ("gather orderdate, every 10th row", 5, Some(10)),
            ("gather shipmode, every 10th row", 16, Some(10)),
        ] {
            if !is_wanted(name) {
                continue;
            }
            let (hot, frozen) = (
                gather(&hot, attribute, every),
                gather(&frozen, attribute, every),
            );
            println!("  {name:<38} {hot:>10.0} {frozen:>10.0}");
        }
        for (name, then) in [
            ("find a key", Then::Nothing),
            ("find a key, read 17 attributes", Then::Read),
            ("find a key, gather 17 attributes", Then::Gather),
        ] {
            if !is_wanted(name) {
                continue;
            }
            let (hot, frozen) = (
                point_reads(&hot, &columns, then),
                point_reads(&frozen, &columns, then),
            );
            println!("  {name:<38} {hot:>10.0} {frozen:>10.0} ns");
        }
    }
}
