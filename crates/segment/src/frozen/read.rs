//! Values of single rows.
//!
//! In a column layout each attribute of a row costs up to three cache misses: the run, its code,
//! and the dictionary's value. So a row is read in steps, each for all attributes: while one load
//! is waited for, the others are in flight.

use crate::{
    ValueRef,
    format::nulls::Nulls,
    frozen::{
        Frozen,
        bits::{Fixed, with_type},
        codes::Runs,
        plan::{AttributePlan, CodesAt, EncodingKind},
    },
    kernel::simd,
};
use aerostat_types::Physical;

/// Attributes that are read together, so that what is known between two steps is on the
/// stack.
const ATTRIBUTES_AT_ONCE: usize = 32;

impl Frozen {
    /// Calls `f` with each attribute's position and its value in a row.
    pub(crate) fn read_row<'a>(&'a self, row: u32, f: &mut impl FnMut(usize, ValueRef<'a>)) {
        let mut first = 0;
        for attributes in self.plan().attributes.chunks(ATTRIBUTES_AT_ONCE) {
            for at in attributes {
                self.prefetch_codes(at, row);
            }
            let mut places = [row as usize; ATTRIBUTES_AT_ONCE];
            for (place, at) in places.iter_mut().zip(attributes) {
                if let Some(runs) = self.runs(at) {
                    *place = runs.run(row as usize);
                    runs.codes.prefetch(*place);
                }
            }
            let mut codes = [0; ATTRIBUTES_AT_ONCE];
            for ((code, &place), at) in codes.iter_mut().zip(&places).zip(attributes) {
                *code = self.code_at(at, place);
                self.prefetch_value(at, *code);
            }
            for (nth, (&code, at)) in codes.iter().zip(attributes).enumerate() {
                let attribute = first + nth;
                f(attribute, self.value_of(at, attribute, row, code));
            }
            first += attributes.len();
        }
    }

    /// The value of an attribute in a row.
    #[inline]
    pub(crate) fn value(&self, row: u32, attribute: usize) -> ValueRef<'_> {
        let at = self.attribute(attribute);
        self.value_of(at, attribute, row, self.code(at, row))
    }

    /// Asks for the memory in which the code of a row is found, or its value if there is none.
    #[inline]
    fn prefetch_codes(&self, at: &AttributePlan, row: u32) {
        let row = row as usize;
        match at.codes {
            CodesAt::Nowhere => self.strings(at).offsets.prefetch(row),
            CodesAt::Packed(codes) => self.arena.packed(codes, at.descriptor.width).prefetch(row),
            CodesAt::Runs { starts, ranks, .. } => {
                simd::prefetch(self.arena.values::<u64>(starts), row / 64);
                simd::prefetch(self.arena.values::<u32>(ranks), Runs::rank_at(row));
            }
            CodesAt::Tuples {
                tuples,
                stride,
                bit,
            } => simd::prefetch(self.arena.bytes(tuples), row * stride + bit / 8),
            CodesAt::Slots {
                tuples,
                stride,
                offset,
            } => simd::prefetch(self.arena.bytes(tuples), row * stride + offset),
        }
        if at.nulls.words > 0 {
            simd::prefetch(self.arena.words(at.nulls), row / 64);
        }
    }

    /// Asks for the memory in which the value of a code is found.
    #[inline]
    fn prefetch_value(&self, at: &AttributePlan, code: u64) {
        match at.descriptor.kind {
            EncodingKind::Frame | EncodingKind::Plain => {}
            EncodingKind::Sorted if at.values.bytes > 0 => {
                let width = at.values.bytes / at.descriptor.entries.max(1) as usize;
                simd::prefetch(self.arena.bytes(at.values), code as usize * width);
            }
            EncodingKind::Sorted | EncodingKind::RowOrder => {
                let span = self.strings(at).span(code as usize);
                simd::prefetch(self.arena.bytes(at.heap), span.start);
            }
        }
    }

    /// The code of a row; the row itself where there are none.
    #[inline]
    fn code(&self, at: &AttributePlan, row: u32) -> u64 {
        let row = row as usize;
        let place = self.runs(at).map_or(row, |runs| runs.run(row));
        self.code_at(at, place)
    }

    /// The code at the place of a row: at its run, if codes are per run.
    #[inline]
    fn code_at(&self, at: &AttributePlan, place: usize) -> u64 {
        match at.codes {
            CodesAt::Nowhere | CodesAt::Slots { .. } => place as u64,
            CodesAt::Packed(codes) | CodesAt::Runs { codes, .. } => {
                self.arena.packed(codes, at.descriptor.width).get(place)
            }
            CodesAt::Tuples { .. } => self.codes(at).map_or(0, |codes| codes.get(place as u32)),
        }
    }

    /// The value of a row that has this code.
    #[inline]
    fn value_of(&self, at: &AttributePlan, attribute: usize, row: u32, code: u64) -> ValueRef<'_> {
        if at.nulls.words > 0 && Nulls::new(self.arena.words(at.nulls)).is_null(row) {
            return ValueRef::Null;
        }
        let physical = self.schema.physical(attribute);
        if physical == Physical::Variable {
            return ValueRef::Bytes(self.strings(at).get(code as usize));
        }
        with_type!(physical, T => ValueRef::from(self.fixed::<T>(at, attribute, code)))
    }

    /// The value of a fixed width that a code stands for, or that is in a row's slot; under
    /// NULL it is any.
    #[inline]
    fn fixed<T: Fixed>(&self, at: &AttributePlan, attribute: usize, code: u64) -> T {
        match at.descriptor.kind {
            EncodingKind::Plain => self.slots::<T>(attribute).get(code as usize),
            EncodingKind::Frame => T::from_code(at.descriptor.base, code),
            _ => T::from_bytes(self.arena.bytes(at.values), code as usize),
        }
    }

    /// A value of a fixed width, as the bits of its slot.
    pub(crate) fn slot_bits(&self, attribute: usize, row: u32) -> u128 {
        let at = self.attribute(attribute);
        let code = self.code(at, row);
        with_type!(self.schema.physical(attribute), T => {
            self.fixed::<T>(at, attribute, code).to_raw()
        })
    }
}
