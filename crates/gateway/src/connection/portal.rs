//! Prepared statements and portals of the extended protocol.

use std::{collections::HashMap, sync::Arc};

use arrow::record_batch::RecordBatch;

use crate::{
    api::{BackendSession, ColumnDescription, Kept, RowStream, RowsTag, Value},
    limits::PORTALS_MAX,
    value::{Column, RowEncoder},
    wire::{Format, Formats, format_of},
};

/// The prepared statement without a name; the session has those with one.
pub(super) struct Unnamed<S: BackendSession> {
    pub(super) kept: Kept<S::Prepared>,
    /// What a long one is charged as.
    pub(super) held: Option<Arc<S::Held>>,
}

/// A statement with parameters, on its way through its rows.
pub(super) struct Portal<S: BackendSession> {
    pub(super) prepared: Arc<S::Prepared>,
    /// Those of its rows, as they were when it was bound; `None` if it gives none.
    pub(super) columns: Option<Arc<[ColumnDescription]>>,
    /// What the statement is charged as, if it was without a name: it may be gone before its portal.
    pub(super) _statement_held: Option<Arc<S::Held>>,
    /// As the client gave them: none, one for all, or one for each column.
    pub(super) formats: Formats,
    pub(super) progress: Progress,
    /// What one with a name, or long parameters, is charged as.
    pub(super) _held: Option<S::Held>,
}

pub(super) enum Progress {
    /// Not run yet.
    Bound(Arc<[Value]>),
    /// Rows are left.
    Open(Box<OpenRows>),
    /// The rows have all been sent.
    Exhausted(RowsTag),
    /// A statement without rows was run, or the portal failed.
    Done,
}

/// The rows of a portal that are left.
pub(super) struct OpenRows {
    pub(super) batches: RowStream,
    pub(super) encoder: RowEncoder,
    pub(super) tag: RowsTag,
    /// The batch at hand and the first of its rows that was not sent.
    pub(super) current: Option<(RecordBatch, Vec<Column>, usize)>,
}

/// The portals of a connection. Most clients have only the one without a name, with every
/// statement anew.
pub(super) struct Portals<S: BackendSession> {
    unnamed: Option<Portal<S>>,
    named: HashMap<String, Portal<S>>,
}

impl<S: BackendSession> Default for Portals<S> {
    fn default() -> Self {
        Self {
            unnamed: None,
            named: HashMap::new(),
        }
    }
}

impl<S: BackendSession> Portals<S> {
    pub(super) fn get(&self, name: &str) -> Option<&Portal<S>> {
        match name {
            "" => self.unnamed.as_ref(),
            name => self.named.get(name),
        }
    }

    /// How many have names.
    pub(super) fn named(&self) -> usize {
        self.named.len()
    }

    /// One without a name takes the place of the one before.
    pub(super) fn insert(&mut self, name: &str, portal: Portal<S>) {
        match name {
            "" => self.unnamed = Some(portal),
            name => {
                let before = self.named.insert(name.to_owned(), portal);
                assert!(before.is_none(), "a portal with a name is not replaced");
                assert!(
                    self.named.len() <= PORTALS_MAX,
                    "{} portals are more than there may be",
                    self.named.len()
                );
            }
        }
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<Portal<S>> {
        match name {
            "" => self.unnamed.take(),
            name => self.named.remove(name),
        }
    }

    pub(super) fn clear(&mut self) {
        self.unnamed = None;
        self.named.clear();
    }
}

/// Whether so many formats say the format of each of `count` values: none, one for all, or one
/// for each.
pub(super) fn are_formats_of(formats: &[Format], count: usize) -> bool {
    formats.len() <= 1 || formats.len() == count
}

/// The format of each of `count` values.
pub(super) fn spread(formats: &[Format], count: usize) -> Vec<Format> {
    (0..count).map(|at| format_of(formats, at)).collect()
}
