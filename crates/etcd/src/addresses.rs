//! Addresses of etcd's members.
//!
//! ureq looks up every name in a thread of its own, also one that is an address, and gives up the process's thread where
//! the system has none. A node asks etcd from hundreds of threads.

use std::{
    io,
    net::{SocketAddr, ToSocketAddrs},
    sync::mpsc,
    thread,
};

use ureq::{
    Error,
    config::Config,
    http::Uri,
    unversioned::{
        resolver::{ResolvedSocketAddrs, Resolver},
        transport::NextTimeout,
    },
};

/// More of them are not tried.
const ADDRESSES_MAX: usize = 16;

/// Looks names up, and takes addresses for what they are.
#[derive(Debug)]
pub(crate) struct Addresses;

impl Resolver for Addresses {
    fn resolve(
        &self,
        uri: &Uri,
        _config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, Error> {
        // Members are given with their ports.
        let member = uri.authority().ok_or(Error::HostNotFound)?.as_str();
        let found = match member.parse::<SocketAddr>() {
            Ok(address) => vec![address],
            Err(_) => looked_up(member.to_owned(), timeout)?,
        };
        let mut addresses = self.empty();
        for address in found.into_iter().take(ADDRESSES_MAX) {
            addresses.push(address);
        }
        match addresses.is_empty() {
            true => Err(Error::HostNotFound),
            false => Ok(addresses),
        }
    }
}

/// The addresses of a name. It may take long to find them, and cannot be stopped: somebody else waits for that.
fn looked_up(member: String, timeout: NextTimeout) -> Result<Vec<SocketAddr>, Error> {
    let (sender, found) = mpsc::sync_channel(1);
    let look_up = move || {
        let addresses = member.to_socket_addrs();
        // Nobody waits any more, perhaps.
        let _ = sender.send(addresses.map(Iterator::collect::<Vec<_>>));
    };
    let thread = thread::Builder::new().name("aerostat-looks-up".to_owned());
    thread.spawn(look_up)?;
    match found.recv_timeout(*timeout.after) {
        Ok(found) => Ok(found?),
        Err(mpsc::RecvTimeoutError::Timeout) => Err(Error::Timeout(timeout.reason)),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            Err(io::Error::from(io::ErrorKind::Interrupted).into())
        }
    }
}
