//! Clients that another node has let in, and whose sessions are here, since this node leads their database.
//!
//! The other node has authenticated them, and says who they are; nodes trust each other. What it says comes as
//! pairs of texts, each with a zero byte behind it: those of the startup packet, and some of the connection.

use std::sync::Arc;

use aerostat_transport::Parked;
use aerostat_types::ErrorKind;
use tokio::sync::{Mutex, mpsc};

use crate::{
    api::{Client, TlsDescription},
    packet::Startup,
    registry::Registry,
    sqlstate::{Fault, WireError},
    wire::Cursor,
};

/// What a node answers first that does not lead the session's database.
pub(crate) const NOT_HERE: u8 = b'N';

/// What a node answers first that serves the session, or passes it on: what follows is for its client.
pub(crate) const HERE: u8 = b'Y';

/// Sessions that have come and are not served yet.
const WAITING_MAX: usize = 1_024;

/// What is said of the connection, beside the startup packet's parameters.
const ADDRESS: &str = "_client.address";
const PORT: &str = "_client.port";
const TLS: &str = "_tls.version";
const CIPHER: &str = "_tls.cipher";
const BITS: &str = "_tls.bits";

/// Of a session that has left another node.
const RESUMES: &str = "_resumes";

/// Of one that comes by a node that does not reach the leader: this one may pass it on.
const PASSES: &str = "_passes";

/// A connection for a session, and what was said of it.
pub(crate) type Arrived = (Parked, Vec<u8>);

/// Where clients that other nodes have let in come in.
#[derive(Clone, Debug)]
pub struct Door {
    sender: mpsc::Sender<Arrived>,
    registry: Arc<Registry>,
}

/// The inner side of a [`Door`], for a gateway.
#[derive(Debug)]
pub struct Guests {
    receiver: Mutex<mpsc::Receiver<Arrived>>,
    pub(crate) registry: Arc<Registry>,
}

/// A door, and what a gateway has of it.
pub fn door() -> (Door, Guests) {
    let (sender, receiver) = mpsc::channel(WAITING_MAX);
    let registry = Arc::new(Registry::default());
    let guests = Guests {
        receiver: Mutex::new(receiver),
        registry: Arc::clone(&registry),
    };
    (Door { sender, registry }, guests)
}

impl Door {
    /// Takes a session's connection, and what was said of it. Beyond a crowd that waits it is closed.
    pub fn session(&self, connection: Parked, introduction: Vec<u8>) {
        if self.sender.try_send((connection, introduction)).is_err() {
            tracing::warn!("a session from another node was turned away");
        }
    }

    /// Stops what a session runs that is of this node, or is passed on by it, if there is one with this key.
    pub fn cancel(&self, pid: i32, secret: i32) {
        self.registry.cancel_guest(pid, secret);
    }
}

impl Guests {
    /// The next one; never, once nobody has the door any more.
    pub(crate) async fn next(&self) -> Arrived {
        match self.receiver.lock().await.recv().await {
            Some(arrived) => arrived,
            None => std::future::pending().await,
        }
    }
}

/// What a node says of a client to another.
#[derive(Debug)]
pub(crate) struct Introduction {
    pub(crate) startup: Startup,
    pub(crate) client: Client,
    pub(crate) comes: Comes,
}

/// How a session comes to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comes {
    /// It begins.
    New,
    /// It begins, here or at a node that this one reaches, and the one before does not.
    ByWay,
    /// It goes on: another node has given it away.
    Resumed,
}

impl Introduction {
    pub(crate) fn encode(startup: &Startup, client: &Client, comes: Comes) -> Vec<u8> {
        // What begins like the node's own word is not a client's to say.
        let own = |name: &str| {
            name.starts_with("_client.")
                || name.starts_with("_tls.")
                || [RESUMES, PASSES].contains(&name)
        };
        let said = startup.parameters();
        let mut pairs: Vec<(&str, String)> = said.filter(|(name, _)| !own(name)).collect();
        if let Some((address, port)) = &client.address {
            pairs.push((ADDRESS, address.clone()));
            pairs.push((PORT, port.to_string()));
        }
        if let Some(tls) = &client.tls {
            pairs.push((TLS, tls.version.to_owned()));
            pairs.push((CIPHER, tls.cipher.clone()));
            pairs.push((BITS, tls.bits.to_string()));
        }
        match comes {
            Comes::New => {}
            Comes::ByWay => pairs.push((PASSES, "1".to_owned())),
            Comes::Resumed => pairs.push((RESUMES, "1".to_owned())),
        }
        let mut bytes = Vec::new();
        for (name, value) in pairs {
            for text in [name, &value] {
                bytes.extend_from_slice(text.as_bytes());
                bytes.push(0);
            }
        }
        bytes.push(0);
        bytes
    }

    /// # Errors
    /// It is none.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Introduction, Fault> {
        let mut cursor = Cursor::new(bytes);
        let mut startup = Startup::read_pairs(&mut cursor)?;
        cursor.end()?;
        let mut take = |name: &str| startup.take(name);
        let (address, port) = (take(ADDRESS), take(PORT));
        let (tls, cipher, bits) = (take(TLS), take(CIPHER), take(BITS));
        let comes = match (take(RESUMES), take(PASSES)) {
            (Some(_), _) => Comes::Resumed,
            (None, Some(_)) => Comes::ByWay,
            (None, None) => Comes::New,
        };
        let odd = || {
            Fault::Fatal(WireError::new(
                ErrorKind::ProtocolViolation,
                "odd introduction",
            ))
        };
        let address = match (address, port) {
            (Some(address), Some(port)) => Some((address, port.parse().map_err(|_| odd())?)),
            _ => None,
        };
        let tls = match (tls, cipher, bits) {
            (Some(version), Some(cipher), Some(bits)) => Some(TlsDescription {
                version: match version.as_str() {
                    "TLSv1.3" => "TLSv1.3",
                    _ => "TLSv1.2",
                },
                cipher,
                bits: bits.parse().map_err(|_| odd())?,
            }),
            _ => None,
        };
        Ok(Introduction {
            startup,
            client: Client { address, tls },
            comes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_of_a_client_arrives() {
        let packet = b"\0\x03\0\0user\0ann\0database\0shop\0options\0-c a=b\0\0";
        let startup = Startup::of_packet(packet).unwrap();
        let client = Client {
            address: Some(("::1".to_owned(), 5)),
            tls: Some(TlsDescription {
                version: "TLSv1.3",
                cipher: "TLS_AES_128_GCM_SHA256".to_owned(),
                bits: 128,
            }),
        };
        for comes in [Comes::Resumed, Comes::ByWay] {
            let bytes = Introduction::encode(&startup, &client, comes);
            assert_eq!(Introduction::decode(&bytes).unwrap().comes, comes);
        }
        let bytes = Introduction::encode(&startup, &client, Comes::New);
        let arrived = Introduction::decode(&bytes).unwrap();
        assert_eq!(arrived.comes, Comes::New);
        assert_eq!(arrived.client, client);
        assert_eq!(arrived.startup.user(), Some("ann"));
        assert_eq!(arrived.startup.database(), "shop");
        assert_eq!(arrived.startup.settings(), startup.settings());
        for cut in 0..bytes.len() {
            // No part of it is one, nor ends the process.
            assert!(Introduction::decode(&bytes[..cut]).is_err(), "{cut}");
        }
    }
}
