//! What nodes say of themselves, and what is known of them by it.
//!
//! ```text
//!  reports/3 ◄── every three seconds: memory, copies, loads ── node 3
//!      │
//!      └──► every node: NodeFacts, PlacedFacts ──► views, the planner
//! ```
//!
//! * **Silence** is counted by who reads, on its own clock, and only while it can read: an outage of what the nodes share
//!   makes nobody lost.
//! * **Loads** are shares of a node's threads, smoothed: a rise is seen within half a minute, a fall within ten.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs::Metadata,
    num::NonZeroU8,
    os::unix::fs::MetadataExt,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use aerostat_catalog::{
    ClusterFacts, ClusterNodes, CopyFacts, NodeFacts, NodeRecord, PlacedFacts, Placing,
    admin::{Node, Shared},
    failure::with_causes,
    undefined_node,
};
use aerostat_copies::{Peers, Spoken};
use aerostat_placement::{Load, SmoothedLoad};
use aerostat_storage::{MetaStore, Swapped, Version};
use aerostat_transport::{Peer, Transport};
use aerostat_types::{ErrorKind, NodeId, SqlError, TenantId};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::{
    Build, Identity, JoinError, Space, SpaceError,
    inventory::{Inventory, NodeEntry},
    placing::{Picture, place_new},
};

/// For so long etcd keeps what documents were.
const HISTORY: Duration = Duration::from_secs(600);

/// What a node says of itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Report {
    /// Which process of the node says so.
    incarnation: u64,
    /// Counts what it has said, so that each report differs from the one before.
    beat: u64,
    /// It ends.
    #[serde(default)]
    is_stopped: bool,
    memory_bytes: u64,
    memory_used: u64,
    /// The share of its threads that statements take.
    load: f64,
    copies: Vec<CopyReport>,
}

/// What a node says of one of its copies.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct CopyReport {
    database: TenantId,
    leads: bool,
    /// Whether commits wait for it, and what it has is known to be committed. Builds before this one do not say.
    #[serde(default)]
    is_current: bool,
    epoch: u64,
    members: Vec<NodeId>,
    bytes: u64,
    load: f64,
}

/// What is known of a node by its reports.
struct Heard {
    store: Arc<dyn MetaStore>,
    version: Option<Version>,
    report: Option<Report>,
    /// For how long there was nothing new, as far as it was looked.
    silent: Duration,
}

impl Heard {
    /// Whether the node is taken to run.
    fn is_up(&self) -> bool {
        let is_stopped = self.report.as_ref().is_none_or(|report| report.is_stopped);
        !is_stopped && self.silent < NodeFacts::SILENT_MAX
    }
}

/// What is known of a node, for sessions that could be there.
pub(crate) struct NodeHeard {
    /// The share of its threads that statements take.
    pub(crate) load: f64,
    /// Whether it is taken to run.
    pub(crate) is_up: bool,
}

#[derive(Default)]
struct Known {
    nodes: HashMap<NodeId, Heard>,
    /// When it was looked last.
    looked: Option<Instant>,
}

/// How busy a database's statements have kept this node.
struct Busy {
    at: Instant,
    used: Duration,
    load: SmoothedLoad,
}

/// What is said next.
#[derive(Default)]
struct Telling {
    beat: u64,
    version: Option<Version>,
    busy: HashMap<TenantId, Busy>,
}

/// What a node says to the others, and knows of them.
pub struct Census {
    me: NodeId,
    incarnation: u64,
    space: Space,
    list: Arc<dyn MetaStore>,
    inventory: Mutex<Inventory>,
    /// How often it has become another.
    changes: AtomicU64,
    known: Mutex<Known>,
    /// Held while reports are read, which may take long where what the nodes share is away.
    looking: Mutex<()>,
    telling: Mutex<Telling>,
    /// Whether databases that are made on this node begin to be led by it.
    leads_new: bool,
    build: Build,
    programs: Option<Arc<dyn Programs>>,
    /// One statement at a time says what becomes of the process.
    upgrading: Mutex<()>,
}

/// The programs that a node's process may be replaced by.
pub trait Programs: Send + Sync {
    /// What a program says of itself that could go on in the place of this process.
    ///
    /// # Errors
    /// It may not be run, does not start with the node's configuration, or says nothing.
    fn examine(&self, program: &str) -> Result<Examined, SqlError>;

    /// Has the process end as if it was stopped, and be replaced by a program that was examined. Does not wait for that.
    ///
    /// # Errors
    /// It may not be run any more, is another file by now, or the process ends already.
    fn replace(&self, program: &Examined) -> Result<(), SqlError>;

    /// Whether the process is about to be replaced.
    fn is_replaced(&self) -> bool;
}

/// A program that has said what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Examined {
    /// What it has said.
    pub build: Build,
    /// Where it is, without links.
    pub file: PathBuf,
    /// Which file that was.
    pub state: FileState,
}

/// What tells a file from another, and from itself once it is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileState {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

impl FileState {
    /// Of a file that was looked at.
    #[must_use]
    pub fn of(found: &Metadata) -> FileState {
        FileState {
            device: found.dev(),
            inode: found.ino(),
            bytes: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
        }
    }
}

/// How long a database's statements have taken of this node's threads, since it was opened.
pub type TimeUsed = dyn Fn(TenantId) -> Duration + Send + Sync;

impl Census {
    /// Of a node that has joined. Databases that are made on it begin to be led by it, or by whichever node has least to
    /// do.
    ///
    /// # Errors
    /// The space cannot be used.
    pub fn new(
        space: &Space,
        identity: &Identity,
        leads_new: bool,
        (build, programs): (Build, Option<Arc<dyn Programs>>),
    ) -> Result<Census, SpaceError> {
        Ok(Census {
            me: identity.node,
            incarnation: identity.incarnation,
            space: space.clone(),
            list: space.nodes()?,
            inventory: Mutex::default(),
            changes: AtomicU64::new(0),
            known: Mutex::default(),
            looking: Mutex::new(()),
            telling: Mutex::default(),
            leads_new,
            build,
            programs,
            upgrading: Mutex::new(()),
        })
    }

    /// In which version of frames a node is greeted: the newest that both know. One that knows none of these refuses it.
    pub(crate) fn version_with(&self, node: NodeId) -> u16 {
        let here = Spoken::here();
        let theirs = self.nodes(|all| all.node(node).map(|(_, entry)| entry.spoken()));
        let version = here.with(theirs.unwrap_or(Spoken::FIRST));
        version.unwrap_or(here.most)
    }

    /// Which node this is.
    pub(crate) fn me(&self) -> NodeId {
        self.me
    }

    /// Something of the list of nodes, as it was known last.
    pub(crate) fn nodes<T>(&self, of: impl FnOnce(&Inventory) -> T) -> T {
        of(&self.inventory.lock())
    }

    /// What is known of a node; `None` where it has said nothing.
    pub(crate) fn heard_of(&self, node: NodeId) -> Option<NodeHeard> {
        let known = self.known.lock();
        let heard = known.nodes.get(&node)?;
        Some(NodeHeard {
            load: heard.report.as_ref()?.load,
            is_up: heard.is_up(),
        })
    }

    /// The other nodes, as they are known last.
    pub(crate) fn peers(self: &Arc<Self>, transport: Transport) -> Peers {
        let (known, builds) = (Arc::clone(self), Arc::clone(self));
        Peers {
            address: Arc::new(move |node| known.peer(node)),
            versions: Arc::new(move |node| builds.version_with(node)),
            transport,
        }
    }

    /// The nodes beside one, and where they are.
    pub(crate) fn others(&self, than: NodeId) -> Vec<(NodeId, Peer)> {
        self.nodes(|all| {
            let others = all.nodes.iter().filter(|(_, entry)| entry.id != than);
            others
                .map(|(name, entry)| (entry.id, peer(name, entry)))
                .collect()
        })
    }

    /// Where a node is.
    pub(crate) fn peer(&self, node: NodeId) -> Option<Peer> {
        self.nodes(|all| all.node(node).map(|(name, entry)| peer(name, entry)))
    }

    /// Reads the list of nodes again.
    ///
    /// # Errors
    /// It cannot be read. Those that are known are where they were, for all that is known.
    pub(crate) fn look_at_nodes(&self) -> Result<(), JoinError> {
        let nodes = Inventory::load(&*self.list)?;
        self.show_nodes(nodes);
        Ok(())
    }

    fn show_nodes(&self, nodes: Inventory) {
        let mut shown = self.inventory.lock();
        if *shown != nodes {
            *shown = nodes;
            self.changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts how often the list of nodes has become another.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Relaxed)
    }

    /// Says to others how this node is, and whether it ends.
    ///
    /// # Errors
    /// It cannot be stored.
    pub(crate) fn tell(
        &self,
        node: &Node,
        time_used: &TimeUsed,
        is_stopped: bool,
    ) -> Result<(), JoinError> {
        let mut telling = self.telling.lock();
        let copies = telling.copies(node, time_used);
        telling.beat += 1;
        let (memory_bytes, memory_used) = node.memory();
        let report = Report {
            incarnation: self.incarnation,
            beat: telling.beat,
            is_stopped,
            memory_bytes,
            memory_used,
            load: sum(copies.iter().map(|copy| copy.load)),
            copies,
        };
        let document = serde_json::to_vec(&report).map_err(JoinError::Parse)?;
        let store = self.space.report(self.me)?;
        loop {
            match store.compare_and_swap(telling.version, &document)? {
                Swapped::Done(version) => {
                    telling.version = Some(version);
                    return Ok(());
                }
                // What another process of this node has said.
                Swapped::Lost(found) => telling.version = found.map(|found| found.version),
            }
        }
    }

    /// Reads what others say: once in `every`, or besides, which counts for nobody's silence.
    ///
    /// # Errors
    /// Something cannot be read: nobody's silence goes on.
    pub(crate) fn look(&self, every: Option<Duration>) -> Result<(), JoinError> {
        let looking = self.looking.lock();
        let ids: Vec<NodeId> = self.nodes(|all| all.nodes.values().map(|node| node.id).collect());
        let now = Instant::now();
        let mut found = Vec::new();
        for id in &ids {
            let store_of = |known: &Known| Some(Arc::clone(&known.nodes.get(id)?.store));
            let known = store_of(&self.known.lock());
            let store = match known {
                Some(store) => store,
                None => self.space.report(*id)?,
            };
            found.push((*id, store.load()?, store));
        }
        let mut known = self.known.lock();
        known.nodes.retain(|id, _| ids.contains(id));
        // Where it was not looked, or in vain, others may not have been able to speak.
        let gap = known
            .looked
            .map_or(Duration::ZERO, |at| now.saturating_duration_since(at))
            .min(every.unwrap_or_default() * 2);
        if every.is_some() {
            known.looked = Some(now);
        }
        for (id, found, store) in found {
            let heard = known.nodes.entry(id).or_insert(Heard {
                store,
                version: None,
                report: None,
                silent: Duration::ZERO,
            });
            match found {
                Some(found) if heard.version != Some(found.version) => {
                    heard.version = Some(found.version);
                    heard.silent = Duration::ZERO;
                    heard.report = match serde_json::from_slice(&found.document) {
                        Ok(report) => Some(report),
                        Err(error) => {
                            tracing::warn!(node = %id, %error, "what a node says of itself cannot be understood");
                            None
                        }
                    };
                }
                _ => heard.silent += gap,
            }
        }
        drop((known, looking));
        Ok(())
    }

    /// Has what the nodes share forget what documents were ten minutes ago, where it keeps that. `before`: what it was
    /// when, as this was called last.
    ///
    /// # Errors
    /// It cannot be used.
    pub(crate) fn forget_history(
        &self,
        before: &mut Option<(Instant, u64)>,
    ) -> Result<(), SpaceError> {
        if before.is_some_and(|(at, _)| at.elapsed() < HISTORY) {
            return Ok(());
        }
        let Some(revision) = self.space.revision()? else {
            return Ok(());
        };
        if let Some((_, before)) = before.replace((Instant::now(), revision)) {
            self.space.forget_before(before)?;
        }
        Ok(())
    }

    /// Changes the list of nodes.
    fn change<T>(
        &self,
        change: impl Fn(&mut Inventory) -> Result<T, SqlError>,
    ) -> Result<T, SqlError> {
        loop {
            let found = self.list.load().map_err(|error| unread(&error.into()))?;
            let mut all = Inventory::of(found.as_ref()).map_err(|error| unread(&error))?;
            let before = all.clone();
            let done = change(&mut all)?;
            let document = serde_json::to_vec_pretty(&all)
                .map_err(|error| unread(&JoinError::Parse(error)))?;
            let expected = found.map(|found| found.version);
            if all == before {
                return Ok(done);
            }
            let swapped = self.list.compare_and_swap(expected, &document);
            if let Swapped::Done(_) = swapped.map_err(|error| unread(&error.into()))? {
                self.show_nodes(all);
                return Ok(done);
            }
        }
    }

    /// A build that can go on in the place of this node's, among the others.
    fn require_successor(
        &self,
        all: &Inventory,
        program: &str,
        next: &Build,
    ) -> Result<(), SqlError> {
        let others = all.nodes.iter().filter(|(_, entry)| entry.id != self.me);
        let others: Vec<(String, Option<Build>)> = others
            .map(|(name, entry)| (name.clone(), entry.build.clone()))
            .collect();
        match self.build.refuses(next, &others) {
            None => Ok(()),
            Some(why) => {
                let message = format!("this node cannot go on as {program}");
                let kind = ErrorKind::ObjectNotInPrerequisiteState;
                Err(SqlError::new(kind, message).with_detail(why))
            }
        }
    }

    /// Refuses to restart while another node does.
    fn require_alone(&self, all: &Inventory) -> Result<(), SqlError> {
        let mut entries = all.nodes.iter();
        let restarts = entries.find(|(_, entry)| entry.id != self.me && entry.restarts);
        match restarts {
            None => Ok(()),
            Some((name, _)) => {
                let message = format!("node \"{name}\" is on its way to another build");
                Err(SqlError::new(ErrorKind::ObjectInUse, message)
                    .with_hint("One node restarts at a time. Wait until it is back, or start it."))
            }
        }
    }

    /// Says which build this node was asked to go on as, and whether it is about to.
    fn note(&self, all: &mut Inventory, next: &Build, restarts: bool) {
        if let Some(entry) = self.own_entry(all) {
            entry.next_build = Some(next.clone());
            entry.restarts = restarts;
        }
    }

    fn own_entry<'a>(&self, all: &'a mut Inventory) -> Option<&'a mut NodeEntry> {
        let mut entries = all.nodes.values_mut();
        entries.find(|entry| entry.id == self.me)
    }

    /// Goes on as a program, or says that this node could.
    fn begin_upgrade(
        &self,
        programs: &dyn Programs,
        program: &str,
        examined: &Examined,
        only_check: bool,
    ) -> Result<(), SqlError> {
        let next = &examined.build;
        self.change(|all| {
            self.require_successor(all, program, next)?;
            if !only_check {
                self.require_alone(all)?;
            }
            // What an attempt before this one has left behind is not so.
            self.note(all, next, !only_check || programs.is_replaced());
            Ok(())
        })?;
        if only_check {
            return Ok(());
        }
        tracing::info!(
            program,
            version = next.version,
            build = next.id,
            "this process is replaced"
        );
        programs.replace(examined)
    }

    /// Says that this node runs on, which others wait for. It may be said otherwise although the change that said so
    /// seemed to fail.
    fn stay(&self) {
        let said = self.change(|all| {
            if let Some(entry) = self.own_entry(all) {
                entry.restarts = false;
            }
            Ok(())
        });
        if let Err(error) = said {
            tracing::warn!(%error, "others may wait for this node to restart, until it is asked to CHECK UPGRADE");
        }
    }

    fn read_again(&self) -> Result<(), SqlError> {
        let looked = self.look_at_nodes().and_then(|()| self.look(None));
        looked.map_err(|error| unread(&error))
    }
}

/// What a node's catalogue is shared by. A new database has so many copies, or one on every node.
///
/// # Errors
/// The space cannot be used.
pub fn shared(
    space: &Space,
    identity: &Identity,
    census: &Arc<Census>,
    copies: Option<NonZeroU8>,
) -> Result<Shared, SpaceError> {
    Ok(Shared {
        record: space.record()?,
        me: identity.node,
        name: identity.name.clone(),
        nodes: Arc::clone(census) as _,
        copies,
    })
}

impl Telling {
    /// Of each copy that is open.
    fn copies(&mut self, node: &Node, time_used: &TimeUsed) -> Vec<CopyReport> {
        let threads = thread::available_parallelism().map_or(1, usize::from) as f64;
        let now = Instant::now();
        let open = node.open_databases();
        let ids: HashSet<TenantId> = open.iter().map(|database| database.id).collect();
        self.busy.retain(|id, _| ids.contains(id));
        let reports = open.iter().filter_map(|database| {
            let copy = database.copy.as_ref()?;
            let facts: CopyFacts = copy.facts();
            let used = time_used(database.id);
            let busy = self.busy.entry(database.id).or_insert_with(|| Busy {
                at: now,
                used,
                load: SmoothedLoad::new(Load::ZERO),
            });
            busy.observe(now, used, threads);
            Some(CopyReport {
                database: database.id,
                leads: copy.leads(),
                is_current: facts.counts && copy.is_shown(),
                epoch: facts.epoch.0,
                members: facts.members,
                bytes: database.store.budget().used(),
                load: busy.load.planned().get(),
            })
        });
        reports.collect()
    }
}

impl Busy {
    fn observe(&mut self, now: Instant, used: Duration, threads: f64) {
        let elapsed = now.saturating_duration_since(self.at).as_secs_f64();
        if elapsed <= 0.0 {
            return;
        }
        // It was opened again, and begins anew.
        let more = used.checked_sub(self.used).unwrap_or(used).as_secs_f64();
        let measured = Load::new(more / elapsed / threads).unwrap_or(Load::ZERO);
        self.load.observe(elapsed, measured, Load::ZERO);
        (self.at, self.used) = (now, used);
    }
}

fn unread(error: &JoinError) -> SqlError {
    SqlError::new(
        ErrorKind::IoError,
        "could not use the list of the cluster's nodes",
    )
    .with_detail(with_causes(error))
}

impl ClusterNodes for Census {
    fn list(&self) -> Result<BTreeMap<String, NodeId>, SqlError> {
        let all = Inventory::load(&*self.list).map_err(|error| unread(&error))?;
        let entries = all.nodes.into_iter();
        Ok(entries.map(|(name, entry)| (name, entry.id)).collect())
    }

    fn place(
        &self,
        record: &NodeRecord,
        copies: NonZeroU8,
        first: Option<NodeId>,
    ) -> Result<Placing, SqlError> {
        self.read_again()?;
        let picture = Picture::of(record, &self.facts(), None);
        let here = self.leads_new.then_some(self.me);
        place_new(picture, copies, first.or(here), first.is_some())
    }

    fn set_draining(&self, name: &str, is_draining: bool) -> Result<(), SqlError> {
        self.change(|all| match all.nodes.get_mut(name) {
            Some(entry) => {
                entry.draining = is_draining;
                Ok(())
            }
            None => Err(undefined_node(name, all.nodes.keys())),
        })
    }

    fn remove(&self, name: &str) -> Result<(), SqlError> {
        self.read_again()?;
        let facts = self.facts();
        let node = facts.nodes.iter().find(|node| node.name == name);
        if node.is_some_and(|node| node.is_up() || node.id == self.me) {
            let message = format!("cannot drop node \"{name}\" because it runs");
            return Err(SqlError::new(ErrorKind::ObjectInUse, message).with_hint(
                "Stop it first; one that has died is known as such after ten seconds.",
            ));
        }
        self.change(|all| match all.nodes.remove(name) {
            Some(_) => Ok(()),
            None => Err(undefined_node(name, all.nodes.keys())),
        })
    }

    fn upgrade(&self, program: &str, only_check: bool) -> Result<(), SqlError> {
        let Some(programs) = &self.programs else {
            let message = "this node goes on as no other build";
            return Err(
                SqlError::new(ErrorKind::ObjectNotInPrerequisiteState, message)
                    .with_hint("Start it with --upgrades, a folder that has such builds."),
            );
        };
        let examined = programs.examine(program);
        let _only = self.upgrading.lock();
        let done = examined
            .and_then(|examined| self.begin_upgrade(&**programs, program, &examined, only_check));
        if done.is_err() && !programs.is_replaced() {
            self.stay();
        }
        done
    }

    fn facts(&self) -> ClusterFacts {
        let known = self.known.lock();
        let nodes = self.nodes(|all| {
            let entries = all.nodes.iter();
            let of = |(name, entry): (&String, &NodeEntry)| {
                facts_of(name, entry, known.nodes.get(&entry.id))
            };
            entries.map(of).collect()
        });
        let mut said: BTreeMap<TenantId, Vec<Said<'_>>> = BTreeMap::new();
        for (node, heard) in &known.nodes {
            let Some(report) = &heard.report else {
                continue;
            };
            let is_up = heard.is_up();
            let incarnation = self.nodes(|all| all.node(*node).map(|(_, entry)| entry.incarnation));
            let is_of_now = incarnation.is_some_and(|now| report.incarnation >= now);
            for copy in &report.copies {
                let of = said.entry(copy.database).or_default();
                of.push(Said {
                    node: *node,
                    copy,
                    is_up,
                    is_current: is_up && is_of_now && copy.is_current,
                });
            }
        }
        let databases = said.into_iter();
        ClusterFacts {
            nodes,
            databases: databases.map(|(id, said)| (id, placed(&said))).collect(),
        }
    }
}

/// What a node has said of a copy.
struct Said<'a> {
    node: NodeId,
    copy: &'a CopyReport,
    is_up: bool,
    /// It runs, and its process of now has everything.
    is_current: bool,
}

fn peer(name: &str, entry: &NodeEntry) -> Peer {
    Peer {
        name: name.to_owned(),
        address: entry.address,
    }
}

/// 0 of nothing, which the library's sum is −0 of.
fn sum(loads: impl Iterator<Item = f64>) -> f64 {
    loads.fold(0.0, |sum, load| sum + load)
}

/// What is known of a database by what nodes have said, of which one may have been silent since.
fn placed(said: &[Said<'_>]) -> PlacedFacts {
    let newest = said.iter().max_by_key(|said| said.copy.epoch);
    let leader = said.iter().filter(|said| said.copy.leads);
    let leader = leader.max_by_key(|said| (said.copy.epoch, said.is_up));
    let up = || said.iter().filter(|said| said.is_up);
    let mut members = newest.map_or(Vec::new(), |said| said.copy.members.clone());
    members.sort_unstable();
    let current = said.iter().filter(|said| said.is_current);
    let mut current: Vec<NodeId> = current.map(|said| said.node).collect();
    current.sort_unstable();
    PlacedFacts {
        leader: leader.map(|said| said.node),
        epoch: newest.map_or(0, |said| said.copy.epoch),
        members,
        current,
        bytes: said.iter().map(|said| said.copy.bytes).max().unwrap_or(0),
        load: sum(up().map(|said| said.copy.load)),
        load_beside_leader: sum(up()
            .filter(|said| !said.copy.leads)
            .map(|said| said.copy.load)),
    }
}

fn facts_of(name: &str, entry: &NodeEntry, heard: Option<&Heard>) -> NodeFacts {
    let report = heard.and_then(|heard| heard.report.as_ref());
    NodeFacts {
        name: name.to_owned(),
        id: entry.id,
        address: entry.address.to_string(),
        clients: entry.clients.to_string(),
        build: entry.build.as_ref().map(Build::name),
        next_build: entry.next_build.as_ref().map(Build::name),
        is_draining: entry.draining,
        // Of the process before this one, it says nothing.
        is_stopped: report
            .is_some_and(|report| report.is_stopped && report.incarnation >= entry.incarnation),
        silent: heard
            .filter(|heard| heard.report.is_some())
            .map(|heard| heard.silent),
        memory_bytes: report.map_or(0, |report| report.memory_bytes),
        memory_used: report.map_or(0, |report| report.memory_used),
        load: report.map_or(0.0, |report| report.load),
    }
}
