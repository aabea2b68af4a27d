//! Transaction blocks: BEGIN to COMMIT or ROLLBACK, with savepoints between.
//!
//! ```text
//!            BEGIN                     an error
//!   idle ───────────► open ───────────────────────► failed
//!    ▲  ▲               │ ▲       ROLLBACK TO          │ │
//!    │  └─ COMMIT,  ────┘ └────────────────────────────┘ │
//!    │     ROLLBACK                                      │
//!    └──────────── COMMIT (which undoes), ROLLBACK ──────┘
//! ```
//!
//! Each statement of a block is a part of its own in storage: one that fails is
//! undone alone, and the block then only waits for its end or for a savepoint to
//! return to. A block that has failed and has no savepoint is undone at once, so
//! that nobody waits for it.
//!
//! What a block defines is its own until it commits ([`Definitions`]), and goes back to
//! savepoints with its rows. A statement that defines something is always in a block, an
//! implicit one if there is no other.
//!
//! Checks of deferrable constraints wait for COMMIT ([`constraints`](super::constraints)).
//!
//! Several statements in one message, or up to a Sync, are a block, too: an implicit one.
//!
//! Settings follow the transaction as in PostgreSQL: what a block SET is gone after
//! its ROLLBACK, what it SET LOCAL also after its COMMIT.

use std::{sync::Arc, time::Instant};

use aerostat_api::{Group, Notice, NoticeSeverity, Outcome, TransactionStatus};
use aerostat_catalog::{Definitions, Mark, ddl, failure::from_storage};
use aerostat_query::deferred::{self, Deferred};
use aerostat_sql::{
    statement::{Statement, StatementKind},
    utility::{Isolation, TransactionCommand, TransactionModes, Utility},
};
use aerostat_txn::{
    self as txn, Block, CancelToken, RelationLocks, RowPlace, Snapshot, Transaction,
};
use aerostat_types::{ErrorKind, SqlError};

use super::{
    Session,
    admission::{defines_in_node, word_of_definition},
    settings::Settings,
};
use crate::{engine::StatementRecord, memory::Held, notify::OutboxMark};

/// The session's transaction block.
pub(super) struct OpenBlock {
    /// `None` when the block has failed and there was nothing to return to.
    block: Option<Block>,
    /// What it has defined; `None` as long as it has defined nothing.
    definitions: Option<Arc<Definitions>>,
    /// The checks that it has put off.
    pub(super) deferred: Arc<Deferred>,
    pub(super) failed: bool,
    /// Made for statements that came together, or for one that defines, not by BEGIN.
    implicit: bool,
    /// Whether the statement at hand is its first, and may be its only one.
    is_of_one: bool,
    isolation: Isolation,
    read_only: bool,
    /// Oldest first. A name may be there twice; the newest counts.
    savepoints: Vec<Savepoint>,
    /// The session's settings at BEGIN.
    settings: Settings,
}

struct Savepoint {
    name: String,
    point: txn::Savepoint,
    /// What was defined by then; `None` for nothing.
    definitions: Option<Mark>,
    /// What was put off by then.
    deferred: deferred::Mark,
    read_only: bool,
    settings: Settings,
    /// Those made so far.
    cursors: u64,
    /// What was said to others by then.
    said: OutboxMark,
    /// What it is charged as.
    _held: Held,
}

/// The level in storage. READ UNCOMMITTED is READ COMMITTED, as in PostgreSQL.
fn level(isolation: Isolation) -> txn::Isolation {
    match isolation {
        Isolation::ReadUncommitted | Isolation::ReadCommitted => txn::Isolation::ReadCommitted,
        Isolation::RepeatableRead | Isolation::Serializable => txn::Isolation::RepeatableRead,
    }
}

impl Session {
    /// Where the session stands.
    pub fn status(&self) -> TransactionStatus {
        match &self.block {
            None => TransactionStatus::Idle,
            Some(open) if open.implicit => TransactionStatus::Idle,
            Some(open) if open.failed => TransactionStatus::Failed,
            Some(_) => TransactionStatus::InTransaction,
        }
    }

    /// Says that the statement at hand has failed after it had been taken on: reading its
    /// rows, or sending them. Whoever reads the rows calls this.
    pub fn fail(&mut self) {
        self.grouping = None;
        let Some(open) = &mut self.block else {
            self.say_nothing();
            return;
        };
        open.failed = true;
        if open.savepoints.is_empty() {
            self.fail_for_good();
        }
        if let Some(open) = self.block.take_if(|open| open.implicit) {
            self.settings.lock().go_back_to(open.settings);
            self.cursors.rolled_back();
            self.say_nothing();
        }
    }

    /// Says that the statements to come belong together: they happen together or not at all.
    /// One that cannot be in a transaction block is a transaction of its own, and commits those
    /// before it. The caller calls [`Self::end_group`] after the last, or [`Self::fail`].
    pub fn begin_group(&mut self, group: Group) {
        self.grouping = Some(group);
    }

    /// Commits the statements of a group, if they are a transaction of their own.
    ///
    /// # Errors
    /// Those of COMMIT: nothing of them has happened then, or it is in doubt.
    pub async fn end_group(&mut self) -> Result<(), SqlError> {
        self.grouping = None;
        self.commit_implicit().await
    }

    pub(super) async fn commit_implicit(&mut self) -> Result<(), SqlError> {
        if let Some(open) = self.block.take_if(|open| open.implicit) {
            self.commit_block(open).await?;
            self.note_activity(None);
        }
        Ok(())
    }

    /// Opens a block for the statement at hand, if it needs one: the block of a group begins
    /// with its first statement that may be in one, and again after a COMMIT among them.
    /// Returns whether the block is for this statement alone.
    pub(super) async fn enter_block(&mut self, statement: &Statement) -> Result<bool, SqlError> {
        let kind = &statement.kind;
        let is_control = match kind {
            StatementKind::Empty | StatementKind::Unread => true,
            StatementKind::Utility(utility) => {
                if utility.runs_outside_blocks() || defines_in_node(utility) {
                    self.commit_implicit().await?;
                    return Ok(false);
                }
                matches!(&**utility, Utility::Transaction(command) if command.is_control())
            }
            StatementKind::Sql(_) => false,
        };
        if let Some(open) = &mut self.block {
            open.is_of_one = false;
            return Ok(false);
        }
        let is_grouped = self.grouping.is_some();
        let needs_block = is_grouped && !is_control || word_of_definition(kind).is_some();
        if !needs_block {
            return Ok(false);
        }
        self.open_block(TransactionModes::default())?;
        if let Some(open) = &mut self.block {
            open.implicit = true;
            open.is_of_one = self.grouping != Some(Group::Message);
        }
        Ok(!is_grouped)
    }

    /// Undoes the block, somewhere where that may take its time.
    pub(super) fn fail_for_good(&mut self) {
        let Some(open) = &mut self.block else { return };
        if let Some(block) = open.block.take() {
            let definitions = open.definitions.take();
            self.engine
                .queries()
                .spawn_blocking(move || roll_back(block, definitions));
        }
    }

    /// A transaction for a statement that may write: the block's next part, or one of its own
    /// that has these locks.
    pub(super) fn begin_statement(
        &self,
        locks: Option<&Arc<RelationLocks>>,
    ) -> Result<Transaction, SqlError> {
        let transaction = match &self.block {
            None => {
                let txns = self.connection.database().store.txns();
                let locks = locks.cloned().unwrap_or_else(|| txns.relation_locks());
                self.advisory.enter(locks.owner());
                txns.begin_with(locks)
            }
            Some(open) => open.parts()?.statement(),
        };
        transaction.set_lock_timeout(self.settings.lock().lock_timeout());
        Ok(transaction)
    }

    /// Where a statement stands among those that wait for rows, over all its runs. Before it
    /// waits for a lock on a relation it gives its places up: others must not wait for it then.
    pub(super) fn row_place(&self) -> RowPlace {
        RowPlace::new(self.connection.database().store.txns())
    }

    /// The locks of the block, or none yet for a statement of its own.
    pub(super) fn relation_locks(&self) -> Result<Arc<RelationLocks>, SqlError> {
        match &self.block {
            None => {
                let locks = self.connection.database().store.txns().relation_locks();
                self.advisory.enter(locks.owner());
                Ok(locks)
            }
            Some(open) => Ok(Arc::clone(open.parts()?.relation_locks())),
        }
    }

    /// Whether the statement at hand is one of several of a transaction.
    pub(super) fn is_one_of_several(&self) -> bool {
        self.block
            .as_ref()
            .is_some_and(|open| self.grouping.is_some() || !open.implicit)
    }

    /// Whether the statement at hand is in a transaction block: one that the client has opened, or
    /// that of several statements which came together.
    pub(super) fn is_in_block(&self) -> bool {
        self.block.as_ref().is_some_and(|open| !open.is_of_one)
    }

    /// What the block has defined, if it has defined something.
    pub(super) fn defined(&self) -> Option<&Definitions> {
        self.block.as_ref()?.definitions.as_deref()
    }

    /// What the block defines. The caller has opened one.
    pub(super) fn definitions(&mut self) -> Result<Arc<Definitions>, SqlError> {
        let open = self.block.as_mut().ok_or_else(|| {
            SqlError::new(
                ErrorKind::Internal,
                "a definition came to be without a block",
            )
        })?;
        if let Some(definitions) = &open.definitions {
            return Ok(Arc::clone(definitions));
        }
        let database = self.connection.database();
        let definitions = Definitions::over(database, open.parts()?, &self.temporaries);
        open.definitions = Some(Arc::clone(&definitions));
        Ok(definitions)
    }

    /// What a statement that only reads sees.
    pub(super) fn read_snapshot(&self) -> Result<Snapshot, SqlError> {
        match &self.block {
            None => Ok(self.connection.database().store.txns().snapshot()),
            Some(open) => Ok(open.parts()?.snapshot()),
        }
    }

    /// What a statement sees that must not miss a row that is there, whatever the isolation.
    pub(super) fn latest_snapshot(&self) -> Result<Snapshot, SqlError> {
        match &self.block {
            None => Ok(self.connection.database().store.txns().snapshot()),
            Some(open) => Ok(open.parts()?.latest_snapshot()),
        }
    }

    /// Whether a statement that met another transaction's change may be run again on a
    /// newer snapshot.
    pub(super) fn may_run_again(&self) -> bool {
        let isolation = match &self.block {
            Some(open) => open.isolation,
            None => self.default_isolation(),
        };
        level(isolation) == txn::Isolation::ReadCommitted
    }

    /// Runs a command about the transaction, and gives its tag.
    pub(super) async fn run_transaction(
        &mut self,
        command: &TransactionCommand,
    ) -> Result<&'static str, SqlError> {
        match command {
            TransactionCommand::Begin { modes, .. } => self.begin(*modes)?,
            TransactionCommand::Commit { chain } => {
                return self.commit(*chain).await;
            }
            TransactionCommand::Rollback { chain } => self.roll_back(*chain).await?,
            TransactionCommand::Savepoint(name) => {
                let settings = self.settings.lock().clone();
                let cursors = self.cursors.mark();
                let said = self.sayings.outbox.lock().mark();
                let held = size_of::<Savepoint>() + name.len() + settings.bytes();
                let held = self.hold(held)?;
                let open = self.require_block("SAVEPOINT")?;
                let point = open.parts()?.savepoint();
                let definitions = open.definitions.as_ref().map(|defined| defined.mark());
                let deferred = open.deferred.mark();
                let read_only = open.read_only;
                open.savepoints.push(Savepoint {
                    name: name.clone(),
                    point,
                    definitions,
                    deferred,
                    read_only,
                    settings,
                    cursors,
                    said,
                    _held: held,
                });
            }
            TransactionCommand::Release(name) => {
                let open = self.require_block("RELEASE SAVEPOINT")?;
                let at = open.savepoint(name)?;
                // What was made read-only since then is so no longer.
                open.read_only = open.savepoints[at].read_only;
                open.savepoints.truncate(at);
                let (isolation, read_only) = (open.isolation, open.read_only);
                self.show_modes(isolation, read_only);
            }
            TransactionCommand::RollbackTo(name) => {
                let open = self.require_block("ROLLBACK TO SAVEPOINT")?;
                let at = open.savepoint(name)?;
                open.savepoints.truncate(at + 1);
                let Savepoint {
                    point,
                    definitions: mark,
                    deferred,
                    read_only,
                    settings,
                    cursors,
                    said,
                    ..
                } = &open.savepoints[at];
                open.deferred.rollback_to(deferred);
                open.read_only = *read_only;
                let (point, settings, cursors) = (*point, settings.clone(), *cursors);
                let said = *said;
                if let Some(block) = open.block.take() {
                    let (mark, definitions) = (mark.clone(), open.definitions.take());
                    // Undoing many rows takes its time, and dropping tables the disk's.
                    let undone = tokio::task::spawn_blocking(move || {
                        let kept = definitions.filter(|defined| match &mark {
                            Some(mark) => {
                                defined.rollback_to(mark);
                                true
                            }
                            None => {
                                defined.rollback();
                                false
                            }
                        });
                        block.rollback_to(point);
                        (block, kept)
                    });
                    let (block, definitions) = undone.await.map_err(ended_early)?;
                    (open.block, open.definitions) = (Some(block), definitions);
                    open.failed = false;
                }
                self.settings.lock().go_back_to(settings);
                self.cursors.undo_since(cursors);
                self.sayings.outbox.lock().go_back_to(said);
            }
            TransactionCommand::SetConstraints { names, is_deferred } => {
                self.set_constraints(names.as_deref(), *is_deferred).await?;
            }
            TransactionCommand::SetModes(modes) => {
                if self.block.is_some() {
                    self.set_modes(*modes)?;
                } else {
                    self.warn_with(
                        ErrorKind::NoActiveTransaction,
                        "SET TRANSACTION can only be used in transaction blocks",
                    );
                }
            }
            TransactionCommand::SetDefaults(modes) => {
                let mut settings = self.settings.lock();
                if let Some(isolation) = modes.isolation {
                    supported(isolation)?;
                    let name = isolation.name().to_owned();
                    settings.set("default_transaction_isolation", &[name])?;
                }
                if let Some(read_only) = modes.read_only {
                    let value = if read_only { "on" } else { "off" }.to_owned();
                    settings.set("default_transaction_read_only", &[value])?;
                }
            }
        }
        Ok(command.tag())
    }

    /// Runs BEGIN, COMMIT and their like. They plan nothing and read no rows, and so need little
    /// of what other statements are given; what they wait for, no request stops.
    pub(super) async fn run_control(
        &mut self,
        command: &TransactionCommand,
        statement: &Statement,
    ) -> Result<Outcome, SqlError> {
        let started = Instant::now();
        if self.block.is_none() {
            self.mark_time();
        }
        self.is_busy = false;
        let done = match self.refuse_after_failure(&statement.kind) {
            Err(error) => Err(error),
            Ok(()) => match *command {
                TransactionCommand::Begin { modes, .. } => {
                    self.begin(modes).map(|()| command.tag())
                }
                _ => {
                    self.note_activity(Some(statement.text()));
                    match *command {
                        TransactionCommand::Commit { chain } => self.commit(chain).await,
                        _ => {
                            // A request to stop this stops no portal that is open.
                            self.cancel.begin(None);
                            // Apart, or every COMMIT's future has room for it.
                            Box::pin(self.run_transaction(command)).await
                        }
                    }
                }
            },
        };
        if done.is_err() {
            self.fail();
        }
        if self.block.is_none() {
            self.settings.lock().end_local();
        }
        self.note_done(statement.text());
        let database = self.connection.database().name.read();
        self.engine.observer().statement(&StatementRecord {
            database: &database,
            kind: "other",
            elapsed: started.elapsed(),
            rows: 0,
            error: done.as_ref().err().map(|error| error.kind),
        });
        let tag = done?.to_owned();
        Ok(Outcome::Command { tag })
    }

    /// BEGIN: a block of its own, or the implicit one goes on as one.
    fn begin(&mut self, modes: TransactionModes) -> Result<(), SqlError> {
        if let Some(open) = self.block.as_mut().filter(|open| open.implicit) {
            (open.implicit, open.is_of_one) = (false, false);
            return self.set_modes(modes);
        }
        if self.block.is_none() {
            return self.open_block(modes);
        }
        self.warn_with(
            ErrorKind::ActiveTransaction,
            "there is already a transaction in progress",
        );
        self.set_modes(modes)
    }

    /// COMMIT, and its tag.
    async fn commit(&mut self, chain: bool) -> Result<&'static str, SqlError> {
        let Some(open) = self.end_block("COMMIT", chain)? else {
            return Ok("COMMIT");
        };
        let modes = open.modes();
        let tag = self.commit_block(open).await?;
        self.chain(chain, modes)?;
        Ok(tag)
    }

    async fn roll_back(&mut self, chain: bool) -> Result<(), SqlError> {
        let Some(open) = self.end_block("ROLLBACK", chain)? else {
            return Ok(());
        };
        let modes = open.modes();
        self.undo(open).await?;
        self.chain(chain, modes)
    }

    fn open_block(&mut self, modes: TransactionModes) -> Result<(), SqlError> {
        let settings = self.settings.lock().clone();
        let isolation = modes.isolation.unwrap_or_else(|| self.default_isolation());
        supported(isolation)?;
        let read_only = modes.read_only.unwrap_or_else(|| self.read_only());
        let txns = self.connection.database().store.txns();
        let block = txns.begin_block(level(isolation));
        self.advisory.enter(block.relation_locks().owner());
        self.block = Some(OpenBlock {
            block: Some(block),
            definitions: None,
            deferred: Arc::default(),
            failed: false,
            implicit: false,
            is_of_one: false,
            isolation,
            read_only,
            savepoints: Vec::new(),
            settings,
        });
        self.show_modes(isolation, read_only);
        Ok(())
    }

    /// SET TRANSACTION, or the modes of a second BEGIN.
    fn set_modes(&mut self, modes: TransactionModes) -> Result<(), SqlError> {
        let Some(open) = &mut self.block else {
            return Ok(());
        };
        if let Some(isolation) = modes.isolation.filter(|level| *level != open.isolation) {
            supported(isolation)?;
            if !open.parts()?.set_isolation(level(isolation)) {
                return Err(SqlError::new(
                    ErrorKind::ActiveTransaction,
                    "SET TRANSACTION ISOLATION LEVEL must be called before any query",
                ));
            }
            open.isolation = isolation;
        }
        if let Some(read_only) = modes.read_only {
            if open.read_only && !read_only && open.parts()?.has_begun() {
                return Err(SqlError::new(
                    ErrorKind::ActiveTransaction,
                    "transaction read-write mode must be set before any query",
                ));
            }
            open.read_only = read_only;
        }
        let (isolation, read_only) = (open.isolation, open.read_only);
        self.show_modes(isolation, read_only);
        Ok(())
    }

    /// COMMIT of a block that has failed undoes it; the tag says so.
    async fn commit_block(&mut self, open: OpenBlock) -> Result<&'static str, SqlError> {
        if open.failed {
            self.undo(open).await?;
            return Ok("ROLLBACK");
        }
        // What few commits have to do is apart, or every one's future has room for it.
        let open = match open.deferred.is_empty() {
            true => open,
            false => Box::pin(self.checked(open)).await?,
        };
        if self.cursors.must_read() {
            let cancellation = self.cancel.begin(None);
            if let Err(error) = Box::pin(self.cursors.hold(&cancellation)).await {
                self.undo(open).await?;
                return Err(error);
            }
        }
        let OpenBlock {
            block,
            definitions,
            settings,
            ..
        } = open;
        if let Some(block) = block {
            let committed = match definitions {
                Some(definitions) if definitions.has_changes() => {
                    Box::pin(self.commit_definitions(block, definitions)).await
                }
                _ => match block.enqueue() {
                    Ok(committing) => {
                        let threads = self.engine.queries();
                        self.commits.commit(committing, threads).await
                    }
                    Err(error) => Err(error),
                }
                .map(drop)
                .map_err(|error| from_storage(error.into())),
            };
            if let Err(error) = committed {
                self.settings.lock().go_back_to(settings);
                self.cursors.rolled_back();
                self.say_nothing();
                return Err(error);
            }
        }
        self.cursors.committed();
        self.settings.lock().end_local();
        self.publish();
        Ok("COMMIT")
    }

    /// Commits a block with what it has defined.
    async fn commit_definitions(
        &mut self,
        block: Block,
        definitions: Arc<Definitions>,
    ) -> Result<(), SqlError> {
        let actor = self.actor()?;
        let draft = self.draft(&definitions, CancelToken::new());
        let work = tokio::task::spawn_blocking(move || {
            if let Err(error) = ddl::before_commit(&draft, &actor) {
                roll_back(block, Some(definitions));
                return Err(error);
            }
            definitions.commit(block)?;
            Ok(definitions.temporary())
        });
        let temporary = work.await.map_err(ended_early)??;
        self.keep_temporaries(temporary);
        Ok(())
    }

    /// Takes the block that COMMIT or ROLLBACK ends; warns where there is none.
    fn end_block(&mut self, word: &str, chain: bool) -> Result<Option<OpenBlock>, SqlError> {
        let explicit = self.block.as_ref().is_some_and(|open| !open.implicit);
        if !explicit && chain {
            return Err(outside_block(&format!("{word} AND CHAIN")));
        }
        if !explicit {
            self.warn_with(
                ErrorKind::NoActiveTransaction,
                "there is no transaction in progress",
            );
        }
        Ok(self.block.take())
    }

    pub(super) async fn undo(&mut self, open: OpenBlock) -> Result<(), SqlError> {
        self.settings.lock().go_back_to(open.settings);
        self.cursors.rolled_back();
        self.say_nothing();
        if let Some(block) = open.block {
            let definitions = open.definitions;
            if definitions.is_none() && !block.has_written() {
                // Nothing but locks.
                block.rollback();
                return Ok(());
            }
            let undone = tokio::task::spawn_blocking(move || roll_back(block, definitions));
            undone.await.map_err(ended_early)?;
        }
        Ok(())
    }

    /// AND CHAIN: the next transaction begins at once, with the same modes and a time of its own.
    fn chain(&mut self, chain: bool, modes: TransactionModes) -> Result<(), SqlError> {
        if chain {
            self.mark_time();
            self.open_block(modes)?;
        }
        Ok(())
    }

    fn require_block(&mut self, word: &str) -> Result<&mut OpenBlock, SqlError> {
        self.block
            .as_mut()
            .filter(|open| !open.implicit)
            .ok_or_else(|| outside_block(word))
    }

    fn default_isolation(&self) -> Isolation {
        match self.settings.lock().default_is_repeatable() {
            true => Isolation::RepeatableRead,
            false => Isolation::ReadCommitted,
        }
    }

    pub(super) fn read_only(&self) -> bool {
        match &self.block {
            Some(open) => open.read_only,
            None => self.settings.lock().default_is_read_only(),
        }
    }

    /// `transaction_isolation` and `transaction_read_only` tell the block's modes.
    fn show_modes(&self, isolation: Isolation, read_only: bool) {
        let mut settings = self.settings.lock();
        settings.tell_modes(isolation.name(), read_only);
    }

    pub(super) fn warn_with(&mut self, kind: ErrorKind, message: &str) {
        let mut notice = Notice::new(NoticeSeverity::Warning, message);
        notice.kind = Some(kind);
        self.notices.tell(notice);
    }
}

impl OpenBlock {
    /// The block in storage.
    fn parts(&self) -> Result<&Block, SqlError> {
        self.block.as_ref().ok_or_else(|| {
            SqlError::new(
                ErrorKind::Internal,
                "a statement was let into a block that has been undone",
            )
        })
    }

    fn modes(&self) -> TransactionModes {
        TransactionModes {
            isolation: Some(self.isolation),
            read_only: Some(self.read_only),
            deferrable: None,
        }
    }

    /// The position of the newest savepoint of a name.
    fn savepoint(&self, name: &str) -> Result<usize, SqlError> {
        self.savepoints
            .iter()
            .rposition(|savepoint| savepoint.name == name)
            .ok_or_else(|| {
                SqlError::new(
                    ErrorKind::InvalidSavepoint,
                    format!("savepoint \"{name}\" does not exist"),
                )
            })
    }
}

/// What was defined goes before the locks that keep others from it.
fn roll_back(block: Block, definitions: Option<Arc<Definitions>>) {
    if let Some(definitions) = definitions {
        definitions.rollback();
    }
    block.rollback();
}

/// SERIALIZABLE promises what snapshots do not give.
fn supported(isolation: Isolation) -> Result<(), SqlError> {
    if isolation == Isolation::Serializable {
        return Err(SqlError::new(
            ErrorKind::FeatureNotSupported,
            "the isolation level SERIALIZABLE is not supported",
        )
        .with_hint("REPEATABLE READ, which is snapshot isolation, is the highest level."));
    }
    Ok(())
}

fn outside_block(word: &str) -> SqlError {
    SqlError::new(
        ErrorKind::NoActiveTransaction,
        format!("{word} can only be used in transaction blocks"),
    )
}

fn ended_early(error: tokio::task::JoinError) -> SqlError {
    SqlError::new(
        ErrorKind::Internal,
        format!("the end of the transaction ended early: {error}"),
    )
}
