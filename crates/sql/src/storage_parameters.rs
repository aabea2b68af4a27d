//! PostgreSQL's storage parameters in WITH, SET and RESET of a table or an index, other than its
//! layout.
//!
//! They control how PostgreSQL stores and cleans pages, of which there are none here, so they
//! change nothing. Scripts made for PostgreSQL use them. They are accepted with PostgreSQL's
//! checks, so that a mistake is an error as it is there, and a notice says that they do nothing.

use aerostat_types::{ErrorKind, IndexKind, Notice, NoticeSeverity, SqlError};

/// A parameter as it is written: its name, and its value unless it is taken for true or reset.
pub type StorageParameter = (String, Option<String>);

/// What has parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A table.
    Table,
    /// An index of this kind.
    Index(IndexKind),
}

enum Range {
    Integer(i64, i64),
    Real(f64, f64),
    Boolean,
    OneOf(&'static [&'static str]),
}

const INT_MAX: i64 = i32::MAX as i64;

/// Those of tables, with the bounds that PostgreSQL 15 has (`reloptions.c`).
const OF_TABLES: [(&str, Range); 20] = [
    ("fillfactor", Range::Integer(10, 100)),
    ("toast_tuple_target", Range::Integer(128, 8_160)),
    ("parallel_workers", Range::Integer(0, 1_024)),
    ("user_catalog_table", Range::Boolean),
    ("vacuum_truncate", Range::Boolean),
    (
        "vacuum_index_cleanup",
        Range::OneOf(&["auto", "on", "off", "true", "false", "yes", "no", "1", "0"]),
    ),
    ("log_autovacuum_min_duration", Range::Integer(-1, INT_MAX)),
    ("autovacuum_enabled", Range::Boolean),
    ("autovacuum_vacuum_threshold", Range::Integer(0, INT_MAX)),
    (
        "autovacuum_vacuum_insert_threshold",
        Range::Integer(-1, INT_MAX),
    ),
    ("autovacuum_analyze_threshold", Range::Integer(0, INT_MAX)),
    ("autovacuum_vacuum_scale_factor", Range::Real(0.0, 100.0)),
    (
        "autovacuum_vacuum_insert_scale_factor",
        Range::Real(0.0, 100.0),
    ),
    ("autovacuum_analyze_scale_factor", Range::Real(0.0, 100.0)),
    ("autovacuum_vacuum_cost_delay", Range::Real(0.0, 100.0)),
    ("autovacuum_vacuum_cost_limit", Range::Integer(1, 10_000)),
    (
        "autovacuum_freeze_min_age",
        Range::Integer(0, 1_000_000_000),
    ),
    (
        "autovacuum_freeze_max_age",
        Range::Integer(100_000, 2_000_000_000),
    ),
    (
        "autovacuum_freeze_table_age",
        Range::Integer(0, 2_000_000_000),
    ),
    (
        "autovacuum_multixact_freeze_max_age",
        Range::Integer(10_000, 2_000_000_000),
    ),
];

const OF_ORDERED_INDEXES: [(&str, Range); 2] = [
    ("fillfactor", Range::Integer(10, 100)),
    ("deduplicate_items", Range::Boolean),
];

const OF_HASH_INDEXES: [(&str, Range); 1] = [("fillfactor", Range::Integer(10, 100))];

/// Checks parameters that are given, and says that they do nothing.
///
/// # Errors
/// There is none of this name, it does not take the value, or one is given twice.
pub fn check(owner: Owner, parameters: &[StorageParameter]) -> Result<Vec<Notice>, SqlError> {
    let checked = parameters.iter().enumerate().map(|(at, (name, value))| {
        let range = find(owner, name)?;
        if parameters[..at].iter().any(|(before, _)| before == name) {
            return Err(invalid(format!(
                "parameter \"{name}\" specified more than once"
            )));
        }
        match value {
            Some(value) => range.check(name, value)?,
            // Given without a value, it is true.
            None => range.check(name, "true")?,
        }
        Ok(no_effect(name))
    });
    checked.collect()
}

/// Checks the names of parameters that are reset.
///
/// # Errors
/// There is none of this name.
pub fn check_names(owner: Owner, parameters: &[StorageParameter]) -> Result<Vec<Notice>, SqlError> {
    let checked = parameters
        .iter()
        .map(|(name, _)| find(owner, name).map(|_| no_effect(name)));
    checked.collect()
}

fn find(owner: Owner, name: &str) -> Result<&'static Range, SqlError> {
    let known: &[(&str, Range)] = match owner {
        Owner::Table => &OF_TABLES,
        Owner::Index(IndexKind::Ordered) => &OF_ORDERED_INDEXES,
        Owner::Index(IndexKind::Hash) => &OF_HASH_INDEXES,
    };
    let found = known.iter().find(|(known, _)| *known == name);
    found.map(|(_, range)| range).ok_or_else(|| {
        let error = invalid(format!("unrecognized parameter \"{name}\""));
        match owner {
            Owner::Table => error.with_hint(
                "A table has the parameter layout; those of PostgreSQL are taken and do nothing.",
            ),
            Owner::Index(_) => error,
        }
    })
}

impl Range {
    fn check(&self, name: &str, value: &str) -> Result<(), SqlError> {
        let out_of_bounds = |low: &dyn std::fmt::Display, high: &dyn std::fmt::Display| {
            invalid(format!("value {value} out of bounds for option \"{name}\"")).with_detail(
                format!("Valid values are between \"{low}\" and \"{high}\"."),
            )
        };
        let no = |kind: &str| {
            invalid(format!(
                "invalid value for {kind} option \"{name}\": {value}"
            ))
        };
        match self {
            Range::Integer(low, high) => match value.parse::<i64>() {
                Ok(number) if (*low..=*high).contains(&number) => Ok(()),
                Ok(_) => Err(out_of_bounds(low, high)),
                Err(_) => Err(no("integer")),
            },
            Range::Real(low, high) => match value.parse::<f64>() {
                Ok(number) if (*low..=*high).contains(&number) => Ok(()),
                Ok(_) => Err(out_of_bounds(&format!("{low:.6}"), &format!("{high:.6}"))),
                Err(_) => Err(no("floating point")),
            },
            Range::Boolean => match is_boolean(value) {
                true => Ok(()),
                false => Err(no("boolean")),
            },
            Range::OneOf(allowed) => {
                match allowed.iter().any(|one| one.eq_ignore_ascii_case(value)) {
                    true => Ok(()),
                    false => Err(no("enum")),
                }
            }
        }
    }
}

/// What PostgreSQL takes for a truth value.
pub fn is_boolean(value: &str) -> bool {
    let words = ["true", "false", "yes", "no", "on", "off", "1", "0"];
    words.iter().any(|word| word.eq_ignore_ascii_case(value))
}

fn no_effect(name: &str) -> Notice {
    Notice::new(
        NoticeSeverity::Notice,
        format!("storage parameter \"{name}\" has no effect"),
    )
}

fn invalid(message: String) -> SqlError {
    SqlError::new(ErrorKind::InvalidParameterValue, message)
}
