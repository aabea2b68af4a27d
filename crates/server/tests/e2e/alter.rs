//! ALTER TABLE: errors in PostgreSQL's words, changes that outlive the process, and changes
//! under clients that write.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::task::JoinSet;
use tokio_postgres::{Client, error::SqlState};

use crate::harness::{Aerostat, sqlstate, value};

/// The message, detail and hint of a statement's error.
async fn complaint(client: &Client, sql: &str) -> [String; 3] {
    let error = client.batch_execute(sql).await.expect_err(sql);
    let error = error
        .as_db_error()
        .unwrap_or_else(|| panic!("{sql}: {error:?}"));
    [Some(error.message()), error.detail(), error.hint()].map(|part| part.unwrap_or("").to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_postgresqls() {
    let node = Aerostat::start();
    let client = node.create("words").await;
    client
        .batch_execute(
            "CREATE TABLE t (id integer PRIMARY KEY, a integer, s text DEFAULT 'x', d date);
             INSERT INTO t VALUES (1, 1, '1', '2024-01-01'), (2, NULL, '2', NULL), (3, 1, '2', NULL);
             CREATE VIEW v AS SELECT a FROM t; CREATE VIEW w AS SELECT * FROM v;
             CREATE TABLE parent (id integer PRIMARY KEY); INSERT INTO parent VALUES (1), (3);
             CREATE TABLE n (a integer); INSERT INTO n VALUES (1), (1), (NULL)",
        )
        .await
        .unwrap();
    for (sql, message, detail, hint) in [
        (
            "ALTER TABLE t ALTER s TYPE integer",
            "column \"s\" cannot be cast automatically to type integer",
            "",
            "You might need to specify \"USING s::integer\".",
        ),
        (
            "ALTER TABLE t ALTER s TYPE integer USING s::integer",
            "default for column \"s\" cannot be cast automatically to type integer",
            "",
            "",
        ),
        (
            "ALTER TABLE t ADD CONSTRAINT f FOREIGN KEY (id) REFERENCES parent",
            "insert or update on table \"t\" violates foreign key constraint \"f\"",
            "Key (id)=(2) is not present in table \"parent\".",
            "",
        ),
        (
            "ALTER TABLE t ADD FOREIGN KEY (d) REFERENCES parent",
            "foreign key constraint \"t_d_fkey\" cannot be implemented",
            "Key columns \"d\" and \"id\" are of incompatible types: date and integer.",
            "",
        ),
        (
            "ALTER TABLE n ADD PRIMARY KEY (a)",
            "could not create unique index \"n_pkey\"",
            "Key (a)=(1) is duplicated.",
            "",
        ),
        (
            "ALTER TABLE n ADD CHECK (a > 1), ADD UNIQUE (a)",
            "could not create unique index \"n_a_key\"",
            "Key (a)=(1) is duplicated.",
            "",
        ),
        (
            "ALTER TABLE t ALTER d TYPE integer USING id > 2",
            "result of USING clause for column \"d\" cannot be cast automatically to type integer",
            "",
            "You might need to add an explicit cast.",
        ),
        (
            "ALTER TABLE t ALTER a TYPE bigint",
            "cannot alter type of a column used by a view or rule",
            "rule _RETURN on view v depends on column \"a\"",
            "",
        ),
        (
            "ALTER TABLE t DROP a",
            "cannot drop column a of table t because other objects depend on it",
            "view v depends on column a of table t\nview w depends on view v",
            "Use DROP ... CASCADE to drop the dependent objects too.",
        ),
        (
            "ALTER TABLE t ADD b integer NOT NULL",
            "column \"b\" of relation \"t\" contains null values",
            "",
            "",
        ),
        (
            "ALTER TABLE t ALTER a SET NOT NULL",
            "column \"a\" of relation \"t\" contains null values",
            "",
            "",
        ),
        (
            "ALTER TABLE t ADD CONSTRAINT c CHECK (id < 3)",
            "check constraint \"c\" of relation \"t\" is violated by some row",
            "",
            "",
        ),
        (
            "ALTER TABLE t ADD b integer CHECK (b <> id) DEFAULT 2",
            "check constraint \"t_check\" of relation \"t\" is violated by some row",
            "",
            "",
        ),
        (
            "ALTER TABLE t ADD CONSTRAINT u UNIQUE (s)",
            "could not create unique index \"u\"",
            "Key (s)=(2) is duplicated.",
            "",
        ),
        (
            "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD CONSTRAINT p PRIMARY KEY (s)",
            "could not create unique index \"p\"",
            "Key (s)=(2) is duplicated.",
            "",
        ),
    ] {
        assert_eq!(
            complaint(&client, sql).await,
            [message, detail, hint],
            "{sql}"
        );
    }
    // Nothing has happened.
    assert_eq!(
        value(&client, "SELECT count(*) || ' ' || max(s) FROM t").await,
        "3 2"
    );
    assert_eq!(sqlstate(&client, "SELECT b FROM t").await, "42703");
}

#[tokio::test(flavor = "multi_thread")]
async fn altered_tables_outlive_a_kill() {
    let node = Aerostat::start();
    let client = node.create("shop").await;
    client
        .batch_execute(
            "CREATE TABLE t (id integer PRIMARY KEY, a integer NOT NULL, b text, c date) WITH (layout = '(id,a),(b),(c)');
             INSERT INTO t SELECT g, g, 'text ' || g, '2024-01-01' FROM generate_series(1, 5000) AS g;
             CREATE INDEX t_a ON t (a); CREATE VIEW v AS SELECT * FROM t",
        )
        .await
        .unwrap();
    client.batch_execute("VACUUM FREEZE t").await.unwrap();
    client.batch_execute("CHECKPOINT").await.unwrap();
    client
        .batch_execute(
            "ALTER TABLE t RENAME a TO \"number A\"; ALTER TABLE t ALTER b SET NOT NULL;
             ALTER TABLE t ALTER \"number A\" DROP NOT NULL;
             INSERT INTO t VALUES (9000, NULL, 'null');
             ALTER TABLE t ADD CONSTRAINT positive CHECK (\"number A\" > 0) NOT VALID;
             ALTER INDEX t_a RENAME TO renamed; COMMENT ON COLUMN t.b IS 'bee';
             CREATE TABLE u AS SELECT id, a::text AS a FROM v WHERE id <= 100;
             ALTER TABLE u ADD PRIMARY KEY (id), ADD e integer DEFAULT 7, ALTER a TYPE bigint USING a::bigint;
             ALTER TABLE u ADD f integer, DROP e; ALTER TABLE u RENAME TO w",
        )
        .await
        .unwrap();
    let mut answers = Vec::new();
    drop(client);
    let mut data = node.kill();
    for round in 0..2 {
        let node = Aerostat::start_on(data, &[]);
        let client = node.connect("shop").await;
        let now = [
            value(&client, "SELECT string_agg(column_name || data_type || is_nullable, ',' ORDER BY ordinal_position) FROM information_schema.columns WHERE table_name IN ('t', 'w')").await,
            value(&client, "SELECT sum(\"number A\") || ' ' || count(*) || min(b) FROM t").await,
            value(&client, "SELECT sum(a) || ' ' || count(c) || ' ' || count(*) FROM v").await,
            value(&client, "SELECT sum(a) || ' ' || count(f) FROM w").await,
            value(&client, "SELECT layout FROM aerostat.tables WHERE table_name = 't'").await,
            value(&client, "SELECT string_agg(relname, ',' ORDER BY relname) FROM pg_class WHERE oid >= 16384").await,
            value(&client, "SELECT string_agg(pg_get_constraintdef(oid), ',' ORDER BY conname) FROM pg_constraint").await,
            value(&client, "SELECT col_description('t'::regclass, 3)").await,
        ];
        answers.push(now);
        assert_eq!(
            sqlstate(&client, "INSERT INTO t VALUES (9001, 0, 'x')").await,
            "23514"
        );
        assert_eq!(
            sqlstate(&client, "INSERT INTO t VALUES (9001, NULL, NULL)").await,
            "23502"
        );
        assert_eq!(
            sqlstate(&client, "INSERT INTO w VALUES (1, 1)").await,
            "23505"
        );
        if round == 0 {
            client.batch_execute("CHECKPOINT").await.unwrap();
        }
        drop(client);
        data = node.kill();
    }
    assert_eq!(answers[0], answers[1]);
    assert_eq!(answers[0][1], "12502500 5001null");
    assert_eq!(answers[0][2], "12502500 5000 5001");
    assert_eq!(answers[0][3], "5050 0");
    assert_eq!(answers[0][4], "(id,\"number A\"),(b),(c)");
    assert_eq!(answers[0][5], "renamed,t,t_pkey,u_pkey,v,w");
    assert_eq!(answers[0][7], "bee");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_block_alters_for_itself_until_it_commits() {
    let node = Aerostat::start();
    let client = node.create("blocks").await;
    let other = node.connect("blocks").await;
    client
        .batch_execute(
            "CREATE TABLE t (id integer PRIMARY KEY, a integer NOT NULL);
             INSERT INTO t VALUES (1, 1); CREATE VIEW v AS SELECT * FROM t",
        )
        .await
        .unwrap();
    const SHOWN: &str = "SELECT coalesce(string_agg(t::text, ' ' ORDER BY t::text), '') FROM (SELECT id || ',' || a AS t FROM t) AS x";
    for end in ["ROLLBACK", "COMMIT"] {
        client
            .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM v;")
            .await
            .unwrap();
        // Committed after the block's snapshot: the rows must not be lost all the same.
        other
            .batch_execute(if end == "COMMIT" {
                "INSERT INTO t VALUES (7, 7)"
            } else {
                "SELECT 1"
            })
            .await
            .unwrap();
        client
            .batch_execute(
                "INSERT INTO t VALUES (2, 2);
                 ALTER TABLE t ADD b integer DEFAULT 5, ALTER a DROP NOT NULL;
                 ALTER TABLE t RENAME a TO c; INSERT INTO t VALUES (3, NULL, 3);
                 SAVEPOINT s; ALTER TABLE t DROP b, ADD PRIMARY KEY (c);",
            )
            .await
            .unwrap_err();
        client
            .batch_execute("ROLLBACK TO s; ALTER TABLE t DROP b; ROLLBACK TO s; UPDATE t SET b = 6 WHERE id = 2")
            .await
            .unwrap();
        assert_eq!(
            value(&client, "SELECT count(*) FROM t WHERE b IN (3, 6)").await,
            "2"
        );
        client.batch_execute(end).await.unwrap();
        if end == "ROLLBACK" {
            assert_eq!(value(&other, SHOWN).await, "1,1");
            assert_eq!(
                sqlstate(&other, "INSERT INTO t VALUES (9, NULL)").await,
                "23502"
            );
        }
    }
    assert_eq!(
        value(
            &other,
            "SELECT string_agg(id || ',' || coalesce(c, 0) || ',' || b, ' ' ORDER BY id) FROM t"
        )
        .await,
        "1,1,5 2,2,6 3,0,3 7,7,5"
    );
    assert_eq!(
        value(&other, "SELECT string_agg(a::text, ' ' ORDER BY id) FROM v").await,
        "1 2 7"
    );
    drop((client, other));
    let node = Aerostat::start_on(node.kill(), &[]);
    let client = node.connect("blocks").await;
    assert_eq!(value(&client, "SELECT sum(b) FROM t").await, "19");
}

/// What storage is told at once, and what is not committed then, are two things.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_block_undoes_is_undone_after_a_kill() {
    let node = Aerostat::start();
    let client = node.create("undone").await;
    client
        .batch_execute(
            "CREATE TABLE t (id integer PRIMARY KEY, a integer NOT NULL, b integer NOT NULL, c integer);
             INSERT INTO t VALUES (1, 1, 1, NULL); ALTER TABLE t ALTER b DROP NOT NULL",
        )
        .await
        .unwrap();
    client
        .batch_execute(
            "BEGIN; ALTER TABLE t RENAME a TO x; ALTER TABLE t RENAME TO u;
             ALTER TABLE u ALTER x DROP NOT NULL, ALTER c SET DEFAULT 7;
             CREATE INDEX u_x ON u (x); ALTER TABLE u ADD CHECK (x > 0), ADD UNIQUE (c);
             INSERT INTO u VALUES (2, NULL, 2, 2); ROLLBACK;
             CREATE TABLE other (a integer)",
        )
        .await
        .unwrap();
    drop(client);
    let mut data = node.kill();
    for _ in 0..2 {
        let node = Aerostat::start_on(data, &[]);
        let client = node.connect("undone").await;
        assert_eq!(
            value(&client, "SELECT string_agg(column_name || is_nullable || coalesce(column_default, ''), ',' ORDER BY ordinal_position) FROM information_schema.columns WHERE table_name = 't'").await,
            "idNO,aNO,bYES,cYES"
        );
        assert_eq!(value(&client, "SELECT sum(a) FROM t").await, "1");
        assert_eq!(
            sqlstate(&client, "INSERT INTO t VALUES (3, NULL, 3, 3)").await,
            "23502"
        );
        assert_eq!(
            value(
                &client,
                "SELECT count(*) FROM pg_index WHERE indrelid = 't'::regclass"
            )
            .await,
            "1"
        );
        client
            .batch_execute(
                "INSERT INTO t VALUES (4, -1, NULL, NULL); DELETE FROM t WHERE id = 4; CHECKPOINT",
            )
            .await
            .unwrap();
        drop(client);
        data = node.kill();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_key_waits_for_writers_of_both_tables() {
    let node = Aerostat::start();
    let client = node.create("keys").await;
    let other = node.connect("keys").await;
    client
        .batch_execute(
            "CREATE TABLE p (id integer PRIMARY KEY); CREATE TABLE c (id integer PRIMARY KEY, p integer);
             INSERT INTO p VALUES (1), (2); INSERT INTO c VALUES (1, 1), (2, 2);
             SET lock_timeout = '100ms'",
        )
        .await
        .unwrap();
    const ADD: &str = "ALTER TABLE c ADD CONSTRAINT key FOREIGN KEY (p) REFERENCES p";
    for write in ["DELETE FROM p WHERE id = 2", "INSERT INTO c VALUES (3, 9)"] {
        other.batch_execute("BEGIN").await.unwrap();
        other.batch_execute(write).await.unwrap();
        assert_eq!(sqlstate(&client, ADD).await, "55P03", "{write}");
        other.batch_execute("COMMIT").await.unwrap();
        assert_eq!(sqlstate(&client, ADD).await, "23503", "{write}");
        client
            .batch_execute(
                "INSERT INTO p VALUES (2) ON CONFLICT DO NOTHING; DELETE FROM c WHERE id = 3",
            )
            .await
            .unwrap();
    }
    // Until the block ends nobody writes to either, and all read.
    client.batch_execute("BEGIN").await.unwrap();
    client.batch_execute(ADD).await.unwrap();
    other
        .batch_execute("SET lock_timeout = '100ms'")
        .await
        .unwrap();
    assert_eq!(
        sqlstate(&other, "DELETE FROM p WHERE id = 2").await,
        "55P03"
    );
    assert_eq!(value(&other, "SELECT sum(id) FROM p").await, "3");
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(
        sqlstate(&other, "DELETE FROM p WHERE id = 2").await,
        "23503"
    );
    assert_eq!(
        sqlstate(&other, "INSERT INTO c VALUES (3, 9)").await,
        "23503"
    );
    // NOT VALID keeps rows that are there; both survive a kill.
    client
        .batch_execute(
            "ALTER TABLE c DROP CONSTRAINT key; INSERT INTO c VALUES (3, 9);
             ALTER TABLE c ADD CONSTRAINT later FOREIGN KEY (p) REFERENCES p NOT VALID",
        )
        .await
        .unwrap();
    drop((client, other));
    let node = Aerostat::start_on(node.kill(), &[]);
    let client = node.connect("keys").await;
    assert_eq!(
        sqlstate(&client, "INSERT INTO c VALUES (4, 9)").await,
        "23503"
    );
    assert_eq!(
        sqlstate(&client, "ALTER TABLE c VALIDATE CONSTRAINT later").await,
        "23503"
    );
    client
        .batch_execute("DELETE FROM c WHERE id = 3; ALTER TABLE c VALIDATE CONSTRAINT later")
        .await
        .unwrap();
    assert_eq!(
        value(
            &client,
            "SELECT bool_and(convalidated)::text FROM pg_constraint"
        )
        .await,
        "true"
    );
}

/// Inserts rows of its own until told to stop; says how many were acknowledged.
async fn insert(client: Client, stop: Arc<AtomicBool>, writer: u64) -> u64 {
    let mut done = 0;
    while !stop.load(Ordering::Relaxed) {
        let id = writer * 1_000_000 + done;
        let sql = format!("INSERT INTO t (id, n) VALUES ({id}, {id})");
        match client.execute(&sql, &[]).await {
            Ok(1) => done += 1,
            Ok(rows) => panic!("{sql}: {rows} rows"),
            // What a statement ran into may say so; it may not lose rows.
            Err(error) => assert_eq!(
                error.code(),
                Some(&SqlState::T_R_SERIALIZATION_FAILURE),
                "{sql}: {error:?}"
            ),
        }
        let (one, all) = (id, "SELECT count(*) FROM t WHERE n = id");
        client
            .execute(&format!("UPDATE t SET n = n WHERE id = {one}"), &[])
            .await
            .unwrap();
        if done % 16 == 0 {
            let seen: u64 = value(&client, all).await.parse().unwrap();
            assert!(seen >= done, "{seen} rows seen after {done} of one's own");
        }
    }
    done
}

#[tokio::test(flavor = "multi_thread")]
async fn no_row_is_lost_by_clients_that_write_meanwhile() {
    const WRITERS: u64 = 3;
    let node = Aerostat::start();
    let client = node.create("busy").await;
    client
        .batch_execute("CREATE TABLE t (id bigint PRIMARY KEY, n bigint NOT NULL)")
        .await
        .unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let client = node.connect("busy").await;
        writers.spawn(insert(client, Arc::clone(&stop), writer));
    }
    for round in 0..4 {
        for sql in [
            format!("ALTER TABLE t ADD COLUMN c{round} integer DEFAULT {round} NOT NULL"),
            "ALTER TABLE t ALTER n TYPE numeric(20,0)".to_owned(),
            "ALTER TABLE t ADD CONSTRAINT positive CHECK (n >= 0)".to_owned(),
            "ALTER TABLE t ALTER n DROP NOT NULL".to_owned(),
            format!("ALTER TABLE t RENAME c{round} TO d{round}"),
            "ALTER TABLE t ADD CONSTRAINT one_n UNIQUE (n)".to_owned(),
            "ALTER TABLE t ALTER n SET NOT NULL, DROP CONSTRAINT one_n, DROP CONSTRAINT positive"
                .to_owned(),
            format!("ALTER TABLE t DROP COLUMN d{round}, ALTER n TYPE bigint"),
            "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id)".to_owned(),
        ] {
            client
                .batch_execute(&sql)
                .await
                .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        }
    }
    stop.store(true, Ordering::Relaxed);
    let mut inserted = 0;
    while let Some(done) = writers.join_next().await {
        inserted += done.unwrap();
    }
    assert!(inserted > 0);
    assert_eq!(
        value(&client, "SELECT count(*) FROM t WHERE n = id").await,
        inserted.to_string()
    );
}
