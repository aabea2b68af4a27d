//! A secondary index, as part of a table's shape.
//!
//! An index is part of every segment and maintained by it; segments know it by its specification.
//! While it is being built (`indexes`) some segments have it and some do not: scans ask each.
//! `unique` enforces what a unique index demands of rows.

use std::{
    cell::OnceCell,
    hash::{DefaultHasher, Hash, Hasher},
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use aerostat_segment::{IndexSpec, KeyRef, NewRows, Pinned, Segment, SegmentSchema};
use aerostat_types::TableIndex;
use parking_lot::Mutex;

use crate::{
    StorageError,
    store::directory::{Access, Directory, Entry},
};

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

    /// Its pieces, one in each segment. While it is being built there are some that lack it, which have none.
    /// `schema` is the one of which keys are made.
    pub(crate) fn within<'a>(
        &'a self,
        directory: &'a Directory,
        schema: &'a SegmentSchema,
        access: Access,
    ) -> Vec<Piece<'a>> {
        let entries = directory.entries().iter();
        let pieces = entries.map(|entry| self.piece(entry, schema, access));
        pieces
            .filter(|piece| piece.position.is_some() || self.is_built())
            .collect()
    }

    /// Its piece in a segment.
    pub(crate) fn piece<'a>(
        &'a self,
        entry: &'a Arc<Entry>,
        schema: &'a SegmentSchema,
        access: Access,
    ) -> Piece<'a> {
        let own = entry.segment().schema();
        Piece {
            spec: &self.spec,
            position: own.index_position(&self.spec),
            foreign: (!self.spec.has_same_keys(schema, own)).then_some(schema),
            entry,
            access,
            pinned: OnceCell::new(),
        }
    }
}

/// An index in one segment, which is pinned when a key may be in it.
///
/// A segment of an older shape is asked as well: one may be left where a change of shape was cancelled, or
/// where a tenant was opened with the images of before.
pub(crate) struct Piece<'a> {
    spec: &'a IndexSpec,
    entry: &'a Arc<Entry>,
    /// Among the segment's indexes, if it has it.
    position: Option<usize>,
    /// What keys are made of, where the segment's are others.
    foreign: Option<&'a SegmentSchema>,
    access: Access,
    pinned: OnceCell<Pinned<'a>>,
}

impl<'a> Piece<'a> {
    pub(crate) fn segment(&self) -> &'a Segment {
        self.entry.segment()
    }

    /// Among the segment's indexes, if it has it.
    pub(crate) fn position(&self) -> Option<usize> {
        self.position
    }

    /// The segment with the index and the values of its keys.
    ///
    /// # Errors
    /// Those of [`Entry::pin`].
    pub(crate) fn pinned(&self) -> Result<&Pinned<'a>, StorageError> {
        if let Some(pinned) = self.pinned.get() {
            return Ok(pinned);
        }
        let pinned = self.entry.pin(self.access, |want| match self.position {
            Some(position) => want.index(position),
            None => want.attributes(self.spec.attributes.iter().copied()),
        })?;
        Ok(self.pinned.get_or_init(|| pinned))
    }

    /// Lets go of what is pinned.
    pub(crate) fn unpin(&mut self) {
        self.pinned.take();
    }

    /// Calls `f` with every row that has the key, all versions, until it breaks.
    ///
    /// # Errors
    /// As [`Self::pinned`].
    pub(crate) fn find(
        &self,
        key: KeyRef<'_>,
        f: &mut dyn FnMut(u32) -> ControlFlow<()>,
    ) -> Result<(), StorageError> {
        let translated;
        let key = match self.foreign {
            None => key,
            Some(of) => match self.spec.translated(key, of, self.segment().schema()) {
                Some(own) => {
                    translated = own;
                    translated.borrow()
                }
                None => return Ok(()),
            },
        };
        match self.position {
            Some(position) => {
                if self.segment().may_have_indexed(position, key) {
                    self.pinned()?.find_indexed(position, key, f);
                }
            }
            None => self.pinned()?.find_equal(&self.spec.attributes, key, f),
        }
        Ok(())
    }
}
