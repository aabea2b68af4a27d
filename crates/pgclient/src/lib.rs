//! Connections of our tools to PostgreSQL and to nodes: as their URL says, encrypted or not.
//!
//! | `sslmode` of the URL | what goes there |
//! |---|---|
//! | `require`, `verify-ca`, `verify-full` | is encrypted; the server's certificate and name are checked |
//! | anything else, or nothing | is not encrypted |
//!
//! Trusted are the certificates of a file, or those that the system trusts. libpq checks nothing with `require`; here
//! there is no way to encrypt what anybody may read.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod tls;

use std::{fmt, path::Path, pin::Pin, str::FromStr};

use tokio_postgres::{
    Client, Config, NoTls, Socket,
    config::SslMode,
    tls::{MakeTlsConnect, TlsConnect},
};

pub use tls::{Encrypted, Tls, ToHost};

/// Why there is no way to connect to a server.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The text is no URL of one. The text is not shown, for it may have a password.
    #[error("no URL of a PostgreSQL server: {0}")]
    Url(String),
    /// There are no certificates to trust.
    #[error("{0}")]
    Trust(String),
    /// TLS is not to be had.
    #[error("no TLS: {0}")]
    Tls(rustls::Error),
}

/// What a client says and hears, until the client is dropped.
pub type Connection = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A server, a database of it, and how what goes there is encrypted.
#[derive(Clone)]
pub struct Server {
    /// Where it is, and who connects.
    pub config: Config,
    /// `None` for what is not encrypted.
    pub tls: Option<Tls>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("config", &self.config)
            .field("is_encrypted", &self.tls.is_some())
            .finish()
    }
}

/// Not encrypted, whatever the configuration says.
impl From<Config> for Server {
    fn from(config: Config) -> Self {
        Server { config, tls: None }
    }
}

impl Server {
    /// Encrypted if the configuration requires it; `trust` is a file in PEM with the certificates of servers or of their
    /// issuers, `None` for those that the system trusts.
    ///
    /// # Errors
    /// [`Error::Trust`], [`Error::Tls`].
    pub fn new(config: Config, trust: Option<&Path>) -> Result<Server, Error> {
        let required = config.get_ssl_mode() == SslMode::Require;
        let tls = required.then(|| Tls::new(trust)).transpose()?;
        Ok(Server { config, tls })
    }

    /// Connects. The connection lives until the client is dropped.
    ///
    /// # Errors
    /// Nobody answers, the server's certificate is not trusted, or it lets nobody in.
    pub async fn connect(&self) -> Result<Client, tokio_postgres::Error> {
        let (client, connection) = self.open().await?;
        tokio::spawn(connection);
        Ok(client)
    }

    /// Connects; the caller runs the connection beside the client.
    ///
    /// # Errors
    /// As [`Self::connect`].
    pub async fn open(&self) -> Result<(Client, Connection), tokio_postgres::Error> {
        match &self.tls {
            Some(tls) => open(&self.config, tls.clone()).await,
            None => open(self.config.clone().ssl_mode(SslMode::Disable), NoTls).await,
        }
    }
}

async fn open<T>(config: &Config, tls: T) -> Result<(Client, Connection), tokio_postgres::Error>
where
    T: MakeTlsConnect<Socket, Stream: Send + 'static, TlsConnect: Send>,
    <T::TlsConnect as TlsConnect<Socket>>::Future: Send,
{
    let (client, connection) = config.connect(tls).await?;
    let connection = async move {
        // Its error reaches the client as the error of whatever statement is next.
        let _ = connection.await;
    };
    Ok((client, Box::pin(connection)))
}

/// A URL, or a connection string of libpq, which may have `sslmode=verify-ca` or `verify-full`.
///
/// # Errors
/// [`Error::Url`].
pub fn config(url: &str) -> Result<Config, Error> {
    let checked = url
        .replace("sslmode=verify-full", "sslmode=require")
        .replace("sslmode=verify-ca", "sslmode=require");
    Config::from_str(&checked).map_err(|error| {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        Error::Url(cause.unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encrypted_is_what_the_url_requires() {
        for (mode, is_encrypted) in [
            ("", false),
            ("?sslmode=disable", false),
            ("?sslmode=prefer", false),
            ("?sslmode=require", true),
            ("?sslmode=verify-ca", true),
            ("?sslmode=verify-full", true),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let file = folder.path().join("trusted");
            let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
            std::fs::write(&file, made.cert.pem()).unwrap();
            let config = config(&format!("postgres://r@localhost/d{mode}")).unwrap();
            let server = Server::new(config, Some(&file)).unwrap();
            assert_eq!(server.tls.is_some(), is_encrypted, "{mode}");
        }
    }

    #[test]
    fn what_cannot_be_trusted_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("nothing");
        let config = config("postgres://r:secret@localhost/d?sslmode=require").unwrap();
        let error = Server::new(config.clone(), Some(&file)).err().unwrap();
        assert!(error.to_string().contains("no certificates in"), "{error}");
        std::fs::write(&file, "no certificate").unwrap();
        let error = Server::new(config, Some(&file)).err().unwrap();
        assert_eq!(
            error.to_string(),
            "there are no certificates to trust the server by"
        );
    }

    #[test]
    fn a_wrong_url_keeps_its_password() {
        let error = config("postgres://r:secret@localhost/d?unknown=1")
            .err()
            .unwrap();
        assert!(!error.to_string().contains("secret"), "{error}");
        assert!(error.to_string().contains("unknown"), "{error}");
    }
}
