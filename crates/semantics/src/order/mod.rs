//! The order of rows that a subquery, WITH query or view asks for.
//!
//! DataFusion treats rows as a set unless an operator requires an order, and reads them in
//! several partitions. PostgreSQL reads a subquery from its first row to its last, so its ORDER
//! BY decides what LIMIT takes and how `array_agg` and `string_agg` arrange their values. Here
//! the order is passed to whatever depends on it:
//!
//! ```text
//!  Limit 2                              Limit 2
//!    Projection a                         Projection a
//!      Alias q                  ──▶         Sort q.k
//!        Projection a                         Alias q
//!          Sort t.k                             Projection a, t.k AS k
//!
//!  Aggregate array_agg(q.a)             Aggregate array_agg(q.a ORDER BY q.k)
//!    Alias q                    ──▶       Alias q
//!      Sort t.k                             …
//! ```
//!
//! A `Sort` is *lifted* out of its place ([`lift`]): the rows below come in any order, with all
//! columns that the order needs, and whatever reads them becomes responsible for the order. The
//! sort is put down again below a LIMIT and at the top, handed to aggregates and window functions
//! that depend on it, and forgotten where it makes no difference: below `count`, GROUP BY,
//! DISTINCT, UNION and IN.
//!
//! An order passes through projections, filters and the left sides of joins.
//!
//! [`after_sort`] is the other half: the results of volatile functions in a SELECT list follow
//! the order, so they are computed above the `Sort`.

mod after_sort;
mod lift;

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::{
    Distinct, Expr, LogicalPlan, Projection, Sort, SortExpr, SubqueryAlias,
};
use datafusion::optimizer::AnalyzerRule;

/// Tells the order of subqueries to who depends on it.
#[derive(Debug)]
pub(super) struct FollowOrder;

impl AnalyzerRule for FollowOrder {
    fn name(&self) -> &str {
        "follow_order"
    }

    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let seen = Seen::of(&plan)?;
        if seen.sorts == 0 {
            return Ok(plan);
        }
        let plan = after_sort::compute_volatile(plan)?;
        Follower {
            hidden: 0,
            has_subqueries: seen.has_subqueries,
        }
        .settle(plan)
    }
}

/// What a plan has, as far as it concerns this module.
#[derive(Default)]
struct Seen {
    sorts: usize,
    has_subqueries: bool,
}

impl Seen {
    fn of(plan: &LogicalPlan) -> Result<Seen> {
        let mut seen = Seen::default();
        plan.apply_with_subqueries(|node| {
            let is_sorted = match node {
                LogicalPlan::Sort(_) => true,
                LogicalPlan::Distinct(Distinct::On(node)) => node.sort_expr.is_some(),
                _ => false,
            };
            seen.sorts += usize::from(is_sorted);
            Ok(TreeNodeRecursion::Continue)
        })?;
        if seen.sorts > 0 {
            plan.apply(|node| {
                node.apply_subqueries(|_| {
                    seen.has_subqueries = true;
                    Ok(TreeNodeRecursion::Stop)
                })
            })?;
        }
        Ok(seen)
    }
}

/// Rows in any order, and the order that they should be in.
struct Lifted {
    /// The original columns, and others that only the order needs.
    plan: LogicalPlan,
    /// Over the plan's columns; empty where there is none.
    order: Vec<SortExpr>,
}

impl Lifted {
    fn unordered(plan: LogicalPlan) -> Lifted {
        Lifted {
            plan,
            order: Vec::new(),
        }
    }

    /// The rows in their order, with all columns.
    fn sorted(self) -> LogicalPlan {
        if self.order.is_empty() {
            return self.plan;
        }
        LogicalPlan::Sort(Sort {
            expr: self.order,
            input: Arc::new(self.plan),
            fetch: None,
        })
    }
}

/// The walk over one plan.
struct Follower {
    /// How many columns have been added, which makes their names different.
    hidden: usize,
    has_subqueries: bool,
}

impl Follower {
    /// The plan with its rows in their order. A `Sort` that is where it is needed stays there.
    fn settle(&mut self, plan: LogicalPlan) -> Result<LogicalPlan> {
        match self.with_subqueries(plan)? {
            LogicalPlan::Projection(mut node) => {
                node.input = self.settle_input(node.input)?;
                Ok(LogicalPlan::Projection(node))
            }
            LogicalPlan::SubqueryAlias(node) => {
                let input = self.settle_input(node.input)?;
                SubqueryAlias::try_new(input, node.alias).map(LogicalPlan::SubqueryAlias)
            }
            LogicalPlan::Limit(mut node) => {
                node.input = self.settle_input(node.input)?;
                Ok(LogicalPlan::Limit(node))
            }
            // It sorts its rows itself.
            node @ LogicalPlan::Distinct(Distinct::On(_)) => {
                let schema = Arc::clone(node.schema());
                let lifted = self.lift_node(node)?;
                narrow(lifted.plan, &schema)
            }
            other => {
                let schema = Arc::clone(other.schema());
                let lifted = self.lift_node(other)?;
                narrow(lifted.sorted(), &schema)
            }
        }
    }

    fn settle_input(&mut self, input: Arc<LogicalPlan>) -> Result<Arc<LogicalPlan>> {
        self.settle(Arc::unwrap_or_clone(input)).map(Arc::new)
    }

    /// The plan with its rows in any order.
    fn scatter(&mut self, plan: LogicalPlan) -> Result<LogicalPlan> {
        match plan {
            LogicalPlan::Sort(node) if node.fetch.is_none() => {
                self.scatter(Arc::unwrap_or_clone(node.input))
            }
            LogicalPlan::Limit(_) => self.settle(plan),
            other => {
                let schema = Arc::clone(other.schema());
                let lifted = self.lift(other)?;
                narrow(lifted.plan, &schema)
            }
        }
    }

    /// The node with the plans in its expressions followed, too.
    fn with_subqueries(&mut self, plan: LogicalPlan) -> Result<LogicalPlan> {
        if !self.has_subqueries {
            return Ok(plan);
        }
        let rewritten = plan.map_expressions(|expr| {
            expr.transform_up(|expr| {
                Ok(match expr {
                    Expr::ScalarSubquery(mut subquery) => {
                        subquery.subquery = self.settle_input(subquery.subquery)?;
                        Transformed::yes(Expr::ScalarSubquery(subquery))
                    }
                    Expr::Exists(mut exists) => {
                        let plan = Arc::unwrap_or_clone(exists.subquery.subquery);
                        exists.subquery.subquery = Arc::new(self.scatter(plan)?);
                        Transformed::yes(Expr::Exists(exists))
                    }
                    Expr::InSubquery(mut member) => {
                        let plan = Arc::unwrap_or_clone(member.subquery.subquery);
                        member.subquery.subquery = Arc::new(self.scatter(plan)?);
                        Transformed::yes(Expr::InSubquery(member))
                    }
                    Expr::SetComparison(mut comparison) => {
                        let plan = Arc::unwrap_or_clone(comparison.subquery.subquery);
                        comparison.subquery.subquery = Arc::new(self.scatter(plan)?);
                        Transformed::yes(Expr::SetComparison(comparison))
                    }
                    other => Transformed::no(other),
                })
            })
        })?;
        Ok(rewritten.data)
    }

    fn hidden_name(&mut self) -> String {
        self.hidden += 1;
        format!("\u{1}order{}", self.hidden)
    }
}

/// The plan with these columns alone.
fn narrow(plan: LogicalPlan, schema: &DFSchema) -> Result<LogicalPlan> {
    assert!(
        plan.schema().fields().len() >= schema.fields().len(),
        "rows whose order is lifted have all of their own columns"
    );
    if plan.schema().fields().len() == schema.fields().len() {
        return Ok(plan);
    }
    let columns = schema.iter().map(Expr::from).collect();
    Projection::try_new(columns, Arc::new(plan)).map(LogicalPlan::Projection)
}
