//! Sessions: one client's settings, prepared statements and running statement.
//!
//! [`Session`] is the face that the protocols know, with three parts behind it. Functions take the parts
//! that they use, so that a signature says what a statement can change:
//!
//! ```text
//!                             client    transaction  executor
//!  by key                     changes   reads        counts, caches   Executor::run_fast
//!  query, DML, COPY, EXPLAIN  reads     reads        reads            SessionView
//!  definition, LOCK TABLE     reads     changes      reads            Running
//!  cursors                    changes   reads        reads            ClientState::run_cursor
//!  SET, DISCARD, EXECUTE      changes   changes      reads            ClientState::run_setting, run_prepared
//!  BEGIN, COMMIT and so on    changes   changes      reads            TransactionState
//! ```
//!
//! A part that is read may still have state behind a lock, such as notices and the settings that functions
//! set.
//!
//! A statement runs on the query runtime; what reaches the client's task is
//! batches of rows through a bounded channel ([`stream`]). Every statement can
//! be stopped at any time ([`aerostat_query::Cancellation`]), and a statement that fails or is
//! stopped leaves no trace: it is a transaction of its own, or a part of one
//! ([`transaction`], as [`machine`] says). All come in by one door ([`guard`]).

mod activity;
mod admission;
mod alter;
mod attempts;
mod block;
mod client;
mod command;
mod constraints;
mod copy;
mod cursor;
mod definition;
mod described;
mod executor;
mod explain;
mod facts;
mod fast;
mod flow;
mod followed;
mod generic;
mod guard;
mod infer;
mod locking;
mod locks;
mod machine;
mod maintenance;
mod memory;
mod moving;
mod named;
mod notify;
mod places;
mod planning;
mod prepared;
mod reading;
mod roles;
mod run;
mod running;
mod settings;
mod shown;
mod signal;
mod standing;
mod steps;
mod stream;
mod temporary;
mod transaction;
mod view;
mod waiting;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use aerostat_api::{
    Client, ClientSettings, ColumnDescription, Controls, EntryNumbers, Group, IdleLimit, Notice,
    Notification, TransactionStatus,
};
use aerostat_catalog::{CopyState, Database, Temporaries, admin::Connection, sequence::Taken};
use aerostat_pgcatalog::SessionDescription;
use aerostat_query::{CancelHandle, from_datafusion};
use aerostat_sql::statement::Source;
use aerostat_txn::AdvisoryLocks;
use aerostat_types::{ErrorKind, SqlError};
use datafusion::{error::DataFusionError, execution::SessionState};

use crate::{engine::Engine, memory::Held, notify::Inbox, tenant::Tenant};

pub use prepared::Prepared;
pub use reading::Sent;

use block::OpenBlock;
use cursor::Cursors;
use followed::Following;
use machine::Machine;
use named::{NamedStatement, NamedStatements};
use notify::Sayings;
use parking_lot::Mutex;
use places::Admitted;
use settings::Settings;
use waiting::Notices;

/// One client's session.
pub struct Session {
    client: ClientState,
    transaction: TransactionState,
    executor: Executor,
}

/// What a session keeps for its client, whatever runs.
struct ClientState {
    /// The role that connected.
    role: String,
    number: i32,
    /// What the node does with the database, if other nodes have it, too.
    copy: Option<Arc<CopyState>>,
    /// Shared with the functions of a running statement, since `set_config` is one.
    settings: Arc<Mutex<Settings>>,
    following: Following,
    /// What others see of it in `pg_stat_activity`.
    description: Arc<Mutex<SessionDescription>>,
    prepared: NamedStatements,
    cursors: Cursors,
    notices: Notices,
    /// The way to stop what runs.
    cancel: CancelHandle,
    /// Its advisory locks, and which transaction it has at hand.
    advisory: Arc<AdvisoryLocks>,
    /// The numbers of sequences that it has taken.
    taken: Arc<Mutex<Taken>>,
    temporaries: Temporaries,
    /// What its transaction has said to others.
    sayings: Sayings,
    /// What others have said to it, and on which channels it listens.
    inbox: Arc<Inbox>,
    listening: Arc<Mutex<BTreeSet<String>>>,
    /// Whether its client is told of notifications when they come.
    hears: bool,
    /// Whether a statement goes on after the guard: its rows come or go.
    is_busy: bool,
    /// The place of the statement at hand, if it needs one.
    admitted: Option<Admitted>,
    /// How long the text at hand was read, which its statement's time includes.
    read_for: Duration,
}

/// Where a session stands with its transactions, and what an open block has.
struct TransactionState {
    machine: Machine,
    block: Option<OpenBlock>,
    /// When the transaction at hand began.
    began_at: chrono::DateTime<chrono::Utc>,
}

/// What statements of a session run by.
struct Executor {
    engine: Arc<Engine>,
    database: Arc<Database>,
    /// Its place among those that are connected.
    _connection: Connection,
    state: Arc<SessionState>,
    fast: fast::FastPath,
    tenant: Arc<Tenant>,
}

/// The session as a statement sees it that changes none of the parts.
#[derive(Clone, Copy)]
struct SessionView<'a> {
    client: &'a ClientState,
    transaction: &'a TransactionState,
    executor: &'a Executor,
}

/// The session as a statement sees it that may define something, or lock relations, in its transaction.
struct Running<'a> {
    client: &'a ClientState,
    transaction: &'a mut TransactionState,
    executor: &'a Executor,
}

impl Engine {
    /// Opens a session. The caller has authenticated the role.
    ///
    /// # Errors
    /// The role may not connect, the database is not there, a limit is reached,
    /// or an option is not a setting.
    pub fn connect(
        self: &Arc<Self>,
        role: &str,
        database: &str,
        options: &[(String, String)],
    ) -> Result<Session, SqlError> {
        let connection = self.node().connect(role, database)?;
        Session::new(Arc::clone(self), connection, role, options)
    }
}

impl Session {
    pub(crate) fn new(
        engine: Arc<Engine>,
        connection: Connection,
        role: &str,
        options: &[(String, String)],
    ) -> Result<Self, SqlError> {
        let database = Arc::clone(connection.database());
        Self::of_database(engine, connection, &database, role, options)
    }

    /// A session in this database, which is mostly the connection's.
    fn of_database(
        engine: Arc<Engine>,
        connection: Connection,
        database: &Arc<Database>,
        role: &str,
        options: &[(String, String)],
    ) -> Result<Self, SqlError> {
        let executor = Executor::new(engine, connection, database)?;
        Ok(Self {
            client: ClientState::new(&executor, role, options)?,
            transaction: TransactionState::default(),
            executor,
        })
    }

    /// The session as statements see it.
    fn view(&self) -> SessionView<'_> {
        SessionView::of(&self.client, &self.transaction, &self.executor)
    }

    /// The way to stop this session's running statement from elsewhere.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.client.cancel.clone()
    }

    /// Messages beside the results, since the last call.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        self.client.notices.take()
    }

    /// All settings the client is told of when it connects.
    pub fn reported_parameters(&self) -> Vec<(String, String)> {
        self.client.reported_parameters()
    }

    /// The time zone that `timestamptz` values are shown in.
    pub fn time_zone(&self) -> aerostat_types::Zone {
        self.client.time_zone()
    }

    /// The number of the session: what the protocol's BackendKeyData, `pg_backend_pid()` and the
    /// views call the process that serves it. No two sessions of an engine have the same.
    pub fn number(&self) -> i32 {
        self.client.number
    }

    /// Notes from where and how the client has come, for `pg_stat_activity` and `pg_stat_ssl`.
    pub fn set_client(&mut self, client: Client) {
        self.client.description.lock().client = Some(client);
    }

    /// The columns of an open cursor.
    pub fn cursor_columns(&self, name: &str) -> Option<Arc<[ColumnDescription]>> {
        self.client.cursors.columns(name)
    }

    /// Takes memory of the tenant's for something that belongs to the session.
    ///
    /// # Errors
    /// The tenant, or the node, has not that much left.
    pub fn hold(&self, bytes: usize) -> Result<Held, SqlError> {
        self.executor.hold(bytes)
    }

    /// The database's name.
    pub fn database(&self) -> String {
        self.executor.database().name.read().clone()
    }

    /// Where the session stands.
    pub fn status(&self) -> TransactionStatus {
        self.transaction.status()
    }

    /// Says that the statement at hand has failed after it had been taken on: reading its
    /// rows, or sending them. The reader of the rows calls this.
    pub fn fail(&mut self) {
        self.client.admitted = None;
        self.transaction.fail(&mut self.client, &self.executor);
    }

    /// Says that the statements to come belong together: they happen together or not at all.
    /// One that cannot be in a transaction block is a transaction of its own, and commits those
    /// before it. The caller calls [`Self::end_group`] after the last, or [`Self::fail`].
    pub fn begin_group(&mut self, group: Group) {
        self.transaction.begin_group(&self.client, group);
    }

    /// Commits the statements of a group, if they are a transaction of their own.
    ///
    /// # Errors
    /// Errors of COMMIT: nothing of them has happened then, or it is in doubt.
    pub async fn end_group(&mut self) -> Result<(), SqlError> {
        let ended = self.transaction.end_group(&mut self.client, &self.executor);
        ended.await
    }

    /// Prepares a statement: finds out the types of its parameters and columns.
    /// A parameter whose OID is 0 or missing gets its type from its place.
    ///
    /// # Errors
    /// Anything that can be wrong with a statement before it runs.
    pub async fn prepare(
        &mut self,
        text: &str,
        parameter_oids: &[u32],
    ) -> Result<Prepared, SqlError> {
        self.executor
            .prepare(&mut self.client, &self.transaction, text, parameter_oids)
            .await
    }

    /// Cuts a message of the simple protocol into statements.
    ///
    /// # Errors
    /// See [`Statement::split`](aerostat_sql::statement::Statement::split); a long text may be stopped.
    pub async fn split(&mut self, message: &str) -> Result<Vec<Sent>, SqlError> {
        self.executor.split(&mut self.client, message).await
    }

    /// What names of catalogue entries mean now.
    ///
    /// # Errors
    /// The database is gone.
    pub fn entry_numbers(&self) -> Result<EntryNumbers, SqlError> {
        let snapshot = self.executor.txns().snapshot();
        let view = self.view();
        let context = view.context(&view.open_gate()?, snapshot)?;
        let system = Arc::clone(&context.system);
        Ok(Arc::new(move |type_oid, name| {
            aerostat_pgcatalog::entry_number(&system, type_oid, name)
        }))
    }

    /// How many statements of the session took the fast path.
    pub fn fast_statements(&self) -> u64 {
        self.executor.fast.statements
    }

    /// How the client is written to from now on.
    pub fn client_settings(&mut self) -> ClientSettings {
        self.client.followed().client
    }

    /// How long the client may be idle from now on; `None` for no limit.
    pub fn idle_limit(&mut self) -> Option<IdleLimit> {
        let in_transaction = self.transaction.status() != TransactionStatus::Idle;
        self.client.idle_limit(in_transaction)
    }

    /// Settings the client is told of that have changed since the last call.
    pub fn parameter_changes(&mut self) -> Vec<(String, String)> {
        self.client.parameter_changes()
    }

    /// Comes back when others have said something that the client is to be told.
    pub async fn notified(&self) {
        self.client.notified().await;
    }

    /// What others have said since the last call. The client is told between transactions.
    pub fn take_notifications(&mut self) -> Vec<Arc<Notification>> {
        match self.transaction.status() {
            TransactionStatus::Idle => self.client.inbox.take(),
            TransactionStatus::InTransaction | TransactionStatus::Failed => Vec::new(),
        }
    }

    /// Says how the session is stopped by others. The caller serves its client and tells it what others
    /// say.
    pub fn set_controls(&mut self, controls: Controls) {
        self.client.hears = true;
        self.executor
            .engine
            .register_controls(self.client.number, controls);
    }

    /// The columns that a prepared statement gives if it is run now. FETCH gives its cursor's, and
    /// EXECUTE its statement's, whatever they were when it was prepared.
    pub fn columns_now(&self, prepared: &Prepared) -> Option<Arc<[ColumnDescription]>> {
        self.client.columns_now(prepared)
    }

    /// Whether a prepared statement that has begun may go on.
    ///
    /// # Errors
    /// `InFailedTransaction`.
    pub fn admit_again(&self, prepared: &Prepared) -> Result<(), SqlError> {
        self.transaction.machine.admit(prepared.kind())
    }

    /// Whether another prepared statement may have this name.
    ///
    /// # Errors
    /// `DuplicatePreparedStatement`, `ProgramLimitExceeded`.
    pub fn admit_name(&self, name: &str) -> Result<(), SqlError> {
        self.client.prepared.admit(name)
    }

    /// Keeps a prepared statement under a name, beside those of PREPARE. `oids` are the numbers of
    /// its parameters' types that the client is told.
    pub fn keep(&mut self, name: &str, prepared: Arc<Prepared>, oids: Arc<[u32]>, held: Held) {
        let named = NamedStatement::of_protocol(prepared, oids, held);
        self.client.prepared.keep(name, named);
    }

    /// The prepared statement of a name, of PREPARE or of the protocol, and the numbers of its parameters'
    /// types.
    pub fn named(&self, name: &str) -> Option<(Arc<Prepared>, Arc<[u32]>)> {
        self.client.prepared.get(name)
    }

    /// The same for an execution, which counts, without the numbers.
    pub fn named_to_run(&self, name: &str) -> Option<Arc<Prepared>> {
        self.client.prepared.count(name)
    }

    /// Forgets the prepared statement of a name, if there is one.
    pub fn forget(&mut self, name: &str) {
        // One that is not there is none to be forgotten.
        let _ = self.client.prepared.forget(name);
    }

    /// Says that the client may send its next statements: the rows of those before have come
    /// and gone. Gives where the session stands.
    pub fn rest(&mut self) -> TransactionStatus {
        self.client.read_for = Duration::ZERO;
        self.client.admitted = None;
        if std::mem::take(&mut self.client.is_busy) {
            if self.transaction.machine.is_idle() {
                // What functions have set while the rows went out.
                self.client.settings.lock().end_local();
            }
            self.client.note_idle(self.transaction.status());
        }
        if self.transaction.machine.is_idle() {
            self.client.temporaries.delete_rows();
            // What a query has said by itself, now that all its rows have come.
            self.client.publish();
        }
        self.transaction.status()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The client is gone: its block is undone, and what it waits for ends.
        self.client.cancel.cancel();
        let threads = self.executor.engine.queries();
        self.transaction
            .abandon(&mut self.client, self.executor.engine.ends());
        self.client.say_nothing();
        self.client.unlisten();
        self.client.keep_temporaries(None, threads);
        self.client.advisory.end();
        self.executor.engine.forget_session(self.client.number);
    }
}

/// An error without a place in a statement.
fn plain(error: DataFusionError) -> SqlError {
    from_datafusion(error, &Source::of("".into()))
}

/// The error for more of something than one session may have.
fn too_many(what: &str, limit: usize) -> SqlError {
    let message = format!("too many {what} in one session");
    let error = SqlError::new(ErrorKind::ProgramLimitExceeded, message);
    error.with_detail(format!("At most {limit} are allowed."))
}
