//! A node of an experiment's own, and its clients.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How long a node may take to get ready.
const READY: Duration = Duration::from_secs(30);

/// A node that ends with this value.
pub(crate) struct Node {
    child: Child,
    program: PathBuf,
    scratch: PathBuf,
    url: String,
}

impl Node {
    /// Starts a node with its data in `scratch`, and waits until it is ready.
    pub(crate) fn start(program: &Path, scratch: &Path) -> Result<Node> {
        let log = scratch.join("node.log");
        let output =
            File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let child = Command::new(program)
            .args([
                "serve",
                "--listen",
                "127.0.0.1:0",
                "--http",
                "127.0.0.1:0",
                "--data",
            ])
            .arg(scratch.join("data"))
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .context("cannot start a node")?;
        let mut node = Node {
            child,
            program: program.to_owned(),
            scratch: scratch.to_owned(),
            url: String::new(),
        };
        let address = await_address(&mut node.child, &log, READY)?;
        node.url = format!("postgres://aerostat@{address}");
        Ok(node)
    }

    /// Runs a client of the program against the node.
    pub(crate) fn client(&self, arguments: &[&str]) -> Result<()> {
        let output = Command::new(&self.program)
            .args(arguments)
            .args(["--url", &self.url])
            .stdin(Stdio::null())
            .output()
            .context("cannot start a client")?;
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            bail!("`{}` failed: {}", arguments.join(" "), errors.trim());
        }
        Ok(())
    }

    /// Loads the star schema benchmark into a tenant's database, which is made.
    ///
    /// # Errors
    /// The client's.
    pub(crate) fn load_ssb(&self, tenant: &str, scale: f64) -> Result<()> {
        let scale = scale.to_string();
        self.client(&["load", "ssb", "--tenant", tenant, "--scale", &scale])
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Where its data and its log are.
    pub(crate) fn scratch(&self) -> &Path {
        &self.scratch
    }

    /// How to connect to a tenant's database.
    ///
    /// # Errors
    /// None, unless the node told an address that is none.
    pub(crate) fn config(&self, tenant: &str) -> Result<tokio_postgres::Config> {
        let url = format!("{}/{tenant}", self.url);
        url.parse().with_context(|| format!("{url} is no address"))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Its data were the experiment's.
        let _ = std::fs::remove_dir_all(&self.scratch);
    }
}

/// Waits until a node that logs there listens, and says at which address.
///
/// # Errors
/// It has ended, or it takes longer than that.
pub(crate) fn await_address(child: &mut Child, log: &Path, at_most: Duration) -> Result<String> {
    let started = Instant::now();
    loop {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        if let Some(address) = address(&text) {
            return Ok(address.to_owned());
        }
        if let Some(status) = child.try_wait()? {
            bail!("the node ended ({status}): {}", text.trim());
        }
        if started.elapsed() > at_most {
            bail!("the node does not get ready: {}", text.trim());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The address at which a node that logs so listens.
fn address(log: &str) -> Option<&str> {
    let ready = log.lines().find(|line| line.contains("ready listen="))?;
    ready.split("listen=").nth(1)?.split(' ').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nodes_address_is_in_its_log() {
        let log = "INFO x: starting\n2026 INFO aerostat::serve: ready listen=127.0.0.1:45331 http=127.0.0.1:3\n";
        assert_eq!(address(log), Some("127.0.0.1:45331"));
        assert_eq!(address("INFO x: starting listen=1.1.1.1:1\n"), None);
    }
}
