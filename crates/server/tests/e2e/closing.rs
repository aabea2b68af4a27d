//! Databases that are closed while the node goes on, and opened when somebody wants them.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio_postgres::{Client, NoTls};

use crate::harness::{Aerostat, PATIENCE, sqlstate, value};

const CLOSE: &str = "ALTER DATABASE shop CLOSE WITH (FORCE)";

/// A client of `shop`, once it lets anybody in.
async fn connected(node: &Aerostat) -> Client {
    let started = Instant::now();
    loop {
        match node.config("shop").connect(NoTls).await {
            Ok((client, connection)) => {
                tokio::spawn(connection);
                return client;
            }
            Err(error) => {
                let code = error.as_db_error().unwrap().code().code();
                assert_eq!(code, "57P03", "{error:?}");
                assert!(started.elapsed() < PATIENCE);
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        }
    }
}

async fn state(admin: &Client) -> String {
    let sql = "SELECT state FROM aerostat.tenants WHERE name = 'shop'";
    value(admin, sql).await
}

/// How many files of its databases a node has open.
fn open_files(node: &Aerostat, folder: &str) -> usize {
    let open = std::fs::read_dir(format!("/proc/{}/fd", node.process_id())).unwrap();
    let paths = open.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
    let below = node.data().canonicalize().unwrap().join(folder);
    paths.filter(|path| path.starts_with(&below)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_database_is_gone_from_memory_and_comes_back_as_it_was() {
    let node = Aerostat::start();
    let admin = node.connect("aerostat").await;
    let client = node.create("shop").await;
    let oid = value(&admin, "SELECT oid FROM pg_database WHERE datname = 'shop'").await;
    let folder = format!("tenants/{oid}");
    client
        .batch_execute(
            "CREATE TABLE t (id integer PRIMARY KEY, v text);
             INSERT INTO t SELECT g, 'row ' || g FROM generate_series(1, 100000) AS g;
             CREATE SEQUENCE s",
        )
        .await
        .unwrap();
    drop(client);
    // What was there before anything of it was.
    admin.batch_execute(CLOSE).await.unwrap();
    let before = node.metric("aerostat_memory_used_bytes");
    assert_eq!(open_files(&node, &folder), 0);
    for round in 0..3 {
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(connected(&node).await);
        }
        assert_eq!(value(&clients[0], "SELECT count(*) FROM t").await, "100000");
        assert!(open_files(&node, &folder) > 0);
        assert!(node.metric("aerostat_memory_used_bytes") > before);
        assert_eq!(node.metric("aerostat_tenants_closed"), 0.0);
        // Idle, in a transaction, in a query, and in a change.
        clients[1]
            .batch_execute("BEGIN; UPDATE t SET v = 'lost' WHERE id = 7; PREPARE p AS SELECT 1")
            .await
            .unwrap();
        let long = "SELECT count(*) FROM t a, t b, t c WHERE a.v < b.v AND b.v < c.v";
        let change = "UPDATE t SET v = (SELECT max(b.v) FROM t b, t c WHERE b.v < c.v || t.v)";
        let (busy, writes) = (clients.remove(2), clients.remove(2));
        let runs = [
            tokio::spawn(async move { busy.batch_execute(long).await }),
            tokio::spawn(async move { writes.batch_execute(change).await }),
        ];
        tokio::time::sleep(Duration::from_millis(300)).await;
        admin.batch_execute(CLOSE).await.unwrap();
        for run in runs {
            let error = run.await.unwrap().unwrap_err();
            let code = error.code().map(|code| code.code().to_owned());
            assert!(code.is_none_or(|code| code == "57P01"), "{error:?}");
        }
        assert_eq!(state(&admin).await, "closed");
        assert_eq!(node.ask("/healthz").1, "ok\n");
        assert_eq!(node.metric("aerostat_tenants_closed"), 1.0);
        assert_eq!(open_files(&node, &folder), 0, "round {round}");
        node.wait_for_metric("aerostat_memory_used_bytes", before);
        // Once more is nothing to do.
        admin.batch_execute(CLOSE).await.unwrap();
        assert!(clients[0].batch_execute("SELECT 1").await.is_err());
    }
    let client = connected(&node).await;
    let sums = "SELECT count(*) || ' ' || count(*) FILTER (WHERE v = 'row ' || id) FROM t";
    assert_eq!(value(&client, sums).await, "100000 100000");
    assert_eq!(value(&client, "SELECT nextval('s')").await, "1");
    // Who is asked to go by themselves, and does not.
    assert_eq!(sqlstate(&admin, "ALTER DATABASE shop CLOSE").await, "55006");
    assert_eq!(value(&client, "SELECT count(*) FROM t").await, "100000");
    assert_eq!(
        sqlstate(&admin, "ALTER DATABASE aerostat CLOSE").await,
        "55006"
    );
    assert_eq!(sqlstate(&admin, "ALTER DATABASE none CLOSE").await, "3D000");
    admin.batch_execute("BEGIN").await.unwrap();
    assert_eq!(sqlstate(&admin, CLOSE).await, "25001");
    admin
        .batch_execute("ROLLBACK; DROP DATABASE IF EXISTS none")
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lazy_node_opens_what_is_wanted() {
    let node = Aerostat::start();
    let shop = node.create("shop").await;
    shop.batch_execute("CREATE TABLE t AS SELECT g FROM generate_series(1, 1000) AS g")
        .await
        .unwrap();
    node.create("other")
        .await
        .batch_execute("CREATE TABLE o (x integer)")
        .await
        .unwrap();
    drop(shop);
    let node = Aerostat::start_on(node.stop(), &["--open", "lazy"]);
    assert_eq!(open_files(&node, "tenants"), 0);
    assert_eq!(node.metric("aerostat_tenants_closed"), 4.0);
    assert_eq!(node.ask("/healthz").1, "ok\n");
    let admin = node.connect("aerostat").await;
    let states =
        "SELECT string_agg(name || ' ' || state, ', ' ORDER BY name) FROM aerostat.tenants";
    let told = value(&admin, states).await;
    assert_eq!(
        told,
        "aerostat open, other closed, postgres closed, shop closed"
    );
    // Whoever may not come in opens nothing.
    admin
        .batch_execute("CREATE ROLE guest LOGIN")
        .await
        .unwrap();
    let mut guest = node.config("shop");
    let Err(refused) = guest.user("guest").connect(NoTls).await else {
        panic!("there is no right to connect");
    };
    assert_eq!(refused.as_db_error().unwrap().code().code(), "42501");
    assert_eq!(state(&admin).await, "closed");
    // Many at once.
    let all: Vec<_> = futures_of(&node, 100).await;
    for client in &all {
        assert_eq!(value(client, "SELECT count(*) FROM t").await, "1000");
    }
    assert_eq!(
        node.log().matches("opened database=\"shop\"").count(),
        1,
        "{}",
        node.log()
    );
    let told = value(&admin, states).await;
    assert_eq!(
        told,
        "aerostat open, other closed, postgres closed, shop open"
    );
}

/// So many clients that connect at once.
async fn futures_of(node: &Aerostat, count: usize) -> Vec<Client> {
    let connect = || {
        let config = node.config("shop");
        tokio::spawn(async move {
            let (client, connection) = config.connect(NoTls).await.unwrap();
            tokio::spawn(connection);
            client
        })
    };
    let all: Vec<_> = (0..count).map(|_| connect()).collect();
    let mut clients = Vec::new();
    for one in all {
        clients.push(one.await.unwrap());
    }
    clients
}

/// Writers, somebody who closes, and the process killed in between: what was acknowledged is there.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_killed_while_it_closes_has_lost_nothing() {
    let node = Aerostat::start_with(&["--max-connections", "50"]);
    let client = node.create("shop").await;
    client
        .batch_execute("CREATE TABLE t (id integer PRIMARY KEY)")
        .await
        .unwrap();
    drop(client);
    let (mut node, mut next) = (node, 0);
    let mut acknowledged = Vec::new();
    for round in 0..8_u64 {
        let stop = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..3)
            .map(|own| {
                let (config, stop) = (node.config("shop"), Arc::clone(&stop));
                let first = next + own;
                tokio::spawn(async move {
                    let mut written = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        let Ok((client, connection)) = config.connect(NoTls).await else {
                            tokio::time::sleep(Duration::from_millis(1)).await;
                            continue;
                        };
                        tokio::spawn(connection);
                        loop {
                            let id = first + 3 * written.len();
                            let sql = format!("INSERT INTO t VALUES ({id}) ON CONFLICT DO NOTHING");
                            if client.batch_execute(&sql).await.is_err() {
                                break;
                            }
                            written.push(id);
                        }
                    }
                    written
                })
            })
            .collect();
        let admin = node.connect("aerostat").await;
        let closer = tokio::spawn(async move { while admin.batch_execute(CLOSE).await.is_ok() {} });
        tokio::time::sleep(Duration::from_millis(300 + 37 * round)).await;
        let data = node.kill();
        stop.store(true, Ordering::Relaxed);
        for writer in writers {
            acknowledged.extend(writer.await.unwrap());
        }
        closer.await.unwrap();
        next = acknowledged.iter().max().map_or(0, |max| max + 100);
        node = Aerostat::start_on(data, &["--open", ["eager", "lazy"][round as usize % 2]]);
    }
    let client = connected(&node).await;
    let rows = client.query("SELECT id FROM t", &[]).await.unwrap();
    let found: std::collections::BTreeSet<i32> = rows.iter().map(|row| row.get(0)).collect();
    assert!(acknowledged.len() > 20, "{}", acknowledged.len());
    for id in acknowledged {
        assert!(found.contains(&i32::try_from(id).unwrap()), "{id} is lost");
    }
}
