//! A node's certificate, and the authority by which nodes know each other.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use parking_lot::Mutex;
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    server::WebPkiClientVerifier,
    version::TLS13,
};
use thiserror::Error;
use webpki::EndEntityCert;

/// The authority's certificate, of which all nodes' are. There may be several: an old one and the next.
pub const AUTHORITY_FILE: &str = "ca.crt";

/// The node's certificate, and those between it and the authority's.
pub const CERTIFICATE_FILE: &str = "node.crt";

/// The node's private key.
pub const KEY_FILE: &str = "node.key";

/// How often it is looked whether files have changed.
const LOOK: Duration = Duration::from_secs(5);

/// How long before its end it is said that a certificate ends.
const EARLY: Duration = Duration::from_secs(30 * 24 * 60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Why certificates cannot be used.
#[derive(Debug, Error)]
pub enum CertificateError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file has not what it should have.
    #[error("no {what} in {}", path.display())]
    Content {
        /// Which.
        path: PathBuf,
        /// A certificate, or a key.
        what: &'static str,
    },
    /// Others could read the key.
    #[error("others may read {}; take that from them: chmod 600", path.display())]
    Open {
        /// Which.
        path: PathBuf,
    },
    /// The files do not belong together.
    #[error("the certificates in {} cannot be used", folder.display())]
    Unfit {
        /// Where they are.
        folder: PathBuf,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The certificate is another node's.
    #[error("{} is not for node \"{name}\": others would refuse it; make one with: aerostat cert node {name}", path.display())]
    OfAnother {
        /// The certificate's file.
        path: PathBuf,
        /// The node.
        name: String,
    },
    /// No certificate can have the name.
    #[error(
        "no certificate can be for a node \"{0}\": a name has a letter, and neither begins nor ends with -"
    )]
    Name(String),
}

/// The certificates in a folder, as they are now.
#[derive(Debug)]
pub(crate) struct Certificates {
    folder: PathBuf,
    name: String,
    loaded: Mutex<Loaded>,
}

#[derive(Debug)]
struct Loaded {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    expires: SystemTime,
    stamps: Stamps,
    looked: Instant,
    /// When it was looked last whether it ends soon.
    warned: Instant,
    /// Why what has come since is not used.
    refused: Option<String>,
}

/// Which files there are, and since when they are as they are: modes count, too.
type Stamps = [Option<(u64, u64, i64, i64, i64, i64)>; 3];

impl Certificates {
    /// # Errors
    /// [`CertificateError`].
    pub(crate) fn of(folder: &Path, name: &str) -> Result<Certificates, CertificateError> {
        let loaded = load(folder, name)?;
        Ok(Certificates {
            folder: folder.to_owned(),
            name: name.to_owned(),
            loaded: Mutex::new(loaded),
        })
    }

    pub(crate) fn client(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.look().client)
    }

    pub(crate) fn expires(&self) -> SystemTime {
        self.look().expires
    }

    pub(crate) fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.look().server)
    }

    /// Has the next connection look at the files, however soon it is.
    #[cfg(test)]
    pub(crate) fn look_now(&self) {
        let mut loaded = self.loaded.lock();
        loaded.looked -= LOOK;
        loaded.stamps = Stamps::default();
    }

    /// The files may be others by now. Those that cannot be used are not: what was there before is.
    fn look(&self) -> parking_lot::MutexGuard<'_, Loaded> {
        let mut loaded = self.loaded.lock();
        if loaded.looked.elapsed() >= LOOK {
            loaded.looked = Instant::now();
            let stamps = stamps(&self.folder);
            if stamps != loaded.stamps {
                match load(&self.folder, &self.name) {
                    Ok(new) => {
                        tracing::info!(folder = %self.folder.display(), "the node has another certificate now");
                        *loaded = new;
                    }
                    // It is tried again: others may be about to be written.
                    Err(error) => {
                        let why = error.to_string();
                        if loaded.refused.as_ref() != Some(&why) {
                            let error: &dyn std::error::Error = &error;
                            tracing::warn!(error, "changed certificates are not used");
                            loaded.refused = Some(why);
                        }
                    }
                }
            }
            if loaded.warned.elapsed() >= DAY {
                loaded.warned = Instant::now();
                warn_of(loaded.expires, &self.folder);
            }
        }
        loaded
    }
}

fn stamps(folder: &Path) -> Stamps {
    [AUTHORITY_FILE, CERTIFICATE_FILE, KEY_FILE].map(|file| {
        let found = fs::metadata(folder.join(file)).ok()?;
        let (written, changed) = (found.mtime(), found.ctime());
        let nanos = (found.mtime_nsec(), found.ctime_nsec());
        Some((found.ino(), found.len(), written, nanos.0, changed, nanos.1))
    })
}

/// What certificates call a node; `None`: they cannot.
pub(crate) fn server_name(node: &str) -> Option<ServerName<'static>> {
    match ServerName::try_from(node.to_owned()) {
        Ok(name @ ServerName::DnsName(_)) => Some(name),
        _ => None,
    }
}

/// Whether a certificate is a node's.
pub(crate) fn is_for(certificate: &CertificateDer<'_>, node: &str) -> bool {
    let Some(name) = server_name(node) else {
        return false;
    };
    EndEntityCert::try_from(certificate)
        .is_ok_and(|found| found.verify_is_valid_for_subject_name(&name).is_ok())
}

fn load(folder: &Path, name: &str) -> Result<Loaded, CertificateError> {
    // Before they are read: what is written meanwhile is read again.
    let stamps = stamps(folder);
    if server_name(name).is_none() {
        return Err(CertificateError::Name(name.to_owned()));
    }
    let authorities = certificates(&folder.join(AUTHORITY_FILE))?;
    let path = folder.join(CERTIFICATE_FILE);
    let chain = certificates(&path)?;
    if !chain.first().is_some_and(|first| is_for(first, name)) {
        return Err(CertificateError::OfAnother {
            path,
            name: name.to_owned(),
        });
    }
    let expires = chain
        .first()
        .and_then(end_of)
        .unwrap_or(SystemTime::UNIX_EPOCH);
    warn_of(expires, folder);
    let key = private_key(&folder.join(KEY_FILE))?;
    let unfit = |source| CertificateError::Unfit {
        folder: folder.to_owned(),
        source,
    };
    verify(&authorities, &chain).map_err(unfit)?;
    let (client, server) = configurations(authorities, chain, key).map_err(unfit)?;
    Ok(Loaded {
        client,
        server,
        expires,
        stamps,
        looked: Instant::now(),
        warned: Instant::now(),
        refused: None,
    })
}

/// When the first certificate of a file ends.
///
/// # Errors
/// There is none that can be read.
pub fn expires(path: &Path) -> Result<SystemTime, CertificateError> {
    let found = certificates(path)?;
    found
        .first()
        .and_then(end_of)
        .ok_or_else(|| CertificateError::Content {
            path: path.to_owned(),
            what: "certificate",
        })
}

fn end_of(certificate: &CertificateDer<'static>) -> Option<SystemTime> {
    let (_, found) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let seconds = u64::try_from(found.validity().not_after.timestamp()).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

/// Says to the operator what will not go on.
fn warn_of(expires: SystemTime, folder: &Path) {
    let left = expires
        .duration_since(SystemTime::now())
        .unwrap_or_default();
    if left < EARLY {
        let days = left.as_secs() / (24 * 60 * 60);
        tracing::warn!(
            folder = %folder.display(), days,
            "the node's certificate ends soon: other nodes will refuse it then"
        );
    }
}

fn read(path: &Path) -> Result<Vec<u8>, CertificateError> {
    fs::read(path).map_err(|source| CertificateError::Read {
        path: path.to_owned(),
        source,
    })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    let text = read(path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err(CertificateError::Content {
            path: path.to_owned(),
            what: "certificate",
        }),
    }
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, CertificateError> {
    use std::os::unix::fs::PermissionsExt;
    let text = read(path)?;
    // As with ssh and PostgreSQL: nobody but the owner, or a group that reads it.
    let is_open = fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o037 != 0);
    if is_open {
        return Err(CertificateError::Open {
            path: path.to_owned(),
        });
    }
    PrivateKeyDer::from_pem_slice(&text).map_err(|_| CertificateError::Content {
        path: path.to_owned(),
        what: "private key",
    })
}

type Boxed = Box<dyn std::error::Error + Send + Sync>;

/// As other nodes will.
fn verify(
    authorities: &[CertificateDer<'static>],
    chain: &[CertificateDer<'static>],
) -> Result<(), Boxed> {
    let anchors: Result<Vec<_>, _> = authorities
        .iter()
        .map(|authority| webpki::anchor_from_trusted_cert(authority))
        .collect();
    let (anchors, now) = (anchors?, UnixTime::now());
    let provider = rustls::crypto::ring::default_provider();
    let algorithms = provider.signature_verification_algorithms.all;
    let (first, others) = chain.split_first().ok_or("there is no certificate")?;
    let first = EndEntityCert::try_from(first)?;
    for usage in [
        webpki::KeyUsage::server_auth(),
        webpki::KeyUsage::client_auth(),
    ] {
        first.verify_for_usage(algorithms, &anchors, others, now, usage, None, None)?;
    }
    Ok(())
}

fn configurations(
    authorities: Vec<CertificateDer<'static>>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<(Arc<ClientConfig>, Arc<ServerConfig>), Boxed> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(authority)?;
    }
    let roots = Arc::new(roots);
    let provider: Arc<CryptoProvider> = Arc::new(rustls::crypto::ring::default_provider());
    let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])?
        .with_root_certificates(Arc::clone(&roots))
        .with_client_auth_cert(chain.clone(), key.clone_key())?;
    let asks = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider)).build()?;
    let mut server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])?
        .with_client_cert_verifier(asks)
        .with_single_cert(chain, key)?;
    // Whoever sends packets reads nothing: a ticket would wait in its socket, which would be reset at its end.
    server.send_tls13_tickets = 0;
    Ok((Arc::new(client), Arc::new(server)))
}
