//! What an append or a stamp has touched of a hot segment's arena, as ranges of bytes: the holder
//! of the latch adds their pages to those in use (`footprint`).
//!
//! Each call adds only a few ranges, never the whole segment.

use std::ops::Range;

use aerostat_types::IndexKind;

use crate::{
    BLOCK_ROWS, SegmentSchema, VECTOR_ROWS,
    format::{
        arena::{Arena, Writer},
        footprint::PAGE_BYTES,
        header::{VERSION_WORDS, ZONE_WORDS, null_words},
        skip,
        versions::{Side, Versions},
        zone,
    },
};

/// Adds what rows and heap have touched that are published since this was called last.
pub(crate) fn note_rows(writer: &mut Writer<'_>) {
    let arena = writer.arena();
    let (rows, heap) = (arena.rows(), arena.heap_used());
    let touched = writer.touched();
    let (new_rows, new_heap) = (touched.rows..rows, touched.heap..heap);
    let mut pages = 0;
    let plan = arena.plan();
    if new_rows.start == 0 {
        pages += touched.add(plan.header().offset(), plan.header().bytes());
    }
    used_by(arena, new_rows, &mut |offset, bytes| {
        pages += touched.add(offset, bytes);
    });
    pages += touched.add(plan.heap().offset() + new_heap.start, new_heap.len());
    (touched.rows, touched.heap) = (rows, heap);
    arena.footprint().grow(pages);
}

/// Adds what stamping these rows, which are published, has touched.
pub(crate) fn note_stamps(writer: &mut Writer<'_>, rows: Range<u32>) {
    let arena = writer.arena();
    let touched = writer.touched();
    let mut pages = 0;
    stamps_of(arena, rows, &mut |offset, bytes| {
        pages += touched.add(offset, bytes);
    });
    arena.footprint().grow(pages);
}

/// Calls `touch` with offset and length of what these rows use and those before them do not.
fn used_by(arena: &Arena, rows: Range<u32>, touch: &mut dyn FnMut(usize, usize)) {
    if rows.is_empty() {
        return;
    }
    let (plan, schema) = (arena.plan(), arena.schema());
    for (group, stride) in schema.strides().iter().enumerate() {
        let offset = plan.group(group).offset() + stride * rows.start as usize;
        touch(offset, stride * rows.len());
    }
    let vectors = rows.start / VECTOR_ROWS..rows.end.div_ceil(VECTOR_ROWS);
    for (attribute, nth) in nullable(schema) {
        let start = plan.nulls().offset() + nth * null_words(plan.capacity()) * 8;
        for vector in vectors
            .clone()
            .filter(|&vector| zone::read(arena, vector, attribute).nulls)
        {
            let vector_rows = VECTOR_ROWS.min(rows.end - vector * VECTOR_ROWS);
            touch(
                start + (vector * VECTOR_ROWS / 8) as usize,
                null_words(vector_rows) * 8,
            );
        }
    }
    indexes_of(arena, &rows, touch);
    let mut part = |offset: usize, parts: Range<u32>, words: usize| {
        let bytes = words * 8;
        touch(offset + parts.start as usize * bytes, parts.len() * bytes);
    };
    let attributes = schema.attributes().len();
    part(plan.zones().offset(), vectors, attributes * ZONE_WORDS);
    let blocks = rows.start / BLOCK_ROWS..rows.end.div_ceil(BLOCK_ROWS);
    part(plan.versions().offset(), blocks, VERSION_WORDS);
    stamps_of(arena, rows, touch);
}

/// As [`used_by`], of the cells of indexes.
fn indexes_of(arena: &Arena, rows: &Range<u32>, touch: &mut dyn FnMut(usize, usize)) {
    let plan = arena.plan();
    // Entries scatter: the whole index is touched as soon as there are some rows per page.
    let scattered = |bytes: usize| {
        let of = |rows: u32| {
            let pages = bytes.div_ceil(PAGE_BYTES).min(rows as usize);
            bytes.min(pages * PAGE_BYTES)
        };
        of(rows.start)..of(rows.end)
    };
    let cells = |cells: &Range<usize>| (plan.indexes().offset() + cells.start * 4, cells.len() * 4);
    let (offset, bytes) = cells(&plan.index_cells()[0]);
    let own = scattered(bytes);
    touch(offset + own.start, own.len());
    let secondary = arena.schema().indexes().iter();
    for (index, own) in secondary.zip(&plan.index_cells()[1..]) {
        let (offset, bytes) = cells(own);
        match index.kind {
            IndexKind::Hash => {
                let heads = scattered(bytes / 2);
                touch(offset + heads.start, heads.len());
                let links = offset + bytes / 2 + rows.start as usize * 4;
                touch(links, rows.len() * 4);
            }
            IndexKind::Ordered => {
                let before = skip::touched(plan.capacity(), rows.start);
                let after = skip::touched(plan.capacity(), rows.end);
                for ((first, before), (_, after)) in before.zip(after) {
                    // The heads are there with the first row.
                    let before = if rows.start == 0 { 0 } else { before };
                    touch(offset + (first + before) * 4, (after - before) * 4);
                }
            }
        }
    }
}

/// As [`used_by`], of the stamps of the blocks that these rows are in, if they vary.
fn stamps_of(arena: &Arena, rows: Range<u32>, touch: &mut dyn FnMut(usize, usize)) {
    let (plan, versions) = (arena.plan(), Versions::of(arena));
    for block in rows.start / BLOCK_ROWS..rows.end.div_ceil(BLOCK_ROWS) {
        let first = block * BLOCK_ROWS;
        let in_block = BLOCK_ROWS.min(arena.rows() - first) as usize;
        for (side, area) in [(Side::Begin, plan.begins()), (Side::End, plan.ends())] {
            if versions.varies(side, block) {
                touch(area.offset() + first as usize * 8, in_block * 8);
            }
        }
    }
}

/// How much of the footprint is indexes, and how much is stamps and their summaries.
pub(crate) fn indexes_and_versions(arena: &Arena) -> (u64, u64) {
    let rows = 0..arena.rows();
    if rows.is_empty() {
        return (0, 0);
    }
    let (mut indexes, mut versions) = (0, 0);
    indexes_of(arena, &rows, &mut |_, bytes| indexes += bytes as u64);
    let blocks = arena.rows().div_ceil(BLOCK_ROWS) as usize;
    stamps_of(arena, rows, &mut |_, bytes| versions += bytes as u64);
    versions += (blocks * VERSION_WORDS * 8) as u64;
    (indexes, versions)
}

/// The nullable attributes with their position among them.
fn nullable(schema: &SegmentSchema) -> impl Iterator<Item = (usize, usize)> + '_ {
    (0..schema.attributes().len())
        .filter_map(|attribute| Some((attribute, schema.place(attribute).nulls?)))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::{
        Keys, Pinned, Segment,
        body::segment::Form,
        format::stamp::{END_NONE, TXN_BIT},
        model::{Model, Random},
    };

    const ARENA_BYTES: usize = 4 << 20;

    /// The pages of all that is in the segment: header, rows, stamps and heap, looked at anew.
    fn walk(segment: &Segment, pages: &mut BTreeSet<usize>) {
        let Form::Hot(arena) = segment.form() else {
            unreachable!("the model's segments are hot");
        };
        let mut touch = |offset: usize, bytes: usize| {
            if bytes > 0 {
                pages.extend(offset / PAGE_BYTES..(offset + bytes).div_ceil(PAGE_BYTES));
            }
        };
        let plan = arena.plan();
        touch(plan.header().offset(), plan.header().bytes());
        used_by(arena, 0..arena.rows(), &mut touch);
        touch(plan.heap().offset(), arena.heap_used());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Whatever is appended and stamped in whatever pieces, what was noted on the way is
        /// what a look at everything finds, then or before.
        #[test]
        fn what_is_noted_is_what_is_there(seed: u64, rows in 1usize..4000) {
            let mut random = Random(seed);
            let model = Model::random(seed, rows);
            let segment = Pinned::new(model.segment(ARENA_BYTES), ());
            let columns = model.arrays(seed);
            let keys = Keys::encode(&model.schema, &columns).unwrap();
            let longest = 1 + random.below(1500);
            let (mut from, mut pages) = (0, BTreeSet::new());
            walk(&segment, &mut pages);
            while from < rows {
                let to = (from + 1 + random.below(longest) as usize).min(rows);
                let stamp = 1 + random.below(2);
                let appended = segment.writer().append(&columns, from..to, &keys, stamp).unwrap();
                prop_assert_eq!(appended.count as usize, to - from);
                from = to;
                walk(&segment, &mut pages);
                let stamped = random.below(segment.rows().into()) as u32;
                let end = stamped + 1 + random.below(u64::from(segment.rows() - stamped)) as u32;
                let mut writer = segment.writer();
                match random.below(4) {
                    0 => writer.set_begin(stamped..end, random.below(3)),
                    1 => writer.set_end(stamped, TXN_BIT | 7),
                    2 => writer.set_ends(stamped..end, END_NONE),
                    _ => {}
                }
                drop(writer);
                walk(&segment, &mut pages);
                let bytes = (pages.len() * PAGE_BYTES).min(segment.arena_bytes());
                prop_assert_eq!(segment.footprint_bytes(), bytes as u64);
            }
        }
    }
}
