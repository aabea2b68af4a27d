//! Key values as PostgreSQL's messages show them.

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
    columns: &[ArrayRef],
    row: usize,
) -> String {
    let names: Vec<_> = positions
        .iter()
        .map(|&at| schema.columns[at].name.as_str())
        .collect();
    let values: Vec<_> = positions
        .iter()
        .map(|&at| value(schema.columns[at].ty, &columns[at], row))
        .collect();
    format!("Key ({})=({})", names.join(", "), values.join(", "))
}

fn value(ty: SqlType, values: &ArrayRef, row: usize) -> String {
    if values.is_null(row) {
        return "null".to_owned();
    }
    let mut out = String::new();
    match ty {
        SqlType::Boolean => text::format_bool(values.as_boolean().value(row), &mut out),
        SqlType::SmallInt => text::format_int(
            values.as_primitive::<Int16Type>().value(row).into(),
            &mut out,
        ),
        SqlType::Integer => text::format_int(
            values.as_primitive::<Int32Type>().value(row).into(),
            &mut out,
        ),
        SqlType::BigInt => {
            text::format_int(values.as_primitive::<Int64Type>().value(row), &mut out)
        }
        SqlType::Real => {
            text::format_f32(values.as_primitive::<Float32Type>().value(row), &mut out)
        }
        SqlType::Double => {
            text::format_f64(values.as_primitive::<Float64Type>().value(row), &mut out)
        }
        SqlType::Numeric { scale, .. } => {
            text::format_numeric(
                values.as_primitive::<Decimal128Type>().value(row),
                scale,
                &mut out,
            );
        }
        SqlType::Char(n) => text::format_char(string(values, row), n, &mut out),
        SqlType::Varchar(_) | SqlType::Text => out.push_str(string(values, row)),
        SqlType::Bytea => text::format_bytea(bytes(values, row), &mut out),
        SqlType::Uuid => {
            let value = values.as_fixed_size_binary().value(row);
            text::format_uuid(value.try_into().expect("a uuid has 16 bytes"), &mut out);
        }
        SqlType::Date => {
            text::format_date(values.as_primitive::<Date32Type>().value(row), &mut out)
        }
        SqlType::Time => text::format_time(
            values.as_primitive::<Time64MicrosecondType>().value(row),
            &mut out,
        ),
        SqlType::Timestamp => {
            text::format_timestamp(
                values.as_primitive::<TimestampMicrosecondType>().value(row),
                &mut out,
            );
        }
        SqlType::TimestampTz => {
            text::format_timestamptz(
                values.as_primitive::<TimestampMicrosecondType>().value(row),
                0,
                &mut out,
            );
        }
        SqlType::Interval => {
            let value = values.as_primitive::<IntervalMonthDayNanoType>().value(row);
            let micros = value.nanoseconds / 1_000;
            text::format_interval(
                text::Interval {
                    months: value.months,
                    days: value.days,
                    micros,
                },
                &mut out,
            );
        }
    }
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
