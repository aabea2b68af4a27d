//! Newtypes for identifiers, so that a table's number is never taken for a tenant's.

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

id! {
    /// A tenant, which is a database to its users. Unique within a cluster, never reused.
    TenantId(u32)
}
id! {
    /// A table, or any other relation, within a tenant; also its PostgreSQL OID. Never reused.
    TableId(u32)
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

impl Default for CommitTs {
    /// Before every commit.
    fn default() -> Self {
        CommitTs(0)
    }
}
