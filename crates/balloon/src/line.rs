//! Messages as lines of JSON over any stream of bytes.

use std::io;

use serde::{Serialize, de::DeserializeOwned};
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The longest line, its end included. The longest message of the protocol, a demand with all its costs,
/// has some 4 KiB.
pub const LINE_BYTES_MAX: u64 = 16 << 10;

/// Why a message could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The connection broke.
    #[error("the connection broke")]
    Io(#[from] io::Error),
    /// The line is longer than a message may be.
    #[error("the message is too long")]
    TooLong,
    /// The line is not one of the protocol's messages.
    #[error("not a message of the protocol")]
    Invalid(#[from] serde_json::Error),
    /// The stream ended within a message.
    #[error("the connection ended within a message")]
    Truncated,
}

/// The next message, or `None` where the stream ends between two.
///
/// Not safe to cancel: what was read of a line is lost. It is to run in a task or a loop of its own.
///
/// # Errors
/// See [`ReadError`].
pub async fn read<M: DeserializeOwned>(
    stream: &mut (impl AsyncBufRead + Unpin),
) -> Result<Option<M>, ReadError> {
    read_up_to(stream, LINE_BYTES_MAX).await
}

/// As [`read`], of lines that may have another length.
///
/// # Errors
/// See [`ReadError`].
pub async fn read_up_to<M: DeserializeOwned>(
    stream: &mut (impl AsyncBufRead + Unpin),
    bytes_max: u64,
) -> Result<Option<M>, ReadError> {
    let mut line = Vec::new();
    stream.take(bytes_max).read_until(b'\n', &mut line).await?;
    if line.is_empty() {
        return Ok(None);
    }
    if line.last() != Some(&b'\n') {
        return Err(match line.len() as u64 {
            bytes if bytes == bytes_max => ReadError::TooLong,
            _ => ReadError::Truncated,
        });
    }
    Ok(Some(serde_json::from_slice(&line)?))
}

/// Sends a message.
///
/// # Errors
/// Those of the stream.
pub async fn write(
    stream: &mut (impl AsyncWrite + Unpin),
    message: &impl Serialize,
) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line).await?;
    stream.flush().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{FromBroker, FromParticipant, Report};

    #[tokio::test]
    async fn what_is_written_is_read() {
        let report = Report {
            epoch: 7,
            used: u64::MAX,
            target: 3,
        };
        let sent = [
            FromParticipant::Heartbeat(report),
            FromParticipant::Bye,
            FromParticipant::Done(report),
        ];
        let mut bytes = Vec::new();
        for message in &sent {
            write(&mut bytes, message).await.unwrap();
        }
        let mut stream = bytes.as_slice();
        for message in &sent {
            let read: Option<FromParticipant> = read(&mut stream).await.unwrap();
            assert_eq!(read.as_ref(), Some(message));
        }
        assert!(
            read::<FromParticipant>(&mut stream)
                .await
                .unwrap()
                .is_none()
        );
    }

    #[tokio::test]
    async fn wrong_lines_are_told_apart() {
        async fn of(bytes: &[u8]) -> ReadError {
            let mut stream = bytes;
            read::<FromBroker>(&mut stream).await.unwrap_err()
        }
        assert!(matches!(of(b"{}\n").await, ReadError::Invalid(_)));
        assert!(matches!(of(b"\xff\xfe\n").await, ReadError::Invalid(_)));
        assert!(matches!(of(b"{\"type\":").await, ReadError::Truncated));
        let long = vec![b' '; LINE_BYTES_MAX as usize + 1];
        assert!(matches!(of(&long).await, ReadError::TooLong));
    }
}
