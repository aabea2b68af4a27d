//! Databases larger than their memory: values leave it, and every statement goes on.

use std::{fs, time::Instant};

use tokio_postgres::Client;

use crate::harness::{Aerostat, PATIENCE, sqlstate, value};

/// Rows of a batch, each in a transaction of its own.
const BATCH: i64 = 100_000;

async fn numbers(client: &Client, sql: &str) -> Vec<i64> {
    let row = client.query_one(sql, &[]).await.expect(sql);
    (0..row.len()).map(|at| row.get(at)).collect()
}

async fn run(client: &Client, sql: &str) {
    if let Err(error) = client.batch_execute(sql).await {
        panic!("{sql}: {error:?}");
    }
}

/// Fills or freezes a node that is full: a statement waits some seconds for images of what is to leave, and a disk
/// that many tests share may take longer for them.
async fn fill(client: &Client, sql: &str) {
    let started = Instant::now();
    while let Err(error) = client.batch_execute(sql).await {
        let is_refused = error.code().is_some_and(|code| code.code() == "53200");
        if !is_refused || started.elapsed() >= PATIENCE {
            panic!("{sql}: {error:?}");
        }
    }
}

/// Texts that no encoding makes small, and numbers that can be foretold.
async fn load(client: &Client, batches: std::ops::Range<i64>) {
    for batch in batches {
        let (first, last) = (batch * BATCH, (batch + 1) * BATCH - 1);
        let sql = format!(
            "INSERT INTO t SELECT n, n * 7919 % 1000003, md5(n::text), n % 10 \
             FROM generate_series({first}::bigint, {last}) AS s(n)"
        );
        fill(client, &sql).await;
    }
}

const TABLE: &str = "CREATE TABLE t (k bigint PRIMARY KEY, n bigint NOT NULL, x text, g bigint)";

fn sum_of_n(rows: i64) -> i64 {
    (0..rows).map(|k| k * 7919 % 1_000_003).sum()
}

async fn bytes(client: &Client) -> (i64, i64) {
    let sql = "SELECT bytes_used, bytes_evicted FROM aerostat.tables WHERE table_name = 't'";
    let row = numbers(client, sql).await;
    (row[0], row[1])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_of_four_times_its_memory_goes_on_with_every_statement() {
    const BATCHES: i64 = 112;
    const MEMORY: i64 = 112 << 20;
    let rows = BATCHES * BATCH;
    let mut node = Aerostat::start();
    let admin = node.connect("postgres").await;
    run(&admin, "CREATE DATABASE shop WITH (memory_max = '1GB')").await;
    let mut client = node.connect("shop").await;
    run(&client, TABLE).await;
    load(&client, 0..BATCHES).await;
    run(&client, "VACUUM FREEZE t; CHECKPOINT").await;
    run(&client, "ALTER DATABASE shop SET (memory_max = '112MB')").await;
    for round in 0..2 {
        let (used, evicted) = bytes(&client).await;
        assert!(
            used <= MEMORY && used + evicted > 4 * MEMORY,
            "{used}, {evicted}"
        );
        let all = "SELECT count(*), sum(n)::bigint, min(k), max(k) FROM t";
        assert_eq!(
            numbers(&client, all).await,
            [rows, sum_of_n(rows), 0, rows - 1]
        );
        let texts = "SELECT count(*) FROM t WHERE x = md5(k::text)";
        assert_eq!(numbers(&client, texts).await, [rows]);
        let grouped =
            "SELECT count(*), sum(c)::bigint FROM (SELECT g, count(*) c FROM t GROUP BY g) s";
        assert_eq!(numbers(&client, grouped).await, [10, rows]);
        // Points by key, of which the simple ones take the fast path.
        for k in (0..rows).step_by(rows as usize / 40) {
            let sql = format!("SELECT n FROM t WHERE k = {k}");
            assert_eq!(numbers(&client, &sql).await, [k * 7919 % 1_000_003]);
        }
        let joined =
            "SELECT count(*) FROM t a JOIN t b ON a.k = b.n WHERE a.k < 1000 AND b.n < 1000";
        let expected = (0..rows).filter(|k| k * 7919 % 1_000_003 < 1000).count();
        assert_eq!(numbers(&client, joined).await, [expected as i64]);
        let sorted = "SELECT n FROM t ORDER BY n DESC, k LIMIT 1";
        let greatest = numbers(&client, sorted).await[0];
        let above = format!("SELECT count(*) FROM t WHERE n > {greatest}");
        assert_eq!(numbers(&client, &above).await, [0]);
        // Changes, undone in the end.
        run(&client, "UPDATE t SET n = n + 1 WHERE k % 5000 = 0").await;
        run(&client, "DELETE FROM t WHERE k >= 1000000 AND k < 1000500").await;
        let changed = numbers(&client, "SELECT count(*), sum(n)::bigint FROM t").await;
        let gone: i64 = (1_000_000..1_000_500)
            .map(|k: i64| k * 7919 % 1_000_003)
            .sum();
        // One of the changed rows is among those that were deleted.
        assert_eq!(
            changed,
            [rows - 500, sum_of_n(rows) - gone + rows / 5_000 - 1]
        );
        run(
            &client,
            "INSERT INTO t SELECT k, k * 7919 % 1000003, md5(k::text), k % 10 FROM generate_series(1000000::bigint, 1000499) AS s(k); \
             UPDATE t SET n = k * 7919 % 1000003 WHERE k % 5000 = 0",
        )
        .await;
        let twice = sqlstate(&client, "INSERT INTO t VALUES (77, 0, '', 0)").await;
        assert_eq!(twice, "23505");
        assert_eq!(
            numbers(&client, all).await,
            [rows, sum_of_n(rows), 0, rows - 1]
        );
        if round == 0 {
            let worth = "SELECT bytes_evicted_total, bytes_read_back_total, reads_total \
                         FROM aerostat.evictions WHERE database = 'shop'";
            let counted = numbers(&client, worth).await;
            assert!(counted.iter().all(|count| *count > 0), "{counted:?}");
            let curve = "SELECT max(bytes_not_read)::bigint FROM aerostat.memory_worth WHERE database = 'shop'";
            let saved = numbers(&client, curve).await[0];
            assert!(saved > 0 && saved <= counted[1], "{saved} of {counted:?}");
            // It opens within its memory, too.
            drop(client);
            let data = node.stop();
            node = Aerostat::start_on(data, &[]);
            client = node.connect("shop").await;
        }
    }
    // What is rewritten as a whole takes more than that.
    run(&client, "ALTER DATABASE shop SET (memory_max = '1GB')").await;
    run(
        &client,
        "VACUUM FREEZE t; ALTER TABLE t ADD COLUMN y int DEFAULT 3",
    )
    .await;
    assert_eq!(
        numbers(&client, "SELECT sum(y)::bigint FROM t").await,
        [3 * rows]
    );
    run(&client, "TRUNCATE t").await;
    assert_eq!(numbers(&client, "SELECT count(*) FROM t").await, [0]);
}

/// Nothing can be evicted, and freezing takes memory of which there is none: the next statements make way all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_full_of_rows_that_nobody_has_frozen_goes_on() {
    let node = Aerostat::start_with(&["--memory", "96MB", "--freezer", "0%"]);
    let mut client = node.create("shop").await;
    run(&client, TABLE).await;
    // Rows that are not committed are not frozen.
    let mut all = client.transaction().await.unwrap();
    let mut rows = 0;
    let one = |rows: i64| {
        format!(
            "INSERT INTO t SELECT n, n * 7919 % 1000003, md5(n::text), n % 10 FROM generate_series({rows}::bigint, {}) AS s(n)",
            rows + 9_999
        )
    };
    loop {
        let savepoint = all.savepoint("s").await.unwrap();
        if let Err(error) = savepoint.batch_execute(&one(rows)).await {
            assert_eq!(
                error.code().map(|code| code.code()),
                Some("53200"),
                "{error:?}"
            );
            savepoint.rollback().await.unwrap();
            break;
        }
        savepoint.commit().await.unwrap();
        rows += 10_000;
    }
    all.commit().await.unwrap();
    assert!(rows >= 400_000, "{rows}");
    for _ in 0..100 {
        fill(&client, &one(rows)).await;
        rows += 10_000;
    }
    fill(&client, "VACUUM FREEZE t").await;
    let sums = "SELECT count(*), sum(n)::bigint FROM t";
    assert_eq!(numbers(&client, sums).await, [rows, sum_of_n(rows)]);
}

/// Changes stand in front of values that are evicted: making way reads those back, where memory is short.
#[tokio::test(flavor = "multi_thread")]
async fn changes_of_evicted_rows_go_on_in_little_memory() {
    let node = Aerostat::start_with(&["--memory", "160MB", "--freezer", "0%"]);
    let client = node.create("shop").await;
    run(&client, TABLE).await;
    load(&client, 0..30).await;
    fill(&client, "VACUUM FREEZE t; CHECKPOINT").await;
    let rows = 30 * BATCH;
    for round in 0..10 {
        // New texts, in all segments.
        let sql = format!(
            "UPDATE t SET n = n + 1, x = md5(x) WHERE k % 100 = {}",
            round * 10
        );
        fill(&client, &sql).await;
    }
    let sums = "SELECT count(*), sum(n)::bigint FROM t";
    assert_eq!(
        numbers(&client, sums).await,
        [rows, sum_of_n(rows) + rows / 10]
    );
    let texts = "SELECT count(*) FROM t WHERE x = md5(md5(k::text))";
    assert_eq!(numbers(&client, texts).await, [rows / 10]);
    fill(&client, "VACUUM FREEZE t; CHECKPOINT").await;
    assert_eq!(
        numbers(&client, sums).await,
        [rows, sum_of_n(rows) + rows / 10]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_gives_back_what_its_frozen_rows_take() {
    let node = Aerostat::start_with(&["--memory", "1GB"]);
    let client = node.create("shop").await;
    run(&client, TABLE).await;
    load(&client, 0..40).await;
    run(&client, "VACUUM FREEZE t; CHECKPOINT").await;
    let rows = 40 * BATCH;
    let (whole, evicted) = bytes(&client).await;
    assert!(whole > 120 << 20 && evicted == 0, "{whole}, {evicted}");
    let before = node.resident_bytes();
    let half = u64::try_from(whole / 2).unwrap();
    let admin = node.connect("postgres").await;
    run(&admin, "ALTER SYSTEM SET memory = '64MB'").await;
    let started = Instant::now();
    while node.resident_bytes() > before - half {
        assert!(
            started.elapsed() < PATIENCE,
            "{before}, now {}",
            node.resident_bytes()
        );
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    let (used, evicted) = bytes(&client).await;
    assert!(
        used + evicted == whole && evicted > whole / 2,
        "{used}, {evicted}"
    );
    let all = "SELECT count(*), sum(n)::bigint FROM t";
    assert_eq!(numbers(&client, all).await, [rows, sum_of_n(rows)]);
    run(&admin, "ALTER SYSTEM RESET memory").await;
    let texts = "SELECT count(*) FROM t WHERE x = md5(k::text)";
    assert_eq!(numbers(&client, texts).await, [rows]);
    assert_eq!(numbers(&client, all).await, [rows, sum_of_n(rows)]);
    // All is back, but for what nobody has asked for.
    let (used, evicted) = bytes(&client).await;
    assert!(
        used > whole * 9 / 10,
        "{used} of {whole}, {evicted} evicted"
    );
    assert_eq!(
        node.metric("aerostat_tenant_evicted_bytes{tenant=\"shop\"}"),
        evicted as f64
    );
}

/// What a database called `kept` has, and what is promised to it.
async fn kept_for(client: &Client) -> (i64, i64) {
    let sql =
        "SELECT bytes_used, bytes_promised FROM aerostat.memory_limits WHERE database = 'kept'";
    let row = numbers(client, sql).await;
    (row[0], row[1])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_node_takes_from_who_has_the_most_and_leaves_each_its_minimum() {
    const MIB: f64 = (1 << 20) as f64;
    const KEPT: i64 = 100 << 20;
    let mut node = Aerostat::start_with(&["--memory", "384MB"]);
    let used = |node: &Aerostat, tenant: &str| {
        node.metric(&format!(
            "aerostat_tenant_memory_used_bytes{{tenant=\"{tenant}\"}}"
        ))
    };
    let evicted = |node: &Aerostat, tenant: &str| {
        node.metric(&format!(
            "aerostat_tenant_evicted_bytes{{tenant=\"{tenant}\"}}"
        ))
    };
    let databases = [("kept", 30), ("plain", 40)];
    let all = "SELECT count(*), sum(n)::bigint FROM t";
    let texts = "SELECT count(*) FROM t WHERE x = md5(k::text)";
    let admin = node.connect("postgres").await;
    for (name, batches) in databases {
        let client = node.create(name).await;
        run(&client, TABLE).await;
        load(&client, 0..batches).await;
        fill(&client, "VACUUM FREEZE t; CHECKPOINT").await;
        if name == "kept" {
            // What a load that was faster than the freezer sent away comes back, and stays from here on.
            assert_eq!(numbers(&client, texts).await, [batches * BATCH]);
            let kept = used(&node, name);
            assert!(kept > KEPT as f64, "{kept} are used");
            run(&admin, "ALTER DATABASE kept SET (memory_min = '100MB')").await;
        }
    }
    assert_eq!(
        node.metric("aerostat_tenant_memory_min_bytes{tenant=\"kept\"}"),
        KEPT as f64
    );
    let limits =
        "SELECT memory_min, memory_weight::bigint FROM aerostat.tenants WHERE name = 'kept'";
    assert_eq!(numbers(&admin, limits).await, [100 << 20, 100]);
    // Another one grows beyond all that is free. Who is there without a session gives, too.
    let large = node.create("large").await;
    run(&large, TABLE).await;
    load(&large, 0..50).await;
    fill(&large, "VACUUM FREEZE t; CHECKPOINT").await;
    let rows = 50 * BATCH;
    for round in 0..2 {
        assert_eq!(numbers(&large, all).await, [rows, sum_of_n(rows)]);
        assert_eq!(numbers(&large, texts).await, [rows]);
        let plain = evicted(&node, "plain");
        // What a statement or upkeep has given back since is promised, and nobody else's.
        let (used, promised) = kept_for(&large).await;
        assert!(
            used + promised >= KEPT && used >= KEPT / 2,
            "round {round}: {used}, {promised} are promised"
        );
        assert!(plain > 10.0 * MIB, "round {round}: {plain} were evicted");
    }
    // The same of databases that nobody has connected to since the node started.
    drop((large, admin));
    let data = node.stop();
    node = Aerostat::start_on(data, &["--memory", "384MB"]);
    let large = node.connect("large").await;
    assert_eq!(numbers(&large, all).await, [rows, sum_of_n(rows)]);
    load(&large, 50..70).await;
    let rows = 70 * BATCH;
    assert_eq!(numbers(&large, all).await, [rows, sum_of_n(rows)]);
    let plain = evicted(&node, "plain");
    let (used, promised) = kept_for(&large).await;
    assert!(
        used + promised >= KEPT && used >= KEPT / 2,
        "{used}, {promised} are promised"
    );
    assert!(plain > 10.0 * MIB, "{plain} were evicted");
    // All is there.
    for (name, batches) in databases {
        let client = node.connect(name).await;
        let rows = batches * BATCH;
        assert_eq!(numbers(&client, all).await, [rows, sum_of_n(rows)]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_image_is_told_of_and_nothing_else_is_lost() {
    let node = Aerostat::start_with(&["--freezer", "0%"]);
    let client = node.create("shop").await;
    run(&client, TABLE).await;
    load(&client, 0..2).await;
    run(
        &client,
        "CREATE TABLE other AS SELECT k, x FROM t; VACUUM FREEZE; CHECKPOINT",
    )
    .await;
    run(&client, "ALTER DATABASE shop SET (memory_max = '1MB')").await;
    let oid = value(
        &client,
        "SELECT oid FROM pg_database WHERE datname = 'shop'",
    )
    .await;
    let folder = node.data().join(format!("tenants/{oid}/checkpoint"));
    let images: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "img"))
        .collect();
    let kept: Vec<Vec<u8>> = images.iter().map(|path| fs::read(path).unwrap()).collect();
    for (path, bytes) in images.iter().zip(&kept) {
        let mut bytes = bytes.clone();
        bytes
            .iter_mut()
            .skip(70_000)
            .step_by(4_096)
            .for_each(|byte| *byte ^= 1);
        fs::write(path, bytes).unwrap();
    }
    run(&client, "ALTER DATABASE shop SET (memory_max = '1GB')").await;
    let texts = "SELECT count(*) FROM t WHERE x = md5(k::text)";
    for _ in 0..2 {
        assert_eq!(sqlstate(&client, texts).await, "XX001");
    }
    images
        .iter()
        .for_each(|path| fs::remove_file(path).unwrap());
    assert_eq!(sqlstate(&client, texts).await, "58030");
    // What is in memory is there, and what is written is taken.
    assert_eq!(
        numbers(&client, "SELECT count(*) FROM t").await,
        [2 * BATCH]
    );
    run(&client, "CREATE TABLE new AS SELECT 1 AS a").await;
    for (path, bytes) in images.iter().zip(&kept) {
        fs::write(path, bytes).unwrap();
    }
    assert_eq!(numbers(&client, texts).await, [2 * BATCH]);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_for_memory_keeps_no_thread_from_others() {
    const WAITING: usize = 8;
    let node = Aerostat::start_with(&["--freezer", "0%", "--threads", "2"]);
    let client = node.create("shop").await;
    let neighbour = node.create("neighbour").await;
    run(&client, TABLE).await;
    load(&client, 0..2).await;
    run(&client, "VACUUM FREEZE; CHECKPOINT").await;
    run(&client, "ALTER DATABASE shop SET (memory_max = '1MB')").await;
    let mut waiting = Vec::new();
    for _ in 0..WAITING {
        let client = node.connect("shop").await;
        let cancel = client.cancel_token();
        let texts = "SELECT count(*) FROM t WHERE x = md5(k::text)";
        let statement = tokio::spawn(async move { sqlstate(&client, texts).await });
        waiting.push((statement, cancel));
    }
    let active =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = 'shop' AND state = 'active'";
    let started = Instant::now();
    while numbers(&neighbour, active).await[0] < WAITING as i64 {
        assert!(started.elapsed() < PATIENCE);
    }
    let work = "SELECT count(*) FROM generate_series(1, 100000) AS t(n) WHERE n % 7 = 0";
    assert_eq!(numbers(&neighbour, work).await, [14_285]);
    let is_over = |(statement, _): &(tokio::task::JoinHandle<String>, _)| statement.is_finished();
    assert!(!waiting.iter().any(is_over), "all of them wait");
    // Whoever is stopped does not wait to the end.
    let (stopped, cancel) = waiting.pop().unwrap();
    cancel.cancel_query(tokio_postgres::NoTls).await.unwrap();
    assert_eq!(stopped.await.unwrap(), "57014");
    assert!(!waiting.iter().any(is_over), "the others wait on");
    for (statement, _) in waiting {
        assert_eq!(statement.await.unwrap(), "53200");
    }
    run(&client, "ALTER DATABASE shop SET (memory_max = '1GB')").await;
    let texts = "SELECT count(*) FROM t WHERE x = md5(k::text)";
    assert_eq!(numbers(&client, texts).await, [2 * BATCH]);
}
