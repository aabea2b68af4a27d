//! CREATE INDEX.

use aerostat_types::{ErrorKind, IndexKind, SqlError};
use sqlparser::tokenizer::Token;

use super::tokens::Tokens;
use crate::{names::QualifiedName, storage_parameters::StorageParameter};

/// What CREATE INDEX says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateIndex {
    /// Its name; made of the table's and the columns' if not given.
    pub name: Option<String>,
    /// IF NOT EXISTS.
    pub if_not_exists: bool,
    /// The table.
    pub table: QualifiedName,
    /// UNIQUE.
    pub unique: bool,
    /// NULLS NOT DISTINCT.
    pub nulls_not_distinct: bool,
    /// USING; ordered if not given.
    pub kind: IndexKind,
    /// The columns, the leading one first.
    pub columns: Vec<IndexColumn>,
    /// WITH.
    pub parameters: Vec<StorageParameter>,
}

/// A column of an index. Its direction changes nothing that an index is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexColumn {
    /// Its name.
    pub name: String,
    /// The operator class, if one is named.
    pub operator_class: Option<QualifiedName>,
}

/// What follows the columns.
#[derive(Default)]
struct Options {
    nulls_not_distinct: bool,
    parameters: Vec<StorageParameter>,
}

/// After CREATE INDEX or CREATE UNIQUE INDEX.
pub(super) fn parse_create(tokens: &mut Tokens<'_>, unique: bool) -> Result<CreateIndex, SqlError> {
    tokens.accept(&["CONCURRENTLY"]);
    let if_not_exists = tokens.accept(&["IF", "NOT", "EXISTS"]);
    let name = if tokens.peek_word() == "ON" && !if_not_exists {
        None
    } else {
        Some(tokens.name()?)
    };
    tokens.expect(&["ON"])?;
    tokens.accept(&["ONLY"]);
    let table = tokens.qualified_name()?;
    let kind = if tokens.accept(&["USING"]) {
        method(tokens, unique)?
    } else {
        IndexKind::Ordered
    };
    let mut columns = Vec::new();
    tokens.parenthesized(|tokens| {
        columns.push(column(tokens)?);
        Ok(())
    })?;
    let Options {
        nulls_not_distinct,
        parameters,
    } = options(tokens)?;
    Ok(CreateIndex {
        name,
        if_not_exists,
        table,
        unique,
        nulls_not_distinct,
        kind,
        columns,
        parameters,
    })
}

fn method(tokens: &mut Tokens<'_>, unique: bool) -> Result<IndexKind, SqlError> {
    let name = tokens.name()?;
    match name.as_str() {
        "btree" => Ok(IndexKind::Ordered),
        "hash" if unique => Err(tokens.error_before(
            ErrorKind::FeatureNotSupported,
            "access method \"hash\" does not support unique indexes",
        )),
        "hash" => Ok(IndexKind::Hash),
        "gin" | "gist" | "spgist" | "brin" => Err(tokens
            .error_before(
                ErrorKind::FeatureNotSupported,
                format!("access method \"{name}\" is not supported"),
            )
            .with_hint("There are btree and hash.")),
        _ => Err(tokens.error_before(
            ErrorKind::UndefinedObject,
            format!("access method \"{name}\" does not exist"),
        )),
    }
}

fn column(tokens: &mut Tokens<'_>) -> Result<IndexColumn, SqlError> {
    if tokens.peek() == Some(&Token::LParen) || tokens.is_second(&Token::LParen) {
        return Err(not_supported("indexes on expressions are not supported"));
    }
    let name = tokens.name()?;
    if tokens.accept(&["COLLATE"]) {
        let collation = tokens.qualified_name()?;
        if !matches!(collation.name.as_str(), "C" | "POSIX" | "default") {
            return Err(not_supported("texts are compared by bytes (collation C)"));
        }
    }
    let has_class = !matches!(tokens.peek_word().as_str(), "" | "ASC" | "DESC" | "NULLS");
    let operator_class = has_class.then(|| tokens.qualified_name()).transpose()?;
    tokens.accept_one(&["ASC", "DESC"]);
    if tokens.accept(&["NULLS"]) && tokens.accept_one(&["FIRST", "LAST"]).is_none() {
        return Err(tokens.unexpected());
    }
    Ok(IndexColumn {
        name,
        operator_class,
    })
}

fn options(tokens: &mut Tokens<'_>) -> Result<Options, SqlError> {
    if tokens.accept(&["INCLUDE"]) {
        return Err(not_supported(
            "INCLUDE columns of indexes are not supported",
        ));
    }
    let mut options = Options::default();
    if tokens.accept(&["NULLS"]) {
        options.nulls_not_distinct = tokens.accept(&["NOT"]);
        tokens.expect(&["DISTINCT"])?;
    }
    if tokens.accept(&["WITH"]) {
        options.parameters = tokens.parenthesized(Tokens::storage_parameter)?;
    }
    if tokens.accept(&["WHERE"]) {
        return Err(not_supported("partial indexes are not supported"));
    }
    Ok(options)
}

fn not_supported(message: &str) -> SqlError {
    SqlError::new(ErrorKind::FeatureNotSupported, message)
}
