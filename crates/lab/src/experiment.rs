//! What an experiment is, and its inputs.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use aerostat_calibrate::Chart;
use anyhow::{Context, Result};

use crate::place::{Hosts, Places};
use crate::results::{Results, Sample};
use crate::store::{Skip, Store};
use crate::{Environment, Limits};

/// A question that is answered by measuring.
pub trait Experiment: Sync {
    /// What it is about.
    fn about(&self) -> About;

    /// Measures, cell by cell.
    ///
    /// # Errors
    /// When the machine refuses; what was measured before stays.
    fn measure(&self, run: &mut Run<'_>) -> Result<()>;

    /// What follows from the samples. Of an interrupted run there may be any part of them.
    fn conclude(&self, results: &Results) -> Conclusion;
}

/// What an experiment is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct About {
    /// Its name on the command line.
    pub name: &'static str,
    /// The question.
    pub question: &'static str,
    /// Where the question, and an earlier answer, come from.
    pub source: &'static str,
    /// What is varied, and how.
    pub parameters: &'static str,
    /// The answer that the source leads to expect.
    pub expected: &'static str,
    /// Where it runs.
    pub environments: &'static [Environment],
}

/// Whether the expected answer was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was.
    AsExpected,
    /// Another one was.
    Differs,
    /// The samples do not suffice.
    Unclear,
}

impl Outcome {
    /// For people.
    pub fn word(self) -> &'static str {
        match self {
            Outcome::AsExpected => "as expected",
            Outcome::Differs => "differs from what was expected",
            Outcome::Unclear => "unclear",
        }
    }
}

/// What follows from an experiment's samples.
#[derive(Clone, Debug, PartialEq)]
pub struct Conclusion {
    /// Whether it is what was expected.
    pub outcome: Outcome,
    /// The answer, in words and numbers.
    pub verdict: String,
    /// The numbers behind it.
    pub tables: Vec<Table>,
    /// File names and charts.
    pub charts: Vec<(&'static str, Chart)>,
}

/// Numbers for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// A heading per column.
    pub headings: Vec<String>,
    /// Rows of as many texts.
    pub rows: Vec<Vec<String>>,
}

/// How experiments run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Fewer points and samples.
    pub quick: bool,
    /// The environments asked for.
    pub environments: Vec<Environment>,
    /// The seed of everything random.
    pub seed: u64,
    /// The program that runs helpers, and the arguments before a helper's own.
    pub helper: (PathBuf, Vec<String>),
    /// The program that nodes are started with; `None`: there is none.
    pub node: Option<PathBuf>,
    /// The data folder that gets a workload model; `None`: none does.
    pub data: Option<PathBuf>,
    /// What cgroups and containers may use.
    pub limits: Limits,
}

/// An experiment's run: its options, and where its samples go.
pub struct Run<'a> {
    options: &'a Options,
    store: &'a mut Store,
    entry: usize,
    places: Places,
    /// When the last line of progress was written.
    told: Option<Instant>,
}

/// Progress is told no more often.
const TELL_EVERY: Duration = Duration::from_millis(500);

impl<'a> Run<'a> {
    /// A run of the experiment that is the store's entry of this number.
    pub(crate) fn new(
        options: &'a Options,
        store: &'a mut Store,
        entry: usize,
        about: &About,
        hosts: &mut Hosts,
    ) -> Run<'a> {
        store.state.entries[entry].skips.clear();
        let mut run = Run {
            options,
            store,
            entry,
            places: Places::default(),
            told: None,
        };
        for &environment in &options.environments {
            if !about.environments.contains(&environment) {
                continue;
            }
            match hosts.get(environment) {
                Err(reason) => run.skip(&environment.to_string(), &reason),
                Ok(worker) => run.places.all.push((environment, worker)),
            }
        }
        run
    }

    /// Whether fewer points and samples will do.
    pub fn is_quick(&self) -> bool {
        self.options.quick
    }

    /// The seed of everything random.
    pub fn seed(&self) -> u64 {
        self.options.seed
    }

    /// The environments that are asked for, of this experiment, and here.
    pub fn environments(&self) -> Vec<Environment> {
        self.places.environments()
    }

    /// The same, made ready.
    pub fn places(&self) -> Places {
        self.places.clone()
    }

    /// The program that runs helpers, and the arguments before a helper's own.
    pub fn helper(&self) -> &(PathBuf, Vec<String>) {
        &self.options.helper
    }

    /// The program that nodes are started with; without one, the experiment is skipped.
    pub(crate) fn node_program(&mut self) -> Option<PathBuf> {
        let program = self.options.node.clone();
        if program.is_none() {
            self.skip(
                "all",
                "this program has no node: use `aerostat lab`, or name one with --node",
            );
        }
        program
    }

    /// Writes a file into the data folder, if the run has one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn write_data(&self, name: &str, text: &str) -> Result<()> {
        match &self.options.data {
            Some(folder) => crate::store::write(&folder.join(name), text),
            None => Ok(()),
        }
    }

    /// What has been measured so far.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn results(&self) -> Result<Results> {
        self.results_of(self.entry)
    }

    /// What another experiment of this run has measured; nothing if there is none of the name.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn others(&self, name: &str) -> Result<Results> {
        let mut entries = self.store.state.entries.iter();
        match entries.position(|entry| entry.name == name) {
            Some(entry) => self.results_of(entry),
            None => Ok(Results::default()),
        }
    }

    fn results_of(&self, entry: usize) -> Result<Results> {
        Ok(Results {
            samples: self.store.samples(entry)?,
            environments: self.environments(),
            limits: self.options.limits,
        })
    }

    /// Writes a file into the experiment's folder.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<()> {
        let folder = &self.store.state.entries[self.entry].name;
        self.store.write(&format!("{folder}/{name}"), text)
    }

    /// A folder for what the experiment needs only while it runs; empty.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn scratch(&self) -> Result<PathBuf> {
        let name = &self.store.state.entries[self.entry].name;
        let scratch = self.store.folder().join(name).join("scratch");
        // Of a run that was cut off.
        let _ = std::fs::remove_dir_all(&scratch);
        std::fs::create_dir_all(&scratch)
            .with_context(|| format!("cannot make the folder {}", scratch.display()))?;
        Ok(scratch)
    }

    /// Says that something cannot run here.
    pub fn skip(&mut self, what: &str, reason: &str) {
        let entry = &mut self.store.state.entries[self.entry];
        eprintln!("{}: SKIPPED: {what}: {reason}", entry.name);
        entry.skips.push(Skip {
            what: what.to_owned(),
            reason: reason.to_owned(),
        });
    }

    /// Takes a cell's samples, unless an earlier run has them.
    ///
    /// # Errors
    /// Those of taking them, and of keeping them.
    pub fn cell(&mut self, name: &str, take: impl FnOnce(&mut Cell) -> Result<()>) -> Result<()> {
        let entry = &self.store.state.entries[self.entry];
        if entry.cells.iter().any(|cell| cell == name) {
            return Ok(());
        }
        if self.told.is_none_or(|told| told.elapsed() > TELL_EVERY) {
            eprintln!("{}: {name}", entry.name);
            self.told = Some(Instant::now());
        }
        let mut cell = Cell {
            name: name.to_owned(),
            samples: Vec::new(),
        };
        take(&mut cell)?;
        self.store.append(self.entry, name, &cell.samples)
    }
}

/// Samples that are taken together.
pub struct Cell {
    name: String,
    samples: Vec<Sample>,
}

impl Cell {
    /// Keeps a sample.
    pub fn put(&mut self, environment: Environment, series: &str, x: f64, value: f64) {
        self.samples.push(Sample {
            cell: self.name.clone(),
            environment,
            series: series.to_owned(),
            x,
            value,
        });
    }
}
