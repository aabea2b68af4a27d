//! The rows of the system relations, by subject. A relation that no builder fills
//! is empty: Aerostat has no objects of its kind.

mod aerostat;
mod classes;
mod cluster;
mod constraints;
mod extension;
mod fixed;
mod information;
mod locks;
mod node;
mod replication;
mod rules;
mod sequences;
mod statistics;

use crate::{CatalogView, cell::Rows, data::SystemRelation};

/// Fills the rows of one relation.
type Builder = fn(&CatalogView, &mut Rows);

const BUILDERS: [&[(&str, &str, Builder)]; 13] = [
    &classes::BUILDERS,
    &fixed::BUILDERS,
    &node::BUILDERS,
    &replication::BUILDERS,
    &cluster::BUILDERS,
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
pub(crate) fn fill(view: &CatalogView, relation: &SystemRelation, rows: &mut Rows) {
    if let Some(builder) = builder(relation) {
        builder(view, rows);
    }
}

/// Whether the relation has no rows, whatever the database holds.
pub(crate) fn is_empty(relation: &SystemRelation) -> bool {
    builder(relation).is_none()
}

fn builder(relation: &SystemRelation) -> Option<Builder> {
    BUILDERS
        .iter()
        .flat_map(|group| group.iter())
        .find(|(schema, name, _)| *schema == relation.schema && *name == relation.name)
        .map(|(.., builder)| *builder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data;

    #[test]
    fn every_builder_has_its_relation() {
        for (schema, name, _) in BUILDERS.iter().flat_map(|group| group.iter()) {
            assert!(data::relation(schema, name).is_some(), "{schema}.{name}");
        }
    }
}
