//! The frozen form of a segment: encoded, immutable except for end stamps, and exactly as large
//! as it needs to be. `plan` draws the arena.
//!
//! * **Encodings** (`encode` chooses, by size): frame of reference, sorted dictionary, strings in
//!   order of rows, values as they are. Codes of the first two keep the order of values, so that
//!   a predicate becomes a range or a set of codes (`filter`), translated once per call.
//! * **Codes** (`codes`) of an attribute alone in its group are bit-packed (`pack`), or stored
//!   per run where neighbours mostly repeat; those of a larger group are interleaved, a tuple of
//!   bits per row.
//! * **Order.** Rows are in key order, all versions of a key adjacent: a key is found by binary
//!   search over codes (`find`), without an index. A secondary index is the row numbers in the
//!   order of its keys (`sorted`).
//! * **Versions.** All rows have one begin stamp, which every existing snapshot may see. End
//!   stamps work as in a hot segment.
//!
//! When to freeze, and what a table does with writes to frozen rows, is decided elsewhere
//! (`aerostat-storage`).

mod arena;
pub(crate) mod bits;
mod blocks;
mod bloom;
mod codes;
mod distinct;
mod encode;
mod encoded;
pub(crate) mod extents;
mod filter;
mod find;
mod lanes;
#[cfg(all(test, loom))]
mod loom_tests;
pub(crate) mod pack;
pub(crate) mod pages;
mod plan;
mod probe;
mod read;
mod scalars;
mod seal;
mod search;
mod sorted;
mod strings;
mod texts;

use std::{ops::Range, sync::Arc};

use aerostat_sync::{AtomicU32, AtomicU64, MutexGuard, OnceLock, Ordering};
use aerostat_types::{Physical, SegmentNo, TableId};

use crate::{
    AttributeEncoding, BLOCK_ROWS, Encoding, Region, SegmentError, SegmentSchema, Selection, Zone,
    format::{
        header,
        nulls::Nulls,
        versions::{Ended, Side, Versions},
        zone,
    },
    frozen::{
        arena::FrozenArena,
        bits::Fixed,
        codes::{Codes, Runs, Tuples},
        pack::{Lanes, Packed},
        pages::{Current, HeldGuard, Pages},
        plan::{AttributePlan, CodesAt, Descriptor, EncodingKind, FrozenPlan, offset_width},
        strings::Strings,
    },
    kernel::plain::{Plain, Slots},
};

pub use encode::{FrozenFacts, FrozenImage};
pub(crate) use find::{find, key_of};

/// A frozen segment's arena and what reads it.
pub(crate) struct Frozen {
    arena: Arc<FrozenArena>,
    /// Before the extents, which give nothing up where the arena goes with them.
    pages: Arc<Pages>,
    held: Current,
    schema: Arc<SegmentSchema>,
    /// Version blocks whose rows have end stamps of their own. Changes under the latch.
    varying: AtomicU32,
    /// Which rows have one; made when the first block varies. It follows from the stamps, so
    /// it is no part of the arena.
    ended: OnceLock<Box<[AtomicU64]>>,
}

/// How an attribute's values come from its codes.
pub(crate) enum Values<'a> {
    /// Base + code.
    Frame { base: i128 },
    /// Sorted values of a fixed width.
    Fixed(&'a [u8]),
    /// Sorted strings.
    Sorted(Strings<'a>),
    /// A string per row.
    RowOrder(Strings<'a>),
    /// Slots.
    Plain,
}

/// An attribute.
pub(crate) struct Column<'a> {
    pub(crate) physical: Physical,
    pub(crate) values: Values<'a>,
    pub(crate) codes: Option<Codes<'a>>,
    /// One more than the greatest code that there may be.
    pub(crate) codes_end: u128,
}

impl Frozen {
    fn of(arena: FrozenArena, schema: Arc<SegmentSchema>) -> Frozen {
        let arena = Arc::new(arena);
        let (pages, held) = Pages::new(Arc::clone(&arena));
        Frozen {
            arena,
            pages,
            held,
            schema,
            varying: AtomicU32::new(0),
            ended: OnceLock::new(),
        }
    }

    /// The segment that an image describes, in a region that is zeroed.
    pub(crate) fn create(
        mut region: Box<dyn Region>,
        schema: Arc<SegmentSchema>,
        image: FrozenImage,
    ) -> Frozen {
        let (plan, parts) = image.into_parts();
        arena::write(&mut region, &parts);
        Frozen::of(FrozenArena::new(region, plan), schema)
    }

    /// See [`crate::Segment::attach`].
    pub(crate) fn open(
        region: Box<dyn Region>,
        schema: Arc<SegmentSchema>,
    ) -> Result<Frozen, SegmentError> {
        seal::open(region, schema)
    }

    /// See [`crate::Segment::attach_frozen`].
    pub(crate) fn open_bytes(
        mut region: Box<dyn Region>,
        bytes: Vec<u8>,
        schema: Arc<SegmentSchema>,
        no: SegmentNo,
    ) -> Result<Frozen, SegmentError> {
        if bytes.len() > region.bytes() {
            return Err(SegmentError::Corrupt("more bytes than its arena has"));
        }
        let length = bytes.len();
        arena::write(&mut region, &[(0, length, bytes)]);
        let frozen = seal::open(region, schema)?;
        // Bytes that are missing may be zeros, and more of them would be end stamps.
        if length != frozen.plan().fixed_bytes() {
            return Err(SegmentError::Corrupt(
                "more or fewer bytes than it was made of",
            ));
        }
        frozen.break_seal();
        let (table, _) = frozen.identity();
        let identity = u64::from(table.0) << 32 | u64::from(no.0);
        frozen.header()[header::IDENTITY].store(identity, Ordering::Relaxed);
        Ok(frozen)
    }

    /// See [`crate::Pinned::frozen_bytes`].
    pub(crate) fn bytes_as_made(&self) -> Vec<u8> {
        seal::bytes_as_made(self)
    }

    /// See [`crate::forge`].
    pub(crate) fn checksum_in(region: Box<dyn Region>, schema: Arc<SegmentSchema>) -> Option<u64> {
        seal::checksum_in(region, schema)
    }

    /// Whether sealed bytes begin as a frozen segment does.
    pub(crate) fn is_at(region: &dyn Region) -> bool {
        arena::first_words(region, 1).is_some_and(|words| words[0] == seal::MAGIC)
    }

    pub(crate) fn seal(&self) {
        seal::seal(self);
    }

    pub(crate) fn break_seal(&self) {
        let sealed = &self.header()[header::SEALED];
        if sealed.load(Ordering::Relaxed) != 0 {
            sealed.store(0, Ordering::Release);
        }
    }

    pub(crate) fn schema(&self) -> &Arc<SegmentSchema> {
        &self.schema
    }

    pub(crate) fn latch(&self) -> MutexGuard<'_, ()> {
        self.arena.latch.lock()
    }

    pub(crate) fn rows(&self) -> u32 {
        self.plan().rows
    }

    pub(crate) fn arena_bytes(&self) -> usize {
        self.plan().arena_bytes
    }

    pub(crate) fn identity(&self) -> (TableId, SegmentNo) {
        let identity = self.header()[header::IDENTITY].load(Ordering::Relaxed);
        (TableId((identity >> 32) as u32), SegmentNo(identity as u32))
    }

    /// Heap that a hot segment with the same rows uses, if it stores equal strings once.
    pub(crate) fn hot_heap_bytes(&self) -> usize {
        let attributes = self.plan().attributes.iter();
        attributes.map(|at| at.descriptor.heap_bytes as usize).sum()
    }

    /// The extents that are in memory now, for as long as this is held.
    #[inline]
    pub(crate) fn held(&self) -> HeldGuard {
        self.held.load()
    }

    pub(crate) fn pages(&self) -> &Arc<Pages> {
        &self.pages
    }

    pub(crate) fn current(&self) -> &Current {
        &self.held
    }

    /// Bytes in use: everything but the end stamps, and the stamps of blocks that vary;
    /// in whole pages at the end only. What was evicted is not among them.
    pub(crate) fn footprint_bytes(&self) -> u64 {
        let (absent, _) = self.pages.absent();
        self.bytes_when_whole().saturating_sub(absent)
    }

    /// What cannot be evicted of what is in use.
    pub(crate) fn footprint_bytes_of_front(&self) -> u64 {
        (self.bytes_when_whole()).saturating_sub(self.pages.bytes_of_all())
    }

    fn bytes_when_whole(&self) -> u64 {
        const PAGE_BYTES: usize = 4096;
        let fixed = self.plan().fixed_bytes().next_multiple_of(PAGE_BYTES);
        let blocks = self.varying.load(Ordering::Relaxed) as usize;
        // A block's stamps begin anywhere in a page, so neighbours share one.
        let stamps = blocks * BLOCK_ROWS as usize * 8 + PAGE_BYTES * usize::from(blocks > 0);
        let arena = (fixed + stamps).min(self.arena_bytes().next_multiple_of(PAGE_BYTES));
        let ended = self.ended.get().map_or(0, |_| self.ended_bytes());
        (arena + ended) as u64
    }

    /// How much of the footprint is indexes, and how much is stamps and their summaries.
    pub(crate) fn indexes_and_versions(&self) -> (u64, u64) {
        let plan = self.plan();
        let indexes = plan.indexes.iter();
        let indexes: usize = indexes.map(|at| at.rows.bytes + at.bloom.bytes).sum();
        let blocks = self.varying.load(Ordering::Relaxed) as usize;
        let stamps = blocks * BLOCK_ROWS as usize * 8 + plan.versions.words * 8;
        let ended = self.ended.get().map_or(0, |_| self.ended_bytes());
        let indexes = (indexes as u64).saturating_sub(self.pages.absent().1);
        (indexes, (stamps + ended) as u64)
    }

    /// What noting which rows have ended takes, from the first such row on.
    pub(crate) fn ended_bytes(&self) -> usize {
        Ended::words(self.rows()) * 8
    }

    /// Stamps rows as ended. The caller holds the latch.
    pub(crate) fn set_ends(&self, rows: Range<u32>, stamp: u64) {
        self.ended.get_or_init(|| self.no_ended());
        let blocks = rows.start / BLOCK_ROWS..rows.end.div_ceil(BLOCK_ROWS);
        let before = self.varying_of(blocks.clone());
        self.versions().assign(Side::End, rows, stamp, self.rows());
        let varying = self.varying.load(Ordering::Relaxed) + self.varying_of(blocks) - before;
        self.varying.store(varying, Ordering::Relaxed);
    }

    /// Counts the blocks that vary and notes which of their rows have ended, of a segment
    /// that nobody else has yet.
    pub(crate) fn count_varying(&self) {
        let varying = self.varying_of(0..self.rows().div_ceil(BLOCK_ROWS));
        self.varying.store(varying, Ordering::Relaxed);
        if varying > 0 {
            let words = self.ended.get_or_init(|| self.no_ended());
            let note = &mut |row, _| Ended(words).set(row..row + 1, true);
            self.versions().each_end(0..self.rows(), note);
        }
    }

    fn no_ended(&self) -> Box<[AtomicU64]> {
        let words = 0..Ended::words(self.rows());
        words.map(|_| AtomicU64::new(0)).collect()
    }

    fn varying_of(&self, blocks: Range<u32>) -> u32 {
        let versions = self.versions();
        let varies = |block: &u32| versions.varies(Side::End, *block);
        blocks.filter(varies).count() as u32
    }

    pub(crate) fn versions(&self) -> Versions<'_> {
        let plan = self.plan();
        let ended = self.ended.get().map_or(&[][..], |words| words);
        Versions::of_ends(
            self.arena.words(plan.versions),
            self.arena.words(plan.ends),
            Ended(ended),
        )
    }

    pub(crate) fn zone(&self, vector: u32, attribute: usize) -> Zone {
        zone::of_words(
            &self.schema,
            self.arena.words(self.plan().zones),
            vector,
            attribute,
        )
    }

    /// The bitmap, if there may be a NULL in a vector that the selection touches.
    pub(crate) fn nulls_within(
        &self,
        attribute: usize,
        selection: &Selection,
    ) -> Option<Nulls<'_>> {
        let nulls = self.attribute(attribute).nulls;
        if nulls.words == 0 {
            return None;
        }
        let zone_has_nulls = |vector| self.zone(vector, attribute).nulls;
        Nulls::new(self.arena.words(nulls)).where_any(selection, zone_has_nulls)
    }

    /// Whether an attribute is NULL in a row.
    pub(crate) fn is_null(&self, attribute: usize, row: u32) -> bool {
        let nulls = self.attribute(attribute).nulls;
        nulls.words > 0 && Nulls::new(self.arena.words(nulls)).is_null(row)
    }

    /// Whether values are in slots, as a hot segment's.
    pub(crate) fn is_plain(&self, attribute: usize) -> bool {
        self.attribute(attribute).descriptor.kind == EncodingKind::Plain
    }

    /// The slots of a plain attribute.
    ///
    /// # Panics
    /// When it is encoded.
    pub(crate) fn slots<T: Plain>(&self, attribute: usize) -> Slots<'_, T> {
        assert_eq!(
            size_of::<T>(),
            self.schema.physical(attribute).width(),
            "the slot's own type"
        );
        match self.attribute(attribute).codes {
            CodesAt::Slots {
                tuples,
                stride,
                offset,
            } => self.arena.slots(tuples, stride, offset),
            codes => unreachable!("encoded attributes are read through their codes: {codes:?}"),
        }
    }

    /// The strings of a dictionary, as the bytes they lie in.
    pub(crate) fn heap(&self, attribute: usize) -> &[u8] {
        self.arena.bytes(self.attribute(attribute).heap)
    }

    /// See [`crate::Segment::encoding`].
    pub(crate) fn encoding(&self, attribute: usize) -> AttributeEncoding {
        let at = self.attribute(attribute);
        let Descriptor {
            kind,
            width,
            runs,
            entries,
            ..
        } = at.descriptor;
        let (rows, slot_bytes) = (
            u64::from(self.rows()),
            self.schema.physical(attribute).width(),
        );
        let code_bits = match kind {
            EncodingKind::Plain => slot_bytes as u32 * 8,
            EncodingKind::Frame | EncodingKind::Sorted | EncodingKind::RowOrder => width,
        };
        let codes = match at.codes {
            CodesAt::Nowhere => 0,
            CodesAt::Packed(codes) => codes.bytes as u64,
            CodesAt::Runs {
                starts,
                ranks,
                codes,
            } => (starts.bytes + ranks.bytes + codes.bytes) as u64,
            // Its share of the tuples.
            CodesAt::Tuples { .. } | CodesAt::Slots { .. } => {
                (rows * u64::from(code_bits)).div_ceil(8)
            }
        };
        let others = [at.values, at.offsets, at.heap, at.bloom].map(|area| area.bytes);
        AttributeEncoding {
            encoding: match kind {
                EncodingKind::Frame | EncodingKind::Sorted if width == 0 => Encoding::Constant,
                EncodingKind::Frame => Encoding::Frame,
                EncodingKind::Sorted => Encoding::Dictionary,
                EncodingKind::RowOrder => Encoding::Strings,
                EncodingKind::Plain => Encoding::Plain,
            },
            code_bits,
            runs,
            entries,
            bytes: codes + (others.iter().sum::<usize>() + at.nulls.words * 8) as u64,
        }
    }

    /// The codes of an attribute, if it has any.
    #[inline]
    fn codes(&self, at: &AttributePlan) -> Option<Codes<'_>> {
        let width = at.descriptor.width;
        match at.codes {
            CodesAt::Nowhere | CodesAt::Slots { .. } => None,
            // Codes without bits are nowhere, not even in tuples.
            CodesAt::Tuples { .. } if width == 0 => {
                Some(Codes::Packed(Packed::new(0, Lanes::None)))
            }
            CodesAt::Packed(codes) => Some(Codes::Packed(self.arena.packed(codes, width))),
            CodesAt::Runs { .. } => self.runs(at).map(Codes::Runs),
            CodesAt::Tuples {
                tuples,
                stride,
                bit,
            } => {
                let bytes = self.arena.bytes(tuples);
                Some(Codes::Tuples(Tuples {
                    bytes,
                    stride,
                    bit,
                    width,
                }))
            }
        }
    }

    /// The runs of an attribute, if its codes are kept per run.
    #[inline]
    fn runs(&self, at: &AttributePlan) -> Option<Runs<'_>> {
        let CodesAt::Runs {
            starts,
            ranks,
            codes,
        } = at.codes
        else {
            return None;
        };
        Some(Runs {
            starts: self.arena.values(starts),
            ranks: self.arena.values(ranks),
            codes: self.arena.packed(codes, at.descriptor.width),
        })
    }

    /// The strings of an attribute's dictionary.
    #[inline]
    fn strings(&self, at: &AttributePlan) -> Strings<'_> {
        Strings {
            offsets: self
                .arena
                .packed(at.offsets, offset_width(at.descriptor.heap_bytes)),
            heap: self.arena.bytes(at.heap),
            len: at.descriptor.entries as usize,
        }
    }

    pub(crate) fn column(&self, attribute: usize) -> Column<'_> {
        let at = self.attribute(attribute);
        let width = at.descriptor.width;
        let physical = self.schema.physical(attribute);
        let values = match at.descriptor.kind {
            EncodingKind::Frame => Values::Frame {
                base: at.descriptor.base,
            },
            EncodingKind::Sorted if physical == Physical::Variable => {
                Values::Sorted(self.strings(at))
            }
            EncodingKind::Sorted => Values::Fixed(self.arena.bytes(at.values)),
            EncodingKind::RowOrder => Values::RowOrder(self.strings(at)),
            EncodingKind::Plain => Values::Plain,
        };
        let codes_end = match at.descriptor.kind {
            EncodingKind::Frame => 1 << width,
            _ => at.descriptor.entries.into(),
        };
        Column {
            physical,
            values,
            codes: self.codes(at),
            codes_end,
        }
    }

    fn header(&self) -> &[AtomicU64] {
        self.arena.words(self.plan().header)
    }

    fn plan(&self) -> &FrozenPlan {
        self.arena.plan()
    }

    fn attribute(&self, attribute: usize) -> &AttributePlan {
        &self.plan().attributes[attribute]
    }
}

impl<'a> Column<'a> {
    /// The code of a row; the row itself where there are none.
    pub(crate) fn code(&self, row: u32) -> u64 {
        self.codes
            .as_ref()
            .map_or(row.into(), |codes| codes.get(row))
    }

    /// The value that a code stands for. A dictionary without values, all of whose rows
    /// are NULL, gives what a slot under NULL holds.
    #[inline]
    pub(crate) fn fixed<T: Fixed>(&self, code: u64) -> T {
        match self.values {
            Values::Frame { base } => T::from_code(base, code),
            Values::Fixed(values) => T::from_bytes(values, code as usize),
            _ => unreachable!("strings and slots have no fixed-width dictionary"),
        }
    }

    /// The bytes that a code stands for.
    pub(crate) fn string(&self, code: u64) -> &'a [u8] {
        match &self.values {
            Values::Sorted(strings) | Values::RowOrder(strings) => strings.get(code as usize),
            _ => unreachable!("a string attribute"),
        }
    }
}
