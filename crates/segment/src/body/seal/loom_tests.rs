//! A seal beside writers, in every order (`scripts/loom`).

use std::sync::Arc;

use aerostat_sync::{Ordering, model, thread};
use aerostat_types::{SegmentNo, SqlType, TableId};

use super::*;
use crate::{
    AttributeSpec, HeapRegion, Keys, NewRows, Pinned, Segment, ValueRef, body::segment::Form,
};

/// Appends a row of one number.
fn append(segment: &Segment, value: i64) {
    let row = [ValueRef::I64(value)];
    let keys = Keys::encode(segment.schema(), NewRows::Row(&row)).unwrap();
    let mut writer = segment.writer();
    writer.append(NewRows::Row(&row), 0..1, &keys, 5).unwrap();
}

/// A seal waits for every writer: a segment that says it is sealed has the checksum of what it holds,
/// appended and stamped. Seen to fail: a writer that does not break the seal, or does so before it
/// has the latch; a checksum that is computed after the latch was given back.
#[test]
fn a_seal_is_of_what_is_there() {
    model(|| {
        let number = AttributeSpec {
            ty: SqlType::BigInt,
            nullable: false,
        };
        let schema = SegmentSchema::new(vec![number], vec![vec![0]], vec![]).unwrap();
        let bytes = schema.arena_bytes_for(2, 0).unwrap();
        let region = Box::new(HeapRegion::new(bytes));
        let (table, no) = (TableId(1), SegmentNo(1));
        let segment = Segment::create_for(region, Arc::new(schema), table, no, 2).unwrap();
        append(&segment, 1);
        let segment = Pinned::new(segment, ());
        let own = segment.clone();
        let writer = thread::spawn(move || {
            append(&own, 2);
            own.writer().set_end(0, 7);
        });
        segment.seal_checksum();
        writer.join().unwrap();
        let Form::Hot(arena) = segment.form() else {
            unreachable!("a new segment is hot");
        };
        let words = arena.header();
        let is_sealed = words[header::SEALED].load(Ordering::Relaxed) == 1;
        let sum = words[header::CHECKSUM].load(Ordering::Relaxed);
        assert_eq!(is_sealed, sum == checksum(arena));
    });
}
