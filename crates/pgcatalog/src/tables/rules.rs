//! The rules as which PostgreSQL stores views, and their dependencies, from which tools derive
//! the order of views.

use aerostat_catalog::ddl::relations_in;
use aerostat_sql::names::PG_CATALOG;

use super::Builder;
use crate::{
    CatalogView,
    cell::Rows,
    view::{classes::ClassKind, numbers::derived_oid},
};

pub(super) const BUILDERS: [(&str, &str, Builder); 1] = [(PG_CATALOG, "pg_rewrite", rules)];

/// `pg_class.oid` of `pg_rewrite`.
pub(super) const PG_REWRITE: u32 = 2618;

/// An expression that is none.
const NOTHING: &str = "<>";

fn rules(view: &CatalogView, rows: &mut Rows) {
    for class in view.classes() {
        if !matches!(class.kind, ClassKind::View(_)) {
            continue;
        }
        rows.push([
            ("oid", rule_of(class.oid).into()),
            ("rulename", "_RETURN".into()),
            ("ev_class", class.oid.into()),
            ("ev_type", "1".into()),
            ("ev_enabled", "O".into()),
            ("is_instead", true.into()),
            ("ev_qual", NOTHING.into()),
            ("ev_action", NOTHING.into()),
        ]);
    }
}

/// The number of a view's rule.
fn rule_of(view: u32) -> u32 {
    derived_oid(view, 0)
}

/// Each view's rule, the view itself, and the relations that its query names.
pub(super) fn needs(view: &CatalogView) -> Vec<(u32, u32, Vec<u32>)> {
    let mut all = Vec::new();
    for class in view.classes() {
        let ClassKind::View(entry) = &class.kind else {
            continue;
        };
        let places = relations_in(&view.state, &entry.query).unwrap_or_default();
        let relations = places.iter().filter_map(|place| {
            let relation = view.state.relation(&place.schema, &place.name)?;
            Some(relation.oid().0)
        });
        all.push((rule_of(class.oid), class.oid, relations.collect()));
    }
    all
}
