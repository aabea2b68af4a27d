//! Run-time filters: with `aerostat.dynamic_filters` on and off statements give the same.

use crate::common::{Fixture, Random};
use aerostat_engine::Session;

/// Tables whose columns have the same names, so that whoever goes by names goes wrong.
const COLUMNS: &str = "id int primary key, k int, b bigint, s smallint, d date, t text, c char(3),
    n numeric(9, 2), f float8, q boolean, ts timestamp";

fn off(fixture: &Fixture, session: &mut Session, sql: &str) -> Vec<String> {
    fixture.ok(session, "set aerostat.dynamic_filters = off");
    let rows = fixture.ok(session, sql);
    fixture.ok(session, "set aerostat.dynamic_filters = on");
    rows
}

/// Both ways give the same, in order of lines.
fn check(fixture: &Fixture, session: &mut Session, sql: &str) {
    let mut expected = off(fixture, session, sql);
    let mut found = fixture.ok(session, sql);
    expected.sort();
    found.sort();
    assert_eq!(found, expected, "{sql}");
}

/// What EXPLAIN says of the scans that take filters.
fn filtered(fixture: &Fixture, session: &mut Session, sql: &str) -> Vec<String> {
    let plan = fixture.ok(session, &format!("explain {sql}"));
    let scan = |line: &String| {
        let table = line.split_once("table=")?.1.split(',').next()?.to_owned();
        let columns = line.split_once("run_time_filters=[")?.1.split(']').next()?;
        Some(format!("{table}: {columns}"))
    };
    plan.iter().filter_map(scan).collect()
}

/// What a counter of EXPLAIN ANALYZE says, over all scans.
fn counted(fixture: &Fixture, session: &mut Session, sql: &str, counter: &str) -> f64 {
    let plan = fixture.ok(session, &format!("explain analyze {sql}"));
    let number = |line: &String| {
        let rest = line.split_once(&format!("{counter}="))?.1;
        let text = rest.split([',', ']']).next()?;
        let mut parts = text.split(' ');
        let number: f64 = parts.next()?.parse().ok()?;
        Some(
            number
                * if parts.next() == Some("K") {
                    1000.0
                } else {
                    1.0
                },
        )
    };
    plan.iter().filter_map(number).sum()
}

const BIG_AND_SMALL: &str = "
    create table big (id int primary key, k int not null, w int, t text);
    create table small (k int primary key, t text);
    create table pair (a int, b int, primary key (a, b));
    insert into big select g, g % 5000, nullif(g % 777, 0), 't' || g from generate_series(1, 60000) as g;
    insert into small select g * 50, 's' || g from generate_series(1, 60) as g;
    insert into pair select g, g * 7 from generate_series(1, 40) as g;
    vacuum (freeze)";

#[test]
fn scans_take_filters_and_say_what_these_left_out() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(&mut session, BIG_AND_SMALL);
    for (sql, scans) in [
        // The larger side is the one that is narrowed.
        ("select big.t, small.t from big, small where big.k = small.k", vec!["big: k"]),
        ("select id, t from big order by w desc, id limit 5", vec!["big: id, w"]),
        ("select min(id) from big where t like 't1%'", vec!["big: id"]),
        ("select id from big where k in (select k from small where t < 's3')", vec!["big: k"]),
        ("select x.t, n from small as x, (select k, count(*) as n from big group by k) as y
            where x.k = y.k", vec!["big: k"]),
        ("select count(*) from (select k, id from big union all select k, w from big) as x, small
            where x.k = small.k and small.t = 's5'", vec!["big: k", "big: k"]),
    ] {
        assert_eq!(filtered(&fixture, &mut session, sql), scans, "{sql}");
        check(&fixture, &mut session, sql);
        fixture.ok(&mut session, "set aerostat.dynamic_filters = off");
        assert!(filtered(&fixture, &mut session, sql).is_empty(), "{sql}");
        fixture.ok(&mut session, "reset aerostat.dynamic_filters");
    }
    let sql = "select big.t, small.t from big, small where big.k = small.k";
    let rows = counted(&fixture, &mut session, sql, "rows_by_run_time_filter");
    assert!(
        rows > 59_000.0,
        "{rows} of 60000 rows left out, 59280 can be"
    );
    let sql = "select big.t from big join pair on big.id = pair.a and big.k = pair.b";
    let morsels = counted(&fixture, &mut session, sql, "morsels_by_run_time_filter");
    assert!(morsels > 3.0, "{morsels} morsels left out");
}

#[test]
fn nothing_is_left_out_below_limits_and_of_what_must_be_computed() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(&mut session, BIG_AND_SMALL);
    fixture.ok(&mut session, "create sequence numbers");
    // Which rows a limit takes is nobody's promise, but none of them is left out before.
    let limited = "select x.k from (select k from big limit 100) as x, small where x.k = small.k";
    let scans = filtered(&fixture, &mut session, limited);
    assert!(
        !scans.iter().any(|scan| scan.starts_with("big")),
        "{scans:?}"
    );
    for sql in [
        "select count(*) from (select k from big order by id limit 100) as x, small where x.k = small.k",
        "select count(*), max(n) > 0 from (select k, nextval('numbers') as n from big) as x, small
            where x.k = small.k and small.t = 's5'",
        "select count(*) from (select k, row_number() over (order by id) as n from big) as x, small
            where x.k = small.k and n % 2 = 0",
        "select count(*), count(small.k) from big left join small on big.k = small.k",
        "select count(*), count(small.k) from big full join small on big.k = small.k",
        "select min(k), max(id + 1) from big",
        "select min(k), max(w) from big",
        "select min(k) filter (where w is null), count(*) from big",
    ] {
        check(&fixture, &mut session, sql);
    }
    // Every row of the subquery took its number, both times.
    let taken = fixture.ok(&mut session, "select nextval('numbers')");
    assert_eq!(taken, ["120001"]);
}

#[test]
fn what_was_learnt_is_forgotten() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(&mut session, BIG_AND_SMALL);
    fixture.ok(
        &mut session,
        "prepare j(text) as select count(*), min(big.id) from big, small
            where big.k = small.k and small.t = $1;
         prepare n(int) as select id, w from big where k > $1 order by w, id limit 3;
         prepare m(int) as select max(id) from big where w < $1",
    );
    for turn in 0..8 {
        for run in [
            format!("execute j('s{}')", 1 + turn * 7 % 60),
            format!("execute n({})", turn * 600),
            format!("execute m({})", 700 - turn * 90),
        ] {
            check(&fixture, &mut session, &run);
        }
    }
    // Each step of a recursive query joins other rows.
    for sql in [
        "with recursive r(k, n) as (
            select 50, 1 union all
            select small.k, n + 1 from r, small where small.k = r.k + 50 and n < 70
         ) select count(*), max(k) from r",
        "with recursive r(id, n) as (
            select 3, 1 union all
            select big.id, n + 1 from r join big on big.id = r.id + 997 where n < 70
         ) select count(*), max(id), sum(id) from r",
        "with recursive r(id) as (
            select 1 union all
            select r.id + (select min(k) + 1 from small where t <> 's1') from r where r.id < 2000
         ) select count(*), max(id) from r",
        "with recursive r(id) as (
            select 1 union all
            (select big.id from r, big where big.id > r.id + 500 and r.id < 20000 order by big.w, big.id limit 1)
         ) select count(*), max(id) from r",
    ] {
        check(&fixture, &mut session, sql);
    }
    // A cursor is read in parts, while rows change that it does not see.
    fixture.ok(
        &mut session,
        "begin; declare c cursor for
            select id from big, small where big.k = small.k and small.t like 's2%'",
    );
    let mut rows = 0;
    loop {
        let fetched = fixture.ok(&mut session, "fetch 7 from c");
        rows += fetched.len();
        fixture.ok(&mut session, "update big set k = 0 where id % 1000 = 0");
        if fetched.is_empty() {
            break;
        }
    }
    fixture.ok(&mut session, "rollback");
    let sql = "select count(*) from big, small where big.k = small.k and small.t like 's2%'";
    assert_eq!(off(&fixture, &mut session, sql), [rows.to_string()]);
}

#[test]
fn a_transaction_sees_its_own_rows_and_no_others() {
    let fixture = Fixture::new();
    let (mut own, mut other) = (fixture.session(), fixture.session());
    fixture.ok(&mut own, BIG_AND_SMALL);
    let sql = "select count(*), sum(big.id) from big, small where big.k = small.k";
    fixture.ok(&mut own, "begin isolation level repeatable read");
    let before = fixture.ok(&mut own, sql);
    fixture.ok(
        &mut other,
        "insert into small values (1, 'new'); update big set k = 50 where id < 90",
    );
    assert_eq!(fixture.ok(&mut own, sql), before);
    fixture.ok(&mut own, "insert into small values (2, 'own')");
    check(&fixture, &mut own, sql);
    fixture.ok(&mut own, "rollback");
    check(&fixture, &mut own, sql);
    // Changes find their rows through joins, too.
    for sql in [
        "update big set w = -1 from small where big.k = small.k and small.t = 's7' returning id",
        "delete from big using small where big.k = small.k and small.t = 's8' returning id",
        "update big set w = 5 where id in (select id from big order by w desc, id limit 10) returning id",
    ] {
        fixture.ok(&mut own, "begin");
        let mut expected = off(&fixture, &mut own, sql);
        fixture.ok(&mut own, "rollback");
        let mut found = fixture.ok(&mut own, sql);
        expected.sort();
        found.sort();
        assert_eq!(found, expected, "{sql}");
    }
}

fn number_of(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Random rows, layouts and statements; `AEROSTAT_FILTERS_SEED` and `AEROSTAT_FILTERS_ROUNDS`
/// say which and how many.
#[test]
fn random_statements_give_the_same_with_filters_and_without() {
    let rounds = number_of("AEROSTAT_FILTERS_ROUNDS").unwrap_or(8);
    let first = number_of("AEROSTAT_FILTERS_SEED").unwrap_or_else(|| {
        let now = std::time::SystemTime::now();
        now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
    });
    let fixture = Fixture::new();
    let (mut with, mut statements) = (0, 0);
    for seed in first..first + rounds {
        eprintln!("AEROSTAT_FILTERS_SEED={seed}");
        let mut random = Random(seed);
        let mut session = fixture.session();
        // A small table, one of several vectors, and one in between.
        for (table, rows) in [("a", 40), ("m", 900), ("z", 20_000)] {
            make_table(&fixture, &mut session, &mut random, table, rows);
        }
        for turn in 0..5 {
            for _ in 0..10 {
                let sql = random_statement(&mut random);
                statements += 1;
                with += u32::from(!filtered(&fixture, &mut session, &sql).is_empty());
                check(&fixture, &mut session, &sql);
            }
            let change = match turn {
                0 => "vacuum (freeze)".to_owned(),
                1 => format!("delete from z where id % {} = 1", 2 + random.below(9)),
                2 => "update z set k = k + 1, t = null where id % 5 = 0".to_owned(),
                3 => "begin; update m set k = null, b = b + 1 where id % 3 = 0".to_owned(),
                _ => "rollback".to_owned(),
            };
            fixture.ok(&mut session, &change);
        }
        fixture.ok(&mut session, "drop table a, m, z");
    }
    assert!(with * 2 > statements, "{with} of {statements} with filters");
}

fn make_table(
    fixture: &Fixture,
    session: &mut Session,
    random: &mut Random,
    table: &str,
    rows: u64,
) {
    let layout = random.pick(&["column", "row", "(id,k),(t,b)"]);
    let spread = [7, 100, 3000][random.below(3) as usize];
    let null = [2, 11, 1_000_000][random.below(3) as usize];
    let base = random.below(50) as i64 - 25;
    let expr = match random.below(3) {
        0 => "g".to_owned(),
        1 => format!("g * 7919 % {rows}"),
        _ => format!("{rows} - g"),
    };
    // Times grow with the rows, as they do, with a few that are far off.
    fixture.ok(
        session,
        &format!(
            "create table {table} ({COLUMNS}) with (layout = '{layout}');
             insert into {table} select g, nullif(v % {spread} + {base}, {base} + 1),
                case when g % {null} = 1 then null else v::bigint * 3 - 100 end,
                (v % 30000)::smallint, date '2024-01-01' + (v % {spread})::int,
                case when g % {null} = 0 then null else 't' || v % {spread} end,
                'c' || v % 20, v / 8.0, (v % {spread}) / 4.0::float8, v % 3 = 0,
                timestamp '2024-01-01 00:00:00' + (case when g % 97 = 0 then 5 else v end) * interval '1 minute'
             from (select g, {expr} as v from generate_series(1, {rows}) as g) as x",
        ),
    );
    if random.below(2) == 0 {
        fixture.ok(session, &format!("vacuum (freeze) {table}"));
    }
}

fn condition(random: &mut Random, of: &str) -> String {
    let number = random.below(200) as i64 - 30;
    match random.below(7) {
        0 => format!("{of}.k < {number}"),
        1 => format!("{of}.b between {number} and {}", number + 60),
        2 => format!("{of}.t > 't{}'", number.abs()),
        3 => format!("{of}.id % {} = 0", 2 + number.unsigned_abs() % 40),
        4 => format!("{of}.id = {}", number.abs()),
        5 => format!("{of}.c in ('c1', 'c{}')", number.abs() % 20),
        _ => "true".to_owned(),
    }
}

fn table(random: &mut Random) -> &'static str {
    ["a", "m", "z"][random.below(3) as usize]
}

fn order(random: &mut Random, of: &str) -> String {
    let column = random.pick(&["k", "b", "s", "d", "t", "c", "n", "f", "q", "ts", "id"]);
    let direction = random.pick(&["", " desc", " nulls first", " desc nulls last"]);
    format!("{of}.{column}{direction}")
}

const KEYS: &[&str] = &["k", "b", "s", "d", "t", "c", "n", "f", "id", "ts"];

/// Keys of both sides, mostly of one type.
fn keys(random: &mut Random, x: &str, y: &str) -> String {
    match random.below(6) {
        0 => format!("{x}.k = {y}.id"),
        1 => format!("{x}.s = {y}.b"),
        2 => {
            let (one, two) = (random.pick(KEYS), random.pick(KEYS));
            format!("{x}.{one} = {y}.{one} and {x}.{two} = {y}.{two}")
        }
        3 => {
            let key = random.pick(KEYS);
            format!("{x}.{key} is not distinct from {y}.{key}")
        }
        _ => {
            let key = random.pick(KEYS);
            format!("{x}.{key} = {y}.{key}")
        }
    }
}

fn random_statement(random: &mut Random) -> String {
    let (x, y, z) = (table(random), table(random), table(random));
    let (cx, cy, cz) = (
        condition(random, "x"),
        condition(random, "y"),
        condition(random, "z"),
    );
    let (xy, yz) = (keys(random, "x", "y"), keys(random, "y", "z"));
    let (by, then) = (order(random, "x"), order(random, "x"));
    let limit = [1, 5, 100][random.below(3) as usize];
    // Self joins of large tables by coarse keys would make millions of rows.
    let few = "x.id % 17 < 2 and y.id % 13 < 2";
    let join = random.pick(&["join", "left join", "right join", "full join"]);
    let test = random.pick(&["in", "not in"]);
    let exists = random.pick(&["exists", "not exists"]);
    match random.below(11) {
        0 => format!(
            "select count(*), sum(x.id), sum(y.id), min(y.t) from {x} x {join} {y} y on {xy}
             where {cx} and {cy} and {few}"
        ),
        1 => format!(
            "select count(*), sum(x.id), sum(z.id) from {x} x join {y} y on {xy} join {z} z on {yz}
             where {cx} and {cz} and {few} and z.id % 11 < 2"
        ),
        2 => format!("select x.id from {x} x where x.k {test} (select y.id from {y} y where {cy}) and {cx}"),
        3 => format!(
            "select count(*), sum(x.id) from {x} x where {cx} and {exists}
             (select 1 from {y} y where {xy} and x.id + y.id > 40 and {cy} and y.id % 13 < 2)"
        ),
        4 => format!("select x.id, x.t, x.k from {x} x where {cx} order by {by}, {then}, x.id limit {limit}"),
        5 => format!(
            "select x.id, y.id from {x} x join {y} y on {xy} where {cx} and {few}
             order by {by}, x.id, y.id limit {limit}"
        ),
        6 => format!(
            "select count(*), sum(y.id) from (select * from {x} x order by {by}, x.id limit {limit}) as x
             join {y} y on {xy} where {cy}"
        ),
        7 => format!("select {}(x.{}) from {x} x where {cx}", random.pick(&["min", "max"]), random.pick(KEYS)),
        8 => format!(
            "select count(*), sum(x.many), sum(y.id) from
             (select {0}, count(*) as many from {x} x group by {0}) as x join {y} y on x.{0} = y.{0} where {cy}",
            random.pick(KEYS)
        ),
        9 => format!(
            "select count(*), sum(x.id), sum(y.id) from
             (select id, k, t from {x} x where {cx} union all select s, k, c from {z}) as x
             join {y} y on x.k = y.k where {cy} and {few}"
        ),
        _ => format!(
            "select x.id from {x} x where {cx} and x.{0} in
             (select y.{0} from {y} y where {cy} order by y.id limit {limit})",
            random.pick(KEYS)
        ),
    }
}

/// Whoever gathers the side of a join starts before its rows are asked for; a scan there must not
/// be through before the join above it has learnt what it needs.
#[test]
fn scans_below_gathered_sides_wait_for_their_filter() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(
        &mut session,
        "create table nation (n int primary key, name text);
        create table supplier (s int primary key, n int not null);
        create table line (l int primary key, o int not null, s int not null);
        create table orders (o int primary key, status text);
        insert into nation select g, 'n' || g from generate_series(1, 25) as g;
        insert into supplier select g, 1 + g % 25 from generate_series(1, 10000) as g;
        insert into line select g, g / 4, 1 + g * 7919 % 10000 from generate_series(1, 200000) as g;
        insert into orders select g, 'f' from generate_series(0, 50000) as g;
        vacuum (freeze);
        set aerostat.star_join = off",
    );
    let sql = "select count(*), sum(l) from supplier, line, orders, nation
        where supplier.s = line.s and orders.o = line.o and orders.status = 'f'
          and supplier.n = nation.n and nation.name = 'n7'";
    check(&fixture, &mut session, sql);
    let plan = fixture.ok(&mut session, &format!("explain {sql}"));
    assert!(
        plan.iter().any(|line| line.contains("DeferredExec")),
        "{plan:#?}"
    );
    for _ in 0..20 {
        let plan = fixture.ok(&mut session, &format!("explain analyze {sql}"));
        let supplier = plan.iter().find(|line| line.contains("table=supplier"));
        let supplier = supplier.unwrap();
        assert!(supplier.contains("output_rows=400,"), "{supplier}");
    }
}

/// A partition of a join without rows on its left side asks for none on its right one. Joins below
/// it, which tell their filters when all their partitions have rows, must not wait for that one.
#[test]
fn no_join_waits_for_a_partition_that_nobody_asks() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(
        &mut session,
        "create table x (id int primary key, k int, p smallint, n numeric(10, 2), w varchar(8), t timestamp, c char(4));
         create table o (id int primary key, k int, p smallint, t timestamp, c char(4), q boolean);
         insert into x select g, nullif(g % 7, 0), g % 5, g % 4 * 1.5, 'w', nullif('2024-01-01'::timestamp, '2024-01-01'::timestamp + g % 3 * interval '1 day'), 'a'
            from generate_series(1, 24) as g;
         insert into o select case g when 1 then 3 when 2 then 24 else g + 100 end, nullif(g % 4, 3), -3,
            case when g > 13 then '2024-02-01'::timestamp end, 'b', g > 13 from generate_series(1, 38) as g",
    );
    let one_key = ["3", "24", "7"].map(|id| {
        format!(
            "select count(*) from (select id, t from o where id = {id}) as a join
                (select b.id, c.t from x as b join x as c on b.id = c.id join o as d on d.id = b.id) as e using (id)"
        )
    });
    for sql in one_key {
        check(&fixture, &mut session, &sql);
    }
    let merged = fixture.ok(
        &mut session,
        "merge into x using o on o.id = x.id and o.k = x.k
            when matched and (o.t = any (select o.t from x as q where q.n = x.n)) then
                update set k = round(floor(x.n))::int, w = coalesce((select x.w from o as q where q.id = x.id), x.c::varchar)
            when matched then update set p = o.p
            when not matched then insert (id, k, p, t) values (o.id + 200, o.q::int, o.p, o.t);
         select count(*) from x",
    );
    assert_eq!(merged, ["62"]);
}
