//! PREPARE, EXECUTE and DEALLOCATE.

use aerostat_types::{ErrorKind, SqlError};
use sqlparser::{ast::DataType, dialect::PostgreSqlDialect, parser::Parser, tokenizer::Token};

use super::{
    tokens::{Fragment, Tokens},
    transaction,
};

/// The type of a parameter as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrittenType {
    /// The type.
    pub name: DataType,
    /// Where in the statement it begins, as a 1-based count of characters.
    pub position: u32,
}

/// A command about statements prepared by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PreparedCommand {
    /// PREPARE name (types) AS statement.
    Prepare {
        /// The name.
        name: String,
        /// The parameters' types; `None` for one to be inferred (`unknown`). Later ones are inferred too.
        types: Vec<Option<WrittenType>>,
        /// The statement.
        statement: Fragment,
    },
    /// EXECUTE name (arguments).
    Execute {
        /// The name.
        name: String,
        /// Expressions without columns.
        arguments: Vec<Fragment>,
    },
    /// DEALLOCATE name.
    Deallocate(String),
    /// DEALLOCATE ALL.
    DeallocateAll,
}

impl PreparedCommand {
    /// The command tag that ends the statement.
    pub fn tag(&self) -> &'static str {
        match self {
            PreparedCommand::Prepare { .. } => "PREPARE",
            PreparedCommand::Execute { .. } => "EXECUTE",
            PreparedCommand::Deallocate(_) => "DEALLOCATE",
            PreparedCommand::DeallocateAll => "DEALLOCATE ALL",
        }
    }
}

pub(super) fn parse(tokens: &mut Tokens<'_>, word: &str) -> Result<PreparedCommand, SqlError> {
    match word {
        "PREPARE" => prepare(tokens),
        "EXECUTE" => execute(tokens),
        _ => {
            tokens.accept(&["PREPARE"]);
            if tokens.accept(&["ALL"]) {
                return Ok(PreparedCommand::DeallocateAll);
            }
            Ok(PreparedCommand::Deallocate(tokens.name()?))
        }
    }
}

fn prepare(tokens: &mut Tokens<'_>) -> Result<PreparedCommand, SqlError> {
    if tokens.peek_word() == "TRANSACTION" && tokens.peek_second_word().is_empty() {
        return Err(transaction::two_phase());
    }
    let name = tokens.name()?;
    let types = if tokens.peek() == Some(&Token::LParen) {
        tokens.parenthesized(parameter_type)?
    } else {
        Vec::new()
    };
    tokens.expect(&["AS"])?;
    let verb = tokens.peek_word();
    let preparable = [
        "SELECT", "INSERT", "UPDATE", "DELETE", "MERGE", "VALUES", "WITH", "TABLE",
    ];
    if !preparable.contains(&verb.as_str()) && tokens.peek() != Some(&Token::LParen) {
        return Err(tokens.unexpected());
    }
    Ok(PreparedCommand::Prepare {
        name,
        types,
        statement: tokens.rest()?,
    })
}

fn parameter_type(tokens: &mut Tokens<'_>) -> Result<Option<WrittenType>, SqlError> {
    let piece = tokens.until_close(true)?;
    if piece.text.eq_ignore_ascii_case("unknown") {
        return Ok(None);
    }
    let syntax_error = || {
        SqlError::new(
            ErrorKind::SyntaxError,
            format!("syntax error at or near \"{}\"", piece.text),
        )
        .with_position(piece.position)
    };
    let mut parser = Parser::new(&PostgreSqlDialect {})
        .try_with_sql(&piece.text)
        .map_err(|_| syntax_error())?;
    let name = parser.parse_data_type().map_err(|_| syntax_error())?;
    if parser.peek_token().token != Token::EOF {
        return Err(syntax_error());
    }
    Ok(Some(WrittenType {
        name,
        position: piece.position,
    }))
}

fn execute(tokens: &mut Tokens<'_>) -> Result<PreparedCommand, SqlError> {
    let name = tokens.name()?;
    let arguments = if tokens.peek() == Some(&Token::LParen) {
        tokens.parenthesized(|tokens| tokens.until_close(true))?
    } else {
        Vec::new()
    };
    Ok(PreparedCommand::Execute { name, arguments })
}
