//! Keys end where rows are expanded, and where a correlated subquery groups its rows by more
//! columns.
//!
//! `unnest` makes many rows of one, so a key below it is no longer a key above. DataFusion keeps
//! the keys all the same, and drops a DISTINCT over them, turns a join with them into a semi
//! join, or groups by fewer columns. So the key columns go under the `unnest` as results of an
//! identity function, which DataFusion does not take for keys. The same is done for the columns
//! of the outer query that a correlated subquery groups by beside its own: DataFusion takes its
//! own for dependent on them, and groups by fewer columns.
//!
//! A key of one side of a join is no key of the join. Groups by such a column and others depend on
//! all of them, where DataFusion takes them for dependent on that column alone: it drops the
//! others from the GROUP BY and ORDER BY above. So such a column goes below the aggregate as the
//! result of the identity function, too.
//!
//! ```text
//!  Unnest                  Unnest
//!   └── Scan t, key k  ─►   └── Projection named(k) AS k, …
//!                                └── Scan t, key k
//! ```

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Dependency, Result};
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, Projection, Unnest};
use datafusion::optimizer::AnalyzerRule;

use crate::functions::named;

/// The rule, which stands last: the ones before it make such plans, too.
#[derive(Debug)]
pub(super) struct EndKeys;

impl AnalyzerRule for EndKeys {
    fn name(&self) -> &str {
        "end_keys"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut is_kept = false;
        plan.apply_with_subqueries(|node| {
            is_kept |= match node {
                LogicalPlan::Unnest(node) => has_keys(node)?,
                LogicalPlan::Aggregate(node) => gathers_by_more(node)?,
                _ => false,
            };
            Ok(match is_kept {
                true => TreeNodeRecursion::Stop,
                false => TreeNodeRecursion::Continue,
            })
        })?;
        if !is_kept {
            return Ok(plan);
        }
        let ended = plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Unnest(node) if has_keys(&node)? => ended(node).map(Transformed::yes),
            LogicalPlan::Aggregate(node) if gathers_by_more(&node)? => {
                gathered(node).map(Transformed::yes)
            }
            other => other.recompute_schema().map(Transformed::yes),
        })?;
        Ok(ended.data)
    }
}

/// Whether columns below make a key, now or when the optimizer groups what is distinct.
fn has_keys(node: &Unnest) -> Result<bool> {
    let dependencies = node.input.schema().functional_dependencies();
    Ok(!dependencies.is_empty()
        || node
            .input
            .exists(|below| Ok(matches!(below, LogicalPlan::Distinct(_))))?)
}

/// Whether an aggregate groups by a key of one side of a join below and by more, or will when the
/// optimizer groups what is distinct.
fn gathers_by_more(node: &Aggregate) -> Result<bool> {
    if node.group_expr.len() < 2 {
        return Ok(false);
    }
    let schema = node.input.schema();
    let groups = |at: &usize| {
        node.group_expr
            .contains(&Expr::from(schema.qualified_field(*at)))
    };
    let mut repeated = schema.functional_dependencies().iter();
    let has_key = repeated.any(|dependence| {
        dependence.mode == Dependency::Multi && dependence.source_indices.iter().all(groups)
    });
    Ok(has_key || joins_distinct_rows(&node.input)?)
}

/// Whether distinct rows are joined.
fn joins_distinct_rows(plan: &LogicalPlan) -> Result<bool> {
    plan.exists(|node| match node {
        LogicalPlan::Join(_) => node.exists(|below| Ok(matches!(below, LogicalPlan::Distinct(_)))),
        _ => Ok(false),
    })
}

fn gathered(node: Aggregate) -> Result<LogicalPlan> {
    let below = without_keys(&node.input, |column| {
        node.group_expr.contains(&Expr::Column(column.clone()))
    })?;
    Aggregate::try_new(Arc::new(below), node.group_expr, node.aggr_expr).map(LogicalPlan::Aggregate)
}

fn ended(node: Unnest) -> Result<LogicalPlan> {
    let below = without_keys(&node.input, |column| !node.exec_columns.contains(column))?;
    Unnest::try_new(Arc::new(below), node.exec_columns, node.options).map(LogicalPlan::Unnest)
}

/// The same rows, in which these columns make no key.
pub(crate) fn without_keys(
    plan: &Arc<LogicalPlan>,
    is_key: impl Fn(&Column) -> bool,
) -> Result<LogicalPlan> {
    let columns = plan.schema().iter().map(|(qualifier, field)| {
        let column = Column::from((qualifier, field));
        match is_key(&column) {
            true => {
                let value = vec![Expr::Column(column)];
                Expr::ScalarFunction(ScalarFunction::new_udf(named::function(), value))
                    .alias_qualified(qualifier.cloned(), field.name())
            }
            false => Expr::Column(column),
        }
    });
    Projection::try_new(columns.collect(), Arc::clone(plan)).map(LogicalPlan::Projection)
}
