//! GRANT and REVOKE.

use aerostat_types::{ErrorKind, SqlError};
use sqlparser::tokenizer::Token;

use super::{role::RoleName, tokens::Tokens};
use crate::{
    grants::{PredefinedRole, Privilege, SchemaPrivilege},
    names::QualifiedName,
};

/// GRANT or REVOKE.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantStatement {
    /// GRANT rather than REVOKE.
    pub grant: bool,
    /// What is granted on what.
    pub target: GrantTarget,
    /// To or from whom.
    pub grantees: Vec<Grantee>,
}

/// What is granted on what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GrantTarget {
    /// On tables and views; for `ddl::grant`.
    Relations {
        /// What one may do.
        privileges: Vec<Privilege>,
        /// With which.
        names: Vec<QualifiedName>,
    },
    /// ON ALL TABLES IN SCHEMA; for `ddl::grant`.
    AllRelations {
        /// What one may do.
        privileges: Vec<Privilege>,
        /// In which schemas.
        schemas: Vec<String>,
    },
    /// ON SEQUENCE; for `ddl::grant`.
    Sequences {
        /// What one may do.
        privileges: Vec<Privilege>,
        /// With which.
        names: Vec<QualifiedName>,
    },
    /// ON ALL SEQUENCES IN SCHEMA; for `ddl::grant`.
    AllSequences {
        /// What one may do.
        privileges: Vec<Privilege>,
        /// In which schemas.
        schemas: Vec<String>,
    },
    /// On schemas; for `ddl::grant`.
    Schemas {
        /// What one may do.
        privileges: Vec<SchemaPrivilege>,
        /// In which.
        names: Vec<String>,
    },
    /// Membership in predefined roles; for `admin::Node::grant`.
    Memberships(Vec<PredefinedRole>),
    /// On databases; for `admin::Node::grant`.
    Databases {
        /// What one may do.
        privileges: Vec<DatabasePrivilege>,
        /// In which.
        names: Vec<String>,
    },
}

/// What one may do in a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabasePrivilege {
    /// Connect.
    Connect,
    /// Make schemas.
    Create,
    /// Make temporary tables, which nobody is kept from.
    Temporary,
}

/// To or from whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grantee {
    /// Everyone.
    Public,
    /// A role.
    Role(RoleName),
}

impl GrantStatement {
    /// The command tag that ends the statement.
    pub fn tag(&self) -> &'static str {
        if self.grant { "GRANT" } else { "REVOKE" }
    }
}

pub(super) fn parse_grant(tokens: &mut Tokens<'_>) -> Result<GrantStatement, SqlError> {
    let target = target(tokens, true)?;
    tokens.expect(&["TO"])?;
    let grantees = tokens.list(grantee)?;
    if tokens.accept(&["WITH", "ADMIN", "OPTION"]) {
        return Err(not_supported("WITH ADMIN OPTION is not supported"));
    }
    if tokens.accept(&["WITH", "GRANT", "OPTION"]) {
        return Err(not_supported("WITH GRANT OPTION is not supported"));
    }
    granted_by(tokens)?;
    Ok(GrantStatement {
        grant: true,
        target,
        grantees,
    })
}

pub(super) fn parse_revoke(tokens: &mut Tokens<'_>) -> Result<GrantStatement, SqlError> {
    if tokens.accept(&["GRANT", "OPTION", "FOR"]) {
        return Err(not_supported("GRANT OPTION FOR is not supported"));
    }
    let target = target(tokens, false)?;
    tokens.expect(&["FROM"])?;
    let grantees = tokens.list(grantee)?;
    granted_by(tokens)?;
    // Nothing was granted onwards, so CASCADE and RESTRICT mean the same.
    tokens.accept_one(&["CASCADE", "RESTRICT"]);
    Ok(GrantStatement {
        grant: false,
        target,
        grantees,
    })
}

fn granted_by(tokens: &mut Tokens<'_>) -> Result<(), SqlError> {
    if tokens.peek_word() == "GRANTED" {
        return Err(not_supported("GRANTED BY is not supported"));
    }
    Ok(())
}

/// The words before ON: each with its position; none for ALL.
struct Words(Vec<(String, u32)>);

fn target(tokens: &mut Tokens<'_>, grant: bool) -> Result<GrantTarget, SqlError> {
    let words = words(tokens)?;
    if matches!(tokens.peek_word().as_str(), "TO" | "FROM") {
        return words.memberships();
    }
    tokens.expect(&["ON"])?;
    if tokens.accept(&["DATABASE"]) {
        let privileges = words.read(database_privilege, &database_all(grant), "database")?;
        return Ok(GrantTarget::Databases {
            privileges,
            names: tokens.list(Tokens::name)?,
        });
    }
    if tokens.accept(&["SCHEMA"]) {
        let all = [SchemaPrivilege::Usage, SchemaPrivilege::Create];
        let privileges = words.read(schema_privilege, &all, "schema")?;
        return Ok(GrantTarget::Schemas {
            privileges,
            names: tokens.list(Tokens::name)?,
        });
    }
    if tokens.accept(&["ALL", "TABLES", "IN", "SCHEMA"]) {
        let privileges = words.read(relation_privilege, &RELATION_ALL, "relation")?;
        return Ok(GrantTarget::AllRelations {
            privileges,
            schemas: tokens.list(Tokens::name)?,
        });
    }
    if tokens.accept(&["ALL", "SEQUENCES", "IN", "SCHEMA"]) {
        let privileges = words.read(sequence_privilege, &SEQUENCE_ALL, "sequence")?;
        return Ok(GrantTarget::AllSequences {
            privileges,
            schemas: tokens.list(Tokens::name)?,
        });
    }
    let object = tokens.peek_word();
    let is_named = !matches!(tokens.peek_second_word().as_str(), "TO" | "FROM" | "");
    if object == "SEQUENCE" && is_named {
        tokens.skip();
        let privileges = words.read(sequence_privilege, &SEQUENCE_ALL, "sequence")?;
        return Ok(GrantTarget::Sequences {
            privileges,
            names: tokens.qualified_names()?,
        });
    }
    let other = match object.as_str() {
        "ALL" => tokens.peek_second_word(),
        "FUNCTION" | "PROCEDURE" | "ROUTINE" | "LANGUAGE" | "TYPE" | "DOMAIN" | "TABLESPACE"
        | "LARGE" | "FOREIGN" | "PARAMETER"
            if is_named =>
        {
            object
        }
        _ => {
            tokens.accept(&["TABLE"]);
            let privileges = words.read(relation_privilege, &RELATION_ALL, "relation")?;
            return Ok(GrantTarget::Relations {
                privileges,
                names: tokens.qualified_names()?,
            });
        }
    };
    Err(not_supported(format!(
        "privileges on {} are not supported",
        other.to_lowercase()
    )))
}

/// What ALL means of a sequence.
pub const SEQUENCE_ALL: [Privilege; 3] = [Privilege::Select, Privilege::Update, Privilege::Usage];

/// What ALL means of a table or view.
pub const RELATION_ALL: [Privilege; 5] = [
    Privilege::Select,
    Privilege::Insert,
    Privilege::Update,
    Privilege::Delete,
    Privilege::Truncate,
];

/// What ALL means; GRANT ALL leaves out what does not exist here.
fn database_all(grant: bool) -> Vec<DatabasePrivilege> {
    let mut all = vec![DatabasePrivilege::Connect, DatabasePrivilege::Create];
    if !grant {
        all.push(DatabasePrivilege::Temporary);
    }
    all
}

fn words(tokens: &mut Tokens<'_>) -> Result<Words, SqlError> {
    if tokens.accept(&["ALL"]) {
        tokens.accept(&["PRIVILEGES"]);
        if tokens.peek() == Some(&Token::LParen) {
            return Err(column_privileges());
        }
        return Ok(Words(Vec::new()));
    }
    let words = tokens.list(|tokens| {
        let position = tokens.position();
        let mut word = tokens.label()?.to_ascii_uppercase();
        if word == "ALTER" && tokens.accept(&["SYSTEM"]) {
            word.push_str(" SYSTEM");
        }
        if tokens.peek() == Some(&Token::LParen) {
            return Err(column_privileges());
        }
        Ok((word, position))
    })?;
    Ok(Words(words))
}

fn column_privileges() -> SqlError {
    not_supported("privileges on single columns are not supported")
}

impl Words {
    /// The words as names of roles.
    fn memberships(&self) -> Result<GrantTarget, SqlError> {
        let role = |(word, _): &(String, u32)| PredefinedRole::named(&word.to_ascii_lowercase());
        let roles: Option<Vec<PredefinedRole>> = self.0.iter().map(role).collect();
        let roles = roles.filter(|roles| !roles.is_empty());
        roles.map(GrantTarget::Memberships).ok_or_else(|| {
            not_supported("membership in roles is not supported, except in predefined ones")
                .with_hint("Grant privileges on objects to each role.")
        })
    }

    fn read<P: Copy + PartialEq>(
        &self,
        privilege: fn(&str) -> Option<P>,
        all: &[P],
        kind: &str,
    ) -> Result<Vec<P>, SqlError> {
        if self.0.is_empty() {
            return Ok(all.to_vec());
        }
        let mut privileges = Vec::with_capacity(self.0.len());
        for (word, position) in &self.0 {
            let found =
                privilege(word).ok_or_else(|| unknown(word, kind).with_position(*position))?;
            if !privileges.contains(&found) {
                privileges.push(found);
            }
        }
        Ok(privileges)
    }
}

fn unknown(word: &str, kind: &str) -> SqlError {
    match word {
        "REFERENCES" | "TRIGGER" | "MAINTAIN" if kind == "relation" => {
            not_supported(format!("privilege {word} is not supported"))
        }
        "SELECT" | "INSERT" | "UPDATE" | "DELETE" | "TRUNCATE" | "REFERENCES" | "TRIGGER"
        | "USAGE" | "CREATE" | "CONNECT" | "TEMP" | "TEMPORARY" | "EXECUTE" | "SET"
        | "ALTER SYSTEM" | "MAINTAIN" => SqlError::new(
            ErrorKind::InvalidParameterValue,
            format!("invalid privilege type {word} for {kind}"),
        ),
        _ => SqlError::new(
            ErrorKind::SyntaxError,
            format!("unrecognized privilege type \"{}\"", word.to_lowercase()),
        ),
    }
}

fn relation_privilege(word: &str) -> Option<Privilege> {
    Some(match word {
        "SELECT" => Privilege::Select,
        "INSERT" => Privilege::Insert,
        "UPDATE" => Privilege::Update,
        "DELETE" => Privilege::Delete,
        "TRUNCATE" => Privilege::Truncate,
        _ => return None,
    })
}

fn sequence_privilege(word: &str) -> Option<Privilege> {
    Some(match word {
        "SELECT" => Privilege::Select,
        "UPDATE" => Privilege::Update,
        "USAGE" => Privilege::Usage,
        _ => return None,
    })
}

fn schema_privilege(word: &str) -> Option<SchemaPrivilege> {
    match word {
        "USAGE" => Some(SchemaPrivilege::Usage),
        "CREATE" => Some(SchemaPrivilege::Create),
        _ => None,
    }
}

fn database_privilege(word: &str) -> Option<DatabasePrivilege> {
    match word {
        "CONNECT" => Some(DatabasePrivilege::Connect),
        "CREATE" => Some(DatabasePrivilege::Create),
        "TEMP" | "TEMPORARY" => Some(DatabasePrivilege::Temporary),
        _ => None,
    }
}

fn grantee(tokens: &mut Tokens<'_>) -> Result<Grantee, SqlError> {
    tokens.accept(&["GROUP"]);
    if tokens.accept(&["PUBLIC"]) {
        return Ok(Grantee::Public);
    }
    RoleName::parse(tokens).map(Grantee::Role)
}

fn not_supported(message: impl Into<String>) -> SqlError {
    SqlError::new(ErrorKind::FeatureNotSupported, message)
}
