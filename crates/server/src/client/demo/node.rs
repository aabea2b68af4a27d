//! A node of the demo's own: this same binary as a child process.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::parse_metric;
use crate::client::Target;

/// A node starts in well under a second; a machine under load gets this long.
const START_MAX: Duration = Duration::from_secs(30);

/// A running node; dropping it ends it, unless it is kept.
pub(super) struct Node {
    child: Option<Child>,
    process_id: u32,
    sql: SocketAddr,
    http: SocketAddr,
    data: PathBuf,
    temporary: bool,
}

impl Node {
    /// Starts this binary's `serve` with its own data folder.
    ///
    /// # Errors
    /// When the process cannot be started.
    pub(super) fn start(data: Option<&Path>, port: u16) -> Result<Self> {
        let sql = free_address(port)?;
        let http = free_address(0)?;
        let temporary = data.is_none();
        let data = match data {
            Some(data) => data.to_owned(),
            None => std::env::temp_dir().join(format!("aerostat-demo-{}", std::process::id())),
        };
        std::fs::create_dir_all(&data)
            .with_context(|| format!("cannot make {}", data.display()))?;
        let log =
            std::fs::File::create(data.join("node.log")).context("cannot write the node's log")?;
        let binary = std::env::current_exe().context("cannot find this binary")?;
        let child = Command::new(binary)
            .arg("serve")
            .args(["--listen", &sql.to_string(), "--http", &http.to_string()])
            .arg("--data")
            .arg(&data)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .context("cannot start a node")?;
        let process_id = child.id();
        Ok(Self {
            child: Some(child),
            process_id,
            sql,
            http,
            data,
            temporary,
        })
    }

    /// Waits until the node answers.
    ///
    /// # Errors
    /// When it does not within [`START_MAX`]; the message has the end of its log.
    pub(super) async fn wait_until_ready(&mut self) -> Result<()> {
        let started = Instant::now();
        while started.elapsed() < START_MAX {
            if let Some(child) = &mut self.child
                && child.try_wait()?.is_some()
            {
                break;
            }
            if self
                .ask("/healthz")
                .await
                .is_ok_and(|answer| answer.contains(" 200 "))
            {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let log = std::fs::read_to_string(self.data.join("node.log")).unwrap_or_default();
        bail!("the node did not start; its log says:\n{log}")
    }

    /// What each tenant holds, from `/metrics`.
    ///
    /// # Errors
    /// When the node does not answer.
    pub(super) async fn memory_by_tenant(&self) -> Result<BTreeMap<String, u64>> {
        parse_metric(
            &self.ask("/metrics").await?,
            "aerostat_tenant_memory_used_bytes",
        )
    }

    async fn ask(&self, path: &str) -> Result<String> {
        let mut stream = TcpStream::connect(self.http).await?;
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n",
            self.http
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        Ok(answer)
    }

    /// Where it listens.
    pub(super) fn target(&self) -> Target {
        Target {
            url: format!("postgres://aerostat@{}", self.sql),
            trust: None,
        }
    }

    /// The SQL port.
    pub(super) fn port(&self) -> u16 {
        self.sql.port()
    }

    /// The process's number.
    pub(super) fn process_id(&self) -> u32 {
        self.process_id
    }

    /// The data folder.
    pub(super) fn data(&self) -> &Path {
        &self.data
    }

    /// Leaves it running when this value is dropped.
    pub(super) fn keep(&mut self) {
        self.child = None;
        self.temporary = false;
    }

    /// Stops it as an operator would, by SIGTERM, and waits.
    ///
    /// # Errors
    /// When it ends with a failure.
    pub(super) fn stop(mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        let asked = Command::new("kill")
            .arg(self.process_id.to_string())
            .status();
        if !asked.is_ok_and(|status| status.success()) {
            child.kill().context("cannot stop the node")?;
        }
        let status = child.wait().context("cannot wait for the node")?;
        ensure!(status.success(), "the node ended with {status}");
        Ok(())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Only after an error, which matters more than what goes wrong here.
            child.kill().ok();
            child.wait().ok();
        }
        if self.temporary {
            std::fs::remove_dir_all(&self.data).ok();
        }
    }
}

/// A loopback address nobody uses now, at this port or at any.
fn free_address(port: u16) -> Result<SocketAddr> {
    let listener =
        TcpListener::bind(("127.0.0.1", port)).with_context(|| format!("port {port} is taken"))?;
    Ok(listener.local_addr()?)
}
