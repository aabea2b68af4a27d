//! Relations and their parts: columns, defaults, keys, constraints, comments, and PostgreSQL's
//! views over these.

use std::collections::BTreeSet;

use aerostat_catalog::TableEntry;
use aerostat_sql::{deferral::Deferral, names::PG_CATALOG};
use aerostat_types::{Column, IndexKind, Layout, SqlType};

use super::Builder;
use crate::{
    CatalogView,
    cell::{Cell, Rows},
    data, types,
    view::{
        classes::{Class, ClassKind},
        definition,
        numbers::{
            BTREE, EXTENSION_COMMENT, EXTENSION_OID, HASH, HEAP, PG_CLASS, PG_CONSTRAINT,
            PG_EXTENSION, PG_NAMESPACE, PG_TYPE, derived_oid,
        },
        parts::{constraint_oids, index_columns, index_comment},
    },
};

pub(super) const BUILDERS: [(&str, &str, Builder); 10] = [
    (PG_CATALOG, "pg_namespace", namespaces),
    (PG_CATALOG, "pg_class", relations),
    (PG_CATALOG, "pg_attribute", attributes),
    (PG_CATALOG, "pg_attrdef", defaults),
    (PG_CATALOG, "pg_index", indexes),
    (PG_CATALOG, "pg_constraint", constraints),
    (PG_CATALOG, "pg_description", descriptions),
    (PG_CATALOG, "pg_tables", table_views),
    (PG_CATALOG, "pg_views", view_views),
    (PG_CATALOG, "pg_indexes", index_views),
];

/// `pg_collation.oid`: `default` for user's texts, `C` for names.
pub(crate) const COLLATION_DEFAULT: u32 = 100;
const COLLATION_C: u32 = 950;

/// Bytes of the pages that `relpages` counts.
const PAGE_BYTES: u64 = 8_192;

fn namespaces(view: &CatalogView, rows: &mut Rows) {
    for (oid, name, owner, _) in view.schemas() {
        rows.push([
            ("oid", oid.into()),
            ("nspname", name.to_owned().into()),
            ("nspowner", view.role_oid(owner).into()),
            ("nspacl", view.schema_acl(name).into()),
        ]);
    }
}

fn relations(view: &CatalogView, rows: &mut Rows) {
    let referential = referential(view);
    for class in view.classes() {
        let owner = class.owner().unwrap_or_else(|| view.system_owner());
        let (columns, checks, has_key) = match &class.kind {
            ClassKind::Table(table) => {
                let schema = table.table.schema();
                (
                    schema.columns.len(),
                    schema.checks.len(),
                    table.all_indexes().next().is_some(),
                )
            }
            ClassKind::View(entry) => (entry.columns.len(), 0, false),
            ClassKind::Sequence(_) => (class.columns().len(), 0, false),
            ClassKind::Index(_, index) => (index.index.columns.len(), 0, false),
            ClassKind::System(relation) => (relation.columns.len(), 0, false),
        };
        let statistics = class.table().map(|table| table.table.statistics());
        let access_method = match (&class.kind, class.relkind()) {
            (ClassKind::Index(_, index), _) => match index.index.kind {
                IndexKind::Ordered => BTREE,
                IndexKind::Hash => HASH,
            },
            (_, "r") => HEAP,
            _ => 0,
        };
        let options = class.table().and_then(layout_option);
        rows.push([
            ("oid", class.oid.into()),
            ("relname", (&class.name).into()),
            ("relnamespace", class.schema_oid.into()),
            ("relowner", view.role_oid(owner).into()),
            ("relam", access_method.into()),
            (
                "relfilenode",
                if class.relkind() == "v" {
                    Cell::Int(0)
                } else {
                    class.oid.into()
                },
            ),
            (
                "relpages",
                statistics
                    .as_ref()
                    .map_or(0, |s| s.bytes_whole().div_ceil(PAGE_BYTES))
                    .into(),
            ),
            (
                "reltuples",
                statistics.as_ref().map_or(0.0, |s| s.rows as f64).into(),
            ),
            ("relhasindex", has_key.into()),
            (
                "relpersistence",
                if class.is_temporary() { "t" } else { "p" }.into(),
            ),
            ("relkind", class.relkind().into()),
            ("relnatts", columns.into()),
            ("relchecks", checks.into()),
            ("relhasrules", (class.relkind() == "v").into()),
            ("relhastriggers", referential.contains(&class.oid).into()),
            ("relispopulated", true.into()),
            (
                "relreplident",
                if class.owner().is_some() && class.relkind() == "r" {
                    "d"
                } else {
                    "n"
                }
                .into(),
            ),
            ("relacl", view.relation_acl(class).into()),
            ("reloptions", options.into()),
        ]);
    }
}

/// The layout of a table that has one of its own. PostgreSQL does not know the option, and has
/// no use for that of all others.
fn layout_option(table: &TableEntry) -> Option<Vec<String>> {
    let layout = match table.auto_layout {
        true => "auto".to_owned(),
        false if table.table.layout() == Layout::Column => return None,
        false => table.table.layout().to_string(),
    };
    Some(vec![format!("layout={layout}")])
}

/// How a column is described in `pg_attribute`.
struct Attribute<'a> {
    relation: u32,
    number: usize,
    name: &'a str,
    type_oid: u32,
    typmod: i32,
    nullable: bool,
    has_default: bool,
    /// `a`, `d`, or empty for what is no identity column.
    identity: &'static str,
    collation: u32,
}

fn attributes(view: &CatalogView, rows: &mut Rows) {
    for class in view.classes() {
        match &class.kind {
            ClassKind::Table(_) | ClassKind::View(_) | ClassKind::Sequence(_) => {
                for (at, column) in class.columns().iter().enumerate() {
                    let mut attribute = user_attribute(class.oid, at, column);
                    if let Some(identity) = class.table().and_then(|table| table.identity(at)) {
                        attribute.identity = if identity.is_always { "a" } else { "d" };
                    }
                    push_attribute(rows, &attribute);
                }
            }
            ClassKind::Index(table, index) => {
                for (at, column) in index_columns(table, index).enumerate() {
                    let attribute = user_attribute(class.oid, at, column);
                    push_attribute(
                        rows,
                        &Attribute {
                            nullable: true,
                            has_default: false,
                            ..attribute
                        },
                    );
                }
            }
            ClassKind::System(relation) => {
                for (at, column) in relation.columns.iter().enumerate() {
                    let type_oid = types::oid_of_typname(column.typname).unwrap_or(25);
                    push_attribute(
                        rows,
                        &Attribute {
                            relation: class.oid,
                            number: at + 1,
                            name: column.name,
                            type_oid,
                            typmod: -1,
                            nullable: column.nullable,
                            has_default: false,
                            identity: "",
                            collation: match column.typname {
                                "name" | "text" | "varchar" | "_text" | "_name"
                                | "pg_node_tree" => COLLATION_C,
                                _ => 0,
                            },
                        },
                    );
                }
            }
        }
    }
}

fn user_attribute(relation: u32, at: usize, column: &Column) -> Attribute<'_> {
    Attribute {
        relation,
        number: at + 1,
        name: &column.name,
        type_oid: column.ty.oid(),
        typmod: column.ty.typmod(),
        nullable: column.nullable,
        has_default: column.default.is_some(),
        identity: "",
        collation: if column.ty.is_text() {
            COLLATION_DEFAULT
        } else {
            0
        },
    }
}

fn push_attribute(rows: &mut Rows, attribute: &Attribute<'_>) {
    let physical = data::physical_of_type(attribute.type_oid);
    rows.push([
        ("attrelid", attribute.relation.into()),
        ("attname", attribute.name.to_owned().into()),
        ("atttypid", attribute.type_oid.into()),
        ("attstattarget", (-1).into()),
        (
            "attlen",
            i32::from(types::length_of_type(attribute.type_oid)).into(),
        ),
        ("attnum", attribute.number.into()),
        ("attcacheoff", (-1).into()),
        ("atttypmod", attribute.typmod.into()),
        ("attbyval", physical.by_value.into()),
        ("attalign", physical.align.into()),
        ("attstorage", physical.storage.into()),
        ("attnotnull", (!attribute.nullable).into()),
        ("atthasdef", attribute.has_default.into()),
        ("attidentity", attribute.identity.into()),
        ("attislocal", true.into()),
        ("attcollation", attribute.collation.into()),
    ]);
}

fn tables(view: &CatalogView) -> impl Iterator<Item = (&Class, &TableEntry)> {
    view.classes()
        .iter()
        .filter_map(|class| Some((class, class.table()?)))
}

fn defaults(view: &CatalogView, rows: &mut Rows) {
    for (class, table) in tables(view) {
        for (at, column) in table.table.schema().columns.iter().enumerate() {
            if let Some(default) = &column.default {
                rows.push([
                    ("oid", derived_oid(class.oid, at).into()),
                    ("adrelid", class.oid.into()),
                    ("adnum", (at + 1).into()),
                    ("adbin", default.into()),
                ]);
            }
        }
    }
}

fn indexes(view: &CatalogView, rows: &mut Rows) {
    let all = tables(view)
        .flat_map(|(class, table)| table.all_indexes().map(move |index| (class, table, index)));
    for (class, table, index) in all {
        let key = &index.index.columns;
        let columns: Vec<&Column> = index_columns(table, &index).collect();
        let each = |of: fn(SqlType) -> u32| -> Cell {
            columns
                .iter()
                .map(|column| of(column.ty))
                .collect::<Vec<_>>()
                .into()
        };
        rows.push([
            ("indexrelid", index.oid.into()),
            ("indrelid", class.oid.into()),
            ("indnatts", key.len().into()),
            ("indnkeyatts", key.len().into()),
            ("indisunique", index.index.unique.into()),
            ("indnullsnotdistinct", index.index.nulls_not_distinct.into()),
            ("indisprimary", index.is_primary.into()),
            ("indimmediate", (!index.deferral.is_deferrable()).into()),
            ("indisvalid", true.into()),
            ("indisready", true.into()),
            ("indislive", true.into()),
            (
                "indkey",
                key.iter().map(|at| at + 1).collect::<Vec<_>>().into(),
            ),
            (
                "indcollation",
                each(|ty| if ty.is_text() { COLLATION_DEFAULT } else { 0 }),
            ),
            (
                "indclass",
                each(|ty| data::operator_class_of_type(ty.oid())),
            ),
            ("indoption", vec![0; key.len()].into()),
        ]);
    }
}

/// The tables that foreign keys refer from or to: in PostgreSQL both have triggers for that.
fn referential(view: &CatalogView) -> BTreeSet<u32> {
    tables(view)
        .flat_map(|(class, table)| table.foreign_keys.iter().map(move |key| (class, key)))
        .flat_map(|(class, key)| [class.oid, key.referenced.0])
        .collect()
}

/// The numbers of columns at these positions.
fn numbers(positions: &[usize]) -> Cell {
    positions.iter().map(|at| at + 1).collect::<Vec<_>>().into()
}

fn constraints(view: &CatalogView, rows: &mut Rows) {
    for (class, table) in tables(view) {
        let schema = table.table.schema();
        for index in table.all_indexes().filter(|index| index.is_constraint) {
            let is_primary = index.is_primary;
            rows.push([
                ("oid", index.oid.into()),
                ("conname", (&index.index.name).into()),
                ("connamespace", class.schema_oid.into()),
                ("contype", if is_primary { "p" } else { "u" }.into()),
                ("condeferrable", index.deferral.is_deferrable().into()),
                ("condeferred", (index.deferral == Deferral::Deferred).into()),
                ("convalidated", true.into()),
                ("conrelid", class.oid.into()),
                ("conindid", index.oid.into()),
                ("confupdtype", " ".into()),
                ("confdeltype", " ".into()),
                ("confmatchtype", " ".into()),
                ("conislocal", true.into()),
                ("connoinherit", true.into()),
                ("conkey", numbers(&index.index.columns)),
            ]);
        }
        for key in &table.foreign_keys {
            rows.push([
                ("oid", key.oid.into()),
                ("conname", (&key.name).into()),
                ("connamespace", class.schema_oid.into()),
                ("contype", "f".into()),
                ("condeferrable", key.deferral.is_deferrable().into()),
                ("condeferred", (key.deferral == Deferral::Deferred).into()),
                ("convalidated", key.is_valid.into()),
                ("conrelid", class.oid.into()),
                ("conindid", key.index.into()),
                ("confrelid", key.referenced.into()),
                ("confupdtype", key.on_update.letter().into()),
                ("confdeltype", key.on_delete.letter().into()),
                ("confmatchtype", if key.is_full { "f" } else { "s" }.into()),
                ("conislocal", true.into()),
                ("connoinherit", true.into()),
                ("conkey", numbers(&key.columns)),
                ("confkey", numbers(&key.referenced_columns)),
            ]);
        }
        for (at, check) in schema.checks.iter().enumerate() {
            rows.push([
                ("oid", derived_oid(class.oid, at).into()),
                ("conname", (&check.name).into()),
                ("connamespace", class.schema_oid.into()),
                ("contype", "c".into()),
                ("convalidated", (!check.not_valid).into()),
                ("conrelid", class.oid.into()),
                ("confupdtype", " ".into()),
                ("confdeltype", " ".into()),
                ("confmatchtype", " ".into()),
                ("conislocal", true.into()),
                ("conkey", definition::columns_of_check(schema, check).into()),
                ("conbin", (&check.expression).into()),
            ]);
        }
    }
}

fn descriptions(view: &CatalogView, rows: &mut Rows) {
    let mut push = |object: u32, class: u32, column: usize, text: &str| {
        rows.push([
            ("objoid", object.into()),
            ("classoid", class.into()),
            ("objsubid", column.into()),
            ("description", text.to_owned().into()),
        ]);
    };
    for (oid, _, _, comment) in view.schemas() {
        if let Some(comment) = comment {
            push(oid.0, PG_NAMESPACE, 0, comment);
        }
    }
    for class in view.classes() {
        let comment = match &class.kind {
            ClassKind::Table(table) => table.comment.as_deref(),
            ClassKind::View(entry) => entry.comment.as_deref(),
            ClassKind::Sequence(entry) => entry.comment.as_deref(),
            ClassKind::Index(table, index) => index_comment(table, index),
            ClassKind::System(_) => None,
        };
        if let Some(comment) = comment {
            push(class.oid, PG_CLASS, 0, comment);
        }
        for (at, column) in class.columns().iter().enumerate() {
            if let Some(comment) = class.column_comment(&column.name) {
                push(class.oid, PG_CLASS, at + 1, comment);
            }
        }
        if let ClassKind::Table(table) = &class.kind {
            for (oid, name) in constraint_oids(table) {
                if let Some(comment) = table.part_comments.constraints.get(name.as_ref()) {
                    push(oid, PG_CONSTRAINT, 0, comment);
                }
            }
        }
    }
    push(EXTENSION_OID, PG_EXTENSION, 0, EXTENSION_COMMENT);
    let types = data::Table::read(data::PG_TYPE);
    for row in &types.rows {
        if let (Some(oid), Some(text)) = (types.value(row, "oid"), types.value(row, "description"))
        {
            push(oid.parse().unwrap_or(0), PG_TYPE, 0, text);
        }
    }
}

fn table_views(view: &CatalogView, rows: &mut Rows) {
    let referential = referential(view);
    for class in view.classes().iter().filter(|class| class.relkind() == "r") {
        rows.push([
            ("schemaname", (&class.schema).into()),
            ("tablename", (&class.name).into()),
            (
                "tableowner",
                class
                    .owner()
                    .unwrap_or_else(|| view.system_owner())
                    .to_owned()
                    .into(),
            ),
            (
                "hasindexes",
                class
                    .table()
                    .is_some_and(|table| table.all_indexes().next().is_some())
                    .into(),
            ),
            ("hasrules", false.into()),
            ("hastriggers", referential.contains(&class.oid).into()),
            ("rowsecurity", false.into()),
        ]);
    }
}

fn view_views(view: &CatalogView, rows: &mut Rows) {
    for class in view.classes().iter().filter(|class| class.relkind() == "v") {
        let text = match &class.kind {
            ClassKind::View(entry) => definition::of_view(entry),
            _ => String::new(),
        };
        rows.push([
            ("schemaname", (&class.schema).into()),
            ("viewname", (&class.name).into()),
            (
                "viewowner",
                class
                    .owner()
                    .unwrap_or_else(|| view.system_owner())
                    .to_owned()
                    .into(),
            ),
            ("definition", text.into()),
        ]);
    }
}

fn index_views(view: &CatalogView, rows: &mut Rows) {
    for class in view.classes() {
        if let ClassKind::Index(table, index) = &class.kind {
            rows.push([
                ("schemaname", (&class.schema).into()),
                ("tablename", (&table.name).into()),
                ("indexname", (&class.name).into()),
                (
                    "indexdef",
                    definition::of_index(class, table, index, true).into(),
                ),
            ]);
        }
    }
}
