//! IN lists that DataFusion may merge, and those that it may not.
//!
//! Its simplifier merges two lists of one operand that meet in AND or OR by what their items look
//! like: `x IN (1, 2) AND x NOT IN (y, NULL)` becomes `x IN (1, 2)`, and `x IN (1, 2) AND x IN
//! (3, 4)` becomes false where it is unknown for a NULL, which matters below a NOT. So lists
//! contain only constants, and where merging could leave an empty list of an operand that may be
//! NULL, one side is wrapped in a function.

use std::sync::Arc;

use aerostat_types::SqlType;
use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::expr::{InList, ScalarFunction};
use datafusion::logical_expr::{
    BinaryExpr, Cast, Expr, ExprSchemable, Operator, ScalarUDF, Volatility, lit,
};

use crate::functions::overload::{Overload, Returns, function};

/// `left IN (…)` of constants, `or`ed with comparisons with everything else.
///
/// `pairs` are the operand and each item as they are compared; where the operand is not the
/// same for all there is no list.
pub(super) fn membership(pairs: Vec<(Expr, Expr)>, negated: bool) -> Expr {
    let same = pairs.windows(2).all(|two| two[0].0 == two[1].0);
    let (listed, compared): (Vec<_>, Vec<_>) = pairs
        .into_iter()
        .partition(|(operand, item)| same && (is_constant(item) || operand.is_volatile()));
    let operand = listed.first().map(|(operand, _)| operand.clone());
    let items: Vec<Expr> = listed.into_iter().map(|(_, item)| item).collect();
    let in_list = |negated| {
        let list = |operand| Expr::InList(InList::new(Box::new(operand), items, negated));
        operand.map(list)
    };
    if compared.is_empty() {
        return in_list(negated).unwrap_or_else(|| lit(negated));
    }
    let comparisons = compared.into_iter().map(|(operand, item)| operand.eq(item));
    let any = any_of(in_list(false).into_iter().chain(comparisons).collect());
    if negated { !any } else { any }
}

/// One of these, in their order. The optimizer looks at each OR for its right side in all of its
/// left: in a chain that is the square of its length, in a tree that is as deep on both sides it is
/// the length times the depth.
fn any_of(mut terms: Vec<Expr>) -> Expr {
    while terms.len() > 1 {
        let mut pairs = terms.into_iter();
        let mut joined = Vec::with_capacity(pairs.len().div_ceil(2));
        while let Some(left) = pairs.next() {
            joined.push(match pairs.next() {
                Some(right) => left.or(right),
                None => left,
            });
        }
        terms = joined;
    }
    terms.pop().unwrap_or_else(|| lit(false))
}

/// Whether this is a value that is not NULL.
fn is_constant(expr: &Expr) -> bool {
    match expr {
        Expr::Literal(value, _) => !value.is_null(),
        Expr::Cast(Cast { expr, .. }) => is_constant(expr),
        _ => false,
    }
}

/// The right side of AND or OR, kept from merging with the left where that could go wrong.
pub(super) fn apart(op: Operator, left: &Expr, right: Expr, schema: &DFSchema) -> Result<Expr> {
    let in_or = op == Operator::Or;
    let theirs = Lists::of(&right, in_or);
    if theirs.0.is_empty() {
        return Ok(right);
    }
    let ours = Lists::of(left, in_or);
    // Of these DataFusion makes the union, which is exact.
    let is_union = match op {
        Operator::And => ours.only(true) && theirs.only(true),
        _ => ours.only(false) && theirs.only(false),
    };
    if is_union {
        return Ok(right);
    }
    for operand in ours.operands() {
        if theirs.operands().any(|other| other == operand) && operand.nullable(schema)? {
            let call = ScalarFunction::new_udf(as_is(), vec![right]);
            return Ok(Expr::ScalarFunction(call));
        }
    }
    Ok(right)
}

/// The operands of a condition's lists, also of those that DataFusion makes of `x = 1 OR x = 2`,
/// and whether they are negated.
struct Lists<'a>(Vec<(&'a Expr, bool)>);

impl<'a> Lists<'a> {
    /// Walks with a stack of its own: conditions may be thousands of terms deep.
    fn of(condition: &'a Expr, in_or: bool) -> Self {
        let mut lists: Vec<(&Expr, bool)> = Vec::new();
        let mut pending = vec![(condition, in_or, false)];
        while let Some((expr, in_or, negated)) = pending.pop() {
            match expr {
                Expr::InList(list) => lists.push((&list.expr, list.negated != negated)),
                Expr::BinaryExpr(BinaryExpr { left, op, right }) => match op {
                    Operator::And | Operator::Or => {
                        let in_or = *op == Operator::Or;
                        pending.extend([(&**left, in_or, negated), (&**right, in_or, negated)]);
                    }
                    Operator::Eq if in_or && is_constant(right) => lists.push((left, negated)),
                    Operator::Eq if in_or && is_constant(left) => lists.push((right, negated)),
                    _ => {}
                },
                Expr::Not(inner) => pending.push((inner, false, !negated)),
                _ => {}
            }
        }
        Self(lists)
    }

    /// All are negated, or none is.
    fn only(&self, negated: bool) -> bool {
        self.0.iter().all(|list| list.1 == negated)
    }

    fn operands(&self) -> impl Iterator<Item = &'a Expr> {
        self.0.iter().map(|(operand, _)| *operand)
    }
}

/// A condition as it is, which DataFusion does not look into.
fn as_is() -> Arc<ScalarUDF> {
    function("as_is", &[], Volatility::Immutable, AS_IS)
}

const AS_IS: &[Overload] = &[Overload {
    parameters: &[SqlType::Boolean],
    returns: Returns::Type(SqlType::Boolean),
    body: |call| Ok(Arc::clone(&call.args[0])),
}];

#[cfg(test)]
mod tests {
    use datafusion::prelude::col;

    use super::*;

    /// The terms of a condition in their order, and how many the optimizer compares to look for the right
    /// side of each OR in its left.
    fn looked_through(condition: &Expr) -> (Vec<&Expr>, usize) {
        match condition {
            Expr::BinaryExpr(BinaryExpr { left, op, right }) if *op == Operator::Or => {
                let ((mut terms, ours), (others, theirs)) =
                    (looked_through(left), looked_through(right));
                let looks = ours + theirs + terms.len();
                terms.extend(others);
                (terms, looks)
            }
            term => (vec![term], 0),
        }
    }

    #[test]
    fn lists_of_computed_items_are_looked_through_in_little_more_than_their_length() {
        for count in [1_i32, 2, 3, 7, 100, 1_000, 1_024] {
            let items: Vec<Expr> = (0..count).map(|item| col("i") + lit(item)).collect();
            let pairs = items.iter().map(|item| (col("k"), item.clone()));
            let any = membership(pairs.collect(), false);
            let (terms, looks) = looked_through(&any);
            let expected: Vec<Expr> = items.into_iter().map(|item| col("k").eq(item)).collect();
            assert!(terms.into_iter().eq(&expected), "{any}");
            let count = count as usize;
            let depth = count.next_power_of_two().ilog2() as usize;
            assert!(looks <= count * depth, "{looks} of {count}");
        }
    }
}
