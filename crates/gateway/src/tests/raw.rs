//! A client that sends exactly the bytes that it is given.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::fake::{Fake, Seen};
use crate::{GatewayOptions, serve};

/// How long a test waits for the other side.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// A gateway in front of a fake engine.
pub(super) struct Node {
    pub(super) address: SocketAddr,
    pub(super) seen: Arc<Seen>,
    pub(super) shutdown: CancellationToken,
    pub(super) task: JoinHandle<std::io::Result<()>>,
}

pub(super) async fn node_with(fake: Fake, options: GatewayOptions) -> Node {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (seen, shutdown) = (fake.seen.clone(), CancellationToken::new());
    let task = tokio::spawn(serve(listener, Arc::new(fake), options, shutdown.clone()));
    Node {
        address,
        seen,
        shutdown,
        task,
    }
}

pub(super) async fn node() -> Node {
    node_with(Fake::default(), GatewayOptions::default()).await
}

pub(super) struct Raw<S = TcpStream> {
    pub(super) socket: S,
}

/// A message of the server.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) kind: u8,
    pub(super) body: Vec<u8>,
}

impl std::fmt::Debug for Reply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}:{}",
            self.kind as char,
            String::from_utf8_lossy(&self.body)
        )
    }
}

impl Reply {
    /// A field of an error or notice.
    pub(super) fn field(&self, kind: u8) -> Option<String> {
        let mut parts = self.body.split(|&b| b == 0);
        parts
            .find(|part| part.first() == Some(&kind))
            .map(|part| String::from_utf8_lossy(&part[1..]).into_owned())
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body)
            .trim_end_matches('\0')
            .to_owned()
    }

    /// The values of a DataRow.
    pub(super) fn values(&self) -> Vec<Option<Vec<u8>>> {
        let mut rest = &self.body[2..];
        let mut values = Vec::new();
        while !rest.is_empty() {
            let length = i32::from_be_bytes(rest[..4].try_into().unwrap());
            rest = &rest[4..];
            values.push(usize::try_from(length).ok().map(|length| {
                let (value, tail) = rest.split_at(length);
                rest = tail;
                value.to_vec()
            }));
        }
        values
    }
}

pub(super) fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind];
    bytes.extend_from_slice(&(body.len() as u32 + 4).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

pub(super) fn startup(parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut body = (3u32 << 16).to_be_bytes().to_vec();
    for (name, value) in parameters {
        body.extend_from_slice(name.as_bytes());
        body.push(0);
        body.extend_from_slice(value.as_bytes());
        body.push(0);
    }
    body.push(0);
    let mut bytes = (body.len() as u32 + 4).to_be_bytes().to_vec();
    bytes.extend_from_slice(&body);
    bytes
}

pub(super) fn query(text: &str) -> Vec<u8> {
    message(b'Q', &[text.as_bytes(), b"\0"].concat())
}

pub(super) fn parse(name: &str, sql: &str) -> Vec<u8> {
    message(
        b'P',
        &[name.as_bytes(), b"\0", sql.as_bytes(), b"\0\0\0"].concat(),
    )
}

/// Bind without parameters, results in text.
pub(super) fn bind(portal: &str, statement: &str) -> Vec<u8> {
    message(
        b'B',
        &[
            portal.as_bytes(),
            b"\0",
            statement.as_bytes(),
            b"\0\0\0\0\0\0\0",
        ]
        .concat(),
    )
}

pub(super) fn execute(portal: &str, rows: i32) -> Vec<u8> {
    message(
        b'E',
        &[portal.as_bytes(), b"\0", &rows.to_be_bytes()].concat(),
    )
}

pub(super) fn describe(target: u8, name: &str) -> Vec<u8> {
    message(b'D', &[&[target], name.as_bytes(), b"\0"].concat())
}

pub(super) fn sync() -> Vec<u8> {
    message(b'S', b"")
}

impl Raw {
    pub(super) async fn open(address: SocketAddr) -> Self {
        Self {
            socket: TcpStream::connect(address).await.unwrap(),
        }
    }

    /// Connects and logs in as ann; also returns the messages up to ReadyForQuery.
    pub(super) async fn login(address: SocketAddr) -> (Self, Vec<Reply>) {
        let mut raw = Self::open(address).await;
        raw.send(&startup(&[("user", "ann"), ("database", "d")]))
            .await;
        let replies = raw.until_ready().await;
        (raw, replies)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Raw<S> {
    pub(super) async fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).await.unwrap();
        self.socket.flush().await.unwrap();
    }

    /// The next message; `None` if the server has closed the connection.
    pub(super) async fn reply(&mut self) -> Option<Reply> {
        let mut header = [0; 5];
        let read = timeout(PATIENCE, self.socket.read_exact(&mut header))
            .await
            .expect("the server answers");
        read.ok()?;
        let length = u32::from_be_bytes(header[1..].try_into().unwrap()) as usize - 4;
        let mut body = vec![0; length];
        timeout(PATIENCE, self.socket.read_exact(&mut body))
            .await
            .expect("the server answers")
            .ok()?;
        Some(Reply {
            kind: header[0],
            body,
        })
    }

    pub(super) async fn until_ready(&mut self) -> Vec<Reply> {
        let mut replies = Vec::new();
        while let Some(reply) = self.reply().await {
            let ready = reply.kind == b'Z';
            replies.push(reply);
            if ready {
                break;
            }
        }
        replies
    }

    pub(super) async fn ask(&mut self, bytes: &[u8]) -> Vec<Reply> {
        self.send(bytes).await;
        self.until_ready().await
    }

    /// Messages until the server closes.
    pub(super) async fn until_closed(&mut self) -> Vec<Reply> {
        let mut replies = Vec::new();
        while let Some(reply) = self.reply().await {
            replies.push(reply);
        }
        replies
    }
}

pub(super) fn kinds(replies: &[Reply]) -> String {
    replies.iter().map(|reply| reply.kind as char).collect()
}
