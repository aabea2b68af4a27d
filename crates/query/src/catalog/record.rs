//! A database's catalogue as a document, which the tenant's log keeps: each commit of
//! definitions writes the whole of it, and recovery reads the last one.
//!
//! Tables appear by their number in storage, which keeps their columns and
//! layout; TRUNCATE gives a table a new number, as PostgreSQL gives it a new
//! relfilenode. A definition that ALTER TABLE has changed since is here.

use std::{collections::BTreeMap, sync::Arc};

use aerostat_storage::Table;
use aerostat_types::{TableId, TableSchema};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{
    CatalogState, ForeignKey, Grant, IndexEntry, Numbers, Relation, SchemaEntry, SchemaGrant,
    TableEntry, ViewEntry,
};

/// Raised whenever older documents could be misread.
const FORMAT: u32 = 1;

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
}

#[derive(Serialize, Deserialize)]
struct CatalogRecord {
    format: u32,
    next_oid: u32,
    schemas: Vec<SchemaRecord>,
}

#[derive(Serialize, Deserialize)]
struct SchemaRecord {
    oid: u32,
    name: String,
    owner: String,
    comment: Option<String>,
    grants: Vec<SchemaGrant>,
    tables: Vec<TableRecord>,
    views: Vec<ViewEntry>,
}

#[derive(Serialize, Deserialize)]
struct TableRecord {
    oid: u32,
    key_oid: u32,
    /// The number in storage.
    table: u32,
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
    grants: Vec<Grant>,
    #[serde(default)]
    auto_layout: bool,
    #[serde(default)]
    indexes: Vec<IndexEntry>,
    #[serde(default)]
    foreign_keys: Vec<ForeignKey>,
}

/// The document of a catalogue.
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
    Ok(CatalogState {
        epoch: 1,
        schemas,
        numbers: Numbers::from(record.next_oid),
    })
}

fn of_schema(schema: &SchemaEntry) -> SchemaRecord {
    let (mut tables, mut views) = (Vec::new(), Vec::new());
    for relation in schema.relations.values() {
        match relation {
            Relation::Table(entry) => tables.push(of_table(entry)),
            Relation::View(entry) => views.push(ViewEntry::clone(entry)),
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
    }
}

fn of_table(entry: &TableEntry) -> TableRecord {
    let columns = entry.table.schema().columns.iter().enumerate();
    let refuses = columns.filter(|(_, column)| !column.nullable);
    let is_redefined = entry.table.is_redefined();
    TableRecord {
        oid: entry.oid,
        key_oid: entry.key_oid,
        table: entry.table.id().0,
        definition: is_redefined.then(|| TableSchema::clone(entry.table.schema())),
        not_null: match is_redefined {
            true => Vec::new(),
            false => refuses.map(|(at, _)| at).collect(),
        },
        name: entry.name.clone(),
        owner: entry.owner.clone(),
        comment: entry.comment.clone(),
        column_comments: entry.column_comments.clone(),
        grants: entry.grants.clone(),
        auto_layout: entry.auto_layout,
        indexes: entry.indexes.clone(),
        foreign_keys: entry.foreign_keys.clone(),
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
    let id = TableId(record.table);
    let Some(table) = tables.get(&id) else {
        return Err(RecordError::MissingTable {
            id,
            name: record.name,
        });
    };
    Ok(TableEntry {
        oid: record.oid,
        key_oid: record.key_oid,
        name: record.name,
        owner: record.owner,
        table: match record.definition {
            Some(definition) => table.redefined(Arc::new(definition)),
            None => refusing(table, &record.not_null),
        },
        comment: record.comment,
        column_comments: record.column_comments,
        grants: record.grants,
        auto_layout: record.auto_layout,
        indexes: record.indexes,
        foreign_keys: record.foreign_keys,
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
