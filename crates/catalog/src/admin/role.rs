//! CREATE, ALTER and DROP ROLE.

use std::collections::BTreeSet;

use aerostat_api::{Notice, NoticeSeverity, hash_password};
use aerostat_sql::{
    grants::PredefinedRole,
    utility::{Password, RoleCommand, RoleName, RoleOptions},
};
use aerostat_types::{ErrorKind, RoleId, SqlError};

use super::{
    closed::Look,
    databases::{Databases, Stage},
    node::{Node, allocate_oid, role_in},
    record::BOOTSTRAP_OID,
};
use crate::{
    actor::Actor,
    ddl::{CommandResult, belongings, rename_role},
    state::{NodeRecord, PUBLIC, RoleRecord, UnknownFields, undefined_role},
};

/// What cannot be done while a database cannot be looked into.
const DROP: &str = "drop a role";

impl Node {
    /// Runs CREATE, ALTER or DROP ROLE.
    ///
    /// # Errors
    /// As PostgreSQL: names, rights, what belongs to a role that is to go;
    /// `IoError` when it cannot be stored.
    pub fn execute_role(
        &self,
        actor: &Actor,
        command: &RoleCommand,
    ) -> Result<CommandResult, SqlError> {
        let done = CommandResult::new(command.tag());
        Ok(match command {
            RoleCommand::Create { name, options } => {
                done.with_notices(self.create_role(actor, name, options)?)
            }
            RoleCommand::Alter { role, options } => {
                done.with_notices(self.alter_role(actor, role.of(&actor.role), options)?)
            }
            RoleCommand::Rename { role, to } => {
                self.rename_role(actor, role.of(&actor.role), to)?;
                done
            }
            RoleCommand::Drop { roles, if_exists } => {
                done.with_notices(self.drop_roles(actor, roles, *if_exists)?)
            }
        })
    }

    /// Gives a role a password, as the operator, who needs no session.
    ///
    /// # Errors
    /// There is no such role, or it cannot be stored.
    pub fn set_password(&self, name: &str, password: &str) -> Result<(), SqlError> {
        let verifier = hash_password(password)?;
        self.change(|record| {
            let role = record.roles.get_mut(name);
            role.ok_or_else(|| undefined_role(name))?.verifier = verifier;
            Ok(())
        })
    }

    fn create_role(
        &self,
        actor: &Actor,
        name: &str,
        options: &RoleOptions,
    ) -> Result<Vec<Notice>, SqlError> {
        check_name(name)?;
        let (verifier, notices) = verifier(options)?;
        self.change(|record| {
            let rights = role_in(record, &actor.role)?;
            if !rights.superuser && !rights.create_role {
                return Err(denied("permission denied to create role"));
            }
            if options.superuser == Some(true) && !rights.superuser {
                return Err(denied("must be superuser to create superusers"));
            }
            if is_taken(record, name) {
                return Err(duplicate(name));
            }
            let mut role = RoleRecord {
                oid: RoleId(allocate_oid(record)?),
                superuser: false,
                login: false,
                create_database: false,
                create_role: false,
                connection_limit: -1,
                verifier: None,
                comment: None,
                member_of: BTreeSet::new(),
                unknown: UnknownFields::new(),
            };
            apply(&mut role, options, verifier);
            record.roles.insert(name.to_owned(), role);
            Ok(notices)
        })
    }

    fn alter_role(
        &self,
        actor: &Actor,
        name: &str,
        options: &RoleOptions,
    ) -> Result<Vec<Notice>, SqlError> {
        let (verifier, notices) = verifier(options)?;
        self.change(|record| {
            let rights = role_in(record, &actor.role)?;
            let target = role_in(record, name)?;
            let password_alone = RoleOptions {
                password: options.password.clone(),
                ..RoleOptions::default()
            };
            let own_password = name == actor.role && *options == password_alone;
            if (target.superuser || options.superuser.is_some())
                && !rights.superuser
                && !own_password
            {
                return Err(denied(
                    "must be superuser to alter superuser roles or change superuser attribute",
                ));
            }
            // Whoever sets a role's password can be that role.
            if !target.member_of.is_empty() && !rights.superuser && !own_password {
                return Err(denied(
                    "must be superuser to alter members of predefined roles",
                ));
            }
            if !rights.superuser && !rights.create_role && !own_password {
                return Err(denied("permission denied to alter role"));
            }
            if target.oid == BOOTSTRAP_OID && options.superuser == Some(false) {
                return Err(denied("permission denied to alter role")
                    .with_detail("The bootstrap user must have the SUPERUSER attribute."));
            }
            let target = record
                .roles
                .get_mut(name)
                .ok_or_else(|| undefined_role(name))?;
            apply(target, options, verifier);
            Ok(notices)
        })
    }

    fn rename_role(&self, actor: &Actor, name: &str, to: &str) -> Result<(), SqlError> {
        check_name(to)?;
        const DOING: &str = "rename a role";
        self.change_knowing(
            DOING,
            |record, databases| {
                let rights = role_in(record, &actor.role)?;
                let target = role_in(record, name)?;
                require_power_over(rights, target, "rename")?;
                databases.require_readable(DOING)?;
                if name == actor.role {
                    return Err(SqlError::new(
                        ErrorKind::FeatureNotSupported,
                        "session user cannot be renamed",
                    ));
                }
                self.require_unconnected(name, "renamed")?;
                if is_taken(record, to) {
                    return Err(duplicate(to));
                }
                let shut = databases.shut_with(name);
                if !shut.is_empty() {
                    return Ok(Look::Shut(shut));
                }
                let mut inside = databases.stages().filter_map(|(_, stage)| stage.inside());
                inside.try_for_each(|database| self.require_changeable(database, "ALTER ROLE"))?;
                rename_in(record, name, to);
                Ok(Look::Seen(()))
            },
            |databases, ()| {
                let mut inside = databases.stages().filter_map(|(_, stage)| stage.inside());
                inside
                    .try_for_each(|database| database.define(|draft| rename_role(draft, name, to)))
            },
        )?
    }

    fn drop_roles(
        &self,
        actor: &Actor,
        roles: &[RoleName],
        if_exists: bool,
    ) -> Result<Vec<Notice>, SqlError> {
        self.change_knowing(
            DROP,
            |record, databases| {
                let mut notices = Vec::new();
                for role in roles {
                    let name = role.of(&actor.role);
                    let rights = role_in(record, &actor.role)?;
                    match role_in(record, name) {
                        Err(error) if if_exists => {
                            let message = format!("{}, skipping", error.message);
                            notices.push(Notice::new(NoticeSeverity::Notice, message));
                        }
                        Err(error) => return Err(error),
                        Ok(target) => {
                            require_power_over(rights, target, "drop")?;
                            self.require_droppable(actor, record, databases, name, target)?;
                            record.roles.remove(name);
                        }
                    }
                }
                Ok(Look::Seen(notices))
            },
            |_, notices| notices,
        )
    }

    fn require_droppable(
        &self,
        actor: &Actor,
        record: &NodeRecord,
        databases: &Databases,
        name: &str,
        target: &RoleRecord,
    ) -> Result<(), SqlError> {
        if name == actor.role {
            return Err(SqlError::new(
                ErrorKind::ObjectInUse,
                "current user cannot be dropped",
            ));
        }
        if target.oid == BOOTSTRAP_OID {
            return Err(SqlError::new(
                ErrorKind::DependentObjectsStillExist,
                format!("cannot drop role {name} because it is required by the database system"),
            ));
        }
        self.require_unconnected(name, "dropped")?;
        self.require_all_changeable(databases, "DROP ROLE")?;
        let mut lines = Vec::new();
        for (database, entry) in &record.databases {
            if entry.owner == name {
                lines.push(format!("owner of database {database}"));
            }
            if entry
                .connect
                .iter()
                .chain(&entry.create)
                .any(|grantee| grantee == name)
            {
                lines.push(format!("privileges for database {database}"));
            }
        }
        databases.require_readable(DROP)?;
        for (database, stage) in databases.stages() {
            let inside = match stage {
                Stage::Open(open) | Stage::Leaving(open) => belongings(&open.catalog.load(), name),
                Stage::Closed(closed) => closed
                    .named
                    .get()
                    .and_then(|named| named.belongings(name))
                    .into_iter()
                    .collect(),
                _ => Vec::new(),
            };
            let inside = inside.into_iter();
            lines.extend(inside.map(|line| format!("{line} in database {database}")));
        }
        if lines.is_empty() {
            return Ok(());
        }
        lines.sort();
        Err(SqlError::new(
            ErrorKind::DependentObjectsStillExist,
            format!("role \"{name}\" cannot be dropped because some objects depend on it"),
        )
        .with_detail(lines.join("\n")))
    }

    /// A session knows its role by name, so the name must mean the same as long as it lasts.
    fn require_unconnected(&self, name: &str, what: &str) -> Result<(), SqlError> {
        if self.counts.of_role(name) == 0 {
            return Ok(());
        }
        Err(SqlError::new(
            ErrorKind::ObjectInUse,
            format!("role \"{name}\" cannot be {what} because it is connected"),
        ))
    }
}

fn is_taken(record: &NodeRecord, name: &str) -> bool {
    record.roles.contains_key(name) || PredefinedRole::named(name).is_some()
}

fn check_name(name: &str) -> Result<(), SqlError> {
    let reserved = |detail: Option<&str>| {
        let error = SqlError::new(
            ErrorKind::ReservedName,
            format!("role name \"{name}\" is reserved"),
        );
        Err(match detail {
            Some(detail) => error.with_detail(detail),
            None => error,
        })
    };
    match name {
        PUBLIC | "none" => reserved(None),
        _ if name.starts_with("pg_") => {
            reserved(Some("Role names starting with \"pg_\" are reserved."))
        }
        _ => Ok(()),
    }
}

/// What is to be stored of a password that was given: the outer `None` if none was.
fn verifier(options: &RoleOptions) -> Result<(Option<Option<String>>, Vec<Notice>), SqlError> {
    match &options.password {
        None => Ok((None, Vec::new())),
        Some(Password::None) => Ok((Some(None), Vec::new())),
        Some(Password::Text(text)) => {
            let verifier = hash_password(text)?;
            let notices = match verifier {
                Some(_) => Vec::new(),
                None => vec![Notice::new(
                    NoticeSeverity::Notice,
                    "empty string is not a valid password, clearing password",
                )],
            };
            Ok((Some(verifier), notices))
        }
    }
}

fn apply(role: &mut RoleRecord, options: &RoleOptions, verifier: Option<Option<String>>) {
    let set = |slot: &mut bool, value: Option<bool>| *slot = value.unwrap_or(*slot);
    set(&mut role.superuser, options.superuser);
    set(&mut role.login, options.login);
    set(&mut role.create_database, options.create_database);
    set(&mut role.create_role, options.create_role);
    if let Some(limit) = options.connection_limit {
        role.connection_limit = limit;
    }
    if let Some(verifier) = verifier {
        role.verifier = verifier;
    }
}

fn require_power_over(
    rights: &RoleRecord,
    target: &RoleRecord,
    what: &str,
) -> Result<(), SqlError> {
    let is_plain = !target.superuser && target.member_of.is_empty();
    if rights.superuser || (rights.create_role && is_plain) {
        return Ok(());
    }
    Err(denied(if target.superuser && rights.create_role {
        format!("must be superuser to {what} superusers")
    } else if rights.create_role {
        format!("must be superuser to {what} members of predefined roles")
    } else {
        format!("permission denied to {what} role")
    }))
}

fn rename_in(record: &mut NodeRecord, from: &str, to: &str) {
    if let Some(role) = record.roles.remove(from) {
        record.roles.insert(to.to_owned(), role);
    }
    for entry in record.databases.values_mut() {
        let names = std::iter::once(&mut entry.owner)
            .chain(&mut entry.connect)
            .chain(&mut entry.create);
        names
            .filter(|name| *name == from)
            .for_each(|name| to.clone_into(name));
    }
}

fn duplicate(name: &str) -> SqlError {
    SqlError::new(
        ErrorKind::DuplicateObject,
        format!("role \"{name}\" already exists"),
    )
}

fn denied(message: impl Into<String>) -> SqlError {
    SqlError::new(ErrorKind::InsufficientPrivilege, message)
}
