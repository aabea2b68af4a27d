//! Authentication: trust, or SCRAM-SHA-256 against a stored verifier.

use aerostat_types::ErrorKind;
use bytes::Bytes;
use pgwire::{api::auth::sasl::scram::ScramSecret, error::PgWireError};

use super::Newcomer;
use crate::{
    api::RoleInfo,
    limits::SMALL_MESSAGE_BYTES_MAX,
    scram,
    serve::Shared,
    sqlstate::{Fault, WireError},
    wire::Cursor,
};

const SASL: u32 = 10;
const SASL_CONTINUE: u32 = 11;
const SASL_FINAL: u32 = 12;

fn fatal(kind: ErrorKind, message: String) -> Fault {
    Fault::Fatal(WireError::new(kind, message))
}

fn wrong_password(user: &str) -> Fault {
    fatal(
        ErrorKind::InvalidPassword,
        format!("password authentication failed for user \"{user}\""),
    )
}

fn bad_exchange(error: &PgWireError, user: &str) -> Fault {
    match error {
        PgWireError::InvalidPassword(_) => wrong_password(user),
        other => Fault::protocol(format!("malformed SCRAM message: {other}")),
    }
}

/// The error for a client that can bind the exchange to the channel, and has not seen that we can:
/// somebody in between has removed that from our offer (RFC 5802, section 6).
fn negotiation_was_changed() -> Fault {
    let error = WireError::new(
        ErrorKind::InvalidAuthorization,
        "SCRAM channel binding negotiation error",
    );
    Fault::Fatal(error.with_detail(
        "The client supports SCRAM channel binding but thinks the server does not. However, this \
         server does support channel binding.",
    ))
}

/// The role, if there is one and it may log in.
pub(super) fn may_log_in(user: &str, role: Option<RoleInfo>) -> Result<RoleInfo, Fault> {
    let role = role.ok_or_else(|| {
        fatal(
            ErrorKind::InvalidAuthorization,
            format!("role \"{user}\" does not exist"),
        )
    })?;
    if !role.login {
        let message = format!("role \"{user}\" is not permitted to log in");
        return Err(fatal(ErrorKind::InvalidAuthorization, message));
    }
    Ok(role)
}

impl Newcomer {
    /// Lets the client prove that it is `user`.
    ///
    /// A role without a password is let in only from this machine, if the options trust the
    /// loopback interface. Over the network an unknown role gets the same error as a wrong
    /// password.
    pub(super) async fn authenticate(
        &mut self,
        user: &str,
        role: Option<RoleInfo>,
        shared: &Shared,
    ) -> Result<RoleInfo, Fault> {
        let verifier = role.as_ref().and_then(|role| role.scram.clone());
        let trusted = shared.options.trust_loopback && self.peer.is_here();
        if verifier.is_some() || !trusted {
            let known = verifier.is_some();
            let verifier = verifier.unwrap_or_else(|| {
                scram::impossible_verifier(&shared.options.scram_secret.0, user)
            });
            self.scram(user, scram::secret(&verifier), known, shared)
                .await?;
        }
        may_log_in(user, role)
    }

    async fn scram(
        &mut self,
        user: &str,
        secret: ScramSecret,
        known: bool,
        shared: &Shared,
    ) -> Result<(), Fault> {
        let certificate = shared
            .options
            .tls
            .as_ref()
            .and_then(|tls| tls.certificate_pem.as_deref());
        let (server, bound) = scram::server(certificate.filter(|_| self.encrypted));
        let mechanisms: &[u8] = if bound {
            b"SCRAM-SHA-256-PLUS\0SCRAM-SHA-256\0\0"
        } else {
            b"SCRAM-SHA-256\0\0"
        };
        self.output.authentication(SASL, mechanisms);
        self.flush().await?;

        let initial = self.password_message().await?;
        let mut cursor = Cursor::new(&initial);
        let mechanism = cursor.text()?;
        let plus = mechanism == "SCRAM-SHA-256-PLUS";
        if mechanism != "SCRAM-SHA-256" && !(plus && bound) {
            return Err(Fault::protocol(
                "client selected an invalid SASL authentication mechanism",
            ));
        }
        let length =
            usize::try_from(cursor.i32()?).map_err(|_| Fault::protocol("empty SCRAM message"))?;
        let client_first = cursor.bytes(length)?;
        cursor.end()?;
        if plus != client_first.starts_with(b"p=") {
            return Err(Fault::protocol(
                "the SASL mechanism and the channel binding do not agree",
            ));
        }
        if bound && client_first.starts_with(b"y") {
            return Err(negotiation_was_changed());
        }
        let (server_first, waiting) = server
            .on_client_first_message_with_secret(client_first, secret)
            .map_err(|error| bad_exchange(&error, user))?;
        self.output
            .authentication(SASL_CONTINUE, server_first.as_bytes());
        self.flush().await?;

        let client_final = self.password_message().await?;
        let server_final = waiting
            .on_client_final_message(&client_final)
            .map_err(|error| bad_exchange(&error, user))?;
        if !known {
            return Err(wrong_password(user));
        }
        self.output
            .authentication(SASL_FINAL, server_final.as_bytes());
        Ok(())
    }

    async fn password_message(&mut self) -> Result<Bytes, Fault> {
        let (kind, length) = self.input.header().await?;
        if kind != b'p' {
            return Err(Fault::protocol(format!(
                "expected SASL response, got message type {kind}"
            )));
        }
        if length > SMALL_MESSAGE_BYTES_MAX {
            return Err(Fault::protocol("invalid message length"));
        }
        self.input.take_header();
        self.input.body(length).await
    }
}
