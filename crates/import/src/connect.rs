//! Connections of statements, to both sides.

use std::ops::Deref;

use tokio_postgres::{Client, Config, NoTls, config::SslMode};

use crate::{error::ImportError, task::Task, wire};

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
pub(crate) async fn source(config: &Config) -> Result<Connection, ImportError> {
    if config.get_ssl_mode() == SslMode::Require {
        return Err(ImportError::Options(
            "the importer speaks no TLS to the source yet: use sslmode=disable through a tunnel"
                .to_owned(),
        ));
    }
    let connection = connect(config)
        .await
        .map_err(ImportError::source("connecting"))?;
    let mut settings = wire::SETTINGS.to_vec();
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
pub(crate) async fn target(config: &Config) -> Result<Connection, ImportError> {
    let connection = connect(config)
        .await
        .map_err(ImportError::target("connecting"))?;
    let mut settings: Vec<_> = wire::SETTINGS
        .iter()
        .filter(|(name, _)| *name != "search_path")
        .copied()
        .collect();
    // What the source is told to forget must be on the target's disk.
    settings.push(("synchronous_commit", "on"));
    set(&connection, &settings)
        .await
        .map_err(ImportError::target("its settings"))?;
    Ok(connection)
}

async fn connect(config: &Config) -> Result<Connection, tokio_postgres::Error> {
    let (client, connection) = config.connect(NoTls).await?;
    let task = Task::spawn(async move {
        // The client's next call gives the error.
        let _ = connection.await;
    });
    Ok(Connection {
        client,
        _task: task,
    })
}

async fn set(connection: &Client, settings: &[(&str, &str)]) -> Result<(), tokio_postgres::Error> {
    let statements: Vec<_> = settings
        .iter()
        .map(|(name, value)| format!("SET {name} = '{value}'"))
        .collect();
    connection.batch_execute(&statements.join("; ")).await
}
