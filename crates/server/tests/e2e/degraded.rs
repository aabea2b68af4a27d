//! Damage, full disks and what is left of a node then: the tenants that are whole are served,
//! whoever wants another is told why, and there is a way back.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio_postgres::{Client, Config, NoTls};

use crate::harness::{Aerostat, PATIENCE, command, said, sqlstate, value};

/// SQLSTATE, message, detail and hint of a connection that must be refused.
async fn refusal(config: &Config) -> (String, String) {
    let Err(error) = config.connect(NoTls).await else {
        panic!("this connection must be refused");
    };
    let error = error.as_db_error().unwrap();
    let texts = [
        error.message(),
        error.detail().unwrap(),
        error.hint().unwrap(),
    ];
    (error.code().code().to_owned(), texts.join("; "))
}

/// A node with the databases `shop`, of two tables and a few commits, and `other`. Gives the
/// data folder, stopped, and the folder of `shop`.
async fn made(checkpoint: bool) -> (TempDir, PathBuf) {
    let node = Aerostat::start_with(&["--freezer", "0%"]);
    let other = node.create("other").await;
    other
        .batch_execute("CREATE TABLE o AS SELECT 7 AS x")
        .await
        .unwrap();
    let client = node.create("shop").await;
    client
        .batch_execute(
            "CREATE TABLE t (id integer PRIMARY KEY, v text);
             CREATE TABLE beside (x integer);
             INSERT INTO t SELECT g, 'row ' || g FROM generate_series(1, 1000) AS g;
             INSERT INTO beside SELECT g FROM generate_series(1, 10) AS g",
        )
        .await
        .unwrap();
    if checkpoint {
        client
            .batch_execute("VACUUM FREEZE t; CHECKPOINT")
            .await
            .unwrap();
    }
    for sql in [
        "UPDATE t SET v = 'changed' WHERE id <= 3",
        "DELETE FROM t WHERE id = 4",
        "INSERT INTO t VALUES (0, 'needle')",
        "DELETE FROM beside WHERE x = 1",
        "INSERT INTO t VALUES (-1, 'last')",
    ] {
        client.batch_execute(sql).await.unwrap();
    }
    let oid = "SELECT oid FROM pg_database WHERE datname = 'shop'";
    let oid = value(&client, oid).await;
    drop((client, other));
    // Killed, so that what comes behind the damage is proof of it.
    let data = node.kill();
    let folder = data.path().join("tenants").join(oid);
    (data, folder)
}

/// Flips a bit of the first place where a file below the folder has these bytes.
fn damage(folder: &Path, suffix: &str, bytes: &[u8]) -> PathBuf {
    for path in files(folder) {
        let mut content = fs::read(&path).unwrap();
        let found = content
            .windows(bytes.len())
            .position(|window| window == bytes);
        if let Some(at) = found.filter(|_| path.to_str().unwrap().ends_with(suffix)) {
            content[at] ^= 1;
            fs::write(&path, content).unwrap();
            return path;
        }
    }
    panic!("no file {suffix} in {} has the bytes", folder.display());
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let (folders, mut found): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    found.extend(folders.iter().flat_map(|folder| files(folder)));
    found.sort();
    found
}

/// Names and contents below a folder.
fn contents(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let read = |path: PathBuf| {
        let content = fs::read(&path).unwrap();
        (path.strip_prefix(folder).unwrap().to_owned(), content)
    };
    files(folder).into_iter().map(read).collect()
}

fn repair(data: &Path, flags: &[&str]) -> (Option<i32>, String) {
    let output = command()
        .args(["repair", "--memory", "1GB", "--data"])
        .arg(data)
        .args(flags)
        .output()
        .unwrap();
    (output.status.code(), said(&output))
}

async fn counts(client: &Client) -> String {
    let sql = "SELECT (SELECT count(*) || ' ' || count(*) FILTER (WHERE v = 'changed') FROM t) || ' ' || (SELECT count(*) FROM beside)";
    value(client, sql).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_tenant_is_told_of_and_the_others_are_served() {
    let (data, folder) = made(false).await;
    let log = damage(&folder, ".log", b"needle");
    let root = tempfile::tempdir().unwrap();
    let backup = root.path().join("backup").display().to_string();

    let node = Aerostat::start_on(data, &[]);
    let (code, text) = refusal(&node.config("shop")).await;
    assert_eq!(code, "XX001");
    for part in ["\"shop\"", log.to_str().unwrap(), "aerostat repair"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (status, body) = node.ask("/healthz");
    assert_eq!((status, body.as_str()), (200, "degraded\nshop: unopened\n"));
    assert_eq!(node.metric("aerostat_tenants_degraded"), 1.0);
    assert_eq!(node.metric("aerostat_tenant_open{tenant=\"shop\"}"), 0.0);
    assert_eq!(node.metric("aerostat_tenant_open{tenant=\"other\"}"), 1.0);

    let other = node.connect("other").await;
    other
        .batch_execute("INSERT INTO o VALUES (8)")
        .await
        .unwrap();
    let states = "SELECT string_agg(name || ' ' || state || ' ' || (reason IS NULL), ', ' ORDER BY name) FROM aerostat.tenants";
    let admin = node.connect("aerostat").await;
    assert_eq!(
        value(&admin, states).await,
        "aerostat open true, other open true, postgres open true, shop unopened false"
    );
    let reason = "SELECT reason FROM aerostat.tenants WHERE name = 'shop'";
    assert!(value(&admin, reason).await.contains("is damaged at byte"));
    // What would have to look inside is refused, and nothing has happened.
    for (sql, code) in [
        (format!("BACKUP DATABASE shop TO '{backup}'"), "XX001"),
        ("ALTER DATABASE shop RENAME TO mended".to_owned(), "XX001"),
        (
            "CREATE ROLE r; ALTER DATABASE shop OWNER TO r".to_owned(),
            "XX001",
        ),
        ("DROP ROLE r".to_owned(), "55000"),
    ] {
        assert_eq!(sqlstate(&admin, &sql).await, code, "{sql}");
    }
    admin
        .batch_execute(&format!(
            "ALTER DATABASE shop SET (memory_max = '64MB');
             BACKUP DATABASE other TO '{backup}';
             DROP DATABASE shop;
             RESTORE DATABASE shop FROM '{backup}'"
        ))
        .await
        .unwrap();
    assert!(!folder.exists());
    assert_eq!(node.ask("/healthz").1, "ok\n");
    assert_eq!(
        value(&node.connect("shop").await, "SELECT sum(x) FROM o").await,
        "15"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_cut_at_the_damage_and_what_is_lost_is_told() {
    let (data, folder) = made(false).await;
    let log = damage(&folder, ".log", b"needle");
    let before = contents(&folder);

    // Looking changes nothing.
    let (code, text) = repair(data.path(), &[]);
    assert_eq!(code, Some(1), "{text}");
    let name = log.file_name().unwrap().to_str().unwrap();
    for part in [
        "\"other\"",
        "is sound",
        "\"shop\"",
        name,
        // Those behind the one that is damaged.
        "at least 2 commits",
        "--accept-loss",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(contents(&folder) == before);
    let (code, text) = repair(data.path(), &["--database", "other"]);
    assert_eq!((code, text.contains("shop")), (Some(0), false), "{text}");

    let (code, text) = repair(data.path(), &["--accept-loss"]);
    assert_eq!(code, Some(0), "{text}");
    let aside = data
        .path()
        .join("damaged")
        .join(folder.file_name().unwrap());
    assert!(text.contains(aside.to_str().unwrap()), "{text}");
    assert!(contents(&aside) == before);

    let mut node = Aerostat::start_on(data, &[]);
    for _ in 0..2 {
        let client = node.connect("shop").await;
        assert_eq!(counts(&client).await, "999 3 10");
        assert_eq!(node.ask("/healthz").1, "ok\n");
        drop(client);
        node = Aerostat::start_on(node.kill(), &[]);
    }
    let client = node.connect("shop").await;
    client
        .batch_execute("INSERT INTO t VALUES (0, 'again'); CHECKPOINT")
        .await
        .unwrap();
    assert_eq!(counts(&client).await, "1000 3 10");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_image_is_left_out_and_later_changes_stay() {
    let (data, folder) = made(true).await;
    // That of the table with the longer rows.
    let images = files(&folder.join("checkpoint"));
    let image = images
        .iter()
        .filter(|path| path.extension().is_some_and(|extension| extension == "img"))
        .max_by_key(|path| fs::metadata(path).unwrap().len())
        .unwrap();
    let mut content = fs::read(image).unwrap();
    let at = content.len() / 2;
    content[at] ^= 1;
    fs::write(image, content).unwrap();

    let node = Aerostat::start_on(data, &[]);
    assert_eq!(refusal(&node.config("shop")).await.0, "XX001");
    let data = node.stop();
    let before = contents(&folder);
    let (code, text) = repair(data.path(), &[]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("1000 rows of table \"t\""), "{text}");
    assert!(contents(&folder) == before);
    let (code, text) = repair(data.path(), &["--accept-loss"]);
    assert_eq!(code, Some(0), "{text}");

    let node = Aerostat::start_on(data, &[]);
    let client = node.connect("shop").await;
    // Three were changed and two were added since the checkpoint.
    assert_eq!(counts(&client).await, "5 3 9");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_repair_helps_is_said_to_be_lost_and_a_missing_folder_is_not_empty() {
    let (data, folder) = made(true).await;
    let manifest = folder.join("checkpoint/manifest");
    let mut content = fs::read(&manifest).unwrap();
    content[20] ^= 1;
    fs::write(&manifest, content).unwrap();
    let (code, text) = repair(data.path(), &["--accept-loss"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("no repair is known"), "{text}");

    let elsewhere = tempfile::tempdir().unwrap();
    fs::rename(&folder, elsewhere.path().join("tenant")).unwrap();
    let node = Aerostat::start_on(data, &[]);
    let (code, text) = refusal(&node.config("shop")).await;
    assert_eq!(code, "XX001");
    assert!(text.contains("is missing"), "{text}");
    let data = node.stop();
    assert!(!folder.exists());
    let (code, text) = repair(data.path(), &[]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("would lose everything"), "{text}");
    assert!(!folder.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_or_old_catalogue_costs_nobody_a_database() {
    let (data, folder) = made(false).await;
    let catalog = data.path().join("catalog.json");
    let copy = data.path().join("catalog.copy.json");
    let whole = fs::read(&catalog).unwrap();
    let mut damaged = whole.clone();
    let at = whole.windows(6).position(|window| window == b"\"shop\"");
    damaged[at.unwrap() + 1] = b'z';

    // The copy stands in.
    fs::write(&catalog, &damaged).unwrap();
    let node = Aerostat::start_on(data, &[]);
    assert_eq!(counts(&node.connect("shop").await).await, "1001 3 9");
    let data = node.stop();
    assert_eq!(fs::read(&catalog).unwrap(), whole);

    // Neither can be read, or neither is there.
    let start = |data: &Path| {
        let output = command()
            .args(["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"])
            .arg("--data")
            .arg(data)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8(output.stderr).unwrap()
    };
    fs::write(&catalog, &damaged).unwrap();
    fs::write(&copy, &damaged).unwrap();
    let errors = start(data.path());
    assert!(errors.contains("catalog.json is damaged"), "{errors}");
    fs::remove_file(&catalog).unwrap();
    fs::remove_file(&copy).unwrap();
    let errors = start(data.path());
    assert!(errors.contains("the catalogue is missing"), "{errors}");

    // One from before the database was made, as the node of that time wrote it.
    let old = br#"{"roles": {"aerostat": {"oid": 10, "superuser": true, "login": true,
        "create_database": true, "create_role": true, "connection_limit": -1, "verifier": null}},
        "databases": {"aerostat": {"oid": 16384, "owner": "aerostat", "memory_max": null,
        "connection_limit": -1, "connect": [], "comment": null}}, "next_oid": 16385}"#;
    fs::write(&catalog, old).unwrap();
    let before = contents(&folder);
    let node = Aerostat::start_on(data, &[]);
    let unclaimed = node
        .data()
        .join("unclaimed")
        .join(folder.file_name().unwrap());
    assert!(contents(&unclaimed) == before);
    assert!(fs::read(&catalog).unwrap().starts_with(b"{\"crc32\":"));
    // A database that is made now gets the number of the lost one, and nothing of it.
    let client = node.create("fresh").await;
    assert_eq!(sqlstate(&client, "SELECT * FROM t").await, "42P01");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_else_may_look_into_a_data_folder() {
    let root = tempfile::tempdir().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let data = root.path().join("made/by/aerostat");
    let status = command()
        .args([
            "sql",
            "-c",
            "CREATE TABLE t AS SELECT 1 AS x; CHECKPOINT",
            "--data",
        ])
        .arg(&data)
        .status()
        .unwrap();
    assert!(status.success());
    assert_eq!(mode(&data), 0o700);
    for path in files(&data) {
        assert_eq!(mode(&path) & 0o077, 0, "{}", path.display());
        assert_eq!(mode(path.parent().unwrap()), 0o700, "{}", path.display());
    }
    // One that an earlier version made.
    fs::set_permissions(&data, fs::Permissions::from_mode(0o755)).unwrap();
    let output = command()
        .args(["sql", "-c", "SELECT x FROM t", "--data"])
        .arg(&data)
        .output()
        .unwrap();
    assert_eq!(mode(&data), 0o700);
    let warning = String::from_utf8(output.stderr).unwrap();
    assert!(
        warning.contains("others could read the data folder"),
        "{warning}"
    );
}

/// Waits until a statement succeeds.
async fn until_done(client: &Client, sql: &str) {
    let started = Instant::now();
    while let Err(error) = client.batch_execute(sql).await {
        assert!(started.elapsed() < PATIENCE, "{sql}: {error:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_was_full_takes_changes_again() {
    let Some(node) = Aerostat::start_on_disk(24, &["--freezer", "0%"]) else {
        return;
    };
    let client = node.create("shop").await;
    client
        .batch_execute(
            "CREATE TABLE t (id integer PRIMARY KEY, v text); INSERT INTO t VALUES (0, 'first')",
        )
        .await
        .unwrap();
    let filler = node.disk().join("filler");
    let mut acknowledged = 1;
    for round in 0..3 {
        // All but what a few commits take.
        let fill = vec![0; 64 << 10];
        let mut file = fs::File::create(&filler).unwrap();
        while std::io::Write::write_all(&mut file, &fill).is_ok() {}
        drop(file);
        let mut refused = 0;
        for at in 1..=40 {
            let id = round * 100 + at;
            let sql = format!("INSERT INTO t VALUES ({id}, repeat('x', 20000))");
            match client.batch_execute(&sql).await {
                Ok(()) => acknowledged += 1,
                Err(error) => {
                    let code = error.code().unwrap().code().to_owned();
                    assert!(["53100", "08007"].contains(&&*code), "{error:?}");
                    refused += 1;
                }
            }
        }
        assert!(refused > 0);
        // Reads go on, and everybody is told.
        let count = "SELECT count(*) FROM t";
        assert_eq!(value(&client, count).await, acknowledged.to_string());
        assert_eq!(
            node.ask("/healthz"),
            (200, "degraded\nshop: read-only\n".to_owned())
        );
        let state = "SELECT state || ': ' || reason FROM aerostat.tenants WHERE name = 'shop'";
        let told = value(&client, state).await;
        assert!(
            told.starts_with("read-only: the commit log failed"),
            "{told}"
        );
        assert_eq!(node.metric("aerostat_tenant_open{tenant=\"shop\"}"), 0.0);

        fs::remove_file(&filler).unwrap();
        let id = round * 100 + 99;
        until_done(&client, &format!("INSERT INTO t VALUES ({id}, 'back')")).await;
        acknowledged += 1;
        assert_eq!(value(&client, count).await, acknowledged.to_string());
        assert_eq!(node.ask("/healthz").1, "ok\n");
    }
    let before = value(
        &client,
        "SELECT string_agg(id::text, ',' ORDER BY id) FROM t",
    )
    .await;
    // What the disk has now is what a crash would leave.
    let copy = tempfile::tempdir().unwrap();
    for (path, content) in contents(&node.disk()) {
        let target = copy.path().join(path);
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::write(target, content).unwrap();
    }
    drop(node);
    let node = Aerostat::start_on(copy, &[]);
    let client = node.connect("shop").await;
    let after = value(
        &client,
        "SELECT string_agg(id::text, ',' ORDER BY id) FROM t",
    )
    .await;
    assert_eq!(after, before);
}

/// A query that spills some tens of megabytes, and the limits that it meets.
#[tokio::test(flavor = "multi_thread")]
async fn spilling_fails_the_statement_at_a_limit_and_not_the_log() {
    for (flags, code) in [
        (["--spill-tenant-max", "4MB"], "53400"),
        (["--spill-max", "4MB"], "53400"),
        (["--spill-reserve", "100000GB"], "53100"),
    ] {
        let node = Aerostat::start_with(&flags);
        let admin = node.connect("aerostat").await;
        admin
            .batch_execute("CREATE DATABASE small WITH (memory_max = '48MB')")
            .await
            .unwrap();
        let client = node.connect("small").await;
        client
            .batch_execute("CREATE TABLE t (x integer)")
            .await
            .unwrap();
        let groups = "SELECT count(*), max(n) FROM (SELECT m, count(*) AS n FROM (SELECT md5(g::text) || repeat('x', 100) AS m FROM generate_series(1, 300000) AS g) AS s GROUP BY m) AS s";
        // Two tasks may meet the limit at once, and a reader wait for what neither has written.
        client
            .batch_execute("SET statement_timeout = '20s'")
            .await
            .unwrap();
        for _ in 0..8 {
            assert_eq!(sqlstate(&client, groups).await, code, "{flags:?}");
        }
        client
            .batch_execute("INSERT INTO t VALUES (1)")
            .await
            .unwrap();
        node.wait_for_metric("aerostat_tenant_spilled_bytes{tenant=\"small\"}", 0.0);
        assert_eq!(node.ask("/healthz").1, "ok\n");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_is_dropped_right_after_its_last_session_has_gone() {
    let node = Aerostat::start();
    let admin = node.connect("aerostat").await;
    for round in 0..20 {
        let client = node.create("brief").await;
        client
            .batch_execute("CREATE TABLE t AS SELECT g FROM generate_series(1, 1000) AS g")
            .await
            .unwrap();
        drop(client);
        let dropped = admin.batch_execute("DROP DATABASE brief").await;
        assert!(dropped.is_ok(), "round {round}: {dropped:?}");
    }
    // Who stays is waited for, but not for ever, and the statement can be cancelled meanwhile.
    let _client = node.create("busy").await;
    let started = Instant::now();
    assert_eq!(sqlstate(&admin, "DROP DATABASE busy").await, "55006");
    assert!(started.elapsed() >= Duration::from_secs(4));
    let cancelled = "SET statement_timeout = '200ms'";
    admin.batch_execute(cancelled).await.unwrap();
    let started = Instant::now();
    assert_eq!(sqlstate(&admin, "DROP DATABASE busy").await, "57014");
    assert!(started.elapsed() < Duration::from_secs(3));
    assert_eq!(
        value(&admin, "SELECT count(*) FROM aerostat.tenants").await,
        "3"
    );
}
