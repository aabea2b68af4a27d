//! Statements that come again with other constants, and prepared ones with other values: one kept
//! plan for all of them gives what a plan for each gives.

use std::sync::Arc;

use crate::common::{Fixture, Random, rows_of};
use aerostat_api::Value;
use aerostat_engine::Session;
use aerostat_types::ErrorKind;

const TABLES: &str = "
    create table day (d date primary key, year int, month smallint, name varchar(9), code char(4));
    create table item (i int primary key, brand text, price numeric(8, 2), ratio float8, weight real);
    create table sale (n bigint primary key, d date, i int, amount int, note text, at timestamp,
        seen timestamptz, free numeric);
    insert into day select date '2024-01-01' + g, 2024 + g / 40, 1 + g / 10, 'm' || g / 10,
        'c' || g % 3 from generate_series(0, 79) as g;
    insert into item select g, 'b' || g % 5, g / 4.0, g / 8.0, g / 10.0
        from generate_series(0, 99) as g;
    insert into sale select g, date '2023-12-25' + g % 97, g % 110, g % 1000 - 300, 'n' || g % 6,
        timestamp '2024-01-01 00:00:00' + g * interval '1 hour',
        timestamptz '2024-01-01 00:00:00+00' + g * interval '1 hour', g / 7.0
        from generate_series(1, 9000) as g;
    insert into sale (n) select g from generate_series(9001, 9010) as g";

fn hits(fixture: &Fixture) -> u64 {
    let databases = fixture.engine.databases();
    let hits = databases.iter();
    hits.map(|database| database.plan_cache_physical_hits).sum()
}

/// What a plan of its own gives, or its error.
fn anew(fixture: &Fixture, session: &mut Session, sql: &str) -> Result<Vec<String>, ErrorKind> {
    fixture.ok(session, "set plan_cache_mode = force_custom_plan");
    let rows = fixture.run(session, sql).map_err(|error| error.kind);
    fixture.ok(session, "set plan_cache_mode = auto");
    rows
}

fn fixture() -> (Fixture, Session) {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(&mut session, TABLES);
    (fixture, session)
}

/// Checks statements against plans of their own; how many ran by a kept physical plan.
fn check(fixture: &Fixture, session: &mut Session, statements: &[String]) -> u64 {
    let mut kept = 0;
    for sql in statements {
        let expected = anew(fixture, session, sql);
        let before = hits(fixture);
        let found = fixture.run(session, sql).map_err(|error| error.kind);
        assert_eq!(found, expected, "{sql}");
        kept += hits(fixture) - before;
    }
    kept
}

const STAR: &str = "select year, brand, sum(amount), count(*) from sale join day using (d)
    join item using (i)";

#[test]
fn other_constants_find_the_plan_of_the_first_ones() {
    let (fixture, mut session) = fixture();
    let shapes: [&dyn Fn(u32) -> String; 9] = [
        &|k| format!("{STAR} where month = {k} and brand <> 'b{k}' group by 1, 2 order by 1, 2"),
        &|k| {
            format!(
                "{STAR} where (brand = 'b{k}' or brand = 'b3') and amount between {k} and 400 group by 1, 2 order by 1, 2"
            )
        },
        &|k| {
            format!(
                "{STAR} where month in ({k}, 5) and amount < -{k} and n >= {k}000 group by 1, 2 order by 1, 2"
            )
        },
        &|k| {
            format!(
                "{STAR} where d >= '2024-01-0{}' and price < {k}.5 group by 1, 2 order by 1, 2",
                k + 1
            )
        },
        &|k| {
            format!(
                "{STAR} where d < date '2024-02-0{}' and ratio > {k}.125 group by 1, 2 order by 1, 2",
                k + 1
            )
        },
        &|k| {
            format!(
                "select count(*), min(n), max(note) from sale where note = 'n{k}' and amount > {k}"
            )
        },
        &|k| {
            format!(
                "select count(*) from sale where at > '2024-03-0{} 12:00' and i <> {k}",
                k + 1
            )
        },
        &|k| format!("select note, count(*) from sale where {k} < amount group by note order by 1"),
        &|k| {
            format!(
                "select count(*) from (select n from sale where amount = {k}00 union all select i from item where price > {k}) as x"
            )
        },
    ];
    for shape in shapes {
        let statements: Vec<String> = (1..=6).map(shape).collect();
        let kept = check(&fixture, &mut session, &statements);
        assert!(kept >= 4, "{kept} of {}", statements[0]);
        // Also later, and where nothing is found.
        let again = [shape(0), shape(7), shape(8)];
        assert_eq!(check(&fixture, &mut session, &again), 3, "{}", again[0]);
    }
}

#[test]
fn constants_that_are_no_values_of_the_column_are_planned_as_they_are() {
    let (fixture, mut session) = fixture();
    let conditions: &[(&str, &[&str])] = &[
        (
            "i =",
            &[
                "1",
                "2",
                "5000000000",
                "1.5",
                "2.0",
                "-1",
                "1e1",
                "'7'",
                "' 8 '",
                "'x'",
                "null",
                "-0",
            ],
        ),
        (
            "month <",
            &["1", "2", "70000", "-70000", "3.5", "'4'", "'70000'"],
        ),
        (
            "n >",
            &[
                "1",
                "2",
                "9223372036854775807",
                "9223372036854775808",
                "1e3",
                "'8999'",
            ],
        ),
        (
            "price =",
            &[
                "1",
                "2.5",
                "2.50",
                "2.500",
                "2.501",
                "1e2",
                "123456789.25",
                "'0.25'",
                "'0.251'",
                "'NaN'",
                "'infinity'",
            ],
        ),
        (
            "free <",
            &["1", "2", "0.1428571428", "0.14285714285", "1e-3", "'5'"],
        ),
        (
            "ratio >",
            &[
                "1",
                "2.5",
                "0.1",
                "1e-400",
                "1e308",
                "'2.5'",
                "'NaN'",
                "'-Infinity'",
                "'x'",
            ],
        ),
        ("weight =", &["1", "0.5", "0.1", "0.3", "'0.1'", "1e-50"]),
        (
            "d >=",
            &[
                "'2024-01-05'",
                "'2024-01-06'",
                "'20240107'",
                "'today'",
                "'infinity'",
                "'2024-13-01'",
                "date '2024-01-09'",
                "timestamp '2024-01-09 12:00'",
                "'9 Jan 2024'",
                "null",
            ],
        ),
        (
            "at <",
            &[
                "'2024-01-05'",
                "'2024-01-06 10:00'",
                "'now'",
                "timestamp '2024-02-01 00:00'",
                "date '2024-02-01'",
                "timestamptz '2024-02-01 00:00+05'",
                "'2024-02-30'",
            ],
        ),
        (
            "seen <",
            &[
                "'2024-01-05'",
                "'2024-01-06 10:00'",
                "'2024-01-06 10:00+09'",
                "timestamptz '2024-02-01 00:00+05'",
                "'now'",
            ],
        ),
        (
            "note =",
            &[
                "'n1'",
                "'n2'",
                "'n1 '",
                "''",
                "'it''s'",
                "e'n\\x31'",
                "5",
                "null",
            ],
        ),
        (
            "name =",
            &["'m1'", "'m2'", "'m1 '", "'longer than nine characters'"],
        ),
        (
            "code =",
            &["'c1'", "'c1  '", "'c1   '", "'c'", "'longer than four'"],
        ),
    ];
    for zone in ["UTC", "America/Chicago"] {
        fixture.ok(&mut session, &format!("set timezone = '{zone}'"));
        for (condition, constants) in conditions {
            let shapes = [
                format!(
                    "select count(*), min(n) from sale join day using (d) join item using (i) where {condition}"
                ),
                format!(
                    "select year, count(*) from sale join day using (d) join item using (i) where not (month = 4) and {condition}"
                ),
            ];
            for (at, shape) in shapes.iter().enumerate() {
                let end = ["", " group by year order by year"][at];
                let statements = constants
                    .iter()
                    .map(|constant| format!("{shape} {constant}{end}"));
                let statements: Vec<String> = statements.collect();
                for _ in 0..2 {
                    check(&fixture, &mut session, &statements);
                }
            }
        }
    }
}

#[test]
fn elsewhere_constants_decide_about_the_plan() {
    let (fixture, mut session) = fixture();
    let shapes: [&dyn Fn(u32) -> String; 8] = [
        &|k| {
            format!(
                "select note, count(*) from sale group by {} order by 1 limit {k}",
                1
            )
        },
        &|k| format!("select n, {k} as c, '{k}' as t from sale where n = {k}00 order by 2"),
        &|k| {
            format!(
                "select round(price, {k}), count(*) from item where price > {k} group by round(price, {k}) order by 1"
            )
        },
        &|k| format!("select count(*) from sale where note like 'n{k}%' and amount > {k}"),
        &|k| {
            format!(
                "select count(*) from sale left join item on item.i = sale.i and item.price > {k} where brand is null or brand = 'b{k}'"
            )
        },
        &|k| {
            format!("select year, count(*) from day group by year having count(*) > {k} order by 1")
        },
        &|k| {
            format!(
                "select case when amount > {k} then 'a' else 'b' end, count(*) from sale where i = {k} group by 1 order by 1"
            )
        },
        &|k| {
            format!(
                "with x as (select n, amount from sale where amount > {k}) select count(*) from x where n < (select max(i) from item where i < 9{k})"
            )
        },
    ];
    for shape in shapes {
        let statements: Vec<String> = (0..6).map(|k| shape(k % 5)).collect();
        check(&fixture, &mut session, &statements);
    }
}

#[test]
fn what_is_there_now_is_found() {
    let (fixture, mut session) = fixture();
    let mut k = 0;
    let mut all = |session: &mut Session| {
        let statements: Vec<String> = (0..4)
            .map(|_| {
                k += 1;
                format!(
                    "{STAR} where month > {} and amount <> {k} group by 1, 2 order by 1, 2",
                    k % 7
                )
            })
            .collect();
        check(&fixture, session, &statements)
    };
    all(&mut session);
    for change in [
        "update sale set amount = amount + 1 where n % 3 = 0",
        "delete from item where i = 7",
        "vacuum freeze",
        "insert into sale select g, '2024-01-09', 7, g % 100, 'x' from generate_series(20000, 60000) as g",
        "create index on sale (amount)",
        "alter table day alter column month type bigint",
        "alter table item rename column brand to old; alter table item add column brand text default 'new'",
        "set aerostat.star_join = off",
        "reset aerostat.star_join",
        "begin isolation level repeatable read",
        "update day set month = 9 - month where month between 1 and 8",
        "rollback",
        "set search_path = elsewhere, public",
        "create schema elsewhere; create table elsewhere.day (d date primary key, year int, month int);
            insert into elsewhere.day select d, year, month from public.day where month < 4",
    ] {
        fixture.ok(&mut session, change);
        all(&mut session);
        if !change.starts_with("set aerostat") {
            assert!(all(&mut session) >= 2, "{change}");
        }
    }
    // Who may not read gets nothing by another's plan.
    fixture.ok(
        &mut session,
        "create role guest login; grant connect on database aerostat to guest",
    );
    let mut guest = fixture.engine.connect("guest", "aerostat", &[]).unwrap();
    let sql = format!("{STAR} where month > 2 and amount <> 77 group by 1, 2");
    for _ in 0..3 {
        assert_eq!(
            fixture.kind(&mut guest, &sql),
            ErrorKind::InsufficientPrivilege
        );
    }
}

#[test]
fn prepared_statements_have_one_plan_for_all_values() {
    let (fixture, mut session) = fixture();
    let sql = format!(
        "{STAR} where (brand = $1 or brand = $2) and month between $3 and 6 and price > $4
        group by 1, 2 order by 1, 2"
    );
    let prepared = fixture
        .runtime
        .block_on(session.prepare(&sql, &[]))
        .unwrap();
    let text = |text: &str| Value::Text(text.into());
    let numeric = |cents: i128| Value::I128(cents);
    let values = [
        (text("b1"), text("b2"), Value::I16(1), numeric(25)),
        (text("b4"), text("b2"), Value::I16(3), numeric(250)),
        (text("b4"), Value::Null, Value::I16(2), numeric(0)),
        (Value::Null, Value::Null, Value::I16(2), numeric(-1)),
        (text("b0"), text("none"), Value::Null, numeric(0)),
        (text("b0"), text("b0"), Value::I16(1), Value::Null),
        (text("b3"), text("b1"), Value::I16(4), numeric(1_000)),
    ];
    let shown = |value: &Value| match value {
        Value::Text(text) => format!("'{text}'"),
        Value::I16(number) => number.to_string(),
        Value::I128(cents) => format!("{:.2}", *cents as f64 / 100.0),
        _ => "null".to_owned(),
    };
    let before = hits(&fixture);
    for (a, b, c, d) in values.iter().cycle().take(21) {
        let own = format!(
            "{STAR} where (brand = {} or brand = {}) and month between {} and 6 and price > {}
            group by 1, 2 order by 1, 2",
            shown(a),
            shown(b),
            shown(c),
            shown(d)
        );
        let expected = anew(&fixture, &mut session, &own).unwrap();
        let given: Arc<[Value]> = [a.clone(), b.clone(), c.clone(), d.clone()].into();
        let found = fixture
            .runtime
            .block_on(async { rows_of(session.execute_prepared(&prepared, &given).await?).await });
        assert_eq!(found.unwrap(), expected, "{own}");
    }
    // Three of seven have no NULL.
    assert!(hits(&fixture) - before >= 7, "{}", hits(&fixture) - before);
}

/// Random shapes with random constants, some of which no column has, against plans of their own.
#[test]
fn random_constants_give_what_plans_of_their_own_give() {
    let seed = match std::env::var("AEROSTAT_CONSTANTS_SEED") {
        Ok(seed) => seed.parse().unwrap(),
        Err(_) => {
            let now = std::time::SystemTime::now();
            now.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
        }
    };
    eprintln!("AEROSTAT_CONSTANTS_SEED={seed}");
    let mut random = Random(seed);
    let (fixture, mut session) = fixture();
    let before = hits(&fixture);
    for _ in 0..30 {
        let shape = random_shape(&mut random);
        let statements: Vec<String> = (0..8)
            .map(|_| with_constants(&mut random, &shape))
            .collect();
        check(&fixture, &mut session, &statements);
    }
    assert!(hits(&fixture) > before, "seed {seed}");
}

/// A statement with `?` and the name of a kind of constants.
fn random_shape(random: &mut Random) -> String {
    let conditions = [
        "amount > ?int",
        "amount between ?int and ?int",
        "i in (?int, ?int, ?int)",
        "note = ?text",
        "note <> ?text",
        "(note = ?text or note = ?text)",
        "d >= ?date",
        "?date > d",
        "month = ?int",
        "year = ?int",
        "(month = ?int or year = ?int)",
        "price < ?number",
        "ratio >= ?number",
        "weight < ?number",
        "brand in (?text, ?text)",
        "brand > ?text",
        "not amount = ?int",
        "n <= ?int",
        "free > ?number",
        "code = ?text",
        "amount = ?number",
        "(month between ?int and ?int and price > ?number)",
        "name >= ?text",
    ];
    let from = random.pick(&[
        "sale join day using (d) join item using (i)",
        "sale join item on item.i = sale.i and price > ?number join day using (d)",
        "sale natural join day natural join item",
        "(select * from sale where amount > ?int) as sale join day using (d) join item using (i)",
        "day left join sale using (d) left join item using (i)",
    ]);
    let outputs = random.pick(&[
        "count(*), sum(amount), min(note)",
        "year, count(*), max(price)",
        "brand, month, sum(amount * 2), count(distinct note)",
    ]);
    let mut sql = format!("select {outputs} from {from} where ");
    let count = 1 + random.below(4);
    for at in 0..count {
        let joined = if at == 0 { "" } else { " and " };
        sql.push_str(joined);
        sql.push_str(random.pick(&conditions));
    }
    match outputs {
        "count(*), sum(amount), min(note)" => {}
        "year, count(*), max(price)" => sql.push_str(" group by year order by year"),
        _ => sql.push_str(" group by 1, 2 order by 1, 2 limit 20"),
    }
    sql
}

fn with_constants(random: &mut Random, shape: &str) -> String {
    let mut parts = shape.split('?');
    let mut sql = parts.next().unwrap().to_owned();
    for part in parts {
        let kind = part.find(|end: char| !end.is_ascii_lowercase());
        let (kind, rest) = part.split_at(kind.unwrap_or(part.len()));
        let constants: &[&str] = match kind {
            "int" => &[
                "1",
                "2",
                "3",
                "4",
                "7",
                "50",
                "-20",
                "400",
                "2024",
                "2025",
                "9000",
                "'5'",
                "3000000000",
            ],
            "number" => &[
                "0.5", "1", "3.25", "12.5", "20", "-1", "0.125", "2.505", "1e1", "'7.5'",
            ],
            "text" => &[
                "'n1'", "'n4'", "'b2'", "'b3'", "'m2'", "'c1'", "''", "'c1  '",
            ],
            "date" => &[
                "'2024-01-20'",
                "date '2024-02-14'",
                "'2023-12-31'",
                "'2024-03-01'",
                "'2020-02-29'",
            ],
            other => panic!("{other}"),
        };
        sql.push_str(random.pick(constants));
        sql.push_str(rest);
    }
    sql
}
