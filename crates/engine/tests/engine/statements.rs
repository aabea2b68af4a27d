//! Statements end to end through the engine: what only the whole crate can show.

use std::sync::Arc;

use crate::common::{Fixture, copy_in, rows_of};
use aerostat_api::{ColumnDescription, Group, Outcome, Value};
use aerostat_engine::Session;
use aerostat_types::ErrorKind;
use arrow::array::{ArrayRef, Int32Array, RecordBatch};

#[test]
fn rows_come_back_as_they_went_in() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    for layout in ["row", "column", "(a,c),(b)"] {
        fixture.ok(&mut session, "drop table if exists t");
        fixture.ok(
            &mut session,
            &format!("create table t (a int primary key, b text, c numeric(10,2) not null default 1.5) with (layout = '{layout}')"),
        );
        assert_eq!(fixture.ok(&mut session, "insert into t values (1, 'one', 1.005), (2, null, default), (3, 'a longer text than a slot', -7)"), ["INSERT 0 3"]);
        assert_eq!(
            fixture.ok(&mut session, "select a, b, c from t order by a"),
            ["1|one|1.01", "2||1.50", "3|a longer text than a slot|-7.00"]
        );
        assert_eq!(
            fixture.ok(
                &mut session,
                "select count(*), sum(a), min(b) from t where a >= 2"
            ),
            ["2|5|a longer text than a slot"]
        );
    }
}

#[test]
fn dml_touches_the_rows_its_predicate_finds_and_no_others() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(
        &mut session,
        "create table t (k int primary key, v int); create table u (k int, w int)",
    );
    fixture.ok(
        &mut session,
        "insert into t select g, g * 10 from generate_series(1, 10) as x(g)",
    );
    fixture.ok(
        &mut session,
        "insert into u values (3, 300), (4, 400), (4, 401)",
    );
    // Each of these would delete every row through DataFusion's own hooks.
    assert_eq!(
        fixture.ok(&mut session, "delete from t where 1 = 0"),
        ["DELETE 0"]
    );
    assert_eq!(
        fixture.ok(&mut session, "delete from t where false"),
        ["DELETE 0"]
    );
    assert_eq!(
        fixture.ok(
            &mut session,
            "delete from t where k in (select k from u where w < 0)"
        ),
        ["DELETE 0"]
    );
    assert_eq!(
        fixture.kind(&mut session, "delete from t limit 1"),
        ErrorKind::SyntaxError
    );
    assert_eq!(
        fixture.ok(
            &mut session,
            "delete from t where (k, v) in (select k, w from u)"
        ),
        ["DELETE 0"]
    );
    assert_eq!(fixture.ok(&mut session, "select count(*) from t"), ["10"]);
    assert_eq!(
        fixture.ok(
            &mut session,
            "delete from t where k in (select k from u where w = 300) returning k, v"
        ),
        ["3|30"]
    );
    assert_eq!(
        fixture.ok(
            &mut session,
            "delete from t where not exists (select 1 from u where u.k < t.k)"
        ),
        ["DELETE 2"]
    );
    assert_eq!(
        fixture.ok(&mut session, "select k from t order by k"),
        ["4", "5", "6", "7", "8", "9", "10"]
    );
    // A row that two others match is updated once.
    let updated = fixture.ok(
        &mut session,
        "update t set v = u.w from u where t.k = u.k returning t.k, v > 399, w > 399",
    );
    assert_eq!(updated, ["4|true|true"]);
    let mut deleted = fixture.ok(
        &mut session,
        "delete from t using u where t.k = u.k + 1 returning t.k, u.w > 0",
    );
    deleted.sort();
    assert_eq!(deleted, ["4|true", "5|true"]);
    // Keys change places within one statement.
    assert_eq!(
        fixture.ok(&mut session, "update t set k = k + 1"),
        ["UPDATE 5"]
    );
    assert_eq!(
        fixture.ok(&mut session, "update t set k = 18 - k where k in (7, 11)"),
        ["UPDATE 2"]
    );
    assert_eq!(
        fixture.ok(&mut session, "select k, v from t order by k"),
        ["7|100", "8|70", "9|80", "10|90", "11|60"]
    );
    assert_eq!(
        fixture.ok(
            &mut session,
            "insert into t (v, k) select 1, 100 returning k + 1 as next, v"
        ),
        ["101|1"]
    );
    assert_eq!(
        fixture.ok(
            &mut session,
            "update t set v = default, k = (select max(k) + 1 from t) where k = 100 returning *"
        ),
        ["101|"]
    );
}

#[test]
fn constraints_hold_and_a_failed_statement_leaves_nothing() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(
        &mut session,
        "create table t (a int primary key, b varchar(3) not null, c int check (c > 0), check (c <> a))",
    );
    fixture.ok(&mut session, "insert into t values (1, 'x', 5)");
    for (sql, kind) in [
        (
            "insert into t values (2, 'y', 1), (1, 'z', 2)",
            ErrorKind::UniqueViolation,
        ),
        (
            "insert into t values (2, 'y', 1), (2, 'z', 1)",
            ErrorKind::UniqueViolation,
        ),
        (
            "insert into t values (2, null, 1)",
            ErrorKind::NotNullViolation,
        ),
        ("insert into t (a) values (2)", ErrorKind::NotNullViolation),
        (
            "insert into t values (null, 'y', 1)",
            ErrorKind::NotNullViolation,
        ),
        (
            "insert into t values (2, 'y', 0)",
            ErrorKind::CheckViolation,
        ),
        (
            "insert into t values (2, 'y', 2)",
            ErrorKind::CheckViolation,
        ),
        ("update t set c = -c", ErrorKind::CheckViolation),
        (
            "insert into t values (2, 'yyyy', 1)",
            ErrorKind::StringDataRightTruncation,
        ),
        (
            "insert into t values (99999999999, 'y', 1)",
            ErrorKind::NumericValueOutOfRange,
        ),
        (
            "insert into t values ('x', 'y', 1)",
            ErrorKind::InvalidTextRepresentation,
        ),
        ("insert into t values (2, 'y')", ErrorKind::Internal),
        (
            "insert into t values (2, 'y', 1, 4)",
            ErrorKind::SyntaxError,
        ),
        (
            "insert into t (a, a) values (2, 3)",
            ErrorKind::DuplicateColumn,
        ),
        ("insert into t (z) values (2)", ErrorKind::UndefinedColumn),
        ("insert into nowhere values (2)", ErrorKind::UndefinedTable),
    ] {
        if kind == ErrorKind::Internal {
            // Fewer values than columns are fine; the rest is NULL.
            fixture.ok(&mut session, sql);
            fixture.ok(&mut session, "delete from t where a = 2");
            continue;
        }
        assert_eq!(fixture.kind(&mut session, sql), kind, "{sql}");
        assert_eq!(
            fixture.ok(&mut session, "select a, b, c from t"),
            ["1|x|5"],
            "after {sql}"
        );
    }
    let error = fixture.error(&mut session, "insert into t values (1, 'y', 9)");
    assert_eq!(error.constraint.as_deref(), Some("t_pkey"));
    assert_eq!(error.detail.as_deref(), Some("Key (a)=(1) already exists."));
}

#[test]
fn numbers_never_wrap() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(
        &mut session,
        "create table n (i int, b bigint, s smallint, f float8)",
    );
    fixture.ok(
        &mut session,
        "insert into n values (2147483647, 9223372036854775807, 32767, 1e308), (1, 1, 1, 1e308)",
    );
    for sql in [
        "select i + 1 from n",
        "select b * 2 from n",
        "select -(-32768::smallint)",
        "select s + 1::smallint from n",
        "select 2147483647 + 1",
        "update n set i = i + 1",
        "select f * 10 from n",
        "select cast(b as int) from n",
    ] {
        assert_eq!(
            fixture.kind(&mut session, sql),
            ErrorKind::NumericValueOutOfRange,
            "{sql}"
        );
    }
    for sql in [
        "select 1 / 0",
        "select i / (i - i) from n",
        "select f / 0 from n",
        "select 1 % 0",
        "select 1.0 / 0",
    ] {
        assert_eq!(
            fixture.kind(&mut session, sql),
            ErrorKind::DivisionByZero,
            "{sql}"
        );
    }
    assert_eq!(
        fixture.ok(&mut session, "select sum(i), sum(b) from n"),
        ["2147483648|9223372036854775808"]
    );
}

#[test]
fn errors_say_where() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(&mut session, "create table t (a int)");
    for (sql, kind, position) in [
        ("select b from t", ErrorKind::UndefinedColumn, Some(8)),
        ("select * from nowhere", ErrorKind::UndefinedTable, Some(15)),
        (
            "select nofunc(a) from t",
            ErrorKind::UndefinedFunction,
            Some(8),
        ),
        ("selec 1", ErrorKind::SyntaxError, Some(1)),
        ("select a from t where", ErrorKind::SyntaxError, Some(22)),
    ] {
        let error = fixture.error(&mut session, sql);
        assert_eq!(
            (error.kind, error.position),
            (kind, position),
            "{sql}: {error}"
        );
    }
}

#[test]
fn prepared_statements_infer_types() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(&mut session, "create table t (a int primary key, b text)");
    fixture.runtime.block_on(async {
        let insert = session
            .prepare("insert into t values ($1, $2)", &[])
            .await
            .unwrap();
        assert_eq!(
            format!("{:?}", insert.parameters),
            "[Value(Integer), Value(Text)]"
        );
        for (a, b) in [(1, "x"), (2, "y")] {
            let values = [Value::I32(a), Value::Text(b.into())].into();
            let outcome = session.execute_prepared(&insert, &values).await.unwrap();
            assert_eq!(rows_of(outcome).await.unwrap(), ["INSERT 0 1"]);
        }
        let select = session
            .prepare("select b from t where a = $1", &[])
            .await
            .unwrap();
        assert_eq!(format!("{:?}", select.parameters), "[Value(Integer)]");
        assert_eq!(select.columns.as_ref().unwrap()[0].name, "b");
        let outcome = session
            .execute_prepared(&select, &[Value::I32(2)].into())
            .await
            .unwrap();
        assert_eq!(rows_of(outcome).await.unwrap(), ["y"]);
    });
    assert_eq!(
        fixture.ok(
            &mut session,
            "prepare q (int) as select b from t where a = $1; execute q (1); "
        ),
        ["x"]
    );
    assert_eq!(
        fixture.kind(&mut session, "execute q (1, 2)"),
        ErrorKind::SyntaxError
    );
    assert_eq!(
        fixture.kind(&mut session, "execute nothing"),
        ErrorKind::InvalidStatementName
    );
}

#[test]
fn returned_columns_tell_where_they_are_from() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(
        &mut session,
        "create table t (a int primary key, b text, n int); \
         create table o (x int primary key, y int); insert into o values (1, 1)",
    );
    let oids = "select oid::int from pg_class where relname in ('t', 'o') order by relname";
    let oids = fixture.ok(&mut session, oids);
    let (o, t) = (oids[0].as_str(), oids[1].as_str());
    let check = |session: &mut Session, sql: &str, expected: &[(&str, i16)]| {
        let origins = |columns: &[ColumnDescription]| {
            let pair = |column: &ColumnDescription| (column.table_oid.to_string(), column.attnum);
            columns.iter().map(pair).collect::<Vec<_>>()
        };
        let expected: Vec<_> = expected
            .iter()
            .map(|(t, at)| (t.to_string(), *at))
            .collect();
        fixture.runtime.block_on(async {
            let prepared = session.prepare(sql, &[]).await.unwrap();
            assert_eq!(
                origins(prepared.columns.as_ref().unwrap()),
                expected,
                "{sql}"
            );
            match session
                .execute_prepared(&prepared, &Arc::default())
                .await
                .unwrap()
            {
                Outcome::Rows { columns, .. } => assert_eq!(origins(&columns), expected, "{sql}"),
                other => panic!("{sql}: {other:?}"),
            }
        });
    };
    for fast in ["on", "off"] {
        fixture.runtime.block_on(async {
            let set = format!("set enable_fast_path = {fast}");
            let set = session.split(&set).await.unwrap();
            session.execute(&set[0]).await.unwrap();
        });
        check(
            &mut session,
            "insert into t values (1, 'b', 2) returning n, a + 1, a as k, 'x'",
            &[(t, 3), ("0", 0), (t, 1), ("0", 0)],
        );
        check(
            &mut session,
            "update t set n = 5 where a = 1 returning *",
            &[(t, 1), (t, 2), (t, 3)],
        );
        check(
            &mut session,
            "update t as u set n = y from o where a = x returning u.n, y, o.*, n + y",
            &[(t, 3), (o, 2), (o, 1), (o, 2), ("0", 0)],
        );
        check(
            &mut session,
            "insert into t (a) select x from o on conflict (a) do update set n = 1 returning b, n",
            &[(t, 2), (t, 3)],
        );
        check(
            &mut session,
            "delete from t using (select x as z from o) as s where a = z returning z, a",
            &[(o, 1), (t, 1)],
        );
        check(
            &mut session,
            "select b, sum(n), x from t join o on a = x group by b, t.b, x, b",
            &[(t, 2), ("0", 0), (o, 1)],
        );
    }
}

/// A value that planning finds to be NULL has the type that the statement gives it.
#[test]
fn returned_columns_have_the_types_that_were_told() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(
        &mut session,
        "create table t (a int primary key, n int); create table c (id int primary key, c char(4)); \
         insert into t values (1, 2); insert into c values (2, 'ab')",
    );
    let one = "(select c.c from c where c.id = t.n)";
    for sql in [
        format!("update t set n = null returning {one}"),
        format!("update t set n = default where a = 1 returning {one}, n, a"),
        format!("update t set n = 2 returning {one}"),
        format!("update t set n = null returning {one}::varchar(3), {one}"),
        format!("delete from t where n is null and a = 1 returning {one}"),
        "insert into t values (1, null) returning (select c.c from c where c.id = n)".to_owned(),
    ] {
        fixture.runtime.block_on(async {
            let prepared = session.prepare(&sql, &[]).await.unwrap();
            let told = prepared.columns.clone().unwrap();
            let outcome = session.execute_prepared(&prepared, &Arc::default()).await;
            match outcome.unwrap() {
                Outcome::Rows { columns, .. } => {
                    let types = |columns: &[ColumnDescription]| {
                        let pair = |column: &ColumnDescription| (column.oid, column.typmod);
                        columns.iter().map(pair).collect::<Vec<_>>()
                    };
                    assert_eq!(types(&columns), types(&told), "{sql}");
                }
                other => panic!("{sql}: {other:?}"),
            }
        });
    }
}

/// Short lists come as alternatives; a scan tests them on codes all the same.
#[test]
fn alternatives_of_one_column_are_a_list() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(
        &mut session,
        "create table t (id int primary key, city text, year int);
         insert into t select g, case when g % 7 = 0 then null else 'c' || g % 7 end, 1990 + g % 9
            from generate_series(1, 3000) as g;
         vacuum (freeze) t",
    );
    for (condition, is_list) in [
        ("city = 'c1' or city = 'c5'", true),
        ("city in ('c1', 'c2') or 'c6' = city or city = 'c2'", true),
        ("(year = 1992 or year = 1994) and city <> 'c3'", true),
        ("city = 'c1' or year = 1992", false),
        ("city = 'c1' or city > 'c5'", false),
        ("not (city = 'c1' or city = 'c5')", true),
        ("city = 'c1' or city is null", false),
    ] {
        let sql = format!("select count(*), sum(id) from t where {condition}");
        let plan = fixture
            .ok(&mut session, &format!("explain {sql}"))
            .join("\n");
        assert_eq!(!plan.contains("FilterExec"), is_list, "{plan}");
        // What is computed cannot be handed down.
        let mut computed = condition.replace("city", "(city || '')");
        computed = computed.replace("year", "(year + id - id)");
        let expected = format!("select count(*), sum(id) from t where {computed}");
        assert_eq!(
            fixture.ok(&mut session, &sql),
            fixture.ok(&mut session, &expected),
            "{condition}"
        );
    }
}

#[test]
fn executions_of_prepared_statements_are_counted() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(
        &mut session,
        "create table t (a int primary key); prepare p (int) as select 1 / $1; \
         prepare q as delete from t",
    );
    fixture.ok(&mut session, "execute p (1); execute p (2); execute q");
    fixture.kind(&mut session, "execute p (0)");
    fixture.ok(&mut session, "execute q; execute q");
    let counts = "select name, statement, from_sql, generic_plans, custom_plans, \
                  prepare_time <= clock_timestamp() and prepare_time > '2020-01-01' \
                  from pg_prepared_statements order by name";
    assert_eq!(
        fixture.ok(&mut session, counts),
        [
            "p|prepare p (int) as select 1 / $1|true|0|2|true",
            "q|prepare q as delete from t|true|3|0|true",
        ]
    );
}

#[test]
fn copy_commits_at_its_end_and_only_then() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(
        &mut session,
        "create table t (a int primary key, b text default 'none')",
    );
    let batch = |values: Vec<i32>| {
        RecordBatch::try_from_iter([("a", Arc::new(Int32Array::from(values)) as ArrayRef)]).unwrap()
    };
    fixture.runtime.block_on(async {
        let mut copy = copy_in(&mut session, "copy t (a) from stdin")
            .await
            .unwrap();
        copy.write(batch(vec![1, 2, 3])).await.unwrap();
        copy.abort().await;
        let mut copy = copy_in(&mut session, "copy t (a) from stdin")
            .await
            .unwrap();
        copy.write(batch(vec![1, 2, 3])).await.unwrap();
        // The client goes away.
        drop(copy);
        let mut copy = copy_in(&mut session, "copy t (a) from stdin")
            .await
            .unwrap();
        copy.write(batch(vec![7, 8])).await.unwrap();
        assert_eq!(copy.finish().await.unwrap(), "COPY 2");
        let mut copy = copy_in(&mut session, "copy t (a) from stdin")
            .await
            .unwrap();
        copy.write(batch(vec![9, 7])).await.unwrap();
        assert_eq!(
            copy.finish().await.unwrap_err().kind,
            ErrorKind::UniqueViolation
        );
    });
    assert_eq!(
        fixture.ok(&mut session, "select * from t order by a"),
        ["7|none", "8|none"]
    );
}

#[test]
fn views_schemas_and_ctas_work_together() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(&mut session, "create schema s; create table s.t as select 1 as a, 'x'::varchar(3) as b union all select 2, 'y'");
    fixture.ok(
        &mut session,
        "create view v as select a * 2 as double, b from s.t where a > 1",
    );
    assert_eq!(fixture.ok(&mut session, "select * from v"), ["4|y"]);
    fixture.ok(&mut session, "set search_path to s");
    assert_eq!(fixture.ok(&mut session, "select count(*) from t"), ["2"]);
    assert_eq!(
        fixture.kind(&mut session, "select * from v"),
        ErrorKind::UndefinedTable
    );
    assert_eq!(
        fixture.kind(&mut session, "drop table t"),
        ErrorKind::DependentObjectsStillExist
    );
    assert_eq!(fixture.ok(&mut session, "truncate t"), ["TRUNCATE TABLE"]);
    assert_eq!(
        fixture.ok(&mut session, "select count(*) from public.v"),
        ["0"]
    );
}

#[test]
fn tenants_do_not_see_each_other() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(
        &mut session,
        "create database other with (memory_max = '64MB'); create role guest login",
    );
    fixture.ok(
        &mut session,
        "create table t (a int); insert into t values (1)",
    );
    let mut other = fixture.engine.connect("aerostat", "other", &[]).unwrap();
    assert_eq!(
        fixture.kind(&mut other, "select * from t"),
        ErrorKind::UndefinedTable
    );
    assert_eq!(
        fixture.kind(&mut other, "select * from aerostat.public.t"),
        ErrorKind::FeatureNotSupported
    );
    let refused = fixture.engine.connect("guest", "other", &[]).err().unwrap();
    assert_eq!(refused.kind, ErrorKind::InsufficientPrivilege);
    fixture.ok(&mut session, "grant connect on database other to guest");
    let mut guest = fixture.engine.connect("guest", "other", &[]).unwrap();
    fixture.ok(&mut other, "create table secret (a int)");
    assert_eq!(
        fixture.kind(&mut guest, "select * from secret"),
        ErrorKind::InsufficientPrivilege
    );
    fixture.ok(&mut other, "grant select on secret to guest");
    assert_eq!(fixture.ok(&mut guest, "select count(*) from secret"), ["0"]);
    assert_eq!(
        fixture.kind(&mut guest, "delete from secret"),
        ErrorKind::InsufficientPrivilege
    );
    assert_eq!(
        fixture.kind(&mut session, "drop database other"),
        ErrorKind::ObjectInUse
    );
    drop((other, guest));
    fixture.ok(&mut session, "drop database other");
}

#[test]
fn memory_is_bounded_by_tenant() {
    let fixture = Fixture::with_memory(256 << 20);
    let mut session = fixture.session();
    fixture.ok(
        &mut session,
        "create database small with (memory_max = '16MB')",
    );
    let mut small = fixture.engine.connect("aerostat", "small", &[]).unwrap();
    fixture.ok(&mut small, "create table t (a int primary key, b text)");
    fixture.ok(
        &mut small,
        "insert into t select g, repeat('x', 100) from generate_series(1, 10000) as x(g)",
    );
    let kind = fixture.kind(
        &mut small,
        "insert into t select g, repeat('x', 100) from generate_series(10001, 1000000) as x(g)",
    );
    assert_eq!(kind, ErrorKind::OutOfMemory);
    assert_eq!(
        fixture.ok(&mut small, "select count(*), max(a) from t"),
        ["10000|10000"]
    );
    fixture.ok(&mut small, "insert into t values (10001, 'still alive')");
}

#[test]
fn the_adviser_sets_apart_what_scans_read() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    let columns: Vec<String> = (1..=20).map(|at| format!("c{at} integer")).collect();
    let values: Vec<String> = (1..=20).map(|at| format!("g % {at}")).collect();
    fixture.ok(
        &mut session,
        &format!(
            "create table wide (id integer primary key, {}) with (layout = 'row')",
            columns.join(", ")
        ),
    );
    fixture.ok(
        &mut session,
        &format!(
            "insert into wide select g, {} from generate_series(1, 20000) as g",
            values.join(", ")
        ),
    );
    let advised = "select best_layout <> layout, gain_share > 0.1, executions >= 100 from aerostat.layout_advice where table_name = 'wide'";
    assert_eq!(
        fixture.ok(
            &mut session,
            "select verdict from aerostat.layout_advice where table_name = 'wide'"
        ),
        ["keep: too few statements seen"]
    );
    for _ in 0..120 {
        fixture.ok(&mut session, "select sum(c3) from wide");
    }
    assert_eq!(fixture.ok(&mut session, advised), ["true|true|true"]);
}

/// The first statement of a pipeline is in no transaction block, as in PostgreSQL: whether the
/// Sync has come by then must not matter.
#[test]
fn the_first_of_a_pipeline_is_in_no_block() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(&mut session, "create table t (id int primary key)");
    for sql in [
        "declare c cursor for select id from t",
        "lock table t in share mode",
    ] {
        session.begin_group(Group::Pipeline);
        let error = fixture.error(&mut session, sql);
        assert_eq!(error.kind, ErrorKind::NoActiveTransaction, "{sql}");
        session.fail();
        session.begin_group(Group::Pipeline);
        fixture.ok(&mut session, "insert into t select count(*) from t");
        fixture.ok(&mut session, sql);
        fixture.runtime.block_on(session.end_group()).unwrap();
        session.begin_group(Group::Message);
        fixture.ok(&mut session, sql);
        fixture.runtime.block_on(session.end_group()).unwrap();
    }
    session.begin_group(Group::Pipeline);
    fixture.ok(&mut session, "set local work_mem = '64MB'");
    let warned = session.take_notices();
    assert_eq!(warned.len(), 1, "{warned:?}");
    fixture.runtime.block_on(session.end_group()).unwrap();
    assert_eq!(fixture.ok(&mut session, "select count(*) from t"), ["2"]);
}

/// As drivers prepare that send no types.
#[test]
fn parameters_take_their_types_from_their_places() {
    use aerostat_api::ParameterType;
    use aerostat_types::SqlType::{BigInt, Date, Integer};
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(&mut session, "create table t (k int primary key, d date)");
    for (text, types) in [
        ("select k from t limit $1 offset $2", vec![BigInt, BigInt]),
        (
            "select coalesce($1, 3), coalesce(3, $2)",
            vec![Integer, Integer],
        ),
        (
            "select case when k > 1 then $1 else 3 end from t",
            vec![Integer],
        ),
        (
            "select greatest($1, d), least(d, $2) from t",
            vec![Date, Date],
        ),
        ("update t set k = coalesce($1, 7)", vec![Integer]),
    ] {
        let preparing = session.prepare(text, &[]);
        let prepared = fixture.runtime.block_on(preparing).unwrap();
        let types: Vec<_> = types.into_iter().map(ParameterType::Value).collect();
        assert_eq!(prepared.parameters, types, "{text}");
    }
}
