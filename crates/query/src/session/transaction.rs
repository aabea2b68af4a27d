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
//! Several statements in one message, or up to a Sync, are a block, too: an implicit one.
//!
//! Settings follow the transaction as in PostgreSQL: what a block SET is gone after
//! its ROLLBACK, what it SET LOCAL also after its COMMIT.

use std::collections::BTreeSet;

use aerostat_txn::{self as txn, Block, Snapshot, Transaction};
use aerostat_types::{ErrorKind, SqlError, TableId};
use datafusion::sql::sqlparser::ast;
use parking_lot::Mutex;

use super::{Session, settings::Settings};
use crate::{
    api::{Notice, NoticeSeverity, Outcome, TransactionStatus},
    error::from_storage,
    statement::{Statement, StatementKind},
    utility::{CopyDirection, Isolation, TransactionCommand, TransactionModes, Utility},
};

/// The session's transaction block.
pub(super) struct OpenBlock {
    /// `None` when the block has failed and there was nothing to return to.
    block: Option<Block>,
    failed: bool,
    /// Made for statements that came together, not by BEGIN.
    implicit: bool,
    isolation: Isolation,
    read_only: bool,
    /// Oldest first. A name may be there twice; the newest counts.
    savepoints: Vec<Savepoint>,
    /// The session's settings at BEGIN.
    settings: Settings,
    /// The tables that statements of the block were to write.
    tables: Mutex<BTreeSet<TableId>>,
}

struct Savepoint {
    name: String,
    point: txn::Savepoint,
    settings: Settings,
    /// Those made so far.
    cursors: u64,
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
        self.grouping = false;
        let Some(open) = &mut self.block else { return };
        open.failed = true;
        if open.savepoints.is_empty() {
            self.fail_for_good();
        }
        if let Some(open) = self.block.take_if(|open| open.implicit) {
            self.settings.lock().go_back_to(open.settings);
            self.cursors.rolled_back();
        }
    }

    /// Says that the statements to come belong together, as those of one message or those up
    /// to a Sync: they happen together or not at all. One that cannot be in a transaction
    /// block is a transaction of its own, and commits those before it. The caller calls
    /// [`Self::end_group`] after the last, or [`Self::fail`].
    pub fn begin_group(&mut self) {
        self.grouping = true;
    }

    /// Commits the statements of a group, if they are a transaction of their own.
    ///
    /// # Errors
    /// Those of COMMIT: nothing of them has happened then, or it is in doubt.
    pub async fn end_group(&mut self) -> Result<(), SqlError> {
        self.grouping = false;
        self.commit_implicit().await
    }

    async fn commit_implicit(&mut self) -> Result<(), SqlError> {
        if let Some(open) = self.block.take_if(|open| open.implicit) {
            self.commit_block(open).await?;
            self.note_activity(None);
        }
        Ok(())
    }

    /// The block of a group begins with its first statement that may be in one, and again
    /// after a COMMIT among them.
    pub(super) async fn continue_group(&mut self, statement: &Statement) -> Result<(), SqlError> {
        if !self.grouping {
            return Ok(());
        }
        match &statement.kind {
            StatementKind::Empty => Ok(()),
            StatementKind::Utility(utility) if matches!(&**utility, Utility::Transaction(_)) => {
                Ok(())
            }
            StatementKind::Utility(utility) if utility.runs_outside_blocks() => {
                self.commit_implicit().await
            }
            kind if word_of_definition(kind).is_some() => self.commit_implicit().await,
            _ if self.block.is_some() => Ok(()),
            _ => {
                self.open_block(TransactionModes::default())?;
                if let Some(open) = &mut self.block {
                    open.implicit = true;
                }
                Ok(())
            }
        }
    }

    /// Undoes the block, somewhere where that may take its time.
    pub(super) fn fail_for_good(&mut self) {
        if let Some(block) = self.block.as_mut().and_then(|open| open.block.take()) {
            self.engine
                .queries()
                .spawn_blocking(move || block.rollback());
        }
    }

    /// Refuses what cannot run where the session stands.
    pub(super) fn admit(&self, statement: &Statement) -> Result<(), SqlError> {
        let kind = &statement.kind;
        self.refuse_after_failure(kind)?;
        if let Some(word) = self.read_only().then(|| word_of_change(kind)).flatten() {
            return Err(read_only(&word));
        }
        if self.block.is_none() {
            return Ok(());
        }
        match kind {
            StatementKind::Utility(utility) if utility.runs_outside_blocks() => Err(SqlError::new(
                ErrorKind::ActiveTransaction,
                format!("{} cannot run inside a transaction block", utility.tag()),
            )),
            kind => match word_of_definition(kind) {
                None => Ok(()),
                Some(word) => Err(SqlError::new(
                    ErrorKind::FeatureNotSupported,
                    format!("{word} inside a transaction block is not supported"),
                )
                .with_hint("Run it before BEGIN or after COMMIT; it is a transaction of its own.")),
            },
        }
    }

    /// After a failure a block takes only what ends it.
    pub(super) fn refuse_after_failure(&self, kind: &StatementKind) -> Result<(), SqlError> {
        match &self.block {
            Some(open) if open.failed && !may_follow_failure(kind) => Err(SqlError::new(
                ErrorKind::InFailedTransaction,
                "current transaction is aborted, commands ignored until end of transaction block",
            )),
            _ => Ok(()),
        }
    }

    /// Refuses INSERT, UPDATE and DELETE in a read-only transaction.
    pub(super) fn admit_dml(&self, parsed: &ast::Statement) -> Result<(), SqlError> {
        match word_of_dml(parsed) {
            Some(word) if self.read_only() => Err(read_only(word)),
            _ => Ok(()),
        }
    }

    /// A transaction for a statement that may write: the block's next part, or one of its own.
    pub(super) fn begin_statement(&self) -> Result<Transaction, SqlError> {
        match &self.block {
            None => Ok(self.connection.database().store.txns().begin()),
            Some(open) => Ok(open.parts()?.statement()),
        }
    }

    /// Says which table the statement at hand writes.
    pub(super) fn note_target(&self, table: TableId) {
        if let Some(open) = &self.block {
            open.tables.lock().insert(table);
        }
    }

    /// What a statement that only reads sees.
    pub(super) fn read_snapshot(&self) -> Result<Snapshot, SqlError> {
        match &self.block {
            None => Ok(self.connection.database().store.txns().snapshot()),
            Some(open) => Ok(open.parts()?.snapshot()),
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

    pub(super) async fn run_transaction(
        &mut self,
        command: &TransactionCommand,
    ) -> Result<Outcome, SqlError> {
        match command {
            TransactionCommand::Begin { modes, .. } => {
                if let Some(open) = self.block.as_mut().filter(|open| open.implicit) {
                    open.implicit = false;
                    self.set_modes(*modes)?;
                } else if self.block.is_none() {
                    self.open_block(*modes)?;
                } else {
                    self.warn_with(
                        ErrorKind::ActiveTransaction,
                        "there is already a transaction in progress",
                    );
                    self.set_modes(*modes)?;
                }
            }
            TransactionCommand::Commit { chain } => {
                if let Some(open) = self.end_block("COMMIT", *chain)? {
                    let modes = open.modes();
                    let tag = self.commit_block(open).await?.to_owned();
                    self.chain(*chain, modes)?;
                    return Ok(Outcome::Command { tag });
                }
            }
            TransactionCommand::Rollback { chain } => {
                if let Some(open) = self.end_block("ROLLBACK", *chain)? {
                    let modes = open.modes();
                    self.undo(open).await?;
                    self.chain(*chain, modes)?;
                }
            }
            TransactionCommand::Savepoint(name) => {
                let settings = self.settings.lock().clone();
                let cursors = self.cursors.mark();
                let open = self.require_block("SAVEPOINT")?;
                let point = open.parts()?.savepoint();
                open.savepoints.push(Savepoint {
                    name: name.clone(),
                    point,
                    settings,
                    cursors,
                });
            }
            TransactionCommand::Release(name) => {
                let open = self.require_block("RELEASE SAVEPOINT")?;
                let at = open.savepoint(name)?;
                open.savepoints.truncate(at);
            }
            TransactionCommand::RollbackTo(name) => {
                let open = self.require_block("ROLLBACK TO SAVEPOINT")?;
                let at = open.savepoint(name)?;
                open.savepoints.truncate(at + 1);
                let Savepoint {
                    point,
                    settings,
                    cursors,
                    ..
                } = &open.savepoints[at];
                let (point, settings, cursors) = (*point, settings.clone(), *cursors);
                if let Some(block) = open.block.take() {
                    // Undoing many rows takes its time.
                    let undone = tokio::task::spawn_blocking(move || {
                        block.rollback_to(point);
                        block
                    });
                    open.block = Some(undone.await.map_err(ended_early)?);
                    open.failed = false;
                }
                self.settings.lock().go_back_to(settings);
                self.cursors.undo_since(cursors);
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
        Ok(Outcome::Command {
            tag: Utility::Transaction(command.clone()).tag().to_owned(),
        })
    }

    fn open_block(&mut self, modes: TransactionModes) -> Result<(), SqlError> {
        let settings = self.settings.lock().clone();
        let isolation = modes.isolation.unwrap_or_else(|| self.default_isolation());
        supported(isolation)?;
        let read_only = modes.read_only.unwrap_or_else(|| self.read_only());
        let txns = self.connection.database().store.txns();
        self.block = Some(OpenBlock {
            block: Some(txns.begin_block(level(isolation))),
            failed: false,
            implicit: false,
            isolation,
            read_only,
            savepoints: Vec::new(),
            settings,
            tables: Mutex::default(),
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
        if self.has_lost_a_table(&open) {
            self.undo(open).await?;
            return Err(SqlError::new(
                ErrorKind::SerializationFailure,
                "a table that the transaction has written was dropped or truncated meanwhile",
            )
            .with_hint("Run the transaction again."));
        }
        if let Err(error) = self.cursors.hold(&self.cancel.begin(None)).await {
            self.undo(open).await?;
            return Err(error);
        }
        let OpenBlock {
            block, settings, ..
        } = open;
        if let Some(block) = block {
            let committed = tokio::task::spawn_blocking(move || block.commit()).await;
            if let Err(error) = committed.map_err(ended_early)? {
                self.settings.lock().go_back_to(settings);
                self.cursors.rolled_back();
                return Err(from_storage(error.into()));
            }
        }
        self.cursors.committed();
        self.settings.lock().end_local();
        Ok("COMMIT")
    }

    /// Whether a table that the block has written is not the catalogue's any more: what it
    /// commits would be in nobody's table.
    fn has_lost_a_table(&self, open: &OpenBlock) -> bool {
        let tables = open.tables.lock();
        !tables.is_empty() && {
            let there = self.connection.database().catalog.load().table_ids();
            !tables.is_subset(&there)
        }
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

    async fn undo(&mut self, open: OpenBlock) -> Result<(), SqlError> {
        self.settings.lock().go_back_to(open.settings);
        self.cursors.rolled_back();
        if let Some(block) = open.block {
            let undone = tokio::task::spawn_blocking(move || block.rollback());
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
        match self.settings.lock().get("default_transaction_isolation") {
            Ok("repeatable read") => Isolation::RepeatableRead,
            _ => Isolation::ReadCommitted,
        }
    }

    fn read_only(&self) -> bool {
        match &self.block {
            Some(open) => open.read_only,
            None => self.settings.lock().get("default_transaction_read_only") == Ok("on"),
        }
    }

    /// `transaction_isolation` and `transaction_read_only` tell the block's modes.
    fn show_modes(&self, isolation: Isolation, read_only: bool) {
        let mut settings = self.settings.lock();
        settings.tell_local("transaction_isolation", isolation.name());
        settings.tell_local(
            "transaction_read_only",
            if read_only { "on" } else { "off" },
        );
    }

    pub(super) fn warn_with(&mut self, kind: ErrorKind, message: &str) {
        let mut notice = Notice::new(NoticeSeverity::Warning, message);
        notice.kind = Some(kind);
        self.notices.push(notice);
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

/// The error for a statement that would change something in a read-only transaction.
fn read_only(word: &str) -> SqlError {
    SqlError::new(
        ErrorKind::ReadOnlyTransaction,
        format!("cannot execute {word} in a read-only transaction"),
    )
}

fn ended_early(error: tokio::task::JoinError) -> SqlError {
    SqlError::new(
        ErrorKind::Internal,
        format!("the end of the transaction ended early: {error}"),
    )
}

fn may_follow_failure(kind: &StatementKind) -> bool {
    match kind {
        StatementKind::Empty => true,
        StatementKind::Utility(utility) => matches!(
            &**utility,
            Utility::Transaction(
                TransactionCommand::Commit { .. }
                    | TransactionCommand::Rollback { .. }
                    | TransactionCommand::RollbackTo(_)
            )
        ),
        StatementKind::Sql(_) => false,
    }
}

/// What the statement would change, by the word of PostgreSQL's messages; `None` for one
/// that only reads.
fn word_of_change(kind: &StatementKind) -> Option<String> {
    match kind {
        StatementKind::Utility(utility) => match &**utility {
            Utility::Copy(copy) => {
                (copy.direction == CopyDirection::In).then(|| "COPY FROM".to_owned())
            }
            Utility::Database(_) => Some(utility.tag().to_owned()),
            _ => word_of_definition(kind),
        },
        StatementKind::Sql(parsed) => word_of_dml(parsed)
            .map(str::to_owned)
            .or_else(|| word_of_definition(kind)),
        StatementKind::Empty => None,
    }
}

/// INSERT, UPDATE or DELETE, also behind WITH.
fn word_of_dml(parsed: &ast::Statement) -> Option<&'static str> {
    match parsed {
        ast::Statement::Insert(_) => Some("INSERT"),
        ast::Statement::Update(_) => Some("UPDATE"),
        ast::Statement::Delete(_) => Some("DELETE"),
        ast::Statement::Query(query) => match &*query.body {
            ast::SetExpr::Insert(statement)
            | ast::SetExpr::Update(statement)
            | ast::SetExpr::Delete(statement) => word_of_dml(statement),
            _ => None,
        },
        _ => None,
    }
}

/// What the statement defines, if it changes the catalogue.
fn word_of_definition(kind: &StatementKind) -> Option<String> {
    match kind {
        StatementKind::Utility(utility) => match &**utility {
            Utility::Schema(_) | Utility::Role(_) | Utility::Grant(_) | Utility::Comment(_) => {
                Some(utility.tag().to_owned())
            }
            _ => None,
        },
        StatementKind::Sql(parsed) => match &**parsed {
            ast::Statement::CreateTable(_) => Some("CREATE TABLE".to_owned()),
            ast::Statement::CreateView(_) => Some("CREATE VIEW".to_owned()),
            _ => None,
        },
        StatementKind::Empty => None,
    }
}
