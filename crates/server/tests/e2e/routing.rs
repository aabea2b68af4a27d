//! A cluster each node of which serves whatever another one leads.

use std::{
    net::SocketAddr,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::{SinkExt, StreamExt, pin_mut};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_postgres::{AsyncMessage, Client, NoTls};

use crate::{
    copies::{
        Cluster, catch_up, leads, promote, text, wait_for_members, wait_for_value, wait_until,
    },
    harness::{Aerostat, PATIENCE, refusal, sqlstate, value},
    reading::shop,
};

/// One that is content with what the node itself has.
async fn connect_here(node: &Aerostat, database: &str) -> Client {
    let mut config = node.config(database);
    config.options("-c aerostat.read_from=any");
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// How a session ended, as its client is told.
pub(crate) async fn end_of(
    connection: impl Future<Output = Result<(), tokio_postgres::Error>>,
) -> String {
    let ended = tokio::time::timeout(PATIENCE, connection).await;
    match ended.expect("the connection ends") {
        Ok(()) => "closed".to_owned(),
        Err(error) => match error.code() {
            Some(code) => code.code().to_owned(),
            None => format!("{error:?}"),
        },
    }
}

/// Who makes a role, or lets it in, and then has it connect elsewhere need not wait.
#[tokio::test(flavor = "multi_thread")]
async fn roles_are_let_in_everywhere_as_soon_as_they_may() {
    let (_cluster, nodes, writer) = shop().await;
    let [a, b, c] = &nodes;
    writer
        .batch_execute("REVOKE CONNECT ON DATABASE shop FROM PUBLIC; CREATE ROLE sleeper")
        .await
        .unwrap();
    // Nodes that have heard of it would let others in.
    for node in [a, b, c] {
        let mut config = node.config("shop");
        config.user("sleeper");
        assert_eq!(refusal(&config).await, "28000");
    }
    for round in 0..12 {
        let role = format!("clerk_{round}");
        let mut config = nodes[round % 3].config("shop");
        config.user(&role);
        assert_eq!(refusal(&config).await, "28000", "{role}");
        writer
            .batch_execute(&format!("CREATE ROLE {role} LOGIN"))
            .await
            .unwrap();
        assert_eq!(refusal(&config).await, "42501", "{role}");
        writer
            .batch_execute(&format!("GRANT CONNECT ON DATABASE shop TO {role}"))
            .await
            .unwrap();
        let (client, connection) = config.connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        assert_eq!(value(&client, "SELECT current_user").await, role);
    }
    // Also one that is known, and may log in from now on.
    writer
        .batch_execute("ALTER ROLE sleeper LOGIN; GRANT CONNECT ON DATABASE shop TO sleeper")
        .await
        .unwrap();
    for node in [a, b, c] {
        let mut config = node.config("shop");
        config.user("sleeper");
        let (client, connection) = config.connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        assert_eq!(value(&client, "SELECT current_user").await, "sleeper");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_connects_to_any_node_is_served_by_the_leader() {
    let cluster = Cluster::of_gateways();
    let (a, b) = cluster.pair();
    let client = b.create("shop").await;
    wait_for_members(&a, "shop", 2);
    assert!(leads(&a, "shop") && !leads(&b, "shop"));
    assert_eq!(
        text(&client, "SELECT pg_is_in_recovery()::text").await,
        "false"
    );
    client
        .batch_execute("CREATE TABLE t (a int PRIMARY KEY, b text); CREATE ROLE ann LOGIN PASSWORD 'secret'; GRANT ALL ON t TO ann; GRANT CONNECT ON DATABASE shop TO ann")
        .await
        .unwrap();
    // Rows, both ways, and more than any buffer has.
    let sink = client.copy_in("COPY t FROM STDIN").await.unwrap();
    pin_mut!(sink);
    for from in (0..100_000).step_by(1_000) {
        let lines: String = (from..from + 1_000)
            .map(|a| format!("{a}\trow {a}\n"))
            .collect();
        sink.send(Bytes::from(lines)).await.unwrap();
    }
    assert_eq!(sink.finish().await.unwrap(), 100_000);
    let rows = client
        .query("SELECT a, b FROM t ORDER BY a", &[])
        .await
        .unwrap();
    assert!(rows.len() == 100_000 && rows[99_999].get::<_, &str>(1) == "row 99999");
    let out = client.copy_out("COPY t TO STDOUT").await.unwrap();
    let bytes: Vec<Bytes> = out.map(Result::unwrap).collect().await;
    assert_eq!(
        bytes
            .iter()
            .map(|part| part.iter().filter(|byte| **byte == b'\n').count())
            .sum::<usize>(),
        100_000
    );
    // Errors, transactions, prepared statements.
    assert_eq!(sqlstate(&client, "INSERT INTO t VALUES (1)").await, "23505");
    client
        .batch_execute("BEGIN; DELETE FROM t WHERE a > 10; ROLLBACK")
        .await
        .unwrap();
    let prepared = client
        .prepare("SELECT b FROM t WHERE a = $1")
        .await
        .unwrap();
    let row = client.query_one(&prepared, &[&77]).await.unwrap();
    assert_eq!(row.get::<_, &str>(0), "row 77");
    assert_eq!(refusal(&b.config("nowhere")).await, "3D000");
    // Who the client is, and from where, the leader knows from the other node.
    let asked = "SELECT usename || ' ' || client_addr::text FROM pg_stat_activity WHERE pid = pg_backend_pid()";
    assert_eq!(text(&client, asked).await, "aerostat 127.0.0.1");
    let mut ann = b.config("shop");
    ann.user("ann").password("secret");
    // The other node hears of a role a moment after it is made.
    let made = Instant::now();
    while let Err(error) = ann.connect(NoTls).await {
        assert!(made.elapsed() < PATIENCE, "{error:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    ann.password("wrong");
    assert_eq!(refusal(&ann).await, "28P01");
    ann.password("secret")
        .application_name("till")
        .options("-c statement_timeout=7s");
    let (told, connection) = ann.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    let asked = "SELECT current_user || ' ' || current_setting('application_name') || ' ' || current_setting('statement_timeout')";
    assert_eq!(text(&told, asked).await, "ann till 7s");
    assert_eq!(sqlstate(&told, "CREATE ROLE other").await, "42501");
    // Notifications meet, wherever their clients are.
    let (listener, mut connection) = b.config("shop").connect(NoTls).await.unwrap();
    let (heard, mut hears) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut messages =
            futures::stream::poll_fn(move |context| connection.poll_message(context));
        while let Some(Ok(message)) = messages.next().await {
            if let AsyncMessage::Notification(notification) = message {
                heard.send(notification.payload().to_owned()).unwrap();
            }
        }
    });
    listener.batch_execute("LISTEN news").await.unwrap();
    a.connect("shop")
        .await
        .batch_execute("NOTIFY news, 'hello'")
        .await
        .unwrap();
    let payload = tokio::time::timeout(PATIENCE, hears.recv()).await.unwrap();
    assert_eq!(payload.as_deref(), Some("hello"));
    // A session that is content with a copy is where it has come.
    let here = connect_here(&b, "shop").await;
    catch_up(&client, &here).await;
    assert_eq!(
        text(&here, "SELECT pg_is_in_recovery()::text || count(*) FROM t").await,
        "true100000"
    );
    // Sessions of what this node leads are here, too.
    assert!(promote(&b, "shop").status.success());
    wait_until("the other leads", || leads(&b, "shop"));
    let client = b.connect("shop").await;
    client
        .batch_execute("INSERT INTO t VALUES (-1)")
        .await
        .unwrap();
    let client = a.connect("shop").await;
    assert_eq!(
        value(&client, "SELECT count(*) FROM t WHERE a < 0").await,
        "1"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_at_another_node_is_cancelled_through_any() {
    let cluster = Cluster::of_gateways();
    let (a, b, _shop) = cluster.shop().await;
    let third = cluster.start("c");
    wait_for_members(&a, "shop", 3);
    let port = Arc::new(AtomicU16::new(0));
    let address = balanced(Arc::clone(&port)).await;
    for (way, through) in [(&b, &b), (&b, &a), (&b, &third), (&a, &third)] {
        port.store(way.sql.port(), Ordering::Relaxed);
        let mut config = tokio_postgres::Config::new();
        config.host("127.0.0.1").port(address.port());
        config.user("aerostat").dbname("shop");
        let (client, connection) = config.connect(NoTls).await.unwrap();
        tokio::spawn(connection);
        let pid: i32 = client
            .query_one("SELECT pg_backend_pid()", &[])
            .await
            .unwrap()
            .get(0);
        let token = client.cancel_token();
        let sleeping = tokio::spawn(async move { sqlstate(&client, "SELECT pg_sleep(60)").await });
        let watch = a.connect("shop").await;
        let runs =
            format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {pid} AND state = 'active'");
        while value(&watch, &runs).await != "1" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        port.store(through.sql.port(), Ordering::Relaxed);
        token.cancel_query(NoTls).await.unwrap();
        let state = tokio::time::timeout(PATIENCE, sleeping)
            .await
            .unwrap()
            .unwrap();
        assert_eq!(state, "57014");
    }
}

/// Passes connections on to whichever port is said, as something that balances load would; its address.
async fn balanced(port: Arc<AtomicU16>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let port = port.load(Ordering::Relaxed);
            tokio::spawn(async move {
                let mut node = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
                let _ = tokio::io::copy_bidirectional(&mut client, &mut node).await;
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_lost_is_told_of_and_its_successor_is_waited_for() {
    let cluster = Cluster::of_gateways();
    let (a, b) = cluster.pair();
    let client = a.create("shop").await;
    client
        .batch_execute(
            "CREATE TABLE t (a int PRIMARY KEY); ALTER DATABASE shop SET (durability = 'memory2')",
        )
        .await
        .unwrap();
    let third = cluster.start("c");
    wait_for_members(&a, "shop", 3);
    let mut ends = Vec::new();
    let mut begin = async |sql: &str| {
        let (client, connection) = b.config("shop").connect(NoTls).await.unwrap();
        let ended = tokio::spawn(end_of(connection));
        if !sql.is_empty() {
            client.batch_execute(sql).await.unwrap();
        }
        ends.push(ended);
        client
    };
    let _idle = begin("").await;
    let _within = begin("BEGIN; INSERT INTO t VALUES (1)").await;
    let running = begin("").await;
    let sleeping = tokio::spawn(async move { running.batch_execute("SELECT pg_sleep(60)").await });
    let watch = a.connect("shop").await;
    while value(&watch, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(60)%' AND pid <> pg_backend_pid()").await != "1" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop((client, watch));
    let folder = a.kill();
    let killed = Instant::now();
    // Clients that come meanwhile wait, and are served.
    let late = third.connect("shop").await;
    let waited = killed.elapsed();
    late.batch_execute("INSERT INTO t VALUES (2)")
        .await
        .unwrap();
    assert_eq!(
        value(&late, "SELECT string_agg(a::text, ' ') FROM t").await,
        "2"
    );
    eprintln!("a client waited {waited:?} for the next leader");
    let mut told = Vec::new();
    for ended in ends {
        told.push(ended.await.unwrap());
    }
    assert_eq!(told[..2], ["08006", "08006"]);
    // Whoever runs something gets it as its answer.
    let running = sleeping.await.unwrap().unwrap_err();
    assert_eq!(running.code().unwrap().code(), "08007");
    // A leader that is frozen says nothing: whoever waits for it is told once there is another.
    let a = cluster.start_on(folder, "a");
    let leader = [&b, &third]
        .into_iter()
        .find(|node| leads(node, "shop"))
        .unwrap();
    wait_for_members(leader, "shop", 3);
    let (client, connection) = a.config("shop").connect(NoTls).await.unwrap();
    let ended = tokio::spawn(end_of(connection));
    client
        .batch_execute("INSERT INTO t VALUES (3)")
        .await
        .unwrap();
    leader.signal("STOP");
    assert_eq!(ended.await.unwrap(), "08006");
    let client = a.connect("shop").await;
    client
        .batch_execute("INSERT INTO t VALUES (4)")
        .await
        .unwrap();
    leader.signal("CONT");
    wait_until("the old leader follows", || !leads(leader, "shop"));
    let client = leader.connect("shop").await;
    assert_eq!(
        value(&client, "SELECT string_agg(a::text, ' ' ORDER BY a) FROM t").await,
        "2 3 4"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stops_lets_what_runs_elsewhere_end() {
    let cluster = Cluster::of_gateways();
    let (_a, b, client) = cluster.shop().await;
    client
        .batch_execute("CREATE TABLE t (a int)")
        .await
        .unwrap();
    let (_idle, connection) = b.config("shop").connect(NoTls).await.unwrap();
    let idle = tokio::spawn(end_of(connection));
    let (running, connection) = b.config("shop").connect(NoTls).await.unwrap();
    let ended = tokio::spawn(end_of(connection));
    let runs = tokio::spawn(async move {
        let done = running
            .batch_execute("INSERT INTO t VALUES (1); SELECT pg_sleep(2)")
            .await;
        (running, done)
    });
    while value(&client, "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(2)%' AND pid <> pg_backend_pid()").await != "1" {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    b.signal("TERM");
    assert_eq!(idle.await.unwrap(), "57P01");
    let (_running, done) = runs.await.unwrap();
    done.unwrap();
    assert_eq!(ended.await.unwrap(), "57P01");
    assert_eq!(value(&client, "SELECT count(*) FROM t").await, "1");
}

/// Whatever PostgreSQL's own clients do through the node that leads nothing.
#[tokio::test(flavor = "multi_thread")]
async fn pgbench_and_pg_dump_go_through_any_node() {
    let cluster = Cluster::of_gateways();
    let (a, b) = cluster.pair();
    let _bank = a.create("bank").await;
    wait_for_members(&a, "bank", 2);
    let run = |program: &str, arguments: &[&str]| {
        let port = b.sql.port().to_string();
        let target = ["-h", "127.0.0.1", "-p", &port, "-U", "aerostat"];
        let found = Command::new(program)
            .args([&target[..], arguments].concat())
            .output();
        let Ok(found) = found else {
            eprintln!("skipped: {program} through any node (no {program})");
            return None;
        };
        let told = String::from_utf8_lossy(&found.stderr).into_owned();
        assert!(found.status.success(), "{program}: {told}");
        Some(String::from_utf8_lossy(&found.stdout).into_owned())
    };
    if run("pgbench", &["-i", "-q", "bank"]).is_none() {
        return;
    }
    for mode in ["simple", "extended", "prepared"] {
        run(
            "pgbench",
            &["-n", "-c", "4", "-t", "200", "-M", mode, "bank"],
        );
    }
    let client = b.connect("bank").await;
    let sums = "SELECT (SELECT sum(abalance) FROM pgbench_accounts) = (SELECT sum(delta) FROM pgbench_history)
        AND (SELECT count(*) FROM pgbench_history) = 2400";
    assert_eq!(value(&client, sums).await, "t");
    let dumped = run("pg_dump", &["bank"]).unwrap();
    assert!(dumped.contains("COPY public.pgbench_accounts"));
}

/// What is made, renamed and dropped through a node is so for whoever comes to it, or to another, the next moment.
#[tokio::test(flavor = "multi_thread")]
async fn databases_are_known_everywhere_as_soon_as_they_are_made() {
    let cluster = Cluster::of_gateways();
    let (a, b) = cluster.pair();
    let admin = b.connect("aerostat").await;
    for round in 0..20 {
        let (name, other) = (format!("d{round}"), format!("e{round}"));
        admin
            .batch_execute(&format!("CREATE DATABASE {name}"))
            .await
            .unwrap();
        let node = [&a, &b][round % 2];
        let client = node.connect(&name).await;
        client
            .batch_execute("CREATE TABLE t (a int); INSERT INTO t VALUES (1)")
            .await
            .unwrap();
        drop(client);
        let renamed = format!("ALTER DATABASE {name} RENAME TO {other}");
        let made = Instant::now();
        // The session that has just ended may still be counted.
        while let Err(error) = admin.batch_execute(&renamed).await {
            let is_used = error.code().is_some_and(|code| code.code() == "55006");
            assert!(is_used && made.elapsed() < PATIENCE, "{error:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let client = b.connect(&other).await;
        assert_eq!(value(&client, "SELECT count(*) FROM t").await, "1");
        assert_eq!(refusal(&b.config("never")).await, "3D000");
    }
}

/// Clients that read nothing, or are gone while a leader works for them, hold up nobody and leave nothing behind.
#[tokio::test(flavor = "multi_thread")]
async fn clients_that_do_not_read_or_are_gone_leave_nothing_behind() {
    let cluster = Cluster::of_gateways();
    let (_a, b, watch) = cluster.shop().await;
    watch
        .batch_execute("CREATE TABLE t AS SELECT g, repeat('x', 1000) AS x FROM generate_series(1, 50000) AS g")
        .await
        .unwrap();
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = 'shop' AND pid <> pg_backend_pid() AND client_addr IS NOT NULL";
    // Gone in the middle of a statement of which nothing comes for a minute.
    let (client, connection) = b.config("shop").connect(NoTls).await.unwrap();
    let connection = tokio::spawn(connection);
    let sleeping = tokio::spawn(async move { client.batch_execute("SELECT pg_sleep(60)").await });
    let active = format!("{sessions} AND state = 'active'");
    wait_for_value(&watch, &active, "1").await;
    sleeping.abort();
    connection.abort();
    wait_for_value(&watch, sessions, "0").await;
    // One asks for 50 MB and reads none of them; through the same node others go on.
    let mut silent = TcpStream::connect(b.sql).await.unwrap();
    let mut startup = b"\0\x03\0\0user\0aerostat\0database\0shop\0\0".to_vec();
    startup.splice(0..0, (startup.len() as u32 + 4).to_be_bytes());
    silent.write_all(&startup).await.unwrap();
    let query = b"SELECT * FROM t\0";
    let mut asked = vec![b'Q'];
    asked.extend((query.len() as u32 + 4).to_be_bytes());
    asked.extend_from_slice(query);
    silent.write_all(&asked).await.unwrap();
    wait_for_value(&watch, &active, "1").await;
    // Longer than a connection between nodes on which nothing is taken is kept for heartbeats.
    let through = b.connect("shop").await;
    for _ in 0..30 {
        assert_eq!(value(&through, "SELECT count(*) FROM t").await, "50000");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(value(&watch, &active).await, "1");
    // Then it reads, and has all of it.
    let mut bytes = 0;
    let mut part = vec![0; 1 << 16];
    while bytes < 50_000 * 1_000 {
        let read = tokio::time::timeout(PATIENCE, silent.read(&mut part)).await;
        let read = read.unwrap().unwrap();
        assert!(read > 0, "cut off after {bytes} bytes");
        bytes += read;
    }
    // Another one never does, and holds up no stop.
    silent.write_all(&asked).await.unwrap();
    drop(through);
    let began = Instant::now();
    drop(b.stop());
    eprintln!("the node stopped within {:?}", began.elapsed());
    wait_for_value(&watch, sessions, "0").await;
}

/// COPY asks once more than it is answered where a driver says Sync before and after the rows: its client rests all
/// the same, and a node that stops does not wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_has_copied_rests() {
    let cluster = Cluster::of_gateways();
    let (a, b, client) = cluster.shop().await;
    client
        .batch_execute("CREATE TABLE t (a int)")
        .await
        .unwrap();
    let (copies, connection) = b.config("shop").connect(NoTls).await.unwrap();
    let ended = tokio::spawn(end_of(connection));
    // In the extended protocol, as drivers do; and one that fails.
    for (lines, is_taken) in [("1\n2\n", true), ("none\n", false), ("3\n", true)] {
        let sink = copies.copy_in("COPY t FROM STDIN").await.unwrap();
        pin_mut!(sink);
        let sent = sink.send(Bytes::from_static(lines.as_bytes())).await;
        let done = sink.finish().await;
        assert_eq!(sent.is_ok() && done.is_ok(), is_taken, "{lines}");
    }
    assert_eq!(value(&copies, "SELECT count(*) FROM t").await, "3");
    // A leader that ends now has left nothing open for this client.
    let _folder = a.kill();
    assert_eq!(ended.await.unwrap(), "08006");
}

/// A node that has no copy hears nothing of who leads: its clients are told all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_frozen_is_told_of_where_there_is_no_copy() {
    let (_cluster, [leader, _b, c], _writer) = shop().await;
    let mut sessions = Vec::new();
    for sql in [
        "INSERT INTO t VALUES (1)",
        "BEGIN; INSERT INTO t VALUES (2)",
    ] {
        let client = c.connect("shop").await;
        client.batch_execute("SELECT 1").await.unwrap();
        sessions.push((client, sql));
    }
    // Whoever leads on is not given up, however long it works.
    let (long, copying) = (c.connect("shop").await, c.connect("shop").await);
    let sink = copying
        .copy_in::<_, Bytes>("COPY t FROM STDIN")
        .await
        .unwrap();
    long.batch_execute("SELECT pg_sleep(4)").await.unwrap();
    pin_mut!(sink);
    sink.send(Bytes::from_static(b"7\n")).await.unwrap();
    assert_eq!(sink.finish().await.unwrap(), 1);
    leader.signal("STOP");
    let waiting = sessions.into_iter().map(|(client, sql)| async move {
        let answered = tokio::time::timeout(PATIENCE, client.batch_execute(sql)).await;
        let error = answered.expect("it is told").unwrap_err();
        error.code().map(|code| code.code().to_owned())
    });
    let told = futures::future::join_all(waiting).await;
    assert_eq!(told, [Some("08007".to_owned()), Some("08007".to_owned())]);
    let next = c.connect("shop").await;
    next.batch_execute("INSERT INTO t VALUES (3)")
        .await
        .unwrap();
    leader.signal("CONT");
    wait_until("the old leader follows", || !leads(&leader, "shop"));
    assert_eq!(
        value(&next, "SELECT string_agg(a::text, ' ' ORDER BY a) FROM t").await,
        "3 7"
    );
}
