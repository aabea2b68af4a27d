//! Restrictions of SQL types beyond those of their Arrow types: the length of a text, the range
//! of days and numbers. Values read from the wire or from a text are checked when they are read;
//! a program may pass anything.

use std::sync::Arc;

use aerostat_api::{Value, check_value_bytes, fitted_text};
use aerostat_types::{ErrorKind, SqlError, SqlType, text};
use arrow::{
    array::{ArrayRef, AsArray, StringViewArray},
    datatypes::{
        Date32Type, Decimal128Type, IntervalMonthDayNanoType, Time64MicrosecondType,
        TimestampMicrosecondType,
    },
};

/// The last time of a day, 24:00, in microseconds.
const TIME_MAX: i64 = 86_400_000_000;

/// Whether a value that has a type's form is one of its values.
///
/// # Errors
/// Which it is not.
pub(crate) fn check(value: &Value, ty: SqlType) -> Result<(), SqlError> {
    match (value, ty) {
        (Value::Text(text), _) => check_text(text),
        (Value::Bytes(bytes), _) => check_value_bytes(bytes.len()),
        (Value::I32(days), SqlType::Date) => check_date(*days),
        (Value::I64(micros), SqlType::Time) => check_time(*micros),
        (Value::I64(micros), SqlType::Timestamp | SqlType::TimestampTz) => check_timestamp(*micros),
        (Value::I128(digits), SqlType::Numeric { precision, scale }) => {
            check_numeric(*digits, precision, scale)
        }
        (Value::Interval(interval), _) => check_interval(interval.nanoseconds),
        _ => Ok(()),
    }
}

/// The values of an array of the type's Arrow type as a column keeps them: `char(n)` has no
/// blanks behind.
///
/// # Errors
/// One is none of the type's.
pub(crate) fn fitted(array: &ArrayRef, ty: SqlType) -> Result<ArrayRef, SqlError> {
    match ty {
        SqlType::Char(_) | SqlType::Varchar(_) | SqlType::Text => {
            let texts = array.as_string_view();
            texts.iter().flatten().try_for_each(check_text)?;
            let fitted = texts
                .iter()
                .map(|text| text.map(|text| fitted_text(ty, text)).transpose());
            let fitted = fitted.collect::<Result<Vec<_>, _>>()?;
            return Ok(match ty {
                SqlType::Text => Arc::clone(array),
                _ => Arc::new(StringViewArray::from(fitted)),
            });
        }
        SqlType::Bytea => {
            let all = array.as_binary_view().iter().flatten();
            all.map(<[u8]>::len).try_for_each(check_value_bytes)?;
        }
        SqlType::Date => {
            let mut all = array.as_primitive::<Date32Type>().iter().flatten();
            all.try_for_each(check_date)?;
        }
        SqlType::Time => {
            let all = array.as_primitive::<Time64MicrosecondType>().iter();
            all.flatten().try_for_each(check_time)?;
        }
        SqlType::Timestamp | SqlType::TimestampTz => {
            let all = array.as_primitive::<TimestampMicrosecondType>().iter();
            all.flatten().try_for_each(check_timestamp)?;
        }
        SqlType::Numeric { precision, scale } => {
            let mut all = array.as_primitive::<Decimal128Type>().iter().flatten();
            all.try_for_each(|digits| check_numeric(digits, precision, scale))?;
        }
        SqlType::Interval => {
            let all = array.as_primitive::<IntervalMonthDayNanoType>().iter();
            let mut nanos = all.flatten().map(|interval| interval.nanoseconds);
            nanos.try_for_each(check_interval)?;
        }
        SqlType::Boolean
        | SqlType::SmallInt
        | SqlType::Integer
        | SqlType::BigInt
        | SqlType::Real
        | SqlType::Double
        | SqlType::Uuid => {}
    }
    Ok(Arc::clone(array))
}

fn check_text(text: &str) -> Result<(), SqlError> {
    if text.contains('\0') {
        let message = "invalid byte sequence for encoding \"UTF8\": 0x00";
        return Err(SqlError::new(ErrorKind::CharacterNotInRepertoire, message));
    }
    check_value_bytes(text.len())
}

fn check_date(days: i32) -> Result<(), SqlError> {
    within(text::is_date(days), "date")
}

fn check_time(micros: i64) -> Result<(), SqlError> {
    within((0..=TIME_MAX).contains(&micros), "time")
}

fn check_timestamp(micros: i64) -> Result<(), SqlError> {
    within(text::is_timestamp(micros), "timestamp")
}

/// Arrow counts nanoseconds, the type microseconds.
fn check_interval(nanoseconds: i64) -> Result<(), SqlError> {
    within(nanoseconds % 1_000 == 0, "interval")
}

fn within(is_within: bool, what: &str) -> Result<(), SqlError> {
    match is_within {
        true => Ok(()),
        false => Err(SqlError::new(
            ErrorKind::DatetimeFieldOverflow,
            format!("{what} out of range"),
        )),
    }
}

fn check_numeric(digits: i128, precision: u8, scale: i8) -> Result<(), SqlError> {
    let end = 10u128.pow(u32::from(precision));
    if digits.unsigned_abs() < end {
        return Ok(());
    }
    let message = "numeric field overflow";
    let detail = format!(
        "A field with precision {precision}, scale {scale} must round to an absolute value less than 10^{}.",
        i32::from(precision) - i32::from(scale)
    );
    Err(SqlError::new(ErrorKind::NumericValueOutOfRange, message).with_detail(detail))
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, Date32Array, Decimal128Array, Time64MicrosecondArray};

    use super::*;

    fn kind(array: impl Array + 'static, ty: SqlType) -> Result<ArrayRef, ErrorKind> {
        let array: ArrayRef = Arc::new(array);
        fitted(&array, ty).map_err(|error| error.kind)
    }

    #[test]
    fn texts_are_as_long_as_their_type_allows() {
        let texts = || StringViewArray::from(vec![Some("ab   "), None, Some("c")]);
        let short = SqlType::Char(3);
        let expected: ArrayRef = Arc::new(StringViewArray::from(vec![Some("ab"), None, Some("c")]));
        assert_eq!(kind(texts(), short).unwrap().as_ref(), expected.as_ref());
        let long = StringViewArray::from(vec!["abcd"]);
        assert_eq!(
            kind(long, SqlType::Varchar(Some(3))).unwrap_err(),
            ErrorKind::StringDataRightTruncation
        );
        let nul = StringViewArray::from(vec!["a\0"]);
        assert_eq!(
            kind(nul, SqlType::Text).unwrap_err(),
            ErrorKind::CharacterNotInRepertoire
        );
    }

    #[test]
    fn numbers_and_days_are_within_their_bounds() {
        let numeric = SqlType::Numeric {
            precision: 5,
            scale: 2,
        };
        let digits = |digits: i128| {
            let array = Decimal128Array::from(vec![digits]);
            kind(array.with_precision_and_scale(38, 2).unwrap(), numeric)
        };
        assert!(digits(99_999).is_ok() && digits(-99_999).is_ok());
        for wide in [100_000, i128::MIN] {
            assert_eq!(digits(wide).unwrap_err(), ErrorKind::NumericValueOutOfRange);
        }
        let overflow = ErrorKind::DatetimeFieldOverflow;
        let time = |micros| kind(Time64MicrosecondArray::from(vec![micros]), SqlType::Time);
        assert!(time(0).is_ok() && time(TIME_MAX).is_ok());
        assert_eq!(time(-1).unwrap_err(), overflow);
        let date = |days| kind(Date32Array::from(vec![days]), SqlType::Date);
        assert!(date(0).is_ok());
        assert_eq!(date(i32::MIN).unwrap_err(), overflow);
        for (value, ty) in [
            (Value::I32(i32::MAX), SqlType::Date),
            (Value::I64(TIME_MAX + 1), SqlType::Time),
            (Value::I64(i64::MIN), SqlType::TimestampTz),
        ] {
            assert_eq!(check(&value, ty).unwrap_err().kind, overflow);
        }
    }
}
