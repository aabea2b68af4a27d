//! A connection in a runtime, and on its way to another.

use std::{
    fmt, io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
};

use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::TlsStream;

use crate::{certificates, sender::Sender};

/// A connection. What is written may wait until it is flushed. Over TLS an end that nobody has said is an error
/// ([`io::ErrorKind::UnexpectedEof`]): somebody on the way may have cut it off.
pub struct Stream(Kind);

enum Kind {
    Plain(TcpStream),
    Tls(Box<TlsStream<Seat>>),
}

/// A connection that belongs to no runtime.
pub struct Parked(ParkedKind);

enum ParkedKind {
    Plain(std::net::TcpStream),
    Tls(Box<TlsStream<Seat>>, std::net::TcpStream),
}

/// The socket below TLS, which is taken out while the connection belongs to no runtime.
pub(crate) struct Seat(Option<TcpStream>);

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Stream").field(&self.socket()).finish()
    }
}

impl fmt::Debug for Parked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ParkedKind::Plain(socket) | ParkedKind::Tls(_, socket)) = &self.0;
        f.debug_tuple("Parked").field(socket).finish()
    }
}

impl Stream {
    /// Of a socket, without TLS.
    pub fn plain(socket: TcpStream) -> Stream {
        Stream(Kind::Plain(socket))
    }

    pub(crate) fn tls(stream: TlsStream<Seat>) -> Stream {
        Stream(Kind::Tls(Box::new(stream)))
    }

    fn socket(&self) -> Option<&TcpStream> {
        match &self.0 {
            Kind::Plain(socket) => Some(socket),
            Kind::Tls(stream) => stream.get_ref().0.0.as_ref(),
        }
    }

    /// Whether the other end has proved to be this node, or need not.
    pub fn is_of(&self, node: &str) -> bool {
        match &self.0 {
            Kind::Plain(_) => true,
            Kind::Tls(stream) => {
                let shown = stream.get_ref().1.peer_certificates();
                let first = shown.and_then(|shown| shown.first());
                first.is_some_and(|first| certificates::is_for(first, node))
            }
        }
    }

    /// Where the other end is.
    ///
    /// # Errors
    /// It has gone.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket().ok_or_else(gone)?.peer_addr()
    }

    /// Does something to the socket's options.
    ///
    /// # Errors
    /// That fails.
    pub fn set_options(&self, set: impl FnOnce(SockRef<'_>) -> io::Result<()>) -> io::Result<()> {
        set(SockRef::from(self.socket().ok_or_else(gone)?))
    }

    /// Takes the connection out of its runtime.
    ///
    /// # Errors
    /// The system does not give the socket.
    pub fn park(self) -> io::Result<Parked> {
        Ok(Parked(match self.0 {
            Kind::Plain(socket) => ParkedKind::Plain(socket.into_std()?),
            Kind::Tls(mut stream) => {
                let socket = stream.get_mut().0.0.take().ok_or_else(gone)?;
                ParkedKind::Tls(stream, socket.into_std()?)
            }
        }))
    }

    /// The sending end of a connection that was dialled. Nothing is read from it any more.
    ///
    /// # Errors
    /// It was not dialled.
    pub fn into_sender(self) -> io::Result<Sender> {
        match self.0 {
            Kind::Plain(socket) => Ok(Sender::new(socket, None)),
            Kind::Tls(stream) => match *stream {
                TlsStream::Client(stream) => {
                    let (seat, session) = stream.into_inner();
                    Ok(Sender::new(seat.0.ok_or_else(gone)?, Some(session)))
                }
                TlsStream::Server(_) => Err(io::ErrorKind::InvalidInput.into()),
            },
        }
    }
}

impl Parked {
    /// Puts the connection into the caller's runtime.
    ///
    /// # Errors
    /// The system does not take the socket.
    pub fn resume(self) -> io::Result<Stream> {
        Ok(Stream(match self.0 {
            ParkedKind::Plain(socket) => Kind::Plain(TcpStream::from_std(socket)?),
            ParkedKind::Tls(mut stream, socket) => {
                *stream.get_mut().0 = Seat::of(TcpStream::from_std(socket)?);
                Kind::Tls(stream)
            }
        }))
    }
}

impl Seat {
    pub(crate) fn of(socket: TcpStream) -> Seat {
        Seat(Some(socket))
    }

    fn poll<T>(
        self: Pin<&mut Self>,
        poll: impl FnOnce(Pin<&mut TcpStream>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match &mut self.get_mut().0 {
            Some(socket) => poll(Pin::new(socket)),
            None => Poll::Ready(Err(gone())),
        }
    }
}

/// Nobody polls a connection that is parked.
fn gone() -> io::Error {
    io::ErrorKind::NotConnected.into()
}

impl AsyncRead for Seat {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll(|socket| socket.poll_read(cx, buffer))
    }
}

impl AsyncWrite for Seat {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll(|socket| socket.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll(|socket| socket.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(|socket| socket.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll(|socket| socket.poll_shutdown(cx))
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Kind::Plain(socket) => Pin::new(socket).poll_read(cx, buffer),
            Kind::Tls(stream) => Pin::new(stream.as_mut()).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.get_mut().0 {
            Kind::Plain(socket) => Pin::new(socket).poll_write(cx, bytes),
            Kind::Tls(stream) => Pin::new(stream.as_mut()).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Kind::Plain(socket) => Pin::new(socket).poll_flush(cx),
            Kind::Tls(stream) => Pin::new(stream.as_mut()).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().0 {
            Kind::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Kind::Tls(stream) => Pin::new(stream.as_mut()).poll_shutdown(cx),
        }
    }
}
