//! What a node's configuration says about its gateway.

use std::{sync::Arc, time::Duration};

use rustls::ServerConfig;
use tokio::runtime::Handle;

/// TLS for clients that ask for it.
#[derive(Clone)]
pub struct TlsOptions {
    /// The server's side of TLS, with its certificate.
    pub config: Arc<ServerConfig>,
    /// The certificate in PEM; with it SCRAM-SHA-256-PLUS (channel binding) is offered.
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

/// Bytes that nobody beyond the node may know.
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
    /// Runtimes of one thread each that connections are dealt to; without any they share the
    /// gateway's own.
    pub threads: Vec<Handle>,
    /// Sessions at once.
    pub connections_max: usize,
    /// How long a client may take from connecting to being let in.
    pub authentication_timeout: Duration,
    /// How long running statements may go on after a shutdown began.
    pub shutdown_grace: Duration,
    /// What the salts are made from that roles without a password are asked to prove one with.
    /// They tell nobody which roles there are as long as it is secret and always the same.
    pub scram_secret: NodeSecret,
    /// What `server_version` says; drivers read the number before the blank.
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
