//! What it may do, and what changes when the node takes over.

use std::sync::Arc;

use super::{Copied, extended, require_refusal};
use crate::common::rows_of;
use aerostat_api::{Group, Outcome};
use aerostat_engine::Session;
use aerostat_types::{ErrorKind, SqlError};
use futures::StreamExt;

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
        ("vacuum", "VACUUM"),
        ("vacuum freeze t", "VACUUM"),
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
