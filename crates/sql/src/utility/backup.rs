//! BACKUP and RESTORE.
//!
//! ```text
//! BACKUP DATABASE name TO 'place' [INCREMENTAL FROM 'place']
//! RESTORE DATABASE name FROM 'place' [LOG 'place' [, …]] [UNTIL {'timestamp' | COMMIT n}]
//! ```
//!
//! A place is an absolute path or the URL of a prefix in an object store.

use aerostat_types::{ErrorKind, SqlError};

use super::tokens::Tokens;

/// A command about a backup. Folders are those of the server's machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackupCommand {
    /// BACKUP DATABASE.
    Backup {
        /// The database.
        database: String,
        /// Where to.
        to: String,
        /// INCREMENTAL FROM: an earlier backup, whose files are not copied again.
        base: Option<String>,
    },
    /// RESTORE DATABASE: makes a new database of a backup.
    Restore {
        /// The new database's name.
        database: String,
        /// The backup.
        from: String,
        /// LOG: where the log after it is.
        logs: Vec<String>,
        /// How far to go.
        until: Option<RestorePoint>,
    },
}

/// How far a restore goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RestorePoint {
    /// The last commit that counts.
    Commit(u64),
    /// The last moment that counts, as a text of `timestamptz`.
    Time(String),
}

impl BackupCommand {
    /// The command tag that ends the statement.
    pub fn tag(&self) -> &'static str {
        match self {
            BackupCommand::Backup { .. } => "BACKUP",
            BackupCommand::Restore { .. } => "RESTORE",
        }
    }
}

pub(super) fn parse(tokens: &mut Tokens<'_>, word: &str) -> Result<BackupCommand, SqlError> {
    tokens.expect(&["DATABASE"])?;
    let database = tokens.name()?;
    if word == "BACKUP" {
        tokens.expect(&["TO"])?;
        let to = tokens.string()?;
        let base = if tokens.accept(&["INCREMENTAL"]) {
            tokens.expect(&["FROM"])?;
            Some(tokens.string()?)
        } else {
            None
        };
        return Ok(BackupCommand::Backup { database, to, base });
    }
    tokens.expect(&["FROM"])?;
    let from = tokens.string()?;
    let logs = if tokens.accept(&["LOG"]) {
        tokens.list(Tokens::string)?
    } else {
        Vec::new()
    };
    let until = if !tokens.accept(&["UNTIL"]) {
        None
    } else if tokens.accept(&["COMMIT"]) {
        Some(RestorePoint::Commit(commit(tokens)?))
    } else {
        Some(RestorePoint::Time(tokens.string()?))
    };
    Ok(BackupCommand::Restore {
        database,
        from,
        logs,
        until,
    })
}

fn commit(tokens: &mut Tokens<'_>) -> Result<u64, SqlError> {
    let text = tokens.accept_number().ok_or_else(|| tokens.unexpected())?;
    text.parse().map_err(|_| {
        tokens.error_before(
            ErrorKind::InvalidParameterValue,
            format!("\"{text}\" is no number of a commit"),
        )
    })
}
