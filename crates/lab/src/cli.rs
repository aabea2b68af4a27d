//! The command line.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};

use crate::experiment::{Options, no_guest};
use crate::{CATALOGUE, Environment, Experiment, HelperCommand, helper, suite};

/// Any will do; this one is told in reports.
const SEED: u64 = 42;

/// What to do in the lab.
#[derive(Subcommand)]
pub enum LabCommand {
    /// List the experiments
    List,
    /// Run some experiments, and write raw data, plots and a report with verdicts
    Run(RunArguments),
    /// Work of an experiment, in a process of its own
    #[command(hide = true)]
    Helper {
        /// The work
        #[command(subcommand)]
        work: HelperCommand,
    },
}

/// What to run, and how.
#[derive(Args)]
pub struct RunArguments {
    /// Experiments, as `list` names them, or `all`
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Fewer points and samples
    #[arg(long)]
    quick: bool,
    /// Where to run; by itself everywhere
    #[arg(long = "env", value_delimiter = ',', value_name = "ENVIRONMENT")]
    environments: Vec<Environment>,
    /// The folder of the report
    #[arg(long, default_value = "./aerostat-lab", value_name = "FOLDER")]
    out: PathBuf,
    /// Fail if anything cannot run here
    #[arg(long)]
    require: bool,
    /// Continue the run in the folder
    #[arg(long)]
    resume: bool,
    /// The seed of everything random
    #[arg(long, default_value_t = SEED)]
    seed: u64,
    /// The program whose nodes are measured; by itself this one
    #[arg(long, value_name = "PROGRAM")]
    node: Option<PathBuf>,
    /// The data folder that gets the workload model of a run that is not quick
    #[arg(
        long,
        env = "AEROSTAT_DATA",
        default_value = "./aerostat-data",
        value_name = "FOLDER"
    )]
    data: PathBuf,
}

/// Does it. A run fails if an experiment fails, or with `--require` if anything is skipped.
///
/// # Errors
/// When the command line does not stand, or the folder cannot be used.
pub fn run(command: LabCommand, helper: (PathBuf, Vec<String>)) -> Result<()> {
    match command {
        LabCommand::List => print(&list()),
        LabCommand::Run(arguments) => run_some(arguments, helper),
        LabCommand::Helper { work } => helper::run(&work),
    }
}

fn run_some(arguments: RunArguments, helper: (PathBuf, Vec<String>)) -> Result<()> {
    let experiments = chosen(&arguments.names)?;
    let mut environments = arguments.environments;
    environments.sort_unstable();
    environments.dedup();
    if environments.is_empty() {
        environments = Environment::ALL.to_vec();
    }
    // A program of its own, apart from the server, has helpers but no nodes.
    let (program, before) = &helper;
    let own = (!before.is_empty()).then(|| program.clone());
    let options = Options {
        quick: arguments.quick,
        node: arguments.node.or(own),
        data: (!arguments.quick).then_some(arguments.data),
        no_guest: no_guest(&environments),
        environments,
        seed: arguments.seed,
        helper,
    };
    let summary = suite::run(&experiments, &options, &arguments.out, arguments.resume)?;
    let report = arguments.out.join("report.html");
    print(&format!(
        "{}\n\nwritten to {}",
        summary.lines.join("\n"),
        report.display()
    ))?;
    if summary.failed > 0 {
        bail!("{} experiments failed", summary.failed);
    }
    if arguments.require && summary.skipped > 0 {
        bail!(
            "{} experiments could not run in full here, and --require is given",
            summary.skipped
        );
    }
    Ok(())
}

/// The experiments of these names, in the catalogue's order.
fn chosen(names: &[String]) -> Result<Vec<&'static dyn Experiment>> {
    let known = || CATALOGUE.iter().map(|one| one.about().name);
    for name in names {
        if name != "all" && !known().any(|known| known == name) {
            let known: Vec<&str> = known().collect();
            bail!(
                "there is no experiment {name:?}: there are {} and all",
                known.join(", ")
            );
        }
    }
    let wanted = |one: &&&dyn Experiment| {
        names
            .iter()
            .any(|name| name == "all" || name == one.about().name)
    };
    Ok(CATALOGUE.iter().filter(wanted).copied().collect())
}

fn list() -> String {
    let text = |one: &&dyn Experiment| {
        let about = one.about();
        let environments: Vec<String> =
            about.environments.iter().map(ToString::to_string).collect();
        format!(
            "{}\n  question      {}\n  source        {}\n  parameters    {}\n  environments  {}",
            about.name,
            about.question,
            about.source,
            about.parameters,
            environments.join(", ")
        )
    };
    let texts: Vec<String> = CATALOGUE.iter().map(text).collect();
    texts.join("\n\n")
}

/// Writes a line to standard output; a closed pipe is the reader's choice, no error.
pub(crate) fn print(text: &str) -> Result<()> {
    match writeln!(std::io::stdout(), "{text}") {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(error).context("cannot write to standard output")
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experiments_are_chosen_by_name() {
        let names = |asked: &[&str]| -> Result<Vec<&str>> {
            let asked: Vec<String> = asked.iter().map(|name| (*name).to_owned()).collect();
            Ok(chosen(&asked)?.iter().map(|one| one.about().name).collect())
        };
        assert_eq!(names(&["all"]).unwrap().len(), CATALOGUE.len());
        let both = names(&["selectivity", "calibrator", "selectivity"]).unwrap();
        assert_eq!(both, ["calibrator", "selectivity"]);
        let error = names(&["calibrator", "calibrate"]).unwrap_err().to_string();
        assert!(
            error.contains("\"calibrate\"") && error.contains("projectivity"),
            "{error}"
        );
    }

    #[test]
    fn the_list_tells_questions_and_sources() {
        let list = list();
        for experiment in CATALOGUE {
            let about = experiment.about();
            for text in [about.name, about.question, about.source, about.parameters] {
                assert!(list.contains(text), "{text}");
            }
        }
    }
}
