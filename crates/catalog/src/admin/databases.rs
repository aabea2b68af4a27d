//! The node's databases: those that are open, and those that could not be opened.
//!
//! A database that could not be opened is known by the reason, which every client that connects
//! to it is told. It can be dropped and restored under another name, and its options can be set;
//! operations that would have to look inside it are refused.

use std::{collections::HashMap, sync::Arc};

use aerostat_storage::{RecoverError, StorageError};
use aerostat_types::{ErrorKind, SqlError};

use super::node::{OpenError, chain, undefined_database};
use crate::state::Database;

/// Why a database is there and not open.
#[derive(Clone, Debug)]
pub struct Unopened {
    kind: ErrorKind,
    /// What is wrong, with its causes.
    pub reason: String,
}

impl Unopened {
    pub(super) fn of(error: &OpenError) -> Self {
        let kind = match error {
            OpenError::Recover(RecoverError::Damaged { .. })
            | OpenError::Missing { .. }
            | OpenError::Catalog(_) => ErrorKind::DataCorrupted,
            OpenError::Recover(RecoverError::Storage(StorageError::OutOfMemory(_)))
            | OpenError::Storage(StorageError::OutOfMemory(_)) => ErrorKind::OutOfMemory,
            _ => ErrorKind::IoError,
        };
        Self {
            kind,
            reason: chain(error),
        }
    }

    /// Whether its files are damaged, and not the machine short of something.
    pub fn is_damaged(&self) -> bool {
        self.kind == ErrorKind::DataCorrupted
    }

    /// The error of whoever wants it open.
    pub(super) fn refusal(&self, name: &str) -> SqlError {
        let hint = match self.kind {
            ErrorKind::DataCorrupted => {
                "Restore it from a backup under another name and drop it, or stop the node and use \"aerostat repair\"."
            }
            ErrorKind::OutOfMemory => {
                "Raise the database's memory_max or the server's --memory, and start the node again."
            }
            _ => "Mend the cause, and start the node again.",
        };
        SqlError::new(
            self.kind,
            format!("database \"{name}\" could not be opened"),
        )
        .with_detail(self.reason.clone())
        .with_hint(hint)
    }
}

/// Databases by name.
#[derive(Default)]
pub(super) struct Databases {
    open: HashMap<String, Arc<Database>>,
    unopened: HashMap<String, Unopened>,
}

impl Databases {
    /// The open database of this name.
    pub(super) fn get(&self, name: &str) -> Option<&Arc<Database>> {
        self.open.get(name)
    }

    /// The open database of this name.
    ///
    /// # Errors
    /// There is none, or it could not be opened.
    pub(super) fn find(&self, name: &str) -> Result<&Arc<Database>, SqlError> {
        match (self.open.get(name), self.unopened.get(name)) {
            (Some(database), _) => Ok(database),
            (None, Some(unopened)) => Err(unopened.refusal(name)),
            (None, None) => Err(undefined_database(name)),
        }
    }

    /// Those that are open, with their names.
    pub(super) fn open(&self) -> impl Iterator<Item = (&String, &Arc<Database>)> {
        self.open.iter()
    }

    /// Those that could not be opened, with their names.
    pub(super) fn unopened(&self) -> impl Iterator<Item = (&String, &Unopened)> {
        self.unopened.iter()
    }

    /// Every database can be looked into: whoever is to be renamed or dropped may be named in
    /// any.
    ///
    /// # Errors
    /// One could not be opened.
    pub(super) fn require_all_open(&self, doing: &str) -> Result<(), SqlError> {
        let Some((name, unopened)) = self.unopened.iter().next() else {
            return Ok(());
        };
        Err(SqlError::new(
            ErrorKind::ObjectNotInPrerequisiteState,
            format!("cannot {doing} while database \"{name}\" could not be opened"),
        )
        .with_detail(unopened.reason.clone())
        .with_hint(
            "What belongs to the role in that database is not known. Repair or drop it first.",
        ))
    }

    pub(super) fn insert(&mut self, name: String, database: Arc<Database>) {
        self.unopened.remove(&name);
        self.open.insert(name, database);
    }

    pub(super) fn insert_unopened(&mut self, name: String, unopened: Unopened) {
        self.unopened.insert(name, unopened);
    }

    /// Takes a database out, and gives it if it was open.
    pub(super) fn remove(&mut self, name: &str) -> Option<Arc<Database>> {
        self.unopened.remove(name);
        self.open.remove(name)
    }
}
