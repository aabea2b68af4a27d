//! Bindings: the outer references of a plan, and which subqueries DataFusion's own rules take.

use arrow::datatypes::FieldRef;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result, ScalarValue};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::utils::{split_conjunction, split_conjunction_owned};
use datafusion::logical_expr::{
    Aggregate, BinaryExpr, Cast, Expr, JoinType, LogicalPlan, Operator, Projection, Subquery,
};

/// A column of an enclosing query, with the type the planner saw.
pub(super) type Reference = (FieldRef, Column);

/// The subquery of an expression that is one.
pub(super) fn subquery_of(expr: &Expr) -> Option<&Subquery> {
    match expr {
        Expr::ScalarSubquery(subquery)
        | Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. })
        | Expr::SetComparison(SetComparison { subquery, .. }) => Some(subquery),
        _ => None,
    }
}

pub(super) fn contains_subquery(expr: &Expr) -> Result<bool> {
    expr.exists(|node| Ok(subquery_of(node).is_some()))
}

/// The outer references in a plan, its subqueries included, that nothing within it binds.
pub(super) fn free_references(plan: &LogicalPlan) -> Result<Vec<Reference>> {
    let mut found = Vec::new();
    collect(plan, &mut found)?;
    Ok(found)
}

/// The outer references of an expression of a node over `inputs` that the node does not bind.
fn free_in_expression(
    expr: &Expr,
    inputs: &[&LogicalPlan],
    found: &mut Vec<Reference>,
) -> Result<()> {
    expr.apply(|node| {
        if let Expr::OuterReferenceColumn(field, column) = node {
            add(found, (FieldRef::clone(field), column.clone()));
        }
        if let Some(subquery) = subquery_of(node) {
            for reference in free_references(&subquery.subquery)? {
                if !binds(inputs, &reference.1) {
                    add(found, reference);
                }
            }
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(())
}

fn collect(plan: &LogicalPlan, found: &mut Vec<Reference>) -> Result<()> {
    let inputs = plan.inputs();
    plan.apply_expressions(|expr| {
        free_in_expression(expr, &inputs, found)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    if let LogicalPlan::Join(join) = plan
        && lateral(&join.right).is_some()
    {
        collect(&join.left, found)?;
        for reference in free_references(&join.right)? {
            if !join.left.schema().has_column(&reference.1) {
                add(found, reference);
            }
        }
        return Ok(());
    }
    for input in inputs {
        collect(input, found)?;
    }
    Ok(())
}

fn add(found: &mut Vec<Reference>, reference: Reference) {
    if !found.iter().any(|(_, column)| *column == reference.1) {
        found.push(reference);
    }
}

fn binds(inputs: &[&LogicalPlan], column: &Column) -> bool {
    inputs.iter().any(|input| input.schema().has_column(column))
}

/// The subquery of a LATERAL item, which is the right side of a join.
pub(super) fn lateral(plan: &LogicalPlan) -> Option<&Subquery> {
    match plan {
        LogicalPlan::Subquery(subquery) => Some(subquery),
        LogicalPlan::SubqueryAlias(alias) => lateral(&alias.input),
        _ => None,
    }
}

/// Whether a column that the plan does not give is one that a grouping below hid.
pub(super) fn is_ungrouped(plan: &LogicalPlan, column: &Column) -> bool {
    match plan {
        LogicalPlan::Aggregate(aggregate) => aggregate.input.schema().has_column(column),
        LogicalPlan::Filter(filter) => is_ungrouped(&filter.input, column),
        LogicalPlan::Projection(projection) => is_ungrouped(&projection.input, column),
        LogicalPlan::Window(window) => is_ungrouped(&window.input, column),
        LogicalPlan::Sort(sort) => is_ungrouped(&sort.input, column),
        _ => false,
    }
}

/// Whether a subquery gives at most one row whatever the data.
pub(super) fn at_most_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(node) => at_most_one_row(&node.input),
        LogicalPlan::Filter(node) => at_most_one_row(&node.input),
        LogicalPlan::SubqueryAlias(node) => at_most_one_row(&node.input),
        LogicalPlan::Sort(node) => at_most_one_row(&node.input),
        LogicalPlan::Aggregate(node) => node.group_expr.is_empty(),
        LogicalPlan::Limit(node) => {
            node.fetch
                .as_deref()
                .and_then(literal_count)
                .is_some_and(|count| count <= 1)
                || at_most_one_row(&node.input)
        }
        LogicalPlan::EmptyRelation(_) => true,
        LogicalPlan::Values(values) => values.values.len() <= 1,
        _ => false,
    }
}

/// Whether a subquery gives a row whatever the data: an aggregation without groups.
pub(super) fn always_one_row(plan: &LogicalPlan) -> bool {
    match plan {
        LogicalPlan::Projection(node) => always_one_row(&node.input),
        LogicalPlan::SubqueryAlias(node) => always_one_row(&node.input),
        LogicalPlan::Aggregate(node) => node.group_expr.is_empty(),
        LogicalPlan::EmptyRelation(node) => node.produce_one_row,
        _ => false,
    }
}

/// Whether a plan has scalar subqueries that refer to its rows.
pub(super) fn has_scalar_subqueries(plan: &LogicalPlan) -> Result<bool> {
    let refers = |expr: &Expr| match expr {
        Expr::ScalarSubquery(subquery) => Ok(!free_references(&subquery.subquery)?.is_empty()),
        _ => Ok(false),
    };
    let mut found = false;
    plan.apply(|node| {
        node.apply_expressions(|expr| {
            found |= expr.exists(|part| refers(part))?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// Whether any expression of a plan is volatile.
pub(super) fn is_volatile(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expr| {
            found |= expr.is_volatile();
            Ok(TreeNodeRecursion::Continue)
        })?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// Whether DataFusion's rules for IN, EXISTS and LATERAL take the correlation:
/// it stands in filters that only projections and inner joins cover.
pub(super) fn is_plain(plan: &LogicalPlan) -> Result<bool> {
    pullable(plan, &|_| true)
}

/// Whether DataFusion's rule for scalar subqueries takes this one: a bare
/// aggregation over rows that equalities with outer columns choose.
pub(super) fn is_plain_aggregation(plan: &LogicalPlan) -> Result<bool> {
    match plan {
        LogicalPlan::Projection(node) => Ok(!refers_out(plan)?
            && !gives_names_of(node, &compared(&node.input))
            && !any_subquery(&node.expr)?
            && is_plain_aggregation(&node.input)?),
        LogicalPlan::SubqueryAlias(node) => is_plain_aggregation(&node.input),
        LogicalPlan::Aggregate(Aggregate {
            input, group_expr, ..
        }) => Ok(group_expr.is_empty() && !refers_out(plan)? && pullable(input, &is_lookup)?),
        _ => Ok(false),
    }
}

fn any_subquery(exprs: &[Expr]) -> Result<bool> {
    for expr in exprs {
        if contains_subquery(expr)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn pullable(plan: &LogicalPlan, takes: &dyn Fn(&Expr) -> bool) -> Result<bool> {
    if free_references(plan)?.is_empty() {
        return Ok(true);
    }
    match plan {
        LogicalPlan::Filter(node) => {
            for conjunct in split_conjunction(&node.predicate) {
                let hidden = contains_subquery(conjunct)? && {
                    let mut free = Vec::new();
                    free_in_expression(conjunct, &[&node.input], &mut free)?;
                    !free.is_empty()
                };
                if hidden || (conjunct.contains_outer() && !takes(conjunct)) {
                    return Ok(false);
                }
            }
            pullable(&node.input, takes)
        }
        LogicalPlan::Projection(node) => Ok(!refers_out(plan)?
            && !gives_names_of(node, &compared(&node.input))
            && pullable(&node.input, takes)?),
        // DataFusion loses the names of what it pulls through an alias.
        LogicalPlan::Join(node) => Ok(node.join_type == JoinType::Inner
            && lateral(&node.right).is_none()
            && !refers_out(plan)?
            && pullable(&node.left, takes)?
            && pullable(&node.right, takes)?),
        _ => Ok(false),
    }
}

/// The plan's own columns that its filters compare with the outer row. DataFusion hands them up through
/// projections to the join.
fn compared(plan: &LogicalPlan) -> Vec<Column> {
    let mut columns: Vec<Column> = plan.inputs().into_iter().flat_map(compared).collect();
    if let LogicalPlan::Filter(node) = plan {
        let outer = split_conjunction(&node.predicate).into_iter();
        let outer = outer.filter(|conjunct| conjunct.contains_outer());
        columns.extend(outer.flat_map(|conjunct| conjunct.column_refs().into_iter().cloned()));
    }
    columns
}

/// Whether a projection gives something else under the name of one of these columns, so that nobody
/// above could tell them apart.
fn gives_names_of(node: &Projection, columns: &[Column]) -> bool {
    node.schema.iter().any(|(qualifier, field)| {
        let mut named = columns.iter().filter(|column| column.name == *field.name());
        named.any(|column| column.relation.is_some() != qualifier.is_some())
    })
}

/// Whether the node's own expressions have free references.
fn refers_out(plan: &LogicalPlan) -> Result<bool> {
    let inputs = plan.inputs();
    let mut found = Vec::new();
    plan.apply_expressions(|expr| {
        free_in_expression(expr, &inputs, &mut found)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(!found.is_empty())
}

/// `column = something of the outer row alone`.
fn is_lookup(conjunct: &Expr) -> bool {
    let Expr::BinaryExpr(BinaryExpr {
        left,
        op: Operator::Eq,
        right,
    }) = conjunct
    else {
        return false;
    };
    let column = |expr: &Expr| match expr {
        Expr::Column(_) => true,
        Expr::Cast(Cast { expr, .. }) => matches!(&**expr, Expr::Column(_)),
        _ => false,
    };
    (column(left) && !right.any_column_refs()) || (column(right) && !left.any_column_refs())
}

/// The conjuncts of a predicate that satisfy a test, and the others.
pub(super) fn partition_conjuncts(
    predicate: Expr,
    mut test: impl FnMut(&Expr) -> Result<bool>,
) -> Result<(Vec<Expr>, Vec<Expr>)> {
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for conjunct in split_conjunction_owned(predicate) {
        if test(&conjunct)? {
            with.push(conjunct);
        } else {
            without.push(conjunct);
        }
    }
    Ok((with, without))
}

/// The number that a constant bound is.
pub(super) fn literal_count(expr: &Expr) -> Option<u64> {
    match expr {
        Expr::Cast(cast) => literal_count(&cast.expr),
        Expr::Literal(value, _) => match value {
            ScalarValue::Int16(Some(count)) => u64::try_from(*count).ok(),
            ScalarValue::Int32(Some(count)) => u64::try_from(*count).ok(),
            ScalarValue::Int64(Some(count)) => u64::try_from(*count).ok(),
            ScalarValue::UInt64(Some(count)) => Some(*count),
            _ => None,
        },
        _ => None,
    }
}
