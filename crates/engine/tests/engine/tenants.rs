//! What the engine keeps for a tenant: it comes with its sessions, and goes as a whole.

use std::time::{Duration, Instant};

use crate::common::{Fixture, run};
use aerostat_api::{Backend, Canceller};
use aerostat_engine::{DatabaseStatistics, Session};
use aerostat_types::{ErrorKind, SqlError};

const PATIENCE: Duration = Duration::from_secs(120);

fn connect(fixture: &Fixture) -> Session {
    fixture.engine.connect("aerostat", "shop", &[]).unwrap()
}

fn statistics(fixture: &Fixture) -> Option<DatabaseStatistics> {
    let mut databases = fixture.engine.databases().into_iter();
    databases.find(|database| database.name == "shop")
}

fn state(fixture: &Fixture) -> &'static str {
    fixture.engine.node().state_of("shop").name()
}

fn until(has_come: impl Fn() -> bool) {
    let started = Instant::now();
    while !has_come() {
        assert!(started.elapsed() < PATIENCE, "it does not come");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn nothing_is_left_of_a_tenant_that_is_closed_or_dropped() {
    let fixture = Fixture::new();
    let mut admin = fixture.session();
    fixture.ok(&mut admin, "CREATE DATABASE shop");
    let mut session = connect(&fixture);
    fixture.ok(
        &mut session,
        "CREATE TABLE t AS SELECT g AS id, repeat('x', 100) AS v FROM generate_series(1, 20000) AS g",
    );
    drop(session);
    fixture.ok(&mut admin, "ALTER DATABASE shop CLOSE");
    // What there was before anything of the tenant.
    let before = fixture.engine.governor().used();
    for round in 0..4 {
        let mut session = connect(&fixture);
        let sum = "SELECT v, sum(id) FROM t GROUP BY v ORDER BY 2";
        for _ in 0..3 {
            assert_eq!(fixture.ok(&mut session, sum).len(), 1);
        }
        for sql in [
            "CREATE TEMP TABLE mine AS SELECT * FROM t",
            "DECLARE c CURSOR WITH HOLD FOR SELECT * FROM t",
            "PREPARE p AS SELECT 1",
        ] {
            fixture.ok(&mut session, sql);
        }
        let used = statistics(&fixture).unwrap();
        // Those of this time alone.
        assert!(used.query_time > Duration::ZERO && used.plan_cache_hits > 0);
        assert!(used.plan_cache_hits < 6, "{}", used.plan_cache_hits);
        assert!(fixture.engine.governor().used() > before);
        drop(session);
        let end = match round {
            3 => "DROP DATABASE shop",
            _ => "ALTER DATABASE shop CLOSE",
        };
        fixture.ok(&mut admin, end);
        assert!(statistics(&fixture).is_none());
        let used = || fixture.engine.governor().used();
        match round {
            3 => until(|| used() <= before),
            // What the statements of the session that closes it hold goes after them.
            _ => until(|| used() == before),
        }
    }
}

#[test]
fn sessions_that_stay_keep_their_tenant_and_hear_each_other() {
    let fixture = Fixture::new();
    let mut admin = fixture.session();
    fixture.ok(&mut admin, "CREATE DATABASE shop");
    let mut listener = connect(&fixture);
    let nothing: Canceller = std::sync::Arc::new(|| {});
    let controls = aerostat_api::Controls {
        cancel: nothing,
        terminate: None,
        leave: None,
    };
    aerostat_api::BackendSession::set_controls(&mut listener, controls);
    fixture.ok(&mut listener, "LISTEN news");
    listener.rest();
    let refused = fixture.error(&mut admin, "ALTER DATABASE shop CLOSE");
    assert_eq!(refused.kind, ErrorKind::ObjectInUse);
    assert_eq!(state(&fixture), "open");
    // Statements about other databases take nothing from it either.
    fixture.ok(&mut admin, "CREATE DATABASE other");
    fixture.ok(&mut admin, "DROP DATABASE other");
    let mut teller = connect(&fixture);
    fixture.ok(&mut teller, "NOTIFY news, 'here'");
    // What was said goes out once the client may send the next statement.
    teller.rest();
    assert_eq!(listener.take_notifications().len(), 1);
}

#[test]
fn many_wait_for_one_opening_with_no_thread_of_their_own() {
    const COUNT: usize = 200;
    let fixture = Fixture::new();
    let mut admin = fixture.session();
    fixture.ok(&mut admin, "CREATE DATABASE shop");
    let mut session = connect(&fixture);
    fixture.ok(
        &mut session,
        "CREATE TABLE t AS SELECT g AS id FROM generate_series(1, 50000) AS g",
    );
    drop(session);
    for _ in 0..3 {
        fixture.ok(&mut admin, "ALTER DATABASE shop CLOSE");
        let connect = || {
            let engine = fixture.engine.clone();
            fixture.runtime.spawn(async move {
                let mut session = Backend::connect(&engine, "aerostat", "shop", &[]).await?;
                run(&mut session, "SELECT count(*) FROM t").await
            })
        };
        let all: Vec<_> = (0..COUNT).map(|_| connect()).collect();
        let answers: Result<Vec<Vec<String>>, SqlError> = fixture.runtime.block_on(async {
            let mut answers = Vec::new();
            for one in all {
                answers.push(one.await.unwrap()?);
            }
            Ok(answers)
        });
        assert!(answers.unwrap().iter().all(|rows| rows == &["50000"]));
    }
    let nowhere = async {
        Backend::connect(&fixture.engine, "aerostat", "none", &[])
            .await
            .err()
    };
    let error = fixture.runtime.block_on(nowhere).unwrap();
    assert_eq!(error.kind, ErrorKind::InvalidCatalogName);
}
