//! The executor of a session: its beginning, and its database, transactions and actor.

use std::sync::Arc;

use aerostat_catalog::{Actor, Database, admin::Connection, temporary_schema};
use aerostat_txn::TxnManager;
use aerostat_types::SqlError;

use super::{ClientState, Executor, fast::FastPath, plain};
use crate::engine::Engine;

impl Executor {
    /// Runs the statements of a connection.
    ///
    /// # Errors
    /// The database is gone.
    pub(super) fn new(
        engine: Arc<Engine>,
        connection: Connection,
        database: &Arc<Database>,
    ) -> Result<Self, SqlError> {
        let tenant = engine.tenant_of(database).map_err(plain)?;
        let state = engine.state_for(&tenant);
        Ok(Self {
            state: Arc::new(state),
            fast: FastPath::default(),
            tenant,
            engine,
            database: Arc::clone(database),
            _connection: connection,
        })
    }

    pub(super) fn database(&self) -> &Arc<Database> {
        &self.database
    }

    pub(super) fn txns(&self) -> &Arc<TxnManager> {
        self.database().store.txns()
    }

    /// Whose rights the client's statements have, and where they look for names.
    pub(super) fn actor(&self, client: &ClientState) -> Result<Actor, SqlError> {
        let (path, role) = {
            let settings = client.settings.lock();
            (settings.search_path(), settings.acting_role().to_owned())
        };
        let mut actor = self.engine.node().actor(&role, self.database(), path)?;
        actor.temporary = Some(temporary_schema(client.number));
        actor.zone = client.time_zone();
        Ok(actor)
    }
}
