//! `aerostat sql`: statements on a data folder in this process, without a node.
//!
//! ```text
//!   -c, -f, standard input ─► statements ─► aerostat_embedded ─► table, CSV, JSON
//!   --json-lines: {"sql": …} a line ──────────────┘    └──► a line of JSON for each
//! ```

mod answer;
mod lines;
mod show;

use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use aerostat_embedded::{
    Aerostat, ConnectOptions, Connection, Notice, NoticeSeverity, Options, split,
};
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};

use crate::cli::EngineArguments;
use crate::config::{Config, ConfigError, Sourced};
use crate::logs;
use answer::Answer;

/// What to run, and where.
#[derive(Args)]
pub(crate) struct SqlArguments {
    #[command(flatten)]
    settings: EngineArguments,
    /// A data folder of its own, which is removed at the end
    #[arg(long, conflicts_with = "data")]
    temporary: bool,
    /// The database
    #[arg(long, default_value = "aerostat", value_name = "NAME")]
    database: String,
    /// The role; it needs no password
    #[arg(long, default_value = "aerostat", value_name = "NAME")]
    role: String,
    /// Run these statements; may be given again. Without it and -f they come from standard input
    #[arg(short, long, value_name = "SQL")]
    command: Vec<String>,
    /// Run the statements of this file, after those of -c; may be given again
    #[arg(short, long, value_name = "FILE")]
    file: Vec<PathBuf>,
    /// How results are shown; json is a line for each statement
    #[arg(long, value_enum, default_value_t = Format::Table)]
    format: Format,
    /// Tell how long each statement took, on standard error
    #[arg(long)]
    timing: bool,
    /// Go on after errors, and end as if there were none
    #[arg(long)]
    keep_going: bool,
    /// Answer lines of standard input, each {"sql": "…", "rows": true}, with a line of JSON each
    #[arg(long, conflicts_with_all = ["command", "file", "format", "timing", "keep_going"])]
    json_lines: bool,
}

/// How results are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Csv,
    Json,
}

impl SqlArguments {
    /// The configuration that the settings among the arguments make.
    ///
    /// # Errors
    /// Every mistake in any of them.
    pub(crate) fn config(&self) -> Result<(Vec<Sourced>, Config), Vec<ConfigError>> {
        self.settings.config()
    }

    /// The texts to run, in their order.
    fn texts(&self) -> Result<Vec<String>> {
        let mut texts = self.command.clone();
        for file in &self.file {
            let text = std::fs::read_to_string(file);
            texts.push(text.with_context(|| format!("cannot read {}", file.display()))?);
        }
        if self.command.is_empty() && self.file.is_empty() {
            let mut text = String::new();
            let read = io::stdin().read_to_string(&mut text);
            read.context("cannot read standard input")?;
            texts.push(text);
        }
        Ok(texts)
    }
}

/// Runs all statements, or those up to the first that fails.
///
/// # Errors
/// When there is nothing to run, or the data folder cannot be opened.
pub(crate) fn run(arguments: &SqlArguments, config: &Config) -> Result<ExitCode> {
    logs::install(config.log_format, &config.log_filter)?;
    // Before anything is made.
    let texts = match arguments.json_lines {
        true => Vec::new(),
        false => arguments.texts()?,
    };
    let mut options = config.options();
    if arguments.temporary {
        options.data = None;
    }
    let database = open(options)?;
    let mut connection = connect(&database, arguments)?;
    let done = match arguments.json_lines {
        true => lines::serve(&mut connection).map(|()| true),
        false => run_texts(&texts, arguments, &mut connection),
    };
    drop(connection);
    database.close()?;
    match done {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => Ok(ExitCode::FAILURE),
        // The reader has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => Err(error).context("cannot read statements or write results"),
    }
}

fn open(options: Options) -> Result<Aerostat> {
    let data = options.data.clone();
    Aerostat::open(options).with_context(|| match data {
        Some(data) => format!("cannot open the data folder {}", data.display()),
        None => "cannot open a temporary database".to_owned(),
    })
}

fn connect(database: &Aerostat, arguments: &SqlArguments) -> Result<Connection> {
    let options = ConnectOptions {
        database: arguments.database.clone(),
        role: arguments.role.clone(),
        settings: vec![("application_name".to_owned(), "aerostat sql".to_owned())],
    };
    Ok(database.connect_with(&options)?)
}

/// Whether all went well.
fn run_texts(
    texts: &[String],
    arguments: &SqlArguments,
    connection: &mut Connection,
) -> io::Result<bool> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut failed = false;
    for text in texts {
        for answer in Answers::of(text, connection) {
            if let Answer::Failed(_) = answer {
                failed = true;
            }
            show::put(&answer, arguments.format, &mut out)?;
            out.flush()?;
            if arguments.timing
                && let Some(ms) = answer.ms()
            {
                eprintln!("Time: {ms:.3} ms");
            }
            if failed && !arguments.keep_going {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// What the statements of a text come to, one after the other.
struct Answers<'c> {
    connection: &'c mut Connection,
    statements: std::vec::IntoIter<String>,
    /// None of them is run when one is no SQL.
    refused: Option<Answer>,
}

impl<'c> Answers<'c> {
    fn of(text: &str, connection: &'c mut Connection) -> Self {
        let (statements, refused) = match split(text) {
            Ok(statements) => (statements, None),
            Err(error) => (Vec::new(), Some(Answer::Failed(error))),
        };
        Self {
            connection,
            statements: statements.into_iter(),
            refused,
        }
    }
}

impl Iterator for Answers<'_> {
    type Item = Answer;

    fn next(&mut self) -> Option<Answer> {
        if let Some(refused) = self.refused.take() {
            return Some(refused);
        }
        let statement = self.statements.next()?;
        let answer = Answer::to(self.connection, |connection| connection.query(&statement));
        tell(&self.connection.take_notices());
        Some(answer)
    }
}

/// Shows what was said beside a result.
fn tell(notices: &[Notice]) {
    for notice in notices {
        let severity = match notice.severity {
            NoticeSeverity::Debug => "DEBUG",
            NoticeSeverity::Log => "LOG",
            NoticeSeverity::Info => "INFO",
            NoticeSeverity::Notice => "NOTICE",
            NoticeSeverity::Warning => "WARNING",
        };
        eprintln!("{severity}:  {}", notice.message);
    }
}
