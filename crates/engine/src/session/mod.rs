//! Sessions: one client's settings, prepared statements and running statement.
//!
//! A statement runs on the query runtime; what reaches the client's task is
//! batches of rows through a bounded channel ([`stream`]). Every statement can
//! be stopped at any time ([`aerostat_query::Cancellation`]), and a statement that fails or is
//! stopped leaves no trace: it is a transaction of its own, or a part of one
//! ([`transaction`], as [`machine`] says). All come in by one door ([`guard`]).

mod activity;
mod admission;
mod alter;
mod command;
mod constraints;
mod copy;
mod cursor;
mod described;
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
mod named;
mod notify;
mod planning;
mod prepared;
mod reading;
mod roles;
mod run;
mod settings;
mod signal;
mod steps;
mod stream;
mod temporary;
mod transaction;
mod waiting;

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use aerostat_api::{Client, ColumnDescription, EntryNumbers, Notice, TransactionStatus};
use aerostat_catalog::{Temporaries, admin::Connection, sequence::Taken, temporary_schema};
use aerostat_pgcatalog::{CatalogView, SessionDescription};
use aerostat_query::{
    CancelHandle, from_datafusion,
    plan::{Gate, StatementContext},
};
use aerostat_sql::statement::Source;
use aerostat_txn::{AdvisoryLocks, CancelToken, Snapshot};
use aerostat_types::SqlError;
use datafusion::{error::DataFusionError, execution::SessionState};

use crate::{
    engine::{Controls, Engine},
    notify::Inbox,
    tenant::Tenant,
};

pub use prepared::Prepared;
pub use reading::Sent;

use activity::application_name;
use cursor::Cursors;
use facts::SessionFacts;
use followed::Following;
use machine::Machine;
use named::NamedStatements;
use notify::Sayings;
use parking_lot::Mutex;
use settings::Settings;
use transaction::OpenBlock;

/// One client's session: the face that the protocols know.
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
    /// Shared with the functions of a running statement, since `set_config` is one.
    settings: Arc<Mutex<Settings>>,
    following: Following,
    /// What others see of it in `pg_stat_activity`.
    description: Arc<Mutex<SessionDescription>>,
    prepared: NamedStatements,
    cursors: Cursors,
    notices: waiting::Notices,
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
    /// Whether somebody tells its client what comes.
    hears: bool,
    /// Whether a statement goes on after the guard: its rows come or go.
    is_busy: bool,
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
    connection: Connection,
    state: Arc<SessionState>,
    fast: fast::FastPath,
    tenant: Arc<Tenant>,
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

impl ClientState {
    /// That of a session which is known to others from now on.
    fn new(
        executor: &Executor,
        role: &str,
        options: &[(String, String)],
    ) -> Result<Self, SqlError> {
        let Executor {
            engine,
            connection,
            tenant,
            ..
        } = executor;
        let superuser = engine.node().is_superuser(role);
        let told = [
            ("is_superuser", if superuser { "on" } else { "off" }),
            ("session_authorization", role),
        ];
        let settings = Arc::new(Mutex::new(Settings::new(&told, options)?));
        let (number, description) = engine.register_session(SessionDescription {
            database: connection.database().name.read().clone(),
            role: role.to_owned(),
            application: application_name(&settings.lock()),
            connected_at_us: chrono::Utc::now().timestamp_micros(),
            state: "idle",
            ..SessionDescription::default()
        });
        let following = Following::new(&settings.lock());
        let advisory = connection.database().store.txns().advisory_locks();
        engine.register_locks(number, &advisory);
        let cancel = CancelHandle::default();
        let stop = cancel.clone();
        let controls = Controls {
            cancel: Arc::new(move || stop.cancel()),
            terminate: None,
        };
        engine.register_controls(number, controls);
        let sayings = Sayings {
            outbox: Arc::default(),
            channels: Arc::clone(tenant.channels()),
            number,
        };
        Ok(Self {
            role: role.to_owned(),
            number,
            notices: waiting::Notices::new(&settings),
            settings,
            following,
            description,
            prepared: NamedStatements::default(),
            cursors: Cursors::default(),
            cancel,
            advisory,
            taken: Arc::default(),
            temporaries: Temporaries::default(),
            sayings,
            inbox: Arc::default(),
            listening: Arc::default(),
            hears: false,
            is_busy: false,
            read_for: Duration::ZERO,
        })
    }

    /// The time zone that `timestamptz` values are shown in.
    fn time_zone(&self) -> aerostat_types::Zone {
        self.settings.lock().time_zone()
    }

    /// What is left of it after the reading of a long text.
    fn statement_timeout(&self) -> Option<Duration> {
        let timeout = self.settings.lock().statement_timeout();
        timeout.map(|timeout| timeout.saturating_sub(self.read_for))
    }
}

impl Session {
    pub(crate) fn new(
        engine: Arc<Engine>,
        connection: Connection,
        role: &str,
        options: &[(String, String)],
    ) -> Result<Self, SqlError> {
        let tenant = engine.tenant_of(connection.database()).map_err(plain)?;
        let state = engine.state_for(&tenant);
        let executor = Executor {
            state: Arc::new(state),
            fast: fast::FastPath::default(),
            tenant,
            engine,
            connection,
        };
        Ok(Self {
            client: ClientState::new(&executor, role, options)?,
            transaction: TransactionState {
                machine: Machine::default(),
                block: None,
                began_at: chrono::Utc::now(),
            },
            executor,
        })
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
        let settings = self.client.settings.lock();
        settings::REPORTED
            .iter()
            .filter_map(|(name, shown)| {
                Some(((*shown).to_owned(), settings.get(name).ok()?.to_owned()))
            })
            .collect()
    }

    /// The time zone that `timestamptz` values are shown in.
    pub fn time_zone(&self) -> aerostat_types::Zone {
        self.client.settings.lock().time_zone()
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

    /// The database's name.
    pub fn database(&self) -> String {
        self.executor.connection.database().name.read().clone()
    }

    /// A transaction begins: now() and its like tell this time until it ends. What the last
    /// one left in tables with ON COMMIT DELETE ROWS goes.
    fn mark_time(&mut self) {
        self.client.temporaries.delete_rows();
        self.transaction.began_at = chrono::Utc::now();
    }

    /// What names of catalogue entries mean now.
    ///
    /// # Errors
    /// The database is gone.
    pub fn entry_numbers(&self) -> Result<EntryNumbers, SqlError> {
        let snapshot = self.executor.connection.database().store.txns().snapshot();
        let context = self.context(&self.open_gate()?, snapshot)?;
        let view = Arc::clone(&context.system);
        Ok(Arc::new(move |type_oid, name| {
            aerostat_pgcatalog::entry_number(&view, type_oid, name)
        }))
    }

    /// What the next statement, or the next attempt at it, sees.
    fn context(
        &self,
        gate: &Arc<Gate>,
        snapshot: Snapshot,
    ) -> Result<Arc<StatementContext>, SqlError> {
        self.context_until(gate, snapshot, self.client.cancel.waits())
    }

    /// As [`Self::context`], for a statement whose functions wait until this is cancelled.
    fn context_until(
        &self,
        gate: &Arc<Gate>,
        snapshot: Snapshot,
        waits: CancelToken,
    ) -> Result<Arc<StatementContext>, SqlError> {
        let actor = self.actor()?;
        // Not below, where other parts of the same value ask the settings, too.
        let session_role = self.client.settings.lock().session_role().to_owned();
        let database = Arc::clone(self.executor.connection.database());
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
                read_only: self.transaction.read_only(&self.client),
                waiting: self.waiting(gate.locks(), waits),
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

    fn actor(&self) -> Result<aerostat_catalog::Actor, SqlError> {
        let (path, role) = {
            let settings = self.client.settings.lock();
            (settings.search_path(), settings.acting_role().to_owned())
        };
        let database = self.executor.connection.database();
        let mut actor = self.executor.engine.node().actor(&role, database, path)?;
        actor.temporary = Some(temporary_schema(self.client.number));
        actor.zone = self.client.time_zone();
        Ok(actor)
    }

    /// Says that the client may send its next statements: the rows of those before have come
    /// and gone. Gives where the session stands.
    pub fn rest(&mut self) -> TransactionStatus {
        self.client.read_for = Duration::ZERO;
        if std::mem::take(&mut self.client.is_busy) {
            if self.transaction.machine.is_idle() {
                // What functions have set while the rows went out.
                self.client.settings.lock().end_local();
            }
            self.client.note_idle(self.status());
        }
        if self.transaction.machine.is_idle() {
            self.client.temporaries.delete_rows();
            // What a query has said by itself, now that all its rows have come.
            self.client.publish();
        }
        self.status()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The client is gone: so is what it did not commit, and what it waits for.
        self.client.cancel.cancel();
        self.abandon();
        self.client.say_nothing();
        self.client.unlisten();
        self.keep_temporaries(None);
        self.client.advisory.end();
        self.executor.engine.forget_session(self.client.number);
    }
}

/// An error without a place in a statement.
fn plain(error: DataFusionError) -> SqlError {
    from_datafusion(error, &Source::of("".into()))
}
