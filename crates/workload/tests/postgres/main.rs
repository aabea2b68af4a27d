//! Loader, queries, reference and driver against a real server ([`server`]): PostgreSQL itself or
//! another that speaks its protocol.
//!
//! The tables go into the database of its URL and replace those of the same names.

#![allow(clippy::unwrap_used, clippy::panic)]

mod server;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use aerostat_workload::drive::pg::{PgConnect, Protocol, fetch_text};
use aerostat_workload::drive::{Goal, Mode, Options, QueryName, drive};
use aerostat_workload::load::{LoadOptions, Progress, connect, load};
use aerostat_workload::ssb::reference::{Answers, compare, parse_rows};
use aerostat_workload::ssb::{self, Ssb};
use aerostat_workload::{Dataset, Scale, tpch};
use server::Server;
use tokio_postgres::Config;

/// Two connections; tables of an earlier run are replaced.
fn load_options() -> LoadOptions {
    LoadOptions {
        replace: true,
        ..LoadOptions::default()
    }
}

/// SSB and TPC-H have a table named `part`, so they cannot be there at once.
#[tokio::test]
async fn all_benchmarks_run_against_a_server() {
    let Some(server) = Server::find().await else {
        return;
    };
    let config = &server.config;
    ssb_answers_equal_the_reference(config).await;
    ssb_can_be_driven(config).await;
    tpch_queries_run(config).await;
    hits_queries_run(config).await;
}

async fn ssb_answers_equal_the_reference(config: &Config) {
    let (scale, seed) = (Scale::new(0.05).unwrap(), 7);
    let progress: Arc<dyn Progress> = Arc::new(());
    let dataset = Dataset::ssb(scale, seed);
    let report = load(&config.clone().into(), dataset, &load_options(), progress)
        .await
        .unwrap();
    assert_eq!(report.tables.len(), 5);
    assert_eq!(report.tables[4].rows, 300_000);

    let answers = Answers::compute(&Ssb::new(scale, seed), NonZeroUsize::MIN);
    let client = connect(&config.clone().into()).await.unwrap();
    for query in &ssb::QUERIES {
        let text = fetch_text(&client, query.sql).await.unwrap();
        let actual = parse_rows(query, &text).unwrap();
        let result = compare(query, answers.rows(query), &actual);
        assert_eq!(result, Ok(()), "{}", query.id);
    }
}

async fn ssb_can_be_driven(config: &Config) {
    let names: Vec<QueryName> = ssb::QUERIES
        .iter()
        .map(|query| QueryName::new(query.id, format!("flight {}", query.flight)))
        .collect();
    let texts: Vec<String> = ssb::QUERIES.iter().map(|q| q.sql.to_owned()).collect();
    for protocol in [Protocol::Prepared, Protocol::Simple] {
        let pg = PgConnect::new(vec![config.clone().into()], texts.clone(), protocol);
        let options = Options {
            mode: Mode::Closed {
                users: 2,
                think_time: Duration::ZERO,
            },
            duration: Duration::from_secs(2),
            goal: Goal {
                latency: Duration::from_secs(30),
                ..Goal::default()
            },
            ..Options::default()
        };
        let tenants = ["tenant".to_owned()];
        let report = drive(Arc::new(pg), &tenants, &names, &options, Arc::new(()))
            .await
            .unwrap();
        assert!(report.total.done > 0 && report.goal_met, "{report:?}");
        assert_eq!(report.total.errors(), 0);
    }
}

async fn tpch_queries_run(config: &Config) {
    let scale = Scale::new(0.01).unwrap();
    let report = load(
        &config.clone().into(),
        Dataset::tpch(scale),
        &load_options(),
        Arc::new(()),
    )
    .await
    .unwrap();
    let rows: Vec<u64> = report.tables.iter().map(|table| table.rows).collect();
    assert_eq!(rows, [5, 25, 100, 1_500, 2_000, 8_000, 15_000, 60_175]);
    let client = connect(&config.clone().into()).await.unwrap();
    // Q20's correlated subquery takes PostgreSQL minutes without an index.
    let index = "CREATE INDEX ON lineitem (l_partkey, l_suppkey)";
    client.batch_execute(index).await.unwrap();
    for query in &tpch::QUERIES {
        let result = fetch_text(&client, &query.sql(scale)).await;
        assert!(result.is_ok(), "{}: {result:?}", query.id);
    }
}

async fn hits_queries_run(config: &Config) {
    let dataset = Dataset::hits(20_000, 7);
    let report = load(
        &config.clone().into(),
        dataset,
        &load_options(),
        Arc::new(()),
    )
    .await
    .unwrap();
    assert_eq!(report.rows, 20_000);
    let client = connect(&config.clone().into()).await.unwrap();
    for query in dataset.queries() {
        let result = fetch_text(&client, &query.sql).await;
        assert!(result.is_ok(), "{}: {result:?}", query.id);
    }
}
