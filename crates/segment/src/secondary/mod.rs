//! Secondary indexes: from the values of some attributes to the rows that have them.
//!
//! ```text
//!            hot: every version, entered before it is published    frozen
//!  hash      heads ─► newest row ─► older ─► …     (`chain`)       rows in order of their keys,
//!  ordered   links between rows in order of keys   (`skip`)        searched by halving (`sorted`)
//! ```
//!
//! * An index holds row numbers only. A row's key in it is derived from the row's values
//!   ([`mod@crate::key`]), and is compared as bytes; NULLs come last.
//! * Every version is a row and is in the index. The reader decides which version is visible.
//! * One writer holds the latch; readers take no lock. A row is entered before it is published,
//!   so a reader that sees the row finds it; readers skip rows that are not published yet.
//! * Uniqueness is checked elsewhere: a segment knows only its own rows.

pub(crate) mod search;

use std::cmp::Ordering;

use aerostat_types::IndexKind;

use crate::{
    IndexSpec, Key, KeyRef, Keys, NewRows, SegmentError, SegmentSchema,
    format::{
        arena::Arena,
        chain,
        skip::{Inserter, SkipList},
    },
    input::key::{self, Comparer},
};

impl IndexSpec {
    /// The keys that the rows have in it.
    ///
    /// # Errors
    /// As [`Keys::encode`]; NULLs where the attribute takes them are no error.
    pub fn keys<'a>(
        &self,
        schema: &SegmentSchema,
        rows: impl Into<NewRows<'a>>,
    ) -> Result<Keys, SegmentError> {
        Keys::of(schema, &self.attributes, rows)
    }

    /// Whether rows have the same keys in it whichever of two schemas, of the same types, a segment has. They
    /// have not where an attribute takes NULL in one of them only.
    pub fn has_same_keys(&self, a: &SegmentSchema, b: &SegmentSchema) -> bool {
        key::translated::are_same(&self.attributes, a, b)
    }

    /// The key in it that the rows with this one in a schema have in another; `None` where there can be none,
    /// for that takes no NULL.
    ///
    /// # Panics
    /// When the key is not one of this index's, or the schemas have other types.
    pub fn translated(
        &self,
        key: KeyRef<'_>,
        from: &SegmentSchema,
        to: &SegmentSchema,
    ) -> Option<Key> {
        key::translated::translated(key, &self.attributes, from, to)
    }
}

/// The list of an ordered index.
pub(crate) fn skip_list(arena: &Arena, index: usize) -> SkipList<'_> {
    SkipList::new(arena.secondary(index), arena.plan().capacity())
}

/// The key that a published row has in an index, relative to another.
pub(crate) fn compare_row(arena: &Arena, attributes: &[usize], row: u32, with: &[u8]) -> Ordering {
    let mut comparer = Comparer::with(with);
    key::put_row(arena, attributes, row, &mut comparer);
    comparer.order()
}

/// Enters rows that are stored and not published, `first` and those that follow, into all
/// secondary indexes of a hot segment. For the holder of the latch.
///
/// # Errors
/// A column that does not suit its attribute, which one that has been stored does.
pub(crate) fn enter(arena: &Arena, rows: NewRows<'_>, first: u32) -> Result<(), SegmentError> {
    for (index, spec) in arena.schema().indexes().iter().enumerate() {
        let keys = spec.keys(arena.schema(), rows)?;
        match spec.kind {
            IndexKind::Hash => {
                let cells = arena.secondary(index);
                for (row, key) in (first..).zip(keys.iter()) {
                    chain::insert(cells, key.0, row);
                }
            }
            IndexKind::Ordered => enter_ordered(arena, index, &keys, first),
        }
    }
    Ok(())
}

/// In order of keys, so that each begins to search where the last was entered.
fn enter_ordered(arena: &Arena, index: usize, keys: &Keys, first: u32) {
    let attributes = &arena.schema().indexes()[index].attributes;
    let mut order: Vec<u32> = (0..keys.len() as u32).collect();
    if !keys.is_strictly_ascending() {
        order.sort_by_key(|&nth| keys.get(nth as usize));
    }
    let mut inserter = Inserter::of(skip_list(arena, index));
    for nth in order {
        let key = keys.get(nth as usize);
        // Of equal keys the later row is the greater: it comes after those that are there.
        inserter.insert(first + nth, &|other| match other.checked_sub(first) {
            Some(nth) => keys.get(nth as usize) <= key,
            None => compare_row(arena, attributes, other, key.0).is_le(),
        });
    }
}

/// Examines the links of a sealed segment, so that every walk along them ends.
pub(crate) fn check(arena: &Arena) -> Result<(), SegmentError> {
    for (index, spec) in arena.schema().indexes().iter().enumerate() {
        let sound = match spec.kind {
            IndexKind::Hash => chain::is_sound(arena.secondary(index), arena.rows()),
            IndexKind::Ordered => skip_list(arena, index).is_sound(arena.rows()),
        };
        if !sound {
            return Err(SegmentError::Corrupt("an index whose links lead astray"));
        }
    }
    Ok(())
}
