//! Values that are equal and yet differ in bits: `-0` and `0`, `1 day` and `24 hours`.
//!
//! Arrow compares bits and fields wherever rows are sorted or gathered. So rows are sorted and
//! gathered by a *key*, which is the same for equal values and has their order ([`key`]):
//!
//! | by | becomes |
//! |---|---|
//! | `ORDER BY f`, `PARTITION BY f`, `DISTINCT ON (f)` | `float_order(f)`, `interval_order(f)` |
//! | `ORDER BY` an array | `array_sort_key(a)`, as Arrow puts the NULLs in arrays where it puts NULL, or first |
//! | `PARTITION BY` an array of floats or intervals | `array_order(a)` |
//! | `count(DISTINCT f)` | `count(DISTINCT float_order(f))` |
//! | other aggregates of `DISTINCT i` | one that keeps an interval of each length |
//! | `GROUP BY i`, `DISTINCT` of intervals and such arrays | below; DataFusion gathers floats itself |
//!
//! ```text
//!  Aggregate i, sum(n)           Projection i, sum(n)
//!                        ──▶       Aggregate k, first_value(i) AS i, sum(n)
//!                                    Projection *, interval_order(i) AS k
//! ```
//!
//! INTERSECT and EXCEPT compare keys, too (`sets`).

use std::sync::{Arc, LazyLock};

use aerostat_types::{ErrorKind, SqlError, SqlType};
use arrow::datatypes::DataType;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Result};
use datafusion::functions_aggregate::expr_fn::first_value;
use datafusion::logical_expr::expr::{AggregateFunction, Sort};
use datafusion::logical_expr::{
    Aggregate, Distinct, DistinctOn, Expr, ExprSchemable, GroupingSet, LogicalPlan, Projection,
    ScalarUDF, lit, when,
};
use datafusion::optimizer::AnalyzerRule;

use crate::functions::aggregate::distinct_intervals::{self, Arranged};
use crate::functions::array_order::{self, is_told_apart};
use crate::functions::{float_order, temporal::Temporal};
use crate::{Operand, external, operand, raise};

static FLOAT_ORDER: LazyLock<Arc<ScalarUDF>> = LazyLock::new(float_order::function);
static ARRAY_ORDER: LazyLock<Arc<ScalarUDF>> = LazyLock::new(array_order::function);
static ARRAY_SORT_KEY: LazyLock<Arc<ScalarUDF>> = LazyLock::new(array_order::sort_key);

/// What equal values have in common, and what orders as they do.
///
/// # Errors
/// Those of types.
pub(crate) fn key(expr: Expr, schema: &DFSchema) -> Result<Expr> {
    let is_key = |expr: &Expr| {
        let keys = [&FLOAT_ORDER, &ARRAY_ORDER];
        matches!(expr, Expr::ScalarFunction(call) if keys.iter().any(|key| Arc::ptr_eq(&call.func, key)))
    };
    Ok(match operand(&expr, schema)? {
        Operand::Typed(SqlType::Interval) => Temporal::IntervalOrder.call(vec![expr]),
        Operand::Typed(SqlType::Real | SqlType::Double) if !is_key(&expr) => {
            FLOAT_ORDER.call(vec![expr])
        }
        Operand::Foreign if is_told_apart(&expr.get_type(schema)?) && !is_key(&expr) => {
            ARRAY_ORDER.call(vec![expr])
        }
        _ => expr,
    })
}

/// Each by its [`key`].
///
/// # Errors
/// Those of types.
pub(crate) fn keys(exprs: &mut [Expr], schema: &DFSchema) -> Result<()> {
    for expr in exprs {
        *expr = key(std::mem::take(expr), schema)?;
    }
    Ok(())
}

/// Orders by [`key`]s. Those of arrays are bytes, whatever they are compared by: a sort, the filter
/// that a top-n query puts before its rows, a merge, a window's frame. Arrow's comparisons put the NULLs
/// in an array where the array's own NULL would be, or first, but they are greater than any other item.
///
/// # Errors
/// Those of types.
pub(crate) fn order_by(sort: &mut [Sort], schema: &DFSchema) -> Result<()> {
    for one in sort {
        let expr = std::mem::take(&mut one.expr);
        // A parameter may have no type yet.
        one.expr = match expr.get_type(schema) {
            Ok(DataType::List(_)) => ARRAY_SORT_KEY.call(vec![expr]),
            _ => key(expr, schema)?,
        };
    }
    Ok(())
}

/// An aggregate over distinct values: its arguments become keys, which are distinct where values differ, or
/// it becomes one that keeps one of those intervals that are equal.
///
/// # Errors
/// `FeatureNotSupported` where values are wanted of which one stands for all that are equal.
pub(crate) fn distinct(call: &mut AggregateFunction, schema: &DFSchema) -> Result<()> {
    let AggregateFunction { func, params } = call;
    let is_counted = func.name() == "count";
    let mut are_intervals = false;
    let mut are_arrays = false;
    for argument in &params.args {
        are_intervals |= operand(argument, schema)? == Operand::Typed(SqlType::Interval);
        are_arrays |= is_told_apart(&argument.get_type(schema)?);
    }
    match &params.args[..] {
        [argument] if are_intervals && !is_counted => {
            let mut sort = params.order_by.iter();
            if sort.any(|one| one.expr != *argument) {
                let message = "in an aggregate with DISTINCT, ORDER BY expressions must appear in argument list";
                return Err(raise(ErrorKind::InvalidColumnReference, message));
            }
            let first = params.order_by.first();
            let arranged = Arranged {
                is_ascending: first.is_none_or(|one| one.asc),
                are_nulls_first: first.is_some_and(|one| one.nulls_first),
            };
            *func = distinct_intervals::over(func, arranged);
            params.distinct = false;
            params.order_by.clear();
            return Ok(());
        }
        _ if are_intervals && !is_counted => {
            let message = format!("{}(DISTINCT interval) is not supported", func.name());
            let error = SqlError::new(ErrorKind::FeatureNotSupported, message);
            return Err(external(error.with_hint(
                "Take the distinct intervals in a subquery: SELECT DISTINCT.",
            )));
        }
        // One of those that are equal is as good as another.
        _ if matches!(func.name(), "min" | "max") => return Ok(()),
        _ if are_arrays && !is_counted => return Ok(()),
        _ => {}
    }
    keys(&mut params.args, schema)?;
    for one in &mut params.order_by {
        one.expr = key(std::mem::take(&mut one.expr), schema)?;
    }
    Ok(())
}

/// Gathers rows whose intervals are equal. See the module.
#[derive(Debug)]
pub(crate) struct GatherEqual;

impl AnalyzerRule for GatherEqual {
    fn name(&self) -> &str {
        "gather_equal"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let gathered = plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Aggregate(node) => gather(node),
            LogicalPlan::Distinct(Distinct::All(rows)) if has_keys(rows.schema()) => {
                let columns = rows.schema().columns().into_iter().map(Expr::Column);
                gather(Aggregate::try_new(rows, columns.collect(), Vec::new())?)
            }
            LogicalPlan::Distinct(Distinct::On(node)) => first_of_equal(node),
            LogicalPlan::RecursiveQuery(node)
                if node.is_distinct && has_intervals(node.static_term.schema()) =>
            {
                let message = "UNION of intervals in a recursive query is not supported";
                let error = SqlError::new(ErrorKind::FeatureNotSupported, message);
                Err(external(error.with_hint("Use UNION ALL.")))
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(gathered.data)
    }
}

fn has_intervals(schema: &DFSchema) -> bool {
    let mut fields = schema.fields().iter();
    fields.any(|field| SqlType::of_field(field) == Some(SqlType::Interval))
}

/// Whether rows are gathered by keys of some columns.
fn has_keys(schema: &DFSchema) -> bool {
    let mut fields = schema.fields().iter();
    has_intervals(schema) || fields.any(|field| is_told_apart(field.data_type()))
}

fn first_of_equal(mut node: DistinctOn) -> Result<Transformed<LogicalPlan>> {
    let schema = Arc::clone(node.input.schema());
    keys(&mut node.on_expr, &schema)?;
    if let Some(sort) = &mut node.sort_expr {
        // The first keys of the order are those of DISTINCT ON, in this order.
        let mut first = sort.split_off(0);
        let mut others = first.split_off(node.on_expr.len().min(first.len()));
        order_by(&mut first, &schema)?;
        order_by(&mut others, &schema)?;
        node.on_expr = first.iter().map(|one| one.expr.clone()).collect();
        sort.extend(first.into_iter().chain(others));
    }
    Ok(Transformed::yes(LogicalPlan::Distinct(Distinct::On(node))))
}

fn gather(node: Aggregate) -> Result<Transformed<LogicalPlan>> {
    let below = node.input.schema();
    let mut keyed: Vec<Expr> = Vec::new();
    for by in grouped_by(&node) {
        let is_interval = operand(by, below)? == Operand::Typed(SqlType::Interval);
        if (is_interval || is_told_apart(&by.get_type(below)?)) && !keyed.contains(by) {
            keyed.push(by.clone());
        }
    }
    if keyed.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Aggregate(node)));
    }
    let mut columns: Vec<Expr> = below.columns().into_iter().map(Expr::Column).collect();
    for (at, by) in keyed.iter().enumerate() {
        columns.push(key(by.clone(), below)?.alias(name_of(at)));
    }
    let input = Projection::try_new(columns, Arc::clone(&node.input))?;
    let by_key = |by: &Expr| match keyed.iter().position(|one| one == by) {
        Some(at) => Expr::Column(Column::new_unqualified(name_of(at))),
        None => by.clone(),
    };
    let group = node.group_expr.iter().map(|by| match by {
        Expr::GroupingSet(sets) => Expr::GroupingSet(map_sets(sets, &by_key)),
        other => by_key(other),
    });
    let firsts = keyed.iter().enumerate();
    let firsts = firsts
        .map(|(at, interval)| first_value(interval.clone(), Vec::new()).alias(first_name(at)));
    let calls = node.aggr_expr.iter().cloned().chain(firsts);
    let gathered = Aggregate::try_new(
        Arc::new(LogicalPlan::Projection(input)),
        group.collect(),
        calls.collect(),
    )?;
    let mut outputs: Vec<Expr> = Vec::new();
    for (qualifier, field) in node.schema.iter() {
        let own = Column::new(qualifier.cloned(), field.name());
        let place = keyed.iter().position(|interval| {
            let (relation, name) = interval.qualified_name();
            relation.as_ref() == qualifier && name == *field.name()
        });
        outputs.push(match place {
            // Outside the grouping set it is NULL, as the key is.
            Some(at) => {
                let key = Expr::Column(Column::new_unqualified(name_of(at)));
                let first = Expr::Column(Column::new_unqualified(first_name(at)));
                when(key.is_null(), lit(datafusion::common::ScalarValue::Null))
                    .otherwise(first)?
                    .alias_qualified(own.relation, own.name)
            }
            None => Expr::Column(own),
        });
    }
    let named = Projection::try_new(outputs, Arc::new(LogicalPlan::Aggregate(gathered)))?;
    Ok(Transformed::yes(LogicalPlan::Projection(named)))
}

/// What the rows are gathered by, in whatever grouping set.
fn grouped_by(node: &Aggregate) -> Vec<&Expr> {
    match &node.group_expr[..] {
        [Expr::GroupingSet(sets)] => sets.distinct_expr(),
        by => by.iter().collect(),
    }
}

fn map_sets(sets: &GroupingSet, change: &impl Fn(&Expr) -> Expr) -> GroupingSet {
    let each = |exprs: &Vec<Expr>| exprs.iter().map(change).collect::<Vec<_>>();
    match sets {
        GroupingSet::Rollup(exprs) => GroupingSet::Rollup(each(exprs)),
        GroupingSet::Cube(exprs) => GroupingSet::Cube(each(exprs)),
        GroupingSet::GroupingSets(sets) => {
            GroupingSet::GroupingSets(sets.iter().map(each).collect())
        }
    }
}

fn name_of(at: usize) -> String {
    format!("\u{1}equal {at}")
}

fn first_name(at: usize) -> String {
    format!("\u{1}first {at}")
}
