//! What a shape becomes once it is bound to a table.

use std::sync::Arc;

use aerostat_storage::{Table, ValueRef};
use aerostat_txn::{Snapshot, Transaction};
use aerostat_types::SqlType;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::SchemaRef;

use crate::{
    Inputs, Kind, Rows, Stop, Value, Written, columns::array, input::Values, select::Selection,
    write::Write,
};

/// An output column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Its name, as PostgreSQL would give it.
    pub name: String,
    /// Its type.
    pub ty: SqlType,
    /// The column of the table that it is, from 0; `None` for one that is computed.
    pub column: Option<usize>,
}

/// A shape bound to a table, ready to run any number of times at once.
#[derive(Debug)]
pub struct Program {
    pub(crate) table: Arc<Table>,
    pub(crate) action: Action,
    pub(crate) outputs: Vec<Output>,
    /// Of the outputs.
    pub(crate) types: Arc<[SqlType]>,
    /// Of the outputs.
    pub(crate) schema: SchemaRef,
    /// The columns that it reads of rows it finds.
    pub(crate) read: Vec<usize>,
    /// The sequences that it takes numbers of.
    pub(crate) sequences: Vec<u32>,
}

#[derive(Debug)]
pub(crate) enum Action {
    Select(Selection),
    Write(Write),
}

impl Program {
    /// What it does.
    pub fn kind(&self) -> Kind {
        match &self.action {
            Action::Select(_) => Kind::Select,
            Action::Write(write) => write.kind(),
        }
    }

    /// The columns it returns; none for a write without RETURNING.
    pub fn outputs(&self) -> &[Output] {
        &self.outputs
    }

    /// The table it is about.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// The columns that it reads of the rows it finds by key, for who counts that; none for
    /// an INSERT, which looks for nothing.
    pub fn columns_read(&self) -> &[usize] {
        &self.read
    }

    /// Whether it shows, or decides by, what rows have: all it finds by key, and what a write
    /// returns. Such a program needs the right to read its table beside the one to change it.
    pub fn reads(&self) -> bool {
        self.kind() != Kind::Insert || !self.outputs.is_empty()
    }

    /// The sequences that it takes numbers of, by number.
    pub fn sequences(&self) -> &[u32] {
        &self.sequences
    }

    /// Runs a SELECT. The caller knows how many bytes a short range of rows has at most.
    ///
    /// # Errors
    /// [`Stop::Unfit`], also of a program that writes.
    pub fn read(&self, snapshot: Snapshot, inputs: &Inputs) -> Result<Rows, Stop> {
        let Action::Select(selection) = &self.action else {
            return Err(Stop::Unfit);
        };
        let values = Values::of(inputs).ok_or(Stop::Unfit)?;
        selection.run(self, &self.table.view(snapshot), &values)
    }

    /// Runs a write under a transaction, which the caller then commits, or after an error
    /// rolls back.
    ///
    /// # Errors
    /// Any [`Stop`].
    pub fn write(&self, transaction: &Transaction, inputs: &Inputs) -> Result<Written, Stop> {
        let Action::Write(write) = &self.action else {
            return Err(Stop::Unfit);
        };
        let values = Values::of(inputs).ok_or(Stop::Unfit)?;
        if let Some(numbers) = &inputs.numbers {
            numbers.again();
        }
        write.run(self, transaction, &values)
    }

    /// Rows of the outputs, whose values come row by row.
    pub(crate) fn rows(&self, values: &[ValueRef<'_>], rows: usize) -> Rows {
        debug_assert_eq!(values.len(), self.types.len() * rows);
        let types = self.types.iter().cycle();
        let values = types.zip(values).map(|(ty, value)| Value::of(*ty, *value));
        Rows {
            values: values.collect(),
            schema: Arc::clone(&self.schema),
            types: Arc::clone(&self.types),
            rows,
        }
    }

    /// A batch of the outputs, whose values come row by row.
    pub(crate) fn batch(&self, values: &[ValueRef<'_>], rows: usize) -> Result<RecordBatch, Stop> {
        let width = self.outputs.len();
        debug_assert_eq!(values.len(), width * rows);
        let columns: Vec<ArrayRef> = self
            .outputs
            .iter()
            .enumerate()
            .map(|(at, output)| {
                array(
                    output.ty,
                    values[at.min(values.len())..]
                        .iter()
                        .step_by(width)
                        .copied(),
                )
            })
            .collect();
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)
            .map_err(|_| Stop::Unfit)
    }
}
