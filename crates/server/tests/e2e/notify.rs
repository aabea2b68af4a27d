//! LISTEN and NOTIFY between sessions, and sessions that stop others.

use std::time::{Duration, Instant};

use crate::harness::{Aerostat, sqlstate, value};
use crate::postgres::Postgres;
use crate::raw::{Message, Raw, errors};

/// The notifications among messages: channel and payload.
fn notifications(messages: &[Message]) -> Vec<(String, String)> {
    let told = messages.iter().filter(|message| message.0 == b'A');
    let read = |(_, body): &Message| {
        let mut texts = body[4..].split(|byte| *byte == 0);
        let mut text = || String::from_utf8_lossy(texts.next().unwrap()).into_owned();
        (text(), text())
    };
    told.map(read).collect()
}

fn said(channel: &str, payload: &str) -> (String, String) {
    (channel.to_owned(), payload.to_owned())
}

/// What a query brings with it.
fn heard(raw: &mut Raw, sql: &str) -> Vec<(String, String)> {
    raw.send_query(sql.as_bytes()).unwrap();
    let messages = raw.read_until_ready().unwrap();
    assert!(
        errors(&messages).is_empty(),
        "{sql}: {:?}",
        errors(&messages)
    );
    notifications(&messages)
}

#[test]
fn who_listens_is_told_when_a_transaction_commits() {
    let node = Aerostat::start();
    let mut listener = Raw::session(node.sql, "aerostat");
    let mut speaker = Raw::session(node.sql, "aerostat");
    heard(&mut listener, "LISTEN a; LISTEN \"B b\"");
    assert_eq!(
        listener.query("SELECT pg_listening_channels()").unwrap(),
        ["B b", "a"]
    );
    assert_eq!(
        listener
            .query("SELECT c FROM pg_listening_channels() AS t (c) ORDER BY 1")
            .unwrap(),
        ["B b", "a"]
    );

    // At once to who is idle.
    heard(&mut speaker, "NOTIFY a, 'one'");
    assert_eq!(
        notifications(&[listener.read().unwrap()]),
        [said("a", "one")]
    );
    // A transaction is heard when it commits, each saying once, in order; or not at all.
    heard(
        &mut speaker,
        "BEGIN; NOTIFY a, '1'; NOTIFY \"B b\"; NOTIFY a, '1'; NOTIFY nobody",
    );
    heard(
        &mut speaker,
        "SAVEPOINT s; NOTIFY a, 'undone'; ROLLBACK TO s; NOTIFY a, '2'",
    );
    assert_eq!(heard(&mut listener, "SELECT 1"), []);
    heard(&mut speaker, "COMMIT");
    for expected in [said("a", "1"), said("B b", ""), said("a", "2")] {
        assert_eq!(notifications(&[listener.read().unwrap()]), [expected]);
    }
    heard(&mut speaker, "BEGIN; NOTIFY a, 'never'; ROLLBACK");
    speaker
        .send_query(b"NOTIFY a, 'never'; SELECT 1 / 0")
        .unwrap();
    speaker.read_until_ready().unwrap();
    // Functions say it, too, and their statement may fail.
    heard(
        &mut speaker,
        "SELECT pg_notify('a', 'f' || g) FROM generate_series(1, 2) AS g",
    );
    for expected in [said("a", "f1"), said("a", "f2")] {
        assert_eq!(notifications(&[listener.read().unwrap()]), [expected]);
    }
    assert!(
        speaker
            .query("SELECT pg_notify('a', 'x'), 1 / (g - 1) FROM generate_series(1, 2) AS g")
            .is_err()
    );

    // Nothing comes within a transaction, and all of it after its end.
    heard(&mut listener, "BEGIN");
    heard(&mut speaker, "NOTIFY a, 'meanwhile'");
    assert_eq!(heard(&mut listener, "SELECT 1"), []);
    assert_eq!(heard(&mut listener, "COMMIT"), [said("a", "meanwhile")]);
    // One hears oneself; what was not committed is not listened to.
    assert_eq!(
        heard(&mut listener, "NOTIFY a, 'self'"),
        [said("a", "self")]
    );
    heard(&mut listener, "BEGIN; LISTEN c; UNLISTEN a; ROLLBACK");
    assert_eq!(heard(&mut listener, "NOTIFY a; NOTIFY c"), [said("a", "")]);
    heard(&mut listener, "UNLISTEN a");
    assert_eq!(
        heard(&mut listener, "NOTIFY a; NOTIFY \"B b\""),
        [said("B b", "")]
    );
    heard(&mut listener, "DISCARD ALL");
    assert_eq!(heard(&mut listener, "NOTIFY \"B b\""), []);
    heard(&mut listener, "LISTEN a; UNLISTEN *");
    assert_eq!(heard(&mut listener, "NOTIFY a"), []);

    // Another database is another world.
    speaker.query("CREATE DATABASE other").unwrap();
    heard(&mut listener, "LISTEN a");
    heard(
        &mut Raw::session(node.sql, "other"),
        "NOTIFY a, 'elsewhere'",
    );
    assert_eq!(heard(&mut listener, "SELECT 1"), []);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_hears_is_bounded() {
    let node = Aerostat::start();
    let client = node.connect("aerostat").await;
    for (sql, code) in [
        ("NOTIFY \"\"", "42601"),
        ("SELECT pg_notify('', 'x')", "22023"),
        ("SELECT pg_notify(repeat('x', 64), 'x')", "22023"),
        ("SELECT pg_notify('a', repeat('x', 8000))", "22023"),
    ] {
        assert_eq!(sqlstate(&client, sql).await, code, "{sql}");
    }
    // One that stays in a transaction hears nothing: who speaks is refused at last.
    let listener = node.connect("aerostat").await;
    listener.batch_execute("LISTEN a").await.unwrap();
    listener.batch_execute("BEGIN").await.unwrap();
    let say = "SELECT pg_notify('a', g || repeat('x', 7900)) FROM generate_series(1, 1000) AS g";
    let mut said = 0;
    let refused = loop {
        match client.simple_query(say).await {
            Ok(_) => said += 1,
            Err(error) => break error.code().unwrap().code().to_owned(),
        }
        assert!(said < 10);
    };
    assert_eq!((said, refused.as_str()), (2, "54000"));
    listener.batch_execute("ROLLBACK").await.unwrap();
    listener.batch_execute("SELECT 1").await.unwrap();
    client.batch_execute(say).await.unwrap();
}

#[test]
fn sessions_stop_others_as_far_as_their_rights_go() {
    let node = Aerostat::start();
    let mut admin = Raw::session(node.sql, "aerostat");
    admin
        .query("CREATE ROLE one LOGIN; CREATE ROLE two LOGIN; GRANT CONNECT ON DATABASE aerostat TO one, two")
        .unwrap();
    let mut one = Raw::session_as(node.sql, "one", "aerostat");
    let mut two = Raw::session_as(node.sql, "two", "aerostat");
    let pid = |raw: &mut Raw| raw.query("SELECT pg_backend_pid()").unwrap().swap_remove(0);
    let (of_admin, of_one) = (pid(&mut admin), pid(&mut one));
    let shown = format!("SELECT usename FROM pg_stat_activity WHERE pid = {of_one}");
    assert_eq!(admin.query(&shown).unwrap(), ["one"]);

    for function in ["pg_cancel_backend", "pg_terminate_backend"] {
        for target in [&of_one, &of_admin] {
            let error = two
                .query(&format!("SELECT {function}({target})"))
                .unwrap_err();
            assert!(error.to_string().contains("42501"), "{function}: {error}");
        }
        // Nobody has this number.
        assert_eq!(
            two.query(&format!("SELECT {function}(2147483647)"))
                .unwrap(),
            ["f"]
        );
    }
    // What runs ends, and the session goes on.
    one.send_query(b"SELECT pg_sleep(60)").unwrap();
    let started = Instant::now();
    let mut another = Raw::session_as(node.sql, "one", "aerostat");
    let mut ended = false;
    while !ended && started.elapsed() < Duration::from_secs(20) {
        let active = format!(
            "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE pid = {of_one} AND state = 'active'"
        );
        ended = another.query(&active).unwrap() == ["t"];
    }
    let messages = one.read_until_ready().unwrap();
    assert_eq!(errors(&messages)[0][&'C'], "57014");
    assert_eq!(one.query("SELECT 1").unwrap(), ["1"]);
    // A request to stop nothing stops nothing.
    assert_eq!(
        admin
            .query(&format!("SELECT pg_cancel_backend({of_one})"))
            .unwrap(),
        ["t"]
    );
    assert_eq!(one.query("SELECT 2").unwrap(), ["2"]);
    // The whole session ends, idle or not.
    let terminate = format!("SELECT pg_terminate_backend({of_one}, 10000)");
    assert_eq!(another.query(&terminate).unwrap(), ["t"]);
    let farewell = String::from_utf8_lossy(&one.read_to_end()).into_owned();
    assert!(farewell.contains("57P01"), "{farewell}");
    assert_eq!(admin.query(&shown).unwrap(), Vec::<String>::new());
    let of_two = pid(&mut two);
    two.send_query(b"SELECT pg_sleep(60)").unwrap();
    admin
        .query(&format!("SELECT pg_terminate_backend({of_two})"))
        .unwrap();
    let farewell = String::from_utf8_lossy(&two.read_to_end()).into_owned();
    assert!(farewell.contains("57P01"), "{farewell}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_in_the_way_is_told() {
    let node = Aerostat::start();
    let (holder, waiter, admin) = (
        node.connect("aerostat").await,
        node.connect("aerostat").await,
        node.connect("aerostat").await,
    );
    admin
        .batch_execute("CREATE TABLE t (a int PRIMARY KEY); INSERT INTO t VALUES (1)")
        .await
        .unwrap();
    let held = value(&holder, "SELECT pg_backend_pid()").await;
    let waits = value(&waiter, "SELECT pg_backend_pid()").await;
    let ask = format!("SELECT array_to_string(pg_blocking_pids({waits}), ',')");
    assert_eq!(value(&admin, &ask).await, "");
    for (holds, wants) in [
        ("UPDATE t SET a = 1", "DELETE FROM t"),
        ("LOCK TABLE t", "SELECT * FROM t"),
        (
            "SELECT pg_advisory_xact_lock(1)",
            "SELECT pg_advisory_lock(1)",
        ),
    ] {
        holder
            .batch_execute(&format!("BEGIN; {holds}"))
            .await
            .unwrap();
        let waiting = waiter.batch_execute(wants);
        let look = async {
            let started = Instant::now();
            while value(&admin, &ask).await != held {
                assert!(
                    started.elapsed() < Duration::from_secs(20),
                    "{holds} | {wants}"
                );
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            holder.batch_execute("ROLLBACK").await.unwrap();
        };
        let (waited, ()) = tokio::join!(waiting, look);
        waited.unwrap();
        assert_eq!(value(&admin, &ask).await, "");
    }
}

/// What a role becomes, and what it may then do: the same here and in PostgreSQL.
const ROLES: &[&str] = &[
    "SELECT current_user = session_user, current_setting('role')",
    "SET ROLE r_one",
    "SELECT current_user, session_user = current_user, current_setting('is_superuser')",
    "SELECT count(*) FROM r_table",
    "SET ROLE r_two",
    "SELECT current_user",
    "SELECT count(*) FROM r_table",
    "RESET ALL",
    "SELECT current_user",
    "RESET ROLE",
    "SELECT count(*) FROM r_table",
    "BEGIN; SET LOCAL ROLE r_two",
    "SELECT current_user",
    "COMMIT",
    "SELECT current_user = session_user",
    "BEGIN; SET ROLE r_two; ROLLBACK",
    "SELECT current_user = session_user",
    "SET SESSION AUTHORIZATION r_one",
    "SELECT session_user, current_user",
    "SET ROLE r_two",
    "SET ROLE r_one",
    "SET ROLE NONE",
    "SELECT session_user, current_user",
    "SET SESSION AUTHORIZATION r_two",
    "SELECT session_user, current_user",
    "RESET SESSION AUTHORIZATION",
    "SELECT session_user = current_user",
    "SET ROLE nothing",
    "SELECT set_config('role', 'r_one', false)",
    "SELECT current_user",
    "DISCARD ALL",
    "SELECT session_user = current_user",
    "SELECT count(*) FROM r_table WHERE a = 1",
    "SET ROLE r_two; SELECT 1",
    "SELECT count(*) FROM r_table WHERE a = 1",
    "RESET ROLE",
];

#[tokio::test(flavor = "multi_thread")]
async fn roles_are_taken_on_and_left_as_in_postgresql() {
    let node = Aerostat::start();
    let postgres = Postgres::find().await;
    let mut clients = vec![node.connect("aerostat").await];
    if let Some(postgres) = &postgres {
        let database = postgres.create("set_role").await;
        clients.push(postgres.connect(&database).await);
    }
    let mut all = Vec::new();
    for client in &clients {
        client
            .batch_execute("DROP ROLE IF EXISTS r_one")
            .await
            .unwrap();
        client
            .batch_execute("DROP ROLE IF EXISTS r_two")
            .await
            .unwrap();
        client
            .batch_execute("CREATE ROLE r_one; CREATE ROLE r_two")
            .await
            .unwrap();
        client
            .batch_execute(
                "CREATE TABLE r_table (a int PRIMARY KEY); GRANT SELECT ON r_table TO r_one",
            )
            .await
            .unwrap();
        let mut answers = Vec::new();
        for sql in ROLES {
            answers.push(match client.simple_query(sql).await {
                Ok(messages) => format!("{messages:?}"),
                Err(error) => {
                    let error = error.as_db_error().unwrap();
                    format!("{} {}", error.code().code(), error.message())
                }
            });
        }
        client
            .batch_execute("DROP TABLE r_table; DROP ROLE r_one; DROP ROLE r_two")
            .await
            .unwrap();
        all.push(answers);
    }
    for (at, sql) in ROLES.iter().enumerate() {
        for answers in &all {
            assert_eq!(answers[at], all[0][at], "{sql}");
        }
    }
    assert!(all[0][6].starts_with("42501"), "{}", all[0][6]);
}
