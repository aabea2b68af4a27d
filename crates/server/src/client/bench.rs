//! `aerostat bench`: the response times of users, in a closed or an open loop.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use aerostat_workload::dataset::DatasetQuery;
use aerostat_workload::drive::pg::{PgConnect, Protocol};
use aerostat_workload::drive::{
    self, Arrivals, Goal, Mode, Observer, Options, QueryName, Report, Sample, Selection,
};
use aerostat_workload::ssb::{QUERIES, SEED_DEFAULT};
use aerostat_workload::{Dataset, Scale};
use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand, ValueEnum};

use super::table::table;
use super::{Target, block_on, connect};

/// What to measure.
#[derive(Subcommand)]
pub(crate) enum BenchCommand {
    /// The 13 queries of the Star Schema Benchmark, by many tenants' users at once
    Ssb(BenchArguments),
    /// The texts of a benchmark's queries as JSON, for other programs to run
    #[command(hide = true)]
    Queries(QueriesArguments),
}

/// Whose queries.
#[derive(Args)]
pub(crate) struct QueriesArguments {
    /// The benchmark
    #[arg(long, value_enum, default_value_t = Suite::Ssb)]
    suite: Suite,
    /// Scale factor, on which TPC-H's Q11 depends
    #[arg(long, default_value = "1", value_parser = super::load::parse_scale)]
    scale: Scale,
    /// Number of rows of hits, on which what its queries look for depends
    #[arg(long, default_value_t = 10_000_000)]
    rows: u64,
}

/// Benchmarks that have queries.
#[derive(Clone, Copy, ValueEnum)]
enum Suite {
    Ssb,
    Tpch,
    Hits,
}

impl QueriesArguments {
    fn queries(&self) -> Vec<DatasetQuery> {
        let dataset = match self.suite {
            Suite::Ssb => Dataset::ssb(self.scale, SEED_DEFAULT),
            Suite::Tpch => Dataset::tpch(self.scale),
            Suite::Hits => Dataset::hits(self.rows, SEED_DEFAULT),
        };
        dataset.queries()
    }
}

/// How to measure.
#[derive(Args)]
pub(crate) struct BenchArguments {
    /// Number of tenants, databases PREFIX1 to PREFIXn
    #[arg(long, default_value_t = 1)]
    tenants: usize,
    /// What the tenants' names begin with
    #[arg(long, default_value = "tenant")]
    prefix: String,
    /// These databases instead, by name
    #[arg(long, value_delimiter = ',', conflicts_with = "tenants")]
    tenant: Vec<String>,
    /// Users per tenant; in an open loop, connections per tenant
    #[arg(long, default_value_t = 2)]
    users: usize,
    /// Seconds to measure
    #[arg(long, default_value_t = 20.0)]
    duration: f64,
    /// Seconds to run before measuring
    #[arg(long, default_value_t = 2.0)]
    warm_up: f64,
    /// Open loop: queries per second and tenant, whatever the node does
    #[arg(long)]
    rate: Option<f64>,
    /// Open loop: equal times between queries instead of random ones
    #[arg(long, requires = "rate")]
    steady: bool,
    /// Closed loop: seconds between an answer and the next query
    #[arg(long, default_value_t = 0.0, conflicts_with = "rate")]
    think: f64,
    /// Queries at random instead of in turn
    #[arg(long)]
    random: bool,
    /// Send queries as text instead of prepared
    #[arg(long)]
    simple: bool,
    /// The goal in milliseconds
    #[arg(long, default_value_t = 1000.0)]
    goal: f64,
    /// The share of queries that must be within the goal
    #[arg(long, default_value_t = 0.99)]
    goal_share: f64,
    /// Seed of arrivals and choices
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Write the report as JSON to this file too
    #[arg(long)]
    json: Option<PathBuf>,
    #[command(flatten)]
    target: Target,
}

/// Watches nothing.
struct Unwatched;

impl Observer for Unwatched {
    fn finished(&self, _sample: &Sample) {}
}

/// Measures and prints.
///
/// # Errors
/// When the load cannot be driven; queries that fail are part of the report.
pub(crate) fn run(what: BenchCommand) -> Result<()> {
    let arguments = match what {
        BenchCommand::Ssb(arguments) => arguments,
        BenchCommand::Queries(arguments) => {
            return crate::print(&serde_json::to_string_pretty(&arguments.queries())?);
        }
    };
    let report = block_on(measure_ssb(&arguments))?;
    if let Some(file) = &arguments.json {
        let json = serde_json::to_vec_pretty(&report).context("the report is no JSON")?;
        std::fs::write(file, json).with_context(|| format!("cannot write {}", file.display()))?;
    }
    crate::print(&render(&report))
}

async fn measure_ssb(arguments: &BenchArguments) -> Result<Report> {
    ensure!(
        arguments.duration > 0.0
            && arguments.warm_up >= 0.0
            && arguments.think >= 0.0
            && arguments.goal > 0.0,
        "times cannot be negative, and duration and goal not zero"
    );
    let tenants = arguments.tenant_names();
    for tenant in &tenants {
        let client = connect(&arguments.target.database(tenant)?).await?;
        client.simple_query("SELECT 1 FROM lineorder LIMIT 1").await.with_context(|| {
            format!("database {tenant} has no SSB data; load it with: aerostat load ssb --scale 0.1 --tenant {tenant}")
        })?;
    }
    ssb(
        &arguments.target,
        &tenants,
        &arguments.options(),
        arguments.protocol(),
    )
    .await
}

/// Drives the 13 queries against these tenants.
///
/// # Errors
/// When the load cannot be driven.
pub(crate) async fn ssb(
    target: &Target,
    tenants: &[String],
    options: &Options,
    protocol: Protocol,
) -> Result<Report> {
    let configs = tenants
        .iter()
        .map(|tenant| target.database(tenant))
        .collect::<Result<Vec<_>>>()?;
    let texts = QUERIES.iter().map(|query| query.sql.to_owned()).collect();
    let names: Vec<QueryName> = QUERIES
        .iter()
        .map(|query| QueryName::new(query.id, format!("flight {}", query.flight)))
        .collect();
    let clients = Arc::new(PgConnect::new(configs, texts, protocol));
    Ok(drive::drive(clients, tenants, &names, options, Arc::new(Unwatched)).await?)
}

/// The report for people.
pub(crate) fn render(report: &Report) -> String {
    let goal = format!(
        "{:.0}% within {:.0} ms",
        report.goal_share * 100.0,
        report.goal_ms
    );
    let verdict = if report.goal_met { "met" } else { "missed" };
    let table = table(Report::HEADINGS, report.rows());
    format!(
        "{}, {:.0} s\n{table}\ngoal of {goal}: {verdict}",
        report.load, report.duration_s
    )
}

impl BenchArguments {
    fn tenant_names(&self) -> Vec<String> {
        if self.tenant.is_empty() {
            (1..=self.tenants)
                .map(|at| format!("{}{at}", self.prefix))
                .collect()
        } else {
            self.tenant.clone()
        }
    }

    fn protocol(&self) -> Protocol {
        if self.simple {
            Protocol::Simple
        } else {
            Protocol::Prepared
        }
    }

    fn options(&self) -> Options {
        let mode = match self.rate {
            None => Mode::Closed {
                users: self.users,
                think_time: Duration::from_secs_f64(self.think),
            },
            Some(rate) => Mode::Open {
                rate,
                arrivals: if self.steady {
                    Arrivals::Fixed
                } else {
                    Arrivals::Poisson
                },
                connections: self.users,
            },
        };
        Options {
            mode,
            selection: if self.random {
                Selection::Random
            } else {
                Selection::InTurn
            },
            warm_up: Duration::from_secs_f64(self.warm_up),
            duration: Duration::from_secs_f64(self.duration),
            goal: Goal {
                share: self.goal_share,
                latency: Duration::from_secs_f64(self.goal / 1000.0),
            },
            seed: self.seed,
            ..Options::default()
        }
    }
}
