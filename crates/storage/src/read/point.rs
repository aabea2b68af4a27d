//! Single rows by key, read in place: no batch, no copy.

use aerostat_segment::{KeyRef, Pinned, Predicate, ValueRef};

use crate::{RowId, StorageError, TableView, read::scan::Searches};

/// Rows of a segment that are all looked at where no index finds few of them: as many as a
/// segment in front of a base has soon after it was opened.
const SMALL_ROWS_MAX: u32 = 256;

/// A row that a view sees, for as long as the view is there.
#[derive(Clone, Copy)]
pub struct RowView<'a> {
    segment: &'a Pinned,
    row: u32,
}

impl<'a> RowView<'a> {
    /// The row's id, for [`TableView::delete`] and [`TableView::update`] of the same view.
    pub fn id(&self) -> RowId {
        RowId::new(self.segment.no(), self.row)
    }

    /// The value of a column.
    ///
    /// # Panics
    /// When the table has no such column.
    pub fn value(&self, column: usize) -> ValueRef<'a> {
        self.segment.value(self.row, column)
    }
}

impl TableView {
    /// The visible row with this key.
    ///
    /// # Errors
    /// As [`Self::lookup`].
    pub fn row(&self, key: KeyRef<'_>) -> Result<Option<RowView<'_>>, StorageError> {
        let found = self.find(key)?;
        Ok(found.map(|(segment, row)| RowView { segment, row }))
    }

    /// The row with this id, which the view has given or which is in the way of new ones in it.
    ///
    /// # Errors
    /// As [`Self::lookup`].
    ///
    /// # Panics
    /// When the id is another view's.
    pub fn row_by_id(&self, id: RowId) -> Result<RowView<'_>, StorageError> {
        let entry = self.directory().by_no(id.segment());
        let entry = entry.expect("a row id belongs to the view that gave it");
        Ok(RowView {
            segment: entry.pin()?,
            row: id.row(),
        })
    }

    /// Visible rows among which are all that meet the predicates, in no particular order, by
    /// the secondary indexes of the segments; `None` where those do not leave fewer than
    /// `rows_max` to look at. The caller looks whether each meets them.
    ///
    /// # Errors
    /// As [`Self::lookup`].
    pub fn rows_by_index(
        &self,
        predicates: &[Predicate],
        rows_max: usize,
    ) -> Result<Option<Vec<RowView<'_>>>, StorageError> {
        if !predicates.iter().all(|predicate| self.accepts(predicate)) {
            return Ok(None);
        }
        let mut searches = Searches::default();
        let (mut found, mut looked_at) = (Vec::new(), 0);
        for entry in self.directory().entries() {
            let segment = entry.pin()?;
            let mut look = |row: u32| {
                if self.sees(segment, row) {
                    found.push(RowView { segment, row });
                }
            };
            match searches.rows(entry, predicates)? {
                Some(rows) => {
                    looked_at += rows.len();
                    rows.into_iter().for_each(&mut look);
                }
                None => {
                    let rows = segment.rows();
                    if rows > SMALL_ROWS_MAX {
                        return Ok(None);
                    }
                    looked_at += rows as usize;
                    (0..rows).for_each(&mut look);
                }
            }
            if looked_at > rows_max {
                return Ok(None);
            }
        }
        Ok(Some(found))
    }
}
