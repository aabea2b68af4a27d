//! The segment as a whole: how one comes to be, is written, sealed and attached.
//!
//! ```text
//!  append ──► segment ──► format: hot     bytes ──seal──► bytes elsewhere ──attach──► segment
//!     │               └──► frozen
//!     └──► touched: which pages an append adds to those in use
//! ```
//!
//! The room uses all below it: `frozen`, `secondary`, `input`, `format`, `kernel`. Reading rows is
//! left to `scan`.

pub(crate) mod append;
pub(crate) mod seal;
pub(crate) mod segment;
mod touched;
