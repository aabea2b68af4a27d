//! A session's prepared statements by their names: those of PREPARE and those of the protocol, which
//! share their names, as in PostgreSQL. EXECUTE runs what a driver has prepared, and a DISCARD ALL
//! of a pool leaves nothing behind that the next client would find under its own name.

use std::{collections::HashMap, sync::Arc};

use aerostat_pgcatalog::PreparedDescription;
use aerostat_types::{ErrorKind, SqlError};
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::{prepared::Prepared, too_many};
use crate::memory::Held;

/// Statements with names that one session may prepare.
pub(super) const STATEMENTS_MAX: usize = 10_000;

/// A prepared statement with a name.
pub(super) struct NamedStatement {
    prepared: Arc<Prepared>,
    /// The numbers of its parameters' types that a client is told.
    oids: Arc<[u32]>,
    /// The whole command of PREPARE, or the statement itself.
    text: Arc<str>,
    is_from_sql: bool,
    prepared_at_us: i64,
    generic_plans: u64,
    custom_plans: u64,
    /// The memory that it is charged for.
    _held: Held,
}

impl NamedStatement {
    /// A statement that a PREPARE with this text has just made.
    pub(super) fn of_command(prepared: Prepared, text: &Arc<str>, held: Held) -> Self {
        let oids = prepared.parameters.iter().map(|ty| ty.oid()).collect();
        Self {
            is_from_sql: true,
            text: Arc::clone(text),
            ..Self::of_protocol(Arc::new(prepared), oids, held)
        }
    }

    /// A statement that the protocol has just prepared.
    pub(super) fn of_protocol(prepared: Arc<Prepared>, oids: Arc<[u32]>, held: Held) -> Self {
        Self {
            text: prepared.text().into(),
            prepared,
            oids,
            is_from_sql: false,
            prepared_at_us: chrono::Utc::now().timestamp_micros(),
            generic_plans: 0,
            custom_plans: 0,
            _held: held,
        }
    }

    /// Counts an execution. A statement without parameters has one plan for all executions, as in
    /// PostgreSQL; the arguments of EXECUTE are part of the plan.
    fn count(&mut self) {
        match self.prepared.parameters.is_empty() {
            true => self.generic_plans += 1,
            false => self.custom_plans += 1,
        }
    }

    /// As the catalogue shows it under its name.
    fn describe(&self, name: &str) -> PreparedDescription {
        let parameters = self.prepared.parameters.iter();
        PreparedDescription {
            name: name.to_owned(),
            statement: self.text.to_string(),
            is_from_sql: self.is_from_sql,
            prepared_at_us: self.prepared_at_us,
            parameters: parameters.map(|ty| ty.oid()).collect(),
            generic_plans: self.generic_plans,
            custom_plans: self.custom_plans,
        }
    }
}

/// A prepared statement as it goes to another node.
#[derive(Serialize, Deserialize)]
pub(super) struct Written {
    pub(super) name: String,
    /// The whole command of PREPARE, or the statement itself.
    pub(super) text: String,
    pub(super) oids: Vec<u32>,
    pub(super) is_from_sql: bool,
}

/// All prepared statements of a session; copies are the same.
#[derive(Clone, Default)]
pub(super) struct NamedStatements(Arc<Mutex<HashMap<String, NamedStatement, RandomState>>>);

impl NamedStatements {
    /// Whether another may have this name.
    ///
    /// # Errors
    /// `DuplicatePreparedStatement`, `ProgramLimitExceeded`.
    pub(super) fn admit(&self, name: &str) -> Result<(), SqlError> {
        let named = self.0.lock();
        if named.contains_key(name) {
            return Err(SqlError::new(
                ErrorKind::DuplicatePreparedStatement,
                format!("prepared statement \"{name}\" already exists"),
            ));
        }
        if named.len() >= STATEMENTS_MAX {
            let error = too_many("prepared statements", STATEMENTS_MAX);
            let hint = "Close or DEALLOCATE those that are not needed any more, or let the driver keep fewer.";
            return Err(error.with_hint(hint));
        }
        Ok(())
    }

    pub(super) fn keep(&self, name: &str, statement: NamedStatement) {
        self.0.lock().insert(name.to_owned(), statement);
    }

    /// The statement, and the numbers of its parameters' types.
    pub(super) fn get(&self, name: &str) -> Option<(Arc<Prepared>, Arc<[u32]>)> {
        let named = self.0.lock();
        let statement = named.get(name)?;
        Some((Arc::clone(&statement.prepared), Arc::clone(&statement.oids)))
    }

    /// The statement.
    ///
    /// # Errors
    /// `InvalidStatementName`
    pub(super) fn find(&self, name: &str) -> Result<Arc<Prepared>, SqlError> {
        let found = self.get(name).ok_or_else(|| missing(name))?;
        Ok(found.0)
    }

    /// Counts an execution; the statement.
    pub(super) fn count(&self, name: &str) -> Option<Arc<Prepared>> {
        let mut named = self.0.lock();
        let statement = named.get_mut(name)?;
        statement.count();
        Some(Arc::clone(&statement.prepared))
    }

    /// Forgets a statement.
    ///
    /// # Errors
    /// `InvalidStatementName`
    pub(super) fn forget(&self, name: &str) -> Result<(), SqlError> {
        let forgotten = self.0.lock().remove(name);
        forgotten.map(drop).ok_or_else(|| missing(name))
    }

    pub(super) fn forget_all(&self) {
        self.0.lock().clear();
    }

    /// As they go to another node.
    pub(super) fn written(&self) -> Vec<Written> {
        let named = self.0.lock();
        let all = named.iter().map(|(name, statement)| Written {
            name: name.clone(),
            text: statement.text.to_string(),
            oids: statement.oids.to_vec(),
            is_from_sql: statement.is_from_sql,
        });
        all.collect()
    }

    /// As the catalogue shows them.
    pub(super) fn describe(&self) -> Vec<PreparedDescription> {
        let named = self.0.lock();
        let statements = named.iter();
        statements
            .map(|(name, statement)| statement.describe(name))
            .collect()
    }
}

fn missing(name: &str) -> SqlError {
    SqlError::new(
        ErrorKind::InvalidStatementName,
        format!("prepared statement \"{name}\" does not exist"),
    )
}
