//! Statements in line for rows that others hold, more of them than there are threads.
//!
//! Each case runs with threads that none may sleep on, with two, and with plenty of them.

use std::time::{Duration, Instant};

use crate::common::{Fixture, run};
use aerostat_engine::{Session, StatementOptions};
use aerostat_types::{ErrorKind, SqlError};
use tokio::task::JoinHandle;

/// As long as anything may take on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(60);

/// Threads for what blocks, and those of them that may sleep for rows.
const THREADS: [(usize, usize); 3] = [(3, 0), (3, 2), (64, 64)];

type Answer = (Session, Result<Vec<String>, SqlError>);

struct Stage {
    fixture: Fixture,
    observer: Session,
}

impl Stage {
    fn new((blocking_max, sleeping_max): (usize, usize)) -> Self {
        let statements = StatementOptions {
            sleeping_max,
            ..StatementOptions::default()
        };
        let fixture = Fixture::of(1 << 30, blocking_max, statements);
        let mut observer = fixture.session();
        let sql = "CREATE TABLE t (id int PRIMARY KEY, v int); \
             INSERT INTO t SELECT i, 0 FROM generate_series(1, 100) AS i(i)";
        fixture.ok(&mut observer, sql);
        Self { fixture, observer }
    }

    fn ok(&mut self, sql: &str) -> Vec<String> {
        self.fixture.ok(&mut self.observer, sql)
    }

    fn session(&self, sql: &str) -> Session {
        let mut session = self.fixture.session();
        self.fixture.ok(&mut session, sql);
        session
    }

    /// Begins a message of another session.
    fn begin(&self, mut session: Session, sql: &str) -> JoinHandle<Answer> {
        let sql = sql.to_owned();
        self.fixture.runtime.spawn(async move {
            let answer = run(&mut session, &sql).await;
            (session, answer)
        })
    }

    /// Until so many locks are waited for.
    fn until_waiting(&mut self, count: usize) {
        let began = Instant::now();
        loop {
            let waiting = self.ok("SELECT count(*) FROM pg_locks WHERE NOT granted");
            if waiting == [count.to_string()] {
                return;
            }
            assert!(
                began.elapsed() < PATIENCE,
                "{waiting:?} wait instead of {count}"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn ended(&self, task: JoinHandle<Answer>) -> Answer {
        let ended = self
            .fixture
            .runtime
            .block_on(async { tokio::time::timeout(PATIENCE, task).await });
        ended.expect("it hangs").unwrap()
    }

    fn within<T>(&self, work: impl Future<Output = T>) -> T {
        let done = self
            .fixture
            .runtime
            .block_on(async { tokio::time::timeout(PATIENCE, work).await });
        done.expect("it hangs")
    }
}

/// `count` sessions run `begin`, then wait with `sql` for what a holder has done; it does more, and ends with `end`.
/// Gives their answers.
fn in_line(
    stage: &mut Stage,
    [begin, sql]: [&str; 2],
    [hold, more, end]: [&str; 3],
    count: usize,
) -> Vec<Result<Vec<String>, SqlError>> {
    let mut holder = stage.session(hold);
    let tasks: Vec<_> = (0..count)
        .map(|_| {
            let session = stage.session(begin);
            stage.begin(session, sql)
        })
        .collect();
    stage.until_waiting(count);
    // The holder wants a thread, too.
    stage.within(run(&mut holder, more)).unwrap();
    stage.within(run(&mut holder, end)).unwrap();
    tasks
        .into_iter()
        .map(|task| {
            // The answer is there before the block ends: each ends its own within the message.
            stage.ended(task).1
        })
        .collect()
}

const MORE: &str = "UPDATE t SET v = v + 1 WHERE id BETWEEN 50 AND 51";

#[test]
fn updates_come_in_turn_and_each_once() {
    for threads in THREADS {
        for begin in ["", "BEGIN; SELECT v FROM t WHERE id = 5"] {
            let mut stage = Stage::new(threads);
            let end = if begin.is_empty() { "" } else { "; COMMIT" };
            // A row before the one that is held is changed, and undone with each wait.
            let sql = format!("UPDATE t SET v = v + 1 WHERE id BETWEEN 9 AND 10{end}");
            let hold = "BEGIN; UPDATE t SET v = v + 1 WHERE id = 10";
            for (last, held) in [("COMMIT", 1), ("ROLLBACK", 0)] {
                stage.ok("UPDATE t SET v = 0");
                let answers = in_line(&mut stage, [begin, &sql], [hold, MORE, last], 12);
                for answer in answers {
                    let tag = if begin.is_empty() {
                        "UPDATE 2"
                    } else {
                        "COMMIT"
                    };
                    assert_eq!(answer.unwrap(), [tag], "{threads:?} {begin}");
                }
                let (first, second) = (12, 12 + held);
                assert_eq!(
                    stage.ok("SELECT v FROM t WHERE id IN (9, 10) ORDER BY id"),
                    [first.to_string(), second.to_string()],
                    "{threads:?} {begin} {last}"
                );
            }
        }
    }
}

#[test]
fn who_keeps_a_snapshot_fails_once_the_row_has_changed() {
    for threads in THREADS {
        for sql in [
            "UPDATE t SET v = v + 1 WHERE id <= 1",
            "UPDATE t SET v = v + 1 WHERE id = 1",
        ] {
            let mut stage = Stage::new(threads);
            let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t";
            let hold = "BEGIN; UPDATE t SET v = v + 1 WHERE id = 1";
            let answers = in_line(&mut stage, [begin, sql], [hold, MORE, "COMMIT"], 8);
            for answer in answers {
                let error = answer.unwrap_err();
                assert_eq!(
                    error.kind,
                    ErrorKind::SerializationFailure,
                    "{threads:?} {sql}"
                );
            }
            // Nothing has changed: the first has it, and the others fail by that one.
            let answers = in_line(
                &mut stage,
                [begin, &format!("{sql}; COMMIT")],
                [hold, MORE, "ROLLBACK"],
                8,
            );
            let done = answers.iter().filter(|answer| answer.is_ok()).count();
            assert_eq!(done, 1, "{threads:?} {sql}: {answers:?}");
            assert_eq!(stage.ok("SELECT v FROM t WHERE id = 1"), ["2"]);
        }
    }
}

#[test]
fn all_kinds_of_statements_wait() {
    let schema = "CREATE TABLE child (id int PRIMARY KEY, t int REFERENCES t); \
         CREATE TABLE put_off (id int PRIMARY KEY, k int UNIQUE DEFERRABLE INITIALLY DEFERRED); \
         CREATE SEQUENCE numbers; \
         INSERT INTO put_off VALUES (1, 1)";
    let changes = "BEGIN; UPDATE t SET v = v + 1 WHERE id = 1";
    let inserts = "BEGIN; INSERT INTO t VALUES (1000, 0)";
    let cases = [
        (changes, "DELETE FROM t WHERE id < 2 RETURNING v", "1"),
        (changes, "SELECT v FROM t WHERE id < 2 FOR UPDATE", "1"),
        (
            changes,
            "SELECT v FROM t WHERE id < 2 ORDER BY id LIMIT 1 FOR NO KEY UPDATE",
            "1",
        ),
        (
            changes,
            "WITH w AS (UPDATE t SET v = v + 10 WHERE id < 2 RETURNING v) SELECT sum(v) FROM w",
            "11",
        ),
        (
            changes,
            "MERGE INTO t USING (SELECT 1 AS id) AS s ON t.id = s.id \
             WHEN MATCHED THEN UPDATE SET v = t.v + 10",
            "MERGE 1",
        ),
        (
            inserts,
            "INSERT INTO t SELECT 1000, 7 FROM generate_series(1, 1) \
             ON CONFLICT (id) DO UPDATE SET v = t.v + 10 RETURNING v",
            "10",
        ),
        (
            inserts,
            "INSERT INTO t VALUES (1000, 7) ON CONFLICT (id) DO UPDATE SET v = t.v + 10 RETURNING v",
            "10",
        ),
        (
            inserts,
            "INSERT INTO t SELECT 1000, 7 FROM generate_series(1, 1)",
            "23505",
        ),
        (
            "BEGIN; DELETE FROM t WHERE id = 1",
            "INSERT INTO child SELECT 1, i FROM generate_series(1, 1) AS i(i)",
            "23503",
        ),
        (
            "BEGIN; SET CONSTRAINTS ALL IMMEDIATE; INSERT INTO put_off VALUES (2, 2)",
            "INSERT INTO put_off SELECT 3, 2 FROM generate_series(1, 1); COMMIT",
            "23505",
        ),
    ];
    for threads in THREADS {
        for (hold, sql, answer) in cases {
            let mut stage = Stage::new(threads);
            stage.ok(schema);
            // Threads that may sleep do so for another row.
            let other = stage.session("BEGIN; UPDATE t SET v = v + 1 WHERE id = 90");
            let sleeping: Vec<_> = (0..4)
                .map(|_| {
                    stage.begin(
                        stage.session(""),
                        "UPDATE t SET v = v + 1 WHERE id BETWEEN 90 AND 91",
                    )
                })
                .collect();
            stage.until_waiting(4);
            let mut holder = stage.session(hold);
            let waiting = stage.begin(stage.session("BEGIN"), sql);
            stage.until_waiting(5);
            stage.within(run(&mut holder, MORE)).unwrap();
            stage.within(run(&mut holder, "COMMIT")).unwrap();
            let (_waiter, answered) = stage.ended(waiting);
            match answered {
                Ok(rows) => assert_eq!(rows, [answer], "{threads:?} {sql}"),
                Err(error) => assert_eq!(error.kind.sqlstate(), answer, "{threads:?} {sql}"),
            }
            drop(other);
            for task in sleeping {
                stage.ended(task).1.unwrap();
            }
            assert_eq!(
                stage.ok("SELECT v FROM t WHERE id IN (90, 91) ORDER BY id"),
                ["4", "4"]
            );
        }
    }
}

#[test]
fn waits_end_as_they_are_told() {
    for threads in THREADS {
        let mut stage = Stage::new(threads);
        let mut holder = stage.session("BEGIN; UPDATE t SET v = v + 1 WHERE id = 1");
        let update = "UPDATE t SET v = v + 1 WHERE id <= 1";
        for (setting, state) in [
            ("SET lock_timeout = '50ms'", "55P03"),
            ("SET statement_timeout = '50ms'", "57014"),
        ] {
            let session = stage.session(setting);
            let error = stage.ended(stage.begin(session, update)).1.unwrap_err();
            assert_eq!(error.kind.sqlstate(), state, "{threads:?}");
        }
        let session = stage.session("");
        let stop = session.cancel_handle();
        let waiting = stage.begin(session, update);
        stage.until_waiting(1);
        stop.cancel();
        let error = stage.ended(waiting).1.unwrap_err();
        assert_eq!(error.kind.sqlstate(), "57014", "{threads:?}");
        stage.until_waiting(0);

        // A circle: one of the two is told.
        let session = stage.session("BEGIN; UPDATE t SET v = v + 1 WHERE id = 2");
        let waiting = stage.begin(session, update);
        stage.until_waiting(1);
        let other = "UPDATE t SET v = v + 1 WHERE id BETWEEN 2 AND 3";
        let error = stage.within(run(&mut holder, other)).unwrap_err();
        assert_eq!(error.kind.sqlstate(), "40P01", "{threads:?}");
        let (mut session, answer) = stage.ended(waiting);
        assert_eq!(answer.unwrap(), ["UPDATE 1"]);
        stage.within(run(&mut session, "COMMIT")).unwrap();
        assert_eq!(
            stage.ok("SELECT v FROM t WHERE id < 4 ORDER BY id"),
            ["1", "1", "0"]
        );
    }
}

#[test]
fn tables_change_and_savepoints_go_while_statements_wait() {
    for threads in THREADS {
        let mut stage = Stage::new(threads);
        let mut holder = stage.session("BEGIN; UPDATE t SET v = v + 1 WHERE id = 10");
        let update = "UPDATE t SET v = v + 1 WHERE id BETWEEN 9 AND 10";
        let waiting: Vec<_> = (0..3)
            .map(|_| stage.begin(stage.session(""), update))
            .collect();
        let begun = "BEGIN; UPDATE t SET v = v + 1 WHERE id = 20; SAVEPOINT s";
        let undone = stage.begin(
            stage.session(begun),
            &format!("{update}; ROLLBACK TO s; COMMIT"),
        );
        stage.until_waiting(4);
        // It waits behind all of them, and some of them behind it.
        let alter = "ALTER TABLE t ADD COLUMN w int DEFAULT 7";
        let altering = stage.begin(stage.session(""), alter);
        stage.until_waiting(5);
        stage.within(run(&mut holder, MORE)).unwrap();
        stage.within(run(&mut holder, "COMMIT")).unwrap();
        for task in waiting {
            assert_eq!(stage.ended(task).1.unwrap(), ["UPDATE 2"], "{threads:?}");
        }
        stage.ended(undone).1.unwrap();
        stage.ended(altering).1.unwrap();
        assert_eq!(
            stage.ok("SELECT v, w FROM t WHERE id IN (9, 10, 20) ORDER BY id"),
            ["3|7", "4|7", "1|7"],
            "{threads:?}"
        );
    }
}

#[test]
fn large_statements_wait_and_clients_go_meanwhile() {
    for threads in THREADS {
        let mut stage = Stage::new(threads);
        stage.ok(
            "INSERT INTO t SELECT i, 0 FROM generate_series(101, 30000) AS i(i); \
                  CREATE TABLE child (id int PRIMARY KEY, t int REFERENCES t ON DELETE CASCADE); \
                  INSERT INTO child SELECT i, i FROM generate_series(1, 50) AS i(i)",
        );
        let hold =
            "BEGIN; UPDATE t SET v = v + 1 WHERE id = 29999; UPDATE child SET t = t WHERE id = 40";
        let mut holder = stage.session(hold);
        let large = stage.begin(stage.session(""), "UPDATE t SET v = v + 1 WHERE id > 50");
        let cascades = "DELETE FROM t WHERE id BETWEEN 30 AND 45";
        let cascading = stage.begin(stage.session(""), cascades);
        let gone: Vec<_> = (0..4)
            .map(|_| {
                stage.begin(
                    stage.session("BEGIN"),
                    "UPDATE t SET v = v + 1 WHERE id > 29998",
                )
            })
            .collect();
        stage.until_waiting(6);
        gone.iter().for_each(JoinHandle::abort);
        stage.until_waiting(2);
        let more = "UPDATE t SET v = v + 1 WHERE id BETWEEN 1 AND 2";
        stage.within(run(&mut holder, more)).unwrap();
        stage.within(run(&mut holder, "COMMIT")).unwrap();
        assert_eq!(
            stage.ended(large).1.unwrap(),
            ["UPDATE 29950"],
            "{threads:?}"
        );
        assert_eq!(
            stage.ended(cascading).1.unwrap(),
            ["DELETE 16"],
            "{threads:?}"
        );
        assert_eq!(
            stage.ok("SELECT v, count(*) FROM t GROUP BY v ORDER BY v"),
            ["0|32", "1|29951", "2|1"],
            "{threads:?}"
        );
        assert_eq!(
            stage.ok("SELECT count(*) FROM child"),
            ["34"],
            "{threads:?}"
        );
    }
}
