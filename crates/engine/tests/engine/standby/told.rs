//! What it is told: parameters, settings, functions, views.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::Copied;
use crate::common::rows_of;
use aerostat_catalog::{CopyFacts, Order, PeerFacts};
use aerostat_engine::Session;
use aerostat_types::{CommitTs, Epoch, ErrorKind, NodeId};

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
            let follows = (!copied.copy.leads()).to_string();
            let sql = "select pg_is_in_recovery()";
            assert_eq!(fixture.ok(session, sql), [follows]);
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
    let current = |ago: u64| {
        copied.copy.tell(CopyFacts {
            // It is heard all the time, and the copy is behind.
            heard: Some(Instant::now()),
            current: Instant::now().checked_sub(Duration::from_secs(ago)),
            ..copied.copy.facts()
        });
    };
    fixture.ok(&mut session, "set aerostat.max_staleness = '10s'");
    let error = fixture.error(&mut session, "select count(*) from t");
    assert_eq!(
        error.detail.as_deref(),
        Some("It has not caught up with a leader yet.")
    );
    refuses(&mut session, ErrorKind::ObjectNotInPrerequisiteState);
    current(0);
    takes(&mut session);
    current(60);
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
    let leads_until = |at: Option<Instant>| {
        copied.copy.tell(CopyFacts {
            leads_until: at,
            ..copied.copy.facts()
        });
    };
    refuses(&mut session, ErrorKind::ObjectNotInPrerequisiteState);
    leads_until(Instant::now().checked_add(Duration::from_secs(60)));
    takes(&mut session);
    // Stopped for longer than its members leave it its place.
    leads_until(Some(Instant::now()));
    refuses(&mut session, ErrorKind::ObjectNotInPrerequisiteState);
    fixture.ok(&mut session, "set aerostat.read_from = 'any'");
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
            crate::common::run(&mut leader, "insert into t values (1000, 1)").await
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
        counts: true,
        written: CommitTs(100),
        durable: CommitTs(90),
        committed: CommitTs(99),
        heard: Some(Instant::now()),
        current: Instant::now().checked_sub(Duration::from_secs(3)),
        leads_until: None,
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
                  heard_ms_ago between 0 and 2000, stale_ms between 3000 and 60000 from aerostat.copies where database = current_database()";
    assert_eq!(
        fixture.ok(&mut session, copies),
        ["follows|4|2|1|{1,2}|0/64|0/5A|0/63|true|true"]
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
