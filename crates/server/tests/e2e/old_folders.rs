//! Data folders that older builds wrote.

use std::{fs, path::Path, process::Command};

use crate::harness::{Aerostat, value};

/// What the folder's builder saw last: rows, their prices, the highest id, a view and a table without a key.
const SEEN: &str = "SELECT concat_ws(' ', count(*), sum(price), max(id), (SELECT count(*) FROM cheap), \
                    (SELECT string_agg(t, ',') FROM notes)) FROM items";

fn unpacked(name: &str) -> tempfile::TempDir {
    let archive = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/folders");
    let folder = tempfile::tempdir().unwrap();
    let mut tar = Command::new("tar");
    tar.arg("xzf").arg(archive.join(name));
    // As the harness has it: the folder is the data folder.
    tar.args(["--strip-components", "1", "-C"])
        .arg(folder.path());
    assert!(tar.status().unwrap().success());
    folder
}

/// The log files of the database, each with its number and format.
fn logs(data: &Path) -> Vec<(String, u32)> {
    let folder = data.join("tenants/16385/log");
    let mut found: Vec<(String, u32)> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let path = entry.unwrap().path();
            let head = fs::read(&path).unwrap();
            let format = u32::from_le_bytes(head[8..12].try_into().unwrap());
            let name = path.file_stem().unwrap().to_str().unwrap();
            (name.trim_start_matches('0').to_owned(), format)
        })
        .collect();
    found.sort();
    found
}

/// Written by the build of ec745f22, which was killed: a checkpoint, and behind it changes, a transaction of
/// many chunks that was rolled back, a definition, and commits of temporary relations.
#[tokio::test(flavor = "multi_thread")]
async fn a_folder_with_a_log_of_format_2_opens_and_goes_on() {
    let data = unpacked("format-2.tar.gz");
    assert_eq!(logs(data.path()), [("2".to_owned(), 2)]);
    let node = Aerostat::start_on(data, &[]);
    let client = node.connect("shop").await;
    let seen = value(&client, SEEN).await;
    assert_eq!(seen, "1993 2466249.99 10001 20 two,two");
    // What it does not know is in no file that an older build would read.
    let both = [("2".to_owned(), 2), ("3".to_owned(), 4)];
    assert_eq!(logs(node.data()), both);
    client
        .batch_execute(
            "CREATE TEMPORARY TABLE passing (n int); INSERT INTO passing VALUES (1); \
             INSERT INTO items (id, name, price) VALUES (20000, 'new', 0.01); UPDATE items SET price = 0 WHERE id = 7",
        )
        .await
        .unwrap();
    drop(client);
    let after = "1994 2466241.25 20000 21 two,two";
    for _ in 0..2 {
        // Files of both formats are read.
        let again = Aerostat::start_on(copied(node.data()), &[]);
        let client = again.connect("shop").await;
        assert_eq!(value(&client, SEEN).await, after);
        client.batch_execute("CHECKPOINT").await.unwrap();
        drop(client);
        let data = again.stop();
        assert!(logs(data.path()).iter().all(|(_, format)| *format == 4));
        let again = Aerostat::start_on(data, &[]);
        let client = again.connect("shop").await;
        assert_eq!(value(&client, SEEN).await, after);
    }
}

/// The data folder of a node that runs, as a crash would leave it.
fn copied(data: &Path) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let mut copy = Command::new("cp");
    copy.arg("-a").arg(data.join(".")).arg(folder.path());
    assert!(copy.status().unwrap().success());
    folder
}
