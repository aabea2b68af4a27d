//! GRANT and REVOKE on databases, and COMMENT ON databases and roles.

use aerostat_api::{Notice, NoticeSeverity};
use aerostat_sql::{
    grants::PredefinedRole,
    utility::{
        CommentStatement, CommentTarget, DatabasePrivilege, GrantStatement, GrantTarget, Grantee,
    },
};
use aerostat_types::{ErrorKind, SqlError};

use super::{
    database::require_owner,
    node::{Node, role_in, undefined_database},
};
use crate::{
    actor::Actor,
    ddl::{self, CommandResult},
    state::{PUBLIC, undefined_role},
};

impl Node {
    /// GRANT and REVOKE on databases. On all else it is [`crate::ddl::grant`].
    ///
    /// # Errors
    /// A database or role is not there, or belongs to someone else.
    pub fn grant(
        &self,
        actor: &Actor,
        statement: &GrantStatement,
    ) -> Result<CommandResult, SqlError> {
        let (privileges, names) = match &statement.target {
            GrantTarget::Databases { privileges, names } => (privileges, names),
            GrantTarget::Memberships(roles) => {
                return self.grant_memberships(actor, statement, roles);
            }
            _ => {
                return Err(SqlError::new(
                    ErrorKind::Internal,
                    "privileges in a database are not the node's",
                ));
            }
        };
        self.change(|record| {
            let grantees = ddl::grantee_names(&actor.role, &statement.grantees, &|name| {
                record.roles.contains_key(name)
            })?;
            for name in names {
                let entry = record
                    .databases
                    .get_mut(name)
                    .ok_or_else(|| undefined_database(name))?;
                if !actor.owns(&entry.owner) {
                    return Err(ddl::denied("database", name));
                }
                for privilege in privileges {
                    let list = match privilege {
                        DatabasePrivilege::Connect => &mut entry.connect,
                        DatabasePrivilege::Create => &mut entry.create,
                        DatabasePrivilege::Temporary => continue,
                    };
                    for grantee in &grantees {
                        ddl::toggle(list, grantee.clone(), statement.grant);
                    }
                }
            }
            Ok(CommandResult::new(statement.tag()))
        })
    }

    /// Makes roles members of predefined ones, or makes them none. What members may do is the
    /// operator's to give, so only superusers do; CREATEROLE is not enough.
    fn grant_memberships(
        &self,
        actor: &Actor,
        statement: &GrantStatement,
        roles: &[PredefinedRole],
    ) -> Result<CommandResult, SqlError> {
        self.change(|record| {
            if !role_in(record, &actor.role)?.superuser {
                let name = roles.first().map_or("", |role| role.name());
                let message = format!("must be superuser to grant membership in role \"{name}\"");
                return Err(SqlError::new(ErrorKind::InsufficientPrivilege, message));
            }
            let mut notices = Vec::new();
            for grantee in &statement.grantees {
                let name = match grantee {
                    Grantee::Public => PUBLIC,
                    Grantee::Role(name) => name.of(&actor.role),
                };
                let member = record.roles.get_mut(name);
                let member = member.ok_or_else(|| undefined_role(name))?;
                for &role in roles {
                    let (changed, message, severity) = match statement.grant {
                        true => (
                            member.member_of.insert(role),
                            "is already a member of",
                            NoticeSeverity::Notice,
                        ),
                        false => (
                            member.member_of.remove(&role),
                            "is not a member of",
                            NoticeSeverity::Warning,
                        ),
                    };
                    if !changed {
                        let of = role.name();
                        let text = format!("role \"{name}\" {message} role \"{of}\"");
                        notices.push(Notice::new(severity, text));
                    }
                }
            }
            let tag = match statement.grant {
                true => "GRANT ROLE",
                false => "REVOKE ROLE",
            };
            Ok(CommandResult::new(tag).with_notices(notices))
        })
    }

    /// COMMENT ON a database or role. On all else it is [`crate::ddl::comment`].
    ///
    /// # Errors
    /// It is not there, or the actor may not change it.
    pub fn comment(
        &self,
        actor: &Actor,
        statement: &CommentStatement,
    ) -> Result<CommandResult, SqlError> {
        let text = statement.text.clone();
        self.change(|record| {
            match &statement.target {
                CommentTarget::Database(name) => {
                    let entry = record
                        .databases
                        .get_mut(name)
                        .ok_or_else(|| undefined_database(name))?;
                    require_owner(actor, name, entry)?;
                    entry.comment = text;
                }
                CommentTarget::Role(name) => {
                    let name = name.of(&actor.role);
                    let rights = role_in(record, &actor.role)?;
                    let (superuser, create_role) = (rights.superuser, rights.create_role);
                    let role = record
                        .roles
                        .get_mut(name)
                        .ok_or_else(|| undefined_role(name))?;
                    if !superuser && (role.superuser || !create_role) {
                        return Err(SqlError::new(
                            ErrorKind::InsufficientPrivilege,
                            "must have CREATEROLE privilege",
                        ));
                    }
                    role.comment = text;
                }
                _ => {
                    return Err(SqlError::new(
                        ErrorKind::Internal,
                        "comments in a database are not the node's",
                    ));
                }
            }
            Ok(CommandResult::new("COMMENT"))
        })
    }
}
