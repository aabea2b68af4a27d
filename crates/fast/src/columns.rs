//! Values as columns have them: the arrays of a batch, physical forms, integers of any width.

use std::sync::Arc;

use aerostat_storage::ValueRef;
use aerostat_types::{Physical, SqlType};
use arrow_array::{
    ArrayRef, ArrowPrimitiveType, BinaryViewArray, BooleanArray, FixedSizeBinaryArray,
    PrimitiveArray, StringViewArray,
    builder::FixedSizeBinaryBuilder,
    types::{
        Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
        IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType,
    },
};

/// The values as an array of the type's Arrow form. Each is NULL or of the type.
pub(crate) fn array<'a>(ty: SqlType, values: impl Iterator<Item = ValueRef<'a>>) -> ArrayRef {
    match ty {
        SqlType::Boolean => {
            let values = values.map(|value| match value {
                ValueRef::Bool(value) => Some(value),
                _ => None,
            });
            Arc::new(values.collect::<BooleanArray>())
        }
        SqlType::SmallInt => integers::<Int16Type>(ty, values),
        SqlType::Integer => integers::<Int32Type>(ty, values),
        SqlType::BigInt => integers::<Int64Type>(ty, values),
        SqlType::Date => integers::<Date32Type>(ty, values),
        SqlType::Time => integers::<Time64MicrosecondType>(ty, values),
        SqlType::Timestamp | SqlType::TimestampTz => {
            integers::<TimestampMicrosecondType>(ty, values)
        }
        SqlType::Numeric { .. } => integers::<Decimal128Type>(ty, values),
        SqlType::Real => primitive::<Float32Type>(
            ty,
            values.map(|value| match value {
                ValueRef::F32(value) => Some(value),
                _ => None,
            }),
        ),
        SqlType::Double => primitive::<Float64Type>(
            ty,
            values.map(|value| match value {
                ValueRef::F64(value) => Some(value),
                _ => None,
            }),
        ),
        SqlType::Interval => primitive::<IntervalMonthDayNanoType>(
            ty,
            values.map(|value| match value {
                ValueRef::Interval(value) => Some(value),
                _ => None,
            }),
        ),
        SqlType::Char(_) | SqlType::Varchar(_) | SqlType::Text => {
            let texts = values.map(|value| {
                bytes(value).map(|bytes| std::str::from_utf8(bytes).expect("texts are UTF-8"))
            });
            Arc::new(texts.collect::<StringViewArray>())
        }
        SqlType::Bytea => Arc::new(values.map(bytes).collect::<BinaryViewArray>()),
        SqlType::Uuid => Arc::new(uuids(values)),
    }
}

/// A value in the physical form of a type it is of; `None` if it is not.
pub(crate) fn physical(ty: SqlType, value: ValueRef<'_>) -> Option<ValueRef<'_>> {
    let narrow = || as_wide(value);
    Some(match (ty.physical(), value) {
        (_, ValueRef::Null)
        | (Physical::Bool, ValueRef::Bool(_))
        | (Physical::I16, ValueRef::I16(_))
        | (Physical::I32, ValueRef::I32(_))
        | (Physical::I64, ValueRef::I64(_))
        | (Physical::I128, ValueRef::I128(_))
        | (Physical::F32, ValueRef::F32(_))
        | (Physical::F64, ValueRef::F64(_))
        | (Physical::Bytes16, ValueRef::Bytes16(_))
        | (Physical::Interval, ValueRef::Interval(_))
        | (Physical::Variable, ValueRef::Bytes(_)) => value,
        (Physical::I16, _) => ValueRef::I16(narrow()?.try_into().ok()?),
        (Physical::I32, _) => ValueRef::I32(narrow()?.try_into().ok()?),
        (Physical::I64, _) => ValueRef::I64(narrow()?.try_into().ok()?),
        (Physical::I128, _) => ValueRef::I128(narrow()?),
        _ => return None,
    })
}

/// What is compared and computed with as a number.
pub(crate) fn as_wide(value: ValueRef<'_>) -> Option<i128> {
    match value {
        ValueRef::Bool(value) => Some(i128::from(value)),
        ValueRef::I16(value) => Some(i128::from(value)),
        ValueRef::I32(value) => Some(i128::from(value)),
        ValueRef::I64(value) => Some(i128::from(value)),
        ValueRef::I128(value) => Some(value),
        _ => None,
    }
}

fn bytes(value: ValueRef<'_>) -> Option<&[u8]> {
    match value {
        ValueRef::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}

fn integers<'a, T>(ty: SqlType, values: impl Iterator<Item = ValueRef<'a>>) -> ArrayRef
where
    T: ArrowPrimitiveType<Native: TryFrom<i128>>,
{
    let narrow = |value| {
        as_wide(value).map(|value| {
            let narrow = T::Native::try_from(value);
            narrow
                .ok()
                .expect("a value was fitted to its column's type")
        })
    };
    primitive::<T>(ty, values.map(narrow))
}

fn primitive<T: ArrowPrimitiveType>(
    ty: SqlType,
    values: impl Iterator<Item = Option<T::Native>>,
) -> ArrayRef {
    let array: PrimitiveArray<T> = values.collect();
    Arc::new(array.with_data_type(ty.arrow()))
}

fn uuids<'a>(values: impl Iterator<Item = ValueRef<'a>>) -> FixedSizeBinaryArray {
    let mut builder = FixedSizeBinaryBuilder::new(16);
    for value in values {
        match value {
            ValueRef::Bytes16(bytes) => builder
                .append_value(bytes)
                .expect("a uuid has sixteen bytes"),
            _ => builder.append_null(),
        }
    }
    builder.finish()
}
