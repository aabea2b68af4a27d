//! PostgreSQL's operator classes.

/// Each by its name, and the number of the type that it is for. `pg_opclass` has the same.
pub const OPERATOR_CLASSES: [(&str, u32); 23] = [
    ("bool_ops", 16),
    ("bpchar_ops", 1042),
    ("bpchar_pattern_ops", 1042),
    ("bytea_ops", 17),
    ("char_ops", 18),
    ("date_ops", 1082),
    ("float4_ops", 700),
    ("float8_ops", 701),
    ("int2_ops", 21),
    ("int4_ops", 23),
    ("int8_ops", 20),
    ("interval_ops", 1186),
    ("name_ops", 19),
    ("numeric_ops", 1700),
    ("oid_ops", 26),
    ("text_ops", 25),
    ("text_pattern_ops", 25),
    ("time_ops", 1083),
    ("timestamp_ops", 1114),
    ("timestamptz_ops", 1184),
    ("uuid_ops", 2950),
    ("varchar_ops", 25),
    ("varchar_pattern_ops", 25),
];

/// The number of the type that an operator class is for, if there is one of this name.
pub(super) fn input_of(name: &str) -> Option<u32> {
    let found = OPERATOR_CLASSES.iter().find(|(known, _)| *known == name);
    found.map(|(_, input)| *input)
}
