//! BEGIN, COMMIT, ROLLBACK, savepoints and transaction modes.

use aerostat_types::{ErrorKind, SqlError};
use sqlparser::tokenizer::Token;

use super::{setting_value::SettingValue, tokens::Tokens};
use crate::names::QualifiedName;

/// A command about the session's transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransactionCommand {
    /// BEGIN or START TRANSACTION.
    Begin {
        /// The modes given.
        modes: TransactionModes,
        /// Whether it was spelt START TRANSACTION, for the tag.
        start: bool,
    },
    /// COMMIT or END.
    Commit {
        /// AND CHAIN: the next transaction begins at once with the same modes.
        chain: bool,
    },
    /// ROLLBACK or ABORT.
    Rollback {
        /// AND CHAIN: the next transaction begins at once with the same modes.
        chain: bool,
    },
    /// SAVEPOINT name.
    Savepoint(String),
    /// RELEASE name.
    Release(String),
    /// ROLLBACK TO name.
    RollbackTo(String),
    /// SET CONSTRAINTS.
    SetConstraints {
        /// Which; `None` for ALL.
        names: Option<Vec<QualifiedName>>,
        /// DEFERRED rather than IMMEDIATE.
        is_deferred: bool,
    },
    /// SET TRANSACTION: the modes of the current transaction.
    SetModes(TransactionModes),
    /// SET SESSION CHARACTERISTICS AS TRANSACTION: the modes of those to come.
    SetDefaults(TransactionModes),
}

impl TransactionCommand {
    /// The command tag that ends the statement.
    pub fn tag(&self) -> &'static str {
        match self {
            TransactionCommand::Begin { start: false, .. } => "BEGIN",
            TransactionCommand::Begin { start: true, .. } => "START TRANSACTION",
            TransactionCommand::Commit { .. } => "COMMIT",
            TransactionCommand::Rollback { .. } | TransactionCommand::RollbackTo(_) => "ROLLBACK",
            TransactionCommand::Savepoint(_) => "SAVEPOINT",
            TransactionCommand::Release(_) => "RELEASE",
            TransactionCommand::SetConstraints { .. } => "SET CONSTRAINTS",
            TransactionCommand::SetModes(_) | TransactionCommand::SetDefaults(_) => "SET",
        }
    }

    /// Whether it is about where transactions begin and end, and so is in none itself.
    pub fn is_control(&self) -> bool {
        !matches!(self, TransactionCommand::SetConstraints { .. })
    }
}

/// Modes of a transaction; `None` where nothing was said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransactionModes {
    /// ISOLATION LEVEL.
    pub isolation: Option<Isolation>,
    /// READ ONLY or READ WRITE.
    pub read_only: Option<bool>,
    /// DEFERRABLE or NOT DEFERRABLE.
    pub deferrable: Option<bool>,
}

/// An isolation level as it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Isolation {
    /// READ UNCOMMITTED, which is READ COMMITTED as in PostgreSQL.
    ReadUncommitted,
    /// READ COMMITTED.
    ReadCommitted,
    /// REPEATABLE READ.
    RepeatableRead,
    /// SERIALIZABLE.
    Serializable,
}

impl Isolation {
    /// The level's name as settings spell it.
    pub fn name(self) -> &'static str {
        match self {
            Isolation::ReadUncommitted => "read uncommitted",
            Isolation::ReadCommitted => "read committed",
            Isolation::RepeatableRead => "repeatable read",
            Isolation::Serializable => "serializable",
        }
    }
}

impl TransactionModes {
    /// The modes that SET of this setting asks for; `None` when the setting is none of a transaction's.
    ///
    /// # Errors
    /// The value is not one of the setting's.
    pub fn of_setting(name: &str, value: &SettingValue) -> Result<Option<Self>, SqlError> {
        let SettingValue::Values(values) = value else {
            return Ok(None);
        };
        let value = values.join(", ").to_ascii_lowercase();
        let mut modes = Self::default();
        match name.to_ascii_lowercase().as_str() {
            "transaction_isolation" => {
                let levels = [
                    Isolation::ReadUncommitted,
                    Isolation::ReadCommitted,
                    Isolation::RepeatableRead,
                    Isolation::Serializable,
                ];
                modes.isolation = levels.into_iter().find(|level| level.name() == value);
            }
            "transaction_read_only" => {
                modes.read_only = match value.as_str() {
                    "on" | "true" | "yes" | "1" => Some(true),
                    "off" | "false" | "no" | "0" => Some(false),
                    _ => None,
                };
            }
            _ => return Ok(None),
        }
        if modes == Self::default() {
            return Err(SqlError::new(
                ErrorKind::InvalidParameterValue,
                format!("invalid value for parameter \"{name}\": \"{value}\""),
            ));
        }
        Ok(Some(modes))
    }
}

pub(super) fn parse(tokens: &mut Tokens<'_>, word: &str) -> Result<TransactionCommand, SqlError> {
    if matches!(word, "COMMIT" | "ROLLBACK") && tokens.accept(&["PREPARED"]) {
        return Err(two_phase());
    }
    Ok(match word {
        "START" => {
            tokens.expect(&["TRANSACTION"])?;
            TransactionCommand::Begin {
                modes: modes(tokens, false)?,
                start: true,
            }
        }
        "BEGIN" => {
            skip_noise(tokens);
            TransactionCommand::Begin {
                modes: modes(tokens, false)?,
                start: false,
            }
        }
        "COMMIT" | "END" => {
            skip_noise(tokens);
            TransactionCommand::Commit {
                chain: chain(tokens)?,
            }
        }
        "SAVEPOINT" => TransactionCommand::Savepoint(tokens.name()?),
        "RELEASE" => {
            tokens.accept(&["SAVEPOINT"]);
            TransactionCommand::Release(tokens.name()?)
        }
        _ => {
            skip_noise(tokens);
            if word == "ROLLBACK" && tokens.accept(&["TO"]) {
                tokens.accept(&["SAVEPOINT"]);
                return Ok(TransactionCommand::RollbackTo(tokens.name()?));
            }
            TransactionCommand::Rollback {
                chain: chain(tokens)?,
            }
        }
    })
}

/// SET CONSTRAINTS, behind these words.
pub(super) fn constraints(tokens: &mut Tokens<'_>) -> Result<TransactionCommand, SqlError> {
    let names = match tokens.accept(&["ALL"]) {
        true => None,
        false => Some(tokens.qualified_names()?),
    };
    let word = tokens.accept_one(&["DEFERRED", "IMMEDIATE"]);
    Ok(TransactionCommand::SetConstraints {
        names,
        is_deferred: word.ok_or_else(|| tokens.unexpected())? == "DEFERRED",
    })
}

/// The error for PREPARE TRANSACTION and its companions.
pub(super) fn two_phase() -> SqlError {
    SqlError::new(
        ErrorKind::FeatureNotSupported,
        "prepared transactions are not supported",
    )
}

fn skip_noise(tokens: &mut Tokens<'_>) {
    tokens.accept_one(&["WORK", "TRANSACTION"]);
}

fn chain(tokens: &mut Tokens<'_>) -> Result<bool, SqlError> {
    if !tokens.accept(&["AND"]) {
        return Ok(false);
    }
    let chain = !tokens.accept(&["NO"]);
    tokens.expect(&["CHAIN"])?;
    Ok(chain)
}

/// Modes with or without commas between them; at least one if `required`.
pub(super) fn modes(tokens: &mut Tokens<'_>, required: bool) -> Result<TransactionModes, SqlError> {
    let mut modes = TransactionModes::default();
    let mut more = required;
    while more || !tokens.at_end() {
        if tokens.accept(&["ISOLATION"]) {
            tokens.expect(&["LEVEL"])?;
            modes.isolation = Some(isolation(tokens)?);
        } else if tokens.accept(&["READ"]) {
            let mode = tokens
                .accept_one(&["ONLY", "WRITE"])
                .ok_or_else(|| tokens.unexpected())?;
            modes.read_only = Some(mode == "ONLY");
        } else if tokens.accept(&["NOT"]) {
            tokens.expect(&["DEFERRABLE"])?;
            modes.deferrable = Some(false);
        } else if tokens.accept(&["DEFERRABLE"]) {
            modes.deferrable = Some(true);
        } else {
            return Err(tokens.unexpected());
        }
        more = tokens.accept_token(&Token::Comma);
    }
    Ok(modes)
}

fn isolation(tokens: &mut Tokens<'_>) -> Result<Isolation, SqlError> {
    if tokens.accept(&["SERIALIZABLE"]) {
        return Ok(Isolation::Serializable);
    }
    if tokens.accept(&["REPEATABLE"]) {
        tokens.expect(&["READ"])?;
        return Ok(Isolation::RepeatableRead);
    }
    tokens.expect(&["READ"])?;
    if tokens.accept(&["UNCOMMITTED"]) {
        return Ok(Isolation::ReadUncommitted);
    }
    tokens.expect(&["COMMITTED"])?;
    Ok(Isolation::ReadCommitted)
}
