//! The options of CREATE and ALTER SEQUENCE, which identity columns share.

use aerostat_types::{ErrorKind, SqlError, SqlType};
use sqlparser::tokenizer::Token;

use super::tokens::Tokens;
use crate::{names::QualifiedName, sequence_options::Options};

/// What CREATE or ALTER SEQUENCE says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SequenceOptions {
    /// Its numbers.
    pub numbers: Options,
    /// OWNED BY; `Some(None)` for NONE.
    pub owned_by: Option<Option<OwnerColumn>>,
    /// SEQUENCE NAME, which only an identity column's may have.
    pub name: Option<QualifiedName>,
}

/// The column that a sequence is to belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerColumn {
    /// The table.
    pub table: QualifiedName,
    /// The column.
    pub column: String,
}

/// The options of a new identity column in parentheses, if they stand here, and what its sequence
/// is to be called.
pub(super) fn identity_options(
    tokens: &mut Tokens<'_>,
) -> Result<(Options, Option<QualifiedName>), SqlError> {
    let mut options = SequenceOptions::default();
    if tokens.accept_token(&Token::LParen) {
        while option(tokens, &mut options)? {}
        tokens.expect_token(&Token::RParen)?;
    }
    let name = options.name.take();
    Ok((of_identity(options)?, name))
}

/// A sequence has its name already.
pub(super) fn refuse_name(options: &SequenceOptions) -> Result<(), SqlError> {
    match options.name {
        None => Ok(()),
        Some(_) => Err(SqlError::new(
            ErrorKind::SyntaxError,
            "invalid sequence option SEQUENCE NAME",
        )),
    }
}

/// Options that may be said of an identity column.
pub(super) fn of_identity(options: SequenceOptions) -> Result<Options, SqlError> {
    refuse_name(&options)?;
    let refused = match (&options.numbers.ty, &options.owned_by) {
        (Some(_), _) => "as",
        (_, Some(_)) => "owned_by",
        _ => return Ok(options.numbers),
    };
    Err(SqlError::new(
        ErrorKind::SyntaxError,
        format!("sequence option \"{refused}\" not supported here"),
    ))
}

/// Reads one option, if one stands here.
pub(super) fn option(
    tokens: &mut Tokens<'_>,
    options: &mut SequenceOptions,
) -> Result<bool, SqlError> {
    let word = tokens.peek_word();
    let numbers = &mut options.numbers;
    let is_new = match word.as_str() {
        "AS" => {
            tokens.skip();
            numbers.ty.replace(integer_type(tokens)?).is_none()
        }
        "INCREMENT" => {
            tokens.skip();
            tokens.accept(&["BY"]);
            numbers.increment.replace(number(tokens)?).is_none()
        }
        "MINVALUE" => {
            tokens.skip();
            numbers.min.replace(Some(number(tokens)?)).is_none()
        }
        "MAXVALUE" => {
            tokens.skip();
            numbers.max.replace(Some(number(tokens)?)).is_none()
        }
        "START" => {
            tokens.skip();
            tokens.accept(&["WITH"]);
            numbers.start.replace(number(tokens)?).is_none()
        }
        "RESTART" => {
            tokens.skip();
            let with = tokens.accept(&["WITH"]);
            let is_number = matches!(
                tokens.peek(),
                Some(Token::Number(..) | Token::Minus | Token::Plus)
            );
            let at = match with || is_number {
                true => Some(number(tokens)?),
                false => None,
            };
            numbers.restart.replace(at).is_none()
        }
        "CACHE" => {
            tokens.skip();
            numbers.cache.replace(number(tokens)?).is_none()
        }
        "CYCLE" => {
            tokens.skip();
            numbers.cycles.replace(true).is_none()
        }
        "NO" => {
            tokens.skip();
            match tokens.accept_one(&["MINVALUE", "MAXVALUE", "CYCLE"]) {
                Some("MINVALUE") => numbers.min.replace(None).is_none(),
                Some("MAXVALUE") => numbers.max.replace(None).is_none(),
                Some(_) => numbers.cycles.replace(false).is_none(),
                None => return Err(tokens.unexpected()),
            }
        }
        "SEQUENCE" => {
            tokens.skip();
            tokens.expect(&["NAME"])?;
            options.name.replace(tokens.qualified_name()?).is_none()
        }
        "OWNED" => {
            tokens.skip();
            tokens.expect(&["BY"])?;
            options.owned_by.replace(owner(tokens)?).is_none()
        }
        _ => return Ok(false),
    };
    if is_new {
        return Ok(true);
    }
    Err(SqlError::new(
        ErrorKind::SyntaxError,
        "conflicting or redundant options",
    ))
}

fn owner(tokens: &mut Tokens<'_>) -> Result<Option<OwnerColumn>, SqlError> {
    if tokens.accept(&["NONE"]) {
        return Ok(None);
    }
    let mut parts = vec![tokens.name()?];
    while tokens.accept_token(&Token::Period) {
        parts.push(tokens.label()?);
    }
    match parts.pop() {
        Some(column) if !parts.is_empty() => Ok(Some(OwnerColumn {
            table: QualifiedName::from_parts(parts)?,
            column,
        })),
        _ => Err(
            SqlError::new(ErrorKind::SyntaxError, "invalid OWNED BY option")
                .with_hint("Specify OWNED BY table.column or OWNED BY NONE."),
        ),
    }
}

fn integer_type(tokens: &mut Tokens<'_>) -> Result<SqlType, SqlError> {
    let word = tokens.next_word();
    match word.as_str() {
        "SMALLINT" | "INT2" => Ok(SqlType::SmallInt),
        "INTEGER" | "INT" | "INT4" => Ok(SqlType::Integer),
        "BIGINT" | "INT8" => Ok(SqlType::BigInt),
        "" => Err(tokens.unexpected()),
        _ => Err(SqlError::new(
            ErrorKind::InvalidParameterValue,
            "sequence type must be smallint, integer, or bigint",
        )),
    }
}

fn number(tokens: &mut Tokens<'_>) -> Result<i64, SqlError> {
    let written = tokens.accept_number().ok_or_else(|| tokens.unexpected())?;
    written.parse().map_err(|_| {
        SqlError::new(
            ErrorKind::NumericValueOutOfRange,
            format!("value \"{written}\" is out of range for type bigint"),
        )
    })
}
