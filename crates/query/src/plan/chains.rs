//! Long chains of AND or OR, as programs write them, brought to a low depth.
//!
//! `a OR b OR c OR …` is parsed as a tree that is as deep as it is long. DataFusion asks each of its
//! levels for its type and its name, which asks all levels below: the cube of its length, seconds
//! for 400 operands. AND and OR are associative, so a chain becomes a tree of the same operands,
//! in the same order, whose depth is the logarithm of their number.

use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, Value, VisitMut, VisitorMut};

/// Chains of fewer operands stay as they were written: plans show them.
const OPERANDS_MIN: usize = 16;

/// Rebuilds the long chains in a tree.
pub(super) fn balance<N: VisitMut>(tree: &mut N) {
    // The visitor never breaks.
    let _ = tree.visit(&mut Balance);
}

struct Balance;

impl VisitorMut for Balance {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if let Some(op) = op_of_chain(expr)
            && length(expr, &op) >= OPERANDS_MIN
        {
            let chain = std::mem::replace(expr, Expr::value(Value::Null));
            *expr = balanced(operands(chain, &op), &op);
        }
        ControlFlow::Continue(())
    }
}

/// AND or OR, of an expression that is one.
fn op_of_chain(expr: &Expr) -> Option<BinaryOperator> {
    match expr {
        Expr::BinaryOp { op, .. } if matches!(op, BinaryOperator::And | BinaryOperator::Or) => {
            Some(op.clone())
        }
        _ => None,
    }
}

/// How many operands a chain has, along its left.
fn length(mut expr: &Expr, op: &BinaryOperator) -> usize {
    let mut length = 1;
    while let Expr::BinaryOp {
        left, op: found, ..
    } = expr
        && found == op
    {
        length += 1;
        expr = left;
    }
    length
}

/// The operands of a chain, in their order.
fn operands(mut chain: Expr, op: &BinaryOperator) -> Vec<Expr> {
    let mut operands = Vec::new();
    loop {
        match chain {
            Expr::BinaryOp {
                left,
                op: found,
                right,
            } if found == *op => {
                operands.push(*right);
                chain = *left;
            }
            first => {
                operands.push(first);
                operands.reverse();
                return operands;
            }
        }
    }
}

/// A tree of the operands, of which there is one at least.
fn balanced(mut operands: Vec<Expr>, op: &BinaryOperator) -> Expr {
    let right = operands.split_off(operands.len() / 2);
    match (operands.is_empty(), right) {
        (true, mut single) => single.pop().expect("a chain has operands"),
        (false, right) => Expr::BinaryOp {
            left: Box::new(balanced(operands, op)),
            op: op.clone(),
            right: Box::new(balanced(right, op)),
        },
    }
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::{dialect::PostgreSqlDialect, parser::Parser};

    use super::*;

    fn parsed(text: &str) -> Expr {
        let mut parser = Parser::new(&PostgreSqlDialect {})
            .with_recursion_limit(10_000)
            .try_with_sql(text)
            .unwrap();
        parser.parse_expr().unwrap()
    }

    fn depth(expr: &Expr) -> usize {
        match expr {
            Expr::BinaryOp { left, right, .. } => 1 + depth(left).max(depth(right)),
            _ => 0,
        }
    }

    fn chain(count: usize, op: &str) -> String {
        let operands: Vec<String> = (0..count).map(|at| format!("a{at}")).collect();
        operands.join(op)
    }

    #[test]
    fn long_chains_are_shallow_and_keep_their_order() {
        for (count, op) in [(16, " OR "), (17, " AND "), (400, " OR "), (1_000, " AND ")] {
            let text = chain(count, op);
            let mut expr = parsed(&text);
            balance(&mut expr);
            assert!(depth(&expr) <= count.ilog2() as usize + 1, "{count}");
            assert_eq!(expr.to_string(), text, "printed without parentheses");
        }
    }

    #[test]
    fn short_chains_and_other_operators_stay() {
        for text in [chain(15, " OR "), chain(100, " + "), chain(100, " || ")] {
            let mut expr = parsed(&text);
            balance(&mut expr);
            assert_eq!(expr, parsed(&text));
        }
    }

    #[test]
    fn chains_within_chains_are_found() {
        let inner = format!("({})", chain(40, " OR "));
        let text = vec![inner; 40].join(" AND ");
        let mut expr = parsed(&format!("coalesce({text}, x)"));
        let before = expr.to_string();
        balance(&mut expr);
        assert_eq!(expr.to_string(), before);
        let mut expr = parsed(&text);
        balance(&mut expr);
        assert!(depth(&expr) <= 7);
        assert_eq!(expr.to_string(), text);
    }
}
