//! Sequences, and the dependencies that they create.

use aerostat_catalog::{SequenceEntry, TableEntry};
use aerostat_sql::{
    grants::Privilege,
    names::{INFORMATION_SCHEMA, PG_CATALOG},
    sequence_text as text,
};

use super::{
    Builder, extension,
    information::{catalog, yes},
    rules,
};
use crate::{
    CatalogView,
    cell::Rows,
    types,
    view::{
        classes::ClassKind,
        numbers::{EXTENSION_OID, PG_CLASS, PG_CONSTRAINT, PG_EXTENSION, derived_oid},
    },
};

pub(super) const BUILDERS: [(&str, &str, Builder); 4] = [
    (PG_CATALOG, "pg_sequence", sequences),
    (PG_CATALOG, "pg_sequences", sequence_views),
    (PG_CATALOG, "pg_depend", dependencies),
    (INFORMATION_SCHEMA, "sequences", standard_sequences),
];

/// `pg_class.oid` of `pg_attrdef`.
const PG_ATTRDEF: u32 = 2604;

fn all(view: &CatalogView) -> impl Iterator<Item = (&str, &SequenceEntry)> {
    view.classes().iter().filter_map(|class| match &class.kind {
        ClassKind::Sequence(entry) => Some((class.schema.as_str(), &**entry)),
        _ => None,
    })
}

fn sequences(view: &CatalogView, rows: &mut Rows) {
    for (_, entry) in all(view) {
        let numbers = &entry.definition;
        rows.push([
            ("seqrelid", entry.oid.into()),
            ("seqtypid", numbers.ty.oid().into()),
            ("seqstart", numbers.start.into()),
            ("seqincrement", numbers.increment.into()),
            ("seqmax", numbers.max.into()),
            ("seqmin", numbers.min.into()),
            ("seqcache", numbers.cache.into()),
            ("seqcycle", numbers.cycles.into()),
        ]);
    }
}

fn sequence_views(view: &CatalogView, rows: &mut Rows) {
    for (schema, entry) in all(view) {
        let numbers = &entry.definition;
        // As in PostgreSQL, how far it is, is for those who may use it.
        let class = view.class(entry.oid.into());
        let may = |privilege| class.is_some_and(|class| view.may(&view.role, class, privilege));
        let may_read = may(Privilege::Select) || may(Privilege::Usage);
        let position = match entry.counter.position() {
            Ok(position) => position,
            Err(error) => return rows.fail(error),
        };
        let last_value = (position.is_called && may_read).then_some(position.last_value);
        rows.push([
            ("schemaname", schema.to_owned().into()),
            ("sequencename", (&entry.name).into()),
            ("sequenceowner", (&entry.owner).into()),
            (
                "data_type",
                types::format_type(numbers.ty.oid(), None).into(),
            ),
            ("start_value", numbers.start.into()),
            ("min_value", numbers.min.into()),
            ("max_value", numbers.max.into()),
            ("increment_by", numbers.increment.into()),
            ("cycle", numbers.cycles.into()),
            ("cache_size", numbers.cache.into()),
            ("last_value", last_value.into()),
        ]);
    }
}

/// Identity columns' sequences are not shown, as in PostgreSQL.
fn standard_sequences(view: &CatalogView, rows: &mut Rows) {
    for class in view.classes() {
        let ClassKind::Sequence(entry) = &class.kind else {
            continue;
        };
        let is_identity = |entry: &SequenceEntry| {
            let owner = entry.owned_by.as_ref();
            owner.is_some_and(|owner| owner.is_identity)
        };
        if is_identity(entry) || !view.may_anything(&view.role, class) {
            continue;
        }
        let numbers = &entry.definition;
        let bits = match numbers.ty {
            aerostat_types::SqlType::SmallInt => 16,
            aerostat_types::SqlType::Integer => 32,
            _ => 64,
        };
        rows.push([
            ("sequence_catalog", catalog(view)),
            ("sequence_schema", (&class.schema).into()),
            ("sequence_name", (&class.name).into()),
            (
                "data_type",
                types::format_type(numbers.ty.oid(), None).into(),
            ),
            ("numeric_precision", bits.into()),
            ("numeric_precision_radix", 2.into()),
            ("numeric_scale", 0.into()),
            ("start_value", numbers.start.to_string().into()),
            ("minimum_value", numbers.min.to_string().into()),
            ("maximum_value", numbers.max.to_string().into()),
            ("increment", numbers.increment.to_string().into()),
            ("cycle_option", yes(numbers.cycles)),
        ]);
    }
}

/// Sequences depend on the columns that they belong to, defaults on their columns and on
/// sequences, what is built in on the extension that it is a part of, views, by their rules, on
/// what they read.
fn dependencies(view: &CatalogView, rows: &mut Rows) {
    for (class, object) in extension::members(view) {
        rows.push([
            ("classid", class.into()),
            ("objid", object.into()),
            ("objsubid", 0.into()),
            ("refclassid", PG_EXTENSION.into()),
            ("refobjid", EXTENSION_OID.into()),
            ("refobjsubid", 0.into()),
            ("deptype", "e".into()),
        ]);
    }
    for table in view.state.table_entries() {
        for index in table.all_indexes().filter(|index| index.is_constraint) {
            rows.push([
                ("classid", PG_CLASS.into()),
                ("objid", index.oid.into()),
                ("objsubid", 0.into()),
                ("refclassid", PG_CONSTRAINT.into()),
                ("refobjid", index.oid.into()),
                ("refobjsubid", 0.into()),
                ("deptype", "i".into()),
            ]);
        }
    }
    let mut push = |class: u32, object: u32, on: u32, column: usize, kind: &'static str| {
        rows.push([
            ("classid", class.into()),
            ("objid", object.into()),
            ("objsubid", 0.into()),
            ("refclassid", PG_CLASS.into()),
            ("refobjid", on.into()),
            ("refobjsubid", column.into()),
            ("deptype", kind.into()),
        ]);
    };
    for (_, entry) in all(view) {
        let Some(owner) = &entry.owned_by else {
            continue;
        };
        let Some((_, table)) = view.state.table(owner.table) else {
            continue;
        };
        if let Some(at) = table.table.schema().position(&owner.column) {
            let kind = if owner.is_identity { "i" } else { "a" };
            push(PG_CLASS, entry.oid.0, table.oid.0, at + 1, kind);
        }
    }
    for (rule, class, needed) in rules::needs(view) {
        push(rules::PG_REWRITE, rule, class, 0, "i");
        for relation in needed {
            push(rules::PG_REWRITE, rule, relation, 0, "n");
        }
    }
    for table in view.state.table_entries() {
        parts(&table, &mut push);
        for (at, column) in table.table.schema().columns.iter().enumerate() {
            let Some(default) = &column.default else {
                continue;
            };
            let object = derived_oid(table.oid.0, at);
            push(PG_ATTRDEF, object, table.oid.0, at + 1, "a");
            for sequence in text::sequences_in(default) {
                push(PG_ATTRDEF, object, sequence.0, 0, "n");
            }
        }
    }
}

/// Indexes and constraints depend on their tables, foreign keys on what they refer to. Who restores
/// several at once goes by that.
fn parts(table: &TableEntry, push: &mut dyn FnMut(u32, u32, u32, usize, &'static str)) {
    for index in table.all_indexes() {
        let class = match index.is_constraint {
            true => PG_CONSTRAINT,
            false => PG_CLASS,
        };
        for at in &index.index.columns {
            push(class, index.oid.0, table.oid.0, at + 1, "a");
        }
    }
    for key in &table.foreign_keys {
        for at in &key.columns {
            push(PG_CONSTRAINT, key.oid.0, table.oid.0, at + 1, "a");
        }
        for at in &key.referenced_columns {
            push(PG_CONSTRAINT, key.oid.0, key.referenced.0, at + 1, "n");
        }
        push(PG_CONSTRAINT, key.oid.0, key.index.0, 0, "n");
    }
    for at in 0..table.table.schema().checks.len() {
        push(
            PG_CONSTRAINT,
            derived_oid(table.oid.0, at),
            table.oid.0,
            0,
            "a",
        );
    }
}
