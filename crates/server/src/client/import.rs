//! `aerostat import`: a PostgreSQL database into one of a running node, and then its changes.

use std::time::{Duration, Instant};

use aerostat_import::{Action, Event, Options, Outcome, run as import};
use anyhow::{Result, anyhow};
use clap::Args;

use super::{
    Target, block_on,
    table::{bytes, count},
};
use crate::serve::Signals;

/// How often it is said how far the rows of a table, or changes, are.
const TOLD: Duration = Duration::from_secs(5);

/// What to import.
#[derive(Args)]
pub(crate) struct ImportArguments {
    /// The source, as postgres://role:password@host:port/database
    source: String,
    /// Database of the node to import into, which must exist
    #[arg(long)]
    into: String,
    /// The import's name, and that of its slot and publication at the source
    #[arg(long)]
    name: Option<String>,
    /// Schemas to import; with --table, all tables if neither is given
    #[arg(long)]
    schema: Vec<String>,
    /// Tables to import, as schema.table
    #[arg(long)]
    table: Vec<String>,
    /// Tables to leave out
    #[arg(long)]
    exclude: Vec<String>,
    /// A publication of the source to use instead of making one
    #[arg(long)]
    publication: Option<String>,
    /// Take columns of types that the node does not have as text
    #[arg(long)]
    as_text: bool,
    /// Empty tables of the target that have rows
    #[arg(long)]
    truncate: bool,
    /// Copy, and follow nothing
    #[arg(long, conflicts_with_all = ["finish", "drop"])]
    once: bool,
    /// The last step of a switch-over: follow up to now, and end the import
    #[arg(long, conflicts_with = "drop")]
    finish: bool,
    /// End the import, and leave the target's tables as they are
    #[arg(long)]
    drop: bool,
    /// Seconds that an import under way waits for a server that does not answer
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    patience: u64,
    #[command(flatten)]
    target: Target,
}

/// Imports until it is done, or stopped by a signal.
///
/// # Errors
/// What cannot be imported, and what has ended the import.
pub(crate) fn run(arguments: ImportArguments) -> Result<()> {
    let action = match (arguments.once, arguments.finish, arguments.drop) {
        (true, ..) => Action::Once,
        (_, true, _) => Action::Finish,
        (.., true) => Action::Drop,
        _ => Action::Follow,
    };
    let target = arguments.target.database(&arguments.into)?.config;
    let options = Options {
        trust: arguments.target.trust,
        name: arguments.name,
        publication: arguments.publication,
        schemas: arguments.schema,
        tables: arguments.table,
        exclude: arguments.exclude,
        action,
        as_text: arguments.as_text,
        truncate: arguments.truncate,
        patience: Duration::from_secs(arguments.patience),
        ..Options::new(arguments.source, target)
    };
    block_on(async {
        let mut signals = Signals::new()?;
        let stop = async move {
            signals.next().await;
        };
        let mut told = Told::default();
        let mut tell = |event: &Event| told.tell(event);
        let summary = import(options, &mut tell, stop).await?;
        if summary.outcome == Outcome::Stopped && action != Action::Follow {
            return Err(anyhow!("stopped before the end; run it again to go on"));
        }
        let outcome = match summary.outcome {
            Outcome::Copied => "copied",
            Outcome::Finished => "finished",
            Outcome::Dropped => "ended",
            Outcome::Stopped => "stopped; run it again to go on",
        };
        crate::print(&format!(
            "import {} {outcome}: {} rows copied, {} transactions and {} changes followed",
            summary.name,
            count(summary.rows),
            count(summary.transactions),
            count(summary.changes)
        ))
        .map_err(|error| anyhow!(error))
    })
}

/// What was said last, and when.
#[derive(Default)]
struct Told {
    at: Option<Instant>,
}

impl Told {
    fn tell(&mut self, event: &Event) {
        let is_due = self.at.is_none_or(|at| at.elapsed() >= TOLD);
        let text = match event {
            Event::Note(text) => text.clone(),
            Event::MakingSlot => {
                "waiting for transactions of the source that write at the moment".to_owned()
            }
            Event::Copied {
                table,
                rows,
                whole: true,
                ..
            } => {
                format!("{table}: {} rows", count(*rows))
            }
            Event::Waiting { reason, wait } => {
                format!("{reason}; trying again in {} s", wait.as_secs().max(1))
            }
            Event::Copied {
                table,
                rows,
                bytes: size,
                ..
            } if is_due => {
                format!("{table}: {} rows, {} so far", count(*rows), bytes(*size))
            }
            Event::Following {
                lag_bytes,
                lag,
                transactions,
                ..
            } if is_due => format!(
                "following: {} transactions, {} and {:.1} s behind",
                count(*transactions),
                bytes(*lag_bytes),
                lag.as_secs_f64()
            ),
            Event::Copied { .. } | Event::Following { .. } => return,
        };
        self.at = Some(Instant::now());
        eprintln!("{text}");
    }
}
