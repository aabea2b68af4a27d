//! `aerostat repair`: reports damage in the databases of a data folder, and repairs those that
//! cannot be opened, at a loss that is reported first.

use std::fmt::Write;
use std::process::ExitCode;

use aerostat_embedded::{Examined, RepairOptions, Verdict, repair};
use anyhow::{Context, Result};
use clap::Args;

use crate::cli::EngineArguments;
use crate::config::{Config, ConfigError, Sourced};
use crate::{logs, print};

/// What is examined.
#[derive(Args)]
pub(crate) struct RepairArguments {
    #[command(flatten)]
    settings: EngineArguments,
    /// The only database to examine
    #[arg(long, value_name = "NAME")]
    database: Option<String>,
    /// Give up what cannot be read. The damaged folders are set aside in DATA/damaged
    #[arg(long)]
    accept_loss: bool,
}

impl RepairArguments {
    /// The configuration that the settings among the arguments make.
    ///
    /// # Errors
    /// Every mistake in any of them.
    pub(crate) fn config(&self) -> Result<(Vec<Sourced>, Config), Vec<ConfigError>> {
        self.settings.config()
    }
}

/// Examines, repairs if that is wanted, and tells. Fails if a database cannot be opened still.
///
/// # Errors
/// The data folder is in use, or cannot be read or written.
pub(crate) fn run(arguments: &RepairArguments, config: &Config) -> Result<ExitCode> {
    logs::install(config.log_format, &config.log_filter)?;
    // A folder that is made by examining it would be found sound.
    anyhow::ensure!(
        config.data.is_dir(),
        "there is no data folder {}",
        config.data.display()
    );
    let options = RepairOptions {
        memory: config.memory,
        database: arguments.database.clone(),
        accept_loss: arguments.accept_loss,
    };
    let found = repair(&config.data, &options)
        .with_context(|| format!("cannot examine {}", config.data.display()))?;
    let mut told = String::new();
    for examined in &found {
        tell(examined, &mut told);
    }
    print(told.trim_end())?;
    Ok(match found.iter().all(is_open) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    })
}

fn is_open(examined: &Examined) -> bool {
    matches!(examined.verdict, Verdict::Sound | Verdict::Repaired { .. })
}

fn tell(examined: &Examined, out: &mut String) {
    let mut line = |text: String| {
        // A String takes any text.
        let _ = writeln!(out, "{text}");
    };
    let (name, folder) = (&examined.database, examined.folder.display());
    match &examined.verdict {
        Verdict::Sound => line(format!("database \"{name}\" in {folder} is sound")),
        Verdict::Repairable { reason, losses } => {
            line(format!(
                "database \"{name}\" in {folder} cannot be opened: {reason}"
            ));
            for loss in losses {
                line(format!("  a repair would lose {loss}"));
            }
            line("  restore it from a backup, or run this with --accept-loss".to_owned());
        }
        Verdict::Repaired {
            reason,
            losses,
            aside,
        } => {
            line(format!(
                "database \"{name}\" in {folder} was repaired: {reason}"
            ));
            for loss in losses {
                line(format!("  lost: {loss}"));
            }
            line(format!("  the damaged folder is {}", aside.display()));
        }
        Verdict::Hopeless { reason } => {
            line(format!(
                "database \"{name}\" in {folder} cannot be opened: {reason}"
            ));
            line("  no repair is known; restore it from a backup".to_owned());
        }
    }
}
