//! Finding keys of frozen rows by binary search, since rows are in key order.
//!
//! The rows that have a key's first value are adjacent; among them those that have its second,
//! and so on. Each value is translated to codes once, and the search compares codes. A value that
//! is in no dictionary ends the search at once.

use std::{
    cmp::Ordering,
    ops::{ControlFlow, Range},
};

use aerostat_types::Physical;

use crate::{
    Key, KeyRef,
    frozen::{
        Column, Frozen, Values,
        bits::{Fixed, with_type},
        codes::Codes,
        filter::positions,
        search::{bisect, gallop, interpolate},
    },
    input::key::{Sink, key_width, put_escaped, put_mark, put_slot},
};

/// Calls `f` with every row that has the key, until it breaks.
pub(crate) fn find(frozen: &Frozen, key: KeyRef<'_>, f: &mut dyn FnMut(u32) -> ControlFlow<()>) {
    let Some(rows) = rows_of(frozen, key) else {
        return;
    };
    for row in rows {
        if f(row as u32).is_break() {
            return;
        }
    }
}

/// The rows that have the key. `None` when there is none, or no key in this schema.
fn rows_of(frozen: &Frozen, key: KeyRef<'_>) -> Option<Range<usize>> {
    let mut rest = key.0;
    let mut rows = 0..frozen.rows() as usize;
    for &attribute in frozen.schema.key() {
        let column = frozen.column(attribute);
        rows = if column.physical == Physical::Variable {
            let value = take_string(&mut rest)?;
            with_string(&column, &value, rows)?
        } else {
            let piece = rest.split_off(..key_width(column.physical))?;
            with_piece(frozen, attribute, &column, piece, rows)?
        };
        if rows.is_empty() {
            return None;
        }
    }
    (rest.is_empty() && !frozen.schema.key().is_empty()).then_some(rows)
}

/// Of rows in order, those that have the string.
fn with_string(column: &Column<'_>, value: &[u8], rows: Range<usize>) -> Option<Range<usize>> {
    match &column.values {
        Values::Sorted(strings) => {
            let first = strings.position(value, false);
            // An empty dictionary's strings are all empty.
            let found = first < strings.len && strings.get(first) == value;
            found.then(|| with_codes(column, first as u64, first as u64, rows))
        }
        _ => Some(equal(rows, |row| column.string(row as u64).cmp(value))),
    }
}

/// Of rows in order, those whose value has this piece of a key.
fn with_piece(
    frozen: &Frozen,
    attribute: usize,
    column: &Column<'_>,
    piece: &[u8],
    rows: Range<usize>,
) -> Option<Range<usize>> {
    match column.values {
        Values::Frame { base } => {
            let offset = int_of(piece).checked_sub(base)?;
            let code = u64::try_from(offset).ok()?;
            (u128::from(code) < column.codes_end).then(|| with_codes(column, code, code, rows))
        }
        Values::Fixed(values) => {
            let equal = with_type!(column.physical, T => {
                positions(column.codes_end as usize, |at| {
                    let own = T::from_bytes(values, at).to_raw();
                    piece_of(column.physical, own).as_slice().cmp(piece)
                })
            });
            // More than one code can be equal: 0 and −0 are.
            let greatest = equal.end.checked_sub(1)?;
            (equal.start <= greatest)
                .then(|| with_codes(column, equal.start as u64, greatest as u64, rows))
        }
        _ => Some(equal(rows, |row| {
            let bits = frozen.slot_bits(attribute, row as u32);
            piece_of(column.physical, bits).as_slice().cmp(piece)
        })),
    }
}

/// Of rows in order, those with codes from `least` to `greatest`.
fn with_codes(column: &Column<'_>, least: u64, greatest: u64, rows: Range<usize>) -> Range<usize> {
    if let Some(Codes::Runs(runs)) = &column.codes {
        return runs.rows_between(rows, least, greatest);
    }
    let code = |row: usize| column.code(row as u32);
    let first = interpolate(rows.clone(), least, code);
    first..gallop(first..rows.end, |row| code(row) <= greatest)
}

/// Of rows in order, those that are equal to what is sought: mostly few.
fn equal(rows: Range<usize>, order: impl Fn(usize) -> Ordering) -> Range<usize> {
    let first = bisect(rows.clone(), |row| order(row).is_lt());
    first..gallop(first..rows.end, |row| order(row).is_eq())
}

/// The key that a row has of these attributes, piece by piece.
pub(crate) fn put_row(frozen: &Frozen, attributes: &[usize], row: u32, out: &mut impl Sink) {
    for &attribute in attributes {
        let physical = frozen.schema.physical(attribute);
        if frozen.schema.attributes()[attribute].nullable
            && put_mark(physical, frozen.is_null(attribute, row), out)
        {
            continue;
        }
        if physical == Physical::Variable {
            let column = frozen.column(attribute);
            put_escaped(out, column.string(column.code(row)));
        } else {
            put_slot(physical, frozen.slot_bits(attribute, row), out);
        }
    }
}

/// The key that a row has of these attributes.
pub(crate) fn key_of(frozen: &Frozen, attributes: &[usize], row: u32) -> Key {
    let mut bytes = Vec::new();
    put_row(frozen, attributes, row, &mut bytes);
    Key::from_bytes(bytes)
}

/// The integer that a piece of a key stands for; a boolean's piece is its number.
fn int_of(piece: &[u8]) -> i128 {
    let mut bytes = [0; 16];
    bytes[16 - piece.len()..].copy_from_slice(piece);
    let number = u128::from_be_bytes(bytes);
    match piece.len() {
        1 => number as i128,
        // The sign bit was flipped: which moved numbers up by half of their range.
        16 => (number ^ 1 << 127) as i128,
        len => number as i128 - (1 << (8 * len - 1)),
    }
}

/// A value's part of a key: at most 16 bytes.
struct Piece {
    bytes: [u8; 16],
    len: usize,
}

impl Piece {
    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl Sink for Piece {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

fn piece_of(physical: Physical, bits: u128) -> Piece {
    let mut piece = Piece {
        bytes: [0; 16],
        len: 0,
    };
    put_slot(physical, bits, &mut piece);
    piece
}

/// Takes a string off the front of a key, unescaped; `None` if there is none.
fn take_string(rest: &mut &[u8]) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    loop {
        let zero = rest.iter().position(|&byte| byte == 0)?;
        value.extend_from_slice(&rest[..zero]);
        let after = *rest.get(zero + 1)?;
        *rest = &rest[zero + 2..];
        match after {
            0 => return Some(value),
            0xFF => value.push(0),
            _ => return None,
        }
    }
}
