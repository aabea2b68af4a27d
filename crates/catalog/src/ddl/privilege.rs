//! Privileges on schemas and relations; GRANT, REVOKE and COMMENT.

use std::sync::Arc;

use aerostat_sql::{
    grants::{Privilege, SchemaPrivilege},
    names::{QualifiedName, ResolvedName},
    utility::{
        CommentStatement, CommentTarget, GrantStatement, GrantTarget, Grantee, RELATION_ALL,
        RoleName, SEQUENCE_ALL,
    },
};
use aerostat_txn::LockMode;
use aerostat_types::{ErrorKind, SqlError};

use super::{CommandResult, Found, RoleExists, index, search_path::is_system_schema};
use crate::{
    actor::Actor,
    sequence::not_a_sequence,
    state::{
        CatalogState, Draft, Grant, PUBLIC, Relation, SchemaEntry, SchemaGrant, TableEntry,
        comments::put, undefined_role, undefined_schema,
    },
};

/// The role that stands for everyone in grants; no role can have this name.
const EVERYONE: &str = PUBLIC;

impl Actor {
    /// Whether it may do this with the relation.
    pub fn may(&self, relation: &Relation, privilege: Privilege) -> bool {
        let granted = |grant: &Grant| grant.privilege == privilege && self.is(&grant.role);
        self.owns(relation.owner()) || relation.grants().iter().any(granted)
    }

    /// # Errors
    /// It may not do this with the relation: `permission denied for table t`.
    pub fn require(&self, relation: &Relation, privilege: Privilege) -> Result<(), SqlError> {
        if self.may(relation, privilege) {
            return Ok(());
        }
        Err(denied(relation.kind(), relation.name()))
    }

    /// Whether it has the owner's rights over what this role owns.
    pub fn owns(&self, owner: &str) -> bool {
        self.superuser || self.role == owner
    }

    /// Whether it may use the relations of the schema.
    pub fn may_use(&self, schema: &SchemaEntry) -> bool {
        self.has(schema, SchemaPrivilege::Usage)
    }

    /// # Errors
    /// It may not use the relations of the schema: `permission denied for schema s`.
    pub fn require_usage(&self, schema: &SchemaEntry) -> Result<(), SqlError> {
        if self.may_use(schema) {
            Ok(())
        } else {
            Err(denied("schema", &schema.name))
        }
    }

    /// # Errors
    /// It may not make relations in the schema: `permission denied for schema s`.
    pub fn require_creation(&self, schema: &SchemaEntry) -> Result<(), SqlError> {
        if self.has(schema, SchemaPrivilege::Create) {
            Ok(())
        } else {
            Err(denied("schema", &schema.name))
        }
    }

    /// Whether it has the owner's rights over the schema. `public` belongs to the database's owner.
    pub(crate) fn owns_schema(&self, schema: &SchemaEntry) -> bool {
        self.owns(&schema.owner) || (schema.name == PUBLIC && self.database_owner)
    }

    fn has(&self, schema: &SchemaEntry, privilege: SchemaPrivilege) -> bool {
        let granted = |grant: &SchemaGrant| grant.privilege == privilege && self.is(&grant.role);
        self.owns_schema(schema) || schema.grants.iter().any(granted)
    }

    fn is(&self, grantee: &str) -> bool {
        grantee == EVERYONE || grantee == self.role
    }

    /// # Errors
    /// Neither the relation nor its schema belongs to it: `must be owner of table t`.
    pub(crate) fn require_ownership(&self, relation: &Relation) -> Result<(), SqlError> {
        if self.owns(relation.owner()) {
            Ok(())
        } else {
            Err(not_owner(relation.kind(), relation.name()))
        }
    }

    /// # Errors
    /// The schema does not belong to it: `must be owner of schema s`.
    pub(super) fn require_schema_ownership(&self, schema: &SchemaEntry) -> Result<(), SqlError> {
        if self.owns_schema(schema) {
            Ok(())
        } else {
            Err(not_owner("schema", &schema.name))
        }
    }

    /// The role that OWNER TO or AUTHORIZATION names, which the actor may give things to.
    pub(crate) fn new_owner(
        &self,
        owner: &RoleName,
        role_exists: RoleExists<'_>,
    ) -> Result<String, SqlError> {
        let owner = owner.of(&self.role);
        require_role(owner, role_exists)?;
        if self.owns(owner) {
            return Ok(owner.to_owned());
        }
        Err(SqlError::new(
            ErrorKind::InsufficientPrivilege,
            format!("must be able to SET ROLE \"{owner}\""),
        ))
    }
}

/// The error for doing what was not granted.
pub fn denied(kind: &str, name: &str) -> SqlError {
    SqlError::new(
        ErrorKind::InsufficientPrivilege,
        format!("permission denied for {kind} {name}"),
    )
}

/// The error for changing what belongs to someone else.
pub(crate) fn not_owner(kind: &str, name: &str) -> SqlError {
    SqlError::new(
        ErrorKind::InsufficientPrivilege,
        format!("must be owner of {kind} {name}"),
    )
}

/// # Errors
/// The node has no such role: `role "r" does not exist`.
pub(crate) fn require_role(name: &str, role_exists: RoleExists<'_>) -> Result<(), SqlError> {
    if role_exists(name) {
        return Ok(());
    }
    Err(undefined_role(name))
}

/// The roles that grants are for; [`EVERYONE`] for PUBLIC.
///
/// # Errors
/// There is no such role.
pub(crate) fn grantee_names(
    role: &str,
    grantees: &[Grantee],
    role_exists: RoleExists<'_>,
) -> Result<Vec<String>, SqlError> {
    let name = |grantee: &Grantee| match grantee {
        Grantee::Public => Ok(EVERYONE.to_owned()),
        Grantee::Role(name) => {
            let name = name.of(role);
            require_role(name, role_exists).map(|()| name.to_owned())
        }
    };
    grantees.iter().map(name).collect()
}

/// GRANT and REVOKE on tables, views and schemas. On databases it is [`crate::admin::Node::grant`].
///
/// # Errors
/// What is named is not there, or belongs to someone else.
pub fn grant(
    draft: &Draft,
    actor: &Actor,
    statement: &GrantStatement,
    role_exists: RoleExists<'_>,
) -> Result<CommandResult, SqlError> {
    // The object is looked for before the roles, as in PostgreSQL.
    let grantees = || grantee_names(&actor.role, &statement.grantees, role_exists);
    if let GrantTarget::Relations { names, .. } | GrantTarget::Sequences { names, .. } =
        &statement.target
    {
        draft.lock_owned(actor, names, LockMode::ShareUpdateExclusive)?;
    }
    let mut change = draft.change()?;
    let state = &mut change.state;
    match &statement.target {
        GrantTarget::Relations { privileges, names }
        | GrantTarget::Sequences { privileges, names } => {
            let of_sequences = matches!(statement.target, GrantTarget::Sequences { .. });
            let mut places = Vec::with_capacity(names.len());
            for name in names {
                let found = actor.resolve(state, name)?;
                if of_sequences && !matches!(found.relation, Relation::Sequence(_)) {
                    return Err(not_a_sequence(&found.place.name));
                }
                places.push(found.place);
            }
            grant_relations(
                state,
                actor,
                statement.grant,
                &places,
                privileges,
                &grantees()?,
            )?;
        }
        GrantTarget::AllRelations {
            privileges,
            schemas,
        }
        | GrantTarget::AllSequences {
            privileges,
            schemas,
        } => {
            let of_sequences = matches!(statement.target, GrantTarget::AllSequences { .. });
            let mut places = Vec::new();
            for name in schemas {
                let schema = state
                    .schemas
                    .get(name)
                    .ok_or_else(|| undefined_schema(name))?;
                for (relation, entry) in &schema.relations {
                    if matches!(entry, Relation::Sequence(_)) == of_sequences {
                        places.push(ResolvedName {
                            schema: name.clone(),
                            name: relation.clone(),
                        });
                    }
                }
            }
            grant_relations(
                state,
                actor,
                statement.grant,
                &places,
                privileges,
                &grantees()?,
            )?;
        }
        GrantTarget::Schemas { privileges, names } => {
            let is_missing =
                |name: &&String| !is_system_schema(name) && !state.schemas.contains_key(*name);
            if let Some(missing) = names.iter().find(is_missing) {
                return Err(undefined_schema(missing));
            }
            let grantees = grantees()?;
            for name in names {
                grant_schema(state, actor, statement.grant, name, privileges, &grantees)?;
            }
        }
        GrantTarget::Databases { .. } | GrantTarget::Memberships(_) => {
            return Err(SqlError::new(
                ErrorKind::Internal,
                "privileges on databases are the node's",
            ));
        }
    }
    change.publish()?;
    Ok(CommandResult::new(if statement.grant {
        "GRANT"
    } else {
        "REVOKE"
    }))
}

fn grant_relations(
    state: &mut CatalogState,
    actor: &Actor,
    grant: bool,
    places: &[ResolvedName],
    privileges: &[Privilege],
    grantees: &[String],
) -> Result<(), SqlError> {
    for place in places {
        let relation = relation_mut(state, place)?;
        if !actor.owns(relation.owner()) {
            return Err(denied(relation.kind(), relation.name()));
        }
        // ON TABLE takes sequences, too, and ALL means what there is.
        let privileges = match relation {
            Relation::Sequence(_) if *privileges == RELATION_ALL => &SEQUENCE_ALL[..],
            _ => privileges,
        };
        let is_sequence = matches!(relation, Relation::Sequence(_));
        let grants = relation.grants_mut();
        for role in grantees {
            for &privilege in privileges {
                if is_sequence && !SEQUENCE_ALL.contains(&privilege) {
                    continue;
                }
                toggle(
                    grants,
                    Grant {
                        role: role.clone(),
                        privilege,
                    },
                    grant,
                );
            }
        }
    }
    Ok(())
}

fn grant_schema(
    state: &mut CatalogState,
    actor: &Actor,
    grant: bool,
    name: &str,
    privileges: &[SchemaPrivilege],
    grantees: &[String],
) -> Result<(), SqlError> {
    if is_system_schema(name) {
        return Err(denied("schema", name));
    }
    let schema = state.schema_mut(name)?;
    if !actor.owns_schema(schema) {
        return Err(denied("schema", name));
    }
    for role in grantees {
        for &privilege in privileges {
            toggle(
                &mut schema.grants,
                SchemaGrant {
                    role: role.clone(),
                    privilege,
                },
                grant,
            );
        }
    }
    Ok(())
}

/// Puts an item in, once, or takes it out.
pub(crate) fn toggle<T: PartialEq>(items: &mut Vec<T>, item: T, present: bool) {
    items.retain(|other| *other != item);
    if present {
        items.push(item);
    }
}

/// The relation at a place that was looked up before, to be changed.
pub(super) fn relation_mut<'s>(
    state: &'s mut CatalogState,
    place: &ResolvedName,
) -> Result<&'s mut Relation, SqlError> {
    state
        .schema_mut(&place.schema)?
        .relations
        .get_mut(&place.name)
        .ok_or_else(|| crate::state::undefined_relation(&place.name))
}

impl Relation {
    pub(super) fn grants_mut(&mut self) -> &mut Vec<Grant> {
        match self {
            Relation::Table(table) => &mut Arc::make_mut(table).grants,
            Relation::View(view) => &mut Arc::make_mut(view).grants,
            Relation::Sequence(sequence) => &mut Arc::make_mut(sequence).grants,
        }
    }

    pub(crate) fn set_owner(&mut self, owner: &str) {
        match self {
            Relation::Table(table) => Arc::make_mut(table).owner = owner.to_owned(),
            Relation::View(view) => Arc::make_mut(view).owner = owner.to_owned(),
            Relation::Sequence(sequence) => Arc::make_mut(sequence).owner = owner.to_owned(),
        }
    }

    fn set_comment(&mut self, comment: Option<String>) {
        match self {
            Relation::Table(table) => Arc::make_mut(table).comment = comment,
            Relation::View(view) => Arc::make_mut(view).comment = comment,
            Relation::Sequence(sequence) => Arc::make_mut(sequence).comment = comment,
        }
    }
}

/// A role's name changed: what it owns and was granted follows.
pub(crate) fn rename_role(draft: &Draft, from: &str, to: &str) -> Result<(), SqlError> {
    let mut change = draft.change()?;
    for schema in change.state.schemas.values_mut().map(Arc::make_mut) {
        let renamed = |role: &mut String| {
            if role == from {
                to.clone_into(role);
            }
        };
        renamed(&mut schema.owner);
        schema
            .grants
            .iter_mut()
            .for_each(|grant| renamed(&mut grant.role));
        for relation in schema.relations.values_mut() {
            if relation.owner() == from {
                relation.set_owner(to);
            }
            if relation.grants().iter().any(|grant| grant.role == from) {
                relation
                    .grants_mut()
                    .iter_mut()
                    .for_each(|grant| renamed(&mut grant.role));
            }
        }
    }
    change.publish()
}

/// What a role owns and was granted in a database, in words for an error's detail.
pub(crate) fn belongings(state: &CatalogState, role: &str) -> Vec<String> {
    let mut found = Vec::new();
    for schema in state.schemas.values() {
        // `public` goes with its database, which is told of there.
        if schema.owner == role && schema.name != PUBLIC {
            found.push(format!("owner of schema {}", schema.name));
        }
        if schema.grants.iter().any(|grant| grant.role == role) {
            found.push(format!("privileges for schema {}", schema.name));
        }
    }
    for (_, relation, name) in state.relations() {
        if relation.owner() == role {
            found.push(format!("owner of {} {name}", relation.kind()));
        }
        if relation.grants().iter().any(|grant| grant.role == role) {
            found.push(format!("privileges for {} {name}", relation.kind()));
        }
    }
    found
}

/// COMMENT ON what is in a database. On databases and roles it is [`crate::admin::Node::comment`].
///
/// # Errors
/// What is named is not there, is something else, or belongs to someone else.
pub fn comment(
    draft: &Draft,
    actor: &Actor,
    statement: &CommentStatement,
) -> Result<CommandResult, SqlError> {
    let relation = match &statement.target {
        CommentTarget::Table(name) | CommentTarget::View(name) | CommentTarget::Sequence(name) => {
            Some(name)
        }
        CommentTarget::Column { relation, .. } => Some(relation),
        CommentTarget::Constraint { table, .. } => Some(table),
        _ => None,
    };
    draft.lock_owned(actor, relation, LockMode::ShareUpdateExclusive)?;
    let mut change = draft.change()?;
    let state = &mut change.state;
    let text = statement.text.clone();
    match &statement.target {
        CommentTarget::Table(name) => owned(state, actor, name, Some("table"))?.set_comment(text),
        CommentTarget::View(name) => owned(state, actor, name, Some("view"))?.set_comment(text),
        CommentTarget::Sequence(name) => {
            owned(state, actor, name, Some("sequence"))?.set_comment(text);
        }
        CommentTarget::Column { relation, column } => {
            let relation = owned(state, actor, relation, None)?;
            if !relation
                .columns()
                .iter()
                .any(|candidate| candidate.name == *column)
            {
                return Err(SqlError::new(
                    ErrorKind::UndefinedColumn,
                    format!(
                        "column \"{column}\" of relation \"{}\" does not exist",
                        relation.name()
                    ),
                ));
            }
            comment_on_column(relation, column, text)?;
        }
        CommentTarget::Constraint { table, name } => {
            let table = owned_table(state, actor, table)?;
            if !table.has_constraint(name) {
                let message = format!(
                    "constraint \"{name}\" for table \"{}\" does not exist",
                    table.name
                );
                return Err(SqlError::new(ErrorKind::UndefinedObject, message));
            }
            put(&mut table.part_comments.constraints, name, text);
        }
        CommentTarget::Index(name) => {
            let (place, ..) = index::locate(state, actor, name)?;
            if let Relation::Table(table) = relation_mut(state, &place)? {
                let comments = &mut Arc::make_mut(table).part_comments.indexes;
                put(comments, &name.name, text);
            }
        }
        CommentTarget::Schema(name) => {
            if is_system_schema(name) {
                return Err(not_owner("schema", name));
            }
            let schema = state.schema_mut(name)?;
            actor.require_schema_ownership(schema)?;
            schema.comment = text;
        }
        CommentTarget::Database(_) | CommentTarget::Role(_) => {
            return Err(SqlError::new(
                ErrorKind::Internal,
                "comments on databases and roles are the node's",
            ));
        }
    }
    change.publish()?;
    Ok(CommandResult::new("COMMENT"))
}

fn owned<'s>(
    state: &'s mut CatalogState,
    actor: &Actor,
    name: &QualifiedName,
    kind: Option<&str>,
) -> Result<&'s mut Relation, SqlError> {
    let Found { place, relation } = actor.resolve(state, name)?;
    if let Some(kind) = kind.filter(|kind| *kind != relation.kind()) {
        return Err(SqlError::new(
            ErrorKind::WrongObjectType,
            format!("\"{}\" is not a {kind}", name.name),
        ));
    }
    actor.require_ownership(relation)?;
    relation_mut(state, &place)
}

fn owned_table<'s>(
    state: &'s mut CatalogState,
    actor: &Actor,
    name: &QualifiedName,
) -> Result<&'s mut TableEntry, SqlError> {
    match owned(state, actor, name, None)? {
        Relation::Table(table) => Ok(Arc::make_mut(table)),
        Relation::View(_) | Relation::Sequence(_) => Err(SqlError::new(
            ErrorKind::WrongObjectType,
            format!("\"{}\" is not a table", name.name),
        )),
    }
}

fn comment_on_column(
    relation: &mut Relation,
    column: &str,
    text: Option<String>,
) -> Result<(), SqlError> {
    let comments = match relation {
        Relation::Table(table) => &mut Arc::make_mut(table).column_comments,
        Relation::View(view) => &mut Arc::make_mut(view).column_comments,
        Relation::Sequence(sequence) => {
            let message = format!("cannot set comment on relation \"{}\"", sequence.name);
            return Err(SqlError::new(ErrorKind::WrongObjectType, message)
                .with_detail("This operation is not supported for sequences."));
        }
    };
    put(comments, column, text);
    Ok(())
}
