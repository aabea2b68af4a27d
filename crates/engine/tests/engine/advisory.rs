//! Advisory locks and sleep under several sessions: waits take no thread from others, and end
//! with their statement, transaction or session.

use std::{thread, time::Duration};

use crate::common::{Fixture, run};
use aerostat_api::{Group, ParameterType};
use aerostat_engine::Session;
use aerostat_types::{ErrorKind, SqlError, SqlType};
use tokio::task::JoinHandle;

type Ended = (Session, Result<Vec<String>, SqlError>);

/// Runs a message in a task of its own, which gives the session back.
fn spawn(fixture: &Fixture, mut session: Session, sql: &'static str) -> JoinHandle<Ended> {
    fixture.runtime.spawn(async move {
        let result = run(&mut session, sql).await;
        (session, result)
    })
}

/// Until so many sessions wait for advisory locks.
fn await_waiting(fixture: &Fixture, session: &mut Session, count: usize) {
    let waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted";
    while fixture.ok(session, waiting) != [count.to_string()] {
        thread::sleep(Duration::from_millis(1));
    }
}

fn held(fixture: &Fixture, session: &mut Session) -> Vec<String> {
    let held = "select classid, objid, objsubid, mode from pg_locks
        where locktype = 'advisory' and granted order by 1, 2, 3, 4";
    fixture.ok(session, held)
}

#[test]
fn more_may_wait_than_there_are_threads() {
    let fixture = Fixture::new();
    let mut holder = fixture.session();
    fixture.ok(&mut holder, "select pg_advisory_lock(1)");
    let tasks: Vec<_> = (0..10)
        .map(|_| {
            let sql = "select pg_advisory_lock(1); select pg_advisory_unlock(1)";
            spawn(&fixture, fixture.session(), sql)
        })
        .collect();
    await_waiting(&fixture, &mut holder, 10);
    // Others work meanwhile, with several threads, too.
    let sum = "select sum(a.g * b.g) from generate_series(1, 100) as a(g), generate_series(1, 100) as b(g)";
    assert_eq!(fixture.ok(&mut holder, sum), ["25502500"]);
    assert_eq!(
        fixture.ok(&mut holder, "select pg_advisory_unlock(1)"),
        ["true"]
    );
    for task in tasks {
        let (_, result) = fixture.runtime.block_on(task).unwrap();
        assert_eq!(result.unwrap(), ["true"]);
    }
    assert_eq!(held(&fixture, &mut holder), [""; 0]);
}

#[test]
fn a_wait_that_is_stopped_leaves_nothing() {
    let fixture = Fixture::new();
    let mut holder = fixture.session();
    fixture.ok(
        &mut holder,
        "create table t (k int primary key); insert into t values (1); select pg_advisory_lock(1)",
    );
    for sql in [
        "select pg_advisory_lock(1)",
        "select pg_advisory_lock_shared(k) from t",
        "select k from t where k = 1 and pg_advisory_xact_lock(k) is not null",
        "insert into t select 2 where pg_advisory_lock(1) is not null",
        "delete from t where pg_advisory_lock(k) is not null",
        "select 1 from t where pg_advisory_lock(k) is not null for update",
        "begin; declare c cursor for select pg_advisory_lock(1); fetch c",
    ] {
        let session = fixture.session();
        let cancel = session.cancel_handle();
        let task = spawn(&fixture, session, sql);
        await_waiting(&fixture, &mut holder, 1);
        cancel.cancel();
        let (mut session, result) = fixture.runtime.block_on(task).unwrap();
        let error = result.unwrap_err();
        assert_eq!(error.kind, ErrorKind::QueryCanceled, "{sql}");
        assert_eq!(
            error.message, "canceling statement due to user request",
            "{sql}"
        );
        if sql.starts_with("begin") {
            fixture.ok(&mut session, "rollback");
        }
        await_waiting(&fixture, &mut holder, 0);
        assert_eq!(
            held(&fixture, &mut holder),
            ["0|1|1|ExclusiveLock"],
            "{sql}"
        );
    }
    assert_eq!(fixture.ok(&mut holder, "select k from t"), ["1"]);
}

#[test]
fn timeouts_end_waits_and_sleep() {
    let fixture = Fixture::new();
    let (mut holder, mut session) = (fixture.session(), fixture.session());
    fixture.ok(&mut holder, "select pg_advisory_lock(1)");
    fixture.ok(&mut session, "set lock_timeout = '5ms'");
    let error = fixture.error(&mut session, "select pg_advisory_lock(1)");
    assert_eq!(error.kind, ErrorKind::LockNotAvailable);
    fixture.ok(
        &mut session,
        "set lock_timeout = 0; set statement_timeout = '5ms'",
    );
    for sql in [
        "select pg_advisory_lock(1)",
        "select pg_sleep(1000)",
        "select pg_sleep('Infinity')",
        "select count(pg_sleep(1000)) from generate_series(1, 10)",
        "select pg_sleep_until(now() + interval '1 month')",
    ] {
        let error = fixture.error(&mut session, sql);
        assert_eq!(error.kind, ErrorKind::QueryCanceled, "{sql}");
        let message = "canceling statement due to statement timeout";
        assert_eq!(error.message, message, "{sql}");
    }
    await_waiting(&fixture, &mut holder, 0);
}

#[test]
fn a_session_that_ends_gives_its_locks_back_and_waits_no_more() {
    let fixture = Fixture::new();
    let mut watcher = fixture.session();
    let mut holder = fixture.session();
    fixture.ok(
        &mut holder,
        "begin; select pg_advisory_lock(1), pg_advisory_xact_lock(1, 2)",
    );
    let task = spawn(&fixture, fixture.session(), "select pg_advisory_lock(1)");
    let gone = spawn(
        &fixture,
        fixture.session(),
        "select pg_advisory_lock_shared(1)",
    );
    await_waiting(&fixture, &mut watcher, 2);
    // A client that goes away takes the task of its session with it.
    gone.abort();
    await_waiting(&fixture, &mut watcher, 1);
    drop(holder);
    let (session, result) = fixture.runtime.block_on(task).unwrap();
    result.unwrap();
    drop(session);
    while !held(&fixture, &mut watcher).is_empty() {
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_lock_of_the_transaction_ends_with_a_statement_of_its_own() {
    let fixture = Fixture::new();
    let (mut a, mut b) = (fixture.session(), fixture.session());
    fixture.ok(&mut a, "create table t (k int primary key)");
    for sql in [
        "select pg_advisory_xact_lock(g) from generate_series(1, 1000) as x(g)",
        "insert into t select g from generate_series(1, 1000) as x(g) where pg_try_advisory_xact_lock(g)",
        "select k from t where pg_try_advisory_xact_lock(k) order by k for share",
    ] {
        let rows = fixture.ok(&mut a, sql).len();
        assert!(rows == 1_000 || sql.starts_with("insert"), "{sql}");
        assert_eq!(held(&fixture, &mut b), [""; 0], "{sql}");
    }
    // In a message of several they are of one transaction.
    let sql = "select pg_advisory_xact_lock(1); select 1 from pg_locks where locktype = 'advisory'";
    assert_eq!(fixture.runtime.block_on(grouped(&mut a, sql)), ["1"]);
    assert_eq!(held(&fixture, &mut b), [""; 0]);
}

async fn grouped(session: &mut Session, sql: &str) -> Vec<String> {
    session.begin_group(Group::Message);
    let rows = run(session, sql).await.unwrap();
    session.end_group().await.unwrap();
    rows
}

#[test]
fn a_lock_that_is_not_there_is_warned_of() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(&mut session, "select pg_advisory_xact_lock(1)");
    let sql = "select pg_advisory_unlock(1), pg_advisory_unlock_shared(1)";
    assert_eq!(fixture.ok(&mut session, sql), ["false|false"]);
    let told: Vec<String> = session
        .take_notices()
        .into_iter()
        .map(|notice| notice.message)
        .collect();
    assert_eq!(
        told,
        [
            "you don't own a lock of type ExclusiveLock",
            "you don't own a lock of type ShareLock"
        ]
    );
}

#[test]
fn parameters_have_the_types_of_the_functions() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    for (sql, types) in [
        ("select pg_advisory_lock($1)", &[SqlType::BigInt][..]),
        (
            "select pg_catalog.pg_try_advisory_xact_lock_shared($1, $2)",
            &[SqlType::Integer, SqlType::Integer],
        ),
        ("SELECT PG_SLEEP($1)", &[SqlType::Double]),
        ("select pg_sleep_for($1)", &[SqlType::Interval]),
        ("select pg_sleep_until($1)", &[SqlType::TimestampTz]),
    ] {
        let prepared = fixture.runtime.block_on(session.prepare(sql, &[])).unwrap();
        let types: Vec<_> = types.iter().copied().map(ParameterType::Value).collect();
        assert_eq!(prepared.parameters, types, "{sql}");
    }
}

#[test]
fn circles_through_a_lock_from_before_the_transaction_are_found() {
    let fixture = Fixture::new();
    let (mut a, mut b, mut watcher) = (fixture.session(), fixture.session(), fixture.session());
    fixture.ok(
        &mut a,
        "create table t (k int primary key, v int); insert into t values (1, 0)",
    );
    let row = "begin; update t set v = 1 where k = 1";
    for (holds, wants) in [
        (row, "update t set v = v + 1 where k = 1"),
        (row, "update t set v = v + 1 where k + 0 = 1"),
        (row, "begin; select k from t for update"),
        ("begin; lock table t", "select count(*) from t"),
        ("begin; lock table t", "begin; lock table t in share mode"),
    ] {
        fixture.ok(&mut a, "select pg_advisory_lock(21)");
        fixture.ok(&mut b, holds);
        let task = spawn(&fixture, a, wants);
        let waits = "select locktype, mode, pid is not null from pg_locks where not granted";
        let waiting = loop {
            match fixture.ok(&mut watcher, waits).pop() {
                Some(waiting) => break waiting,
                None => thread::sleep(Duration::from_millis(1)),
            }
        };
        let expected = match (holds == row, wants.contains("count")) {
            (true, _) => "transactionid|ShareLock|true",
            (false, true) => "relation|AccessShareLock|true",
            (false, false) => "relation|ShareLock|true",
        };
        assert_eq!(waiting, expected, "{wants}");
        let error = fixture.error(&mut b, "select pg_advisory_lock(21)");
        assert_eq!(error.kind, ErrorKind::DeadlockDetected, "{wants}");
        // As who reads the rows does.
        b.fail();
        let (session, result) = fixture.runtime.block_on(task).unwrap();
        a = session;
        result.unwrap();
        fixture.ok(&mut b, "rollback");
        fixture.ok(&mut a, "rollback; select pg_advisory_unlock_all()");
    }
    assert_eq!(fixture.ok(&mut watcher, "select * from pg_locks"), [""; 0]);
}

#[test]
fn sessions_exclude_each_other_under_stress() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(
        &mut session,
        "create table t (k int primary key, v int); insert into t values (1, 0)",
    );
    // Each reads and writes in statements of their own: only the lock keeps them apart.
    let tasks: Vec<_> = (0..6)
        .map(|number| {
            let mut session = fixture.session();
            fixture.runtime.spawn(async move {
                for _ in 0..30 {
                    let (lock, unlock) = match number % 2 {
                        0 => (
                            "select pg_advisory_lock(7, 7)",
                            "select pg_advisory_unlock(7, 7)",
                        ),
                        _ => ("begin; select pg_advisory_xact_lock(7, 7)", "commit"),
                    };
                    run(&mut session, lock).await.unwrap();
                    let seen = run(&mut session, "select v + 1 from t").await.unwrap();
                    let update = format!("update t set v = {}", seen[0]);
                    run(&mut session, &update).await.unwrap();
                    run(&mut session, unlock).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        fixture.runtime.block_on(task).unwrap();
    }
    assert_eq!(fixture.ok(&mut session, "select v from t"), ["180"]);
    assert_eq!(held(&fixture, &mut session), [""; 0]);
}
