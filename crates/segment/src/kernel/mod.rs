//! Plain values, the loops over them, and the rows that remain.
//!
//! ```text
//!  selection ──► simd ──► plain ◄── lane      the integers that codes are packed in
//!  the rows      loops,     ▲
//!  that are      for each   └────── order ──► hash
//!  left          machine            how values rank
//! ```
//!
//! `plain` reads values of types for which any bytes are valid. Nothing here knows of an arena or
//! a schema; the room uses no other.

pub(crate) mod hash;
pub(crate) mod lane;
pub(crate) mod order;
pub(crate) mod plain;
pub(crate) mod selection;
pub(crate) mod simd;
