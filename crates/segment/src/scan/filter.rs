//! Filter kernels: a predicate over the selected rows of one attribute.
//!
//! A kernel is a loop over 64 values that yields a 64-bit mask, compiled for each physical type
//! and operator, without branches, so that the compiler uses vector instructions. Adjacent values
//! are read in place, others through a 64-value buffer. Over a range, masks become rows only
//! where they are neither empty nor full, so a range that passes completely stays a range.
//! Selected rows (already sparse) are tested one by one, again without branches.

use aerostat_types::Physical;

use crate::{
    CompareOp, Condition, Literal, LookupTable, Pinned, Predicate, Probe, Selection,
    body::segment::Form,
    format::intern::{INLINE_BYTES_MAX, SlotForm, short_slot, with_value},
    input::literal::holds,
    kernel::{
        order::{Scalar, prefix_key, rank_of_f64},
        plain::{Plain, Slots},
        selection::retain,
        simd::bits_of,
    },
};

impl Pinned<'_> {
    /// Keeps the selected rows for which the predicate is true; NULL is not.
    ///
    /// # Panics
    /// When the schema does not [accept](crate::SegmentSchema::accepts) the predicate.
    pub fn filter(&self, predicate: &Predicate, selection: &mut Selection) {
        self.assert_has(predicate.attribute());
        filter(self.form(), predicate, selection);
    }

    /// Keeps the selected rows for which all conditions hold, and tells how many are left after
    /// each, as long as there are some. Two ranges of one attribute, side by side, are looked
    /// for together where that is one look; what is left is then that of both.
    ///
    /// # Panics
    /// As [`Pinned::filter`].
    pub fn keep(
        &self,
        conditions: &[Condition<'_>],
        selection: &mut Selection,
        left: &mut dyn FnMut(usize, usize),
    ) {
        assert!(
            selection.last().is_none_or(|last| last < self.rows()),
            "selected rows are published"
        );
        if !self.is_whole() {
            let attributes = conditions.iter().map(Condition::attribute);
            attributes.for_each(|attribute| self.assert_has(attribute));
        }
        let mut at = 0;
        while at < conditions.len() && !selection.is_empty() {
            if let Form::Frozen(frozen) = self.form() {
                let parts = frozen.parts(&conditions[at..], selection.len());
                if !parts.is_empty() {
                    let mut after = at;
                    frozen.keep_parts(&parts, selection, &mut |nth, rows| {
                        left(at + nth, rows);
                        after = at + nth + 1;
                    });
                    at = after;
                    continue;
                }
            }
            match conditions[at] {
                Condition::Predicate(predicate) => self.filter(predicate, selection),
                Condition::Member(probe) => self.keep_members(probe, selection),
            }
            left(at, selection.len());
            at += 1;
        }
    }

    /// Keeps the selected rows whose value is a key of the table; NULL is none.
    fn keep_members(&self, probe: &Probe, selection: &mut Selection) {
        assert!(
            selection.last().is_none_or(|last| last < self.rows()),
            "selected rows are published"
        );
        match (self.form(), &probe.on_codes) {
            (Form::Frozen(frozen), Some(on_codes)) => {
                frozen.keep_passing(probe.attribute, &on_codes.passing, selection);
            }
            (form, _) => keep_members(form, probe.attribute, &probe.table, selection),
        }
    }
}

/// See [`Pinned::filter`].
fn filter(form: &Form, predicate: &Predicate, selection: &mut Selection) {
    assert!(
        form.schema().accepts(predicate),
        "the caller checks with SegmentSchema::accepts"
    );
    assert!(
        selection.last().is_none_or(|last| last < form.rows()),
        "selected rows are published"
    );
    let is_null_test = matches!(
        predicate,
        Predicate::IsNull { .. } | Predicate::IsNotNull { .. }
    );
    if let Form::Frozen(frozen) = form
        && !is_null_test
    {
        if !frozen.is_plain(predicate.attribute()) {
            return frozen.filter(predicate, selection);
        }
        if !frozen.may_have(predicate) {
            return selection.clear();
        }
    }
    match predicate {
        Predicate::IsNull { attribute } => match form.nulls_within(*attribute, selection) {
            None => selection.clear(),
            Some(nulls) => retain(
                selection,
                |row, _| nulls.word(row),
                |row| nulls.is_null(row),
            ),
        },
        Predicate::IsNotNull { attribute } => {
            if let Some(nulls) = form.nulls_within(*attribute, selection) {
                retain(
                    selection,
                    |row, _| !nulls.word(row),
                    |row| !nulls.is_null(row),
                );
            }
        }
        Predicate::Compare {
            attribute,
            op,
            value,
        } => {
            Column {
                form,
                attribute: *attribute,
                selection,
            }
            .compare(*op, value);
        }
        Predicate::InList {
            attribute,
            values,
            negated,
        } => {
            Column {
                form,
                attribute: *attribute,
                selection,
            }
            .in_list(values, *negated);
        }
    }
}

/// Keeps the rows whose slots hold keys of the table.
fn keep_members(form: &Form, attribute: usize, table: &LookupTable, selection: &mut Selection) {
    let column = Column {
        form,
        attribute,
        selection,
    };
    match form.schema().physical(attribute) {
        Physical::I16 => column.keep(|value: i16| table.contains(value.into())),
        Physical::I32 => column.keep(|value: i32| table.contains(value.into())),
        _ => column.keep(|value: i64| table.contains(value)),
    }
}

/// An attribute and the selection to be narrowed by it.
struct Column<'a> {
    form: &'a Form,
    attribute: usize,
    selection: &'a mut Selection,
}

impl Column<'_> {
    fn compare(self, op: CompareOp, value: &Literal) {
        match (self.form.schema().physical(self.attribute), value) {
            (Physical::Bool, Literal::Bool(value)) => {
                self.compare_ranks::<u8>(op, u8::from(*value))
            }
            (Physical::I16, Literal::Int(value)) => self.compare_int::<i16>(op, *value),
            (Physical::I32, Literal::Int(value)) => self.compare_int::<i32>(op, *value),
            (Physical::I64, Literal::Int(value)) => self.compare_int::<i64>(op, *value),
            (Physical::I128, Literal::Int(value)) => self.compare_ranks::<i128>(op, *value),
            (Physical::F32, Literal::Float(value)) => {
                self.compare_ranks::<f32>(op, rank_of_f64(*value))
            }
            (Physical::F64, Literal::Float(value)) => {
                self.compare_ranks::<f64>(op, rank_of_f64(*value))
            }
            (Physical::Bytes16, Literal::Bytes(value)) => self.compare_bytes16(op, value),
            (Physical::Variable, Literal::Bytes(value)) => self.compare_variable(op, value),
            (physical, value) => unreachable!("accepts() refuses {value:?} for {physical:?}"),
        }
    }

    /// Compares ranks; the operator is chosen once, outside the loop.
    fn compare_ranks<T: Scalar>(self, op: CompareOp, with: T::Rank) {
        match op {
            CompareOp::Eq => self.keep(|value: T| value.rank() == with),
            CompareOp::Ne => self.keep(|value: T| value.rank() != with),
            CompareOp::Lt => self.keep(|value: T| value.rank() < with),
            CompareOp::Le => self.keep(|value: T| value.rank() <= with),
            CompareOp::Gt => self.keep(|value: T| value.rank() > with),
            CompareOp::Ge => self.keep(|value: T| value.rank() >= with),
        }
    }

    /// A literal beyond the type's range is above or below every value.
    fn compare_int<T: Scalar<Rank = T> + TryFrom<i128>>(self, op: CompareOp, with: i128) {
        let always = match T::try_from(with) {
            Ok(with) => return self.compare_ranks::<T>(op, with),
            Err(_) if with > 0 => matches!(op, CompareOp::Ne | CompareOp::Lt | CompareOp::Le),
            Err(_) => matches!(op, CompareOp::Ne | CompareOp::Gt | CompareOp::Ge),
        };
        self.keep(|_: T| always);
    }

    fn compare_bytes16(self, op: CompareOp, with: &[u8]) {
        match <[u8; 16]>::try_from(with) {
            Ok(with) => self.compare_ranks::<[u8; 16]>(op, with.rank()),
            // A value of another length equals none, but has its place in the order.
            Err(_) => self.keep(|value: [u8; 16]| holds(op, value.as_slice().cmp(with))),
        }
    }

    fn compare_variable(self, op: CompareOp, with: &[u8]) {
        let heap = self.form.heap();
        match op {
            CompareOp::Eq | CompareOp::Ne if with.len() <= INLINE_BYTES_MAX => {
                let (slot, equal) = (short_slot(with), op == CompareOp::Eq);
                self.keep(|value: u64| (value == slot) == equal);
            }
            CompareOp::Eq | CompareOp::Ne => {
                let equal = op == CompareOp::Eq;
                self.keep(|value: u64| match SlotForm::of(value) {
                    SlotForm::Long { len, offset } if len == with.len() => {
                        (heap[offset..offset + len] == *with) == equal
                    }
                    _ => !equal,
                });
            }
            _ => {
                // Most values differ from the literal within eight bytes.
                let prefix = prefix_key(with);
                self.keep(|value: u64| {
                    with_value(value, heap, |bytes| {
                        holds(
                            op,
                            prefix_key(bytes).cmp(&prefix).then_with(|| bytes.cmp(with)),
                        )
                    })
                });
            }
        }
    }

    fn in_list(self, values: &[Literal], negated: bool) {
        match self.form.schema().physical(self.attribute) {
            Physical::Bool => self.in_ranks::<u8>(
                values.iter().filter_map(|v| bool_of(v).map(u8::from)),
                negated,
            ),
            Physical::I16 => self.in_ranks::<i16>(values.iter().filter_map(int_of), negated),
            Physical::I32 => self.in_ranks::<i32>(values.iter().filter_map(int_of), negated),
            Physical::I64 => self.in_ranks::<i64>(values.iter().filter_map(int_of), negated),
            Physical::I128 => self.in_ranks::<i128>(values.iter().filter_map(int_of), negated),
            Physical::F32 => self.in_ranks::<f32>(values.iter().filter_map(float_rank_of), negated),
            Physical::F64 => self.in_ranks::<f64>(values.iter().filter_map(float_rank_of), negated),
            Physical::Bytes16 => {
                let ranks = values
                    .iter()
                    .filter_map(|v| Some(<[u8; 16]>::try_from(bytes_of(v)?).ok()?.rank()));
                self.in_ranks::<[u8; 16]>(ranks, negated);
            }
            Physical::Variable => self.in_variable(values, negated),
            Physical::Interval => unreachable!("accepts() refuses intervals"),
        }
    }

    /// Literals that are no value of the type have been left out: they equal none.
    fn in_ranks<T: Scalar>(self, ranks: impl Iterator<Item = T::Rank>, negated: bool) {
        /// Up to here a scan of the list, which has no unpredictable branch, is faster than halving.
        const SCAN_MAX: usize = 8;
        let mut list: Vec<T::Rank> = ranks.collect();
        list.sort_unstable();
        list.dedup();
        if list.len() <= SCAN_MAX {
            self.keep(|value: T| {
                let rank = value.rank();
                list.iter()
                    .fold(false, |found, item| found | (*item == rank))
                    != negated
            });
        } else {
            self.keep(|value: T| list.binary_search(&value.rank()).is_ok() != negated);
        }
    }

    fn in_variable(self, values: &[Literal], negated: bool) {
        let heap = self.form.heap();
        let (short, mut long): (Vec<&[u8]>, Vec<&[u8]>) = values
            .iter()
            .filter_map(bytes_of)
            .partition(|bytes| bytes.len() <= INLINE_BYTES_MAX);
        let mut short: Vec<u64> = short.into_iter().map(short_slot).collect();
        short.sort_unstable();
        long.sort_unstable();
        self.keep(|value: u64| {
            let found = match SlotForm::of(value) {
                SlotForm::Short { .. } => short.binary_search(&value).is_ok(),
                SlotForm::Long { len, offset } => {
                    long.binary_search(&&heap[offset..offset + len]).is_ok()
                }
            };
            found != negated
        });
    }

    /// Keeps the rows whose value is not NULL and passes the test.
    fn keep<T: Plain + Default>(self, test: impl Fn(T) -> bool) {
        let slots: Slots<'_, T> = self.form.slots(self.attribute);
        let nulls = self.form.nulls_within(self.attribute, self.selection);
        let mut scratch = [T::default(); 64];
        retain(
            self.selection,
            |row, rows| {
                // Bit i is row + i; bits outside of `rows` are cut off by `retain`.
                let lead = rows.start - row;
                let values = slots.block(rows.start as usize, rows.len(), &mut scratch);
                let hits = mask_of(values, &test) << lead;
                nulls.map_or(hits, |nulls| hits & !nulls.word(row))
            },
            |row| test(slots.get(row as usize)) & !nulls.is_some_and(|nulls| nulls.is_null(row)),
        );
    }
}

/// Bit i is the test's answer for value i; at most 64 values.
fn mask_of<T: Copy>(values: &[T], test: impl Fn(T) -> bool) -> u64 {
    let Ok(values) = <&[T; 64]>::try_from(values) else {
        return values
            .iter()
            .enumerate()
            .fold(0, |mask, (at, &value)| mask | u64::from(test(value)) << at);
    };
    let mut hits = [0u8; 64];
    for (hit, &value) in hits.iter_mut().zip(values) {
        *hit = u8::from(test(value));
    }
    bits_of(&hits)
}

fn bool_of(literal: &Literal) -> Option<bool> {
    match literal {
        Literal::Bool(value) => Some(*value),
        _ => None,
    }
}

fn int_of<T: TryFrom<i128>>(literal: &Literal) -> Option<T> {
    match literal {
        Literal::Int(value) => T::try_from(*value).ok(),
        _ => None,
    }
}

fn float_rank_of(literal: &Literal) -> Option<u64> {
    match literal {
        Literal::Float(value) => Some(rank_of_f64(*value)),
        _ => None,
    }
}

fn bytes_of(literal: &Literal) -> Option<&[u8]> {
    match literal {
        Literal::Bytes(value) => Some(value),
        _ => None,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn masks_have_a_bit_per_value() {
        for pattern in [0, 1, u64::MAX, 0x8000_0000_0000_0001, 0xDEAD_BEEF_0123_4567] {
            let values: Vec<u64> = (0..64).map(|at| pattern >> at & 1).collect();
            assert_eq!(mask_of(&values, |bit| bit == 1), pattern);
            assert_eq!(
                mask_of(&values[..40], |bit| bit == 1),
                pattern & ((1 << 40) - 1)
            );
        }
    }
}
