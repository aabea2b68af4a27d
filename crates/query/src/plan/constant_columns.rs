//! Columns that DataFusion takes for constant where they are not.
//!
//! Within an input a column may have one value: a literal, or the value with which a filter
//! compares it. DataFusion leaves such columns out of sorts. In four places it does so although the
//! column is no longer constant:
//!
//! - Above an outer join, whose rows without a partner have NULL there. [`HIDE_CONSTANTS`] puts a
//!   [`VaryingExec`], which has no constant columns, over the side that is filled up with NULLs.
//! - Above volatile functions of constants, which it takes for constant, too: `nextval('s')`. A
//!   [`VaryingExec`] is put over the projection that computes them.
//! - Above grouping sets, whose rows have NULL in a column that their set does not group by. A
//!   [`VaryingExec`] is put over these.
//! - In a top-n query over a union whose branches each have a constant: each branch is sorted by
//!   the rest of the order, but all share one bound beyond which rows are dropped.
//!   [`BOUND_BY_ALL_KEYS`] sorts each branch by the whole order.
//!
//! If a later rule loses the knowledge that a column is constant, an operator that needs its input
//! ordered by that column would be refused: [`SORT_AGAIN`] puts a sort there.

use std::{fmt, sync::Arc};

use datafusion::{
    arrow::datatypes::SchemaRef,
    common::{
        JoinType, Result,
        tree_node::{Transformed, TreeNodeRecursion},
    },
    execution::{SendableRecordBatchStream, TaskContext},
    physical_expr::{
        EquivalenceProperties, LexRequirement, OrderingRequirements, PhysicalExpr,
        PhysicalSortExpr, PhysicalSortRequirement, expressions::lit, utils::collect_columns,
    },
    physical_plan::{
        ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan,
        ExecutionPlanProperties, PlanProperties, ReplaceChildrenOptions,
        aggregates::AggregateExec,
        joins::{HashJoinExec, NestedLoopJoinExec, SortMergeJoinExec},
        projection::ProjectionExec,
        sorts::{sort::SortExec, sort_preserving_merge::SortPreservingMergeExec},
    },
};

use super::{
    pieces::is_volatile,
    rule::{EachOperator, Rewritten},
};

/// The rule of DataFusion that adds and removes sorts and partitions.
pub(crate) const REQUIREMENTS: &str = "EnsureRequirements";

/// See the module. Runs before [`REQUIREMENTS`].
pub(crate) const HIDE_CONSTANTS: EachOperator = EachOperator {
    name: "hide_constants",
    rewrite: hidden,
};

fn hidden(node: Arc<dyn ExecutionPlan>) -> Rewritten {
    let is_known = || !node.properties().eq_properties.eq_group().is_empty();
    if (gathers_by_sets(&node) || computes_volatile(&node)) && is_known() {
        return Ok(Transformed::yes(Arc::new(VaryingExec::new(node))));
    }
    let Some(filled_up) = filled_up(&node) else {
        return Ok(Transformed::no(node));
    };
    let sides: Vec<_> = node.children().into_iter().map(Arc::clone).collect();
    let has_constants = |side: &Arc<dyn ExecutionPlan>| {
        let properties = &side.properties().eq_properties;
        !properties.constants().is_empty()
    };
    let varying = |(side, filled_up): (Arc<dyn ExecutionPlan>, bool)| match filled_up
        && has_constants(&side)
    {
        true => (
            Arc::new(VaryingExec::new(side)) as Arc<dyn ExecutionPlan>,
            true,
        ),
        false => (side, false),
    };
    let (sides, changed): (Vec<_>, Vec<bool>) =
        sides.into_iter().zip(filled_up).map(varying).unzip();
    match changed.contains(&true) {
        true => replaced(node, sides).map(Transformed::yes),
        false => Ok(Transformed::no(node)),
    }
}

fn gathers_by_sets(node: &Arc<dyn ExecutionPlan>) -> bool {
    let aggregate = node.downcast_ref::<AggregateExec>();
    aggregate.is_some_and(|aggregate| aggregate.group_expr().has_grouping_set())
}

fn computes_volatile(node: &Arc<dyn ExecutionPlan>) -> bool {
    !volatile_outputs(node).is_empty()
}

/// The columns that a projection computes by volatile functions.
fn volatile_outputs(node: &Arc<dyn ExecutionPlan>) -> Vec<usize> {
    let Some(projection) = node.downcast_ref::<ProjectionExec>() else {
        return Vec::new();
    };
    let outputs = projection.expr().iter().enumerate();
    let volatile = outputs.filter(|(_, output)| is_volatile(&output.expr));
    volatile.map(|(at, _)| at).collect()
}

fn replaced(
    node: Arc<dyn ExecutionPlan>,
    children: Vec<Arc<dyn ExecutionPlan>>,
) -> Result<Arc<dyn ExecutionPlan>> {
    let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute);
    node.replace_children(children, options)
}

/// For each side of a join, whether its columns are NULL in rows where the other side has no
/// partner.
fn filled_up(node: &Arc<dyn ExecutionPlan>) -> Option<[bool; 2]> {
    let kind = node
        .downcast_ref::<HashJoinExec>()
        .map(|join| *join.join_type())
        .or_else(|| {
            let join = node.downcast_ref::<NestedLoopJoinExec>();
            join.map(|join| *join.join_type())
        })
        .or_else(|| {
            let join = node.downcast_ref::<SortMergeJoinExec>();
            join.map(|join| join.join_type())
        })?;
    match kind {
        JoinType::Left => Some([false, true]),
        JoinType::Right => Some([true, false]),
        JoinType::Full => Some([true, true]),
        _ => None,
    }
}

/// Passes its input on, without the knowledge that columns are constant or equal to each other.
#[derive(Debug)]
struct VaryingExec {
    input: Arc<dyn ExecutionPlan>,
    properties: Arc<PlanProperties>,
}

impl VaryingExec {
    fn new(input: Arc<dyn ExecutionPlan>) -> Self {
        let own = input.properties();
        let volatile = volatile_outputs(&input);
        // An order by a column that only seems constant says nothing about the columns behind it.
        let orderings = own.eq_properties.oeq_class().iter().map(|ordering| {
            let keys = ordering.iter().cloned();
            let is_known = |key: &PhysicalSortExpr| {
                let columns = collect_columns(&key.expr);
                columns
                    .iter()
                    .all(|column| !volatile.contains(&column.index()))
            };
            keys.take_while(is_known).collect::<Vec<_>>()
        });
        let orderings = orderings.filter(|keys| !keys.is_empty());
        let varying = EquivalenceProperties::new_with_orderings(input.schema(), orderings);
        let properties = PlanProperties::clone(own).with_eq_properties(varying);
        Self {
            properties: Arc::new(properties),
            input,
        }
    }
}

impl DisplayAs for VaryingExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VaryingExec")
    }
}

impl ExecutionPlan for VaryingExec {
    fn name(&self) -> &str {
        "VaryingExec"
    }

    fn schema(&self) -> SchemaRef {
        self.input.schema()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        &self.properties
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    /// An order by a constant, over volatile outputs. Any rows are in that order, but because of
    /// the requirement a sort by a volatile output, which would be pushed down through an operator
    /// without one, stays above.
    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        let by_constant = || {
            let key = PhysicalSortRequirement::new(lit(true), None);
            LexRequirement::new([key]).map(OrderingRequirements::new)
        };
        vec![computes_volatile(&self.input).then(by_constant).flatten()]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(match children.into_iter().next() {
            Some(input) => Arc::new(Self::new(input)),
            None => self,
        })
    }

    fn apply_expressions(
        &self,
        _f: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        self.input.execute(partition, context)
    }
}

/// See the module. Runs after all rules that add sorts.
pub(crate) const BOUND_BY_ALL_KEYS: EachOperator = EachOperator {
    name: "bound_by_all_keys",
    rewrite: bound,
};

fn bound(node: Arc<dyn ExecutionPlan>) -> Rewritten {
    let Some(merge) = node.downcast_ref::<SortPreservingMergeExec>() else {
        return Ok(Transformed::no(node));
    };
    let input = merge.input();
    let sort = input.downcast_ref::<SortExec>().filter(|sort| {
        sort.fetch().is_some() && sort.preserve_partitioning() && sort.expr() != merge.expr()
    });
    let Some(sort) = sort else {
        return Ok(Transformed::no(node));
    };
    let whole = SortExec::new(merge.expr().clone(), Arc::clone(sort.input()))
        .with_fetch(sort.fetch())
        .with_preserve_partitioning(true);
    replaced(node, vec![Arc::new(whole)]).map(Transformed::yes)
}

/// See the module. Runs before [`ORDER_CHECK`].
pub(crate) const SORT_AGAIN: EachOperator = EachOperator {
    name: "sort_again",
    rewrite: sorted,
};

/// The rule of DataFusion that checks the orders in a plan.
pub(crate) const ORDER_CHECK: &str = "SanityCheckPlan";

fn sorted(node: Arc<dyn ExecutionPlan>) -> Rewritten {
    let mut children: Vec<_> = node.children().into_iter().map(Arc::clone).collect();
    let mut changed = false;
    for (child, required) in children.iter_mut().zip(node.required_input_ordering()) {
        let Some(required) = required.map(OrderingRequirements::into_single) else {
            continue;
        };
        let known = child.equivalence_properties();
        if !known.ordering_satisfy_requirement(required.clone())? {
            let partitions = child.output_partitioning().partition_count();
            let sort = SortExec::new(required.into(), Arc::clone(child));
            *child = Arc::new(sort.with_preserve_partitioning(partitions > 1));
            changed = true;
        }
    }
    match changed {
        true => replaced(node, children).map(Transformed::yes),
        false => Ok(Transformed::no(node)),
    }
}
