//! Turns a password into its stored form: PostgreSQL's SCRAM-SHA-256 verifier (RFC 5802, RFC
//! 7677), with which a client can be checked but not impersonated.

use std::num::NonZeroU32;

use aerostat_types::{ErrorKind, SqlError};
use ring::{
    digest, hmac, pbkdf2,
    rand::{SecureRandom, SystemRandom},
};

use crate::scram::ScramVerifier;

/// PBKDF2 iterations of a new verifier, as in PostgreSQL and RFC 7677.
pub const ITERATIONS: u32 = 4_096;

/// Up to so many iterations a given verifier is compared with that of the empty password.
const ITERATIONS_TRIED_MAX: u32 = 100 * ITERATIONS;

/// Bytes of a new salt, as in PostgreSQL.
const SALT_BYTES: usize = 16;

/// The verifier of a password; `None` for the empty one, which lets nobody in.
/// A text that is a verifier already is taken as it is, unless it is one of the empty password.
///
/// # Errors
/// The text is an MD5 hash, which cannot be checked by SCRAM, or the system
/// gives no random bytes.
pub fn hash_password(password: &str) -> Result<Option<String>, SqlError> {
    if password.is_empty() {
        return Ok(None);
    }
    if let Ok(given) = password.parse::<ScramVerifier>() {
        // With more iterations it would take too long to find out.
        let is_empty = given.iterations <= ITERATIONS_TRIED_MAX
            && verifier("", given.salt.clone(), given.iterations).stored_key == given.stored_key;
        return Ok((!is_empty).then(|| password.to_owned()));
    }
    if is_md5(password) {
        return Err(SqlError::new(
            ErrorKind::FeatureNotSupported,
            "MD5 password hashes are not supported",
        )
        .with_hint("Give the password itself, or a SCRAM-SHA-256 verifier."));
    }
    let mut salt = vec![0; SALT_BYTES];
    SystemRandom::new()
        .fill(&mut salt)
        .map_err(|_| SqlError::new(ErrorKind::Internal, "could not generate a random salt"))?;
    Ok(Some(verifier(password, salt, ITERATIONS).to_string()))
}

fn is_md5(password: &str) -> bool {
    password
        .strip_prefix("md5")
        .is_some_and(|hash| hash.len() == 32 && hash.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn verifier(password: &str, salt: Vec<u8>, iterations: u32) -> ScramVerifier {
    // Clients prepare the password in the same way, and fall back to it as it is.
    let prepared = stringprep::saslprep(password).unwrap_or(password.into());
    let rounds = NonZeroU32::new(iterations).unwrap_or(NonZeroU32::MIN);
    let mut salted = [0; digest::SHA256_OUTPUT_LEN];
    pbkdf2::derive(
        pbkdf2::PBKDF2_HMAC_SHA256,
        rounds,
        &salt,
        prepared.as_bytes(),
        &mut salted,
    );
    let key = hmac::Key::new(hmac::HMAC_SHA256, &salted);
    let client_key = hmac::sign(&key, b"Client Key");
    let stored_key = digest::digest(&digest::SHA256, client_key.as_ref());
    let server_key = hmac::sign(&key, b"Server Key");
    ScramVerifier {
        iterations: rounds.get(),
        salt,
        stored_key: stored_key
            .as_ref()
            .try_into()
            .expect("a SHA-256 digest has 32 bytes"),
        server_key: server_key
            .as_ref()
            .try_into()
            .expect("an HMAC-SHA-256 tag has 32 bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verifier_is_rfc_7677s() {
        // RFC 7677, section 3: user "user", password "pencil". Its StoredKey
        // and ServerKey as PostgreSQL stores them.
        let salt = vec![
            0x5b, 0x6d, 0x99, 0x68, 0x9d, 0x12, 0x35, 0x8e, 0xec, 0xa0, 0x4b, 0x14, 0x12, 0x36,
            0xfa, 0x81,
        ];
        assert_eq!(
            verifier("pencil", salt, 4_096).to_string(),
            "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$\
             WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
        );
    }

    #[test]
    fn salts_differ_and_hashes_are_told_apart() {
        let one = hash_password("secret").unwrap().unwrap();
        let two = hash_password("secret").unwrap().unwrap();
        assert_ne!(one, two);
        assert_eq!(hash_password(&one).unwrap(), Some(one.clone()));
        assert_eq!(hash_password("").unwrap(), None);
        let of_nothing = verifier("", vec![7; 16], 4_096).to_string();
        assert_eq!(hash_password(&of_nothing).unwrap(), None);
        let md5 = format!("md5{}", "0123456789abcdef".repeat(2));
        assert_eq!(
            hash_password(&md5).unwrap_err().kind,
            ErrorKind::FeatureNotSupported
        );
        assert!(hash_password("md5 is not a hash").unwrap().is_some());
    }
}
