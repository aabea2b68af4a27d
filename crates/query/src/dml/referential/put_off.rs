//! Doing deferred checks: against the rows that exist when the checks are due.
//!
//! Checks of the same kind are done together, so that a block of many small statements looks
//! at each table once. Kinds come in the order of their first checks.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use aerostat_catalog::{ReferentialAction, TableEntry};
use aerostat_txn::{LockMode, Transaction};
use aerostat_types::{ConstraintId, SqlError};
use datafusion::{
    arrow::{
        array::{Array, ArrayRef},
        compute::concat,
    },
    common::Result,
};

use super::{Check, New, Referential, complete_only, converted};
use crate::{
    deferred::{About, PutOff},
    dml::rows::blocking,
    error::external,
    plan::StatementContext,
};

/// Locks the tables that deferred checks look at. The transaction has locked them before, unless a
/// definition has come between.
///
/// # Errors
/// Another transaction is in the way.
pub fn lock_put_off(context: &StatementContext, checks: &[Arc<PutOff>]) -> Result<(), SqlError> {
    let catalog = &context.catalog;
    let constraints: HashSet<ConstraintId> = checks.iter().map(|check| check.constraint).collect();
    for constraint in constraints {
        if let Some((entry, _)) = catalog.index(constraint) {
            context.gate.require(entry.oid, LockMode::RowShare)?;
        }
        if let Some((entry, key)) = catalog.foreign_key(constraint) {
            context.gate.require(entry.oid, LockMode::RowShare)?;
            context.gate.require(key.referenced, LockMode::RowShare)?;
        }
    }
    Ok(())
}

/// Does deferred checks, and locks the rows that checked rows refer to.
///
/// # Errors
/// The first check that fails, and errors of storage.
pub async fn check_put_off(
    context: &StatementContext,
    transaction: &Arc<Transaction>,
    checks: &[Arc<PutOff>],
) -> Result<()> {
    let mut referential = Referential::new(context, transaction, false);
    // The rows that the checks are about may be gone again.
    referential.has_acted = true;
    for kind in kinds(checks) {
        let bytes: usize = kind.checks.iter().map(|check| check.bytes()).sum();
        referential.reservation.try_grow(bytes)?;
        match kind.about {
            About::Keys => referential.check_keys(&kind).await?,
            About::References => referential.check_references(&kind).await?,
            About::Gone => referential.check_gone(&kind).await?,
        }
        referential.reservation.shrink(bytes);
    }
    Ok(())
}

/// Checks of one constraint that are about the same kind of values.
struct CheckGroup<'c> {
    constraint: ConstraintId,
    about: About,
    checks: Vec<&'c PutOff>,
}

fn kinds(checks: &[Arc<PutOff>]) -> Vec<CheckGroup<'_>> {
    let mut kinds: Vec<CheckGroup<'_>> = Vec::new();
    let mut positions: HashMap<(ConstraintId, About), usize> = HashMap::new();
    for check in checks {
        let (constraint, about) = (check.constraint, check.about);
        let at = *positions.entry((constraint, about)).or_insert_with(|| {
            let checks = Vec::new();
            kinds.push(CheckGroup {
                constraint,
                about,
                checks,
            });
            kinds.len() - 1
        });
        kinds[at].checks.push(check);
    }
    kinds
}

impl CheckGroup<'_> {
    /// The values of all checks, in the types of a table's columns at these positions.
    fn values(&self, entry: &TableEntry, positions: &[usize]) -> Result<Vec<ArrayRef>> {
        let parts = self.checks.iter();
        let parts = parts.map(|check| converted(&check.values, entry, positions));
        let parts = parts.collect::<Result<Vec<_>>>()?;
        let column = |nth: usize| -> Result<ArrayRef> {
            let values: Vec<&dyn Array> = parts.iter().map(|part| part[nth].as_ref()).collect();
            Ok(concat(&values)?)
        };
        (0..positions.len()).map(column).collect()
    }
}

impl Referential<'_> {
    /// Checks that each key has one row at most.
    async fn check_keys(&self, kind: &CheckGroup<'_>) -> Result<()> {
        let Some((entry, index)) = self.context.catalog.index(kind.constraint) else {
            return Ok(());
        };
        let values = kind.values(entry, &index.index.columns)?;
        let (table, name) = (Arc::clone(&entry.table), entry.stored_name(index));
        let transaction = Arc::clone(&self.transaction);
        blocking(&self.target(entry), move || {
            table.check_keys(&transaction, &name, &values)
        })
        .await
    }

    /// Checks that values which rows still have refer to a row.
    async fn check_references(&self, kind: &CheckGroup<'_>) -> Result<()> {
        let Some((entry, key)) = self.context.catalog.foreign_key(kind.constraint) else {
            return Ok(());
        };
        let found = complete_only(kind.values(entry, &key.columns)?)?;
        if found.rows.is_empty() {
            return Ok(());
        }
        let new = New {
            entry: Arc::clone(entry),
            key: key.clone(),
            values: found.values,
        };
        match self.lock_referenced(&new).await? {
            Some(violation) => Err(external(violation)),
            None => Ok(()),
        }
    }

    /// Checks that no row refers to keys that are still gone.
    async fn check_gone(&self, kind: &CheckGroup<'_>) -> Result<()> {
        let Some((referring, key)) = self.context.catalog.foreign_key(kind.constraint) else {
            return Ok(());
        };
        let entry = self.referenced(key)?;
        let found = complete_only(kind.values(&entry, &key.referenced_columns)?)?;
        if found.rows.is_empty() {
            return Ok(());
        }
        let check = Check {
            entry: &entry,
            referring,
            key,
        };
        let action = ReferentialAction::NoAction;
        self.require_unreferred(check, action, found.values).await
    }
}
