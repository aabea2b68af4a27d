//! A cluster of an experiment's own: nodes that have as little of the machine each as a group of processes may be given,
//! which are killed and started again, and clients that go by whichever node runs.

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use aerostat_workload::drive::pg::{PgClient, PgConnect, Protocol, fetch_text};
use aerostat_workload::drive::{Client, ClientError, Connect};
use aerostat_workload::load;
use aerostat_workload::ssb::QUERIES;
use anyhow::{Context, Result, bail};
use tokio::runtime::Runtime;
use tokio_postgres::Config;

use crate::environment::Limits;
use crate::node::await_address;
use crate::place::Group;

/// How long a node may take to get ready, which has little of a processor.
const READY: Duration = Duration::from_secs(120);

/// How long it may take until all copies have all.
const CURRENT: Duration = Duration::from_secs(120);

/// How long a client uses a connection, as pools do: else a node that comes back would have nothing to do.
const LIFETIME: Duration = Duration::from_secs(10);

/// How long a client tries to get an answer, by one node after another.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long a node may take to let a client in.
const CONNECT: Duration = Duration::from_secs(3);

/// Between two attempts of a client.
const AGAIN: Duration = Duration::from_millis(20);

/// A node's place: what stays when its process ends.
struct Place {
    folder: PathBuf,
    port: u16,
    peer_port: u16,
    child: Option<Child>,
    _group: Group,
    /// Of that group.
    folders: Vec<PathBuf>,
}

/// A cluster that ends with this value.
pub(crate) struct Fleet {
    program: PathBuf,
    scratch: PathBuf,
    memory: String,
    places: Vec<Place>,
    runtime: Runtime,
}

/// Names are in the order of numbers.
fn node_name(node: usize) -> String {
    format!("n{node:02}")
}

/// A port that was free a moment ago.
fn free_port() -> Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0").context("no port is free")?;
    Ok(listener.local_addr()?.port())
}

impl Fleet {
    /// Starts so many nodes with their data in `scratch`, each with a group that has these limits, and waits until they know
    /// each other.
    ///
    /// # Errors
    /// No group can be made here, or a node does not start.
    pub(crate) fn start(
        program: &Path,
        scratch: &Path,
        helper: &(PathBuf, Vec<String>),
        count: usize,
        limits: Limits,
    ) -> Result<Fleet> {
        let mut fleet = Fleet {
            program: program.to_owned(),
            scratch: scratch.to_owned(),
            memory: format!("{}MB", limits.memory_mib / 2),
            places: Vec::new(),
            runtime: tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .context("cannot start the clients")?,
        };
        for node in 0..count {
            let name = format!("aerostat-lab-{}-node{node}", std::process::id());
            let group = Group::new(limits, helper, &name)?;
            let folder = scratch.join(format!("n{node}"));
            fs::create_dir_all(&folder)?;
            fleet.places.push(Place {
                folder,
                port: free_port()?,
                peer_port: free_port()?,
                child: None,
                folders: group.folders().to_vec(),
                _group: group,
            });
        }
        for node in 0..count {
            fleet.spawn(node)?;
            fleet.await_ready(node)?;
        }
        let known =
            format!("SELECT count(*) >= {count} FROM aerostat.cluster_nodes WHERE state = 'up'");
        fleet.await_true(&known)?;
        Ok(fleet)
    }

    /// How many nodes there are.
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// Their processes.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let children = self.places.iter().filter_map(|place| place.child.as_ref());
        children.map(Child::id).collect()
    }

    fn log(&self, node: usize) -> PathBuf {
        self.places[node].folder.join("node.log")
    }

    fn spawn(&mut self, node: usize) -> Result<()> {
        let log = self.log(node);
        let output =
            File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let place = &mut self.places[node];
        // The process is in its group before it is a node.
        let mut command = Command::new("sh");
        command.arg("-c").arg(
            "while [ \"$1\" != -- ]; do echo $$ > \"$1/cgroup.procs\" || exit 1; shift; done; shift; exec \"$@\"",
        );
        command.arg("sh").args(&place.folders).arg("--");
        let child = command
            .arg(&self.program)
            .args(["serve", "--listen", &format!("127.0.0.1:{}", place.port)])
            .args(["--http", "127.0.0.1:0", "--memory", &self.memory])
            .args(["--peer-listen", &format!("127.0.0.1:{}", place.peer_port)])
            .args(["--node-name", &node_name(node)])
            .arg("--cluster")
            .arg(format!("file://{}", self.scratch.join("shared").display()))
            .arg("--data")
            .arg(place.folder.join("data"))
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .context("cannot start a node")?;
        place.child = Some(child);
        Ok(())
    }

    fn await_ready(&mut self, node: usize) -> Result<()> {
        let log = self.log(node);
        let child = self.places[node].child.as_mut().context("no process")?;
        await_address(child, &log, READY)?;
        Ok(())
    }

    /// Ends a node as a power failure of its machine would.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn kill(&mut self, node: usize) -> Result<()> {
        if let Some(mut child) = self.places[node].child.take() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// Starts a node again, and waits until it serves.
    ///
    /// # Errors
    /// It does not start.
    pub(crate) fn restart(&mut self, node: usize) -> Result<()> {
        self.spawn(node)?;
        self.await_ready(node)
    }

    /// How to connect to a database by a node.
    ///
    /// # Errors
    /// None.
    fn config(&self, node: usize, database: &str) -> Result<Config> {
        let port = self.places[node].port;
        let url = format!("postgres://aerostat@127.0.0.1:{port}/{database}");
        url.parse().with_context(|| format!("{url} is no address"))
    }

    /// Runs a statement by a node; its result's first value, or nothing.
    ///
    /// # Errors
    /// When it fails.
    pub(crate) fn text(&self, node: usize, database: &str, sql: &str) -> Result<String> {
        let config = self.config(node, database)?;
        let rows = self.runtime.block_on(async {
            let client = load::connect(&config.into()).await?;
            anyhow::Ok(fetch_text(&client, sql).await?)
        });
        let rows = rows.with_context(|| format!("{sql} failed"))?;
        let first = rows
            .into_iter()
            .next()
            .and_then(|row| row.into_iter().next());
        Ok(first.flatten().unwrap_or_default())
    }

    fn await_true(&self, sql: &str) -> Result<()> {
        let started = Instant::now();
        loop {
            let found = self.text(0, "aerostat", sql);
            if matches!(&found, Ok(found) if found == "t" || found == "true") {
                return Ok(());
            }
            if started.elapsed() > CURRENT {
                bail!("not in time: {sql} ({found:?})");
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Waits until every copy of every database has all.
    ///
    /// # Errors
    /// It takes too long.
    pub(crate) fn await_current(&self) -> Result<()> {
        self.await_true(
            "SELECT count(*) = 0 FROM aerostat.cluster_databases WHERE name LIKE 'tenant%' AND current IS DISTINCT FROM nodes",
        )
    }

    /// Makes a database with copies on these nodes, by one of them, and loads the star schema benchmark into it.
    ///
    /// # Errors
    /// The client's.
    pub(crate) fn load_ssb(
        &self,
        tenant: &str,
        by: usize,
        nodes: &[usize],
        scale: f64,
    ) -> Result<()> {
        let names: Vec<String> = nodes.iter().map(|node| node_name(*node)).collect();
        let made = format!(
            "CREATE DATABASE {tenant} WITH (nodes = '{}')",
            names.join(", ")
        );
        self.text(by, "aerostat", &made)?;
        let url = format!("postgres://aerostat@127.0.0.1:{}", self.places[by].port);
        let scale = scale.to_string();
        let output = Command::new(&self.program)
            .args([
                "load", "ssb", "--tenant", tenant, "--scale", &scale, "--url", &url,
            ])
            .stdin(Stdio::null())
            .output()
            .context("cannot start a client")?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            bail!("loading {tenant} failed: {}", errors.trim());
        }
        Ok(())
    }

    /// Clients of a database who only read, by any node.
    ///
    /// # Errors
    /// None.
    pub(crate) fn readers(&self, tenant: &str) -> Result<Readers> {
        let queries: Vec<String> = QUERIES.iter().map(|query| query.sql.to_owned()).collect();
        let by = |node: usize| {
            let mut config = self.config(node, tenant)?;
            config.options("-c default_transaction_read_only=on");
            Ok(config.into())
        };
        let servers = (0..self.len()).map(by).collect::<Result<_>>()?;
        Ok(Readers {
            // A new connection's statements cost what those of an old one do.
            connect: Arc::new(PgConnect::new(servers, queries, Protocol::Simple)),
            nodes: self.len(),
            turn: AtomicUsize::new(0),
        })
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for place in &mut self.places {
            if let Some(mut child) = place.child.take() {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        // Their data were the experiment's.
        let _ = fs::remove_dir_all(&self.scratch);
    }
}

/// Clients of a database, each of which goes to the next node where one does not answer.
pub(crate) struct Readers {
    /// By each node.
    connect: Arc<PgConnect>,
    nodes: usize,
    turn: AtomicUsize,
}

impl Connect for Readers {
    type Client = ReadersClient;

    async fn connect(&self, _tenant: usize) -> Result<ReadersClient, ClientError> {
        Ok(ReadersClient {
            connect: Arc::clone(&self.connect),
            nodes: self.nodes,
            node: self.turn.fetch_add(1, Ordering::Relaxed),
            session: None,
        })
    }
}

/// One of them.
pub(crate) struct ReadersClient {
    connect: Arc<PgConnect>,
    nodes: usize,
    /// The node that is tried next.
    node: usize,
    session: Option<(PgClient, Instant)>,
}

impl ReadersClient {
    async fn session(&mut self) -> Result<PgClient, ClientError> {
        self.node = (self.node + 1) % self.nodes;
        let connecting = self.connect.connect(self.node);
        match tokio::time::timeout(CONNECT, connecting).await {
            Ok(connected) => connected,
            Err(_) => Err(ClientError::Connect("it says nothing".into())),
        }
    }

    async fn try_once(&mut self, query: usize) -> Result<u64, ClientError> {
        let kept = self
            .session
            .take()
            .filter(|(_, at)| at.elapsed() < LIFETIME);
        let (mut client, at) = match kept {
            Some(kept) => kept,
            None => (self.session().await?, Instant::now()),
        };
        let rows = client.run(query).await?;
        self.session = Some((client, at));
        Ok(rows)
    }
}

impl Client for ReadersClient {
    async fn run(&mut self, query: usize) -> Result<u64, ClientError> {
        let begun = Instant::now();
        loop {
            match self.try_once(query).await {
                Err(error) if begun.elapsed() < PATIENCE => {
                    // Its user waits on: what is asked may be asked again.
                    drop(error);
                    tokio::time::sleep(AGAIN).await;
                }
                ended => return ended,
            }
        }
    }
}
