//! Sealing and attaching frozen segments, by the rules of the hot ones: the checksum covers every
//! byte a reader uses, and every value on which other code relies is examined again, because a
//! checksum can be forged.

use std::sync::Arc;

use aerostat_sync::{AtomicU64, Ordering};
use aerostat_types::{Physical, VALUE_BYTES_MAX};
use crc32fast::Hasher;

use crate::{
    BLOCK_ROWS, HeapRegion, ROWS_MAX, Region, SegmentError, SegmentSchema,
    format::{
        header::{self, HEADER_WORDS, VERSION_WORDS, add_words},
        stamp::{END_NONE, VARIES},
        versions::Side,
    },
    frozen::{
        Frozen, Values,
        arena::{FrozenArena, first_words},
        bits::{Fixed, with_type},
        codes::{Codes, Runs},
        pack::Decode,
        plan::{
            AttributePlan, Bytes, CodesAt, DESCRIPTOR_WORDS, Descriptor, Format, FrozenPlan,
            RANK_ROWS, header_bytes,
        },
        strings::Strings,
    },
    kernel::{lane::Lane, order::Scalar},
};

/// "AEROFRZ1" in memory order.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"AEROFRZ1");

/// Marks the segment as sealed, with its checksum. The caller holds the latch.
pub(crate) fn seal(frozen: &Frozen) {
    let words = frozen.header();
    words[header::SEALED].store(1, Ordering::Release);
    words[header::CHECKSUM].store(checksum(frozen), Ordering::Release);
}

/// CRC-32 of all that counts.
pub(crate) fn checksum(frozen: &Frozen) -> u64 {
    let (arena, plan) = (&frozen.arena, frozen.plan());
    let mut hasher = Hasher::new();
    let words = frozen.header();
    add_words(&mut hasher, &words[..header::CHECKSUM]);
    add_words(&mut hasher, &words[header::CHECKSUM + 1..]);
    add_words(&mut hasher, arena.words(plan.zones));
    add_words(&mut hasher, arena.words(plan.versions));
    for attribute in &plan.attributes {
        for area in areas(attribute) {
            hasher.update(arena.bytes(area));
        }
        add_words(&mut hasher, arena.words(attribute.nulls));
    }
    for area in index_areas(plan) {
        hasher.update(arena.bytes(area));
    }
    let (versions, ends) = (frozen.versions(), arena.words(plan.ends));
    for (block, stamps) in ends.chunks(BLOCK_ROWS as usize).enumerate() {
        if versions.varies(Side::End, block as u32) {
            add_words(&mut hasher, stamps);
        }
    }
    hasher.finalize().into()
}

/// The bytes in front of the end stamps, sealed as those of the segment when it was made:
/// no row has ended. What they hold does not change, so no latch is needed.
pub(crate) fn bytes_as_made(frozen: &Frozen) -> Vec<u8> {
    let plan = frozen.plan();
    let mut out = frozen.arena.copy_of_front(plan.fixed_bytes());
    let versions = plan.versions.offset..plan.versions.offset + plan.versions.words * 8;
    for block in out[versions].chunks_exact_mut(VERSION_WORDS * 8) {
        block[Side::End as usize * 8..][..8].copy_from_slice(&END_NONE.to_le_bytes());
    }
    // The checksum is that of a segment of these bytes.
    let mut region = HeapRegion::new(plan.arena_bytes);
    region.as_mut_slice()[..out.len()].copy_from_slice(&out);
    let arena = FrozenArena::new(Box::new(region), plan.clone());
    let made = Frozen::of(arena, Arc::clone(&frozen.schema));
    seal(&made);
    for word in [header::SEALED, header::CHECKSUM] {
        let value = made.header()[word].load(Ordering::Relaxed);
        out[word * 8..][..8].copy_from_slice(&value.to_le_bytes());
    }
    out
}

/// The bytes of an attribute; tuples that it shares come once for each.
fn areas(attribute: &AttributePlan) -> impl Iterator<Item = Bytes> {
    let [first, second, third] = match attribute.codes {
        CodesAt::Nowhere => Default::default(),
        CodesAt::Packed(codes) => [codes, Default::default(), Default::default()],
        CodesAt::Runs {
            starts,
            ranks,
            codes,
        } => [starts, ranks, codes],
        // The first of a group speaks for all.
        CodesAt::Tuples { tuples, bit: 0, .. }
        | CodesAt::Slots {
            tuples, offset: 0, ..
        } => [tuples, Default::default(), Default::default()],
        CodesAt::Tuples { .. } | CodesAt::Slots { .. } => Default::default(),
    };
    [
        first,
        second,
        third,
        attribute.values,
        attribute.offsets,
        attribute.heap,
        attribute.bloom,
    ]
    .into_iter()
}

/// The bytes of all secondary indexes.
fn index_areas(plan: &FrozenPlan) -> impl Iterator<Item = Bytes> + '_ {
    plan.indexes
        .iter()
        .flat_map(|index| [index.rows, index.bloom])
}

/// Makes a segment of a region that holds a sealed one.
///
/// # Errors
/// [`SegmentError::Corrupt`] when it does not.
pub(crate) fn open(
    region: Box<dyn Region>,
    schema: Arc<SegmentSchema>,
) -> Result<Frozen, SegmentError> {
    let corrupt = SegmentError::Corrupt;
    let plan = plan_of(region.as_ref(), &schema)?;
    let frozen = Frozen::of(FrozenArena::new(region, plan), schema);
    if frozen.header()[header::CHECKSUM].load(Ordering::Relaxed) != checksum(&frozen) {
        return Err(corrupt("the checksum does not match"));
    }
    check_versions(&frozen)?;
    for attribute in 0..frozen.schema.attributes().len() {
        check_attribute(&frozen, attribute)?;
    }
    if !(0..frozen.schema.indexes().len()).all(|index| frozen.is_permutation(index)) {
        return Err(corrupt("an index that has not every row once"));
    }
    Ok(frozen)
}

/// The checksum of a frozen segment in a region, if there could be one.
pub(crate) fn checksum_in(region: Box<dyn Region>, schema: Arc<SegmentSchema>) -> Option<u64> {
    let plan = plan_of(region.as_ref(), &schema).ok()?;
    let frozen = Frozen::of(FrozenArena::new(region, plan), schema);
    Some(checksum(&frozen))
}

/// Derives the plan from the facts and descriptors in the header.
pub(crate) fn plan_of(
    region: &dyn Region,
    schema: &SegmentSchema,
) -> Result<FrozenPlan, SegmentError> {
    let corrupt = SegmentError::Corrupt;
    let words = first_words(region, header_bytes(schema) / 8)
        .ok_or(corrupt("too short for a segment of this schema"))?;
    for (word, expected, message) in [
        (header::MAGIC, MAGIC, "no segment begins like this"),
        (header::SEALED, 1, "not sealed"),
        (
            header::FINGERPRINT,
            schema.fingerprint(),
            "a segment of another schema",
        ),
        (
            header::CAPACITY,
            words[header::ROWS],
            "rows that differ from the capacity",
        ),
    ] {
        if words[word] != expected {
            return Err(corrupt(message));
        }
    }
    let format = Format::of(words[header::FORMAT]);
    let format = format.ok_or(corrupt("a format this version does not know"))?;
    let rows = u32::try_from(words[header::ROWS])
        .ok()
        .filter(|rows| (1..=ROWS_MAX).contains(rows))
        .ok_or(corrupt("an impossible number of rows"))?;
    let (descriptors, _) = words[HEADER_WORDS..].as_chunks::<DESCRIPTOR_WORDS>();
    let descriptors: Option<Vec<_>> = descriptors.iter().map(Descriptor::of).collect();
    let descriptors = descriptors.ok_or(corrupt("an encoding that this version does not know"))?;
    let plan = FrozenPlan::new(format, schema, rows, &descriptors)
        .map_err(|_| corrupt("encodings that fit no arena"))?;
    if words[header::ARENA_BYTES] != plan.arena_bytes as u64 || region.bytes() < plan.arena_bytes {
        return Err(corrupt("bytes are missing at the end"));
    }
    Ok(plan)
}

/// All rows have one begin stamp, which stands in the blocks' headers.
fn check_versions(frozen: &Frozen) -> Result<(), SegmentError> {
    let words: &[AtomicU64] = frozen.arena.words(frozen.plan().versions);
    let varies =
        |block: &[AtomicU64]| block[Side::Begin as usize].load(Ordering::Relaxed) == VARIES;
    if words.chunks(2).any(varies) {
        return Err(SegmentError::Corrupt(
            "begin stamps that vary in a frozen segment",
        ));
    }
    Ok(())
}

/// Examines what readers rely on: runs are counted, codes are in their dictionary,
/// dictionaries are in order, texts are UTF-8, values are in their type's range.
fn check_attribute(frozen: &Frozen, attribute: usize) -> Result<(), SegmentError> {
    let corrupt = |message| Err(SegmentError::Corrupt(message));
    let column = frozen.column(attribute);
    let at = frozen.attribute(attribute);
    if let Some(Codes::Runs(runs)) = &column.codes
        && !runs_are_counted(runs, frozen.rows(), at.descriptor.runs)
    {
        return corrupt("runs that are not where they are counted");
    }
    let code_max = column
        .codes
        .as_ref()
        .map_or(0, |codes| code_max(codes, frozen.rows()));
    match &column.values {
        Values::Frame { base } => {
            let in_range = with_type!(column.physical, T => {
                let last = base.checked_add(code_max.into());
                last.is_some_and(|last| is_value::<T>(*base) && is_value::<T>(last))
                    && (column.physical != Physical::Bool || matches!(last, Some(0..=1)))
            });
            if !in_range {
                return corrupt("a value beyond its type's range");
            }
        }
        Values::Fixed(values) => {
            let sorted = with_type!(column.physical, T => {
                let ranks = (0..at.descriptor.entries as usize).map(|nth| T::from_bytes(values, nth).rank());
                ranks.is_sorted()
            });
            if !sorted {
                return corrupt("a dictionary that is not in order");
            }
        }
        Values::Sorted(strings) => {
            check_strings(strings, frozen.schema.attributes()[attribute].ty.is_text())?;
            if (1..strings.len).any(|nth| strings.get(nth - 1) >= strings.get(nth)) {
                return corrupt("a dictionary that is not in order");
            }
        }
        Values::RowOrder(strings) => {
            check_strings(strings, frozen.schema.attributes()[attribute].ty.is_text())?;
        }
        Values::Plain => {}
    }
    let has_codes = !matches!(column.values, Values::Frame { .. }) && column.codes.is_some();
    if has_codes && code_max > 0 && u128::from(code_max) >= column.codes_end {
        return corrupt("a code beyond its dictionary");
    }
    Ok(())
}

/// Whether a number is one of the type's.
fn is_value<T: Fixed>(value: i128) -> bool {
    T::from_raw(value as u128).to_int() == Some(value)
}

fn runs_are_counted(runs: &Runs<'_>, rows: u32, count: Option<u32>) -> bool {
    let mut before = 0;
    let (starts, _) = runs.starts.as_chunks::<{ RANK_ROWS / 64 }>();
    for (block, &rank) in starts.iter().zip(runs.ranks) {
        if rank != before {
            return false;
        }
        before += block.iter().map(|word| word.count_ones()).sum::<u32>();
    }
    let rows = rows as usize;
    let last_word = rows / 64;
    let beyond = runs
        .starts
        .get(last_word)
        .is_some_and(|word| !rows.is_multiple_of(64) && word >> (rows % 64) != 0)
        || runs.starts[rows.div_ceil(64)..]
            .iter()
            .any(|&word| word != 0);
    runs.starts.first().is_some_and(|word| word & 1 == 1) && Some(before) == count && !beyond
}

/// The greatest code of all rows.
fn code_max(codes: &Codes<'_>, rows: u32) -> u64 {
    struct Max(u64);
    impl Decode for Max {
        fn codes<L: Lane>(&mut self, codes: &[L]) {
            let max = codes.iter().copied().max().map_or(0, Into::into);
            self.0 = self.0.max(max);
        }
    }
    let mut max = Max(0);
    codes.decode(0..rows, &mut max);
    max.0
}

fn check_strings(strings: &Strings<'_>, is_text: bool) -> Result<(), SegmentError> {
    let mut end = 0;
    for at in 0..strings.len {
        let span = strings.offsets.get(at) as usize..strings.offsets.get(at + 1) as usize;
        let fits = span.start == end && span.start <= span.end && span.len() <= VALUE_BYTES_MAX;
        let Some(value) = strings.heap.get(span.clone()).filter(|_| fits) else {
            return Err(SegmentError::Corrupt("a string outside its dictionary"));
        };
        if is_text && std::str::from_utf8(value).is_err() {
            return Err(SegmentError::Corrupt("a text that is not UTF-8"));
        }
        end = span.end;
    }
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests;
