//! Nodes that know each other by certificates, and encrypt what they say.

use std::{
    fs,
    net::IpAddr,
    os::unix::fs::PermissionsExt,
    thread,
    time::{Duration, Instant},
};

use tokio_postgres::Client;

use crate::{
    certificates::{Certificates, try_cert},
    copies::{Cluster, connect, promote, refusal, wait_for_members, wait_until},
    etcd_members::Members,
    harness::{Aerostat, PATIENCE, command, said, value},
};

/// Copies, sessions that are passed on and go along, requests to cancel, and copies that are made anew: as without.
#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_works_by_certificates_as_without() {
    let cluster = Cluster::of_gateways().secured();
    let (a, b, client) = cluster.shop().await;
    client
        .batch_execute(
            "CREATE TABLE t (a int PRIMARY KEY, b text);
             INSERT INTO t SELECT g, repeat('x', 200) FROM generate_series(1, 30000) g",
        )
        .await
        .unwrap();
    // Passed on, both ways more than buffers have.
    let passed = b.connect("shop").await;
    let sql = "SELECT sum(length(b))::text FROM t";
    assert_eq!(value(&passed, sql).await, "6000000");
    let rows = passed.query("SELECT a, b FROM t", &[]).await.unwrap();
    assert_eq!(rows.len(), 30_000);
    // Cancelled through the node that does not have it.
    let token = passed.cancel_token();
    let began = Instant::now();
    let sleeping = tokio::spawn(async move {
        let slept = passed.batch_execute("SELECT pg_sleep(60)").await;
        (passed, slept)
    });
    tokio::time::sleep(Duration::from_millis(300)).await;
    token.cancel_query(tokio_postgres::NoTls).await.unwrap();
    let (passed, slept) = sleeping.await.unwrap();
    assert_eq!(slept.unwrap_err().code().unwrap().code(), "57014");
    assert!(began.elapsed() < PATIENCE);
    // Its session goes along.
    passed
        .batch_execute("SET application_name = 'till'; PREPARE p AS SELECT count(*)::text FROM t")
        .await
        .unwrap();
    assert!(promote(&b, "shop").status.success());
    assert_eq!(value(&passed, "EXECUTE p").await, "30000");
    assert_eq!(value(&passed, "SHOW application_name").await, "till");
    // A third node is made a copy by a seed.
    let c = cluster.start("c");
    wait_for_members(&b, "shop", 3);
    let there = connect(&c, "shop").await;
    assert_eq!(value(&there, sql).await, "6000000");
    // The leader is lost: the others go on.
    drop((client, passed));
    b.kill();
    let next = connect_for_writing(&[&a, &c]).await;
    next.batch_execute("INSERT INTO t VALUES (0, 'after')")
        .await
        .unwrap();
    assert_eq!(value(&next, "SELECT count(*)::text FROM t").await, "30001");
}

/// A session that may write, at whichever node there is one.
async fn connect_for_writing(nodes: &[&Aerostat]) -> Client {
    let began = Instant::now();
    loop {
        for node in nodes {
            let Ok((client, connection)) = node.config("shop").connect(tokio_postgres::NoTls).await
            else {
                continue;
            };
            tokio::spawn(connection);
            let begun = client.batch_execute("BEGIN; DELETE FROM t WHERE false; COMMIT");
            if begun.await.is_ok() {
                return client;
            }
        }
        assert!(began.elapsed() < PATIENCE, "no node leads");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Nodes of another authority, without one, or with another's certificate are nobody's members.
#[tokio::test(flavor = "multi_thread")]
async fn strangers_are_no_members() {
    let cluster = Cluster::of_gateways().secured();
    let a = cluster.start("a");
    let others = Certificates::new();
    let stranger = cluster.start_by(
        tempfile::tempdir().unwrap(),
        "b",
        &["--peer-certs", &others.of("b")],
    );
    wait_until("said what is wrong", || {
        a.log().contains("look at their certificates")
    });
    assert_eq!(a.metric("aerostat_copy_members{tenant=\"aerostat\"}"), 1.0);
    drop(stranger);
    let plain = cluster.start_by(tempfile::tempdir().unwrap(), "c", &[]);
    thread::sleep(Duration::from_secs(3));
    assert_eq!(a.metric("aerostat_copy_members{tenant=\"aerostat\"}"), 1.0);
    drop(plain);
    let d = cluster.start("d");
    wait_for_members(&a, "aerostat", 2);
    drop(d);
}

/// Nodes that prove to etcd who they are.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_share_an_etcd_that_asks_who_they_are() {
    let made = Certificates::new();
    let make = |hosts: &[IpAddr]| {
        let hosts: Vec<String> = hosts.iter().map(IpAddr::to_string).collect();
        let flags: Vec<&str> = hosts.iter().flat_map(|host| ["--host", host]).collect();
        made.cert(&[&["node", "etcd"][..], &flags].concat());
        made.folder_of("etcd")
    };
    let Some(members) = Members::start_by(Some(&make)) else {
        return;
    };
    made.of("client");
    let client = made.folder_of("client");
    for file in ["crt", "key"] {
        let (from, to) = (format!("node.{file}"), format!("client.{file}"));
        fs::rename(client.join(from), client.join(to)).unwrap();
    }
    let cluster = Cluster::of_etcd(&members).secured();
    let folder = client.display().to_string();
    let refused = cluster.is_refused(tempfile::tempdir().unwrap().path(), "a");
    assert!(refused.contains("no member of etcd answers"), "{refused}");
    let start = |name: &str| {
        cluster.start_by(
            tempfile::tempdir().unwrap(),
            name,
            &["--etcd-certs", &folder],
        )
    };
    let (a, _b) = (start("a"), start("b"));
    wait_for_members(&a, "aerostat", 2);
    let node = ["--cluster", &cluster.space, "--node-name", "c"];
    let user = ["--peer-listen", "127.0.0.1:0", "--etcd-user", "house"];
    let data = tempfile::tempdir().unwrap();
    let without = refusal(data.path(), &[&node[..], &user].concat());
    assert!(without.contains("--etcd-password-file"), "{without}");
    let missing = ["--peer-listen", "127.0.0.1:0", "--etcd-certs", "/nowhere"];
    let missing = refusal(data.path(), &[&node[..], &missing].concat());
    assert!(missing.contains("/nowhere/ca.crt"), "{missing}");
}

#[test]
fn flags_that_would_leave_nodes_open_are_refused() {
    let cluster = Cluster::of_gateways();
    let made = Certificates::new();
    let data = tempfile::tempdir().unwrap();
    let node = ["--cluster", &cluster.space, "--node-name", "a"];
    let refused = |flags: &[&str]| refusal(data.path(), &[&node[..], flags].concat());
    let open = refused(&["--peer-listen", "0.0.0.0:0"]);
    assert!(
        open.contains("--peer-certs") && open.contains("aerostat cert"),
        "{open}"
    );
    let folder = made.of("a");
    let certs = ["--peer-certs", &folder];
    let nowhere = refused(&[&certs[..], &["--peer-listen", "0.0.0.0:0"]].concat());
    assert!(nowhere.contains("--advertise"), "{nowhere}");
    let unknown = [
        "--peer-listen",
        "0.0.0.0:0",
        "--advertise",
        "no.such.host.invalid",
    ];
    let unknown = refused(&[&certs[..], &unknown].concat());
    assert!(unknown.contains("no.such.host.invalid"), "{unknown}");
    let others = made.of("b");
    let wrong = refused(&["--peer-listen", "127.0.0.1:0", "--peer-certs", &others]);
    assert!(wrong.contains("is not for node \"a\""), "{wrong}");
    let key = made.folder_of("a").join("node.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let open = refused(&[&certs[..], &["--peer-listen", "127.0.0.1:0"]].concat());
    assert!(open.contains("chmod 600"), "{open}");
    let missing = refused(&["--peer-listen", "127.0.0.1:0", "--peer-certs", "/nowhere"]);
    assert!(missing.contains("/nowhere/ca.crt"), "{missing}");
}

/// What `aerostat cert` makes, says, and does not replace.
#[test]
fn certificates_are_made_listed_and_made_anew() {
    let made = Certificates::new();
    let (done, said) = try_cert(made.folder(), &["ca"]);
    assert!(!done && said.contains("has an authority"), "{said}");
    made.cert(&[
        "node",
        "n1",
        "--host",
        "db.example.com",
        "--host",
        "10.0.0.1",
        "--days",
        "10",
    ]);
    made.cert(&["node", "n2"]);
    let mode = |file: &str| {
        let found = fs::metadata(made.folder().join(file)).unwrap();
        found.permissions().mode() & 0o777
    };
    assert_eq!((mode("ca.key"), mode("n1/node.key")), (0o600, 0o600));
    let listed = made.cert(&["list"]);
    let lines: Vec<&str> = listed.lines().collect();
    assert_eq!(lines.len(), 3, "{listed}");
    assert!(lines[0].starts_with("the authority") && lines[1].starts_with("n1"));
    assert!(
        lines[1].ends_with("9 days") && lines[2].ends_with("824 days"),
        "{listed}"
    );
    let before = fs::read(made.folder_of("n1").join("node.crt")).unwrap();
    made.cert(&["node", "n1"]);
    assert_ne!(
        before,
        fs::read(made.folder_of("n1").join("node.crt")).unwrap()
    );
    for odd in ["", "..", "a/b", "7", "-a", "a b"] {
        let (done, said) = try_cert(made.folder(), &["node", "--", odd]);
        assert!(!done && said.contains("no certificate"), "{odd:?}: {said}");
    }
    let (done, said) = try_cert(made.folder(), &["node", "n3", "--days", "0"]);
    assert!(!done, "{said}");
    let empty = tempfile::tempdir().unwrap();
    let (done, said) = try_cert(empty.path(), &["node", "n1"]);
    assert!(!done && said.contains("aerostat cert ca"), "{said}");
    assert_eq!(fs::read_dir(empty.path()).unwrap().count(), 0);
}

/// An operator's tools, where nodes are reached by TLS: at the node that is named and at others.
#[tokio::test(flavor = "multi_thread")]
async fn tools_reach_all_nodes_by_tls() {
    let cluster = Cluster::of_gateways();
    let made = Certificates::new();
    let nodes = ["a", "b"].map(|name| {
        made.cert(&["node", name, "--host", "127.0.0.1"]);
        let folder = made.folder_of(name).display().to_string();
        let (cert, key) = (format!("{folder}/node.crt"), format!("{folder}/node.key"));
        let flags = [
            ["--memory", "512MB"],
            ["--peer-certs", &folder],
            ["--tls", "files"],
            ["--tls-cert", &cert],
            ["--tls-key", &key],
        ];
        cluster.start_by(tempfile::tempdir().unwrap(), name, &flags.concat())
    });
    let [a, b] = &nodes;
    wait_for_members(a, "aerostat", 2);
    let client = a.create("shop").await;
    client
        .batch_execute("CREATE TABLE t (a int PRIMARY KEY, b text)")
        .await
        .unwrap();
    wait_for_members(b, "shop", 2);
    let url = |node: &Aerostat| format!("postgres://aerostat@{}?sslmode=require", node.sql);
    let (at_a, at_b) = (url(a), url(b));
    let ca = made.folder().join("ca.crt").display().to_string();
    let tool = |arguments: &[&str], more: &[&str]| {
        let output = command().args(arguments).args(more).output().unwrap();
        (output.status.success(), said(&output))
    };
    let trusted = ["--url", &at_b, "--trust", &ca];
    let rows = made.folder().join("rows.csv");
    let lines: String = (0..500).map(|row| format!("{row},row {row}\n")).collect();
    fs::write(&rows, format!("a,b\n{lines}")).unwrap();
    let rows = rows.display().to_string();
    let load = ["load", "csv", "--tenant", "shop", "--table", "t", &rows];
    for arguments in [
        &["cluster", "status"][..],
        &["cluster", "plan"],
        &["promote", "--database", "shop"],
        &load,
        // One node after the other, which it finds by itself.
        &["cluster", "merge", "--database", "shop"],
        &["cluster", "drain", "a"],
    ] {
        // Until the nodes have heard of each other's copies.
        wait_until(&format!("{arguments:?} works"), || {
            let (done, said) = tool(arguments, &trusted);
            assert!(done || said.contains("nobody leads it"), "{said}");
            done
        });
    }
    assert_eq!(value(&client, "SELECT count(*)::text FROM t").await, "500");
    // One that speaks no TLS is no reason to do without.
    let plain = Aerostat::start();
    let (done, said) = tool(
        &["cluster", "status"],
        &["--url", &url(&plain), "--trust", &ca],
    );
    assert!(!done && said.contains("TLS"), "{said}");
    // Who is not trusted hears no password.
    let other = Certificates::new().folder().join("ca.crt");
    let other = other.display().to_string();
    let (done, said) = tool(&["cluster", "status"], &["--url", &at_a]);
    assert!(!done && said.contains("certificate"), "{said}");
    let (done, said) = tool(&["cluster", "status"], &["--url", &at_a, "--trust", &other]);
    assert!(!done && said.contains("no certificates in"), "{said}");
    let stranger = Certificates::new();
    let strange = stranger.folder().join("ca.crt").display().to_string();
    let (done, said) = tool(
        &["cluster", "status"],
        &["--url", &at_a, "--trust", &strange],
    );
    assert!(!done && said.contains("certificate"), "{said}");
    // The name is checked, too.
    let named = at_a.replace("127.0.0.1", "localhost");
    let (done, said) = tool(&["cluster", "status"], &["--url", &named, "--trust", &ca]);
    assert!(!done && said.contains("certificate"), "{said}");
}
