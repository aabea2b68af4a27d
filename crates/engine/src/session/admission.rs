//! What may run where a session stands: in a failed block, in a read-only transaction, in a
//! block at all.

use aerostat_sql::{
    statement::{Statement, StatementKind},
    tree::{locking::shown, modifying::modifies_in_with},
    utility::{CopyDirection, TransactionCommand, Utility},
};
use aerostat_txn as txn;
use aerostat_types::{ErrorKind, SqlError};
use datafusion::sql::sqlparser::ast;

use super::Session;

impl Session {
    /// Refuses what cannot run where the session stands.
    pub(super) fn admit(&self, statement: &Statement) -> Result<(), SqlError> {
        let kind = &statement.kind;
        self.refuse_after_failure(kind)?;
        if let Some(word) = self.read_only().then(|| word_of_change(kind)).flatten()
            && !self.changes_temporary(kind)
        {
            return Err(read_only(word));
        }
        if self.block.is_none() {
            return Ok(());
        }
        let StatementKind::Utility(utility) = kind else {
            return Ok(());
        };
        if utility.runs_outside_blocks() {
            return Err(SqlError::new(
                ErrorKind::ActiveTransaction,
                format!("{} cannot run inside a transaction block", utility.tag()),
            ));
        }
        if defines_in_node(utility) {
            let message = format!(
                "{} inside a transaction block is not supported",
                utility.tag()
            );
            return Err(
                SqlError::new(ErrorKind::FeatureNotSupported, message).with_hint(
                    "Run it before BEGIN or after COMMIT; it is a transaction of its own.",
                ),
            );
        }
        Ok(())
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

    /// Whether the fast path may take a statement where the session stands. The first of a
    /// group makes the group's block, and what is refused is refused in one place: both are
    /// the other way's.
    pub(super) fn admits_fast(&self, writes: bool) -> bool {
        let is_open = match &self.block {
            Some(open) => !open.failed,
            None => self.grouping.is_none(),
        };
        is_open && !(writes && self.read_only())
    }

    /// Refuses INSERT, UPDATE and DELETE in a read-only transaction, but of what is temporary.
    pub(super) fn admit_dml(&self, parsed: &ast::Statement) -> Result<(), SqlError> {
        match word_of_dml(parsed) {
            Some(word) if self.read_only() && !self.writes_temporary(parsed) => {
                Err(read_only(word))
            }
            _ => Ok(()),
        }
    }

    /// Refuses locking rows in a read-only transaction.
    pub(super) fn admit_locks(&self, mode: txn::RowLock) -> Result<(), SqlError> {
        if self.read_only() {
            return Err(read_only(&format!("SELECT {}", shown(mode))));
        }
        Ok(())
    }
}

/// The error for changing something in a read-only transaction.
pub(super) fn read_only(word: &str) -> SqlError {
    SqlError::new(
        ErrorKind::ReadOnlyTransaction,
        format!("cannot execute {word} in a read-only transaction"),
    )
}

fn may_follow_failure(kind: &StatementKind) -> bool {
    match kind {
        StatementKind::Empty | StatementKind::Unread => true,
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
fn word_of_change(kind: &StatementKind) -> Option<&'static str> {
    match kind {
        StatementKind::Utility(utility) => match &**utility {
            Utility::Copy(copy) => (copy.direction == CopyDirection::In).then_some("COPY FROM"),
            Utility::Database(_) => Some(utility.tag()),
            other if defines_in_node(other) => Some(utility.tag()),
            _ => word_of_definition(kind),
        },
        StatementKind::Sql(parsed) => word_of_dml(parsed).or_else(|| word_of_definition(kind)),
        StatementKind::Empty | StatementKind::Unread => None,
    }
}

/// INSERT, UPDATE, DELETE or MERGE, also behind WITH; SELECT for a query with one in WITH.
fn word_of_dml(parsed: &ast::Statement) -> Option<&'static str> {
    match parsed {
        ast::Statement::Insert(_) => Some("INSERT"),
        ast::Statement::Update(_) => Some("UPDATE"),
        ast::Statement::Delete(_) => Some("DELETE"),
        ast::Statement::Merge(_) => Some("MERGE"),
        ast::Statement::Query(query) => match &*query.body {
            ast::SetExpr::Insert(statement)
            | ast::SetExpr::Update(statement)
            | ast::SetExpr::Delete(statement)
            | ast::SetExpr::Merge(statement) => word_of_dml(statement),
            _ => modifies_in_with(query).then_some("SELECT"),
        },
        _ => None,
    }
}

/// Whether it defines something that all databases share, which no block of one can undo.
pub(super) fn defines_in_node(utility: &Utility) -> bool {
    let defines = matches!(
        utility,
        Utility::Role(_) | Utility::Grant(_) | Utility::Comment(_)
    );
    defines && !utility.defines_in_database()
}

/// What the statement defines in the database, by its tag, if it does.
pub(super) fn word_of_definition(kind: &StatementKind) -> Option<&'static str> {
    match kind {
        StatementKind::Utility(utility) if utility.defines_in_database() => Some(utility.tag()),
        StatementKind::Utility(_) | StatementKind::Empty | StatementKind::Unread => None,
        StatementKind::Sql(parsed) => match &**parsed {
            ast::Statement::CreateTable(_) => Some("CREATE TABLE"),
            ast::Statement::CreateView(_) => Some("CREATE VIEW"),
            _ => None,
        },
    }
}
