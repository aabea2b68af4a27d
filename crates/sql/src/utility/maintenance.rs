//! VACUUM, ANALYZE, CHECKPOINT and REINDEX.
//!
//! VACUUM frees the memory of dead rows, and with FREEZE encodes the tables' segments; CHECKPOINT
//! writes a checkpoint. The others have nothing to do here: statistics and indexes are maintained
//! with every write. They are accepted because tools send them, their names are checked, and a
//! notice says so.

use aerostat_types::{ErrorKind, SqlError};
use sqlparser::tokenizer::Token;

use super::tokens::Tokens;
use crate::{names::QualifiedName, storage_parameters::is_boolean};

/// A command about upkeep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MaintenanceCommand {
    /// VACUUM, with or without ANALYZE; no tables means all.
    Vacuum {
        /// The tables.
        tables: Vec<TableColumns>,
        /// Whether to freeze what can be frozen.
        freeze: bool,
    },
    /// ANALYZE; no tables means all.
    Analyze {
        /// The tables.
        tables: Vec<TableColumns>,
    },
    /// CHECKPOINT.
    Checkpoint,
    /// REINDEX.
    Reindex(ReindexTarget),
}

/// A table, and those of its columns that are to be analyzed; none means all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableColumns {
    /// The table.
    pub table: QualifiedName,
    /// The columns.
    pub columns: Vec<String>,
}

/// Whose indexes REINDEX is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReindexTarget {
    /// One index.
    Index(QualifiedName),
    /// Those of a table.
    Table(QualifiedName),
    /// Those of a schema's tables.
    Schema(String),
    /// Those of the database at hand, which may be named, or of its system relations.
    Database(Option<String>),
}

impl MaintenanceCommand {
    /// The command tag that ends the statement.
    pub fn tag(&self) -> &'static str {
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
            let (freeze, analyze) = match options(tokens, "VACUUM", &VACUUM_OPTIONS)? {
                Some(on) => {
                    let is_on = |wanted: &str| on.iter().any(|name| name == wanted);
                    (is_on("freeze"), is_on("analyze") || is_on("analyse"))
                }
                None => {
                    tokens.accept(&["FULL"]);
                    let freeze = tokens.accept(&["FREEZE"]);
                    tokens.accept(&["VERBOSE"]);
                    let analyze = tokens.accept_one(&["ANALYZE", "ANALYSE"]);
                    (freeze, analyze.is_some())
                }
            };
            let tables = tables(tokens)?;
            if !analyze && tables.iter().any(|table| !table.columns.is_empty()) {
                return Err(SqlError::new(
                    ErrorKind::FeatureNotSupported,
                    "ANALYZE option must be specified when a column list is provided",
                ));
            }
            Ok(MaintenanceCommand::Vacuum { tables, freeze })
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
    Ok(MaintenanceCommand::Reindex(match object {
        "INDEX" => ReindexTarget::Index(tokens.qualified_name()?),
        "TABLE" => ReindexTarget::Table(tokens.qualified_name()?),
        "SCHEMA" => ReindexTarget::Schema(tokens.name()?),
        _ if tokens.at_end() => ReindexTarget::Database(None),
        _ => ReindexTarget::Database(Some(tokens.name()?)),
    }))
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
        if !value.is_empty() {
            check_value(&name, &value)?;
        }
        if !matches!(
            value.to_ascii_lowercase().as_str(),
            "off" | "false" | "no" | "0"
        ) {
            on.push(name);
        }
        Ok(())
    })?;
    Ok(Some(on))
}

/// Options that do nothing here are checked as those that do: a slip is an error.
fn check_value(name: &str, value: &str) -> Result<(), SqlError> {
    let (is_right, kind) = match name {
        "parallel" => (
            value.parse::<u16>().is_ok_and(|count| count <= 1_024),
            "a number of workers",
        ),
        "tablespace" | "buffer_usage_limit" => (true, "a text"),
        "index_cleanup" if value.eq_ignore_ascii_case("auto") => (true, "a Boolean value"),
        _ => (is_boolean(value), "a Boolean value"),
    };
    match is_right {
        true => Ok(()),
        false => Err(SqlError::new(
            ErrorKind::SyntaxError,
            format!("{name} requires {kind}"),
        )),
    }
}

/// Tables with or without lists of columns.
fn tables(tokens: &mut Tokens<'_>) -> Result<Vec<TableColumns>, SqlError> {
    if tokens.at_end() {
        return Ok(Vec::new());
    }
    tokens.list(|tokens| {
        let table = tokens.qualified_name()?;
        let columns = match tokens.peek() {
            Some(Token::LParen) => tokens.parenthesized(Tokens::name)?,
            _ => Vec::new(),
        };
        Ok(TableColumns { table, columns })
    })
}
