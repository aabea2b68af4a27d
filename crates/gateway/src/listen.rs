//! The sockets that clients connect to: TCP, and for clients on the same machine a Unix-domain
//! socket.

use std::{
    fmt, fs, future, io,
    net::SocketAddr,
    os::unix::{fs::PermissionsExt, net},
    path::{Path, PathBuf},
};

use crate::door::Guests;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// The folder's permissions decide who may connect to the socket, as with PostgreSQL.
const SOCKET_MODE: u32 = 0o777;

/// The sockets that a gateway listens on.
#[derive(Debug)]
pub struct Listeners {
    /// Address and port.
    pub tcp: TcpListener,
    /// A socket for clients on the same machine.
    pub local: Option<LocalListener>,
    /// Clients that other nodes have let in.
    pub guests: Option<Guests>,
}

/// Somebody who has come.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) socket: Socket,
    pub(crate) peer: Peer,
    /// What another node says of them, which has let them in.
    pub(crate) introduction: Option<Vec<u8>>,
}

impl From<TcpListener> for Listeners {
    fn from(tcp: TcpListener) -> Self {
        Self {
            tcp,
            local: None,
            guests: None,
        }
    }
}

impl Listeners {
    /// The connection of the next client.
    pub(crate) async fn accept(&self) -> io::Result<Arrival> {
        let arrived = |socket, peer| Arrival {
            socket,
            peer,
            introduction: None,
        };
        let guest = async {
            match &self.guests {
                Some(guests) => guests.next().await,
                None => future::pending().await,
            }
        };
        let local = async {
            match &self.local {
                Some(local) => local.listener.accept().await,
                None => future::pending().await,
            }
        };
        tokio::select! {
            accepted = self.tcp.accept() => {
                let (socket, address) = accepted?;
                // Small answers must not wait for the client's acknowledgement.
                let _ = socket.set_nodelay(true);
                Ok(arrived(Socket::Tcp(socket), Peer::Remote(address)))
            }
            accepted = local => Ok(arrived(Socket::Local(accepted?.0), Peer::Local)),
            (socket, introduction) = guest => {
                let socket = socket.resume()?;
                // One that is gone by now says so when it is answered.
                let gone = SocketAddr::from(([0, 0, 0, 0], 0));
                Ok(Arrival {
                    peer: Peer::Remote(socket.peer_addr().unwrap_or(gone)),
                    socket: Socket::Node(socket),
                    introduction: Some(introduction),
                })
            }
        }
    }
}

/// A Unix-domain socket where PostgreSQL's clients look for one. Its file is removed with it.
#[derive(Debug)]
pub struct LocalListener {
    listener: UnixListener,
    file: PathBuf,
}

impl LocalListener {
    /// Listens on `.s.PGSQL.{port}` in a folder. The file of a server that has died is replaced.
    /// The caller must be in a runtime.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] if a server listens there; an error of the folder, or a path
    /// that is longer than that of a socket may be.
    pub fn bind(folder: &Path, port: u16) -> io::Result<Self> {
        let file = folder.join(format!(".s.PGSQL.{port}"));
        let listener = match UnixListener::bind(&file) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                if net::UnixStream::connect(&file).is_ok() {
                    return Err(error);
                }
                fs::remove_file(&file)?;
                UnixListener::bind(&file)?
            }
            bound => bound?,
        };
        let own = Self { listener, file };
        fs::set_permissions(&own.file, fs::Permissions::from_mode(SOCKET_MODE))?;
        Ok(own)
    }

    /// The socket's path.
    pub fn path(&self) -> &Path {
        &self.file
    }
}

impl Drop for LocalListener {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.file) {
            tracing::debug!(%error, file = %self.file.display(), "the socket's file stays");
        }
    }
}

/// A client's socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Local(UnixStream),
    /// By another node, which has let the client in.
    Node(aerostat_transport::Stream),
}

/// A socket that belongs to no runtime, on its way from one to another.
pub(crate) enum Parked {
    Tcp(std::net::TcpStream),
    Local(net::UnixStream),
    Node(aerostat_transport::Parked),
}

impl Socket {
    /// Takes the socket out of its runtime.
    pub(crate) fn park(self) -> io::Result<Parked> {
        Ok(match self {
            Socket::Tcp(socket) => Parked::Tcp(socket.into_std()?),
            Socket::Local(socket) => Parked::Local(socket.into_std()?),
            Socket::Node(socket) => Parked::Node(socket.park()?),
        })
    }
}

impl Parked {
    /// Puts the socket into the caller's runtime.
    pub(crate) fn resume(self) -> io::Result<Socket> {
        Ok(match self {
            Parked::Tcp(socket) => Socket::Tcp(TcpStream::from_std(socket)?),
            Parked::Local(socket) => Socket::Local(UnixStream::from_std(socket)?),
            Parked::Node(socket) => Socket::Node(socket.resume()?),
        })
    }
}

/// Where a client is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Peer {
    Remote(SocketAddr),
    /// On this machine, through a file.
    Local,
}

impl Peer {
    /// Whether the client is on this machine.
    pub(crate) fn is_here(self) -> bool {
        match self {
            Peer::Remote(address) => address.ip().to_canonical().is_loopback(),
            Peer::Local => true,
        }
    }

    /// The client's address and port; `None` if it came through a file.
    pub(crate) fn address(self) -> Option<(String, u16)> {
        match self {
            Peer::Remote(address) => {
                Some((address.ip().to_canonical().to_string(), address.port()))
            }
            Peer::Local => None,
        }
    }

    /// Whether the connection uses no network.
    pub(crate) fn is_local(self) -> bool {
        matches!(self, Peer::Local)
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Remote(address) => address.fmt(f),
            Peer::Local => f.write_str("[local]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_is_one_servers() {
        let folder = tempfile::tempdir().unwrap();
        let first = LocalListener::bind(folder.path(), 5433).unwrap();
        assert_eq!(first.path(), folder.path().join(".s.PGSQL.5433"));
        let second = LocalListener::bind(folder.path(), 5433).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
        assert!(first.path().exists(), "the first keeps its file");
        LocalListener::bind(folder.path(), 5434).unwrap();
        drop(first);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let too_long = folder.path().join("x".repeat(120));
        assert!(LocalListener::bind(&too_long, 1).is_err());
    }
}
