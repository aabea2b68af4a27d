//! Plain values: types for which any bytes are a valid value, and runs of them in bytes that do
//! not change.
//!
//! A run is read in place, at any alignment and any distance from one value to the next. The
//! maker of a run ([`Slots::over`]) vouches for its bytes, so reading from it is safe.

use std::{marker::PhantomData, slice};

use arrow_buffer::IntervalMonthDayNano;

/// A type whose values can be copied to and from bytes.
///
/// # Safety
/// Every bit pattern of the type's size is a value, and it has no padding.
pub(crate) unsafe trait Plain: Copy + Send + Sync + 'static {}

macro_rules! plain {
    ($($ty:ty)*) => {$(
        // SAFETY: integers, floats and byte arrays take every bit pattern and have no padding.
        unsafe impl Plain for $ty {}
    )*};
}
plain!(u8 u16 u32 u64 i16 i32 i64 i128 f32 f64 [u8; 16]);
// SAFETY: a repr(C) struct of i32, i32 and i64, which pack without padding; all take every bit pattern.
unsafe impl Plain for IntervalMonthDayNano {}
const _: () = assert!(size_of::<IntervalMonthDayNano>() == 16);

/// An interval's bits: months, days, nanoseconds, the order of its fields in memory.
pub(crate) fn interval_bits(value: IntervalMonthDayNano) -> u128 {
    u128::from(value.months as u32)
        | u128::from(value.days as u32) << 32
        | u128::from(value.nanoseconds as u64) << 64
}

/// The interval that has these bits.
pub(crate) fn interval_of(bits: u128) -> IntervalMonthDayNano {
    IntervalMonthDayNano::new(bits as i32, (bits >> 32) as i32, (bits >> 64) as i64)
}

/// The values of one attribute for a run of published rows: an array with a stride.
pub(crate) struct Slots<'a, T> {
    first: *const u8,
    stride: usize,
    len: usize,
    bytes: PhantomData<&'a T>,
}

impl<'a, T: Plain> Slots<'a, T> {
    /// # Safety
    /// From `first` on there are `len` slots of the width of T, `stride` bytes apart, in
    /// initialised bytes that do not change and live for 'a.
    pub(crate) unsafe fn over(
        first: *const u8,
        stride: usize,
        len: usize,
        bytes: PhantomData<&'a T>,
    ) -> Slots<'a, T> {
        Slots {
            first,
            stride,
            len,
            bytes,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The value at a position.
    pub(crate) fn get(&self, at: usize) -> T {
        assert!(at < self.len, "row {at} of {} published", self.len);
        // SAFETY: at < len.
        unsafe { self.get_unchecked(at) }
    }

    /// # Safety
    /// `at` is below `len`.
    unsafe fn get_unchecked(&self, at: usize) -> T {
        // SAFETY: `at` is below `len` (caller), and from `first` on there are `len` slots of the
        // width of T, `stride` bytes apart, in immutable bytes that live for 'a (caller of
        // `over`); any alignment is fine for read_unaligned, any bit pattern for Plain.
        unsafe {
            self.first
                .add(at * self.stride)
                .cast::<T>()
                .read_unaligned()
        }
    }

    /// A part of the run.
    pub(crate) fn part(&self, from: usize, to: usize) -> Slots<'a, T> {
        assert!(
            from <= to && to <= self.len,
            "rows {from}..{to} of {} published",
            self.len
        );
        Slots {
            first: self.first.wrapping_add(from * self.stride),
            len: to - from,
            ..*self
        }
    }

    /// The values as a slice, when they lie side by side and aligned.
    pub(crate) fn as_slice(&self) -> Option<&'a [T]> {
        if self.stride != size_of::<T>() || !self.first.cast::<T>().is_aligned() {
            return None;
        }
        // SAFETY: len values of T side by side (stride is their size), aligned, in immutable
        // initialised bytes that live for 'a; any bit pattern is a value.
        Some(unsafe { slice::from_raw_parts(self.first.cast(), self.len) })
    }

    /// The values in order.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = T> + '_ {
        // SAFETY: the range ends at len.
        (0..self.len).map(|at| unsafe { self.get_unchecked(at) })
    }

    /// Up to 64 values from a position: as they lie, or copied to `scratch`.
    pub(crate) fn block<'s>(&self, from: usize, len: usize, scratch: &'s mut [T; 64]) -> &'s [T]
    where
        'a: 's,
    {
        let part = self.part(from, from + len);
        if let Some(values) = part.as_slice() {
            return values;
        }
        for (to, value) in scratch.iter_mut().zip(part.iter()) {
            *to = value;
        }
        &scratch[..len]
    }
}
