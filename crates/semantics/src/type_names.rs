//! Names of types in messages and in the metadata of fields.

use aerostat_types::SqlType;
use arrow::datatypes::DataType;

/// What the metadata says of `numeric` without precision, which a cast
/// understands as "whatever scale the value has".
pub(crate) const ANY_NUMERIC: &str = "numeric";

/// PostgreSQL's longest `char(n)` and `varchar(n)`.
pub(crate) const LENGTH_MAX: u64 = 10_485_760;

/// The `n` of `char(n)`, whose values are shown with blanks; nothing for a `char` that is only
/// compared as one.
pub(crate) fn blank_padded(ty: SqlType) -> Option<u32> {
    match ty {
        SqlType::Char(length) if u64::from(length) <= LENGTH_MAX => Some(length),
        _ => None,
    }
}

/// The type of an Arrow field as PostgreSQL's messages name it, without modifiers.
pub fn name_of_arrow(data_type: &DataType) -> String {
    match (data_type, SqlType::of_arrow(data_type)) {
        (DataType::Null, _) => "unknown".to_owned(),
        (_, Some(ty)) => ty.plain_name().to_owned(),
        (DataType::List(item) | DataType::LargeList(item), None) => {
            format!("{}[]", name_of_arrow(item.data_type()))
        }
        (_, None) => data_type.to_string(),
    }
}
