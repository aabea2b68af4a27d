//! What exists: roles and databases of the node ([`node`]), and inside one
//! database its schemas, tables and views.
//!
//! A database's catalogue is an immutable [`CatalogState`] behind an atomic
//! pointer. A statement loads it once and sees one state throughout; a DDL
//! statement copies the state (cheap: entries are shared), changes the copy,
//! writes it to the tenant's log as a whole (`record`) and swaps it in, all
//! under the DDL lock. The epoch advances, which cached plans are checked
//! against.

pub mod node;
mod record;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use aerostat_storage::{Table, TenantStore};
use aerostat_types::{Column, ErrorKind, SqlError, TableId};
use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};
use serde::{Deserialize, Serialize};

use crate::{error::from_storage, usage::Usage};

pub use record::RecordError;

/// The schema that unqualified names go to.
pub const PUBLIC: &str = "public";
/// The schema of PostgreSQL's system catalogue.
pub const PG_CATALOG: &str = "pg_catalog";
/// The schema of the standard's information views.
pub const INFORMATION_SCHEMA: &str = "information_schema";
/// The schema of Aerostat's own system views.
pub const AEROSTAT: &str = "aerostat";

/// The OID of `pg_catalog`, as in PostgreSQL.
pub const PG_CATALOG_OID: u32 = 11;
/// The OID of `public`, as in PostgreSQL 15.
pub const PUBLIC_OID: u32 = 2200;
/// The OID given to `information_schema`.
pub const INFORMATION_SCHEMA_OID: u32 = 13_000;
/// The OID given to `aerostat`.
pub const AEROSTAT_OID: u32 = 13_001;
/// The first OID of objects that users make, as in PostgreSQL.
pub const FIRST_USER_OID: u32 = 16_384;

/// Longest identifier in bytes, as in PostgreSQL (NAMEDATALEN − 1).
pub const NAME_BYTES_MAX: usize = 63;

/// Everything in one database, at one moment.
#[derive(Clone)]
pub struct CatalogState {
    /// Counts DDL statements; a plan made under another epoch is stale.
    pub epoch: u64,
    /// User schemas by name; `public` is there from the start.
    pub schemas: BTreeMap<String, Arc<SchemaEntry>>,
    /// The next OID to give out.
    pub next_oid: u32,
}

/// A schema and what is in it.
#[derive(Clone)]
pub struct SchemaEntry {
    /// Its OID.
    pub oid: u32,
    /// Its name.
    pub name: String,
    /// The role that owns it.
    pub owner: String,
    /// Tables and views by name.
    pub relations: BTreeMap<String, Relation>,
    /// Its COMMENT.
    pub comment: Option<String>,
    /// Who may do what with it beyond its owner.
    pub grants: Vec<SchemaGrant>,
}

/// A table or view.
#[derive(Clone)]
pub enum Relation {
    /// A table with rows.
    Table(Arc<TableEntry>),
    /// A named query.
    View(Arc<ViewEntry>),
}

impl Relation {
    /// Its OID.
    pub fn oid(&self) -> u32 {
        match self {
            Relation::Table(table) => table.oid,
            Relation::View(view) => view.oid,
        }
    }

    /// The role that owns it.
    pub fn owner(&self) -> &str {
        match self {
            Relation::Table(table) => &table.owner,
            Relation::View(view) => &view.owner,
        }
    }

    /// Its columns in order.
    pub fn columns(&self) -> &[Column] {
        match self {
            Relation::Table(table) => &table.table.schema().columns,
            Relation::View(view) => &view.columns,
        }
    }

    /// The name of its kind, as messages use it.
    pub fn kind(&self) -> &'static str {
        match self {
            Relation::Table(_) => "table",
            Relation::View(_) => "view",
        }
    }

    /// Who may do what with it beyond its owner.
    pub fn grants(&self) -> &[Grant] {
        match self {
            Relation::Table(table) => &table.grants,
            Relation::View(view) => &view.grants,
        }
    }
}

/// A table in the catalogue.
#[derive(Clone)]
pub struct TableEntry {
    /// Its OID, also its [`aerostat_types::TableId`] in storage.
    pub oid: u32,
    /// The OID of its primary-key index, 0 for none.
    pub key_oid: u32,
    /// Its name.
    pub name: String,
    /// The role that owns it.
    pub owner: String,
    /// Its schema, layout and rows.
    pub table: Arc<Table>,
    /// Its COMMENT.
    pub comment: Option<String>,
    /// COMMENTs of its columns, by column name.
    pub column_comments: BTreeMap<String, String>,
    /// Who may do what with it beyond its owner.
    pub grants: Vec<Grant>,
    /// Whether the adviser may change the table's layout.
    pub auto_layout: bool,
    /// What statements did to it since the node started.
    pub usage: Arc<Usage>,
}

/// A view in the catalogue.
#[derive(Clone, Serialize, Deserialize)]
pub struct ViewEntry {
    /// Its OID.
    pub oid: u32,
    /// Its name.
    pub name: String,
    /// The role that owns it.
    pub owner: String,
    /// The text of its query, names already qualified by schema.
    pub query: String,
    /// Its columns, named and typed when it was made.
    pub columns: Vec<Column>,
    /// Its COMMENT.
    pub comment: Option<String>,
    /// Who may do what with it beyond its owner.
    pub grants: Vec<Grant>,
}

/// One privilege that a role holds on a relation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    /// The role, or `public` for everyone.
    pub role: String,
    /// What it may do.
    pub privilege: Privilege,
}

/// What one may do with a relation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Privilege {
    /// Read rows.
    Select,
    /// Add rows.
    Insert,
    /// Change rows.
    Update,
    /// Remove rows.
    Delete,
    /// Remove all rows at once.
    Truncate,
}

/// One privilege that a role holds on a schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemaGrant {
    /// The role, or `public` for everyone.
    pub role: String,
    /// What it may do.
    pub privilege: SchemaPrivilege,
}

/// What one may do with a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SchemaPrivilege {
    /// Reach the relations in it.
    Usage,
    /// Make relations in it.
    Create,
}

/// A database's catalogue: the current state and the DDL lock.
pub struct Catalog {
    state: ArcSwap<CatalogState>,
    ddl: Mutex<()>,
    /// Keeps the log that changes are written to.
    store: Arc<TenantStore>,
}

impl Catalog {
    /// A catalogue with an empty schema `public` of this owner.
    pub fn new(owner: &str, store: Arc<TenantStore>) -> Self {
        let public = SchemaEntry {
            oid: PUBLIC_OID,
            name: PUBLIC.to_owned(),
            owner: owner.to_owned(),
            relations: BTreeMap::new(),
            comment: Some("standard public schema".to_owned()),
            grants: vec![SchemaGrant {
                role: PUBLIC.to_owned(),
                privilege: SchemaPrivilege::Usage,
            }],
        };
        let state = CatalogState {
            epoch: 1,
            schemas: BTreeMap::from([(PUBLIC.to_owned(), Arc::new(public))]),
            next_oid: FIRST_USER_OID,
        };
        Self::of(state, store)
    }

    /// The catalogue that the tenant's log ends with, over its recovered tables.
    ///
    /// # Errors
    /// The document cannot be read, or names a table that is not there.
    pub fn recover(
        document: &[u8],
        tables: &BTreeMap<TableId, Arc<Table>>,
        store: Arc<TenantStore>,
    ) -> Result<Self, RecordError> {
        Ok(Self::of(record::decode(document, tables)?, store))
    }

    fn of(state: CatalogState, store: Arc<TenantStore>) -> Self {
        Self {
            state: ArcSwap::from_pointee(state),
            ddl: Mutex::new(()),
            store,
        }
    }

    /// The state now.
    pub fn load(&self) -> Arc<CatalogState> {
        self.state.load_full()
    }

    /// Starts a change. Others' changes wait; readers do not.
    pub fn change(&self) -> CatalogChange<'_> {
        let guard = self.ddl.lock();
        let mut state = CatalogState::clone(&self.state.load());
        state.epoch += 1;
        CatalogChange {
            catalog: self,
            state,
            _guard: guard,
        }
    }
}

/// A change under way. Nothing is seen before [`CatalogChange::publish`]; dropping it undoes it.
pub struct CatalogChange<'a> {
    catalog: &'a Catalog,
    /// The state to come.
    pub state: CatalogState,
    _guard: MutexGuard<'a, ()>,
}

impl CatalogChange<'_> {
    /// Makes the change durable, then visible. Waits for the disk.
    ///
    /// # Errors
    /// The log takes no more; nothing is seen of the change before a restart.
    pub fn publish(self) -> Result<(), SqlError> {
        let store = &self.catalog.store;
        store
            .commit_catalog(record::encode(&self.state))
            .map_err(from_storage)?;
        let before = self.catalog.load().table_ids();
        let after = self.state.table_ids();
        self.reserve();
        for dropped in before.difference(&after) {
            // The catalogue says it is gone; a restart drops what stays here.
            if let Err(error) = store.drop_table(*dropped) {
                tracing::warn!(%error, table = %dropped, "the rows of a dropped table stay until a restart");
            }
        }
        Ok(())
    }

    /// Makes the change visible without making it durable: enough for numbers that
    /// were given out, which a restart may give out again.
    pub fn reserve(self) {
        self.catalog.state.store(Arc::new(self.state));
    }
}

impl CatalogState {
    /// The relation with this name, if there.
    pub fn relation(&self, schema: &str, name: &str) -> Option<&Relation> {
        self.schemas.get(schema)?.relations.get(name)
    }

    /// The schema's entry, to be changed.
    ///
    /// # Errors
    /// There is no such schema.
    pub fn schema_mut(&mut self, name: &str) -> Result<&mut SchemaEntry, SqlError> {
        self.schemas
            .get_mut(name)
            .map(Arc::make_mut)
            .ok_or_else(|| undefined_schema(name))
    }

    /// A new OID.
    ///
    /// # Errors
    /// All four billion are used up.
    pub fn allocate_oid(&mut self) -> Result<u32, SqlError> {
        let oid = self.next_oid;
        self.next_oid = oid.checked_add(1).ok_or_else(|| {
            SqlError::new(
                ErrorKind::ProgramLimitExceeded,
                "this database has used up its object numbers",
            )
        })?;
        Ok(oid)
    }

    /// All tables, in order of names.
    pub fn table_entries(&self) -> Vec<Arc<TableEntry>> {
        self.relations()
            .filter_map(|(_, relation, _)| match relation {
                Relation::Table(entry) => Some(Arc::clone(entry)),
                Relation::View(_) => None,
            })
            .collect()
    }

    /// The rows of all tables, in order of names.
    pub fn tables(&self) -> Vec<Arc<Table>> {
        let entries = self.table_entries();
        entries
            .iter()
            .map(|entry| Arc::clone(&entry.table))
            .collect()
    }

    /// The numbers in storage of all tables.
    pub fn table_ids(&self) -> BTreeSet<TableId> {
        self.tables().iter().map(|table| table.id()).collect()
    }

    /// Every relation with its schema, in order of names.
    pub fn relations(&self) -> impl Iterator<Item = (&SchemaEntry, &Relation, &str)> {
        self.schemas.values().flat_map(|schema| {
            schema
                .relations
                .iter()
                .map(move |(name, relation)| (&**schema, relation, name.as_str()))
        })
    }
}

/// The error for a schema that is not there.
pub fn undefined_schema(name: &str) -> SqlError {
    SqlError::new(
        ErrorKind::InvalidSchemaName,
        format!("schema \"{name}\" does not exist"),
    )
}

/// The error for a relation that is not there.
pub fn undefined_relation(name: &str) -> SqlError {
    SqlError::new(
        ErrorKind::UndefinedTable,
        format!("relation \"{name}\" does not exist"),
    )
}
