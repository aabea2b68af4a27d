//! The columns of a join, made from the columns of its sides.

use aerostat_semantics::functions::merged::MERGED;
use aerostat_sql::{names::folded, sql_type::sql_type};
use aerostat_types::SqlType;
use datafusion::sql::sqlparser::ast::{BinaryOperator, Expr, JoinConstraint, JoinOperator, Value};

use super::{Output, Side, coalesce, only, parts};
use crate::plan::calls::call_of;

/// A column with the value of the first column, or of the first that is not NULL, in the type that
/// both columns have in common.
fn of_common_type(first: &Output, second: &Output, is_either: bool) -> Expr {
    // If a type is not known, GROUP BY must still find the column that it names.
    let differ = match (first.ty, second.ty) {
        (Some(a), Some(b)) => a.oid() != b.oid() && !(a.is_text() && b.is_text()),
        _ => false,
    };
    if !differ {
        return first.value.clone();
    }
    let is_either = Expr::value(Value::Boolean(is_either));
    let arguments = vec![first.value.clone(), second.value.clone(), is_either];
    call_of(MERGED, arguments)
}

/// The type of a plain column, a cast or an integer; `None` for other expressions over these
/// columns.
pub(super) fn type_of(expression: &Expr, columns: &[Output]) -> Option<SqlType> {
    match expression {
        Expr::Nested(inner) => type_of(inner, columns),
        Expr::Value(value) => match &value.value {
            Value::Number(digits, _) => digits.parse::<i32>().ok().map(|_| SqlType::Integer),
            _ => None,
        },
        Expr::Cast { data_type, .. } => sql_type(data_type).ok(),
        Expr::Identifier(name) => only(columns, &folded(name))?.ty,
        Expr::CompoundIdentifier(parts) => {
            let [.., table, name] = &parts[..] else {
                return None;
            };
            let (table, name) = (folded(table), folded(name));
            let is_meant = |column: &&Output| match &column.value {
                Expr::CompoundIdentifier(parts) => {
                    let mut parts = parts.iter().rev();
                    parts.next().is_some_and(|part| part.value == name)
                        && parts.next().is_some_and(|part| part.value == table)
                }
                _ => false,
            };
            columns.iter().find(is_meant)?.ty
        }
        _ => None,
    }
}

/// The join of two relations.
pub(super) struct Joined {
    pub(super) columns: Vec<Output>,
    /// Pairs of values that must be equal.
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
                Side::Both => of_common_type(left, right, true),
                Side::Left => of_common_type(left, right, false),
                Side::Right => of_common_type(right, left, false),
                Side::Either => coalesce(&left.value, &right.value)?,
            };
            Some(Output {
                name: name.clone(),
                value,
                is_merged: true,
                is_ambiguous: false,
                ty: left.ty.filter(|_| left.ty == right.ty),
            })
        });
        let merged = merged.collect::<Option<Vec<_>>>()?;
        let rest = left.into_iter().chain(right);
        let rest = rest.filter(|column| !names.contains(&column.name));
        let columns = merged.into_iter().chain(rest).collect();
        Some(Joined { columns, pairs })
    }

    /// The condition that all pairs are equal; true if there are none.
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
