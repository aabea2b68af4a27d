//! Two nodes that hold the same databases: what clients see of it.

use std::{
    net::SocketAddr,
    path::Path,
    process::{Command, Output},
    time::{Duration, Instant},
};

use tokio_postgres::{Client, NoTls, config::TargetSessionAttrs};

pub(crate) use crate::cluster::Cluster;
use crate::harness::{Aerostat, BINARY, PATIENCE, command, value};

/// What is defined and changed on the leader, statement by statement.
const CHANGES: &str = include_str!("copies/changes.sql");

/// Waits until a query says this.
pub(crate) async fn wait_for_value(client: &Client, sql: &str, expected: &str) {
    let began = Instant::now();
    loop {
        let found = value(client, sql).await;
        if found == expected {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "{sql}: {found}, not {expected}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn wait_for_members(leader: &Aerostat, database: &str, count: u32) {
    let series = format!("aerostat_copy_members{{tenant=\"{database}\"}}");
    leader.wait_for_metric(&series, f64::from(count));
}

pub(crate) fn leads(node: &Aerostat, database: &str) -> bool {
    node.metric(&format!("aerostat_copy_leads{{tenant=\"{database}\"}}")) == 1.0
}

pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < PATIENCE, "not {what} in time");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Connects as soon as the node's copy is known to be up to date: one that has just been opened is not.
pub(crate) async fn connect(node: &Aerostat, database: &str) -> Client {
    let started = Instant::now();
    loop {
        match node.config(database).connect(NoTls).await {
            Ok((client, connection)) => {
                tokio::spawn(connection);
                return client;
            }
            Err(error) => {
                let is_early = error.code().is_some_and(|code| code.code() == "57P03");
                assert!(is_early && started.elapsed() < PATIENCE, "{error:?}");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

pub(crate) async fn text(client: &Client, sql: &str) -> String {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

/// The same rows and definitions, as a client's dump has them.
fn dump(node: &Aerostat, database: &str) -> Option<String> {
    let port = node.sql.port().to_string();
    let dumped = Command::new("pg_dump")
        .args(["-h", "127.0.0.1", "-p", &port, "-U", "aerostat", database])
        .output()
        .ok()?;
    assert!(
        dumped.status.success(),
        "{}",
        String::from_utf8_lossy(&dumped.stderr)
    );
    let text = String::from_utf8(dumped.stdout).unwrap();
    Some(text)
}

/// What two dumps differ in: rows in any order, and without positions of sequences, of which a copy knows what
/// is reserved.
fn differences(one: &str, other: &str) -> Vec<String> {
    let lines = |text: &str| {
        let told = |line: &&str| !line.contains("pg_catalog.setval") && !line.contains("restrict ");
        let mut lines: Vec<String> = text.lines().filter(told).map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let (one, other) = (lines(one), lines(other));
    let pairs = one.iter().zip(&other).filter(|(a, b)| a != b);
    let mut found: Vec<String> = pairs
        .take(3)
        .map(|(a, b)| format!("{a:?} and {b:?}"))
        .collect();
    if one.len() != other.len() {
        found.push(format!("{} lines and {}", one.len(), other.len()));
    }
    found
}

/// Waits until the other node shows everything that the leader does now.
pub(crate) async fn catch_up(leader: &Client, copy: &Client) {
    let at = text(leader, "SELECT pg_current_wal_lsn()::text").await;
    let row = copy
        .query_one("SELECT aerostat.wait_for_lsn($1, 20000)", &[&at])
        .await
        .unwrap();
    assert!(row.get::<_, bool>(0), "the copy does not come to {at}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_done_at_the_leader_is_on_the_copy() {
    let cluster = Cluster::new();
    let (a, b, leader) = cluster.shop().await;
    let copy = connect(&b, "shop").await;
    let statements = CHANGES.split(";\n").map(str::trim);
    for (number, statement) in statements.filter(|text| !text.is_empty()).enumerate() {
        if let Err(error) = leader.batch_execute(statement).await {
            panic!("{statement}: {error:?}");
        }
        if number % 5 == 0 {
            catch_up(&leader, &copy).await;
        }
    }
    catch_up(&leader, &copy).await;
    let Some(there) = dump(&a, "shop") else {
        eprintln!("skipped: no pg_dump (scripts/setup installs it)");
        return;
    };
    assert!(there.contains("CREATE TABLE") && there.len() > 2_000);
    let none: [String; 0] = [];
    assert_eq!(differences(&there, &dump(&b, "shop").unwrap()), none);
    // And so it is at a copy that is opened again, and that then leads.
    let folder = b.stop();
    wait_for_members(&a, "shop", 1);
    leader
        .batch_execute(
            "INSERT INTO orders (item, amount) SELECT 'late', g FROM generate_series(1, 500) g",
        )
        .await
        .unwrap();
    let there = dump(&a, "shop").unwrap();
    let b = cluster.start_on(folder, "b");
    wait_for_members(&a, "shop", 2);
    catch_up(&leader, &connect(&b, "shop").await).await;
    assert_eq!(differences(&there, &dump(&b, "shop").unwrap()), none);
    let promoted = promote(&b, "shop");
    assert!(promoted.status.success(), "{promoted:?}");
    assert_eq!(differences(&there, &dump(&b, "shop").unwrap()), none);
    // Numbers of sequences are not given twice, and everything goes on.
    let b_client = connect(&b, "shop").await;
    let sql = "INSERT INTO orders (item, amount) VALUES ('after', 1) RETURNING id::text";
    let id: i64 = text(&b_client, sql).await.parse().unwrap();
    let highest: i64 = text(
        &b_client,
        "SELECT max(id)::text FROM orders WHERE item <> 'after'",
    )
    .await
    .parse()
    .unwrap();
    assert!(id > highest, "{id} after {highest}");
    b_client
        .batch_execute("CREATE TABLE later (a int PRIMARY KEY); DROP TABLE gone_soon")
        .await
        .unwrap();
}

pub(crate) fn promote(node: &Aerostat, database: &str) -> Output {
    promote_at(node.sql, database)
}

pub(crate) fn promote_at(node: SocketAddr, database: &str) -> Output {
    let url = format!("postgres://aerostat@{node}");
    command()
        .args(["promote", "--database", database, "--url", &url])
        .output()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_are_refused_on_a_copy_until_it_is_promoted() {
    let cluster = Cluster::new();
    let (a, b) = cluster.pair();
    let (leader, copy) = (connect(&a, "aerostat").await, connect(&b, "aerostat").await);
    leader
        .batch_execute("CREATE TABLE t (a int PRIMARY KEY)")
        .await
        .unwrap();
    catch_up(&leader, &copy).await;
    for sql in [
        "INSERT INTO t VALUES (1)",
        "UPDATE t SET a = 2",
        "DELETE FROM t",
        "CREATE TABLE u (a int)",
        "DROP TABLE t",
        "TRUNCATE t",
        "BEGIN; SELECT * FROM t FOR UPDATE",
    ] {
        let error = copy.batch_execute(sql).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "25006", "{sql}");
        copy.batch_execute("ROLLBACK").await.unwrap();
    }
    assert!(
        copy.query_one("SELECT pg_is_in_recovery()", &[])
            .await
            .unwrap()
            .get::<_, bool>(0)
    );
    let row = leader
        .query_one(
            "SELECT application_name, state, sync_state FROM pg_stat_replication",
            &[],
        )
        .await
        .unwrap();
    let facts: [String; 3] = [row.get(0), row.get(1), row.get(2)];
    assert_eq!(facts, ["b", "streaming", "sync"]);
    let promoted = promote(&b, "aerostat");
    assert!(promoted.status.success(), "{promoted:?}");
    copy.batch_execute("INSERT INTO t VALUES (1)")
        .await
        .unwrap();
    assert!(leads(&b, "aerostat"));
    // The session at the leader of before has ended, as one does whose server is shut down.
    wait_until("its session ends", || leader.is_closed());
    wait_until("it follows", || !leads(&a, "aerostat"));
    let again = promote(&b, "aerostat");
    assert!(again.status.success() && String::from_utf8_lossy(&again.stdout).contains("already"));
    wait_for_members(&b, "aerostat", 2);
    let was_leader = connect(&a, "aerostat").await;
    catch_up(&copy, &was_leader).await;
    assert_eq!(text(&was_leader, "SELECT count(*)::text FROM t").await, "1");
    let error = was_leader.batch_execute("DELETE FROM t").await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "25006");
    // What no node copies cannot be promoted.
    let alone = Aerostat::start();
    let refused = alone
        .connect("aerostat")
        .await
        .batch_execute("SELECT pg_promote()")
        .await;
    assert_eq!(refused.unwrap_err().code().unwrap().code(), "55000");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_killed_is_replaced_and_comes_back() {
    let cluster = Cluster::new();
    let (a, b) = cluster.pair();
    connect(&a, "aerostat")
        .await
        .batch_execute("CREATE TABLE t (a int PRIMARY KEY)")
        .await
        .unwrap();
    connect(&a, "aerostat")
        .await
        .batch_execute("ALTER DATABASE aerostat SET (durability = 'memory2')")
        .await
        .unwrap();
    let mut nodes = [Some(a), Some(b)];
    let mut next = 0;
    for round in 0..3 {
        let at = usize::from(!leads(nodes[0].as_ref().unwrap(), "aerostat"));
        let leader = nodes[at].as_ref().unwrap();
        wait_for_members(leader, "aerostat", 2);
        let client = connect(leader, "aerostat").await;
        for _ in 0..50 {
            client
                .execute("INSERT INTO t VALUES ($1)", &[&next])
                .await
                .unwrap();
            next += 1;
        }
        let folder = nodes[at].take().unwrap().kill();
        let other = nodes[1 - at].as_ref().unwrap();
        wait_until("the other leads", || leads(other, "aerostat"));
        let client = connect(other, "aerostat").await;
        let sql = "SELECT count(*)::text || ' ' || max(a)::text FROM t";
        assert_eq!(
            text(&client, sql).await,
            format!("{next} {}", next - 1),
            "round {round}"
        );
        client
            .execute("INSERT INTO t VALUES ($1)", &[&next])
            .await
            .unwrap();
        next += 1;
        nodes[at] = Some(cluster.start_on(folder, ["a", "b"][at]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_was_frozen_answers_nothing_old_to_who_reads_from_the_leader() {
    let cluster = Cluster::new();
    let (a, b) = cluster.pair();
    let sql = "CREATE TABLE t (k int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 1);
               ALTER DATABASE aerostat SET (durability = 'memory2')";
    let client = connect(&a, "aerostat").await;
    client.batch_execute(sql).await.unwrap();
    let (mut leader, mut other) = (&a, &b);
    for round in 1..=3 {
        wait_for_members(leader, "aerostat", 2);
        let mut clients = Vec::new();
        for _ in 0..4 {
            let client = connect(leader, "aerostat").await;
            let sql = "SET aerostat.read_from = leader";
            client.batch_execute(sql).await.unwrap();
            assert_eq!(
                text(&client, "SELECT n::text FROM t").await,
                round.to_string()
            );
            clients.push(client);
        }
        leader.signal("STOP");
        wait_until("the other leads", || leads(other, "aerostat"));
        let sql = format!("UPDATE t SET n = {} WHERE k = 1", round + 1);
        connect(other, "aerostat")
            .await
            .batch_execute(&sql)
            .await
            .unwrap();
        // Some ask before it goes on, and some at once when it does; by the planner and by key.
        let ask = async |client: &Client, sql: &str| -> Vec<Result<String, String>> {
            let mut answers = Vec::new();
            for _ in 0..50 {
                let answer = client.query_one(sql, &[]).await;
                let answer = answer.map(|row| row.get::<_, String>(0));
                let ends = answer.is_err();
                answers.push(answer.map_err(|error| format!("{error:?}")));
                if ends && client.is_closed() {
                    break;
                }
            }
            answers
        };
        let all = "SELECT max(n)::text FROM t";
        let by_key = "SELECT n::text FROM t WHERE k = 1";
        let go_on = async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            leader.signal("CONT");
        };
        let answers = tokio::join!(
            ask(&clients[0], all),
            ask(&clients[1], by_key),
            async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                ask(&clients[2], all).await
            },
            async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                ask(&clients[3], by_key).await
            },
            go_on,
        );
        for answer in [answers.0, answers.1, answers.2, answers.3]
            .iter()
            .flatten()
        {
            assert_ne!(
                answer.as_ref().ok(),
                Some(&round.to_string()),
                "round {round}"
            );
        }
        (leader, other) = (other, leader);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_stopped_hands_over() {
    let cluster = Cluster::new();
    let (a, b) = cluster.pair();
    wait_for_members(&a, "postgres", 2);
    connect(&a, "aerostat")
        .await
        .batch_execute("CREATE TABLE t (a int)")
        .await
        .unwrap();
    let _folder = a.stop();
    wait_until("the other leads", || {
        leads(&b, "aerostat") && leads(&b, "postgres")
    });
    connect(&b, "aerostat")
        .await
        .batch_execute("INSERT INTO t VALUES (1)")
        .await
        .unwrap();
}

/// libpq: where a client of several addresses comes, for what it asks.
#[tokio::test(flavor = "multi_thread")]
async fn clients_of_several_addresses_come_where_they_ask_for() {
    let cluster = Cluster::new();
    let (a, b) = cluster.pair();
    for (leader, copy) in [(&a, &b), (&b, &a)] {
        if !leads(leader, "aerostat") {
            assert!(promote(leader, "aerostat").status.success());
            wait_until("the other follows", || !leads(copy, "aerostat"));
            wait_for_members(leader, "aerostat", 2);
        }
        let (leads_at, follows_at) = (leader.sql.port(), copy.sql.port());
        for (asked, expected) in [
            ("read-write", Some(leads_at)),
            ("read-only", Some(follows_at)),
            ("primary", Some(leads_at)),
            ("standby", Some(follows_at)),
            ("prefer-standby", Some(follows_at)),
            ("any", None),
        ] {
            for ports in [[leads_at, follows_at], [follows_at, leads_at]] {
                let address = format!(
                    "host=127.0.0.1,127.0.0.1 port={},{} user=aerostat dbname=aerostat target_session_attrs={asked}",
                    ports[0], ports[1]
                );
                let found = Command::new("psql")
                    .args(["-X", "-A", "-t", "-c", "\\echo :PORT", &address])
                    .output();
                let Ok(found) = found else {
                    eprintln!("skipped: psql with several addresses (no psql)");
                    return;
                };
                let port = String::from_utf8_lossy(&found.stdout);
                let expected = expected.unwrap_or(ports[0]).to_string();
                assert_eq!(port.trim(), expected, "{asked} {ports:?}: {found:?}");
            }
        }
        // A driver that asks for transaction_read_only.
        let mut both = tokio_postgres::Config::new();
        for port in [follows_at, leads_at] {
            both.host("127.0.0.1").port(port);
        }
        both.user("aerostat")
            .dbname("aerostat")
            .target_session_attrs(TargetSessionAttrs::ReadWrite);
        let (client, connection) = both.connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        client
            .batch_execute("CREATE TABLE IF NOT EXISTS came (a int)")
            .await
            .unwrap();
    }
}

/// What a node says that does not start.
pub(crate) fn refusal(data: &Path, flags: &[&str]) -> String {
    let ports = ["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    let output = command()
        .arg("serve")
        .args(ports)
        .arg("--data")
        .arg(data)
        .args(flags)
        .output()
        .unwrap();
    assert!(!output.status.success(), "{flags:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_cannot_join_say_why() {
    let cluster = Cluster::new();
    let (a, _b) = cluster.pair();
    let shared = cluster.space.clone();
    let refused = |flags: &[&str]| refusal(tempfile::tempdir().unwrap().path(), flags);
    let name = ["--node-name", "a", "--peer-listen", "127.0.0.1:0"];
    let taken = refused(&[&["--cluster", &shared][..], &name].concat());
    assert!(taken.contains("another data folder"), "{taken}");
    let nameless = refused(&["--cluster", &shared]);
    assert!(nameless.contains("--node-name"), "{nameless}");
    let odd = refused(&[&["--cluster", "http://127.0.0.1:2379"][..], &name].concat());
    assert!(odd.contains("names no cluster"), "{odd}");
    let portless = refused(&[&["--cluster", "etcd://127.0.0.1"][..], &name].concat());
    assert!(portless.contains("names no etcd cluster"), "{portless}");
    let absent = refused(&[&["--cluster", "etcd://127.0.0.1:1"][..], &name].concat());
    assert!(
        absent.contains("no member of etcd answers: 127.0.0.1:1"),
        "{absent}"
    );
    let open = refused(&[
        "--cluster",
        &shared,
        "--node-name",
        "c",
        "--peer-listen",
        "0.0.0.0:0",
    ]);
    assert!(open.contains("without TLS"), "{open}");
    // A folder of the cluster is no single node's, whatever is to be done with it.
    let folder = a.stop();
    let said = refusal(folder.path(), &[]);
    assert!(said.contains("--cluster"), "{said}");
    let repaired = command()
        .args(["repair", "--data"])
        .arg(folder.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&repaired.stderr);
    assert!(
        !repaired.status.success() && said.contains("cluster"),
        "{repaired:?}"
    );
}

/// A single node's rows, sequences and indexes begin a cluster; a node that comes later is made of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_single_nodes_databases_come_to_others() {
    let alone = Aerostat::start();
    let client = alone.create("shop").await;
    client
        .batch_execute(
            "CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, x text); \
             INSERT INTO t (x) SELECT md5(g::text) FROM generate_series(1, 60000) g; \
             CREATE INDEX t_x ON t (x); CHECKPOINT; VACUUM FREEZE t; \
             UPDATE t SET x = 'changed' WHERE id % 7 = 0; DELETE FROM t WHERE id % 11 = 0; CHECKPOINT; \
             BEGIN; INSERT INTO t (x) VALUES ('never'); ROLLBACK; \
             INSERT INTO t (x) SELECT 'late' FROM generate_series(1, 500)",
        )
        .await
        .unwrap();
    let before = dump(&alone, "shop");
    drop(client);
    let cluster = Cluster::new();
    let a = cluster.start_on(alone.stop(), "a");
    let b = cluster.start("b");
    wait_for_members(&a, "shop", 2);
    let (leader, copy) = (connect(&a, "shop").await, connect(&b, "shop").await);
    catch_up(&leader, &copy).await;
    let none: [String; 0] = [];
    if let Some(before) = before {
        for node in [&a, &b] {
            assert_eq!(differences(&before, &dump(node, "shop").unwrap()), none);
        }
    }
    // By the index as well as by the scan.
    let sql =
        "SELECT (SELECT count(*) FROM t WHERE x = 'changed') || ' ' || (SELECT count(*) FROM t)";
    assert_eq!(text(&copy, sql).await, text(&leader, sql).await);
    assert!(promote(&b, "shop").status.success());
    let sql = "INSERT INTO t (x) VALUES ('after') RETURNING (id > 60500)::text";
    assert_eq!(text(&copy, sql).await, "true");
}

/// A backup is made of a copy, and restored into the cluster.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_is_backed_up_and_restored_in_the_cluster() {
    let cluster = Cluster::new();
    let (a, b, leader) = cluster.shop().await;
    leader
        .batch_execute(
            "CREATE TABLE t (a int PRIMARY KEY, b text); INSERT INTO t SELECT g, 'x' FROM generate_series(1, 2000) g",
        )
        .await
        .unwrap();
    let copy = connect(&b, "shop").await;
    catch_up(&leader, &copy).await;
    let place = tempfile::tempdir().unwrap();
    let to = place.path().join("backup");
    let admin = connect(&b, "postgres").await;
    let sql = format!("BACKUP DATABASE shop TO '{}'", to.display());
    connect(&b, "aerostat")
        .await
        .batch_execute(&sql)
        .await
        .unwrap();
    drop(admin);
    let sql = format!("RESTORE DATABASE again FROM '{}'", to.display());
    connect(&a, "aerostat")
        .await
        .batch_execute(&sql)
        .await
        .unwrap();
    let restored = connect(&a, "again").await;
    let sql = "SELECT count(*)::text || ' ' || sum(a)::text FROM t";
    assert_eq!(text(&restored, sql).await, "2000 2001000");
    restored
        .batch_execute("INSERT INTO t VALUES (0, 'more')")
        .await
        .unwrap();
    wait_for_members(&a, "again", 2);
    let there = connect(&b, "again").await;
    catch_up(&restored, &there).await;
    assert_eq!(text(&there, sql).await, "2001 2001000");
}

/// What was acknowledged at the leader before a copy's backup was asked for is in it.
#[tokio::test(flavor = "multi_thread")]
async fn a_copys_backup_is_as_of_now() {
    let cluster = Cluster::new();
    let (_a, b, leader) = cluster.shop().await;
    leader
        .batch_execute("CREATE TABLE t (a int PRIMARY KEY)")
        .await
        .unwrap();
    let beside = connect(&b, "aerostat").await;
    let place = tempfile::tempdir().unwrap();
    for count in 1..=20 {
        let sql = format!("INSERT INTO t VALUES ({count})");
        leader.batch_execute(&sql).await.unwrap();
        let to = place.path().join(count.to_string());
        let sql = format!("BACKUP DATABASE shop TO '{}'", to.display());
        beside.batch_execute(&sql).await.unwrap();
        let verified = Command::new(BINARY)
            .args(["backup", "verify"])
            .arg(&to)
            .output()
            .unwrap();
        let said = String::from_utf8(verified.stdout).unwrap();
        assert!(said.contains(&format!(" {count} rows,")), "{count}: {said}");
    }
}

/// Neither a client that reads nothing of its answer nor one in a block keeps a leader that was deposed from
/// following.
#[tokio::test(flavor = "multi_thread")]
async fn clients_that_do_not_read_hold_up_no_promotion() {
    let cluster = Cluster::new();
    let (a, b) = cluster.pair();
    let leader = connect(&a, "aerostat").await;
    leader
        .batch_execute(
            "CREATE TABLE t (a int PRIMARY KEY, b text); \
             INSERT INTO t SELECT g, repeat('x', 500) FROM generate_series(1, 100000) g",
        )
        .await
        .unwrap();
    let silent = connect(&a, "aerostat").await;
    let rows = silent.query_raw("SELECT * FROM t, generate_series(1, 20)", [] as [&str; 0]);
    let rows = rows.await.unwrap();
    let block = connect(&a, "aerostat").await;
    block
        .batch_execute("BEGIN; UPDATE t SET b = 'never' WHERE a = 1")
        .await
        .unwrap();
    let promoted = promote(&b, "aerostat");
    assert!(promoted.status.success(), "{promoted:?}");
    wait_for_members(&b, "aerostat", 2);
    let was_leader = connect(&a, "aerostat").await;
    catch_up(&connect(&b, "aerostat").await, &was_leader).await;
    let sql = "SELECT count(*)::text FROM t WHERE b = 'never'";
    assert_eq!(text(&was_leader, sql).await, "0");
    assert!(block.batch_execute("COMMIT").await.is_err());
    drop(rows);
}

/// A node that has too little memory for a copy says so, and holds up neither its leader nor other databases.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_without_room_holds_up_nobody() {
    let cluster = Cluster::new();
    let a = cluster.start("a");
    let b = cluster.start_with_flags(tempfile::tempdir().unwrap(), "b", &["--memory", "96MB"]);
    wait_for_members(&a, "aerostat", 2);
    let leader = a.create("large").await;
    leader
        .batch_execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
        .await
        .unwrap();
    for part in 0..6 {
        let sql = format!(
            "INSERT INTO t SELECT g, repeat(md5(g::text), 20) FROM generate_series({part}00000, {part}49999) g"
        );
        leader.batch_execute(&sql).await.unwrap();
    }
    assert_eq!(
        text(&leader, "SELECT count(*)::text FROM t").await,
        "300000"
    );
    // The others are copied on.
    let other = connect(&a, "aerostat").await;
    other
        .batch_execute("CREATE TABLE small (a int); INSERT INTO small VALUES (1)")
        .await
        .unwrap();
    let copy = connect(&b, "aerostat").await;
    catch_up(&other, &copy).await;
    assert_eq!(text(&copy, "SELECT count(*)::text FROM small").await, "1");
    // With more memory it is there.
    let b = cluster.start_on(b.stop(), "b");
    wait_for_members(&a, "large", 2);
    let copy = connect(&b, "large").await;
    catch_up(&leader, &copy).await;
    assert_eq!(text(&copy, "SELECT count(*)::text FROM t").await, "300000");
}
