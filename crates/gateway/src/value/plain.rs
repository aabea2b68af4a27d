//! Single values, without a column: parameters, and rows of plain values.
//! [`Builder`](super::Builder) reads with the same functions.

use aerostat_types::{ErrorKind, SqlType, text};
use arrow::datatypes::IntervalMonthDayNano;

use super::{EPOCH_SHIFT_DAYS, EPOCH_SHIFT_MICROS, Zone, numeric};
use crate::{
    api::{Value, check_value_bytes, fitted_text},
    sqlstate::WireError,
    wire::{Format, utf8},
};

/// A value of the type from either form.
pub(crate) fn read(
    ty: SqlType,
    zone: Zone,
    bytes: &[u8],
    format: Format,
) -> Result<Value, WireError> {
    match format {
        Format::Text => Ok(Value::read(ty, &zone, utf8(bytes)?)?),
        Format::Binary => read_binary(ty, zone, bytes),
    }
}

/// A value of the type from its binary form.
pub(crate) fn read_binary(ty: SqlType, zone: Zone, bytes: &[u8]) -> Result<Value, WireError> {
    Ok(match ty {
        SqlType::Boolean => Value::Bool(fixed::<1>(bytes)? != [0]),
        SqlType::SmallInt => Value::I16(narrow(integer(bytes)?, "smallint")?),
        SqlType::Integer => Value::I32(narrow(integer(bytes)?, "integer")?),
        SqlType::BigInt => Value::I64(integer(bytes)?),
        SqlType::Real => Value::F32(f32::from_be_bytes(fixed(bytes)?)),
        SqlType::Double if bytes.len() == 4 => {
            Value::F64(f64::from(f32::from_be_bytes(fixed(bytes)?)))
        }
        SqlType::Double => Value::F64(f64::from_be_bytes(fixed(bytes)?)),
        SqlType::Numeric { .. } => Value::read(ty, &zone, &numeric::text_of(bytes)?)?,
        SqlType::Char(_) | SqlType::Varchar(_) | SqlType::Text => {
            Value::Text(fitted_text(ty, utf8(bytes)?)?.into())
        }
        SqlType::Bytea => {
            check_value_bytes(bytes.len())?;
            Value::Bytes(bytes.into())
        }
        SqlType::Uuid => Value::Uuid(fixed(bytes)?),
        SqlType::Date => {
            let days = i32::from_be_bytes(fixed(bytes)?).checked_add(EPOCH_SHIFT_DAYS);
            let days = days.filter(|&days| text::is_date(days));
            Value::I32(days.ok_or_else(|| out_of_range("date"))?)
        }
        SqlType::Time => {
            let micros = i64::from_be_bytes(fixed(bytes)?);
            if !(0..=86_400_000_000).contains(&micros) {
                return Err(out_of_range("time"));
            }
            Value::I64(micros)
        }
        SqlType::Timestamp | SqlType::TimestampTz => {
            let micros = i64::from_be_bytes(fixed(bytes)?).checked_add(EPOCH_SHIFT_MICROS);
            let micros = micros.filter(|&micros| text::is_timestamp(micros));
            Value::I64(micros.ok_or_else(|| out_of_range("timestamp"))?)
        }
        SqlType::Interval => {
            let parts = bytes.split_at_checked(8);
            let parts = parts.and_then(|(micros, rest)| Some((micros, rest.split_at_checked(4)?)));
            let (micros, (days, months)) = parts.ok_or_else(|| invalid_binary("interval"))?;
            Value::of_interval(text::Interval {
                micros: i64::from_be_bytes(fixed(micros)?),
                days: i32::from_be_bytes(fixed(days)?),
                months: i32::from_be_bytes(fixed(months)?),
            })?
        }
    })
}

/// Appends a value of the type with its length before it; −1 for NULL.
pub(super) fn put(
    value: &Value,
    ty: SqlType,
    zone: Zone,
    format: Format,
    out: &mut Vec<u8>,
) -> Result<(), WireError> {
    if *value == Value::Null {
        out.extend_from_slice(&(-1i32).to_be_bytes());
        return Ok(());
    }
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    match format {
        Format::Text => put_text(value, ty, zone, out),
        Format::Binary => put_binary(value, ty, zone, out)?,
    }
    let length = (out.len() - start - 4) as u32;
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
    Ok(())
}

fn put_text(value: &Value, ty: SqlType, zone: Zone, out: &mut Vec<u8>) {
    match (value, ty) {
        (Value::Null, _) => {}
        (Value::Bool(value), _) => text::format_bool(*value, out),
        (Value::I16(value), _) => text::format_int(i64::from(*value), out),
        (Value::I32(days), SqlType::Date) => text::format_date(*days, out),
        (Value::I32(value), _) => text::format_int(i64::from(*value), out),
        (Value::I64(micros), SqlType::Time) => text::format_time(*micros, out),
        (Value::I64(micros), SqlType::Timestamp) => text::format_timestamp(*micros, out),
        (Value::I64(micros), SqlType::TimestampTz) => {
            text::format_timestamptz(*micros, zone.offset_at(*micros), out);
        }
        (Value::I64(value), _) => text::format_int(*value, out),
        (Value::I128(value), SqlType::Numeric { scale, .. }) => {
            text::format_numeric(*value, scale, out);
        }
        (Value::I128(value), _) => text::format_numeric(*value, 0, out),
        (Value::F32(value), _) => text::format_f32(*value, out),
        (Value::F64(value), _) => text::format_f64(*value, out),
        (Value::Uuid(value), _) => text::format_uuid(value, out),
        (Value::Interval(value), _) => text::format_interval(interval(*value), out),
        (Value::Text(value), SqlType::Char(n)) => text::format_char(value, n, out),
        (Value::Text(value), _) => out.extend_from_slice(value.as_bytes()),
        (Value::Bytes(value), _) => text::format_bytea(value, out),
    }
}

fn put_binary(value: &Value, ty: SqlType, zone: Zone, out: &mut Vec<u8>) -> Result<(), WireError> {
    match (value, ty) {
        (Value::Bool(value), _) => out.push(u8::from(*value)),
        (Value::I16(value), _) => out.extend_from_slice(&value.to_be_bytes()),
        (Value::I32(days), SqlType::Date) => put_date(*days, out),
        (Value::I32(value), _) => out.extend_from_slice(&value.to_be_bytes()),
        (Value::I64(micros), SqlType::Timestamp | SqlType::TimestampTz) => {
            put_timestamp(*micros, out)?;
        }
        (Value::I64(value), _) => out.extend_from_slice(&value.to_be_bytes()),
        (Value::I128(value), SqlType::Numeric { scale, .. }) => numeric::put(*value, scale, out),
        (Value::I128(value), _) => numeric::put(*value, 0, out),
        (Value::F32(value), _) => out.extend_from_slice(&value.to_be_bytes()),
        (Value::F64(value), _) => out.extend_from_slice(&value.to_be_bytes()),
        (Value::Uuid(value), _) => out.extend_from_slice(value),
        (Value::Interval(value), _) => put_interval(interval(*value), out),
        (Value::Bytes(value), _) => out.extend_from_slice(value),
        // The binary form of a text is the text.
        (Value::Null | Value::Text(_), _) => put_text(value, ty, zone, out),
    }
    Ok(())
}

/// Days since 1970-01-01 in their binary form.
pub(super) fn put_date(days: i32, out: &mut Vec<u8>) {
    out.extend_from_slice(&days.saturating_sub(EPOCH_SHIFT_DAYS).to_be_bytes());
}

/// Microseconds since 1970-01-01 in their binary form.
pub(super) fn put_timestamp(micros: i64, out: &mut Vec<u8>) -> Result<(), WireError> {
    let shifted = micros.checked_sub(EPOCH_SHIFT_MICROS);
    let shifted = shifted.ok_or_else(|| out_of_range("timestamp"))?;
    out.extend_from_slice(&shifted.to_be_bytes());
    Ok(())
}

/// An interval in its binary form.
pub(super) fn put_interval(value: text::Interval, out: &mut Vec<u8>) {
    out.extend_from_slice(&value.micros.to_be_bytes());
    out.extend_from_slice(&value.days.to_be_bytes());
    out.extend_from_slice(&value.months.to_be_bytes());
}

/// PostgreSQL's form of an Arrow interval, in microseconds instead of nanoseconds.
pub(super) fn interval(value: IntervalMonthDayNano) -> text::Interval {
    text::Interval {
        months: value.months,
        days: value.days,
        micros: value.nanoseconds / 1000,
    }
}

fn invalid_binary(what: impl std::fmt::Display) -> WireError {
    WireError::new(
        ErrorKind::InvalidBinaryRepresentation,
        format!("incorrect binary data format: {what}"),
    )
}

fn fixed<const N: usize>(bytes: &[u8]) -> Result<[u8; N], WireError> {
    bytes.try_into().map_err(|_| {
        invalid_binary(format_args!(
            "{} bytes where {N} were expected",
            bytes.len()
        ))
    })
}

/// An integer of two, four or eight bytes, whichever the client chose.
fn integer(bytes: &[u8]) -> Result<i64, WireError> {
    match bytes.len() {
        2 => Ok(i64::from(i16::from_be_bytes(fixed(bytes)?))),
        4 => Ok(i64::from(i32::from_be_bytes(fixed(bytes)?))),
        _ => Ok(i64::from_be_bytes(fixed(bytes)?)),
    }
}

/// The number of a catalogue entry, which is unsigned.
pub(crate) fn read_oid(bytes: &[u8]) -> Result<i64, WireError> {
    fixed(bytes).map(|bytes| i64::from(u32::from_be_bytes(bytes)))
}

fn narrow<T: TryFrom<i64>>(value: i64, type_name: &str) -> Result<T, WireError> {
    T::try_from(value).map_err(|_| {
        WireError::new(
            ErrorKind::NumericValueOutOfRange,
            format!("value \"{value}\" is out of range for type {type_name}"),
        )
    })
}

fn out_of_range(type_name: &str) -> WireError {
    WireError::new(
        ErrorKind::DatetimeFieldOverflow,
        format!("{type_name} out of range"),
    )
}
