//! The engine: one per process. It owns the node's roles and databases, the
//! runtime that queries run on, and what all sessions share.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicI32, Ordering},
    },
    time::Duration,
};

use aerostat_advice::Machine;
use aerostat_api::{Controls, OtherNodes, RoleInfo};
use aerostat_catalog::{
    Database, StatementsRecord,
    admin::{Claim, Connection, DatabaseState, Holders, Host, Node, NodeError, Opening, Shared},
};
use aerostat_memory::Governor;
use aerostat_pgcatalog::{FunctionDescription, SessionDescription};
use aerostat_query::{
    SpillLimits, SpillSpace, base_state, describe_functions, turns::follow_tasks,
};
use aerostat_schedule::{
    Scheduler,
    admission::{Admission, Counts},
};
use aerostat_storage::{FreezeBacklog, backup::Places};
use aerostat_txn::{AdvisoryLocks, Seats, TxnManager};
use aerostat_types::{ErrorKind, SqlError, TenantId};
use datafusion::{
    common::Result,
    execution::{SessionState, SessionStateBuilder},
};
use parking_lot::Mutex;
use tokio::{runtime::Handle, sync::Semaphore};

use crate::{
    asleep::StepsAside, ends::Ends, grants::Grants, memory::Spare, news::News, tenant::Tenant,
};

/// Functions of the node that may wait at once. The runtime has 512 threads for what waits or
/// writes; the other half is for writes and for who waits for rows, relations and memory.
pub(crate) const WAITS_MAX: usize = 256;

/// Long texts that are read at once: they take processors from whoever else works, and some
/// hundred times their bytes.
const READERS_MAX: usize = 2;

/// What an engine is made with.
pub struct EngineOptions {
    /// The data folder.
    pub data: PathBuf,
    /// The node's memory budget.
    pub governor: Arc<Governor>,
    /// The runtime that queries run on; its threads should have [`crate::QUERY_STACK_BYTES`] of stack.
    pub queries: Handle,
    /// The runtime whose threads for what blocks end transactions. Nothing else should run on it; it needs no workers.
    pub ends: Handle,
    /// How many threads one query uses at most.
    pub threads: usize,
    /// Who is told of every statement.
    pub observer: Arc<dyn Observer>,
    /// Where backups and archives may be.
    pub places: Arc<dyn Places>,
    /// The machine by which layouts are priced.
    pub machine: Machine,
    /// How much of the disk queries may take.
    pub spill: SpillLimits,
    /// When databases are opened.
    pub opening: Opening,
    /// How many statements run and wait.
    pub statements: StatementOptions,
    /// What the node shares with others, in a cluster.
    pub shared: Option<Shared>,
}

/// How many statements run at once, and what holds for the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatementOptions {
    /// So many statements that are planned run on the node at once; `None` for any number.
    pub node_max: Option<u32>,
    /// So many threads sleep at once until others let rows go. What must wait beside them is undone, keeps no thread
    /// meanwhile, and runs again.
    pub sleeping_max: usize,
    /// What holds for databases of which nothing is said.
    pub of_database: StatementsRecord,
}

impl Default for StatementOptions {
    fn default() -> Self {
        Self {
            node_max: Some(NODE_STATEMENTS_MAX),
            sleeping_max: SLEEPING_MAX,
            of_database: StatementsRecord {
                statements_max: None,
                queue_max: None,
                queue_timeout_ms: Some(QUEUE_TIMEOUT_MS),
            },
        }
    }
}

/// Planned statements that a node runs at once if nothing is said. Each that writes, or waits for a row or a relation,
/// has one of the runtime's 512 threads for that, of which half is for functions that wait (`WAITS_MAX`); with so
/// many there are as many again for whatever goes ahead. Commits and rollbacks have threads of their own.
pub const NODE_STATEMENTS_MAX: u32 = 128;

/// Threads that sleep for rows, of the runtime's 512: enough that what is long is seldom undone for a wait, and few
/// enough that most stay for whoever has the row, or its turn.
const SLEEPING_MAX: usize = 64;

/// How long a statement waits for its place if nothing is said: as long as for a connection of PgBouncer
/// (`query_wait_timeout`).
const QUEUE_TIMEOUT_MS: u32 = 120_000;

/// Is told of what sessions do, for metrics.
pub trait Observer: Send + Sync {
    /// A statement has ended.
    fn statement(&self, statement: &StatementRecord<'_>);
}

/// A statement that has ended.
#[derive(Clone, Copy, Debug)]
pub struct StatementRecord<'a> {
    /// The database it ran in.
    pub database: &'a str,
    /// What kind it was: `select`, `insert`, `update`, `delete`, `copy`, `ddl` or `other`.
    pub kind: &'static str,
    /// From its arrival to its last row.
    pub elapsed: Duration,
    /// Rows returned or changed.
    pub rows: u64,
    /// How it failed.
    pub error: Option<ErrorKind>,
}

/// An observer that looks away.
pub struct NoObserver;

impl Observer for NoObserver {
    fn statement(&self, _statement: &StatementRecord<'_>) {}
}

/// What the node knows of one open database, for metrics.
#[derive(Clone, Debug)]
pub struct DatabaseStatistics {
    /// Its name.
    pub name: String,
    /// Bytes of its budget in use: rows and running queries.
    pub memory_used: u64,
    /// Its ceiling in bytes.
    pub memory_max: u64,
    /// What is kept for it, in bytes.
    pub memory_min: u64,
    /// Sessions connected.
    pub connections: i64,
    /// What its statements do, and what became of others.
    pub statements: Counts,
    /// What its planned statements have taken of the query threads, since it was opened.
    pub query_time: Duration,
    /// Queries that a kept plan was found for, since it was opened.
    pub plan_cache_hits: u64,
    /// Queries that were planned anew and might have had one.
    pub plan_cache_misses: u64,
    /// Of the hits, those that the physical plan was kept for, too.
    pub plan_cache_physical_hits: u64,
    /// How far the freezer is behind, over all tables.
    pub freeze_backlog: FreezeBacklog,
    /// Bytes that its queries have on disk now.
    pub spilled: u64,
    /// Bytes of its values that are not in memory now.
    pub evicted: u64,
    /// Bytes that were read back since it was opened.
    pub read_back: u64,
}

/// Every session's line in `pg_stat_activity`, by its number.
type Sessions = Mutex<BTreeMap<i32, Arc<Mutex<SessionDescription>>>>;

/// The engine.
pub struct Engine {
    node: Arc<Node>,
    governor: Arc<Governor>,
    grants: Grants,
    queries: Handle,
    ends: Ends,
    scheduler: Arc<Scheduler>,
    admission: Arc<Admission>,
    observer: Arc<dyn Observer>,
    machine: Arc<Machine>,
    /// Everything of a session state that no session changes.
    base: SessionState,
    spill: Arc<SpillSpace>,
    /// Of the databases that have sessions, or had since they were opened.
    tenants: Mutex<HashMap<TenantId, Arc<Tenant>>>,
    sessions: Sessions,
    session_next: AtomicI32,
    /// Each session's advisory locks, by its number.
    advisory: Mutex<HashMap<i32, Weak<AdvisoryLocks>>>,
    /// How each session is stopped, by its number.
    controls: Mutex<HashMap<i32, Controls>>,
    /// For functions that wait.
    waits: Semaphore,
    /// For threads that sleep for rows.
    seats: Arc<Seats>,
    /// What sessions may have beyond their tenants' budgets.
    spare: Arc<Spare>,
    readers: Arc<Semaphore>,
    started_at_us: i64,
    functions: Arc<[FunctionDescription]>,
    /// The other nodes of its cluster, to which sessions of what they lead go.
    others: OnceLock<Arc<dyn OtherNodes>>,
    /// What those have made of roles and databases.
    news: News,
}

impl Engine {
    /// Opens the data folder and makes the engine.
    ///
    /// # Errors
    /// The folder is in use, unreadable, or not one of ours.
    pub fn open(options: EngineOptions) -> Result<Arc<Engine>, NodeError> {
        follow_tasks();
        let host = Host {
            governor: Arc::clone(&options.governor),
            places: options.places,
            clock: Arc::new(StepsAside::default()),
            statements: options.statements.of_database,
            shared: options.shared,
        };
        let node = Node::open(&options.data, host, options.opening)?;
        let base = base_state(options.threads);
        let spill = SpillSpace::new(&options.data, &options.spill);
        Ok(Arc::new(Engine {
            node: Arc::new(node),
            grants: Grants::new(&options.governor),
            governor: options.governor,
            admission: Admission::new(options.statements.node_max),
            scheduler: Scheduler::new(options.queries.metrics().num_workers()),
            ends: Ends::new(options.ends, options.queries.clone()),
            queries: options.queries,
            observer: options.observer,
            machine: Arc::new(options.machine),
            functions: describe_functions(&base),
            others: OnceLock::new(),
            news: News::default(),
            base,
            spill,
            tenants: Mutex::default(),
            sessions: Sessions::default(),
            session_next: AtomicI32::new(1),
            advisory: Mutex::default(),
            controls: Mutex::default(),
            waits: Semaphore::new(WAITS_MAX),
            seats: Seats::new(options.statements.sleeping_max),
            spare: Arc::default(),
            readers: Arc::new(Semaphore::new(READERS_MAX)),
            started_at_us: chrono::Utc::now().timestamp_micros(),
        }))
    }

    /// What must be known of a role before it is let in.
    pub fn role(&self, name: &str) -> Option<RoleInfo> {
        self.node.role(name)
    }

    /// Follows what other nodes have made of roles and databases up to now, as far as that can be found out.
    pub(crate) async fn hear(self: &Arc<Self>) {
        let follow = || async {
            let node = Arc::clone(&self.node);
            let refreshed = self.queries.spawn_blocking(move || node.refresh()).await;
            if let Ok(Err(error)) = refreshed {
                tracing::debug!(message = error.message, "the cluster's catalogue");
            }
        };
        self.news.hear(follow).await;
    }

    /// Has sessions of databases that other nodes lead be there. What was said first stays.
    pub fn set_others(&self, others: Arc<dyn OtherNodes>) {
        let _ = self.others.set(others);
    }

    pub(crate) fn others(&self) -> Option<Arc<dyn OtherNodes>> {
        self.others.get().cloned()
    }

    /// The node's roles and databases.
    pub fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// The node's memory budget.
    pub fn governor(&self) -> &Arc<Governor> {
        &self.governor
    }

    /// Whether statements wait for a broker to grant the node more memory.
    pub fn waits_for_memory(&self) -> bool {
        self.grants.are_waited_for()
    }

    pub(crate) fn grants(&self) -> &Grants {
        &self.grants
    }

    /// What each database uses now.
    pub fn databases(&self) -> Vec<DatabaseStatistics> {
        self.node
            .open_databases()
            .iter()
            .map(|database| {
                let tenant = self.tenants.lock().get(&database.id).cloned();
                let tenant = tenant.as_deref();
                let plans = tenant.map(Tenant::plan_counts).unwrap_or_default();
                DatabaseStatistics {
                    name: database.name.read().clone(),
                    memory_used: database.store.budget().used(),
                    memory_max: database
                        .store
                        .budget()
                        .max()
                        .map_or(self.governor.limit(), |max| max.0),
                    memory_min: database.store.budget().min().0,
                    connections: database.connection_count(),
                    statements: self.statement_counts(database.id),
                    query_time: tenant.map(Tenant::query_time).unwrap_or_default(),
                    plan_cache_hits: plans.hits,
                    plan_cache_misses: plans.misses,
                    plan_cache_physical_hits: plans.physical_hits,
                    freeze_backlog: database.freeze_backlog(),
                    spilled: tenant.map(Tenant::spilled).unwrap_or_default(),
                    evicted: database.store.evicted_bytes(),
                    read_back: database.store.evictions().bytes_read_back,
                }
            })
            .collect()
    }

    /// What the statements of a database that is open do.
    pub(crate) fn statement_counts(&self, database: TenantId) -> Counts {
        let tenant = self.tenants.lock().get(&database).cloned();
        tenant.map_or(Counts::default(), |tenant| tenant.entrance().counts())
    }

    /// What the statements of a database that is open have taken of threads.
    pub fn time_used(&self, database: TenantId) -> Duration {
        let tenant = self.tenants.lock().get(&database).cloned();
        tenant.map_or(Duration::ZERO, |tenant| tenant.query_time())
    }

    /// Every database of the node, in order of names, and whether it can be used.
    pub fn states(&self) -> Vec<(String, DatabaseState)> {
        let record = self.node.record();
        let names = record.databases.keys();
        names
            .map(|name| (name.clone(), self.node.state_of(name)))
            .collect()
    }

    /// A place in a database, which is opened if it is closed. The thread is free meanwhile.
    pub(crate) async fn connection(
        self: &Arc<Self>,
        role: &str,
        database: &str,
    ) -> Result<Connection, SqlError> {
        let mut has_heard = self.others.get().is_none();
        loop {
            match self.node.try_connect(role, database) {
                Ok(Some(connection)) => return Ok(connection),
                Ok(None) => {}
                // Another node may have granted it a moment ago.
                Err(refused) if is_of_rights(&refused) && !has_heard => {
                    self.hear().await;
                    has_heard = true;
                    continue;
                }
                Err(refused) => return Err(refused),
            }
            match self.node.claim(database)? {
                Claim::Open(_) => {}
                Claim::Underway(attempt) => attempt.over().await?,
                Claim::Due(ticket) => {
                    let engine = Arc::clone(self);
                    let open = move || engine.node.carry_out(ticket).map(drop);
                    // If the runtime ends before, the ticket goes back, and nobody comes in.
                    let opened = self.queries.spawn_blocking(open).await;
                    opened.map_err(|_| stopping())??;
                }
            }
        }
    }

    /// The tenant of a database that somebody has connected to.
    pub(crate) fn tenant_of(&self, database: &Arc<Database>) -> Result<Arc<Tenant>> {
        let mut tenants = self.tenants.lock();
        if let Some(tenant) = tenants
            .get(&database.id)
            .filter(|known| known.is_of(database))
        {
            return Ok(Arc::clone(tenant));
        }
        let tenant = Tenant::of(database, &self.spill, &self.scheduler, &self.admission)?;
        tenants.insert(database.id, Arc::clone(&tenant));
        Ok(tenant)
    }

    pub(crate) fn queries(&self) -> &Handle {
        &self.queries
    }

    /// For threads that sleep for rows.
    pub(crate) fn seats(&self) -> &Arc<Seats> {
        &self.seats
    }

    /// The threads that end transactions.
    pub(crate) fn ends(&self) -> &Ends {
        &self.ends
    }

    pub(crate) fn observer(&self) -> &Arc<dyn Observer> {
        &self.observer
    }

    /// The machine by which layouts are priced.
    pub(crate) fn machine(&self) -> &Arc<Machine> {
        &self.machine
    }

    /// The state that a tenant's statements are planned and run with.
    pub(crate) fn state_for(&self, tenant: &Tenant) -> SessionState {
        SessionStateBuilder::new_from_existing(self.base.clone())
            .with_runtime_env(Arc::clone(tenant.environment()))
            .build()
    }

    /// What sessions may have beyond their tenants' budgets.
    pub(crate) fn spare(&self) -> &Arc<Spare> {
        &self.spare
    }

    pub(crate) fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Gives a session its number and what it tells others of itself.
    pub(crate) fn register_session(
        &self,
        mut description: SessionDescription,
    ) -> (i32, Arc<Mutex<SessionDescription>>) {
        let mut sessions = self.sessions.lock();
        let number = self.free_number(&sessions);
        description.pid = number;
        let told = Arc::new(Mutex::new(description));
        sessions.insert(number, Arc::clone(&told));
        (number, told)
    }

    /// The next number that no session has. They begin anew after 2³¹ − 1; none is 0, which
    /// clients take for no process.
    fn free_number(&self, taken: &BTreeMap<i32, Arc<Mutex<SessionDescription>>>) -> i32 {
        loop {
            let number = self.session_next.fetch_add(1, Ordering::Relaxed) & i32::MAX;
            if number != 0 && !taken.contains_key(&number) {
                return number;
            }
        }
    }

    pub(crate) fn forget_session(&self, number: i32) {
        self.sessions.lock().remove(&number);
        self.advisory.lock().remove(&number);
        self.controls.lock().remove(&number);
    }

    pub(crate) fn register_controls(&self, number: i32, controls: Controls) {
        self.controls.lock().insert(number, controls);
    }

    /// How a session is stopped; `None` if there is none of this number.
    pub(crate) fn controls_of(&self, number: i32) -> Option<Controls> {
        self.controls.lock().get(&number).cloned()
    }

    pub(crate) fn register_locks(&self, number: i32, locks: &Arc<AdvisoryLocks>) {
        self.advisory.lock().insert(number, Arc::downgrade(locks));
    }

    /// Sessions of a database by their numbers, with their advisory locks.
    pub(crate) fn advisory_locks_of(
        &self,
        txns: &Arc<TxnManager>,
    ) -> Vec<(i32, Arc<AdvisoryLocks>)> {
        let all = self.advisory.lock();
        all.iter()
            .filter_map(|(number, locks)| Some((*number, locks.upgrade()?)))
            .filter(|(_, locks)| locks.are_of(txns))
            .collect()
    }

    /// The places for those who read long texts.
    pub(crate) fn readers(&self) -> &Arc<Semaphore> {
        &self.readers
    }

    pub(crate) fn waits(&self) -> &Semaphore {
        &self.waits
    }

    pub(crate) fn started_at_us(&self) -> i64 {
        self.started_at_us
    }

    pub(crate) fn function_descriptions(&self) -> Arc<[FunctionDescription]> {
        Arc::clone(&self.functions)
    }
}

impl Engine {
    /// Of the sessions in a database.
    fn controls_in(&self, database: &Database) -> Vec<Controls> {
        let is_in =
            |told: &Arc<Mutex<SessionDescription>>| told.lock().database_id == Some(database.id);
        let numbers: Vec<i32> = {
            let sessions = self.sessions.lock();
            let numbers = sessions.iter().filter(|(_, told)| is_in(told));
            numbers.map(|(number, _)| *number).collect()
        };
        let numbers = numbers.iter();
        numbers
            .filter_map(|number| self.controls_of(*number))
            .collect()
    }
}

impl Holders for Engine {
    /// One that is used within the process has no connection to end: what it runs is stopped.
    fn end_sessions(&self, database: &Database) {
        for controls in self.controls_in(database) {
            match controls.terminate {
                Some(terminate) => terminate(),
                None => (controls.cancel)(),
            }
        }
    }

    fn have_leave(&self, database: &Database) {
        // A node whose sessions are where their clients have connected to passes none on.
        if self.others().is_none() {
            return;
        }
        let all = self.controls_in(database).into_iter();
        all.filter_map(|controls| controls.leave)
            .for_each(|leave| leave());
    }

    fn let_go(&self, database: &Database) {
        let gone = self.tenants.lock().remove(&database.id);
        // With its parts, and no lock held.
        drop(gone);
    }
}

/// Whether a client is refused for what it is or may do.
fn is_of_rights(refused: &SqlError) -> bool {
    matches!(
        refused.kind,
        ErrorKind::InvalidAuthorization | ErrorKind::InsufficientPrivilege
    )
}

fn stopping() -> SqlError {
    SqlError::new(
        ErrorKind::CannotConnectNow,
        "the database system is shutting down",
    )
}
