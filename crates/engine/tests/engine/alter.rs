//! ALTER TABLE with rows: what is written anew, what is only checked, and what statements
//! before and after it see.

use crate::common::Fixture;
use aerostat_types::{ErrorKind, SqlError};

fn words(error: &SqlError) -> (ErrorKind, &str) {
    (error.kind, &error.message)
}

#[test]
fn rows_are_written_anew_with_what_columns_come_to_be() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    for layout in ["row", "column", "(a,c),(b)"] {
        fixture.ok(
            &mut session,
            &format!(
                "drop table if exists t; create table t (a int primary key, b text, c int) with (layout = '{layout}');
                 insert into t select g, 'text ' || g, g % 10 from generate_series(1, 20000) as x(g);
                 vacuum freeze t; update t set c = null where a % 100 = 0; create index t_c on t (c)"
            ),
        );
        fixture.ok(
            &mut session,
            "alter table t add d numeric(8,2) default 1.5 not null check (d > 0), alter c type bigint using c + 1,
             drop b, add primary key (d, a), drop constraint t_pkey",
        );
        assert_eq!(
            fixture.ok(
                &mut session,
                "select count(*), sum(a), sum(c), count(c), sum(d) from t"
            ),
            ["20000|200010000|109800|19800|30000.00"]
        );
        assert_eq!(
            fixture.ok(
                &mut session,
                "select * from t where c = 4 order by a limit 2"
            ),
            ["3|4|1.50", "13|4|1.50"]
        );
        assert_eq!(
            fixture.kind(&mut session, "insert into t values (1, 1, 1.5)"),
            ErrorKind::UniqueViolation
        );
        assert_eq!(
            fixture.kind(&mut session, "insert into t values (0, 1, 0)"),
            ErrorKind::CheckViolation
        );
        assert_eq!(
            fixture.kind(&mut session, "select b from t"),
            ErrorKind::UndefinedColumn
        );
    }
}

#[test]
fn rows_that_break_what_comes_stop_the_statement() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(
        &mut session,
        "create table t (a int primary key, b int, s text);
         insert into t values (1, 1, '1'), (2, null, 'x'), (3, 1, '3')",
    );
    for (sql, kind, message) in [
        (
            "alter table t add c int not null",
            ErrorKind::NotNullViolation,
            "column \"c\" of relation \"t\" contains null values",
        ),
        (
            "alter table t alter b set not null",
            ErrorKind::NotNullViolation,
            "column \"b\" of relation \"t\" contains null values",
        ),
        (
            "alter table t add constraint p check (b > 1)",
            ErrorKind::CheckViolation,
            "check constraint \"p\" of relation \"t\" is violated by some row",
        ),
        (
            "alter table t add c int default 3 constraint p check (c <> a)",
            ErrorKind::CheckViolation,
            "check constraint \"p\" of relation \"t\" is violated by some row",
        ),
        (
            "alter table t add unique (b), add c int",
            ErrorKind::UniqueViolation,
            "could not create unique index \"t_b_key\"",
        ),
        (
            "alter table t add unique (b)",
            ErrorKind::UniqueViolation,
            "could not create unique index \"t_b_key\"",
        ),
        (
            "alter table t drop constraint t_pkey, add primary key (b)",
            ErrorKind::NotNullViolation,
            "column \"b\" of relation \"t\" contains null values",
        ),
        (
            "alter table t alter s type int",
            ErrorKind::DatatypeMismatch,
            "column \"s\" cannot be cast automatically to type integer",
        ),
        (
            "alter table t alter s type int using s::int",
            ErrorKind::InvalidTextRepresentation,
            "invalid input syntax for type integer: \"x\"",
        ),
    ] {
        let error = fixture.error(&mut session, sql);
        assert_eq!(words(&error), (kind, message), "{sql}");
    }
    assert_eq!(
        fixture.ok(&mut session, "select * from t order by a"),
        ["1|1|1", "2||x", "3|1|3"]
    );
    fixture.ok(
        &mut session,
        "alter table t add constraint p check (b > 1) not valid; update t set b = 5 where a = 1",
    );
    assert_eq!(
        fixture.kind(&mut session, "alter table t validate constraint p"),
        ErrorKind::CheckViolation
    );
    // A row that was let in is let through when rows are written anew.
    fixture.ok(
        &mut session,
        "alter table t drop s; delete from t where a = 3",
    );
    fixture.ok(
        &mut session,
        "alter table t validate constraint p; alter table t alter b drop not null",
    );
    assert_eq!(
        fixture.ok(&mut session, "select * from t order by a"),
        ["1|5", "2|"]
    );
}

#[test]
fn null_comes_where_it_was_refused() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(
        &mut session,
        "create table t (a int primary key, b int not null);
         insert into t select g, g from generate_series(1, 10000) as x(g); vacuum freeze t;
         alter table t alter b drop not null; insert into t values (10001, null);
         update t set b = null where a in (1, 5000)",
    );
    assert_eq!(
        fixture.ok(&mut session, "select count(*), count(b), sum(b) from t"),
        [format!("10001|9998|{}", 50_005_000 - 1 - 5_000)]
    );
    fixture.ok(
        &mut session,
        "delete from t where b is null; alter table t alter b set not null",
    );
    assert_eq!(
        fixture.kind(&mut session, "update t set b = null where a = 7"),
        ErrorKind::NotNullViolation
    );
}

#[test]
fn a_block_sees_what_it_altered_and_others_do_not() {
    let fixture = Fixture::new();
    let (mut session, mut other) = (fixture.session(), fixture.session());
    fixture.ok(
        &mut session,
        "create table t (a int primary key); insert into t values (1); create view v as select * from t",
    );
    for (end, late) in [("rollback", 6), ("commit", 7)] {
        fixture.ok(
            &mut session,
            "begin isolation level repeatable read; select 1",
        );
        // Not in the block's snapshot, and not to be lost.
        fixture.ok(&mut other, &format!("insert into t values ({late})"));
        fixture.ok(
            &mut session,
            "insert into t values (2); alter table t add b int default 5; alter table t rename a to id;
             savepoint s; alter table t drop b, drop constraint t_pkey; insert into t values (2);
             rollback to s; update t set b = 6 where id = 2",
        );
        assert_eq!(
            fixture.kind(&mut session, "insert into t values (2)"),
            ErrorKind::UniqueViolation
        );
        fixture.ok(&mut session, "rollback to s");
        fixture.ok(&mut session, "update t set b = 6 where id = 2");
        fixture.ok(&mut session, end);
        let columns = if end == "commit" { "id, b" } else { "a, 0" };
        let expected: &[&str] = match end {
            "commit" => &["1|5", "2|6", "6|5", "7|5"],
            _ => &["1|0", "6|0"],
        };
        assert_eq!(
            fixture.ok(&mut other, &format!("select {columns} from t order by 1")),
            expected
        );
    }
    assert_eq!(
        fixture.ok(&mut other, "select * from v order by a"),
        ["1", "2", "6", "7"]
    );
}
