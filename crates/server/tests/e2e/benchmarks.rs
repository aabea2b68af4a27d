//! pgbench and sysbench, unmodified: they make their tables, run their transactions in
//! every query mode, and leave balances that agree, also when the node is killed meanwhile.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tokio_postgres::Client;

use crate::harness::{Aerostat, value, wait_for};

const PGBENCH: &str = "/usr/lib/postgresql/15/bin/pgbench";

/// pgbench on the database `bench`.
fn pgbench(node: SocketAddr, arguments: &[&str]) -> Command {
    let mut command = Command::new(PGBENCH);
    command
        .args(["-h", &node.ip().to_string(), "-p", &node.port().to_string()])
        .args(["-U", "aerostat"])
        .args(arguments)
        .arg("bench")
        .env_remove("PGOPTIONS");
    command
}

/// Runs it to its end; gives what it printed.
fn finished(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{command:?}\n{out}\n{err}");
    out
}

fn is_installed(program: &str, package: &str) -> bool {
    let found = Path::new(program).exists();
    if !found {
        eprintln!("skipped: {program} is not installed (scripts/setup {package})");
    }
    found
}

/// TPC-B's consistency condition: every transfer is in all three balances and in the history.
async fn balances_agree(client: &Client) {
    let sums = "SELECT (SELECT sum(abalance) FROM pgbench_accounts), \
                (SELECT sum(tbalance) FROM pgbench_tellers), \
                (SELECT sum(bbalance) FROM pgbench_branches), \
                (SELECT coalesce(sum(delta), 0) FROM pgbench_history)";
    let row = client.query_one(sums, &[]).await.unwrap();
    let sum = |at: usize| row.get::<_, i64>(at);
    assert!(
        sum(0) == sum(1) && sum(1) == sum(2) && sum(2) == sum(3),
        "accounts {}, tellers {}, branches {}, history {}",
        sum(0),
        sum(1),
        sum(2),
        sum(3)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn pgbench_runs_in_every_query_mode() {
    if !is_installed(PGBENCH, "postgres") {
        return;
    }
    let node = Aerostat::start();
    let client = node.create("bench").await;
    finished(&mut pgbench(node.sql, &["-i", "-s", "1"]));
    assert_eq!(
        value(&client, "SELECT count(*) FROM pgbench_accounts").await,
        "100000"
    );
    for mode in ["simple", "extended", "prepared"] {
        for script in ["tpcb-like", "select-only", "simple-update"] {
            let arguments = ["-n", "-M", mode, "-b", script, "-c", "4", "-t", "25"];
            let out = finished(&mut pgbench(node.sql, &arguments));
            assert!(
                out.contains("number of transactions actually processed: 100/100"),
                "{mode} {script}:\n{out}"
            );
        }
    }
    assert_eq!(
        value(&client, "SELECT count(*) FROM pgbench_history").await,
        "600"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn pgbench_balances_agree_after_a_kill() {
    if !is_installed(PGBENCH, "postgres") {
        return;
    }
    let node = Aerostat::start();
    let client = node.create("bench").await;
    finished(&mut pgbench(node.sql, &["-i", "-s", "2"]));
    let mut running: Child = pgbench(node.sql, &["-n", "-c", "4", "-T", "60"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let history = "SELECT count(*) FROM pgbench_history";
    while value(&client, history).await.parse::<u32>().unwrap() < 500 {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let data = node.kill();
    let status = wait_for(&mut running);
    assert!(!status.success(), "pgbench did not notice the kill");
    let node = Aerostat::start_on(data, &[]);
    let client = node.connect("bench").await;
    balances_agree(&client).await;
    assert!(value(&client, history).await.parse::<u32>().unwrap() >= 500);
    finished(&mut pgbench(node.sql, &["-n", "-c", "4", "-t", "100"]));
    balances_agree(&client).await;
}

const SYSBENCH: &str = "/usr/bin/sysbench";

#[tokio::test(flavor = "multi_thread")]
async fn sysbench_runs_its_oltp_scripts() {
    if !is_installed(SYSBENCH, "clients") {
        return;
    }
    let node = Aerostat::start();
    let client = node.create("bench").await;
    let sysbench = |script: &str, step: &str| {
        let output = Command::new(SYSBENCH)
            .args([
                "--db-driver=pgsql",
                "--pgsql-user=aerostat",
                "--pgsql-db=bench",
            ])
            .arg(format!("--pgsql-host={}", node.sql.ip()))
            .arg(format!("--pgsql-port={}", node.sql.port()))
            .args(["--tables=2", "--table-size=1000", "--threads=4"])
            .args(["--events=200", "--time=0", "--rand-seed=7"])
            .args([script, step])
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            output.status.success() && !printed.contains("FATAL"),
            "sysbench {script} {step}:\n{printed}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    sysbench("oltp_read_write", "prepare");
    for script in [
        "oltp_read_write",
        "oltp_read_only",
        "oltp_write_only",
        "oltp_point_select",
        "oltp_update_index",
        "oltp_update_non_index",
        "oltp_delete",
        "oltp_insert",
    ] {
        sysbench(script, "run");
    }
    let rows = value(&client, "SELECT count(*) FROM sbtest1").await;
    assert!(rows.parse::<u32>().unwrap() > 900, "{rows} rows are left");
    sysbench("oltp_read_write", "cleanup");
}
