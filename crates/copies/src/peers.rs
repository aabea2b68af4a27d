//! What connections between nodes have in common, whatever they are for: addresses, the token, frames.

use std::{io, net::SocketAddr, sync::Arc};

use aerostat_replication::NodeId;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::wire::{self, HEAD_BYTES};

/// What room is made for before more has come.
const ROOM_BYTES: usize = 256 << 10;

/// Where a node is now, if that is known.
pub type Address = Arc<dyn Fn(NodeId) -> Option<SocketAddr> + Send + Sync>;

/// The next frame's content and checksum; `None` at the end.
pub(crate) async fn frame(
    stream: &mut (impl AsyncRead + Unpin),
    bytes_max: usize,
) -> io::Result<Option<(Vec<u8>, u32)>> {
    let mut head = [0; HEAD_BYTES];
    match stream.read_exact(&mut head).await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    };
    let (bytes, crc) = wire::head(head, bytes_max).map_err(io::Error::other)?;
    // It takes no more memory than has come.
    let mut content = Vec::with_capacity(bytes.min(ROOM_BYTES));
    let read = stream.take(bytes as u64).read_to_end(&mut content).await?;
    match read == bytes {
        true => Ok(Some((content, crc))),
        false => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Whether two secrets are the same, in a time that does not tell where they differ.
pub(crate) fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differ = one
        .iter()
        .zip(other)
        .fold(0, |differ, (a, b)| differ | (a ^ b));
    one.len() == other.len() && differ == 0
}
