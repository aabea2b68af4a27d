//! How etcd is let in by: TLS, a certificate of the client's, a user's password.

use std::{fmt, fs, path::Path, sync::Arc};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig, TlsProvider};

use crate::EtcdError;

/// Whose certificates members of etcd have.
const AUTHORITY_FILE: &str = "ca.crt";

/// The certificate of whoever asks, and its key.
const CERTIFICATE_FILE: &str = "client.crt";
const KEY_FILE: &str = "client.key";

/// How etcd is asked. Without anything: in the clear, as nobody.
#[derive(Clone, Default)]
pub struct Access {
    pub(crate) tls: Option<TlsConfig>,
    pub(crate) user: Option<User>,
}

/// A user of etcd.
#[derive(Clone)]
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) password: String,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Access")
            .field("tls", &self.tls.is_some())
            .field("user", &self.user.as_ref().map(|user| &user.name))
            .finish()
    }
}

impl Access {
    /// By TLS: members have certificates of the authority in the folder's `ca.crt`; whoever asks has the one in
    /// `client.crt`, with its key in `client.key`, if these are there.
    ///
    /// # Errors
    /// [`EtcdError::Certificates`]: a file is missing, or has not what it should have.
    pub fn with_certificates(mut self, folder: &Path) -> Result<Access, EtcdError> {
        let roots = certificates(folder, AUTHORITY_FILE)?;
        let (certificate, key) = (folder.join(CERTIFICATE_FILE), folder.join(KEY_FILE));
        let client = match certificate.exists() || key.exists() {
            false => None,
            true => {
                let chain = certificates(folder, CERTIFICATE_FILE)?;
                let odd = |why: String| EtcdError::Certificates {
                    path: key.clone(),
                    why,
                };
                let pem = fs::read(&key).map_err(|error| odd(error.to_string()))?;
                let found = PrivateKey::from_pem(&pem);
                let found = found.map_err(|error| odd(error.to_string()))?;
                // ureq takes for granted that they belong together.
                let provider = Arc::new(rustls::crypto::ring::default_provider());
                let ders = CertificateDer::pem_file_iter(&certificate)
                    .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                    .map_err(|error| odd(error.to_string()))?;
                let private = PrivateKeyDer::from_pem_slice(&pem);
                let private = private.map_err(|error| odd(error.to_string()))?;
                rustls::ClientConfig::builder_with_provider(provider)
                    .with_safe_default_protocol_versions()
                    .map_err(|error| odd(error.to_string()))?
                    .with_root_certificates(rustls::RootCertStore::empty())
                    .with_client_auth_cert(ders, private)
                    .map_err(|error| odd(error.to_string()))?;
                Some(ClientCert::new_with_certs(&chain, found))
            }
        };
        let tls = TlsConfig::builder()
            .provider(TlsProvider::Rustls)
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .root_certs(RootCerts::new_with_certs(&roots))
            .client_cert(client)
            .build();
        self.tls = Some(tls);
        Ok(self)
    }

    /// As a user.
    #[must_use]
    pub fn with_user(mut self, name: String, password: String) -> Access {
        self.user = Some(User { name, password });
        self
    }
}

fn certificates(folder: &Path, file: &str) -> Result<Vec<Certificate<'static>>, EtcdError> {
    let path = folder.join(file);
    let odd = |why: String| EtcdError::Certificates {
        path: path.clone(),
        why,
    };
    let found =
        CertificateDer::pem_file_iter(&path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = found.map_err(|error| odd(error.to_string()))?;
    if found.is_empty() {
        return Err(odd("there is no certificate".to_owned()));
    }
    let owned = |der: &CertificateDer<'static>| Certificate::from_der(der).to_owned();
    Ok(found.iter().map(owned).collect())
}
