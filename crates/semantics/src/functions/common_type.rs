//! The common type of values of several types.

use aerostat_types::SqlType;

use super::cast;

/// PostgreSQL's `select_common_type` for two types, the first of which came first: of two that
/// each become the other, as texts do, that one is taken. A `char(n)` among others is a text.
pub(crate) fn common_type(a: SqlType, b: SqlType) -> Option<SqlType> {
    if a == b {
        return Some(a);
    }
    if a.is_text() && b.is_text() {
        return Some(match a {
            SqlType::Varchar(_) => SqlType::Varchar(None),
            _ => SqlType::Text,
        });
    }
    if cast::is_number(a) && cast::is_number(b) {
        return Some(if rank(a) >= rank(b) { a } else { b });
    }
    if a.oid() == b.oid() {
        Some(a)
    } else {
        common_time(a, b)
    }
}

fn rank(ty: SqlType) -> u8 {
    match ty {
        SqlType::SmallInt => 0,
        SqlType::Integer => 1,
        SqlType::BigInt => 2,
        SqlType::Numeric { .. } => 3,
        SqlType::Real => 4,
        _ => 5,
    }
}

/// The type in which two different times compare.
pub(crate) fn common_time(left: SqlType, right: SqlType) -> Option<SqlType> {
    use SqlType::{Date, Timestamp, TimestampTz};
    match (left, right) {
        (Date | Timestamp | TimestampTz, TimestampTz) | (TimestampTz, Date | Timestamp) => {
            Some(TimestampTz)
        }
        (Date | Timestamp, Date | Timestamp) => Some(Timestamp),
        _ => None,
    }
}
