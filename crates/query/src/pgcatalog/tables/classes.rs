//! Relations and what hangs on them: columns, defaults, keys, constraints,
//! comments, and the views that PostgreSQL puts over these.

use aerostat_types::{Column, SqlType};

use super::{
    super::{
        cell::{Cell, Rows},
        classes::{Class, ClassKind},
        data, definition, types,
    },
    Builder,
};
use crate::{
    catalog::{PG_CATALOG, TableEntry},
    pgcatalog::CatalogView,
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

/// `pg_am.oid` of tables and of key indexes, as in PostgreSQL.
pub(crate) const HEAP: u32 = 2;
pub(crate) const BTREE: u32 = 403;

/// `pg_class.oid` of catalogues that comments refer to.
pub(crate) const PG_CLASS: u32 = 1259;
pub(crate) const PG_NAMESPACE: u32 = 2615;
pub(crate) const PG_TYPE: u32 = 1247;

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
    for class in view.classes() {
        let owner = class.owner().unwrap_or_else(|| view.system_owner());
        let (columns, checks, has_key) = match &class.kind {
            ClassKind::Table(table) => {
                let schema = table.table.schema();
                (
                    schema.columns.len(),
                    schema.checks.len(),
                    table.key_oid != 0,
                )
            }
            ClassKind::View(entry) => (entry.columns.len(), 0, false),
            ClassKind::Index(table) => (table.table.schema().primary_key.len(), 0, false),
            ClassKind::System(relation) => (relation.columns.len(), 0, false),
        };
        let statistics = class.table().map(|table| table.table.statistics());
        let access_method = match (&class.kind, class.relkind()) {
            (ClassKind::Index(_), _) => BTREE,
            (_, "r") => HEAP,
            _ => 0,
        };
        let options = class.table().map(|table| {
            let layout = match table.auto_layout {
                true => "auto".to_owned(),
                false => table.table.layout().to_string(),
            };
            vec![format!("layout={layout}")]
        });
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
                    .map_or(0, |s| s.bytes_used.div_ceil(PAGE_BYTES))
                    .into(),
            ),
            (
                "reltuples",
                statistics.as_ref().map_or(0.0, |s| s.rows as f64).into(),
            ),
            ("relhasindex", has_key.into()),
            ("relpersistence", "p".into()),
            ("relkind", class.relkind().into()),
            ("relnatts", columns.into()),
            ("relchecks", checks.into()),
            ("relhasrules", (class.relkind() == "v").into()),
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

/// How a column is described in `pg_attribute`.
struct Attribute<'a> {
    relation: u32,
    number: usize,
    name: &'a str,
    type_oid: u32,
    typmod: i32,
    nullable: bool,
    has_default: bool,
    collation: u32,
}

fn attributes(view: &CatalogView, rows: &mut Rows) {
    for class in view.classes() {
        match &class.kind {
            ClassKind::Table(_) | ClassKind::View(_) => {
                for (at, column) in class.columns().iter().enumerate() {
                    push_attribute(rows, &user_attribute(class.oid, at, column));
                }
            }
            ClassKind::Index(table) => {
                for (at, column) in key_columns(table).enumerate() {
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
        ("attislocal", true.into()),
        ("attcollation", attribute.collation.into()),
    ]);
}

/// The columns of a table's primary key, in key order.
pub(crate) fn key_columns(table: &TableEntry) -> impl Iterator<Item = &Column> {
    let schema = table.table.schema();
    schema
        .primary_key
        .iter()
        .filter_map(|&at| schema.columns.get(at))
}

/// A number for what has none of its own in the catalogue: the `at`-th default or
/// check of a table. Unique within its system relation as long as table numbers
/// stay below 2^21; they lie apart from the numbers that are given out.
pub(crate) fn derived_oid(table: u32, at: usize) -> u32 {
    0x8000_0000 | (table.wrapping_mul(1_024).wrapping_add(at as u32) & 0x7fff_ffff)
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
    for (class, table) in tables(view).filter(|(_, table)| table.key_oid != 0) {
        let key = &table.table.schema().primary_key;
        let columns: Vec<&Column> = key_columns(table).collect();
        let each = |of: fn(SqlType) -> u32| -> Cell {
            columns
                .iter()
                .map(|column| of(column.ty))
                .collect::<Vec<_>>()
                .into()
        };
        rows.push([
            ("indexrelid", table.key_oid.into()),
            ("indrelid", class.oid.into()),
            ("indnatts", key.len().into()),
            ("indnkeyatts", key.len().into()),
            ("indisunique", true.into()),
            ("indisprimary", true.into()),
            ("indimmediate", true.into()),
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

fn constraints(view: &CatalogView, rows: &mut Rows) {
    for (class, table) in tables(view) {
        let schema = table.table.schema();
        if table.key_oid != 0 {
            rows.push([
                ("oid", table.key_oid.into()),
                ("conname", (&schema.primary_key_name).into()),
                ("connamespace", class.schema_oid.into()),
                ("contype", "p".into()),
                ("convalidated", true.into()),
                ("conrelid", class.oid.into()),
                ("conindid", table.key_oid.into()),
                ("confupdtype", " ".into()),
                ("confdeltype", " ".into()),
                ("confmatchtype", " ".into()),
                ("conislocal", true.into()),
                ("connoinherit", true.into()),
                (
                    "conkey",
                    schema
                        .primary_key
                        .iter()
                        .map(|at| at + 1)
                        .collect::<Vec<_>>()
                        .into(),
                ),
            ]);
        }
        for (at, check) in schema.checks.iter().enumerate() {
            rows.push([
                ("oid", derived_oid(class.oid, at).into()),
                ("conname", (&check.name).into()),
                ("connamespace", class.schema_oid.into()),
                ("contype", "c".into()),
                ("convalidated", true.into()),
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
            push(oid, PG_NAMESPACE, 0, comment);
        }
    }
    for class in view.classes() {
        let comment = match &class.kind {
            ClassKind::Table(table) => table.comment.as_deref(),
            ClassKind::View(entry) => entry.comment.as_deref(),
            ClassKind::Index(_) | ClassKind::System(_) => None,
        };
        if let Some(comment) = comment {
            push(class.oid, PG_CLASS, 0, comment);
        }
        if let Some(table) = class.table() {
            for (at, column) in class.columns().iter().enumerate() {
                if let Some(comment) = table.column_comments.get(&column.name) {
                    push(class.oid, PG_CLASS, at + 1, comment);
                }
            }
        }
    }
    let types = data::Table::read(data::PG_TYPE);
    for row in &types.rows {
        if let (Some(oid), Some(text)) = (types.value(row, "oid"), types.value(row, "description"))
        {
            push(oid.parse().unwrap_or(0), PG_TYPE, 0, text);
        }
    }
}

fn table_views(view: &CatalogView, rows: &mut Rows) {
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
                class.table().is_some_and(|table| table.key_oid != 0).into(),
            ),
            ("hasrules", false.into()),
            ("hastriggers", false.into()),
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
        if let ClassKind::Index(table) = &class.kind {
            rows.push([
                ("schemaname", (&class.schema).into()),
                ("tablename", (&table.name).into()),
                ("indexname", (&class.name).into()),
                ("indexdef", definition::of_index(class, table, true).into()),
            ]);
        }
    }
}
