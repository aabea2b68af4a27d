//! The server that is tested with: the one that `AEROSTAT_TEST_POSTGRES` names, or a PostgreSQL
//! of our own in a private folder on a free port, if its programs are installed.

use std::fs::File;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio_postgres::{Config, NoTls};

/// Where Debian keeps a version's programs.
const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";

/// The user `nobody`, which every Linux has. PostgreSQL does not run as root.
const NOBODY: u32 = 65_534;

/// How long a server may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server to ask. One of our own ends with this.
pub(crate) struct Server {
    pub(crate) config: Config,
    _own: Option<Own>,
}

struct Own {
    process: Child,
    _folder: TempDir,
}

impl Server {
    /// The server there is. Where there is none, says so.
    pub(crate) async fn find() -> Option<Self> {
        if let Ok(url) = std::env::var("AEROSTAT_TEST_POSTGRES") {
            return Some(Self {
                config: url.parse().unwrap(),
                _own: None,
            });
        }
        let programs = Path::new(PROGRAMS);
        if !programs.join("initdb").exists() {
            eprintln!(
                "skipped: the workload against a server (no AEROSTAT_TEST_POSTGRES and no \
                 {PROGRAMS}/initdb; scripts/setup postgres)"
            );
            return None;
        }
        Some(Self::start(programs).await)
    }

    async fn start(programs: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let is_root = folder.path().metadata().unwrap().uid() == 0;
        if is_root {
            chown(folder.path(), Some(NOBODY), Some(NOBODY)).unwrap();
        }
        let log = folder.path().join("log");
        let output = File::create(&log).unwrap();
        let program = |name: &str| {
            let mut command = Command::new(programs.join(name));
            command
                .current_dir(folder.path())
                .stdin(Stdio::null())
                .stdout(output.try_clone().unwrap())
                .stderr(output.try_clone().unwrap());
            if is_root {
                command.uid(NOBODY).gid(NOBODY);
            }
            command
        };
        let made = program("initdb")
            .args(["--pgdata=data", "--username=aerostat", "--auth=trust"])
            .args(["--encoding=UTF8", "--locale=C", "--no-sync"])
            .status()
            .unwrap();
        let told = || std::fs::read_to_string(&log).unwrap_or_default();
        assert!(made.success(), "initdb failed:\n{}", told());
        let port = free_port();
        let process = program("postgres")
            .args(["-D", "data", "-k", "", "-h", "127.0.0.1"])
            .args(["-p", &port.to_string(), "-F"])
            .spawn()
            .unwrap();
        let mut config = Config::new();
        config
            .host("127.0.0.1")
            .port(port)
            .user("aerostat")
            .dbname("postgres")
            .connect_timeout(PATIENCE);
        // It ends also if it does not answer.
        let server = Self {
            config,
            _own: Some(Own {
                process,
                _folder: folder,
            }),
        };
        let started = Instant::now();
        while let Err(error) = server.config.connect(NoTls).await {
            let waited = started.elapsed();
            assert!(waited < PATIENCE, "no answer ({error}):\n{}", told());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        server
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // A fast shutdown, so that it leaves no shared memory behind.
        let process = self.process.id().to_string();
        let asked = Command::new("kill").args(["-INT", &process]).status();
        if asked.is_ok_and(|status| status.success()) {
            self.process.wait().ok();
        }
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}
