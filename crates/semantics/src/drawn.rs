//! Volatile keys: `ORDER BY random()` in a window or an aggregate, and, for [`crate::order`], in
//! a query.
//!
//! DataFusion evaluates a key wherever it sorts, merges or compares rows; PostgreSQL evaluates it
//! once for each row. An argument that is also a key is evaluated together with it. So such keys
//! become columns below:
//!
//! ```text
//!  Aggregate array_agg(random() ORDER BY random())      Aggregate array_agg(k0 ORDER BY k0)
//!    …                                             ─►     Projection *, random() AS k0
//!                                                           …
//! ```
//!
//! Subqueries that call such functions and look alike are evaluated separately.
//!
//! If nothing else of the rows is read, they still get a column, since DataFusion cannot merge
//! rows without columns.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{
    Aggregate, Expr, LogicalPlan, Projection, Sort, SubqueryAlias, Window,
};
use datafusion::optimizer::AnalyzerRule;

use crate::repeated::stop_if;

/// Draws the keys of windows and aggregates. Stands before expressions are resolved, while a key looks as an argument does.
#[derive(Debug)]
pub(crate) struct DrawOnce;

impl AnalyzerRule for DrawOnce {
    fn name(&self) -> &str {
        "draw_once"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let drawn = plan.transform_up_with_subqueries(|plan| match plan {
            LogicalPlan::Window(node) => window(node),
            LogicalPlan::Aggregate(node) => aggregate(node),
            other => Ok(Transformed::no(other)),
        })?;
        number_subqueries(drawn.data)
    }
}

/// Tells apart the subqueries that are drawn once for a statement: DataFusion computes those that look
/// alike once, and PostgreSQL each for itself.
fn number_subqueries(plan: LogicalPlan) -> Result<LogicalPlan> {
    let mut number = 0;
    let numbered = plan.transform_up_with_subqueries(|node| {
        node.map_expressions(|expr| {
            expr.transform_up(|part| match part {
                Expr::ScalarSubquery(mut subquery)
                    if subquery.outer_ref_columns.is_empty() && is_drawn(&subquery.subquery)? =>
                {
                    number += 1;
                    let alias = format!("\u{1}drawn {number}");
                    let named = SubqueryAlias::try_new(subquery.subquery, alias)?;
                    subquery.subquery = Arc::new(LogicalPlan::SubqueryAlias(named));
                    Ok(Transformed::yes(Expr::ScalarSubquery(subquery)))
                }
                other => Ok(Transformed::no(other)),
            })
        })
    })?;
    Ok(numbered.data)
}

/// Whether a plan calls volatile functions.
fn is_drawn(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            found |= expr.is_volatile();
            Ok(stop_if(found))
        })
    })?;
    Ok(found)
}

/// The keys of a node that are drawn below it.
#[derive(Default)]
struct Drawn {
    keys: Vec<Expr>,
}

impl Drawn {
    /// Puts a column in the place of a volatile key. The first `others` are not for it.
    fn replace(&mut self, key: &mut Expr, others: usize) {
        if !key.is_volatile() || key.contains_outer() {
            return;
        }
        let mut known = self.keys.iter().skip(others);
        let at = match known.position(|known| *known == *key) {
            Some(at) => others + at,
            None => {
                self.keys.push(key.clone());
                self.keys.len() - 1
            }
        };
        *key = Expr::Column(Column::new_unqualified(name_of(at)));
    }

    /// The rows of a node's input with the keys beside them.
    fn beside(self, input: &Arc<LogicalPlan>) -> Result<Arc<LogicalPlan>> {
        let keys = self.keys.into_iter().enumerate();
        let keys = keys.map(|(at, key)| key.alias(name_of(at)));
        let outputs = columns_of(input).into_iter().chain(keys);
        let drawn = Projection::try_new(outputs.collect(), Arc::clone(input))?;
        Ok(Arc::new(LogicalPlan::Projection(drawn)))
    }
}

fn columns_of(plan: &LogicalPlan) -> Vec<Expr> {
    let columns = plan.schema().columns().into_iter();
    columns.map(Expr::Column).collect()
}

fn name_of(at: usize) -> String {
    format!("\u{1}drawn {at}")
}

/// Rows sorted by what has been drawn for the volatile keys.
pub(crate) fn sort(mut node: Sort) -> Result<Transformed<LogicalPlan>> {
    let mut drawn = Drawn::default();
    for one in &mut node.expr {
        drawn.replace(&mut one.expr, 0);
    }
    if drawn.keys.is_empty() {
        return Ok(Transformed::no(LogicalPlan::Sort(node)));
    }
    let outputs = columns_of(&node.input);
    node.input = drawn.beside(&node.input)?;
    only(outputs, LogicalPlan::Sort(node))
}

fn window(mut node: Window) -> Result<Transformed<LogicalPlan>> {
    let mut drawn = Drawn::default();
    let mut exprs = Vec::with_capacity(node.window_expr.len());
    for expr in std::mem::take(&mut node.window_expr) {
        exprs.push(renamed(expr, |part| {
            if let Expr::WindowFunction(call) = part {
                let params = &mut call.params;
                let partitions = params.partition_by.iter_mut();
                let orders = params.order_by.iter_mut().map(|one| &mut one.expr);
                // Windows of one node that look alike are one.
                let keys = partitions.chain(orders);
                keys.for_each(|key| drawn.replace(key, 0));
            }
        })?);
    }
    if drawn.keys.is_empty() {
        node.window_expr = exprs;
        return Ok(Transformed::no(LogicalPlan::Window(node)));
    }
    let outputs = node.schema.columns().into_iter().map(Expr::Column);
    let outputs = outputs.collect();
    let input = drawn.beside(&node.input)?;
    only(outputs, LogicalPlan::Window(Window::try_new(exprs, input)?))
}

fn aggregate(mut node: Aggregate) -> Result<Transformed<LogicalPlan>> {
    let mut drawn = Drawn::default();
    let mut exprs = Vec::with_capacity(node.aggr_expr.len());
    for expr in std::mem::take(&mut node.aggr_expr) {
        exprs.push(renamed(expr, |part| {
            if let Expr::AggregateFunction(call) = part {
                draw_call(call, &mut drawn);
            }
        })?);
    }
    if drawn.keys.is_empty() {
        node.aggr_expr = exprs;
        return Ok(Transformed::no(LogicalPlan::Aggregate(node)));
    }
    let input = drawn.beside(&node.input)?;
    let node = Aggregate::try_new(input, node.group_expr, exprs)?;
    Ok(Transformed::yes(LogicalPlan::Aggregate(node)))
}

/// The keys of a call are its own: two calls draw twice.
fn draw_call(call: &mut AggregateFunction, drawn: &mut Drawn) {
    let (params, others) = (&mut call.params, drawn.keys.len());
    for argument in &mut params.args {
        let mut keys = params.order_by.iter();
        if params.distinct || keys.any(|key| key.expr == *argument) {
            drawn.replace(argument, others);
        }
    }
    for key in &mut params.order_by {
        drawn.replace(&mut key.expr, others);
    }
}

/// What a call becomes, under the name that others know it by.
fn renamed(expr: Expr, mut change: impl FnMut(&mut Expr)) -> Result<Expr> {
    let (relation, name) = expr.qualified_name();
    let changed = expr.transform_down(|mut part| {
        let is_call = matches!(part, Expr::WindowFunction(_) | Expr::AggregateFunction(_));
        if !is_call {
            return Ok(Transformed::no(part));
        }
        change(&mut part);
        Ok(Transformed::new(part, true, TreeNodeRecursion::Jump))
    })?;
    let changed = changed.data;
    Ok(
        match changed.qualified_name() == (relation.clone(), name.clone()) {
            true => changed,
            false => changed.alias_qualified(relation, name),
        },
    )
}

/// Only these columns of a plan.
fn only(outputs: Vec<Expr>, plan: LogicalPlan) -> Result<Transformed<LogicalPlan>> {
    let named = Projection::try_new(outputs, Arc::new(plan))?;
    Ok(Transformed::yes(LogicalPlan::Projection(named)))
}
