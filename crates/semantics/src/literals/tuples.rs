//! Row expressions, compared member by member.

use aerostat_types::{ErrorKind, SqlError};
use datafusion::sql::sqlparser::ast::{
    BinaryOperator, Expr, FunctionArg, FunctionArgExpr, FunctionArguments, UnaryOperator, Value,
};

use super::{binary, call, null};

/// The members of a row expression of two or more.
pub(super) fn members(expr: &Expr) -> Option<Vec<Expr>> {
    match expr {
        Expr::Tuple(members) if members.len() > 1 => Some(members.clone()),
        Expr::Nested(inner) => members(inner),
        Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case("row") => {
            match &function.args {
                FunctionArguments::List(list) => list
                    .args
                    .iter()
                    .map(|argument| match argument {
                        FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
                        _ => None,
                    })
                    .collect(),
                _ => None,
            }
        }
        _ => None,
    }
}

pub(super) fn is_comparison(op: &BinaryOperator) -> bool {
    use BinaryOperator::{Eq, Gt, GtEq, Lt, LtEq, NotEq};
    matches!(op, Eq | NotEq | Lt | LtEq | Gt | GtEq)
}

/// Whether `row` is a row and `value` certainly none.
pub(super) fn is_row_beside_value(row: &Expr, value: &Expr) -> bool {
    let is_value = matches!(
        value,
        Expr::Cast { .. } | Expr::Value(_) | Expr::CompoundIdentifier(_) | Expr::BinaryOp { .. }
    );
    is_value && members(row).is_some()
}

pub(super) fn join(mut terms: Vec<Expr>, op: BinaryOperator) -> Expr {
    let mut joined = terms.pop().unwrap_or_else(null);
    while let Some(term) = terms.pop() {
        joined = binary(term, op.clone(), joined);
    }
    Expr::Nested(Box::new(joined))
}

pub(super) fn compare_rows(
    left: Vec<Expr>,
    op: &BinaryOperator,
    right: Vec<Expr>,
) -> Result<Expr, SqlError> {
    if left.len() != right.len() {
        return Err(SqlError::new(
            ErrorKind::SyntaxError,
            "unequal number of entries in row expressions",
        ));
    }
    let pairs = left.into_iter().zip(right);
    match op {
        BinaryOperator::Eq => Ok(join(
            pairs.map(|(l, r)| binary(l, op.clone(), r)).collect(),
            BinaryOperator::And,
        )),
        BinaryOperator::NotEq => Ok(join(
            pairs.map(|(l, r)| binary(l, op.clone(), r)).collect(),
            BinaryOperator::Or,
        )),
        BinaryOperator::Lt | BinaryOperator::LtEq => {
            Ok(lexicographic(pairs, BinaryOperator::Lt, op))
        }
        BinaryOperator::Gt | BinaryOperator::GtEq => {
            Ok(lexicographic(pairs, BinaryOperator::Gt, op))
        }
        BinaryOperator::Overlaps if pairs.len() == 2 => {
            let (left, right): (Vec<_>, Vec<_>) = pairs.unzip();
            Ok(call("overlaps", [left, right].concat()))
        }
        _ => Err(SqlError::new(
            ErrorKind::FeatureNotSupported,
            format!("operator {op} is not supported for rows"),
        )),
    }
}

/// `(a, b) < (c, d)` to `a < c OR (a = c AND b < d)`.
fn lexicographic(
    pairs: impl DoubleEndedIterator<Item = (Expr, Expr)>,
    strict: BinaryOperator,
    last: &BinaryOperator,
) -> Expr {
    let mut rest: Option<Expr> = None;
    for (left, right) in pairs.rev() {
        rest = Some(match rest {
            None => binary(left, last.clone(), right),
            Some(rest) => {
                let equal = binary(left.clone(), BinaryOperator::Eq, right.clone());
                let tie = Expr::Nested(Box::new(binary(equal, BinaryOperator::And, rest)));
                Expr::Nested(Box::new(binary(
                    binary(left, strict.clone(), right),
                    BinaryOperator::Or,
                    tie,
                )))
            }
        });
    }
    rest.unwrap_or_else(null)
}

/// Whether all members are NULL, or none is: both of a row of none.
pub(super) fn nulls(row: Vec<Expr>, are_null: bool) -> Expr {
    if row.is_empty() {
        return Expr::value(Value::Boolean(true));
    }
    let terms = row.into_iter().map(|member| {
        let member = Box::new(member);
        match are_null {
            true => Expr::IsNull(member),
            false => Expr::IsNotNull(member),
        }
    });
    join(terms.collect(), BinaryOperator::And)
}

pub(super) fn row_in_list(row: Vec<Expr>, list: &[Expr], negated: bool) -> Result<Expr, SqlError> {
    let terms = list
        .iter()
        .map(|item| match members(item) {
            Some(item) => compare_rows(row.clone(), &BinaryOperator::Eq, item),
            None => Err(SqlError::new(
                ErrorKind::SyntaxError,
                "unequal number of entries in row expressions",
            )),
        })
        .collect::<Result<Vec<_>, _>>()?;
    let any = join(terms, BinaryOperator::Or);
    Ok(if negated {
        Expr::UnaryOp {
            op: UnaryOperator::Not,
            expr: Box::new(any),
        }
    } else {
        any
    })
}
