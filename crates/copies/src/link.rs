//! Ways between nodes: a connection from each to each for every tenant that both have.
//!
//! Whoever dials sends, and hears nothing back on it. What waits while nobody answers is dropped: the machine
//! takes a packet that is lost for what it is.

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use aerostat_replication::{Member, NodeId};
use aerostat_types::TenantId;
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Handle,
    sync::{Semaphore, mpsc},
    time::{sleep, timeout},
};

use crate::{
    Greeting, Packet,
    inbox::{Inbox, Told},
    peers::{Address, frame, is_same},
    seed::{Seeds, give},
    wire::{self, FRAME_BYTES_MAX, GREETING_BYTES_MAX, Purpose, VERSION},
};

/// What may wait to be sent to a node.
const ROOM_BYTES: usize = 4 << 20;

/// What may wait in an inbox for its driver, of one connection.
const INBOX_BYTES: usize = 4 << 20;

/// What is written at once.
const WRITE_BYTES: usize = 256 << 10;

/// How soon a node that did not answer is dialled again.
const REDIAL: Duration = Duration::from_millis(100);

/// After so long without an answer, or without anything being taken, a connection is given up: the network may
/// have lost it without a word, and the system would go on trying for a quarter of an hour.
const SILENCE: Duration = Duration::from_secs(2);

/// How long whoever dials has to say who it is.
const GREETING_TIMEOUT: Duration = Duration::from_secs(5);

/// The ways of one copy to other nodes.
pub struct Links {
    runtime: Handle,
    address: Address,
    greeting: Greeting,
    inbox: Option<Inbox>,
    all: BTreeMap<NodeId, Link>,
}

struct Link {
    frames: mpsc::UnboundedSender<Vec<u8>>,
    queued: Arc<AtomicUsize>,
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

    /// Has a driver told when there is room again.
    pub(crate) fn wakes(&mut self, inbox: &Inbox) {
        self.inbox = Some(inbox.clone());
    }

    pub(crate) fn room(&self, to: NodeId) -> usize {
        let queued = self
            .all
            .get(&to)
            .map(|link| link.queued.load(Ordering::Relaxed));
        ROOM_BYTES.saturating_sub(queued.unwrap_or(0))
    }

    pub(crate) fn send(&mut self, to: NodeId, packet: &Packet) {
        let (address, runtime) = (&self.address, &self.runtime);
        let (greeting, inbox) = (&self.greeting, &self.inbox);
        let link = self.all.entry(to).or_insert_with(|| {
            let (frames, queue) = mpsc::unbounded_channel();
            let queued = Arc::new(AtomicUsize::new(0));
            let greeting = Greeting {
                to,
                ..greeting.clone()
            };
            let way = Way {
                address: Arc::clone(address),
                greeting,
                queue,
                queued: Arc::clone(&queued),
                inbox: inbox.clone(),
            };
            runtime.spawn(way.keep());
            Link { frames, queued }
        });
        let frame = wire::of_packet(packet);
        link.queued.fetch_add(frame.len(), Ordering::Relaxed);
        // Its task goes on as long as this is there.
        let _ = link.frames.send(frame);
    }
}

/// A link's task.
struct Way {
    address: Address,
    greeting: Greeting,
    queue: mpsc::UnboundedReceiver<Vec<u8>>,
    queued: Arc<AtomicUsize>,
    inbox: Option<Inbox>,
}

impl Way {
    /// Sends until nobody gives it anything any more.
    async fn keep(mut self) {
        loop {
            let Some(address) = (self.address)(self.greeting.to) else {
                if !self.wait_for_another().await {
                    return;
                }
                continue;
            };
            match self.send_all(address).await {
                Ok(()) => return,
                Err(error) => tracing::debug!(%address, %error, "a node does not answer"),
            }
            if !self.wait_for_another().await {
                return;
            }
        }
    }

    /// Drops what waits, and says whether there may be more.
    async fn wait_for_another(&mut self) -> bool {
        sleep(REDIAL).await;
        loop {
            match self.queue.try_recv() {
                Ok(frame) => self.is_gone(frame.len()),
                Err(mpsc::error::TryRecvError::Empty) => return true,
                Err(mpsc::error::TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn is_gone(&self, bytes: usize) {
        let before = self.queued.fetch_sub(bytes, Ordering::Relaxed);
        let (was_full, is_full) = (before > ROOM_BYTES / 2, before - bytes > ROOM_BYTES / 2);
        if was_full
            && !is_full
            && let Some(inbox) = &self.inbox
        {
            inbox.wake();
        }
    }

    async fn send_all(&mut self, address: SocketAddr) -> io::Result<()> {
        let mut stream = timeout(SILENCE, TcpStream::connect(address)).await??;
        stream.set_nodelay(true)?;
        stream.write_all(&wire::of_greeting(&self.greeting)).await?;
        while let Some(mut frames) = self.queue.recv().await {
            // Those that have come meanwhile go with it.
            while frames.len() < WRITE_BYTES
                && let Ok(next) = self.queue.try_recv()
            {
                frames.extend_from_slice(&next);
            }
            let written = timeout(SILENCE, stream.write_all(&frames)).await;
            self.is_gone(frames.len());
            written??;
        }
        Ok(())
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
    while let Some((content, crc)) = frame(&mut stream, FRAME_BYTES_MAX).await? {
        let packet = wire::packet(&content, crc).map_err(io::Error::other)?;
        if packet.from != greeting.from {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let bytes = u32::try_from(content.len().min(INBOX_BYTES)).unwrap_or(u32::MAX);
        let place = Arc::clone(&places).acquire_many_owned(bytes).await;
        if !inbox.tell(Told::Packet(packet, place.ok())) {
            return Ok(());
        }
    }
    Ok(())
}
