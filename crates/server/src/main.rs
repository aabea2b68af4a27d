//! `aerostat`: one binary for the node and for its clients.
//!
//! ```text
//!   serve         config ─► logs ─► runtimes ─► engine ─► gateway + HTTP ─► stop
//!   sql           config ─► engine ─► statements, without a node
//!   repair        config ─► each database opened, damage told and cut out, without a node
//!   config check  config ─► print
//!   load, bench, demo, backup, restore, promote, import
//!                 clients over the wire; they know nothing of the engine
//!   calibrate     times this machine's memory ─► a file that serve reads
//!   plan          tenants, a workload model ─► which of them on which nodes
//!   broker        moves memory between programs of this machine; or asks the broker that does
//!   lab           experiments ─► raw data, plots, a report; its helpers are this binary
//! ```
//!
//! This crate wires; whatever can be decided without wiring lives below it.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod balloon;
mod before;
mod broker;
mod cli;
mod client;
mod cluster;
mod config;
mod http;
mod logs;
mod metrics;
mod process;
mod program;
mod repair;
mod secret;
mod serve;
mod sql;
mod successor;
mod threads;
mod tls;

use std::io::Write;
use std::panic::{catch_unwind, resume_unwind};
use std::process::ExitCode;

use aerostat_embedded::Counted;
use aerostat_lab::LabCommand;
use anyhow::Context;
use clap::Parser;

use cli::{Cli, Command, ConfigCommand};

// Arrow buffers, plans and network frames come and go in many sizes on many
// threads; mimalloc returns their memory and scales where glibc's arenas do not. Counting tells what
// a statement holds.
#[global_allocator]
static ALLOCATOR: Counted<mimalloc::MiMalloc> = Counted(mimalloc::MiMalloc);

/// Exit code for a command line or configuration that does not stand, as clap has it.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.command {
        Command::Serve(arguments) => return serve(&arguments),
        Command::Config {
            command: ConfigCommand::Check(arguments),
        } => match arguments.config() {
            Ok((values, _)) => print(&config::render(&values)),
            Err(errors) => return refuse(&errors),
        },
        Command::Sql(arguments) => match arguments.config() {
            Ok((_, config)) => match sql::run(&arguments, &config) {
                Ok(code) => return code,
                Err(error) => Err(error),
            },
            Err(errors) => return refuse(&errors),
        },
        Command::Repair(arguments) => match arguments.config() {
            Ok((_, config)) => match repair::run(&arguments, &config) {
                Ok(code) => return code,
                Err(error) => Err(error),
            },
            Err(errors) => return refuse(&errors),
        },
        Command::Load { what } => client::load::run(what),
        Command::Bench { what } => client::bench::run(what),
        Command::Backup(arguments) => client::backup::run(arguments),
        Command::Restore(arguments) => client::backup::restore(arguments),
        Command::Calibrate(arguments) => client::calibrate::run(&arguments),
        Command::Lab { command } => lab(command),
        Command::Broker { command } => broker::run(command),
        Command::Plan(arguments) => client::plan::run(&arguments),
        Command::Import(arguments) => client::import::run(arguments),
        Command::Cluster { command } => client::cluster::run(&command),
        Command::Cert { command } => client::cert::run(&command),
        Command::Promote(arguments) => client::promote::run(&arguments),
        Command::Demo(arguments) => client::demo::run(&arguments),
    };
    ended(result)
}

fn ended(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("aerostat: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// A node, or what it would be.
fn serve(arguments: &cli::ServeArguments) -> ExitCode {
    if arguments.only_checks() {
        return match arguments.config() {
            Ok(_) => ended(
                serde_json::to_string(&program::build())
                    .map_err(anyhow::Error::from)
                    .and_then(|build| print(&build)),
            ),
            Err(errors) => refuse(&errors),
        };
    }
    // As the process was started.
    let before = before::Before::find();
    let config = match arguments.config() {
        Ok((_, config)) => config,
        Err(errors) => {
            if let (Some(before), Some(error)) = (&before, errors.first()) {
                before.go_back(&error.to_string());
            }
            return refuse(&errors);
        }
    };
    let Some(before) = before else {
        return ended(serve::run(config));
    };
    match catch_unwind(|| serve::run(config)) {
        Ok(result) => {
            if let Err(error) = &result {
                before.go_back(&format!("{error:#}"));
            }
            ended(result)
        }
        Err(panic) => {
            before.go_back("it panicked");
            resume_unwind(panic)
        }
    }
}

/// The lab, whose helpers are this program.
fn lab(command: LabCommand) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("cannot find this program")?;
    aerostat_lab::run(command, (program, vec!["lab".to_owned()]))
}

fn refuse(errors: &[config::ConfigError]) -> ExitCode {
    for error in errors {
        eprintln!("aerostat: {error}");
    }
    ExitCode::from(EXIT_USAGE)
}

/// Writes a line to standard output; a closed pipe is the reader's choice, no error.
fn print(text: &str) -> anyhow::Result<()> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}
