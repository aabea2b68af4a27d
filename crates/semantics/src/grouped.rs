//! Repeated keys, and grouping sets of expressions and constants.
//!
//! An aggregate's schema has a repeated key, as in `GROUP BY a, a`, only once. Rules that go from
//! columns to keys by number would miss, so such a key is given once from here on.
//!
//! DataFusion's rules look for the keys of grouping sets by name and by value: a constant among
//! them is removed, and a resolved one is no longer found. So every key that is not a column is
//! computed below:
//!
//! ```text
//!  Aggregate ROLLUP (a + 1, b)          Projection k0 AS "a + 1", b, sum(k0) AS "sum(a + 1)"
//!            sum(a + 1)            ─►     Aggregate ROLLUP (k0, b) sum(k0)
//!    …                                      Projection *, a + 1 AS k0
//!                                             …
//! ```

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::utils::grouping_set_to_exprlist;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, Projection};
use datafusion::optimizer::AnalyzerRule;

/// See the module. Stands before the rule that resolves `grouping`.
#[derive(Debug)]
pub(crate) struct GroupByColumns;

impl AnalyzerRule for GroupByColumns {
    fn name(&self) -> &str {
        "group_by_columns"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let grouped = plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Aggregate(aggregate) => {
                let once = once(aggregate)?;
                let mut grouped = by_columns(once.data)?;
                grouped.transformed |= once.transformed;
                Ok(grouped)
            }
            other => Ok(Transformed::no(other)),
        })?;
        Ok(grouped.data)
    }
}

/// Each key once, as the schema has it.
fn once(aggregate: Aggregate) -> Result<Transformed<Aggregate>> {
    let keys = grouping_set_to_exprlist(&aggregate.group_expr)?;
    let is_set = matches!(aggregate.group_expr[..], [Expr::GroupingSet(_)]);
    if is_set || keys.len() == aggregate.group_expr.len() {
        return Ok(Transformed::no(aggregate));
    }
    let keys = keys.into_iter().cloned().collect();
    let Aggregate {
        input, aggr_expr, ..
    } = aggregate;
    Aggregate::try_new(input, keys, aggr_expr).map(Transformed::yes)
}

fn by_columns(aggregate: Aggregate) -> Result<Transformed<LogicalPlan>> {
    let keys = keys(&aggregate);
    let computed: Vec<Expr> = keys
        .iter()
        .filter(|key| !matches!(key, Expr::Column(_)))
        .cloned()
        .collect();
    if computed.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Aggregate(aggregate)));
    }
    let below = aggregate.input.schema().columns().into_iter();
    let named = computed.iter().enumerate();
    let named = named.map(|(at, key)| key.clone().alias(name_of(at)));
    let input = Projection::try_new(
        below.map(Expr::Column).chain(named).collect(),
        Arc::clone(&aggregate.input),
    )?;
    let replace = |exprs: &[Expr]| -> Result<Vec<Expr>> {
        let exprs = exprs.iter();
        exprs.map(|expr| with_columns(expr, &computed)).collect()
    };
    let (keys_above, calls) = (replace(&keys)?, replace(&aggregate.aggr_expr)?);
    let grouped = Aggregate::try_new(
        Arc::new(LogicalPlan::Projection(input)),
        replace(&aggregate.group_expr)?,
        calls.clone(),
    )?;
    let calls = calls.iter().map(|call| {
        let name = call.schema_name().to_string();
        Expr::Column(Column::new_unqualified(name))
    });
    let outputs = keys_above.into_iter().chain(calls);
    let outputs = outputs.zip(keys.iter().chain(&aggregate.aggr_expr));
    let outputs = outputs.map(|(output, own)| match output == *own {
        true => output,
        false => output.alias(own.schema_name().to_string()),
    });
    let named = Projection::try_new(outputs.collect(), Arc::new(LogicalPlan::Aggregate(grouped)))?;
    Ok(Transformed::yes(LogicalPlan::Projection(named)))
}

/// What the grouping sets are made of, each once; nothing where there are none.
fn keys(aggregate: &Aggregate) -> Vec<Expr> {
    let [Expr::GroupingSet(sets)] = &aggregate.group_expr[..] else {
        return Vec::new();
    };
    let mut keys: Vec<Expr> = Vec::new();
    for key in sets.distinct_expr() {
        if !keys.contains(key) {
            keys.push(key.clone());
        }
    }
    keys
}

fn name_of(at: usize) -> String {
    format!("\u{1}key {at}")
}

fn with_columns(expr: &Expr, computed: &[Expr]) -> Result<Expr> {
    let replaced = expr.clone().transform_down(|part| {
        Ok(match computed.iter().position(|key| *key == part) {
            Some(at) => Transformed::new(
                Expr::Column(Column::new_unqualified(name_of(at))),
                true,
                TreeNodeRecursion::Jump,
            ),
            None => Transformed::no(part),
        })
    })?;
    Ok(replaced.data)
}
