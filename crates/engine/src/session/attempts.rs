//! The runs of one statement, of which the last is kept.
//!
//! ```text
//!  Attempts ── begin ──► a transaction ── the statement ── finish ─┬─ Done      committed, or kept for its block
//!     ▲                                                            ├─ Conflict  undone: rows changed under it
//!     └──────────────── after ◄────────────────────────────────────┴─ Waited    undone, after a wait without a thread
//! ```
//!
//! A statement that must wait for another transaction sleeps on its thread as long as there are seats
//! for that ([`Seats`](aerostat_txn::Seats)), else as a task, and runs again. Its place in the row's
//! queue stays over all its runs.

use std::{sync::Arc, time::Duration};

use aerostat_catalog::failure::from_storage;
use aerostat_query::{Again, Cancellation, from_datafusion, plan::Gate};
use aerostat_sql::statement::Source;
use aerostat_storage::StorageError;
use aerostat_txn::{Awaited, RowPlace, Transaction, WaitError};
use aerostat_types::{ErrorKind, SqlError};
use datafusion::common::Result as PlanResult;

use super::SessionView;
use crate::commits::Committer;

/// How often a statement is run again because rows changed under it. Each
/// attempt waits for the transaction it met, so this many in a row means the
/// rows are hotter than statements can be.
pub(super) const ATTEMPTS_MAX: usize = 100;

/// What became of a run that has not failed.
pub(super) enum Ended<T> {
    /// It is committed, or kept for its block.
    Done(T),
    /// It is undone, for rows have changed under it.
    Conflict,
    /// It is undone, and what it had to wait for has settled.
    Waited,
}

impl<T> Ended<T> {
    /// The same of something else.
    pub(super) fn map<U>(self, with: impl FnOnce(T) -> U) -> Ended<U> {
        match self {
            Ended::Done(done) => Ended::Done(with(done)),
            Ended::Conflict => Ended::Conflict,
            Ended::Waited => Ended::Waited,
        }
    }

    /// What was done by a statement that nobody runs again.
    ///
    /// # Errors
    /// Rows have changed under it.
    pub(super) fn only(self) -> Result<T, SqlError> {
        match self {
            Ended::Done(done) => Ok(done),
            Ended::Conflict | Ended::Waited => Err(from_storage(StorageError::Conflict)),
        }
    }
}

/// A statement's runs so far.
pub(super) struct Attempts {
    conflicts: usize,
    /// Whether a conflict is no failure.
    has_others: bool,
    /// Where it stands among those that wait for rows.
    place: RowPlace,
}

impl SessionView<'_> {
    /// None yet, of the statement that is to be run.
    /// What commits the session's statements.
    pub(super) fn committer(self) -> Committer {
        self.executor.committer(self.client)
    }

    pub(super) fn attempts(self) -> Attempts {
        Attempts {
            conflicts: 0,
            has_others: self.transaction.may_run_again(self.client),
            place: self.executor.row_place(),
        }
    }
}

impl Attempts {
    /// Begins a run.
    ///
    /// # Errors
    /// Its block is undone.
    pub(super) fn begin(
        &self,
        view: SessionView<'_>,
        gate: &Gate,
    ) -> Result<Transaction, SqlError> {
        let transaction = view.begin_statement(gate.locks())?.with_place(&self.place);
        Ok(match view.transaction.may_wait_undone(view.client) {
            true => transaction.with_seats(view.executor.engine.seats()),
            false => transaction,
        })
    }

    /// It waits for something else: others must not wait for it meanwhile.
    pub(super) fn leave_rows(&self) {
        self.place.leave();
    }

    /// What the run has done; `None` if there is to be another.
    ///
    /// # Errors
    /// Rows have changed under it once too often.
    pub(super) fn after<T>(&mut self, ended: Ended<T>) -> Result<Option<T>, SqlError> {
        match ended {
            Ended::Done(done) => return Ok(Some(done)),
            Ended::Waited => return Ok(None),
            Ended::Conflict => self.conflicts += 1,
        }
        match self.has_others && self.conflicts < ATTEMPTS_MAX {
            true => Ok(None),
            false => Err(from_storage(StorageError::Conflict)),
        }
    }
}

/// Commits, or rolls back and says why. What the statement would have to wait for it waits for here.
pub(super) async fn finish<T>(
    done: PlanResult<T>,
    transaction: Arc<Transaction>,
    source: &Source,
    committer: &Committer,
) -> Result<Ended<T>, SqlError> {
    let done = match done {
        Ok(done) => done,
        // Dropping it rolls it back, once a thread that may still lock or write has ended.
        Err(error) => match Again::asked_below(&error) {
            Some(Again::Conflict) => return Ok(Ended::Conflict),
            Some(Again::Waits(awaited)) => {
                settled(&transaction, awaited).await?;
                return Ok(Ended::Waited);
            }
            None => return Err(from_datafusion(error, source)),
        },
    };
    // Writes run on blocking threads that hold the transaction; all have ended here.
    let transaction = Arc::into_inner(transaction)
        .ok_or_else(|| SqlError::new(ErrorKind::Internal, "a write outlived its statement"))?;
    let committed = committer.run(move || transaction.commit()).await;
    match committed.map_err(|error| from_storage(error.into()))? {
        Ok(Ok(_)) => Ok(Ended::Done(done)),
        Ok(Err(error)) => Err(from_storage(error.into())),
        Err(error) => Err(SqlError::new(
            ErrorKind::Internal,
            format!("the commit ended early: {error}"),
        )),
    }
}

/// As [`settled`], unless the statement is stopped.
pub(super) async fn settled_or_stopped(
    transaction: &Transaction,
    awaited: Awaited,
    cancellation: &Cancellation,
) -> Result<(), SqlError> {
    tokio::select! {
        biased;
        error = cancellation.stopped() => Err(error),
        ended = settled(transaction, awaited) => ended,
    }
}

/// Waits, without a thread, until another transaction has settled, or it is the statement's turn: as
/// long as `lock_timeout` lets it.
async fn settled(transaction: &Transaction, awaited: Awaited) -> Result<(), SqlError> {
    let waiting = transaction.waiting_for(awaited);
    match waiting.map_err(|error| from_storage(error.into()))? {
        Some(waiting) => in_time(waiting, transaction.lock_timeout()).await,
        None => Ok(()),
    }
}

/// Waits for another transaction for so long at the most.
pub(super) async fn in_time(
    waiting: impl Future<Output = Result<(), WaitError>>,
    timeout: Option<Duration>,
) -> Result<(), SqlError> {
    let ended = match timeout {
        None => waiting.await,
        Some(timeout) => tokio::time::timeout(timeout, waiting)
            .await
            .unwrap_or(Err(WaitError::TimedOut)),
    };
    ended.map_err(|error| from_storage(error.into()))
}
