//! Starting, stopping, configuring, and letting the right people in.

use std::process::{Command, Output};
use std::time::{Duration, Instant};

use tokio_postgres::NoTls;

use crate::harness::{Aerostat, PATIENCE, command, free_address, refusal, sqlstate, value};
use crate::raw::Raw;

fn run(arguments: &[&str], environment: &[(&str, &str)]) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command()
        .args(arguments)
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

#[test]
fn config_check_shows_values_and_origins() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.toml");
    std::fs::write(&file, "memory = \"1GB\"\nthreads = 1\n").unwrap();
    let path = file.to_str().unwrap();
    let (code, out, errors) = run(
        &["config", "check", "--config", path, "--threads", "2"],
        &[("AEROSTAT_HTTP", "127.0.0.1:1")],
    );
    assert_eq!((code, errors.as_str()), (0, ""));
    let line = |name: &str| {
        out.lines()
            .find(|line| line.starts_with(name))
            .unwrap()
            .to_owned()
    };
    assert!(
        line("memory").contains("\"1GB\"") && line("memory").contains(path),
        "{out}"
    );
    assert!(
        line("threads").contains("\"2\"") && line("threads").ends_with("# --threads"),
        "{out}"
    );
    assert!(line("http").ends_with("# AEROSTAT_HTTP"), "{out}");
    assert!(line("listen").ends_with("# default"), "{out}");
    std::fs::write(folder.path().join("b.toml"), &out).unwrap();
    let path = folder.path().join("b.toml");
    assert_eq!(
        run(
            &["config", "check", "--config", path.to_str().unwrap()],
            &[]
        )
        .0,
        0,
        "what it prints is a file"
    );
}

#[test]
fn a_configuration_that_does_not_stand_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.toml");
    std::fs::write(&file, "lisen = \"x\"\n").unwrap();
    let (code, _, errors) = run(&["serve", "--config", file.to_str().unwrap()], &[]);
    assert_eq!(code, 2);
    assert!(
        errors.contains("unknown setting `lisen`; did you mean `listen`?"),
        "{errors}"
    );
    let (code, _, errors) = run(&["serve", "--listen", "0.0.0.0:0"], &[]);
    assert_eq!(code, 2);
    assert_eq!(errors.lines().count(), 1, "{errors}");
    assert!(
        errors.contains("--auth scram --tls self-signed"),
        "{errors}"
    );
    assert_eq!(run(&["serve", "--frobnicate"], &[]).0, 2);
}

#[test]
fn a_taken_port_and_a_taken_folder_are_named() {
    let node = Aerostat::start();
    let folder = tempfile::tempdir().unwrap();
    let taken = node.sql.to_string();
    let (code, _, errors) = run(
        &[
            "serve",
            "--data",
            folder.path().to_str().unwrap(),
            "--listen",
            &taken,
        ],
        &[],
    );
    assert_eq!(code, 1);
    assert!(
        errors.contains(&taken) && errors.contains("--listen"),
        "{errors}"
    );
    let (sql, http) = (free_address().to_string(), free_address().to_string());
    let data = node.data().to_str().unwrap();
    let (code, _, errors) = run(
        &["serve", "--data", data, "--listen", &sql, "--http", &http],
        &[],
    );
    assert_eq!(code, 1);
    assert!(errors.contains(data), "{errors}");
}

#[test]
fn health_and_metrics_are_served() {
    let node = Aerostat::start();
    Raw::session(node.sql, "aerostat")
        .query("SELECT 1")
        .unwrap();
    assert_eq!(node.ask("/healthz"), (200, "ok\n".to_owned()));
    assert_eq!(node.ask("/nothing").0, 404);
    let (_, text) = node.ask("/metrics");
    for name in [
        "aerostat_build_info{version=",
        "aerostat_statements_total{tenant=\"aerostat\",kind=\"select\",outcome=\"ok\"}",
        "aerostat_statement_latency_seconds_bucket{le=\"0.001\",tenant=\"aerostat\"}",
        "aerostat_rows_total{tenant=\"aerostat\"}",
        "aerostat_tenant_memory_used_bytes{tenant=\"aerostat\"}",
        "aerostat_tenant_memory_max_bytes{tenant=\"aerostat\"}",
        "aerostat_memory_max_bytes 2147483648",
        "aerostat_process_resident_memory_bytes",
        "aerostat_process_cpu_seconds",
        "aerostat_uptime_seconds",
    ] {
        assert!(text.contains(name), "{name} is not in\n{text}");
    }
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn a_signal_stops_the_node_and_sessions_are_told() {
    for signal in ["TERM", "INT"] {
        let mut node = Aerostat::start();
        let mut idle = Raw::session(node.sql, "aerostat");
        node.signal(signal);
        let status = node.wait();
        assert!(status.success(), "{signal}: {status}\n{}", node.log());
        let goodbye = String::from_utf8_lossy(&idle.read_to_end()).into_owned();
        assert!(goodbye.is_empty() || goodbye.contains("57P01"), "{goodbye}");
        assert!(node.log().contains("stopped"), "{}", node.log());
    }
}

/// What a node logs when the time that it gives to running statements is over.
const GRACE_OVER: &str = "sessions were still open";

#[test]
fn a_second_signal_ends_the_node_at_once() {
    for (first, second) in [("TERM", "TERM"), ("INT", "INT"), ("TERM", "INT")] {
        let mut node = Aerostat::start();
        let mut busy = Raw::session(node.sql, "aerostat");
        let mut other = Raw::session(node.sql, "aerostat");
        busy.send_query(b"SELECT pg_sleep(600)").unwrap();
        let sleeping = "SELECT count(*) FROM pg_stat_activity
            WHERE state = 'active' AND query = 'SELECT pg_sleep(600)'";
        eventually("the statement runs", || {
            other.query(sleeping).unwrap() == ["1"]
        });
        node.signal(first);
        eventually("the node takes the first signal", || {
            node.log().contains("stopping")
        });
        assert!(node.is_running(), "it gives the statement time to end");
        node.signal(second);
        let status = node.wait();
        let log = node.log();
        assert_eq!(status.code(), Some(130), "{first}, {second}:\n{log}");
        // So it was the signal, and not the end of the time for statements.
        assert!(log.contains("stopping at once"), "{log}");
        assert!(!log.contains(GRACE_OVER), "{log}");
    }
}

/// The time for statements ends a node, too, but as an orderly stop; so the test above can tell.
#[test]
fn a_statement_that_does_not_end_delays_a_stop_for_the_grace_alone() {
    let mut node = Aerostat::start();
    let mut busy = Raw::session(node.sql, "aerostat");
    busy.send_query(b"SELECT pg_sleep(600)").unwrap();
    node.signal("TERM");
    let status = node.wait();
    assert_eq!(status.code(), Some(0), "{}", node.log());
    assert!(!node.log().contains("at once"), "{}", node.log());
}

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_and_databases_outlive_a_restart() {
    let node = Aerostat::start();
    let client = node.connect("aerostat").await;
    client
        .batch_execute("CREATE DATABASE kept WITH (memory_max = '128MB'); CREATE ROLE kept_role LOGIN; CREATE DATABASE dropped; DROP DATABASE dropped")
        .await
        .unwrap();
    drop(client);
    let node = Aerostat::start_on(node.stop(), &[]);
    let client = node.connect("kept").await;
    let databases =
        "SELECT string_agg(datname, ',' ORDER BY datname) FROM pg_database WHERE NOT datistemplate";
    assert_eq!(value(&client, databases).await, "aerostat,kept,postgres");
    assert_eq!(
        value(
            &client,
            "SELECT count(*) FROM pg_roles WHERE rolname = 'kept_role'"
        )
        .await,
        "1"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_see_nothing_of_each_other() {
    let node = Aerostat::start();
    let one = node.create("one").await;
    let two = node.create("two").await;
    one.batch_execute("CREATE TABLE secret (v text); INSERT INTO secret VALUES ('x')")
        .await
        .unwrap();
    assert_eq!(sqlstate(&two, "SELECT * FROM secret").await, "42P01");
    assert_eq!(
        sqlstate(&two, "SELECT * FROM one.public.secret").await,
        "0A000"
    );
    assert_eq!(
        value(
            &two,
            "SELECT count(*) FROM pg_class WHERE relname = 'secret'"
        )
        .await,
        "0"
    );
    assert_eq!(
        value(
            &two,
            "SELECT count(*) FROM information_schema.tables WHERE table_name = 'secret'"
        )
        .await,
        "0"
    );
    two.batch_execute("CREATE TABLE secret (v integer)")
        .await
        .unwrap();
    assert_eq!(value(&one, "SELECT v FROM secret").await, "x");

    one.batch_execute("CREATE ROLE guest LOGIN").await.unwrap();
    let mut config = node.config("one");
    config.user("guest");
    assert_eq!(
        refusal(&config).await,
        "42501",
        "guest has no CONNECT on one"
    );
    one.batch_execute("GRANT CONNECT ON DATABASE one TO guest")
        .await
        .unwrap();
    config.connect(NoTls).await.map(drop).unwrap();
    assert_eq!(refusal(&node.config("nothing")).await, "3D000");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_stays_within_its_memory() {
    let node = Aerostat::start();
    let admin = node.connect("aerostat").await;
    admin
        .batch_execute("CREATE DATABASE small WITH (memory_max = '64MB')")
        .await
        .unwrap();
    let small = node.connect("small").await;
    small
        .batch_execute("CREATE TABLE t (id integer PRIMARY KEY, v text)")
        .await
        .unwrap();
    let too_much =
        "INSERT INTO t SELECT g, repeat('x', 1000) || g FROM generate_series(1, 300000) AS g";
    assert_eq!(sqlstate(&small, too_much).await, "53200");
    assert_eq!(value(&small, "SELECT count(*) FROM t").await, "0");
    small
        .batch_execute("INSERT INTO t SELECT g, 'fits' FROM generate_series(1, 1000) AS g")
        .await
        .unwrap();
    assert_eq!(value(&small, "SELECT count(*) FROM t").await, "1000");
    assert_eq!(node.ask("/healthz").0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn passwords_are_asked_for_and_checked() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    std::fs::write(&file, "open 'sesame'\n").unwrap();
    let node =
        Aerostat::start_with(&["--auth", "scram", "--password-file", file.to_str().unwrap()]);
    let mut config = node.config("aerostat");
    config.password("open 'sesame'");
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    assert_eq!(value(&client, "SELECT 1").await, "1");
    config.password("wrong");
    assert_eq!(refusal(&config).await, "28P01");
    config.user("nobody").password("open 'sesame'");
    assert_eq!(refusal(&config).await, "28P01");
    client
        .batch_execute(
            "CREATE ROLE other LOGIN PASSWORD 'abc'; GRANT CONNECT ON DATABASE aerostat TO other",
        )
        .await
        .unwrap();
    config.user("other").password("abc");
    config.connect(NoTls).await.map(drop).unwrap();
}

#[test]
fn tls_with_a_certificate_of_our_own() {
    if Command::new("psql").arg("--version").output().is_err() {
        eprintln!("skipped: no psql (scripts/setup installs it)");
        return;
    }
    let node = Aerostat::start_with(&["--tls", "self-signed"]);
    let cert = node.data().join("tls-cert.pem");
    let url = |mode: &str| {
        format!(
            "postgres://aerostat@127.0.0.1:{}/aerostat?sslmode={mode}&sslrootcert={}",
            node.sql.port(),
            cert.display()
        )
    };
    for mode in ["require", "verify-full", "disable"] {
        let output = Command::new("psql")
            .args([
                "-X",
                "-A",
                "-t",
                "-c",
                "SELECT 1",
                "-c",
                "\\conninfo",
                &url(mode),
            ])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success(),
            "{mode}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert_eq!(
            text.contains("SSL connection (protocol: TLSv1.3"),
            mode != "disable",
            "{mode}: {text}"
        );
    }
}
