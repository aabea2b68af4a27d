//! The standard's views of constraints, limited to tables that the role may use.

use aerostat_catalog::{ForeignKey, TableEntry};
use aerostat_sql::{deferral::Deferral, names::INFORMATION_SCHEMA};

use super::{
    Builder,
    information::{catalog, usable, yes},
};
use crate::{
    CatalogView,
    cell::{Cell, Rows},
    view::{classes::Class, definition},
};

pub(super) const BUILDERS: [(&str, &str, Builder); 6] = [
    (INFORMATION_SCHEMA, "table_constraints", table_constraints),
    (INFORMATION_SCHEMA, "key_column_usage", key_column_usage),
    (
        INFORMATION_SCHEMA,
        "constraint_column_usage",
        constraint_column_usage,
    ),
    (
        INFORMATION_SCHEMA,
        "constraint_table_usage",
        constraint_table_usage,
    ),
    (INFORMATION_SCHEMA, "check_constraints", check_constraints),
    (
        INFORMATION_SCHEMA,
        "referential_constraints",
        referential_constraints,
    ),
];

/// A constraint of a table: its schema and table, its name, its kind, its columns.
struct Constraint<'a> {
    class: &'a Class,
    name: String,
    kind: &'static str,
    columns: Vec<&'a str>,
    clause: Option<String>,
    /// Whether a UNIQUE constraint takes several NULLs.
    nulls_distinct: Option<bool>,
    deferral: Deferral,
    foreign: Option<Foreign<'a>>,
}

/// What a foreign key refers to.
struct Foreign<'a> {
    key: &'a ForeignKey,
    class: &'a Class,
    table: &'a TableEntry,
}

impl Foreign<'_> {
    fn columns(&self) -> impl Iterator<Item = &str> {
        let columns = &self.table.table.schema().columns;
        let positions = self.key.referenced_columns.iter();
        positions.filter_map(|&at| Some(columns.get(at)?.name.as_str()))
    }

    /// Where the `nth` of its columns is in the unique index.
    fn position_in_index(&self, nth: usize) -> Option<usize> {
        let index = self.table.index(self.key.index)?;
        let column = self.key.referenced_columns.get(nth)?;
        let position = index.index.columns.iter().position(|at| at == column)?;
        Some(position + 1)
    }
}

/// Keys, foreign keys, CHECKs, and NOT NULL columns, which the standard counts as CHECKs.
fn constraints(view: &CatalogView) -> Vec<Constraint<'_>> {
    let mut all = Vec::new();
    for class in usable(view) {
        let Some(table) = class.table() else { continue };
        let plain = |name: String, kind: &'static str| Constraint {
            class,
            name,
            kind,
            columns: Vec::new(),
            clause: None,
            nulls_distinct: None,
            foreign: None,
            deferral: Deferral::Never,
        };
        let schema = table.table.schema();
        let named = |positions: &[usize]| -> Vec<&str> {
            let columns = positions.iter().filter_map(|&at| schema.columns.get(at));
            columns.map(|column| column.name.as_str()).collect()
        };
        for index in table.all_indexes().filter(|index| index.is_constraint) {
            let is_primary = index.is_primary;
            let kind = if is_primary { "PRIMARY KEY" } else { "UNIQUE" };
            all.push(Constraint {
                columns: named(&index.index.columns),
                nulls_distinct: (!is_primary).then_some(!index.index.nulls_not_distinct),
                deferral: index.deferral,
                ..plain(index.index.name.clone(), kind)
            });
        }
        for key in &table.foreign_keys {
            let referenced = view.class(key.referenced.into());
            all.push(Constraint {
                columns: named(&key.columns),
                deferral: key.deferral,
                foreign: referenced.and_then(|class| {
                    let table = class.table()?;
                    Some(Foreign { key, class, table })
                }),
                ..plain(key.name.clone(), "FOREIGN KEY")
            });
        }
        for check in &schema.checks {
            let columns = definition::columns_of_check(schema, check);
            all.push(Constraint {
                columns: columns
                    .iter()
                    .filter_map(|n| Some(schema.columns.get(*n as usize - 1)?.name.as_str()))
                    .collect(),
                clause: Some(format!("({})", check.expression)),
                ..plain(check.name.clone(), "CHECK")
            });
        }
        for (at, column) in schema
            .columns
            .iter()
            .enumerate()
            .filter(|(_, column)| !column.nullable)
        {
            let name = format!("{}_{}_{}_not_null", class.schema_oid, class.oid, at + 1);
            all.push(Constraint {
                clause: Some(format!("{} IS NOT NULL", column.name)),
                ..plain(name, "CHECK")
            });
        }
    }
    all
}

fn constraint_names(view: &CatalogView, constraint: &Constraint<'_>) -> [(&'static str, Cell); 6] {
    [
        ("constraint_catalog", catalog(view)),
        ("constraint_schema", (&constraint.class.schema).into()),
        ("constraint_name", (&constraint.name).into()),
        ("table_catalog", catalog(view)),
        ("table_schema", (&constraint.class.schema).into()),
        ("table_name", (&constraint.class.name).into()),
    ]
}

/// The same, with the table whose columns the constraint is about: of a foreign key the
/// one that it refers to.
fn usage_names(view: &CatalogView, constraint: &Constraint<'_>) -> [(&'static str, Cell); 6] {
    let mut names = constraint_names(view, constraint);
    if let Some(foreign) = &constraint.foreign {
        names[4].1 = (&foreign.class.schema).into();
        names[5].1 = (&foreign.class.name).into();
    }
    names
}

fn table_constraints(view: &CatalogView, rows: &mut Rows) {
    for constraint in constraints(view) {
        let [a, b, c, d, e, f] = constraint_names(view, &constraint);
        let deferral = constraint.deferral;
        rows.push([
            a,
            b,
            c,
            d,
            e,
            f,
            ("constraint_type", constraint.kind.into()),
            ("is_deferrable", yes(deferral.is_deferrable())),
            ("initially_deferred", yes(deferral == Deferral::Deferred)),
            ("enforced", yes(true)),
            (
                "nulls_distinct",
                constraint.nulls_distinct.map_or(Cell::Null, yes),
            ),
        ]);
    }
}

fn key_column_usage(view: &CatalogView, rows: &mut Rows) {
    for constraint in constraints(view)
        .iter()
        .filter(|constraint| constraint.kind != "CHECK")
    {
        for (at, column) in constraint.columns.iter().enumerate() {
            let [a, b, c, d, e, f] = constraint_names(view, constraint);
            let foreign = constraint.foreign.as_ref();
            rows.push([
                a,
                b,
                c,
                d,
                e,
                f,
                ("column_name", (*column).to_owned().into()),
                ("ordinal_position", (at + 1).into()),
                (
                    "position_in_unique_constraint",
                    foreign
                        .and_then(|foreign| foreign.position_in_index(at))
                        .into(),
                ),
            ]);
        }
    }
}

fn constraint_column_usage(view: &CatalogView, rows: &mut Rows) {
    for constraint in &constraints(view) {
        let columns: Vec<&str> = match &constraint.foreign {
            Some(foreign) => foreign.columns().collect(),
            None => constraint.columns.clone(),
        };
        for column in columns {
            let [a, b, c, d, e, f] = usage_names(view, constraint);
            rows.push([a, b, c, d, e, f, ("column_name", column.to_owned().into())]);
        }
    }
}

fn constraint_table_usage(view: &CatalogView, rows: &mut Rows) {
    for constraint in constraints(view)
        .iter()
        .filter(|constraint| constraint.kind != "CHECK")
    {
        rows.push(usage_names(view, constraint));
    }
}

fn referential_constraints(view: &CatalogView, rows: &mut Rows) {
    for constraint in constraints(view) {
        let Some(foreign) = &constraint.foreign else {
            continue;
        };
        let [a, b, c, ..] = constraint_names(view, &constraint);
        // An index that is no constraint has no name here.
        let unique = foreign.table.index(foreign.key.index);
        let unique = unique.filter(|index| index.is_constraint);
        let of_unique = |cell: Cell| unique.as_ref().map_or(Cell::Null, |_| cell);
        rows.push([
            a,
            b,
            c,
            ("unique_constraint_catalog", of_unique(catalog(view))),
            (
                "unique_constraint_schema",
                of_unique((&foreign.class.schema).into()),
            ),
            (
                "unique_constraint_name",
                unique.as_ref().map(|index| index.index.name.clone()).into(),
            ),
            (
                "match_option",
                if foreign.key.is_full { "FULL" } else { "NONE" }.into(),
            ),
            ("update_rule", foreign.key.on_update.words().into()),
            ("delete_rule", foreign.key.on_delete.words().into()),
        ]);
    }
}

fn check_constraints(view: &CatalogView, rows: &mut Rows) {
    for constraint in constraints(view) {
        let Some(clause) = &constraint.clause else {
            continue;
        };
        let [a, b, c, ..] = constraint_names(view, &constraint);
        rows.push([a, b, c, ("check_clause", clause.into())]);
    }
}
