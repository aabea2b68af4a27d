//! Aerostat's own system views: tables, segments, layout advice, tenants, memory and settings.

use aerostat_catalog::TableEntry;
use aerostat_sql::{
    grants::{PredefinedRole, Privilege},
    names::AEROSTAT,
};

use super::Builder;
use crate::{CatalogView, cell::Rows, view::classes::Class};

pub(super) const BUILDERS: [(&str, &str, Builder); 10] = [
    (AEROSTAT, "tables", tables),
    (AEROSTAT, "segments", segments),
    (AEROSTAT, "segment_columns", segment_columns),
    (AEROSTAT, "layout_advice", layout_advice),
    (AEROSTAT, "tenants", tenants),
    (AEROSTAT, "memory", memory),
    (AEROSTAT, "memory_limits", memory_limits),
    (AEROSTAT, "evictions", evictions),
    (AEROSTAT, "memory_worth", memory_worth),
    (AEROSTAT, "settings", settings),
];

/// The tables whose rows the role may read.
fn readable(view: &CatalogView) -> impl Iterator<Item = (&Class, &TableEntry)> {
    view.classes()
        .iter()
        .filter(|class| view.may(&view.role, class, Privilege::Select))
        .filter_map(|class| Some((class, class.table()?)))
}

/// One row for each segment.
fn segments(view: &CatalogView, rows: &mut Rows) {
    for (class, table) in readable(view) {
        for segment in table.table.segments() {
            rows.push([
                ("schema_name", (&class.schema).into()),
                ("table_name", (&class.name).into()),
                ("segment", u64::from(segment.no.0).into()),
                ("frozen", segment.is_frozen.into()),
                ("base", segment.is_base.into()),
                ("lower_bound", segment.lower.into()),
                ("rows", segment.rows.into()),
                ("rows_dead", segment.rows_dead.into()),
                ("capacity", segment.capacity.into()),
                ("arena_bytes", segment.arena_bytes.into()),
                ("bytes_used", segment.bytes_used.into()),
                ("bytes_evicted", segment.bytes_evicted.into()),
                ("heap_bytes", segment.heap_bytes.into()),
                ("layout", segment.layout.to_string().into()),
                ("in_shape", segment.is_in_shape.into()),
            ]);
        }
    }
}

/// One row for each column of each segment: how its values are encoded.
fn segment_columns(view: &CatalogView, rows: &mut Rows) {
    for (class, table) in readable(view) {
        for segment in table.table.segments() {
            let columns = table.table.schema().columns.iter();
            for (column, attribute) in columns.zip(&segment.attributes) {
                let encoding = &attribute.encoding;
                rows.push([
                    ("schema_name", (&class.schema).into()),
                    ("table_name", (&class.name).into()),
                    ("segment", u64::from(segment.no.0).into()),
                    ("column_name", (&column.name).into()),
                    ("encoding", encoding.to_string().into()),
                    ("code_bits", encoding.code_bits.into()),
                    ("runs", encoding.runs.map(u64::from).into()),
                    ("entries", u64::from(encoding.entries).into()),
                    ("bytes", encoding.bytes.into()),
                    ("bytes_raw", attribute.bytes_raw.into()),
                ]);
            }
        }
    }
}

fn tables(view: &CatalogView, rows: &mut Rows) {
    for (class, table) in readable(view) {
        let statistics = table.table.statistics();
        let backlog = table.table.freeze_backlog();
        let ratio = (statistics.bytes_raw > 0)
            .then(|| statistics.bytes_whole() as f64 / statistics.bytes_raw as f64);
        rows.push([
            ("schema_name", (&class.schema).into()),
            ("table_name", (&class.name).into()),
            ("owner", (&table.owner).into()),
            ("layout", table.table.layout().to_string().into()),
            ("auto_layout", table.auto_layout.into()),
            ("rows", statistics.rows.into()),
            ("rows_dead", statistics.rows_dead.into()),
            ("segments", statistics.segments.into()),
            ("segments_in_shape", statistics.segments_in_shape.into()),
            ("rows_frozen", statistics.rows_frozen.into()),
            ("segments_frozen", statistics.segments_frozen.into()),
            ("rows_to_merge", backlog.rows_to_merge.into()),
            ("rows_due", backlog.rows_due.into()),
            ("bytes_frozen", statistics.bytes_frozen.into()),
            ("bytes_evicted", statistics.bytes_evicted.into()),
            ("bytes_used", statistics.bytes_used.into()),
            ("bytes_raw", statistics.bytes_raw.into()),
            ("bytes_reserved", statistics.bytes_reserved.into()),
            ("ratio", ratio.into()),
        ]);
    }
}

/// One row for each table: the layout that would cost its statements least.
fn layout_advice(view: &CatalogView, rows: &mut Rows) {
    let machine = view.facts.machine();
    for (class, table) in readable(view) {
        let advice = match table.usage.advice(&table.table, &machine) {
            Ok(advice) => advice,
            Err(error) => {
                tracing::error!(%error, table = %table.table.id(), "no layout advice");
                continue;
            }
        };
        let groups: Vec<String> = advice.best.groups.iter().map(ToString::to_string).collect();
        let pays_after = Some(advice.pays_after_s).filter(|seconds| seconds.is_finite());
        rows.push([
            ("schema_name", (&class.schema).into()),
            ("table_name", (&class.name).into()),
            ("layout", table.table.layout().to_string().into()),
            ("best_layout", advice.best.layout.to_string().into()),
            ("verdict", advice.verdict.to_string().into()),
            ("executions", Some(advice.executions).into()),
            ("cost_ns", Some(advice.cost_now_ns).into()),
            ("best_cost_ns", Some(advice.best.cost_ns).into()),
            ("gain_share", Some(advice.gain_share).into()),
            ("pays_after_s", pays_after.into()),
            ("best_groups", groups.join("; ").into()),
        ]);
    }
}

/// Superusers, operators and roles that may read all statistics see every tenant; others see the
/// one that they are connected to.
fn sees_all_tenants(view: &CatalogView) -> bool {
    view.may_read_all_statistics() || view.is_member(PredefinedRole::AerostatOperator)
}

/// What the process's memory is used for. Only a role that sees all tenants sees the node's own.
fn memory(view: &CatalogView, rows: &mut Rows) {
    let sees_all = sees_all_tenants(view);
    for of in view.facts.memory() {
        if sees_all || of.database.as_ref() == Some(&view.database) {
            rows.push([
                ("database", of.database.into()),
                ("class", of.class.into()),
                ("bytes", of.bytes.into()),
                ("bytes_reserved", of.bytes_reserved.into()),
            ]);
        }
    }
}

/// What node and databases may use of memory, by the same rule.
fn memory_limits(view: &CatalogView, rows: &mut Rows) {
    let sees_all = sees_all_tenants(view);
    for of in view.facts.memory_limits() {
        if sees_all || of.database.as_ref() == Some(&view.database) {
            rows.push([
                ("database", of.database.into()),
                ("bytes_target", of.target.into()),
                ("bytes_limit", of.limit.into()),
                ("bytes_used", of.used.into()),
                ("bytes_promised", of.promised.into()),
                ("bytes_unreserved", of.unreserved.into()),
            ]);
        }
    }
}

/// What was evicted of open databases, and read back, by the same rule.
fn evictions(view: &CatalogView, rows: &mut Rows) {
    let sees_all = sees_all_tenants(view);
    for of in view.facts.evictions() {
        if sees_all || of.database == view.database {
            rows.push([
                ("database", of.database.into()),
                ("bytes_evicted", of.evicted_now.into()),
                ("bytes_evicted_total", of.evicted.into()),
                ("bytes_read_back_total", of.read_back.into()),
                ("reads_total", of.reads.into()),
            ]);
        }
    }
}

/// What more memory would have been worth: bytes that would not have been read back.
fn memory_worth(view: &CatalogView, rows: &mut Rows) {
    let sees_all = sees_all_tenants(view);
    for of in view.facts.evictions() {
        if !sees_all && of.database != view.database {
            continue;
        }
        for (more, not_read) in of.worth {
            rows.push([
                ("database", (&of.database).into()),
                ("bytes_more", more.into()),
                ("bytes_not_read", not_read.into()),
            ]);
        }
    }
}

/// One row for each tenant that the role sees.
fn tenants(view: &CatalogView, rows: &mut Rows) {
    let sees_all = sees_all_tenants(view);
    let sessions = view.facts.sessions();
    let statements = view.facts.statements();
    let defaults = view.facts.statement_defaults();
    for (name, database) in &view.node.databases {
        if !sees_all && *name != view.database {
            continue;
        }
        let state = view.facts.database_state(name);
        let limits = database.statements_in_force(defaults);
        // Of one that nobody has connected to nothing runs.
        let run = statements.iter().find(|of| of.database == *name);
        rows.push([
            ("name", name.into()),
            ("owner", (&database.owner).into()),
            (
                "memory_max",
                database.memory_ceiling().map(|bytes| bytes.0).into(),
            ),
            (
                "memory_min",
                database.memory_min.map(|bytes| bytes.0).into(),
            ),
            ("memory_weight", database.memory_weight.into()),
            ("cpu_weight", database.cpu_weight.into()),
            ("connection_limit", database.connections_max().into()),
            ("statements_max", limits.statements_max.unwrap_or(-1).into()),
            ("queue_max", limits.queue_max.unwrap_or(-1).into()),
            (
                "queue_timeout_ms",
                limits.queue_timeout_ms.unwrap_or(0).into(),
            ),
            ("statements_running", run.map(|of| of.running).into()),
            ("statements_waiting", run.map(|of| of.waiting).into()),
            ("statements_refused", run.map(|of| of.refused).into()),
            ("statements_timed_out", run.map(|of| of.timed_out).into()),
            (
                "durability",
                database.commit_durability().to_string().into(),
            ),
            (
                "connections",
                sessions
                    .iter()
                    .filter(|session| session.database == *name)
                    .count()
                    .into(),
            ),
            (
                "nodes",
                match database.nodes.is_empty() {
                    true => None,
                    false => Some(
                        database
                            .nodes
                            .iter()
                            .cloned()
                            .collect::<Vec<_>>()
                            .join(", "),
                    ),
                }
                .into(),
            ),
            ("bytes", view.facts.database_bytes(name).into()),
            ("state", state.name().into()),
            ("reason", state.reason().map(str::to_owned).into()),
        ]);
    }
}

fn settings(view: &CatalogView, rows: &mut Rows) {
    for setting in crate::view::settings::all_settings(view) {
        rows.push([
            ("name", (&setting.name).into()),
            ("setting", (&setting.value).into()),
            ("unit", setting.unit.into()),
            ("category", setting.category.into()),
            ("short_desc", setting.description.into()),
            ("context", setting.context.into()),
        ]);
    }
}
