//! The other nodes of a cluster, for clients' sessions.

use std::{
    collections::HashMap,
    future::Future,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use aerostat_catalog::ClusterNodes;
use aerostat_copies::{Greeting, Peers, Purpose, dial_cancel, dial_session};
use aerostat_replication::{Member, NodeId};
use aerostat_transport::Parked;
use aerostat_types::TenantId;
use parking_lot::Mutex;
use tokio::runtime::Handle;

use crate::owner::Home;

/// How a node of a cluster reaches the others.
pub struct Others {
    greeting: Greeting,
    peers: Peers,
    home: Arc<Home>,
    /// Of databases that have no copy here.
    asked: Mutex<HashMap<TenantId, Arc<Asked>>>,
    runtime: Handle,
}

/// Which nodes have a database, as far as is known.
#[derive(Clone, Debug)]
struct Led {
    leader: NodeId,
    /// Whose copies commits wait for.
    members: Vec<NodeId>,
}

/// What was asked for of a database. Held while it is: others wait for the answer, and nobody who asks for another database
/// does.
type Asked = Mutex<Option<Answer>>;

/// Who had a database when it was known last.
struct Answer {
    led: Option<Led>,
    /// When that was.
    known: Instant,
    /// Until when it is not asked for again.
    holds_until: Instant,
}

/// How often somebody who waits for another's question looks whether there will be an answer.
const LOOK: Duration = Duration::from_millis(100);

/// How long a database's configuration is not asked for again.
const HOLDS: Duration = Duration::from_millis(100);

/// How long it is remembered, for an outage of what the nodes share.
const REMEMBERED: Duration = Duration::from_secs(600);

impl Others {
    pub(crate) fn new(
        (me, peers): (Member, Peers),
        token: Vec<u8>,
        home: Arc<Home>,
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
            asked: Mutex::default(),
            runtime,
        }
    }

    /// The node that leads a database, by what the nodes share, or did when that could be read last, or by what nodes said
    /// of themselves before. Waits for that; many who ask at a time wait for one answer.
    pub fn leader_of(&self, tenant: TenantId) -> Option<NodeId> {
        self.led(tenant).map(|led| led.leader)
    }

    /// The nodes whose copies of a database commits wait for, likewise; none if that is not known.
    pub fn copies_of(&self, tenant: TenantId) -> Vec<NodeId> {
        let led = self.led(tenant);
        led.map(|led| led.members).unwrap_or_default()
    }

    /// The share of a node's threads that statements take, as it said last; 0 if that is not known.
    pub fn load_of(&self, node: NodeId) -> f64 {
        let heard = self.home.census.heard_of(node);
        heard.map_or(0.0, |heard| heard.load)
    }

    /// Whether a node is taken to run, by what it said last, or is not known.
    pub fn is_up(&self, node: NodeId) -> bool {
        self.home
            .census
            .heard_of(node)
            .is_none_or(|heard| heard.is_up)
    }

    /// The other nodes that are taken to run.
    pub fn up(&self) -> Vec<NodeId> {
        let others = self.home.census.others(self.greeting.from.node);
        let ids = others.into_iter().map(|(id, _)| id);
        ids.filter(|id| self.is_up(*id)).collect()
    }

    /// Whether a node is reached at the moment, whatever it does. Waits for that, for about a second; many who ask at a time
    /// wait for one answer.
    pub fn is_reached(&self, node: NodeId) -> impl Future<Output = bool> + Send + 'static {
        self.home.reach.is_reached(node)
    }

    /// Whether nothing is known against it that a node is reached. Waits for nobody.
    pub fn seems_reached(&self, node: NodeId) -> bool {
        self.home.reach.seems_reached(node)
    }

    /// Whether no other node is reached, and what the nodes share has not answered for a while: nobody says who leads.
    /// Waits for nobody: the first to ask has it looked at.
    pub fn is_alone(&self) -> bool {
        self.home.reach.is_alone()
    }

    fn led(&self, tenant: TenantId) -> Option<Led> {
        let asked = {
            let mut all = self.asked.lock();
            // Nobody is about to ask, and the answer is old.
            all.retain(|_, asked| {
                let is_used = Arc::strong_count(asked) > 1;
                is_used
                    || matches!(&*asked.lock(), Some(answer) if answer.known.elapsed() < REMEMBERED)
            });
            Arc::clone(all.entry(tenant).or_default())
        };
        let mut asked = loop {
            match asked.try_lock_for(LOOK) {
                Some(asked) => break asked,
                // Who asks has begun before that was known.
                None if self.home.reach.is_unanswered() => return self.said_of(tenant),
                None => {}
            }
        };
        if let Some(answer) = &*asked
            && Instant::now() < answer.holds_until
        {
            return answer.led.clone();
        }
        let reach = &self.home.reach;
        let found = match reach.is_unanswered() {
            true => None,
            false => reach
                .ask(|space| space.config(tenant))
                .inspect_err(
                    |error| tracing::debug!(%tenant, %error, "who leads a database is not known"),
                )
                .ok(),
        };
        let (known, led) = match found {
            Some(config) => {
                let led = config.map(|config| Led {
                    leader: config.leader,
                    members: config.members.iter().map(|member| member.node).collect(),
                });
                (Instant::now(), led)
            }
            None => {
                let before = asked.take();
                let known = before
                    .as_ref()
                    .map_or_else(Instant::now, |answer| answer.known);
                let led = before.and_then(|answer| answer.led);
                let led = led.or_else(|| self.said_of(tenant));
                (known, led)
            }
        };
        *asked = Some(Answer {
            led: led.clone(),
            known,
            holds_until: Instant::now() + HOLDS,
        });
        led
    }

    /// Who has a database by what nodes have said of themselves.
    fn said_of(&self, tenant: TenantId) -> Option<Led> {
        let facts = self.home.census.facts();
        let placed = facts.databases.get(&tenant)?;
        Some(Led {
            leader: placed.leader?,
            members: placed.members.clone(),
        })
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
