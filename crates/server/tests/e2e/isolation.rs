//! `tests/isolation`: what sessions see of each other, as PostgreSQL has it.
//!
//! A script is a file of scenarios for several sessions. Each runs at each isolation
//! level, in a schema of its own, with new sessions whose transactions begin at that level.
//!
//! ```text
//! # a comment
//! setup:
//!    CREATE TABLE t (id integer PRIMARY KEY, v integer);
//!
//! == the second writer waits
//! a: BEGIN
//!    BEGIN [T]
//! a: UPDATE t SET v = 11 WHERE id = 1
//!    UPDATE 1 [T]
//! b: UPDATE t SET v = 12 WHERE id = 1  -- waits
//! a: COMMIT
//!    COMMIT [I]
//! b: ...
//!    read committed:
//!       UPDATE 1 [I]
//!    repeatable read:
//!       ERROR 40001 could not serialize access due to concurrent update [I]
//! ```
//!
//! * `setup:` before the first scenario is everybody's; one after a heading `==` is added
//!   to it. Its statements are one message.
//! * `a: SQL` sends a message of session a and takes its answer, written below it: rows,
//!   notices, tags, an error's SQLSTATE and message, at last the transaction status of
//!   ReadyForQuery: `I`, `T` or `E`.
//! * `-- waits`: the message must wait for another session. `-- may wait`: it may.
//!   `b: ...` takes its answer.
//! * `a|b: …` does the same in both sessions; which gave which of the answers is left open.
//! * Results are those of both levels and both engines, or stand under a heading:
//!   `read committed:`, `aerostat:`, `postgresql at read committed:`.
//! * `# differs: why` above a step: Aerostat's results are its own there, on purpose.
//!
//! `UPDATE_GOLDEN=1` writes PostgreSQL's results into the files, and Aerostat's where they
//! differ. `ISOLATION=word` runs the files whose names contain it.

mod portals;
mod script;
mod stage;

use std::fmt::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use script::{Action, ENGINES, Item, LEVELS, Run, Script, Step};
use stage::{Place, Stage};

use crate::harness::Aerostat;
use crate::postgres::Postgres;

/// Held while files are read or written.
static FILES: Mutex<()> = Mutex::new(());

/// A server that plays scripts.
struct Theatre {
    engine: usize,
    address: SocketAddr,
    role: String,
    database: String,
}

impl Theatre {
    fn run_all(&self) {
        let _files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
        let update = std::env::var_os("UPDATE_GOLDEN").is_some();
        let (mut steps, mut report) = (0, String::new());
        for path in files() {
            let mut script = Script::read(&path);
            for level in 0..LEVELS.len() {
                let run = Run {
                    engine: self.engine,
                    level,
                };
                steps += self.run(&mut script, run, update, &mut report);
            }
            if update {
                script.write();
            }
        }
        eprintln!("{}: {steps} steps", ENGINES[self.engine]);
        assert!(
            report.is_empty(),
            "{} gives other results:\n{report}",
            ENGINES[self.engine]
        );
    }

    /// Plays a file at one level; gives the number of steps.
    fn run(&self, script: &mut Script, run: Run, update: bool, report: &mut String) -> usize {
        let file = script
            .path
            .file_stem()
            .unwrap()
            .to_string_lossy()
            .into_owned();
        let path = script.path.display().to_string();
        let (mut shared, mut own) = (String::new(), None);
        let (mut stage, mut stuck, mut steps) = (None, false, 0);
        let (mut scenario, mut number) = (String::new(), 0);
        for item in &mut script.items {
            match item {
                Item::Text(_) => {}
                Item::Setup(lines) => {
                    own.as_mut()
                        .unwrap_or(&mut shared)
                        .push_str(&lines.join("\n"));
                }
                Item::Scenario(name) => {
                    (scenario, own, stage, stuck) =
                        (name.clone(), Some(shared.clone()), None, false);
                    number += 1;
                }
                Item::Step(step) if !stuck => {
                    let stage = stage.get_or_insert_with(|| {
                        let place = self.place(&format!("{file}_{number}"), run);
                        Stage::new(place, own.as_deref().unwrap_or(&shared))
                    });
                    let (lines, cannot_go_on) = stage.play(step);
                    stuck = cannot_go_on.is_some();
                    steps += 1;
                    if update && !stuck {
                        step.record(run, lines.clone());
                    }
                    if step.expected(run) != lines {
                        let place = format!("{path}:{}: {scenario}", step.line);
                        complain(report, &place, run, step, &lines);
                    }
                }
                Item::Step(_) => {}
            }
        }
        steps
    }

    fn place(&self, scenario: &str, run: Run) -> Place {
        let level = LEVELS[run.level];
        Place {
            address: self.address,
            role: self.role.clone(),
            database: self.database.clone(),
            schema: format!("{scenario}_{}", level.replace(' ', "_")),
            level,
        }
    }
}

fn complain(report: &mut String, place: &str, run: Run, step: &Step, lines: &[String]) {
    writeln!(
        report,
        "{place}, at {}\n  {}",
        LEVELS[run.level],
        step.text()
    )
    .unwrap();
    for line in step.expected(run) {
        writeln!(report, "    expected  {line}").unwrap();
    }
    for line in lines {
        writeln!(report, "    got       {line}").unwrap();
    }
    if matches!(step.action, Action::Wait(_)) && !lines.is_empty() {
        writeln!(
            report,
            "    (its answer stands at the step that collects it)"
        )
        .unwrap();
    }
}

fn files() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/isolation");
    let entries = std::fs::read_dir(folder).unwrap();
    let only = std::env::var("ISOLATION").unwrap_or_default();
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "txt"))
        .filter(|path| path.to_string_lossy().contains(&only))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_see_what_they_see_in_postgresql() {
    let node = Aerostat::start();
    drop(node.create("isolation").await);
    let theatre = Theatre {
        engine: 1,
        address: node.sql,
        role: "aerostat".to_owned(),
        database: "isolation".to_owned(),
    };
    theatre.run_all();
}

#[tokio::test(flavor = "multi_thread")]
async fn postgresql_gives_the_results_of_the_scripts() {
    let Some(postgres) = Postgres::find().await else {
        return;
    };
    let database = postgres.create("isolation").await;
    let (address, role) = postgres.address();
    let theatre = Theatre {
        engine: 0,
        address,
        role,
        database,
    };
    theatre.run_all();
}
