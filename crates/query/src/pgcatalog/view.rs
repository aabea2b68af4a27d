//! What the system catalogue is computed from: one statement's consistent view of
//! the node's roles and databases, the database's schemas and relations, and the
//! session that asks.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, OnceLock},
};

use aerostat_types::{Column, SqlError};

use super::data::{self, SystemRelation};
use crate::catalog::{
    AEROSTAT, AEROSTAT_OID, CatalogState, Grant, INFORMATION_SCHEMA, INFORMATION_SCHEMA_OID,
    PG_CATALOG, PG_CATALOG_OID, Privilege, Relation, SchemaPrivilege, TableEntry, ViewEntry,
    node::NodeRecord,
};

/// The name that stands for every role in grants.
const EVERYONE: &str = "public";

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

/// What only the running node and the session know. Asked when a relation that shows it is scanned.
pub trait Facts: Send + Sync {
    /// The text of `version()`; must begin with `PostgreSQL ` and a version number, as drivers parse it.
    fn version(&self) -> String;
    /// All settings with their values in this session.
    fn settings(&self) -> Vec<Setting>;
    /// Sets a setting for the session and gives its new value; the hook of `set_config`.
    ///
    /// # Errors
    /// There is no such setting, or it does not take the value.
    fn set(&self, name: &str, value: &str, is_local: bool) -> Result<String, SqlError>;
    /// Sessions connected now, of all databases.
    fn sessions(&self) -> Vec<SessionDescription>;
    /// Prepared statements of this session.
    fn prepared_statements(&self) -> Vec<PreparedDescription>;
    /// Bytes that a database takes, `None` if there is none of this name.
    fn database_bytes(&self, database: &str) -> Option<u64>;
    /// When the node started, in microseconds since 1970 UTC.
    fn started_at_us(&self) -> i64;
    /// The node's address and port as the client reached it.
    fn server_address(&self) -> Option<(String, u16)>;
    /// The client's address and port.
    fn client_address(&self) -> Option<(String, u16)>;
}

/// A row of `pg_settings`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// Its name, as SHOW takes it.
    pub name: String,
    /// The value now.
    pub value: String,
    /// The unit of the value, where it has one.
    pub unit: Option<&'static str>,
    /// Which part of the documentation tells of it.
    pub category: &'static str,
    /// One sentence.
    pub description: &'static str,
    /// Who may set it when: `user`, `superuser`, `postmaster`, `internal`.
    pub context: &'static str,
    /// `bool`, `integer`, `real`, `string` or `enum`.
    pub kind: &'static str,
    /// The value when nobody sets it.
    pub boot_value: String,
}

/// A row of `pg_stat_activity`. Times are microseconds since 1970 UTC.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionDescription {
    /// The session's number.
    pub pid: i32,
    /// The database it is connected to.
    pub database: String,
    /// The role that connected.
    pub role: String,
    /// What the client calls itself.
    pub application: String,
    /// The client's address and port.
    pub client: Option<(String, u16)>,
    /// When it connected.
    pub connected_at_us: i64,
    /// When the transaction under way began.
    pub transaction_at_us: Option<i64>,
    /// When the statement under way, or the last one, began.
    pub query_at_us: Option<i64>,
    /// When `state` last changed.
    pub state_at_us: Option<i64>,
    /// `active`, `idle`, `idle in transaction`.
    pub state: &'static str,
    /// The text of the statement under way, or of the last one.
    pub query: String,
}

/// A row of `pg_prepared_statements`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreparedDescription {
    /// Its name.
    pub name: String,
    /// Its text.
    pub statement: String,
    /// When it was prepared, in microseconds since 1970 UTC.
    pub prepared_at_us: i64,
    /// The type numbers of its parameters.
    pub parameters: Vec<u32>,
}

/// A function that SQL can call. Types are named as in SQL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionDescription {
    /// Its name.
    pub name: String,
    /// The types of its arguments.
    pub arguments: Vec<String>,
    /// The type of its result.
    pub result: String,
    /// Plain, aggregate or window.
    pub kind: FunctionKind,
}

/// What kind of function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionKind {
    /// One value from one row.
    Plain,
    /// One value from many rows.
    Aggregate,
    /// One value for each row from the rows around it.
    Window,
}

impl FunctionKind {
    pub(super) fn prokind(self) -> &'static str {
        match self {
            FunctionKind::Plain => "f",
            FunctionKind::Aggregate => "a",
            FunctionKind::Window => "w",
        }
    }
}

/// Everything that has a row in `pg_class`, by number and by name.
#[derive(Default)]
pub struct ClassIndex {
    classes: OnceLock<(Vec<Class>, HashMap<u32, usize>)>,
}

/// Something that has a row in `pg_class`.
#[derive(Clone)]
pub(super) struct Class {
    pub(super) oid: u32,
    pub(super) schema: String,
    pub(super) schema_oid: u32,
    pub(super) name: String,
    pub(super) kind: ClassKind,
}

/// What has a row in `pg_class`.
#[derive(Clone)]
pub(super) enum ClassKind {
    Table(Arc<TableEntry>),
    View(Arc<ViewEntry>),
    /// The index of a table's primary key.
    Index(Arc<TableEntry>),
    System(&'static SystemRelation),
}

impl Class {
    /// `pg_class.relkind`.
    pub(super) fn relkind(&self) -> &'static str {
        match &self.kind {
            ClassKind::Table(_) => "r",
            ClassKind::View(_) => "v",
            ClassKind::Index(_) => "i",
            ClassKind::System(relation) if relation.kind == 'v' => "v",
            ClassKind::System(_) => "r",
        }
    }

    /// The columns of a user's table or view.
    pub(super) fn columns(&self) -> &[Column] {
        match &self.kind {
            ClassKind::Table(table) => &table.table.schema().columns,
            ClassKind::View(view) => &view.columns,
            ClassKind::Index(_) | ClassKind::System(_) => &[],
        }
    }

    /// Grants beyond the owner's rights.
    pub(super) fn grants(&self) -> &[Grant] {
        match &self.kind {
            ClassKind::Table(table) => &table.grants,
            ClassKind::View(view) => &view.grants,
            ClassKind::Index(_) | ClassKind::System(_) => &[],
        }
    }

    /// The owner of a user's relation.
    pub(super) fn owner(&self) -> Option<&str> {
        match &self.kind {
            ClassKind::Table(table) | ClassKind::Index(table) => Some(&table.owner),
            ClassKind::View(view) => Some(&view.owner),
            ClassKind::System(_) => None,
        }
    }

    /// The table, where this is one.
    pub(super) fn table(&self) -> Option<&TableEntry> {
        match &self.kind {
            ClassKind::Table(table) => Some(table),
            _ => None,
        }
    }
}

impl CatalogView {
    /// Whether the role is a superuser.
    pub fn is_superuser(&self, role: &str) -> bool {
        self.node
            .roles
            .get(role)
            .is_some_and(|record| record.superuser)
    }

    /// The number of a role, 0 if there is none.
    pub(super) fn role_oid(&self, name: &str) -> u32 {
        self.node.roles.get(name).map_or(0, |role| role.oid)
    }

    /// The role with this number.
    pub(super) fn role_name(&self, oid: i64) -> Option<&str> {
        self.node
            .roles
            .iter()
            .find(|(_, role)| i64::from(role.oid) == oid)
            .map(|(name, _)| name.as_str())
    }

    /// The role that owns what nobody made: the superuser that was there first.
    pub(super) fn system_owner(&self) -> &str {
        self.node
            .roles
            .iter()
            .filter(|(_, role)| role.superuser)
            .min_by_key(|(_, role)| role.oid)
            .map_or("", |(name, _)| name.as_str())
    }

    /// All schemas: number, name, owner, comment.
    pub(super) fn schemas(&self) -> Vec<(u32, &str, &str, Option<&str>)> {
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

    /// Everything that has a row in `pg_class`, in order of schema and name.
    pub(super) fn classes(&self) -> &[Class] {
        &self.indexed().0
    }

    /// What has this number in `pg_class`.
    pub(super) fn class(&self, oid: i64) -> Option<&Class> {
        let (classes, by_oid) = self.indexed();
        classes.get(*by_oid.get(&u32::try_from(oid).ok()?)?)
    }

    fn indexed(&self) -> &(Vec<Class>, HashMap<u32, usize>) {
        self.index.classes.get_or_init(|| {
            let mut classes: Vec<Class> = data::relations()
                .iter()
                .filter(|relation| relation.kind != data::HIDDEN)
                .map(|relation| Class {
                    oid: relation.oid,
                    schema: relation.schema.to_owned(),
                    schema_oid: system_schema_oid(relation.schema),
                    name: relation.name.to_owned(),
                    kind: ClassKind::System(relation),
                })
                .collect();
            for (schema, relation, name) in self.state.relations() {
                let class = |oid: u32, name: &str, kind: ClassKind| Class {
                    oid,
                    schema: schema.name.clone(),
                    schema_oid: schema.oid,
                    name: name.to_owned(),
                    kind,
                };
                match relation {
                    Relation::Table(table) => {
                        classes.push(class(table.oid, name, ClassKind::Table(Arc::clone(table))));
                        if table.key_oid != 0 {
                            let key = &table.table.schema().primary_key_name;
                            classes.push(class(
                                table.key_oid,
                                key,
                                ClassKind::Index(Arc::clone(table)),
                            ));
                        }
                    }
                    Relation::View(view) => {
                        classes.push(class(view.oid, name, ClassKind::View(Arc::clone(view))))
                    }
                }
            }
            let by_oid = classes
                .iter()
                .enumerate()
                .map(|(at, class)| (class.oid, at))
                .collect();
            (classes, by_oid)
        })
    }

    /// The schemas searched for unqualified names, `pg_catalog` first.
    pub(super) fn effective_path(&self) -> Vec<&str> {
        let mut path = Vec::new();
        if !self.search_path.iter().any(|schema| schema == PG_CATALOG) {
            path.push(PG_CATALOG);
        }
        let exists = |schema: &&String| {
            [PG_CATALOG, INFORMATION_SCHEMA, AEROSTAT].contains(&schema.as_str())
                || self.state.schemas.contains_key(schema.as_str())
        };
        path.extend(self.search_path.iter().filter(exists).map(String::as_str));
        path
    }

    /// The relation or index that a name means, through the search path when it has no schema.
    pub(super) fn class_named(&self, schema: Option<&str>, name: &str) -> Option<&Class> {
        let find = |schema: &str| {
            self.classes()
                .iter()
                .find(|class| class.schema == schema && class.name == name)
        };
        match schema {
            Some(schema) => find(schema),
            None => self.effective_path().into_iter().find_map(find),
        }
    }

    /// Whether the unqualified name means this one.
    pub(super) fn is_visible(&self, class: &Class) -> bool {
        let path = self.effective_path();
        if !path.contains(&class.schema.as_str()) {
            return false;
        }
        path.iter()
            .take_while(|schema| **schema != class.schema)
            .all(|schema| {
                !self
                    .classes()
                    .iter()
                    .any(|other| other.schema == *schema && other.name == class.name)
            })
    }

    /// Whether a role may do something with a relation.
    pub(super) fn may(&self, role: &str, class: &Class, privilege: Privilege) -> bool {
        if self.is_superuser(role) {
            return true;
        }
        if let ClassKind::System(relation) = class.kind {
            return privilege == Privilege::Select && !super::tables::is_secret(relation);
        }
        class.owner() == Some(role)
            || class.grants().iter().any(|grant| {
                grant.privilege == privilege && (grant.role == role || grant.role == EVERYONE)
            })
    }

    /// Whether a role may do anything at all with a relation.
    pub(super) fn may_anything(&self, role: &str, class: &Class) -> bool {
        PRIVILEGES
            .iter()
            .any(|&(privilege, ..)| self.may(role, class, privilege))
    }

    /// `pg_class.relacl`: NULL while nothing was granted, as in PostgreSQL.
    pub(super) fn relation_acl(&self, class: &Class) -> Option<Vec<String>> {
        let (owner, grants) = (class.owner()?, class.grants());
        if grants.is_empty() {
            return None;
        }
        let all: String = PRIVILEGES.iter().map(|&(_, letter, _)| letter).collect();
        let mut acl = vec![acl_item(owner, &all, owner)];
        let roles: BTreeSet<&str> = grants
            .iter()
            .map(|grant| grant.role.as_str())
            .filter(|role| *role != owner)
            .collect();
        for role in roles {
            let letters: String = PRIVILEGES
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
    pub(super) fn database_acl(&self, name: &str) -> Option<Vec<String>> {
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
    pub(super) fn schema_acl(&self, name: &str) -> Option<Vec<String>> {
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
    pub(super) fn may_with_schema(
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
            None if super::tables::is_system_schema(schema) => privilege == SchemaPrivilege::Usage,
            None => return None,
        };
        Some(granted || self.is_superuser(role))
    }
}

/// Whether one of the grantees is the role or everyone.
pub(super) fn is_granted(grantees: &[String], role: &str) -> bool {
    grantees
        .iter()
        .any(|grantee| grantee == role || grantee == EVERYONE)
}

/// Privileges in the order of PostgreSQL's ACL letters.
pub(super) const PRIVILEGES: [(Privilege, char, &str); 5] = [
    (Privilege::Insert, 'a', "INSERT"),
    (Privilege::Select, 'r', "SELECT"),
    (Privilege::Update, 'w', "UPDATE"),
    (Privilege::Delete, 'd', "DELETE"),
    (Privilege::Truncate, 'D', "TRUNCATE"),
];

fn acl_item(role: &str, letters: &str, grantor: &str) -> String {
    let role = if role == EVERYONE { "" } else { role };
    format!(
        "{}={letters}/{}",
        quote_identifier(role),
        quote_identifier(grantor)
    )
}

/// The number of a system schema.
pub(super) fn system_schema_oid(schema: &str) -> u32 {
    match schema {
        INFORMATION_SCHEMA => INFORMATION_SCHEMA_OID,
        AEROSTAT => AEROSTAT_OID,
        _ => PG_CATALOG_OID,
    }
}

/// PostgreSQL's `quote_ident`.
pub(super) fn quote_identifier(name: &str) -> String {
    let plain = name
        .chars()
        .next()
        .is_none_or(|c| c.is_ascii_lowercase() || c == '_')
        && name
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        && data::keywords()
            .binary_search_by(|keyword| keyword.word.cmp(name))
            .map_or(true, |at| data::keywords()[at].class == 'U');
    if plain {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

/// Splits a possibly qualified, possibly quoted name as SQL would read it.
pub(super) fn split_name(text: &str) -> Option<Vec<String>> {
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
        assert_eq!(quote_identifier("Odd \"Name"), "\"Odd \"\"Name\"");
        assert_eq!(quote_identifier("plain_1"), "plain_1");
        assert_eq!(quote_identifier("order"), "\"order\"");
        assert!(data::keywords().is_sorted_by_key(|keyword| keyword.word));
        assert_eq!(quote_identifier("abort"), "abort");
        assert_eq!(quote_identifier("1st"), "\"1st\"");
    }
}
