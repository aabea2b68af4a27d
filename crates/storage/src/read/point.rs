//! Single rows by key, read in place: no batch, no copy.

use std::sync::Arc;

use aerostat_segment::{KeyRef, Predicate, ValueRef};

use crate::{RowId, TableView, read::scan::Searches, store::directory::Entry};

/// Rows of a segment that are all looked at where no index finds few of them: as many as a
/// segment in front of a base has soon after it was opened.
const SMALL_ROWS_MAX: u32 = 256;

/// A row that a view sees, for as long as the view is there.
#[derive(Clone, Copy)]
pub struct RowView<'a> {
    entry: &'a Arc<Entry>,
    row: u32,
}

impl<'a> RowView<'a> {
    /// The row's id, for [`TableView::delete`] and [`TableView::update`] of the same view.
    pub fn id(&self) -> RowId {
        RowId::new(self.entry.place.no, self.row)
    }

    /// The value of a column.
    ///
    /// # Panics
    /// When the table has no such column.
    pub fn value(&self, column: usize) -> ValueRef<'a> {
        self.entry.segment.value(self.row, column)
    }
}

impl TableView {
    /// The visible row with this key.
    pub fn row(&self, key: KeyRef<'_>) -> Option<RowView<'_>> {
        let (entry, row) = self.find(self.directory().route(key)?, key)?;
        Some(RowView { entry, row })
    }

    /// The row with this id, which the view has given or which is in the way of new ones in it.
    ///
    /// # Panics
    /// When the id is another view's.
    pub fn row_by_id(&self, id: RowId) -> RowView<'_> {
        let entry = self.directory().by_no(id.segment());
        RowView {
            entry: entry.expect("a row id belongs to the view that gave it"),
            row: id.row(),
        }
    }

    /// Visible rows among which are all that meet the predicates, in no particular order, by
    /// the secondary indexes of the segments; `None` where those do not leave fewer than
    /// `rows_max` to look at. The caller looks whether each meets them.
    pub fn rows_by_index(
        &self,
        predicates: &[Predicate],
        rows_max: usize,
    ) -> Option<Vec<RowView<'_>>> {
        if !predicates.iter().all(|predicate| self.accepts(predicate)) {
            return None;
        }
        let mut searches = Searches::default();
        let (mut found, mut looked_at) = (Vec::new(), 0);
        for entry in self.directory().entries() {
            let segment = &entry.segment;
            let mut look = |row: u32| {
                if self.sees(segment, row) {
                    found.push(RowView { entry, row });
                }
            };
            match searches.rows(segment, predicates) {
                Some(rows) => {
                    looked_at += rows.len();
                    rows.into_iter().for_each(&mut look);
                }
                None => {
                    let rows = segment.rows();
                    if rows > SMALL_ROWS_MAX {
                        return None;
                    }
                    looked_at += rows as usize;
                    (0..rows).for_each(&mut look);
                }
            }
            if looked_at > rows_max {
                return None;
            }
        }
        Some(found)
    }
}
