//! The rows of the system relations, by subject. A relation that no builder fills
//! is empty: Aerostat has no objects of its kind.

mod aerostat;
mod classes;
mod constraints;
mod extension;
mod fixed;
mod information;
mod locks;
mod node;
mod rules;
mod sequences;
mod statistics;

pub(super) use classes::{
    BTREE, HASH, HEAP, PG_CLASS, constraint_oids, derived_oid, index_columns, index_comment,
};
#[cfg(test)]
pub(super) use classes::{PG_NAMESPACE, PG_TYPE};
pub(super) use extension::{EXTENSION_COMMENT, EXTENSION_OID};
pub(super) use fixed::all_functions;
pub(super) use locks::lock_name;
pub(super) use node::all_settings;
#[cfg(test)]
pub(super) use node::{PG_AUTHID, PG_DATABASE};

use aerostat_sql::names::{AEROSTAT, INFORMATION_SCHEMA, PG_CATALOG};

use super::{CatalogView, cell::Rows, data::SystemRelation};

/// Fills the rows of one relation.
type Builder = fn(&CatalogView, &mut Rows);

const BUILDERS: [&[(&str, &str, Builder)]; 11] = [
    &classes::BUILDERS,
    &fixed::BUILDERS,
    &node::BUILDERS,
    &statistics::BUILDERS,
    &information::BUILDERS,
    &constraints::BUILDERS,
    &extension::BUILDERS,
    &rules::BUILDERS,
    &sequences::BUILDERS,
    &aerostat::BUILDERS,
    &locks::BUILDERS,
];

/// Adds the relation's rows.
pub(super) fn fill(view: &CatalogView, relation: &SystemRelation, rows: &mut Rows) {
    if let Some(builder) = builder(relation) {
        builder(view, rows);
    }
}

/// Whether the relation has no rows, whatever the database holds.
pub(super) fn is_empty(relation: &SystemRelation) -> bool {
    builder(relation).is_none()
}

/// Whether only superusers may read the relation: it holds what proves passwords.
pub(super) fn is_secret(relation: &SystemRelation) -> bool {
    relation.schema == PG_CATALOG && matches!(relation.name, "pg_authid" | "pg_shadow")
}

fn builder(relation: &SystemRelation) -> Option<Builder> {
    BUILDERS
        .iter()
        .flat_map(|group| group.iter())
        .find(|(schema, name, _)| *schema == relation.schema && *name == relation.name)
        .map(|(.., builder)| *builder)
}

/// Whether a schema holds system relations.
pub(super) fn is_system_schema(schema: &str) -> bool {
    matches!(schema, PG_CATALOG | INFORMATION_SCHEMA | AEROSTAT)
}

#[cfg(test)]
mod tests {
    use super::{super::data, *};

    #[test]
    fn every_builder_has_its_relation() {
        for (schema, name, _) in BUILDERS.iter().flat_map(|group| group.iter()) {
            assert!(data::relation(schema, name).is_some(), "{schema}.{name}");
        }
    }
}
