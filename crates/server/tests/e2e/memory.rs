//! Memory limits under analytics: what does not fit spills or is refused, the node stays, and
//! stays small. In a control group whose limit ends a process that does not.

use std::collections::BTreeMap;
use std::process::Command;

use serde::Deserialize;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::cgroup::Group;
use crate::harness::{Aerostat, command, value};

/// What a node takes beside its `memory`: itself, its threads' stacks, and what the allocator
/// keeps of freed memory for a moment. Measured: 75 to 142 MB.
const BESIDE_MB: u64 = 192;

/// Of TPC-H. Frozen, its rows take more than the least memory that a node takes.
const SCALE: &str = "0.15";

#[derive(Deserialize)]
struct Query {
    id: String,
    sql: String,
}

fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn queries() -> Vec<Query> {
    let listed = output(command().args(["bench", "queries", "--suite", "tpch", "--scale", SCALE]));
    serde_json::from_str(&listed).unwrap()
}

/// Loads TPC-H; or what the loader says.
fn load(node: &Aerostat, tenant: &str) -> Result<(), String> {
    let url = format!("postgres://aerostat@{}", node.sql);
    let arguments = [
        "load",
        "tpch",
        "--scale",
        SCALE,
        "--tenant",
        tenant,
        "--parallel",
        "2",
    ];
    let loaded = command().args(arguments).args(["--url", &url]).output();
    let loaded = loaded.unwrap();
    match loaded.status.success() {
        true => Ok(()),
        false => Err(String::from_utf8_lossy(&loaded.stderr).into_owned()),
    }
}

/// The rows, or the SQLSTATE.
async fn answer(client: &Client, sql: &str) -> Result<Vec<Vec<String>>, String> {
    let messages = client
        .simple_query(sql)
        .await
        .map_err(|error| match error.code() {
            Some(code) => code.code().to_owned(),
            None => panic!("{sql}: {error:?}"),
        })?;
    let rows = messages.into_iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let text = |row: tokio_postgres::SimpleQueryRow| {
        (0..row.len())
            .map(|at| row.get(at).unwrap_or("NULL").to_owned())
            .collect()
    };
    Ok(rows.map(text).collect())
}

#[tokio::test(flavor = "multi_thread")]
async fn tpch_in_little_memory_is_right_or_refused() {
    if let Err(reasons) = Group::new(1024) {
        eprintln!(
            "skipped: TPC-H in control groups with limits of memory (cannot make one: {reasons})"
        );
        return;
    }
    let queries = queries();
    let mut expected = BTreeMap::new();
    let node = Aerostat::start();
    load(&node, "t").unwrap();
    let client = node.connect("t").await;
    for query in &queries {
        expected.insert(&query.id, answer(&client, &query.sql).await.unwrap());
    }
    // How far the freezer has come must not matter.
    client
        .batch_execute("VACUUM FREEZE; CHECKPOINT")
        .await
        .unwrap();
    drop(client);
    let mut data = node.stop();
    let node = Aerostat::start_on(data, &[]);
    let loaded = node.metric("aerostat_memory_used_bytes");
    data = node.stop();
    for room_mb in [4, 32, 64, 192] {
        let memory_mb = (loaded / f64::from(1 << 20)) as u64 + room_mb;
        let group = Group::new(memory_mb + BESIDE_MB).unwrap();
        let flags = ["--memory", &format!("{memory_mb}MB")];
        let mut node = Aerostat::start_within(data, &flags, &[group.joined()]);
        let client = node.connect("t").await;
        let mut refused = Vec::new();
        for query in &queries {
            match answer(&client, &query.sql).await {
                Ok(rows) => assert_eq!(rows, expected[&query.id], "{} in {memory_mb} MB", query.id),
                Err(state) => {
                    assert_eq!(state, "53200", "{} in {memory_mb} MB", query.id);
                    refused.push(&query.id);
                }
            }
            let used = node.metric("aerostat_memory_used_bytes");
            assert!(
                used <= (memory_mb << 20) as f64,
                "{used} bytes after {}",
                query.id
            );
        }
        eprintln!(
            "{memory_mb} MB: {} of {} refused: {refused:?}",
            refused.len(),
            queries.len()
        );
        match room_mb {
            // Values leave memory rather than that all are refused.
            4 => {
                let series = "aerostat_tenant_read_back_bytes_total{tenant=\"t\"}";
                let read_back = node.metric(series);
                let some = read_back > 0.0 || !refused.is_empty();
                assert!(some, "the limit is none");
            }
            192 => assert!(refused.is_empty(), "{refused:?}"),
            _ => {}
        }
        // The same rows once more have room, also that of what is evicted, or are refused.
        let again = load(&node, "again");
        let is_refused = |said: &String| said.contains("out of memory");
        assert!(
            again.as_ref().err().is_none_or(is_refused),
            "{again:?} in {memory_mb} MB"
        );
        assert_eq!(value(&client, "SELECT count(*) FROM nation").await, "25");
        assert_eq!(group.kills(), 0, "{memory_mb} MB");
        assert!(node.is_running());
        let operator = node.connect("aerostat").await;
        operator
            .batch_execute("DROP DATABASE IF EXISTS again")
            .await
            .unwrap();
        drop((client, operator));
        data = node.stop();
    }
}

/// A nested loop join gathers a side. Where that did not fit it was read again, and gave the rows
/// that nobody had taken before.
#[tokio::test(flavor = "multi_thread")]
async fn joins_without_keys_are_right_or_refused() {
    let node = Aerostat::start();
    let operator = node.connect("aerostat").await;
    for sql in [
        "CREATE DATABASE small",
        "ALTER DATABASE small SET (memory_max = '60MB')",
    ] {
        operator.batch_execute(sql).await.unwrap();
    }
    let client = node.connect("small").await;
    client
        .batch_execute(
            "CREATE TABLE l AS SELECT g AS id, g % 10 AS k FROM generate_series(1, 40000) AS g",
        )
        .await
        .unwrap();
    // 12 MB of texts, and 120.
    for (rows, fits) in [(4_000, true), (40_000, false)] {
        let left = format!("(SELECT repeat('x', 3000 + k) AS u, k FROM l WHERE id <= {rows}) a");
        let right = "(SELECT id FROM l WHERE id % 10000 = 7) b";
        for (from, pairs) in [
            (
                format!("{left} JOIN {right} ON a.k < b.id"),
                4 * rows - rows * 3 / 10,
            ),
            (
                format!("{left} LEFT JOIN {right} ON a.k < b.id"),
                4 * rows - rows * 3 / 10,
            ),
            (
                format!("{left} WHERE EXISTS (SELECT 1 FROM {right} WHERE a.k < b.id)"),
                rows,
            ),
            (
                format!("{left} WHERE NOT EXISTS (SELECT 1 FROM {right} WHERE a.k > b.id)"),
                rows - rows / 5,
            ),
        ] {
            let sql = format!("SELECT count(*), sum(length(a.u)) > 0 FROM {from}");
            match answer(&client, &sql).await {
                Ok(answer) => assert_eq!(answer, [[pairs.to_string(), "t".to_owned()]], "{sql}"),
                Err(state) => {
                    assert_eq!(state, "53200", "{sql}");
                    assert!(!fits, "{sql}");
                }
            }
        }
    }
}
