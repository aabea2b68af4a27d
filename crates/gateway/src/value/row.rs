//! Rows of a result as `DataRow` messages.

use std::sync::Arc;

use aerostat_types::ErrorKind;
use arrow::record_batch::RecordBatch;

use super::{Column, Zone, array::put_value};
use crate::{
    api::ColumnDescription,
    limits::ROW_BYTES_MAX,
    sqlstate::WireError,
    wire::{Format, Output},
};

/// Encodes the batches of one result.
#[derive(Debug)]
pub(crate) struct RowEncoder {
    columns: Arc<[ColumnDescription]>,
    formats: Vec<Format>,
    zone: Zone,
}

impl RowEncoder {
    /// `formats` has one entry for each column.
    pub(crate) fn new(columns: Arc<[ColumnDescription]>, formats: Vec<Format>, zone: Zone) -> Self {
        Self {
            columns,
            formats,
            zone,
        }
    }

    /// Makes a batch ready.
    pub(crate) fn prepare(&self, batch: &RecordBatch) -> Result<Vec<Column>, WireError> {
        if batch.num_columns() != self.columns.len() {
            return Err(WireError::new(
                ErrorKind::Internal,
                "a batch has another number of columns than its result",
            ));
        }
        let columns = batch.columns().iter().zip(self.columns.iter());
        columns
            .map(|(array, declared)| Column::new(array, declared, self.zone))
            .collect()
    }

    /// Appends one row.
    pub(crate) fn put_row(
        &self,
        columns: &[Column],
        row: usize,
        output: &mut Output,
    ) -> Result<(), WireError> {
        let start = output.begin(b'D');
        output
            .bytes
            .extend_from_slice(&(columns.len() as u16).to_be_bytes());
        for (column, &format) in columns.iter().zip(&self.formats) {
            let put = put_value(column, row, format, &mut output.bytes);
            if let Err(error) = put.and_then(|()| check_length(output.bytes.len() - start)) {
                // Nothing of a row that failed may reach the client.
                output.bytes.truncate(start - 1);
                return Err(error);
            }
        }
        output.end(start);
        Ok(())
    }
}

fn check_length(bytes: usize) -> Result<(), WireError> {
    if bytes <= ROW_BYTES_MAX {
        return Ok(());
    }
    Err(WireError::new(
        ErrorKind::ProgramLimitExceeded,
        "a row of the result is longer than 1 GiB",
    ))
}
