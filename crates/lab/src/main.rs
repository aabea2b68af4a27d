//! `aerostat-lab`: the lab by itself, as `aerostat lab` has it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use aerostat_lab::LabCommand;
use clap::Parser;

/// Experiments that check claims on this machine.
#[derive(Parser)]
#[command(name = "aerostat-lab", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: LabCommand,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let helper = std::env::current_exe().unwrap_or_default();
    match aerostat_lab::run(cli.command, (helper, Vec::new())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("aerostat-lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}
