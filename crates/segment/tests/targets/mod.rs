//! The fuzz targets' bodies: what a fuzzer drives with bytes of its choice, and
//! `hostile` with seeded ones.
//!
//! Bytes chosen blindly are refused at once, so the input is not a segment: it says
//! how to damage a valid one. The checksum is forged afterwards, and what can be
//! attached is read in every way there is. The answers are anything, but there is
//! no crash, no endless loop and nothing read beyond the arena.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    reason = "each user has a part; these are tests"
)]

use std::{
    ops::ControlFlow,
    ptr::NonNull,
    sync::{Arc, Mutex, OnceLock},
};

use aerostat_segment::{
    CompareOp, FrozenFacts, FrozenImage, HeapRegion, KeyRef, Keys, Literal, Pinned, Predicate,
    Region, Segment, Selection, forge, stamp,
};
use aerostat_types::{SegmentNo, TableId};

use crate::model::{self, Model, Random, Value, values};

/// Large enough for every model here.
const ARENA_BYTES: usize = 192 << 10;

/// Models, each with the bytes of a hot and of a frozen segment.
const CASES: u64 = 24;

/// Damages a hot segment. Says whether it was attached all the same.
pub fn segment_decode(input: &[u8]) -> bool {
    decode(input, |case| &case.hot)
}

/// Damages a frozen segment. Says whether it was attached all the same.
pub fn frozen_decode(input: &[u8]) -> bool {
    decode(input, |case| &case.frozen)
}

/// Encodes values of the input's choice, and reads what went in.
pub fn encodings(input: &[u8]) -> bool {
    let mut input = Input(input);
    let (seed, rows) = (input.number(), 1 + input.below(1400) as usize);
    let mut model = sorted(Model::random(seed, rows), seed);
    model.reshape(&mut Random(seed ^ 1));
    let mut model = sorted(model, seed);
    // Values from the input itself, wherever a type takes any integer.
    let attribute = input.below(model.columns.len() as u64) as usize;
    let is_key = model.schema.key().contains(&attribute);
    if !is_key && model.schema.attributes()[attribute].ty == aerostat_types::SqlType::BigInt {
        for value in model.columns[attribute].iter_mut().take(200) {
            if input.0.is_empty() {
                break;
            }
            *value = Value::Int((input.number() as i64).into());
        }
    }
    let frozen = frozen_of(&model, |bytes| Box::new(HeapRegion::new(bytes)));
    let mut random = Random(seed ^ 2);
    for selection in selections(frozen.rows(), &mut random) {
        for (attribute, spec) in model.schema.attributes().iter().enumerate() {
            let column = &model.columns[attribute];
            let expected: Vec<Value> = selection
                .iter()
                .map(|row| column[row as usize].clone())
                .collect();
            assert_eq!(
                values(spec.ty, &frozen.gather(attribute, &selection)),
                expected
            );
        }
        for _ in 0..4 {
            let predicate = predicate(&model, &mut random);
            let column = &model.columns[predicate.attribute()];
            let passes = |row: &u32| column[*row as usize].satisfies(&predicate);
            let expected: Vec<u32> = selection.iter().filter(passes).collect();
            let mut found = selection.clone();
            frozen.filter(&predicate, &mut found);
            assert!(found.iter().eq(expected), "{predicate:?}");
        }
    }
    for row in 0..frozen.rows() {
        frozen.read_row(row, |attribute, value| {
            let expected = &model.columns[attribute][row as usize];
            assert_eq!(model::of_ref(value), *expected);
        });
    }
    true
}

/// A model with the bytes of segments of its rows.
struct Case {
    model: Model,
    hot: Vec<u8>,
    frozen: Vec<u8>,
}

fn cases() -> &'static [Case] {
    static CASES_MADE: OnceLock<Vec<Case>> = OnceLock::new();
    CASES_MADE.get_or_init(|| {
        let count = if cfg!(miri) { 3 } else { CASES };
        (0..count).map(case).collect()
    })
}

fn case(seed: u64) -> Case {
    // A few rows, more than a block of codes, more than a block of versions.
    let rows = [3, 70, 600, 1100][seed as usize % 4] / if cfg!(miri) { 20 } else { 1 } + 1;
    let mut model = Model::random(seed, rows);
    model.reshape(&mut Random(seed ^ 1));
    let model = sorted(model, seed);
    let hot = bytes_of(|to| {
        let region = Returning::new(HeapRegion::new(ARENA_BYTES), to);
        let segment = hot_of(&model, Box::new(region));
        segment.writer().set_end(0, 11);
        segment
    });
    let frozen = bytes_of(|to| {
        let region =
            |bytes| Box::new(Returning::new(HeapRegion::new(bytes), to)) as Box<dyn Region>;
        let segment = frozen_of(&model, region);
        segment.writer().set_end(0, 11);
        segment
    });
    Case { model, hot, frozen }
}

/// The model's rows in key order.
fn sorted(mut model: Model, seed: u64) -> Model {
    let keys = Keys::encode(&model.schema, &model.arrays(seed)).unwrap();
    let mut order: Vec<usize> = (0..model.rows()).collect();
    order.sort_by_key(|&row| keys.get(row));
    for column in &mut model.columns {
        *column = order.iter().map(|&row| column[row].clone()).collect();
    }
    model
}

fn hot_of(model: &Model, region: Box<dyn Region>) -> Pinned<'static> {
    let schema = Arc::clone(&model.schema);
    let segment = Segment::create(region, schema, TableId(7), SegmentNo(3), 24).unwrap();
    append(&segment, model);
    Pinned::new(segment, ())
}

fn append(segment: &Segment, model: &Model) {
    let columns = model.arrays(1);
    let keys = Keys::encode(&model.schema, &columns).unwrap();
    let mut writer = segment.writer();
    writer.append(&columns, 0..model.rows(), &keys, 9).unwrap();
}

fn frozen_of(model: &Model, region: impl FnOnce(usize) -> Box<dyn Region>) -> Pinned<'static> {
    let columns = model.arrays(2);
    let facts = FrozenFacts {
        table: TableId(7),
        no: SegmentNo(3),
        rows: model.rows() as u32,
        begin: 9,
    };
    let image =
        FrozenImage::encode(&model.schema, facts, &mut |at| Arc::clone(&columns[at])).unwrap();
    let region = region(image.arena_bytes());
    Pinned::new(
        Segment::create_frozen(region, Arc::clone(&model.schema), image),
        (),
    )
}

/// The bytes of a segment, sealed.
fn bytes_of(segment: impl FnOnce(&Arc<Mutex<Option<HeapRegion>>>) -> Pinned<'static>) -> Vec<u8> {
    let back = Arc::new(Mutex::new(None));
    let segment = segment(&back);
    segment.seal_checksum();
    drop(segment);
    back.lock().unwrap().take().unwrap().as_mut_slice().to_vec()
}

/// A region whose bytes come back when its segment is dropped.
struct Returning {
    region: Option<HeapRegion>,
    to: Arc<Mutex<Option<HeapRegion>>>,
}

impl Returning {
    fn new(region: HeapRegion, to: &Arc<Mutex<Option<HeapRegion>>>) -> Returning {
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

/// Bytes that are read as choices; zeros when there are no more.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or(0)
    }

    fn number(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// Three bytes are enough to name one of an arena.
    fn below(&mut self, bound: u64) -> u64 {
        let number = [self.byte(), self.byte(), self.byte(), 0];
        u64::from(u32::from_le_bytes(number)) % bound.max(1)
    }
}

fn decode(input: &[u8], whole: impl Fn(&Case) -> &Vec<u8>) -> bool {
    let mut input = Input(input);
    let cases = cases();
    let case = &cases[usize::from(input.byte()) % cases.len()];
    let seed = u64::from(input.byte());
    let mut bytes = whole(case).clone();
    while !input.0.is_empty() {
        damage(&mut bytes, &mut input, case.model.columns.len() as u64);
    }
    forge::checksum(&mut bytes, &case.model.schema);
    let region = Box::new(HeapRegion::copy_of(&bytes));
    match Segment::attach(region, Arc::clone(&case.model.schema)) {
        Ok(segment) => {
            use_all(&Pinned::new(segment, ()), &case.model, &mut Random(seed));
            true
        }
        Err(_) => false,
    }
}

/// Numbers at the edges of what is counted.
const EDGES: [u64; 12] = [
    0,
    1,
    63,
    512,
    1024,
    (1 << 21) - 1,
    1 << 25,
    u32::MAX as u64,
    i64::MAX as u64,
    // The mark of a block whose stamps vary.
    stamp::END_NONE - 2,
    1 << 63,
    u64::MAX,
];

/// One edit: of the facts, of descriptors and directory, or of any byte.
fn damage(bytes: &mut Vec<u8>, input: &mut Input<'_>, attributes: u64) {
    if bytes.len() < 8 {
        return input.0 = &[];
    }
    let choice = input.byte();
    let range = match choice >> 4 & 3 {
        0 => 128,
        1 => 128 + 64 * attributes,
        2 => 8192,
        _ => bytes.len() as u64,
    };
    let mut at = input.below(range.min(bytes.len() as u64)) as usize;
    // Half of the time what is in use: much of a hot segment is not.
    if choice & 64 != 0 {
        at += bytes[at..].iter().position(|byte| *byte != 0).unwrap_or(0);
    }
    let word = at.min(bytes.len() - 8) & !7;
    let old = u64::from_le_bytes(bytes[word..word + 8].try_into().unwrap());
    let mut set = |new: u64| bytes[word..word + 8].copy_from_slice(&new.to_le_bytes());
    match choice & 7 {
        0 => bytes[at] ^= 1 << (input.byte() & 7),
        1 => bytes[at] = input.byte(),
        2 => bytes[at] = [0, 1, 0x7F, 0x80, 0xFF][usize::from(input.byte()) % 5],
        3 => set(EDGES[usize::from(input.byte()) % EDGES.len()]),
        4 => set(old.wrapping_add_signed((input.byte() as i8).into())),
        5 => {
            let from = input.below(bytes.len() as u64) as usize;
            let len = usize::from(input.byte()).min(bytes.len() - from.max(at));
            bytes.copy_within(from..from + len, at);
        }
        6 => bytes[at..]
            .iter_mut()
            .take(64)
            .for_each(|byte| *byte = !*byte),
        // Rarely, for what is cut off is refused at once.
        _ if input.byte() > 250 => bytes.truncate(at),
        _ => set(input.number()),
    }
}

/// Reads a segment in every way, then writes to it.
fn use_all(segment: &Pinned, model: &Model, random: &mut Random) {
    let rows = segment.rows();
    for selection in selections(rows, random) {
        for (attribute, spec) in model.schema.attributes().iter().enumerate() {
            let array = segment.gather(attribute, &selection);
            assert_eq!(array.len(), selection.len());
            values(spec.ty, &array);
        }
        for _ in 0..3 {
            let predicate = predicate(model, random);
            for vector in 0..segment.vectors() {
                segment.may_match(vector, &predicate);
            }
            segment.filter(&predicate, &mut selection.clone());
        }
    }
    let visible = &mut |begin, end| Some(begin <= 9 && end > 9);
    segment.select_visible(0..rows, visible, &mut Selection::default());
    for row in 0..rows {
        segment.stamps(row);
        segment.read_row(row, |_, value| drop(model::of_ref(value)));
    }
    for row in (0..rows).step_by(1 + rows as usize / 64) {
        let key = segment.key_of(row);
        let count = &mut |_| ControlFlow::Continue(());
        segment.find(key.borrow(), count);
        segment.find(KeyRef(&key[..key.len() / 2]), count);
    }
    search(segment, model, random);
    segment.footprint_bytes();
    write(segment, model, random);
    search(segment, model, random);
}

/// Asks every secondary index for keys that rows have, for parts of them, and for what
/// predicates look for.
fn search(segment: &Pinned, model: &Model, random: &mut Random) {
    let rows = segment.rows();
    for (at, index) in model.schema.indexes().iter().enumerate() {
        for row in (0..rows).step_by(1 + rows as usize / 32) {
            segment.index_key_has_null(at, row);
            let key = segment.index_key_of(at, row);
            for key in [&key[..], &key[..key.len() / 2]] {
                let mut found = 0;
                segment.find_indexed(at, KeyRef(key), &mut |row| {
                    assert!(row < rows);
                    found += 1;
                    ControlFlow::Continue(())
                });
                assert!(found <= rows);
            }
        }
        for _ in 0..6 {
            let predicates: Vec<Predicate> = index
                .attributes
                .iter()
                .map(|&attribute| predicate_of(model, attribute, random))
                .collect();
            let Some(search) = model.schema.index_search(index, &predicates) else {
                continue;
            };
            if let Some(found) = segment.search(at, &search, usize::MAX) {
                assert!(found.is_sorted_by(|a, b| a < b));
                assert!(found.last().is_none_or(|last| *last < rows));
                segment.gather(index.attributes[0], &Selection::Rows(found));
            }
        }
    }
}

fn write(segment: &Pinned, model: &Model, random: &mut Random) {
    let rows = segment.rows();
    if rows > 0 {
        let mut writer = segment.writer();
        writer.set_end(random.below(rows.into()) as u32, 12);
        writer.set_ends(rows / 2..rows, 13);
        drop(writer);
        // Its rows in a hot segment, in another order, and in a frozen one.
        let copy = Pinned::new(model.segment(ARENA_BYTES * 2), ());
        let backwards: Vec<u32> = (0..rows).rev().collect();
        // Values may be such as no row takes; that is an error.
        let _ = copy.writer().append_rows_from(segment, &backwards);
        let facts = FrozenFacts {
            table: TableId(7),
            no: SegmentNo(4),
            rows,
            begin: 5,
        };
        let all = Selection::Range(0..rows);
        let _ = FrozenImage::encode(&model.schema, facts, &mut |at| segment.gather(at, &all));
    }
    append(segment, model);
    segment.seal_checksum();
}

/// All rows, a range, and rows far apart and close together.
fn selections(rows: u32, random: &mut Random) -> Vec<Selection> {
    let from = random.below(u64::from(rows) + 1) as u32;
    let to = rows.min(from + random.below(700) as u32);
    let some = |apart: u64, random: &mut Random| {
        Selection::Rows((0..rows).filter(|_| random.below(apart) == 0).collect())
    };
    vec![
        Selection::Range(0..rows),
        Selection::Range(from..to),
        some(3, random),
        some(60, random),
    ]
}

/// A predicate of any kind, mostly with a value that is there.
fn predicate(model: &Model, random: &mut Random) -> Predicate {
    let attribute = random.below(model.columns.len() as u64) as usize;
    predicate_of(model, attribute, random)
}

fn predicate_of(model: &Model, attribute: usize, random: &mut Random) -> Predicate {
    let ty = model.schema.attributes()[attribute].ty;
    let literals: Vec<Literal> = (0..9)
        .filter_map(|_| match random.below(3) {
            0 => model::value(ty, random).literal(),
            _ => random.pick(&model.columns[attribute]).literal(),
        })
        .collect();
    match (random.below(8), literals.first()) {
        (0, _) => Predicate::IsNull { attribute },
        (1, _) | (_, None) => Predicate::IsNotNull { attribute },
        (2..=4, Some(_)) => Predicate::InList {
            attribute,
            values: literals,
            negated: random.below(2) == 0,
        },
        (_, Some(first)) => Predicate::Compare {
            attribute,
            op: random.pick(&[
                CompareOp::Eq,
                CompareOp::Ne,
                CompareOp::Lt,
                CompareOp::Le,
                CompareOp::Gt,
                CompareOp::Ge,
            ]),
            value: first.clone(),
        },
    }
}
