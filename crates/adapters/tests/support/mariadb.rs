//! A MariaDB server with a folder of its own.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use mysql_async::{Conn, OptsBuilder, prelude::Queryable};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::{PATIENCE, Started, find};

pub(crate) struct MariaDb {
    pub(crate) process: Started,
    pub(crate) folder: TempDir,
}

impl MariaDb {
    /// Starts a server, or says why there is none.
    pub(crate) async fn start(options: &[&str]) -> Result<MariaDb, String> {
        let missing = |name: &str| format!("there is no {name}; scripts/setup participants");
        let server = find("mariadbd").ok_or_else(|| missing("mariadbd"))?;
        let install = find("mariadb-install-db").ok_or_else(|| missing("mariadb-install-db"))?;
        let folder = tempfile::tempdir().unwrap();
        let data = format!("--datadir={}", folder.path().join("data").display());
        let mut as_root = vec![];
        if rustix::process::getuid().is_root() {
            as_root.push("--user=root");
        }
        let made = Command::new(install)
            .args([
                "--no-defaults",
                &data,
                "--auth-root-authentication-method=normal",
            ])
            .args(["--skip-test-db"])
            .args(&as_root)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        if !made.status.success() {
            return Err(String::from_utf8_lossy(&made.stderr).into_owned());
        }
        let log = std::fs::File::create(folder.path().join("log")).unwrap();
        let process = Started::new(
            Command::new(server)
                .args(["--no-defaults", &data, "--skip-networking"])
                .arg(format!(
                    "--socket={}",
                    folder.path().join("socket").display()
                ))
                .args(["--innodb-flush-log-at-trx-commit=0", "--skip-log-bin"])
                .args(["--innodb-buffer-pool-dump-at-shutdown=OFF"])
                .args(options)
                .args(&as_root)
                .stdout(log.try_clone().unwrap())
                .stderr(log),
        );
        let server = MariaDb { process, folder };
        let started = Instant::now();
        while server.connect().await.is_none() {
            assert!(started.elapsed() < PATIENCE, "{}", server.log());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(server)
    }

    /// How the adapter reaches it.
    pub(crate) fn options(&self) -> String {
        format!("name=shop,socket={}/socket", self.folder.path().display())
    }

    pub(crate) async fn connect(&self) -> Option<Conn> {
        Self::connect_to(self.folder.path().join("socket")).await
    }

    async fn connect_to(socket: PathBuf) -> Option<Conn> {
        let options = OptsBuilder::default()
            .user(Some("root"))
            .prefer_socket(false)
            .socket(Some(socket.to_string_lossy()));
        Conn::new(options).await.ok()
    }

    pub(crate) async fn query(&self, text: &str) {
        let mut connection = self.connect().await.expect("it listens");
        connection.query_drop(text).await.unwrap();
        connection.disconnect().await.unwrap();
    }

    pub(crate) async fn variable(&self, name: &str) -> String {
        let mut connection = self.connect().await.expect("it listens");
        let value: Option<String> = connection
            .query_first(format!("SELECT CAST(@@GLOBAL.{name} AS CHAR)"))
            .await
            .unwrap();
        connection.disconnect().await.unwrap();
        value.unwrap()
    }

    /// A table of so many rows of 15 kB.
    pub(crate) async fn fill(&self, rows: u64) {
        self.query("CREATE DATABASE shop").await;
        self.query("CREATE TABLE shop.t (id INT PRIMARY KEY, p LONGBLOB) ENGINE = InnoDB")
            .await;
        self.query(&format!(
            "INSERT INTO shop.t SELECT seq, REPEAT(CHAR(65 + seq % 26), 15000) FROM shop.seq_1_to_{rows}"
        ))
        .await;
    }

    /// Updates rows until told to stop; how many statements there were, and how long the slowest took.
    pub(crate) fn write(
        &self,
        stopping: CancellationToken,
    ) -> impl Future<Output = (u64, Duration)> + use<> {
        let connecting = Self::connect_to(self.folder.path().join("socket"));
        async move {
            let mut connection = connecting.await.expect("it listens");
            let (mut statements, mut worst) = (0, Duration::ZERO);
            while !stopping.is_cancelled() {
                let id = statements * 7_919 % 20_000 + 1;
                let started = Instant::now();
                connection
                    .query_drop(format!(
                        "UPDATE shop.t SET p = REPEAT(CHAR(65 + {statements} % 26), 15000) WHERE id = {id}"
                    ))
                    .await
                    .unwrap();
                worst = worst.max(started.elapsed());
                statements += 1;
            }
            (statements, worst)
        }
    }

    /// Ends the connections of everybody else.
    pub(crate) async fn kill_connections(&self) {
        let mut connection = self.connect().await.expect("it listens");
        let others: Vec<u64> = connection
            .query(
                "SELECT id FROM information_schema.processlist \
                 WHERE command IN ('Sleep', 'Query') AND id <> CONNECTION_ID()",
            )
            .await
            .unwrap();
        for id in others {
            // It may have ended by itself.
            let _ = connection.query_drop(format!("KILL CONNECTION {id}")).await;
        }
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}
