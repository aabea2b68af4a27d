//! Rows of literals: INSERT of several, as text, as parameters and as arrays.

use aerostat_api::{Outcome, Value};
use aerostat_types::ErrorKind;

use super::{answer, sides};
use crate::common::{Fixture, Random};

/// The columns that rows of literals go to, and literals of which some are none of their type.
const EVERY: [(&str, &str, &[&str]); 16] = [
    (
        "b",
        "boolean",
        &["true", "FALSE", "'t'", "'no'", "1", "'x'"],
    ),
    (
        "s",
        "smallint",
        &["1", "-32768", "32768", "'7'", "1.5", "' 8 '"],
    ),
    (
        "i",
        "int",
        &["0", "-2147483648", "2147483648", "'+5'", "007", "'x'"],
    ),
    (
        "l",
        "bigint",
        &[
            "9223372036854775807",
            "9223372036854775808",
            "-9223372036854775808",
            "'1'",
        ],
    ),
    (
        "r",
        "real",
        &["0.1", "1e30", "-0.0", "16777217", "'nan'", "1e39", "'-0'"],
    ),
    (
        "d",
        "double precision",
        &[
            "0.1",
            "1e300",
            "-0.0",
            "123456789012345678901",
            "'inf'",
            "1e-400",
            "7",
        ],
    ),
    (
        "n",
        "numeric(9, 2)",
        &[
            "1.005",
            "-1.994999",
            "1e6",
            "12345678.9",
            "'2.345'",
            "1e-3",
            ".5",
            "5.",
        ],
    ),
    (
        "c",
        "char(4)",
        &["'abcd'", "'ab  '", "'abcd   '", "'abcde'", "''", "1"],
    ),
    (
        "v",
        "varchar(5)",
        &["'it''s'", "'abcde  '", "'abcdef'", "'äöü'"],
    ),
    ("t", "text", &["'a'", "''", "'\\n'", "'--'", "'('", "12"]),
    ("y", "bytea", &["'\\x00ff'", "'abc'", "'\\x0'", "''"]),
    (
        "u",
        "uuid",
        &["'00000000-0000-0000-0000-000000000001'", "'x'"],
    ),
    (
        "da",
        "date",
        &[
            "'2024-02-29'",
            "'2023-02-29'",
            "'infinity'",
            "'Jan 5, 2020'",
        ],
    ),
    (
        "ts",
        "timestamp",
        &[
            "'2024-02-29 10:11:12.5'",
            "'2024-02-29'",
            "'2024-13-01'",
            "'2024-10-27 02:30'",
        ],
    ),
    (
        "tz",
        "timestamptz",
        &[
            "'2024-02-29 10:11:12+03'",
            "'2024-10-27 02:30'",
            "'2024-03-31 02:30'",
            "'2024-07-01 00:00 CET'",
        ],
    ),
    ("iv", "interval", &["'1 day 2 hours'", "'x'", "'-1 mon'"]),
];

/// An INSERT of several rows, whose literals are mostly of their columns, and perhaps rows in
/// the way of others.
fn listed(random: &mut Random, key: u64) -> String {
    let count = 2 + random.below(3);
    let is_tame = random.below(3) > 0;
    let columns: Vec<_> = EVERY.iter().filter(|_| random.below(3) > 0).collect();
    let mut rows = Vec::new();
    for row in 0..count {
        let mut cells = vec![(key + row - random.below(2)).to_string()];
        for (_, _, literals) in &columns {
            let cell = match random.below(8) {
                0 => "null",
                1 => "default",
                _ if is_tame => literals[0],
                _ => random.pick(literals),
            };
            cells.push(cell.to_owned());
        }
        rows.push(format!("({})", cells.join(", ")));
    }
    let names = std::iter::once("k").chain(columns.iter().map(|column| column.0));
    let names: Vec<&str> = names.collect();
    let tail = random.pick(&[
        "",
        "",
        " on conflict do nothing",
        " on conflict (k) do nothing",
        " on conflict (k) do update set i = every.i + excluded.i, t = excluded.t",
        " on conflict (k) do update set l = excluded.k where every.s < 5",
        " on conflict (k) do update set i = 5 where every.s < excluded.s",
        " on conflict (t) do nothing",
        " returning k, i, t",
    ]);
    format!(
        "insert into every ({}) values {}{tail}",
        names.join(", "),
        rows.join(", ")
    )
}

#[test]
fn listed_rows_are_alike_both_ways() {
    let columns = EVERY.iter().map(|(name, ty, _)| format!("{name} {ty}"));
    let columns: Vec<String> = columns.collect();
    let create = format!(
        "set timezone = 'Europe/Berlin';
         create table every (k int primary key, {}, check (i <> 7))",
        columns.join(", ")
    );
    for seed in 1..=4 {
        eprintln!("seed {seed}");
        let mut random = Random(seed);
        let mut sides = sides();
        for (fixture, session) in &mut sides {
            fixture.ok(session, &create);
        }
        for round in 0..100 {
            let insert = listed(&mut random, 1 + round * 3);
            let select = "select * from every where k >= 0 and k < 500 order by k";
            for sql in [&insert, select] {
                let [on, off] = &mut sides;
                let (fast, slow) = (
                    answer(&on.0, &mut on.1, sql),
                    answer(&off.0, &mut off.1, sql),
                );
                assert_eq!(
                    format!("{fast:?}"),
                    format!("{slow:?}"),
                    "seed {seed}\n{insert}"
                );
            }
        }
        let taken = sides[0].1.fast_statements();
        assert!(
            taken > 115,
            "{taken} took the fast path, 100 of them to look"
        );
    }
}

/// An INSERT's parameters have the types of their columns, whoever finds them.
#[test]
fn listed_parameters_are_those_that_the_planner_finds() {
    let create = "create table p (k int primary key, v varchar(3), n numeric(6, 2), l bigint)";
    let texts = [
        "insert into p values ($1, $2, $3, $4), ($5, $2, 1.5, $4)",
        "insert into p (l, k) values ($2, $1)",
        "insert into p (k, v) values ($1, $2) on conflict (k) do update set l = $3",
        "insert into p (k, l) values ($1, $1)",
        "insert into p (k) values ($1), (2) returning v",
        "insert into p (k, l) select * from unnest($1::int[], $2::bigint[])",
        "insert into p (k, v) select * from unnest($1::int[], $2::text[]) on conflict do nothing",
    ];
    let found = sides().map(|(fixture, mut session)| {
        fixture.ok(&mut session, create);
        texts.map(|text| {
            let prepared = fixture.runtime.block_on(session.prepare(text, &[]));
            prepared.map_or_else(
                |error| error.message,
                |prepared| format!("{:?} {:?}", prepared.parameters, prepared.columns),
            )
        })
    });
    assert_eq!(found[0], found[1]);
}

#[test]
fn prepared_rows_that_are_unfit_are_planned_after_all() {
    let fixture = Fixture::new();
    let mut session = fixture.session();
    fixture.ok(
        &mut session,
        "create table p (k int primary key, v varchar(3))",
    );
    let mut run = |text: &str, values: Vec<Value>| {
        fixture.runtime.block_on(async {
            let prepared = session.prepare(text, &[]).await?;
            session.execute_prepared(&prepared, &values.into()).await
        })
    };
    let text = |text: &str| Value::Text(text.into());
    let rows = "insert into p values ($1, $2), ($3, $2)";
    let keyed = |k, v| vec![Value::I32(k), text(v), Value::I32(7)];
    let too_long = run(rows, keyed(1, "abcd")).err().unwrap();
    assert_eq!(too_long.kind, ErrorKind::StringDataRightTruncation);
    assert!(run(rows, keyed(1, "abc")).is_ok());
    let twice = run(rows, keyed(2, "abc")).err().unwrap();
    assert_eq!(twice.kind, ErrorKind::UniqueViolation);
    assert_eq!(
        twice.message,
        "duplicate key value violates unique constraint \"p_pkey\""
    );
    // Two arrays of the same items are two columns.
    let arrays = "insert into p (k, v) select * from unnest($1::int[], $2::text[])";
    let tag = run(arrays, vec![text("{8,9}"), text("{8,9}")]).unwrap();
    assert!(matches!(tag, Outcome::Command { tag } if tag == "INSERT 0 2"));
    let rows = fixture.ok(&mut session, "select k, v from p order by k");
    assert_eq!(rows, ["1|abc", "7|abc", "8|8", "9|9"]);
}
