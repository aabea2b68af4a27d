//! Messages that no honest client sends: the connection may end, but the gateway goes on, and
//! memory does not grow.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use proptest::prelude::*;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use super::raw::{
    Node, PATIENCE, Raw, bind, execute, kinds, message, node, parse, query, startup, sync,
};
use crate::limits::{MESSAGE_BYTES_MAX, VALUE_BYTES_MAX};

async fn still_serves(node: &Node) {
    let (mut raw, _) = Raw::login(node.address).await;
    assert_eq!(kinds(&raw.ask(&query("count 1")).await), "TDCZ");
}

#[tokio::test]
async fn broken_messages_end_their_connection_with_08p01() {
    let node = node().await;
    let broken: [(&str, Vec<u8>); 12] = [
        ("unknown type", message(b'?', b"")),
        ("negative length", vec![b'Q', 0xff, 0xff, 0xff, 0xff]),
        ("length below its own size", vec![b'Q', 0, 0, 0, 3]),
        ("query without end", message(b'Q', b"count 1")),
        ("empty query body", message(b'Q', b"")),
        ("parse cut short", message(b'P', b"\0count 1\0\0\x05\0\0")),
        ("parse with rest", message(b'P', b"\0count 1\0\0\0junk")),
        (
            "bind that claims 65535 parameters",
            message(b'B', b"\0\0\0\0\xff\xff"),
        ),
        (
            "bind with a value beyond the end",
            message(b'B', b"\0\0\0\0\0\x01\x7f\xff\xff\xffx\0\0"),
        ),
        ("describe of nothing", message(b'D', b"Xname\0")),
        ("execute without rows", message(b'E', b"\0\0")),
        ("password now", message(b'p', b"secret\0")),
    ];
    for (what, bytes) in broken {
        let (mut raw, _) = Raw::login(node.address).await;
        raw.send(&bytes).await;
        let replies = raw.until_closed().await;
        let error = replies
            .last()
            .unwrap_or_else(|| panic!("{what}: no answer"));
        let fields = (error.field(b'S').unwrap(), error.field(b'C').unwrap());
        assert_eq!(fields, ("FATAL".to_owned(), "08P01".to_owned()), "{what}");
    }
    still_serves(&node).await;
}

/// Clients whose statements are short, and many: the tasks of the same thread, among them those of other connections,
/// have their turns between them.
#[tokio::test]
async fn many_short_statements_leave_others_their_turns() {
    const STATEMENTS: usize = 4_000;
    let node = node().await;
    let pipelined = [bind("", "s"), execute("", 0)].concat().repeat(STATEMENTS);
    for (what, bytes) in [
        ("one message", query(&"begin;".repeat(STATEMENTS))),
        ("a pipeline", [pipelined, sync()].concat()),
    ] {
        let (mut raw, _) = Raw::login(node.address).await;
        raw.ask(&[parse("s", "begin"), sync()].concat()).await;
        let seen = Arc::clone(&node.seen);
        let before = seen.statements.load(Ordering::SeqCst);
        // How many are run at most from one turn of another task to the next.
        let watch = tokio::spawn(async move {
            let (mut last, mut most) = (before, 0);
            while last < before + STATEMENTS {
                tokio::task::yield_now().await;
                let now = seen.statements.load(Ordering::SeqCst);
                most = most.max(now - last);
                last = now;
            }
            most
        });
        raw.ask(&bytes).await;
        let most = watch.await.unwrap();
        // Two budgets of a task, of 128 each (tokio's).
        assert!(most <= 300, "{what}: {most} statements in one turn");
    }
}

#[tokio::test]
async fn a_message_cut_by_the_end_of_the_connection_ends_nothing_else() {
    let node = node().await;
    let whole = [
        parse("s", "count 1"),
        bind("", "s"),
        query("count 2"),
        message(b'd', b"abc"),
    ]
    .concat();
    for cut in 0..whole.len() {
        let (mut raw, _) = Raw::login(node.address).await;
        raw.send(&whole[..cut]).await;
        raw.socket.shutdown().await.unwrap();
        raw.until_closed().await;
    }
    still_serves(&node).await;
}

#[tokio::test]
async fn startup_packets_of_any_length_are_survived() {
    let node = node().await;
    for bytes in [
        vec![0, 0, 0, 0],
        vec![0x7f, 0xff, 0xff, 0xff, 0, 3, 0, 0],
        vec![0xff; 64],
        vec![0, 0, 0, 8, 0, 2, 0, 0],
        vec![0, 0, 0, 9, 0, 3, 0, 0, 1],
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        startup(&[("user", "ann")])[..10].to_vec(),
    ] {
        let mut raw = Raw::open(node.address).await;
        raw.send(&bytes).await;
        raw.socket.shutdown().await.unwrap();
        if let Some(error) = raw.until_closed().await.last() {
            assert_eq!(error.field(b'S').as_deref(), Some("FATAL"), "{bytes:?}");
        }
    }
    still_serves(&node).await;
}

/// Sends a message whose body is never held as a whole, on either side.
async fn send_huge(raw: &mut Raw, kind: u8, length: usize) {
    let mut header = vec![kind];
    header.extend_from_slice(&(length as u32 + 4).to_be_bytes());
    raw.send(&header).await;
    let piece = vec![b'x'; 1 << 20];
    let mut left = length;
    while left > 0 {
        let count = left.min(piece.len());
        raw.send(&piece[..count]).await;
        left -= count;
    }
}

#[tokio::test]
async fn messages_beyond_the_limit_are_refused_and_the_connection_goes_on() {
    let node = node().await;
    let (mut raw, _) = Raw::login(node.address).await;
    send_huge(&mut raw, b'Q', MESSAGE_BYTES_MAX + 1).await;
    let replies = raw.until_ready().await;
    assert_eq!(
        (kinds(&replies).as_str(), replies[0].field(b'C').as_deref()),
        ("EZ", Some("54000"))
    );
    send_huge(&mut raw, b'P', 1 << 28).await;
    let replies = raw.ask(&[bind("", ""), sync()].concat()).await;
    assert_eq!(
        (kinds(&replies).as_str(), replies[0].field(b'C').as_deref()),
        ("EZ", Some("54000"))
    );
    assert_eq!(kinds(&raw.ask(&query("count 1")).await), "TDCZ");
    // The header alone must not make the gateway reserve a gibibyte, and a client that never sends
    // the rest is dropped.
    raw.send(&[&b"B"[..], &0x3fff_ffffu32.to_be_bytes(), b"few"].concat())
        .await;
    drop(raw);
    still_serves(&node).await;
}

#[tokio::test]
async fn values_beyond_the_limit_are_refused() {
    let node = node().await;
    let (mut raw, _) = Raw::login(node.address).await;
    // Parameter 10 of "echo 10" is a text.
    let mut body = b"\0\0\0\0\0\x0a".to_vec();
    (0..9).for_each(|_| body.extend_from_slice(&(-1i32).to_be_bytes()));
    body.extend_from_slice(&(VALUE_BYTES_MAX as u32 + 1).to_be_bytes());
    body.resize(body.len() + VALUE_BYTES_MAX + 1, b'x');
    body.extend_from_slice(b"\0\0");
    let replies = raw
        .ask(&[parse("", "echo 10"), message(b'B', &body), sync()].concat())
        .await;
    assert_eq!(
        (kinds(&replies).as_str(), replies[1].field(b'C').as_deref()),
        ("1EZ", Some("54000"))
    );

    // COPY data have no limit as a message, but a row has one.
    raw.send(&query("copy in text")).await;
    raw.reply().await.unwrap();
    send_huge(&mut raw, b'd', 80 << 20).await;
    let replies = raw.ask(&[message(b'c', b"")].concat()).await;
    assert_eq!(replies[0].field(b'C').as_deref(), Some("54000"));
    assert_eq!(kinds(&raw.ask(&query("count 1")).await), "TDCZ");
}

fn noise() -> impl Strategy<Value = Vec<u8>> {
    let typed = (
        prop::sample::select(b"QPBDECHSXdcfpF?\0".to_vec()),
        prop::collection::vec(any::<u8>(), 0..40),
        prop::option::weighted(0.2, any::<u32>()),
    );
    let typed = typed.prop_map(|(kind, body, length)| {
        let mut bytes = message(kind, &body);
        if let Some(length) = length {
            bytes[1..5].copy_from_slice(&length.to_be_bytes());
        }
        bytes
    });
    let whole = prop::sample::select(vec![
        query("count 3"),
        query("copy in text"),
        query("copy in binary"),
        query("copy in csv"),
        parse("", "count 5"),
        bind("", ""),
        sync(),
        execute("", 2),
        query("copy out binary"),
    ]);
    prop::collection::vec(
        prop_oneof![2 => typed, 3 => whole, 1 => prop::collection::vec(any::<u8>(), 0..60)],
        1..12,
    )
    .prop_map(|parts| parts.concat())
}

#[test]
fn random_bytes_never_stop_the_gateway() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let node = runtime.block_on(node());
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(300)
    });
    runner
        .run(&(noise(), any::<bool>()), |(bytes, before_login)| {
            runtime.block_on(async {
                let mut raw = if before_login {
                    Raw::open(node.address).await
                } else {
                    Raw::login(node.address).await.0
                };
                let _ = raw.socket.write_all(&bytes).await;
                let _ = raw.socket.shutdown().await;
                let mut rest = Vec::new();
                let end = timeout(PATIENCE, raw.socket.read_to_end(&mut rest)).await;
                assert!(
                    end.is_ok(),
                    "the gateway neither answers nor closes: {bytes:?}"
                );
            });
            Ok(())
        })
        .unwrap();
    runtime.block_on(still_serves(&node));
    node.shutdown.cancel();
    let ended = runtime
        .block_on(async { timeout(Duration::from_secs(20), node.task).await })
        .unwrap();
    assert!(
        ended.unwrap().is_ok(),
        "no connection's task may have failed"
    );
}
