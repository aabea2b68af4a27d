//! Which tables the fast path knows all about.

use aerostat_catalog::{CatalogState, TableEntry};

/// Whether the fast path knows all that is said of a table here: a new part of its entry
/// must be thought about. Writes that foreign keys or deferrable indexes ask for more are the
/// planner's.
pub(super) fn is_plain(entry: &TableEntry, catalog: &CatalogState, writes: bool) -> bool {
    let TableEntry {
        oid: _,
        key_oid: _,
        name: _,
        owner: _,
        table: _,
        comment: _,
        column_comments: _,
        part_comments: _,
        grants: _,
        auto_layout: _,
        indexes: _,
        foreign_keys,
        identities,
        on_commit: _,
        usage: _,
    } = entry;
    let takes_values = identities.values().all(|identity| !identity.is_always);
    !writes
        || takes_values
            && foreign_keys.is_empty()
            && entry.deferrable_indexes().next().is_none()
            && catalog.referring(entry.oid).next().is_none()
}
