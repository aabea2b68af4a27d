//! Values through both forms and back.

use std::sync::Arc;

use aerostat_types::SqlType;
use arrow::{
    array::{Array, ArrayRef, Int32Array, ListArray, StringArray, StringViewArray, UInt64Array},
    buffer::OffsetBuffer,
    datatypes::{DataType, Field, Schema},
};
use proptest::prelude::*;

use super::{Builder, Column, Zone, array::put_value, numeric, plain};
use crate::{
    api::{ColumnDescription, Rows, Value},
    wire::Format,
};

pub(crate) const ZONE: Zone = Zone::iana(chrono_tz::Tz::Europe__Berlin);

/// Any value of the type in its text form, or NULL.
pub(crate) fn any_text(ty: SqlType) -> BoxedStrategy<Option<String>> {
    let text = match ty {
        SqlType::Boolean => any::<bool>().prop_map(|v| v.to_string()).boxed(),
        SqlType::SmallInt => any::<i16>().prop_map(|v| v.to_string()).boxed(),
        SqlType::Integer => any::<i32>().prop_map(|v| v.to_string()).boxed(),
        SqlType::BigInt => any::<i64>().prop_map(|v| v.to_string()).boxed(),
        SqlType::Real => any::<f32>()
            .prop_filter("no NaN", |v| !v.is_nan())
            .prop_map(|v| format!("{v:e}"))
            .boxed(),
        SqlType::Double => any::<f64>()
            .prop_filter("no NaN", |v| !v.is_nan())
            .prop_map(|v| format!("{v:e}"))
            .boxed(),
        SqlType::Numeric { precision, scale } => {
            let limit = 10i128.pow(u32::from(precision));
            (-limit + 1..limit)
                .prop_map(move |v| format!("{v}e-{scale}"))
                .boxed()
        }
        SqlType::Char(_) => "[a-zé\"\\\\,\t]{0,4}[a-z]".boxed(),
        SqlType::Varchar(_) | SqlType::Text => "(\\PC|[\"\\\\,\t\n\r{}.N]){0,20}"
            .prop_filter("no NUL", |t| !t.contains('\0'))
            .boxed(),
        SqlType::Bytea => any::<Vec<u8>>()
            .prop_map(|bytes| {
                bytes
                    .iter()
                    .fold("\\x".to_owned(), |text, b| text + &format!("{b:02x}"))
            })
            .boxed(),
        SqlType::Uuid => "[0-9a-f]{32}".boxed(),
        SqlType::Date => "[1-3][0-9]{3}-0[1-9]-[12][0-8]( BC)?".boxed(),
        SqlType::Time => "[01][0-9]:[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?".boxed(),
        SqlType::Timestamp => {
            "[1-9][0-9]{3}-0[1-9]-[12][0-8] [01][0-9]:[0-5][0-9]:[0-5][0-9](\\.[0-9]{1,6})?".boxed()
        }
        SqlType::TimestampTz => {
            "[1-9][0-9]{3}-0[1-9]-[12][0-8] [01][0-9]:[0-5][0-9]:[0-5][0-9]\\+0[0-9]".boxed()
        }
        SqlType::Interval => (-9999i32..9999, -9999i32..9999, -(1i64 << 52)..(1i64 << 52))
            .prop_map(|(months, days, micros)| format!("{months} mons {days} days {micros} us"))
            .boxed(),
    };
    prop::option::weighted(0.9, text).boxed()
}

pub(crate) fn build(ty: SqlType, texts: &[Option<String>]) -> ArrayRef {
    let mut builder = Builder::new(ty, ZONE, texts.len());
    for text in texts {
        match text {
            None => builder.push_null(),
            Some(text) => builder
                .push_text(text)
                .unwrap_or_else(|e| panic!("{ty} {text:?}: {e:?}")),
        }
    }
    builder.finish()
}

fn any_column() -> impl Strategy<Value = (SqlType, Vec<Option<String>>)> {
    prop::sample::select(crate::tests_types())
        .prop_flat_map(|ty| (Just(ty), prop::collection::vec(any_text(ty), 0..12)))
}

proptest! {
    #[test]
    fn values_come_back_from_both_forms((ty, texts) in any_column()) {
        let array = build(ty, &texts);
        prop_assert_eq!(array.data_type(), &ty.arrow());
        let column = Column::new(&array, &ColumnDescription::new("c", ty), ZONE).unwrap();
        for format in [Format::Text, Format::Binary] {
            let mut builder = Builder::new(ty, ZONE, 1);
            let mut out = Vec::new();
            for row in 0..array.len() {
                if column.is_null(row) {
                    builder.push_null();
                    continue;
                }
                out.clear();
                column.put(row, format, &mut out).unwrap();
                if format == Format::Text && column.is_plain() {
                    prop_assert!(!out.iter().any(|b| b",\t\"\\\n\r".contains(b)));
                }
                builder.push(&out, format).unwrap();
            }
            prop_assert_eq!(&builder.finish(), &array, "{} {:?}", ty, format);
        }
    }

    /// A single value is read as a column's value would be, and written so.
    #[test]
    fn plain_values_are_those_of_columns((ty, texts) in any_column()) {
        let array = build(ty, &texts);
        let column = Column::new(&array, &ColumnDescription::new("c", ty), ZONE).unwrap();
        let mut values = Vec::new();
        for (row, text) in texts.iter().enumerate() {
            let value = match text {
                Some(text) => Value::read(ty, &ZONE, text).unwrap(),
                None => Value::Null,
            };
            for format in [Format::Text, Format::Binary] {
                let (mut alone, mut of_column) = (Vec::new(), Vec::new());
                plain::put(&value, ty, ZONE, format, &mut alone).unwrap();
                put_value(&column, row, format, &mut of_column).unwrap();
                prop_assert_eq!(&alone, &of_column, "{} {:?} {:?}", ty, value, format);
                if text.is_some() {
                    let again = plain::read(ty, ZONE, &alone[4..], format).unwrap();
                    let mut written = Vec::new();
                    plain::put(&again, ty, ZONE, format, &mut written).unwrap();
                    prop_assert_eq!(&written, &alone, "{} {:?} {:?}", ty, value, format);
                }
            }
            values.push(value);
        }
        let schema = Arc::new(Schema::new(vec![ty.field("c", true)]));
        let batch = Rows::new(schema, [ty].into(), values).batch().unwrap();
        prop_assert_eq!(batch.column(0), &array);
    }

    #[test]
    fn any_bytes_give_a_value_or_an_error(bytes: Vec<u8>) {
        for ty in crate::tests_types() {
            for format in [Format::Text, Format::Binary] {
                let built = Builder::new(ty, ZONE, 1).push(&bytes, format);
                let alone = plain::read(ty, ZONE, &bytes, format);
                prop_assert_eq!(built.is_ok(), alone.is_ok(), "{} {:?}", ty, format);
            }
            let _ = super::array_text(&bytes, ty, ty.oid(), ZONE);
            let header = [&[0, 0, 0, 1, 0, 0, 0, 0][..], &ty.oid().to_be_bytes(), &bytes].concat();
            let _ = super::array_text(&header, ty, ty.oid(), ZONE);
        }
    }

    #[test]
    fn arrays_have_the_same_text_from_their_binary_form((ty, texts) in any_column()) {
        let items = build(ty, &texts);
        let list: ArrayRef = Arc::new(ListArray::new(
            Field::new_list_field(items.data_type().clone(), true).into(),
            OffsetBuffer::from_lengths([items.len()]),
            items,
            None,
        ));
        let text = shown(Arc::clone(&list), ty.array_oid(), -1, Format::Text);
        let binary = shown(list, ty.array_oid(), -1, Format::Binary);
        prop_assert_eq!(super::array_text(&binary, ty, ty.oid(), ZONE).unwrap().into_bytes(), text);
    }

    #[test]
    fn numerics_have_postgresqls_groups(value in -(10i128.pow(38) - 1)..10i128.pow(38), scale in 0i8..=38) {
        let mut bytes = Vec::new();
        numeric::put(value, scale, &mut bytes);
        let text = numeric::text_of(&bytes).unwrap();
        prop_assert_eq!(aerostat_types::text::parse_numeric(&text, 38, scale).unwrap(), value);
    }
}

fn shown(array: ArrayRef, oid: u32, typmod: i32, format: Format) -> Vec<u8> {
    let declared = ColumnDescription {
        typmod,
        ..ColumnDescription::of_oid("c", oid, -1)
    };
    let mut out = Vec::new();
    Column::new(&array, &declared, ZONE)
        .unwrap()
        .put(0, format, &mut out)
        .unwrap();
    out
}

#[test]
fn binary_forms_are_postgresqls() {
    // As `encode(numeric_send(…), 'hex')` and similar show them in PostgreSQL 15.
    let golden: [(SqlType, &str, &str); 12] = [
        (
            SqlType::Numeric {
                precision: 20,
                scale: 4,
            },
            "12345.6789",
            "0003000100000004000109291a85",
        ),
        (
            SqlType::Numeric {
                precision: 20,
                scale: 4,
            },
            "-0.0001",
            "0001ffff400000040001",
        ),
        (
            SqlType::Numeric {
                precision: 20,
                scale: 4,
            },
            "0",
            "0000000000000004",
        ),
        (
            SqlType::Numeric {
                precision: 20,
                scale: 4,
            },
            "10000",
            "00010001000000040001",
        ),
        (SqlType::Date, "2000-01-02", "00000001"),
        (SqlType::Date, "1999-12-31", "ffffffff"),
        (SqlType::Time, "00:00:01", "00000000000f4240"),
        (
            SqlType::Timestamp,
            "2000-01-01 00:00:01",
            "00000000000f4240",
        ),
        (
            SqlType::TimestampTz,
            "2000-01-01 00:00:00+01",
            "ffffffff296c5c00",
        ),
        (
            SqlType::Interval,
            "1 mon 2 days 3 us",
            "00000000000000030000000200000001",
        ),
        (SqlType::Boolean, "t", "01"),
        (SqlType::Real, "1.5", "3fc00000"),
    ];
    for (ty, text, hex) in golden {
        let array = build(ty, &[Some(text.to_owned())]);
        let got: String = shown(array, ty.oid(), -1, Format::Binary)
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        assert_eq!(got, hex, "{ty} {text}");
    }
}

#[test]
fn arrays_vectors_and_other_types_have_their_forms() {
    let texts = StringArray::from(vec![
        Some("plain"),
        None,
        Some("a b"),
        Some("NULL"),
        Some(""),
        Some("q\"\\"),
    ]);
    let offsets = OffsetBuffer::from_lengths([texts.len()]);
    let list: ArrayRef = Arc::new(ListArray::new(
        Arc::new(Field::new_list_field(DataType::Utf8, true)),
        offsets,
        Arc::new(texts),
        None,
    ));
    assert_eq!(
        shown(list.clone(), 1009, -1, Format::Text),
        br#"{plain,NULL,"a b","NULL","","q\"\\"}"#
    );
    let binary = shown(list, 1003, -1, Format::Binary);
    assert_eq!(
        &binary[..20],
        &[0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 19, 0, 0, 0, 6, 0, 0, 0, 1]
    );

    let numbers: ArrayRef = Arc::new(Int32Array::from(vec![1, 3]));
    let list: ArrayRef = Arc::new(ListArray::new(
        Arc::new(Field::new_list_field(DataType::Int32, true)),
        OffsetBuffer::from_lengths([2]),
        numbers,
        None,
    ));
    assert_eq!(shown(list.clone(), 22, -1, Format::Text), b"1 3");
    assert_eq!(shown(list, 1007, -1, Format::Text), b"{1,3}");
    let wide: ArrayRef = Arc::new(UInt64Array::from(vec![u64::MAX]));
    assert_eq!(shown(wide, 1700, -1, Format::Text), b"18446744073709551615");
    let oid: ArrayRef = Arc::new(Int32Array::from(vec![16_384]));
    assert_eq!(shown(oid, 26, -1, Format::Binary), [0, 0, 64, 0]);
    let name: ArrayRef = Arc::new(StringArray::from(vec!["pg_class"]));
    assert_eq!(shown(name, 2205, -1, Format::Text), b"pg_class");
    let padded: ArrayRef = Arc::new(StringViewArray::from(vec!["ä"]));
    assert_eq!(shown(padded, 1042, 7, Format::Text), "ä  ".as_bytes());
}
