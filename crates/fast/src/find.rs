//! How a statement's rows are found: by the primary key, in a short range of its values, or by
//! a secondary index.

use aerostat_storage::{
    CompareOp, Literal as KeyValue, Predicate, RowReader, RowView, StorageError, ValueRef,
};
use aerostat_types::Physical;

use crate::{
    INDEX_ROWS_MAX, RANGE_KEYS_MAX, Stop,
    columns::as_wide,
    expression::{Condition, Expr, NoRow},
    input::Values,
    shape::Operator,
};

/// How rows are found: by key, and what else must be true of them.
#[derive(Debug)]
pub(crate) struct Find {
    pub(crate) by: By,
    pub(crate) conditions: Vec<Condition>,
}

#[derive(Debug)]
pub(crate) enum By {
    /// The values of the key's columns, in key order.
    Point(Vec<(Physical, Expr)>),
    /// The bounds of the key's only column, an integer of so many bits.
    Range {
        physical: Physical,
        bounds: Vec<(Operator, Expr)>,
    },
    /// Columns that are equal to something, among them those of a secondary index.
    Index(Vec<(usize, Physical, Expr)>),
}

impl Find {
    /// Calls `take` with each row; ascending by key, if they are found by key.
    pub(crate) fn each<'r>(
        &'r self,
        rows: &'r RowReader<'_>,
        values: &Values<'r>,
        mut take: impl FnMut(RowView<'r>) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let mut check = |row: RowView<'r>| {
            for condition in &self.conditions {
                if condition.truth(&row, values)? != Some(true) {
                    return Ok(());
                }
            }
            take(row)
        };
        match &self.by {
            By::Point(columns) => {
                let mut literals = Vec::with_capacity(columns.len());
                for (physical, expr) in columns {
                    let value = expr.eval(&NoRow, values)?;
                    if matches!(value, ValueRef::Null) {
                        // Nothing is equal to NULL.
                        return Ok(());
                    }
                    literals.push(key_value(*physical, value)?);
                }
                match find(rows, &literals)? {
                    Some(row) => check(row),
                    None => Ok(()),
                }
            }
            By::Index(columns) => {
                let mut predicates = Vec::with_capacity(columns.len());
                for (attribute, physical, expr) in columns {
                    let value = expr.eval(&NoRow, values)?;
                    if matches!(value, ValueRef::Null) {
                        return Ok(());
                    }
                    predicates.push(Predicate::Compare {
                        attribute: *attribute,
                        op: CompareOp::Eq,
                        value: key_value(*physical, value)?,
                    });
                }
                let found = rows.rows_by_index(&predicates, INDEX_ROWS_MAX)?;
                for row in found.ok_or(Stop::Unfit)? {
                    check(row)?;
                }
                Ok(())
            }
            By::Range { physical, bounds } => {
                let Some((low, high)) = limits(*physical, bounds, values)? else {
                    return Ok(());
                };
                if high - low >= RANGE_KEYS_MAX {
                    return Err(Stop::Unfit);
                }
                for key in low..=high {
                    if let Some(row) = find(rows, &[KeyValue::Int(key)])? {
                        check(row)?;
                    }
                }
                Ok(())
            }
        }
    }
}

/// The visible row with these values of the key's columns. A value beyond its column's
/// range makes no key.
fn find<'r>(
    rows: &'r RowReader<'_>,
    literals: &[KeyValue],
) -> Result<Option<RowView<'r>>, StorageError> {
    let Some(key) = rows.view().table().key(literals) else {
        return Ok(None);
    };
    rows.row(key.borrow())
}

fn key_value(physical: Physical, value: ValueRef<'_>) -> Result<KeyValue, Stop> {
    Ok(match (physical, value) {
        (Physical::Bool, ValueRef::Bool(value)) => KeyValue::Bool(value),
        (Physical::Variable, ValueRef::Bytes(bytes)) => KeyValue::Bytes(bytes.to_vec()),
        (Physical::Bytes16, ValueRef::Bytes16(bytes)) => KeyValue::Bytes(bytes.to_vec()),
        (Physical::I16 | Physical::I32 | Physical::I64 | Physical::I128, value) => {
            KeyValue::Int(as_wide(value).ok_or(Stop::Unfit)?)
        }
        _ => return Err(Stop::Unfit),
    })
}

/// The least and the greatest key within all bounds; `None` when there is none.
fn limits(
    physical: Physical,
    bounds: &[(Operator, Expr)],
    values: &Values<'_>,
) -> Result<Option<(i128, i128)>, Stop> {
    let (mut low, mut high) = match physical {
        Physical::I16 => (i128::from(i16::MIN), i128::from(i16::MAX)),
        Physical::I32 => (i128::from(i32::MIN), i128::from(i32::MAX)),
        _ => (i128::from(i64::MIN), i128::from(i64::MAX)),
    };
    for (operator, bound) in bounds {
        let Some(bound) = as_wide(bound.eval(&NoRow, values)?) else {
            return Ok(None);
        };
        match operator {
            Operator::Less => high = high.min(bound - 1),
            Operator::LessEqual => high = high.min(bound),
            Operator::Greater => low = low.max(bound + 1),
            Operator::GreaterEqual => low = low.max(bound),
            Operator::Equal | Operator::Unequal => return Err(Stop::Unfit),
        }
    }
    Ok((low <= high).then_some((low, high)))
}
