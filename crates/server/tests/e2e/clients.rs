//! `aerostat load`, `bench` and `demo` against a node.

use std::process::Output;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, StringArray};
use arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;

use crate::harness::{Aerostat, command, value};

/// Runs the binary against the node; gives what it printed.
fn aerostat(node: &Aerostat, arguments: &[&str]) -> Result<String, String> {
    let url = format!("postgres://aerostat@{}", node.sql);
    let Output {
        status,
        stdout,
        stderr,
    } = command()
        .args(arguments)
        .env("AEROSTAT_URL", url)
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if status.success() {
        Ok(text(&stdout))
    } else {
        Err(text(&stderr))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn benchmark_data_are_loaded_and_measured() {
    let node = Aerostat::start();
    let out = aerostat(
        &node,
        &[
            "load", "ssb", "--scale", "0.01", "--tenant", "tenant1", "--layout", "row",
        ],
    )
    .unwrap();
    assert!(out.contains("lineorder") && out.contains("rows/s"), "{out}");
    let client = node.connect("tenant1").await;
    assert_eq!(
        value(&client, "SELECT count(*) FROM lineorder").await,
        "60000"
    );
    let out = aerostat(
        &node,
        &["load", "tpch", "--scale", "0.01", "--tenant", "tpch"],
    )
    .unwrap();
    assert!(out.contains("lineitem"), "{out}");

    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("report.json");
    let flags = [
        "bench",
        "ssb",
        "--tenants",
        "1",
        "--duration",
        "1",
        "--warm-up",
        "0",
        "--json",
        json.to_str().unwrap(),
    ];
    let out = aerostat(&node, &flags).unwrap();
    assert!(
        out.contains("Q4.3") && out.contains("flight 4") && out.contains("goal of 99%"),
        "{out}"
    );
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(report["total"]["failed"], 0);
    assert!(report["total"]["done"].as_u64().unwrap() > 0);
    let open = aerostat(
        &node,
        &[
            "bench",
            "ssb",
            "--duration",
            "1",
            "--rate",
            "5",
            "--warm-up",
            "0",
        ],
    )
    .unwrap();
    assert!(open.contains("open loop"), "{open}");
    let missing = aerostat(
        &node,
        &["bench", "ssb", "--tenant", "tpch", "--duration", "1"],
    )
    .unwrap_err();
    assert!(missing.contains("aerostat load ssb"), "{missing}");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_loaded() {
    let node = Aerostat::start();
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("a.csv");
    std::fs::write(
        &csv,
        "id;name;born\n1;Ada;1815-12-10\n2;\"Grace; H.\";1906-12-09\n3;;\n",
    )
    .unwrap();
    let path = csv.to_str().unwrap();
    let flags = [
        "load",
        "csv",
        path,
        "--table",
        "people",
        "--tenant",
        "files",
        "--create",
        "--delimiter",
        ";",
    ];
    let out = aerostat(&node, &flags).unwrap();
    assert!(out.contains("3 rows"), "{out}");
    let client = node.connect("files").await;
    let query = "SELECT count(*) || ' ' || min(name) || ' ' || max(born) FROM people";
    assert_eq!(value(&client, query).await, "3 Ada 1906-12-09");

    let parquet = folder.path().join("a.parquet");
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..20_000));
    let names: ArrayRef = Arc::new(StringArray::from_iter(
        (0..20_000).map(|n| (n % 7 != 0).then(|| format!("n\t{n}"))),
    ));
    let batch =
        RecordBatch::try_from_iter_with_nullable([("id", ids, false), ("name", names, true)])
            .unwrap();
    let mut writer = ArrowWriter::try_new(
        std::fs::File::create(&parquet).unwrap(),
        batch.schema(),
        None,
    )
    .unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    let path = parquet.to_str().unwrap();
    aerostat(
        &node,
        &[
            "load", "parquet", path, "--table", "numbers", "--tenant", "files", "--create",
        ],
    )
    .unwrap();
    let query = "SELECT count(*) || ' ' || count(name) || ' ' || sum(id) FROM numbers";
    assert_eq!(value(&client, query).await, "20000 17142 199990000");
    let missing = aerostat(
        &node,
        &[
            "load", "parquet", path, "--table", "nothing", "--tenant", "files",
        ],
    )
    .unwrap_err();
    assert!(missing.contains("nothing"), "{missing}");
    assert!(
        aerostat(&node, &["load", "csv", "no-such-file", "--table", "x"])
            .unwrap_err()
            .contains("no-such-file")
    );
}

#[test]
fn the_demo_in_small_is_right() {
    let output = command()
        .args(["demo", "--scale", "0.01", "--duration", "1"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(text.contains("all 52 answers are right"), "{text}");
    for tenant in ["north", "east", "south", "west"] {
        assert!(text.contains(tenant), "{text}");
    }
}
