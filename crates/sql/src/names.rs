//! Names: how they are written and read, case-folded and truncated, and which are reserved.

use aerostat_types::{ErrorKind, Notice, NoticeSeverity, SqlError, may_name_column};
use sqlparser::ast::{Ident, ObjectName};

/// Longest identifier in bytes, as in PostgreSQL (NAMEDATALEN − 1).
pub const NAME_BYTES_MAX: usize = 63;

/// The schema of PostgreSQL's system catalogue.
pub const PG_CATALOG: &str = "pg_catalog";
/// The schema of the standard's information views.
pub const INFORMATION_SCHEMA: &str = "information_schema";
/// The schema of Aerostat's own system views.
pub const AEROSTAT: &str = "aerostat";

/// Begins the suffix that tells columns of one name apart. No identifier has it.
pub const SUFFIX: char = '\u{1}';

/// The schema that a column of an outer query's relation is called with, where it has none.
pub const OUTER_SCHEMA: &str = "\u{1}outer";

/// A name with or without a schema, folded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QualifiedName {
    /// The database, if it was written; only the current one is allowed.
    pub database: Option<String>,
    /// The schema, if it was written.
    pub schema: Option<String>,
    /// The object.
    pub name: String,
}

impl QualifiedName {
    /// From parts that are folded already.
    ///
    /// # Errors
    /// There are none, or more than three.
    pub fn from_parts(parts: Vec<String>) -> Result<Self, SqlError> {
        let written = parts.join(".");
        let mut parts = parts.into_iter().rev();
        let (name, schema, database) = (parts.next(), parts.next(), parts.next());
        match (name, parts.next()) {
            (Some(name), None) => Ok(Self {
                database,
                schema,
                name,
            }),
            _ => Err(SqlError::new(
                ErrorKind::SyntaxError,
                format!("improper qualified name (too many dotted names): {written}"),
            )),
        }
    }

    /// From a name as `sqlparser` has it; too long parts are cut, with a notice.
    ///
    /// # Errors
    /// It has parts that are no identifiers, or too many.
    pub fn from_object_name(
        name: &ObjectName,
        notices: &mut Vec<Notice>,
    ) -> Result<Self, SqlError> {
        let mut parts = Vec::with_capacity(name.0.len());
        for part in &name.0 {
            let ident = part.as_ident().ok_or_else(|| {
                SqlError::new(ErrorKind::SyntaxError, format!("\"{name}\" is not a name"))
            })?;
            parts.push(declared(ident, notices)?);
        }
        Self::from_parts(parts)
    }
}

impl std::fmt::Display for QualifiedName {
    /// As messages show it: parts with points between, without quotes.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for part in [&self.database, &self.schema].into_iter().flatten() {
            write!(f, "{part}.")?;
        }
        f.write_str(&self.name)
    }
}

/// An identifier in lower case unless it was quoted.
pub fn folded(ident: &Ident) -> String {
    match ident.quote_style {
        Some(_) => ident.value.clone(),
        None => ident.value.to_ascii_lowercase(),
    }
}

/// An identifier folded, and cut to PostgreSQL's length with a notice.
pub fn fold(ident: &Ident, notices: &mut Vec<Notice>) -> String {
    let folded = folded(ident);
    let short = cut(&folded);
    if short.len() < folded.len() {
        let message = format!("identifier \"{folded}\" will be truncated to \"{short}\"");
        notices.push(Notice {
            kind: Some(ErrorKind::InvalidName),
            ..Notice::new(NoticeSeverity::Notice, message)
        });
        return short.to_owned();
    }
    folded
}

/// The name of something new, which is no reserved word unless it is quoted.
///
/// # Errors
/// It is one, as `sqlparser` lets it be.
pub fn declared(ident: &Ident, notices: &mut Vec<Notice>) -> Result<String, SqlError> {
    if ident.quote_style.is_none() && is_reserved(&ident.value) {
        return Err(SqlError::new(
            ErrorKind::SyntaxError,
            format!("syntax error at or near \"{}\"", ident.value),
        ));
    }
    if ident.value.is_empty() {
        return Err(SqlError::new(
            ErrorKind::SyntaxError,
            "zero-length delimited identifier",
        ));
    }
    Ok(fold(ident, notices))
}

/// The longest beginning of a name that PostgreSQL keeps: 63 bytes, whole characters.
pub fn cut(name: &str) -> &str {
    if name.len() <= NAME_BYTES_MAX {
        return name;
    }
    &name[..name.floor_char_boundary(NAME_BYTES_MAX)]
}

/// PostgreSQL's `makeObjectName`: `first_second_label`, the longer parts cut so that it fits.
pub fn make_object_name(first: &str, second: Option<&str>, label: &str) -> String {
    let joints = 1 + usize::from(second.is_some());
    let room = NAME_BYTES_MAX.saturating_sub(label.len() + joints);
    let (mut first_bytes, mut second_bytes) = (first.len(), second.map_or(0, str::len));
    while first_bytes + second_bytes > room {
        if first_bytes > second_bytes {
            first_bytes -= 1;
        } else {
            second_bytes -= 1;
        }
    }
    let first = &first[..first.floor_char_boundary(first_bytes)];
    match second {
        None => format!("{first}_{label}"),
        Some(second) => format!(
            "{first}_{}_{label}",
            &second[..second.floor_char_boundary(second_bytes)]
        ),
    }
}

/// Whether a word may name a relation or column only in quotes, in any case.
pub fn is_reserved(word: &str) -> bool {
    !may_name_column(word)
}

/// Where a relation stands: the names of its schema and of itself in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResolvedName {
    /// The schema.
    pub schema: String,
    /// The relation.
    pub name: String,
}

/// The name a client sees.
pub fn visible_name(name: &str) -> &str {
    name.split(SUFFIX).next().unwrap_or(name)
}

/// Splits a possibly qualified, possibly quoted name as SQL would read it.
pub fn split_name(text: &str) -> Option<Vec<String>> {
    let mut parts = Vec::new();
    let mut chars = text.trim().chars().peekable();
    loop {
        let mut part = String::new();
        if chars.next_if_eq(&'"').is_some() {
            loop {
                match chars.next()? {
                    '"' if chars.next_if_eq(&'"').is_some() => part.push('"'),
                    '"' => break,
                    c => part.push(c),
                }
            }
        } else {
            while let Some(c) = chars.next_if(|c| *c != '.' && *c != '"') {
                part.extend(c.to_lowercase());
            }
        }
        if part.is_empty() {
            return None;
        }
        parts.push(part);
        match chars.next() {
            None => return Some(parts),
            Some('.') => {}
            Some(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_split_as_sql_reads_them() {
        assert_eq!(
            split_name("Public.\"Odd \"\"Name\"").unwrap(),
            ["public", "Odd \"Name"]
        );
        assert_eq!(split_name("t").unwrap(), ["t"]);
        for bad in ["", ".", "a.", "\"a", "\"a\"b"] {
            assert!(split_name(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn long_names_are_cut_at_characters() {
        let long = "ä".repeat(40);
        assert_eq!(cut(&long).len(), 62);
        let mut notices = Vec::new();
        assert_eq!(
            fold(&Ident::new("A".repeat(70)), &mut notices),
            "a".repeat(63)
        );
        assert_eq!(notices.len(), 1);
        assert_eq!(make_object_name("t", Some("a"), "check"), "t_a_check");
        let made = make_object_name(&"t".repeat(60), Some(&"c".repeat(60)), "check");
        assert_eq!(made.len(), 63);
        assert!(made.ends_with("c_check"));
    }

    #[test]
    fn names_have_at_most_three_parts() {
        let parts =
            |text: &str| QualifiedName::from_parts(text.split('.').map(str::to_owned).collect());
        assert_eq!(parts("d.s.t").unwrap().to_string(), "d.s.t");
        assert_eq!(parts("t").unwrap().schema, None);
        assert_eq!(parts("a.b.c.d").unwrap_err().kind, ErrorKind::SyntaxError);
    }
}
