//! Long texts: they are read and planned beside others' statements, and end when they are
//! stopped.

use std::{
    fmt::Write,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use crate::harness::{Aerostat, PATIENCE, sqlstate, value};

/// A list that no grammar of our own reads, so that the planner must; long by its blanks. Each
/// step is a list whose plan nobody has kept.
fn long_list(items: usize, step: usize) -> String {
    let mut text = "SELECT count(*) FROM n WHERE k + 0 IN (".to_owned();
    for item in 0..items {
        write!(text, "{item} + {step},{:60}", "").unwrap();
    }
    text + "0)"
}

/// So many items take the planner about as long as hundreds of short statements.
const ITEMS: usize = 400;

/// What each neighbour runs at least meanwhile.
const STATEMENTS_MIN: usize = 5;

#[tokio::test(flavor = "multi_thread")]
async fn a_long_text_holds_up_nobody_and_can_be_stopped() {
    let node = Aerostat::start();
    let client = node.create("long").await;
    let create = "CREATE TABLE n (k int PRIMARY KEY); INSERT INTO n VALUES (1), (2), (3)";
    client.batch_execute(create).await.unwrap();
    let text = long_list(ITEMS, 1);

    // Neighbours on each of the threads that carry connections.
    let stop = Arc::new(AtomicBool::new(false));
    let mut neighbours = Vec::new();
    for _ in 0..8 {
        let neighbour = node.connect("long").await;
        let stop = Arc::clone(&stop);
        neighbours.push(tokio::spawn(async move {
            let mut statements = 0;
            while !stop.load(Ordering::Relaxed) {
                let rows = neighbour.simple_query("SELECT k FROM n WHERE k = 2").await;
                assert!(rows.is_ok(), "{rows:?}");
                statements += 1;
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            statements
        }));
    }
    assert_eq!(value(&client, &text).await, "3");
    stop.store(true, Ordering::Relaxed);
    for neighbour in neighbours {
        let statements = neighbour.await.unwrap();
        assert!(
            statements >= STATEMENTS_MIN,
            "a neighbour ran {statements} statements beside a long text"
        );
    }

    let timeout = "SET statement_timeout = 10";
    client.batch_execute(timeout).await.unwrap();
    let text = long_list(ITEMS, 2);
    assert_eq!(sqlstate(&client, &text).await, "57014");
    let reset = "RESET statement_timeout";
    client.batch_execute(reset).await.unwrap();
    assert_eq!(value(&client, "SELECT count(*) FROM n").await, "3");
}

/// Texts that are deep or wide in every way that there is: each gets an answer or an error
/// soon after its timeout, and the node stays.
#[tokio::test(flavor = "multi_thread")]
async fn deep_and_wide_texts_are_answered() {
    let mut node = Aerostat::start();
    let client = node.create("deep").await;
    let settings = "SET statement_timeout = '5s'; CREATE TABLE n (k int PRIMARY KEY)";
    client.batch_execute(settings).await.unwrap();
    let many = |piece: &str, count: usize| piece.repeat(count);
    let texts = [
        format!("SELECT true{}", many(" OR false", 100_000)),
        format!("SELECT k FROM n WHERE k = 0{}", many(" OR k = 1", 900)),
        format!("SELECT 1{}", many(" + 1", 100_000)),
        format!("SELECT {}1{}", many("(", 100_000), many(")", 100_000)),
        format!("SELECT {} true", many("NOT ", 100_000)),
        format!("SELECT 1{}", many(" UNION ALL SELECT 1", 10_000)),
        format!("SELECT CASE {} END", many("WHEN false THEN 1 ", 20_000)),
        format!(
            "SELECT {}1{}",
            many("CASE WHEN true THEN ", 10_000),
            many(" END", 10_000)
        ),
        format!("SELECT 1{}", many(", 1", 20_000)),
        format!("SELECT {}1{}", many("abs(", 10_000), many(")", 10_000)),
        format!("SELECT 1{}", many("::int", 100_000)),
        format!("SELECT {}1", many("- ", 100_000)),
        format!("SELECT ARRAY{}1{}", many("[", 10_000), many("]", 10_000)),
        format!("INSERT INTO n VALUES (1){}", many(", (1 + 1)", 20_000)),
        format!(
            "INSERT INTO n VALUES {}1{}",
            many("(", 100_000),
            many(")", 100_000)
        ),
        format!("INSERT INTO n ({}k) VALUES (1), (2)", many("k, ", 100_000)),
    ];
    for text in texts {
        let beginning = &text[..60.min(text.len())];
        let started = Instant::now();
        if let Err(error) = client.simple_query(&text).await {
            assert!(error.code().is_some(), "{beginning}: {error}");
        }
        let taken = started.elapsed();
        eprintln!("{taken:?}: {beginning}");
        assert!(taken < PATIENCE, "{beginning}: {taken:?}");
        assert!(node.is_running(), "{beginning}");
        assert_eq!(value(&client, "SELECT 1").await, "1", "{beginning}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_rows_come_in_one_text_or_not_at_all() {
    let node = Aerostat::start();
    let client = node.create("rows").await;
    let create = "CREATE TABLE r (k int PRIMARY KEY, t text, ts timestamp, d numeric(8, 2))";
    client.batch_execute(create).await.unwrap();
    let row = |k: usize| {
        let second = k % 60;
        format!("({k}, 'row ''{k}''', '2024-01-01 00:00:{second:02}', {k}.5)")
    };
    let rows = |from: usize, to: usize| (from..to).map(row).collect::<Vec<_>>().join(",");
    let all = format!("INSERT INTO r VALUES {}", rows(0, 50_000));
    client.batch_execute(&all).await.unwrap();
    let sums = "SELECT count(*) || ' ' || sum(k) || ' ' || sum(d) || ' ' || max(t) FROM r";
    let expected = "50000 1249975000 1250000000.00 row '9999'";
    assert_eq!(value(&client, sums).await, expected);
    // The last row is there already, is none, or breaks a constraint: nothing of it stays.
    for (key, code) in [("7", "23505"), ("'x'", "22P02"), ("null", "23502")] {
        let rows = rows(50_000, 51_000);
        let text = format!("INSERT INTO r VALUES {rows}, ({key}, 'x', '2024-01-01', 1)");
        assert_eq!(sqlstate(&client, &text).await, code);
        assert_eq!(value(&client, sums).await, expected);
    }
    let upsert = format!(
        "INSERT INTO r VALUES {} ON CONFLICT (k) DO UPDATE SET d = r.d + excluded.d",
        rows(40_000, 60_000)
    );
    assert_eq!(client.execute(&upsert, &[]).await.unwrap(), 20_000);
    assert_eq!(
        value(&client, "SELECT count(*) || ' ' || sum(d) FROM r").await,
        "60000 2250000000.00"
    );
}
