//! pgbench writes while rows are copied and changes are followed, and importers die.

use std::time::{Duration, Instant};

use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio_postgres::Client;

use crate::{
    compare::{same, settle},
    imports::{finish, options, slow_commits, start},
    servers::{Pair, Postgres},
};

const TABLES: &[&str] = &[
    "pgbench_accounts",
    "pgbench_branches",
    "pgbench_tellers",
    "pgbench_history",
    "SELECT count(*), sum(abalance) FROM pgbench_accounts",
];

async fn initialise(source: &Postgres, client: &Client, database: &str, scale: &str) {
    let made = source
        .program("pgbench", &["-i", "-q", "-s", scale, database])
        .wait_with_output()
        .expect("pgbench");
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let full = "ALTER TABLE pgbench_history REPLICA IDENTITY FULL";
    client
        .batch_execute(full)
        .await
        .expect("it is a setting of the table");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_and_changes_come_under_load() {
    let Some(pair) = Pair::start().await else {
        return;
    };
    let (source, target) = pair.database("bench").await;
    initialise(&pair.source, &source, "bench", "2").await;
    let mut clients = pair
        .source
        .program("pgbench", &["-n", "-c", "4", "-T", "12", "bench"]);
    // The copy begins while they write.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let begun = Instant::now();
    let running = start(options(&pair, "bench"));
    running.follows().await;
    let copied = begun.elapsed();
    let done = tokio::task::spawn_blocking(move || clients.wait())
        .await
        .expect("a wait")
        .expect("pgbench");
    assert!(done.success());
    let ended = Instant::now();
    settle(&running, &source, &target, TABLES).await;
    let caught_up = ended.elapsed();
    running.kill().await;
    let summary = finish(options(&pair, "bench")).await;
    same(&source, &target, TABLES).await;
    let count = source
        .query_one("SELECT count(*) FROM pgbench_history", &[])
        .await
        .expect("a count");
    eprintln!(
        "copied in {copied:?}; {} transactions, {caught_up:?} behind at their end; {summary:?}",
        count.get::<_, i64>(0)
    );
    // Nothing is left behind on either side.
    for query in [
        "SELECT slot_name FROM pg_replication_slots",
        "SELECT pubname FROM pg_publication",
    ] {
        assert!(
            source.query(query, &[]).await.expect("rows").is_empty(),
            "{query}"
        );
    }
    assert!(
        target
            .query("SELECT name FROM aerostat_import.progress", &[])
            .await
            .expect("rows")
            .is_empty()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn importers_that_die_make_each_change_once() {
    let Some(pair) = Pair::start().await else {
        return;
    };
    let seed = std::env::var("IMPORT_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(rand::random);
    let rounds: u32 = std::env::var("IMPORT_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(25);
    eprintln!("IMPORT_SEED={seed} IMPORT_ROUNDS={rounds}");
    let mut random = StdRng::seed_from_u64(seed);
    let (source, target) = pair.database("kills").await;
    initialise(&pair.source, &source, "kills", "3").await;
    let mut clients = pair
        .source
        .program("pgbench", &["-n", "-c", "3", "-T", "600", "kills"]);
    let (mut copying, mut following) = (0, 0);
    for round in 0..rounds {
        if round == rounds / 2 {
            let running = start(options(&pair, "kills"));
            running.follows().await;
            running.kill().await;
            slow_commits(&pair, &target).await;
        }
        let running = start(options(&pair, "kills"));
        // Early ones die while they begin or copy, later ones while they follow.
        let most = if round < rounds / 2 { 500 } else { 1500 };
        tokio::time::sleep(Duration::from_millis(random.random_range(0..most))).await;
        running.kill().await;
        match target
            .query("SELECT state FROM aerostat_import.progress", &[])
            .await
        {
            Ok(states)
                if states
                    .iter()
                    .any(|row| row.get::<_, &str>(0) == "following") =>
            {
                following += 1
            }
            _ => copying += 1,
        }
    }
    clients.kill().expect("it runs");
    clients.wait().expect("it ended");
    let running = start(options(&pair, "kills"));
    settle(&running, &source, &target, TABLES).await;
    running.kill().await;
    finish(options(&pair, "kills")).await;
    same(&source, &target, TABLES).await;
    let count = source
        .query_one("SELECT count(*) FROM pgbench_history", &[])
        .await
        .expect("a count");
    eprintln!(
        "{copying} importers died before all rows were there and {following} after, over {} transactions",
        count.get::<_, i64>(0)
    );
}
