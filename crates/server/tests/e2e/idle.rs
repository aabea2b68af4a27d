//! Many databases of a cluster that nobody uses: what they cost in threads and memory.

use std::{collections::BTreeMap, fs};

use crate::{
    copies::{Cluster, connect, wait_until},
    harness::{Aerostat, value},
};

const TENANTS: usize = 150;

/// What a database may cost each of its nodes, with its log, its catalogue and its connections.
const TENANT_BYTES_MAX: u64 = 1 << 19;

/// Threads that come and go for what is written, or read from a disk.
const OTHERS: usize = 8;

/// A node's threads, by name.
fn threads(node: &Aerostat) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    let all = fs::read_dir(format!("/proc/{}/task", node.process_id())).unwrap();
    for thread in all {
        // One may have ended meanwhile.
        if let Ok(name) = fs::read_to_string(thread.unwrap().path().join("comm")) {
            *found.entry(name.trim().to_owned()).or_default() += 1;
        }
    }
    found
}

fn led_by_two(node: &Aerostat) -> usize {
    let (_, text) = node.ask("/metrics");
    let members = |line: &&str| line.starts_with("aerostat_copy_members{") && line.ends_with("} 2");
    text.lines().filter(members).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn databases_that_nobody_uses_cost_no_threads_and_little_memory() {
    let cluster = Cluster::of_gateways();
    let (a, b) = cluster.pair();
    let both = [&a, &b];
    let before = both.map(|node| (threads(node), node.resident_bytes()));
    let admin = connect(&a, "aerostat").await;
    for at in 0..TENANTS {
        let create = format!("CREATE DATABASE d{at}");
        admin.batch_execute(&create).await.unwrap();
    }
    wait_until("both have all databases", || {
        both.map(led_by_two).iter().sum::<usize>() > TENANTS
    });
    for (node, (threads_before, bytes_before)) in both.into_iter().zip(before) {
        let sum = |threads: &BTreeMap<String, usize>| threads.values().sum::<usize>();
        wait_until("threads that began something have ended", || {
            sum(&threads(node)) <= sum(&threads_before) + OTHERS
        });
        let now = threads(node);
        assert!(now["aerostat-copies"] <= 8, "{now:?}");
        assert!(now["aerostat-asks"] <= 32, "{now:?}");
        let grown = node.resident_bytes().saturating_sub(bytes_before);
        let each = grown / TENANTS as u64;
        eprintln!("{} threads, {} KiB a tenant", sum(&now), each >> 10);
        assert!(each < TENANT_BYTES_MAX, "{each} bytes a tenant");
    }

    // All of them take changes, through either node, and are led on when one of both has gone.
    for at in (0..TENANTS).step_by(10) {
        let client = connect(both[at / 10 % 2], &format!("d{at}")).await;
        let sql = "CREATE TABLE t (k bigint PRIMARY KEY); INSERT INTO t VALUES (7)";
        client.batch_execute(sql).await.unwrap();
    }
    drop(admin);
    let _ = a.stop();
    for at in (0..TENANTS).step_by(10) {
        let client = connect(&b, &format!("d{at}")).await;
        assert_eq!(value(&client, "SELECT sum(k) FROM t").await, "7");
        client
            .batch_execute("INSERT INTO t VALUES (8)")
            .await
            .unwrap();
    }
}
