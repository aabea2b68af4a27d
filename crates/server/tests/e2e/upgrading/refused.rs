//! What is refused before anything has happened.

use std::time::Duration;

use aerostat_storage::{MetaShared, MetaStore, Swapped};
use tokio_postgres::NoTls;

use super::{House, other_build::about, shared};
use crate::{
    copies::{Cluster, connect, wait_for_members, wait_until},
    harness::{Aerostat, BINARY, said, send_signal, sqlstate, value},
};

/// Every node is as it was.
fn require_untouched(house: &mut House, processes: &[u32]) {
    let now: Vec<u32> = house.nodes.iter().map(Aerostat::process_id).collect();
    assert_eq!(now, processes);
    assert!(house.nodes.iter_mut().all(Aerostat::is_running));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_cannot_go_on_is_refused() {
    let mut house = House::start().await;
    let processes: Vec<u32> = house.nodes.iter().map(Aerostat::process_id).collect();
    let started = "SELECT pg_postmaster_start_time()";
    let mut before = Vec::new();
    for node in &house.nodes {
        before.push(value(&connect_here(node).await, started).await);
    }
    let programs = &house.programs;
    let mut speaks_other = about(BINARY);
    speaks_other["between_nodes"] = serde_json::json!({"least": 2, "most": 3});
    let mut reads_less = about(BINARY);
    reads_less["formats"]["log"] = serde_json::json!({"least": 5, "most": 5, "writes": 5});
    let mut writes_more = about(BINARY);
    writes_more["formats"]["log"] = serde_json::json!({"least": 1, "most": 9, "writes": 9});
    let said_by =
        |name: &str, what: &serde_json::Value| programs.script(name, &format!("echo '{what}'"));
    let outside = tempfile::NamedTempFile::new().unwrap();
    let link = format!("{}/link", programs.folder());
    std::os::unix::fs::symlink("/bin/true", &link).unwrap();
    let cases = [
        (
            programs.script("ends", "echo no memory >&2; exit 1"),
            "no memory",
        ),
        (
            programs.script("silent", "exit 0"),
            "does not say what it is",
        ),
        (programs.script("dies", "kill -9 $$"), "signal: 9"),
        (
            said_by("speaks", &speaks_other),
            "Between nodes it speaks versions 2 to 3",
        ),
        (
            said_by("reads", &reads_less),
            "It reads log in formats 5 to 5",
        ),
        (said_by("writes", &writes_more), "It writes log in format 9"),
        (
            outside.path().to_str().unwrap().to_owned(),
            "not in the folder of --upgrades",
        ),
        (link, "not in the folder of --upgrades"),
        ("/bin/true".to_owned(), "not in the folder of --upgrades"),
        (format!("{}/../x", programs.folder()), "No such file"),
        ("aerostat".to_owned(), "no absolute path"),
    ];
    for (program, why) in &cases {
        let refused = house.upgrade(0, program, &[]);
        let text = said(&refused);
        assert!(
            !refused.status.success() && text.contains(why),
            "{program}: {text}"
        );
        assert!(text.contains("nothing has been done"), "{text}");
        // Nor does the statement itself do anything.
        let at_node = connect_here(&house.nodes[0]).await;
        let sql = format!("ALTER NODE a UPGRADE TO '{program}'");
        let code = sqlstate(&at_node, &sql).await;
        assert!(
            ["55000", "22023"].contains(&code.as_str()),
            "{program}: {code}"
        );
    }
    // Whoever is no superuser says nothing of programs, and a node is spoken to itself.
    let admin = connect_here(&house.nodes[0]).await;
    admin
        .batch_execute("CREATE ROLE keeper LOGIN; GRANT aerostat_operator TO keeper; GRANT CONNECT ON DATABASE shop TO keeper")
        .await
        .unwrap();
    let mut keeper = house.nodes[0].config("shop");
    keeper.user("keeper");
    let (keeper, connection) = keeper.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    assert_eq!(
        sqlstate(&keeper, "ALTER NODE a UPGRADE TO '/x'").await,
        "42501"
    );
    assert_eq!(
        sqlstate(&keeper, "ALTER NODE a CHECK UPGRADE TO '/x'").await,
        "42501"
    );
    assert_eq!(
        sqlstate(&admin, "ALTER NODE b UPGRADE TO '/x'").await,
        "55000"
    );
    assert_eq!(
        sqlstate(&admin, "ALTER NODE z UPGRADE TO '/x'").await,
        "42704"
    );
    for (at, node) in house.nodes.iter().enumerate() {
        assert_eq!(value(&connect_here(node).await, started).await, before[at]);
    }
    require_untouched(&mut house, &processes);
}

/// A session at the node itself.
async fn connect_here(node: &Aerostat) -> tokio_postgres::Client {
    let mut config = node.config("shop");
    config.options("-c aerostat.read_from=any");
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn databases_without_another_copy_are_named() {
    let mut house = House::start().await;
    let other = house.programs.other_build();
    let admin = house.nodes[0].connect("aerostat").await;
    admin
        .batch_execute(
            "CREATE DATABASE lone WITH (nodes = 'b'); CREATE DATABASE pair WITH (nodes = 'a, b')",
        )
        .await
        .unwrap();
    let lone = connect(&house.nodes[0], "lone").await;
    lone.batch_execute("CREATE TABLE t (a int); INSERT INTO t VALUES (7)")
        .await
        .unwrap();
    drop(lone);
    let processes: Vec<u32> = house.nodes.iter().map(Aerostat::process_id).collect();
    let refused = house.upgrade(0, &other, &["--wait", "5"]);
    let text = said(&refused);
    assert!(
        !refused.status.success() && text.contains("restarts: lone\n"),
        "{text}"
    );
    assert!(text.contains("--accept-outage"), "{text}");
    require_untouched(&mut house, &processes);
    let accepted = house.upgrade(0, &other, &["--accept-outage"]);
    assert!(accepted.status.success(), "{}", said(&accepted));
    let lone = connect(&house.nodes[2], "lone").await;
    assert_eq!(value(&lone, "SELECT a FROM t").await, "7");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_were_not_asked_to_take_no_other_build() {
    let cluster = Cluster::of_gateways();
    let (a, b) = cluster.pair();
    wait_for_members(&b, "aerostat", 2);
    let admin = a.connect("aerostat").await;
    let error = admin
        .batch_execute("ALTER NODE a UPGRADE TO '/bin/true'")
        .await
        .unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code().code(), "55000");
    assert!(error.hint().unwrap().contains("--upgrades"));
    drop(admin);
    let alone = Aerostat::start();
    let client = alone.connect("aerostat").await;
    assert_eq!(
        sqlstate(&client, "ALTER NODE a UPGRADE TO '/bin/true'").await,
        "0A000"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_was_told_to_stop_goes_on_as_nothing() {
    let mut house = House::start().await;
    let other = house.programs.other_build();
    // It is told to stop while the program still says what it is.
    let script = format!("[ \"$2\" = --check ] && sleep 3; exec {other} \"$@\"");
    let slow = house.programs.script("slow", &script);
    let at_node = connect_here(&house.nodes[2]).await;
    let sql = format!("ALTER NODE c UPGRADE TO '{slow}'");
    let told = tokio::spawn(async move { sqlstate(&at_node, &sql).await });
    tokio::time::sleep(Duration::from_millis(700)).await;
    send_signal(house.nodes[2].process_id(), "TERM");
    assert_eq!(told.await.unwrap(), "57P03");
    wait_until("it ends", || !house.nodes[2].is_running());
    // Nobody waits for it.
    let at_node = connect_here(&house.nodes[1]).await;
    let sql = format!("ALTER NODE b UPGRADE TO '{other}'");
    let told = at_node.batch_execute(&sql).await;
    assert!(told.is_ok(), "{told:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_runs_on_says_so() {
    let house = House::start().await;
    let other = house.programs.other_build();
    let store = MetaShared::open(&house.cluster.folder().join("nodes")).unwrap();
    // As after a change whose answer was lost.
    for check in [
        format!("ALTER NODE c CHECK UPGRADE TO '{other}'"),
        "ALTER NODE c UPGRADE TO '/bin/true'".to_owned(),
    ] {
        loop {
            let found = store.load().unwrap().unwrap();
            let mut document: serde_json::Value = serde_json::from_slice(&found.document).unwrap();
            document["nodes"]["c"]["restarts"] = true.into();
            let bytes = serde_json::to_vec(&document).unwrap();
            let swapped = store.compare_and_swap(Some(found.version), &bytes).unwrap();
            if matches!(swapped, Swapped::Done(_)) {
                break;
            }
        }
        let at_b = connect_here(&house.nodes[1]).await;
        let sql = format!("ALTER NODE b UPGRADE TO '{other}'");
        assert_eq!(sqlstate(&at_b, &sql).await, "55006");
        let at_c = connect_here(&house.nodes[2]).await;
        // One of them is refused.
        let _ = at_c.batch_execute(&check).await;
        let restarts = &shared(&house.cluster, "nodes")["nodes"]["c"]["restarts"];
        assert!(restarts.is_null(), "{check}: {restarts}");
    }
}

/// A build that can tell what it is, and does not come to serve: the node goes back to the one before.
#[tokio::test(flavor = "multi_thread")]
async fn a_build_that_does_not_serve_goes_back() {
    let mut house = House::start().await;
    let other = house.programs.other_build();
    let processes: Vec<u32> = house.nodes.iter().map(Aerostat::process_id).collect();
    // Somebody has its port, until the build before runs.
    let take = "use IO::Socket; my ($pid, $address) = @ARGV; \
         my $taken = IO::Socket::INET->new(LocalAddr => $address, Listen => 1, ReuseAddr => 1) or die; \
         exit 0 if fork; \
         while ((readlink(\"/proc/$pid/exe\") // q{}) ne $ENV{AEROSTAT_BEFORE} && kill 0, $pid) \
         { select undef, undef, undef, 0.005 }";
    let late = format!(
        "case \"$*\" in *--check*) exec {other} \"$@\";; esac\n\
         for word in \"$@\"; do [ \"$last\" = --http ] && http=$word; last=$word; done\n\
         perl -e '{take}' $$ $http <&- >&- 2>&- && exec {other} \"$@\""
    );
    let late = house.programs.script("late", &late);
    let refused = house.upgrade(0, &late, &[]);
    let text = said(&refused);
    assert!(
        !refused.status.success() && text.contains("came back as"),
        "{text}"
    );
    house.await_whole();
    require_untouched(&mut house, &processes);
    let client = house.nodes[1].connect("shop").await;
    client
        .batch_execute("INSERT INTO t VALUES (1)")
        .await
        .unwrap();
    // It is no obstacle to one that serves.
    let upgraded = house.upgrade(0, &other, &[]);
    assert!(upgraded.status.success(), "{}", said(&upgraded));
    require_untouched(&mut house, &processes);
}
