//! SELECT: rows or aggregates of the rows found.

use std::cmp::Ordering;

use aerostat_storage::{RowReader, ValueRef};

use crate::{
    INDEX_ROWS_MAX, RANGE_KEYS_MAX, Rows, Stop,
    columns::as_wide,
    expression::{Expr, NoRow, compare, evaluate},
    find::Find,
    input::Values,
    target::Target,
};

/// A bound SELECT.
#[derive(Debug)]
pub(crate) struct Selection {
    pub(crate) find: Find,
    pub(crate) list: List,
}

#[derive(Debug)]
pub(crate) enum List {
    Rows(RowList),
    /// One row.
    Aggregates(Vec<Aggregate>),
}

#[derive(Debug)]
pub(crate) struct RowList {
    pub(crate) outputs: Vec<Expr>,
    pub(crate) distinct: bool,
    /// Keys, and whether they descend. Under DISTINCT each is also an output.
    pub(crate) order: Vec<(Expr, bool)>,
    pub(crate) limit: Option<Expr>,
}

// What is found of them at most adds up to less than 64 bits.
const _: () = assert!(
    (RANGE_KEYS_MAX << 31) < i64::MAX as i128 && (INDEX_ROWS_MAX as i128) << 31 < i64::MAX as i128
);

/// An aggregate over the rows found.
#[derive(Debug)]
pub(crate) enum Aggregate {
    CountRows,
    Count(usize),
    /// Of integers of at most 32 bits: as many as are found do not overflow 64.
    Sum(usize),
    Min(usize),
    Max(usize),
}

impl Selection {
    pub(crate) fn run(
        &self,
        target: &Target,
        found: &RowReader<'_>,
        values: &Values<'_>,
    ) -> Result<Rows, Stop> {
        match &self.list {
            List::Aggregates(aggregates) => {
                let mut state = vec![ValueRef::Null; aggregates.len()];
                for (aggregate, state) in aggregates.iter().zip(&mut state) {
                    if matches!(aggregate, Aggregate::CountRows | Aggregate::Count(_)) {
                        *state = ValueRef::I64(0);
                    }
                }
                self.find.each(found, values, |row| {
                    for (aggregate, state) in aggregates.iter().zip(&mut state) {
                        aggregate.add(state, |column| row.value(column));
                    }
                    Ok(())
                })?;
                Ok(target.rows(&state, 1))
            }
            List::Rows(list) if list.distinct || !list.order.is_empty() => {
                list.sorted(target, &self.find, found, values)
            }
            List::Rows(list) => {
                let rows_max = list.rows_max(values)?;
                let mut rows = 0;
                let mut shown = Vec::with_capacity(list.outputs.len());
                self.find.each(found, values, |row| {
                    if rows < rows_max {
                        rows += 1;
                        evaluate(&list.outputs, &row, values, &mut shown)?;
                    }
                    Ok(())
                })?;
                Ok(target.rows(&shown, rows))
            }
        }
    }
}

impl RowList {
    /// Sorts what is found, drops what is there twice, cuts it.
    fn sorted(
        &self,
        target: &Target,
        find: &Find,
        found: &RowReader<'_>,
        values: &Values<'_>,
    ) -> Result<Rows, Stop> {
        let rows_max = self.rows_max(values)?;
        let keys = self.order.len();
        let mut rows: Vec<Vec<ValueRef<'_>>> = Vec::new();
        find.each(found, values, |row| {
            let mut all = Vec::with_capacity(keys + self.outputs.len());
            for (key, _) in &self.order {
                all.push(key.eval(&row, values)?);
            }
            evaluate(&self.outputs, &row, values, &mut all)?;
            rows.push(all);
            Ok(())
        })?;
        let by_keys = |a: &[ValueRef<'_>], b: &[ValueRef<'_>]| {
            let orders = self.order.iter().enumerate().map(|(at, (_, descending))| {
                let order = ordered(a[at], b[at]);
                if *descending { order.reverse() } else { order }
            });
            first_difference(orders)
        };
        let by_outputs = |a: &[ValueRef<'_>], b: &[ValueRef<'_>]| {
            first_difference((keys..a.len()).map(|at| ordered(a[at], b[at])))
        };
        if self.distinct {
            // Keys are outputs, so equal outputs come to stand side by side.
            rows.sort_by(|a, b| by_keys(a, b).then_with(|| by_outputs(a, b)));
            rows.dedup_by(|a, b| by_outputs(a, b).is_eq());
        } else {
            rows.sort_by(|a, b| by_keys(a, b));
        }
        rows.truncate(rows_max);
        let outputs: Vec<ValueRef<'_>> = rows
            .iter()
            .flat_map(|row| row[keys..].iter().copied())
            .collect();
        Ok(target.rows(&outputs, rows.len()))
    }

    fn rows_max(&self, values: &Values<'_>) -> Result<usize, Stop> {
        let Some(limit) = &self.limit else {
            return Ok(usize::MAX);
        };
        match limit.eval(&NoRow, values)? {
            ValueRef::Null => Ok(usize::MAX),
            // A negative one is an error.
            limit => as_wide(limit)
                .and_then(|limit| usize::try_from(limit).ok())
                .ok_or(Stop::Unfit),
        }
    }
}

fn first_difference(mut orders: impl Iterator<Item = Ordering>) -> Ordering {
    orders
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

/// NULL is the greatest, as in PostgreSQL's default order either way.
fn ordered(a: ValueRef<'_>, b: ValueRef<'_>) -> Ordering {
    let is_null = |value| matches!(value, ValueRef::Null);
    compare(a, b).unwrap_or_else(|| is_null(a).cmp(&is_null(b)))
}

impl Aggregate {
    fn add<'a>(&self, state: &mut ValueRef<'a>, value: impl Fn(usize) -> ValueRef<'a>) {
        let add = |state: &mut ValueRef<'a>, more: i64| {
            let sum = match *state {
                ValueRef::I64(sum) => sum,
                _ => 0,
            };
            *state = ValueRef::I64(sum + more);
        };
        match *self {
            Aggregate::CountRows => add(state, 1),
            Aggregate::Count(column) => {
                if !matches!(value(column), ValueRef::Null) {
                    add(state, 1);
                }
            }
            Aggregate::Sum(column) => {
                let number = as_wide(value(column)).and_then(|number| i64::try_from(number).ok());
                if let Some(number) = number {
                    add(state, number);
                }
            }
            Aggregate::Min(column) => replace(state, value(column), Ordering::Less),
            Aggregate::Max(column) => replace(state, value(column), Ordering::Greater),
        }
    }
}

/// Makes the value the new one if it compares so with the old.
fn replace<'a>(state: &mut ValueRef<'a>, value: ValueRef<'a>, if_it_is: Ordering) {
    let is_first = matches!(state, ValueRef::Null);
    if is_first || compare(value, *state) == Some(if_it_is) {
        *state = value;
    }
}
