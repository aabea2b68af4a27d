//! SCRAM-SHA-256: the server's side of the exchange. The cryptography is pgwire's (ring).

use pgwire::api::auth::sasl::scram::{SCRAM_ITERATIONS, ScramSecret, ScramServerAuth};
use ring::hmac;

use crate::api::ScramVerifier;

/// The bytes of salt in a verifier, as roles have it.
const SALT_BYTES: usize = 16;

/// A verifier for a role that does not exist or has no password, with which the exchange fails at
/// its end as with a wrong password.
///
/// Its salt never changes, like that of a real verifier: a salt that differed from one attempt to
/// the next, or from one start of the node to the next, would reveal that there is no verifier
/// (RFC 5802, section 9; PostgreSQL's mock authentication).
pub(crate) fn impossible_verifier(secret: &[u8; 32], role: &str) -> ScramVerifier {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    let salt = hmac::sign(&key, role.as_bytes());
    ScramVerifier {
        iterations: SCRAM_ITERATIONS as u32,
        salt: salt.as_ref()[..SALT_BYTES].to_vec(),
        stored_key: rand::random(),
        server_key: rand::random(),
    }
}

/// The verifier in pgwire's form.
pub(crate) fn secret(verifier: &ScramVerifier) -> ScramSecret {
    ScramSecret::Verifier {
        salt: verifier.salt.clone(),
        iterations: verifier.iterations as usize,
        stored_key: verifier.stored_key.to_vec(),
        server_key: verifier.server_key.to_vec(),
    }
}

/// The server's side of the exchange, with channel binding if `certificate_pem` is given.
pub(crate) fn server(certificate_pem: Option<&[u8]>) -> (ScramServerAuth, bool) {
    let mut server = ScramServerAuth::new();
    let bound = match certificate_pem.map(|pem| server.configure_certificate(pem)) {
        Some(Ok(())) => true,
        Some(Err(error)) => {
            tracing::warn!(%error, "the TLS certificate does not serve for channel binding");
            false
        }
        None => false,
    };
    (server, bound)
}
