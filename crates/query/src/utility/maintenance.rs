//! VACUUM, ANALYZE, CHECKPOINT and REINDEX.
//!
//! VACUUM gives memory of dead rows back, and with FREEZE encodes the tables'
//! segments; CHECKPOINT writes a snapshot. The others have nothing to do here:
//! statistics and the key index are kept with every write. They are accepted,
//! with their tables checked, because tools send them.

use aerostat_types::{ErrorKind, SqlError};
use datafusion::sql::sqlparser::tokenizer::Token;

use super::tokens::Tokens;
use crate::ddl::QualifiedName;

/// A command about upkeep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MaintenanceCommand {
    /// VACUUM, with or without ANALYZE; no tables means all.
    Vacuum {
        /// The tables.
        tables: Vec<QualifiedName>,
        /// Whether to freeze what can be frozen.
        freeze: bool,
    },
    /// ANALYZE; no tables means all.
    Analyze {
        /// The tables.
        tables: Vec<QualifiedName>,
    },
    /// CHECKPOINT.
    Checkpoint,
    /// REINDEX of a table; `None` for a schema's, a database's or an index by name.
    Reindex(Option<QualifiedName>),
}

impl MaintenanceCommand {
    pub(super) fn tag(&self) -> &'static str {
        match self {
            MaintenanceCommand::Vacuum { .. } => "VACUUM",
            MaintenanceCommand::Analyze { .. } => "ANALYZE",
            MaintenanceCommand::Checkpoint => "CHECKPOINT",
            MaintenanceCommand::Reindex(_) => "REINDEX",
        }
    }
}

const VACUUM_OPTIONS: [&str; 12] = [
    "full",
    "freeze",
    "verbose",
    "analyze",
    "disable_page_skipping",
    "skip_locked",
    "index_cleanup",
    "process_main",
    "process_toast",
    "truncate",
    "parallel",
    "skip_database_stats",
];
const ANALYZE_OPTIONS: [&str; 3] = ["verbose", "skip_locked", "buffer_usage_limit"];
const REINDEX_OPTIONS: [&str; 3] = ["verbose", "concurrently", "tablespace"];

pub(super) fn parse(tokens: &mut Tokens<'_>, word: &str) -> Result<MaintenanceCommand, SqlError> {
    match word {
        "CHECKPOINT" => Ok(MaintenanceCommand::Checkpoint),
        "REINDEX" => reindex(tokens),
        "VACUUM" => {
            let freeze = match options(tokens, "VACUUM", &VACUUM_OPTIONS)? {
                Some(on) => on.iter().any(|name| name == "freeze"),
                None => {
                    tokens.accept(&["FULL"]);
                    let freeze = tokens.accept(&["FREEZE"]);
                    tokens.accept(&["VERBOSE"]);
                    tokens.accept_one(&["ANALYZE", "ANALYSE"]);
                    freeze
                }
            };
            Ok(MaintenanceCommand::Vacuum {
                tables: tables(tokens)?,
                freeze,
            })
        }
        _ => {
            if options(tokens, "ANALYZE", &ANALYZE_OPTIONS)?.is_none() {
                tokens.accept(&["VERBOSE"]);
            }
            Ok(MaintenanceCommand::Analyze {
                tables: tables(tokens)?,
            })
        }
    }
}

fn reindex(tokens: &mut Tokens<'_>) -> Result<MaintenanceCommand, SqlError> {
    options(tokens, "REINDEX", &REINDEX_OPTIONS)?;
    let object = tokens
        .accept_one(&["INDEX", "TABLE", "SCHEMA", "DATABASE", "SYSTEM"])
        .ok_or_else(|| tokens.unexpected())?;
    tokens.accept(&["CONCURRENTLY"]);
    if matches!(object, "DATABASE" | "SYSTEM") && tokens.at_end() {
        return Ok(MaintenanceCommand::Reindex(None));
    }
    let name = tokens.qualified_name()?;
    Ok(MaintenanceCommand::Reindex(
        (object == "TABLE").then_some(name),
    ))
}

/// `(option [value], …)`, if it is there: the names of the options that are on.
fn options(
    tokens: &mut Tokens<'_>,
    command: &str,
    known: &[&str],
) -> Result<Option<Vec<String>>, SqlError> {
    if tokens.peek() != Some(&Token::LParen) {
        return Ok(None);
    }
    let mut on = Vec::new();
    tokens.parenthesized(|tokens| {
        let name = tokens.label()?;
        if !known.contains(&name.as_str()) && name != "analyse" {
            let message = format!("unrecognized {command} option \"{name}\"");
            return Err(tokens.error_before(ErrorKind::SyntaxError, message));
        }
        let value = match tokens.peek() {
            Some(Token::Comma | Token::RParen) => String::new(),
            _ => match tokens.accept_string().or_else(|| tokens.accept_number()) {
                Some(value) => value,
                None => tokens.label()?,
            },
        };
        if !matches!(value.to_ascii_lowercase().as_str(), "off" | "false" | "0") {
            on.push(name);
        }
        Ok(())
    })?;
    Ok(Some(on))
}

/// Tables with or without lists of columns.
fn tables(tokens: &mut Tokens<'_>) -> Result<Vec<QualifiedName>, SqlError> {
    if tokens.at_end() {
        return Ok(Vec::new());
    }
    tokens.list(|tokens| {
        let name = tokens.qualified_name()?;
        if tokens.peek() == Some(&Token::LParen) {
            tokens.parenthesized(Tokens::name)?;
        }
        Ok(name)
    })
}
