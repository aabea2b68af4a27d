//! Types of lists, which are what arrays of SQL are here.

use std::sync::Arc;

use aerostat_types::{ErrorKind, SqlError};
use arrow::datatypes::{DataType, Field};
use datafusion::common::DataFusionError;

use crate::{external, name_of_arrow};

pub(super) fn list_of(item: DataType) -> DataType {
    DataType::List(Arc::new(Field::new_list_field(item, true)))
}

/// The type of a list's items; nothing for what is no list.
pub(super) fn item_type(list: &DataType) -> Option<&DataType> {
    match list {
        DataType::List(item) | DataType::LargeList(item) => Some(item.data_type()),
        _ => None,
    }
}

/// The error for arrays of arrays, which no function here would take for PostgreSQL's: there an
/// array of several dimensions is one array, of its innermost items.
pub(crate) fn several_dimensions() -> DataFusionError {
    let message = "arrays of several dimensions are not supported";
    let error = SqlError::new(ErrorKind::FeatureNotSupported, message);
    external(error.with_hint("Use an array of one dimension."))
}

/// PostgreSQL's error for a function that has no overload for its arguments.
pub(crate) fn missing(name: &str, arguments: &[DataType]) -> DataFusionError {
    let names: Vec<String> = arguments.iter().map(name_of_arrow).collect();
    let message = format!("function {name}({}) does not exist", names.join(", "));
    external(SqlError::new(ErrorKind::UndefinedFunction, message).with_hint(
        "No function matches the given name and argument types. You might need to add explicit type casts.",
    ))
}
