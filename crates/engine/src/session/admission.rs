//! What a statement is for its transaction, and what it would change in one that only reads.

use aerostat_catalog::CopyState;
use aerostat_sql::{
    statement::StatementKind,
    tree::{locking::shown, modifying::modifies_in_with},
    utility::{CopyDirection, MaintenanceCommand, NotifyCommand, TransactionCommand, Utility},
};
use aerostat_txn::{self as txn, LockMode};
use aerostat_types::{ErrorKind, SqlError};
use datafusion::sql::sqlparser::ast;

use super::{ClientState, SessionView, TransactionState, machine::Kind};

/// Where a change happens that a statement makes.
enum Change {
    /// In the database, by the word of PostgreSQL's messages.
    OfDatabase(&'static str),
    /// In what all databases share.
    OfNode(&'static str),
    /// Nothing that a transaction could not do that only reads, and yet nothing for a copy.
    NotOnCopies(&'static str),
}

impl SessionView<'_> {
    /// Refuses what cannot run where the session stands.
    pub(super) fn admit(self, kind: &StatementKind) -> Result<(), SqlError> {
        self.transaction.machine.admit(kind_of(kind))?;
        if let Some(Change::OfDatabase(word)) = change_of(kind)
            && let Some(copy) = self.client.cut_off()
        {
            return Err(copy.cut_off(word));
        }
        let (is_on_copy, read_only) = self.transaction.bars_changes(self.client);
        if !is_on_copy && !read_only {
            return Ok(());
        }
        let refused = match change_of(kind) {
            Some(Change::OfDatabase(word)) if is_on_copy => {
                refused_change(self.client.follows(), word)
            }
            Some(Change::NotOnCopies(word)) => match self.client.follows() {
                Some(copy) => copy.in_recovery(word),
                None => return Ok(()),
            },
            Some(Change::OfDatabase(word) | Change::OfNode(word))
                if read_only && !self.changes_temporary(kind) =>
            {
                self::read_only(word)
            }
            _ => return Ok(()),
        };
        Err(refused)
    }

    /// Refuses INSERT, UPDATE and DELETE in a read-only transaction, but of what is temporary.
    pub(super) fn admit_dml(self, parsed: &ast::Statement) -> Result<(), SqlError> {
        let Some(word) = word_of_dml(parsed) else {
            return Ok(());
        };
        if let Some(copy) = self.client.cut_off() {
            return Err(copy.cut_off(word));
        }
        match self.transaction.bars_changes(self.client) {
            (true, _) => Err(refused_change(self.client.follows(), word)),
            (_, true) if !self.writes_temporary(parsed) => Err(read_only(word)),
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
        let word = || format!("SELECT {}", shown(mode));
        if let Some(copy) = client.cut_off() {
            return Err(copy.cut_off(&word()));
        }
        match self.bars_changes(client) {
            (true, _) => Err(refused_change(client.follows(), &word())),
            (_, true) => Err(read_only(&word())),
            _ => Ok(()),
        }
    }

    /// Whether nothing can be changed in the transaction at hand.
    pub(super) fn changes_nothing(&self, client: &ClientState) -> bool {
        self.is_on_copy(client) || self.read_only(client) || client.cut_off().is_some()
    }

    /// Whether the transaction is on a copy, and whether it is one that only reads.
    fn bars_changes(&self, client: &ClientState) -> (bool, bool) {
        (self.is_on_copy(client), self.read_only(client))
    }
}

/// The error for changing something in a read-only transaction.
pub(super) fn read_only(word: &str) -> SqlError {
    SqlError::new(
        ErrorKind::ReadOnlyTransaction,
        format!("cannot execute {word} in a read-only transaction"),
    )
}

/// The error for changing something on a copy.
pub(super) fn refused_change(copy: Option<&CopyState>, what: &str) -> SqlError {
    match copy {
        Some(copy) => copy.read_only(what),
        // The node has taken over since the block began.
        None => read_only(what)
            .with_detail("The transaction began while another node took the database's changes.")
            .with_hint("End it, and run the statement again in another."),
    }
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

/// What the statement would change; `None` for one that only reads.
fn change_of(kind: &StatementKind) -> Option<Change> {
    let word = match kind {
        StatementKind::Utility(utility) => match &**utility {
            Utility::Copy(copy) => (copy.direction == CopyDirection::In).then_some("COPY FROM"),
            Utility::Database(_) | Utility::System(_) | Utility::Node(_) => {
                return Some(Change::OfNode(utility.tag()));
            }
            other if defines_in_node(other) => return Some(Change::OfNode(utility.tag())),
            other if is_for_leaders(other) => return Some(Change::NotOnCopies(utility.tag())),
            _ => word_of_definition(kind),
        },
        StatementKind::Sql(parsed) => word_of_dml(parsed).or_else(|| word_of_definition(kind)),
        StatementKind::Empty | StatementKind::Unread => None,
    };
    word.map(Change::OfDatabase)
}

/// Whether PostgreSQL has it in transactions that only read, and not on a hot standby. Locks that exclude
/// whoever changes rows are not for copies, and nobody is heard on them, for NOTIFY is a change.
fn is_for_leaders(utility: &Utility) -> bool {
    match utility {
        Utility::Lock(lock) => lock.mode > LockMode::RowExclusive,
        Utility::Notify(command) => !matches!(command, NotifyCommand::Unlisten(_)),
        // Dead rows, and how rows are kept, are each copy's own.
        Utility::Maintenance(command) => !matches!(
            command,
            MaintenanceCommand::Checkpoint | MaintenanceCommand::Vacuum { .. }
        ),
        _ => false,
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
