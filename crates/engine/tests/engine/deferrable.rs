//! Deferrable constraints: a model with random transactions, and threads that race for keys.

use std::collections::BTreeMap;

use crate::common::{Fixture, run};
use aerostat_api::Group;
use aerostat_engine::Session;
use aerostat_types::ErrorKind;

/// A generator whose numbers a seed fixes: PCG's multiplier and increment.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> i64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % end) as i64
    }
}

/// Parents `p (id, k)` and children `c (id, pid)`, by id.
#[derive(Clone, Default, PartialEq, Debug)]
struct Rows {
    parents: BTreeMap<i64, i64>,
    children: BTreeMap<i64, i64>,
}

impl Rows {
    /// Which constraint they break, if they break one.
    fn broken(&self) -> Option<ErrorKind> {
        let mut keys: Vec<i64> = self.parents.values().copied().collect();
        keys.sort_unstable();
        if keys.windows(2).any(|pair| pair[0] == pair[1]) {
            return Some(ErrorKind::UniqueViolation);
        }
        let refers = |pid: &i64| self.parents.contains_key(pid);
        (!self.children.values().all(refers)).then_some(ErrorKind::ForeignKeyViolation)
    }

    /// Both, if both are broken.
    fn all_broken(&self) -> Vec<ErrorKind> {
        let refers = |pid: &i64| self.parents.contains_key(pid);
        let foreign =
            (!self.children.values().all(refers)).then_some(ErrorKind::ForeignKeyViolation);
        let unique = self
            .broken()
            .filter(|kind| *kind == ErrorKind::UniqueViolation);
        unique.into_iter().chain(foreign).collect()
    }

    /// Does a random statement, and tells it.
    fn change(&mut self, random: &mut Random) -> String {
        let id = random.below(6);
        match random.below(6) {
            0 => {
                let k = random.below(6);
                if self.parents.insert(id, k).is_some() {
                    return format!("update p set k = {k} where id = {id}");
                }
                format!("insert into p values ({id}, {k})")
            }
            1 => {
                self.parents.remove(&id);
                format!("delete from p where id = {id}")
            }
            2 => {
                let by = random.below(2) + 1;
                self.parents.values_mut().for_each(|k| *k += by);
                format!("update p set k = k + {by}")
            }
            3 => {
                self.children.remove(&id);
                format!("delete from c where id = {id}")
            }
            _ => {
                let pid = random.below(6);
                if self.children.insert(id, pid).is_some() {
                    return format!("update c set pid = {pid} where id = {id}");
                }
                format!("insert into c values ({id}, {pid})")
            }
        }
    }
}

fn rows(fixture: &Fixture, session: &mut Session) -> Rows {
    let mut read = |sql: &str| -> BTreeMap<i64, i64> {
        let lines = fixture.ok(session, sql);
        let pairs = lines.iter().map(|line| {
            let (key, value) = line.split_once('|').unwrap();
            (key.parse().unwrap(), value.parse().unwrap())
        });
        pairs.collect()
    };
    Rows {
        parents: read("select id, k from p"),
        children: read("select id, pid from c"),
    }
}

/// Transactions with savepoints: they commit just when what they leave is right.
#[test]
fn a_transaction_commits_if_its_end_is_right() {
    for seed in 0..6 {
        let mut random = Random(seed);
        let fixture = Fixture::new();
        let mut session = fixture.session();
        let key = match seed % 2 {
            0 => "k int unique deferrable initially deferred",
            _ => "k int, constraint kk unique (k) deferrable initially deferred",
        };
        fixture.ok(
            &mut session,
            &format!(
                "create table p (id int primary key, {key});
                 create table c (id int primary key,
                     pid int references p deferrable initially deferred)"
            ),
        );
        let (mut committed, mut commits, mut failures) = (Rows::default(), 0, 0);
        for step in 0..120 {
            let mut now = committed.clone();
            let mut told = vec!["begin".to_owned()];
            let mut saved: Option<Rows> = None;
            for _ in 0..random.below(6) + 1 {
                match random.below(8) {
                    0 => {
                        saved = Some(now.clone());
                        told.push("savepoint s".to_owned());
                    }
                    1 if saved.is_some() => {
                        now = saved.clone().unwrap();
                        told.push("rollback to s".to_owned());
                    }
                    2 if now.broken().is_none() => {
                        told.push("set constraints all immediate".to_owned());
                        told.push("set constraints all deferred".to_owned());
                    }
                    _ => told.push(now.change(&mut random)),
                }
            }
            for sql in &told {
                fixture.run(&mut session, sql).unwrap_or_else(|error| {
                    panic!("seed {seed}, step {step}: {told:?}: {error:?}")
                });
            }
            let ended = fixture.run(&mut session, "commit");
            match (ended, now.all_broken()) {
                (Ok(_), broken) if broken.is_empty() => {
                    commits += 1;
                    committed = now;
                }
                (Err(error), broken) if broken.contains(&error.kind) => failures += 1,
                (ended, broken) => {
                    panic!("seed {seed}, step {step}: {told:?}: {ended:?}, but {broken:?}")
                }
            }
            let there = rows(&fixture, &mut session);
            assert_eq!(there, committed, "seed {seed}, step {step}: {told:?}");
        }
        assert!(commits > 10 && failures > 10, "seed {seed}");
    }
}

/// Sessions that put checks off and sessions that do not write the same few keys: no key is
/// there twice when all have ended.
#[test]
fn no_two_commit_a_key() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(
        &mut session,
        "create table t (id int primary key, k int unique deferrable)",
    );
    let tasks: Vec<_> = (0..4)
        .map(|number: i64| {
            let mut session = fixture.session();
            fixture.runtime.spawn(async move {
                let mut random = Random(number as u64);
                let mut commits = 0;
                for step in 0..60 {
                    let id = number * 1_000 + step;
                    let key = random.below(40);
                    let begin = match number % 2 {
                        0 => "begin; set constraints all deferred",
                        _ => "begin",
                    };
                    run(&mut session, begin).await.unwrap();
                    let insert = format!("insert into t values ({id}, {key})");
                    let inserted = run(&mut session, &insert).await;
                    let ended = run(&mut session, "commit").await;
                    for result in [&inserted, &ended] {
                        let kind = result.as_ref().err().map(|error| error.kind);
                        assert!(
                            matches!(
                                kind,
                                None | Some(
                                    ErrorKind::UniqueViolation | ErrorKind::DeadlockDetected
                                )
                            ),
                            "{result:?}"
                        );
                    }
                    commits += usize::from(inserted.is_ok() && ended.is_ok());
                }
                commits
            })
        })
        .collect();
    let commits: usize = tasks
        .into_iter()
        .map(|task| fixture.runtime.block_on(task).unwrap())
        .sum();
    let counted = fixture.ok(&mut session, "select count(*), count(distinct k) from t");
    assert_eq!(counted, [format!("{commits}|{commits}")]);
}

/// COMMIT asks for the rows there are then, whoever has taken them away.
#[test]
fn others_may_break_what_waits() {
    let fixture = Fixture::new();
    let (mut one, mut other) = (fixture.session(), fixture.session());
    fixture.ok(
        &mut one,
        "create table p (id int primary key, k int unique deferrable initially deferred);
         create table c (id int primary key, pid int references p deferrable initially deferred);
         insert into p values (1, 1), (2, 2)",
    );
    fixture.ok(&mut one, "begin; insert into c values (1, 1)");
    fixture.ok(&mut other, "delete from p where id = 1");
    let error = fixture.error(&mut one, "commit");
    assert_eq!(error.kind, ErrorKind::ForeignKeyViolation);
    assert_eq!(
        error.message,
        "insert or update on table \"c\" violates foreign key constraint \"c_pid_fkey\""
    );
    assert_eq!(fixture.ok(&mut one, "select count(*) from c"), ["0"]);
    fixture.ok(&mut one, "begin; insert into p values (3, 3)");
    fixture.ok(&mut other, "insert into p values (4, 4)");
    fixture.ok(&mut one, "update p set k = 4 where id = 3");
    let error = fixture.error(&mut one, "commit");
    assert_eq!(error.kind, ErrorKind::UniqueViolation);
    assert_eq!(error.constraint.as_deref(), Some("p_k_key"));
    assert_eq!(error.detail.as_deref(), Some("Key (k)=(4) already exists."));
    // A statement of its own has no end to wait for.
    let alone = fixture.kind(&mut one, "insert into p values (5, 4)");
    assert_eq!(alone, ErrorKind::UniqueViolation);
}

/// Values mean something as long as their table is what it was.
#[test]
fn a_table_that_checks_wait_for_stays_as_it_is() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(
        &mut session,
        "create table p (id int primary key);
         create table c (id int primary key, pid int references p deferrable initially deferred)",
    );
    for (sql, word) in [
        ("alter table c drop constraint c_pid_fkey", "ALTER TABLE"),
        ("truncate c", "TRUNCATE"),
        ("drop table c", "DROP TABLE"),
    ] {
        fixture.ok(&mut session, "begin; insert into c values (1, 1)");
        let refused = fixture.error(&mut session, sql);
        assert_eq!(refused.kind, ErrorKind::ObjectInUse);
        assert_eq!(
            refused.message,
            format!("cannot {word} \"c\" because it has pending trigger events")
        );
        fixture.ok(&mut session, "rollback");
    }
    fixture.ok(
        &mut session,
        "begin; insert into c values (1, 1); delete from c; commit",
    );
    fixture.ok(&mut session, "drop table c");
}

/// Statements of a group are one transaction, whose end is a COMMIT.
#[test]
fn the_end_of_a_group_checks_too() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(
        &mut session,
        "create table t (id int primary key deferrable initially deferred)",
    );
    fixture.ok(&mut session, "insert into t values (1)");
    session.begin_group(Group::Message);
    fixture.ok(&mut session, "insert into t values (1)");
    let ended = fixture.runtime.block_on(session.end_group());
    assert_eq!(ended.unwrap_err().kind, ErrorKind::UniqueViolation);
    assert_eq!(fixture.ok(&mut session, "select count(*) from t"), ["1"]);
    session.begin_group(Group::Message);
    fixture.ok(&mut session, "insert into t values (1)");
    fixture.ok(&mut session, "delete from t");
    fixture.ok(&mut session, "insert into t values (2)");
    fixture.runtime.block_on(session.end_group()).unwrap();
    assert_eq!(fixture.ok(&mut session, "select id from t"), ["2"]);
}
