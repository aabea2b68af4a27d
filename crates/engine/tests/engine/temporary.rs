//! Temporary relations among several sessions: who sees what, what becomes of it, and what
//! others notice.

use crate::common::Fixture;
use aerostat_types::ErrorKind;

#[test]
fn each_session_has_its_own_and_others_see_none() {
    let fixture = Fixture::new();
    let (mut one, mut two) = (fixture.session(), fixture.session());
    fixture.ok(&mut one, "create table t (x int); insert into t values (0)");
    for (session, rows) in [(&mut one, "(1)"), (&mut two, "(2), (3)")] {
        fixture.ok(
            session,
            &format!("create temp table t (x int primary key); insert into t values {rows}"),
        );
    }
    assert_eq!(fixture.ok(&mut one, "select * from t"), ["1"]);
    assert_eq!(fixture.ok(&mut two, "select sum(x) from t"), ["5"]);
    let mut three = fixture.session();
    assert_eq!(fixture.ok(&mut three, "select * from t"), ["0"]);
    let hidden = "select count(*) from pg_class where relpersistence = 't'";
    assert_eq!(fixture.ok(&mut three, hidden), ["0"]);
    let own = fixture.ok(
        &mut one,
        "select nspname from pg_namespace where oid = pg_my_temp_schema()",
    );
    assert_eq!(
        fixture.kind(&mut three, &format!("select * from {}.t", own[0])),
        ErrorKind::UndefinedTable
    );
    assert_eq!(
        fixture.kind(&mut one, &format!("drop schema {}", own[0])),
        ErrorKind::InsufficientPrivilege
    );
    // A plan of the fast path follows.
    let by_key = "select x from t where x = 1";
    assert_eq!(fixture.ok(&mut one, by_key), ["1"]);
    fixture.ok(&mut one, "drop table t");
    assert_eq!(fixture.ok(&mut one, by_key), Vec::<String>::new());
    fixture.ok(&mut one, "create temp table t (x int primary key)");
    fixture.ok(&mut one, "insert into t values (1)");
    assert_eq!(fixture.ok(&mut one, by_key), ["1"]);
    fixture.ok(&mut one, "discard temp");
    assert_eq!(fixture.ok(&mut one, by_key), Vec::<String>::new());
}

#[test]
fn what_others_define_meanwhile_is_seen_beside_them() {
    let fixture = Fixture::new();
    let (mut one, mut two) = (fixture.session(), fixture.session());
    fixture.ok(
        &mut one,
        "create temp table scratch (x int); insert into scratch values (1)",
    );
    fixture.ok(&mut two, "create table p (x int); insert into p values (7)");
    let both = "select scratch.x, p.x from scratch, p";
    assert_eq!(fixture.ok(&mut one, both), ["1|7"]);
    // In a block that defines something temporary, and one that defines both.
    fixture.ok(&mut one, "begin; create temp table more (y int)");
    fixture.ok(&mut two, "create table q (x int); insert into q values (8)");
    assert_eq!(
        fixture.ok(&mut one, "select q.x, scratch.x from q, scratch"),
        ["8|1"]
    );
    fixture.ok(&mut one, "create table mine (z int)");
    fixture.ok(&mut two, "drop table p");
    fixture.ok(
        &mut one,
        "insert into more values (2); insert into mine values (3); commit",
    );
    assert_eq!(fixture.ok(&mut one, "select y, z from more, mine"), ["2|3"]);
    assert_eq!(fixture.ok(&mut two, "select z from mine"), ["3"]);
    assert_eq!(
        fixture.kind(&mut two, "select y from more"),
        ErrorKind::UndefinedTable
    );
    // The same names in blocks do not wait for each other.
    for session in [&mut one, &mut two] {
        fixture.ok(session, "begin; create temp table same (x int primary key)");
    }
    fixture.ok(&mut two, "commit");
    fixture.ok(&mut one, "rollback");
    assert_eq!(fixture.ok(&mut two, "select count(*) from same"), ["0"]);
}

#[test]
fn blocks_take_back_what_they_made_and_dropped() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(
        &mut session,
        "create temp table t (x serial primary key, y int unique);
         insert into t (y) select g from generate_series(1, 100) as x(g)",
    );
    fixture.ok(
        &mut session,
        "begin; drop table t; create temp table t (z text); insert into t values ('other')",
    );
    assert_eq!(fixture.ok(&mut session, "select * from t"), ["other"]);
    fixture.ok(
        &mut session,
        "savepoint s; truncate t; create index on t (z)",
    );
    fixture.ok(&mut session, "rollback to s");
    assert_eq!(fixture.ok(&mut session, "select * from t"), ["other"]);
    fixture.ok(&mut session, "rollback");
    assert_eq!(
        fixture.ok(&mut session, "select count(*), max(x) from t"),
        ["100|100"]
    );
    // An index that is dropped is free to be broken.
    fixture.ok(&mut session, "alter table t drop constraint t_y_key");
    fixture.ok(&mut session, "insert into t (y) values (1)");
    fixture.ok(
        &mut session,
        "create index t_y on t (y); begin; drop index t_y; commit",
    );
    assert_eq!(
        fixture.ok(&mut session, "select count(*) from t where y = 1"),
        ["2"]
    );
    // A statement that fails takes its block's definitions with it.
    fixture.ok(&mut session, "begin; create temp table u (x int)");
    fixture.error(&mut session, "select * from nosuch");
    fixture.ok(&mut session, "commit");
    assert_eq!(
        fixture.kind(&mut session, "select * from u"),
        ErrorKind::UndefinedTable
    );
}

#[test]
fn rows_and_tables_go_with_their_transaction() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(
        &mut session,
        "create temp table t (x int primary key) on commit delete rows",
    );
    for _ in 0..3 {
        // The same key again: it is gone, also from the index, and on the fast path.
        fixture.ok(&mut session, "insert into t values (1)");
        assert_eq!(fixture.ok(&mut session, "select count(*) from t"), ["0"]);
        fixture.ok(&mut session, "begin; insert into t values (1)");
        assert_eq!(
            fixture.ok(&mut session, "select x from t where x = 1"),
            ["1"]
        );
        fixture.ok(&mut session, "commit");
        assert_eq!(
            fixture.ok(&mut session, "select x from t where x = 1"),
            Vec::<String>::new()
        );
    }
    fixture.ok(
        &mut session,
        "begin; create temp table u on commit drop as select 1 as x",
    );
    assert_eq!(fixture.ok(&mut session, "select x from u"), ["1"]);
    fixture.ok(&mut session, "commit");
    assert_eq!(
        fixture.kind(&mut session, "select x from u"),
        ErrorKind::UndefinedTable
    );
    // What cannot be committed is undone as a whole.
    let error = fixture.error(
        &mut session,
        "begin; create table kept (x int); create temp table v (x int references t); commit",
    );
    assert_eq!(
        (error.kind, error.message.as_str()),
        (
            ErrorKind::FeatureNotSupported,
            "unsupported ON COMMIT and foreign key combination"
        )
    );
    assert_eq!(
        fixture.kind(&mut session, "select * from kept"),
        ErrorKind::UndefinedTable
    );
}

#[test]
fn sessions_that_end_give_the_memory_back() {
    let fixture = Fixture::new();
    let memory = || {
        let databases = fixture.engine.databases();
        let known = databases.iter().find(|known| known.name == "aerostat");
        known.unwrap().memory_used
    };
    let mut watcher = fixture.session();
    fixture.ok(&mut watcher, "select 1");
    let before = memory();
    let mut session = fixture.session();
    fixture.ok(
        &mut session,
        "create temp table t as select g, 'text ' || g as s from generate_series(1, 50000) as x(g)",
    );
    let during = memory();
    assert!(during > before + 500_000, "{before} {during}");
    drop(session);
    // It goes on a thread of its own.
    while memory() >= during {
        std::thread::yield_now();
    }
    assert_eq!(
        fixture.ok(
            &mut watcher,
            "select count(*) from pg_class where relname = 't'"
        ),
        ["0"]
    );
}

#[test]
fn what_needs_them_is_temporary_or_refused() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(&mut session, "create temp table t (x int)");
    session.take_notices();
    fixture.ok(&mut session, "create view v as select x from t");
    let notices: Vec<String> = session
        .take_notices()
        .into_iter()
        .map(|notice| notice.message)
        .collect();
    assert_eq!(notices, ["view \"v\" will be a temporary view"]);
    let mut other = fixture.session();
    assert_eq!(
        fixture.kind(&mut other, "select * from v"),
        ErrorKind::UndefinedTable
    );
    assert_eq!(
        fixture.kind(&mut session, "create table p (x int default nextval('s'))"),
        ErrorKind::UndefinedTable
    );
    fixture.ok(
        &mut session,
        "create temp sequence s; create temp table n (x serial)",
    );
    for sql in [
        "create table p (x int default nextval('s'))",
        "create table p (like n including defaults)",
    ] {
        assert_eq!(
            fixture.kind(&mut session, sql),
            ErrorKind::FeatureNotSupported,
            "{sql}"
        );
    }
}
