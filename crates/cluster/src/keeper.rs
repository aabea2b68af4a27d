//! The keeper: a node's databases are copies that run, as the cluster's record says.

mod opening;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use aerostat_catalog::{
    CopiesRecord, CopyState, DatabaseRecord, NodeRecord,
    admin::{Holders, Node},
};
use aerostat_copies::{
    Door, Inbox, Peers, Running, Served, Threads,
    seed::{PaceLimits, SeedHold, Seeds},
    serve,
};
use aerostat_replication::{Incarnation, Member, NodeId, Settings};
use aerostat_storage::TenantStore;
use aerostat_transport::Transport;
use aerostat_types::TenantId;
use parking_lot::Mutex;
use tokio::{
    net::TcpListener,
    runtime::{Handle, Runtime},
    task::JoinHandle as Task,
};

use crate::{
    Census, Identity, Pace, Space, SpaceError,
    census::TimeUsed,
    others::Others,
    owner::{Held, Home},
    reach::Reach,
    speaker::Speaker,
};

/// How often the keeper looks around, where nothing wakes it.
const LOOK: Duration = Duration::from_millis(100);

/// A node that was heard so lately is taken to be there.
const HEARD: Duration = Duration::from_secs(1);

/// How soon a copy that ended is opened again.
const AGAIN: Duration = Duration::from_secs(1);

/// Threads of connections between nodes.
const PEER_THREADS: usize = 2;

/// How long a node that ends waits for what its connections still do.
const ENDING: Duration = Duration::from_secs(2);

/// Openings of a copy by one process, in an incarnation's lower bits.
const OPENING_BITS: u32 = 24;

/// What a node in a cluster is made of.
pub struct Setup {
    /// Who it is.
    pub identity: Identity,
    /// What the nodes share.
    pub space: Space,
    /// The node, whose record is the space's.
    pub node: Arc<Node>,
    /// Who has sessions.
    pub holders: Arc<dyn Holders + Send + Sync>,
    /// Where other nodes are listened to.
    pub listener: std::net::TcpListener,
    /// How connections between nodes are made.
    pub transport: Transport,
    /// Where clients' sessions from other nodes go.
    pub door: Arc<dyn Door>,
    /// The threads of its sessions; there may be none.
    pub sessions: Arc<[Handle]>,
    /// How copies behave.
    pub settings: Settings,
    /// What is known of the nodes; the node's record has it, too.
    pub census: Arc<Census>,
    /// How long a database's statements have taken.
    pub time_used: Arc<TimeUsed>,
    /// How often the node speaks of itself, and when others are replaced.
    pub pace: Pace,
}

/// What the keeper's threads share.
struct Inner {
    home: Arc<Home>,
    identity: Identity,
    space: Space,
    token: Vec<u8>,
    /// The other nodes.
    peers: Peers,
    runtime: Handle,
    settings: Settings,
    /// They drive all copies.
    threads: Threads,
    openings: AtomicU64,
    copies: Mutex<HashMap<TenantId, Copy>>,
    /// Databases that are on other nodes, and that somebody has led.
    begun: Mutex<BTreeSet<TenantId>>,
    /// Copies that are being opened or made anew.
    working: AtomicUsize,
    stops: Arc<AtomicBool>,
}

/// What a pass went by: where nothing of it has changed, the next has little to do for a thousand databases.
#[derive(Default)]
struct Seen {
    record: Option<Arc<NodeRecord>>,
    nodes: u64,
}

impl Seen {
    /// Whether something is not as it was when this was asked last.
    fn differs(&mut self, record: &Arc<NodeRecord>, census: &Census) -> bool {
        let is_same = |before: &Arc<NodeRecord>| Arc::ptr_eq(before, record);
        let nodes = census.changes();
        let differs = !self.record.as_ref().is_some_and(is_same) || self.nodes != nodes;
        (self.record, self.nodes) = (Some(Arc::clone(record)), nodes);
        differs
    }
}

/// A copy that runs, or did.
struct Copy {
    state: Arc<CopyState>,
    held: Arc<Mutex<Held>>,
    running: Option<Running>,
    /// Has its leader keep the log behind what it was made of, until it has caught up.
    hold: Option<SeedHold>,
    /// Which nodes its driver was told to be wanted.
    told: Option<BTreeSet<NodeId>>,
    /// Opens it, or makes it anew.
    worker: Option<JoinHandle<()>>,
    /// Ends that.
    stop: Arc<AtomicBool>,
}

impl Copy {
    fn new(me: NodeId, reach: Reach) -> Copy {
        let reaches = Box::new(move |node| reach.looks_reached(node));
        Copy {
            state: Arc::new(CopyState::reaching(me, reaches)),
            held: Arc::default(),
            running: None,
            hold: None,
            told: None,
            worker: None,
            stop: Arc::default(),
        }
    }

    /// Nobody opens it, or makes it anew, any more.
    fn end_work(mut self) -> Copy {
        self.stop.store(true, Ordering::Release);
        if let Some(worker) = self.worker.take() {
            // One that panicked has said so.
            let _ = worker.join();
        }
        self
    }
}

/// A node's part in a cluster, until this is dropped.
pub struct Cluster {
    inner: Arc<Inner>,
    keeper: Option<JoinHandle<()>>,
    /// Speaks of the node, and coordinates.
    speaker: Option<JoinHandle<()>>,
    listening: Task<()>,
    /// Where connections of other nodes run.
    peers: Option<Runtime>,
}

impl Cluster {
    /// Has the node's databases be copies that run.
    ///
    /// # Errors
    /// The space cannot be used, or the system has no thread.
    pub fn start(setup: Setup) -> Result<Cluster, SpaceError> {
        let Setup {
            identity,
            space,
            node,
            holders,
            listener,
            transport,
            door,
            sessions,
            settings,
            census,
            time_used,
            pace,
        } = setup;
        let failed = |source| SpaceError::Io {
            path: "the threads of connections between nodes".into(),
            source,
        };
        // Of its own: a copy that is opened again in a connection's turn waits for sessions.
        let connections = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(PEER_THREADS)
            .thread_name("aerostat-peers")
            .enable_all()
            .build()
            .map_err(failed)?;
        let runtime = connections.handle().clone();
        let listener = {
            let _within = runtime.enter();
            listener
                .set_nonblocking(true)
                .and_then(|()| TcpListener::from_std(listener))
                .map_err(failed)?
        };
        let token = space.token()?;
        let peers = census.peers(transport);
        let reach = Reach::new(space.clone(), runtime.clone(), Arc::clone(&census));
        let inner = Arc::new(Inner {
            home: Arc::new(Home {
                node,
                holders,
                census,
                reach,
            }),
            identity,
            space,
            token: token.clone(),
            peers: peers.clone(),
            runtime: runtime.clone(),
            settings,
            threads: Threads::new().map_err(failed)?,
            openings: AtomicU64::new(0),
            copies: Mutex::default(),
            begun: Mutex::default(),
            working: AtomicUsize::new(0),
            stops: Arc::default(),
        });
        inner.look_at_nodes();
        let routes = Arc::downgrade(&inner);
        let route = Arc::new(move |tenant| routes.upgrade()?.inbox(tenant));
        let givers = Arc::downgrade(&inner);
        let leading = Arc::new(move |tenant| givers.upgrade()?.led(tenant));
        let seeds = Seeds::new(leading, PaceLimits::default());
        let me = inner.identity.node;
        let served = Served {
            me,
            token: token.as_slice().into(),
            peers,
            route,
            seeds,
            door,
            sessions,
        };
        let listening = runtime.spawn(serve(listener, served));
        let kept = Arc::clone(&inner);
        let thread = thread::Builder::new().name("aerostat-keeper".to_owned());
        let keeper = thread.spawn(move || kept.keep());
        let keeper = keeper.map_err(failed)?;
        let handing = Arc::downgrade(&inner);
        let speaker = Speaker {
            node: Arc::clone(&inner.home.node),
            census: Arc::clone(&inner.home.census),
            time_used,
            pace,
            stops: Arc::clone(&inner.stops),
            hand_over: Box::new(move |id, to| {
                let inbox = handing.upgrade().and_then(|all| all.inbox(id));
                inbox.iter().for_each(|inbox| inbox.hand_over(to));
            }),
        };
        Ok(Cluster {
            inner,
            keeper: Some(keeper),
            speaker: Some(speaker.start().map_err(failed)?),
            listening,
            peers: Some(connections),
        })
    }

    /// Has other nodes lead what this one does, as far as there are any, and waits for that, but no longer than
    /// this.
    pub fn hand_over(&self, at_most: Duration) {
        let began = Instant::now();
        loop {
            let led: Vec<(Inbox, NodeId)> = {
                let copies = self.inner.copies.lock();
                let led = copies.values().filter(|copy| copy.state.leads());
                led.filter_map(|copy| {
                    let peers = copy.state.facts().peers.into_iter();
                    // The one that has most, of those that were heard lately.
                    let members = peers.filter(|peer| peer.is_member);
                    let next = members.max_by_key(|peer| {
                        let is_heard = peer.heard.is_some_and(|at| at.elapsed() < HEARD);
                        (is_heard, peer.written)
                    })?;
                    Some((copy.running.as_ref()?.inbox().clone(), next.node))
                })
                .collect()
            };
            if led.is_empty() || began.elapsed() > at_most {
                return;
            }
            for (inbox, other) in led {
                inbox.hand_over(other);
            }
            thread::sleep(LOOK);
        }
    }

    /// The other nodes, as whoever serves clients reaches them.
    pub fn others(&self) -> Others {
        let inner = &self.inner;
        let me = Member {
            node: inner.identity.node,
            incarnation: Incarnation(inner.identity.incarnation),
        };
        Others::new(
            (me, inner.peers.clone()),
            inner.token.clone(),
            Arc::clone(&inner.home),
            inner.runtime.clone(),
        )
    }

    /// Waits until every database can be read here, but no longer than this; whether they can.
    pub fn await_shown(&self, at_most: Duration) -> bool {
        let began = Instant::now();
        let is_shown = |entry: &DatabaseRecord| {
            let copies = self.inner.copies.lock();
            copies
                .get(&entry.oid)
                .is_some_and(|copy| copy.state.is_shown())
        };
        loop {
            let record = self.inner.home.node.record();
            let mut all = record.databases.values();
            let is_elsewhere =
                |entry: &DatabaseRecord| entry.copies.is_none() || !self.inner.is_here(entry);
            if all.all(|entry| is_elsewhere(entry) || is_shown(entry)) {
                return true;
            }
            if began.elapsed() > at_most {
                return false;
            }
            thread::sleep(LOOK / 10);
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.inner.stops.store(true, Ordering::Release);
        self.listening.abort();
        for thread in [self.keeper.take(), self.speaker.take()]
            .into_iter()
            .flatten()
        {
            // One that panicked has said so.
            let _ = thread.join();
        }
        if let Some(peers) = self.peers.take() {
            // Its tasks know the node, which may be about to be opened again. A thread of its own may wait for them
            // wherever this is dropped.
            let ends = || peers.shutdown_timeout(ENDING);
            thread::scope(|scope| drop(scope.spawn(ends).join()));
        }
    }
}

impl Inner {
    fn inbox(&self, tenant: TenantId) -> Option<Inbox> {
        let copies = self.copies.lock();
        let running = copies.get(&tenant)?.running.as_ref()?;
        Some(running.inbox().clone())
    }

    /// The tenant's store, if this node leads it.
    fn led(&self, tenant: TenantId) -> Option<Arc<TenantStore>> {
        let copies = self.copies.lock();
        let copy = copies.get(&tenant).filter(|copy| copy.state.leads())?;
        let held = copy.held.lock();
        Some(Arc::clone(&held.database.as_ref()?.store))
    }

    /// The next process of this node, to the machine that counts them.
    fn next_member(&self) -> Member {
        let opening = self.openings.fetch_add(1, Ordering::Relaxed) + 1;
        Member {
            node: self.identity.node,
            incarnation: Incarnation((self.identity.incarnation << OPENING_BITS) | opening),
        }
    }

    fn look_at_nodes(&self) {
        if let Err(error) = self.home.census.look_at_nodes() {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the list of the cluster's nodes cannot be read"
            );
        }
    }

    /// Keeps copies as the record says, until the node ends.
    fn keep(self: Arc<Self>) {
        let (mut seen, mut may_differ) = (Seen::default(), true);
        while !self.stops.load(Ordering::Acquire) {
            if may_differ && let Err(error) = self.home.node.refresh() {
                tracing::warn!(message = error.message, detail = ?error.detail, "the cluster's catalogue");
            }
            self.look_at_nodes();
            let record = self.home.node.record();
            let is_other = seen.differs(&record, &self.home.census);
            self.end_dropped(&record);
            self.end_moved(&record);
            self.start_due(true);
            self.tell_wanted(&record, is_other);
            may_differ = self.home.node.await_change(LOOK);
        }
        loop {
            let copies = std::mem::take(&mut *self.copies.lock());
            for copy in copies.into_values() {
                copy.state.take_orders(None);
                let copy = copy.end_work();
                // Its driver ends, and with it what it told.
                drop(copy.running);
                copy.state.set_leads(false);
                copy.held.lock().database = None;
            }
            // A worker that is about to end may have left something.
            if self.working.load(Ordering::Acquire) == 0 && self.copies.lock().is_empty() {
                return;
            }
            thread::sleep(LOOK / 10);
        }
    }

    /// Ends copies of databases that the record has no more.
    fn end_dropped(&self, record: &NodeRecord) {
        let all = record.databases.values();
        let there: HashSet<TenantId> = all.map(|entry| entry.oid).collect();
        self.begun.lock().retain(|id| there.contains(id));
        for id in self.end_copies(|id, _| !there.contains(&id)) {
            match self.home.node.remove_copy(id) {
                Ok(()) => tracing::info!(tenant = %id, "a dropped database's copy is gone"),
                Err(error) => tracing::warn!(
                    tenant = %id,
                    error = &error as &dyn std::error::Error,
                    "the files of a dropped database stay until a restart"
                ),
            }
        }
    }

    /// Ends copies, and says of which databases: nobody has anything of those here any more.
    fn end_copies(&self, ends: impl Fn(TenantId, &Copy) -> bool) -> Vec<TenantId> {
        let mut copies = self.copies.lock();
        let ended: HashMap<TenantId, Copy> =
            copies.extract_if(|id, copy| ends(*id, copy)).collect();
        drop(copies);
        let end = |(id, copy): (TenantId, Copy)| {
            copy.state.take_orders(None);
            copy.state.hide();
            let copy = copy.end_work();
            // From here on it says to nobody that it has anything.
            drop(copy.running);
            self.home.close(id, &copy.held);
            id
        };
        ended.into_iter().map(end).collect()
    }

    /// Whether a database is to have a copy here.
    fn is_here(&self, entry: &DatabaseRecord) -> bool {
        entry.is_on(&self.identity.name)
    }

    /// Ends copies of databases that are to be on other nodes, and are: nobody counts with what these have. Their files go
    /// when the store agrees.
    fn end_moved(&self, record: &NodeRecord) {
        let all = record.databases.values();
        let elsewhere: BTreeSet<TenantId> = all
            .filter(|entry| !self.is_here(entry))
            .map(|entry| entry.oid)
            .collect();
        if elsewhere.is_empty() {
            return;
        }
        self.end_copies(|id, copy| {
            elsewhere.contains(&id) && {
                let members = copy.state.facts().members;
                let is_member = members.contains(&self.identity.node);
                !members.is_empty() && !is_member && !copy.state.leads()
            }
        });
    }

    /// Whether a database that is to be on other nodes has a copy here that they count with, or is to be begun here. One
    /// that they do not count with is removed.
    fn is_left_over(&self, id: TenantId, of: CopiesRecord) -> bool {
        if self.copies.lock().contains_key(&id) {
            return true;
        }
        let begins = of.home == self.identity.node && !self.begun.lock().contains(&id);
        if !begins && !self.home.node.copy_folder(id).exists() {
            return false;
        }
        let config = match self.space.config(id) {
            Ok(config) => config,
            Err(error) => {
                tracing::warn!(tenant = %id, error = &error as &dyn std::error::Error, "who has a database is not known");
                return false;
            }
        };
        // Without a configuration nobody has led it, and this one may be the first.
        let Some(config) = config else { return true };
        self.begun.lock().insert(id);
        if config.of(self.identity.node).is_some() {
            return true;
        }
        match self.home.node.give_up_copy(id) {
            Ok(()) => {
                tracing::info!(tenant = %id, "a database is on other nodes: its copy here is gone")
            }
            Err(error) => tracing::warn!(
                tenant = %id,
                error = &error as &dyn std::error::Error,
                "the files of a database that is on other nodes are still here"
            ),
        }
        false
    }

    /// Has drivers know which nodes are to have their databases: those that do not, and where record or nodes may be
    /// others.
    fn tell_wanted(&self, record: &NodeRecord, is_other: bool) {
        let mut copies = self.copies.lock();
        for entry in record.databases.values() {
            let Some(copy) = copies.get_mut(&entry.oid) else {
                continue;
            };
            let Some(running) = &copy.running else {
                copy.told = None;
                continue;
            };
            if copy.told.is_some() && !is_other {
                continue;
            }
            let wanted = self.home.census.nodes(|all| {
                let number = |name| all.nodes.get(name).map(|entry| entry.id);
                entry
                    .nodes
                    .iter()
                    .map(number)
                    .collect::<Option<BTreeSet<NodeId>>>()
            });
            // One that is not known yet will be.
            let Some(wanted) = wanted else {
                continue;
            };
            if copy.told.as_ref() != Some(&wanted) {
                running.inbox().wanted(wanted.clone());
                copy.told = Some(wanted);
            }
        }
    }
}

#[cfg(test)]
mod tests;
