//! How much of the node a database may use, and who decides.
//!
//! The operator sets a database's limits: superusers and members of `aerostat_operator`. Its
//! owner may lower each, and raise it again up to the operator's value. A database that a role
//! without operator's rights creates gets the limits of the database to which the role is
//! connected, so that CREATE DATABASE gives nobody more. What is kept for a database (`memory_min`), and its
//! weights, operators say alone. Where nobody says how many statements run and wait, the node's defaults hold, and the
//! owner may lower these as well.

use aerostat_memory::Budget;
use aerostat_sql::utility::{CPU_WEIGHT_DEFAULT, DatabaseOptions, MEMORY_WEIGHT_DEFAULT};
use aerostat_storage::Durability;
use aerostat_types::{ByteSize, ErrorKind, SqlError};

use crate::state::{DatabaseRecord, Lowered, NodeRecord, StatementsRecord};

/// What the operator gave a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) memory_max: Option<ByteSize>,
    pub(super) memory_weight: u32,
    pub(super) cpu_weight: u32,
    pub(super) connection_limit: i32,
    pub(super) statements: StatementsRecord,
    pub(super) durability: Durability,
}

impl Default for Limits {
    /// The node's.
    fn default() -> Self {
        Self {
            memory_max: None,
            memory_weight: MEMORY_WEIGHT_DEFAULT,
            cpu_weight: CPU_WEIGHT_DEFAULT,
            connection_limit: -1,
            statements: StatementsRecord::default(),
            durability: Durability::default(),
        }
    }
}

impl Limits {
    /// Those of a database.
    pub(super) fn of(entry: &DatabaseRecord) -> Self {
        Self {
            memory_max: entry.memory_max,
            memory_weight: entry.memory_weight,
            cpu_weight: entry.cpu_weight,
            connection_limit: entry.connection_limit,
            statements: entry.statements,
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
    if let Some(memory_min) = options.memory_min {
        entry.memory_min = memory_min;
    }
    if let Some(weight) = options.memory_weight {
        entry.memory_weight = weight;
    }
    if let Some(limit) = options.connection_limit {
        entry.connection_limit = limit;
        entry.lowered.connection_limit = None;
    }
    if let Some(weight) = options.cpu_weight {
        entry.cpu_weight = weight;
    }
    let (given, lowered) = (&mut entry.statements, &mut entry.lowered.statements);
    if let Some(most) = options.statements_max {
        (given.statements_max, lowered.statements_max) = (most, None);
    }
    if let Some(most) = options.queue_max {
        (given.queue_max, lowered.queue_max) = (most, None);
    }
    if let Some(timeout) = options.queue_timeout_ms {
        (given.queue_timeout_ms, lowered.queue_timeout_ms) = (timeout, None);
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
pub(super) fn lower(
    entry: &mut DatabaseRecord,
    options: &DatabaseOptions,
    defaults: StatementsRecord,
) -> Result<(), SqlError> {
    // What is kept for one is kept from others.
    let of_operators = [
        ("memory_min", options.memory_min.is_some()),
        ("memory_weight", options.memory_weight.is_some()),
        ("cpu_weight", options.cpu_weight.is_some()),
    ];
    if let Some((name, _)) = of_operators.iter().find(|(_, is_given)| *is_given) {
        let message = format!("permission denied to set {name}");
        return Err(
            SqlError::new(ErrorKind::InsufficientPrivilege, message).with_detail(
                "Only superusers and members of aerostat_operator say what is kept for a database, and its weights.",
            ),
        );
    }
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
        let given = entry.connection_limit;
        lowered.connection_limit = lower_count("connection_limit", limit, given)?;
    }
    lower_statements(
        &mut lowered.statements,
        options,
        entry.statements.or(defaults),
    )?;
    if let Some(durability) = options.durability {
        if !entry.durability.is_at_least(durability) {
            return Err(above("durability", &entry.durability.to_string()));
        }
        lowered.durability = Some(durability);
    }
    entry.lowered = lowered;
    Ok(())
}

/// Lowers how many statements run and wait below what the operator gave.
fn lower_statements(
    lowered: &mut StatementsRecord,
    options: &DatabaseOptions,
    given: StatementsRecord,
) -> Result<(), SqlError> {
    if let Some(most) = options.statements_max {
        let (wanted, given) = (most.unwrap_or(-1), given.statements_max.unwrap_or(-1));
        lowered.statements_max = lower_count("statements_max", wanted, given)?;
    }
    if let Some(most) = options.queue_max {
        let (wanted, given) = (most.unwrap_or(-1), given.queue_max.unwrap_or(-1));
        lowered.queue_max = lower_count("queue_max", wanted, given)?;
    }
    if let Some(timeout) = options.queue_timeout_ms {
        // No limit is the operator's.
        let wanted = timeout.filter(|ms| *ms > 0);
        let given = given.queue_timeout_ms.filter(|ms| *ms > 0);
        if let (Some(wanted), Some(given)) = (wanted, given)
            && wanted > given
        {
            return Err(above("queue_timeout", &format!("{given} ms")));
        }
        lowered.queue_timeout_ms = wanted;
    }
    Ok(())
}

/// What an owner makes of a count; a negative limit is none, and so the operator's.
fn lower_count(name: &str, wanted: i32, given: i32) -> Result<Option<i32>, SqlError> {
    let limit = |count| u32::try_from(count).ok();
    match (limit(wanted), limit(given)) {
        (Some(wanted), Some(given)) if wanted > given => Err(above(name, &given.to_string())),
        (wanted_limit, _) => Ok(wanted_limit.map(|_| wanted)),
    }
}

/// Whether the minima of all databases can be kept, in a node of so many bytes, after one has changed.
///
/// # Errors
/// They are more than that together; the one is above its own maximum.
pub(super) fn check_minima(
    record: &NodeRecord,
    changed: &DatabaseRecord,
    memory: ByteSize,
) -> Result<(), SqlError> {
    let invalid = |message: String| SqlError::new(ErrorKind::InvalidParameterValue, message);
    if let (Some(min), Some(max)) = (changed.memory_min, changed.memory_max)
        && min > max
    {
        let message = format!("memory_min ({min}) must not be above memory_max ({max})");
        return Err(invalid(message));
    }
    let others = record.databases.values();
    let others = others.filter(|other| other.oid != changed.oid);
    let all = minima(others.chain([changed]));
    if all > memory && changed.memory_min.is_some() {
        let message = format!("memory_min of all databases would be {all}, the node has {memory}");
        return Err(invalid(message).with_hint(
            "Lower the minimum of this database or another one, or give the node more by ALTER SYSTEM SET memory.",
        ));
    }
    Ok(())
}

/// Has a database's budget follow its record.
pub(super) fn set(budget: &Budget, entry: &DatabaseRecord) {
    budget.set_max(entry.memory_ceiling());
    budget.set_weight(entry.memory_weight);
    budget.set_min(entry.memory_min.unwrap_or(ByteSize(0)));
}

/// What is kept for databases, together.
pub(super) fn minima<'d>(databases: impl Iterator<Item = &'d DatabaseRecord>) -> ByteSize {
    let minima = databases.filter_map(|database| database.memory_min);
    ByteSize(minima.fold(0, |sum, min| sum.saturating_add(min.0)))
}

fn above(limit: &str, given: &str) -> SqlError {
    let message = format!("permission denied to raise {limit} above {given}");
    SqlError::new(ErrorKind::InsufficientPrivilege, message)
        .with_detail("Only superusers and members of aerostat_operator give a database more.")
}
