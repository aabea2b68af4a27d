//! Fixed-width values as integers and as bytes, the same for all types.

use arrow_buffer::IntervalMonthDayNano;

use crate::kernel::{
    order::Scalar,
    plain::{interval_bits, interval_of},
};

/// A value that a frozen segment encodes.
pub(crate) trait Fixed: Scalar {
    /// Integers can be coded as a difference.
    fn to_int(self) -> Option<i128>;
    /// Base + code, for types that `to_int` takes.
    fn from_code(base: i128, code: u64) -> Self;
    /// The code with which `from_code` gives the value.
    fn to_code(self, base: i128) -> u64;
    /// The bytes, little-endian, in the low part.
    fn to_raw(self) -> u128;
    /// The value whose bytes these are.
    fn from_raw(bits: u128) -> Self;

    /// The value at a position of values side by side; zeros where there is none.
    #[inline]
    fn from_bytes(values: &[u8], at: usize) -> Self {
        let start = at.saturating_mul(size_of::<Self>());
        let Some(bytes) = values
            .get(start..)
            .filter(|rest| rest.len() >= size_of::<Self>())
        else {
            return Self::default();
        };
        let mut bits = [0; 16];
        bits[..size_of::<Self>()].copy_from_slice(&bytes[..size_of::<Self>()]);
        Self::from_raw(u128::from_le_bytes(bits))
    }
}

macro_rules! integer {
    ($($ty:ty)*) => {$(
        impl Fixed for $ty {
            fn to_int(self) -> Option<i128> { Some(self.into()) }
            #[inline(always)]
            fn from_code(base: i128, code: u64) -> $ty {
                // Eight bytes wrap as sixteen would, and vectorise.
                if size_of::<$ty>() <= 8 {
                    (base as u64).wrapping_add(code) as $ty
                } else {
                    base.wrapping_add(code.into()) as $ty
                }
            }
            #[inline(always)]
            fn to_code(self, base: i128) -> u64 {
                (self as u64).wrapping_sub(base as u64)
            }
            #[inline]
            fn to_raw(self) -> u128 { self as u128 }
            #[inline]
            fn from_raw(bits: u128) -> $ty { bits as $ty }
        }
    )*};
}
integer!(u8 i16 i32 i64 i128);

macro_rules! other {
    ($ty:ty, $to:expr, $from:expr) => {
        impl Fixed for $ty {
            fn to_int(self) -> Option<i128> {
                None
            }
            fn from_code(base: i128, code: u64) -> $ty {
                Self::from_raw(base.wrapping_add(code.into()) as u128)
            }
            fn to_code(self, base: i128) -> u64 {
                self.to_raw().wrapping_sub(base as u128) as u64
            }
            #[inline]
            fn to_raw(self) -> u128 {
                $to(self)
            }
            #[inline]
            fn from_raw(bits: u128) -> $ty {
                $from(bits)
            }
        }
    };
}
other!(f32, |value: f32| value.to_bits().into(), |bits| {
    f32::from_bits(bits as u32)
});
other!(f64, |value: f64| value.to_bits().into(), |bits| {
    f64::from_bits(bits as u64)
});
other!([u8; 16], u128::from_le_bytes, u128::to_le_bytes);
other!(IntervalMonthDayNano, interval_bits, interval_of);

/// Evaluates an expression with the slot's type of a physical type of fixed width.
macro_rules! with_type {
    ($physical:expr, $ty:ident => $body:expr) => {
        match $physical {
            aerostat_types::Physical::Bool => {
                type $ty = u8;
                $body
            }
            aerostat_types::Physical::I16 => {
                type $ty = i16;
                $body
            }
            aerostat_types::Physical::I32 => {
                type $ty = i32;
                $body
            }
            aerostat_types::Physical::I64 => {
                type $ty = i64;
                $body
            }
            aerostat_types::Physical::I128 => {
                type $ty = i128;
                $body
            }
            aerostat_types::Physical::F32 => {
                type $ty = f32;
                $body
            }
            aerostat_types::Physical::F64 => {
                type $ty = f64;
                $body
            }
            aerostat_types::Physical::Bytes16 => {
                type $ty = [u8; 16];
                $body
            }
            aerostat_types::Physical::Interval => {
                type $ty = arrow_buffer::IntervalMonthDayNano;
                $body
            }
            aerostat_types::Physical::Variable => unreachable!("strings have no fixed width"),
        }
    };
}
pub(crate) use with_type;
