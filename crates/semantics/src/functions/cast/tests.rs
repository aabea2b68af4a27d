//! Assignment casts.

use aerostat_types::{ErrorKind, SqlError, SqlType};
use arrow::datatypes::Field;
use datafusion::common::config::ConfigOptions;
use datafusion::common::{DataFusionError, Result, ScalarValue};
use datafusion::logical_expr::{Expr, col, lit};

use crate::functions;

fn assign(expr: Expr, from: &Field, to: SqlType, column: &str) -> Result<Expr> {
    functions::assign(expr, from, to, column, &ConfigOptions::default())
}

fn from(ty: SqlType) -> Field {
    ty.field("v", true)
}

fn error(result: Result<Expr>) -> SqlError {
    match result.unwrap_err() {
        DataFusionError::External(inner) => inner.downcast_ref::<SqlError>().unwrap().clone(),
        other => SqlError::new(ErrorKind::Internal, other.to_string()),
    }
}

#[test]
fn literals_are_read_as_the_column() {
    let text = |value: &str, ty| assign(lit(value), &from(SqlType::Text), ty, "a");
    assert_eq!(text("5", SqlType::Integer).unwrap(), lit(5_i32));
    assert_eq!(
        text("x  ", SqlType::Char(3)).unwrap(),
        Expr::Literal(ScalarValue::Utf8View(Some("x".into())), None)
    );
    assert_eq!(
        error(text("x", SqlType::Integer)).message,
        "invalid input syntax for type integer: \"x\""
    );
    assert_eq!(
        error(text("2024-01-01 10:61:00", SqlType::TimestampTz)).message,
        "date/time field value out of range: \"2024-01-01 10:61:00\""
    );
    assert_eq!(
        error(text("abcd", SqlType::Varchar(Some(3)))).message,
        "value too long for type character varying(3)"
    );
    assert_eq!(
        text(
            "1.005",
            SqlType::Numeric {
                precision: 5,
                scale: 2
            }
        )
        .unwrap(),
        Expr::Literal(ScalarValue::Decimal128(Some(101), 5, 2), None)
    );
    let null = assign(
        Expr::Literal(ScalarValue::Null, None),
        &Field::new("v", arrow::datatypes::DataType::Null, true),
        SqlType::Uuid,
        "a",
    );
    assert_eq!(
        null.unwrap(),
        Expr::Literal(ScalarValue::FixedSizeBinary(16, None), None)
    );
}

#[test]
fn typed_expressions_must_be_assignable() {
    let refused = error(assign(
        col("v"),
        &from(SqlType::Text),
        SqlType::Integer,
        "a",
    ));
    assert_eq!(refused.kind, ErrorKind::DatatypeMismatch);
    assert_eq!(
        refused.message,
        "column \"a\" is of type integer but expression is of type text"
    );
    assert!(assign(col("v"), &from(SqlType::Boolean), SqlType::Integer, "a").is_err());
    assert!(assign(col("v"), &from(SqlType::Integer), SqlType::Date, "a").is_err());
    assert!(assign(col("v"), &from(SqlType::BigInt), SqlType::SmallInt, "a").is_ok());
    assert!(assign(col("v"), &from(SqlType::Timestamp), SqlType::Date, "a").is_ok());
    assert!(assign(col("v"), &from(SqlType::Integer), SqlType::Text, "a").is_ok());
    assert_eq!(
        assign(col("v"), &from(SqlType::Integer), SqlType::Integer, "a").unwrap(),
        col("v")
    );
    assert_eq!(
        assign(
            col("v"),
            &from(SqlType::Varchar(Some(3))),
            SqlType::Varchar(Some(5)),
            "a"
        )
        .unwrap(),
        col("v")
    );
    assert_ne!(
        assign(
            col("v"),
            &from(SqlType::Text),
            SqlType::Varchar(Some(5)),
            "a"
        )
        .unwrap(),
        col("v")
    );
}
