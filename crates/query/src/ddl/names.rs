//! Names: how they are folded and cut, which are reserved, and where in the
//! search path they are found.

use aerostat_types::{ErrorKind, SqlError, may_name_column};
use datafusion::sql::sqlparser::ast::{Ident, ObjectName};

use super::Actor;
use crate::{
    api::{Notice, NoticeSeverity},
    catalog::{
        AEROSTAT, CatalogState, INFORMATION_SCHEMA, NAME_BYTES_MAX, PG_CATALOG, PG_TEMP, Relation,
        SchemaEntry, undefined_relation, undefined_schema,
    },
};

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
pub(crate) fn folded(ident: &Ident) -> String {
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
pub(super) fn declared(ident: &Ident, notices: &mut Vec<Notice>) -> Result<String, SqlError> {
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

/// Columns that every PostgreSQL table has unseen; no other may take their names.
pub(super) const SYSTEM_COLUMNS: [&str; 6] = ["tableoid", "cmax", "xmax", "cmin", "xmin", "ctid"];

/// Whether the schema is part of the system rather than made by users.
pub fn is_system_schema(name: &str) -> bool {
    matches!(name, PG_CATALOG | INFORMATION_SCHEMA | AEROSTAT)
}

/// A relation that a name led to.
#[derive(Clone)]
pub struct Found<'s> {
    /// Where it stands.
    pub place: Place,
    /// The relation.
    pub relation: &'s Relation,
}

/// Where a relation stands: the names of its schema and of itself in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The schema.
    pub schema: String,
    /// The relation.
    pub name: String,
}

impl Actor {
    /// The schemas that unqualified names are looked up in, in order. Temporary relations
    /// hide others, unless the search path says where they stand.
    pub fn path(&self) -> impl Iterator<Item = &str> {
        let own = self.temporary.as_deref();
        let is_own = |schema: &String| schema == PG_TEMP || Some(schema.as_str()) == own;
        let first = own.filter(|_| !self.search_path.iter().any(is_own));
        first.into_iter().chain(self.written_path())
    }

    /// The schemas that the search path names, in order.
    ///
    /// A role may bear the name of a system schema, as the first superuser does;
    /// that does not put the schema on its path.
    pub fn written_path(&self) -> impl Iterator<Item = &str> {
        self.search_path
            .iter()
            .filter_map(move |schema| match schema.as_str() {
                "$user" => Some(self.role.as_str()).filter(|role| !is_system_schema(role)),
                named => Some(self.schema_named(named)),
            })
    }

    /// The schema that is meant by a name: `pg_temp` is the session's own.
    pub(crate) fn schema_named<'n>(&'n self, name: &'n str) -> &'n str {
        match name {
            PG_TEMP => self.temporary.as_deref().unwrap_or(PG_TEMP),
            other => other,
        }
    }

    /// Finds a relation that users made.
    ///
    /// # Errors
    /// There is none (`UndefinedTable`), no such schema, or the schema may not be used.
    pub fn resolve<'s>(
        &self,
        state: &'s CatalogState,
        name: &QualifiedName,
    ) -> Result<Found<'s>, SqlError> {
        match self.find(state, name)? {
            Some(found) => Ok(found),
            None => Err(undefined_relation(&name.to_string())),
        }
    }

    /// Finds a relation that users made, if it is there.
    ///
    /// # Errors
    /// No such schema, or the schema may not be used.
    pub fn find<'s>(
        &self,
        state: &'s CatalogState,
        name: &QualifiedName,
    ) -> Result<Option<Found<'s>>, SqlError> {
        self.require_this_database(name)?;
        if let Some(schema) = &name.schema {
            if is_system_schema(schema) {
                return Err(SqlError::new(
                    ErrorKind::InsufficientPrivilege,
                    format!("permission denied: \"{}\" is a system catalog", name.name),
                ));
            }
            let entry = state
                .schemas
                .get(self.schema_named(schema))
                .ok_or_else(|| undefined_schema(schema))?;
            self.require_usage(entry)?;
            return Ok(found_in(entry, &name.name));
        }
        Ok(self
            .path()
            .filter_map(|schema| state.schemas.get(schema))
            .filter(|entry| self.may_use(entry))
            .find_map(|entry| found_in(entry, &name.name)))
    }

    /// The schema a new relation goes to, which the actor may create in.
    ///
    /// # Errors
    /// No such schema, none in the search path, or it may not be created in.
    pub fn creation_schema<'s>(
        &self,
        state: &'s CatalogState,
        name: &QualifiedName,
    ) -> Result<&'s SchemaEntry, SqlError> {
        self.require_this_database(name)?;
        let entry = match &name.schema {
            Some(schema) if is_system_schema(schema) => {
                return Err(SqlError::new(
                    ErrorKind::InsufficientPrivilege,
                    format!("permission denied to create \"{schema}.{}\"", name.name),
                )
                .with_detail("System catalog modifications are currently disallowed."));
            }
            Some(schema) => state
                .schemas
                .get(schema)
                .ok_or_else(|| undefined_schema(schema))?,
            None => self
                .written_path()
                .find_map(|schema| state.schemas.get(schema))
                .ok_or_else(|| {
                    SqlError::new(
                        ErrorKind::InvalidSchemaName,
                        "no schema has been selected to create in",
                    )
                })?,
        };
        self.require_creation(entry)?;
        Ok(entry)
    }
}

impl Actor {
    /// # Errors
    /// The name leads to another database.
    pub(super) fn require_this_database(&self, name: &QualifiedName) -> Result<(), SqlError> {
        match &name.database {
            Some(database) if *database != self.database => Err(SqlError::new(
                ErrorKind::FeatureNotSupported,
                format!("cross-database references are not implemented: \"{name}\""),
            )),
            _ => Ok(()),
        }
    }
}

fn found_in<'s>(entry: &'s SchemaEntry, name: &str) -> Option<Found<'s>> {
    let relation = entry.relations.get(name)?;
    Some(Found {
        place: Place {
            schema: entry.name.clone(),
            name: name.to_owned(),
        },
        relation,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
