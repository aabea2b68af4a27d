//! What a join makes of the columns of its sides.

use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, JoinConstraint, JoinOperator, Value};

use super::{Output, Side, coalesce, only, parts};
use crate::ddl::names::folded;

/// Two relations that are joined.
pub(super) struct Joined {
    pub(super) columns: Vec<Output>,
    /// The values that must be equal.
    pairs: Vec<(Expr, Expr)>,
}

impl Joined {
    pub(super) fn of(
        left: Vec<Output>,
        right: Vec<Output>,
        operator: &JoinOperator,
    ) -> Option<Joined> {
        let (constraint, side) = parts(operator);
        let names = match constraint {
            Some(JoinConstraint::Using(names)) => names
                .iter()
                .map(|name| Some(folded(name.0.last()?.as_ident()?)))
                .collect::<Option<Vec<_>>>()?,
            Some(JoinConstraint::Natural) => {
                let of_both = left.iter().filter(|column| column.is_in(&right));
                of_both.map(|column| column.name.clone()).collect()
            }
            _ => Vec::new(),
        };
        let mut pairs = Vec::with_capacity(names.len());
        let merged = names.iter().map(|name| {
            let (left, right) = (only(&left, name)?, only(&right, name)?);
            pairs.push((left.value.clone(), right.value.clone()));
            let value = match side {
                Side::Left => left.value.clone(),
                Side::Right => right.value.clone(),
                Side::Either => coalesce(&left.value, &right.value)?,
            };
            Some(Output {
                name: name.clone(),
                value,
                is_merged: true,
            })
        });
        let merged = merged.collect::<Option<Vec<_>>>()?;
        let rest = left.into_iter().chain(right);
        let rest = rest.filter(|column| !names.contains(&column.name));
        let columns = merged.into_iter().chain(rest).collect();
        Some(Joined { columns, pairs })
    }

    /// All pairs are equal; true if there are none.
    pub(super) fn condition(&self) -> Expr {
        let equal = |(left, right): &(Expr, Expr)| Expr::BinaryOp {
            left: Box::new(left.clone()),
            op: BinaryOperator::Eq,
            right: Box::new(right.clone()),
        };
        let all = self.pairs.iter().map(equal);
        let all = all.reduce(|left, right| Expr::BinaryOp {
            left: Box::new(left),
            op: BinaryOperator::And,
            right: Box::new(right),
        });
        all.unwrap_or_else(|| Expr::value(Value::Boolean(true)))
    }
}
