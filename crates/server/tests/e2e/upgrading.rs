//! A cluster whose nodes go on as another build, one after another, while clients write.
//!
//! The other build is a copy of the program in which two things were changed: the linker's digest, by which builds are
//! told apart, and the newest version that it speaks between nodes. Its code is the same, and what it writes into the
//! documents that nodes share has the fields that are known; fields of a later build are put there by the test.

mod merging;
mod other_build;
mod refused;
mod writers;

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use aerostat_storage::{MetaShared, MetaStore, Swapped};
use serde_json::Value;

use crate::{
    copies::{Cluster, wait_for_members, wait_until},
    harness::{Aerostat, BINARY, said, send_signal, sqlstate, value},
};
use other_build::{Programs, build_of};
use writers::{Cut, Writers};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Three nodes that may go on as programs of a folder, all of which have `shop`.
struct House {
    nodes: Vec<Aerostat>,
    cluster: Cluster,
    programs: Programs,
}

fn flags(programs: &Programs) -> [&str; 4] {
    ["--memory", "512MB", "--upgrades", programs.folder()]
}

impl House {
    async fn start() -> House {
        let (cluster, programs) = (Cluster::of_gateways(), Programs::new());
        let nodes = NAMES.map(|name| {
            let data = tempfile::tempdir().unwrap();
            cluster.start_with_flags(data, name, &flags(&programs))
        });
        let house = House {
            cluster,
            programs,
            nodes: nodes.into(),
        };
        wait_for_members(&house.nodes[0], "aerostat", 3);
        let admin = house.nodes[0].create("shop").await;
        wait_for_members(&house.nodes[0], "shop", 3);
        admin
            .batch_execute("CREATE TABLE t (id bigint PRIMARY KEY)")
            .await
            .unwrap();
        house.await_whole();
        house
    }

    /// Starts a node again, as the build that the tests are of.
    fn start_again(&mut self, at: usize) {
        let node = self.nodes.remove(at);
        let flags = flags(&self.programs);
        let again = self
            .cluster
            .start_with_flags(node.kill(), NAMES[at], &flags);
        self.nodes.insert(at, again);
    }

    /// Waits until every node is known to run, and every copy to be current.
    fn await_whole(&self) {
        wait_until("every copy is current", || {
            let status = status(&self.nodes[0]);
            let rows = |of: &str| status[of].as_array().unwrap().clone();
            let up = rows("nodes")
                .iter()
                .filter(|row| row["state"] == "up")
                .count();
            let is_current = |row: &Value| row["current"].as_array().unwrap().len() == 3;
            up == 3 && rows("databases").iter().all(is_current)
        });
    }

    /// The ids of the builds that nodes run.
    fn builds(&self) -> Vec<String> {
        let status = status(&self.nodes[0]);
        let nodes = status["nodes"].as_array().unwrap().iter();
        nodes
            .map(|row| row["build"]["build"].as_str().unwrap().to_owned())
            .collect()
    }

    fn upgrade(&self, at: usize, binary: &str, flags: &[&str]) -> Output {
        let mut command = command(&self.nodes[at], binary, flags);
        command.output().unwrap()
    }
}

/// `aerostat cluster upgrade` at a node.
fn command(node: &Aerostat, binary: &str, flags: &[&str]) -> Command {
    let mut command = Command::new(BINARY);
    command
        .args(["cluster", "upgrade", "--binary", binary])
        .args(["--url", &format!("postgres://aerostat@{}", node.sql)])
        .args(flags);
    command
}

fn status(node: &Aerostat) -> Value {
    let url = format!("postgres://aerostat@{}", node.sql);
    let output = Command::new(BINARY)
        .args(["cluster", "status", "--json", "--url", &url])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// An upgrade that runs, and what it has said.
struct Running {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    said: Vec<(Instant, String)>,
}

impl Running {
    fn start(node: &Aerostat, binary: &str, flags: &[&str]) -> Running {
        let mut command = command(node, binary, flags);
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Running {
            child,
            lines,
            said: Vec::new(),
        }
    }

    /// Waits until it has said something, or has ended.
    fn await_saying(&mut self, part: &str) {
        for line in self.lines.by_ref() {
            let line = line.unwrap();
            eprintln!("upgrade: {line}");
            let is_it = line.contains(part);
            self.said.push((Instant::now(), line));
            if is_it {
                return;
            }
        }
    }

    /// Waits for its end, and tells what it has said, and what of it as errors.
    fn end(mut self) -> (bool, Vec<(Instant, String)>, String) {
        self.await_saying("nothing says this");
        let output = self.child.wait_with_output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        (output.status.success(), self.said, errors)
    }
}

/// When a node was away, by what an upgrade has said.
fn away(said: &[(Instant, String)], node: &str) -> (Instant, Instant) {
    let at = |part: String| {
        said.iter()
            .find(|(_, line)| line.contains(&part))
            .unwrap()
            .0
    };
    // It is told before that is printed.
    let from = at(format!("node {node} gives")) - Duration::from_millis(500);
    (from, at(format!("node {node} is back")))
}

/// Puts into what nodes share what a later build would.
fn write_later_fields(cluster: &Cluster) {
    for name in ["nodes", "catalog"] {
        let store = MetaShared::open(&cluster.folder().join(name)).unwrap();
        loop {
            let found = store.load().unwrap().unwrap();
            let mut document: Value = serde_json::from_slice(&found.document).unwrap();
            document["later"] = name.into();
            if name == "nodes" {
                document["nodes"]["b"]["later"] = 7.into();
            }
            let bytes = serde_json::to_vec(&document).unwrap();
            let swapped = store.compare_and_swap(Some(found.version), &bytes).unwrap();
            if matches!(swapped, Swapped::Done(_)) {
                break;
            }
        }
    }
}

fn shared(cluster: &Cluster, name: &str) -> Value {
    let store = MetaShared::open(&cluster.folder().join(name)).unwrap();
    serde_json::from_slice(&store.load().unwrap().unwrap().document).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_go_on_as_another_build_while_clients_write() {
    let mut house = House::start().await;
    let other = house.programs.other_build();
    write_later_fields(&house.cluster);
    let processes: Vec<u32> = house.nodes.iter().map(Aerostat::process_id).collect();
    let before = house.builds();
    assert!(
        before.iter().all(|id| *id == build_of(BINARY)),
        "{before:?}"
    );
    let rehearsed = house.upgrade(1, &other, &["--dry-run"]);
    assert!(rehearsed.status.success(), "{}", said(&rehearsed));
    assert!(said(&rehearsed).contains("every node can; nothing has been done"));
    assert_eq!(house.builds(), before);

    let writers = Writers::start(&house.nodes, 3).await;
    let running = Running::start(&house.nodes[1], &other, &[]);
    let (is_done, told, errors) = tokio::task::spawn_blocking(|| running.end()).await.unwrap();
    assert!(is_done, "{told:?} {errors}");
    let wrote = writers.stop(&house.nodes[0]).await;
    for (at, name) in NAMES.into_iter().enumerate() {
        let (from, until) = away(&told, name);
        for Cut { at: cut, why, .. } in wrote.cuts.iter().filter(|cut| cut.node == at) {
            assert!((from..until).contains(cut), "a client of {name}: {why}");
        }
        let most = wrote.cuts.iter().filter(|cut| cut.node == at).count();
        assert!(
            most <= 3,
            "each of three clients of {name} is cut off once: {most}"
        );
    }
    // The one that coordinates was the last.
    let order: Vec<Instant> = NAMES.iter().map(|name| away(&told, name).0).collect();
    assert!(order[0] > order[1] && order[0] > order[2]);
    let after = house.builds();
    assert!(after.iter().all(|id| *id == build_of(&other)), "{after:?}");
    assert_ne!(before, after);
    let now: Vec<u32> = house.nodes.iter().map(Aerostat::process_id).collect();
    assert_eq!(now, processes);
    let documents = (
        shared(&house.cluster, "nodes"),
        shared(&house.cluster, "catalog"),
    );
    assert_eq!(documents.0["later"], "nodes");
    assert_eq!(documents.0["nodes"]["b"]["later"], 7);
    assert_eq!(
        documents.0["nodes"]["b"]["build"]["between_nodes"]["most"],
        2
    );
    assert_eq!(documents.1["later"], "catalog");
    let admin = house.nodes[2].connect("shop").await;
    admin.batch_execute("CREATE ROLE eve").await.unwrap();
    assert_eq!(shared(&house.cluster, "catalog")["later"], "catalog");
    let again = house.upgrade(0, &other, &[]);
    assert!(
        said(&again).contains("nothing is left to do"),
        "{}",
        said(&again)
    );
    // And back: the older build speaks what the newer one knows as well.
    let old = house.programs.this_build();
    let back = house.upgrade(0, &old, &[]);
    assert!(back.status.success(), "{}", said(&back));
    assert_eq!(house.builds(), before);
    let count = value(
        &house.nodes[1].connect("shop").await,
        "SELECT count(*) FROM t",
    )
    .await;
    assert!(count.parse::<usize>().unwrap() >= wrote.acknowledged);
    // It is a process as any other: it stops when it is told to.
    let _data = house.nodes.remove(2).stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_that_is_killed_is_gone_on_with() {
    let house = House::start().await;
    let other = house.programs.other_build();
    let writers = Writers::start(&house.nodes[..1], 3).await;
    let mut running = Running::start(&house.nodes[0], &other, &[]);
    let house = tokio::task::spawn_blocking(move || {
        running.await_saying("gives its leads");
        send_signal(running.child.id(), "KILL");
        running.child.wait().unwrap();
        // At once, while the node is on its way.
        let again = Running::start(&house.nodes[0], &other, &[]);
        let (is_done, told, errors) = again.end();
        assert!(is_done, "{told:?} {errors}");
        let is_known = |(_, line): &&(Instant, String)| line.contains("already");
        assert_eq!(told.iter().filter(is_known).count(), 1, "{told:?}");
        assert!(house.builds().iter().all(|id| *id == build_of(&other)));
        house
    })
    .await
    .unwrap();
    let wrote = writers.stop(&house.nodes[1]).await;
    assert!(wrote.cuts.len() <= 3, "{:?}", wrote.cuts);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_dies_meanwhile_stops_the_upgrade() {
    let mut house = House::start().await;
    let other = house.programs.other_build();
    let writers = Writers::start(&house.nodes[..1], 3).await;
    let mut running = Running::start(&house.nodes[0], &other, &["--wait", "15"]);
    let house = tokio::task::spawn_blocking(move || {
        running.await_saying("node b gives");
        send_signal(house.nodes[2].process_id(), "KILL");
        let (is_done, told, errors) = running.end();
        assert!(
            !is_done && errors.contains("node c does not run"),
            "{told:?} {errors}"
        );
        assert!(errors.contains("nothing more has been done"), "{errors}");
        house.start_again(2);
        house.await_whole();
        let again = house.upgrade(1, &other, &[]);
        assert!(again.status.success(), "{}", said(&again));
        assert!(
            said(&again).contains("2 nodes have gone on"),
            "{}",
            said(&again)
        );
        house
    })
    .await
    .unwrap();
    let wrote = writers.stop(&house.nodes[1]).await;
    // A leader that was lost may have been c only if it led: a did.
    assert!(wrote.cuts.len() <= 3, "{:?}", wrote.cuts);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_does_not_come_back_stops_the_upgrade() {
    let mut house = House::start().await;
    let other = house.programs.other_build();
    // It says what it is, and then does not serve.
    let script =
        format!("[ \"$2\" = --check ] && exec {other} \"$@\"; echo it is broken >&2; exit 3");
    let broken = house.programs.script("broken", &script);
    let writers = Writers::start(&house.nodes[..1], 3).await;
    let failed = house.upgrade(0, &broken, &["--wait", "15"]);
    let text = said(&failed);
    assert!(
        !failed.status.success() && text.contains("node b did not come back as"),
        "{text}"
    );
    assert!(text.contains("the other nodes are as they are"), "{text}");
    assert!(!house.nodes[1].is_running());
    assert!(house.nodes[0].is_running() && house.nodes[2].is_running());
    let wrote = writers.stop(&house.nodes[2]).await;
    assert!(wrote.cuts.is_empty(), "{:?}", wrote.cuts);
    // Until it is there nobody else goes, whoever asks.
    let mut config = house.nodes[2].config("shop");
    config.options("-c aerostat.read_from=any");
    let (client, connection) = config.connect(tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let sql = format!("ALTER NODE c UPGRADE TO '{other}'");
    assert_eq!(sqlstate(&client, &sql).await, "55006");
    drop(client);
    house.start_again(1);
    house.await_whole();
    let again = house.upgrade(0, &other, &[]);
    assert!(again.status.success(), "{}", said(&again));
    assert!(
        said(&again).contains("3 nodes have gone on"),
        "{}",
        said(&again)
    );
}
