//! Grouping of operators where the parser's differs from PostgreSQL's.
//!
//! `IS [NOT] DISTINCT FROM` binds tighter than NOT, AND and OR. The parser reads everything that
//! follows it as its right side:
//!
//! ```text
//!  written             read                    meant
//!  a IS D F b AND c    a IS D F (b AND c)      (a IS D F b) AND c
//!  p AND a IS D F b    p AND                   (p AND a IS D F b)
//!    OR c                a IS D F (b OR c)       OR c
//! ```
//!
//! Parentheses have a node of their own in the tree, so an operand without that node was written
//! without parentheses.

use std::{convert::Infallible, mem, ops::ControlFlow};

use aerostat_sql::walk;
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, UnaryOperator, Value, VisitMut, VisitorMut,
};

/// Groups the operators of a statement, query or expression as PostgreSQL does. This must come
/// before all other rewriting.
pub(super) fn regroup<N: VisitMut>(node: &mut N) {
    // The visitor never breaks.
    let _ = walk::change(node, &mut Grouping);
}

struct Grouping;

impl VisitorMut for Grouping {
    type Break = Infallible;

    fn post_visit_expr(&mut self, expression: &mut Expr) -> ControlFlow<Infallible> {
        lift(expression);
        ControlFlow::Continue(())
    }
}

/// Takes an AND or OR out of an operand whose operator binds tighter. The operand itself has been
/// done.
fn lift(expression: &mut Expr) {
    let Some(operand) = loose_operand(expression) else {
        return;
    };
    let Expr::BinaryOp { left, op, right } = take(operand) else {
        unreachable!("a loose operand is AND or OR");
    };
    *operand = *left;
    let mut tighter = take(expression);
    lift(&mut tighter);
    *expression = Expr::BinaryOp {
        left: Box::new(tighter),
        op,
        right,
    };
}

/// The last operand, if it is an AND or OR that binds less tightly than the operator before it.
fn loose_operand(expression: &mut Expr) -> Option<&mut Expr> {
    let (operand, and_too) = match expression {
        Expr::IsDistinctFrom(_, right) | Expr::IsNotDistinctFrom(_, right) => (right, true),
        Expr::UnaryOp {
            op: UnaryOperator::Not,
            expr,
        } => (expr, true),
        Expr::BinaryOp {
            op: BinaryOperator::And,
            right,
            ..
        } => (right, false),
        _ => return None,
    };
    let is_loose = matches!(
        &**operand,
        Expr::BinaryOp { op, .. }
            if *op == BinaryOperator::Or || and_too && *op == BinaryOperator::And
    );
    is_loose.then_some(&mut **operand)
}

fn take(expression: &mut Expr) -> Expr {
    mem::replace(expression, Expr::Value(Value::Null.into()))
}

#[cfg(test)]
mod tests {
    use datafusion::sql::sqlparser::{dialect::PostgreSqlDialect, parser::Parser};

    use super::*;

    /// The expression with parentheses around every AND, OR and DISTINCT FROM, and around NOT.
    fn grouped(text: &str) -> String {
        fn show(expression: &Expr) -> String {
            match expression {
                Expr::BinaryOp { left, op, right } => {
                    format!("({} {op} {})", show(left), show(right))
                }
                Expr::IsDistinctFrom(left, right) => {
                    format!("({} <d> {})", show(left), show(right))
                }
                Expr::IsNotDistinctFrom(left, right) => {
                    format!("({} =d= {})", show(left), show(right))
                }
                Expr::UnaryOp { op, expr } => format!("({op} {})", show(expr)),
                Expr::Nested(inner) => show(inner),
                other => other.to_string(),
            }
        }
        let mut parser = Parser::new(&PostgreSqlDialect {})
            .try_with_sql(text)
            .unwrap();
        let mut expression = parser.parse_expr().unwrap();
        regroup(&mut expression);
        show(&expression)
    }

    #[test]
    fn distinct_binds_tighter_than_and_or_and_not() {
        for (text, expected) in [
            ("a IS DISTINCT FROM b", "(a <d> b)"),
            ("a IS DISTINCT FROM b AND c", "((a <d> b) AND c)"),
            ("a IS NOT DISTINCT FROM b OR c", "((a =d= b) OR c)"),
            (
                "a IS DISTINCT FROM b AND c OR d",
                "(((a <d> b) AND c) OR d)",
            ),
            (
                "a IS DISTINCT FROM b OR c AND d",
                "((a <d> b) OR (c AND d))",
            ),
            (
                "p AND a IS DISTINCT FROM b OR c",
                "((p AND (a <d> b)) OR c)",
            ),
            (
                "p OR a IS DISTINCT FROM b AND c",
                "(p OR ((a <d> b) AND c))",
            ),
            ("NOT a IS DISTINCT FROM b AND c", "((NOT (a <d> b)) AND c)"),
            (
                "p AND NOT a IS DISTINCT FROM b OR c",
                "((p AND (NOT (a <d> b))) OR c)",
            ),
            (
                "a IS DISTINCT FROM b AND c IS NOT DISTINCT FROM d OR e",
                "(((a <d> b) AND (c =d= d)) OR e)",
            ),
            ("a IS DISTINCT FROM b + 1 AND c", "((a <d> (b + 1)) AND c)"),
            ("a IS DISTINCT FROM b = c AND d", "((a <d> (b = c)) AND d)"),
            // Written parentheses stay.
            ("a IS DISTINCT FROM (b AND c)", "(a <d> (b AND c))"),
            ("p AND (a OR b)", "(p AND (a OR b))"),
            ("NOT (a AND b)", "(NOT (a AND b))"),
            (
                "(p AND a IS DISTINCT FROM b OR c) AND d",
                "(((p AND (a <d> b)) OR c) AND d)",
            ),
        ] {
            assert_eq!(grouped(text), expected, "{text}");
        }
    }
}
