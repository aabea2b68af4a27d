//! Statements whose result has become another since their client was told of it: rows never
//! come in another shape than they were described in. PostgreSQL says what is right.

use tokio_postgres::Client;

use crate::harness::{Aerostat, sqlstate, value};
use crate::postgres::Postgres;
use crate::raw::{Raw, errors};

/// What is there before each.
const MADE: &str = "CREATE TABLE t (a int PRIMARY KEY, b int); \
    INSERT INTO t VALUES (1, 10), (2, 20); CREATE INDEX t_b ON t (b); \
    CREATE VIEW v AS SELECT a, b FROM t";

const UNMADE: &str = "RESET search_path; DROP TABLE IF EXISTS pg_temp.t; \
    DROP SCHEMA IF EXISTS s CASCADE; DROP VIEW IF EXISTS v; DROP TABLE IF EXISTS t CASCADE";

/// A statement, what happens after it was prepared, and whether it then still gives what it
/// was told to give.
const CASES: &[(&str, &str, bool)] = &[
    ("SELECT * FROM t", "ALTER TABLE t ADD COLUMN c int", false),
    ("TABLE t", "ALTER TABLE t ADD COLUMN c int", false),
    (
        "SELECT * FROM t WHERE a = 1",
        "ALTER TABLE t ADD COLUMN c int",
        false,
    ),
    (
        "SELECT * FROM t WHERE b = 10",
        "ALTER TABLE t ADD COLUMN c int",
        false,
    ),
    ("SELECT * FROM t", "ALTER TABLE t RENAME b TO c", false),
    ("SELECT b FROM t", "ALTER TABLE t ALTER b TYPE text", false),
    (
        "SELECT b FROM t WHERE a = 1",
        "ALTER TABLE t ALTER b TYPE bigint",
        false,
    ),
    (
        "SELECT max(b) FROM t",
        "ALTER TABLE t ALTER b TYPE bigint",
        false,
    ),
    (
        "SELECT b + 1 AS n FROM t GROUP BY 1",
        "ALTER TABLE t ALTER b TYPE bigint",
        false,
    ),
    ("SELECT a FROM t", "ALTER TABLE t ADD COLUMN c int", true),
    (
        "SELECT a FROM t WHERE a = 1",
        "ALTER TABLE t ADD COLUMN c int",
        true,
    ),
    ("SELECT a FROM t", "ALTER TABLE t ALTER b TYPE text", true),
    ("SELECT * FROM t", "CREATE INDEX t_c ON t (a, b)", true),
    (
        "SELECT * FROM t",
        "TRUNCATE t; INSERT INTO t VALUES (1, 10)",
        true,
    ),
    (
        "SELECT * FROM t",
        "DROP TABLE t CASCADE; CREATE TABLE t (a int, b int); INSERT INTO t VALUES (1, 2)",
        true,
    ),
    (
        "SELECT * FROM t WHERE a = 1",
        "DROP TABLE t CASCADE; CREATE TABLE t (a int PRIMARY KEY, b text); INSERT INTO t VALUES (1, 2)",
        false,
    ),
    (
        "SELECT * FROM v",
        "CREATE OR REPLACE VIEW v AS SELECT a, b, 1 AS n FROM t",
        false,
    ),
    (
        "SELECT * FROM v",
        "CREATE OR REPLACE VIEW v AS SELECT b AS a, a AS b FROM t",
        true,
    ),
    (
        "SELECT * FROM v",
        "DROP VIEW v; CREATE VIEW v AS SELECT 'x'::text AS a, b FROM t",
        false,
    ),
    (
        "SELECT * FROM t",
        "CREATE SCHEMA s; CREATE TABLE s.t (a text, b int); SET search_path = s",
        false,
    ),
    (
        "SELECT * FROM t WHERE a = 1",
        "CREATE SCHEMA s; CREATE TABLE s.t (a int PRIMARY KEY, b text); SET search_path = s",
        false,
    ),
    ("SELECT * FROM t", "CREATE TEMP TABLE t (x text)", false),
    (
        "SELECT * FROM t WHERE a = 1",
        "CREATE TEMP TABLE t (a int, b text)",
        false,
    ),
    (
        "SELECT * FROM t FOR UPDATE",
        "ALTER TABLE t ADD COLUMN c int",
        false,
    ),
    (
        "INSERT INTO t VALUES (7, 7) RETURNING *",
        "ALTER TABLE t ADD COLUMN c int",
        false,
    ),
    (
        "INSERT INTO t VALUES (7, 7) RETURNING a",
        "ALTER TABLE t ADD COLUMN c int",
        true,
    ),
    (
        "INSERT INTO t VALUES (7, 7)",
        "ALTER TABLE t ADD COLUMN c int",
        true,
    ),
    (
        "UPDATE t SET b = 7 WHERE a = 1 RETURNING *",
        "ALTER TABLE t ADD COLUMN c int",
        false,
    ),
    (
        "UPDATE t SET b = b + 1 RETURNING b",
        "ALTER TABLE t ALTER b TYPE bigint",
        false,
    ),
    (
        "DELETE FROM t WHERE a = 1 RETURNING *",
        "ALTER TABLE t DROP COLUMN b CASCADE",
        false,
    ),
    (
        "WITH d AS (DELETE FROM t RETURNING *) SELECT * FROM d",
        "ALTER TABLE t ADD COLUMN c int",
        false,
    ),
    (
        "WITH d AS (DELETE FROM t RETURNING *) SELECT count(*) FROM d",
        "ALTER TABLE t ADD COLUMN c int",
        true,
    ),
];

const CHANGED: &str = "0A000: cached plan must not change result type (RevalidateCachedQuery)";

/// How a prepared statement ends after its result has become another, and what is in the table.
async fn after(client: &Client, sql: &str, change: &str, runs_before: usize) -> (String, String) {
    client.batch_execute(UNMADE).await.unwrap();
    client.batch_execute(MADE).await.unwrap();
    let prepared = client.prepare(sql).await.unwrap();
    for _ in 0..runs_before {
        client.query(&prepared, &[]).await.unwrap();
    }
    if change.starts_with("ALTER TABLE t ALTER b") {
        // PostgreSQL changes no type that a view reads.
        client.batch_execute("DROP VIEW v").await.unwrap();
    }
    client.batch_execute(change).await.unwrap();
    let count = "SELECT count(*) || ' ' || coalesce(sum(a::text::int), 0) FROM public.t";
    let before = value(client, count).await;
    let ended = match client.query(&prepared, &[]).await {
        Ok(_) => "rows".to_owned(),
        Err(error) => {
            let error = error
                .as_db_error()
                .unwrap_or_else(|| panic!("{sql}: {error:?}"));
            assert_eq!(
                value(client, count).await,
                before,
                "{sql} has done something"
            );
            // Drivers know by the routine that they are to prepare again.
            let routine = error.routine().unwrap_or("none");
            format!("{}: {} ({routine})", error.code().code(), error.message())
        }
    };
    // Prepared anew it gives what it is told to.
    if ended != "rows" {
        client.query(sql, &[]).await.unwrap();
    }
    (ended, value(client, count).await)
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_come_as_they_were_described_or_not_at_all() {
    let node = Aerostat::start();
    let client = node.connect("aerostat").await;
    let postgres = Postgres::find().await;
    let other = match &postgres {
        Some(postgres) => {
            let database = postgres.create("cached_plans").await;
            Some(postgres.connect(&database).await)
        }
        None => None,
    };
    for (sql, change, stays) in CASES {
        let expected = if *stays { "rows" } else { CHANGED };
        // PostgreSQL plans anew by itself; here plans are kept, so that they come again.
        let is_query = sql.starts_with("SELECT") || sql.starts_with("TABLE");
        for runs in [0, if is_query { 3 } else { 0 }] {
            let (ended, rows) = after(&client, sql, change, runs).await;
            assert_eq!(ended, expected, "{sql} after {change}, {runs} runs");
            // PostgreSQL goes on with the table that it knows when another comes to hide it.
            let hides = change.starts_with("CREATE TEMP");
            if let Some(other) = other.as_ref().filter(|_| !hides) {
                let theirs = after(other, sql, change, runs).await;
                assert_eq!((ended, rows), theirs, "{sql} after {change}: PostgreSQL");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_of_prepare_and_blocks_are_no_exception() {
    let node = Aerostat::start();
    let client = node.connect("aerostat").await;
    client.batch_execute(MADE).await.unwrap();
    let prepare = "PREPARE p AS SELECT * FROM t; PREPARE q (int) AS SELECT * FROM t WHERE a = $1; \
        PREPARE r AS SELECT a FROM t";
    client.batch_execute(prepare).await.unwrap();
    client
        .batch_execute("EXECUTE p; EXECUTE q (1)")
        .await
        .unwrap();
    client
        .batch_execute("ALTER TABLE t ADD COLUMN c int")
        .await
        .unwrap();
    for sql in ["EXECUTE p", "EXECUTE q (1)"] {
        assert_eq!(sqlstate(&client, sql).await, "0A000", "{sql}");
    }
    client.batch_execute("EXECUTE r").await.unwrap();

    // In a block the error is one like any other.
    let stale = client.prepare("SELECT * FROM t").await.unwrap();
    client
        .batch_execute("BEGIN; ALTER TABLE t DROP COLUMN c")
        .await
        .unwrap();
    client.query(&stale, &[]).await.unwrap_err();
    assert_eq!(sqlstate(&client, "SELECT 1").await, "25P02");
    client.batch_execute("ROLLBACK").await.unwrap();
    client.query(&stale, &[]).await.unwrap();
}

/// Messages of the extended protocol up to a Sync.
struct Pipeline(Vec<(u8, Vec<u8>)>);

impl Pipeline {
    fn new() -> Self {
        Self(Vec::new())
    }

    fn parse(mut self, name: &str, sql: &str) -> Self {
        let body = [name.as_bytes(), &[0], sql.as_bytes(), &[0, 0, 0]].concat();
        self.0.push((b'P', body));
        self
    }

    fn bind(mut self, portal: &str, statement: &str) -> Self {
        let names = [portal.as_bytes(), &[0], statement.as_bytes(), &[0]].concat();
        self.0.push((b'B', [&names[..], &[0; 6]].concat()));
        self
    }

    fn describe(mut self, kind: u8, name: &str) -> Self {
        self.0
            .push((b'D', [&[kind], name.as_bytes(), &[0]].concat()));
        self
    }

    fn execute(mut self, portal: &str, rows: u32) -> Self {
        let body = [portal.as_bytes(), &[0], &rows.to_be_bytes()].concat();
        self.0.push((b'E', body));
        self
    }

    /// The types of the messages that come back, and the SQLSTATEs among them.
    fn send(self, raw: &mut Raw) -> (String, Vec<String>) {
        for (kind, body) in self.0 {
            raw.send(kind, &body).unwrap();
        }
        raw.send(b'S', &[]).unwrap();
        let messages = raw.read_until_ready().unwrap();
        let kinds = messages
            .iter()
            .map(|message| char::from(message.0))
            .collect();
        let codes = errors(&messages).into_iter();
        (
            kinds,
            codes.map(|mut error| error.remove(&'C').unwrap()).collect(),
        )
    }
}

#[test]
fn portals_and_statements_without_names_are_no_exception() {
    let node = Aerostat::start();
    let mut raw = Raw::session(node.sql, "aerostat");
    let mut other = Raw::session(node.sql, "aerostat");
    raw.query(MADE).unwrap();

    // Described in one message, run in another.
    let described = Pipeline::new()
        .parse("", "SELECT * FROM t")
        .describe(b'S', "");
    assert_eq!(described.send(&mut raw).0, "1tT");
    other.query("ALTER TABLE t ADD COLUMN c int").unwrap();
    let (kinds, codes) = Pipeline::new().bind("", "").execute("", 0).send(&mut raw);
    assert_eq!(codes, ["0A000"], "{kinds}");
    assert!(!kinds.contains('D'), "{kinds}");

    // A portal that is described, then the definition, then its rows.
    let pipeline = Pipeline::new()
        .parse("s", "SELECT * FROM t")
        .bind("p", "s")
        .describe(b'P', "p")
        .parse("", "ALTER TABLE t ALTER c TYPE text")
        .bind("", "")
        .execute("", 0)
        .execute("p", 0);
    let (kinds, codes) = pipeline.send(&mut raw);
    assert_eq!(codes, ["0A000"], "{kinds}");

    // A portal that has given rows goes on with those that it began with.
    raw.query("BEGIN").unwrap();
    let begun = Pipeline::new()
        .parse("u", "SELECT * FROM t ORDER BY a")
        .bind("p", "u")
        .describe(b'P', "p")
        .execute("p", 1);
    assert_eq!(begun.send(&mut raw).0, "12TDs");
    let goes_on = Pipeline::new()
        .parse("", "CREATE TEMP TABLE t (x text)")
        .bind("", "")
        .execute("", 0)
        .execute("p", 0);
    assert_eq!(goes_on.send(&mut raw).0, "12CDC");
    raw.query("ROLLBACK").unwrap();

    // FETCH gives the columns of the cursor that it finds, as its portal tells.
    raw.query("BEGIN; DECLARE c CURSOR FOR SELECT 1 AS n")
        .unwrap();
    let fetch = Pipeline::new().parse("f", "FETCH c").describe(b'S', "f");
    assert_eq!(fetch.send(&mut raw).0, "1tT");
    raw.query("CLOSE c; DECLARE c CURSOR FOR SELECT 'x'::text AS n")
        .unwrap();
    let fetch = Pipeline::new()
        .bind("", "f")
        .describe(b'P', "")
        .execute("", 0);
    assert_eq!(fetch.send(&mut raw).0, "2TDC");
    raw.query("ROLLBACK").unwrap();

    // One with a name leaves the one without where it is.
    let both = Pipeline::new()
        .parse("", "SELECT 1")
        .parse("other", "SELECT 2");
    assert_eq!(both.send(&mut raw).0, "11");
    let first = Pipeline::new().bind("", "").execute("", 0);
    assert_eq!(first.send(&mut raw).0, "2DC");

    // So does EXECUTE those of its statement.
    raw.query("PREPARE p AS SELECT 1 AS n").unwrap();
    let execute = Pipeline::new().parse("e", "EXECUTE p").describe(b'S', "e");
    assert_eq!(execute.send(&mut raw).0, "1tT");
    raw.query("DEALLOCATE p; PREPARE p AS SELECT 'x'::text AS other, 2")
        .unwrap();
    let execute = Pipeline::new()
        .bind("", "e")
        .describe(b'P', "")
        .execute("", 0);
    assert_eq!(execute.send(&mut raw).0, "2TDC");
}
