//! Tables that come, change their shape and go, as a copy's log says.

use std::sync::Arc;

use aerostat_txn::CancelToken;

use super::ApplyError;
use crate::{
    StorageError, Table, TenantStore,
    files::manifest::TableDescription,
    store::{index::Index, shape::Shape},
};

impl TenantStore {
    /// An empty table, as the log describes it.
    pub(super) fn create_described(
        self: &Arc<Self>,
        description: TableDescription,
    ) -> Result<Arc<Table>, StorageError> {
        let TableDescription {
            id,
            schema,
            layout,
            indexes,
        } = description;
        let store = Arc::clone(self);
        Table::create(store, id, Arc::new(schema), &layout, indexes, false)
    }
}

impl Table {
    /// Gives the table the shape of a description: its layout, indexes, and room for NULL. Segments that lack an
    /// index or such room are made anew before this returns; those of another layout later, by whoever keeps
    /// the tenant up.
    ///
    /// # Errors
    /// Those of [`Self::reshape`], and a description of another table.
    pub(super) fn follow_description(
        &self,
        description: &TableDescription,
    ) -> Result<(), ApplyError> {
        if !self.may_be(&description.schema) {
            return Err(ApplyError::Bad("a table that becomes another"));
        }
        let before = Arc::clone(&self.shape());
        let known = |name: &str| {
            before
                .indexes
                .iter()
                .find(|index| index.description.name == name)
        };
        let mut fresh = Vec::new();
        let indexes = description.indexes.iter().map(|wanted| {
            match known(&wanted.name).filter(|index| index.description == *wanted) {
                Some(index) => Arc::clone(index),
                None => {
                    let index = Index::new(wanted.clone());
                    fresh.push(Arc::clone(&index));
                    index
                }
            }
        });
        let indexes = indexes.collect();
        let largest = self.store().sizes().largest();
        let schema = before.schema_of(&description.schema);
        let widened = aerostat_types::TableSchema {
            columns: schema
                .columns
                .iter()
                .zip(&description.schema.columns)
                .map(|(own, wanted)| aerostat_types::Column {
                    nullable: own.nullable || wanted.nullable,
                    ..own.clone()
                })
                .collect(),
            ..schema
        };
        let shape = Shape::of(&widened, &description.layout, indexes, largest)?;
        let attributes = |shape: &Shape| -> Vec<bool> {
            let all = shape.segment_schema.attributes().iter();
            all.map(|attribute| attribute.nullable).collect()
        };
        let gains_room = attributes(&shape) != attributes(&before);
        {
            let shaping = self.shaping();
            self.set_shape(&shaping, shape);
        }
        if gains_room || !fresh.is_empty() {
            self.reshape_all(&CancelToken::new())?;
            fresh.iter().for_each(|index| index.set_built());
        }
        Ok(())
    }
}
