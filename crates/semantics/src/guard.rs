//! Conditions that protect the ones after them from failing.
//!
//! `b <> 0 AND a / b > 1` is no error in PostgreSQL, which evaluates the right side only where
//! the left is true. DataFusion evaluates both sides for every row, merges filters of several
//! queries in any order, and rewrites `CASE WHEN b <> 0 THEN a / b > 1 ELSE false END` to an AND.
//! So, after all other rules, this one moves the terms that can fail behind those that cannot,
//! and wraps each term that can fail in a CASE over the terms before it:
//!
//! ```text
//! a / b > 1 AND b <> 0   ─▶   b <> 0 AND CASE WHEN b <> 0 IS NOT FALSE THEN a / b END > 1
//! ```
//!
//! If an earlier term is false, the AND is false whatever the rest says, so the NULL of the CASE
//! changes no result. OR is the mirror image.

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, disjunction};
use datafusion::logical_expr::{BinaryExpr, Case, Expr, LogicalPlan, Operator};
use datafusion::optimizer::optimizer::ApplyOrder;
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

use crate::functions::{arithmetic, cast};

/// The rule.
#[derive(Debug)]
pub(super) struct GuardFallible;

impl OptimizerRule for GuardFallible {
    fn name(&self) -> &str {
        "guard_fallible"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::BottomUp)
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        // A scan evaluates only what it understands, none of which can fail.
        if matches!(plan, LogicalPlan::TableScan(_)) {
            return Ok(Transformed::no(plan));
        }
        let names = NamePreserver::new(&plan);
        plan.map_expressions(|expr| {
            if !has_exposed(&expr)? {
                return Ok(Transformed::no(expr));
            }
            let name = names.save(&expr);
            Ok(guard(expr)?.update_data(|expr| name.restore(expr)))
        })
    }
}

/// Whether a call can raise an error that a condition before it is likely to prevent.
fn can_fail(expr: &Expr) -> bool {
    let Expr::ScalarFunction(call) = expr else {
        return false;
    };
    if arithmetic::is_division(&call.func) {
        let constant = |arg: &Expr| matches!(arg, Expr::Literal(value, _) if !is_zero(value));
        return !call.args.get(1).is_some_and(constant);
    }
    cast::target_of(&call.func).is_some_and(|to| !to.is_text())
        || matches!(
            call.func.name(),
            "sqrt" | "ln" | "log" | "power" | "mod" | "div"
        )
}

fn is_zero(value: &ScalarValue) -> bool {
    ScalarValue::new_zero(&value.data_type()).is_ok_and(|zero| zero == *value)
}

/// Whether something that can fail stands outside every CASE.
fn has_exposed(expr: &Expr) -> Result<bool> {
    let mut found = false;
    expr.apply(|node| {
        if matches!(node, Expr::Case(_)) {
            return Ok(TreeNodeRecursion::Jump);
        }
        found = found || can_fail(node);
        Ok(if found {
            TreeNodeRecursion::Stop
        } else {
            TreeNodeRecursion::Continue
        })
    })?;
    Ok(found)
}

fn guard(expr: Expr) -> Result<Transformed<Expr>> {
    match expr {
        Expr::BinaryExpr(BinaryExpr {
            op: op @ (Operator::And | Operator::Or),
            ..
        }) => {
            let mut terms = Vec::new();
            flatten(expr, op, &mut terms);
            ordered(terms, op)
        }
        // The branches of a CASE are evaluated only where they are taken.
        Expr::Case(_) => Ok(Transformed::no(expr)),
        other => other.map_children(guard),
    }
}

fn flatten(expr: Expr, op: Operator, terms: &mut Vec<Expr>) {
    match expr {
        Expr::BinaryExpr(BinaryExpr {
            left,
            op: inner,
            right,
        }) if inner == op => {
            flatten(*left, op, terms);
            flatten(*right, op, terms);
        }
        other => terms.push(other),
    }
}

fn join(terms: Vec<Expr>, op: Operator) -> Expr {
    let joined = if op == Operator::And {
        conjunction(terms)
    } else {
        disjunction(terms)
    };
    joined.unwrap_or(Expr::Literal(
        ScalarValue::Boolean(Some(op == Operator::And)),
        None,
    ))
}

/// Terms that cannot fail first, the others behind guards.
fn ordered(terms: Vec<Expr>, op: Operator) -> Result<Transformed<Expr>> {
    let mut before = Vec::with_capacity(terms.len());
    let mut risky = Vec::new();
    for term in terms {
        let term = guard(term)?.data;
        if has_exposed(&term)? {
            risky.push(term)
        } else {
            before.push(term)
        }
    }
    for term in risky {
        let settled = join(before.clone(), op);
        let term = if before.is_empty() || settled.is_volatile() {
            term
        } else {
            protect(term, &settled, op)?
        };
        before.push(term);
    }
    Ok(Transformed::yes(join(before, op)))
}

/// Wraps each call that can fail so that it runs only where `settled` leaves the result open.
fn protect(term: Expr, settled: &Expr, op: Operator) -> Result<Expr> {
    let open = || {
        let settled = Box::new(settled.clone());
        if op == Operator::And {
            Expr::IsNotFalse(settled)
        } else {
            Expr::IsNotTrue(settled)
        }
    };
    let wrapped = term.transform_down(|node| {
        if matches!(node, Expr::Case(_)) {
            return Ok(Transformed::new(node, false, TreeNodeRecursion::Jump));
        }
        if !can_fail(&node) {
            return Ok(Transformed::no(node));
        }
        let case = Expr::Case(Case::new(
            None,
            vec![(Box::new(open()), Box::new(node))],
            None,
        ));
        Ok(Transformed::new(case, true, TreeNodeRecursion::Jump))
    })?;
    Ok(wrapped.data)
}
