//! What a table is made of: columns, keys and constraints.

use std::{fmt, sync::Arc};

use arrow_schema::Schema;
use serde::{Deserialize, Serialize};

use crate::SqlType;

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Its name, as folded by the parser.
    pub name: String,
    /// Its type.
    pub ty: SqlType,
    /// Whether it takes NULL. Primary-key columns never do.
    pub nullable: bool,
    /// The SQL text of its DEFAULT expression.
    pub default: Option<String>,
}

/// A CHECK constraint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckConstraint {
    /// Its name, given or made as PostgreSQL makes it.
    pub name: String,
    /// The SQL text of the condition.
    pub expression: String,
    /// Whether rows that were there before it may break it (NOT VALID).
    #[serde(default)]
    pub not_valid: bool,
}

/// How an index is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum IndexKind {
    /// For equality of all its columns.
    Hash,
    /// For equality of leading columns, and a range of the next.
    Ordered,
}

impl fmt::Display for IndexKind {
    /// The name of PostgreSQL's access method.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IndexKind::Hash => "hash",
            IndexKind::Ordered => "btree",
        })
    }
}

/// A secondary index of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableIndex {
    /// Its name, which is also that of the constraint it keeps.
    pub name: String,
    /// How it is searched.
    pub kind: IndexKind,
    /// Positions of its columns, the leading one first.
    pub columns: Vec<usize>,
    /// Whether no two rows may be equal in all its columns.
    pub unique: bool,
    /// Whether NULL equals NULL in that; otherwise it equals nothing.
    #[serde(default)]
    pub nulls_not_distinct: bool,
}

/// The description of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableSchema {
    /// The table's name, for messages; the catalog holds the binding one.
    pub name: String,
    /// The columns in order.
    pub columns: Vec<Column>,
    /// Positions of the primary-key columns, in key order; empty for none.
    pub primary_key: Vec<usize>,
    /// The name of the primary-key constraint.
    pub primary_key_name: String,
    /// The CHECK constraints.
    pub checks: Vec<CheckConstraint>,
}

impl TableSchema {
    /// The Arrow schema of the table's rows; each field remembers its SQL type.
    pub fn arrow(&self) -> Arc<Schema> {
        let fields: Vec<_> = self
            .columns
            .iter()
            .map(|c| c.ty.field(&c.name, c.nullable))
            .collect();
        Arc::new(Schema::new(fields))
    }

    /// The names of the columns.
    pub fn names(&self) -> Vec<String> {
        self.columns
            .iter()
            .map(|column| column.name.clone())
            .collect()
    }

    /// The position of the column with this name.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }
}
