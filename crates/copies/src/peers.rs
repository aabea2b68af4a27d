//! What connections between nodes have in common, whatever they are for: addresses, the token, frames.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use aerostat_replication::NodeId;
use aerostat_transport::{Peer, Stream, Transport};
use socket2::TcpKeepalive;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::{
    spoken::VERSION,
    wire::{self, HEAD_BYTES},
};

/// What room is made for before more has come.
const ROOM_BYTES: usize = 256 << 10;

/// After so long without an answer, or without anything being taken, a connection is given up: the system would go on
/// trying for a quarter of an hour.
pub(crate) const SILENCE: Duration = Duration::from_secs(2);

/// Where a node is now, if that is known.
pub type Address = Arc<dyn Fn(NodeId) -> Option<Peer> + Send + Sync>;

/// The other nodes: where they are, and how connections with them are made.
#[derive(Clone)]
pub struct Peers {
    /// Where they are.
    pub address: Address,
    /// In which version they are greeted.
    pub versions: Versions,
    /// How they are dialled, and taken.
    pub transport: Transport,
}

impl Peers {
    /// Those of one machine, which need no names.
    pub fn plain(address: impl Fn(NodeId) -> Option<SocketAddr> + Send + Sync + 'static) -> Peers {
        let peer = move |node: NodeId| {
            address(node).map(|address| Peer {
                name: node.to_string(),
                address,
            })
        };
        Peers {
            address: Arc::new(peer),
            versions: Arc::new(|_| VERSION),
            transport: Transport::plain(),
        }
    }

    /// Whether a connection can be one of this node's.
    pub(crate) fn is_of(&self, stream: &Stream, node: NodeId) -> bool {
        // Only then it can be told from others.
        !self.transport.is_secured()
            || (self.address)(node).is_some_and(|peer| stream.is_of(&peer.name))
    }
}

/// In which version a node is greeted.
pub type Versions = Arc<dyn Fn(NodeId) -> u16 + Send + Sync>;

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

/// Has the system end a connection on which nothing is acknowledged for a while, or that has fallen silent: a network
/// may lose one without a word, and heartbeats fit into its buffer for long.
pub(crate) fn give_up_in_silence(stream: &Stream) -> io::Result<()> {
    keep_alive(stream)?;
    stream.set_options(|socket| socket.set_tcp_user_timeout(Some(SILENCE)))
}

/// Has the system end a connection whose other end is gone. It may be silent, and take nothing, for as long as it
/// likes: a client may read what it asked for in its own time.
pub(crate) fn keep_alive(stream: &Stream) -> io::Result<()> {
    let keepalive = TcpKeepalive::new()
        .with_time(SILENCE * 5)
        .with_interval(SILENCE)
        .with_retries(3);
    stream.set_options(|socket| {
        socket.set_tcp_user_timeout(None)?;
        socket.set_tcp_keepalive(&keepalive)
    })
}

/// Whether two secrets are the same, in a time that does not tell where they differ.
pub(crate) fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differ = one
        .iter()
        .zip(other)
        .fold(0, |differ, (a, b)| differ | (a ^ b));
    one.len() == other.len() && differ == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn connections_end_that_the_network_has_lost() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stream, taken) =
            tokio::join!(tokio::net::TcpStream::connect(address), listener.accept());
        for stream in [stream.unwrap(), taken.unwrap().0] {
            let stream = Stream::plain(stream);
            give_up_in_silence(&stream).unwrap();
            let looked = stream.set_options(|socket| {
                assert_eq!(socket.tcp_user_timeout()?, Some(SILENCE));
                assert!(socket.keepalive()?);
                assert_eq!(socket.tcp_keepalive_time()?, SILENCE * 5);
                Ok(())
            });
            looked.unwrap();
        }
    }
}
