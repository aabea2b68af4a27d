//! Key values in the form in which PostgreSQL's messages show them.

use aerostat_segment::{KeyRef, Literal, NewRows, SegmentSchema, ValueRef};
use aerostat_types::{SqlType, TableSchema, text};
use arrow_array::{
    Array, ArrayRef,
    cast::AsArray,
    types::{
        Date32Type, Decimal128Type, Float32Type, Float64Type, Int16Type, Int32Type, Int64Type,
        IntervalMonthDayNanoType, Time64MicrosecondType, TimestampMicrosecondType,
    },
};
use arrow_schema::DataType;

/// `Key (a, b)=(1, x)`, of the columns at these positions.
pub(crate) fn key(
    schema: &TableSchema,
    positions: &[usize],
    new: NewRows<'_>,
    row: usize,
) -> String {
    let names: Vec<_> = positions
        .iter()
        .map(|&at| schema.columns[at].name.as_str())
        .collect();
    let values: Vec<_> = positions
        .iter()
        .map(|&at| match new {
            NewRows::Columns(columns) => value(schema.columns[at].ty, &columns[at], row),
            NewRows::Row(values) => value_ref(schema.columns[at].ty, values[at]),
        })
        .collect();
    format!("Key ({})=({})", names.join(", "), values.join(", "))
}

/// `(1, x)`, from a key's bytes. `None` when it is no key of the schema.
pub(crate) fn key_bytes(
    schema: &TableSchema,
    segment_schema: &SegmentSchema,
    key: KeyRef<'_>,
) -> Option<String> {
    let values = key.values(segment_schema)?;
    let columns = schema.primary_key.iter().map(|&at| &schema.columns[at]);
    let texts: Vec<_> = columns
        .zip(&values)
        .map(|(column, value)| literal(column.ty, value))
        .collect();
    Some(format!("({})", texts.join(", ")))
}

fn value(ty: SqlType, values: &ArrayRef, row: usize) -> String {
    if values.is_null(row) {
        return "null".to_owned();
    }
    match literal_of(ty, values, row) {
        Some(value) => literal(ty, &value),
        None => {
            let value = values.as_primitive::<IntervalMonthDayNanoType>().value(row);
            interval(value.months, value.days, value.nanoseconds.into())
        }
    }
}

fn value_ref(ty: SqlType, value: ValueRef<'_>) -> String {
    let value = match value {
        ValueRef::Null => return "null".to_owned(),
        ValueRef::Interval(value) => {
            return interval(value.months, value.days, value.nanoseconds.into());
        }
        ValueRef::Bool(value) => Literal::Bool(value),
        ValueRef::I16(value) => Literal::Int(value.into()),
        ValueRef::I32(value) => Literal::Int(value.into()),
        ValueRef::I64(value) => Literal::Int(value.into()),
        ValueRef::I128(value) => Literal::Int(value),
        ValueRef::F32(value) => Literal::Float(value.into()),
        ValueRef::F64(value) => Literal::Float(value),
        ValueRef::Bytes16(bytes) => Literal::Bytes(bytes.to_vec()),
        ValueRef::Bytes(bytes) => Literal::Bytes(bytes.to_vec()),
    };
    literal(ty, &value)
}

/// A value that is not NULL, to compare with. `None` for an interval, which nothing is
/// compared with.
pub(crate) fn literal_of(ty: SqlType, values: &ArrayRef, row: usize) -> Option<Literal> {
    macro_rules! int {
        ($ty:ty) => {
            Literal::Int(values.as_primitive::<$ty>().value(row).into())
        };
    }
    Some(match ty {
        SqlType::Boolean => Literal::Bool(values.as_boolean().value(row)),
        SqlType::SmallInt => int!(Int16Type),
        SqlType::Integer => int!(Int32Type),
        SqlType::BigInt => int!(Int64Type),
        SqlType::Real => Literal::Float(values.as_primitive::<Float32Type>().value(row).into()),
        SqlType::Double => Literal::Float(values.as_primitive::<Float64Type>().value(row)),
        SqlType::Numeric { .. } => int!(Decimal128Type),
        SqlType::Char(_) | SqlType::Varchar(_) | SqlType::Text => {
            Literal::Bytes(string(values, row).as_bytes().to_vec())
        }
        SqlType::Bytea => Literal::Bytes(bytes(values, row).to_vec()),
        SqlType::Uuid => Literal::Bytes(values.as_fixed_size_binary().value(row).to_vec()),
        SqlType::Date => int!(Date32Type),
        SqlType::Time => int!(Time64MicrosecondType),
        SqlType::Timestamp | SqlType::TimestampTz => int!(TimestampMicrosecondType),
        SqlType::Interval => return None,
    })
}

/// A value of a type; an interval as its nanoseconds in all.
fn literal(ty: SqlType, value: &Literal) -> String {
    let mut out = String::new();
    match (ty, value) {
        (SqlType::Real, Literal::Float(value)) => text::format_f32(*value as f32, &mut out),
        (_, Literal::Float(value)) => text::format_f64(*value, &mut out),
        (_, Literal::Bool(value)) => text::format_bool(*value, &mut out),
        (SqlType::Bytea, Literal::Bytes(value)) => text::format_bytea(value, &mut out),
        (SqlType::Uuid, Literal::Bytes(value)) => {
            let value = value.as_slice().try_into();
            text::format_uuid(value.expect("a uuid has 16 bytes"), &mut out);
        }
        (SqlType::Char(n), Literal::Bytes(value)) => {
            text::format_char(&String::from_utf8_lossy(value), n, &mut out);
        }
        (_, Literal::Bytes(value)) => out.push_str(&String::from_utf8_lossy(value)),
        (SqlType::Numeric { scale, .. }, Literal::Int(value)) => {
            text::format_numeric(*value, scale, &mut out);
        }
        (SqlType::Date, Literal::Int(value)) => text::format_date(*value as i32, &mut out),
        (SqlType::Time, Literal::Int(value)) => text::format_time(*value as i64, &mut out),
        (SqlType::Timestamp, Literal::Int(value)) => {
            text::format_timestamp(*value as i64, &mut out);
        }
        (SqlType::TimestampTz, Literal::Int(value)) => {
            text::format_timestamptz(*value as i64, 0, &mut out);
        }
        (SqlType::Interval, Literal::Int(value)) => {
            const DAY_NS: i128 = 24 * 3_600 * 1_000_000_000;
            return interval(0, (value / DAY_NS) as i32, value % DAY_NS);
        }
        (_, Literal::Int(value)) => text::format_int(*value as i64, &mut out),
    }
    out
}

fn interval(months: i32, days: i32, nanoseconds: i128) -> String {
    let micros = (nanoseconds / 1_000) as i64;
    let mut out = String::new();
    text::format_interval(
        text::Interval {
            months,
            days,
            micros,
        },
        &mut out,
    );
    out
}

fn string(values: &ArrayRef, row: usize) -> &str {
    match values.data_type() {
        DataType::Utf8View => values.as_string_view().value(row),
        DataType::LargeUtf8 => values.as_string::<i64>().value(row),
        _ => values.as_string::<i32>().value(row),
    }
}

fn bytes(values: &ArrayRef, row: usize) -> &[u8] {
    match values.data_type() {
        DataType::BinaryView => values.as_binary_view().value(row),
        DataType::LargeBinary => values.as_binary::<i64>().value(row),
        _ => values.as_binary::<i32>().value(row),
    }
}
