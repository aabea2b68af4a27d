//! A table as one snapshot sees it.

use std::{
    ops::{ControlFlow, Range},
    sync::Arc,
};

use aerostat_segment::{KeyRef, Pinned, Predicate, Seen, Segment, Selection};
use aerostat_txn::{Snapshot, Visibility};
use arc_swap::Guard;
use arrow_array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow_schema::{FieldRef, Schema, SchemaRef};
use arrow_select::concat::concat_batches;

use crate::{
    RowId, StorageError, Table,
    store::directory::{Access, Directory, Entry},
};

/// How often stamps are read again before it is certain that nobody will overwrite
/// them. Once is enough for a row, but a segment may have read a morsel's stamps
/// ahead, so the bound is far above a morsel's rows.
pub(crate) const REREADS_MAX: u32 = 1 << 16;

/// A table, a snapshot, and the segments there were when the view was taken.
///
/// Everything the snapshot sees is in those segments: what committed by then was
/// written to a directory no newer than this one. Clones are cheap.
#[derive(Clone)]
pub struct TableView {
    table: Arc<Table>,
    snapshot: Snapshot,
    directory: Arc<Directory>,
}

impl Table {
    /// The table as the snapshot sees it.
    pub fn view(self: &Arc<Self>, snapshot: Snapshot) -> TableView {
        TableView {
            table: Arc::clone(self),
            snapshot,
            directory: Guard::into_inner(self.directory()),
        }
    }
}

impl TableView {
    /// The table.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// The snapshot.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Whether a scan takes this predicate. It then keeps exactly the rows for
    /// which the predicate is true.
    pub fn accepts(&self, predicate: &Predicate) -> bool {
        self.table.shape().segment_schema.accepts(predicate)
    }

    /// The rows of a range of an entry's that the snapshot sees.
    pub(crate) fn visible(&self, entry: &Entry, range: Range<u32>) -> Selection {
        let (mut rows, some_ended) = self.visible_or_ended(entry, range);
        if some_ended {
            self.take_out_ended(entry, &mut rows);
        }
        rows
    }

    /// The same rows, and if so it says, among them some that have ended:
    /// [`Self::take_out_ended`] costs least when few rows are left.
    pub(crate) fn visible_or_ended(&self, entry: &Entry, range: Range<u32>) -> (Selection, bool) {
        let mut rows = Selection::Rows(Vec::new());
        let some_ended = self.look(|seen| entry.segment().select_seen(range, seen, &mut rows));
        (rows, some_ended)
    }

    /// Leaves the rows that the snapshot sees, of such as were found that way.
    pub(crate) fn take_out_ended(&self, entry: &Entry, rows: &mut Selection) {
        self.look(|seen| entry.segment().keep_seen(seen, rows));
    }

    /// Calls `f` with the snapshot as segments ask it.
    fn look<T>(&self, f: impl FnOnce(&mut Seen<'_>) -> T) -> T {
        let mut rereads = 0;
        let mut sees = |begin, end| match self.snapshot.sees(begin, end) {
            Visibility::Visible => Some(true),
            Visibility::Hidden => Some(false),
            Visibility::Reread => {
                rereads += 1;
                assert!(
                    rereads < REREADS_MAX,
                    "a transaction has settled and its stamp stands"
                );
                None
            }
        };
        f(&mut Seen {
            at: self.snapshot.at().0,
            sees: &mut sees,
        })
    }

    /// The visible row with this key.
    ///
    /// # Errors
    /// [`StorageError::ReadBack`] and [`StorageError::OutOfMemory`] where values are not in memory
    /// and cannot be read back.
    pub fn lookup(&self, key: KeyRef<'_>) -> Result<Option<RowId>, StorageError> {
        let found = self.find(key)?;
        Ok(found.map(|(segment, row)| RowId::new(segment.no(), row)))
    }

    /// The columns of these rows, in the order of the list.
    ///
    /// # Errors
    /// As [`Self::lookup`].
    pub fn fetch(
        &self,
        row_ids: &[RowId],
        projection: &[usize],
    ) -> Result<RecordBatch, StorageError> {
        let schema = self.projected(projection);
        let batches = row_ids
            .chunk_by(|a, b| a.segment() == b.segment() && a.row() < b.row())
            .map(|run| {
                let entry = self
                    .directory
                    .by_no(run[0].segment())
                    .expect("a row id belongs to the view that gave it");
                let rows = Selection::Rows(run.iter().map(|id| id.row()).collect());
                let wanted = projection.iter().copied();
                let segment = entry.pin(Access::Rows, |want| want.attributes(wanted))?;
                Ok(gather(&segment, &schema, projection, &rows, None))
            })
            .collect::<Result<Vec<_>, StorageError>>()?;
        let found = match <[RecordBatch; 1]>::try_from(batches) {
            Ok([batch]) => batch,
            Err(batches) => concat_batches(&schema, &batches).expect("all batches have one schema"),
        };
        assert_eq!(
            found.num_rows(),
            row_ids.len(),
            "there is a row for each id"
        );
        Ok(found)
    }

    pub(crate) fn directory(&self) -> &Directory {
        &self.directory
    }

    pub(crate) fn projected(&self, projection: &[usize]) -> SchemaRef {
        let schema = self.table.arrow_schema();
        Arc::new(Schema::new(
            projection
                .iter()
                .map(|&at| Arc::clone(&schema.fields()[at]))
                .collect::<Vec<_>>(),
        ))
    }

    /// The visible version of a key, and the segment that has it: there is one at most, in
    /// the segment of the key's range or in that one's base.
    pub(crate) fn find(&self, key: KeyRef<'_>) -> Result<Option<(Pinned<'_>, u32)>, StorageError> {
        self.find_with(key, Access::Rows, &[])
    }

    /// As [`Self::find`], with the values of columns.
    pub(crate) fn find_with(
        &self,
        key: KeyRef<'_>,
        access: Access,
        columns: &[usize],
    ) -> Result<Option<(Pinned<'_>, u32)>, StorageError> {
        let Some(position) = self.directory.route(key) else {
            return Ok(None);
        };
        for entry in self.directory.ranges()[position].entries() {
            let segment = entry.pin_key(access)?;
            let mut found = None;
            segment.find(key, &mut |row| {
                if self.sees(&segment, row) {
                    found = Some(row);
                    return ControlFlow::Break(());
                }
                ControlFlow::Continue(())
            });
            let Some(row) = found else { continue };
            if segment.is_whole() || columns.is_empty() {
                return Ok(Some((segment, row)));
            }
            let wanted = columns.iter().copied();
            let segment = entry.pin(access, |want| want.attributes(wanted))?;
            return Ok(Some((segment, row)));
        }
        Ok(None)
    }

    /// Whether the snapshot sees the version. Reads its stamps again while their
    /// transaction has just settled, which happens once per stamp.
    pub(crate) fn sees(&self, segment: &Segment, row: u32) -> bool {
        for _ in 0..REREADS_MAX {
            let (begin, end) = segment.stamps(row);
            match self.snapshot.sees(begin, end) {
                Visibility::Visible => return true,
                Visibility::Hidden => return false,
                Visibility::Reread => std::hint::spin_loop(),
            }
        }
        unreachable!("a transaction has settled and its stamp stands")
    }
}

/// The selected rows of a segment as a batch; `extra` is the last column.
pub(crate) fn gather(
    segment: &Pinned<'_>,
    schema: &SchemaRef,
    projection: &[usize],
    rows: &Selection,
    extra: Option<ArrayRef>,
) -> RecordBatch {
    segment.prefetch(projection, rows);
    let mut columns: Vec<ArrayRef> = projection
        .iter()
        .map(|&attribute| segment.gather(attribute, rows))
        .collect();
    columns.extend(extra);
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    let schema = with_room_for_null(schema, &columns);
    RecordBatch::try_new_with_options(schema, columns, &options)
        .expect("a segment gives columns of the table's types")
}

/// The schema, with NULL where columns have some: rows from before a definition that
/// refuses NULL are read under it, too, until somebody has looked at them.
fn with_room_for_null(schema: &SchemaRef, columns: &[ArrayRef]) -> SchemaRef {
    let fits = |(field, column): (&FieldRef, &ArrayRef)| {
        field.is_nullable() || column.logical_null_count() == 0
    };
    if schema.fields().iter().zip(columns).all(fits) {
        return Arc::clone(schema);
    }
    let fields = schema.fields().iter().zip(columns).map(|(field, column)| {
        let has_null = column.logical_null_count() > 0;
        let field = field.as_ref().clone();
        let nullable = field.is_nullable() || has_null;
        field.with_nullable(nullable)
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}
