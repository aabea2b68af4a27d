//! Constraints that the catalogue stores beside a table's schema: which indexes are constraints,
//! and foreign keys. The primary key and CHECKs are in the schema itself.

use std::sync::Arc;

use aerostat_sql::deferral::Deferral;
use aerostat_types::{ConstraintId, IndexId, RelationId, TableIndex};
use serde::{Deserialize, Serialize};

use super::{CatalogState, Relation, SchemaEntry, TableEntry};

/// An index of a table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IndexEntry {
    /// Its OID, also that of the constraint.
    pub oid: IndexId,
    /// Its name, columns and kind.
    pub index: TableIndex,
    /// Whether a constraint of its name has it, so that it cannot be dropped alone.
    #[serde(default)]
    pub is_constraint: bool,
    /// Whether that is the primary key. A deferrable one is an index like others; the other
    /// is in the table's schema, for rows lie by it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_primary: bool,
    /// When it is checked.
    #[serde(default)]
    pub deferral: Deferral,
}

impl IndexEntry {
    /// The OID of the constraint that it keeps.
    pub fn constraint_id(&self) -> ConstraintId {
        ConstraintId(self.oid.0)
    }
}

/// A foreign key: rows of its table refer to rows of another, or of the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ForeignKey {
    /// Its OID.
    pub oid: ConstraintId,
    /// Its name, unlike that of any other constraint of the table.
    pub name: String,
    /// Positions of the columns that refer.
    pub columns: Vec<usize>,
    /// The OID of the table referred to.
    pub referenced: RelationId,
    /// Positions of the columns referred to, one for each of `columns`.
    pub referenced_columns: Vec<usize>,
    /// The OID of the unique index, or primary key, of those columns.
    pub index: IndexId,
    /// MATCH FULL: either all columns are NULL or none. Otherwise one NULL refers to nothing.
    pub is_full: bool,
    /// When the key referred to changes.
    pub on_update: ReferentialAction,
    /// When the row referred to is deleted.
    pub on_delete: ReferentialAction,
    /// When it is checked.
    pub deferral: Deferral,
    /// Whether all rows are known to keep it; false after NOT VALID.
    pub is_valid: bool,
}

/// What happens to rows that refer to a row when that goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReferentialAction {
    /// An error, unless something else is referred to by the time of the check.
    #[default]
    NoAction,
    /// An error.
    Restrict,
    /// They go, too, or change with it.
    Cascade,
    /// They refer to nothing.
    SetNull,
    /// They refer to what the columns' defaults say.
    SetDefault,
}

impl ReferentialAction {
    /// The words of SQL.
    pub fn words(self) -> &'static str {
        match self {
            Self::NoAction => "NO ACTION",
            Self::Restrict => "RESTRICT",
            Self::Cascade => "CASCADE",
            Self::SetNull => "SET NULL",
            Self::SetDefault => "SET DEFAULT",
        }
    }

    /// The letter of `pg_constraint`.
    pub fn letter(self) -> &'static str {
        match self {
            Self::NoAction => "a",
            Self::Restrict => "r",
            Self::Cascade => "c",
            Self::SetNull => "n",
            Self::SetDefault => "d",
        }
    }
}

impl TableEntry {
    /// The indexes whose keys may be there twice before the transaction ends.
    pub fn deferrable_indexes(&self) -> impl Iterator<Item = &IndexEntry> {
        let indexes = self.indexes.iter();
        indexes.filter(|index| index.deferral.is_deferrable())
    }

    /// The index of this OID, also the primary key's.
    pub fn index(&self, oid: IndexId) -> Option<IndexEntry> {
        self.all_indexes().find(|index| index.oid == oid)
    }

    /// What storage calls an index: by its old name until the new one is committed.
    pub fn stored_name(&self, index: &IndexEntry) -> String {
        let stored = self.table.indexes();
        let is_named = |other: &TableIndex| other.name == index.index.name;
        if index.oid == self.key_oid || stored.iter().any(is_named) {
            return index.index.name.clone();
        }
        let is_known = |other: &TableIndex| {
            let mut known = self.indexes.iter();
            known.any(|known| known.index.name == other.name)
        };
        let is_it = |other: &&TableIndex| {
            let renamed = TableIndex {
                name: other.name.clone(),
                ..index.index.clone()
            };
            renamed == **other && !is_known(other)
        };
        let old = stored.iter().find(is_it).unwrap_or(&index.index);
        old.name.clone()
    }
}

impl CatalogState {
    /// The table of this OID, with its schema.
    pub fn table(&self, oid: RelationId) -> Option<(&SchemaEntry, &Arc<TableEntry>)> {
        self.relations()
            .find_map(|(schema, relation, _)| match relation {
                Relation::Table(entry) if entry.oid == oid => Some((schema, entry)),
                _ => None,
            })
    }

    /// The index that keeps the constraint of this OID, with its table; not a primary key that
    /// rows lie by.
    pub fn index(&self, oid: ConstraintId) -> Option<(&Arc<TableEntry>, &IndexEntry)> {
        self.each_table().find_map(|entry| {
            let mut indexes = entry.indexes.iter();
            let index = indexes.find(|index| index.constraint_id() == oid)?;
            Some((entry, index))
        })
    }

    /// The foreign key of this OID, with the table that has it.
    pub fn foreign_key(&self, oid: ConstraintId) -> Option<(&Arc<TableEntry>, &ForeignKey)> {
        self.each_table().find_map(|entry| {
            let key = entry.foreign_keys.iter().find(|key| key.oid == oid)?;
            Some((entry, key))
        })
    }

    fn each_table(&self) -> impl Iterator<Item = &Arc<TableEntry>> {
        self.relations()
            .filter_map(|(_, relation, _)| match relation {
                Relation::Table(entry) => Some(entry),
                Relation::View(_) | Relation::Sequence(_) => None,
            })
    }

    /// The foreign keys that refer to a table, with the tables that have them.
    pub fn referring(
        &self,
        oid: RelationId,
    ) -> impl Iterator<Item = (&Arc<TableEntry>, &ForeignKey)> {
        self.each_table()
            .flat_map(|entry| entry.foreign_keys.iter().map(move |key| (entry, key)))
            .filter(move |(_, key)| key.referenced == oid)
    }

    /// The other tables whose foreign keys refer to one of these, or to a table that does; the
    /// near ones first.
    pub fn all_referring(&self, oids: &[RelationId]) -> Vec<&Arc<TableEntry>> {
        let mut known = oids.to_vec();
        let mut found = Vec::new();
        loop {
            let refers = |entry: &&Arc<TableEntry>| {
                let mut keys = entry.foreign_keys.iter();
                !known.contains(&entry.oid) && keys.any(|key| known.contains(&key.referenced))
            };
            let mut next: Vec<_> = self.each_table().filter(refers).collect();
            if next.is_empty() {
                return found;
            }
            next.sort_by_key(|entry| entry.oid);
            known.extend(next.iter().map(|entry| entry.oid));
            found.append(&mut next);
        }
    }
}
