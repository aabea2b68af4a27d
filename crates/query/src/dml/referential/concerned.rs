//! The tables to which foreign keys lead a statement, and its locks on these.
//!
//! PostgreSQL locks them as its triggers run: ROW SHARE where rows are only looked at or
//! locked, ROW EXCLUSIVE where an action writes. Here a statement locks all tables that it may
//! come to while it is planned, with the catalogue that it will use.

use std::{collections::HashSet, sync::Arc};

use aerostat_catalog::{ReferentialAction, TableEntry};
use aerostat_txn::LockMode;
use aerostat_types::{RelationId, SqlError};

use crate::{
    dml::{BoundDml, DmlKind},
    plan::StatementContext,
};

/// Locks the tables to which a bound statement may be led.
///
/// # Errors
/// Another transaction is in the way; the statement is planned again.
pub fn lock_concerned(context: &StatementContext, bound: &BoundDml) -> Result<(), SqlError> {
    let mut concerned = Concerned::of(context);
    let entry = &bound.target.entry;
    if bound.does(DmlKind::Insert) {
        concerned.add(entry, Change::Insert);
    }
    if bound.does(DmlKind::Update) {
        concerned.add(entry, Change::Update(bound.assigned.clone()));
    }
    if bound.does(DmlKind::Delete) {
        concerned.add(entry, Change::Delete);
    }
    if let Some(update) = bound.update_on_conflict() {
        concerned.add(entry, Change::Update(update.assigned.clone()));
    }
    concerned.lock()
}

/// As [`lock_concerned`], for rows that are added to a table.
///
/// # Errors
/// The errors of [`lock_concerned`].
pub fn lock_concerned_by_insert(
    context: &StatementContext,
    entry: &Arc<TableEntry>,
) -> Result<(), SqlError> {
    let mut concerned = Concerned::of(context);
    concerned.add(entry, Change::Insert);
    concerned.lock()
}

/// What happens to rows of a table.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Change {
    Insert,
    /// An update of these columns, in ascending order.
    Update(Vec<usize>),
    Delete,
}

impl Change {
    /// Whether rows get new values in one of these columns.
    fn gives(&self, columns: &[usize]) -> bool {
        match self {
            Change::Insert => true,
            Change::Update(assigned) => columns.iter().any(|at| assigned.contains(at)),
            Change::Delete => false,
        }
    }

    /// Whether rows lose their values in one of these columns.
    fn takes(&self, columns: &[usize]) -> bool {
        *self == Change::Delete || *self != Change::Insert && self.gives(columns)
    }
}

/// Changes of tables, and the changes that follow from them.
struct Concerned<'a> {
    context: &'a StatementContext,
    pending: Vec<(Arc<TableEntry>, Change)>,
    seen: HashSet<(RelationId, Change)>,
}

impl<'a> Concerned<'a> {
    fn of(context: &'a StatementContext) -> Self {
        Self {
            context,
            pending: Vec::new(),
            seen: HashSet::new(),
        }
    }

    fn add(&mut self, entry: &Arc<TableEntry>, change: Change) {
        if let Change::Update(columns) = &change {
            assert!(
                columns.is_sorted(),
                "the assigned columns {columns:?} of {} are in ascending order",
                entry.name
            );
        }
        if self.seen.insert((entry.oid, change.clone())) {
            self.pending.push((Arc::clone(entry), change));
        }
    }

    fn lock(mut self) -> Result<(), SqlError> {
        let context = self.context;
        while let Some((entry, change)) = self.pending.pop() {
            for key in &entry.foreign_keys {
                if change.gives(&key.columns) {
                    context.gate.require(key.referenced, LockMode::RowShare)?;
                }
            }
            for (referring, key) in context.catalog.referring(entry.oid) {
                if !change.takes(&key.referenced_columns) {
                    continue;
                }
                let (action, follows) = match change {
                    Change::Delete => (key.on_delete, Change::Delete),
                    _ => (key.on_update, updated(&key.columns)),
                };
                let follows = match action {
                    ReferentialAction::NoAction | ReferentialAction::Restrict => {
                        context.gate.require(referring.oid, LockMode::RowShare)?;
                        continue;
                    }
                    ReferentialAction::Cascade => follows,
                    ReferentialAction::SetNull | ReferentialAction::SetDefault => {
                        updated(&key.columns)
                    }
                };
                context
                    .gate
                    .require(referring.oid, LockMode::RowExclusive)?;
                self.add(referring, follows);
            }
        }
        Ok(())
    }
}

fn updated(columns: &[usize]) -> Change {
    let mut columns = columns.to_vec();
    columns.sort_unstable();
    Change::Update(columns)
}
