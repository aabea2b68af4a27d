//! The stored form of a password: PostgreSQL's SCRAM-SHA-256 verifier
//! (RFC 5802, RFC 7677), from which nobody can log in or learn the password.
//!
//! Deriving a verifier from a password is the gateway's, which has the
//! cryptography; the engine keeps and compares the text.

use std::{fmt, str::FromStr};

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
        let [salt, stored, server] =
            [&self.salt[..], &self.stored_key, &self.server_key].map(encode_base64);
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
                salt: decode_base64(salt)?,
                stored_key: decode_base64(stored)?.try_into().ok()?,
                server_key: decode_base64(server)?.try_into().ok()?,
            })
        };
        parse().ok_or(ScramVerifierError)
    }
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn encode_base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let word =
            chunk.iter().fold(0u32, |word, &b| word << 8 | u32::from(b)) << (8 * (3 - chunk.len()));
        for at in 0..4 {
            let sextet = (word >> (18 - 6 * at)) as usize & 63;
            text.push(if at <= chunk.len() {
                ALPHABET[sextet] as char
            } else {
                '='
            });
        }
    }
    text
}

fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=').as_bytes();
    if !text.len().is_multiple_of(4) || text.len() - digits.len() > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() * 3 / 4);
    for chunk in digits.chunks(4) {
        let mut word = 0u32;
        for &digit in chunk {
            word = word << 6 | ALPHABET.iter().position(|&c| c == digit)? as u32;
        }
        word <<= 6 * (4 - chunk.len());
        bytes.extend_from_slice(&word.to_be_bytes()[1..chunk.len()]);
    }
    Some(bytes)
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
