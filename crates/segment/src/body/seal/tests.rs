//! Sealed bytes: attached, they are the same segment; damaged, they are refused.

use std::{
    ops::ControlFlow,
    ptr::NonNull,
    sync::{Arc, Mutex},
};

use aerostat_types::{SegmentNo, SqlType, TableId};
use proptest::prelude::*;

use crate::{
    AttributeSpec, HeapRegion, IndexSearch, Keys, Pinned, Predicate, Region, Segment, SegmentError,
    SegmentSchema, Selection, forge,
    model::{Model, Random, Value, values},
};

/// Miri computes every checksum byte by byte: it gets fewer bytes, rows and cases.
const ARENA_BYTES: usize = if cfg!(miri) { 32 << 10 } else { 128 << 10 };
pub(crate) const ROWS_MAX: usize = if cfg!(miri) { 12 } else { 200 };
pub(crate) const DAMAGES: usize = if cfg!(miri) { 4 } else { 24 };
const HEADER_STEP: usize = if cfg!(miri) { 512 } else { 8 };

/// A region whose bytes come back when its segment is dropped.
pub(crate) struct Returning {
    region: Option<HeapRegion>,
    to: Arc<Mutex<Option<HeapRegion>>>,
}

impl Returning {
    pub(crate) fn new(region: HeapRegion, to: &Arc<Mutex<Option<HeapRegion>>>) -> Returning {
        Returning {
            region: Some(region),
            to: Arc::clone(to),
        }
    }

    fn region(&self) -> &HeapRegion {
        self.region.as_ref().unwrap()
    }
}

impl Drop for Returning {
    fn drop(&mut self) {
        *self.to.lock().unwrap() = self.region.take();
    }
}

// SAFETY: the inner region, which drop gives away only after the last use through this one.
unsafe impl Region for Returning {
    fn base(&self) -> NonNull<u8> {
        self.region().base()
    }

    fn bytes(&self) -> usize {
        self.region().bytes()
    }
}

/// The bytes of a segment of the model's rows, sealed or not.
fn bytes_of(model: &Model, sealed: bool) -> Vec<u8> {
    let back = Arc::new(Mutex::new(None));
    let region = Returning::new(HeapRegion::new(ARENA_BYTES), &back);
    let made = Segment::create(
        Box::new(region),
        Arc::clone(&model.schema),
        TableId(7),
        SegmentNo(3),
        16,
    )
    .unwrap();
    let segment = Pinned::new(made, ());
    let columns = model.arrays(1);
    let keys = Keys::encode(&model.schema, &columns).unwrap();
    let appended = segment
        .writer()
        .append(&columns, 0..model.rows(), &keys, 9)
        .unwrap();
    assert!(!appended.full);
    segment.writer().set_end(0, 11);
    if sealed {
        segment.seal_checksum();
    }
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

/// Reads everything there is to read.
fn read_all(segment: &Pinned, model: &Model) {
    let rows = segment.rows();
    let all = Selection::Range(0..rows);
    for (attribute, spec) in model.schema.attributes().iter().enumerate() {
        values(spec.ty, &segment.gather(attribute, &all));
        segment.filter(&Predicate::IsNotNull { attribute }, &mut all.clone());
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
    for text in ["long enough for the heap", "short"] {
        let attributes = vec![AttributeSpec {
            ty: SqlType::Text,
            nullable: false,
        }];
        let schema = SegmentSchema::new(attributes, vec![vec![0]], vec![]).unwrap();
        let columns = vec![vec![Value::Bytes(text.as_bytes().to_vec())]];
        let model = Model {
            schema: Arc::new(schema),
            columns,
        };
        let mut bytes = bytes_of(&model, true);
        let at = bytes
            .windows(text.len())
            .position(|window| window == text.as_bytes())
            .unwrap();
        bytes[at + 1] = 0xFF;
        forge::checksum(&mut bytes, &model.schema);
        let refused = attach(&bytes, &model).unwrap_err();
        assert_eq!(refused, SegmentError::Corrupt("a text that is not UTF-8"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: if cfg!(miri) { 1 } else { 32 }, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn attached_is_what_was_sealed(seed: u64, rows in 1..2 * ROWS_MAX) {
        let model = Model::random(seed, rows);
        let segment = attach(&bytes_of(&model, true), &model).unwrap();
        prop_assert_eq!((segment.table().0, segment.no().0, segment.rows() as usize), (7, 3, rows));
        prop_assert_eq!(segment.stamps(0), (9, 11));
        let all = Selection::Range(0..rows as u32);
        for (attribute, spec) in model.schema.attributes().iter().enumerate() {
            prop_assert_eq!(&values(spec.ty, &segment.gather(attribute, &all)), &model.columns[attribute]);
        }
        read_all(&segment, &model);
        // It goes on as the segment it was.
        let columns = model.arrays(2);
        let keys = Keys::encode(&model.schema, &columns).unwrap();
        let appended = segment.writer().append(&columns, 0..rows.min(50), &keys, 12).unwrap();
        prop_assert_eq!((appended.first as usize, appended.full), (rows, false));
        segment.seal_checksum();
    }

    #[test]
    fn damaged_bytes_are_refused(seed: u64, rows in 1..ROWS_MAX) {
        let model = Model::random(seed, rows);
        let whole = bytes_of(&model, true);
        let mut random = Random(seed);
        for _ in 0..DAMAGES {
            let mut bytes = whole.clone();
            let at = random.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << random.below(8);
            // A bit that nobody reads may flip; one that counts may not.
            if let Ok(segment) = attach(&bytes, &model) {
                let original = attach(&whole, &model).unwrap();
                let all = Selection::Range(0..rows as u32);
                for (attribute, spec) in model.schema.attributes().iter().enumerate() {
                    let same = values(spec.ty, &segment.gather(attribute, &all)) == values(spec.ty, &original.gather(attribute, &all));
                    prop_assert!(same, "byte {} counts", at);
                }
                prop_assert!((0..rows as u32).all(|row| segment.stamps(row) == original.stamps(row)));
            }
        }
        for at in (0..4096).step_by(HEADER_STEP) {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x55;
            prop_assert!(attach(&bytes, &model).is_err(), "byte {} of the header counts", at);
        }
        for len in [0, 1, 63, 4095, 4096, 8192, ARENA_BYTES - 64, ARENA_BYTES - 1] {
            prop_assert!(attach(&whole[..len], &model).is_err(), "{} bytes", len);
        }
        prop_assert!(attach(&bytes_of(&model, false), &model).is_err(), "not sealed");
        let other = Model::random(seed ^ 0xFF, 1);
        if other.schema.fingerprint() != model.schema.fingerprint() {
            prop_assert!(attach(&whole, &other).is_err(), "another schema");
        }
    }

    /// Whoever forges bytes also computes a checksum: whatever is attached must be safe to read.
    #[test]
    fn forged_bytes_are_refused_or_harmless(seed: u64, rows in 1..ROWS_MAX) {
        let model = Model::random(seed, rows);
        let whole = bytes_of(&model, true);
        let mut random = Random(seed);
        for _ in 0..DAMAGES {
            let mut bytes = whole.clone();
            for _ in 0..=random.below(3) {
                // Somewhere in the facts of the header, or anywhere.
                let range = random.pick(&[128, 4096, bytes.len() as u64]);
                let at = random.below(range) as usize;
                bytes[at] = random.pick(&[0, 1, 0x7F, 0x80, 0xFF]);
            }
            forge::checksum(&mut bytes, &model.schema);
            if let Ok(segment) = attach(&bytes, &model) {
                read_all(&segment, &model);
            }
        }
    }
}
