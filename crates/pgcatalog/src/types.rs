//! The types of columns of the system catalogue, and their Arrow forms.
//!
//! | PostgreSQL | Arrow |
//! |---|---|
//! | oid, regclass…, xid, cid | Int64 |
//! | name, text, "char", aclitem, pg_node_tree, … | Utf8View |
//! | int2vector, oidvector, t[] | List |
//! | bool, int2, int4, int8, float4, float8, bytea, timestamptz | as [`SqlType::arrow`] |
//!
//! A field whose type has no [`SqlType`] carries PostgreSQL's name for it under [`PG_TYPE_KEY`],
//! so that a client gets the right type number.

use std::sync::{Arc, OnceLock};

use aerostat_types::SqlType;
use datafusion::arrow::datatypes::{DataType, Field, TimeUnit};

use crate::data;

/// Metadata key under which a field carries PostgreSQL's name (`typname`) of a
/// type that no column of a table can have: `oid`, `name`, `char`, `_text`.
pub const PG_TYPE_KEY: &str = "aerostat.pgtype";

/// The types that are numbers of catalogue entries.
const OID_LIKE: [&str; 13] = [
    "oid",
    "xid",
    "cid",
    "regproc",
    "regprocedure",
    "regoper",
    "regoperator",
    "regclass",
    "regtype",
    "regrole",
    "regnamespace",
    "regcollation",
    "tid",
];

/// The Arrow type of a PostgreSQL type, by its `typname`.
pub(crate) fn arrow_type(typname: &str) -> DataType {
    if let Some(element) = typname.strip_prefix('_') {
        return list_of(element);
    }
    match typname {
        "int2vector" => list_of("int2"),
        "oidvector" => list_of("oid"),
        "bool" => DataType::Boolean,
        "int2" => DataType::Int16,
        "int4" => DataType::Int32,
        "int8" => DataType::Int64,
        "float4" => DataType::Float32,
        "float8" => DataType::Float64,
        "bytea" => DataType::BinaryView,
        "numeric" => DataType::Decimal128(38, 0),
        "timestamptz" => DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
        name if OID_LIKE.contains(&name) => DataType::Int64,
        _ => DataType::Utf8View,
    }
}

fn list_of(element: &str) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(arrow_type(element), true)))
}

/// A field of a PostgreSQL type, by its `typname`.
pub(crate) fn field(name: &str, typname: &str, nullable: bool) -> Field {
    let field = Field::new(name, arrow_type(typname), nullable);
    let plain = matches!(
        typname,
        "bool"
            | "int2"
            | "int4"
            | "int8"
            | "float4"
            | "float8"
            | "bytea"
            | "text"
            | "timestamptz"
            | "numeric"
    );
    if plain {
        return field;
    }
    field.with_metadata([(PG_TYPE_KEY.to_owned(), typname.to_owned())].into())
}

/// A field of text that a client is told is of this type: how `regclass` and its
/// kin are shown.
pub(crate) fn text_field(name: &str, typname: &str) -> Field {
    Field::new(name, DataType::Utf8View, true)
        .with_metadata([(PG_TYPE_KEY.to_owned(), typname.to_owned())].into())
}

/// PostgreSQL's number for the type of a field: the type its metadata names, else
/// that of its [`SqlType`], else the array type of its element; 25 (text) where
/// PostgreSQL has nothing like it.
pub fn oid_of_field(field: &Field) -> u32 {
    if let Some(named) = field.metadata().get(PG_TYPE_KEY)
        && let Some(oid) = oid_of_typname(named)
    {
        return oid;
    }
    let item = SqlType::item_of(field);
    match field.data_type() {
        DataType::List(element)
        | DataType::LargeList(element)
        | DataType::FixedSizeList(element, _) => {
            let element = oid_of_field(item.as_ref().unwrap_or(element));
            types()
                .iter()
                .find(|ty| ty.oid == element)
                .map_or(1009, |ty| ty.array)
        }
        _ => SqlType::of_field(field).map_or(25, SqlType::oid),
    }
}

/// A row of `pg_type`, as far as functions need it.
pub(crate) struct PgType {
    pub(crate) oid: u32,
    pub(crate) name: String,
    pub(crate) length: i16,
    pub(crate) element: u32,
    pub(crate) array: u32,
    pub(crate) category: char,
}

/// The types there are.
pub(crate) fn types() -> &'static [PgType] {
    static TYPES: OnceLock<Vec<PgType>> = OnceLock::new();
    TYPES.get_or_init(|| {
        let table = data::Table::read(data::PG_TYPE);
        let number = |row: &[Option<&'static str>], column: &str| -> i64 {
            table
                .value(row, column)
                .and_then(|text| text.parse().ok())
                .unwrap_or(0)
        };
        table
            .rows
            .iter()
            .map(|row| PgType {
                oid: number(row, "oid") as u32,
                name: table.value(row, "typname").unwrap_or_default().to_owned(),
                length: number(row, "typlen") as i16,
                element: number(row, "typelem") as u32,
                array: number(row, "typarray") as u32,
                category: table
                    .value(row, "typcategory")
                    .and_then(|text| text.chars().next())
                    .unwrap_or('X'),
            })
            .collect()
    })
}

/// The number of a type by its `typname`.
pub fn oid_of_typname(name: &str) -> Option<u32> {
    types().iter().find(|ty| ty.name == name).map(|ty| ty.oid)
}

/// `pg_type.typlen` of the type with this number; −1 for one that is not there.
pub fn length_of_type(oid: u32) -> i16 {
    types()
        .iter()
        .find(|ty| ty.oid == oid)
        .map_or(-1, |ty| ty.length)
}

/// The number of a type by any name SQL has for it: `int4`, `integer`, `_text`,
/// `text[]`, `pg_catalog.varchar(10)`.
pub(crate) fn oid_of_sql_name(text: &str) -> Option<u32> {
    let trimmed = text.trim();
    let bare = trimmed.strip_prefix("pg_catalog.").unwrap_or(trimmed);
    let bare = bare.trim_matches('"');
    if let Some(element) = bare.strip_suffix("[]") {
        let element = oid_of_sql_name(element)?;
        return types()
            .iter()
            .find(|ty| ty.oid == element)
            .map(|ty| ty.array)
            .filter(|&oid| oid != 0);
    }
    // `char` as typname is the one-byte type; in SQL it is character(1).
    if (bare != "char" || trimmed != bare)
        && let Some(oid) = oid_of_typname(bare)
    {
        return Some(oid);
    }
    bare.to_ascii_lowercase()
        .parse::<SqlType>()
        .ok()
        .map(SqlType::oid)
}

/// PostgreSQL's `format_type`.
pub(crate) fn format_type(oid: u32, typmod: Option<i32>) -> String {
    let Some(ty) = types().iter().find(|ty| ty.oid == oid) else {
        return if oid == 0 {
            "-".to_owned()
        } else {
            "???".to_owned()
        };
    };
    if ty.category == 'A' && ty.element != 0 && ty.length == -1 && ty.name.starts_with('_') {
        return format!("{}[]", format_type(ty.element, typmod));
    }
    let modifier = typmod.filter(|&typmod| typmod >= 0);
    let with_length = |name: &str| match modifier {
        Some(typmod) if typmod >= 4 => format!("{name}({})", typmod - 4),
        _ => name.to_owned(),
    };
    match ty.name.as_str() {
        "bool" => "boolean".to_owned(),
        "int2" => "smallint".to_owned(),
        "int4" => "integer".to_owned(),
        "int8" => "bigint".to_owned(),
        "float4" => "real".to_owned(),
        "float8" => "double precision".to_owned(),
        // With typmod −1 the name stays "bpchar", since "character" would mean character(1).
        "bpchar" if modifier.is_none() && typmod.is_some() => "bpchar".to_owned(),
        "bpchar" => with_length("character"),
        "varchar" => with_length("character varying"),
        "char" => "\"char\"".to_owned(),
        "any" => "\"any\"".to_owned(),
        "time" => "time without time zone".to_owned(),
        "timestamp" => "timestamp without time zone".to_owned(),
        "timestamptz" => "timestamp with time zone".to_owned(),
        "numeric" => match modifier {
            Some(typmod) if typmod >= 4 => {
                format!(
                    "numeric({},{})",
                    ((typmod - 4) >> 16) & 0xffff,
                    (((typmod - 4) & 0x7ff) ^ 1024) - 1024
                )
            }
            _ => "numeric".to_owned(),
        },
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_named_as_postgresql_names_them() {
        assert_eq!(format_type(1043, Some(29)), "character varying(25)");
        assert_eq!(format_type(1042, Some(14)), "character(10)");
        assert_eq!(format_type(1042, None), "character");
        assert_eq!(format_type(1700, Some(786_438)), "numeric(12,2)");
        assert_eq!(format_type(1700, None), "numeric");
        assert_eq!(format_type(1009, Some(-1)), "text[]");
        assert_eq!(format_type(18, Some(-1)), "\"char\"");
        assert_eq!(format_type(22, None), "int2vector");
        assert_eq!(format_type(999_999, None), "???");
    }

    #[test]
    fn every_sql_type_and_its_array_are_there() {
        for name in [
            "boolean",
            "smallint",
            "integer",
            "bigint",
            "real",
            "double precision",
            "numeric",
            "character",
            "varchar",
            "text",
            "bytea",
            "uuid",
            "date",
            "time",
            "timestamp",
            "timestamptz",
            "interval",
        ] {
            let oid = oid_of_sql_name(name).unwrap();
            assert!(oid_of_sql_name(&format!("{name}[]")).is_some(), "{name}");
            assert_ne!(oid, 0, "{name}");
        }
        assert_eq!(oid_of_sql_name("pg_catalog.\"char\""), Some(18));
        assert_eq!(oid_of_sql_name("char"), Some(1042));
        assert_eq!(oid_of_field(&field("x", "_text", true)), 1009);
        assert_eq!(oid_of_field(&field("x", "oid", true)), 26);
        assert_eq!(oid_of_field(&field("x", "int2vector", true)), 22);
        assert_eq!(
            oid_of_field(&Field::new("x", arrow_type("_int2"), true)),
            1005
        );
    }
}
