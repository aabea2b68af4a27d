//! The arena of a hot segment: which bytes are what, and each area's reader and writer.
//!
//! ```text
//!  schema ──► plan ──► arena over a region
//!              │
//!              └─ header │ groups │ nulls │ index, chain, skip │ zones │ versions │ heap (intern)
//! ```
//!
//! `stamp` defines the numbers in `versions`, `footprint` which pages are in use, `encoding` what
//! an attribute takes. The parts that hot and frozen segments share (`header`, `nulls`,
//! `versions`, `zone`) are read here for both. The room uses `kernel` and `error`.

pub(crate) mod arena;
pub(crate) mod chain;
pub(crate) mod encoding;
pub(crate) mod footprint;
pub(crate) mod header;
pub(crate) mod index;
pub(crate) mod intern;
#[cfg(loom)]
pub(crate) mod modelled;
pub(crate) mod nulls;
pub(crate) mod plan;
pub(crate) mod region;
pub(crate) mod schema;
pub(crate) mod skip;
pub mod stamp;
pub(crate) mod versions;
pub(crate) mod zone;
