//! Documents in an etcd cluster of three members, which are started here, and stopped, frozen and cut off.
#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::unwrap_used,
    clippy::panic,
    reason = "these are tests"
)]

mod members;
#[path = "../../storage/tests/meta_suite/mod.rs"]
mod meta_suite;

use std::{
    cell::Cell,
    fs,
    io::{Read, Write},
    net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use aerostat_etcd::{Access, Endpoints, Etcd};
use aerostat_storage::{MetaError, MetaStore, Swapped, Version};
use base64::{Engine, prelude::BASE64_STANDARD};
use members::Members;
use meta_suite::{conforms, done};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair,
};
use serde_json::{Value, json};
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};

fn etcd(members: &[SocketAddr], name: &str) -> Etcd {
    let members: Vec<String> = members.iter().map(SocketAddr::to_string).collect();
    let name = format!("etcd://{}/{name}", members.join(","));
    Etcd::new(name.parse::<Endpoints>().unwrap(), &Access::default())
}

#[test]
fn etcd_conforms() {
    let Some(members) = Members::start() else {
        return;
    };
    let etcd = etcd(&members.clients(), "conforms");
    let store: Arc<dyn MetaStore> = Arc::new(etcd.document("nodes"));
    conforms(&store);
    // Names are apart, and versions count what was put.
    let other = etcd.document("databases/16384");
    assert_eq!(other.load().unwrap(), None);
    for version in 1..4 {
        let before = (version > 1).then_some(Version(version - 1));
        let put = other.compare_and_swap(before, b"{}").unwrap();
        assert_eq!(put, Swapped::Done(Version(version)));
    }
}

#[test]
fn what_was_is_forgotten_and_what_is_stays() {
    let Some(members) = Members::start() else {
        return;
    };
    let etcd = etcd(&members.clients(), "forgets");
    let (often, once) = (etcd.document("often"), etcd.document("once"));
    once.compare_and_swap(None, b"once").unwrap();
    let mut version = None;
    for count in 0..50 {
        let text = format!("{count}");
        version = Some(done(
            often.compare_and_swap(version, text.as_bytes()).unwrap(),
        ));
    }
    let revision = etcd.revision().unwrap();
    assert!(revision > 50);
    etcd.forget_before(revision).unwrap();
    // Twice, and what is gone already, is no error.
    etcd.forget_before(revision).unwrap();
    etcd.forget_before(revision - 5).unwrap();
    assert_eq!(often.load().unwrap().unwrap().document, b"49");
    assert_eq!(once.load().unwrap().unwrap().document, b"once");
    // Versions go on, and who waits is told.
    let waiting = {
        let etcd = etcd.clone();
        thread::spawn(move || {
            let store = etcd.document("often");
            store.wait_newer(version, Duration::from_secs(20)).unwrap()
        })
    };
    thread::sleep(Duration::from_millis(200));
    etcd.forget_before(etcd.revision().unwrap()).unwrap();
    let next = done(often.compare_and_swap(version, b"more").unwrap());
    assert_eq!(Some(next), version.map(|version| Version(version.0 + 1)));
    let found = waiting.join().unwrap().unwrap();
    assert_eq!((found.version, &found.document[..]), (next, &b"more"[..]));
    // What is not there yet cannot be forgotten.
    assert!(etcd.forget_before(u64::MAX >> 1).is_err());
}

#[test]
fn what_etcd_has_stays_while_members_fail() {
    let Some(mut members) = Members::start() else {
        return;
    };
    let store = etcd(&members.clients(), "fails").document("catalog");
    let mut last = done(store.compare_and_swap(None, b"0").unwrap());
    // One that has ended, and one that is frozen, which takes connections and does not answer.
    for frozen in [false, true] {
        match frozen {
            true => members.freeze(0),
            false => members.stop(0),
        }
        for _ in 0..5 {
            last = done(store.compare_and_swap(Some(last), b"1").unwrap());
            assert_eq!(store.load().unwrap().unwrap().version, last);
        }
        match frozen {
            true => members.thaw(0),
            false => members.run(0),
        }
        members.wait();
    }
    // Without a majority nobody answers, and nobody waits for ever.
    members.stop(1);
    members.stop(2);
    let began = Instant::now();
    assert!(matches!(store.load(), Err(MetaError::Io { .. })));
    let swapped = store.compare_and_swap(Some(last), b"2");
    assert!(matches!(swapped, Err(MetaError::Io { .. })), "{swapped:?}");
    assert!(began.elapsed() < Duration::from_secs(30));
    members.run(1);
    members.run(2);
    members.wait();
    // What was not answered was done, or was not.
    let kept = store.load().unwrap().unwrap();
    assert!(kept.version.0 - last.0 <= 1, "{kept:?}");
    done(store.compare_and_swap(Some(kept.version), b"3").unwrap());
}

#[test]
fn whoever_waits_hears_of_it_though_its_member_ends() {
    let Some(mut members) = Members::start() else {
        return;
    };
    let clients = members.clients();
    let store = etcd(&clients, "waits").document("catalog");
    let first = done(store.compare_and_swap(None, b"0").unwrap());
    let waiting = etcd(&clients, "waits").document("catalog");
    let waiting = thread::spawn(move || waiting.wait_newer(Some(first), Duration::from_secs(60)));
    thread::sleep(Duration::from_millis(500));
    // Whoever waits has asked the first.
    members.stop(0);
    thread::sleep(Duration::from_millis(500));
    let second = loop {
        // The others may have to elect a leader.
        match store.compare_and_swap(Some(first), b"1") {
            Ok(swapped) => break done(swapped),
            Err(error) => eprintln!("{error}"),
        }
    };
    let heard = waiting.join().unwrap().unwrap().unwrap();
    assert_eq!(heard.version, second);
}

/// A member's answers go through it, or are lost after the member has given them.
struct Lossy {
    address: SocketAddr,
    loses: Arc<AtomicBool>,
}

impl Lossy {
    fn before(member: SocketAddr) -> Lossy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let loses = Arc::new(AtomicBool::new(false));
        let does = Arc::clone(&loses);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (mut client, does) = (client.unwrap(), Arc::clone(&does));
                let mut there = TcpStream::connect(member).unwrap();
                let (mut asks, mut asked) =
                    (client.try_clone().unwrap(), there.try_clone().unwrap());
                thread::spawn(move || drop(std::io::copy(&mut asks, &mut asked)));
                thread::spawn(move || {
                    let mut bytes = [0; 4096];
                    while let Ok(count @ 1..) = there.read(&mut bytes) {
                        if does.swap(false, Ordering::SeqCst)
                            || client.write_all(&bytes[..count]).is_err()
                        {
                            break;
                        }
                    }
                    let _ = client.shutdown(Shutdown::Both);
                    let _ = there.shutdown(Shutdown::Both);
                });
            }
        });
        Lossy { address, loses }
    }
}

#[test]
fn a_swap_whose_answer_is_lost_is_known_to_be_done() {
    let Some(members) = Members::start() else {
        return;
    };
    let lossy = Lossy::before(members.clients()[0]);
    let store = etcd(&[lossy.address], "loses").document("catalog");
    let mut last = done(store.compare_and_swap(None, b"0").unwrap());
    for round in 1..20_u32 {
        lossy.loses.store(true, Ordering::SeqCst);
        let document = (round % 2).to_string();
        let swapped = store.compare_and_swap(Some(last), document.as_bytes());
        assert!(!lossy.loses.load(Ordering::SeqCst), "nothing was lost");
        assert_eq!(swapped.unwrap(), Swapped::Done(Version(last.0 + 1)));
        last = Version(last.0 + 1);
        // Another's swap of the same document is not one's own.
        lossy.loses.store(true, Ordering::SeqCst);
        let stale = store.compare_and_swap(Some(Version(last.0 - 1)), document.as_bytes());
        let stale = stale.unwrap();
        assert!(
            matches!(&stale, Swapped::Lost(Some(kept)) if kept.version == last),
            "{stale:?}"
        );
    }
}

fn put(member: SocketAddr, key: &str, value: &str) {
    use base64::{Engine, prelude::BASE64_STANDARD};
    let request = serde_json::json!({
        "key": BASE64_STANDARD.encode(key),
        "value": BASE64_STANDARD.encode(value),
    });
    let url = format!("http://{member}/v3/kv/put");
    ureq::post(url).send(request.to_string()).unwrap();
}

#[test]
fn what_is_not_ours_is_told() {
    let Some(members) = Members::start() else {
        return;
    };
    let all = etcd(&members.clients(), "odd");
    put(
        members.clients()[0],
        "/aerostat/odd/catalog",
        "of somebody else",
    );
    let read = all.document("catalog").load();
    let error = read.unwrap_err();
    assert!(error.to_string().contains("/odd/catalog"), "{error}");
    // Larger than etcd takes.
    let mut noise = vec![0; 3 << 20];
    fs::File::open("/dev/urandom")
        .unwrap()
        .read_exact(&mut noise)
        .unwrap();
    let put = all.document("large").compare_and_swap(None, &noise);
    let error = put.unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("larger than max"), "{source}");
    // Nobody is there.
    let nobody = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let read = etcd(&[nobody], "odd").document("catalog").load();
    assert!(matches!(read, Err(MetaError::Io { .. })), "{read:?}");
}

/// An authority's folder: what members have, and what may ask them.
fn certified(folder: &Path, hosts: &[IpAddr]) {
    let authority = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let made = params.self_signed(&authority).unwrap();
    fs::write(folder.join("ca.crt"), made.pem()).unwrap();
    let issuer = Issuer::new(params, authority);
    let hosts: Vec<String> = hosts.iter().map(IpAddr::to_string).collect();
    for (file, names) in [("node", hosts), ("client", vec!["client".to_owned()])] {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(names).unwrap();
        // Members ask themselves, too.
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        // With one, no user is asked for by the gateway.
        params.distinguished_name = DistinguishedName::new();
        let made = params.signed_by(&key, &issuer).unwrap();
        fs::write(folder.join(format!("{file}.crt")), made.pem()).unwrap();
        fs::write(folder.join(format!("{file}.key")), key.serialize_pem()).unwrap();
    }
}

/// Members with TLS that ask for certificates, and for users.
#[test]
fn etcd_may_ask_who_asks() {
    let folder = tempfile::tempdir().unwrap();
    let make = |hosts: &[IpAddr]| {
        certified(folder.path(), hosts);
        folder.path().to_owned()
    };
    let Some(members) = Members::start_by(Some(&make)) else {
        return;
    };
    let clients: Vec<String> = members
        .clients()
        .iter()
        .map(SocketAddr::to_string)
        .collect();
    let name: Endpoints = format!("etcd://{}/asks", clients.join(","))
        .parse()
        .unwrap();
    let by = |access: &Access| Etcd::new(name.clone(), access);
    let certified = || Access::default().with_certificates(folder.path()).unwrap();
    conforms(&(Arc::new(by(&certified()).document("nodes")) as Arc<dyn MetaStore>));
    // In the clear, or without a certificate, nobody is answered, and nobody waits for ever.
    assert!(by(&Access::default()).document("nodes").load().is_err());
    let bare = tempfile::tempdir().unwrap();
    fs::copy(folder.path().join("ca.crt"), bare.path().join("ca.crt")).unwrap();
    let nobody = Access::default().with_certificates(bare.path()).unwrap();
    assert!(by(&nobody).document("nodes").load().is_err());
    let other = tempfile::tempdir().unwrap();
    self::certified(other.path(), &[]);
    let stranger = Access::default().with_certificates(other.path()).unwrap();
    assert!(by(&stranger).document("nodes").load().is_err());
    // A key that is another certificate's is refused where it is read.
    let mixed = tempfile::tempdir().unwrap();
    for (from, file) in [
        (&folder, "ca.crt"),
        (&folder, "client.crt"),
        (&other, "client.key"),
    ] {
        fs::copy(from.path().join(file), mixed.path().join(file)).unwrap();
    }
    let refused = Access::default()
        .with_certificates(mixed.path())
        .unwrap_err();
    assert!(refused.to_string().contains("client.key"), "{refused}");
    // A user where there are none.
    let early = certified().with_user("house".to_owned(), "house's".to_owned());
    let early = chain(&by(&early).document("nodes").load().unwrap_err());
    assert!(early.contains("authentication is not enabled"), "{early}");
    // A user who may do what we do, and no more.
    let admin = Admin::new(folder.path(), &clients[0]);
    let ask = |path: &str, request: Value| admin.ask(path, &request);
    let key = |text: &str| BASE64_STANDARD.encode(text);
    for user in ["root", "house"] {
        ask(
            "/v3/auth/user/add",
            json!({ "name": user, "password": format!("{user}'s") }),
        );
        ask("/v3/auth/role/add", json!({ "name": user }));
        ask("/v3/auth/user/grant", json!({ "user": user, "role": user }));
    }
    let prefix = ("/aerostat/asks/", "/aerostat/asks0");
    let may = json!({ "permType": "READWRITE", "key": key(prefix.0), "range_end": key(prefix.1) });
    ask(
        "/v3/auth/role/grant",
        json!({ "name": "house", "perm": may }),
    );
    ask("/v3/auth/enable", json!({}));
    let refused = by(&certified()).document("nodes").load().unwrap_err();
    assert!(
        chain(&refused).contains("user name is empty"),
        "{}",
        chain(&refused)
    );
    let as_user = |user: &str, password: &str| {
        by(&certified().with_user(user.to_owned(), password.to_owned()))
    };
    let house = as_user("house", "house's");
    let store = house.document("databases/1");
    let first = done(store.compare_and_swap(None, b"1").unwrap());
    assert_eq!(store.load().unwrap().unwrap().version, first);
    let wrong = as_user("house", "wrong")
        .document("nodes")
        .load()
        .unwrap_err();
    assert!(
        chain(&wrong).contains("invalid user ID or password"),
        "{}",
        chain(&wrong)
    );
    // A token that has ended is replaced, and whoever waits is told all the same.
    let other = Etcd::new(
        name.to_string()
            .replace("/asks", "/others")
            .parse()
            .unwrap(),
        &certified().with_user("house".to_owned(), "house's".to_owned()),
    );
    assert!(chain(&other.document("x").load().unwrap_err()).contains("permission denied"));
    admin.log_in("root", "root's");
    ask(
        "/v3/auth/user/changepw",
        json!({ "name": "house", "password": "another" }),
    );
    let late = chain(&store.load().unwrap_err());
    assert!(late.contains("invalid user ID or password"), "{late}");
    ask(
        "/v3/auth/user/changepw",
        json!({ "name": "house", "password": "house's" }),
    );
    assert_eq!(store.load().unwrap().unwrap().version, first);
    let waiting = {
        let store = house.document("databases/1");
        thread::spawn(move || {
            store
                .wait_newer(Some(first), Duration::from_secs(20))
                .unwrap()
        })
    };
    thread::sleep(Duration::from_millis(200));
    let next = done(store.compare_and_swap(Some(first), b"2").unwrap());
    assert_eq!(waiting.join().unwrap().unwrap().version, next);
}

/// Whoever has etcd ask.
struct Admin {
    agent: ureq::Agent,
    member: String,
    token: Cell<Option<String>>,
}

impl Admin {
    fn new(folder: &Path, member: &str) -> Admin {
        let read = |file: &str| fs::read(folder.join(file)).unwrap();
        let certificate = |file: &str| Certificate::from_pem(&read(file)).unwrap();
        let key = PrivateKey::from_pem(&read("client.key")).unwrap();
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .root_certs(RootCerts::new_with_certs(&[certificate("ca.crt")]))
            .client_cert(Some(ClientCert::new_with_certs(
                &[certificate("client.crt")],
                key,
            )))
            .build();
        Admin {
            agent: ureq::Agent::config_builder().tls_config(tls).build().into(),
            member: member.to_owned(),
            token: Cell::new(None),
        }
    }

    fn ask(&self, path: &str, request: &Value) -> Value {
        let mut asking = self.agent.post(format!("https://{}{path}", self.member));
        let token = self.token.take();
        if let Some(token) = &token {
            asking = asking.header("authorization", token);
        }
        self.token.set(token);
        let answer = asking.send(request.to_string());
        let mut answer = answer.unwrap_or_else(|error| panic!("{path}: {error}"));
        serde_json::from_str(&answer.body_mut().read_to_string().unwrap()).unwrap()
    }

    fn log_in(&self, name: &str, password: &str) {
        let request = json!({ "name": name, "password": password });
        let given = self.ask("/v3/auth/authenticate", &request);
        self.token.set(given["token"].as_str().map(str::to_owned));
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
