//! The values of a result as texts, for callers that show them without the wire.

use std::sync::Arc;

use aerostat_types::{ErrorKind, SqlError};
use arrow::record_batch::RecordBatch;

use crate::{
    api::{ColumnDescription, Zone},
    value::Column,
};

/// Writes the values of one result as clients of the simple protocol get them.
#[derive(Debug)]
pub struct Texts {
    columns: Arc<[ColumnDescription]>,
    zone: Zone,
}

impl Texts {
    /// For a result with these columns, whose instants are shown in this zone.
    pub fn new(columns: Arc<[ColumnDescription]>, zone: Zone) -> Self {
        Self { columns, zone }
    }

    /// Passes the rows of a batch on one by one, with `None` for NULL.
    ///
    /// # Errors
    /// The batch does not have the columns.
    pub fn each_row(
        &self,
        batch: &RecordBatch,
        mut row_is: impl FnMut(&[Option<String>]),
    ) -> Result<(), SqlError> {
        if batch.num_columns() != self.columns.len() {
            return Err(internal(
                "a batch has another number of columns than its result",
            ));
        }
        let columns = batch.columns().iter().zip(self.columns.iter());
        let columns: Vec<Column> = columns
            .map(|(array, declared)| Column::new(array, declared, self.zone))
            .collect::<Result<_, _>>()
            .map_err(|error| *error.error)?;
        let mut texts = vec![None; columns.len()];
        for row in 0..batch.num_rows() {
            for (column, text) in columns.iter().zip(&mut texts) {
                *text = text_of(column, row)?;
            }
            row_is(&texts);
        }
        Ok(())
    }
}

fn text_of(column: &Column, row: usize) -> Result<Option<String>, SqlError> {
    if column.is_null(row) {
        return Ok(None);
    }
    let mut bytes = Vec::new();
    let put = column.put_text(row, &mut bytes);
    put.map_err(|error| *error.error)?;
    let text = String::from_utf8(bytes);
    text.map(Some)
        .map_err(|_| internal("a value's text is not UTF-8"))
}

fn internal(message: &str) -> SqlError {
    SqlError::new(ErrorKind::Internal, message)
}

#[cfg(test)]
mod tests {
    use aerostat_types::SqlType;
    use arrow::array::{ArrayRef, Int32Array, RecordBatch, TimestampMicrosecondArray};

    use super::*;

    #[test]
    fn values_are_shown_as_clients_see_them() {
        let columns = [
            ColumnDescription::new("n", SqlType::Integer),
            ColumnDescription::new("at", SqlType::TimestampTz),
        ];
        let n: ArrayRef = Arc::new(Int32Array::from(vec![Some(1), None]));
        let at: ArrayRef = Arc::new(
            TimestampMicrosecondArray::from(vec![Some(0), Some(1_500_000)]).with_timezone("UTC"),
        );
        let batch = RecordBatch::try_from_iter([("n", n), ("at", at)]).unwrap();
        let texts = Texts::new(columns.into(), Zone::named("Europe/Berlin").unwrap());
        let mut rows = Vec::new();
        texts
            .each_row(&batch, |row| rows.push(row.to_vec()))
            .unwrap();
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(rows[0], [text("1"), text("1970-01-01 01:00:00+01")]);
        assert_eq!(rows[1], [None, text("1970-01-01 01:00:01.5+01")]);
        assert!(
            texts
                .each_row(&batch.project(&[0]).unwrap(), |_| {})
                .is_err()
        );
    }
}
