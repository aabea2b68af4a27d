//! Connections of statements, to both sides.

use std::{ops::Deref, path::Path};

use tokio_postgres::{
    Client, Config, NoTls, Socket,
    config::SslMode,
    tls::{MakeTlsConnect, TlsConnect},
};

use crate::{error::ImportError, task::Task, tls::Tls, wire};

/// A server and a database of it, and whether what goes there is encrypted.
pub(crate) struct Endpoint {
    pub(crate) config: Config,
    pub(crate) tls: Option<Tls>,
}

impl Endpoint {
    /// Encrypted if the configuration requires it; `trust` is a file with certificates.
    ///
    /// # Errors
    /// [`ImportError::Options`] if there are no certificates to trust.
    pub(crate) fn new(config: Config, trust: Option<&Path>) -> Result<Endpoint, ImportError> {
        let required = config.get_ssl_mode() == SslMode::Require;
        let tls = required.then(|| Tls::new(trust)).transpose()?;
        Ok(Endpoint { config, tls })
    }

    async fn connect(&self) -> Result<Connection, tokio_postgres::Error> {
        match &self.tls {
            Some(tls) => connect(&self.config, tls.clone()).await,
            None => connect(self.config.clone().ssl_mode(SslMode::Disable), NoTls).await,
        }
    }
}

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
    let connection = endpoint
        .connect()
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
pub(crate) async fn target(endpoint: &Endpoint) -> Result<Connection, ImportError> {
    let connection = endpoint
        .connect()
        .await
        .map_err(ImportError::target("connecting"))?;
    let mut settings: Vec<_> = wire::SETTINGS
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
