//! The input of the system catalogue: one statement's consistent view of the node's roles and
//! databases, the database's schemas and relations, and the session that asks.

pub(crate) mod classes;
pub(crate) mod copies;
pub(crate) mod definition;
pub(crate) mod facts;
pub(crate) mod numbers;
pub(crate) mod parts;
pub(crate) mod rights;
pub(crate) mod settings;
pub(crate) mod waits;

use std::sync::Arc;

use aerostat_catalog::{
    AEROSTAT_OID, CatalogState, INFORMATION_SCHEMA_OID, NodeRecord, PG_CATALOG_OID,
};
use aerostat_sql::{
    grants::PredefinedRole,
    names::{AEROSTAT, INFORMATION_SCHEMA, PG_CATALOG},
    sequence_text as text,
};
use aerostat_types::{RoleId, SchemaId, quote_ident};

use classes::ClassIndex;
use facts::{Facts, FunctionDescription};

/// One statement's view of everything the system catalogue shows.
#[derive(Clone)]
pub struct CatalogView {
    /// Roles and databases.
    pub node: Arc<NodeRecord>,
    /// The database the session is connected to.
    pub database: String,
    /// Its schemas and relations.
    pub state: Arc<CatalogState>,
    /// The role whose rights count.
    pub role: String,
    /// The role that connected.
    pub session_role: String,
    /// Whether `role` is a superuser.
    pub superuser: bool,
    /// The schemas that unqualified names go to, in order; without `pg_catalog`, which is always first.
    pub search_path: Vec<String>,
    /// The number that identifies the session to `pg_cancel_backend` and in `pg_stat_activity`.
    pub backend_pid: i32,
    /// What only the running node knows.
    pub facts: Arc<dyn Facts>,
    /// The functions that SQL can call beside those of this module, for `pg_proc`.
    pub functions: Arc<[FunctionDescription]>,
    /// Made on first use; start with the default.
    pub index: Arc<ClassIndex>,
}

impl CatalogView {
    /// Whether the role is a superuser.
    pub fn is_superuser(&self, role: &str) -> bool {
        self.node
            .roles
            .get(role)
            .is_some_and(|record| record.superuser)
    }

    /// Whether the role may do what members of a predefined role may.
    pub(crate) fn is_member(&self, of: PredefinedRole) -> bool {
        let role = self.node.roles.get(&self.role);
        role.is_some_and(|role| role.is_member_of(of))
    }

    /// Whether the role may see what others' sessions do and what others' databases take.
    pub(crate) fn may_read_all_statistics(&self) -> bool {
        self.is_member(PredefinedRole::PgReadAllStats)
    }

    /// The predefined roles, without one whose name a role had before there were any.
    pub(crate) fn predefined_roles(&self) -> impl Iterator<Item = PredefinedRole> {
        let all = PredefinedRole::ALL.into_iter();
        all.filter(|role| !self.node.roles.contains_key(role.name()))
    }

    /// The text of a default with the names of sequences.
    pub(crate) fn shown_default(&self, default: &str) -> String {
        text::shown(default, &|oid| {
            let class = self.class(oid.into())?;
            let name = quote_ident(&class.name);
            Some(match self.is_visible(class) {
                true => name,
                false => format!("{}.{name}", quote_ident(&class.schema)),
            })
        })
    }

    /// The number of a role; [`RoleId::NONE`] if there is none.
    pub(crate) fn role_oid(&self, name: &str) -> RoleId {
        let predefined = || PredefinedRole::named(name).map(PredefinedRole::oid);
        let role = self.node.roles.get(name).map(|role| role.oid);
        role.or_else(predefined).unwrap_or(RoleId::NONE)
    }

    /// The role with this number.
    pub(crate) fn role_name(&self, oid: i64) -> Option<&str> {
        self.node
            .roles
            .iter()
            .find(|(_, role)| i64::from(role.oid) == oid)
            .map(|(name, _)| name.as_str())
            .or_else(|| {
                let mut predefined = PredefinedRole::ALL.into_iter();
                Some(predefined.find(|role| i64::from(role.oid()) == oid)?.name())
            })
    }

    /// The role that owns what nobody made: the superuser that was there first.
    pub(crate) fn system_owner(&self) -> &str {
        self.node
            .roles
            .iter()
            .filter(|(_, role)| role.superuser)
            .min_by_key(|(_, role)| role.oid)
            .map_or("", |(name, _)| name.as_str())
    }

    /// All schemas: number, name, owner, comment.
    pub(crate) fn schemas(&self) -> Vec<(SchemaId, &str, &str, Option<&str>)> {
        let system = self.system_owner();
        let mut all = vec![
            (
                PG_CATALOG_OID,
                PG_CATALOG,
                system,
                Some("system catalog schema"),
            ),
            (INFORMATION_SCHEMA_OID, INFORMATION_SCHEMA, system, None),
            (
                AEROSTAT_OID,
                AEROSTAT,
                system,
                Some("system views of Aerostat"),
            ),
        ];
        all.extend(self.state.schemas.values().map(|schema| {
            (
                schema.oid,
                schema.name.as_str(),
                schema.owner.as_str(),
                schema.comment.as_deref(),
            )
        }));
        all
    }
}
