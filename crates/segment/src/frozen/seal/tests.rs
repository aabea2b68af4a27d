//! Sealed bytes of frozen segments: attached, they are the same; damaged, they are refused;
//! forged, they are refused or harmless.

use std::{
    ops::ControlFlow,
    sync::{Arc, Mutex},
};

use aerostat_types::{SegmentNo, SqlType, TableId};
use proptest::prelude::*;

use crate::{
    AttributeSpec, FrozenFacts, FrozenImage, HeapRegion, IndexSearch, Literal, Pinned, Predicate,
    Seen, Segment, SegmentError, SegmentSchema, Selection,
    body::seal::tests::{DAMAGES, ROWS_MAX, Returning},
    forge,
    format::stamp,
    model::{Model, Random, Value, values},
};

/// The bytes of a frozen segment of the model's rows, in the model's order, sealed.
fn bytes_of(model: &Model) -> Vec<u8> {
    let columns = model.arrays(2);
    // Columns of the attributes' own types, which is what an image takes as well.
    let facts = FrozenFacts {
        table: TableId(7),
        no: SegmentNo(3),
        rows: model.rows() as u32,
        begin: 9,
    };
    let image =
        FrozenImage::encode(&model.schema, facts, &mut |at| Arc::clone(&columns[at])).unwrap();
    let back = Arc::new(Mutex::new(None));
    let region = Returning::new(HeapRegion::new(image.arena_bytes()), &back);
    let made = Segment::create_frozen(Box::new(region), Arc::clone(&model.schema), image);
    let segment = Pinned::new(made, ());
    segment.writer().set_end(0, 11);
    segment.seal_checksum();
    drop(segment);
    back.lock().unwrap().take().unwrap().as_mut_slice().to_vec()
}

fn attach(bytes: &[u8], model: &Model) -> Result<Pinned<'static>, SegmentError> {
    Segment::attach(
        Box::new(HeapRegion::copy_of(bytes)),
        Arc::clone(&model.schema),
    )
    .map(|segment| Pinned::new(segment, ()))
}

#[test]
fn which_rows_have_ended_is_known_again() {
    let model = Model::random(3, 2_000);
    let segment = attach(&bytes_of(&model), &model).unwrap();
    for (at, first) in [(10, 0), (11, 1)] {
        let mut nobody = |_, _| unreachable!("no transaction has a stamp");
        let mut seen = Seen {
            at,
            sees: &mut nobody,
        };
        let mut rows = Selection::default();
        let some_ended = segment.select_seen(0..2_000, &mut seen, &mut rows);
        assert!(some_ended);
        segment.keep_seen(&mut seen, &mut rows);
        assert_eq!(rows, Selection::Range(first..2_000));
    }
}

/// Reads everything there is to read.
fn read_all(segment: &Pinned, model: &Model, random: &mut Random) {
    let rows = segment.rows();
    let all = Selection::Range(0..rows);
    let some = Selection::Rows((0..rows).step_by(3).collect());
    for (attribute, spec) in model.schema.attributes().iter().enumerate() {
        values(spec.ty, &segment.gather(attribute, &all));
        values(spec.ty, &segment.gather(attribute, &some));
        segment.filter(&Predicate::IsNotNull { attribute }, &mut all.clone());
        let literals: Vec<Literal> = (0..3)
            .filter_map(|_| crate::model::value(spec.ty, random).literal())
            .collect();
        if !literals.is_empty() {
            let list = Predicate::InList {
                attribute,
                values: literals,
                negated: false,
            };
            segment.filter(&list, &mut all.clone());
            segment.filter(&list, &mut some.clone());
        }
    }
    for row in 0..rows {
        segment.stamps(row);
        let key = segment.key_of(row);
        segment.find(key.borrow(), &mut |_| ControlFlow::Continue(()));
    }
    for index in 0..model.schema.indexes().len() {
        for row in 0..rows {
            let key = segment.index_key_of(index, row);
            segment.find_indexed(index, key.borrow(), &mut |_| ControlFlow::Continue(()));
        }
        let everything = IndexSearch::everything();
        segment.search(index, &everything, rows as usize);
    }
    segment.footprint_bytes();
}

/// Text is handed out as `str` without another look: it must be UTF-8 in the first place.
#[test]
fn forged_texts_are_refused() {
    let attributes = vec![AttributeSpec {
        ty: SqlType::Text,
        nullable: false,
    }];
    let schema = SegmentSchema::new(attributes, vec![vec![0]], vec![]).unwrap();
    let columns = vec![vec![Value::Bytes(b"a text".to_vec())]];
    let model = Model {
        schema: Arc::new(schema),
        columns,
    };
    let mut bytes = bytes_of(&model);
    let at = bytes
        .windows(6)
        .position(|window| window == b"a text")
        .unwrap();
    bytes[at + 1] = 0xFF;
    forge::checksum(&mut bytes, &model.schema);
    let refused = attach(&bytes, &model).unwrap_err();
    assert_eq!(refused, SegmentError::Corrupt("a text that is not UTF-8"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 1 } else { 48 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn attached_is_what_was_sealed(seed: u64, rows in 1..4 * ROWS_MAX) {
        let model = Model::random(seed, rows);
        let segment = attach(&bytes_of(&model), &model).unwrap();
        prop_assert_eq!((segment.table().0, segment.no().0, segment.rows() as usize), (7, 3, rows));
        prop_assert_eq!(segment.stamps(0), (9, 11));
        prop_assert!(segment.is_frozen());
        let all = Selection::Range(0..rows as u32);
        for (attribute, spec) in model.schema.attributes().iter().enumerate() {
            prop_assert_eq!(&values(spec.ty, &segment.gather(attribute, &all)), &model.columns[attribute]);
        }
        read_all(&segment, &model, &mut Random(seed));
    }

    #[test]
    fn bytes_as_made_come_back_under_another_number(
        seed: u64,
        rows in prop_oneof![1..40_usize, 1..4 * ROWS_MAX],
    ) {
        let model = Model::random(seed, rows);
        let sealed = bytes_of(&model);
        let segment = attach(&sealed, &model).unwrap();
        segment.writer().set_end(rows as u32 - 1, 12);
        let bytes = segment.frozen_bytes().unwrap();
        prop_assert!(bytes.len() < segment.arena_bytes());
        let attached = |bytes: &[u8], arena_bytes| {
            let region = Box::new(HeapRegion::new(arena_bytes));
            Segment::attach_frozen(region, bytes.to_vec(), Arc::clone(&model.schema), SegmentNo(8))
        };
        let again = Pinned::new(attached(&bytes, segment.arena_bytes()).unwrap(), ());
        prop_assert_eq!((again.table().0, again.no().0, again.rows() as usize), (7, 8, rows));
        prop_assert!((0..rows as u32).all(|row| again.stamps(row) == (9, stamp::END_NONE)));
        let all = Selection::Range(0..rows as u32);
        for (attribute, spec) in model.schema.attributes().iter().enumerate() {
            prop_assert_eq!(&values(spec.ty, &again.gather(attribute, &all)), &model.columns[attribute]);
        }
        prop_assert_eq!(&again.frozen_bytes().unwrap().len(), &bytes.len());
        prop_assert!(attached(&bytes, segment.arena_bytes() - 64).is_err(), "a smaller region");
        for missing in [1, 64, bytes.len() / 2, bytes.len() - 1] {
            let cut = &bytes[..bytes.len() - missing];
            prop_assert!(attached(cut, segment.arena_bytes()).is_err(), "{} bytes missing", missing);
        }
        let longer = [&bytes[..], &[0]].concat();
        prop_assert!(attached(&longer, segment.arena_bytes()).is_err(), "a byte too many");
        let mut random = Random(seed);
        for _ in 0..DAMAGES {
            let mut flipped = bytes.clone();
            let at = random.below(bytes.len() as u64) as usize;
            flipped[at] ^= 1 << random.below(8);
            if let Ok(other) = attached(&flipped, segment.arena_bytes()) {
                read_all(&Pinned::new(other, ()), &model, &mut random);
            }
        }
    }

    #[test]
    fn damaged_bytes_are_refused(seed: u64, rows in 1..2 * ROWS_MAX) {
        let model = Model::random(seed, rows);
        let whole = bytes_of(&model);
        let mut random = Random(seed);
        for _ in 0..2 * DAMAGES {
            let mut bytes = whole.clone();
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << random.below(8);
            // A bit that nobody reads may flip; one that counts may not.
            if let Ok(segment) = attach(&bytes, &model) {
                let all = Selection::Range(0..rows as u32);
                for (attribute, spec) in model.schema.attributes().iter().enumerate() {
                    let found = values(spec.ty, &segment.gather(attribute, &all));
                    prop_assert_eq!(&found, &model.columns[attribute], "byte {} counts", at);
                }
                let other = attach(&whole, &model).unwrap();
                prop_assert!((0..rows as u32).all(|row| segment.stamps(row) == other.stamps(row)));
            }
        }
        for len in [0, 1, 63, 200, whole.len() / 2, whole.len() - 64, whole.len() - 1] {
            prop_assert!(attach(&whole[..len], &model).is_err(), "{} bytes", len);
        }
        let other = Model::random(seed ^ 0xFF, 1);
        if other.schema.fingerprint() != model.schema.fingerprint() {
            prop_assert!(attach(&whole, &other).is_err(), "another schema");
        }
    }

    /// Whoever forges bytes also computes a checksum: whatever is attached must be safe to read.
    #[test]
    fn forged_bytes_are_refused_or_harmless(seed: u64, rows in 1..2 * ROWS_MAX) {
        let model = Model::random(seed, rows);
        let whole = bytes_of(&model);
        let mut random = Random(seed);
        let mut attached = 0;
        for _ in 0..2 * DAMAGES {
            let mut bytes = whole.clone();
            for _ in 0..=random.below(3) {
                // Somewhere in the facts and descriptors of the header, or anywhere.
                let range = random.pick(&[128, 128 + 64 * model.columns.len() as u64, bytes.len() as u64]);
                let at = random.below(range.min(bytes.len() as u64)) as usize;
                bytes[at] = match random.below(3) {
                    0 => bytes[at] ^ 1 << random.below(8),
                    _ => random.pick(&[0, 1, 0x7F, 0x80, 0xFF]),
                };
            }
            forge::checksum(&mut bytes, &model.schema);
            if let Ok(segment) = attach(&bytes, &model) {
                attached += 1;
                read_all(&segment, &model, &mut random);
            }
        }
        // Else the checksum was not forged, and nothing else was tested.
        prop_assert!(attached > 0);
    }
}
