//! Ways between nodes: a connection from each to each for every tenant that both have.
//!
//! Whoever dials sends, and hears nothing back on it ([`way`](crate::way)).

use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

use aerostat_replication::{Member, NodeId};
use aerostat_types::TenantId;
use tokio::{
    io::{AsyncRead, AsyncWrite, BufReader},
    net::TcpListener,
    runtime::Handle,
    sync::Semaphore,
    time::timeout,
};

use crate::{
    Greeting, Packet,
    inbox::Inbox,
    peers::{Address, frame, give_up_in_silence, is_same},
    seed::{Seeds, give},
    way::{ROOM_BYTES, Way},
    wire::{self, FRAME_BYTES_MAX, GREETING_BYTES_MAX, Purpose, VERSION},
};

/// What may wait in an inbox for its driver, of one connection.
const INBOX_BYTES: usize = 4 << 20;

/// What a connection reads at once, or a packet that is larger.
const READ_BYTES: usize = 8 << 10;

/// How long whoever dials has to say who it is.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);

/// The ways of one copy to other nodes.
pub struct Links {
    runtime: Handle,
    address: Address,
    greeting: Greeting,
    inbox: Option<Inbox>,
    all: BTreeMap<NodeId, Arc<Way>>,
}

impl Links {
    /// Of a process's copy of a tenant. Connections are made on the runtime when something is to be sent.
    pub fn new(
        runtime: Handle,
        address: Address,
        tenant: TenantId,
        from: Member,
        token: Vec<u8>,
    ) -> Links {
        Links {
            runtime,
            address,
            greeting: Greeting {
                version: VERSION,
                token,
                tenant,
                from,
                to: from.node,
                purpose: Purpose::Packets,
            },
            inbox: None,
            all: BTreeMap::new(),
        }
    }

    /// Where what a process has to do for a copy is done.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Has a driver told when there is room again.
    pub(crate) fn wakes(&mut self, inbox: &Inbox) {
        self.inbox = Some(inbox.clone());
    }

    pub(crate) fn room(&self, to: NodeId) -> usize {
        self.all.get(&to).map_or(ROOM_BYTES, |way| way.room())
    }

    pub(crate) fn send(&mut self, to: NodeId, packet: &Packet) {
        let (address, runtime) = (&self.address, &self.runtime);
        let (greeting, inbox) = (&self.greeting, &self.inbox);
        let way = self.all.entry(to).or_insert_with(|| {
            let way = Way::new();
            let greeting = wire::of_greeting(&Greeting {
                to,
                ..greeting.clone()
            });
            let address = Arc::clone(address);
            let kept = Arc::clone(&way).keep(move || address(to), greeting, inbox.clone());
            runtime.spawn(kept);
            way
        });
        way.send(wire::of_packet(packet));
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.all.values().for_each(|way| way.end());
    }
}

/// The way to a tenant's copy in this process, if there is one.
pub type Route = Arc<dyn Fn(TenantId) -> Option<Inbox> + Send + Sync>;

/// Takes connections of other nodes until it is dropped: packets for the copies in this process, and requests
/// for seeds of the tenants that it leads.
///
/// # Errors
/// The listener fails.
pub async fn serve(
    listener: TcpListener,
    me: NodeId,
    token: Vec<u8>,
    route: Route,
    seeds: Seeds,
) -> io::Result<()> {
    let token: Arc<[u8]> = token.into();
    loop {
        let (stream, peer) = listener.accept().await?;
        // One that has ended by now says so when it is read.
        let _ = give_up_in_silence(&stream);
        let (token, route, seeds) = (Arc::clone(&token), Arc::clone(&route), seeds.clone());
        tokio::spawn(async move {
            if let Err(error) = receive(stream, me, &token, &route, &seeds).await {
                tracing::debug!(%peer, %error, "a connection of another node ended");
            }
        });
    }
}

async fn receive(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    me: NodeId,
    token: &[u8],
    route: &Route,
    seeds: &Seeds,
) -> io::Result<()> {
    let greeting = timeout(GREETING_TIMEOUT, frame(&mut stream, GREETING_BYTES_MAX)).await??;
    let Some((content, crc)) = greeting else {
        return Ok(());
    };
    let greeting = wire::greeting(&content, crc).map_err(io::Error::other)?;
    if !is_same(&greeting.token, token) || greeting.to != me {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    if greeting.purpose == Purpose::Seed {
        return give(stream, greeting.tenant, seeds).await;
    }
    let Some(inbox) = route(greeting.tenant) else {
        return Err(io::ErrorKind::NotFound.into());
    };
    let places = Arc::new(Semaphore::new(INBOX_BYTES));
    // A small packet is one call of the system.
    let mut stream = BufReader::with_capacity(READ_BYTES, stream);
    while let Some((content, crc)) = frame(&mut stream, FRAME_BYTES_MAX).await? {
        let packet = wire::packet(&content, crc).map_err(io::Error::other)?;
        if packet.from != greeting.from {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let bytes = u32::try_from(content.len().min(INBOX_BYTES)).unwrap_or(u32::MAX);
        let place = Arc::clone(&places).acquire_many_owned(bytes).await;
        if !inbox.receive(packet, place.ok()) {
            return Ok(());
        }
    }
    Ok(())
}
