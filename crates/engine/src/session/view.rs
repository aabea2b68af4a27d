//! The context that a statement of a session is planned and run in.

use std::sync::Arc;

use aerostat_pgcatalog::CatalogView;
use aerostat_query::plan::{Gate, StatementContext};
use aerostat_txn::{CancelToken, Snapshot};
use aerostat_types::SqlError;
use parking_lot::Mutex;

use super::{
    ClientState, Executor, SessionView, TransactionState, facts::SessionFacts, waiting::Waiting,
};

impl<'a> SessionView<'a> {
    /// The session of these parts.
    pub(super) fn of(
        client: &'a ClientState,
        transaction: &'a TransactionState,
        executor: &'a Executor,
    ) -> Self {
        Self {
            client,
            transaction,
            executor,
        }
    }

    /// The context of the next statement, or of the next attempt at it.
    pub(super) fn context(
        self,
        gate: &Arc<Gate>,
        snapshot: Snapshot,
    ) -> Result<Arc<StatementContext>, SqlError> {
        self.context_until(gate, snapshot, self.client.cancel.waits())
    }

    /// As [`Self::context`], for a statement whose functions wait until this is cancelled.
    pub(super) fn context_until(
        self,
        gate: &Arc<Gate>,
        snapshot: Snapshot,
        waits: CancelToken,
    ) -> Result<Arc<StatementContext>, SqlError> {
        let actor = self.executor.actor(self.client)?;
        // Not below, where other parts of the same value ask the settings, too.
        let session_role = self.client.settings.lock().session_role().to_owned();
        let database = Arc::clone(self.executor.database());
        let system = Arc::new(CatalogView {
            node: self.executor.engine.node().record(),
            database: database.name.read().clone(),
            state: Arc::clone(gate.catalog()),
            role: actor.role.clone(),
            session_role,
            superuser: actor.superuser,
            search_path: actor.written_path().map(str::to_owned).collect(),
            backend_pid: self.client.number,
            facts: Arc::new(SessionFacts {
                engine: Arc::clone(&self.executor.engine),
                settings: Arc::clone(&self.client.settings),
                prepared: self.client.prepared.clone(),
                cursors: self.client.cursors.describe(),
                told: Arc::clone(&self.client.description),
                gate: Arc::clone(gate),
                sequences: Mutex::default(),
                taken: Arc::clone(&self.client.taken),
                database: Arc::clone(&database),
                is_on_copy: self.transaction.is_on_copy(self.client),
                read_only: self.transaction.read_only(self.client),
                waiting: Waiting::new(self.client, self.executor, gate.locks(), waits),
                role: actor.role.clone(),
                authenticated: self.client.role.clone(),
                sayings: self.client.sayings.clone(),
                listening: Arc::clone(&self.client.listening),
            }),
            functions: self.executor.engine.function_descriptions(),
            index: Arc::default(),
        });
        let context = StatementContext::new(
            Arc::clone(&self.executor.state),
            database,
            snapshot,
            actor,
            system,
            Arc::clone(gate),
        );
        Ok(Arc::new(context.in_block(self.transaction.deferred())))
    }
}
