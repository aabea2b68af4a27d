//! The segment: a position-independent arena of at most 32 MiB that holds
//! everything about its rows, so that the same bytes serve in memory, on disk, on
//! the wire and in another machine's memory.
//!
//! ```text
//!            ┌──────────────────────────────── arena ────────────────────────────────┐
//!  row  7 →  │ header │ (a,b) │ (c) │ … │ nulls │ index │ zones │ versions │  heap → │
//!            └──────────────────────────────────────────────────────────────────────-┘
//!                         ▲ a tuple of attribute group (a,b)
//! ```
//!
//! * **Attribute groups** ([`SegmentSchema`]): a group's tuples are packed one
//!   after the other, fixed stride, no padding. One group of all attributes is a
//!   row store, one group per attribute a column store. `plan` draws the layout.
//! * **Variable attributes** have an eight-byte slot: up to seven bytes inline,
//!   longer values in the heap, equal ones stored once (`intern`).
//! * **Versions**: a begin and an end stamp per row (`versions`, [`stamp`]).
//! * **Key index**: hash cells next to the rows, all versions of a key (`index`);
//!   keys are memcomparable bytes ([`key`]).
//! * **Secondary indexes**: hash chains and skip lists over row numbers, of frozen rows
//!   their order (`secondary`).
//! * **Zone maps** per 8,192-row vector ([`Zone`]).
//!
//! A scan goes vector by vector: zones decide whether to look at all
//! ([`Predicate::may_match`]), [`Segment::select_seen`] makes a [`Selection`],
//! [`Segment::keep`] narrows it, [`Segment::keep_seen`] takes out what has ended,
//! [`Segment::gather`] makes Arrow arrays. A join asks for
//! the rows whose foreign keys are in a [`LookupTable`], and for the keys' codes ([`Probe`]).
//! A statement by key takes single rows: [`Segment::find`], then [`Segment::read_row`].
//!
//! Invariants:
//! * A segment holds no pointers. Its plan follows from schema, size and capacity.
//! * Values of published rows never change; what changes after publication
//!   (stamps, zones, index, bitmap words) is only ever accessed as atomics.
//! * Readers take no lock. One writer at a time holds the latch.
//! * Unsafe code is in `arena`, `buffer`, `plain`, `region`, `simd` and `frozen::arena`,
//!   nowhere else.
//! * A frozen segment ([`FrozenImage`], `frozen`) holds encoded rows in key order: it
//!   is read as any other and takes none; only its end stamps change.
//!
//! Who may see which stamp, and what is durable, is for others to say.
#![deny(clippy::undocumented_unsafe_blocks)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

#[cfg(test)]
extern crate self as aerostat_segment;
#[cfg(test)]
#[path = "../tests/model/mod.rs"]
mod model;

mod append;
mod arena;
mod buffer;
mod by_index;
mod chain;
mod condition;
mod encoding;
mod error;
mod filter;
mod footprint;
#[doc(hidden)]
pub mod forge;
mod frozen;
mod gather;
mod hash;
mod header;
mod index;
mod intern;
pub mod key;
mod lane;
mod literal;
mod lookup;
mod nulls;
mod order;
mod plain;
mod plan;
mod predicate;
mod probe;
mod read;
mod region;
mod schema;
mod seal;
mod secondary;
mod segment;
mod selection;
mod simd;
mod skip;
mod source;
pub mod stamp;
mod touched;
mod value;
mod versions;
mod zone;

pub use append::{Appended, SegmentWriter};
pub use condition::{Condition, Probe};
pub use encoding::{AttributeEncoding, Encoding};
pub use error::SegmentError;
pub use frozen::{FrozenFacts, FrozenImage};
pub use key::{Key, KeyRef, Keys};
pub use literal::{CompareOp, Literal};
pub use lookup::{DuplicateKey, LookupTable};
pub use predicate::Predicate;
pub use region::{HeapRegion, REGION_ALIGN, Region};
pub use schema::{AttributeSpec, IndexSpec, SegmentSchema};
pub use secondary::search::{IndexSearch, KeySpan};
pub use segment::{Segment, forward::Forwarding};
pub use selection::Selection;
pub use source::NewRows;
pub use value::ValueRef;
pub use versions::Seen;
pub use zone::Zone;

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
