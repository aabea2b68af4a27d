//! What happens before a client is let in, and what a session holds afterwards.

use std::{sync::Arc, sync::atomic::Ordering, time::Duration};

use super::{
    fake::{Fake, HELD_BYTES_MAX},
    raw::{Node, Raw, bind, describe, execute, kinds, message, node, node_with, parse, query},
    raw::{startup, sync},
};
use crate::{GatewayOptions, NodeSecret, TlsOptions};

#[tokio::test]
async fn sockets_on_which_nobody_speaks_keep_nobody_out() {
    let options = GatewayOptions {
        connections_max: 2,
        authentication_timeout: Duration::from_secs(600),
        ..GatewayOptions::default()
    };
    let node = node_with(Fake::default(), options).await;
    let (mut first, _) = Raw::login(node.address).await;
    let mut silent = Vec::new();
    for n in 0..300 {
        let mut raw = Raw::open(node.address).await;
        // Some have sent the beginning of a packet.
        let half = &startup(&[("user", "ann")])[..n % 12];
        raw.send(half).await;
        silent.push(raw);
    }
    let (mut second, _) = Raw::login(node.address).await;
    for raw in [&mut first, &mut second] {
        assert_eq!(kinds(&raw.ask(&query("count 1")).await), "TDCZ");
    }
    // The first client has been dropped. The last one may still authenticate, and gets the
    // ordinary answer.
    assert!(silent[0].until_closed().await.is_empty());
    let mut last = Raw::open(node.address).await;
    last.send(&startup(&[("user", "ann")])).await;
    let refused = last.until_closed().await;
    assert_eq!(refused[0].field(b'C').as_deref(), Some("53300"));
}

/// The server's first SCRAM message to a user that wants to prove a password.
async fn server_first(node: &Node, user: &str) -> String {
    let mut raw = Raw::open(node.address).await;
    raw.send(&startup(&[("user", user)])).await;
    assert_eq!(raw.reply().await.unwrap().kind, b'R');
    raw.send(&client_first("n,,n=,r=abc")).await;
    let reply = raw.reply().await.unwrap();
    String::from_utf8(reply.body[4..].to_vec()).unwrap()
}

fn client_first(words: &str) -> Vec<u8> {
    let length = u32::try_from(words.len()).unwrap().to_be_bytes();
    message(
        b'p',
        &[b"SCRAM-SHA-256\0", &length[..], words.as_bytes()].concat(),
    )
}

/// The parts of that message that are the same in each exchange: salt and iterations.
async fn salt(node: &Node, user: &str) -> String {
    let first = server_first(node, user).await;
    first.split_once(",s=").unwrap().1.to_owned()
}

#[tokio::test]
async fn salts_do_not_tell_which_roles_there_are() {
    let secret = NodeSecret([7; 32]);
    let node = async || {
        let password = aerostat_api::hash_password("pencil").unwrap();
        let fake = Fake {
            password: password.map(|hashed| hashed.parse().unwrap()),
            ..Fake::default()
        };
        let options = GatewayOptions {
            trust_loopback: false,
            scram_secret: secret.clone(),
            ..GatewayOptions::default()
        };
        node_with(fake, options).await
    };
    // "ann" has no password and "nobody" is no role. As with a verifier, each has a salt of its
    // own, which never changes, not even after a restart.
    let (before, after) = (node().await, node().await);
    let known = salt(&before, "bob").await;
    assert_eq!(salt(&before, "bob").await, known);
    for user in ["ann", "nobody"] {
        let unknown = salt(&before, user).await;
        assert_eq!(salt(&before, user).await, unknown, "{user}");
        assert_eq!(salt(&after, user).await, unknown, "{user}");
        assert_eq!(unknown.len(), known.len(), "{user}: {unknown}, {known}");
        let iterations = |salt: &str| salt.split_once(",i=").unwrap().1.to_owned();
        assert_eq!(iterations(&unknown), iterations(&known));
    }
    let others = [salt(&before, "ann").await, salt(&before, "nobody").await];
    assert_ne!(others[0], others[1]);
}

#[tokio::test]
async fn an_offer_of_channel_binding_that_was_taken_out_is_noticed() {
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
        required: false,
    };
    let options = GatewayOptions {
        tls: Some(tls),
        trust_loopback: false,
        ..GatewayOptions::default()
    };
    let node = node_with(Fake::default(), options).await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(certified.cert.der().clone()).unwrap();
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let mut raw = Raw::open(node.address).await;
    let ask = [8u32.to_be_bytes(), 80_877_103u32.to_be_bytes()].concat();
    raw.send(&ask).await;
    let mut answer = [0];
    tokio::io::AsyncReadExt::read_exact(&mut raw.socket, &mut answer)
        .await
        .unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(client));
    let name = "localhost".try_into().unwrap();
    let socket = connector.connect(name, raw.socket).await.unwrap();
    let mut raw = Raw { socket };
    raw.send(&startup(&[("user", "bob")])).await;
    let offer = raw.reply().await.unwrap();
    assert!(offer.text().contains("SCRAM-SHA-256-PLUS"), "{offer:?}");
    raw.send(&client_first("y,,n=,r=abc")).await;
    let refused = raw.until_closed().await;
    assert_eq!(refused[0].field(b'C').as_deref(), Some("28000"));
    // Without TLS channel binding is not offered, and a client that supports it is right.
    assert!(server_first(&node, "bob").await.starts_with("r=abc"));
    let mut plain = Raw::open(node.address).await;
    plain.send(&startup(&[("user", "bob")])).await;
    plain.reply().await.unwrap();
    plain.send(&client_first("y,,n=,r=abc")).await;
    assert_eq!(plain.reply().await.unwrap().kind, b'R');
}

#[tokio::test]
async fn what_a_session_keeps_is_charged_until_it_is_let_go() {
    let node = node().await;
    let held = || node.seen.held_bytes.load(Ordering::SeqCst);
    let (mut raw, _) = Raw::login(node.address).await;
    // Short messages cost no accounting.
    for _ in 0..10 {
        raw.ask(&query("count 3")).await;
        let pieces = [parse("", "count 3"), bind("", ""), execute("", 0), sync()];
        assert_eq!(kinds(&raw.ask(&pieces.concat()).await), "12DDDCZ");
    }
    assert_eq!(node.seen.holds.load(Ordering::SeqCst), 0);
    // A long one is charged while it is there.
    let long = format!("count 1{}", " ".repeat(1 << 20));
    assert_eq!(kinds(&raw.ask(&query(&long)).await), "TDCZ");
    assert_eq!((node.seen.holds.load(Ordering::SeqCst), held()), (1, 0));
    // A statement with a name is charged until it is closed.
    raw.ask(&[parse("s", "count 1"), sync()].concat()).await;
    assert!(held() > 0);
    raw.ask(&[message(b'C', b"Ss\0"), sync()].concat()).await;
    assert_eq!(held(), 0);
    // A charge beyond the limit is refused, and the session continues.
    let mut kept = 0;
    let statement = format!("count 1{}", " x".repeat(10 << 10));
    let refused = loop {
        let name = format!("s{kept}");
        let replies = raw.ask(&[parse(&name, &statement), sync()].concat()).await;
        if kinds(&replies) != "1Z" {
            break replies;
        }
        kept += 1;
    };
    assert_eq!(refused[0].field(b'C').as_deref(), Some("53200"));
    assert!(kept > 10 && held() <= HELD_BYTES_MAX, "{kept}");
    let again = raw.ask(&[describe(b'S', "s0"), sync()].concat()).await;
    assert_eq!(kinds(&again), "tTZ");
    drop(raw);
    for _ in 0..200 {
        if held() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{} bytes are held for nobody", held());
}
