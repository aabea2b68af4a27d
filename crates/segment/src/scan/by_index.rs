//! Finding rows by a secondary index: those with a key, or with keys within spans.
//!
//! A hot segment is searched by its chains and links, a frozen one by its order of rows
//! (`secondary` draws them).

use std::ops::ControlFlow;

use aerostat_types::IndexKind;

use crate::{
    IndexSearch, Key, KeyRef, KeySpan, Pinned,
    body::segment::Form,
    format::chain,
    frozen,
    input::key,
    secondary::{compare_row, skip_list},
};

impl Pinned<'_> {
    /// Calls `f` with every published row that has this key in a secondary index, all
    /// versions, in no certain order, until it breaks.
    pub fn find_indexed(
        &self,
        index: usize,
        key: KeyRef<'_>,
        f: &mut dyn FnMut(u32) -> ControlFlow<()>,
    ) {
        self.assert_has_index(index);
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
        self.assert_has_index(index);
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
        self.assert_has_index(index);
        let attributes = &self.schema().indexes()[index].attributes;
        match self.form() {
            Form::Hot(arena) => key::of_row(arena, attributes, row),
            Form::Frozen(frozen) => frozen::key_of(frozen, attributes, row),
        }
    }

    /// Calls `f` with every published row that has this key of these attributes, all versions, in order, until
    /// it breaks: for a segment that has no index of them. Looks at every row.
    pub fn find_equal(
        &self,
        attributes: &[usize],
        key: KeyRef<'_>,
        f: &mut dyn FnMut(u32) -> ControlFlow<()>,
    ) {
        let has = |row: &u32| match self.form() {
            Form::Hot(arena) => key::row_has(arena, attributes, *row, key),
            Form::Frozen(frozen) => frozen::key_of(frozen, attributes, *row).borrow() == key,
        };
        // What was asked to stop has stopped.
        let _ = (0..self.rows()).filter(has).try_for_each(f);
    }

    /// Whether one of the attributes of a secondary index is NULL in a published row.
    pub fn index_key_has_null(&self, index: usize, row: u32) -> bool {
        self.assert_has_index(index);
        let attributes = &self.schema().indexes()[index].attributes;
        attributes.iter().any(|&at| self.form().is_null(at, row))
    }
}
