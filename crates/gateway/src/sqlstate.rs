//! Errors on a connection: the fields of an `ErrorResponse`, and their effect on the connection.

use aerostat_types::{ErrorKind, SqlError, text::TextError};

use crate::api::RESULT_CHANGED;

/// An error on its way to a client: the engine's error, and its place in the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WireError {
    /// The error.
    pub error: Box<SqlError>,
    /// The place, as PostgreSQL's CONTEXT line gives it: `COPY t, line 3, column a: "x"`.
    pub context: Option<String>,
}

impl WireError {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            error: Box::new(SqlError::new(kind, message)),
            context: None,
        }
    }

    /// The error for a violation of the protocol.
    pub(crate) fn protocol(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::ProtocolViolation, message)
    }

    #[must_use]
    pub(crate) fn with_context(mut self, context: impl Into<String>) -> Self {
        self.context = Some(context.into());
        self
    }

    #[must_use]
    pub(crate) fn with_detail(mut self, detail: impl Into<String>) -> Self {
        self.error.detail = Some(detail.into());
        self
    }

    #[must_use]
    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.error.hint = Some(hint.into());
        self
    }

    /// The SQLSTATE.
    pub fn code(&self) -> &'static str {
        self.error.kind.sqlstate()
    }

    /// The name of PostgreSQL's routine, if drivers tell errors with one SQLSTATE apart by it:
    /// asyncpg and pgjdbc prepare a statement again if an error comes from this routine.
    pub(crate) fn routine(&self) -> Option<&'static str> {
        (self.error.message == RESULT_CHANGED).then_some("RevalidateCachedQuery")
    }
}

impl From<SqlError> for WireError {
    fn from(error: SqlError) -> Self {
        Self {
            error: Box::new(error),
            context: None,
        }
    }
}

impl From<TextError> for WireError {
    fn from(error: TextError) -> Self {
        SqlError::from(error).into()
    }
}

/// An error on a connection, by its effect on the connection.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The statement failed; the connection continues.
    Sql(WireError),
    /// The client gets the error, then the connection ends.
    Fatal(WireError),
    /// The client is gone.
    Gone,
}

impl Fault {
    pub(crate) fn protocol(message: impl Into<String>) -> Self {
        Fault::Fatal(WireError::protocol(message))
    }
}

impl From<WireError> for Fault {
    fn from(error: WireError) -> Self {
        Fault::Sql(error)
    }
}

impl From<SqlError> for Fault {
    fn from(error: SqlError) -> Self {
        Fault::Sql(error.into())
    }
}

impl From<std::io::Error> for Fault {
    fn from(_: std::io::Error) -> Self {
        Fault::Gone
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_keep_the_parts() {
        let error: WireError = SqlError::new(ErrorKind::DivisionByZero, "division by zero")
            .with_hint("h")
            .into();
        assert_eq!(
            (error.code(), error.error.hint.as_deref()),
            ("22012", Some("h"))
        );
    }
}
