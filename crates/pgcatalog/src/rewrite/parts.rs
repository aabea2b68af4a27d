//! The parts of a SELECT: its expressions, and whether it aggregates.

use std::ops::ControlFlow;

use aerostat_sql::walk;
use datafusion::sql::sqlparser::ast::{
    Expr, Function, GroupByExpr, JoinConstraint, JoinOperator, Query, Select, SelectItem,
    TableWithJoins, Visitor,
};

use super::build::bare_name;

/// The aggregate functions that clients' catalogue queries use.
const AGGREGATES: [&str; 14] = [
    "count",
    "sum",
    "min",
    "max",
    "avg",
    "array_agg",
    "string_agg",
    "bool_and",
    "bool_or",
    "every",
    "json_agg",
    "jsonb_agg",
    "first_value",
    "last_value",
];

/// Whether the SELECT aggregates.
pub(super) fn aggregates(select: &Select) -> bool {
    let grouped = match &select.group_by {
        GroupByExpr::All(_) => true,
        GroupByExpr::Expressions(keys, _) => !keys.is_empty(),
    };
    grouped
        || select.having.is_some()
        || select.projection.iter().any(|item| match item {
            SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. } => {
                is_aggregate(item)
            }
            _ => false,
        })
}

/// Whether an aggregate function is called outside subqueries.
pub(super) fn is_aggregate(expression: &Expr) -> bool {
    struct Outside {
        depth: usize,
    }
    impl Visitor for Outside {
        type Break = ();

        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.depth += 1;
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.depth -= 1;
            ControlFlow::Continue(())
        }

        fn pre_visit_expr(&mut self, expression: &Expr) -> ControlFlow<()> {
            match expression {
                Expr::Function(Function {
                    name, over: None, ..
                }) if self.depth == 0
                    && bare_name(name).is_some_and(|name| AGGREGATES.contains(&name.as_str())) =>
                {
                    ControlFlow::Break(())
                }
                _ => ControlFlow::Continue(()),
            }
        }
    }
    walk::look(expression, &mut Outside { depth: 0 }).is_break()
}

/// Calls `change` with every expression of the SELECT itself: projection, conditions, join conditions, keys.
pub(super) fn for_each_expression(select: &mut Select, change: &mut dyn FnMut(&mut Expr)) {
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(item) | SelectItem::ExprWithAlias { expr: item, .. } = item {
            change(item);
        }
    }
    for table in &mut select.from {
        join_conditions(table, change);
    }
    if let GroupByExpr::Expressions(keys, _) = &mut select.group_by {
        keys.iter_mut().for_each(&mut *change);
    }
    select
        .selection
        .iter_mut()
        .chain(&mut select.having)
        .for_each(change);
}

fn join_conditions(table: &mut TableWithJoins, change: &mut dyn FnMut(&mut Expr)) {
    for join in &mut table.joins {
        if let JoinOperator::Join(on)
        | JoinOperator::Inner(on)
        | JoinOperator::Left(on)
        | JoinOperator::LeftOuter(on)
        | JoinOperator::Right(on)
        | JoinOperator::RightOuter(on)
        | JoinOperator::FullOuter(on) = &mut join.join_operator
            && let JoinConstraint::On(condition) = on
        {
            change(condition);
        }
    }
}
