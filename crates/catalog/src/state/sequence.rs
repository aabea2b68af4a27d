//! Sequences in the catalogue, and the columns that own them.

use std::sync::{Arc, LazyLock};

use aerostat_sql::sequence_text as text;
use aerostat_types::{Column, RelationId, SqlType};
use serde::{Deserialize, Serialize};

use super::{CatalogState, Grant, Relation, SchemaEntry, TableEntry};
use crate::sequence::{Counter, Definition};

/// A sequence in the catalogue.
#[derive(Clone)]
pub struct SequenceEntry {
    /// Its OID.
    pub oid: RelationId,
    /// Its name.
    pub name: String,
    /// The role that owns it.
    pub owner: String,
    /// What numbers it gives.
    pub definition: Definition,
    /// Where it stands.
    pub counter: Arc<Counter>,
    /// The column it belongs to, and goes with.
    pub owned_by: Option<OwnedBy>,
    /// Its COMMENT.
    pub comment: Option<String>,
    /// Who may do what with it beyond its owner.
    pub grants: Vec<Grant>,
}

/// The column that a sequence belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnedBy {
    /// The OID of the table.
    pub table: RelationId,
    /// The name of the column.
    pub column: String,
    /// Whether it is the column's identity, and cannot go without it.
    pub is_identity: bool,
}

/// What GENERATED … AS IDENTITY says of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The OID of its sequence.
    pub sequence: RelationId,
    /// ALWAYS rather than BY DEFAULT: other values need OVERRIDING SYSTEM VALUE.
    pub is_always: bool,
}

/// What a query finds in a sequence.
pub static SEQUENCE_COLUMNS: LazyLock<Vec<Column>> = LazyLock::new(|| {
    let column = |name: &str, ty: SqlType| Column {
        name: name.to_owned(),
        ty,
        nullable: false,
        default: None,
    };
    vec![
        column("last_value", SqlType::BigInt),
        column("log_cnt", SqlType::BigInt),
        column("is_called", SqlType::Boolean),
    ]
});

impl TableEntry {
    /// What says that a column is an identity column, if it is one.
    pub fn identity(&self, at: usize) -> Option<Identity> {
        let column = self.table.schema().columns.get(at)?;
        self.identities.get(&column.name).copied()
    }

    /// The text of the value that a column takes when none is given.
    pub fn default_text(&self, at: usize) -> Option<String> {
        match self.identity(at) {
            Some(identity) => Some(text::identity_default(identity.sequence)),
            None => self.table.schema().columns.get(at)?.default.clone(),
        }
    }
}

impl CatalogState {
    /// The sequence of this OID, with its schema.
    pub fn sequence(&self, oid: RelationId) -> Option<(&SchemaEntry, &Arc<SequenceEntry>)> {
        self.sequences().find(|(_, entry)| entry.oid == oid)
    }

    /// All sequences with their schemas, in order of names.
    pub fn sequences(&self) -> impl Iterator<Item = (&SchemaEntry, &Arc<SequenceEntry>)> {
        self.relations()
            .filter_map(|(schema, relation, _)| match relation {
                Relation::Sequence(entry) => Some((schema, entry)),
                _ => None,
            })
    }

    /// The sequences that belong to columns of a table, with their schemas.
    pub fn owned_sequences(
        &self,
        table: RelationId,
    ) -> impl Iterator<Item = (&SchemaEntry, &Arc<SequenceEntry>)> {
        self.sequences().filter(move |(_, entry)| {
            let owned_by = entry.owned_by.as_ref();
            owned_by.is_some_and(|owner| owner.table == table)
        })
    }
}
