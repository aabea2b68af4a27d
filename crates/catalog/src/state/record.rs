//! A database's catalogue as a document in the tenant's log: each commit of definitions writes
//! the whole of it, and recovery reads the last one.
//!
//! Tables appear by their number in storage, which holds their columns and layout; TRUNCATE gives
//! a table a new number, as PostgreSQL gives it a new relfilenode. A definition that ALTER TABLE
//! has changed since is here.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use aerostat_storage::Table;
use aerostat_types::{IndexId, RelationId, SchemaId, TableId, TableSchema};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{
    CatalogState, ForeignKey, Grant, Identity, IndexEntry, Numbers, OnCommit, OwnedBy, PUBLIC,
    PartComments, Relation, SchemaEntry, SchemaGrant, SequenceEntry, TableEntry, ViewEntry,
};
use crate::sequence::{Counter, Definition, Position};

/// The format of a database's catalogue in its log. Raised whenever older documents could be misread.
pub const FORMAT: u32 = 1;

/// Why a document could not become a catalogue.
#[derive(Debug, Error)]
pub enum RecordError {
    /// It is no document of ours.
    #[error("the catalogue in the log cannot be read")]
    Parse(#[from] serde_json::Error),
    /// It was written by a newer version.
    #[error("the catalogue in the log has format {0}, and this version knows up to {FORMAT}")]
    Format(u32),
    /// It names a table that storage does not have.
    #[error("the catalogue in the log names table {id} (\"{name}\"), whose rows are not there")]
    MissingTable {
        /// The number in storage.
        id: TableId,
        /// The table's name.
        name: String,
    },
    /// It says what no catalogue does.
    #[error("the catalogue in the log is damaged: {0}")]
    Damaged(String),
}

#[derive(Serialize, Deserialize)]
struct CatalogRecord {
    format: u32,
    next_oid: u32,
    schemas: Vec<SchemaRecord>,
}

#[derive(Serialize, Deserialize)]
struct SchemaRecord {
    oid: SchemaId,
    name: String,
    owner: String,
    comment: Option<String>,
    grants: Vec<SchemaGrant>,
    tables: Vec<TableRecord>,
    views: Vec<ViewEntry>,
    #[serde(default)]
    sequences: Vec<SequenceRecord>,
}

#[derive(Serialize, Deserialize)]
struct TableRecord {
    oid: RelationId,
    key_oid: IndexId,
    /// The number in storage.
    table: TableId,
    /// The definition, where it is not the one in storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    definition: Option<TableSchema>,
    /// Positions of columns that refuse NULL under the one in storage. It comes to say that
    /// they take it when room for NULL is made for a definition that is not committed then.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    not_null: Vec<usize>,
    name: String,
    owner: String,
    comment: Option<String>,
    column_comments: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "PartComments::is_empty")]
    part_comments: PartComments,
    grants: Vec<Grant>,
    #[serde(default)]
    auto_layout: bool,
    #[serde(default)]
    indexes: Vec<IndexEntry>,
    #[serde(default)]
    foreign_keys: Vec<ForeignKey>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    identities: BTreeMap<String, Identity>,
}

#[derive(Serialize, Deserialize)]
struct SequenceRecord {
    oid: RelationId,
    name: String,
    owner: String,
    definition: Definition,
    /// The number in storage of the table that it stands in.
    table: TableId,
    /// Where it stands as long as that is empty.
    start: Position,
    owned_by: Option<OwnedBy>,
    comment: Option<String>,
    grants: Vec<Grant>,
}

/// The document of a catalogue. Nothing of it is temporary.
pub(super) fn encode(state: &CatalogState) -> Vec<u8> {
    let record = CatalogRecord {
        format: FORMAT,
        next_oid: state.numbers.next_oid(),
        schemas: state
            .schemas
            .values()
            .map(|schema| of_schema(schema))
            .collect(),
    };
    serde_json::to_vec(&record).expect("maps have string keys, and writing to memory does not fail")
}

/// The roles that a catalogue names, and how many objects each owns or has privileges on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NamedRoles(BTreeMap<String, usize>);

impl NamedRoles {
    /// Of a document, without the tables.
    ///
    /// # Errors
    /// It is none, or a newer version's.
    pub(crate) fn read(document: &[u8]) -> Result<Self, RecordError> {
        let record: CatalogRecord = serde_json::from_slice(document)?;
        if record.format > FORMAT {
            return Err(RecordError::Format(record.format));
        }
        let mut named = Self::default();
        for schema in &record.schemas {
            // `public` goes with its database, and is no object of its owner's.
            let counts = usize::from(schema.name != PUBLIC);
            let grants = schema.grants.iter().map(|grant| &grant.role);
            named.note(&schema.owner, counts, grants);
            for table in &schema.tables {
                named.note(
                    &table.owner,
                    1,
                    table.grants.iter().map(|grant| &grant.role),
                );
            }
            for view in &schema.views {
                named.note(&view.owner, 1, view.grants.iter().map(|grant| &grant.role));
            }
            for sequence in &schema.sequences {
                let grants = sequence.grants.iter().map(|grant| &grant.role);
                named.note(&sequence.owner, 1, grants);
            }
        }
        Ok(named)
    }

    /// Of a catalogue.
    pub(crate) fn of(state: &CatalogState) -> Self {
        Self::read(&encode(state)).expect("it is written as it is read")
    }

    fn note<'a>(&mut self, owner: &str, owns: usize, grantees: impl Iterator<Item = &'a String>) {
        *self.0.entry(owner.to_owned()).or_default() += owns;
        for grantee in grantees.collect::<BTreeSet<_>>() {
            *self.0.entry(grantee.clone()).or_default() += 1;
        }
    }

    /// Whether the role is named anywhere.
    pub(crate) fn has(&self, role: &str) -> bool {
        self.0.contains_key(role)
    }

    /// What a role owns and was granted, in words for an error's detail, as PostgreSQL has them for
    /// other databases.
    pub(crate) fn belongings(&self, role: &str) -> Option<String> {
        match self.0.get(role)? {
            0 => None,
            1 => Some("1 object".to_owned()),
            count => Some(format!("{count} objects")),
        }
    }
}

/// The catalogue of a document, over the tables that storage has.
///
/// # Errors
/// See [`RecordError`].
pub(super) fn decode(
    document: &[u8],
    tables: &BTreeMap<TableId, Arc<Table>>,
) -> Result<CatalogState, RecordError> {
    let record: CatalogRecord = serde_json::from_slice(document)?;
    if record.format > FORMAT {
        return Err(RecordError::Format(record.format));
    }
    let schemas = record
        .schemas
        .into_iter()
        .map(|schema| {
            let entry = to_schema(schema, tables)?;
            Ok((entry.name.clone(), Arc::new(entry)))
        })
        .collect::<Result<_, RecordError>>()?;
    let state = CatalogState {
        epoch: 1,
        schemas,
        numbers: Numbers::from(record.next_oid),
    };
    check(&state)?;
    Ok(state)
}

fn of_schema(schema: &SchemaEntry) -> SchemaRecord {
    let (mut tables, mut views, mut sequences) = (Vec::new(), Vec::new(), Vec::new());
    for relation in schema.relations.values() {
        match relation {
            Relation::Table(entry) => tables.push(of_table(entry)),
            Relation::View(entry) => views.push(ViewEntry::clone(entry)),
            Relation::Sequence(entry) => sequences.push(of_sequence(entry)),
        }
    }
    SchemaRecord {
        oid: schema.oid,
        name: schema.name.clone(),
        owner: schema.owner.clone(),
        comment: schema.comment.clone(),
        grants: schema.grants.clone(),
        tables,
        views,
        sequences,
    }
}

fn of_sequence(entry: &SequenceEntry) -> SequenceRecord {
    SequenceRecord {
        oid: entry.oid,
        name: entry.name.clone(),
        owner: entry.owner.clone(),
        definition: entry.definition.clone(),
        table: entry.counter.table_id(),
        start: entry.counter.start(),
        owned_by: entry.owned_by.clone(),
        comment: entry.comment.clone(),
        grants: entry.grants.clone(),
    }
}

fn of_table(entry: &TableEntry) -> TableRecord {
    let columns = entry.table.schema().columns.iter().enumerate();
    let refuses = columns.filter(|(_, column)| !column.nullable);
    let is_redefined = entry.table.is_redefined();
    TableRecord {
        oid: entry.oid,
        key_oid: entry.key_oid,
        table: entry.table.id(),
        definition: is_redefined.then(|| TableSchema::clone(entry.table.schema())),
        not_null: match is_redefined {
            true => Vec::new(),
            false => refuses.map(|(at, _)| at).collect(),
        },
        name: entry.name.clone(),
        owner: entry.owner.clone(),
        comment: entry.comment.clone(),
        column_comments: entry.column_comments.clone(),
        part_comments: entry.part_comments.clone(),
        grants: entry.grants.clone(),
        auto_layout: entry.auto_layout,
        indexes: entry.indexes.clone(),
        foreign_keys: entry.foreign_keys.clone(),
        identities: entry.identities.clone(),
    }
}

fn to_schema(
    record: SchemaRecord,
    tables: &BTreeMap<TableId, Arc<Table>>,
) -> Result<SchemaEntry, RecordError> {
    let mut relations = BTreeMap::new();
    for view in record.views {
        relations.insert(view.name.clone(), Relation::View(Arc::new(view)));
    }
    for table in record.tables {
        let entry = to_table(table, tables)?;
        relations.insert(entry.name.clone(), Relation::Table(Arc::new(entry)));
    }
    for sequence in record.sequences {
        let entry = to_sequence(sequence, tables)?;
        relations.insert(entry.name.clone(), Relation::Sequence(Arc::new(entry)));
    }
    Ok(SchemaEntry {
        oid: record.oid,
        name: record.name,
        owner: record.owner,
        relations,
        comment: record.comment,
        grants: record.grants,
    })
}

fn to_table(
    record: TableRecord,
    tables: &BTreeMap<TableId, Arc<Table>>,
) -> Result<TableEntry, RecordError> {
    let table = stored(tables, record.table, &record.name)?;
    if let Some(definition) = &record.definition
        && !table.may_be(definition)
    {
        return Err(other_table(&table, &record.name));
    }
    Ok(TableEntry {
        oid: record.oid,
        key_oid: record.key_oid,
        name: record.name,
        owner: record.owner,
        table: match record.definition {
            Some(definition) => table.redefined(Arc::new(definition)),
            None => refusing(&table, &record.not_null),
        },
        comment: record.comment,
        column_comments: record.column_comments,
        part_comments: record.part_comments,
        grants: record.grants,
        auto_layout: record.auto_layout,
        indexes: record.indexes,
        foreign_keys: record.foreign_keys,
        identities: record.identities,
        on_commit: OnCommit::PreserveRows,
        usage: Arc::default(),
    })
}

/// The table with these columns refusing NULL.
fn refusing(table: &Arc<Table>, not_null: &[usize]) -> Arc<Table> {
    let columns = &table.schema().columns;
    let takes_null = |at: &usize| columns.get(*at).is_some_and(|column| column.nullable);
    if !not_null.iter().any(takes_null) {
        return Arc::clone(table);
    }
    let mut schema = TableSchema::clone(table.schema());
    for &at in not_null.iter().filter(|&at| takes_null(at)) {
        schema.columns[at].nullable = false;
    }
    table.redefined(Arc::new(schema))
}

fn to_sequence(
    record: SequenceRecord,
    tables: &BTreeMap<TableId, Arc<Table>>,
) -> Result<SequenceEntry, RecordError> {
    let table = stored(tables, record.table, &record.name)?;
    if !Counter::is_table(&table) {
        return Err(other_table(&table, &record.name));
    }
    Ok(SequenceEntry {
        oid: record.oid,
        name: record.name,
        owner: record.owner,
        definition: record.definition,
        counter: Counter::new(table, record.start),
        owned_by: record.owned_by,
        comment: record.comment,
        grants: record.grants,
    })
}

fn other_table(table: &Table, name: &str) -> RecordError {
    let id = table.id();
    RecordError::Damaged(format!("table {id} (\"{name}\") has rows of other columns"))
}

/// Whether a catalogue is one that is committed, as far as others rely on it.
fn check(state: &CatalogState) -> Result<(), RecordError> {
    if let Some(schema) = state.temporary() {
        let message = format!("schema \"{}\" is a session's own", schema.name);
        return Err(RecordError::Damaged(message));
    }
    let schemas = state.schemas.values().map(|schema| schema.oid.0);
    let relations = state.relations().map(|(_, relation, _)| relation.oid().0);
    let mut numbers = BTreeSet::new();
    let mut all = schemas.chain(relations);
    match all.find(|oid| !numbers.insert(*oid)) {
        Some(oid) => Err(RecordError::Damaged(format!(
            "two things have number {oid}"
        ))),
        None => Ok(()),
    }
}

/// The table of this number in storage; `name` is of what has it.
fn stored(
    tables: &BTreeMap<TableId, Arc<Table>>,
    id: TableId,
    name: &str,
) -> Result<Arc<Table>, RecordError> {
    tables
        .get(&id)
        .cloned()
        .ok_or_else(|| RecordError::MissingTable {
            id,
            name: name.to_owned(),
        })
}

#[cfg(test)]
mod tests {
    use aerostat_types::TenantId;

    use super::*;
    use crate::state::NodeRecord;

    #[test]
    fn documents_have_bare_numbers() {
        let identity = Identity {
            sequence: RelationId(16_390),
            is_always: true,
        };
        let document = serde_json::to_string(&identity).unwrap();
        assert_eq!(document, r#"{"sequence":16390,"is_always":true}"#);
        let node = NodeRecord {
            dropped: BTreeSet::from([TenantId(16_391), TenantId(5)]),
            ..NodeRecord::default()
        };
        let document = serde_json::to_string(&node).unwrap();
        let expected = r#"{"roles":{},"databases":{},"next_oid":0,"dropped":[5,16391]}"#;
        assert_eq!(document, expected);
        assert_eq!(serde_json::from_str::<NodeRecord>(expected).unwrap(), node);
    }
}
