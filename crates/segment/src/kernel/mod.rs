//! Plain values, the loops over them, and the rows that these leave.
//!
//! ```text
//!  selection ──► simd ──► plain ◄── lane      the integers that codes are packed in
//!  the rows      loops,     ▲
//!  that are      for each   └────── order ──► hash
//!  left          machine            how values rank
//! ```
//!
//! `plain` reads values of types that any bytes are a value of. Nothing here knows of an arena or
//! a schema; the room uses no other.

pub(crate) mod hash;
pub(crate) mod lane;
pub(crate) mod order;
pub(crate) mod plain;
pub(crate) mod selection;
pub(crate) mod simd;
