//! Who has the query threads: tenants share them, whatever each of them runs.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use crate::common::Fixture;
use aerostat_engine::Session;

/// What the threads have spent on each database, in order of names.
fn times(fixture: &Fixture) -> Vec<(String, Duration)> {
    let databases = fixture.engine.databases();
    let times = databases.into_iter().map(|it| (it.name, it.query_time));
    let mut times: Vec<_> = times.filter(|(name, _)| name != "aerostat").collect();
    times.sort();
    times
}

fn connect(fixture: &Fixture, database: &str) -> Session {
    fixture.engine.connect("aerostat", database, &[]).unwrap()
}

#[test]
fn tenants_share_the_threads() {
    let fixture = Fixture::new();
    let mut admin = fixture.session();
    for database in ["few", "many"] {
        fixture.ok(&mut admin, &format!("create database {database}"));
        fixture.ok(
            &mut connect(&fixture, database),
            "create table t (k int primary key, x int);
             insert into t select g, g % 1000 from generate_series(1, 300000) as g",
        );
    }
    let before = times(&fixture);
    let stop = AtomicBool::new(false);
    let spent = thread::scope(|scope| {
        // Three sessions of one tenant, nine of the other, all of which always run something.
        for (database, sessions) in [("few", 3), ("many", 9)] {
            for _ in 0..sessions {
                let (fixture, stop) = (&fixture, &stop);
                scope.spawn(move || {
                    let mut session = connect(fixture, database);
                    while !stop.load(Ordering::Relaxed) {
                        let sql = "select x % 7, count(*), sum(k) from t group by 1 order by 1";
                        assert_eq!(fixture.ok(&mut session, sql).len(), 7);
                    }
                });
            }
        }
        loop {
            thread::sleep(Duration::from_millis(20));
            let now = times(&fixture);
            let spent = now
                .iter()
                .zip(&before)
                .map(|(now, before)| now.1 - before.1);
            let spent: Vec<f64> = spent.map(|time| time.as_secs_f64()).collect();
            if spent.iter().sum::<f64>() > 2.0 {
                stop.store(true, Ordering::Relaxed);
                return spent;
            }
        }
    });
    let share = spent[0] / (spent[0] + spent[1]);
    // By sessions it would be a quarter. Clients that the machine gives no time to ask for less.
    assert!((0.36..0.64).contains(&share), "{share} of {spent:?}");
}

#[test]
fn functions_that_sleep_hold_up_nobody() {
    let fixture = Fixture::new();
    let mut holder = fixture.session();
    fixture.ok(&mut holder, "select pg_advisory_lock(7)");
    thread::scope(|scope| {
        // More than there are threads for queries.
        let waiters: Vec<_> = (0..5)
            .map(|_| {
                scope.spawn(|| {
                    let mut session = fixture.session();
                    let sql = "select pg_advisory_lock(7), pg_advisory_unlock(7)";
                    fixture.ok(&mut session, sql)
                })
            })
            .collect();
        let sql = "select count(*) from pg_locks where locktype = 'advisory' and not granted";
        while fixture.ok(&mut holder, sql) != ["5"] {
            thread::sleep(Duration::from_millis(5));
        }
        let sql = "select sum(g) from generate_series(1, 100000) as g";
        assert_eq!(fixture.ok(&mut holder, sql), ["5000050000"]);
        fixture.ok(&mut holder, "select pg_advisory_unlock(7)");
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), ["|true"]);
        }
    });
}
