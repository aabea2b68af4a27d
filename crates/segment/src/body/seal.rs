//! Sealing and attaching: from a living segment to bytes that can be trusted elsewhere, and back.
//!
//! The checksum covers every byte that a reader of the sealed segment uses: header and directory,
//! published tuples, bitmaps, index, zones, versions, the stamps of blocks that vary, and the
//! used heap. Bytes beyond are written before they are read, so their contents do not matter.
//!
//! `attach` trusts nothing. The plan is derived from schema and capacity and compared with the
//! directory; row and heap counts are checked against it; the checksum is computed; and, because
//! a checksum can be forged, every value on which other code relies for safety is examined:
//! variable slots lie within the heap, texts are UTF-8, and the index has exactly one cell for
//! each row.

use std::{ops::Range, sync::Arc};

use aerostat_sync::{AtomicU32, Ordering};
use aerostat_types::Physical;
use crc32fast::Hasher;

use crate::{
    BLOCK_ROWS, ROWS_MAX, Region, SegmentError, SegmentSchema, VECTOR_ROWS,
    format::{
        arena::{Arena, Writer},
        header::{self, HEADER_WORDS, VERSION_WORDS, ZONE_WORDS, add_words, null_words},
        intern::{is_valid, with_value},
        plan::Plan,
        versions::{Side, Versions},
    },
    secondary,
};

/// "AEROSEG1" in memory order.
const MAGIC: u64 = u64::from_le_bytes(*b"AEROSEG1");

/// Raised whenever older bytes could be misread.
const FORMAT: u64 = 1;

/// Writes the facts of a new segment. The region may hold anything.
pub(crate) fn initialise(arena: &Arena, identity: u64) {
    let words = arena.header();
    let set = |word: usize, value: u64| words[word].store(value, Ordering::Release);
    set(header::MAGIC, MAGIC);
    set(header::FORMAT, FORMAT);
    set(header::ARENA_BYTES, arena.plan().arena_bytes() as u64);
    set(header::FINGERPRINT, arena.schema().fingerprint());
    set(header::IDENTITY, identity);
    set(header::CAPACITY, arena.plan().capacity().into());
    for (word, area) in words[HEADER_WORDS..].iter().zip(arena.plan().areas()) {
        word.store(area.entry(), Ordering::Release);
    }
}

/// Marks the segment as sealed, with its checksum.
pub(crate) fn seal(writer: &Writer<'_>) {
    let words = writer.arena().header();
    words[header::SEALED].store(1, Ordering::Release);
    words[header::CHECKSUM].store(checksum(writer.arena()), Ordering::Release);
}

/// Called by every writer: what it changes, the checksum does not cover.
pub(crate) fn break_seal(writer: &Writer<'_>) {
    let sealed = &writer.arena().header()[header::SEALED];
    if sealed.load(Ordering::Relaxed) != 0 {
        sealed.store(0, Ordering::Release);
    }
}

/// Makes an arena of a region that holds a sealed segment.
///
/// # Errors
/// [`SegmentError::Corrupt`] when it does not.
pub(crate) fn open(
    region: Box<dyn Region>,
    schema: Arc<SegmentSchema>,
) -> Result<Arena, SegmentError> {
    let corrupt = SegmentError::Corrupt;
    let plan = plan_of(region.as_ref(), &schema)?;
    let arena = Arena::new(region, plan, schema)?;
    let words = arena.header();
    for (word, area) in words[HEADER_WORDS..].iter().zip(arena.plan().areas()) {
        if word.load(Ordering::Relaxed) != area.entry() {
            return Err(corrupt(
                "the directory is not that of its schema and capacity",
            ));
        }
    }
    if words[header::CHECKSUM].load(Ordering::Relaxed) != checksum(&arena) {
        return Err(corrupt("the checksum does not match"));
    }
    check_index(&arena)?;
    check_values(&arena)?;
    secondary::check(&arena)?;
    Ok(arena)
}

/// The checksum of a segment in a region, if there could be one.
pub(crate) fn checksum_in(region: Box<dyn Region>, schema: Arc<SegmentSchema>) -> Option<u64> {
    let plan = plan_of(region.as_ref(), &schema).ok()?;
    Some(checksum(&Arena::new(region, plan, schema).ok()?))
}

/// Derives the plan from the facts in the header.
fn plan_of(region: &dyn Region, schema: &SegmentSchema) -> Result<Plan, SegmentError> {
    let corrupt = SegmentError::Corrupt;
    // A plan for one row: to find the header, nothing else.
    let smallest = Plan::new(schema, region.bytes().min(crate::ARENA_BYTES_MAX), 1)
        .map_err(|_| corrupt("too short for a segment of this schema"))?;
    let facts = crate::format::arena::facts(region, &smallest);
    if facts[header::MAGIC] != MAGIC {
        return Err(corrupt("no segment begins like this"));
    }
    if facts[header::FORMAT] != FORMAT {
        return Err(corrupt("a format this version does not know"));
    }
    if facts[header::SEALED] != 1 {
        return Err(corrupt("not sealed"));
    }
    if facts[header::FINGERPRINT] != schema.fingerprint() {
        return Err(corrupt("a segment of another schema"));
    }
    let capacity = u32::try_from(facts[header::CAPACITY])
        .ok()
        .filter(|capacity| (1..=ROWS_MAX).contains(capacity))
        .ok_or(corrupt("an impossible capacity"))?;
    let arena_bytes = usize::try_from(facts[header::ARENA_BYTES])
        .ok()
        .filter(|&bytes| bytes <= region.bytes())
        .ok_or(corrupt("bytes are missing at the end"))?;
    Plan::new(schema, arena_bytes, capacity)
        .map_err(|_| corrupt("the capacity does not fit the arena"))
}

/// CRC-32 of all that counts. Areas that are atomics are read as such.
fn checksum(arena: &Arena) -> u64 {
    let mut hasher = Hasher::new();
    let rows = arena.rows();
    let words = arena.header();
    add_words(&mut hasher, &words[..header::CHECKSUM]);
    add_words(&mut hasher, &words[header::CHECKSUM + 1..]);
    for group in 0..arena.schema().strides().len() {
        hasher.update(arena.tuples(group));
    }
    let bitmap_words = null_words(arena.plan().capacity());
    for bitmap in arena.nulls().chunks(bitmap_words) {
        add_words(&mut hasher, &bitmap[..null_words(rows)]);
    }
    add_cells(&mut hasher, arena.cells());
    let vectors = rows.div_ceil(VECTOR_ROWS) as usize;
    add_words(
        &mut hasher,
        &arena.zones()[..vectors * arena.schema().attributes().len() * ZONE_WORDS],
    );
    add_words(
        &mut hasher,
        &arena.versions()[..rows.div_ceil(BLOCK_ROWS) as usize * VERSION_WORDS],
    );
    for (side, block) in varying_blocks(arena) {
        let stamps = if side == Side::Begin {
            arena.begins()
        } else {
            arena.ends()
        };
        add_words(
            &mut hasher,
            &stamps[block.start as usize..block.end as usize],
        );
    }
    hasher.update(arena.heap());
    hasher.finalize().into()
}

fn add_cells(hasher: &mut Hasher, cells: &[AtomicU32]) {
    let mut bytes = [0; 1024];
    for part in cells.chunks(bytes.len() / 4) {
        for (to, cell) in bytes.chunks_exact_mut(4).zip(part) {
            to.copy_from_slice(&cell.load(Ordering::Relaxed).to_le_bytes());
        }
        hasher.update(&bytes[..part.len() * 4]);
    }
}

/// The published rows of each block whose rows have stamps of their own.
fn varying_blocks(arena: &Arena) -> impl Iterator<Item = (Side, Range<u32>)> + '_ {
    let rows = arena.rows();
    let versions = Versions::of(arena);
    (0..rows.div_ceil(BLOCK_ROWS)).flat_map(move |block| {
        let range = block * BLOCK_ROWS..rows.min((block + 1) * BLOCK_ROWS);
        [Side::Begin, Side::End]
            .into_iter()
            .filter(move |&side| versions.varies(side, block))
            .map(move |side| (side, range.clone()))
    })
}

/// Each published row has a cell, so that the rows that there is room for find a free one.
fn check_index(arena: &Arena) -> Result<(), SegmentError> {
    let cells = arena.index();
    let taken = cells
        .iter()
        .filter(|cell| cell.load(Ordering::Relaxed) != 0)
        .count();
    if cells.is_empty() || taken == arena.rows() as usize {
        Ok(())
    } else {
        Err(SegmentError::Corrupt("an index of more rows or fewer"))
    }
}

/// Examines what other code relies on for safety.
fn check_values(arena: &Arena) -> Result<(), SegmentError> {
    let heap = arena.heap();
    for (attribute, spec) in arena.schema().attributes().iter().enumerate() {
        if spec.ty.physical() != Physical::Variable {
            continue;
        }
        // Rows mostly repeat the long values of rows before; each is examined once in a row.
        let mut last = 0;
        for slot in arena.slots::<u64>(attribute).iter() {
            if slot == last {
                continue;
            }
            if !is_valid(slot, heap.len()) {
                return Err(SegmentError::Corrupt("a slot that points outside the heap"));
            }
            if spec.ty.is_text()
                && with_value(slot, heap, |value| std::str::from_utf8(value).is_err())
            {
                return Err(SegmentError::Corrupt("a text that is not UTF-8"));
            }
            last = slot;
        }
    }
    Ok(())
}

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
pub(crate) mod tests;
