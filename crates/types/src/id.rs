//! Newtypes for identifiers, so that a table's number is never taken for a tenant's, nor the
//! number of its rows for that of the relation.

use std::fmt;

use serde::{Deserialize, Serialize};

macro_rules! id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

/// An [`id!`] that is an OID: PostgreSQL's number of an object in one of its catalogues. What
/// is in one database has its number from one counter, of whatever kind it is, and so have roles
/// and databases of one node.
macro_rules! oid {
    ($(#[$doc:meta])* $name:ident) => {
        id! {
            $(#[$doc])*
            $name(u32)
        }

        impl $name {
            /// The number of no object, as in PostgreSQL's catalogues.
            pub const NONE: Self = Self(0);
        }

        /// The number as SQL has it.
        impl From<$name> for i64 {
            fn from(id: $name) -> Self {
                Self::from(id.0)
            }
        }
    };
}

oid! {
    /// A tenant, which is a database to its users. Unique within a cluster, never reused.
    TenantId
}
id! {
    /// A table in storage, within a tenant; PostgreSQL's relfilenode. A relation has another
    /// after TRUNCATE, while its [`RelationId`] stays. Never reused.
    TableId(u32)
}
oid! {
    /// A role, within a node.
    RoleId
}
oid! {
    /// A schema, within a tenant.
    SchemaId
}
oid! {
    /// A table, view or sequence, within a tenant, whatever rows it has in storage.
    RelationId
}
oid! {
    /// An index of a table, within a tenant.
    IndexId
}
oid! {
    /// A constraint of a table, within a tenant. One that an index keeps has the index's number.
    ConstraintId
}
id! {
    /// A segment within a table, in order of creation. Never reused.
    SegmentNo(u32)
}
id! {
    /// A transaction that has not ended. Below 2^62.
    TxnId(u64)
}
id! {
    /// A point in a tenant's commit order. 0 is before every commit. Below 2^62.
    CommitTs(u64)
}

id! {
    /// Counts the configurations of a database's copies: who leads, and who must have a commit. 0 is that of
    /// a database that nobody copies.
    Epoch(u64)
}

id! {
    /// A node of a cluster, whatever process it is. Never reused.
    NodeId(u32)
}

impl Default for Epoch {
    /// Nobody has copied it.
    fn default() -> Self {
        Epoch(0)
    }
}

impl Default for CommitTs {
    /// Before every commit.
    fn default() -> Self {
        CommitTs(0)
    }
}
