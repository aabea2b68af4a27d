//! What a short query or change takes whose plan is kept, and what it takes planned anew. Run with
//! `cargo bench -p aerostat-engine --bench plans`; a number behind `--` is the rounds.
//!
//! Each query runs in turn in two sessions of one engine, one of them with
//! `plan_cache_mode = force_custom_plan`, from its text or its parameters to its last row;
//! there is no wire. Medians over all rounds, so that what else the machine does meanwhile
//! meets both.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark")]

use std::{sync::Arc, time::Instant};

use aerostat_api::{Outcome, Value};
use aerostat_engine::{
    Engine, EngineOptions, NoObserver, Prepared, QUERY_STACK_BYTES, Session, StatementOptions,
};
use aerostat_memory::Governor;
use aerostat_storage::backup::Folders;
use aerostat_types::ByteSize;
use futures::StreamExt;

const ROUNDS: usize = 2_000;

const TABLES: &str = "
    create table customer (id int primary key, name text, region int);
    create table orders (id int primary key, customer int, placed date);
    create table item (orders int, line int, part text, price int, primary key (orders, line));
    create index orders_customer on orders (customer);
    insert into customer select g, 'customer ' || g, g % 10 from generate_series(1, 1000) as g;
    insert into orders select g, 1 + g % 1000, date '2024-01-01' + g % 365
        from generate_series(1, 5000) as g;
    insert into item select 1 + g % 5000, g / 5000, 'part ' || g % 100, g % 97
        from generate_series(0, 14999) as g";

/// A query, and how it is sent.
struct Case {
    title: &'static str,
    sql: &'static str,
    /// As a prepared statement of this many parameters; `None` as a text.
    parameters: Option<usize>,
    /// Whether it is prepared anew each time.
    again: bool,
}

const TWO: &str = "select c.name, o.placed from orders o join customer c on c.id = o.customer \
                   where o.id = $1";

const THREE: &str = "select c.name, count(*), sum(i.price) from orders o \
                     join customer c on c.id = o.customer join item i on i.orders = o.id \
                     where o.id = $1 group by c.name order by 1";

const EITHER: &str = "select c.name, o.placed from orders o join customer c on c.id = o.customer \
                      where o.id = $1 or o.id = $2";

const TEXT: &str = "select c.name, o.placed from orders o join customer c on c.id = o.customer \
                    where o.id = 7";

const CHANGE: &str = "update item set price = $1 from orders o \
                      where o.id = item.orders and o.id = $1 and item.line = 0";

const SUM: &str = "update orders set customer = customer + $1 where id = $2 or id = -1";

const UPSERT: &str = "insert into orders select o.id, o.customer, o.placed from orders o \
                      join customer c on c.id = o.customer where o.id = $1 \
                      on conflict (id) do update set customer = excluded.customer";

const CASES: [Case; 9] = [
    Case {
        title: "two tables, prepared",
        sql: TWO,
        parameters: Some(1),
        again: false,
    },
    Case {
        title: "two tables, prepared for each execution",
        sql: TWO,
        parameters: Some(1),
        again: true,
    },
    Case {
        title: "two tables, the same text",
        sql: TEXT,
        parameters: None,
        again: false,
    },
    Case {
        title: "three tables, grouped, prepared",
        sql: THREE,
        parameters: Some(1),
        again: false,
    },
    Case {
        title: "parameters whose values decide, prepared",
        sql: EITHER,
        parameters: Some(2),
        again: false,
    },
    Case {
        title: "an update by two tables, prepared",
        sql: CHANGE,
        parameters: Some(1),
        again: false,
    },
    Case {
        title: "an update by two tables, prepared for each execution",
        sql: CHANGE,
        parameters: Some(1),
        again: true,
    },
    Case {
        title: "an update whose values decide, prepared",
        sql: SUM,
        parameters: Some(2),
        again: false,
    },
    Case {
        title: "an insert from two tables with DO UPDATE, prepared",
        sql: UPSERT,
        parameters: Some(1),
        again: false,
    },
];

async fn drain(outcome: Outcome) -> usize {
    let Outcome::Rows { mut batches, .. } = outcome else {
        return 0;
    };
    let mut rows = 0;
    while let Some(batch) = batches.next().await {
        rows += batch.unwrap().num_rows();
    }
    rows
}

/// Runs a case once and gives its microseconds.
async fn once(
    session: &mut Session,
    case: &Case,
    prepared: Option<&Prepared>,
    round: usize,
) -> f64 {
    let started = Instant::now();
    let rows = match (case.parameters, prepared) {
        (Some(count), Some(prepared)) => {
            let anew = match case.again {
                true => Some(session.prepare(case.sql, &[]).await.unwrap()),
                false => None,
            };
            let number = (round % 5_000 + 1) as i32;
            let values = (0..count).map(|at| number - at as i32);
            let values: Arc<[Value]> = values.map(Value::I32).collect();
            let prepared = anew.as_ref().unwrap_or(prepared);
            drain(session.execute_prepared(prepared, &values).await.unwrap()).await
        }
        _ => {
            let statement = session.split(case.sql).await.unwrap().remove(0);
            drain(session.execute(&statement).await.unwrap()).await
        }
    };
    let is_change = !case.sql.starts_with("select");
    assert!(
        rows > 0 || is_change || round.is_multiple_of(5_000),
        "{}",
        case.title
    );
    started.elapsed().as_secs_f64() * 1e6
}

async fn measure(sessions: &mut [Session; 2], case: &Case, rounds: usize) -> [f64; 2] {
    let mut prepared = Vec::new();
    for session in sessions.iter_mut() {
        prepared.push(match case.parameters {
            Some(_) => Some(session.prepare(case.sql, &[]).await.unwrap()),
            None => None,
        });
    }
    let mut taken: [Vec<f64>; 2] = Default::default();
    for round in 0..rounds {
        for (at, session) in sessions.iter_mut().enumerate() {
            let us = once(session, case, prepared[at].as_ref(), round).await;
            taken[at].push(us);
        }
    }
    taken.map(|mut taken| {
        taken.sort_by(f64::total_cmp);
        taken[taken.len() / 2]
    })
}

fn main() {
    let rounds = std::env::args().find_map(|argument| argument.parse().ok());
    let rounds = rounds.unwrap_or(ROUNDS);
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_stack_size(QUERY_STACK_BYTES)
        .enable_all()
        .build()
        .unwrap();
    let engine = Engine::open(EngineOptions {
        data: folder.path().to_owned(),
        governor: Governor::new(ByteSize(1 << 30)),
        queries: runtime.handle().clone(),
        ends: runtime.handle().clone(),
        threads: 2,
        observer: Arc::new(NoObserver),
        machine: aerostat_advice::Machine::default(),
        places: Arc::new(Folders),
        spill: aerostat_engine::SpillLimits::default(),
        opening: aerostat_engine::Opening::Eager,
        statements: StatementOptions::default(),
        shared: None,
    })
    .unwrap();
    runtime.block_on(async {
        let connect = || engine.connect("aerostat", "aerostat", &[]).unwrap();
        let mut sessions = [connect(), connect()];
        for statement in sessions[0].split(TABLES).await.unwrap() {
            drain(sessions[0].execute(&statement).await.unwrap()).await;
        }
        let off = "set plan_cache_mode = force_custom_plan";
        for statement in sessions[1].split(off).await.unwrap() {
            drain(sessions[1].execute(&statement).await.unwrap()).await;
        }
        println!("median µs of {rounds} | plan kept | planned anew | kept / anew");
        for case in &CASES {
            let [kept, anew] = measure(&mut sessions, case, rounds).await;
            let share = kept / anew;
            println!("{} | {kept:.0} | {anew:.0} | {share:.2}", case.title);
        }
    });
}
