//! The stored form of a password: PostgreSQL's SCRAM-SHA-256 verifier
//! (RFC 5802, RFC 7677), from which nobody can log in or learn the password.
//!
//! [`crate::hash_password`] derives one; the gateway checks clients against it.

use std::{fmt, str::FromStr};

use base64::{Engine, engine::general_purpose::STANDARD};
use thiserror::Error;

/// Bytes of a SHA-256 digest.
const DIGEST_BYTES: usize = 32;

/// Iterations beyond which a verifier is refused, so that a stored one cannot stall logins.
const ITERATIONS_MAX: u32 = 10_000_000;

/// A SCRAM-SHA-256 verifier, `SCRAM-SHA-256$<iterations>:<salt>$<stored key>:<server key>`.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramVerifier {
    /// PBKDF2 iterations.
    pub iterations: u32,
    /// The salt.
    pub salt: Vec<u8>,
    /// `SHA-256(ClientKey)`.
    pub stored_key: [u8; DIGEST_BYTES],
    /// `HMAC(SaltedPassword, "Server Key")`.
    pub server_key: [u8; DIGEST_BYTES],
}

/// Why a text is not a verifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not a SCRAM-SHA-256 verifier")]
pub struct ScramVerifierError;

impl fmt::Debug for ScramVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScramVerifier")
            .field("iterations", &self.iterations)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for ScramVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [salt, stored, server] = [&self.salt[..], &self.stored_key, &self.server_key]
            .map(|bytes| STANDARD.encode(bytes));
        write!(
            f,
            "SCRAM-SHA-256${}:{salt}${stored}:{server}",
            self.iterations
        )
    }
}

impl FromStr for ScramVerifier {
    type Err = ScramVerifierError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let rest = text.strip_prefix("SCRAM-SHA-256$")?;
            let (parameters, keys) = rest.split_once('$')?;
            let (iterations, salt) = parameters.split_once(':')?;
            let (stored, server) = keys.split_once(':')?;
            let iterations = iterations
                .parse()
                .ok()
                .filter(|n| (1..=ITERATIONS_MAX).contains(n))?;
            Some(ScramVerifier {
                iterations,
                salt: STANDARD.decode(salt).ok()?,
                stored_key: STANDARD.decode(stored).ok()?.try_into().ok()?,
                server_key: STANDARD.decode(server).ok()?.try_into().ok()?,
            })
        };
        parse().ok_or(ScramVerifierError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_form_parses_back() {
        for salt_bytes in 1..8 {
            let verifier = ScramVerifier {
                iterations: 4096,
                salt: (0..salt_bytes).map(|n| 251u8.wrapping_mul(n)).collect(),
                stored_key: [0xfe; 32],
                server_key: std::array::from_fn(|at| at as u8 * 7),
            };
            assert_eq!(verifier.to_string().parse(), Ok(verifier));
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "md5abc",
            "SCRAM-SHA-256$4096:AA==$AA==:AA==",
            "SCRAM-SHA-256$0:AAAA$x:y",
        ] {
            assert_eq!(
                text.parse::<ScramVerifier>(),
                Err(ScramVerifierError),
                "{text}"
            );
        }
    }
}
