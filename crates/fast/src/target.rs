//! The table of a program, and the columns of the rows that it returns.

use std::sync::Arc;

use aerostat_storage::{Table, ValueRef};
use aerostat_types::SqlType;
use arrow_array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{Field, Schema, SchemaRef};

use crate::{
    Rows, Stop, Value,
    columns::{array, physical},
};

/// A shape's target once it is bound, with the outputs.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) table: Arc<Table>,
    pub(crate) outputs: Vec<Output>,
    /// Of the outputs.
    types: Arc<[SqlType]>,
    /// Of the outputs.
    schema: SchemaRef,
}

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

impl Target {
    pub(crate) fn new(table: Arc<Table>, outputs: Vec<Output>) -> Self {
        let fields: Vec<Field> = outputs
            .iter()
            .map(|output| output.ty.field(&output.name, true))
            .collect();
        Self {
            table,
            types: outputs.iter().map(|output| output.ty).collect(),
            outputs,
            schema: Arc::new(Schema::new(fields)),
        }
    }

    /// Brings a row's values into the physical forms of their columns.
    pub(crate) fn settle(&self, new: &mut [ValueRef<'_>]) -> Result<(), Stop> {
        let columns = &self.table.schema().columns;
        assert_eq!(new.len(), columns.len(), "a row has the table's columns");
        for (value, column) in new.iter_mut().zip(columns) {
            *value = physical(column.ty, *value).ok_or(Stop::Unfit)?;
        }
        Ok(())
    }

    /// Rows of the outputs, whose values come row by row.
    pub(crate) fn rows(&self, values: &[ValueRef<'_>], rows: usize) -> Rows {
        assert_eq!(
            values.len(),
            self.types.len() * rows,
            "{rows} rows have a value of each output"
        );
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
        assert_eq!(
            values.len(),
            width * rows,
            "{rows} rows have a value of each output"
        );
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
