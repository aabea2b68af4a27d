//! A table: its schema, its directory, and the entry point for rows.

use std::{
    fmt,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use aerostat_memory::{ArenaSource, MemoryClass};
use aerostat_segment::{Key, Literal, Segment, SegmentError, SegmentSchema};
use aerostat_types::{Layout, Physical, SegmentNo, SqlType, TableId, TableIndex, TableSchema};
use arc_swap::ArcSwap;
use arrow_schema::SchemaRef;
use parking_lot::{Mutex, MutexGuard};

use crate::{
    StorageError, TenantStore,
    files::manifest::TableDescription,
    store::{
        directory::{Directory, Entry},
        index::Index,
        shape::Shape,
    },
};

/// A table of one tenant, under one definition: the same rows may be had under another
/// ([`Table::redefined`]).
///
/// Locks, in order: the shaping mutex, stripes of unique indexes, the structure mutex, then segment latches (several only
/// during a rewrite, whose targets nobody else knows yet). No latch is held while
/// waiting for a transaction.
pub struct Table {
    this: Weak<Table>,
    store: Arc<TenantStore>,
    id: TableId,
    schema: Arc<TableSchema>,
    arrow_schema: SchemaRef,
    /// The columns' types, as `codec` takes them.
    types: Vec<SqlType>,
    contents: Arc<Contents>,
    /// The table under the definition it was made with, by which the store knows it, if
    /// this is another.
    original: Option<Arc<Table>>,
}

/// What is the same under every definition of a table.
struct Contents {
    /// Whether no log, checkpoint or backup is to know of the rows.
    is_temporary: bool,
    /// Replaced under the structure mutex.
    shape: ArcSwap<Shape>,
    directory: ArcSwap<Directory>,
    /// Held by whoever replaces the directory.
    structure: Mutex<()>,
    /// Held by whoever makes a new shape of the one there is.
    shaping: Mutex<()>,
    /// Held by whoever freezes.
    freezing: Mutex<()>,
    /// Held while a large segment's rows are copied without the garbage.
    vacuuming: Mutex<()>,
    next_no: AtomicU32,
    /// Whether somebody left garbage who had no time to vacuum.
    vacuum_wish: AtomicBool,
}

impl Table {
    pub(crate) fn create(
        store: Arc<TenantStore>,
        id: TableId,
        schema: Arc<TableSchema>,
        layout: &Layout,
        indexes: Vec<TableIndex>,
        is_temporary: bool,
    ) -> Result<Arc<Self>, StorageError> {
        let indexes = indexes.into_iter().map(Index::built).collect();
        let shape = Shape::of(&schema, layout, indexes, store.sizes().largest())?;
        let table = Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            arrow_schema: schema.arrow(),
            types: schema.columns.iter().map(|column| column.ty).collect(),
            contents: Arc::new(Contents {
                is_temporary,
                shape: ArcSwap::from_pointee(shape),
                directory: ArcSwap::default(),
                structure: Mutex::new(()),
                shaping: Mutex::new(()),
                freezing: Mutex::new(()),
                vacuuming: Mutex::new(()),
                next_no: AtomicU32::new(0),
                vacuum_wish: AtomicBool::new(false),
            }),
            original: None,
            store,
            id,
            schema,
        });
        table.store.living.add(&table);
        Ok(table)
    }

    /// The same rows under another definition: other names, defaults, checks, and other
    /// columns that refuse NULL. Nothing is written: whoever keeps the catalogue keeps the
    /// definition. The table goes on under the old one for those that have it so.
    ///
    /// A column that takes NULL under the new definition alone has to be readied before,
    /// by [`Self::accept_nulls`]. That no row has NULL in one that refuses it from now on
    /// is the caller's to know.
    ///
    /// # Panics
    /// When columns come or go, have another type, or make another primary key: that is
    /// another table.
    pub fn redefined(self: &Arc<Self>, schema: Arc<TableSchema>) -> Arc<Table> {
        assert!(
            self.may_be(&schema),
            "a definition of the same rows has the same types and key"
        );
        let original = self.original.as_ref().unwrap_or(self);
        Arc::new_cyclic(|this| Self {
            this: Weak::clone(this),
            store: Arc::clone(&self.store),
            id: self.id,
            arrow_schema: schema.arrow(),
            schema,
            types: self.types.clone(),
            contents: Arc::clone(&self.contents),
            original: Some(Arc::clone(original)),
        })
    }

    /// Whether the same rows can be had under this definition: it has the same types and key.
    pub fn may_be(&self, schema: &TableSchema) -> bool {
        let types = schema.columns.iter().map(|column| column.ty);
        types.eq(self.types.iter().copied()) && schema.primary_key == self.schema.primary_key
    }

    /// Whether the definition is not the one that the store keeps.
    pub fn is_redefined(&self) -> bool {
        self.original.is_some()
    }

    /// Whether its rows are gone with whoever has it: no log, checkpoint or backup has them.
    pub fn is_temporary(&self) -> bool {
        self.contents.is_temporary
    }

    /// Its id.
    pub fn id(&self) -> TableId {
        self.id
    }

    /// Its description.
    pub fn schema(&self) -> &Arc<TableSchema> {
        &self.schema
    }

    /// Which attributes lie together in new segments. Older ones may differ until a
    /// [`Self::reshape`] has come to them.
    pub fn layout(&self) -> Layout {
        self.shape().layout_of(&self.schema)
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
            Key::encode(&self.shape().segment_schema, values)
        } else {
            None
        }
    }

    /// Empties the table at once, for every view taken from now on; older views
    /// still see its rows. Not part of any transaction: the caller keeps writers out.
    ///
    /// # Panics
    /// When the table is durable: the log has no word for this. The caller puts a new
    /// table in its place.
    pub fn truncate(&self) {
        assert!(
            self.is_temporary() || !self.store.is_durable(),
            "a durable table is emptied by replacing it"
        );
        if self.directory().entries().is_empty() {
            return;
        }
        let _structure = self.structure();
        self.contents.directory.store(Arc::default());
    }

    /// Whether a write by a transaction that must not wait has found garbage it had no time
    /// to [vacuum](Self::vacuum), since this was asked last.
    pub fn take_vacuum_wish(&self) -> bool {
        self.contents.vacuum_wish.load(Ordering::Relaxed)
            && self.contents.vacuum_wish.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn wish_vacuum(&self) {
        self.contents.vacuum_wish.store(true, Ordering::Relaxed);
    }

    /// The table for as long as anybody has it, under whichever definition.
    pub(crate) fn weak(&self) -> Weak<Table> {
        match &self.original {
            Some(original) => Arc::downgrade(original),
            None => Weak::clone(&self.this),
        }
    }

    /// The shape of new segments. It stands as long as the structure mutex is held.
    pub(crate) fn shape(&self) -> arc_swap::Guard<Arc<Shape>> {
        self.contents.shape.load()
    }

    /// A shape of this table, in which the columns have room for NULL that have it now.
    pub(crate) fn shape_of(
        &self,
        layout: &Layout,
        indexes: Vec<Arc<Index>>,
    ) -> Result<Shape, StorageError> {
        let schema = self.shape().schema_of(&self.schema);
        let largest = self.store.sizes().largest();
        Shape::of(&schema, layout, indexes, largest)
    }

    /// Replaces the shape of new segments, for good: it is durable first.
    pub(crate) fn change_shape(
        &self,
        shaping: &MutexGuard<'_, ()>,
        shape: Shape,
    ) -> Result<(), StorageError> {
        let description = self.description(&shape);
        self.store
            .describe_table(description, || self.set_shape(shaping, shape))
    }

    /// What is kept of the table in a shape: under the definition it was made with, whatever
    /// this one is, for that may never be committed. Recovery makes segments by it, so it
    /// says what those have room for.
    pub(crate) fn description(&self, shape: &Shape) -> TableDescription {
        let schema = match &self.original {
            Some(original) => &original.schema,
            None => &self.schema,
        };
        TableDescription {
            id: self.id,
            schema: shape.schema_of(schema),
            layout: shape.layout_of(schema),
            indexes: shape.built_indexes(),
        }
    }

    /// Replaces the shape of new segments, for now.
    pub(crate) fn set_shape(&self, shaping: &MutexGuard<'_, ()>, shape: Shape) {
        assert!(
            is_of(shaping, &self.contents.shaping),
            "who changes a table's shape holds its own shaping mutex"
        );
        assert!(
            shape.is_of_columns(&self.types),
            "a shape lays out the table's columns"
        );
        let _structure = self.structure();
        self.contents.shape.store(Arc::new(shape));
    }

    pub(crate) fn shaping(&self) -> MutexGuard<'_, ()> {
        self.contents.shaping.lock()
    }

    /// The schema of new segments. Attributes and key are those of every segment; groups
    /// may differ.
    pub(crate) fn segment_schema(&self) -> Arc<SegmentSchema> {
        Arc::clone(&self.contents.shape.load().segment_schema)
    }

    pub(crate) fn types(&self) -> &[SqlType] {
        &self.types
    }

    pub(crate) fn is_keyed(&self) -> bool {
        !self.schema.primary_key.is_empty()
    }

    pub(crate) fn directory(&self) -> arc_swap::Guard<Arc<Directory>> {
        self.contents.directory.load()
    }

    /// Whether this is still the newest directory. Asked under a latch.
    pub(crate) fn is_current(&self, directory: &Arc<Directory>) -> bool {
        Arc::ptr_eq(directory, &self.contents.directory.load())
    }

    pub(crate) fn structure(&self) -> MutexGuard<'_, ()> {
        self.contents.structure.lock()
    }

    pub(crate) fn structure_mutex(&self) -> &Mutex<()> {
        &self.contents.structure
    }

    pub(crate) fn vacuuming_mutex(&self) -> &Mutex<()> {
        &self.contents.vacuuming
    }

    pub(crate) fn freezing(&self) -> MutexGuard<'_, ()> {
        self.contents.freezing.lock()
    }

    /// A number that no segment of the table has had.
    pub(crate) fn next_segment_no(&self) -> SegmentNo {
        SegmentNo(self.contents.next_no.fetch_add(1, Ordering::Relaxed))
    }

    /// Replaces the directory; the caller holds the structure mutex, and the latch
    /// of every entry whose range it cuts.
    pub(crate) fn publish(&self, structure: &MutexGuard<'_, ()>, directory: Directory) {
        assert!(
            is_of(structure, &self.contents.structure),
            "who replaces a table's directory holds its own structure mutex"
        );
        self.contents.directory.store(Arc::new(directory));
    }

    /// A new segment that no directory has yet, for as many rows as fit with
    /// `heap_bytes_per_row`. Its reservation covers what an empty one uses; nothing is kept
    /// on failure. The caller holds the structure mutex, so that the shape is the one it
    /// computed the size for.
    pub(crate) fn open_segment(
        &self,
        arena_bytes: usize,
        heap_bytes_per_row: usize,
    ) -> Result<Arc<Entry>, StorageError> {
        assert!(
            arena_bytes <= self.store.sizes().largest(),
            "an arena of {arena_bytes} bytes is larger than any"
        );
        let (schema, no) = (self.segment_schema(), self.next_segment_no());
        let mapping = Box::new(ArenaSource::allocate(arena_bytes)?);
        self.entry_of(Segment::create(
            mapping,
            schema,
            self.id,
            no,
            heap_bytes_per_row,
        ))
    }

    /// A new segment with as much room as another. As [`Self::open_segment`].
    pub(crate) fn open_segment_like(&self, other: &Segment) -> Result<Arc<Entry>, StorageError> {
        let (schema, no) = (self.segment_schema(), self.next_segment_no());
        let mapping = Box::new(ArenaSource::allocate(other.arena_bytes())?);
        self.entry_of(Segment::create_for(
            mapping,
            schema,
            self.id,
            no,
            other.capacity(),
        ))
    }

    fn entry_of(&self, segment: Result<Segment, SegmentError>) -> Result<Arc<Entry>, StorageError> {
        let segment = segment.map_err(StorageError::Segment)?;
        let budget = self.store.budget();
        let reservation = budget.reserve(MemoryClass::Hot, segment.footprint_bytes())?;
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
                bytes_max: self.shape().row_bytes_max,
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

/// Whether the guard is this mutex's.
fn is_of(guard: &MutexGuard<'_, ()>, mutex: &Mutex<()>) -> bool {
    std::ptr::eq(MutexGuard::mutex(guard), mutex)
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("id", &self.id)
            .field("name", &self.schema.name)
            .finish_non_exhaustive()
    }
}
