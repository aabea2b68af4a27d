//! Statistics of tables and their keys, as far as Aerostat counts what PostgreSQL counts.

use aerostat_sql::names::PG_CATALOG;

use super::Builder;
use crate::{
    CatalogView,
    cell::{Cell, Rows},
    view::classes::{Class, ClassKind},
};

pub(super) const BUILDERS: [(&str, &str, Builder); 8] = [
    (PG_CATALOG, "pg_stat_all_tables", table_statistics),
    (PG_CATALOG, "pg_stat_user_tables", table_statistics),
    (PG_CATALOG, "pg_statio_all_tables", table_io),
    (PG_CATALOG, "pg_statio_user_tables", table_io),
    (PG_CATALOG, "pg_stat_all_indexes", index_statistics),
    (PG_CATALOG, "pg_stat_user_indexes", index_statistics),
    (PG_CATALOG, "pg_statio_all_indexes", index_io),
    (PG_CATALOG, "pg_statio_user_indexes", index_io),
];

fn names(class: &Class) -> [(&'static str, Cell); 3] {
    [
        ("relid", class.oid.into()),
        ("schemaname", (&class.schema).into()),
        ("relname", (&class.name).into()),
    ]
}

fn table_statistics(view: &CatalogView, rows: &mut Rows) {
    for class in view.classes() {
        if let Some(table) = class.table() {
            let statistics = table.table.statistics();
            let [oid, schema, name] = names(class);
            rows.push([
                oid,
                schema,
                name,
                ("n_live_tup", statistics.rows.into()),
                ("n_dead_tup", statistics.rows_dead.into()),
            ]);
        }
    }
}

fn table_io(view: &CatalogView, rows: &mut Rows) {
    for class in view
        .classes()
        .iter()
        .filter(|class| class.table().is_some())
    {
        rows.push(names(class));
    }
}

fn index_names(class: &Class) -> Option<[(&'static str, Cell); 5]> {
    let ClassKind::Index(table, _) = &class.kind else {
        return None;
    };
    Some([
        ("relid", table.oid.into()),
        ("indexrelid", class.oid.into()),
        ("schemaname", (&class.schema).into()),
        ("relname", (&table.name).into()),
        ("indexrelname", (&class.name).into()),
    ])
}

fn index_statistics(view: &CatalogView, rows: &mut Rows) {
    for names in view.classes().iter().filter_map(index_names) {
        rows.push(names);
    }
}

fn index_io(view: &CatalogView, rows: &mut Rows) {
    index_statistics(view, rows);
}
