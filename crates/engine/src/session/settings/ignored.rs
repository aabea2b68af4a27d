//! The settings that are taken because clients and scripts set them, and change nothing here.
//! docs/sql.md says why for each.

use super::setting::{Check, Effect, KnownSetting, ON_OFF};

const fn ignored(
    name: &'static str,
    default: &'static str,
    check: Check,
    description: &'static str,
) -> KnownSetting {
    KnownSetting {
        name,
        default,
        description,
        effect: Effect::Ignored,
        check,
    }
}

/// Costs and switches of PostgreSQL's planner.
const fn planner(name: &'static str, default: &'static str, check: Check) -> KnownSetting {
    ignored(
        name,
        default,
        check,
        "Accepted; Aerostat plans by its own costs.",
    )
}

/// What PostgreSQL divides among parallel workers.
const fn parallel(name: &'static str, default: &'static str, check: Check) -> KnownSetting {
    ignored(
        name,
        default,
        check,
        "Accepted; statements share the query threads.",
    )
}

const INTEGER_MAX: i64 = i32::MAX as i64;

/// Every such setting, in order of names.
pub(super) const IGNORED: &[KnownSetting] = &[
    ignored(
        "check_function_bodies",
        "on",
        ON_OFF,
        "Accepted; there are no functions of users.",
    ),
    ignored(
        "client_connection_check_interval",
        "0",
        Check::Duration,
        "Accepted; a client that goes is noticed at once.",
    ),
    ignored(
        "constraint_exclusion",
        "partition",
        Check::OneOf(&["partition", "on", "off"]),
        "Accepted; Aerostat plans by its own costs.",
    ),
    planner("cpu_index_tuple_cost", "0.005", Check::Real),
    planner("cpu_operator_cost", "0.0025", Check::Real),
    planner("cpu_tuple_cost", "0.01", Check::Real),
    planner("cursor_tuple_fraction", "0.1", Check::Real),
    ignored(
        "deadlock_timeout",
        "1s",
        Check::Duration,
        "Accepted; deadlocks are found at once.",
    ),
    ignored(
        "default_statistics_target",
        "100",
        Check::Integer(1, 10_000),
        "Accepted; statistics are kept with every write.",
    ),
    ignored(
        "default_toast_compression",
        "pglz",
        Check::OneOf(&["pglz", "lz4"]),
        "Accepted; how values are kept is the layout's.",
    ),
    ignored(
        "default_transaction_deferrable",
        "off",
        ON_OFF,
        "Accepted; it is about SERIALIZABLE.",
    ),
    planner("effective_cache_size", "4GB", Check::Blocks),
    ignored(
        "effective_io_concurrency",
        "1",
        Check::Integer(0, 1_000),
        "Accepted; rows are in memory.",
    ),
    planner("enable_async_append", "on", ON_OFF),
    planner("enable_bitmapscan", "on", ON_OFF),
    planner("enable_gathermerge", "on", ON_OFF),
    planner("enable_hashagg", "on", ON_OFF),
    planner("enable_hashjoin", "on", ON_OFF),
    planner("enable_incremental_sort", "on", ON_OFF),
    planner("enable_indexonlyscan", "on", ON_OFF),
    planner("enable_indexscan", "on", ON_OFF),
    planner("enable_material", "on", ON_OFF),
    planner("enable_memoize", "on", ON_OFF),
    planner("enable_mergejoin", "on", ON_OFF),
    planner("enable_nestloop", "on", ON_OFF),
    planner("enable_parallel_append", "on", ON_OFF),
    planner("enable_parallel_hash", "on", ON_OFF),
    planner("enable_partition_pruning", "on", ON_OFF),
    planner("enable_partitionwise_aggregate", "off", ON_OFF),
    planner("enable_partitionwise_join", "off", ON_OFF),
    planner("enable_seqscan", "on", ON_OFF),
    planner("enable_sort", "on", ON_OFF),
    planner("enable_tidscan", "on", ON_OFF),
    ignored(
        "escape_string_warning",
        "on",
        ON_OFF,
        "Accepted; plain strings have no escapes.",
    ),
    ignored(
        "extra_float_digits",
        "1",
        Check::Integer(-15, 3),
        "Digits of floats; any value prints them exactly.",
    ),
    parallel(
        "force_parallel_mode",
        "off",
        Check::OneOf(&["off", "on", "regress"]),
    ),
    planner("from_collapse_limit", "8", Check::Integer(1, INTEGER_MAX)),
    planner("geqo", "on", ON_OFF),
    planner("geqo_effort", "5", Check::Integer(1, 10)),
    planner("geqo_generations", "0", Check::Integer(0, INTEGER_MAX)),
    planner("geqo_pool_size", "0", Check::Integer(0, INTEGER_MAX)),
    planner("geqo_seed", "0", Check::Real),
    planner("geqo_selection_bias", "2", Check::Real),
    planner("geqo_threshold", "12", Check::Integer(2, INTEGER_MAX)),
    ignored(
        "hash_mem_multiplier",
        "2",
        Check::Real,
        "Accepted; memory is budgeted by database.",
    ),
    planner("jit", "on", ON_OFF),
    planner("jit_above_cost", "100000", Check::Real),
    planner("jit_inline_above_cost", "500000", Check::Real),
    planner("jit_optimize_above_cost", "500000", Check::Real),
    planner("join_collapse_limit", "8", Check::Integer(1, INTEGER_MAX)),
    ignored(
        "lc_messages",
        "C",
        Check::OneOf(&["C", "POSIX", "C.UTF-8", "en_US.UTF-8", "en_US.utf8"]),
        "Accepted; messages are English.",
    ),
    ignored(
        "maintenance_work_mem",
        "64MB",
        Check::Kilobytes,
        "Accepted; memory is budgeted by database.",
    ),
    parallel(
        "max_parallel_maintenance_workers",
        "2",
        Check::Integer(0, 1_024),
    ),
    parallel("max_parallel_workers", "8", Check::Integer(0, 1_024)),
    parallel(
        "max_parallel_workers_per_gather",
        "2",
        Check::Integer(0, 1_024),
    ),
    parallel("min_parallel_index_scan_size", "512kB", Check::Blocks),
    parallel("min_parallel_table_scan_size", "8MB", Check::Blocks),
    parallel("parallel_leader_participation", "on", ON_OFF),
    parallel("parallel_setup_cost", "1000", Check::Real),
    parallel("parallel_tuple_cost", "0.1", Check::Real),
    ignored(
        "quote_all_identifiers",
        "off",
        ON_OFF,
        "Accepted; definitions quote the names that need it.",
    ),
    planner("random_page_cost", "4", Check::Real),
    planner("recursive_worktable_factor", "10", Check::Real),
    ignored(
        "row_security",
        "on",
        ON_OFF,
        "Accepted; there are no row policies.",
    ),
    planner("seq_page_cost", "1", Check::Real),
    ignored(
        "synchronize_seqscans",
        "on",
        ON_OFF,
        "Accepted; scans keep no order among each other.",
    ),
    ignored(
        "synchronous_commit",
        "on",
        Check::OneOf(&["on", "off", "local", "remote_write", "remote_apply"]),
        "Accepted; durability is a property of the database.",
    ),
    ignored(
        "tcp_keepalives_count",
        "0",
        Check::Integer(0, INTEGER_MAX),
        "Accepted; the operating system's hold.",
    ),
    ignored(
        "tcp_keepalives_idle",
        "0",
        Check::Integer(0, INTEGER_MAX),
        "Accepted; the operating system's hold.",
    ),
    ignored(
        "tcp_keepalives_interval",
        "0",
        Check::Integer(0, INTEGER_MAX),
        "Accepted; the operating system's hold.",
    ),
    ignored(
        "tcp_user_timeout",
        "0",
        Check::Integer(0, INTEGER_MAX),
        "Accepted; the operating system's holds.",
    ),
    ignored(
        "temp_buffers",
        "8MB",
        Check::Blocks,
        "Accepted; memory is budgeted by database.",
    ),
    ignored(
        "work_mem",
        "4MB",
        Check::Kilobytes,
        "Accepted; memory is budgeted by database.",
    ),
    ignored(
        "xmlbinary",
        "base64",
        Check::OneOf(&["base64", "hex"]),
        "Accepted; there is no type xml.",
    ),
    ignored(
        "xmloption",
        "content",
        Check::OneOf(&["content", "document"]),
        "Accepted; there is no type xml.",
    ),
];
