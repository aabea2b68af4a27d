//! What a statement is for its transaction, and what it would change in one that only reads.

use aerostat_sql::{
    statement::StatementKind,
    tree::{locking::shown, modifying::modifies_in_with},
    utility::{CopyDirection, TransactionCommand, Utility},
};
use aerostat_txn as txn;
use aerostat_types::{ErrorKind, SqlError};
use datafusion::sql::sqlparser::ast;

use super::{ClientState, SessionView, TransactionState, machine::Kind};

impl SessionView<'_> {
    /// Refuses what cannot run where the session stands.
    pub(super) fn admit(self, kind: &StatementKind) -> Result<(), SqlError> {
        self.transaction.machine.admit(kind_of(kind))?;
        if let Some(word) = self
            .transaction
            .read_only(self.client)
            .then(|| word_of_change(kind))
            .flatten()
            && !self.changes_temporary(kind)
        {
            return Err(read_only(word));
        }
        Ok(())
    }

    /// Refuses INSERT, UPDATE and DELETE in a read-only transaction, but of what is temporary.
    pub(super) fn admit_dml(self, parsed: &ast::Statement) -> Result<(), SqlError> {
        match word_of_dml(parsed) {
            Some(word)
                if self.transaction.read_only(self.client) && !self.writes_temporary(parsed) =>
            {
                Err(read_only(word))
            }
            _ => Ok(()),
        }
    }
}

impl TransactionState {
    /// Refuses locking rows in a read-only transaction.
    pub(super) fn admit_locks(
        &self,
        client: &ClientState,
        mode: txn::RowLock,
    ) -> Result<(), SqlError> {
        if self.read_only(client) {
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

/// What kind of statement it is for its transaction.
pub(super) fn kind_of(kind: &StatementKind) -> Kind {
    match kind {
        StatementKind::Empty | StatementKind::Unread => Kind::Nothing,
        StatementKind::Utility(utility) => match &**utility {
            Utility::Transaction(command) => kind_of_command(command),
            utility if utility.runs_outside_blocks() => Kind::Outside(utility.tag()),
            utility if defines_in_node(utility) => Kind::OfNode(utility.tag()),
            utility if utility.defines_in_database() => Kind::Definition,
            _ => Kind::Other,
        },
        StatementKind::Sql(_) => match word_of_definition(kind) {
            Some(_) => Kind::Definition,
            None => Kind::Other,
        },
    }
}

fn kind_of_command(command: &TransactionCommand) -> Kind {
    match command {
        TransactionCommand::Commit { .. }
        | TransactionCommand::Rollback { .. }
        | TransactionCommand::RollbackTo(_) => Kind::Exit,
        TransactionCommand::Begin { .. }
        | TransactionCommand::Savepoint(_)
        | TransactionCommand::Release(_)
        | TransactionCommand::SetModes(_) => Kind::Control,
        // Settings of the session, and checks: both are a part of the transaction.
        TransactionCommand::SetDefaults(_) | TransactionCommand::SetConstraints { .. } => {
            Kind::Other
        }
    }
}

/// What the statement would change, by the word of PostgreSQL's messages; `None` for one
/// that only reads.
fn word_of_change(kind: &StatementKind) -> Option<&'static str> {
    match kind {
        StatementKind::Utility(utility) => match &**utility {
            Utility::Copy(copy) => (copy.direction == CopyDirection::In).then_some("COPY FROM"),
            Utility::Database(_) | Utility::System(_) => Some(utility.tag()),
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
fn defines_in_node(utility: &Utility) -> bool {
    let defines = matches!(
        utility,
        Utility::Role(_) | Utility::Grant(_) | Utility::Comment(_)
    );
    defines && !utility.defines_in_database()
}

/// What the statement defines in the database, by its tag, if it does.
fn word_of_definition(kind: &StatementKind) -> Option<&'static str> {
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
