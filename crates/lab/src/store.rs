//! The folder of a run: what has been taken stays, and is not taken again.
//!
//! ```text
//! DIR/lab.json                which run this is; each experiment's state
//! DIR/NAME/samples.csv        raw data: a line per sample
//! DIR/NAME/CHART.svg          the plots
//! DIR/report.html             all of it
//! ```
//!
//! A cell's samples are appended in one piece, then the cell is noted in `lab.json`; samples
//! of a cell that is not noted are of a run that was cut off, and are dropped.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::Environment;
use crate::machine::Machine;
use crate::results::Sample;

/// The format of a folder. Others are refused.
const FORMAT: u32 = 1;

/// What must be the same for a run to be resumed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// The experiments, by name.
    pub(crate) experiments: Vec<String>,
    /// Fewer points and samples.
    pub(crate) quick: bool,
    /// The environments asked for.
    pub(crate) environments: Vec<Environment>,
    /// The seed of everything random.
    pub(crate) seed: u64,
    /// The machine and the program.
    pub(crate) machine: Machine,
}

/// How far an experiment is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Progress {
    /// Not begun.
    #[default]
    Waiting,
    /// Begun and not ended; of a run that is over: interrupted.
    Begun,
    /// All is there.
    Finished,
    /// It cannot run here at all.
    Skipped,
    /// It ended with an error.
    Failed,
}

/// An environment that an experiment cannot have here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Skip {
    /// What is left out.
    pub(crate) what: String,
    /// Why.
    pub(crate) reason: String,
}

/// An experiment's state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// Its name.
    pub(crate) name: String,
    /// How far it is.
    pub(crate) progress: Progress,
    /// Finished cells.
    pub(crate) cells: Vec<String>,
    /// What cannot run here.
    pub(crate) skips: Vec<Skip>,
    /// What went wrong.
    pub(crate) error: Option<String>,
    /// Seconds it took, all runs together.
    pub(crate) took_s: f64,
}

/// A run's state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct State {
    format: u32,
    /// Which run it is.
    pub(crate) settings: Settings,
    /// When it began, in seconds since 1970.
    pub(crate) started_at_s: u64,
    /// The machine's load average then.
    #[serde(default)]
    pub(crate) load: String,
    /// Its experiments, in their order.
    pub(crate) entries: Vec<Entry>,
}

/// A run's folder.
#[derive(Debug)]
pub(crate) struct Store {
    folder: PathBuf,
    /// What `lab.json` says.
    pub(crate) state: State,
}

impl Store {
    /// Makes the folder ready for a run, or finds one in it to resume.
    ///
    /// # Errors
    /// When it cannot be written, has a run and `resume` is not given, or has another run.
    pub(crate) fn open(
        folder: &Path,
        settings: Settings,
        resume: bool,
        now_s: u64,
    ) -> Result<Store> {
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        let path = folder.join("lab.json");
        let state = match fs::read_to_string(&path) {
            Ok(_) if !resume => bail!(
                "{} has a run: continue it with --resume, or give another folder with --out",
                folder.display()
            ),
            Ok(text) => resumed(&text, &settings)
                .with_context(|| format!("cannot resume the run in {}", folder.display()))?,
            Err(_) => State {
                format: FORMAT,
                entries: settings
                    .experiments
                    .iter()
                    .map(|name| entry(name))
                    .collect(),
                settings,
                started_at_s: now_s,
                load: crate::machine::load(),
            },
        };
        let store = Store {
            folder: folder.to_owned(),
            state,
        };
        store.save()?;
        Ok(store)
    }

    /// The folder.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes the state.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub(crate) fn save(&self) -> Result<()> {
        let json = serde_json::to_string_pretty(&self.state).context("cannot write JSON")?;
        self.write("lab.json", &json)
    }

    /// Writes a file of the folder.
    ///
    /// # Errors
    /// When it cannot be written.
    pub(crate) fn write(&self, name: &str, text: &str) -> Result<()> {
        write(&self.folder.join(name), text)
    }

    /// The samples of an experiment's finished cells.
    ///
    /// # Errors
    /// When the file is not what was written.
    pub(crate) fn samples(&self, entry: usize) -> Result<Vec<Sample>> {
        let entry = &self.state.entries[entry];
        let path = self.samples_path(&entry.name);
        if !path.exists() {
            return Ok(Vec::new());
        }
        let mut samples = Vec::new();
        let mut reader = csv::Reader::from_path(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        for (line, sample) in reader.deserialize::<Sample>().enumerate() {
            match sample {
                Ok(sample) if entry.cells.contains(&sample.cell) => samples.push(sample),
                // Of a run that was cut off.
                Ok(_) => {}
                Err(error) => {
                    eprintln!("{}, sample {line}: {error}; left out", path.display());
                }
            }
        }
        Ok(samples)
    }

    /// Drops what was cut off, so that appending begins at a line's begin.
    ///
    /// # Errors
    /// When the folder cannot be read or written.
    pub(crate) fn tidy(&self, entry: usize) -> Result<()> {
        let samples = self.samples(entry)?;
        let name = &self.state.entries[entry].name;
        let text = lines(&samples, true)?;
        self.write(&format!("{name}/samples.csv"), &text)
    }

    /// Keeps a cell's samples, and that it is finished.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub(crate) fn append(&mut self, entry: usize, cell: &str, samples: &[Sample]) -> Result<()> {
        let path = self.samples_path(&self.state.entries[entry].name);
        let text = lines(samples, false)?;
        let written = || -> std::io::Result<()> {
            let mut file = fs::OpenOptions::new().append(true).open(&path)?;
            file.write_all(text.as_bytes())?;
            file.sync_data()
        };
        written().with_context(|| format!("cannot write {}", path.display()))?;
        self.state.entries[entry].cells.push(cell.to_owned());
        self.save()
    }

    fn samples_path(&self, name: &str) -> PathBuf {
        self.folder.join(name).join("samples.csv")
    }
}

/// Writes a file, and the folder it is in if that is missing; whoever reads it meanwhile
/// reads the old one.
///
/// # Errors
/// When it cannot be written.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    let written = || -> std::io::Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let part = path.with_extension("part");
        fs::write(&part, text)?;
        fs::rename(&part, path)
    };
    written().with_context(|| format!("cannot write {}", path.display()))
}

fn entry(name: &str) -> Entry {
    Entry {
        name: name.to_owned(),
        ..Entry::default()
    }
}

fn resumed(text: &str, settings: &Settings) -> Result<State> {
    let state: State = serde_json::from_str(text).context("lab.json is no run's state")?;
    if state.format != FORMAT {
        bail!("it has format {}, not {FORMAT}", state.format);
    }
    let (before, now) = (&state.settings, settings);
    let differing = [
        ("experiments", before.experiments != now.experiments),
        ("--quick", before.quick != now.quick),
        ("environments", before.environments != now.environments),
        ("seed", before.seed != now.seed),
        ("machine or program", before.machine != now.machine),
    ];
    if let Some((what, _)) = differing.iter().find(|(_, differs)| *differs) {
        bail!("it has other {what}; use another folder");
    }
    Ok(state)
}

fn lines(samples: &[Sample], headings: bool) -> Result<String> {
    let mut writer = csv::WriterBuilder::new()
        .has_headers(false)
        .from_writer(Vec::new());
    if headings {
        writer.write_record(["cell", "environment", "series", "x", "value"])?;
    }
    for sample in samples {
        writer.serialize(sample)?;
    }
    let bytes = writer.into_inner().context("cannot write CSV")?;
    String::from_utf8(bytes).context("cannot write CSV")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(quick: bool) -> Settings {
        Settings {
            experiments: vec!["a".to_owned()],
            quick,
            environments: vec![Environment::Native],
            seed: 1,
            machine: Machine::default(),
        }
    }

    fn sample(cell: &str, value: f64) -> Sample {
        Sample {
            cell: cell.to_owned(),
            environment: Environment::KvmMicro,
            series: "row, \"4 KiB\"".to_owned(),
            x: 0.25,
            value,
        }
    }

    #[test]
    fn finished_cells_stay_and_what_was_cut_off_is_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let open = |resume| Store::open(folder.path(), settings(true), resume, 7);
        let mut store = open(false).unwrap();
        store.tidy(0).unwrap();
        store
            .append(0, "one", &[sample("one", 1.5), sample("one", 2.5)])
            .unwrap();
        // The next cell's samples are half written when the power goes.
        let path = folder.path().join("a/samples.csv");
        let mut text = fs::read_to_string(&path).unwrap();
        text.push_str("two,kvm-micro,row,1,3\ntwo,kvm-mi");
        fs::write(&path, text).unwrap();
        drop(store);
        let mut store = open(true).unwrap();
        store.tidy(0).unwrap();
        store.append(0, "two", &[sample("two", 4.0)]).unwrap();
        let values: Vec<f64> = store.samples(0).unwrap().iter().map(|s| s.value).collect();
        assert_eq!(values, [1.5, 2.5, 4.0]);
        assert_eq!(store.samples(0).unwrap()[0], sample("one", 1.5));
        assert_eq!(store.state.started_at_s, 7);
    }

    #[test]
    fn other_runs_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        Store::open(folder.path(), settings(true), true, 0).unwrap();
        let refused = |settings, resume| {
            let error = Store::open(folder.path(), settings, resume, 0).unwrap_err();
            format!("{error:#}")
        };
        assert!(refused(settings(true), false).contains("--resume"));
        assert!(refused(settings(false), true).contains("--quick"));
        fs::write(folder.path().join("lab.json"), "{}").unwrap();
        assert!(refused(settings(true), true).contains("no run's state"));
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        let error = Store::open(&file, settings(true), false, 0).unwrap_err();
        assert!(
            format!("{error:#}").contains("cannot make the folder"),
            "{error:#}"
        );
    }
}
