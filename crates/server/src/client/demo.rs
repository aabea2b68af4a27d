//! `aerostat demo`: Aerostat in one command.
//!
//! Starts a node of its own, creates four tenants, loads the Star Schema Benchmark into each with
//! another layout and other rows, runs all 13 queries on each, compares every answer with an
//! evaluation of the same rows that shares no code with the engine, then lets users query all
//! tenants at once.

mod node;

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aerostat_workload::drive::pg::{Protocol, fetch_text};
use aerostat_workload::drive::{Mode, Options, Report};
use aerostat_workload::load::{self, Layouts, LoadOptions};
use aerostat_workload::ssb::Ssb;
use aerostat_workload::ssb::queries::QUERIES;
use aerostat_workload::ssb::reference::{Answers, compare, parse_rows};
use aerostat_workload::{Dataset, Scale};
use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use super::load::Bars;
use super::table::{bytes, count, table};
use super::{Target, bench, block_on, connect, ensure_database};
use node::Node;

/// A tenant of the demo.
struct Tenant {
    name: &'static str,
    layout: &'static str,
    seed: u64,
}

/// Four tenants: the two pure layouts, and two hybrids that keep together what the
/// queries read together.
const TENANTS: [Tenant; 4] = [
    Tenant {
        name: "north",
        layout: "column",
        seed: 1,
    },
    Tenant {
        name: "east",
        layout: "row",
        seed: 2,
    },
    Tenant {
        name: "south",
        layout: "hot",
        seed: 3,
    },
    Tenant {
        name: "west",
        layout: "pairs",
        seed: 4,
    },
];

/// The groups of the hybrid layouts; `column` for the tables they do not name.
const HYBRIDS: [(&str, &str); 2] = [
    (
        "hot",
        "(lo_orderdate,lo_quantity,lo_discount,lo_extendedprice)",
    ),
    (
        "pairs",
        "(lo_orderkey,lo_linenumber),(lo_custkey,lo_partkey),(lo_suppkey,lo_orderdate),(lo_revenue,lo_supplycost)",
    ),
];

/// How to demonstrate.
#[derive(Args)]
pub(crate) struct DemoArguments {
    /// Scale of each tenant's data
    #[arg(long, default_value = "0.1")]
    scale: f64,
    /// Seconds to measure
    #[arg(long, default_value_t = 20.0)]
    duration: f64,
    /// Users per tenant
    #[arg(long, default_value_t = 2)]
    users: usize,
    /// Leave the node running
    #[arg(long, env = "KEEP", value_parser = clap::builder::FalseyValueParser::new(), default_value = "0", num_args = 0..=1, default_missing_value = "1")]
    keep: bool,
    /// Folder for the node's data; a temporary one otherwise
    #[arg(long)]
    data: Option<std::path::PathBuf>,
    /// The node's port; a free one otherwise
    #[arg(long, default_value_t = 0)]
    port: u16,
}

/// Demonstrates.
///
/// # Errors
/// When the node does not start, refuses, or gives a wrong answer.
pub(crate) fn run(arguments: &DemoArguments) -> Result<()> {
    let scale = Scale::new(arguments.scale)?;
    let mut node = Node::start(arguments.data.as_deref(), arguments.port)?;
    block_on(node.wait_until_ready())?;
    let shown = block_on(demonstrate(&node, arguments, scale))?;
    crate::print(&shown)?;
    if arguments.keep {
        node.keep();
        return crate::print(&format!(
            "The node goes on (process {}, data {}).\n  psql -h 127.0.0.1 -p {} -U aerostat -d north\n  kill {} ends it",
            node.process_id(),
            node.data().display(),
            node.port(),
            node.process_id()
        ));
    }
    node.stop()?;
    crate::print(
        "The node has stopped. KEEP=1 make demo leaves it running, with a psql command to connect.",
    )
}

async fn demonstrate(node: &Node, arguments: &DemoArguments, scale: Scale) -> Result<String> {
    let target = node.target();
    for tenant in &TENANTS {
        create_and_load(&target, tenant, scale).await?;
    }
    let mut checked = 0;
    for tenant in &TENANTS {
        checked += check_answers(&target, tenant, scale).await?;
    }
    crate::print(&format!("all {checked} answers are right"))?;
    let memory = node.memory_by_tenant().await?;
    let names: Vec<String> = TENANTS
        .iter()
        .map(|tenant| tenant.name.to_owned())
        .collect();
    let options = Options {
        mode: Mode::Closed {
            users: arguments.users,
            think_time: Duration::ZERO,
        },
        warm_up: Duration::from_secs(1),
        duration: Duration::from_secs_f64(arguments.duration),
        ..Options::default()
    };
    let report = bench::ssb(&target, &names, &options, Protocol::Prepared).await?;
    ensure!(
        report.total.errors() == 0,
        "{} queries failed under load",
        report.total.errors()
    );
    Ok(render(&report, &memory))
}

async fn create_and_load(target: &Target, tenant: &Tenant, scale: Scale) -> Result<()> {
    // A data folder of an earlier demo has the databases, but not their rows.
    let admin = connect(&target.maintenance()?).await?;
    admin
        .batch_execute(&format!("DROP DATABASE IF EXISTS {}", tenant.name))
        .await?;
    let started = Instant::now();
    ensure_database(target, tenant.name).await?;
    let created_ms = started.elapsed().as_secs_f64() * 1000.0;
    let options = LoadOptions {
        layouts: layouts(tenant.layout),
        ..LoadOptions::default()
    };
    let dataset = Dataset::ssb(scale, tenant.seed);
    let bars = Arc::new(Bars::new(tenant.name));
    let report = load::load(&target.database(tenant.name)?, dataset, &options, bars)
        .await
        .with_context(|| format!("cannot load tenant {}", tenant.name))?;
    crate::print(&format!(
        "tenant {:<6} created in {created_ms:.0} ms, layout {:<7} {} rows loaded in {:.1} s ({} rows/s)",
        tenant.name,
        tenant.layout,
        count(report.rows),
        report.elapsed_s,
        count((report.rows as f64 / report.elapsed_s) as u64)
    ))
}

fn layouts(name: &str) -> Layouts {
    match HYBRIDS.iter().find(|(hybrid, _)| *hybrid == name) {
        None => Layouts::all(name),
        Some((_, groups)) => Layouts {
            every: Some("column".to_owned()),
            tables: vec![("lineorder".to_owned(), (*groups).to_owned())],
        },
    }
}

/// Compares the answers to all 13 queries with the reference; says how many there were.
async fn check_answers(target: &Target, tenant: &Tenant, scale: Scale) -> Result<usize> {
    let ssb = Ssb::new(scale, tenant.seed);
    let threads = std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let answers = tokio::task::spawn_blocking(move || Answers::compute(&ssb, threads))
        .await
        .context("the reference evaluation died")?;
    let client = connect(&target.database(tenant.name)?).await?;
    for query in &QUERIES {
        let text = fetch_text(&client, query.sql)
            .await
            .with_context(|| format!("tenant {}, {} failed", tenant.name, query.id))?;
        let wrong = || format!("tenant {}, {} gave a wrong answer", tenant.name, query.id);
        let rows = parse_rows(query, &text).with_context(wrong)?;
        compare(query, answers.rows(query), &rows).with_context(wrong)?;
    }
    Ok(QUERIES.len())
}

fn render(report: &Report, memory: &BTreeMap<String, u64>) -> String {
    let rows = report.tenants.iter().zip(&TENANTS).map(|(tenant, about)| {
        let summary = &tenant.summary;
        [
            summary.name.clone(),
            about.layout.to_owned(),
            format!("{:.1}", summary.latency.p50_ms),
            format!("{:.1}", summary.latency.p99_ms),
            if tenant.goal_met { "met" } else { "missed" }.to_owned(),
            format!("{:.1}", summary.throughput_per_s),
            memory
                .get(&summary.name)
                .map_or_else(|| "?".to_owned(), |used| bytes(*used)),
        ]
    });
    let total = &report.total;
    let all = [
        total.name.clone(),
        String::new(),
        format!("{:.1}", total.latency.p50_ms),
        format!("{:.1}", total.latency.p99_ms),
        if report.goal_met { "met" } else { "missed" }.to_owned(),
        format!("{:.1}", total.throughput_per_s),
        bytes(memory.values().sum()),
    ];
    let headings = [
        "tenant",
        "layout",
        "p50 ms",
        "p99 ms",
        "goal 1 s",
        "queries/s",
        "memory",
    ];
    format!(
        "{}, {:.0} s\n{}",
        report.load,
        report.duration_s,
        table(headings, rows.chain([all]))
    )
}

/// Finds one series of one metric in `/metrics`.
fn parse_metric(text: &str, metric: &str) -> Result<BTreeMap<String, u64>> {
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let Some(rest) = line.strip_prefix(metric) else {
            continue;
        };
        let Some((tenant, value)) = rest
            .strip_prefix("{tenant=\"")
            .and_then(|rest| rest.split_once("\"} "))
        else {
            continue;
        };
        found.insert(
            tenant.to_owned(),
            value
                .trim()
                .parse()
                .with_context(|| format!("no number: {line}"))?,
        );
    }
    if found.is_empty() {
        bail!("/metrics has no {metric}");
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_found_by_tenant() {
        let text = "# HELP x\nm_bytes{tenant=\"a\"} 5\nm_bytes{tenant=\"b\"} 7\nm_bytes_other{tenant=\"c\"} 9\n";
        let found = parse_metric(text, "m_bytes").unwrap();
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            [("a".to_owned(), 5), ("b".to_owned(), 7)]
        );
        assert!(parse_metric(text, "nothing").is_err());
    }

    #[test]
    fn hybrid_layouts_name_lineorder() {
        assert_eq!(layouts("row").of("lineorder"), Some("row"));
        assert!(
            layouts("hot")
                .of("lineorder")
                .unwrap()
                .starts_with("(lo_orderdate")
        );
        assert_eq!(layouts("hot").of("part"), Some("column"));
    }
}
