//! What an open transaction block has in storage and beside it. [`transaction`](super::transaction)
//! says when it begins, goes back to savepoints and ends.
//!
//! A block in storage belongs to its session until it goes back to a savepoint, which a thread of its own
//! does. A block that is dropped is undone: what it has defined first, then its rows and locks.

use std::sync::Arc;

use aerostat_catalog::{Definitions, Mark};
use aerostat_query::deferred::{self, Deferred};
use aerostat_txn::{self as txn, Block};
use aerostat_types::{ErrorKind, SqlError};
use tokio::task::{JoinError, JoinHandle};

use super::settings::Settings;
use crate::{ends::Ends, memory::Held, notify::OutboxMark};

/// The session's transaction block.
pub(super) struct OpenBlock {
    pub(super) stored: Stored,
    /// The checks that it has put off.
    pub(super) deferred: Arc<Deferred>,
    /// The savepoints, numbered as the machine numbers them.
    pub(super) savepoints: Vec<Savepoint>,
    /// The session's settings when it began.
    pub(super) settings: Settings,
    /// Whether another node took the database's changes then.
    pub(super) is_on_copy: bool,
}

/// The place of the rows and definitions of a block.
pub(super) enum Stored {
    Here(Parts),
    /// Going back to a savepoint.
    Returning(JoinHandle<Parts>),
    /// The thread that had them died.
    Lost,
}

/// What a block has in storage. Dropping it undoes it, which may take its time; what was defined goes
/// before the locks that keep others from it.
pub(super) struct Parts {
    pub(super) defined: Defined,
    pub(super) block: Block,
}

/// What a block has defined; nothing as long as it has defined nothing.
pub(super) struct Defined(pub(super) Option<Arc<Definitions>>);

impl Drop for Defined {
    fn drop(&mut self) {
        if let Some(definitions) = &self.0 {
            definitions.rollback();
        }
    }
}

/// What a block goes back to.
pub(super) struct Savepoint {
    pub(super) point: txn::Savepoint,
    /// What was defined by then; `None` for nothing.
    pub(super) definitions: Option<Mark>,
    /// What was put off by then.
    pub(super) deferred: deferred::Mark,
    pub(super) settings: Settings,
    /// How many cursors the session had made by then.
    pub(super) cursors: u64,
    /// What was said to others by then.
    pub(super) said: OutboxMark,
    /// The memory that it is charged for.
    pub(super) _held: Held,
}

impl OpenBlock {
    /// What it has in storage, where statements may run in it.
    pub(super) fn parts(&self) -> Result<&Parts, SqlError> {
        match &self.stored {
            Stored::Here(parts) => Ok(parts),
            Stored::Returning(_) | Stored::Lost => Err(undone()),
        }
    }

    /// Waits until it has gone back to its savepoint.
    pub(super) async fn settle(&mut self) -> Result<(), SqlError> {
        let stored = std::mem::replace(&mut self.stored, Stored::Lost);
        self.stored = Stored::Here(stored.settled().await?);
        Ok(())
    }

    /// Undoes what was done since a savepoint, on a thread that may take its time: undoing many rows
    /// does, and dropping tables takes the disk's.
    pub(super) fn return_to(&mut self, at: usize, ends: &Ends) {
        let Some(savepoint) = self.savepoints.get(at) else {
            return;
        };
        self.deferred.rollback_to(&savepoint.deferred);
        let (point, mark) = (savepoint.point, savepoint.definitions.clone());
        let stored = std::mem::replace(&mut self.stored, Stored::Lost);
        self.stored = match stored {
            Stored::Here(mut parts) => {
                let returning = ends.run(move || {
                    parts.return_to(point, mark.as_ref());
                    parts
                });
                Stored::Returning(returning)
            }
            other => other,
        };
    }
}

impl Stored {
    pub(super) async fn settled(self) -> Result<Parts, SqlError> {
        match self {
            Stored::Here(parts) => Ok(parts),
            Stored::Returning(parts) => parts.await.map_err(ended_early),
            Stored::Lost => Err(undone()),
        }
    }
}

impl Parts {
    fn return_to(&mut self, point: txn::Savepoint, mark: Option<&Mark>) {
        match (&self.defined.0, mark) {
            (Some(definitions), Some(mark)) => definitions.rollback_to(mark),
            _ => self.defined = Defined(None),
        }
        self.block.rollback_to(point);
    }
}

/// The error of a statement that finds its block gone.
pub(super) fn undone() -> SqlError {
    SqlError::new(
        ErrorKind::Internal,
        "a statement was let into a block that has been undone",
    )
}

pub(super) fn ended_early(error: JoinError) -> SqlError {
    SqlError::new(
        ErrorKind::Internal,
        format!("the end of the transaction ended early: {error}"),
    )
}
