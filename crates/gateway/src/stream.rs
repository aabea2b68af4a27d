//! A client's socket, plain or with TLS, as two halves. The halves of a plain socket share no lock.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
};

use rustls::ProtocolVersion;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf, ReadHalf, WriteHalf},
    net::{
        TcpStream,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
        unix,
    },
};
use tokio_rustls::server::TlsStream;

use crate::{api::TlsDescription, listen::Socket};

type Tls = TlsStream<TcpStream>;

/// The half that the client's bytes are read from.
#[derive(Debug)]
pub(crate) enum Reader {
    Plain(OwnedReadHalf),
    Local(unix::OwnedReadHalf),
    Node(ReadHalf<aerostat_transport::Stream>),
    Tls(ReadHalf<Tls>),
}

/// The half that our bytes are written to.
#[derive(Debug)]
pub(crate) enum Writer {
    Plain(OwnedWriteHalf),
    Local(unix::OwnedWriteHalf),
    Node(WriteHalf<aerostat_transport::Stream>),
    Tls(WriteHalf<Tls>),
}

/// The halves of a plain socket.
pub(crate) fn plain(socket: Socket) -> (Reader, Writer) {
    match socket {
        Socket::Tcp(socket) => {
            let (read, write) = socket.into_split();
            (Reader::Plain(read), Writer::Plain(write))
        }
        Socket::Local(socket) => {
            let (read, write) = socket.into_split();
            (Reader::Local(read), Writer::Local(write))
        }
        Socket::Node(socket) => {
            let (read, write) = tokio::io::split(socket);
            (Reader::Node(read), Writer::Node(write))
        }
    }
}

/// The halves of a socket with TLS.
pub(crate) fn within_tls(stream: Tls) -> (Reader, Writer) {
    let (read, write) = tokio::io::split(stream);
    (Reader::Tls(read), Writer::Tls(write))
}

/// What the two sides of a TLS connection have negotiated.
pub(crate) fn describe_tls(stream: &Tls) -> Option<TlsDescription> {
    let connection = stream.get_ref().1;
    let suite = connection.negotiated_cipher_suite()?.suite();
    // rustls supports no version before 1.2.
    let version = match connection.protocol_version()? {
        ProtocolVersion::TLSv1_3 => "TLSv1.3",
        _ => "TLSv1.2",
    };
    let name = suite.as_str()?;
    Some(TlsDescription {
        version,
        // The standard's names. For version 1.3 these are also OpenSSL's, and so PostgreSQL's.
        cipher: name.replacen("TLS13_", "TLS_", 1),
        bits: if name.contains("AES_128") { 128 } else { 256 },
    })
}

/// The whole socket of two halves of plain TCP; `None` for others.
pub(crate) fn whole(reader: Reader, writer: Writer) -> Option<TcpStream> {
    match (reader, writer) {
        (Reader::Plain(read), Writer::Plain(write)) => read.reunite(write).ok(),
        _ => None,
    }
}

impl AsyncRead for Reader {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Reader::Plain(half) => Pin::new(half).poll_read(cx, buffer),
            Reader::Local(half) => Pin::new(half).poll_read(cx, buffer),
            Reader::Node(half) => Pin::new(half).poll_read(cx, buffer),
            Reader::Tls(half) => Pin::new(half).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Writer {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Writer::Plain(half) => Pin::new(half).poll_write(cx, bytes),
            Writer::Local(half) => Pin::new(half).poll_write(cx, bytes),
            Writer::Node(half) => Pin::new(half).poll_write(cx, bytes),
            Writer::Tls(half) => Pin::new(half).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Writer::Plain(half) => Pin::new(half).poll_flush(cx),
            Writer::Local(half) => Pin::new(half).poll_flush(cx),
            Writer::Node(half) => Pin::new(half).poll_flush(cx),
            Writer::Tls(half) => Pin::new(half).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Writer::Plain(half) => Pin::new(half).poll_shutdown(cx),
            Writer::Local(half) => Pin::new(half).poll_shutdown(cx),
            Writer::Node(half) => Pin::new(half).poll_shutdown(cx),
            Writer::Tls(half) => Pin::new(half).poll_shutdown(cx),
        }
    }
}
