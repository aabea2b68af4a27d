//! Sessions that come from another node, which has let their clients in.
//!
//! ```text
//!  client ─► node where it has connected ── greeting, introduction, then the client's protocol ─► node that leads
//! ```
//!
//! What is in an introduction is for those to know who serve clients: here it is bytes.

use std::{io, time::Duration};

use aerostat_transport::{Parked, Peer, Stream, Transport};
use tokio::{io::AsyncWriteExt, time::timeout};

use crate::{
    Greeting,
    peers::{frame, keep_alive},
    wire::{self, Purpose},
};

/// How long a node may take to be reached, and to say what it says first.
const DIAL_MAX: Duration = Duration::from_secs(2);

/// The most that is said of a session.
const INTRODUCTION_BYTES_MAX: usize = 64 << 10;

/// Where sessions from other nodes go.
pub trait Door: Send + Sync {
    /// Takes a session's connection, and what was said of it.
    fn session(&self, connection: Parked, introduction: Vec<u8>);

    /// Stops what a session runs, if there is one with this key.
    fn cancel(&self, pid: i32, secret: i32);
}

/// Nobody comes in.
impl Door for () {
    fn session(&self, _: Parked, _: Vec<u8>) {}

    fn cancel(&self, _: i32, _: i32) {}
}

/// A connection to a node for a client's session.
///
/// # Errors
/// The node is not reached, or the introduction is too long.
pub async fn dial_session(
    (transport, peer): (&Transport, &Peer),
    greeting: &Greeting,
    introduction: &[u8],
) -> io::Result<Parked> {
    if introduction.len() > INTRODUCTION_BYTES_MAX / 2 {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let said = wire::frame(&(), introduction);
    let stream = dial((transport, peer), greeting, Purpose::Session, said).await?;
    keep_alive(&stream)?;
    stream.park()
}

/// Has a node stop what the session with a key runs.
///
/// # Errors
/// The node is not reached.
pub async fn dial_cancel(
    (transport, peer): (&Transport, &Peer),
    greeting: &Greeting,
    key: (i32, i32),
) -> io::Result<()> {
    let said = wire::frame(&key, &[]);
    let mut stream = dial((transport, peer), greeting, Purpose::Cancel, said).await?;
    stream.shutdown().await
}

/// A connection that is for something, of which this is said.
async fn dial(
    (transport, peer): (&Transport, &Peer),
    greeting: &Greeting,
    purpose: Purpose,
    said: Vec<u8>,
) -> io::Result<Stream> {
    let greeting = Greeting {
        purpose,
        ..greeting.clone()
    };
    let first = [wire::of_greeting(&greeting), said].concat();
    let dialled = async {
        let mut stream = transport.dial(peer).await?;
        stream.write_all(&first).await?;
        stream.flush().await?;
        Ok(stream)
    };
    timeout(DIAL_MAX, dialled).await?
}

/// Hands a session's connection over.
pub(crate) async fn take_session(mut stream: Stream, door: &dyn Door) -> io::Result<()> {
    let said = timeout(DIAL_MAX, frame(&mut stream, INTRODUCTION_BYTES_MAX)).await??;
    let Some((content, crc)) = said else {
        return Ok(());
    };
    let ((), introduction) = wire::decode(&content, crc).map_err(io::Error::other)?;
    keep_alive(&stream)?;
    door.session(stream.park()?, introduction.to_vec());
    Ok(())
}

/// Does what a node has asked for.
pub(crate) async fn take_cancel(mut stream: Stream, door: &dyn Door) -> io::Result<()> {
    let said = timeout(DIAL_MAX, frame(&mut stream, INTRODUCTION_BYTES_MAX)).await??;
    if let Some((content, crc)) = said {
        let ((pid, secret), _): ((i32, i32), _) =
            wire::decode(&content, crc).map_err(io::Error::other)?;
        door.cancel(pid, secret);
    }
    Ok(())
}
