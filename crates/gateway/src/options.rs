//! The gateway's part of a node's configuration.

use std::{sync::Arc, time::Duration};

use rustls::ServerConfig;
use tokio::runtime::Handle;

/// TLS for clients that ask for it.
#[derive(Clone)]
pub struct TlsOptions {
    /// The server's side of TLS, with its certificate.
    pub config: Arc<ServerConfig>,
    /// The certificate in PEM; if given, SCRAM-SHA-256-PLUS (channel binding) is offered.
    pub certificate_pem: Option<Vec<u8>>,
    /// Whether clients without TLS are refused.
    pub required: bool,
}

impl std::fmt::Debug for TlsOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsOptions")
            .field("required", &self.required)
            .finish_non_exhaustive()
    }
}

/// Bytes that must stay within the node.
#[derive(Clone)]
pub struct NodeSecret(pub [u8; 32]);

impl std::fmt::Debug for NodeSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NodeSecret")
    }
}

/// How the gateway treats clients.
#[derive(Clone, Debug)]
pub struct GatewayOptions {
    /// TLS; `None` answers SSLRequest with no.
    pub tls: Option<TlsOptions>,
    /// Whether a role without a password may come in over the loopback interface.
    pub trust_loopback: bool,
    /// Single-threaded runtimes among which connections are distributed; without any, connections
    /// share the gateway's own runtime.
    pub threads: Vec<Handle>,
    /// How many sessions there may be at once.
    pub connections_max: usize,
    /// How long a client may take from connecting to being let in.
    pub authentication_timeout: Duration,
    /// How long running statements may continue after a shutdown has begun.
    pub shutdown_grace: Duration,
    /// The secret from which the salts for roles without a password are made. As long as it stays
    /// secret and the same, the salts do not tell which roles exist.
    pub scram_secret: NodeSecret,
    /// The value of `server_version`; drivers read the number before the blank.
    pub server_version: String,
}

impl Default for GatewayOptions {
    fn default() -> Self {
        Self {
            tls: None,
            trust_loopback: true,
            threads: Vec::new(),
            connections_max: 1000,
            authentication_timeout: Duration::from_secs(10),
            shutdown_grace: Duration::from_secs(10),
            scram_secret: NodeSecret(rand::random()),
            server_version: concat!("15.8 (Aerostat ", env!("CARGO_PKG_VERSION"), ")").to_owned(),
        }
    }
}
