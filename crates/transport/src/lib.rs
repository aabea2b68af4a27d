//! Connections between the nodes of a cluster.
//!
//! ```text
//!  dials    Transport::dial ──► Stream ──┬─► Sender   whoever has something writes it, and never waits
//!                                        └─► Parked   on its way to another runtime
//!           Transport::dial_blocking ──► Blocking     on a thread of its own
//!  listens  Transport::accept ──► Stream
//! ```
//!
//! * **Both ends prove who they are** by a certificate of the cluster's authority: whoever dials asks for a node by its
//!   name, and whoever listens can ask whether a connection is a node's ([`Stream::is_of`]). TLS 1.3 alone.
//! * **Plain connections** are for nodes on one machine: there everybody is who it says.
//! * **Certificates are read again** when their files change, for the connections that begin then.
//! * What is said on a connection is not known here.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod blocking;
mod certificates;
mod sender;
mod stream;
#[cfg(test)]
mod tests;

use std::{
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use parking_lot::Mutex;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

pub use blocking::Blocking;
pub use certificates::{AUTHORITY_FILE, CERTIFICATE_FILE, CertificateError, KEY_FILE, expires};
pub use sender::{Sender, ended};
pub use stream::{Parked, Stream};

use certificates::Certificates;
use stream::Seat;

/// How often it is said that connections fail for what their ends cannot prove.
const SAID: Duration = Duration::from_secs(30);

/// A node that can be dialled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// What its certificate has to be for.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
}

/// How a node makes connections, and takes them.
#[derive(Clone, Debug)]
pub struct Transport(Option<Arc<Secured>>);

#[derive(Debug)]
struct Secured {
    certificates: Certificates,
    said: Mutex<Option<Instant>>,
}

impl Transport {
    /// Plain connections.
    pub fn plain() -> Transport {
        Transport(None)
    }

    /// Connections with TLS, by the certificates in a folder: [`AUTHORITY_FILE`], [`CERTIFICATE_FILE`] and [`KEY_FILE`].
    ///
    /// # Errors
    /// They cannot be used, or are not those of the node of this name.
    pub fn secured(folder: &std::path::Path, name: &str) -> Result<Transport, CertificateError> {
        Ok(Transport(Some(Arc::new(Secured {
            certificates: Certificates::of(folder, name)?,
            said: Mutex::default(),
        }))))
    }

    /// Whether what is said cannot be read by others.
    pub fn is_secured(&self) -> bool {
        self.0.is_some()
    }

    /// When the node's certificate, or the authority's, ends; `None` for plain connections.
    pub fn expires(&self) -> Option<SystemTime> {
        Some(self.0.as_ref()?.certificates.expires())
    }

    /// A connection to a node.
    ///
    /// # Errors
    /// It is not reached, or what answers is not that node.
    pub async fn dial(&self, peer: &Peer) -> io::Result<Stream> {
        let socket = TcpStream::connect(peer.address).await?;
        socket.set_nodelay(true)?;
        let Some(secured) = &self.0 else {
            return Ok(Stream::plain(socket));
        };
        let connector = TlsConnector::from(secured.certificates.client());
        let connected = connector.connect(name_of(peer)?, Seat::of(socket)).await;
        match connected {
            Ok(stream) => Ok(Stream::tls(stream.into())),
            Err(error) => Err(secured.failed(&peer.name, peer.address, error)),
        }
    }

    /// A connection to a node, for a thread that waits for it. TLS begins with what is written first.
    ///
    /// # Errors
    /// It is not reached in time.
    pub fn dial_blocking(&self, peer: &Peer, at_most: Duration) -> io::Result<Blocking> {
        let socket = std::net::TcpStream::connect_timeout(&peer.address, at_most)?;
        socket.set_nodelay(true)?;
        let Some(secured) = &self.0 else {
            return Ok(Blocking::plain(socket));
        };
        let client = secured.certificates.client();
        let session = rustls::ClientConnection::new(client, name_of(peer)?);
        Ok(Blocking::tls(session.map_err(io::Error::other)?, socket))
    }

    /// What a node has dialled.
    ///
    /// # Errors
    /// It has gone, or cannot prove that it is of the cluster.
    pub async fn accept(&self, socket: TcpStream) -> io::Result<Stream> {
        socket.set_nodelay(true)?;
        let Some(secured) = &self.0 else {
            return Ok(Stream::plain(socket));
        };
        let address = socket.peer_addr()?;
        let acceptor = TlsAcceptor::from(secured.certificates.server());
        match acceptor.accept(Seat::of(socket)).await {
            Ok(stream) => Ok(Stream::tls(stream.into())),
            Err(error) => Err(secured.failed("a peer", address, error)),
        }
    }
}

impl Secured {
    /// An operator is to know of what cannot heal by itself.
    fn failed(&self, peer: &str, address: SocketAddr, error: io::Error) -> io::Error {
        let is_ours = error
            .get_ref()
            .is_some_and(|error| error.is::<rustls::Error>());
        let mut said = self.said.lock();
        if is_ours && said.is_none_or(|said| said.elapsed() > SAID) {
            *said = Some(Instant::now());
            tracing::warn!(peer, %address, %error, "a connection between nodes is refused: look at their certificates");
        }
        error
    }
}

/// Whether a certificate can be for a node of this name.
pub fn is_name(node: &str) -> bool {
    certificates::server_name(node).is_some()
}

/// The name that the node's certificate has.
fn name_of(peer: &Peer) -> io::Result<ServerName<'static>> {
    certificates::server_name(&peer.name).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidInput,
            "no certificate has such a name",
        )
    })
}
