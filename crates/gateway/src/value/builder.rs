//! From values on the wire to Arrow arrays: the columns of COPY.

use std::sync::Arc;

use aerostat_types::{ErrorKind, SqlType, text};
use arrow::{
    array::{
        ArrayRef, BinaryViewBuilder, BooleanBuilder, Date32Builder, Decimal128Builder,
        FixedSizeBinaryBuilder, Float32Builder, Float64Builder, Int16Builder, Int32Builder,
        Int64Builder, IntervalMonthDayNanoBuilder, PrimitiveBuilder, StringViewBuilder,
        Time64MicrosecondBuilder, TimestampMicrosecondBuilder,
    },
    datatypes::ArrowPrimitiveType,
};

use super::{TextField, Zone, plain};
use crate::{
    api::{Value, check_value_bytes, fitted_text},
    sqlstate::WireError,
    wire::{Format, utf8},
};

/// Gathers values of one SQL type.
#[derive(Debug)]
pub(crate) struct Builder {
    ty: SqlType,
    zone: Zone,
    values: Values,
    scratch: Vec<u8>,
}

#[derive(Debug)]
enum Values {
    Bool(BooleanBuilder),
    Int2(Int16Builder),
    Int4(Int32Builder),
    Int8(Int64Builder),
    Float4(Float32Builder),
    Float8(Float64Builder),
    Numeric(Decimal128Builder),
    Text(StringViewBuilder),
    Bytea(BinaryViewBuilder),
    Uuid(FixedSizeBinaryBuilder),
    Date(Date32Builder),
    Time(Time64MicrosecondBuilder),
    Timestamp(TimestampMicrosecondBuilder),
    Interval(IntervalMonthDayNanoBuilder),
}

impl Builder {
    /// `rows` is how many values are expected.
    pub(crate) fn new(ty: SqlType, zone: Zone, rows: usize) -> Self {
        let values = match ty {
            SqlType::Boolean => Values::Bool(BooleanBuilder::with_capacity(rows)),
            SqlType::SmallInt => Values::Int2(Int16Builder::with_capacity(rows)),
            SqlType::Integer => Values::Int4(Int32Builder::with_capacity(rows)),
            SqlType::BigInt => Values::Int8(Int64Builder::with_capacity(rows)),
            SqlType::Real => Values::Float4(Float32Builder::with_capacity(rows)),
            SqlType::Double => Values::Float8(Float64Builder::with_capacity(rows)),
            SqlType::Numeric { .. } => {
                let builder = Decimal128Builder::with_capacity(rows).with_data_type(ty.arrow());
                Values::Numeric(builder)
            }
            SqlType::Char(_) | SqlType::Varchar(_) | SqlType::Text => {
                Values::Text(StringViewBuilder::with_capacity(rows))
            }
            SqlType::Bytea => Values::Bytea(BinaryViewBuilder::with_capacity(rows)),
            SqlType::Uuid => Values::Uuid(FixedSizeBinaryBuilder::with_capacity(rows, 16)),
            SqlType::Date => Values::Date(Date32Builder::with_capacity(rows)),
            SqlType::Time => Values::Time(Time64MicrosecondBuilder::with_capacity(rows)),
            SqlType::Timestamp | SqlType::TimestampTz => Values::Timestamp(
                TimestampMicrosecondBuilder::with_capacity(rows).with_data_type(ty.arrow()),
            ),
            SqlType::Interval => Values::Interval(IntervalMonthDayNanoBuilder::with_capacity(rows)),
        };
        Self {
            ty,
            zone,
            values,
            scratch: Vec::new(),
        }
    }

    /// Appends NULL.
    pub(crate) fn push_null(&mut self) {
        match &mut self.values {
            Values::Bool(b) => b.append_null(),
            Values::Int2(b) => b.append_null(),
            Values::Int4(b) => b.append_null(),
            Values::Int8(b) => b.append_null(),
            Values::Float4(b) => b.append_null(),
            Values::Float8(b) => b.append_null(),
            Values::Numeric(b) => b.append_null(),
            Values::Text(b) => b.append_null(),
            Values::Bytea(b) => b.append_null(),
            Values::Uuid(b) => b.append_null(),
            Values::Date(b) => b.append_null(),
            Values::Time(b) => b.append_null(),
            Values::Timestamp(b) => b.append_null(),
            Values::Interval(b) => b.append_null(),
        }
    }

    /// Appends a value from either form.
    pub(crate) fn push(&mut self, bytes: &[u8], format: Format) -> Result<(), WireError> {
        match format {
            Format::Text => self.push_text(utf8(bytes)?),
            Format::Binary => self.push_binary(bytes),
        }
    }

    /// Appends a value from its text form. The text must not contain NUL.
    pub(crate) fn push_text(&mut self, value: &str) -> Result<(), WireError> {
        match &mut self.values {
            Values::Text(_) => self.push_string(value),
            Values::Bytea(b) => {
                self.scratch.clear();
                text::parse_bytea_into(value, &mut self.scratch)?;
                check_value_bytes(self.scratch.len())?;
                b.try_append_value(&self.scratch).map_err(too_many_bytes)
            }
            _ => {
                let value = Value::read(self.ty, &self.zone, value)?;
                self.push_value(&value)
            }
        }
    }

    /// Appends the values of fields, which contain no NUL; `null` is the text that stands for NULL,
    /// if there is one.
    ///
    /// # Errors
    /// The error of the first bad value, and how many good ones came before it.
    pub(crate) fn push_fields<'a>(
        &mut self,
        fields: impl Iterator<Item = TextField<'a>>,
        null: Option<&str>,
    ) -> Result<(), (usize, WireError)> {
        match &mut self.values {
            Values::Int2(b) => push_integers(b, fields, null, text::parse_i16),
            Values::Int4(b) => push_integers(b, fields, null, text::parse_i32),
            Values::Int8(b) => push_integers(b, fields, null, text::parse_i64),
            Values::Text(b) => match self.ty {
                SqlType::Char(n) => push_strings(b, fields, null, |value| text::fit_char(value, n)),
                SqlType::Varchar(Some(n)) => {
                    push_strings(b, fields, null, |value| text::fit_varchar(value, n))
                }
                _ => push_strings(b, fields, null, Ok),
            },
            _ => fields.enumerate().try_for_each(|(nth, field)| {
                let value = field.text();
                if null == Some(value) {
                    self.push_null();
                    return Ok(());
                }
                self.push_text(value).map_err(|error| (nth, error))
            }),
        }
    }

    fn push_string(&mut self, value: &str) -> Result<(), WireError> {
        let value = fitted_text(self.ty, value)?;
        if let Values::Text(b) = &mut self.values {
            b.try_append_value(value).map_err(too_many_bytes)?;
        }
        Ok(())
    }

    fn push_binary(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        match &mut self.values {
            Values::Text(_) => self.push_string(utf8(bytes)?),
            Values::Bytea(b) => {
                check_value_bytes(bytes.len())?;
                b.try_append_value(bytes).map_err(too_many_bytes)
            }
            _ => {
                let value = plain::read_binary(self.ty, self.zone, bytes)?;
                self.push_value(&value)
            }
        }
    }

    /// Appends a value of the type.
    fn push_value(&mut self, value: &Value) -> Result<(), WireError> {
        match (&mut self.values, value) {
            (_, Value::Null) => self.push_null(),
            (Values::Bool(b), Value::Bool(value)) => b.append_value(*value),
            (Values::Int2(b), Value::I16(value)) => b.append_value(*value),
            (Values::Int4(b), Value::I32(value)) => b.append_value(*value),
            (Values::Int8(b), Value::I64(value)) => b.append_value(*value),
            (Values::Float4(b), Value::F32(value)) => b.append_value(*value),
            (Values::Float8(b), Value::F64(value)) => b.append_value(*value),
            (Values::Numeric(b), Value::I128(value)) => b.append_value(*value),
            (Values::Text(b), Value::Text(value)) => {
                b.try_append_value(value).map_err(too_many_bytes)?;
            }
            (Values::Bytea(b), Value::Bytes(value)) => {
                b.try_append_value(value).map_err(too_many_bytes)?;
            }
            (Values::Uuid(b), Value::Uuid(value)) => {
                b.append_value(value).map_err(too_many_bytes)?;
            }
            (Values::Date(b), Value::I32(days)) => b.append_value(*days),
            (Values::Time(b), Value::I64(micros)) => b.append_value(*micros),
            (Values::Timestamp(b), Value::I64(micros)) => b.append_value(*micros),
            (Values::Interval(b), Value::Interval(value)) => b.append_value(*value),
            _ => {
                return Err(WireError::new(
                    ErrorKind::Internal,
                    format!("a value is not of type {}", self.ty),
                ));
            }
        }
        Ok(())
    }

    /// Starts again, with room for this number of values; after [`Self::finish`] there is no room.
    pub(crate) fn restart(&mut self, rows: usize) {
        *self = Self::new(self.ty, self.zone, rows);
    }

    /// The gathered values, of type [`SqlType::arrow`]. The builder starts again.
    pub(crate) fn finish(&mut self) -> ArrayRef {
        match &mut self.values {
            Values::Bool(b) => Arc::new(b.finish()),
            Values::Int2(b) => Arc::new(b.finish()),
            Values::Int4(b) => Arc::new(b.finish()),
            Values::Int8(b) => Arc::new(b.finish()),
            Values::Float4(b) => Arc::new(b.finish()),
            Values::Float8(b) => Arc::new(b.finish()),
            Values::Numeric(b) => Arc::new(b.finish()),
            Values::Text(b) => Arc::new(b.finish()),
            Values::Bytea(b) => Arc::new(b.finish()),
            Values::Uuid(b) => Arc::new(b.finish()),
            Values::Date(b) => Arc::new(b.finish()),
            Values::Time(b) => Arc::new(b.finish()),
            Values::Timestamp(b) => Arc::new(b.finish()),
            Values::Interval(b) => Arc::new(b.finish()),
        }
    }
}

/// How many integers are gathered before a builder takes them together.
const RUN: usize = 64;

/// Appends integers; see [`Builder::push_fields`].
fn push_integers<'a, T: ArrowPrimitiveType<Native: TryFrom<i32>>>(
    builder: &mut PrimitiveBuilder<T>,
    fields: impl Iterator<Item = TextField<'a>>,
    null: Option<&str>,
    parse: impl Fn(&str) -> Result<T::Native, text::TextError>,
) -> Result<(), (usize, WireError)> {
    // NULL may be written as a number: `NULL '0'`.
    let short_may_be_null = null.is_some_and(|null| text::parse_i64(null).is_ok());
    let (mut run, mut gathered) = ([T::Native::default(); RUN], 0);
    for (nth, field) in fields.enumerate() {
        if !short_may_be_null
            && let Some(short) = field.short_integer()
            && let Ok(value) = T::Native::try_from(short)
        {
            run[gathered] = value;
            gathered += 1;
            if gathered == RUN {
                builder.append_slice(&run);
                gathered = 0;
            }
            continue;
        }
        builder.append_slice(&run[..std::mem::take(&mut gathered)]);
        let value = field.text();
        if null == Some(value) {
            builder.append_null();
        } else {
            let value = parse(value).map_err(|error| (nth, WireError::from(error)))?;
            builder.append_value(value);
        }
    }
    builder.append_slice(&run[..gathered]);
    Ok(())
}

/// Appends texts, each made to fit its type; see [`Builder::push_fields`].
fn push_strings<'a>(
    builder: &mut StringViewBuilder,
    fields: impl Iterator<Item = TextField<'a>>,
    null: Option<&str>,
    fit: impl Fn(&'a str) -> Result<&'a str, text::TextError>,
) -> Result<(), (usize, WireError)> {
    let append = |builder: &mut StringViewBuilder, value| {
        let value = fit(value)?;
        check_value_bytes(value.len())?;
        builder.try_append_value(value).map_err(too_many_bytes)
    };
    for (nth, field) in fields.enumerate() {
        let value = field.text();
        if null == Some(value) {
            builder.append_null();
        } else {
            append(builder, value).map_err(|error: WireError| (nth, error))?;
        }
    }
    Ok(())
}

fn too_many_bytes(error: impl std::fmt::Display) -> WireError {
    WireError::new(ErrorKind::ProgramLimitExceeded, error.to_string())
}
