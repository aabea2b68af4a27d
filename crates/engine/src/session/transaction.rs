//! Carries out what the session's [`Machine`] says: on its block in storage ([`block`](super::block)), and on what
//! the client has beside it.
//!
//! Each statement of a block is a part of its own in storage: one that fails is undone alone, and the
//! block then only waits for its end or for a savepoint to return to. A block that has failed and has no
//! savepoint is undone at once; one that has a savepoint goes back to the newest. So no other
//! transaction waits for rows that will not be there.
//!
//! Definitions of a block are its own until it commits ([`Definitions`]), and go back to
//! savepoints with its rows. A statement that defines something is always in a block, an
//! implicit one if there is no other.
//!
//! Checks of deferrable constraints wait for COMMIT ([`constraints`](super::constraints)).
//!
//! Settings follow the transaction as in PostgreSQL: values that a block has SET are gone after
//! its ROLLBACK or its failure, values of SET LOCAL also after its COMMIT.

use std::sync::Arc;

use aerostat_api::{Group, Notice, NoticeSeverity, TransactionStatus};
use aerostat_catalog::{CopyState, Database, Definitions, Temporaries, ddl, failure::from_storage};
use aerostat_sql::utility::{Isolation, TransactionCommand, TransactionModes};
use aerostat_txn::{
    self as txn, Block, CancelToken, RelationLocks, RowPlace, Snapshot, Transaction, TxnManager,
};
use aerostat_types::{ErrorKind, SqlError};
use chrono::Utc;

use super::{
    ClientState, Executor, SessionView, TransactionState,
    block::{Defined, OpenBlock, Parts, Savepoint, Stored, ended_early, undone},
    machine::{Effect, Event, Facts, Kind, Machine, Modes, supported},
};
use crate::{commits::Committer, ends::Ends};

impl Default for TransactionState {
    /// No transaction is open.
    fn default() -> Self {
        Self {
            machine: Machine::default(),
            block: None,
            began_at: Utc::now(),
        }
    }
}

/// What the machine asks of the session.
struct Surroundings<'a> {
    client: &'a ClientState,
    block: Option<&'a OpenBlock>,
}

impl Facts for Surroundings<'_> {
    fn defaults(&self) -> Modes {
        let settings = self.client.settings.lock();
        Modes {
            isolation: match settings.default_is_repeatable() {
                true => Isolation::RepeatableRead,
                false => Isolation::ReadCommitted,
            },
            read_only: settings.default_is_read_only(),
        }
    }

    fn has_begun(&self) -> bool {
        let parts = self.block.and_then(|open| open.parts().ok());
        parts.is_some_and(|parts| parts.block.has_begun())
    }

    fn copy(&self) -> Option<&CopyState> {
        self.client.follows()
    }
}

/// The level in storage. READ UNCOMMITTED is READ COMMITTED, as in PostgreSQL.
fn level(isolation: Isolation) -> txn::Isolation {
    match isolation {
        Isolation::ReadUncommitted | Isolation::ReadCommitted => txn::Isolation::ReadCommitted,
        Isolation::RepeatableRead | Isolation::Serializable => txn::Isolation::RepeatableRead,
    }
}

impl ClientState {
    pub(super) fn warn_with(&self, kind: ErrorKind, message: &str) {
        let mut notice = Notice::new(NoticeSeverity::Warning, message);
        notice.kind = Some(kind);
        self.notices.tell(notice);
    }

    /// SET SESSION CHARACTERISTICS AS TRANSACTION.
    fn set_defaults(&self, modes: TransactionModes) -> Result<(), SqlError> {
        let mut settings = self.settings.lock();
        if let Some(isolation) = modes.isolation {
            supported(isolation)?;
            settings.set(
                "default_transaction_isolation",
                &[isolation.name().to_owned()],
            )?;
        }
        if let Some(read_only) = modes.read_only {
            let value = if read_only { "on" } else { "off" }.to_owned();
            settings.set("default_transaction_read_only", &[value])?;
        }
        Ok(())
    }
}

impl TransactionState {
    /// Where the session stands.
    pub(super) fn status(&self) -> TransactionStatus {
        self.machine.status()
    }

    /// A transaction begins: now() and its like tell this time until it ends. The rows that the previous
    /// one left in tables with ON COMMIT DELETE ROWS go.
    pub(super) fn mark_time(&mut self, client: &mut ClientState) {
        client.temporaries.delete_rows();
        self.began_at = Utc::now();
    }

    /// Something happens to the transaction: warns of it as the machine says, and gives the effect to
    /// carry out.
    pub(super) fn tell(
        &mut self,
        event: Event<'_>,
        client: &ClientState,
    ) -> Result<Effect, SqlError> {
        let surroundings = Surroundings {
            client,
            block: self.block.as_ref(),
        };
        let answer = self.machine.on(event, &surroundings);
        if let Some(warning) = answer.warning {
            client.warn_with(warning.kind(), warning.message());
        }
        answer.effect
    }

    /// Whether a statement that met another transaction's change may be run again on a
    /// newer snapshot.
    pub(super) fn may_run_again(&self, client: &ClientState) -> bool {
        match self.machine.modes() {
            Some(modes) => level(modes.isolation) == txn::Isolation::ReadCommitted,
            None => !client.settings.lock().default_is_repeatable(),
        }
    }

    /// Whether a statement that must wait may be undone for it and begin again: on a newer snapshot,
    /// or on the one that its block keeps.
    pub(super) fn may_wait_undone(&self, client: &ClientState) -> bool {
        self.block.is_some() || self.may_run_again(client)
    }

    /// Whether the transaction at hand is to read alone. On a copy none writes in any case.
    pub(super) fn read_only(&self, client: &ClientState) -> bool {
        match self.machine.modes() {
            Some(modes) => modes.read_only,
            None => client.settings.lock().default_is_read_only(),
        }
    }

    /// `transaction_isolation` and `transaction_read_only` tell the block's modes.
    fn show_modes(&self, client: &ClientState, modes: Modes) {
        let read_only = modes.read_only || self.is_on_copy(client);
        let mut settings = client.settings.lock();
        settings.tell_modes(modes.isolation.name(), read_only);
    }

    /// What the block has defined, if it has defined something.
    pub(super) fn defined(&self) -> Option<&Definitions> {
        let parts = self.block.as_ref()?.parts().ok()?;
        parts.defined.0.as_deref()
    }
}

impl Executor {
    /// Where a statement stands among those that wait for rows, over all its runs. Before it
    /// waits for a lock on a relation it gives its places up: others must not wait for it then.
    pub(super) fn row_place(&self) -> RowPlace {
        RowPlace::new(self.txns())
    }
}

impl TransactionState {
    /// The statement at hand has failed.
    pub(super) fn fail(&mut self, client: &mut ClientState, executor: &Executor) {
        let failed = self.tell(Event::Failed, client).and_then(|effect| {
            self.carry_out(client, executor, effect)?;
            Ok(matches!(effect, Effect::Abandon | Effect::PutBack(_)))
        });
        match failed {
            Ok(false) => {}
            Ok(true) => client.note_idle(self.status()),
            Err(error) => tracing::error!(%error, "a failed statement was not undone"),
        }
    }

    /// The statements to come belong together.
    pub(super) fn begin_group(&mut self, client: &ClientState, group: Group) {
        // No state refuses it, and none asks for more.
        let _ = self.tell(Event::GroupBegins(group), client);
    }

    /// Commits the statements of a group, if they are a transaction of their own.
    ///
    /// # Errors
    /// Errors of COMMIT: nothing of them has happened then, or it is in doubt.
    pub(super) async fn end_group(
        &mut self,
        client: &mut ClientState,
        executor: &Executor,
    ) -> Result<(), SqlError> {
        let effect = self.tell(Event::GroupEnds, client)?;
        self.end_implicit(client, executor, effect).await
    }

    /// A statement begins: what it needs of a block is there then.
    ///
    /// # Errors
    /// It may not run where the session stands, or what it follows cannot be committed.
    pub(super) async fn start_in_block(
        &mut self,
        client: &mut ClientState,
        executor: &Executor,
        kind: Kind,
    ) -> Result<(), SqlError> {
        let effect = self.tell(Event::Starts(kind), client)?;
        match effect {
            Effect::Commit => self.end_implicit(client, executor, effect).await,
            _ => self.carry_out(client, executor, effect),
        }
    }

    /// The statement is done: a block that was for it alone commits.
    pub(super) async fn end_in_block(
        &mut self,
        client: &mut ClientState,
        executor: &Executor,
    ) -> Result<(), SqlError> {
        let effect = self.tell(Event::Done, client)?;
        self.end_implicit(client, executor, effect).await
    }

    async fn end_implicit(
        &mut self,
        client: &mut ClientState,
        executor: &Executor,
        effect: Effect,
    ) -> Result<(), SqlError> {
        if effect == Effect::Commit {
            self.end_block(client, executor, effect).await?;
            client.note_idle(self.status());
        }
        Ok(())
    }

    /// Runs a command about the transaction, and gives its tag.
    pub(super) async fn run_transaction(
        &mut self,
        client: &mut ClientState,
        executor: &Executor,
        command: &TransactionCommand,
    ) -> Result<&'static str, SqlError> {
        match command {
            TransactionCommand::Begin { modes, .. } => self.begin(client, executor, *modes)?,
            TransactionCommand::Commit { chain } => {
                return self.commit(client, executor, *chain).await;
            }
            TransactionCommand::Rollback { chain } => {
                let chain = *chain;
                let effect = self.tell(Event::RollBack { chain }, client)?;
                self.end_block(client, executor, effect).await?;
            }
            TransactionCommand::Savepoint(name) => self.mark(client, executor, name)?,
            TransactionCommand::Release(name) => {
                let effect = self.tell(Event::Release(name), client)?;
                self.carry_out(client, executor, effect)?;
            }
            TransactionCommand::RollbackTo(name) => {
                if let Effect::UndoTo(at) = self.tell(Event::RollBackTo(name), client)? {
                    self.undo_to(client, executor.engine.ends(), at).await?;
                }
            }
            TransactionCommand::SetConstraints { names, is_deferred } => {
                SessionView::of(client, self, executor)
                    .set_constraints(names.as_deref(), *is_deferred)
                    .await?;
            }
            TransactionCommand::SetModes(modes) => {
                let effect = self.tell(Event::SetModes(*modes), client)?;
                self.carry_out(client, executor, effect)?;
            }
            TransactionCommand::SetDefaults(modes) => client.set_defaults(*modes)?,
        }
        Ok(command.tag())
    }

    pub(super) fn begin(
        &mut self,
        client: &mut ClientState,
        executor: &Executor,
        modes: TransactionModes,
    ) -> Result<(), SqlError> {
        let effect = self.tell(Event::Begin(modes), client)?;
        self.carry_out(client, executor, effect)
    }

    /// COMMIT, and its tag.
    pub(super) async fn commit(
        &mut self,
        client: &mut ClientState,
        executor: &Executor,
        chain: bool,
    ) -> Result<&'static str, SqlError> {
        let tag = self.machine.tag_of_commit();
        let effect = self.tell(Event::Commit { chain }, client)?;
        self.end_block(client, executor, effect).await?;
        Ok(tag)
    }

    fn mark(
        &mut self,
        client: &ClientState,
        executor: &Executor,
        name: &str,
    ) -> Result<(), SqlError> {
        let settings = client.settings.lock().clone();
        let held = size_of::<Savepoint>() + 2 * name.len() + settings.bytes();
        let held = executor.hold(held)?;
        let effect = self.tell(Event::Savepoint(name), client)?;
        let said = client.sayings.outbox.lock().mark();
        let cursors = client.cursors.mark();
        if let (Effect::Mark, Some(open)) = (effect, &mut self.block) {
            let parts = open.parts()?;
            let savepoint = Savepoint {
                point: parts.block.savepoint(),
                definitions: parts.defined.0.as_ref().map(|defined| defined.mark()),
                deferred: open.deferred.mark(),
                settings,
                cursors,
                said,
                _held: held,
            };
            open.savepoints.push(savepoint);
        }
        Ok(())
    }

    /// SET of a setting that is a mode of the transaction, which says nothing of the next one.
    pub(super) fn set_mode(
        &mut self,
        client: &mut ClientState,
        executor: &Executor,
        modes: TransactionModes,
    ) -> Result<(), SqlError> {
        if self.machine.is_idle() {
            let copy = client.follows().filter(|_| modes.read_only == Some(false));
            return copy.map_or(Ok(()), |copy| Err(copy.no_read_write()));
        }
        let effect = self.tell(Event::SetModes(modes), client)?;
        self.carry_out(client, executor, effect)
    }

    /// Carries out an effect that waits for nothing.
    fn carry_out(
        &mut self,
        client: &mut ClientState,
        executor: &Executor,
        effect: Effect,
    ) -> Result<(), SqlError> {
        match effect {
            Effect::Nothing => {}
            Effect::Hush => client.say_nothing(),
            Effect::Open(modes) => self.open_block(client, executor.txns(), modes),
            Effect::Tell(modes) => {
                if let Some(open) = &self.block {
                    // The machine lets nobody change it once that refuses it.
                    open.parts()?.block.set_isolation(level(modes.isolation));
                }
                self.show_modes(client, modes);
            }
            Effect::Release(at, modes) => {
                if let Some(open) = &mut self.block {
                    open.savepoints.truncate(at);
                }
                self.show_modes(client, modes);
            }
            Effect::Abandon => self.abandon(client, executor.engine.ends()),
            Effect::PutBack(at) => {
                self.put_back(client, at);
                if let Some(open) = &mut self.block {
                    open.return_to(at, executor.engine.ends());
                }
            }
            Effect::Mark | Effect::Commit | Effect::Undo | Effect::UndoTo(_) => {
                return Err(SqlError::new(
                    ErrorKind::Internal,
                    "what a block must wait for was not waited for",
                ));
            }
        }
        Ok(())
    }

    fn open_block(&mut self, client: &ClientState, txns: &Arc<TxnManager>, modes: Modes) {
        let settings = client.settings.lock().clone();
        let block = txns.begin_block(level(modes.isolation));
        client.advisory.enter(block.relation_locks().owner());
        let defined = Defined(None);
        self.block = Some(OpenBlock {
            stored: Stored::Here(Parts { defined, block }),
            deferred: Arc::default(),
            savepoints: Vec::new(),
            settings,
            is_on_copy: client.follows().is_some(),
        });
        self.show_modes(client, modes);
    }

    /// Commits or undoes the block, and begins the next if there is to be one.
    async fn end_block(
        &mut self,
        client: &mut ClientState,
        executor: &Executor,
        effect: Effect,
    ) -> Result<(), SqlError> {
        let ended = match effect {
            Effect::Commit => self.commit_block(client, executor).await,
            Effect::Undo => self.undo(client, executor.engine.ends()).await,
            // It has been undone already.
            next => return self.begin_next(client, executor, next),
        };
        if let Err(error) = ended {
            self.tell(Event::EndFailed, client)?;
            return Err(error);
        }
        let next = self.tell(Event::Ended, client)?;
        self.begin_next(client, executor, next)
    }

    /// AND CHAIN: the next transaction has a time of its own.
    fn begin_next(
        &mut self,
        client: &mut ClientState,
        executor: &Executor,
        next: Effect,
    ) -> Result<(), SqlError> {
        if next == Effect::Nothing {
            return Ok(());
        }
        self.mark_time(client);
        self.carry_out(client, executor, next)
    }

    async fn commit_block(
        &mut self,
        client: &mut ClientState,
        executor: &Executor,
    ) -> Result<(), SqlError> {
        // Work that few commits have is boxed, or the future of every commit has room for it.
        let is_checked = (self.block.as_ref()).is_none_or(|open| open.deferred.is_empty());
        if !is_checked
            && let Err(error) =
                Box::pin(SessionView::of(client, self, executor).check_at_commit()).await
        {
            Box::pin(self.undo(client, executor.engine.ends())).await?;
            return Err(error);
        }
        if client.cursors.must_read() {
            let cancellation = client.cancel.begin(None);
            if let Err(error) = Box::pin(client.cursors.hold(&cancellation)).await {
                Box::pin(self.undo(client, executor.engine.ends())).await?;
                return Err(error);
            }
        }
        let Some(OpenBlock {
            stored, settings, ..
        }) = self.block.take()
        else {
            return Err(undone());
        };
        let committed = match stored {
            Stored::Here(parts) => executor.commit_parts(client, parts).await,
            Stored::Returning(_) | Stored::Lost => Err(undone()),
        };
        if let Err(error) = committed {
            client.settings.lock().go_back_to(settings);
            client.cursors.rolled_back();
            client.say_nothing();
            return Err(error);
        }
        client.cursors.committed();
        client.settings.lock().end_local();
        client.publish();
        Ok(())
    }

    /// Undoes the block, and waits until it is undone.
    async fn undo(&mut self, client: &mut ClientState, ends: &Ends) -> Result<(), SqlError> {
        let Some(stored) = self.leave_block(client) else {
            return Ok(());
        };
        let parts = stored.settled().await?;
        if parts.defined.0.is_none() && !parts.block.has_written() {
            // Nothing but locks.
            return Ok(());
        }
        ends.run(move || drop(parts)).await.map_err(ended_early)
    }

    /// Undoes the block on a thread where that may take its time.
    pub(super) fn abandon(&mut self, client: &mut ClientState, ends: &Ends) {
        if let Some(stored) = self.leave_block(client) {
            ends.run(move || drop(stored));
        }
    }

    /// Goes back to where the session was before its block. The caller undoes what the block has in storage.
    fn leave_block(&mut self, client: &mut ClientState) -> Option<Stored> {
        let open = self.block.take()?;
        client.settings.lock().go_back_to(open.settings);
        client.cursors.rolled_back();
        client.say_nothing();
        Some(open.stored)
    }

    /// ROLLBACK TO.
    async fn undo_to(
        &mut self,
        client: &mut ClientState,
        ends: &Ends,
        at: usize,
    ) -> Result<(), SqlError> {
        self.put_back(client, at);
        let Some(open) = &mut self.block else {
            return Err(undone());
        };
        open.savepoints.truncate(at + 1);
        // A block that has failed is on its way already, to this one or a later one. Locks that a thread of
        // the failed statement has taken meanwhile are given back as well.
        open.settle().await?;
        open.return_to(at, ends);
        open.settle().await
    }

    /// The client's state goes back to a savepoint.
    fn put_back(&self, client: &mut ClientState, at: usize) {
        let Some(savepoint) = self.block.as_ref().and_then(|open| open.savepoints.get(at)) else {
            return;
        };
        client
            .settings
            .lock()
            .go_back_to(savepoint.settings.clone());
        client.cursors.undo_since(savepoint.cursors);
        client.sayings.outbox.lock().go_back_to(savepoint.said);
    }

    /// What the block defines. The caller has opened one.
    pub(super) fn definitions(
        &mut self,
        database: &Arc<Database>,
        temporaries: &Temporaries,
    ) -> Result<Arc<Definitions>, SqlError> {
        let open = self.block.as_mut().ok_or_else(|| {
            SqlError::new(
                ErrorKind::Internal,
                "a definition came to be without a block",
            )
        })?;
        let Stored::Here(parts) = &mut open.stored else {
            return Err(undone());
        };
        let over = || Definitions::over(database, &parts.block, temporaries);
        Ok(Arc::clone(parts.defined.0.get_or_insert_with(over)))
    }
}

impl Executor {
    /// What commits a session's statements.
    pub(super) fn committer(&self, client: &ClientState) -> Committer {
        Committer {
            ends: self.engine.ends().clone(),
            copy: client.copy.clone(),
        }
    }

    async fn commit_parts(&self, client: &mut ClientState, parts: Parts) -> Result<(), SqlError> {
        let Parts { mut defined, block } = parts;
        if let Some(definitions) = defined.0.take_if(|defined| defined.has_changes()) {
            return Box::pin(self.commit_definitions(client, block, definitions)).await;
        }
        let committed = match block.enqueue() {
            Ok(committing) => {
                let ends = self.engine.ends();
                let copy = client.copy.as_deref();
                self.tenant.commits().commit(committing, ends, copy).await
            }
            Err(error) => Err(error),
        };
        committed
            .map(drop)
            .map_err(|error| from_storage(error.into()))
    }

    /// Commits a block with what it has defined.
    async fn commit_definitions(
        &self,
        client: &mut ClientState,
        block: Block,
        definitions: Arc<Definitions>,
    ) -> Result<(), SqlError> {
        let actor = self.actor(client)?;
        let draft = client.draft(&definitions, CancelToken::new());
        let committer = self.committer(client);
        let work = committer.run(move || {
            if let Err(error) = ddl::before_commit(&draft, &actor) {
                let defined = Defined(Some(definitions));
                drop(Parts { defined, block });
                return Err(error);
            }
            definitions.commit(block)?;
            Ok(definitions.temporary())
        });
        let done = work.await.map_err(|error| from_storage(error.into()))?;
        let temporary = done.map_err(ended_early)??;
        let threads = self.engine.queries();
        client.keep_temporaries(temporary, threads);
        Ok(())
    }
}

impl SessionView<'_> {
    /// A transaction for a statement that may write: the block's next part, or one of its own
    /// that has these locks.
    pub(super) fn begin_statement(
        self,
        locks: Option<&Arc<RelationLocks>>,
    ) -> Result<Transaction, SqlError> {
        let transaction = match &self.transaction.block {
            None => {
                let txns = self.executor.txns();
                let locks = locks.cloned().unwrap_or_else(|| txns.relation_locks());
                self.client.advisory.enter(locks.owner());
                txns.begin_with(locks)
            }
            Some(open) => open.parts()?.block.statement(),
        };
        transaction.set_lock_timeout(self.client.settings.lock().lock_timeout());
        Ok(transaction)
    }

    /// The locks of the block, or none yet for a statement of its own.
    pub(super) fn relation_locks(self) -> Result<Arc<RelationLocks>, SqlError> {
        match &self.transaction.block {
            None => {
                let locks = self.executor.txns().relation_locks();
                self.client.advisory.enter(locks.owner());
                Ok(locks)
            }
            Some(open) => Ok(Arc::clone(open.parts()?.block.relation_locks())),
        }
    }
}

impl TransactionState {
    /// What a statement that only reads sees.
    pub(super) fn read_snapshot(&self, txns: &Arc<TxnManager>) -> Result<Snapshot, SqlError> {
        match &self.block {
            None => Ok(txns.snapshot()),
            Some(open) => Ok(open.parts()?.block.snapshot()),
        }
    }

    /// What a statement sees that must not miss a row that is there, whatever the isolation.
    pub(super) fn latest_snapshot(&self, txns: &Arc<TxnManager>) -> Result<Snapshot, SqlError> {
        match &self.block {
            None => Ok(txns.snapshot()),
            Some(open) => Ok(open.parts()?.block.latest_snapshot()),
        }
    }
}
