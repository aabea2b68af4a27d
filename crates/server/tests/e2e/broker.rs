//! A broker and nodes as its participants, each a process of its own.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use serde_json::Value;
use tokio_postgres::Client;

use crate::harness::{Aerostat, BINARY, PATIENCE, send_signal, sqlstate, value};

const MIB: u64 = 1 << 20;

/// `aerostat broker run` on a folder.
struct Broker {
    child: Child,
    folder: tempfile::TempDir,
}

impl Broker {
    fn start(flags: &[&str]) -> Broker {
        Self::start_on(tempfile::tempdir().unwrap(), flags)
    }

    fn start_on(folder: tempfile::TempDir, flags: &[&str]) -> Broker {
        let mut child = Command::new(BINARY)
            .args(["broker", "run", "--dwell", "1", "--data"])
            .arg(folder.path())
            .args(flags)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let ready = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("ready")));
        assert!(ready.is_some(), "the broker did not start");
        // Whatever it says further is read, so that it does not wait for a reader.
        std::thread::spawn(move || lines.for_each(drop));
        Broker { child, folder }
    }

    fn socket(&self) -> String {
        self.folder.path().join("broker.sock").display().to_string()
    }

    fn command(&self, words: &[&str]) -> std::process::Output {
        let (data, mut command) = (self.folder.path(), Command::new(BINARY));
        command.arg("broker").args(words).arg("--data").arg(data);
        command.output().unwrap()
    }

    fn status(&self) -> Value {
        let output = self.command(&["status", "--json"]);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn participant(&self, name: &str) -> Option<Value> {
        let status = self.status();
        let mut all = status["participants"].as_array().unwrap().iter();
        all.find(|one| one["name"] == name).cloned()
    }

    fn granted(&self, name: &str) -> u64 {
        let one = self.participant(name);
        one.map_or(0, |one| one["granted"].as_u64().unwrap())
    }

    /// Waits until it is so of a participant.
    async fn until(&self, name: &str, is: impl Fn(&Value) -> bool) -> Value {
        let started = Instant::now();
        loop {
            let one = self.participant(name);
            if let Some(one) = one.filter(|one| is(one)) {
                return one;
            }
            assert!(started.elapsed() < PATIENCE, "{name}: {:#}", self.status());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn kill(mut self) -> tempfile::TempDir {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap())
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process that does not outlive its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn bytes(one: &Value, field: &str) -> u64 {
    one[field].as_u64().unwrap_or(0)
}

/// A node on a data folder, of a broker at a socket.
fn start(socket: &str, name: &str, data: tempfile::TempDir) -> Aerostat {
    let flags = ["--balloon", socket, "--balloon-name", name];
    let floor = ["--balloon-floor", "128MB"];
    Aerostat::start_on(data, &[&flags[..], &floor].concat())
}

/// A node of a broker, with a table of rows that are frozen and can be evicted.
async fn node(broker: &Broker, name: &str, rows: u64) -> (Aerostat, Client) {
    let node = start(&broker.socket(), name, tempfile::tempdir().unwrap());
    let client = node.create("shop").await;
    for batch in 0..rows.div_ceil(500_000) {
        let (first, last) = (batch * 500_000, ((batch + 1) * 500_000).min(rows) - 1);
        let into = match batch {
            0 => "CREATE TABLE t (k bigint PRIMARY KEY, x text);",
            _ => "",
        };
        let sql = format!(
            "{into} INSERT INTO t SELECT n, md5(n::text) FROM generate_series({first}::bigint, {last}) AS s(n)"
        );
        client.batch_execute(&sql).await.unwrap();
    }
    client
        .batch_execute("VACUUM FREEZE t; CHECKPOINT")
        .await
        .unwrap();
    (node, client)
}

async fn count(client: &Client) -> String {
    value(client, "SELECT count(*) FROM t WHERE x = md5(k::text)").await
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_give_and_take_while_they_serve() {
    const ROWS: u64 = 4_000_000;
    let broker = Broker::start(&["--memory", "1200MB", "--reserve", "50MB"]);
    let (shop, in_shop) = node(&broker, "shop", ROWS).await;
    let (_logs, in_logs) = node(&broker, "logs", 1_000).await;
    broker
        .until("logs", |one| one["state"] == "connected")
        .await;
    let before = broker
        .until("shop", |one| bytes(one, "account") > 200 * MIB)
        .await;
    assert!(
        bytes(&before, "granted") >= bytes(&before, "account") - 64 * MIB,
        "{before}"
    );

    // Less: values leave memory, the kernel counts it, statements go on.
    let pinned = broker.command(&["pin", "shop", "150MB"]);
    assert!(pinned.status.success(), "{pinned:?}");
    let after = broker
        .until("shop", |one| bytes(one, "granted") <= 160 * MIB)
        .await;
    assert!(bytes(&after, "account") <= 170 * MIB, "{after}");
    assert!(shop.metric("aerostat_memory_target_bytes") < 150e6);
    let evicted = "SELECT sum(bytes_evicted)::bigint FROM aerostat.evictions";
    let evicted: i64 = in_shop.query_one(evicted, &[]).await.unwrap().get(0);
    assert!(evicted > 10 << 20, "{evicted}");
    assert_eq!(count(&in_shop).await, ROWS.to_string());

    // What it gave goes to another one, and comes back.
    let pinned = broker.command(&["pin", "logs", "900MB"]);
    assert!(pinned.status.success(), "{pinned:?}");
    broker
        .until("logs", |one| bytes(one, "granted") >= 890 * MIB)
        .await;
    assert_eq!(value(&in_logs, "SELECT count(*) FROM t").await, "1000");
    for name in ["logs", "shop"] {
        assert!(broker.command(&["unpin", name]).status.success());
    }
    // It reads again and again what does not fit, so memory is worth more to it.
    let started = Instant::now();
    while broker.granted("shop") < 260 * MIB {
        assert_eq!(count(&in_shop).await, ROWS.to_string());
        assert!(started.elapsed() < PATIENCE, "{:#}", broker.status());
    }
    let status = broker.status();
    let all = status["participants"].as_array().unwrap().iter();
    let granted: u64 = all.map(|one| bytes(one, "granted")).sum();
    assert!(granted + 50 * MIB <= 1200 * MIB, "{status:#}");
    let text = String::from_utf8(broker.command(&["status"]).stdout).unwrap();
    assert!(
        text.contains("shop (aerostat)") && text.contains("1.2 GiB for all"),
        "{text}"
    );

    // A broker that dies leaves everybody what they have, and goes on with its ledger.
    let before = broker.granted("shop");
    let folder = broker.kill();
    assert_eq!(count(&in_shop).await, ROWS.to_string());
    let broker = Broker::start_on(
        folder,
        &[
            "--memory",
            "1200MB",
            "--reserve",
            "50MB",
            "--policy",
            "static",
        ],
    );
    let again = broker
        .until("shop", |one| one["state"] == "connected")
        .await;
    assert!(
        bytes(&again, "granted") >= before,
        "{again}, {before} before"
    );
    // A participant that has gone gives all back.
    drop((shop, in_shop));
    let started = Instant::now();
    while broker.participant("shop").is_some() {
        assert!(started.elapsed() < PATIENCE, "{:#}", broker.status());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// A statement that holds more than a grant leaves is not refused while its broker has memory.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_waits_for_a_larger_grant() {
    // In memory as a whole, and it cannot go to disk.
    let rows = "SELECT md5(n::text) AS t FROM generate_series(1, 3000000) AS s(n)";
    let join = format!("SELECT count(*) FROM ({rows}) a JOIN ({rows}) b USING (t)");
    let join = join.as_str();
    let broker = Broker::start(&["--memory", "3000MB", "--reserve", "50MB"]);
    let (shop, in_shop) = node(&broker, "shop", 1_000).await;
    let begun = broker
        .until("shop", |one| one["state"] == "connected")
        .await;
    assert!(bytes(&begun, "granted") < 600 * MIB, "{begun}");
    assert_eq!(value(&in_shop, join).await, "3000000");
    // So does one that writes, in a block, and what was before it in the block is still there.
    let pinned = broker.command(&["pin", "shop", "330MB"]);
    assert!(pinned.status.success(), "{pinned:?}");
    broker
        .until("shop", |one| bytes(one, "granted") <= 340 * MIB)
        .await;
    assert!(broker.command(&["unpin", "shop"]).status.success());
    in_shop
        .batch_execute("CREATE TABLE sums (n bigint); BEGIN; INSERT INTO sums VALUES (1)")
        .await
        .unwrap();
    in_shop
        .batch_execute(&format!("INSERT INTO sums {join}"))
        .await
        .unwrap();
    in_shop.batch_execute("COMMIT").await.unwrap();
    let sums = "SELECT string_agg(n::text, ' ' ORDER BY n) FROM sums";
    assert_eq!(value(&in_shop, sums).await, "1 3000000");
    // Where the broker has nothing for it, it waits, can be stopped, and is refused in the end.
    let pinned = broker.command(&["pin", "shop", "330MB"]);
    assert!(pinned.status.success(), "{pinned:?}");
    broker
        .until("shop", |one| bytes(one, "granted") <= 340 * MIB)
        .await;
    let stopped = shop.connect("shop").await;
    let timeout = "SET statement_timeout = '3s'";
    stopped.batch_execute(timeout).await.unwrap();
    assert_eq!(sqlstate(&stopped, join).await, "57014");
    assert_eq!(sqlstate(&in_shop, join).await, "53200");
    assert_eq!(value(&in_shop, "SELECT count(*) FROM t").await, "1000");
}

/// A node that starts again loads no more than its broker grants it, and that is what it had before.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_begins_with_its_grant() {
    let broker = Broker::start(&["--memory", "1200MB", "--reserve", "50MB"]);
    let (shop, in_shop) = node(&broker, "shop", 4_000_000).await;
    broker
        .until("shop", |one| bytes(one, "account") > 200 * MIB)
        .await;
    let pinned = broker.command(&["pin", "shop", "180MB"]);
    assert!(pinned.status.success(), "{pinned:?}");
    broker
        .until("shop", |one| bytes(one, "granted") <= 190 * MIB)
        .await;
    drop(in_shop);
    let data = shop.kill();
    let is_over = AtomicBool::new(false);
    let (shop, highest) = std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let (mut highest, mut seen) = (0, 0);
            while !is_over.load(Ordering::Relaxed) {
                if let Some(one) = broker.participant("shop") {
                    seen += 1;
                    let beyond = bytes(&one, "account").saturating_sub(bytes(&one, "granted"));
                    highest = beyond.max(highest);
                }
            }
            assert!(seen > 0, "nobody saw it start");
            highest
        });
        let shop = start(&broker.socket(), "shop", data);
        std::thread::sleep(Duration::from_secs(1));
        is_over.store(true, Ordering::Relaxed);
        (shop, watch.join().unwrap())
    });
    assert!(highest < 64 * MIB, "{} MiB beyond its grant", highest / MIB);
    let client = shop.connect("shop").await;
    assert_eq!(count(&client).await, "4000000");
    let one = broker
        .until("shop", |one| one["state"] == "connected")
        .await;
    assert!(
        bytes(&one, "account") <= bytes(&one, "granted") + 64 * MIB,
        "{one}"
    );
    // With no broker it lives by what it had.
    drop(client);
    let socket = broker.socket();
    let _folder = broker.kill();
    let shop = start(&socket, "shop", shop.kill());
    let client = shop.connect("shop").await;
    assert_eq!(count(&client).await, "4000000");
    assert!(shop.metric("aerostat_memory_target_bytes") < 800e6);
}

/// A broker whose memory is a node's, pinned.
async fn full_broker() -> (Broker, Aerostat, Client) {
    let broker = Broker::start(&["--memory", "400MB", "--reserve", "50MB"]);
    let (shop, in_shop) = node(&broker, "shop", 1_000).await;
    let pinned = broker.command(&["pin", "shop", "300MB"]);
    assert!(pinned.status.success(), "{pinned:?}");
    broker
        .until("shop", |one| bytes(one, "granted") >= 290 * MIB)
        .await;
    (broker, shop, in_shop)
}

/// A node for which its broker has no room serves with its floor, and more once it is let in.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_refused_lives_by_its_floor() {
    let (broker, _shop, _in_shop) = full_broker().await;
    let logs = start(&broker.socket(), "logs", tempfile::tempdir().unwrap());
    assert!(broker.participant("logs").is_none());
    assert!(logs.metric("aerostat_memory_target_bytes") <= (128 * MIB) as f64);
    let client = logs.create("logs").await;
    client
        .batch_execute("CREATE TABLE t (k int); INSERT INTO t SELECT generate_series(1, 1000)")
        .await
        .unwrap();
    assert_eq!(value(&client, "SELECT count(*) FROM t").await, "1000");
    assert!(broker.command(&["unpin", "shop"]).status.success());
    let one = broker
        .until("logs", |one| one["state"] == "connected")
        .await;
    assert!(bytes(&one, "granted") >= 128 * MIB, "{one}");
    assert_eq!(value(&client, "SELECT count(*) FROM t").await, "1000");
}

/// The same where the broker says so only after the node has begun without it.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_is_refused_late_comes_down_to_its_floor() {
    let (broker, _shop, _in_shop) = full_broker().await;
    send_signal(broker.child.id(), "STOP");
    let logs = start(&broker.socket(), "logs", tempfile::tempdir().unwrap());
    let target = || logs.metric("aerostat_memory_target_bytes");
    assert!(target() > (128 * MIB) as f64, "it heard of the broker");
    send_signal(broker.child.id(), "CONT");
    let begun = Instant::now();
    while target() > (128 * MIB) as f64 {
        assert!(begun.elapsed() < PATIENCE, "it has what nobody granted");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(broker.participant("logs").is_none());
    assert!(broker.command(&["unpin", "shop"]).status.success());
    broker
        .until("logs", |one| one["state"] == "connected")
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_administrator_sets_the_balloon_by_sql() {
    let node = Aerostat::start();
    let admin = node.connect("postgres").await;
    let now = "SELECT aerostat.balloon()";
    let configured = value(&admin, now).await;
    assert_eq!(
        value(&admin, "SELECT aerostat.balloon('512MB')").await,
        (512 * MIB).to_string()
    );
    assert_eq!(
        node.metric("aerostat_memory_target_bytes"),
        (512 * MIB) as f64
    );
    // The lower of balloon and setting counts.
    admin
        .batch_execute("ALTER SYSTEM SET memory = '300MB'")
        .await
        .unwrap();
    assert_eq!(value(&admin, now).await, (300 * MIB).to_string());
    admin
        .batch_execute("ALTER SYSTEM RESET memory")
        .await
        .unwrap();
    assert_eq!(value(&admin, now).await, (512 * MIB).to_string());
    assert_eq!(
        value(&admin, "SELECT aerostat.balloon('off')").await,
        configured
    );
    let listed = "SELECT proname FROM pg_proc WHERE pronamespace = 'aerostat'::regnamespace";
    assert_eq!(value(&admin, listed).await, "balloon");
    for (sql, state) in [
        ("SELECT aerostat.balloon('much')", "22023"),
        ("SELECT aerostat.balloon('1MB')", "22023"),
        ("SELECT aerostat.balloon('1GB', 2)", "42883"),
    ] {
        assert_eq!(sqlstate(&admin, sql).await, state, "{sql}");
    }
    admin
        .batch_execute("CREATE ROLE clerk LOGIN; GRANT CONNECT ON DATABASE postgres TO clerk")
        .await
        .unwrap();
    let mut config = node.config("postgres");
    config.user("clerk");
    let (clerk, connection) = config.connect(tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    assert_eq!(value(&clerk, now).await, configured);
    assert_eq!(
        sqlstate(&clerk, "SELECT aerostat.balloon('1GB')").await,
        "42501"
    );
    assert_eq!(value(&admin, now).await, configured);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_adapter_stands_for_a_redis_until_it_has_gone() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("redis.sock").display().to_string();
    let redis = Command::new("redis-server")
        .args(["--port", "0", "--save", "", "--unixsocket", &socket])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .spawn();
    let Ok(mut redis) = redis.map(Killed) else {
        eprintln!("skipped: an adapter of a Redis (there is no redis-server)");
        return;
    };
    let broker = Broker::start(&["--memory", "1GB"]);
    let started = Instant::now();
    while !Path::new(&socket).exists() {
        assert!(started.elapsed() < PATIENCE, "the Redis does not listen");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let options = format!("name=cache,socket={socket},floor=16MB,ceiling=300MB");
    let adapter = Command::new(BINARY)
        .args(["broker", "adapter", "redis", &options, "--data"])
        .arg(broker.folder.path())
        .stderr(Stdio::null())
        .spawn();
    let mut adapter = adapter.map(Killed).unwrap();
    let cache = broker
        .until("cache", |one| one["state"] == "connected")
        .await;
    assert_eq!(bytes(&cache, "pid"), u64::from(redis.0.id()));
    let wrong = broker.command(&["adapter", "redis", "name=other"]);
    assert_eq!(wrong.status.code(), Some(1), "{wrong:?}");
    redis.0.kill().unwrap();
    redis.0.wait().unwrap();
    assert!(adapter.0.wait().unwrap().success(), "its program has gone");
    let started = Instant::now();
    while broker.participant("cache").is_some() {
        assert!(started.elapsed() < PATIENCE, "{:#}", broker.status());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[test]
fn wrong_words_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let run = |words: &[&str]| {
        let output = Command::new(BINARY)
            .args(words)
            .current_dir(folder.path())
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    for (words, code, message) in [
        (
            &["broker", "run", "--memory", "much"][..],
            1,
            "is not a quantity",
        ),
        (&["broker", "run", "--policy", "fair"], 2, "is no policy"),
        (
            &["broker", "run", "--listen", "127.0.0.1:0"],
            2,
            "--token-file",
        ),
        (
            &["broker", "run", "--memory", "1GB", "--reserve", "1GB"],
            1,
            "leaves nothing",
        ),
        (&["broker", "status"], 1, "cannot reach a broker"),
        (
            &["serve", "--balloon", "host"],
            2,
            "the path of a broker's socket",
        ),
        (&["serve", "--balloon", "host:1"], 2, "balloon-trust"),
        (
            &["serve", "--balloon", "/s", "--balloon-name", "a b"],
            2,
            "letters, digits",
        ),
        (
            &["serve", "--balloon", "/s", "--balloon-floor", "1MB"],
            2,
            "at least",
        ),
    ] {
        let (status, text) = run(words);
        assert_eq!(status, Some(code), "{words:?}: {text}");
        assert!(text.contains(message), "{words:?}: {text}");
    }
    // A damaged ledger is refused and kept, and so is one that another broker has open.
    let data = folder.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::write(data.join("ledger.json"), "{").unwrap();
    let (status, text) = run(&["broker", "run", "--memory", "1GB", "--data", "data"]);
    assert_eq!(status, Some(1));
    assert!(text.contains("the ledger is damaged"), "{text}");
    let broker = Broker::start(&["--memory", "1GB"]);
    let (status, text) = run_on(broker.folder.path());
    assert_eq!(status, Some(1));
    assert!(text.contains("another broker runs on"), "{text}");
}

fn run_on(data: &Path) -> (Option<i32>, String) {
    let output = Command::new(BINARY)
        .args(["broker", "run", "--memory", "1GB", "--data"])
        .arg(data)
        .output()
        .unwrap();
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    )
}
