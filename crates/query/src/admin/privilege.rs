//! GRANT and REVOKE on databases, and COMMENT ON databases and roles.

use aerostat_types::{ErrorKind, SqlError};

use super::{
    database::require_owner,
    node::{Node, role_in, undefined_database, undefined_role},
};
use crate::{
    ddl::{self, Actor, CommandResult},
    utility::{CommentStatement, CommentTarget, DatabasePrivilege, GrantStatement, GrantTarget},
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
        let GrantTarget::Databases { privileges, names } = &statement.target else {
            return Err(SqlError::new(
                ErrorKind::Internal,
                "privileges in a database are not the node's",
            ));
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
