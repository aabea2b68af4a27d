//! Ways between nodes: a connection from each to each for every tenant that both have.
//!
//! Whoever dials sends, and hears nothing back on it ([`way`](crate::way)).

use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

use aerostat_replication::{Member, NodeId};
use aerostat_transport::Stream;
use aerostat_types::TenantId;
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{sleep, timeout},
};

use crate::{
    Door, Greeting, Packet,
    guests::{take_cancel, take_session},
    inbox::Inbox,
    peers::{Peers, frame, give_up_in_silence, is_same},
    seed::{Seeds, give},
    spoken::VERSION,
    taking::Taking,
    way::{ROOM_BYTES, Way},
    wire::{self, GREETING_BYTES_MAX, Purpose},
};

/// Connections of which it is not known yet whose they are. Others wait.
const STRANGERS_MAX: usize = 256;

/// How long nobody is taken where the system has refused to.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long whoever dials has to say who it is.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);

/// The ways of one copy to other nodes.
pub struct Links {
    runtime: Handle,
    peers: Peers,
    greeting: Greeting,
    inbox: Option<Inbox>,
    all: BTreeMap<NodeId, Arc<Way>>,
}

impl Links {
    /// Of a process's copy of a tenant. Connections are made on the runtime when something is to be sent.
    pub fn new(
        runtime: Handle,
        peers: Peers,
        tenant: TenantId,
        from: Member,
        token: Vec<u8>,
    ) -> Links {
        Links {
            runtime,
            peers,
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
        let (peers, runtime) = (&self.peers, &self.runtime);
        let (greeting, inbox) = (&self.greeting, &self.inbox);
        let way = self.all.entry(to).or_insert_with(|| {
            let way = Way::new();
            let Peers {
                address,
                versions,
                transport,
            } = peers.clone();
            let greeting = greeting.clone();
            let greeting = move || {
                let version = versions(to);
                wire::of_greeting(&Greeting {
                    version,
                    to,
                    ..greeting.clone()
                })
            };
            let peer = move || address(to);
            let kept = Arc::clone(&way).keep(peer, transport, greeting, inbox.clone());
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

/// What a process has for other nodes.
#[derive(Clone)]
pub struct Served {
    /// Which one it is.
    pub me: NodeId,
    /// The secret that all nodes have.
    pub token: Arc<[u8]>,
    /// Who they are.
    pub peers: Peers,
    /// Its copies.
    pub route: Route,
    /// The tenants that it leads, for copies that are made anew.
    pub seeds: Seeds,
    /// Where clients' sessions from other nodes go.
    pub door: Arc<dyn Door>,
    /// The threads of its sessions, each a runtime; there may be none. What members answer a leader is taken there.
    pub sessions: Arc<[Handle]>,
}

/// Takes connections of other nodes until it is dropped: packets for the copies in this process, and requests
/// for seeds of the tenants that it leads.
///
/// What the system refuses for a while ends nothing: it may have no more descriptors.
pub async fn serve(listener: TcpListener, served: Served) {
    let served = Arc::new(served);
    let strangers = Arc::new(Semaphore::new(STRANGERS_MAX));
    loop {
        let Ok(stranger) = Arc::clone(&strangers).acquire_owned().await else {
            return;
        };
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "connections of other nodes cannot be taken now");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let served = Arc::clone(&served);
        tokio::spawn(async move {
            if let Err(error) = receive(stream, &served, stranger).await {
                tracing::debug!(%peer, %error, "a connection of another node ended");
            }
        });
    }
}

/// `stranger` is given back as soon as it is known who this is.
async fn receive(
    socket: TcpStream,
    served: &Served,
    stranger: OwnedSemaphorePermit,
) -> io::Result<()> {
    let accepted = timeout(GREETING_TIMEOUT, served.peers.transport.accept(socket)).await;
    let mut stream: Stream = accepted??;
    give_up_in_silence(&stream)?;
    let greeting = timeout(GREETING_TIMEOUT, frame(&mut stream, GREETING_BYTES_MAX)).await??;
    let Some((content, crc)) = greeting else {
        return Ok(());
    };
    let greeting = wire::greeting(&content, crc).map_err(io::Error::other)?;
    let is_ours = is_same(&greeting.token, &served.token) && greeting.to == served.me;
    if !is_ours || !served.peers.is_of(&stream, greeting.from.node) {
        tracing::warn!(
            node = %greeting.from.node,
            "a connection is refused: its word or its certificate is not that of a node of this cluster"
        );
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    drop(stranger);
    let tenant = greeting.tenant;
    match greeting.purpose {
        Purpose::Packets => {}
        Purpose::Seed => return give(stream, tenant, &served.seeds).await,
        Purpose::Session => return take_session(stream, &*served.door).await,
        Purpose::Cancel => return take_cancel(stream, &*served.door).await,
    }
    let Some(inbox) = (served.route)(tenant) else {
        return Err(io::ErrorKind::NotFound.into());
    };
    let threads = served.sessions.len().max(1);
    let sessions = served.sessions.get(tenant.0 as usize % threads);
    Taking::new(stream, greeting.from, inbox)
        .run(sessions)
        .await
}
