//! What administrators ask a broker, over the same socket, as lines of JSON.
//!
//! A request is answered once, and the connection may go on with further requests. Only processes of the broker's own machine may
//! ask: those that the socket's permissions let in.

use std::{io, path::Path};

use aerostat_balloon::line::{self, ReadError};
use serde::{Deserialize, Serialize};
use tokio::{io::BufReader, net::UnixStream};

use crate::{core::Status, policy::Policy};

/// A request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Request {
    /// How the budget is divided now.
    Status,
    /// Has a participant live by so many bytes, whatever the policy does.
    Pin {
        /// The participant.
        name: String,
        /// Its share.
        bytes: u64,
    },
    /// Leaves a participant to the policy again.
    Unpin {
        /// The participant.
        name: String,
    },
    /// Frees the share of a participant that is lost.
    Forget {
        /// The participant.
        name: String,
    },
    /// Divides memory by another policy.
    Policy {
        /// The policy.
        policy: Policy,
    },
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Answer {
    /// To [`Request::Status`].
    Status(Box<Status>),
    /// It is done.
    Ok,
    /// It is not done, for this reason.
    Error {
        /// For people.
        message: String,
    },
}

/// Why a broker could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody listens there, or the connection broke.
    #[error("cannot reach a broker at {path}")]
    Io {
        /// The socket.
        path: String,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// The answer could not be read.
    #[error("cannot read the broker's answer")]
    Read(#[from] ReadError),
    /// The broker closed the connection.
    #[error("the broker closed the connection")]
    Closed,
}

/// Asks the broker at a socket.
///
/// # Errors
/// See [`AskError`].
pub async fn ask(socket: &Path, request: &Request) -> Result<Answer, AskError> {
    let failed = |source| AskError::Io {
        path: socket.display().to_string(),
        source,
    };
    let mut stream = BufReader::new(UnixStream::connect(socket).await.map_err(failed)?);
    line::write(stream.get_mut(), request)
        .await
        .map_err(failed)?;
    line::read_up_to(&mut stream, ANSWER_BYTES_MAX)
        .await?
        .ok_or(AskError::Closed)
}

/// The longest answer: a status of all participants.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
