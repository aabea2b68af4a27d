//! What statements are planned and run with that no session changes: the configuration, rules and
//! functions of DataFusion, and for each tenant its memory and its part of the disk.

use std::sync::Arc;

use aerostat_memory::Budget;
use aerostat_pgcatalog::{FunctionDescription, FunctionKind};
use aerostat_sql::tree::RESERVED;
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

use crate::{
    heap::Heap,
    memory_pool::TenantPool,
    physical::RunTimeFilters,
    plan::{BoundByAllKeys, CooperateAboveJoins, HideConstants, MakeInPieces, SortAgain},
    spill::TenantSpill,
    star::StarPlanner,
};

/// Rows of a batch between operators, and of a vector in storage.
const BATCH_ROWS: usize = 8_192;

/// A join tells a scan its keys one by one when there are so many at most, in so many bytes; of
/// more only the least and the greatest. The list costs a fraction of a microsecond for each key.
const JOIN_KEYS_MAX: usize = 1 << 14;
const JOIN_KEYS_BYTES_MAX: usize = 256 << 10;

/// What the statements of a tenant run with: memory of its budget, and files in its part of the disk.
///
/// # Errors
/// Those of DataFusion's builder.
pub fn tenant_environment(
    budget: Arc<Budget>,
    heap: Arc<Heap>,
    spill: Arc<TenantSpill>,
) -> Result<Arc<RuntimeEnv>> {
    RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(TenantPool::new(budget, heap)))
        .with_disk_manager_builder(DiskManagerBuilder::default().with_temp_file_factory(spill))
        .build_arc()
}

/// The state that those of all sessions are made from. A query uses so many threads at most.
pub fn base_state(threads: usize) -> SessionState {
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
pub fn describe_functions(state: &SessionState) -> Arc<[FunctionDescription]> {
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
