//! Prepared statements and portals of the extended protocol.

use std::sync::Arc;

use arrow::{array::ArrayRef, record_batch::RecordBatch};

use crate::{
    api::{ColumnDescription, RowStream, RowsTag},
    backend::BackendSession,
    value::{Column, RowEncoder},
    wire::Format,
};

/// A prepared statement.
pub(super) struct Statement<S: BackendSession> {
    pub(super) prepared: S::Prepared,
    /// The numbers a client is told: its own wish where it had one, else the engine's choice.
    pub(super) parameter_oids: Vec<u32>,
}

/// A statement with parameters, on its way through its rows.
pub(super) struct Portal<S: BackendSession> {
    pub(super) statement: Arc<Statement<S>>,
    /// As the client gave them: none, one for all, or one for each column.
    pub(super) formats: Vec<Format>,
    pub(super) progress: Progress,
}

pub(super) enum Progress {
    /// Not run yet.
    Bound(Vec<ArrayRef>),
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

impl<S: BackendSession> Portal<S> {
    pub(super) fn columns(&self) -> Option<Arc<[ColumnDescription]>> {
        S::columns(&self.statement.prepared)
    }
}

/// One format for each of `count` columns; `None` when the client gave another number of them.
pub(super) fn spread(formats: &[Format], count: usize) -> Option<Vec<Format>> {
    match *formats {
        [] => Some(vec![Format::Text; count]),
        [format] => Some(vec![format; count]),
        _ if formats.len() == count => Some(formats.to_vec()),
        _ => None,
    }
}
