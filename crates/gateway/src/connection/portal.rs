//! Prepared statements and portals of the extended protocol.

use std::{collections::HashMap, sync::Arc};

use arrow::record_batch::RecordBatch;

use crate::{
    api::{BackendSession, ColumnDescription, Kept, RowStream, RowsTag, Value},
    limits::PORTALS_MAX,
    value::{Column, RowEncoder},
    wire::{Format, Formats, format_of},
};

/// The prepared statement without a name. The session keeps those with names.
pub(super) struct Unnamed<S: BackendSession> {
    pub(super) kept: Kept<S::Prepared>,
    /// The charge for a long statement.
    pub(super) held: Option<Arc<S::Held>>,
}

/// A prepared statement with parameters, and how many of its rows have been sent.
pub(super) struct Portal<S: BackendSession> {
    pub(super) prepared: Arc<S::Prepared>,
    /// The columns of its rows when it was bound; `None` if it returns none.
    pub(super) columns: Option<Arc<[ColumnDescription]>>,
    /// The charge for its statement, if that has no name: the statement may be gone before its
    /// portal.
    pub(super) _statement_held: Option<Arc<S::Held>>,
    /// As the client gave them: none, one for all, or one for each column.
    pub(super) formats: Formats,
    pub(super) progress: Progress,
    /// The charge for a portal with a name, or with long parameters.
    pub(super) _held: Option<S::Held>,
}

pub(super) enum Progress {
    /// It has not run yet.
    Bound(Arc<[Value]>),
    /// Some rows have not been sent.
    Open(Box<OpenRows>),
    /// All rows have been sent.
    Exhausted(RowsTag),
    /// A statement without rows has run, or the portal has failed.
    Done,
}

/// The unsent rows of a portal.
pub(super) struct OpenRows {
    pub(super) batches: RowStream,
    pub(super) encoder: RowEncoder,
    pub(super) tag: RowsTag,
    /// The current batch, and the position of its first unsent row.
    pub(super) current: Option<(RecordBatch, Vec<Column>, usize)>,
}

/// The portals of a connection. Most clients use only the one without a name, anew for every
/// statement.
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

    /// How many portals have names.
    pub(super) fn named(&self) -> usize {
        self.named.len()
    }

    /// Inserts a portal. One without a name replaces the previous one without a name.
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

/// Whether this number of formats is valid for `count` values: none, one for all, or one for each.
pub(super) fn are_formats_of(formats: &[Format], count: usize) -> bool {
    formats.len() <= 1 || formats.len() == count
}

/// The format of each of `count` values.
pub(super) fn spread(formats: &[Format], count: usize) -> Vec<Format> {
    (0..count).map(|at| format_of(formats, at)).collect()
}
