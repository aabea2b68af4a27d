//! Two nodes with threads, sockets and disks of this machine, one of which ends at times while clients write.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use aerostat_replication::{Config, Incarnation, Member, NodeId, Settings};
use aerostat_storage::{
    Applier, CopyOf, Durability, MetaShared, MetaStore, OpenOptions, RecoverError, SystemDisk,
    Table, TenantStore, Timeline,
};
use aerostat_types::{CommitTs, TableId, TenantId};
use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio::{
    net::TcpListener,
    runtime::{self, Handle, Runtime},
    sync::oneshot,
};

use super::node::{BAG, KEYED, batch, begun, budget, listed};
use crate::{
    CopyError, Inbox, Known, Links, Owner, Peers, Running, Setup, Threads, run,
    seed::{PaceLimits, SeedHold, SeedNeed, Seeds, fetch_from_leader},
    serve,
};

pub(super) const TENANT: TenantId = TenantId(1);
pub(super) const CLIENTS: usize = 4;
pub(super) const TOKEN: &[u8] = b"between us";

/// A fifth of what is usual, so that a test does not take long.
fn settings() -> Settings {
    Settings {
        heartbeat: Duration::from_millis(50),
        lease: Duration::from_millis(300),
        grace: Duration::from_millis(400),
        lost: Duration::from_millis(250),
        again: Duration::from_millis(100),
        flush: Duration::from_millis(50),
        ..Settings::default()
    }
}

/// What a node serves its clients with.
#[derive(Default)]
pub(super) struct Served {
    pub(super) store: Option<Arc<TenantStore>>,
    tables: BTreeMap<TableId, Arc<Table>>,
    leads: bool,
    /// Why the copy has ended by itself: whether it has to be made anew.
    pub(super) ended: Option<bool>,
}

struct NodeOwner {
    folder: PathBuf,
    timeline: Timeline,
    options: OpenOptions,
    served: Arc<Mutex<Served>>,
}

pub(super) fn open(
    folder: &Path,
    timeline: Timeline,
    options: &OpenOptions,
    through: Option<CommitTs>,
) -> Result<(Arc<TenantStore>, Applier), RecoverError> {
    let of = CopyOf { timeline, through };
    let opened = TenantStore::open_copy(TENANT, budget(), folder, options, of);
    opened.map(|(store, _, applier)| (store, applier))
}

pub(super) fn options() -> OpenOptions {
    let mut options = OpenOptions::default();
    options.durability = Durability::None;
    options
}

/// Nobody has the tenant any more when this returns.
fn close(served: &Mutex<Served>) {
    let served = std::mem::take(&mut *served.lock().unwrap());
    let ended = served.store.as_ref().and_then(|store| store.ended());
    drop(served);
    if let Some(ended) = ended {
        assert!(
            ended.wait(Duration::from_secs(20)),
            "somebody has the tenant"
        );
    }
}

impl Owner for NodeOwner {
    fn reopen(&mut self, through: CommitTs) -> Result<(Arc<TenantStore>, Applier), RecoverError> {
        close(&self.served);
        let opened = open(&self.folder, self.timeline, &self.options, Some(through))?;
        self.served.lock().unwrap().store = Some(Arc::clone(&opened.0));
        Ok(opened)
    }

    fn defined(&mut self, _catalog: &Arc<[u8]>, _tables: &BTreeMap<TableId, Arc<Table>>) {}

    fn leads(&mut self, store: &Arc<TenantStore>, tables: &BTreeMap<TableId, Arc<Table>>) {
        *self.served.lock().unwrap() = Served {
            store: Some(Arc::clone(store)),
            tables: tables.clone(),
            leads: true,
            ended: None,
        };
    }

    fn follows(&mut self) {
        self.served.lock().unwrap().leads = false;
    }

    fn quieten(&mut self, _quiet: bool) {
        // Nobody hands over here.
    }

    fn knows(&mut self, _known: &Known) {}

    fn lacks_log(&mut self, node: NodeId) {
        // The copy learns of it, too.
        eprintln!("{node:?} lacks the log");
    }

    fn ended(&mut self, error: CopyError) {
        eprintln!("a copy ends: {error:?}");
        close(&self.served);
        self.served.lock().unwrap().ended = Some(error.needs_seed());
    }
}

/// A thread that serves sessions, as a node has it, until it is dropped.
struct SessionThread {
    handle: Handle,
    ends: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl SessionThread {
    fn start() -> SessionThread {
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.unwrap();
        let handle = runtime.handle().clone();
        let (ends, ended) = oneshot::channel();
        let thread = thread::spawn(move || drop(runtime.block_on(ended)));
        SessionThread {
            handle,
            ends: Some(ends),
            thread: Some(thread),
        }
    }

    /// How many connections it has.
    fn connections(&self) -> usize {
        self.handle.metrics().num_alive_tasks()
    }
}

impl Drop for SessionThread {
    fn drop(&mut self) {
        drop(self.ends.take());
        self.thread.take().unwrap().join().unwrap();
    }
}

pub(super) struct TestNode {
    id: NodeId,
    folder: tempfile::TempDir,
    incarnation: u64,
    pub(super) served: Arc<Mutex<Served>>,
    options: OpenOptions,
    running: Option<Running>,
    hold: Option<SeedHold>,
    /// Where connections of others lead.
    inbox: Arc<Mutex<Option<Inbox>>>,
    pub(super) address: SocketAddr,
    sessions: SessionThread,
    threads: Threads,
}

impl TestNode {
    pub(super) fn new(id: u32, options: OpenOptions, runtime: &Runtime) -> TestNode {
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let inbox: Arc<Mutex<Option<Inbox>>> = Arc::default();
        let known = Arc::clone(&inbox);
        let route = Arc::new(move |tenant| {
            assert_eq!(tenant, TENANT);
            known.lock().unwrap().clone()
        });
        let served: Arc<Mutex<Served>> = Arc::default();
        let own = Arc::clone(&served);
        let leading = Arc::new(move |tenant| {
            assert_eq!(tenant, TENANT);
            let served = own.lock().unwrap();
            served.store.clone().filter(|_| served.leads)
        });
        let seeds = Seeds::new(leading, PaceLimits::default());
        let sessions = SessionThread::start();
        let to_others = crate::Served {
            me: NodeId(id),
            token: TOKEN.into(),
            peers: Peers::plain(|_| None),
            route,
            seeds,
            door: Arc::new(()),
            sessions: [sessions.handle.clone()].into(),
        };
        runtime.spawn(serve(listener, to_others));
        TestNode {
            id: NodeId(id),
            folder: tempfile::tempdir().unwrap(),
            incarnation: 0,
            served,
            options,
            running: None,
            hold: None,
            inbox,
            address,
            sessions,
            threads: Threads::new().unwrap(),
        }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.folder.path().join("tenant")
    }

    pub(super) fn start(
        &mut self,
        timeline: Timeline,
        configurations: &Arc<MetaShared>,
        addresses: &[SocketAddr],
        runtime: &Runtime,
    ) {
        self.incarnation += 1;
        let me = Member {
            node: self.id,
            incarnation: Incarnation(self.incarnation),
        };
        let addresses = addresses.to_vec();
        let peers = Peers::plain(move |node| addresses.get(node.0 as usize).copied());
        let handle = runtime.handle().clone();
        let opened = open(&self.path(), timeline, &self.options, None).unwrap();
        *self.served.lock().unwrap() = Served {
            store: Some(Arc::clone(&opened.0)),
            ..Served::default()
        };
        let setup = Setup {
            me,
            settings: settings(),
            is_first: self.id == NodeId(0),
            has_lost: false,
            configurations: Arc::clone(configurations) as _,
            links: Links::new(handle, peers, TENANT, me, TOKEN.to_vec()),
            owner: Box::new(NodeOwner {
                folder: self.path(),
                timeline,
                options: self.options.clone(),
                served: Arc::clone(&self.served),
            }),
            threads: self.threads.clone(),
        };
        let running = run(setup, opened);
        *self.inbox.lock().unwrap() = Some(running.inbox().clone());
        self.running = Some(running);
    }

    pub(super) fn stop(&mut self) {
        *self.inbox.lock().unwrap() = None;
        self.running = None;
        self.hold = None;
        close(&self.served);
    }

    /// Whether it has been started, and was not stopped since.
    pub(super) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// What an owner does whose copy has ended by itself: it is made anew where that helps, and runs again as
    /// another process would. Where nobody leads it runs with what it has. Gives what was sent.
    pub(super) fn recover(
        &mut self,
        timeline: Timeline,
        configurations: &Arc<MetaShared>,
        addresses: &[SocketAddr],
        runtime: &Runtime,
    ) -> Option<u64> {
        let needs_seed = self.served.lock().unwrap().ended?;
        self.stop();
        let known = addresses.to_vec();
        let peers = Peers::plain(move |node| known.get(node.0 as usize).copied());
        let need = SeedNeed {
            token: TOKEN.to_vec(),
            me: Member {
                node: self.id,
                incarnation: Incarnation(self.incarnation + 1),
            },
            tenant: TENANT,
            timeline: Some(timeline),
            folder: self.path(),
            disk: Arc::new(SystemDisk),
            stop: Arc::default(),
        };
        let mut sent = None;
        if needs_seed {
            match fetch_from_leader(&need, &**configurations, &peers) {
                Ok(seeded) => {
                    sent = Some(seeded.bytes_sent);
                    self.hold = Some(seeded.hold);
                }
                Err(error) => eprintln!("no seed: {error:?}"),
            }
        }
        self.start(timeline, configurations, addresses, runtime);
        sent
    }
}

/// The leader's table, if there is one.
pub(super) fn led(served: &[Arc<Mutex<Served>>]) -> Option<Arc<Table>> {
    served.iter().find_map(|served| {
        let served = served.lock().unwrap();
        served.leads.then(|| served.tables.get(&KEYED).cloned())?
    })
}

pub(super) fn members(configurations: &MetaShared) -> usize {
    let found = configurations.load().unwrap();
    let parse = |found: aerostat_storage::Versioned| -> Config {
        serde_json::from_slice(&found.document).unwrap()
    };
    found.map_or(0, |found| parse(found).members.len())
}

pub(super) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(
            began.elapsed() < Duration::from_secs(60),
            "not {what} within a minute"
        );
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_two_nodes_acknowledge_outlives_either() {
    let seed = 11;
    let mut random = StdRng::seed_from_u64(seed);
    let runtime = Runtime::new().unwrap();
    let shared = tempfile::tempdir().unwrap();
    let configurations = Arc::new(MetaShared::open(shared.path()).unwrap());
    let mut nodes = [0, 1].map(|id| TestNode::new(id, options(), &runtime));
    let addresses = [nodes[0].address, nodes[1].address];
    let timeline = {
        let options = OpenOptions::default();
        let opened = TenantStore::open(TENANT, budget(), &nodes[0].path(), &options);
        begun(opened.unwrap().0)
    };
    let served: Vec<_> = nodes.iter().map(|node| Arc::clone(&node.served)).collect();
    let both = || members(&configurations) == 2 && led(&served).is_some();
    for node in &mut nodes {
        node.start(timeline, &configurations, &addresses, &runtime);
    }
    wait_until("both are members", both);
    let leader_is_answered_there = |nodes: &[TestNode; 2]| {
        wait_until("a thread of sessions takes answers", || {
            nodes.iter().all(|node| {
                let leads = node.served.lock().unwrap().leads;
                node.sessions.connections() == usize::from(leads)
            })
        });
    };
    leader_is_answered_there(&nodes);

    let (next_key, is_over) = (AtomicI32::new(0), AtomicBool::new(false));
    let failed = AtomicU64::new(0);
    let acknowledged: Mutex<BTreeSet<i32>> = Mutex::default();
    let rounds: u32 = std::env::var("PAIR_ROUNDS").map_or(6, |text| text.parse().unwrap());
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while !is_over.load(Ordering::Acquire) {
                    let Some(table) = led(&served) else {
                        thread::sleep(Duration::from_millis(2));
                        continue;
                    };
                    let key = next_key.fetch_add(1, Ordering::Relaxed);
                    let txn = table.store().txns().begin();
                    let done = table.insert(&txn, &batch(&table, &[(key, 1)], 50));
                    match done.map(|_| txn.commit()) {
                        Ok(Ok(_)) => drop(acknowledged.lock().unwrap().insert(key)),
                        _ => drop(failed.fetch_add(1, Ordering::Relaxed)),
                    }
                }
            });
        }
        for round in 0..rounds {
            let count = || acknowledged.lock().unwrap().len();
            let before = count();
            wait_until("commits are acknowledged", || count() > before + 50);
            wait_until("both are members", both);
            let node = random.random_range(0..2);
            nodes[node].stop();
            let pause = random.random_range(50..900);
            thread::sleep(Duration::from_millis(pause));
            nodes[node].start(timeline, &configurations, &addresses, &runtime);
            wait_until("both are members", both);
            leader_is_answered_there(&nodes);
            println!("round {round}: node {node} was away for {pause} ms, {before} acknowledged");
        }
        wait_until("both are members", both);
        is_over.store(true, Ordering::Release);
    });
    let acknowledged = acknowledged.into_inner().unwrap();
    println!(
        "{} acknowledged, {} not",
        acknowledged.len(),
        failed.into_inner()
    );
    // Whoever leads has all; and so has its copy, once it has ended.
    let keys_of = |table: &Arc<Table>| -> BTreeSet<i32> { listed(table).into_keys().collect() };
    let leader = led(&served).unwrap();
    let there = keys_of(&leader);
    let missing: Vec<_> = acknowledged.difference(&there).collect();
    assert!(
        missing.is_empty(),
        "seed {seed}: {missing:?} were acknowledged"
    );
    drop(leader);
    for node in &mut nodes {
        node.stop();
    }
    for node in &nodes {
        let (_store, applier) = open(&node.path(), timeline, &options(), None).unwrap();
        let found = keys_of(&applier.tables()[&KEYED]);
        assert!(found.is_superset(&acknowledged), "node {:?}", node.id);
        assert!(applier.tables().contains_key(&BAG));
    }
}
