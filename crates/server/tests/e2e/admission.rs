//! How many statements of a database run at once: those beyond wait, and are refused when too many wait.
//!
//! A statement that waits for an advisory lock, which a superuser has, runs as long as a test wants; others are told
//! by the metrics' gauges to have come as far as they are to.

mod overload;

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::{SinkExt, TryStreamExt, future::join_all};
use tokio::task::JoinHandle;
use tokio_postgres::{CancelToken, Client, Error, NoTls, error::DbError};

use crate::harness::{Aerostat, PATIENCE, refusal, sqlstate, value};

/// Waits for the lock, and holds it no longer than its transaction lasts.
const HOLD: &str = "SELECT pg_advisory_xact_lock(1)";

/// A node with the database `d` of the role `plain`, with these parameters, and a superuser in it who has the lock
/// that [`HOLD`] waits for.
struct Stage {
    node: Aerostat,
    operator: Client,
}

impl Stage {
    async fn new(parameters: &str) -> Self {
        Self::with(&[], parameters).await
    }

    async fn with(flags: &[&str], parameters: &str) -> Self {
        let node = Aerostat::start_with(flags);
        let admin = node.connect("aerostat").await;
        let with = match parameters {
            "" => String::new(),
            parameters => format!("WITH ({parameters})"),
        };
        admin.batch_execute("CREATE USER plain").await.unwrap();
        let create = format!("CREATE DATABASE d OWNER plain {with}");
        admin.batch_execute(&create).await.unwrap();
        let operator = node.connect("d").await;
        operator
            .batch_execute(
                "CREATE TABLE t (id int PRIMARY KEY, v int);
                 INSERT INTO t SELECT g, 0 FROM generate_series(1, 100) AS g;
                 CREATE TABLE came (n int PRIMARY KEY GENERATED ALWAYS AS IDENTITY, who int);
                 GRANT ALL ON t, came TO plain;
                 SELECT pg_advisory_lock(1)",
            )
            .await
            .unwrap();
        Self { node, operator }
    }

    async fn plain(&self) -> Client {
        plain(&self.node, "d").await
    }

    /// A session that runs [`HOLD`], and has its place.
    async fn holder(&self) -> (JoinHandle<Result<(), Error>>, CancelToken) {
        let running = self.gauge("running");
        let session = self.plain().await;
        let token = session.cancel_token();
        let task = tokio::spawn(async move { session.batch_execute(HOLD).await });
        self.until("running", running + 1.0);
        (task, token)
    }

    /// Has a statement wait in the queue.
    async fn waiter(&self, sql: &'static str) -> JoinHandle<Result<(), Error>> {
        let session = self.plain().await;
        self.waits(async move { session.batch_execute(sql).await })
    }

    /// Begins what is to wait in the queue.
    fn waits<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        let waiting = self.gauge("waiting");
        let task = tokio::spawn(work);
        self.until("waiting", waiting + 1.0);
        task
    }

    async fn release(&self) {
        let sql = "SELECT pg_advisory_unlock(1)";
        assert_eq!(value(&self.operator, sql).await, "t");
    }

    fn gauge(&self, of: &str) -> f64 {
        self.node.metric(&series(of))
    }

    fn until(&self, of: &str, number: f64) {
        tokio::task::block_in_place(|| self.node.wait_for_metric(&series(of), number));
    }

    /// Nobody runs or waits any more.
    fn ends_idle(&self) {
        self.until("running", 0.0);
        self.until("waiting", 0.0);
    }
}

fn series(of: &str) -> String {
    format!("aerostat_tenant_statements_{of}{{tenant=\"d\"}}")
}

async fn plain(node: &Aerostat, database: &str) -> Client {
    let mut config = node.config(database);
    let (client, connection) = config.user("plain").connect(NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

/// The error of a statement that must fail.
fn failure<T: std::fmt::Debug>(result: Result<T, Error>) -> DbError {
    let error = result.expect_err("it must fail");
    error
        .as_db_error()
        .cloned()
        .unwrap_or_else(|| panic!("{error:?}"))
}

fn cause(result: Result<(), Error>) -> (String, String) {
    let error = failure(result);
    (error.code().code().to_owned(), error.message().to_owned())
}

async fn ended<T>(task: JoinHandle<T>) -> T {
    let ended = tokio::time::timeout(PATIENCE, task).await;
    ended.expect("it does not end").unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn those_beyond_the_limit_come_in_by_their_order_and_too_many_are_refused() {
    let stage = Stage::new("statements_max = 1, queue_max = 3, queue_timeout = 0").await;
    let (holder, _) = stage.holder().await;
    let by_key = stage.waiter("INSERT INTO came (who) VALUES (1)").await;
    let planned = stage.waiter("INSERT INTO came (who) SELECT 2").await;
    let again = stage.waiter("INSERT INTO came (who) VALUES (3)").await;

    let refused = stage.plain().await;
    for sql in ["SELECT v FROM t WHERE id = 1", "SELECT count(*) FROM t"] {
        let error = failure(refused.batch_execute(sql).await);
        assert_eq!(error.code().code(), "53300");
        assert_eq!(error.message(), "too many statements for database \"d\"");
        assert_eq!(
            error.detail().unwrap(),
            "1 statements run, as many as may (statements_max), and 3 wait, as many as may (queue_max)."
        );
        assert!(error.hint().unwrap().contains("raise statements_max"));
    }
    // Its session goes on, and what works on nothing has no need of a place.
    refused
        .batch_execute("SET application_name = 'x'; SHOW application_name; BEGIN; COMMIT")
        .await
        .unwrap();
    // In a block that has failed it is told that, and not to wait.
    assert_eq!(sqlstate(&refused, "BEGIN; SELECT 1").await, "53300");
    assert_eq!(
        sqlstate(&refused, "SELECT v FROM t WHERE id = 1").await,
        "25P02"
    );
    refused.batch_execute("ROLLBACK").await.unwrap();

    // The operator sees who waits for what.
    let shown = value(
        &stage.operator,
        "SELECT format('%s %s %s %s %s %s %s', statements_max, queue_max, queue_timeout_ms, \
         statements_running, statements_waiting, statements_refused, statements_timed_out) \
         FROM aerostat.tenants WHERE name = 'd'",
    );
    assert_eq!(shown.await, "1 3 0 1 3 3 0");
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' \
                   AND wait_event_type = 'Extension' AND wait_event = 'StatementQueue'";
    assert_eq!(value(&stage.operator, waiting).await, "3");
    assert_eq!(stage.gauge("refused_total"), 3.0);

    stage.release().await;
    ended(holder).await.unwrap();
    for task in [by_key, planned, again] {
        ended(task).await.unwrap();
    }
    let order = "SELECT string_agg(who::text, ' ' ORDER BY n) FROM came";
    assert_eq!(value(&stage.operator, order).await, "1 2 3");
    assert_eq!(value(&stage.operator, waiting).await, "0");
    stage.ends_idle();
    refused
        .batch_execute("SELECT v FROM t WHERE id = 1")
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_waits_can_be_stopped_and_leaves_the_queue() {
    let stage = Stage::new("statements_max = 1").await;
    let (holder, _) = stage.holder().await;
    for sql in ["UPDATE t SET v = 1 WHERE id = 1", "UPDATE t SET v = v + 1"] {
        // By its client.
        let session = stage.plain().await;
        let token = session.cancel_token();
        let task = stage.waits(async move { session.batch_execute(sql).await });
        token.cancel_query(NoTls).await.unwrap();
        let told = "canceling statement due to user request".to_owned();
        assert_eq!(cause(ended(task).await), ("57014".to_owned(), told));
        stage.until("waiting", 0.0);

        // By another, who is a superuser and so not in the queue.
        let session = stage.plain().await;
        let pid = value(&session, "SHOW application_name").await;
        assert_eq!(pid, "");
        let task = stage.waits(async move { session.batch_execute(sql).await });
        let stop = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity \
                    WHERE wait_event = 'StatementQueue'";
        assert_eq!(value(&stage.operator, stop).await, "1");
        assert_eq!(cause(ended(task).await).0, "57014");

        // By its own time.
        let session = stage.plain().await;
        session
            .batch_execute("SET statement_timeout = 300")
            .await
            .unwrap();
        let began = Instant::now();
        let error = cause(session.batch_execute(sql).await);
        let told = "canceling statement due to statement timeout".to_owned();
        assert_eq!(error, ("57014".to_owned(), told));
        assert!(began.elapsed() >= Duration::from_millis(300));

        // A client that goes.
        let mut config = stage.node.config("d");
        let (client, connection) = config.user("plain").connect(NoTls).await.unwrap();
        let connection = tokio::spawn(connection);
        let query = stage.waits(async move { client.batch_execute(sql).await });
        connection.abort();
        stage.until("waiting", 0.0);
        query.abort();
    }

    // Too long in the queue.
    let alter = "ALTER DATABASE d SET (queue_timeout = '200ms')";
    stage.operator.batch_execute(alter).await.unwrap();
    for sql in ["UPDATE t SET v = 1 WHERE id = 1", "UPDATE t SET v = v + 1"] {
        let session = stage.plain().await;
        let error = failure(session.batch_execute(sql).await);
        assert_eq!(error.code().code(), "57014");
        assert_eq!(error.message(), "canceling statement due to queue timeout");
        assert_eq!(
            error.detail().unwrap(),
            "It has waited 200 ms (queue_timeout) for a place: database \"d\" runs as many statements as it may (statements_max)."
        );
        assert!(error.hint().unwrap().contains("raise queue_timeout"));
    }
    assert_eq!(stage.gauge("timed_out_total"), 2.0);

    // None of them has a place: it goes to whoever comes when it is free.
    stage.release().await;
    ended(holder).await.unwrap();
    let session = stage.plain().await;
    session
        .batch_execute("UPDATE t SET v = 7 WHERE id = 1")
        .await
        .unwrap();
    assert_eq!(value(&session, "SELECT sum(v) FROM t").await, "7");
    stage.ends_idle();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_in_the_queue_is_part_of_the_statements_time() {
    let stage = Stage::new("statements_max = 1").await;
    let (_, token) = stage.holder().await;
    let session = stage.plain().await;
    session
        .batch_execute("SET statement_timeout = '3s'")
        .await
        .unwrap();
    let began = Instant::now();
    let sleeps = stage.waits(async move { session.batch_execute("SELECT pg_sleep(10)").await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    token.cancel_query(NoTls).await.unwrap();
    assert_eq!(cause(ended(sleeps).await).0, "57014");
    // It would be four if they began anew.
    assert!(
        began.elapsed() < Duration::from_millis(3_800),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_holds_a_lock_goes_ahead_so_that_nobody_waits_in_a_circle() {
    let stage = Stage::new("statements_max = 1, queue_timeout = '20s'").await;
    for (lock, other) in [
        (
            "UPDATE t SET v = 1 WHERE id = 1",
            "UPDATE t SET v = 2 WHERE id = 1",
        ),
        (
            "UPDATE t SET v = v + 1 WHERE id <= 1",
            "UPDATE t SET v = v + 2 WHERE id <= 1",
        ),
        (
            "SELECT v FROM t WHERE id = 1 FOR UPDATE",
            "UPDATE t SET v = 4 WHERE id = 1",
        ),
        ("LOCK TABLE t", "SELECT count(*) FROM t"),
        // A reader is in the way of who locks the table.
        ("SELECT count(*) FROM t", "BEGIN; LOCK TABLE t; COMMIT"),
        (
            "DECLARE c CURSOR FOR SELECT * FROM t",
            "BEGIN; LOCK TABLE t; COMMIT",
        ),
    ] {
        let block = stage.plain().await;
        block.batch_execute("BEGIN").await.unwrap();
        block.batch_execute(lock).await.unwrap();
        // It has the place, and waits for the block.
        let other_session = stage.plain().await;
        let task = tokio::spawn(async move { other_session.batch_execute(other).await });
        stage.until("running", 1.0);
        // And somebody waits for its place.
        let waiter = stage.waiter("SELECT 1").await;
        for sql in [
            "SELECT v FROM t WHERE id = 2",
            "UPDATE t SET v = 3 WHERE id = 3",
            "SELECT sum(v) FROM t",
            "SAVEPOINT s",
            "UPDATE t SET v = v + 1 WHERE id > 90",
            "ROLLBACK TO s",
            "SELECT count(*) FROM t",
            "COMMIT",
        ] {
            let done = tokio::time::timeout(PATIENCE, block.batch_execute(sql)).await;
            done.unwrap_or_else(|_| panic!("{lock}: {sql} waits"))
                .unwrap();
        }
        ended(task)
            .await
            .unwrap_or_else(|error| panic!("{lock}, {other}: {error:?}"));
        ended(waiter).await.unwrap();
        stage.ends_idle();
    }

    // A session's own advisory lock.
    let locks = stage.plain().await;
    locks
        .batch_execute("SELECT pg_advisory_lock(2)")
        .await
        .unwrap();
    let wants = stage.plain().await;
    let wants =
        tokio::spawn(async move { wants.batch_execute("SELECT pg_advisory_lock(2)").await });
    stage.until("running", 1.0);
    let unlocked = tokio::time::timeout(PATIENCE, value(&locks, "SELECT pg_advisory_unlock(2)"));
    assert_eq!(unlocked.await.unwrap(), "t");
    ended(wants).await.unwrap();

    // A block that has locked nothing waits like others, and one whose lock went with a savepoint does again.
    let (holder, _) = stage.holder().await;
    let block = stage.plain().await;
    let waits = stage.waits(async move {
        block
            .batch_execute("BEGIN; SET LOCAL search_path = public")
            .await?;
        block
            .batch_execute("UPDATE t SET v = 5 WHERE id = 5")
            .await?;
        block.batch_execute("COMMIT").await
    });
    stage.release().await;
    ended(holder).await.unwrap();
    ended(waits).await.unwrap();
    assert_eq!(
        value(&stage.operator, "SELECT v FROM t WHERE id = 5").await,
        "5"
    );
    stage.ends_idle();
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_of_one_message_or_pipeline_have_one_place() {
    let stage = Stage::new("statements_max = 1, queue_max = 0").await;
    let session = stage.plain().await;
    session
        .batch_execute(
            "UPDATE t SET v = 1 WHERE id = 1; SELECT count(*) FROM t; UPDATE t SET v = v + 1; SELECT 1",
        )
        .await
        .unwrap();
    // Many at once on one connection are a pipeline.
    let read = session
        .prepare("SELECT v FROM t WHERE id = $1")
        .await
        .unwrap();
    let sum = session
        .prepare("SELECT sum(v) FROM t WHERE v > $1")
        .await
        .unwrap();
    let reads = (1..=50).map(|id| {
        let (session, read, sum) = (&session, &read, &sum);
        async move {
            session.query_one(read, &[&id]).await?;
            session.query_one(sum, &[&id]).await
        }
    });
    for result in join_all(reads).await {
        result.unwrap();
    }
    stage.ends_idle();
    assert_eq!(stage.gauge("refused_total"), 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn preparing_takes_no_place_and_fetching_has_one_only_while_it_fetches() {
    let stage = Stage::new("statements_max = 1").await;
    let mut session = stage.plain().await;
    let (holder, token) = stage.holder().await;
    let statement = session
        .prepare("SELECT id FROM t ORDER BY id")
        .await
        .unwrap();
    let run = {
        let (session, statement) = (stage.plain().await, "SELECT id FROM t WHERE v = $1");
        stage.waits(async move { session.query(statement, &[&0]).await })
    };
    token.cancel_query(NoTls).await.unwrap();
    assert_eq!(cause(ended(holder).await).0, "57014");
    assert_eq!(ended(run).await.unwrap().len(), 100);

    let block = session.transaction().await.unwrap();
    let portal = block.bind(&statement, &[]).await.unwrap();
    assert_eq!(block.query_portal(&portal, 10).await.unwrap().len(), 10);
    // The rest of the rows waits, and the place is free.
    stage.ends_idle();
    let other = stage.plain().await;
    other
        .batch_execute("UPDATE t SET v = 1 WHERE id = 1")
        .await
        .unwrap();
    let (holder, token) = stage.holder().await;
    assert_eq!(block.query_portal(&portal, 0).await.unwrap().len(), 90);
    block
        .batch_execute("DECLARE c CURSOR FOR SELECT id FROM t; FETCH 5 FROM c")
        .await
        .unwrap();
    block.commit().await.unwrap();
    token.cancel_query(NoTls).await.unwrap();
    assert_eq!(cause(ended(holder).await).0, "57014");
    stage.ends_idle();
}

#[tokio::test(flavor = "multi_thread")]
async fn copies_have_a_place_until_their_last_row() {
    let stage = Stage::new("statements_max = 1").await;
    let session = stage.plain().await;
    let mut copy = Box::pin(session.copy_in("COPY t FROM STDIN").await.unwrap());
    copy.send(Bytes::from("1001\t1\n")).await.unwrap();
    stage.until("running", 1.0);
    let waiter = stage.waiter("UPDATE t SET v = 2 WHERE id = 1001").await;
    let reader = stage.plain().await;
    let own = stage.waits(async move {
        let rows = reader
            .copy_out("COPY (SELECT count(*) FROM t) TO STDOUT")
            .await?;
        rows.try_fold(0, async |sum, bytes| Ok(sum + bytes.len()))
            .await
    });
    copy.send(Bytes::from("1002\t1\n")).await.unwrap();
    assert_eq!(copy.as_mut().finish().await.unwrap(), 2);
    ended(waiter).await.unwrap();
    ended(own).await.unwrap();
    assert_eq!(
        value(&session, "SELECT v FROM t WHERE id = 1001").await,
        "2"
    );
    // One that its client gives up.
    let copy = Box::pin(
        session
            .copy_in::<_, Bytes>("COPY t FROM STDIN")
            .await
            .unwrap(),
    );
    let waiter = stage.waiter("SELECT count(*) FROM t").await;
    drop(copy);
    ended(waiter).await.unwrap();
    stage.ends_idle();
}

#[tokio::test(flavor = "multi_thread")]
async fn other_limits_hold_at_once_and_the_owner_lowers_them_while_all_places_are_taken() {
    let stage = Stage::new("statements_max = 3, queue_max = 10").await;
    let owner = stage.plain().await;
    owner
        .batch_execute("ALTER DATABASE d SET (statements_max = 1)")
        .await
        .unwrap();
    let (holder, _) = stage.holder().await;
    let first = stage.waiter(HOLD).await;
    let second = stage.waiter(HOLD).await;
    let third = stage.waiter(HOLD).await;
    // One more may run, which is the first.
    owner
        .batch_execute("ALTER DATABASE d SET (statements_max = 2)")
        .await
        .unwrap();
    stage.until("running", 2.0);
    stage.until("waiting", 2.0);
    assert_eq!(
        sqlstate(&owner, "ALTER DATABASE d SET (statements_max = 4)").await,
        "42501"
    );
    // Nobody else may wait; those that do go on with it.
    owner
        .batch_execute("ALTER DATABASE d SET (queue_max = 0)")
        .await
        .unwrap();
    assert_eq!(sqlstate(&owner, "SELECT 1").await, "53300");
    stage.until("waiting", 2.0);
    owner
        .batch_execute("ALTER DATABASE d RESET (statements_max, queue_max)")
        .await
        .unwrap();
    stage.until("running", 3.0);
    stage.until("waiting", 1.0);
    let operator = &stage.operator;
    operator
        .batch_execute("ALTER DATABASE d SET (statements_max = -1)")
        .await
        .unwrap();
    stage.until("running", 4.0);
    stage.until("waiting", 0.0);
    owner
        .batch_execute("SELECT v FROM t WHERE id = 1")
        .await
        .unwrap();
    stage.release().await;
    for task in [holder, first, second, third] {
        ended(task).await.unwrap();
    }
    for (sql, code) in [
        ("ALTER DATABASE d SET (statements_max = 0)", "22023"),
        ("ALTER DATABASE d SET (statements_max = -2)", "22023"),
        ("ALTER DATABASE d SET (queue_max = -2)", "22023"),
        ("ALTER DATABASE d SET (queue_timeout = '-1s')", "22023"),
        ("ALTER DATABASE d SET (cpu_weight = 0)", "22023"),
        ("ALTER DATABASE nope SET (statements_max = 1)", "3D000"),
    ] {
        assert_eq!(sqlstate(operator, sql).await, code, "{sql}");
    }
    stage.ends_idle();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_goes_whose_sessions_wait_once_they_were_ended() {
    let stage = Stage::new("statements_max = 1").await;
    let (holder, _) = stage.holder().await;
    let first = stage.waiter("SELECT count(*) FROM t").await;
    let second = stage.waiter("UPDATE t SET v = 1 WHERE id = 1").await;
    let admin = stage.node.connect("aerostat").await;
    assert_eq!(sqlstate(&admin, "DROP DATABASE d").await, "55006");
    // Its sessions are ended with it, wherever they stand.
    admin
        .batch_execute("ALTER DATABASE d CLOSE WITH (FORCE)")
        .await
        .unwrap();
    for task in [holder, first, second] {
        let error = ended(task).await.expect_err("its session has ended");
        let code = error.code().map(|code| code.code().to_owned());
        assert!(code.is_none_or(|code| code == "57P01"), "{error:?}");
    }
    // Opened again it has the same limits, and nobody in it.
    let session = stage.plain().await;
    assert_eq!(value(&session, "SELECT count(*) FROM t").await, "100");
    stage.ends_idle();
    drop(session);
    admin.batch_execute("DROP DATABASE d").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_says_what_holds_where_nobody_has_said_anything() {
    let flags = [
        "--statements-max",
        "1",
        "--queue-max",
        "0",
        "--queue-timeout",
        "7s",
    ];
    let stage = Stage::with(&flags, "").await;
    let shown = "SELECT format('%s %s %s %s', statements_max, queue_max, queue_timeout_ms, cpu_weight) \
                 FROM aerostat.tenants WHERE name = 'd'";
    assert_eq!(value(&stage.operator, shown).await, "1 0 7000 100");
    let (holder, _) = stage.holder().await;
    let session = stage.plain().await;
    assert_eq!(sqlstate(&session, "SELECT 1").await, "53300");
    assert_eq!(
        sqlstate(&session, "ALTER DATABASE d SET (queue_max = 1)").await,
        "42501"
    );
    let more = "ALTER DATABASE d SET (queue_max = 1, statements_max = 2, cpu_weight = 300)";
    stage.operator.batch_execute(more).await.unwrap();
    assert_eq!(value(&stage.operator, shown).await, "2 1 7000 300");
    session.batch_execute("SELECT 1").await.unwrap();
    stage.release().await;
    ended(holder).await.unwrap();
    // It holds after a restart.
    let Stage { node, .. } = stage;
    let node = Aerostat::start_on(node.stop(), &[]);
    let operator = node.connect("d").await;
    assert_eq!(value(&operator, shown).await, "2 1 120000 300");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_takes_as_many_connections_as_it_may() {
    let stage = Stage::new("").await;
    let operator = &stage.operator;
    operator
        .batch_execute("ALTER DATABASE d CONNECTION LIMIT 2")
        .await
        .unwrap();
    let first = stage.plain().await;
    let mut config = stage.node.config("d");
    config.user("plain");
    let error = failure(config.connect(NoTls).await.map(drop));
    assert_eq!(error.code().code(), "53300");
    assert_eq!(error.message(), "too many connections for database \"d\"");
    // A superuser comes in, and is counted.
    let second = stage.node.connect("d").await;
    assert_eq!(value(&second, "SELECT 1").await, "1");
    first
        .batch_execute("ALTER DATABASE d CONNECTION LIMIT 0")
        .await
        .unwrap();
    drop(first);
    assert_eq!(refusal(&config).await, "53300");
    let wrong = "ALTER DATABASE d CONNECTION LIMIT -2";
    assert_eq!(sqlstate(operator, wrong).await, "22023");
    operator
        .batch_execute("ALTER DATABASE d CONNECTION LIMIT -1")
        .await
        .unwrap();
    drop(config.connect(NoTls).await.unwrap());
}
