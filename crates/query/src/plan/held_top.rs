//! The rows that a top-n sort keeps, held where they are kept.
//!
//! Where a sort's input would have its order if partitions were merged in order, DataFusion's rule
//! for requirements takes the sort away and gives its number of rows to that merge. It does not
//! look at what lies between, so that an operator there sees the first rows alone:
//!
//! ```text
//!  SortExec k, fetch 3              ─► WindowAggExec count(*) OVER ()      counts three rows
//!    WindowAggExec count(*) OVER ()      SortPreservingMergeExec k, fetch 3
//!      CoalescePartitionsExec              …
//!        … in the order of k
//! ```
//!
//! [`HOLD_TOPS`] splits such a sort, before that rule, into a sort of all rows and a [`HeldTopExec`],
//! which no rule knows. [`GIVE_TOPS`] makes that a limit afterwards; the rule for limits then gives
//! it to the sort again, if that is still there.

use std::{fmt, sync::Arc};

use datafusion::{
    arrow::datatypes::SchemaRef,
    common::{
        Result, internal_err,
        tree_node::{Transformed, TreeNodeRecursion},
    },
    execution::{SendableRecordBatchStream, TaskContext},
    physical_expr::{Distribution, LexOrdering, OrderingRequirements, PhysicalExpr},
    physical_plan::{
        DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
        limit::GlobalLimitExec,
        projection::ProjectionExec,
        sorts::{sort::SortExec, sort_preserving_merge::SortPreservingMergeExec},
        windows::{BoundedWindowAggExec, WindowAggExec},
    },
};

use super::rule::{EachOperator, Rewritten};

/// See the module. Runs before the rule that adds and removes sorts.
pub(crate) const HOLD_TOPS: EachOperator = EachOperator {
    name: "hold_tops",
    rewrite: held,
};

/// See the module. Runs after the rule that adds and removes sorts.
pub(crate) const GIVE_TOPS: EachOperator = EachOperator {
    name: "give_tops",
    rewrite: given,
};

fn held(node: Arc<dyn ExecutionPlan>) -> Rewritten {
    let Some(sort) = node.downcast_ref::<SortExec>() else {
        return Ok(Transformed::no(node));
    };
    let Some(rows) = sort.fetch() else {
        return Ok(Transformed::no(node));
    };
    if sort.preserve_partitioning() || !is_over_order(sort.input(), false) {
        return Ok(Transformed::no(node));
    }
    let order = sort.expr().clone();
    let whole = SortExec::new(order.clone(), Arc::clone(sort.input()));
    let held = HeldTopExec {
        input: Arc::new(whole),
        order,
        rows,
    };
    Ok(Transformed::yes(Arc::new(held) as Arc<dyn ExecutionPlan>))
}

/// Whether an operator that is no projection lies between this plan and what may give it an order:
/// a window, or another sort.
fn is_over_order(plan: &Arc<dyn ExecutionPlan>, has_passed: bool) -> bool {
    let is_window = plan.is::<WindowAggExec>() || plan.is::<BoundedWindowAggExec>();
    let is_sort = plan.is::<SortExec>() || plan.is::<SortPreservingMergeExec>();
    if is_window || is_sort && has_passed {
        return true;
    }
    let has_passed = has_passed || !plan.is::<ProjectionExec>();
    let keeps = plan.maintains_input_order();
    let children = plan.children().into_iter().zip(keeps);
    !is_sort
        && children
            .into_iter()
            .any(|(child, keeps)| keeps && is_over_order(child, has_passed))
}

fn given(node: Arc<dyn ExecutionPlan>) -> Rewritten {
    let Some(held) = node.downcast_ref::<HeldTopExec>() else {
        return Ok(Transformed::no(node));
    };
    let limit = GlobalLimitExec::new(Arc::clone(&held.input), 0, Some(held.rows));
    Ok(Transformed::yes(Arc::new(limit) as Arc<dyn ExecutionPlan>))
}

/// The first rows of an input in an order. It is there while rules run, and is not executed.
#[derive(Debug)]
struct HeldTopExec {
    input: Arc<dyn ExecutionPlan>,
    order: LexOrdering,
    rows: usize,
}

impl DisplayAs for HeldTopExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HeldTopExec: rows={}", self.rows)
    }
}

impl ExecutionPlan for HeldTopExec {
    fn name(&self) -> &str {
        "HeldTopExec"
    }

    fn schema(&self) -> SchemaRef {
        self.input.schema()
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    /// It does, but what keeps an order may have another order's sort pushed below it, and then
    /// other rows would be the first.
    fn maintains_input_order(&self) -> Vec<bool> {
        vec![false]
    }

    fn required_input_ordering(&self) -> Vec<Option<OrderingRequirements>> {
        vec![Some(OrderingRequirements::from(self.order.clone()))]
    }

    fn required_input_distribution(&self) -> Vec<Distribution> {
        vec![Distribution::SinglePartition]
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
            Some(input) => Arc::new(Self {
                input,
                order: self.order.clone(),
                rows: self.rows,
            }),
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
        _partition: usize,
        _context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        internal_err!("a held top is made a limit before it is executed")
    }
}
