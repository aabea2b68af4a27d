//! The segment: a position-independent arena of at most 32 MiB that holds everything about its
//! rows, so that the same bytes serve in memory, on disk, on the wire and in another machine's
//! memory.
//!
//! ```text
//!            ┌──────────────────────────────── arena ────────────────────────────────┐
//!  row  7 →  │ header │ (a,b) │ (c) │ … │ nulls │ index │ zones │ versions │  heap → │
//!            └──────────────────────────────────────────────────────────────────────-┘
//!                         ▲ a tuple of attribute group (a,b)
//! ```
//!
//! * **Attribute groups** ([`SegmentSchema`]): a group's tuples are packed one after the other,
//!   fixed stride, no padding. One group of all attributes is a row store, one group per
//!   attribute a column store. `plan` draws the layout.
//! * **Variable attributes** have an eight-byte slot: up to seven bytes inline, longer values in
//!   the heap, equal ones stored once (`intern`).
//! * **Versions**: a begin and an end stamp per row (`versions`, [`stamp`]).
//! * **Key index**: hash cells next to the rows, all versions of a key (`index`); keys are
//!   memcomparable bytes ([`key`]).
//! * **Secondary indexes**: hash chains and skip lists over row numbers; for frozen rows their
//!   order (`secondary`).
//! * **Zone maps** per 8,192-row vector ([`Zone`]).
//!
//! A scan goes vector by vector: zones decide whether to look at it at all
//! ([`Predicate::may_match`]), [`Segment::select_seen`] makes a [`Selection`], [`Pinned::keep`]
//! narrows it, [`Segment::keep_seen`] removes ended rows, [`Pinned::gather`] makes Arrow arrays.
//! A join asks for the rows whose foreign keys are in a [`LookupTable`], and for the keys' codes
//! ([`Probe`]). A statement by key reads single rows: [`Pinned::find`], then
//! [`Pinned::read_row`].
//!
//! Invariants:
//! * A segment holds no pointers. Its plan follows from schema, size and capacity.
//! * Values of published rows never change; the parts that change after publication (stamps,
//!   zones, index, bitmap words) are only ever accessed as atomics.
//! * Readers take no lock. One writer at a time holds the latch.
//! * Keys and values are read through a [`Pinned`], which keeps them in memory; stamps, zones and
//!   counts of a [`Segment`] without one. What the memory is charged to goes with the last pin.
//! * Of a frozen segment, groups and indexes that nobody has pinned can be evicted, and read back in
//!   place ([`SegmentBody::read_back`]); where from is the caller's matter.
//! * Unsafe code is in `kernel` (`plain`, `simd`), `format` (`arena`, `region`), `frozen`
//!   (`arena`, `pages`) and `scan::buffer`, nowhere else.
//! * A frozen segment ([`FrozenImage`], `frozen`) holds encoded rows in key order: it is read
//!   like any other and takes no new rows; only its end stamps change.
//!
//! The rooms are folders, one for each activity; each uses those below it and none above:
//!
//! ```text
//!  scan        filters, lookups by key and index, gathering
//!  body        the segment as a whole: appending, sealing, attaching
//!  frozen      the frozen form, its encodings
//!  secondary   secondary indexes
//!  input       values, keys, literals, conditions: what callers hand in
//!  format      the hot form's arena, and each of its areas
//!  kernel      loops over plain values, selections, hashes        error: known to all
//! ```
//!
//! The crate decides neither who may see which stamp (`aerostat-txn`) nor what is durable
//! (`aerostat-storage`).
#![deny(clippy::undocumented_unsafe_blocks)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

#[cfg(all(test, not(loom)))]
extern crate self as aerostat_segment;
#[cfg(all(test, not(loom)))]
#[path = "../tests/model/mod.rs"]
mod model;

mod body;
mod error;
#[doc(hidden)]
pub mod forge;
mod format;
mod frozen;
mod input;
mod kernel;
#[cfg(all(test, loom))]
mod loom_tests;
mod scan;
mod secondary;

pub use body::{
    append::{Appended, SegmentWriter},
    segment::{
        Segment, SegmentMemory,
        forward::Forwarding,
        pinned::{Pinned, SegmentBody},
    },
};
pub use error::SegmentError;
pub use format::{
    encoding::{AttributeEncoding, Encoding},
    region::{HeapRegion, REGION_ALIGN, Region},
    schema::{AttributeSpec, IndexSpec, SegmentSchema},
    stamp,
    versions::Seen,
    zone::Zone,
};
pub use frozen::{
    FrozenFacts, FrozenImage,
    extents::{ExtentSet, Wanted},
    pages::{Charge, Pieces},
};
pub use input::{
    condition::{Condition, Probe},
    key::{self, Key, KeyRef, Keys},
    literal::{CompareOp, Literal},
    lookup::{DuplicateKey, LookupTable},
    predicate::Predicate,
    source::NewRows,
    value::ValueRef,
};
pub use kernel::selection::Selection;
pub use secondary::search::{IndexSearch, KeySpan};

/// The largest arena: large enough that a 6,000,000-row table is some twenty
/// segments, small enough to move in 30 ms at 10 Gbit/s, and 16 huge pages.
pub const ARENA_BYTES_MAX: usize = 32 << 20;

/// Rows of a version block: 1,024 stamps are 8 KiB, two whole pages, so a block that
/// varies costs exactly its own.
pub const BLOCK_ROWS: u32 = 1024;

/// Rows of a vector, the unit of zone maps and of scans: DataFusion's batch size, and
/// eight version blocks.
pub const VECTOR_ROWS: u32 = 8192;

/// No segment has more rows: even without attributes a row reserves 16 bytes for its
/// stamps, so 32 MiB hold fewer than 2^21.
pub const ROWS_MAX: u32 = (ARENA_BYTES_MAX / 16) as u32 - 1;
