//! The types in which callers describe rows: values to take in, keys and literals to look for,
//! conditions.
//!
//! ```text
//!  value ◄── source     rows that a segment takes
//!               ▲
//!              key      key attributes as bytes in order
//!               ▼
//!            literal ◄── predicate ◄── condition ──► lookup    what is asked of a row, and
//!                                                              tested on its codes
//! ```
//!
//! The room uses `format` for schemas and slots, and `kernel`. Hot and frozen segments are read
//! by the rooms above.

pub(crate) mod condition;
pub mod key;
pub(crate) mod literal;
pub(crate) mod lookup;
pub(crate) mod predicate;
pub(crate) mod source;
pub(crate) mod value;
