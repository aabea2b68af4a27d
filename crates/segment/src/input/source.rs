//! Rows as a segment takes them: Arrow columns, downcast once, checked against the attribute,
//! then read by typed loops; or the values of a single row, which are read as columns of one
//! value and cost no array.

use std::{ops::Range, slice, sync::LazyLock};

use aerostat_types::{Physical, SqlType};
use arrow_array::{
    Array, ArrayRef, ArrowPrimitiveType, BinaryArray, BinaryViewArray, BooleanArray,
    LargeBinaryArray, LargeStringArray, PrimitiveArray, StringArray, StringViewArray,
    cast::AsArray,
    types::{
        Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
        IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType,
    },
};
use arrow_buffer::{IntervalMonthDayNano, NullBuffer};
use arrow_schema::{DataType, TimeUnit};

use crate::{AttributeSpec, SegmentError, ValueRef, format::intern::INLINE_BYTES_MAX};

/// Rows on their way into a segment.
#[derive(Clone, Copy, Debug)]
pub enum NewRows<'a> {
    /// The columns of all attributes, of their [`SqlType::arrow`] types; texts and byte
    /// strings may come in any of Arrow's forms.
    Columns(&'a [ArrayRef]),
    /// A single row: the values of all attributes, each NULL or of its attribute's
    /// [physical](SqlType::physical) form.
    Row(&'a [ValueRef<'a>]),
}

impl<'a, C: AsRef<[ArrayRef]> + ?Sized> From<&'a C> for NewRows<'a> {
    fn from(columns: &'a C) -> Self {
        NewRows::Columns(columns.as_ref())
    }
}

impl<'a> NewRows<'a> {
    /// Attributes.
    pub fn width(self) -> usize {
        match self {
            NewRows::Columns(columns) => columns.len(),
            NewRows::Row(values) => values.len(),
        }
    }

    /// Whether an attribute is NULL in a row.
    pub fn is_null(self, attribute: usize, row: usize) -> bool {
        match self {
            NewRows::Columns(columns) => columns[attribute].is_null(row),
            NewRows::Row(values) => matches!(values[attribute], ValueRef::Null),
        }
    }

    /// Whether an attribute is NULL in any row.
    pub fn has_null(self, attribute: usize) -> bool {
        match self {
            NewRows::Columns(columns) => columns[attribute].logical_null_count() > 0,
            NewRows::Row(_) => self.is_null(attribute, 0),
        }
    }

    /// Rows, as the first attribute tells.
    pub(crate) fn len(self) -> usize {
        match self {
            NewRows::Columns(columns) => columns.first().map_or(0, |column| column.len()),
            NewRows::Row(_) => 1,
        }
    }

    /// Whether every attribute has this row.
    pub(crate) fn has_row(self, row: usize) -> bool {
        match self {
            NewRows::Columns(columns) => columns.iter().all(|column| row < column.len()),
            NewRows::Row(_) => row == 0,
        }
    }

    /// An attribute's values.
    ///
    /// # Errors
    /// [`SegmentError::ColumnType`] when they are of another type.
    pub(crate) fn source(
        self,
        attribute: usize,
        spec: AttributeSpec,
    ) -> Result<Source<'a>, SegmentError> {
        match self {
            NewRows::Columns(columns) => Source::of(&columns[attribute], attribute, spec),
            NewRows::Row(values) => Source::of_value(&values[attribute], attribute, spec),
        }
    }
}

/// A column, downcast.
pub(crate) struct Source<'a> {
    pub(crate) values: Values<'a>,
    /// Present only when there is a NULL.
    pub(crate) nulls: Option<&'a NullBuffer>,
}

/// A column's values by physical type.
#[derive(Clone, Copy)]
pub(crate) enum Values<'a> {
    Bool(&'a BooleanArray),
    I16(&'a [i16]),
    I32(&'a [i32]),
    I64(&'a [i64]),
    /// Decimals that are stored in eight bytes.
    Narrow(&'a [i128]),
    I128(&'a [i128]),
    F32(&'a [f32]),
    F64(&'a [f64]),
    Bytes16(&'a [[u8; 16]]),
    Interval(&'a [IntervalMonthDayNano]),
    Variable(Strings<'a>),
}

/// Texts or byte strings, in any of Arrow's forms.
#[derive(Clone, Copy)]
pub(crate) enum Strings<'a> {
    Utf8(&'a StringArray),
    LargeUtf8(&'a LargeStringArray),
    Utf8View(&'a StringViewArray),
    Binary(&'a BinaryArray),
    LargeBinary(&'a LargeBinaryArray),
    BinaryView(&'a BinaryViewArray),
    /// A single one.
    One(&'a [u8]),
}

impl<'a> Strings<'a> {
    /// The bytes of a value. What lies under a NULL is anything.
    pub(crate) fn get(self, at: usize) -> &'a [u8] {
        match self {
            Strings::Utf8(array) => array.value(at).as_bytes(),
            Strings::LargeUtf8(array) => array.value(at).as_bytes(),
            Strings::Utf8View(array) => array.value(at).as_bytes(),
            Strings::Binary(array) => array.value(at),
            Strings::LargeBinary(array) => array.value(at),
            Strings::BinaryView(array) => array.value(at),
            Strings::One(bytes) => bytes,
        }
    }
}

impl<'a> Strings<'a> {
    /// The views, of arrays that have them: equal views are equal values.
    pub(crate) fn views(self) -> Option<&'a [u128]> {
        match self {
            Strings::Utf8View(array) => Some(array.views()),
            Strings::BinaryView(array) => Some(array.views()),
            _ => None,
        }
    }
}

impl Strings<'_> {
    /// The sum of the lengths of values too long for a slot; values under a NULL count too.
    pub(crate) fn long_bytes(self, rows: Range<usize>) -> usize {
        fn sum(lengths: impl Iterator<Item = usize>) -> usize {
            lengths.filter(|&len| len > INLINE_BYTES_MAX).sum()
        }
        // Views begin with the length.
        let of_views = |views: &[u128]| sum(views.iter().map(|&view| view as u32 as usize));
        match self {
            Strings::Utf8View(array) => of_views(&array.views()[rows]),
            Strings::BinaryView(array) => of_views(&array.views()[rows]),
            Strings::Utf8(array) => sum(rows.map(|row| array.value_length(row) as usize)),
            Strings::LargeUtf8(array) => sum(rows.map(|row| array.value_length(row) as usize)),
            Strings::Binary(array) => sum(rows.map(|row| array.value_length(row) as usize)),
            Strings::LargeBinary(array) => sum(rows.map(|row| array.value_length(row) as usize)),
            Strings::One(bytes) => sum(rows.map(|_| bytes.len())),
        }
    }
}

impl<'a> Source<'a> {
    /// Downcasts the column for an attribute.
    ///
    /// # Errors
    /// [`SegmentError::ColumnType`] when the column is of another type.
    pub(crate) fn of(
        column: &'a ArrayRef,
        attribute: usize,
        spec: AttributeSpec,
    ) -> Result<Source<'a>, SegmentError> {
        let values = values(column, spec.ty).ok_or_else(|| SegmentError::ColumnType {
            attribute,
            expected: spec.ty.arrow(),
            actual: column.data_type().clone(),
        })?;
        Ok(Source {
            values,
            nulls: column.nulls().filter(|nulls| nulls.null_count() > 0),
        })
    }

    /// A single value as a column.
    ///
    /// # Errors
    /// As [`Source::of`], when it is of another physical form.
    fn of_value(
        value: &'a ValueRef<'a>,
        attribute: usize,
        spec: AttributeSpec,
    ) -> Result<Source<'a>, SegmentError> {
        let physical = spec.ty.physical();
        let value = match value {
            ValueRef::Null => return Ok(Source::null(physical)),
            value => value,
        };
        let values = match (physical, value) {
            (Physical::Bool, ValueRef::Bool(value)) => Values::Bool(&BOOLS[usize::from(*value)]),
            (Physical::I16, ValueRef::I16(value)) => Values::I16(slice::from_ref(value)),
            (Physical::I32, ValueRef::I32(value)) => Values::I32(slice::from_ref(value)),
            (Physical::I64, ValueRef::I64(value)) => Values::I64(slice::from_ref(value)),
            (Physical::I128, ValueRef::I128(value)) => Values::I128(slice::from_ref(value)),
            (Physical::F32, ValueRef::F32(value)) => Values::F32(slice::from_ref(value)),
            (Physical::F64, ValueRef::F64(value)) => Values::F64(slice::from_ref(value)),
            (Physical::Bytes16, ValueRef::Bytes16(value)) => {
                Values::Bytes16(slice::from_ref(value))
            }
            (Physical::Interval, ValueRef::Interval(value)) => {
                Values::Interval(slice::from_ref(value))
            }
            (Physical::Variable, ValueRef::Bytes(bytes)) => Values::Variable(Strings::One(bytes)),
            _ => {
                return Err(SegmentError::ColumnType {
                    attribute,
                    expected: spec.ty.arrow(),
                    actual: value.form(),
                });
            }
        };
        Ok(Source {
            values,
            nulls: None,
        })
    }

    /// A single NULL as a column.
    fn null(physical: Physical) -> Source<'a> {
        let values = match physical {
            Physical::Bool => Values::Bool(&BOOLS[0]),
            Physical::I16 => Values::I16(&[0]),
            Physical::I32 => Values::I32(&[0]),
            Physical::I64 => Values::I64(&[0]),
            Physical::I128 => Values::I128(&[0]),
            Physical::F32 => Values::F32(&[0.0]),
            Physical::F64 => Values::F64(&[0.0]),
            Physical::Bytes16 => Values::Bytes16(&[[0; 16]]),
            Physical::Interval => Values::Interval(&[IntervalMonthDayNano::ZERO]),
            Physical::Variable => Values::Variable(Strings::One(&[])),
        };
        Source {
            values,
            nulls: Some(&ONE_NULL),
        }
    }

    /// All attributes.
    pub(crate) fn all(
        rows: NewRows<'a>,
        attributes: &[AttributeSpec],
    ) -> Result<Vec<Source<'a>>, SegmentError> {
        assert_eq!(
            rows.width(),
            attributes.len(),
            "a column for each attribute"
        );
        attributes
            .iter()
            .enumerate()
            .map(|(at, &spec)| rows.source(at, spec))
            .collect()
    }

    pub(crate) fn is_null(&self, row: usize) -> bool {
        self.nulls.is_some_and(|nulls| nulls.is_null(row))
    }
}

/// False and true.
static BOOLS: LazyLock<[BooleanArray; 2]> =
    LazyLock::new(|| [false, true].map(|value| BooleanArray::from(vec![value])));

static ONE_NULL: LazyLock<NullBuffer> = LazyLock::new(|| NullBuffer::new_null(1));

fn values(column: &ArrayRef, ty: SqlType) -> Option<Values<'_>> {
    Some(match (ty.physical(), column.data_type()) {
        (Physical::Variable, data_type) => {
            Values::Variable(strings(column, data_type, ty.is_text())?)
        }
        (Physical::Bool, DataType::Boolean) => Values::Bool(column.as_boolean()),
        (Physical::I16, DataType::Int16) => Values::I16(slice::<Int16Type>(column)),
        (Physical::I32, DataType::Int32) if ty == SqlType::Integer => {
            Values::I32(slice::<Int32Type>(column))
        }
        (Physical::I32, DataType::Date32) if ty == SqlType::Date => {
            Values::I32(slice::<Date32Type>(column))
        }
        (Physical::I64, DataType::Int64) if ty == SqlType::BigInt => {
            Values::I64(slice::<Int64Type>(column))
        }
        (Physical::I64, DataType::Time64(TimeUnit::Microsecond)) if ty == SqlType::Time => {
            Values::I64(slice::<Time64MicrosecondType>(column))
        }
        // The zone is how to show it; the value counts microseconds in UTC.
        (Physical::I64, DataType::Timestamp(TimeUnit::Microsecond, zone))
            if ty
                == (if zone.is_some() {
                    SqlType::TimestampTz
                } else {
                    SqlType::Timestamp
                }) =>
        {
            Values::I64(slice::<TimestampMicrosecondType>(column))
        }
        (physical, DataType::Decimal128(_, scale)) if matches!(ty, SqlType::Numeric { scale: own, .. } if own == *scale) =>
        {
            let values = slice::<Decimal128Type>(column);
            if physical == Physical::I64 {
                Values::Narrow(values)
            } else {
                Values::I128(values)
            }
        }
        (Physical::F32, DataType::Float32) => Values::F32(slice::<Float32Type>(column)),
        (Physical::F64, DataType::Float64) => Values::F64(slice::<Float64Type>(column)),
        (Physical::Bytes16, DataType::FixedSizeBinary(16)) => {
            let (values, rest) = column.as_fixed_size_binary().value_data().as_chunks();
            debug_assert!(rest.is_empty());
            Values::Bytes16(values)
        }
        (Physical::Interval, DataType::Interval(arrow_schema::IntervalUnit::MonthDayNano)) => {
            Values::Interval(slice::<IntervalMonthDayNanoType>(column))
        }
        _ => return None,
    })
}

fn strings<'a>(column: &'a ArrayRef, data_type: &DataType, text: bool) -> Option<Strings<'a>> {
    Some(match data_type {
        DataType::Utf8 if text => Strings::Utf8(column.as_string()),
        DataType::LargeUtf8 if text => Strings::LargeUtf8(column.as_string()),
        DataType::Utf8View if text => Strings::Utf8View(column.as_string_view()),
        DataType::Binary if !text => Strings::Binary(column.as_binary()),
        DataType::LargeBinary if !text => Strings::LargeBinary(column.as_binary()),
        DataType::BinaryView if !text => Strings::BinaryView(column.as_binary_view()),
        _ => return None,
    })
}

fn slice<T: ArrowPrimitiveType>(column: &ArrayRef) -> &[T::Native] {
    let array: &PrimitiveArray<T> = column.as_primitive();
    array.values()
}
