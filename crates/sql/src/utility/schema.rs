//! CREATE SCHEMA and SEQUENCE, TRUNCATE, DROP of tables, views, schemas, indexes and sequences, and
//! ALTER of them.

use aerostat_types::{ErrorKind, SqlError};
use sqlparser::tokenizer::Token;

use super::{
    alter::{self, TableAction},
    index::CreateIndex,
    role::RoleName,
    sequence::{SequenceOptions, option, refuse_name},
    tokens::Tokens,
};
use crate::{names::QualifiedName, storage_parameters::StorageParameter};

/// A command about a database's tables, views, schemas and sequences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemaCommand {
    /// CREATE SCHEMA.
    CreateSchema {
        /// Its name; that of its owner if not given.
        name: Option<String>,
        /// AUTHORIZATION; who makes it if not given.
        owner: Option<RoleName>,
        /// IF NOT EXISTS.
        if_not_exists: bool,
    },
    /// TRUNCATE.
    Truncate {
        /// The tables.
        tables: Vec<QualifiedName>,
        /// RESTART IDENTITY.
        restarts_identity: bool,
        /// CASCADE.
        cascade: bool,
    },
    /// CREATE SEQUENCE.
    CreateSequence {
        /// Its name.
        name: QualifiedName,
        /// IF NOT EXISTS.
        if_not_exists: bool,
        /// What it is to be.
        options: SequenceOptions,
        /// TEMPORARY.
        is_temporary: bool,
    },
    /// ALTER SEQUENCE, but for its name, owner and schema.
    AlterSequence {
        /// Which.
        name: QualifiedName,
        /// IF EXISTS.
        if_exists: bool,
        /// What it is to be.
        options: SequenceOptions,
    },
    /// DROP TABLE, VIEW, SCHEMA or SEQUENCE.
    Drop {
        /// What is dropped.
        kind: DropKind,
        /// IF EXISTS.
        if_exists: bool,
        /// CASCADE rather than RESTRICT.
        cascade: bool,
        /// Which; a schema's name is in `name`.
        names: Vec<QualifiedName>,
    },
    /// CREATE INDEX.
    CreateIndex(CreateIndex),
    /// DROP INDEX.
    DropIndex {
        /// Which.
        names: Vec<QualifiedName>,
        /// IF EXISTS.
        if_exists: bool,
    },
    /// ALTER TABLE, VIEW, SCHEMA or SEQUENCE.
    Alter {
        /// What is altered.
        object: SchemaObject,
        /// IF EXISTS.
        if_exists: bool,
        /// Which; a schema's name is in `name`.
        name: QualifiedName,
        /// How.
        change: RelationChange,
    },
}

impl SchemaCommand {
    /// Whether columns or constraints of a table are to change.
    pub fn alters_table(&self) -> bool {
        matches!(
            self,
            SchemaCommand::Alter {
                change: RelationChange::Actions(_),
                ..
            }
        )
    }

    /// The command tag that ends the statement.
    pub fn tag(&self) -> &'static str {
        match self {
            SchemaCommand::CreateSchema { .. } => "CREATE SCHEMA",
            SchemaCommand::Truncate { .. } => "TRUNCATE TABLE",
            SchemaCommand::CreateSequence { .. } => "CREATE SEQUENCE",
            SchemaCommand::AlterSequence { .. } => "ALTER SEQUENCE",
            SchemaCommand::CreateIndex(_) => "CREATE INDEX",
            SchemaCommand::DropIndex { .. } => "DROP INDEX",
            SchemaCommand::Drop { kind, .. } => match kind {
                SchemaObject::Table => "DROP TABLE",
                SchemaObject::View => "DROP VIEW",
                SchemaObject::Schema => "DROP SCHEMA",
                SchemaObject::Index => "DROP INDEX",
                SchemaObject::Sequence => "DROP SEQUENCE",
            },
            SchemaCommand::Alter { object, .. } => match object {
                SchemaObject::Table => "ALTER TABLE",
                SchemaObject::View => "ALTER VIEW",
                SchemaObject::Schema => "ALTER SCHEMA",
                SchemaObject::Index => "ALTER INDEX",
                SchemaObject::Sequence => "ALTER SEQUENCE",
            },
        }
    }
}

/// A kind of object in a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaObject {
    /// A table.
    Table,
    /// A view.
    View,
    /// A schema.
    Schema,
    /// An index, for ALTER alone.
    Index,
    /// A sequence.
    Sequence,
}

/// What DROP drops.
pub type DropKind = SchemaObject;

impl SchemaObject {
    /// The word in messages.
    pub fn word(self) -> &'static str {
        match self {
            SchemaObject::Table => "table",
            SchemaObject::View => "view",
            SchemaObject::Schema => "schema",
            SchemaObject::Index => "index",
            SchemaObject::Sequence => "sequence",
        }
    }
}

/// How ALTER changes an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RelationChange {
    /// RENAME TO.
    Rename(String),
    /// RENAME COLUMN.
    RenameColumn {
        /// Its name now.
        from: String,
        /// Its name to come.
        to: String,
    },
    /// RENAME CONSTRAINT, of a table.
    RenameConstraint {
        /// Its name now.
        from: String,
        /// Its name to come.
        to: String,
    },
    /// OWNER TO.
    Owner(RoleName),
    /// SET SCHEMA.
    SetSchema(String),
    /// SET or RESET of storage parameters, of a table.
    Parameters(TableParameters),
    /// Actions on the columns and constraints of a table, in the order given.
    Actions(Vec<TableAction>),
}

/// What SET or RESET says of a table's storage parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableParameters {
    /// The layout: `None` if it is not mentioned, `Some(None)` for RESET.
    pub layout: Option<Option<String>>,
    /// Whether they are RESET.
    pub reset: bool,
    /// The other parameters.
    pub others: Vec<StorageParameter>,
}

pub(super) fn parse_create(tokens: &mut Tokens<'_>) -> Result<SchemaCommand, SqlError> {
    let if_not_exists = tokens.accept(&["IF", "NOT", "EXISTS"]);
    let name = if tokens.peek_word() == "AUTHORIZATION" {
        None
    } else {
        Some(tokens.name()?)
    };
    let owner = if tokens.accept(&["AUTHORIZATION"]) {
        Some(RoleName::parse(tokens)?)
    } else {
        None
    };
    if name.is_none() && owner.is_none() {
        return Err(tokens.unexpected());
    }
    if matches!(tokens.peek_word().as_str(), "CREATE" | "GRANT") {
        return Err(SqlError::new(
            ErrorKind::FeatureNotSupported,
            "CREATE SCHEMA with schema elements is not supported",
        )
        .with_hint("Create the schema first, then its objects."));
    }
    Ok(SchemaCommand::CreateSchema {
        name,
        owner,
        if_not_exists,
    })
}

pub(super) fn parse_truncate(tokens: &mut Tokens<'_>) -> Result<SchemaCommand, SqlError> {
    tokens.accept(&["TABLE"]);
    let tables = tokens.list(|tokens| {
        tokens.accept(&["ONLY"]);
        let name = tokens.qualified_name()?;
        tokens.accept_token(&Token::Mul);
        Ok(name)
    })?;
    let identity = tokens.accept_one(&["RESTART", "CONTINUE"]);
    if identity.is_some() {
        tokens.expect(&["IDENTITY"])?;
    }
    let behaviour = tokens.accept_one(&["CASCADE", "RESTRICT"]);
    Ok(SchemaCommand::Truncate {
        tables,
        restarts_identity: identity == Some("RESTART"),
        cascade: behaviour == Some("CASCADE"),
    })
}

fn object(word: &str) -> SchemaObject {
    match word {
        "TABLE" => SchemaObject::Table,
        "VIEW" => SchemaObject::View,
        "SEQUENCE" => SchemaObject::Sequence,
        _ => SchemaObject::Schema,
    }
}

fn object_name(tokens: &mut Tokens<'_>, object: SchemaObject) -> Result<QualifiedName, SqlError> {
    if object == SchemaObject::Schema {
        return Ok(QualifiedName {
            database: None,
            schema: None,
            name: tokens.name()?,
        });
    }
    tokens.qualified_name()
}

pub(super) fn parse_drop(tokens: &mut Tokens<'_>, word: &str) -> Result<SchemaCommand, SqlError> {
    let kind = object(word);
    let if_exists = tokens.accept(&["IF", "EXISTS"]);
    let names = tokens.list(|tokens| object_name(tokens, kind))?;
    let cascade = tokens.accept_one(&["CASCADE", "RESTRICT"]) == Some("CASCADE");
    Ok(SchemaCommand::Drop {
        kind,
        if_exists,
        cascade,
        names,
    })
}

/// After ALTER INDEX.
pub(super) fn parse_alter_index(tokens: &mut Tokens<'_>) -> Result<SchemaCommand, SqlError> {
    let if_exists = tokens.accept(&["IF", "EXISTS"]);
    let name = tokens.qualified_name()?;
    if !tokens.accept(&["RENAME"]) {
        let action = tokens.next_word();
        return Err(match action.as_str() {
            "SET" | "RESET" | "ATTACH" | "ALTER" | "DEPENDS" | "NO" => {
                not_supported("INDEX", &action)
            }
            _ => tokens.unexpected_before(&action),
        });
    }
    tokens.expect(&["TO"])?;
    Ok(SchemaCommand::Alter {
        object: SchemaObject::Index,
        if_exists,
        name,
        change: RelationChange::Rename(tokens.name()?),
    })
}

pub(super) fn parse_alter(tokens: &mut Tokens<'_>, word: &str) -> Result<SchemaCommand, SqlError> {
    let object = object(word);
    let if_exists = object != SchemaObject::Schema && tokens.accept(&["IF", "EXISTS"]);
    if object == SchemaObject::Table {
        tokens.accept(&["ONLY"]);
        if tokens.accept(&["ALL", "IN"]) {
            return Err(not_supported(word, "ALL IN TABLESPACE"));
        }
    }
    let name = object_name(tokens, object)?;
    tokens.accept_token(&Token::Mul);
    let change = change(tokens, word, object)?;
    Ok(SchemaCommand::Alter {
        object,
        if_exists,
        name,
        change,
    })
}

fn change(
    tokens: &mut Tokens<'_>,
    word: &str,
    object: SchemaObject,
) -> Result<RelationChange, SqlError> {
    if tokens.accept(&["RENAME"]) {
        return rename(tokens, object);
    }
    if object != SchemaObject::Schema && tokens.accept(&["SET", "SCHEMA"]) {
        return Ok(RelationChange::SetSchema(tokens.name()?));
    }
    if object == SchemaObject::Table
        && tokens.is_second(&Token::LParen)
        && let Some(word) = tokens.accept_one(&["SET", "RESET"])
    {
        return Ok(RelationChange::Parameters(parameters(
            tokens,
            word == "RESET",
        )?));
    }
    if tokens.accept(&["OWNER"]) {
        tokens.expect(&["TO"])?;
        let owner = RoleName::parse(tokens)?;
        if object == SchemaObject::Schema || !tokens.accept_token(&Token::Comma) {
            return Ok(RelationChange::Owner(owner));
        }
        let mut actions = vec![TableAction::Owner(owner)];
        actions.extend(alter::parse(tokens)?);
        return Ok(RelationChange::Actions(actions));
    }
    if object != SchemaObject::Schema && alter::is_here(tokens) {
        return Ok(RelationChange::Actions(alter::parse(tokens)?));
    }
    let action = tokens.next_word();
    match action.as_str() {
        "SET" | "RESET" | "ENABLE" | "DISABLE" | "CLUSTER" | "INHERIT" | "NO" | "ATTACH"
        | "DETACH" | "REPLICA" | "FORCE" | "OF" | "NOT" => {
            let what = match tokens.peek_word() {
                second if second.is_empty() => action,
                second => format!("{action} {second}"),
            };
            Err(not_supported(word, &what))
        }
        _ => Err(tokens.unexpected_before(&action)),
    }
}

fn rename(tokens: &mut Tokens<'_>, object: SchemaObject) -> Result<RelationChange, SqlError> {
    if tokens.accept(&["TO"]) {
        return Ok(RelationChange::Rename(tokens.name()?));
    }
    if object == SchemaObject::Schema {
        return Err(tokens.unexpected());
    }
    let of_constraint = object == SchemaObject::Table && tokens.accept(&["CONSTRAINT"]);
    if !of_constraint {
        tokens.accept(&["COLUMN"]);
    }
    let from = tokens.name()?;
    tokens.expect(&["TO"])?;
    let to = tokens.name()?;
    Ok(match of_constraint {
        true => RelationChange::RenameConstraint { from, to },
        false => RelationChange::RenameColumn { from, to },
    })
}

fn parameters(tokens: &mut Tokens<'_>, reset: bool) -> Result<TableParameters, SqlError> {
    let mut parameters = TableParameters {
        reset,
        ..TableParameters::default()
    };
    tokens.parenthesized(|tokens| {
        match &*tokens.ahead().label()? {
            "layout" if parameters.layout.is_some() => {
                return Err(SqlError::new(
                    ErrorKind::InvalidParameterValue,
                    "parameter \"layout\" specified more than once",
                ));
            }
            "layout" if reset => {
                tokens.skip();
                parameters.layout = Some(None);
            }
            "layout" => {
                tokens.skip();
                tokens.expect_token(&Token::Eq)?;
                let value = match tokens.accept_string() {
                    Some(text) => text,
                    None => tokens.label()?,
                };
                parameters.layout = Some(Some(value));
            }
            _ if reset => parameters.others.push((tokens.label()?, None)),
            _ => parameters.others.push(tokens.storage_parameter()?),
        }
        Ok(())
    })?;
    Ok(parameters)
}

fn not_supported(object: &str, what: &str) -> SqlError {
    SqlError::new(
        ErrorKind::FeatureNotSupported,
        format!("ALTER {object} … {what} is not supported"),
    )
}

/// After CREATE \[TEMPORARY\] SEQUENCE.
pub(super) fn parse_create_sequence(
    tokens: &mut Tokens<'_>,
    is_temporary: bool,
) -> Result<SchemaCommand, SqlError> {
    let if_not_exists = tokens.accept(&["IF", "NOT", "EXISTS"]);
    let name = tokens.qualified_name()?;
    let mut options = SequenceOptions::default();
    while option(tokens, &mut options)? {}
    refuse_name(&options)?;
    Ok(SchemaCommand::CreateSequence {
        name,
        if_not_exists,
        options,
        is_temporary,
    })
}

/// After ALTER SEQUENCE.
pub(super) fn parse_alter_sequence(tokens: &mut Tokens<'_>) -> Result<SchemaCommand, SqlError> {
    let if_exists = tokens.accept(&["IF", "EXISTS"]);
    let name = tokens.qualified_name()?;
    let change = if tokens.accept(&["RENAME", "TO"]) {
        RelationChange::Rename(tokens.name()?)
    } else if tokens.accept(&["OWNER", "TO"]) {
        RelationChange::Owner(RoleName::parse(tokens)?)
    } else if tokens.accept(&["SET", "SCHEMA"]) {
        RelationChange::SetSchema(tokens.name()?)
    } else {
        let mut options = SequenceOptions::default();
        if !option(tokens, &mut options)? {
            return Err(tokens.unexpected());
        }
        while option(tokens, &mut options)? {}
        refuse_name(&options)?;
        return Ok(SchemaCommand::AlterSequence {
            name,
            if_exists,
            options,
        });
    };
    Ok(SchemaCommand::Alter {
        object: SchemaObject::Sequence,
        if_exists,
        name,
        change,
    })
}

/// After DROP INDEX.
pub(super) fn parse_drop_index(tokens: &mut Tokens<'_>) -> Result<SchemaCommand, SqlError> {
    tokens.accept(&["CONCURRENTLY"]);
    let if_exists = tokens.accept(&["IF", "EXISTS"]);
    let names = tokens.qualified_names()?;
    // Nothing depends on a secondary index.
    tokens.accept_one(&["CASCADE", "RESTRICT"]);
    Ok(SchemaCommand::DropIndex { names, if_exists })
}
