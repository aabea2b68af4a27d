//! A node to test against: started, waited for, and ended by its own process id.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio_postgres::{Client, Config, NoTls};

/// The binary under test.
pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_aerostat");

/// What a program has said that has ended, and what of it as errors.
pub(crate) fn said(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8(all).unwrap()
}

/// How long anything may take before a test calls it a hang.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A running node; dropping it kills it.
pub(crate) struct Aerostat {
    child: Child,
    pub(crate) sql: SocketAddr,
    pub(crate) http: SocketAddr,
    /// The folder of the socket by which clients come who are not in its network.
    socket_dir: Option<TempDir>,
    data: Option<TempDir>,
}

/// A command of the binary, without the settings of whoever runs the tests.
pub(crate) fn command() -> Command {
    let mut command = Command::new(BINARY);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("AEROSTAT_") || text.starts_with("PG") {
            command.env_remove(&name);
        }
    }
    command
}

/// Address space of a node under test. It may use 2 GB; whatever makes it ask for
/// this much is a defect that must not take the machine down with it.
const ADDRESS_SPACE_KIB_MAX: u64 = 8 << 20;

/// That limit, or another for nodes of many databases: tables reserve addresses long before they use them.
fn address_space_kib() -> u64 {
    let given = std::env::var("TEST_ADDRESS_SPACE_KIB").ok();
    given.map_or(ADDRESS_SPACE_KIB_MAX, |text| text.parse().unwrap())
}

/// The binary, with a limit on its address space, in the control group that the environment
/// names by the file which takes its members.
fn limited_command() -> Command {
    let mut limited = Command::new("sh");
    limited.args([
        "-c",
        &format!(
            "ulimit -v {}; \
             [ -z \"$JOINED_CGROUP\" ] || echo $$ > \"$JOINED_CGROUP\"; exec \"$0\" \"$@\"",
            address_space_kib()
        ),
        BINARY,
    ]);
    for (name, value) in command().get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited
}

/// A loopback address nobody uses now. Its port is below those that clients are given, so none
/// of them gets it before a server does.
pub(crate) fn free_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id() % 200 * 100;
    loop {
        let port = 10_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        let port = u16::try_from(port).unwrap();
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) {
            return listener.local_addr().unwrap();
        }
    }
}

/// Flags, with one for memory where none of them is; and where the environment has `EVICTED`, one for
/// values that leave memory as soon as nobody reads them: a configuration in which all tests hold
/// that ask neither for bytes nor for how far the freezer is.
fn with_memory<'a>(flags: &[&'a str]) -> Vec<&'a str> {
    let memory: &[&str] = match flags.contains(&"--memory") {
        true => &[],
        false => &["--memory", "2GB"],
    };
    let evicted: &[&str] = match std::env::var_os("EVICTED") {
        Some(_) if !flags.contains(&"--evict") => &["--evict", "always"],
        _ => &[],
    };
    [memory, evicted, flags].concat()
}

impl Aerostat {
    /// Starts a node with defaults.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts a node with these flags besides.
    pub(crate) fn start_with(flags: &[&str]) -> Self {
        Self::start_on(tempfile::tempdir().unwrap(), flags)
    }

    /// Starts a node on a data folder that may be used already.
    pub(crate) fn start_on(data: TempDir, flags: &[&str]) -> Self {
        Self::start_within(data, flags, &[])
    }

    /// The same, with more in its environment.
    pub(crate) fn start_within(
        data: TempDir,
        flags: &[&str],
        environment: &[(String, String)],
    ) -> Self {
        Self::start_by(limited_command(), data, &with_memory(flags), environment)
    }

    /// Starts a node that is told nothing of memory, so that what its folder says counts.
    pub(crate) fn start_without_memory(data: TempDir) -> Self {
        Self::start_by(limited_command(), data, &[], &[])
    }

    /// Starts a node whose data folder is a disk of its own with so many MiB, which goes with
    /// it; `None` where that is not allowed. [`Self::disk`] is that folder.
    pub(crate) fn start_on_disk(mebibytes: u32, flags: &[&str]) -> Option<Self> {
        let tools = ["--mount", "--map-root-user", "sh", "-c"];
        let data = tempfile::tempdir().unwrap();
        let mount = format!(
            "mount -t tmpfs -o size={mebibytes}m,mode=700 tmpfs {}",
            data.path().display()
        );
        let mut probe = Command::new("unshare");
        probe.args(tools).arg(&mount).stderr(Stdio::null());
        if !probe.status().is_ok_and(|status| status.success()) {
            eprintln!("skipped: full disks (no tmpfs in a mount namespace of its own)");
            return None;
        }
        let mut command = Command::new("unshare");
        command
            .args(tools)
            .arg(format!("{mount} && exec \"$0\" \"$@\""))
            .arg(BINARY);
        for (name, value) in self::command().get_envs() {
            if value.is_none() {
                command.env_remove(name);
            }
        }
        Some(Self::start_by(command, data, &with_memory(flags), &[]))
    }

    /// The data folder as the node sees it.
    pub(crate) fn disk(&self) -> PathBuf {
        let root = format!("/proc/{}/root", self.child.id());
        Path::new(&root).join(self.data().strip_prefix("/").unwrap())
    }

    /// Starts a node in a network namespace, of which it listens to other nodes at an address.
    pub(crate) fn start_in(space: &str, host: Ipv4Addr, data: TempDir, flags: &[&str]) -> Self {
        let limited = limited_command();
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", space])
            .arg(limited.get_program());
        command.args(limited.get_args());
        for (name, value) in limited.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let sockets = tempfile::tempdir().unwrap();
        let folder = sockets.path().display().to_string();
        let listen = format!("{host}:6433");
        let own = ["--socket-dir", &folder, "--peer-listen", &listen];
        let flags = [&with_memory(flags)[..], &own].concat();
        let http = SocketAddr::from((host, 8433));
        let sql = SocketAddr::from(([127, 0, 0, 1], 5433));
        let mut node = Self::spawn(command, (sql, http), data, &flags, &[]);
        node.socket_dir = Some(sockets);
        node.wait_until_ready();
        node
    }

    fn start_by(
        command: Command,
        data: TempDir,
        flags: &[&str],
        environment: &[(String, String)],
    ) -> Self {
        let mut node = Self::spawn(
            command,
            (free_address(), free_address()),
            data,
            flags,
            environment,
        );
        node.wait_until_ready();
        node
    }

    fn spawn(
        mut command: Command,
        (sql, http): (SocketAddr, SocketAddr),
        data: TempDir,
        flags: &[&str],
        environment: &[(String, String)],
    ) -> Self {
        let log = File::options()
            .create(true)
            .append(true)
            .open(data.path().join("node.log"))
            .unwrap();
        let child = command
            .arg("serve")
            .args(["--listen", &sql.to_string(), "--http", &http.to_string()])
            .arg("--data")
            .arg(data.path())
            .args(flags)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Self {
            child,
            sql,
            http,
            socket_dir: None,
            data: Some(data),
        }
    }

    /// Where clients find it: a host, or a folder with its socket, and its port.
    pub(crate) fn way(&self) -> (String, u16) {
        let host = match &self.socket_dir {
            Some(folder) => folder.path().display().to_string(),
            None => self.sql.ip().to_string(),
        };
        (host, self.sql.port())
    }

    fn wait_until_ready(&mut self) {
        let started = Instant::now();
        while started.elapsed() < PATIENCE {
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the node ended at its start with {status}:\n{}", self.log());
            }
            if self
                .try_ask("/healthz")
                .is_some_and(|(status, _)| status == 200)
            {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("the node is not ready after {PATIENCE:?}:\n{}", self.log());
    }

    /// Whether the process is there.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// The data folder.
    pub(crate) fn data(&self) -> &Path {
        self.data.as_ref().unwrap().path()
    }

    /// What the node has logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.data().join("node.log")).unwrap_or_default()
    }

    /// How to connect to a database as the superuser.
    pub(crate) fn config(&self, database: &str) -> Config {
        let mut config = Config::new();
        let (host, port) = self.way();
        config
            .host(host)
            .port(port)
            .user("aerostat")
            .dbname(database)
            .connect_timeout(PATIENCE);
        config
    }

    /// A connection to a database.
    pub(crate) async fn connect(&self, database: &str) -> Client {
        let (client, connection) = self.config(database).connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// Creates a database and connects to it.
    pub(crate) async fn create(&self, database: &str) -> Client {
        let sql = format!("CREATE DATABASE {database}");
        self.connect("aerostat")
            .await
            .batch_execute(&sql)
            .await
            .unwrap();
        self.connect(database).await
    }

    /// Status and body of an HTTP page.
    pub(crate) fn ask(&self, path: &str) -> (u16, String) {
        self.try_ask(path)
            .unwrap_or_else(|| panic!("{path} does not answer:\n{}", self.log()))
    }

    fn try_ask(&self, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(self.http).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        .ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let status = answer.split(' ').nth(1)?.parse().ok()?;
        Some((status, answer.split_once("\r\n\r\n")?.1.to_owned()))
    }

    /// The value of a series in `/metrics`, 0 where there is none.
    pub(crate) fn metric(&self, series: &str) -> f64 {
        let (_, text) = self.ask("/metrics");
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.map_or(0.0, |value| value.trim().parse().unwrap())
    }

    /// Waits until the series has the value.
    pub(crate) fn wait_for_metric(&self, series: &str, value: f64) {
        let started = Instant::now();
        while self.metric(series) != value {
            assert!(
                started.elapsed() < PATIENCE,
                "{series} is {}, not {value}",
                self.metric(series)
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// What the kernel says of the process's memory.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.process_id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kilobytes = line.unwrap().trim().strip_suffix("kB").unwrap().trim();
        kilobytes.parse::<u64>().unwrap() << 10
    }

    /// The process's number.
    pub(crate) fn process_id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, such as `TERM`.
    pub(crate) fn signal(&self, name: &str) {
        send_signal(self.child.id(), name);
    }

    /// Waits for the process to end by itself.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        wait_for(&mut self.child)
    }

    /// Stops the node by SIGTERM and gives its data folder back.
    pub(crate) fn stop(mut self) -> TempDir {
        self.signal("TERM");
        let status = self.wait();
        assert!(
            status.success(),
            "the node ended with {status}:\n{}",
            self.log()
        );
        self.data.take().unwrap()
    }
}

impl Aerostat {
    /// Ends the node by SIGKILL, as a crash would, and gives its data folder back.
    pub(crate) fn kill(mut self) -> TempDir {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.data.take().unwrap()
    }
}

impl Drop for Aerostat {
    fn drop(&mut self) {
        if std::thread::panicking() && self.data.is_some() {
            if let Ok(Some(status)) = self.child.try_wait() {
                eprintln!("the node had ended with {status}");
            }
            eprintln!("the node's log:\n{}", self.log());
        }
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Sends a signal to one process.
pub(crate) fn send_signal(process: u32, name: &str) {
    let status = Command::new("kill")
        .args([&format!("-{name}"), &process.to_string()])
        .status()
        .unwrap();
    assert!(status.success());
}

/// Waits for a child, but not for ever.
pub(crate) fn wait_for(child: &mut Child) -> ExitStatus {
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        assert!(
            started.elapsed() < PATIENCE,
            "process {} does not end",
            child.id()
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The SQLSTATE of a statement that must fail.
pub(crate) async fn sqlstate(client: &Client, sql: &str) -> String {
    match client.simple_query(sql).await {
        Ok(_) => panic!("this must fail: {sql}"),
        Err(error) => error
            .code()
            .unwrap_or_else(|| panic!("no SQLSTATE: {error:?}"))
            .code()
            .to_owned(),
    }
}

/// How a node refuses whoever connects like this.
pub(crate) async fn refusal(config: &Config) -> String {
    match config.connect(NoTls).await {
        Ok(_) => panic!("this must be refused: {config:?}"),
        Err(error) => error
            .code()
            .unwrap_or_else(|| panic!("no SQLSTATE: {error:?}"))
            .code()
            .to_owned(),
    }
}

/// The first value of a query's only row.
pub(crate) async fn value(client: &Client, sql: &str) -> String {
    let messages = client
        .simple_query(sql)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    let row = messages.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    row.unwrap_or_else(|| panic!("no row: {sql}"))
        .get(0)
        .unwrap_or("NULL")
        .to_owned()
}
