//! Kept physical plans against plans made anew: a plan that has run before gives what
//! `plan_cache_mode = force_custom_plan` gives, whatever has happened in between.

use std::{sync::Arc, thread};

use crate::common::{Fixture, Random, rows_of};
use aerostat_api::Outcome;
use aerostat_engine::Session;
use aerostat_types::{ErrorKind, SqlError};
use futures::StreamExt;

const TABLES: &str = "
    create table day (d date primary key, year int, month int);
    create table item (i int primary key, brand text, price numeric(8, 2));
    create table sale (n int primary key, d date, i int, amount int, note text);
    insert into day select date '2024-01-01' + g, 2024 + g / 40, 1 + g / 10
        from generate_series(0, 79) as g;
    insert into item select g, 'b' || g % 5, g / 3.0 from generate_series(0, 99) as g;
    insert into sale select g, date '2023-12-25' + g % 97, g % 110, g % 1000 - 300, 'n' || g % 6
        from generate_series(1, 9000) as g";

/// Stars, and statements over one table: sorts, limits, groups, unions.
const KEPT: &[&str] = &[
    "select year, sum(amount), count(*) from sale join day using (d) group by year order by 1",
    "select year, brand, sum(amount * 2 - n), max(note) from sale join day using (d)
        join item using (i) where month < 5 and brand <> 'b2' group by year, brand order by 1, 2",
    "select brand, sum(amount) from sale join item using (i) group by brand
        having sum(amount) > 100 order by 2 desc, 1 limit 2",
    "select month, count(*) from sale join day using (d) where amount > 30
        group by month order by 1",
    "select count(*), sum(amount) from sale where note <> 'n3' and amount between 5 and 700",
    "select note, count(*), avg(amount) from sale group by note order by note",
    "select distinct note from sale where amount % 7 = 3 order by 1 desc",
    "select n, amount + 1 from sale where n % 900 = 7 order by n",
    "select x.brand, count(*) from (select brand, i from item where i > 3 union all
        select brand, i from item where i < 9) as x group by x.brand order by 1",
    "select avg(s), count(*) from (select year, sum(amount) as s from sale join day using (d) group by year) as x",
];

fn ran(fixture: &Fixture) -> u64 {
    let databases = fixture.engine.databases();
    databases
        .iter()
        .map(|database| database.plan_cache_physical_hits)
        .sum()
}

/// Whether a kept physical plan runs for a statement, and its rows.
fn run(fixture: &Fixture, session: &mut Session, sql: &str) -> (bool, Vec<String>) {
    let before = ran(fixture);
    let rows = fixture.ok(session, sql);
    (ran(fixture) > before, rows)
}

fn anew(fixture: &Fixture, session: &mut Session, sql: &str) -> Vec<String> {
    fixture.ok(session, "set plan_cache_mode = force_custom_plan");
    let (kept, rows) = run(fixture, session, sql);
    assert!(!kept);
    fixture.ok(session, "set plan_cache_mode = auto");
    rows
}

/// Runs a statement until its physical plan is kept.
fn warm(fixture: &Fixture, session: &mut Session, sql: &str) {
    for _ in 0..2 {
        fixture.ok(session, sql);
    }
    assert!(run(fixture, session, sql).0, "{sql}");
}

/// A kept plan runs for each of the statements, and gives what a new one gives.
fn check_kept(fixture: &Fixture, session: &mut Session, about: &str) {
    for sql in statements() {
        let expected = anew(fixture, session, &sql);
        let (kept, rows) = run(fixture, session, &sql);
        assert_eq!(rows, expected, "{about}: {sql}");
        assert!(kept, "{about}: {sql}");
    }
}

/// As it is found, by a kept plan or not.
fn check(fixture: &Fixture, session: &mut Session, about: &str) {
    for sql in statements() {
        let expected = anew(fixture, session, &sql);
        for _ in 0..3 {
            assert_eq!(fixture.ok(session, &sql), expected, "{about}: {sql}");
        }
    }
}

fn statements() -> impl Iterator<Item = String> {
    KEPT.iter().map(|&sql| sql.to_owned())
}

fn fixture() -> (Fixture, Session) {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(&mut session, TABLES);
    (fixture, session)
}

#[test]
fn rows_and_layouts_are_those_of_now() {
    let (fixture, mut session) = fixture();
    for sql in statements() {
        warm(&fixture, &mut session, &sql);
    }
    check_kept(&fixture, &mut session, "first");
    for change in [
        "insert into sale values (-1, '2024-01-07', 7, 600, 'new'), (-2, null, null, null, null)",
        "update sale set amount = amount + 3, note = 'm' || n % 4 where n % 3 = 0",
        "delete from sale where n % 7 = 1",
        "vacuum freeze",
        "update day set month = month % 12 + 1, year = year - 1",
        "update item set brand = 'c' || i % 4 where i % 2 = 0",
        "delete from item where i % 9 = 0; insert into item values (500, 'b9', 1)",
        "vacuum (freeze) sale",
        "vacuum",
        "analyze sale",
    ] {
        fixture.ok(&mut session, change);
        check_kept(&fixture, &mut session, change);
    }
    for change in [
        "alter table sale rename column amount to total",
        "alter table sale rename column total to amount",
        "alter table day add column week int default 3",
        "alter table day drop column week",
        "alter table sale alter column amount type bigint",
        "create index sale_amount on sale (amount)",
        "drop index sale_amount",
        "alter table item rename to items; create table item as select * from items",
        "alter table item add primary key (i)",
        "truncate day; insert into day values ('2024-01-02', 1, 2)",
        "alter table sale set (layout = 'row')",
    ] {
        if let Err(error) = fixture.run(&mut session, change) {
            panic!("{change}: {error:?}");
        }
        if change.ends_with("to total") {
            let sql = statements().next().unwrap();
            assert_eq!(fixture.kind(&mut session, &sql), ErrorKind::UndefinedColumn);
            continue;
        }
        check(&fixture, &mut session, change);
    }
    check_kept(&fixture, &mut session, "last");
}

#[test]
fn other_sizes_and_settings_choose_other_plans() {
    let (fixture, mut session) = fixture();
    let sql = statements().next().unwrap();
    warm(&fixture, &mut session, &sql);
    for setting in ["aerostat.star_join", "aerostat.dynamic_filters"] {
        fixture.ok(&mut session, &format!("set {setting} = off"));
        assert!(!run(&fixture, &mut session, &sql).0, "{setting}");
        fixture.ok(&mut session, &format!("reset {setting}"));
        fixture.ok(&mut session, &sql);
        check(&fixture, &mut session, setting);
    }
    warm(&fixture, &mut session, &sql);
    fixture.ok(
        &mut session,
        "insert into sale select g, '2024-01-09', 7, g % 100, 'more'
            from generate_series(10001, 40000) as g",
    );
    assert!(!run(&fixture, &mut session, &sql).0);
    check_kept_one(&fixture, &mut session, &sql);
    fixture.ok(&mut session, "delete from sale where n > 10000; vacuum");
    assert!(!run(&fixture, &mut session, &sql).0);
    check_kept_one(&fixture, &mut session, &sql);
    // The side becomes the larger table: this is no star, and its plan is not kept.
    fixture.ok(
        &mut session,
        "insert into day select date '2124-01-01' + g, 1, 1 from generate_series(1, 30000) as g",
    );
    let expected = anew(&fixture, &mut session, &sql);
    for _ in 0..3 {
        let found = run(&fixture, &mut session, &sql);
        assert_eq!(found, (false, expected.clone()));
    }
    // Rights are asked for with the plan.
    fixture.ok(
        &mut session,
        "create role guest login; grant connect on database aerostat to guest",
    );
    let mut guest = fixture.engine.connect("guest", "aerostat", &[]).unwrap();
    assert_eq!(
        fixture.kind(&mut guest, &sql),
        ErrorKind::InsufficientPrivilege
    );
    // What is told each statement anew is in no kept plan.
    for sql in [
        "select count(*) from sale where random() < 2",
        "select count(*) from sale, (select now() as t) as x where t < now() + interval '1 s'",
        "select n, nextval('numbers') from sale where n < 3",
        // The scan takes the filter of the sort.
        "select n, note from sale order by amount desc, n limit 7",
    ] {
        fixture.ok(&mut session, "create sequence if not exists numbers");
        for _ in 0..3 {
            assert!(!run(&fixture, &mut session, sql).0, "{sql}");
        }
    }
}

fn check_kept_one(fixture: &Fixture, session: &mut Session, sql: &str) {
    let expected = anew(fixture, session, sql);
    assert_eq!(run(fixture, session, sql), (true, expected), "{sql}");
}

#[test]
fn snapshots_are_those_of_the_statement() {
    let (fixture, mut session) = fixture();
    for sql in statements() {
        warm(&fixture, &mut session, &sql);
    }
    let mut other = fixture.session();
    for level in ["read committed", "repeatable read"] {
        fixture.ok(&mut session, &format!("begin isolation level {level}"));
        check_kept(&fixture, &mut session, level);
        let before: Vec<_> = statements()
            .map(|sql| fixture.ok(&mut session, &sql))
            .collect();
        fixture.ok(
            &mut other,
            "update sale set amount = amount + 1 where n % 2 = 0; delete from item where i = 3;
             update day set month = month + 1; vacuum freeze",
        );
        let after: Vec<_> = statements()
            .map(|sql| fixture.ok(&mut session, &sql))
            .collect();
        assert_eq!(before == after, level == "repeatable read");
        check_kept(&fixture, &mut session, level);
        // Rows that nobody else sees, and a savepoint that takes some back.
        fixture.ok(
            &mut session,
            "insert into sale values (100000, '2024-01-07', 7, 600, 'own'); savepoint s;
             insert into sale values (100001, '2024-01-07', 7, 9000, 'own')",
        );
        check_kept(&fixture, &mut session, "own rows");
        check_kept(&fixture, &mut other, "beside own rows");
        fixture.ok(&mut session, "rollback to s");
        check_kept(&fixture, &mut session, "own rows taken back");
        fixture.ok(&mut session, "rollback");
        check_kept(&fixture, &mut session, "rolled back");
    }
    // A block that has defined something has plans of its own.
    fixture.ok(
        &mut session,
        "begin; alter table sale drop column note; alter table sale add column note text default 'x'",
    );
    for sql in statements() {
        let expected = anew(&fixture, &mut session, &sql);
        assert_eq!(run(&fixture, &mut session, &sql), (false, expected));
    }
    fixture.ok(&mut session, "rollback");
    check_kept(&fixture, &mut session, "definitions rolled back");
}

#[test]
fn executions_at_once_share_nothing() {
    let (fixture, mut session) = fixture();
    let wide = "select n, amount from sale order by amount, n";
    let top = "select n, note from sale order by amount desc, n limit 700";
    for sql in statements().chain([wide.to_owned()]) {
        warm(&fixture, &mut session, &sql);
    }
    // Cursors of several blocks in turns, each over its own rows.
    let mut sessions: Vec<Session> = (0..3).map(|_| fixture.session()).collect();
    let mut expected = Vec::new();
    for (nth, session) in sessions.iter_mut().enumerate() {
        fixture.ok(
            session,
            &format!("begin isolation level repeatable read; update sale set amount = {nth} where n % 100 = {nth}"),
        );
        expected.push([wide, top].map(|sql| anew(&fixture, session, sql)));
        let before = ran(&fixture);
        fixture.ok(
            session,
            &format!("declare w cursor for {wide}; declare t cursor for {top}"),
        );
        assert!(ran(&fixture) > before);
    }
    let mut found = vec![[Vec::new(), Vec::new()]; 3];
    for _ in 0..20 {
        for (nth, session) in sessions.iter_mut().enumerate() {
            for (at, cursor) in ["w", "t"].iter().enumerate() {
                found[nth][at].extend(fixture.ok(session, &format!("fetch 450 {cursor}")));
            }
        }
    }
    assert_eq!(found, expected);
    drop(sessions);
    // Threads that run the same plans, beside one that changes rows without changing results.
    let expected: Vec<_> = statements()
        .map(|sql| anew(&fixture, &mut session, &sql))
        .collect();
    thread::scope(|scope| {
        for _ in 0..4 {
            let (fixture, expected) = (&fixture, &expected);
            scope.spawn(move || {
                let mut session = fixture.session();
                for _ in 0..10 {
                    for (sql, expected) in statements().zip(expected) {
                        assert_eq!(&fixture.ok(&mut session, &sql), expected, "{sql}");
                    }
                }
            });
        }
        for _ in 0..20 {
            fixture.ok(
                &mut session,
                "update sale set amount = amount where n % 5 = 0",
            );
            fixture.ok(&mut session, "vacuum freeze sale");
        }
    });
}

#[test]
fn an_execution_that_ends_early_leaves_nothing_behind() {
    let (fixture, mut session) = fixture();
    let error = "select year, sum(100 / (amount + 301)) from sale join day using (d)
        group by year order by 1";
    let wide = "select n, 1000 / (amount + 301) from sale order by 2 desc, n";
    for sql in [error, wide] {
        warm(&fixture, &mut session, sql);
        for _ in 0..3 {
            check_kept_one(&fixture, &mut session, sql);
            fixture.ok(&mut session, "update sale set amount = -301 where n = 500");
            assert_eq!(fixture.kind(&mut session, sql), ErrorKind::DivisionByZero);
            fixture.ok(&mut session, "update sale set amount = 4 where n = 500");
            check_kept_one(&fixture, &mut session, sql);
            // EXPLAIN has a plan of its own.
            fixture.ok(&mut session, &format!("explain analyze {sql}"));
            fixture.ok(&mut session, &format!("explain {sql}"));
            check_kept_one(&fixture, &mut session, sql);
        }
    }
    for sql in statements().chain([wide.to_owned()]) {
        warm(&fixture, &mut session, &sql);
        // Its stream is dropped before and after its first rows.
        for batches in 0..2 {
            fixture
                .runtime
                .block_on(begun(&mut session, &sql, batches))
                .unwrap();
        }
        // And it is cancelled.
        let cancel = session.cancel_handle();
        let outcome = fixture.runtime.block_on(async {
            let statement = session.split(&sql).await?.remove(0);
            let outcome = session.execute(&statement).await?;
            cancel.cancel();
            rows_of(outcome).await
        });
        if let Err(error) = outcome {
            assert_eq!(error.kind, ErrorKind::QueryCanceled, "{sql}");
        }
        check_kept_one(&fixture, &mut session, &sql);
    }
}

/// Starts a statement, takes so many batches and drops the rest.
async fn begun(session: &mut Session, sql: &str, count: usize) -> Result<(), SqlError> {
    let statement = session.split(sql).await?.remove(0);
    let Outcome::Rows { mut batches, .. } = session.execute(&statement).await? else {
        panic!("{sql}");
    };
    for _ in 0..count {
        batches.next().await.transpose()?;
    }
    Ok(())
}

#[test]
fn a_dropped_table_is_not_held() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(
        &mut session,
        "create table s (k int primary key, t text);
         create table f (n int primary key, k int, v text) with (layout = 'row');
         insert into s select g, 't' || g from generate_series(1, 5000) as g;
         insert into f select g, g % 10, repeat('x', 100) || g from generate_series(1, 20000) as g",
    );
    let used = || fixture.engine.databases()[0].memory_used;
    for sql in [
        "select t, count(*) from f join s using (k) group by t order by 1",
        "select count(*) from f where v <> 'y'",
        "select count(*) from s where t <> 'y'",
    ] {
        warm(&fixture, &mut session, sql);
    }
    // No snapshot is held either: what is dead can go.
    fixture.ok(
        &mut session,
        "delete from s where k > 2600; insert into s values (9000, null); vacuum freeze s",
    );
    let dead = "select rows_dead from aerostat.tables where table_name = 's'";
    assert_eq!(fixture.ok(&mut session, dead), ["0"]);
    let before = used();
    fixture.ok(&mut session, "drop table f");
    assert!(used() < before - (1 << 20), "{before}");
}

/// Random statements over a star and a table by itself, each run three times kept after each
/// change, against new plans.
#[test]
fn random_statements_give_what_new_plans_give() {
    let seed = match std::env::var("AEROSTAT_PLANS_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => {
            let now = std::time::SystemTime::now();
            now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
        }
    };
    eprintln!("AEROSTAT_PLANS_SEED={seed}");
    let mut random = Random(seed);
    let (fixture, mut session) = fixture();
    let statements: Arc<[String]> = (0..24).map(|_| random_statement(&mut random)).collect();
    let before = ran(&fixture);
    for step in 0..14 {
        for sql in statements.iter() {
            let expected = anew(&fixture, &mut session, sql);
            for _ in 0..2 {
                let found = fixture.ok(&mut session, sql);
                assert_eq!(found, expected, "seed {seed}, step {step}: {sql}");
            }
        }
        let change = random.pick(&[
            "update sale set amount = amount * 2 % 977, i = i + 1 where n % 3 = 1",
            "delete from sale where n % 11 = 4",
            "insert into sale select 20000 + g, '2024-02-02', g % 90, g, 'z' from
                generate_series(1, 90) as g on conflict do nothing",
            "vacuum freeze",
            "update item set brand = 'd' || i % 3, price = price + 1 where i % 5 = 2",
            "update day set year = 2030 - month",
            "delete from day where month = 4",
            "rollback; begin",
            "commit",
            "begin isolation level repeatable read",
        ]);
        // Some end or begin blocks that there are not; VACUUM is not for blocks.
        if fixture.run(&mut session, change).is_err() {
            fixture.ok(&mut session, "rollback");
        }
    }
    let kept = ran(&fixture) - before;
    assert!(kept > 24 * 14, "seed {seed}: {kept} kept plans ran");
}

fn random_statement(random: &mut Random) -> String {
    let (mut from, mut columns) = ("sale".to_owned(), vec!["note", "n % 3", "amount / 100"]);
    if random.below(3) > 0 {
        from.push_str(" join day using (d)");
        columns.extend(["year", "month", "month % 2"]);
    }
    if random.below(3) == 0 {
        from.push_str(" join item using (i)");
        columns.extend(["brand", "brand || note", "price > 9"]);
    }
    let groups: Vec<&str> = (0..random.below(3))
        .map(|_| random.pick(&columns))
        .collect();
    let aggregates = [
        "count(*)",
        "sum(amount)",
        "sum(amount * 2 - n)",
        "max(note)",
        "avg(amount)",
        "count(distinct amount)",
        "sum(n) filter (where amount > 9)",
    ];
    let mut outputs: Vec<&str> = groups.clone();
    outputs.extend((0..1 + random.below(3)).map(|_| random.pick(&aggregates)));
    let mut sql = format!("select {} from {from}", outputs.join(", "));
    let condition = random.pick(&[
        "amount > 50",
        "note like '%3'",
        "n between 70 and 5000",
        "i in (4, 9, 11)",
        "true",
    ]);
    sql.push_str(&format!(" where {condition}"));
    if !groups.is_empty() {
        let positions: Vec<String> = (1..=groups.len()).map(|at| at.to_string()).collect();
        let positions = positions.join(", ");
        let order = random.pick(&["", " desc", " limit 4"]);
        let (direction, limit) = match order {
            " limit 4" => ("", order),
            order => (order, ""),
        };
        sql.push_str(&format!(
            " group by {positions} order by {}{direction}{limit}",
            positions.replace(',', &format!("{direction},")),
        ));
    }
    sql
}
