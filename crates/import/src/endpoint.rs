//! A server that is connected to, and the settings of sessions there.

use std::path::Path;

use tokio_postgres::config::{Config, SslMode};

use crate::{error::ImportError, tls::Tls};

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
}
