//! Privileges, and access-control lists as PostgreSQL writes them.

use std::collections::BTreeSet;

use aerostat_catalog::PUBLIC as EVERYONE;
use aerostat_sql::{
    grants::{Privilege, SchemaPrivilege},
    names::{AEROSTAT, INFORMATION_SCHEMA, PG_CATALOG},
};
use aerostat_types::quote_ident;

use super::classes::{Class, ClassKind};
use crate::{CatalogView, data::SystemRelation};

impl CatalogView {
    /// Whether a role may do something with a relation.
    pub(crate) fn may(&self, role: &str, class: &Class, privilege: Privilege) -> bool {
        if self.is_superuser(role) {
            return true;
        }
        if let ClassKind::System(relation) = class.kind {
            return privilege == Privilege::Select && !is_secret(relation);
        }
        class.owner() == Some(role)
            || class.grants().iter().any(|grant| {
                grant.privilege == privilege && (grant.role == role || grant.role == EVERYONE)
            })
    }

    /// Whether a role may do anything at all with a relation.
    pub(crate) fn may_anything(&self, role: &str, class: &Class) -> bool {
        privileges_of(class)
            .iter()
            .any(|&(privilege, ..)| self.may(role, class, privilege))
    }

    /// `pg_class.relacl`: NULL while nothing was granted, as in PostgreSQL.
    pub(crate) fn relation_acl(&self, class: &Class) -> Option<Vec<String>> {
        let (owner, grants) = (class.owner()?, class.grants());
        if grants.is_empty() {
            return None;
        }
        let privileges = privileges_of(class);
        let all: String = privileges.iter().map(|&(_, letter, _)| letter).collect();
        let mut acl = vec![acl_item(owner, &all, owner)];
        let roles: BTreeSet<&str> = grants
            .iter()
            .map(|grant| grant.role.as_str())
            .filter(|role| *role != owner)
            .collect();
        for role in roles {
            let letters: String = privileges
                .iter()
                .filter(|(privilege, ..)| {
                    grants
                        .iter()
                        .any(|grant| grant.role == role && grant.privilege == *privilege)
                })
                .map(|&(_, letter, _)| letter)
                .collect();
            acl.push(acl_item(role, &letters, owner));
        }
        Some(acl)
    }

    /// `pg_database.datacl`.
    pub(crate) fn database_acl(&self, name: &str) -> Option<Vec<String>> {
        let database = self.node.databases.get(name)?;
        let owner = &database.owner;
        let mut acl = vec![acl_item(owner, "Cc", owner)];
        let others: BTreeSet<&String> = database
            .connect
            .iter()
            .chain(&database.create)
            .filter(|role| *role != owner)
            .collect();
        for role in others {
            let create = if database.create.contains(role) {
                "C"
            } else {
                ""
            };
            let connect = if database.connect.contains(role) {
                "c"
            } else {
                ""
            };
            acl.push(acl_item(role, &format!("{create}{connect}"), owner));
        }
        Some(acl)
    }

    /// `pg_namespace.nspacl`: NULL while nothing was granted, as in PostgreSQL.
    pub(crate) fn schema_acl(&self, name: &str) -> Option<Vec<String>> {
        let Some(schema) = self.state.schemas.get(name) else {
            let owner = self.system_owner();
            return Some(vec![
                acl_item(owner, "UC", owner),
                acl_item(EVERYONE, "U", owner),
            ]);
        };
        if schema.grants.is_empty() {
            return None;
        }
        let owner = &schema.owner;
        let mut acl = vec![acl_item(owner, "UC", owner)];
        let roles: BTreeSet<&String> = schema
            .grants
            .iter()
            .map(|grant| &grant.role)
            .filter(|role| *role != owner)
            .collect();
        for role in roles {
            let letters: String = [
                (SchemaPrivilege::Usage, 'U'),
                (SchemaPrivilege::Create, 'C'),
            ]
            .iter()
            .filter(|(privilege, _)| {
                schema
                    .grants
                    .iter()
                    .any(|grant| grant.role == *role && grant.privilege == *privilege)
            })
            .map(|&(_, letter)| letter)
            .collect();
            acl.push(acl_item(role, &letters, owner));
        }
        Some(acl)
    }

    /// Whether a role may do something with a schema; `None` for one that is not there.
    pub(crate) fn may_with_schema(
        &self,
        role: &str,
        schema: &str,
        privilege: SchemaPrivilege,
    ) -> Option<bool> {
        let granted = match self.state.schemas.get(schema) {
            Some(entry) => {
                entry.owner == role
                    || entry.grants.iter().any(|grant| {
                        grant.privilege == privilege
                            && (grant.role == role || grant.role == EVERYONE)
                    })
            }
            None if is_system_schema(schema) => privilege == SchemaPrivilege::Usage,
            None => return None,
        };
        Some(granted || self.is_superuser(role))
    }
}

/// Whether only superusers may read the relation: it holds what proves passwords.
pub(crate) fn is_secret(relation: &SystemRelation) -> bool {
    relation.schema == PG_CATALOG && matches!(relation.name, "pg_authid" | "pg_shadow")
}

/// Whether a schema holds system relations.
fn is_system_schema(schema: &str) -> bool {
    matches!(schema, PG_CATALOG | INFORMATION_SCHEMA | AEROSTAT)
}

/// Whether one of the grantees is the role or everyone.
pub(crate) fn is_granted(grantees: &[String], role: &str) -> bool {
    grantees
        .iter()
        .any(|grantee| grantee == role || grantee == EVERYONE)
}

/// Privileges in the order of PostgreSQL's ACL letters.
pub(crate) const PRIVILEGES: [(Privilege, char, &str); 5] = [
    (Privilege::Insert, 'a', "INSERT"),
    (Privilege::Select, 'r', "SELECT"),
    (Privilege::Update, 'w', "UPDATE"),
    (Privilege::Delete, 'd', "DELETE"),
    (Privilege::Truncate, 'D', "TRUNCATE"),
];

/// Those of a sequence.
const SEQUENCE_PRIVILEGES: [(Privilege, char, &str); 3] = [
    (Privilege::Select, 'r', "SELECT"),
    (Privilege::Update, 'w', "UPDATE"),
    (Privilege::Usage, 'U', "USAGE"),
];

/// What one may do with something.
pub(crate) fn privileges_of(class: &Class) -> &'static [(Privilege, char, &'static str)] {
    match class.kind {
        ClassKind::Sequence(_) => &SEQUENCE_PRIVILEGES,
        _ => &PRIVILEGES,
    }
}

/// The rights on a new object of this kind, in PostgreSQL's letters for kinds; `None` for another
/// letter. Those on relations are the ones that there are here.
pub(crate) fn default_acl(kind: &str, owner: &str) -> Option<Vec<String>> {
    let letters = |privileges: &[(Privilege, char, &str)]| -> String {
        privileges.iter().map(|&(_, letter, _)| letter).collect()
    };
    let (everyone, owners) = match kind {
        "c" => ("", String::new()),
        "r" => ("", letters(&PRIVILEGES)),
        "s" => ("", letters(&SEQUENCE_PRIVILEGES)),
        "d" => ("Tc", "CTc".to_owned()),
        "f" => ("X", "X".to_owned()),
        "l" | "T" => ("U", "U".to_owned()),
        "L" => ("", "rw".to_owned()),
        "n" => ("", "UC".to_owned()),
        "p" => ("", "sA".to_owned()),
        "t" => ("", "C".to_owned()),
        "F" | "S" => ("", "U".to_owned()),
        _ => return None,
    };
    let items = [(EVERYONE, everyone), (owner, owners.as_str())];
    let given = items.into_iter().filter(|(_, letters)| !letters.is_empty());
    Some(
        given
            .map(|(role, letters)| acl_item(role, letters, owner))
            .collect(),
    )
}

fn acl_item(role: &str, letters: &str, grantor: &str) -> String {
    let role = if role == EVERYONE { "" } else { role };
    // PUBLIC has no name, and so nothing to quote.
    let role = if role.is_empty() {
        String::new()
    } else {
        quote_ident(role)
    };
    format!("{role}={letters}/{}", quote_ident(grantor))
}
