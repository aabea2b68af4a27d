//! Handing the filters that operators learn while they run down to the scans below them.
//!
//! DataFusion's rule for this follows columns by their names. If two columns have one name, or the
//! sides of a semi join use one name for different columns, a filter gets to the wrong column. This
//! rule replaces it and follows columns by their positions. It passes filters only through
//! operators that it knows; other operators keep all rows.
//!
//! A filter says which rows its operator does not need. A scan may leave them out only where that
//! changes nothing else: not below a limit, which would count other rows, nor where an expression
//! must be computed for each row.
//!
//! A scan that would start before its filter is known is [`deferred`].

mod deferred;

use std::{any::Any, sync::Arc};

use datafusion::{
    common::{
        JoinSide, JoinType, Result,
        config::ConfigOptions,
        tree_node::{TreeNode, TreeNodeRecursion},
    },
    datasource::source::DataSourceExec,
    physical_expr::{
        PhysicalExpr,
        expressions::{Column, DynamicFilterPhysicalExpr, lit},
        utils::collect_columns,
    },
    physical_optimizer::PhysicalOptimizerRule,
    physical_plan::{
        ExecutionPlan, ExecutionPlanProperties,
        aggregates::AggregateExec,
        coalesce_partitions::CoalescePartitionsExec,
        coop::CooperativeExec,
        filter::FilterExec,
        joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec, PartitionMode},
        projection::ProjectionExec,
        recursive_query::RecursiveQueryExec,
        repartition::RepartitionExec,
        replace_children_if_necessary,
        sorts::{sort::SortExec, sort_preserving_merge::SortPreservingMergeExec},
        union::{InterleaveExec, UnionExec},
    },
};

use crate::{
    scan::{RunTimeFilter, TableScan},
    star::StarJoinExec,
};
use deferred::DeferredExec;

/// The rule that replaces DataFusion's own.
#[derive(Debug)]
pub(crate) struct RunTimeFilters;

impl RunTimeFilters {
    /// The name of the replaced rule.
    pub(crate) const REPLACES: &str = "FilterPushdown(Post)";
}

impl PhysicalOptimizerRule for RunTimeFilters {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        match config.optimizer.enable_dynamic_filter_pushdown {
            true => handed_down(plan, Vec::new(), false),
            false => Ok(plan),
        }
    }

    fn name(&self) -> &str {
        "run_time_filters"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// Hands filters that are about a node's output down to the node and its inputs.
/// `may_go_unasked`: some of its partitions may never be asked for rows while others are.
fn handed_down(
    node: Arc<dyn ExecutionPlan>,
    filters: Vec<RunTimeFilter>,
    may_go_unasked: bool,
) -> Result<Arc<dyn ExecutionPlan>> {
    let width = node.schema().fields().len();
    let mut columns = filters.iter().flat_map(|filter| &filter.columns);
    assert!(
        columns.all(|(_, at)| *at < width),
        "filters {filters:?} are about the {width} columns of {}",
        node.name()
    );
    if let Some(source) = node.downcast_ref::<DataSourceExec>() {
        let scan = source.data_source().downcast_ref::<TableScan>();
        return Ok(
            match scan.and_then(|scan| scan.with_run_time_filters(filters)) {
                Some(scan) => Arc::new(source.clone().with_data_source(Arc::new(scan))),
                None => node,
            },
        );
    }
    let children = node.children();
    let mut of_children = match may_pass(node.as_ref())? {
        true => passed(node.as_ref(), &filters),
        false => vec![Vec::new(); children.len()],
    };
    assert_eq!(
        of_children.len(),
        children.len(),
        "each input of {} has its filters",
        node.name()
    );
    let mut join_filter = None;
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        join_filter = of_join(join).filter(|_| !(may_go_unasked && waits_for_all(join)));
        of_children[1].extend(join_filter.clone());
    } else if let Some(sort) = node.downcast_ref::<SortExec>() {
        of_children[0].extend(produced(sort).map(starting));
    } else if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        of_children[0].extend(of_aggregate(aggregate));
    }
    let mut new_children = Vec::with_capacity(children.len());
    for ((at, child), filters) in children.into_iter().enumerate().zip(of_children) {
        let child = Arc::clone(child);
        new_children.push(match is_run_again(node.as_ref(), at) {
            true => child,
            false => {
                let may_go_unasked = leaves_unasked(node.as_ref(), at, may_go_unasked);
                handed_down(child, filters, may_go_unasked)?
            }
        });
    }
    if let Some(filter) = &join_filter
        && starts_early(&new_children[1], filter)
    {
        new_children[1] = Arc::new(DeferredExec::new(Arc::clone(&new_children[1])));
    }
    let node = replace_children_if_necessary(node, new_children)?;
    match (node.downcast_ref::<HashJoinExec>(), join_filter) {
        (Some(join), Some(filter)) => {
            let join = join.builder().build()?;
            Ok(Arc::new(join.with_dynamic_filter_expr(filter.filter)?))
        }
        _ => Ok(node),
    }
}

/// Whether a join publishes its filter only after each of its partitions has been asked for rows. A
/// partitioned join also publishes it when the remaining partitions will not be asked any more.
fn waits_for_all(join: &HashJoinExec) -> bool {
    *join.partition_mode() != PartitionMode::Partitioned
        && join.right().output_partitioning().partition_count() > 1
}

/// Whether some of a child's partitions may never be asked for rows while others are.
fn leaves_unasked(node: &dyn ExecutionPlan, child: usize, may_go_unasked: bool) -> bool {
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        // A partition with no rows on the left does not ask for rows on the right.
        return match join.partition_mode() {
            PartitionMode::Partitioned => child == 1 || may_go_unasked,
            _ => child == 1 && may_go_unasked,
        };
    }
    let asks_all = node.is::<RepartitionExec>()
        || node.is::<CoalescePartitionsExec>()
        || node.is::<SortPreservingMergeExec>()
        || node.is::<StarJoinExec>();
    // All partitions of a nested loop share one left side.
    let passes_on = keeps_columns(node)
        || node.is::<NestedLoopJoinExec>()
        || node.is::<CrossJoinExec>()
        || node.children().len() < 2;
    !asks_all && (may_go_unasked || !passes_on)
}

/// Whether an operator that starts its input before it is asked for rows has a scan below that
/// takes the filter.
fn starts_early(node: &Arc<dyn ExecutionPlan>, filter: &RunTimeFilter) -> bool {
    let mut children = node.children().into_iter();
    match node.is::<CoalescePartitionsExec>() || node.is::<SortPreservingMergeExec>() {
        true => children.any(|child| takes(child, filter)),
        false => children.any(|child| starts_early(child, filter)),
    }
}

/// Whether a scan of this plan takes the filter.
fn takes(node: &Arc<dyn ExecutionPlan>, filter: &RunTimeFilter) -> bool {
    let source = node.downcast_ref::<DataSourceExec>();
    let scan = source.and_then(|source| source.data_source().downcast_ref::<TableScan>());
    scan.is_some_and(|scan| scan.takes(filter))
        || node
            .children()
            .into_iter()
            .any(|child| takes(child, filter))
}

/// The filter that a join builds from the keys on its left side, for its right side.
fn of_join(join: &HashJoinExec) -> Option<RunTimeFilter> {
    let (_, may_drop_right) = join.join_type.on_lr_is_preserved();
    if !may_drop_right || join.null_aware {
        return None;
    }
    let keys: Vec<_> = join.on.iter().map(|(_, right)| Arc::clone(right)).collect();
    Some(starting(Arc::new(DynamicFilterPhysicalExpr::new(
        keys,
        lit(true),
    ))))
}

/// The filter of a minimum or maximum. Beside other aggregates it is not used, because DataFusion
/// may leave out rows that another aggregate needs.
fn of_aggregate(aggregate: &AggregateExec) -> Option<RunTimeFilter> {
    let filter = produced(aggregate).filter(|_| aggregate.aggr_expr().len() == 1);
    filter.map(starting)
}

/// The filter that an operator keeps up to date.
fn produced(node: &dyn ExecutionPlan) -> Option<Arc<DynamicFilterPhysicalExpr>> {
    let produced = node.dynamic_expressions_produced().into_iter().next()?;
    let produced: Arc<dyn Any + Send + Sync> = produced;
    produced.downcast().ok()
}

/// A filter at its operator, in terms of the columns of the operator's input.
fn starting(filter: Arc<DynamicFilterPhysicalExpr>) -> RunTimeFilter {
    let mut columns: Vec<usize> = filter
        .children()
        .into_iter()
        .flat_map(collect_columns)
        .map(|column| column.index())
        .collect();
    columns.sort_unstable();
    columns.dedup();
    RunTimeFilter {
        filter,
        columns: columns.into_iter().map(|at| (at, at)).collect(),
    }
}

/// Whether rows of a node's output may be left out of its input.
fn may_pass(node: &dyn ExecutionPlan) -> Result<bool> {
    if node.fetch().is_some() {
        return Ok(false);
    }
    let mut is_volatile = false;
    node.apply_expressions(&mut |expr| {
        expr.apply(|expr| {
            is_volatile |= expr.is_volatile_node();
            Ok(TreeNodeRecursion::Continue)
        })
    })?;
    Ok(!is_volatile)
}

/// Whether a child may run more than once, so that a filter of its first run would be wrong in
/// the second: the recursive part of a query, and the side that a join reads again when memory
/// is short.
fn is_run_again(node: &dyn ExecutionPlan, child: usize) -> bool {
    node.is::<RecursiveQueryExec>() || node.is::<NestedLoopJoinExec>() && child == 0
}

/// The filters of a node's output as each of its children sees them.
fn passed(node: &dyn ExecutionPlan, filters: &[RunTimeFilter]) -> Vec<Vec<RunTimeFilter>> {
    let through = |column: &dyn Fn(usize) -> Option<usize>| -> Vec<RunTimeFilter> {
        filters
            .iter()
            .filter_map(|filter| filter.through(column))
            .collect()
    };
    if keeps_columns(node) {
        let children = node.children().len();
        return vec![filters.to_vec(); children];
    }
    if let Some(filter) = node.downcast_ref::<FilterExec>() {
        let projection = filter.projection().as_ref();
        return vec![through(&|at| match projection {
            Some(projection) => projection.get(at).copied(),
            None => Some(at),
        })];
    }
    if let Some(projection) = node.downcast_ref::<ProjectionExec>() {
        return vec![through(&|at| column_of(&projection.expr().get(at)?.expr))];
    }
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        // Whole groups are left out.
        let groups = aggregate.group_expr();
        if groups.is_single() && !groups.expr().is_empty() && aggregate.limit_options().is_none() {
            return vec![through(&|at| column_of(&groups.expr().get(at)?.0))];
        }
    }
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        let [left, right] =
            [JoinSide::Left, JoinSide::Right].map(|side| through(&|at| join_input(join, at, side)));
        return vec![left, right];
    }
    vec![Vec::new(); node.children().len()]
}

/// Whether a node's output has the same columns as its inputs.
fn keeps_columns(node: &dyn ExecutionPlan) -> bool {
    node.is::<CoalescePartitionsExec>()
        || node.is::<CooperativeExec>()
        || node.is::<RepartitionExec>()
        || node.is::<SortExec>()
        || node.is::<SortPreservingMergeExec>()
        || node.is::<UnionExec>()
        || node.is::<InterleaveExec>()
}

fn column_of(expr: &Arc<dyn PhysicalExpr>) -> Option<usize> {
    let column = expr.downcast_ref::<Column>()?;
    Some(column.index())
}

/// The column of a join's side that has the values of an output column, if rows of the side may be
/// left out by it.
fn join_input(join: &HashJoinExec, output: usize, side: JoinSide) -> Option<usize> {
    let at = match &join.projection {
        Some(projection) => *projection.get(output)?,
        None => output,
    };
    let lefts = join.left.schema().fields().len();
    let rights = join.right.schema().fields().len();
    // The side that an output column comes from, and the column's position there.
    let (of, at) = match join.join_type {
        JoinType::Inner | JoinType::Left | JoinType::Right if at < lefts => (JoinSide::Left, at),
        JoinType::Inner | JoinType::Left | JoinType::Right => (JoinSide::Right, at - lefts),
        JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark if at < lefts => {
            (JoinSide::Left, at)
        }
        JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark if at < rights => {
            (JoinSide::Right, at)
        }
        // Both sides of a full join get NULLs; a mark column belongs to no side.
        _ => return None,
    };
    let is_kept_whole = match join.join_type {
        JoinType::Left => of == JoinSide::Left,
        JoinType::Right => of == JoinSide::Right,
        _ => true,
    };
    if !is_kept_whole {
        return None;
    }
    if of == side {
        return Some(at);
    }
    // Where rows must match, the key of the other side has the same value.
    let must_match = matches!(
        join.join_type,
        JoinType::Inner | JoinType::LeftSemi | JoinType::RightSemi
    );
    let keys = join
        .on
        .iter()
        .filter(|_| must_match)
        .filter_map(|(left, right)| Some((column_of(left)?, column_of(right)?)));
    let mut keys = keys.filter_map(|(left, right)| match of {
        JoinSide::Left => (left == at).then_some(right),
        _ => (right == at).then_some(left),
    });
    keys.next()
}
