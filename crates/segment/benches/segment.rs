//! How fast a segment takes rows, filters, gathers and finds them. Run with
//! `cargo bench -p aerostat-segment`; prints one line per measurement, the best of
//! five runs.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark")]

use std::{hint::black_box, ops::ControlFlow, sync::Arc, time::Instant};

use aerostat_segment::{
    ARENA_BYTES_MAX, AttributeSpec, CompareOp, HeapRegion, Keys, Literal, Pinned, Predicate,
    Segment, SegmentSchema, Selection, VECTOR_ROWS,
};
use aerostat_types::{SegmentNo, SqlType, TableId};
use arrow_array::{ArrayRef, Int32Array, StringViewArray};

/// SSB's lineorder: 14 integers and 3 texts, key of two integers.
fn schema(row_store: bool) -> Arc<SegmentSchema> {
    let mut attributes = vec![SqlType::Integer; 14];
    attributes.extend([SqlType::Char(15), SqlType::Char(1), SqlType::Char(10)]);
    let groups = if row_store {
        vec![(0..17).collect()]
    } else {
        (0..17).map(|at| vec![at]).collect()
    };
    let attributes = attributes.into_iter().map(|ty| AttributeSpec {
        ty,
        nullable: false,
    });
    Arc::new(SegmentSchema::new(attributes.collect(), groups, vec![0, 1]).unwrap())
}

fn columns(rows: usize) -> Vec<ArrayRef> {
    let mut columns: Vec<ArrayRef> = (0..14)
        .map(|at| {
            let values = (0..rows as i32).map(|n| match at {
                0 => n / 4,
                1 => n % 4,
                at => n.wrapping_mul(0x9E37_79B1u32 as i32).unsigned_abs() as i32 % (100 << at),
            });
            Arc::new(Int32Array::from_iter_values(values)) as ArrayRef
        })
        .collect();
    for values in [
        &["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"][..],
        &["0"],
        &["REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"],
    ] {
        let texts = (0..rows).map(|n| values[n * 7 % values.len()]);
        columns.push(Arc::new(StringViewArray::from_iter_values(texts)));
    }
    columns
}

fn best_of_five(name: &str, rows: usize, mut run: impl FnMut()) {
    let best = (0..5)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed()
        })
        .min()
        .unwrap();
    let million_rows_s = rows as f64 / best.as_secs_f64() / 1e6;
    println!("{name:<44} {million_rows_s:>9.1} M rows/s");
}

fn load(schema: &Arc<SegmentSchema>, columns: &[ArrayRef], rows: usize) -> Pinned<'static> {
    let region = Box::new(HeapRegion::new(ARENA_BYTES_MAX));
    let segment = Segment::create(region, Arc::clone(schema), TableId(1), SegmentNo(1), 1).unwrap();
    for from in (0..rows).step_by(8192) {
        let to = rows.min(from + 8192);
        let batch: Vec<ArrayRef> = columns
            .iter()
            .map(|column| column.slice(from, to - from))
            .collect();
        let keys = Keys::encode(schema, &batch).unwrap();
        segment
            .writer()
            .append(&batch, 0..to - from, &keys, 1)
            .unwrap();
    }
    Pinned::new(segment, ())
}

fn main() {
    for row_store in [false, true] {
        let schema = schema(row_store);
        let rows = schema.capacity_for(ARENA_BYTES_MAX, 1) as usize;
        let columns = columns(rows);
        let layout = if row_store { "row" } else { "column" };
        println!("{layout} layout, {rows} rows of 17 attributes");
        best_of_five("  append, keys and index", rows, || {
            black_box(load(&schema, &columns, rows));
        });
        let segment = load(&schema, &columns, rows);
        println!(
            "  {:.1} bytes per row",
            segment.footprint_bytes() as f64 / rows as f64
        );
        let vectors = || {
            (0..rows as u32)
                .step_by(VECTOR_ROWS as usize)
                .map(|from| from..(from + VECTOR_ROWS).min(rows as u32))
        };
        let compare = |attribute, op, value| Predicate::Compare {
            attribute,
            op,
            value,
        };
        for (name, predicate) in [
            (
                "  filter int < (half)",
                compare(4, CompareOp::Lt, Literal::Int(800)),
            ),
            (
                "  filter int < (all)",
                compare(4, CompareOp::Lt, Literal::Int(1 << 30)),
            ),
            (
                "  filter text = short",
                compare(16, CompareOp::Eq, Literal::Bytes(b"RAIL".to_vec())),
            ),
            (
                "  filter text = long",
                compare(14, CompareOp::Eq, Literal::Bytes(b"3-MEDIUM".to_vec())),
            ),
            (
                "  filter text <",
                compare(14, CompareOp::Lt, Literal::Bytes(b"3-MEDIUM".to_vec())),
            ),
        ] {
            best_of_five(name, rows, || {
                for range in vectors() {
                    let mut selection = Selection::Range(range);
                    segment.filter(&predicate, &mut selection);
                    black_box(selection);
                }
            });
        }
        best_of_five("  select_visible, all of one transaction", rows, || {
            for range in vectors() {
                let mut selection = Selection::default();
                segment.select_visible(range, &mut |begin, _| Some(begin == 1), &mut selection);
                black_box(selection);
            }
        });
        for (name, attribute) in [("  gather int", 4), ("  gather text", 14)] {
            best_of_five(name, rows, || {
                for range in vectors() {
                    black_box(segment.gather(attribute, &Selection::Range(range)));
                }
            });
        }
        let keys = Keys::encode(&schema, &columns).unwrap();
        best_of_five("  find", rows, || {
            for key in keys.iter() {
                segment.find(key, &mut |row| {
                    black_box(row);
                    ControlFlow::Break(())
                });
            }
        });
        best_of_five("  seal (checksum)", rows, || segment.seal_checksum());
    }
}
