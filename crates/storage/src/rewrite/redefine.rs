//! Preparing a table for another definition of the same rows.
//!
//! Names, and which columns refuse NULL, belong to the catalogue: [`Table::redefined`] returns
//! the table under a definition, and its segments stay as they are. Only room for NULL has to be
//! made before a column may have it. That room stays when the column refuses NULL again, so
//! shapes change in one direction only, and a statement that still has the table under an older
//! definition can do no harm.

use std::time::Duration;

use aerostat_txn::CancelToken;

use crate::{ReshapeReport, StorageError, Table, store::shape::Shape};

/// How often in a row all segments that are left may have writers in their way, and how long
/// to leave them to those: ten seconds in which nothing at all could be brought into shape.
const FRUITLESS_MAX: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(10);

impl Table {
    /// Makes room for NULL in columns, for good once this returns: in new segments, and in
    /// those there are, which are made anew one by one while statements go on. Nothing happens
    /// to columns that have it. Those of the primary key never do.
    ///
    /// # Errors
    /// [`StorageError::Cancelled`], [`StorageError::RowTooWide`], lack of memory, and writers
    /// in the way of a segment all the time; of a durable tenant [`StorageError::Commit`]. A
    /// later call goes on.
    pub fn accept_nulls(
        &self,
        columns: &[usize],
        cancel: &CancelToken,
    ) -> Result<(), StorageError> {
        {
            let shaping = self.shaping();
            let before = self.shape();
            let mut schema = before.schema_of(self.schema());
            for &column in columns {
                schema.columns[column].nullable = true;
            }
            let (layout, indexes) = (self.layout(), before.indexes.clone());
            let largest = self.store().sizes().largest();
            let shape = Shape::of(&schema, &layout, indexes, largest)?;
            if shape.segment_schema.fingerprint() != before.segment_schema.fingerprint() {
                self.change_shape(&shaping, shape)?;
            }
        }
        self.reshape_all(cancel).map(drop)
    }

    /// Brings every segment to the shape of new ones, however often writers are in the way.
    pub(crate) fn reshape_all(&self, cancel: &CancelToken) -> Result<ReshapeReport, StorageError> {
        let mut report = self.reshape(cancel)?;
        let mut fruitless = 0;
        while report.segments_left > 0 {
            if fruitless == FRUITLESS_MAX {
                return Err(StorageError::KeyCrowded {
                    table: self.schema().name.clone(),
                });
            }
            // Writers were in the way of all that is left.
            self.store().txns().clock().sleep(PAUSE);
            let again = self.reshape(cancel)?;
            fruitless = if again.segments_replaced > 0 {
                0
            } else {
                fruitless + 1
            };
            report = report.and(again);
        }
        Ok(report)
    }
}
