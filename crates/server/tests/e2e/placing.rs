//! A cluster that chooses which nodes have which database, and nodes that are lost, drained and removed.

use std::{
    process::{Command, Output},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::Value;
use tokio_postgres::Client;

use crate::{
    copies::{Cluster, connect, leads, wait_for_members, wait_for_value, wait_until},
    harness::{Aerostat, BINARY, said, sqlstate, value},
};

const DATABASES: usize = 6;

/// `aerostat cluster …` at a node.
fn cluster(node: &Aerostat, arguments: &[&str]) -> Output {
    let url = format!("postgres://aerostat@{}", node.sql);
    Command::new(BINARY)
        .arg("cluster")
        .args(arguments)
        .args(["--url", &url])
        .output()
        .unwrap()
}

fn ok(node: &Aerostat, arguments: &[&str]) -> String {
    let output = cluster(node, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", said(&output));
    said(&output)
}

/// What the cluster says of itself, by `aerostat cluster status --json`.
fn status(node: &Aerostat) -> Value {
    let output = cluster(node, &["status", "--json"]);
    assert!(output.status.success(), "{}", said(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The nodes that are to have a database, and those that count.
fn nodes_of(status: &Value, name: &str) -> (Vec<String>, Vec<String>) {
    let all = status["databases"].as_array().unwrap();
    let row = all.iter().find(|row| row["name"] == name).unwrap();
    let names = |of: &Value| -> Vec<String> {
        let names = of.as_array().into_iter().flatten();
        names
            .map(|name| name.as_str().unwrap().to_owned())
            .collect()
    };
    (names(&row["nodes"]), names(&row["members"]))
}

/// Waits until every database is on two nodes, as it is to be, and not on this one.
fn await_without(node: &Aerostat, without: &str) {
    wait_until("every database is on two nodes", || {
        let status = status(node);
        (0..DATABASES).all(|at| {
            let (nodes, members) = nodes_of(&status, &format!("d{at}"));
            nodes.len() == 2 && nodes == members && nodes.iter().all(|name| name != without)
        })
    });
}

async fn fill(node: &Aerostat) {
    let admin = connect(node, "aerostat").await;
    for at in 0..DATABASES {
        admin
            .batch_execute(&format!("CREATE DATABASE d{at}"))
            .await
            .unwrap();
        let client = connect(node, &format!("d{at}")).await;
        let sql = format!(
            "CREATE TABLE t (id bigint PRIMARY KEY); INSERT INTO t SELECT generate_series(-100, -{})",
            at + 1
        );
        client.batch_execute(&sql).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_lost_node_had_is_made_on_others() {
    let setup = Cluster::that_chooses();
    let nodes = ["a", "b", "c"].map(|name| setup.start(name));
    wait_for_members(&nodes[0], "aerostat", 3);
    let [a, b, c] = nodes;
    // Every node is known to run by what it says of itself.
    let admin = connect(&c, "aerostat").await;
    let up = "SELECT count(*) FROM aerostat.cluster_nodes WHERE state = 'up'";
    wait_for_value(&admin, up, "3").await;
    fill(&c).await;
    let on = |status: &Value, node: &str| {
        let names = (0..DATABASES).map(|at| format!("d{at}"));
        let on = names.filter(|name| nodes_of(status, name).0.iter().any(|of| of == node));
        on.count()
    };
    // What nodes say of themselves is some seconds old.
    let leads = |status: &Value| -> Vec<i64> {
        let nodes = status["nodes"].as_array().unwrap().iter();
        nodes.map(|node| node["leads"].as_i64().unwrap()).collect()
    };
    wait_until("every database is known to be led", || {
        leads(&status(&a)).iter().sum::<i64>() == 2 + DATABASES as i64
    });
    let all = status(&a);
    for node in ["a", "b", "c"] {
        assert!((3..=5).contains(&on(&all, node)), "{node}: {all}");
    }
    let text = ok(&a, &["status"]);
    for part in ["up", "d0", "led by", "all", " of 512.0 MiB"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let planned = ok(&b, &["plan"]);
    assert!(planned.contains("when any one node fails"), "{planned}");
    // Its machine is gone.
    let data = c.kill();
    await_without(&a, "c");
    for at in 0..DATABASES {
        for node in [&a, &b] {
            let client = connect(node, &format!("d{at}")).await;
            let expected = (100 - at).to_string();
            assert_eq!(value(&client, "SELECT count(*) FROM t").await, expected);
        }
    }
    // It is back: its copies are nobody's, and go.
    let c = setup.start_on(data, "c");
    wait_until("it has given up its copies", || {
        let folder = c.data().join("tenants").read_dir().unwrap();
        let logs = folder.filter(|entry| entry.as_ref().unwrap().path().join("log").exists());
        // Those that every node has are left.
        logs.count() == 2
    });
    assert_eq!(on(&status(&c), "c"), 0);
    // Somebody moves some there, by hand and by a plan.
    let admin = connect(&a, "aerostat").await;
    admin
        .batch_execute("ALTER DATABASE d0 SET (copies = 1)")
        .await
        .unwrap();
    wait_until("it has one copy", || {
        let (nodes, members) = nodes_of(&status(&a), "d0");
        nodes.len() == 1 && nodes == members
    });
    admin
        .batch_execute("ALTER DATABASE d0 SET (copies = 1, nodes = 'c')")
        .await
        .unwrap();
    wait_until("it is there", || nodes_of(&status(&a), "d0").1 == ["c"]);
    let applied = ok(&a, &["apply", "--load-max", "1"]);
    assert!(applied.contains("databases have moved"), "{applied}");
    let client = connect(&b, "d0").await;
    assert_eq!(value(&client, "SELECT count(*) FROM t").await, "100");
}

/// Inserts through any node until it is told to stop; which were acknowledged, and how many failed.
async fn insert(nodes: Arc<Vec<Client>>, stops: Arc<AtomicBool>, first: i64) -> (Vec<i64>, usize) {
    let (mut acknowledged, mut failed) = (Vec::new(), 0);
    for id in (first..).step_by(8) {
        if stops.load(Ordering::Relaxed) {
            break;
        }
        let at = usize::try_from(id).unwrap() % nodes.len();
        match nodes[at].execute("INSERT INTO t VALUES ($1)", &[&id]).await {
            Ok(_) => acknowledged.push(id),
            Err(error) => {
                let code = error.code().map(|code| code.code().to_owned());
                let is_cut = code
                    .as_deref()
                    .is_none_or(|code| code.starts_with("08") || code.starts_with("57P"));
                assert!(is_cut, "{error:?}");
                failed += 1;
                break;
            }
        }
    }
    (acknowledged, failed)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_is_drained_under_load_and_removed() {
    let setup = Cluster::that_chooses();
    let nodes = ["a", "b", "c"].map(|name| setup.start(name));
    wait_for_members(&nodes[0], "aerostat", 3);
    let [a, mut b, c] = nodes;
    let admin = connect(&b, "aerostat").await;
    let up = "SELECT count(*) FROM aerostat.cluster_nodes WHERE state = 'up'";
    wait_for_value(&admin, up, "3").await;
    fill(&b).await;
    let stops = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for at in 0..DATABASES {
        let name = format!("d{at}");
        let clients = vec![connect(&a, &name).await, connect(&c, &name).await];
        writers.push(tokio::spawn(insert(
            Arc::new(clients),
            Arc::clone(&stops),
            0,
        )));
    }
    let drained = tokio::task::spawn_blocking(move || {
        let text = ok(&b, &["drain", "b"]);
        (b, text)
    });
    let (drained_b, text) = drained.await.unwrap();
    b = drained_b;
    assert!(
        text.contains("node b has no databases but those that every node has: aerostat"),
        "{text}"
    );
    await_without(&a, "b");
    let running = said(&cluster(&a, &["remove", "b"]));
    assert!(running.contains("because it runs"), "{running}");
    drop(admin);
    let data = b.stop();
    ok(&a, &["remove", "b"]);
    stops.store(true, Ordering::Relaxed);
    for (at, writer) in writers.into_iter().enumerate() {
        let (acknowledged, failed) = writer.await.unwrap();
        eprintln!("d{at}: {} acknowledged", acknowledged.len());
        assert_eq!(failed, 0, "d{at}: their sessions went along");
        let client = connect(&c, &format!("d{at}")).await;
        let rows = client
            .query("SELECT id FROM t WHERE id >= 0", &[])
            .await
            .unwrap();
        let there: std::collections::BTreeSet<i64> = rows.iter().map(|row| row.get(0)).collect();
        let lost: Vec<&i64> = acknowledged
            .iter()
            .filter(|id| !there.contains(id))
            .collect();
        assert!(lost.is_empty(), "d{at}: {lost:?}");
    }
    let names =
        "SELECT string_agg(name::text, ',' ORDER BY name::text) FROM aerostat.cluster_nodes";
    let admin = connect(&a, "aerostat").await;
    assert_eq!(value(&admin, names).await, "a,c");
    // It is none of them any more; another takes its place.
    assert!(
        setup
            .is_refused(data.path(), "b")
            .contains("another cluster")
    );
    let d = setup.start("d");
    wait_for_value(&admin, up, "3").await;
    assert!(ok(&a, &["add", "d"]).contains("takes databases"));
    // Two that are left cannot spare one: it says so at once.
    ok(&a, &["drain", "d"]);
    let refused = cluster(&a, &["drain", "c"]);
    assert!(!refused.status.success());
    let refused = said(&refused);
    assert!(refused.contains("no other node takes"), "{refused}");
    ok(&a, &["add", "c"]);
    drop(d);
}

#[tokio::test(flavor = "multi_thread")]
async fn only_operators_see_and_choose_nodes() {
    let setup = Cluster::that_chooses();
    let a = setup.start("a");
    let admin = a.connect("aerostat").await;
    admin
        .batch_execute("CREATE ROLE eve LOGIN CREATEDB; CREATE DATABASE hers OWNER eve")
        .await
        .unwrap();
    wait_for_members(&a, "hers", 1);
    let mut config = a.config("hers");
    config.user("eve");
    let (eve, connection) = config.connect(tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    for sql in [
        "ALTER NODE a DRAIN",
        "ALTER NODE nosuch RESUME",
        "DROP NODE a",
        "DROP NODE IF EXISTS nosuch WITH (FORCE)",
        "ALTER DATABASE hers SET (copies = 9)",
        "ALTER DATABASE hers RESET (copies)",
        "CREATE DATABASE more WITH (copies = 1)",
    ] {
        assert_eq!(sqlstate(&eve, sql).await, "42501", "{sql}");
    }
    for view in ["cluster_nodes", "cluster_databases"] {
        let sql = format!("SELECT count(*) FROM aerostat.{view}");
        assert_eq!(value(&eve, &sql).await, "0");
        assert_ne!(value(&admin, &sql).await, "0");
    }
    // What she makes is kept as hers is.
    eve.batch_execute("CREATE DATABASE more").await.unwrap();
    let kept = "SELECT copies FROM aerostat.cluster_databases WHERE name = 'more'";
    assert_eq!(value(&admin, kept).await, "2");
    for sql in ["ALTER NODE nosuch DRAIN", "DROP NODE nosuch"] {
        assert_eq!(sqlstate(&admin, sql).await, "42704", "{sql}");
    }
    assert_eq!(sqlstate(&admin, "DROP NODE a").await, "55006");
    assert_eq!(sqlstate(&admin, "BEGIN; ALTER NODE a DRAIN").await, "25001");
    admin.batch_execute("ROLLBACK").await.unwrap();
    // Nobody takes a new one.
    admin.batch_execute("ALTER NODE a DRAIN").await.unwrap();
    assert_eq!(sqlstate(&admin, "CREATE DATABASE late").await, "55000");
    admin.batch_execute("ALTER NODE a RESUME").await.unwrap();
    admin.batch_execute("CREATE DATABASE late").await.unwrap();
}

#[tokio::test]
async fn a_node_that_is_alone_has_no_others() {
    let node = Aerostat::start();
    let client = node.connect("aerostat").await;
    for sql in [
        "ALTER NODE a DRAIN",
        "DROP NODE a",
        "ALTER DATABASE aerostat SET (copies = 2)",
    ] {
        assert_eq!(sqlstate(&client, sql).await, "0A000", "{sql}");
    }
    let refused = cluster(&node, &["status"]);
    assert!(!refused.status.success());
    assert!(said(&refused).contains("in no cluster"), "{refused:?}");
}

/// The node that has it done is killed in the middle, and a database is restored and one renamed meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_drain_goes_on_whoever_is_killed() {
    let setup = Cluster::that_chooses();
    let mut nodes = ["a", "b", "c"].map(|name| Some(setup.start(name)));
    wait_for_members(nodes[0].as_ref().unwrap(), "aerostat", 3);
    let admin = connect(nodes[2].as_ref().unwrap(), "aerostat").await;
    let up = "SELECT count(*) FROM aerostat.cluster_nodes WHERE state = 'up'";
    wait_for_value(&admin, up, "3").await;
    fill(nodes[2].as_ref().unwrap()).await;
    let backups = tempfile::tempdir().unwrap();
    let backup = backups.path().join("d0");
    // Whichever node has them.
    for database in ["d0", "d1", "d2"] {
        let url = format!("postgres://aerostat@{}", nodes[0].as_ref().unwrap().sql);
        let to = backups.path().join(database);
        let output = Command::new(BINARY)
            .args(["backup", "--database", database, "--url", &url, "--to"])
            .arg(&to)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", said(&output));
    }
    // The one that leads the first database carries it out.
    let coordinator = (0..3)
        .find(|node| leads(nodes[*node].as_ref().unwrap(), "aerostat"))
        .unwrap();
    let drained = (coordinator + 1) % 3;
    let name = ["a", "b", "c"][drained];
    admin
        .batch_execute(&format!("ALTER NODE {name} DRAIN"))
        .await
        .unwrap();
    let data = nodes[coordinator].take().unwrap().kill();
    nodes[coordinator] = Some(setup.start_on(data, ["a", "b", "c"][coordinator]));
    let other = (coordinator + 2) % 3;
    let admin = connect(nodes[other].as_ref().unwrap(), "aerostat").await;
    let sql = format!("RESTORE DATABASE again FROM '{}'", backup.display());
    admin.batch_execute(&sql).await.unwrap();
    admin
        .batch_execute("ALTER DATABASE d1 RENAME TO d9")
        .await
        .unwrap();
    let asked = nodes[other].as_ref().unwrap();
    wait_until("no database is on the node that drains", || {
        let status = status(asked);
        ["d0", "d9", "d2", "d3", "d4", "d5", "again"]
            .iter()
            .all(|database| {
                let (wanted, members) = nodes_of(&status, database);
                wanted == members && wanted.len() == 2 && wanted.iter().all(|on| on != name)
            })
    });
    for (database, count) in [("again", "100"), ("d0", "100"), ("d9", "99"), ("d5", "95")] {
        // Through the one that has none of it, too.
        for node in [other, drained] {
            let client = connect(nodes[node].as_ref().unwrap(), database).await;
            let is = value(&client, "SELECT count(*) FROM t").await;
            assert_eq!(is, count, "{database}");
        }
    }
}
