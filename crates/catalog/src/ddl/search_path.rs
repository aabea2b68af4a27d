//! The search path: where names are found, which of them are the system's, and locks on the
//! objects found.

use aerostat_sql::names::{AEROSTAT, INFORMATION_SCHEMA, PG_CATALOG, QualifiedName, ResolvedName};
use aerostat_txn::LockMode;
use aerostat_types::{ErrorKind, SqlError};

use crate::{
    actor::Actor,
    state::{
        CatalogState, Draft, PG_TEMP, Relation, SchemaEntry, undefined_relation, undefined_schema,
    },
};

/// Columns that every PostgreSQL table has unseen; no other may take their names.
pub(super) const SYSTEM_COLUMNS: [&str; 6] = ["tableoid", "cmax", "xmax", "cmin", "xmin", "ctid"];

/// Whether the schema is part of the system rather than made by users.
pub(super) fn is_system_schema(name: &str) -> bool {
    matches!(name, PG_CATALOG | INFORMATION_SCHEMA | AEROSTAT)
}

/// A relation that a name led to.
#[derive(Clone)]
pub struct Found<'s> {
    /// Where it stands.
    pub place: ResolvedName,
    /// The relation.
    pub relation: &'s Relation,
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

impl Draft {
    /// Locks the relations that the names lead to, as far as they are there and the actor
    /// may have them locked. A name is looked up again after a wait: it may lead elsewhere.
    /// What is wrong with a name is left for the statement to say.
    ///
    /// # Errors
    /// As [`Self::lock`].
    pub fn lock_named<'n>(
        &self,
        actor: &Actor,
        names: impl IntoIterator<Item = &'n QualifiedName>,
        mode: LockMode,
        may: &dyn Fn(&CatalogState, &Found<'_>) -> bool,
    ) -> Result<(), SqlError> {
        for name in names {
            let mut locked = None;
            loop {
                let state = self.load()?;
                let found = actor.find(&state, name).ok().flatten();
                let Some(found) = found.filter(|found| may(&state, found)) else {
                    break;
                };
                let oid = found.relation.oid();
                if locked == Some(oid) {
                    break;
                }
                self.lock(oid, mode)?;
                locked = Some(oid);
            }
        }
        Ok(())
    }

    /// As [`Self::lock_named`], what the actor owns, itself or by its schema.
    ///
    /// # Errors
    /// As [`Self::lock`].
    pub fn lock_owned<'n>(
        &self,
        actor: &Actor,
        names: impl IntoIterator<Item = &'n QualifiedName>,
        mode: LockMode,
    ) -> Result<(), SqlError> {
        self.lock_named(actor, names, mode, &|state, found| {
            let schema = state.schemas.get(&found.place.schema);
            actor.owns(found.relation.owner())
                || schema.is_some_and(|schema| actor.owns_schema(schema))
        })
    }

    /// Locks the schemas of these names that the actor owns, to the transaction's end.
    ///
    /// # Errors
    /// As [`Self::lock`].
    pub fn lock_schemas<'n>(
        &self,
        actor: &Actor,
        names: impl IntoIterator<Item = &'n QualifiedName>,
        mode: LockMode,
    ) -> Result<(), SqlError> {
        for name in names {
            let mut locked = None;
            while let Some(schema) = self.load()?.schemas.get(&name.name)
                && actor.owns_schema(schema)
                && locked != Some(schema.oid)
            {
                self.lock_schema(schema.oid, mode)?;
                locked = Some(schema.oid);
            }
        }
        Ok(())
    }
}

fn found_in<'s>(entry: &'s SchemaEntry, name: &str) -> Option<Found<'s>> {
    let relation = entry.relations.get(name)?;
    Some(Found {
        place: ResolvedName {
            schema: entry.name.clone(),
            name: name.to_owned(),
        },
        relation,
    })
}
