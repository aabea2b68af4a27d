//! What exists: roles and databases of the node ([`NodeRecord`]), and inside one database its
//! schemas, tables, views and sequences.
//!
//! A database's catalogue is an immutable [`CatalogState`] behind an atomic pointer. A statement
//! loads it once and sees one state throughout. A statement that defines something copies the
//! state (cheap: entries are shared) and changes the copy ([`Draft`]). Its transaction plans on
//! that, and swaps it in when it commits ([`Definitions`]), written to the tenant's log as a
//! whole (`record`) in the record of the commit. The epoch identifies a state; cached plans are
//! checked against it. A session that has temporary relations sees them over that state
//! (`temporary`).

mod cluster;
pub(crate) mod comments;
mod constraint;
mod definitions;
mod draft;
mod merge;
mod node;
mod record;
mod sequence;
mod standing;
mod statements;
mod temporary;
mod twin;

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use aerostat_sql::{
    deferral::Deferral,
    grants::{Privilege, SchemaPrivilege},
};
use aerostat_storage::Table;
use aerostat_txn::LockTag;
use aerostat_types::{
    Column, ErrorKind, IndexId, IndexKind, RelationId, SchemaId, SqlError, TableId, TableIndex,
};
use arc_swap::ArcSwap;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::usage::Usage;

pub use cluster::{
    BuildName, ClusterFacts, ClusterNodes, NodeFacts, PlacedFacts, Placing, undefined_node,
};
pub use comments::PartComments;
pub use constraint::{ForeignKey, IndexEntry, ReferentialAction};
pub use definitions::{Definitions, Mark};
pub(crate) use definitions::{Effect, forget_index, rename_index};
pub use draft::{Change, Draft};
pub(crate) use node::undefined_role;
pub use node::{
    CopiesRecord, Database, DatabaseRecord, Lowered, NodeRecord, RoleRecord, UnknownFields,
};
pub(crate) use record::NamedRoles;
pub use record::{FORMAT as CATALOG_FORMAT, RecordError};
pub use sequence::{Identity, OwnedBy, SEQUENCE_COLUMNS, SequenceEntry};
pub use standing::{CopyFacts, CopyState, Order, PeerFacts, Standing};
pub use statements::{StatementLimits, Statements, StatementsRecord};
pub use temporary::{OnCommit, PG_TEMP, Temporaries, is_temporary, temporary_schema};

/// The schema that unqualified names go to.
pub const PUBLIC: &str = "public";
/// The OID of `pg_catalog`, as in PostgreSQL.
pub const PG_CATALOG_OID: SchemaId = SchemaId(11);
/// The OID of `public`, as in PostgreSQL 15.
pub const PUBLIC_OID: SchemaId = SchemaId(2200);
/// The OID given to `information_schema`.
pub const INFORMATION_SCHEMA_OID: SchemaId = SchemaId(13_000);
/// The OID given to `aerostat`.
pub const AEROSTAT_OID: SchemaId = SchemaId(13_001);
/// The first OID of objects that users make, as in PostgreSQL.
pub const FIRST_USER_OID: u32 = 16_384;

/// Everything in one database, at one moment.
#[derive(Clone)]
pub struct CatalogState {
    /// No two states of a database have the same; a plan made under another epoch is stale.
    pub epoch: u64,
    /// User schemas by name; `public` is there from the start.
    pub schemas: BTreeMap<String, Arc<SchemaEntry>>,
    pub(crate) numbers: Arc<Numbers>,
}

/// Numbers that all states of a database take from, committed or not. One that was taken is
/// not given again, whatever becomes of who took it.
#[derive(Debug)]
pub(crate) struct Numbers {
    next_oid: AtomicU32,
    last_epoch: AtomicU64,
}

impl Numbers {
    fn from(next_oid: u32) -> Arc<Self> {
        Arc::new(Self {
            next_oid: AtomicU32::new(next_oid),
            last_epoch: AtomicU64::new(1),
        })
    }

    /// Gives no number up to this one any more: transactions that did not commit had some.
    fn pass(&self, last_table: Option<TableId>) {
        if let Some(TableId(last)) = last_table {
            let above = last.saturating_add(1);
            self.next_oid.fetch_max(above, Ordering::Relaxed);
        }
    }

    fn next_oid(&self) -> u32 {
        self.next_oid.load(Ordering::Relaxed)
    }

    fn next_epoch(&self) -> u64 {
        self.last_epoch.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// A schema and what is in it.
#[derive(Clone)]
pub struct SchemaEntry {
    /// Its OID.
    pub oid: SchemaId,
    /// Its name.
    pub name: String,
    /// The role that owns it.
    pub owner: String,
    /// Tables, views and sequences by name.
    pub relations: BTreeMap<String, Relation>,
    /// Its COMMENT.
    pub comment: Option<String>,
    /// Who may do what with it beyond its owner.
    pub grants: Vec<SchemaGrant>,
}

/// A table, view or sequence.
#[derive(Clone)]
pub enum Relation {
    /// A table with rows.
    Table(Arc<TableEntry>),
    /// A named query.
    View(Arc<ViewEntry>),
    /// Numbers, one after the other.
    Sequence(Arc<SequenceEntry>),
}

impl Relation {
    /// Its OID.
    pub fn oid(&self) -> RelationId {
        match self {
            Relation::Table(table) => table.oid,
            Relation::View(view) => view.oid,
            Relation::Sequence(sequence) => sequence.oid,
        }
    }

    /// The role that owns it.
    pub fn owner(&self) -> &str {
        match self {
            Relation::Table(table) => &table.owner,
            Relation::View(view) => &view.owner,
            Relation::Sequence(sequence) => &sequence.owner,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Relation::Table(table) => &table.name,
            Relation::View(view) => &view.name,
            Relation::Sequence(sequence) => &sequence.name,
        }
    }

    /// Its columns in order.
    pub fn columns(&self) -> &[Column] {
        match self {
            Relation::Table(table) => &table.table.schema().columns,
            Relation::View(view) => &view.columns,
            Relation::Sequence(_) => &SEQUENCE_COLUMNS,
        }
    }

    /// The name of its kind, as messages use it.
    pub fn kind(&self) -> &'static str {
        match self {
            Relation::Table(_) => "table",
            Relation::View(_) => "view",
            Relation::Sequence(_) => "sequence",
        }
    }

    /// Who may do what with it beyond its owner.
    pub fn grants(&self) -> &[Grant] {
        match self {
            Relation::Table(table) => &table.grants,
            Relation::View(view) => &view.grants,
            Relation::Sequence(sequence) => &sequence.grants,
        }
    }
}

/// A table in the catalogue.
#[derive(Clone)]
pub struct TableEntry {
    /// Its OID, which stays when its rows get another [`TableId`] in storage.
    pub oid: RelationId,
    /// The OID of its primary-key index; none if there is no key or a deferrable one.
    pub key_oid: IndexId,
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
    /// COMMENTs of its constraints and indexes.
    pub part_comments: PartComments,
    /// Who may do what with it beyond its owner.
    pub grants: Vec<Grant>,
    /// Whether the adviser may change the table's layout.
    pub auto_layout: bool,
    /// The secondary indexes, in the order in which they were made.
    pub indexes: Vec<IndexEntry>,
    /// The foreign keys, in the order in which they were made.
    pub foreign_keys: Vec<ForeignKey>,
    /// The identity columns, by name.
    pub identities: BTreeMap<String, Identity>,
    /// What becomes of its rows at the end of a transaction, if it is temporary.
    pub on_commit: OnCommit,
    /// What statements did to it since the node started.
    pub usage: Arc<Usage>,
}

impl TableEntry {
    /// The primary key's index, if there is one and rows lie by it.
    pub fn key_index(&self) -> Option<IndexEntry> {
        let schema = self.table.schema();
        (self.key_oid != IndexId::NONE).then(|| IndexEntry {
            oid: self.key_oid,
            index: TableIndex {
                name: schema.primary_key_name.clone(),
                kind: IndexKind::Ordered,
                columns: schema.primary_key.clone(),
                unique: true,
                nulls_not_distinct: false,
            },
            is_constraint: true,
            is_primary: true,
            deferral: Deferral::Never,
        })
    }

    /// The primary key's index and the secondary ones.
    pub fn all_indexes(&self) -> impl Iterator<Item = IndexEntry> {
        self.key_index().into_iter().chain(self.indexes.clone())
    }
}

/// A view in the catalogue.
#[derive(Clone, Serialize, Deserialize)]
pub struct ViewEntry {
    /// Its OID.
    pub oid: RelationId,
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
    /// COMMENTs of its columns, by column name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub column_comments: BTreeMap<String, String>,
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

/// One privilege that a role holds on a schema.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchemaGrant {
    /// The role, or `public` for everyone.
    pub role: String,
    /// What it may do.
    pub privilege: SchemaPrivilege,
}

/// The lock on a relation.
pub fn relation_tag(relation: RelationId) -> LockTag {
    LockTag(u64::from(relation.0))
}

/// The lock on a schema, whose number no relation has.
fn schema_tag(schema: SchemaId) -> LockTag {
    LockTag(u64::from(schema.0))
}

/// The lock on a name in a schema; of schemas themselves in [`SchemaId::NONE`]. Two names that share
/// one wait for each other now and then, which does no harm.
fn name_tag(schema: SchemaId, name: &str) -> LockTag {
    let mut hasher = DefaultHasher::new();
    (schema, name).hash(&mut hasher);
    LockTag(hasher.finish() | 1 << 63)
}

/// A database's catalogue, as it was committed last.
pub struct Catalog {
    state: ArcSwap<CatalogState>,
    /// Held by the transaction that commits what it has defined.
    committing: Mutex<()>,
}

impl Catalog {
    /// A catalogue with an empty schema `public` of this owner. `last_table` is the highest
    /// number that a table has had.
    pub fn new(owner: &str, last_table: Option<TableId>) -> Self {
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
        let numbers = Numbers::from(FIRST_USER_OID);
        numbers.pass(last_table);
        Self::of(CatalogState {
            epoch: 1,
            schemas: BTreeMap::from([(PUBLIC.to_owned(), Arc::new(public))]),
            numbers,
        })
    }

    /// The catalogue that the tenant's log ends with, over its recovered tables.
    ///
    /// # Errors
    /// The document cannot be read, or names a table that is not there.
    pub fn recover(
        document: &[u8],
        tables: &BTreeMap<TableId, Arc<Table>>,
        last_table: Option<TableId>,
    ) -> Result<Self, RecordError> {
        let state = record::decode(document, tables)?;
        state.numbers.pass(last_table);
        Ok(Self::of(state))
    }

    /// Becomes what another node has committed, over the tables that this one has: what tables are known by
    /// stays, and sequences look at their rows again.
    ///
    /// # Errors
    /// As [`Self::recover`]; nothing has changed then.
    pub fn follow(
        &self,
        document: &[u8],
        tables: &BTreeMap<TableId, Arc<Table>>,
    ) -> Result<(), RecordError> {
        let _committing = self.committing.lock();
        let before = self.load();
        let mut state = record::decode(document, tables)?;
        state.take_up(&before);
        self.state.store(Arc::new(state));
        Ok(())
    }

    /// No table gets a number up to this one any more: transactions of another node that did not commit had some.
    pub fn pass_tables(&self, last: Option<TableId>) {
        self.load().numbers.pass(last);
    }

    fn of(state: CatalogState) -> Self {
        Self {
            state: ArcSwap::from_pointee(state),
            committing: Mutex::new(()),
        }
    }

    /// The state now.
    pub fn load(&self) -> Arc<CatalogState> {
        self.state.load_full()
    }
}

impl CatalogState {
    /// Goes on from a state before this one, which was read from a document: with its numbers, and what its
    /// tables are known by.
    fn take_up(&mut self, before: &CatalogState) {
        let next_oid = self.numbers.next_oid();
        self.numbers = Arc::clone(&before.numbers);
        self.numbers.next_oid.fetch_max(next_oid, Ordering::Relaxed);
        self.epoch = self.numbers.next_epoch();
        let known: BTreeMap<RelationId, Arc<Usage>> = before
            .table_entries()
            .iter()
            .map(|entry| (entry.oid, Arc::clone(&entry.usage)))
            .collect();
        for schema in self.schemas.values_mut() {
            for relation in Arc::make_mut(schema).relations.values_mut() {
                if let Relation::Table(entry) = relation
                    && let Some(usage) = known.get(&entry.oid)
                {
                    Arc::make_mut(entry).usage = Arc::clone(usage);
                }
            }
        }
    }

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
    pub fn allocate_oid(&self) -> Result<u32, SqlError> {
        let next = &self.numbers.next_oid;
        let taken = next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |oid| {
            oid.checked_add(1)
        });
        taken.map_err(|_| {
            SqlError::new(
                ErrorKind::ProgramLimitExceeded,
                "this database has used up its object numbers",
            )
        })
    }

    /// All tables, in order of names.
    pub fn table_entries(&self) -> Vec<Arc<TableEntry>> {
        self.relations()
            .filter_map(|(_, relation, _)| match relation {
                Relation::Table(entry) => Some(Arc::clone(entry)),
                Relation::View(_) | Relation::Sequence(_) => None,
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

    /// The numbers in storage of all tables, those that sequences stand in too.
    pub fn table_ids(&self) -> BTreeSet<TableId> {
        let tables = self.tables();
        let tables = tables.iter().map(|table| table.id());
        let counters = self.sequences();
        let counters = counters.map(|(_, sequence)| sequence.counter.table_id());
        tables.chain(counters).collect()
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

/// The error for a schema that is there already.
pub(crate) fn duplicate_schema(name: &str) -> SqlError {
    SqlError::new(
        ErrorKind::DuplicateSchema,
        format!("schema \"{name}\" already exists"),
    )
}

/// The error for a name that a relation or an index has already.
pub(crate) fn duplicate_relation(name: &str) -> SqlError {
    SqlError::new(
        ErrorKind::DuplicateTable,
        format!("relation \"{name}\" already exists"),
    )
}
