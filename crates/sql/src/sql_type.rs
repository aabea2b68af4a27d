//! From a type as `sqlparser` reads it to one of ours.

use aerostat_types::{ErrorKind, NUMERIC_DEFAULT, SqlError, SqlType};
use sqlparser::ast::{CharacterLength, DataType, ExactNumberInfo, ObjectName, TimezoneInfo};

/// The most digits a `numeric` may have.
const NUMERIC_DIGITS_MAX: u64 = 38;
/// The longest `char(n)` and `varchar(n)`, as in PostgreSQL.
const LENGTH_MAX: u64 = 10_485_760;
/// Digits after the point of seconds, which is microseconds.
const SECOND_DIGITS: u64 = 6;

/// The type that a type name means.
///
/// # Errors
/// `FeatureNotSupported` for PostgreSQL's types that are not here,
/// `UndefinedObject` for names that are no type's, `InvalidParameterValue` and
/// `SyntaxError` for modifiers that do not fit.
pub fn sql_type(data_type: &DataType) -> Result<SqlType, SqlError> {
    Ok(match data_type {
        DataType::Boolean | DataType::Bool => SqlType::Boolean,
        DataType::SmallInt(modifier) | DataType::Int2(modifier) => {
            plain(SqlType::SmallInt, *modifier)?
        }
        DataType::Int(modifier) | DataType::Integer(modifier) | DataType::Int4(modifier) => {
            plain(SqlType::Integer, *modifier)?
        }
        DataType::BigInt(modifier) | DataType::Int8(modifier) => plain(SqlType::BigInt, *modifier)?,
        DataType::Real | DataType::Float4 => SqlType::Real,
        DataType::DoublePrecision | DataType::Float8 => SqlType::Double,
        DataType::Float(info) => float(info)?,
        DataType::Numeric(info) | DataType::Decimal(info) | DataType::Dec(info) => numeric(info)?,
        DataType::Char(length) | DataType::Character(length) => {
            SqlType::Char(characters("char", length.as_ref())?.unwrap_or(1))
        }
        DataType::Varchar(length)
        | DataType::CharVarying(length)
        | DataType::CharacterVarying(length) => {
            SqlType::Varchar(characters("varchar", length.as_ref())?)
        }
        DataType::Text => SqlType::Text,
        DataType::Bytea => SqlType::Bytea,
        DataType::Uuid => SqlType::Uuid,
        DataType::Date => SqlType::Date,
        DataType::Time(digits, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            seconds(SqlType::Time, *digits)?
        }
        DataType::Timestamp(digits, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            seconds(SqlType::Timestamp, *digits)?
        }
        DataType::Timestamp(digits, TimezoneInfo::WithTimeZone | TimezoneInfo::Tz) => {
            seconds(SqlType::TimestampTz, *digits)?
        }
        DataType::Interval {
            fields: None,
            precision,
        } => seconds(SqlType::Interval, *precision)?,
        DataType::Interval { .. } => return Err(lacking("interval with fields")),
        DataType::Time(..) => {
            return Err(
                lacking("time with time zone").with_hint("Use timestamp with time zone, or time.")
            );
        }
        DataType::Custom(name, modifiers) => custom(name, modifiers)?,
        DataType::JSON | DataType::JSONB => {
            return Err(
                lacking(&data_type.to_string().to_lowercase()).with_hint("Store it as text.")
            );
        }
        DataType::Array(_) => return Err(lacking("array")),
        DataType::Bit(_) | DataType::BitVarying(_) | DataType::VarBit(_) => {
            return Err(lacking("bit"));
        }
        DataType::Regclass => return Err(lacking("regclass")),
        other => return Err(undefined(&other.to_string().to_lowercase())),
    })
}

fn lacking(name: &str) -> SqlError {
    SqlError::new(
        ErrorKind::FeatureNotSupported,
        format!("type {name} is not supported"),
    )
}

fn undefined(name: &str) -> SqlError {
    SqlError::new(
        ErrorKind::UndefinedObject,
        format!("type \"{name}\" does not exist"),
    )
}

fn invalid(message: String) -> SqlError {
    SqlError::new(ErrorKind::InvalidParameterValue, message)
}

fn plain(ty: SqlType, modifier: Option<u64>) -> Result<SqlType, SqlError> {
    match modifier {
        None => Ok(ty),
        Some(_) => Err(SqlError::new(
            ErrorKind::SyntaxError,
            format!("type modifier is not allowed for type \"{ty}\""),
        )),
    }
}

fn float(info: &ExactNumberInfo) -> Result<SqlType, SqlError> {
    match info {
        ExactNumberInfo::None => Ok(SqlType::Double),
        ExactNumberInfo::Precision(0) => Err(invalid(
            "precision for type float must be at least 1 bit".to_owned(),
        )),
        ExactNumberInfo::Precision(1..=24) => Ok(SqlType::Real),
        ExactNumberInfo::Precision(25..=53) => Ok(SqlType::Double),
        ExactNumberInfo::Precision(_) => Err(invalid(
            "precision for type float must be less than 54 bits".to_owned(),
        )),
        ExactNumberInfo::PrecisionAndScale(..) => plain(SqlType::Double, Some(0)),
    }
}

fn numeric(info: &ExactNumberInfo) -> Result<SqlType, SqlError> {
    let (precision, scale) = match *info {
        ExactNumberInfo::None => return Ok(NUMERIC_DEFAULT),
        ExactNumberInfo::Precision(precision) => (precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (precision, scale),
    };
    if !(1..=NUMERIC_DIGITS_MAX).contains(&precision) {
        return Err(invalid(format!(
            "NUMERIC precision {precision} must be between 1 and {NUMERIC_DIGITS_MAX}"
        )));
    }
    let digits = u8::try_from(precision).expect("at most 38");
    match i8::try_from(scale) {
        Ok(scale) if (0..=digits).contains(&scale.cast_unsigned()) => Ok(SqlType::Numeric {
            precision: digits,
            scale,
        }),
        _ => Err(invalid(format!(
            "NUMERIC scale {scale} must be between 0 and precision {precision}"
        ))),
    }
}

fn characters(name: &str, length: Option<&CharacterLength>) -> Result<Option<u32>, SqlError> {
    match length {
        None => Ok(None),
        Some(CharacterLength::IntegerLength { length: 0, .. }) => Err(invalid(format!(
            "length for type {name} must be at least 1"
        ))),
        Some(CharacterLength::IntegerLength { length, .. }) if *length > LENGTH_MAX => Err(
            invalid(format!("length for type {name} cannot exceed {LENGTH_MAX}")),
        ),
        Some(CharacterLength::IntegerLength { length, unit: None }) => {
            Ok(Some(u32::try_from(*length).expect("at most LENGTH_MAX")))
        }
        Some(_) => Err(SqlError::new(
            ErrorKind::SyntaxError,
            format!("a length in this form is not allowed for type {name}"),
        )),
    }
}

/// Values have microseconds; a coarser column would have to round what it takes.
fn seconds(ty: SqlType, digits: Option<u64>) -> Result<SqlType, SqlError> {
    match digits {
        Some(digits) if digits < SECOND_DIGITS => Err(SqlError::new(
            ErrorKind::FeatureNotSupported,
            format!("precision {digits} for type {ty} is not supported"),
        )
        .with_hint(
            "Leave the precision out, which means microseconds, and round with date_trunc.",
        )),
        _ => Ok(ty),
    }
}

/// Names that are no keywords to `sqlparser`, with or without `pg_catalog.` before them.
fn custom(name: &ObjectName, modifiers: &[String]) -> Result<SqlType, SqlError> {
    let parts: Vec<String> = name
        .0
        .iter()
        .filter_map(|part| part.as_ident())
        .map(crate::names::folded)
        .collect();
    let unqualified = match &parts[..] {
        [name] => name,
        [schema, name] if schema == crate::names::PG_CATALOG => name,
        _ => return Err(undefined(&parts.join("."))),
    };
    let ty = match unqualified.as_str() {
        "bool" => SqlType::Boolean,
        "int2" => SqlType::SmallInt,
        "int4" | "int" => SqlType::Integer,
        "int8" => SqlType::BigInt,
        "float4" => SqlType::Real,
        "float8" => SqlType::Double,
        "text" => SqlType::Text,
        "bytea" => SqlType::Bytea,
        "uuid" => SqlType::Uuid,
        "date" => SqlType::Date,
        "time" | "timestamp" | "timestamptz" | "interval" | "numeric" | "decimal" | "varchar"
        | "bpchar" => {
            return modified(unqualified, modifiers);
        }
        "serial" | "serial2" | "serial4" | "serial8" | "smallserial" | "bigserial" => {
            return Err(lacking(unqualified)
                .with_hint("Use integer or bigint and give the values, for example from a counter of the application."));
        }
        "money" | "json" | "jsonb" | "jsonpath" | "xml" | "inet" | "cidr" | "macaddr"
        | "macaddr8" | "point" | "line" | "lseg" | "box" | "path" | "polygon" | "circle"
        | "tsvector" | "tsquery" | "oid" | "name" | "char" | "timetz" | "bit" | "varbit"
        | "hstore" | "citext" | "regproc" | "regclass" | "regtype" | "regrole" | "regnamespace"
        | "xid" | "cid" | "tid" | "pg_lsn" | "int4range" | "int8range" | "numrange" | "tsrange"
        | "tstzrange" | "daterange" | "record" => return Err(lacking(unqualified)),
        _ => return Err(undefined(&parts.join("."))),
    };
    plain(ty, (!modifiers.is_empty()).then_some(0))
}

fn modified(name: &str, modifiers: &[String]) -> Result<SqlType, SqlError> {
    let mut numbers = Vec::with_capacity(modifiers.len());
    for modifier in modifiers {
        numbers.push(
            modifier
                .trim()
                .parse::<u64>()
                .map_err(|_| invalid(format!("invalid type modifier \"{modifier}\"")))?,
        );
    }
    let first = numbers.first().copied();
    let length = first.map(|length| CharacterLength::IntegerLength { length, unit: None });
    match name {
        "numeric" | "decimal" => numeric(&match numbers[..] {
            [] => ExactNumberInfo::None,
            [precision] => ExactNumberInfo::Precision(precision),
            [precision, scale, ..] => ExactNumberInfo::PrecisionAndScale(
                precision,
                i64::try_from(scale).unwrap_or(i64::MAX),
            ),
        }),
        "varchar" => Ok(SqlType::Varchar(characters("varchar", length.as_ref())?)),
        "bpchar" => match characters("char", length.as_ref())? {
            Some(length) => Ok(SqlType::Char(length)),
            None => Err(lacking("bpchar without a length").with_hint("Use text, or character(n).")),
        },
        "time" => seconds(SqlType::Time, first),
        "timestamp" => seconds(SqlType::Timestamp, first),
        "timestamptz" => seconds(SqlType::TimestampTz, first),
        _ => seconds(SqlType::Interval, first),
    }
}

#[cfg(test)]
mod tests {
    use sqlparser::{dialect::PostgreSqlDialect, parser::Parser};

    use super::*;

    fn parsed(text: &str) -> Result<SqlType, SqlError> {
        let mut parser = Parser::new(&PostgreSqlDialect {})
            .try_with_sql(text)
            .unwrap();
        sql_type(&parser.parse_data_type().unwrap())
    }

    #[test]
    fn every_spelling_of_every_type() {
        for (spellings, ty) in [
            ("boolean|bool|pg_catalog.bool", SqlType::Boolean),
            ("smallint|int2", SqlType::SmallInt),
            ("int|integer|int4|pg_catalog.int4", SqlType::Integer),
            ("bigint|int8", SqlType::BigInt),
            ("real|float4|float(24)", SqlType::Real),
            ("double precision|float8|float|float(25)", SqlType::Double),
            ("numeric|decimal|dec", NUMERIC_DEFAULT),
            (
                "numeric(5)|decimal(5,0)",
                SqlType::Numeric {
                    precision: 5,
                    scale: 0,
                },
            ),
            (
                "numeric(38,38)",
                SqlType::Numeric {
                    precision: 38,
                    scale: 38,
                },
            ),
            ("char|character|char(1)|character(1)", SqlType::Char(1)),
            ("varchar|character varying", SqlType::Varchar(None)),
            (
                "varchar(7)|character varying(7)|char varying(7)",
                SqlType::Varchar(Some(7)),
            ),
            ("text", SqlType::Text),
            ("bytea", SqlType::Bytea),
            ("uuid", SqlType::Uuid),
            ("date", SqlType::Date),
            ("time|time without time zone|time(6)", SqlType::Time),
            (
                "timestamp|timestamp(6) without time zone",
                SqlType::Timestamp,
            ),
            (
                "timestamptz|timestamp with time zone|timestamptz(6)",
                SqlType::TimestampTz,
            ),
            ("interval", SqlType::Interval),
        ] {
            for spelling in spellings.split('|') {
                assert_eq!(parsed(spelling), Ok(ty), "{spelling}");
            }
        }
    }

    #[test]
    fn what_is_no_type_here_is_refused_by_name() {
        use ErrorKind::{FeatureNotSupported, InvalidParameterValue, SyntaxError, UndefinedObject};
        for (text, kind) in [
            ("jsonb", FeatureNotSupported),
            ("integer[]", FeatureNotSupported),
            ("serial", FeatureNotSupported),
            ("time with time zone", FeatureNotSupported),
            ("timestamp(3)", FeatureNotSupported),
            ("inet", FeatureNotSupported),
            ("nonsense", UndefinedObject),
            ("other.bool", UndefinedObject),
            ("tinyint", UndefinedObject),
            ("numeric(39)", InvalidParameterValue),
            ("numeric(0)", InvalidParameterValue),
            ("numeric(5,6)", InvalidParameterValue),
            ("numeric(5,-1)", InvalidParameterValue),
            ("varchar(0)", InvalidParameterValue),
            ("char(10485761)", InvalidParameterValue),
            ("int(11)", SyntaxError),
        ] {
            assert_eq!(parsed(text).unwrap_err().kind, kind, "{text}");
        }
    }
}
