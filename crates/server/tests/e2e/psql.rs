//! `psql` as a real client: what people type first.

use std::io::Write;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::harness::{Aerostat, send_signal, wait_for};

/// A psql that talks to the node; `None` where there is no psql, which is said aloud.
fn psql(node: &Aerostat, database: &str) -> Option<Command> {
    if Command::new("psql")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_err()
    {
        eprintln!("skipped: no psql (scripts/setup installs it)");
        return None;
    }
    let mut command = Command::new("psql");
    command
        .args([
            "-X",
            "-h",
            "127.0.0.1",
            "-p",
            &node.sql.port().to_string(),
            "-U",
            "aerostat",
            "-d",
            database,
        ])
        .env_remove("PGOPTIONS")
        .env("PAGER", "")
        .env("LC_ALL", "C.UTF-8");
    Some(command)
}

/// Runs a script and gives what it printed on both streams.
pub(crate) fn script(
    node: &Aerostat,
    database: &str,
    flags: &[&str],
    script: &str,
) -> Option<(String, String)> {
    let mut child = psql(node, database)?
        .args(flags)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(script.as_bytes())
        .unwrap();
    let Output { stdout, stderr, .. } = child.wait_with_output().unwrap();
    Some((
        String::from_utf8(stdout).unwrap(),
        String::from_utf8(stderr).unwrap(),
    ))
}

const TABLES: &str = "
    CREATE DATABASE shop;
    \\c shop
    CREATE TABLE parts (id integer PRIMARY KEY, name varchar(20) NOT NULL, price numeric(8,2) DEFAULT 1.50, made date, CHECK (price > 0));
    CREATE TABLE partners (id integer);
    CREATE VIEW cheap AS SELECT * FROM parts WHERE price < 2;
    CREATE SCHEMA stock;
    INSERT INTO parts VALUES (1, 'bolt', 0.25, '2024-01-01'), (2, 'nut', DEFAULT, NULL);
";

#[test]
fn databases_tables_and_columns_are_listed() {
    let node = Aerostat::start();
    let Some((_, errors)) = script(&node, "aerostat", &["-q"], TABLES) else {
        return;
    };
    assert_eq!(errors, "");
    let flags = ["-q", "-A", "-t"];
    let list = |command: &str| {
        let (out, errors) = script(&node, "shop", &flags, command).unwrap();
        assert_eq!(errors, "", "{command}");
        out
    };
    assert!(
        list("\\l")
            .lines()
            .any(|line| line.starts_with("shop|aerostat|UTF8")),
        "{}",
        list("\\l")
    );
    assert!(list("\\l+").contains("shop|"));
    let tables = list("\\dt");
    assert!(tables.contains("public|parts|table|aerostat"), "{tables}");
    assert!(
        tables.contains("public|partners|table|aerostat") && !tables.contains("cheap"),
        "{tables}"
    );
    let relations = list("\\d");
    assert!(
        relations.contains("public|cheap|view|aerostat")
            && relations.contains("public|parts|table"),
        "{relations}"
    );
    let columns = list("\\d parts");
    for line in [
        "id|integer||not null|",
        "name|character varying(20)||not null|",
        "made|date|||",
    ] {
        assert!(columns.contains(line), "{line} is not in\n{columns}");
    }
    assert!(columns.contains("price|numeric(8,2)|||1.50"), "{columns}");
    // Without -t, psql also shows what belongs to the table.
    let (whole, errors) = script(&node, "shop", &["-q", "-A"], "\\d parts").unwrap();
    assert_eq!(errors, "");
    assert!(whole.contains("\"parts_pkey\" PRIMARY KEY"), "{whole}");
    assert!(whole.contains("CHECK"), "{whole}");
    assert!(
        list("\\d cheap").contains("price|numeric(8,2)"),
        "{}",
        list("\\d cheap")
    );
    assert!(list("\\d+ parts").contains("bolt") || list("\\d+ parts").contains("id|integer"));
    assert!(list("\\dn").contains("stock|aerostat"), "{}", list("\\dn"));
    assert!(list("\\dv").contains("public|cheap|view|aerostat"));
    assert!(list("\\du").contains("aerostat|"));
    assert!(list("\\conninfo").contains("\"shop\""));
    // psql says nothing of what it does not find when it is told to be quiet.
    let (_, errors) = script(&node, "shop", &["-A", "-t"], "\\d nothing_here").unwrap();
    assert!(
        errors.contains("Did not find any relation named \"nothing_here\""),
        "{errors}"
    );
}

/// What psql 15 sends when the tab key is pressed, as a PostgreSQL logged it.
const TAB_COMPLETIONS: &[(&str, &str, &[&str])] = &[
    (
        "SELECT * FROM pa<TAB>",
        "SELECT c.relname, NULL::pg_catalog.text FROM pg_catalog.pg_class c WHERE c.relkind IN ('r', 'S', 'v', 'm', 'f', 'p') AND (c.relname) LIKE 'pa%' AND pg_catalog.pg_table_is_visible(c.oid) AND c.relnamespace <> (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = 'pg_catalog')
         UNION ALL
         SELECT NULL::pg_catalog.text, n.nspname FROM pg_catalog.pg_namespace n WHERE n.nspname LIKE 'pa%' AND n.nspname NOT LIKE E'pg\\\\_%'
         LIMIT 1000",
        &["partners|", "parts|"],
    ),
    (
        "SELECT * FROM s<TAB>",
        "SELECT c.relname, NULL::pg_catalog.text FROM pg_catalog.pg_class c WHERE c.relkind IN ('r', 'S', 'v', 'm', 'f', 'p') AND (c.relname) LIKE 's%' AND pg_catalog.pg_table_is_visible(c.oid) AND c.relnamespace <> (SELECT oid FROM pg_catalog.pg_namespace WHERE nspname = 'pg_catalog')
         UNION ALL
         SELECT NULL::pg_catalog.text, n.nspname FROM pg_catalog.pg_namespace n WHERE n.nspname LIKE 's%' AND n.nspname NOT LIKE E'pg\\\\_%'
         LIMIT 1000",
        &["|stock"],
    ),
    (
        "SELECT a FROM parts WHERE <TAB>",
        "SELECT a.attname, NULL::pg_catalog.text FROM pg_catalog.pg_attribute a, pg_catalog.pg_class c WHERE c.oid = a.attrelid and a.attnum > 0 and not a.attisdropped AND (a.attname) LIKE '%' AND c.relname = 'parts' AND pg_catalog.pg_table_is_visible(c.oid)
         LIMIT 1000",
        &["id|", "made|", "name|", "price|"],
    ),
    (
        "DROP DATABASE sh<TAB>",
        "SELECT datname FROM pg_catalog.pg_database  WHERE datname LIKE 'sh%'
         LIMIT 1000",
        &["shop"],
    ),
    (
        "SET timez<TAB>",
        "SELECT pg_catalog.lower(name) FROM pg_catalog.pg_settings  WHERE context IN ('user', 'superuser')    AND pg_catalog.lower(name) LIKE pg_catalog.lower('timez%')
         LIMIT 1000",
        &["timezone"],
    ),
];

#[test]
fn tab_completion_finds_names() {
    let node = Aerostat::start();
    if script(&node, "aerostat", &["-q"], TABLES).is_none() {
        return;
    }
    for (typed, query, expected) in TAB_COMPLETIONS {
        let (out, errors) =
            script(&node, "shop", &["-q", "-A", "-t"], &format!("{query};\n")).unwrap();
        assert_eq!(errors, "", "{typed}");
        let mut lines: Vec<&str> = out.lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, *expected, "{typed}");
    }
}

#[test]
fn errors_carry_sqlstate_and_position() {
    let node = Aerostat::start();
    let ask = |sql: &str| {
        let text = format!("\\set VERBOSITY verbose\n{sql};\n");
        script(&node, "aerostat", &["-q"], &text).map(|(_, errors)| errors)
    };
    let Some(errors) = ask("SELECT nope") else {
        return;
    };
    assert!(
        errors.contains("ERROR:  42703: column \"nope\" does not exist"),
        "{errors}"
    );
    assert!(
        errors.contains("LINE 1: SELECT nope") && errors.contains("               ^"),
        "{errors}"
    );
    let errors = ask("SELECT 1 +\n  FROM").unwrap();
    assert!(
        errors.contains("ERROR:  42601:") && errors.contains("LINE 2:"),
        "{errors}"
    );
    let errors = ask("SELECT * FROM missing").unwrap();
    assert!(
        errors.contains("ERROR:  42P01: relation \"missing\" does not exist"),
        "{errors}"
    );
    assert!(errors.contains("LINE 1: SELECT * FROM missing"), "{errors}");
    let errors = ask("SELECT 1 / 0").unwrap();
    assert!(
        errors.contains("ERROR:  22012: division by zero"),
        "{errors}"
    );
    let errors =
        ask("CREATE TABLE k (a integer PRIMARY KEY);\nINSERT INTO k VALUES (1), (1)").unwrap();
    assert!(
        errors.contains("ERROR:  23505: duplicate key value violates unique constraint \"k_pkey\""),
        "{errors}"
    );
    assert!(
        errors.contains("DETAIL:  Key (a)=(1) already exists."),
        "{errors}"
    );
}

#[test]
fn ctrl_c_cancels_the_query_and_the_session_goes_on() {
    let node = Aerostat::start();
    let Some(mut command) = psql(&node, "aerostat") else {
        return;
    };
    let mut child = command
        .args(["-q", "-A", "-t"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let endless = "SELECT count(*) FROM generate_series(1, 1000000) AS a, generate_series(1, 1000000) AS b WHERE a + b = -1;\n\
                   SELECT 'still ' || 'here';\n";
    let mut input = child.stdin.take().unwrap();
    input.write_all(endless.as_bytes()).unwrap();
    drop(input);
    std::thread::sleep(Duration::from_millis(700));
    assert!(
        child.try_wait().unwrap().is_none(),
        "the query is not running"
    );
    let started = Instant::now();
    send_signal(child.id(), "INT");
    wait_for(&mut child);
    let elapsed = started.elapsed();
    let Output { stdout, stderr, .. } = child.wait_with_output().unwrap();
    let (out, errors) = (
        String::from_utf8_lossy(&stdout),
        String::from_utf8_lossy(&stderr),
    );
    assert!(
        errors.contains("canceling statement due to user request"),
        "{errors}"
    );
    // psql gives up a script that was interrupted, or goes on; the server must allow both.
    assert!(out.is_empty() || out.contains("still here"), "{out}");
    assert!(
        elapsed < Duration::from_secs(5),
        "cancelling took {elapsed:?}"
    );
    eprintln!("cancelled after {elapsed:?}");
    node.wait_for_metric("aerostat_tenant_connections{tenant=\"aerostat\"}", 0.0);
}

#[test]
fn copy_moves_files_in_and_out() {
    let node = Aerostat::start();
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("in.csv"), folder.path().join("out.csv"));
    let rows = "id,name,price\n1,\"a, \"\"b\"\"\",1.50\n2,,2.00\n3,\"line\nbreak\",\n";
    std::fs::write(&from, rows).unwrap();
    let text = format!(
        "CREATE TABLE c (id integer PRIMARY KEY, name text, price numeric(5,2));\n\
         \\copy c FROM '{0}' WITH (FORMAT csv, HEADER)\n\
         \\copy (SELECT * FROM c ORDER BY id) TO '{1}' WITH (FORMAT csv, HEADER)\n\
         \\copy c FROM '{0}' WITH (FORMAT csv, HEADER)\n\
         SELECT count(*), count(name), sum(price) FROM c;\n",
        from.display(),
        to.display()
    );
    let Some((out, errors)) = script(&node, "aerostat", &["-A", "-t"], &text) else {
        return;
    };
    assert!(
        out.contains("COPY 3") && out.contains("3|2|3.50"),
        "{out}{errors}"
    );
    assert!(
        errors.contains("duplicate key"),
        "the second copy must fail as a whole: {errors}"
    );
    assert_eq!(std::fs::read_to_string(&to).unwrap(), rows);
}

#[test]
fn copy_text_and_binary_round_trip() {
    let node = Aerostat::start();
    let folder = tempfile::tempdir().unwrap();
    let columns = "a smallint, b integer, c bigint, d real, e double precision, f numeric(12,3), g boolean, h char(4), i varchar(9), j text, k bytea, l uuid, m date, n time, o timestamp, p timestamptz, q interval";
    let values = "(1, -2, 3000000000, 1.5, -2.25, 12345.678, true, 'ab', 'cd', E'tab\\there\\\\n', '\\x00ff', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', '2024-02-29', '13:14:15.5', '1999-12-31 23:59:59.999999', '2024-01-01 00:00:00+00', '1 year 2 days 03:04:05'), (NULL, NULL, NULL, 'NaN', 'Infinity', -0.001, false, '', '', '', '', NULL, '0001-01-01', '00:00:00', '1970-01-01', NULL, '-1 month')";
    for format in ["text", "csv", "binary"] {
        let path = folder.path().join(format);
        let text = format!(
            "CREATE TABLE x_{format} ({columns});\nINSERT INTO x_{format} VALUES {values};\nCREATE TABLE y_{format} ({columns});\n\
             \\copy x_{format} TO '{0}' WITH (FORMAT {format})\n\\copy y_{format} FROM '{0}' WITH (FORMAT {format})\n\
             (SELECT * FROM x_{format} EXCEPT SELECT * FROM y_{format}) UNION ALL (SELECT * FROM y_{format} EXCEPT SELECT * FROM x_{format});\n\
             SELECT 'rows ' || count(*) FROM y_{format};\n",
            path.display()
        );
        let Some((out, errors)) = script(&node, "aerostat", &["-q", "-A", "-t"], &text) else {
            return;
        };
        assert_eq!(
            (out.as_str(), errors.as_str()),
            ("rows 2\n", ""),
            "{format}"
        );
    }
}
