//! COMMENT ON.

use aerostat_types::{ErrorKind, SqlError};
use sqlparser::tokenizer::Token;

use super::{role::RoleName, tokens::Tokens, unsupported};
use crate::names::QualifiedName;

/// COMMENT ON an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommentStatement {
    /// What it is about.
    pub target: CommentTarget,
    /// The comment; `None` and the empty text remove it.
    pub text: Option<String>,
}

/// What a comment is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommentTarget {
    /// A table.
    Table(QualifiedName),
    /// A view.
    View(QualifiedName),
    /// A sequence.
    Sequence(QualifiedName),
    /// An index.
    Index(QualifiedName),
    /// A constraint of a table.
    Constraint {
        /// The table.
        table: QualifiedName,
        /// The constraint.
        name: String,
    },
    /// A column of a table or view.
    Column {
        /// The table.
        relation: QualifiedName,
        /// The column.
        column: String,
    },
    /// A schema.
    Schema(String),
    /// A database; for `admin`.
    Database(String),
    /// A role; for `admin`.
    Role(RoleName),
}

pub(super) fn parse(tokens: &mut Tokens<'_>) -> Result<CommentStatement, SqlError> {
    tokens.expect(&["ON"])?;
    let object = tokens.next_word();
    let target = match object.as_str() {
        "TABLE" => CommentTarget::Table(tokens.qualified_name()?),
        "VIEW" => CommentTarget::View(tokens.qualified_name()?),
        "SEQUENCE" => CommentTarget::Sequence(tokens.qualified_name()?),
        "INDEX" => CommentTarget::Index(tokens.qualified_name()?),
        "CONSTRAINT" if tokens.peek_word() != "TRIGGER" => constraint(tokens)?,
        "COLUMN" => column(tokens)?,
        "SCHEMA" => CommentTarget::Schema(tokens.name()?),
        "DATABASE" => CommentTarget::Database(tokens.name()?),
        "ROLE" => CommentTarget::Role(RoleName::parse(tokens)?),
        _ => return Err(unsupported::definition(tokens, &object)),
    };
    tokens.expect(&["IS"])?;
    let text = if tokens.accept(&["NULL"]) {
        None
    } else {
        Some(tokens.string()?)
    };
    Ok(CommentStatement {
        target,
        text: text.filter(|text| !text.is_empty()),
    })
}

fn constraint(tokens: &mut Tokens<'_>) -> Result<CommentTarget, SqlError> {
    let name = tokens.name()?;
    tokens.expect(&["ON"])?;
    if tokens.peek_word() == "DOMAIN" && !tokens.peek_second_word().is_empty() {
        return Err(unsupported::definition(tokens, "DOMAIN"));
    }
    let table = tokens.qualified_name()?;
    Ok(CommentTarget::Constraint { table, name })
}

fn column(tokens: &mut Tokens<'_>) -> Result<CommentTarget, SqlError> {
    let mut parts = vec![tokens.name()?];
    while tokens.accept_token(&Token::Period) {
        parts.push(tokens.label()?);
    }
    match parts.pop() {
        Some(column) if !parts.is_empty() => Ok(CommentTarget::Column {
            relation: QualifiedName::from_parts(parts)?,
            column,
        }),
        _ => Err(tokens.error_before(ErrorKind::SyntaxError, "column name must be qualified")),
    }
}
