//! Statements that PostgreSQL has and Aerostat does not, refused by name.
//!
//! A text that is no statement of PostgreSQL's either is a syntax error at the word that does not
//! belong.

use aerostat_types::{ErrorKind, SqlError};
use sqlparser::tokenizer::Token;

use super::tokens::Tokens;

/// The error for a statement by its first word, which is taken already.
pub(super) fn statement(tokens: &Tokens<'_>, word: &str) -> SqlError {
    let (feature, hint) = match word {
        "DO" => ("DO is", None),
        "CALL" => ("procedures are", None),
        "CLUSTER" => (
            "CLUSTER is",
            Some("A table with a primary key is kept in its order."),
        ),
        "REFRESH" => ("materialized views are", None),
        "SECURITY" => ("security labels are", None),
        "REASSIGN" => (
            "REASSIGN OWNED is",
            Some("Change each owner with ALTER … OWNER TO."),
        ),
        "IMPORT" => ("foreign tables are", None),
        "LOAD" => ("loading libraries is", None),
        _ => return tokens.unexpected_before(word),
    };
    not_supported(feature, hint)
}

/// The error for CREATE, ALTER, DROP or COMMENT ON of a kind of object; its word is taken already.
pub(super) fn definition(tokens: &Tokens<'_>, object: &str) -> SqlError {
    let second = tokens.peek_word();
    let (feature, hint) = match (object, second.as_str()) {
        ("INDEX", _) => (
            "altering indexes is",
            Some("Drop the index and create another."),
        ),
        ("FUNCTION" | "AGGREGATE" | "PROCEDURE" | "ROUTINE", _) => {
            ("user-defined functions are", None)
        }
        ("TRIGGER", _) | ("EVENT" | "CONSTRAINT", "TRIGGER") => ("triggers are", None),
        ("EXTENSION", _) => ("extensions are", None),
        ("TYPE", _) => ("user-defined types are", None),
        ("DOMAIN", _) => ("domains are", None),
        ("COLLATION" | "CONVERSION", _) => ("collations and conversions are", None),
        ("OPERATOR", _) => ("user-defined operators are", None),
        ("CAST" | "TRANSFORM", _) => ("user-defined casts are", None),
        ("RULE", _) => ("rules are", None),
        ("POLICY", _) => ("row-level security is", None),
        ("PUBLICATION" | "SUBSCRIPTION", _) => ("logical replication is", None),
        ("FOREIGN" | "SERVER", _) | ("USER", "MAPPING") => ("foreign tables are", None),
        ("LANGUAGE", _) | ("TRUSTED" | "PROCEDURAL", "LANGUAGE") => {
            ("procedural languages are", None)
        }
        ("MATERIALIZED", _) => (
            "materialized views are",
            Some("Use CREATE TABLE … AS SELECT, or a view."),
        ),
        ("RECURSIVE", _) => (
            "recursive views are",
            Some("Use CREATE VIEW … AS WITH RECURSIVE."),
        ),
        ("STATISTICS", _) => ("extended statistics are", None),
        ("TABLESPACE", _) => ("tablespaces are", None),
        ("TEXT", "SEARCH") => ("text search objects are", None),
        ("ACCESS", "METHOD") => ("access methods are", None),
        ("LARGE", "OBJECT") => ("large objects are", None),
        ("DEFAULT", "PRIVILEGES") => (
            "default privileges are",
            Some("Grant privileges on each object."),
        ),
        ("OWNED", _) => ("DROP OWNED is", Some("Drop or give away each object.")),
        ("UNLOGGED", _) => ("unlogged tables are", None),
        _ => return tokens.unexpected_before(object),
    };
    not_supported(feature, hint)
}

/// The error for a kind of table or view that does not exist here; `None` for
/// CREATE \[TEMPORARY] TABLE and CREATE \[OR REPLACE] \[TEMPORARY] VIEW, which `sqlparser`
/// reads.
pub(super) fn creation(tokens: &Tokens<'_>, object: &str) -> Option<SqlError> {
    match object {
        "TEMPORARY" => {
            let mut ahead = tokens.ahead();
            let kind = ahead.next_word();
            match kind.as_str() {
                "TABLE" => partitioned(&ahead),
                "VIEW" => None,
                _ => Some(definition(&ahead, &kind)),
            }
        }
        "OR" => {
            let mut ahead = tokens.ahead();
            if !ahead.accept(&["REPLACE"]) {
                return Some(ahead.unexpected());
            }
            let is_said = ahead.accept_one(&["LOCAL", "GLOBAL"]).is_some();
            let temporary = ahead.accept_one(&["TEMP", "TEMPORARY"]);
            if is_said && temporary.is_none() {
                return Some(ahead.unexpected());
            }
            let kind = ahead.next_word();
            match kind.as_str() {
                "VIEW" => None,
                _ => Some(definition(&ahead, &kind)),
            }
        }
        "TABLE" => partitioned(tokens),
        _ => None,
    }
}

/// CREATE TABLE … PARTITION OF and … OF type, which `sqlparser` words otherwise.
fn partitioned(tokens: &Tokens<'_>) -> Option<SqlError> {
    let mut ahead = tokens.ahead();
    ahead.accept(&["IF", "NOT", "EXISTS"]);
    ahead.qualified_name().ok()?;
    if ahead.accept(&["PARTITION", "OF"]) {
        return Some(not_supported(
            "partitioned tables are",
            Some("Tables are partitioned by primary key by themselves."),
        ));
    }
    if ahead.accept(&["OF"]) {
        return Some(not_supported("typed tables are", None));
    }
    if ahead.peek() == Some(&Token::LParen) && ahead.is_second(&Token::RParen) {
        return Some(SqlError::new(
            ErrorKind::FeatureNotSupported,
            "tables without columns are not supported",
        ));
    }
    None
}

fn not_supported(feature: &str, hint: Option<&str>) -> SqlError {
    let error = SqlError::new(
        ErrorKind::FeatureNotSupported,
        format!("{feature} not supported"),
    );
    match hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}
