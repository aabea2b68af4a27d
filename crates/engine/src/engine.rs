//! The engine: one per process. It owns the node's roles and databases, the
//! runtime that queries run on, and what all sessions share.

use std::{
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    sync::{
        Arc, Weak,
        atomic::{AtomicI32, Ordering},
    },
    time::Duration,
};

use aerostat_advice::Machine;
use aerostat_api::{Canceller, RoleInfo};
use aerostat_catalog::{
    Database,
    admin::{DatabaseState, Holders, Node, NodeError, Opening},
};
use aerostat_memory::Governor;
use aerostat_pgcatalog::{FunctionDescription, SessionDescription};
use aerostat_query::{
    Cancellation, Heap, SpillLimits, SpillSpace, TenantSpill, base_state,
    cache::{PlanCache, PlanCacheCounts},
    describe_functions, tenant_environment,
    turns::{self, follow_tasks},
};
use aerostat_schedule::{Scheduler, Share};
use aerostat_storage::{FreezeBacklog, backup::Places};
use aerostat_txn::{AdvisoryLocks, TxnManager};
use aerostat_types::{ErrorKind, TenantId};
use datafusion::{
    common::Result,
    execution::{SessionState, SessionStateBuilder, runtime_env::RuntimeEnv},
};
use parking_lot::Mutex;
use tokio::{runtime::Handle, sync::Semaphore, task::JoinHandle};

use crate::{commits::Commits, memory::Spare, notify::Channels};

/// Functions of the node that may wait at once. The runtime has 512 threads for what waits or
/// writes; the other half is for commits and for who waits for rows and relations.
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
}

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
    /// Sessions connected.
    pub connections: i64,
    /// What its planned statements have taken of the query threads, since the node started.
    pub query_time: Duration,
    /// Queries that a kept plan was found for, since the node started.
    pub plan_cache_hits: u64,
    /// Queries that were planned anew and might have had one.
    pub plan_cache_misses: u64,
    /// Of the hits, those that the physical plan was kept for, too.
    pub plan_cache_physical_hits: u64,
    /// How far the freezer is behind, over all tables.
    pub freeze_backlog: FreezeBacklog,
    /// Bytes that its queries have on disk now.
    pub spilled: u64,
}

/// Every session's line in `pg_stat_activity`, by its number.
type Sessions = Mutex<BTreeMap<i32, Arc<Mutex<SessionDescription>>>>;

/// The way to stop a session from elsewhere: what it runs, or it itself.
#[derive(Clone)]
pub struct Controls {
    /// Stops the statement that runs; does nothing when none does.
    pub cancel: Canceller,
    /// Ends the session with its connection; `None` for one that has no connection.
    pub terminate: Option<Canceller>,
}

/// What the queries of a tenant share.
struct TenantRuntime {
    environment: Arc<RuntimeEnv>,
    spill: Arc<TenantSpill>,
}

/// The engine.
pub struct Engine {
    node: Node,
    governor: Arc<Governor>,
    queries: Handle,
    scheduler: Arc<Scheduler>,
    observer: Arc<dyn Observer>,
    machine: Arc<Machine>,
    /// Everything of a session state that no session changes.
    base: SessionState,
    spill: Arc<SpillSpace>,
    runtimes: Mutex<HashMap<TenantId, TenantRuntime>>,
    /// What each database has of the query threads.
    shares: Mutex<HashMap<TenantId, Arc<Share>>>,
    /// What the statements of each database hold.
    heaps: Mutex<HashMap<TenantId, Arc<Heap>>>,
    /// Where the commits of each database wait.
    commits: Mutex<HashMap<TenantId, Arc<Commits>>>,
    /// The plans that are kept for each database.
    plans: Mutex<HashMap<TenantId, Arc<PlanCache>>>,
    /// Where the sessions of each database listen.
    channels: Mutex<HashMap<TenantId, Arc<Channels>>>,
    sessions: Sessions,
    session_next: AtomicI32,
    /// Each session's advisory locks, by its number.
    advisory: Mutex<HashMap<i32, Weak<AdvisoryLocks>>>,
    /// How each session is stopped, by its number.
    controls: Mutex<HashMap<i32, Controls>>,
    /// For functions that wait.
    waits: Semaphore,
    /// What sessions may have beyond their tenants' budgets.
    spare: Arc<Spare>,
    readers: Arc<Semaphore>,
    started_at_us: i64,
    functions: Arc<[FunctionDescription]>,
}

impl Engine {
    /// Opens the data folder and makes the engine.
    ///
    /// # Errors
    /// The folder is in use, unreadable, or not one of ours.
    pub fn open(options: EngineOptions) -> Result<Arc<Engine>, NodeError> {
        follow_tasks();
        let governor = Arc::clone(&options.governor);
        let node = Node::open(&options.data, governor, options.places, Opening::Eager)?;
        let base = base_state(options.threads);
        let spill = SpillSpace::new(&options.data, &options.spill);
        Ok(Arc::new(Engine {
            node,
            governor: options.governor,
            scheduler: Scheduler::new(options.queries.metrics().num_workers()),
            queries: options.queries,
            observer: options.observer,
            machine: Arc::new(options.machine),
            functions: describe_functions(&base),
            base,
            spill,
            runtimes: Mutex::default(),
            shares: Mutex::default(),
            heaps: Mutex::default(),
            commits: Mutex::default(),
            plans: Mutex::default(),
            channels: Mutex::default(),
            sessions: Sessions::default(),
            session_next: AtomicI32::new(1),
            advisory: Mutex::default(),
            controls: Mutex::default(),
            waits: Semaphore::new(WAITS_MAX),
            spare: Arc::default(),
            readers: Arc::new(Semaphore::new(READERS_MAX)),
            started_at_us: chrono::Utc::now().timestamp_micros(),
        }))
    }

    /// What must be known of a role before it is let in.
    pub fn role(&self, name: &str) -> Option<RoleInfo> {
        self.node.role(name)
    }

    /// The node's roles and databases.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The node's memory budget.
    pub fn governor(&self) -> &Arc<Governor> {
        &self.governor
    }

    /// What each database uses now.
    pub fn databases(&self) -> Vec<DatabaseStatistics> {
        self.node
            .open_databases()
            .iter()
            .map(|database| {
                let plans = self.plan_counts(database);
                DatabaseStatistics {
                    name: database.name.read().clone(),
                    memory_used: database.store.budget().used(),
                    memory_max: database
                        .store
                        .budget()
                        .max()
                        .map_or(self.governor.limit(), |max| max.0),
                    connections: database.connection_count(),
                    query_time: self.query_time_of(database),
                    plan_cache_hits: plans.hits,
                    plan_cache_misses: plans.misses,
                    plan_cache_physical_hits: plans.physical_hits,
                    freeze_backlog: database.freeze_backlog(),
                    spilled: self.spilled_by(database),
                }
            })
            .collect()
    }

    /// Every database of the node, in order of names, and whether it can be used.
    pub fn states(&self) -> Vec<(String, DatabaseState)> {
        let record = self.node.record();
        let names = record.databases.keys();
        names
            .map(|name| (name.clone(), self.node.state_of(name)))
            .collect()
    }

    fn spilled_by(&self, database: &Database) -> u64 {
        let runtimes = self.runtimes.lock();
        runtimes
            .get(&database.id)
            .map_or(0, |runtime| runtime.spill.used())
    }

    fn query_time_of(&self, database: &Database) -> Duration {
        let shares = self.shares.lock();
        let share = shares.get(&database.id);
        share.map(|share| share.used()).unwrap_or_default()
    }

    fn plan_counts(&self, database: &Database) -> PlanCacheCounts {
        let plans = self.plans.lock();
        let plans = plans.get(&database.id);
        plans.map(|plans| plans.counts()).unwrap_or_default()
    }

    /// Runs a statement's work on the query threads, when it is its database's turn. The statement is
    /// stopped by this if it holds too much.
    pub(crate) fn spawn<T: Send + 'static>(
        &self,
        database: &Database,
        cancellation: &Cancellation,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let statement = self.share_of(database).work();
        let holding = self.heap_for(database).statement(cancellation);
        turns::spawn(self.queries(), statement, holding, work)
    }

    pub(crate) fn queries(&self) -> &Handle {
        &self.queries
    }

    fn share_of(&self, database: &Database) -> Arc<Share> {
        let mut shares = self.shares.lock();
        let share = shares.entry(database.id);
        Arc::clone(share.or_insert_with(|| self.scheduler.share(database.id)))
    }

    pub(crate) fn observer(&self) -> &Arc<dyn Observer> {
        &self.observer
    }

    /// The machine by which layouts are priced.
    pub(crate) fn machine(&self) -> &Arc<Machine> {
        &self.machine
    }

    /// The state that statements of a database are planned and run with.
    pub(crate) fn state_for(&self, database: &Database) -> Result<SessionState> {
        Ok(SessionStateBuilder::new_from_existing(self.base.clone())
            .with_runtime_env(self.runtime_for(database)?)
            .build())
    }

    /// What sessions may have beyond their tenants' budgets.
    pub(crate) fn spare(&self) -> &Arc<Spare> {
        &self.spare
    }

    /// Where the commits of a database wait.
    pub(crate) fn commits_of(&self, database: &Database) -> Arc<Commits> {
        Arc::clone(self.commits.lock().entry(database.id).or_default())
    }

    /// The plans that are kept for a database.
    pub(crate) fn plans_of(&self, database: &Database) -> Arc<PlanCache> {
        let mut all = self.plans.lock();
        let plans = all
            .entry(database.id)
            .or_insert_with(|| Arc::new(PlanCache::new(Arc::clone(database.store.budget()))));
        Arc::clone(plans)
    }

    /// Where the sessions of a database listen.
    pub(crate) fn channels_of(&self, database: &Database) -> Arc<Channels> {
        Arc::clone(self.channels.lock().entry(database.id).or_default())
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

    /// Forgets what is kept for a database.
    fn forget_database(&self, id: TenantId) {
        self.shares.lock().remove(&id);
        self.runtimes.lock().remove(&id);
        self.heaps.lock().remove(&id);
        self.commits.lock().remove(&id);
        self.plans.lock().remove(&id);
        self.channels.lock().remove(&id);
    }

    /// Forgets what was kept for databases that are gone.
    pub(crate) fn forget_dropped(&self) {
        let open = self.node.open_databases();
        let is_open = |id: &TenantId| open.iter().any(|database| database.id == *id);
        self.shares.lock().retain(|id, _| is_open(id));
        self.runtimes.lock().retain(|id, _| is_open(id));
        self.heaps.lock().retain(|id, _| is_open(id));
        self.commits.lock().retain(|id, _| is_open(id));
        self.plans.lock().retain(|id, _| is_open(id));
        self.channels.lock().retain(|id, _| is_open(id));
    }

    /// What the database's statements hold.
    pub(crate) fn heap_for(&self, database: &Database) -> Arc<Heap> {
        let mut heaps = self.heaps.lock();
        let new = || Heap::new(database.store.budget());
        Arc::clone(heaps.entry(database.id).or_insert_with(new))
    }

    fn runtime_for(&self, database: &Database) -> Result<Arc<RuntimeEnv>> {
        let mut runtimes = self.runtimes.lock();
        if let Some(runtime) = runtimes.get(&database.id) {
            return Ok(Arc::clone(&runtime.environment));
        }
        let spill = self.spill.of_tenant(&database.id.to_string());
        let environment = tenant_environment(
            Arc::clone(database.store.budget()),
            self.heap_for(database),
            Arc::clone(&spill),
        )?;
        let runtime = TenantRuntime {
            environment: Arc::clone(&environment),
            spill,
        };
        runtimes.insert(database.id, runtime);
        Ok(environment)
    }
}

impl Holders for Engine {
    /// One that is used within the process has no connection to end: what it runs is stopped.
    fn end_sessions(&self, database: &Database) {
        let name = database.name.read().clone();
        let is_in = |told: &Arc<Mutex<SessionDescription>>| told.lock().database == name;
        let sessions = self.sessions.lock();
        let numbers = sessions.iter().filter(|(_, told)| is_in(told));
        let numbers: Vec<i32> = numbers.map(|(number, _)| *number).collect();
        drop(sessions);
        for controls in numbers
            .iter()
            .filter_map(|number| self.controls_of(*number))
        {
            match controls.terminate {
                Some(terminate) => terminate(),
                None => (controls.cancel)(),
            }
        }
    }

    fn let_go(&self, database: &Database) {
        self.forget_database(database.id);
    }
}
