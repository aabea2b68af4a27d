//! The processes: how a node is started, killed, and started again on what it left.

use std::fs::File;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// Address space of a node under test: whatever makes it ask for this much is a defect that must
/// not take the machine down with it.
const ADDRESS_SPACE_KIB_MAX: u64 = 8 << 20;

/// How much of a log a failure shows.
const LOG_LINES_MAX: usize = 25;

/// One node's process, folder and addresses, which stay the same when it is started again.
pub(crate) struct Node {
    pub(crate) name: &'static str,
    pub(crate) sql: SocketAddr,
    http: SocketAddr,
    peer: SocketAddr,
    folder: PathBuf,
    /// What all copies share; none of a node that is alone.
    cluster: Option<PathBuf>,
    child: Option<Child>,
}

/// The binary under test, if there is one.
pub(crate) fn binary() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("AEROSTAT_BIN") {
        if named.is_empty() {
            return None;
        }
        let named = PathBuf::from(named);
        assert!(named.exists(), "AEROSTAT_BIN: no {}", named.display());
        return Some(named.canonicalize().unwrap());
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or(root.join("target"), PathBuf::from);
    let built = target.join("release/aerostat");
    if !built.exists() {
        eprintln!(
            "skipped: nodes that are killed (no AEROSTAT_BIN and no {})",
            built.display()
        );
        return None;
    }
    Some(built)
}

/// Whether the binary knows of copies.
pub(crate) fn has_copies(binary: &Path) -> bool {
    let help = command(binary).args(["serve", "--help"]).output().unwrap();
    String::from_utf8_lossy(&help.stdout).contains("--cluster")
}

/// A command of the binary, without the settings of whoever runs the tests.
fn command(binary: &Path) -> Command {
    let mut command = Command::new("sh");
    let script = format!("ulimit -v {ADDRESS_SPACE_KIB_MAX}; exec \"$0\" \"$@\"");
    command.args(["-c", &script]).arg(binary);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("AEROSTAT_") || text.starts_with("PG") {
            command.env_remove(&name);
        }
    }
    command
}

/// A loopback address that nobody uses now, below the ports that clients are given.
fn free_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id() % 200 * 100;
    loop {
        let port = 10_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        if let Ok(listener) = TcpListener::bind(("127.0.0.1", u16::try_from(port).unwrap())) {
            return listener.local_addr().unwrap();
        }
    }
}

impl Node {
    /// A node that is not started yet, with its folder below `root`.
    pub(crate) fn new(name: &'static str, root: &Path, cluster: Option<&Path>) -> Self {
        let folder = root.join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Self {
            name,
            sql: free_address(),
            http: free_address(),
            peer: free_address(),
            folder,
            cluster: cluster.map(Path::to_path_buf),
            child: None,
        }
    }

    /// What the process is told.
    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            "serve".to_owned(),
            format!("--data={}", self.folder.join("data").display()),
            format!("--listen={}", self.sql),
            format!("--http={}", self.http),
            "--memory=256MB".to_owned(),
        ];
        if let Some(cluster) = &self.cluster {
            arguments.extend([
                format!("--cluster=file://{}", cluster.display()),
                format!("--node-name={}", self.name),
                format!("--peer-listen={}", self.peer),
                "--copies=all".to_owned(),
            ]);
        }
        arguments
    }

    /// Starts the process on what is in its folder.
    pub(crate) fn start(&mut self, binary: &Path) {
        assert!(self.child.is_none(), "node {} runs already", self.name);
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.folder.join("node.log"))
            .unwrap();
        let child = command(binary)
            .args(self.arguments())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        self.child = Some(child.unwrap());
    }

    /// Ends the process by SIGKILL, if it runs.
    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Sends a signal, such as `STOP`, if the process runs.
    pub(crate) fn signal(&self, name: &str) {
        if let Some(child) = &self.child {
            let (flag, process) = (format!("-{name}"), child.id().to_string());
            let status = Command::new("kill").args([flag, process]).status();
            assert!(
                status.unwrap().success(),
                "no signal {name} to {}",
                self.name
            );
        }
    }

    pub(crate) fn is_started(&self) -> bool {
        self.child.is_some()
    }

    /// How the process ended, if it did so by itself.
    pub(crate) fn ended(&mut self) -> Option<String> {
        let status = self.child.as_mut()?.try_wait().unwrap()?;
        Some(format!(
            "node {} ended with {status}:\n{}",
            self.name,
            self.log_end()
        ))
    }

    /// The last lines of what the node logged.
    pub(crate) fn log_end(&self) -> String {
        let log = std::fs::read_to_string(self.folder.join("node.log")).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES_MAX)..].join("\n")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().ok();
            child.wait().ok();
        }
    }
}
