//! What the system catalogue asks of the running node and of the session, and the types of their
//! answers.

use std::sync::Arc;

use aerostat_advice::Machine;
use aerostat_api::Client;
use aerostat_catalog::{
    ClusterFacts, CopyState, SequenceEntry, StatementsRecord, admin::DatabaseState, sequence::Taken,
};
use aerostat_types::{ByteSize, RelationId, SqlError, TenantId};
use parking_lot::Mutex;

use super::{
    copies::{CopyDescription, LogPlaces},
    waits::Waits,
};

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
    fn sequence(&self, oid: RelationId) -> Result<Option<Arc<SequenceEntry>>, SqlError>;
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
    fn waiting(&self) -> Option<&dyn Waits>;
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
    /// What the process's memory is used for, by database and class.
    fn memory(&self) -> Vec<MemoryUse>;
    /// What the node and its open databases may use of memory.
    fn memory_limits(&self) -> Vec<MemoryLimit>;
    /// Has the node live by so much memory at most, or by its settings alone.
    ///
    /// # Errors
    /// The role may not, or it is too little.
    fn set_balloon(&self, bytes: Option<ByteSize>) -> Result<(), SqlError>;
    /// What the statements of open databases do.
    fn statements(&self) -> Vec<StatementUse>;
    /// How many statements of a database run and wait where its record says nothing of it.
    fn statement_defaults(&self) -> StatementsRecord;
    /// What was evicted of open databases, and read back.
    fn evictions(&self) -> Vec<EvictionUse>;
    /// What the node does with the session's database, if other nodes have it, too.
    fn copy(&self) -> Option<Arc<CopyState>>;
    /// How far the session's database has come on this node.
    fn places(&self) -> LogPlaces;
    /// What is known of the copies of every open database.
    fn copies(&self) -> Vec<CopyDescription>;
    /// What the node knows of the cluster that it is in, if it is in one.
    fn cluster(&self) -> Option<ClusterFacts>;
    /// When the node started, in microseconds since 1970 UTC.
    fn started_at_us(&self) -> i64;
    /// The node's address and port as the client reached it.
    fn server_address(&self) -> Option<(String, u16)>;
    /// The client's address and port.
    fn client_address(&self) -> Option<(String, u16)>;
}

/// A row of `aerostat.memory`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryUse {
    /// Whose it is; `None` of the node's own.
    pub database: Option<String>,
    /// What it is used for.
    pub class: &'static str,
    /// Bytes in memory.
    pub bytes: u64,
    /// Bytes that are charged to the budgets of database and node.
    pub bytes_reserved: u64,
}

/// A row of `aerostat.memory_limits`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Whose it is; `None` of the node's own.
    pub database: Option<String>,
    /// Bytes that it is to use at most; `None` where only the node's limit counts.
    pub target: Option<u64>,
    /// Bytes that it may use now: more than the target while what is held comes back.
    pub limit: Option<u64>,
    /// Bytes that are reserved.
    pub used: u64,
    /// Bytes that are kept free for it, up to its minimum; of the node, for all.
    pub promised: u64,
    /// Bytes that the process holds and nobody has reserved; of the node alone.
    pub unreserved: Option<u64>,
}

/// Rows of `aerostat.evictions` and `aerostat.memory_worth`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvictionUse {
    /// Whose it is.
    pub database: String,
    /// Bytes that are not in memory now.
    pub evicted_now: u64,
    /// Bytes that were evicted since it was opened.
    pub evicted: u64,
    /// Bytes that were read back.
    pub read_back: u64,
    /// In so many reads.
    pub reads: u64,
    /// With so many bytes of memory more, so many would not have been read back; ascending.
    pub worth: Vec<(u64, u64)>,
}

/// What the statements of an open database do, in `aerostat.tenants`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatementUse {
    /// Whose they are.
    pub database: String,
    /// How many have a place among those that run.
    pub running: u32,
    /// How many wait for one.
    pub waiting: u32,
    /// How many found the queue full since it was opened.
    pub refused: u64,
    /// How many have waited too long since then.
    pub timed_out: u64,
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
    /// The database it is connected to, as it was called then.
    pub database: String,
    /// Its number; it keeps it when it is renamed.
    pub database_id: Option<TenantId>,
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
    /// Whether its statement waits for others of the database, or of the node, to end.
    pub waits_for_place: bool,
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
    pub(crate) fn prokind(self) -> &'static str {
        match self {
            FunctionKind::Plain => "f",
            FunctionKind::Aggregate => "a",
            FunctionKind::Window => "w",
        }
    }
}
