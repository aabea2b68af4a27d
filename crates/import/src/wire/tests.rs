//! Bytes of a source that is none, and of one that ends in the middle.

use proptest::prelude::*;
use tokio::{io::duplex, net::TcpListener};

use super::*;

fn framed(tag: u8, body: &[u8]) -> Vec<u8> {
    let mut frame = vec![tag];
    frame.extend(u32::try_from(body.len() + 4).expect("short").to_be_bytes());
    frame.extend(body);
    frame
}

/// What a reader makes of bytes, after which the connection ends.
fn read_all(bytes: Vec<u8>) -> Vec<Result<Event, ImportError>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime");
    runtime.block_on(async move {
        let (mut source, ours) = duplex(bytes.len().max(1));
        source.write_all(&bytes).await.expect("there is room");
        drop(source);
        let (reader, write) = tokio::io::split(Box::new(ours) as Box<dyn Socket>);
        let (status, told) = watch::channel(Status::default());
        let mut stream = Stream {
            reader,
            buffer: BytesMut::new(),
            status,
            _writer: Task::spawn(async move { drop((write, told)) }),
        };
        let mut events = Vec::new();
        loop {
            let event = stream.next().await;
            let last = event.is_err();
            events.push(event);
            if last {
                return events;
            }
        }
    })
}

fn keepalive(end: u64) -> Vec<u8> {
    let mut body = vec![b'k'];
    body.extend(end.to_be_bytes());
    body.extend(0u64.to_be_bytes());
    body.push(1);
    framed(b'd', &body)
}

proptest! {
    #[test]
    fn bytes_end_in_an_error_and_no_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(read_all(bytes).last().expect("one at least").is_err());
    }

    #[test]
    fn framed_bytes_end_in_an_error_and_no_panic(
        frames in proptest::collection::vec((prop::sample::select(b"dENScCZRKW".to_vec()), proptest::collection::vec(any::<u8>(), 0..30)), 0..6),
    ) {
        let bytes = frames.iter().flat_map(|(tag, body)| framed(*tag, body)).collect();
        prop_assert!(read_all(bytes).last().expect("one at least").is_err());
    }
}

#[test]
fn a_connection_cut_at_any_byte_gives_whole_events_alone() {
    let mut bytes = keepalive(1);
    bytes.extend(framed(
        b'd',
        b"w\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0abc",
    ));
    bytes.extend(keepalive(2));
    for end in 0..=bytes.len() {
        let events = read_all(bytes[..end].to_vec());
        let whole = events.iter().filter(|event| event.is_ok()).count();
        let one = keepalive(1).len();
        let expected = [one, bytes.len() - one, bytes.len()]
            .iter()
            .filter(|&&each| each <= end)
            .count();
        assert_eq!(whole, expected, "cut at {end}");
    }
}

#[test]
fn a_length_that_lies_reserves_nothing() {
    for head in [
        b"d\xff\xff\xff\xff".as_slice(),
        b"d\0\0\0\x03",
        b"d\x7f\xff\xff\xff",
    ] {
        let events = read_all(head.to_vec());
        assert!(
            matches!(events[..], [Err(ImportError::Protocol(_))]),
            "{events:?}"
        );
    }
}

#[tokio::test]
async fn a_server_that_is_no_postgresql_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let server = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.expect("a client");
        socket
            .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await
            .expect("it is there");
        socket
    });
    let config: Config = format!("host=127.0.0.1 port={port} user=a dbname=b")
        .parse()
        .expect("a configuration");
    let error = Wire::connect(&config.into())
        .await
        .err()
        .expect("no connection");
    assert!(matches!(error, ImportError::Protocol(_)), "{error}");
    drop(server.await);
}

#[tokio::test]
async fn a_source_that_is_not_there_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    let config: Config = format!("host=127.0.0.1 port={port} user=a dbname=b")
        .parse()
        .expect("a configuration");
    let error = Wire::connect(&config.into())
        .await
        .err()
        .expect("no connection");
    assert!(matches!(error, ImportError::SourceLost { .. }), "{error}");
    assert!(error.is_transient());
}
