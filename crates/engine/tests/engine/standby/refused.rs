//! What a session on a copy is refused.

use std::sync::Arc;

use super::{Copied, REFUSED, extended, require_refusal};
use aerostat_api::Group;
use aerostat_types::ErrorKind;

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
    session.set_controls(aerostat_api::Controls {
        cancel: Arc::new(|| {}),
        terminate: None,
        leave: None,
    });
    let before = copied.state(&mut session);
    for (sql, word) in [
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
