//! A single value, borrowed from the segment it was read from, or from the row it is written
//! with.

use arrow_buffer::IntervalMonthDayNano;
use arrow_schema::{DataType, IntervalUnit};

/// A value in its [physical](aerostat_types::SqlType::physical) form.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ValueRef<'a> {
    /// NULL.
    Null,
    /// `boolean`.
    Bool(bool),
    /// `smallint`.
    I16(i16),
    /// `integer`, and days of a `date`.
    I32(i32),
    /// `bigint`, microseconds of times and timestamps, unscaled decimals of up to 18 digits.
    I64(i64),
    /// Unscaled decimals of more than 18 digits.
    I128(i128),
    /// `real`.
    F32(f32),
    /// `double precision`.
    F64(f64),
    /// `uuid`.
    Bytes16([u8; 16]),
    /// `interval`.
    Interval(IntervalMonthDayNano),
    /// A text, which is UTF-8, or a byte string.
    Bytes(&'a [u8]),
}

impl ValueRef<'_> {
    /// The Arrow type that holds such values as they are.
    pub(crate) fn form(&self) -> DataType {
        match self {
            ValueRef::Null => DataType::Null,
            ValueRef::Bool(_) => DataType::Boolean,
            ValueRef::I16(_) => DataType::Int16,
            ValueRef::I32(_) => DataType::Int32,
            ValueRef::I64(_) => DataType::Int64,
            ValueRef::I128(_) => DataType::Decimal128(38, 0),
            ValueRef::F32(_) => DataType::Float32,
            ValueRef::F64(_) => DataType::Float64,
            ValueRef::Bytes16(_) => DataType::FixedSizeBinary(16),
            ValueRef::Interval(_) => DataType::Interval(IntervalUnit::MonthDayNano),
            ValueRef::Bytes(_) => DataType::Binary,
        }
    }
}

/// A byte of a slot is a boolean's.
impl From<u8> for ValueRef<'_> {
    fn from(value: u8) -> Self {
        ValueRef::Bool(value != 0)
    }
}

macro_rules! from {
    ($($ty:ty => $variant:ident),*) => {$(
        impl From<$ty> for ValueRef<'_> {
            fn from(value: $ty) -> Self {
                ValueRef::$variant(value)
            }
        }
    )*};
}
from!(i16 => I16, i32 => I32, i64 => I64, i128 => I128, f32 => F32, f64 => F64);
from!([u8; 16] => Bytes16, IntervalMonthDayNano => Interval);
