//! TLS: the certificate from files, or one of our own making.
//!
//! A self-signed certificate is made at the first start and kept in the data
//! folder, so that clients that pinned it keep trusting it. The key is readable by
//! the owner alone.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use aerostat_gateway::TlsOptions;
use anyhow::{Context, Result};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::Tls;
use crate::secret::write_private;

const CERT_FILE: &str = "tls-cert.pem";
const KEY_FILE: &str = "tls-key.pem";

/// Names a self-signed certificate is good for.
const SELF_SIGNED_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// The TLS to offer, if any; `required` refuses clients without it.
///
/// # Errors
/// Files that cannot be read or written, or hold no certificate and key.
pub(crate) fn options(tls: &Tls, data: &Path, required: bool) -> Result<Option<TlsOptions>> {
    let read = |cert: &Path, key: &Path| -> Result<Option<TlsOptions>> {
        let certificate_pem =
            fs::read(cert).with_context(|| format!("cannot read {}", cert.display()))?;
        Ok(Some(TlsOptions {
            config: read(cert, key)?,
            certificate_pem: Some(certificate_pem),
            required,
        }))
    };
    match tls {
        Tls::Off => Ok(None),
        Tls::Files { cert, key } => read(cert, key),
        Tls::SelfSigned => {
            let (cert, key) = (data.join(CERT_FILE), data.join(KEY_FILE));
            if !(cert.exists() && key.exists()) {
                make(&cert, &key)?;
            }
            read(&cert, &key)
        }
    }
}

fn make(cert: &Path, key: &Path) -> Result<()> {
    let made = rcgen::generate_simple_self_signed(SELF_SIGNED_NAMES.map(str::to_owned))
        .context("cannot make a certificate")?;
    // The key first: a certificate without its key would be taken for a finished pair.
    write_private(key, made.signing_key.serialize_pem().as_bytes())?;
    fs::write(cert, made.cert.pem()).with_context(|| format!("cannot write {}", cert.display()))?;
    tracing::info!(certificate = %cert.display(), "made a self-signed certificate");
    Ok(())
}

fn read(cert: &Path, key: &Path) -> Result<Arc<ServerConfig>> {
    let chain = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .with_context(|| format!("no certificates in {}", cert.display()))?;
    let private = PrivateKeyDer::from_pem_file(key)
        .with_context(|| format!("no private key in {}", key.display()))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("no TLS version is on")?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .with_context(|| {
            format!(
                "{} and {} do not fit together",
                cert.display(),
                key.display()
            )
        })?;
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_self_signed_certificate_is_made_once_and_kept_private() {
        let folder = tempfile::tempdir().unwrap();
        assert!(
            options(&Tls::SelfSigned, folder.path(), false)
                .unwrap()
                .is_some()
        );
        let key = folder.path().join(KEY_FILE);
        assert_eq!(
            fs::metadata(&key).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let before = fs::read(&key).unwrap();
        assert!(
            options(&Tls::SelfSigned, folder.path(), false)
                .unwrap()
                .is_some()
        );
        assert_eq!(fs::read(&key).unwrap(), before);
    }

    #[test]
    fn files_that_hold_nothing_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let cert = folder.path().join("c.pem");
        fs::write(&cert, "nothing").unwrap();
        let files = Tls::Files {
            cert: cert.clone(),
            key: cert,
        };
        assert!(options(&files, folder.path(), false).is_err());
        assert!(options(&Tls::Off, folder.path(), false).unwrap().is_none());
    }
}
