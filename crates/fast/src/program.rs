//! A shape bound to a table.

use std::sync::Arc;

use aerostat_storage::Table;
use aerostat_txn::{Snapshot, Transaction};
use aerostat_types::RelationId;

use crate::{
    Inputs, Kind, Output, Rows, Stop, Written, input::Values, select::Selection, target::Target,
    write::Write,
};

/// A shape bound to a table, ready to run any number of times at once.
#[derive(Debug)]
pub struct Program {
    pub(crate) target: Target,
    pub(crate) action: Action,
    /// The columns that it reads of rows it finds.
    pub(crate) read: Vec<usize>,
    /// The sequences that it takes numbers of.
    pub(crate) sequences: Vec<RelationId>,
}

#[derive(Debug)]
pub(crate) enum Action {
    Select(Selection),
    Write(Write),
}

impl Program {
    /// What it does.
    pub fn kind(&self) -> Kind {
        match &self.action {
            Action::Select(_) => Kind::Select,
            Action::Write(write) => write.kind(),
        }
    }

    /// The columns it returns; none for a write without RETURNING.
    pub fn outputs(&self) -> &[Output] {
        &self.target.outputs
    }

    /// The table it is about.
    pub fn table(&self) -> &Arc<Table> {
        &self.target.table
    }

    /// The columns that it reads of the rows it finds by key, for who counts that; none for
    /// an INSERT, which looks for nothing.
    pub fn columns_read(&self) -> &[usize] {
        &self.read
    }

    /// Whether it shows, or decides by, what rows have: all it finds by key, and what a write
    /// returns. Such a program needs the right to read its table beside the one to change it.
    pub fn reads(&self) -> bool {
        self.kind() != Kind::Insert || !self.target.outputs.is_empty()
    }

    /// The sequences that it takes numbers of, by number.
    pub fn sequences(&self) -> &[RelationId] {
        &self.sequences
    }

    /// Runs a SELECT. The caller knows how many bytes a short range of rows has at most.
    ///
    /// # Errors
    /// [`Stop::Unfit`], also of a program that writes.
    pub fn read(&self, snapshot: Snapshot, inputs: &Inputs) -> Result<Rows, Stop> {
        let Action::Select(selection) = &self.action else {
            return Err(Stop::Unfit);
        };
        let values = Values::of(inputs).ok_or(Stop::Unfit)?;
        let view = self.target.table.view(snapshot);
        // Who reads where others must not wait comes again by the planner's way.
        let rows = view.rows(&self.read, false);
        selection.run(&self.target, &rows, &values)
    }

    /// Runs a write under a transaction, which the caller then commits, or after an error
    /// rolls back.
    ///
    /// # Errors
    /// Any [`Stop`].
    pub fn write(&self, transaction: &Transaction, inputs: &Inputs) -> Result<Written, Stop> {
        let Action::Write(write) = &self.action else {
            return Err(Stop::Unfit);
        };
        let values = Values::of(inputs).ok_or(Stop::Unfit)?;
        if let Some(numbers) = &inputs.numbers {
            numbers.again();
        }
        write.run(&self.target, &self.read, transaction, &values)
    }
}
