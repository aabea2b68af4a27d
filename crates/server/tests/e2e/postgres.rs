//! A real PostgreSQL, which says what is right: the one that `POSTGRES_URL` names, or one
//! of our own in a private folder on a free port, if its programs are installed.

use std::fs::File;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio_postgres::config::Host;
use tokio_postgres::{Client, Config, NoTls};

use crate::harness::{PATIENCE, free_address, send_signal, wait_for};

/// Where Debian keeps a version's programs. The expectations are those of version 15.
const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";

/// The user `nobody`, which every Linux has. PostgreSQL does not run as root.
const NOBODY: u32 = 65_534;

/// A PostgreSQL to ask. One of our own ends with this.
pub(crate) struct Postgres {
    config: Config,
    _own: Option<Own>,
}

struct Own {
    server: Child,
    _folder: TempDir,
}

impl Postgres {
    /// The PostgreSQL there is. Where there is none, says so.
    pub(crate) async fn find() -> Option<Self> {
        if let Ok(url) = std::env::var("POSTGRES_URL") {
            return Some(Self {
                config: url.parse().unwrap(),
                _own: None,
            });
        }
        let programs = Path::new(PROGRAMS);
        if !programs.join("initdb").exists() {
            eprintln!("skipped: no POSTGRES_URL and no {PROGRAMS}/initdb (scripts/setup postgres)");
            return None;
        }
        Some(Self::start(programs).await)
    }

    /// Where it listens, and the superuser: for clients that authenticate nothing.
    pub(crate) fn address(&self) -> (SocketAddr, String) {
        let host = match &self.config.get_hosts()[0] {
            Host::Tcp(host) => host.as_str(),
            Host::Unix(_) => panic!("POSTGRES_URL must name a TCP address"),
        };
        let port = self.config.get_ports().first().copied().unwrap_or(5432);
        let address = (host, port).to_socket_addrs().unwrap().next().unwrap();
        (
            address,
            self.config.get_user().unwrap_or("postgres").to_owned(),
        )
    }

    /// Makes a new database and gives its name back.
    pub(crate) async fn create(&self, database: &str) -> String {
        self.create_with(database, "").await
    }

    /// The same, with options of CREATE DATABASE.
    pub(crate) async fn create_with(&self, database: &str, options: &str) -> String {
        let client = connected(&self.config).await;
        for sql in [
            format!("DROP DATABASE IF EXISTS {database}"),
            format!("CREATE DATABASE {database} {options}"),
        ] {
            client.batch_execute(&sql).await.unwrap();
        }
        database.to_owned()
    }

    /// How to connect to a database as the superuser.
    pub(crate) fn config(&self, database: &str) -> Config {
        let mut config = self.config.clone();
        config.dbname(database);
        config
    }

    /// A connection to a database.
    pub(crate) async fn connect(&self, database: &str) -> Client {
        connected(self.config.clone().dbname(database)).await
    }

    async fn start(programs: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let as_root = folder.path().metadata().unwrap().uid() == 0;
        if as_root {
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
            if as_root {
                command.uid(NOBODY).gid(NOBODY);
            }
            command
        };
        let made = program("initdb")
            .args(["--pgdata=data", "--username=aerostat", "--auth=trust"])
            .args(["--encoding=UTF8", "--locale=C", "--no-sync"])
            .status()
            .unwrap();
        assert!(made.success(), "initdb failed:\n{}", read(&log));
        let address = free_address();
        let server = program("postgres")
            .args(["-D", "data", "-k", "", "-h", &address.ip().to_string()])
            .args(["-p", &address.port().to_string(), "-F"])
            .args(["-c", "deadlock_timeout=50ms", "-c", "log_statement=none"])
            .spawn()
            .unwrap();
        let mut config = Config::new();
        config
            .host(address.ip().to_string())
            .port(address.port())
            .user("aerostat")
            .dbname("postgres")
            .connect_timeout(PATIENCE);
        let own = Own {
            server,
            _folder: folder,
        };
        let postgres = Self {
            config,
            _own: Some(own),
        };
        postgres.wait_until_ready(&log).await;
        postgres
    }

    async fn wait_until_ready(&self, log: &Path) {
        let started = Instant::now();
        while let Err(error) = self.config.connect(NoTls).await {
            assert!(
                started.elapsed() < PATIENCE,
                "PostgreSQL does not answer ({error}):\n{}",
                read(log)
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // A fast shutdown, so that it leaves no shared memory behind.
        send_signal(self.server.id(), "INT");
        if !std::thread::panicking() {
            wait_for(&mut self.server);
        }
    }
}

async fn connected(config: &Config) -> Client {
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

fn read(log: &Path) -> String {
    std::fs::read_to_string(log).unwrap_or_default()
}
