//! How each kind of node passes an order on.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, Result};
use datafusion::logical_expr::expr::{AggregateFunction, WindowFunction};
use datafusion::logical_expr::{
    Aggregate, Distinct, DistinctOn, Expr, JoinType, LogicalPlan, Projection, Sort, SortExpr,
    SubqueryAlias, Unnest, Window, WindowFrameBound, WindowFrameUnits,
};

use super::{Follower, Lifted, narrow};

/// Aggregates whose result tells the order of their arguments.
const AGGREGATES: [&str; 5] = [
    "array_agg",
    "string_agg",
    "first_value",
    "last_value",
    "nth_value",
];

/// Window functions that tell the order of rows, whatever their frame.
const WINDOWS: [&str; 9] = [
    "row_number",
    "ntile",
    "lag",
    "lead",
    "first_value",
    "last_value",
    "nth_value",
    "array_agg",
    "string_agg",
];

impl Follower {
    /// The plan without the sorts that its rows' order comes from, and this order.
    pub(super) fn lift(&mut self, plan: LogicalPlan) -> Result<Lifted> {
        let plan = self.with_subqueries(plan)?;
        self.lift_node(plan)
    }

    /// [`Self::lift`] of a node whose expressions have been followed.
    pub(super) fn lift_node(&mut self, plan: LogicalPlan) -> Result<Lifted> {
        match plan {
            LogicalPlan::Sort(node) if node.fetch.is_none() => self.sort(node),
            LogicalPlan::Projection(node) => self.projection(node),
            LogicalPlan::SubqueryAlias(node) => self.alias(node),
            LogicalPlan::Filter(mut node) => {
                let Lifted { plan, order } = self.lift_input(node.input)?;
                node.input = Arc::new(plan);
                let plan = LogicalPlan::Filter(node);
                Ok(Lifted { plan, order })
            }
            LogicalPlan::Limit(mut node) => {
                let lifted = self.lift_input(node.input)?;
                let order = lifted.order.clone();
                node.input = Arc::new(lifted.sorted());
                let plan = LogicalPlan::Limit(node);
                Ok(Lifted { plan, order })
            }
            LogicalPlan::Join(_) => self.join(plan),
            LogicalPlan::Window(node) => self.window(node),
            LogicalPlan::Aggregate(node) => self.aggregate(node),
            LogicalPlan::Distinct(Distinct::On(node)) => self.distinct_on(node),
            LogicalPlan::Unnest(node) => self.unnest(node),
            LogicalPlan::Distinct(_) | LogicalPlan::Union(_) | LogicalPlan::Subquery(_) => {
                let plan = plan.map_children(|input| self.scatter(input).map(Transformed::yes))?;
                Ok(Lifted::unordered(plan.data))
            }
            other => {
                let plan = other.map_children(|input| self.settle(input).map(Transformed::yes))?;
                Ok(Lifted::unordered(plan.data))
            }
        }
    }

    fn lift_input(&mut self, input: Arc<LogicalPlan>) -> Result<Lifted> {
        self.lift(Arc::unwrap_or_clone(input))
    }

    /// An order that says more than the one asked for stays, as in PostgreSQL, which does not
    /// sort again what is sorted.
    fn sort(&mut self, node: Sort) -> Result<Lifted> {
        let mut lifted = self.lift_input(node.input)?;
        if !lifted.order.starts_with(&node.expr) {
            lifted.order = node.expr;
        }
        Ok(lifted)
    }

    fn projection(&mut self, mut node: Projection) -> Result<Lifted> {
        let Lifted { plan, mut order } = self.lift_input(node.input)?;
        if order.is_empty() {
            node.input = Arc::new(plan);
            return Ok(Lifted::unordered(LogicalPlan::Projection(node)));
        }
        let mut outputs = node.expr;
        for key in &mut order {
            key.expr = self.output(key.expr.clone(), &mut outputs);
        }
        let plan = Projection::try_new(outputs, Arc::new(plan)).map(LogicalPlan::Projection)?;
        Ok(Lifted { plan, order })
    }

    /// The output with this value, which is added where there is none.
    fn output(&mut self, value: Expr, outputs: &mut Vec<Expr>) -> Expr {
        let same = |output: &&Expr| unaliased(output) == &value && !value.is_volatile();
        if let Some(output) = outputs.iter().find(same) {
            let (qualifier, name) = output.qualified_name();
            return Expr::Column(Column::new(qualifier, name));
        }
        let name = self.hidden_name();
        outputs.push(value.alias(&name));
        Expr::Column(Column::new_unqualified(name))
    }

    fn alias(&mut self, node: SubqueryAlias) -> Result<Lifted> {
        let Lifted { plan, order } = self.lift_input(node.input)?;
        let below = Arc::clone(plan.schema());
        let alias = SubqueryAlias::try_new(Arc::new(plan), node.alias)?;
        let order = requalified(order, &below, &alias.schema)?;
        let plan = LogicalPlan::SubqueryAlias(alias);
        Ok(Lifted { plan, order })
    }

    /// Rows come in the order of the left side, where each row of it has its partners.
    fn join(&mut self, plan: LogicalPlan) -> Result<Lifted> {
        let LogicalPlan::Join(mut node) = plan else {
            return Ok(Lifted::unordered(plan));
        };
        let right = self.scatter(Arc::unwrap_or_clone(node.right))?;
        node.right = Arc::new(right);
        let keeps = matches!(
            node.join_type,
            JoinType::Inner | JoinType::Left | JoinType::LeftSemi | JoinType::LeftAnti
        );
        if !keeps {
            node.left = Arc::new(self.scatter(Arc::unwrap_or_clone(node.left))?);
            return Ok(Lifted::unordered(LogicalPlan::Join(node)));
        }
        let Lifted { plan, order } = self.lift_input(node.left)?;
        node.left = Arc::new(plan);
        let plan = LogicalPlan::Join(node).recompute_schema()?;
        Ok(Lifted { plan, order })
    }

    fn window(&mut self, mut node: Window) -> Result<Lifted> {
        let Lifted { plan, order } = self.lift_input(node.input)?;
        if order.is_empty() {
            node.input = Arc::new(plan);
            return Ok(Lifted::unordered(LogicalPlan::Window(node)));
        }
        let has_own = |expr: &Expr| match unaliased(expr) {
            Expr::WindowFunction(call) => {
                !call.params.partition_by.is_empty() || !call.params.order_by.is_empty()
            }
            _ => true,
        };
        let sorts_anew = node.window_expr.iter().any(has_own);
        let exprs = node.window_expr.into_iter();
        let exprs = exprs.map(|expr| ordered_window(expr, &order)).collect();
        let plan = Window::try_new(exprs, Arc::new(plan)).map(LogicalPlan::Window)?;
        let order = match sorts_anew {
            true => Vec::new(),
            false => order,
        };
        Ok(Lifted { plan, order })
    }

    fn aggregate(&mut self, mut node: Aggregate) -> Result<Lifted> {
        let Lifted { plan, order } = self.lift_input(node.input)?;
        if order.is_empty() {
            node.input = Arc::new(plan);
            return Ok(Lifted::unordered(LogicalPlan::Aggregate(node)));
        }
        let exprs = node.aggr_expr.into_iter();
        let exprs = exprs.map(|expr| ordered_aggregate(expr, &order)).collect();
        let node = Aggregate::try_new(Arc::new(plan), node.group_expr, exprs)?;
        Ok(Lifted::unordered(LogicalPlan::Aggregate(node)))
    }

    /// The first row of each group is that of the order.
    fn distinct_on(&mut self, node: DistinctOn) -> Result<Lifted> {
        let Lifted { plan, order } = self.lift_input(node.input)?;
        let is_first = |keys: &[SortExpr]| order.starts_with(keys);
        let keys = match node.sort_expr {
            Some(keys) if is_first(&keys) => Some(order),
            Some(keys) => Some(keys),
            None if is_grouped(&order, &node.on_expr) => Some(order),
            None => None,
        };
        let (mut outputs, count) = (node.select_expr, node.on_expr.len());
        let mut order = keys.clone().unwrap_or_default();
        order.truncate(count);
        for key in &mut order {
            key.expr = self.output(key.expr.clone(), &mut outputs);
        }
        let node = DistinctOn::try_new(node.on_expr, outputs, keys, Arc::new(plan))?;
        let plan = LogicalPlan::Distinct(Distinct::On(node));
        Ok(Lifted { plan, order })
    }

    /// An item is where the row is that it comes from, unless the order is that of the items.
    fn unnest(&mut self, mut node: Unnest) -> Result<Lifted> {
        let schema = Arc::clone(node.input.schema());
        let Lifted { plan, order } = self.lift_input(Arc::clone(&node.input))?;
        let unnested = |column: &Column| node.exec_columns.contains(column);
        let follows = |key: &SortExpr| !key.expr.column_refs().into_iter().any(unnested);
        if order.is_empty() || !order.iter().all(follows) {
            node.input = Arc::new(narrow(plan, &schema)?);
            return Ok(Lifted::unordered(LogicalPlan::Unnest(node)));
        }
        let plan = LogicalPlan::Unnest(node).with_new_exprs(Vec::new(), vec![plan])?;
        Ok(Lifted { plan, order })
    }
}

fn unaliased(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => unaliased(&alias.expr),
        other => other,
    }
}

/// Whether rows of one group stand together in this order.
fn is_grouped(order: &[SortExpr], on: &[Expr]) -> bool {
    order.len() >= on.len() && order[..on.len()].iter().all(|key| on.contains(&key.expr))
}

/// An order over the columns of a plan as one over those of an alias of it.
fn requalified(order: Vec<SortExpr>, below: &DFSchema, above: &DFSchema) -> Result<Vec<SortExpr>> {
    let outer = |expr: Expr| {
        let Expr::Column(column) = &expr else {
            return Ok(Transformed::no(expr));
        };
        let at = below.index_of_column(column)?;
        let column = Column::from(above.qualified_field(at));
        Ok(Transformed::yes(Expr::Column(column)))
    };
    let keys = order.into_iter().map(|mut key| {
        key.expr = key.expr.transform(outer)?.data;
        Ok(key)
    });
    keys.collect()
}

/// An aggregate that depends on the order of its rows, in this one. It keeps its name.
fn ordered_aggregate(expr: Expr, order: &[SortExpr]) -> Expr {
    let follows = |call: &AggregateFunction| {
        AGGREGATES.contains(&call.func.name())
            && call.params.order_by.is_empty()
            && !call.params.distinct
    };
    renamed(expr, |expr| match expr {
        Expr::AggregateFunction(call) if follows(call) => call.params.order_by = order.to_vec(),
        _ => {}
    })
}

/// A window function over all rows that depends on their order, in this one.
fn ordered_window(expr: Expr, order: &[SortExpr]) -> Expr {
    renamed(expr, |expr| match expr {
        Expr::WindowFunction(call) if follows(call) => call.params.order_by = order.to_vec(),
        _ => {}
    })
}

fn follows(call: &WindowFunction) -> bool {
    let (params, frame) = (&call.params, &call.params.window_frame);
    let has_all = matches!(&frame.start_bound, WindowFrameBound::Preceding(bound) if bound.is_null())
        && matches!(&frame.end_bound, WindowFrameBound::Following(bound) if bound.is_null());
    params.partition_by.is_empty()
        && params.order_by.is_empty()
        && frame.units == WindowFrameUnits::Rows
        && (!has_all || WINDOWS.contains(&call.fun.name()))
}

/// What an expression becomes, under the name that others know it by.
fn renamed(mut expr: Expr, change: impl FnOnce(&mut Expr)) -> Expr {
    let before = expr.clone();
    match &mut expr {
        Expr::Alias(alias) => change(&mut alias.expr),
        other => change(other),
    }
    if expr == before || matches!(expr, Expr::Alias(_)) {
        return expr;
    }
    let name = before.schema_name().to_string();
    expr.alias(name)
}
