//! Databases that go from node to node while clients write, and nodes that end meanwhile.

mod steps;

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio_postgres::{Config, NoTls};

use crate::{
    copies::{Cluster, leads, wait_for_members, wait_until},
    harness::{Aerostat, PATIENCE, refusal, sqlstate, value},
};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// What writers have, and have had acknowledged.
#[derive(Default)]
struct Wrote {
    acknowledged: Mutex<Vec<i64>>,
    next: AtomicI64,
    cut: AtomicI64,
    stops: AtomicBool,
}

/// Where nodes are now.
type Addresses = Arc<Mutex<Vec<Option<SocketAddr>>>>;

/// Writes through any node, and through another one where it is cut off, which it may be with these alone.
async fn write(addresses: Addresses, wrote: Arc<Wrote>, seed: u64) {
    let mut random = StdRng::seed_from_u64(seed);
    while !wrote.stops.load(Ordering::Relaxed) {
        let Some(at) = addresses.lock().unwrap()[random.random_range(0..3)] else {
            continue;
        };
        let mut config = Config::new();
        config
            .host(at.ip().to_string())
            .port(at.port())
            .user("aerostat")
            .dbname("shop");
        let Ok((client, connection)) = config.connect_timeout(PATIENCE).connect(NoTls).await else {
            wrote.cut.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        };
        let connection = tokio::spawn(connection);
        for _ in 0..random.random_range(1..200) {
            if wrote.stops.load(Ordering::Relaxed) {
                break;
            }
            let id = wrote.next.fetch_add(1, Ordering::Relaxed);
            let done = client.execute("INSERT INTO t VALUES ($1)", &[&id]).await;
            match done {
                Ok(_) => wrote.acknowledged.lock().unwrap().push(id),
                Err(error) => {
                    let code = error.code().map(|code| code.code().to_owned());
                    let is_cut = code.as_deref().is_none_or(|code| {
                        code.starts_with("08") || code.starts_with("57P") || code == "25006"
                    });
                    assert!(is_cut, "{error:?}");
                    wrote.cut.fetch_add(1, Ordering::Relaxed);
                    break;
                }
            }
        }
        drop(client);
        connection.await.ok();
    }
}

fn is_on(node: &Aerostat, oid: &str) -> bool {
    node.data().join(format!("tenants/{oid}/log")).exists()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_moves_while_clients_write_and_nodes_end() {
    let seed = std::env::var("MOVING_SEED").map_or(1, |seed| seed.parse().unwrap());
    eprintln!("MOVING_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let cluster = Cluster::of_gateways();
    let mut nodes: Vec<Aerostat> = NAMES.map(|name| cluster.start(name)).into();
    wait_for_members(&nodes[0], "aerostat", 3);
    let admin = nodes[0].connect("aerostat").await;
    admin
        .batch_execute("CREATE DATABASE shop WITH (nodes = 'a, b', durability = 'memory2+fsync')")
        .await
        .unwrap();
    let oid = value(&admin, "SELECT oid FROM pg_database WHERE datname = 'shop'").await;
    wait_for_members(&nodes[0], "shop", 2);
    // Through the one that has none of it.
    let client = nodes[2].connect("shop").await;
    client
        .batch_execute("CREATE TABLE t (id bigint PRIMARY KEY)")
        .await
        .unwrap();
    drop((client, admin));
    let addresses: Addresses = Arc::new(Mutex::new(
        nodes.iter().map(|node| Some(node.sql)).collect(),
    ));
    let wrote = Arc::new(Wrote::default());
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            tokio::spawn(write(
                Arc::clone(&addresses),
                Arc::clone(&wrote),
                seed * 10 + writer,
            ))
        })
        .collect();
    let mut on = vec![0, 1];
    for round in 0..8 {
        // Another pair: one stays, one goes. Of three times one is killed on the way once, and one stopped once.
        let goes = on[random.random_range(0..2)];
        let comes = 3 - on[0] - on[1];
        on.retain(|at| *at != goes);
        on.push(comes);
        let names: Vec<&str> = on.iter().map(|at| NAMES[*at]).collect();
        let sql = format!("ALTER DATABASE shop SET (nodes = '{}')", names.join(", "));
        let said = Instant::now();
        loop {
            let teller = &nodes[random.random_range(0..3)];
            let (client, connection) = match teller.config("aerostat").connect(NoTls).await {
                Ok(connected) => connected,
                Err(error) => panic!("{error:?}"),
            };
            let connection = tokio::spawn(connection);
            let done = client.batch_execute(&sql).await;
            drop(client);
            connection.await.ok();
            match done {
                Ok(()) => break,
                Err(error) => assert!(said.elapsed() < PATIENCE, "{error:?}"),
            }
        }
        if round % 3 > 0 {
            tokio::time::sleep(Duration::from_millis(random.random_range(0..400))).await;
            let killed = random.random_range(0..3);
            addresses.lock().unwrap()[killed] = None;
            let node = nodes.remove(killed);
            let data = match round % 3 {
                1 => node.stop(),
                _ => node.kill(),
            };
            let again = cluster.start_on(data, NAMES[killed]);
            addresses.lock().unwrap()[killed] = Some(again.sql);
            nodes.insert(killed, again);
        }
        wait_until("it is where it is to be", || {
            let is_right = |at: usize| is_on(&nodes[at], &oid) == on.contains(&at);
            let led = on.iter().find(|at| leads(&nodes[**at], "shop"));
            let members = "aerostat_copy_members{tenant=\"shop\"}";
            led.is_some_and(|at| nodes[*at].metric(members) == 2.0) && (0..3).all(is_right)
        });
        let before = wrote.acknowledged.lock().unwrap().len();
        let moved = Instant::now();
        while wrote.acknowledged.lock().unwrap().len() < before + 100 {
            assert!(
                moved.elapsed() < PATIENCE,
                "nobody writes after round {round}"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        eprintln!("round {round}: on {names:?} after {:?}", moved - said);
    }
    wrote.stops.store(true, Ordering::Relaxed);
    for writer in writers {
        writer.await.unwrap();
    }
    let client = nodes[0].connect("shop").await;
    let rows = client
        .query("SELECT id FROM t ORDER BY id", &[])
        .await
        .unwrap();
    let there: std::collections::HashSet<i64> = rows.iter().map(|row| row.get(0)).collect();
    let acknowledged = wrote.acknowledged.lock().unwrap().clone();
    let lost: Vec<&i64> = acknowledged
        .iter()
        .filter(|id| !there.contains(id))
        .collect();
    eprintln!(
        "{} written, {} times cut off",
        acknowledged.len(),
        wrote.cut.load(Ordering::Relaxed)
    );
    assert!(lost.is_empty(), "acknowledged and lost: {lost:?}");
    assert!(acknowledged.len() > 1_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_has_no_copy_says_so_or_passes_on() {
    let cluster = Cluster::of_gateways();
    let (a, b) = cluster.pair();
    let admin = a.connect("aerostat").await;
    admin
        .batch_execute("CREATE DATABASE shop WITH (nodes = 'a')")
        .await
        .unwrap();
    wait_for_members(&a, "shop", 1);
    let client = b.connect("shop").await;
    client
        .batch_execute("CREATE TABLE t (a int); INSERT INTO t VALUES (7)")
        .await
        .unwrap();
    assert_eq!(value(&client, "SELECT a FROM t").await, "7");
    // Who is content with any copy, too.
    let mut near = b.config("shop");
    near.options("-c aerostat.read_from=any");
    let (reader, connection) = near.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    assert_eq!(value(&reader, "SELECT a FROM t").await, "7");
    // What names nodes that are none is refused, by whomever it is said to.
    let through = b.connect("aerostat").await;
    let nodes = "ALTER DATABASE shop SET (nodes = 'a, z')";
    assert_eq!(sqlstate(&through, nodes).await, "42704");
    through
        .batch_execute("CREATE ROLE clerk LOGIN; CREATE DATABASE till OWNER clerk")
        .await
        .unwrap();
    let mut clerk = a.config("till");
    clerk.user("clerk");
    let (clerk, connection) = clerk.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    assert_eq!(
        sqlstate(&clerk, "ALTER DATABASE till SET (nodes = 'a')").await,
        "42501"
    );
    // Nor does it hear which nodes there are, of its own database or another's.
    for name in ["till", "shop", "none"] {
        let asked = format!("ALTER DATABASE {name} SET (nodes = 'z')");
        assert_eq!(sqlstate(&clerk, &asked).await, "42501");
    }
    let listed = "SELECT nodes FROM aerostat.tenants WHERE name = 'shop'";
    assert_eq!(value(&through, listed).await, "a");
    // The one that has it is away: nobody else has it.
    let data = a.stop();
    let refused = tokio::time::timeout(PATIENCE, async { refusal(&b.config("shop")).await }).await;
    assert_eq!(refused.unwrap(), "57P03");
    let refused = tokio::time::timeout(PATIENCE, async { refusal(&near).await }).await;
    assert_eq!(refused.unwrap(), "57P03");
    let _a = cluster.start_on(data, "a");
    let client = b.connect("shop").await;
    assert_eq!(value(&client, "SELECT a FROM t").await, "7");
}
