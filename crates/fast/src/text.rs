//! Values from PostgreSQL's text forms.

use aerostat_types::{ErrorKind, SqlError, SqlType, VALUE_BYTES_MAX, Zone, text};
use arrow_array::types::IntervalMonthDayNano;

use crate::value::Value;

impl Value {
    /// A value of the type from its text form, which holds no NUL.
    ///
    /// # Errors
    /// The text is none of the type, or too long.
    pub fn read(ty: SqlType, zone: &Zone, value: &str) -> Result<Self, SqlError> {
        Ok(match ty {
            SqlType::Boolean => Value::Bool(text::parse_bool(value)?),
            SqlType::SmallInt => Value::I16(text::parse_i16(value)?),
            SqlType::Integer => Value::I32(text::parse_i32(value)?),
            SqlType::BigInt => Value::I64(text::parse_i64(value)?),
            SqlType::Real => Value::F32(text::parse_f32(value)?),
            SqlType::Double => Value::F64(text::parse_f64(value)?),
            SqlType::Numeric { precision, scale } => {
                Value::I128(text::parse_numeric(value, precision, scale)?)
            }
            SqlType::Char(_) | SqlType::Varchar(_) | SqlType::Text => {
                Value::Text(fitted_text(ty, value)?.into())
            }
            SqlType::Bytea => {
                let mut bytes = Vec::new();
                text::parse_bytea_into(value, &mut bytes)?;
                check_value_bytes(bytes.len())?;
                Value::Bytes(bytes.into())
            }
            SqlType::Uuid => Value::Uuid(text::parse_uuid(value)?),
            SqlType::Date => Value::I32(text::parse_date(value)?),
            SqlType::Time => Value::I64(text::parse_time(value)?),
            SqlType::Timestamp => Value::I64(text::parse_timestamp(value)?),
            SqlType::TimestampTz => Value::I64(text::parse_timestamptz(value, zone)?),
            SqlType::Interval => Value::of_interval(text::parse_interval(value)?)?,
        })
    }

    /// An interval.
    ///
    /// # Errors
    /// Arrow's nanoseconds do not reach as far as its microseconds.
    pub fn of_interval(interval: text::Interval) -> Result<Self, SqlError> {
        let nanoseconds = interval.nanos().ok_or_else(|| {
            SqlError::new(ErrorKind::DatetimeFieldOverflow, "interval out of range")
        })?;
        Ok(Value::Interval(IntervalMonthDayNano {
            months: interval.months,
            days: interval.days,
            nanoseconds,
        }))
    }
}

/// A text as long as its type allows.
///
/// # Errors
/// It is longer.
#[inline]
pub fn fitted_text(ty: SqlType, value: &str) -> Result<&str, SqlError> {
    let value = match ty {
        SqlType::Char(n) => text::fit_char(value, n)?,
        SqlType::Varchar(Some(n)) => text::fit_varchar(value, n)?,
        _ => value,
    };
    check_value_bytes(value.len())?;
    Ok(value)
}

/// Whether a value may have so many bytes.
///
/// # Errors
/// It may not.
#[inline]
pub fn check_value_bytes(bytes: usize) -> Result<(), SqlError> {
    if bytes <= VALUE_BYTES_MAX {
        return Ok(());
    }
    let message = format!("a value of {bytes} bytes is too long");
    Err(SqlError::new(ErrorKind::ProgramLimitExceeded, message)
        .with_detail(format!("A value has at most {VALUE_BYTES_MAX} bytes.")))
}
