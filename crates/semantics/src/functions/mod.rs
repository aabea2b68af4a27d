//! Scalar and aggregate functions with PostgreSQL's names, types and errors.
//!
//! [`crate::register`] registers them over DataFusion's; DataFusion's functions that behave as
//! PostgreSQL's stay. Each function is a table of overloads (`overload`); the operators'
//! functions are types of their own (`arithmetic`, `temporal`, `cast`).

pub(crate) mod aggregate;
pub(crate) mod any;
pub(crate) mod arithmetic;
pub(crate) mod array_order;
pub(crate) mod array_text;
pub(crate) mod arrays;
mod assignment;
pub(crate) mod backslash;
pub(crate) mod bounded;
mod bucket;
pub(crate) mod cast;
mod choice;
pub(crate) mod common_type;
pub(crate) mod datetime;
mod domains;
pub(crate) mod float_order;
mod format;
pub mod joinable;
mod letters;
pub(crate) mod lists;
mod making;
pub(crate) mod math;
pub mod merged;
pub mod named;
pub(crate) mod operand;
pub mod ordered_sets;
pub(crate) mod overload;
pub(crate) mod regexp;
mod series;
pub(crate) mod strings;
pub(crate) mod temporal;
mod texts;
pub(crate) mod watched;
mod window;

use std::sync::Arc;

use aerostat_types::SqlType;
use arrow::datatypes::Field;
use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::execution::FunctionRegistry;
use datafusion::execution::session_state::SessionState;
use datafusion::functions_table::generate_series::GenerateSeriesFunc;
use datafusion::logical_expr::{AggregateUDF, Expr, ScalarUDF};

pub(crate) use arrays::quantified::{QUANTIFIED, operator as quantified_operator};
use cast::Zone;
pub use datetime::Times;

/// Registers every function of this module, over DataFusion's of the same name.
///
/// # Errors
/// The registry takes no functions.
pub(crate) fn register(state: &mut SessionState) -> Result<()> {
    state.register_udtf(
        series::NAME,
        Arc::new(series::Series(GenerateSeriesFunc {})),
    );
    register_all(state)
}

fn register_all(registry: &mut dyn FunctionRegistry) -> Result<()> {
    for function in arithmetic::all()
        .into_iter()
        .chain(temporal::all())
        .chain(math::all())
        .chain(strings::all())
        .chain(datetime::all())
        .chain(format::all())
        .chain(any::all())
        .chain(arrays::all())
        .chain(regexp::all())
        .chain(letters::all())
        .chain(making::all())
        .chain(domains::all())
        .chain([
            bucket::width_bucket(),
            float_order::function(),
            joinable::function(),
            merged::function(),
            named::function(),
            named::each(),
        ])
        .chain(ordered_sets::all())
        .chain(series::list::all())
    {
        replace(registry, function)?;
    }
    bounded::register(registry)?;
    choice::register(registry)?;
    // A call of it is written as one of `ordered_sets`; DataFusion's rounds fractions.
    registry.deregister_udaf("percentile_cont")?;
    for function in [aggregate::sum(), aggregate::avg()] {
        registry.deregister_udaf(function.name())?;
        registry.register_udaf(function)?;
    }
    aggregate::extreme::register(registry)?;
    aggregate::gathered::register(registry)?;
    aggregate::array_types::register(registry)?;
    aggregate::spread::register(registry)?;
    if let Ok(function) = registry.udaf("bool_and") {
        let named = AggregateUDF::clone(&function).with_aliases(["every"]);
        registry.register_udaf(Arc::new(named))?;
    }
    for (name, result) in window::COUNTING {
        if let Ok(function) = registry.udwf(name) {
            registry.register_udwf(window::Counting::function(function, result))?;
        }
    }
    Ok(())
}

/// Registers a function in the place of those that bear one of its names. A
/// registry that is copied registers each function anew under all of its names,
/// in any order, so an alias that stayed would bring back the function it means.
fn replace(registry: &mut dyn FunctionRegistry, function: Arc<ScalarUDF>) -> Result<()> {
    for name in
        std::iter::once(function.name()).chain(function.aliases().iter().map(String::as_str))
    {
        if let Some(before) = registry.deregister_udf(name)? {
            registry.deregister_udf(before.name())?;
        }
    }
    registry.register_udf(function)?;
    Ok(())
}

/// Whether a function is one of `+ - * / %` between numbers.
pub fn is_arithmetic(function: &ScalarUDF) -> bool {
    arithmetic::is_operator(function)
}

/// PostgreSQL's assignment cast: `expr`, whose field is `from`, as a value for
/// the column `column` of type `to`.
///
/// A string literal or parameter is read as `to`; a typed expression must be of
/// a type that PostgreSQL assigns to `to`. Lengths are enforced, not cut. The session's time
/// zone is that of `config`.
///
/// # Errors
/// `DatatypeMismatch` where the type may not be stored, and errors of literal values.
pub fn assign(
    expr: Expr,
    from: &Field,
    to: SqlType,
    column: &str,
    config: &ConfigOptions,
) -> Result<Expr> {
    assignment::assignment(expr, from, to, column, &Zone::of(config))
}

#[cfg(test)]
mod tests {
    use datafusion::execution::session_state::{SessionState, SessionStateBuilder};

    use super::register;

    /// The name and the overloads tell which function of a name is there.
    fn function_behind(state: &SessionState, name: &str) -> String {
        format!("{:?}", state.scalar_functions()[name].inner())
    }

    #[test]
    fn a_copied_registry_has_the_same_functions() {
        let mut state = SessionStateBuilder::new_with_default_features().build();
        register(&mut state).unwrap();
        // The order of registration differs from copy to copy.
        for _ in 0..20 {
            let copy = SessionStateBuilder::new_from_existing(state.clone()).build();
            for name in state.scalar_functions().keys() {
                assert_eq!(
                    function_behind(&copy, name),
                    function_behind(&state, name),
                    "{name}"
                );
            }
            for (name, function) in state.aggregate_functions() {
                assert_eq!(copy.aggregate_functions()[name], *function, "{name}");
            }
        }
        assert_eq!(function_behind(&state, "to_char"), "Function(to_char)");
        assert!(!state.aggregate_functions().contains_key("mean"));
    }
}
