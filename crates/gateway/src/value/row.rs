//! Rows of a result as `DataRow` messages.

use std::sync::Arc;

use aerostat_types::{ErrorKind, SqlType};
use arrow::{
    array::{ArrayRef, AsArray, Int64Array},
    datatypes::DataType,
    record_batch::RecordBatch,
};

use super::{Column, Texts, Zone, array::put_value, oid::is_entry, plain};
use crate::{
    api::{ColumnDescription, EntryNumbers, Value},
    limits::ROW_BYTES_MAX,
    sqlstate::WireError,
    wire::{Format, Output, format_of},
};

/// Encodes the batches of one result.
pub(crate) struct RowEncoder {
    columns: Arc<[ColumnDescription]>,
    formats: Vec<Format>,
    zone: Zone,
    numbers: Option<EntryNumbers>,
}

impl RowEncoder {
    /// `formats` has one entry for each column.
    pub(crate) fn new(columns: Arc<[ColumnDescription]>, formats: Vec<Format>, zone: Zone) -> Self {
        assert_eq!(columns.len(), formats.len(), "each column has its format");
        assert!(
            columns.len() <= usize::from(u16::MAX),
            "a row of {} values cannot be sent",
            columns.len()
        );
        Self {
            columns,
            formats,
            zone,
            numbers: None,
        }
    }

    /// Whether a result shows catalogue entries as names whose numbers the client wants.
    pub(crate) fn wants_numbers(columns: &[ColumnDescription], formats: &[Format]) -> bool {
        let wants = |(column, format): (&ColumnDescription, &Format)| {
            *format == Format::Binary && is_entry(column.oid)
        };
        columns.iter().zip(formats).any(wants)
    }

    /// This encoder with the numbers of the catalogue entries that names stand for.
    pub(crate) fn with_numbers(mut self, numbers: EntryNumbers) -> Self {
        self.numbers = Some(numbers);
        self
    }

    /// Prepares a batch for encoding.
    pub(crate) fn prepare(&self, batch: &RecordBatch) -> Result<Vec<Column>, WireError> {
        if batch.num_columns() != self.columns.len() {
            return Err(WireError::new(
                ErrorKind::Internal,
                "a batch has another number of columns than its result",
            ));
        }
        let columns = batch.columns().iter().zip(self.columns.iter());
        columns
            .zip(&self.formats)
            .map(|((array, declared), format)| {
                let numbered = self.numbered(array, declared, *format);
                Column::new(numbered.as_ref().unwrap_or(array), declared, self.zone)
            })
            .collect()
    }

    /// The column with numbers in the place of catalogue entries' names, if the client wants
    /// numbers.
    fn numbered(
        &self,
        array: &ArrayRef,
        declared: &ColumnDescription,
        format: Format,
    ) -> Option<ArrayRef> {
        let numbers = self.numbers.as_ref()?;
        let is_name = *array.data_type() == DataType::Utf8View && is_entry(declared.oid);
        if format != Format::Binary || !is_name {
            return None;
        }
        let names = array.as_string_view().iter();
        let number = |name: Option<&str>| name.map(|name| numbers(declared.oid, name));
        Some(Arc::new(names.map(number).collect::<Int64Array>()))
    }

    /// Appends one row.
    pub(crate) fn put_row(
        &self,
        columns: &[Column],
        row: usize,
        output: &mut Output,
    ) -> Result<(), WireError> {
        assert_eq!(
            columns.len(),
            self.columns.len(),
            "a row has the columns that were described"
        );
        let start = output.begin(b'D');
        output
            .bytes
            .extend_from_slice(&(columns.len() as u16).to_be_bytes());
        for (column, &format) in columns.iter().zip(&self.formats) {
            let at = output.bytes.len();
            let mut put = put_value(column, row, format, &mut output.bytes);
            if let (Ok(()), Some(charset)) = (&put, output.charset)
                && let Some(texts) = column.texts(format)
            {
                put = texts.encode_last(charset, at, &mut output.bytes);
            }
            if let Err(error) = put.and_then(|()| check_length(output.bytes.len() - start)) {
                // No part of a row that failed may reach the client.
                output.bytes.truncate(start - 1);
                return Err(error);
            }
        }
        output.end(start);
        Ok(())
    }
}

/// Appends a row of plain values of these types.
pub(crate) fn put_values(
    row: &[Value],
    types: &[SqlType],
    formats: &[Format],
    zone: Zone,
    output: &mut Output,
) -> Result<(), WireError> {
    assert_eq!(row.len(), types.len(), "a row has a value of each type");
    let start = output.begin(b'D');
    output
        .bytes
        .extend_from_slice(&(row.len() as u16).to_be_bytes());
    for (at, (value, ty)) in row.iter().zip(types).enumerate() {
        let (format, before) = (format_of(formats, at), output.bytes.len());
        let mut put = plain::put(value, *ty, zone, format, &mut output.bytes);
        if let (Ok(()), Some(charset)) = (&put, output.charset)
            && (format == Format::Text || ty.is_text())
        {
            put = Texts::Whole.encode_last(charset, before, &mut output.bytes);
        }
        if let Err(error) = put.and_then(|()| check_length(output.bytes.len() - start)) {
            // No part of a row that failed may reach the client.
            output.bytes.truncate(start - 1);
            return Err(error);
        }
    }
    output.end(start);
    Ok(())
}

/// Checks that a row of this many bytes may be sent.
pub(crate) fn check_length(bytes: usize) -> Result<(), WireError> {
    if bytes <= ROW_BYTES_MAX {
        return Ok(());
    }
    Err(WireError::new(
        ErrorKind::ProgramLimitExceeded,
        "a row of the result is longer than 128 MiB",
    ))
}
