//! Sessions: one client's settings, prepared statements and running statement.
//!
//! A statement runs on the query runtime; what reaches the client's task is
//! batches of rows through a bounded channel ([`stream`]). Every statement can
//! be stopped at any time ([`aerostat_query::Cancellation`]), and a statement that fails or is
//! stopped leaves no trace: it is a transaction of its own, or a part of one
//! ([`transaction`]).

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
mod infer;
mod locking;
mod locks;
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

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use aerostat_api::{
    Client, ColumnDescription, EntryNumbers, Group, Notice, Outcome, TransactionStatus,
};
use aerostat_catalog::{Temporaries, admin::Connection, sequence::Taken, temporary_schema};
use aerostat_pgcatalog::{CatalogView, SessionDescription};
use aerostat_query::{
    CancelHandle, Cancellation, StarJoins,
    cache::PlanCache,
    from_datafusion,
    plan::{Gate, StatementContext},
};
use aerostat_semantics::functions::Times;
use aerostat_sql::{
    statement::{Source, Statement, StatementKind},
    utility::{TransactionCommand, Utility},
};
use aerostat_txn::{AdvisoryLocks, CancelToken, Snapshot};
use aerostat_types::{ErrorKind, SqlError};
use datafusion::{error::DataFusionError, execution::SessionState, sql::sqlparser::ast};

use crate::{
    commits::Commits,
    engine::{Controls, Engine, StatementRecord},
    notify::Inbox,
};

pub use prepared::Prepared;
pub use reading::Sent;

use cursor::Cursors;
use facts::SessionFacts;
use followed::Following;
use named::NamedStatements;
use notify::Sayings;
use parking_lot::Mutex;
use planning::Plans;
use settings::Settings;
use transaction::OpenBlock;

/// How much of a statement `pg_stat_activity` shows, as in PostgreSQL.
const ACTIVITY_CHARS_MAX: usize = 1_024;

/// One client's session.
pub struct Session {
    engine: Arc<Engine>,
    connection: Connection,
    /// The role that connected.
    role: String,
    /// Shared with the functions of a running statement, since `set_config` is one.
    settings: Arc<Mutex<Settings>>,
    number: i32,
    /// What others see of it in `pg_stat_activity`.
    told: Arc<Mutex<SessionDescription>>,
    prepared: NamedStatements,
    notices: waiting::Notices,
    /// Its advisory locks, and which transaction it has at hand.
    advisory: Arc<AdvisoryLocks>,
    cancel: CancelHandle,
    state: Arc<SessionState>,
    /// The open transaction block.
    block: Option<OpenBlock>,
    cursors: Cursors,
    /// When the transaction at hand began.
    transaction_time: chrono::DateTime<chrono::Utc>,
    /// How the statements at hand came together, if they did; they are a transaction.
    grouping: Option<Group>,
    /// Whether a statement goes on after [`Self::run`]: its rows come or go.
    is_busy: bool,
    /// How long the text at hand was read, which its statement's time includes.
    read_for: Duration,
    fast: fast::FastPath,
    following: Following,
    /// The numbers of sequences that it has taken.
    taken: Arc<Mutex<Taken>>,
    commits: Arc<Commits>,
    /// Its database's.
    plans: Arc<PlanCache>,
    temporaries: Temporaries,
    /// What its transaction has said to others.
    sayings: Sayings,
    /// What others have said to it, and on which channels it listens.
    inbox: Arc<Inbox>,
    /// Whether somebody tells its client what comes.
    is_told: bool,
    listening: Arc<Mutex<BTreeSet<String>>>,
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
    fn new(
        engine: Arc<Engine>,
        connection: Connection,
        role: &str,
        options: &[(String, String)],
    ) -> Result<Self, SqlError> {
        let superuser = engine.node().is_superuser(role);
        let told = [
            ("is_superuser", if superuser { "on" } else { "off" }),
            ("session_authorization", role),
        ];
        let settings = Arc::new(Mutex::new(Settings::new(&told, options)?));
        let state = engine.state_for(connection.database()).map_err(plain)?;
        let (number, told) = engine.register_session(SessionDescription {
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
            channels: engine.channels_of(connection.database()),
            number,
        };
        Ok(Self {
            advisory,
            commits: engine.commits_of(connection.database()),
            plans: engine.plans_of(connection.database()),
            fast: fast::FastPath::default(),
            following,
            taken: Arc::default(),
            engine,
            connection,
            role: role.to_owned(),
            notices: waiting::Notices::new(&settings),
            settings,
            number,
            told,
            prepared: NamedStatements::default(),
            cancel,
            state: Arc::new(state),
            block: None,
            cursors: Cursors::default(),
            transaction_time: chrono::Utc::now(),
            grouping: None,
            is_busy: false,
            read_for: Duration::ZERO,
            temporaries: Temporaries::default(),
            sayings,
            inbox: Arc::default(),
            is_told: false,
            listening: Arc::default(),
        })
    }

    /// The way to stop this session's running statement from elsewhere.
    pub fn cancel_handle(&self) -> CancelHandle {
        self.cancel.clone()
    }

    /// Messages beside the results, since the last call.
    pub fn take_notices(&mut self) -> Vec<Notice> {
        self.notices.take()
    }

    /// All settings the client is told of when it connects.
    pub fn reported_parameters(&self) -> Vec<(String, String)> {
        let settings = self.settings.lock();
        settings::REPORTED
            .iter()
            .filter_map(|(name, shown)| {
                Some(((*shown).to_owned(), settings.get(name).ok()?.to_owned()))
            })
            .collect()
    }

    /// The time zone that `timestamptz` values are shown in.
    pub fn time_zone(&self) -> aerostat_types::Zone {
        self.settings.lock().time_zone()
    }

    /// The number of the session: what the protocol's BackendKeyData, `pg_backend_pid()` and the
    /// views call the process that serves it. No two sessions of an engine have the same.
    pub fn number(&self) -> i32 {
        self.number
    }

    /// Notes from where and how the client has come, for `pg_stat_activity` and `pg_stat_ssl`.
    pub fn set_client(&mut self, client: Client) {
        self.told.lock().client = Some(client);
    }

    /// What is left of it after the reading of a long text.
    fn statement_timeout(&self) -> Option<Duration> {
        let timeout = self.settings.lock().statement_timeout();
        timeout.map(|timeout| timeout.saturating_sub(self.read_for))
    }

    /// The columns of an open cursor.
    pub fn cursor_columns(&self, name: &str) -> Option<Arc<[ColumnDescription]>> {
        self.cursors.columns(name)
    }

    /// The database's name.
    pub fn database(&self) -> String {
        self.connection.database().name.read().clone()
    }

    /// Runs a statement, with its parameters if it has been prepared.
    async fn run(
        &mut self,
        statement: &Statement,
        bound: Option<&prepared::Bound<'_>>,
    ) -> Result<Outcome, SqlError> {
        let started = Instant::now();
        let cancellation = self.cancel.begin(self.statement_timeout());
        let kind = kind_of(&statement.kind);
        if self.block.is_none() {
            self.mark_time();
        }
        self.follow_time_zone();
        self.follow_star_joins();
        self.follow_dynamic_filters();
        self.tell_times();
        self.note_activity(Some(statement.text()));
        let outcome = self.dispatch(statement, bound, &cancellation).await;
        if outcome.is_err() {
            self.fail();
        }
        if self.block.is_none() {
            self.settings.lock().end_local();
        }
        self.is_busy = matches!(
            outcome,
            Ok(Outcome::Rows { .. } | Outcome::CopyIn(_) | Outcome::CopyOut(_))
        );
        if !self.is_busy {
            self.note_activity(None);
        }
        let database = self.database();
        let record = |rows: u64, error| StatementRecord {
            database: &database,
            kind,
            elapsed: started.elapsed(),
            rows,
            error,
        };
        match outcome {
            Ok(Outcome::Rows {
                columns,
                batches,
                tag,
            }) => {
                let batches = stream::observed(
                    batches,
                    Arc::clone(self.engine.observer()),
                    self.database(),
                    kind,
                    started,
                );
                Ok(Outcome::Rows {
                    columns,
                    batches,
                    tag,
                })
            }
            Ok(Outcome::Command { tag }) => {
                let rows = tag
                    .rsplit(' ')
                    .next()
                    .and_then(|word| word.parse().ok())
                    .unwrap_or(0);
                self.engine.observer().statement(&record(rows, None));
                Ok(Outcome::Command { tag })
            }
            Ok(other) => {
                self.engine.observer().statement(&record(0, None));
                Ok(other)
            }
            Err(error) => {
                self.engine
                    .observer()
                    .statement(&record(0, Some(error.kind)));
                Err(error)
            }
        }
    }

    async fn dispatch(
        &mut self,
        statement: &Statement,
        bound: Option<&prepared::Bound<'_>>,
        cancellation: &Cancellation,
    ) -> Result<Outcome, SqlError> {
        let alone = self.enter_block(statement).await?;
        self.admit(statement)?;
        let outcome = match &statement.kind {
            StatementKind::Empty => Ok(Outcome::Empty),
            StatementKind::Unread => Err(SqlError::new(
                ErrorKind::Internal,
                "a statement is run that has not been read",
            )),
            StatementKind::Utility(utility) => {
                let source = &statement.source;
                Box::pin(self.run_utility(utility, source, bound, cancellation)).await
            }
            StatementKind::Sql(parsed) => {
                let source = &statement.source;
                self.run_sql(parsed, source, bound, Plans::Kept, cancellation)
                    .await
            }
        };
        if alone && outcome.is_ok() {
            self.commit_implicit().await?;
        }
        outcome
    }

    /// A transaction begins: now() and its like tell this time until it ends. What the last
    /// one left in tables with ON COMMIT DELETE ROWS goes.
    fn mark_time(&mut self) {
        self.temporaries.delete_rows();
        self.transaction_time = chrono::Utc::now();
    }

    /// A statement begins.
    fn tell_times(&mut self) {
        let times = Times {
            transaction: self.transaction_time,
            statement: match self.block {
                Some(_) => chrono::Utc::now(),
                None => self.transaction_time,
            },
        };
        let state = Arc::make_mut(&mut self.state);
        times.put(state.config_mut().options_mut());
        state.mark_start_execution();
    }

    /// Functions over times take the session's zone from the configuration they are planned with.
    fn follow_time_zone(&mut self) {
        let zone = self.time_zone();
        let zone = zone.name();
        if self.state.config_options().execution.time_zone.as_deref() != Some(zone) {
            let state = Arc::make_mut(&mut self.state);
            state.config_mut().options_mut().execution.time_zone = Some(zone.to_owned());
        }
    }

    /// Planning asks the configuration whether to look for star joins.
    fn follow_star_joins(&mut self) {
        let wanted = StarJoins(self.settings.lock().joins_stars());
        let current = self.state.config().get_extension::<StarJoins>();
        if current.is_none_or(|current| *current != wanted) {
            let state = Arc::make_mut(&mut self.state);
            state.config_mut().set_extension(Arc::new(wanted));
        }
    }

    /// As [`Self::follow_star_joins`], for run-time filters.
    fn follow_dynamic_filters(&mut self) {
        let wanted = self.settings.lock().filters_at_run_time();
        let options = self.state.config_options();
        if options.optimizer.enable_dynamic_filter_pushdown != wanted {
            let state = Arc::make_mut(&mut self.state);
            let options = state.config_mut().options_mut();
            options.optimizer.enable_dynamic_filter_pushdown = wanted;
        }
    }

    /// What names of catalogue entries mean now.
    ///
    /// # Errors
    /// The database is gone.
    pub fn entry_numbers(&self) -> Result<EntryNumbers, SqlError> {
        let snapshot = self.connection.database().store.txns().snapshot();
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
        self.context_until(gate, snapshot, self.cancel.waits())
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
        let session_role = self.settings.lock().session_role().to_owned();
        let database = Arc::clone(self.connection.database());
        let system = Arc::new(CatalogView {
            node: self.engine.node().record(),
            database: database.name.read().clone(),
            state: Arc::clone(gate.catalog()),
            role: actor.role.clone(),
            session_role,
            superuser: actor.superuser,
            search_path: actor.written_path().map(str::to_owned).collect(),
            backend_pid: self.number,
            facts: Arc::new(SessionFacts {
                engine: Arc::clone(&self.engine),
                settings: Arc::clone(&self.settings),
                prepared: self.prepared.clone(),
                cursors: self.cursors.describe(),
                told: Arc::clone(&self.told),
                gate: Arc::clone(gate),
                sequences: Mutex::default(),
                taken: Arc::clone(&self.taken),
                read_only: self.read_only(),
                waiting: self.waiting(gate.locks(), waits),
                role: actor.role.clone(),
                authenticated: self.role.clone(),
                sayings: self.sayings.clone(),
                listening: Arc::clone(&self.listening),
            }),
            functions: self.engine.function_descriptions(),
            index: Arc::default(),
        });
        let context = StatementContext::new(
            Arc::clone(&self.state),
            database,
            snapshot,
            actor,
            system,
            Arc::clone(gate),
        );
        Ok(Arc::new(context.in_block(self.deferred())))
    }

    fn actor(&self) -> Result<aerostat_catalog::Actor, SqlError> {
        let (path, role) = {
            let settings = self.settings.lock();
            (settings.search_path(), settings.acting_role().to_owned())
        };
        let database = self.connection.database();
        let mut actor = self.engine.node().actor(&role, database, path)?;
        actor.temporary = Some(temporary_schema(self.number));
        actor.zone = self.time_zone();
        Ok(actor)
    }

    /// Says that the client may send its next statements: the rows of those before have come
    /// and gone. Gives where the session stands.
    pub fn rest(&mut self) -> TransactionStatus {
        self.read_for = Duration::ZERO;
        if std::mem::take(&mut self.is_busy) {
            self.note_activity(None);
        }
        if self.block.is_none() {
            self.temporaries.delete_rows();
            // What a query has said by itself, now that all its rows have come.
            self.publish();
        }
        self.status()
    }

    /// Notes in `pg_stat_activity` what the session does.
    fn note_activity(&self, query: Option<&str>) {
        let now = chrono::Utc::now().timestamp_micros();
        let between = self.state_between();
        let mut description = self.told.lock();
        description.state_at_us = Some(now);
        match query {
            Some(query) => {
                description.state = "active";
                description.query_at_us = Some(now);
                tell_query(&mut description, query);
            }
            None => description.state = between,
        }
    }

    /// Notes there what the session has done meanwhile.
    fn note_done(&self, query: &str) {
        let now = chrono::Utc::now().timestamp_micros();
        let between = self.state_between();
        let mut description = self.told.lock();
        description.state_at_us = Some(now);
        description.query_at_us = Some(now);
        description.state = between;
        tell_query(&mut description, query);
    }

    fn state_between(&self) -> &'static str {
        match self.status() {
            TransactionStatus::Idle => "idle",
            TransactionStatus::InTransaction => "idle in transaction",
            TransactionStatus::Failed => "idle in transaction (aborted)",
        }
    }
}

fn application_name(settings: &Settings) -> String {
    let name = settings.get("application_name");
    name.unwrap_or_default().to_owned()
}

/// Shows the beginning of a statement. The place for its text is the last one's.
fn tell_query(description: &mut SessionDescription, query: &str) {
    let end = match query.len() {
        ..=ACTIVITY_CHARS_MAX => query.len(),
        _ => query
            .char_indices()
            .nth(ACTIVITY_CHARS_MAX)
            .map_or(query.len(), |(end, _)| end),
    };
    description.query.clear();
    description.query.push_str(&query[..end]);
}

impl Drop for Session {
    fn drop(&mut self) {
        // The client is gone: so is what it did not commit, and what it waits for.
        self.cancel.cancel();
        self.fail_for_good();
        self.say_nothing();
        self.unlisten();
        self.keep_temporaries(None);
        self.advisory.end();
        self.engine.forget_session(self.number);
    }
}

/// BEGIN, COMMIT and their like, which plan nothing.
fn control(kind: &StatementKind) -> Option<&TransactionCommand> {
    match kind {
        StatementKind::Utility(utility) => match &**utility {
            Utility::Transaction(command) => Some(command).filter(|command| command.is_control()),
            _ => None,
        },
        StatementKind::Sql(_) | StatementKind::Empty | StatementKind::Unread => None,
    }
}

/// The kinds that metrics tell apart.
fn kind_of(kind: &StatementKind) -> &'static str {
    match kind {
        StatementKind::Empty | StatementKind::Unread => "other",
        StatementKind::Utility(utility) => match &**utility {
            Utility::Copy(_) => "copy",
            Utility::Schema(_)
            | Utility::Database(_)
            | Utility::Role(_)
            | Utility::Grant(_)
            | Utility::Comment(_) => "ddl",
            _ => "other",
        },
        StatementKind::Sql(parsed) => match &**parsed {
            ast::Statement::Query(_) => "select",
            ast::Statement::Insert(_) => "insert",
            ast::Statement::Update(_) => "update",
            ast::Statement::Delete(_) => "delete",
            ast::Statement::Merge(_) => "merge",
            ast::Statement::CreateTable(_) | ast::Statement::CreateView(_) => "ddl",
            _ => "other",
        },
    }
}

/// An error without a place in a statement.
fn plain(error: DataFusionError) -> SqlError {
    from_datafusion(error, &Source::of("".into()))
}
