//! The other nodes of a cluster, for clients' sessions.

use std::{
    collections::HashMap,
    future::Future,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use aerostat_copies::{Greeting, Peers, Purpose, dial_cancel, dial_session};
use aerostat_replication::{Member, NodeId};
use aerostat_transport::Parked;
use aerostat_types::TenantId;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::{Space, owner::Home};

/// How a node of a cluster reaches the others.
pub struct Others {
    greeting: Greeting,
    peers: Peers,
    home: Arc<Home>,
    space: Space,
    /// Of databases that have no copy here.
    asked: Mutex<HashMap<TenantId, Arc<Asked>>>,
    runtime: Handle,
}

/// Who leads a database, and when that was asked. Held while it is: others wait for the answer, and nobody who asks for
/// another database does.
type Asked = Mutex<Option<(Instant, Option<NodeId>)>>;

/// How long it is not asked again who leads a database.
const KNOWN: Duration = Duration::from_millis(100);

impl Others {
    pub(crate) fn new(
        (me, peers): (Member, Peers),
        token: Vec<u8>,
        home: Arc<Home>,
        space: Space,
        runtime: Handle,
    ) -> Others {
        Others {
            greeting: Greeting {
                version: aerostat_copies::VERSION,
                token,
                // What it is for is said where the session begins.
                tenant: TenantId(0),
                from: me,
                to: me.node,
                purpose: Purpose::Session,
            },
            peers,
            home,
            space,
            asked: Mutex::default(),
            runtime,
        }
    }

    /// The node that leads a database, by what the nodes share, or did a moment ago. Waits for that; many who ask at a
    /// time wait for one answer.
    pub fn leader_of(&self, tenant: TenantId) -> Option<NodeId> {
        let asked = {
            let mut all = self.asked.lock();
            // Nobody is about to ask, and the answer is old.
            all.retain(|_, asked| {
                let is_used = Arc::strong_count(asked) > 1;
                is_used || asked.lock().is_some_and(|(at, _)| at.elapsed() < KNOWN)
            });
            Arc::clone(all.entry(tenant).or_default())
        };
        let mut asked = asked.lock();
        if let Some((at, leader)) = *asked
            && at.elapsed() < KNOWN
        {
            return leader;
        }
        let leader = match self.space.config(tenant) {
            Ok(config) => config.map(|config| config.leader),
            Err(error) => {
                tracing::debug!(%tenant, %error, "who leads a database is not known");
                None
            }
        };
        *asked = Some((Instant::now(), leader));
        leader
    }

    fn greeting(&self, to: NodeId) -> Greeting {
        Greeting {
            to,
            version: (self.peers.versions)(to),
            ..self.greeting.clone()
        }
    }

    /// A connection to a node for a client's session, of which it is told this. It belongs to no runtime.
    ///
    /// # Errors
    /// The node is not known, or not reached.
    pub fn session(
        &self,
        node: NodeId,
        introduction: Vec<u8>,
    ) -> impl Future<Output = io::Result<Parked>> + Send + 'static {
        let (peer, greeting) = ((self.peers.address)(node), self.greeting(node));
        let transport = self.peers.transport.clone();
        let runtime = self.runtime.clone();
        async move {
            let peer = peer.ok_or(io::ErrorKind::NotFound)?;
            // On the runtime of connections between nodes: the caller's may be another from here on.
            let dialled = runtime.spawn(async move {
                dial_session((&transport, &peer), &greeting, &introduction).await
            });
            dialled.await.map_err(io::Error::other)?
        }
    }

    /// Has nodes stop what the session with this key runs: one node, or all others. Does not wait for that.
    pub fn cancel(&self, node: Option<NodeId>, pid: i32, secret: i32) {
        let me = self.greeting.from.node;
        let is_asked = |id: NodeId| node.map_or(id != me, |node| id == node);
        let all: Vec<NodeId> = self.home.census.nodes(|all| {
            let ids = all.nodes.values().map(|entry| entry.id);
            ids.filter(|id| is_asked(*id)).collect()
        });
        for id in all {
            let Some(peer) = (self.peers.address)(id) else {
                continue;
            };
            let (greeting, transport) = (self.greeting(id), self.peers.transport.clone());
            self.runtime.spawn(async move {
                if let Err(error) = dial_cancel((&transport, &peer), &greeting, (pid, secret)).await
                {
                    tracing::debug!(node = %id, %error, "a request to cancel has not arrived");
                }
            });
        }
    }
}
