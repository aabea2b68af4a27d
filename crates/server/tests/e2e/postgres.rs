//! A PostgreSQL 15 of the test's own, to compare answers with: made in a private
//! folder, on a free loopback port, and stopped when it is dropped.
//!
//! PostgreSQL refuses to run as root. A test that does run as root lets it run as
//! `postgres`, or as `nobody` where there is no such account.

use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio_postgres::{Client, Config, NoTls};

use crate::harness::{PATIENCE, free_address, send_signal};

/// Where Debian's package `postgresql-15` puts the programs; elsewhere they are in PATH.
const DEBIAN: &str = "/usr/lib/postgresql/15/bin";

/// Nobody needs what it stores after the test.
const SETTINGS: [&str; 6] = [
    "unix_socket_directories=",
    "fsync=off",
    "full_page_writes=off",
    "timezone=UTC",
    "datestyle=ISO, MDY",
    "max_connections=20",
];

/// A running PostgreSQL; dropping it stops it.
pub(crate) struct Postgres {
    child: Child,
    address: SocketAddr,
    folder: TempDir,
}

impl Postgres {
    /// Starts one; `None` where PostgreSQL 15 is not installed.
    pub(crate) async fn start() -> Option<Self> {
        let programs = programs()?;
        let folder = tempfile::tempdir().unwrap();
        let account = give_away(folder.path());
        let data = folder.path().join("data");
        // Texts order by their bytes; letters are Unicode's.
        let mut init = as_account(&programs.join("initdb"), account.as_deref());
        let output = init
            .args(["--username=postgres", "--auth=trust", "--no-sync"])
            .args(["--lc-collate=C", "--lc-ctype=C.UTF-8", "--encoding=UTF8"])
            .arg("--pgdata")
            .arg(&data)
            .current_dir(folder.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "initdb: {said}");
        let address = free_address();
        let mut serve = as_account(&programs.join("postgres"), account.as_deref());
        serve
            .args(["-h", "127.0.0.1", "-p", &address.port().to_string(), "-D"])
            .arg(&data);
        for setting in SETTINGS {
            serve.args(["-c", setting]);
        }
        let log = std::fs::File::create(folder.path().join("postgres.log")).unwrap();
        let child = serve
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut server = Self {
            child,
            address,
            folder,
        };
        server.wait_until_ready().await;
        Some(server)
    }

    async fn wait_until_ready(&mut self) {
        let started = Instant::now();
        while self.config("postgres").connect(NoTls).await.is_err() {
            let ended = self.child.try_wait().unwrap();
            assert!(
                ended.is_none() && started.elapsed() < PATIENCE,
                "PostgreSQL does not start ({ended:?}):\n{}",
                self.log()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("postgres.log")).unwrap_or_default()
    }

    /// How to connect to a database as the superuser.
    pub(crate) fn config(&self, database: &str) -> Config {
        let mut config = Config::new();
        config
            .host(self.address.ip().to_string())
            .port(self.address.port())
            .user("postgres")
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
        let admin = self.connect("postgres").await;
        admin.batch_execute(&sql).await.unwrap();
        self.connect(database).await
    }
}

impl Drop for Postgres {
    /// SIGQUIT ends its processes at once; SIGKILL would leave those of sessions behind.
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            send_signal(self.child.id(), "QUIT");
        }
        self.child.wait().ok();
    }
}

/// The folder with the programs of PostgreSQL 15.
fn programs() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(PathBuf::from(DEBIAN)).chain(std::env::split_paths(&path));
    let is_15 = |folder: &PathBuf| {
        let output = Command::new(folder.join("postgres"))
            .arg("--version")
            .output();
        folder.join("initdb").is_file()
            && output.is_ok_and(|output| {
                String::from_utf8_lossy(&output.stdout).contains("(PostgreSQL) 15.")
            })
    };
    folders.into_iter().find(is_15)
}

/// Root gives the folder to the account that it names; others keep it.
fn give_away(folder: &Path) -> Option<String> {
    if folder.metadata().unwrap().uid() != 0 {
        return None;
    }
    let number = |flag: &str, account: &str| {
        let output = Command::new("id").args([flag, account]).output().ok()?;
        String::from_utf8(output.stdout)
            .ok()?
            .trim()
            .parse::<u32>()
            .ok()
    };
    let (account, user, group) = ["postgres", "nobody"]
        .into_iter()
        .find_map(|account| Some((account, number("-u", account)?, number("-g", account)?)))
        .expect("a system has the account nobody");
    chown(folder, Some(user), Some(group)).unwrap();
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o700)).unwrap();
    Some(account.to_owned())
}

/// A program as it runs for this account, without the settings of whoever runs the tests.
fn as_account(program: &Path, account: Option<&str>) -> Command {
    let mut command = match account {
        None => Command::new(program),
        Some(account) => {
            let mut command = Command::new("setpriv");
            command
                .args(["--reuid", account, "--regid"])
                .arg(group_of(account))
                .args(["--clear-groups", "--"])
                .arg(program);
            command
        }
    };
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PG") {
            command.env_remove(&name);
        }
    }
    command.env("LC_ALL", "C");
    command
}

fn group_of(account: &str) -> String {
    let output = Command::new("id").args(["-g", account]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
