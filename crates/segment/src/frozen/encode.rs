//! Encoding: from columns to the parts of a frozen arena.
//!
//! For each attribute the smallest encoding is chosen, by counting bits:
//!
//! ```text
//!  frame        rows × width(max − min)
//!  dictionary   rows × width(distinct − 1) + the distinct values
//!  runs         either of them per run, + a little more than a bit per row
//!  row order    strings end to end + rows × width(offset)
//!  plain        rows × the slot
//! ```
//!
//! Everything is computed before the arena is allocated, so that it can be as
//! large as it needs to be and be paid for first.

use std::{
    collections::{HashMap, hash_map::Entry},
    hash::{BuildHasherDefault, Hasher},
    sync::Arc,
};

use aerostat_types::{Physical, SegmentNo, TableId, VALUE_BYTES_MAX};
use arrow_array::{Array, ArrayRef, NullArray};

use crate::{
    BLOCK_ROWS, IndexSpec, SegmentError, SegmentSchema, VECTOR_ROWS,
    arena::header,
    frozen::{
        bits::Fixed,
        bloom,
        pack::{pack, packed_bytes, width_of},
        plan::{CodesAt, Descriptor, FrozenPlan, Kind, RANK_ROWS, offset_width},
        seal::{FORMAT, MAGIC},
        sorted,
    },
    hash::hash_bytes,
    order::prefix_key,
    plan::HEADER_WORDS,
    source::{Source, Strings, Values},
    stamp::END_NONE,
    zone,
};

/// A dictionary of fixed-width values has at most this many: their codes then fit 16
/// bits, and a scan's condition on them a bitmap in the L1 cache.
const FIXED_ENTRIES_MAX: usize = 1 << 16;

/// Frames this narrow are not worth looking for a dictionary.
const FRAME_WIDTH_SMALL: u32 = 3;

/// Runs are kept when they take at most this much of the packed codes, in tenths:
/// they are a little slower to scan.
const RUNS_TENTHS: usize = 7;

/// Below this many rows a segment has no Bloom filter: its zones and binary search are as good.
const BLOOM_ROWS_MIN: usize = 4096;

/// A Bloom filter pays where nearly every row has a value of its own, in percent:
/// identifiers are looked up by equality; measures, which repeat, are not.
const BLOOM_DISTINCT_PERCENT: usize = 99;

/// A frozen segment before it has an arena.
pub struct FrozenImage {
    plan: FrozenPlan,
    /// Offset and bytes of an area, and what is to be there.
    parts: Vec<(usize, usize, Vec<u8>)>,
}

/// Whose rows a frozen segment has.
#[derive(Clone, Copy, Debug)]
pub struct FrozenFacts {
    /// The table.
    pub table: TableId,
    /// The segment's number.
    pub no: SegmentNo,
    /// Rows, at least one.
    pub rows: u32,
    /// The begin stamp of all rows: at or before every snapshot there may be.
    pub begin: u64,
}

impl FrozenImage {
    /// Encodes rows, for a schema with a key in key order. `column` gives the values of an
    /// attribute for all rows, of its [`aerostat_types::SqlType::arrow`] type; it is asked
    /// once for each, in order, so that one column at a time is in memory, and those of
    /// secondary indexes.
    ///
    /// # Errors
    /// A column that does not suit its attribute, or [`SegmentError::ArenaTooSmall`] when
    /// the rows are too many for one arena.
    pub fn encode(
        schema: &SegmentSchema,
        facts: FrozenFacts,
        column: &mut dyn FnMut(usize) -> ArrayRef,
    ) -> Result<FrozenImage, SegmentError> {
        let mut indexed: Vec<ArrayRef> = Vec::new();
        let encoded: Vec<Encoded> = (0..schema.attributes().len())
            .map(|attribute| {
                let array = column(attribute);
                assert_eq!(array.len(), facts.rows as usize, "a value for each row");
                let encoded = encode_attribute(schema, attribute, &array);
                let has = |index: &IndexSpec| index.attributes.contains(&attribute);
                indexed.push(if schema.indexes().iter().any(has) {
                    array
                } else {
                    Arc::new(NullArray::new(facts.rows as usize))
                });
                encoded
            })
            .collect::<Result<_, _>>()?;
        let descriptors: Vec<Descriptor> = encoded.iter().map(|one| one.descriptor).collect();
        let plan = FrozenPlan::new(schema, facts.rows, &descriptors)?;
        let mut parts = vec![header_part(schema, facts, &plan)];
        parts.push((
            plan.zones.offset,
            plan.zones.words * 8,
            zones_part(&encoded),
        ));
        let blocks = facts.rows.div_ceil(BLOCK_ROWS) as usize;
        let versions = [facts.begin, END_NONE].repeat(blocks);
        parts.push((
            plan.versions.offset,
            plan.versions.words * 8,
            bytes_of(versions),
        ));
        let mut tuples = HashMap::new();
        for (one, at) in encoded.into_iter().zip(&plan.attributes) {
            one.into_parts(at, facts.rows as usize, &mut tuples, &mut parts);
        }
        parts.extend(
            tuples
                .into_iter()
                .map(|(offset, bytes)| (offset, bytes.len(), bytes)),
        );
        for (index, at) in schema.indexes().iter().zip(&plan.indexes) {
            let keys = index.keys(schema, &indexed)?;
            let (rows, bloom) = sorted::encode(index, &keys);
            parts.push((at.rows.offset, at.rows.bytes, rows));
            parts.push((at.bloom.offset, at.bloom.bytes, bloom));
        }
        Ok(FrozenImage { plan, parts })
    }

    /// Bytes of the arena that the segment needs.
    pub fn arena_bytes(&self) -> usize {
        self.plan.arena_bytes
    }

    /// Bytes of the arena that are in use before any row ends: all but the end stamps.
    pub fn used_bytes(&self) -> u64 {
        self.plan.fixed_bytes().next_multiple_of(4096) as u64
    }

    pub(crate) fn into_parts(self) -> (FrozenPlan, Vec<(usize, usize, Vec<u8>)>) {
        (self.plan, self.parts)
    }
}

fn header_part(
    schema: &SegmentSchema,
    facts: FrozenFacts,
    plan: &FrozenPlan,
) -> (usize, usize, Vec<u8>) {
    let mut words = vec![0; HEADER_WORDS];
    words[header::MAGIC] = MAGIC;
    words[header::FORMAT] = FORMAT;
    words[header::ARENA_BYTES] = plan.arena_bytes as u64;
    words[header::FINGERPRINT] = schema.fingerprint();
    words[header::IDENTITY] = u64::from(facts.table.0) << 32 | u64::from(facts.no.0);
    words[header::CAPACITY] = facts.rows.into();
    words[header::ROWS] = facts.rows.into();
    for attribute in &plan.attributes {
        words.extend(attribute.descriptor.words());
    }
    (plan.header.offset, plan.header.words * 8, bytes_of(words))
}

/// Zones of all attributes, vector by vector.
fn zones_part(encoded: &[Encoded]) -> Vec<u8> {
    let vectors = encoded.first().map_or(0, |one| one.zones.len());
    let words =
        (0..vectors).flat_map(|vector| encoded.iter().flat_map(move |one| one.zones[vector]));
    bytes_of(words.collect())
}

fn bytes_of(words: Vec<u64>) -> Vec<u8> {
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// An attribute, encoded.
struct Encoded {
    descriptor: Descriptor,
    /// A code per row, or per run.
    codes: Vec<u64>,
    /// The rows at which runs start.
    starts: Vec<u32>,
    /// A value per row, in the form of its slot.
    slots: Vec<u8>,
    values: Vec<u8>,
    offsets: Vec<u64>,
    heap: Vec<u8>,
    nulls: Vec<u64>,
    bloom: Vec<u8>,
    zones: Vec<[u64; 3]>,
}

impl Encoded {
    fn new(kind: Kind) -> Encoded {
        let descriptor = Descriptor {
            kind,
            width: 0,
            runs: None,
            nulls: false,
            bloom_lines: 0,
            base: 0,
            entries: 0,
            heap_bytes: 0,
        };
        Encoded {
            descriptor,
            codes: Vec::new(),
            starts: Vec::new(),
            slots: Vec::new(),
            values: Vec::new(),
            offsets: Vec::new(),
            heap: Vec::new(),
            nulls: Vec::new(),
            bloom: Vec::new(),
            zones: Vec::new(),
        }
    }

    /// Keeps a code per run if that is much smaller.
    fn find_runs(&mut self) {
        let (rows, width) = (self.codes.len(), self.descriptor.width);
        let starts: Vec<u32> = (0..rows as u32)
            .filter(|&row| row == 0 || self.codes[row as usize] != self.codes[row as usize - 1])
            .collect();
        let blocks = rows.div_ceil(RANK_ROWS);
        let runs_bytes = blocks * (RANK_ROWS / 8 + 4) + packed_bytes(starts.len(), width);
        if runs_bytes * 10 <= packed_bytes(rows, width) * RUNS_TENTHS {
            self.codes = starts.iter().map(|&row| self.codes[row as usize]).collect();
            self.descriptor.runs = Some(starts.len() as u32);
            self.starts = starts;
        }
    }

    fn into_parts(
        self,
        at: &crate::frozen::plan::AttributePlan,
        rows: usize,
        tuples: &mut HashMap<usize, Vec<u8>>,
        parts: &mut Vec<(usize, usize, Vec<u8>)>,
    ) {
        let width = self.descriptor.width;
        let mut part = |offset, bytes, content| parts.push((offset, bytes, content));
        let packed = |codes: &[u64], width| pack(codes.iter().copied(), width);
        match at.codes {
            CodesAt::Nowhere => {}
            CodesAt::Tuples { .. } if width == 0 => {}
            CodesAt::Packed(area) => part(area.offset, area.bytes, packed(&self.codes, width)),
            CodesAt::Runs {
                starts,
                ranks,
                codes,
            } => {
                let (bits, before) = run_bits(&self.starts, rows);
                part(starts.offset, starts.bytes, bytes_of(bits));
                let before = before.into_iter().flat_map(u32::to_le_bytes).collect();
                part(ranks.offset, ranks.bytes, before);
                part(codes.offset, codes.bytes, packed(&self.codes, width));
            }
            CodesAt::Slots {
                tuples: area,
                stride,
                offset,
            } => {
                let bytes = tuples
                    .entry(area.offset)
                    .or_insert_with(|| vec![0; area.bytes]);
                let slot = self.slots.len() / rows;
                for (nth, value) in self.slots.chunks_exact(slot).enumerate() {
                    bytes[nth * stride + offset..][..slot].copy_from_slice(value);
                }
            }
            CodesAt::Tuples {
                tuples: area,
                stride,
                bit,
            } => {
                let bytes = tuples
                    .entry(area.offset)
                    .or_insert_with(|| vec![0; area.bytes]);
                for (nth, &code) in self.codes.iter().enumerate() {
                    put_bits(bytes, nth * stride * 8 + bit, code, width);
                }
            }
        }
        part(at.values.offset, at.values.bytes, self.values);
        if !self.offsets.is_empty() {
            let width = offset_width(self.descriptor.heap_bytes);
            part(
                at.offsets.offset,
                at.offsets.bytes,
                packed(&self.offsets, width),
            );
        }
        part(at.heap.offset, at.heap.bytes, self.heap);
        part(at.nulls.offset, at.nulls.words * 8, bytes_of(self.nulls));
        part(at.bloom.offset, at.bloom.bytes, self.bloom);
    }
}

/// A bit for each start, and for every 512 rows how many come before.
fn run_bits(starts: &[u32], rows: usize) -> (Vec<u64>, Vec<u32>) {
    let blocks = rows.div_ceil(RANK_ROWS);
    let mut bits = vec![0; blocks * RANK_ROWS / 64];
    let mut before = vec![0; blocks];
    for &row in starts {
        bits[row as usize / 64] |= 1 << (row % 64);
        before[row as usize / RANK_ROWS] += 1;
    }
    let mut sum = 0;
    for count in &mut before {
        (*count, sum) = (sum, sum + *count);
    }
    (bits, before)
}

/// Puts a code where zeros are.
fn put_bits(bytes: &mut [u8], bit: usize, code: u64, width: u32) {
    let shifted = u128::from(code) << (bit % 8);
    let touched = (bit % 8 + width as usize).div_ceil(8);
    for (to, from) in bytes[bit / 8..][..touched]
        .iter_mut()
        .zip(shifted.to_le_bytes())
    {
        *to |= from;
    }
}

fn encode_attribute(
    schema: &SegmentSchema,
    attribute: usize,
    array: &ArrayRef,
) -> Result<Encoded, SegmentError> {
    let spec = schema.attributes()[attribute];
    let source = Source::of(array, attribute, spec)?;
    if source.nulls.is_some() && !spec.nullable {
        return Err(SegmentError::NullValue { attribute });
    }
    let mut encoded = match source.values {
        Values::Bool(values) => encode_fixed(
            &source,
            (0..array.len()).map(|at| u8::from(values.value(at))),
        ),
        Values::I16(values) => encode_fixed(&source, values.iter().copied()),
        Values::I32(values) => encode_fixed(&source, values.iter().copied()),
        Values::I64(values) => encode_fixed(&source, values.iter().copied()),
        Values::I128(values) => encode_fixed(&source, values.iter().copied()),
        Values::F32(values) => encode_fixed(&source, values.iter().copied()),
        Values::F64(values) => encode_fixed(&source, values.iter().copied()),
        Values::Interval(values) => encode_fixed(&source, values.iter().copied()),
        Values::Bytes16(values) => encode_fixed(
            &source,
            (0..array.len()).map(|at| <[u8; 16]>::try_from(values.value(at)).unwrap_or_default()),
        ),
        Values::Narrow(values) => {
            let out_of_range =
                |row: usize| !source.is_null(row) && i64::try_from(values[row]).is_err();
            if (0..values.len()).any(out_of_range) {
                return Err(SegmentError::ValueOutOfRange { attribute });
            }
            encode_fixed(&source, values.iter().map(|&value| value as i64))
        }
        Values::Variable(strings) => encode_strings(attribute, &source, strings, array.len())?,
    };
    let alone = schema.groups()[schema.place(attribute).group].len() == 1;
    if alone && encoded.descriptor.width > 0 {
        encoded.find_runs();
    }
    if source.nulls.is_some() {
        encoded.descriptor.nulls = true;
        encoded.nulls = vec![0; array.len().div_ceil(64)];
        for row in (0..array.len()).filter(|&row| source.is_null(row)) {
            encoded.nulls[row / 64] |= 1 << (row % 64);
        }
    }
    if schema.key().first() != Some(&attribute) {
        add_bloom(&mut encoded, &source, spec.ty.physical(), array.len());
    }
    Ok(encoded)
}

/// The zones of values given by their order keys.
fn zones_of(source: &Source<'_>, rows: usize, key: impl Fn(usize) -> u64) -> Vec<[u64; 3]> {
    (0..rows)
        .step_by(VECTOR_ROWS as usize)
        .map(|first| {
            let vector = first..rows.min(first + VECTOR_ROWS as usize);
            let present = vector.clone().filter(|&row| !source.is_null(row)).map(&key);
            let bounds = present.fold(None, |bounds: Option<(u64, u64)>, key| {
                Some(bounds.map_or((key, key), |(min, max)| (min.min(key), max.max(key))))
            });
            let nulls = vector.clone().any(|row| source.is_null(row));
            zone::to_words(bounds, nulls)
        })
        .collect()
}

fn encode_fixed<T: Fixed>(source: &Source<'_>, values: impl Iterator<Item = T>) -> Encoded {
    let mut values: Vec<T> = values.collect();
    let rows = values.len();
    let zones = zones_of(source, rows, |row| T::order_key(values[row].rank()));
    let present = || (0..rows).filter(|&row| !source.is_null(row));
    let bounds = present().fold(None, |bounds: Option<(T, T)>, row| {
        let value = values[row];
        Some(bounds.map_or((value, value), |(min, max)| {
            (
                if value.rank() < min.rank() {
                    value
                } else {
                    min
                },
                if value.rank() > max.rank() {
                    value
                } else {
                    max
                },
            )
        }))
    });
    let (min, max) = bounds.unwrap_or_default();
    // What lies under a NULL is anything: then the least value.
    if source.nulls.is_some() {
        for row in (0..rows).filter(|&row| source.is_null(row)) {
            values[row] = min;
        }
    }
    let frame = min.to_int().zip(max.to_int()).and_then(|(min, max)| {
        let width = width_of(u64::try_from(max.checked_sub(min)?).ok()?);
        Some((min, width))
    });
    let plain_bits = size_of::<T>() * 8;
    let bits = rows * frame.map_or(plain_bits, |(_, width)| width as usize);
    let is_narrow = frame.is_some_and(|(_, width)| width <= FRAME_WIDTH_SMALL);
    let dictionary = (!is_narrow)
        .then(|| Dictionary::of(&values, bits))
        .flatten();
    let mut encoded = match (dictionary, frame) {
        (Some(dictionary), _) => dictionary.encode(&values),
        (None, Some((base, width))) => {
            let mut encoded = Encoded::new(Kind::Frame);
            (encoded.descriptor.base, encoded.descriptor.width) = (base, width);
            let code = |value: &T| {
                value
                    .to_int()
                    .map_or(0, |value| value.wrapping_sub(base) as u64)
            };
            encoded.codes = values.iter().map(code).collect();
            encoded
        }
        (None, None) => {
            let mut encoded = Encoded::new(Kind::Plain);
            encoded.slots = slots_of(&values);
            encoded
        }
    };
    encoded.zones = zones;
    encoded
}

fn slots_of<T: Fixed>(values: &[T]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| {
            value
                .to_raw()
                .to_le_bytes()
                .into_iter()
                .take(size_of::<T>())
        })
        .collect()
}

/// A map with the segment's own hash: the standard one is three times slower.
type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<FastHasher>>;

/// Hashes one value.
#[derive(Default)]
struct FastHasher(u64);

impl Hasher for FastHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 = hash_bytes(bytes) ^ self.0.rotate_left(5);
    }

    fn write_usize(&mut self, number: usize) {
        self.0 ^= number as u64;
    }
}

/// The distinct values of a fixed width, in order, with their codes.
struct Dictionary<T> {
    values: Vec<T>,
    codes: FastMap<u128, u64>,
}

impl<T: Fixed> Dictionary<T> {
    /// `None` when it is not smaller than so many bits.
    fn of(values: &[T], bits: usize) -> Option<Dictionary<T>> {
        let value_bits = size_of::<T>() * 8;
        // Bits of codes alone are not known before all values are counted.
        let entries_max = (bits / value_bits).min(FIXED_ENTRIES_MAX);
        let mut codes = FastMap::default();
        for value in values {
            codes.entry(value.to_raw()).or_insert(0);
            if codes.len() > entries_max {
                return None;
            }
        }
        let width = width_of(codes.len() as u64 - 1) as usize;
        if codes.len() * value_bits + values.len() * width >= bits {
            return None;
        }
        let mut sorted: Vec<T> = codes.keys().map(|&bits| T::from_raw(bits)).collect();
        // Equal values may differ in their bits, as 0 and −0 do.
        sorted.sort_unstable_by_key(|value| (value.rank(), value.to_raw()));
        for (code, value) in (0..).zip(&sorted) {
            codes.insert(value.to_raw(), code);
        }
        Some(Dictionary {
            values: sorted,
            codes,
        })
    }

    fn encode(self, values: &[T]) -> Encoded {
        let mut encoded = Encoded::new(Kind::Sorted);
        encoded.descriptor.entries = self.values.len() as u32;
        encoded.descriptor.width = width_of(self.values.len() as u64 - 1);
        encoded.codes = values
            .iter()
            .map(|value| self.codes[&value.to_raw()])
            .collect();
        encoded.values = slots_of(&self.values);
        encoded
    }
}

fn encode_strings(
    attribute: usize,
    source: &Source<'_>,
    strings: Strings<'_>,
    rows: usize,
) -> Result<Encoded, SegmentError> {
    let mut counts: FastMap<&[u8], u64> = FastMap::default();
    let (mut all_bytes, mut distinct_bytes) = (0, 0);
    for row in (0..rows).filter(|&row| !source.is_null(row)) {
        let value = strings.get(row);
        if value.len() > VALUE_BYTES_MAX {
            return Err(SegmentError::ValueTooLong {
                attribute,
                row,
                bytes: value.len(),
            });
        }
        all_bytes += value.len();
        if let Entry::Vacant(vacant) = counts.entry(value) {
            vacant.insert(0);
            distinct_bytes += value.len();
        }
    }
    let width = width_of((counts.len() as u64).saturating_sub(1)) as usize;
    let offset = |bytes: usize| offset_width(u32::try_from(bytes).unwrap_or(u32::MAX)) as usize;
    let sorted_bits = distinct_bytes * 8 + counts.len() * offset(distinct_bytes) + rows * width;
    let row_order_bits = all_bytes * 8 + rows * offset(all_bytes);
    let mut encoded = if counts.is_empty() || sorted_bits <= row_order_bits {
        sorted_strings(counts, source, strings, rows)
    } else {
        let present = |row: usize| {
            if source.is_null(row) {
                &[]
            } else {
                strings.get(row)
            }
        };
        let mut encoded = Encoded::new(Kind::RowOrder);
        encoded.set_strings((0..rows).map(present));
        encoded
    };
    encoded.zones = zones_of(source, rows, |row| prefix_key(strings.get(row)));
    Ok(encoded)
}

fn sorted_strings(
    mut counts: FastMap<&[u8], u64>,
    source: &Source<'_>,
    strings: Strings<'_>,
    rows: usize,
) -> Encoded {
    let mut encoded = Encoded::new(Kind::Sorted);
    let mut sorted: Vec<&[u8]> = counts.keys().copied().collect();
    sorted.sort_unstable();
    for (code, value) in (0..).zip(&sorted) {
        counts.insert(value, code);
    }
    let code = |row: usize| {
        if source.is_null(row) {
            0
        } else {
            counts[strings.get(row)]
        }
    };
    encoded.codes = (0..rows).map(code).collect();
    encoded.descriptor.width = width_of((sorted.len() as u64).saturating_sub(1));
    if !sorted.is_empty() {
        encoded.set_strings(sorted.into_iter());
    }
    encoded
}

impl Encoded {
    fn set_strings<'a>(&mut self, strings: impl Iterator<Item = &'a [u8]>) {
        self.offsets.push(0);
        for value in strings {
            self.heap.extend_from_slice(value);
            self.offsets.push(self.heap.len() as u64);
        }
        self.descriptor.entries = self.offsets.len() as u32 - 1;
        // More than an arena holds is refused by the plan.
        self.descriptor.heap_bytes = u32::try_from(self.heap.len()).unwrap_or(u32::MAX);
    }
}

/// Adds a Bloom filter where values are identifiers.
fn add_bloom(encoded: &mut Encoded, source: &Source<'_>, physical: Physical, rows: usize) {
    let suits = matches!(
        physical,
        Physical::I32 | Physical::I64 | Physical::I128 | Physical::Bytes16 | Physical::Variable
    );
    let wide = match encoded.descriptor.kind {
        // Too few different codes for nearly every row to have its own.
        Kind::Frame => encoded.descriptor.width + 1 >= width_of(rows as u64),
        Kind::RowOrder | Kind::Plain => true,
        Kind::Sorted => false,
    };
    if rows < BLOOM_ROWS_MIN || !suits || !wide || encoded.descriptor.runs.is_some() {
        return;
    }
    let hash = |row: usize| match source.values {
        Values::I32(values) => bloom::hash_int(values[row].into()),
        Values::I64(values) => bloom::hash_int(values[row].into()),
        Values::Narrow(values) | Values::I128(values) => bloom::hash_int(values[row]),
        Values::Bytes16(values) => hash_bytes(values.value(row)),
        Values::Variable(strings) => hash_bytes(strings.get(row)),
        _ => unreachable!("other types have been left out"),
    };
    let mut hashes: Vec<u64> = (0..rows)
        .filter(|&row| !source.is_null(row))
        .map(hash)
        .collect();
    hashes.sort_unstable();
    hashes.dedup();
    if hashes.len() * 100 >= rows * BLOOM_DISTINCT_PERCENT {
        encoded.bloom = bloom::build(&hashes);
        encoded.descriptor.bloom_lines = (encoded.bloom.len() / 64) as u32;
    }
}
