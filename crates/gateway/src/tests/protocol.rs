//! Startup, both query protocols, portals, pipelines, cancel, COPY and shutdown over raw sockets.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use tokio::time::{sleep, timeout};

use super::{
    fake::Fake,
    raw::{
        PATIENCE, Raw, Reply, bind, describe, execute, kinds, message, node, node_with, parse,
        query, startup, sync,
    },
};
use crate::{GatewayOptions, TlsOptions};

async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        sleep(Duration::from_millis(5)).await;
    }
}

fn key(replies: &[Reply]) -> Vec<u8> {
    replies
        .iter()
        .find(|reply| reply.kind == b'K')
        .unwrap()
        .body
        .clone()
}

async fn cancel(address: std::net::SocketAddr, key: &[u8]) {
    let mut other = Raw::open(address).await;
    other
        .send(&[&16u32.to_be_bytes()[..], &80_877_102u32.to_be_bytes(), key].concat())
        .await;
    assert!(other.until_closed().await.is_empty());
}

#[tokio::test]
async fn startup_tells_the_parameters() {
    let node = node().await;
    let (_, replies) = Raw::login(node.address).await;
    assert_eq!(
        key(&replies)[..4],
        1_000_i32.to_be_bytes(),
        "the session's number"
    );
    let parameters: Vec<String> = replies
        .iter()
        .filter(|r| r.kind == b'S')
        .map(|r| r.text().replace('\0', "="))
        .collect();
    for expected in [
        "server_encoding=UTF8",
        "client_encoding=UTF8",
        "DateStyle=ISO, MDY",
        "is_superuser=on",
        "TimeZone=UTC",
        "integer_datetimes=on",
        "standard_conforming_strings=on",
        "session_authorization=ann",
        "IntervalStyle=postgres",
    ] {
        assert!(
            parameters.iter().any(|p| p == expected),
            "{expected} in {parameters:?}"
        );
    }
    assert!(
        parameters
            .iter()
            .any(|p| p.starts_with("server_version=15.8 (Aerostat"))
    );
    assert_eq!((replies[0].kind, &replies[0].body[..]), (b'R', &[0; 4][..]));
    assert_eq!(replies.last().unwrap().body, b"I");
}

#[tokio::test]
async fn clients_that_may_not_come_in_are_told_why() {
    let options = GatewayOptions {
        connections_max: 1,
        ..GatewayOptions::default()
    };
    let node = node_with(Fake::default(), options).await;
    let refused = async |parameters: &[(&str, &str)]| {
        let mut raw = Raw::open(node.address).await;
        raw.send(&startup(parameters)).await;
        let replies = raw.until_closed().await;
        let error = replies.last().unwrap().clone();
        assert_eq!(
            (error.kind, error.field(b'S').as_deref()),
            (b'E', Some("FATAL"))
        );
        error.field(b'C').unwrap()
    };
    assert_eq!(refused(&[]).await, "28000");
    assert_eq!(refused(&[("user", "nobody")]).await, "28000");
    assert_eq!(refused(&[("user", "nologin")]).await, "28000");
    assert_eq!(
        refused(&[("user", "ann"), ("database", "missing")]).await,
        "3D000"
    );
    assert_eq!(
        refused(&[("user", "ann"), ("replication", "true")]).await,
        "0A000"
    );
    let (_guest, _) = Raw::login(node.address).await;
    assert_eq!(refused(&[("user", "ann")]).await, "53300");
}

#[tokio::test]
async fn a_roles_connection_limit_holds_and_places_are_given_back() {
    let node = node().await;
    let login = startup(&[("user", "limited"), ("database", "d")]);
    let mut first = Raw::open(node.address).await;
    first.ask(&login).await;
    let mut second = Raw::open(node.address).await;
    second.send(&login).await;
    assert_eq!(
        second
            .until_closed()
            .await
            .last()
            .unwrap()
            .field(b'C')
            .as_deref(),
        Some("53300")
    );
    first.send(&message(b'X', b"")).await;
    assert!(first.until_closed().await.is_empty());
    let start = Instant::now();
    loop {
        let mut third = Raw::open(node.address).await;
        if kinds(&third.ask(&login).await).ends_with('Z') {
            break;
        }
        assert!(start.elapsed() < PATIENCE);
    }
}

#[tokio::test]
async fn a_newer_minor_version_is_negotiated() {
    let node = node().await;
    let mut raw = Raw::open(node.address).await;
    let mut packet = startup(&[("user", "ann"), ("_pq_.feature", "on")]);
    packet[7] = 2;
    let replies = raw.ask(&packet).await;
    assert_eq!(replies[0].kind, b'v');
    assert_eq!(&replies[0].body[..8], &[0, 3, 0, 0, 0, 0, 0, 1]);
    assert!(kinds(&replies).ends_with('Z'));
}

#[tokio::test]
async fn simple_queries_run_one_after_another_until_an_error() {
    let node = node().await;
    let (mut raw, _) = Raw::login(node.address).await;
    let replies = raw
        .ask(&query("count 2; begin; notice; error; count 1"))
        .await;
    assert_eq!(kinds(&replies), "TDDCCNCEZ");
    assert_eq!(replies[1].values(), [Some(b"0".to_vec())]);
    assert_eq!(replies[3].text(), "SELECT 2");
    assert_eq!(replies[5].field(b'M').as_deref(), Some("look out"));
    let error = &replies[7];
    let fields = b"SCMDHPstcn".map(|kind| error.field(kind).unwrap());
    assert_eq!(
        fields,
        [
            "ERROR",
            "23505",
            "duplicate key value violates unique constraint \"t_pkey\"",
            "Key (a)=(1) already exists.",
            "Choose another.",
            "7",
            "public",
            "t",
            "a",
            "t_pkey"
        ]
    );
    assert_eq!(replies[8].body, b"E");
    assert_eq!(kinds(&raw.ask(&query(" ; ")).await), "IZ");
    let changed = raw.ask(&query("zone Europe/Berlin")).await;
    assert_eq!(
        (kinds(&changed).as_str(), changed[1].text().as_str()),
        ("CSZ", "TimeZone\0Europe/Berlin")
    );
    assert_eq!(kinds(&raw.ask(&query("fail-late")).await), "TDDDEZ");
    let bad = raw.ask(&message(b'Q', b"count \xff 2\0")).await;
    assert_eq!(bad[0].field(b'C').as_deref(), Some("22021"));
}

#[tokio::test]
async fn portals_stop_at_the_limit_and_go_on() {
    let node = node().await;
    let (mut raw, _) = Raw::login(node.address).await;
    raw.ask(&query("begin")).await;
    let pipeline = [
        parse("s", "count 250"),
        describe(b'S', "s"),
        bind("p", "s"),
        describe(b'P', "p"),
        execute("p", 120),
        execute("p", 130),
        execute("p", 5),
        sync(),
    ]
    .concat();
    let replies = raw.ask(&pipeline).await;
    let expected = format!("1tT2T{}s{}sCZ", "D".repeat(120), "D".repeat(130));
    assert_eq!(kinds(&replies), expected);
    assert_eq!(replies[replies.len() - 2].text(), "SELECT 0");
    assert_eq!(replies[5 + 121].values(), [Some(b"120".to_vec())]);
    // Portals live as long as their transaction.
    assert_eq!(
        kinds(&raw.ask(&[execute("p", 0), sync()].concat()).await),
        "CZ"
    );
    raw.ask(&query("commit")).await;
    let gone = raw.ask(&[execute("p", 0), sync()].concat()).await;
    assert_eq!(gone[0].field(b'C').as_deref(), Some("34000"));
    let command = raw
        .ask(
            &[
                parse("", "begin"),
                bind("", ""),
                execute("", 0),
                execute("", 0),
                sync(),
            ]
            .concat(),
        )
        .await;
    assert_eq!(
        (kinds(&command).as_str(), command[3].field(b'C').as_deref()),
        ("12CEZ", Some("55000"))
    );
}

#[tokio::test]
async fn after_an_error_everything_is_skipped_until_sync() {
    let node = node().await;
    let (mut raw, _) = Raw::login(node.address).await;
    let pipeline = [
        parse("", "count 1"),
        bind("", ""),
        execute("", 0),
        parse("", "nonsense"),
        bind("", ""),
        execute("", 0),
        sync(),
        parse("", "count 2"),
        bind("", ""),
        execute("", 0),
        sync(),
    ];
    raw.send(&pipeline.concat()).await;
    assert_eq!(kinds(&raw.until_ready().await), "12DCEZ");
    assert_eq!(kinds(&raw.until_ready().await), "12DDCZ");
    let code = async |raw: &mut Raw, bytes: Vec<u8>| {
        raw.ask(&[bytes, sync()].concat()).await[0]
            .field(b'C')
            .unwrap()
    };
    assert_eq!(code(&mut raw, bind("", "missing")).await, "26000");
    assert_eq!(code(&mut raw, describe(b'P', "missing")).await, "34000");
    assert_eq!(
        kinds(&raw.ask(&[parse("x", "count 1"), sync()].concat()).await),
        "1Z"
    );
    assert_eq!(code(&mut raw, parse("x", "count 1")).await, "42P05");
    assert_eq!(
        kinds(
            &raw.ask(&[message(b'C', b"Sx\0"), parse("x", "count 1"), sync()].concat())
                .await
        ),
        "31Z"
    );
    let wrong_count = message(b'B', b"\0x\0\0\0\0\x01\0\0\0\x011\0\0");
    assert_eq!(code(&mut raw, wrong_count).await, "08P01");
    let empty = raw
        .ask(
            &[
                parse("", ""),
                bind("", ""),
                describe(b'P', ""),
                execute("", 0),
                sync(),
            ]
            .concat(),
        )
        .await;
    assert_eq!(kinds(&empty), "12nIZ");
}

#[tokio::test]
async fn flush_sends_what_is_there() {
    let node = node().await;
    let (mut raw, _) = Raw::login(node.address).await;
    raw.send(&[parse("", "count 1"), describe(b'S', ""), message(b'H', b"")].concat())
        .await;
    assert_eq!(raw.reply().await.unwrap().kind, b'1');
    assert_eq!(raw.reply().await.unwrap().kind, b't');
    assert_eq!(raw.reply().await.unwrap().kind, b'T');
    assert_eq!(kinds(&raw.ask(&sync()).await), "Z");
}

#[tokio::test]
async fn cancel_ends_what_runs_at_once() {
    let node = node().await;
    for statement in ["sleep", "forever", "stall"] {
        let (mut raw, replies) = Raw::login(node.address).await;
        let key = key(&replies);
        // A cancel request that finds nothing running does nothing.
        cancel(node.address, &key).await;
        assert_eq!(kinds(&raw.ask(&query("count 1")).await), "TDCZ");
        raw.send(&query(statement)).await;
        sleep(Duration::from_millis(50)).await;
        cancel(node.address, &[&key[..4], &[1, 2, 3, 4]].concat()).await;
        let asked = Instant::now();
        cancel(node.address, &key).await;
        let replies = raw.until_ready().await;
        let error = &replies[replies.len() - 2];
        assert_eq!(error.field(b'C').as_deref(), Some("57014"), "{statement}");
        // A generous bound: these tests run beside builds. The product's goal is 100 ms.
        assert!(asked.elapsed() < Duration::from_secs(5), "{statement}");
        assert_eq!(
            kinds(&raw.ask(&query("count 1")).await),
            "TDCZ",
            "{statement}"
        );
        raw.send(&[parse("", statement), bind("", ""), execute("", 0), sync()].concat())
            .await;
        sleep(Duration::from_millis(50)).await;
        cancel(node.address, &key).await;
        let replies = raw.until_ready().await;
        assert_eq!(
            replies[replies.len() - 2].field(b'C').as_deref(),
            Some("57014"),
            "{statement}"
        );
    }
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_up_the_rows_and_can_be_cancelled() {
    let node = node().await;
    let (mut raw, replies) = Raw::login(node.address).await;
    let key = key(&replies);
    raw.send(&query("forever")).await;
    sleep(Duration::from_millis(300)).await;
    cancel(node.address, &key).await;
    // The stream is dropped though the client has read nothing.
    let seen = node.seen.clone();
    eventually("the stream is dropped", || {
        seen.streams_dropped.load(Ordering::SeqCst) >= 1
    })
    .await;
    let replies = raw.until_ready().await;
    assert_eq!(
        replies[replies.len() - 2].field(b'C').as_deref(),
        Some("57014")
    );
}

#[tokio::test]
async fn a_client_that_goes_away_ends_its_statement() {
    let node = node().await;
    for (at, statement) in ["sleep", "forever", "stall"].into_iter().enumerate() {
        let (mut raw, _) = Raw::login(node.address).await;
        raw.send(&query(statement)).await;
        sleep(Duration::from_millis(50)).await;
        drop(raw);
        let seen = node.seen.clone();
        eventually(statement, || seen.cancels.load(Ordering::SeqCst) > at).await;
    }
    let (mut raw, _) = Raw::login(node.address).await;
    raw.send(&query("copy in text")).await;
    assert_eq!(raw.reply().await.unwrap().kind, b'G');
    raw.send(&message(b'd', b"1\tx\n")).await;
    drop(raw);
    let seen = node.seen.clone();
    eventually("the COPY is aborted", || {
        seen.copies_aborted.load(Ordering::SeqCst) == 1
    })
    .await;
    assert_eq!(node.seen.copies_finished.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn copy_goes_both_ways() {
    let node = node().await;
    let (mut raw, _) = Raw::login(node.address).await;
    raw.send(&query("copy in csv; count 1")).await;
    let opening = raw.reply().await.unwrap();
    assert_eq!(
        (opening.kind, &opening.body[..]),
        (b'G', &[0, 0, 2, 0, 0, 0, 0][..])
    );
    // Messages may end within rows.
    for piece in ["1,\"a\nb", "\"\n2", ",\n", "3,\"\"\n"] {
        raw.send(&message(b'd', piece.as_bytes())).await;
    }
    let replies = raw.ask(&message(b'c', b"")).await;
    assert_eq!(
        (kinds(&replies).as_str(), replies[0].text().as_str()),
        ("CTDCZ", "COPY 3")
    );
    let copied = std::mem::take(&mut *node.seen.copied.lock().unwrap());
    assert_eq!(copied.len(), 1);
    let shown = format!("{:?}", copied[0].column(1));
    assert!(shown.contains("a\\nb") && shown.contains("null"), "{shown}");

    let replies = raw.ask(&query("copy out text")).await;
    assert_eq!(kinds(&replies), "HdddcCZ");
    let lines: String = replies[1..4]
        .iter()
        .map(|r| String::from_utf8(r.body.clone()).unwrap())
        .collect();
    assert_eq!(lines, "1\tx\\ty\n2\t\\N\n3\ta,\"b\"\\nc\n");
    let replies = raw.ask(&query("copy out csv")).await;
    let lines: String = replies[1..4]
        .iter()
        .map(|r| String::from_utf8(r.body.clone()).unwrap())
        .collect();
    assert_eq!(lines, "1,x\ty\n2,\n3,\"a,\"\"b\"\"\nc\"\n");
    let binary = raw.ask(&query("copy out binary")).await;
    assert_eq!(kinds(&binary), "HddddcCZ");

    // Data that were sent in binary can be read again.
    raw.send(&query("copy in binary")).await;
    raw.reply().await.unwrap();
    for data in &binary[1..5] {
        raw.send(&message(b'd', &data.body)).await;
    }
    assert_eq!(raw.ask(&message(b'c', b"")).await[0].text(), "COPY 3");
}

#[tokio::test]
async fn copy_that_fails_is_aborted_and_the_connection_goes_on() {
    let node = node().await;
    let (mut raw, _) = Raw::login(node.address).await;
    raw.send(&query("copy in text")).await;
    raw.reply().await.unwrap();
    let replies = raw.ask(&message(b'f', b"no more\0")).await;
    assert_eq!(
        replies[0].field(b'M').as_deref(),
        Some("COPY from stdin failed: no more")
    );
    assert_eq!(node.seen.copies_aborted.load(Ordering::SeqCst), 1);

    let bad_rows = [
        message(b'd', b"1\ta\n2\tb\nx\tc\n"),
        message(b'd', b"4\td\n"),
        message(b'c', b""),
    ]
    .concat();
    raw.send(&[query("copy in text"), bad_rows.clone()].concat())
        .await;
    let replies = raw.until_ready().await;
    let error = &replies[1];
    assert_eq!(error.field(b'C').as_deref(), Some("22P02"));
    assert_eq!(
        error.field(b'W').as_deref(),
        Some("COPY t, line 3, column a: \"x\"")
    );
    // Data that are still on their way are not read as statements.
    assert_eq!(kinds(&raw.ask(&query("count 1")).await), "TDCZ");

    // As tokio-postgres does it: a Sync comes with Execute, and another after the data.
    let begin = [
        parse("", "copy in text"),
        bind("", ""),
        execute("", 0),
        sync(),
    ]
    .concat();
    raw.send(&begin).await;
    for expected in [b'1', b'2', b'G'] {
        assert_eq!(raw.reply().await.unwrap().kind, expected);
    }
    raw.send(&[message(b'd', b"1\ta\n"), message(b'c', b""), sync()].concat())
        .await;
    assert_eq!(kinds(&raw.until_ready().await), "CZ");
    raw.send(&begin).await;
    for _ in 0..3 {
        raw.reply().await.unwrap();
    }
    raw.send(&[bad_rows, sync()].concat()).await;
    assert_eq!(kinds(&raw.until_ready().await), "EZ");
    assert_eq!(kinds(&raw.ask(&query("count 1")).await), "TDCZ");
}

#[tokio::test]
async fn shutdown_tells_idle_clients_and_waits_for_busy_ones() {
    let options = GatewayOptions {
        shutdown_grace: Duration::from_millis(300),
        ..GatewayOptions::default()
    };
    let node = node_with(Fake::default(), options).await;
    let (mut idle, _) = Raw::login(node.address).await;
    let (mut busy, _) = Raw::login(node.address).await;
    busy.send(&query("sleep")).await;
    sleep(Duration::from_millis(50)).await;
    node.shutdown.cancel();
    let told = idle.until_closed().await;
    assert_eq!(told.last().unwrap().field(b'C').as_deref(), Some("57P01"));
    assert!(!node.task.is_finished());
    let told = busy.until_closed().await;
    assert_eq!(told.last().unwrap().field(b'C').as_deref(), Some("57P01"));
    timeout(PATIENCE, node.task)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn slow_logins_are_cut_off() {
    let options = GatewayOptions {
        authentication_timeout: Duration::from_millis(100),
        ..GatewayOptions::default()
    };
    let node = node_with(Fake::default(), options).await;
    let mut raw = Raw::open(node.address).await;
    assert!(raw.until_closed().await.is_empty());
}

#[tokio::test]
async fn an_idle_client_is_sent_away_and_its_session_goes_before_it_has_read_so() {
    for (place, code) in [("transaction", "25P03"), ("session", "57P05")] {
        let node = node().await;
        let (mut raw, _) = Raw::login(node.address).await;
        raw.ask(&query(&format!("idle 60000 {place}"))).await;
        raw.ask(&query(&format!("idle 30 {place}"))).await;
        // The client reads nothing; what the session holds is freed all the same.
        let dropped = &node.seen.sessions_dropped;
        eventually("the session ends", || dropped.load(Ordering::SeqCst) == 1).await;
        let replies = raw.until_closed().await;
        let fields = [b'S', b'C'].map(|field| replies[0].field(field).unwrap());
        assert_eq!(fields, ["FATAL", code]);
    }
}

#[tokio::test]
async fn a_client_is_idle_between_statements_only() {
    let node = node().await;
    let (mut raw, _) = Raw::login(node.address).await;
    raw.ask(&query("idle 100 transaction")).await;
    // Between Parse and Sync the session is not idle, however long that takes.
    raw.send(&parse("", "count 1")).await;
    sleep(Duration::from_millis(300)).await;
    assert_eq!(
        kinds(
            &raw.ask(&[bind("", ""), execute("", 0), sync()].concat())
                .await
        ),
        "12DCZ"
    );
    let replies = raw.until_closed().await;
    assert_eq!(replies[0].field(b'C').as_deref(), Some("25P03"));
}

#[tokio::test]
async fn tls_is_offered_and_carries_a_session() {
    let certified = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = rustls::pki_types::PrivateKeyDer::Pkcs8(certified.signing_key.serialize_der().into());
    let config = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    let tls = TlsOptions {
        config: Arc::new(config),
        certificate_pem: Some(certified.cert.pem().into_bytes()),
        required: true,
    };
    let node = node_with(
        Fake::default(),
        GatewayOptions {
            tls: Some(tls),
            ..GatewayOptions::default()
        },
    )
    .await;

    let mut plain = Raw::open(node.address).await;
    plain.send(&startup(&[("user", "ann")])).await;
    assert_eq!(
        plain.until_closed().await[0].field(b'C').as_deref(),
        Some("28000")
    );

    let mut raw = Raw::open(node.address).await;
    let ask = |code: u32| [8u32.to_be_bytes(), code.to_be_bytes()].concat();
    raw.send(&ask(80_877_104)).await;
    let mut answer = [0];
    tokio::io::AsyncReadExt::read_exact(&mut raw.socket, &mut answer)
        .await
        .unwrap();
    assert_eq!(&answer, b"N");
    raw.send(&ask(80_877_103)).await;
    tokio::io::AsyncReadExt::read_exact(&mut raw.socket, &mut answer)
        .await
        .unwrap();
    assert_eq!(&answer, b"S");
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certified.cert.der().clone()).unwrap();
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(client));
    let socket = connector
        .connect("localhost".try_into().unwrap(), raw.socket)
        .await
        .unwrap();
    let mut raw = Raw { socket };
    raw.ask(&startup(&[("user", "ann")])).await;
    let (ours, seen) = (
        raw.socket.get_ref().1,
        node.seen.client.lock().unwrap().clone(),
    );
    let seen = seen.unwrap();
    let (address, _) = seen.address.unwrap();
    assert_eq!(address, "127.0.0.1");
    let told = seen.tls.unwrap();
    let suite = ours.negotiated_cipher_suite().unwrap().suite();
    assert_eq!(
        (told.version, told.cipher.replacen("TLS_", "TLS13_", 1)),
        ("TLSv1.3", suite.as_str().unwrap().to_owned())
    );
    assert_eq!(
        told.bits,
        if told.cipher.contains("128") {
            128
        } else {
            256
        }
    );
    assert_eq!(kinds(&raw.ask(&query("count 3")).await), "TDDDCZ");

    // Bytes before the handshake are never read as the client's.
    let mut injected = Raw::open(node.address).await;
    injected
        .send(&[ask(80_877_103), startup(&[("user", "ann")])].concat())
        .await;
    assert_eq!(
        injected.until_closed().await[0].field(b'C').as_deref(),
        Some("08P01")
    );
}
