//! `pg_dump` and `pg_restore` as PostgreSQL 15 has them: what they take out of Aerostat goes into
//! PostgreSQL and back, and nothing is lost on the way.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::harness::Aerostat;
use crate::postgres::Postgres;

/// What a dump is made of. Every statement is one that both have.
const MADE: &str = include_str!("dump/made.sql");

/// What is looked at before and after: names and rights.
const LOOK: &str = include_str!("dump/look.sql");

/// A server, and the database at hand.
#[derive(Clone)]
struct Target {
    host: String,
    port: String,
    user: String,
}

impl Target {
    fn of(address: std::net::SocketAddr, user: &str) -> Self {
        Self {
            host: address.ip().to_string(),
            port: address.port().to_string(),
            user: user.to_owned(),
        }
    }

    fn run(&self, program: &str, arguments: &[&str]) -> String {
        let output = Command::new(program)
            .args(["-h", &self.host, "-p", &self.port, "-U", &self.user])
            .args(arguments)
            .env_remove("PGOPTIONS")
            .env("PGCLIENTENCODING", "UTF8")
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && !errors.contains("ERROR"),
            "{program} {arguments:?}:\n{errors}"
        );
        String::from_utf8(output.stdout).unwrap()
    }

    fn psql(&self, database: &str, arguments: &[&str]) -> String {
        let flags = [
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-d",
            database,
        ];
        self.run("psql", &[&flags[..], arguments].concat())
    }

    /// All rows of all tables, views and sequences, and what is said of them.
    fn state(&self, database: &str) -> Vec<String> {
        let relations = self.psql(
            database,
            &["-c", "SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'v') AND n.nspname IN ('public', 's', 'Mixed Case') ORDER BY 1"],
        );
        let mut state = Vec::new();
        for relation in relations.lines() {
            let copy = format!("COPY (SELECT * FROM {relation}) TO STDOUT");
            let rows = self.psql(database, &["-c", &copy]);
            let mut rows: Vec<&str> = rows.lines().collect();
            rows.sort_unstable();
            state.extend(rows.iter().map(|row| format!("{relation}: {row}")));
        }
        let look = self.psql(database, &["-c", "SET search_path = ''", "-c", LOOK]);
        state.extend(look.lines().map(str::to_owned));
        state
    }
}

fn assert_same(before: &[String], after: &[String], way: &str) {
    let lost: Vec<_> = before.iter().filter(|line| !after.contains(line)).collect();
    let new: Vec<_> = after.iter().filter(|line| !before.contains(line)).collect();
    assert!(
        lost.is_empty() && new.is_empty(),
        "{way}\nlost: {lost:#?}\nnew: {new:#?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn dumps_go_both_ways_and_lose_nothing() {
    let Some(postgres) = Postgres::find().await else {
        return;
    };
    let node = Aerostat::start();
    let (address, user) = postgres.address();
    let theirs = Target::of(address, &user);
    let ours = Target::of(node.sql, "aerostat");
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(file("made.sql"), MADE).unwrap();
    for target in [&ours, &theirs] {
        let role = "SELECT 'CREATE ROLE dump_reader' WHERE NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'dump_reader')";
        let missing = target.psql("postgres", &["-c", role]);
        if !missing.is_empty() {
            target.psql("postgres", &["-c", missing.trim()]);
        }
        target.run("dropdb", &["--if-exists", "dump_source"]);
        target.run("createdb", &["dump_source"]);
        target.psql("dump_source", &["-f", &file("made.sql")]);
    }
    let (here, there) = (ours.state("dump_source"), theirs.state("dump_source"));
    assert!(here.len() > 300, "{here:#?}");
    assert_same(&there, &here, "the same statements here");

    for (from, name) in [(&ours, "aerostat"), (&theirs, "postgresql")] {
        let (plain, custom, directory) = (
            file(&format!("{name}.sql")),
            file(&format!("{name}.custom")),
            file(&format!("{name}.folder")),
        );
        from.run("pg_dump", &["-f", &plain, "dump_source"]);
        from.run("pg_dump", &["-Fc", "-f", &custom, "dump_source"]);
        // Side by side needs an exported snapshot, which only PostgreSQL has.
        let jobs = if name == "postgresql" { "-j2" } else { "-j1" };
        from.run("pg_dump", &["-Fd", jobs, "-f", &directory, "dump_source"]);
        for (into, whose) in [(&ours, "aerostat"), (&theirs, "postgresql")] {
            for way in ["plain", "custom", "folder"] {
                into.run("dropdb", &["--if-exists", "dump_target"]);
                into.run("createdb", &["dump_target"]);
                match way {
                    "plain" => drop(into.psql("dump_target", &["-f", &plain])),
                    "custom" => {
                        let arguments = ["--exit-on-error", "-d", "dump_target", &custom];
                        into.run("pg_restore", &arguments);
                    }
                    _ => {
                        assert!(Path::new(&directory).join("toc.dat").exists());
                        // Workers side by side may both define parts of one table, which is a conflict here.
                        let jobs = if whose == "postgresql" { "-j2" } else { "-j1" };
                        let arguments = ["-e", jobs, "-d", "dump_target", &directory];
                        into.run("pg_restore", &arguments);
                    }
                }
                let way = format!("{way}, from {name} into {whose}");
                assert_same(&here, &into.state("dump_target"), &way);
            }
        }
    }
    // Numbers go on where they were, and rights are those that were given.
    let next = "INSERT INTO s.customers (name) VALUES ('next') RETURNING id";
    assert_eq!(ours.psql("dump_target", &["-c", next]).trim(), "51");
    // What was dumped can be dumped again, in the same words.
    let again = ours.run("pg_dump", &["dump_target"]);
    assert!(again.contains("COPY s.customers") && !again.contains("aerostat.tenants"));
}
