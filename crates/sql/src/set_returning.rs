//! Functions that return sets.

use aerostat_types::{ErrorKind, SqlError};
use sqlparser::ast::{Function, ObjectName};

use crate::names::folded;

/// Numbers or times, one after the other.
pub const SERIES: &str = "generate_series";

/// The items of arrays.
pub const UNNEST: &str = "unnest";

/// PostgreSQL's functions that give rows, as far as they are known here.
const SETS: [&str; 3] = [SERIES, "generate_subscripts", UNNEST];

/// Whether a function gives rows.
pub fn returns_set(function: &Function) -> bool {
    function.over.is_none() && named(function).is_some_and(|name| SETS.contains(&name.as_str()))
}

/// The error for one that stands where there can be no rows.
pub fn refused(place: &str) -> SqlError {
    SqlError::new(
        ErrorKind::FeatureNotSupported,
        format!("set-returning functions are not allowed in {place}"),
    )
}

/// The name of a function that may be one of PostgreSQL's.
pub fn named(function: &Function) -> Option<String> {
    named_function(&function.name)
}

/// The same of a name.
pub fn named_function(name: &ObjectName) -> Option<String> {
    let parts = &name.0;
    let name = parts.last()?.as_ident().map(folded)?;
    let is_system = match &parts[..] {
        [_] => true,
        [schema, _] => schema.as_ident().map(folded).as_deref() == Some("pg_catalog"),
        _ => false,
    };
    is_system.then_some(name)
}
