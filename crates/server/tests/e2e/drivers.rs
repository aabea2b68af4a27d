//! Drivers as users install them: psycopg, SQLAlchemy, pgjdbc, node-postgres. Their
//! programs are in `tests/clients` and run against PostgreSQL, too, which proves that what
//! they check is so there.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::copies::{Cluster, leads, wait_for_members};
use crate::harness::Aerostat;
use crate::postgres::Postgres;

/// The root of the work tree.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A driver's program, without the URL that is its last argument.
type Driver = (&'static str, fn(&Path) -> Option<Command>);

const DRIVERS: [Driver; 4] = [
    ("psycopg", |root| {
        python(root, "psycopg_client.py", "psycopg")
    }),
    ("SQLAlchemy", |root| {
        python(root, "sqlalchemy_client.py", "sqlalchemy")
    }),
    ("pgjdbc", |root| {
        let jar = root.join(".clients/postgresql.jar");
        jar.exists().then(|| {
            let mut java = Command::new("java");
            java.arg("-cp")
                .arg(jar)
                .arg(root.join("tests/clients/Jdbc.java"));
            java
        })
    }),
    ("node-postgres", |root| {
        let folder = root.join("tests/clients/node");
        folder
            .join("node_modules/pg-copy-streams")
            .exists()
            .then(|| {
                let mut node = Command::new("node");
                node.arg(folder.join("client.mjs"));
                node
            })
    }),
];

fn python(root: &Path, program: &str, module: &str) -> Option<Command> {
    let interpreter = root.join(".venv/bin/python");
    let has_module = Command::new(&interpreter)
        .args(["-c", &format!("import {module}")])
        .output()
        .is_ok_and(|output| output.status.success());
    has_module.then(|| {
        let mut python = Command::new(interpreter);
        python.arg(root.join("tests/clients").join(program));
        python
    })
}

/// Runs the driver's program against a database; it says which checks failed.
fn passes(driver: &str, mut program: Command, url: &str) {
    let output = program
        .arg(url)
        .env_remove("PGPASSWORD")
        .output()
        .unwrap_or_else(|error| panic!("{driver} does not start: {error}"));
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && printed.contains("ok "),
        "{driver} against {url}:\n{printed}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    eprintln!("{driver}: {} checks", printed.matches("ok ").count());
}

/// The programs there are; the others are skipped by name.
fn programs() -> Vec<(&'static str, Command)> {
    let root = root();
    let mut found = Vec::new();
    for (name, program) in DRIVERS {
        match program(&root) {
            Some(program) => found.push((name, program)),
            None => eprintln!("skipped: {name} is not installed (scripts/setup clients)"),
        }
    }
    found
}

/// The URL of a database, as the driver wants it.
fn url(driver: &str, address: SocketAddr, user: &str, database: &str) -> String {
    if driver == "pgjdbc" {
        format!("jdbc:postgresql://{address}/{database}?user={user}")
    } else {
        format!("postgresql://{user}@{address}/{database}")
    }
}

fn database_of(driver: &str) -> String {
    format!("driver_{}", driver.to_lowercase().replace('-', "_"))
}

#[tokio::test(flavor = "multi_thread")]
async fn drivers_work_unmodified() {
    let node = Aerostat::start();
    for (driver, program) in programs() {
        let database = database_of(driver);
        drop(node.create(&database).await);
        passes(
            driver,
            program,
            &url(driver, node.sql, "aerostat", &database),
        );
    }
}

/// At a node of a cluster that leads nothing, and passes on what they say to the one that does.
#[tokio::test(flavor = "multi_thread")]
async fn drivers_work_through_a_node_that_does_not_lead() {
    let cluster = Cluster::of_gateways();
    let (a, b) = cluster.pair();
    for (driver, program) in programs() {
        let database = database_of(driver);
        drop(b.create(&database).await);
        wait_for_members(&a, &database, 2);
        assert!(leads(&a, &database) && !leads(&b, &database));
        passes(driver, program, &url(driver, b.sql, "aerostat", &database));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn postgresql_passes_the_same_checks() {
    let Some(postgres) = Postgres::find().await else {
        return;
    };
    let (address, superuser) = postgres.address();
    for (driver, program) in programs() {
        let database = postgres.create(&database_of(driver)).await;
        passes(
            driver,
            program,
            &url(driver, address, &superuser, &database),
        );
    }
}
