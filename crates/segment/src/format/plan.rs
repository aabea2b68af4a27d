//! The plan of an arena: which bytes are what. A pure function of schema,
//! arena size and capacity, so that a plan can be derived again from a header
//! and compared with the directory found there.
//!
//! ```text
//! offset 0
//! ┌────────────────────────────────────────────────────────────────────────┐
//! │ header      16 words of facts, then the directory; a multiple of 4 KiB │  words
//! ├────────────────────────────────────────────────────────────────────────┤
//! │ group 0     capacity × stride 0, packed tuples                         │  plain
//! │ group 1     …                                                          │  plain
//! ├────────────────────────────────────────────────────────────────────────┤
//! │ nulls       per nullable attribute a bitmap, bit set = NULL            │  words
//! │ indexes     u32 cells: the key's, open addressing, at most 85% full;   │  cells
//! │             then those of each secondary index                         │
//! │ zones       per vector and attribute: min, max, flags                  │  words
//! │ versions    per block: begin, end (constant, or VARIES)                │  words
//! │ begins      a begin stamp per row, for blocks that vary                │  words
//! │ ends        an end stamp per row, for blocks that vary                 │  words
//! ├────────────────────────────────────────────────────────────────────────┤
//! │ heap        long values, growing upwards                               │  plain
//! └────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! *Words* and *cells* are only ever accessed as atomics. *Plain* bytes are
//! written before they are published and never after. Every area starts on a
//! cache line. Pages that are never touched cost no memory, so the bitmaps of
//! attributes without NULLs and the stamps of uniform blocks are free.
//!
//! The heap starts where it would if every attribute had a group of its own, which
//! takes the most cache lines. So an arena has room for the same rows and the same
//! heap in every layout, and a full segment can be laid out anew in an arena of its size.

use std::ops::Range;

use aerostat_types::IndexKind;

use crate::{
    ARENA_BYTES_MAX, BLOCK_ROWS, IndexSpec, ROWS_MAX, SegmentError, SegmentSchema, VECTOR_ROWS,
    format::{
        chain,
        header::{HEADER_WORDS, VERSION_WORDS, ZONE_WORDS, null_words},
        region::REGION_ALIGN,
        skip,
    },
};

/// The header is a multiple of this, one page.
const HEADER_BYTES: usize = 4096;

/// A piece of the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    offset: usize,
    bytes: usize,
}

impl Area {
    pub(crate) fn offset(self) -> usize {
        self.offset
    }

    pub(crate) fn bytes(self) -> usize {
        self.bytes
    }

    /// As it stands in the directory.
    pub(crate) fn entry(self) -> u64 {
        (self.offset as u64) << 32 | self.bytes as u64
    }
}

/// The areas of an arena. Only [`Plan::new`] makes one, so whoever holds a plan
/// knows: the areas ascend, do not overlap, start on multiples of
/// [`REGION_ALIGN`], and end within `arena_bytes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    arena_bytes: usize,
    capacity: u32,
    /// Header, groups, nulls, indexes, zones, versions, begins, ends, heap.
    areas: Vec<Area>,
    /// Which cells of the area of indexes are the key's, then those of each secondary index.
    index_cells: Vec<Range<usize>>,
}

impl Plan {
    /// The plan for exactly `capacity` rows; all bytes that are left are heap.
    ///
    /// # Errors
    /// [`SegmentError::ArenaTooSmall`] when the fixed areas do not fit.
    pub(crate) fn new(
        schema: &SegmentSchema,
        arena_bytes: usize,
        capacity: u32,
    ) -> Result<Plan, SegmentError> {
        assert!(
            (1..=ROWS_MAX).contains(&capacity),
            "a capacity has been checked by its source"
        );
        let sizes = area_bytes(schema, capacity);
        let mut offset = 0;
        let mut areas = Vec::with_capacity(sizes.len() + 1);
        for bytes in sizes {
            areas.push(Area { offset, bytes });
            offset += aligned(bytes);
        }
        let heap = fixed_bytes(schema, capacity);
        debug_assert!(offset <= heap, "no layout needs more than one group each");
        if heap > arena_bytes || arena_bytes > ARENA_BYTES_MAX {
            return Err(SegmentError::ArenaTooSmall {
                bytes: arena_bytes.min(ARENA_BYTES_MAX),
                needed: heap,
            });
        }
        areas.push(Area {
            offset: heap,
            bytes: arena_bytes - heap,
        });
        let plan = Plan {
            arena_bytes,
            capacity,
            areas,
            index_cells: index_cells(schema, capacity),
        };
        debug_assert!(
            plan.areas
                .windows(2)
                .all(|pair| pair[0].offset + pair[0].bytes <= pair[1].offset)
        );
        Ok(plan)
    }

    /// The plan for as many rows as fit with `heap_bytes_per_row` each.
    pub(crate) fn fit(
        schema: &SegmentSchema,
        arena_bytes: usize,
        heap_bytes_per_row: usize,
    ) -> Result<Plan, SegmentError> {
        let arena_bytes = arena_bytes.min(ARENA_BYTES_MAX);
        match schema.capacity_for(arena_bytes, heap_bytes_per_row) {
            0 => Err(SegmentError::ArenaTooSmall {
                bytes: arena_bytes,
                needed: fixed_bytes(schema, 1) + heap_bytes_per_row,
            }),
            capacity => Plan::new(schema, arena_bytes, capacity),
        }
    }

    pub(crate) fn arena_bytes(&self) -> usize {
        self.arena_bytes
    }

    pub(crate) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// All areas in order, as they stand in the directory.
    pub(crate) fn areas(&self) -> &[Area] {
        &self.areas
    }

    pub(crate) fn header(&self) -> Area {
        self.areas[0]
    }

    pub(crate) fn group(&self, group: usize) -> Area {
        assert!(group < self.areas.len() - 8, "a group of the schema");
        self.areas[1 + group]
    }

    pub(crate) fn nulls(&self) -> Area {
        self.nth_last(7)
    }

    pub(crate) fn indexes(&self) -> Area {
        self.nth_last(6)
    }

    /// The cells of the key index, then of each secondary index, among those of `indexes`.
    pub(crate) fn index_cells(&self) -> &[Range<usize>] {
        &self.index_cells
    }

    pub(crate) fn zones(&self) -> Area {
        self.nth_last(5)
    }

    pub(crate) fn versions(&self) -> Area {
        self.nth_last(4)
    }

    pub(crate) fn begins(&self) -> Area {
        self.nth_last(3)
    }

    pub(crate) fn ends(&self) -> Area {
        self.nth_last(2)
    }

    pub(crate) fn heap(&self) -> Area {
        self.nth_last(1)
    }

    fn nth_last(&self, nth: usize) -> Area {
        self.areas[self.areas.len() - nth]
    }
}

impl SegmentSchema {
    /// How many rows an arena of `arena_bytes` takes when a row needs
    /// `heap_bytes_per_row` of heap on average. 0 when not even one fits.
    pub fn capacity_for(&self, arena_bytes: usize, heap_bytes_per_row: usize) -> u32 {
        let arena_bytes = arena_bytes.min(ARENA_BYTES_MAX);
        let fits = |rows: u32| {
            fixed_bytes(self, rows).saturating_add(heap_bytes_per_row.saturating_mul(rows as usize))
                <= arena_bytes
        };
        // Bytes grow with the rows, so the boundary can be halved towards.
        let (mut fit, mut unfit) = (0, ROWS_MAX + 1);
        while unfit - fit > 1 {
            let middle = fit + (unfit - fit) / 2;
            if fits(middle) {
                fit = middle
            } else {
                unfit = middle
            }
        }
        fit
    }

    /// The size of an arena for `rows` rows and `heap_bytes` of heap in all.
    /// `None` when that is more than [`crate::ARENA_BYTES_MAX`].
    pub fn arena_bytes_for(&self, rows: u32, heap_bytes: usize) -> Option<usize> {
        let bytes = fixed_bytes(self, rows.clamp(1, ROWS_MAX))
            .checked_add(heap_bytes)?
            .checked_next_multiple_of(64)?;
        (rows <= ROWS_MAX && bytes <= ARENA_BYTES_MAX).then_some(bytes)
    }
}

/// Cells that secondary indexes are rounded up to: a cache line.
const CELLS_ALIGN: usize = REGION_ALIGN / 4;

/// Where the key index and the secondary ones lie, in cells.
fn index_cells(schema: &SegmentSchema, capacity: u32) -> Vec<Range<usize>> {
    let own = key_cells(schema, capacity);
    let secondary = schema
        .indexes()
        .iter()
        .map(|index| secondary_cells(index, capacity));
    let mut first: usize = 0;
    std::iter::once(own)
        .chain(secondary)
        .map(|cells| {
            let start = first.next_multiple_of(CELLS_ALIGN);
            first = start + cells;
            start..first
        })
        .collect()
}

/// Cells of the key index: at most 85% of them are used when all rows are there.
/// Measured on linear probing theory (Knuth 6.4): at 0.85 a hit inspects 3.8
/// cells and a miss 22.7, one to two cache lines, for 4.7 bytes per row.
fn key_cells(schema: &SegmentSchema, capacity: u32) -> usize {
    if schema.key().is_empty() {
        0
    } else {
        (capacity as usize * 20).div_ceil(17) + 1
    }
}

/// Cells of a secondary index.
fn secondary_cells(index: &IndexSpec, capacity: u32) -> usize {
    match index.kind {
        IndexKind::Hash => chain::cells(capacity),
        IndexKind::Ordered => skip::cells(capacity),
    }
}

/// Bytes of every area but the heap.
fn area_bytes(schema: &SegmentSchema, capacity: u32) -> Vec<usize> {
    let strides = schema.strides();
    let mut sizes = Vec::with_capacity(strides.len() + 8);
    sizes.push(header_bytes(strides.len()));
    sizes.extend(strides.iter().map(|stride| stride * capacity as usize));
    sizes.extend(other_bytes(schema, capacity));
    sizes
}

/// Bytes of the header of a segment with so many groups.
fn header_bytes(groups: usize) -> usize {
    ((HEADER_WORDS + groups + 9) * 8).next_multiple_of(HEADER_BYTES)
}

/// Bytes of nulls, index, zones, versions, begins and ends: those that groups do not change.
fn other_bytes(schema: &SegmentSchema, capacity: u32) -> [usize; 6] {
    let rows = capacity as usize;
    [
        schema.nullable_count() * null_words(capacity) * 8,
        index_cells(schema, capacity)
            .last()
            .map_or(0, |last| last.end)
            * 4,
        capacity.div_ceil(VECTOR_ROWS) as usize * schema.attributes().len() * ZONE_WORDS * 8,
        capacity.div_ceil(BLOCK_ROWS) as usize * VERSION_WORDS * 8,
        rows * 8,
        rows * 8,
    ]
}

/// Where the heap starts: behind the areas of a segment with a group for each attribute.
pub(crate) fn fixed_bytes(schema: &SegmentSchema, capacity: u32) -> usize {
    let attributes = schema.attributes();
    let groups_max = attributes.len().max(schema.strides().len());
    let slots = attributes
        .iter()
        .map(|attribute| aligned(attribute.ty.physical().width() * capacity as usize));
    let others = other_bytes(schema, capacity).into_iter().map(aligned);
    header_bytes(groups_max) + slots.sum::<usize>() + others.sum::<usize>()
}

fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(REGION_ALIGN)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use aerostat_types::SqlType;

    use super::*;
    use crate::AttributeSpec;

    fn schema(columns: usize) -> SegmentSchema {
        let attributes = vec![
            AttributeSpec {
                ty: SqlType::Integer,
                nullable: false
            };
            columns
        ];
        SegmentSchema::new(
            attributes,
            (0..columns).map(|at| vec![at]).collect(),
            vec![0],
        )
        .unwrap()
    }

    #[test]
    fn capacity_is_the_largest_that_fits() {
        for (columns, arena, heap) in [
            (1, 64 << 10, 0),
            (17, 1 << 20, 13),
            (17, ARENA_BYTES_MAX, 40),
        ] {
            let schema = schema(columns);
            let plan = Plan::fit(&schema, arena, heap).unwrap();
            let capacity = plan.capacity();
            assert!(plan.heap().bytes() >= heap * capacity as usize);
            assert!(fixed_bytes(&schema, capacity + 1) + heap * (capacity as usize + 1) > arena);
            assert!(
                schema
                    .arena_bytes_for(capacity, heap * capacity as usize)
                    .unwrap()
                    <= arena
            );
        }
    }

    #[test]
    fn every_layout_has_room_for_the_same() {
        let types = [
            SqlType::Boolean,
            SqlType::Text,
            SqlType::Uuid,
            SqlType::Date,
        ];
        let attributes: Vec<AttributeSpec> = (0..600)
            .map(|at| AttributeSpec {
                ty: types[at % 4],
                nullable: at % 3 == 0,
            })
            .collect();
        let of = |columns: usize, groups| {
            SegmentSchema::new(attributes[..columns].to_vec(), groups, vec![1]).unwrap()
        };
        for columns in [2, 7, 600] {
            let column = of(columns, (0..columns).map(|at| vec![at]).collect());
            let row = of(columns, vec![(0..columns).rev().collect()]);
            let halves = of(
                columns,
                vec![(0..columns / 2).collect(), (columns / 2..columns).collect()],
            );
            for (arena_bytes, heap_bytes) in [(64 << 10, 0), (1 << 20, 9), (ARENA_BYTES_MAX, 100)] {
                let Ok(plan) = Plan::fit(&column, arena_bytes, heap_bytes) else {
                    assert_eq!(row.capacity_for(arena_bytes, heap_bytes), 0);
                    continue;
                };
                for other in [&row, &halves] {
                    let other = Plan::new(other, arena_bytes, plan.capacity()).unwrap();
                    assert_eq!(other.heap(), plan.heap());
                }
            }
        }
    }

    #[test]
    fn every_row_number_fits_a_cell() {
        // The narrowest row has no attribute at all: 16 bytes of reserved stamps remain.
        let empty = SegmentSchema::new(vec![], vec![], vec![]).unwrap();
        let capacity = empty.capacity_for(ARENA_BYTES_MAX, 0);
        assert!(capacity > 2_000_000 && capacity < ROWS_MAX, "{capacity}");
    }

    #[test]
    fn what_cannot_fit_is_refused() {
        let wide = schema(10_000);
        assert!(matches!(
            Plan::fit(&wide, 64 << 10, 0),
            Err(SegmentError::ArenaTooSmall { .. })
        ));
        assert_eq!(wide.capacity_for(64 << 10, 0), 0);
        assert_eq!(schema(1).arena_bytes_for(1, ARENA_BYTES_MAX), None);
        assert_eq!(schema(1).arena_bytes_for(1, usize::MAX), None);
    }
}
