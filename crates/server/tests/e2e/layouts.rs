//! ALTER TABLE … SET (layout = …): online, durable, and by advice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::harness::{Aerostat, PATIENCE, sqlstate, value};

const LAYOUT: &str = "SELECT layout || ' ' || (segments = segments_in_shape) FROM aerostat.tables WHERE table_name = 't'";
const SUMS: &str = "SELECT count(*) || ' ' || sum(a) || ' ' || sum(b) || ' ' || count(c) FROM t";

#[tokio::test(flavor = "multi_thread")]
async fn a_table_is_laid_out_anew_while_statements_go_on() {
    let node = Aerostat::start();
    let client = node.create("d").await;
    client
        .batch_execute(
            "CREATE TABLE t (id bigint PRIMARY KEY, a integer, b bigint, c text) WITH (layout = 'row');
            INSERT INTO t SELECT g, g % 100, g, CASE WHEN g % 3 > 0 THEN 'text ' || g END FROM generate_series(1, 60000) AS g;
            VACUUM FREEZE t;
            INSERT INTO t SELECT g, g % 100, g, 'text ' || g FROM generate_series(60001, 80000) AS g",
        )
        .await
        .unwrap();
    assert_eq!(value(&client, LAYOUT).await, "row true");
    let expected = value(&client, SUMS).await;

    // Writers keep the sums; a reader keeps its snapshot.
    let reader = node.connect("d").await;
    reader
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        .await
        .unwrap();
    assert_eq!(value(&reader, SUMS).await, expected);
    let over = Arc::new(AtomicBool::new(false));
    let writer = {
        let (client, over) = (node.connect("d").await, Arc::clone(&over));
        tokio::spawn(async move {
            let mut writes = 0u64;
            while !over.load(Ordering::Relaxed) {
                let id = writes * 7919 % 80000 + 1;
                let sql = format!(
                    "DELETE FROM t WHERE id = {id};
                    INSERT INTO t SELECT {id}, {id} % 100, {id}, CASE WHEN {id} > 60000 OR {id} % 3 > 0 THEN 'again' END"
                );
                client.batch_execute(&sql).await.unwrap();
                writes += 1;
            }
            writes
        })
    };
    for layout in ["column", "(a,b),(c,id)", "row", "(id,c)", "column"] {
        client
            .batch_execute(&format!("ALTER TABLE t SET (layout = '{layout}')"))
            .await
            .unwrap();
        assert_eq!(value(&client, SUMS).await, expected, "{layout}");
        assert_eq!(value(&reader, SUMS).await, expected, "{layout}");
        let shown = value(&client, LAYOUT).await;
        assert!(shown.ends_with(" true"), "{shown}");
    }
    over.store(true, Ordering::Relaxed);
    assert!(writer.await.unwrap() > 0, "the writer stood still");
    reader.batch_execute("COMMIT").await.unwrap();

    client
        .batch_execute("ALTER TABLE t SET (layout = '(a,b)')")
        .await
        .unwrap();
    let data = node.kill();
    let node = Aerostat::start_on(data, &[]);
    let client = node.connect("d").await;
    assert_eq!(value(&client, SUMS).await, expected);
    let shown = value(&client, LAYOUT).await;
    assert!(shown.starts_with("(a,b)"), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_layouts_are_refused_and_change_nothing() {
    let node = Aerostat::start();
    let client = node.create("d").await;
    client
        .batch_execute("CREATE TABLE t (a integer, b integer); CREATE VIEW v AS SELECT 1 AS one; INSERT INTO t VALUES (1, 2)")
        .await
        .unwrap();
    for (sql, state) in [
        ("ALTER TABLE t SET (layout = 'zebra')", "22023"),
        ("ALTER TABLE t SET (layout = '(a,nope)')", "42703"),
        ("ALTER TABLE t SET (layout = '(a,a)')", "42701"),
        ("ALTER TABLE t SET (nope = 1)", "22023"),
        ("ALTER TABLE v SET (layout = 'row')", "42809"),
        ("ALTER TABLE nope SET (layout = 'row')", "42P01"),
        (
            "ROLLBACK; ALTER TABLE t SET (layout = 'row', layout = 'row')",
            "22023",
        ),
    ] {
        assert_eq!(sqlstate(&client, sql).await, state, "{sql}");
    }
    client.batch_execute("ROLLBACK").await.unwrap();
    assert_eq!(value(&client, LAYOUT).await, "column true");
    client
        .batch_execute("ALTER TABLE IF EXISTS nope SET (layout = 'row')")
        .await
        .unwrap();
    client
        .batch_execute(
            "ALTER TABLE t SET (layout = row, fillfactor = 70); ALTER TABLE t RESET (layout)",
        )
        .await
        .unwrap();
    assert_eq!(value(&client, LAYOUT).await, "column true");
}

/// A wide table that is only ever read by whole rows becomes a row store by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_layout_left_to_the_adviser_follows_the_statements() {
    let node = Aerostat::start();
    let client = node.create("d").await;
    let columns: Vec<String> = (1..=60).map(|at| format!("c{at} bigint")).collect();
    let values: Vec<String> = (1..=60).map(|at| format!("g + {at}")).collect();
    client
        .batch_execute(&format!(
            "CREATE TABLE t (id bigint PRIMARY KEY, {}) WITH (layout = 'auto');
            INSERT INTO t SELECT g, {} FROM generate_series(1, 20000) AS g",
            columns.join(", "),
            values.join(", ")
        ))
        .await
        .unwrap();
    assert_eq!(value(&client, LAYOUT).await, "column true");
    assert_eq!(
        value(
            &client,
            "SELECT reloptions[1] FROM pg_class WHERE relname = 't'"
        )
        .await,
        "layout=auto"
    );
    let started = Instant::now();
    let mut asked = 0;
    loop {
        for _ in 0..200 {
            asked += 1;
            let id = asked * 7919 % 20000 + 1;
            let row = client
                .simple_query(&format!("SELECT * FROM t WHERE id = {id}"))
                .await
                .unwrap();
            assert!(row.len() >= 2, "no row {id}");
        }
        let shown = value(&client, LAYOUT).await;
        if !shown.starts_with("column") {
            break;
        }
        assert!(
            started.elapsed() < 4 * PATIENCE,
            "the layout stays {shown}: {}",
            value(
                &client,
                "SELECT verdict FROM aerostat.layout_advice WHERE table_name = 't'"
            )
            .await
        );
    }
    assert_eq!(
        value(&client, "SELECT count(*) || ' ' || sum(c60) FROM t").await,
        "20000 201210000"
    );
    // Fixed by hand, it stays.
    client
        .batch_execute("ALTER TABLE t SET (layout = 'column')")
        .await
        .unwrap();
    assert_eq!(
        value(
            &client,
            "SELECT auto_layout FROM aerostat.tables WHERE table_name = 't'"
        )
        .await,
        "f"
    );
}
