//! Connections of statements, to both sides.

use std::ops::Deref;

use aerostat_pgclient::Server;
use tokio_postgres::Client;

use crate::{error::ImportError, task::Task};

/// Settings by which the texts of values are those that the first copy gets, and that the target reads.
pub(crate) const SETTINGS: &[(&str, &str)] = &[
    ("client_encoding", "UTF8"),
    ("DateStyle", "ISO, MDY"),
    ("IntervalStyle", "postgres"),
    ("TimeZone", "UTC"),
    ("extra_float_digits", "3"),
    ("bytea_output", "hex"),
    ("search_path", "pg_catalog"),
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
];

/// A connection that ends when this is dropped.
pub(crate) struct Connection {
    client: Client,
    _task: Task,
}

impl Deref for Connection {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

/// Connects to the source, for reading alone.
///
/// # Errors
/// [`ImportError::Source`].
pub(crate) async fn source(server: &Server) -> Result<Connection, ImportError> {
    let connection = open(server)
        .await
        .map_err(ImportError::source("connecting"))?;
    let mut settings = SETTINGS.to_vec();
    // A policy that hides rows is an error and not a copy of some of them.
    settings.push(("row_security", "off"));
    set(&connection, &settings)
        .await
        .map_err(ImportError::source("its settings"))?;
    Ok(connection)
}

/// Connects to the target.
///
/// # Errors
/// [`ImportError::Target`].
pub(crate) async fn target(server: &Server) -> Result<Connection, ImportError> {
    let connection = open(server)
        .await
        .map_err(ImportError::target("connecting"))?;
    let mut settings: Vec<_> = SETTINGS
        .iter()
        .filter(|(name, _)| *name != "search_path")
        .copied()
        .collect();
    // What the source is told to forget must be on the target's disk.
    settings.push(("synchronous_commit", "on"));
    // Somebody who holds rows is told of, and the import tries again.
    settings.retain(|(name, _)| *name != "lock_timeout");
    settings.push(("lock_timeout", "60s"));
    set(&connection, &settings)
        .await
        .map_err(ImportError::target("its settings"))?;
    Ok(connection)
}

async fn open(server: &Server) -> Result<Connection, tokio_postgres::Error> {
    let (client, connection) = server.open().await?;
    Ok(Connection {
        client,
        _task: Task::spawn(connection),
    })
}

async fn set(connection: &Client, settings: &[(&str, &str)]) -> Result<(), tokio_postgres::Error> {
    let statements: Vec<_> = settings
        .iter()
        .map(|(name, value)| format!("SET {name} = '{value}'"))
        .collect();
    connection.batch_execute(&statements.join("; ")).await
}
