//! A connection for a thread that waits.

use std::{
    fmt,
    io::{self, Read, Write},
    net::TcpStream,
    time::Duration,
};

use rustls::{ClientConnection, StreamOwned};

/// A connection that was dialled.
pub struct Blocking(Kind);

enum Kind {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl fmt::Debug for Blocking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Blocking").field(self.socket()).finish()
    }
}

impl Blocking {
    pub(crate) fn plain(socket: TcpStream) -> Blocking {
        Blocking(Kind::Plain(socket))
    }

    pub(crate) fn tls(session: ClientConnection, socket: TcpStream) -> Blocking {
        Blocking(Kind::Tls(Box::new(StreamOwned::new(session, socket))))
    }

    fn socket(&self) -> &TcpStream {
        match &self.0 {
            Kind::Plain(socket) => socket,
            Kind::Tls(stream) => stream.get_ref(),
        }
    }

    /// How long reading and writing wait at most.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn set_timeouts(&self, at_most: Duration) -> io::Result<()> {
        self.socket().set_read_timeout(Some(at_most))?;
        self.socket().set_write_timeout(Some(at_most))
    }
}

impl Read for Blocking {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Kind::Plain(socket) => socket.read(buffer),
            Kind::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Blocking {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Kind::Plain(socket) => socket.write(bytes),
            Kind::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Kind::Plain(socket) => socket.flush(),
            Kind::Tls(stream) => stream.flush(),
        }
    }
}
