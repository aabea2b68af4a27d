//! Every setting that is said to act does: a probe for each sees another thing under another
//! value. Which those are docs/sql.md says, and the crate holds it to the list of settings.

use std::{collections::BTreeSet, sync::Arc};

use crate::common::Fixture;
use aerostat_catalog::CopyState;
use aerostat_engine::Session;
use aerostat_types::NodeId;

const DOCUMENTATION: &str = include_str!("../../../../docs/sql.md");

/// A setting, two of its values, and what is to be another thing under each.
struct Probe {
    name: &'static str,
    values: [&'static str; 2],
    look: fn(&Fixture, &mut Session) -> String,
}

const fn probe(
    name: &'static str,
    values: [&'static str; 2],
    look: fn(&Fixture, &mut Session) -> String,
) -> Probe {
    Probe { name, values, look }
}

/// The rows of a message's last statement, or the kind of its error.
fn shown(fixture: &Fixture, session: &mut Session, sql: &str) -> String {
    match fixture.run(session, sql) {
        Ok(rows) => rows.join("\n"),
        Err(error) => format!("{:?}", error.kind),
    }
}

fn explained(fixture: &Fixture, session: &mut Session, sql: &str, word: &str) -> String {
    let plan = shown(fixture, session, &format!("explain {sql}"));
    plan.contains(word).to_string()
}

/// What a query gives on a copy that has not heard of its leader, to a session with the same setting.
fn on_copy(fixture: &Fixture, session: &mut Session, setting: &str) -> String {
    let value = fixture.ok(session, &format!("show {setting}")).join("");
    let copy = Arc::new(CopyState::new(NodeId(2)));
    let served = fixture.engine.node().database("aerostat").unwrap();
    let options = [(setting.to_owned(), value)];
    let database = served.as_copy(copy);
    let session = fixture.engine.connect_to("aerostat", &database, &options);
    shown(fixture, &mut session.unwrap(), "select count(*) from t")
}

/// How often the database has looked for a kept plan, and found one.
fn plans_looked_for(fixture: &Fixture) -> (u64, u64) {
    let databases = fixture.engine.databases();
    let all = databases.iter();
    all.fold((0, 0), |(hits, misses), database| {
        (
            hits + database.plan_cache_hits,
            misses + database.plan_cache_misses,
        )
    })
}

const PROBES: [Probe; 22] = [
    probe(
        "aerostat.default_layout",
        ["row", "column"],
        |fixture, session| {
            let sql = "create table l (a int, b int); select layout from aerostat.tables where table_name = 'l'";
            shown(fixture, session, sql)
        },
    ),
    probe(
        "aerostat.dynamic_filters",
        ["on", "off"],
        |fixture, session| {
            let sql = "select k from t order by v limit 1";
            explained(fixture, session, sql, "run_time_filters")
        },
    ),
    probe("aerostat.max_staleness", ["0", "1s"], |fixture, session| {
        on_copy(fixture, session, "aerostat.max_staleness")
    }),
    probe(
        "aerostat.read_from",
        ["any", "leader"],
        |fixture, session| on_copy(fixture, session, "aerostat.read_from"),
    ),
    probe("aerostat.star_join", ["on", "off"], |fixture, session| {
        let sql = "select s.name, sum(t.v) from t join s on t.s = s.k group by s.name";
        explained(fixture, session, sql, "StarJoin")
    }),
    probe("application_name", ["one", "other"], |fixture, session| {
        session.parameter_changes();
        let mut other = fixture.session();
        let sql = format!(
            "select application_name from pg_stat_activity where pid = {}",
            session.number()
        );
        shown(fixture, &mut other, &sql)
    }),
    probe("client_encoding", ["utf8", "latin1"], |_, session| {
        session.client_settings().charset.is_some().to_string()
    }),
    probe("role", ["aerostat", "guest"], |fixture, session| {
        shown(fixture, session, "select current_user, session_user")
    }),
    probe(
        "session_authorization",
        ["aerostat", "guest"],
        |fixture, session| shown(fixture, session, "select session_user"),
    ),
    probe(
        "client_min_messages",
        ["notice", "warning"],
        |fixture, session| {
            fixture.ok(session, "drop table if exists nothing");
            format!("{:?}", session.take_notices())
        },
    ),
    probe(
        "default_transaction_isolation",
        ["read committed", "repeatable read"],
        sees_others,
    ),
    probe(
        "default_transaction_read_only",
        ["on", "off"],
        |fixture, session| shown(fixture, session, "update t set v = 1 where k = 1"),
    ),
    probe("enable_fast_path", ["on", "off"], |fixture, session| {
        // What it runs has no plan.
        let before = plans_looked_for(fixture);
        fixture.ok(session, "select v from t where k = 1");
        (plans_looked_for(fixture) == before).to_string()
    }),
    probe(
        "idle_in_transaction_session_timeout",
        ["1s", "0"],
        |fixture, session| {
            fixture.ok(session, "begin");
            format!("{:?}", session.idle_limit())
        },
    ),
    probe("idle_session_timeout", ["1s", "0"], |_, session| {
        format!("{:?}", session.idle_limit())
    }),
    probe("lock_timeout", ["10ms", "0"], |fixture, session| {
        let mut holder = fixture.session();
        fixture.ok(&mut holder, "begin; lock table t");
        // It ends in any case.
        shown(
            fixture,
            session,
            "set statement_timeout = '200ms'; select count(*) from t",
        )
    }),
    probe(
        "plan_cache_mode",
        ["auto", "force_custom_plan"],
        |fixture, session| {
            let sql = "select v, count(*) from t group by v";
            fixture.ok(session, sql);
            let (before, _) = plans_looked_for(fixture);
            fixture.ok(session, sql);
            (plans_looked_for(fixture).0 > before).to_string()
        },
    ),
    probe("search_path", ["public", "pg_temp"], |fixture, session| {
        shown(fixture, session, "select count(*) from s")
    }),
    probe("statement_timeout", ["10ms", "0"], |fixture, session| {
        shown(fixture, session, "select pg_sleep(0.1) is null")
    }),
    probe("timezone", ["UTC", "Asia/Tokyo"], |fixture, session| {
        shown(
            fixture,
            session,
            "select '2020-01-01 00:00+00'::timestamptz::text",
        )
    }),
    probe(
        "transaction_isolation",
        ["read committed", "repeatable read"],
        sees_others,
    ),
    probe(
        "transaction_read_only",
        ["on", "off"],
        |fixture, session| shown(fixture, session, "update t set v = 1 where k = 1"),
    ),
];

/// How a transaction's second statement sees what another session did before it.
fn sees_others(fixture: &Fixture, session: &mut Session) -> String {
    // With a block open already, this is no more than a warning.
    fixture.ok(session, "begin");
    let count = "select count(*) from s";
    let before = fixture.ok(session, count);
    let mut other = fixture.session();
    fixture.ok(&mut other, "insert into s select max(k) + 1, 'new' from s");
    let after = fixture.ok(session, count);
    (before == after).to_string()
}

/// The names in the first column of the table under a heading.
fn documented(heading: &str) -> BTreeSet<&'static str> {
    let (_, section) = DOCUMENTATION
        .split_once(&format!("### {heading}\n"))
        .unwrap();
    let section = section.split("\n#").next().unwrap();
    let names = section.lines().filter_map(|line| line.strip_prefix("| `"));
    names.filter_map(|rest| rest.split('`').next()).collect()
}

#[test]
fn every_setting_that_acts_has_a_probe_that_sees_it() {
    let names: BTreeSet<&str> = PROBES.iter().map(|probe| probe.name).collect();
    assert_eq!(names, documented("Settings that act"));
    for Probe { name, values, look } in &PROBES {
        let seen = values.map(|value| {
            let fixture = Fixture::new();
            let mut session = fixture.session();
            fixture.ok(
                &mut session,
                "create table s (k int primary key, name text); \
                 insert into s values (1, 'a'), (2, 'b'); \
                 create table t (k int primary key, s int, v int); \
                 insert into t select g, g % 2 + 1, g from generate_series(1, 100) as g; \
                 create role guest",
            );
            session.take_notices();
            // Modes of the transaction at hand are set in one.
            if name.starts_with("transaction_") {
                fixture.ok(&mut session, "begin");
            }
            fixture.ok(&mut session, &format!("set {name} = '{value}'"));
            look(&fixture, &mut session)
        });
        assert_ne!(seen[0], seen[1], "{name} does nothing");
    }
}

#[test]
fn a_setting_of_one_value_refuses_others() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    for name in documented("Settings with one value") {
        let now = fixture.ok(&mut session, &format!("show {name}"));
        fixture.ok(&mut session, &format!("set {name} = '{}'", now[0]));
        let kind = fixture.kind(&mut session, &format!("set {name} = 'something'"));
        assert_eq!(
            kind,
            aerostat_types::ErrorKind::InvalidParameterValue,
            "{name}"
        );
    }
}

#[test]
fn a_setting_without_effect_checks_its_value() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    for name in documented("Settings without effect") {
        let now = fixture.ok(&mut session, &format!("show {name}"));
        fixture.ok(&mut session, &format!("set {name} = '{}'", now[0]));
        for wrong in ["something", "", "-99", "4 parsecs"] {
            let kind = fixture.kind(&mut session, &format!("set {name} = '{wrong}'"));
            assert_eq!(
                kind,
                aerostat_types::ErrorKind::InvalidParameterValue,
                "{name} = {wrong}"
            );
        }
    }
    for (given, shown) in [
        ("64", "64kB"),
        ("8192", "8MB"),
        ("1GB", "1GB"),
        ("1500 kB", "1500kB"),
        ("2097152B", "2MB"),
    ] {
        fixture.ok(&mut session, &format!("set work_mem = '{given}'"));
        assert_eq!(fixture.ok(&mut session, "show work_mem"), [shown]);
    }
    for wrong in ["63", "9TB", "1mb"] {
        fixture.error(&mut session, &format!("set work_mem = '{wrong}'"));
    }
}
