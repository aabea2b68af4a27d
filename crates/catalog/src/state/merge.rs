//! Merging a transaction's definitions with what others have committed meanwhile.
//!
//! ```text
//!  base ──(this transaction)──► ours
//!    └────(others)────────────► theirs ──► merged: theirs, with the changes base → ours
//! ```
//!
//! Objects merge one by one: a schema's properties, and each relation of it. Locks ensure that
//! two transactions do not change the same object at once; a change that locks do not cover, such
//! as a role that is renamed meanwhile, is an error and never a lost change.

use std::{collections::BTreeMap, sync::Arc};

use aerostat_types::{ErrorKind, SchemaId, SqlError};

use super::{
    CatalogState, Relation, SchemaEntry, duplicate_relation, duplicate_schema, undefined_schema,
};

/// See above. The merged state has an epoch of its own.
///
/// # Errors
/// A name was taken meanwhile, or an object that both have changed.
pub(super) fn merge(
    base: &CatalogState,
    ours: &CatalogState,
    theirs: &CatalogState,
) -> Result<CatalogState, SqlError> {
    let (before, after, now) = (by_oid(base), by_oid(ours), by_oid(theirs));
    let mut merged = theirs.clone();
    for (oid, base) in before {
        if !after.contains_key(&oid) {
            let now = now.get(&oid).ok_or_else(concurrent)?;
            if !is_same_inside(base, now) {
                return Err(concurrent());
            }
            merged.schemas.remove(&now.name);
        }
    }
    // Names may go from one schema to another: all leave before any comes.
    let mut changed = Vec::new();
    for (oid, ours) in after {
        let entry = match before_of(base, oid) {
            Some(base) if Arc::ptr_eq(base, ours) => continue,
            Some(base) => {
                let now = now.get(&oid).ok_or_else(|| undefined_schema(&base.name))?;
                merged.schemas.remove(&now.name);
                Arc::new(merge_schema(base, ours, now)?)
            }
            None => Arc::clone(ours),
        };
        changed.push(entry);
    }
    for entry in changed {
        let name = entry.name.clone();
        if merged.schemas.insert(name, Arc::clone(&entry)).is_some() {
            return Err(duplicate_schema(&entry.name));
        }
    }
    merged.epoch = merged.numbers.next_epoch();
    assert_eq!(
        by_oid(&merged).len(),
        merged.schemas.len(),
        "no two schemas have one number"
    );
    Ok(merged)
}

fn by_oid(state: &CatalogState) -> BTreeMap<SchemaId, &Arc<SchemaEntry>> {
    let schemas = state.schemas.values();
    schemas.map(|schema| (schema.oid, schema)).collect()
}

fn before_of(base: &CatalogState, oid: SchemaId) -> Option<&Arc<SchemaEntry>> {
    base.schemas.values().find(|schema| schema.oid == oid)
}

fn merge_schema(
    base: &SchemaEntry,
    ours: &SchemaEntry,
    now: &SchemaEntry,
) -> Result<SchemaEntry, SqlError> {
    let mut merged = if is_same_outside(base, ours) {
        now.clone()
    } else if is_same_outside(base, now) {
        SchemaEntry {
            relations: now.relations.clone(),
            ..ours.clone()
        }
    } else {
        return Err(concurrent());
    };
    for (name, relation) in &base.relations {
        if !ours.relations.contains_key(name) {
            if !is_same(Some(relation), now.relations.get(name)) {
                return Err(concurrent());
            }
            merged.relations.remove(name);
        }
    }
    for (name, relation) in &ours.relations {
        let (before, now) = (base.relations.get(name), now.relations.get(name));
        if is_same(before, Some(relation)) {
            continue;
        }
        if !is_same(before, now) {
            return Err(match before {
                None => duplicate_relation(name),
                Some(_) => concurrent(),
            });
        }
        merged.relations.insert(name.clone(), relation.clone());
    }
    Ok(merged)
}

/// Whether a relation is the very same.
pub(super) fn is_same(one: Option<&Relation>, other: Option<&Relation>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(Relation::Table(one)), Some(Relation::Table(other))) => Arc::ptr_eq(one, other),
        (Some(Relation::View(one)), Some(Relation::View(other))) => Arc::ptr_eq(one, other),
        (Some(Relation::Sequence(one)), Some(Relation::Sequence(other))) => Arc::ptr_eq(one, other),
        _ => false,
    }
}

/// Whether two states of a schema have the very same relations.
fn is_same_inside(one: &SchemaEntry, other: &SchemaEntry) -> bool {
    one.relations.len() == other.relations.len()
        && one
            .relations
            .iter()
            .all(|(name, relation)| is_same(Some(relation), other.relations.get(name)))
}

/// Whether two states of a schema differ in their relations at most.
pub(super) fn is_same_outside(one: &SchemaEntry, other: &SchemaEntry) -> bool {
    (&one.name, &one.owner, &one.comment, &one.grants)
        == (&other.name, &other.owner, &other.comment, &other.grants)
}

fn concurrent() -> SqlError {
    SqlError::new(
        ErrorKind::SerializationFailure,
        "could not serialize access due to concurrent update",
    )
    .with_hint("Run the transaction again.")
}
