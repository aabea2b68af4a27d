//! What the system catalogue is computed from: one statement's consistent view of
//! the node's roles and databases, the database's schemas and relations, and the
//! session that asks.

use std::sync::Arc;

use aerostat_advice::Machine;
use aerostat_catalog::{
    AEROSTAT_OID, CatalogState, INFORMATION_SCHEMA_OID, NodeRecord, PG_CATALOG_OID, SequenceEntry,
    admin::DatabaseState, sequence::Taken,
};
use aerostat_sql::{
    grants::PredefinedRole,
    names::{AEROSTAT, INFORMATION_SCHEMA, PG_CATALOG},
    sequence_text as text,
};
use aerostat_types::{SqlError, quote_ident};
use parking_lot::Mutex;

use super::classes::ClassIndex;
use crate::{api::Client, session::Waiting};

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
    /// The machine by which layouts are priced.
    fn machine(&self) -> Arc<Machine>;
    /// All settings with their values in this session.
    fn settings(&self) -> Vec<Setting>;
    /// Sets a setting for the session and gives its new value; the hook of `set_config`.
    ///
    /// # Errors
    /// There is no such setting, or it does not take the value.
    fn set(&self, name: &str, value: &str, is_local: bool) -> Result<String, SqlError>;
    /// A sequence to take numbers from, locked for the statement; `None` if it is not there.
    ///
    /// # Errors
    /// Somebody is changing it.
    fn sequence(&self, oid: u32) -> Result<Option<Arc<SequenceEntry>>, SqlError>;
    /// The numbers that the session has taken.
    fn taken(&self) -> &Mutex<Taken>;
    /// Whether the transaction may change something by a call of this function.
    ///
    /// # Errors
    /// It is read-only.
    fn admit_change(&self, function: &str) -> Result<(), SqlError>;
    /// Says something to who listens on a channel, when the transaction commits.
    ///
    /// # Errors
    /// The channel or the text is none, or too much was said.
    fn notify(&self, channel: &str, payload: &str) -> Result<(), SqlError>;
    /// Stops what another session runs, or the session; `false` if there is none of this number.
    ///
    /// # Errors
    /// The role may not.
    fn signal(&self, pid: i32, signal: Signal) -> Result<bool, SqlError>;
    /// The channels that the session listens on.
    fn listening(&self) -> Vec<String>;
    /// The session's advisory locks, and the way to wait; `None` where no statement runs.
    fn waiting(&self) -> Option<&Waiting>;
    /// Sessions connected now, of all databases.
    fn sessions(&self) -> Vec<SessionDescription>;
    /// Prepared statements of this session.
    fn prepared_statements(&self) -> Vec<PreparedDescription>;
    /// Open cursors of this session.
    fn cursors(&self) -> Vec<CursorDescription>;
    /// Whether a database that there is can be used.
    fn database_state(&self, database: &str) -> DatabaseState;
    /// Bytes that a database takes, `None` if there is none of this name.
    fn database_bytes(&self, database: &str) -> Option<u64>;
    /// When the node started, in microseconds since 1970 UTC.
    fn started_at_us(&self) -> i64;
    /// The node's address and port as the client reached it.
    fn server_address(&self) -> Option<(String, u16)>;
    /// The client's address and port.
    fn client_address(&self) -> Option<(String, u16)>;
}

/// What one session does to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Stops what it runs.
    Cancel,
    /// Ends it.
    Terminate,
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
    /// Its client; `None` where the session is used within the process.
    pub client: Option<Client>,
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
    /// Whether PREPARE has made it, not the protocol.
    pub is_from_sql: bool,
    /// When it was prepared, in microseconds since 1970 UTC.
    pub prepared_at_us: i64,
    /// The type numbers of its parameters.
    pub parameters: Vec<u32>,
    /// Executions by a plan for any values.
    pub generic_plans: u64,
    /// Executions by a plan for their own values.
    pub custom_plans: u64,
}

/// A row of `pg_cursors`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CursorDescription {
    /// Its name.
    pub name: String,
    /// The text that it was declared in.
    pub statement: Arc<str>,
    /// WITH HOLD.
    pub is_holdable: bool,
    /// SCROLL.
    pub is_scrollable: bool,
    /// When it was declared, in microseconds since 1970 UTC.
    pub created_at_us: i64,
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

impl CatalogView {
    /// Whether the role is a superuser.
    pub fn is_superuser(&self, role: &str) -> bool {
        self.node
            .roles
            .get(role)
            .is_some_and(|record| record.superuser)
    }

    /// Whether the role may do what members of a predefined role may.
    pub(super) fn is_member(&self, of: PredefinedRole) -> bool {
        let role = self.node.roles.get(&self.role);
        role.is_some_and(|role| role.is_member_of(of))
    }

    /// Whether the role may see what others' sessions do and what others' databases take.
    pub(super) fn may_read_all_statistics(&self) -> bool {
        self.is_member(PredefinedRole::PgReadAllStats)
    }

    /// The predefined roles, without one whose name a role had before there were any.
    pub(super) fn predefined_roles(&self) -> impl Iterator<Item = PredefinedRole> {
        let all = PredefinedRole::ALL.into_iter();
        all.filter(|role| !self.node.roles.contains_key(role.name()))
    }

    /// The text of a default with the names of sequences.
    pub(super) fn shown_default(&self, default: &str) -> String {
        text::shown(default, &|oid| {
            let class = self.class(oid.into())?;
            let name = quote_ident(&class.name);
            Some(match self.is_visible(class) {
                true => name,
                false => format!("{}.{name}", quote_ident(&class.schema)),
            })
        })
    }

    /// The number of a role, 0 if there is none.
    pub(super) fn role_oid(&self, name: &str) -> u32 {
        let predefined = || PredefinedRole::named(name).map(PredefinedRole::oid);
        let role = self.node.roles.get(name).map(|role| role.oid);
        role.or_else(predefined).unwrap_or(0)
    }

    /// The role with this number.
    pub(super) fn role_name(&self, oid: i64) -> Option<&str> {
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
}
