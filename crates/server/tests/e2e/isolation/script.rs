//! Scripts as text: reading them, and writing them back with other results.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Under which the scripts run, as settings spell them.
pub(super) const LEVELS: [&str; 2] = ["read committed", "repeatable read"];

/// Who runs them. PostgreSQL is right; the other follows, unless the script says why not.
pub(super) const ENGINES: [&str; 2] = ["postgresql", "aerostat"];

/// One engine at one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Run {
    pub(super) engine: usize,
    pub(super) level: usize,
}

impl Run {
    /// All of them, PostgreSQL's first.
    const ALL: [Run; 4] = [run(0, 0), run(0, 1), run(1, 0), run(1, 1)];

    fn at(self) -> usize {
        self.engine * LEVELS.len() + self.level
    }
}

const fn run(engine: usize, level: usize) -> Run {
    Run { engine, level }
}

/// A file of scenarios.
pub(super) struct Script {
    path: PathBuf,
    items: Vec<Item>,
}

/// Steps that are played on a stage of their own.
pub(super) struct Scenario<'a> {
    pub(super) name: &'a str,
    /// The file's and its own.
    pub(super) setup: String,
    pub(super) steps: Vec<&'a mut Step>,
}

/// What a file is made of, in its order.
enum Item {
    /// A comment or an empty line.
    Text(String),
    /// Statements before the scenarios, or before the steps of one.
    Setup(Vec<String>),
    /// The name of a scenario.
    Scenario(String),
    Step(Step),
}

/// Something that sessions do.
pub(super) struct Step {
    /// Counted from 1.
    pub(super) line: usize,
    pub(super) sessions: Vec<char>,
    pub(super) action: Action,
    /// Aerostat's results are its own.
    differs: bool,
    /// By [`Run::at`].
    results: [Vec<String>; 4],
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Sends a message and takes its answer.
    Send(String),
    /// Sends a message that must wait for another session.
    Wait(String),
    /// Sends a message that may have to wait.
    MayWait(String),
    /// Takes the answer of a message that was sent before.
    Collect,
}

impl Step {
    /// What a run must give.
    pub(super) fn expected(&self, run: Run) -> &[String] {
        &self.results[run.at()]
    }

    /// Takes over what a run gave. PostgreSQL's results are Aerostat's, too, unless the
    /// script says that they differ; Aerostat's are taken over only there. That a message
    /// has to wait is the script's word, not a result.
    pub(super) fn record(&mut self, run: Run, lines: &[String]) {
        if matches!(self.action, Action::Wait(_)) {
            return;
        }
        let aerostat = Run { engine: 1, ..run };
        if run.engine == 0 && (!self.differs || self.results[aerostat.at()].is_empty()) {
            self.results[aerostat.at()] = lines.to_vec();
        }
        if run.engine == 0 || self.differs {
            self.results[run.at()] = lines.to_vec();
        }
    }

    /// The step as the script has it.
    pub(super) fn text(&self) -> String {
        let sessions: Vec<String> = self.sessions.iter().map(char::to_string).collect();
        let action = match &self.action {
            Action::Send(sql) => sql.clone(),
            Action::Wait(sql) => format!("{sql}  -- waits"),
            Action::MayWait(sql) => format!("{sql}  -- may wait"),
            Action::Collect => "...".to_owned(),
        };
        format!("{}: {action}", sessions.join("|"))
    }

    fn parse(line: usize, text: &str, differs: bool) -> Option<Self> {
        let (names, action) = text.split_once(": ")?;
        let mut sessions = Vec::new();
        for name in names.split('|') {
            let name = name.parse().ok()?;
            if !char::is_ascii_lowercase(&name) {
                return None;
            }
            sessions.push(name);
        }
        let action = match action.rsplit_once("  -- ") {
            Some((sql, "waits")) => Action::Wait(sql.to_owned()),
            Some((sql, "may wait")) => Action::MayWait(sql.to_owned()),
            _ if action == "..." => Action::Collect,
            _ => Action::Send(action.to_owned()),
        };
        Some(Self {
            line,
            sessions,
            action,
            differs,
            results: Default::default(),
        })
    }

    fn write(&self, out: &mut String) {
        writeln!(out, "{}", self.text()).unwrap();
        let mut written = BTreeSet::new();
        for first in Run::ALL {
            let lines = self.expected(first);
            let alike = |run: &Run| self.expected(*run) == lines;
            let alike: BTreeSet<Run> = Run::ALL.into_iter().filter(alike).collect();
            if !written.insert(alike.clone()) {
                continue;
            }
            let heading = heading(alike);
            let indent = if heading.is_some() { 6 } else { 3 };
            if let Some(heading) = heading {
                writeln!(out, "   {heading}:").unwrap();
            }
            for line in lines {
                writeln!(out, "{:indent$}{line}", "").unwrap();
            }
        }
    }
}

/// Names runs in few words; `None` for all of them.
fn heading(mut runs: BTreeSet<Run>) -> Option<String> {
    if runs.len() == Run::ALL.len() {
        return None;
    }
    let mut names = Vec::new();
    for group in groups() {
        let (name, members) = group;
        if members.iter().all(|run| runs.contains(run)) {
            runs.retain(|run| !members.contains(run));
            names.push(name);
        }
    }
    Some(names.join(", "))
}

/// Every name of runs, the shortest ones first.
fn groups() -> Vec<(String, Vec<Run>)> {
    let by_level = (0..LEVELS.len()).map(|level| {
        let members = (0..ENGINES.len()).map(|engine| run(engine, level));
        (LEVELS[level].to_owned(), members.collect())
    });
    let by_engine = (0..ENGINES.len()).map(|engine| {
        let members = (0..LEVELS.len()).map(|level| run(engine, level));
        (ENGINES[engine].to_owned(), members.collect())
    });
    let single = Run::ALL.into_iter().map(|run| {
        let name = format!("{} at {}", ENGINES[run.engine], LEVELS[run.level]);
        (name, vec![run])
    });
    by_level.chain(by_engine).chain(single).collect()
}

/// The runs that a heading names, if the line is one.
fn named(line: &str) -> Option<Vec<Run>> {
    let groups = groups();
    let mut runs = Vec::new();
    for name in line.strip_suffix(':')?.split(", ") {
        let (_, members) = groups.iter().find(|(known, _)| known == name)?;
        runs.extend(members);
    }
    Some(runs)
}

impl Script {
    /// Reads a file; a mistake in it is a panic that names the line.
    pub(super) fn read(path: &Path) -> Self {
        let text = std::fs::read_to_string(path).unwrap();
        let mut items: Vec<Item> = Vec::new();
        let mut differs = false;
        let mut under: Vec<Run> = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let wrong = |why: &str| -> ! { panic!("{}:{}: {why}: {line}", path.display(), at + 1) };
            let indented = line.trim_start();
            if line.starts_with(' ') && !indented.is_empty() {
                match items.last_mut() {
                    Some(Item::Setup(lines)) => lines.push(indented.to_owned()),
                    Some(Item::Step(step)) => match line.strip_prefix("   ") {
                        Some(result) => step.read_result(result, &mut under),
                        None => wrong("a result is indented by three spaces"),
                    },
                    _ => wrong("indented, but under nothing"),
                }
                continue;
            }
            items.push(if line.is_empty() || line.starts_with('#') {
                differs |= line.starts_with("# differs:");
                Item::Text(line.to_owned())
            } else if line == "setup:" {
                Item::Setup(Vec::new())
            } else if let Some(name) = line.strip_prefix("== ") {
                Item::Scenario(name.to_owned())
            } else {
                under = Run::ALL.to_vec();
                match Step::parse(at + 1, line, std::mem::take(&mut differs)) {
                    Some(step) => Item::Step(step),
                    None => wrong("neither a step nor a heading nor a comment"),
                }
            });
        }
        let script = Self {
            path: path.to_owned(),
            items,
        };
        script.check();
        script
    }

    /// Every message that may wait is collected, and nobody speaks while waiting.
    fn check(&self) {
        let mut waiting = BTreeSet::new();
        let wrong = |step: &Step, why: &str| -> ! {
            panic!(
                "{}:{}: {why}: {}",
                self.path.display(),
                step.line,
                step.text()
            )
        };
        for item in &self.items {
            match item {
                Item::Scenario(name) if !waiting.is_empty() => {
                    panic!("{waiting:?} wait still where {name:?} begins")
                }
                Item::Step(step) => {
                    for session in &step.sessions {
                        let was_waiting = waiting.remove(session);
                        if was_waiting != (step.action == Action::Collect) {
                            wrong(
                                step,
                                "a session that waits is collected, and only such a one",
                            );
                        }
                        if matches!(step.action, Action::Wait(_) | Action::MayWait(_)) {
                            waiting.insert(*session);
                        }
                    }
                }
                _ => {}
            }
        }
        assert!(waiting.is_empty(), "{waiting:?} wait still at the end");
    }

    /// The file's name without its ending.
    pub(super) fn name(&self) -> String {
        let name = self.path.file_stem().expect("a file has a name");
        name.to_string_lossy().into_owned()
    }

    /// The scenarios in the order of the file.
    pub(super) fn scenarios(&mut self) -> Vec<Scenario<'_>> {
        let mut shared = String::new();
        let mut scenarios: Vec<Scenario<'_>> = Vec::new();
        for item in &mut self.items {
            match (item, scenarios.last_mut()) {
                (Item::Text(_), _) => {}
                (Item::Setup(lines), None) => shared += &lines.join("\n"),
                (Item::Setup(lines), Some(scenario)) => scenario.setup += &lines.join("\n"),
                (Item::Scenario(name), _) => scenarios.push(Scenario {
                    name,
                    setup: shared.clone(),
                    steps: Vec::new(),
                }),
                (Item::Step(step), Some(scenario)) => scenario.steps.push(step),
                (Item::Step(step), None) => {
                    panic!("{}:{}: before any heading", self.path.display(), step.line)
                }
            }
        }
        scenarios
    }

    /// Writes the file with the results it has now.
    pub(super) fn write(&self) {
        let mut out = String::new();
        for item in &self.items {
            match item {
                Item::Text(text) => writeln!(out, "{text}").unwrap(),
                Item::Scenario(name) => writeln!(out, "== {name}").unwrap(),
                Item::Setup(lines) => {
                    writeln!(out, "setup:").unwrap();
                    for line in lines {
                        writeln!(out, "   {line}").unwrap();
                    }
                }
                Item::Step(step) => step.write(&mut out),
            }
        }
        std::fs::write(&self.path, out).unwrap();
    }
}

impl Step {
    /// Takes a line of results, or the heading of those that follow.
    fn read_result(&mut self, line: &str, under: &mut Vec<Run>) {
        if let Some(runs) = named(line) {
            *under = runs;
            return;
        }
        // Under a heading, lines are indented once more.
        let line = if under.len() < Run::ALL.len() {
            line.strip_prefix("   ").unwrap_or(line)
        } else {
            line
        };
        for run in under {
            self.results[run.at()].push(line.to_owned());
        }
    }
}
