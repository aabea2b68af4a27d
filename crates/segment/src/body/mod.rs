//! The segment as a whole: creating, writing, sealing and attaching it.
//!
//! ```text
//!  append ──► segment ──► format: hot     bytes ──seal──► bytes elsewhere ──attach──► segment
//!     │               └──► frozen
//!     └──► touched: which pages an append adds to those in use
//!
//!  segment/pinned: whose values are in memory, and what they are charged to
//! ```
//!
//! The room uses all rooms below it: `frozen`, `secondary`, `input`, `format`, `kernel`. Reading
//! rows is left to `scan`.

pub(crate) mod append;
pub(crate) mod seal;
pub(crate) mod segment;
mod touched;
