//! SET CONSTRAINTS, and the checks that a block has put off.
//!
//! They are done when SET CONSTRAINTS says IMMEDIATE, and before COMMIT, in a statement that is part of
//! the block: its locks stay, and an error undoes the block like any other.

use std::{slice, sync::Arc};

use aerostat_query::{Cancellation, deferred::Deferred, dml};
use aerostat_sql::{
    names::QualifiedName,
    statement::Source,
    utility::{DropKind, RelationChange, SchemaCommand},
};
use aerostat_types::{ConstraintId, ErrorKind, RelationId, SqlError};

use super::{SessionView, TransactionState, attempts::finish, run::CancelOnDrop};

impl TransactionState {
    /// Where checks wait for the end of the block; `None` outside one.
    pub(super) fn deferred(&self) -> Option<Arc<Deferred>> {
        let block = self.block.as_ref()?;
        Some(Arc::clone(&block.deferred))
    }
}

impl SessionView<'_> {
    /// SET CONSTRAINTS of these names, or of all. Checks that are not to wait any more are done.
    pub(super) async fn set_constraints(
        self,
        names: Option<&[QualifiedName]>,
        is_deferred: bool,
    ) -> Result<(), SqlError> {
        let deferred = self.transaction.deferred();
        if deferred.is_none() {
            self.client.warn_with(
                ErrorKind::NoActiveTransaction,
                "SET CONSTRAINTS can only be used in transaction blocks",
            );
        }
        let found = names.map(|names| self.deferrable(names, is_deferred));
        let found = found.transpose()?;
        let Some(deferred) = deferred else {
            return Ok(());
        };
        match found {
            Some(found) => deferred.say(&found, is_deferred),
            None => deferred.say_of_all(is_deferred),
        }
        if is_deferred {
            return Ok(());
        }
        let cancellation = self.client.cancel.begin(self.client.statement_timeout());
        self.check_put_off(&deferred, false, &cancellation).await
    }

    /// The numbers of the deferrable constraints of these names.
    fn deferrable(
        self,
        names: &[QualifiedName],
        is_deferred: bool,
    ) -> Result<Vec<ConstraintId>, SqlError> {
        let (actor, gate) = (self.executor.actor(self.client)?, self.open_gate()?);
        let mut found = Vec::new();
        for name in names {
            found.append(&mut actor.deferrable(gate.catalog(), name, is_deferred)?);
        }
        Ok(found)
    }

    /// Refuses to alter, empty or drop a table with rows that checks wait for. Other errors of the
    /// statement are found where it runs.
    pub(super) fn refuse_waiting(self, command: &SchemaCommand) -> Result<(), SqlError> {
        let deferred = self
            .transaction
            .deferred()
            .filter(|deferred| !deferred.is_empty());
        let Some(deferred) = deferred else {
            return Ok(());
        };
        let (word, names) = match command {
            SchemaCommand::Truncate { tables, .. } => ("TRUNCATE", &tables[..]),
            SchemaCommand::Drop {
                kind: DropKind::Table,
                names,
                ..
            } => ("DROP TABLE", &names[..]),
            SchemaCommand::Alter {
                name,
                change: RelationChange::Actions(_),
                ..
            } => ("ALTER TABLE", slice::from_ref(name)),
            _ => return Ok(()),
        };
        let (actor, gate) = (self.executor.actor(self.client)?, self.open_gate()?);
        let waiting = deferred.tables(gate.catalog());
        let found = names
            .iter()
            .filter_map(|name| actor.find(gate.catalog(), name).ok()?);
        let mut found: Vec<(RelationId, &str, &str)> = found
            .map(|found| found.relation)
            .map(|relation| (relation.oid(), relation.owner(), relation.name()))
            .collect();
        if let SchemaCommand::Truncate { cascade: true, .. } = command {
            let oids: Vec<RelationId> = found.iter().map(|(oid, ..)| *oid).collect();
            let others = gate.catalog().all_referring(&oids).into_iter();
            found.extend(others.map(|entry| (entry.oid, &*entry.owner, &*entry.name)));
        }
        for (oid, owner, name) in found {
            if actor.owns(owner) && waiting.contains(&oid) {
                let message =
                    format!("cannot {word} \"{name}\" because it has pending trigger events");
                return Err(SqlError::new(ErrorKind::ObjectInUse, message));
            }
        }
        Ok(())
    }

    /// Checks all that the block has put off, which is about to commit.
    pub(super) async fn check_at_commit(self) -> Result<(), SqlError> {
        let Some(deferred) = self.transaction.deferred() else {
            return Ok(());
        };
        let cancellation = self.client.cancel.begin(self.client.statement_timeout());
        self.check_put_off(&deferred, true, &cancellation).await
    }

    /// Does the checks that were put off: all, or those that are not to wait any more.
    async fn check_put_off(
        self,
        deferred: &Deferred,
        all: bool,
        cancellation: &Cancellation,
    ) -> Result<(), SqlError> {
        let due = deferred.due(all);
        if due.checks.is_empty() {
            return Ok(());
        }
        let (mut attempts, mut locks) = (self.attempts(), None);
        loop {
            let gate = self.gate(locks.take())?;
            let transaction = Arc::new(attempts.begin(self, &gate)?);
            let context = self.context(&gate, transaction.snapshot().clone())?;
            let checks = due.checks.clone();
            let committer = self.committer();
            let work = async move {
                dml::lock_put_off(&context, &checks)?;
                context.gate.confirm()?;
                let mut cancel = CancelOnDrop::of(transaction.cancel_token());
                let checked = dml::check_put_off(&context, &transaction, &checks).await;
                cancel.disarm();
                let source = Source::of("".into());
                finish(checked, transaction, &source, &committer).await
            };
            let ended = match self.executor.on_query_runtime(work, cancellation).await? {
                Ok(ended) => ended,
                Err(error) => {
                    attempts.leave_rows();
                    locks = Some(self.past(&gate, error, cancellation).await?);
                    continue;
                }
            };
            if attempts.after(ended)?.is_some() {
                deferred.settle(due);
                return Ok(());
            }
        }
    }
}
