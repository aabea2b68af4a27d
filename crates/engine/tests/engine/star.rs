//! Star joins against the plans that they stand for: the same statements with
//! `aerostat.star_join` on and off give the same rows and errors.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use crate::common::{Fixture, Random};
use aerostat_engine::Session;
use aerostat_types::ErrorKind;

/// A fact and sides: `place` is found through `shop`, days by date, `code` by a unique index;
/// keys of shops are sparse and negative.
const TABLES: &str = "
    create table region (r int primary key, rname text);
    create table place (p smallint primary key, r int, pname varchar(9));
    create table shop (s bigint primary key, p smallint, sname text, opened date);
    create table day (d date primary key, year int, month int);
    create table item (i int primary key, code int unique, brand char(4), price numeric(8, 2));
    create table pair (a int, b int, what text, primary key (a, b));
    create table sale (
        n int primary key, s int, d date, i int, c int, a int, b int,
        amount int, big bigint, cost numeric(9, 2), ratio float8, note text
    );
    insert into region values (1, 'north'), (2, 'south'), (3, null);
    insert into place select g, 1 + g % 3, 'place' || g % 4 from generate_series(0, 8) as g;
    insert into shop select (g - 5) * 1000003, g % 9, 'shop' || g, date '2020-01-01' + g
        from generate_series(0, 19) as g;
    insert into shop values (77, null, 'nowhere', null);
    insert into day select date '2024-01-01' + g, 2024 + g / 40, 1 + g / 10
        from generate_series(0, 79) as g;
    insert into item select g * 7, nullif(1000 - g, 950), 'b' || g % 5, g / 3.0
        from generate_series(0, 99) as g;
    insert into pair select g % 10, g / 10, 'w' || g % 3 from generate_series(0, 59) as g;
    insert into sale
        select g, case when g % 11 = 0 then null when g % 13 = 0 then 4 else (g % 23 - 5) * 1000003 end,
            date '2023-12-25' + g % 97, g % 110 * 7, 1000 - g % 120, g % 12, g % 7,
            g % 1000 - 300, g::bigint * 1000000007, g % 500 / 7.0, g / 3.0::float8, 'n' || g % 6
        from generate_series(1, 9000) as g;
    update sale set amount = null, cost = null where n % 17 = 0";

/// Statements that are joined as stars.
const STARS: &[&str] = &[
    "select year, sum(amount), count(*) from sale join day using (d) group by year order by 1",
    "select sum(big) from sale, day where sale.d = day.d and month = 3",
    "select sum(cost), min(amount), max(note), avg(amount), count(cost), count(*)
        from sale, shop where sale.s = shop.s",
    "select count(*) from sale, shop where sale.s = shop.s and sname = 'no such'",
    "select sname, count(*) from sale, shop where sale.s = shop.s and sname = 'no such' group by sname",
    // Snowflakes.
    "select rname, pname, sum(amount * 2 - n) from sale, shop, place, region
        where sale.s = shop.s and shop.p = place.p and place.r = region.r
        group by rname, pname order by 1, 2",
    "select rname, year, brand, count(*), avg(cost) from sale, shop, place, region, day, item
        where sale.s = shop.s and shop.p = place.p and place.r = region.r and sale.d = day.d
            and sale.i = item.i and brand in ('b1', 'b3') and rname <> 'south'
        group by rname, year, brand order by 1, 2, 3",
    // One table twice, and columns of the same name.
    "select x.year, y.month, count(*), min(sale.d) from sale join day x on sale.d = x.d
        join shop on sale.s = shop.s join day y on y.d = sale.d where x.month < 5
        group by x.year, y.month order by 1, 2",
    // Unique, but no primary key.
    "select brand, sum(price), count(distinct amount) from sale join item on code = c
        group by brand order by 1",
    // The fact's own columns, expressions, conditions on both sides.
    "select note, year, sum(amount) from sale join day using (d) where amount > 10
        group by note, year order by 1, 2",
    "select n % 5, brand || 'x', month * 2, sum(cost + price), max(brand) from sale
        join item using (i) join day using (d) where price * 3 > cost group by 1, 2, 3 order by 1, 2, 3",
    "select sum(case when brand = 'b1' then amount else 0 end), sum(amount) filter (where month = 2)
        from sale join item using (i) join day using (d)",
    "select year, sum(amount) from sale join day using (d) group by year having sum(amount) > 100
        order by 2 desc limit 1",
    "select sname, sum(ratio) > 0 from sale join shop using (s) where note like '%3'
        group by sname order by 1",
    // A side that is a query.
    "select m, sum(amount) from sale join (select d, max(month) as m from day group by d) as x
        using (d) group by m order by 1",
    "select count(*), sum(amount) from sale join shop using (s)
        where shop.p in (select p from place where r = 1)",
    "select count(distinct amount), count(distinct note) from sale join item on code = c",
    "select count(*) from sale where i in (select i from item where brand = 'b2')
        and c in (select c from sale where n < 50)",
    // Two ways to one table.
    "select count(*) from sale, shop, item, place
        where sale.s = shop.s and sale.i = item.i and shop.p = place.p and place.p = item.code - 990",
    "select (select sum(amount) from sale join day using (d) where month = 1) + 1",
    "with t as (select year, sum(amount) as a from sale join day using (d) group by year)
        select x.year, y.a from t as x join t as y on x.a >= y.a order by 1, 2",
    "select year, count(*) from sale join day using (d) group by year
        union all select month, sum(amount) from sale join day using (d) group by month order by 1, 2",
];

/// Statements that look like stars and are none.
const OTHERS: &[&str] = &[
    // A composite key, and a column that is not unique.
    "select what, count(*) from sale join pair using (a, b) group by what order by 1",
    "select count(*) from sale join pair on sale.a = pair.a",
    // Outer joins and comparisons.
    "select year, count(*) from sale left join day using (d) group by year order by 1",
    "select count(*) from sale join day on sale.d < day.d where day.year = 2024",
    // Texts, and expressions, as keys.
    "select count(*) from sale join shop on sale.note = shop.sname",
    "select count(*) from sale join item on sale.i + 7 = item.i",
    // What must not be run twice.
    "select sum(r) from sale join (select d, count(random()) as r from day group by d) as x using (d)",
    // Order matters.
    "select string_agg(note, ',' order by n) from sale join day using (d) where month = 3 and n < 90",
    "select year, count(*) from sale join day using (d) group by rollup (year) order by 1",
];

fn off(fixture: &Fixture, session: &mut Session, sql: &str) -> Vec<String> {
    fixture.ok(session, "set aerostat.star_join = off");
    let rows = fixture.ok(session, sql);
    fixture.ok(session, "set aerostat.star_join = on");
    rows
}

fn is_star(fixture: &Fixture, session: &mut Session, sql: &str) -> bool {
    let plan = fixture.ok(session, &format!("explain {sql}"));
    plan.iter().any(|line| line.contains("StarJoinExec"))
}

/// Both ways give the same, and what EXPLAIN says of both.
fn check(fixture: &Fixture, session: &mut Session, sql: &str) {
    let expected = off(fixture, session, sql);
    // The third time the physical plan is one that has run before.
    for _ in 0..3 {
        assert_eq!(fixture.ok(session, sql), expected, "{sql}");
    }
}

fn check_all(fixture: &Fixture, session: &mut Session) {
    for sql in STARS {
        let plan = || fixture.ok(&mut fixture.session(), &format!("explain {sql}"));
        assert!(
            is_star(fixture, session, sql),
            "{sql}\n{}",
            plan().join("\n")
        );
        check(fixture, session, sql);
    }
    for sql in OTHERS {
        assert!(!is_star(fixture, session, sql), "{sql}");
        check(fixture, session, sql);
    }
}

/// Whether a star was joined as one to the end.
fn stays(fixture: &Fixture, session: &mut Session, sql: &str) -> bool {
    let plan = fixture.ok(session, &format!("explain analyze {sql}"));
    let node = plan.iter().find(|line| line.contains("StarJoinExec"));
    !node.unwrap().contains("original_plan_ran_for")
}

#[test]
fn results_are_those_of_the_plan_that_it_stands_for() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    for layout in ["column", "row", "auto"] {
        if layout != "auto" {
            fixture.ok(
                &mut session,
                &format!("set aerostat.default_layout = '{layout}'"),
            );
        }
        fixture.ok(&mut session, TABLES);
        if layout == "auto" {
            let mixed = "alter table sale set (layout = '(n,s,d),(i,c,amount),(a,b),(big),(cost,ratio,note)')";
            fixture.ok(&mut session, mixed);
        }
        check_all(&fixture, &mut session);
        for sql in STARS {
            assert!(stays(&fixture, &mut session, sql), "{sql}");
        }
        fixture.ok(&mut session, "vacuum (freeze)");
        check_all(&fixture, &mut session);
        // Hot rows in front of frozen ones.
        fixture.ok(
            &mut session,
            "update sale set s = 4, amount = n where n % 100 = 1;
             update shop set sname = 'shop' where p = 3; delete from day where month = 7;
             insert into day values ('2025-05-05', 2025, 5)",
        );
        check_all(&fixture, &mut session);
        let tables = "drop table sale, shop, place, region, day, item, pair";
        fixture.ok(&mut session, tables);
    }
}

#[test]
fn explain_tells_rows_and_time_of_each_step() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(&mut session, TABLES);
    let sql = "explain analyze select year, sum(amount) from sale, day, shop
        where sale.d = day.d and sale.s = shop.s and year = 2024 and n > 100 group by year";
    let plan = fixture.ok(&mut session, sql).join("\n");
    for part in [
        "fact=sale",
        "d = day.d",
        "s = shop.s",
        "gby=[year]",
        "fact_rows=9.00 K",
        "fact_rows_filtered=8.90 K",
        "side_time[d = day.d]",
        "rows_joined[s = shop.s]",
        "scan_time",
        "output_rows=1",
    ] {
        assert!(plan.contains(part), "{part} in {plan}");
    }
}

#[test]
fn a_block_sees_its_own_changes_and_keys_that_are_checked_later() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(&mut session, TABLES);
    fixture.ok(
        &mut session,
        "create table kind (k int, name text, unique (k) deferrable initially deferred);
         insert into kind select g, 'k' || g from generate_series(0, 9) as g",
    );
    let by_year = "select year, count(*) from sale join day using (d) group by year order by 1";
    let by_kind = "select name, count(*) from sale join kind on a = k group by name order by 1";
    let mut other = fixture.session();
    let before = fixture.ok(&mut other, by_year);
    fixture.ok(
        &mut session,
        "begin; update day set year = 1999 where month = 2; delete from day where month = 3;
         insert into sale (n, d) values (-1, '2024-01-01')",
    );
    let own = fixture.ok(&mut session, by_year);
    assert!(own[0].starts_with("1999|"), "{own:?}");
    assert!(is_star(&fixture, &mut session, by_year));
    check(&fixture, &mut session, by_year);
    assert_eq!(fixture.ok(&mut other, by_year), before);
    // Until the check a key may be there twice, which each row of the fact then finds.
    let once = fixture.ok(&mut session, by_kind);
    fixture.ok(&mut session, "insert into kind values (3, 'again')");
    let twice = fixture.ok(&mut session, by_kind);
    assert_eq!(twice.len(), once.len() + 1);
    check(&fixture, &mut session, by_kind);
    assert!(is_star(&fixture, &mut session, by_kind));
    assert!(!stays(&fixture, &mut session, by_kind));
    fixture.ok(&mut session, "rollback");
    assert_eq!(fixture.ok(&mut session, by_year), before);
    assert!(stays(&fixture, &mut session, by_kind));
}

#[test]
fn errors_are_those_of_the_plan_that_it_stands_for() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(&mut session, TABLES);
    for (sql, kind) in [
        (
            "select year, sum(amount * 10000000) from sale join day using (d) group by year",
            ErrorKind::NumericValueOutOfRange,
        ),
        (
            "select sum(amount / (n - 8)) from sale join day using (d)",
            ErrorKind::DivisionByZero,
        ),
        (
            "select month / (year - 2024), count(*) from sale join day using (d) group by 1",
            ErrorKind::DivisionByZero,
        ),
    ] {
        assert!(is_star(&fixture, &mut session, sql), "{sql}");
        let own = fixture.error(&mut session, sql);
        fixture.ok(&mut session, "set aerostat.star_join = off");
        let expected = fixture.error(&mut session, sql);
        fixture.ok(&mut session, "set aerostat.star_join = on");
        assert_eq!((own.kind, &own.message), (expected.kind, &expected.message));
        assert_eq!(own.kind, kind, "{sql}");
    }
    // Only rows that are joined count: the error is in one that is not.
    let sql = "select sum(1 / month) from sale join day using (d) where month > 0";
    fixture.ok(
        &mut session,
        "insert into day values ('1999-01-01', 1999, 0)",
    );
    check(&fixture, &mut session, sql);
    let sql = "select 1 / month, count(*) from sale join day using (d) group by 1 order by 1";
    check(&fixture, &mut session, sql);
}

#[test]
fn kept_plans_follow_the_setting_and_parameters_their_values() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(&mut session, TABLES);
    let sql = "select year, count(*) from sale join day using (d) where month < 4 group by year order by 1";
    for _ in 0..3 {
        check(&fixture, &mut session, sql);
        assert!(is_star(&fixture, &mut session, sql));
        fixture.ok(&mut session, "set aerostat.star_join = off");
        assert!(!is_star(&fixture, &mut session, sql));
        fixture.ok(&mut session, "reset aerostat.star_join");
    }
    fixture.ok(
        &mut session,
        "prepare q(int, text) as select brand, sum(amount) from sale join item using (i)
            where brand <> $2 and amount > $1 group by brand order by 1",
    );
    for (amount, brand) in [(1, "b1"), (500, "b2"), (9000, "b1"), (5, "b")] {
        let run = format!("execute q({amount}, '{brand}')");
        check(&fixture, &mut session, &run);
    }
}

#[test]
fn too_little_memory_is_for_the_original_plan_to_say() {
    let fixture = Fixture::with_memory(80 << 20);
    let mut session = fixture.session();
    fixture.ok(
        &mut session,
        "create table side (k int primary key, t text);
         create table fact (n int primary key, k int);
         insert into side select g, 't' || g from generate_series(1, 100000) as g;
         insert into fact select g, g from generate_series(1, 200000) as g;
         vacuum (freeze)",
    );
    let sql = "select count(*), max(c) from
        (select t, n, count(*) as c from fact join side using (k) group by t, n) as x";
    assert!(is_star(&fixture, &mut session, sql));
    for _ in 0..3 {
        match fixture.run(&mut session, sql) {
            Ok(rows) => assert_eq!(rows, ["100000|1"]),
            Err(error) => assert_eq!(error.kind, ErrorKind::OutOfMemory, "{error:?}"),
        }
        // Nothing is left behind.
        assert_eq!(
            fixture.ok(&mut session, "select count(*) from side"),
            ["100000"]
        );
    }
}

/// A side of a random star, and what a statement may take of it.
struct RandomSide {
    table: String,
    key: &'static str,
    columns: Vec<String>,
}

fn number_of(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Random schemas, rows and statements; `AEROSTAT_STAR_SEED` and `AEROSTAT_STAR_ROUNDS` say which
/// and how many.
#[test]
fn random_stars_give_what_their_plans_give() {
    let rounds = number_of("AEROSTAT_STAR_ROUNDS").unwrap_or(12);
    let first = number_of("AEROSTAT_STAR_SEED").unwrap_or_else(|| {
        let now = std::time::SystemTime::now();
        now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
    });
    let fixture = Fixture::new();
    let (mut stars, mut statements) = (0, 0);
    for seed in first..first + rounds {
        eprintln!("AEROSTAT_STAR_SEED={seed}");
        let mut random = Random(seed);
        let mut session = fixture.session();
        let sides = random_tables(&fixture, &mut session, &mut random);
        for turn in 0..6 {
            for _ in 0..4 {
                let sql = random_statement(&sides, &mut random);
                statements += 1;
                stars += u32::from(is_star(&fixture, &mut session, &sql));
                check(&fixture, &mut session, &sql);
            }
            let change = match turn {
                0 => "vacuum (freeze)".to_owned(),
                1 => format!("delete from f where id % {} = 1", 2 + random.below(9)),
                2 => "update f set v = v + 1, k0 = k0 + 1 where id % 5 = 0".to_owned(),
                3 => format!("delete from {} where x < 2", sides[0].table),
                _ => "begin; update f set w = null where id % 3 = 0".to_owned(),
            };
            fixture.ok(&mut session, &change);
        }
        fixture.ok(&mut session, "rollback");
        let mut tables: Vec<&str> = sides.iter().map(|side| side.table.as_str()).collect();
        tables.push("f");
        fixture.ok(&mut session, &format!("drop table {}", tables.join(", ")));
    }
    assert!(stars * 4 > statements * 3, "{stars} stars of {statements}");
}

fn random_tables(fixture: &Fixture, session: &mut Session, random: &mut Random) -> Vec<RandomSide> {
    let layout = random.pick(&["column", "row"]);
    fixture.ok(
        session,
        &format!("set aerostat.default_layout = '{layout}'"),
    );
    let count = 1 + random.below(4);
    let (mut sides, mut keys) = (Vec::new(), Vec::new());
    for at in 0..count {
        let (ty, key) = match random.below(4) {
            0 => ("smallint", "x"),
            1 => ("bigint", "x"),
            2 => ("date", "x"),
            _ => ("int", "x"),
        };
        let rows = [0, 1, 7, 300][random.below(4) as usize].max(u64::from(at == 0));
        let (step, base) = (
            [1, 3, 90][random.below(3) as usize],
            random.below(40) as i64 - 20,
        );
        let value = |of: &str| match ty {
            "date" => format!("date '2020-02-02' + ({of})::int"),
            _ => format!("({of})::{ty}"),
        };
        let unique = random.pick(&["primary key", "unique"]);
        let table = format!("side{at}");
        fixture.ok(
            session,
            &format!(
                "create table {table} (key{at} {ty} {unique}, x int, t text, q numeric(6, 1));
                 insert into {table} select {}, g % 6, 't' || g % {}, g / 2.0
                    from generate_series(1, {rows}) as g",
                value(&format!("{base} + g * {step}")),
                1 + random.below(20),
            ),
        );
        keys.push((
            ty,
            value(&format!(
                "{base} + (g * {}) % {} * {step}",
                1 + random.below(50),
                rows + 1 + random.below(4)
            )),
        ));
        sides.push(RandomSide {
            columns: vec![
                format!("{table}.x"),
                format!("{table}.t"),
                format!("{table}.q"),
            ],
            table,
            key,
        });
    }
    let columns: Vec<String> = keys
        .iter()
        .enumerate()
        .map(|(at, (ty, _))| format!("k{at} {ty}"))
        .collect();
    let values: Vec<String> = keys
        .iter()
        .map(|(_, value)| format!("case when g % 13 = 0 then null else {value} end"))
        .collect();
    // k0 is added to by an update; dates take days.
    let rows = 1500 + random.below(3000);
    fixture.ok(
        session,
        &format!(
            "create table f (id int primary key, {}, v bigint, w int, t text);
             insert into f select g, {}, g * 7919 % 1000, nullif(g % 9, 4), 'u' || g % 3
                from generate_series(1, {rows}) as g",
            columns.join(", "),
            values.join(", "),
        ),
    );
    sides
}

fn random_statement(sides: &[RandomSide], random: &mut Random) -> String {
    let mut from = "f".to_owned();
    let mut conditions = Vec::new();
    let mut columns = vec!["f.w".to_owned(), "f.t".to_owned()];
    for (at, side) in sides.iter().enumerate() {
        if at > 0 && random.below(4) == 0 {
            continue;
        }
        from.push_str(&format!(" join {} on f.k{at} = key{at}", side.table));
        columns.extend(side.columns.iter().cloned());
        match random.below(5) {
            0 => conditions.push(format!("{}.{} in (1, 2, 5)", side.table, side.key)),
            1 => conditions.push(format!("{}.t <> 't1'", side.table)),
            2 => conditions.push(format!("{}.q > f.w", side.table)),
            _ => {}
        }
    }
    if random.below(3) == 0 {
        conditions.push("f.v between 100 and 700".to_owned());
    }
    let groups: Vec<&String> = (0..random.below(4))
        .map(|_| &columns[random.below(columns.len() as u64) as usize])
        .collect();
    let aggregates = [
        "count(*)",
        "sum(v)",
        "sum(v * 2 - w)",
        "min(f.t)",
        "max(side0.q)",
        "avg(w)",
        "count(w)",
        "count(distinct w)",
        "sum(side0.x)",
        "avg(v) filter (where w > 2)",
    ];
    let mut outputs: Vec<String> = groups.iter().map(|group| (*group).clone()).collect();
    outputs.extend((0..1 + random.below(3)).map(|_| random.pick(&aggregates).to_owned()));
    let mut sql = format!("select {} from {from}", outputs.join(", "));
    if !conditions.is_empty() {
        sql.push_str(&format!(" where {}", conditions.join(" and ")));
    }
    if !groups.is_empty() {
        let positions: Vec<String> = (1..=groups.len()).map(|at| at.to_string()).collect();
        let positions = positions.join(", ");
        sql.push_str(&format!(" group by {positions} order by {positions}"));
    }
    sql
}

/// Writers change the fact and its sides, and rows are frozen, while stars are joined: within
/// one snapshot they give what the plans give that they stand for.
#[test]
fn writers_change_nothing_within_a_snapshot() {
    const ROUNDS: usize = 12;
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(&mut session, TABLES);
    let statements = &STARS[..8];
    let stop = AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        let writers = [
            "update sale set amount = n % 7, i = n % 9 * 7 where n % 31 = 3",
            "delete from sale where n % 57 = 1;
             insert into sale (n, s, d, i, c, amount) select g, 1000003, date '2024-01-05', 7, 990, 5
                 from generate_series(1, 9000, 57) as g where g % 57 = 1 on conflict do nothing",
            "update shop set sname = 'shop' || (s % 7), p = 3 where s <> 77;
             update shop set p = 1 where s > 0",
            "update day set month = month % 12 + 1 where year = 2024",
            "vacuum (freeze) sale; vacuum (freeze) shop",
        ];
        for sql in writers {
            let mut session = fixture.session();
            let (fixture, stop) = (&fixture, &stop);
            scope.spawn(move || {
                while !stop.load(Ordering::Acquire) {
                    match fixture.run(&mut session, sql) {
                        Ok(_) => {}
                        Err(error) if error.kind == ErrorKind::SerializationFailure => {}
                        Err(error) => panic!("{sql}: {error}"),
                    }
                }
            });
        }
        let mut seen = std::collections::HashSet::new();
        let checked = panic::catch_unwind(AssertUnwindSafe(|| {
            for round in 0..ROUNDS {
                fixture.ok(&mut session, "begin isolation level repeatable read");
                for sql in statements {
                    let stars = fixture.ok(&mut session, sql);
                    assert_eq!(
                        stars,
                        off(&fixture, &mut session, sql),
                        "round {round}: {sql}"
                    );
                    seen.insert(stars);
                }
                fixture.ok(&mut session, "commit");
            }
        }));
        stop.store(true, Ordering::Release);
        checked.map_err(panic::resume_unwind).ok();
        seen.len()
    });
    assert!(
        seen > statements.len() + ROUNDS,
        "the rows changed meanwhile: {seen} results"
    );
}
