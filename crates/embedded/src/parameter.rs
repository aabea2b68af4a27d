//! Rust values as parameters of statements.

use aerostat_api::{ParameterType, Value, Zone};
use aerostat_types::{ErrorKind, SqlError, SqlType, text};

use crate::values;

/// What can be given for a parameter. Numbers fit every number that is wide enough, also
/// `numeric`; a text fits every type whose text form it is, as a constant in quotes does, so
/// dates and times, intervals, uuids and arrays can be given as texts. `None` is NULL.
pub trait Parameter {
    /// The value. A date is days since 1970-01-01, a time or timestamp microseconds.
    fn value(&self) -> Value;
}

macro_rules! parameter {
    ($($ty:ty => |$value:ident| $made:expr),* $(,)?) => {
        $(impl Parameter for $ty {
            fn value(&self) -> Value {
                let $value = self;
                $made
            }
        })*
    };
}

parameter! {
    bool => |value| Value::Bool(*value),
    i16 => |value| Value::I16(*value),
    i32 => |value| Value::I32(*value),
    i64 => |value| Value::I64(*value),
    f32 => |value| Value::F32(*value),
    f64 => |value| Value::F64(*value),
    str => |value| Value::Text(value.into()),
    &str => |value| Value::Text((*value).into()),
    String => |value| Value::Text(value.as_str().into()),
    [u8] => |value| Value::Bytes(value.into()),
    &[u8] => |value| Value::Bytes((*value).into()),
    Vec<u8> => |value| Value::Bytes(value.as_slice().into()),
    Value => |value| value.clone(),
}

impl<T: Parameter> Parameter for Option<T> {
    fn value(&self) -> Value {
        self.as_ref().map_or(Value::Null, Parameter::value)
    }
}

/// The value in the form that the type of parameter `at` has.
pub(crate) fn fit(
    value: Value,
    ty: ParameterType,
    zone: Zone,
    at: usize,
) -> Result<Value, SqlError> {
    let fitted = match ty.carrier() {
        // The column that a text goes to decides how long it may be.
        carrier if carrier.is_text() => fit_to(value, SqlType::Text, zone),
        carrier => fit_to(value, carrier, zone),
    };
    fitted.map_err(|mut error| {
        let given = format!("Of parameter ${}, which is {ty}.", at + 1);
        error.detail.get_or_insert(given);
        error
    })
}

fn fit_to(value: Value, ty: SqlType, zone: Zone) -> Result<Value, SqlError> {
    if value.is_of(ty) {
        values::check(&value, ty)?;
        return Ok(value);
    }
    let number = matches!(
        ty,
        SqlType::SmallInt
            | SqlType::Integer
            | SqlType::BigInt
            | SqlType::Numeric { .. }
            | SqlType::Real
            | SqlType::Double
    );
    let read = |text: &str| Value::read(ty, &zone, text);
    let written = |write: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = Vec::new();
        write(&mut bytes);
        read(&String::from_utf8_lossy(&bytes))
    };
    let fraction = number && !matches!(ty, SqlType::SmallInt | SqlType::Integer | SqlType::BigInt);
    match (&value, ty) {
        (Value::Text(text), _) => {
            values::check(&value, SqlType::Text)?;
            read(text)
        }
        (Value::I16(value), SqlType::Integer) => Ok(Value::I32(i32::from(*value))),
        (Value::I16(value), SqlType::BigInt) => Ok(Value::I64(i64::from(*value))),
        (Value::I32(value), SqlType::BigInt) => Ok(Value::I64(i64::from(*value))),
        (Value::F32(value), SqlType::Double) => Ok(Value::F64(f64::from(*value))),
        (Value::F64(value), SqlType::Real) => match *value as f32 {
            narrow if narrow.is_infinite() && value.is_finite() => Err(SqlError::new(
                ErrorKind::NumericValueOutOfRange,
                format!("\"{value}\" is out of range for type real"),
            )),
            narrow => Ok(Value::F32(narrow)),
        },
        (Value::I16(value), _) if number => read(&value.to_string()),
        (Value::I32(value), _) if number => read(&value.to_string()),
        (Value::I64(value), _) if number => read(&value.to_string()),
        (Value::F32(value), _) if fraction => written(&|out| text::format_f32(*value, out)),
        (Value::F64(value), _) if fraction => written(&|out| text::format_f64(*value, out)),
        _ => {
            let message = format!("the value is none of type {ty}");
            Err(SqlError::new(ErrorKind::DatatypeMismatch, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMERIC: SqlType = SqlType::Numeric {
        precision: 5,
        scale: 2,
    };

    fn fitted(value: impl Parameter, ty: SqlType) -> Result<Value, ErrorKind> {
        let zone = Zone::UTC;
        let fitted = fit(value.value(), ParameterType::Value(ty), zone, 0);
        fitted.map_err(|error| error.kind)
    }

    #[test]
    fn numbers_fit_numbers_that_are_wide_enough() {
        assert_eq!(fitted(7i16, SqlType::BigInt), Ok(Value::I64(7)));
        assert_eq!(fitted(7i64, SqlType::SmallInt), Ok(Value::I16(7)));
        assert_eq!(
            fitted(70_000i32, SqlType::SmallInt),
            Err(ErrorKind::NumericValueOutOfRange)
        );
        assert_eq!(fitted(7i32, NUMERIC), Ok(Value::I128(700)));
        assert_eq!(fitted(1.255f64, NUMERIC), Ok(Value::I128(126)));
        assert_eq!(
            fitted(1e6f64, NUMERIC),
            Err(ErrorKind::NumericValueOutOfRange)
        );
        assert_eq!(fitted(7i32, SqlType::Double), Ok(Value::F64(7.0)));
        assert_eq!(fitted(0.25f32, SqlType::Double), Ok(Value::F64(0.25)));
        assert_eq!(fitted(0.25f64, SqlType::Real), Ok(Value::F32(0.25)));
        assert_eq!(
            fitted(1e300f64, SqlType::Real),
            Err(ErrorKind::NumericValueOutOfRange)
        );
        assert_eq!(
            fitted(0.5f64, SqlType::Integer),
            Err(ErrorKind::DatatypeMismatch)
        );
    }

    #[test]
    fn texts_are_read_as_constants_are() {
        assert_eq!(fitted("1970-01-03", SqlType::Date), Ok(Value::I32(2)));
        assert_eq!(fitted("12.345", NUMERIC), Ok(Value::I128(1_235)));
        assert_eq!(
            fitted("x", SqlType::Integer),
            Err(ErrorKind::InvalidTextRepresentation)
        );
        assert_eq!(
            fitted("too long", SqlType::Varchar(Some(3))),
            Ok(Value::Text("too long".into())),
            "the column measures it"
        );
        assert_eq!(
            fitted("a\0b", SqlType::Text),
            Err(ErrorKind::CharacterNotInRepertoire)
        );
    }

    #[test]
    fn the_rest_is_of_its_type_or_nothing() {
        assert_eq!(fitted(None::<i32>, SqlType::Uuid), Ok(Value::Null));
        assert_eq!(fitted(Some(true), SqlType::Boolean), Ok(Value::Bool(true)));
        assert_eq!(
            fitted(true, SqlType::Integer),
            Err(ErrorKind::DatatypeMismatch)
        );
        assert_eq!(
            fitted(i32::MAX, SqlType::Date),
            Err(ErrorKind::DatetimeFieldOverflow)
        );
        assert_eq!(
            fitted(1i32, SqlType::Text),
            Err(ErrorKind::DatatypeMismatch)
        );
        assert_eq!(
            fitted(vec![1u8, 2], SqlType::Bytea),
            Ok(Value::Bytes([1, 2].into()))
        );
    }
}
