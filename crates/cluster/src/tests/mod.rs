//! Nodes of a cluster in one process, with folders, threads and sockets of this machine.

mod joining;
mod moving;
mod nodes;
mod placing;

use std::{
    net::SocketAddr,
    num::NonZeroU8,
    path::Path,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use aerostat_catalog::{
    Actor, Database,
    admin::{BOOTSTRAP, Holders, Host, Node, NodeError, Opening, Shared},
    ddl::CommandResult,
};
use aerostat_memory::Governor;
use aerostat_replication::Settings;
use aerostat_sql::utility::{self, Utility};
use aerostat_storage::backup::Folders;
use aerostat_transport::Transport;
use aerostat_txn::CancelToken;
use aerostat_types::{ByteSize, SqlError};

use crate::{Build, Census, Cluster, Identity, JoinError, Pace, Setup, Space, shared};

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

/// Sessions are the tests' own, which end in time.
struct Nobody;

impl Holders for Nobody {
    fn end_sessions(&self, _database: &Database) {}

    fn have_leave(&self, _database: &Database) {}

    fn let_go(&self, _database: &Database) {}
}

/// A node that runs.
pub(crate) struct TestNode {
    pub(crate) cluster: Option<Cluster>,
    pub(crate) node: Arc<Node>,
}

impl Drop for TestNode {
    fn drop(&mut self) {
        self.cluster = None;
    }
}

fn build() -> Build {
    Build::here("1.0.0", "tests")
}

fn join(
    space: &Space,
    data: &Path,
    name: &str,
    addresses: (SocketAddr, SocketAddr),
) -> Result<Identity, JoinError> {
    crate::join(space, data, name, addresses, &build())
}

fn clients() -> SocketAddr {
    "127.0.0.1:5433".parse().unwrap()
}

fn host(shared: Option<Shared>) -> Host {
    let mut host = Host::new(Governor::new(ByteSize(1 << 30)), Arc::new(Folders));
    host.shared = shared;
    host
}

/// A node of which new databases have so many copies, or one on each node, and that has others lead what it does.
fn try_start(
    space: &Space,
    data: &Path,
    name: &str,
    (copies, spreads): (Option<NonZeroU8>, bool),
) -> Result<TestNode, NodeError> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let identity = join(space, data, name, (address, clients())).unwrap();
    let census = Arc::new(Census::new(space, &identity, true, (build(), None)).unwrap());
    let shared = shared(space, &identity, &census, copies).unwrap();
    let node = Arc::new(Node::open(data, host(Some(shared)), Opening::Eager)?);
    let setup = Setup {
        identity,
        space: space.clone(),
        node: Arc::clone(&node),
        holders: Arc::new(Nobody),
        listener,
        transport: Transport::plain(),
        door: Arc::new(()),
        sessions: Arc::default(),
        settings: settings(),
        census,
        time_used: Arc::new(|_| Duration::ZERO),
        pace: Pace {
            every: Duration::from_millis(100),
            replace_after: Duration::from_secs(2),
            spreads,
        },
    };
    let cluster = Cluster::start(setup).unwrap();
    Ok(TestNode {
        cluster: Some(cluster),
        node,
    })
}

pub(crate) fn start(space: &Space, data: &Path, name: &str) -> TestNode {
    try_start(space, data, name, (None, false)).unwrap()
}

pub(crate) fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "not {what} within half a minute"
        );
        thread::sleep(Duration::from_millis(5));
    }
}

impl TestNode {
    fn database(&self, name: &str) -> Option<Arc<Database>> {
        self.node.database(name)
    }

    pub(crate) fn leads(&self, name: &str) -> bool {
        self.database(name)
            .is_some_and(|database| database.takes_changes())
    }

    fn shows(&self, name: &str) -> bool {
        let database = self.database(name);
        database.is_some_and(|database| database.copy.as_ref().is_some_and(|copy| copy.is_shown()))
    }

    /// Whether commits wait for as many nodes.
    fn has_members(&self, name: &str, count: usize) -> bool {
        let database = self.database(name);
        let copy = database.and_then(|database| database.copy.clone());
        copy.is_some_and(|copy| copy.facts().members.len() == count)
    }

    fn actor(&self) -> Actor {
        let database = self.database(BOOTSTRAP).unwrap();
        self.node
            .actor(BOOTSTRAP, &database, vec!["public".to_owned()])
            .unwrap()
    }

    fn run(&self, sql: &str) -> Result<CommandResult, SqlError> {
        let (actor, current) = (self.actor(), self.database(BOOTSTRAP).unwrap());
        match utility::parse(sql)?.unwrap() {
            Utility::Database(command) => {
                let cancel = CancelToken::new();
                self.node
                    .execute_database(&actor, &current, &command, &Nobody, &cancel)
            }
            Utility::Role(command) => self.node.execute_role(&actor, &command),
            Utility::Node(command) => self.node.execute_node(&actor, &command),
            other => panic!("not the node's: {other:?}"),
        }
    }

    pub(crate) fn ok(&self, sql: &str) {
        if let Err(error) = self.run(sql) {
            panic!("{sql}: {error:?}");
        }
    }

    /// Defines something in a database: its schema `public` has a comment.
    fn comment(&self, name: &str, text: &str) -> Result<(), SqlError> {
        let database = self.database(name).expect("it is open");
        database.define(|draft| {
            let mut change = draft.change()?;
            change.state.schema_mut("public")?.comment = Some(text.to_owned());
            change.publish()
        })
    }

    fn comment_of(&self, name: &str) -> Option<String> {
        let catalog = self.database(name)?.catalog.load();
        catalog.schemas["public"].comment.clone()
    }
}
