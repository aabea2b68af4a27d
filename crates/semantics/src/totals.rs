//! Aggregates that give a row whatever there is below.
//!
//! Without GROUP BY, or with an empty grouping set, an aggregate gives its row over no rows, too.
//! Two of DataFusion's rules do not see that:
//!
//! | rule | what it would do |
//! |---|---|
//! | `push_down_filter` | takes below what names none of its columns, as a comparison of a subquery's value may not |
//! | `propagate_empty_relation` | takes grouping sets over no rows for no rows |

use std::sync::Arc;

use datafusion::{
    common::{Result, tree_node::Transformed},
    logical_expr::{Aggregate, Expr, GroupingSet, LogicalPlan},
    optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule},
};

/// A rule of DataFusion's that leaves such aggregates as they are.
#[derive(Debug)]
pub(crate) struct KeepTotals(Arc<dyn OptimizerRule + Send + Sync>);

/// The rule itself, or one that leaves such aggregates as they are.
pub(crate) fn kept(
    rule: Arc<dyn OptimizerRule + Send + Sync>,
) -> Arc<dyn OptimizerRule + Send + Sync> {
    match rule.name() {
        "push_down_filter" | "propagate_empty_relation" => Arc::new(KeepTotals(rule)),
        _ => rule,
    }
}

impl OptimizerRule for KeepTotals {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.0.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let aggregate = match &plan {
            LogicalPlan::Filter(filter) => &*filter.input,
            other => other,
        };
        match aggregate {
            LogicalPlan::Aggregate(aggregate) if gives_a_total(aggregate) => {
                Ok(Transformed::no(plan))
            }
            _ => self.0.rewrite(plan, config),
        }
    }
}

fn gives_a_total(aggregate: &Aggregate) -> bool {
    match &aggregate.group_expr[..] {
        [] => true,
        [Expr::GroupingSet(GroupingSet::GroupingSets(sets))] => sets.iter().any(Vec::is_empty),
        [Expr::GroupingSet(_)] => true,
        _ => false,
    }
}
