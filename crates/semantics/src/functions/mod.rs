//! Scalar and aggregate functions with PostgreSQL's names, types and errors.
//!
//! [`register`] puts them over DataFusion's; those of DataFusion that behave as
//! PostgreSQL's stay. Each function is a table of overloads ([`overload`]), the
//! operators' functions are their own types ([`arithmetic`], [`temporal`],
//! [`cast`]).

pub(crate) mod aggregate;
mod any;
pub(crate) mod arithmetic;
mod bounded;
mod bucket;
pub(crate) mod cast;
pub(crate) mod datetime;
mod format;
pub(crate) mod math;
mod overload;
mod series;
pub(crate) mod strings;
pub(crate) mod temporal;
mod window;

use std::sync::Arc;

use aerostat_types::SqlType;
use arrow::datatypes::Field;
use datafusion::common::Result;
use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::SessionState;
use datafusion::functions_table::generate_series::GenerateSeriesFunc;
use datafusion::logical_expr::{AggregateUDF, Expr};

use cast::Zone;

/// Registers every function of this module, over DataFusion's of the same name.
pub fn register(state: &mut SessionState) {
    state.register_udtf(
        series::NAME,
        Arc::new(series::Series(GenerateSeriesFunc {})),
    );
    if let Err(error) = register_all(state) {
        // A session's own registry takes every function.
        tracing::error!(%error, "a function could not be registered");
    }
}

fn register_all(registry: &mut dyn FunctionRegistry) -> Result<()> {
    for function in arithmetic::all().into_iter().chain(temporal::all()) {
        registry.register_udf(function)?;
    }
    for function in math::all()
        .into_iter()
        .chain(strings::all())
        .chain(datetime::all())
        .chain(format::all())
        .chain(any::all())
        .chain([bucket::width_bucket()])
    {
        registry.register_udf(function)?;
    }
    bounded::register(registry)?;
    registry.register_udaf(aggregate::sum())?;
    registry.register_udaf(aggregate::avg())?;
    for (alias, name) in [
        ("every", "bool_and"),
        ("variance", "var_samp"),
        ("var_samp", "var"),
        ("stddev_samp", "stddev"),
    ] {
        if let Ok(function) = registry.udaf(name) {
            registry.register_udaf(Arc::new(
                AggregateUDF::clone(&function).with_aliases([alias]),
            ))?;
        }
    }
    for (name, result) in window::COUNTING {
        if let Ok(function) = registry.udwf(name) {
            registry.register_udwf(window::Counting::function(function, result))?;
        }
    }
    Ok(())
}

/// PostgreSQL's assignment cast: `expr`, whose field is `from`, as a value for
/// the column `column` of type `to`.
///
/// A string literal or parameter is read as `to`; a typed expression must be of
/// a type that PostgreSQL assigns to `to`. Lengths are enforced, not cut.
/// What depends on the session's zone is done when the statement runs.
///
/// # Errors
/// `DatatypeMismatch` where the type may not be stored, and errors of literal values.
pub fn assign(expr: Expr, from: &Field, to: SqlType, column: &str) -> Result<Expr> {
    cast::assignment(expr, from, to, column, &Zone::UNSETTLED)
}
