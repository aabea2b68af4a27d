//! Kept plans against plans made anew: the same statements on two nodes, one of them with
//! `plan_cache_mode = force_custom_plan`, give the same rows, columns and errors.

use std::{collections::HashMap, sync::Arc};

use crate::common::{Fixture, Random, rows_of};
use aerostat_api::{Outcome, ParameterType, TransactionStatus, Value};
use aerostat_engine::{Prepared, Session};
use aerostat_types::{ErrorKind, SqlError, SqlType};

const TABLES: &str = "
    create table a (
        k int primary key, i int, s smallint, l bigint, t text, v varchar(6), c char(5),
        n numeric(8, 2), d date, z timestamptz
    );
    create table b (x int, k int, y text);
    create index a_i on a (i);
    create view seen as select a.k, a.i, b.y from a join b on a.k = b.k where a.i > 1;
    create schema other;
    create table other.b (x int, k int, y text);
    insert into other.b values (1, 1, 'other'), (2, 2, null);
    insert into a
        select g, g % 7, g % 5, g::bigint * 1000000000, 't' || g % 4, 'v' || g % 3, 'c' || g % 2,
            g / 4.0, date '2024-01-01' + g, timestamptz '2024-01-01 00:00+00' + g * interval '1 h'
        from generate_series(0, 40) as g;
    insert into a (k) values (100);
    insert into b select g % 6, g, 'y' || g % 9 from generate_series(0, 60) as g";

/// Queries, many with parameters: in places where only their types count, and in others.
const QUERIES: &[&str] = &[
    "select a.k, b.y from a join b on a.k = b.k where a.i = $1 order by 1, 2",
    "select a.k, b.x from a left join b on a.k = b.x where b.k between $1 and $2 order by 1, 2",
    "select count(*), sum(a.n) from a, b where a.k = b.k and a.l > $1 and b.y = $2",
    "select y, count(*) from b where x >= $1 group by y having count(*) > $2 order by y",
    "select k from a where i = $1 or i = $2 order by k",
    "select k from a where (i = $1 or i = $2) and not (i in (1, 2)) order by k",
    "select k from a where not ((i = $1 or i = $2) and (i in (1, 5))) order by k",
    "select k, i in ($1, $2) from a order by k",
    "select k from a where c = $1 and t <> $2 order by k",
    "select k from a where v = $1 order by k desc limit 3",
    "select k, round(n, $1) from a order by k limit 5",
    "select k from a where n > $1 and s < $2 order by k",
    "select k, k / $1 from a where k < $2 order by k",
    "select k from a where d >= $1 and d < $2 order by k",
    "select k from a order by k offset $1 limit $2",
    "select k, (select max(b.x) from b where b.k = a.i and b.x < $1) from a order by k",
    "select k from a where exists (select from b where b.k = a.i and b.y = $1) order by k",
    "select k from a where i not in (select x from b where k > $1) order by k",
    "select k from a where i = $1 and 100 / i > $2 order by k",
    "with w as (select k, i from a where i > $1) select w.k, b.y from w join b using (k) order by 1, 2",
    "select k, i from seen where y = $1 order by k, i",
    "select $1 || y from b where x = $2 order by 1",
    "select * from b where x = $1 order by k limit 4",
    "select k from a where t like $1 order by k",
    "select a.k from a full join b on a.k = b.k and b.x = $1 where a.i = $2 or a.i is null order by 1",
    "select row_number() over (order by k), k from a where i = $1 order by 1",
    "select k from a where i = $1 union select x from b where k = $2 order by 1",
    "values ($1, 1), (2, $2)",
    "select a.i, count(*), min(z) from a join b on a.k = b.k group by a.i order by a.i",
    "select k, z, date_trunc('day', z) from a where z > '2024-01-01 12:00' order by k limit 3",
    "select k, i from seen order by k, i",
    "select * from b where x in (select i from a where k < 3) order by k",
    "select now() = (select now()), count(*) from b where now() > '2024-01-01'",
    "select y from b where k = 1 and y = current_user",
    "select a.k / (a.i - 3) from a where a.i <> 3 order by 1",
    "select 1 / 0 from a",
    "select relname from pg_class where relname in ('a', 'b') order by 1",
    "select nothing from b",
    "select count(*) from b, generate_series(1, 2) as g where b.x = g",
    "select k from a where k = 5 for update",
];

/// Changes of rows, with parameters as new values, in conditions and elsewhere. None of them
/// says of which of its rows it speaks first.
const DML: &[&str] = &[
    "update a set i = $1 where k = $2 or k = 1000",
    "update a set i = $1, t = $2 where k = $3 and t <> 'none' returning k, i, t, c, v, 'x' as x",
    "update a set i = i + $1 where k < $2 and i is not null",
    "update a set l = l - $1, s = s where i = $2",
    "update a set i = i + $1, l = $2 where i = $3 and l > 4",
    "update a set v = $1 where i = $2",
    "update a set c = $1, t = $2 where k = 3 and i > 0",
    "update a set n = $1, d = $2 where i = $3",
    "update a set n = n * $1 where i = $2",
    "update a set i = 10 / $1 where i = $2",
    "update a set t = 'z' where z < now() and i = $1",
    "update a set i = (select max(x) from b where b.k = $1) where i = $2",
    "update a set (i, t) = (select x, y from b where b.k = a.k and x = $1 limit 1) where i = $2",
    "update b set y = $1 from a where a.k = b.k and a.i = $2",
    "with w as (select k from b where x = $1) update a set s = 1 where k in (select k from w)",
    "update a set i = 5 where k in (select b.k from b where x = 2)",
    "update a set i = $1 where false",
    "update a set v = 'toolong' where k = 7 and i = 1",
    "delete from b where x = $1 and k > $2",
    "delete from b using a where a.k = b.k and a.i = $1",
    "delete from a where i = $1 and k > 30",
    "delete from b where k = 3",
    "insert into b select i, k, $1 from a where k = $2",
    "insert into b (x, k) select $1, $2",
    "insert into b (x, k) values ($1, $2 + 1)",
    "insert into b (k, x) values ((select max(i) from a), $1)",
    "insert into a (k, i, t) values ($1, $2, 'new') on conflict (k) \
     do update set i = excluded.i + 1, t = $3 returning k, i, t",
    "insert into a (k, i, v) values ($1, 1, 'v') on conflict (k) do update set i = a.i + $2 \
     where a.i < $3",
    "insert into a (k, i) select distinct k + 200, $1 from b where x = $2 and k is not null \
     on conflict do nothing",
    "merge into a using (select x, count(*) as n from b where k > $1 group by x) as s on a.k = s.x \
     when matched and s.n > 3 then delete when matched then update set i = $2 \
     when not matched and s.x is not null then insert (k, i) values (s.x, $2)",
    "insert into nothing values ($1)",
    "update a set nothing = 1",
];

/// All rows of the tables that they change.
const STATE: &str =
    "select k, i, s, l, t, v, c, n, d from a order by k; select * from b order by 1, 2, 3";

/// What happens between them.
const CHANGES: &[&str] = &[
    "insert into b values (3, 7, 'new'), (null, 3, null)",
    "delete from b where x = 3",
    "update a set i = i + 1 where k < 20",
    "alter table b add column w int default 5",
    "alter table b drop column w",
    "alter table b rename column y to yy",
    "alter table b rename column yy to y",
    "create or replace view seen as select a.k, a.i, b.y from a join b on a.k = b.k where a.i > 3",
    "create or replace view seen as select a.k, a.i, 'none' as y from a",
    "drop table b cascade; create table b (x int, k int, y text); insert into b values (1, 1, 'one')",
    "truncate b",
    "insert into b select g % 6, g, 'y' || g % 9 from generate_series(0, 30) as g",
    "create index b_x on b (x)",
    "drop index b_x",
    "alter table a alter column i type bigint",
    "alter table a alter column i type int",
    "set timezone = 'America/New_York'",
    "set timezone = 'UTC'",
    "set search_path = other, public",
    "set search_path = public",
    "alter table b rename to bb",
    "alter table bb rename to b",
    "discard plans",
    "analyze a",
];

impl Random {
    /// A value of a parameter, now and then NULL.
    fn parameter(&mut self, ty: ParameterType) -> Value {
        let is_null = self.below(12) == 0;
        let number = self.below(9) as i64 - 1;
        if is_null {
            return Value::Null;
        }
        match ty.carrier() {
            SqlType::SmallInt => Value::I16(number as i16),
            SqlType::Integer => Value::I32(number as i32),
            SqlType::BigInt => Value::I64(number),
            SqlType::Date => Value::I32(19_723 + number as i32 * 5),
            SqlType::Numeric { scale, .. } => {
                Value::I128(i128::from(number) * 10_i128.pow(u32::try_from(scale).unwrap()))
            }
            ty if ty.is_text() => {
                let texts = ["t1", "v2", "c1", "c1   ", "y3", "%1", "", "one", "5"];
                Value::Text(self.pick(&texts).into())
            }
            other => panic!("a parameter of type {other}"),
        }
    }
}

/// One of the two nodes.
struct Side {
    fixture: Fixture,
    session: Session,
    prepared: HashMap<(&'static str, Vec<u32>), Prepared>,
}

impl Side {
    fn new(mode: &str) -> Self {
        let fixture = Fixture::new();
        let mut session = fixture.session();
        fixture.ok(&mut session, TABLES);
        fixture.ok(&mut session, &format!("set plan_cache_mode = {mode}"));
        Self {
            fixture,
            session,
            prepared: HashMap::new(),
        }
    }

    fn run(&mut self, sql: &str) -> String {
        let session = &mut self.session;
        let answer = self.fixture.runtime.block_on(async {
            let mut seen = Vec::new();
            for statement in session.split(sql).await? {
                let outcome = session.execute(&statement).await;
                seen.push(told(session, outcome).await?);
            }
            Ok::<_, SqlError>(seen)
        });
        format!("{answer:?}")
    }

    /// Prepares a query, unless it is already, or is to be prepared again; says the types of
    /// its parameters.
    fn prepare(
        &mut self,
        sql: &'static str,
        oids: &[u32],
        again: bool,
    ) -> Result<Vec<ParameterType>, String> {
        let key = (sql, oids.to_vec());
        if again || !self.prepared.contains_key(&key) {
            let prepared = self.session.prepare(sql, oids);
            let prepared = self.fixture.runtime.block_on(prepared);
            let prepared = prepared.map_err(|error| {
                self.session.fail();
                format!("{error:?}")
            })?;
            self.prepared.insert(key.clone(), prepared);
        }
        Ok(self.prepared[&key].parameters.clone())
    }

    fn execute(&mut self, sql: &'static str, oids: &[u32], values: &Arc<[Value]>) -> String {
        let prepared = &self.prepared[&(sql, oids.to_vec())];
        let session = &mut self.session;
        let answer = self.fixture.runtime.block_on(async {
            let outcome = session.execute_prepared(prepared, values).await;
            told(session, outcome).await
        });
        format!("{answer:?}")
    }

    fn hits(&self) -> u64 {
        hits(&self.fixture)
    }
}

fn hits(fixture: &Fixture) -> u64 {
    let databases = fixture.engine.databases();
    databases
        .iter()
        .map(|database| database.plan_cache_hits)
        .sum()
}

/// What a client sees of an outcome.
async fn told(
    session: &mut Session,
    outcome: Result<Outcome, SqlError>,
) -> Result<Vec<String>, SqlError> {
    if outcome.is_err() {
        session.fail();
    }
    let outcome = outcome?;
    let columns = match &outcome {
        Outcome::Rows { columns, .. } => {
            columns.iter().map(|column| format!("{column:?}")).collect()
        }
        _ => Vec::new(),
    };
    let rows = rows_of(outcome).await;
    if rows.is_err() {
        session.fail();
    }
    let mut all = columns;
    all.extend(rows?);
    Ok(all)
}

#[test]
fn kept_plans_answer_as_new_ones() {
    for seed in 1..=3 {
        eprintln!("seed {seed}");
        let mut random = Random(seed);
        let mut sides = [Side::new("auto"), Side::new("force_custom_plan")];
        for step in 0..150 {
            let status = sides[0].session.status();
            let is_dml = random.below(3) == 0;
            let sql = random.pick(if is_dml { DML } else { QUERIES });
            let about = |sql: &str| format!("seed {seed}, step {step}\n{sql}");
            match random.below(16) {
                _ if status == TransactionStatus::Failed => {
                    assert_eq!(sides[0].run("rollback"), sides[1].run("rollback"));
                }
                0 | 1 => {
                    let change = match random.below(4) {
                        0 if status == TransactionStatus::Idle => "begin",
                        0 => random.pick(&["commit", "rollback"]),
                        _ => random.pick(CHANGES),
                    };
                    let [kept, anew] = sides.each_mut().map(|side| side.run(change));
                    assert_eq!(kept, anew, "{}", about(change));
                }
                2..7 if !sql.contains('$') => {
                    for _ in 0..4 {
                        let [kept, anew] = sides.each_mut().map(|side| side.run(sql));
                        assert_eq!(kept, anew, "{}", about(sql));
                    }
                }
                _ => {
                    // What the types follow from, and what drivers say by themselves.
                    let oids: &[u32] = match random.below(4) {
                        0 if sql.contains("$2") => &[20, 21],
                        _ => &[],
                    };
                    let again = random.below(5) == 0;
                    let [types, others] =
                        sides.each_mut().map(|side| side.prepare(sql, oids, again));
                    assert_eq!(types, others, "{}", about(sql));
                    let Ok(types) = types else { continue };
                    // As it was planned first, when it comes again, and from then on.
                    for _ in 0..4 {
                        let values: Arc<[Value]> =
                            types.iter().map(|&ty| random.parameter(ty)).collect();
                        let [kept, anew] = sides
                            .each_mut()
                            .map(|side| side.execute(sql, oids, &values));
                        assert_eq!(kept, anew, "{} {values:?}", about(sql));
                    }
                }
            }
            if is_dml && sides[0].session.status() != TransactionStatus::Failed {
                let [kept, anew] = sides.each_mut().map(|side| side.run(STATE));
                assert_eq!(kept, anew, "{}", about(sql));
            }
        }
        let [kept, anew] = &sides;
        assert!(kept.hits() > 100, "{} hits", kept.hits());
        assert_eq!(anew.hits(), 0);
    }
}

fn fixture() -> (Fixture, Session) {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(&mut session, TABLES);
    (fixture, session)
}

/// Runs a query until its plan is kept and found, and gives its rows.
fn warm(fixture: &Fixture, session: &mut Session, sql: &str) -> Vec<String> {
    fixture.ok(session, sql);
    let before = hits(fixture);
    let rows = fixture.ok(session, sql);
    assert_eq!(hits(fixture), before + 1, "{sql}");
    rows
}

#[test]
fn a_kept_plan_reads_what_is_there_now() {
    let (fixture, mut session) = fixture();
    let sql = "select count(*) from a join b on a.k = b.k where b.x = 1";
    let before: u64 = warm(&fixture, &mut session, sql)[0].parse().unwrap();
    fixture.ok(
        &mut session,
        "insert into b values (1, 1, 'more'), (1, 2, 'more')",
    );
    let sessions = hits(&fixture);
    assert_eq!(fixture.ok(&mut session, sql), [(before + 2).to_string()]);
    // It is the database's, not the session's.
    let mut other = fixture.session();
    assert_eq!(fixture.ok(&mut other, sql), [(before + 2).to_string()]);
    assert_eq!(hits(&fixture), sessions + 2);
    fixture.ok(&mut other, "begin isolation level repeatable read");
    fixture.ok(&mut other, sql);
    fixture.ok(&mut session, "delete from b");
    assert_eq!(fixture.ok(&mut other, sql), [(before + 2).to_string()]);
    assert_eq!(fixture.ok(&mut session, sql), ["0"]);
    // A table that a block has made is its own.
    fixture.ok(
        &mut other,
        "commit; begin; drop table b cascade; create table b (x int, k int); insert into b values (1, 1)",
    );
    let sessions = hits(&fixture);
    assert_eq!(fixture.ok(&mut other, sql), ["1"]);
    assert_eq!(hits(&fixture), sessions);
    fixture.ok(&mut other, "rollback");
    assert_eq!(fixture.ok(&mut session, sql), ["0"]);
}

#[test]
fn what_each_statement_is_told_is_told_anew() {
    let (fixture, mut session) = fixture();
    let sql = "select now(), clock_timestamp(), current_date from b limit 1";
    let first = warm(&fixture, &mut session, sql);
    assert_ne!(fixture.ok(&mut session, sql), first);
    let sql = "select current_setting('timezone'), z from a where k = 1 or k = 1 and i = 2";
    assert_eq!(fixture.ok(&mut session, sql), fixture.ok(&mut session, sql));
    fixture.ok(&mut session, "set timezone = 'Asia/Tokyo'");
    assert!(fixture.ok(&mut session, sql)[0].starts_with("Asia/Tokyo"));
    let sql = "select count(*) from a join b on a.k = b.k where z < '2024-01-01 12:00'";
    let tokyo = warm(&fixture, &mut session, sql);
    fixture.ok(&mut session, "set timezone = 'UTC'");
    let utc = warm(&fixture, &mut session, sql);
    assert_ne!(tokyo, utc);
    let sql = "select random() from b limit 1";
    assert_ne!(
        warm(&fixture, &mut session, sql),
        warm(&fixture, &mut session, sql)
    );
}

#[test]
fn rights_and_names_are_those_of_now() {
    let (fixture, mut session) = fixture();
    fixture.ok(
        &mut session,
        "create role guest login; grant connect on database aerostat to guest; \
         grant select on seen to guest; grant usage on schema other to guest",
    );
    let mut guest = fixture.engine.connect("guest", "aerostat", &[]).unwrap();
    let sql = "select count(*) from seen";
    let rows = warm(&fixture, &mut guest, sql);
    assert_eq!(warm(&fixture, &mut session, sql), rows);
    let tables = "select a.k from a, b where a.k = b.k and b.x = 1";
    warm(&fixture, &mut session, tables);
    assert_eq!(
        fixture.error(&mut guest, tables).message,
        "permission denied for table a"
    );
    fixture.ok(&mut session, "revoke select on seen from guest");
    let error = fixture.error(&mut guest, sql);
    assert_eq!(error.kind, ErrorKind::InsufficientPrivilege);
    warm(&fixture, &mut session, sql);
    // The view's owner may lose a right, too.
    fixture.ok(&mut session, "grant select on a, b to guest");
    warm(&fixture, &mut guest, tables);
    fixture.ok(&mut session, "revoke select on b from guest");
    assert_eq!(
        fixture.error(&mut guest, tables).message,
        "permission denied for table b"
    );

    let sql = "select y from b where k = 1 and x = 1";
    assert_eq!(warm(&fixture, &mut session, sql), ["y1"]);
    fixture.ok(&mut session, "set search_path = other, public");
    assert_eq!(warm(&fixture, &mut session, sql), ["other"]);
    fixture.ok(&mut session, "set search_path = public");
    assert_eq!(warm(&fixture, &mut session, sql), ["y1"]);
    fixture.ok(&mut session, "drop view seen; drop table b");
    assert_eq!(
        fixture.error(&mut session, sql).message,
        "relation \"b\" does not exist"
    );
}

#[test]
fn changes_are_kept_as_queries_are() {
    let (fixture, mut session) = fixture();
    let sql = "update b set x = x + 1 from a where a.k = b.k and a.i = 1";
    warm(&fixture, &mut session, sql);
    let x = "select min(x) from b join a on a.k = b.k where a.i = 1";
    let before: i64 = fixture.ok(&mut session, x)[0].parse().unwrap();
    let mut other = fixture.session();
    warm(&fixture, &mut other, sql);
    let after: i64 = fixture.ok(&mut session, x)[0].parse().unwrap();
    assert_eq!(after, before + 2);

    let upsert = "insert into a (k, i) select x, count(*) from b where x in (1, 2) group by x \
                  on conflict (k) do update set i = a.i + excluded.i, t = 'met' returning t";
    assert_eq!(warm(&fixture, &mut session, upsert), ["met", "met"]);
    fixture.ok(&mut session, "delete from a where k + 0 = 1");
    let before = hits(&fixture);
    let mut told = fixture.ok(&mut session, upsert);
    told.sort();
    assert_eq!(told, ["", "met"]);
    // A CHECK or a default that has come since is minded.
    fixture.ok(&mut session, "alter table a add check (i < 1000000)");
    fixture.ok(&mut session, upsert);
    assert_eq!(hits(&fixture), before + 1);
    fixture.ok(&mut session, "alter table a alter i set default 7");
    let insert = "insert into a (k) select 600 + count(*) from a where k >= 600 returning k, i";
    assert_eq!(warm(&fixture, &mut session, insert), ["601|7"]);
    // Numbers of sequences belong to their statement.
    fixture.ok(&mut session, "create table s (id serial, v int)");
    let insert = "insert into s (v) select 1 from b where k = 1 and x <> 3 limit 1 returning id";
    let before = hits(&fixture);
    assert_eq!(fixture.ok(&mut session, insert), ["1"]);
    assert_eq!(fixture.ok(&mut session, insert), ["2"]);
    assert_eq!(hits(&fixture), before);

    fixture.ok(
        &mut session,
        "create role guest login; grant connect on database aerostat to guest; \
         grant select, update on b to guest; grant select on a to guest",
    );
    let mut guest = fixture.engine.connect("guest", "aerostat", &[]).unwrap();
    warm(&fixture, &mut guest, sql);
    fixture.ok(&mut session, "revoke update on b from guest");
    let error = fixture.error(&mut guest, sql);
    assert_eq!(error.message, "permission denied for table b");
    warm(&fixture, &mut session, sql);
    fixture.ok(&mut session, "begin read only");
    assert_eq!(
        fixture.kind(&mut session, sql),
        ErrorKind::ReadOnlyTransaction
    );
    fixture.ok(&mut session, "rollback");
}

#[test]
fn a_dropped_table_is_not_held() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(
        &mut session,
        "create table t (k int, v text) with (layout = 'row'); \
         insert into t select g, repeat('x', 100) || g from generate_series(1, 20000) as g",
    );
    let used = |fixture: &Fixture| fixture.engine.databases()[0].memory_used;
    warm(
        &fixture,
        &mut session,
        "select count(*) from t where k <> 5 and v <> 'y'",
    );
    warm(
        &fixture,
        &mut session,
        "update t set v = 'y' where k + 0 = 5",
    );
    let before = used(&fixture);
    fixture.ok(&mut session, "drop table t");
    assert!(used(&fixture) < before - (1 << 20), "{before}");
}

#[test]
fn plans_are_kept_for_prepare_and_cursors_and_within_bounds() {
    let (fixture, mut session) = fixture();
    let query = "select count(*) from a join b on a.k = b.k";
    fixture.ok(&mut session, &format!("prepare p as {query}"));
    fixture.ok(&mut session, "execute p");
    let before = hits(&fixture);
    fixture.ok(&mut session, "execute p");
    fixture.ok(&mut session, query);
    fixture.ok(
        &mut session,
        &format!("begin; declare c cursor for {query}; fetch c; commit"),
    );
    assert_eq!(hits(&fixture), before + 3);
    // What fills in arguments is another statement.
    fixture.ok(
        &mut session,
        "prepare q as select count(*) from b where x = $1 and k <> 1",
    );
    let one = fixture.ok(&mut session, "execute q (1)");
    let two = fixture.ok(&mut session, "execute q (100)");
    assert_ne!(one, two);
    // EXPLAIN shows a plan made anew.
    fixture.ok(&mut session, &format!("explain {query}"));
    assert_eq!(hits(&fixture), before + 3);

    // 512 plans at most: the first has gone when as many others have come.
    for number in 0..520 {
        fixture.ok(
            &mut session,
            &format!("select y from b where x = 1 and k = 3 limit {number}"),
        );
    }
    let before = hits(&fixture);
    fixture.ok(&mut session, query);
    assert_eq!(hits(&fixture), before);
    fixture.ok(
        &mut session,
        "select y from b where x = 1 and k = 3 limit 519",
    );
    assert_eq!(hits(&fixture), before + 1);
    fixture.ok(&mut session, "set plan_cache_mode = force_custom_plan");
    fixture.ok(&mut session, query);
    assert_eq!(hits(&fixture), before + 1);
    assert_eq!(
        fixture.kind(&mut session, "set plan_cache_mode = never"),
        ErrorKind::InvalidParameterValue
    );
}
