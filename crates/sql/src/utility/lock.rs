//! LOCK TABLE.

use aerostat_txn::LockMode;
use aerostat_types::SqlError;
use sqlparser::tokenizer::Token;

use super::tokens::Tokens;
use crate::names::QualifiedName;

/// LOCK TABLE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockStatement {
    /// The tables and views.
    pub tables: Vec<QualifiedName>,
    /// How they are locked.
    pub mode: LockMode,
    /// Whether it is an error when somebody is in the way.
    pub nowait: bool,
}

pub(super) fn parse(tokens: &mut Tokens<'_>) -> Result<LockStatement, SqlError> {
    tokens.accept(&["TABLE"]);
    let tables = tokens.list(|tokens| {
        tokens.accept(&["ONLY"]);
        let name = tokens.qualified_name()?;
        tokens.accept_token(&Token::Mul);
        Ok(name)
    })?;
    let mut mode = LockMode::AccessExclusive;
    if tokens.accept(&["IN"]) {
        mode = mode_of(tokens)?;
        tokens.expect(&["MODE"])?;
    }
    let nowait = tokens.accept(&["NOWAIT"]);
    Ok(LockStatement {
        tables,
        mode,
        nowait,
    })
}

fn mode_of(tokens: &mut Tokens<'_>) -> Result<LockMode, SqlError> {
    for mode in LockMode::ALL {
        let name = mode.to_string();
        let words: Vec<&str> = name.split(' ').collect();
        // SHARE is the beginning of two others.
        let mut ahead = tokens.ahead();
        if ahead.accept(&words) && ahead.peek_word() == "MODE" {
            tokens.accept(&words);
            return Ok(mode);
        }
    }
    Err(tokens.unexpected())
}
