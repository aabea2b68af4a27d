//! One column of a batch, prepared so that any of its values can be written in either form.
//!
//! The column's declared type decides the form. An array of another Arrow type is cast once per
//! batch, so that writing a value is a match and a store.

use aerostat_types::{ErrorKind, SqlType, text};
use arrow::{
    array::{
        Array, ArrayRef, AsArray, BinaryArray, BinaryViewArray, BooleanArray, Date32Array,
        Decimal128Array, FixedSizeBinaryArray, Float32Array, Float64Array, Int16Array, Int32Array,
        Int64Array, IntervalMonthDayNanoArray, StringArray, StringViewArray,
        Time64MicrosecondArray, TimestampMicrosecondArray,
    },
    compute::{CastOptions, cast_with_options},
    datatypes::{DataType, IntervalUnit, TimeUnit},
};

use super::{
    Texts, Zone,
    array::ListColumn,
    numeric,
    oid::{Shape, shape},
    plain::{interval, put_date, put_interval, put_timestamp},
};
use crate::{api::ColumnDescription, sqlstate::WireError, wire::Format};

/// A column's values. The arrays are shared, not copied.
#[derive(Debug)]
pub(crate) enum Column {
    Null,
    Bool(BooleanArray),
    Int2(Int16Array),
    Int4(Int32Array),
    Int8(Int64Array),
    Oid(Int64Array),
    Float4(Float32Array),
    Float8(Float64Array),
    Numeric(Decimal128Array, i8),
    Text(StringArray),
    TextView(StringViewArray),
    /// `char(n)`: values are padded with blanks to n characters.
    Char(StringViewArray, u32),
    Bytea(BinaryArray),
    ByteaView(BinaryViewArray),
    Uuid(FixedSizeBinaryArray),
    Date(Date32Array),
    Time(Time64MicrosecondArray),
    Timestamp(TimestampMicrosecondArray),
    TimestampTz(TimestampMicrosecondArray, Zone),
    Interval(IntervalMonthDayNanoArray),
    List(Box<ListColumn>),
}

fn internal(error: impl std::fmt::Display) -> WireError {
    WireError::new(
        ErrorKind::Internal,
        format!("cannot encode a column: {error}"),
    )
}

fn is_of_rows(data_type: &DataType) -> bool {
    match data_type {
        DataType::Struct(_) => true,
        DataType::List(item) => is_of_rows(item.data_type()),
        _ => false,
    }
}

fn cast_to(array: &ArrayRef, to: &DataType) -> Result<ArrayRef, WireError> {
    if array.data_type() == to {
        return Ok(array.clone());
    }
    if is_of_rows(array.data_type()) {
        return Err(WireError::new(
            ErrorKind::FeatureNotSupported,
            "rows as values of a result are not supported",
        ));
    }
    let options = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    cast_with_options(array, to, &options).map_err(internal)
}

impl Column {
    /// Which bytes of its values are texts.
    pub(crate) fn texts(&self, format: Format) -> Option<Texts> {
        match (format, self) {
            (Format::Text, _)
            | (Format::Binary, Column::Text(_) | Column::TextView(_) | Column::Char(..)) => {
                Some(Texts::Whole)
            }
            (Format::Binary, Column::List(list)) if list.is_of_texts() => Some(Texts::Items),
            (Format::Binary, _) => None,
        }
    }

    /// An array as a column of the declared type.
    pub(crate) fn new(
        array: &ArrayRef,
        declared: &ColumnDescription,
        zone: Zone,
    ) -> Result<Self, WireError> {
        let oid = match (shape(declared.oid), declared.ty) {
            (Shape::Other, Some(ty)) => ty.oid(),
            _ => declared.oid,
        };
        Self::of_type(array, oid, declared.typmod, zone)
    }

    /// An array as values of the type with this number.
    pub(super) fn of_type(
        array: &ArrayRef,
        oid: u32,
        typmod: i32,
        zone: Zone,
    ) -> Result<Self, WireError> {
        if *array.data_type() == DataType::Null {
            return Ok(Column::Null);
        }
        let is_text = matches!(
            array.data_type(),
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View
        );
        let shape = shape(oid);
        // A catalogue's view may return a regclass or an array as its text.
        if is_text
            && matches!(
                shape,
                Shape::Oid | Shape::Array(_) | Shape::Vector(_) | Shape::Other
            )
        {
            return Self::text(array);
        }
        let as_type = |to: DataType| cast_to(array, &to);
        Ok(match shape {
            Shape::Bool => Column::Bool(as_type(DataType::Boolean)?.as_boolean().clone()),
            Shape::Int2 => Column::Int2(as_type(DataType::Int16)?.as_primitive().clone()),
            Shape::Int4 => Column::Int4(as_type(DataType::Int32)?.as_primitive().clone()),
            Shape::Int8 => Column::Int8(as_type(DataType::Int64)?.as_primitive().clone()),
            Shape::Oid => Column::Oid(as_type(DataType::Int64)?.as_primitive().clone()),
            Shape::Float4 => Column::Float4(as_type(DataType::Float32)?.as_primitive().clone()),
            Shape::Float8 => Column::Float8(as_type(DataType::Float64)?.as_primitive().clone()),
            Shape::Numeric => Self::numeric(array)?,
            Shape::Text => Self::text(array)?,
            Shape::Char => {
                let texts = as_type(DataType::Utf8View)?.as_string_view().clone();
                match u32::try_from(typmod - 4) {
                    Ok(n) if typmod >= 4 => Column::Char(texts, n),
                    _ => Column::TextView(texts),
                }
            }
            Shape::Bytea => match array.data_type() {
                DataType::Binary => Column::Bytea(array.as_binary().clone()),
                _ => Column::ByteaView(as_type(DataType::BinaryView)?.as_binary_view().clone()),
            },
            Shape::Uuid => Column::Uuid(
                as_type(DataType::FixedSizeBinary(16))?
                    .as_fixed_size_binary()
                    .clone(),
            ),
            Shape::Date => Column::Date(as_type(DataType::Date32)?.as_primitive().clone()),
            Shape::Time => Column::Time(
                as_type(DataType::Time64(TimeUnit::Microsecond))?
                    .as_primitive()
                    .clone(),
            ),
            Shape::Timestamp => Column::Timestamp(Self::timestamps(array)?),
            Shape::TimestampTz => Column::TimestampTz(Self::timestamps(array)?, zone),
            Shape::Interval => Column::Interval(
                as_type(DataType::Interval(IntervalUnit::MonthDayNano))?
                    .as_primitive()
                    .clone(),
            ),
            Shape::Array(element) => Column::List(Box::new(ListColumn::new(
                array,
                (element, typmod),
                false,
                zone,
            )?)),
            Shape::Vector(element) => Column::List(Box::new(ListColumn::new(
                array,
                (element, typmod),
                true,
                zone,
            )?)),
            Shape::Other => match array.data_type() {
                DataType::List(field)
                | DataType::LargeList(field)
                | DataType::FixedSizeList(field, _) => {
                    let element = SqlType::of_arrow(field.data_type()).map_or(25, SqlType::oid);
                    Column::List(Box::new(ListColumn::new(
                        array,
                        (element, typmod),
                        false,
                        zone,
                    )?))
                }
                other => match SqlType::of_arrow(other) {
                    Some(ty) => {
                        assert!(
                            !matches!(self::shape(ty.oid()), Shape::Other),
                            "{ty} has a form on the wire"
                        );
                        Self::of_type(array, ty.oid(), typmod, zone)?
                    }
                    None => Self::text(array)?,
                },
            },
        })
    }

    fn text(array: &ArrayRef) -> Result<Self, WireError> {
        Ok(match array.data_type() {
            DataType::Utf8 => Column::Text(array.as_string().clone()),
            DataType::Utf8View => Column::TextView(array.as_string_view().clone()),
            _ => Column::TextView(
                cast_to(array, &DataType::Utf8View)?
                    .as_string_view()
                    .clone(),
            ),
        })
    }

    fn numeric(array: &ArrayRef) -> Result<Self, WireError> {
        let target = match array.data_type() {
            DataType::Decimal128(_, _) => array.data_type().clone(),
            DataType::Decimal32(p, s) | DataType::Decimal64(p, s) => DataType::Decimal128(*p, *s),
            DataType::Decimal256(_, scale) => DataType::Decimal128(38, *scale),
            data_type if data_type.is_integer() => DataType::Decimal128(38, 0),
            _ => DataType::Decimal128(38, 10),
        };
        let DataType::Decimal128(_, scale) = target else {
            return Err(internal("numeric"));
        };
        Ok(Column::Numeric(
            cast_to(array, &target)?.as_primitive().clone(),
            scale,
        ))
    }

    /// Microseconds, in UTC where the array has a zone.
    fn timestamps(array: &ArrayRef) -> Result<TimestampMicrosecondArray, WireError> {
        let zone = match array.data_type() {
            DataType::Timestamp(_, zone) => zone.clone(),
            _ => None,
        };
        Ok(
            cast_to(array, &DataType::Timestamp(TimeUnit::Microsecond, zone))?
                .as_primitive()
                .clone(),
        )
    }

    pub(crate) fn is_null(&self, row: usize) -> bool {
        match self {
            Column::Null => true,
            Column::Bool(a) => a.is_null(row),
            Column::Int2(a) => a.is_null(row),
            Column::Int4(a) => a.is_null(row),
            Column::Int8(a) | Column::Oid(a) => a.is_null(row),
            Column::Float4(a) => a.is_null(row),
            Column::Float8(a) => a.is_null(row),
            Column::Numeric(a, _) => a.is_null(row),
            Column::Text(a) => a.is_null(row),
            Column::TextView(a) | Column::Char(a, _) => a.is_null(row),
            Column::Bytea(a) => a.is_null(row),
            Column::ByteaView(a) => a.is_null(row),
            Column::Uuid(a) => a.is_null(row),
            Column::Date(a) => a.is_null(row),
            Column::Time(a) => a.is_null(row),
            Column::Timestamp(a) | Column::TimestampTz(a, _) => a.is_null(row),
            Column::Interval(a) => a.is_null(row),
            Column::List(list) => list.is_null(row),
        }
    }

    /// Whether the text form never contains a delimiter, quote, backslash or line end.
    pub(crate) fn is_plain(&self) -> bool {
        matches!(
            self,
            Column::Null
                | Column::Bool(_)
                | Column::Int2(_)
                | Column::Int4(_)
                | Column::Int8(_)
                | Column::Oid(_)
                | Column::Float4(_)
                | Column::Float8(_)
                | Column::Numeric(..)
                | Column::Uuid(_)
        )
    }

    /// Appends a value that is not NULL.
    pub(crate) fn put(
        &self,
        row: usize,
        format: Format,
        out: &mut Vec<u8>,
    ) -> Result<(), WireError> {
        match format {
            Format::Text => self.put_text(row, out),
            Format::Binary => self.put_binary(row, out),
        }
    }

    pub(crate) fn put_text(&self, row: usize, out: &mut Vec<u8>) -> Result<(), WireError> {
        match self {
            Column::Null => {}
            Column::Bool(a) => text::format_bool(a.value(row), out),
            Column::Int2(a) => text::format_int(i64::from(a.value(row)), out),
            Column::Int4(a) => text::format_int(i64::from(a.value(row)), out),
            Column::Int8(a) | Column::Oid(a) => text::format_int(a.value(row), out),
            Column::Float4(a) => text::format_f32(a.value(row), out),
            Column::Float8(a) => text::format_f64(a.value(row), out),
            Column::Numeric(a, scale) => text::format_numeric(a.value(row), *scale, out),
            Column::Text(a) => out.extend_from_slice(a.value(row).as_bytes()),
            Column::TextView(a) => out.extend_from_slice(a.value(row).as_bytes()),
            Column::Char(a, n) => text::format_char(a.value(row), *n, out),
            Column::Bytea(a) => text::format_bytea(a.value(row), out),
            Column::ByteaView(a) => text::format_bytea(a.value(row), out),
            Column::Uuid(a) => text::format_uuid(&uuid(a, row)?, out),
            Column::Date(a) => text::format_date(a.value(row), out),
            Column::Time(a) => text::format_time(a.value(row), out),
            Column::Timestamp(a) => text::format_timestamp(a.value(row), out),
            Column::TimestampTz(a, zone) => {
                let micros = a.value(row);
                text::format_timestamptz(micros, zone.offset_at(micros), out);
            }
            Column::Interval(a) => text::format_interval(interval(a.value(row)), out),
            Column::List(list) => return list.put_text(row, out),
        }
        Ok(())
    }

    fn put_binary(&self, row: usize, out: &mut Vec<u8>) -> Result<(), WireError> {
        match self {
            Column::Null => {}
            Column::Bool(a) => out.push(u8::from(a.value(row))),
            Column::Int2(a) => out.extend_from_slice(&a.value(row).to_be_bytes()),
            Column::Int4(a) => out.extend_from_slice(&a.value(row).to_be_bytes()),
            Column::Int8(a) => out.extend_from_slice(&a.value(row).to_be_bytes()),
            Column::Oid(a) => out.extend_from_slice(&(a.value(row) as u32).to_be_bytes()),
            Column::Float4(a) => out.extend_from_slice(&a.value(row).to_be_bytes()),
            Column::Float8(a) => out.extend_from_slice(&a.value(row).to_be_bytes()),
            Column::Numeric(a, scale) => numeric::put(a.value(row), *scale, out),
            Column::Bytea(a) => out.extend_from_slice(a.value(row)),
            Column::ByteaView(a) => out.extend_from_slice(a.value(row)),
            Column::Uuid(a) => out.extend_from_slice(&uuid(a, row)?),
            Column::Date(a) => put_date(a.value(row), out),
            Column::Time(a) => out.extend_from_slice(&a.value(row).to_be_bytes()),
            Column::Timestamp(a) | Column::TimestampTz(a, _) => {
                return put_timestamp(a.value(row), out);
            }
            Column::Interval(a) => put_interval(interval(a.value(row)), out),
            Column::List(list) => return list.put_binary(row, out),
            // The binary form of a text is the text.
            Column::Text(_) | Column::TextView(_) | Column::Char(..) => {
                return self.put_text(row, out);
            }
        }
        Ok(())
    }
}

fn uuid(array: &FixedSizeBinaryArray, row: usize) -> Result<[u8; 16], WireError> {
    array.value(row).try_into().map_err(internal)
}
