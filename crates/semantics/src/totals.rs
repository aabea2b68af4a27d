//! Aggregates that some of DataFusion's rules would break.
//!
//! Without GROUP BY, or with an empty grouping set, an aggregate returns its row over no rows,
//! too. And a cast has the name of its operand: `GROUP BY k, k::bigint` are two keys with one
//! name.
//!
//! | rule | what it would do |
//! |---|---|
//! | `push_down_filter` | moves below the aggregate a condition that names none of its columns, such as a comparison of a subquery's value |
//! | `propagate_empty_relation` | takes grouping sets over no rows for no rows |
//! | `eliminate_group_by_constant` | puts keys of one name into one projection, which is refused |
//! | `eliminate_join` | takes rows that are gathered by a key of one side of a join, and by more, for unique by that key |

use std::{collections::HashSet, sync::Arc};

use datafusion::{
    common::{
        Dependency, FunctionalDependence, Result,
        tree_node::{Transformed, TreeNode},
    },
    logical_expr::{Aggregate, Expr, GroupingSet, LogicalPlan},
    optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule},
};

/// A rule of DataFusion's that leaves alone what it would spoil.
#[derive(Debug)]
struct Kept {
    rule: Arc<dyn OptimizerRule + Send + Sync>,
    is_spoilt: fn(&LogicalPlan) -> Result<bool>,
}

/// The rule itself, or one that leaves alone what it would spoil.
pub(crate) fn kept(
    rule: Arc<dyn OptimizerRule + Send + Sync>,
) -> Arc<dyn OptimizerRule + Send + Sync> {
    let is_spoilt: fn(&LogicalPlan) -> Result<bool> = match rule.name() {
        "push_down_filter" | "propagate_empty_relation" | "eliminate_group_by_constant" => |plan| {
            Ok(is_aggregate(below_filters(plan), |aggregate| {
                gives_a_total(aggregate) || has_a_name_twice(aggregate)
            }))
        },
        // It sees the whole plan at once.
        "eliminate_join" => |plan| plan.exists(|node| Ok(is_aggregate(node, seems_unique))),
        _ => return rule,
    };
    unless(rule, is_spoilt)
}

/// A rule that leaves alone what it would spoil.
pub(crate) fn unless(
    rule: Arc<dyn OptimizerRule + Send + Sync>,
    is_spoilt: fn(&LogicalPlan) -> Result<bool>,
) -> Arc<dyn OptimizerRule + Send + Sync> {
    Arc::new(Kept { rule, is_spoilt })
}

impl OptimizerRule for Kept {
    fn name(&self) -> &str {
        self.rule.name()
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        self.rule.apply_order()
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        config: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        match (self.is_spoilt)(&plan)? {
            true => Ok(Transformed::no(plan)),
            false => self.rule.rewrite(plan, config),
        }
    }
}

/// What the filters of a plan's head are about. A rule makes one of several, and takes them
/// through projections, at once.
fn below_filters(plan: &LogicalPlan) -> &LogicalPlan {
    let LogicalPlan::Filter(filter) = plan else {
        return plan;
    };
    let mut below = &filter.input;
    loop {
        below = match &**below {
            LogicalPlan::Filter(filter) => &filter.input,
            LogicalPlan::Projection(projection) => &projection.input,
            LogicalPlan::SubqueryAlias(alias) => &alias.input,
            other => return other,
        };
    }
}

fn is_aggregate(plan: &LogicalPlan, is_such: fn(&Aggregate) -> bool) -> bool {
    matches!(plan, LogicalPlan::Aggregate(aggregate) if is_such(aggregate))
}

/// Whether DataFusion takes the groups for unique by a key of a side of a join below, though they
/// are gathered by more.
fn seems_unique(aggregate: &Aggregate) -> bool {
    let below = aggregate.input.schema();
    let repeats = |dependence: &&FunctionalDependence| dependence.mode == Dependency::Multi;
    let mut repeated = below.functional_dependencies().iter().filter(repeats);
    aggregate.group_expr.len() > 1 && repeated.next().is_some()
}

fn gives_a_total(aggregate: &Aggregate) -> bool {
    match &aggregate.group_expr[..] {
        [] => true,
        [Expr::GroupingSet(GroupingSet::GroupingSets(sets))] => sets.iter().any(Vec::is_empty),
        [Expr::GroupingSet(_)] => true,
        _ => false,
    }
}

fn has_a_name_twice(aggregate: &Aggregate) -> bool {
    let mut names = HashSet::new();
    let mut keys = aggregate.group_expr.iter();
    aggregate.group_expr.len() > 1 && !keys.all(|key| names.insert(key.schema_name().to_string()))
}
