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
use aerostat_catalog::{
    Database,
    admin::{DatabaseState, Node, NodeError},
};
use aerostat_memory::Governor;
use aerostat_pgcatalog::{FunctionDescription, FunctionKind, SessionDescription};
use aerostat_schedule::Scheduler;
use aerostat_sql::tree::RESERVED;
use aerostat_storage::{FreezeBacklog, backup::Places};
use aerostat_txn::{AdvisoryLocks, TxnManager};
use aerostat_types::{ErrorKind, SqlError, TenantId};
use datafusion::{
    common::{Result, config::ConfigNonZeroUsize},
    execution::{
        SessionState, SessionStateBuilder,
        disk_manager::DiskManagerBuilder,
        runtime_env::{RuntimeEnv, RuntimeEnvBuilder},
    },
    physical_optimizer::{PhysicalOptimizerRule, optimizer::PhysicalOptimizer},
    prelude::SessionConfig,
};
use parking_lot::Mutex;
use tokio::{runtime::Handle, sync::Semaphore, task::JoinHandle};

use crate::{
    api::RoleInfo,
    cache::{PlanCache, PlanCacheCounts},
    cancel::Cancellation,
    heap::Heap,
    memory_pool::TenantPool,
    notify::Channels,
    physical::RunTimeFilters,
    plan::{BoundByAllKeys, CooperateAboveJoins, HideConstants, MakeInPieces, SortAgain},
    session::{Controls, Session, commit::Commits, facts::Sessions, memory::Spare, readers, waits},
    spill::{SpillLimits, SpillSpace, TenantSpill},
    star::StarPlanner,
    turns::{self, follow_tasks},
};

/// Rows of a batch between operators, and of a vector in storage.
const BATCH_ROWS: usize = 8_192;

/// A join tells a scan its keys one by one when there are so many at most, in so many bytes; of
/// more only the least and the greatest. The list costs a fraction of a microsecond for each key.
const JOIN_KEYS_MAX: usize = 1 << 14;
const JOIN_KEYS_BYTES_MAX: usize = 256 << 10;

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
        let node = Node::open(&options.data, Arc::clone(&options.governor), options.places)?;
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
            heaps: Mutex::default(),
            commits: Mutex::default(),
            plans: Mutex::default(),
            channels: Mutex::default(),
            sessions: Sessions::default(),
            session_next: AtomicI32::new(1),
            advisory: Mutex::default(),
            controls: Mutex::default(),
            waits: waits(),
            spare: Arc::default(),
            readers: readers(),
            started_at_us: chrono::Utc::now().timestamp_micros(),
        }))
    }

    /// What must be known of a role before it is let in.
    pub fn role(&self, name: &str) -> Option<RoleInfo> {
        self.node.role(name)
    }

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
        let connection = self.node.connect(role, database)?;
        Session::new(Arc::clone(self), connection, role, options)
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
                    query_time: self.scheduler.used(database.id),
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
        let statement = self.scheduler().work(database.id);
        let holding = self.heap_for(database).statement(cancellation);
        turns::spawn(self.queries(), statement, holding, work)
    }

    pub(crate) fn queries(&self) -> &Handle {
        &self.queries
    }

    pub(crate) fn scheduler(&self) -> &Arc<Scheduler> {
        &self.scheduler
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

    /// Forgets what was kept for databases that are gone.
    pub(crate) fn forget_dropped(&self) {
        let open = self.node.open_databases();
        let is_open = |id: &TenantId| open.iter().any(|database| database.id == *id);
        self.scheduler.retain(is_open);
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
        let environment = RuntimeEnvBuilder::new()
            .with_memory_pool(Arc::new(TenantPool::new(
                Arc::clone(database.store.budget()),
                self.heap_for(database),
            )))
            .with_disk_manager_builder(
                DiskManagerBuilder::default().with_temp_file_factory(Arc::clone(&spill) as _),
            )
            .build_arc()?;
        let runtime = TenantRuntime {
            environment: Arc::clone(&environment),
            spill,
        };
        runtimes.insert(database.id, runtime);
        Ok(environment)
    }
}

pub(crate) fn base_state(threads: usize) -> SessionState {
    let mut config = SessionConfig::new()
        .with_target_partitions(threads.max(1))
        .with_batch_size(BATCH_ROWS)
        .with_information_schema(false)
        .with_collect_statistics(true);
    let options = config.options_mut();
    options.sql_parser.parse_float_as_decimal = true;
    options.sql_parser.map_string_types_to_utf8view = true;
    options.sql_parser.default_null_ordering = "nulls_max".to_owned();
    options.sql_parser.collect_spans = true;
    // `aerostat_semantics` sees to the order of subqueries.
    options.sql_parser.enable_subquery_sort_elimination = false;
    options.optimizer.filter_null_join_keys = true;
    // It takes an output for the key of a group that is called so: `SELECT -g AS g … GROUP BY g ORDER BY g LIMIT 3`.
    options.optimizer.enable_topk_aggregation = false;
    options.optimizer.hash_join_inlist_pushdown_max_size = JOIN_KEYS_BYTES_MAX;
    options
        .optimizer
        .hash_join_inlist_pushdown_max_distinct_values = JOIN_KEYS_MAX;
    // Casts of ours may be nullable in the logical plan and not in the physical
    // one; the check takes the difference for a defect.
    options.execution.skip_physical_aggregate_schema_check = true;
    // Each batch that a repartition spills has a file of its own. Of a file that several tasks
    // add to, a reader waits for batches that another file has, and the tasks for the reader.
    options.execution.max_spill_file_size_bytes =
        ConfigNonZeroUsize::try_new(1).expect("it is not zero");
    let mut builder = SessionStateBuilder::new()
        .with_config(config)
        .with_default_features()
        .with_analyzer_rules(aerostat_semantics::analyzer_rules());
    builder = builder.with_query_planner(Arc::new(StarPlanner));
    let mut planners = aerostat_semantics::expr_planners();
    planners.append(builder.expr_planners().get_or_insert_default());
    builder = builder
        .with_expr_planners(planners)
        .with_type_planner(aerostat_semantics::type_planner());
    let mut rules: Vec<Arc<dyn PhysicalOptimizerRule + Send + Sync>> = Vec::new();
    for rule in PhysicalOptimizer::new().rules {
        match rule.name() {
            HideConstants::BEFORE => {
                rules.push(Arc::new(HideConstants));
                rules.push(rule);
            }
            SortAgain::BEFORE => {
                rules.push(Arc::new(SortAgain));
                rules.push(rule);
            }
            // It finds columns by their names, of which a join has some twice, and takes a filter to
            // the wrong one. The optimizer has handed down what filters are known.
            "FilterPushdown" => {}
            // It looks for an aggregate without FILTER below one that has it, and takes that for this
            // one. No table of ours has the exact statistics that it is for.
            "aggregate_statistics" => {}
            // Bounds of sorts are handed down by it.
            RunTimeFilters::REPLACES => {
                rules.push(Arc::new(BoundByAllKeys));
                rules.push(Arc::new(RunTimeFilters));
            }
            _ => rules.push(rule),
        }
    }
    rules.push(Arc::new(CooperateAboveJoins));
    rules.push(Arc::new(MakeInPieces));
    builder = builder.with_physical_optimizer_rules(rules);
    builder = builder.with_optimizer_rules(aerostat_semantics::optimizer_rules());
    let mut state = builder.build();
    aerostat_semantics::register(&mut state);
    state
}

/// The functions that SQL can call, for `pg_proc`. DataFusion knows argument
/// types only call by call, so none are told.
fn describe_functions(state: &SessionState) -> Arc<[FunctionDescription]> {
    let describe = |name: &String, kind| FunctionDescription {
        name: name.clone(),
        arguments: Vec::new(),
        result: "any".to_owned(),
        kind,
    };
    let mut all: Vec<FunctionDescription> = Vec::new();
    all.extend(
        state
            .scalar_functions()
            .keys()
            .map(|name| describe(name, FunctionKind::Plain)),
    );
    all.extend(
        state
            .aggregate_functions()
            .keys()
            .map(|name| describe(name, FunctionKind::Aggregate)),
    );
    all.extend(
        state
            .window_functions()
            .keys()
            .map(|name| describe(name, FunctionKind::Window)),
    );
    // Those that only rewritten statements call.
    all.retain(|function| !function.name.starts_with(RESERVED));
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all.dedup_by(|a, b| a.name == b.name);
    all.into()
}
