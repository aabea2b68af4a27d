//! Servers that go away and come back, and a slot that does not.

use std::time::Duration;

use aerostat_import::{Action, Event};
use tokio_postgres::Client;

use crate::{
    compare::{run, same, settle},
    imports::{finish, import, options, slow_commits, start},
    servers::{Pair, Postgres},
};

fn write(source: &Postgres, seconds: &str) -> std::process::Child {
    source.program("pgbench", &["-n", "-c", "2", "-T", seconds, "moved"])
}

const TABLES: &[&str] = &[
    "pgbench_accounts",
    "pgbench_branches",
    "pgbench_tellers",
    "pgbench_history",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_outlives_its_servers() {
    let Some(mut pair) = Pair::start().await else {
        return;
    };
    let (source, _) = pair.database("moved").await;
    let made = pair
        .source
        .program("pgbench", &["-i", "-q", "-s", "1", "moved"])
        .wait_with_output()
        .expect("pgbench");
    assert!(made.status.success());
    run(&source, "ALTER TABLE pgbench_history REPLICA IDENTITY FULL").await;
    drop(source);
    let running = start(options(&pair, "moved"));
    running.follows().await;
    slow_commits(&pair, &pair.target.connect("moved").await).await;
    for round in 0..6 {
        let mut clients = write(&pair.source, "600");
        tokio::time::sleep(Duration::from_millis(1500)).await;
        if round % 2 == 0 {
            pair.target.restart().await;
            tokio::time::sleep(Duration::from_millis(1000)).await;
            clients.kill().expect("it runs");
        } else {
            // It takes its clients along.
            pair.source.restart().await;
        }
        clients.wait().expect("it ended");
        assert!(!running.ended(), "{:?}", running.told);
    }
    let (source, target) = (
        pair.source.connect("moved").await,
        pair.target.connect("moved").await,
    );
    settle(&running, &source, &target, TABLES).await;
    running
        .until(|event| matches!(event, Event::Waiting { .. }))
        .await;
    running.kill().await;
    finish(options(&pair, "moved")).await;
    same(&source, &target, TABLES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_stays_away_is_an_error_in_the_end() {
    let Some(mut pair) = Pair::start().await else {
        return;
    };
    let (source, _target) = pair.database("moved").await;
    run(&source, "CREATE TABLE t (id int PRIMARY KEY)").await;
    drop(source);
    let mut impatient = options(&pair, "moved");
    impatient.patience = Duration::from_secs(2);
    let running = start(impatient.clone());
    running.follows().await;
    pair.source.stop();
    let error = running.error().await;
    assert!(error.starts_with("the source"), "{error}");
    // What cannot begin says so at once.
    let error = start(impatient.clone()).error().await;
    assert!(error.contains("the source fails: connecting"), "{error}");
    pair.source.start_again().await;
    finish(impatient).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_that_are_gone_are_told() {
    let Some(pair) = Pair::start().await else {
        return;
    };
    let (source, target) = pair.database("moved").await;
    run(
        &source,
        "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)",
    )
    .await;
    let running = start(options(&pair, "moved"));
    running.follows().await;
    run(&source, "INSERT INTO t VALUES (2)").await;
    settle(&running, &source, &target, &["t"]).await;
    running.kill().await;
    // The target is set back, as by a backup: the slot is ahead of it.
    let row = target
        .query_one("SELECT lsn FROM aerostat_import.progress", &[])
        .await
        .expect("a row");
    let lsn: String = row.get(0);
    run(
        &target,
        "UPDATE aerostat_import.progress SET lsn = '0/1'; DELETE FROM t WHERE id = 2",
    )
    .await;
    let error = start(options(&pair, "moved")).error().await;
    assert!(
        error.contains("the target was restored, or lost commits"),
        "{error}"
    );
    run(
        &target,
        &format!("UPDATE aerostat_import.progress SET lsn = '{lsn}'; INSERT INTO t VALUES (2)"),
    )
    .await;
    finish_nothing(&pair, &source).await;
    // The slot is dropped behind the importer's back.
    let drop_slot = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots";
    run(&source, drop_slot).await;
    let error = start(options(&pair, "moved")).error().await;
    assert!(
        error.contains("the replication slot aerostat_moved is not at the source any more"),
        "{error}"
    );
    assert!(
        error.contains("drop the import, empty its tables and begin again"),
        "{error}"
    );
    let mut again = options(&pair, "moved");
    again.action = Action::Drop;
    import(again.clone()).await.0.expect("it is dropped");
    again.action = Action::Follow;
    again.truncate = true;
    let running = start(again);
    settle(&running, &source, &target, &["t"]).await;
    running.follows().await;
    running.kill().await;
}

/// An import goes on, and is killed while nothing happens.
async fn finish_nothing(pair: &Pair, source: &Client) {
    let running = start(options(pair, "moved"));
    running.follows().await;
    running.kill().await;
    // The server takes a moment to see that the reader is gone.
    let busy = "SELECT 1 FROM pg_replication_slots WHERE active";
    while !source.query(busy, &[]).await.expect("rows").is_empty() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_held_too_much_log_is_lost() {
    let Some(pair) = Pair::with(&[
        "max_slot_wal_keep_size=16MB",
        "max_wal_size=32MB",
        "min_wal_size=32MB",
    ])
    .await
    else {
        return;
    };
    let (source, _target) = pair.database("moved").await;
    run(
        &source,
        "CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE noise (v text)",
    )
    .await;
    let mut some = options(&pair, "moved");
    some.exclude = vec!["noise".to_owned()];
    let running = start(some.clone());
    running.follows().await;
    running.kill().await;
    for _ in 0..8 {
        run(
            &source,
            "INSERT INTO noise SELECT repeat('x', 1000) FROM generate_series(1, 20000)",
        )
        .await;
        run(&source, "SELECT pg_switch_wal()").await;
        run(&source, "CHECKPOINT").await;
    }
    let error = start(some).error().await;
    assert!(
        error.contains("was invalidated, for it held more log than max_slot_wal_keep_size"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_target_that_takes_its_time_loses_no_connection() {
    let Some(pair) = Pair::with(&["wal_sender_timeout=8s"]).await else {
        return;
    };
    let (source, mut target) = pair.database("moved").await;
    run(
        &source,
        "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, '')",
    )
    .await;
    run(&source, "CREATE TABLE noise (v text)").await;
    let mut some = options(&pair, "moved");
    some.exclude = vec!["noise".to_owned()];
    let running = start(some);
    running.follows().await;
    let blocking = target.transaction().await.expect("a transaction");
    blocking
        .query("SELECT * FROM t FOR UPDATE", &[])
        .await
        .expect("a lock");
    // More than sockets hold, behind a change that waits.
    run(&source, "UPDATE t SET v = 'x'; INSERT INTO t SELECT g, repeat('y', 1000) FROM generate_series(2, 20000) g").await;
    tokio::time::sleep(Duration::from_secs(16)).await;
    blocking.rollback().await.expect("it ends");
    settle(&running, &source, &target, &["t"]).await;
    let waited = |event: &Event| matches!(event, Event::Waiting { .. });
    assert!(
        !running
            .told
            .lock()
            .expect("nobody panics")
            .iter()
            .any(waited),
        "{:?}",
        running.told
    );
    // Log that is of nothing that is followed is let go, too.
    run(
        &source,
        "INSERT INTO noise SELECT repeat('x', 1000) FROM generate_series(1, 20000)",
    )
    .await;
    let row = source
        .query_one("SELECT pg_current_wal_flush_lsn()::text", &[])
        .await
        .expect("a row");
    let (end, begun): (String, _) = (row.get(0), std::time::Instant::now());
    loop {
        let query = format!("SELECT confirmed_flush_lsn >= '{end}' FROM pg_replication_slots");
        if source.query_one(&query, &[]).await.expect("a slot").get(0) {
            break;
        }
        assert!(
            begun.elapsed() < crate::imports::LIMIT,
            "the slot holds the log"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    running.kill().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_that_was_interrupted_begins_again() {
    let Some(pair) = Pair::start().await else {
        return;
    };
    let (source, target) = pair.database("moved").await;
    run(
        &source,
        "CREATE TABLE ours (id serial PRIMARY KEY, n bigint GENERATED ALWAYS AS IDENTITY, v text UNIQUE);
         CREATE INDEX ours_v ON ours (v, id); CREATE TABLE theirs (id int PRIMARY KEY, ours int REFERENCES ours);
         INSERT INTO ours (v) SELECT 'v' || g FROM generate_series(1, 1000) g; INSERT INTO theirs VALUES (1, 1)",
    )
    .await;
    run(
        &target,
        "CREATE TABLE theirs (ours int, id int PRIMARY KEY)",
    )
    .await;
    let tables = ["ours", "SELECT id, ours FROM theirs"];
    for round in 0..3 {
        let running = start(options(&pair, "moved"));
        running.follows().await;
        settle(&running, &source, &target, &tables).await;
        running.kill().await;
        if round < 2 {
            // As if it had been killed before the last row.
            run(&target, "UPDATE aerostat_import.progress SET state = 'copying'; DELETE FROM ours WHERE id % 7 = 0").await;
            run(&source, &format!("INSERT INTO ours (v) VALUES ('again {round}'); INSERT INTO theirs VALUES ({round} + 10, 2)")).await;
        }
    }
    finish(options(&pair, "moved")).await;
    same(&source, &target, &tables).await;
    for client in [&source, &target] {
        run(client, "INSERT INTO ours (v) VALUES ('after')").await;
    }
    same(&source, &target, &tables).await;
}
