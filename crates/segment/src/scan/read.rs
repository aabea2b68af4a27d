//! Single rows for statements by key: found by their key, and read without an array for each
//! attribute.

use std::ops::ControlFlow;

use aerostat_types::Physical;
use arrow_buffer::IntervalMonthDayNano;

use crate::{
    Key, KeyRef, NewRows, Pinned, ValueRef,
    body::segment::Form,
    format::{arena::Arena, index, intern::SlotForm, nulls::Nulls},
    frozen,
    input::{key, source::Values},
    kernel::{plain::Plain, simd},
};

impl Pinned<'_> {
    /// Calls `f` with every published row that has this key, all versions, in no certain
    /// order, until it breaks.
    pub fn find(&self, key: KeyRef<'_>, f: &mut dyn FnMut(u32) -> ControlFlow<()>) {
        self.assert_has_key();
        let arena = match self.form() {
            Form::Hot(arena) => arena,
            Form::Frozen(frozen) => return frozen::find(frozen, key, f),
        };
        let _ = index::candidates(arena.index(), key.0, arena.rows(), &mut |row| {
            if key::row_has(arena, self.schema().key(), row, key) {
                f(row)
            } else {
                ControlFlow::Continue(())
            }
        });
    }

    /// The key of a published row; empty for a schema without key.
    pub fn key_of(&self, row: u32) -> Key {
        self.assert_has_key();
        match self.form() {
            Form::Hot(arena) => key::of_row(arena, self.schema().key(), row),
            Form::Frozen(frozen) => frozen::key_of(frozen, self.schema().key(), row),
        }
    }

    /// The value of an attribute in a row.
    ///
    /// # Panics
    /// When the row is not published, or the attribute not one of the schema.
    pub fn value(&self, row: u32, attribute: usize) -> ValueRef<'_> {
        let published = self.rows();
        assert!(row < published, "row {row} of {published} published");
        self.assert_has(attribute);
        match self.form() {
            Form::Hot(arena) => hot_value(arena, row, attribute),
            Form::Frozen(frozen) => frozen.value(row, attribute),
        }
    }

    /// Whether a row has in an attribute the very value, bit by bit, that a new one has.
    /// Never one of another type.
    ///
    /// # Panics
    /// When the row is not published, or there are fewer new ones.
    pub fn has_value(&self, row: u32, attribute: usize, new: NewRows<'_>, at: usize) -> bool {
        let spec = self.schema().attributes()[attribute];
        let Ok(other) = new.source(attribute, spec) else {
            return false;
        };
        let own = self.value(row, attribute);
        if other.is_null(at) {
            return matches!(own, ValueRef::Null);
        }
        match (own, other.values) {
            (ValueRef::Bool(own), Values::Bool(array)) => own == array.value(at),
            (ValueRef::I16(own), Values::I16(values)) => own == values[at],
            (ValueRef::I32(own), Values::I32(values)) => own == values[at],
            (ValueRef::I64(own), Values::I64(values)) => own == values[at],
            (ValueRef::I64(own), Values::Narrow(values)) => i128::from(own) == values[at],
            (ValueRef::I128(own), Values::I128(values)) => own == values[at],
            (ValueRef::F32(own), Values::F32(values)) => own.to_bits() == values[at].to_bits(),
            (ValueRef::F64(own), Values::F64(values)) => own.to_bits() == values[at].to_bits(),
            (ValueRef::Bytes16(own), Values::Bytes16(values)) => own == values[at],
            (ValueRef::Interval(own), Values::Interval(values)) => own == values[at],
            (ValueRef::Bytes(own), Values::Variable(strings)) => own == strings.get(at),
            _ => false,
        }
    }

    /// Calls `f` with each attribute's position and its value in a row.
    ///
    /// # Panics
    /// When the row is not published.
    pub fn read_row<'a>(&'a self, row: u32, mut f: impl FnMut(usize, ValueRef<'a>)) {
        let published = self.rows();
        assert!(row < published, "row {row} of {published} published");
        self.assert_is_whole();
        let arena = match self.form() {
            Form::Hot(arena) => arena,
            Form::Frozen(frozen) => return frozen.read_row(row, &mut f),
        };
        // Where each attribute is elsewhere, one miss in place of one after the other.
        for (group, stride) in self.schema().strides().iter().enumerate() {
            simd::prefetch(arena.tuples(group), row as usize * stride);
        }
        for attribute in 0..self.schema().attributes().len() {
            f(attribute, hot_value(arena, row, attribute));
        }
    }
}

fn hot_value(arena: &Arena, row: u32, attribute: usize) -> ValueRef<'_> {
    fn fixed<'a, T: Plain + Into<ValueRef<'a>>>(
        arena: &Arena,
        row: u32,
        attribute: usize,
    ) -> ValueRef<'a> {
        arena.slots::<T>(attribute).get(row as usize).into()
    }
    if Nulls::of(arena, attribute).is_some_and(|nulls| nulls.is_null(row)) {
        return ValueRef::Null;
    }
    match arena.schema().physical(attribute) {
        Physical::Bool => fixed::<u8>(arena, row, attribute),
        Physical::I16 => fixed::<i16>(arena, row, attribute),
        Physical::I32 => fixed::<i32>(arena, row, attribute),
        Physical::I64 => fixed::<i64>(arena, row, attribute),
        Physical::I128 => fixed::<i128>(arena, row, attribute),
        Physical::F32 => fixed::<f32>(arena, row, attribute),
        Physical::F64 => fixed::<f64>(arena, row, attribute),
        Physical::Bytes16 => fixed::<[u8; 16]>(arena, row, attribute),
        Physical::Interval => fixed::<IntervalMonthDayNano>(arena, row, attribute),
        Physical::Variable => ValueRef::Bytes(hot_bytes(arena, row, attribute)),
    }
}

/// The bytes of a variable value: in its slot, or in the heap.
fn hot_bytes(arena: &Arena, row: u32, attribute: usize) -> &[u8] {
    let place = arena.schema().place(attribute);
    let stride = arena.schema().strides()[place.group];
    let slot: &[u8; 8] = arena.tuples(place.group)[row as usize * stride + place.offset..]
        .first_chunk()
        .expect("a published row has all its slots");
    match SlotForm::of(u64::from_le_bytes(*slot)) {
        SlotForm::Short { len, .. } => &slot[1..=len],
        SlotForm::Long { len, offset } => &arena.heap()[offset..offset + len],
    }
}
