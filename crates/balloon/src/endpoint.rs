//! Where a broker listens: a Unix socket on its own machine, or TLS over the network.
//!
//! Over a Unix socket the kernel says who the peer is, and the socket's permissions say who may
//! connect. Over TLS the broker proves itself by a certificate that the participant trusts, and the
//! participant by a token.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ClientConfig, RootCertStore,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::TlsConnector;

/// Where a broker listens, and how a participant recognises it.
#[derive(Clone, Debug)]
pub enum Endpoint {
    /// A socket in the file system.
    Unix(PathBuf),
    /// A host and port that speak TLS.
    Tls {
        /// A name or address that the certificate is for.
        host: String,
        /// The TCP port.
        port: u16,
        /// Whose certificates are trusted.
        trust: Arc<ClientConfig>,
    },
}

/// Why an endpoint cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// The text names no endpoint.
    #[error("{0:?} is neither the path of a socket nor host:port")]
    Syntax(String),
    /// An endpoint over the network has no certificate to trust.
    #[error("a broker at host:port needs a file with the certificate to trust")]
    NoTrust,
    /// The file with certificates cannot be used.
    #[error("no certificates in {path}")]
    Trust {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// A connection to a broker.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Endpoint {
    /// The endpoint that a text names: a path (with a `/`) or `host:port`. For the second, `trust` is a
    /// file with the certificates, in PEM, of the broker or of whoever issued its certificate.
    ///
    /// # Errors
    /// See [`EndpointError`].
    pub fn parse(text: &str, trust: Option<&Path>) -> Result<Endpoint, EndpointError> {
        if text.contains('/') {
            return Ok(Endpoint::Unix(text.into()));
        }
        let syntax = || EndpointError::Syntax(text.to_owned());
        let (host, port) = text.rsplit_once(':').ok_or_else(syntax)?;
        let port = port.parse().map_err(|_| syntax())?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() || ServerName::try_from(host).is_err() {
            return Err(syntax());
        }
        Ok(Endpoint::Tls {
            host: host.to_owned(),
            port,
            trust: trusting(trust.ok_or(EndpointError::NoTrust)?)?,
        })
    }

    /// Connects.
    ///
    /// # Errors
    /// Nobody listens there, or the certificate is not one that is trusted.
    pub async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        match self {
            Endpoint::Unix(path) => Ok(Box::new(UnixStream::connect(path).await?)),
            Endpoint::Tls { host, port, trust } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
                let connector = TlsConnector::from(Arc::clone(trust));
                Ok(Box::new(connector.connect(name, stream).await?))
            }
        }
    }
}

fn trusting(path: &Path) -> Result<Arc<ClientConfig>, EndpointError> {
    let failed = |source: Box<dyn std::error::Error + Send + Sync>| EndpointError::Trust {
        path: path.to_owned(),
        source,
    };
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(path).map_err(|error| failed(error.into()))?;
    for certificate in certificates {
        let certificate = certificate.map_err(|error| failed(error.into()))?;
        roots
            .add(certificate)
            .map_err(|error| failed(error.into()))?;
    }
    if roots.is_empty() {
        return Err(failed("the file is empty".into()));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| failed(error.into()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Endpoint::Unix(path) => path.display().fmt(f),
            Endpoint::Tls { host, port, .. } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Endpoint::Tls { host, port, .. } => write!(f, "{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_name_sockets_and_hosts() {
        let unix = Endpoint::parse("/run/broker.sock", None).unwrap();
        assert_eq!(unix.to_string(), "/run/broker.sock");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cert.pem");
        let made = rcgen::generate_simple_self_signed(["broker".to_owned()]).unwrap();
        std::fs::write(&file, made.cert.pem()).unwrap();
        for text in ["broker:7000", "127.0.0.1:7000", "[::1]:7000"] {
            let endpoint = Endpoint::parse(text, Some(&file)).unwrap();
            assert_eq!(endpoint.to_string(), text);
        }
        for text in ["broker", "broker:", ":7000", "broker:99999", "a b:1", ""] {
            let error = Endpoint::parse(text, Some(&file)).unwrap_err();
            assert!(matches!(error, EndpointError::Syntax(_)), "{text}");
        }
        let untrusted = Endpoint::parse("broker:7000", None);
        assert!(matches!(untrusted, Err(EndpointError::NoTrust)));
        std::fs::write(&file, "nothing").unwrap();
        let nothing = Endpoint::parse("broker:7000", Some(&file));
        assert!(matches!(nothing, Err(EndpointError::Trust { .. })));
    }
}
