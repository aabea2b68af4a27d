//! Volatile functions of a SELECT list with ORDER BY.
//!
//! PostgreSQL computes them after the rows are sorted: `SELECT nextval('s') … ORDER BY a` counts
//! in the order of `a`, and with LIMIT takes no more numbers than it returns rows.
//!
//! ```text
//!  Sort a                               Projection a, nextval('s')
//!    Projection a, nextval('s')   ──▶     Sort a
//!                                           Projection a
//! ```
//!
//! Sort keys are of course computed before, and so is what DISTINCT compares. A volatile key that
//! is no output is computed below its sort (see [`drawn`]), which would otherwise compute it each
//! time that it looks at a row, or take it for constant.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::{Expr, LogicalPlan, Projection, Sort};

use crate::drawn;

/// Brings volatile outputs above the sorts right over them, and volatile keys below.
pub(super) fn compute_volatile(plan: LogicalPlan) -> Result<LogicalPlan> {
    let rewritten = plan.transform_up_with_subqueries(|node| match node {
        LogicalPlan::Sort(sort) => computed_apart(sort),
        other => Ok(Transformed::no(other)),
    })?;
    Ok(rewritten.data)
}

fn computed_apart(sort: Sort) -> Result<Transformed<LogicalPlan>> {
    match above(&sort)? {
        Some((outputs, sorted)) => {
            let sorted = Arc::new(drawn::sort(sorted)?.data);
            let projection = Projection::try_new(outputs, sorted)?;
            Ok(Transformed::yes(LogicalPlan::Projection(projection)))
        }
        None => drawn::sort(sort),
    }
}

/// What is computed above a sort, and the sort without it.
fn above(sort: &Sort) -> Result<Option<(Vec<Expr>, Sort)>> {
    let LogicalPlan::Projection(projection) = &*sort.input else {
        return Ok(None);
    };
    let keys: HashSet<&Column> = sort
        .expr
        .iter()
        .flat_map(|key| key.expr.column_refs())
        .collect();
    let schema = &projection.schema;
    let outputs: Vec<Column> = schema.iter().map(Column::from).collect();
    let waits = |at: usize| projection.expr[at].is_volatile() && !keys.contains(&outputs[at]);
    let late: Vec<usize> = (0..outputs.len()).filter(|at| waits(*at)).collect();
    if late.is_empty() {
        return Ok(None);
    }
    let early = (0..outputs.len()).filter(|at| !late.contains(at));
    let mut below: Vec<Expr> = early.map(|at| projection.expr[at].clone()).collect();
    let mut carried: Vec<(Column, String)> = Vec::new();
    for at in &late {
        for column in projection.expr[*at].column_refs() {
            if !carried.iter().any(|(known, _)| known == column) {
                let name = format!("\u{1}late{}", carried.len());
                below.push(Expr::Column(column.clone()).alias(&name));
                carried.push((column.clone(), name));
            }
        }
    }
    let renamed = |expr: Expr| {
        let of = |column: &Column| carried.iter().find(|(known, _)| known == column);
        Ok(match &expr {
            Expr::Column(column) => match of(column) {
                Some((_, name)) => Transformed::yes(Expr::Column(Column::new_unqualified(name))),
                None => Transformed::no(expr),
            },
            _ => Transformed::no(expr),
        })
    };
    let all = outputs.into_iter().enumerate().map(|(at, output)| {
        if !late.contains(&at) {
            return Ok(Expr::Column(output));
        }
        let late = projection.expr[at]
            .clone()
            .transform_up(renamed)?
            .data
            .unalias();
        Ok(late.alias_qualified(output.relation, output.name))
    });
    let all = all.collect::<Result<Vec<Expr>>>()?;
    let sorted = Sort {
        expr: sort.expr.clone(),
        input: Arc::new(LogicalPlan::Projection(Projection::try_new(
            below,
            Arc::clone(&projection.input),
        )?)),
        fetch: sort.fetch,
    };
    Ok(Some((all, sorted)))
}
