//! The connections of the HTTP port: their number and duration are limited.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use aerostat_gateway::{Lobby, LobbyPlace};
use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Sleep, sleep};
use tokio_util::sync::WaitForCancellationFutureOwned;

/// Connections at once: several times the scrapers and probes that a node has.
pub(super) const CONNECTIONS_MAX: usize = 64;

/// How long one may last. A page takes milliseconds; whoever keeps a connection for the next
/// makes another.
const LIFE: Duration = Duration::from_secs(30);

/// Accepts connections that end by themselves.
pub(super) struct Guests {
    listener: TcpListener,
    lobby: Arc<Lobby>,
}

impl Guests {
    pub(super) fn new(listener: TcpListener) -> Self {
        Self {
            listener,
            lobby: Lobby::new(CONNECTIONS_MAX),
        }
    }
}

impl Listener for Guests {
    type Io = Guest;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Guest, SocketAddr) {
        let (stream, address) = Listener::accept(&mut self.listener).await;
        let place = self.lobby.enter();
        let guest = Guest {
            stream,
            lost: Box::pin(place.lost()),
            over: Box::pin(sleep(LIFE)),
            _place: place,
        };
        (guest, address)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection until its time is over, or its place another's.
pub(super) struct Guest {
    stream: TcpStream,
    lost: Pin<Box<WaitForCancellationFutureOwned>>,
    over: Pin<Box<Sleep>>,
    _place: LobbyPlace,
}

impl Guest {
    /// Whether the connection must end; whoever asks is woken when it must.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Option<io::Error> {
        let lost = self.lost.as_mut().poll(context).is_ready();
        let over = self.over.as_mut().poll(context).is_ready();
        (lost || over).then(|| io::ErrorKind::TimedOut.into())
    }
}

impl AsyncRead for Guest {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.poll_end(context) {
            Some(error) => Poll::Ready(Err(error)),
            None => Pin::new(&mut self.stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Guest {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.poll_end(context) {
            Some(error) => Poll::Ready(Err(error)),
            None => Pin::new(&mut self.stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
