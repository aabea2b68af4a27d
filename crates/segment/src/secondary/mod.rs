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
//! * Every version is a row and is in the index. Who may see which is for the reader to ask.
//! * One writer holds the latch; readers take no lock. A row is entered before it is
//!   published, so whoever sees the row finds it; readers pass over rows that are not
//!   published yet.
//! * Whether keys are unique is for others to say: a segment knows only its own rows.

pub(crate) mod search;

use std::{cmp::Ordering, ops::ControlFlow};

use aerostat_types::IndexKind;

use crate::{
    IndexSpec, Key, KeyRef, Keys, NewRows, Segment, SegmentError, SegmentSchema,
    arena::Arena,
    chain, frozen,
    key::{self, Comparer},
    secondary::search::{IndexSearch, KeySpan},
    segment::Form,
    skip::{Inserter, SkipList},
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
}

impl Segment {
    /// Calls `f` with every published row that has this key in a secondary index, all
    /// versions, in no certain order, until it breaks.
    pub fn find_indexed(
        &self,
        index: usize,
        key: KeyRef<'_>,
        f: &mut dyn FnMut(u32) -> ControlFlow<()>,
    ) {
        let spec = &self.schema().indexes()[index];
        // What was asked to stop has stopped.
        let _ = match (self.form(), spec.kind) {
            (Form::Frozen(frozen), _) => frozen.find_indexed(index, key, f),
            (Form::Hot(arena), IndexKind::Hash) => {
                chain::candidates(arena.secondary(index), key.0, arena.rows(), &mut |row| {
                    if key::row_has(arena, &spec.attributes, row, key) {
                        f(row)
                    } else {
                        ControlFlow::Continue(())
                    }
                })
            }
            (Form::Hot(arena), IndexKind::Ordered) => {
                let list = skip_list(arena, index);
                let compare = |row| compare_row(arena, &spec.attributes, row, key.0);
                let first = list.seek(arena.rows(), &|row| compare(row).is_lt());
                list.rows_from(first, arena.rows())
                    .take_while(|&row| compare(row).is_eq())
                    .try_for_each(f)
            }
        };
    }

    /// The rows that a secondary index finds, ascending and each once; `None` when they are
    /// more than `rows_max`, or the index is no help.
    pub fn search(&self, index: usize, search: &IndexSearch, rows_max: usize) -> Option<Vec<u32>> {
        let mut rows = Vec::new();
        let mut take = |row| {
            rows.push(row);
            if rows.len() > rows_max {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        match search {
            IndexSearch::Keys(keys) => {
                for key in keys {
                    self.find_indexed(index, key.borrow(), &mut take);
                }
            }
            IndexSearch::Spans(spans) => {
                for span in spans {
                    self.search_span(index, span, rows_max, &mut take)?;
                }
            }
        }
        if rows.len() > rows_max {
            return None;
        }
        rows.sort_unstable();
        // Spans have no row in common, unless the order of damaged bytes is none.
        rows.dedup();
        Some(rows)
    }

    /// `None` when the index has no order, or the rows are known to be too many.
    fn search_span(
        &self,
        index: usize,
        span: &KeySpan,
        rows_max: usize,
        f: &mut dyn FnMut(u32) -> ControlFlow<()>,
    ) -> Option<()> {
        let spec = &self.schema().indexes()[index];
        if spec.kind == IndexKind::Hash {
            return None;
        }
        let _ = match self.form() {
            Form::Frozen(frozen) => {
                let found = frozen.indexed_between(index, span);
                if found.len() > rows_max {
                    return None;
                }
                found
                    .map(|at| frozen.indexed_row(index, at))
                    .try_for_each(f)
            }
            Form::Hot(arena) => {
                let list = skip_list(arena, index);
                let is_below =
                    |row, bound: &[u8]| compare_row(arena, &spec.attributes, row, bound).is_lt();
                let first = list.seek(arena.rows(), &|row| is_below(row, &span.lower));
                let upper = span.upper.as_deref();
                list.rows_from(first, arena.rows())
                    .take_while(|&row| upper.is_none_or(|upper| is_below(row, upper)))
                    .try_for_each(f)
            }
        };
        Some(())
    }

    /// The key that a published row has in a secondary index.
    pub fn index_key_of(&self, index: usize, row: u32) -> Key {
        let attributes = &self.schema().indexes()[index].attributes;
        match self.form() {
            Form::Hot(arena) => key::of_row(arena, attributes, row),
            Form::Frozen(frozen) => frozen::key_of(frozen, attributes, row),
        }
    }

    /// Whether one of the attributes of a secondary index is NULL in a published row.
    pub fn index_key_has_null(&self, index: usize, row: u32) -> bool {
        let attributes = &self.schema().indexes()[index].attributes;
        attributes.iter().any(|&at| self.form().is_null(at, row))
    }
}

/// The list of an ordered index.
fn skip_list(arena: &Arena, index: usize) -> SkipList<'_> {
    SkipList::new(arena.secondary(index), arena.plan().capacity())
}

/// The key that a published row has in an index, relative to another.
fn compare_row(arena: &Arena, attributes: &[usize], row: u32, with: &[u8]) -> Ordering {
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
