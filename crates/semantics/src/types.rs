//! SQL type names to Arrow fields.
//!
//! The field carries the SQL type in its metadata, so `char(3)` and `varchar(10)`, which are the
//! same Arrow type, stay distinct through planning.

use std::collections::HashMap;
use std::sync::Arc;

use aerostat_types::{ErrorKind, SQL_TYPE_KEY, SqlError, SqlType};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::Result;
use datafusion::logical_expr::planner::TypePlanner;
use datafusion::sql::sqlparser::ast::{
    ArrayElemTypeDef, CharacterLength, DataType as AstType, ExactNumberInfo, ObjectName,
    TimezoneInfo,
};

use super::external;
use super::precision::items_keep_part;
use super::type_names::{ANY_NUMERIC, LENGTH_MAX};

/// Digits of Arrow's widest decimal that fits 16 bytes.
const PRECISION_MAX: u64 = 38;

/// Turns SQL type names into Arrow fields that remember them.
#[derive(Debug)]
pub(crate) struct PostgresTypes;

impl TypePlanner for PostgresTypes {
    fn plan_type_field(&self, sql_type: &AstType) -> Result<Option<FieldRef>> {
        Ok(Some(field_of(sql_type).map_err(external)?))
    }
}

/// The Arrow field for a type name in a cast: nameless and nullable.
fn field_of(sql_type: &AstType) -> std::result::Result<FieldRef, SqlError> {
    if let AstType::Array(
        ArrayElemTypeDef::SquareBracket(element, _) | ArrayElemTypeDef::AngleBracket(element),
    ) = sql_type
    {
        // An array's type does not say how many dimensions it has: int[][] is int[].
        if matches!(&**element, AstType::Array(_)) {
            return field_of(element);
        }
        // A list's items have no digits and fields; those of a constructor have them before.
        if items_keep_part(sql_type) {
            return Err(unsupported(&format!("{element}[]").to_lowercase()));
        }
        let mut item = field_of(element)?.as_ref().clone().with_name("item");
        // A list has no other items than those it says it has, and a text says nothing: lists of
        // texts are of one type then, wherever they come from.
        if SqlType::of_field(&item) == Some(SqlType::Text) {
            item = item.with_metadata(HashMap::new());
        }
        return Ok(Arc::new(Field::new(
            "",
            DataType::List(Arc::new(item)),
            true,
        )));
    }
    if let Some(name) = object_identifier(sql_type) {
        let field = Field::new("", DataType::Int32, true);
        return Ok(Arc::new(
            field.with_metadata([(SQL_TYPE_KEY.to_owned(), name)].into()),
        ));
    }
    let ty = sql_type_of(sql_type)?;
    let any = match sql_type {
        AstType::Numeric(ExactNumberInfo::None)
        | AstType::Decimal(ExactNumberInfo::None)
        | AstType::Dec(ExactNumberInfo::None) => true,
        AstType::Custom(_, modifiers) => {
            matches!(ty, SqlType::Numeric { .. }) && modifiers.is_empty()
        }
        _ => false,
    };
    let field = Field::new("", ty.arrow(), true);
    // VALUES wants the same metadata in every row, so it is there only where it
    // says something. A cast without metadata would keep its argument's, so
    // texts always say what they are.
    Ok(Arc::new(match ty {
        _ if any => field.with_metadata([(SQL_TYPE_KEY.to_owned(), ANY_NUMERIC.to_owned())].into()),
        _ if ty.is_text() => {
            field.with_metadata([(SQL_TYPE_KEY.to_owned(), ty.to_string())].into())
        }
        _ => field,
    }))
}

/// The types whose values are catalogue numbers. Their fields are `Int32` and
/// name the type in the metadata; the catalogue gives names a meaning.
fn object_identifier(sql_type: &AstType) -> Option<String> {
    match sql_type {
        AstType::Regclass => Some("regclass".to_owned()),
        AstType::Custom(name, _) => {
            let name = last_part(name);
            matches!(
                name.as_str(),
                "oid"
                    | "regclass"
                    | "regtype"
                    | "regproc"
                    | "regprocedure"
                    | "regnamespace"
                    | "regrole"
                    | "xid"
                    | "cid"
            )
            .then_some(name)
        }
        _ => None,
    }
}

fn last_part(name: &ObjectName) -> String {
    let part = name.0.last().and_then(|part| part.as_ident());
    part.map_or_else(String::new, |ident| match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_lowercase(),
    })
}

/// The column type that a type name of the parser means.
///
/// # Errors
/// `FeatureNotSupported` for types Aerostat lacks, `UndefinedObject` for names
/// that are no types, `InvalidParameterValue` for modifiers out of range.
pub(super) fn sql_type_of(sql_type: &AstType) -> std::result::Result<SqlType, SqlError> {
    Ok(match sql_type {
        AstType::Bool | AstType::Boolean => SqlType::Boolean,
        AstType::SmallInt(_) | AstType::Int2(_) => SqlType::SmallInt,
        AstType::Int(_) | AstType::Integer(_) | AstType::Int4(_) => SqlType::Integer,
        AstType::BigInt(_) | AstType::Int8(_) => SqlType::BigInt,
        AstType::Real | AstType::Float4 => SqlType::Real,
        AstType::Double(_) | AstType::DoublePrecision | AstType::Float8 => SqlType::Double,
        AstType::Float(info) => float(info)?,
        AstType::Numeric(info) | AstType::Decimal(info) | AstType::Dec(info) => numeric(info)?,
        AstType::Char(length) | AstType::Character(length) => {
            SqlType::Char(character_length("char", length)?.unwrap_or(1))
        }
        AstType::Varchar(length)
        | AstType::CharacterVarying(length)
        | AstType::CharVarying(length) => SqlType::Varchar(character_length("varchar", length)?),
        AstType::Text => SqlType::Text,
        AstType::Bytea => SqlType::Bytea,
        AstType::Uuid => SqlType::Uuid,
        AstType::Date => SqlType::Date,
        AstType::Time(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => SqlType::Time,
        AstType::Timestamp(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => {
            SqlType::Timestamp
        }
        AstType::Timestamp(_, _) => SqlType::TimestampTz,
        AstType::Interval { .. } => SqlType::Interval,
        AstType::Custom(name, modifiers) => custom(name, modifiers)?,
        other => return Err(unsupported(&other.to_string().to_lowercase())),
    })
}

fn float(info: &ExactNumberInfo) -> std::result::Result<SqlType, SqlError> {
    match info {
        ExactNumberInfo::None => Ok(SqlType::Double),
        ExactNumberInfo::Precision(1..=24) => Ok(SqlType::Real),
        ExactNumberInfo::Precision(25..=53) => Ok(SqlType::Double),
        _ => Err(invalid(
            "precision for type float must be between 1 and 53 bits",
        )),
    }
}

fn numeric(info: &ExactNumberInfo) -> std::result::Result<SqlType, SqlError> {
    let (precision, scale) = match *info {
        ExactNumberInfo::None => return Ok(aerostat_types::NUMERIC_DEFAULT),
        ExactNumberInfo::Precision(precision) => (precision, 0),
        ExactNumberInfo::PrecisionAndScale(precision, scale) => (precision, scale),
    };
    if !(1..=1000).contains(&precision) {
        return Err(invalid(format!(
            "NUMERIC precision {precision} must be between 1 and 1000"
        )));
    }
    if precision > PRECISION_MAX {
        return Err(SqlError::new(
            ErrorKind::FeatureNotSupported,
            format!("numeric precision {precision} is not supported"),
        )
        .with_hint("The largest precision is 38."));
    }
    match i8::try_from(scale) {
        Ok(small) if (0..=precision as i64).contains(&scale) => Ok(SqlType::Numeric {
            precision: precision as u8,
            scale: small,
        }),
        _ => Err(SqlError::new(
            ErrorKind::FeatureNotSupported,
            format!("numeric scale {scale} is not supported"),
        )
        .with_hint("The scale must be between 0 and the precision.")),
    }
}

fn character_length(
    name: &str,
    length: &Option<CharacterLength>,
) -> std::result::Result<Option<u32>, SqlError> {
    match length {
        None => Ok(None),
        Some(CharacterLength::IntegerLength { length: 0, .. }) => Err(invalid(format!(
            "length for type {name} must be at least 1"
        ))),
        Some(CharacterLength::IntegerLength { length, .. }) if *length <= LENGTH_MAX => {
            Ok(Some(*length as u32))
        }
        Some(_) => Err(invalid(format!(
            "length for type {name} cannot exceed {LENGTH_MAX}"
        ))),
    }
}

fn custom(name: &ObjectName, modifiers: &[String]) -> std::result::Result<SqlType, SqlError> {
    let last = last_part(name);
    let length = || match modifiers.first().map(|text| text.parse::<u64>()) {
        None => Ok(None),
        Some(Ok(length @ 1..=LENGTH_MAX)) => Ok(Some(length as u32)),
        Some(_) => Err(invalid(format!(
            "length for type {last} must be between 1 and {LENGTH_MAX}"
        ))),
    };
    match last.as_str() {
        "timestamptz" => Ok(SqlType::TimestampTz),
        "timestamp" => Ok(SqlType::Timestamp),
        "bpchar" => Ok(length()?.map_or(SqlType::BPCHAR, SqlType::Char)),
        "varchar" => Ok(SqlType::Varchar(length()?)),
        "int2" => Ok(SqlType::SmallInt),
        "int4" | "oid" => Ok(SqlType::Integer),
        "int8" => Ok(SqlType::BigInt),
        "float4" => Ok(SqlType::Real),
        "float8" => Ok(SqlType::Double),
        "bool" => Ok(SqlType::Boolean),
        "date" => Ok(SqlType::Date),
        "time" => Ok(SqlType::Time),
        "interval" => Ok(SqlType::Interval),
        "numeric" if modifiers.is_empty() => Ok(aerostat_types::NUMERIC_DEFAULT),
        "bytea" => Ok(SqlType::Bytea),
        "uuid" => Ok(SqlType::Uuid),
        "name" | "char" | "text" | "cstring" | "unknown" | "pg_node_tree" => Ok(SqlType::Text),
        "money" | "inet" | "cidr" | "macaddr" | "point" | "box" | "circle" | "line" | "path"
        | "polygon" | "xml" | "json" | "jsonb" | "tsvector" | "tsquery" | "timetz"
        | "int4range" | "int8range" | "numrange" | "daterange" | "tsrange" | "tstzrange"
        | "int4multirange" | "int8multirange" | "nummultirange" | "datemultirange"
        | "tsmultirange" | "tstzmultirange" | "macaddr8" | "pg_lsn" | "refcursor" | "tid"
        | "lseg" | "jsonpath" | "bit" | "varbit" | "regconfig" | "regdictionary"
        | "txid_snapshot" | "pg_snapshot" => Err(unsupported(&last)),
        _ => Err(SqlError::new(
            ErrorKind::UndefinedObject,
            format!("type \"{last}\" does not exist"),
        )),
    }
}

fn unsupported(name: &str) -> SqlError {
    SqlError::new(
        ErrorKind::FeatureNotSupported,
        format!("type {name} is not supported"),
    )
}

fn invalid(message: impl Into<String>) -> SqlError {
    SqlError::new(ErrorKind::InvalidParameterValue, message)
}
