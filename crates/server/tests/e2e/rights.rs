//! What a role may not do, it cannot: statements × privileges as PostgreSQL has them, and the
//! doors that only this engine has.
//!
//! A group of statements is run under every subset of the privileges that may matter to them,
//! on both engines: the SQLSTATE, or success, must be the same. Here every statement runs in
//! four ways: as a simple query and prepared, while it was allowed, both with the fast path and
//! without it.

mod matrix;

use std::collections::BTreeSet;

use tokio_postgres::{Client, Config, NoTls};

use crate::harness::{Aerostat, sqlstate, value};
use crate::postgres::Postgres;
use matrix::{Engine, GROUPS, Way, ways};

/// Statements that go another way here than in PostgreSQL, and why.
const DIFFERENCES: [(&str, &str); 3] = [
    (
        "WITH q AS (SELECT 1 FROM t) SELECT 1",
        "PostgreSQL does not plan a WITH query that nothing reads, and asks for no right to it",
    ),
    (
        "COPY t TO '/tmp/rights'",
        "files of the server are nobody's to name: 0A000",
    ),
    (
        "COPY t FROM '/etc/passwd'",
        "files of the server are nobody's to name: 0A000",
    ),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_statement_needs_the_privileges_that_postgresql_wants() {
    let Some(postgres) = Postgres::find().await else {
        return;
    };
    let node = Aerostat::start();
    let (mut asked, mut wrong) = (0, Vec::new());
    for (number, group) in GROUPS.iter().enumerate() {
        let name = format!("rights_{number}");
        let theirs = Engine::postgres(&postgres, &name, group).await;
        let expected = theirs.outcomes(group, Way::SIMPLE).await;
        let ours = Engine::aerostat(&node, &name, group).await;
        for way in ways(group) {
            let found = ours.outcomes(group, way).await;
            assert_eq!(expected.len(), found.len());
            for (expected, found) in expected.iter().zip(&found) {
                asked += 1;
                if expected.state != found.state && !differs(expected.sql) {
                    wrong.push(format!(
                        "{way:?} [{}] {}: PostgreSQL {}, Aerostat {}",
                        expected.granted, expected.sql, expected.state, found.state
                    ));
                }
            }
        }
    }
    assert!(asked > 5_000, "only {asked} outcomes were compared");
    let count = wrong.len();
    wrong.truncate(60);
    assert!(
        count == 0,
        "{count} of {asked} differ:\n{}",
        wrong.join("\n")
    );
}

fn differs(sql: &str) -> bool {
    DIFFERENCES.iter().any(|(other, _)| *other == sql)
}

/// A subset of privileges must be able to make a statement fail and another to let it be, or
/// the matrix says nothing of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_statement_of_the_matrix_depends_on_privileges() {
    let node = Aerostat::start();
    for (number, group) in GROUPS.iter().enumerate() {
        let engine = Engine::aerostat(&node, &format!("rights_{number}"), group).await;
        let outcomes = engine.outcomes(group, Way::SIMPLE).await;
        for sql in group.statements.iter().filter(|sql| !differs(sql)) {
            let states: BTreeSet<&str> = outcomes
                .iter()
                .filter(|outcome| outcome.sql == *sql)
                .map(|outcome| outcome.state.as_str())
                .collect();
            assert!(
                states.contains("42501"),
                "{sql} is never refused: {states:?}"
            );
            let depends = states.len() > 1 || group.privileges.is_empty();
            assert!(depends, "{sql} is always refused");
        }
    }
}

/// A node with a database `d`, a table that nobody else may read, and a role that may connect.
async fn guarded() -> (Aerostat, Client, Client) {
    let node = Aerostat::start();
    let owner = node.create("d").await;
    owner
        .batch_execute(
            "CREATE ROLE clerk LOGIN; GRANT CONNECT ON DATABASE d TO clerk;
             CREATE TABLE secret (a integer PRIMARY KEY, b text CHECK (length(b) < 10), c integer UNIQUE);
             INSERT INTO secret VALUES (1, 'hidden', 7), (2, 'buried', 8);
             CREATE TABLE ident (id bigint GENERATED ALWAYS AS IDENTITY, v integer)",
        )
        .await
        .unwrap();
    let clerk = connect_as(node.config("d"), "clerk").await;
    (node, owner, clerk)
}

async fn connect_as(mut config: Config, role: &str) -> Client {
    let (client, connection) = config.user(role).connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_internal_relation_is_reached_by_text() {
    let (_node, owner, clerk) = guarded().await;
    let oid = value(&owner, "SELECT 'secret'::regclass::oid").await;
    let identity = value(
        &owner,
        "SELECT oid FROM pg_class WHERE relkind = 'S' AND relname = 'ident_id_seq'",
    )
    .await;
    owner
        .batch_execute("GRANT DELETE ON secret TO clerk")
        .await
        .unwrap();
    for number in [oid.as_str(), "0", "1"] {
        for schema in ["target", "step", "lock"] {
            for sql in [
                format!("SELECT * FROM \"\u{1}{schema}\".\"{number}\""),
                format!("SELECT * FROM '\u{1}{schema}'.'{number}'"),
                format!("SELECT * FROM \"\u{1}{schema}\".'{number}'"),
                format!("SELECT * FROM E'\\001{schema}'.\"{number}\""),
                format!("SELECT * FROM U&\"\\0001{schema}\".\"{number}\""),
                format!("TABLE \"\u{1}{schema}\".\"{number}\""),
                format!("COPY \"\u{1}{schema}\".\"{number}\" TO STDOUT"),
                format!("COPY '\u{1}{schema}'.'{number}' TO STDOUT"),
                format!("COPY (SELECT * FROM '\u{1}{schema}'.'{number}') TO STDOUT"),
                format!("DELETE FROM secret USING '\u{1}{schema}'.'{number}' AS x"),
                format!("WITH x AS (SELECT * FROM '\u{1}{schema}'.'{number}') SELECT * FROM x"),
                format!("EXPLAIN SELECT * FROM '\u{1}{schema}'.'{number}'"),
                format!("DECLARE x CURSOR WITH HOLD FOR SELECT * FROM '\u{1}{schema}'.'{number}'"),
                format!("PREPARE x AS SELECT * FROM '\u{1}{schema}'.'{number}'"),
                format!("CREATE TEMP TABLE x AS SELECT * FROM '\u{1}{schema}'.'{number}'"),
            ] {
                let refused = sqlstate(&clerk, &sql).await;
                assert!(
                    ["42601", "42602", "42P01", "0A000"].contains(&refused.as_str()),
                    "{sql:?}: {refused}"
                );
            }
        }
    }
    for sql in [
        format!("SELECT aerostat_next({identity})"),
        format!("SELECT \"\u{1}next\"({identity})"),
        format!("SELECT '\u{1}next'({identity})"),
        "SELECT \"\u{1}rowid\" FROM secret".to_owned(),
        "DELETE FROM secret WHERE '\u{1}rowid' IS NULL RETURNING \"\u{1}rowid\"".to_owned(),
    ] {
        let refused = sqlstate(&clerk, &sql).await;
        assert!(
            ["42601", "42602", "42883"].contains(&refused.as_str()),
            "{sql:?}: {refused}"
        );
    }
    // The character is data like any other where no name stands.
    assert_eq!(
        value(&clerk, "SELECT length('a\u{1}b') || E'\\001'").await,
        "3\u{1}"
    );
}

/// Every function that can be called is one that `pg_proc` tells of.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_of_the_engine_alone_cannot_be_called() {
    let (_node, owner, clerk) = guarded().await;
    let shown = value(
        &clerk,
        "SELECT count(*) FROM pg_proc WHERE proname LIKE 'aerostat%' OR proname < ' '",
    )
    .await;
    assert_eq!(shown, "0");
    drop(owner);
    for name in [
        "next",
        "any",
        "or_empty",
        "cat",
        "empty",
        "item",
        "json",
        "subscripts",
        "expand",
        "series_each",
        "show_class",
        "read_class",
        "find_class",
        "show_role",
        "read_role",
    ] {
        for sql in [
            format!("SELECT aerostat_{name}(1)"),
            format!("SELECT \"\u{1}{name}\"(1)"),
            format!("SELECT * FROM \"\u{1}{name}\"(1)"),
            format!("SELECT * FROM aerostat_{name}(1)"),
        ] {
            let refused = sqlstate(&clerk, &sql).await;
            assert!(
                ["42602", "42883", "42P01"].contains(&refused.as_str()),
                "{sql:?}: {refused}"
            );
        }
    }
}

/// No function and no system relation gives away what stands in another's table, in another's
/// statement or in the record of another's password.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn functions_and_system_relations_do_not_tell_secrets() {
    let (_node, owner, clerk) = guarded().await;
    owner
        .batch_execute(
            "CREATE ROLE other LOGIN PASSWORD 'hidden';
             CREATE TABLE keyed (k text PRIMARY KEY, n serial);
             INSERT INTO keyed SELECT 'hidden' || i FROM generate_series(1, 100) AS i;
             VACUUM FREEZE keyed",
        )
        .await
        .unwrap();
    // The last statement of another's session.
    let told = value(
        &owner,
        "SELECT 'hidden', count(*) FROM secret WHERE b = 'hidden'",
    )
    .await;
    assert_eq!(told, "hidden");
    let secrets = ["hidden", "buried", "SCRAM-SHA-256"];
    let look = async |sql: &str| {
        let Ok(messages) = clerk.simple_query(sql).await else {
            return 0;
        };
        let shown = format!("{messages:?}");
        let found = secrets.iter().find(|secret| shown.contains(**secret));
        assert!(found.is_none(), "{sql} shows {found:?}: {shown}");
        messages.len()
    };
    clerk
        .batch_execute("SET statement_timeout = '1s'")
        .await
        .unwrap();
    let names = async |sql: &str| -> Vec<String> {
        let rows = owner.query(sql, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    };
    let relations = names(
        "SELECT quote_ident(nspname) || '.' || quote_ident(relname) FROM pg_class AS c
         JOIN pg_namespace AS n ON n.oid = relnamespace
         WHERE nspname IN ('pg_catalog', 'information_schema', 'aerostat') AND relkind IN ('r', 'v')",
    )
    .await;
    assert!(relations.len() > 100, "{relations:?}");
    let mut rows = 0;
    for relation in &relations {
        rows += look(&format!("SELECT * FROM {relation}")).await;
    }
    assert!(
        rows > 1_000,
        "{rows} rows of system relations were looked at"
    );
    let functions =
        names("SELECT DISTINCT proname::text FROM pg_proc WHERE proname NOT LIKE 'pg_sleep%'")
            .await;
    assert!(functions.len() > 300, "{functions:?}");
    let oid = value(&owner, "SELECT 'keyed'::regclass::oid").await;
    for function in &functions {
        for arguments in [
            "",
            "'keyed'",
            &oid,
            "'keyed'::regclass",
            "'public.keyed', 'k'",
            "'keyed', 1, true",
            "'d'",
            "'other'",
        ] {
            look(&format!("SELECT \"{function}\"({arguments})")).await;
            look(&format!("SELECT * FROM \"{function}\"({arguments})")).await;
        }
    }
}

/// The details of errors show values of rows to those alone who may read them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn errors_do_not_show_rows_that_may_not_be_read() {
    let (_node, owner, clerk) = guarded().await;
    owner
        .batch_execute(
            "CREATE TABLE follows (id integer PRIMARY KEY, of integer REFERENCES secret);
             INSERT INTO follows VALUES (1, 1);
             GRANT INSERT, UPDATE, DELETE ON secret, follows TO clerk",
        )
        .await
        .unwrap();
    let statements = [
        ("UPDATE secret SET b = 'much too long'", "23514"),
        ("UPDATE secret SET c = 9", "23505"),
        ("UPDATE secret SET a = NULL", "23502"),
        ("INSERT INTO secret VALUES (1, 'x', 70)", "23505"),
        ("INSERT INTO secret SELECT 5, 'much too long', 71", "23514"),
        ("DELETE FROM secret", "23503"),
        ("UPDATE follows SET of = 77", "23503"),
    ];
    for fast_path in ["on", "off"] {
        for client in [&owner, &clerk] {
            let set = format!("SET enable_fast_path = {fast_path}");
            client.batch_execute(&set).await.unwrap();
        }
        for (sql, state) in statements {
            let detail = async |client: &Client| {
                let error = client.batch_execute(sql).await.unwrap_err();
                let error = error.as_db_error().unwrap();
                assert_eq!(error.code().code(), state, "{sql}");
                error.detail().unwrap_or_default().to_owned()
            };
            // The owner, who may read, sees values in parentheses.
            assert!(detail(&owner).await.contains('('), "{sql}");
            let shown = detail(&clerk).await;
            assert!(!shown.contains('('), "{sql}: {shown}");
        }
    }
}

/// Rights that are taken away count at once, for whatever was kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_prepared_is_refused_once_the_right_is_gone() {
    let (_node, owner, clerk) = guarded().await;
    let all = "SELECT, INSERT, UPDATE, DELETE";
    let run = async |sql: &str| owner.batch_execute(sql).await.unwrap();
    run(&format!("GRANT {all} ON secret TO clerk")).await;
    let point = clerk
        .prepare("SELECT b FROM secret WHERE a = $1")
        .await
        .unwrap();
    let change = clerk
        .prepare("UPDATE secret SET c = $2 WHERE a = $1")
        .await
        .unwrap();
    let scan = clerk
        .prepare("SELECT count(b) FROM secret WHERE c > $1")
        .await
        .unwrap();
    for _ in 0..4 {
        clerk.query(&point, &[&1]).await.unwrap();
        clerk.execute(&change, &[&1, &7]).await.unwrap();
        clerk.query(&scan, &[&1]).await.unwrap();
    }
    run("REVOKE SELECT ON secret FROM clerk").await;
    let state = |error: tokio_postgres::Error| error.code().unwrap().code().to_owned();
    assert_eq!(
        state(clerk.query(&point, &[&1]).await.unwrap_err()),
        "42501"
    );
    assert_eq!(
        state(clerk.execute(&change, &[&1, &9]).await.unwrap_err()),
        "42501"
    );
    assert_eq!(state(clerk.query(&scan, &[&1]).await.unwrap_err()), "42501");
    assert_eq!(value(&owner, "SELECT c FROM secret WHERE a = 1").await, "7");
    run(&format!("GRANT {all} ON secret TO clerk")).await;
    clerk.execute(&change, &[&1, &9]).await.unwrap();
    assert_eq!(value(&owner, "SELECT c FROM secret WHERE a = 1").await, "9");
}

/// What the operator gives a database, its owner cannot make more, CREATEDB or not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_does_not_lift_the_limits_that_the_operator_set() {
    let node = Aerostat::start();
    let boss = node.connect("aerostat").await;
    for sql in [
        "CREATE ROLE tenant LOGIN CREATEDB",
        "CREATE ROLE keeper LOGIN",
        "CREATE DATABASE mine WITH (memory_max = '64MB', connection_limit = 5, durability = none)",
        "ALTER DATABASE mine SET (memory_max = '64MB')",
    ] {
        boss.batch_execute(sql).await.unwrap();
    }
    // Only a superuser gives away what is his.
    boss.batch_execute("GRANT CONNECT ON DATABASE aerostat TO keeper")
        .await
        .unwrap();
    boss.batch_execute("ALTER DATABASE mine OWNER TO tenant")
        .await
        .unwrap();
    let tenant = connect_as(node.config("mine"), "tenant").await;
    let limits = async || {
        value(
            &tenant,
            "SELECT memory_max || ' ' || connection_limit || ' ' || durability FROM aerostat.tenants WHERE name = 'mine'",
        )
        .await
    };
    let refused = async |sql: &str| assert_eq!(sqlstate(&tenant, sql).await, "42501", "{sql}");
    for raise in [
        "ALTER DATABASE mine SET (memory_max = '65MB')",
        "ALTER DATABASE mine SET (connection_limit = 6)",
        "ALTER DATABASE mine SET (durability = fsync)",
        "ALTER DATABASE mine SET (connection_limit = 4, memory_max = '1GB')",
        "ALTER DATABASE mine CONNECTION LIMIT 6",
        "ALTER DATABASE mine SET (log_archive = '/tmp/anywhere')",
        "CREATE DATABASE more WITH (memory_max = '65MB')",
        "CREATE DATABASE more WITH (durability = fsync)",
        "CREATE DATABASE more WITH (log_archive = '/tmp/anywhere')",
        "GRANT aerostat_operator TO tenant",
    ] {
        refused(raise).await;
        assert_eq!(limits().await, "67108864 5 none", "{raise}");
    }
    // Lower, and up again to what was given.
    let run = async |sql: &str| tenant.batch_execute(sql).await.unwrap();
    run("ALTER DATABASE mine SET (memory_max = '32MB', connection_limit = 3)").await;
    assert_eq!(limits().await, "33554432 3 none");
    run("ALTER DATABASE mine SET (memory_max = '60MB')").await;
    run("ALTER DATABASE mine RESET (memory_max)").await;
    run("ALTER DATABASE mine CONNECTION LIMIT -1").await;
    assert_eq!(limits().await, "67108864 5 none");
    // A database that a tenant makes is limited like the one it was made from.
    run("CREATE DATABASE more").await;
    let more = connect_as(node.config("more"), "tenant").await;
    let own = value(
        &more,
        "SELECT memory_max || ' ' || connection_limit FROM aerostat.tenants WHERE name = 'more'",
    );
    assert_eq!(own.await, "67108864 5");
    // Whoever is an operator gives more, of databases that are not his, too.
    let keeper = connect_as(node.config("aerostat"), "keeper").await;
    assert_eq!(
        sqlstate(&keeper, "ALTER DATABASE mine SET (memory_max = '96MB')").await,
        "42501"
    );
    boss.batch_execute("GRANT aerostat_operator TO keeper")
        .await
        .unwrap();
    keeper
        .batch_execute("ALTER DATABASE mine SET (memory_max = '96MB')")
        .await
        .unwrap();
    assert_eq!(limits().await, "100663296 5 none");
    assert_eq!(
        value(&keeper, "SELECT pg_has_role('aerostat_operator', 'MEMBER')").await,
        "t"
    );
    assert_eq!(
        value(
            &keeper,
            "SELECT count(*) FROM pg_roles WHERE rolname = 'aerostat_operator'"
        )
        .await,
        "1"
    );
    assert_eq!(sqlstate(&keeper, "DROP DATABASE mine").await, "42501");
    assert_eq!(
        sqlstate(&boss, "CREATE ROLE aerostat_operator").await,
        "42710"
    );
    // It is so after a restart.
    drop((boss, keeper, tenant, more));
    let node = Aerostat::start_on(node.stop(), &[]);
    let keeper = connect_as(node.config("aerostat"), "keeper").await;
    keeper
        .batch_execute("ALTER DATABASE mine SET (memory_max = '80MB')")
        .await
        .unwrap();
    let boss = node.connect("aerostat").await;
    boss.batch_execute("REVOKE aerostat_operator FROM keeper")
        .await
        .unwrap();
    assert_eq!(
        sqlstate(&keeper, "ALTER DATABASE mine SET (memory_max = '96MB')").await,
        "42501"
    );
}

/// Others' tables are passed over by VACUUM, and others' databases have no size to see.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upkeep_and_sizes_are_for_owners() {
    let (node, owner, clerk) = guarded().await;
    owner.batch_execute("CREATE DATABASE other").await.unwrap();
    for (sql, state) in [
        ("CHECKPOINT", "42501"),
        ("REINDEX TABLE secret", "42501"),
        ("SELECT pg_database_size('other')", "42501"),
        ("SELECT pg_database_size('nowhere')", "3D000"),
        ("ALTER TABLE secret SET (layout = 'row')", "42501"),
        ("SELECT * FROM pg_authid", "42501"),
        ("SELECT * FROM pg_shadow", "42501"),
    ] {
        assert_eq!(sqlstate(&clerk, sql).await, state, "{sql}");
    }
    clerk
        .batch_execute("SELECT pg_database_size('d')")
        .await
        .unwrap();
    clerk.batch_execute("VACUUM secret").await.unwrap();
    owner
        .batch_execute("GRANT pg_checkpoint, pg_read_all_stats TO clerk")
        .await
        .unwrap();
    clerk.batch_execute("CHECKPOINT").await.unwrap();
    clerk
        .batch_execute("SELECT pg_database_size('other')")
        .await
        .unwrap();
    drop(node);
}
