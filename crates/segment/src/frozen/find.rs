//! Keys of frozen rows: found by binary search, since rows are in key order.
//!
//! The key is taken apart into its attributes' values and these are translated to
//! codes once; the search then compares codes. A value that is in no dictionary
//! ends it before it begins.

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
    },
    key::{Sink, key_width, put_escaped, put_mark, put_slot},
};

/// What a key asks of one attribute.
enum Wanted {
    /// One of these codes, from least to greatest.
    Codes(u64, u64),
    /// This string.
    String(Vec<u8>),
    /// These bytes of the key.
    Piece(Vec<u8>),
}

/// A key on its way through a frozen segment.
pub(crate) struct Finder<'a> {
    frozen: &'a Frozen,
    attributes: Vec<(usize, Column<'a>, Wanted)>,
}

impl<'a> Finder<'a> {
    /// `None` when no row can have the key.
    fn of(frozen: &'a Frozen, key: KeyRef<'_>) -> Option<Finder<'a>> {
        let mut rest = key.0;
        let mut attributes = Vec::with_capacity(frozen.schema.key().len());
        for &attribute in frozen.schema.key() {
            let column = frozen.column(attribute);
            let wanted = if column.physical == Physical::Variable {
                let value = take_string(&mut rest)?;
                wanted_string(&column, value)?
            } else {
                let piece = rest.split_off(..key_width(column.physical))?;
                wanted_fixed(&column, piece)?
            };
            attributes.push((attribute, column, wanted));
        }
        rest.is_empty().then_some(Finder { frozen, attributes })
    }

    /// Calls `f` with every row that has the key, until it breaks.
    pub(crate) fn find(
        frozen: &'a Frozen,
        key: KeyRef<'_>,
        f: &mut dyn FnMut(u32) -> ControlFlow<()>,
    ) {
        if frozen.schema.key().is_empty() {
            return;
        }
        let Some(finder) = Finder::of(frozen, key) else {
            return;
        };
        let within = finder.first_attribute();
        let (mut low, mut high) = (within.start, within.end);
        while low < high {
            let middle = low.midpoint(high);
            if finder.order(middle).is_lt() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        for row in low..within.end {
            if !finder.order(row).is_eq() || f(row).is_break() {
                return;
            }
        }
    }

    /// The rows that have the key's first attribute, where there is a faster way to them
    /// than the search row by row: runs are searched run by run.
    fn first_attribute(&self) -> Range<u32> {
        let rows = self.frozen.rows();
        if let Some((_, column, Wanted::Codes(least, greatest))) = self.attributes.first()
            && let Some(Codes::Runs(runs)) = &column.codes
        {
            let found = runs.rows_between(*least, *greatest);
            return found.start as u32..rows.min(found.end as u32);
        }
        0..rows
    }

    /// The row's key relative to the one wanted.
    fn order(&self, row: u32) -> Ordering {
        self.attributes
            .iter()
            .map(|(attribute, column, wanted)| match wanted {
                Wanted::Codes(least, greatest) => {
                    let code = column.code(row);
                    if code < *least {
                        Ordering::Less
                    } else if code > *greatest {
                        Ordering::Greater
                    } else {
                        Ordering::Equal
                    }
                }
                Wanted::String(value) => column.string(row.into()).cmp(value),
                Wanted::Piece(piece) => {
                    let bits = self.frozen.slot_bits(*attribute, row);
                    piece_of(column.physical, bits).as_slice().cmp(piece)
                }
            })
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal)
    }
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

fn wanted_string(column: &Column<'_>, value: Vec<u8>) -> Option<Wanted> {
    match &column.values {
        Values::Sorted(strings) => {
            let first = strings.position(&value, false);
            // An empty dictionary's strings are all empty.
            let found = first < strings.len && strings.get(first) == value;
            found.then_some(Wanted::Codes(first as u64, first as u64))
        }
        _ => Some(Wanted::String(value)),
    }
}

fn wanted_fixed(column: &Column<'_>, piece: &[u8]) -> Option<Wanted> {
    match column.values {
        Values::Frame { base } => {
            let offset = int_of(piece).checked_sub(base)?;
            let code = u64::try_from(offset).ok()?;
            (u128::from(code) < column.codes_end).then_some(Wanted::Codes(code, code))
        }
        Values::Fixed(values) => {
            let equal = with_type!(column.physical, T => {
                positions(column.codes_end as usize, |at| {
                    let own = T::from_bytes(values, at).to_raw();
                    piece_of(column.physical, own).as_slice().cmp(piece)
                })
            });
            let greatest = equal
                .end
                .checked_sub(1)
                .filter(|last| *last >= equal.start)?;
            Some(Wanted::Codes(equal.start as u64, greatest as u64))
        }
        _ => Some(Wanted::Piece(piece.to_vec())),
    }
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
