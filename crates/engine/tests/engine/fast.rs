//! The fast path against the planner's way: the same statements on two nodes, one of them
//! with `enable_fast_path = off`, give the same rows, columns and errors.

mod rows;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use crate::common::{Fixture, Random, rows_of};
use aerostat_api::{Outcome, ParameterType, TransactionStatus, Value};
use aerostat_engine::Session;
use aerostat_types::{ErrorKind, SqlError, SqlType};
use arrow::datatypes::IntervalMonthDayNano;

/// Of the fast path's own way.
const FUTURE_BYTES_MAX: usize = 4_096;

const TABLES: &str = "
    create table plain (
        k int primary key, s smallint, i int not null default 7, l bigint,
        c char(5) default 'ab', v varchar(6), t text, n numeric(8, 2) default 1.5, d date,
        b boolean,
        check (i < 1000), constraint positive check (n >= 0 and l <> 13)
    );
    create table keyed (a text, b smallint, x int, primary key (a, b));
    create table loose (x int, y text);
    create table stamped (k int primary key, ts timestamp default current_timestamp, tz timestamptz);
    create unique index plain_l on plain (l);
    create index plain_t on plain (t, i);
    create index loose_x on loose using hash (x);
    create view seen as select k, i from plain";

impl Random {
    fn number(&mut self) -> String {
        match self.below(24) {
            0 => "null".to_owned(),
            1 => "-1".to_owned(),
            2 => "32767".to_owned(),
            3 => "3000000000".to_owned(),
            4 => "'12'".to_owned(),
            5 => "1.25".to_owned(),
            6 => "1.125".to_owned(),
            7 => "13".to_owned(),
            _ => self.below(40).to_string(),
        }
    }

    fn text(&mut self) -> &'static str {
        self.pick(&[
            "null",
            "'a'",
            "'ab   '",
            "'it''s'",
            "'abcdefg'",
            "''",
            "'äöü'",
            "'2024-02-29'",
            "5",
        ])
    }

    fn scalar(&mut self) -> String {
        match self.below(7) {
            0 => format!("i + {}", self.number()),
            1 => format!("s * {}", self.number()),
            2 => "l - i".to_owned(),
            3 => "i * 2 + s".to_owned(),
            4 => "default".to_owned(),
            _ => self.number(),
        }
    }

    fn assignment(&mut self) -> String {
        match self.below(9) {
            0 => format!("s = {}", self.scalar()),
            1 => format!("i = {}", self.scalar()),
            2 => format!("l = {}", self.scalar()),
            3 => format!("c = {}", self.text()),
            4 => format!("v = {}", self.text()),
            5 => format!("t = {}", self.text()),
            6 => format!("n = {}", self.number()),
            7 => format!("k = {}", self.scalar()),
            _ => "i = i + 1, t = 'moved'".to_owned(),
        }
    }

    fn conditions(&mut self) -> String {
        let key = match self.below(8) {
            3 => format!("l = {}", self.number()),
            4 => format!("t = {} and s = {}", self.text(), self.number()),
            0 => {
                let low = self.below(40);
                format!("k between {low} and {}", low + self.below(15))
            }
            1 => format!("k >= {} and k < {}", self.below(40), self.below(60)),
            2 => format!("{} = k", self.number()),
            _ => format!("k = {}", self.below(40)),
        };
        match self.below(6) {
            0 => format!("{key} and i > {}", self.number()),
            1 => format!("{key} and t = {}", self.text()),
            2 => format!("v <> {} and {key}", self.text()),
            3 => format!("{key} and (n >= 1 and l is not null)"),
            _ => key,
        }
    }

    fn returning(&mut self) -> &'static str {
        self.pick(&[
            "",
            "",
            " returning k, i",
            " returning *",
            " returning i + 1 as next, t",
            " returning c",
        ])
    }

    fn statement(&mut self) -> String {
        match self.below(16) {
            0..=3 => {
                let row = |random: &mut Self| {
                    format!(
                        "({}, {}, {})",
                        random.below(40),
                        random.number(),
                        random.text()
                    )
                };
                let columns = self.pick(&[
                    "k, i, t", "k, l, v", "k, s, c", "k, n, t", "k, i, d", "i, k, t",
                ]);
                let mut rows = row(self);
                if self.below(3) == 0 {
                    rows = format!("{rows}, {}", row(self));
                }
                let returning = self.returning();
                format!("insert into plain ({columns}) values {rows}{returning}")
            }
            4 => format!(
                "insert into plain values ({}, 1, default, {})",
                self.below(40),
                self.below(900)
            ),
            5 => {
                let (text, number) = (self.text(), self.number());
                format!("insert into keyed values ({text}, {number}, 1)")
            }
            6 if self.below(4) == 0 => {
                let k = self.below(40);
                format!("insert into stamped (k, tz) values ({k}, now())")
            }
            6 => format!(
                "insert into loose values ({}, {})",
                self.number(),
                self.text()
            ),
            7..=9 => {
                let (assignment, conditions) = (self.assignment(), self.conditions());
                format!(
                    "update plain set {assignment} where {conditions}{}",
                    self.returning()
                )
            }
            10 => format!(
                "delete from plain where {}{}",
                self.conditions(),
                self.returning()
            ),
            11 if self.below(2) == 0 => {
                let number = self.number();
                let order = self.pick(&[
                    "select x, y from loose where x = {} order by y",
                    "update loose set y = 'seen' where x = {}",
                    "delete from loose where x = {}",
                ]);
                order.replace("{}", &number)
            }
            11 => {
                let (text, number) = (self.text(), self.number());
                format!("select x, b, a from keyed where a = {text} and b = {number}")
            }
            12 => format!(
                "select sum(i), sum(s), count(*), count(l), min(k), max(d) from plain where {}",
                self.conditions()
            ),
            13 => {
                let column = self.pick(&["c", "i", "t", "v", "n"]);
                format!(
                    "select distinct {column} from plain where {} order by {column}",
                    self.conditions()
                )
            }
            14 => {
                let order = self.pick(&["k", "i desc, k", "t, k desc", "c, k", "n desc, k"]);
                let limit = self.pick(&["", " limit 3", " limit 0"]);
                format!(
                    "select k, i as t, n from plain where {} order by {order}{limit}",
                    self.conditions()
                )
            }
            _ => {
                let list = self.pick(&[
                    "k, s, i, l, c, v, t, n, d, b",
                    "i + 1, -5 + s, k * 1000000000",
                    "i as a, plain.k",
                    "seen.k",
                ]);
                let table = self.pick(&["plain", "plain p", "seen"]);
                format!(
                    "select {list} from {table} where {} order by k",
                    self.conditions()
                )
            }
        }
    }
}

/// What a client would see of a statement.
fn answer(fixture: &Fixture, session: &mut Session, sql: &str) -> Result<Vec<String>, SqlError> {
    fixture.runtime.block_on(async {
        let mut seen = Vec::new();
        for statement in session.split(sql).await? {
            let outcome = session.execute(&statement).await;
            if outcome.is_err() {
                session.fail();
            }
            let outcome = outcome?;
            if let Outcome::Rows { columns, tag, .. } = &outcome {
                seen.push(format!("{columns:?} {tag:?}"));
            }
            let mut rows = rows_of(outcome).await?;
            if sql.contains("returning") {
                // They come as they were found.
                rows.sort();
            }
            seen.extend(rows);
        }
        Ok(seen)
    })
}

fn sides() -> [(Fixture, Session); 2] {
    ["on", "off"].map(|fast_path| {
        let fixture = Fixture::new();
        let mut session = fixture.session();
        fixture.ok(&mut session, TABLES);
        fixture.ok(&mut session, &format!("set enable_fast_path = {fast_path}"));
        (fixture, session)
    })
}

#[test]
fn both_ways_answer_alike() {
    for seed in 1..=4 {
        eprintln!("seed {seed}");
        let mut random = Random(seed);
        let mut sides = sides();
        let mut in_block = false;
        for _ in 0..400 {
            let has_failed = sides[0].1.status() == TransactionStatus::Failed;
            let sql = match random.below(30) {
                0..15 if has_failed => random.pick(&["rollback", "rollback to a"]).to_owned(),
                0 if !in_block => "begin".to_owned(),
                0 => random.pick(&["commit", "rollback"]).to_owned(),
                1 if in_block => random.pick(&["savepoint a", "rollback to a"]).to_owned(),
                2 => "select * from plain where k between 0 and 100 and i < 10000 order by k"
                    .to_owned(),
                _ => random.statement(),
            };
            // The lengths of texts are lost on the planner's way.
            let sql = sql.replace("returning *", "returning k, i, l, t, n, d");
            let [on, off] = &mut sides;
            let (fast, slow) = (
                answer(&on.0, &mut on.1, &sql),
                answer(&off.0, &mut off.1, &sql),
            );
            let told = |answer: &Result<Vec<String>, SqlError>| format!("{answer:?}");
            assert_eq!(told(&fast), told(&slow), "seed {seed}\n{sql}");
            assert_eq!(on.1.status(), off.1.status(), "seed {seed}\n{sql}");
            in_block = on.1.status() != TransactionStatus::Idle;
        }
        let [on, off] = &sides;
        assert!(
            on.1.fast_statements() > 50,
            "{} took the fast path",
            on.1.fast_statements()
        );
        assert_eq!(off.1.fast_statements(), 0);
    }
}

impl Random {
    /// A value of a type, now and then NULL.
    fn value_of(&mut self, ty: SqlType) -> Value {
        let number = self.below(2_000) as i32 - 1_000;
        if self.below(6) == 0 {
            return Value::Null;
        }
        match ty {
            SqlType::Boolean => Value::Bool(number > 0),
            SqlType::SmallInt => Value::I16(number as i16),
            SqlType::Integer | SqlType::Date => Value::I32(number),
            SqlType::BigInt | SqlType::Timestamp | SqlType::TimestampTz => {
                Value::I64(i64::from(number) << 32)
            }
            SqlType::Time => Value::I64(i64::from(number.unsigned_abs()) * 1_000_003),
            SqlType::Numeric { .. } => Value::I128(i128::from(number) * 1_003),
            SqlType::Real => Value::F32(number as f32 / 8.0),
            SqlType::Double => Value::F64(f64::from(number) / 64.0),
            SqlType::Uuid => Value::Uuid([number as u8; 16]),
            SqlType::Interval => Value::Interval(IntervalMonthDayNano {
                months: number,
                days: 2,
                nanoseconds: i64::from(number) * 1_000,
            }),
            SqlType::Bytea => Value::Bytes(number.to_be_bytes().into()),
            SqlType::Char(_) | SqlType::Varchar(_) | SqlType::Text => Value::Text(
                self.pick(&["", "a", "ab ", "äöü", "longer than most"])
                    .into(),
            ),
        }
    }
}

/// Parameters and rows have the same values whichever way they take.
#[test]
fn values_are_alike_both_ways() {
    let columns = "b boolean, s smallint, i int, l bigint, r real, d double precision,
        n numeric(9, 2), w numeric(30, 4), c char(4), v varchar(5), t text, y bytea, u uuid,
        da date, ti time, ts timestamp, tz timestamptz, iv interval";
    let create = format!("create table every (k int primary key, {columns})");
    let numbered: Vec<String> = (1..=19).map(|n| format!("${n}")).collect();
    let insert = format!("insert into every values ({})", numbered.join(", "));
    let select = "select * from every where k = $1";
    for seed in 1..=3 {
        eprintln!("seed {seed}");
        let answers = sides().map(|(fixture, mut session)| {
            let mut random = Random(seed);
            fixture.ok(&mut session, &create);
            fixture.runtime.block_on(async {
                let mut answers = Vec::new();
                let insert = session.prepare(&insert, &[]).await.unwrap();
                let select = session.prepare(select, &[]).await.unwrap();
                for key in 0..40 {
                    let others = insert.parameters[1..].iter();
                    let others = others.map(|ty| random.value_of(ty.carrier()));
                    let values: Arc<[Value]> =
                        std::iter::once(Value::I32(key)).chain(others).collect();
                    let key = [Value::I32(key)].into();
                    let done = session.execute_prepared(&insert, &values).await;
                    answers.push(format!("{:?}", done.err()));
                    let rows = session.execute_prepared(&select, &key).await.unwrap();
                    answers.push(format!("{:?}", rows_of(rows).await));
                }
                (answers, session.fast_statements())
            })
        });
        let [(fast, taken), (slow, none)] = answers;
        assert_eq!(fast, slow, "seed {seed}");
        assert!(taken > 40, "{taken} took the fast path");
        assert_eq!(none, 0);
    }
}

/// What a connection waits for is part of its own future, and made anew for every statement: whatever
/// a short one does not need has its place on the heap.
#[test]
fn a_short_statement_takes_little_room() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(&mut session, "create table t (k int primary key)");
    let text = "select k from t where k = $1";
    let prepared = fixture
        .runtime
        .block_on(session.prepare(text, &[]))
        .unwrap();
    let parameters = [Value::I32(1)].into();
    let bytes = size_of_val(&session.execute_prepared(&prepared, &parameters));
    assert!(bytes <= FUTURE_BYTES_MAX, "{bytes}");
    let split = session.split("select k from t where k = 1");
    let statements = fixture.runtime.block_on(split).unwrap();
    let bytes = size_of_val(&session.execute(&statements[0]));
    assert!(bytes <= FUTURE_BYTES_MAX, "{bytes}");
}

#[test]
fn prepared_statements_are_bound_anew_when_the_table_is_another() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(
        &mut session,
        "create table t (k int primary key, v text); insert into t values (1, 'one')",
    );
    let prepare = |session: &mut Session, text: &str| {
        fixture
            .runtime
            .block_on(session.prepare(text, &[]))
            .unwrap()
    };
    let select = prepare(&mut session, "select v from t where k = $1");
    let run = |session: &mut Session, key: i32| {
        let parameters = [Value::I32(key)].into();
        fixture.runtime.block_on(async {
            rows_of(session.execute_prepared(&select, &parameters).await?).await
        })
    };
    assert_eq!(run(&mut session, 1).unwrap(), ["one"]);
    assert_eq!(run(&mut session, 2).unwrap(), [""; 0]);
    assert_eq!(session.fast_statements(), 2);
    fixture.ok(&mut session, "drop table t; create table t (k int primary key, v text); insert into t values (1, 'another')");
    assert_eq!(run(&mut session, 1).unwrap(), ["another"]);
    fixture.ok(&mut session, "drop table t");
    assert_eq!(
        run(&mut session, 1).unwrap_err().message,
        "relation \"t\" does not exist"
    );
    // A view of the name is the planner's.
    fixture.ok(&mut session, "create table u (k int, v text); insert into u values (1, 'seen'); create view t as select * from u");
    assert_eq!(run(&mut session, 1).unwrap(), ["seen"]);
}

#[test]
fn texts_prepared_again_are_not_planned_again_but_follow_the_catalogue() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(
        &mut session,
        "create table t (k int primary key, v varchar(3))",
    );
    let text = "insert into t values ($1, $2)";
    for key in 0..3 {
        let prepared = fixture
            .runtime
            .block_on(session.prepare(text, &[]))
            .unwrap();
        let parameters = [Value::I32(key), Value::Text("abc ".into())].into();
        let outcome = fixture
            .runtime
            .block_on(session.execute_prepared(&prepared, &parameters))
            .unwrap();
        assert!(matches!(outcome, Outcome::Command { tag } if tag == "INSERT 0 1"));
    }
    assert_eq!(session.fast_statements(), 3);
    fixture.ok(
        &mut session,
        "drop table t; create table t (k bigint primary key, v varchar(3))",
    );
    let prepared = fixture
        .runtime
        .block_on(session.prepare(text, &[]))
        .unwrap();
    assert_eq!(
        prepared.parameters[0],
        ParameterType::Value(SqlType::BigInt)
    );
}

#[test]
fn rights_are_asked_again_when_they_change() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(
        &mut session,
        "create table t (k int primary key); insert into t values (1)",
    );
    fixture.ok(&mut session, "create role guest login; grant select on t to guest; grant connect on database aerostat to guest");
    let mut guest = fixture.engine.connect("guest", "aerostat", &[]).unwrap();
    let sql = "select k from t where k = 1";
    assert_eq!(fixture.ok(&mut guest, sql), ["1"]);
    assert_eq!(fixture.ok(&mut guest, sql), ["1"]);
    assert_eq!(guest.fast_statements(), 2);
    fixture.ok(&mut session, "revoke select on t from guest");
    assert_eq!(
        fixture.error(&mut guest, sql).message,
        "permission denied for table t"
    );
    assert_eq!(
        fixture
            .error(&mut guest, "delete from t where k = 1")
            .message,
        "permission denied for table t"
    );
    fixture.ok(&mut session, "begin read only");
    assert_eq!(
        fixture
            .error(&mut session, "delete from t where k = 1")
            .message,
        "cannot execute DELETE in a read-only transaction"
    );
}

#[test]
fn writers_of_one_row_wait_for_each_other() {
    let fixture = Arc::new(Fixture::new());
    let mut session = fixture.session();
    fixture.ok(
        &mut session,
        "create table t (k int primary key, v int); insert into t values (1, 0)",
    );
    let (clients, rounds) = (4, 50);
    let threads: Vec<_> = (0..clients)
        .map(|client| {
            let fixture = Arc::clone(&fixture);
            std::thread::spawn(move || {
                let mut session = fixture.session();
                for round in 0..rounds {
                    if (client + round) % 2 == 0 {
                        fixture.ok(&mut session, "begin");
                        fixture.ok(&mut session, "update t set v = v + 1 where k = 1");
                        fixture.ok(&mut session, "commit");
                    } else {
                        fixture.ok(&mut session, "update t set v = v + 1 where k = 1");
                    }
                }
                session.fast_statements()
            })
        })
        .collect();
    let fast: u64 = threads
        .into_iter()
        .map(|thread| thread.join().unwrap())
        .sum();
    assert_eq!(fast, (clients * rounds) as u64);
    assert_eq!(
        fixture.ok(&mut session, "select v from t where k = 1"),
        [(clients * rounds).to_string()]
    );
}

/// A write that meets another's runs on, waiting, with the session's limits.
#[test]
fn waits_end_at_their_limits() {
    let fixture = Fixture::new();
    let (mut holder, mut waiter) = (fixture.session(), fixture.session());
    fixture.ok(
        &mut holder,
        "create table t (k int primary key, v int); insert into t values (1, 0); begin; \
         update t set v = 1 where k = 1",
    );
    let update = "update t set v = 2 where k = 1";
    fixture.ok(&mut waiter, "set lock_timeout = '5ms'");
    let error = fixture.error(&mut waiter, update);
    assert_eq!(
        (error.kind, &*error.message),
        (
            ErrorKind::LockNotAvailable,
            "canceling statement due to lock timeout"
        )
    );
    fixture.ok(
        &mut waiter,
        "set lock_timeout = 0; set statement_timeout = '5ms'",
    );
    let error = fixture.error(&mut waiter, update);
    assert_eq!(
        (error.kind, &*error.message),
        (
            ErrorKind::QueryCanceled,
            "canceling statement due to statement timeout"
        )
    );
    fixture.ok(&mut waiter, "set statement_timeout = 0");
    let cancel = waiter.cancel_handle();
    let over = AtomicBool::new(false);
    let error = std::thread::scope(|scope| {
        scope.spawn(|| {
            // A cancel that comes before the wait does nothing.
            while !over.load(Ordering::Relaxed) {
                cancel.cancel();
                std::thread::yield_now();
            }
        });
        let error = fixture.error(&mut waiter, update);
        over.store(true, Ordering::Relaxed);
        error
    });
    assert_eq!(
        (error.kind, &*error.message),
        (
            ErrorKind::QueryCanceled,
            "canceling statement due to user request"
        )
    );
    fixture.ok(&mut holder, "commit");
    assert_eq!(fixture.ok(&mut waiter, update), ["UPDATE 1"]);
}
