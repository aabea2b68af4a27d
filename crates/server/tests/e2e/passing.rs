//! Sessions that go along when another node leads their database from now on: their clients notice a pause.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use futures::future::{join_all, try_join_all};
use rand::{Rng, SeedableRng, rngs::StdRng};
use tokio_postgres::{Client, NoTls};

use crate::{
    copies::{Cluster, leads, promote, wait_for_members, wait_until},
    harness::{Aerostat, sqlstate, value},
    raw::Raw,
};

/// Has a node lead, and waits until it does.
fn have_lead(node: &Aerostat, database: &str) {
    let promoted = promote(node, database);
    assert!(promoted.status.success(), "{promoted:?}");
    wait_until("it leads", || leads(node, database));
}

async fn rows(client: &Client, sql: &str) -> Vec<String> {
    let rows = client.query(sql, &[]).await.unwrap();
    let text = |row: &tokio_postgres::Row| row.get::<_, String>(0);
    rows.iter().map(text).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_has_what_it_had_wherever_it_goes() {
    let setup = Cluster::of_gateways();
    let (a, b, admin) = setup.shop().await;
    admin
        .batch_execute("CREATE TABLE t (id serial PRIMARY KEY, v text)")
        .await
        .unwrap();
    let mut clients = Vec::new();
    for (at, node) in [&a, &b].into_iter().enumerate() {
        let client = node.connect("shop").await;
        client
            .batch_execute(&format!(
                "SET my.word = 'word {at}'; SET TimeZone = 'Asia/Tokyo'; SET statement_timeout = '50s';
                 PREPARE mine AS SELECT 'mine {at}'; INSERT INTO t (v) VALUES ('{at}')"
            ))
            .await
            .unwrap();
        let by_protocol = client.prepare("SELECT $1::int + 1").await.unwrap();
        let number = value(&client, "SELECT lastval()").await;
        clients.push((client, by_protocol, number));
    }
    for round in 0..6 {
        let next = if round % 2 == 0 { &b } else { &a };
        have_lead(next, "shop");
        for (at, (client, by_protocol, number)) in clients.iter().enumerate() {
            assert_eq!(value(client, "SHOW my.word").await, format!("word {at}"));
            assert_eq!(value(client, "SHOW TimeZone").await, "Asia/Tokyo");
            assert_eq!(value(client, "SHOW statement_timeout").await, "50s");
            assert_eq!(rows(client, "EXECUTE mine").await, [format!("mine {at}")]);
            let row = client.query_one(by_protocol, &[&41_i32]).await.unwrap();
            assert_eq!(row.get::<_, i32>(0), 42);
            assert_eq!(value(client, "SELECT lastval()").await, *number);
            let sql = format!("INSERT INTO t (v) VALUES ('{round}')");
            client.execute(&sql, &[]).await.unwrap();
            let again = "SELECT setval('t_id_seq', currval('t_id_seq'))";
            client.query(again, &[]).await.unwrap();
        }
        // Numbers of this session are what they were: nothing was taken for it on the way.
        for (client, _, number) in &mut clients {
            *number = value(client, "SELECT lastval()").await;
        }
        // Whoever cancels knows the session by the key that its client was told first.
        for (client, ..) in &clients {
            let cancel = client.cancel_token();
            let (slept, _) = tokio::join!(sqlstate(client, "SELECT pg_sleep(30)"), async {
                tokio::time::sleep(Duration::from_millis(300)).await;
                cancel.cancel_query(NoTls).await.unwrap();
            });
            assert_eq!(slept, "57014");
        }
    }
    let all = value(&clients[0].0, "SELECT count(*) FROM t").await;
    assert_eq!(all, "14");
    // What cannot go is told so.
    let held = a.connect("shop").await;
    held.batch_execute("CREATE TEMP TABLE mine (a int)")
        .await
        .unwrap();
    have_lead(&b, "shop");
    let ended = held.query("SELECT 1", &[]).await.unwrap_err();
    let code = ended.code().map(|code| code.code().to_owned());
    assert!(
        code.as_deref()
            .is_none_or(|code| code.starts_with("08") || code == "57P01"),
        "{ended:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn who_listens_hears_what_is_said_after_a_move() {
    let setup = Cluster::of_gateways();
    let (a, b, admin) = setup.shop().await;
    let config = b.config("shop");
    let (client, mut connection) = config.connect(NoTls).await.unwrap();
    let (sender, mut heard) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Some(Ok(message)) =
            std::future::poll_fn(|context| connection.poll_message(context)).await
        {
            if let tokio_postgres::AsyncMessage::Notification(said) = message {
                sender.send(said.payload().to_owned()).unwrap();
            }
        }
    });
    client.batch_execute("LISTEN news").await.unwrap();
    for (round, node) in [&b, &a, &b].into_iter().enumerate() {
        have_lead(node, "shop");
        // It has said nothing since, and is there all the same.
        wait_until("its session is there", || {
            node.metric("aerostat_tenant_connections{tenant=\"shop\"}") >= 1.0
        });
        tokio::time::sleep(Duration::from_millis(200)).await;
        let word = format!("round {round}");
        admin
            .batch_execute(&format!("NOTIFY news, '{word}'"))
            .await
            .unwrap();
        let said = tokio::time::timeout(Duration::from_secs(5), heard.recv()).await;
        assert_eq!(said.unwrap().unwrap(), word);
    }
}

/// What clients have done.
#[derive(Default)]
struct Done {
    next: AtomicI64,
    stops: AtomicBool,
    failed: std::sync::Mutex<Vec<String>>,
    /// The longest statement.
    longest_us: AtomicI64,
}

/// Writes in transactions of one statement and of several, and in pipelines, until it is told to stop. What was
/// acknowledged.
async fn write(client: Client, done: Arc<Done>, seed: u64) -> Vec<i64> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut acknowledged = Vec::new();
    let insert = client.prepare("INSERT INTO t VALUES ($1)").await.unwrap();
    while !done.stops.load(Ordering::Relaxed) {
        let count = random.random_range(1..20);
        let first = done.next.fetch_add(count, Ordering::Relaxed);
        let ids: Vec<i64> = (first..first + count).collect();
        let began = Instant::now();
        let result: Result<(), tokio_postgres::Error> = match random.random_range(0..4) {
            0 => {
                let texts: Vec<String> = ids.iter().map(|id| format!("({id})")).collect();
                let sql = format!("INSERT INTO t VALUES {}", texts.join(", "));
                client.batch_execute(&sql).await
            }
            1 => {
                async {
                    client.batch_execute("BEGIN").await?;
                    for id in &ids {
                        client.execute(&insert, &[id]).await?;
                    }
                    client.batch_execute("COMMIT").await
                }
                .await
            }
            // All of them sent before the first is answered.
            2 => {
                let all = ids.iter().map(|id| async {
                    let id = *id;
                    client.execute(&insert, &[&id]).await
                });
                try_join_all(all).await.map(|_| ())
            }
            _ => {
                let texts: Vec<String> = ids
                    .iter()
                    .map(|id| format!("INSERT INTO t VALUES ({id})"))
                    .collect();
                let all = texts.iter().map(|sql| client.simple_query(sql));
                try_join_all(all).await.map(|_| ())
            }
        };
        let took = i64::try_from(began.elapsed().as_micros()).unwrap();
        done.longest_us.fetch_max(took, Ordering::Relaxed);
        match result {
            Ok(()) => acknowledged.extend(ids),
            Err(error) => {
                done.failed.lock().unwrap().push(format!("{error:?}"));
                break;
            }
        }
        if random.random_bool(0.1) {
            tokio::time::sleep(Duration::from_millis(random.random_range(0..30))).await;
        }
    }
    acknowledged
}

struct Writers {
    done: Arc<Done>,
    tasks: Vec<tokio::task::JoinHandle<Vec<i64>>>,
}

impl Writers {
    async fn start(nodes: &[&Aerostat], database: &str, each: u64) -> Writers {
        let done = Arc::new(Done::default());
        let mut tasks = Vec::new();
        for (at, node) in nodes.iter().enumerate() {
            for writer in 0..each {
                let client = node.connect(database).await;
                let seed = at as u64 * 100 + writer;
                tasks.push(tokio::spawn(write(client, Arc::clone(&done), seed)));
            }
        }
        Writers { done, tasks }
    }

    /// Stops them; everything was done, once.
    async fn stop(self, node: &Aerostat, database: &str) {
        self.done.stops.store(true, Ordering::Relaxed);
        let acknowledged: Vec<i64> = join_all(self.tasks)
            .await
            .into_iter()
            .flat_map(Result::unwrap)
            .collect();
        let failed = self.done.failed.lock().unwrap().clone();
        let client = node.connect(database).await;
        let found = client.query("SELECT id FROM t", &[]).await.unwrap();
        let there: BTreeSet<i64> = found.iter().map(|row| row.get(0)).collect();
        let lost: Vec<&i64> = acknowledged
            .iter()
            .filter(|id| !there.contains(id))
            .collect();
        eprintln!(
            "{} acknowledged, {} failed, the longest took {} ms",
            acknowledged.len(),
            failed.len(),
            self.done.longest_us.load(Ordering::Relaxed) / 1_000
        );
        assert!(lost.is_empty(), "{lost:?}");
        // A statement that was done twice would have met its own key.
        assert!(failed.is_empty(), "{failed:?}");
        assert_eq!(there.len(), acknowledged.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_statement_fails_while_the_lead_moves() {
    let setup = Cluster::of_gateways();
    let nodes = ["a", "b", "c"].map(|name| setup.start(name));
    wait_for_members(&nodes[0], "aerostat", 3);
    let admin = nodes[0].create("shop").await;
    wait_for_members(&nodes[0], "shop", 3);
    admin
        .batch_execute("CREATE TABLE t (id bigint PRIMARY KEY)")
        .await
        .unwrap();
    let all: Vec<&Aerostat> = nodes.iter().collect();
    let writers = Writers::start(&all, "shop", 3).await;
    for round in 0..12 {
        tokio::time::sleep(Duration::from_millis(150)).await;
        let next = &nodes[(round + 1) % 3];
        tokio::task::block_in_place(|| have_lead(next, "shop"));
    }
    writers.stop(&nodes[0], "shop").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_statement_fails_while_nodes_stop_and_come_back() {
    let setup = Cluster::of_gateways();
    let mut nodes = ["a", "b", "c"].map(|name| Some(setup.start(name)));
    wait_for_members(nodes[0].as_ref().unwrap(), "aerostat", 3);
    let admin = nodes[0].as_ref().unwrap().create("shop").await;
    wait_for_members(nodes[0].as_ref().unwrap(), "shop", 3);
    admin
        .batch_execute("CREATE TABLE t (id bigint PRIMARY KEY)")
        .await
        .unwrap();
    drop(admin);
    // Through the one that stays.
    let writers = Writers::start(&[nodes[2].as_ref().unwrap()], "shop", 4).await;
    for round in 0..3 {
        let at = round % 2;
        if !leads(nodes[at].as_ref().unwrap(), "shop") {
            tokio::task::block_in_place(|| have_lead(nodes[at].as_ref().unwrap(), "shop"));
        }
        let stopped = nodes[at].take().unwrap();
        let data = tokio::task::block_in_place(|| stopped.stop());
        tokio::time::sleep(Duration::from_millis(300)).await;
        let name = ["a", "b", "c"][at];
        nodes[at] = Some(tokio::task::block_in_place(|| setup.start_on(data, name)));
        let leader = (0..3).find(|at| leads(nodes[*at].as_ref().unwrap(), "shop"));
        wait_for_members(nodes[leader.unwrap()].as_ref().unwrap(), "shop", 3);
    }
    writers.stop(nodes[2].as_ref().unwrap(), "shop").await;
}

/// A transaction that is short enough is waited for, and one that is not is cut off.
#[tokio::test(flavor = "multi_thread")]
async fn transactions_are_waited_for_and_not_for_ever() {
    let setup = Cluster::of_gateways();
    let (a, b, admin) = setup.shop().await;
    admin.batch_execute("CREATE TABLE t (a int)").await.unwrap();
    let client = b.connect("shop").await;
    let begins = "BEGIN; INSERT INTO t VALUES (1)";
    client.batch_execute(begins).await.unwrap();
    let moving = {
        let promoted = std::thread::spawn({
            let (sql, database) = (b.sql, "shop".to_owned());
            move || crate::copies::promote_at(sql, &database)
        });
        tokio::time::sleep(Duration::from_millis(700)).await;
        client.batch_execute("COMMIT").await.unwrap();
        promoted
    };
    assert!(moving.join().unwrap().status.success());
    wait_until("b leads", || leads(&b, "shop"));
    assert_eq!(value(&client, "SELECT count(*) FROM t").await, "1");
    let idle = a.connect("shop").await;
    client.batch_execute(begins).await.unwrap();
    have_lead(&a, "shop");
    let cut = client.batch_execute("COMMIT").await.unwrap_err();
    let code = cut.code().map(|code| code.code().to_owned());
    assert!(
        code.as_deref()
            .is_none_or(|code| code.starts_with("08") || code == "57P01"),
        "{cut:?}"
    );
    assert_eq!(value(&idle, "SELECT count(*) FROM t").await, "1");
}

/// Roles that may little, encodings that are not the server's, and more statements than anybody prepares.
#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_every_kind_go_along() {
    let setup = Cluster::of_gateways();
    let (a, b, admin) = setup.shop().await;
    admin
        .batch_execute(
            "CREATE ROLE eve LOGIN CONNECTION LIMIT 1; CREATE ROLE max LOGIN; GRANT CONNECT ON DATABASE shop TO eve, max;
             CREATE TABLE open (v text); GRANT SELECT, INSERT ON open TO eve; CREATE TABLE shut (v text);
             INSERT INTO open VALUES ('caf\u{e9}')",
        )
        .await
        .unwrap();
    // The leader's own clients, and those of the other node.
    let mut latins = Vec::new();
    let mut many = Vec::new();
    for node in [&a, &b] {
        let mut latin = Raw::session_as(node.sql, "aerostat", "shop");
        latin.query("SET client_encoding = 'latin1'").unwrap();
        latins.push(latin);
        let client = node.connect("shop").await;
        let mut statements = Vec::new();
        for number in 0..1_500 {
            statements.push(
                client
                    .prepare(&format!("SELECT {number} + $1::int"))
                    .await
                    .unwrap(),
            );
        }
        many.push((client, statements));
    }
    let mut config = b.config("shop");
    config.user("eve");
    let (eve, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    for round in 0..4 {
        let next = if round % 2 == 0 { &b } else { &a };
        tokio::task::block_in_place(|| have_lead(next, "shop"));
        for latin in &mut latins {
            assert_eq!(latin.query("SHOW client_encoding").unwrap(), ["LATIN1"]);
            latin
                .send_query(b"SELECT v FROM open WHERE v = 'caf\xe9'")
                .unwrap();
            let answer = latin.read_until_ready().unwrap();
            let row = answer.iter().find(|(kind, _)| *kind == b'D');
            assert!(row.unwrap().1.ends_with(b"caf\xe9"), "{answer:?}");
        }
        assert_eq!(value(&eve, "SELECT current_user").await, "eve");
        assert_eq!(value(&eve, "SELECT count(*) FROM open").await, "1");
        assert_eq!(sqlstate(&eve, "SELECT * FROM shut").await, "42501");
        assert_eq!(sqlstate(&eve, "SET ROLE aerostat").await, "42501");
        for (client, statements) in &many {
            for number in [0, 749, 1_499] {
                let row = client
                    .query_one(&statements[number], &[&1_i32])
                    .await
                    .unwrap();
                assert_eq!(row.get::<_, i32>(0), number as i32 + 1);
            }
        }
    }
}

/// One client reads nothing, and one has left in the middle of a statement: others go along, and the lead moves.
#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_read_holds_up_no_other() {
    let setup = Cluster::of_gateways();
    let (a, b, admin) = setup.shop().await;
    admin
        .batch_execute(
            "CREATE TABLE big AS SELECT g AS a, repeat('x', 500) AS b FROM generate_series(1, 100000) AS g;
             CREATE TABLE t (id bigint PRIMARY KEY)",
        )
        .await
        .unwrap();
    let mut silent = Vec::new();
    for node in [&a, &b] {
        let mut raw = Raw::session_as(node.sql, "aerostat", "shop");
        raw.send_query(b"SELECT * FROM big, generate_series(1, 20)")
            .unwrap();
        silent.push(raw);
        let mut gone = Raw::session_as(node.sql, "aerostat", "shop");
        gone.send_query(b"SELECT pg_sleep(30)").unwrap();
        drop(gone);
    }
    let writers = Writers::start(&[&a, &b], "shop", 2).await;
    for round in 0..3 {
        let next = if round % 2 == 0 { &b } else { &a };
        tokio::task::block_in_place(|| have_lead(next, "shop"));
    }
    writers.stop(&a, "shop").await;
    // They are not served any more, and nothing waits for them.
    drop(silent);
    wait_until("nobody is left but who is there", || {
        let all = |node: &Aerostat| node.metric("aerostat_tenant_connections{tenant=\"shop\"}");
        all(&a) + all(&b) <= 1.0
    });
}
