//! Nodes whose cluster is in etcd: three members, which are started here, and end at times.

use std::time::{Duration, Instant};

use crate::{
    copies::{Cluster, catch_up, connect, leads, promote, text, wait_for_members, wait_until},
    etcd_members::Members,
};

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_share_etcd_replace_a_leader_and_outlive_etcds_members() {
    let Some(mut members) = Members::start() else {
        return;
    };
    let cluster = Cluster::of_etcd(&members);
    let (a, b) = cluster.pair();
    let client = a.create("shop").await;
    let sql = "CREATE TABLE t (a int PRIMARY KEY); CREATE ROLE clerk LOGIN;
               ALTER DATABASE shop SET (durability = 'memory2')";
    client.batch_execute(sql).await.unwrap();
    wait_for_members(&a, "shop", 2);
    // One of etcd's members is frozen, and the leader ends after it.
    members.freeze(0);
    client
        .batch_execute("INSERT INTO t VALUES (1)")
        .await
        .unwrap();
    let folder = a.kill();
    wait_until("the other leads", || leads(&b, "shop"));
    let client = connect(&b, "shop").await;
    assert_eq!(text(&client, "SELECT count(*)::text FROM t").await, "1");
    client
        .batch_execute("INSERT INTO t VALUES (2)")
        .await
        .unwrap();
    members.thaw(0);
    members.stop(1);
    // It comes back, and is handed the lead.
    let a = cluster.start_on(folder, "a");
    wait_for_members(&b, "shop", 2);
    catch_up(&client, &connect(&a, "shop").await).await;
    let promoted = promote(&a, "shop");
    assert!(promoted.status.success(), "{promoted:?}");
    let client = connect(&a, "shop").await;
    client
        .batch_execute("INSERT INTO t VALUES (3)")
        .await
        .unwrap();
    assert_eq!(text(&client, "SELECT count(*)::text FROM t").await, "3");
    // Roles and databases are the cluster's.
    let sql = "SELECT count(*)::text FROM pg_roles WHERE rolname = 'clerk'";
    assert_eq!(text(&connect(&b, "shop").await, sql).await, "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn while_etcd_is_away_commits_and_reads_go_on() {
    let Some(mut members) = Members::start() else {
        return;
    };
    let cluster = Cluster::of_etcd(&members);
    let (a, b) = cluster.pair();
    let client = connect(&a, "aerostat").await;
    let sql =
        "CREATE TABLE t (a int PRIMARY KEY); ALTER DATABASE aerostat SET (durability = 'memory2')";
    client.batch_execute(sql).await.unwrap();
    let copy = connect(&b, "aerostat").await;
    (0..3).for_each(|member| members.stop(member));
    // Several times as long as a lease.
    let away = std::env::var("ETCD_AWAY_SECONDS").map_or(8, |text| text.parse().unwrap());
    let began = Instant::now();
    let mut next = 0;
    while began.elapsed() < Duration::from_secs(away) {
        client
            .execute("INSERT INTO t VALUES ($1)", &[&next])
            .await
            .unwrap();
        next += 1;
        if next % 100 == 0 {
            // Whoever comes is served, at both nodes.
            for node in [&a, &b] {
                let started = Instant::now();
                connect(node, "aerostat").await;
                assert!(
                    started.elapsed() < Duration::from_secs(5),
                    "a session waits for etcd"
                );
            }
            catch_up(&client, &copy).await;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    eprintln!("{next} commits in {away} s without etcd");
    client
        .batch_execute("SET aerostat.read_from = 'leader'")
        .await
        .unwrap();
    let count = text(&client, "SELECT count(*)::text FROM t").await;
    assert_eq!(count, next.to_string());
    // What etcd has to have is refused, and says why.
    let error = client.batch_execute("CREATE DATABASE d").await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert!(error.code().code().starts_with("58"), "{error:?}");
    client
        .execute("INSERT INTO t VALUES ($1)", &[&next])
        .await
        .unwrap();
    // It comes back, and a leader can be replaced.
    (0..3).for_each(|member| members.run(member));
    members.wait();
    client.batch_execute("CREATE DATABASE d").await.unwrap();
    drop(a.kill());
    wait_until("the other leads", || leads(&b, "aerostat"));
    let client = connect(&b, "aerostat").await;
    let count = text(&client, "SELECT count(*)::text FROM t").await;
    assert_eq!(count, (next + 1).to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_stops_while_etcd_is_away_is_left_out_when_it_is_back() {
    let Some(mut members) = Members::start() else {
        return;
    };
    let cluster = Cluster::of_etcd(&members);
    let (a, b) = cluster.pair();
    let client = connect(&a, "aerostat").await;
    let sql =
        "CREATE TABLE t (a int PRIMARY KEY); ALTER DATABASE aerostat SET (durability = 'memory2')";
    client.batch_execute(sql).await.unwrap();
    (0..3).for_each(|member| members.stop(member));
    let folder = b.stop();
    // The other is a member, until etcd has that it is not.
    let commit = tokio::spawn(async move {
        client
            .batch_execute("INSERT INTO t VALUES (1)")
            .await
            .unwrap();
        client
    });
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(
        !commit.is_finished(),
        "a commit that one memory has is none"
    );
    (0..3).for_each(|member| members.run(member));
    members.wait();
    let client = tokio::time::timeout(Duration::from_secs(30), commit)
        .await
        .unwrap()
        .unwrap();
    wait_for_members(&a, "aerostat", 1);
    let b = cluster.start_on(folder, "b");
    wait_for_members(&a, "aerostat", 2);
    let copy = connect(&b, "aerostat").await;
    catch_up(&client, &copy).await;
    assert_eq!(text(&copy, "SELECT count(*)::text FROM t").await, "1");
}
