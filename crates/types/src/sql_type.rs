//! SQL types, their Arrow form, their physical form in a segment, and their PostgreSQL numbers.
//!
//! | SQL | Arrow | slot in a segment |
//! |---|---|---|
//! | boolean | Boolean | 1 byte |
//! | smallint, integer, bigint | Int16, Int32, Int64 | 2, 4, 8 bytes |
//! | real, double precision | Float32, Float64 | 4, 8 bytes |
//! | numeric(p,s) | Decimal128(p,s) | 8 bytes up to 18 digits, else 16 |
//! | char(n), varchar(n), text | Utf8View | 8-byte variable slot |
//! | bytea | BinaryView | 8-byte variable slot |
//! | uuid | FixedSizeBinary(16) | 16 bytes |
//! | date | Date32 | 4 bytes |
//! | time | Time64(µs) | 8 bytes |
//! | timestamp, timestamptz | Timestamp(µs, none or UTC) | 8 bytes |
//! | interval | Interval(MonthDayNano) | 16 bytes |
//!
//! A `char(n)` value is stored and passed without its trailing blanks; they are added where a
//! client sees the value.

use std::fmt;
use std::sync::Arc;

use arrow_schema::{DataType, Field, FieldRef, IntervalUnit, TimeUnit};
use serde::{Deserialize, Serialize};

/// Metadata key under which an Arrow field carries its SQL type, so that type
/// modifiers survive planning.
pub const SQL_TYPE_KEY: &str = "aerostat.type";

/// Metadata key under which the field of a list carries the SQL type of its items, where these are
/// of another kind of text than `text`.
pub const ITEM_TYPE_KEY: &str = "aerostat.item";

/// The longest single value, in bytes: a variable slot counts length in 24 bits.
pub const VALUE_BYTES_MAX: usize = (1 << 24) - 1;

/// What `numeric` without precision means: Arrow's widest decimal, with room for
/// 28 digits before the point.
pub const NUMERIC_DEFAULT: SqlType = SqlType::Numeric {
    precision: 38,
    scale: 10,
};

/// A column type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SqlType {
    /// `boolean`
    Boolean,
    /// `smallint`
    SmallInt,
    /// `integer`
    Integer,
    /// `bigint`
    BigInt,
    /// `real`
    Real,
    /// `double precision`
    Double,
    /// `numeric(precision, scale)`, at most 38 digits.
    Numeric {
        /// Digits in all, 1 to 38.
        precision: u8,
        /// Digits after the point, 0 to `precision`.
        scale: i8,
    },
    /// `char(n)`: blank-padded to n characters. Columns have a length; what is only compared as one, or is given
    /// for one, is a [`SqlType::BPCHAR`].
    Char(u32),
    /// `varchar(n)`, or `varchar` without a limit.
    Varchar(Option<u32>),
    /// `text`
    Text,
    /// `bytea`
    Bytea,
    /// `uuid`
    Uuid,
    /// `date`: days since 1970-01-01.
    Date,
    /// `time`: microseconds since midnight.
    Time,
    /// `timestamp`: microseconds since 1970-01-01 00:00:00, no zone.
    Timestamp,
    /// `timestamptz`: microseconds since 1970-01-01 00:00:00 UTC.
    TimestampTz,
    /// `interval`: months, days, nanoseconds.
    Interval,
}

/// How a value lies in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Physical {
    /// One byte, 0 or 1.
    Bool,
    /// Two-byte integer.
    I16,
    /// Four-byte integer; also `date`.
    I32,
    /// Eight-byte integer; also times and decimals of up to 18 digits.
    I64,
    /// Sixteen-byte integer; decimals of more than 18 digits.
    I128,
    /// Four-byte float.
    F32,
    /// Eight-byte float.
    F64,
    /// Sixteen opaque bytes: uuid.
    Bytes16,
    /// Sixteen bytes: months i32, days i32, nanoseconds i64.
    Interval,
    /// An eight-byte slot: short values inline, longer ones in the segment's heap.
    Variable,
}

impl Physical {
    /// Bytes one value takes in its attribute group.
    pub const fn width(self) -> usize {
        match self {
            Physical::Bool => 1,
            Physical::I16 => 2,
            Physical::I32 | Physical::F32 => 4,
            Physical::I64 | Physical::F64 | Physical::Variable => 8,
            Physical::I128 | Physical::Bytes16 | Physical::Interval => 16,
        }
    }
}

impl SqlType {
    /// PostgreSQL's `bpchar` without a length: any text, whose trailing blanks count for nothing.
    pub const BPCHAR: SqlType = SqlType::Char(u32::MAX);

    /// The form in a segment.
    pub const fn physical(self) -> Physical {
        match self {
            SqlType::Boolean => Physical::Bool,
            SqlType::SmallInt => Physical::I16,
            SqlType::Integer | SqlType::Date => Physical::I32,
            SqlType::BigInt | SqlType::Time | SqlType::Timestamp | SqlType::TimestampTz => {
                Physical::I64
            }
            SqlType::Real => Physical::F32,
            SqlType::Double => Physical::F64,
            SqlType::Numeric { precision, .. } if precision <= 18 => Physical::I64,
            SqlType::Numeric { .. } => Physical::I128,
            SqlType::Char(_) | SqlType::Varchar(_) | SqlType::Text | SqlType::Bytea => {
                Physical::Variable
            }
            SqlType::Uuid => Physical::Bytes16,
            SqlType::Interval => Physical::Interval,
        }
    }

    /// The form in an Arrow array.
    pub fn arrow(self) -> DataType {
        match self {
            SqlType::Boolean => DataType::Boolean,
            SqlType::SmallInt => DataType::Int16,
            SqlType::Integer => DataType::Int32,
            SqlType::BigInt => DataType::Int64,
            SqlType::Real => DataType::Float32,
            SqlType::Double => DataType::Float64,
            SqlType::Numeric { precision, scale } => DataType::Decimal128(precision, scale),
            SqlType::Char(_) | SqlType::Varchar(_) | SqlType::Text => DataType::Utf8View,
            SqlType::Bytea => DataType::BinaryView,
            SqlType::Uuid => DataType::FixedSizeBinary(16),
            SqlType::Date => DataType::Date32,
            SqlType::Time => DataType::Time64(TimeUnit::Microsecond),
            SqlType::Timestamp => DataType::Timestamp(TimeUnit::Microsecond, None),
            SqlType::TimestampTz => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
            SqlType::Interval => DataType::Interval(IntervalUnit::MonthDayNano),
        }
    }

    /// The SQL type that an Arrow field stands for: the one its metadata names,
    /// else the nearest for its data type. `None` for nested and other types
    /// that no column can have.
    pub fn of_field(field: &Field) -> Option<SqlType> {
        if let Some(named) = field.metadata().get(SQL_TYPE_KEY)
            && let Ok(ty) = named.parse::<SqlType>()
            && ty.arrow() == *field.data_type()
        {
            return Some(ty);
        }
        SqlType::of_arrow(field.data_type())
    }

    /// The nearest SQL type for an Arrow data type.
    pub fn of_arrow(data_type: &DataType) -> Option<SqlType> {
        Some(match data_type {
            DataType::Boolean => SqlType::Boolean,
            DataType::Int8 | DataType::UInt8 | DataType::Int16 => SqlType::SmallInt,
            DataType::UInt16 | DataType::Int32 => SqlType::Integer,
            DataType::UInt32 | DataType::Int64 => SqlType::BigInt,
            DataType::UInt64 => SqlType::Numeric {
                precision: 20,
                scale: 0,
            },
            DataType::Float16 | DataType::Float32 => SqlType::Real,
            DataType::Float64 => SqlType::Double,
            DataType::Decimal32(p, s) | DataType::Decimal64(p, s) | DataType::Decimal128(p, s) => {
                SqlType::Numeric {
                    precision: *p,
                    scale: *s,
                }
            }
            DataType::Null | DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
                SqlType::Text
            }
            DataType::Binary | DataType::LargeBinary | DataType::BinaryView => SqlType::Bytea,
            DataType::FixedSizeBinary(16) => SqlType::Uuid,
            DataType::Date32 | DataType::Date64 => SqlType::Date,
            DataType::Time32(_) | DataType::Time64(_) => SqlType::Time,
            DataType::Timestamp(_, None) => SqlType::Timestamp,
            DataType::Timestamp(_, Some(_)) => SqlType::TimestampTz,
            DataType::Interval(_) | DataType::Duration(_) => SqlType::Interval,
            DataType::Dictionary(_, value) => return SqlType::of_arrow(value),
            _ => return None,
        })
    }

    /// An Arrow field of this type. Where the Arrow type alone would not tell
    /// (`char(n)` and `varchar(n)` look like `text`), its metadata does.
    pub fn field(self, name: &str, nullable: bool) -> Field {
        let field = Field::new(name, self.arrow(), nullable);
        if SqlType::of_arrow(field.data_type()) == Some(self) {
            return field;
        }
        field.with_metadata([(SQL_TYPE_KEY.to_owned(), self.to_string())].into())
    }

    /// A field of a list, whose items are of this type: lists of texts are of one Arrow type, whatever
    /// kind of text their items are, so that these metadata alone tell.
    pub fn of_items(self, list: Field) -> Field {
        let mut metadata = list.metadata().clone();
        metadata.insert(ITEM_TYPE_KEY.to_owned(), self.to_string());
        list.with_metadata(metadata)
    }

    /// The item of a list's field, with the metadata that say its type; nothing for what is no list.
    pub fn item_of(list: &Field) -> Option<FieldRef> {
        let DataType::List(item) = list.data_type() else {
            return None;
        };
        Some(match list.metadata().get(ITEM_TYPE_KEY) {
            Some(named) => {
                let named = [(SQL_TYPE_KEY.to_owned(), named.clone())].into();
                Arc::new(item.as_ref().clone().with_metadata(named))
            }
            None => Arc::clone(item),
        })
    }

    /// PostgreSQL's number for the type.
    pub const fn oid(self) -> u32 {
        match self {
            SqlType::Boolean => 16,
            SqlType::Bytea => 17,
            SqlType::BigInt => 20,
            SqlType::SmallInt => 21,
            SqlType::Integer => 23,
            SqlType::Text => 25,
            SqlType::Real => 700,
            SqlType::Double => 701,
            SqlType::Char(_) => 1042,
            SqlType::Varchar(_) => 1043,
            SqlType::Date => 1082,
            SqlType::Time => 1083,
            SqlType::Timestamp => 1114,
            SqlType::TimestampTz => 1184,
            SqlType::Interval => 1186,
            SqlType::Numeric { .. } => 1700,
            SqlType::Uuid => 2950,
        }
    }

    /// PostgreSQL's number for arrays of the type.
    pub const fn array_oid(self) -> u32 {
        match self {
            SqlType::Boolean => 1000,
            SqlType::Bytea => 1001,
            SqlType::BigInt => 1016,
            SqlType::SmallInt => 1005,
            SqlType::Integer => 1007,
            SqlType::Text => 1009,
            SqlType::Real => 1021,
            SqlType::Double => 1022,
            SqlType::Char(_) => 1014,
            SqlType::Varchar(_) => 1015,
            SqlType::Date => 1182,
            SqlType::Time => 1183,
            SqlType::Timestamp => 1115,
            SqlType::TimestampTz => 1185,
            SqlType::Interval => 1187,
            SqlType::Numeric { .. } => 1231,
            SqlType::Uuid => 2951,
        }
    }

    /// PostgreSQL's type modifier; −1 where there is none.
    pub const fn typmod(self) -> i32 {
        match self {
            SqlType::BPCHAR => -1,
            SqlType::Char(n) | SqlType::Varchar(Some(n)) => n as i32 + 4,
            SqlType::Numeric { precision, scale } => {
                ((precision as i32) << 16 | (scale as i32 & 0x7ff)) + 4
            }
            _ => -1,
        }
    }

    /// PostgreSQL's `typlen`: bytes of a fixed-width value, −1 for others.
    pub const fn typlen(self) -> i16 {
        match self {
            SqlType::Boolean => 1,
            SqlType::SmallInt => 2,
            SqlType::Integer | SqlType::Real | SqlType::Date => 4,
            SqlType::BigInt
            | SqlType::Double
            | SqlType::Time
            | SqlType::Timestamp
            | SqlType::TimestampTz => 8,
            SqlType::Uuid | SqlType::Interval => 16,
            _ => -1,
        }
    }

    /// The type for a PostgreSQL type number, without modifier. `None` for types Aerostat lacks.
    pub const fn from_oid(oid: u32) -> Option<SqlType> {
        Some(match oid {
            16 => SqlType::Boolean,
            17 => SqlType::Bytea,
            20 => SqlType::BigInt,
            21 => SqlType::SmallInt,
            23 | 26 => SqlType::Integer,
            18 | 19 | 25 => SqlType::Text,
            700 => SqlType::Real,
            701 => SqlType::Double,
            1042 => SqlType::BPCHAR,
            1043 => SqlType::Varchar(None),
            1082 => SqlType::Date,
            1083 => SqlType::Time,
            1114 => SqlType::Timestamp,
            1184 => SqlType::TimestampTz,
            1186 => SqlType::Interval,
            1700 => NUMERIC_DEFAULT,
            2950 => SqlType::Uuid,
            _ => return None,
        })
    }

    /// The type of the items of arrays with this PostgreSQL type number, without modifier. `None`
    /// for what is no array, or one of a type Aerostat lacks.
    pub const fn from_array_oid(oid: u32) -> Option<SqlType> {
        SqlType::from_oid(match oid {
            1000 => 16,
            1001 => 17,
            1002 => 18,
            1003 => 19,
            1005 => 21,
            1007 => 23,
            1009 => 25,
            1014 => 1042,
            1015 => 1043,
            1016 => 20,
            1021 => 700,
            1022 => 701,
            1028 => 26,
            1115 => 1114,
            1182 => 1082,
            1183 => 1083,
            1185 => 1184,
            1187 => 1186,
            1231 => 1700,
            2951 => 2950,
            _ => return None,
        })
    }

    /// Whether values are texts.
    pub const fn is_text(self) -> bool {
        matches!(self, SqlType::Char(_) | SqlType::Varchar(_) | SqlType::Text)
    }

    /// The name as PostgreSQL's messages give it: without length or digits.
    pub const fn plain_name(self) -> &'static str {
        match self {
            SqlType::Boolean => "boolean",
            SqlType::SmallInt => "smallint",
            SqlType::Integer => "integer",
            SqlType::BigInt => "bigint",
            SqlType::Real => "real",
            SqlType::Double => "double precision",
            SqlType::Numeric { .. } => "numeric",
            SqlType::Char(_) => "character",
            SqlType::Varchar(_) => "character varying",
            SqlType::Text => "text",
            SqlType::Bytea => "bytea",
            SqlType::Uuid => "uuid",
            SqlType::Date => "date",
            SqlType::Time => "time without time zone",
            SqlType::Timestamp => "timestamp without time zone",
            SqlType::TimestampTz => "timestamp with time zone",
            SqlType::Interval => "interval",
        }
    }
}

impl fmt::Display for SqlType {
    /// PostgreSQL's `format_type`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SqlType::Numeric { precision, scale } => write!(f, "numeric({precision},{scale})"),
            &SqlType::BPCHAR => f.write_str("bpchar"),
            SqlType::Char(n) => write!(f, "character({n})"),
            SqlType::Varchar(Some(n)) => write!(f, "character varying({n})"),
            plain => f.write_str(plain.plain_name()),
        }
    }
}

impl std::str::FromStr for SqlType {
    type Err = ();

    /// Reads what `Display` writes, and PostgreSQL's short names.
    fn from_str(text: &str) -> Result<Self, ()> {
        let (name, arguments) = match text.split_once('(') {
            Some((name, rest)) => (name, rest.strip_suffix(')').ok_or(())?),
            None => (text, ""),
        };
        let numbers: Vec<i64> = arguments
            .split(',')
            .filter(|part| !part.is_empty())
            .map(|part| part.trim().parse().map_err(|_| ()))
            .collect::<Result<_, ()>>()?;
        let length = || {
            numbers
                .first()
                .map(|&n| u32::try_from(n).map_err(|_| ()))
                .transpose()
        };
        Ok(match name.trim() {
            "boolean" | "bool" => SqlType::Boolean,
            "smallint" | "int2" => SqlType::SmallInt,
            "integer" | "int4" | "int" => SqlType::Integer,
            "bigint" | "int8" => SqlType::BigInt,
            "real" | "float4" => SqlType::Real,
            "double precision" | "float8" => SqlType::Double,
            "numeric" | "decimal" => match numbers[..] {
                [] => NUMERIC_DEFAULT,
                [p] => SqlType::Numeric {
                    precision: u8::try_from(p).map_err(|_| ())?,
                    scale: 0,
                },
                [p, s, ..] => SqlType::Numeric {
                    precision: u8::try_from(p).map_err(|_| ())?,
                    scale: i8::try_from(s).map_err(|_| ())?,
                },
            },
            "character" | "char" => SqlType::Char(length()?.unwrap_or(1)),
            "bpchar" => length()?.map_or(SqlType::BPCHAR, SqlType::Char),
            "character varying" | "varchar" => SqlType::Varchar(length()?),
            "text" => SqlType::Text,
            "bytea" => SqlType::Bytea,
            "uuid" => SqlType::Uuid,
            "date" => SqlType::Date,
            "time without time zone" | "time" => SqlType::Time,
            "timestamp without time zone" | "timestamp" => SqlType::Timestamp,
            "timestamp with time zone" | "timestamptz" => SqlType::TimestampTz,
            "interval" => SqlType::Interval,
            _ => return Err(()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_parses_back_and_fields_remember() {
        for ty in [
            SqlType::Boolean,
            SqlType::Numeric {
                precision: 12,
                scale: 2,
            },
            SqlType::Char(3),
            SqlType::Varchar(Some(10)),
            SqlType::Varchar(None),
            SqlType::TimestampTz,
            SqlType::Interval,
            SqlType::Double,
        ] {
            assert_eq!(ty.to_string().parse(), Ok(ty));
            assert_eq!(SqlType::of_field(&ty.field("x", true)), Some(ty));
        }
    }

    #[test]
    fn a_list_remembers_what_its_items_are() {
        let list = DataType::new_list(DataType::Utf8View, true);
        let plain = Field::new("x", list, true);
        let of = |list: &Field| SqlType::item_of(list).and_then(|item| SqlType::of_field(&item));
        assert_eq!(of(&plain), Some(SqlType::Text));
        assert_eq!(
            of(&SqlType::Char(4).of_items(plain)),
            Some(SqlType::Char(4))
        );
        assert_eq!(of(&SqlType::Char(4).field("x", true)), None);
    }

    #[test]
    fn typmods_are_postgresqls() {
        assert_eq!(
            SqlType::Numeric {
                precision: 10,
                scale: 2
            }
            .typmod(),
            655_366
        );
        assert_eq!(SqlType::Varchar(Some(25)).typmod(), 29);
        assert_eq!(SqlType::Text.typmod(), -1);
    }
}
