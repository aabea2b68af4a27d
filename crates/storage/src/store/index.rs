//! A secondary index, as part of a table's shape.
//!
//! An index is part of every segment and maintained by it; segments know it by its specification.
//! While it is being built (`indexes`) some segments have it and some do not: scans ask each.
//! `unique` enforces what a unique index demands of rows.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use aerostat_segment::{IndexSpec, KeyRef, NewRows, Pinned};
use aerostat_types::TableIndex;
use parking_lot::Mutex;

use crate::{StorageError, store::directory::Directory};

/// Locks of a unique index. Two loads of single rows on two cores meet once in 64 rows; a
/// batch takes nearly all, and then only one batch goes on at a time.
const STRIPES: u64 = 64;

// Who locks many has a bit for each.
const _: () = assert!(STRIPES <= u64::BITS as u64);

/// An index of a table's shape.
pub(crate) struct Index {
    pub(crate) description: TableIndex,
    /// As segments know it.
    pub(crate) spec: IndexSpec,
    /// Of a unique index: whoever inserts a key holds the one that its hash leads to.
    pub(crate) stripes: Box<[Mutex<()>]>,
    is_built: AtomicBool,
}

impl Index {
    /// Of a table whose segments all have it, for there are none.
    pub(crate) fn built(description: TableIndex) -> Arc<Self> {
        let index = Self::new(description);
        index.set_built();
        index
    }

    /// Of a table whose segments are still to get it.
    pub(crate) fn new(description: TableIndex) -> Arc<Self> {
        let stripes = if description.unique { STRIPES } else { 0 };
        Arc::new(Self {
            spec: IndexSpec {
                kind: description.kind,
                attributes: description.columns.clone(),
                unique: description.unique,
            },
            stripes: (0..stripes).map(|_| Mutex::new(())).collect(),
            is_built: AtomicBool::new(false),
            description,
        })
    }

    /// Whether all segments have it, and its keys are what it demands.
    pub(crate) fn is_built(&self) -> bool {
        self.is_built.load(Ordering::Acquire)
    }

    /// From now on all segments have it, and its keys are what it demands.
    pub(crate) fn set_built(&self) {
        self.is_built.store(true, Ordering::Release);
    }

    /// Whether the key that a row of these columns has may be equal to another's.
    pub(crate) fn is_comparable(&self, new: NewRows<'_>, row: usize) -> bool {
        let mut of_index = self.spec.attributes.iter();
        self.description.nulls_not_distinct || of_index.all(|&column| !new.is_null(column, row))
    }

    /// Which of [`Self::stripes`] guards the key.
    pub(crate) fn stripe(&self, key: KeyRef<'_>) -> usize {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        (hasher.finish() % STRIPES) as usize
    }

    /// The segments that have it, with its position in each.
    ///
    /// # Errors
    /// Those of pinning them.
    pub(crate) fn within<'a>(
        &self,
        directory: &'a Directory,
    ) -> Result<Vec<(&'a Pinned, usize)>, StorageError> {
        let entries = directory.entries().iter();
        let positions = entries.filter_map(|entry| {
            let position = entry.segment().schema().index_position(&self.spec)?;
            Some((entry, position))
        });
        positions
            .map(|(entry, position)| Ok((entry.pin()?, position)))
            .collect()
    }
}
