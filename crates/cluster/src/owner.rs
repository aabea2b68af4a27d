//! What a node does for one of its copies: sessions, catalogue, and what is shown of it.

use std::{
    collections::BTreeMap,
    io,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use aerostat_catalog::{
    CopyFacts, CopyState, Database, Order, PeerFacts,
    admin::{Holders, Node, Unopened},
};
use aerostat_copies::{CopyError, Known, Owner};
use aerostat_storage::{Applier, RecoverError, Table, TenantStore};
use aerostat_types::{CommitTs, NodeId, TableId, TenantId};
use parking_lot::Mutex;

use crate::{Census, reach::Reach};

/// A leader that is alone leads until its configuration is another one, of which it is told; no process runs for so long.
const LEASE_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);

/// How long it is waited for sessions to go, at most: the machine decides before that.
const PARTING_MAX: Duration = Duration::from_secs(1);

/// How often it is looked whether they have.
const PARTING_LOOK: Duration = Duration::from_millis(1);

/// How often they are told.
const PARTING_AGAIN: Duration = Duration::from_millis(20);

/// How long a node that begins to lead waits until strong reads are answered, before it says that it leads.
const LEASE_WAIT: Duration = Duration::from_millis(500);

/// What copies have of the node that they are on.
pub(crate) struct Home {
    pub(crate) node: Arc<Node>,
    pub(crate) holders: Arc<dyn Holders + Send + Sync>,
    /// What is known of the cluster's nodes.
    pub(crate) census: Arc<Census>,
    /// Which of them are reached.
    pub(crate) reach: Reach,
}

impl Home {
    /// Closes the database that a copy holds, if it is open.
    pub(crate) fn close(&self, id: TenantId, held: &Mutex<Held>) {
        let database = held.lock().database.take();
        if let Some(database) = database {
            self.node.close_copy(id, database, &*self.holders);
        }
    }
}

/// What a copy and its keeper share.
#[derive(Default)]
pub(crate) struct Held {
    /// The database, as it is open now.
    pub(crate) database: Option<Arc<Database>>,
    /// Counts the times that the node began to lead, or ended.
    tenures: u64,
    /// When and why its driver ended.
    pub(crate) ended: Option<(Instant, Ending)>,
}

/// Why a copy's driver ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It could not go on.
    Failed,
    /// Its leader's log does not lead to it: it is to be made anew.
    NeedsSeed,
}

/// The owner of a copy.
pub(crate) struct CopyOwner {
    pub(crate) home: Arc<Home>,
    pub(crate) id: TenantId,
    pub(crate) state: Arc<CopyState>,
    pub(crate) held: Arc<Mutex<Held>>,
    /// The newest catalogue that was applied.
    pub(crate) catalog: Option<Arc<[u8]>>,
}

impl CopyOwner {
    /// Nobody has the database any more when this returns.
    fn close(&self) {
        self.state.hide();
        self.home.close(self.id, &self.held);
        self.state.set_parting(false);
    }

    fn follow(&self, catalog: &[u8], tables: &BTreeMap<TableId, Arc<Table>>) {
        let database = self.held.lock().database.clone();
        let Some(database) = database else { return };
        if let Err(error) = database.catalog.follow(catalog, tables) {
            // What it has been is shown on: tables of before are there.
            tracing::error!(
                tenant = %self.id,
                error = &error as &dyn std::error::Error,
                "a copy cannot follow its leader's catalogue"
            );
        }
    }
}

impl Owner for CopyOwner {
    fn reopen(&mut self, through: CommitTs) -> Result<(Arc<TenantStore>, Applier), RecoverError> {
        let failed = |reason: String| RecoverError::Io {
            path: self.id.to_string().into(),
            source: io::Error::other(reason),
        };
        self.close();
        let opened = self
            .home
            .node
            .open_copy(self.id, &self.state, Some(through));
        let opened = opened.map_err(|why| match why.is_diverged() {
            true => RecoverError::Diverged {
                path: self.home.node.copy_folder(self.id),
                what: "its checkpoint has what its leader's log has not",
            },
            false => failed(why.reason),
        })?;
        self.catalog = opened.catalog;
        let store = Arc::clone(&opened.database.store);
        self.held.lock().database = Some(opened.database);
        Ok((store, opened.applier))
    }

    fn defined(&mut self, catalog: &Arc<[u8]>, tables: &BTreeMap<TableId, Arc<Table>>) {
        self.catalog = Some(Arc::clone(catalog));
        self.follow(catalog, tables);
    }

    fn leads(&mut self, _store: &Arc<TenantStore>, tables: &BTreeMap<TableId, Arc<Table>>) {
        if let Some(catalog) = &self.catalog {
            // Sequences look at their rows again.
            self.follow(catalog, tables);
        }
        let (tenure, database) = {
            let mut held = self.held.lock();
            held.tenures += 1;
            (held.tenures, held.database.clone())
        };
        let Some(database) = database else { return };
        let (id, state, held) = (self.id, Arc::clone(&self.state), Arc::clone(&self.held));
        // It waits for its copies, which this thread tells.
        let settle = move || {
            if let Err(error) = database.settle_as_leader() {
                tracing::warn!(
                    tenant = %id,
                    error = &error as &dyn std::error::Error,
                    "what the leader before has left is not settled"
                );
            }
            drop(database);
            let began = Instant::now();
            while !state.may_answer_as_leader() && began.elapsed() < LEASE_WAIT {
                thread::sleep(LEASE_WAIT / 100);
            }
            let held = held.lock();
            if held.tenures == tenure {
                state.set_leads(true);
                tracing::info!(tenant = %id, "this node leads");
            }
        };
        let thread = thread::Builder::new().name("aerostat-leads".to_owned());
        if let Err(error) = thread.spawn(settle) {
            tracing::error!(tenant = %self.id, %error, "no thread to begin to lead with");
        }
    }

    fn follows(&mut self) {
        let mut held = self.held.lock();
        held.tenures += 1;
        self.state.set_leads(false);
        self.state.set_parting(false);
        tracing::info!(tenant = %self.id, "another node leads");
    }

    fn quieten(&mut self, quiet: bool) {
        self.state.set_parting(quiet);
        let database = self.held.lock().database.clone();
        let Some(database) = database.filter(|_| quiet) else {
            return;
        };
        let (id, state, home) = (self.id, Arc::clone(&self.state), Arc::clone(&self.home));
        let watch = move || {
            let began = Instant::now();
            let mut told = None;
            while state.is_parting() && began.elapsed() < PARTING_MAX {
                // Some may have come a moment before.
                if told.is_none_or(|at: Instant| at.elapsed() > PARTING_AGAIN) {
                    home.holders.have_leave(&database);
                    told = Some(Instant::now());
                }
                if database.connection_count() <= 0 {
                    return state.order(Order::Quiet);
                }
                thread::sleep(PARTING_LOOK);
            }
        };
        let thread = thread::Builder::new().name("aerostat-parts".to_owned());
        if let Err(error) = thread.spawn(watch) {
            tracing::error!(tenant = %id, %error, "no thread to see sessions go");
        }
    }

    fn lacks_log(&mut self, node: NodeId) {
        tracing::info!(tenant = %self.id, %node, "a copy is to be made anew: the log does not lead to it");
    }

    fn knows(&mut self, known: &Known) {
        if known.is_shown {
            if !self.state.is_shown() {
                self.home.node.found(self.id);
            }
            self.state.set_shown();
        }
        self.state.tell(facts(&self.home, known));
    }

    fn ended(&mut self, error: CopyError) {
        tracing::error!(
            tenant = %self.id,
            error = &error as &dyn std::error::Error,
            "a copy has ended; it is opened again"
        );
        {
            let mut held = self.held.lock();
            held.tenures += 1;
            self.state.set_leads(false);
        }
        self.close();
        let reason = format!("its copy has ended: {error}");
        self.home.node.fail_copy(self.id, Unopened::ended(reason));
        let ending = match error.needs_seed() {
            true => Ending::NeedsSeed,
            false => Ending::Failed,
        };
        self.held.lock().ended = Some((Instant::now(), ending));
    }
}

/// What a driver knows, for sessions.
fn facts(home: &Home, known: &Known) -> CopyFacts {
    let config = known.config.as_ref();
    let now = Instant::now();
    let heard = |ago| now.checked_sub(ago);
    let mut members: Vec<NodeId> = config
        .map(|config| config.members.iter().map(|member| member.node).collect())
        .unwrap_or_default();
    members.sort_unstable();
    let peers = home.census.nodes(|nodes| {
        let facts = known.peers.iter().map(|peer| {
            let entry = nodes.node(peer.node);
            PeerFacts {
                node: peer.node,
                name: entry.map_or_else(|| peer.node.to_string(), |(name, _)| name.clone()),
                address: entry.map_or_else(String::new, |(_, entry)| entry.address.to_string()),
                is_member: members.contains(&peer.node),
                sent: peer.sent,
                written: peer.written,
                durable: peer.durable,
                heard: heard(peer.heard),
            }
        });
        facts.collect()
    });
    CopyFacts {
        peers,
        epoch: config.map(|config| config.epoch).unwrap_or_default(),
        leader: config.map(|config| config.leader),
        members,
        counts: known.counts,
        written: known.written,
        durable: known.durable,
        committed: known.committed,
        heard: known.heard.and_then(heard),
        current: known.current.and_then(heard),
        leads_until: known.lease.map(|lease| now + lease.min(LEASE_MAX)),
    }
}
