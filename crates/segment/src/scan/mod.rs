//! Reading a segment: which rows, then their values.
//!
//! ```text
//!  filter, probe    a vector's rows ─► those that satisfy a condition ─┐
//!  by_index         rows by a secondary index ─────────────────────────┼─► gather   Arrow arrays
//!  read             one row by its key, as plain values                │     └─► buffer: no copy
//! ```
//!
//! Each reads both forms of a segment: hot by `format`, frozen by `frozen`. No other room of the
//! crate uses this one.

mod buffer;
mod by_index;
mod filter;
mod gather;
mod probe;
mod read;
