//! PostgreSQL's system catalogue: the relations of `pg_catalog` and `information_schema`, their
//! functions, and the rewriting that makes the queries of psql and drivers plannable.
//!
//! ```text
//!  one statement ──► CatalogView ─┬─ table()      a relation, filled when it is scanned
//!                                 ├─ functions()  pg_get_expr, format_type, …
//!                                 └─ rewrite()    the statement, before it is planned
//! ```
//!
//! Everything is computed from one [`CatalogView`], so a statement sees one state of the
//! catalogue however many relations it joins. Nothing here is stored, and a feature that Aerostat
//! lacks (triggers, inheritance, …) has a relation with the right columns and no rows.
//!
//! Plans over these relations hold the view: they must not outlive the statement in a cache;
//! [`is_bound`] identifies functions that do, the type of the provider tables.
//!
//! The traits [`Facts`] and [`Waits`] ask for what only a running node knows.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod cell;
mod data;
mod functions;
mod provider;
mod rewrite;
mod tables;
#[cfg(test)]
mod tests;
mod types;
mod view;

use std::sync::Arc;

use datafusion::{catalog::TableProvider, logical_expr::ScalarUDF, sql::sqlparser::ast::Statement};

use aerostat_types::{RelationId, SqlError};

pub use functions::{acts, is_bound, numbers_of, waiting_parameter};
pub use provider::Planning;
pub use types::{PG_TYPE_KEY, length_of_type, oid_of_field, oid_of_typname};
pub use view::{
    CatalogView,
    classes::ClassIndex,
    copies::{CopyDescription, LogPlaces},
    facts::{
        CursorDescription, EvictionUse, Facts, FunctionDescription, FunctionKind, MemoryLimit,
        MemoryUse, PreparedDescription, SessionDescription, Setting, Signal, StatementUse,
    },
    waits::{LockDescription, Waits},
};

/// A system relation of `pg_catalog`, `information_schema` or `aerostat`, if there is one of this name.
pub fn table(view: &Arc<CatalogView>, schema: &str, name: &str) -> Option<Arc<dyn TableProvider>> {
    let relation = data::relation(schema, name)?;
    Some(Arc::new(provider::SystemTable::new(
        Arc::clone(view),
        relation,
    )))
}

/// The number of a system relation.
pub fn relation_oid(schema: &str, name: &str) -> Option<RelationId> {
    data::relation(schema, name).map(|relation| RelationId(relation.oid))
}

/// The functions that answer from the catalogue, bound to a view of it.
pub fn functions(view: Arc<CatalogView>) -> Vec<ScalarUDF> {
    functions::all(&view)
}

/// Turns what PostgreSQL's clients write into what can be planned. Statements that
/// neither read system relations nor use PostgreSQL's own names for types,
/// operators and functions stay as they are.
///
/// # Errors
/// A name cast to `regclass` or its kin that is not there.
pub fn rewrite(statement: &mut Statement, view: &CatalogView) -> Result<(), SqlError> {
    rewrite::statement(statement, view)
}

/// The function that shows numbers of a type such as `regclass` as names.
pub fn shower(typname: &str) -> Option<&'static str> {
    functions::Reg::of_typname(typname).map(functions::Reg::shower)
}

/// The number of the catalogue entry that a name means, as a value of the type with the number
/// `type_oid`, which is `regclass` or its kin; 0 for one that is not there.
pub fn entry_number(view: &CatalogView, type_oid: u32, name: &str) -> i64 {
    types::types()
        .iter()
        .find(|ty| ty.oid == type_oid)
        .and_then(|ty| functions::Reg::of_typname(&ty.name))
        .and_then(|kind| functions::resolve(view, kind, name).ok())
        .unwrap_or(0)
}
