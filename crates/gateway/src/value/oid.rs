//! PostgreSQL's type numbers, by the form of the types' values.

/// The form of a type's values on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Bool,
    Int2,
    Int4,
    Int8,
    /// `oid` and its relatives: four bytes without sign.
    Oid,
    Float4,
    Float8,
    Numeric,
    /// A type whose binary form is its text.
    Text,
    Char,
    Bytea,
    Uuid,
    Date,
    Time,
    Timestamp,
    TimestampTz,
    Interval,
    /// An array, with the type number of its elements.
    Array(u32),
    /// `int2vector`, `oidvector`: in text without braces, with blanks between the elements.
    Vector(u32),
    /// A type without a form of its own: Arrow's text.
    Other,
}

/// Whether values of the type are numbers of catalogue entries that are shown by name.
pub(super) const fn is_entry(oid: u32) -> bool {
    matches!(oid, 24 | 2202..=2206 | 4089 | 4096 | 4191)
}

/// The form of a type's values.
pub(super) const fn shape(oid: u32) -> Shape {
    match oid {
        16 => Shape::Bool,
        17 => Shape::Bytea,
        20 => Shape::Int8,
        21 => Shape::Int2,
        23 => Shape::Int4,
        // oid, regproc, xid, cid and the reg* types.
        24 | 26 | 28 | 29 | 2202..=2206 | 3734 | 3769 | 4089 | 4096 | 4191 => Shape::Oid,
        // "char", name, text, json, xml, unknown, varchar, cstring, pg_node_tree, aclitem
        18 | 19 | 25 | 114 | 142 | 194 | 705 | 1033 | 1043 | 2275 => Shape::Text,
        1042 => Shape::Char,
        700 => Shape::Float4,
        701 => Shape::Float8,
        1082 => Shape::Date,
        1083 => Shape::Time,
        1114 => Shape::Timestamp,
        1184 => Shape::TimestampTz,
        1186 => Shape::Interval,
        1700 => Shape::Numeric,
        2950 => Shape::Uuid,
        22 => Shape::Vector(21),
        30 => Shape::Vector(26),
        1000 => Shape::Array(16),
        1001 => Shape::Array(17),
        1002 => Shape::Array(18),
        1003 => Shape::Array(19),
        1005 => Shape::Array(21),
        1007 => Shape::Array(23),
        1009 => Shape::Array(25),
        1014 => Shape::Array(1042),
        1015 => Shape::Array(1043),
        1016 => Shape::Array(20),
        1021 => Shape::Array(700),
        1022 => Shape::Array(701),
        1028 => Shape::Array(26),
        1034 => Shape::Array(1033),
        1115 => Shape::Array(1114),
        1182 => Shape::Array(1082),
        1183 => Shape::Array(1083),
        1185 => Shape::Array(1184),
        1187 => Shape::Array(1186),
        1231 => Shape::Array(1700),
        2210 => Shape::Array(2205),
        2211 => Shape::Array(2206),
        2951 => Shape::Array(2950),
        _ => Shape::Other,
    }
}
