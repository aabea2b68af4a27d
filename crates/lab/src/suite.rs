//! Runs some experiments, one after the other, and writes the report.

use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

use crate::Experiment;
use crate::experiment::{Options, Run};
use crate::machine::Machine;
use crate::place::Hosts;
use crate::report::{Part, report, standing_of};
use crate::results::Results;
use crate::store::{Progress, Settings, Store};

/// How a run ended, for each experiment: a line of text.
pub(crate) struct Summary {
    pub(crate) lines: Vec<String>,
    pub(crate) skipped: usize,
    pub(crate) failed: usize,
}

/// Runs `experiments` into `folder`.
///
/// # Errors
/// When the folder cannot be used. An experiment's own error is kept in the report.
pub(crate) fn run(
    experiments: &[&dyn Experiment],
    options: &Options,
    folder: &Path,
    resume: bool,
) -> Result<Summary> {
    let mut hosts = Hosts::new(&options.helper, options.limits);
    run_on(&mut hosts, experiments, options, folder, resume)
}

fn run_on(
    hosts: &mut Hosts,
    experiments: &[&dyn Experiment],
    options: &Options,
    folder: &Path,
    resume: bool,
) -> Result<Summary> {
    let settings = Settings {
        experiments: experiments
            .iter()
            .map(|one| one.about().name.to_owned())
            .collect(),
        quick: options.quick,
        environments: options.environments.clone(),
        limits: options.limits,
        seed: options.seed,
        machine: Machine::here(),
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now_s = now.map_or(0, |since| since.as_secs());
    let mut store = Store::open(folder, settings, resume, now_s)?;
    write_report(experiments, options, &store)?;
    for (entry, experiment) in experiments.iter().enumerate() {
        if store.state.entries[entry].progress != Progress::Finished {
            one(*experiment, options, (&mut store, entry), hosts)?;
            write_report(experiments, options, &store)?;
        }
    }
    let parts = parts(experiments, options, &store)?;
    let line = |part: &Part<'_>| {
        let mut line = format!(
            "{}: {}: {}",
            part.entry.name,
            standing_of(part),
            part.conclusion.verdict
        );
        for skip in &part.entry.skips {
            line += &format!("\n  SKIPPED: {}: {}", skip.what, skip.reason);
        }
        if let Some(error) = &part.entry.error {
            line += &format!("\n  FAILED: {error}");
        }
        line
    };
    let entries = &store.state.entries;
    Ok(Summary {
        lines: parts.iter().map(line).collect(),
        skipped: entries
            .iter()
            .filter(|entry| !entry.skips.is_empty())
            .count(),
        failed: entries.iter().filter(|entry| entry.error.is_some()).count(),
    })
}

/// Runs one experiment and keeps how it ended.
fn one(
    experiment: &dyn Experiment,
    options: &Options,
    (store, entry): (&mut Store, usize),
    hosts: &mut Hosts,
) -> Result<()> {
    let started = Instant::now();
    store.state.entries[entry].progress = Progress::Begun;
    store.state.entries[entry].error = None;
    store.save()?;
    store.tidy(entry)?;
    let mut run = Run::new(options, store, entry, &experiment.about(), hosts);
    let has_place = !run.environments().is_empty();
    let measured = if has_place {
        experiment.measure(&mut run)
    } else {
        Ok(())
    };
    let state = &mut store.state.entries[entry];
    state.took_s += started.elapsed().as_secs_f64();
    let has_run = has_place && (state.skips.is_empty() || !state.cells.is_empty());
    state.progress = match &measured {
        Err(_) => Progress::Failed,
        Ok(()) if has_run => Progress::Finished,
        Ok(()) => Progress::Skipped,
    };
    if let Err(error) = measured {
        eprintln!("{}: FAILED: {error:#}", state.name);
        state.error = Some(format!("{error:#}"));
    }
    if !has_place && state.skips.is_empty() {
        let about = experiment.about();
        let wanted: Vec<String> = about.environments.iter().map(ToString::to_string).collect();
        state.skips.push(crate::store::Skip {
            what: "all".to_owned(),
            reason: format!(
                "runs in {} only, which was not asked for",
                wanted.join(" and ")
            ),
        });
    }
    store.save()
}

fn parts<'a>(
    experiments: &[&'a dyn Experiment],
    options: &Options,
    store: &'a Store,
) -> Result<Vec<Part<'a>>> {
    let part = |(entry, experiment): (usize, &&'a dyn Experiment)| {
        let results = Results {
            samples: store.samples(entry)?,
            environments: options.environments.clone(),
            limits: options.limits,
        };
        Ok(Part {
            experiment: *experiment,
            entry: &store.state.entries[entry],
            conclusion: experiment.conclude(&results),
            results,
        })
    };
    experiments.iter().enumerate().map(part).collect()
}

fn write_report(experiments: &[&dyn Experiment], options: &Options, store: &Store) -> Result<()> {
    let parts = parts(experiments, options, store)?;
    let (html, files) = report(&store.state, &parts).context("cannot draw the report")?;
    for (name, svg) in files {
        store.write(&name, &svg)?;
    }
    for part in &parts {
        let summary = serde_json::to_string_pretty(&part.results.summary())?;
        store.write(&format!("{}/summary.json", part.entry.name), &summary)?;
    }
    store.write("report.html", &html)
}

#[cfg(test)]
mod tests;
