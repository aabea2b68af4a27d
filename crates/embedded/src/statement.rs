//! Prepared statements.

use std::sync::Arc;

use aerostat_api::{ColumnDescription, ParameterType, Value};
use aerostat_engine::Prepared;
use aerostat_types::{ErrorKind, SqlError};

use crate::{Connection, Done, Parameter, Rows, parameter};

/// A statement that one connection has prepared and may run as often as it likes. Its plan is
/// kept; definitions that change meanwhile are followed, unless its columns become others.
#[derive(Clone)]
pub struct Statement {
    prepared: Prepared,
    /// The connection's.
    identity: Arc<()>,
}

/// Cuts a text at its semicolons, and checks that each piece is a statement.
///
/// # Errors
/// One of them is no SQL; its place is that in the whole text.
pub fn split(sql: &str) -> Result<Vec<String>, SqlError> {
    let statements = aerostat_sql::statement::Statement::split(sql)?;
    Ok(statements
        .iter()
        .map(|statement| statement.text().to_owned())
        .collect())
}

impl Statement {
    pub(crate) fn new(prepared: Prepared, identity: Arc<()>) -> Self {
        Self { prepared, identity }
    }

    pub(crate) fn prepared(&self) -> &Prepared {
        &self.prepared
    }

    /// The types of its parameters.
    pub fn parameters(&self) -> &[ParameterType] {
        &self.prepared.parameters
    }

    /// The columns it returns; `None` if it returns no rows.
    pub fn columns(&self) -> Option<&Arc<[ColumnDescription]>> {
        self.prepared.columns.as_ref()
    }

    /// Runs it with values for its parameters; its rows come while it runs.
    ///
    /// # Errors
    /// Too few or too many values, or of other kinds; a statement of another connection;
    /// anything that can be wrong with a statement before its first row.
    pub fn query<'c>(
        &self,
        connection: &'c mut Connection,
        parameters: &[&dyn Parameter],
    ) -> Result<Rows<'c>, SqlError> {
        if !connection.is(&self.identity) {
            return Err(SqlError::new(
                ErrorKind::InvalidStatementName,
                "the statement was prepared by another connection",
            ));
        }
        let values = self.values(connection, parameters)?;
        connection.run_prepared(self, &values)
    }

    /// As [`Self::query`], to its end. Rows are only counted.
    ///
    /// # Errors
    /// As [`Self::query`], and those of later rows.
    pub fn execute(
        &self,
        connection: &mut Connection,
        parameters: &[&dyn Parameter],
    ) -> Result<Done, SqlError> {
        self.query(connection, parameters)?.finish()
    }

    fn values(
        &self,
        connection: &Connection,
        parameters: &[&dyn Parameter],
    ) -> Result<Arc<[Value]>, SqlError> {
        let types = self.parameters();
        if types.len() != parameters.len() {
            return Err(SqlError::new(
                ErrorKind::UndefinedParameter,
                format!(
                    "the statement has {} parameters, and {} values were given",
                    types.len(),
                    parameters.len()
                ),
            ));
        }
        if types.is_empty() {
            return Ok(Arc::default());
        }
        let zone = connection.zone();
        let values = types.iter().zip(parameters).enumerate();
        values
            .map(|(at, (ty, parameter))| parameter::fit(parameter.value(), *ty, zone, at))
            .collect()
    }
}
