//! How much of the node a database may use, and who decides.
//!
//! The operator sets a database's limits: superusers and members of `aerostat_operator`. Its
//! owner may lower each, and raise it again up to the operator's value. A database that a role
//! without operator's rights creates gets the limits of the database to which the role is
//! connected, so that CREATE DATABASE gives nobody more.

use aerostat_sql::utility::DatabaseOptions;
use aerostat_storage::Durability;
use aerostat_types::{ByteSize, ErrorKind, SqlError};

use crate::state::{DatabaseRecord, Lowered};

/// What the operator gave a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) memory_max: Option<ByteSize>,
    pub(super) connection_limit: i32,
    pub(super) durability: Durability,
}

impl Default for Limits {
    /// The node's.
    fn default() -> Self {
        Self {
            memory_max: None,
            connection_limit: -1,
            durability: Durability::default(),
        }
    }
}

impl Limits {
    /// Those of a database.
    pub(super) fn of(entry: &DatabaseRecord) -> Self {
        Self {
            memory_max: entry.memory_max,
            connection_limit: entry.connection_limit,
            durability: entry.durability,
        }
    }
}

/// Sets limits as the operator does: what the owner made of those before holds no longer.
pub(super) fn give(entry: &mut DatabaseRecord, options: &DatabaseOptions) {
    if let Some(memory_max) = options.memory_max {
        entry.memory_max = memory_max;
        entry.lowered.memory_max = None;
    }
    if let Some(limit) = options.connection_limit {
        entry.connection_limit = limit;
        entry.lowered.connection_limit = None;
    }
    if let Some(durability) = options.durability {
        entry.durability = durability;
        entry.lowered.durability = None;
    }
}

/// Sets limits as an owner does: each at most the operator's, and the operator's by default.
///
/// # Errors
/// One is above what the operator gave.
pub(super) fn lower(entry: &mut DatabaseRecord, options: &DatabaseOptions) -> Result<(), SqlError> {
    let mut lowered: Lowered = entry.lowered;
    if let Some(memory_max) = options.memory_max {
        if let (Some(wanted), Some(given)) = (memory_max, entry.memory_max)
            && wanted > given
        {
            return Err(above("memory_max", &given.to_string()));
        }
        lowered.memory_max = memory_max;
    }
    if let Some(limit) = options.connection_limit {
        // A negative limit is none: the operator's then.
        let wanted = u32::try_from(limit).ok();
        let given = u32::try_from(entry.connection_limit).ok();
        if let (Some(wanted), Some(given)) = (wanted, given)
            && wanted > given
        {
            return Err(above("connection_limit", &given.to_string()));
        }
        lowered.connection_limit = wanted.map(|_| limit);
    }
    if let Some(durability) = options.durability {
        let is_stronger = (entry.durability, durability) == (Durability::None, Durability::Fsync);
        if is_stronger {
            return Err(above("durability", &entry.durability.to_string()));
        }
        lowered.durability = Some(durability);
    }
    entry.lowered = lowered;
    Ok(())
}

fn above(limit: &str, given: &str) -> SqlError {
    let message = format!("permission denied to raise {limit} above {given}");
    SqlError::new(ErrorKind::InsufficientPrivilege, message)
        .with_detail("Only superusers and members of aerostat_operator give a database more.")
}
