//! Copies that freeze, one while another serves.

use std::process::Command;

use super::writers::Writers;
use crate::{
    copies::{Cluster, leads, wait_for_members, wait_until},
    harness::{Aerostat, BINARY, said},
};

/// Rows of a table that are frozen in a node's own copy.
async fn frozen(node: &Aerostat) -> i64 {
    let mut config = node.config("shop");
    config.options("-c aerostat.read_from=any");
    let (client, connection) = config.connect(tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let sql = "SELECT coalesce(sum(rows_frozen), 0)::int8 FROM aerostat.tables WHERE table_name = 'large'";
    client.query_one(sql, &[]).await.unwrap().get(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_freeze_while_another_serves() {
    let cluster = Cluster::of_gateways();
    // Nothing freezes by itself.
    let flags = ["--memory", "512MB", "--freezer", "0%"];
    let nodes =
        ["a", "b"].map(|name| cluster.start_with_flags(tempfile::tempdir().unwrap(), name, &flags));
    wait_for_members(&nodes[0], "aerostat", 2);
    let admin = nodes[0].create("shop").await;
    wait_for_members(&nodes[0], "shop", 2);
    admin
        .batch_execute(
            "CREATE TABLE t (id bigint PRIMARY KEY); CREATE TABLE large (id bigint PRIMARY KEY, v text);
             INSERT INTO large SELECT g, md5(g::text) FROM generate_series(1, 100000) g",
        )
        .await
        .unwrap();
    assert!(leads(&nodes[0], "shop"));
    for node in &nodes {
        assert_eq!(frozen(node).await, 0);
    }
    let writers = Writers::start(&nodes, 3).await;
    let url = format!("postgres://aerostat@{}", nodes[0].sql);
    let merge = ["cluster", "merge", "--database", "shop", "--url", &url];
    // Until the nodes have heard of each other's copies.
    let mut output = Command::new(BINARY).args(merge).output().unwrap();
    wait_until("it merges", || {
        if !said(&output).contains("node b leads") {
            output = Command::new(BINARY).args(merge).output().unwrap();
        }
        said(&output).contains("node b leads")
    });
    assert!(output.status.success(), "{}", said(&output));
    let wrote = writers.stop(&nodes[0]).await;
    assert!(wrote.cuts.is_empty(), "{:?}", wrote.cuts);
    for node in &nodes {
        assert_eq!(frozen(node).await, 100_000, "{}", said(&output));
    }
    assert!(leads(&nodes[1], "shop"));
    let unknown = Command::new(BINARY)
        .args(["cluster", "merge", "--database", "none", "--url", &url])
        .output()
        .unwrap();
    assert!(
        said(&unknown).contains("no database none"),
        "{}",
        said(&unknown)
    );
}
