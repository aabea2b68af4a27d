//! Values on the wire: from Arrow columns to text and binary forms ([`Column`]), and back
//! ([`Builder`]); and single values (`plain`). Text forms are those of [`aerostat_types::text`];
//! binary forms are those of PostgreSQL's `*send` and `*recv`.

mod array;
mod builder;
mod column;
mod field;
mod numeric;
mod oid;
mod plain;
mod row;
#[cfg(test)]
pub(crate) mod tests;
mod texts;

pub(crate) use array::{put_value, text_of as array_text};
pub(crate) use builder::Builder;
pub(crate) use column::Column;
pub(crate) use field::TextField;
pub(crate) use plain::{read, read_oid};
pub(crate) use row::{RowEncoder, check_length, put_values};
pub(crate) use texts::Texts;

pub(crate) use crate::api::Zone;

/// Days from 1970-01-01 to 2000-01-01, where PostgreSQL's binary dates begin.
const EPOCH_SHIFT_DAYS: i32 = 10_957;

/// The same in microseconds.
const EPOCH_SHIFT_MICROS: i64 = EPOCH_SHIFT_DAYS as i64 * 86_400_000_000;
