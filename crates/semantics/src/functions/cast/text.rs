//! Texts to values and values to texts, in PostgreSQL's text forms.

use std::sync::Arc;

use aerostat_types::SqlType;
use aerostat_types::text as form;
use aerostat_types::text::TextError;
use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BinaryViewBuilder, BooleanArray,
    FixedSizeBinaryBuilder, PrimitiveArray, StringViewArray,
};
use arrow::datatypes::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
    IntervalMonthDayNano, IntervalMonthDayNanoType, Time64MicrosecondType,
    TimestampMicrosecondType,
};
use datafusion::common::Result;

use super::super::texts::Texts;
use super::{Coercion, Zone};
use crate::growth::{Growth, bytes_of};
use crate::{external, raise};

/// Reads each text as a value of `to`.
pub(super) fn from_text(
    array: &ArrayRef,
    to: SqlType,
    coercion: Coercion,
    zone: &Zone,
) -> Result<ArrayRef> {
    let texts = array.as_string_view();
    Ok(match to {
        SqlType::Boolean => {
            let bits: BooleanArray = texts
                .iter()
                .map(|text| text.map(form::parse_bool).transpose())
                .collect::<std::result::Result<_, _>>()
                .map_err(external)?;
            Arc::new(bits)
        }
        SqlType::SmallInt => parse::<Int16Type>(texts, form::parse_i16)?,
        SqlType::Integer => parse::<Int32Type>(texts, form::parse_i32)?,
        SqlType::BigInt => parse::<Int64Type>(texts, form::parse_i64)?,
        SqlType::Real => parse::<Float32Type>(texts, form::parse_f32)?,
        SqlType::Double => parse::<Float64Type>(texts, form::parse_f64)?,
        SqlType::Numeric { precision, scale } => {
            let values = collect::<Decimal128Type>(texts, |text| {
                form::parse_numeric(text, precision, scale)
            })?;
            Arc::new(values.with_precision_and_scale(precision, scale)?)
        }
        SqlType::Date => parse::<Date32Type>(texts, form::parse_date)?,
        SqlType::Time => parse::<Time64MicrosecondType>(texts, form::parse_time)?,
        SqlType::Timestamp => parse::<TimestampMicrosecondType>(texts, form::parse_timestamp)?,
        SqlType::TimestampTz => {
            let values = collect::<TimestampMicrosecondType>(texts, |text| {
                form::parse_timestamptz(text, &zone.get())
            })?;
            Arc::new(values.with_timezone("UTC"))
        }
        SqlType::Interval => {
            let parsed = texts
                .iter()
                .map(|text| text.map(parse_interval).transpose());
            Arc::new(parsed.collect::<Result<PrimitiveArray<IntervalMonthDayNanoType>>>()?)
        }
        SqlType::Bytea => {
            let mut growth = Growth::new();
            growth.make(bytes_of(texts))?;
            let mut builder = BinaryViewBuilder::with_capacity(texts.len());
            for text in texts {
                builder.append_option(text.map(form::parse_bytea).transpose().map_err(external)?);
            }
            growth.keep(Arc::new(builder.finish()))?
        }
        SqlType::Uuid => {
            let mut builder = FixedSizeBinaryBuilder::with_capacity(texts.len(), 16);
            for text in texts {
                match text {
                    None => builder.append_null(),
                    Some(text) => {
                        builder.append_value(form::parse_uuid(text).map_err(external)?)?
                    }
                }
            }
            Arc::new(builder.finish())
        }
        SqlType::Text | SqlType::Varchar(None) => Arc::clone(array),
        SqlType::Char(n) | SqlType::Varchar(Some(n)) => {
            // Most do, and rows that COPY has decoded always.
            let may_end_blank = !matches!(to, SqlType::Char(_));
            let fits =
                |text: &str| text.len() <= n as usize && (may_end_blank || !text.ends_with(' '));
            if texts.iter().flatten().all(fits) {
                return Ok(Arc::clone(array));
            }
            fit_all(texts, to, coercion)?
        }
    })
}

fn collect<T: ArrowPrimitiveType>(
    texts: &StringViewArray,
    read: impl Fn(&str) -> std::result::Result<T::Native, TextError>,
) -> Result<PrimitiveArray<T>> {
    let parsed = texts.iter().map(|text| text.map(&read).transpose());
    parsed
        .collect::<std::result::Result<PrimitiveArray<T>, TextError>>()
        .map_err(external)
}

fn parse<T: ArrowPrimitiveType>(
    texts: &StringViewArray,
    read: impl Fn(&str) -> std::result::Result<T::Native, TextError>,
) -> Result<ArrayRef> {
    Ok(Arc::new(collect::<T>(texts, read)?))
}

fn parse_interval(text: &str) -> Result<IntervalMonthDayNano> {
    let interval = form::parse_interval(text).map_err(external)?;
    let nanos = interval.nanos().ok_or_else(|| {
        raise(
            aerostat_types::ErrorKind::DatetimeFieldOverflow,
            "interval out of range",
        )
    })?;
    Ok(IntervalMonthDayNano::new(
        interval.months,
        interval.days,
        nanos,
    ))
}

/// Fits texts into `char(n)` or `varchar(n)`.
fn fit_all(texts: &StringViewArray, to: SqlType, coercion: Coercion) -> Result<ArrayRef> {
    let mut all = Texts::of(texts.len());
    for text in texts {
        all.push(text.map(|text| fit(text, to, coercion)).transpose()?)?;
    }
    all.finish()
}

fn fit(text: &str, to: SqlType, coercion: Coercion) -> Result<&str> {
    match (to, coercion) {
        (SqlType::Char(n), Coercion::Assignment) => form::fit_char(text, n).map_err(external),
        (SqlType::Varchar(Some(n)), Coercion::Assignment) => {
            form::fit_varchar(text, n).map_err(external)
        }
        (SqlType::Char(n), Coercion::Explicit) => Ok(cut(text, n).trim_end_matches(' ')),
        (SqlType::Varchar(Some(n)), Coercion::Explicit) => Ok(cut(text, n)),
        _ => Ok(text),
    }
}

/// The first n characters.
fn cut(text: &str, n: u32) -> &str {
    if text.len() <= n as usize {
        return text;
    }
    text.char_indices()
        .nth(n as usize)
        .map_or(text, |(end, _)| &text[..end])
}

/// Writes each value as a text of type `to`.
pub(super) fn to_text(
    array: &ArrayRef,
    from: SqlType,
    to: SqlType,
    coercion: Coercion,
    zone: &Zone,
) -> Result<ArrayRef> {
    let mut texts = Texts::of(array.len());
    let mut buffer = String::new();
    for row in 0..array.len() {
        if array.is_null(row) {
            texts.push(None::<&str>)?;
            continue;
        }
        buffer.clear();
        write_value(array, row, from, zone, &mut buffer);
        texts.push(Some(fit(&buffer, to, coercion)?))?;
    }
    texts.finish()
}

fn write_value(array: &ArrayRef, row: usize, from: SqlType, zone: &Zone, out: &mut String) {
    match from {
        SqlType::Boolean => out.push_str(if array.as_boolean().value(row) {
            "true"
        } else {
            "false"
        }),
        SqlType::SmallInt => {
            form::format_int(array.as_primitive::<Int16Type>().value(row).into(), out)
        }
        SqlType::Integer => {
            form::format_int(array.as_primitive::<Int32Type>().value(row).into(), out)
        }
        SqlType::BigInt => form::format_int(array.as_primitive::<Int64Type>().value(row), out),
        SqlType::Real => form::format_f32(array.as_primitive::<Float32Type>().value(row), out),
        SqlType::Double => form::format_f64(array.as_primitive::<Float64Type>().value(row), out),
        SqlType::Numeric { scale, .. } => {
            form::format_numeric(
                array.as_primitive::<Decimal128Type>().value(row),
                scale,
                out,
            );
        }
        SqlType::Date => form::format_date(array.as_primitive::<Date32Type>().value(row), out),
        SqlType::Time => form::format_time(
            array.as_primitive::<Time64MicrosecondType>().value(row),
            out,
        ),
        SqlType::Timestamp => form::format_timestamp(
            array.as_primitive::<TimestampMicrosecondType>().value(row),
            out,
        ),
        SqlType::TimestampTz => {
            let micros = array.as_primitive::<TimestampMicrosecondType>().value(row);
            form::format_timestamptz(micros, zone.get().offset_at(micros), out);
        }
        SqlType::Interval => {
            let value = array.as_primitive::<IntervalMonthDayNanoType>().value(row);
            let interval = form::Interval {
                months: value.months,
                days: value.days,
                micros: value.nanoseconds / 1000,
            };
            form::format_interval(interval, out);
        }
        SqlType::Bytea => form::format_bytea(array.as_binary_view().value(row), out),
        SqlType::Uuid => {
            let mut uuid = [0; 16];
            uuid.copy_from_slice(array.as_fixed_size_binary().value(row));
            form::format_uuid(&uuid, out);
        }
        SqlType::Char(_) | SqlType::Varchar(_) | SqlType::Text => {
            out.push_str(array.as_string_view().value(row))
        }
    }
}
