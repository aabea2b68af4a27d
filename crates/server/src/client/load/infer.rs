//! The SQL types of a file's columns, for `--create`.

use anyhow::{Result, bail};
use arrow::datatypes::{DataType, Field, TimeUnit};

use crate::client::{quote_name, quote_table};

/// A column to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) name: String,
    pub(super) sql_type: String,
}

/// The `CREATE TABLE` for these columns.
pub(super) fn create_table(table: &str, columns: &[Column], layout: Option<&str>) -> String {
    let columns: Vec<String> = columns
        .iter()
        .map(|column| format!("{} {}", quote_name(&column.name), column.sql_type))
        .collect();
    let layout = layout
        .map(|layout| format!(" WITH (layout = '{}')", layout.replace('\'', "''")))
        .unwrap_or_default();
    format!(
        "CREATE TABLE {} ({}){layout}",
        quote_table(table),
        columns.join(", ")
    )
}

/// The SQL type that holds every value of an Arrow field.
///
/// # Errors
/// For nested types and others no column can have.
pub(super) fn of_field(field: &Field) -> Result<String> {
    Ok(match field.data_type() {
        DataType::Boolean => "boolean".to_owned(),
        DataType::Int8 | DataType::Int16 | DataType::UInt8 => "smallint".to_owned(),
        DataType::Int32 | DataType::UInt16 => "integer".to_owned(),
        DataType::Int64 | DataType::UInt32 => "bigint".to_owned(),
        DataType::UInt64 => "numeric(20,0)".to_owned(),
        DataType::Float16 | DataType::Float32 => "real".to_owned(),
        DataType::Float64 => "double precision".to_owned(),
        DataType::Decimal32(p, s) | DataType::Decimal64(p, s) | DataType::Decimal128(p, s)
            if *s >= 0 =>
        {
            format!("numeric({p},{s})")
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "text".to_owned(),
        DataType::FixedSizeBinary(16) => "uuid".to_owned(),
        DataType::Binary
        | DataType::LargeBinary
        | DataType::BinaryView
        | DataType::FixedSizeBinary(_) => "bytea".to_owned(),
        DataType::Date32 | DataType::Date64 => "date".to_owned(),
        DataType::Time32(_) | DataType::Time64(_) => "time".to_owned(),
        DataType::Timestamp(
            TimeUnit::Second | TimeUnit::Millisecond | TimeUnit::Microsecond | TimeUnit::Nanosecond,
            zone,
        ) => {
            if zone.is_some() {
                "timestamptz".to_owned()
            } else {
                "timestamp".to_owned()
            }
        }
        DataType::Dictionary(_, value) => {
            of_field(&Field::new(field.name(), value.as_ref().clone(), true))?
        }
        other => bail!(
            "column {} is of type {other}, which no SQL column can hold",
            field.name()
        ),
    })
}

/// The narrowest SQL types that hold the sampled texts of CSV columns.
pub(super) fn of_texts(names: &[String], rows: &[Vec<String>], null: &str) -> Vec<Column> {
    let column = |(at, name): (usize, &String)| {
        let texts: Vec<&str> = rows
            .iter()
            .filter_map(|row| row.get(at))
            .map(String::as_str)
            .filter(|text| *text != null)
            .collect();
        Column {
            name: name.clone(),
            sql_type: narrowest(&texts).to_owned(),
        }
    };
    names.iter().enumerate().map(column).collect()
}

/// The first type whose every value the texts could be; text where there is none.
fn narrowest(texts: &[&str]) -> &'static str {
    let candidates: [(&str, Test); 5] = [
        ("bigint", |text| {
            text.parse::<i64>().is_ok() && !has_leading_zero(text)
        }),
        ("double precision", |text| {
            text.parse::<f64>().is_ok() && !has_leading_zero(text)
        }),
        ("boolean", |text| {
            matches!(text, "t" | "f" | "true" | "false")
        }),
        ("date", is_date),
        ("timestamp", |text| {
            text.split_once([' ', 'T'])
                .is_some_and(|(date, time)| is_date(date) && is_time(time))
        }),
    ];
    let fits = |test: Test| !texts.is_empty() && texts.iter().all(|text| test(text));
    candidates
        .iter()
        .find(|(_, test)| fits(*test))
        .map_or("text", |(name, _)| name)
}

/// Whether a text is a value of some type.
type Test = fn(&str) -> bool;

/// `007` is an identifier, not the number 7.
fn has_leading_zero(text: &str) -> bool {
    let digits = text.trim_start_matches(['-', '+']);
    digits.len() > 1 && digits.starts_with('0') && !digits.starts_with("0.")
}

fn is_date(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    lengths == [4, 2, 2]
        && parts
            .iter()
            .all(|part| part.bytes().all(|byte| byte.is_ascii_digit()))
}

fn is_time(text: &str) -> bool {
    let (clock, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let parts: Vec<&str> = clock.split(':').collect();
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    (2..=3).contains(&parts.len())
        && parts.iter().all(|part| part.len() == 2 && digits(part))
        && digits(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_get_the_narrowest_type() {
        let names: Vec<String> = ["i", "f", "b", "d", "ts", "t", "zip", "none"]
            .map(str::to_owned)
            .into();
        let rows: Vec<Vec<String>> = [
            [
                "1",
                "1.5",
                "t",
                "2024-01-01",
                "2024-01-01 10:00:00",
                "x",
                "01234",
                "",
            ],
            [
                "-2",
                "",
                "false",
                "1999-12-31",
                "2024-01-01T10:00:00.5",
                "1",
                "12345",
                "",
            ],
        ]
        .iter()
        .map(|row| row.map(str::to_owned).into())
        .collect();
        let types: Vec<String> = of_texts(&names, &rows, "")
            .into_iter()
            .map(|column| column.sql_type)
            .collect();
        assert_eq!(
            types,
            [
                "bigint",
                "double precision",
                "boolean",
                "date",
                "timestamp",
                "text",
                "text",
                "text"
            ]
        );
    }

    #[test]
    fn arrow_fields_have_sql_types_or_an_error() {
        let field = |data_type| Field::new("x", data_type, true);
        assert_eq!(of_field(&field(DataType::Int32)).unwrap(), "integer");
        assert_eq!(
            of_field(&field(DataType::Decimal128(12, 2))).unwrap(),
            "numeric(12,2)"
        );
        let dictionary = DataType::Dictionary(DataType::Int32.into(), DataType::Utf8.into());
        assert_eq!(of_field(&field(dictionary)).unwrap(), "text");
        assert!(of_field(&field(DataType::new_list(DataType::Int32, true))).is_err());
    }

    #[test]
    fn the_statement_quotes_names() {
        let columns = [Column {
            name: "a b".to_owned(),
            sql_type: "integer".to_owned(),
        }];
        assert_eq!(
            create_table("s.t", &columns, None),
            "CREATE TABLE \"s\".\"t\" (\"a b\" integer)"
        );
        assert!(create_table("t", &columns, Some("row")).ends_with(" WITH (layout = 'row')"));
    }
}
