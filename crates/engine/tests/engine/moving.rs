//! Sessions that go on elsewhere: what one has is what the next has, and what cannot go keeps it.

use std::sync::Arc;

use crate::common::Fixture;
use aerostat_api::{Backend, BackendSession, Controls};
use aerostat_engine::Session;
use aerostat_types::ErrorKind;

const OPTIONS: [(&str, &str); 2] = [("application_name", "shop"), ("search_path", "goods")];

fn options() -> Vec<(String, String)> {
    let pairs = OPTIONS.iter();
    pairs
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// A session whose client is told of notifications.
fn connect(fixture: &Fixture) -> Session {
    let mut session = fixture
        .engine
        .connect("aerostat", "aerostat", &options())
        .unwrap();
    hear(&mut session);
    session
}

fn hear(session: &mut Session) {
    let controls = Controls {
        cancel: Arc::new(|| {}),
        terminate: None,
        leave: None,
    };
    BackendSession::set_controls(session, controls);
}

/// The same session, after it has left.
fn moved(fixture: &Fixture, session: Session) -> Session {
    let state = session.leave(None).expect("it can go");
    drop(session);
    let (mut session, unnamed) = fixture
        .runtime
        .block_on(
            fixture
                .engine
                .resume("aerostat", "aerostat", &options(), &state),
        )
        .unwrap();
    assert!(unnamed.is_none());
    hear(&mut session);
    session
}

const PREPARED: &str =
    "SELECT name, statement, parameter_types, from_sql FROM pg_prepared_statements ORDER BY 1";

#[test]
fn a_session_has_what_it_had() {
    let fixture = Fixture::new();
    let mut session = connect(&fixture);
    for sql in [
        "CREATE SCHEMA goods",
        "CREATE TABLE goods.t (id serial PRIMARY KEY, v text)",
        "CREATE ROLE ann",
        "SET TimeZone = 'Asia/Tokyo'",
        "SET work_mem = '7MB'",
        "SET my.word = 'a, \"b\" ''c'''",
        "SET statement_timeout = '55s'",
        "INSERT INTO t (v) VALUES ('x'), ('y')",
        "PREPARE by_id (int) AS SELECT v FROM t WHERE id = $1",
        "PREPARE all_of AS SELECT count(*) FROM t",
        "LISTEN news",
        "LISTEN \"Other News\"",
    ] {
        fixture.ok(&mut session, sql);
    }
    let text = "SELECT id FROM t WHERE v = $1";
    let prepared = fixture
        .runtime
        .block_on(session.prepare(text, &[25]))
        .unwrap();
    let held = session.hold(100).unwrap();
    session.keep("s1", Arc::new(prepared), Arc::from([25_u32]), held);
    // As whom it could prepare none of this.
    fixture.ok(&mut session, "SET ROLE ann");
    let told = session.parameter_changes();
    assert!(told.contains(&("TimeZone".to_owned(), "Asia/Tokyo".to_owned())));
    session.rest();
    let settings = "SELECT name, setting FROM pg_settings ORDER BY name";
    let asked = [
        settings,
        PREPARED,
        "SHOW my.word",
        "SELECT current_user, session_user, current_schema",
    ];
    let before = asked.map(|sql| fixture.ok(&mut session, sql));
    session.rest();
    let mut session = moved(&fixture, session);
    // Its client knows all of it.
    assert_eq!(session.parameter_changes(), []);
    assert!(session.take_notices().is_empty());
    let after = asked.map(|sql| fixture.ok(&mut session, sql));
    assert_eq!(after, before);
    fixture.ok(&mut session, "RESET ROLE");
    assert_eq!(fixture.ok(&mut session, "EXECUTE by_id (2)"), ["y"]);
    assert_eq!(fixture.ok(&mut session, "EXECUTE all_of"), ["2"]);
    assert!(session.named("s1").is_some());
    let numbers = "SELECT currval('t_id_seq'), lastval()";
    assert_eq!(fixture.ok(&mut session, numbers), ["2|2"]);
    // What RESET goes back to, and what its client is told then.
    fixture.ok(&mut session, "RESET TimeZone");
    let told = session.parameter_changes();
    assert!(told.iter().any(|(name, _)| name == "TimeZone"), "{told:?}");
    fixture.ok(&mut session, "NOTIFY news, 'here'");
    fixture.ok(&mut session, "NOTIFY \"Other News\"");
    session.rest();
    assert_eq!(session.take_notifications().len(), 2);
    // Again, with nothing lost on the way.
    let before = asked.map(|sql| fixture.ok(&mut session, sql));
    session.rest();
    let mut session = moved(&fixture, session);
    assert_eq!(asked.map(|sql| fixture.ok(&mut session, sql)), before);
}

#[test]
fn the_statement_without_a_name_comes_along() {
    let fixture = Fixture::new();
    let mut session = connect(&fixture);
    let prepared = Arc::new(
        fixture
            .runtime
            .block_on(session.prepare("SELECT $1 + 1", &[20]))
            .unwrap(),
    );
    let oids: Arc<[u32]> = Arc::from([20_u32]);
    let state = session.leave(Some(&(prepared, Arc::clone(&oids)))).unwrap();
    let resumed = fixture.runtime.block_on(fixture.engine.resume(
        "aerostat",
        "aerostat",
        &options(),
        &state,
    ));
    let (_session, unnamed) = resumed.unwrap();
    let (prepared, known) = unnamed.unwrap();
    assert_eq!((prepared.text(), known), ("SELECT $1 + 1", oids));
}

#[test]
fn what_cannot_go_keeps_its_session() {
    let fixture = Fixture::new();
    let mut other = connect(&fixture);
    let mut session = connect(&fixture);
    let rounds: [(&[&str], &[&str]); 5] = [
        (&["BEGIN", "SELECT 1"], &["COMMIT"]),
        (
            &["CREATE TEMP TABLE mine AS SELECT 1 AS a"],
            &["DROP TABLE mine"],
        ),
        (&["DECLARE c CURSOR WITH HOLD FOR SELECT 1"], &["CLOSE c"]),
        (
            &["SELECT pg_advisory_lock(7)"],
            &["SELECT pg_advisory_unlock(7)"],
        ),
        (&["BEGIN", "SELECT pg_advisory_xact_lock(8)"], &["ROLLBACK"]),
    ];
    for (holds, gives) in rounds {
        for sql in holds {
            fixture.ok(&mut session, sql);
        }
        session.rest();
        assert!(session.leave(None).is_none(), "{holds:?}");
        for sql in gives {
            fixture.ok(&mut session, sql);
        }
        session.rest();
        assert!(session.leave(None).is_some(), "{gives:?}");
    }
    // What was said to it, and its client was not told.
    fixture.ok(&mut session, "LISTEN news");
    session.rest();
    fixture.ok(&mut other, "NOTIFY news");
    other.rest();
    assert!(session.leave(None).is_none());
    assert_eq!(session.take_notifications().len(), 1);
    let session = moved(&fixture, session);
    assert!(session.leave(None).is_some());
}

#[test]
fn what_is_no_session_is_refused() {
    let fixture = Fixture::new();
    for state in [
        &b""[..],
        b"{}",
        b"null",
        b"[1]",
        b"\xff\xfe",
        &[b'['; 9_999],
    ] {
        let refused = fixture.runtime.block_on(fixture.engine.resume(
            "aerostat",
            "aerostat",
            &options(),
            state,
        ));
        let Err(error) = refused else {
            panic!("{state:?} was taken for a session");
        };
        assert_eq!(error.kind, ErrorKind::ProtocolViolation);
    }
    // A statement whose table is gone is gone, and the rest is there.
    let mut session = connect(&fixture);
    fixture.ok(&mut session, "CREATE TABLE public.t (a int)");
    fixture.ok(&mut session, "PREPARE gone AS SELECT a FROM public.t");
    fixture.ok(&mut session, "PREPARE stays AS SELECT 1");
    session.rest();
    let state = session.leave(None).unwrap();
    fixture.ok(&mut session, "DROP TABLE public.t");
    drop(session);
    let resumed = fixture.runtime.block_on(fixture.engine.resume(
        "aerostat",
        "aerostat",
        &options(),
        &state,
    ));
    let (mut session, _) = resumed.unwrap();
    assert_eq!(fixture.ok(&mut session, "EXECUTE stays"), ["1"]);
    let error = fixture.error(&mut session, "EXECUTE gone");
    assert_eq!(error.kind, ErrorKind::InvalidStatementName);
}
