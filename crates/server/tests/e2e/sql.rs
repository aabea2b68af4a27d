//! `aerostat sql`: the engine in a process without a node, on a folder that a node uses before
//! and after.

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::harness::{Aerostat, command, value};

/// `aerostat sql` on a data folder.
fn sql(data: &Path, arguments: &[&str]) -> Command {
    let mut sql = command();
    sql.args(["sql", "--memory", "512MB", "--threads", "2", "--data"])
        .arg(data)
        .args(arguments);
    sql
}

/// Runs it to its end, with this as its standard input.
fn run(command: &mut Command, input: &str) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It may end before it has read all of it.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// What it prints, if it ends well.
fn printed(data: &Path, arguments: &[&str], input: &str) -> String {
    let output = run(&mut sql(data, arguments), input);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

fn json_lines(printed: &str) -> Vec<Value> {
    let lines = printed.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

const TABLE: &str =
    "CREATE TABLE t (id int PRIMARY KEY, word text, amount numeric(12,2), share float8, \
                     good boolean, at timestamp);
                     INSERT INTO t VALUES (1, 'a,\"b\"', 12.50, 0.5, true, '2026-01-31 12:30'), \
                     (2, NULL, NULL, 'NaN', NULL, NULL)";

#[test]
fn results_are_tables_csv_or_json() {
    let data = tempfile::tempdir().unwrap();
    let made = printed(data.path(), &["-c", TABLE], "");
    assert_eq!(made, "CREATE TABLE\nINSERT 0 2\n");
    let query = "SELECT * FROM t ORDER BY id";
    let table = printed(data.path(), &["-c", query], "");
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(
        rows[0],
        ["id", "word", "amount", "share", "good", "at"],
        "{table}"
    );
    assert_eq!(
        rows[2],
        [
            "1",
            "a,\"b\"",
            "12.50",
            "0.5",
            "t",
            "2026-01-31",
            "12:30:00"
        ]
    );
    assert!(table.contains("(2 rows)"), "{table}");
    assert_eq!(
        printed(data.path(), &["--format", "csv", "-c", query], ""),
        "id,word,amount,share,good,at\n1,\"a,\"\"b\"\"\",12.50,0.5,t,2026-01-31 12:30:00\n2,,,NaN,,\n"
    );
    let json = printed(
        data.path(),
        &["--format", "json", "-c", query, "-c", "DELETE FROM t"],
        "",
    );
    let lines = json_lines(&json);
    assert_eq!(lines.len(), 2);
    assert_eq!(
        lines[0]["columns"][2],
        serde_json::json!({"name": "amount", "type": "numeric(12,2)"})
    );
    // Digits as they are, not through a double.
    assert!(
        json.contains(r#"[1,"a,\"b\"",12.50,0.5,true,"2026-01-31 12:30:00"]"#),
        "{json}"
    );
    assert!(json.contains(r#"[2,null,null,"NaN",null,null]"#), "{json}");
    assert_eq!(lines[0]["tag"], "SELECT 2");
    assert!(lines[0]["ms"].as_f64().unwrap() > 0.0);
    assert_eq!(lines[1]["tag"], "DELETE 2");
    assert!(lines[1].get("rows").is_none());
}

#[test]
fn statements_come_from_files_and_standard_input() {
    let data = tempfile::tempdir().unwrap();
    let file = data.path().join("script.sql");
    std::fs::write(
        &file,
        "INSERT INTO t VALUES (1);\n-- and\nINSERT INTO t VALUES (2);",
    )
    .unwrap();
    let arguments = [
        "-c",
        "CREATE TABLE t (id int PRIMARY KEY)",
        "-f",
        file.to_str().unwrap(),
    ];
    let done = printed(data.path(), &arguments, "SELECT 'not read'");
    assert_eq!(done, "CREATE TABLE\nINSERT 0 1\nINSERT 0 1\n");
    let read = printed(
        data.path(),
        &["--format", "csv"],
        "SELECT sum(id) FROM t; SELECT 'ä;'",
    );
    assert_eq!(read, "sum\n3\n?column?\nä;\n");
    let temporary = run(
        command().args(["sql", "--temporary", "--memory", "512MB", "--timing"]),
        "CREATE TABLE t (id int); SELECT count(*) FROM t",
    );
    assert!(temporary.status.success());
    assert_eq!(text(&temporary.stderr).matches("Time: ").count(), 2);
}

#[test]
fn the_first_error_ends_it_unless_told_otherwise() {
    let data = tempfile::tempdir().unwrap();
    // A folder that others may read is warned of before the error.
    std::fs::set_permissions(data.path(), Permissions::from_mode(0o700)).unwrap();
    let statements = "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1); \
                      INSERT INTO t VALUES (1); SELECT 'later'";
    let output = run(&mut sql(data.path(), &[]), statements);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(text(&output.stdout), "CREATE TABLE\nINSERT 0 1\n");
    let errors = text(&output.stderr);
    assert!(
        errors.starts_with("ERROR:  23505: duplicate key"),
        "{errors}"
    );
    assert!(errors.contains("DETAIL:  Key (id)=(1)"), "{errors}");
    let output = run(
        &mut sql(data.path(), &["--keep-going", "--format", "json"]),
        statements,
    );
    assert_eq!(output.status.code(), Some(0));
    let lines = json_lines(&text(&output.stdout));
    let codes: Vec<_> = lines
        .iter()
        .map(|line| line["error"]["code"].as_str())
        .collect();
    assert_eq!(codes, [Some("42P07"), Some("23505"), Some("23505"), None]);
    assert_eq!(lines[3]["rows"][0][0], "later");
    // No statement is run when one of them is no SQL.
    let output = run(&mut sql(data.path(), &["-c", "DELETE FROM t; SELEC 1"]), "");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        printed(
            data.path(),
            &["--format", "csv", "-c", "SELECT count(*) FROM t"],
            ""
        ),
        "count\n1\n"
    );
    let output = run(
        &mut sql(data.path(), &["--database", "nowhere", "-c", "SELECT 1"]),
        "",
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("nowhere"));
}

#[test]
fn lines_of_json_are_answered_with_lines() {
    let data = tempfile::tempdir().unwrap();
    let orders = [
        r#"{"sql": "CREATE TABLE t (id int PRIMARY KEY, n bigint)"}"#,
        r#"{"sql": "INSERT INTO t SELECT x, x * x FROM generate_series(1, 100) g(x)"}"#,
        r#"{"sql": "SELECT n FROM t WHERE id = 7"}"#,
        r#"{"sql": "SELECT sum(n) FROM t", "rows": false}"#,
        "",
        r#"{"sql": "SELECT nothing"}"#,
        r#"{"sql": "SELECT 1; SELECT 2"}"#,
        r#"{"seql": "SELECT 1"}"#,
        "nonsense",
        r#"{"sql": "SELECT sum(n) FROM t"}"#,
        r#"{"sql": "SELECT sum(n) FROM t"}"#,
    ];
    let lines = json_lines(&printed(data.path(), &["--json-lines"], &orders.join("\n")));
    assert_eq!(lines.len(), orders.len() - 1, "an empty line is none");
    assert_eq!(lines[1]["tag"], "INSERT 0 100");
    assert_eq!(lines[2]["rows"], serde_json::json!([[49]]));
    assert_eq!(lines[3]["tag"], "SELECT 1");
    assert_eq!(lines[3]["columns"][0]["name"], "sum");
    assert!(lines[3].get("rows").is_none());
    let codes: Vec<_> = lines[4..8]
        .iter()
        .map(|line| &line["error"]["code"])
        .collect();
    assert_eq!(codes, ["42703", "42601", "08P01", "08P01"]);
    for line in &lines[8..] {
        assert_eq!(line["rows"][0][0].to_string(), "338350", "{line}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nodes_folder_is_read_and_written() {
    let node = Aerostat::start();
    let client = node.create("shop").await;
    client
        .batch_execute(
            "CREATE TABLE t (id int PRIMARY KEY, n int);
             INSERT INTO t SELECT x, x % 7 FROM generate_series(1, 20000) g(x);
             VACUUM FREEZE t",
        )
        .await
        .unwrap();
    let shop = ["--database", "shop", "--format", "csv", "-c"];
    let query = "SELECT count(*), sum(n) FROM t";
    let refused = run(&mut sql(node.data(), &[&shop[..], &[query]].concat()), "");
    assert_eq!(refused.status.code(), Some(1));
    let errors = text(&refused.stderr);
    assert!(
        errors.contains("another process uses the data folder"),
        "{errors}"
    );
    drop(client);
    let data = node.stop();
    assert_eq!(
        printed(data.path(), &[&shop[..], &[query]].concat(), ""),
        "count,sum\n20000,59998\n"
    );
    let change = "UPDATE t SET n = 100 WHERE id = 5; DELETE FROM t WHERE id > 19000";
    printed(data.path(), &[&shop[..], &[change]].concat(), "");
    let node = Aerostat::start_on(data, &[]);
    let client = node.connect("shop").await;
    assert_eq!(value(&client, "SELECT count(*) FROM t").await, "19000");
    assert_eq!(value(&client, "SELECT n FROM t WHERE id = 5").await, "100");
}
