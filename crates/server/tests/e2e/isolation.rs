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

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use script::{ENGINES, LEVELS, Run, Script, Step};
use stage::{ScenarioTarget, Stage};

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
        let (mut steps, mut complaints) = (0, 0);
        for path in files() {
            let mut script = Script::read(&path);
            for level in 0..LEVELS.len() {
                let run = Run {
                    engine: self.engine,
                    level,
                };
                let (played, wrong) = self.run(&mut script, run, update);
                steps += played;
                complaints += wrong;
            }
            if update {
                script.write();
            }
        }
        eprintln!("{}: {steps} steps", ENGINES[self.engine]);
        assert_eq!(complaints, 0, "these gave other results; see above");
    }

    /// Plays a file at one level; gives the numbers of steps and of those with other results.
    fn run(&self, script: &mut Script, run: Run, update: bool) -> (usize, usize) {
        let file = script.name();
        let (mut steps, mut wrong) = (0, 0);
        for (number, scenario) in script.scenarios().into_iter().enumerate() {
            let place = self.place(&format!("{file}_{number}"), run);
            let mut stage = Stage::new(place, &scenario.setup);
            for step in scenario.steps {
                let (lines, stuck) = stage.play(step);
                if update && stuck.is_none() {
                    step.record(run, &lines);
                }
                steps += 1;
                if step.expected(run) != lines {
                    let place = format!("{file}.txt:{}: {}", step.line, scenario.name);
                    complain(&place, run, step, &lines);
                    wrong += 1;
                }
                if stuck.is_some() {
                    break;
                }
            }
        }
        (steps, wrong)
    }

    fn place(&self, scenario: &str, run: Run) -> ScenarioTarget {
        let level = LEVELS[run.level];
        ScenarioTarget {
            address: self.address,
            role: self.role.clone(),
            database: self.database.clone(),
            schema: format!("{scenario}_{}", level.replace(' ', "_")),
            level,
        }
    }
}

/// Tells at once what is wrong, so that it is told even if the test does not get to its end.
fn complain(place: &str, run: Run, step: &Step, lines: &[String]) {
    let (engine, level) = (ENGINES[run.engine], LEVELS[run.level]);
    eprintln!("{place}: {engine} at {level}\n   {}", step.text());
    for line in step.expected(run) {
        eprintln!("      expected  {line}");
    }
    for line in lines {
        eprintln!("      got       {line}");
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
