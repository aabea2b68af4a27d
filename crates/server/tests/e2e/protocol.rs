//! Abuse of the wire protocol: whatever arrives, the node goes on.

use std::time::{Duration, Instant};

use crate::harness::Aerostat;
use crate::raw::{Message, Raw, errors, values};

/// Bytes that are no startup message.
const BAD_STARTUPS: &[(&str, &[u8])] = &[
    ("nothing", b""),
    ("a length alone", &[0, 0, 0, 8]),
    ("half a length", &[0, 0]),
    ("length zero", &[0, 0, 0, 0, 0, 0, 0, 0]),
    ("length three", &[0, 0, 0, 3]),
    ("a negative length", &[0xff, 0xff, 0xff, 0xff, 0, 3, 0, 0]),
    ("the longest length", &[0x7f, 0xff, 0xff, 0xff, 0, 3, 0, 0]),
    ("HTTP", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
    ("protocol 2", &[0, 0, 0, 8, 0, 2, 0, 0]),
    ("protocol 99", &[0, 0, 0, 9, 0, 99, 0, 0, 0]),
    (
        "no terminator",
        &[0, 0, 0, 12, 0, 3, 0, 0, b'u', b's', b'e', b'r'],
    ),
    (
        "bytes that are not UTF-8",
        &[0, 0, 0, 15, 0, 3, 0, 0, 0xff, 0xfe, 0, 0xff, 0, 0, 0],
    ),
    (
        "TLS where none is",
        &[0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3],
    ),
    (
        "a cancel request that fits nobody",
        &[0, 0, 0, 16, 4, 210, 22, 46, 0, 0, 0, 1, 0, 0, 0, 2],
    ),
    ("a short cancel request", &[0, 0, 0, 8, 4, 210, 22, 46]),
];

/// Messages after the startup that no client should send.
fn bad_messages() -> Vec<(&'static str, u8, Vec<u8>)> {
    let parse =
        |name: &str, sql: &str| [name.as_bytes(), &[0], sql.as_bytes(), &[0, 0, 0]].concat();
    vec![
        ("an unknown type", b'\x01', vec![1, 2, 3]),
        ("a query without terminator", b'Q', b"SELECT 1".to_vec()),
        (
            "a query with a terminator inside",
            b'Q',
            b"SELECT 1\0SELECT 2\0".to_vec(),
        ),
        ("an empty query body", b'Q', Vec::new()),
        ("a query that is not UTF-8", b'Q', vec![0xff, 0xfe, 0]),
        ("copy data outside of COPY", b'd', b"1\n".to_vec()),
        ("copy done outside of COPY", b'c', Vec::new()),
        ("copy fail outside of COPY", b'f', b"no\0".to_vec()),
        ("a password nobody asked for", b'p', b"secret\0".to_vec()),
        (
            "bind of a statement that is not",
            b'B',
            b"\0nope\0\0\0\0\0\0\0".to_vec(),
        ),
        ("bind cut short", b'B', b"\0".to_vec()),
        (
            "bind that promises parameters",
            b'B',
            [&b"\0\0"[..], &[0, 0, 0x7f, 0xff]].concat(),
        ),
        (
            "execute of a portal that is not",
            b'E',
            b"nope\0\0\0\0\0".to_vec(),
        ),
        ("execute cut short", b'E', b"x".to_vec()),
        ("describe of neither", b'D', b"Xnope\0".to_vec()),
        (
            "describe of a statement that is not",
            b'D',
            b"Snope\0".to_vec(),
        ),
        ("close of neither", b'C', b"?\0".to_vec()),
        ("parse of no SQL", b'P', parse("", "SELEC 1")),
        ("parse cut short", b'P', b"a".to_vec()),
        (
            "parse with 65,535 parameter types that are not there",
            b'P',
            [&b"\0SELECT 1\0"[..], &[0xff, 0xff]].concat(),
        ),
        (
            "parse of a type that is not",
            b'P',
            [&b"\0SELECT $1\0"[..], &[0, 1, 0xff, 0xff, 0xff, 0xff]].concat(),
        ),
        ("a function call", b'F', vec![0, 0, 0, 1, 0, 0, 0, 0, 0, 0]),
    ]
}

fn assert_alive(node: &Aerostat, after: &str) {
    let rows = Raw::session(node.sql, "aerostat").query("SELECT 1");
    assert!(
        rows.is_ok_and(|rows| rows == ["1"]),
        "the node does not answer after {after}"
    );
}

#[test]
fn no_startup_message_brings_the_node_down() {
    let node = Aerostat::start();
    for (name, bytes) in BAD_STARTUPS {
        let mut raw = Raw::open(node.sql);
        raw.send_bytes(bytes).ok();
        drop(raw);
        assert_alive(&node, name);
    }
}

#[test]
fn no_message_brings_the_node_down() {
    let node = Aerostat::start();
    for (name, kind, body) in bad_messages() {
        let mut raw = Raw::session(node.sql, "aerostat");
        raw.send(kind, &body).ok();
        // Sync: a server that keeps the connection answers, one that closes it may.
        raw.send(b'S', &[]).ok();
        if let Ok(messages) = raw.read_until_ready() {
            let codes: Vec<_> = errors(&messages)
                .iter()
                .map(|error| error[&'C'].clone())
                .collect();
            assert!(!codes.contains(&"XX000".to_owned()), "{name}: {codes:?}");
        }
        drop(raw);
        assert_alive(&node, name);
    }
}

#[test]
fn messages_cut_anywhere_are_survived() {
    let node = Aerostat::start();
    let whole = b"Q\0\0\0\x0dSELECT 1\0";
    for cut in 1..whole.len() {
        let mut raw = Raw::session(node.sql, "aerostat");
        raw.send_bytes(&whole[..cut]).unwrap();
        drop(raw);
    }
    assert_alive(&node, "cut messages");
    node.wait_for_metric("aerostat_tenant_connections{tenant=\"aerostat\"}", 0.0);
}

#[test]
fn a_message_of_a_gibibyte_is_refused_before_it_is_kept() {
    let node = Aerostat::start();
    let before = node.metric("aerostat_process_resident_memory_bytes");
    let mut raw = Raw::session(node.sql, "aerostat");
    let chunk = vec![b'x'; 1 << 20];
    let sent = raw
        .send_bytes(&[b'Q', 0x40, 0, 0, 4])
        .and_then(|()| (0..1024).try_for_each(|_| raw.send_bytes(&chunk)));
    // Refused while sending, or answered with an error at the end; both are fine.
    if sent.is_ok() {
        let answer = raw.read_to_end();
        assert!(answer.contains(&b'E'), "no error for a gibibyte");
    }
    drop(raw);
    assert_alive(&node, "a gibibyte");
    let grown = node.metric("aerostat_process_resident_memory_bytes") - before;
    assert!(
        grown < f64::from(512 << 20),
        "the node grew by {grown} bytes"
    );
}

#[test]
fn a_value_of_a_gibibyte_in_a_copy_is_refused() {
    let node = Aerostat::start();
    let mut raw = Raw::session(node.sql, "aerostat");
    raw.query("CREATE TABLE g (t text)").unwrap();
    raw.send_query(b"COPY g FROM STDIN").unwrap();
    assert_eq!(raw.read().unwrap().0, b'G');
    let chunk = vec![b'x'; 1 << 20];
    let sent = (0..1024)
        .try_for_each(|_| raw.send(b'd', &chunk))
        .and_then(|()| raw.send(b'c', &[]));
    if sent.is_ok()
        && let Ok(messages) = raw.read_until_ready()
    {
        assert_eq!(
            errors(&messages).len(),
            1,
            "no error for a value of a gibibyte"
        );
    }
    drop(raw);
    let mut raw = Raw::session(node.sql, "aerostat");
    assert_eq!(raw.query("SELECT count(*) FROM g").unwrap(), ["0"]);
}

#[test]
fn idle_strangers_do_not_keep_users_out() {
    let node = Aerostat::start();
    let strangers: Vec<Raw> = (0..200).map(|_| Raw::open(node.sql)).collect();
    let started = Instant::now();
    assert_alive(&node, "200 connections that say nothing");
    assert!(started.elapsed() < Duration::from_secs(10));
    drop(strangers);
    assert_alive(&node, "their leaving");
}

#[test]
fn too_many_connections_are_told_so() {
    let node = Aerostat::start_with(&["--max-connections", "3"]);
    let sessions: Vec<Raw> = (0..3).map(|_| Raw::session(node.sql, "aerostat")).collect();
    let mut extra = Raw::open(node.sql);
    extra
        .send_startup(&[("user", "aerostat"), ("database", "aerostat")])
        .unwrap();
    let (kind, body) = extra.read().unwrap();
    assert_eq!(kind, b'E');
    assert_eq!(errors(&[(kind, body)])[0][&'C'], "53300");
    drop(sessions);
    node.wait_for_metric("aerostat_tenant_connections{tenant=\"aerostat\"}", 0.0);
    assert_alive(&node, "room again");
}

#[test]
fn pipelined_messages_are_answered_in_order() {
    let node = Aerostat::start();
    let mut raw = Raw::session(node.sql, "aerostat");
    for n in 0..100 {
        raw.send_query(format!("SELECT {n}").as_bytes()).unwrap();
    }
    for n in 0..100 {
        let messages = raw.read_until_ready().unwrap();
        let row = messages.iter().find(|message| message.0 == b'D').unwrap();
        assert!(row.1.ends_with(n.to_string().as_bytes()));
    }
}

/// The SQLSTATE of the first error among messages.
fn state(messages: &[Message]) -> Option<String> {
    errors(messages).first().map(|error| error[&'C'].clone())
}

/// The rows among messages.
fn rows_of(messages: &[Message]) -> Vec<String> {
    let rows = messages.iter().filter(|(kind, _)| *kind == b'D');
    let shown = rows.map(|(_, body)| values(body).into_iter().map(Option::unwrap_or_default));
    shown.map(|row| row.collect::<Vec<_>>().join("|")).collect()
}

/// PREPARE and the protocol share the names of prepared statements, as in PostgreSQL: what a pool
/// discards is gone, and each finds what the other has prepared.
#[test]
fn prepared_statements_have_one_space_of_names() {
    let node = Aerostat::start();
    let mut raw = Raw::session(node.sql, "aerostat");
    let parse = |raw: &mut Raw, name: &str, sql: &str| {
        raw.send(b'P', format!("{name}\0{sql}\0\0\0").as_bytes())
            .unwrap();
        raw.send(b'S', b"").unwrap();
        state(&raw.read_until_ready().unwrap())
    };
    let query = |raw: &mut Raw, sql: &str| {
        raw.send_query(sql.as_bytes()).unwrap();
        raw.read_until_ready().unwrap()
    };
    let run = |raw: &mut Raw, name: &str| {
        raw.send(b'B', format!("\0{name}\0\0\0\0\0\0\0").as_bytes())
            .unwrap();
        raw.send(b'E', b"\0\0\0\0\0").unwrap();
        raw.send(b'S', b"").unwrap();
        let messages = raw.read_until_ready().unwrap();
        match state(&messages) {
            None => rows_of(&messages).join(","),
            Some(state) => state,
        }
    };
    assert_eq!(parse(&mut raw, "p", "select 1"), None);
    assert_eq!(parse(&mut raw, "p", "select 2").as_deref(), Some("42P05"));
    assert_eq!(
        state(&query(&mut raw, "prepare p as select 2")).as_deref(),
        Some("42P05")
    );
    assert_eq!(rows_of(&query(&mut raw, "execute p")), ["1"]);
    assert_eq!(state(&query(&mut raw, "prepare s as select 3")), None);
    assert_eq!(run(&mut raw, "s"), "3");
    let shown = query(
        &mut raw,
        "select name, statement, from_sql from pg_prepared_statements order by name",
    );
    assert_eq!(
        rows_of(&shown),
        ["p|select 1|f", "s|prepare s as select 3|t"]
    );
    // An INSERT that only the fast path has read.
    query(&mut raw, "create table t (id int primary key, v text)");
    assert_eq!(
        parse(&mut raw, "i", "insert into t values (1, 'a'), (2, 'b')"),
        None
    );
    assert_eq!(state(&query(&mut raw, "execute i")), None);
    assert_eq!(rows_of(&query(&mut raw, "select count(*) from t")), ["2"]);
    // The protocol prepares any statement, also one that would run itself for ever.
    for text in [
        "execute u",
        "begin",
        "vacuum",
        "lock table t",
        "create table u (a int)",
        "",
    ] {
        assert_eq!(parse(&mut raw, "u", text), None, "{text}");
        let ran = state(&query(&mut raw, "execute u"));
        assert_eq!(ran.as_deref(), Some("0A000"), "{text}");
        assert_eq!(state(&query(&mut raw, "deallocate u")), None);
    }
    let prepared = query(&mut raw, "prepare u as execute u; execute u");
    assert!(state(&prepared).is_some());
    query(&mut raw, "deallocate all");
    assert_eq!(parse(&mut raw, "p", "select 1"), None);
    assert_eq!(state(&query(&mut raw, "prepare s as select 3")), None);
    assert_eq!(parse(&mut raw, "i", "insert into t values (3, 'c')"), None);
    for (forget, gone) in [
        ("deallocate p", vec!["p"]),
        ("deallocate all", vec!["p", "s", "i"]),
        ("discard all", vec!["p"]),
    ] {
        assert_eq!(state(&query(&mut raw, forget)), None);
        for name in gone {
            assert_eq!(run(&mut raw, name), "26000", "{name} after {forget}");
        }
        assert_eq!(parse(&mut raw, "p", "select 4"), None, "after {forget}");
        assert_eq!(run(&mut raw, "p"), "4");
    }
    raw.send(b'C', b"Sp\0").unwrap();
    raw.send(b'C', b"Snone\0").unwrap();
    raw.send(b'S', b"").unwrap();
    assert_eq!(state(&raw.read_until_ready().unwrap()), None);
    assert_eq!(
        state(&query(&mut raw, "execute p")).as_deref(),
        Some("26000")
    );
}
