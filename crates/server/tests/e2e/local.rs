//! Clients on the same machine, through a Unix-domain socket.

use std::os::unix::{fs::FileTypeExt, net::UnixListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tokio_postgres::{Config, NoTls};

use crate::harness::{Aerostat, BINARY, PATIENCE, free_address, refusal};

fn socket(folder: &Path, node: &Aerostat) -> PathBuf {
    folder.join(format!(".s.PGSQL.{}", node.sql.port()))
}

fn config(folder: &Path, node: &Aerostat) -> Config {
    local(folder, node.sql.port())
}

fn local(folder: &Path, port: u16) -> Config {
    let mut local = Config::new();
    local
        .host_path(folder)
        .port(port)
        .user("aerostat")
        .dbname("aerostat")
        .connect_timeout(PATIENCE);
    local
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_and_cancel_requests_come_through_the_socket() {
    let folder = tempfile::tempdir().unwrap();
    let flags = ["--socket-dir", folder.path().to_str().unwrap()];
    let mut node = Aerostat::start_with(&flags);
    let file = socket(folder.path(), &node);
    let is_socket = std::fs::metadata(&file).unwrap().file_type().is_socket();
    assert!(is_socket);
    let (client, connection) = config(folder.path(), &node).connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
        .batch_execute(
            "CREATE TABLE t (k int PRIMARY KEY); INSERT INTO t SELECT g FROM generate_series(1, 1000) AS g",
        )
        .await
        .unwrap();
    let over_tcp = node.connect("aerostat").await;
    for client in [&client, &over_tcp] {
        let rows = client.query("SELECT k FROM t WHERE k > $1", &[&990]).await;
        assert_eq!(rows.unwrap().len(), 10);
    }
    // No address to tell of.
    let row = client.query_one("SELECT inet_client_addr() IS NULL", &[]);
    assert!(row.await.unwrap().get::<_, bool>(0));
    let cancel = client.cancel_token();
    let endless = client.query_one(
        "SELECT count(*) FROM generate_series(1, 1000000) AS a, generate_series(1, 1000000) AS b WHERE a + b = -1",
        &[],
    );
    let cancelling = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        cancel.cancel_query(NoTls).await.unwrap();
    };
    let (ended, ()) = tokio::join!(endless, cancelling);
    assert_eq!(ended.unwrap_err().code().unwrap().code(), "57014");
    assert_eq!(client.query("SELECT 1", &[]).await.unwrap().len(), 1);
    node.signal("TERM");
    assert!(node.wait().success());
    assert!(!file.exists(), "the socket's file goes with the server");
}

/// The file of a server that was killed is in nobody's way.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_servers_socket_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let address = free_address();
    let file = folder.path().join(format!(".s.PGSQL.{}", address.port()));
    drop(UnixListener::bind(&file).unwrap());
    assert!(file.exists());
    let data = tempfile::tempdir().unwrap();
    let mut child = Command::new(BINARY)
        .args(["serve", "--data", data.path().to_str().unwrap()])
        .args(["--listen", &address.to_string()])
        .args(["--http", &free_address().to_string()])
        .args(["--socket-dir", folder.path().to_str().unwrap()])
        .spawn()
        .unwrap();
    let connected = async {
        loop {
            match local(folder.path(), address.port()).connect(NoTls).await {
                Ok((client, connection)) => {
                    tokio::spawn(connection);
                    return client
                        .query_one("SELECT 7", &[])
                        .await
                        .unwrap()
                        .get::<_, i32>(0);
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    let answer = tokio::time::timeout(PATIENCE, connected).await;
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(answer.unwrap(), 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn passwords_are_asked_for_here_too() {
    let folder = tempfile::tempdir().unwrap();
    let password = folder.path().join("password");
    std::fs::write(&password, "sesame\n").unwrap();
    let node = Aerostat::start_with(&[
        "--auth",
        "scram",
        "--password-file",
        password.to_str().unwrap(),
        "--socket-dir",
        folder.path().to_str().unwrap(),
    ]);
    let mut config = config(folder.path(), &node);
    config.password("wrong");
    assert_eq!(refusal(&config).await, "28P01");
    config.password("sesame");
    config.connect(NoTls).await.map(drop).unwrap();
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let data = tempfile::tempdir().unwrap();
    let (sql, http) = (free_address().to_string(), free_address().to_string());
    let output = Command::new(BINARY)
        .args(["serve", "--data", data.path().to_str().unwrap()])
        .args(["--listen", &sql, "--http", &http])
        .args(["--socket-dir", "/nowhere/at/all"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        errors.contains("/nowhere/at/all") && errors.contains("--socket-dir"),
        "{errors}"
    );
}
