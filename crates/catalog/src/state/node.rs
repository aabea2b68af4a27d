//! Roles and databases of the node, stored across restarts in the data folder.
//!
//! A database is a tenant: it has its own catalogue, commit order and memory budget, and nothing
//! in it is reachable from another.

use std::{
    collections::{BTreeMap, BTreeSet},
    num::NonZeroU8,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use aerostat_sql::{
    grants::PredefinedRole,
    utility::{CPU_WEIGHT_DEFAULT, MEMORY_WEIGHT_DEFAULT},
};
use aerostat_storage::{Durability, FreezeBacklog, Recovered, TenantStore, Timeline};
use aerostat_types::{ByteSize, ErrorKind, NodeId, RoleId, SqlError, TenantId};
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};

use super::{
    Catalog, CopyState, Order, RecordError, Standing, StatementLimits, Statements, StatementsRecord,
};

/// Fields of a document that this build does not know.
pub type UnknownFields = BTreeMap<String, serde_json::Value>;

/// What the node keeps about roles and databases; the document in the data folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeRecord {
    /// Roles by name.
    pub roles: BTreeMap<String, RoleRecord>,
    /// Databases by name.
    pub databases: BTreeMap<String, DatabaseRecord>,
    /// The next OID of a role or database.
    pub next_oid: u32,
    /// OIDs of databases that were dropped, whose files may be there still: no others are
    /// removed.
    #[serde(default)]
    pub dropped: BTreeSet<TenantId>,
    /// What data and queries of all databases may take together, from ALTER SYSTEM; `None`: what
    /// the node is started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<ByteSize>,
    /// What later builds have written into it, which is kept as it is.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

impl NodeRecord {
    /// The database of a number, and its name.
    pub fn database_of(&self, id: TenantId) -> Option<(&String, &DatabaseRecord)> {
        self.databases.iter().find(|(_, entry)| entry.oid == id)
    }
}

/// A role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoleRecord {
    /// Its OID.
    pub oid: RoleId,
    /// May do everything.
    pub superuser: bool,
    /// May connect.
    pub login: bool,
    /// May create databases.
    pub create_database: bool,
    /// May create roles.
    pub create_role: bool,
    /// At most this many connections; −1 for no limit.
    pub connection_limit: i32,
    /// `SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>`, as PostgreSQL stores it.
    pub verifier: Option<String>,
    /// Its COMMENT.
    #[serde(default)]
    pub comment: Option<String>,
    /// The predefined roles that it is a member of.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub member_of: BTreeSet<PredefinedRole>,
    /// What later builds have written into it, which is kept as it is.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

impl RoleRecord {
    /// Whether it may do what members of a predefined role may. A superuser may.
    pub fn is_member_of(&self, role: PredefinedRole) -> bool {
        self.superuser || self.member_of.contains(&role)
    }

    /// A predefined role as it is shown: it has none of a role's rights.
    pub fn of_predefined(role: PredefinedRole) -> Self {
        Self {
            oid: role.oid(),
            superuser: false,
            login: false,
            create_database: false,
            create_role: false,
            connection_limit: -1,
            verifier: None,
            comment: None,
            member_of: BTreeSet::new(),
            unknown: UnknownFields::new(),
        }
    }
}

/// A database's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseRecord {
    /// Its OID, also its tenant number.
    pub oid: TenantId,
    /// The role that owns it.
    pub owner: String,
    /// The memory ceiling that the operator gave it; `None` for the node's.
    pub memory_max: Option<ByteSize>,
    /// What the operator has kept for it, whatever others want.
    #[serde(default)]
    pub memory_min: Option<ByteSize>,
    /// Its weight among databases, for memory beyond their minima.
    #[serde(default = "weight_default")]
    pub memory_weight: u32,
    /// Its weight among databases, for the time of the query threads.
    #[serde(default = "cpu_weight_default")]
    pub cpu_weight: u32,
    /// At most this many connections, as the operator said; −1 for no limit.
    pub connection_limit: i32,
    /// How many statements run and wait, as the operator said.
    #[serde(default, skip_serializing_if = "StatementsRecord::is_empty")]
    pub statements: StatementsRecord,
    /// Roles with CONNECT beyond the owner; `public` stands for everyone.
    pub connect: Vec<String>,
    /// Roles that may make schemas in it, beyond the owner; `public` stands for everyone.
    #[serde(default)]
    pub create: Vec<String>,
    /// Its COMMENT.
    pub comment: Option<String>,
    /// What its commits wait for at most, as the operator said.
    #[serde(default)]
    pub durability: Durability,
    /// What its owner made less of that.
    #[serde(default)]
    pub lowered: Lowered,
    /// The folder that its log is copied to, for restores to a point in time.
    #[serde(default)]
    pub log_archive: Option<String>,
    /// In a cluster: the nodes that have copies of it, by name; none: all.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub nodes: BTreeSet<String>,
    /// In a cluster: how many copies it keeps, on nodes that it chooses; `None` where the operator has chosen them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies_kept: Option<NonZeroU8>,
    /// In a cluster: what its copies are of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub copies: Option<CopiesRecord>,
    /// What later builds have written into it, which is kept as it is.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// What the copies of a database are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopiesRecord {
    /// The history of their logs.
    pub timeline: Timeline,
    /// The node that begins to lead it, as long as none has led it.
    pub home: NodeId,
}

fn weight_default() -> u32 {
    MEMORY_WEIGHT_DEFAULT
}

fn cpu_weight_default() -> u32 {
    CPU_WEIGHT_DEFAULT
}

/// The limits that a database's owner has set below the operator's; `None` where these hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lowered {
    /// See [`DatabaseRecord::memory_max`].
    pub memory_max: Option<ByteSize>,
    /// See [`DatabaseRecord::connection_limit`]; not negative.
    pub connection_limit: Option<i32>,
    /// See [`DatabaseRecord::statements`]; each a limit.
    #[serde(skip_serializing_if = "StatementsRecord::is_empty")]
    pub statements: StatementsRecord,
    /// See [`DatabaseRecord::durability`].
    pub durability: Option<Durability>,
}

impl DatabaseRecord {
    /// One that has no limits, and that its owner and superusers alone may connect to.
    pub fn new(oid: TenantId, owner: &str) -> Self {
        Self {
            oid,
            owner: owner.to_owned(),
            memory_max: None,
            memory_min: None,
            memory_weight: MEMORY_WEIGHT_DEFAULT,
            cpu_weight: CPU_WEIGHT_DEFAULT,
            connection_limit: -1,
            statements: StatementsRecord::default(),
            connect: Vec::new(),
            create: Vec::new(),
            comment: None,
            durability: Durability::default(),
            lowered: Lowered::default(),
            log_archive: None,
            nodes: BTreeSet::new(),
            copies_kept: None,
            copies: None,
            unknown: UnknownFields::new(),
        }
    }

    /// Whether a node is to have a copy of it.
    pub fn is_on(&self, node: &str) -> bool {
        self.nodes.is_empty() || self.nodes.contains(node)
    }

    /// Its memory ceiling; `None` for the node's.
    pub fn memory_ceiling(&self) -> Option<ByteSize> {
        self.lowered.memory_max.or(self.memory_max)
    }

    /// At most this many connections; −1 for no limit.
    pub fn connections_max(&self) -> i32 {
        self.lowered
            .connection_limit
            .unwrap_or(self.connection_limit)
    }

    /// How many of its statements run and wait, on a node with these defaults.
    pub fn statements_in_force(&self, defaults: StatementsRecord) -> StatementsRecord {
        self.statement_limits().statements.or(defaults)
    }

    /// What is said of its statements.
    pub(crate) fn statement_limits(&self) -> StatementLimits {
        StatementLimits {
            statements: self.lowered.statements.or(self.statements),
            cpu_weight: self.cpu_weight,
        }
    }

    /// What its commits wait for.
    pub fn commit_durability(&self) -> Durability {
        self.lowered.durability.unwrap_or(self.durability)
    }
}

/// A database that is open.
pub struct Database {
    /// Its tenant number, also its OID.
    pub id: TenantId,
    /// Its name when it was opened; renaming makes a new value.
    pub name: RwLock<String>,
    /// Its schemas and relations.
    pub catalog: Catalog,
    /// Its rows, commit order and memory budget.
    pub store: Arc<TenantStore>,
    /// Sessions connected now.
    pub connections: AtomicI64,
    /// How many of its statements run at once, and how many wait.
    pub statements: Statements,
    /// What this node does with it, if other nodes have it, too.
    pub copy: Option<Arc<CopyState>>,
}

impl Database {
    /// A database without relations.
    pub fn new(id: TenantId, name: &str, owner: &str, store: Arc<TenantStore>) -> Arc<Self> {
        Arc::new(Self {
            id,
            name: RwLock::new(name.to_owned()),
            catalog: Catalog::new(owner, None),
            store,
            connections: AtomicI64::new(0),
            statements: Statements::default(),
            copy: None,
        })
    }

    /// What this node does with it.
    pub fn standing(&self) -> Standing {
        let copy = self.copy.as_ref();
        copy.map_or(Standing::Alone, |copy| copy.standing())
    }

    /// Whether this node takes changes of it.
    pub fn takes_changes(&self) -> bool {
        self.copy.as_ref().is_none_or(|copy| copy.leads())
    }

    /// How far the freezer is behind, over all tables.
    pub fn freeze_backlog(&self) -> FreezeBacklog {
        let catalog = self.catalog.load();
        let tables = catalog.table_entries().into_iter();
        tables.map(|entry| entry.table.freeze_backlog()).sum()
    }

    /// A database as its log leaves it; one without relations if it is new.
    ///
    /// # Errors
    /// The catalogue cannot be made of what the log holds.
    pub fn recover(
        id: TenantId,
        name: &str,
        owner: &str,
        store: Arc<TenantStore>,
        recovered: &Recovered,
        copy: Option<Arc<CopyState>>,
    ) -> Result<Arc<Self>, RecordError> {
        let catalog = match &recovered.catalog {
            Some(document) => Catalog::recover(document, &recovered.tables, recovered.last_table)?,
            None => Catalog::new(owner, recovered.last_table),
        };
        Ok(Arc::new(Self {
            id,
            name: RwLock::new(name.to_owned()),
            catalog,
            store,
            connections: AtomicI64::new(0),
            statements: Statements::default(),
            copy,
        }))
    }

    /// From now on its commits wait for what this says.
    pub fn set_durability(&self, durability: Durability) {
        match &self.copy {
            Some(copy) => copy.order(Order::Durability(durability)),
            None => self.store.set_durability(durability),
        }
    }

    /// Sessions connected now.
    pub fn connection_count(&self) -> i64 {
        self.connections.load(Ordering::Relaxed)
    }
}

/// The error for a role that no statement can be about.
pub(crate) fn undefined_role(name: &str) -> SqlError {
    if PredefinedRole::named(name).is_some() {
        let message = format!("role \"{name}\" is predefined and can only be granted");
        return SqlError::new(ErrorKind::ReservedName, message);
    }
    SqlError::new(
        ErrorKind::UndefinedObject,
        format!("role \"{name}\" does not exist"),
    )
}
