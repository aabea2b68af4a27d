//! The part of planning and running that no session changes: the configuration, rules and functions
//! of DataFusion, and for each tenant its memory and its spill space.

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
    plan::{
        BOUND_BY_ALL_KEYS, COOPERATE_ABOVE_JOINS, GIVE_TOPS, HIDE_CONSTANTS, HOLD_TOPS,
        MakeInPieces, ORDER_CHECK, REQUIREMENTS, SORT_AGAIN,
    },
    spill::TenantSpill,
    star::StarPlanner,
};

/// How many rows a batch between operators has, and a vector in storage.
const BATCH_ROWS: usize = 8_192;

/// A join gives a scan a list of its keys if there are at most this many, in at most this many
/// bytes; otherwise only the least and the greatest. The list costs a fraction of a microsecond for
/// each key.
const JOIN_KEYS_MAX: usize = 1 << 14;
const JOIN_KEYS_BYTES_MAX: usize = 256 << 10;

/// The runtime environment of a tenant's statements: memory of its budget, and files in its spill
/// space.
///
/// # Errors
/// The errors of DataFusion's builder.
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

/// The state from which those of all sessions are made. A query uses at most `threads` threads.
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
    // `aerostat_semantics` handles the order of subqueries.
    options.sql_parser.enable_subquery_sort_elimination = false;
    options.optimizer.filter_null_join_keys = true;
    // The rule takes an output for a group's key of the same name: `SELECT -g AS g … GROUP BY g
    // ORDER BY g LIMIT 3`.
    options.optimizer.enable_topk_aggregation = false;
    options.optimizer.hash_join_inlist_pushdown_max_size = JOIN_KEYS_BYTES_MAX;
    options
        .optimizer
        .hash_join_inlist_pushdown_max_distinct_values = JOIN_KEYS_MAX;
    // Our casts may be nullable in the logical plan and not in the physical one, which the
    // check takes for a defect.
    options.execution.skip_physical_aggregate_schema_check = true;
    // Each batch that a repartition spills gets a file of its own. If several tasks add to one
    // file, a reader may wait for batches in another file, and the tasks for the reader.
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
    let rules_of_datafusion = PhysicalOptimizer::new().rules;
    let count = rules_of_datafusion.len();
    for rule in rules_of_datafusion {
        match rule.name() {
            REQUIREMENTS => {
                rules.push(Arc::new(HIDE_CONSTANTS));
                rules.push(Arc::new(HOLD_TOPS));
                rules.push(rule);
                rules.push(Arc::new(GIVE_TOPS));
            }
            ORDER_CHECK => {
                rules.push(Arc::new(SORT_AGAIN));
                rules.push(rule);
            }
            // This rule finds columns by their names. A join may have a name twice, and then the
            // rule takes a filter to the wrong column. The optimizer has already handed down the
            // known filters.
            "FilterPushdown" => {}
            // This rule looks for an aggregate without FILTER below one with FILTER, and mistakes
            // it for this one. None of our tables has the exact statistics that the rule is for.
            "aggregate_statistics" => {}
            // This rule hands the bounds of sorts down, so the sorts must be final.
            RunTimeFilters::REPLACES => {
                rules.push(Arc::new(BOUND_BY_ALL_KEYS));
                rules.push(Arc::new(RunTimeFilters));
            }
            _ => rules.push(rule),
        }
    }
    assert_eq!(
        rules.len(),
        count + 3 + 2 - 2,
        "DataFusion has each of the rules that ours precede (2), stand around (1), replace by two (1) or leave out (2)"
    );
    rules.push(Arc::new(COOPERATE_ABOVE_JOINS));
    rules.push(Arc::new(MakeInPieces));
    builder = builder.with_physical_optimizer_rules(rules);
    builder = builder.with_optimizer_rules(aerostat_semantics::optimizer_rules());
    let mut state = builder.build();
    aerostat_semantics::register(&mut state);
    state
}

/// The functions that SQL can call, for `pg_proc`. DataFusion knows argument types only for a
/// particular call, so none are given.
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
    // Functions that only rewritten statements call are left out.
    all.retain(|function| !function.name.starts_with(RESERVED));
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all.dedup_by(|a, b| a.name == b.name);
    all.into()
}
