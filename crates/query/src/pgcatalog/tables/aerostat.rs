//! Aerostat's own system views: what tables and tenants take.

use super::{super::cell::Rows, Builder};
use crate::{
    catalog::{AEROSTAT, Privilege},
    pgcatalog::CatalogView,
};

pub(super) const BUILDERS: [(&str, &str, Builder); 4] = [
    (AEROSTAT, "tables", tables),
    (AEROSTAT, "layout_advice", layout_advice),
    (AEROSTAT, "tenants", tenants),
    (AEROSTAT, "settings", settings),
];

fn tables(view: &CatalogView, rows: &mut Rows) {
    for class in view.classes() {
        let Some(table) = class.table() else { continue };
        if !view.may(&view.role, class, Privilege::Select) {
            continue;
        }
        let statistics = table.table.statistics();
        let ratio = (statistics.bytes_raw > 0)
            .then(|| statistics.bytes_used as f64 / statistics.bytes_raw as f64);
        rows.push([
            ("schema_name", (&class.schema).into()),
            ("table_name", (&class.name).into()),
            ("owner", (&table.owner).into()),
            ("layout", table.table.layout().to_string().into()),
            ("rows", statistics.rows.into()),
            ("rows_dead", statistics.rows_dead.into()),
            ("segments", statistics.segments.into()),
            ("rows_frozen", statistics.rows_frozen.into()),
            ("segments_frozen", statistics.segments_frozen.into()),
            ("bytes_frozen", statistics.bytes_frozen.into()),
            ("bytes_used", statistics.bytes_used.into()),
            ("bytes_raw", statistics.bytes_raw.into()),
            ("bytes_reserved", statistics.bytes_reserved.into()),
            ("ratio", ratio.into()),
        ]);
    }
}

/// One row for each table: the layout that would cost its statements least.
fn layout_advice(view: &CatalogView, rows: &mut Rows) {
    for class in view.classes() {
        let Some(table) = class.table() else { continue };
        if !view.may(&view.role, class, Privilege::Select) {
            continue;
        }
        let advice = match table.usage.advice(&table.table) {
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

/// Superusers see every tenant, others the one they are in.
fn tenants(view: &CatalogView, rows: &mut Rows) {
    let sessions = view.facts.sessions();
    for (name, database) in &view.node.databases {
        if !view.superuser && *name != view.database {
            continue;
        }
        rows.push([
            ("name", name.into()),
            ("owner", (&database.owner).into()),
            (
                "memory_max",
                database.memory_max.map(|bytes| bytes.0).into(),
            ),
            ("connection_limit", database.connection_limit.into()),
            ("durability", database.durability.to_string().into()),
            (
                "connections",
                sessions
                    .iter()
                    .filter(|session| session.database == *name)
                    .count()
                    .into(),
            ),
            ("bytes", view.facts.database_bytes(name).into()),
        ]);
    }
}

fn settings(view: &CatalogView, rows: &mut Rows) {
    for setting in super::all_settings(view) {
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
