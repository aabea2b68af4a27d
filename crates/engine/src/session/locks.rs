//! Waiting for locks on relations, and LOCK TABLE.

use std::{sync::Arc, time::Duration};

use aerostat_api::Outcome;
use aerostat_catalog::{CatalogState, Definitions, Draft, ddl, failure::from_storage};
use aerostat_query::{
    Cancellation,
    plan::{Gate, Obstacle},
};
use aerostat_sql::utility::LockStatement;
use aerostat_txn::{CancelToken, LockMode, LockTag, RelationLocks};
use aerostat_types::{ErrorKind, SqlError};

use super::{
    ClientState, Running, SessionView, attempts::in_time, command::blocking, run::CancelOnDrop,
};
use crate::grants::Before;

/// Between two looks at a copy whose catalogue is about to change.
const DEFINING: Duration = Duration::from_millis(1);

impl ClientState {
    /// The longest wait for another transaction; `None` for any.
    pub(super) fn lock_timeout(&self) -> Option<Duration> {
        self.settings.lock().lock_timeout()
    }

    /// The draft through which a statement defines something in its block.
    pub(super) fn draft(&self, definitions: &Arc<Definitions>, cancel: CancelToken) -> Draft {
        Draft::new(definitions, cancel, self.lock_timeout())
    }
}

impl Running<'_> {
    /// LOCK TABLE.
    pub(super) async fn run_lock(
        &mut self,
        statement: &LockStatement,
        cancellation: &Cancellation,
    ) -> Result<Outcome, SqlError> {
        if !self.transaction.machine.is_in_block() {
            return Err(SqlError::new(
                ErrorKind::NoActiveTransaction,
                "LOCK TABLE can only be used in transaction blocks",
            ));
        }
        let actor = self.executor.actor(self.client)?;
        let definitions = self.definitions()?;
        let cancel = CancelToken::new();
        let mut stop = CancelOnDrop::of(cancel.clone());
        let draft = self.client.draft(&definitions, cancel);
        let (engine, statement) = (Arc::clone(&self.executor.engine), statement.clone());
        let work = move || {
            let is_superuser = |role: &str| engine.node().is_superuser(role);
            ddl::lock(&draft, &actor, &statement, &is_superuser)
        };
        let result = self
            .executor
            .on_query_runtime(blocking(work), cancellation)
            .await??;
        stop.disarm();
        Ok(Outcome::Command { tag: result.tag })
    }
}

impl SessionView<'_> {
    /// The catalogue as the session's transaction sees it.
    pub(super) fn catalog(self) -> Result<Arc<CatalogState>, SqlError> {
        match self.transaction.defined() {
            Some(definitions) => definitions.load(),
            None => {
                let committed = self.executor.database().catalog.load();
                Ok(self.client.temporaries.over(&committed))
            }
        }
    }

    /// The gate of a statement that is run: with the locks that were waited for
    /// if there are some, else with those of the block, or none yet.
    pub(super) fn gate(self, locks: Option<Arc<RelationLocks>>) -> Result<Arc<Gate>, SqlError> {
        let locks = match locks {
            Some(locks) => locks,
            None => self.relation_locks()?,
        };
        let database = self.executor.database();
        Gate::new(
            database,
            self.transaction.defined(),
            &self.client.temporaries,
            Some(locks),
            self.client.refuses_reading(),
        )
    }

    /// The gate of a statement that is only planned.
    pub(super) fn open_gate(self) -> Result<Arc<Gate>, SqlError> {
        let database = self.executor.database();
        Gate::new(
            database,
            self.transaction.defined(),
            &self.client.temporaries,
            None,
            None,
        )
    }

    /// After a plan was given up: waits until nobody is in its way, and returns the locks to
    /// try again with.
    ///
    /// # Errors
    /// The statement's own, if it met no obstacle; else those of the wait.
    pub(super) async fn past(
        self,
        gate: &Gate,
        error: SqlError,
        cancellation: &Cancellation,
    ) -> Result<Arc<RelationLocks>, SqlError> {
        // The locks of a statement outside a block went with its transaction.
        let locks = match gate.obstacle() {
            Some(_) => self.relation_locks()?,
            None => return Err(error),
        };
        if self.executor.database().store.is_defining() {
            // A copy follows its leader's catalogue in a moment.
            tokio::time::sleep(DEFINING).await;
        }
        if let Some(Obstacle::Locked(tag, mode)) = gate.obstacle() {
            let timeout = self.client.lock_timeout();
            wait_for_lock(&locks, tag, mode, timeout, cancellation).await?;
        }
        Ok(locks)
    }

    /// As [`Self::past`]; a statement that the node's memory was too small for also runs again, once a
    /// broker has granted more. Nothing of it has happened, and none of its rows has been sent.
    ///
    /// # Errors
    /// As there.
    pub(super) async fn past_refusal(
        self,
        gate: &Gate,
        error: SqlError,
        before: &mut Before,
        cancellation: &Cancellation,
    ) -> Result<Arc<RelationLocks>, SqlError> {
        let is_refused = error.kind == ErrorKind::OutOfMemory && gate.obstacle().is_none();
        if !is_refused || cancellation.token.is_cancelled() {
            return self.past(gate, error, cancellation).await;
        }
        tokio::select! {
            biased;
            stopped = cancellation.stopped() => Err(stopped),
            is_granted = self.executor.engine.grants().more(before) => match is_granted {
                true => self.relation_locks(),
                false => Err(error),
            },
        }
    }
}

/// Waits for a lock, without a thread: those who wait may be more than there are, and whoever is in their way needs one.
async fn wait_for_lock(
    locks: &Arc<RelationLocks>,
    tag: LockTag,
    mode: LockMode,
    timeout: Option<Duration>,
    cancellation: &Cancellation,
) -> Result<(), SqlError> {
    let acquiring = locks.acquiring(tag, mode);
    let acquiring = acquiring.map_err(|error| from_storage(error.into()))?;
    let Some(acquiring) = acquiring else {
        return Ok(());
    };
    tokio::select! {
        biased;
        error = cancellation.stopped() => Err(error),
        ended = in_time(acquiring, timeout) => ended,
    }
}
