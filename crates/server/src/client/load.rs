//! `aerostat load`: benchmark data sets and files, over the wire by COPY.

mod csv;
mod infer;
mod parquet;
mod progress;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use aerostat_workload::load::{Layouts, LoadOptions, LoadReport};
use aerostat_workload::{Dataset, Scale, load, ssb};
use anyhow::{Context, Result};
use clap::{Args, Subcommand};

use super::table::{bytes, count, table};
use super::{Target, block_on, ensure_database};
pub(crate) use progress::Bars;

/// What to load.
#[derive(Subcommand)]
pub(crate) enum LoadCommand {
    /// The Star Schema Benchmark: 6,000,000 fact rows at scale 1
    Ssb(ScaledArguments),
    /// TPC-H: 6,000,000 line items at scale 1
    Tpch(ScaledArguments),
    /// Page views of web sites: one table of 100 columns, for ClickBench's questions
    Hits(HitsArguments),
    /// A CSV file
    Csv(csv::CsvArguments),
    /// A Parquet file
    Parquet(parquet::ParquetArguments),
}

/// How to load a data set that has scales.
#[derive(Args)]
pub(crate) struct ScaledArguments {
    /// Scale factor; fractions are allowed
    #[arg(long, value_parser = parse_scale)]
    scale: Scale,
    #[command(flatten)]
    dataset: DatasetArguments,
}

/// How to load page views.
#[derive(Args)]
pub(crate) struct HitsArguments {
    /// Number of rows, about 700 bytes each
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    rows: u64,
    #[command(flatten)]
    dataset: DatasetArguments,
}

/// How to load a data set.
#[derive(Args)]
pub(crate) struct DatasetArguments {
    /// Database to load into; made when it is not there
    #[arg(long)]
    tenant: String,
    /// Layout of every table: row, column, or groups such as '(a,b),(c)'
    #[arg(long)]
    layout: Option<String>,
    /// Connections
    #[arg(long, default_value_t = LoadOptions::default().connections)]
    parallel: NonZeroUsize,
    /// Seed of the generated rows; TPC-H has its own
    #[arg(long, default_value_t = ssb::SEED_DEFAULT)]
    seed: u64,
    /// Drop tables of the same names first
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    target: Target,
}

pub(super) fn parse_scale(text: &str) -> Result<Scale, String> {
    text.parse()
        .map_err(|error: aerostat_workload::ScaleError| error.to_string())
}

/// Loads what is asked for and says how fast.
///
/// # Errors
/// When the source cannot be read or the node refuses.
pub(crate) fn run(what: LoadCommand) -> Result<()> {
    match what {
        LoadCommand::Ssb(arguments) => {
            let dataset = Dataset::ssb(arguments.scale, arguments.dataset.seed);
            block_on(arguments.dataset.load(dataset))
        }
        LoadCommand::Tpch(arguments) => {
            let dataset = Dataset::tpch(arguments.scale);
            block_on(arguments.dataset.load(dataset))
        }
        LoadCommand::Hits(arguments) => {
            let dataset = Dataset::hits(arguments.rows, arguments.dataset.seed);
            block_on(arguments.dataset.load(dataset))
        }
        LoadCommand::Csv(arguments) => block_on(csv::run(arguments)),
        LoadCommand::Parquet(arguments) => block_on(parquet::run(arguments)),
    }
}

impl DatasetArguments {
    async fn load(&self, dataset: Dataset) -> Result<()> {
        ensure_database(&self.target, &self.tenant).await?;
        let options = LoadOptions {
            connections: self.parallel,
            replace: self.replace,
            layouts: self.layout.as_ref().map(Layouts::all).unwrap_or_default(),
        };
        let config = self.target.database(&self.tenant)?;
        let bars = Arc::new(Bars::new(&self.tenant));
        let report = load::load(&config, dataset, &options, bars)
            .await
            .with_context(|| format!("cannot load tenant {}", self.tenant))?;
        crate::print(&summary(&report))
    }
}

/// What a load did, as a table and a line.
pub(crate) fn summary(report: &LoadReport) -> String {
    let rows = report.tables.iter().map(|loaded| {
        [
            loaded.table.clone(),
            count(loaded.rows),
            bytes(loaded.bytes),
            format!("{:.1}", loaded.elapsed_s),
            count(per_second(loaded.rows, loaded.elapsed_s)),
        ]
    });
    let table = table(["table", "rows", "text", "s", "rows/s"], rows);
    let speed = count(per_second(report.rows, report.elapsed_s));
    format!(
        "{table}\n{} rows in {:.1} s: {speed} rows/s",
        count(report.rows),
        report.elapsed_s
    )
}

fn per_second(rows: u64, elapsed_s: f64) -> u64 {
    (rows as f64 / elapsed_s.max(0.001)) as u64
}

/// The last line of a file's load.
fn file_summary(table: &str, rows: u64, started: Instant) -> String {
    let elapsed_s = started.elapsed().as_secs_f64();
    let speed = count(per_second(rows, elapsed_s));
    format!(
        "{table}: {} rows in {elapsed_s:.1} s: {speed} rows/s",
        count(rows)
    )
}
