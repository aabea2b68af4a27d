//! Star joins: aggregates over one large table that is joined with sides by unique keys.
//!
//! [`rewritten`] finds them in an optimised plan (`recognise`, of trees taken apart by `flatten`,
//! with the keys that `unique` knows) and replaces each by a node, for which [`StarPlanner`] plans
//! an operator (`exec`): sides become lookup tables (`side`), the large table is scanned with them,
//! and groups are numbers (`groups`).
//!
//! Star joins are found anew each time a plan is made physical. A cached physical plan holds them
//! without the statement's snapshot and tables (`kept`).

mod exec;
mod flatten;
mod groups;
mod kept;
mod recognise;
mod side;
mod unique;

use std::{any::Any, borrow::Cow, cmp::Ordering, fmt, hash::Hasher, sync::Arc};

use async_trait::async_trait;
use datafusion::{
    arrow::datatypes::Schema,
    catalog::Session,
    common::{
        DFSchemaRef, Result,
        tree_node::{Transformed, TreeNode, TreeNodeRecursion},
    },
    execution::{SessionState, context::QueryPlanner},
    logical_expr::{
        Expr, Extension, InvariantLevel, LogicalPlan, UserDefinedLogicalNode,
        physical_planning_context::PhysicalPlanningContext,
    },
    physical_expr::{PhysicalExpr, aggregate::LoweredAggregateBuilder, create_physical_expr},
    physical_plan::ExecutionPlan,
    physical_planner::{DefaultPhysicalPlanner, ExtensionPlanner, PhysicalPlanner},
};

use crate::scan::TableScanProvider;
pub(crate) use exec::StarJoinExec;
use exec::{Fact, Original, SideJoin, StarParts};
use groups::{Aggregated, Grouping};
pub(crate) use kept::KeptStar;
use recognise::{Side, Star, recognised, types};

/// Whether star joins are looked for, in a session's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StarJoins(pub bool);

/// The plan with its star joins as nodes of their own.
///
/// # Errors
/// No error is known.
pub(crate) fn rewritten<'p>(
    state: &SessionState,
    plan: &'p LogicalPlan,
) -> Result<Cow<'p, LogicalPlan>> {
    let is_on = state.config().get_extension::<StarJoins>();
    if is_on.is_none_or(|is_on| !is_on.0) || !has_candidate(plan)? {
        return Ok(Cow::Borrowed(plan));
    }
    let mut shared: Option<Arc<SessionState>> = None;
    let found = plan.clone().transform_down_with_subqueries(|node| {
        let LogicalPlan::Aggregate(aggregate) = &node else {
            return Ok(Transformed::no(node));
        };
        let Some(star) = recognised(aggregate)? else {
            return Ok(Transformed::no(node));
        };
        let state = shared.get_or_insert_with(|| Arc::new(state.clone()));
        let sides = star.sides.iter().map(|side| side.plan.clone()).collect();
        let star = StarNode {
            schema: Arc::clone(&aggregate.schema),
            sides,
            star: Arc::new(star),
            original: Arc::new(Original::New {
                state: Arc::clone(state),
                plan: node,
            }),
        };
        let node = LogicalPlan::Extension(Extension {
            node: Arc::new(star),
        });
        Ok(Transformed::new(node, true, TreeNodeRecursion::Jump))
    })?;
    Ok(match found.transformed {
        true => Cow::Owned(found.data),
        false => Cow::Borrowed(plan),
    })
}

/// Whether there is an aggregate with a join below it.
fn has_candidate(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        if let LogicalPlan::Aggregate(aggregate) = node {
            let is_join = |below: &LogicalPlan| Ok(matches!(below, LogicalPlan::Join(_)));
            found |= aggregate.input.exists(is_join)?;
        }
        Ok(match found {
            true => TreeNodeRecursion::Stop,
            false => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(found)
}

/// A star join in a logical plan. Its inputs are the sides.
#[derive(Clone)]
struct StarNode {
    star: Arc<Star>,
    sides: Vec<LogicalPlan>,
    schema: DFSchemaRef,
    original: Arc<Original>,
}

impl fmt::Debug for StarNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StarNode")
            .field("star", &self.star)
            .finish_non_exhaustive()
    }
}

impl UserDefinedLogicalNode for StarNode {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn name(&self) -> &str {
        "StarJoin"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        self.sides.iter().collect()
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn check_invariants(&self, _check: InvariantLevel) -> Result<()> {
        Ok(())
    }

    fn expressions(&self) -> Vec<Expr> {
        Vec::new()
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StarJoin")
    }

    fn with_exprs_and_inputs(
        &self,
        _exprs: Vec<Expr>,
        inputs: Vec<LogicalPlan>,
    ) -> Result<Arc<dyn UserDefinedLogicalNode>> {
        Ok(Arc::new(Self {
            sides: inputs,
            ..self.clone()
        }))
    }

    fn dyn_hash(&self, state: &mut dyn Hasher) {
        state.write_usize(Arc::as_ptr(&self.star).addr());
    }

    fn dyn_eq(&self, other: &dyn UserDefinedLogicalNode) -> bool {
        let other = other.as_any().downcast_ref::<Self>();
        other.is_some_and(|other| Arc::ptr_eq(&self.star, &other.star) && self.sides == other.sides)
    }

    fn dyn_ord(&self, other: &dyn UserDefinedLogicalNode) -> Option<Ordering> {
        self.dyn_eq(other).then_some(Ordering::Equal)
    }
}

/// Plans queries, with star joins.
#[derive(Debug)]
pub(crate) struct StarPlanner;

#[async_trait]
impl QueryPlanner for StarPlanner {
    async fn create_physical_plan(
        &self,
        plan: &LogicalPlan,
        session: &dyn Session,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let planner = DefaultPhysicalPlanner::with_extension_planners(vec![Arc::new(StarPlanner)]);
        planner.create_physical_plan(plan, session).await
    }
}

#[async_trait]
impl ExtensionPlanner for StarPlanner {
    async fn plan_extension(
        &self,
        _planner: &dyn PhysicalPlanner,
        node: &dyn UserDefinedLogicalNode,
        _logical_inputs: &[&LogicalPlan],
        physical_inputs: &[Arc<dyn ExecutionPlan>],
        session: &dyn Session,
        _planning: &PhysicalPlanningContext,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        let Some(node) = node.as_any().downcast_ref::<StarNode>() else {
            return Ok(None);
        };
        let Some(provider) = node.star.fact.downcast_ref::<TableScanProvider>() else {
            return Ok(None);
        };
        let widths = physical_inputs
            .iter()
            .map(|side| side.schema().fields().len());
        assert!(
            widths.eq(node.star.sides.iter().map(Side::width)),
            "the sides of a star are planned with their columns"
        );
        let parts = Arc::new(parts_of(node, session)?);
        let (fact, original) = (Fact::of_provider(provider), Arc::clone(&node.original));
        let plan = StarJoinExec::new(parts, fact, physical_inputs.to_vec(), original);
        Ok(Some(Arc::new(plan)))
    }
}

/// The parts of a node's operator.
fn parts_of(node: &StarNode, session: &dyn Session) -> Result<StarParts> {
    let star = &node.star;
    let schema: Arc<Schema> = Arc::clone(star.schema.inner());
    assert_eq!(
        node.schema.fields().len(),
        star.groups.len() + star.aggregates.len(),
        "a star gives its keys of groups and its aggregates"
    );
    let planning = PhysicalPlanningContext::default();
    let properties = session.execution_props();
    let physical = |exprs: &[Expr]| -> Result<Vec<Arc<dyn PhysicalExpr>>> {
        let physical = exprs.iter();
        physical
            .map(|expr| create_physical_expr(expr, &star.schema, properties, &planning))
            .collect()
    };
    let aggregates = star.aggregates.iter().map(|expr| {
        let builder =
            LoweredAggregateBuilder::new(expr, &star.schema, &schema, properties, &planning);
        let lowered = builder.build()?;
        Ok(Aggregated {
            function: lowered.aggregate,
            filter: lowered.filter,
        })
    });
    let joins = star.sides.iter().map(|side| SideJoin {
        foreign_key: side.foreign_key,
        groups: side.groups,
        shown: side.shown.clone(),
    });
    Ok(StarParts {
        of_fact: star.of_fact.clone(),
        joins: joins.collect(),
        columns: star.columns.clone(),
        conditions: physical(&star.conditions)?,
        groups: star.groups.clone(),
        grouping: Grouping {
            schema: Arc::clone(&schema),
            numbers: 1,
            computed: physical(&star.computed)?,
            computed_types: types(&star.computed, &star.schema)?,
            is_grouped: !star.groups.is_empty(),
        },
        aggregates: aggregates.collect::<Result<_>>()?,
        schema: Arc::clone(node.schema.inner()),
    })
}
