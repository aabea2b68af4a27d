//! Single rows by key, read in place: no batch, no copy.

use std::{array, cell::OnceCell};

use aerostat_segment::{KeyRef, Pinned, Predicate, ValueRef};

use crate::{
    RowId, StorageError, TableView,
    read::scan::Searches,
    store::directory::{Access, Entry},
};

/// Rows of a segment that are all looked at where no index finds few of them: as many as a
/// segment in front of a base has soon after it was opened.
const SMALL_ROWS_MAX: u32 = 256;

/// Pins that are kept without an allocation: a statement by key looks into one segment or two.
const PINS_AT_ONCE: usize = 4;

/// Reads rows of a view, and keeps what it has given in memory for as long as it is there.
pub struct RowReader<'v> {
    view: &'v TableView,
    /// The columns whose values are read.
    columns: &'v [usize],
    access: Access,
    pins: Pins<'v>,
}

/// A row that a view sees, for as long as the reader is there.
#[derive(Clone, Copy)]
pub struct RowView<'r> {
    segment: &'r Pinned<'r>,
    row: u32,
}

/// Pins, which stay where they are.
struct Pins<'v> {
    first: [OnceCell<Pinned<'v>>; PINS_AT_ONCE],
    others: OnceCell<Box<Pins<'v>>>,
}

impl<'v> Pins<'v> {
    fn new() -> Self {
        Self {
            first: array::from_fn(|_| OnceCell::new()),
            others: OnceCell::new(),
        }
    }

    fn keep(&self, mut pinned: Pinned<'v>) -> &Pinned<'v> {
        let mut pins = self;
        loop {
            for cell in &pins.first {
                match cell.set(pinned) {
                    Ok(()) => return cell.get().expect("it was set"),
                    Err(back) => pinned = back,
                }
            }
            pins = pins.others.get_or_init(|| Box::new(Pins::new()));
        }
    }
}

impl<'r> RowView<'r> {
    /// The row's id, for [`TableView::delete`] and [`TableView::update`] of the same view.
    pub fn id(&self) -> RowId {
        RowId::new(self.segment.no(), self.row)
    }

    /// The value of a column.
    ///
    /// # Panics
    /// When the table has no such column, or the reader was not told that it is read.
    pub fn value(&self, column: usize) -> ValueRef<'r> {
        self.segment.value(self.row, column)
    }
}

impl TableView {
    /// A reader of rows, of which these columns are read. What is evicted it reads back, if it may wait
    /// for that.
    pub fn rows<'v>(&'v self, columns: &'v [usize], may_wait: bool) -> RowReader<'v> {
        RowReader {
            view: self,
            columns,
            access: Access::rows(may_wait),
            pins: Pins::new(),
        }
    }
}

impl<'v> RowReader<'v> {
    /// The view.
    pub fn view(&self) -> &'v TableView {
        self.view
    }

    /// The visible row with this key.
    ///
    /// # Errors
    /// [`StorageError::WouldWait`] when it was told not to wait and must, and as
    /// [`TableView::lookup`].
    pub fn row(&self, key: KeyRef<'_>) -> Result<Option<RowView<'_>>, StorageError> {
        let found = self.view.find_with(key, self.access, self.columns)?;
        Ok(found.map(|(segment, row)| RowView {
            segment: self.pins.keep(segment),
            row,
        }))
    }

    /// The row with this id, which the view has given or which is in the way of new ones in it.
    ///
    /// # Errors
    /// As [`Self::row`].
    ///
    /// # Panics
    /// When the id is another view's.
    pub fn row_by_id(&self, id: RowId) -> Result<RowView<'_>, StorageError> {
        let entry = self.view.directory().by_no(id.segment());
        let entry = entry.expect("a row id belongs to the view that gave it");
        Ok(RowView {
            segment: self.pin(entry)?,
            row: id.row(),
        })
    }

    fn pin(&self, entry: &'v Entry) -> Result<&Pinned<'v>, StorageError> {
        let columns = self.columns.iter().copied();
        let pinned = entry.pin(self.access, |want| want.attributes(columns))?;
        Ok(self.pins.keep(pinned))
    }

    /// Visible rows among which are all that meet the predicates, in no particular order, by
    /// the secondary indexes of the segments; `None` where those do not leave fewer than
    /// `rows_max` to look at. The caller looks whether each meets them.
    ///
    /// # Errors
    /// As [`Self::row`].
    pub fn rows_by_index(
        &self,
        predicates: &[Predicate],
        rows_max: usize,
    ) -> Result<Option<Vec<RowView<'_>>>, StorageError> {
        let view = self.view;
        if !predicates.iter().all(|predicate| view.accepts(predicate)) {
            return Ok(None);
        }
        let mut searches = Searches::default();
        let (mut found, mut looked_at) = (Vec::new(), 0);
        for entry in view.directory().entries() {
            let rows = match searches.rows(entry, predicates, self.access)? {
                Some(rows) => rows,
                None => {
                    let rows = entry.segment().rows();
                    if rows > SMALL_ROWS_MAX {
                        return Ok(None);
                    }
                    (0..rows).collect()
                }
            };
            looked_at += rows.len();
            let sees = |row: &u32| view.sees(entry.segment(), *row);
            let mut visible = rows.into_iter().filter(sees).peekable();
            if visible.peek().is_some() {
                let segment = self.pin(entry)?;
                found.extend(visible.map(|row| RowView { segment, row }));
            }
            if looked_at > rows_max {
                return Ok(None);
            }
        }
        Ok(Some(found))
    }
}
