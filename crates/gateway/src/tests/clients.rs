//! tokio-postgres as an independent client: SCRAM, parameters and results in binary, COPY.

use std::time::Duration;

use bytes::Bytes;
use futures::{SinkExt, TryStreamExt, pin_mut};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage, error::SqlState};

use super::{
    fake::Fake,
    raw::{Node, node, node_with},
};
use crate::GatewayOptions;

async fn connect(
    node: &Node,
    user: &str,
    password: Option<&str>,
) -> Result<Client, tokio_postgres::Error> {
    let mut config = tokio_postgres::Config::new();
    config
        .host("127.0.0.1")
        .port(node.address.port())
        .user(user)
        .dbname("d");
    config.connect_timeout(Duration::from_secs(20));
    if let Some(password) = password {
        config.password(password);
    }
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

fn verifier(password: &str) -> aerostat_api::ScramVerifier {
    let hashed = aerostat_api::hash_password(password).unwrap();
    hashed.unwrap().parse().unwrap()
}

#[tokio::test]
async fn scram_lets_in_with_the_right_password_alone() {
    let fake = || Fake {
        password: Some(verifier("pencil")),
        ..Fake::default()
    };
    let node = node_with(
        fake(),
        GatewayOptions {
            trust_loopback: false,
            ..GatewayOptions::default()
        },
    )
    .await;
    let client = connect(&node, "bob", Some("pencil")).await.unwrap();
    assert_eq!(client.simple_query("count 1").await.unwrap().len(), 3);
    // A wrong password, a role without one, and an unknown role cannot be told apart.
    for (user, password) in [
        ("bob", "Pencil"),
        ("bob", ""),
        ("ann", "pencil"),
        ("nobody", "pencil"),
    ] {
        let error = connect(&node, user, Some(password))
            .await
            .map(|_| ())
            .unwrap_err();
        assert_eq!(
            error.code(),
            Some(&SqlState::INVALID_PASSWORD),
            "{user} {password:?}: {error}"
        );
    }
    // Trust does not let a role in that has a password.
    let trusting = node_with(fake(), GatewayOptions::default()).await;
    assert!(connect(&trusting, "bob", Some("wrong")).await.is_err());
    assert!(connect(&trusting, "bob", Some("pencil")).await.is_ok());
    assert!(connect(&trusting, "ann", None).await.is_ok());
}

#[tokio::test]
async fn parameters_and_results_travel_in_binary() {
    for text in ["echo 6", "echo-columns 6"] {
        travel_in_binary(text).await;
    }
}

async fn travel_in_binary(text: &str) {
    let node = node().await;
    let client = connect(&node, "ann", None).await.unwrap();
    let statement = client.prepare(text).await.unwrap();
    let row = client
        .query_one(
            &statement,
            &[&true, &-2i16, &3i32, &i64::MIN, &1.5f32, &None::<f64>],
        )
        .await
        .unwrap();
    assert_eq!(
        (
            row.get::<_, bool>(0),
            row.get::<_, i16>(1),
            row.get::<_, i32>(2)
        ),
        (true, -2, 3)
    );
    assert_eq!(
        (
            row.get::<_, i64>(3),
            row.get::<_, f32>(4),
            row.get::<_, Option<f64>>(5)
        ),
        (i64::MIN, 1.5, None)
    );
    let error = client.query("error", &[]).await.unwrap_err();
    assert_eq!(error.as_db_error().unwrap().constraint(), Some("t_pkey"));
}

#[tokio::test]
async fn transactions_portals_and_pipelines_work() {
    let node = node().await;
    let mut client = connect(&node, "ann", None).await.unwrap();
    let statement = client.prepare("count 25").await.unwrap();
    let (one, two) =
        futures::future::join(client.query(&statement, &[]), client.query("count 7", &[])).await;
    assert_eq!((one.unwrap().len(), two.unwrap().len()), (25, 7));
    let messages = client.simple_query("begin; count 1").await.unwrap();
    assert!(matches!(
        messages.last(),
        Some(SimpleQueryMessage::CommandComplete(1))
    ));
    client.simple_query("commit").await.unwrap();
    let _ = client
        .transaction()
        .await
        .map(|_| ())
        .map_err(|e| e.to_string());
}

#[tokio::test]
async fn copy_streams_and_cancel_tokens_work() {
    let node = node().await;
    let client = connect(&node, "ann", None).await.unwrap();
    let sink = client.copy_in::<_, Bytes>("copy in text").await.unwrap();
    pin_mut!(sink);
    let mut rows = String::new();
    for n in 0..20_000 {
        rows.push_str(&format!("{n}\trow {n}\n"));
        if rows.len() > 1000 {
            sink.send(Bytes::from(std::mem::take(&mut rows)))
                .await
                .unwrap();
        }
    }
    sink.send(Bytes::from(rows)).await.unwrap();
    assert_eq!(sink.finish().await.unwrap(), 20_000);
    let batches = std::mem::take(&mut *node.seen.copied.lock().unwrap());
    assert_eq!(
        batches.iter().map(|b| b.num_rows()).collect::<Vec<_>>(),
        [8192, 8192, 3616]
    );
    let out: Vec<Bytes> = client
        .copy_out("copy out csv")
        .await
        .unwrap()
        .try_collect()
        .await
        .unwrap();
    assert_eq!(out.len(), 3);

    let token = client.cancel_token();
    let canceller = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        token.cancel_query(NoTls).await.unwrap();
    };
    let (result, ()) = futures::future::join(client.simple_query("forever"), canceller).await;
    assert_eq!(result.unwrap_err().code(), Some(&SqlState::QUERY_CANCELED));
    assert_eq!(client.simple_query("count 1").await.unwrap().len(), 3);
}
