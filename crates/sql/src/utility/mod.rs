//! Statements that are ours from the first token: those that `sqlparser` rejects or mangles, and
//! everything that works on settings, transactions, objects or the node rather than on rows.
//!
//! ```text
//!  text ──► first word ours? ──no──► Ok(None), and sqlparser takes it
//!              │ yes
//!              ▼
//!           tokens ──► Utility            a small enum, one variant per subject
//!                  └─► SyntaxError        PostgreSQL's words, with the position
//!                  └─► FeatureNotSupported  by the feature's name
//! ```
//!
//! | variant | executed by |
//! |---|---|
//! | [`Utility::Transaction`], [`Utility::Setting`], [`Utility::Prepared`], [`Utility::Cursor`], [`Utility::Copy`], [`Utility::Maintenance`], [`Utility::Lock`], [`Utility::Notify`] | the session |
//! | [`Utility::Schema`] | `ddl::execute` |
//! | [`Utility::Database`], [`Utility::Role`], [`Utility::System`], [`Utility::Node`] | `admin::Node` |
//! | [`Utility::Grant`], [`Utility::Comment`] | by their target: `ddl` or `admin` |
//!
//! `CREATE TABLE` and `CREATE VIEW` stay with `sqlparser`, since they contain expressions and
//! queries. Positions count characters of the text given to [`parse`], from 1. Parsing changes
//! nothing and looks nothing up.

mod alter;
mod backup;
mod comment;
mod copy;
mod cursor;
mod database;
mod grant;
mod index;
mod lock;
mod maintenance;
mod node;
mod notify;
mod prepared;
mod role;
mod schema;
mod sequence;
mod setting;
mod setting_value;
mod system;
#[cfg(test)]
mod tests;
mod tokens;
mod transaction;
mod unsupported;

use aerostat_types::SqlError;

pub use alter::TableAction;
pub use backup::{BackupCommand, RestorePoint};
pub use comment::{CommentStatement, CommentTarget};
pub use copy::{CopyDirection, CopyStatement, CopySubject, ForceNames};
pub use cursor::{CursorCommand, Direction};
pub use database::{
    CPU_WEIGHT_DEFAULT, CPU_WEIGHT_MAX, DatabaseChange, DatabaseCommand, DatabaseOptions,
    MEMORY_WEIGHT_DEFAULT, MEMORY_WEIGHT_MAX, read_time_ms,
};
pub use grant::{DatabasePrivilege, GrantStatement, GrantTarget, Grantee};
pub use grant::{RELATION_ALL, SEQUENCE_ALL};
pub use index::{CreateIndex, IndexColumn};
pub use lock::LockStatement;
pub use maintenance::{MaintenanceCommand, ReindexTarget, TableColumns};
pub use node::NodeCommand;
pub use notify::NotifyCommand;
pub use prepared::{PreparedCommand, WrittenType};
pub use role::{Password, RoleCommand, RoleName, RoleOptions};
pub use schema::{DropKind, RelationChange, SchemaCommand, SchemaObject, TableParameters};
pub use sequence::{OwnerColumn, SequenceOptions};
pub use setting::{DiscardTarget, SettingCommand, SettingScope};
pub use setting_value::SettingValue;
pub use system::SystemCommand;
pub use tokens::Fragment;
pub use transaction::{Isolation, TransactionCommand, TransactionModes};

use tokens::Tokens;

/// A statement that needs no `sqlparser`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Utility {
    /// BEGIN, COMMIT, ROLLBACK, savepoints, SET TRANSACTION.
    Transaction(TransactionCommand),
    /// SET, RESET, SHOW, DISCARD.
    Setting(SettingCommand),
    /// PREPARE, EXECUTE, DEALLOCATE.
    Prepared(PreparedCommand),
    /// DECLARE, FETCH, MOVE, CLOSE.
    Cursor(CursorCommand),
    /// COPY.
    Copy(CopyStatement),
    /// CREATE SCHEMA and SEQUENCE, TRUNCATE, and DROP or ALTER of tables, views, schemas and
    /// sequences.
    Schema(SchemaCommand),
    /// CREATE, ALTER and DROP DATABASE.
    Database(DatabaseCommand),
    /// ALTER SYSTEM.
    System(SystemCommand),
    /// ALTER and DROP NODE.
    Node(NodeCommand),
    /// CREATE, ALTER and DROP ROLE, USER or GROUP.
    Role(RoleCommand),
    /// GRANT and REVOKE.
    Grant(GrantStatement),
    /// COMMENT ON.
    Comment(CommentStatement),
    /// VACUUM, ANALYZE, CHECKPOINT, REINDEX.
    Maintenance(MaintenanceCommand),
    /// BACKUP and RESTORE.
    Backup(BackupCommand),
    /// LOCK TABLE.
    Lock(LockStatement),
    /// LISTEN, UNLISTEN, NOTIFY.
    Notify(NotifyCommand),
}

impl Utility {
    /// The command tag that ends the statement. COPY, SHOW and EXECUTE end with their own.
    pub fn tag(&self) -> &'static str {
        match self {
            Utility::Transaction(command) => command.tag(),
            Utility::Setting(command) => command.tag(),
            Utility::Prepared(command) => command.tag(),
            Utility::Cursor(command) => command.tag(),
            Utility::Copy(_) => "COPY",
            Utility::Schema(command) => command.tag(),
            Utility::Database(command) => command.tag(),
            Utility::System(_) => "ALTER SYSTEM",
            Utility::Node(command) => command.tag(),
            Utility::Role(command) => command.tag(),
            Utility::Grant(statement) => statement.tag(),
            Utility::Comment(_) => "COMMENT",
            Utility::Maintenance(command) => command.tag(),
            Utility::Backup(command) => command.tag(),
            Utility::Lock(_) => "LOCK TABLE",
            Utility::Notify(command) => command.tag(),
        }
    }

    /// Whether it defines something in the database at hand, as a part of the transaction:
    /// not roles and databases, which are the node's.
    pub fn defines_in_database(&self) -> bool {
        match self {
            Utility::Schema(_) => true,
            Utility::Grant(grant) => !matches!(
                grant.target,
                GrantTarget::Databases { .. } | GrantTarget::Memberships(_)
            ),
            Utility::Comment(comment) => !matches!(
                comment.target,
                CommentTarget::Database(_) | CommentTarget::Role(_)
            ),
            _ => false,
        }
    }

    /// Whether PostgreSQL refuses the statement inside a transaction block:
    /// `{tag} cannot run inside a transaction block` (`ActiveTransaction`).
    pub fn runs_outside_blocks(&self) -> bool {
        match self {
            Utility::Database(_) | Utility::System(_) | Utility::Node(_) | Utility::Backup(_) => {
                true
            }
            Utility::Maintenance(command) => matches!(command, MaintenanceCommand::Vacuum { .. }),
            Utility::Setting(SettingCommand::Discard(target)) => *target == DiscardTarget::All,
            _ => false,
        }
    }
}

/// Parses one statement, without its semicolon or with it. `None` when its
/// leading words are not ours, so that `sqlparser` takes it.
///
/// # Errors
/// `SyntaxError` in PostgreSQL's words with a position; `FeatureNotSupported`
/// by name for statements PostgreSQL has and Aerostat has not;
/// `InvalidParameterValue` for options that cannot be met.
pub fn parse(text: &str) -> Result<Option<Utility>, SqlError> {
    let first = tokens::first_word(text);
    if !LEADING_WORDS
        .iter()
        .any(|word| first.eq_ignore_ascii_case(word))
    {
        return Ok(None);
    }
    let mut tokens = Tokens::new(text)?;
    let Some(utility) = statement(&mut tokens)? else {
        return Ok(None);
    };
    tokens.end()?;
    Ok(Some(utility))
}

/// Words that may begin a statement of ours. Others cost one comparison each.
const LEADING_WORDS: [&str; 46] = [
    "ABORT",
    "ALTER",
    "ANALYSE",
    "ANALYZE",
    "BACKUP",
    "BEGIN",
    "CALL",
    "CHECKPOINT",
    "CLOSE",
    "CLUSTER",
    "COMMENT",
    "COMMIT",
    "COPY",
    "CREATE",
    "DEALLOCATE",
    "DECLARE",
    "DISCARD",
    "DO",
    "DROP",
    "END",
    "EXECUTE",
    "FETCH",
    "GRANT",
    "IMPORT",
    "LISTEN",
    "LOAD",
    "LOCK",
    "MOVE",
    "NOTIFY",
    "PREPARE",
    "REASSIGN",
    "REFRESH",
    "REINDEX",
    "RELEASE",
    "RESET",
    "RESTORE",
    "REVOKE",
    "ROLLBACK",
    "SAVEPOINT",
    "SECURITY",
    "SET",
    "SHOW",
    "START",
    "TRUNCATE",
    "UNLISTEN",
    "VACUUM",
];

fn statement(tokens: &mut Tokens<'_>) -> Result<Option<Utility>, SqlError> {
    let word = tokens.next_word();
    Ok(Some(match word.as_str() {
        "ABORT" | "BEGIN" | "COMMIT" | "END" | "RELEASE" | "ROLLBACK" | "SAVEPOINT" | "START" => {
            Utility::Transaction(transaction::parse(tokens, &word)?)
        }
        "SET" => setting::parse_set(tokens)?,
        "SHOW" => Utility::Setting(setting::parse_show(tokens)?),
        "RESET" => Utility::Setting(setting::parse_reset(tokens)?),
        "DISCARD" => Utility::Setting(setting::parse_discard(tokens)?),
        "PREPARE" | "EXECUTE" | "DEALLOCATE" => Utility::Prepared(prepared::parse(tokens, &word)?),
        "DECLARE" | "FETCH" | "MOVE" | "CLOSE" => Utility::Cursor(cursor::parse(tokens, &word)?),
        "COPY" => Utility::Copy(copy::parse(tokens)?),
        "GRANT" => Utility::Grant(grant::parse_grant(tokens)?),
        "REVOKE" => Utility::Grant(grant::parse_revoke(tokens)?),
        "COMMENT" => Utility::Comment(comment::parse(tokens)?),
        "LOCK" => Utility::Lock(lock::parse(tokens)?),
        "LISTEN" | "NOTIFY" | "UNLISTEN" => Utility::Notify(notify::parse(tokens, &word)?),
        "TRUNCATE" => Utility::Schema(schema::parse_truncate(tokens)?),
        "ANALYSE" | "ANALYZE" | "CHECKPOINT" | "REINDEX" | "VACUUM" => {
            Utility::Maintenance(maintenance::parse(tokens, &word)?)
        }
        "BACKUP" | "RESTORE" => Utility::Backup(backup::parse(tokens, &word)?),
        "CREATE" | "ALTER" | "DROP" => return definition(tokens, &word),
        _ => return Err(unsupported::statement(tokens, &word)),
    }))
}

/// CREATE, ALTER and DROP, by the kind of object.
fn definition(tokens: &mut Tokens<'_>, verb: &str) -> Result<Option<Utility>, SqlError> {
    let object = tokens.next_word();
    Ok(Some(match (verb, object.as_str()) {
        ("CREATE", "TEMP" | "TEMPORARY" | "GLOBAL" | "LOCAL") => {
            let is_said = matches!(&*object, "TEMP" | "TEMPORARY");
            if !is_said && tokens.accept_one(&["TEMP", "TEMPORARY"]).is_none() {
                return Err(tokens.unexpected());
            }
            if !tokens.accept(&["SEQUENCE"]) {
                return unsupported::creation(tokens, "TEMPORARY").map_or(Ok(None), Err);
            }
            Utility::Schema(schema::parse_create_sequence(tokens, true)?)
        }
        ("CREATE", "TABLE" | "VIEW" | "OR") => {
            return unsupported::creation(tokens, &object).map_or(Ok(None), Err);
        }
        ("CREATE", "DATABASE") => Utility::Database(database::parse_create(tokens)?),
        ("ALTER", "DATABASE") => Utility::Database(database::parse_alter(tokens)?),
        ("DROP", "DATABASE") => Utility::Database(database::parse_drop(tokens)?),
        ("ALTER", "SYSTEM") => Utility::System(system::parse_alter(tokens)?),
        ("ALTER", "NODE") => Utility::Node(node::parse_alter(tokens)?),
        ("DROP", "NODE") => Utility::Node(node::parse_drop(tokens)?),
        (_, "ROLE" | "USER" | "GROUP") => match role::parse(tokens, verb, &object)? {
            Some(command) => Utility::Role(command),
            None => return Err(unsupported::definition(tokens, "USER")),
        },
        ("CREATE", "INDEX") => Utility::Schema(SchemaCommand::CreateIndex(index::parse_create(
            tokens, false,
        )?)),
        ("CREATE", "UNIQUE") => {
            tokens.expect(&["INDEX"])?;
            Utility::Schema(SchemaCommand::CreateIndex(index::parse_create(
                tokens, true,
            )?))
        }
        ("CREATE", "SEQUENCE") => Utility::Schema(schema::parse_create_sequence(tokens, false)?),
        ("ALTER", "SEQUENCE") => Utility::Schema(schema::parse_alter_sequence(tokens)?),
        ("ALTER", "INDEX") => Utility::Schema(schema::parse_alter_index(tokens)?),
        ("DROP", "INDEX") => Utility::Schema(schema::parse_drop_index(tokens)?),
        ("CREATE", "SCHEMA") => Utility::Schema(schema::parse_create(tokens)?),
        ("ALTER", "TABLE" | "VIEW" | "SCHEMA") => {
            Utility::Schema(schema::parse_alter(tokens, &object)?)
        }
        ("DROP", "TABLE" | "VIEW" | "SCHEMA" | "SEQUENCE") => {
            Utility::Schema(schema::parse_drop(tokens, &object)?)
        }
        _ => return Err(unsupported::definition(tokens, &object)),
    }))
}
