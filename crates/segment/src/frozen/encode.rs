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
//! `scalars` and `texts` choose, `distinct` counts distinct values, `lanes` holds codes and finds
//! runs, `pack` packs them. Encodings are ruled out early: in most cases a few of the rows
//! already have too many distinct values for a dictionary.
//!
//! Everything is computed before the arena is allocated, so that the arena has exactly the size
//! it needs and is reserved first.

use std::{borrow::Cow, collections::HashMap, sync::Arc};

use aerostat_types::{Physical, SegmentNo, TableId};
use arrow_array::{Array, ArrayRef, NullArray};

use crate::{
    BLOCK_ROWS, IndexSpec, SegmentError, SegmentSchema,
    format::{
        header::{self, HEADER_WORDS},
        stamp::END_NONE,
    },
    frozen::{
        bloom,
        distinct::Estimate,
        encoded::{Encoded, Part, bytes_of},
        plan::{Descriptor, EncodingKind, Format, FrozenPlan},
        scalars,
        seal::MAGIC,
        sorted, texts,
    },
    input::source::{Source, Values},
    kernel::{
        hash::{hash_bytes, hash_number},
        lane::width_of,
    },
};

/// Below this many rows a segment has no Bloom filter: its zones and binary search are as good.
const BLOOM_ROWS_MIN: usize = 4096;

/// A Bloom filter pays where nearly every row has a value of its own: at most one in so many
/// is there before. Identifiers are looked up by equality; measures, which repeat, are not.
const BLOOM_REPEATED: usize = 100;

/// After so many rows it is asked whether too many values have come twice.
const CHECK_ROWS: usize = 4096;

/// A frozen segment before it has an arena.
pub struct FrozenImage {
    plan: FrozenPlan,
    parts: Vec<Part>,
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
        let plan = FrozenPlan::new(Format::NEWEST, schema, facts.rows, &descriptors)?;
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

    pub(crate) fn into_parts(self) -> (FrozenPlan, Vec<Part>) {
        (self.plan, self.parts)
    }
}

fn header_part(schema: &SegmentSchema, facts: FrozenFacts, plan: &FrozenPlan) -> Part {
    let mut words = vec![0; HEADER_WORDS];
    words[header::MAGIC] = MAGIC;
    words[header::FORMAT] = Format::NEWEST.word();
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
    let (rows, nulls) = (array.len(), source.nulls);
    let mut encoded = match source.values {
        Values::I16(values) => scalars::encode(Cow::Borrowed(values), nulls),
        Values::I32(values) => scalars::encode(Cow::Borrowed(values), nulls),
        Values::I64(values) => scalars::encode(Cow::Borrowed(values), nulls),
        Values::I128(values) => scalars::encode(Cow::Borrowed(values), nulls),
        Values::F32(values) => scalars::encode(Cow::Borrowed(values), nulls),
        Values::F64(values) => scalars::encode(Cow::Borrowed(values), nulls),
        Values::Interval(values) => scalars::encode(Cow::Borrowed(values), nulls),
        Values::Bool(values) => {
            let values = (0..rows).map(|at| u8::from(values.value(at)));
            scalars::encode::<u8>(values.collect(), nulls)
        }
        Values::Bytes16(values) => scalars::encode(Cow::Borrowed(values), nulls),
        Values::Narrow(values) => {
            let out_of_range =
                |row: usize| !source.is_null(row) && i64::try_from(values[row]).is_err();
            if (0..rows).any(out_of_range) {
                return Err(SegmentError::ValueOutOfRange { attribute });
            }
            scalars::encode::<i64>(values.iter().map(|&value| value as i64).collect(), nulls)
        }
        Values::Variable(strings) => texts::encode(attribute, &source, strings, rows)?,
    };
    let alone = schema.groups()[schema.place(attribute).group].len() == 1;
    if alone && encoded.descriptor.width > 0 {
        encoded.find_runs();
    }
    if let Some(nulls) = nulls {
        encoded.descriptor.nulls = true;
        let words = nulls.inner().bit_chunks().iter_padded();
        encoded.nulls = words.take(rows.div_ceil(64)).map(|word| !word).collect();
        if let Some(last) = encoded.nulls.last_mut()
            && !rows.is_multiple_of(64)
        {
            *last &= (1 << (rows % 64)) - 1;
        }
    }
    if schema.key().first() != Some(&attribute) {
        add_bloom(&mut encoded, &source, spec.ty.physical(), rows);
    }
    Ok(encoded)
}

/// Adds a Bloom filter where values are identifiers.
fn add_bloom(encoded: &mut Encoded, source: &Source<'_>, physical: Physical, rows: usize) {
    let suits = matches!(
        physical,
        Physical::I32 | Physical::I64 | Physical::I128 | Physical::Bytes16 | Physical::Variable
    );
    let wide = match encoded.descriptor.kind {
        // Too few different codes for nearly every row to have its own.
        EncodingKind::Frame => encoded.descriptor.width + 1 >= width_of(rows as u64),
        EncodingKind::RowOrder | EncodingKind::Plain => true,
        EncodingKind::Sorted => false,
    };
    if rows < BLOOM_ROWS_MIN || !suits || !wide || encoded.descriptor.runs.is_some() {
        return;
    }
    let present = || (0..rows).filter(|&row| !source.is_null(row));
    let repeated_max = rows / BLOOM_REPEATED;
    let number = |row: usize| match source.values {
        Values::I32(values) => hash_number(values[row] as u128),
        Values::I64(values) => hash_number(values[row] as u128),
        Values::Narrow(values) | Values::I128(values) => hash_number(values[row] as u128),
        Values::Bytes16(values) => hash_bytes(&values[row]),
        Values::Variable(strings) => hash_bytes(strings.get(row)),
        _ => unreachable!("other types have been left out"),
    };
    let repeats = match encoded.distinct {
        Some(distinct) => rows - distinct > repeated_max,
        None => repeat_more(present().map(number), rows, repeated_max),
    };
    if repeats {
        return;
    }
    let hash = |row: usize| match source.values {
        Values::I32(values) => bloom::hash_int(values[row].into()),
        Values::I64(values) => bloom::hash_int(values[row].into()),
        Values::Narrow(values) | Values::I128(values) => bloom::hash_int(values[row]),
        _ => number(row),
    };
    let hashes: Vec<u64> = present().map(hash).collect();
    encoded.bloom = bloom::build(&hashes);
    encoded.descriptor.bloom_lines = (encoded.bloom.len() / 64) as u32;
}

/// Whether, of so many rows, more than `repeated_max` are NULL or have a value that was there
/// before, to a few in 10,000.
fn repeat_more(mut hashes: impl Iterator<Item = u64>, rows: usize, repeated_max: usize) -> bool {
    let mut estimate = Estimate::of_at_most(rows);
    let mut came = 0;
    loop {
        let before = came;
        for hash in hashes.by_ref().take(CHECK_ROWS) {
            estimate.add(hash);
            came += 1;
        }
        if came - estimate.count().min(came) > repeated_max {
            return true;
        }
        if came == before {
            return rows - estimate.count().min(came) > repeated_max;
        }
    }
}
