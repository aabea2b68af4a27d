//! A table's shape: how its new segments are laid out.
//!
//! Every segment keeps the schema with which it was made, so a table may have segments of several
//! shapes: scans and writers ask the segment. The table's shape is one value that is replaced as
//! a whole, under the structure mutex: a holder of that sees one shape. `reshape` brings older
//! segments to it.

use std::sync::Arc;

use aerostat_segment::{AttributeSpec, Segment, SegmentSchema};
use aerostat_types::{Layout, SqlType, TableIndex, TableSchema};

use crate::{COLUMNS_MAX, StorageError, store::index::Index};

/// How new segments of a table are laid out.
pub(crate) struct Shape {
    /// As the user states it, by the names that the columns had then.
    layout: Layout,
    names: Vec<String>,
    /// The secondary indexes, built or being built, in the order in which they were made.
    pub(crate) indexes: Vec<Arc<Index>>,
    /// Attributes, groups, key and secondary indexes of new segments.
    pub(crate) segment_schema: Arc<SegmentSchema>,
    /// The columns of the key and of unique indexes, ascending: an update that leaves their
    /// values as they are keeps the row's keys.
    pub(crate) key_columns: Vec<usize>,
    /// The most a row may take, so that two versions of it fit into one arena.
    pub(crate) row_bytes_max: usize,
}

impl Shape {
    /// The shape of a table in a layout, with arenas of at most `arena_bytes_max`.
    ///
    /// # Errors
    /// [`StorageError::TooManyColumns`], [`StorageError::RowTooWide`] when the fixed-width
    /// part of a row does not fit, [`StorageError::Layout`] when the layout names what the
    /// schema lacks, [`StorageError::Segment`] when an index does.
    pub(crate) fn of(
        schema: &TableSchema,
        layout: &Layout,
        indexes: Vec<Arc<Index>>,
        arena_bytes_max: usize,
    ) -> Result<Shape, StorageError> {
        let columns = schema.columns.len();
        if columns > COLUMNS_MAX {
            return Err(StorageError::TooManyColumns { columns });
        }
        let names = schema.names();
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
        // Indexes that differ in name alone are one in the segments.
        let mut specs = Vec::with_capacity(indexes.len());
        for index in &indexes {
            if !specs.contains(&index.spec) {
                specs.push(index.spec.clone());
            }
        }
        let segment_schema = SegmentSchema::new(attributes, groups, schema.primary_key.clone())
            .and_then(|schema| schema.with_indexes(specs))
            .map_err(StorageError::Segment)?;
        let overhead = segment_schema
            .arena_bytes_for(2, 0)
            .filter(|bytes| *bytes < arena_bytes_max);
        let row_bytes_fixed = segment_schema.row_bytes_fixed();
        let Some(overhead) = overhead else {
            return Err(StorageError::RowTooWide {
                bytes: row_bytes_fixed,
                bytes_max: arena_bytes_max / 2,
            });
        };
        let unique = indexes.iter().filter(|index| index.spec.unique);
        let of_unique = unique.flat_map(|index| &index.spec.attributes);
        let mut key_columns: Vec<usize> = schema.primary_key.clone();
        key_columns.extend(of_unique);
        key_columns.sort_unstable();
        key_columns.dedup();
        Ok(Shape {
            key_columns,
            layout: layout.clone(),
            names,
            indexes,
            row_bytes_max: row_bytes_fixed + (arena_bytes_max - overhead) / 2,
            segment_schema: Arc::new(segment_schema),
        })
    }

    /// The layout by the names of a definition.
    pub(crate) fn layout_of(&self, schema: &TableSchema) -> Layout {
        self.layout.renamed(&self.names, &schema.names())
    }

    /// The definition with NULL in every column that segments have room for it in. A column
    /// that was made NOT NULL keeps that room: segments that have it are there, and the log
    /// may have rows with it.
    pub(crate) fn schema_of(&self, schema: &TableSchema) -> TableSchema {
        let mut schema = TableSchema::clone(schema);
        let attributes = self.segment_schema.attributes();
        for (column, attribute) in schema.columns.iter_mut().zip(attributes) {
            column.nullable = attribute.nullable;
        }
        schema
    }

    /// The indexes that are built.
    pub(crate) fn built_indexes(&self) -> Vec<TableIndex> {
        let built = self.indexes.iter().filter(|index| index.is_built());
        built.map(|index| index.description.clone()).collect()
    }

    /// Whether it lays out columns of these types, in their order.
    pub(crate) fn is_of_columns(&self, types: &[SqlType]) -> bool {
        let attributes = self.segment_schema.attributes().iter();
        attributes
            .map(|attribute| attribute.ty)
            .eq(types.iter().copied())
    }

    /// Whether a segment is as a new one would be.
    pub(crate) fn has(&self, segment: &Segment) -> bool {
        segment.schema().fingerprint() == self.segment_schema.fingerprint()
    }
}
