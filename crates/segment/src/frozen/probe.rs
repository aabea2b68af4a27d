//! Lookups on encoded keys: a table becomes a condition on codes, and codes lead to the table's
//! values for their keys.

use std::{ops::Range, sync::Arc};

use crate::{
    LookupTable, Selection,
    frozen::{
        Column, Frozen, Values,
        bits::{Fixed, with_type},
        filter::range,
        pack::Decode,
    },
    input::condition::{Passing, Test},
    kernel::lane::{BLOCK_CODES, Lane},
};

/// Up to here the codes of a frame become bits of their own, 8 KiB, copied from the table's;
/// beyond, the table's are looked up.
const FRAME_WORDS_MAX: u128 = 1 << 10;

/// A dictionary's codes are translated when they are so much fewer than the rows that the
/// few rows that a join leaves are more, too.
const ROWS_PER_ENTRY_MIN: u32 = 32;

impl Frozen {
    /// Which codes of an encoded attribute stand for keys of the table.
    pub(crate) fn members(&self, attribute: usize, table: &Arc<LookupTable>) -> Passing {
        if table.is_empty() {
            return Passing::None;
        }
        let column = self.column(attribute);
        let (end, rows) = (column.codes_end, self.rows());
        let words = end.div_ceil(64);
        if let Values::Frame { base } = column.values {
            if table.is_contiguous() {
                return range(within(table, base, end), end, false);
            }
            let shift = table.shift_from(base, end);
            let base = base as i64;
            if words <= FRAME_WORDS_MAX
                && let Some(bits) = table.bits_from(base, words as usize)
            {
                return of_bits(bits, end);
            }
            if shift.is_some() || end > rows.into() {
                let table = Arc::clone(table);
                return Passing::Some(Test::Table { table, base, shift });
            }
        }
        let mut bits = Vec::with_capacity(words as usize);
        column.each_integer(&mut |keys| {
            let hits = keys.iter().enumerate();
            bits.push(hits.fold(0, |hits, (nth, &key)| {
                hits | u64::from(table.contains(key)) << nth
            }));
        });
        of_bits(bits, end)
    }

    /// The table's codes for an encoded attribute's, where it is worth it.
    pub(crate) fn translated(&self, attribute: usize, table: &LookupTable) -> Option<Vec<u32>> {
        let column = self.column(attribute);
        let entries_max = u128::from(self.rows() / ROWS_PER_ENTRY_MIN);
        let is_frame = matches!(column.values, Values::Frame { .. });
        if is_frame || column.codes_end > entries_max || !table.has_codes() {
            return None;
        }
        let mut translated = Vec::with_capacity(column.codes_end as usize);
        column.each_integer(&mut |keys| {
            translated.extend(keys.iter().map(|&key| table.code(key).unwrap_or(0)));
        });
        Some(translated)
    }

    /// Adds what the table says of the selected keys.
    pub(crate) fn add_codes(
        &self,
        attribute: usize,
        table: &LookupTable,
        translated: Option<&[u32]>,
        selection: &Selection,
        scale: u64,
        to: &mut [u64],
    ) {
        let column = self.column(attribute);
        let codes = column.codes.as_ref().expect("coded values have codes");
        let mut adder = Adder {
            column: &column,
            table,
            translated,
            scale,
            to,
        };
        match selection {
            Selection::Range(rows) => codes.decode(rows.clone(), &mut adder),
            Selection::Rows(rows) => codes.pick(rows, &mut adder),
        }
    }
}

impl Column<'_> {
    /// Calls `f` with the integers that all codes stand for, in order, 64 at a time.
    fn each_integer(&self, f: &mut dyn FnMut(&[i64])) {
        let end = self.codes_end as usize;
        let mut keys = [0i64; 64];
        for first in (0..end).step_by(keys.len()) {
            let keys = &mut keys[..(end - first).min(64)];
            match self.values {
                Values::Fixed(values) => with_type!(self.physical, T => {
                    for (key, code) in keys.iter_mut().zip(first..) {
                        *key = T::from_bytes(values, code).to_int().unwrap_or(0) as i64;
                    }
                }),
                _ => {
                    for (key, code) in keys.iter_mut().zip(first..) {
                        *key = self.integer(code as u64);
                    }
                }
            }
            f(keys);
        }
    }

    /// The integer that a code stands for.
    fn integer(&self, code: u64) -> i64 {
        match self.values {
            Values::Frame { base } => (base as i64).wrapping_add(code as i64),
            Values::Fixed(values) => with_type!(self.physical, T => {
                T::from_bytes(values, code as usize).to_int().unwrap_or(0) as i64
            }),
            _ => unreachable!("integers are not strings"),
        }
    }
}

/// The codes of `0..end` of a frame that stand for numbers between a table's bounds.
fn within(table: &LookupTable, base: i128, end: u128) -> Range<u128> {
    let place = |key: i128| ((key - base).max(0) as u128).min(end);
    let (least, greatest) = table.bounds().unwrap_or((0, -1));
    let start = place(least.into());
    start..place(i128::from(greatest) + 1).max(start)
}

/// A set of codes of `0..end`, as simple as it is.
fn of_bits(bits: Vec<u64>, end: u128) -> Passing {
    let count: u64 = bits.iter().map(|word| u64::from(word.count_ones())).sum();
    let Some(first) = bits.iter().position(|&word| word != 0) else {
        return Passing::None;
    };
    let least = first as u128 * 64 + u128::from(bits[first].trailing_zeros());
    let after = bits.iter().rposition(|&word| word != 0);
    let after = after.map_or(0, |last| {
        last as u128 * 64 + 64 - u128::from(bits[last].leading_zeros())
    });
    if after - least == u128::from(count) {
        return range(least..after.min(end), end, false);
    }
    Passing::Some(Test::Bits {
        bits,
        negated: false,
    })
}

/// Adds to numbers as codes come.
struct Adder<'a, 't> {
    column: &'a Column<'a>,
    table: &'a LookupTable,
    translated: Option<&'a [u32]>,
    scale: u64,
    /// Of the codes that are still to come.
    to: &'t mut [u64],
}

impl Decode for Adder<'_, '_> {
    fn codes<L: Lane>(&mut self, codes: &[L]) {
        let (to, rest) = std::mem::take(&mut self.to).split_at_mut(codes.len());
        self.to = rest;
        if let Some(translated) = self.translated {
            for (to, &code) in to.iter_mut().zip(codes) {
                let code: u64 = code.into();
                // Rows under NULL may have any code.
                let found = translated.get(code as usize).copied().unwrap_or(0);
                *to += self.scale * u64::from(found);
            }
            return;
        }
        let mut keys = [0i64; BLOCK_CODES];
        for (codes, to) in codes.chunks(BLOCK_CODES).zip(to.chunks_mut(BLOCK_CODES)) {
            match self.column.values {
                Values::Frame { base } => {
                    for (key, &code) in keys.iter_mut().zip(codes) {
                        *key = (base as i64).wrapping_add(code.into() as i64);
                    }
                }
                _ => {
                    for (key, &code) in keys.iter_mut().zip(codes) {
                        *key = self.column.integer(code.into());
                    }
                }
            }
            self.table.add_codes(&keys[..codes.len()], self.scale, to);
        }
    }
}
