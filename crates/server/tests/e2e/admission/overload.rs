//! More than a node can do at once: what it does not do it refuses, and nobody else is the worse for it.

use std::time::{Duration, Instant};

use futures::future::join_all;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

use super::{Stage, ended, failure, plain};
use crate::harness::{Aerostat, PATIENCE, value};

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_sleeps_on_all_places_of_the_node_keeps_no_other_out() {
    let stage = Stage::with(&["--node-statements-max", "6"], "queue_timeout = '300ms'").await;
    let mut holders = Vec::new();
    for _ in 0..6 {
        holders.push(stage.holder().await.0);
    }
    // By its key a statement needs no place of the node.
    let session = stage.plain().await;
    session
        .batch_execute("UPDATE t SET v = 1 WHERE id = 1")
        .await
        .unwrap();
    let error = failure(session.batch_execute("SELECT count(*) FROM t").await);
    assert_eq!(error.code().code(), "57014");
    assert!(error.detail().unwrap().contains("(node-statements-max)"));
    // The operator looks, and another tenant works.
    assert_eq!(
        value(&stage.operator, "SELECT count(*) FROM t").await,
        "100"
    );
    let admin = stage.node.connect("aerostat").await;
    admin
        .batch_execute("CREATE DATABASE e OWNER plain")
        .await
        .unwrap();
    let neighbour = plain(&stage.node, "e").await;
    assert_eq!(
        value(&neighbour, "SELECT count(*) FROM generate_series(1, 10)").await,
        "10"
    );
    // A block that has locked something comes to its end.
    let block = stage.plain().await;
    block.batch_execute("BEGIN").await.unwrap();
    block
        .batch_execute("UPDATE t SET v = 1 WHERE id = 2")
        .await
        .unwrap();
    block
        .batch_execute("UPDATE t SET v = v + 1 WHERE id < 3; COMMIT")
        .await
        .unwrap();
    stage.release().await;
    for task in holders {
        ended(task).await.unwrap();
    }
    stage.ends_idle();
}

/// Some planned writes that wait for a row have a thread meanwhile, and there are 512 of those: others are left for the row's
/// holder, for commits and for other tenants.
#[tokio::test(flavor = "multi_thread")]
async fn writers_in_line_for_a_row_leave_threads_to_commit_with() {
    const WRITERS: usize = 600;
    let stage = Stage::new("").await;
    let admin = stage.node.connect("aerostat").await;
    let create = "CREATE DATABASE e OWNER plain";
    admin.batch_execute(create).await.unwrap();
    let neighbour = plain(&stage.node, "e").await;
    let sql = "CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 0), (2, 0)";
    neighbour.batch_execute(sql).await.unwrap();
    // Some are superusers, who have a reserve and no more.
    for user in ["plain", "aerostat"] {
        let holder = plain(&stage.node, "d").await;
        let hold = "BEGIN; UPDATE t SET v = v + 1 WHERE id <= 1";
        holder.batch_execute(hold).await.unwrap();
        let mut connections = Vec::new();
        for _ in 0..WRITERS {
            let mut config = stage.node.config("d");
            let (client, connection) = config.user(user).connect(NoTls).await.unwrap();
            connections.push(tokio::spawn(connection));
            tokio::spawn(async move {
                let update = "UPDATE t SET v = v + 1 WHERE id <= 1";
                // It may be sent away before its turn.
                let _ = client.batch_execute(update).await;
            });
        }
        let began = Instant::now();
        while stage.gauge("waiting") < 300.0 {
            assert!(
                began.elapsed() < PATIENCE,
                "{user}: {} wait",
                stage.gauge("waiting")
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        for session in [&neighbour, &holder] {
            let sql = "UPDATE t SET v = v + 1 WHERE id <= 2 AND id > 1";
            let work = tokio::time::timeout(PATIENCE, session.batch_execute(sql));
            work.await.expect("nobody gets a thread").unwrap();
        }
        let commit = tokio::time::timeout(PATIENCE, holder.batch_execute("COMMIT"));
        commit
            .await
            .expect("nobody gets a thread to commit with")
            .unwrap();
        connections.iter().for_each(|connection| connection.abort());
        stage.ends_idle();
    }
}

/// Blocks that hold a lock go ahead of the node's bound. More of them wait for a row than there are threads for what blocks:
/// the holder goes on, each has its turn and a thread for it, and all transactions end.
#[tokio::test(flavor = "multi_thread")]
async fn blocks_in_line_for_a_row_leave_threads_to_go_on_with() {
    // What keeps its snapshot cannot go on once the row has changed.
    for (begin, update, fails) in [
        ("BEGIN", "UPDATE t SET v = v + 1 WHERE id <= 1", false),
        (
            "BEGIN ISOLATION LEVEL REPEATABLE READ",
            "UPDATE t SET v = v + 1 WHERE id = 1",
            true,
        ),
    ] {
        all_end(begin, update, fails).await;
    }
}

async fn all_end(begin: &str, update: &'static str, fails: bool) {
    const BLOCKS: usize = 600;
    let stage = Stage::new("").await;
    let holder = stage.plain().await;
    let hold = "BEGIN; UPDATE t SET v = v + 1 WHERE id = 1";
    holder.batch_execute(hold).await.unwrap();
    let undone = stage.plain().await;
    let hold =
        "BEGIN; UPDATE t SET v = v + 1 WHERE id = 2; SAVEPOINT s; UPDATE t SET v = 9 WHERE id = 3";
    undone.batch_execute(hold).await.unwrap();
    // All have a lock before the first waits: those that come later have to wait for a place.
    let mut sessions = Vec::new();
    for _ in 0..BLOCKS {
        let session = stage.plain().await;
        let first = format!("{begin}; SELECT v FROM t WHERE id = 5");
        session.batch_execute(&first).await.unwrap();
        sessions.push(session);
    }
    let update = move |session: Client| async move {
        let updated = session.batch_execute(update).await;
        let code = updated.err().and_then(|error| error.code().cloned());
        session.batch_execute("COMMIT").await.unwrap();
        code.map(|code| code.code().to_owned())
    };
    let blocks: Vec<_> = sessions
        .into_iter()
        .map(|session| tokio::spawn(update(session)))
        .collect();
    // Nobody counts those by their key.
    if !fails {
        stage.until("running", BLOCKS as f64);
    }
    // They have come as far as there are threads.
    tokio::time::sleep(Duration::from_secs(2)).await;
    for (session, sql) in [
        (&undone, "ROLLBACK TO s"),
        (&undone, "UPDATE t SET v = 9 WHERE id BETWEEN 3 AND 4"),
        (&undone, "ROLLBACK"),
        (&holder, "UPDATE t SET v = 0 WHERE id BETWEEN 3 AND 4"),
        (&holder, "COMMIT"),
    ] {
        let end = tokio::time::timeout(PATIENCE, session.batch_execute(sql)).await;
        end.unwrap_or_else(|_| panic!("{begin}: nobody gets a thread for {sql}"))
            .unwrap();
    }
    let ended = tokio::time::timeout(8 * PATIENCE, join_all(blocks)).await;
    let codes = ended.unwrap_or_else(|_| panic!("{begin}: somebody hangs"));
    let (mut done, mut failed) = (0, 0);
    for code in codes {
        match code.unwrap().as_deref() {
            None => done += 1,
            Some("40001") => failed += 1,
            Some(code) => panic!("{begin}: {code}"),
        }
    }
    if fails {
        assert!(failed > 0, "nobody has waited");
    } else {
        assert_eq!((done, failed), (BLOCKS, 0));
    }
    stage.ends_idle();
    let sum = value(&stage.operator, "SELECT sum(v) FROM t").await;
    assert_eq!(sum, (done + 1).to_string());
}

/// Far more clients than may run or wait: each statement ends with its rows or with 53300, all come through who try again,
/// and at the end everybody has gone.
#[tokio::test(flavor = "multi_thread")]
async fn an_overload_is_shed_and_leaves_nothing_behind() {
    const CLIENTS: usize = 80;
    const STATEMENTS: usize = 8;
    let stage = Stage::new("statements_max = 4, queue_max = 16, queue_timeout = '30s'").await;
    let clients = (0..CLIENTS).map(|number| {
        let stage = &stage;
        async move {
            let session = stage.plain().await;
            let mut refused = 0;
            for turn in 0..STATEMENTS {
                let sql = match (number + turn) % 4 {
                    0 => "SELECT v FROM t WHERE id = 7".to_owned(),
                    1 => format!("UPDATE t SET v = v + 1 WHERE id = {}", number % 5 + 1),
                    2 => "SELECT a.v, count(*) FROM t AS a, t AS b GROUP BY 1".to_owned(),
                    _ => format!(
                        "BEGIN; UPDATE t SET v = v + 1 WHERE id = {}; SELECT count(*) FROM t; COMMIT",
                        50 + number % 5
                    ),
                };
                while let Err(error) = session.batch_execute(&sql).await {
                    let code = error.code().map(|code| code.code().to_owned());
                    assert_eq!(code.as_deref(), Some("53300"), "{sql}: {error:?}");
                    refused += 1;
                    session.batch_execute("ROLLBACK").await.unwrap();
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
            refused
        }
    });
    let ended = tokio::time::timeout(8 * PATIENCE, join_all(clients)).await;
    let refused: usize = ended.expect("somebody hangs").into_iter().sum();
    stage.ends_idle();
    assert_eq!(stage.gauge("refused_total"), refused as f64);
    let sum = "SELECT sum(v) FROM t";
    let updates = (CLIENTS * STATEMENTS / 2).to_string();
    assert_eq!(value(&stage.operator, sum).await, updates);
}

/// While both have something to do, query threads are divided by weight. What comes of it is printed, too, for a
/// machine that others share may give clients no time to ask.
#[tokio::test(flavor = "multi_thread")]
async fn query_threads_are_shared_by_weight() {
    let node = Aerostat::start_with(&["--threads", "2"]);
    let admin = node.connect("aerostat").await;
    for (database, weight) in [("heavy", 300), ("light", 100)] {
        let create = format!("CREATE DATABASE {database} WITH (cpu_weight = {weight})");
        admin.batch_execute(&create).await.unwrap();
        let session = node.connect(database).await;
        let sql = "CREATE TABLE t (k int PRIMARY KEY, x int);
                   INSERT INTO t SELECT g, g % 1000 FROM generate_series(1, 20000) AS g";
        session.batch_execute(sql).await.unwrap();
    }
    let used = |database: &str| {
        node.metric(&format!(
            "aerostat_tenant_query_time_seconds_total{{tenant=\"{database}\"}}"
        ))
    };
    let until = Instant::now() + Duration::from_secs(6);
    let sessions = ["heavy", "light"].into_iter().flat_map(|name| [name; 6]);
    let work = sessions.map(|database| {
        let node = &node;
        async move {
            let session = node.connect(database).await;
            let mut done = 0;
            while Instant::now() < until {
                let sql = "SELECT x % 7, count(*), sum(k) FROM t GROUP BY 1 ORDER BY 1";
                let rows = session.simple_query(sql).await.unwrap();
                let is_row = |one: &&SimpleQueryMessage| matches!(one, SimpleQueryMessage::Row(_));
                assert_eq!(rows.iter().filter(is_row).count(), 7);
                done += 1;
            }
            done
        }
    });
    // While all have something to do.
    let look = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let before = [used("heavy"), used("light")];
        tokio::time::sleep(Duration::from_secs(4)).await;
        [used("heavy") - before[0], used("light") - before[1]]
    };
    let (done, spent): (Vec<u32>, [f64; 2]) = tokio::join!(join_all(work), look);
    let statements = [done[..6].iter().sum::<u32>(), done[6..].iter().sum::<u32>()];
    let ratio = spent[0] / spent[1];
    eprintln!("weights 300 and 100: {spent:?} s, {statements:?} statements, ratio {ratio:.2}");
    assert!((1.8..4.2).contains(&ratio), "{spent:?}");
}
