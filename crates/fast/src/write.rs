//! INSERT, and UPDATE and DELETE of the rows found.

pub(crate) mod load;

use std::sync::Arc;

use aerostat_storage::{RowId, ValueRef};
use aerostat_txn::Transaction;
use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::SchemaRef;

use load::Load;

use crate::{
    Kind, Stop, Written,
    columns::array,
    expression::{Condition, Expr, NoRow, Row, evaluate},
    find::Find,
    input::Values,
    target::Target,
};

/// A bound write.
#[derive(Debug)]
pub(crate) struct Write {
    pub(crate) change: Change,
    /// What RETURNING computes: of new rows, or of deleted ones.
    pub(crate) returning: Option<Vec<Expr>>,
    /// None of these may be false of a new row.
    pub(crate) checks: Vec<Condition>,
    /// The table's, with every column nullable: storage is who refuses NULLs.
    pub(crate) schema: SchemaRef,
}

#[derive(Debug)]
pub(crate) enum Change {
    /// The values of all columns, row by row.
    Insert(Vec<Vec<Expr>>),
    /// Rows that the statement lists.
    Load(Load),
    /// The new values of all columns.
    Update(Find, Vec<Expr>),
    Delete(Find),
}

impl Write {
    pub(crate) fn kind(&self) -> Kind {
        match &self.change {
            Change::Insert(_) | Change::Load(_) => Kind::Insert,
            Change::Update(..) => Kind::Update,
            Change::Delete(_) => Kind::Delete,
        }
    }

    pub(crate) fn run(
        &self,
        target: &Target,
        read: &[usize],
        transaction: &Transaction,
        values: &Values<'_>,
    ) -> Result<Written, Stop> {
        let mut returned = Vec::new();
        let rows = match &self.change {
            Change::Insert(rows) => {
                let mut new = Vec::with_capacity(rows.len() * self.schema.fields().len());
                for row in rows {
                    let from = new.len();
                    evaluate(row, &NoRow, values, &mut new)?;
                    self.check(&new[from..], values, &mut returned)?;
                }
                assert_eq!(
                    new.len(),
                    rows.len() * self.schema.fields().len(),
                    "new rows have the table's columns"
                );
                let table = &target.table;
                // A row without arrays around its values costs half as much.
                if rows.len() == 1 {
                    target.settle(&mut new)?;
                    table.insert_row(transaction, &new)?
                } else {
                    table.insert(transaction, &self.batch(target, &new)?)?
                }
            }
            Change::Load(load) => return load.run(self, target, transaction, values),
            Change::Update(find, columns) => {
                let view = target.table.view(transaction.snapshot().clone());
                let rows = view.rows(read, transaction.waits());
                let (mut ids, mut new) = (Vec::new(), Vec::with_capacity(columns.len()));
                find.each(&rows, values, |row| {
                    let from = new.len();
                    ids.push(row.id());
                    evaluate(columns, &row, values, &mut new)?;
                    self.check(&new[from..], values, &mut returned)
                })?;
                assert_eq!(
                    new.len(),
                    ids.len() * columns.len(),
                    "each row that is updated has its new values"
                );
                match ids.as_slice() {
                    [] => columns.iter().try_for_each(|value| value.settle(values))?,
                    [id] => {
                        target.settle(&mut new)?;
                        view.update_row(transaction, *id, &new)?;
                    }
                    ids => {
                        view.update(transaction, ids, &self.batch(target, &new)?)?;
                    }
                }
                let rows = ids.len() as u64;
                return self.written(target, rows, &returned);
            }
            Change::Delete(find) => {
                let view = target.table.view(transaction.snapshot().clone());
                let rows = view.rows(read, transaction.waits());
                let mut ids: Vec<RowId> = Vec::new();
                find.each(&rows, values, |row| {
                    ids.push(row.id());
                    self.take_returned(&row, values, &mut returned)
                })?;
                if !ids.is_empty() {
                    view.delete(transaction, &ids)?;
                }
                let rows = ids.len() as u64;
                return self.written(target, rows, &returned);
            }
        };
        self.written(target, rows, &returned)
    }

    /// Looks at a new row before it is written.
    fn check<'a>(
        &'a self,
        row: &[ValueRef<'a>],
        values: &Values<'a>,
        returned: &mut Vec<ValueRef<'a>>,
    ) -> Result<(), Stop> {
        for check in &self.checks {
            if check.truth(&row, values)? == Some(false) {
                return Err(Stop::Unfit);
            }
        }
        self.take_returned(&row, values, returned)
    }

    fn take_returned<'a>(
        &'a self,
        row: &impl Row<'a>,
        values: &Values<'a>,
        returned: &mut Vec<ValueRef<'a>>,
    ) -> Result<(), Stop> {
        match &self.returning {
            Some(outputs) => evaluate(outputs, row, values, returned),
            None => Ok(()),
        }
    }

    /// Whole rows of the table, as storage takes them.
    fn batch(&self, target: &Target, new: &[ValueRef<'_>]) -> Result<RecordBatch, Stop> {
        let columns = &target.table.schema().columns;
        let width = columns.len();
        assert!(
            width == 0 || new.len().is_multiple_of(width),
            "{} values are no rows of {width} columns",
            new.len()
        );
        let arrays: Vec<ArrayRef> = columns
            .iter()
            .enumerate()
            .map(|(at, column)| array(column.ty, new[at..].iter().step_by(width).copied()))
            .collect();
        RecordBatch::try_new(Arc::clone(&self.schema), arrays).map_err(|_| Stop::Unfit)
    }

    fn written(
        &self,
        target: &Target,
        rows: u64,
        returned: &[ValueRef<'_>],
    ) -> Result<Written, Stop> {
        let returned = match &self.returning {
            Some(outputs) => {
                let count = returned.len() / outputs.len();
                assert_eq!(
                    count as u64, rows,
                    "a row is returned for each that is written"
                );
                Some(vec![target.batch(returned, count)?])
            }
            None => None,
        };
        Ok(Written { rows, returned })
    }
}
