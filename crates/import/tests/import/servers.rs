//! Servers of a test's own, on free ports of the loopback, that end with the test.

use std::{
    fs,
    net::TcpListener,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use tempfile::TempDir;
use tokio_postgres::{Client, Config, NoTls};

const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";
/// The user `nobody`: PostgreSQL does not run as root.
const NOBODY: u32 = 65_534;
const START: Duration = Duration::from_secs(60);

/// A PostgreSQL from which can be imported.
pub(crate) struct Postgres {
    folder: TempDir,
    port: u16,
    process: Option<Child>,
    settings: Vec<String>,
}

/// Where it is imported to.
pub(crate) enum Target {
    Postgres(Postgres),
    Aerostat(Aerostat),
}

/// A node.
pub(crate) struct Aerostat {
    folder: TempDir,
    binary: PathBuf,
    port: u16,
    http: u16,
    process: Option<Child>,
}

/// A source and a target.
pub(crate) struct Pair {
    pub(crate) source: Postgres,
    pub(crate) target: Target,
}

impl Pair {
    /// Starts both, or says that they are not installed.
    pub(crate) async fn start() -> Option<Pair> {
        Pair::with(&[]).await
    }

    /// The same, with settings of the source.
    pub(crate) async fn with(settings: &[&str]) -> Option<Pair> {
        // An empty one says that the tests run elsewhere.
        if std::env::var_os("AEROSTAT_BIN").is_some_and(|binary| binary.is_empty()) {
            return None;
        }
        if !Path::new(PROGRAMS).join("initdb").exists() {
            eprintln!(
                "skipped: imports from PostgreSQL (no {PROGRAMS}/initdb; scripts/setup postgres)"
            );
            return None;
        }
        let source = Postgres::start(settings).await;
        let target = match std::env::var_os("AEROSTAT_BIN") {
            Some(binary) => Target::Aerostat(Aerostat::start(binary.into()).await),
            None => Target::Postgres(Postgres::start(&[]).await),
        };
        Some(Pair { source, target })
    }

    /// Makes a database of this name on both sides, and connects to them.
    pub(crate) async fn database(&self, name: &str) -> (Client, Client) {
        let create = format!("CREATE DATABASE {name}");
        for admin in [
            self.source.connect("postgres").await,
            self.target.connect("postgres").await,
        ] {
            admin.batch_execute(&create).await.expect("a database");
        }
        (
            self.source.connect(name).await,
            self.target.connect(name).await,
        )
    }
}

impl Postgres {
    pub(crate) async fn start(settings: &[&str]) -> Postgres {
        let folder = tempfile::tempdir().expect("a folder");
        let mut server = Postgres {
            folder,
            port: free_port(),
            process: None,
            settings: settings.iter().map(|&setting| setting.to_owned()).collect(),
        };
        if is_root() {
            chown(server.folder.path(), Some(NOBODY), Some(NOBODY))
                .expect("root gives folders away");
        }
        let data = server.data();
        let options = [
            "--auth=trust",
            "--username=aerostat",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
        ];
        let made = server
            .command("initdb")
            .arg("--pgdata")
            .arg(data)
            .args(options)
            .output()
            .expect("initdb runs");
        assert!(
            made.status.success(),
            "initdb: {}",
            String::from_utf8_lossy(&made.stderr)
        );
        server.run().await;
        server
    }

    /// Encrypts connections from now on. Gives a file with the certificate, which is for `localhost`.
    pub(crate) async fn encrypt(&self) -> PathBuf {
        let made =
            rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let (certificate, key) = (
            self.data().join("server.crt"),
            self.data().join("server.key"),
        );
        fs::write(&certificate, made.cert.pem()).expect("it is ours");
        fs::write(&key, made.signing_key.serialize_pem()).expect("it is ours");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("it is ours");
        if is_root() {
            chown(&key, Some(NOBODY), Some(NOBODY)).expect("root gives files away");
        }
        let client = self.connect("postgres").await;
        client
            .batch_execute("ALTER SYSTEM SET ssl = on")
            .await
            .expect("it has a certificate");
        let only = "hostssl all all 127.0.0.1/32 trust\nhost all aerostat 127.0.0.1/32 trust\n";
        fs::write(self.data().join("pg_hba.conf"), only).expect("it is ours");
        client
            .batch_execute("SELECT pg_reload_conf()")
            .await
            .expect("it is read again");
        certificate
    }

    /// Asks roles for passwords, each in the way that is its name; others may go on without.
    pub(crate) async fn ask_for_passwords(&self) {
        let ways = ["scram-sha-256", "md5", "password"];
        let lines = ways
            .map(|way| format!("host all {way} 127.0.0.1/32 {way}\n"))
            .concat();
        fs::write(
            self.data().join("pg_hba.conf"),
            format!("{lines}host all all 127.0.0.1/32 trust\n"),
        )
        .expect("it is ours");
        self.connect("postgres")
            .await
            .batch_execute("SELECT pg_reload_conf()")
            .await
            .expect("it is read again");
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(Path::new(PROGRAMS).join(program));
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        if is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    async fn run(&mut self) {
        let mut command = self.command("postgres");
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join("log"))
            .expect("a log");
        command
            .arg("-D")
            .arg(self.data())
            .stdout(Stdio::null())
            .stderr(log);
        let port = format!("port={}", self.port);
        let ours = [
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "wal_level=logical",
            "fsync=off",
            "full_page_writes=off",
            "max_wal_senders=20",
            "max_replication_slots=20",
            "max_connections=60",
            "shared_buffers=64MB",
            "jit=off",
            &port,
        ];
        for setting in ours
            .into_iter()
            .chain(self.settings.iter().map(String::as_str))
        {
            command.arg("-c").arg(setting);
        }
        self.process = Some(command.spawn().expect("postgres starts"));
        let config = self.config("postgres");
        answers(&config, || {
            fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
        })
        .await;
    }

    /// Stops it as a crash would, and starts it again.
    pub(crate) async fn restart(&mut self) {
        self.stop();
        self.run().await;
    }

    /// Stops it as a crash would.
    pub(crate) fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let data = self.data();
            let stopped = self
                .command("pg_ctl")
                .arg("-D")
                .arg(data)
                .args(["-m", "immediate", "-w", "stop"])
                .output();
            if !stopped.is_ok_and(|stopped| stopped.status.success()) {
                let _ = process.kill();
            }
            let _ = process.wait();
        }
    }

    pub(crate) async fn start_again(&mut self) {
        self.run().await;
    }

    fn config(&self, database: &str) -> Config {
        config(self.port, database)
    }

    pub(crate) async fn connect(&self, database: &str) -> Client {
        connect(&self.config(database)).await
    }

    pub(crate) fn url(&self, database: &str) -> String {
        format!("postgres://aerostat@127.0.0.1:{}/{database}", self.port)
    }

    /// Runs one of PostgreSQL's programs against it.
    pub(crate) fn program(&self, program: &str, arguments: &[&str]) -> Child {
        let mut command = self.command(program);
        command
            .args(["-h", "127.0.0.1", "-U", "aerostat", "-p"])
            .arg(self.port.to_string())
            .args(arguments);
        command
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts")
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Aerostat {
    async fn start(binary: PathBuf) -> Aerostat {
        let mut node = Aerostat {
            folder: tempfile::tempdir().expect("a folder"),
            binary,
            port: free_port(),
            http: free_port(),
            process: None,
        };
        node.run().await;
        node
    }

    async fn run(&mut self) {
        let log = fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.path().join("log"))
            .expect("a log");
        let mut command = Command::new(&self.binary);
        command
            .arg("serve")
            .arg("--data")
            .arg(self.folder.path().join("data"))
            .args(["--listen", &format!("127.0.0.1:{}", self.port)])
            .args(["--http", &format!("127.0.0.1:{}", self.http)])
            .args(["--memory", "1GB"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log);
        self.process = Some(command.spawn().expect("the node starts"));
        let log = self.folder.path().join("log");
        answers(&config(self.port, "postgres"), || {
            fs::read_to_string(&log).unwrap_or_default()
        })
        .await;
    }

    fn stop(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Drop for Aerostat {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Target {
    pub(crate) fn config(&self, database: &str) -> Config {
        match self {
            Target::Postgres(server) => server.config(database),
            Target::Aerostat(node) => config(node.port, database),
        }
    }

    pub(crate) async fn connect(&self, database: &str) -> Client {
        connect(&self.config(database)).await
    }

    /// Stops it as a crash would, and starts it again.
    pub(crate) async fn restart(&mut self) {
        match self {
            Target::Postgres(server) => server.restart().await,
            Target::Aerostat(node) => {
                node.stop();
                node.run().await;
            }
        }
    }

    pub(crate) fn is_aerostat(&self) -> bool {
        matches!(self, Target::Aerostat(_))
    }
}

fn config(port: u16, database: &str) -> Config {
    let mut config = Config::new();
    config
        .host("127.0.0.1")
        .port(port)
        .user("aerostat")
        .dbname(database);
    config
}

async fn connect(config: &Config) -> Client {
    let (client, connection) = config.connect(NoTls).await.expect("the server answers");
    tokio::spawn(async move {
        let _ = connection.await;
    });
    client
}

async fn answers(config: &Config, log: impl Fn() -> String) {
    let begun = Instant::now();
    loop {
        match config.connect(NoTls).await {
            Ok(_) => return,
            Err(error) => assert!(
                begun.elapsed() < START,
                "it does not start: {error}\n{}",
                log()
            ),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}
