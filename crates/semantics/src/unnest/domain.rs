//! The domain D of a dependent join: the distinct values that the outer rows give a subquery's
//! references.

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::{
    Aggregate, Cast, Distinct, Expr, LogicalPlan, LogicalPlanBuilder, Projection,
};

use super::scope::Reference;
use super::unsupported_with_hint;

/// The name of the column that counts the rows an EXISTS looks for.
pub(super) const EXISTENCE: &str = "\u{1}exists";

/// The name of the column that holds the only row's value.
pub(super) const VALUE: &str = "\u{1}value";

/// Aggregations whose result does not depend on the order of the rows.
const ORDERLESS: [&str; 9] = [
    "count", "min", "max", "bool_and", "bool_or", "every", "bit_and", "bit_or", "bit_xor",
];

/// What of the outer rows a subquery refers to.
pub(super) struct Domain {
    /// The references, as the subquery names them.
    columns: Vec<Column>,
    /// The same over the outer rows.
    outer: Vec<Expr>,
    /// The same over `source`.
    keys: Vec<Expr>,
    /// As little of the outer rows' plan as gives the same values.
    source: LogicalPlan,
    /// Whether a key may be NULL.
    nullable: bool,
}

impl Domain {
    /// The domain of `references` over the rows of `outer`.
    pub(super) fn new(outer: &LogicalPlan, references: Vec<Reference>) -> Result<Domain> {
        let mut columns = Vec::with_capacity(references.len());
        let mut exprs = Vec::with_capacity(references.len());
        let mut nullable = false;
        for (seen, column) in references {
            let (qualifier, field) = outer.schema().qualified_field_from_column(&column)?;
            let mut expr = Expr::Column(Column::from((qualifier, field)));
            // The subquery was typed by what the planner saw.
            if field.data_type() != seen.data_type() {
                expr = Expr::Cast(Cast::new(Box::new(expr), seen.data_type().clone()));
            }
            nullable |= field.is_nullable();
            columns.push(column);
            exprs.push(expr);
        }
        let (source, keys) = prune(outer.clone(), exprs.clone())?;
        assert_eq!(keys.len(), columns.len(), "each reference has its key");
        let domain = Domain {
            columns,
            outer: exprs,
            keys,
            source,
            nullable,
        };
        if !domain.columns.is_empty() && !is_repeatable(&domain.source)? {
            return Err(unsupported_with_hint(
                "a correlated subquery over rows that LIMIT, window functions, volatile functions or sums of floats choose",
                "Store those rows in a table first.",
            ));
        }
        Ok(domain)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// The values of the references in an outer row.
    pub(super) fn outer(&self) -> &[Expr] {
        &self.outer
    }

    pub(super) fn is_nullable(&self) -> bool {
        self.nullable
    }

    /// The position of a column among the references.
    pub(super) fn position(&self, column: &Column) -> Option<usize> {
        self.columns.iter().position(|known| known == column)
    }

    /// The distinct values, each reference a column under `qualifier`.
    pub(super) fn instance(&self, qualifier: &str) -> Result<(LogicalPlan, Vec<Column>)> {
        let columns: Vec<Column> = (0..self.keys.len())
            .map(|at| Column::new(Some(qualifier), format!("k{at}")))
            .collect();
        let named = self
            .keys
            .iter()
            .zip(&columns)
            .map(|(key, column)| key.clone().alias_qualified(Some(qualifier), &column.name));
        let plan = LogicalPlanBuilder::from(self.source.clone())
            .project(named)?
            .distinct()?
            .build()?;
        Ok((plan, columns))
    }
}

/// Descends to the least plan that gives the same set of values.
fn prune(mut plan: LogicalPlan, mut keys: Vec<Expr>) -> Result<(LogicalPlan, Vec<Expr>)> {
    loop {
        let (below, expressions): (_, Vec<Expr>) = match &plan {
            LogicalPlan::Projection(Projection { input, expr, .. }) => (
                input,
                expr.iter().map(|expr| expr.clone().unalias()).collect(),
            ),
            LogicalPlan::SubqueryAlias(alias) => (
                &alias.input,
                alias.input.schema().iter().map(Expr::from).collect(),
            ),
            LogicalPlan::Sort(sort) if sort.fetch.is_none() => (
                &sort.input,
                sort.input.schema().iter().map(Expr::from).collect(),
            ),
            LogicalPlan::Window(window) => {
                let mut below: Vec<Expr> = window.input.schema().iter().map(Expr::from).collect();
                below.extend(window.window_expr.iter().cloned());
                (&window.input, below)
            }
            LogicalPlan::Aggregate(Aggregate {
                input,
                group_expr,
                aggr_expr,
                ..
            }) if !group_expr.is_empty()
                && !matches!(group_expr.as_slice(), [Expr::GroupingSet(_)]) =>
            {
                let groups = group_expr.iter().map(|expr| expr.clone().unalias());
                (input, groups.chain(aggr_expr.iter().cloned()).collect())
            }
            _ => return Ok((plan, keys)),
        };
        let lowered = keys
            .iter()
            .map(|key| substitute(key.clone(), &plan, &expressions))
            .collect::<Result<Vec<_>>>()?;
        if !lowered.iter().all(is_row_expression) {
            return Ok((plan, keys));
        }
        keys = lowered;
        plan = LogicalPlan::clone(below);
    }
}

/// The expression with the columns of `plan` written as `expressions`, one per column.
pub(super) fn substitute(expr: Expr, plan: &LogicalPlan, expressions: &[Expr]) -> Result<Expr> {
    assert_eq!(
        expressions.len(),
        plan.schema().fields().len(),
        "each column has its expression"
    );
    expr.transform(|node| {
        if let Expr::Column(column) = &node
            && let Some(at) = plan.schema().maybe_index_of_column(column)
        {
            return Ok(Transformed::yes(expressions[at].clone()));
        }
        Ok(Transformed::no(node))
    })
    .map(|rewritten| rewritten.data)
}

/// Whether an expression needs nothing but one row.
fn is_row_expression(expr: &Expr) -> bool {
    !expr.is_volatile()
        && expr
            .exists(|node| {
                Ok(matches!(
                    node,
                    Expr::AggregateFunction(_) | Expr::WindowFunction(_) | Expr::Unnest(_)
                ) || super::scope::subquery_of(node).is_some())
            })
            .is_ok_and(|found| !found)
}

/// Whether a plan gives the same rows when it runs again.
fn is_repeatable(plan: &LogicalPlan) -> Result<bool> {
    let mut plan = plan;
    let own = match plan {
        LogicalPlan::Limit(_)
        | LogicalPlan::Distinct(Distinct::On(_))
        | LogicalPlan::Window(_)
        | LogicalPlan::Extension(_) => false,
        LogicalPlan::Sort(sort) => sort.fetch.is_none(),
        LogicalPlan::TableScan(scan) => scan.fetch.is_none(),
        LogicalPlan::Aggregate(aggregate) => {
            if let LogicalPlan::Limit(limit) = &*aggregate.input
                && aggregate.schema.has_column_with_unqualified_name(EXISTENCE)
            {
                // Which row is found does not matter.
                plan = &limit.input;
            }
            is_orderless(aggregate)
        }
        _ => true,
    };
    if !own {
        return Ok(false);
    }
    let mut repeatable = true;
    plan.apply_expressions(|expr| {
        repeatable &= !expr.is_volatile();
        expr.apply(|node| {
            if let Some(subquery) = super::scope::subquery_of(node) {
                repeatable &= is_repeatable(&subquery.subquery)?;
            }
            Ok(super::stop_if(!repeatable))
        })?;
        Ok(super::stop_if(!repeatable))
    })?;
    for input in plan.inputs() {
        repeatable = repeatable && is_repeatable(input)?;
    }
    Ok(repeatable)
}

fn is_orderless(aggregate: &Aggregate) -> bool {
    let groups = aggregate.schema.fields().len() - aggregate.aggr_expr.len();
    aggregate.aggr_expr.iter().enumerate().all(|(at, expr)| {
        let field = aggregate.schema.field(groups + at);
        let Expr::AggregateFunction(call) = expr.clone().unalias_nested().data else {
            return false;
        };
        field.name() == VALUE
            || ORDERLESS.contains(&call.func.name())
            || (["sum", "avg"].contains(&call.func.name()) && !field.data_type().is_floating())
    })
}
