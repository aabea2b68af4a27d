//! Many connections at once: each reader sees one moment, and a client that dies
//! leaves nothing half done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use crate::harness::{Aerostat, PATIENCE, value};
use crate::raw::Raw;

const READERS: usize = 8;
const WRITERS: u64 = 4;
const ACCOUNTS: u64 = 500;
const BATCH: u64 = 10;
const RUN: Duration = Duration::from_secs(4);

/// Shared by the tasks of one run.
#[derive(Default)]
struct Run {
    over: AtomicBool,
    reads: AtomicU64,
    writes: AtomicU64,
}

impl Run {
    fn goes_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }
}

/// Runs a write; losing to another writer is no failure, anything else is.
async fn write(client: &Client, run: &Run, sql: &str) -> u64 {
    match client.execute(sql, &[]).await {
        Ok(rows) => {
            run.writes.fetch_add(1, Ordering::Relaxed);
            rows
        }
        Err(error) => {
            let code = error.code().unwrap_or_else(|| panic!("{sql}: {error:?}"));
            let lost = [
                SqlState::T_R_SERIALIZATION_FAILURE,
                SqlState::T_R_DEADLOCK_DETECTED,
            ];
            assert!(lost.contains(code), "{sql}: {error:?}");
            0
        }
    }
}

/// A writer of its own: moves money between accounts, and adds, changes and removes
/// batches of rows, each in one statement.
async fn writer(client: Client, run: Arc<Run>, id: u64) {
    let mut random = id + 1;
    let mut batch = id * 1_000_000;
    while run.goes_on() {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let a = (random >> 33) % ACCOUNTS;
        let b = (a + 1 + (random >> 17) % (ACCOUNTS - 1)) % ACCOUNTS;
        let sql = format!(
            "UPDATE accounts SET balance = balance + CASE id WHEN {a} THEN -7 ELSE 7 END WHERE id IN ({a}, {b})"
        );
        let moved = write(&client, &run, &sql).await;
        assert!(moved == 0 || moved == 2, "{moved} rows changed: {sql}");
        let sql =
            format!("INSERT INTO log SELECT {batch}, n, 0 FROM generate_series(1, {BATCH}) AS n");
        assert_eq!(write(&client, &run, &sql).await, BATCH);
        let sql = format!("UPDATE log SET v = v + 1 WHERE batch = {batch}");
        assert_eq!(write(&client, &run, &sql).await, BATCH, "{sql}");
        if batch.is_multiple_of(3) {
            let sql = format!("DELETE FROM log WHERE batch = {batch}");
            assert_eq!(write(&client, &run, &sql).await, BATCH, "{sql}");
        }
        batch += 1;
    }
}

/// Every read sees whole statements only.
async fn reader(client: Client, run: Arc<Run>) {
    while run.goes_on() {
        let total = value(
            &client,
            "SELECT sum(balance) || '/' || count(*) FROM accounts",
        )
        .await;
        assert_eq!(total, format!("{}/{ACCOUNTS}", ACCOUNTS * 100));
        let torn = "SELECT count(*) FROM (SELECT batch FROM log GROUP BY batch HAVING count(*) <> 10 OR min(v) <> max(v)) AS t";
        assert_eq!(value(&client, torn).await, "0");
        // One statement that reads the table twice sees the same twice.
        let twice = "SELECT (SELECT count(*) FROM log) = (SELECT count(*) FROM log)";
        assert_eq!(value(&client, twice).await, "t");
        run.reads.fetch_add(1, Ordering::Relaxed);
    }
}

async fn readers_and_writers(layout: &str) {
    let node = Aerostat::start();
    let admin = node.create("bank").await;
    let tables = format!(
        "CREATE TABLE accounts (id integer PRIMARY KEY, owner text, balance bigint NOT NULL) WITH (layout = '{layout}');
         CREATE TABLE log (batch bigint, n integer, v integer, PRIMARY KEY (batch, n)) WITH (layout = '{layout}');
         INSERT INTO accounts SELECT g, 'owner ' || g, 100 FROM generate_series(0, {}) AS g",
        ACCOUNTS - 1
    );
    admin.batch_execute(&tables).await.unwrap();
    let run = Arc::new(Run::default());
    let mut tasks = JoinSet::new();
    for id in 0..WRITERS {
        tasks.spawn(writer(node.connect("bank").await, Arc::clone(&run), id));
    }
    for _ in 0..READERS {
        tasks.spawn(reader(node.connect("bank").await, Arc::clone(&run)));
    }
    // A task that ends before its time has failed; joining it says why.
    tokio::select! {
        Some(ended) = tasks.join_next() => ended.unwrap(),
        () = tokio::time::sleep(RUN) => {}
    }
    run.over.store(true, Ordering::Relaxed);
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    let (reads, writes) = (
        run.reads.load(Ordering::Relaxed),
        run.writes.load(Ordering::Relaxed),
    );
    assert!(reads > 0 && writes > 0, "{reads} reads, {writes} writes");
    eprintln!("{layout}: {reads} reads, {writes} writes");
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_see_whole_statements_in_row_layout() {
    readers_and_writers("row").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_see_whole_statements_in_column_layout() {
    readers_and_writers("column").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_dies_in_a_copy_leaves_nothing() {
    let node = Aerostat::start();
    let admin = node.create("t").await;
    admin
        .batch_execute("CREATE TABLE c (id integer PRIMARY KEY, v text)")
        .await
        .unwrap();
    let mut raw = Raw::session(node.sql, "t");
    raw.send_query(b"COPY c FROM STDIN").unwrap();
    assert_eq!(raw.read().unwrap().0, b'G');
    for chunk in 0..200 {
        let rows: String = (0..500)
            .map(|n| format!("{}\trow\n", chunk * 500 + n))
            .collect();
        raw.send(b'd', rows.as_bytes()).unwrap();
    }
    // Half a row is on its way when the client dies.
    raw.send(b'd', b"999999\tha").unwrap();
    drop(raw);
    node.wait_for_metric("aerostat_tenant_connections{tenant=\"t\"}", 1.0);
    assert_eq!(value(&admin, "SELECT count(*) FROM c").await, "0");
    // Its keys are free again.
    admin
        .batch_execute("INSERT INTO c SELECT g, 'new' FROM generate_series(0, 999) AS g")
        .await
        .unwrap();
    assert_eq!(
        value(&admin, "SELECT count(*) || ' ' || min(v) FROM c").await,
        "1000 new"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_dies_in_a_query_frees_everything() {
    let node = Aerostat::start();
    let admin = node.create("t").await;
    admin
        .batch_execute("CREATE TABLE c (id integer PRIMARY KEY, v integer)")
        .await
        .unwrap();
    admin
        .batch_execute("INSERT INTO c SELECT g, 0 FROM generate_series(1, 20000) AS g")
        .await
        .unwrap();
    let used = node.metric("aerostat_tenant_memory_used_bytes{tenant=\"t\"}");
    let endless = "SELECT count(*) FROM c AS a, c AS b, c AS d WHERE a.v + b.v + d.v = -1";
    let slow_write =
        "UPDATE c SET v = (SELECT count(*) FROM c AS a, c AS b WHERE a.v + b.v = -c.id)";
    for sql in [endless, slow_write] {
        let mut raw = Raw::session(node.sql, "t");
        raw.send_query(sql.as_bytes()).unwrap();
        tokio::time::sleep(Duration::from_millis(300)).await;
        drop(raw);
        node.wait_for_metric("aerostat_tenant_connections{tenant=\"t\"}", 1.0);
    }
    assert_eq!(value(&admin, "SELECT sum(v) FROM c").await, "0");
    admin.batch_execute("UPDATE c SET v = 1").await.unwrap();
    assert_eq!(value(&admin, "SELECT sum(v) FROM c").await, "20000");
    // Queries' memory is given back; rows' new versions may stay until they are swept.
    let started = Instant::now();
    while node.metric("aerostat_tenant_memory_used_bytes{tenant=\"t\"}")
        > used + f64::from(64 << 20)
    {
        assert!(
            started.elapsed() < PATIENCE,
            "memory of dead queries is kept"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_fails_half_way_changes_nothing() {
    let node = Aerostat::start();
    let client = node.create("t").await;
    client
        .batch_execute(
            "CREATE TABLE c (id integer PRIMARY KEY, v integer);
             INSERT INTO c SELECT g, g FROM generate_series(1, 30000) AS g",
        )
        .await
        .unwrap();
    let sum = value(&client, "SELECT sum(id) || ' ' || sum(v) FROM c").await;
    for sql in [
        "UPDATE c SET v = 100 / (id - 29999)",
        "INSERT INTO c SELECT g, g FROM generate_series(60000, 30000, -1) AS g",
        "DELETE FROM c WHERE 100 / (id - 29999) > -1000",
        "UPDATE c SET id = 1",
        "INSERT INTO c SELECT id + 100000, 100 / (id - 29999) FROM c",
    ] {
        assert!(client.simple_query(sql).await.is_err(), "{sql}");
        assert_eq!(
            value(&client, "SELECT sum(id) || ' ' || sum(v) FROM c").await,
            sum,
            "{sql}"
        );
    }
}

/// TRUNCATE and DROP wait for an open block that has written to the table.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_stays_until_the_blocks_that_use_it_have_ended() {
    let node = Aerostat::start();
    let other = node.create("d").await;
    let client = node.connect("d").await;
    for (sql, left) in [("TRUNCATE t", "0"), ("DROP TABLE t", "none")] {
        other
            .batch_execute("CREATE TABLE IF NOT EXISTS t (a integer); CREATE TABLE IF NOT EXISTS u (a integer)")
            .await
            .unwrap();
        client
            .batch_execute("BEGIN; INSERT INTO u VALUES (1); INSERT INTO t VALUES (1)")
            .await
            .unwrap();
        let waits = other.batch_execute("SET lock_timeout = '20ms'").await;
        waits.unwrap();
        assert_eq!(
            crate::harness::sqlstate(&other, sql).await,
            "55P03",
            "{sql}"
        );
        other.batch_execute("SET lock_timeout = 0").await.unwrap();
        let (ended, done) = tokio::join!(client.batch_execute("COMMIT"), other.batch_execute(sql));
        ended.unwrap();
        done.unwrap();
        if left == "none" {
            let state = crate::harness::sqlstate(&client, "SELECT count(*) FROM t").await;
            assert_eq!(state, "42P01");
        } else {
            assert_eq!(value(&client, "SELECT count(*) FROM t").await, left);
        }
    }
    assert_eq!(value(&client, "SELECT count(*) FROM u").await, "2");
}
