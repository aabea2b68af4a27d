//! The plan of a frozen arena: a pure function of format, schema, rows and the attributes'
//! descriptors, so that the descriptors in the header are the whole directory.
//!
//! ```text
//! offset 0
//! ┌────────────────────────────────────────────────────────────────────────┐
//! │ header        16 words of facts, then 8 words per attribute            │  words
//! │ zones         per vector and attribute: min, max, flags                │  words
//! │ versions      per block of 1,024 rows: begin, end (or end = VARIES)    │  words
//! │ blooms        per attribute and per secondary index, of the keys;      │  plain
//! │               blocks of one cache line; absent where it does not pay   │
//! ├──────────────────────────── extents ───────────────────────────────────┤
//! │ per group: codes, one attribute's as one of                            │
//! │   packed      width × 64 bytes per 512 codes                           │  plain
//! │   runs        a bit per row: a run starts; u32 per 512 rows: runs      │  plain
//! │               before; then a packed code per run                       │
//! │   slots       values as they are                                       │  plain
//! │ several attributes' as                                                 │
//! │   tuples      slots, then codes bit by bit, padded to whole bytes      │  plain
//! │ then per attribute of the group                                        │
//! │   dictionary  sorted values; or packed offsets, and the bytes          │  plain
//! │   nulls       a bit per row, set = NULL; absent without NULLs          │  words
//! ├────────────────────────────────────────────────────────────────────────┤
//! │ per secondary index                                                    │
//! │   rows        packed row numbers in order of keys                      │  plain
//! ├────────────────────────────────────────────────────────────────────────┤
//! │ ends          an end stamp per row, untouched until a block varies     │  words
//! └────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Every area starts on a cache line. An *extent* is what can leave memory alone (`pages`): a group
//! or an index. Small ones come first; one of [`EXTENT_BYTES_MIN`] or more has its pages to itself.
//!
//! Format 1 had codes of all groups first, then of each attribute its dictionary, bitmap and Bloom
//! filter, then of each index rows and filter, and nothing on pages of its own. Such bytes are read
//! as they are.

use std::ops::Range;

use aerostat_types::Physical;

use crate::{
    ARENA_BYTES_MAX, BLOCK_ROWS, IndexSpec, SegmentError, SegmentSchema, VECTOR_ROWS,
    format::{
        header::{HEADER_WORDS, VERSION_WORDS, ZONE_WORDS, null_words},
        region::REGION_ALIGN,
    },
    frozen::bloom,
    kernel::lane::{packed_bytes, width_of},
};

/// Words of a descriptor.
pub(crate) const DESCRIPTOR_WORDS: usize = 8;

/// Rows for which one count of the runs before is kept.
pub(crate) const RANK_ROWS: usize = 512;

/// Below this many rows an index has no Bloom filter: halving takes a few steps only.
const INDEX_BLOOM_ROWS_MIN: u32 = 4096;

/// An extent of this size or more has its pages to itself.
const EXTENT_BYTES_MIN: usize = 64 << 10;

/// A page as the plan has it, whatever the machine's are: those of most.
const PAGE_BYTES: usize = 4096;

/// What [`crate::ROWS_MAX`] rows take at least, for each.
const ROW_BYTES_MIN: usize = 16;

/// Bytes after the tuples, so that a code's 16 bytes can be loaded wherever it begins.
const TUPLE_SLACK_BYTES: usize = 16;

/// How the values of an attribute are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EncodingKind {
    /// Value = base + code. With codes of width 0, a constant.
    Frame,
    /// Code = position among the sorted distinct values.
    Sorted,
    /// Byte strings in order of rows; the row is the code, and none is stored.
    RowOrder,
    /// No code: the value in the form of its hot slot.
    Plain,
}

/// What the header says of an attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) kind: EncodingKind,
    /// Bits of a code.
    pub(crate) width: u32,
    /// Runs, when codes are kept per run.
    pub(crate) runs: Option<u32>,
    /// Whether there is a NULL.
    pub(crate) nulls: bool,
    /// Cache lines of the Bloom filter.
    pub(crate) bloom_lines: u32,
    pub(crate) base: i128,
    /// Values in the dictionary.
    pub(crate) entries: u32,
    /// Bytes of the strings in the dictionary.
    pub(crate) heap_bytes: u32,
}

impl Descriptor {
    /// As it stands in the header.
    pub(crate) fn words(&self) -> [u64; DESCRIPTOR_WORDS] {
        let flags = u64::from(self.nulls) | u64::from(self.runs.is_some()) << 1;
        [
            self.kind as u64 | u64::from(self.width) << 8 | flags << 16,
            self.base as u64,
            (self.base >> 64) as u64,
            self.entries.into(),
            self.heap_bytes.into(),
            self.runs.unwrap_or(0).into(),
            self.bloom_lines.into(),
            0,
        ]
    }

    /// Takes words found in foreign bytes apart; `None` when no descriptor gives them.
    pub(crate) fn of(words: &[u64; DESCRIPTOR_WORDS]) -> Option<Descriptor> {
        let half = |word: usize| u32::try_from(words[word]).ok();
        let kind = match words[0] & 0xFF {
            0 => EncodingKind::Frame,
            1 => EncodingKind::Sorted,
            2 => EncodingKind::RowOrder,
            3 => EncodingKind::Plain,
            _ => return None,
        };
        let descriptor = Descriptor {
            kind,
            width: (words[0] >> 8 & 0xFF) as u32,
            runs: (words[0] >> 17 & 1 == 1).then_some(half(5)?),
            nulls: words[0] >> 16 & 1 == 1,
            bloom_lines: half(6)?,
            base: (i128::from(words[2] as i64) << 64) | i128::from(words[1]),
            entries: half(3)?,
            heap_bytes: half(4)?,
        };
        (descriptor.words() == *words).then_some(descriptor)
    }

    /// Whether a segment of `rows` rows can have an attribute like this.
    fn suits(&self, physical: Physical, nullable: bool, row_wise: bool, rows: u32) -> bool {
        let coded = matches!(self.kind, EncodingKind::Frame | EncodingKind::Sorted);
        let integer = matches!(
            physical,
            Physical::Bool | Physical::I16 | Physical::I32 | Physical::I64 | Physical::I128
        );
        let strings = physical == Physical::Variable;
        let kind = match self.kind {
            EncodingKind::Frame => integer && self.entries == 0,
            EncodingKind::Sorted => self.entries <= rows && (self.entries > 0 || self.width == 0),
            EncodingKind::RowOrder => strings && self.entries == rows,
            EncodingKind::Plain => !strings && self.entries == 0,
        };
        kind && self.width <= if coded { 64 } else { 0 }
            && (self.base == 0 || self.kind == EncodingKind::Frame)
            && (self.heap_bytes == 0 || strings)
            && (nullable || !self.nulls)
            && self
                .runs
                .is_none_or(|runs| coded && !row_wise && (1..=rows).contains(&runs))
    }

    /// Bytes that it takes at least.
    fn bytes_min(&self) -> usize {
        (self.heap_bytes as usize).max(self.bloom_lines as usize * REGION_ALIGN)
    }
}

/// Bytes that never change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Bytes {
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

/// Words that are only ever accessed as atomics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Words {
    pub(crate) offset: usize,
    pub(crate) words: usize,
}

/// Where the codes of an attribute are.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CodesAt {
    /// The row is the code.
    Nowhere,
    Packed(Bytes),
    Runs {
        starts: Bytes,
        ranks: Bytes,
        codes: Bytes,
    },
    /// A bit offset within each tuple of the group.
    Tuples {
        tuples: Bytes,
        stride: usize,
        bit: usize,
    },
    /// A byte offset within each tuple, or alone.
    Slots {
        tuples: Bytes,
        stride: usize,
        offset: usize,
    },
}

/// The areas of one attribute.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttributePlan {
    pub(crate) descriptor: Descriptor,
    pub(crate) codes: CodesAt,
    /// Sorted values of a fixed width.
    pub(crate) values: Bytes,
    /// Packed offsets of strings, one more than there are.
    pub(crate) offsets: Bytes,
    pub(crate) heap: Bytes,
    pub(crate) nulls: Words,
    pub(crate) bloom: Bytes,
}

/// The areas of one secondary index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IndexPlan {
    /// Packed row numbers in order of keys.
    pub(crate) rows: Bytes,
    pub(crate) bloom: Bytes,
}

/// The areas of a frozen arena. Only [`FrozenPlan::new`] makes one, so whoever holds
/// one knows: areas do not overlap, start on multiples of [`REGION_ALIGN`], and end
/// within `arena_bytes`.
#[derive(Clone, Debug)]
pub(crate) struct FrozenPlan {
    pub(crate) rows: u32,
    pub(crate) arena_bytes: usize,
    pub(crate) header: Words,
    pub(crate) zones: Words,
    pub(crate) versions: Words,
    pub(crate) attributes: Vec<AttributePlan>,
    pub(crate) indexes: Vec<IndexPlan>,
    /// The bytes of each extent: of every group, then of every index.
    pub(crate) extents: Vec<Vec<Range<usize>>>,
    pub(crate) ends: Words,
}

/// Bytes of the header.
pub(crate) fn header_bytes(schema: &SegmentSchema) -> usize {
    (HEADER_WORDS + schema.attributes().len() * DESCRIPTOR_WORDS) * 8
}

/// Bits of an offset into so many bytes.
pub(crate) fn offset_width(heap_bytes: u32) -> u32 {
    width_of(heap_bytes.into())
}

/// Lays areas one after the other.
struct Layer(usize);

impl Layer {
    fn bytes(&mut self, bytes: usize) -> Bytes {
        let offset = self.0;
        self.0 += bytes.next_multiple_of(REGION_ALIGN);
        Bytes { offset, bytes }
    }

    fn words(&mut self, words: usize) -> Words {
        let offset = self.bytes(words * 8).offset;
        Words { offset, words }
    }

    fn begin_page(&mut self) {
        self.0 = self.0.next_multiple_of(PAGE_BYTES);
    }

    /// The bytes that `lay` takes.
    fn span<T>(&mut self, lay: impl FnOnce(&mut Layer) -> T) -> (Range<usize>, T) {
        let from = self.0;
        let laid = lay(self);
        (from..self.0, laid)
    }
}

impl FrozenPlan {
    /// The plan for `rows` rows of attributes encoded like this.
    ///
    /// # Errors
    /// [`SegmentError::Corrupt`] when a descriptor does not suit its attribute,
    /// [`SegmentError::ArenaTooSmall`] when the largest arena has no room for it.
    pub(crate) fn new(
        format: Format,
        schema: &SegmentSchema,
        rows: u32,
        descriptors: &[Descriptor],
    ) -> Result<FrozenPlan, SegmentError> {
        let attributes = schema.attributes();
        assert_eq!(
            descriptors.len(),
            attributes.len(),
            "one for each attribute"
        );
        let row_wise = |at: usize| schema.groups()[schema.place(at).group].len() > 1;
        let suits = descriptors.iter().enumerate().all(|(at, descriptor)| {
            let nullable = attributes[at].nullable;
            descriptor.suits(schema.physical(at), nullable, row_wise(at), rows)
        });
        if !suits || rows == 0 {
            return Err(SegmentError::Corrupt(
                "an encoding that does not suit its attribute",
            ));
        }
        // Before anything is laid, whose offsets are those of an arena.
        let bytes_min = descriptors.iter().map(Descriptor::bytes_min).max();
        let needed = (rows as usize * ROW_BYTES_MIN).max(bytes_min.unwrap_or(0));
        if needed >= ARENA_BYTES_MAX {
            return Err(SegmentError::ArenaTooSmall {
                bytes: ARENA_BYTES_MAX,
                needed,
            });
        }
        let mut layer = Layer(0);
        let header = layer.words(header_bytes(schema) / 8);
        let vectors = rows.div_ceil(VECTOR_ROWS) as usize;
        let zones = layer.words(vectors * attributes.len() * ZONE_WORDS);
        let versions = layer.words(rows.div_ceil(BLOCK_ROWS) as usize * VERSION_WORDS);
        let values = Values {
            schema,
            rows,
            descriptors,
        };
        let laid = match format {
            Format::One => values.lay_by_area(&mut layer),
            Format::Two => values.lay_by_extent(&mut layer),
        };
        let ends = layer.words(rows as usize);
        let arena_bytes = layer.0;
        if arena_bytes > ARENA_BYTES_MAX {
            return Err(SegmentError::ArenaTooSmall {
                bytes: ARENA_BYTES_MAX,
                needed: arena_bytes,
            });
        }
        Ok(FrozenPlan {
            rows,
            arena_bytes,
            header,
            zones,
            versions,
            attributes: laid.attributes,
            indexes: laid.indexes,
            extents: laid.extents,
            ends,
        })
    }

    /// Bytes in front of the end stamps.
    pub(crate) fn fixed_bytes(&self) -> usize {
        self.ends.offset
    }
}

/// How areas follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    One,
    Two,
}

impl Format {
    /// What new segments have.
    pub(crate) const NEWEST: Format = Format::Two;

    /// As the header has it.
    pub(crate) fn word(self) -> u64 {
        match self {
            Format::One => 1,
            Format::Two => 2,
        }
    }

    pub(crate) fn of(word: u64) -> Option<Format> {
        [Format::One, Format::Two]
            .into_iter()
            .find(|format| format.word() == word)
    }
}

/// What is laid behind the versions.
struct Values<'a> {
    schema: &'a SegmentSchema,
    rows: u32,
    descriptors: &'a [Descriptor],
}

struct Laid {
    attributes: Vec<AttributePlan>,
    indexes: Vec<IndexPlan>,
    extents: Vec<Vec<Range<usize>>>,
}

impl Values<'_> {
    fn lay_by_area(&self, layer: &mut Layer) -> Laid {
        let groups = self.schema.groups();
        let mut codes = vec![CodesAt::Nowhere; self.descriptors.len()];
        let mut extents = Vec::new();
        for group in groups {
            let lay = |layer: &mut Layer| self.lay_codes(group, layer, &mut codes);
            extents.push(vec![layer.span(lay).0]);
        }
        let mut attributes = Vec::new();
        for (at, &codes) in codes.iter().enumerate() {
            let (bytes, mut plan) = layer.span(|layer| self.lay_values(at, codes, layer));
            extents[self.schema.place(at).group].push(bytes);
            plan.bloom = self.lay_bloom(at, layer);
            attributes.push(plan);
        }
        let mut indexes = Vec::new();
        for index in self.schema.indexes() {
            let (row_bytes, bloom_bytes) = index_bytes(index, self.rows);
            let (bytes, rows) = layer.span(|layer| layer.bytes(row_bytes));
            extents.push(vec![bytes]);
            let bloom = layer.bytes(bloom_bytes);
            indexes.push(IndexPlan { rows, bloom });
        }
        Laid {
            attributes,
            indexes,
            extents,
        }
    }

    fn lay_by_extent(&self, layer: &mut Layer) -> Laid {
        let schema = self.schema;
        let blooms: Vec<Bytes> = (0..self.descriptors.len())
            .map(|at| self.lay_bloom(at, layer))
            .collect();
        let sizes = schema.indexes().iter();
        let sizes: Vec<(usize, usize)> = sizes.map(|index| index_bytes(index, self.rows)).collect();
        let mut indexes: Vec<IndexPlan> = sizes
            .iter()
            .map(|&(_, bloom_bytes)| IndexPlan {
                rows: Bytes::default(),
                bloom: layer.bytes(bloom_bytes),
            })
            .collect();
        let mut attributes: Vec<Option<AttributePlan>> = vec![None; self.descriptors.len()];
        let groups = schema.groups();
        let count = groups.len() + indexes.len();
        let mut extents = vec![Vec::new(); count];
        let mut lay = |at: usize, layer: &mut Layer| match groups.get(at) {
            Some(group) => {
                let mut codes = vec![CodesAt::Nowhere; self.descriptors.len()];
                self.lay_codes(group, layer, &mut codes);
                for &one in group {
                    let plan = self.lay_values(one, codes[one], layer);
                    let bloom = blooms[one];
                    attributes[one] = Some(AttributePlan { bloom, ..plan });
                }
            }
            None => {
                let at = at - groups.len();
                indexes[at].rows = layer.bytes(sizes[at].0);
            }
        };
        // How large one is, the way it will be laid.
        let is_large: Vec<bool> = (0..count)
            .map(|at| {
                let mut alone = Layer(0);
                lay(at, &mut alone);
                alone.0 >= EXTENT_BYTES_MIN
            })
            .collect();
        for at in (0..count).filter(|&at| !is_large[at]) {
            extents[at] = vec![layer.span(|layer| lay(at, layer)).0];
        }
        for at in (0..count).filter(|&at| is_large[at]) {
            layer.begin_page();
            extents[at] = vec![
                layer
                    .span(|layer| {
                        lay(at, layer);
                        layer.begin_page();
                    })
                    .0,
            ];
        }
        Laid {
            attributes: attributes.into_iter().flatten().collect(),
            indexes,
            extents,
        }
    }

    fn lay_codes(&self, group: &[usize], layer: &mut Layer, codes: &mut [CodesAt]) {
        let (schema, rows) = (self.schema, self.rows as usize);
        plan_group(schema, group, rows, self.descriptors, layer, codes);
    }

    fn lay_values(&self, at: usize, codes: CodesAt, layer: &mut Layer) -> AttributePlan {
        let (physical, descriptor) = (self.schema.physical(at), self.descriptors[at]);
        plan_attribute(physical, self.rows, descriptor, codes, layer)
    }

    fn lay_bloom(&self, at: usize, layer: &mut Layer) -> Bytes {
        layer.bytes(self.descriptors[at].bloom_lines as usize * REGION_ALIGN)
    }
}

fn plan_group(
    schema: &SegmentSchema,
    group: &[usize],
    rows: usize,
    descriptors: &[Descriptor],
    layer: &mut Layer,
    codes: &mut [CodesAt],
) {
    if let [only] = *group {
        codes[only] = plan_column(schema.physical(only), rows, &descriptors[only], layer);
        return;
    }
    let is_plain = |at: &usize| descriptors[*at].kind == EncodingKind::Plain;
    let width = |at: usize| schema.physical(at).width();
    let slots_bytes: usize = group.iter().copied().filter(is_plain).map(width).sum();
    let bits: usize = group.iter().map(|&at| descriptors[at].width as usize).sum();
    let stride = slots_bytes + bits.div_ceil(8);
    let slack = if stride > 0 { TUPLE_SLACK_BYTES } else { 0 };
    let tuples = layer.bytes(rows * stride + slack);
    let (mut offset, mut bit) = (0, slots_bytes * 8);
    for &at in group {
        match descriptors[at].kind {
            EncodingKind::Plain => {
                codes[at] = CodesAt::Slots {
                    tuples,
                    stride,
                    offset,
                };
                offset += width(at);
            }
            EncodingKind::Frame | EncodingKind::Sorted => {
                codes[at] = CodesAt::Tuples {
                    tuples,
                    stride,
                    bit,
                };
                bit += descriptors[at].width as usize;
            }
            EncodingKind::RowOrder => {}
        }
    }
}

fn plan_column(
    physical: Physical,
    rows: usize,
    descriptor: &Descriptor,
    layer: &mut Layer,
) -> CodesAt {
    match (descriptor.kind, descriptor.runs) {
        (EncodingKind::RowOrder, _) => CodesAt::Nowhere,
        (EncodingKind::Plain, _) => {
            let stride = physical.width();
            let tuples = layer.bytes(rows * stride);
            CodesAt::Slots {
                tuples,
                stride,
                offset: 0,
            }
        }
        (_, Some(runs)) => CodesAt::Runs {
            // A whole number of blocks, so that a block of rows is a block of bits.
            starts: layer.bytes(rows.div_ceil(RANK_ROWS) * RANK_ROWS / 8),
            ranks: layer.bytes(rows.div_ceil(RANK_ROWS) * 4),
            codes: layer.bytes(packed_bytes(runs as usize, descriptor.width)),
        },
        (_, None) => CodesAt::Packed(layer.bytes(packed_bytes(rows, descriptor.width))),
    }
}

/// All of an attribute but its Bloom filter.
fn plan_attribute(
    physical: Physical,
    rows: u32,
    descriptor: Descriptor,
    codes: CodesAt,
    layer: &mut Layer,
) -> AttributePlan {
    let entries = descriptor.entries as usize;
    let strings = physical == Physical::Variable;
    let has_strings = strings && entries > 0;
    let offsets_bytes = packed_bytes(entries + 1, offset_width(descriptor.heap_bytes));
    AttributePlan {
        descriptor,
        codes,
        values: layer.bytes(if strings {
            0
        } else {
            entries * physical.width()
        }),
        offsets: layer.bytes(if has_strings { offsets_bytes } else { 0 }),
        heap: layer.bytes(descriptor.heap_bytes as usize),
        nulls: layer.words(if descriptor.nulls {
            null_words(rows)
        } else {
            0
        }),
        bloom: Bytes::default(),
    }
}

/// Bytes of an index: of the row numbers, and of the Bloom filter.
pub(crate) fn index_bytes(index: &IndexSpec, rows: u32) -> (usize, usize) {
    let bloom = if index.has_bloom() && rows >= INDEX_BLOOM_ROWS_MIN {
        bloom::lines_for(rows as usize) * REGION_ALIGN
    } else {
        0
    };
    (packed_bytes(rows as usize, row_width(rows)), bloom)
}

/// Bits of a row number.
pub(crate) fn row_width(rows: u32) -> u32 {
    width_of(u64::from(rows.saturating_sub(1)))
}
