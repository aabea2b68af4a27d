//! The keeper: a node's databases are copies that run, as the cluster's record says.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use aerostat_catalog::{
    CopiesRecord, CopyState, DatabaseRecord, Order,
    admin::{Holders, Node, Unopened},
};
use aerostat_copies::{Inbox, Links, Running, run, serve};
use aerostat_replication::{Config, Incarnation, Member, NodeId, Settings};
use aerostat_storage::MetaStore;
use aerostat_types::TenantId;
use parking_lot::Mutex;
use tokio::{net::TcpListener, runtime::Handle, task::JoinHandle as Task};

use crate::{
    Identity, Space, SpaceError,
    inventory::Inventory,
    owner::{CopyOwner, Ending, Held},
};

/// How often the keeper looks around, where nothing wakes it.
const LOOK: Duration = Duration::from_millis(100);

/// How soon a copy that ended is opened again.
const AGAIN: Duration = Duration::from_secs(1);

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
    /// Where connections of other nodes run.
    pub runtime: Handle,
    /// Where other nodes are listened to.
    pub listener: TcpListener,
    /// How copies behave.
    pub settings: Settings,
}

/// What the keeper and its copies share.
pub(crate) struct Inner {
    pub(crate) node: Arc<Node>,
    pub(crate) holders: Arc<dyn Holders + Send + Sync>,
    identity: Identity,
    space: Space,
    token: Vec<u8>,
    runtime: Handle,
    settings: Settings,
    openings: AtomicU64,
    pub(crate) nodes: Arc<Mutex<Inventory>>,
    copies: Mutex<HashMap<TenantId, Copy>>,
    stops: AtomicBool,
}

/// A copy that runs, or did.
struct Copy {
    state: Arc<CopyState>,
    held: Arc<Mutex<Held>>,
    running: Option<Running>,
}

/// A node's part in a cluster, until this is dropped.
pub struct Cluster {
    inner: Arc<Inner>,
    keeper: Option<JoinHandle<()>>,
    listening: Task<std::io::Result<()>>,
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
            runtime,
            listener,
            settings,
        } = setup;
        let token = space.token()?;
        let inner = Arc::new(Inner {
            node,
            holders,
            identity,
            space,
            token: token.clone(),
            runtime: runtime.clone(),
            settings,
            openings: AtomicU64::new(0),
            nodes: Arc::default(),
            copies: Mutex::default(),
            stops: AtomicBool::new(false),
        });
        inner.look_at_nodes()?;
        let routes = Arc::downgrade(&inner);
        let route = Arc::new(move |tenant| routes.upgrade()?.inbox(tenant));
        let listening = runtime.spawn(serve(listener, inner.identity.node, token, route));
        let kept = Arc::clone(&inner);
        let thread = thread::Builder::new().name("aerostat-keeper".to_owned());
        let keeper = thread.spawn(move || kept.keep());
        let keeper = keeper.map_err(|source| SpaceError::Io {
            path: "a thread".into(),
            source,
        })?;
        Ok(Cluster {
            inner,
            keeper: Some(keeper),
            listening,
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
                    let members = copy.state.facts().members;
                    let me = self.inner.identity.node;
                    let other = members.into_iter().find(|node| *node != me)?;
                    Some((copy.running.as_ref()?.inbox().clone(), other))
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
            let record = self.inner.node.record();
            let mut all = record.databases.values();
            if all.all(|entry| entry.copies.is_none() || is_shown(entry)) {
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
        if let Some(keeper) = self.keeper.take() {
            // One that panicked has said so.
            let _ = keeper.join();
        }
    }
}

impl Inner {
    fn inbox(&self, tenant: TenantId) -> Option<Inbox> {
        let copies = self.copies.lock();
        let running = copies.get(&tenant)?.running.as_ref()?;
        Some(running.inbox().clone())
    }

    fn look_at_nodes(&self) -> Result<(), SpaceError> {
        let store = self.space.nodes()?;
        match Inventory::load(&*store) {
            Ok(nodes) => *self.nodes.lock() = nodes,
            Err(error) => tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the list of the cluster's nodes cannot be read"
            ),
        }
        Ok(())
    }

    /// Keeps copies as the record says, until the node ends.
    fn keep(self: Arc<Self>) {
        while !self.stops.load(Ordering::Acquire) {
            if let Err(error) = self.node.refresh() {
                tracing::warn!(message = error.message, detail = ?error.detail, "the cluster's catalogue");
            }
            if let Err(error) = self.look_at_nodes() {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the cluster's nodes"
                );
            }
            self.end_dropped();
            self.start_due();
            self.node.await_change(LOOK);
        }
        let copies = std::mem::take(&mut *self.copies.lock());
        for copy in copies.into_values() {
            copy.state.take_orders(None);
            // Its driver ends, and with it what it told.
            drop(copy.running);
            copy.state.set_leads(false);
            copy.held.lock().database = None;
        }
    }

    /// Ends copies of databases that the record has no more.
    fn end_dropped(&self) {
        let record = self.node.record();
        let is_there = |id: TenantId| record.databases.values().any(|entry| entry.oid == id);
        let gone: Vec<(TenantId, Copy)> = {
            let mut copies = self.copies.lock();
            let gone: Vec<TenantId> = copies.keys().copied().filter(|id| !is_there(*id)).collect();
            gone.into_iter()
                .filter_map(|id| Some((id, copies.remove(&id)?)))
                .collect()
        };
        for (id, copy) in gone {
            copy.state.take_orders(None);
            copy.state.hide();
            drop(copy.running);
            let database = copy.held.lock().database.take();
            if let Some(database) = database {
                self.node.close_copy(id, database, &*self.holders);
            }
            match self.node.remove_copy(id) {
                Ok(()) => tracing::info!(tenant = %id, "a dropped database's copy is gone"),
                Err(error) => tracing::warn!(
                    tenant = %id,
                    error = &error as &dyn std::error::Error,
                    "the files of a dropped database stay until a restart"
                ),
            }
        }
    }

    /// Opens copies that do not run.
    fn start_due(self: &Arc<Self>) {
        let record = self.node.record();
        let all = record.databases.iter();
        for (name, entry, copies) in
            all.filter_map(|(name, entry)| Some((name, entry, entry.copies?)))
        {
            if self.stops.load(Ordering::Acquire) {
                return;
            }
            if let Some(before) = self.due(entry.oid) {
                drop(before);
                self.start(name, entry, copies);
            }
        }
    }

    /// Whether a copy is to be opened; what is left of the one before.
    fn due(&self, id: TenantId) -> Option<Option<Running>> {
        let mut copies = self.copies.lock();
        let Some(copy) = copies.get_mut(&id) else {
            return Some(None);
        };
        let ended = copy.held.lock().ended;
        match ended {
            Some((at, _)) if at.elapsed() >= AGAIN => Some(copy.running.take()),
            _ => None,
        }
    }

    fn start(self: &Arc<Self>, name: &str, entry: &DatabaseRecord, of: CopiesRecord) {
        let id = entry.oid;
        let (state, held) = {
            let mut copies = self.copies.lock();
            let copy = copies.entry(id).or_insert_with(|| Copy {
                state: Arc::new(CopyState::new(self.identity.node)),
                held: Arc::default(),
                running: None,
            });
            copy.held.lock().ended = None;
            (Arc::clone(&copy.state), Arc::clone(&copy.held))
        };
        state.hide();
        match self.opened(entry, of, &state, &held) {
            Ok(running) => {
                let inbox = running.inbox().clone();
                state.take_orders(Some(Box::new(move |order| match order {
                    Order::Lead => inbox.lead(),
                    Order::Durability(durability) => {
                        inbox.and_sync(durability.syncs_beside_copies());
                    }
                })));
                if let Some(copy) = self.copies.lock().get_mut(&id) {
                    copy.running = Some(running);
                }
            }
            Err(why) => {
                tracing::warn!(
                    database = name,
                    reason = why.reason,
                    "a copy does not run yet"
                );
                let database = held.lock().database.take();
                if let Some(database) = database {
                    self.node.close_copy(id, database, &*self.holders);
                }
                self.node.fail_copy(id, why);
                held.lock().ended = Some((Instant::now(), Ending::Failed));
            }
        }
    }

    /// Opens a copy and runs it.
    fn opened(
        self: &Arc<Self>,
        entry: &DatabaseRecord,
        of: CopiesRecord,
        state: &Arc<CopyState>,
        held: &Arc<Mutex<Held>>,
    ) -> Result<Running, Unopened> {
        let id = entry.oid;
        let failed = |error: &dyn std::error::Error| Unopened::ended(error.to_string());
        let configurations = self.space.configurations(id);
        let configurations = configurations.map_err(|error| failed(&error))?;
        let has_lost = self.has_lost(id, &*configurations)?;
        let opening = self.openings.fetch_add(1, Ordering::Relaxed) + 1;
        let incarnation = (self.identity.incarnation << OPENING_BITS) | opening;
        let me = Member {
            node: self.identity.node,
            incarnation: Incarnation(incarnation),
        };
        let opened = self.node.open_copy(id, state, None)?;
        let store = Arc::clone(&opened.database.store);
        held.lock().database = Some(opened.database);
        let nodes = Arc::clone(&self.nodes);
        let address = move |node: NodeId| -> Option<SocketAddr> {
            nodes.lock().node(node).map(|(_, entry)| entry.address)
        };
        let links = Links::new(
            self.runtime.clone(),
            Arc::new(address),
            id,
            me,
            self.token.clone(),
        );
        let setup = aerostat_copies::Setup {
            me,
            settings: Settings {
                and_sync: entry.commit_durability().syncs_beside_copies(),
                ..self.settings
            },
            is_first: of.home == self.identity.node,
            has_lost,
            configurations,
            links,
            owner: Box::new(CopyOwner {
                keeper: Arc::downgrade(self),
                id,
                state: Arc::clone(state),
                held: Arc::clone(held),
                catalog: opened.catalog,
            }),
        };
        run(setup, (store, opened.applier)).map_err(|error| failed(&error))
    }

    /// Whether the files of a database are gone that the cluster takes this node to have. Where others have
    /// theirs it is a new copy in time; where none has, nobody goes on with nothing.
    fn has_lost(&self, id: TenantId, configurations: &dyn MetaStore) -> Result<bool, Unopened> {
        if self.node.has_log(id) {
            return Ok(false);
        }
        let found = configurations
            .load()
            .map_err(|error| Unopened::ended(error.to_string()))?;
        let config = found.and_then(|found| serde_json::from_slice::<Config>(&found.document).ok());
        let was_member = config.is_some_and(|config| config.of(self.identity.node).is_some());
        if was_member {
            tracing::error!(tenant = %id, "the files of a database are missing");
        }
        Ok(was_member)
    }
}
