//! Sessions that only read, through nodes with a copy and without, at whichever copy has the least to do.

use std::time::{Duration, Instant};

use tokio_postgres::{Client, NoTls};

use crate::{
    cluster::Cluster,
    copies::{leads, promote, text, wait_for_members, wait_for_value, wait_until},
    harness::{Aerostat, PATIENCE, refusal, sqlstate, value},
};

/// Content with any copy.
const ANY: &str = "-c default_transaction_read_only=on";

/// Content with the node's own, if it has one.
const NEAR: &str = "-c aerostat.read_from=any";

async fn connect(node: &Aerostat, options: &str) -> Client {
    connect_to(node, "shop", options).await
}

async fn connect_to(node: &Aerostat, database: &str, options: &str) -> Client {
    let mut config = node.config(database);
    config.options(options);
    let connected = tokio::time::timeout(PATIENCE, config.connect(NoTls)).await;
    let (client, connection) = connected.expect("somebody answers").unwrap();
    tokio::spawn(connection);
    client
}

/// Whether the session is at a node that follows.
async fn follows(client: &Client) -> bool {
    text(client, "SELECT pg_is_in_recovery()::text").await == "true"
}

/// How many of these sessions are at the leader, and how many at one that follows.
async fn places(clients: &[Client]) -> (usize, usize) {
    let (mut at_leader, mut beside) = (0, 0);
    for client in clients {
        match follows(client).await {
            true => beside += 1,
            false => at_leader += 1,
        }
    }
    (at_leader, beside)
}

/// Three nodes, of which `a` and `b` have the database, and a client that writes; the first of them leads it.
pub(crate) async fn shop() -> (Cluster, [Aerostat; 3], Client) {
    let cluster = Cluster::of_gateways();
    let [mut a, mut b, c] = ["a", "b", "c"].map(|name| cluster.start(name));
    wait_for_members(&a, "aerostat", 3);
    let admin = a.connect("aerostat").await;
    admin
        .batch_execute(
            "CREATE DATABASE shop WITH (nodes = 'a, b'); ALTER DATABASE shop SET (durability = 'memory2')",
        )
        .await
        .unwrap();
    let client = c.connect("shop").await;
    client
        .batch_execute("CREATE TABLE t (a int PRIMARY KEY)")
        .await
        .unwrap();
    if leads(&b, "shop") {
        std::mem::swap(&mut a, &mut b);
    }
    wait_for_members(&a, "shop", 2);
    (cluster, [a, b, c], client)
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_are_spread_over_copies_through_any_node() {
    let (cluster, [a, b, c], writer) = shop().await;
    writer
        .batch_execute("INSERT INTO t VALUES (1)")
        .await
        .unwrap();
    for node in [&a, &b, &c] {
        let mut clients = Vec::new();
        for _ in 0..10 {
            clients.push(connect(node, ANY).await);
        }
        assert_eq!(places(&clients).await, (5, 5));
        for client in &clients {
            // What was written is there a moment later, and nothing is written here.
            wait_for_value(client, "SELECT count(*) FROM t", "1").await;
            assert_eq!(sqlstate(client, "INSERT INTO t VALUES (2)").await, "25006");
        }
        // Places of those that have gone are taken again.
        let mut left = Vec::new();
        for client in clients {
            if follows(&client).await {
                left.push(client);
            }
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        for _ in 0..5 {
            left.push(connect(node, ANY).await);
        }
        assert_eq!(places(&left).await, (5, 5));
    }
    // The node's own copy, where it has one; else any.
    for _ in 0..3 {
        assert!(!follows(&connect(&a, NEAR).await).await);
        assert!(follows(&connect(&b, NEAR).await).await);
    }
    let near = [connect(&c, NEAR).await, connect(&c, NEAR).await];
    assert_eq!(places(&near).await, (1, 1));
    // Whoever asks for the leader is there, whatever it is going to do.
    let both = connect(&c, &format!("{ANY} -c aerostat.read_from=leader")).await;
    assert!(!follows(&both).await);
    // A reader's statement is cancelled through the node that its client knows.
    let slow = connect(&c, NEAR).await;
    let cancel = slow.cancel_token();
    let running = tokio::spawn(async move { sqlstate(&slow, "SELECT pg_sleep(60)").await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    cancel.cancel_query(NoTls).await.unwrap();
    assert_eq!(running.await.unwrap(), "57014");
    // While what the nodes share is away clients come all the same, also where there is no copy, and to a database of which
    // that node has only heard.
    connect(&c, ANY).await;
    let admin = a.connect("aerostat").await;
    admin
        .batch_execute("CREATE DATABASE store WITH (nodes = 'a, b')")
        .await
        .unwrap();
    let here = connect_to(&c, "aerostat", NEAR).await;
    let heard = "SELECT count(leader) FROM aerostat.cluster_databases WHERE name = 'store'";
    wait_for_value(&here, heard, "1").await;
    let (folder, aside) = (cluster.folder(), cluster.folder().with_extension("aside"));
    std::fs::rename(folder, &aside).unwrap();
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(connect(&c, ANY).await);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    for options in ["", ANY] {
        let client = connect_to(&c, "store", options).await;
        assert_eq!(value(&client, "SELECT current_database()").await, "store");
    }
    std::fs::rename(&aside, folder).unwrap();
    assert_eq!(places(&clients).await, (2, 2));
    drop((clients, near));
    // A copy more takes readers as soon as commits wait for it.
    writer
        .batch_execute("ALTER DATABASE shop SET (nodes = 'a, b, c')")
        .await
        .unwrap();
    wait_for_members(&a, "shop", 3);
    wait_until("the third has its copy", || {
        c.metric("aerostat_copy_members{tenant=\"shop\"}") == 3.0
    });
    let mut clients = Vec::new();
    for _ in 0..9 {
        clients.push(connect(&c, ANY).await);
    }
    assert_eq!(places(&clients).await, (3, 6));
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_go_on_where_a_copy_is_left() {
    let (_cluster, [a, b, c], writer) = shop().await;
    writer
        .batch_execute("INSERT INTO t VALUES (1)")
        .await
        .unwrap();
    let mut clients = Vec::new();
    for _ in 0..6 {
        clients.push(connect(&c, ANY).await);
    }
    assert_eq!(places(&clients).await, (3, 3));
    // The lead changes on purpose: nobody is cut off, and there are readers at both from then on.
    promote(&b, "shop");
    for client in &clients {
        assert_eq!(value(client, "SELECT count(*) FROM t").await, "1");
    }
    drop(clients);
    // One that ends: who was there is told, and who comes is served at once by the other.
    let reader = loop {
        let client = connect(&c, ANY).await;
        if follows(&client).await {
            break client;
        }
    };
    let stays = connect(&c, "-c aerostat.read_from=leader").await;
    let running = tokio::spawn(async move { sqlstate(&reader, "SELECT pg_sleep(60)").await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    let data = a.kill();
    let told = running.await.unwrap();
    assert!(["08007", "57P01"].contains(&told.as_str()), "{told}");
    let began = Instant::now();
    for _ in 0..4 {
        let client = connect(&c, ANY).await;
        assert_eq!(value(&client, "SELECT count(*) FROM t").await, "1");
    }
    assert!(
        began.elapsed() < PATIENCE / 2,
        "readers wait for who is gone"
    );
    assert!(!follows(&stays).await);
    drop((data, writer));
}

/// One that says nothing any more is waited for no longer than nodes are taken to run that do not speak.
#[tokio::test(flavor = "multi_thread")]
async fn readers_of_a_copy_that_is_frozen_are_told() {
    let (_cluster, [_a, b, c], writer) = shop().await;
    writer
        .batch_execute("INSERT INTO t VALUES (1)")
        .await
        .unwrap();
    let mut waits = Vec::new();
    while waits.len() < 2 {
        let client = connect(&c, ANY).await;
        if follows(&client).await {
            waits.push(client);
        }
    }
    let idle = waits.pop().unwrap();
    b.signal("STOP");
    let waiting = waits.into_iter().map(|client| async move {
        let asked = tokio::time::timeout(PATIENCE, client.batch_execute("SELECT 1"));
        let error = asked.await.expect("it is told").unwrap_err();
        error.code().map(|code| code.code().to_owned())
    });
    let waiting = tokio::spawn(futures::future::join_all(waiting));
    // Whoever comes meanwhile is at the other one, after a moment at the most.
    for _ in 0..3 {
        let client = connect(&c, ANY).await;
        assert_eq!(value(&client, "SELECT count(*) FROM t").await, "1");
        assert!(!follows(&client).await);
    }
    writer
        .batch_execute("INSERT INTO t VALUES (2)")
        .await
        .unwrap();
    assert_eq!(waiting.await.unwrap(), [Some("08007".to_owned())]);
    b.signal("CONT");
    // Whoever had asked nothing goes on.
    wait_for_value(&idle, "SELECT count(*) FROM t", "2").await;
}

/// Readers have the rights of their role at whichever copy they are, and are served while one is stopped and comes back.
#[tokio::test(flavor = "multi_thread")]
async fn readers_have_their_rights_and_outlive_what_becomes_of_copies() {
    let (cluster, [a, b, c], writer) = shop().await;
    writer
        .batch_execute("CREATE ROLE clerk LOGIN; CREATE ROLE stranger LOGIN; CREATE ROLE ghost; CREATE TABLE own (a int);
            INSERT INTO own VALUES (5); GRANT SELECT ON own TO clerk; GRANT CONNECT ON DATABASE shop TO clerk;
            REVOKE CONNECT ON DATABASE shop FROM PUBLIC; INSERT INTO t VALUES (1)")
        .await
        .unwrap();
    for node in [&a, &b] {
        wait_for_value(&connect(node, NEAR).await, "SELECT count(*) FROM t", "1").await;
    }
    for options in [ANY, NEAR] {
        for role in ["stranger", "ghost"] {
            let mut config = c.config("shop");
            config.user(role).options(options);
            let state = refusal(&config).await;
            assert!(
                ["42501", "28000"].contains(&state.as_str()),
                "{role}: {state}"
            );
        }
        let mut config = c.config("shop");
        config.user("clerk").options(options);
        let mut clerks = Vec::new();
        for _ in 0..4 {
            let (client, connection) = config.connect(NoTls).await.unwrap();
            tokio::spawn(connection);
            wait_for_value(&client, "SELECT a FROM own", "5").await;
            assert_eq!(sqlstate(&client, "SELECT * FROM t").await, "42501");
            clerks.push(client);
        }
        assert_eq!(places(&clerks).await, (2, 2));
    }
    // A copy that is stopped as it should be: readers come to the other one at once, and back.
    let data = b.stop();
    for _ in 0..4 {
        let client = connect(&c, ANY).await;
        assert_eq!(value(&client, "SELECT a FROM own").await, "5");
        assert!(!follows(&client).await);
    }
    let _b = cluster.start_on(data, "b");
    wait_for_members(&a, "shop", 2);
    writer
        .batch_execute("INSERT INTO own VALUES (6)")
        .await
        .unwrap();
    let mut clients = Vec::new();
    for _ in 0..6 {
        clients.push(connect(&c, ANY).await);
    }
    assert_eq!(places(&clients).await, (3, 3));
    // Readers are in the way of another name, and of an end, as all sessions are.
    let admin = c.connect("aerostat").await;
    for sql in ["ALTER DATABASE shop RENAME TO store", "DROP DATABASE shop"] {
        assert_eq!(sqlstate(&admin, sql).await, "55006", "{sql}");
    }
    assert_eq!(value(&clients[0], "SELECT count(*) FROM own").await, "2");
}

/// A node whose copy has heard of no leader since it started says so, after it has waited for one; and of roles that there are
/// not, also while what the nodes share is away.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_cannot_be_let_in_is_told_why() {
    let cluster = Cluster::of_gateways();
    let (a, b, _admin) = cluster.shop().await;
    drop(a.kill());
    let b = cluster.start_on(b.kill(), "b");
    let mut config = b.config("shop");
    config.options(NEAR);
    // Two copies, of which one is lost: nobody leads without it.
    assert_eq!(refusal(&config).await, "57P03");
    let (folder, aside) = (cluster.folder(), cluster.folder().with_extension("aside"));
    std::fs::rename(folder, &aside).unwrap();
    for role in ["nobody", "nobody", "no other"] {
        config.user(role);
        let refused = tokio::time::timeout(PATIENCE, refusal(&config)).await;
        assert_eq!(refused.expect("it is told"), "28000");
    }
    std::fs::rename(&aside, folder).unwrap();
}
