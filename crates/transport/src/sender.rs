//! The sending end of a connection, for whoever does not wait.

use std::{
    fmt,
    io::{self, IoSlice, Write},
    sync::Arc,
};

use rustls::ClientConnection;
use tokio::net::TcpStream;

/// What may be encrypted and not have gone: some records.
const PENDING_BYTES: usize = 64 << 10;

/// The sending end of a connection.
pub struct Sender {
    socket: Arc<TcpStream>,
    session: Option<Box<ClientConnection>>,
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Sender").field(&self.socket).finish()
    }
}

impl Sender {
    pub(crate) fn new(socket: TcpStream, mut session: Option<ClientConnection>) -> Sender {
        if let Some(session) = &mut session {
            session.set_buffer_limit(Some(PENDING_BYTES));
        }
        Sender {
            socket: Arc::new(socket),
            session: session.map(Box::new),
        }
    }

    /// What to wait for until more is taken.
    pub fn socket(&self) -> &Arc<TcpStream> {
        &self.socket
    }

    /// Takes as many bytes as it can now, at least one if there are any. They may have to be flushed.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`]: none; or the connection has ended.
    pub fn try_write(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let Some(session) = &mut self.session else {
            return self.socket.try_write_vectored(slices);
        };
        flush(session, &self.socket)?;
        let taken = session.writer().write_vectored(slices)?;
        match flush(session, &self.socket) {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(taken),
        }
    }

    /// Has everything go that was taken.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`]: something waits; or the connection has ended.
    pub fn try_flush(&mut self) -> io::Result<()> {
        match &mut self.session {
            None => Ok(()),
            Some(session) => flush(session, &self.socket),
        }
    }
}

/// Waits until the other end of a [`Sender`]'s socket, which says nothing there, has closed it, and gives that as an error:
/// [`io::ErrorKind::UnexpectedEof`], or how it was lost. What TLS itself says is left out.
pub async fn ended(socket: &TcpStream) -> io::Error {
    let mut bytes = [0; 256];
    loop {
        if let Err(error) = socket.readable().await {
            return error;
        }
        match socket.try_read(&mut bytes) {
            Ok(0) => return io::ErrorKind::UnexpectedEof.into(),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return error,
            Ok(_) | Err(_) => {}
        }
    }
}

fn flush(session: &mut ClientConnection, socket: &TcpStream) -> io::Result<()> {
    while session.wants_write() {
        if session.write_tls(&mut Tries(socket))? == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
    }
    Ok(())
}

/// A socket that is written to as far as it goes.
struct Tries<'a>(&'a TcpStream);

impl Write for Tries<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(bytes)
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write_vectored(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
