//! Aggregates that DataFusion cannot tell apart by their names.
//!
//! It names an aggregate without the casts in it, and `count(*)` as `count(1)`, and refuses two
//! of one name. So `count(1)` is read as `count(*)`, which is the same, and of `max(a)` and
//! `max(a::int)` the second becomes `max(a::int) FILTER (WHERE true)`.

use std::{collections::HashMap, ops::ControlFlow};

use aerostat_semantics::walk;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArguments, OrderBy,
    Query, Select, Value, VisitorMut,
};

use super::clauses::is_aggregate;
use crate::ddl::names::folded;

/// Tells the aggregates of a SELECT, and of the ORDER BY of its query, apart.
pub(super) fn tell_apart(select: &mut Select, order_by: &mut Option<OrderBy>) {
    let mut twins = Twins::default();
    // They never break.
    let _ = walk::change(&mut select.projection, &mut twins);
    let _ = walk::change(&mut select.having, &mut twins);
    let _ = walk::change(order_by, &mut twins);
}

#[derive(Default)]
struct Twins {
    /// By the name that DataFusion gives them, the aggregates as they are written.
    named: HashMap<String, Vec<String>>,
    subqueries: usize,
}

impl VisitorMut for Twins {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.subqueries += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.subqueries -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
        if let Expr::Function(function) = expression
            && self.subqueries == 0
            && is_aggregate(function)
        {
            count_rows(function);
            let written = function.to_string();
            let name = without_casts(function);
            let known = self.named.entry(name).or_default();
            let at = known.iter().position(|other| *other == written);
            let at = at.unwrap_or_else(|| {
                known.push(written);
                known.len() - 1
            });
            (0..at).for_each(|_| filter_by_nothing(function));
        }
        ControlFlow::Continue(())
    }
}

/// `count(1)` as `count(*)`.
fn count_rows(function: &mut Function) {
    let is_count = function.name.0.last().and_then(|part| part.as_ident());
    if is_count.map(folded).as_deref() != Some("count") {
        return;
    }
    if let FunctionArguments::List(list) = &mut function.args
        && list.duplicate_treatment.is_none()
        && let [FunctionArg::Unnamed(argument)] = &mut list.args[..]
        && let FunctionArgExpr::Expr(Expr::Value(value)) = argument
        && matches!(
            value.value,
            Value::Number(..) | Value::Boolean(_) | Value::SingleQuotedString(_)
        )
    {
        *argument = FunctionArgExpr::Wildcard;
    }
}

fn without_casts(function: &Function) -> String {
    struct Bare;
    impl VisitorMut for Bare {
        type Break = ();

        fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<()> {
            while let Expr::Cast { expr, .. } | Expr::Nested(expr) = expression {
                *expression = (**expr).clone();
            }
            ControlFlow::Continue(())
        }
    }
    let mut bare = Expr::Function(function.clone());
    // It never breaks.
    let _ = walk::change(&mut bare, &mut Bare);
    bare.to_string().to_lowercase()
}

fn filter_by_nothing(function: &mut Function) {
    let always = Expr::value(Value::Boolean(true));
    function.filter = Some(Box::new(match function.filter.take() {
        None => always,
        Some(filter) => Expr::BinaryOp {
            left: Box::new(Expr::Nested(filter)),
            op: BinaryOperator::And,
            right: Box::new(always),
        },
    }));
}
