//! What is acknowledged outlives the process: stopped, killed at any moment, or
//! brought down at a fault point of the log; beside checkpoints, backups, definitions and large
//! transactions that are open then.
//!
//! `AEROSTAT_CRASH_ROUNDS` says how often the crash test kills the node,
//! `AEROSTAT_CRASH_SEED` begins with the seed that a failure printed.

use std::collections::BTreeMap;
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicI64, Ordering},
};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use crate::harness::{Aerostat, sqlstate, value};

/// Every row of a query's answer, as text.
async fn rows(client: &Client, sql: &str) -> Vec<String> {
    let messages = client
        .simple_query(sql)
        .await
        .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    let row = |message: &SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => Some(
            (0..row.len())
                .map(|at| row.get(at).unwrap_or("NULL"))
                .collect::<Vec<_>>()
                .join("|"),
        ),
        _ => None,
    };
    messages.iter().filter_map(row).collect()
}

const MAKE: &str = "
    CREATE ROLE reader LOGIN;
    CREATE TABLE keyed (id bigint, part char(3), name text, amount numeric(12,2) DEFAULT 1.50, at timestamptz,
        flag boolean NOT NULL, CHECK (id > 0), PRIMARY KEY (part, id)) WITH (layout = '(id,part),(name),(amount,at,flag)');
    INSERT INTO keyed SELECT g, 'p' || g % 7, CASE WHEN g % 5 > 0 THEN repeat('text ', (g % 40)::integer) || g END,
        g / 8.0, '2024-01-01 00:00+00'::timestamptz + g * interval '1 hour', g % 2 = 0 FROM generate_series(1, 20000) AS g;
    UPDATE keyed SET name = 'updated', amount = amount * 2 WHERE id % 3 = 0;
    DELETE FROM keyed WHERE id % 10 = 0;
    UPDATE keyed SET id = id + 100000 WHERE id > 19990;
    CREATE TABLE keyless (a integer, b double precision, c bytea, d uuid, e interval, f date, g real, h smallint, i time);
    INSERT INTO keyless SELECT g % 50, g / 4.0, decode(lpad(to_hex(g % 256), 2, '0'), 'hex'),
        '00000000-0000-0000-0000-00000000000a', interval '1 day 2 hours', '2024-02-29', 0.5, 7, '12:34:56.789' FROM generate_series(1, 2000) AS g;
    INSERT INTO keyless (a) VALUES (NULL), (NULL), (77);
    DELETE FROM keyless WHERE a = 3 OR (a = 4 AND b < 100);
    UPDATE keyless SET b = -b WHERE a < 10;
    CREATE TABLE emptied (x integer PRIMARY KEY);
    INSERT INTO emptied SELECT g FROM generate_series(1, 1000) AS g;
    TRUNCATE emptied;
    INSERT INTO emptied VALUES (1), (2);
    CREATE TABLE dropped (x integer); INSERT INTO dropped VALUES (1); DROP TABLE dropped;
    CREATE SCHEMA other;
    CREATE TABLE other.made AS SELECT id, name FROM keyed WHERE id < 100;
    CREATE VIEW v AS SELECT part, count(*) AS n FROM keyed GROUP BY part;
    COMMENT ON TABLE keyed IS 'a comment';
    COMMENT ON COLUMN keyed.name IS 'a name';
    ALTER TABLE other.made RENAME TO renamed;
    GRANT SELECT ON keyed TO reader;
    GRANT USAGE ON SCHEMA other TO reader;
";

const ASK: [&str; 12] = [
    "SELECT * FROM keyed ORDER BY part, id",
    "SELECT * FROM keyless ORDER BY a, b, c",
    "SELECT * FROM emptied ORDER BY x",
    "SELECT * FROM other.renamed ORDER BY id",
    "SELECT * FROM v ORDER BY part",
    "SELECT schema_name, table_name, owner, layout, rows FROM aerostat.tables ORDER BY 1, 2",
    "SELECT relname, oid FROM pg_class WHERE oid >= 16384 ORDER BY oid",
    "SELECT obj_description('keyed'::regclass), col_description('keyed'::regclass, 3)",
    "SELECT column_name, data_type, column_default, is_nullable FROM information_schema.columns WHERE table_name = 'keyed' ORDER BY ordinal_position",
    "SELECT has_table_privilege('reader', 'keyed', 'SELECT'), has_table_privilege('reader', 'keyless', 'SELECT')",
    "SELECT conname FROM pg_constraint ORDER BY conname",
    "SELECT name, durability FROM aerostat.tenants ORDER BY name",
];

async fn answers(client: &Client) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for sql in ASK {
        all.push(rows(client, sql).await);
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_outlives_a_kill_and_a_stop() {
    let node = Aerostat::start();
    let client = node.create("shop").await;
    client.batch_execute(MAKE).await.unwrap();
    let before = answers(&client).await;
    assert_eq!(before[0].len(), 18_000);
    drop(client);

    let node = Aerostat::start_on(node.kill(), &[]);
    let client = node.connect("shop").await;
    assert_eq!(answers(&client).await, before, "after a kill");
    // What was recovered takes changes, keeps its keys, and is kept again.
    assert_eq!(
        sqlstate(
            &client,
            "INSERT INTO keyed VALUES (1, 'p1', 'x', 1, now(), true)"
        )
        .await,
        "23505"
    );
    assert_eq!(sqlstate(&client, "SELECT * FROM dropped").await, "42P01");
    client
        .batch_execute("CHECKPOINT; INSERT INTO emptied VALUES (3); CREATE TABLE later (x integer); INSERT INTO later VALUES (1)")
        .await
        .unwrap();
    let before = answers(&client).await;
    drop(client);

    let node = Aerostat::start_on(node.stop(), &[]);
    let client = node.connect("shop").await;
    assert_eq!(answers(&client).await, before, "after a stop");
    client
        .batch_execute("CHECKPOINT; DROP SCHEMA other CASCADE; DELETE FROM keyed; DROP TABLE later")
        .await
        .unwrap();
    let before = rows(&client, ASK[5]).await;
    drop(client);

    let node = Aerostat::start_on(node.kill(), &[]);
    let client = node.connect("shop").await;
    assert_eq!(rows(&client, ASK[5]).await, before, "after a second kill");
    assert_eq!(value(&client, "SELECT count(*) FROM keyed").await, "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_database_leaves_no_files() {
    let node = Aerostat::start();
    let client = node.create("gone").await;
    client
        .batch_execute("CREATE TABLE t AS SELECT 1 AS x")
        .await
        .unwrap();
    let admin = node.connect("aerostat").await;
    let oid = value(&admin, "SELECT oid FROM pg_database WHERE datname = 'gone'").await;
    let folder = node.data().join("tenants").join(oid);
    assert!(folder.is_dir());
    drop(client);
    node.wait_for_metric("aerostat_tenant_connections{tenant=\"gone\"}", 0.0);
    admin.batch_execute("DROP DATABASE gone").await.unwrap();
    assert!(!folder.exists());
    // What a crash in the middle of CREATE DATABASE leaves is removed at the next start.
    let data = node.stop();
    let orphan = data.path().join("tenants/99999");
    std::fs::create_dir_all(orphan.join("log")).unwrap();
    let _node = Aerostat::start_on(data, &[]);
    assert!(!orphan.exists());
}

/// Each transfer moves money between two accounts and notes it, in one statement
/// per table and worker; what a worker was told to be done it remembers.
const ACCOUNTS: i64 = 20;

/// Rows that one INSERT writes: a recovered node has all of them or none.
const ROWS_AT_ONCE: i64 = 5;

/// What the node acknowledged: for each worker the last batch it was told of.
type Acknowledged = Arc<Mutex<BTreeMap<i64, i64>>>;

async fn work(
    node: tokio_postgres::Config,
    worker: i64,
    done: Acknowledged,
    stop: Arc<AtomicBool>,
) {
    let Ok((client, connection)) = node.connect(NoTls).await else {
        return;
    };
    tokio::spawn(connection);
    let first = done.lock().unwrap().get(&worker).copied().unwrap_or(0) + 1;
    for batch in first.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let insert = format!(
            "INSERT INTO notes SELECT {worker}, {batch}, g, repeat('n', {batch} % 50) FROM generate_series(1, {ROWS_AT_ONCE}) AS g"
        );
        let (from, to) = (
            (worker * 7 + batch) % ACCOUNTS,
            (worker + batch * 3) % ACCOUNTS,
        );
        let transfer = format!(
            "UPDATE accounts SET balance = balance + CASE WHEN id = {from} AND id = {to} THEN 0 WHEN id = {from} THEN -{batch} ELSE {batch} END WHERE id IN ({from}, {to})"
        );
        let churn = format!("DELETE FROM scratch WHERE worker = {worker}");
        let refill =
            format!("INSERT INTO scratch SELECT {worker}, g FROM generate_series(1, 3) AS g");
        for sql in [&insert, &transfer, &churn, &refill] {
            if client.batch_execute(sql).await.is_err() {
                return;
            }
            if sql == &insert {
                done.lock().unwrap().insert(worker, batch);
            }
        }
    }
}

/// Defines in blocks: each generation empties and fills a table, and has a table of its own
/// in the place of the last one's.
async fn migrate(node: tokio_postgres::Config, stop: Arc<AtomicBool>, newest: Arc<AtomicI64>) {
    let Ok((client, connection)) = node.connect(NoTls).await else {
        return;
    };
    tokio::spawn(connection);
    let first = newest.load(Ordering::Relaxed) + 1;
    for generation in first.. {
        let before = generation - 1;
        let migration = format!(
            "BEGIN;
             TRUNCATE filled;
             INSERT INTO filled SELECT {generation}, g FROM generate_series(1, {ROWS_AT_ONCE}) AS g;
             SAVEPOINT s;
             DROP TABLE filled;
             ROLLBACK TO s;
             DROP TABLE made_{before};
             CREATE TABLE made_{generation} AS SELECT {generation} AS n;
             CREATE INDEX made_index ON made_{generation} (n);
             COMMIT"
        );
        if stop.load(Ordering::Relaxed) || client.batch_execute(&migration).await.is_err() {
            return;
        }
        newest.store(generation, Ordering::Relaxed);
    }
}

/// Rows of a large transaction: several times what is kept in memory before its commit.
const BULK_ROWS: i64 = 10_000;

/// Large transactions, which stay open for a while beside checkpoints, each with a table of
/// its session; every third is rolled back.
async fn load(node: tokio_postgres::Config, stop: Arc<AtomicBool>, newest: Arc<AtomicI64>) {
    let Ok((client, connection)) = node.connect(NoTls).await else {
        return;
    };
    tokio::spawn(connection);
    let first = newest.load(Ordering::Relaxed) + 1;
    let scratch = "CREATE TEMP TABLE own (n bigint)";
    if client.batch_execute(scratch).await.is_err() {
        return;
    }
    for attempt in 0.. {
        let number = newest.load(Ordering::Relaxed).max(first - 1) + 1;
        let insert = format!(
            "BEGIN; DELETE FROM bulk; INSERT INTO own VALUES ({number});
             INSERT INTO bulk SELECT {number}, g, repeat('b', 90) FROM generate_series(1, {BULK_ROWS}) AS g"
        );
        let is_undone = attempt % 3 == 2;
        let end = if is_undone { "ROLLBACK" } else { "COMMIT" };
        if stop.load(Ordering::Relaxed) || client.batch_execute(&insert).await.is_err() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(30)).await;
        if client.batch_execute(end).await.is_err() {
            return;
        }
        if !is_undone {
            newest.store(number, Ordering::Relaxed);
        }
    }
}

/// Of a large transaction there is all, and nothing of any other.
async fn check_bulk(client: &Client, newest: &AtomicI64, context: &str) {
    let acknowledged = newest.load(Ordering::Relaxed);
    let whole = "SELECT count(*), count(DISTINCT g), coalesce(min(number), 0), coalesce(max(number), 0) FROM bulk";
    let found = rows(client, whole).await.remove(0);
    let number: i64 = found.rsplit('|').next().unwrap().parse().unwrap();
    let count = if number == 0 { 0 } else { BULK_ROWS };
    assert_eq!(
        found,
        format!("{count}|{count}|{number}|{number}"),
        "{context}"
    );
    assert!(
        (acknowledged..=acknowledged + 1).contains(&number),
        "told of {acknowledged}, finds {number}; {context}"
    );
    newest.store(number, Ordering::Relaxed);
}

/// Of a generation there is all, and nothing of any other.
async fn check_migration(client: &Client, newest: &AtomicI64, context: &str) {
    let acknowledged = newest.load(Ordering::Relaxed);
    let made = "SELECT relname FROM pg_class WHERE relname LIKE 'made_%' ORDER BY 1";
    let made = rows(client, made).await;
    let number = |name: &String| name.strip_prefix("made_").and_then(|n| n.parse().ok());
    let found: i64 = made.iter().find_map(number).unwrap_or(-1);
    let expected = [format!("made_{found}"), "made_index".to_owned()];
    assert_eq!(made, expected, "{context}");
    let range = acknowledged..=acknowledged + 1;
    assert!(
        range.contains(&found),
        "told of {acknowledged}, finds {found}; {context}"
    );
    let filled = "SELECT count(*), min(generation), max(generation) FROM filled";
    let whole = format!("{ROWS_AT_ONCE}|{found}|{found}");
    assert_eq!(rows(client, filled).await, [whole], "{context}");
    let own = format!("SELECT n FROM made_{found}");
    assert_eq!(value(client, &own).await, found.to_string(), "{context}");
    newest.store(found, Ordering::Relaxed);
}

async fn check(client: &Client, done: &Acknowledged, context: &str) {
    let torn = "SELECT count(*) FROM (SELECT worker, batch FROM notes GROUP BY worker, batch HAVING count(*) <> ";
    let torn = format!("{torn}{ROWS_AT_ONCE}) AS torn");
    assert_eq!(
        value(client, &torn).await,
        "0",
        "half a statement is there; {context}"
    );
    assert_eq!(
        value(client, "SELECT sum(balance) FROM accounts").await,
        "0",
        "a transfer is there by half; {context}"
    );
    let halves = "SELECT count(*) FROM (SELECT worker FROM scratch GROUP BY worker HAVING count(*) <> 3) AS torn";
    assert_eq!(value(client, halves).await, "0", "{context}");
    let kept = rows(
        client,
        "SELECT worker, max(batch), count(DISTINCT batch) FROM notes GROUP BY worker",
    )
    .await;
    let kept: BTreeMap<i64, (i64, i64)> = kept
        .iter()
        .map(|row| {
            let numbers: Vec<i64> = row
                .split('|')
                .map(|number| number.parse().unwrap())
                .collect();
            (numbers[0], (numbers[1], numbers[2]))
        })
        .collect();
    let mut done = done.lock().unwrap();
    for (worker, acknowledged) in done.iter_mut() {
        let (last, count) = kept.get(worker).copied().unwrap_or((0, 0));
        assert!(
            last >= *acknowledged,
            "worker {worker} was told of batch {acknowledged} and finds {last}; {context}"
        );
        assert_eq!(last, count, "a batch before the last is missing; {context}");
        // One more may have been committed without its worker hearing of it.
        *acknowledged = last;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_node_loses_nothing_it_acknowledged() {
    kill_often(&[], 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_node_whose_values_leave_memory_loses_nothing_either() {
    kill_often(&["--evict", "always"], 60).await;
}

/// Ends nodes with these flags, so many if the environment does not say how many.
async fn kill_often(flags: &[&str], rounds: u64) {
    let number = |name: &str| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    let rounds = number("AEROSTAT_CRASH_ROUNDS").unwrap_or(rounds);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let mut seed = number("AEROSTAT_CRASH_SEED").unwrap_or(now.as_nanos() as u64);
    let mut node = Aerostat::start_with(flags);
    let client = node.create("bank").await;
    client
        .batch_execute(&format!(
            "CREATE TABLE accounts (id bigint PRIMARY KEY, balance bigint NOT NULL);
             INSERT INTO accounts SELECT g, 0 FROM generate_series(0, {ACCOUNTS} - 1) AS g;
             CREATE TABLE notes (worker bigint, batch bigint, n bigint, pad text, PRIMARY KEY (worker, batch, n));
             CREATE TABLE scratch (worker bigint, n bigint);
             CREATE TABLE filled (generation bigint, n bigint);
             INSERT INTO filled SELECT 0, g FROM generate_series(1, {ROWS_AT_ONCE}) AS g;
             CREATE TABLE bulk (number bigint, g bigint PRIMARY KEY, pad text);
             CREATE TABLE made_0 AS SELECT 0::bigint AS n;
             CREATE INDEX made_index ON made_0 (n)"
        ))
        .await
        .unwrap();
    drop(client);
    let done: Acknowledged = Arc::default();
    let newest: Arc<AtomicI64> = Arc::default();
    let loaded: Arc<AtomicI64> = Arc::default();
    let backups = tempfile::tempdir().unwrap();
    for round in 0..rounds {
        let context = format!("round {round}, AEROSTAT_CRASH_SEED={seed}");
        // SplitMix64: the next seed and this round's choices.
        seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (seed ^ (seed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let stop = Arc::new(AtomicBool::new(false));
        let workers: Vec<_> = (0..3)
            .map(|worker| {
                tokio::spawn(work(
                    node.config("bank"),
                    worker,
                    Arc::clone(&done),
                    Arc::clone(&stop),
                ))
            })
            .collect();
        let migration = tokio::spawn(migrate(
            node.config("bank"),
            Arc::clone(&stop),
            Arc::clone(&newest),
        ));
        let large = tokio::spawn(load(
            node.config("bank"),
            Arc::clone(&stop),
            Arc::clone(&loaded),
        ));
        let maintenance = tokio::spawn(maintain(
            node.config("bank"),
            mixed,
            backups.path().join(format!("backup {round}")),
        ));
        tokio::time::sleep(Duration::from_millis(5 + mixed % 200)).await;
        let data = match mixed >> 50 & 3 {
            0 => node.stop(),
            _ => node.kill(),
        };
        stop.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.await.unwrap();
        }
        migration.await.unwrap();
        large.await.unwrap();
        let backup = maintenance.await.unwrap();
        node = Aerostat::start_on(data, flags);
        let client = node.connect("bank").await;
        check(&client, &done, &context).await;
        check_migration(&client, &newest, &context).await;
        check_bulk(&client, &loaded, &context).await;
        if let Some(backup) = backup {
            check_backup(&node, &backup, &context).await;
        }
    }
}

/// Checkpoints until the node ends, and in some rounds a backup first: the place of one that
/// was acknowledged.
async fn maintain(
    node: tokio_postgres::Config,
    mixed: u64,
    backup: std::path::PathBuf,
) -> Option<std::path::PathBuf> {
    let (client, connection) = node.connect(NoTls).await.ok()?;
    tokio::spawn(connection);
    let mut done = None;
    if mixed >> 42 & 7 == 0 {
        let sql = format!("BACKUP DATABASE bank TO '{}'", backup.display());
        client.batch_execute(&sql).await.ok()?;
        done = Some(backup);
    }
    let checkpoints = if mixed & (1 << 40) == 0 { 0 } else { u64::MAX };
    for _ in 0..checkpoints {
        if client.batch_execute("CHECKPOINT").await.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(mixed >> 45 & 15)).await;
    }
    done
}

/// A backup restores to a database in which nothing is half there.
async fn check_backup(node: &Aerostat, backup: &std::path::Path, context: &str) {
    let admin = node.connect("aerostat").await;
    let sql = format!("RESTORE DATABASE again FROM '{}'", backup.display());
    admin.batch_execute(&sql).await.expect(context);
    let client = node.connect("again").await;
    check(&client, &Acknowledged::default(), context).await;
    let whole =
        format!("SELECT count(*) IN (0, {BULK_ROWS}) AND count(DISTINCT number) < 2 FROM bulk");
    assert_eq!(value(&client, &whole).await, "t", "{context}");
    drop(client);
    node.wait_for_metric("aerostat_tenant_connections{tenant=\"again\"}", 0.0);
    admin
        .batch_execute("DROP DATABASE again")
        .await
        .expect(context);
    std::fs::remove_dir_all(backup).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen_rows_answer_and_change_as_before() {
    let node = Aerostat::start_with(&["--freezer", "0%"]);
    let client = node.create("shop").await;
    client.batch_execute(MAKE).await.unwrap();
    let before = answers(&client).await;
    client.batch_execute("VACUUM FREEZE").await.unwrap();
    assert_eq!(answers(&client).await, before, "after freezing");
    let frozen = "SELECT bool_and(rows_frozen = rows AND bytes_used < bytes_raw) FROM aerostat.tables WHERE rows > 1000";
    assert_eq!(value(&client, frozen).await, "t");
    client
        .batch_execute(
            "UPDATE keyed SET name = 'thawed' WHERE id % 100 = 1;
             DELETE FROM keyed WHERE id % 100 = 2;
             INSERT INTO keyed SELECT g, 'new', NULL, 0, now(), true FROM generate_series(1, 500) AS g;
             DELETE FROM keyless WHERE a = 20;
             UPDATE emptied SET x = x + 10",
        )
        .await
        .unwrap();
    assert_eq!(
        sqlstate(
            &client,
            "INSERT INTO keyed VALUES (5, 'p5', 'x', 1, now(), true)"
        )
        .await,
        "23505",
        "keys of frozen rows are taken"
    );
    let before = answers(&client).await;
    client
        .batch_execute("VACUUM (FREEZE) keyed, keyless")
        .await
        .unwrap();
    assert_eq!(answers(&client).await, before, "after freezing again");
    drop(client);
    let node = Aerostat::start_on(node.kill(), &[]);
    assert_eq!(
        answers(&node.connect("shop").await).await,
        before,
        "after a kill"
    );
}

/// Frozen rows come back as the checkpoint has them, and definitions as the log has: what a key demands holds
/// from the first statement on, whatever has been defined between the two.
#[tokio::test(flavor = "multi_thread")]
async fn keys_made_after_a_checkpoint_are_kept_after_a_kill() {
    // Nobody re-lays the rows meanwhile.
    let node = Aerostat::start_with(&["--freezer", "0%"]);
    let client = node.create("shop").await;
    client
        .batch_execute(
            "CREATE TABLE made (id integer, code bigint, name text NOT NULL);
             CREATE TABLE loosened (id integer, code bigint NOT NULL UNIQUE, name text NOT NULL, UNIQUE (name, code));
             INSERT INTO made SELECT g, g * 3, 'name ' || g FROM generate_series(1, 20000) AS g;
             INSERT INTO loosened SELECT g, g * 3, 'name ' || g FROM generate_series(1, 20000) AS g",
        )
        .await
        .unwrap();
    client.batch_execute("VACUUM FREEZE").await.unwrap();
    client.batch_execute("CHECKPOINT").await.unwrap();
    client
        .batch_execute(
            "ALTER TABLE made ADD CONSTRAINT made_code UNIQUE (code);
             CREATE UNIQUE INDEX made_name ON made (name, id);
             ALTER TABLE loosened ALTER COLUMN code DROP NOT NULL, ALTER COLUMN name DROP NOT NULL;
             CREATE TABLE refers (code bigint REFERENCES made (code), other bigint REFERENCES loosened (code))",
        )
        .await
        .unwrap();
    drop(client);
    let node = Aerostat::start_on(node.kill(), &["--freezer", "0%"]);
    let client = node.connect("shop").await;
    for (sql, expected) in [
        ("INSERT INTO made VALUES (0, 30, 'new')", "23505"),
        ("INSERT INTO made VALUES (10, 1, 'name 10')", "23505"),
        ("INSERT INTO loosened VALUES (0, 30, 'new')", "23505"),
        ("INSERT INTO loosened VALUES (0, 33, NULL)", "23505"),
        ("UPDATE loosened SET code = 33 WHERE code = 30", "23505"),
        ("INSERT INTO refers VALUES (1, 3)", "23503"),
        ("INSERT INTO refers VALUES (3, 1)", "23503"),
        ("DELETE FROM made WHERE code = 30", ""),
        ("INSERT INTO made VALUES (0, 30, 'new')", ""),
        ("INSERT INTO refers VALUES (30, 30)", ""),
        ("DELETE FROM loosened WHERE code = 30", "23503"),
        (
            "INSERT INTO loosened VALUES (0, NULL, NULL), (0, NULL, NULL)",
            "",
        ),
        (
            "INSERT INTO loosened VALUES (0, 60, 'x') ON CONFLICT (code) DO UPDATE SET name = 'again'",
            "",
        ),
    ] {
        match expected {
            "" => client.batch_execute(sql).await.unwrap(),
            state => assert_eq!(sqlstate(&client, sql).await, state, "{sql}"),
        }
    }
    let again = "SELECT count(*) || ' ' || min(name) FROM loosened WHERE code = 60";
    assert_eq!(value(&client, again).await, "1 again");
}

/// Numbers of sequences are never given again, whether or not a row with them was committed.
#[tokio::test(flavor = "multi_thread")]
async fn no_number_of_a_sequence_comes_twice_after_kills() {
    let mut node = Aerostat::start();
    let client = node.create("shop").await;
    client
        .batch_execute(
            "CREATE SEQUENCE s; CREATE SEQUENCE moved; SELECT setval('moved', 500);
             CREATE TABLE t (id serial PRIMARY KEY, v bigint GENERATED ALWAYS AS IDENTITY);
             CREATE SEQUENCE altered; SELECT nextval('altered'); ALTER SEQUENCE altered INCREMENT 5",
        )
        .await
        .unwrap();
    let undone = "BEGIN; CREATE SEQUENCE undone; SELECT nextval('undone'); ROLLBACK";
    client.batch_execute(undone).await.unwrap();
    drop(client);
    let mut taken: BTreeMap<&str, Vec<i64>> = BTreeMap::new();
    for round in 0..4 {
        let client = node.connect("shop").await;
        for (name, sql) in [
            ("s", "SELECT nextval('s') FROM generate_series(1, 90)"),
            ("moved", "SELECT nextval('moved')"),
            (
                "altered",
                "SELECT nextval('altered') FROM generate_series(1, 3)",
            ),
            (
                "t",
                "INSERT INTO t (id) SELECT nextval('t_id_seq') FROM generate_series(1, 40) RETURNING id",
            ),
            ("t", "INSERT INTO t DEFAULT VALUES RETURNING id"),
        ] {
            let numbers = rows(&client, sql).await;
            let numbers = numbers.iter().map(|number| number.parse::<i64>().unwrap());
            taken.entry(name).or_default().extend(numbers);
        }
        if round == 2 {
            client.batch_execute("CHECKPOINT").await.unwrap();
        }
        assert_eq!(sqlstate(&client, "SELECT nextval('undone')").await, "42P01");
        drop(client);
        node = Aerostat::start_on(node.kill(), &[]);
    }
    for (name, numbers) in taken {
        let ascends = numbers.windows(2).all(|pair| pair[0] < pair[1]);
        assert!(ascends, "{name}: {numbers:?}");
    }
    let client = node.connect("shop").await;
    let twice = "SELECT count(*) - count(DISTINCT v) FROM t";
    assert_eq!(value(&client, twice).await, "0");
}

/// Temporary tables and what is written to them go with their session, and no file has them.
#[tokio::test(flavor = "multi_thread")]
async fn restarts_and_backups_know_nothing_of_temporary_tables() {
    let node = Aerostat::start();
    let root = tempfile::tempdir().unwrap();
    let backup = root.path().join("backup").display().to_string();
    let client = node.create("shop").await;
    client
        .batch_execute(
            "CREATE TABLE kept (x integer);
             CREATE TEMP TABLE scratch (id serial PRIMARY KEY, v text);
             CREATE VIEW v AS SELECT v FROM scratch;
             BEGIN;
             INSERT INTO scratch (v) SELECT 'needle ' || g FROM generate_series(1, 1000) AS g;
             INSERT INTO kept SELECT count(*) FROM scratch;
             CREATE TABLE beside AS SELECT 1 AS x;
             CREATE TEMP TABLE more AS SELECT * FROM v;
             COMMIT;
             CHECKPOINT;
             INSERT INTO scratch (v) VALUES ('needle in the log')",
        )
        .await
        .unwrap();
    assert_eq!(value(&client, "SELECT count(*) FROM v").await, "1001");
    let admin = node.connect("aerostat").await;
    admin
        .batch_execute(&format!("BACKUP DATABASE shop TO '{backup}'"))
        .await
        .unwrap();
    for folder in [node.data(), root.path()] {
        assert!(!holds(folder, b"needle"), "{}", folder.display());
    }
    assert_eq!(value(&client, "SELECT count(*) FROM more").await, "1000");

    let node = Aerostat::start_on(node.kill(), &[]);
    let admin = node.connect("aerostat").await;
    admin
        .batch_execute(&format!("RESTORE DATABASE restored FROM '{backup}'"))
        .await
        .unwrap();
    for database in ["shop", "restored"] {
        let client = node.connect(database).await;
        assert_eq!(value(&client, "SELECT x FROM kept").await, "1000");
        assert_eq!(value(&client, "SELECT x FROM beside").await, "1");
        for gone in ["scratch", "v", "more", "scratch_id_seq"] {
            let sql = format!("SELECT * FROM {gone}");
            assert_eq!(sqlstate(&client, &sql).await, "42P01", "{database}: {sql}");
        }
    }
}

/// Whether a file below the folder has these bytes.
fn holds(folder: &std::path::Path, bytes: &[u8]) -> bool {
    std::fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return holds(&path, bytes);
        }
        let contents = std::fs::read(&path).unwrap();
        contents.windows(bytes.len()).any(|window| window == bytes)
    })
}
