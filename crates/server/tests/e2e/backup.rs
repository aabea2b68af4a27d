//! Backup, restore and restore to a point in time, by psql and by the command line.

use std::path::Path;
use std::process::Output;

use crate::harness::{Aerostat, command, sqlstate, value};
use crate::psql::script;
use crate::s3::{S3, SECRET};

/// Runs a subcommand of the binary against a node.
fn aerostat(node: &Aerostat, arguments: &[&str]) -> Output {
    aerostat_within(node, arguments, &[])
}

/// The same, with more in its environment.
fn aerostat_within(
    node: &Aerostat,
    arguments: &[&str],
    environment: &[(String, String)],
) -> Output {
    command()
        .args(arguments)
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .env(
            "AEROSTAT_URL",
            format!("postgres://aerostat@{}/aerostat", node.sql),
        )
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn folder(root: &Path, name: &str) -> String {
    root.join(name).display().to_string()
}

/// The steps of someone who has deleted too much, in psql.
#[tokio::test(flavor = "multi_thread")]
async fn a_mistake_is_undone_by_a_restore_to_the_moment_before() {
    let node = Aerostat::start();
    let root = tempfile::tempdir().unwrap();
    let (backup, archive) = (folder(root.path(), "backup"), folder(root.path(), "log"));
    let first = format!(
        "CREATE DATABASE shop;
        ALTER DATABASE shop SET (log_archive = '{archive}');
        \\c shop
        CREATE TABLE orders (id integer PRIMARY KEY, item text, price numeric(8,2));
        CREATE VIEW dear AS SELECT id FROM orders WHERE price > 50;
        INSERT INTO orders SELECT g, 'item ' || g, g FROM generate_series(1, 1000) AS g;
        BACKUP DATABASE shop TO '{backup}';
        INSERT INTO orders SELECT g, 'later ' || g, g FROM generate_series(1001, 1500) AS g;
        UPDATE orders SET price = price * 2 WHERE id <= 10;
        CREATE TABLE notes (line text);
        INSERT INTO notes VALUES ('before the mistake');
        VACUUM FREEZE orders;
        CHECKPOINT;
        \\echo made"
    );
    let Some((out, errors)) = script(&node, "aerostat", &["-At"], &first) else {
        return;
    };
    assert!(out.contains("made"), "{out}{errors}");
    assert!(
        errors.contains("backup of database \"shop\" at commit"),
        "{errors}"
    );
    let before = value(&node.connect("aerostat").await, "SELECT now()::text").await;
    let second = format!(
        "DELETE FROM orders WHERE id > 3;
        DROP TABLE notes;
        SELECT count(*) FROM orders;
        \\c aerostat
        RESTORE DATABASE shop_before FROM '{backup}' UNTIL '{before}';
        RESTORE DATABASE shop_backup FROM '{backup}';
        \\c shop_before
        SELECT count(*), sum(price) FROM orders;
        SELECT line FROM notes;
        SELECT count(*) FROM dear;
        INSERT INTO orders VALUES (0, 'new here', 1);
        \\c shop_backup
        SELECT count(*), sum(price) FROM orders;
        \\dt notes
        \\c shop
        SELECT count(*) FROM orders;"
    );
    let (out, errors) = script(&node, "shop", &["-Atq"], &second).unwrap();
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(
        lines,
        [
            "3",
            "1500|1125805.00",
            "before the mistake",
            "1450",
            "1000|500500.00",
            "3"
        ],
        "{errors}"
    );

    // A restored database is one like any other: it is there after a restart.
    let data = node.kill();
    let node = Aerostat::start_on(data, &[]);
    let client = node.connect("shop_before").await;
    assert_eq!(value(&client, "SELECT count(*) FROM orders").await, "1501");
    let client = node.connect("shop").await;
    assert_eq!(value(&client, "SELECT count(*) FROM orders").await, "3");
}

/// A backup taken while clients move money: the sum is right in each restored database.
#[tokio::test(flavor = "multi_thread")]
async fn a_backup_is_one_moment_while_others_write() {
    let node = Aerostat::start();
    let root = tempfile::tempdir().unwrap();
    let client = node.create("bank").await;
    client
        .batch_execute(
            "CREATE TABLE accounts (id integer PRIMARY KEY, balance bigint);
            INSERT INTO accounts SELECT g, 100 FROM generate_series(1, 500) AS g",
        )
        .await
        .unwrap();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..3 {
        let client = node.connect("bank").await;
        let stop = std::sync::Arc::clone(&stop);
        writers.spawn(async move {
            let mut moved = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let (from, to) = (moved * 7 % 500 + 1, (moved * 13 + writer) % 500 + 1);
                moved += 1;
                let sql = format!(
                    "BEGIN; UPDATE accounts SET balance = balance - 1 WHERE id = {from};
                    UPDATE accounts SET balance = balance + 1 WHERE id = {to}; COMMIT"
                );
                // Deadlocks happen; the whole message is undone then.
                if client.batch_execute(&sql).await.is_err() {
                    client.batch_execute("ROLLBACK").await.unwrap();
                }
            }
            moved
        });
    }
    let superuser = node.connect("aerostat").await;
    for round in 0..5 {
        let backup = folder(root.path(), &format!("b{round}"));
        let base = folder(root.path(), &format!("b{}", (round - 1).max(0)));
        let incremental = if round > 0 {
            format!(" INCREMENTAL FROM '{base}'")
        } else {
            String::new()
        };
        superuser
            .batch_execute(&format!("BACKUP DATABASE bank TO '{backup}'{incremental}"))
            .await
            .unwrap();
        superuser
            .batch_execute(&format!("RESTORE DATABASE r{round} FROM '{backup}'"))
            .await
            .unwrap();
        let restored = node.connect(&format!("r{round}")).await;
        assert_eq!(
            value(
                &restored,
                "SELECT count(*) || ' ' || sum(balance) FROM accounts"
            )
            .await,
            "500 50000",
            "round {round}"
        );
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    while let Some(moved) = writers.join_next().await {
        assert!(moved.unwrap() > 0, "a writer stood still");
    }
}

/// What is wrong is said, and leaves nothing behind.
#[tokio::test(flavor = "multi_thread")]
async fn bad_backups_and_bad_requests_are_refused() {
    let node = Aerostat::start();
    let root = tempfile::tempdir().unwrap();
    let backup = folder(root.path(), "backup");
    let client = node.create("shop").await;
    client
        .batch_execute(
            "CREATE TABLE t (a integer PRIMARY KEY, b text);
            INSERT INTO t SELECT g, repeat('x', 100) FROM generate_series(1, 5000) AS g;
            CREATE ROLE clerk LOGIN",
        )
        .await
        .unwrap();
    let long_ago = value(&client, "SELECT now()::text").await;
    let made = aerostat(&node, &["backup", "--database", "shop", "--to", &backup]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    assert!(
        text(&made.stdout).contains("5000 rows"),
        "{}",
        text(&made.stdout)
    );
    let verified = aerostat(&node, &["backup", "verify", &backup]);
    assert!(verified.status.success(), "{}", text(&verified.stderr));

    let client = node.connect("aerostat").await;
    let fails = async |sql: String, state: &str| {
        assert_eq!(sqlstate(&client, &sql).await, state, "{sql}");
    };
    fails(format!("BACKUP DATABASE shop TO '{backup}'"), "22023").await;
    fails("BACKUP DATABASE shop TO 'relative'".into(), "22023").await;
    fails(
        format!("BACKUP DATABASE nope TO '{}'", folder(root.path(), "n")),
        "3D000",
    )
    .await;
    fails(format!("RESTORE DATABASE shop FROM '{backup}'"), "42P04").await;
    fails(
        format!("RESTORE DATABASE r FROM '{}'", folder(root.path(), "none")),
        "22023",
    )
    .await;
    fails(
        format!("RESTORE DATABASE r FROM '{backup}' UNTIL '{long_ago}'"),
        "22023",
    )
    .await;
    fails(
        format!("RESTORE DATABASE r FROM '{backup}' UNTIL '2999-01-01'"),
        "22023",
    )
    .await;
    fails(
        format!("RESTORE DATABASE r FROM '{backup}' UNTIL 'some day at noon'"),
        "22007",
    )
    .await;
    fails(
        format!("BEGIN; RESTORE DATABASE r FROM '{backup}'"),
        "25001",
    )
    .await;
    client.batch_execute("ROLLBACK").await.unwrap();
    let clerk = {
        let mut config = node.config("aerostat");
        config.user("clerk");
        client
            .batch_execute("GRANT CONNECT ON DATABASE aerostat TO clerk")
            .await
            .unwrap();
        let (clerk, connection) = config.connect(tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(connection);
        clerk
    };
    for sql in [
        format!("BACKUP DATABASE shop TO '{}'", folder(root.path(), "c")),
        format!("RESTORE DATABASE r FROM '{backup}'"),
    ] {
        assert_eq!(sqlstate(&clerk, &sql).await, "42501", "{sql}");
    }

    // One byte of one image is another.
    let image = std::fs::read_dir(root.path().join("backup/checkpoint"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|kind| kind == "img"))
        .unwrap();
    let mut bytes = std::fs::read(&image).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&image, bytes).unwrap();
    let verified = aerostat(&node, &["backup", "verify", &backup]);
    assert!(!verified.status.success());
    assert!(
        text(&verified.stderr).contains("damaged"),
        "{}",
        text(&verified.stderr)
    );
    let restored = aerostat(&node, &["restore", "--database", "r", "--from", &backup]);
    assert!(!restored.status.success());
    assert_eq!(
        value(
            &client,
            "SELECT string_agg(datname, ' ' ORDER BY datname) FROM pg_database WHERE datname IN ('r', 'shop')"
        )
        .await,
        "shop"
    );
}

async fn each(client: &tokio_postgres::Client, statements: &[&str]) {
    for sql in statements {
        let done = client.batch_execute(sql).await;
        assert!(done.is_ok(), "{sql}: {done:?}");
    }
}

/// Backups, archive and restores through the API of S3: files of one request and of several,
/// copies within the store, a point in time, the command line.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_comes_back_from_s3() {
    let Some(s3) = S3::start("backups") else {
        return;
    };
    let environment = s3.environment();
    let data = tempfile::tempdir().unwrap();
    let node = Aerostat::start_within(data, &[], &environment);
    let client = node.create("shop").await;
    // 100,000 different texts of 160 bytes: an image of several parts.
    each(
        &client,
        &[
            "ALTER DATABASE shop SET (log_archive = 's3://backups/shop/log')",
            "CREATE TABLE items (id integer PRIMARY KEY, what text)",
            "INSERT INTO items
                SELECT g, repeat(md5(g::text), 5) FROM generate_series(1, 100000) AS g",
            "CREATE TABLE notes (line text)",
            "INSERT INTO notes VALUES ('first')",
            "BACKUP DATABASE shop TO 's3://backups/shop/monday'",
            "INSERT INTO notes VALUES ('second')",
            "BACKUP DATABASE shop TO 's3://backups/shop/tuesday'
                INCREMENTAL FROM 's3://backups/shop/monday'",
            "INSERT INTO notes VALUES ('third')",
            "CHECKPOINT",
        ],
    )
    .await;
    let moment = value(&client, "SELECT now()::text").await;
    each(
        &client,
        &[
            "DELETE FROM items",
            "RESTORE DATABASE a FROM 's3://backups/shop/monday'",
            "RESTORE DATABASE b FROM 's3://backups/shop/tuesday/'",
            &format!("RESTORE DATABASE c FROM 's3://backups/shop/tuesday' UNTIL '{moment}'"),
        ],
    )
    .await;
    for (database, notes) in [("a", "1"), ("b", "2"), ("c", "3")] {
        let restored = node.connect(database).await;
        let found = value(&restored, "SELECT count(*) FROM notes").await;
        assert_eq!(found, notes, "{database}");
        let query = "SELECT count(*) || ' ' || sum(length(what)) FROM items";
        assert_eq!(value(&restored, query).await, "100000 16000000");
    }
    // Of the archive alone, on another node.
    let other = Aerostat::start_within(tempfile::tempdir().unwrap(), &[], &environment);
    let restore = [
        "restore",
        "--database",
        "d",
        "--from",
        "s3://backups/shop/monday",
        "--log",
        "s3://backups/shop/log",
    ];
    let restored = aerostat_within(&other, &restore, &[]);
    assert!(restored.status.success(), "{}", text(&restored.stderr));
    let client_of_copy = other.connect("d").await;
    assert_ne!(
        value(&client_of_copy, "SELECT count(*) FROM notes").await,
        "1"
    );
    // The command line has credentials of its own.
    let backup = ["backup", "--database", "a", "--to", "s3://backups/a"];
    let made = aerostat_within(&node, &backup, &environment);
    assert!(made.status.success(), "{}", text(&made.stderr));
    assert!(text(&made.stdout).contains("100001 rows"));
    let verify = ["backup", "verify", "s3://backups/shop/tuesday"];
    let verified = aerostat_within(&node, &verify, &environment);
    assert!(verified.status.success(), "{}", text(&verified.stderr));
    assert!(text(&verified.stdout).contains("100002 rows"));
}

/// What an object store refuses is said without secrets, and a store that is gone stops
/// backups and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn object_stores_that_refuse_are_told_of_and_secrets_are_not() {
    let Some(s3) = S3::start("backups") else {
        return;
    };
    let node = Aerostat::start_within(tempfile::tempdir().unwrap(), &[], &s3.environment());
    let client = node.create("shop").await;
    each(
        &client,
        &[
            "CREATE TABLE t (a integer)",
            "INSERT INTO t VALUES (1)",
            "BACKUP DATABASE shop TO 's3://backups/shop'",
        ],
    )
    .await;
    let refused = async |sql: &str, state: &str| {
        let error = client.batch_execute(sql).await.unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), state, "{error:?}");
        let shown = format!("{error:?}");
        assert!(
            !shown.contains(SECRET) && !shown.contains("hidden"),
            "{shown}"
        );
        shown
    };
    let taken = refused("BACKUP DATABASE shop TO 's3://backups/shop'", "22023").await;
    assert!(
        taken.contains("s3://backups/shop is there already"),
        "{taken}"
    );
    for url in [
        "s3://key:hidden@backups/x",
        "s3://backups/x?key=hidden",
        "ftp://host/x",
    ] {
        refused(&format!("BACKUP DATABASE shop TO '{url}'"), "22023").await;
        refused(&format!("RESTORE DATABASE r FROM '{url}'"), "22023").await;
        refused(
            &format!("ALTER DATABASE shop SET (log_archive = '{url}')"),
            "22023",
        )
        .await;
    }
    refused("RESTORE DATABASE r FROM 's3://backups/nothing'", "22023").await;
    let missing = refused("BACKUP DATABASE shop TO 's3://none/x'", "58030").await;
    assert!(missing.contains("NoSuchBucket"), "{missing}");

    client
        .batch_execute("ALTER DATABASE shop SET (log_archive = 's3://backups/log')")
        .await
        .unwrap();
    drop(s3);
    let gone = refused("BACKUP DATABASE shop TO 's3://backups/y'", "58030").await;
    assert!(gone.contains("s3://backups/y"), "{gone}");
    client
        .batch_execute("INSERT INTO t VALUES (2)")
        .await
        .unwrap();
    refused("CHECKPOINT", "58030").await;
    assert_eq!(value(&client, "SELECT count(*) FROM t").await, "2");
    // A node whose store is away starts, and serves.
    let node = Aerostat::start_on(node.kill(), &[]);
    let client = node.connect("shop").await;
    assert_eq!(value(&client, "SELECT count(*) FROM t").await, "2");
    assert!(!node.log().contains(SECRET));
}
