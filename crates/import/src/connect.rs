//! Connections of statements, to both sides.

use std::ops::Deref;

use tokio_postgres::{
    Client, Config, NoTls, Socket,
    config::SslMode,
    tls::{MakeTlsConnect, TlsConnect},
};

use crate::{
    endpoint::{Endpoint, SETTINGS},
    error::ImportError,
    task::Task,
};

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
pub(crate) async fn source(endpoint: &Endpoint) -> Result<Connection, ImportError> {
    let connection = open(endpoint)
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
pub(crate) async fn target(endpoint: &Endpoint) -> Result<Connection, ImportError> {
    let connection = open(endpoint)
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

async fn open(endpoint: &Endpoint) -> Result<Connection, tokio_postgres::Error> {
    match &endpoint.tls {
        Some(tls) => connect(&endpoint.config, tls.clone()).await,
        None => connect(endpoint.config.clone().ssl_mode(SslMode::Disable), NoTls).await,
    }
}

async fn connect<T>(config: &Config, tls: T) -> Result<Connection, tokio_postgres::Error>
where
    T: MakeTlsConnect<Socket, Stream: Send + 'static, TlsConnect: Send>,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    let (client, connection) = config.connect(tls).await?;
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
