//! Clients of nodes that networks have cut off from others: they are told so, while the network is cut, or go by way of
//! another node.

use std::time::Duration;

use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, NoTls};

use crate::{
    copies::{Cluster, connect, leads, wait_for_members, wait_for_value, wait_until},
    etcd_members::Members,
    harness::{Aerostat, refusal, sqlstate, value},
    networks::Networks,
    routing::end_of,
};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// How long something may take, beside others' tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// Nodes on networks of their own, with a database of which two have copies.
struct Setup {
    networks: Networks,
    nodes: Vec<Aerostat>,
    /// The place of the node that leads it, of the one that follows, and of the one that has no copy.
    leader: usize,
    follower: usize,
    third: usize,
    _members: Members,
}

async fn setup() -> Option<Setup> {
    let networks = Networks::new(NAMES.len())?;
    let hosts = [0, 1, 2].map(|member| networks.member(member));
    let members = Members::start_in(&networks.hub(), hosts)?;
    let cluster = Cluster::of_etcd(&members).that_replaces().secured();
    let start = |node: usize| {
        let data: TempDir = tempfile::tempdir().unwrap();
        cluster.start_in(&networks, node, data, NAMES[node])
    };
    let nodes: Vec<Aerostat> = (0..NAMES.len()).map(start).collect();
    wait_for_members(&nodes[0], "aerostat", 3);
    let admin = nodes[0].connect("aerostat").await;
    let up = "SELECT count(*) FROM aerostat.cluster_nodes WHERE state = 'up'";
    wait_for_value(&admin, up, "3").await;
    admin.batch_execute("CREATE DATABASE shop").await.unwrap();
    let shop = nodes[0].connect("shop").await;
    let tables = "CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (0);
                  CREATE TABLE plain (n int); INSERT INTO plain VALUES (0);
                  CREATE TABLE serial (a serial, b int); CREATE ROLE ann LOGIN;
                  GRANT ALL ON t TO ann";
    shop.batch_execute(tables).await.unwrap();
    let two = "SELECT members FROM aerostat.cluster_databases WHERE name = 'shop'";
    let found = "SELECT count(*) FROM aerostat.cluster_databases WHERE name = 'shop' AND members LIKE '%, %'";
    wait_for_value(&admin, found, "1").await;
    let with: Vec<String> = value(&admin, two)
        .await
        .split(", ")
        .map(str::to_owned)
        .collect();
    let led = (0..nodes.len()).find(|node| leads(&nodes[*node], "shop"));
    let leader = led.unwrap();
    let has_copy = |node: &usize| with.iter().any(|name| name == NAMES[*node]);
    let others: Vec<usize> = (0..nodes.len()).filter(|node| *node != leader).collect();
    let (copies, without): (Vec<usize>, Vec<usize>) = others.into_iter().partition(has_copy);
    assert_eq!((copies.len(), without.len()), (1, 1), "{with:?}");
    Some(Setup {
        networks,
        nodes,
        leader,
        follower: copies[0],
        third: without[0],
        _members: members,
    })
}

impl Setup {
    async fn connect(&self, node: usize) -> Client {
        self.nodes[node].connect("shop").await
    }
}

/// Runs something, of which the client is to be told something.
fn told(client: Client, sql: &'static str) -> JoinHandle<(Client, String)> {
    tokio::spawn(async move {
        let state = tokio::time::timeout(PATIENCE, sqlstate(&client, sql)).await;
        (client, state.expect("it is told"))
    })
}

async fn state_of(told: JoinHandle<(Client, String)>) -> String {
    told.await.unwrap().1
}

/// A leader that hears of nobody says that it does not know what has become of a commit, takes no changes, and lets nobody
/// in; so does a node that has no copy. The network is cut all the while.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_at_a_node_that_is_cut_off_is_told() {
    let Some(setup) = setup().await else { return };
    let Setup { networks, .. } = &setup;
    let (writer, resting) = (
        setup.connect(setup.leader).await,
        setup.connect(setup.leader).await,
    );
    let in_block = setup.connect(setup.leader).await;
    in_block
        .batch_execute("BEGIN; INSERT INTO t VALUES (1)")
        .await
        .unwrap();
    let by_plan = setup.connect(setup.leader).await;
    networks.cut(setup.leader);
    let waiting = [
        told(in_block, "COMMIT"),
        told(by_plan, "UPDATE plain SET n = n + 1 RETURNING n"),
    ];
    let (writer, state) = told(writer, "INSERT INTO t VALUES (2)").await.unwrap();
    assert_eq!(state, "08007");
    for waiting in waiting {
        assert_eq!(state_of(waiting).await, "08007");
    }
    // From here on it is known before anything is done.
    for sql in [
        "INSERT INTO t VALUES (3)",
        "UPDATE t SET a = 4",
        "CREATE TABLE u (a int)",
        "CREATE INDEX ON plain (n)",
        "ALTER TABLE plain ADD COLUMN m int",
        "TRUNCATE t",
        "SELECT nextval('serial_a_seq')",
        "SELECT setval('serial_a_seq', 7)",
        "COPY t FROM STDIN",
        "INSERT INTO serial (b) SELECT a FROM t",
        "EXPLAIN ANALYZE DELETE FROM t",
        "MERGE INTO t USING plain ON t.a = plain.n WHEN MATCHED THEN DELETE",
        "WITH gone AS (DELETE FROM t RETURNING a) SELECT * FROM gone",
        "SELECT a FROM t FOR UPDATE",
    ] {
        assert_eq!(sqlstate(&resting, sql).await, "25006", "{sql}");
        assert_eq!(sqlstate(&writer, sql).await, "25006", "{sql}");
    }
    let error = resting.query("DELETE FROM t", &[]).await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert!(error.hint().unwrap().contains("another node"), "{error:?}");
    // What it has may be read, by whoever does not ask for what is newest.
    assert_eq!(value(&resting, "SELECT count(*) FROM t").await, "1");
    let config = setup.nodes[setup.leader].config("shop");
    assert_eq!(refusal(&config).await, "57P03");
    // The others go on.
    let next = setup.connect(setup.third).await;
    next.batch_execute("INSERT INTO t VALUES (5)")
        .await
        .unwrap();
    networks.heal(setup.leader);
    let all = [&setup.nodes[setup.leader], &setup.nodes[setup.follower]];
    wait_until("the other one leads", || {
        !leads(all[0], "shop") && leads(all[1], "shop")
    });
    let back = connect(&setup.nodes[setup.leader], "shop").await;
    let found = value(&back, "SELECT string_agg(a::text, ' ' ORDER BY a) FROM t").await;
    // What was not known may have come to pass.
    let lost = found.split(' ').filter(|a| !["1", "2"].contains(a));
    assert_eq!(lost.collect::<Vec<_>>(), ["0", "5"], "{found}");

    // One that has no copy, and whose clients' sessions are elsewhere.
    let third = setup.third;
    let waiting = connect(&setup.nodes[third], "shop").await;
    networks.cut(third);
    let waiting = told(waiting, "INSERT INTO t VALUES (6)");
    let arriving = setup.nodes[third].config("shop");
    assert_eq!(refusal(&arriving).await, "57P03");
    assert_eq!(state_of(waiting).await, "08007");
    networks.heal(third);
    let healed = connect(&setup.nodes[third], "shop").await;
    healed
        .batch_execute("INSERT INTO t VALUES (7)")
        .await
        .unwrap();
}

/// Two nodes that hear nothing of each other, and of all others: what is at one and leads at the other goes by way of a
/// third.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_go_by_way_of_a_node_that_reaches_the_leader() {
    let Some(setup) = setup().await else { return };
    let Setup { networks, .. } = &setup;
    let (leader, third) = (setup.leader, setup.third);
    let (running, resting) = (setup.connect(third).await, setup.connect(third).await);
    let running = told(running, "SELECT pg_sleep(600)");
    networks.cut_from(third, &[networks.node(leader).into()]);
    // Whether it ended is not known.
    assert_eq!(state_of(running).await, "08007");
    assert_eq!(
        told(resting, "INSERT INTO t VALUES (1)").await.unwrap().1,
        "08007"
    );
    let client = setup.connect(third).await;
    let prepared = client.prepare("INSERT INTO t VALUES ($1)").await.unwrap();
    for number in 2..20i32 {
        client.execute(&prepared, &[&number]).await.unwrap();
    }
    let address = value(
        &client,
        "SELECT pid FROM pg_stat_activity WHERE pid = pg_backend_pid()",
    );
    assert!(!address.await.is_empty());
    // Long enough for the way to be looked at.
    client.batch_execute("SELECT pg_sleep(4)").await.unwrap();
    let token = client.cancel_token();
    let sleeping = told(client, "SELECT pg_sleep(600)");
    let watch = setup.connect(leader).await;
    let sleeps = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(600)%' AND state = 'active'";
    wait_for_value(&watch, sleeps, "1").await;
    token.cancel_query(NoTls).await.unwrap();
    let (client, state) = sleeping.await.unwrap();
    assert_eq!(state, "57014");
    // The session goes along when the lead moves, by whichever way there is.
    let mover = setup.connect(leader).await;
    assert_eq!(value(&mover, "SELECT count(*) >= 19 FROM t").await, "t");
    let follower = &setup.nodes[setup.follower];
    let mut config = follower.config("shop");
    let (copy, connection) = config
        .options("-c aerostat.read_from=any")
        .connect(NoTls)
        .await
        .unwrap();
    tokio::spawn(connection);
    assert_eq!(value(&copy, "SELECT pg_promote()").await, "t");
    wait_until("the other one leads", || leads(follower, "shop"));
    client.execute(&prepared, &[&100]).await.unwrap();
    client.batch_execute("SELECT pg_sleep(3)").await.unwrap();
    networks.heal_from(third, &[networks.node(leader).into()]);
    assert_eq!(
        value(&client, "SELECT count(*) FROM t WHERE a = 100").await,
        "1"
    );
}

/// Sessions by way of another node have the rights and limits of their roles, are told when that node stops, and end up at
/// the node that their clients have come to where that leads.
#[tokio::test(flavor = "multi_thread")]
async fn a_way_round_is_as_good_as_the_straight_one() {
    let Some(mut setup) = setup().await else {
        return;
    };
    let (leader, follower, third) = (setup.leader, setup.follower, setup.third);
    let admin = setup.connect(leader).await;
    let roles = "ALTER ROLE ann CONNECTION LIMIT 1; CREATE ROLE bob;
                 CREATE ROLE eve LOGIN; REVOKE CONNECT ON DATABASE shop FROM PUBLIC;
                 GRANT CONNECT ON DATABASE shop TO ann";
    admin.batch_execute(roles).await.unwrap();
    // Those that have no copy have the rights by now.
    let as_role = |setup: &Setup, role: &str| {
        let mut config = setup.nodes[third].config("shop");
        config.user(role);
        config
    };
    let cut: [std::net::IpAddr; 1] = [setup.networks.node(leader).into()];
    setup.networks.cut_from(third, &cut);
    let (ann, connection) = as_role(&setup, "ann").connect(NoTls).await.unwrap();
    let ended = tokio::spawn(end_of(connection));
    assert_eq!(value(&ann, "SELECT current_user").await, "ann");
    assert_eq!(
        sqlstate(&ann, "INSERT INTO plain VALUES (1)").await,
        "42501"
    );
    ann.batch_execute("INSERT INTO t VALUES (1000)")
        .await
        .unwrap();
    // A second is one too many, and the first stays.
    assert_eq!(refusal(&as_role(&setup, "ann")).await, "53300");
    assert_eq!(refusal(&as_role(&setup, "bob")).await, "28000");
    assert_eq!(refusal(&as_role(&setup, "eve")).await, "42501");
    assert_eq!(refusal(&setup.nodes[third].config("nosuch")).await, "3D000");
    assert_eq!(
        value(&ann, "SELECT count(*) FROM t WHERE a = 1000").await,
        "1"
    );
    // Much comes and goes that way, and a client that does not read holds up no other.
    let lazy = setup.connect(third).await;
    let rows = "SELECT repeat('x', 1000) FROM generate_series(1, 200000)";
    let stream = lazy.query_raw(rows, Vec::<i32>::new()).await.unwrap();
    let many = "INSERT INTO t SELECT g FROM generate_series(2000, 101999) g";
    ann.batch_execute(many).await.unwrap();
    assert_eq!(value(&ann, "SELECT count(*) FROM t").await, "100002");
    drop((stream, lazy));
    // The node on the way stops: whoever comes by it is told, and another session begins once there is a way.
    setup.nodes[follower].signal("TERM");
    setup.nodes[follower].wait();
    assert_eq!(ended.await.unwrap(), "57P01");
    setup.networks.heal_from(third, &cut);
    let after = connect(&setup.nodes[third], "shop").await;
    assert_eq!(value(&after, "SELECT count(*) FROM t").await, "100002");
}
