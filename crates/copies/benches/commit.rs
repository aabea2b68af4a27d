//! What a commit costs that two memories have, beside one that a disk has, and one that nobody waits for. Run
//! with `cargo bench -p aerostat-copies --bench commit`, with `TMPDIR` on the disk in question. Both nodes are in
//! this process, with sockets of loopback between them. Prints medians and rates.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a benchmark"
)]

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicI64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use aerostat_copies::{
    CopyError, Inbox, Known, Links, Owner, Peers, Running, Served, Setup, Threads, run,
    seed::Seeds, serve,
};
use aerostat_memory::Governor;
use aerostat_replication::{Config, Incarnation, Member, NodeId, Settings};
use aerostat_storage::{
    Applier, CopyOf, Durability, MetaShared, MetaStore, OpenOptions, RecoverError, Table,
    TenantStore, Timeline, ValueRef,
};
use aerostat_types::{Column, CommitTs, Layout, SqlType, TableId, TableSchema, TenantId};
use tokio::{net::TcpListener, runtime::Runtime};

const TENANT: TenantId = TenantId(1);
const TABLE: TableId = TableId(1);
const LASTS: Duration = Duration::from_secs(3);

fn options(durability: Durability) -> OpenOptions {
    let mut options = OpenOptions::default();
    options.durability = durability;
    options
}

fn budget() -> Arc<aerostat_memory::Budget> {
    Governor::new("2GB".parse().unwrap()).budget("bench", None)
}

fn schema() -> Arc<TableSchema> {
    let column = |name: &str, ty| Column {
        name: name.to_owned(),
        ty,
        nullable: false,
        default: None,
    };
    Arc::new(TableSchema {
        name: "t".to_owned(),
        columns: vec![
            column("k", SqlType::BigInt),
            column("n", SqlType::BigInt),
            column("s", SqlType::Text),
        ],
        primary_key: vec![0],
        primary_key_name: "t_pkey".to_owned(),
        checks: Vec::new(),
    })
}

/// A tenant that is nobody's copy, with its table.
fn alone(folder: &Path, durability: Durability) -> (Arc<TenantStore>, Arc<Table>) {
    let (store, _) = TenantStore::open(TENANT, budget(), folder, &options(durability)).unwrap();
    let table = store.create_table(TABLE, schema(), &Layout::Row).unwrap();
    (store, table)
}

/// Commits of one row by so many threads.
fn commits(what: &str, table: &Arc<Table>, threads: usize, next: &AtomicI64) {
    let began = Instant::now();
    let text = "x".repeat(100);
    let times: Mutex<Vec<Duration>> = Mutex::default();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut own = Vec::new();
                while began.elapsed() < LASTS {
                    let key = next.fetch_add(1, Ordering::Relaxed);
                    let started = Instant::now();
                    let txn = table.store().txns().begin();
                    let row = [
                        ValueRef::I64(key),
                        ValueRef::I64(1),
                        ValueRef::Bytes(text.as_bytes()),
                    ];
                    table.insert_row(&txn, &row).unwrap();
                    txn.commit().unwrap();
                    own.push(started.elapsed());
                }
                times.lock().unwrap().extend(own);
            });
        }
    });
    let mut times = times.into_inner().unwrap();
    times.sort_unstable();
    let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e6;
    println!(
        "{what:<16} {threads} threads: {:>8.0} /s, p50 {:>6.0} us, p99 {:>6.0} us",
        times.len() as f64 / began.elapsed().as_secs_f64(),
        at(0.5),
        at(0.99)
    );
}

struct Node {
    folder: PathBuf,
    timeline: Timeline,
    led: Arc<Mutex<Option<Arc<Table>>>>,
}

fn open_copy(
    folder: &Path,
    timeline: Timeline,
    through: Option<CommitTs>,
) -> Result<(Arc<TenantStore>, Applier), RecoverError> {
    let of = CopyOf { timeline, through };
    let options = options(Durability::None);
    let opened = TenantStore::open_copy(TENANT, budget(), folder, &options, of);
    opened.map(|(store, _, applier)| (store, applier))
}

impl Owner for Node {
    fn reopen(&mut self, through: CommitTs) -> Result<(Arc<TenantStore>, Applier), RecoverError> {
        open_copy(&self.folder, self.timeline, Some(through))
    }

    fn defined(&mut self, _catalog: &Arc<[u8]>, _tables: &BTreeMap<TableId, Arc<Table>>) {}

    fn leads(&mut self, _store: &Arc<TenantStore>, tables: &BTreeMap<TableId, Arc<Table>>) {
        *self.led.lock().unwrap() = tables.get(&TABLE).cloned();
    }

    fn follows(&mut self) {}

    fn quieten(&mut self, _quiet: bool) {}

    fn knows(&mut self, _known: &Known) {}

    fn lacks_log(&mut self, _node: NodeId) {}

    fn ended(&mut self, error: CopyError) {
        println!("a copy ended: {error:?}");
    }
}

/// Runs a node on its folder.
fn node(
    id: u32,
    folder: &Path,
    timeline: Timeline,
    (listener, addresses): (TcpListener, Vec<SocketAddr>),
    configurations: &Arc<MetaShared>,
    runtime: &Runtime,
) -> (Running, Arc<Mutex<Option<Arc<Table>>>>) {
    let me = Member {
        node: NodeId(id),
        incarnation: Incarnation(1),
    };
    let led = Arc::default();
    let inbox: Arc<Mutex<Option<Inbox>>> = Arc::default();
    let known = Arc::clone(&inbox);
    let route = Arc::new(move |_| known.lock().unwrap().clone());
    let peers = Peers::plain(move |node| addresses.get(node.0 as usize).copied());
    let served = Served {
        door: Arc::new(()),
        me: NodeId(id),
        token: Arc::default(),
        peers: peers.clone(),
        route,
        seeds: Seeds::none(),
        sessions: Arc::default(),
    };
    runtime.spawn(serve(listener, served));
    let handle = runtime.handle().clone();
    let setup = Setup {
        me,
        settings: Settings::default(),
        is_first: id == 0,
        has_lost: false,
        configurations: Arc::clone(configurations) as _,
        links: Links::new(handle, peers, TENANT, me, Vec::new()),
        owner: Box::new(Node {
            folder: folder.to_owned(),
            timeline,
            led: Arc::clone(&led),
        }),
        threads: Threads::new().unwrap(),
    };
    let running = run(setup, open_copy(folder, timeline, None).unwrap());
    *inbox.lock().unwrap() = Some(running.inbox().clone());
    (running, led)
}

fn main() {
    for durability in [Durability::None, Durability::Fsync] {
        let folder = tempfile::tempdir().unwrap();
        let (_store, table) = alone(&folder.path().join("tenant"), durability);
        let next = AtomicI64::new(0);
        for threads in [1, 8] {
            commits(&format!("{durability:?}"), &table, threads, &next);
        }
    }
    let folders = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let paths = [0, 1].map(|at: usize| folders[at].path().join("tenant"));
    let timeline = alone(&paths[0], Durability::None).0.timeline().unwrap();
    let shared = tempfile::tempdir().unwrap();
    let configurations = Arc::new(MetaShared::open(shared.path()).unwrap());
    let runtime = Runtime::new().unwrap();
    let bind = || runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let listeners = [bind(), bind()];
    let addresses: Vec<SocketAddr> = listeners
        .iter()
        .map(|listener| listener.local_addr().unwrap())
        .collect();
    let mut nodes = Vec::new();
    for (id, listener) in listeners.into_iter().enumerate() {
        let ways = (listener, addresses.clone());
        let (id, path) = (id as u32, &paths[id]);
        nodes.push(node(id, path, timeline, ways, &configurations, &runtime));
    }
    let members = || {
        let found = configurations.load().unwrap();
        let config = found.map(|found| serde_json::from_slice::<Config>(&found.document).unwrap());
        config.map_or(0, |config| config.members.len())
    };
    while members() < 2 {
        thread::sleep(Duration::from_millis(10));
    }
    let table = nodes[0].1.lock().unwrap().clone().unwrap();
    let next = AtomicI64::new(0);
    for threads in [1, 8] {
        commits("memory2", &table, threads, &next);
    }
}
