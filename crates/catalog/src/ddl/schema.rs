//! CREATE SCHEMA.

use std::{collections::BTreeMap, sync::Arc};

use aerostat_api::{Notice, NoticeSeverity};
use aerostat_sql::utility::RoleName;
use aerostat_types::{ErrorKind, SchemaId, SqlError};

use super::{CommandResult, RoleExists, privilege::denied, search_path::is_system_schema};
use crate::{
    actor::Actor,
    state::{Draft, SchemaEntry, duplicate_schema},
};

pub(super) fn create(
    draft: &Draft,
    actor: &Actor,
    name: Option<&str>,
    owner: Option<&RoleName>,
    if_not_exists: bool,
    role_exists: RoleExists<'_>,
) -> Result<CommandResult, SqlError> {
    let owner = match owner {
        Some(owner) => actor.new_owner(owner, role_exists)?,
        None => actor.role.clone(),
    };
    let name = name.unwrap_or(&owner);
    if !actor.superuser && !actor.database_owner && !actor.create_in_database {
        return Err(denied("database", &actor.database));
    }
    check_schema_name(name)?;
    let mut change = draft.change()?;
    if is_system_schema(name) || change.state.schemas.contains_key(name) {
        let error = duplicate_schema(name);
        if !if_not_exists {
            return Err(error);
        }
        let notice = Notice {
            kind: Some(error.kind),
            ..Notice::new(
                NoticeSeverity::Notice,
                format!("{}, skipping", error.message),
            )
        };
        return Ok(CommandResult::new("CREATE SCHEMA").with_notices(vec![notice]));
    }
    let oid = SchemaId(change.state.allocate_oid()?);
    let entry = SchemaEntry {
        oid,
        name: name.to_owned(),
        owner: owner.clone(),
        relations: BTreeMap::new(),
        comment: None,
        grants: Vec::new(),
    };
    change
        .state
        .schemas
        .insert(name.to_owned(), Arc::new(entry));
    change.publish()?;
    Ok(CommandResult::new("CREATE SCHEMA"))
}

/// # Errors
/// The name is kept for the system.
pub(super) fn check_schema_name(name: &str) -> Result<(), SqlError> {
    if !name.starts_with("pg_") || is_system_schema(name) {
        return Ok(());
    }
    Err(SqlError::new(
        ErrorKind::ReservedName,
        format!("unacceptable schema name \"{name}\""),
    )
    .with_detail("The prefix \"pg_\" is reserved for system schemas."))
}
