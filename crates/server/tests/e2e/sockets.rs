//! Clients that do not read, do not speak, or keep what they can: the node stays within its
//! memory, others are served, and what was taken comes back.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::harness::{Aerostat, PATIENCE};
use crate::raw::{Raw, errors};

/// What a node takes beside its `memory`, as in `memory.rs`.
const BESIDE_MB: u64 = 192;

/// Clients that ask and do not read.
const CLIENTS: usize = 40;

/// A batch of 8,192 of these rows takes 8 MB, and there are four.
const ROWS: usize = 30_000;
const WIDE: &str = "SELECT g, repeat('x', 1000) FROM generate_series(1, 30000) g";

/// What the plans of these statements may go on taking, which are the database's. What a session
/// had kept is many times as much.
const PLANS_BYTES: f64 = (4 << 20) as f64;

/// Waits until no more is charged than `before`.
fn wait_until_given_back(node: &Aerostat, before: f64) {
    let started = Instant::now();
    while node.metric("aerostat_memory_used_bytes") > before {
        let used = node.metric("aerostat_memory_used_bytes");
        assert!(
            started.elapsed() < PATIENCE,
            "{used} bytes, {before} before"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn unread(node: &Aerostat, sql: &str) -> Vec<Raw> {
    let mut clients: Vec<Raw> = (0..CLIENTS)
        .map(|_| Raw::session(node.sql, "aerostat"))
        .collect();
    for client in &mut clients {
        client.send_query(sql.as_bytes()).unwrap();
    }
    // Time to fill whatever can be filled.
    std::thread::sleep(Duration::from_secs(3));
    clients
}

/// The rows, or the SQLSTATE.
fn rest(client: &mut Raw) -> Result<usize, String> {
    let messages = client.read_until_ready().unwrap();
    match errors(&messages).first() {
        Some(error) => Err(error[&'C'].clone()),
        None => Ok(messages.iter().filter(|message| message.0 == b'D').count()),
    }
}

#[test]
fn results_that_nobody_reads_take_little_and_are_charged() {
    let memory_mb = 256;
    let node = Aerostat::start_with(&["--memory", "256MB"]);
    let mut neighbour = Raw::session(node.sql, "aerostat");
    neighbour.query("SELECT 1").unwrap();
    let before = node.metric("aerostat_memory_used_bytes");
    let mut clients = unread(&node, WIDE);
    let resident = node.resident_bytes() >> 20;
    assert!(resident < memory_mb + BESIDE_MB, "{resident} MB");
    let used = node.metric("aerostat_memory_used_bytes");
    assert!(used > before, "nothing is charged");
    assert_eq!(neighbour.query("SELECT 1").unwrap(), ["1"]);
    // Each has all its rows, or was refused; some have.
    let answers: Vec<_> = clients.iter_mut().map(rest).collect();
    let whole = answers.iter().filter(|answer| **answer == Ok(ROWS)).count();
    let refused = answers
        .iter()
        .filter(|answer| **answer == Err("53200".to_owned()));
    assert_eq!(whole + refused.count(), CLIENTS, "{answers:?}");
    assert!(whole >= CLIENTS / 10, "{answers:?}");
    wait_until_given_back(&node, before);
    // Clients that go without reading leave nothing either.
    drop(clients);
    drop(unread(&node, WIDE));
    wait_until_given_back(&node, before);
}

#[test]
fn a_table_is_read_by_slow_clients_though_its_tenant_is_full() {
    let node = Aerostat::start_with(&["--memory", "256MB"]);
    let mut owner = Raw::session(node.sql, "aerostat");
    owner.query("CREATE DATABASE t").unwrap();
    let mut session = Raw::session(node.sql, "t");
    session
        .query("CREATE TABLE w (id int PRIMARY KEY, t text)")
        .unwrap();
    let rows = "SELECT g, repeat(md5(g::text), 30) FROM generate_series(1, 30000) g";
    session.query(&format!("INSERT INTO w {rows}")).unwrap();
    // From now on there is nothing left.
    owner
        .query("ALTER DATABASE t SET (memory_max = '16MB')")
        .unwrap();
    let mut slow = Raw::session(node.sql, "t");
    slow.send_query(b"SELECT * FROM w").unwrap();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(session.query("SELECT count(*) FROM w").unwrap(), ["30000"]);
    assert_eq!(rest(&mut slow), Ok(ROWS));
}

#[test]
fn a_session_keeps_no_more_than_it_may() {
    let node = Aerostat::start_with(&["--memory", "256MB"]);
    let before = {
        let mut session = Raw::session(node.sql, "aerostat");
        session.query("SELECT 1").unwrap();
        node.metric("aerostat_memory_used_bytes")
    };
    let mut session = Raw::session(node.sql, "aerostat");
    let state = |session: &mut Raw, sql: &str| {
        session.send_query(sql.as_bytes()).unwrap();
        let messages = session.read_until_ready().unwrap();
        errors(&messages).first().map(|error| error[&'C'].clone())
    };
    let refused = |code: &str| Some(code.to_owned());
    // Settings.
    let megabyte = "x".repeat(1 << 20);
    let set = format!("SET a.b = '{megabyte}'");
    assert_eq!(state(&mut session, &set), refused("54000"));
    assert_eq!(state(&mut session, "SET a.b = 'x'"), None);
    // Prepared statements.
    let text = "x".repeat(200 << 10);
    let last =
        (0..1_000).find_map(|n| state(&mut session, &format!("PREPARE p{n} AS SELECT '{text}'")));
    assert_eq!(last, refused("53200"));
    assert_eq!(state(&mut session, "DEALLOCATE ALL"), None);
    // Savepoints, each with settings of its own.
    assert_eq!(state(&mut session, "BEGIN"), None);
    let setting = "x".repeat(200 << 10);
    let last = (0..3_000).find_map(|n| {
        let sql = format!("SET a.b = '{n}{setting}'; SAVEPOINT s{n}");
        state(&mut session, &sql)
    });
    assert_eq!(last, refused("53200"));
    assert_eq!(state(&mut session, "ROLLBACK"), None);
    // Cursors.
    assert_eq!(state(&mut session, "BEGIN"), None);
    let last = (0..2_000)
        .find_map(|n| state(&mut session, &format!("DECLARE c{n} CURSOR FOR SELECT {n}")));
    assert_eq!(last, refused("54000"));
    assert_eq!(state(&mut session, "ROLLBACK"), None);
    // Messages beside the result.
    session
        .send_query(b"SELECT count(pg_advisory_unlock(g)) FROM generate_series(1, 100000) g")
        .unwrap();
    let messages = session.read_until_ready().unwrap();
    let notices = messages.iter().filter(|message| message.0 == b'N').count();
    assert_eq!(notices, 1_001);
    drop(session);
    wait_until_given_back(&node, before + PLANS_BYTES);
}

#[test]
fn half_open_sockets_keep_nobody_out() {
    let node = Aerostat::start_with(&["--max-connections", "20", "--authentication-timeout", "3s"]);
    let mut session = Raw::session(node.sql, "aerostat");
    let mut silent: Vec<TcpStream> = (0..500)
        .map(|_| TcpStream::connect(node.sql).unwrap())
        .collect();
    assert_eq!(session.query("SELECT 1").unwrap(), ["1"]);
    let mut other = Raw::session(node.sql, "aerostat");
    assert_eq!(other.query("SELECT 1").unwrap(), ["1"]);
    // Those that came last are let go in their turn, though one of them says a byte now and then.
    let mut last = silent.pop().unwrap();
    let started = Instant::now();
    last.set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    let ended = loop {
        match last.read(&mut [0]) {
            Ok(_) => break true,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break true,
            Err(_) if started.elapsed() > PATIENCE => break false,
            Err(_) => drop(last.write(&[0])),
        }
    };
    assert!(ended && started.elapsed() < Duration::from_secs(10));
    // The pages of HTTP are served beside sockets of that kind, too.
    let web: Vec<TcpStream> = (0..200)
        .map(|_| TcpStream::connect(node.http).unwrap())
        .collect();
    assert_eq!(node.ask("/healthz").0, 200);
    drop(web);
}

#[test]
fn a_client_writes_no_line_of_the_log() {
    let node = Aerostat::start();
    let forged = "eve\n2030-01-01T00:00:00Z ERROR aerostat: forged\r\u{1b}[2J";
    for parameters in [
        &[("user", forged)][..],
        &[("user", "aerostat"), ("database", forged)],
        &[("user", "aerostat"), ("client_encoding", forged)],
        &[
            ("user", "aerostat"),
            ("application_name", forged),
            ("x", forged),
        ],
    ] {
        let mut raw = Raw::open(node.sql);
        raw.send_startup(parameters).unwrap();
        raw.read_to_end();
    }
    let log = node.log();
    assert!(log.contains(r"eve\n2030-01-01"), "{log}");
    assert!(!log.contains("\n2030-01-01"), "{log}");
    assert!(!log.contains(['\r', '\u{1b}']), "{log}");
}
