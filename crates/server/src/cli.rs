//! The command line. The flags of `serve` come from the table of settings, so
//! that flag, environment and file can never drift apart.

use std::path::PathBuf;

use aerostat_embedded::machine_memory_bytes;
use aerostat_lab::LabCommand;
use clap::{Arg, ArgAction, ArgMatches, Args, FromArgMatches, Parser, Subcommand};

use crate::broker::BrokerCommand;
use crate::client::backup::{BackupArguments, RestoreArguments};
use crate::client::bench::BenchCommand;
use crate::client::calibrate::CalibrateArguments;
use crate::client::cert::CertCommand;
use crate::client::cluster::ClusterCommand;
use crate::client::demo::DemoArguments;
use crate::client::import::ImportArguments;
use crate::client::load::LoadCommand;
use crate::client::plan::PlanArguments;
use crate::client::promote::PromoteArguments;
use crate::config::{
    self, Config, ConfigError, Layer, Machine, OF_ENGINE, Origin, SETTINGS, Setting, Sourced,
};
use crate::program;
use crate::repair::RepairArguments;
use crate::sql::SqlArguments;

/// An elastic, multi-tenant, main-memory SQL database that speaks PostgreSQL's protocol.
#[derive(Parser)]
#[command(name = "aerostat", version = program::shown(), disable_help_subcommand = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run a node
    Serve(ServeArguments),
    /// Run SQL on a data folder in this process, without a node
    Sql(SqlArguments),
    /// Examine the databases of a data folder that no node has open, and repair damaged ones
    Repair(RepairArguments),
    /// Look at the configuration
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Load data into a running node
    Load {
        #[command(subcommand)]
        what: LoadCommand,
    },
    /// Measure a running node
    Bench {
        #[command(subcommand)]
        what: BenchCommand,
    },
    /// Back up a database of a running node, or verify a backup
    #[command(subcommand_negates_reqs = true, args_conflicts_with_subcommands = true)]
    Backup(BackupArguments),
    /// Make a database of a backup, in a running node
    Restore(RestoreArguments),
    /// Find this machine's caches, TLBs, latencies and bandwidths by timing
    Calibrate(CalibrateArguments),
    /// Run experiments that check claims on this machine
    Lab {
        #[command(subcommand)]
        command: LabCommand,
    },
    /// Move memory between programs of this machine
    Broker {
        #[command(subcommand)]
        command: BrokerCommand,
    },
    /// Plan which tenants go on which nodes
    Plan(PlanArguments),
    /// Copy a PostgreSQL database into a running node, and follow its changes
    Import(ImportArguments),
    /// Look at a cluster, plan which nodes have which database, and have nodes come and go
    Cluster {
        #[command(subcommand)]
        command: ClusterCommand,
    },
    /// Make certificates by which the nodes of a cluster know each other
    Cert {
        #[command(subcommand)]
        command: CertCommand,
    },
    /// Have a node of a cluster lead a database
    Promote(PromoteArguments),
    /// Start a node, load four tenants, check every answer, measure
    Demo(DemoArguments),
}

#[derive(Subcommand)]
pub(crate) enum ConfigCommand {
    /// Print the effective configuration and where each value comes from
    Check(ServeArguments),
}

/// The flags of `serve`: all settings.
pub(crate) type ServeArguments = SettingArguments<true>;

/// The flags of a command that opens a data folder and does not serve.
pub(crate) type EngineArguments = SettingArguments<false>;

/// Flags by setting: all, or those of the engine.
pub(crate) struct SettingArguments<const ALL: bool> {
    flags: Layer,
    file: Option<PathBuf>,
    /// Whether it is only looked at.
    only_check: bool,
}

/// The flag that is no setting.
const CHECK: &str = "check";

/// What a command that does not serve logs by itself, since its output is for people.
const QUIET_LOG_FILTER: &str = "warn";

impl<const ALL: bool> SettingArguments<ALL> {
    /// The configuration these flags, the environment and the file make.
    ///
    /// # Errors
    /// Every mistake in any of them.
    pub(crate) fn config(&self) -> Result<(Vec<Sourced>, Config), Vec<ConfigError>> {
        let environment = config::read_environment(std::env::vars_os())?;
        let file = self.file.as_deref();
        let layer = file.map(config::read_file).transpose()?;
        let mut values = config::resolve(&self.flags, &environment, file.zip(layer.as_ref()));
        for value in &mut values {
            if !ALL && value.setting.name == "log-filter" && value.origin == Origin::Default {
                value.text = QUIET_LOG_FILTER.to_owned();
            }
        }
        let config = Config::read(&values, machine())?;
        Ok((values, config))
    }

    /// Whether a node is only to look at its configuration, and say which build it is.
    pub(crate) fn only_checks(&self) -> bool {
        self.only_check
    }

    fn settings() -> impl Iterator<Item = &'static Setting> {
        let is_flag = |setting: &&Setting| ALL || OF_ENGINE.contains(&setting.name);
        SETTINGS.iter().filter(is_flag)
    }
}

fn machine() -> Machine {
    Machine {
        memory_bytes: machine_memory_bytes(),
        threads: std::thread::available_parallelism().map_or(1, usize::from),
    }
}

impl<const ALL: bool> Args for SettingArguments<ALL> {
    fn augment_args(command: clap::Command) -> clap::Command {
        let file = Arg::new("config")
            .long("config")
            .env("AEROSTAT_CONFIG")
            .value_name("FILE")
            .value_parser(clap::value_parser!(PathBuf))
            .help("TOML file with settings named as these flags are");
        let check = Arg::new(CHECK)
            .long(CHECK)
            .action(ArgAction::SetTrue)
            .help("Only look at the configuration, and print as JSON which build this is and which formats it has");
        let command = match ALL {
            true => command.arg(check),
            false => command,
        };
        Self::settings().fold(command.arg(file), |command, setting| {
            let default = match setting.default {
                "" => String::new(),
                default => format!(", default {default}"),
            };
            let help = format!("{} [env {}{default}]", setting.help, setting.environment());
            command.arg(
                Arg::new(setting.name)
                    .long(setting.name)
                    .value_name("VALUE")
                    .help(help),
            )
        })
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl<const ALL: bool> FromArgMatches for SettingArguments<ALL> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let flags = Self::settings()
            .filter_map(|setting| {
                Some((
                    setting.name,
                    matches.get_one::<String>(setting.name)?.clone(),
                ))
            })
            .collect();
        Ok(Self {
            flags,
            file: matches.get_one::<PathBuf>("config").cloned(),
            only_check: ALL && matches.get_flag(CHECK),
        })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_setting_is_a_flag() {
        let mut line = vec!["aerostat".to_owned(), "serve".to_owned()];
        for setting in SETTINGS {
            line.push(format!("--{}", setting.name));
            line.push("x".to_owned());
        }
        let Command::Serve(arguments) = Cli::try_parse_from(line).unwrap().command else {
            panic!("serve was asked for");
        };
        assert_eq!(arguments.flags.len(), SETTINGS.len());
    }

    #[test]
    fn those_of_the_engine_are_settings() {
        let found = SettingArguments::<false>::settings().count();
        assert_eq!(found, OF_ENGINE.len());
        let line = ["aerostat", "sql", "--listen", "127.0.0.1:1"];
        assert!(Cli::try_parse_from(line).is_err());
    }
}
