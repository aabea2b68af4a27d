//! What a session is promised: it ends when it is idle for too long and gives back what it holds,
//! hears the messages that it wants, and finds itself in the views about sessions.

use std::process::Command;

use crate::harness::{Aerostat, sqlstate, value};
use crate::raw::{Message, Raw, errors, fields};

/// The last words of a session that the node ends, as severity, SQLSTATE and message.
fn last_words(session: &mut Raw) -> (String, String, String) {
    let mut messages = Vec::new();
    // The connection's end is the loop's.
    while let Ok(message) = session.read() {
        messages.push(message);
    }
    let mut errors = errors(&messages);
    assert_eq!(errors.len(), 1, "{messages:?}");
    let mut field = |name| errors[0].remove(&name).unwrap();
    (field('S'), field('C'), field('M'))
}

fn in_transaction() -> (String, String, String) {
    (
        "FATAL".to_owned(),
        "25P03".to_owned(),
        "terminating connection due to idle-in-transaction timeout".to_owned(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_idle_in_a_transaction_ends_and_gives_back_what_it_holds() {
    let node = Aerostat::start();
    let other = node.connect("aerostat").await;
    other
        .batch_execute("CREATE TABLE t (k int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1)")
        .await
        .unwrap();
    let mut idle = Raw::session(node.sql, "aerostat");
    idle.query("SET idle_in_transaction_session_timeout = '200ms'")
        .unwrap();
    idle.query("BEGIN; UPDATE t SET v = 2; SELECT pg_advisory_lock(7)")
        .unwrap();
    // It waits for the row as long as the idle session is there, and for its end alone.
    other
        .batch_execute(
            "SET lock_timeout = '20s'; UPDATE t SET v = v + 10; SELECT pg_advisory_lock(7)",
        )
        .await
        .unwrap();
    assert_eq!(value(&other, "SELECT v FROM t").await, "11");
    assert_eq!(last_words(&mut idle), in_transaction());

    // A block that has failed holds nothing up but its snapshot and its place; it ends, too.
    let mut failed = Raw::session(node.sql, "aerostat");
    failed
        .query("SET idle_in_transaction_session_timeout = '100ms'")
        .unwrap();
    failed.query("BEGIN").unwrap();
    assert!(failed.query("SELECT 1 / 0").is_err());
    assert_eq!(failed.status(), 'E');
    assert_eq!(last_words(&mut failed), in_transaction());

    // Half a message is no sign of life.
    let mut half = Raw::session(node.sql, "aerostat");
    half.query("SET idle_in_transaction_session_timeout = '100ms'")
        .unwrap();
    half.query("BEGIN").unwrap();
    half.send_bytes(b"Q\0\0\0\x20SELECT").unwrap();
    assert_eq!(last_words(&mut half), in_transaction());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_counts_idle_time_alone() {
    let node = Aerostat::start();
    let mut session = Raw::session(node.sql, "aerostat");
    session
        .query("SET idle_in_transaction_session_timeout = '100ms'")
        .unwrap();
    session.query("SET idle_session_timeout = '150ms'").unwrap();
    // A statement may run for longer than its session may be idle.
    session.query("BEGIN; SELECT pg_sleep(0.4)").unwrap();
    session.query("COMMIT; SELECT pg_sleep(0.4)").unwrap();
    let (severity, code, message) = last_words(&mut session);
    assert_eq!((severity.as_str(), code.as_str()), ("FATAL", "57P05"));
    assert_eq!(
        message,
        "terminating connection due to idle-session timeout"
    );

    // Without a transaction the other limit does not count, and 0 is none.
    let mut patient = Raw::session(node.sql, "aerostat");
    patient
        .query("SET idle_in_transaction_session_timeout = '1ms'; SET idle_session_timeout = 0")
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(patient.query("SELECT 'here'").unwrap(), ["here"]);
}

fn notices(messages: &[Message]) -> Vec<(String, String)> {
    let told = messages.iter().filter(|message| message.0 == b'N');
    let told = told.map(|message| fields(&message.1));
    told.map(|mut fields| (fields.remove(&'S').unwrap(), fields.remove(&'M').unwrap()))
        .collect()
}

fn said(session: &mut Raw, sql: &str) -> Vec<(String, String)> {
    session.send_query(sql.as_bytes()).unwrap();
    let messages = session.read_until_ready().unwrap();
    assert!(errors(&messages).is_empty(), "{sql}: {messages:?}");
    notices(&messages)
}

#[test]
fn messages_come_from_the_level_on_that_the_client_wants() {
    let node = Aerostat::start();
    let mut session = Raw::session(node.sql, "aerostat");
    let notice = || {
        let message = "table \"nothing\" does not exist, skipping";
        ("NOTICE".to_owned(), message.to_owned())
    };
    let warning = || {
        let message = "there is no transaction in progress";
        ("WARNING".to_owned(), message.to_owned())
    };
    let both = "DROP TABLE IF EXISTS nothing; COMMIT";
    for (level, expected) in [
        ("debug5", vec![notice(), warning()]),
        ("log", vec![notice(), warning()]),
        ("notice", vec![notice(), warning()]),
        ("warning", vec![warning()]),
        ("error", vec![]),
    ] {
        session
            .query(&format!("SET client_min_messages = {level}"))
            .unwrap();
        assert_eq!(said(&mut session, both), expected, "{level}");
    }
    // What counts is the level when something is said, not when it is sent.
    let changing = "SET client_min_messages = error; DROP TABLE IF EXISTS nothing; \
                    SET client_min_messages = notice; COMMIT; SET client_min_messages = error";
    assert_eq!(said(&mut session, changing), [warning()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_find_themselves_in_the_views() {
    let node = Aerostat::start();
    let mut session = Raw::session(node.sql, "aerostat");
    session.query("SET application_name = 'mine'").unwrap();
    let other = node.connect("aerostat").await;
    let activity = "SELECT client_addr || ' ' || (client_port > 0)::text FROM pg_stat_activity \
                    WHERE application_name = 'mine'";
    assert_eq!(value(&other, activity).await, "127.0.0.1 true");
    assert_eq!(
        session
            .query("SELECT inet_client_addr() IS NOT NULL AND inet_client_port() IS NOT NULL")
            .unwrap(),
        ["t"]
    );
    let own = "FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let sql = format!("SELECT concat_ws(' ', ssl, version, cipher, bits) {own}");
    assert_eq!(session.query(&sql).unwrap(), ["f"]);

    // Sessions of others are for superusers.
    other
        .batch_execute("CREATE ROLE guest LOGIN; GRANT CONNECT ON DATABASE aerostat TO guest")
        .await
        .unwrap();
    let mut guest = Raw::session_as(node.sql, "guest", "aerostat");
    assert_eq!(
        guest.query("SELECT count(*) FROM pg_stat_ssl").unwrap(),
        ["1"]
    );
    assert_eq!(value(&other, "SELECT count(*) FROM pg_stat_ssl").await, "3");
}

#[test]
fn a_session_within_tls_knows_its_cipher() {
    if Command::new("psql").arg("--version").output().is_err() {
        eprintln!("skipped: no psql (scripts/setup installs it)");
        return;
    }
    let node = Aerostat::start_with(&["--tls", "self-signed"]);
    let url = format!(
        "postgres://aerostat@127.0.0.1:{}/aerostat?sslmode=require",
        node.sql.port()
    );
    let own = "SELECT ssl, version, cipher, bits FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    let output = Command::new("psql")
        .args(["-X", "-A", "-t", "-c", own, "-c", "\\conninfo", &url])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (ours, theirs) = text.split_once('\n').unwrap();
    let told: Vec<&str> = ours.split('|').collect();
    assert_eq!(told[..2], ["t", "TLSv1.3"], "{text}");
    // libpq says the same of its end: `SSL connection (protocol: TLSv1.3, cipher: …`.
    assert!(theirs.contains(&format!("cipher: {}", told[2])), "{text}");
    let bits = if told[2].contains("128") {
        "128"
    } else {
        "256"
    };
    assert_eq!(told[3], bits, "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn open_cursors_are_told() {
    let node = Aerostat::start();
    let mut session = Raw::session(node.sql, "aerostat");
    let cursors = "SELECT concat_ws(' ', name, is_holdable, is_binary, is_scrollable, \
                   creation_time <= now() + interval '1 minute', statement) FROM pg_cursors ORDER BY name";
    assert_eq!(session.query(cursors).unwrap(), [""; 0]);
    session.query("BEGIN").unwrap();
    for declare in [
        "DECLARE a CURSOR FOR SELECT 1",
        "DECLARE b SCROLL CURSOR WITH HOLD FOR SELECT 2",
    ] {
        session.query(declare).unwrap();
    }
    assert_eq!(
        session.query(cursors).unwrap(),
        [
            "a f f f t DECLARE a CURSOR FOR SELECT 1",
            "b t f t t DECLARE b SCROLL CURSOR WITH HOLD FOR SELECT 2",
        ]
    );
    session.query("COMMIT").unwrap();
    let names = "SELECT name FROM pg_cursors";
    assert_eq!(session.query(names).unwrap(), ["b"]);
    // They are the session's own.
    let other = node.connect("aerostat").await;
    assert_eq!(value(&other, "SELECT count(*) FROM pg_cursors").await, "0");
    assert_eq!(sqlstate(&other, "FETCH b").await, "34000");
    session.query("CLOSE b").unwrap();
    assert_eq!(session.query(names).unwrap(), [""; 0]);
}

/// A request to cancel what the session of this number runs, and the connection's end.
fn request_cancel(node: &Aerostat, pid: i32, secret: i32) {
    let mut request = Raw::open(node.sql);
    let words = [16, 80_877_102, pid, secret];
    request
        .send_bytes(&words.map(i32::to_be_bytes).concat())
        .unwrap();
    assert!(request.read_to_end().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_has_one_number_everywhere() {
    let node = Aerostat::start();
    let first = node.connect("aerostat").await;
    first
        .batch_execute("CREATE ROLE nobody LOGIN CONNECTION LIMIT 0; GRANT CONNECT ON DATABASE aerostat TO nobody; CREATE TABLE t (a int)")
        .await
        .unwrap();
    // Sessions that get no place have numbers, too; nobody else's shift by that.
    assert!(Raw::try_session_as(node.sql, "nobody", "aerostat").is_err());
    for _ in 0..3 {
        let mut session = Raw::session(node.sql, "aerostat");
        let (pid, secret) = session.key();
        let told = [pid.to_string()];
        session.query("BEGIN; LOCK TABLE t").unwrap();
        for sql in [
            "SELECT pg_backend_pid()",
            "SELECT pid FROM pg_stat_activity WHERE query LIKE 'SELECT pid FROM pg_stat_activity%'",
            "SELECT pid FROM pg_stat_ssl WHERE pid = pg_backend_pid()",
            "SELECT pid FROM pg_locks WHERE relation = 't'::regclass",
        ] {
            assert_eq!(session.query(sql).unwrap(), told, "{sql}");
        }
        session.query("ROLLBACK").unwrap();

        // Another secret, or another session's number, cancels nothing.
        session.send_query(b"SELECT pg_sleep(30)").unwrap();
        wait_until_active(&first, pid).await;
        request_cancel(&node, pid, secret.wrapping_add(1));
        request_cancel(&node, pid + 1, secret);
        wait_until_active(&first, pid).await;
        request_cancel(&node, pid, secret);
        let messages = session.read_until_ready().unwrap();
        assert_eq!(errors(&messages)[0][&'C'], "57014");
    }
}

async fn wait_until_active(onlooker: &tokio_postgres::Client, pid: i32) {
    let state = format!("SELECT state FROM pg_stat_activity WHERE pid = {pid}");
    while value(onlooker, &state).await != "active" {}
}
