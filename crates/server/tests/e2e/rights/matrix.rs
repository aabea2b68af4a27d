//! The statements, the privileges they are tried with, and the engines they are run on.

use futures::{SinkExt, TryStreamExt, pin_mut};
use tokio_postgres::{Client, Config, Error, NoTls, Statement};

use crate::harness::Aerostat;
use crate::postgres::Postgres;

/// Who asks: may connect, and nothing else.
const ROLE: &str = "rights_clerk";

/// Statements that the same privileges matter to.
pub(super) struct Group {
    /// What is there besides: made by the superuser.
    setup: &'static str,
    /// Each with what it is on, as GRANT has it; every subset is tried.
    pub(super) privileges: &'static [(&'static str, &'static str)],
    pub(super) statements: &'static [&'static str],
    /// Whether the statements can be prepared.
    is_prepared: bool,
}

const TABLES: &str = "
    CREATE TABLE t (k integer PRIMARY KEY, a integer DEFAULT 5, b integer CHECK (b < 100));
    INSERT INTO t VALUES (1, 10, 1), (2, 20, 2), (3, 30, 3);
    CREATE TABLE u (k integer PRIMARY KEY, x integer);
    INSERT INTO u VALUES (1, 100)";

const ALL_OF_T: &[(&str, &str)] = &[
    ("SELECT", "t"),
    ("INSERT", "t"),
    ("UPDATE", "t"),
    ("DELETE", "t"),
    ("TRUNCATE", "t"),
];

pub(super) const GROUPS: &[Group] = &[
    Group {
        setup: TABLES,
        privileges: ALL_OF_T,
        is_prepared: true,
        statements: &[
            "SELECT * FROM t",
            "SELECT count(*) FROM t",
            "SELECT 1 FROM t",
            "SELECT a FROM t WHERE k = 1",
            "SELECT a FROM t WHERE k BETWEEN 1 AND 2",
            "SELECT 1 WHERE EXISTS (SELECT 1 FROM t)",
            "WITH q AS (SELECT 1 FROM t) SELECT 1",
            "SELECT a FROM t FOR UPDATE",
            "SELECT a FROM t WHERE k = 1 FOR SHARE",
            "SELECT a FROM (SELECT a FROM t) AS q FOR UPDATE",
            "EXPLAIN SELECT a FROM t",
            "EXPLAIN DELETE FROM t",
            "EXPLAIN UPDATE t SET a = b",
            "INSERT INTO t VALUES (4, 1, 1)",
            "INSERT INTO t (k) VALUES (4)",
            "INSERT INTO t (k, a) VALUES (4, DEFAULT)",
            "INSERT INTO t VALUES (4, 1, 1) RETURNING k",
            "INSERT INTO t VALUES (4, 1, 1) RETURNING 1",
            "INSERT INTO t VALUES (4, 1, 1) RETURNING *",
            "INSERT INTO t AS z VALUES (4, 1, 1) RETURNING z.b",
            "INSERT INTO t SELECT 4, 1, 1",
            "INSERT INTO t SELECT k + 10, a, b FROM t",
            "INSERT INTO t VALUES (4, (SELECT count(*) FROM t), 1)",
            "INSERT INTO t VALUES (1, 1, 1) ON CONFLICT DO NOTHING",
            "INSERT INTO t VALUES (1, 1, 1) ON CONFLICT (k) DO NOTHING",
            "INSERT INTO t VALUES (1, 1, 1) ON CONFLICT ON CONSTRAINT t_pkey DO NOTHING",
            "INSERT INTO t VALUES (1, 1, 1) ON CONFLICT (k) DO UPDATE SET a = 1",
            "INSERT INTO t VALUES (1, 1, 1) ON CONFLICT (k) DO UPDATE SET a = excluded.a",
            "INSERT INTO t VALUES (1, 1, 1) ON CONFLICT (k) DO UPDATE SET a = t.a + 1",
            "INSERT INTO t VALUES (1, 1, 1) ON CONFLICT (k) DO UPDATE SET a = 1 WHERE t.b > 0",
            "INSERT INTO t VALUES (1, 1, 1) ON CONFLICT (k) DO UPDATE SET a = 1 RETURNING a",
            "UPDATE t SET a = 1",
            "UPDATE t SET a = DEFAULT",
            "UPDATE t SET a = b",
            "UPDATE t SET a = a + 1",
            "UPDATE t SET a = 1 WHERE k = 1",
            "UPDATE t SET a = a + 1 WHERE k = 1",
            "UPDATE t SET a = 1 WHERE t.k = 1",
            "UPDATE t SET a = 1 WHERE true",
            "UPDATE t SET a = 1 RETURNING a",
            "UPDATE t SET a = 1 RETURNING 1",
            "UPDATE t SET a = 1 RETURNING *",
            "UPDATE t SET a = 1 RETURNING t.*",
            "UPDATE t SET (a, b) = (1, 2)",
            "UPDATE t SET (a, b) = (b, a)",
            "UPDATE t SET (a, b) = (SELECT 1, 2)",
            "UPDATE t SET (a, b) = (SELECT t.b, 2)",
            "UPDATE t SET a = (SELECT max(b) FROM t AS other)",
            "UPDATE t AS z SET a = 1 WHERE z.k = 1",
            "UPDATE t AS z SET a = 1",
            "UPDATE t SET a = 1 WHERE EXISTS (SELECT 1)",
            "UPDATE t SET a = 1 WHERE EXISTS (SELECT 1 WHERE t.k = 1)",
            "UPDATE t SET a = 1 WHERE 1 = (SELECT k)",
            "DELETE FROM t",
            "DELETE FROM t WHERE k = 1",
            "DELETE FROM t WHERE a > 10",
            "DELETE FROM t WHERE true",
            "DELETE FROM t WHERE k IN (SELECT 1)",
            "DELETE FROM t RETURNING *",
            "DELETE FROM t RETURNING 1",
            "DELETE FROM t WHERE k = 1 RETURNING a",
            "DELETE FROM t AS z WHERE z.a IS NULL",
            "WITH d AS (DELETE FROM t RETURNING k) SELECT * FROM d",
            "WITH d AS (DELETE FROM t RETURNING 1) SELECT * FROM d",
            "WITH d AS (DELETE FROM t) SELECT 1",
            "WITH d AS (DELETE FROM t WHERE k = 1) SELECT 1",
            "WITH d AS (UPDATE t SET a = 1 RETURNING a) SELECT 1",
            "WITH i AS (INSERT INTO t VALUES (4, 1, 1) RETURNING k) SELECT * FROM i",
            "WITH one AS (SELECT 1 AS k) DELETE FROM t WHERE EXISTS (SELECT 1 FROM one)",
            "WITH one AS (SELECT 1 AS k) DELETE FROM t WHERE k IN (SELECT k FROM one)",
        ],
    },
    Group {
        setup: TABLES,
        privileges: ALL_OF_T,
        is_prepared: false,
        statements: &[
            "COPY t TO STDOUT",
            "COPY t (a) TO STDOUT",
            "COPY (SELECT a FROM t) TO STDOUT",
            "COPY (DELETE FROM t RETURNING a) TO STDOUT",
            "COPY (DELETE FROM t RETURNING 1) TO STDOUT",
            "COPY (UPDATE t SET a = 1 RETURNING a) TO STDOUT",
            "COPY (INSERT INTO t VALUES (4, 1, 1) RETURNING b) TO STDOUT",
            "COPY t FROM STDIN",
            "COPY t (k) FROM STDIN",
            "TRUNCATE t",
            "DECLARE c CURSOR FOR SELECT a FROM t",
            "CREATE TEMP TABLE copied AS SELECT * FROM t",
            "LOCK TABLE t IN ACCESS SHARE MODE",
            "LOCK TABLE t IN ROW SHARE MODE",
            "LOCK TABLE t IN ROW EXCLUSIVE MODE",
            "LOCK TABLE t IN SHARE MODE",
            "LOCK TABLE t IN ACCESS EXCLUSIVE MODE",
            "MERGE INTO t USING (VALUES (1)) AS s (x) ON t.k = s.x WHEN MATCHED THEN DELETE",
            "MERGE INTO t USING (VALUES (1)) AS s (x) ON t.k = s.x WHEN MATCHED THEN UPDATE SET a = 1",
            "MERGE INTO t USING (VALUES (9)) AS s (x) ON t.k = s.x WHEN NOT MATCHED THEN INSERT VALUES (9, 9, 9)",
            "MERGE INTO t USING (VALUES (9)) AS s (x) ON false WHEN NOT MATCHED THEN INSERT VALUES (9, 9, 9)",
            "MERGE INTO t USING (VALUES (1)) AS s (x) ON true WHEN MATCHED THEN DELETE",
            "MERGE INTO t USING (VALUES (1)) AS s (x) ON true WHEN MATCHED AND t.a > 1 THEN DELETE",
            "MERGE INTO t USING (VALUES (1)) AS s (x) ON true WHEN MATCHED THEN UPDATE SET a = b",
            "MERGE INTO t USING (VALUES (1)) AS s (x) ON true WHEN MATCHED THEN DO NOTHING",
        ],
    },
    Group {
        setup: TABLES,
        privileges: &[
            ("SELECT", "t"),
            ("INSERT", "t"),
            ("UPDATE", "t"),
            ("DELETE", "t"),
            ("SELECT", "u"),
        ],
        is_prepared: true,
        statements: &[
            "SELECT 1 FROM t, u",
            "SELECT t.a FROM t JOIN u USING (k)",
            "SELECT t.a FROM t, u FOR UPDATE OF t",
            "INSERT INTO t SELECT k + 10, x, 1 FROM u",
            "INSERT INTO t SELECT k + 10, x, 1 FROM u RETURNING k",
            "INSERT INTO t VALUES (4, (SELECT max(x) FROM u), 1)",
            "UPDATE t SET a = u.x FROM u",
            "UPDATE t SET a = u.x FROM u WHERE u.k = 1",
            "UPDATE t SET a = u.x FROM u WHERE u.k = t.k",
            "UPDATE t SET a = 1 FROM u RETURNING u.x",
            "UPDATE t SET a = 1 FROM u RETURNING *",
            "UPDATE t SET a = (SELECT max(x) FROM u)",
            "UPDATE t SET a = (SELECT max(x) FROM u WHERE u.k = t.k)",
            "UPDATE t SET (a, b) = (SELECT x, 1 FROM u WHERE u.k = t.k)",
            "UPDATE t SET a = (SELECT max(u.x) FROM u AS t, u)",
            "DELETE FROM t USING u",
            "DELETE FROM t USING u WHERE u.k = 1",
            "DELETE FROM t USING u WHERE u.k = t.k",
            "DELETE FROM t USING u WHERE u.k = 1 RETURNING u.x",
            "DELETE FROM t USING u WHERE u.k = 1 RETURNING t.a",
            "DELETE FROM t USING LATERAL (SELECT u.x FROM u) AS q",
            "DELETE FROM t WHERE EXISTS (SELECT 1 FROM u)",
            "DELETE FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.k = t.k)",
            "DELETE FROM t WHERE EXISTS (SELECT a FROM u)",
            "DELETE FROM t WHERE k IN (SELECT k FROM u)",
            "DELETE FROM t WHERE EXISTS (SELECT 1 FROM u WHERE x IN (SELECT a))",
            "WITH d AS (DELETE FROM t RETURNING a) INSERT INTO t SELECT k + 5, x, 1 FROM u",
            "WITH q AS (SELECT x FROM u) UPDATE t SET a = x FROM q",
            "MERGE INTO t USING u ON t.k = u.k WHEN MATCHED THEN UPDATE SET a = u.x",
            "MERGE INTO t USING u ON u.k = 1 WHEN MATCHED THEN UPDATE SET a = 1",
            "MERGE INTO t USING u ON u.k = 7 WHEN NOT MATCHED THEN INSERT VALUES (u.k + 20, 1, 1)",
        ],
    },
    Group {
        setup: "CREATE TABLE base (k integer PRIMARY KEY, a integer);
                INSERT INTO base VALUES (1, 2);
                CREATE VIEW v AS SELECT k, a FROM base;
                CREATE VIEW w AS SELECT a FROM v WHERE k = 1",
        privileges: &[
            ("SELECT", "base"),
            ("SELECT", "v"),
            ("SELECT", "w"),
            ("UPDATE", "v"),
            ("UPDATE", "base"),
        ],
        is_prepared: true,
        statements: &[
            "SELECT * FROM v",
            "SELECT * FROM w",
            "SELECT 1 FROM v, base",
            "SELECT a FROM v WHERE k = 1",
            "SELECT a FROM base WHERE k = 1",
            "SELECT a FROM v FOR UPDATE",
            "SELECT count(*) FROM w JOIN v ON true",
        ],
    },
    Group {
        setup: "CREATE SEQUENCE s; SELECT nextval('s');
                CREATE TABLE d (k integer DEFAULT nextval('s') PRIMARY KEY, v integer);
                CREATE TABLE i (k integer GENERATED ALWAYS AS IDENTITY, v integer)",
        privileges: &[
            ("SELECT", "s"),
            ("USAGE", "SEQUENCE s"),
            ("UPDATE", "s"),
            ("INSERT", "d"),
            ("INSERT", "i"),
        ],
        is_prepared: true,
        statements: &[
            "SELECT nextval('s')",
            "SELECT setval('s', 40)",
            "SELECT setval('s', 40, false)",
            "SELECT last_value FROM s",
            "SELECT pg_sequence_last_value('s')",
            "INSERT INTO d (v) VALUES (1)",
            "INSERT INTO d VALUES (nextval('s'), 1)",
            "INSERT INTO d VALUES (DEFAULT, 1)",
            "INSERT INTO d SELECT 900, 1",
            "INSERT INTO i (v) VALUES (1)",
            "INSERT INTO i (v) SELECT 1",
        ],
    },
    Group {
        setup: "CREATE SCHEMA h; CREATE TABLE h.t (k integer PRIMARY KEY); CREATE SEQUENCE h.s",
        privileges: &[
            ("USAGE", "SCHEMA h"),
            ("CREATE", "SCHEMA h"),
            ("SELECT", "h.t"),
            ("INSERT", "h.t"),
        ],
        is_prepared: false,
        statements: &[
            "SELECT * FROM h.t",
            "SELECT k FROM h.t WHERE k = 1",
            "INSERT INTO h.t VALUES (1)",
            "CREATE TABLE h.n (k integer)",
            "CREATE VIEW h.v AS SELECT 1 AS one",
            "CREATE SEQUENCE h.q",
            "CREATE TABLE h.n AS SELECT 1 AS one",
            "SELECT 'h.t'::regclass::oid, k FROM h.t",
        ],
    },
    Group {
        setup: "CREATE TABLE base (k integer PRIMARY KEY, a integer);
                INSERT INTO base VALUES (1, 2);
                CREATE VIEW own AS SELECT k, a FROM base; CREATE VIEW around AS SELECT a FROM own;
                ALTER VIEW own OWNER TO rights_clerk",
        privileges: &[("SELECT", "base"), ("UPDATE", "base"), ("SELECT", "around")],
        is_prepared: true,
        statements: &[
            "SELECT * FROM own",
            "SELECT a FROM own WHERE k = 1",
            "SELECT a FROM around",
            "SELECT a FROM own FOR UPDATE",
        ],
    },
    Group {
        setup: "CREATE TABLE p (k integer PRIMARY KEY, v integer);
                CREATE TABLE c (k integer PRIMARY KEY, r integer REFERENCES p ON DELETE CASCADE);
                INSERT INTO p VALUES (1, 1), (2, 2); INSERT INTO c VALUES (1, 1)",
        privileges: &[
            ("SELECT", "p"),
            ("DELETE", "p"),
            ("UPDATE", "p"),
            ("INSERT", "c"),
            ("SELECT", "c"),
        ],
        is_prepared: true,
        statements: &[
            "DELETE FROM p",
            "DELETE FROM p WHERE k = 1",
            "UPDATE p SET k = 7",
            "UPDATE p SET v = 7",
            "INSERT INTO c VALUES (2, 2)",
            "INSERT INTO c VALUES (2, 9)",
            "INSERT INTO c VALUES (2, 2) RETURNING r",
        ],
    },
    // What no privilege gives.
    Group {
        setup: "CREATE TABLE t (k integer PRIMARY KEY, a integer);
                CREATE VIEW v AS SELECT k FROM t; CREATE SEQUENCE s;
                GRANT ALL ON t, v TO rights_clerk; GRANT ALL ON SEQUENCE s TO rights_clerk;
                CREATE SCHEMA h; GRANT ALL ON SCHEMA h, public TO rights_clerk",
        privileges: &[],
        is_prepared: false,
        statements: &[
            "ALTER TABLE t ADD COLUMN b integer",
            "ALTER TABLE t DROP COLUMN a",
            "ALTER TABLE t RENAME TO x",
            "ALTER TABLE t RENAME COLUMN a TO x",
            "ALTER TABLE t ALTER COLUMN a SET DEFAULT 1",
            "ALTER TABLE t ADD CHECK (a > 0)",
            "ALTER TABLE t OWNER TO rights_clerk",
            "ALTER TABLE t SET SCHEMA h",
            "DROP TABLE t CASCADE",
            "DROP VIEW v",
            "DROP SEQUENCE s",
            "DROP SCHEMA h",
            "ALTER SCHEMA h RENAME TO x",
            "ALTER SCHEMA h OWNER TO rights_clerk",
            "ALTER SEQUENCE s RESTART",
            "ALTER VIEW v RENAME TO x",
            "CREATE OR REPLACE VIEW v AS SELECT 1 AS k",
            "CREATE INDEX ON t (a)",
            "COMMENT ON TABLE t IS 'mine'",
            "COMMENT ON COLUMN t.a IS 'mine'",
            "COMMENT ON SCHEMA h IS 'mine'",
            "REINDEX TABLE t",
            "REINDEX INDEX t_pkey",
            "CHECKPOINT",
            "SELECT * FROM pg_authid",
            "SELECT * FROM pg_shadow",
            "CREATE ROLE x",
            "CREATE DATABASE x",
            "ALTER ROLE rights_clerk SUPERUSER",
            "CREATE SCHEMA x",
            "INSERT INTO pg_class (oid) VALUES (1)",
            "DELETE FROM pg_authid",
            "COPY t TO '/tmp/rights'",
            "COPY t FROM '/etc/passwd'",
        ],
    },
];

/// How a statement is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    is_prepared: bool,
    /// `None` where there is no such thing.
    fast_path: Option<bool>,
}

impl Way {
    pub(super) const SIMPLE: Self = Self {
        is_prepared: false,
        fast_path: None,
    };
}

/// How the statements of a group are run here.
pub(super) fn ways(group: &Group) -> impl Iterator<Item = Way> {
    let kinds: &[bool] = match group.is_prepared {
        true => &[false, true],
        false => &[false],
    };
    kinds.iter().flat_map(|&is_prepared| {
        [true, false].map(|fast_path| Way {
            is_prepared,
            fast_path: Some(fast_path),
        })
    })
}

/// What became of a statement.
pub(super) struct Outcome {
    pub(super) granted: String,
    pub(super) sql: &'static str,
    /// The SQLSTATE, or `ok`.
    pub(super) state: String,
}

/// A database with a group's objects.
pub(super) struct Engine {
    owner: Client,
    config: Config,
}

impl Engine {
    pub(super) async fn postgres(postgres: &Postgres, name: &str, group: &Group) -> Self {
        postgres.create(name).await;
        Self::ready(postgres.config(name), group).await
    }

    pub(super) async fn aerostat(node: &Aerostat, name: &str, group: &Group) -> Self {
        drop(node.create(name).await);
        Self::ready(node.config(name), group).await
    }

    async fn ready(config: Config, group: &Group) -> Self {
        let owner = connected(&config).await;
        let made = owner
            .batch_execute(&format!("CREATE ROLE {ROLE} LOGIN"))
            .await;
        let there = |error: &Error| error.code().is_some_and(|code| code.code() == "42710");
        assert!(made.as_ref().err().is_none_or(there), "{made:?}");
        let name = config.get_dbname().unwrap();
        for sql in [
            &format!("GRANT CONNECT ON DATABASE {name} TO {ROLE}"),
            group.setup,
        ] {
            owner.batch_execute(sql).await.unwrap();
        }
        let mut config = config;
        config.user(ROLE);
        Self { owner, config }
    }

    /// Runs every statement under every subset of the privileges.
    pub(super) async fn outcomes(&self, group: &Group, way: Way) -> Vec<Outcome> {
        let clerk = connected(&self.config).await;
        if let Some(is_on) = way.fast_path {
            let word = if is_on { "on" } else { "off" };
            let sql = format!("SET enable_fast_path = {word}");
            clerk.batch_execute(&sql).await.unwrap();
        }
        let everything = (1 << group.privileges.len()) - 1;
        self.grant(group, everything).await;
        let mut prepared: Vec<Option<Statement>> = Vec::new();
        for sql in group.statements {
            prepared.push(match way.is_prepared {
                true => Some(
                    clerk
                        .prepare(sql)
                        .await
                        .unwrap_or_else(|e| panic!("{sql}: {e:?}")),
                ),
                false => None,
            });
        }
        let mut outcomes = Vec::new();
        for subset in 0..=everything {
            let granted = self.grant(group, subset).await;
            for (sql, prepared) in group.statements.iter().zip(&prepared) {
                let in_block = !sql.contains("DATABASE x") && !sql.contains(" ROLE ");
                if in_block {
                    clerk.batch_execute("BEGIN").await.unwrap();
                }
                let done = match prepared {
                    Some(prepared) => clerk.query(prepared, &[]).await.map(drop),
                    // The client loses its place when one is refused.
                    None if sql.ends_with("FROM STDIN") => {
                        copy_nothing(&connected(&self.config).await, sql).await
                    }
                    None => run(&clerk, sql).await,
                };
                if in_block {
                    clerk.batch_execute("ROLLBACK").await.unwrap();
                }
                outcomes.push(Outcome {
                    granted: granted.clone(),
                    sql,
                    state: state(done, sql),
                });
            }
        }
        outcomes
    }

    /// Grants these privileges and takes the others away; their names.
    async fn grant(&self, group: &Group, subset: usize) -> String {
        let mut granted = Vec::new();
        let mut sql = String::new();
        for (at, (privilege, on)) in group.privileges.iter().enumerate() {
            if subset & 1 << at == 0 {
                sql.push_str(&format!("REVOKE {privilege} ON {on} FROM {ROLE};"));
            } else {
                sql.push_str(&format!("GRANT {privilege} ON {on} TO {ROLE};"));
                granted.push(format!("{privilege} ON {on}"));
            }
        }
        self.owner.batch_execute(&sql).await.unwrap();
        granted.join(", ")
    }
}

async fn run(clerk: &Client, sql: &str) -> Result<(), Error> {
    if sql.ends_with("TO STDOUT") {
        let rows = clerk.copy_out(sql).await?;
        pin_mut!(rows);
        while rows.try_next().await?.is_some() {}
        return Ok(());
    }
    clerk.simple_query(sql).await.map(drop)
}

async fn copy_nothing(clerk: &Client, sql: &str) -> Result<(), Error> {
    let sink = clerk.copy_in::<_, bytes::Bytes>(sql).await?;
    pin_mut!(sink);
    sink.close().await
}

fn state(done: Result<(), Error>, sql: &str) -> String {
    match done {
        Ok(()) => "ok".to_owned(),
        Err(error) => match error.code() {
            Some(code) => code.code().to_owned(),
            None => panic!("{sql}: {error:?}"),
        },
    }
}

async fn connected(config: &Config) -> Client {
    let (client, connection) = config.connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}
