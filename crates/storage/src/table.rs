//! A table: its schema, its directory, and the way in for rows.

use std::{
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicU32, Ordering},
    },
};

use aerostat_memory::{ArenaSource, Reservation};
use aerostat_segment::{AttributeSpec, Key, Literal, Segment, SegmentError, SegmentSchema};
use aerostat_txn::Snapshot;
use aerostat_types::{Layout, Physical, SegmentNo, SqlType, TableId, TableSchema};
use arc_swap::ArcSwap;
use arrow_schema::SchemaRef;
use parking_lot::{Mutex, MutexGuard};

use crate::{
    COLUMNS_MAX, StorageError, TableStatistics, TableView, TenantStore,
    directory::{Directory, Entry},
};

/// A table of one tenant.
///
/// Locks, in order: the structure mutex, then segment latches (several only
/// during a rewrite, whose targets nobody else knows yet). No latch is held while
/// waiting for a transaction.
pub struct Table {
    this: Weak<Table>,
    store: Arc<TenantStore>,
    id: TableId,
    schema: Arc<TableSchema>,
    arrow_schema: SchemaRef,
    layout: Layout,
    /// The columns' types, as the log's codec takes them.
    types: Vec<SqlType>,
    segment_schema: Arc<SegmentSchema>,
    directory: ArcSwap<Directory>,
    /// Held by whoever replaces the directory.
    structure: Mutex<()>,
    /// Held by whoever freezes.
    freezing: Mutex<()>,
    next_no: AtomicU32,
    /// The most a row may take, so that two versions of it fit into one arena.
    row_bytes_max: usize,
}

impl Table {
    pub(crate) fn create(
        store: Arc<TenantStore>,
        id: TableId,
        schema: Arc<TableSchema>,
        layout: &Layout,
    ) -> Result<Arc<Self>, StorageError> {
        let columns = schema.columns.len();
        if columns > COLUMNS_MAX {
            return Err(StorageError::TooManyColumns { columns });
        }
        let names: Vec<_> = schema.columns.iter().map(|column| &column.name).collect();
        let groups = layout.resolve(&names)?;
        let attributes = schema
            .columns
            .iter()
            .enumerate()
            .map(|(at, column)| AttributeSpec {
                ty: column.ty,
                nullable: column.nullable && !schema.primary_key.contains(&at),
            })
            .collect();
        let segment_schema = SegmentSchema::new(attributes, groups, schema.primary_key.clone())
            .map_err(StorageError::Segment)?;
        let largest = store.sizes().largest();
        let overhead = segment_schema
            .arena_bytes_for(2, 0)
            .filter(|bytes| *bytes < largest);
        let row_bytes_fixed = segment_schema.row_bytes_fixed();
        let Some(overhead) = overhead else {
            return Err(StorageError::RowTooWide {
                bytes: row_bytes_fixed,
                bytes_max: largest / 2,
            });
        };
        Ok(Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            arrow_schema: schema.arrow(),
            row_bytes_max: row_bytes_fixed + (largest - overhead) / 2,
            segment_schema: Arc::new(segment_schema),
            layout: layout.clone(),
            types: schema.columns.iter().map(|column| column.ty).collect(),
            directory: ArcSwap::default(),
            structure: Mutex::new(()),
            freezing: Mutex::new(()),
            next_no: AtomicU32::new(0),
            store,
            id,
            schema,
        }))
    }

    /// Its id.
    pub fn id(&self) -> TableId {
        self.id
    }

    /// Its description.
    pub fn schema(&self) -> &Arc<TableSchema> {
        &self.schema
    }

    /// Which attributes lie together.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The Arrow schema of its rows.
    pub fn arrow_schema(&self) -> &SchemaRef {
        &self.arrow_schema
    }

    /// The tenant.
    pub fn store(&self) -> &Arc<TenantStore> {
        &self.store
    }

    /// The key that these values of the key columns make, given in key order.
    /// `None` if there are too many or too few, or one is not of its column's kind.
    pub fn key(&self, values: &[Literal]) -> Option<Key> {
        if self.is_keyed() {
            Key::encode(&self.segment_schema, values)
        } else {
            None
        }
    }

    /// The table as the snapshot sees it.
    pub fn view(self: &Arc<Self>, snapshot: Snapshot) -> TableView {
        TableView::new(Arc::clone(self), snapshot, self.directory.load_full())
    }

    /// Empties the table at once, for every view taken from now on; older views
    /// still see its rows. Not part of any transaction: the caller keeps writers out.
    ///
    /// # Panics
    /// When the tenant is durable: the log has no word for this. The caller puts a new
    /// table in its place.
    pub fn truncate(&self) {
        assert!(
            !self.store.is_durable(),
            "a durable table is emptied by replacing it"
        );
        let _structure = self.structure();
        self.directory.store(Arc::default());
    }

    /// Sizes and counts of now.
    pub fn statistics(&self) -> TableStatistics {
        TableStatistics::of(self, &self.directory.load())
    }

    pub(crate) fn weak(&self) -> Weak<Table> {
        Weak::clone(&self.this)
    }

    pub(crate) fn segment_schema(&self) -> &Arc<SegmentSchema> {
        &self.segment_schema
    }

    pub(crate) fn types(&self) -> &[SqlType] {
        &self.types
    }

    pub(crate) fn is_keyed(&self) -> bool {
        !self.schema.primary_key.is_empty()
    }

    pub(crate) fn row_bytes_max(&self) -> usize {
        self.row_bytes_max
    }

    pub(crate) fn directory(&self) -> arc_swap::Guard<Arc<Directory>> {
        self.directory.load()
    }

    /// Whether this is still the newest directory. Asked under a latch.
    pub(crate) fn is_current(&self, directory: &Arc<Directory>) -> bool {
        Arc::ptr_eq(directory, &self.directory.load())
    }

    pub(crate) fn structure(&self) -> MutexGuard<'_, ()> {
        self.structure.lock()
    }

    pub(crate) fn try_structure(&self) -> Option<MutexGuard<'_, ()>> {
        self.structure.try_lock()
    }

    pub(crate) fn freezing(&self) -> MutexGuard<'_, ()> {
        self.freezing.lock()
    }

    /// A number that no segment of the table has had.
    pub(crate) fn next_segment_no(&self) -> SegmentNo {
        SegmentNo(self.next_no.fetch_add(1, Ordering::Relaxed))
    }

    /// Replaces the directory; the caller holds the structure mutex, and the latch
    /// of every entry whose range it cuts.
    pub(crate) fn publish(&self, _structure: &MutexGuard<'_, ()>, directory: Directory) {
        self.directory.store(Arc::new(directory));
    }

    /// A new segment that no directory has yet. Its reservation covers what an
    /// empty one uses and `bytes_expected` more; nothing is kept on failure.
    pub(crate) fn open_segment(
        &self,
        arena_bytes: usize,
        heap_bytes_per_row: usize,
        bytes_expected: u64,
    ) -> Result<Arc<Entry>, StorageError> {
        let mut reservation = self
            .store
            .budget()
            .reserve(bytes_expected.min(arena_bytes as u64))?;
        let no = self.next_segment_no();
        let mapping = ArenaSource::allocate(arena_bytes)?;
        let schema = Arc::clone(&self.segment_schema);
        let segment = Segment::create(Box::new(mapping), schema, self.id, no, heap_bytes_per_row)
            .map_err(StorageError::Segment)?;
        grow_to(&mut reservation, segment.footprint_bytes())?;
        Ok(Entry::new(segment, reservation))
    }

    /// Puts a segment's error into the table's words.
    pub(crate) fn segment_error(&self, error: SegmentError) -> StorageError {
        match error {
            SegmentError::NullValue { attribute } => self.not_null(attribute),
            SegmentError::ValueTooLong {
                attribute, bytes, ..
            } => StorageError::ValueTooLong {
                column: self.schema.columns[attribute].name.clone(),
                bytes,
            },
            SegmentError::RowTooWide { bytes, .. } => StorageError::RowTooWide {
                bytes,
                bytes_max: self.row_bytes_max,
            },
            other => StorageError::Segment(other),
        }
    }

    pub(crate) fn not_null(&self, column: usize) -> StorageError {
        StorageError::NotNull {
            table: self.schema.name.clone(),
            column: self.schema.columns[column].name.clone(),
        }
    }

    /// Bytes of the fixed-width attributes as the user counts them: without slots
    /// of variable-length values, null bitmaps and versions.
    pub(crate) fn raw_bytes_fixed(&self) -> u64 {
        let widths = self
            .schema
            .columns
            .iter()
            .map(|column| match column.ty.physical() {
                Physical::Variable => 0,
                fixed => fixed.width() as u64,
            });
        widths.sum()
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("id", &self.id)
            .field("name", &self.schema.name)
            .finish_non_exhaustive()
    }
}

fn grow_to(reservation: &mut Reservation, bytes: u64) -> Result<(), StorageError> {
    if reservation.bytes() < bytes {
        reservation.try_resize(bytes)?;
    }
    Ok(())
}
