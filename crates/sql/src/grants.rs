//! What can be granted: privileges, and the predefined roles of every node.

use aerostat_types::RoleId;
use serde::{Deserialize, Serialize};

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
    /// Take numbers from a sequence.
    Usage,
}

/// What one may do with a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SchemaPrivilege {
    /// Reach the relations in it.
    Usage,
    /// Make relations in it.
    Create,
}

/// A role that every node has, and whose members may do what it stands for. Nobody connects as
/// it, owns anything or is granted anything through it, so it has no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PredefinedRole {
    /// Sets what databases may take of the node.
    AerostatOperator,
    /// CHECKPOINT.
    PgCheckpoint,
    /// Sees what others' sessions do and how large others' databases are.
    PgReadAllStats,
}

impl PredefinedRole {
    /// All of them.
    pub const ALL: [Self; 3] = [
        Self::AerostatOperator,
        Self::PgCheckpoint,
        Self::PgReadAllStats,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::AerostatOperator => "aerostat_operator",
            Self::PgCheckpoint => "pg_checkpoint",
            Self::PgReadAllStats => "pg_read_all_stats",
        }
    }

    /// Its OID: PostgreSQL's, or one that PostgreSQL has for nothing.
    pub fn oid(self) -> RoleId {
        RoleId(match self {
            Self::AerostatOperator => 9_100,
            Self::PgCheckpoint => 4_544,
            Self::PgReadAllStats => 3_375,
        })
    }

    /// The one of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }
}
