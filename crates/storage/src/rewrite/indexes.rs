//! Secondary indexes of a table: building, dropping and renaming them.
//!
//! ```text
//!  build   new shape: new segments have the index, new rows are checked as far as segments
//!          have it ─► reshape: all have it ─► every latch once: who began before has ended
//!          ─► unique: each row is looked for in all segments
//! ```

use std::sync::Arc;

use aerostat_txn::Transaction;
use aerostat_types::TableIndex;

use crate::{
    StorageError, Table,
    rewrite::reshape::ReshapeReport,
    store::{index::Index, shape::Shape},
};

impl Table {
    /// The secondary indexes that are built, in the order in which they were begun.
    pub fn indexes(&self) -> Vec<TableIndex> {
        self.shape().built_indexes()
    }

    /// Builds a secondary index, segment by segment, while others read and write; all rows
    /// written from now on are in it. Waits, if it is unique, for transactions that have
    /// inserted or deleted equal rows and have not ended; those of `txn` count as there.
    /// Nothing happens if the very index is there already.
    ///
    /// # Errors
    /// [`StorageError::IndexExists`] when another one has the name,
    /// [`StorageError::IndexNotUnique`] when rows are equal, [`StorageError::RowTooWide`],
    /// [`StorageError::Cancelled`] and [`StorageError::Deadlock`] by the transaction, and lack
    /// of memory; of a durable tenant also [`StorageError::Commit`]. The table is then without
    /// the index.
    pub fn create_index(
        &self,
        txn: &Transaction,
        description: TableIndex,
    ) -> Result<ReshapeReport, StorageError> {
        let Some(index) = self.add_index(description)? else {
            return Ok(ReshapeReport::default());
        };
        let built = self.build_index(txn, &index);
        if built.is_err() {
            let shaping = self.shaping();
            let without = self.shape_without(&index.description.name)?;
            self.set_shape(&shaping, without);
        }
        built
    }

    /// Drops a secondary index; whether there was one. Its memory goes back as segments are
    /// made anew, which [`Table::reshape`] does with all.
    ///
    /// # Errors
    /// Of a durable tenant [`StorageError::Commit`].
    pub fn drop_index(&self, name: &str) -> Result<bool, StorageError> {
        let shaping = self.shaping();
        let without = self.shape_without(name)?;
        let found = without.indexes.len() < self.shape().indexes.len();
        if found {
            self.change_shape(&shaping, without)?;
        }
        Ok(found)
    }

    /// Gives a secondary index another name, which no other has; whether there was one. The
    /// caller keeps writers out.
    ///
    /// # Errors
    /// Of a durable tenant [`StorageError::Commit`].
    pub fn rename_index(&self, from: &str, to: &str) -> Result<bool, StorageError> {
        let shaping = self.shaping();
        let mut indexes = self.shape().indexes.clone();
        let named = indexes
            .iter_mut()
            .find(|index| index.description.name == from);
        let Some(index) = named else {
            return Ok(false);
        };
        *index = Index::built(TableIndex {
            name: to.to_owned(),
            ..index.description.clone()
        });
        let shape = self.shape_of(&self.layout(), indexes)?;
        self.change_shape(&shaping, shape)?;
        Ok(true)
    }

    fn shape_without(&self, name: &str) -> Result<Shape, StorageError> {
        let mut indexes = self.shape().indexes.clone();
        indexes.retain(|index| index.description.name != name);
        self.shape_of(&self.layout(), indexes)
    }

    /// Makes the index part of the table's shape, unless it is. It is not durable before it
    /// is built.
    fn add_index(&self, description: TableIndex) -> Result<Option<Arc<Index>>, StorageError> {
        let shaping = self.shaping();
        let mut indexes = self.shape().indexes.clone();
        let same_name = |index: &&Arc<Index>| index.description.name == description.name;
        match indexes.iter().find(same_name) {
            Some(index) if index.description == description => return Ok(None),
            Some(_) => {
                return Err(StorageError::IndexExists {
                    name: description.name,
                });
            }
            None => {}
        }
        let index = Index::new(description);
        indexes.push(Arc::clone(&index));
        let shape = self.shape_of(&self.layout(), indexes)?;
        self.set_shape(&shaping, shape);
        Ok(Some(index))
    }

    fn build_index(&self, txn: &Transaction, index: &Index) -> Result<ReshapeReport, StorageError> {
        let report = self.reshape_all(&txn.cancel_token())?;
        if index.spec.unique {
            self.check_unique(txn, index)?;
        }
        index.set_built();
        let shaping = self.shaping();
        let shape = self.shape_of(&self.layout(), self.shape().indexes.clone())?;
        self.change_shape(&shaping, shape)?;
        Ok(report)
    }
}
