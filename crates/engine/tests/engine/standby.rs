//! Sessions on a copy of a database whose changes another node takes: what is refused, what is not, and what
//! changes when the node takes over.

mod allowed;
mod refused;
mod told;

use std::sync::Arc;

use crate::common::{Fixture, rows_of};
use aerostat_api::Group;
use aerostat_catalog::{CopyState, Database};
use aerostat_engine::Session;
use aerostat_types::{ErrorKind, NodeId, SqlError};

/// A database as a node has it that copies it.
pub(crate) struct Copied {
    pub(crate) fixture: Fixture,
    pub(crate) copy: Arc<CopyState>,
    pub(crate) database: Arc<Database>,
}

impl Copied {
    pub(crate) fn new() -> Self {
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

    pub(crate) fn session(&self) -> Session {
        self.session_of("aerostat")
    }

    pub(crate) fn session_of(&self, role: &str) -> Session {
        let engine = &self.fixture.engine;
        engine.connect_to(role, &self.database, &[]).unwrap()
    }

    /// What would change if anything did: rows, catalogue, and bytes of the log.
    pub(crate) fn state(&self, session: &mut Session) -> (Vec<String>, u64, u64) {
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
pub(crate) const REFUSED: [(&str, &str); 52] = [
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

pub(crate) fn require_refusal(error: &SqlError, sql: &str, message: &str) {
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
pub(crate) async fn extended(session: &mut Session, sql: &str) -> Result<Vec<String>, SqlError> {
    let prepared = session.prepare(sql, &[]).await?;
    session.begin_group(Group::Pipeline);
    let outcome = session.execute_prepared(&prepared, &Arc::default()).await?;
    let rows = rows_of(outcome).await?;
    session.end_group().await?;
    Ok(rows)
}
