//! Sessions on a copy of a database whose changes another node takes: what is refused, what is not, and what
//! changes when the node takes over.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use aerostat_api::{Group, Outcome};
use aerostat_catalog::{CopyFacts, CopyState, Database, Order, PeerFacts};
use aerostat_engine::Session;
use aerostat_types::{CommitTs, Epoch, ErrorKind, NodeId, SqlError};
use common::{Fixture, rows_of};
use futures::StreamExt;

/// A database as a node has it that copies it.
struct Copied {
    fixture: Fixture,
    copy: Arc<CopyState>,
    database: Arc<Database>,
}

impl Copied {
    fn new() -> Self {
        let fixture = Fixture::new();
        let mut session = fixture.session();
        fixture.ok(
            &mut session,
            "create table t (k int primary key, v int); \
             insert into t select g, g * 10 from generate_series(1, 100) as g; \
             create table s (k int primary key, name text); \
             insert into s values (1, 'a'), (2, 'b'); \
             create table d (k serial primary key, v int default 7); \
             create sequence n; \
             create view w as select k, v from t; \
             select nextval('n'), nextval('n'); \
             create role guest login; grant connect on database aerostat to guest; \
             create role keeper login; grant connect on database aerostat to keeper; \
             grant aerostat_operator to keeper",
        );
        let copy = Arc::new(CopyState::new(NodeId(2)));
        copy.set_shown();
        let served = fixture.engine.node().database("aerostat").unwrap();
        let database = served.as_copy(Arc::clone(&copy));
        Self {
            fixture,
            copy,
            database,
        }
    }

    fn session(&self) -> Session {
        self.session_of("aerostat")
    }

    fn session_of(&self, role: &str) -> Session {
        let engine = &self.fixture.engine;
        engine.connect_to(role, &self.database, &[]).unwrap()
    }

    /// What would change if anything did: rows, catalogue, and bytes of the log.
    fn state(&self, session: &mut Session) -> (Vec<String>, u64, u64) {
        let rows = "select 't', count(*), sum(v) from t union all select 's', count(*), sum(k) from s \
                    union all select 'd', count(*), sum(k) from d order by 1";
        let mut rows = self.fixture.ok(session, rows);
        rows.extend(
            self.fixture
                .ok(session, "select last_value, is_called from n"),
        );
        rows.extend(self.fixture.ok(
            session,
            "select relname from pg_class where relkind in ('r', 'v', 'S', 'i') and relnamespace = 2200 \
             order by 1",
        ));
        let store = &self.database.store;
        (
            rows,
            store.log_bytes_written(),
            store.txns().last_commit().0,
        )
    }
}

/// Statements, and the word by which they are refused.
const REFUSED: [(&str, &str); 52] = [
    ("insert into t values (500, 1)", "INSERT"),
    ("insert into t (k, v) values (501, 1), (502, 1)", "INSERT"),
    ("insert into t select k + 900, v from t", "INSERT"),
    (
        "insert into t values (1, 1) on conflict (k) do nothing",
        "INSERT",
    ),
    (
        "insert into t values (1, 1) on conflict (k) do update set v = 0",
        "INSERT",
    ),
    ("insert into t values (503, 1) returning k", "INSERT"),
    ("insert into d (v) values (1)", "INSERT"),
    ("insert into d default values", "INSERT"),
    ("update t set v = 1 where k = 1", "UPDATE"),
    ("update t set v = v + 1", "UPDATE"),
    ("update t set v = 1 where k = -1", "UPDATE"),
    (
        "update t set v = s.k from s where s.k = t.k returning t.v",
        "UPDATE",
    ),
    ("delete from t where k = 1", "DELETE"),
    ("delete from t", "DELETE"),
    (
        "merge into t using s on s.k = t.k when matched then delete",
        "MERGE",
    ),
    (
        "with x as (delete from t returning k) select * from x",
        "SELECT",
    ),
    ("with x as (select 1) insert into t select 600, 1", "INSERT"),
    (
        "with x as (insert into t values (601, 1) returning k) update s set name = 'x'",
        "UPDATE",
    ),
    ("select * from t for update", "SELECT FOR UPDATE"),
    (
        "select k from t where k = 1 for update",
        "SELECT FOR UPDATE",
    ),
    (
        "select k from t where k = -1 for no key update skip locked",
        "SELECT FOR NO KEY UPDATE",
    ),
    ("select k from t for share nowait", "SELECT FOR SHARE"),
    ("select k from t for key share", "SELECT FOR KEY SHARE"),
    (
        "select * from (select k from t for update) as x",
        "SELECT FOR UPDATE",
    ),
    ("truncate t", "TRUNCATE TABLE"),
    ("create table x (k int primary key)", "CREATE TABLE"),
    ("create temp table x (k int primary key)", "CREATE TABLE"),
    (
        "create table if not exists t (k int primary key)",
        "CREATE TABLE",
    ),
    ("create table x as select * from t", "CREATE TABLE"),
    ("create view x as select 1 as a", "CREATE VIEW"),
    (
        "create or replace temp view x as select 1 as a",
        "CREATE VIEW",
    ),
    ("create schema x", "CREATE SCHEMA"),
    ("create sequence x", "CREATE SEQUENCE"),
    ("create index x on t (v)", "CREATE INDEX"),
    ("alter table t add column x int", "ALTER TABLE"),
    ("alter table t rename to x", "ALTER TABLE"),
    ("alter table t set (layout = 'row')", "ALTER TABLE"),
    ("alter sequence n restart", "ALTER SEQUENCE"),
    ("drop table t", "DROP TABLE"),
    ("drop table if exists nothing", "DROP TABLE"),
    ("drop view w", "DROP VIEW"),
    ("drop sequence n", "DROP SEQUENCE"),
    ("grant select on t to guest", "GRANT"),
    ("revoke select on t from guest", "REVOKE"),
    ("comment on table t is 'x'", "COMMENT"),
    ("select nextval('n')", "nextval()"),
    ("select setval('n', 50)", "setval()"),
    ("select v, nextval('n') from t where k < 3", "nextval()"),
    ("explain analyze insert into t values (700, 1)", "INSERT"),
    ("explain analyze delete from t", "DELETE"),
    (
        "explain (analyze) select k from t for update",
        "SELECT FOR UPDATE",
    ),
    (
        "explain analyze with x as (delete from t returning k) select * from x",
        "SELECT",
    ),
];

fn require_refusal(error: &SqlError, sql: &str, message: &str) {
    assert_eq!(error.message, message, "{sql}");
    assert_eq!(error.kind, ErrorKind::ReadOnlyTransaction, "{sql}");
    assert_eq!(error.kind.sqlstate(), "25006");
    let detail = error.detail.as_deref().unwrap_or_default();
    assert!(
        detail.contains("another node takes its changes"),
        "{sql}: {detail}"
    );
    let hint = error.hint.as_deref().unwrap_or_default();
    assert!(
        hint.contains("target_session_attrs=read-write"),
        "{sql}: {hint}"
    );
}

/// Runs a statement by the extended protocol.
async fn extended(session: &mut Session, sql: &str) -> Result<Vec<String>, SqlError> {
    let prepared = session.prepare(sql, &[]).await?;
    session.begin_group(Group::Pipeline);
    let outcome = session.execute_prepared(&prepared, &Arc::default()).await?;
    let rows = rows_of(outcome).await?;
    session.end_group().await?;
    Ok(rows)
}

#[test]
fn every_change_is_refused_in_every_way_it_comes() {
    let copied = Copied::new();
    let fixture = &copied.fixture;
    let mut session = copied.session();
    let before = copied.state(&mut session);
    for (sql, word) in REFUSED {
        let message = format!("cannot execute {word} in a read-only transaction");
        // Twice, for a shape or a plan that is kept is found the second time.
        for _ in 0..2 {
            let error = fixture.error(&mut session, sql);
            session.fail();
            require_refusal(&error, sql, &message);
            let error = fixture.runtime.block_on(extended(&mut session, sql));
            session.fail();
            require_refusal(&error.unwrap_err(), sql, &message);
        }
        // In a block, which has failed then, and in one that goes back to a savepoint.
        fixture.ok(&mut session, "begin; select count(*) from t");
        require_refusal(&fixture.error(&mut session, sql), sql, &message);
        // Some fail with their rows, of which the protocol tells the session.
        session.fail();
        let kind = fixture.kind(&mut session, "select 1");
        assert_eq!(kind, ErrorKind::InFailedTransaction, "{sql}");
        fixture.ok(&mut session, "rollback");
        fixture.ok(
            &mut session,
            "begin isolation level repeatable read; savepoint s",
        );
        require_refusal(&fixture.error(&mut session, sql), sql, &message);
        session.fail();
        fixture.ok(&mut session, "rollback to s");
        assert_eq!(
            fixture.ok(&mut session, "select count(*) from t"),
            ["100"],
            "{sql}"
        );
        fixture.ok(&mut session, "commit");
        // Behind others in one message.
        session.begin_group(Group::Message);
        fixture.ok(&mut session, "select count(*) from s");
        require_refusal(&fixture.error(&mut session, sql), sql, &message);
        session.fail();
        // As a prepared statement of SQL, where that takes it.
        if fixture
            .run(&mut session, &format!("prepare p as {sql}"))
            .is_ok()
        {
            let error = fixture.error(&mut session, "execute p");
            require_refusal(&error, sql, &message);
            fixture.ok(&mut session, "deallocate p");
        }
    }
    assert_eq!(copied.state(&mut session), before);
}

#[test]
fn what_recovery_excludes_is_refused_as_postgresql_does() {
    let copied = Copied::new();
    let fixture = &copied.fixture;
    let mut session = copied.session();
    session.set_controls(aerostat_engine::Controls {
        cancel: Arc::new(|| {}),
        terminate: None,
    });
    let before = copied.state(&mut session);
    for (sql, word) in [
        ("vacuum", "VACUUM"),
        ("vacuum freeze t", "VACUUM"),
        ("analyze t", "ANALYZE"),
        ("reindex table t", "REINDEX"),
        ("listen c", "LISTEN"),
        ("notify c, 'x'", "NOTIFY"),
        ("select pg_notify('c', 'x')", "NOTIFY"),
    ] {
        let message = format!("cannot execute {word} during recovery");
        require_refusal(&fixture.error(&mut session, sql), sql, &message);
        let error = fixture.runtime.block_on(extended(&mut session, sql));
        session.fail();
        require_refusal(&error.unwrap_err(), sql, &message);
    }
    for mode in [
        "share update exclusive",
        "share",
        "share row exclusive",
        "exclusive",
        "access exclusive",
    ] {
        fixture.ok(&mut session, "begin");
        let sql = format!("lock table t in {mode} mode");
        let error = fixture.error(&mut session, &sql);
        require_refusal(&error, &sql, "cannot execute LOCK TABLE during recovery");
        fixture.ok(&mut session, "rollback");
    }
    for mode in ["access share", "row share", "row exclusive"] {
        fixture.ok(
            &mut session,
            &format!("begin; lock table t in {mode} mode; commit"),
        );
    }
    assert_eq!(copied.state(&mut session), before);
}

#[test]
fn copy_and_cursors_change_nothing_either() {
    let copied = Copied::new();
    let fixture = &copied.fixture;
    let mut session = copied.session();
    let before = copied.state(&mut session);
    for (sql, word) in [
        ("copy t from stdin", "COPY FROM"),
        ("copy t (k) from stdin with (format csv)", "COPY FROM"),
        ("copy (delete from t returning k) to stdout", "DELETE"),
        (
            "copy (insert into t values (800, 1) returning k) to stdout",
            "INSERT",
        ),
        (
            "copy (select k from t for update) to stdout",
            "SELECT FOR UPDATE",
        ),
        (
            "copy (with x as (delete from t returning k) select * from x) to stdout",
            "SELECT",
        ),
    ] {
        let message = format!("cannot execute {word} in a read-only transaction");
        let ran = fixture.runtime.block_on(async {
            let statement = session.split(sql).await?.remove(0);
            session.execute(&statement).await.map(drop)
        });
        let error = ran.expect_err(sql);
        if error.kind != ErrorKind::FeatureNotSupported {
            require_refusal(&error, sql, &message);
        }
    }
    fixture.ok(&mut session, "begin");
    let sql = "declare c cursor for select k from t for update";
    let error = fixture.error(&mut session, sql);
    if error.kind != ErrorKind::FeatureNotSupported {
        require_refusal(
            &error,
            sql,
            "cannot execute SELECT FOR UPDATE in a read-only transaction",
        );
    }
    fixture.ok(&mut session, "rollback");
    fixture.ok(
        &mut session,
        "begin; declare c cursor for select nextval('n') from t",
    );
    let error = fixture.error(&mut session, "fetch 1 from c");
    require_refusal(
        &error,
        "fetch",
        "cannot execute nextval() in a read-only transaction",
    );
    fixture.ok(&mut session, "rollback");
    assert_eq!(copied.state(&mut session), before);
}

#[test]
fn no_mode_opens_a_copy() {
    let copied = Copied::new();
    let fixture = &copied.fixture;
    let mut session = copied.session();
    for sql in [
        "begin read write",
        "start transaction isolation level repeatable read, read write",
        "set transaction_read_only = off",
        "set session transaction_read_only = 'false'",
        "set transaction read write",
        "select set_config('transaction_read_only', 'off', false)",
        "begin; set transaction read write",
        "begin; set transaction_read_only = off",
        "begin; set local transaction_read_only = 0",
        "begin; select set_config('Transaction_Read_Only', 'no', true)",
        "begin read only; set transaction read write",
    ] {
        let error = fixture.error(&mut session, sql);
        assert_eq!(error.kind, ErrorKind::FeatureNotSupported, "{sql}");
        assert_eq!(
            error.message, "cannot set transaction read-write mode during recovery",
            "{sql}"
        );
        session.fail();
        fixture.ok(&mut session, "rollback");
    }
    // Defaults are taken, as in PostgreSQL, and change nothing.
    for sql in [
        "set default_transaction_read_only = off",
        "set session characteristics as transaction read write",
        "reset transaction_read_only",
        "reset all",
        "discard all",
    ] {
        fixture.ok(&mut session, sql);
        assert_eq!(
            fixture.ok(&mut session, "show transaction_read_only"),
            ["on"],
            "{sql}"
        );
        let kind = fixture.kind(&mut session, "insert into t values (900, 1)");
        assert_eq!(kind, ErrorKind::ReadOnlyTransaction, "{sql}");
        fixture.ok(&mut session, "begin");
        assert_eq!(
            fixture.ok(&mut session, "show transaction_read_only"),
            ["on"]
        );
        fixture.kind(&mut session, "insert into t values (900, 1)");
        fixture.ok(&mut session, "rollback");
    }
    assert_eq!(
        fixture.ok(&mut session, "show default_transaction_read_only"),
        ["off"]
    );
    let options = [("transaction_read_only".to_owned(), "off".to_owned())];
    let engine = &fixture.engine;
    let session = engine.connect_to("aerostat", &copied.database, &options);
    if let Ok(mut session) = session {
        assert_eq!(
            fixture.ok(&mut session, "show transaction_read_only"),
            ["on"]
        );
        fixture.kind(&mut session, "insert into t values (900, 1)");
    }
}

#[test]
fn everything_can_be_read() {
    let copied = Copied::new();
    let fixture = &copied.fixture;
    let mut session = copied.session();
    let before = copied.state(&mut session);
    let fast = session.fast_statements();
    for (sql, expected) in [
        ("select v from t where k = 7", "70"),
        ("select count(*) from t", "100"),
        ("select sum(t.v) from t join s on s.k = t.k", "30"),
        (
            "select name, sum(v) from t join s on s.k = t.v / 10 group by name order by 2 limit 1",
            "a|10",
        ),
        ("select count(*) from w", "100"),
        (
            "with x as (select k from t where k < 5) select count(*) from x, x as y",
            "16",
        ),
        (
            "with recursive r(n) as (select 1 union all select n + 1 from r where n < 50) select count(*) from r",
            "50",
        ),
        (
            "select count(*) from (select a.k, b.k from t a, t b, t c order by a.v, b.v, c.v) as x",
            "1000000",
        ),
        ("select last_value from n", "2"),
        ("select last_value, is_called from d_k_seq", "1|false"),
        ("select pg_sequence_last_value('n')", "2"),
        ("select pg_try_advisory_lock(1)", "true"),
        ("select count(*) > 0 from pg_stat_activity", "true"),
        ("select count(*) > 0 from aerostat.segments", "true"),
        ("explain insert into t values (1, 1)", ""),
        ("explain analyze select * from t", ""),
        ("table s limit 0", ""),
        ("checkpoint", "CHECKPOINT"),
        ("unlisten *", "UNLISTEN"),
        ("discard temp", "DISCARD TEMP"),
        ("discard sequences", "DISCARD SEQUENCES"),
        ("set statement_timeout = '1h'", "SET"),
        ("show statement_timeout", "1h"),
    ] {
        for _ in 0..3 {
            let rows = fixture.ok(&mut session, sql);
            if !expected.is_empty() {
                assert_eq!(rows, [expected], "{sql}");
            }
            let rows = fixture
                .runtime
                .block_on(extended(&mut session, sql))
                .unwrap();
            if !expected.is_empty() {
                assert_eq!(rows, [expected], "{sql}");
            }
        }
    }
    assert!(
        session.fast_statements() > fast,
        "a row was looked up by its key"
    );
    // Blocks, savepoints, cursors, statements prepared by SQL.
    fixture.ok(
        &mut session,
        "begin isolation level repeatable read read only",
    );
    fixture.ok(
        &mut session,
        "declare c scroll cursor with hold for select k from t order by k",
    );
    assert_eq!(fixture.ok(&mut session, "fetch 2 from c"), ["1", "2"]);
    fixture.ok(
        &mut session,
        "savepoint a; set local application_name = 'x'; release a; discard temp",
    );
    fixture.ok(&mut session, "commit and chain");
    assert_eq!(
        fixture.ok(&mut session, "show transaction_isolation"),
        ["repeatable read"]
    );
    fixture.ok(&mut session, "commit");
    assert_eq!(fixture.ok(&mut session, "fetch last from c"), ["100"]);
    fixture.ok(&mut session, "prepare p as select v from t where k = $1");
    assert_eq!(fixture.ok(&mut session, "execute p (3)"), ["30"]);
    fixture.ok(&mut session, "discard all");
    // COPY out.
    let rows = fixture.runtime.block_on(async {
        let statement = session.split("copy t to stdout").await?.remove(0);
        match session.execute(&statement).await? {
            Outcome::CopyOut(mut copy) => {
                let mut rows = 0;
                while let Some(batch) = copy.batches.next().await {
                    rows += batch?.num_rows();
                }
                Ok::<usize, SqlError>(rows)
            }
            _ => panic!("not a COPY"),
        }
    });
    assert_eq!(rows.unwrap(), 100);
    session.rest();
    // A checkpoint writes files, and nothing into the log.
    assert_eq!(copied.state(&mut session), before);
}

#[test]
fn statements_about_the_node_are_none_about_the_database() {
    let copied = Copied::new();
    let fixture = &copied.fixture;
    let mut session = copied.session();
    for sql in [
        "create role clerk",
        "alter role clerk with login",
        "grant pg_checkpoint to clerk",
        "revoke pg_checkpoint from clerk",
        "comment on role clerk is 'x'",
        "create database other",
        "alter database other set (durability = 'none')",
        "grant connect on database other to clerk",
        "revoke connect on database other from clerk",
        "comment on database other is 'x'",
        "drop database other",
        "drop role clerk",
        "alter system set memory = '512MB'",
    ] {
        fixture.ok(&mut session, sql);
    }
    // Behind a query in the same message.
    session.begin_group(Group::Message);
    fixture.ok(&mut session, "select count(*) from t");
    fixture.ok(&mut session, "create role clerk");
    fixture.runtime.block_on(session.end_group()).unwrap();
    // Those who want to read alone change nothing of the node either.
    fixture.ok(&mut session, "set default_transaction_read_only = on");
    let error = fixture.error(&mut session, "drop role clerk");
    assert_eq!(
        error.message,
        "cannot execute DROP ROLE in a read-only transaction"
    );
    assert_eq!(error.hint, None);
}

#[test]
fn a_session_writes_when_its_node_has_taken_over() {
    let copied = Copied::new();
    let fixture = &copied.fixture;
    let (mut session, mut other) = (copied.session(), copied.session());
    let insert = fixture.runtime.block_on(async {
        let insert = session
            .prepare("insert into t values (1001, 1)", &[])
            .await?;
        fixture_refuses(&mut session, &insert).await;
        Ok::<_, SqlError>(insert)
    });
    let insert = insert.unwrap();
    fixture.ok(&mut session, "prepare i as insert into t values (1002, 1)");
    fixture.ok(&mut session, "prepare r as select pg_is_in_recovery()");
    assert_eq!(fixture.ok(&mut session, "execute r"), ["true"]);
    fixture.ok(&mut other, "begin; select count(*) from t");
    copied.copy.set_leads(true);
    // The block began on a copy.
    assert_eq!(fixture.ok(&mut other, "show transaction_read_only"), ["on"]);
    let error = fixture.error(&mut other, "insert into t values (1000, 1)");
    assert_eq!(error.kind, ErrorKind::ReadOnlyTransaction);
    assert!(
        error.hint.unwrap().contains("in another"),
        "it is told what to do"
    );
    fixture.ok(&mut other, "rollback");
    fixture.ok(&mut other, "insert into t values (1000, 1)");
    assert_eq!(fixture.ok(&mut session, "execute r"), ["false"]);
    assert_eq!(fixture.ok(&mut session, "show in_hot_standby"), ["off"]);
    assert_eq!(
        fixture.ok(&mut session, "show transaction_read_only"),
        ["off"]
    );
    fixture.ok(&mut session, "execute i");
    let ran = fixture.runtime.block_on(async {
        let outcome = session.execute_prepared(&insert, &Arc::default()).await?;
        rows_of(outcome).await
    });
    assert_eq!(ran.unwrap(), ["INSERT 0 1"]);
    let count = "select count(*) from t where k >= 1000";
    assert_eq!(fixture.ok(&mut session, count), ["3"]);
    fixture.ok(
        &mut session,
        "begin read write; delete from t where k >= 1000; commit",
    );
    for sql in [
        "begin; savepoint s; update t set v = 0 where k = 1; rollback to s; commit",
        "create temp table x (k int primary key); insert into x values (1); drop table x",
        "create table x (k serial primary key); insert into x default values; drop table x",
        "select nextval('n'), setval('n', 70)",
        "select k from t for update",
        "vacuum; analyze t; reindex table t",
        "begin; lock table t; commit",
        "explain analyze update t set v = v",
        "merge into t using s on s.k = t.k when matched then update set v = 10 * t.k",
        "with x as (delete from t where k = 100 returning k, v) insert into t select k, v from x where false",
        "comment on table t is 'x'; grant select on t to guest",
    ] {
        fixture.ok(&mut session, sql);
    }
    assert_eq!(
        fixture.ok(&mut session, "select count(*), sum(v) from t"),
        ["99|49500"]
    );
}

async fn fixture_refuses(session: &mut Session, prepared: &aerostat_engine::Prepared) {
    let refused = session.execute_prepared(prepared, &Arc::default()).await;
    assert_eq!(refused.unwrap_err().kind, ErrorKind::ReadOnlyTransaction);
    session.fail();
}

/// A session whose node was deposed changes nothing from then on, even in a block that began before.
#[test]
fn a_leader_that_is_none_any_more_refuses_at_once() {
    let copied = Copied::new();
    copied.copy.set_leads(true);
    let fixture = &copied.fixture;
    let mut session = copied.session();
    fixture.ok(&mut session, "insert into t values (1000, 1)");
    fixture.ok(&mut session, "begin");
    copied.copy.set_leads(false);
    let sql = "insert into t values (1001, 1)";
    let message = "cannot execute INSERT in a read-only transaction";
    require_refusal(&fixture.error(&mut session, sql), sql, message);
    fixture.ok(&mut session, "rollback");
    require_refusal(&fixture.error(&mut session, sql), sql, message);
}

#[test]
fn clients_are_told_where_they_are() {
    let copied = Copied::new();
    let fixture = &copied.fixture;
    let mut session = copied.session();
    let reported = |session: &Session, name: &str| {
        let all = session.reported_parameters().into_iter();
        let mut found = all.filter(|(known, _)| known == name);
        found.next().map(|(_, value)| value)
    };
    assert_eq!(reported(&session, "in_hot_standby").as_deref(), Some("on"));
    let default = "default_transaction_read_only";
    assert_eq!(reported(&session, default).as_deref(), Some("off"));
    let version = reported(&session, "server_version").unwrap();
    let major: u32 = version.split('.').next().unwrap().parse().unwrap();
    assert!(major >= 14, "libpq asks older servers by a query");
    session.parameter_changes();
    let told = |session: &mut Session| {
        let changes = session.parameter_changes().into_iter();
        changes
            .filter(|(name, _)| name == "in_hot_standby" || name == default)
            .map(|(name, value)| format!("{name}={value}"))
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(told(&mut session), "");
    fixture.ok(&mut session, "select 1");
    assert_eq!(told(&mut session), "");
    copied.copy.set_leads(true);
    assert_eq!(told(&mut session), "in_hot_standby=off");
    assert_eq!(told(&mut session), "");
    copied.copy.set_leads(false);
    assert_eq!(told(&mut session), "in_hot_standby=on");
    fixture.ok(&mut session, "set default_transaction_read_only = on");
    assert_eq!(told(&mut session), "default_transaction_read_only=on");
    fixture.ok(
        &mut session,
        "begin; set local default_transaction_read_only = off; commit; reset all",
    );
    assert_eq!(told(&mut session), "default_transaction_read_only=off");
    let kind = fixture.kind(&mut session, "set in_hot_standby = off");
    assert_eq!(kind, ErrorKind::ObjectNotInPrerequisiteState);
    // Where no other node has the database.
    let alone = fixture.session();
    assert_eq!(reported(&alone, "in_hot_standby").as_deref(), Some("off"));
    assert_eq!(reported(&alone, default).as_deref(), Some("off"));
}

#[test]
fn reading_is_bounded_by_settings() {
    let copied = Copied::new();
    let fixture = &copied.fixture;
    let mut session = copied.session();
    let reads = [
        "select v from t where k = 1",
        "select count(*) from t",
        "select * from w where k = 1",
        "select last_value from n",
        "explain analyze select * from t",
        "with x as (select k from t) select count(*) from x",
        "begin; declare c cursor for select k from t",
        "prepare q as select k from t; execute q",
    ];
    let refuses = |session: &mut Session, kind: ErrorKind| {
        for sql in reads {
            let error = fixture.error(session, sql);
            assert_eq!(error.kind, kind, "{sql}: {error:?}");
            assert!(error.hint.is_some(), "{sql}");
            fixture.ok(session, "rollback; deallocate all");
            // What reads no table of the database goes on.
            assert_eq!(fixture.ok(session, "select pg_is_in_recovery()"), ["true"]);
            fixture.ok(session, "select count(*) from pg_class");
            fixture.ok(session, "show transaction_read_only");
        }
    };
    let takes = |session: &mut Session| {
        for sql in reads {
            fixture.ok(session, sql);
            fixture.ok(session, "rollback; deallocate all");
        }
    };
    takes(&mut session);
    fixture.ok(&mut session, "set aerostat.read_from = leader");
    refuses(&mut session, ErrorKind::ReadOnlyTransaction);
    fixture.ok(&mut session, "set aerostat.read_from = 'any'");
    takes(&mut session);
    fixture.error(&mut session, "set aerostat.read_from = 'copies'");
    let heard = |ago: u64| {
        copied.copy.tell(CopyFacts {
            heard: Instant::now().checked_sub(Duration::from_secs(ago)),
            ..copied.copy.facts()
        });
    };
    fixture.ok(&mut session, "set aerostat.max_staleness = '10s'");
    let error = fixture.error(&mut session, "select count(*) from t");
    assert_eq!(
        error.detail.as_deref(),
        Some("It has not heard of a leader yet.")
    );
    refuses(&mut session, ErrorKind::ObjectNotInPrerequisiteState);
    heard(0);
    takes(&mut session);
    heard(60);
    refuses(&mut session, ErrorKind::ObjectNotInPrerequisiteState);
    fixture.ok(&mut session, "set aerostat.max_staleness = '5min'");
    takes(&mut session);
    fixture.ok(&mut session, "set aerostat.max_staleness = 0");
    takes(&mut session);
    // A leader has what it has told itself.
    fixture.ok(
        &mut session,
        "set aerostat.max_staleness = '10s'; set aerostat.read_from = 'leader'",
    );
    copied.copy.set_leads(true);
    takes(&mut session);
    let mut alone = fixture.session();
    fixture.ok(
        &mut alone,
        "set aerostat.max_staleness = '10s'; set aerostat.read_from = 'leader'",
    );
    takes(&mut alone);
}

#[test]
fn functions_tell_how_far_a_copy_is() {
    let copied = Copied::new();
    let fixture = &copied.fixture;
    let mut session = copied.session();
    let shown = copied.database.store.txns().last_commit().0;
    copied.copy.tell(CopyFacts {
        written: CommitTs(0x2_0000_001A),
        ..CopyFacts::default()
    });
    let replayed = format!("{:X}/{:X}", shown >> 32, shown & 0xffff_ffff);
    let one = |session: &mut Session, sql: &str| fixture.ok(session, sql).join("\n");
    assert_eq!(one(&mut session, "select pg_is_in_recovery()"), "true");
    assert_eq!(
        one(&mut session, "select pg_last_wal_receive_lsn()"),
        "2/1A"
    );
    assert_eq!(
        one(&mut session, "select pg_last_wal_replay_lsn()"),
        replayed
    );
    assert_eq!(
        one(&mut session, "select pg_last_xact_replay_timestamp()"),
        ""
    );
    for function in [
        "pg_current_wal_lsn",
        "pg_current_wal_insert_lsn",
        "pg_current_wal_flush_lsn",
    ] {
        let error = fixture.error(&mut session, &format!("select {function}()"));
        assert_eq!(error.message, "recovery is in progress");
        assert_eq!(error.kind, ErrorKind::ObjectNotInPrerequisiteState);
    }
    // As monitors ask.
    let lag = "select case when pg_is_in_recovery() then pg_wal_lsn_diff(pg_last_wal_receive_lsn(), \
               pg_last_wal_replay_lsn()) else 0 end";
    assert_eq!(
        one(&mut session, lag),
        (0x2_0000_001A_u64 - shown).to_string()
    );
    copied.copy.set_leads(true);
    assert_eq!(one(&mut session, "select pg_is_in_recovery()"), "false");
    assert_eq!(one(&mut session, "select pg_last_wal_receive_lsn()"), "");
    assert_eq!(one(&mut session, "select pg_last_wal_replay_lsn()"), "");
    assert_eq!(one(&mut session, "select pg_current_wal_lsn()"), replayed);
    fixture.ok(&mut session, "select pg_current_wal_flush_lsn()");
    fixture.ok(&mut session, "insert into t values (1000, 1)");
    let moved = format!("select pg_wal_lsn_diff(pg_current_wal_lsn(), '{replayed}') > 0");
    assert_eq!(one(&mut session, &moved), "true");
    assert_eq!(
        one(&mut session, "select pg_wal_lsn_diff('0/1', '0/3')"),
        "-2"
    );
    let kind = fixture.kind(&mut session, "select pg_wal_lsn_diff('0/1', 'x')");
    assert_eq!(kind, ErrorKind::InvalidTextRepresentation);
    let numbers = "select oid::int from pg_proc where proname in ('pg_is_in_recovery', 'pg_promote') order by 1";
    assert_eq!(fixture.ok(&mut session, numbers), ["3436", "3810"]);
}

#[test]
fn a_statement_waits_for_a_place() {
    let copied = Copied::new();
    let fixture = &copied.fixture;
    let mut session = copied.session();
    let store = &copied.database.store;
    let lsn = |place: u64| format!("{:X}/{:X}", place >> 32, place & 0xffff_ffff);
    let now = store.txns().last_commit().0;
    let wait = |session: &mut Session, place: u64, ms: u64| {
        let sql = format!("select aerostat.wait_for_lsn('{}', {ms})", lsn(place));
        fixture.ok(session, &sql).join("")
    };
    assert_eq!(wait(&mut session, now, 0), "true");
    assert_eq!(wait(&mut session, now + 1, 0), "false");
    assert_eq!(wait(&mut session, now + 1, 20), "false");
    for sql in [
        "select aerostat.wait_for_lsn('x')",
        "select aerostat.wait_for_lsn('0/1', -1)",
    ] {
        fixture.error(&mut session, sql);
    }
    // It comes while somebody waits, with the rows that the next statement sees.
    let mut leader = fixture.session();
    let sql = format!("select aerostat.wait_for_lsn('{}', 60000)", lsn(now + 1));
    fixture.runtime.block_on(async {
        let statement = session.split(&sql).await.unwrap().remove(0);
        let waits = async { rows_of(session.execute(&statement).await.unwrap()).await };
        let comes = async {
            tokio::time::sleep(Duration::from_millis(30)).await;
            common::run(&mut leader, "insert into t values (1000, 1)").await
        };
        let (waited, came) = tokio::join!(waits, comes);
        came.unwrap();
        assert_eq!(waited.unwrap(), ["true"]);
    });
    assert_eq!(
        fixture.ok(&mut session, "select v from t where k = 1000"),
        ["1"]
    );
    // It is stopped as any statement is.
    let far = format!(
        "set statement_timeout = 50; select aerostat.wait_for_lsn('{}', 60000)",
        lsn(now + 900)
    );
    let began = Instant::now();
    assert_eq!(fixture.kind(&mut session, &far), ErrorKind::QueryCanceled);
    assert!(began.elapsed() < Duration::from_secs(30));
    let prepared = fixture
        .runtime
        .block_on(session.prepare("select aerostat.wait_for_lsn($1)", &[]));
    assert_eq!(prepared.unwrap().parameters.len(), 1);
}

#[test]
fn a_copy_is_promoted_by_who_may() {
    let copied = Copied::new();
    let fixture = &copied.fixture;
    let promote = |role: &str, call: &str| {
        let mut session = copied.session_of(role);
        let ran = fixture.run(&mut session, &format!("select {call}"));
        let notices = session.take_notices();
        (ran, notices)
    };
    let (denied, _) = promote("guest", "pg_promote()");
    let denied = denied.unwrap_err();
    assert_eq!(denied.kind, ErrorKind::InsufficientPrivilege);
    assert_eq!(denied.message, "permission denied for function pg_promote");
    for call in [
        "pg_promote(true, 0)",
        "pg_promote(wait => true, wait_seconds => -1)",
        "pg_promote(true, -5)",
    ] {
        let error = promote("keeper", call).0.unwrap_err();
        if !call.contains("=>") {
            assert_eq!(error.kind, ErrorKind::NumericValueOutOfRange, "{call}");
        }
    }
    // Nobody drives it.
    let (failed, notices) = promote("keeper", "pg_promote(true, 1)");
    assert_eq!(failed.unwrap(), ["false"]);
    assert_eq!(
        notices[0].message,
        "server did not promote within 1 seconds"
    );
    assert_eq!(
        promote("aerostat", "pg_promote(false)").0.unwrap(),
        ["true"]
    );
    assert!(!copied.copy.leads());
    // A wait for one is stopped.
    let mut session = copied.session();
    let kind = fixture.kind(
        &mut session,
        "set statement_timeout = 50; select pg_promote()",
    );
    assert_eq!(kind, ErrorKind::QueryCanceled);
    let driven = Arc::downgrade(&copied.copy);
    copied.copy.take_orders(Some(Box::new(move |order| {
        assert_eq!(order, Order::Lead);
        let driven = driven.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            if let Some(copy) = driven.upgrade() {
                copy.set_leads(true);
            }
        });
    })));
    assert_eq!(promote("keeper", "pg_promote()").0.unwrap(), ["true"]);
    let again = promote("aerostat", "pg_promote()").0.unwrap_err();
    assert_eq!(again.kind, ErrorKind::ObjectNotInPrerequisiteState);
    assert_eq!(again.message, "recovery is not in progress");
    let mut alone = fixture.session();
    let error = fixture.error(&mut alone, "select pg_promote()");
    assert_eq!(error.message, "recovery is not in progress");
}

#[test]
fn views_show_the_copies() {
    let copied = Copied::new();
    let fixture = &copied.fixture;
    let peer = |node: u32, is_member: bool, written: u64| PeerFacts {
        node: NodeId(node),
        name: format!("node{node}"),
        address: format!("10.0.0.{node}:5435"),
        is_member,
        sent: CommitTs(100),
        written: CommitTs(written),
        durable: CommitTs(90),
        heard: Some(Instant::now()),
    };
    copied.copy.tell(CopyFacts {
        epoch: Epoch(4),
        leader: Some(NodeId(1)),
        members: vec![NodeId(1), NodeId(2)],
        written: CommitTs(100),
        durable: CommitTs(90),
        committed: CommitTs(99),
        heard: Some(Instant::now()),
        peers: vec![peer(3, true, 90), peer(4, false, 99), peer(5, false, 50)],
    });
    let mut session = copied.session();
    let senders = "select application_name, client_addr, client_port, state, sent_lsn, write_lsn, flush_lsn, \
                   sync_priority, sync_state, reply_time <= now() + interval '1 minute' \
                   from pg_stat_replication order by 1";
    assert!(fixture.ok(&mut session, senders).is_empty());
    let receiver = "select status, written_lsn, flushed_lsn, received_tli, latest_end_lsn from pg_stat_wal_receiver";
    assert_eq!(
        fixture.ok(&mut session, receiver),
        ["streaming|0/64|0/5A|4|0/63"]
    );
    let copies = "select standing, epoch, node, leader, members::text, written_lsn, durable_lsn, committed_lsn, \
                  heard_ms_ago >= 0 from aerostat.copies where database = current_database()";
    assert_eq!(
        fixture.ok(&mut session, copies),
        ["follows|4|2|1|{1,2}|0/64|0/5A|0/63|true"]
    );
    let names = "select database, standing from aerostat.copies order by 1";
    assert_eq!(
        fixture.ok(&mut session, names),
        ["aerostat|follows", "postgres|alone"]
    );
    let mut keeper = copied.session_of("keeper");
    assert_eq!(fixture.ok(&mut keeper, names).len(), 2);
    let mut guest = copied.session_of("guest");
    assert_eq!(fixture.ok(&mut guest, names), ["aerostat|follows"]);
    assert!(fixture.ok(&mut guest, receiver).is_empty());
    copied.copy.set_leads(true);
    assert!(fixture.ok(&mut session, receiver).is_empty());
    assert_eq!(
        fixture.ok(&mut session, senders),
        [
            "node3|10.0.0.3|5435|streaming|0/64|0/5A|0/5A|1|sync|true",
            "node4|10.0.0.4|5435|streaming|0/64|0/63|0/5A|0|async|true",
            "node5|10.0.0.5|5435|catchup|0/64|0/32|0/5A|0|async|true",
        ]
    );
    let count = "select count(*), count(client_addr) from pg_stat_replication";
    assert_eq!(fixture.ok(&mut guest, count), ["3|0"]);
    let applied =
        "select applied_lsn = pg_current_wal_lsn() from aerostat.copies where standing = 'leads'";
    assert_eq!(fixture.ok(&mut session, applied), ["true"]);
}
