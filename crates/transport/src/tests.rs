//! What connections carry, and whom they let in.

use std::{
    fs,
    io::{self, IoSlice, Read, Write},
    os::unix::fs::PermissionsExt,
    path::Path,
    time::Duration,
};

use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use tempfile::TempDir;
use time::OffsetDateTime;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::Builder,
};

use crate::{
    AUTHORITY_FILE, CERTIFICATE_FILE, CertificateError, KEY_FILE, Peer, Stream, Transport, ended,
};

/// An authority, and the nodes that it knows.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new() -> Authority {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let pem = params.self_signed(&key).unwrap().pem();
        Authority {
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    fn write(&self, folder: &Path, name: &str, days: i64) {
        self.write_for(folder, name, time::Duration::days(days));
    }

    /// Writes what a node has, for so long from now.
    fn write_for(&self, folder: &Path, name: &str, valid: time::Duration) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.not_before = OffsetDateTime::now_utc() - time::Duration::days(30);
        params.not_after = OffsetDateTime::now_utc() + valid;
        let made = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(folder.join(AUTHORITY_FILE), &self.pem).unwrap();
        fs::write(folder.join(CERTIFICATE_FILE), made.pem()).unwrap();
        write_key(folder, &key.serialize_pem(), 0o600);
    }

    fn node(&self, name: &str) -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        self.write(folder.path(), name, 1);
        folder
    }

    fn transport(&self, name: &str) -> Transport {
        Transport::secured(self.node(name).path(), name).unwrap()
    }
}

fn write_key(folder: &Path, pem: &str, mode: u32) {
    let path = folder.join(KEY_FILE);
    fs::write(&path, pem).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
}

fn peer(name: &str, listener: &TcpListener) -> Peer {
    Peer {
        name: name.to_owned(),
        address: listener.local_addr().unwrap(),
    }
}

async fn listen() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").await.unwrap()
}

/// Both ends of a connection between two nodes.
async fn pair(dials: &Transport, takes: &Transport, name: &str) -> (Stream, Stream) {
    let (one, other) = ends(dials, takes, name).await;
    (one.unwrap(), other.unwrap())
}

/// What each end gets. Where the one that listens refuses, whoever dials may only hear of it when it reads.
async fn ends(
    dials: &Transport,
    takes: &Transport,
    name: &str,
) -> (io::Result<Stream>, io::Result<Stream>) {
    let listener = listen().await;
    let peer = peer(name, &listener);
    let dialled = async {
        let mut stream = dials.dial(&peer).await?;
        stream.write_all(b"hello").await?;
        stream.flush().await?;
        Ok(stream)
    };
    let taken = async {
        let mut stream = takes.accept(listener.accept().await?.0).await?;
        let mut said = [0; 5];
        stream.read_exact(&mut said).await?;
        assert_eq!(&said, b"hello");
        Ok(stream)
    };
    let both = async { tokio::join!(dialled, taken) };
    tokio::time::timeout(Duration::from_secs(10), both)
        .await
        .expect("neither end waits for ever")
}

#[tokio::test]
async fn nodes_know_each_other_by_their_names() {
    let authority = Authority::new();
    let (one, two) = (authority.transport("n1"), authority.transport("n2"));
    assert!(one.is_secured());
    let (dialled, taken) = pair(&one, &two, "n2").await;
    assert!(dialled.is_of("n2") && !dialled.is_of("n1"));
    assert!(taken.is_of("n1") && !taken.is_of("n2") && !taken.is_of("n11") && !taken.is_of(""));
    // A node that is where another was is not taken for that.
    let (dialled, taken) = ends(&one, &two, "n3").await;
    assert!(dialled.is_err() && taken.is_err());
}

#[tokio::test]
async fn strangers_come_in_nowhere() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (ours, theirs) = (authority.transport("n1"), other.transport("n1"));
    for (dials, takes) in [(&theirs, &ours), (&ours, &theirs)] {
        let (_, taken) = ends(dials, takes, "n1").await;
        assert!(taken.is_err());
    }
    // Without a certificate of its own, or without TLS.
    let (_, taken) = ends(&Transport::plain(), &ours, "n1").await;
    assert!(taken.is_err());
    let listener = listen().await;
    let address = listener.local_addr().unwrap();
    let mut roots = rustls::RootCertStore::empty();
    use rustls::pki_types::pem::PemObject;
    roots
        .add(rustls::pki_types::CertificateDer::from_pem_slice(authority.pem.as_bytes()).unwrap())
        .unwrap();
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let nobody = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connects = async {
        let socket = TcpStream::connect(address).await.unwrap();
        let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(nobody));
        let name = rustls::pki_types::ServerName::try_from("n1").unwrap();
        let mut stream = connector.connect(name, socket).await?;
        stream.read_u8().await
    };
    let takes = async { ours.accept(listener.accept().await.unwrap().0).await };
    let (connected, taken) = tokio::join!(connects, takes);
    assert!(taken.is_err() && connected.is_err());
}

#[tokio::test]
async fn certificates_end() {
    let authority = Authority::new();
    let ours = authority.transport("n1");
    let late = tempfile::tempdir().unwrap();
    authority.write_for(late.path(), "n2", time::Duration::seconds(2));
    let folder = late;
    let late = Transport::secured(folder.path(), "n2").unwrap();
    pair(&ours, &late, "n2").await;
    assert!(late.expires().unwrap() < std::time::SystemTime::now() + Duration::from_secs(3));
    tokio::time::sleep(Duration::from_secs(3)).await;
    let over = Transport::secured(folder.path(), "n2").unwrap_err();
    assert!(matches!(over, CertificateError::Unfit { .. }), "{over:?}");
    let (dialled, _) = ends(&ours, &late, "n2").await;
    assert!(dialled.is_err());
    let (_, taken) = ends(&late, &ours, "n1").await;
    assert!(taken.is_err());
}

/// A conversation goes on in another runtime, whatever was under way.
#[test]
fn a_connection_goes_from_a_runtime_to_another() {
    let authority = Authority::new();
    let secured = (authority.transport("n1"), authority.transport("n2"));
    for (one, two) in [secured, (Transport::plain(), Transport::plain())] {
        let first = Builder::new_current_thread().enable_all().build().unwrap();
        let second = Builder::new_current_thread().enable_all().build().unwrap();
        let (mut here, there) = first.block_on(async {
            let (mut here, mut there) = pair(&one, &two, "n2").await;
            // More than is read before it moves: the rest is in TLS, and in the socket.
            here.write_all(&[7; 50_000]).await.unwrap();
            here.flush().await.unwrap();
            let mut part = [0; 10];
            there.read_exact(&mut part).await.unwrap();
            (here, there.park().unwrap())
        });
        let there = second.block_on(async {
            let mut there = there.resume().unwrap();
            let mut part = vec![0; 49_000];
            there.read_exact(&mut part).await.unwrap();
            assert!(part.iter().all(|byte| *byte == 7));
            there.write_all(b"back").await.unwrap();
            there.flush().await.unwrap();
            there.park().unwrap()
        });
        first.block_on(async {
            let mut said = [0; 4];
            here.read_exact(&mut said).await.unwrap();
            assert_eq!(&said, b"back");
            here.shutdown().await.unwrap();
            let mut there = there.resume().unwrap();
            let mut rest = Vec::new();
            there.read_to_end(&mut rest).await.unwrap();
            assert_eq!(rest, [7; 990]);
        });
    }
}

#[tokio::test]
async fn a_sender_never_waits_and_loses_nothing() {
    let authority = Authority::new();
    let secured = (authority.transport("n1"), authority.transport("n2"));
    for (one, two) in [secured, (Transport::plain(), Transport::plain())] {
        let (dialled, mut taken) = pair(&one, &two, "n2").await;
        let mut sender = dialled.into_sender().unwrap();
        let all: Vec<u8> = (0..8 << 20).map(|at: u32| (at / 251) as u8).collect();
        let mut sent = 0;
        // Nobody reads: it takes what the socket does, and no more.
        while let Ok(taken) = write(&mut sender, &all[sent..]) {
            sent += taken;
        }
        assert!(sent > 0 && sent < all.len(), "{sent}");
        let reads = async {
            let mut read = vec![0; all.len()];
            taken.read_exact(&mut read).await.unwrap();
            read
        };
        let writes = async {
            while sent < all.len() || sender.try_flush().is_err() {
                match write(&mut sender, &all[sent..]) {
                    Ok(taken) => sent += taken,
                    Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                }
                sender.socket().writable().await.unwrap();
                tokio::task::yield_now().await;
            }
        };
        let (read, ()) = tokio::join!(reads, writes);
        assert!(read == all);
        // An end that nobody has said is one that is told, where that can be.
        drop(sender);
        let ended = taken.read(&mut [0]).await;
        match one.is_secured() {
            true => assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::UnexpectedEof),
            false => assert_eq!(ended.unwrap(), 0),
        }
    }
}

#[tokio::test]
async fn a_sender_hears_that_the_other_end_has_closed() {
    let authority = Authority::new();
    let secured = (authority.transport("n1"), authority.transport("n2"));
    for (one, two) in [secured, (Transport::plain(), Transport::plain())] {
        let (dialled, mut taken) = pair(&one, &two, "n2").await;
        let mut sender = dialled.into_sender().unwrap();
        write(&mut sender, b"something").unwrap();
        taken.read_exact(&mut [0; 9]).await.unwrap();
        // What TLS says behind its handshake is no end.
        let socket = sender.socket();
        let waited = tokio::time::timeout(Duration::from_millis(100), ended(socket)).await;
        assert!(waited.is_err(), "{waited:?}");
        drop(taken);
        let error = tokio::time::timeout(Duration::from_secs(10), ended(socket)).await;
        assert_eq!(error.unwrap().kind(), io::ErrorKind::UnexpectedEof);
    }
}

fn write(sender: &mut crate::Sender, bytes: &[u8]) -> io::Result<usize> {
    let (one, other) = bytes.split_at(bytes.len().min(1_000));
    let other = &other[..other.len().min(100_000)];
    sender.try_write(&[IoSlice::new(one), IoSlice::new(other)])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_thread_may_wait_for_a_connection() {
    let authority = Authority::new();
    let secured = (authority.transport("n1"), authority.transport("n2"));
    for (one, two) in [secured, (Transport::plain(), Transport::plain())] {
        let listener = listen().await;
        let (named, odd) = (peer("n2", &listener), peer("n3", &listener));
        let is_secured = one.is_secured();
        let dials = tokio::task::spawn_blocking(move || {
            let mut stream = one.dial_blocking(&named, Duration::from_secs(5)).unwrap();
            stream.set_timeouts(Duration::from_secs(5)).unwrap();
            stream.write_all(b"ask").unwrap();
            let mut answer = [0; 6];
            stream.read_exact(&mut answer).unwrap();
            assert_eq!(&answer, b"answer");
            drop(stream);
            // Another node is there.
            let mut stream = one.dial_blocking(&odd, Duration::from_secs(5)).unwrap();
            stream.set_timeouts(Duration::from_secs(5)).unwrap();
            assert_eq!(stream.write_all(b"ask").is_err(), is_secured);
        });
        let mut stream = two
            .accept(listener.accept().await.unwrap().0)
            .await
            .unwrap();
        let mut asked = [0; 3];
        stream.read_exact(&mut asked).await.unwrap();
        stream.write_all(b"answer").await.unwrap();
        stream.flush().await.unwrap();
        let refused = two.accept(listener.accept().await.unwrap().0).await;
        assert_eq!(refused.is_err(), is_secured);
        dials.await.unwrap();
    }
}

#[test]
fn files_that_will_not_do_are_refused_by_name() {
    let authority = Authority::new();
    let folder = authority.node("n1");
    let load = || Transport::secured(folder.path(), "n1");
    assert!(load().is_ok());
    let named = |name: &str| Transport::secured(folder.path(), name);
    assert!(matches!(named("n2"), Err(CertificateError::OfAnother { name, .. }) if name == "n2"));
    for odd in ["1", "-a", "a-", ""] {
        assert!(
            matches!(named(odd), Err(CertificateError::Name(_))),
            "{odd}"
        );
    }
    let key = fs::read_to_string(folder.path().join(KEY_FILE)).unwrap();
    write_key(folder.path(), &key, 0o644);
    assert!(matches!(load(), Err(CertificateError::Open { .. })));
    write_key(folder.path(), "no key", 0o600);
    let wrong = load().unwrap_err().to_string();
    assert!(
        wrong.contains("private key") && wrong.contains(KEY_FILE),
        "{wrong}"
    );
    write_key(
        folder.path(),
        &KeyPair::generate().unwrap().serialize_pem(),
        0o600,
    );
    assert!(matches!(load(), Err(CertificateError::Unfit { .. })));
    write_key(folder.path(), &key, 0o640);
    assert!(load().is_ok());
    fs::write(folder.path().join(AUTHORITY_FILE), "").unwrap();
    assert!(matches!(load(), Err(CertificateError::Content { .. })));
    fs::remove_file(folder.path().join(CERTIFICATE_FILE)).unwrap();
    fs::write(folder.path().join(AUTHORITY_FILE), &authority.pem).unwrap();
    assert!(matches!(load(), Err(CertificateError::Read { .. })));
}

/// An authority is replaced by the next while nodes run: first both are trusted, then certificates are made anew, then
/// the old one goes.
#[tokio::test]
async fn certificates_are_changed_while_nodes_run() {
    let (old, new) = (Authority::new(), Authority::new());
    let (one_at, two_at) = (old.node("n1"), old.node("n2"));
    let one = Transport::secured(one_at.path(), "n1").unwrap();
    let two = Transport::secured(two_at.path(), "n2").unwrap();
    pair(&one, &two, "n2").await;
    let both = format!("{}{}", old.pem, new.pem);
    let changed = || {
        for transport in [&one, &two] {
            transport.0.as_ref().unwrap().certificates.look_now();
        }
    };
    let put = |folder: &TempDir, text: &str| {
        fs::write(folder.path().join(AUTHORITY_FILE), text).unwrap();
    };
    put(&one_at, &both);
    put(&two_at, &both);
    changed();
    pair(&one, &two, "n2").await;
    new.write(one_at.path(), "n1", 1);
    put(&one_at, &both);
    changed();
    pair(&one, &two, "n2").await;
    pair(&two, &one, "n1").await;
    new.write(two_at.path(), "n2", 1);
    put(&one_at, &new.pem);
    changed();
    pair(&one, &two, "n2").await;
    let (_, taken) = ends(&old.transport("n3"), &two, "n2").await;
    assert!(taken.is_err(), "the old authority counts for nothing");
    // What is half written, or will not do, does no harm, and what comes behind it is used.
    for (text, mode) in [("half", 0o600), (&*new.pem, 0o644), (&*old.pem, 0o600)] {
        put(&two_at, text);
        let key = two_at.path().join(KEY_FILE);
        fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
        changed();
        pair(&one, &two, "n2").await;
    }
    put(&two_at, &new.pem);
    changed();
    pair(&one, &two, "n2").await;
}

/// Whoever sees what passes cannot read it.
#[tokio::test]
async fn what_is_said_cannot_be_read_on_the_way() {
    let authority = Authority::new();
    let secured = (authority.transport("n1"), authority.transport("n2"));
    for (one, two) in [secured, (Transport::plain(), Transport::plain())] {
        let (listener, between) = (listen().await, listen().await);
        let to = listener.local_addr().unwrap();
        let on_the_way = peer("n2", &between);
        let passes = async {
            let (mut from, _) = between.accept().await.unwrap();
            let mut to = TcpStream::connect(to).await.unwrap();
            let (mut seen, mut there, mut back) = (Vec::new(), [0; 4096], [0; 4096]);
            loop {
                tokio::select! {
                    read = from.read(&mut there) => match read.unwrap_or(0) {
                        0 => return seen,
                        read => {
                            seen.extend_from_slice(&there[..read]);
                            to.write_all(&there[..read]).await.unwrap();
                        }
                    },
                    read = to.read(&mut back) => match read.unwrap_or(0) {
                        0 => return seen,
                        read => from.write_all(&back[..read]).await.unwrap(),
                    },
                }
            }
        };
        let says = async {
            let mut stream = one.dial(&on_the_way).await.unwrap();
            stream.write_all(b"a secret word").await.unwrap();
            stream.shutdown().await.unwrap();
        };
        let hears = async {
            let mut stream = two
                .accept(listener.accept().await.unwrap().0)
                .await
                .unwrap();
            let mut heard = Vec::new();
            stream.read_to_end(&mut heard).await.unwrap();
            assert_eq!(heard, b"a secret word");
        };
        let (seen, (), ()) = tokio::join!(passes, says, hears);
        let is_readable = seen.windows(6).any(|part| part == b"secret");
        assert_eq!(is_readable, !one.is_secured());
    }
}
