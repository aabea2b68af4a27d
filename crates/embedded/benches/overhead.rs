//! What a statement in process takes, and how much of it is the way to the threads of queries
//! and back. Run with `cargo bench -p aerostat-embedded --bench overhead`; a number behind `--`
//! is the rounds.
//!
//! Medians over all rounds, in microseconds, from the call to the last row.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark")]

use std::time::Instant;

use aerostat_embedded::{Aerostat, ByteSize, Connection, Options, Pinning, Statement};

const ROUNDS: usize = 3_000;

const TABLE: &str = "create table t (id bigint primary key, n bigint, word text);
    insert into t select x, x % 97, 'word ' || x % 13 from generate_series(1, 20000) as g (x)";

fn main() {
    let rounds = std::env::args().filter_map(|word| word.parse().ok()).next();
    let rounds = rounds.unwrap_or(ROUNDS);
    println!("{:<52}{:>10}{:>10}", "", "free", "pinned");
    let databases = [Pinning::Off, Pinning::On].map(|pinning| {
        let options = Options {
            memory: ByteSize(1 << 30),
            pinning,
            ..Options::temporary()
        };
        let database = Aerostat::open(options).unwrap();
        let mut connection = database.connect().unwrap();
        connection.execute(TABLE).unwrap();
        connection.execute("vacuum freeze t").unwrap();
        database
    });
    let cases: [(&str, &str, bool); 6] = [
        ("by key, prepared", "select n from t where id = $1", true),
        ("by key, as text", "select n from t where id = 77", false),
        ("no table, prepared", "select 1 + $1::bigint", true),
        (
            "sum of 20,000 rows, prepared",
            "select sum(n) from t where id > $1",
            true,
        ),
        (
            "sum of 20,000 rows, as text",
            "select sum(n) from t where id > 7",
            false,
        ),
        (
            "groups of 20,000 rows, prepared",
            "select word, sum(n) from t where id > $1 group by word",
            true,
        ),
    ];
    for (title, sql, prepared) in cases {
        let median = databases.each_ref().map(|database| {
            let mut connection = database.connect().unwrap();
            let statement = prepared.then(|| connection.prepare(sql).unwrap());
            let mut run = || time(&mut connection, sql, statement.as_ref());
            let _warm: f64 = (0..rounds / 10).map(|_| run()).sum();
            let mut times: Vec<f64> = (0..rounds).map(|_| run()).collect();
            times.sort_by(f64::total_cmp);
            times[rounds / 2]
        });
        println!("{title:<52}{:>10.1}{:>10.1}", median[0], median[1]);
    }
}

fn time(connection: &mut Connection, sql: &str, statement: Option<&Statement>) -> f64 {
    let started = Instant::now();
    let done = match statement {
        Some(statement) => statement.execute(connection, &[&77]),
        None => connection.query(sql).and_then(|rows| rows.finish()),
    };
    assert!(done.unwrap().rows > 0);
    started.elapsed().as_secs_f64() * 1e6
}
