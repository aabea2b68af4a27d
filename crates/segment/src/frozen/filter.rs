//! Filters on encoded values: a predicate is translated to a condition on codes,
//! once, and codes are tested without being decoded.

use std::{cmp::Ordering, ops::Range};

use crate::{
    CompareOp, Literal, Predicate, Selection,
    format::nulls::Nulls,
    frozen::{
        Column, Frozen, Values,
        bits::{Fixed, with_type},
        bloom,
        codes::{Codes, RunsPassing},
        pack::{Decode, are_dense},
        search::bisect,
        strings::Strings,
    },
    input::{
        condition::{Masks, Passing, Test},
        literal::holds,
    },
    kernel::{
        lane::{BLOCK_CODES, Lane},
        order::rank_of_f64,
        selection::{Collector, retain},
        simd,
    },
};

/// Up to here the codes of a list become a bitmap however few rows there are: 8 KiB, which
/// stay in the L1 cache. A larger one pays when it has no more words than there are rows.
const BITMAP_WORDS_FREE: usize = 1024;

impl Frozen {
    /// Keeps the selected rows for which a comparison or a list holds, of an encoded
    /// attribute.
    pub(crate) fn filter(&self, predicate: &Predicate, selection: &mut Selection) {
        let attribute = predicate.attribute();
        let column = self.column(attribute);
        if !self.may_have(predicate) {
            return selection.clear();
        }
        if let Values::RowOrder(strings) = &column.values {
            let nulls = self.nulls_within(attribute, selection);
            return filter_strings(strings, predicate, nulls, selection);
        }
        let passing = passing(&column, predicate, selection.len());
        self.keep_passing(attribute, &passing, selection);
    }

    /// Keeps the selected rows that have a value of an attribute with codes, if that passes.
    pub(crate) fn keep_passing(
        &self,
        attribute: usize,
        passing: &Passing,
        selection: &mut Selection,
    ) {
        let nulls = self.nulls_within(attribute, selection);
        match passing {
            Passing::None => selection.clear(),
            Passing::All => {
                if let Some(nulls) = nulls {
                    retain(
                        selection,
                        |row, _| !nulls.word(row),
                        |row| !nulls.is_null(row),
                    );
                }
            }
            Passing::Some(test) => {
                let codes = self.column(attribute).codes;
                let codes = codes.expect("coded values have codes");
                filter_codes(&codes, self.rows(), test, nulls, selection);
            }
        }
    }

    /// Whether some row of the segment may satisfy the predicate, as far as its Bloom
    /// filter knows.
    pub(crate) fn may_have(&self, predicate: &Predicate) -> bool {
        let lines = self.attribute(predicate.attribute()).bloom;
        if lines.bytes == 0 {
            return true;
        }
        let words = self.arena.values::<u64>(lines);
        match predicate {
            Predicate::Compare {
                op: CompareOp::Eq,
                value,
                ..
            } => bloom::may_have(words, value),
            Predicate::InList {
                values,
                negated: false,
                ..
            } => values.iter().any(|value| bloom::may_have(words, value)),
            _ => true,
        }
    }
}

fn filter_codes(
    codes: &Codes<'_>,
    rows_all: u32,
    test: &Test,
    nulls: Option<Nulls<'_>>,
    selection: &mut Selection,
) {
    let rows = match selection {
        Selection::Rows(rows) => return filter_rows(codes, rows_all, test, nulls, rows),
        Selection::Range(rows) => rows.clone(),
    };
    let mut found = Collector::reusing(selection);
    let (mut runs, mut masks) = (RunsPassing::default(), Masks::default());
    let mut from = rows.start;
    while from < rows.end {
        let block = from / BLOCK_CODES as u32;
        codes.masks(block as usize, rows_all, test, &mut runs, &mut masks);
        let block_end = rows.end.min((block + 1) * BLOCK_CODES as u32);
        while from < block_end {
            let base = from & !63;
            let to = block_end.min(base + 64);
            let inside = (u64::MAX >> (64 - (to - from))) << (from - base);
            let mask = masks[(base as usize % BLOCK_CODES) / 64] & inside;
            found.push_mask(base, nulls.map_or(mask, |nulls| mask & !nulls.word(base)));
            from = to;
        }
    }
    *selection = found.finish();
}

fn filter_rows(
    codes: &Codes<'_>,
    rows_all: u32,
    test: &Test,
    nulls: Option<Nulls<'_>>,
    rows: &mut Vec<u32>,
) {
    let is_quick = matches!(
        test,
        Test::Range { .. } | Test::Bits { .. } | Test::Table { shift: Some(_), .. }
    );
    if is_quick && !matches!(codes, Codes::Tuples(_)) && are_dense(rows) {
        return filter_blocks(codes, rows_all, test, nulls, rows);
    }
    keep_listed(codes, Some(test), nulls, rows);
}

/// Keeps the rows that are not NULL and whose codes pass, without a test all codes.
pub(crate) fn keep_listed(
    codes: &Codes<'_>,
    test: Option<&Test>,
    nulls: Option<Nulls<'_>>,
    rows: &mut Vec<u32>,
) {
    if let Some(test) = test {
        let mut passing = Hits {
            test,
            hits: Vec::with_capacity(rows.len().div_ceil(64)),
        };
        codes.pick(rows, &mut passing);
        simd::keep_rows(rows, &passing.hits);
    }
    if let Some(nulls) = nulls {
        rows.retain(|&row| !nulls.is_null(row));
    }
}

/// Tests whole blocks, and looks the rows up.
fn filter_blocks(
    codes: &Codes<'_>,
    rows_all: u32,
    test: &Test,
    nulls: Option<Nulls<'_>>,
    rows: &mut Vec<u32>,
) {
    let (mut runs, mut masks) = (RunsPassing::default(), Masks::default());
    let (mut known, mut kept) = (usize::MAX, 0);
    for at in 0..rows.len() {
        let row = rows[at];
        let within = row as usize % BLOCK_CODES;
        if row as usize / BLOCK_CODES != known {
            known = row as usize / BLOCK_CODES;
            codes.masks(known, rows_all, test, &mut runs, &mut masks);
        }
        let hit = masks[within / 64] >> (within % 64) & 1 == 1;
        rows[kept] = row;
        kept += usize::from(hit & !nulls.is_some_and(|nulls| nulls.is_null(row)));
    }
    rows.truncate(kept);
}

/// Tests codes as they come, 64 at a time: a bit for each that passes.
struct Hits<'a> {
    test: &'a Test,
    hits: Vec<u64>,
}

impl Decode for Hits<'_> {
    fn codes<L: Lane>(&mut self, codes: &[L]) {
        self.hits.push(self.test.hits_of(codes));
    }
}

/// Strings in order of rows are compared one by one.
fn filter_strings(
    strings: &Strings<'_>,
    predicate: &Predicate,
    nulls: Option<Nulls<'_>>,
    selection: &mut Selection,
) {
    let keep = |selection: &mut Selection, test: &dyn Fn(&[u8]) -> bool| {
        let passes = |row: u32| {
            !nulls.is_some_and(|nulls| nulls.is_null(row)) && test(strings.get(row as usize))
        };
        let mask = |base: u32, rows: Range<u32>| {
            rows.fold(0u64, |mask, row| {
                mask | u64::from(passes(row)) << (row - base)
            })
        };
        retain(selection, mask, passes);
    };
    match predicate {
        Predicate::Compare { op, value, .. } => {
            let with = bytes_of(value);
            keep(selection, &|own| holds(*op, own.cmp(with)));
        }
        Predicate::InList {
            values, negated, ..
        } => {
            let mut list: Vec<&[u8]> = values.iter().map(bytes_of).collect();
            list.sort_unstable();
            keep(selection, &|own| {
                list.binary_search(&own).is_ok() != *negated
            });
        }
        Predicate::IsNull { .. } | Predicate::IsNotNull { .. } => {
            unreachable!("tests for NULL look at the bitmap only")
        }
    }
}

/// Translates a comparison or a list to codes, for so many rows.
pub(crate) fn passing(column: &Column<'_>, predicate: &Predicate, rows: usize) -> Passing {
    let end = column.codes_end;
    match predicate {
        Predicate::Compare { op, value, .. } => {
            let equal = codes_of(column, value);
            match op {
                CompareOp::Eq => range(equal, end, false),
                CompareOp::Ne => range(equal, end, true),
                CompareOp::Lt => range(0..equal.start, end, false),
                CompareOp::Le => range(0..equal.end, end, false),
                CompareOp::Gt => range(equal.end..end, end, false),
                CompareOp::Ge => range(equal.start..end, end, false),
            }
        }
        Predicate::InList {
            values, negated, ..
        } => list(column, values, *negated, rows),
        Predicate::IsNull { .. } | Predicate::IsNotNull { .. } => {
            unreachable!("tests for NULL look at the bitmap only")
        }
    }
}

/// A range of codes of `0..end`, or the rest.
pub(crate) fn range(codes: Range<u128>, end: u128, negated: bool) -> Passing {
    let (none, all) = (codes.is_empty(), codes == (0..end));
    match (none, all, negated) {
        (true, _, false) | (_, true, true) => Passing::None,
        (true, _, true) | (_, true, false) => Passing::All,
        _ => Passing::Some(Test::Range {
            low: codes.start as u64,
            span: (codes.end - 1 - codes.start) as u64,
            negated,
        }),
    }
}

fn list(column: &Column<'_>, values: &[Literal], negated: bool, rows: usize) -> Passing {
    let mut codes: Vec<u64> = values
        .iter()
        .flat_map(|value| codes_of(column, value))
        .map(|code| code as u64)
        .collect();
    codes.sort_unstable();
    codes.dedup();
    let (Some(&first), Some(&last)) = (codes.first(), codes.last()) else {
        return range(0..0, column.codes_end, negated);
    };
    if last - first == codes.len() as u64 - 1 {
        return range(
            u128::from(first)..u128::from(last) + 1,
            column.codes_end,
            negated,
        );
    }
    let words = (last / 64) as usize + 1;
    Passing::Some(if words <= rows.max(BITMAP_WORDS_FREE) {
        let mut bits = vec![0; words];
        for code in codes {
            bits[code as usize / 64] |= 1 << (code % 64);
        }
        Test::Bits { bits, negated }
    } else {
        Test::List { codes, negated }
    })
}

/// The codes whose values equal the literal; an empty range at the literal's place in the
/// order if there are none. More than one code can be equal: 0 and −0 are.
pub(crate) fn codes_of(column: &Column<'_>, value: &Literal) -> Range<u128> {
    match &column.values {
        Values::Frame { base } => {
            let value = int_of(value);
            // Saturating is exact enough: codes have 64 bits.
            let place = |at: i128| (at.max(0) as u128).min(column.codes_end);
            let offset = value.saturating_sub(*base);
            place(offset)..place(offset.saturating_add(1))
        }
        Values::Fixed(values) => with_type!(column.physical, T => {
            let order = |at: usize| compare(T::from_bytes(values, at), value);
            positions(column.codes_end as usize, order)
        }),
        Values::Sorted(strings) => {
            let value = bytes_of(value);
            strings.position(value, false) as u128..strings.position(value, true) as u128
        }
        Values::RowOrder(_) | Values::Plain => unreachable!("there are no codes"),
    }
}

/// Of `len` sorted values, those that are equal.
pub(crate) fn positions(len: usize, order: impl Fn(usize) -> Ordering) -> Range<u128> {
    let first = bisect(0..len, |at| order(at).is_lt());
    first as u128..bisect(first..len, |at| order(at).is_le()) as u128
}

/// A value's place relative to a literal.
fn compare<T: Fixed>(own: T, with: &Literal) -> Ordering {
    match (own.to_int(), with) {
        (Some(own), _) => own.cmp(&int_of(with)),
        (None, Literal::Bytes(with)) => own.to_raw().to_le_bytes().as_slice().cmp(with),
        // Floats: their order keys are their ranks.
        (None, Literal::Float(with)) => T::order_key(own.rank()).cmp(&rank_of_f64(*with)),
        (None, with) => unreachable!("accepts() refuses {with:?}"),
    }
}

fn int_of(literal: &Literal) -> i128 {
    match literal {
        Literal::Int(value) => *value,
        Literal::Bool(value) => i128::from(*value),
        other => unreachable!("accepts() refuses {other:?}"),
    }
}

fn bytes_of(literal: &Literal) -> &[u8] {
    match literal {
        Literal::Bytes(value) => value,
        other => unreachable!("accepts() refuses {other:?}"),
    }
}
