//! Checks that were put off, once they are due: against the rows there are by then.

use std::sync::Arc;

use aerostat_txn::{LockMode, Transaction};
use aerostat_types::SqlError;
use datafusion::common::Result;

use super::{
    super::{
        deferred::{About, PutOff},
        sink::blocking,
    },
    Check, New, Referential, complete_only, converted,
};
use crate::{catalog::ReferentialAction, error::external, plan::StatementContext};

/// Locks the tables that checks look at, which the transaction has locked before, unless a
/// definition has come between.
///
/// # Errors
/// Somebody is in the way.
pub(crate) fn lock_put_off(
    context: &StatementContext,
    checks: &[Arc<PutOff>],
) -> Result<(), SqlError> {
    let catalog = &context.catalog;
    for check in checks {
        if let Some((entry, _)) = catalog.index(check.constraint) {
            context.gate.require(entry.oid, LockMode::RowShare)?;
        }
        if let Some((entry, key)) = catalog.foreign_key(check.constraint) {
            context.gate.require(entry.oid, LockMode::RowShare)?;
            context.gate.require(key.referenced, LockMode::RowShare)?;
        }
    }
    Ok(())
}

/// Does checks that were put off, one after the other, and locks what rows refer to.
///
/// # Errors
/// The first one that fails, and those of storage.
pub(crate) async fn check_put_off(
    context: &StatementContext,
    transaction: &Arc<Transaction>,
    checks: &[Arc<PutOff>],
) -> Result<()> {
    let mut referential = Referential::new(context, transaction);
    // Rows that they are about may be gone again.
    referential.has_acted = true;
    for check in checks {
        match check.about {
            About::Keys => referential.check_keys(check).await?,
            About::References => referential.check_references(check).await?,
            About::Gone => referential.check_gone(check).await?,
        }
    }
    Ok(())
}

impl Referential<'_> {
    /// Each key has one row at most.
    async fn check_keys(&self, check: &PutOff) -> Result<()> {
        let Some((entry, index)) = self.context.catalog.index(check.constraint) else {
            return Ok(());
        };
        let values = converted(&check.values, entry, &index.index.columns)?;
        let (table, name) = (Arc::clone(&entry.table), entry.stored_name(index));
        let transaction = Arc::clone(&self.transaction);
        blocking(&self.target(entry), move || {
            table.check_keys(&transaction, &name, &values)
        })
        .await
    }

    /// Values that rows still have refer to a row.
    async fn check_references(&self, check: &PutOff) -> Result<()> {
        let Some((entry, key)) = self.context.catalog.foreign_key(check.constraint) else {
            return Ok(());
        };
        let values = converted(&check.values, entry, &key.columns)?;
        let found = complete_only(values)?;
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

    /// No row refers to keys that are still gone.
    async fn check_gone(&self, check: &PutOff) -> Result<()> {
        let Some((referring, key)) = self.context.catalog.foreign_key(check.constraint) else {
            return Ok(());
        };
        let entry = self.referenced(key)?;
        let values = converted(&check.values, &entry, &key.referenced_columns)?;
        let found = complete_only(values)?;
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
